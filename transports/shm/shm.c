/* The shared-memory transport: its life and its progress. See layout.h for what ranks see of each
 * other, connect.c, stream.c and send.c for how they speak, native.c for whole collectives. */
#include "transports/shm/shm.h"

#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

/* Longest message that may travel unannounced. */
#define EAGER_BYTES SHM_SMALL_BYTES
/* Entries read of one peer before the next peer has its turn. */
#define READ_TURN 64

static void shm_close(struct transport *transport);

static void init_slots(struct shm *shm) {
    /* Taken from the end: the same few slots again and again, while they are in the cache. */
    for (int i = 0; i < SHM_SMALL_SLOTS; i++)
        shm->small_free[i] = (uint16_t)(SHM_SMALL_SLOTS - 1 - i);
    for (int i = 0; i < SHM_LARGE_SLOTS; i++)
        shm->large_free[i] = (uint16_t)(SHM_SLOTS - 1 - i);
    shm->pools[0] = (struct shm_pool){shm->small_free, SHM_SMALL_SLOTS, SHM_SMALL_SLOTS};
    shm->pools[1] = (struct shm_pool){shm->large_free, SHM_LARGE_SLOTS, SHM_LARGE_SLOTS};
    for (int i = 0; i < SHM_SLOTS; i++)
        shm->slots[i].holder = -1;
}

/* Puts the doorbell's line where peers can see it; nobody else uses the bell yet. */
static void move_bell(struct doorbell *bell, struct doorbell_line *to) {
    struct doorbell_line *from = bell->line;
    atomic_store_explicit(&to->armed, atomic_load_explicit(&from->armed, memory_order_relaxed),
                          memory_order_relaxed);
    atomic_store_explicit(&to->interrupt,
                          atomic_load_explicit(&from->interrupt, memory_order_relaxed),
                          memory_order_relaxed);
    to->publisher_fences = from->publisher_fences;
    bell->line = to;
}

static rota_status shm_open_transport(struct transport_host *host, struct transport **transport) {
    struct shm *shm = calloc(1, sizeof *shm);
    if (!shm)
        return error_raise(ROTA_ERR_MEMORY, "out of memory");
    size_t n = (size_t)host->nranks;
    shm->transport.ops = &transport_shm;
    shm->transport.caps = (struct transport_caps){.size = sizeof shm->transport.caps,
                                                  .version = TRANSPORT_VERSION,
                                                  .max_message = SHM_LARGE_BYTES,
                                                  .preferred_slice = SHM_LARGE_BYTES,
                                                  .eager_bytes = EAGER_BYTES,
                                                  .memory_kinds = 1u << memory_host.id,
                                                  .native_forms = true};
    shm->host = host;
    shm->epoll_fd = -1;
    shm->start = (uint64_t)settings_integer(host->settings, SETTING_TEST_SEQUENCE_START);
    shm->isa = cpu_isa_best();
    init_slots(shm);
    shm_heap_open(&shm->heap,
                  strcmp(settings_text(host->settings, SETTING_HUGE_PAGES), "off") != 0);
    rota_status status = shm_arena_open(&shm->arena, host->identity, host->nranks, shm->heap.bytes);
    if (status != ROTA_OK)
        goto free;
    shm_levels_place(host->settings, host->rank, shm->arena.head->identity.place);
    shm->states = calloc(n, sizeof *shm->states);
    shm->peers = calloc(n, sizeof *shm->peers);
    shm->connected = calloc(n, sizeof *shm->connected);
    shm->connecting = calloc(n, sizeof *shm->connecting);
    if (!shm->states || !shm->peers || !shm->connected || !shm->connecting) {
        status = error_raise(ROTA_ERR_MEMORY, "out of memory");
        goto close;
    }
    shm->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (shm->epoll_fd < 0) {
        status = error_raise_system(errno, "epoll_create1");
        goto close;
    }
    shm->private_line = host->bell.line;
    move_bell(&host->bell, &shm->arena.head->bell);
    *transport = &shm->transport;
    return ROTA_OK;
close:
    shm_close(&shm->transport);
    return status;
free:
    shm_heap_close(&shm->heap);
    free(shm);
    return status;
}

