/* Time of native forms (fp32 sum) over shared memory without engine: what the forms cost on top of
 * the bare loops. Inputs are rewritten before each call, and that cost taken off; roots rotate.
 * Usage: bench_shm [RANKS [KIND]]; KIND as in "all_gather", the default is all_reduce. Sizes count
 * all blocks. The least of 25 repetitions is printed. Run by hand. */
#include "cluster.h"

#include "base/clock.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void dirty(uint8_t *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 64)
        *(volatile int *)(void *)(data + i) = 0;
}

static int rotation = 1; /* roots */

static void call_once(struct native_group *group, const struct native_form *form,
                      struct native_call *call, struct cluster_wait *wait) {
    call->sequence++;
    call->root = (int)(call->sequence % (uint64_t)rotation);
    REQUIRE(shm_native.advance(group, form, call, &wait->wait).outcome == NATIVE_DONE);
}

static void pin(int rank) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)(rank % cpu_usable_cores()), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

static bool has_blocks(rota_kind kind) {
    return kind == ROTA_KIND_REDUCE_SCATTER || kind == ROTA_KIND_ALL_GATHER ||
           kind == ROTA_KIND_ALL_TO_ALL || kind == ROTA_KIND_GATHER || kind == ROTA_KIND_SCATTER;
}

static void body(struct cluster *cluster, int rank, void *arg) {
    rota_kind wanted = *(rota_kind *)arg;
    rotation = cluster->n;
    pin(rank);
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, cluster->n, cpu_isa_best()) == ROTA_OK);
    const size_t sizes[] = {0,     8,     32,    256,    1024,   4096,    8192,    16384,
                            24576, 32768, 65536, 131072, 262144, 1048576, 4194304, 16777216};
    size_t most = sizes[sizeof sizes / sizeof *sizes - 1];
    uint8_t *send = aligned_alloc(4096, most), *recv = aligned_alloc(4096, most);
    REQUIRE(send && recv);
    memset(send, 0, most);
    memset(recv, 0, most);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t bytes = sizes[i];
        rota_kind kind = bytes ? wanted : ROTA_KIND_BARRIER;
        size_t block = has_blocks(kind) ? bytes / (size_t)cluster->n : bytes;
        block = bytes > 0 && block < 4 ? 4 : block & ~(size_t)3;
        struct native_call call = {.kind = kind,
                                   .count = block / 4,
                                   .bytes = block,
                                   .spec = bytes ? &spec : NULL,
                                   .fingerprint = 5,
                                   .send = send,
                                   .recv = recv};
        const struct native_form *form = shm_native.query(group, kind, block, call.spec);
        int calls = bytes <= 4096 ? 2000 : bytes <= 65536 ? 500 : bytes <= 1048576 ? 40 : 5;
        int64_t best = INT64_MAX;
        struct cluster_wait wait;
        cluster_wait_init(&wait);
        wait.crowded = cluster->n > cpu_usable_cores();
        for (int repetition = 0; repetition < 25; repetition++) {
            int64_t start = clock_now_ns();
            for (int k = 0; k < calls; k++)
                dirty(send, bytes);
            int64_t dirtying = clock_now_ns() - start;
            call_once(group, form, &call, &wait);
            start = clock_now_ns();
            for (int k = 0; k < calls; k++) {
                dirty(send, bytes);
                call_once(group, form, &call, &wait);
            }
            int64_t took = clock_now_ns() - start - dirtying;
            best = took < best ? took : best;
        }
        if (rank == 0)
            printf("%9zu B  %-14s %9.3f us\n", bytes, form->name, (double)best / calls / 1000);
        fflush(stdout);
    }
    free(send);
    free(recv);
    shm_native.group_close(group);
}

int main(int argc, char **argv) {
    int n = argc > 1 ? atoi(argv[1]) : 2;
    rota_kind kind = ROTA_KIND_ALL_REDUCE;
    if (n < 2 || n > CLUSTER_MAX || (argc > 2 && rota_kind_parse(argv[2], &kind) != ROTA_OK)) {
        fprintf(stderr, "usage: bench_shm [RANKS, 2 to %d [KIND]]\n", CLUSTER_MAX);
        return 2;
    }
    cluster_run(n, body, &kind);
    return 0;
}
