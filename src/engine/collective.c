/* From a call to its execution. Which way a call goes (native form, algorithm) depends only on
 * what all ranks know: kind, size, type, operator, settings, and what the communicator agreed on
 * when it was first used. */
#include "engine/collective.h"

#include "base/error.h"
#include "base/probe.h"
#include "engine/executor.h"
#include "engine/failure.h"
#include "engine/native_run.h"
#include "engine/numerics.h"
#include "engine/persistent.h"
#include "engine/plan.h"
#include "engine/record_calls.h"
#include "engine/repeat.h"
#include "engine/select.h"
#include "engine/staging.h"
#include "engine/strict.h"
#include <sched.h>

/* -- requests -----------------------------------------------------------------------------------
 */

static void fail_start(rota_request *request) {
    /* The other ranks go on with this call: this one cannot, so the communicator is done for. */
    comm_fail(request->comm, error_record());
}

/* Runs the request by its schedule. */
static void start_schedule(rota_request *request) {
    rota_comm *comm = request->comm;
    const struct call_args *args = &request->args;
    request->stage = REQUEST_RUNNING;
    uint64_t fingerprint = request->like != NULL ? request->like->by_algorithm
                                                 : call_fingerprint(comm, args, request->algorithm);
    request->fingerprint = comm_chain(comm, fingerprint);
    comm_note_algorithm(comm, args->kind, request->algorithm->name);
    record_request_runs(request, request->algorithm->name, false);
    struct plan *plan = NULL;
    rota_status status = plan_get(comm, request->algorithm, args->kind, args->root,
                                  call_in_place(comm, args, request->element_size), &plan);
    if (status == ROTA_OK)
        status = executor_start(comm->executor, request, plan);
    if (status != ROTA_OK)
        fail_start(request);
}

/* The communicator knows its native forms: native or by schedule. */
static void dispatch(rota_request *request) {
    rota_comm *comm = request->comm;
    request->form = NULL;
    if (request->may_be_native && !call_is_vector(&request->args) &&
        atomic_load_explicit(&comm->native_state, memory_order_relaxed) == NATIVE_READY)
        request->form = comm->native_ops->query(
            comm->native, request->args.kind, request->args.count * request->element_size,
            sched_kind_reduces(request->args.kind) ? &request->spec : NULL);
    if (request->form == NULL) {
        request_poll(request, false);
        start_schedule(request);
        return;
    }
    request->fingerprint = comm_chain(comm, call_fingerprint(comm, &request->args, NULL));
    record_request_runs(request, request->form->name, true);
    rota_status status = staging_in(request);
    if (status != ROTA_OK) {
        fail_start(request);
        return;
    }
    request->stage = request->copy != NULL ? REQUEST_STAGING_IN : REQUEST_NATIVE;
    request_poll(request, true);
}

static bool poll_copy(rota_request *request) {
    rota_status status = ROTA_OK;
    if (!staging_ended(request, &status))
        return false;
    if (status != ROTA_OK) {
        comm_fail(request->comm, error_record());
    } else if (request->stage == REQUEST_STAGING_OUT) {
        request_close(request, ROTA_OK);
    } else if (!sched_kind_collective(request->args.kind)) {
        request_poll(request, false);
        request->stage = REQUEST_RUNNING;
        p2p_start(request);
    } else {
        request->stage = REQUEST_NATIVE;
    }
    return true;
}

bool collective_poll(rota_request *request) {
    switch (request->stage) {
    case REQUEST_QUEUED:
        request_poll(request, false);
        collective_next(request->comm);
        return true;
    case REQUEST_CONNECTING:
        if (!native_connect(request->comm))
            return false;
        dispatch(request);
        return true;
    case REQUEST_STAGING_IN:
    case REQUEST_STAGING_OUT:
        return poll_copy(request);
    case REQUEST_NATIVE:
        return native_advance(request);
    default:
        return false;
    }
}

