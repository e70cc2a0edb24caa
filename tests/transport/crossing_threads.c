/* Two ranks that connect to each other at the same time, each with a thread that holds its domain,
 * while a control thread accepts for both: what they share is the state of the connection alone.
 * A plain program, so that it also runs under the thread sanitizer. */
#include "base/clock.h"
#include "net/handshake.h"
#include "transports/transport.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 30

#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct admission {
    struct admission *next;
    int peer, socket, ndescriptors;
    int descriptors[NET_MAX_DESCRIPTORS];
};

struct rank {
    struct transport_host host;
    struct net_identity identity;
    struct transport_peer peers[2];
    struct net_addresses addresses;
    struct net_listener *listener;
    struct doorbell_line *line;
    struct transport *transport;
    char blob[64];
    size_t blob_bytes;
    pthread_mutex_t lock; /* of admissions */
    struct admission *admissions;
    int connected, arrived;
    _Atomic int finished;
    pthread_t thread;
};

static const struct transport_ops *ops;
static struct rank ranks[2];
static pthread_barrier_t start;
static _Atomic bool stop_control;

static void on_owner(void *owner) {
    ((struct rank *)owner)->arrived++;
}
static void on_writable(void *owner) {
    (void)owner;
}
static void on_connected(void *context, struct transport *transport, int peer) {
    (void)transport, (void)peer;
    ((struct rank *)context)->connected++;
}
static void on_lost(void *context, struct transport *transport, int peer, int error,
                    const char *text) {
    (void)context, (void)transport;
    fprintf(stderr, "rank %d lost: %d %s\n", peer, error, text);
    abort();
}
static void on_failed(void *context, struct transport *transport, int peer, int error,
                      const char *text) {
    struct rank *rank = context;
    /* The other side may be done and gone. */
    if (atomic_load(&ranks[peer].finished))
        return;
    on_lost(rank, transport, peer, error, text);
}

static const struct net_identity *find(void *context, const struct net_hello *hello) {
    struct rank *rank = context;
    return hello->target_rank == (uint32_t)rank->host.rank ? &rank->identity : NULL;
}
static enum net_verdict judge(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors) {
    struct rank *rank = context;
    if (!ops->admit(rank->transport, (int)hello->rank))
        return NET_REFUSED_CROSSING;
    *ndescriptors = ops->offer ? ops->offer(rank->transport, (int)hello->rank, descriptors) : 0;
    return NET_GO;
}
static void admit(void *context, const struct net_hello *hello, int socket, const int *descriptors,
                  int ndescriptors) {
    struct rank *rank = context;
    struct admission *admission = calloc(1, sizeof *admission);
    REQUIRE(admission);
    admission->peer = (int)hello->rank;
    admission->socket = socket;
    admission->ndescriptors = ndescriptors;
    for (int i = 0; i < ndescriptors; i++)
        admission->descriptors[i] = descriptors[i];
    pthread_mutex_lock(&rank->lock);
    admission->next = rank->admissions;
    rank->admissions = admission;
    pthread_mutex_unlock(&rank->lock);
}

static void *control(void *arg) {
    (void)arg;
    while (!atomic_load(&stop_control)) {
        for (int r = 0; r < 2; r++)
            (void)net_listener_step(ranks[r].listener);
        sched_yield();
    }
    return NULL;
}

static void turn(struct rank *rank) {
    pthread_mutex_lock(&rank->lock);
    struct admission *admission = rank->admissions;
    rank->admissions = NULL;
    pthread_mutex_unlock(&rank->lock);
    while (admission) {
        struct admission *next = admission->next;
        ops->accept(rank->transport, admission->peer, admission->socket, admission->descriptors,
                    admission->ndescriptors);
        free(admission);
        admission = next;
    }
    if (ops->progress(rank->transport, 16) == 0)
        sched_yield();
}

