/* Samples of times: the clock that they are taken by, their order and their middle. */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

/* CLOCK_MONOTONIC. */
double bench_now_ns(void);
/* Ascending, in place. */
void bench_sort(double *values, int count);
/* Sorts them; of an even number the mean of the middle two. */
double bench_median(double *values, int count);

#endif
