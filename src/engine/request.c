/* Requests: made, ended once, waited for, freed. */
#include "base/error.h"
#include "base/probe.h"
#include "engine/collective.h"
#include "engine/comm.h"
#include "engine/executor.h"
#include "engine/inquiry.h"
#include "engine/join.h"
#include "engine/progress.h"
#include "engine/record_calls.h"
#include "engine/staging.h"
#include "engine/strict.h"
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void request_watch(rota_request *request) {
    int64_t first = request->started_ns + INQUIRY_FIRST_NS;
    LIST_INSERT_HEAD(&request->comm->requests, request, comm_entry);
    job_scan_by(request->job, first < request->deadline_ns ? first : request->deadline_ns);
}

int request_awaited(const rota_request *request, int *members, int max) {
    const rota_comm *comm = request->comm;
    if (!sched_kind_collective(request->args.kind)) {
        members[0] = request->args.root;
        return request->args.root >= 0;
    }
    /* One in the queue waits for what the head waits for. */
    const rota_request *head = TAILQ_FIRST(&comm->queue);
    if (head == NULL)
        return 0;
    if (head->stage == REQUEST_RUNNING)
        return executor_awaited(comm->executor, members, max);
    int member = head->stage == REQUEST_NATIVE       ? head->native_waits_for
                 : head->stage == REQUEST_CONNECTING ? comm->native_ops->group_missing(comm->native)
                                                     : -1;
    members[0] = member;
    return member >= 0;
}

/* Requests of calls that are over are kept for the next, since they come and go with every message.
 * AddressSanitizer is to see what uses one that is over. */
#ifdef __SANITIZE_ADDRESS__
#define SPARE_REQUESTS 0
#else
#define SPARE_REQUESTS 64
#endif

static rota_request *obtain(struct job *job) {
    rota_request *request = LIST_FIRST(&job->spare);
    if (request == NULL)
        return calloc(1, sizeof(*request));
    LIST_REMOVE(request, comm_entry);
    job->nspare--;
    memset(request, 0, offsetof(rota_request, record));
    return request;
}

/* Inside the domain; nobody knows the request any more. */
static void dispose(struct job *job, rota_request *request) {
    if (job->nspare >= SPARE_REQUESTS) {
        free(request);
        return;
    }
    if (request->status != ROTA_OK)
        memset(&request->record, 0, sizeof(request->record));
    job->nspare++;
    LIST_INSERT_HEAD(&job->spare, request, comm_entry);
}

void requests_free_spare(struct job *job) {
    rota_request *request = NULL;
    while ((request = LIST_FIRST(&job->spare)) != NULL) {
        LIST_REMOVE(request, comm_entry);
        free(request);
    }
}

/* Nobody writes to these, so they may be freed, and freed again, at any time and by any thread. */
rota_request *request_of_past(rota_kind kind) {
    static rota_request send = {.args.kind = ROTA_KIND_SEND,
                                .stage = REQUEST_ENDED,
                                .done = true,
                                .record = {.size = sizeof(rota_error), .peer = -1}};
    static rota_request recv = {.args.kind = ROTA_KIND_RECV,
                                .stage = REQUEST_ENDED,
                                .done = true,
                                .record = {.size = sizeof(rota_error), .peer = -1}};
    return kind == ROTA_KIND_SEND ? &send : &recv;
}

rota_request *request_create(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    rota_request *request = obtain(comm->job);
    if (request == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a request");
        return NULL;
    }
    request->comm = comm;
    request->job = comm->job;
    job_retain(comm->job);
    request->args = *args;
    request->element_size = rota_dtype_size(args->dtype);
    request->started_ns = clock_now_ns();
    int64_t timeout = atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed);
    if (call != NULL) {
        timeout = call->timeout_ms > 0 ? call->timeout_ms : timeout;
        request->done_fn = call->done;
        request->done_arg = call->done_arg;
        if (call->label != NULL)
            snprintf(request->label, sizeof(request->label), "%s", call->label);
    }
    request->deadline_ns = clock_deadline_from(request->started_ns, timeout);
    request->record.size = sizeof(request->record);
    request->record.peer = -1;
    request->native_waits_for = -1;
    request_watch(request);
    return request;
}

void request_leave(rota_request *request) {
    if (request->stage == REQUEST_ENDED || request->background)
        return;
    request->background = true;
    progress_want(request->job, request->stage == REQUEST_QUEUED && request->polled);
}

void request_poll(rota_request *request, bool wanted) {
    struct job *job = request->comm->job;
    if (wanted && !request->polled)
        TAILQ_INSERT_TAIL(&job->polled, request, poll_entry);
    else if (!wanted && request->polled)
        TAILQ_REMOVE(&job->polled, request, poll_entry);
    request->polled = wanted;
}

