/* Native forms over shared memory, between processes, against an independent reference. */
#include "cluster.h"
#include "transports/shm/lines.h"
#include "unit/reduce/reference.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define GUARD 64
#define CHECKED 300 /* elements compared of a long result */

struct matrix {
    int n;
    size_t limit;    /* of bytes per call */
    int rounds;      /* calls per type and operator */
    bool impatient;  /* every wait is cut short and resumed */
    int every;       /* only every so many of types and operators; 0: all */
    bool mapped;     /* large calls, with buffers in the ranks' heaps and elsewhere */
    const char *isa; /* unused: the best */
};

/* Operand of one rank in one call: the same on all ranks' reckoning. */
static void fill(uint8_t *to, rota_dtype dtype, rota_op op, size_t count, uint64_t call, int rank) {
    uint64_t state = call * 1000 + (uint64_t)rank + 1;
    size_t size = rota_dtype_size(dtype);
    for (size_t i = 0; i < count; i++) {
        bits value = reference_sample(dtype, op, false, &state);
        memcpy(to + i * size, &value, size);
    }
}

static struct native_result advance(struct native_group *group, const struct native_call *call,
                                    const struct native_form *form, bool impatient) {
    struct cluster_wait wait;
    cluster_wait_init(&wait);
    struct native_result result;
    do {
        wait.impatient = impatient;
        result = shm_native.advance(group, form, call, &wait.wait);
        if (result.outcome == NATIVE_PAUSED)
            sched_yield();
    } while (result.outcome == NATIVE_PAUSED && impatient);
    return result;
}

struct buffers {
    uint8_t *send[CLUSTER_MAX], *recv, *before;
    uint8_t *sends[2], *recvs[2]; /* of this rank: ordinary, and in its heap */
    int mapped_calls;
};

/* Puts the rank's buffers elsewhere from call to call: every third time all into the heaps. */
static void place(struct buffers *buffers, uint64_t number, int rank) {
    uint64_t mix = number % 3 == 0 ? 3 : number / 3 + (uint64_t)rank * (number % 5);
    buffers->send[rank] = buffers->sends[mix & 1];
    buffers->recv = buffers->recvs[mix >> 1 & 1];
}

static void check_result(const struct reduce_spec *spec, const struct buffers *buffers, int n,
                         size_t count, uint64_t call) {
    struct reduce_operand operands[CLUSTER_MAX];
    for (int r = 0; r < n; r++)
        operands[r] = (struct reduce_operand){.data = buffers->send[r]};
    size_t step = count > CHECKED ? count / CHECKED : 1;
    for (size_t i = call % step; i < count; i += step) {
        bits expected = reference_reduce(spec->dtype, spec->op, n, operands, (size_t)n, i, true);
        bits value = reference_load(buffers->recv + GUARD, i, spec->element_size);
        if (!reference_same(spec->dtype, spec->op, true, expected, value)) {
            fprintf(stderr, "%s %s n %d count %zu element %zu: %llx, not %llx\n",
                    rota_dtype_name(spec->dtype), rota_op_name(spec->op), n, count, i,
                    (unsigned long long)value, (unsigned long long)expected);
            cluster_fail(__FILE__, __LINE__, "the reference's bits");
        }
    }
}

