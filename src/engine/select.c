/* Selection: every candidate is priced by its rounds, messages and bytes, and the cheapest taken.
 * What enters is agreed: the table of ranks, settings, and the schedule of rank 0. */
#include "engine/select.h"

#include "base/error.h"
#include "engine/executor.h"
#include "engine/numerics.h"

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

static void count_step(const rota_comm *comm, const struct sched *schedule,
                       const struct sched_step *step, struct comm_traffic *traffic,
                       double *far_chunks, double *chunks) {
    struct sched_list data = step->type == SCHED_SEND ? step->src : step->dst;
    double each = sched_list_chunks(schedule, data);
    for (uint32_t p = step->peers.begin; p < step->peers.begin + step->peers.count; p++) {
        bool far = comm->group_of[schedule->peers[p]] != comm->group_of[0];
        *(far ? &traffic->far : &traffic->near) += 1;
        *far_chunks += far ? each : 0;
        *chunks += each;
    }
}

/* What rank 0 sends and receives, counted once from its schedule. */
static const struct comm_traffic *traffic_of(rota_comm *comm, int index,
                                             const struct algorithm *algorithm, rota_kind kind) {
    struct comm_traffic *traffic = &comm->traffic[kind][index];
    if (traffic->counted)
        return traffic;
    traffic->rounds = (float)algorithm->rounds(kind, comm->nranks);
    traffic->volume = (float)algorithm->volume(kind, comm->nranks);
    struct algorithm_request request = {.kind = kind,
                                        .nranks = comm->nranks,
                                        .rank = 0,
                                        .root = sched_kind_rooted(kind) ? 0 : -1,
                                        .lanes = 1,
                                        .topology = &comm->topology};
    struct sched *schedule = NULL;
    if (algorithm_build(algorithm, &request, &schedule) != ROTA_OK)
        return traffic;
    double far_chunks = 0, chunks = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        count_step(comm, schedule, &schedule->steps[i], traffic, &far_chunks, &chunks);
    traffic->far_share = chunks > 0 ? (float)(far_chunks / chunks) : 0;
    traffic->counted = true;
    sched_free(schedule);
    return traffic;
}

/* Ranks that share a core, at the fullest host. */
static double crowding(const struct job *job) {
    double most = 1;
    for (int r = 0; r < job->nranks; r++) {
        int here = 0;
        bool counted = false; /* with a rank before */
        for (int other = 0; other < job->nranks; other++) {
            bool together = job_same_host(job, r, other);
            here += together;
            counted = counted || (together && other < r);
        }
        double cores = counted ? here : bootstrap_host_cores(job->records, job->nranks, r);
        most = (double)here / cores > most ? (double)here / cores : most;
    }
    return most;
}

/* Ranks of the fullest host, which share its way to the others. */
static double ranks_per_host(const rota_comm *comm) {
    return (double)comm->nranks / comm->topology.ngroups;
}

/* A call as far as algorithms must fit it. */
struct wanted {
    rota_kind kind;
    int root;
    rota_numerics mode;
    bool user; /* an operator of the caller's, which asks for the canonical tree in every mode */
    size_t element_size, partial_size;
    bool whole_blocks; /* every message must be one block from its origin to its destination */
};

static double price(rota_comm *comm, int index, const struct algorithm *algorithm, rota_kind kind,
                    size_t bytes, const struct wanted *wanted) {
    bool shared = (comm->job->common_transports & 1u << TRANSPORT_SHM) != 0;
    const struct link_price *near = shared ? &SHM_PRICE : &TCP_PRICE, *far = &TCP_PRICE;
    const struct comm_traffic *traffic = traffic_of(comm, index, algorithm, kind);
    double all = (double)bytes * (double)sched_kind_blocks(kind, comm->nranks);
    double volume = (double)traffic->volume * all;
    if (sched_kind_reduces(kind) && algorithm->sends_partials)
        volume *= (double)wanted->partial_size / (double)wanted->element_size;
    double far_bytes = volume * (double)traffic->far_share, near_bytes = volume - far_bytes;
    double cpu = (double)traffic->near * near->overhead_us +
                 (double)traffic->far * far->overhead_us + near_bytes / near->bytes_per_us +
                 far_bytes * ranks_per_host(comm) / far->bytes_per_us;
    /* With several ranks on a core every round also waits for the others to have their turn. */
    double latency = (traffic->far > 0 ? far : near)->latency_us + (comm->crowding - 1) * TURN_US;
    return (double)traffic->rounds * latency + comm->crowding * cpu;
}

/* One that the program registered does not run before it is proven. */
static bool proven(const rota_comm *comm, const struct algorithm *algorithm,
                   const struct wanted *wanted) {
    return !algorithm_can(algorithm, wanted->kind, comm->nranks) ||
           algorithm_prove(algorithm, wanted->kind, comm->nranks, wanted->root) == ROTA_OK;
}

