/* Second pass of the verifier: which send meets which receive. A channel belongs to one lane on
 * either side and lanes keep their order, so the k-th send meets the k-th receive; what is left
 * over, or does not fit, is a fault before anything runs. */
#include "schedule/proof.h"

#include <stdlib.h>
#include <string.h>

/* Channels by (from, to, number): open addressing, at most half full. */
struct channel_table {
    struct proof *p;
    uint32_t *slots;
    uint32_t mask;
};

static uint32_t channel_of(struct channel_table *t, uint32_t from, uint32_t to, uint32_t number) {
    struct proof *p = t->p;
    uint64_t mixed = ((uint64_t)from << 32 | to) * UINT64_C(0x9E3779B97F4A7C15);
    mixed = (mixed ^ number) * UINT64_C(0xD6E8FEB86659FD93);
    uint32_t slot = (uint32_t)(mixed >> 32) & t->mask;
    while (t->slots[slot] != PROOF_NONE) {
        const struct proof_channel *c = &p->channels[t->slots[slot]];
        if (c->from == from && c->to == to && c->number == number)
            return t->slots[slot];
        slot = (slot + 1) & t->mask;
    }
    p->channels[p->nchannels] = (struct proof_channel){
        .from = from, .to = to, .number = number, .send_lane = PROOF_NONE, .recv_lane = PROOF_NONE};
    t->slots[slot] = p->nchannels;
    return p->nchannels++;
}

/* Finds each message's channel and counts; faults where a channel is used by two lanes. */
static bool count_messages(struct proof *p, struct channel_table *t) {
    for (uint32_t i = 0; i < p->first_step[p->nranks]; i++) {
        struct proof_step *v = &p->steps[i];
        bool sends = v->step->type == SCHED_SEND;
        for (uint32_t k = 0; k < v->step->peers.count; k++) {
            uint32_t peer = (uint32_t)p->schedules[v->rank]->peers[v->step->peers.begin + k];
            uint32_t index =
                channel_of(t, sends ? v->rank : peer, sends ? peer : v->rank, v->step->channel);
            struct proof_channel *c = &p->channels[index];
            uint32_t *lane = sends ? &c->send_lane : &c->recv_lane;
            if (*lane != PROOF_NONE && *lane != v->step->lane)
                return proof_fault(p, SCHED_FAULT_LANES, (int)v->rank, v->number, UINT32_MAX,
                                   "channel %u %s rank %u is used by lanes %u and %u", c->number,
                                   sends ? "to" : "from", peer, *lane, v->step->lane);
            *lane = v->step->lane;
            *(sends ? &c->sends : &c->receives) += 1;
            p->slots[v->message + k] = index;
        }
    }
    return true;
}

/* Numbers the messages channel by channel; faults where the sides differ in number. */
static bool number_messages(struct proof *p) {
    for (uint32_t i = 0; i < p->nchannels; i++) {
        struct proof_channel *c = &p->channels[i];
        if (c->sends != c->receives) {
            bool more_sent = c->sends > c->receives;
            return proof_fault(p, SCHED_FAULT_UNMATCHED, (int)(more_sent ? c->from : c->to),
                               UINT32_MAX, UINT32_MAX,
                               "rank %u sends %u messages to rank %u on channel %u, which receives "
                               "%u",
                               c->from, c->sends, c->to, c->number, c->receives);
        }
        c->first = p->nmessages;
        p->nmessages += c->sends;
        c->sends = c->receives = 0;
    }
    p->messages = calloc(p->nmessages + 1u, sizeof *p->messages);
    if (!p->messages)
        return proof_out_of_memory(p);
    for (uint32_t i = 0; i < p->first_step[p->nranks]; i++) {
        struct proof_step *v = &p->steps[i];
        bool sends = v->step->type == SCHED_SEND;
        for (uint32_t k = 0; k < v->step->peers.count; k++) {
            struct proof_channel *c = &p->channels[p->slots[v->message + k]];
            uint32_t message = c->first + (sends ? c->sends++ : c->receives++);
            p->messages[message].channel = (uint32_t)(c - p->channels);
            *(sends ? &p->messages[message].sender : &p->messages[message].receiver) = i;
            p->slots[v->message + k] = message;
        }
    }
    return true;
}

static bool check_message(struct proof *p, const struct proof_message *m) {
    const struct proof_step *from = &p->steps[m->sender], *to = &p->steps[m->receiver];
    bool partial = from->step->flags & SCHED_PARTIAL;
    if (from->nsrc != to->ndst)
        return proof_fault(p, SCHED_FAULT_MESSAGE_SHAPE, (int)to->rank, to->number, UINT32_MAX,
                           "expects %u chunks, and step %u of rank %u sends %u", to->ndst,
                           from->number, from->rank, from->nsrc);
    const struct proof_place *src = p->places + from->src, *dst = p->places + to->dst;
    const struct sched *s = p->schedules[0];
    uint32_t uniform = s->kind == ROTA_KIND_ALL_TO_ALL ? s->chunks_per_block : UINT32_MAX;
    for (uint32_t i = 0; i < to->ndst; i++)
        if (src[i].like % uniform != dst[i].like % uniform)
            return proof_fault(p, SCHED_FAULT_MESSAGE_SHAPE, (int)to->rank, to->number, dst[i].like,
                               "gets chunk %u from step %u of rank %u in its place", src[i].like,
                               from->number, from->rank);
    if (!to->ndst)
        return true;
    if (to->step->type == SCHED_RECV && partial != !!(to->step->flags & SCHED_PARTIAL))
        return proof_fault(p, SCHED_FAULT_REPRESENTATION, (int)to->rank, to->number, dst[0].like,
                           "expects %s, and step %u of rank %u sends %s",
                           partial ? "elements" : "partials", from->number, from->rank,
                           partial ? "partials" : "elements");
    if (to->step->type == SCHED_RECV_REDUCE && partial == !!(to->step->flags & SCHED_LOAD_MESSAGE))
        return proof_fault(p, SCHED_FAULT_LOAD, (int)to->rank, to->number, dst[0].like,
                           "%s what step %u of rank %u sends as %s",
                           partial ? "loads" : "does not load", from->number, from->rank,
                           partial ? "partials" : "elements");
    return true;
}

bool proof_pair_messages(struct proof *p) {
    uint32_t slots = 64;
    while (slots < 2 * p->nslots)
        slots *= 2;
    struct channel_table table = {p, malloc(slots * sizeof *table.slots), slots - 1};
    p->slots = malloc((p->nslots + 1u) * sizeof *p->slots);
    p->channels = malloc((p->nslots + 1u) * sizeof *p->channels);
    bool good = table.slots && p->slots && p->channels;
    if (!good) {
        proof_out_of_memory(p);
    } else {
        memset(table.slots, 0xff, slots * sizeof *table.slots);
        good = count_messages(p, &table) && number_messages(p);
    }
    free(table.slots);
    for (uint32_t i = 0; good && i < p->nmessages; i++)
        good = check_message(p, &p->messages[i]);
    return good;
}
