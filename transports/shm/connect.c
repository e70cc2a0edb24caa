/* Connecting to peers.
 *
 * Design note. A connection is an exchange of descriptors (arena, eventfd, heap) over the
 * authenticated handshake, after which each side maps the other's arena, checks its head, and tells
 * the other by one byte whether it could. Only when both could is the pair connected; otherwise
 * both give this transport up for the pair, and both know it. Then the socket is closed: from there
 * on the two speak by memory alone. */
#include "transports/shm/shm.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* From connect to the end of the handshake; the acceptor's side drops connections sooner. */
#define DIAL_MS 10000
/* From admit to accept; above what the acceptor allows a handshake to take. */
#define ADMIT_MS 15000

/* Ranks in one process that map each other's heaps. */
#define MAX_THREAD_HEAPS 8

#define SHM_MAPPED 'M'
#define SHM_NOT_MAPPED 'F'
#define CLOSED_EARLY "the peer closed the connection before it was confirmed"

bool shm_reaches(struct transport *transport, int rank) {
    struct shm *shm = shm_of(transport);
    const struct transport_peer *peer = &shm->host->peers[rank];
    uint64_t magic = 0;
    if (!peer->same_host || peer->blob_bytes != sizeof magic)
        return false;
    memcpy(&magic, peer->blob, sizeof magic);
    return magic == SHM_MAGIC && shm_state(shm, rank) != SHM_PEER_GIVEN_UP;
}

