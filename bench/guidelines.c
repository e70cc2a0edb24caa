/* `rota bench --guidelines`: whether the operations are consistent with each other. What one
 * operation does, a user could do by others, so it should not take longer than they (J. L. Traeff,
 * W. Gropp, R. Thakur: Self-consistent MPI performance guidelines, 2010). What is beyond the
 * tolerance is measured twice more, and counts when it is so at least twice. */
#include "bench/study.h"

#include <string.h>

#define CONTEST_MS 120

/* `left` does not take longer than those of `right` in turn, at the same size of the larger buffer.
 */
static const struct guideline {
    const char *left, *right[2];
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

#define MAX_WAYS (2 * GUIDELINES)

/* Makes the way of one side, unless it is there already; its index. */
static int way_add(const struct bench_session *session, struct study_way *ways, int *count,
                   const char *first, const char *then, int64_t bytes) {
    const struct bench_operation *one = bench_operation_find(first);
    const struct bench_operation *two = then ? bench_operation_find(then) : NULL;
    for (int i = 0; i < *count; i++)
        if (ways[i].row.operation == one && ways[i].then.operation == two)
            return i;
    ways[*count] = (struct study_way){.row = study_row(session, one, bytes)};
    if (two)
        ways[*count].then = study_row(session, two, bytes);
    return (*count)++;
}

static double ratio(const struct study_way *left, const struct study_way *right) {
    return right->us > 0 ? left->us / right->us : 0;
}

static rota_status guideline_check(struct bench_session *session, int64_t bytes,
                                   const struct study_way *left, const struct study_way *right) {
    double limit = 1 + (double)session->options->tolerance / 100;
    rota_status status = ROTA_OK;
    int broken = ratio(left, right) > limit; /* how often, of at most three times */
    for (int again = 0; broken > 0 && again < 2 && status == ROTA_OK; again++) {
        struct study_way both[] = {*left, *right};
        status = study_contest(session, both, 2, CONTEST_MS);
        broken += ratio(&both[0], &both[1]) > limit;
    }
    session->wrong += broken >= 2;
    session->rows++;
    if (session->rank == 0 && session->options->table)
        printf("%10lld  %-15s <= %-15s %s %-12s %10.2f %10.2f %7.2f%s\n", (long long)bytes,
               left->row.operation->name, right->row.operation->name,
               right->then.operation ? "+" : " ",
               right->then.operation ? right->then.operation->name : "", left->us, right->us,
               ratio(left, right), broken >= 2 ? "  BROKEN" : "");
    return status;
}

static rota_status size_check(struct bench_session *session, int64_t bytes) {
    struct study_way ways[MAX_WAYS];
    int lefts[GUIDELINES], rights[GUIDELINES], count = 0;
    for (int i = 0; i < GUIDELINES; i++) {
        const struct guideline *guideline = &guidelines[i];
        lefts[i] = way_add(session, ways, &count, guideline->left, NULL, bytes);
        rights[i] = way_add(session, ways, &count, guideline->right[0], guideline->right[1], bytes);
    }
    rota_status status = study_contest(session, ways, count, CONTEST_MS);
    for (int i = 0; i < GUIDELINES && status == ROTA_OK; i++)
        status = guideline_check(session, bytes, &ways[lefts[i]], &ways[rights[i]]);
    return status;
}

rota_status study_guidelines(struct bench_session *session) {
    const struct bench_options *options = session->options;
    rota_status status = ROTA_OK;
    bool telling = session->rank == 0 && options->table;
    if (telling)
        printf("# guidelines, %d ranks: what one operation does takes no longer than by others\n"
               "# %8s  %-50s %10s %10s %7s\n",
               session->nranks, "bytes", "guideline", "left us", "right us", "ratio");
    for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && status == ROTA_OK;
         bytes = study_next_size(options, bytes))
        status = size_check(session, bytes);
    if (status)
        bench_session_report(session, "guidelines", status);
    if (telling && status == ROTA_OK)
        printf("# guidelines: %llu of %llu broken by more than %lld%%\n",
               (unsigned long long)session->wrong, (unsigned long long)session->rows,
               (long long)options->tolerance);
    return status;
}
