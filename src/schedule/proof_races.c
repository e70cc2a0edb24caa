/* Third pass, second half: two steps of different lanes that touch one chunk, one of them writing,
 * must be joined by a chain of hazards and waits. Steps are sorted so that every edge goes
 * forward; then only the later of two can depend on the earlier, and one walk back from each step
 * that has such a partner answers for all of its partners. */
#include "schedule/proof.h"

#include <stdlib.h>
#include <string.h>

/* One rank; steps are counted from 0. */
struct races {
    struct proof *p;
    uint32_t rank, first, nsteps;
    const struct proof_edge *edges;
    uint32_t nedges;
    uint32_t *begin, *before; /* edges by `after` */
    uint32_t *position;       /* of a step in the sorted order */
    uint32_t *sorted;
    uint32_t *stack, *ancestor; /* ancestor[x] == step + 1: x completes before step */
    uint32_t *touch_begin;      /* accesses by location; bit 31 marks writing */
    uint32_t *touches;
};

#define WRITES (1u << 31)

static bool allocate(struct races *t, uint32_t locations, uint32_t naccesses) {
    size_t words = 5 * ((size_t)t->nsteps + 2) + t->nedges + locations + 2 + naccesses;
    uint32_t *block = calloc(words, sizeof *block);
    if (!block)
        return proof_out_of_memory(t->p);
    t->begin = block; /* owns the block */
    t->before = t->begin + t->nsteps + 2;
    t->position = t->before + t->nedges;
    t->sorted = t->position + t->nsteps + 2;
    t->stack = t->sorted + t->nsteps + 2;
    t->ancestor = t->stack + t->nsteps + 2;
    t->touch_begin = t->ancestor + t->nsteps + 2;
    t->touches = t->touch_begin + locations + 2;
    return true;
}

static void index_predecessors(struct races *t) {
    uint32_t *fill = t->begin + 1;
    for (uint32_t i = 0; i < t->nedges; i++)
        fill[t->edges[i].after - t->first + 1]++;
    for (uint32_t i = 0; i < t->nsteps; i++)
        fill[i + 1] += fill[i];
    for (uint32_t i = 0; i < t->nedges; i++)
        t->before[fill[t->edges[i].after - t->first]++] = t->edges[i].before - t->first;
}

/* Sorts by walking back from every step, without recursion; false when steps wait in a circle.
 * `ancestor` serves as the mark: 1 while a step is on the stack, 2 when it is placed. */
static bool sort(struct races *t) {
    uint32_t placed = 0;
    uint32_t *next = t->position; /* predecessors that were looked at, until the step is placed */
    for (uint32_t root = 0; root < t->nsteps; root++) {
        uint32_t depth = 0;
        if (!t->ancestor[root]) {
            t->ancestor[root] = 1;
            t->stack[depth++] = root;
        }
        while (depth) {
            uint32_t step = t->stack[depth - 1];
            if (t->begin[step] + next[step] < t->begin[step + 1]) {
                uint32_t other = t->before[t->begin[step] + next[step]++];
                if (t->ancestor[other] == 1)
                    return proof_fault(t->p, SCHED_FAULT_DEADLOCK, (int)t->rank, other, UINT32_MAX,
                                       "waits for itself, by hazards and named waits");
                if (!t->ancestor[other]) {
                    t->ancestor[other] = 1;
                    t->stack[depth++] = other;
                }
                continue;
            }
            t->ancestor[step] = 2;
            t->sorted[placed] = step;
            t->position[step] = placed++;
            depth--;
        }
    }
    memset(t->ancestor, 0, (t->nsteps + 1u) * sizeof *t->ancestor);
    return true;
}

static void index_touches(struct races *t, uint32_t locations) {
    uint32_t *fill = t->touch_begin + 1;
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t i = 0; i < t->nsteps; i++) {
            const struct proof_step *v = &t->p->steps[t->first + i];
            for (uint32_t k = 0; k < v->nsrc + v->ndst; k++) {
                bool writes = k >= v->nsrc;
                uint32_t place = writes ? v->dst + k - v->nsrc : v->src + k;
                uint32_t location = t->p->places[place].location;
                if (pass == 0)
                    fill[location + 1]++;
                else
                    t->touches[fill[location]++] = i | (writes ? WRITES : 0u);
            }
        }
        for (uint32_t i = 0; pass == 0 && i < locations; i++)
            fill[i + 1] += fill[i];
    }
}

static void mark_ancestors(struct races *t, uint32_t step) {
    uint32_t depth = 0;
    t->stack[depth++] = step;
    t->ancestor[step] = step + 1;
    while (depth) {
        uint32_t at = t->stack[--depth];
        for (uint32_t i = t->begin[at]; i < t->begin[at + 1]; i++) {
            if (t->ancestor[t->before[i]] == step + 1)
                continue;
            t->ancestor[t->before[i]] = step + 1;
            t->stack[depth++] = t->before[i];
        }
    }
}

static bool check_touches(struct races *t, uint32_t step, const struct proof_place *place,
                          bool writes) {
    const struct proof_step *v = &t->p->steps[t->first + step];
    for (uint32_t i = t->touch_begin[place->location]; i < t->touch_begin[place->location + 1];
         i++) {
        uint32_t other = t->touches[i] & ~WRITES;
        bool conflict = writes || t->touches[i] & WRITES;
        if (!conflict || t->p->steps[t->first + other].step->lane == v->step->lane ||
            t->position[other] > t->position[step])
            continue;
        if (t->ancestor[step] != step + 1)
            mark_ancestors(t, step);
        if (t->ancestor[other] != step + 1)
            return proof_fault(t->p, SCHED_FAULT_RACE, (int)t->rank, v->number, place->like,
                               "races with step %u of lane %u for a chunk", other,
                               t->p->steps[t->first + other].step->lane);
    }
    return true;
}

static bool check(struct races *t) {
    for (uint32_t i = 0; i < t->nsteps; i++) {
        const struct proof_step *v = &t->p->steps[t->first + t->sorted[i]];
        for (uint32_t k = 0; k < v->nsrc; k++)
            if (!check_touches(t, t->sorted[i], &t->p->places[v->src + k], false))
                return false;
        for (uint32_t k = 0; k < v->ndst; k++)
            if (!check_touches(t, t->sorted[i], &t->p->places[v->dst + k], true))
                return false;
    }
    return true;
}

bool proof_check_races(struct proof *p, uint32_t rank, uint32_t first_edge) {
    const struct sched *s = p->schedules[rank];
    if (s->lanes < 2 || !s->nsteps)
        return true; /* without waits between lanes, every edge goes forward */
    struct races t = {.p = p,
                      .rank = rank,
                      .first = p->first_step[rank],
                      .nsteps = s->nsteps,
                      .edges = p->nedges > first_edge ? p->edges + first_edge : NULL,
                      .nedges = p->nedges - first_edge};
    uint32_t naccesses = 0, locations = p->first_location[rank + 1] - p->first_location[rank];
    for (uint32_t i = 0; i < t.nsteps; i++)
        naccesses += p->steps[t.first + i].nsrc + p->steps[t.first + i].ndst;
    if (!allocate(&t, locations, naccesses))
        return false;
    index_predecessors(&t);
    bool good = sort(&t);
    if (good) {
        index_touches(&t, locations);
        good = check(&t);
    }
    free(t.begin);
    return good;
}
