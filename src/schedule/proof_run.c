/* Fourth pass of the verifier: the walk. A step is issued when everything that it depends on is
 * complete; a message is carried when both sides are issued; a send is complete when its channel
 * has room for the message or, at capacity zero, when the message was carried. A send serves its
 * peers one after another; a receive takes the messages of its peers as they come. What cannot be
 * issued or carried in the end is a deadlock.
 *
 * A barrier has no values. There each step knows a set of ranks that have certainly entered: its
 * own, what its predecessors knew and, for a receive, what the sender knew when it sent. */
#include "schedule/proof.h"

#include <stdlib.h>
#include <string.h>

struct walk {
    struct proof *p;
    uint32_t *ready; /* stack of steps to issue, and of sends to go on with */
    uint32_t nready;
    uint32_t *operands; /* nodes, for one reduction */
};

/* Puts the leaves into the inputs of all ranks. */
static bool fill_inputs(struct proof *p) {
    uint32_t locations = p->first_location[p->nranks];
    p->cells = malloc((locations + 1u) * sizeof *p->cells);
    p->carried = malloc((p->nplaces + 1u) * sizeof *p->carried);
    if (!p->cells || !p->carried)
        return proof_out_of_memory(p);
    for (uint32_t i = 0; i < locations; i++)
        p->cells[i] = (struct proof_cell){.node = PROOF_EMPTY};
    for (uint32_t r = 0; r < p->nranks; r++) {
        const struct sched *s = p->schedules[r];
        uint32_t inputs = sched_input_chunks(s), outputs = sched_output_chunks(s);
        for (uint32_t i = 0; i < inputs; i++) {
            uint32_t alias = sched_input_alias(s, i),
                     global = sched_global_chunk(s, SCHED_INPUT, i);
            uint32_t location = alias == UINT32_MAX ? outputs + i : alias;
            uint32_t leaf = expression_leaf(&p->expressions, r, global);
            if (leaf == EXPRESSION_NONE)
                return proof_out_of_memory(p);
            p->cells[p->first_location[r] + location] =
                (struct proof_cell){.node = leaf, .like = global & 0x1fffffffu, .form = PROOF_RAW};
        }
    }
    return true;
}

static bool step_fault(struct proof *p, const struct proof_step *v, enum sched_fault fault,
                       uint32_t chunk, const char *what) {
    return proof_fault(p, fault, (int)v->rank, v->number, chunk, "%s", what);
}

/* Reads a place; NULL after a fault. */
static const struct proof_cell *read_place(struct proof *p, const struct proof_step *v,
                                           const struct proof_place *place) {
    const struct proof_cell *cell = &p->cells[p->first_location[v->rank] + place->location];
    if (place->buffer == SCHED_INPUT) {
        if (!cell->written)
            return cell;
        step_fault(p, v, SCHED_FAULT_OVERWRITE, place->like,
                   "reads an input that an output has overwritten in place");
        return NULL;
    }
    if (cell->node == PROOF_EMPTY) {
        step_fault(p, v, SCHED_FAULT_READ_UNWRITTEN, place->like,
                   place->buffer == SCHED_SCRATCH ? "reads scratch that nothing has written"
                                                  : "reads an output that nothing has written");
        return NULL;
    }
    uint32_t uniform = p->schedules[0]->kind == ROTA_KIND_ALL_TO_ALL
                           ? p->schedules[0]->chunks_per_block
                           : UINT32_MAX;
    if (place->buffer == SCHED_SCRATCH && cell->like % uniform != place->like % uniform) {
        step_fault(p, v, SCHED_FAULT_SHAPE, place->like,
                   "reads scratch as another chunk than was written");
        return NULL;
    }
    return cell;
}

/* Stores what a send, receive or copy moves; its flag must say what it is. */
static bool check_moved(struct proof *p, const struct proof_step *v,
                        const struct proof_place *place, const struct proof_cell *value) {
    bool partial = v->step->flags & SCHED_PARTIAL;
    if (partial == (value->form == PROOF_PARTIAL))
        return true;
    return step_fault(p, v, SCHED_FAULT_REPRESENTATION, place->like,
                      partial ? "moves elements as partials" : "moves partials as elements");
}

