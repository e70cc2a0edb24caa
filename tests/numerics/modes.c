/* The numerics modes as callers see them: who agrees, what is refused, which bits come out. */
#include "engine/ranks.h"
#include "inputs.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 4099, TIMEOUT_MS = 30000 };

static const rota_dtype real_types[] = {ROTA_FLOAT16, ROTA_BFLOAT16, ROTA_FLOAT32, ROTA_FLOAT64};
enum { REAL_TYPES = sizeof(real_types) / sizeof(real_types[0]) };
/* Shared memory, and TCP; a call that names its algorithm is run by that and no native form. */
static const struct way *const transports[] = {&ways[0], &ways[2]};

/* One reduction of any kind, from and to buffers of nranks blocks. */
struct reduction {
    rota_kind kind;
    rota_dtype dtype;
    rota_op op;
    int root;
    const char *algorithm;
    rota_numerics numerics;
};

static rota_status reduce(const struct reduction *what, const void *send, void *recv, size_t count,
                          rota_comm *comm) {
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = what->algorithm;
    call.numerics = what->numerics;
    switch (what->kind) {
    case ROTA_KIND_ALL_REDUCE:
        return rota_all_reduce(send, recv, count, what->dtype, what->op, comm, &call);
    case ROTA_KIND_REDUCE:
        return rota_reduce(send, recv, count, what->dtype, what->op, what->root, comm, &call);
    case ROTA_KIND_REDUCE_SCATTER:
        return rota_reduce_scatter(send, recv, count, what->dtype, what->op, comm, &call);
    case ROTA_KIND_SCAN:
        return rota_scan(send, recv, count, what->dtype, what->op, comm, &call);
    default:
        return rota_exclusive_scan(send, recv, count, what->dtype, what->op, comm, &call);
    }
}

static const rota_kind reducing[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_REDUCE,
                                     ROTA_KIND_REDUCE_SCATTER, ROTA_KIND_SCAN,
                                     ROTA_KIND_EXCLUSIVE_SCAN};
enum { REDUCING = sizeof(reducing) / sizeof(reducing[0]) };

/* What the verifier says of the schedule, in the three forms of in-place use. */
static bool is_canonical(const char *algorithm, rota_kind kind, int nranks, int root) {
    bool canonical = true;
    for (int form = 0; form < 3; form++) {
        rota_schedule *schedule = NULL;
        rota_verdict verdict = ROTA_VERDICT_INIT;
        CHECK_OK(rota_schedule_build(algorithm, kind, nranks, root, form, &schedule));
        CHECK_OK(rota_schedule_verify(schedule, &verdict));
        canonical &= verdict.proven && verdict.canonical_tree;
        rota_schedule_free(schedule);
    }
    return canonical;
}

/* -- reproducible: the verifier decides, and what runs gives the tree's bits ---------------------
 */

/* Index of the first element that is not the tree's; count where there is none. */
static size_t first_wrong(const struct rank *rank, const struct reduction *what,
                          const unsigned char *recv, size_t count) {
    size_t size = rota_dtype_size(what->dtype);
    int combined = rank->nranks;
    size_t first = what->kind == ROTA_KIND_REDUCE_SCATTER ? (size_t)rank->rank * count : 0;
    if (what->kind == ROTA_KIND_SCAN)
        combined = rank->rank + 1;
    if (what->kind == ROTA_KIND_EXCLUSIVE_SCAN)
        combined = rank->rank;
    if (combined == 0 || (what->kind == ROTA_KIND_REDUCE && what->root != rank->rank))
        return count;
    for (size_t i = 0; i < count; i++) {
        unsigned char expected[8];
        input_tree(expected, what->dtype, what->op, combined, first + i);
        if (memcmp(recv + i * size, expected, size) != 0)
            return i;
    }
    return count;
}

