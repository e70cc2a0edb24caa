/* Our row in the race with other libraries: the calls of bench_core.h, which lies outside of this
 * project, on the public API.
 *
 * With the argument `registered` the buffers come from rota_mem_alloc: a row of its own.
 * Started with PEERS_RANK, PEERS_SIZE and PEERS_RDV, a directory of this run alone: rank 0 makes
 * the job's id and leaves it there, the others pick it up. */
#include "bench_core.h"

#include <errno.h>
#include <fcntl.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS (10 * 1000 * 1000)
#define RENDEZVOUS_S 60
#define TAG_PING 1
#define TAG_BULK 2
#define TAG_ANSWER 3
#define WINDOW_MAX 64

static rota_comm *comm;
static int rank, nranks;

static const rota_dtype dtypes[] = {
    [BC_F32] = ROTA_FLOAT32, [BC_BF16] = ROTA_BFLOAT16, [BC_F16] = ROTA_FLOAT16};

static void say(rota_status status) {
    static int said;
    rota_error error = ROTA_ERROR_INIT;
    if (said++)
        return;
    if (!comm || rota_comm_error(comm, &error) || error.status == ROTA_OK)
        rota_last_error(&error);
    fprintf(stderr, "rota: rank %d: %s: %s\n", rank, rota_status_name(status), error.message);
}

/* bench_core wants 0 for success. Nothing more than that is timed: an error record has 2 KiB. */
static int failed(rota_status status) {
    if (status == ROTA_OK)
        return 0;
    say(status);
    return 1;
}

static int all_reduce(const void *send, void *recv, size_t count, int dtype) {
    return failed(rota_all_reduce(send, recv, count, dtypes[dtype], ROTA_SUM, comm, NULL));
}

static int reduce_scatter(const void *send, void *recv, size_t count, int dtype) {
    return failed(rota_reduce_scatter(send, recv, count, dtypes[dtype], ROTA_SUM, comm, NULL));
}

static int all_gather(const void *send, void *recv, size_t count, int dtype) {
    return failed(rota_all_gather(send, recv, count, dtypes[dtype], comm, NULL));
}

static int all_to_all(const void *send, void *recv, size_t count, int dtype) {
    return failed(rota_all_to_all(send, recv, count, dtypes[dtype], comm, NULL));
}

static int broadcast(void *buffer, size_t count, int dtype, int root) {
    return failed(rota_broadcast(buffer, buffer, count, dtypes[dtype], root, comm, NULL));
}

static int reduce(const void *send, void *recv, size_t count, int dtype, int root) {
    return failed(rota_reduce(send, recv, count, dtypes[dtype], ROTA_SUM, root, comm, NULL));
}

static int barrier(void) {
    return failed(rota_barrier(comm, NULL));
}

static int pingpong(const void *send, void *recv, size_t bytes) {
    if (rank == 0)
        return failed(rota_send(send, bytes, ROTA_UINT8, 1, TAG_PING, comm, NULL)) ||
               failed(rota_recv(recv, bytes, ROTA_UINT8, 1, TAG_PING, comm, NULL, NULL));
    return failed(rota_recv(recv, bytes, ROTA_UINT8, 0, TAG_PING, comm, NULL, NULL)) ||
           failed(rota_send(send, bytes, ROTA_UINT8, 0, TAG_PING, comm, NULL));
}

static int p2p_bw(const void *send, void *recv, size_t bytes, int window) {
    rota_request *requests[WINDOW_MAX];
    int answer = 0, bad = 0, started = 0;
    rota_call call = ROTA_CALL_INIT;
    for (; started < window && started < WINDOW_MAX && !bad; started++) {
        call.request = &requests[started];
        bad =
            failed(rank == 0 ? rota_send(send, bytes, ROTA_UINT8, 1, TAG_BULK, comm, &call)
                             : rota_recv(recv, bytes, ROTA_UINT8, 0, TAG_BULK, comm, NULL, &call));
        if (bad)
            break;
    }
    bad |= failed(rota_request_wait_all(requests, started, 0));
    for (int i = 0; i < started; i++)
        rota_request_free(requests[i]);
    if (bad)
        return 1;
    return failed(rank == 0 ? rota_recv(&answer, 1, ROTA_INT32, 1, TAG_ANSWER, comm, NULL, NULL)
                            : rota_send(&answer, 1, ROTA_INT32, 0, TAG_ANSWER, comm, NULL));
}

static void *allocate(size_t bytes) {
    void *memory = NULL; /* lives as long as the job */
    return failed(rota_mem_alloc(comm, bytes, &memory)) ? NULL : memory;
}