/* One all-reduce, checked against the reference, with its guards. */
static void one_call(struct native_group *group, const struct matrix *matrix, int rank,
                     const struct reduce_spec *spec, size_t count, uint64_t number,
                     struct buffers *buffers) {
    size_t bytes = count * spec->element_size;
    if (matrix->mapped)
        place(buffers, number, rank);
    for (int r = 0; r < matrix->n; r++)
        fill(buffers->send[r], spec->dtype, spec->op, count, number, r);
    bool in_place = (number + (uint64_t)rank) % 3 == 0; /* differs between ranks */
    memset(buffers->recv, 0xa5, bytes + 2 * GUARD);
    if (in_place)
        memcpy(buffers->recv + GUARD, buffers->send[rank], bytes);
    memcpy(buffers->before, buffers->send[rank], bytes);
    struct native_call call = {.kind = ROTA_KIND_ALL_REDUCE,
                               .count = count,
                               .bytes = bytes,
                               .spec = spec,
                               .sequence = number,
                               .fingerprint = number * 77 + 1,
                               .send = in_place ? buffers->recv + GUARD : buffers->send[rank],
                               .recv = buffers->recv + GUARD};
    const struct native_form *form = shm_native.query(group, ROTA_KIND_ALL_REDUCE, bytes, spec);
    REQUIRE(form);
    struct native_result result = advance(group, &call, form, matrix->impatient);
    REQUIRE(result.outcome == NATIVE_DONE);
    buffers->mapped_calls += result.form && strncmp(result.form->name, "shm-mapped", 10) == 0;
    /* What others still read of this rank must not be needed any more. */
    uint8_t *heap_send = buffers->sends[1];
    if (matrix->mapped && heap_send == buffers->send[rank] && !in_place) {
        memset(heap_send, 0x5a, bytes);
        sched_yield();
        memcpy(heap_send, buffers->before, bytes);
    }
    check_result(spec, buffers, matrix->n, count, number);
    REQUIRE(memcmp(buffers->before, buffers->send[rank], bytes) == 0);
    for (size_t i = 0; i < GUARD; i++)
        REQUIRE(buffers->recv[i] == 0xa5 && buffers->recv[GUARD + bytes + i] == 0xa5);
}

static void run_matrix(struct cluster *cluster, int rank, void *arg) {
    const struct matrix *matrix = arg;
    struct native_group *group = cluster_group(cluster, rank, 5, matrix->n);
    struct buffers buffers = {0};
    for (int r = 0; r < matrix->n; r++)
        REQUIRE((buffers.send[r] = malloc(matrix->limit + 16)) != NULL);
    buffers.recv = malloc(matrix->limit + 16 + 2 * GUARD);
    buffers.before = malloc(matrix->limit + 16);
    REQUIRE(buffers.recv && buffers.before);
    struct shm_heap *heap = &shm_of(cluster->ranks[rank].transport)->heap;
    buffers.sends[0] = buffers.send[rank];
    buffers.recvs[0] = buffers.recv;
    buffers.sends[1] = shm_heap_allocate(heap, matrix->limit + 16);
    buffers.recvs[1] = shm_heap_allocate(heap, matrix->limit + 16 + 2 * GUARD);
    REQUIRE(buffers.sends[1] && buffers.recvs[1]);
    uint64_t number = 0, state = 4711;
    int pair = 0;
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
            struct reduce_spec spec;
            if (!rota_op_accepts(op, dtype) || (matrix->every > 0 && pair++ % matrix->every != 0))
                continue;
            REQUIRE(reduce_spec_init(&spec, dtype, op, matrix->n, cpu_isa_best()) == ROTA_OK);
            for (int round = 0; round < matrix->rounds; round++) {
                /* Sizes of all magnitudes, so that the form changes from call to call. */
                uint64_t random = reference_random(&state);
                size_t top = matrix->limit >> random % (matrix->mapped ? 2 : 12);
                size_t count = (size_t)(random >> 8) % (top + 1) / spec.element_size;
                one_call(group, matrix, rank, &spec, count, ++number, &buffers);
            }
        }
    REQUIRE(matrix->mapped == (buffers.mapped_calls > 0));
    buffers.send[rank] = buffers.sends[0];
    for (int r = 0; r < matrix->n; r++)
        free(buffers.send[r]);
    free(buffers.recvs[0]);
    REQUIRE(shm_heap_free(heap, buffers.sends[1]) && shm_heap_free(heap, buffers.recvs[1]));
    REQUIRE(!shm_heap_free(heap, buffers.sends[1]));
    free(buffers.before);
    shm_native.group_close(group);
}

