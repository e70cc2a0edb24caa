/* Ranks as threads: streams, native forms, sleeping on the doorbell, and admissions by another
 * thread meanwhile. A plain program, so that ThreadSanitizer can run it. */
#include "flow_calls.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGES 3000
#define CALLS 400

struct worker {
    struct cluster *cluster;
    int rank;
    pthread_t thread;
};

static const size_t sizes[] = {8, 40, 64, 4000, 20000, 65536};

static size_t length_of(uint64_t number) {
    return sizes[number % (sizeof sizes / sizeof *sizes)];
}

/* Sleeps until something may have come. */
static void sleep_once(struct worker *worker, struct doorbell_sleeper *sleeper) {
    struct cluster_rank *rank = &worker->cluster->ranks[worker->rank];
    doorbell_arm(&rank->host.bell);
    if (transport_shm.arm(rank->transport))
        doorbell_sleep(sleeper, clock_deadline(20000));
    transport_shm.disarm(rank->transport);
    doorbell_disarm(&rank->host.bell);
}

static bool send_one(struct transport *transport, struct transport_stream *stream,
                     uint64_t number) {
    struct transport_header header = {.sequence = number, .length = length_of(number)};
    struct transport_slot slot;
    if (transport_shm.reserve(transport, stream, &header, &slot) != TRANSPORT_OK)
        return false;
    memset(slot.data, (int)(number & 0xff), slot.length);
    transport_shm.commit(transport, stream, &slot);
    return true;
}

static bool receive_one(struct transport *transport, struct transport_stream *stream,
                        uint64_t number) {
    struct transport_arrival arrival;
    if (transport_shm.peek(transport, stream, &arrival) != TRANSPORT_OK)
        return false;
    REQUIRE(arrival.header.sequence == number && arrival.header.length == length_of(number));
    const uint8_t *data = arrival.pieces[0].data;
    for (size_t i = 0; i < arrival.pieces[0].length; i++)
        REQUIRE(data[i] == (number & 0xff));
    transport_shm.release(transport, stream, &arrival);
    return true;
}

/* Every rank sends to and receives from every other, sleeping when nothing moves. */
static void exchange(struct worker *worker) {
    int n = worker->cluster->n;
    struct cluster_rank *rank = &worker->cluster->ranks[worker->rank];
    struct transport *transport = rank->transport;
    struct cluster_owner owners[CLUSTER_MAX] = {0};
    struct transport_stream *streams[CLUSTER_MAX] = {0};
    struct doorbell_sleeper *sleeper = NULL;
    REQUIRE(doorbell_sleeper_create(&rank->host.bell, &sleeper) == ROTA_OK);
    struct transport_key key = {.comm = 1, .channel = 4};
    uint64_t sent[CLUSTER_MAX] = {0}, announced[CLUSTER_MAX] = {0}, received[CLUSTER_MAX] = {0};
    for (int p = 0; p < n; p++)
        if (p != worker->rank)
            REQUIRE(transport_shm.stream_open(transport, p, &key, &owners[p], &streams[p]) ==
                    ROTA_OK);
    for (int left = 1; left > 0;) {
        bool moved = transport_shm.progress(transport, 100) > 0;
        left = 0;
        for (int p = 0; p < n; p++) {
            if (p == worker->rank)
                continue;
            for (; announced[p] < MESSAGES && announced[p] < received[p] + 8; announced[p]++)
                transport_shm.expect(transport, streams[p], length_of(announced[p]));
            for (; sent[p] < MESSAGES && send_one(transport, streams[p], sent[p]); moved = true)
                sent[p]++;
            for (; received[p] < MESSAGES && receive_one(transport, streams[p], received[p]);
                 moved = true)
                received[p]++;
            left += sent[p] < MESSAGES || received[p] < MESSAGES;
        }
        if (left && !moved)
            sleep_once(worker, sleeper);
    }
    doorbell_sleeper_destroy(sleeper);
}