static int id_write(const char *path, const rota_unique_id *id) {
    char part[4096];
    snprintf(part, sizeof(part), "%s.part", path);
    int file = open(part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file < 0)
        return -1;
    ssize_t written = write(file, id->bytes, sizeof(id->bytes));
    if (close(file) || written != (ssize_t)sizeof(id->bytes))
        return -1;
    return rename(part, path); /* whole or not there */
}

static int id_read(const char *path, rota_unique_id *id) {
    struct timespec pause = {.tv_nsec = POLL_NS};
    for (long waited = 0; waited < RENDEZVOUS_S * 1000L; waited += POLL_NS / 1000000) {
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            ssize_t got = read(file, id->bytes, sizeof(id->bytes));
            close(file);
            return got == (ssize_t)sizeof(id->bytes) ? 0 : -1;
        }
        if (errno != ENOENT)
            return -1;
        nanosleep(&pause, NULL);
    }
    errno = ETIMEDOUT;
    return -1;
}

static int join(void) {
    const char *folder = getenv("PEERS_RDV");
    char path[4000];
    rota_unique_id id;
    rota_config config = ROTA_CONFIG_INIT;
    if (!folder) {
        fprintf(stderr, "rota: PEERS_RDV is not set: start this with spawn.py\n");
        return -1;
    }
    snprintf(path, sizeof(path), "%s/rota-id", folder);
    if (rank == 0 && failed(rota_unique_id_create(&id)))
        return -1;
    if (rank == 0 ? id_write(path, &id) : id_read(path, &id)) {
        fprintf(stderr, "rota: rank %d: %s: %s\n", rank, path, strerror(errno));
        return -1;
    }
    config.nranks = nranks;
    config.rank = rank;
    config.id = &id;
    return failed(rota_init(&config, &comm, NULL)) ? -1 : 0;
}

/* A row counts for a transport only when that transport carried it: over TCP the sockets' bytes
 * must cover the payload, and nothing else may have carried any. */
static int carried(void) {
    const char *wanted = getenv("ROTA_TRANSPORT");
    rota_counters counters = ROTA_COUNTERS_INIT;
    int good = nranks == 1 || !wanted || !*wanted || strchr(wanted, ',') || *wanted == '^';
    if (failed(rota_comm_counters(comm, &counters)))
        return 0;
    for (int i = 0; i < counters.transport_count && i < ROTA_COUNTERS_MAX_TRANSPORTS; i++) {
        const rota_transport_counters *t = &counters.transports[i];
        unsigned long long payload = t->bytes_sent + t->bytes_received;
        unsigned long long wire = t->wire_bytes_sent + t->wire_bytes_received;
        fprintf(stderr,
                "rota: rank %d: %s: %llu bytes of payload, %llu on the wire, %llu native calls\n",
                rank, t->name, payload, wire, (unsigned long long)t->native_calls);
        if (good || strcmp(t->name, "self") == 0)
            continue;
        if (wanted && strcmp(t->name, wanted) == 0) {
            if (strcmp(t->name, "tcp") == 0 ? payload > 0 && wire >= payload
                                            : payload + t->native_calls > 0)
                continue;
            fprintf(stderr, "rota: rank %d: %s carried nothing\n", rank, t->name);
            return 0;
        }
        if (payload + t->native_calls > 0) {
            fprintf(stderr, "rota: rank %d: %s carried data, but only %s may\n", rank, t->name,
                    wanted);
            return 0;
        }
    }
    return 1;
}

int main(int argc, char **argv) {
    int registered = argc > 1 && strcmp(argv[1], "registered") == 0;
    rank = bc_env_rank();
    nranks = bc_env_size();
    if (join())
        return 1;
    struct bc_peer peer = {.name = registered ? "rota-registered" : "rota",
                           .version = rota_version(),
                           .rank = rank,
                           .nranks = nranks,
                           .alloc = registered ? allocate : NULL,
                           .has_bf16 = 1,
                           .has_f16 = 1,
                           .allreduce = all_reduce,
                           .reduce_scatter = reduce_scatter,
                           .all_gather = all_gather,
                           .all_to_all = all_to_all,
                           .broadcast = broadcast,
                           .reduce = reduce,
                           .barrier = barrier,
                           .pingpong = pingpong,
                           .p2p_bw = p2p_bw};
    int result = bc_main(&peer);
    if (!carried())
        result = 1;
    if (failed(rota_comm_finalize(comm, NULL)) || failed(rota_comm_destroy(comm)))
        result = 1;
    return result;
}
