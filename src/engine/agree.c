/* Agreements. The work is liveness's; here a caller waits for its outcome, which the control thread
 * puts into the caller's struct. They work on communicators that have failed or were revoked, and
 * end by their deadline, when this rank is isolated, or when the communicator is aborted here. */
#include "engine/agree.h"

#include "base/clock.h"
#include "base/error.h"
#include "engine/failure.h"
#include "engine/split.h"
#include "liveness/liveness.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SHRINK_BIT 0x80000000u

/* One that is waited for. In job->agreements, guarded by failures_lock, until it is decided. */
struct agreement {
    rota_comm *comm;
    struct liveness_topic topic;
    struct liveness_ballot result;
    uint32_t epoch;
    bool *failed; /* by member */
    _Atomic bool done;
    struct agreement *next;
};

static bool same_topic(const struct liveness_topic *a, const struct liveness_topic *b) {
    return a->comm == b->comm && a->generation == b->generation && a->number == b->number;
}

static void unlist(struct job *job, struct agreement *agreement) {
    struct agreement **at = &job->agreements;
    while (*at != NULL && *at != agreement)
        at = &(*at)->next;
    if (*at != NULL)
        *at = agreement->next;
}

void agreement_heard(void *context, const struct liveness_agreement *heard) {
    struct job *job = context;
    pthread_mutex_lock(&job->failures_lock);
    struct agreement *agreement = job->agreements;
    while (agreement != NULL && !same_topic(&agreement->topic, &heard->topic))
        agreement = agreement->next;
    if (agreement != NULL) {
        const rota_comm *comm = agreement->comm;
        agreement->result = heard->result;
        agreement->epoch = heard->epoch;
        for (int i = 0; i < heard->nfailed; i++)
            for (int m = 0; m < comm->nranks; m++)
                agreement->failed[m] |= comm->members[m] == heard->failed[i];
        unlist(job, agreement);
        /* Partner: is_over; the outcome is written before. */
        atomic_store_explicit(&agreement->done, true, memory_order_release);
    }
    pthread_mutex_unlock(&job->failures_lock);
    doorbell_interrupt(&job->domain.bell);
}

static bool is_aborted(const rota_comm *comm) {
    return atomic_load_explicit(&comm->status, memory_order_acquire) == ROTA_ERR_ABORTED;
}

static bool is_over(const void *arg) {
    const struct agreement *agreement = arg;
    return atomic_load_explicit(&agreement->done, memory_order_acquire) ||
           is_aborted(agreement->comm) ||
           atomic_load_explicit(&agreement->comm->job->is_isolated, memory_order_acquire);
}

/* Waits, and says how it ended. `what`: for messages. */
static rota_status wait_over(struct agreement *agreement, const char *what, int64_t started_ns,
                             int64_t deadline_ns) {
    rota_comm *comm = agreement->comm;
    struct job *job = comm->job;
    struct domain_wait turns = {0};
    while (!is_over(agreement) && !clock_passed(deadline_ns)) {
        int64_t until = atomic_load_explicit(&job->next_scan_ns, memory_order_relaxed);
        domain_pause(&job->domain, &turns, is_over, agreement,
                     until < deadline_ns ? until : deadline_ns);
        job_run_callbacks(job);
    }
    /* From here on the control thread does not touch it. */
    pthread_mutex_lock(&job->failures_lock);
    unlist(job, agreement);
    pthread_mutex_unlock(&job->failures_lock);
    if (atomic_load_explicit(&agreement->done, memory_order_acquire)) {
        if (!agreement->failed[comm->rank])
            return ROTA_OK;
        return error_raise(ROTA_ERR_ISOLATED,
                           "%s on %s, rank %d of %d: it was decided without this "
                           "rank",
                           what, comm->name, comm->rank, comm->nranks);
    }
    long long waited = (long long)((clock_now_ns() - started_ns) / 1000000);
    rota_status status = ROTA_ERR_TIMEOUT;
    if (is_aborted(comm))
        status = error_raise(ROTA_ERR_ABORTED,
                             "%s on %s, rank %d of %d: the communicator was "
                             "aborted",
                             what, comm->name, comm->rank, comm->nranks);
    else if (atomic_load_explicit(&job->is_isolated, memory_order_acquire))
        status = error_raise(ROTA_ERR_ISOLATED, "%s on %s, rank %d of %d: %s", what, comm->name,
                             comm->rank, comm->nranks, job->isolated);
    else
        error_raise(status,
                    "%s on %s, rank %d of %d: waited %lld ms, and not all living ranks have "
                    "called it",
                    what, comm->name, comm->rank, comm->nranks, waited);
    error_record()->waited_ms = (uint64_t)waited;
    snprintf(error_record()->comm_name, sizeof(error_record()->comm_name), "%s", comm->name);
    return status;
}