void request_keep(rota_request *request, rota_status status) {
    request->status = status;
    if (status == ROTA_OK)
        return;
    request->record = *error_record();
    request->record.size = sizeof(request->record);
    request->record.status = status;
}

/* Lets waiters know. Returns true when the user had let go of it already: the caller frees it. */
static bool tell(rota_request *request) {
    struct job *job = request->job;
    bool freed = request->freed;
    if (request->background)
        progress_unwant(job);
    /* Partner: waiters' loads of done. After it the user may free the request. */
    atomic_store_explicit(&request->done, true, memory_order_release);
    domain_wake(&job->domain);
    return freed;
}

void request_close(rota_request *request, rota_status status) {
    rota_comm *comm = request->comm;
    struct job *job = comm->job;
    if (request->stage == REQUEST_ENDED)
        return;
    request->stage = REQUEST_ENDED;
    request_keep(request, status);
    if (status != ROTA_OK)
        comm->record = request->record;
    record_request_ended(request, status);
    request_poll(request, false);
    staging_free(request);
    free(request->tables);
    request->tables = NULL;
    LIST_REMOVE(request, comm_entry);
    if (status == ROTA_OK && request->form == NULL) /* its communicator counts native calls */
        job->operations++;
    bool collective = sched_kind_collective(request->args.kind);
    if (request->queued && collective) {
        TAILQ_REMOVE(&comm->queue, request, queue_entry);
        request->queued = false;
        /* Partner: collective_run, which then runs calls without the domain. */
        atomic_fetch_sub_explicit(&comm->outstanding, 1, memory_order_release);
        PROBE3(collective_end, (int)request->args.kind, request->sequence, (int)status);
    }
    /* It is in no list any more: what it has found may end the communicator. */
    if (request->strict != NULL && status == ROTA_OK)
        strict_ended(request);
    strict_free(request);
    rota_recv_info *info = request->args.info;
    if (request->args.kind == ROTA_KIND_RECV && info != NULL &&
        (status == ROTA_OK || status == ROTA_ERR_TRUNCATED)) {
        size_t bytes =
            request->p2p.total < request->p2p.bytes ? request->p2p.total : request->p2p.bytes;
        info->source = p2p_source(request);
        info->tag = request->args.tag;
        info->count = bytes / request->element_size;
    }
    if (request->done_fn != NULL) {
        TAILQ_INSERT_TAIL(&job->callbacks, request, poll_entry);
        atomic_store_explicit(&job->has_callbacks, true, memory_order_release);
    } else if (tell(request)) {
        job->references--; /* never the last: the communicator holds one */
        dispose(job, request);
    }
    if (collective)
        collective_next(comm);
}

void request_end(rota_request *request, rota_status status) {
    if (status == ROTA_OK && request->staged_recv != NULL) {
        status = staging_out(request);
        if (status == ROTA_OK && request->copy != NULL) {
            request->stage = REQUEST_STAGING_OUT;
            request_poll(request, true);
            return;
        }
    }
    request_close(request, status);
}

/* Takes the next request whose call-back is due; NULL when there is none. */
static rota_request *take_callback(struct job *job) {
    domain_enter(&job->domain);
    rota_request *request = TAILQ_FIRST(&job->callbacks);
    if (request != NULL)
        TAILQ_REMOVE(&job->callbacks, request, poll_entry);
    if (TAILQ_EMPTY(&job->callbacks))
        atomic_store_explicit(&job->has_callbacks, false, memory_order_relaxed);
    domain_leave(&job->domain);
    return request;
}

/* The request whose call-back runs in this thread. */
static _Thread_local const rota_request *called_back;

void request_call_back(rota_request *request) {
    const rota_request *before = called_back;
    if (request->done_fn == NULL)
        return;
    called_back = request;
    request->done_fn(request->done_arg, request->status);
    called_back = before;
}

void job_run_callbacks(struct job *job) {
    /* A call-back that starts operations comes back here: the loop below it goes on, so that
     * chains of any length need no stack. */
    static _Thread_local bool running;
    if (running || !atomic_load_explicit(&job->has_callbacks, memory_order_acquire))
        return;
    /* A call-back may destroy the last communicator. */
    domain_enter(&job->domain);
    job_retain(job);
    domain_leave(&job->domain);
    rota_request *request;
    while ((request = take_callback(job)) != NULL) {
        running = true;
        request_call_back(request);
        running = false;
        domain_enter(&job->domain);
        if (tell(request)) {
            job->references--; /* never the last: this function holds one */
            dispose(job, request);
        }
        domain_leave(&job->domain);
    }
    job_release(job);
}

static bool is_done(const void *arg) {
    const rota_request *request = arg;
    return atomic_load_explicit(&request->done, memory_order_acquire);
}

