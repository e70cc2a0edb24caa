/* Selection: what could run a call, what each would cost, and what is chosen and why.
 * docs/selection.md explains prices, profiles and rules. */
#ifndef ROTA_SELECTION_H
#define ROTA_SELECTION_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Classes of links, which have prices of their own. NATIVE is shared memory as native forms use it,
 * without messages. */
enum {
    ROTA_LINK_SHM = 0,
    ROTA_LINK_TCP = 1,
    ROTA_LINK_VERBS = 2,
    ROTA_LINK_NATIVE = 3,
    ROTA_LINK_COUNT = 4
};
/* "shm", "tcp", "verbs", "native"; NULL for other numbers. */
ROTA_API const char *rota_link_name(int link);

/* One algorithm, or the native form, that a call could be run by. Counts are those of the core
 * of the busiest rank: of that rank, and with more ranks than cores of average ones for the others
 * on its core. Messages and bytes are sent and received together. The price is their sum product
 * with what rounds, messages and bytes cost. */
typedef struct rota_candidate {
    size_t size;
    int count;     /* of candidates for this call */
    char name[32]; /* as rota_algorithm_name has it, or a native form's, as "shm-one-shot" */
    bool native;
    bool able;   /* it can run the call; else `why` says what it lacks, and there are no counts */
    bool chosen; /* it runs the call; `why` says for what reason */
    double price_us;
    double rounds;     /* on the critical path */
    double far_rounds; /* those of them that go between hosts */
    double messages[ROTA_LINK_COUNT], bytes[ROTA_LINK_COUNT];
    double path_bytes; /* of one message per round, which waits to be passed on: sent, received */
    double reduced_bytes; /* read by reductions and local copies */
    char why[256];
    /* The same for all candidates: where the communicator's ranks are, and what is paid for. */
    int hosts;
    double crowding;                            /* ranks per core, at least 1 */
    double latency_us[ROTA_LINK_COUNT];         /* per round */
    double overhead_us[ROTA_LINK_COUNT];        /* per message */
    double us_per_byte[ROTA_LINK_COUNT];        /* sent or received */
    double reduce_us_per_byte[ROTA_LINK_COUNT]; /* by algorithms whose messages go this way */
    int measured_ranks; /* in the placement of the profile that was used; 0: prices are built in */
} rota_candidate;

#define ROTA_CANDIDATE_INIT ROTA_SIZED(rota_candidate)

/* The `index`-th candidate (from 0, until candidate->count) for a call of `kind` with these
 * arguments; `count`, `dtype`, `op` and `root` are those of the call, where it has them, and `call`
 * may name algorithm and numerics. Nothing is communicated, and what is told is what would happen
 * if all ranks made the call now; native forms are known after the first collective on the
 * communicator. Any thread.
 * Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY, and the communicator's where it has ended. Where the
 * call would be refused, ROTA_OK and no candidate that is chosen. */
ROTA_API rota_status rota_comm_candidate(rota_comm *comm, rota_kind kind, size_t count,
                                         rota_dtype dtype, rota_op op, int root,
                                         const rota_call *call, int index,
                                         rota_candidate *candidate);

/* The profile that ROTA_PROFILE names now, in one line: "none", or its fingerprint (a hash of what
 * it says, equal on all ranks of a job), path and placements. Errors: ROTA_ERR_ARGUMENT (NULL,
 * size 0), ROTA_ERR_SETTING (what it names is no profile of this machine), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_profile_describe(char *text, size_t size);

/* Processor and cores of this machine, as a profile names it. */
ROTA_API const char *rota_machine_name(void);

#ifdef __cplusplus
}
#endif
#endif
