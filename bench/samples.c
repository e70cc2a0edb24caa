/* Samples of times. */
#include "bench/samples.h"

#include <stdlib.h>
#include <time.h>

double bench_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int by_value(const void *a, const void *b) {
    const double *left = a, *right = b;
    return *left < *right ? -1 : *left > *right;
}

void bench_sort(double *values, int count) {
    qsort(values, (size_t)count, sizeof(*values), by_value);
}

double bench_median(double *values, int count) {
    bench_sort(values, count);
    return count % 2 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}
