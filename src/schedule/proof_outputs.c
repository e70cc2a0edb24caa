/* Last pass of the verifier: what the outputs of all ranks hold, against what the kind promises. */
#include "schedule/proof.h"

#include <stdlib.h>

struct outputs {
    struct proof *p;
    const struct sched *s;
    uint32_t rank;
    uint8_t *seen;        /* by rank */
    uint32_t *operands;   /* nodes of the canonical tree */
    uint32_t *first_leaf; /* by rank */
};

static bool output_fault(const struct outputs *o, enum sched_fault fault, uint32_t chunk,
                         const char *what) {
    return proof_fault(o->p, fault, (int)o->rank, UINT32_MAX, chunk, "%s", what);
}

/* Leaf that a chunk of the output must be, in kinds that only move data. */
static uint32_t expected_leaf(const struct outputs *o, uint32_t chunk) {
    uint32_t cpb = o->s->chunks_per_block;
    switch (o->s->kind) {
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        return o->first_leaf[chunk / cpb] + chunk % cpb;
    case ROTA_KIND_ALL_TO_ALL:
        return o->first_leaf[chunk / cpb] + o->rank * cpb + chunk % cpb;
    case ROTA_KIND_SCATTER:
        return o->first_leaf[o->s->root] + o->rank * cpb + chunk;
    default:
        return o->first_leaf[o->s->root] + chunk;
    }
}

static bool check_moved(const struct outputs *o, uint32_t index) {
    const struct proof_cell *cell = &o->p->cells[o->p->first_location[o->rank] + index];
    uint32_t expected = expected_leaf(o, index);
    if (!cell->written && cell->node != expected)
        return output_fault(o, SCHED_FAULT_OUTPUT_MISSING, index, "the output is never written");
    if (cell->node != expected)
        return output_fault(o, SCHED_FAULT_CONTRIBUTION, index,
                            "the output holds another chunk than it must");
    return true;
}

/* Ranks whose inputs the output combines: this many, from 0 on. */
static uint32_t combined(const struct outputs *o) {
    if (!sched_kind_scans(o->s->kind))
        return o->p->nranks;
    return o->s->kind == ROTA_KIND_SCAN ? o->rank + 1 : o->rank;
}

/* The canonical tree over those inputs, if any rank has computed it. */
static uint32_t canonical(const struct outputs *o, uint32_t chunk) {
    uint32_t n = combined(o), *nodes = o->operands;
    for (uint32_t r = 0; r < n; r++)
        nodes[r] = o->first_leaf[r] + chunk;
    for (uint32_t stride = 1; stride < n; stride *= 2)
        for (uint32_t i = 0; i + stride < n; i += 2 * stride) {
            nodes[i] = expression_find(&o->p->expressions, nodes[i], nodes[i + stride]);
            if (nodes[i] == EXPRESSION_NONE)
                return EXPRESSION_NONE;
        }
    return nodes[0];
}

static bool check_reduced(const struct outputs *o, uint32_t index) {
    struct proof *p = o->p;
    struct sched_verdict *verdict = p->verdict;
    const struct proof_cell *cell = &p->cells[p->first_location[o->rank] + index];
    uint32_t chunk = sched_global_chunk(o->s, SCHED_OUTPUT, index);
    if (!cell->written)
        return output_fault(o, SCHED_FAULT_OUTPUT_MISSING, chunk, "the output is never written");
    const struct expression *e = &p->expressions.nodes[cell->node];
    if (o->s->kind == ROTA_KIND_ALL_REDUCE && o->rank > 0) {
        if (cell->node == p->cells[index].node && cell->form == p->cells[index].form)
            return true; /* the same as that of rank 0, which was checked */
    }
    if (e->chunk != chunk ||
        !expression_is_complete(&p->expressions, cell->node, combined(o), o->seen))
        return output_fault(o, SCHED_FAULT_CONTRIBUTION, chunk,
                            sched_kind_scans(o->s->kind)
                                ? "the output is not made of the input of each rank below once"
                                : "the output is not made of each rank's input once");
    if (cell->form != PROOF_FINISHED)
        return output_fault(o, SCHED_FAULT_FINISH, chunk, "the output is not finished");
    if (o->s->kind == ROTA_KIND_ALL_REDUCE && o->rank > 0)
        return output_fault(o, SCHED_FAULT_DIFFERENT, chunk,
                            "the order of operations is not that of rank 0");
    if (!e->ascending && p->options.require_ascending)
        return output_fault(o, SCHED_FAULT_ORDER, chunk, "operands are not in ascending order");
    verdict->ascending = verdict->ascending && e->ascending;
    verdict->canonical_tree = verdict->canonical_tree && canonical(o, chunk) == cell->node;
    if (e->depth > verdict->max_depth)
        verdict->max_depth = e->depth;
    if (e->roundings + 1 > verdict->roundings) /* and the one that finishes */
        verdict->roundings = e->roundings + 1;
    return true;
}

/* A barrier: whoever leaves has heard of everybody. */
static bool check_heard(const struct outputs *o) {
    const struct proof *p = o->p;
    for (uint32_t rank = 0; rank < p->nranks; rank++) {
        bool heard = rank == o->rank;
        for (uint32_t i = p->first_step[o->rank]; !heard && i < p->first_step[o->rank + 1]; i++)
            heard = p->heard[(size_t)i * p->heard_words + rank / 64] >> rank % 64 & 1;
        if (!heard)
            return proof_fault(o->p, SCHED_FAULT_CONTRIBUTION, (int)o->rank, UINT32_MAX, UINT32_MAX,
                               "may leave before rank %u has entered", rank);
    }
    return true;
}

static bool check_rank(const struct outputs *o) {
    if (o->s->kind == ROTA_KIND_BARRIER)
        return check_heard(o);
    bool reduces = sched_kind_reduces(o->s->kind);
    uint32_t outputs = sched_output_chunks(o->s);
    for (uint32_t i = 0; i < outputs; i++)
        if (reduces ? !check_reduced(o, i) : !check_moved(o, i))
            return false;
    return true;
}

bool proof_check_outputs(struct proof *p) {
    struct outputs o = {.p = p};
    o.seen = malloc(p->nranks);
    o.operands = malloc(p->nranks * sizeof *o.operands);
    o.first_leaf = malloc(p->nranks * sizeof *o.first_leaf);
    bool good = o.seen && o.operands && o.first_leaf;
    if (!good)
        proof_out_of_memory(p);
    uint32_t leaf = 0; /* leaves were made rank by rank, before all other nodes */
    for (uint32_t r = 0; good && r < p->nranks; r++) {
        o.first_leaf[r] = leaf;
        leaf += sched_input_chunks(p->schedules[r]);
    }
    p->verdict->same_on_all_ranks = true;
    p->verdict->canonical_tree = true;
    p->verdict->ascending = true;
    for (o.rank = 0; good && o.rank < p->nranks; o.rank++) {
        o.s = p->schedules[o.rank];
        good = check_rank(&o);
    }
    free(o.seen);
    free(o.operands);
    free(o.first_leaf);
    return good;
}