Test(shm_forms, all_types_and_operators_2) {
    cluster_run(2, run_matrix, &(struct matrix){.n = 2, .limit = 70001, .rounds = 24});
}
Test(shm_forms, all_types_and_operators_3) {
    cluster_run(3, run_matrix, &(struct matrix){.n = 3, .limit = 70001, .rounds = 12});
}
Test(shm_forms, all_types_and_operators_4) {
    cluster_run(4, run_matrix, &(struct matrix){.n = 4, .limit = 70001, .rounds = 8});
}
Test(shm_forms, all_types_and_operators_5) {
    cluster_run(5, run_matrix, &(struct matrix){.n = 5, .limit = 70001, .rounds = 8});
}
Test(shm_forms, many_slices) {
    cluster_run(3, run_matrix, &(struct matrix){.n = 3, .limit = 3500003, .rounds = 1});
}
Test(shm_forms, paused_and_resumed) {
    cluster_run(3, run_matrix,
                &(struct matrix){.n = 3, .limit = 600001, .rounds = 3, .impatient = true});
}
Test(shm_forms, mapped_buffers_2) {
    cluster_run(2, run_matrix,
                &(struct matrix){.n = 2, .limit = 1500003, .rounds = 2, .mapped = true});
}
Test(shm_forms, mapped_buffers_3_paused) {
    cluster_run(
        3, run_matrix,
        &(struct matrix){.n = 3, .limit = 1500003, .rounds = 1, .impatient = true, .mapped = true});
}
Test(shm_forms, mapped_buffers_5) {
    cluster_run(5, run_matrix,
                &(struct matrix){.n = 5, .limit = 1500003, .rounds = 1, .mapped = true});
}

/* By levels: whole blocks, a smaller last one, borders at no multiple of a power of two. */
static void run_levels(const char *levels, int n, struct matrix matrix) {
    setenv("ROTA_LEVELS", levels, 1);
    matrix.n = n;
    cluster_run(n, run_matrix, &matrix);
    unsetenv("ROTA_LEVELS");
}
Test(shm_levels, all_types_and_operators) {
    run_levels("4", 8, (struct matrix){.limit = 30001, .rounds = 1});
    run_levels("4", 7, (struct matrix){.limit = 30001, .rounds = 1, .impatient = true});
    run_levels("6", 12, (struct matrix){.limit = 30001, .rounds = 1, .every = 5});
}
Test(shm_levels, many_slices) {
    run_levels("2", 5, (struct matrix){.limit = 1000003, .rounds = 2, .every = 7});
}
Test(shm_levels, mapped_buffers) {
    run_levels("2", 4,
               (struct matrix){
                   .limit = 900003, .rounds = 2, .every = 7, .impatient = true, .mapped = true});
}

Test(shm_forms, C34_call_numbers_near_their_ends) {
    const char *starts[] = {"2147483645", "4294967293", "9223372036854775805"};
    for (int i = 0; i < 3; i++) {
        setenv("ROTA_TEST_SEQUENCE_START", starts[i], 1);
        cluster_run(2, run_matrix, &(struct matrix){.n = 2, .limit = 400001, .rounds = 1});
    }
    unsetenv("ROTA_TEST_SEQUENCE_START");
}

/* -- barrier --------------------------------------------------------------------------------- */

static void run_barriers(struct cluster *cluster, int rank, void *arg) {
    _Atomic uint32_t *entered = arg; /* shared: one counter per barrier */
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    const struct native_form *form = shm_native.query(group, ROTA_KIND_BARRIER, 0, NULL);
    REQUIRE(form && (form->block || strcmp(form->name, "shm-barrier") == 0));
    for (uint64_t k = 0; k < 500; k++) {
        atomic_fetch_add(&entered[k], 1);
        struct native_call call = {
            .kind = ROTA_KIND_BARRIER, .sequence = k + 1, .fingerprint = k * 3 + 1};
        REQUIRE(advance(group, &call, form, false).outcome == NATIVE_DONE);
        REQUIRE(atomic_load(&entered[k]) == (uint32_t)cluster->n);
    }
    shm_native.group_close(group);
}

Test(shm_forms, barrier_waits_for_all) {
    for (int n = 2; n <= 5; n++) {
        void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        cr_assert_neq(shared, MAP_FAILED);
        cluster_run(n, run_barriers, shared);
        munmap(shared, 4096);
    }
    void *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    setenv("ROTA_LEVELS", "2", 1);
    cluster_run(7, run_barriers, shared);
    unsetenv("ROTA_LEVELS");
    munmap(shared, 4096);
}

/* -- contradictions and closing -------------------------------------------------------------- */

