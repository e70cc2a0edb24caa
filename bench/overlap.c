/* `rota bench --overlap`: how much of an operation goes on beside the caller's computation, which
 * is once a sleep, that leaves the cores alone, and once work on the core of the rank. */
#include "bench/samples.h"
#include "bench/study.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROUNDS 21
#define ROW_BUDGET_US 1e6
#define MIN_ROUNDS 5
/* The computation takes this much longer than the communication, so that all of it could hide. */
#define LONGER 1.2
#define WORK_ELEMENTS 2048

enum { ALONE, SLEEP, SLEEP_TOTAL, SLEEP_CPU, WORK, WORK_TOTAL, TIMES };

struct overlap {
    struct bench_case row;
    rota_request *request;
    double times[TIMES]; /* microseconds: medians, then their mean over the ranks */
    int64_t units;       /* of work that take as long as the communication */
};

static double cpu_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static void sleep_us(double us) {
    struct timespec rest = {.tv_sec = (time_t)(us / 1e6)};
    rest.tv_nsec = (long)((us - (double)rest.tv_sec * 1e6) * 1e3);
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) != 0)
        ;
}

/* Arithmetic in the first-level cache. */
static void work(int64_t units) {
    static _Thread_local float numbers[WORK_ELEMENTS];
    for (int64_t unit = 0; unit < units; unit++) {
        for (int i = 0; i < WORK_ELEMENTS; i++)
            numbers[i] = numbers[i] * 0.5f + (float)i;
        __asm__ volatile("" ::: "memory");
    }
}

static rota_status begin(struct bench_session *session, struct overlap *overlap) {
    bench_inputs_fill(session, &overlap->row);
    rota_status status = rota_barrier(session->comm, NULL);
    return status;
}

static rota_status start(struct bench_session *session, struct overlap *overlap) {
    return bench_case_call(&overlap->row, bench_send_pointer(session, &overlap->row),
                           bench_recv_pointer(session, &overlap->row), session->comm);
}

static rota_status finish(struct overlap *overlap) {
    rota_status status = rota_request_wait(overlap->request, 0);
    rota_request_free(overlap->request);
    overlap->request = NULL;
    return status;
}

/* One round: the communication alone, beside a sleep, the work alone, and the work beside it. */
static rota_status round_run(struct bench_session *session, struct overlap *overlap, double pause,
                             double sample[TIMES]) {
    for (int what = 0; what < 3; what++) {
        rota_status status = begin(session, overlap);
        double began = study_now_us(), cpu = cpu_us();
        if (what == 2) {
            work(overlap->units);
            sample[WORK] = study_now_us() - began;
            status = status ? status : begin(session, overlap);
            began = study_now_us();
        }
        if (status == ROTA_OK)
            status = start(session, overlap);
        double slept = study_now_us();
        if (what == 1 && pause > 0)
            sleep_us(pause);
        else if (what == 2)
            work(overlap->units);
        slept = study_now_us() - slept;
        if (status == ROTA_OK)
            status = finish(overlap);
        if (status)
            return status;
        sample[what == 0 ? ALONE : what == 1 ? SLEEP_TOTAL : WORK_TOTAL] = study_now_us() - began;
        if (what == 1) {
            sample[SLEEP] = slept;
            sample[SLEEP_CPU] = cpu_us() - cpu;
        }
    }
    return ROTA_OK;
}

static rota_status rounds_run(struct bench_session *session, struct overlap *overlap, double pause,
                              int rounds) {
    double samples[TIMES][ROUNDS], sample[TIMES] = {0}, *all;
    rota_status status = ROTA_OK;
    for (int round = 0; round < rounds && status == ROTA_OK; round++) {
        status = round_run(session, overlap, pause, sample);
        for (int i = 0; i < TIMES; i++)
            samples[i][round] = sample[i];
    }
    if (status)
        return status;
    all = calloc((size_t)session->nranks * TIMES, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    for (int i = 0; i < TIMES; i++) {
        bench_sort(samples[i], rounds);
        overlap->times[i] = samples[i][rounds / 2];
    }
    status = bench_session_gather(session, overlap->times, all, sizeof(overlap->times));
    memset(overlap->times, 0, sizeof(overlap->times));
    for (int r = 0; r < session->nranks; r++)
        for (int i = 0; i < TIMES; i++)
            overlap->times[i] += all[r * TIMES + i] / session->nranks;
    free(all);
    return status;
}

static rota_status row_run(struct bench_session *session, struct overlap *overlap) {
    bench_buffers_fill(session, &overlap->row);
    overlap->row.request = &overlap->request;
    overlap->units = 1;
    rota_status status = rounds_run(session, overlap, 0, MIN_ROUNDS);
    if (status)
        return status;
    double pause = overlap->times[ALONE] * LONGER, unit, began = study_now_us();
    work(1000);
    unit = (study_now_us() - began) / 1000;
    overlap->units = 1 + (int64_t)(pause / unit);
    double wanted = ROW_BUDGET_US / (5 * pause + 1);
    int rounds = wanted < MIN_ROUNDS ? MIN_ROUNDS : wanted > ROUNDS ? ROUNDS : (int)wanted;
    return rounds_run(session, overlap, pause, rounds);
}

static void row_print(struct bench_session *session, const struct overlap *overlap) {
    const double *t = overlap->times;
    double seen = t[SLEEP_TOTAL] - t[SLEEP];
    double hidden = t[ALONE] > 0 ? 100 * (1 - seen / t[ALONE]) : 0;
    if (session->rank != 0 || !session->options->table)
        return;
    printf("%-16s %10zu %10.1f  %10.1f %6.1f%%  %10.1f %10.1f %10.1f %7.2f\n",
           overlap->row.operation->name, overlap->row.size, t[ALONE], seen > 0 ? seen : 0,
           hidden < 0     ? 0
           : hidden > 100 ? 100
                          : hidden,
           t[WORK], t[SLEEP_CPU], t[WORK_TOTAL], t[WORK_TOTAL] / (t[WORK] + t[SLEEP_CPU]));
    fflush(stdout);
}

rota_status study_overlap(struct bench_session *session) {
    const struct bench_options *options = session->options;
    rota_status status = ROTA_OK;
    if (session->rank == 0 && options->table)
        printf("# overlap, %d ranks: operations with a request, beside a sleep and beside work on "
               "the same core\n"
               "# %-14s %10s %10s  %10s %7s  %10s %10s %10s %7s\n",
               session->nranks, "operation", "bytes", "alone us", "left us", "hidden", "work us",
               "cpu us", "both us", "ratio");
    for (int i = 0; i < options->operation_count && status == ROTA_OK; i++)
        for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && status == ROTA_OK;
             bytes = study_next_size(options, bytes)) {
            struct overlap overlap = {.row = study_row(session, options->operations[i], bytes)};
            status = row_run(session, &overlap);
            if (status == ROTA_OK)
                row_print(session, &overlap);
        }
    if (status)
        bench_session_report(session, "overlap", status);
    return status;
}
