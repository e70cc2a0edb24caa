/* The contract of an algorithm: pure rank arithmetic that emits one rank's schedule. */
#ifndef ALGORITHMS_ALGORITHM_H
#define ALGORITHMS_ALGORITHM_H

#include "schedule/builder.h"

/* What an algorithm may know of the machine, as plain arrays. NULL means: nothing is known. */
struct algorithm_topology {
    int ngroups;         /* hosts */
    const int *group_of; /* by rank */
    const int *ring;     /* ranks in the order in which links join them; NULL: by number */
};

struct algorithm_request {
    rota_kind kind;
    int nranks, rank, root; /* root -1 where the kind has none */
    bool in_place;
    uint32_t lanes; /* lanes it may use, at least 1 */
    const struct algorithm_topology *topology;
};

struct algorithm {
    const char *name;
    const char *help; /* one line: the idea, rounds, bytes */
    uint32_t kinds;   /* bit (1 << rota_kind) */
    /* Whether it can do a kind that is in `kinds` on nranks ranks; NULL: any number. */
    bool (*fits)(rota_kind kind, int nranks);
    /* Emits the steps of request->rank in time proportional to their number. */
    rota_status (*build)(const struct algorithm_request *request, struct sched_builder *builder);
    /* Communication rounds on the critical path, and the bytes that the busiest rank sends or
     * receives, whichever is more, as a fraction of the larger buffer (all nranks blocks), for the
     * price of a call. */
    double (*rounds)(rota_kind kind, int nranks);
    double (*volume)(rota_kind kind, int nranks);
    /* Most chunks that any rank puts into one message, and most scratch chunks of any rank (bounds
     * that all ranks compute alike: slice sizes depend on them); NULL: 1, and 0. */
    uint32_t (*widest)(rota_kind kind, int nranks);
    uint32_t (*scratch)(rota_kind kind, int nranks);
    /* Whether most of what it sends when it reduces are partials, which are wider than elements of
     * narrow types. */
    bool sends_partials;
    /* Whether each result is one step over all operands in the order of the ranks, so that it is
     * the canonical tree on any number of ranks and needs no proof where that would take too long.
     */
    bool always_canonical;
    /* Of one that the program registered (own.h): it has none of the functions above. NULL for
     * those of the table. */
    struct own_algorithm *own;
};

/* The table (algorithms.def), NULL-terminated access by index; by name also those that the program
 * registered. */
const struct algorithm *algorithm_at(int index);
const struct algorithm *algorithm_find(const char *name);
bool algorithm_can(const struct algorithm *algorithm, rota_kind kind, int nranks);
/* Most chunks in a message of any rank, the same on all of them. */
uint32_t algorithm_widest(const struct algorithm *algorithm, rota_kind kind, int nranks, int root);
/* ROTA_OK for those of the table; one of the program's is proven first. Errors:
 * ROTA_ERR_UNSUPPORTED with what is wrong, ROTA_ERR_MEMORY. */
rota_status algorithm_prove(const struct algorithm *algorithm, rota_kind kind, int nranks,
                            int root);
/* Builds and finishes. Errors: ROTA_ERR_UNSUPPORTED, ROTA_ERR_MEMORY, ROTA_ERR_ARGUMENT. */
rota_status algorithm_build(const struct algorithm *algorithm,
                            const struct algorithm_request *request, struct sched **schedule);

#endif
