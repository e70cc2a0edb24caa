/* Collectives that a native form runs: at once in the calling thread, or in turns as a request. */
#include "engine/native_run.h"

#include "base/error.h"
#include "base/probe.h"
#include "engine/collective.h"
#include "engine/executor.h"
#include "engine/failure.h"
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
    const struct call_args *args;
    const struct native_call *call;
    const char *label;
    int64_t timeout_ms;
    int64_t started_ns, deadline_ns; /* from the first pause on; 0 before */
    int64_t look_ns;                 /* when peers are asked again */
    struct domain_wait turns;
    struct record_call *line; /* the call in the recorder */
    rota_request *request;    /* the call as a request, once it has waited for long */
    int noted;                /* member that the last pause waited for, or -1 */
    bool expired;
};

/* The call as a request, for what asks, tells and raises; NULL without memory. */
static rota_request *request_of(struct native_pause *pause) {
    rota_request *request = pause->request;
    if (request != NULL || (request = calloc(1, sizeof(*request))) == NULL)
        return request;
    request->comm = pause->comm;
    request->job = pause->comm->job;
    request->args = *pause->args;
    request->sequence = pause->call->sequence;
    request->fingerprint = pause->call->fingerprint;
    request->started_ns = pause->started_ns != 0 ? pause->started_ns : clock_now_ns();
    request->deadline_ns = pause->started_ns != 0 ? pause->deadline_ns : CLOCK_NEVER;
    request->stage = REQUEST_NATIVE;
    if (pause->label != NULL)
        snprintf(request->label, sizeof(request->label), "%s", pause->label);
    pause->request = request;
    return request;
}

/* A wait that has lasted asks whom it waits for. */
static void look(struct native_pause *pause, int64_t now) {
    rota_request *request = request_of(pause);
    int member = pause->wait.waiting_for;
    if (request == NULL)
        return;
    struct domain *domain = &pause->comm->job->domain;
    domain_enter(domain); /* another thread may be ending the communicator */
    pause->look_ns = failure_wait(request, &member, member >= 0, now);
    domain_leave(domain);
}

/* Its deadline has passed: whether it is to wait on, for answers. */
static bool postpone(struct native_pause *pause, int64_t now) {
    rota_request *request = request_of(pause);
    int member = pause->wait.waiting_for;
    if (request == NULL)
        return false;
    struct domain *domain = &pause->comm->job->domain;
    domain_enter(domain);
    bool later = failure_postpone(request, &member, member >= 0, now);
    domain_leave(domain);
    pause->deadline_ns = request->deadline_ns;
    return later;
}

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
        int64_t soon = (pause->deadline_ns - began) / 2;
        pause->look_ns = began + (soon < INQUIRY_FIRST_NS ? soon : INQUIRY_FIRST_NS);
    }
    record_waiting(comm->recorded_calls, pause->line, wait->waiting_for);
    if (began >= pause->look_ns)
        look(pause, began);
    int64_t until = pause->look_ns < pause->deadline_ns ? pause->look_ns : pause->deadline_ns;
    domain_pause(&comm->job->domain, &pause->turns, ready, arg, until);
    int64_t now = clock_now_ns();
    skew_add(skew_of(comm), wait->waiting_for, now - began, wait->waiting_for != pause->noted);
    /* Who is waited for only now, and news of those who were asked. */
    if (pause->request != NULL && now > began)
        pause->look_ns = now;
    pause->noted = wait->waiting_for;
    if (atomic_load_explicit(&comm->job->has_callbacks, memory_order_relaxed))
        job_run_callbacks(comm->job);
    pause->expired = now >= pause->deadline_ns && !postpone(pause, now);
    return !pause->expired;
}

/* Waits of a request: somebody else calls again. */
static bool native_no_pause(struct native_wait *wait, bool (*ready)(const void *arg),
                            const void *arg) {
    (void)wait;
    (void)ready;
    (void)arg;
    return false;
}

/* Inside the domain: a native call did not finish, and nothing else has ended the communicator:
 * ends it, or holds it until it is known what happened. */
static void native_failed(rota_request *request, const struct native_result *result,
                          int waiting_for, bool expired) {
    rota_comm *comm = request->comm;
    if (result->outcome == NATIVE_MISMATCH) {
        request_raise(request, ROTA_ERR_MISMATCH, result->peer,
                      "rank %d is in another call: its fingerprint %016llx is not this one's "
                      "%016llx (operation, count, type, operator, root must agree, now and in all "
                      "calls before)",
                      result->peer, (unsigned long long)result->peer_fingerprint,
                      (unsigned long long)request->fingerprint);
        failure_mismatch(request);
    } else if (result->outcome == NATIVE_CLOSED) {
        request_raise(request, ROTA_ERR_PEER, result->peer, "rank %d left the communicator",
                      result->peer);
        error_add_culprit(error_record(), result->peer);
        /* It may have left because of something that this rank is being told. */
        rota_error left = *error_record();
        failure_hold(comm, &left, clock_now_ns() + FAILURE_LEFT_NS, -1);
    } else if (expired) {
        failure_expire(request, &waiting_for, waiting_for >= 0);
    } else {
        request_raise(request, ROTA_ERR_INTERNAL, waiting_for, "native form stopped");
        comm_fail(comm, error_record());
    }
}

