/* Native forms of all kinds but all-reduce, between processes. */
#include "flow_calls.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static void run(int n, int calls, size_t limit, bool impatient, bool mapped) {
    cluster_run(n, flow_calls_run,
                &(struct flow_calls){.n = n,
                                     .calls = calls,
                                     .limit = limit,
                                     .impatient = impatient,
                                     .mapped = mapped,
                                     .crowded = n > 2,
                                     .only = ROTA_KIND_COUNT});
}

Test(shm_flows, all_kinds_2) {
    run(2, 3000, 300001, false, false);
}
Test(shm_flows, all_kinds_3) {
    run(3, 2000, 300001, false, false);
}
Test(shm_flows, all_kinds_5) {
    run(5, 1000, 300001, false, false);
}
Test(shm_flows, many_slices) {
    run(3, 60, 5000003, false, false);
}
Test(shm_flows, paused_and_resumed) {
    run(3, 500, 2000003, true, false);
}
Test(shm_flows, mapped_buffers_2) {
    run(2, 200, 2000003, false, true);
}
Test(shm_flows, mapped_buffers_4_paused) {
    run(4, 200, 2000003, true, true);
}

static void run_levels(const char *levels, int n, int calls, size_t limit, bool impatient,
                       bool mapped) {
    setenv("ROTA_LEVELS", levels, 1);
    run(n, calls, limit, impatient, mapped);
    unsetenv("ROTA_LEVELS");
}
Test(shm_levels, all_kinds) {
    run_levels("2", 4, 700, 300001, false, false);
    run_levels("4", 8, 300, 300001, false, false);
    run_levels("8", 12, 150, 300001, false, false);
    run_levels("3", 9, 100, 300001, false, false); /* flat */
}
Test(shm_levels, all_kinds_in_many_slices) {
    run_levels("2", 5, 60, 5000003, false, false);
    run_levels("4", 7, 60, 2000003, true, false);
}
Test(shm_levels, all_kinds_in_mapped_buffers) {
    run_levels("2", 5, 100, 2000003, true, true);
    run_levels("4", 8, 60, 2000003, false, true);
}

Test(shm_flows, C34_call_numbers_near_their_ends) {
    const char *starts[] = {"2147483645", "4294967293", "9223372036854775805"};
    for (int i = 0; i < 3; i++) {
        setenv("ROTA_TEST_SEQUENCE_START", starts[i], 1);
        run(2, 300, 2000003, false, false);
    }
    unsetenv("ROTA_TEST_SEQUENCE_START");
}

/* A root that never changes runs ahead of its readers until the posts are used up, and readers that
 * are read run ahead of it. */
Test(shm_flows, rings_are_used_again) {
    const rota_kind kinds[] = {ROTA_KIND_BROADCAST, ROTA_KIND_SCATTER, ROTA_KIND_GATHER,
                               ROTA_KIND_REDUCE};
    for (int i = 0; i < 4; i++)
        cluster_run(3, flow_calls_run,
                    &(struct flow_calls){
                        .n = 3, .calls = 1000, .limit = 600001, .only = kinds[i], .crowded = true});
}

/* -- contradictions and closing -------------------------------------------------------------- */

struct contradiction {
    rota_kind kind;
    size_t bytes;
};

/* Rank 1 calls something else. Who takes from it, or it from, finds that. */
static void run_mismatch(struct cluster *cluster, int rank, void *arg) {
    const struct contradiction *test = arg;
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_INT32, ROTA_SUM, cluster->n, cpu_isa_best()) == ROTA_OK);
    uint8_t *data = calloc(2 * (size_t)cluster->n, test->bytes);
    REQUIRE(data);
    bool reduces = test->kind == ROTA_KIND_REDUCE || test->kind == ROTA_KIND_REDUCE_SCATTER;
    struct native_call call = {.kind = test->kind,
                               .count = test->bytes / 4,
                               .bytes = test->bytes,
                               .spec = reduces ? &spec : NULL,
                               .sequence = 9,
                               .fingerprint = rank == 1 ? 1111 : 2222,
                               .send = data,
                               .recv = data + (size_t)cluster->n * test->bytes};
    const struct native_form *form = shm_native.query(group, test->kind, call.bytes, call.spec);
    struct cluster_wait wait;
    cluster_wait_init(&wait);
    struct native_result result = shm_native.advance(group, form, &call, &wait.wait);
    bool to_root = test->kind == ROTA_KIND_REDUCE || test->kind == ROTA_KIND_GATHER;
    bool from_root = test->kind == ROTA_KIND_BROADCAST || test->kind == ROTA_KIND_SCATTER;
    bool meets = to_root ? rank == 0 : from_root ? rank == 1 : true;
    REQUIRE(result.outcome == (meets ? NATIVE_MISMATCH : NATIVE_DONE));
    if (meets) {
        REQUIRE(result.peer == (rank == 1 ? 0 : 1));
        REQUIRE(result.peer_fingerprint == (rank == 1 ? 2222 : 1111));
    }
    free(data);
    shm_native.group_close(group);
}

Test(shm_flows, mismatching_fingerprints_are_found) {
    const rota_kind kinds[] = {ROTA_KIND_REDUCE_SCATTER, ROTA_KIND_ALL_GATHER, ROTA_KIND_BROADCAST,
                               ROTA_KIND_ALL_TO_ALL,     ROTA_KIND_REDUCE,     ROTA_KIND_GATHER,
                               ROTA_KIND_SCATTER};
    const size_t sizes[] = {8, 2000, 200000};
    for (int k = 0; k < 7; k++)
        for (int s = 0; s < 3; s++)
            cluster_run(3, run_mismatch, &(struct contradiction){kinds[k], sizes[s]});
}

/* A root that leaves after its broadcast has said all; who waits for another one sees it gone. */
static void run_close(struct cluster *cluster, int rank, void *arg) {
    size_t bytes = *(size_t *)arg;
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    uint8_t *data = malloc(bytes);
    REQUIRE(data);
    memset(data, rank == 0 ? 7 : 0, bytes);
    const struct native_form *form = shm_native.query(group, ROTA_KIND_BROADCAST, bytes, NULL);
    struct native_call call = {.kind = ROTA_KIND_BROADCAST,
                               .count = bytes,
                               .bytes = bytes,
                               .sequence = 1,
                               .send = data,
                               .recv = data};
    struct cluster_wait wait;
    cluster_wait_init(&wait);
    REQUIRE(shm_native.advance(group, form, &call, &wait.wait).outcome == NATIVE_DONE);
    for (size_t i = 0; i < bytes; i++)
        REQUIRE(data[i] == 7);
    if (rank != 0) {
        call.sequence = 2;
        struct native_result result = shm_native.advance(group, form, &call, &wait.wait);
        REQUIRE(result.outcome == NATIVE_CLOSED && result.peer == 0);
    }
    free(data);
    shm_native.group_close(group);
}

Test(shm_flows, closed_root_is_seen) {
    const size_t sizes[] = {8, 5000, 400000};
    for (int i = 0; i < 30; i++)
        cluster_run(3, run_close, (void *)&sizes[i % 3]);
}