/* What a rank does: connect, send a message, receive one. */
static void *live(void *arg) {
    struct rank *rank = arg;
    int self = rank->host.rank, peer = !self;
    struct transport_key key = {.comm = 1};
    struct transport_header header = {.sequence = 7, .length = sizeof self};
    struct transport_stream *stream;
    struct transport_slot slot;
    struct transport_arrival arrival;
    int64_t deadline = clock_deadline(30000);
    pthread_barrier_wait(&start);
    ops->connect(rank->transport, peer);
    while (!rank->connected) {
        turn(rank);
        REQUIRE(!clock_passed(deadline));
    }
    REQUIRE(ops->stream_open(rank->transport, peer, &key, rank, &stream) == ROTA_OK);
    REQUIRE(ops->reserve(rank->transport, stream, &header, &slot) == TRANSPORT_OK);
    memcpy(slot.data, &self, sizeof self);
    ops->commit(rank->transport, stream, &slot);
    ops->expect(rank->transport, stream, sizeof self);
    while (ops->peek(rank->transport, stream, &arrival) == TRANSPORT_AGAIN) {
        turn(rank);
        REQUIRE(!clock_passed(deadline));
    }
    int got = -1;
    REQUIRE(arrival.header.length == sizeof got);
    memcpy(&got, arrival.pieces[0].data, sizeof got);
    REQUIRE(got == peer);
    ops->release(rank->transport, stream, &arrival);
    atomic_store(&rank->finished, 1);
    while (!atomic_load(&ranks[peer].finished))
        turn(rank);
    REQUIRE(rank->connected == 1);
    ops->stream_close(rank->transport, stream);
    return NULL;
}

static void rank_open(struct settings *settings, int r) {
    struct rank *rank = &ranks[r];
    memset(rank, 0, sizeof *rank);
    pthread_mutex_init(&rank->lock, NULL);
    rank->line = aligned_alloc(128, sizeof *rank->line);
    REQUIRE(rank->line);
    memset(rank->line, 0, sizeof *rank->line);
    rank->identity = (struct net_identity){.key = {9},
                                           .rank = r,
                                           .incarnation = 100 + (uint64_t)r,
                                           .protocol_first = NET_PROTOCOL_FIRST,
                                           .protocol_last = NET_PROTOCOL_LAST};
    rank->host = (struct transport_host){.rank = r,
                                         .nranks = 2,
                                         .identity = &rank->identity,
                                         .settings = settings,
                                         .peers = rank->peers,
                                         .context = rank,
                                         .arrived = on_owner,
                                         .writable = on_writable,
                                         .connected = on_connected,
                                         .unreachable = on_lost,
                                         .peer_failed = on_failed};
    REQUIRE(doorbell_open(&rank->host.bell, rank->line) == ROTA_OK);
    REQUIRE(ops->open(&rank->host, &rank->transport) == ROTA_OK);
    rank->blob_bytes = ops->describe(rank->transport, rank->blob);
    struct net_gate gate = {.context = rank, .find = find, .judge = judge, .admit = admit};
    REQUIRE(net_listener_open(settings, &gate, &rank->addresses, &rank->listener) == ROTA_OK);
}

static void rank_close(struct rank *rank) {
    while (rank->admissions) /* none is left behind: one connection per pair */
        turn(rank);
    net_listener_close(rank->listener);
    ops->close(rank->transport);
    doorbell_close(&rank->host.bell);
    pthread_mutex_destroy(&rank->lock);
    free(rank->line);
}

static void round_run(struct settings *settings) {
    pthread_t controller;
    for (int r = 0; r < 2; r++)
        rank_open(settings, r);
    for (int r = 0; r < 2; r++)
        for (int p = 0; p < 2; p++)
            ranks[r].peers[p] = (struct transport_peer){.rank = p,
                                                        .same_host = true,
                                                        .incarnation = 100 + (uint64_t)p,
                                                        .addresses = &ranks[p].addresses,
                                                        .blob = ranks[p].blob,
                                                        .blob_bytes = ranks[p].blob_bytes};
    atomic_store(&stop_control, false);
    REQUIRE(pthread_create(&controller, NULL, control, NULL) == 0);
    for (int r = 0; r < 2; r++)
        REQUIRE(pthread_create(&ranks[r].thread, NULL, live, &ranks[r]) == 0);
    for (int r = 0; r < 2; r++)
        pthread_join(ranks[r].thread, NULL);
    atomic_store(&stop_control, true);
    pthread_join(controller, NULL);
    for (int r = 0; r < 2; r++)
        rank_close(&ranks[r]);
}

int main(int argc, char **argv) {
    struct settings *settings;
    setenv("ROTA_INTERFACE", "lo", 1);
    ops = argc == 2 ? transport_find(argv[1]) : NULL;
    if (!ops) {
        fprintf(stderr, "usage: crossing_threads TRANSPORT\n");
        return 2;
    }
    REQUIRE(settings_load(&settings) == ROTA_OK);
    REQUIRE(pthread_barrier_init(&start, NULL, 2) == 0);
    for (int i = 0; i < ROUNDS; i++)
        round_run(settings);
    pthread_barrier_destroy(&start);
    settings_free(settings);
    printf("%d rounds of crossing connections over %s\n", ROUNDS, ops->name);
    return 0;
}