static bool write_place(struct proof *p, const struct proof_step *v,
                        const struct proof_place *place, uint32_t node, uint32_t form) {
    if (form == PROOF_PARTIAL && place->buffer == SCHED_OUTPUT)
        return step_fault(p, v,
                          v->step->type == SCHED_RECV || v->step->type == SCHED_COPY
                              ? SCHED_FAULT_REPRESENTATION
                              : SCHED_FAULT_FINISH,
                          place->like, "leaves a partial in the output");
    p->cells[p->first_location[v->rank] + place->location] = (struct proof_cell){
        .node = node, .like = (uint32_t)place->like & 0x1fffffffu, .form = form & 3, .written = 1};
    return true;
}

/* One operand of a reduction: raw if it is loaded, else partial. */
static bool check_operand(struct proof *p, const struct proof_step *v, uint32_t chunk,
                          const struct proof_cell *value, bool loads) {
    if (value->form == PROOF_FINISHED)
        return step_fault(p, v, SCHED_FAULT_FINISH, chunk, "reduces what was finished before");
    if (loads == (value->form == PROOF_RAW))
        return true;
    return step_fault(p, v, SCHED_FAULT_LOAD, chunk,
                      loads ? "loads what was loaded before" : "reduces an input without load");
}

/* The aligned binary tree over operand positions; EXPRESSION_NONE without memory. */
static uint32_t combine(struct proof *p, uint32_t *operands, uint32_t count) {
    for (uint32_t stride = 1; stride < count; stride *= 2)
        for (uint32_t i = 0; i + stride < count; i += 2 * stride) {
            operands[i] = expression_combine(&p->expressions, operands[i], operands[i + stride]);
            if (operands[i] == EXPRESSION_NONE)
                return EXPRESSION_NONE;
        }
    return operands[0];
}

static bool write_reduced(struct walk *w, const struct proof_step *v,
                          const struct proof_place *place, uint32_t count) {
    bool finishes = v->step->flags & SCHED_FINISH;
    uint32_t node = combine(w->p, w->operands, count);
    if (node != EXPRESSION_NONE && w->p->options.rounded_partials && !finishes)
        node = expression_round(&w->p->expressions, node);
    if (node == EXPRESSION_NONE)
        return proof_out_of_memory(w->p);
    return write_place(w->p, v, place, node, finishes ? PROOF_FINISHED : PROOF_PARTIAL);
}

static bool run_recv(struct proof *p, const struct proof_step *v) {
    const struct proof_message *m = &p->messages[p->slots[v->message]];
    const struct proof_cell *values = p->carried + p->steps[m->sender].src;
    const struct proof_place *dst = p->places + v->dst;
    for (uint32_t i = 0; i < v->ndst; i++)
        if (!check_moved(p, v, &dst[i], &values[i]) ||
            !write_place(p, v, &dst[i], values[i].node, values[i].form))
            return false;
    return true;
}

static bool run_recv_reduce(struct walk *w, const struct proof_step *v) {
    struct proof *p = w->p;
    const struct proof_place *src = p->places + v->src, *dst = p->places + v->dst;
    uint32_t flags = v->step->flags, npeers = v->step->peers.count;
    for (uint32_t i = 0; i < v->ndst; i++) {
        uint32_t count = 0;
        for (uint32_t k = 0; k <= npeers; k++) {
            if (k == v->step->position && v->nsrc) {
                const struct proof_cell *local = read_place(p, v, &src[i]);
                if (!local || !check_operand(p, v, dst[i].like, local, flags & SCHED_LOAD_LOCAL))
                    return false;
                w->operands[count++] = local->node;
            }
            if (k == npeers)
                break;
            const struct proof_message *m = &p->messages[p->slots[v->message + k]];
            const struct proof_cell *value = &p->carried[p->steps[m->sender].src + i];
            if (!check_operand(p, v, dst[i].like, value, flags & SCHED_LOAD_MESSAGE))
                return false;
            w->operands[count++] = value->node;
        }
        if (!write_reduced(w, v, &dst[i], count))
            return false;
    }
    return true;
}

