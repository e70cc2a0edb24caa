/* Native groups: the part that the forms share with the making of groups. */
#ifndef TRANSPORTS_SHM_GROUP_H
#define TRANSPORTS_SHM_GROUP_H

#include "transports/shm/shm.h"

#define SHM_GROUP_MEMBERS 256
/* What is copied into outputs from this size on passes the caches, which hold no more of them. */
#define SHM_STREAM_BYTES ((size_t)8 * 1024 * 1024)
/* Sums from this size on may read buffers in place. */
#define SHM_MAPPED_BYTES ((size_t)256 * 1024)
/* Members' parts of a slice begin at multiples of this many elements. */
#define SHM_CHUNK_ELEMENTS 64

struct shm_member {
    int rank;
    const struct shm_area *area; /* own: the same as group->area */
    const struct shm_staging *staging;
    const uint8_t *heap; /* NULL: cannot be read */
    size_t heap_bytes;
    /* Of the call: the member's buffers where they are mapped, else NULL: staging has the data. */
    const uint8_t *send, *recv;
    uint64_t received, fetched;       /* last seen of its counters */
    const struct doorbell_line *bell; /* NULL for the own rank */
    int event_fd;
    const struct shm_group_entry *entry; /* found, and of this use */
    uint64_t use;
    bool closed; /* seen closed */
};

/* How the blocks of a kind travel; see flow.c. */
struct shm_flow;

/* Who reads what a member has written to a post or a move. */
#define SHM_ALL (-1)
struct shm_written {
    uint64_t number; /* of the rooted call, or of the slice, counted from 1; 0: nobody reads it */
    int reader;      /* a member, or SHM_ALL */
};

/* How members are divided; levels.c. */
struct shm_levels {
    int block;       /* members of a block, a power of two; 0: they are not divided */
    int blocks;      /* the last one may be smaller */
    int first, size; /* of the own block */
    bool always;     /* at every size */
    const struct shm_level_forms *forms;
    uint64_t far_bytes; /* that this member has read of other blocks, for tests */
};

enum shm_room { SHM_ROOM_LINE, SHM_ROOM_SLOT, SHM_ROOM_MOVE };

/* Where a call stands that runs in slices. */
enum shm_phase {
    SHM_PHASE_LINES,
    SHM_PHASE_GATHER,
    SHM_PHASE_STAGE,
    SHM_PHASE_REDUCE,
    SHM_PHASE_LEVELS, /* and the steps of a levelled turn */
    SHM_PHASE_TAKEN = SHM_PHASE_LEVELS + SHM_LEVEL_STEPS
};

struct native_group {
    /* What every call reads. */
    struct shm_area *area;
    struct shm_staging *staging;
    int n, self;
    int polls;         /* before the first pause */
    uint64_t sequence; /* of the last call begun */
    uint64_t word;     /* fingerprint as it stands in this rank's line */
    bool running;      /* a call was begun and not finished */
    int peer;          /* member that is waited for next */
    enum shm_phase phase;
    size_t slice;            /* of the call */
    uint64_t slices;         /* before the call */
    size_t step;             /* elements of a slice; of other kinds than all_reduce bytes */
    bool known;              /* all lines of the call were read */
    bool mapped;             /* all buffers of the call are: nothing goes through staging */
    bool lent;               /* some member's recv is read in place */
    uint64_t sent, received; /* own buffers' places in the heap, as in the line */
    /* All kinds but all_reduce and barrier. */
    const struct shm_flow *flow; /* of the call */
    uint64_t posts;              /* rooted calls begun */
    uint64_t moves;              /* slices before the call */
    bool gives, takes;           /* this member is read by others; it reads others */
    int reader;                  /* who reads it */
    int first, last;             /* members that it reads */
    enum shm_room room;          /* where that stands which is given */
    unsigned place;              /* of the call's lines */
    uint64_t number;             /* in them */
    size_t nslices;
    bool streams; /* what is taken is written past the caches */
    struct shm_written post[SHM_POSTS], move[SHM_MOVES];
    enum cpu_isa isa;
    bool near, far; /* the others are seen to run on this core too, or to share no cache with it */
    uint64_t unfetched; /* the last call that did not fetch the next one's line */
    struct shm_member *members;
    struct reduce_operand *operands; /* n, scratch */
    /* Making and closing. */
    struct native_group *next; /* in shm->groups */
    struct shm *shm;
    uint64_t key;
    uint32_t index; /* in the table of groups */
    struct shm_group_entry *entry;
    size_t area_offset, area_bytes; /* 0: none */
    uint32_t forms;                 /* this rank's, then what all have */
    uint8_t outcome;                /* enum shm_group_state */
    bool agreed, closed;
    struct shm_levels levels;
};

/* -- all_reduce.c ---------------------------------------------------------------------------- */
const struct native_form *shm_native_query(const struct native_group *group, rota_kind kind,
                                           size_t bytes, const struct reduce_spec *spec);
struct native_result shm_native_advance(struct native_group *group, const struct native_form *form,
                                        const struct native_call *call, struct native_wait *wait);

/* Largest one-shot all-reduce. */
size_t shm_one_shot_limit(int n);

/* -- levels.c -------------------------------------------------------------------------------- */

/* All members are connected: divides them, all in the same way. */
void shm_levels_divide(struct native_group *group);
/* The levelled form for a call; NULL: the flat ones run it. */
const struct native_form *shm_level_query(const struct native_group *group, rota_kind kind,
                                          size_t bytes, const struct reduce_spec *spec);
struct native_result shm_level_advance(struct native_group *group, const struct native_form *form,
                                       const struct native_call *call, struct native_wait *wait);

/* -- flow.c: all kinds but all_reduce and barrier -------------------------------------------- */
const struct native_form *shm_flow_query(const struct native_group *group, rota_kind kind,
                                         size_t bytes, const struct reduce_spec *spec);
struct native_result shm_flow_advance(struct native_group *group, const struct native_form *form,
                                      const struct native_call *call, struct native_wait *wait);
/* Waits until nobody reads this rank's moves any more: their memory is that of `stage`. */
enum native_outcome shm_moves_settle(struct native_group *group, struct native_wait *wait);

#endif