bool request_has_record(const rota_request *request) {
    return request == called_back || is_done(request);
}

bool request_forked(const rota_request *request) {
    return request->join != NULL ? join_forked(request) : request->job->forked;
}

bool request_wait(rota_request *request, int64_t deadline_ns) {
    if (request->join != NULL)
        return join_wait(request, deadline_ns);
    if (is_done(request))
        return true;
    if (request->job->forked)
        return false;
    struct job *job = request->job;
    struct domain_wait wait = {0};
    struct skew_watch watch = {0};
    bool passed = false;
    /* Partner: the progress thread, which leaves a job with waiters to them. */
    atomic_fetch_add_explicit(&job->domain.waiters, 1, memory_order_relaxed);
    while (!passed && !is_done(request)) {
        skew_watch_pause(&watch, request, &wait);
        int64_t scan = atomic_load_explicit(&job->next_scan_ns, memory_order_relaxed);
        int64_t until = request->deadline_ns < deadline_ns ? request->deadline_ns : deadline_ns;
        until = scan < until ? scan : until;
        domain_pause(&job->domain, &wait, is_done, request, until);
        job_run_callbacks(job);
        passed = deadline_ns != CLOCK_NEVER && clock_passed(deadline_ns);
    }
    skew_watch_end(&watch);
    atomic_fetch_sub_explicit(&job->domain.waiters, 1, memory_order_relaxed);
    return is_done(request);
}

rota_status request_outcome(const rota_request *request) {
    if (request->status != ROTA_OK)
        *error_record() = request->record;
    return request->status;
}

struct several {
    rota_request *const *requests;
    int count;
};

static int first_done(const struct several *several) {
    for (int i = 0; i < several->count; i++)
        if (is_done(several->requests[i]))
            return i;
    return -1;
}

static bool any_done(const void *arg) {
    return first_done(arg) >= 0;
}

int request_wait_any(rota_request *const *requests, int count, int64_t deadline_ns) {
    /* Requests of other ranks in this process do not ring this rank's bell: sleep briefly then. */
    const int64_t brief_ns = 1000000;
    struct several several = {.requests = requests, .count = count};
    struct job *job = NULL; /* NULL: all are joins */
    bool elsewhere = false;
    for (int i = 0; i < count; i++)
        job = job != NULL ? job : requests[i]->job;
    for (int i = 0; i < count; i++)
        elsewhere |= requests[i]->job != job;
    struct domain_wait wait = {0};
    int ended = first_done(&several);
    while (ended < 0 && !request_forked(requests[0]) && !clock_passed(deadline_ns)) {
        if (job == NULL) {
            (void)join_wait(requests[0], clock_now_ns() + brief_ns);
            ended = first_done(&several);
            continue;
        }
        int64_t until = deadline_ns;
        for (int i = 0; i < count; i++)
            until = requests[i]->deadline_ns < until ? requests[i]->deadline_ns : until;
        int64_t scan = atomic_load_explicit(&job->next_scan_ns, memory_order_relaxed);
        until = scan < until ? scan : until;
        if (elsewhere && clock_now_ns() + brief_ns < until)
            until = clock_now_ns() + brief_ns;
        domain_pause(&job->domain, &wait, any_done, &several, until);
        job_run_callbacks(job);
        ended = first_done(&several);
    }
    return ended;
}

rota_request *request_create_whole(rota_comm *comm, const rota_call *call) {
    rota_request *whole = calloc(1, sizeof(*whole));
    if (whole == NULL)
        return NULL;
    whole->comm = comm;
    whole->job = comm->job;
    whole->record = (rota_error)ROTA_ERROR_INIT;
    whole->record.peer = -1;
    whole->deadline_ns = CLOCK_NEVER; /* its members have their own */
    if (call != NULL) {
        whole->done_fn = call->done;
        whole->done_arg = call->done_arg;
        if (call->label != NULL)
            snprintf(whole->label, sizeof(whole->label), "%s", call->label);
    }
    domain_enter(&comm->job->domain);
    job_retain(comm->job);
    domain_leave(&comm->job->domain);
    return whole;
}

void request_settle(rota_request *whole, rota_status status) {
    struct job *job = whole->job;
    request_keep(whole, status);
    request_call_back(whole);
    domain_enter(&job->domain);
    bool last = false;
    if (tell(whole)) {
        dispose(job, whole);
        last = job_drop(job);
    }
    domain_leave(&job->domain);
    if (last)
        job_close(job);
}

