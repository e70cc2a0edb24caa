/* Times of the library next to bare loops that do the least that the operation needs, measured in
 * turns in the same process. The least time of many short blocks counts on both sides, so the
 * ratio holds also where other programs want the cores; limits are about twice what was measured
 * when they were set. */
#include "pin.h"
#include <rota/rota.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SPINS 2000
#define PIECE ((size_t)32 << 10)
#define LARGE ((size_t)1 << 20)

struct line {
    _Alignas(128) _Atomic uint64_t number;
    float payload[2];
};

struct side {
    int rank, part;
    rota_comm *comm;
    int socket;
    float *in, *out;
    double *loop_us, *rota_us; /* of rank 0: per block */
    rota_status status;
};

static struct line lines[2][2];
static float *shared[2]; /* what the other side reads, or has sent */
static struct line stages[2];
static pthread_barrier_t together;

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Partner: the release store of the other side. */
static void await(_Atomic uint64_t *number, uint64_t value) {
    for (int spins = 0; atomic_load_explicit(number, memory_order_acquire) < value; spins++)
        if (spins > SPINS)
            sched_yield();
}

/* 8 bytes: a line with the operand, one transfer each way. */
static void loop_small(struct side *side, uint64_t call) {
    struct line *mine = &lines[side->rank][call & 1], *other = &lines[!side->rank][call & 1];
    memcpy(mine->payload, side->in, sizeof(mine->payload));
    atomic_store_explicit(&mine->number, call, memory_order_release);
    await(&other->number, call);
    for (int i = 0; i < 2; i++)
        side->out[i] = side->in[i] + other->payload[i];
}

static void stage_reached(struct side *side, uint64_t stage) {
    atomic_store_explicit(&stages[side->rank].number, stage, memory_order_release);
    await(&stages[!side->rank].number, stage);
}

/* 1 MiB: show the half that the other reduces, reduce the own one, take the other's result. */
static void loop_large(struct side *side, uint64_t call) {
    size_t half = LARGE / sizeof(float) / 2, own = (size_t)side->rank * half;
    size_t theirs = (size_t)!side->rank * half;
    memcpy(shared[side->rank] + theirs, side->in + theirs, half * sizeof(float));
    stage_reached(side, 3 * call + 1);
    for (size_t i = own; i < own + half; i++)
        side->out[i] = side->in[i] + shared[!side->rank][i];
    memcpy(shared[side->rank] + own, side->out + own, half * sizeof(float));
    stage_reached(side, 3 * call + 2);
    memcpy(side->out + theirs, shared[!side->rank] + theirs, half * sizeof(float));
    stage_reached(side, 3 * call + 3);
}

/* In pieces that socket buffers hold, so that both ranks may send first. Blocking, as a spinning
 * reader that shares its core would wait for its turn. */
static bool exchange(int fd, const char *out, char *in, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t piece = bytes - at < PIECE ? bytes - at : PIECE;
        if (send(fd, out + at, piece, 0) != (ssize_t)piece ||
            recv(fd, in + at, piece, MSG_WAITALL) != (ssize_t)piece)
            return false;
    }
    return true;
}

/* The operands travel both ways, then the sum. */
static void loop_socket(struct side *side, size_t bytes) {
    float *other = shared[side->rank];
    if (!exchange(side->socket, (const char *)side->in, (char *)other, bytes))
        side->status = ROTA_ERR_SYSTEM;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        side->out[i] = side->in[i] + other[i];
}

/* Without optimisation neither side is what it is meant to be. */
#ifdef __OPTIMIZE__
#define SLACK 1.0
#else
#define SLACK 4.0
#endif

static const struct {
    const char *name, *transport;
    size_t count;
    int blocks, calls;
    double limit;
} parts[] = {
    {"shm, 8 bytes", "shm", 2, 400, 200, 4},
    {"shm, 1 MiB", "shm", LARGE / sizeof(float), 60, 4, 4},
    {"tcp, 8 bytes", "tcp", 2, 200, 20, 3},
    {"tcp, 1 MiB", "tcp", LARGE / sizeof(float), 40, 2, 4},
};
#define PARTS ((int)(sizeof(parts) / sizeof(parts[0])))

static void loop_call(struct side *side, uint64_t call) {
    if (strcmp(parts[side->part].transport, "tcp") == 0)
        loop_socket(side, parts[side->part].count * sizeof(float));
    else if (parts[side->part].count == 2)
        loop_small(side, call);
    else
        loop_large(side, call);
}

