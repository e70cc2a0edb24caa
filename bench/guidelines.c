/* `rota bench --guidelines`: whether the operations are consistent with each other. What one
 * operation does, a user could do by others, so it should not take longer than they (J. L. Traeff,
 * W. Gropp, R. Thakur: Self-consistent MPI performance guidelines, 2010). What is beyond the
 * tolerance is measured twice more, and counts when it is so at least twice. */
#include "bench/study.h"

#include <string.h>

#define CONTEST_MS 120
#define PARTS 2

/* `left` does not take longer than all of `right`, at the same size of the larger buffer. */
static const struct guideline {
    const char *left, *right[PARTS];
} guidelines[] = {
    {"all_reduce", {"reduce", "broadcast"}},  {"all_reduce", {"reduce_scatter", "all_gather"}},
    {"reduce_scatter", {"all_reduce", NULL}}, {"reduce_scatter", {"reduce", "scatter"}},
    {"reduce", {"all_reduce", NULL}},         {"reduce", {"reduce_scatter", "gather"}},
    {"all_gather", {"gather", "broadcast"}},  {"all_gather", {"all_reduce", NULL}},
    {"all_gather", {"all_to_all", NULL}},     {"broadcast", {"scatter", "all_gather"}},
    {"gather", {"all_gather", NULL}},         {"scatter", {"broadcast", NULL}},
    {"barrier", {"all_reduce", NULL}},
};
#define GUIDELINES ((int)(sizeof(guidelines) / sizeof(guidelines[0])))

static const char *const operations[] = {"all_reduce", "reduce",     "broadcast",
                                         "gather",     "scatter",    "reduce_scatter",
                                         "all_gather", "all_to_all", "barrier"};
#define OPERATIONS ((int)(sizeof(operations) / sizeof(operations[0])))

static double time_of(const struct study_way *ways, int count, const char *name) {
    for (int i = 0; name && i < count; i++)
        if (strcmp(ways[i].row.operation->name, name) == 0)
            return ways[i].us;
    return 0;
}

/* left / right */
static double ratio(const struct guideline *guideline, const struct study_way *ways, int count) {
    double right = 0;
    for (int i = 0; i < PARTS; i++)
        right += time_of(ways, count, guideline->right[i]);
    return right > 0 ? time_of(ways, count, guideline->left) / right : 0;
}

/* Measures the operations of one guideline again, twice; how often it was broken. */
static rota_status look_again(struct bench_session *session, const struct guideline *guideline,
                              int64_t bytes, double limit, int *broken) {
    const char *names[] = {guideline->left, guideline->right[0], guideline->right[1]};
    struct study_way ways[1 + PARTS];
    int count = 0;
    rota_status status = ROTA_OK;
    for (int i = 0; i < 1 + PARTS && names[i]; i++)
        ways[count++].row = study_row(session, bench_operation_find(names[i]), bytes);
    for (int again = 0; again < 2 && status == ROTA_OK; again++) {
        status = study_contest(session, ways, count, CONTEST_MS);
        *broken += ratio(guideline, ways, count) > limit;
    }
    return status;
}

static rota_status guideline_check(struct bench_session *session, const struct guideline *guideline,
                                   int64_t bytes, const struct study_way *ways) {
    double limit = 1 + (double)session->options->tolerance / 100;
    double found = ratio(guideline, ways, OPERATIONS);
    int broken = found > limit;
    rota_status status = ROTA_OK;
    if (broken)
        status = look_again(session, guideline, bytes, limit, &broken);
    session->wrong += broken >= 2;
    session->rows++;
    if (session->rank == 0 && session->options->table)
        printf("%10lld  %-15s <= %-15s %s %-12s %10.2f %10.2f %7.2f%s\n", (long long)bytes,
               guideline->left, guideline->right[0], guideline->right[1] ? "+" : " ",
               guideline->right[1] ? guideline->right[1] : "",
               time_of(ways, OPERATIONS, guideline->left),
               time_of(ways, OPERATIONS, guideline->right[0]) +
                   time_of(ways, OPERATIONS, guideline->right[1]),
               found,
               broken >= 2   ? "  BROKEN"
               : broken == 1 ? "  once"
                             : "");
    return status;
}

rota_status study_guidelines(struct bench_session *session) {
    const struct bench_options *options = session->options;
    struct study_way ways[OPERATIONS];
    rota_status status = ROTA_OK;
    bool telling = session->rank == 0 && options->table;
    if (telling)
        printf("# guidelines, %d ranks: what one operation does takes no longer than by others\n"
               "# %8s  %-50s %10s %10s %7s\n",
               session->nranks, "bytes", "guideline", "left us", "right us", "ratio");
    for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && status == ROTA_OK;
         bytes = study_next_size(options, bytes)) {
        for (int i = 0; i < OPERATIONS; i++)
            ways[i].row = study_row(session, bench_operation_find(operations[i]), bytes);
        status = study_contest(session, ways, OPERATIONS, CONTEST_MS);
        for (int i = 0; i < GUIDELINES && status == ROTA_OK; i++)
            status = guideline_check(session, &guidelines[i], bytes, ways);
    }
    if (status)
        bench_session_report(session, "guidelines", status);
    if (telling && status == ROTA_OK)
        printf("# guidelines: %llu of %llu broken by more than %lld%%\n",
               (unsigned long long)session->wrong, (unsigned long long)session->rows,
               (long long)options->tolerance);
    return status;
}