static bool run_copy(struct proof *p, const struct proof_step *v) {
    const struct proof_place *src = p->places + v->src, *dst = p->places + v->dst;
    for (uint32_t i = 0; i < v->ndst; i++) {
        const struct proof_cell *value = read_place(p, v, &src[i]);
        if (!value || !check_moved(p, v, &src[i], value) ||
            !write_place(p, v, &dst[i], value->node, value->form))
            return false;
    }
    return true;
}

static bool run_reduce(struct walk *w, const struct proof_step *v) {
    struct proof *p = w->p;
    const struct proof_place *src = p->places + v->src, *dst = p->places + v->dst;
    for (uint32_t i = 0; i < v->ndst; i++) {
        for (uint32_t k = 0; k < v->step->operands; k++) {
            const struct proof_cell *value = read_place(p, v, &src[k * v->ndst + i]);
            if (!value ||
                !check_operand(p, v, dst[i].like, value, v->step->flags & SCHED_LOAD_LOCAL))
                return false;
            w->operands[k] = value->node;
        }
        if (!write_reduced(w, v, &dst[i], v->step->operands))
            return false;
    }
    return true;
}

static void hear(struct proof *p, uint32_t step, uint32_t from) {
    for (uint32_t i = 0; i < p->heard_words; i++)
        p->heard[(size_t)step * p->heard_words + i] |= p->heard[(size_t)from * p->heard_words + i];
}

static void one_less_missing(struct walk *w, uint32_t step) {
    if (--w->p->steps[step].missing == 0)
        w->ready[w->nready++] = step;
}

static void complete(struct walk *w, uint32_t step) {
    struct proof *p = w->p;
    struct proof_step *v = &p->steps[step];
    v->complete = true;
    for (uint32_t i = p->after_begin[step]; i < p->after_begin[step + 1]; i++) {
        hear(p, p->after[i], step);
        one_less_missing(w, p->after[i]);
    }
    if (v->lane_next == PROOF_NONE)
        return;
    if (v->step->type == SCHED_SEND) /* issued in order, so after what this one waited for */
        hear(p, v->lane_next, step);
    one_less_missing(w, v->lane_next);
}

static void release(struct walk *w, struct proof_message *m) {
    if (m->released)
        return;
    m->released = true;
    if (--w->p->steps[m->sender].pending == 0)
        complete(w, m->sender);
    else
        w->ready[w->nready++] = m->sender;
}

/* Both sides are issued. */
static bool carry(struct walk *w, struct proof_message *m) {
    struct proof *p = w->p;
    struct proof_channel *c = &p->channels[m->channel];
    struct proof_step *v = &p->steps[m->receiver];
    m->carried = true;
    c->carried++;
    release(w, m);
    uint64_t room = (uint64_t)c->first + c->carried - 1 + p->options.channel_capacity;
    if (p->options.channel_capacity && room < c->first + c->sends && /* fits since now */
        p->messages[room].offered)
        release(w, &p->messages[room]);
    hear(p, m->receiver, m->sender);
    if (--v->pending)
        return true;
    if (v->step->type == SCHED_RECV ? !run_recv(p, v) : !run_recv_reduce(w, v))
        return false;
    complete(w, m->receiver);
    return true;
}

/* Serves the peers of a send in their order, as far as it goes now. */
static bool go_on_sending(struct walk *w, uint32_t step) {
    struct proof *p = w->p;
    struct proof_step *v = &p->steps[step];
    while (v->offered < v->step->peers.count) {
        uint32_t index = p->slots[v->message + v->offered];
        struct proof_message *m = &p->messages[index];
        const struct proof_channel *c = &p->channels[m->channel];
        m->offered = true;
        if (index - c->first - c->carried < p->options.channel_capacity)
            release(w, m);
        if (p->steps[m->receiver].issued && !m->carried && !carry(w, m))
            return false;
        if (!m->released)
            break;
        v->offered++;
    }
    return true;
}

