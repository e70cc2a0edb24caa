/* The rows of the table: every combination that the options name, each in both halves. */
#include "bench/plot.h"
#include "bench/session.h"

#include <stdlib.h>
#include <string.h>

/* What a rank tells the others about its half of a row. */
struct half_record {
    double mean, minimum, median, p95;
    uint64_t wrong;
};

static double combine(enum bench_average how, double so_far, double next, int rank) {
    switch (how) {
    case BENCH_RANK0:
        return rank == 0 ? next : so_far;
    case BENCH_MIN:
        return rank == 0 || next < so_far ? next : so_far;
    case BENCH_MAX:
        return rank == 0 || next > so_far ? next : so_far;
    default:
        return rank == 0 ? next : so_far + next;
    }
}

/* Every rank learns the times and faults of all. */
static rota_status half_gather(struct bench_session *session, struct bench_half *half) {
    enum bench_average how = session->options->average;
    struct half_record mine = {half->times.mean, half->times.minimum, half->times.median,
                               half->times.p95, half->wrong};
    struct half_record *all = calloc((size_t)session->nranks, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    rota_status status = bench_session_gather(session, &mine, all, sizeof(mine));
    half->wrong = 0;
    for (int r = 0; status == ROTA_OK && r < session->nranks; r++) {
        half->times.mean = combine(how, half->times.mean, all[r].mean, r);
        half->times.minimum = combine(how, half->times.minimum, all[r].minimum, r);
        half->times.median = combine(how, half->times.median, all[r].median, r);
        half->times.p95 = combine(how, half->times.p95, all[r].p95, r);
        half->wrong += all[r].wrong;
    }
    if (how == BENCH_MEAN) {
        half->times.mean /= session->nranks;
        half->times.minimum /= session->nranks;
        half->times.median /= session->nranks;
        half->times.p95 /= session->nranks;
    }
    free(all);
    return status;
}

/* *after: the counters as the operation itself left them. */
static rota_status half_run(struct bench_session *session, struct bench_case *row,
                            struct bench_half *half, rota_counters *after) {
    rota_status status = ROTA_OK;
    bench_case_tables_fill(row);
    if (half->timed)
        status = bench_measure(session, row, &half->times);
    for (int64_t i = 0; i < session->options->checks && status == ROTA_OK; i++)
        status = bench_check(session, row, &half->wrong);
    half->checked = session->options->checks > 0;
    if (status == ROTA_OK)
        status = rota_comm_counters(session->comm, after);
    if (status == ROTA_OK && session->options->hash)
        status = bench_hash(session, row, &half->hash, &half->wrong);
    if (status) {
        char what[192];
        bench_case_describe(row, what, sizeof(what));
        bench_session_report(session, what, status);
        return status;
    }
    status = half_gather(session, half);
    if (status)
        bench_session_report(session, "collecting results", status);
    return status;
}

static rota_status row_run(struct bench_session *session, struct bench_case *row) {
    struct bench_half halves[2] = {{.timed = true}, {.timed = row->operation->in_place}};
    /* nccl-tests shows no in-place half of an all-to-all; it is checked all the same. */
    bool in_place =
        row->operation->in_place || (row->operation->shape == BENCH_ALL_TO_ALL &&
                                     !row->operation->vector && session->options->checks > 0);
    rota_counters before = ROTA_COUNTERS_INIT, after = ROTA_COUNTERS_INIT;
    rota_counters unused = ROTA_COUNTERS_INIT;
    if (session->rank == 0)
        cli_progress_show(&session->progress, "%s %s %s, %zu bytes: %llu rows done",
                          row->operation->name, bench_case_dtype_name(row), bench_case_op_name(row),
                          row->size, (unsigned long long)session->rows);
    rota_status status = rota_comm_counters(session->comm, &before);
    row->in_place = false;
    if (status == ROTA_OK)
        status = half_run(session, row, &halves[0], &after);
    row->in_place = true;
    if (status == ROTA_OK && in_place)
        status = half_run(session, row, &halves[1], &unused);
    if (status)
        return status;
    if (session->rank == 0) {
        bench_table_row(session, row, halves);
        bench_json_row(session, row, halves, &before, &after);
        bench_plot_add(session, row, &halves[0]);
    } else {
        session->wrong += halves[0].wrong + halves[1].wrong;
    }
    return ROTA_OK;
}

static rota_status sizes_run(struct bench_session *session, struct bench_case *row) {
    const struct bench_options *options = session->options;
    rota_status status = ROTA_OK;
    for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && status == ROTA_OK;) {
        bench_case_size(row, bytes);
        status = row_run(session, row);
        if (row->operation->shape == BENCH_BARRIER)
            break;
        /* From 0 a factor leads nowhere. */
        bytes =
            options->factor ? (bytes ? bytes * options->factor : 1) : bytes + options->step_bytes;
    }
    return status;
}

