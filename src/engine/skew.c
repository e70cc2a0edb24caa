/* Arrival skew. A native form says whom it waits for, so its pauses are charged in full. A thread
 * that waits for a request looks into the executor: first when its first polls have found nothing,
 * then every 64th turn and before each sleep. The time until the next sample is divided among the
 * peers that were awaited at the sample, so the sum over peers is never more than the time waited.
 * Waits that end within the first polls cost nothing and are not seen. */
#include "engine/skew.h"

#include "engine/comm.h"
#include "engine/executor.h"
#include "engine/record_calls.h"
#include <stdlib.h>

/* Turns between two samples while the wait does not sleep. */
#define SAMPLE_PAUSES 64

struct skew *skew_of(rota_comm *comm) {
    struct skew *skew = atomic_load_explicit(&comm->skew, memory_order_acquire);
    if (skew != NULL)
        return skew;
    skew = calloc(1, sizeof(*skew) + (size_t)comm->nranks * sizeof(skew->peers[0]));
    if (skew == NULL)
        return NULL;
    atomic_init(&skew->references, 1);
    skew->nranks = comm->nranks;
    struct skew *before = NULL;
    /* Partner: the acquire above and in those who read; the table is zeroed before. */
    if (atomic_compare_exchange_strong_explicit(&comm->skew, &before, skew, memory_order_acq_rel,
                                                memory_order_acquire))
        return skew;
    free(skew);
    return before;
}

void skew_drop(struct skew *skew) {
    /* Partner: the other droppers; the last one frees what all have written. */
    if (skew != NULL && atomic_fetch_sub_explicit(&skew->references, 1, memory_order_acq_rel) == 1)
        free(skew);
}

size_t skew_memory(const rota_comm *comm) {
    const struct skew *skew = atomic_load_explicit(&comm->skew, memory_order_acquire);
    return skew != NULL ? sizeof(*skew) + (size_t)skew->nranks * sizeof(skew->peers[0]) : 0;
}

void skew_add(struct skew *skew, int peer, int64_t ns, bool fresh) {
    if (skew == NULL || peer < 0 || peer >= skew->nranks || ns < 0)
        return;
    struct skew_entry *entry = &skew->peers[peer];
    atomic_fetch_add_explicit(&entry->waited_ns, (uint64_t)ns, memory_order_relaxed);
    if (fresh)
        atomic_fetch_add_explicit(&entry->waits, 1, memory_order_relaxed);
}

/* Charges the time since the last sample. A wire per channel may name a peer more than once: then
 * it gets as many shares. */
static void charge(struct skew_watch *watch, int64_t now_ns) {
    for (int i = 0; i < watch->npeers && watch->since_ns != 0; i++)
        skew_add(watch->skew, watch->peers[i], (now_ns - watch->since_ns) / watch->npeers, false);
}

static bool was_awaited(const int *peers, int npeers, int peer) {
    for (int i = 0; i < npeers; i++)
        if (peers[i] == peer)
            return true;
    return false;
}

static void sample(struct skew_watch *watch, rota_request *request) {
    struct domain *domain = &request->job->domain;
    if (!domain_try_enter(domain))
        return; /* the last sample stays good until the next */
    int peers[SKEW_MAX_PEERS], npeers = 0;
    /* One that only stands for others has no elements; its communicator may be gone. */
    if (request->stage != REQUEST_ENDED && request->element_size > 0) {
        npeers = request_awaited(request, peers, SKEW_MAX_PEERS);
        record_request_waits(request, npeers > 0 ? peers[0] : -1);
        if (watch->skew == NULL && npeers > 0) {
            watch->skew = skew_of(request->comm);
            if (watch->skew != NULL)
                atomic_fetch_add_explicit(&watch->skew->references, 1, memory_order_relaxed);
        }
    }
    domain_leave(domain);
    int64_t now = clock_now_ns();
    charge(watch, now);
    for (int i = 0; i < npeers; i++)
        if (!was_awaited(watch->peers, watch->npeers, peers[i]) && !was_awaited(peers, i, peers[i]))
            skew_add(watch->skew, peers[i], 0, true);
    for (int i = 0; i < npeers; i++)
        watch->peers[i] = peers[i];
    watch->npeers = npeers;
    watch->since_ns = now;
}

void skew_watch_pause(struct skew_watch *watch, rota_request *request,
                      const struct domain_wait *wait) {
    if (wait->turns == wait->quiet) { /* something happened, or it is the first turn */
        if (watch->since_ns != 0)
            charge(watch, clock_now_ns());
        watch->since_ns = 0;
        watch->pauses = 0;
        return;
    }
    bool sleeps = domain_wait_sleeps(&request->job->domain, wait);
    if (sleeps || watch->pauses % SAMPLE_PAUSES == 0)
        sample(watch, request);
    watch->pauses++;
}

void skew_watch_end(struct skew_watch *watch) {
    if (watch->since_ns != 0)
        charge(watch, clock_now_ns());
    skew_drop(watch->skew);
}
