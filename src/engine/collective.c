/* From a call to its execution. Which way a call goes (native form, algorithm) depends only on
 * what all ranks know: kind, size, type, operator, settings, and what the communicator agreed on
 * when it was first used. */
#include "engine/collective.h"

#include "base/error.h"
#include "base/probe.h"
#include "engine/executor.h"
#include "engine/persistent.h"
#include "engine/plan.h"
#include "engine/select.h"
#include "engine/staging.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* First element of this rank's block in the buffer that has nranks blocks. */
static size_t own_offset(const rota_comm *comm, const struct call_args *args) {
    bool received = args->recv_counts != NULL;
    const size_t *displs = received ? args->recv_displs : args->send_displs;
    const size_t *counts = received ? args->recv_counts : args->send_counts;
    size_t offset = 0;
    if (counts == NULL)
        return (size_t)comm->rank * args->count;
    if (displs != NULL)
        return displs[comm->rank];
    for (int r = 0; r < comm->rank; r++)
        offset += counts[r];
    return offset;
}

bool collective_in_place(const rota_comm *comm, const struct call_args *args, size_t element_size) {
    const unsigned char *send = args->send, *recv = args->recv;
    size_t own = own_offset(comm, args) * element_size;
    if (args->count == 0)
        return false;
    switch (args->kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_ALL_TO_ALL:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return send == recv;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
        return args->root == comm->rank && send == recv;
    case ROTA_KIND_ALL_GATHER:
        return send == recv + own;
    case ROTA_KIND_REDUCE_SCATTER:
        return recv == send + own;
    case ROTA_KIND_GATHER:
        return args->root == comm->rank && send == recv + own;
    case ROTA_KIND_SCATTER:
        return args->root == comm->rank && recv == send + own;
    default:
        return false;
    }
}

/* Of what must be equal on all ranks; never 0. */
static uint64_t fingerprint(const rota_comm *comm, const struct call_args *args,
                            const struct algorithm *algorithm) {
    if (!comm->check)
        return 0;
    uint64_t words[4] = {
        (uint64_t)args->kind | (uint64_t)args->dtype << 8 | (uint64_t)args->op << 40,
        (uint64_t)(uint32_t)args->root, args->count,
        algorithm != NULL ? XXH64(algorithm->name, strlen(algorithm->name), 0) : 0};
    if (args->vector) { /* counts only where every rank knows all of them */
        const size_t *counts = args->send_counts != NULL ? args->send_counts : args->recv_counts;
        words[1] |= 1ull << 32;
        words[2] = call_counts_are_local(args)
                       ? 0
                       : XXH3_64bits(counts, (size_t)comm->nranks * sizeof(*counts));
    }
    return XXH3_64bits(words, sizeof(words)) | 1;
}

/* -- native forms -------------------------------------------------------------------------------
 */

static bool is_host(const void *pointer, size_t bytes) {
    return memory_identify(pointer, bytes)->host_readable;
}

bool collective_may_be_native(const rota_comm *comm, const rota_call *call) {
    return comm->forced == NULL && (call == NULL || call->algorithm == NULL) &&
           atomic_load_explicit(&comm->native_state, memory_order_acquire) != NATIVE_NONE;
}

/* Inside the domain: asks whether the group has met. Returns true once that is known. */
static bool native_connect(rota_comm *comm) {
    int state = atomic_load_explicit(&comm->native_state, memory_order_relaxed);
    if (state == NATIVE_UNKNOWN) {
        struct transport *transport = comm->job->transports[TRANSPORT_SHM];
        state = NATIVE_CONNECTING;
        if (comm->native_ops->group_open(transport, comm->id, comm->generation, comm->members,
                                         comm->nranks, comm->rank, &comm->native) != ROTA_OK) {
            /* The others wait for this rank's entry: going on without would part ways silently. */
            comm_fail(comm, error_record());
            return false;
        }
    }
    if (state == NATIVE_CONNECTING) {
        enum transport_result result = comm->native_ops->group_connect(comm->native);
        if (result == TRANSPORT_OK)
            state = NATIVE_READY;
        else if (result != TRANSPORT_AGAIN)
            state = NATIVE_NONE;
    }
    /* Partner: the load in collective_may_be_native; the group is set before. */
    atomic_store_explicit(&comm->native_state, state, memory_order_release);
    return state != NATIVE_CONNECTING;
}