static void shm_close(struct transport *transport) {
    struct shm *shm = shm_of(transport);
    shm_groups_free(shm);
    shm_streams_free(shm);
    for (int i = 0; shm->peers && i < shm->host->nranks; i++)
        if (shm->peers[i])
            shm_peer_free(shm, shm->peers[i]);
    if (shm->private_line)
        move_bell(&shm->host->bell, shm->private_line);
    if (shm->epoll_fd >= 0)
        close(shm->epoll_fd);
    shm_arena_close(&shm->arena);
    shm_heap_close(&shm->heap);
    free(shm->states);
    free(shm->peers);
    free(shm->connected);
    free(shm->connecting);
    free(shm);
}

static size_t shm_describe(struct transport *transport, void *blob) {
    (void)transport;
    uint64_t magic = SHM_MAGIC;
    memcpy(blob, &magic, sizeof magic);
    return sizeof magic;
}

static int shm_progress(struct transport *transport, int budget) {
    struct shm *shm = shm_of(transport);
    int events = 0;
    if (shm->nconnecting > 0)
        events += shm_connect_progress(shm);
    int before;
    do {
        before = events;
        for (int i = 0; i < shm->nconnected && events < budget; i++) {
            struct shm_peer *peer = shm->connected[i];
            events += shm_peer_read(shm, peer, READ_TURN);
            if (peer->notes || peer->ready)
                events += shm_peer_pump(shm, peer);
        }
    } while (events != before && events < budget);
    if (shm->partial)
        events += shm_wake_partial(shm);
    if (shm->waiting && shm_harvest(shm)) {
        shm_wake_waiting(shm);
        events++;
    }
    return events;
}

static bool shm_arm(struct transport *transport) {
    const struct shm *shm = shm_of(transport);
    for (int i = 0; i < shm->nconnected; i++)
        if (shm_peer_has_entry(shm->connected[i]))
            return false;
    return !shm_room_came(shm) && !shm_part_came(shm);
}

static void shm_disarm(struct transport *transport) {
    (void)transport;
}

static int shm_descriptor(struct transport *transport) {
    return shm_of(transport)->epoll_fd;
}

/* This transport has no posts: payloads go through its slots. */
static enum transport_result shm_post_send(struct transport *transport,
                                           struct transport_stream *stream,
                                           const struct transport_header *header,
                                           const struct transport_piece *pieces, int npieces,
                                           struct transport_ticket *ticket) {
    (void)transport, (void)stream, (void)header, (void)pieces, (void)npieces, (void)ticket;
    return TRANSPORT_UNSUPPORTED;
}

static enum transport_result shm_post_recv(struct transport *transport,
                                           struct transport_stream *stream, size_t length,
                                           const struct transport_piece *pieces, int npieces,
                                           struct transport_ticket *ticket) {
    (void)transport, (void)stream, (void)length, (void)pieces, (void)npieces, (void)ticket;
    return TRANSPORT_UNSUPPORTED;
}

static bool shm_withdraw(struct transport *transport, struct transport_stream *stream,
                         struct transport_ticket *ticket) {
    (void)transport, (void)stream;
    return ticket == NULL; /* nothing was posted; a message of any length may come */
}

static void *shm_allocate(struct transport *transport, size_t bytes) {
    return shm_heap_allocate(&shm_of(transport)->heap, bytes);
}

static bool shm_deallocate(struct transport *transport, void *memory) {
    return shm_heap_free(&shm_of(transport)->heap, memory);
}

static void shm_quiesce(struct transport *transport, struct transport_stream *stream) {
    (void)transport, (void)stream; /* user memory is never touched after a call returned */
}

const struct transport_ops transport_shm = {
    .name = "shm",
    .help = "shared memory between ranks of one host",
    .open = shm_open_transport,
    .close = shm_close,
    .describe = shm_describe,
    .reaches = shm_reaches,
    .connect = shm_connect,
    .admit = shm_admit,
    .gave_up = shm_gave_up,
    .offer = shm_offer,
    .accept = shm_accept,
    .stream_open = shm_stream_open,
    .stream_close = shm_stream_close,
    .reserve = shm_reserve,
    .publish = shm_publish,
    .commit = shm_commit,
    .put = shm_put,
    .post_send = shm_post_send,
    .expect = shm_expect,
    .post_recv = shm_post_recv,
    .withdraw = shm_withdraw,
    .peek = shm_peek,
    .release = shm_release,
    .take = shm_take,
    .pending = shm_pending,
    .allocate = shm_allocate,
    .deallocate = shm_deallocate,
    .progress = shm_progress,
    .arm = shm_arm,
    .disarm = shm_disarm,
    .descriptor = shm_descriptor,
    .quiesce = shm_quiesce,
    .peer_gone = shm_peer_gone,
    .native = &shm_native,
};
