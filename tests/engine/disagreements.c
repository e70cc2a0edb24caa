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
    {"all_reduce #2", "all_gather #2"}, {"0 bytes", "1597"}};

struct test {
    enum what what;
    const char *algorithm;
    int odd;
    bool odd_is_last;
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
    int32_t one = 1, sum = 0;
    CHECK_OK(rota_all_reduce(&one, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
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
    free(buffers);
}

static int64_t worst_ms;

static void check(struct test *test, int nranks) {
    const char *algorithm = test->algorithm != NULL ? test->algorithm : "any";
    int full = 0, mismatches = 0;
    atomic_store(&test->last_call_ms, 0);
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

static void every_algorithm(const struct way *way) {
    static const int sizes[] = {2, 4, 5};
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
                bool can = a < 0 || (rota_algorithm_does(test.algorithm, kind_of(what), sizes[s]) &&
                                     (what != BLOCK || strcmp(test.algorithm, "pairwise") == 0 ||
                                      strcmp(test.algorithm, "direct") == 0));
                if (can)
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

static void disagreements_tcp(void) {
    every_algorithm(&(struct way){"tcp", "tcp", "", ""});
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {{"disagreements_native", disagreements_native},
                                             {"disagreements_shm", disagreements_shm},
                                             {"disagreements_tcp", disagreements_tcp},
                                             {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
