/* First pass of the verifier: every number of every schedule is checked against its bounds, then
 * the lists are laid out as places. Nothing behind this pass can index out of an array. */
#include "schedule/proof.h"

#include <stdlib.h>

enum {
    MAX_CHUNKS = 1 << 24, /* of one buffer; also keeps proof_place.like in its bits */
    MAX_NUMBERS = 1 << 16 /* lanes, channels */
};

/* What is being checked: one rank, and for faults inside of steps the step. */
struct check {
    struct proof *p;
    const struct sched *s;
    uint32_t rank, step;
    uint32_t outputs, inputs; /* chunks of the buffers */
    uint32_t *stamp;          /* by location of the rank: which step wrote it, and at which place */
    uint32_t *at;
    uint32_t epoch;
};

static bool rank_fault(const struct check *c, const char *what) {
    return proof_fault(c->p, SCHED_FAULT_SHAPE, (int)c->rank, UINT32_MAX, UINT32_MAX, "%s", what);
}

static bool step_fault(const struct check *c, const char *what) {
    return proof_fault(c->p, SCHED_FAULT_SHAPE, (int)c->rank, c->step, UINT32_MAX, "%s", what);
}

static bool check_head(const struct check *c) {
    const struct sched *s = c->s, *first = c->p->schedules[0];
    if (!sched_kind_collective(s->kind))
        return rank_fault(c, "the kind is none that schedules have");
    if (s->nranks != (int)c->p->nranks || s->rank != (int)c->rank)
        return rank_fault(c, "the schedule is that of another rank or number of ranks");
    bool rooted = sched_kind_rooted(s->kind);
    if (rooted ? s->root < 0 || s->root >= s->nranks : s->root != -1)
        return rank_fault(c, "the root is no rank, or the kind has none");
    if (s->kind != first->kind || s->root != first->root ||
        s->chunks_per_block != first->chunks_per_block)
        return rank_fault(c, "kind, root or chunks differ from those of rank 0");
    if (s->blocks != sched_kind_blocks(s->kind, s->nranks) ||
        (s->blocks == 0) != (s->chunks_per_block == 0))
        return rank_fault(c, "the number of blocks or chunks is not that of the kind");
    if ((uint64_t)s->blocks * s->chunks_per_block > MAX_CHUNKS || s->scratch_chunks > MAX_CHUNKS)
        return rank_fault(c, "more than 2^24 chunks");
    if (s->lanes > MAX_NUMBERS || s->channels > MAX_NUMBERS)
        return rank_fault(c, "more than 65536 lanes or channels");
    return true;
}

static bool inside(struct sched_list list, uint32_t length) {
    return list.begin <= length && list.count <= length - list.begin;
}

static bool check_lists(const struct check *c, const struct sched_step *step) {
    const struct sched *s = c->s;
    if (!inside(step->peers, s->npeers) || !inside(step->src, s->nranges) ||
        !inside(step->dst, s->nranges) || !inside(step->waits, s->nwaits))
        return step_fault(c, "a list reaches beyond its array");
    if (step->lane >= s->lanes || (step->peers.count && step->channel >= s->channels))
        return step_fault(c, "lane or channel beyond the declared number");
    for (uint32_t i = 0; i < step->waits.count; i++) {
        uint32_t other = s->waits[step->waits.begin + i];
        if (other >= s->nsteps)
            return step_fault(c, "waits for a step that does not exist");
        if (s->steps[other].lane == step->lane)
            return step_fault(c, "waits for a step of its own lane");
    }
    return true;
}

static bool check_range(const struct check *c, const struct sched_range *range, bool written) {
    const struct sched *s = c->s;
    if ((unsigned)range->buffer > SCHED_SCRATCH || !range->count || !range->reps)
        return step_fault(c, "a range names no buffer or no chunks");
    bool scratch = range->buffer == SCHED_SCRATCH;
    uint64_t last = range->first + (uint64_t)(range->reps - 1) * range->stride + range->count;
    uint32_t size = scratch                         ? s->scratch_chunks
                    : range->buffer == SCHED_OUTPUT ? c->outputs
                                                    : c->inputs;
    if (last > size || (uint64_t)range->count * range->reps > MAX_CHUNKS)
        return proof_fault(c->p, scratch ? SCHED_FAULT_SCRATCH_BOUNDS : SCHED_FAULT_SHAPE,
                           (int)c->rank, c->step, UINT32_MAX,
                           "a range ends at chunk %llu of a buffer of %u", (unsigned long long)last,
                           size);
    uint64_t like = range->like + (uint64_t)(range->reps - 1) * range->like_stride + range->count;
    if (scratch && like > (uint64_t)s->blocks * s->chunks_per_block)
        return step_fault(c, "scratch has the length of a chunk that does not exist");
    if (written && range->buffer == SCHED_INPUT)
        return proof_fault(c->p, SCHED_FAULT_INPUT_WRITTEN, (int)c->rank, c->step,
                           sched_global_chunk(s, SCHED_INPUT, range->first), "writes the input");
    return true;
}

