/* Native groups: the part that the forms share with the making of groups. */
#ifndef TRANSPORTS_SHM_GROUP_H
#define TRANSPORTS_SHM_GROUP_H

#include "transports/shm/shm.h"

#define SHM_GROUP_MEMBERS 256

struct shm_member {
    int rank;
    const struct shm_area *area; /* own: the same as group->area */
    const struct shm_staging *staging;
    const uint8_t *heap; /* NULL: cannot be read */
    size_t heap_bytes;
    /* Of the call: the member's buffers where they are mapped, else NULL: staging has the data. */
    const uint8_t *send, *recv;
    const struct doorbell_line *bell; /* NULL for the own rank */
    int event_fd;
    const struct shm_group_entry *entry; /* found, and of this use */
    uint64_t use;
    bool closed; /* seen closed */
};

/* Where a two-shot call stands. */
enum shm_phase {
    SHM_PHASE_LINES,
    SHM_PHASE_GATHER,
    SHM_PHASE_STAGE,
    SHM_PHASE_REDUCE,
    SHM_PHASE_TAKEN
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
    size_t step;             /* elements of a slice */
    bool known;              /* all lines of the call were read */
    bool mapped;             /* all buffers of the call are: nothing goes through staging */
    bool lent;               /* some member's recv is read in place */
    bool reads;              /* this rank can read the heaps of all others */
    uint64_t sent, received; /* own buffers' places in the heap, as in the line */
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
};

const struct native_form *shm_native_query(const struct native_group *group, rota_kind kind,
                                           size_t bytes, const struct reduce_spec *spec);
struct native_result shm_native_advance(struct native_group *group, const struct native_form *form,
                                        const struct native_call *call, struct native_wait *wait);

#endif
