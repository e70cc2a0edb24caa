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

/* The id is above those of this and earlier splits. Splits of two parents in two threads may still
 * come to the same one; the generation, a hash of the parent's name and its count of splits, tells
 * their children apart. */
static struct comm_name take_name(rota_comm *parent, const struct ballot *all, int count) {
    struct job *job = parent->job;
    uint32_t words[3] = {parent->id, parent->generation, ++parent->splits};
    uint32_t id = 0;
    for (int r = 0; r < count; r++)
        id = all[r].next_id > id ? all[r].next_id : id;
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
    struct comm_name wire_name = take_name(parent, all, parent->nranks);
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

rota_status split_run(rota_comm *parent, int color, int key, const char *name,
                      const rota_call *call, rota_comm **comm) {
    int mode = atomic_load_explicit(&parent->numerics, memory_order_relaxed);
    if (call != NULL && call->numerics != ROTA_NUMERICS_DEFAULT)
        mode = (int)call->numerics;
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
        atomic_store_explicit(&(*comm)->numerics, mode, memory_order_relaxed);
    free(all);
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