static bool check_ranges(const struct check *c, const struct sched_step *step) {
    for (uint32_t i = 0; i < step->src.count; i++)
        if (!check_range(c, &c->s->ranges[step->src.begin + i], false))
            return false;
    for (uint32_t i = 0; i < step->dst.count; i++)
        if (!check_range(c, &c->s->ranges[step->dst.begin + i], true))
            return false;
    return true;
}

static bool check_peers(struct check *c, const struct sched_step *step, uint32_t *seen) {
    for (uint32_t i = 0; i < step->peers.count; i++) {
        int peer = c->s->peers[step->peers.begin + i];
        if (peer < 0 || peer >= c->s->nranks || peer == c->s->rank)
            return step_fault(c, "a peer is not another rank");
        if (seen[peer] == c->epoch)
            return step_fault(c, "a peer is named twice");
        seen[peer] = c->epoch;
    }
    return true;
}

/* What each type of step needs and may have. */
static bool check_type(const struct check *c, const struct sched_step *step) {
    uint64_t src = sched_list_chunks(c->s, step->src), dst = sched_list_chunks(c->s, step->dst);
    uint32_t peers = step->peers.count, allowed = SCHED_PARTIAL;
    bool reduces = step->type == SCHED_RECV_REDUCE || step->type == SCHED_REDUCE, right;
    switch (step->type) {
    case SCHED_SEND:
        right = peers >= 1 && !step->dst.count;
        break;
    case SCHED_RECV:
        right = peers == 1 && !step->src.count;
        break;
    case SCHED_RECV_REDUCE:
        allowed = SCHED_LOAD_MESSAGE | SCHED_FINISH | (src ? SCHED_LOAD_LOCAL : 0u);
        right = peers >= 1 && dst && (!src || src == dst) && step->position <= peers;
        break;
    case SCHED_COPY:
        right = !peers && src && src == dst;
        break;
    case SCHED_REDUCE:
        allowed = SCHED_LOAD_LOCAL | SCHED_FINISH;
        right = !peers && dst && step->operands && src == dst * step->operands;
        break;
    default:
        return step_fault(c, "a type of step that does not exist");
    }
    if (!right)
        return step_fault(c, "peers, operands or numbers of chunks do not fit its type");
    if (reduces && !sched_kind_reduces(c->s->kind))
        return step_fault(c, "reduces, and the kind does not");
    if (step->flags & ~allowed)
        return step_fault(c, "has flags that its type does not know");
    return true;
}

static bool add_place(struct check *c, uint32_t location, uint32_t like, uint32_t buffer) {
    struct proof *p = c->p;
    if (p->nplaces == p->place_room) {
        uint32_t room = p->place_room * 2;
        struct proof_place *places =
            p->place_room > UINT32_MAX / 4 ? NULL : realloc(p->places, room * sizeof *places);
        if (!places)
            return proof_out_of_memory(p);
        p->places = places;
        p->place_room = room;
    }
    struct proof_place *place = &p->places[p->nplaces++];
    place->location = location;
    place->like = like & 0x3fffffff;
    place->buffer = buffer & 3;
    return true;
}

static bool lay_out_range(struct check *c, const struct sched_range *range) {
    const struct sched *s = c->s;
    for (uint32_t rep = 0; rep < range->reps; rep++) {
        for (uint32_t i = 0; i < range->count; i++) {
            uint32_t chunk = range->first + rep * range->stride + i, location = chunk, like;
            if (range->buffer == SCHED_SCRATCH) {
                like = range->like + rep * range->like_stride + i;
                location += c->outputs + c->inputs;
            } else {
                like = sched_global_chunk(s, range->buffer, chunk);
            }
            if (range->buffer == SCHED_INPUT) {
                uint32_t alias = sched_input_alias(s, chunk);
                location = alias == UINT32_MAX ? c->outputs + chunk : alias;
            }
            if (!add_place(c, location, like, range->buffer))
                return false;
        }
    }
    return true;
}

static bool lay_out(struct check *c, struct proof_step *v) {
    const struct sched_step *step = v->step;
    v->src = c->p->nplaces;
    for (uint32_t i = 0; i < step->src.count; i++)
        if (!lay_out_range(c, &c->s->ranges[step->src.begin + i]))
            return false;
    v->nsrc = c->p->nplaces - v->src;
    v->dst = c->p->nplaces;
    for (uint32_t i = 0; i < step->dst.count; i++)
        if (!lay_out_range(c, &c->s->ranges[step->dst.begin + i]))
            return false;
    v->ndst = c->p->nplaces - v->dst;
    return true;
}

/* Inside of one step: chunk i of each operand and of the destination have one length, and what is
 * read where it is written is read at the same place and in the same form. */
