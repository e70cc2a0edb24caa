/* `rota bench --selection`: the regret of the library's choice. Each cell is measured twice: all
 * algorithms in turns, to find the best, then the choice against that one alone, since the least of
 * many noisy times is lower than its own repetition. A cell beyond the tolerance is measured three
 * times, and the middle one counts. */
#include "bench/study.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define CONTEST_MS 60
#define FINAL_MS 60

struct cell {
    struct bench_case row;
    char chosen[32], best[32];
    double chosen_us, best_us;
    int others;
};

struct account {
    double log_sum, worst;
    int cells, beyond;
};

static rota_status find_best(struct bench_session *session, struct cell *cell,
                             struct study_way ways[STUDY_MAX_WAYS]) {
    char why[BENCH_WHY_BYTES];
    int count = 1;
    ways[0] = (struct study_way){.row = cell->row};
    double unused;
    bench_buffers_fill(session, &ways[0].row);
    rota_status status = bench_sample(session, &ways[0].row, 1, &unused);
    const char *ran = rota_comm_algorithm(session->comm, cell->row.operation->kind);
    snprintf(cell->chosen, sizeof(cell->chosen), "%s", ran ? ran : "none");
    for (int i = 0; rota_algorithm_name(i) && count < STUDY_MAX_WAYS && status == ROTA_OK; i++) {
        if (strcmp(rota_algorithm_name(i), cell->chosen) == 0 ||
            !bench_algorithm_fits(session, cell->row.operation, rota_algorithm_name(i), why,
                                  sizeof(why)))
            continue;
        ways[count] = ways[0];
        ways[count++].row.algorithm = rota_algorithm_name(i);
    }
    if (status == ROTA_OK)
        status = study_contest(session, ways, count, CONTEST_MS);
    int best = 1;
    for (int i = 2; i < count; i++)
        best = ways[i].us < ways[best].us ? i : best;
    cell->others = count - 1;
    if (count > 1)
        ways[1] = ways[best];
    return status;
}

static rota_status cell_measure(struct bench_session *session, struct cell *cell) {
    struct study_way ways[STUDY_MAX_WAYS];
    rota_status status = find_best(session, cell, ways);
    if (status == ROTA_OK && cell->others > 0)
        status = study_contest(session, ways, 2, FINAL_MS);
    cell->chosen_us = cell->best_us = ways[0].us;
    snprintf(cell->best, sizeof(cell->best), "%s", cell->chosen);
    if (cell->others > 0 && ways[1].us < ways[0].us) {
        cell->best_us = ways[1].us;
        snprintf(cell->best, sizeof(cell->best), "%s", ways[1].row.algorithm);
    }
    return status;
}

static double regret(const struct cell *cell) {
    return cell->best_us > 0 ? cell->chosen_us / cell->best_us - 1 : 0;
}

static int by_regret(const void *left, const void *right) {
    double a = regret(left), b = regret(right);
    return (a > b) - (a < b);
}

static void cell_print(struct bench_session *session, const struct cell *cell, bool beyond) {
    const struct bench_case *row = &cell->row;
    if (session->rank != 0)
        return;
    cli_progress_clear(&session->progress);
    if (session->options->table)
        printf("%-16s %10zu %8s  %-20s %10.2f  %-20s %10.2f %7.1f%%%s\n", row->operation->name,
               row->size, bench_case_dtype_name(row), cell->chosen, cell->chosen_us, cell->best,
               cell->best_us, 100 * regret(cell), beyond ? "  !" : "");
    json_t *object =
        session->json
            ? json_pack("{s:s, s:s, s:i, s:s, s:I, s:s, s:f, s:s, s:f, s:f}", "study", "selection",
                        "op", row->operation->name, "ranks", row->nranks, "dtype",
                        rota_dtype_name(row->dtype), "bytes", (json_int_t)row->size, "chosen",
                        cell->chosen, "chosen_us", cell->chosen_us, "best", cell->best, "best_us",
                        cell->best_us, "regret", regret(cell))
            : NULL;
    if (object) {
        json_dumpf(object, session->json, JSON_COMPACT | JSON_REAL_PRECISION(6));
        fputc('\n', session->json);
    }
    json_decref(object);
    fflush(stdout);
}

static rota_status cell_run(struct bench_session *session, const struct bench_operation *operation,
                            int64_t bytes, struct account *account) {
    double tolerance = (double)session->options->tolerance / 100;
    struct cell cells[3];
    cells[0].row = study_row(session, operation, bytes);
    if (session->rank == 0)
        cli_progress_show(&session->progress, "%s, %lld bytes", operation->name, (long long)bytes);
    rota_status status = cell_measure(session, &cells[0]);
    if (status == ROTA_OK && regret(&cells[0]) > tolerance) {
        for (int i = 1; i < 3 && status == ROTA_OK; i++) {
            cells[i].row = cells[0].row;
            status = cell_measure(session, &cells[i]);
        }
        qsort(cells, 3, sizeof(cells[0]), by_regret);
        cells[0] = cells[1];
    }
    if (status) {
        bench_session_report(session, operation->name, status);
        return status;
    }
    double found = regret(&cells[0]);
    account->log_sum += log1p(found);
    account->worst = found > account->worst ? found : account->worst;
    account->cells++;
    account->beyond += found > tolerance;
    cell_print(session, &cells[0], found > tolerance);
    return ROTA_OK;
}

rota_status study_selection(struct bench_session *session) {
    const struct bench_options *options = session->options;
    struct account account = {0};
    rota_status status = ROTA_OK;
    bool telling = session->rank == 0 && options->table;
    if (telling)
        printf("# regret of selection, %d ranks: the choice against the best other algorithm\n"
               "# %-14s %10s %8s  %-20s %10s  %-20s %10s %8s\n",
               session->nranks, "operation", "bytes", "type", "chosen", "us", "best", "us",
               "regret");
    for (int i = 0; i < options->operation_count && status == ROTA_OK; i++)
        for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && status == ROTA_OK;
             bytes = study_next_size(options, bytes)) {
            status = cell_run(session, options->operations[i], bytes, &account);
            if (options->operations[i]->shape == BENCH_BARRIER)
                break;
        }
    cli_progress_clear(&session->progress);
    if (telling && account.cells > 0)
        printf("# regret: geometric mean %.1f%%, worst %.1f%%, beyond %lld%%: %d of %d cells\n",
               100 * expm1(account.log_sum / account.cells), 100 * account.worst,
               (long long)options->tolerance, account.beyond, account.cells);
    session->wrong += (uint64_t)account.beyond;
    return status;
}