void collective_next(rota_comm *comm) {
    rota_request *request = TAILQ_FIRST(&comm->queue);
    if (request == NULL || request->stage != REQUEST_QUEUED ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK || comm->held != NULL)
        return;
    if (request->may_be_native && !native_connect(comm)) {
        if (atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
            return; /* and the request is gone */
        request->stage = REQUEST_CONNECTING;
        request_poll(request, true);
        return;
    }
    dispatch(request);
}

/* -- entry --------------------------------------------------------------------------------------
 */

/* Inside the domain: makes the request and puts it at the end of the queue. */
static rota_request *enqueue(rota_comm *comm, const struct call_args *args,
                             const struct reduce_spec *spec, const rota_call *call,
                             const struct comm_repeat *like) {
    const struct algorithm *algorithm =
        like != NULL ? like->algorithm
                     : select_algorithm(comm, call != NULL ? call->algorithm : NULL, args, spec);
    if (algorithm == NULL)
        return NULL;
    rota_request *request = request_create(comm, args, call);
    if (request == NULL)
        return NULL;
    if (spec != NULL)
        request->spec = *spec;
    if ((args->vector &&
         call_keep_tables(&request->args, comm->nranks, &request->tables) != ROTA_OK) ||
        (spec != NULL && numerics_prepare(request) != ROTA_OK)) {
        request->freed = true;
        request_close(request, error_record()->status);
        return NULL;
    }
    request->algorithm = algorithm;
    request->like = like;
    request->may_be_native =
        like == NULL && collective_may_be_native(comm, call) && !select_by_rule(comm, args);
    request->sequence = ++comm->sequence;
    if (comm->strict && comm->nranks > 1 && strict_enqueue(request) != ROTA_OK) {
        /* The others compare, and would wait for this rank. */
        rota_error record = *error_record();
        request->freed = true;
        request_close(request, record.status);
        comm_fail(comm, &record);
        return NULL;
    }
    request->queued = true;
    atomic_fetch_add_explicit(&comm->outstanding, 1, memory_order_relaxed);
    TAILQ_INSERT_TAIL(&comm->queue, request, queue_entry);
    record_request(request);
    failure_call_begins(comm);
    PROBE3(collective_begin, (int)args->kind, request->sequence,
           args->count * request->element_size);
    return request;
}

static void release(rota_comm *comm) {
    /* Partner: the exchange in collective_run in the next call, perhaps by another thread. */
    atomic_store_explicit(&comm->busy, false, memory_order_release);
}

/* From so many bytes on only a part can leave at once, and takes longer to copy than the progress
 * thread takes to wake. */
#define BEGIN_LATER_BYTES ((size_t)128 * 1024)

/* The caller of a large operation has other work: whoever progresses next begins it. */
static bool begins_later(const rota_request *request) {
    return request->args.count * request->element_size >= BEGIN_LATER_BYTES;
}

/* Starts a request, and waits for it when the caller does not get it. Releases `busy`: of a call
 * with a request before anybody else can end it, because its call-back may start operations. */
static rota_status start(rota_comm *comm, const struct call_args *args,
                         const struct reduce_spec *spec, const rota_call *call,
                         const struct comm_repeat *like) {
    struct job *job = comm->job;
    bool blocking = call == NULL || call->request == NULL;
    domain_enter(&job->domain);
    persistent_begin_all(job); /* what was started before comes before */
    rota_status status = comm_usable(comm);
    rota_request *request = status == ROTA_OK ? enqueue(comm, args, spec, call, like) : NULL;
    if (request == NULL) {
        release(comm);
        domain_leave(&job->domain);
        return error_record()->status;
    }
    if (!blocking)
        *call->request = request;
    if (!blocking && begins_later(request))
        request_poll(request, true);
    else
        collective_next(comm);
    if (!blocking) {
        request_leave(request);
        release(comm);
    }
    domain_leave(&job->domain);
    if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(job);
    if (!blocking)
        return ROTA_OK;
    request_wait(request, CLOCK_NEVER);
    status = request_outcome(request);
    if (status == ROTA_OK && call == NULL && like == NULL && request->form == NULL)
        repeat_keep(comm, args, NULL, request->algorithm, spec);
    request_release(request);
    release(comm);
    return status;
}

rota_status collective_again(rota_comm *comm, const struct call_args *args,
                             const struct comm_repeat *like) {
    comm_enter(comm); /* `busy` is released before an error is kept */
    rota_status status = start(comm, args, like->reduces ? &like->spec : NULL, NULL, like);
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

/* A caller that tries again at once must not keep the core from the thread that is inside: under a
 * real-time policy nobody else would take it away. */
static rota_status raise_busy(rota_comm *comm) {
    sched_yield();
    return comm_keep_error(
        comm,
        error_raise(ROTA_ERR_BUSY, "another thread is inside a collective of %s", comm->name));
}

rota_status collective_run(rota_comm *comm, struct call_args *args, const rota_call *call) {
    if (atomic_exchange_explicit(&comm->busy, true, memory_order_acquire))
        return raise_busy(comm);
    const struct reduce_spec *spec = NULL;
    args->numerics = numerics_of_call(comm, args->kind, call);
    if (sched_kind_reduces(args->kind)) {
        spec = comm_spec(comm, args);
        if (spec == NULL) {
            release(comm);
            return comm_keep_error(comm, error_record()->status);
        }
    }
    size_t bytes = args->count * rota_dtype_size(args->dtype);
    const struct native_form *form = native_form_of_call(comm, args, spec, bytes, call);
    rota_status status;
    if (form != NULL) {
        uint64_t fingerprint = call_fingerprint(comm, args, NULL);
        status = native_run(comm, args, form, spec, bytes, fingerprint, call);
        if (status == ROTA_OK && call == NULL)
            repeat_keep(comm, args, form, NULL, spec);
        release(comm);
    } else {
        status = start(comm, args, spec, call, NULL);
    }
    return status == ROTA_OK ? ROTA_OK : comm_keep_error(comm, status);
}

void collective_begin_p2p(rota_request *request) {
    record_request(request);
    rota_status status = staging_in(request);
    if (status != ROTA_OK) {
        request_close(request, status);
    } else if (request->copy != NULL) {
        request->stage = REQUEST_STAGING_IN;
        request_poll(request, true);
    } else {
        request->stage = REQUEST_RUNNING;
        p2p_start(request);
    }
}

rota_status collective_p2p(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    struct job *job = comm->job;
    struct p2p_begun begun;
    domain_enter(&job->domain);
    rota_status status = comm_usable(comm);
    if (status == ROTA_OK && p2p_at_once(comm, args, call, &begun)) {
        domain_leave(&job->domain);
        if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed))
            job_run_callbacks(job);
        return ROTA_OK;
    }
    if (status == ROTA_OK)
        status = comm_usable(comm); /* progress may have found a failure */
    rota_request *request = status == ROTA_OK ? request_create(comm, args, call) : NULL;
    if (request == NULL) {
        domain_leave(&job->domain);
        return comm_keep_error(comm, error_record()->status);
    }
    if (call != NULL && call->request != NULL)
        *call->request = request;
    request->p2p.first_announced = begun.announced;
    request->p2p.taken = begun.taken;
    collective_begin_p2p(request);
    if (call != NULL && call->request != NULL)
        request_leave(request);
    domain_leave(&job->domain);
    if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(job);
    if (call != NULL && call->request != NULL)
        return ROTA_OK;
    request_wait(request, CLOCK_NEVER);
    status = request_outcome(request);
    request_release(request);
    return status == ROTA_OK ? ROTA_OK : comm_keep_error(comm, status);
}