static void *side_run(void *arg) {
    struct side *side = arg;
    int calls = parts[side->part].calls;
    uint64_t call = 0;
    guard_pin(side->rank);
    for (int block = 0; block < parts[side->part].blocks && side->status == ROTA_OK; block++) {
        pthread_barrier_wait(&together);
        double began = now_us();
        for (int i = 0; i < calls; i++)
            loop_call(side, ++call);
        double between = now_us();
        if (side->rank == 0)
            side->loop_us[block] = (between - began) / calls;
        for (int i = 0; i < calls && side->status == ROTA_OK; i++)
            side->status = rota_all_reduce(side->in, side->out, parts[side->part].count,
                                           ROTA_FLOAT32, ROTA_SUM, side->comm, NULL);
        if (side->rank == 0)
            side->rota_us[block] = (now_us() - between) / calls;
    }
    return NULL;
}

static bool socket_pair(int fds[2]) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;
    fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool made = listener >= 0 && fds[0] >= 0 &&
                bind(listener, (struct sockaddr *)&address, size) == 0 &&
                listen(listener, 1) == 0 &&
                getsockname(listener, (struct sockaddr *)&address, &size) == 0 &&
                connect(fds[0], (struct sockaddr *)&address, size) == 0;
    fds[1] = made ? accept4(listener, NULL, NULL, SOCK_CLOEXEC) : -1;
    for (int i = 0; i < 2 && fds[1] >= 0; i++)
        setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    if (listener >= 0)
        close(listener);
    return fds[1] >= 0;
}

static double least(const double *values, int count) {
    double result = values[0];
    for (int i = 1; i < count; i++)
        result = values[i] < result ? values[i] : result;
    return result;
}

/* A small call polls for the other rank, and waits by the clock only when that is late. Ranks that
 * are bound to a core each have one, though each sees only its own. */
static bool waits_often(const rota_comm *comm, int part) {
    rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
    int calls = parts[part].blocks * parts[part].calls;
    if (parts[part].count != 2 || strcmp(parts[part].transport, "shm") != 0 ||
        rota_usable_cores() < 2)
        return false;
    rota_comm_peer_counters(comm, 1, &counters);
    printf("%-14s %d calls, %llu waits\n", parts[part].name, calls,
           (unsigned long long)counters.waits);
    return counters.waits > (unsigned long long)calls / 8;
}

static int part_check(int part) {
    rota_comm *comms[2];
    struct side sides[2];
    int fds[2], blocks = parts[part].blocks;
    pthread_t threads[2];
    double *times = calloc(2 * (size_t)blocks, sizeof(*times));
    setenv("ROTA_TRANSPORT", parts[part].transport, 1);
    memset(lines, 0, sizeof(lines));
    memset(stages, 0, sizeof(stages));
    if (times == NULL || !socket_pair(fds) || rota_init_threads(2, comms, NULL) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        printf("%s: cannot begin: %s\n", parts[part].name, error.message);
        return 1;
    }
    for (int r = 0; r < 2; r++) {
        sides[r] = (struct side){.rank = r,
                                 .part = part,
                                 .comm = comms[r],
                                 .socket = fds[r],
                                 .in = aligned_alloc(4096, LARGE),
                                 .out = aligned_alloc(4096, LARGE),
                                 .loop_us = times,
                                 .rota_us = times + blocks};
        shared[r] = aligned_alloc(4096, LARGE);
        if (sides[r].in == NULL || sides[r].out == NULL || shared[r] == NULL)
            return 1;
        memset(sides[r].in, 0, LARGE);
        memset(sides[r].out, 0, LARGE);
        memset(shared[r], 0, LARGE);
    }
    pthread_barrier_init(&together, NULL, 2);
    for (int r = 0; r < 2; r++)
        if (pthread_create(&threads[r], NULL, side_run, &sides[r]) != 0)
            return 1;
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    pthread_barrier_destroy(&together);
    double loop = least(times, blocks), rota = least(times + blocks, blocks);
    bool bad = sides[0].status != ROTA_OK || sides[1].status != ROTA_OK ||
               waits_often(comms[0], part) || rota > SLACK * parts[part].limit * loop;
    printf("%-14s bare loop %9.3f us, all_reduce %9.3f us: %.2f, at most %.0f%s\n",
           parts[part].name, loop, rota, rota / loop, parts[part].limit, bad ? ": FAILED" : "");
    for (int r = 0; r < 2; r++) {
        rota_comm_destroy(comms[r]);
        close(fds[r]);
        free(sides[r].in);
        free(sides[r].out);
        free(shared[r]);
    }
    free(times);
    return bad;
}

int main(void) {
    int failed = 0;
    for (int part = 0; part < PARTS; part++)
        failed |= part_check(part);
    return failed;
}
