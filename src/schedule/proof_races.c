/* Third pass, second half: two steps of different lanes that touch one chunk, one of them writing,
 * must be joined by a chain of hazards and waits. Steps are sorted so that every edge goes
 * forward; then only the later of two can depend on the earlier. Chains add up, so it is enough
 * that each step is joined to the last one before it that wrote the chunk and, if it writes, to
 * those that have read it since; one walk back answers for all of them. */
#include "schedule/proof.h"

#include <stdlib.h>
#include <string.h>

/* Edges that are walked in all: seconds. Files can have chains of any length between all steps. */
#define MAX_WALKED (UINT64_C(1) << 32)

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
    uint32_t *writer;           /* by location, the last so far: step + 1, 0 none */
    uint32_t *readers;          /* by location, since: entry of `reads` + 1, 0 none */
    uint32_t *reads, nreads;    /* pairs: step, next entry + 1 */
};

static bool allocate(struct races *t, size_t locations, size_t nreads) {
    size_t words = 5 * ((size_t)t->nsteps + 2) + t->nedges + 2 * locations + 2 * nreads;
    uint32_t *block = calloc(words, sizeof *block);
    if (!block)
        return proof_out_of_memory(t->p);
    t->begin = block; /* owns the block */
    t->before = t->begin + t->nsteps + 2;
    t->position = t->before + t->nedges;
    t->sorted = t->position + t->nsteps + 2;
    t->stack = t->sorted + t->nsteps + 2;
    t->ancestor = t->stack + t->nsteps + 2;
    t->writer = t->ancestor + t->nsteps + 2;
    t->readers = t->writer + locations;
    t->reads = t->readers + locations;
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

static void mark_ancestors(struct races *t, uint32_t step) {
    uint32_t depth = 0;
    t->stack[depth++] = step;
    t->ancestor[step] = step + 1;
    while (depth) {
        uint32_t at = t->stack[--depth];
        t->p->walked += t->begin[at + 1] - t->begin[at];
        for (uint32_t i = t->begin[at]; i < t->begin[at + 1]; i++) {
            if (t->ancestor[t->before[i]] == step + 1)
                continue;
            t->ancestor[t->before[i]] = step + 1;
            t->stack[depth++] = t->before[i];
        }
    }
}

/* `before` touched the place earlier; one of the two writes. */
static bool check_joined(struct races *t, uint32_t before, uint32_t step,
                         const struct proof_place *place) {
    const struct proof_step *v = &t->p->steps[t->first + step];
    const struct proof_step *other = &t->p->steps[t->first + before];
    if (other->step->lane == v->step->lane)
        return true;
    if (t->ancestor[step] != step + 1)
        mark_ancestors(t, step);
    if (t->p->walked > MAX_WALKED)
        return proof_fault(t->p, SCHED_FAULT_SHAPE, (int)t->rank, v->number, place->like,
                           "has more chains of waits and hazards behind it than can be followed");
    return t->ancestor[before] == step + 1 ||
           proof_fault(t->p, SCHED_FAULT_RACE, (int)t->rank, v->number, place->like,
                       "races with step %u of lane %u for a chunk", before, other->step->lane);
}

static bool check_read(struct races *t, uint32_t step, const struct proof_place *place) {
    uint32_t writer = t->writer[place->location], last = t->readers[place->location];
    if (last && t->reads[2 * (size_t)(last - 1)] == step)
        return true; /* once more */
    if (writer && !check_joined(t, writer - 1, step, place))
        return false;
    t->reads[2 * (size_t)t->nreads] = step;
    t->reads[2 * (size_t)t->nreads + 1] = last;
    t->readers[place->location] = ++t->nreads;
    return true;
}

static bool check_write(struct races *t, uint32_t step, const struct proof_place *place) {
    uint32_t *writer = &t->writer[place->location], *readers = &t->readers[place->location];
    if (*writer && !check_joined(t, *writer - 1, step, place))
        return false;
    for (uint32_t i = *readers; i; i = t->reads[2 * (size_t)(i - 1) + 1])
        if (!check_joined(t, t->reads[2 * (size_t)(i - 1)], step, place))
            return false;
    *writer = step + 1;
    *readers = 0;
    return true;
}

static bool check(struct races *t) {
    for (uint32_t i = 0; i < t->nsteps; i++) {
        const struct proof_step *v = &t->p->steps[t->first + t->sorted[i]];
        for (uint32_t k = 0; k < v->nsrc; k++)
            if (!check_read(t, t->sorted[i], &t->p->places[v->src + k]))
                return false;
        for (uint32_t k = 0; k < v->ndst; k++)
            if (!check_write(t, t->sorted[i], &t->p->places[v->dst + k]))
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
    uint32_t nreads = 0;
    for (uint32_t i = 0; i < t.nsteps; i++)
        nreads += p->steps[t.first + i].nsrc;
    if (!allocate(&t, p->first_location[rank + 1] - p->first_location[rank], nreads))
        return false;
    index_predecessors(&t);
    bool good = sort(&t) && check(&t);
    free(t.begin);
    return good;
}
