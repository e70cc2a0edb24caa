/* Selection: every candidate is priced by its rounds, messages and bytes, and the cheapest taken.
 * What enters is agreed: the table of ranks, settings, and the schedule of rank 0. */
#include "engine/select.h"

#include "base/error.h"
#include "engine/executor.h"

/* Costs of one message in microseconds and of bytes; measured over loopback and shared memory on
 * small machines. Only the order of candidates depends on them. */
struct link_price {
    double latency_us;  /* a message's way */
    double overhead_us; /* of the processor, for sending or receiving a message */
    double bytes_per_us;
};
static const struct link_price SHM_PRICE = {
    .latency_us = 0.7, .overhead_us = 0.25, .bytes_per_us = 6000};
static const struct link_price TCP_PRICE = {
    .latency_us = 6, .overhead_us = 2.5, .bytes_per_us = 2000};

/* A turn of another rank on the same core: a yield, a poll, and its caches. */
#define TURN_US 10

/* Messages that rank 0 sends and receives, counted once from its schedule. */
static double messages_of(rota_comm *comm, int index, const struct algorithm *algorithm,
                          rota_kind kind) {
    float *known = &comm->messages[kind][index];
    if (*known > 0)
        return (double)*known - 1;
    struct algorithm_request request = {.kind = kind,
                                        .nranks = comm->nranks,
                                        .rank = 0,
                                        .root = sched_kind_rooted(kind) ? 0 : -1,
                                        .lanes = 1,
                                        .topology = &comm->topology};
    struct sched *schedule = NULL;
    if (algorithm_build(algorithm, &request, &schedule) != ROTA_OK)
        return 0;
    *known = (float)schedule->npeers + 1;
    sched_free(schedule);
    return (double)*known - 1;
}

/* Ranks that share a core, at the fullest host. */
static double crowding(const struct job *job) {
    double most = 1;
    for (int r = 0; r < job->nranks; r++) {
        int here = 0;
        for (int other = 0; other < job->nranks; other++)
            here += job_same_host(job, r, other);
        double cores = job->records[r].cores > 0 ? (double)job->records[r].cores : 1;
        most = (double)here / cores > most ? (double)here / cores : most;
    }
    return most;
}

static double price(rota_comm *comm, int index, const struct algorithm *algorithm, rota_kind kind,
                    size_t bytes, const struct reduce_spec *spec) {
    const struct link_price *link = comm->job->shares_memory ? &SHM_PRICE : &TCP_PRICE;
    double all = (double)bytes * (double)sched_kind_blocks(kind, comm->nranks);
    double volume = algorithm->volume(kind, comm->nranks) * all;
    if (spec != NULL && algorithm->sends_partials)
        volume *= (double)spec->partial_size / (double)spec->element_size;
    double cpu =
        messages_of(comm, index, algorithm, kind) * link->overhead_us + volume / link->bytes_per_us;
    /* With several ranks on a core every round also waits for the others to have their turn. */
    double latency = link->latency_us + (comm->crowding - 1) * TURN_US;
    return algorithm->rounds(kind, comm->nranks) * latency + comm->crowding * cpu;
}

static const struct algorithm *forced_algorithm(const rota_comm *comm, const char *name,
                                                rota_kind kind, size_t partial_size) {
    const struct algorithm *algorithm = algorithm_find(name);
    if (algorithm == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "there is no algorithm \"%.40s\"", name);
    else if (!algorithm_can(algorithm, kind, comm->nranks) ||
             !executor_fits(comm, algorithm, kind, partial_size))
        error_raise(ROTA_ERR_UNSUPPORTED, "algorithm %s cannot do %s on %d ranks", name,
                    rota_kind_name(kind), comm->nranks);
    else
        return algorithm;
    return NULL;
}

const struct algorithm *select_algorithm(rota_comm *comm, const char *forced, rota_kind kind,
                                         size_t bytes, const struct reduce_spec *spec) {
    /* Without an operator elements have 8 bytes at most. */
    size_t widest = spec != NULL && spec->partial_size > 0 ? spec->partial_size : 8;
    if (forced != NULL)
        return forced_algorithm(comm, forced, kind, widest);
    if (comm->forced != NULL && algorithm_can(comm->forced, kind, comm->nranks) &&
        executor_fits(comm, comm->forced, kind, widest))
        return comm->forced;
    if (comm->crowding <= 0)
        comm->crowding = crowding(comm->job);
    const struct algorithm *best = NULL, *algorithm = NULL;
    double best_price = 0;
    for (int i = 0; i < COMM_MAX_ALGORITHMS && (algorithm = algorithm_at(i)) != NULL; i++) {
        if (!algorithm_can(algorithm, kind, comm->nranks) ||
            !executor_fits(comm, algorithm, kind, widest))
            continue;
        double cost = price(comm, i, algorithm, kind, bytes, spec);
        if (best == NULL || cost < best_price) {
            best = algorithm;
            best_price = cost;
        }
    }
    if (best == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "no algorithm does %s on %d ranks", rota_kind_name(kind),
                    comm->nranks);
    return best;
}