static bool issue_send(struct walk *w, uint32_t step) {
    struct proof *p = w->p;
    struct proof_step *v = &p->steps[step];
    for (uint32_t i = 0; i < v->nsrc; i++) {
        const struct proof_place *place = &p->places[v->src + i];
        const struct proof_cell *value = read_place(p, v, place);
        if (!value || !check_moved(p, v, place, value))
            return false;
        p->carried[v->src + i] = *value;
    }
    return go_on_sending(w, step);
}

static bool issue_recv(struct walk *w, uint32_t step) {
    struct proof *p = w->p;
    const struct proof_step *v = &p->steps[step];
    for (uint32_t k = 0; k < v->step->peers.count; k++) {
        struct proof_message *m = &p->messages[p->slots[v->message + k]];
        if (m->offered && !m->carried && !carry(w, m))
            return false;
    }
    return true;
}

static bool issue(struct walk *w, uint32_t step) {
    struct proof_step *v = &w->p->steps[step];
    if (v->issued)
        return v->step->type != SCHED_SEND || go_on_sending(w, step);
    v->issued = true;
    v->pending = v->step->peers.count;
    switch (v->step->type) {
    case SCHED_SEND:
        return issue_send(w, step);
    case SCHED_RECV:
    case SCHED_RECV_REDUCE:
        return issue_recv(w, step);
    case SCHED_COPY:
        if (!run_copy(w->p, v))
            return false;
        break;
    case SCHED_REDUCE:
        if (!run_reduce(w, v))
            return false;
        break;
    }
    complete(w, step);
    return true;
}

/* Names a message that one side waits for, or else a step that is never issued. */
static bool report_deadlock(struct proof *p) {
    const struct proof_step *stuck = NULL;
    for (uint32_t i = 0; i < p->first_step[p->nranks]; i++) {
        const struct proof_step *v = &p->steps[i];
        if (v->complete)
            continue;
        if (!stuck)
            stuck = v;
        bool sends = v->step->type == SCHED_SEND;
        for (uint32_t k = sends ? v->offered : 0; v->issued && k < v->step->peers.count; k++) {
            const struct proof_message *m = &p->messages[p->slots[v->message + k]];
            const struct proof_step *other = &p->steps[sends ? m->receiver : m->sender];
            if (!m->carried)
                return proof_fault(p, SCHED_FAULT_DEADLOCK, (int)v->rank, v->number, UINT32_MAX,
                                   "waits for step %u of rank %u, which is never issued",
                                   other->number, other->rank);
        }
    }
    return !stuck || proof_fault(p, SCHED_FAULT_DEADLOCK, (int)stuck->rank, stuck->number,
                                 UINT32_MAX, "is never issued");
}

static bool prepare(struct walk *w) {
    struct proof *p = w->p;
    uint32_t nsteps = p->first_step[p->nranks], most = 1;
    for (uint32_t i = 0; i < nsteps; i++) {
        uint32_t operands = p->steps[i].step->peers.count + 1;
        if (p->steps[i].step->type == SCHED_REDUCE)
            operands = p->steps[i].step->operands;
        most = operands > most ? operands : most;
    }
    w->ready = malloc((nsteps + p->nmessages + 1u) * sizeof *w->ready);
    w->operands = malloc(most * sizeof *w->operands);
    if (p->schedules[0]->kind == ROTA_KIND_BARRIER) {
        p->heard_words = (p->nranks + 63) / 64;
        p->heard = calloc((size_t)nsteps * p->heard_words + 1, sizeof *p->heard);
    }
    if (!w->ready || !w->operands || (p->heard_words && !p->heard))
        return proof_out_of_memory(p);
    for (uint32_t i = nsteps; i-- > 0;) {
        uint32_t rank = p->steps[i].rank;
        if (p->heard)
            p->heard[(size_t)i * p->heard_words + rank / 64] |= UINT64_C(1) << rank % 64;
        if (!p->steps[i].missing)
            w->ready[w->nready++] = i;
    }
    return fill_inputs(p);
}

bool proof_run(struct proof *p) {
    struct walk w = {.p = p};
    bool good = prepare(&w);
    while (good && w.nready)
        good = issue(&w, w.ready[--w.nready]);
    free(w.ready);
    free(w.operands);
    return good && report_deadlock(p);
}
