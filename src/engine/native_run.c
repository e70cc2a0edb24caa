/* Collectives that a native form runs: at once in the calling thread, or in turns as a request. */
#include "engine/native_run.h"

#include "base/error.h"
#include "base/probe.h"
#include "engine/collective.h"
#include "engine/executor.h"
#include "engine/record_calls.h"
#include <stdio.h>
#include <stdlib.h>

static bool is_host(const void *pointer, size_t bytes) {
    return memory_identify(pointer, bytes)->host_readable;
}

bool collective_may_be_native(const rota_comm *comm, const rota_call *call) {
    return comm->forced == NULL && (call == NULL || call->algorithm == NULL) &&
           atomic_load_explicit(&comm->native_state, memory_order_acquire) != NATIVE_NONE;
}

bool native_connect(rota_comm *comm) {
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
    struct record_call *line; /* the call in the recorder */
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
    record_waiting(comm->recorded_calls, pause->line, wait->waiting_for);
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

/* Slow end of native_run: describes what happened and ends the communicator. */
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

rota_status native_run(rota_comm *comm, const struct call_args *args,
                              const struct native_form *form, const struct reduce_spec *spec,
                              size_t bytes, const rota_call *call) {
    int64_t timeout_ms = call != NULL && call->timeout_ms > 0 ? call->timeout_ms : comm->timeout_ms;
    struct native_call native = {.kind = args->kind,
                                 .count = args->count,
                                 .bytes = bytes,
                                 .spec = spec,
                                 .root = args->root,
                                 .sequence = ++comm->sequence,
                                 .fingerprint = call_fingerprint(comm, args, NULL),
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
    struct record_page *page = comm->recorded_calls;
    if (page != NULL) {
        struct record_entry entry =
            record_entry_of(args, native.sequence, native.fingerprint,
                            record_algorithm(comm, form->name), RECORD_NATIVE | RECORD_BLOCKING);
        pause.line = record_begin(page, &entry, record_stamps(page, native.sequence, bytes));
    } else {
        pause.line = NULL;
    }
    struct native_result result =
        comm->native_ops->advance(comm->native, form, &native, &pause.wait);
    rota_status status = ROTA_OK;
    if (__builtin_expect(result.outcome != NATIVE_DONE, 0))
        status =
            native_give_up(comm, args, &native, &result, &pause, call != NULL ? call->label : NULL);
    else
        comm_note_native(comm, args->kind, (result.form != NULL ? result.form : form)->name);
    record_end(pause.line, status);
    PROBE3(collective_end, (int)args->kind, native.sequence, (int)status);
    return status;
}

const struct native_form *native_form_of_call(const rota_comm *comm, const struct call_args *args,
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

bool native_advance(rota_request *request) {
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

