/* Persistent operations. A start pushes the plan on a lock-free stack of its job and kicks the
 * progress thread; whoever progresses next takes the whole stack, turns it round, and lets the runs
 * begin. From there on a run is a request like any other, in its communicator's queue. Until it has
 * ended, the communicator counts it as outstanding, so that no later call overtakes it. */
#include "engine/persistent.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/failure.h"
#include "engine/numerics.h"
#include "engine/progress.h"
#include "engine/record_calls.h"
#include "engine/select.h"
#include "engine/strict.h"
#include <stdlib.h>

struct rota_plan {
    rota_comm *comm; /* NULL: destroyed */
    rota_request *request;
    const void *send;
    void *recv;
    int64_t timeout_ms; /* of each run; 0 = the communicator's */
    bool may_be_native;
    rota_plan *next; /* in job->started */
    LIST_ENTRY(rota_plan) comm_entry;
};

rota_request *persistent_request(rota_plan *plan) {
    return plan->request;
}

rota_comm *persistent_comm(const rota_plan *plan) {
    return plan->comm;
}

bool persistent_take(rota_plan *plan) {
    /* Partner: the store of `done` when the last run ended; its traces in the request come before.
     */
    return atomic_exchange_explicit(&plan->request->done, false, memory_order_acquire);
}

void persistent_put_back(rota_plan *plan) {
    atomic_store_explicit(&plan->request->done, true, memory_order_release);
}

static rota_status prepare(rota_plan *plan, const rota_call *call) {
    struct call_args *args = &plan->request->args;
    rota_comm *comm = plan->comm;
    struct reduce_spec *spec = sched_kind_reduces(args->kind) ? &plan->request->spec : NULL;
    rota_status status = comm_usable(comm);
    if (status != ROTA_OK)
        return status;
    args->numerics = numerics_of_call(comm, args->kind, call);
    if (spec != NULL && (status = comm_make_spec(comm, args, spec)) != ROTA_OK)
        return status;
    if (sched_kind_collective(args->kind)) {
        plan->request->algorithm =
            select_algorithm(comm, call != NULL ? call->algorithm : NULL, args, spec);
        if (plan->request->algorithm == NULL)
            return error_record()->status;
    }
    return spec != NULL ? numerics_prepare(plan->request) : ROTA_OK;
}

rota_status persistent_create(rota_comm *comm, const struct call_args *args, const rota_call *call,
                              rota_plan **out) {
    rota_plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    plan->comm = comm;
    plan->timeout_ms = call != NULL ? call->timeout_ms : 0;
    plan->may_be_native = collective_may_be_native(comm, call) && !select_by_rule(comm, args);
    plan->request = request_create_whole(comm, call);
    if (plan->request == NULL) {
        free(plan);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    }
    plan->request->args = *args;
    plan->request->element_size = rota_dtype_size(args->dtype);
    plan->request->stage = REQUEST_ENDED;
    atomic_store_explicit(&plan->request->done, true, memory_order_relaxed);
    struct job *job = comm->job;
    domain_enter(&job->domain);
    rota_status status = prepare(plan, call);
    if (status == ROTA_OK) {
        LIST_INSERT_HEAD(&comm->persistent, plan, comm_entry);
        progress_want(job, false);
    }
    domain_leave(&job->domain);
    if (status != ROTA_OK) {
        request_release(plan->request);
        free(plan);
        return status;
    }
    *out = plan;
    return ROTA_OK;
}

void persistent_start(rota_plan *plan, const void *send, void *recv) {
    rota_comm *comm = plan->comm;
    struct job *job = comm->job;
    plan->send = send;
    plan->recv = recv;
    /* Here and not when the run begins, since waiters read the deadline outside the domain. */
    plan->request->started_ns = clock_now_ns();
    plan->request->deadline_ns = clock_deadline(
        plan->timeout_ms > 0 ? plan->timeout_ms
                             : atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed));
    if (sched_kind_collective(plan->request->args.kind))
        atomic_fetch_add_explicit(&comm->outstanding, 1, memory_order_relaxed);
    plan->next = atomic_load_explicit(&job->started, memory_order_relaxed);
    /* Release: partner is the exchange in persistent_begin_all. */
    while (!atomic_compare_exchange_weak_explicit(&job->started, &plan->next, plan,
                                                  memory_order_release, memory_order_relaxed))
        ;
    progress_kick(job);
}

/* A run begins: its request is made anew. */
static void begin(rota_plan *plan) {
    rota_comm *comm = plan->comm;
    rota_request *request = plan->request;
    bool collective = sched_kind_collective(request->args.kind);
    request->args.send = plan->send;
    request->args.recv = plan->recv;
    request->stage = REQUEST_QUEUED;
    request->form = NULL;
    request->status = ROTA_OK;
    request->native_waits_for = -1;
    request->p2p = (struct p2p_state){0};
    request->may_be_native = plan->may_be_native;
    request->turn = (struct inquiry_turn){0};
    request->asked_last = false;
    request_watch(request);
    rota_status status = (rota_status)atomic_load_explicit(&comm->status, memory_order_relaxed);
    if (collective) {
        request->sequence = ++comm->sequence;
        if (status == ROTA_OK && comm->strict && comm->nranks > 1 &&
            strict_enqueue(request) != ROTA_OK) {
            rota_error record = *error_record();
            comm_fail(comm, &record);
            return; /* and the run has ended */
        }
        request->queued = true;
        TAILQ_INSERT_TAIL(&comm->queue, request, queue_entry);
        record_request(request);
        failure_call_begins(comm);
    }
    if (status != ROTA_OK) {
        *error_record() = comm->record;
        request_close(request, status);
    } else if (collective) {
        collective_next(comm);
    } else {
        collective_begin_p2p(request);
    }
}

int persistent_begin_all(struct job *job) {
    /* Acquire: partner is the push in persistent_start. */
    rota_plan *plan = atomic_exchange_explicit(&job->started, NULL, memory_order_acquire);
    rota_plan *first = NULL;
    while (plan != NULL) { /* the last one started comes first: turn them round */
        rota_plan *next = plan->next;
        plan->next = first;
        first = plan;
        plan = next;
    }
    int count = 0;
    while (first != NULL) {
        rota_plan *next = first->next;
        begin(first);
        first = next;
        count++;
    }
    return count;
}

void persistent_orphan(rota_comm *comm) {
    rota_plan *plan;
    LIST_FOREACH(plan, &comm->persistent, comm_entry)
    plan->comm = NULL;
}

rota_status persistent_free(rota_plan *plan) {
    if (!persistent_take(plan))
        return error_raise(ROTA_ERR_BUSY, "a run of the plan has not ended");
    struct job *job = plan->request->job;
    domain_enter(&job->domain);
    if (plan->comm != NULL)
        LIST_REMOVE(plan, comm_entry);
    progress_unwant(job);
    domain_leave(&job->domain);
    persistent_put_back(plan);
    request_release(plan->request);
    free(plan);
    return ROTA_OK;
}