static void reproducible_call(const struct rank *rank, const struct reduction *what, size_t count,
                              bool in_place) {
    size_t size = rota_dtype_size(what->dtype), n = (size_t)rank->nranks;
    bool scatters = what->kind == ROTA_KIND_REDUCE_SCATTER;
    unsigned char *send = malloc(n * count * size), *recv = malloc(n * count * size);
    input_fill(send, what->dtype, rank->rank, 0, scatters ? n * count : count);
    unsigned char *to = recv;
    if (in_place)
        to = scatters ? send + (size_t)rank->rank * count * size : send;
    rota_status status = reduce(what, send, to, count, rank->comm);
    bool keeps = what->algorithm == NULL ||
                 is_canonical(what->algorithm, what->kind, rank->nranks, what->root);
    CHECK(status == (keeps ? ROTA_OK : ROTA_ERR_UNSUPPORTED), "%s by %s on %d ranks: %s: %s",
          rota_kind_name(what->kind), what->algorithm ? what->algorithm : "choice", rank->nranks,
          rota_status_name(status), last_error()->message);
    if (status != ROTA_OK)
        CHECK(strstr(last_error()->message, what->algorithm) != NULL &&
                  strstr(last_error()->message, "canonical tree") != NULL,
              "no reason: %s", last_error()->message);
    if (status == ROTA_OK) {
        size_t wrong = first_wrong(rank, what, to, count);
        CHECK(wrong == count, "%s %s by %s on %d ranks: element %zu is not the tree's",
              rota_kind_name(what->kind), rota_dtype_name(what->dtype),
              what->algorithm ? what->algorithm : "choice", rank->nranks, wrong);
    }
    free(send);
    free(recv);
}

static void reproducible_rank(const struct rank *rank) {
    static const size_t counts[] = {1, 20, 700, COUNT};
    unsigned turn = 0;
    for (size_t k = 0; k < REDUCING; k++) {
        struct reduction what = {.kind = reducing[k], .numerics = ROTA_NUMERICS_REPRODUCIBLE};
        for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
            what.algorithm = a < 0 ? NULL : rota_algorithm_name(a);
            if (a >= 0 && !rota_algorithm_does(what.algorithm, what.kind, rank->nranks))
                continue;
            for (int d = 0; d < REAL_TYPES; d++, turn++) {
                what.dtype = real_types[d];
                what.op = k < 3 && turn % 3 == 2 ? ROTA_AVG : ROTA_SUM;
                what.root = what.kind == ROTA_KIND_REDUCE ? (int)turn % rank->nranks : -1;
                reproducible_call(rank, &what, counts[turn % 4], (turn + (unsigned)rank->rank) % 2);
            }
        }
    }
}

static void reproducible_is_the_tree(void) {
    for (size_t t = 0; t < 2; t++)
        for (int n = 1; n <= 9; n++) {
            way_take(transports[t]);
            ranks_run(n, TIMEOUT_MS, reproducible_rank, NULL);
        }
}

/* -- what is refused -----------------------------------------------------------------------------
 */

static uint64_t messages_sent(rota_comm *comm) {
    rota_counters counters = ROTA_COUNTERS_INIT;
    uint64_t sent = 0;
    CHECK_OK(rota_comm_counters(comm, &counters));
    for (int i = 0; i < counters.transport_count; i++)
        sent += counters.transports[i].messages_sent;
    return sent;
}

static void refused_rank(const struct rank *rank) {
    float send[64], recv[64];
    struct reduction what = {.kind = ROTA_KIND_ALL_REDUCE,
                             .dtype = ROTA_FLOAT32,
                             .root = -1,
                             .algorithm = "direct",
                             .numerics = ROTA_NUMERICS_REPRODUCIBLE};
    input_fill(send, ROTA_FLOAT32, rank->rank, 0, 64);
    CHECK_OK(reduce(&what, send, recv, 64, rank->comm));
    uint64_t before = messages_sent(rank->comm);
    what.algorithm = "ring";
    memset(recv, 0x5a, sizeof(recv));
    CHECK_STATUS(reduce(&what, send, recv, 64, rank->comm), ROTA_ERR_UNSUPPORTED);
    for (size_t i = 0; i < sizeof(recv); i++)
        CHECK(((unsigned char *)recv)[i] == 0x5a, "a refused call wrote byte %zu", i);
    CHECK(messages_sent(rank->comm) == before, "a refused call sent something");
    /* A plan is refused when it is made. */
    rota_call call = ROTA_CALL_INIT;
    rota_plan *plan = NULL;
    call.numerics = ROTA_NUMERICS_REPRODUCIBLE;
    call.algorithm = "ring";
    CHECK_STATUS(rota_plan_create_all_reduce(64, ROTA_FLOAT32, ROTA_SUM, rank->comm, &call, &plan),
                 ROTA_ERR_UNSUPPORTED);
    /* The communicator goes on. */
    what.algorithm = NULL;
    CHECK_OK(reduce(&what, send, recv, 64, rank->comm));
    what.algorithm = "ring";
    what.numerics = ROTA_NUMERICS_EQUAL;
    CHECK_OK(reduce(&what, send, recv, 64, rank->comm));
}

