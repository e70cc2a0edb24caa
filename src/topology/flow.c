/* Maximum flow by Dinic's method (1970): shortest augmenting paths, level by level. The search for
 * paths keeps its own stack (the path itself), so depth costs no stack. */
#include "topology/flow.h"
#include "topology/grow.h"

#include <stdlib.h>
#include <string.h>

bool flow_init(struct flow *flow, int n) {
    *flow = (struct flow){.n = n};
    size_t bytes = ((size_t)n + 1) * sizeof(int);
    flow->first = malloc(bytes);
    flow->level = malloc(bytes);
    flow->at = malloc(bytes);
    flow->queue = malloc(bytes);
    if (flow->first == NULL || flow->level == NULL || flow->at == NULL || flow->queue == NULL) {
        flow_free(flow);
        return false;
    }
    memset(flow->first, 0xff, bytes);
    return true;
}

void flow_free(struct flow *flow) {
    free(flow->first);
    free(flow->level);
    free(flow->at);
    free(flow->queue);
    free(flow->arcs);
    *flow = (struct flow){.n = 0};
}

int flow_add(struct flow *flow, int from, int to, int64_t capacity) {
    if (!grow((void **)&flow->arcs, flow->arc_count + 1, &flow->arc_room, sizeof(*flow->arcs))) {
        flow->no_memory = true;
        return -1;
    }
    int arc = flow->arc_count;
    flow->arcs[arc] = (struct flow_arc){to, flow->first[from], capacity, capacity};
    flow->arcs[arc + 1] = (struct flow_arc){from, flow->first[to], 0, 0};
    flow->first[from] = arc;
    flow->first[to] = arc + 1;
    flow->arc_count += 2;
    return arc;
}

void flow_reset(struct flow *flow) {
    for (int i = 0; i < flow->arc_count; i++)
        flow->arcs[i].left = flow->arcs[i].capacity;
}

/* Distances from the source over arcs with room; whether the target is reached. */
static bool find_levels(struct flow *flow, int from, int to) {
    int head = 0, tail = 0;
    memset(flow->level, 0xff, (size_t)flow->n * sizeof(int));
    flow->level[from] = 0;
    flow->queue[tail++] = from;
    while (head < tail) {
        int vertex = flow->queue[head++];
        for (int arc = flow->first[vertex]; arc >= 0; arc = flow->arcs[arc].next)
            if (flow->arcs[arc].left > 0 && flow->level[flow->arcs[arc].to] < 0) {
                flow->level[flow->arcs[arc].to] = flow->level[vertex] + 1;
                flow->queue[tail++] = flow->arcs[arc].to;
            }
    }
    return flow->level[to] >= 0;
}

/* One path along ascending levels; what it carried, 0 when there is none left. `queue` holds its
 * arcs. */
static int64_t push_path(struct flow *flow, int from, int to) {
    int length = 0, vertex = from;
    while (vertex != to) {
        int arc = flow->at[vertex];
        while (arc >= 0 && !(flow->arcs[arc].left > 0 &&
                             flow->level[flow->arcs[arc].to] == flow->level[vertex] + 1))
            arc = flow->arcs[arc].next;
        flow->at[vertex] = arc;
        if (arc >= 0) {
            flow->queue[length++] = arc;
            vertex = flow->arcs[arc].to;
        } else if (length == 0) {
            return 0;
        } else { /* a dead end: never again in this phase */
            int back = flow->queue[--length];
            vertex = flow->arcs[back ^ 1].to;
            flow->at[vertex] = flow->arcs[back].next;
        }
    }
    int64_t amount = FLOW_WITHOUT_LIMIT;
    for (int i = 0; i < length; i++)
        if (flow->arcs[flow->queue[i]].left < amount)
            amount = flow->arcs[flow->queue[i]].left;
    for (int i = 0; i < length; i++) {
        flow->arcs[flow->queue[i]].left -= amount;
        flow->arcs[flow->queue[i] ^ 1].left += amount;
    }
    return amount;
}

int64_t flow_max(struct flow *flow, int from, int to) {
    int64_t total = 0, amount;
    while (find_levels(flow, from, to)) {
        memcpy(flow->at, flow->first, (size_t)flow->n * sizeof(int));
        while ((amount = push_path(flow, from, to)) > 0)
            total += amount;
    }
    return total;
}