/* One agreement of the communicator. On success agreement->failed is the caller's to free. */
static rota_status decide(rota_comm *comm, uint32_t kind, const char *what,
                          const struct liveness_ballot *mine, const rota_call *call,
                          struct agreement *agreement) {
    struct job *job = comm->job;
    int64_t timeout = call != NULL && call->timeout_ms > 0
                          ? call->timeout_ms
                          : atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed);
    int64_t started = clock_now_ns();
    *agreement =
        (struct agreement){.comm = comm,
                           .topic = {.comm = comm->id,
                                     .generation = comm->generation,
                                     .number = ++comm->agreements | kind},
                           .failed = calloc((size_t)comm->nranks, sizeof(*agreement->failed))};
    if (agreement->failed == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for an agreement");
    if (comm->nranks == 1) {
        agreement->result = *mine;
        return ROTA_OK;
    }
    pthread_mutex_lock(&job->failures_lock);
    agreement->next = job->agreements;
    job->agreements = agreement;
    pthread_mutex_unlock(&job->failures_lock);
    liveness_agree(job->liveness, &agreement->topic, comm->members, comm->nranks, mine);
    rota_status status = wait_over(agreement, what, started, clock_deadline(timeout));
    if (status != ROTA_OK) {
        free(agreement->failed);
        agreement->failed = NULL;
    }
    return status;
}

/* Takes the communicator for one agreement; released by the caller. */
static rota_status take(rota_comm *comm) {
    int status = atomic_load_explicit(&comm->status, memory_order_acquire);
    if (status == ROTA_ERR_ABORTED || status == ROTA_ERR_STATE)
        return error_raise(ROTA_ERR_STATE, "communicator %s has failed: %s", comm->name,
                           comm->record.message);
    if (atomic_exchange_explicit(&comm->busy, true, memory_order_acquire))
        return error_raise(ROTA_ERR_BUSY, "another thread is inside a collective of %s",
                           comm->name);
    return ROTA_OK;
}

static void release(rota_comm *comm) {
    /* Partner: the exchange of the next call, perhaps by another thread. */
    atomic_store_explicit(&comm->busy, false, memory_order_release);
}

rota_status agree_run(rota_comm *comm, uint64_t *flags, const rota_call *call) {
    struct agreement agreement;
    const struct liveness_ballot mine = {.flags = *flags};
    rota_status status = take(comm);
    if (status != ROTA_OK)
        return status;
    status = decide(comm, 0, "agree", &mine, call, &agreement);
    release(comm);
    if (status != ROTA_OK)
        return status;
    free(agreement.failed);
    *flags = agreement.result.flags;
    return ROTA_OK;
}

/* The communicator of those that were not left out. */
static rota_status make_shrunk(rota_comm *comm, const struct agreement *agreement, const char *name,
                               rota_comm **shrunk) {
    int *members = malloc((size_t)comm->nranks * sizeof(*members));
    int count = 0, self = 0;
    if (members == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    for (int i = 0; i < comm->nranks; i++) {
        if (agreement->failed[i])
            continue;
        self = i == comm->rank ? count : self;
        members[count++] = comm->members[i];
    }
    struct comm_name wire_name =
        split_name(comm, agreement->result.highest, agreement->topic.number);
    rota_status status = comm_create(comm->job, name, members, count, self, wire_name, shrunk);
    if (status == ROTA_OK) {
        atomic_store_explicit(&(*shrunk)->timeout_ms,
                              atomic_load_explicit(&comm->timeout_ms, memory_order_relaxed),
                              memory_order_relaxed);
        atomic_store_explicit(&(*shrunk)->numerics,
                              atomic_load_explicit(&comm->numerics, memory_order_relaxed),
                              memory_order_relaxed);
    }
    free(members);
    return status;
}

rota_status agree_shrink(rota_comm *comm, const char *name, const rota_call *call,
                         rota_comm **shrunk) {
    struct agreement agreement;
    struct job *job = comm->job;
    rota_status status = take(comm);
    if (status != ROTA_OK)
        return status;
    struct liveness_ballot mine = {.flags = UINT64_MAX};
    domain_enter(&job->domain);
    mine.highest = job->next_comm++;
    domain_leave(&job->domain);
    status = decide(comm, SHRINK_BIT, "shrink", &mine, call, &agreement);
    if (status == ROTA_OK) {
        status = make_shrunk(comm, &agreement, name, shrunk);
        free(agreement.failed);
    }
    release(comm);
    return status;
}

void agree_revoke(rota_comm *comm) {
    rota_error record = ROTA_ERROR_INIT;
    record.status = ROTA_ERR_REVOKED;
    record.peer = comm->rank;
    record.kind = -1;
    snprintf(record.message, sizeof(record.message), "rank %d revoked the communicator",
             comm->rank);
    domain_enter(&comm->job->domain);
    if (atomic_load_explicit(&comm->status, memory_order_relaxed) == ROTA_OK) {
        if (comm->inquiry != NULL)
            inquiry_notice(comm->inquiry, &record);
        comm_end(comm, &record);
    }
    domain_leave(&comm->job->domain);
    job_run_callbacks(comm->job);
}