static void refused_before_anything_is_sent(void) {
    for (size_t t = 0; t < 2; t++) {
        way_take(transports[t]);
        ranks_run(4, TIMEOUT_MS, refused_rank, NULL);
    }
}

static void setting_rank(const struct rank *rank) {
    float send[8] = {1}, recv[8];
    CHECK_STATUS(rota_all_reduce(send, recv, 8, ROTA_FLOAT32, ROTA_SUM, rank->comm, NULL),
                 ROTA_ERR_UNSUPPORTED);
    CHECK(strstr(last_error()->message, "ROTA_ALGORITHM") != NULL, "%s", last_error()->message);
    /* What combines nothing is none of the mode's business. */
    CHECK_OK(rota_broadcast(send, recv, 8, ROTA_FLOAT32, 0, rank->comm, NULL));
    CHECK(strcmp(rota_comm_algorithm(rank->comm, ROTA_KIND_BROADCAST), "ring") == 0, "no ring");
}

static void settings_decide(void) {
    way_take(&ways[1]); /* ROTA_ALGORITHM=ring */
    setenv("ROTA_MODE", "reproducible", 1);
    ranks_run(3, TIMEOUT_MS, setting_rank, NULL);
    unsetenv("ROTA_MODE");
}

/* -- who must agree ------------------------------------------------------------------------------
 */

struct difference {
    size_t count;
    _Atomic int found; /* ranks that know what is wrong; the others have lost or awaited a peer */
};

static void differing_rank(const struct rank *rank) {
    float send[4000] = {1}, recv[4000];
    struct difference *difference = rank->arg;
    struct reduction what = {.kind = ROTA_KIND_ALL_REDUCE, .dtype = ROTA_FLOAT32, .root = -1};
    what.numerics = rank->rank == 1 ? ROTA_NUMERICS_REPRODUCIBLE : ROTA_NUMERICS_EQUAL;
    rota_status status = reduce(&what, send, recv, difference->count, rank->comm);
    CHECK(status != ROTA_OK, "a call in two modes succeeded");
    if (status != ROTA_ERR_MISMATCH)
        return;
    atomic_fetch_add(&difference->found, 1);
    if (rank->rank == 1)
        CHECK(strstr(last_error()->message, "float32 sum, reproducible, ") != NULL,
              "no mode in: %s", last_error()->message);
}

static void ranks_must_agree(void) {
    static const size_t counts[] = {3, 4000};
    for (size_t t = 0; t < 2; t++)
        for (size_t c = 0; c < 2; c++) {
            struct difference difference = {.count = counts[c]};
            way_take(transports[t]);
            ranks_run(2, 1000, differing_rank, &difference);
            CHECK(difference.found > 0, "nobody found that the modes differ");
        }
}

/* -- communicators and plans carry a mode --------------------------------------------------------
 */

/* Whether the communicator's mode is reproducible: then it refuses a ring. */
static bool refuses_ring(rota_comm *comm, rota_numerics numerics) {
    float send[3] = {1, 2, 3}, recv[3];
    struct reduction what = {.kind = ROTA_KIND_ALL_REDUCE,
                             .dtype = ROTA_FLOAT32,
                             .root = -1,
                             .algorithm = "ring",
                             .numerics = numerics};
    rota_status status = reduce(&what, send, recv, 3, comm);
    CHECK(status == ROTA_OK || status == ROTA_ERR_UNSUPPORTED, "%s", rota_status_name(status));
    return status == ROTA_ERR_UNSUPPORTED;
}

static void carrying_rank(const struct rank *rank) {
    rota_comm *child = NULL, *other = NULL;
    rota_call call = ROTA_CALL_INIT;
    CHECK(!refuses_ring(rank->comm, ROTA_NUMERICS_DEFAULT), "equal is not the default");
    CHECK_OK(rota_comm_set_numerics(rank->comm, ROTA_NUMERICS_REPRODUCIBLE));
    CHECK(refuses_ring(rank->comm, ROTA_NUMERICS_DEFAULT), "the communicator's mode is not kept");
    CHECK(!refuses_ring(rank->comm, ROTA_NUMERICS_FAST), "a call's mode does not win");
    CHECK_OK(rota_comm_duplicate(rank->comm, &child, NULL));
    CHECK(refuses_ring(child, ROTA_NUMERICS_DEFAULT), "a child has not its parent's mode");
    call.numerics = ROTA_NUMERICS_FAST;
    CHECK_OK(rota_comm_duplicate(rank->comm, &other, &call));
    CHECK(!refuses_ring(other, ROTA_NUMERICS_DEFAULT), "a child has not the mode it was given");
    CHECK(refuses_ring(rank->comm, ROTA_NUMERICS_DEFAULT), "a child changed its parent's mode");
    CHECK_OK(rota_comm_destroy(child));
    CHECK_OK(rota_comm_destroy(other));
    CHECK_OK(rota_comm_shrink(rank->comm, NULL, &child, NULL));
    CHECK(refuses_ring(child, ROTA_NUMERICS_DEFAULT), "who is left has lost the mode");
    CHECK_OK(rota_comm_destroy(child));
}

