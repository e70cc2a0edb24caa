/* Maximum flow in small networks with whole capacities. */
#ifndef TOPOLOGY_FLOW_H
#define TOPOLOGY_FLOW_H

#include <stdbool.h>
#include <stdint.h>

struct flow_arc {
    int to, next;
    int64_t capacity, left; /* the arc with index ^ 1 leads back */
};

struct flow {
    int n;
    int *first, *level, *at, *queue; /* per vertex */
    struct flow_arc *arcs;
    int arc_count, arc_room;
    bool no_memory;
};

#define FLOW_WITHOUT_LIMIT INT64_C(0x3fffffffffffffff)

/* Vertices 0 ... n - 1. False without memory. */
bool flow_init(struct flow *flow, int n);
void flow_free(struct flow *flow);
/* Index of the arc, -1 without memory (flow.no_memory). */
int flow_add(struct flow *flow, int from, int to, int64_t capacity);
/* Takes all flow back. */
void flow_reset(struct flow *flow);
/* Adds flow until none fits: the amount added. */
int64_t flow_max(struct flow *flow, int from, int to);
/* After flow_max: whether the vertex is on the source's side of the least cut. */
static inline bool flow_reached(const struct flow *flow, int vertex) {
    return flow->level[vertex] >= 0;
}

#endif
