/* Public functions of communicators. */
#include <rota/comm.h>

#include "api/check.h"
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include "engine/collective.h"
#include "engine/join.h"
#include <rota/collectives.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREAD_RANKS 1024

rota_status rota_unique_id_create(rota_unique_id *id) {
    CHECK_KEEP_ERRNO;
    if (id == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "id is NULL");
    return bootstrap_unique_id(id);
}

static rota_status check_config(const rota_config *config) {
    if (config == NULL)
        return ROTA_OK;
    if (config->size < offsetof(rota_config, store)) /* what it had before it grew */
        return error_raise(ROTA_ERR_ARGUMENT,
                           "config->size is %zu, expected %zu: initialise with ROTA_CONFIG_INIT",
                           config->size, sizeof(*config));
    if (config->nranks < 0)
        return error_raise(ROTA_ERR_ARGUMENT, "config->nranks is %d, expected 1 or more",
                           config->nranks);
    if (config->nranks > 0 && (config->rank < 0 || config->rank >= config->nranks))
        return error_raise(ROTA_ERR_ARGUMENT, "config->rank is %d, expected 0 ... %d", config->rank,
                           config->nranks - 1);
    bool store = config->size >= sizeof(*config) && config->store != NULL;
    int ways = (config->id != NULL) + (config->all_gather != NULL) + store;
    if (config->nranks == 0 && (config->id != NULL || config->all_gather != NULL))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "config->nranks is 0, expected 1 or more with an id or an all-gather");
    if (ways > 1)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "config has several of id, all-gather and store, expected one of them");
    return ROTA_OK;
}

static rota_status check_join(const rota_call *call) {
    rota_status status = check_call(call, true);
    if (status == ROTA_OK && call != NULL &&
        (call->send_mem != NULL || call->recv_mem != NULL || check_group(call) != NULL))
        status = error_raise(ROTA_ERR_ARGUMENT,
                             "call: send_mem, recv_mem and group are not for rota_init");
    return status;
}

rota_status rota_init(const rota_config *config, rota_comm **comm, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    rota_status status = check_config(config);
    if (status == ROTA_OK)
        status = check_join(call);
    return status == ROTA_OK ? join_start(config, call, comm) : status;
}

rota_status rota_init_threads(int nranks, rota_comm **comms, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (comms == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comms is NULL");
    if (nranks < 1 || nranks > MAX_THREAD_RANKS)
        return error_raise(ROTA_ERR_ARGUMENT, "nranks is %d, expected 1 ... %d", nranks,
                           MAX_THREAD_RANKS);
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    struct job **jobs = calloc((size_t)nranks, sizeof(*jobs));
    rota_comm **made = calloc((size_t)nranks, sizeof(*made));
    if (jobs == NULL || made == NULL)
        status = error_raise(ROTA_ERR_MEMORY, "out of memory for %d ranks", nranks);
    if (status == ROTA_OK)
        status = job_open_threads(nranks, jobs);
    int opened = status == ROTA_OK ? nranks : 0;
    rota_numerics numerics = call != NULL ? call->numerics : ROTA_NUMERICS_DEFAULT;
    for (int r = 0; r < opened; r++) {
        rota_status one = join_world(jobs[r], "world", numerics, &made[r]);
        status = status == ROTA_OK ? one : status;
    }
    for (int r = 0; r < opened; r++) {
        if (status == ROTA_OK)
            comms[r] = made[r];
        else if (made[r] != NULL)
            comm_destroy(made[r]);
    }
    free(jobs);
    free(made);
    return status;
}

rota_status rota_comm_finalize(rota_comm *comm, const rota_call *call) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    atomic_store_explicit(&comm->finalizing, true, memory_order_relaxed);
    status = rota_barrier(comm, call);
    if (status == ROTA_OK)
        comm->finalized = true;
    atomic_store_explicit(&comm->finalizing, false, memory_order_relaxed);
    return status;
}

rota_status rota_comm_destroy(rota_comm *comm) {
    CHECK_KEEP_ERRNO;
    return comm != NULL ? comm_destroy(comm) : ROTA_OK;
}

rota_status rota_comm_abort(rota_comm *comm) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    struct job *job = comm->job;
    domain_enter(&job->domain);
    error_raise(ROTA_ERR_ABORTED, "communicator %s was aborted on rank %d", comm->name, comm->rank);
    comm_fail(comm, error_record());
    domain_leave(&job->domain);
    job_run_callbacks(job);
    comm_leave(comm);
    error_clear();
    return ROTA_OK;
}

rota_status rota_comm_rank(const rota_comm *comm, int *rank) {
    if (comm == NULL || rank == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and rank must not be NULL");
    *rank = comm->rank;
    return ROTA_OK;
}

rota_status rota_comm_size(const rota_comm *comm, int *nranks) {
    if (comm == NULL || nranks == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and nranks must not be NULL");
    *nranks = comm->nranks;
    return ROTA_OK;
}

rota_status rota_comm_query(const rota_comm *comm) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    return (rota_status)atomic_load_explicit(&comm->status, memory_order_acquire);
}

rota_status rota_comm_error(const rota_comm *comm, rota_error *error) {
    if (comm == NULL || error == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and error must not be NULL");
    struct job *job = comm->job;
    domain_enter(&job->domain);
    rota_status status = error_copy(&comm->record, error);
    domain_leave(&job->domain);
    return status;
}

rota_status rota_comm_set_numerics(rota_comm *comm, rota_numerics numerics) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    if (numerics == ROTA_NUMERICS_DEFAULT || rota_numerics_name(numerics) == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "numerics is %d, expected a mode", (int)numerics);
    atomic_store_explicit(&comm->numerics, (int)numerics, memory_order_relaxed);
    return ROTA_OK;
}

rota_status rota_comm_set_timeout(rota_comm *comm, int64_t timeout_ms) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    if (timeout_ms <= 0)
        return error_raise(ROTA_ERR_ARGUMENT, "timeout_ms is %lld, expected 1 or more",
                           (long long)timeout_ms);
    atomic_store_explicit(&comm->timeout_ms, timeout_ms, memory_order_relaxed);
    return ROTA_OK;
}
