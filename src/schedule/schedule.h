/* The schedule: what one rank does for one collective, independent of size, type and alignment.
 *
 * Data are chunks. A collective works on `blocks` blocks (1 for all_reduce, reduce, broadcast;
 * nranks for all_gather, reduce_scatter, all_to_all, gather, scatter; 0 for barrier) of
 * `chunks_per_block` chunks each; the *global number* of a chunk is block * chunks_per_block + sub.
 * Buffers number theirs so:
 *
 *   kind            INPUT                      OUTPUT
 *   all_reduce      global                     global
 *   reduce          global                     global (root only)
 *   broadcast       global (root only)         global
 *   all_gather      0..cpb-1 of block `rank`   global, block b from rank b
 *   reduce_scatter  global, block b for rank b 0..cpb-1 of block `rank`
 *   all_to_all      global, block b to rank b  global, block b from rank b
 *   gather          0..cpb-1 of block `rank`   global, block b from rank b (root only)
 *   scatter         global, block b to rank b  0..cpb-1 of block `rank`
 *                   (root only)
 *   scan            global                     global, ranks 0 .. `rank` combined
 *   exclusive_scan  global                     global, ranks below combined (none on rank 0)
 *
 * How many elements chunk i holds is decided when a plan is made (chunk_map.h), so SCRATCH chunks
 * name the chunk whose length they have (`like`).
 *
 * A *lane* orders work inside a rank: its sends are issued in order, its receives are issued in
 * order; between a send, a receive and local steps only hazards (two accesses to the same chunk of
 * the same buffer, one writing, the earlier first) and named waits decide. In place, INPUT and
 * OUTPUT are one buffer. A *channel* orders messages between two ranks; all sends of one (peer,
 * channel) lie in one lane and so do all receives. Accesses of different lanes to one chunk, one
 * writing, must be joined by a chain of waits.
 *
 * A send to several peers serves them in the order of its list. A receive from several peers takes
 * their messages as they come: one that has come is held until the last one is there, and its
 * sender goes on to its next send meanwhile.
 *
 * Representation. INPUT chunks are *raw* elements. In kinds that reduce, an operand is widened when
 * it is first read (*load*) and results are rounded once when an output is completed (*finish*);
 * between, values are *partials* (their type is the plan's affair) and live in SCRATCH or messages
 * only. So of a RECV_REDUCE or REDUCE: the received operands are raw when SCHED_LOAD_MESSAGE is
 * set, else partial; the local ones raw when SCHED_LOAD_LOCAL is set, else partial; dst is a
 * finished element when SCHED_FINISH is set, else partial. SEND, RECV and COPY move bytes: partials
 * when SCHED_PARTIAL is set, else elements (raw or finished). */
#ifndef SCHEDULE_SCHEDULE_H
#define SCHEDULE_SCHEDULE_H

#include <rota/types.h>

enum sched_buffer { SCHED_INPUT = 0, SCHED_OUTPUT = 1, SCHED_SCRATCH = 2 };

enum sched_step_type {
    SCHED_SEND = 0,        /* src to every peer of `peers` */
    SCHED_RECV = 1,        /* message of the one peer to dst */
    SCHED_RECV_REDUCE = 2, /* messages of the ordered peers and, unless src is empty, src, to dst */
    SCHED_COPY = 3,        /* src to dst */
    SCHED_REDUCE = 4 /* `operands` equal parts of src, in order, to dst; one operand converts */
};

enum sched_flags {
    SCHED_LOAD_MESSAGE = 1,
    SCHED_LOAD_LOCAL = 2,
    SCHED_FINISH = 4,
    SCHED_PARTIAL = 8
};

/* `reps` runs of `count` chunks; run r begins at chunk first + r * stride. For SCRATCH, chunk i of
 * run r has the length of the chunk with global number like + r * like_stride + i. */
struct sched_range {
    enum sched_buffer buffer;
    uint32_t first, count, stride, reps;
    uint32_t like, like_stride;
};

/* Slice [begin, begin + count) of one of the schedule's arrays. */
struct sched_list {
    uint32_t begin, count;
};

static inline bool sched_receives(enum sched_step_type type) {
    return type == SCHED_RECV || type == SCHED_RECV_REDUCE;
}

struct sched_step {
    enum sched_step_type type;
    uint32_t flags; /* enum sched_flags */
    uint32_t lane;
    uint32_t channel; /* SEND, RECV, RECV_REDUCE */
    /* RECV_REDUCE: how many received operands stand left of the local one. The reduction is the
     * aligned binary tree over operand positions: node(i, k) = node(i, k-1) + node(i + 2^(k-1),
     * k-1), absent positions drop out. With one peer, 0 puts the local operand left, 1 right. */
    uint32_t position;
    uint32_t operands;       /* REDUCE: number of equal parts of src */
    struct sched_list peers; /* of schedule.peers */
    struct sched_list src;   /* of schedule.ranges */
    struct sched_list dst;   /* of schedule.ranges */
    struct sched_list waits; /* of schedule.waits: indices of earlier or later steps, other lanes */
};

/* Steps in the order of the program; a step's number is its index. A message is a *token* when the
 * SEND's src, or the RECV's dst, is empty; tokens carry no data and are never skipped. */
struct sched {
    rota_kind kind;
    int nranks, rank, root; /* root is -1 where the kind has none */
    bool in_place;
    uint32_t blocks, chunks_per_block;
    uint32_t scratch_chunks;
    uint32_t lanes, channels; /* one more than the largest used */
    uint32_t nsteps, nranges, npeers, nwaits;
    struct sched_step *steps;
    struct sched_range *ranges;
    int *peers;
    uint32_t *waits;
};

void sched_free(struct sched *schedule);

/* "all_reduce", ...: the names of rota_kind_name, for the kinds that have schedules; else NULL. */
const char *sched_kind_name(rota_kind kind);
/* Whether the kind has schedules: all but send and receive. */
static inline bool sched_kind_collective(rota_kind kind) {
    return (unsigned)kind < ROTA_KIND_COUNT && kind != ROTA_KIND_SEND && kind != ROTA_KIND_RECV;
}
/* Whether the kind has a root / combines values / combines only those of ranks up to the own. */
bool sched_kind_rooted(rota_kind kind);
bool sched_kind_reduces(rota_kind kind);
bool sched_kind_scans(rota_kind kind);
/* Number of blocks of a kind. */
uint32_t sched_kind_blocks(rota_kind kind, int nranks);
/* Number of chunks in the INPUT and OUTPUT buffer of this rank (0 where it has none). */
uint32_t sched_input_chunks(const struct sched *schedule);
uint32_t sched_output_chunks(const struct sched *schedule);
/* Global number of chunk `index` of INPUT or OUTPUT. */
uint32_t sched_global_chunk(const struct sched *schedule, enum sched_buffer buffer, uint32_t index);
/* In place, the OUTPUT chunk that is the same memory as INPUT chunk `index`, else UINT32_MAX. */
uint32_t sched_input_alias(const struct sched *schedule, uint32_t index);

/* Total chunks that a list of ranges names. */
uint32_t sched_list_chunks(const struct sched *schedule, struct sched_list list);

#endif
