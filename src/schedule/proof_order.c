/* Third pass of the verifier: the order of steps inside of each rank. Hazards of one lane and
 * named waits become edges; the order in which a lane issues its sends, and its receives, is kept
 * apart (lane_next), because it does not say that the earlier one is complete: it counts for
 * progress, and not as a chain between two lanes. */
#include "schedule/proof.h"

#include <stdlib.h>
#include <string.h>

/* Who touched a location last, inside of one lane. */
struct touched {
    uint32_t epoch; /* lane that the entry is of */
    uint32_t writer;
    uint32_t readers; /* since that writing: list in reader_list, PROOF_NONE: none */
};

struct reader {
    uint32_t step, next;
};

struct order {
    struct proof *p;
    uint32_t rank;
    struct touched *touched; /* by location of the rank */
    uint32_t epoch;
    struct reader *readers;
    uint32_t nreaders, reader_room;
    uint32_t *joined; /* by step: the last step that it has an edge to, to leave out repetitions */
};

static bool add_edge(struct order *o, uint32_t before, uint32_t after) {
    struct proof *p = o->p;
    if (before == after || o->joined[before] == after)
        return true;
    if (p->nedges == p->edge_room) {
        uint32_t room = p->edge_room ? p->edge_room * 2 : 1024;
        struct proof_edge *edges =
            room > UINT32_MAX / 2 ? NULL : realloc(p->edges, room * sizeof *edges);
        if (!edges)
            return proof_out_of_memory(p);
        p->edges = edges;
        p->edge_room = room;
    }
    o->joined[before] = after;
    p->edges[p->nedges++] = (struct proof_edge){before, after};
    return true;
}

static struct touched *touch(struct order *o, uint32_t location) {
    struct touched *t = &o->touched[location];
    if (t->epoch != o->epoch)
        *t = (struct touched){o->epoch, PROOF_NONE, PROOF_NONE};
    return t;
}

static bool add_read(struct order *o, uint32_t step, uint32_t location) {
    struct touched *t = touch(o, location);
    if (t->writer != PROOF_NONE && !add_edge(o, t->writer, step))
        return false;
    if (o->nreaders == o->reader_room) {
        uint32_t room = o->reader_room ? o->reader_room * 2 : 1024;
        struct reader *readers =
            room > UINT32_MAX / 2 ? NULL : realloc(o->readers, room * sizeof *readers);
        if (!readers)
            return proof_out_of_memory(o->p);
        o->readers = readers;
        o->reader_room = room;
    }
    o->readers[o->nreaders] = (struct reader){step, t->readers};
    t->readers = o->nreaders++;
    return true;
}

static bool add_write(struct order *o, uint32_t step, uint32_t location) {
    struct touched *t = touch(o, location);
    if (t->writer != PROOF_NONE && !add_edge(o, t->writer, step))
        return false;
    for (uint32_t r = t->readers; r != PROOF_NONE; r = o->readers[r].next)
        if (!add_edge(o, o->readers[r].step, step))
            return false;
    t->writer = step;
    t->readers = PROOF_NONE;
    return true;
}

static bool add_hazards(struct order *o, uint32_t step) {
    const struct proof_step *v = &o->p->steps[step];
    const struct proof_place *src = o->p->places + v->src, *dst = o->p->places + v->dst;
    for (uint32_t i = 0; i < v->nsrc; i++)
        if (!add_read(o, step, src[i].location))
            return false;
    for (uint32_t i = 0; i < v->ndst; i++)
        if (!add_write(o, step, dst[i].location))
            return false;
    return true;
}

static bool add_waits(struct order *o, uint32_t step) {
    const struct proof_step *v = &o->p->steps[step];
    const struct sched *s = o->p->schedules[v->rank];
    for (uint32_t i = 0; i < v->step->waits.count; i++) {
        uint32_t other = s->waits[v->step->waits.begin + i];
        if (!add_edge(o, o->p->first_step[v->rank] + other, step))
            return false;
    }
    return true;
}