static void run_mismatch(struct cluster *cluster, int rank, void *arg) {
    size_t count = *(size_t *)arg;
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, cluster->n, cpu_isa_best()) == ROTA_OK);
    float *data = calloc(count, sizeof *data);
    REQUIRE(data);
    struct native_call call = {.kind = ROTA_KIND_ALL_REDUCE,
                               .count = count,
                               .bytes = count * 4,
                               .spec = &spec,
                               .sequence = 9,
                               .fingerprint = rank == 1 ? 1111 : 2222,
                               .send = data,
                               .recv = data};
    const struct native_form *form =
        shm_native.query(group, ROTA_KIND_ALL_REDUCE, call.bytes, &spec);
    struct native_result result = advance(group, &call, form, false);
    REQUIRE(result.outcome == NATIVE_MISMATCH);
    REQUIRE(result.peer == (rank == 1 ? 0 : 1));
    REQUIRE(result.peer_fingerprint == (rank == 1 ? 2222 : 1111));
    free(data);
    shm_native.group_close(group);
}

Test(shm_forms, mismatching_fingerprints_are_found) {
    size_t counts[] = {2, 1000, 100000};
    for (int i = 0; i < 3; i++)
        cluster_run(3, run_mismatch, &counts[i]);
}

static void run_close(struct cluster *cluster, int rank, void *arg) {
    (void)arg;
    struct native_group *group = cluster_group(cluster, rank, 1, cluster->n);
    const struct native_form *form = shm_native.query(group, ROTA_KIND_BARRIER, 0, NULL);
    struct native_call call = {.kind = ROTA_KIND_BARRIER, .sequence = 1};
    /* A member that closes at once after a call takes nothing from the others' call. */
    REQUIRE(advance(group, &call, form, false).outcome == NATIVE_DONE);
    if (rank != 0) {
        call.sequence = 2;
        struct native_result result = advance(group, &call, form, false);
        REQUIRE(result.outcome == NATIVE_CLOSED && result.peer == 0);
    }
    shm_native.group_close(group);
}

Test(shm_forms, closed_member_is_seen) {
    for (int i = 0; i < 50; i++)
        cluster_run(3, run_close, NULL);
}

/* -- agreement and reuse --------------------------------------------------------------------- */

static struct native_group *open_group(struct cluster *cluster, int rank, uint32_t comm, int n) {
    int members[CLUSTER_MAX] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct native_group *group = NULL;
    cr_assert_eq(
        shm_native.group_open(cluster->ranks[rank].transport, comm, 1, members, n, rank, &group),
        ROTA_OK);
    return group;
}

Test(shm_forms, one_pair_without_memory_decides_for_all) {
    struct cluster cluster;
    cluster_open(&cluster, 4);
    int bad[2] = {0, 0}; /* standard input is no arena */
    for (int a = 0; a < 4; a++)
        for (int b = a + 1; b < 4; b++)
            cluster_connect(&cluster, a, b, a == 1 && b == 2 ? bad : NULL);
    cr_assert_eq(cluster.ranks[1].unreachable, 1);
    cr_assert_eq(cluster.ranks[2].unreachable, 1);
    struct native_group *groups[4];
    for (int r = 0; r < 4; r++)
        groups[r] = open_group(&cluster, r, 1, 4);
    enum transport_result results[4];
    for (int turn = 0; turn < 3; turn++)
        for (int r = 0; r < 4; r++)
            results[r] = shm_native.group_connect(groups[r]);
    for (int r = 0; r < 4; r++)
        cr_assert_eq(results[r], TRANSPORT_UNSUPPORTED, "rank %d", r);
    for (int r = 0; r < 4; r++)
        shm_native.group_close(groups[r]);
    cluster_close(&cluster);
}

Test(shm_forms, areas_are_used_again) {
    struct cluster cluster;
    cluster_open(&cluster, 3);
    cluster_connect_all(&cluster);
    struct shm *shm = (struct shm *)cluster.ranks[0].transport;
    size_t before = shm->arena.free.range[shm->arena.free.count - 1].offset;
    for (uint32_t comm = 0; comm < 10000; comm++) {
        struct native_group *groups[3];
        for (int r = 0; r < 3; r++)
            groups[r] = open_group(&cluster, r, comm, 3);
        bool connected = comm % 3 != 0;
        for (int turn = 0; turn < 2 && connected; turn++)
            for (int r = 0; r < 3; r++)
                REQUIRE(shm_native.group_connect(groups[r]) == TRANSPORT_OK || turn == 0);
        for (int r = 0; r < 3; r++)
            shm_native.group_close(groups[(r + (int)comm) % 3]);
    }
    for (int r = 0; r < 3; r++) { /* reclaims what the others closed later */
        struct native_group *last = open_group(&cluster, r, 99999, 3);
        shm_native.group_close(last);
    }
    cr_assert_leq(shm->groups_used, 100);
    cr_assert_leq(shm->arena.free.range[shm->arena.free.count - 1].offset,
                  before + 8 * 1024 * 1024);
    cluster_close(&cluster);
}