rota_status request_cancel(rota_request *request) {
    if (request->join != NULL) {
        join_cancel(request);
        return ROTA_OK;
    }
    if (request->args.kind != ROTA_KIND_RECV)
        return error_raise(ROTA_ERR_UNSUPPORTED,
                           "only receives and rota_init can be cancelled, not %s: "
                           "rota_comm_abort ends all operations of a communicator",
                           rota_kind_name(request->args.kind));
    struct job *job = request->job;
    if (job == NULL || job->forked)
        return ROTA_OK;
    domain_enter(&job->domain);
    /* What has come counts; and who posts and cancels over and over gets on. */
    if (request->stage == REQUEST_RUNNING)
        job_progress(job);
    if (request->stage == REQUEST_RUNNING && p2p_withdraw(request)) {
        struct p2p_table *table = request->comm->p2p;
        struct p2p_lane *lane = request->p2p.lane;
        request_raise(request, ROTA_ERR_ABORTED, -1, "it was cancelled");
        request_close(request, ROTA_ERR_ABORTED);
        p2p_go_on(table, lane);
    }
    domain_leave(&job->domain);
    job_run_callbacks(job);
    error_clear();
    return ROTA_OK;
}

void request_release(rota_request *request) {
    if (called_back == request)
        called_back = NULL; /* another one may come to lie there */
    if (request->join != NULL) {
        join_release(request);
        return;
    }
    struct job *job = request->job;
    if (job == NULL || job->forked)
        return;
    domain_enter(&job->domain);
    bool last = false;
    if (is_done(request)) {
        dispose(job, request);
        last = job_drop(job);
    } else {
        request->freed = true;
    }
    domain_leave(&job->domain);
    if (last)
        job_close(job);
}

static int describe(const rota_request *request, char *text, size_t size) {
    if (request->strict_for != NULL)
        request = request->strict_for;
    const struct call_args *args = &request->args;
    const rota_comm *comm = request->comm;
    int n = snprintf(text, size, "%s", rota_kind_name(args->kind));
    if (sched_kind_collective(args->kind))
        n += snprintf(text + n, size - (size_t)n, " #%llu", (unsigned long long)request->sequence);
    if (args->kind != ROTA_KIND_BARRIER) {
        n += snprintf(text + n, size - (size_t)n, " (%s", rota_dtype_name(args->dtype));
        if (sched_kind_reduces(args->kind))
            n += snprintf(text + n, size - (size_t)n, " %s", operator_text(args->op));
        if (args->numerics > ROTA_NUMERICS_EQUAL)
            n += snprintf(text + n, size - (size_t)n, ", %s", rota_numerics_name(args->numerics));
        n += snprintf(text + n, size - (size_t)n, ", %zu)", args->count);
    }
    if (args->kind == ROTA_KIND_SEND || args->kind == ROTA_KIND_RECV)
        n += snprintf(text + n, size - (size_t)n, " %s rank %d, tag %d",
                      args->kind == ROTA_KIND_SEND ? "to" : "from", args->root, args->tag);
    else if (args->root >= 0)
        n += snprintf(text + n, size - (size_t)n, " root %d", args->root);
    if (request->label[0] != '\0')
        n += snprintf(text + n, size - (size_t)n, " \"%s\"", request->label);
    n += snprintf(text + n, size - (size_t)n, " on %s, rank %d of %d: ", comm->name, comm->rank,
                  comm->nranks);
    return n;
}

rota_status request_raise(const rota_request *request, rota_status status, int peer,
                          const char *format, ...) {
    char text[ROTA_ERROR_MAX_MESSAGE];
    int n = describe(request, text, sizeof(text));
    va_list args;
    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    error_raise(status, "%s", text);
    rota_error *record = error_record();
    record->peer = peer;
    record->kind = (int)request->args.kind;
    record->sequence = request->sequence;
    record->waited_ms = (uint64_t)((clock_now_ns() - request->started_ns) / 1000000);
    snprintf(record->comm_name, sizeof(record->comm_name), "%s", request->comm->name);
    return status;
}

rota_status request_raise_found(const rota_request *request, const rota_error *record) {
    const rota_error found = *record;
    long long waited = (long long)((clock_now_ns() - request->started_ns) / 1000000);
    if (found.status == ROTA_ERR_TIMEOUT || found.status == ROTA_ERR_PEER)
        request_raise(request, found.status, found.peer, "after %lld ms: %s", waited,
                      found.message);
    else
        request_raise(request, found.status, found.peer, "%s", found.message);
    rota_error *raised = error_record();
    raised->culprit_count = found.culprit_count;
    memcpy(raised->culprits, found.culprits, sizeof(raised->culprits));
    raised->system_error = found.system_error;
    raised->epoch = found.epoch;
    memcpy(raised->address, found.address, sizeof(raised->address));
    raised->group_count = found.group_count;
    memcpy(raised->groups, found.groups, sizeof(raised->groups));
    return found.status;
}