/* The steps of the rank sorted by lane, stable. */
static uint32_t *steps_by_lane(struct order *o) {
    const struct sched *s = o->p->schedules[o->rank];
    uint32_t first = o->p->first_step[o->rank];
    uint32_t *sorted = malloc((s->nsteps + 1u) * sizeof *sorted);
    uint32_t *begin = calloc(s->lanes + 1u, sizeof *begin);
    if (sorted && begin) {
        for (uint32_t i = 0; i < s->nsteps; i++)
            begin[s->steps[i].lane + 1]++;
        for (uint32_t lane = 0; lane < s->lanes; lane++)
            begin[lane + 1] += begin[lane];
        for (uint32_t i = 0; i < s->nsteps; i++)
            sorted[begin[s->steps[i].lane]++] = first + i;
    } else {
        free(sorted);
        sorted = NULL;
        proof_out_of_memory(o->p);
    }
    free(begin);
    return sorted;
}

static bool order_rank(struct order *o) {
    struct proof *p = o->p;
    uint32_t nsteps = p->schedules[o->rank]->nsteps, lane = PROOF_NONE;
    uint32_t last_send = PROOF_NONE, last_recv = PROOF_NONE;
    uint32_t *sorted = steps_by_lane(o);
    bool good = sorted != NULL;
    for (uint32_t i = 0; good && i < nsteps; i++) {
        uint32_t step = sorted[i];
        struct proof_step *v = &p->steps[step];
        if (v->step->lane != lane) {
            lane = v->step->lane;
            last_send = last_recv = PROOF_NONE;
            o->epoch++;
            o->nreaders = 0;
        }
        if (v->step->peers.count) {
            uint32_t *last = v->step->type == SCHED_SEND ? &last_send : &last_recv;
            if (*last != PROOF_NONE) {
                p->steps[*last].lane_next = step;
                v->missing++;
            }
            *last = step;
        }
        good = add_hazards(o, step) && add_waits(o, step);
    }
    free(sorted);
    return good;
}

static bool index_edges(struct proof *p) {
    uint32_t nsteps = p->first_step[p->nranks];
    p->after_begin = calloc(nsteps + 2u, sizeof *p->after_begin);
    p->after = malloc((p->nedges + 1u) * sizeof *p->after);
    if (!p->after_begin || !p->after)
        return proof_out_of_memory(p);
    uint32_t *fill = p->after_begin + 1; /* shifted by one, so that filling leaves the begins */
    for (uint32_t i = 0; i < p->nedges; i++) {
        fill[p->edges[i].before + 1]++;
        p->steps[p->edges[i].after].missing++;
    }
    for (uint32_t i = 0; i < nsteps; i++)
        fill[i + 1] += fill[i];
    for (uint32_t i = 0; i < p->nedges; i++)
        p->after[fill[p->edges[i].before]++] = p->edges[i].after;
    return true;
}

bool proof_order_steps(struct proof *p) {
    uint32_t widest = 1;
    for (uint32_t r = 0; r < p->nranks; r++) {
        uint32_t locations = p->first_location[r + 1] - p->first_location[r];
        widest = locations > widest ? locations : widest;
    }
    struct order o = {.p = p};
    o.touched = calloc(widest, sizeof *o.touched);
    o.joined = malloc((p->first_step[p->nranks] + 1u) * sizeof *o.joined);
    bool good = o.touched && o.joined;
    if (good)
        memset(o.joined, 0xff, (p->first_step[p->nranks] + 1u) * sizeof *o.joined);
    else
        proof_out_of_memory(p);
    for (o.rank = 0; good && o.rank < p->nranks; o.rank++) {
        uint32_t first_edge = p->nedges;
        good = order_rank(&o) && proof_check_races(p, o.rank, first_edge);
    }
    free(o.touched);
    free(o.joined);
    free(o.readers);
    return good && index_edges(p);
}
