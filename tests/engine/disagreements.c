/* Ranks that call different things: every disagreement ends on all ranks soon after the last rank's
 * call, in an error that says who called what, whatever runs the calls. */
#include "ranks.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS 4096
/* From the last rank's call to a rank's return: 100 ms, and what sanitizers and other programs on
 * the machine may add. */
#define LIMIT_MS 1000
#define LATE_MS 30

enum what { OPERATION, COUNT, TYPE, OPERATOR, ROOT, ORDER, LEFT_OUT, BLOCK, DISAGREEMENTS };
static const char *const names[DISAGREEMENTS] = {
    "operation", "count", "type",          "operator",
    "root",      "order", "call left out", "all-to-allv block"};
/* What the error says on at least one rank, of the two sides. */
static const char *const words[DISAGREEMENTS][2] = {
    {"all_reduce #2", "all_gather #2"}, {", 1000)", ", 998)"}, {"(float32 sum", "(int32 sum"},
    {"float32 sum", "float32 max"},     {"root 0", "root 1"},  {"all_reduce #2", "all_gather #2"},
    {"all_reduce #2", "all_gather #2"}, {" 0 ", "1597"}};

struct test {
    enum what what;
    const char *algorithm;
    int odd;
    bool odd_is_last, strict;
    _Atomic int ready; /* ranks for whom the first call is over */
    _Atomic int64_t last_call_ms;
    int64_t ended_ms[8];
    rota_status status[8];
    char text[8][ROTA_ERROR_MAX_MESSAGE];
};

struct buffers {
    float in[NUMBERS], out[8 * NUMBERS];
};

static rota_status all_reduce(const struct rank *rank, const struct test *test, size_t count,
                              rota_dtype dtype, rota_op op, struct buffers *buffers) {
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = test->algorithm;
    return rota_all_reduce(buffers->in, buffers->out, count, dtype, op, rank->comm, &call);
}

static rota_status all_gather(const struct rank *rank, const struct test *test,
                              struct buffers *buffers) {
    rota_call call = ROTA_CALL_INIT;
    if (test->algorithm != NULL &&
        rota_algorithm_does(test->algorithm, ROTA_KIND_ALL_GATHER, rank->nranks))
        call.algorithm = test->algorithm;
    return rota_all_gather(buffers->in, buffers->out, 1000, ROTA_FLOAT32, rank->comm, &call);
}

/* Rank 0 sends nothing to the last rank, which expects 1597. */
static rota_status exchange(const struct rank *rank, const struct test *test,
                            struct buffers *buffers) {
    size_t send[8], recv[8];
    int last = rank->nranks - 1;
    for (int r = 0; r < rank->nranks; r++)
        send[r] = recv[r] = 10;
    if (rank->rank == 0)
        send[last] = 0;
    if (rank->rank == last)
        recv[0] = 1597;
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = test->algorithm;
    return rota_all_to_allv(buffers->in, send, NULL, buffers->out, recv, NULL, ROTA_INT8,
                            rank->comm, &call);
}

static rota_status both(rota_status first, rota_status second) {
    return first != ROTA_OK ? first : second;
}

static rota_status disagree(const struct rank *rank, const struct test *test,
                            struct buffers *buffers) {
    bool odd = rank->rank == test->odd;
    rota_call call = ROTA_CALL_INIT;
    rota_status status = ROTA_OK;
    switch (test->what) {
    case OPERATION:
        return odd ? all_gather(rank, test, buffers)
                   : all_reduce(rank, test, 1000, ROTA_FLOAT32, ROTA_SUM, buffers);
    case COUNT:
        return all_reduce(rank, test, odd ? 998 : 1000, ROTA_FLOAT32, ROTA_SUM, buffers);
    case TYPE:
        return all_reduce(rank, test, 1000, odd ? ROTA_INT32 : ROTA_FLOAT32, ROTA_SUM, buffers);
    case OPERATOR:
        return all_reduce(rank, test, 1000, ROTA_FLOAT32, odd ? ROTA_MAX : ROTA_SUM, buffers);
    case ROOT: /* nobody sends */
        call.algorithm = test->algorithm;
        return rota_broadcast(buffers->in, buffers->out, 1000, ROTA_FLOAT32, odd ? 1 : 0,
                              rank->comm, &call);
    case ORDER:
        status = odd ? all_gather(rank, test, buffers)
                     : all_reduce(rank, test, 1000, ROTA_FLOAT32, ROTA_SUM, buffers);
        return status != ROTA_OK
                   ? status
                   : (odd ? all_reduce(rank, test, 1000, ROTA_FLOAT32, ROTA_SUM, buffers)
                          : all_gather(rank, test, buffers));
    case LEFT_OUT:
        if (!odd)
            status = all_reduce(rank, test, 1000, ROTA_FLOAT32, ROTA_SUM, buffers);
        return status != ROTA_OK ? status : all_gather(rank, test, buffers);
    default:
        return exchange(rank, test, buffers);
    }
}

