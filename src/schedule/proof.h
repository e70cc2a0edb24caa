/* Inside of the verifier: the schedules of all ranks laid out flat, and the passes over them.
 *
 * Every list of ranges is expanded once into *places* (a location of the rank's memory and the
 * chunk whose length it has). Messages are paired before anything runs: lanes and channels fix the
 * order of both sides, so the k-th send of a channel meets the k-th receive, whatever the timing.
 * What is left is a graph of steps whose values do not depend on the order in which it is walked,
 * provided that no two lanes race; so one walk proves all executions. */
#ifndef SCHEDULE_PROOF_H
#define SCHEDULE_PROOF_H

#include "schedule/expression.h"
#include "schedule/verify.h"

#define PROOF_NONE UINT32_MAX

/* Location: index into the rank's memory: OUTPUT, then INPUT (in place those that are no OUTPUT
 * are used), then SCRATCH. */
struct proof_place {
    uint32_t location;
    uint32_t like : 30;
    uint32_t buffer : 2;
};

struct proof_step {
    const struct sched_step *step;
    uint32_t rank, number;
    uint32_t src, nsrc, dst, ndst; /* places */
    uint32_t message;              /* first entry of proof.slots, one per peer */
    uint32_t missing;              /* what must complete before it is issued */
    uint32_t pending;              /* messages that it still waits for */
    uint32_t offered;              /* SEND: peers that were served */
    uint32_t lane_next;            /* next send, or receive, of its lane */
    bool issued, complete;
};

struct proof_message {
    uint32_t sender, receiver; /* steps */
    uint32_t channel;
    bool offered;  /* the sender has come to it */
    bool released; /* the sender no longer waits for it */
    bool carried;
};

struct proof_channel {
    uint32_t from, to, number;
    uint32_t send_lane, recv_lane;
    uint32_t sends, receives, first; /* messages of proof.messages */
    uint32_t carried;
};

struct proof_edge {
    uint32_t before, after;
};

/* One value: an expression and how it is represented; PROOF_EMPTY when nothing was written. */
enum proof_form { PROOF_RAW = 0, PROOF_PARTIAL = 1, PROOF_FINISHED = 2 };
#define PROOF_EMPTY UINT32_MAX

struct proof_cell {
    uint32_t node;
    uint32_t like : 29;
    uint32_t form : 2;
    uint32_t written : 1; /* by a step; else it holds an input or nothing */
};

struct proof {
    struct sched *const *schedules;
    uint32_t nranks;
    struct sched_verify_options options;
    struct sched_verdict *verdict;
    rota_status status; /* out of memory */

    uint32_t *first_step;     /* by rank, and the end */
    uint32_t *first_location; /* by rank, and the end */
    struct proof_step *steps;
    struct proof_place *places;
    uint32_t nplaces, place_room;
    uint32_t *slots; /* message of each (step, peer) */
    uint32_t nslots;

    struct proof_message *messages;
    uint32_t nmessages;
    struct proof_channel *channels;
    uint32_t nchannels;

    struct proof_edge *edges; /* hazards and waits, rank by rank */
    uint32_t nedges, edge_room;
    uint32_t *after_begin, *after; /* edges by `before` */
    uint64_t walked;               /* edges, in the search for races */

    struct expressions expressions;
    struct proof_cell *cells;   /* by location */
    struct proof_cell *carried; /* by place: what a send has read */
    uint64_t *heard;            /* barrier: ranks known to have entered, by step */
    uint32_t heard_words;
};

/* Records the first fault; always false, so that passes can return it. */
bool proof_fault(struct proof *p, enum sched_fault fault, int rank, uint32_t step, uint32_t chunk,
                 const char *format, ...) __attribute__((format(printf, 6, 7), cold));
bool proof_out_of_memory(struct proof *p) __attribute__((cold));
const char *proof_step_name(enum sched_step_type type);

/* The passes, in this order; each returns false after a fault or without memory. */
bool proof_check_shape(struct proof *p); /* every rank by itself, fills steps and places */
bool proof_pair_messages(struct proof *p);
bool proof_order_steps(struct proof *p); /* hazards, waits, lanes; races */
/* Part of it, for one rank, whose edges begin with `first_edge`. */
bool proof_check_races(struct proof *p, uint32_t rank, uint32_t first_edge);
bool proof_run(struct proof *p);
bool proof_check_outputs(struct proof *p);

#endif