Test(shm_forms, full_arena_is_agreed) {
    struct cluster cluster;
    cluster_open(&cluster, 2);
    cluster_connect_all(&cluster);
    struct shm *shm = (struct shm *)cluster.ranks[1].transport;
    enum { GROUPS = 20 };
    struct native_group *groups[2][GROUPS];
    /* Rank 1 has room for one whole area and for small ones, then for none. */
    const size_t whole = sizeof(struct shm_area) + sizeof(struct shm_staging);
    const size_t room = whole + 3 * sizeof(struct shm_area);
    REQUIRE(shm_arena_allocate(&shm->arena, shm->arena.free.range[0].bytes - room) != 0);
    int staged = 0, small = 0, none = 0;
    for (uint32_t i = 0; i < GROUPS; i++) {
        for (int r = 0; r < 2; r++)
            groups[r][i] = open_group(&cluster, r, i, 2);
        enum transport_result results[2];
        for (int turn = 0; turn < 2; turn++)
            for (int r = 0; r < 2; r++)
                results[r] = shm_native.group_connect(groups[r][i]);
        cr_assert_eq(results[0], results[1]);
        if (results[0] != TRANSPORT_OK) {
            none++;
            continue;
        }
        struct reduce_spec spec;
        cr_assert_eq(reduce_spec_init(&spec, ROTA_INT8, ROTA_SUM, 2, CPU_SCALAR), ROTA_OK);
        const struct native_form *forms[2];
        for (int r = 0; r < 2; r++)
            forms[r] = shm_native.query(groups[r][i], ROTA_KIND_ALL_REDUCE, 1 << 20, &spec);
        cr_assert_eq(forms[0], forms[1]);
        staged += forms[0] != NULL;
        small += forms[0] == NULL;
    }
    cr_assert_eq(staged, 1);
    cr_assert_eq(small, 3);
    cr_assert_eq(none, GROUPS - 4);
    for (int r = 0; r < 2; r++)
        for (uint32_t i = 0; i < GROUPS; i++)
            shm_native.group_close(groups[r][i]);
    cluster_close(&cluster);
}

Test(shm_forms, near_and_far_readers_get_the_same_bytes) {
    static const size_t sizes[] = {0, 1, 2047, 2048, 2049, 4096, 10001, 32768, 32769};
    static uint8_t from[32769 + GUARD], to[2 * GUARD + sizeof from];
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (uint8_t)(i * 7 + i / 251 + 1);
    for (size_t i = 0; i < 2 * sizeof sizes / sizeof *sizes; i++) {
        struct native_group group = {.isa = cpu_isa_best(), .near = i % 2 != 0};
        size_t bytes = sizes[i / 2];
        memset(to, 0, sizeof to);
        shm_hand_over(&group, to + GUARD, from, bytes);
        cr_assert_arr_eq(to + GUARD, from, bytes);
        for (size_t k = 0; k < GUARD; k++)
            cr_assert(to[k] == 0 && to[GUARD + bytes + k] == 0);
    }
}

Test(shm_forms, looking_for_near_readers_changes_no_line) {
    static struct shm_area area;
    struct native_group group = {.area = &area, .sequence = 64};
    for (int i = 0; i < SHM_LINES; i++)
        atomic_store(&area.line[i].sequence, 100 + (uint64_t)i);
    for (int i = 0; i < 100 && !group.near; i++) /* a line that nobody else has is near */
        shm_look_near(&group);
    cr_assert(group.near);
    for (int i = 0; i < SHM_LINES; i++)
        cr_assert_eq(atomic_load(&area.line[i].sequence), 100 + (uint64_t)i);
}