static void communicators_carry_a_mode(void) {
    way_take(&ways[0]);
    ranks_run(3, TIMEOUT_MS, carrying_rank, NULL);
}

/* Three ways to one call: blocking, a request, a plan whose communicator's mode changed later. */
static void ways_to_call(const struct rank *rank, rota_numerics numerics) {
    uint16_t send[COUNT], blocking[COUNT], requested[COUNT], planned[COUNT];
    rota_call call = ROTA_CALL_INIT;
    rota_request *request = NULL;
    rota_plan *plan = NULL;
    input_fill(send, ROTA_BFLOAT16, rank->rank, 0, COUNT);
    call.algorithm = numerics == ROTA_NUMERICS_REPRODUCIBLE ? "binomial" : "ring";
    call.numerics = numerics;
    CHECK_OK(rota_all_reduce(send, blocking, COUNT, ROTA_BFLOAT16, ROTA_SUM, rank->comm, &call));
    call.request = &request;
    CHECK_OK(rota_all_reduce(send, requested, COUNT, ROTA_BFLOAT16, ROTA_SUM, rank->comm, &call));
    CHECK_OK(rota_request_wait(request, 0));
    rota_request_free(request);
    call.request = NULL;
    call.numerics = ROTA_NUMERICS_DEFAULT;
    CHECK_OK(rota_comm_set_numerics(rank->comm, numerics));
    CHECK_OK(rota_plan_create_all_reduce(COUNT, ROTA_BFLOAT16, ROTA_SUM, rank->comm, &call, &plan));
    CHECK_OK(rota_comm_set_numerics(rank->comm, ROTA_NUMERICS_REPRODUCIBLE));
    CHECK_OK(rota_plan_start(plan, send, planned));
    CHECK_OK(rota_plan_wait(plan, 0));
    CHECK_OK(rota_plan_free(plan));
    CHECK(memcmp(blocking, requested, sizeof(blocking)) == 0, "a request gives other bits");
    CHECK(memcmp(blocking, planned, sizeof(blocking)) == 0, "a plan gives other bits");
}

static void calling_rank(const struct rank *rank) {
    ways_to_call(rank, ROTA_NUMERICS_EQUAL);
    ways_to_call(rank, ROTA_NUMERICS_FAST);
    ways_to_call(rank, ROTA_NUMERICS_REPRODUCIBLE);
}

static void requests_and_plans_too(void) {
    way_take(&ways[2]);
    ranks_run(5, TIMEOUT_MS, calling_rank, NULL);
}

/* -- fast ----------------------------------------------------------------------------------------
 */

static bool same_on_all(const struct rank *rank, const void *bytes, size_t count) {
    unsigned char *all = malloc((size_t)rank->nranks * count);
    bool same = true;
    CHECK_OK(rota_all_gather(bytes, all, count, ROTA_UINT8, rank->comm, NULL));
    for (int r = 0; r < rank->nranks; r++)
        same &= memcmp(all + (size_t)r * count, bytes, count) == 0;
    free(all);
    return same;
}

/* Ranks that are in place and ranks that are not, averages included, hold the same bits. */
static void alike_rank(const struct rank *rank) {
    for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
        const char *algorithm = a < 0 ? NULL : rota_algorithm_name(a);
        if (a >= 0 && !rota_algorithm_does(algorithm, ROTA_KIND_ALL_REDUCE, rank->nranks))
            continue;
        for (int op = 0; op < 3; op++) {
            static const rota_op ops[] = {ROTA_SUM, ROTA_PROD, ROTA_AVG};
            uint16_t send[COUNT], recv[COUNT];
            struct reduction what = {.kind = ROTA_KIND_ALL_REDUCE,
                                     .dtype = a % 2 ? ROTA_FLOAT16 : ROTA_BFLOAT16,
                                     .op = ops[op],
                                     .root = -1,
                                     .algorithm = algorithm,
                                     .numerics = ROTA_NUMERICS_FAST};
            input_fill(send, what.dtype, rank->rank, 0, COUNT);
            uint16_t *to = rank->rank % 2 ? send : recv;
            CHECK_OK(reduce(&what, send, to, COUNT, rank->comm));
            CHECK(same_on_all(rank, to, sizeof(recv)), "%s %s by %s in mode fast: ranks differ",
                  rota_dtype_name(what.dtype), rota_op_name(what.op),
                  algorithm ? algorithm : "choice");
        }
    }
}

