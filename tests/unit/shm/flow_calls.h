/* Random calls of all native kinds in one group, checked element by element: who gives what to
 * whom, kinds and roots that follow each other in any order, buffers in place, in heaps and
 * elsewhere. */
#ifndef TESTS_UNIT_SHM_FLOW_CALLS_H
#define TESTS_UNIT_SHM_FLOW_CALLS_H

#include "cluster.h"

struct flow_calls {
    int n, calls;
    size_t limit;   /* bytes of a buffer */
    bool impatient; /* every wait is cut short and resumed */
    bool mapped;    /* buffers lie in the ranks' heaps half of the time */
    bool crowded;
    rota_kind only; /* this kind, with root 0; ROTA_KIND_COUNT: all kinds and roots */
};

void flow_calls_run(struct cluster *cluster, int rank, void *arg);

#endif