struct native_pause {
    struct native_wait wait; /* first */
    rota_comm *comm;
    int64_t timeout_ms;
    int64_t started_ns, deadline_ns; /* from the first pause on; 0 before */
    struct domain_wait turns;
    int noted; /* member that the last pause waited for, or -1 */
    bool expired;
};

/* Waits of a blocking call: only forms that have polled for a while in vain come here, so the clock
 * costs nothing that matters. */
static bool native_pause(struct native_wait *wait, bool (*ready)(const void *arg),
                         const void *arg) {
    struct native_pause *pause = (struct native_pause *)wait;
    rota_comm *comm = pause->comm;
    if (atomic_load_explicit(&comm->status, memory_order_acquire) != ROTA_OK)
        return false;
    int64_t began = clock_now_ns();
    if (pause->started_ns == 0) {
        pause->started_ns = began;
        pause->deadline_ns = clock_deadline(pause->timeout_ms);
    }
    domain_pause(&comm->job->domain, &pause->turns, ready, arg, pause->deadline_ns);
    int64_t now = clock_now_ns();
    skew_add(skew_of(comm), wait->waiting_for, now - began, wait->waiting_for != pause->noted);
    pause->noted = wait->waiting_for;
    if (atomic_load_explicit(&comm->job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(comm->job);
    if (now >= pause->deadline_ns) {
        pause->expired = true;
        return false;
    }
    return true;
}

/* Waits of a request: somebody else calls again. */
static bool native_no_pause(struct native_wait *wait, bool (*ready)(const void *arg),
                            const void *arg) {
    (void)wait;
    (void)ready;
    (void)arg;
    return false;
}

/* Outside the domain: ends the communicator after a native call that did not finish. */
static rota_status native_failed(rota_comm *comm, const rota_request *request,
                                 const struct native_result *result, int waiting_for,
                                 bool expired) {
    rota_status status = (rota_status)atomic_load_explicit(&comm->status, memory_order_acquire);
    if (status != ROTA_OK) /* aborted, or failed by somebody else */
        return error_raise(status, "%s", comm->record.message);
    if (result->outcome == NATIVE_MISMATCH)
        status = request_raise(request, ROTA_ERR_MISMATCH, result->peer,
                               "rank %d is in another call: its fingerprint %016llx is not this "
                               "one's %016llx (operation, count, type, operator, root must agree)",
                               result->peer, (unsigned long long)result->peer_fingerprint,
                               (unsigned long long)request->fingerprint);
    else if (result->outcome == NATIVE_CLOSED)
        status = request_raise(request, ROTA_ERR_PEER, result->peer,
                               "rank %d left the communicator", result->peer);
    else if (expired)
        status = request_raise(request, ROTA_ERR_TIMEOUT, waiting_for, "waited %lld ms for rank %d",
                               (long long)((clock_now_ns() - request->started_ns) / 1000000),
                               waiting_for);
    else
        status = request_raise(request, ROTA_ERR_INTERNAL, waiting_for, "native form stopped");
    if (status == ROTA_ERR_TIMEOUT)
        error_add_culprit(error_record(), waiting_for);
    return status;
}

static void request_of_call(rota_request *request, rota_comm *comm, const struct call_args *args,
                            const struct native_call *native, int64_t started_ns) {
    request->comm = comm;
    request->job = comm->job;
    request->args = *args;
    request->sequence = native->sequence;
    request->fingerprint = native->fingerprint;
    request->started_ns = started_ns;
}

rota_status collective_raise_stray(const rota_request *request, int peer) {
    return request_raise(request, ROTA_ERR_MISMATCH, peer,
                         "rank %d is in another call: it sent a message that this one does not "
                         "expect (operation, count, type, operator, root, algorithm must agree)",
                         peer);
}

/* Slow end of run_native: describes what happened and ends the communicator. */
static rota_status native_give_up(rota_comm *comm, const struct call_args *args,
                                  const struct native_call *native,
                                  const struct native_result *result,
                                  const struct native_pause *pause, const char *label) {
    rota_request *request = calloc(1, sizeof(*request));
    if (request == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for an error record");
    request_of_call(request, comm, args, native,
                    pause->started_ns != 0 ? pause->started_ns : clock_now_ns());
    if (label != NULL)
        snprintf(request->label, sizeof(request->label), "%s", label);
    domain_enter(&comm->job->domain);
    int stray = pause->expired ? executor_stray(comm->executor, native->sequence, 0, true) : -1;
    rota_status status =
        stray >= 0 ? collective_raise_stray(request, stray)
                   : native_failed(comm, request, result, pause->wait.waiting_for, pause->expired);
    comm_fail(comm, error_record());
    domain_leave(&comm->job->domain);
    free(request);
    return status;
}

/* The fast path: a blocking call that a native form runs at once in this thread. */
static rota_status run_native(rota_comm *comm, const struct call_args *args,
                              const struct native_form *form, const struct reduce_spec *spec,
                              size_t bytes, const rota_call *call) {
    int64_t timeout_ms = call != NULL && call->timeout_ms > 0 ? call->timeout_ms : comm->timeout_ms;
    struct native_call native = {.kind = args->kind,
                                 .count = args->count,
                                 .bytes = bytes,
                                 .spec = spec,
                                 .root = args->root,
                                 .sequence = ++comm->sequence,
                                 .fingerprint = fingerprint(comm, args, NULL),
                                 .send = args->send,
                                 .recv = args->recv};
    struct native_pause pause;
    pause.wait = (struct native_wait){.pause = native_pause};
    pause.comm = comm;
    pause.turns = (struct domain_wait){0};
    pause.noted = -1;
    pause.expired = false;
    PROBE3(collective_begin, (int)args->kind, native.sequence, bytes);
    pause.timeout_ms = timeout_ms;
    pause.started_ns = 0; /* the clock is read only by calls that wait */
    struct native_result result =
        comm->native_ops->advance(comm->native, form, &native, &pause.wait);
    rota_status status = ROTA_OK;
    if (__builtin_expect(result.outcome != NATIVE_DONE, 0))
        status =
            native_give_up(comm, args, &native, &result, &pause, call != NULL ? call->label : NULL);
    else
        comm_note_native(comm, args->kind, (result.form != NULL ? result.form : form)->name);
    PROBE3(collective_end, (int)args->kind, native.sequence, (int)status);
    return status;
}

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
    request->fingerprint = fingerprint(comm, args, request->algorithm);
    comm_note_algorithm(comm, args->kind, request->algorithm->name);
    struct plan *plan = NULL;
    rota_status status = plan_get(comm, request->algorithm, args->kind, args->root,
                                  collective_in_place(comm, args, request->element_size), &plan);
    if (status == ROTA_OK)
        status = executor_start(comm->executor, request, plan);
    if (status != ROTA_OK)
        fail_start(request);
}

static bool advance_native(rota_request *request) {
    rota_comm *comm = request->comm;
    struct native_call native = {
        .kind = request->args.kind,
        .count = request->args.count,
        .bytes = request->args.count * request->element_size,
        .spec = sched_kind_reduces(request->args.kind) ? &request->spec : NULL,
        .root = request->args.root,
        .sequence = request->sequence,
        .fingerprint = request->fingerprint,
        .send = request->staged_send != NULL ? request->staged_send : request->args.send,
        .recv = request->staged_recv != NULL ? request->staged_recv : request->args.recv};
    struct native_wait wait = {.pause = native_no_pause, .waiting_for = -1};
    struct native_result result =
        comm->native_ops->advance(comm->native, request->form, &native, &wait);
    request->native_waits_for = wait.waiting_for;
    if (result.outcome == NATIVE_PAUSED)
        return false;
    if (result.outcome == NATIVE_DONE) {
        comm_note_native(comm, request->args.kind,
                         (result.form != NULL ? result.form : request->form)->name);
        request_poll(request, false);
        request_end(request, ROTA_OK);
    } else {
        native_failed(comm, request, &result, wait.waiting_for, false);
        comm_fail(comm, error_record());
    }
    return true;
}

/* The communicator knows its native forms: native or by schedule. */
static void dispatch(rota_request *request) {
    rota_comm *comm = request->comm;
    request->form = NULL;
    if (request->may_be_native &&
        atomic_load_explicit(&comm->native_state, memory_order_relaxed) == NATIVE_READY)
        request->form = comm->native_ops->query(
            comm->native, request->args.kind, request->args.count * request->element_size,
            sched_kind_reduces(request->args.kind) ? &request->spec : NULL);
    if (request->form == NULL) {
        request_poll(request, false);
        start_schedule(request);
        return;
    }
    request->fingerprint = fingerprint(comm, &request->args, NULL);
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
    case REQUEST_CONNECTING:
        if (!native_connect(request->comm))
            return false;
        dispatch(request);
        return true;
    case REQUEST_STAGING_IN:
    case REQUEST_STAGING_OUT:
        return poll_copy(request);
    case REQUEST_NATIVE:
        return advance_native(request);
    default:
        return false;
    }
}

void collective_next(rota_comm *comm) {
    rota_request *request = TAILQ_FIRST(&comm->queue);
    if (request == NULL || request->stage != REQUEST_QUEUED ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
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

/* Waits for a request that its caller does not get to see. */
static rota_status wait_and_free(rota_request *request) {
    request_wait(request, CLOCK_NEVER);
    rota_status status = request_outcome(request);
    request_release(request);
    return status;
}

/* Copies one table into the request's own; packed displacements where the caller gave none. */
static const size_t *keep_table(size_t *to, const size_t *from, const size_t *counts, int n) {
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        to[r] = from != NULL ? from[r] : at;
        at += counts[r];
    }
    return to;
}

/* The caller's tables of a v-form need not outlive the call. */
static bool keep_tables(rota_request *request) {
    struct call_args *args = &request->args;
    int n = request->comm->nranks;
    request->tables = malloc(4 * (size_t)n * sizeof(*request->tables));
    if (request->tables == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for the counts of %d ranks", n);
        return false;
    }
    size_t *tables = request->tables;
    if (args->send_counts != NULL) {
        args->send_displs = keep_table(tables, args->send_displs, args->send_counts, n);
        args->send_counts = keep_table(tables + n, args->send_counts, args->send_counts, n);
    }
    if (args->recv_counts != NULL) {
        args->recv_displs = keep_table(tables + 2 * n, args->recv_displs, args->recv_counts, n);
        args->recv_counts = keep_table(tables + 3 * n, args->recv_counts, args->recv_counts, n);
    }
    return true;
}

/* Inside the domain: makes the request and puts it at the end of the queue. */
static rota_request *enqueue(rota_comm *comm, const struct call_args *args,
                             const struct reduce_spec *spec, const rota_call *call) {
    const struct algorithm *algorithm =
        select_algorithm(comm, call != NULL ? call->algorithm : NULL, args, spec);
    if (algorithm == NULL)
        return NULL;
    rota_request *request = request_create(comm, args, call);
    if (request == NULL)
        return NULL;
    if (args->vector && !keep_tables(request)) {
        request->freed = true;
        request_close(request, ROTA_ERR_MEMORY);
        return NULL;
    }
    if (spec != NULL)
        request->spec = *spec;
    request->algorithm = algorithm;
    request->may_be_native = collective_may_be_native(comm, call);
    request->sequence = ++comm->sequence;
    request->queued = true;
    atomic_fetch_add_explicit(&comm->outstanding, 1, memory_order_relaxed);
    TAILQ_INSERT_TAIL(&comm->queue, request, queue_entry);
    PROBE3(collective_begin, (int)args->kind, request->sequence,
           args->count * request->element_size);
    return request;
}

static void release(rota_comm *comm) {
    /* Partner: the exchange in collective_run in the next call, perhaps by another thread. */
    atomic_store_explicit(&comm->busy, false, memory_order_release);
}

/* Starts a request, and waits for it when the caller does not get it. Releases `busy`: of a call
 * with a request before anybody else can end it, because its call-back may start operations. */
static rota_status start(rota_comm *comm, const struct call_args *args,
                         const struct reduce_spec *spec, const rota_call *call) {
    struct job *job = comm->job;
    bool blocking = call == NULL || call->request == NULL;
    domain_enter(&job->domain);
    persistent_begin_all(job); /* what was started before comes before */
    rota_status status = comm_usable(comm);
    rota_request *request = status == ROTA_OK ? enqueue(comm, args, spec, call) : NULL;
    if (request == NULL) {
        release(comm);
        domain_leave(&job->domain);
        return error_record()->status;
    }
    if (!blocking)
        *call->request = request;
    collective_next(comm);
    if (!blocking)
        release(comm);
    domain_leave(&job->domain);
    if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(job);
    if (!blocking)
        return ROTA_OK;
    status = wait_and_free(request);
    release(comm);
    return status;
}

/* The form that runs a blocking call at once, or NULL. */
static const struct native_form *form_of_call(const rota_comm *comm, const struct call_args *args,
                                              const struct reduce_spec *spec, size_t bytes,
                                              const rota_call *call) {
    if ((call != NULL && call->request != NULL) ||
        atomic_load_explicit(&comm->outstanding, memory_order_acquire) != 0 ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK || comm->finalized ||
        !collective_may_be_native(comm, call) ||
        atomic_load_explicit(&comm->native_state, memory_order_acquire) != NATIVE_READY)
        return NULL;
    const struct native_form *form = comm->native_ops->query(comm->native, args->kind, bytes, spec);
    return form != NULL && is_host(args->send, bytes) && is_host(args->recv, bytes) ? form : NULL;
}

rota_status collective_run(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    if (atomic_exchange_explicit(&comm->busy, true, memory_order_acquire))
        return comm_keep_error(
            comm,
            error_raise(ROTA_ERR_BUSY, "another thread is inside a collective of %s", comm->name));
    const struct reduce_spec *spec = NULL;
    if (sched_kind_reduces(args->kind)) {
        spec = comm_spec(comm, args->dtype, args->op);
        if (spec == NULL) {
            release(comm);
            return comm_keep_error(comm, error_record()->status);
        }
    }
    size_t bytes = args->count * rota_dtype_size(args->dtype);
    const struct native_form *form = form_of_call(comm, args, spec, bytes, call);
    rota_status status;
    if (form != NULL) {
        status = run_native(comm, args, form, spec, bytes, call);
        release(comm);
    } else {
        status = start(comm, args, spec, call);
    }
    return status == ROTA_OK ? ROTA_OK : comm_keep_error(comm, status);
}

void collective_begin_p2p(rota_request *request) {
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
    domain_enter(&job->domain);
    rota_status status = comm_usable(comm);
    rota_request *request = status == ROTA_OK ? request_create(comm, args, call) : NULL;
    if (request == NULL) {
        domain_leave(&job->domain);
        return comm_keep_error(comm, error_record()->status);
    }
    if (call != NULL && call->request != NULL)
        *call->request = request;
    collective_begin_p2p(request);
    domain_leave(&job->domain);
    if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(job);
    if (call != NULL && call->request != NULL)
        return ROTA_OK;
    status = wait_and_free(request);
    return status == ROTA_OK ? ROTA_OK : comm_keep_error(comm, status);
}