static bool fits(const rota_comm *comm, const struct algorithm *algorithm,
                 const struct wanted *wanted) {
    return algorithm_can(algorithm, wanted->kind, comm->nranks) &&
           executor_fits(comm, algorithm, wanted->kind, wanted->root, wanted->partial_size) &&
           (!wanted->whole_blocks ||
            (algorithm->own == NULL &&
             algorithm_widest(algorithm, wanted->kind, comm->nranks, wanted->root) <= 1));
}

static bool keeps(rota_comm *comm, const struct algorithm *algorithm, const struct wanted *wanted) {
    return numerics_allows(comm, algorithm, wanted->kind, wanted->root, wanted->mode);
}

static const struct algorithm *refuse(const rota_comm *comm, const struct algorithm *algorithm,
                                      const struct wanted *wanted, const char *origin) {
    const char *hosts = comm->topology.ngroups > 1 ? " placed as they are" : "";
    error_raise(ROTA_ERR_UNSUPPORTED,
                "%salgorithm %s does not keep the canonical tree of %s%s in %s on %d ranks%s",
                origin, algorithm->name, wanted->user ? "user operators" : "mode ",
                wanted->user ? "" : rota_numerics_name(wanted->mode), rota_kind_name(wanted->kind),
                comm->nranks, hosts);
    return NULL;
}

static const struct algorithm *forced_algorithm(rota_comm *comm, const char *name,
                                                const struct wanted *wanted) {
    const struct algorithm *algorithm = algorithm_find(name);
    rota_kind kind = wanted->kind;
    if (algorithm == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "there is no algorithm \"%.40s\"", name);
    else if (!proven(comm, algorithm, wanted))
        return NULL;
    else if (!fits(comm, algorithm, wanted))
        error_raise(ROTA_ERR_UNSUPPORTED, "algorithm %s cannot do %s on %d ranks", name,
                    rota_kind_name(kind), comm->nranks);
    else if (!keeps(comm, algorithm, wanted))
        return refuse(comm, algorithm, wanted, "");
    else
        return algorithm;
    return NULL;
}

/* Bytes per block that all ranks agree on. Where a rank knows its own counts only, a usual size. */
static size_t agreed_bytes(const rota_comm *comm, const struct call_args *args) {
    size_t element = rota_dtype_size(args->dtype), total = 0;
    if (!call_is_vector(args))
        return args->count * element;
    if (call_counts_are_local(args))
        return 4096;
    const size_t *counts = args->send_counts != NULL ? args->send_counts : args->recv_counts;
    for (int r = 0; r < comm->nranks; r++)
        total += counts[r];
    return total / (size_t)comm->nranks * element;
}

const struct algorithm *select_algorithm(rota_comm *comm, const char *forced,
                                         const struct call_args *args,
                                         const struct reduce_spec *spec) {
    /* Without an operator elements count as 8 bytes at least, so that all types are moved alike. */
    size_t element = rota_dtype_size(args->dtype);
    element = spec == NULL && element < 8 ? 8 : element;
    struct wanted wanted = {
        .kind = args->kind,
        .root = args->root,
        .mode = spec != NULL && spec->canonical ? ROTA_NUMERICS_REPRODUCIBLE : args->numerics,
        .user = spec != NULL && spec->canonical,
        .element_size = element,
        .partial_size = spec != NULL ? numerics_partial_size(args->numerics, spec) : element,
        .whole_blocks = call_counts_are_local(args)};
    if (forced != NULL)
        return forced_algorithm(comm, forced, &wanted);
    if (comm->forced != NULL && !proven(comm, comm->forced, &wanted))
        return NULL;
    if (comm->forced != NULL && fits(comm, comm->forced, &wanted)) {
        if (keeps(comm, comm->forced, &wanted))
            return comm->forced;
        if (args->numerics == ROTA_NUMERICS_REPRODUCIBLE) /* one of two wishes cannot be met */
            return refuse(comm, comm->forced, &wanted, "ROTA_ALGORITHM: ");
    }
    if (comm->crowding <= 0)
        comm->crowding = crowding(comm->job);
    const struct algorithm *best = NULL, *algorithm = NULL;
    double best_price = 0;
    size_t bytes = agreed_bytes(comm, args);
    for (int i = 0; i < COMM_MAX_ALGORITHMS && (algorithm = algorithm_at(i)) != NULL; i++) {
        if (!fits(comm, algorithm, &wanted) || !keeps(comm, algorithm, &wanted))
            continue;
        double cost = price(comm, i, algorithm, args->kind, bytes, &wanted);
        if (best == NULL || cost < best_price) {
            best = algorithm;
            best_price = cost;
        }
    }
    if (best == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "no algorithm does %s on %d ranks",
                    rota_kind_name(args->kind), comm->nranks);
    return best;
}