static void fast_is_alike_on_all_ranks(void) {
    for (size_t t = 0; t < 2; t++)
        for (int n = 2; n <= 8; n++) {
            way_take(transports[t]);
            ranks_run(n, TIMEOUT_MS, alike_rank, NULL);
        }
}

/* Averages of integers are not narrow: their sums are 64 bits wide in every mode. */
static void integers_rank(const struct rank *rank) {
    static const rota_numerics modes[] = {ROTA_NUMERICS_EQUAL, ROTA_NUMERICS_REPRODUCIBLE,
                                          ROTA_NUMERICS_FAST};
    for (int m = 0; m < 3; m++)
        for (int a = 0; rota_algorithm_name(a) != NULL; a++) {
            struct reduction what = {.kind = ROTA_KIND_ALL_REDUCE,
                                     .dtype = ROTA_INT8,
                                     .op = ROTA_AVG,
                                     .root = -1,
                                     .algorithm = rota_algorithm_name(a),
                                     .numerics = modes[m]};
            int8_t send[70], recv[70];
            memset(send, 100, sizeof(send));
            if (!rota_algorithm_does(what.algorithm, what.kind, rank->nranks) ||
                (modes[m] == ROTA_NUMERICS_REPRODUCIBLE &&
                 !is_canonical(what.algorithm, what.kind, rank->nranks, -1)))
                continue;
            CHECK_OK(reduce(&what, send, recv, sizeof(send), rank->comm));
            for (size_t i = 0; i < sizeof(recv); i++)
                CHECK(recv[i] == 100, "average of 100 is %d by %s", recv[i], what.algorithm);
        }
}

static void integers_are_exact(void) {
    way_take(&ways[0]);
    ranks_run(3, TIMEOUT_MS, integers_rank, NULL);
}

/* -- elements wider than slices ------------------------------------------------------------------
 */

static void add_bytes(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                      void *arg) {
    (void)arg;
    for (size_t i = 0; i < count * rota_dtype_size(dtype); i++)
        ((uint8_t *)right_inout)[i] =
            (uint8_t)(((uint8_t *)right_inout)[i] + ((const uint8_t *)left)[i]);
}

static void wide_rank(const struct rank *rank) {
    enum { WIDE = ROTA_DTYPE_BYTES_MAX, MANY = 5 };
    uint8_t send[MANY * WIDE], recv[MANY * WIDE];
    rota_op add;
    memset(send, rank->rank + 1, sizeof(send));
    CHECK_OK(rota_op_create(add_bytes, NULL, false, NULL, rank->comm, &add));
    CHECK_OK(rota_all_reduce(send, recv, MANY, rota_dtype_bytes(WIDE), add, rank->comm, NULL));
    for (size_t i = 0; i < sizeof(recv); i++)
        CHECK(recv[i] == 6, "byte %zu is %d", i, recv[i]);
    CHECK_OK(rota_op_free(add, rank->comm));
}

static void elements_wider_than_slices(void) {
    setenv("ROTA_SLICE_BYTES", "1", 1);
    for (size_t t = 0; t < 2; t++) {
        way_take(transports[t]);
        ranks_run(3, TIMEOUT_MS, wide_rank, NULL);
    }
    unsetenv("ROTA_SLICE_BYTES");
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"reproducible_is_the_tree", reproducible_is_the_tree},
        {"refused_before_anything_is_sent", refused_before_anything_is_sent},
        {"settings_decide", settings_decide},
        {"ranks_must_agree", ranks_must_agree},
        {"communicators_carry_a_mode", communicators_carry_a_mode},
        {"requests_and_plans_too", requests_and_plans_too},
        {"fast_is_alike_on_all_ranks", fast_is_alike_on_all_ranks},
        {"integers_are_exact", integers_are_exact},
        {"elements_wider_than_slices", elements_wider_than_slices},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