static bool check_places(struct check *c, const struct proof_step *v) {
    const struct proof_place *src = c->p->places + v->src, *dst = c->p->places + v->dst;
    uint32_t uniform = c->s->kind == ROTA_KIND_ALL_TO_ALL ? c->s->chunks_per_block : UINT32_MAX;
    bool converts = v->step->type == SCHED_REDUCE || v->step->type == SCHED_RECV_REDUCE;
    converts = converts && !(v->step->flags & SCHED_LOAD_LOCAL) != !(v->step->flags & SCHED_FINISH);
    for (uint32_t i = 0; i < v->ndst; i++) {
        if (c->stamp[dst[i].location] == c->epoch)
            return step_fault(c, "writes a chunk twice");
        c->stamp[dst[i].location] = c->epoch;
        c->at[dst[i].location] = i;
    }
    for (uint32_t i = 0, j = 0; v->ndst && i < v->nsrc; i++, j = j + 1 == v->ndst ? 0 : j + 1) {
        if (src[i].like % uniform != dst[j].like % uniform)
            return proof_fault(c->p, SCHED_FAULT_SHAPE, (int)c->rank, c->step, dst[j].like,
                               "source and destination are chunks of different length");
        if (c->stamp[src[i].location] != c->epoch)
            continue;
        if (c->at[src[i].location] != j)
            return step_fault(c, "reads a chunk that it writes at another place");
        if (converts && dst[j].buffer == SCHED_SCRATCH)
            return proof_fault(c->p, SCHED_FAULT_REPRESENTATION, (int)c->rank, c->step, dst[j].like,
                               "converts scratch in its own place");
    }
    return true;
}

static bool check_steps(struct check *c, uint32_t *seen) {
    struct proof *p = c->p;
    for (c->step = 0; c->step < c->s->nsteps; c->step++) {
        const struct sched_step *step = &c->s->steps[c->step];
        struct proof_step *v = &p->steps[p->first_step[c->rank] + c->step];
        c->epoch++;
        v->step = step;
        v->rank = c->rank;
        v->number = c->step;
        v->lane_next = PROOF_NONE;
        if (!check_lists(c, step) || !check_ranges(c, step) || !check_peers(c, step, seen) ||
            !check_type(c, step) || !lay_out(c, v) || !check_places(c, v))
            return false;
        if (p->nslots > UINT32_MAX / 4 - step->peers.count)
            return rank_fault(c, "too many messages on all ranks together");
        v->message = p->nslots;
        p->nslots += step->peers.count;
    }
    return true;
}

/* Sums that size the arrays; refuses what does not fit 32-bit numbers. */
static bool count(struct proof *p) {
    uint64_t steps = 0, locations = 0;
    for (uint32_t r = 0; r < p->nranks; r++) {
        struct check c = {.p = p, .s = p->schedules[r], .rank = r};
        if (!check_head(&c))
            return false;
        p->first_step[r] = (uint32_t)steps;
        p->first_location[r] = (uint32_t)locations;
        steps += c.s->nsteps;
        locations +=
            (uint64_t)sched_output_chunks(c.s) + sched_input_chunks(c.s) + c.s->scratch_chunks;
        if (steps >= UINT32_MAX / 4 || locations >= UINT32_MAX / 4)
            return rank_fault(&c, "too many steps or chunks on all ranks together");
    }
    p->first_step[p->nranks] = (uint32_t)steps;
    p->first_location[p->nranks] = (uint32_t)locations;
    return true;
}

bool proof_check_shape(struct proof *p) {
    p->first_step = calloc(p->nranks + 1, sizeof *p->first_step);
    p->first_location = calloc(p->nranks + 1, sizeof *p->first_location);
    p->place_room = 1024;
    p->places = malloc(p->place_room * sizeof *p->places); /* there also where no step has any */
    if (!p->first_step || !p->first_location || !p->places)
        return proof_out_of_memory(p);
    if (!count(p))
        return false;
    uint32_t widest = 1;
    for (uint32_t r = 0; r < p->nranks; r++) {
        uint32_t locations = p->first_location[r + 1] - p->first_location[r];
        widest = locations > widest ? locations : widest;
    }
    p->steps = calloc(p->first_step[p->nranks] + 1u, sizeof *p->steps);
    uint32_t *stamp = calloc(2 * (size_t)widest + p->nranks, sizeof *stamp);
    bool good = p->steps && stamp;
    struct check c = {.p = p, .stamp = stamp, .at = stamp + widest};
    for (uint32_t r = 0; good && r < p->nranks; r++) {
        c.s = p->schedules[r];
        c.rank = r;
        c.outputs = sched_output_chunks(c.s);
        c.inputs = sched_input_chunks(c.s);
        good = check_steps(&c, stamp + 2 * (size_t)widest);
    }
    if (!p->steps || !stamp)
        proof_out_of_memory(p);
    free(stamp);
    return good;
}
