/* Studies: runs of `rota bench` that ask another question than how long each call takes. */
#ifndef BENCH_STUDY_H
#define BENCH_STUDY_H

#include "bench/session.h"

#define STUDY_MAX_WAYS 40
/* Where a study draws the line unless --tolerance says otherwise: 30 % slower. */
#define STUDY_TOLERANCE_PERCENT 30

/* One of several calls that are compared, and what it took: the median of its samples, in
 * microseconds, of the slowest rank. */
struct study_way {
    struct bench_case row, then; /* then.operation NULL: one call; else both, one after the other */
    double us;
};

/* contest.c: measures the ways in turns, so that what disturbs the machine falls on all alike, for
 * about budget_ms. Collective; all ranks get the same times. */
rota_status study_contest(struct bench_session *session, struct study_way *ways, int count,
                          double budget_ms);
/* The largest of the ranks' values. */
rota_status study_largest(struct bench_session *session, double *value);
/* A row of the session's first type and operator. */
struct bench_case study_row(const struct bench_session *session,
                            const struct bench_operation *operation, int64_t bytes);
double study_now_us(void);
/* The next size of the row's sizes; beyond max_bytes at the end. */
int64_t study_next_size(const struct bench_options *options, int64_t bytes);

/* Each prints what it finds, and counts in session->wrong what is beyond the tolerance. */
rota_status study_selection(struct bench_session *session);  /* selection.c */
rota_status study_guidelines(struct bench_session *session); /* guidelines.c */
rota_status study_overlap(struct bench_session *session);    /* overlap.c */
rota_status study_calibrate(struct bench_session *session);  /* calibrate.c */

#endif