static bool has_failed(const void *arg) {
    const rota_comm *comm = arg;
    return atomic_load_explicit(&comm->status, memory_order_acquire) != ROTA_OK;
}

/* Slow end of native_run: ends the communicator and gets to know why it has ended. */
static rota_status native_give_up(struct native_pause *pause, const struct native_result *result) {
    rota_comm *comm = pause->comm;
    struct domain *domain = &comm->job->domain;
    rota_request *request = request_of(pause);
    domain_enter(domain);
    if (request == NULL)
        error_raise(ROTA_ERR_MEMORY, "out of memory for an error record");
    if (!has_failed(comm) && request == NULL)
        comm_fail(comm, error_record());
    else if (!has_failed(comm))
        native_failed(request, result, pause->wait.waiting_for, pause->expired);
    domain_leave(domain);
    struct domain_wait turns = {0};
    while (!has_failed(comm)) { /* held, for a bounded time */
        int64_t until = atomic_load_explicit(&comm->job->next_scan_ns, memory_order_relaxed);
        domain_pause(domain, &turns, has_failed, comm, until);
    }
    domain_enter(domain);
    if (comm->bare && request != NULL) {
        request_raise_found(request, &comm->record);
        comm->record = *error_record();
        comm->bare = false;
    }
    *error_record() = comm->record;
    domain_leave(domain);
    return (rota_status)atomic_load_explicit(&comm->status, memory_order_relaxed);
}

rota_status native_run(rota_comm *comm, const struct call_args *args,
                       const struct native_form *form, const struct reduce_spec *spec, size_t bytes,
                       uint64_t fingerprint, const rota_call *call) {
    int64_t timeout_ms = call != NULL && call->timeout_ms > 0
                             ? call->timeout_ms
                             : atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed);
    struct native_call native = {.kind = args->kind,
                                 .count = args->count,
                                 .bytes = bytes,
                                 .spec = spec,
                                 .root = args->root,
                                 .sequence = ++comm->sequence,
                                 .fingerprint = comm_chain(comm, fingerprint),
                                 .send = args->send,
                                 .recv = args->recv};
    struct native_pause pause;
    pause.wait = (struct native_wait){.pause = native_pause};
    pause.comm = comm;
    pause.args = args;
    pause.call = &native;
    pause.label = call != NULL ? call->label : NULL;
    pause.request = NULL;
    pause.turns = (struct domain_wait){0};
    pause.noted = -1;
    pause.expired = false;
    PROBE3(collective_begin, (int)args->kind, native.sequence, bytes);
    pause.timeout_ms = timeout_ms;
    pause.started_ns = 0; /* the clock is read only by calls that wait */
    struct record_page *page = comm->recorded_calls;
    if (page != NULL) {
        struct record_entry entry =
            record_entry_of(args, native.sequence, fingerprint, record_algorithm(comm, form->name),
                            RECORD_NATIVE | RECORD_BLOCKING);
        pause.line = record_begin(page, &entry, record_stamps(page, native.sequence, bytes));
    } else {
        pause.line = NULL;
    }
    failure_call_begins(comm);
    struct native_result result =
        comm->native_ops->advance(comm->native, form, &native, &pause.wait);
    rota_status status = ROTA_OK;
    if (__builtin_expect(result.outcome != NATIVE_DONE, 0))
        status = native_give_up(&pause, &result);
    else
        comm_note_native(comm, args->kind, (result.form != NULL ? result.form : form)->name);
    if (__builtin_expect(pause.request != NULL, 0))
        free(pause.request);
    record_end(pause.line, status);
    PROBE3(collective_end, (int)args->kind, native.sequence, (int)status);
    return status;
}

const struct native_form *native_form_of_call(const rota_comm *comm, const struct call_args *args,
                                              const struct reduce_spec *spec, size_t bytes,
                                              const rota_call *call) {
    if (comm->deliberate || args->vector || (call != NULL && call->request != NULL) ||
        !collective_may_be_native(comm, call) || !native_may_run(comm))
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
        request_poll(request, false);
        native_failed(request, &result, wait.waiting_for, false);
    }
    return true;
}
