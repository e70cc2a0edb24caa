/* Verifier: runs the schedules of all ranks symbolically and proves or refutes them. */
#ifndef SCHEDULE_VERIFY_H
#define SCHEDULE_VERIFY_H

#include "schedule/schedule.h"

/* Kinds of fault, for tests and reports; sched_fault_name gives the words. */
enum sched_fault {
    SCHED_FAULT_NONE = 0,
    SCHED_FAULT_SHAPE,          /* fields, ranges, peers or waits out of bounds; ranks disagree */
    SCHED_FAULT_SCRATCH_BOUNDS, /* scratch chunk outside scratch_chunks */
    SCHED_FAULT_LANES,          /* sends (or receives) of one (peer, channel) in two lanes */
    SCHED_FAULT_UNMATCHED,     /* a message is sent and never received, or awaited and never sent */
    SCHED_FAULT_MESSAGE_SHAPE, /* sender and receiver disagree on chunks, lengths, kind */
    SCHED_FAULT_DEADLOCK,      /* no progress with one send and receive per lane, capacity 0 */
    SCHED_FAULT_RACE,          /* two lanes touch a chunk, one writing, with no chain of waits */
    SCHED_FAULT_READ_UNWRITTEN, /* reads scratch or output that nothing has written */
    SCHED_FAULT_INPUT_WRITTEN,  /* writes INPUT out of place */
    SCHED_FAULT_OVERWRITE,      /* in place: an input is overwritten before its last reading */
    SCHED_FAULT_LOAD,           /* a raw operand combined without load, or loaded twice */
    SCHED_FAULT_FINISH,         /* an output without finish, or finished twice */
    SCHED_FAULT_REPRESENTATION, /* partials in an output, or moved with the wrong flag */
    SCHED_FAULT_CONTRIBUTION, /* an output lacks a rank's input, or has one twice, or a wrong one */
    SCHED_FAULT_OUTPUT_MISSING, /* an output chunk is never written */
    SCHED_FAULT_ORDER,          /* operands out of ascending order where it was required */
    SCHED_FAULT_DIFFERENT       /* all_reduce: expressions differ between ranks */
};

struct sched_verdict {
    enum sched_fault fault;
    int rank;       /* where, -1 when it concerns all */
    uint32_t step;  /* UINT32_MAX when it is no single step */
    uint32_t chunk; /* global number, UINT32_MAX when it is none */
    /* Valid when fault is NONE: */
    bool same_on_all_ranks; /* each output chunk has one reduction expression on every rank */
    bool canonical_tree;    /* ... which is the aligned binary tree over ranks */
    bool ascending;         /* operands in ascending rank order everywhere */
    uint32_t max_depth;     /* most additions on a path from an input to an output */
    uint32_t roundings;     /* of a narrow type on such a path, the last one included; 0 in kinds
                               that only move */
    uint64_t messages, steps;
    char text[256]; /* the fault in one sentence naming rank, step and chunk */
};

struct sched_verify_options {
    bool require_ascending;
    /* As in mode fast for narrow types: partials are rounded where they are stored. Two results are
     * then the same only if they are rounded at the same places, and none is canonical. */
    bool rounded_partials;
    uint32_t channel_capacity; /* messages a channel can hold; 0 is what is promised */
};

/* `schedules` holds nranks pointers, by rank. Exact. Returns ROTA_OK when it ran (see
 * verdict->fault), ROTA_ERR_MEMORY, ROTA_ERR_ARGUMENT. Time and memory: about the number of steps
 * times the chunks of a message. */
rota_status sched_verify(struct sched *const *schedules, int nranks,
                         const struct sched_verify_options *options, struct sched_verdict *verdict);
const char *sched_fault_name(enum sched_fault fault);

#endif