static rota_status roots_run(struct bench_session *session, struct bench_case *row) {
    int root = session->options->root;
    if (!row->operation->rooted) {
        row->root = -1;
        return sizes_run(session, row);
    }
    int first = root < 0 ? 0 : root, last = root < 0 ? session->nranks - 1 : root;
    rota_status status = ROTA_OK;
    for (row->root = first; row->root <= last && status == ROTA_OK; row->root++)
        status = sizes_run(session, row);
    return status;
}

static rota_status types_run(struct bench_session *session, struct bench_case *row) {
    const struct bench_options *options = session->options;
    int dtypes = row->operation->shape == BENCH_BARRIER ? 1 : options->dtype_count;
    int ops = row->operation->reduces ? options->op_count : 1;
    rota_status status = ROTA_OK;
    bench_table_titles(session, row->operation, row->algorithm);
    for (int d = 0; d < dtypes && status == ROTA_OK; d++)
        for (int o = 0; o < ops && status == ROTA_OK; o++) {
            row->dtype = options->dtypes[d];
            row->op = options->ops[o];
            if (bench_operation_has(row->operation, row->op, row->dtype))
                status = roots_run(session, row);
            else if (dtypes == 1 && ops == 1 && session->rank == 0 && options->table)
                printf("# %s has no %s of %s\n", row->operation->name, bench_case_op_name(row),
                       bench_case_dtype_name(row));
        }
    return status;
}

/* Asks the library by an empty call, which all ranks make: v-forms are refused to algorithms that
 * forward blocks where ranks know their own counts only, and reductions to those that do not keep
 * what the mode promises. */
static bool is_taken(const struct bench_session *session, const struct bench_operation *operation,
                     const char *algorithm, char *why, size_t size) {
    struct bench_case row = {.operation = operation,
                             .dtype = ROTA_FLOAT32,
                             .op = ROTA_SUM,
                             .root = operation->rooted ? 0 : -1,
                             .algorithm = algorithm,
                             .nranks = session->nranks,
                             .rank = session->rank,
                             .in_place = true, /* packed: without gaps nothing is touched */
                             .tables = session->tables};
    bench_case_size(&row, 0);
    bench_case_tables_fill(&row);
    if (bench_case_call(&row, NULL, NULL, session->comm) != ROTA_ERR_UNSUPPORTED)
        return true;
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    snprintf(why, size, "%s", error.message);
    return false;
}

bool bench_algorithm_fits(const struct bench_session *session,
                          const struct bench_operation *operation, const char *algorithm, char *why,
                          size_t size) {
    why[0] = '\0';
    return operation->shape != BENCH_SEND_RECV &&
           rota_algorithm_does(algorithm, operation->kind, session->nranks) &&
           ((!operation->vector && !operation->reduces) ||
            is_taken(session, operation, algorithm, why, size));
}

/* Says what was left out, and why. */
static void refusal_print(const struct bench_session *session, const struct bench_case *row,
                          const char *algorithm, const char *why) {
    if (session->rank != 0 || !session->options->table)
        return;
    if (why[0] != '\0')
        printf("#\n# %s by %s is refused: %s\n", row->operation->name, algorithm, why);
    else if (!session->options->all_algorithms)
        printf("#\n# %s has no %s on %d ranks\n", row->operation->name, algorithm, session->nranks);
}

static rota_status algorithms_run(struct bench_session *session, struct bench_case *row) {
    const struct bench_options *options = session->options;
    rota_status status = ROTA_OK;
    char why[BENCH_WHY_BYTES];
    if (!options->all_algorithms && !options->algorithm)
        return types_run(session, row);
    const char *name = options->algorithm;
    for (int i = 0; status == ROTA_OK; i++) {
        if (options->all_algorithms)
            name = rota_algorithm_name(i);
        if (!name)
            break;
        row->algorithm = name;
        if (bench_algorithm_fits(session, row->operation, name, why, sizeof(why)))
            status = types_run(session, row);
        else
            refusal_print(session, row, name, why);
        if (!options->all_algorithms)
            break;
    }
    return status;
}

rota_status bench_rows_run(struct bench_session *session) {
    rota_status status = ROTA_OK;
    for (int i = 0; i < session->options->operation_count && status == ROTA_OK; i++) {
        struct bench_case row = {.operation = session->options->operations[i],
                                 .nranks = session->nranks,
                                 .rank = session->rank,
                                 .tables = session->tables};
        status = algorithms_run(session, &row);
    }
    cli_progress_clear(&session->progress);
    return status;
}