static bool change_state(struct shm *shm, int rank, uint8_t from, uint8_t to) {
    return atomic_compare_exchange_strong_explicit(&shm->states[rank], &from, to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static struct shm_peer *peer_get(struct shm *shm, int rank) {
    struct shm_peer *peer = shm->peers[rank];
    if (peer)
        return peer;
    peer = calloc(1, sizeof *peer);
    if (!peer)
        return NULL;
    peer->rank = rank;
    peer->socket = -1;
    peer->dial_fd = -1;
    peer->event_fd = -1;
    peer->ready_tail = &peer->ready;
    peer->published = peer->consumed_seen = peer->read = shm->start;
    shm->peers[rank] = peer;
    return peer;
}

static void connecting_add(struct shm *shm, struct shm_peer *peer) {
    if (!peer->in_connecting) {
        peer->in_connecting = true;
        shm->connecting[shm->nconnecting++] = peer;
    }
}

static void connecting_remove(struct shm *shm, struct shm_peer *peer) {
    for (int i = 0; i < shm->nconnecting; i++)
        if (shm->connecting[i] == peer) {
            shm->connecting[i] = shm->connecting[--shm->nconnecting];
            peer->in_connecting = false;
            return;
        }
}

static void dial_drop(struct shm *shm, struct shm_peer *peer) {
    if (peer->dial) {
        if (peer->dial_fd >= 0)
            (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, peer->dial_fd, NULL);
        net_dial_free(peer->dial);
        peer->dial = NULL;
        peer->dial_fd = -1;
    }
}

static void socket_drop(struct shm *shm, struct shm_peer *peer) {
    if (peer->socket >= 0) {
        (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, peer->socket, NULL);
        close(peer->socket);
        peer->socket = -1;
    }
}

void shm_peer_free(struct shm *shm, struct shm_peer *peer) {
    dial_drop(shm, peer);
    socket_drop(shm, peer);
    if (peer->event_fd >= 0)
        close(peer->event_fd);
    shm_map_close(&peer->map);
    shm_heap_unmap(peer->heap, peer->heap_bytes);
    while (peer->ready) {
        struct shm_outgoing *next = peer->ready->next;
        free(peer->ready);
        peer->ready = next;
    }
    free(peer);
}

static void give_up(struct shm *shm, struct shm_peer *peer, int system_error, const char *text) {
    atomic_store_explicit(&shm->states[peer->rank], SHM_PEER_GIVEN_UP, memory_order_release);
    connecting_remove(shm, peer);
    dial_drop(shm, peer);
    socket_drop(shm, peer);
    if (peer->event_fd >= 0) {
        close(peer->event_fd);
        peer->event_fd = -1;
    }
    shm_map_close(&peer->map);
    shm_heap_unmap(peer->heap, peer->heap_bytes);
    peer->heap = NULL;
    shm->host->unreachable(shm->host->context, &shm->transport, peer->rank, system_error, text);
}

/* Makes this rank's pair block for the peer and shows it. False when the arena is full. */
static bool pair_publish(struct shm *shm, struct shm_peer *peer) {
    if (peer->out)
        return true;
    size_t offset = shm_arena_allocate(&shm->arena, sizeof(struct shm_pair));
    if (!offset)
        return false;
    peer->out = shm_arena_at(&shm->arena, offset);
    atomic_store_explicit(&peer->out->ack.consumed, shm->start, memory_order_relaxed);
    _Atomic uint64_t *directory = shm_arena_at(&shm->arena, shm->arena.head->identity.directory);
    /* Release: partner is the peer's load in pair_find. */
    atomic_store_explicit(&directory[peer->rank], offset, memory_order_release);
    return true;
}

/* Finds the peer's pair block for this rank; it was published before the peer's byte was sent. */
static bool pair_find(struct shm *shm, struct shm_peer *peer) {
    const struct shm_identity *identity = &peer->map.head->identity;
    const _Atomic uint64_t *directory =
        shm_map_at(&peer->map, identity->directory, (size_t)shm->host->nranks * sizeof(uint64_t));
    uint64_t offset = atomic_load_explicit(&directory[shm->host->rank], memory_order_acquire);
    peer->in = offset ? shm_map_at(&peer->map, offset, sizeof(struct shm_pair)) : NULL;
    peer->small_slots = peer->map.base + identity->small_slots;
    peer->large_slots = peer->map.base + identity->large_slots;
    peer->filled = shm_map_at(&peer->map, identity->filled,
                              SHM_LARGE_SLOTS * sizeof(struct shm_filled)); /* checked before */
    return peer->in != NULL;
}

static bool watch(struct shm *shm, int fd, uint32_t events) {
    struct epoll_event event = {.events = events};
    return epoll_ctl(shm->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Whether the peer told its verdict; 1 when something happened. */
static int confirm_step(struct shm *shm, struct shm_peer *peer) {
    uint8_t told = 0;
    ssize_t n;
    do
        n = recv(peer->socket, &told, 1, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    if (n != 1) {
        give_up(shm, peer, n < 0 ? errno : ECONNRESET, CLOSED_EARLY);
        return 1;
    }
    if (told != SHM_MAPPED) {
        give_up(shm, peer, 0, "the peer could not map this rank's memory");
        return 1;
    }
    if (!pair_find(shm, peer)) {
        /* The peer counts this pair as connected: it is broken, not unreachable. */
        peer->failed = true;
        give_up(shm, peer, 0, "the peer's directory of shared memory is wrong");
        return 1;
    }
    connecting_remove(shm, peer);
    socket_drop(shm, peer);
    shm->connected[shm->nconnected++] = peer;
    /* Release: partner is shm_state in the control thread. */
    atomic_store_explicit(&shm->states[peer->rank], SHM_PEER_ESTABLISHED, memory_order_release);
    shm->host->connected(shm->host->context, &shm->transport, peer->rank);
    return 1;
}

/* Maps the peer's heap where it can be: without, buffers in it are staged as others are. Ranks that
 * are threads share one address space: many of them would fill it. */
static void map_heap(const struct shm *shm, struct shm_peer *peer, int fd) {
    if (shm->host->peers[peer->rank].same_process && shm->host->nranks > MAX_THREAD_HEAPS)
        return;
    peer->heap_bytes = peer->map.head->identity.heap_bytes;
    peer->heap = peer->heap_bytes > 0 ? shm_heap_map(fd, peer->heap_bytes) : NULL;
}

/* Descriptors are here: maps, tells the peer, and begins to wait for what it tells. */
static void confirm_begin(struct shm *shm, struct shm_peer *peer, int socket,
                          const int *descriptors, int ndescriptors) {
    const struct transport_peer *about = &shm->host->peers[peer->rank];
    peer->socket = socket;
    peer->why = NULL;
    peer->system_error = 0;
    if (ndescriptors != 2 && ndescriptors != 3)
        peer->why = "the peer sent no descriptors";
    else
        peer->why = shm_map_open(&peer->map, descriptors[0], shm->host->identity, peer->rank,
                                 about->incarnation, shm->host->nranks, &peer->system_error);
    if (!peer->why && !pair_publish(shm, peer))
        peer->why = "the arena is full";
    if (!peer->why && ndescriptors == 3)
        map_heap(shm, peer, descriptors[2]);
    for (int i = 0; i < ndescriptors; i++)
        if (i == 1 && !peer->why)
            peer->event_fd = descriptors[i];
        else
            close(descriptors[i]);
    peer->verdict = peer->why ? SHM_NOT_MAPPED : SHM_MAPPED;
    connecting_add(shm, peer);
    if (!watch(shm, socket, EPOLLIN) && !peer->why) {
        peer->system_error = errno;
        peer->why = "epoll_ctl";
        peer->verdict = SHM_NOT_MAPPED;
    }
    /* One byte always fits into an empty socket. */
    ssize_t n;
    do
        n = send(socket, &peer->verdict, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (peer->why)
        give_up(shm, peer, peer->system_error, peer->why);
    else if (n != 1 && confirm_step(shm, peer) == 0) /* the peer closed: perhaps it told why */
        give_up(shm, peer, EPIPE, CLOSED_EARLY);
}

/* Starts a dial. False when it could not even start. */
static bool dial_start(struct shm *shm, struct shm_peer *peer) {
    const struct transport_peer *about = &shm->host->peers[peer->rank];
    struct net_target target = {.local_name = about->addresses->local_name};
    int offered[NET_MAX_DESCRIPTORS];
    int noffered = shm_offer(&shm->transport, peer->rank, offered);
    if (net_dial_start(shm->host->identity, &target, peer->rank,
                       (enum net_purpose)(NET_PURPOSE_DATA + TRANSPORT_SHM), offered, noffered,
                       peer->deadline_ns, &peer->dial) != ROTA_OK) {
        peer->dial = NULL;
        return false;
    }
    uint32_t events = 0;
    peer->dial_fd = net_dial_descriptor(peer->dial, &events);
    return watch(shm, peer->dial_fd, events);
}

void shm_connect(struct transport *transport, int rank) {
    struct shm *shm = shm_of(transport);
    uint8_t state = shm_state(shm, rank);
    if (state == SHM_PEER_GIVEN_UP) {
        shm->host->unreachable(shm->host->context, transport, rank, 0,
                               "shared memory was given up for this pair");
        return;
    }
    struct shm_peer *peer = peer_get(shm, rank);
    if (!peer) {
        shm->host->unreachable(shm->host->context, transport, rank, ENOMEM, "out of memory");
        return;
    }
    if (state == SHM_PEER_IDLE && change_state(shm, rank, SHM_PEER_IDLE, SHM_PEER_DIALLING)) {
        peer->deadline_ns = clock_deadline(DIAL_MS);
        connecting_add(shm, peer);
        if (shm->host->peers[rank].addresses->local_name[0] == '\0')
            give_up(shm, peer, 0, "the peer listens on no local socket");
        else if (!dial_start(shm, peer))
            give_up(shm, peer, errno, "connecting to the peer's local socket failed");
        return;
    }
    if (shm_state(shm, rank) == SHM_PEER_ADMITTED && !peer->in_connecting) {
        peer->deadline_ns = clock_deadline(ADMIT_MS);
        connecting_add(shm, peer);
    }
}

bool shm_admit(struct transport *transport, int rank) {
    struct shm *shm = shm_of(transport);
    if (rank < 0 || rank >= shm->host->nranks || rank == shm->host->rank)
        return false;
    if (change_state(shm, rank, SHM_PEER_IDLE, SHM_PEER_ADMITTED))
        return true;
    return rank < shm->host->rank && change_state(shm, rank, SHM_PEER_DIALLING, SHM_PEER_ADMITTED);
}

bool shm_gave_up(struct transport *transport, int rank) {
    struct shm *shm = shm_of(transport);
    return rank >= 0 && rank < shm->host->nranks && shm_state(shm, rank) == SHM_PEER_GIVEN_UP;
}

int shm_offer(struct transport *transport, int rank, int *descriptors) {
    struct shm *shm = shm_of(transport);
    (void)rank;
    descriptors[0] = shm->arena.fd;
    descriptors[1] = shm->host->bell.event_fd;
    descriptors[2] = shm->heap.fd;
    return shm->heap.fd >= 0 ? 3 : 2;
}

void shm_accept(struct transport *transport, int rank, int socket, const int *descriptors,
                int ndescriptors) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = peer_get(shm, rank);
    if (!peer || !change_state(shm, rank, SHM_PEER_ADMITTED, SHM_PEER_CONFIRMING)) {
        for (int i = 0; i < ndescriptors; i++)
            close(descriptors[i]);
        close(socket);
        return;
    }
    dial_drop(shm, peer); /* a crossing one, that of the higher rank */
    confirm_begin(shm, peer, socket, descriptors, ndescriptors);
}

/* What to do about a dial that failed. */
static void dial_failed(struct shm *shm, struct shm_peer *peer, rota_status status,
                        const struct net_answer *answer) {
    dial_drop(shm, peer);
    if (shm_state(shm, peer->rank) == SHM_PEER_ADMITTED)
        return; /* the peer's own connection lives and is on its way */
    if (status == ROTA_ERR_MISMATCH && answer->verdict == NET_REFUSED_CROSSING)
        return; /* likewise, and progress watches the deadline */
    give_up(shm, peer, 0,
            status == ROTA_ERR_MISMATCH ? "the peer refused to share memory"
                                        : "the handshake over the peer's local socket failed");
}

static int dial_step(struct shm *shm, struct shm_peer *peer) {
    bool finished = false;
    struct net_answer answer = {0};
    rota_status status = net_dial_step(peer->dial, &finished, &answer);
    if (status != ROTA_OK) {
        dial_failed(shm, peer, status, &answer);
        return 1;
    }
    if (!finished) {
        struct epoll_event event = {0};
        uint32_t events = 0;
        int fd = net_dial_descriptor(peer->dial, &events);
        event.events = events;
        if (epoll_ctl(shm->epoll_fd, EPOLL_CTL_MOD, fd, &event) != 0)
            give_up(shm, peer, errno, "epoll_ctl");
        return 0;
    }
    (void)epoll_ctl(shm->epoll_fd, EPOLL_CTL_DEL, peer->dial_fd, NULL);
    peer->dial_fd = -1;
    int descriptors[NET_MAX_DESCRIPTORS], ndescriptors = 0;
    int socket = net_dial_take(peer->dial, descriptors, &ndescriptors);
    dial_drop(shm, peer);
    if (!change_state(shm, peer->rank, SHM_PEER_DIALLING, SHM_PEER_CONFIRMING)) {
        for (int i = 0; i < ndescriptors; i++)
            close(descriptors[i]);
        close(socket);
        return 1;
    }
    confirm_begin(shm, peer, socket, descriptors, ndescriptors);
    return 1;
}

int shm_connect_progress(struct shm *shm) {
    int events = 0;
    for (int i = shm->nconnecting - 1; i >= 0; i--) {
        if (i >= shm->nconnecting)
            continue; /* a call-back removed several */
        struct shm_peer *peer = shm->connecting[i];
        if (peer->dial)
            events += dial_step(shm, peer);
        else if (peer->socket >= 0)
            events += confirm_step(shm, peer);
        else if (clock_passed(peer->deadline_ns)) {
            give_up(shm, peer, ETIMEDOUT, "the peer's connection did not come");
            events++;
        }
    }
    return events;
}

bool shm_peer_gone(struct transport *transport, int rank, bool left, const char *text) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = shm->peers[rank];
    (void)left, (void)text;
    /* No connection is made any more, and groups do not wait for it. */
    uint8_t before =
        atomic_exchange_explicit(&shm->states[rank], SHM_PEER_GIVEN_UP, memory_order_acq_rel);
    if (!peer || peer->failed)
        return true;
    /* Its memory stays mapped: groups and messages still refer to it. */
    connecting_remove(shm, peer);
    dial_drop(shm, peer);
    socket_drop(shm, peer);
    if (before != SHM_PEER_ESTABLISHED)
        return true;
    while (shm_peer_read(shm, peer, SHM_FIFO_ENTRIES) > 0)
        ;
    peer->failed = true;
    shm_peer_drop(shm, peer);
    return true;
}
