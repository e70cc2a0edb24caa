/* Splitting: one small all-gather tells everybody's color, key and highest communicator id; the
 * rest is local. The new id is above any that a member has used, so no pair of ranks ever has two
 * communicators of one id. Nothing else is made until the communicator is used: no descriptor, no
 * thread, no mapping, no stream. */
#include "engine/split.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/executor.h"
#include "engine/plan.h"
#include "engine/select.h"
#include <rota/comm.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* What each rank tells. Sent between ranks, so its layout is fixed. */
struct ballot {
    int32_t color, key;
    uint32_t next_id;
    uint32_t unused;
};
_Static_assert(sizeof(struct ballot) == 16, "gathered as 16 bytes");

/* A member of the new communicator. */
struct place {
    int key;
    int rank; /* in the parent */
};

static int compare_places(const void *left, const void *right) {
    const struct place *a = left, *b = right;
    if (a->key != b->key)
        return a->key < b->key ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static rota_status gather(rota_comm *parent, const struct ballot *mine, struct ballot *all,
                          const rota_call *call) {
    rota_call blocking = ROTA_CALL_INIT;
    if (call != NULL) {
        blocking.timeout_ms = call->timeout_ms;
        blocking.label = call->label;
    }
    struct call_args args = {.kind = ROTA_KIND_ALL_GATHER,
                             .send = mine,
                             .recv = all,
                             .count = sizeof(*mine) / sizeof(uint32_t),
                             .dtype = ROTA_UINT32,
                             .root = -1};
    return collective_run(parent, &args, call != NULL ? &blocking : NULL);
}

/* The ranks of this rank's color, in the order of (key, parent's rank), as ranks of the job. */
static int choose(const rota_comm *parent, const struct ballot *all, struct place *places,
                  int *members, int *self) {
    int count = 0;
    for (int r = 0; r < parent->nranks; r++)
        if (all[r].color == all[parent->rank].color)
            places[count++] = (struct place){.key = all[r].key, .rank = r};
    qsort(places, (size_t)count, sizeof(*places), compare_places);
    for (int i = 0; i < count; i++) {
        members[i] = parent->members[places[i].rank];
        if (places[i].rank == parent->rank)
            *self = i;
    }
    return count;
}

struct comm_name split_name(const rota_comm *parent, uint32_t id, uint32_t number) {
    struct job *job = parent->job;
    uint32_t words[3] = {parent->id, parent->generation, number};
    domain_enter(&job->domain);
    if (job->next_comm <= id)
        job->next_comm = id + 1;
    domain_leave(&job->domain);
    return (struct comm_name){.id = id, .generation = (uint32_t)XXH3_64bits(words, sizeof(words))};
}

static rota_status make(rota_comm *parent, const struct ballot *all, const char *name,
                        rota_comm **comm) {
    size_t n = (size_t)parent->nranks;
    struct place *places = malloc(n * sizeof(*places));
    int *members = malloc(n * sizeof(*members));
    rota_status status = ROTA_OK;
    int self = 0;
    if (places == NULL || members == NULL)
        status = error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    uint32_t id = 0;
    for (int r = 0; r < parent->nranks; r++)
        id = all[r].next_id > id ? all[r].next_id : id;
    struct comm_name wire_name = split_name(parent, id, ++parent->splits);
    if (status == ROTA_OK && all[parent->rank].color == ROTA_COLOR_UNDEFINED) {
        *comm = NULL;
    } else if (status == ROTA_OK) {
        int count = choose(parent, all, places, members, &self);
        status = comm_create(parent->job, name, members, count, self, wire_name, comm);
    }
    free(places);
    free(members);
    return status;
}

/* The new communicator's mode: the call's, else the parent's. */
static void inherit(const rota_comm *parent, const rota_call *call, rota_comm *comm) {
    int mode = atomic_load_explicit(&parent->numerics, memory_order_relaxed);
    if (call != NULL && call->numerics != ROTA_NUMERICS_DEFAULT)
        mode = (int)call->numerics;
    atomic_store_explicit(&comm->numerics, mode, memory_order_relaxed);
}

rota_status split_run(rota_comm *parent, int color, int key, const char *name,
                      const rota_call *call, rota_comm **comm) {
    struct ballot *all = malloc((size_t)parent->nranks * sizeof(*all));
    if (all == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a split");
    struct ballot mine = {.color = color, .key = key};
    domain_enter(&parent->job->domain);
    mine.next_id = parent->job->next_comm++;
    domain_leave(&parent->job->domain);
    rota_status status = gather(parent, &mine, all, call);
    if (status == ROTA_OK)
        status = make(parent, all, name, comm);
    if (status == ROTA_OK && *comm != NULL)
        inherit(parent, call, *comm);
    free(all);
    return status;
}

/* -- groups -------------------------------------------------------------------------------------
 * The members alone must come to a name that no other communicator of a pair of them has, without a
 * word: a hash of parent, list, tag and how often these were used together. The high bit keeps its
 * id apart from those that splits hand out, and 63 bits of hash from other groups. */

#define GROUP_ID 0x80000000u

/* Of a list and tag: how many groups they made. Inside the domain. */
static bool count_group(rota_comm *parent, uint64_t list, uint32_t *count) {
    int i = 0;
    while (i < parent->ngroups && parent->groups[i].list != list)
        i++;
    if (i == parent->ngroups) {
        struct comm_groups *groups =
            realloc(parent->groups, (size_t)(i + 1) * sizeof(*parent->groups));
        if (groups == NULL)
            return false;
        parent->groups = groups;
        parent->groups[parent->ngroups++] = (struct comm_groups){.list = list};
    }
    *count = ++parent->groups[i].count;
    return true;
}

static rota_status name_group(rota_comm *parent, const int *ranks, int nranks, int tag,
                              struct comm_name *name) {
    uint64_t seed = (uint64_t)parent->id << 32 | parent->generation;
    uint64_t list = XXH3_64bits_withSeed(ranks, (size_t)nranks * sizeof(*ranks), (uint64_t)tag);
    uint32_t count = 0;
    domain_enter(&parent->job->domain);
    rota_status status = comm_usable(parent);
    if (status == ROTA_OK && !count_group(parent, list, &count))
        status = error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    domain_leave(&parent->job->domain);
    uint64_t words[2] = {list, count};
    uint64_t hash = XXH3_64bits_withSeed(words, sizeof(words), seed);
    *name =
        (struct comm_name){.id = (uint32_t)(hash >> 32) | GROUP_ID, .generation = (uint32_t)hash};
    return status;
}

rota_status split_group(rota_comm *parent, const int *ranks, int nranks, int tag, const char *name,
                        const rota_call *call, rota_comm **comm) {
    int *members = malloc((size_t)nranks * sizeof(*members));
    if (members == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    int self = 0;
    for (int i = 0; i < nranks; i++) {
        members[i] = parent->members[ranks[i]];
        self = ranks[i] == parent->rank ? i : self;
    }
    struct comm_name wire_name;
    rota_status status = name_group(parent, ranks, nranks, tag, &wire_name);
    if (status == ROTA_OK)
        status = comm_create(parent->job, name, members, nranks, self, wire_name, comm);
    if (status == ROTA_OK)
        inherit(parent, call, *comm);
    free(members);
    return status;
}

size_t split_memory(rota_comm *comm) {
    domain_enter(&comm->job->domain);
    size_t bytes = sizeof(*comm) + (size_t)comm->nranks * 2 * sizeof(int) +
                   executor_memory(comm->executor) + plan_memory(comm->plans) +
                   p2p_memory(comm->p2p) + skew_memory(comm) + select_memory(comm);
    domain_leave(&comm->job->domain);
    return bytes;
}