static void body(const struct rank *rank) {
    struct test *test = rank->arg;
    struct buffers *buffers = calloc(1, sizeof(*buffers));
    for (int i = 0; i < NUMBERS; i++)
        buffers->in[i] = 1;
    int32_t one = 1, sum = 0;
    CHECK_OK(rota_all_reduce(&one, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
    /* A disagreement that is found ends all calls of the communicator, also this one on a rank that
     * has not returned from it. */
    atomic_fetch_add(&test->ready, 1);
    while (atomic_load(&test->ready) < rank->nranks)
        sleep_ms(1);
    if ((rank->rank == test->odd) == test->odd_is_last)
        sleep_ms(LATE_MS);
    int64_t now = now_ms(), before = atomic_load(&test->last_call_ms);
    while (before < now && !atomic_compare_exchange_weak(&test->last_call_ms, &before, now))
        ;
    rota_status status = disagree(rank, test, buffers);
    /* Who had all that it needed meets it in its next call. */
    if (status == ROTA_OK)
        status = both(status, rota_barrier(rank->comm, NULL));
    test->ended_ms[rank->rank] = now_ms();
    test->status[rank->rank] = status;
    rota_error error = ROTA_ERROR_INIT;
    rota_comm_error(rank->comm, &error);
    snprintf(test->text[rank->rank], sizeof(test->text[0]), "%s", error.message);
    /* In an order of two calls the first may be alike. */
    for (int i = 0; test->strict && i < 8 * NUMBERS; i++)
        if (buffers->out[i] != 0) {
            CHECK(false, "%s: rank %d: data moved before calls were compared", names[test->what],
                  rank->rank);
            break;
        }
    free(buffers);
}

static int64_t worst_ms;

static void check(struct test *test, int nranks) {
    const char *algorithm = test->algorithm != NULL ? test->algorithm : "any";
    int full = 0, mismatches = 0;
    atomic_store(&test->last_call_ms, 0);
    atomic_store(&test->ready, 0);
    ranks_run(nranks, 10000, body, test);
    for (int r = 0; r < nranks; r++) {
        int64_t took = test->ended_ms[r] - atomic_load(&test->last_call_ms);
        worst_ms = took > worst_ms ? took : worst_ms;
        CHECK(test->status[r] == ROTA_ERR_MISMATCH, "%s, %s, n = %d, rank %d: %s: %s",
              names[test->what], algorithm, nranks, r, rota_status_name(test->status[r]),
              test->text[r]);
        CHECK(took < LIMIT_MS, "%s, %s, n = %d, rank %d: took %lld ms", names[test->what],
              algorithm, nranks, r, (long long)took);
        mismatches += test->status[r] == ROTA_ERR_MISMATCH;
        bool says = strstr(test->text[r], words[test->what][0]) != NULL &&
                    strstr(test->text[r], words[test->what][1]) != NULL;
        full += says;
        CHECK(says, "%s, %s, n = %d, rank %d: \"%s\"", names[test->what], algorithm, nranks, r,
              test->text[r]);
    }
    CHECK(mismatches > 0 && full > 0, "%s, %s, n = %d: nobody says what happened",
          names[test->what], algorithm, nranks);
}

static rota_kind kind_of(enum what what) {
    return what == ROOT    ? ROTA_KIND_BROADCAST
           : what == BLOCK ? ROTA_KIND_ALL_TO_ALL
                           : ROTA_KIND_ALL_REDUCE;
}

/* Every disagreement meets every algorithm, on groups of sizes in turn; all of them with
 * ROTA_TEST_EVERY_SIZE. */
static void every_algorithm(const struct way *way) {
    static const int sizes[] = {2, 4, 5};
    bool every_size = getenv("ROTA_TEST_EVERY_SIZE") != NULL;
    way_take(way);
    worst_ms = 0;
    for (int s = 0; s < 3; s++)
        for (enum what what = 0; what < DISAGREEMENTS; what++)
            for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
                struct test test = {.what = what,
                                    .algorithm = a < 0 ? NULL : rota_algorithm_name(a),
                                    .odd = what == ROOT || a % 2 == 0 ? 0 : sizes[s] - 1,
                                    .odd_is_last = (a + (int)what) % 3 != 0};
                /* Blocks of a v-form go straight from their origin to their destination. */
                bool due = every_size || (a + 1 + (int)what) % 3 == s;
                bool can = a < 0 || (rota_algorithm_does(test.algorithm, kind_of(what), sizes[s]) &&
                                     (what != BLOCK || strcmp(test.algorithm, "pairwise") == 0 ||
                                      strcmp(test.algorithm, "direct") == 0));
                if (can && due)
                    check(&test, sizes[s]);
            }
    printf("  %s: %lld ms at most after the last call\n", way->name, (long long)worst_ms);
}

static void disagreements_native(void) {
    every_algorithm(&(struct way){"native", "", "", ""});
}

static void disagreements_shm(void) {
    every_algorithm(&(struct way){"shm", "shm", "", ""});
}

/* Calls are compared before any data move. */
static void disagreements_strict(void) {
    static const char *const transports[] = {"", "shm", "tcp"};
    setenv("ROTA_CHECK", "strict", 1);
    for (int t = 0; t < 3; t++) {
        way_take(&(struct way){"strict", transports[t], "", ""});
        for (enum what what = 0; what < DISAGREEMENTS; what++) {
            struct test test = {.what = what,
                                .algorithm = t == 1 ? "direct" : NULL,
                                .odd_is_last = what % 2 == 0,
                                .strict = true};
            check(&test, t == 2 ? 2 : 4);
        }
    }
    unsetenv("ROTA_CHECK");
}

static void strict_body(const struct rank *rank) {
    int32_t in[64], out[64];
    size_t counts[8];
    for (int i = 0; i < 64; i++)
        in[i] = rank->rank + i;
    for (int r = 0; r < rank->nranks; r++)
        counts[r] = 2;
    for (int i = 0; i < 20; i++) {
        CHECK_OK(rota_all_reduce(in, out, 7, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
        CHECK(out[1] == 4 + 6, "%d", out[1]);
        CHECK_OK(
            rota_all_to_allv(in, counts, NULL, out, counts, NULL, ROTA_INT32, rank->comm, NULL));
        CHECK(out[6] == 3 + 2 * rank->rank, "%d", out[6]);
        CHECK_OK(rota_gatherv(in, 2, out, counts, NULL, ROTA_INT32, i % 4, rank->comm, NULL));
        CHECK_OK(rota_scatterv(in, counts, NULL, out, 2, ROTA_INT32, i % 4, rank->comm, NULL));
        CHECK(out[0] == i % 4 + 2 * rank->rank, "%d", out[0]);
        CHECK_OK(rota_barrier(rank->comm, NULL));
    }
    rota_request *requests[8];
    for (int i = 0; i < 8; i++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[i];
        CHECK_OK(rota_all_reduce(in + i, out + i, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    }
    for (int i = 0; i < 8; i++) {
        CHECK_OK(rota_request_wait(requests[i], 0));
        CHECK(out[i] == 6 + 4 * i, "%d", out[i]);
        CHECK_OK(rota_request_free(requests[i]));
    }
}

/* Right calls are as right as ever. */
static void strict_agreement(void) {
    setenv("ROTA_CHECK", "strict", 1);
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(4, 10000, strict_body, NULL);
    }
    unsetenv("ROTA_CHECK");
}

static void disagreements_tcp(void) {
    every_algorithm(&(struct way){"tcp", "tcp", "", ""});
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {{"disagreements_native", disagreements_native},
                                             {"disagreements_shm", disagreements_shm},
                                             {"disagreements_tcp", disagreements_tcp},
                                             {"disagreements_strict", disagreements_strict},
                                             {"strict_agreement", strict_agreement},
                                             {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