static void reduce(struct worker *worker) {
    int n = worker->cluster->n;
    struct native_group *group = cluster_group(worker->cluster, worker->rank, 9, n);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_INT32, ROTA_SUM, n, CPU_SCALAR) == ROTA_OK);
    const size_t counts[] = {1, 12, 500, 3000, 20000};
    int32_t *send = malloc(20000 * 4), *recv = malloc(20000 * 4);
    REQUIRE(send && recv);
    for (uint64_t k = 1; k <= CALLS; k++) {
        size_t count = counts[k % 5];
        for (size_t i = 0; i < count; i++)
            send[i] = (int32_t)(i + k) * (worker->rank + 1);
        struct native_call call = {.kind = ROTA_KIND_ALL_REDUCE,
                                   .count = count,
                                   .bytes = count * 4,
                                   .spec = &spec,
                                   .sequence = k,
                                   .fingerprint = k,
                                   .send = send,
                                   .recv = recv};
        struct cluster_wait wait;
        cluster_wait_init(&wait);
        wait.crowded = true;
        const struct native_form *form =
            shm_native.query(group, ROTA_KIND_ALL_REDUCE, call.bytes, &spec);
        REQUIRE(shm_native.advance(group, form, &call, &wait.wait).outcome == NATIVE_DONE);
        for (size_t i = 0; i < count; i++)
            REQUIRE(recv[i] == (int32_t)(i + k) * (n * (n + 1) / 2));
    }
    free(send);
    free(recv);
    shm_native.group_close(group);
}

static void *work(void *arg) {
    struct worker *worker = arg;
    exchange(worker);
    reduce(worker);
    struct flow_calls calls = {.n = worker->cluster->n,
                               .calls = 400,
                               .limit = 600001,
                               .mapped = true,
                               .crowded = true,
                               .only = ROTA_KIND_COUNT};
    flow_calls_run(worker->cluster, worker->rank, &calls);
    return NULL;
}

/* The control thread: asks for admissions, which connected pairs refuse. */
static _Atomic bool over;
static void *admit(void *arg) {
    struct cluster *cluster = arg;
    while (!atomic_load(&over))
        for (int r = 0; r < cluster->n; r++)
            for (int p = 0; p < cluster->n; p++)
                REQUIRE(!transport_shm.admit(cluster->ranks[r].transport, p));
    return NULL;
}

static void *call_by_levels(void *arg) {
    struct worker *worker = arg;
    struct flow_calls calls = {.n = worker->cluster->n,
                               .calls = 150,
                               .limit = 900001,
                               .mapped = true,
                               .crowded = true,
                               .only = ROTA_KIND_COUNT};
    flow_calls_run(worker->cluster, worker->rank, &calls);
    return NULL;
}

static void run_levels(void) {
    enum { RANKS = 6 };
    struct cluster cluster;
    struct worker workers[RANKS];
    setenv("ROTA_LEVELS", "4", 1);
    cluster_open(&cluster, RANKS);
    cluster_connect_all(&cluster);
    for (int r = 0; r < RANKS; r++) {
        workers[r] = (struct worker){.cluster = &cluster, .rank = r};
        REQUIRE(pthread_create(&workers[r].thread, NULL, call_by_levels, &workers[r]) == 0);
    }
    for (int r = 0; r < RANKS; r++)
        pthread_join(workers[r].thread, NULL);
    cluster_close(&cluster);
}

int main(void) {
    struct cluster cluster;
    struct worker workers[3];
    cluster_open(&cluster, 3);
    cluster_connect_all(&cluster);
    pthread_t control;
    REQUIRE(pthread_create(&control, NULL, admit, &cluster) == 0);
    for (int r = 0; r < 3; r++) {
        workers[r] = (struct worker){.cluster = &cluster, .rank = r};
        REQUIRE(pthread_create(&workers[r].thread, NULL, work, &workers[r]) == 0);
    }
    for (int r = 0; r < 3; r++)
        pthread_join(workers[r].thread, NULL);
    atomic_store(&over, true);
    pthread_join(control, NULL);
    cluster_close(&cluster);
    run_levels();
    puts("passed");
    return 0;
}
