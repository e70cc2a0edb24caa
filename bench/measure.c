/* Timing.
 *
 * Design: every timed call works on inputs that were rewritten since the last one, as a
 * computation leaves them: peers that read a buffer in place would else find it in their caches
 * from the call before. A call of more than BATCH_BYTES is timed by itself behind a barrier, the
 * rewriting before the barrier. Smaller ones take less than the barrier's skew, so they are timed
 * in batches, rewriting included, and what rewriting costs by itself is taken off. */
#include "bench/samples.h"
#include "bench/session.h"

#include <stdlib.h>

/* 16 cache lines: rewriting is still cheap next to the call. */
#define BATCH_BYTES ((size_t)1024)
/* Samples that batches are made for, enough for a percentile. */
#define BATCH_SAMPLES 10

rota_status bench_sample(struct bench_session *session, const struct bench_case *row, int64_t batch,
                         double *us) {
    void *send = bench_send_pointer(session, row), *recv = bench_recv_pointer(session, row);
    double rewriting = 0;
    bool inside = row->size <= BATCH_BYTES;
    if (inside) {
        double begin = 1e-3 * bench_now_ns();
        for (int64_t i = 0; i < batch; i++)
            bench_inputs_fill(session, row);
        rewriting = 1e-3 * bench_now_ns() - begin;
    } else {
        bench_inputs_fill(session, row);
    }
    rota_status status = rota_barrier(session->comm, NULL);
    double begin = 1e-3 * bench_now_ns();
    for (int64_t i = 0; i < batch && status == ROTA_OK; i++) {
        if (inside)
            bench_inputs_fill(session, row);
        status = bench_case_call(row, send, recv, session->comm);
    }
    double spent = 1e-3 * bench_now_ns() - begin - rewriting;
    *us = spent > 0 ? spent / (double)batch : 0;
    return status;
}

rota_status bench_measure(struct bench_session *session, struct bench_case *row,
                          struct bench_times *times) {
    int64_t iterations = session->options->iterations, batch = 1;
    rota_status status = ROTA_OK;
    double ignored, sum = 0;
    if (row->size <= BATCH_BYTES && iterations > BATCH_SAMPLES)
        batch = iterations / BATCH_SAMPLES;
    size_t samples = (size_t)(iterations / batch);
    row->salt = 0;
    bench_buffers_fill(session, row);
    for (int64_t i = 0; i < session->options->warmup && status == ROTA_OK; i++)
        status = bench_sample(session, row, 1, &ignored);
    for (size_t i = 0; i < samples && status == ROTA_OK; i++) {
        status = bench_sample(session, row, batch, &session->samples[i]);
        sum += session->samples[i];
    }
    if (status)
        return status;
    bench_sort(session->samples, (int)samples);
    times->mean = sum / (double)samples;
    times->minimum = session->samples[0];
    times->median = session->samples[samples / 2];
    times->p95 = session->samples[(samples - 1) * 95 / 100];
    times->samples = samples;
    times->batch = (uint64_t)batch;
    return ROTA_OK;
}
