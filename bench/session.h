/* One rank's side of a benchmark: its communicator, buffers, patterns and what it has found. Each
 * rank has its own, also when ranks are threads. */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#include "bench/layout.h"
#include "bench/options.h"
#include "cli/progress.h"
#include <stdio.h>

/* Bytes before and after each buffer that no call may touch. */
#define BENCH_RED_ZONE ((size_t)64)
/* Room for why an algorithm is refused. */
#define BENCH_WHY_BYTES 256

struct bench_buffer {
    unsigned char *block; /* what was allocated */
    size_t capacity;      /* bytes, without the red zones */
};

/* What one half of a row measured, in microseconds, and found. */
struct bench_times {
    double mean, minimum, median, p95;
    uint64_t samples, batch;
};

struct bench_half {
    bool timed, checked;
    struct bench_times times;
    uint64_t wrong;
    uint64_t hash; /* of all ranks' results, with --hash */
};

struct plot;

struct bench_session {
    const struct bench_options *options;
    rota_comm *comm;
    int rank, nranks;
    bool one_machine;               /* clocks of all ranks are one */
    struct bench_buffer buffers[2]; /* by enum layout_buffer */
    struct layout_segment *segments;
    size_t *tables; /* of the v-forms */
    struct pattern_tile *input, *result, *other, *poison;
    double *samples, *all;
    unsigned shown; /* wrong elements that were told one by one */
    uint32_t calls; /* checked so far; the salt of the next one */
    /* Rank 0 keeps the account. */
    FILE *json;
    struct plot *plot;
    struct cli_progress progress;
    const char *ran; /* what ran the rows that were printed last */
    uint64_t wrong, rows, halves;
    double busbw_sum;
};

/* session.c */
rota_status bench_session_open(struct bench_session *session, const struct bench_options *options,
                               rota_comm *comm);
void bench_session_close(struct bench_session *session);
/* One line on stderr: which rank, which call, and the library's message. */
void bench_session_report(const struct bench_session *session, const char *what,
                          rota_status status);
void bench_case_describe(const struct bench_case *row, char *text, size_t size);
/* All gather of `bytes` bytes per rank for the benchmark's own use. */
rota_status bench_session_gather(struct bench_session *session, const void *mine, void *all,
                                 size_t bytes);

/* rows.c: runs everything that the options ask for. */
rota_status bench_rows_run(struct bench_session *session);
/* Whether the algorithm can do the operation on these ranks, in the mode of the communicator; else
 * `why` says what the library refused, or is empty where the algorithm has no such operation.
 * Collective. */
bool bench_algorithm_fits(const struct bench_session *session,
                          const struct bench_operation *operation, const char *algorithm, char *why,
                          size_t size);

/* check.c: fills the buffers, calls once into poison, checks every element and the red zones;
 * *wrong grows by what this rank found. */
void bench_buffers_fill(struct bench_session *session, const struct bench_case *row);
void bench_inputs_fill(struct bench_session *session, const struct bench_case *row);
void *bench_send_pointer(struct bench_session *session, const struct bench_case *row);
void *bench_recv_pointer(struct bench_session *session, const struct bench_case *row);
rota_status bench_check(struct bench_session *session, struct bench_case *row, uint64_t *wrong);

/* hash.c */
rota_status bench_hash(struct bench_session *session, struct bench_case *row, uint64_t *hash,
                       uint64_t *wrong);

/* measure.c: one sample, `batch` calls on rewritten inputs; *us is the time of one of them on this
 * rank. */
rota_status bench_sample(struct bench_session *session, const struct bench_case *row, int64_t batch,
                         double *us);
rota_status bench_measure(struct bench_session *session, struct bench_case *row,
                          struct bench_times *times);

/* table.c */
void bench_table_head(const struct bench_session *session);
rota_status bench_table_devices(struct bench_session *session);
void bench_table_titles(struct bench_session *session, const struct bench_operation *operation,
                        const char *algorithm);
void bench_table_row(struct bench_session *session, const struct bench_case *row,
                     const struct bench_half halves[2]);
void bench_table_foot(const struct bench_session *session);

/* json.c */
void bench_json_row(struct bench_session *session, const struct bench_case *row,
                    const struct bench_half halves[2], const rota_counters *before,
                    const rota_counters *after);

#endif
