/* Measuring several calls against each other: in rounds in which each has its turn. */
#include "bench/samples.h"
#include "bench/study.h"

#include <stdlib.h>
#include <string.h>

#define MIN_ROUNDS 5
#define MAX_ROUNDS 61
/* Calls shorter than this are timed in batches, as the barrier before each sample has a skew. */
#define SAMPLE_US 100.0
#define MAX_BATCH 64

double study_now_us(void) {
    return 1e-3 * bench_now_ns();
}

struct bench_case study_row(const struct bench_session *session,
                            const struct bench_operation *operation, int64_t bytes) {
    struct bench_case row = {.operation = operation,
                             .dtype = session->options->dtypes[0],
                             .op = session->options->ops[0],
                             .root = operation->rooted ? 0 : -1,
                             .nranks = session->nranks,
                             .rank = session->rank,
                             .tables = session->tables};
    bench_case_size(&row, bytes);
    return row;
}

int64_t study_next_size(const struct bench_options *options, int64_t bytes) {
    return options->factor ? (bytes ? bytes * options->factor : 1) : bytes + options->step_bytes;
}

rota_status study_largest(struct bench_session *session, double *value) {
    double *all = calloc((size_t)session->nranks, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    rota_status status = bench_session_gather(session, value, all, sizeof(*value));
    for (int r = 0; r < session->nranks && status == ROTA_OK; r++)
        *value = all[r] > *value ? all[r] : *value;
    free(all);
    return status;
}

/* Each way's time on the rank that took longest: a root is done before the others. */
static rota_status slowest(struct bench_session *session, struct study_way *ways, int count) {
    double mine[STUDY_MAX_WAYS];
    double *all = calloc((size_t)session->nranks * STUDY_MAX_WAYS, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    for (int i = 0; i < STUDY_MAX_WAYS; i++)
        mine[i] = i < count ? ways[i].us : 0;
    rota_status status = bench_session_gather(session, mine, all, sizeof(mine));
    for (int i = 0; i < count && status == ROTA_OK; i++) {
        ways[i].us = 0;
        for (int r = 0; r < session->nranks; r++)
            if (all[r * STUDY_MAX_WAYS + i] > ways[i].us)
                ways[i].us = all[r * STUDY_MAX_WAYS + i];
    }
    free(all);
    return status;
}

static rota_status way_sample(struct bench_session *session, const struct study_way *way,
                              int64_t batch, double *us) {
    const struct bench_case *rows[] = {&way->row, &way->then};
    if (!way->then.operation)
        return bench_sample(session, &way->row, batch, us);
    bench_inputs_fill(session, &way->row);
    rota_status status = rota_barrier(session->comm, NULL);
    double began = study_now_us();
    for (int64_t i = 0; i < 2 * batch && status == ROTA_OK; i++)
        status = bench_case_call(rows[i % 2], bench_send_pointer(session, rows[i % 2]),
                                 bench_recv_pointer(session, rows[i % 2]), session->comm);
    *us = (study_now_us() - began) / (double)batch;
    return status;
}

/* The first call of each way finds its peers and makes its plan; the second says how long it is. */
static rota_status estimate(struct bench_session *session, struct study_way *ways, int count,
                            int64_t batch[STUDY_MAX_WAYS], double *round_us) {
    rota_status status = ROTA_OK;
    *round_us = 0;
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < count && status == ROTA_OK; i++) {
            if (turn == 0)
                bench_buffers_fill(session, &ways[i].row);
            status = way_sample(session, &ways[i], 1, &ways[i].us);
        }
    if (status == ROTA_OK)
        status = slowest(session, ways, count);
    for (int i = 0; i < count && status == ROTA_OK; i++) {
        double calls = ways[i].us > 0 ? SAMPLE_US / ways[i].us : MAX_BATCH;
        batch[i] = calls > MAX_BATCH ? MAX_BATCH : calls < 1 ? 1 : (int64_t)calls;
        *round_us += (double)batch[i] * ways[i].us;
    }
    return status;
}

rota_status study_contest(struct bench_session *session, struct study_way *ways, int count,
                          double budget_ms) {
    int64_t batch[STUDY_MAX_WAYS];
    double round_us;
    rota_status status = estimate(session, ways, count, batch, &round_us);
    if (status)
        return status;
    double wanted = round_us > 0 ? budget_ms * 1000 / round_us : MAX_ROUNDS;
    int rounds = wanted > MAX_ROUNDS ? MAX_ROUNDS : wanted < MIN_ROUNDS ? MIN_ROUNDS : (int)wanted;
    double *samples = calloc((size_t)rounds * (size_t)count, sizeof(*samples));
    if (!samples)
        return ROTA_ERR_MEMORY;
    for (int round = 0; round < rounds; round++)
        for (int turn = 0; turn < count && status == ROTA_OK; turn++) {
            int i = (turn + round) % count;
            status = way_sample(session, &ways[i], batch[i],
                                &samples[(size_t)i * (size_t)rounds + (size_t)round]);
        }
    for (int i = 0; i < count; i++) {
        double *mine = &samples[(size_t)i * (size_t)rounds];
        bench_sort(mine, rounds);
        ways[i].us = mine[rounds / 2];
    }
    free(samples);
    return status ? status : slowest(session, ways, count);
}
