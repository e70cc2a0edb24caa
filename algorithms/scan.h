/* Scans by recursive doubling: a part of that algorithm. */
#ifndef ALGORITHMS_SCAN_H
#define ALGORITHMS_SCAN_H

#include "algorithms/algorithm.h"

enum { SCAN_SCRATCH = 4 };

/* scan and exclusive_scan on at least two ranks. */
void scan_build(const struct algorithm_request *q, struct sched_builder *b);

#endif
