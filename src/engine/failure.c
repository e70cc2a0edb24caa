/* Failures, from where they are found to where they end operations; see failure.h. */
#include "engine/failure.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/agree.h"
#include "engine/executor.h"
#include "liveness/liveness.h"
#include "recording/recorder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How long the cause of trouble is looked for: the census of a mismatch; whether the peer of a
 * broken connection lives. What a verdict takes is added to ROTA_AGREE_TIMEOUT_MS. */
#define MISMATCH_NS 300000000
#define BROKEN_NS 600000000
#define VERDICT_NS 250000000
/* How long a rank that has told something stays, so that it is heard before it is missed. */
#define TELL_NS 60000000
/* And then, at most, until it has been sent to those that were hard to reach. */
#define FLUSH_NS 100000000
/* How long a wait goes on without a look at whom it waits for. */
#define LOOK_NS 50000000

enum failure_type { FAILURE_COMM, FAILURE_VERDICT, FAILURE_CLEARED, FAILURE_ISOLATED };

struct failure {
    struct failure *next;
    enum failure_type type;
    struct inquiry_finding finding; /* COMM */
    uint32_t epoch;
    rota_status status;
    char text[256];
    int nranks;
    bool *left; /* VERDICT: for each of the ranks; behind them */
    int ranks[];
};

/* -- the control thread's side ------------------------------------------------------------------
 */

static void post(struct job *job, struct failure *failure) {
    pthread_mutex_lock(&job->failures_lock);
    struct failure **end = &job->failures;
    while (*end != NULL)
        end = &(*end)->next;
    *end = failure;
    atomic_store_explicit(&job->failing, true, memory_order_release);
    pthread_mutex_unlock(&job->failures_lock);
    doorbell_interrupt(&job->domain.bell);
}

static struct failure *failure_new(enum failure_type type, const int *ranks, int nranks) {
    struct failure *failure =
        calloc(1, sizeof(*failure) + (size_t)nranks * (sizeof(failure->ranks[0]) + sizeof(bool)));
    if (failure == NULL)
        return NULL; /* deadlines end every wait anyway */
    failure->left = (bool *)&failure->ranks[nranks];
    failure->type = type;
    failure->nranks = nranks;
    for (int i = 0; i < nranks; i++)
        failure->ranks[i] = ranks[i];
    return failure;
}

static void heard_message(void *context, int from, const void *message, size_t bytes) {
    const struct job *job = context;
    inquiry_message(job->inquiry, from, message, bytes);
}

static void heard_verdict(void *context, const struct liveness_verdict *verdict) {
    struct failure *failure = failure_new(FAILURE_VERDICT, verdict->failed, verdict->nfailed);
    if (failure == NULL)
        return;
    for (int i = 0; i < verdict->nfailed; i++)
        failure->left[i] = verdict->left[i];
    failure->epoch = verdict->epoch;
    failure->status = verdict->status;
    snprintf(failure->text, sizeof(failure->text), "%s", verdict->text);
    post(context, failure);
}

static void heard_cleared(void *context, int peer) {
    struct failure *failure = failure_new(FAILURE_CLEARED, &peer, 1);
    if (failure != NULL)
        post(context, failure);
}

static void heard_isolated(void *context, const char *text, const int *unreached, int nunreached) {
    struct failure *failure = failure_new(FAILURE_ISOLATED, unreached, nunreached);
    if (failure == NULL)
        return;
    failure->status = ROTA_ERR_ISOLATED;
    snprintf(failure->text, sizeof(failure->text), "%s", text);
    post(context, failure);
}

static void tell_peer(void *context, int peer, const void *message, size_t bytes) {
    struct job *job = context;
    if (inquiry_is_notice(message, bytes))
        atomic_store_explicit(&job->told_ns, clock_now_ns(), memory_order_relaxed);
    liveness_send(job->liveness, peer, message, bytes);
}

static void watch_peer(void *context, int peer) {
    const struct job *job = context;
    liveness_watch(job->liveness, peer);
}

static bool find_call(void *context, uint32_t comm, uint32_t generation, uint64_t sequence,
                      struct record_call *call) {
    const struct job *job = context;
    return recorder_find(job->recorder, RECORD_PAGE_COLLECTIVES, comm, generation, sequence, call);
}

static bool running_call(void *context, struct record_call *call, struct record_page *head,
                         uint64_t *waited_ms) {
    const struct job *job = context;
    if (!recorder_running(job->recorder, call, head))
        return false;
    uint64_t begun = recorder_ticks_to_ns(job->recorder,
                                          atomic_load_explicit(&call->begun, memory_order_relaxed));
    uint64_t now = (uint64_t)clock_now_ns();
    *waited_ms = begun != 0 && begun < now ? (now - begun) / 1000000 : 0;
    return true;
}

static void fence_all(void *context) {
    const struct job *job = context;
    doorbell_fence(&job->domain.bell);
}

static void found(void *context, const struct inquiry_finding *finding) {
    struct failure *failure = failure_new(FAILURE_COMM, NULL, 0);
    if (failure == NULL)
        return;
    failure->finding = *finding;
    post(context, failure);
}

static void wake(void *context) {
    struct job *job = context;
    atomic_store_explicit(&job->next_scan_ns, 0, memory_order_relaxed);
    doorbell_interrupt(&job->domain.bell);
}

rota_status failures_open(struct job *job) {
    const struct inquiry_host host = {.context = job,
                                      .rank = job->rank,
                                      .nranks = job->nranks,
                                      .records = job->records,
                                      .blind = job->recorder == NULL,
                                      .send = tell_peer,
                                      .watch = watch_peer,
                                      .find = find_call,
                                      .running = running_call,
                                      .fence = fence_all,
                                      .found = found,
                                      .wake = wake};
    const struct liveness_events events = {.message = heard_message,
                                           .verdict = heard_verdict,
                                           .cleared = heard_cleared,
                                           .isolated = heard_isolated,
                                           .agreed = agreement_heard};
    rota_status status = inquiry_create(&host, &job->inquiry);
    if (status == ROTA_OK)
        status = liveness_open(&job->place.identity, job->nranks, job->records, job->settings,
                               &events, job, &job->liveness);
    return status;
}

void failures_close(struct job *job) {
    /* What has just been told must be on its way before this rank is seen to leave: else others
     * take that for the cause. */
    int64_t told = atomic_load_explicit(&job->told_ns, memory_order_relaxed);
    while (told != 0 && clock_now_ns() < told + TELL_NS) {
        const struct timespec pause = {.tv_nsec = 5000000};
        nanosleep(&pause, NULL);
    }
    if (told != 0)
        liveness_flush(job->liveness, FLUSH_NS);
    if (job->liveness != NULL)
        liveness_close(job->liveness);
    inquiry_destroy(job->inquiry);
    while (job->failures != NULL) {
        struct failure *next = job->failures->next;
        free(job->failures);
        job->failures = next;
    }
}

/* -- applying -----------------------------------------------------------------------------------
 */

static rota_comm *find_comm(const struct job *job, uint32_t id, uint32_t generation) {
    rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry)
    if (comm->id == id && comm->generation == generation)
        return comm;
    return NULL;
}

static int member_of(const rota_comm *comm, int job_rank) {
    for (int i = 0; i < comm->nranks; i++)
        if (comm->members[i] == job_rank)
            return i;
    return -1;
}

/* Where a member listens, when that is on another host. */
static void add_address(const rota_comm *comm, int member, rota_error *record) {
    const struct job *job = comm->job;
    char text[NET_ADDRESS_TEXT];
    if (member < 0 || job_same_host(job, comm->members[member], job->rank))
        return;
    net_address_text(&job->records[comm->members[member]].addresses.inet[0], text);
    snprintf(record->address, sizeof(record->address), "%.63s", text);
}

/* The record of a verdict for one communicator. */
static void verdict_record(const rota_comm *comm, const struct failure *failure, const bool *dead,
                           rota_error *record) {
    bool any_dead = false;
    *record = (rota_error)ROTA_ERROR_INIT;
    record->status = failure->status;
    record->peer = record->kind = -1;
    record->epoch = failure->epoch;
    for (int i = 0; dead != NULL && i < failure->nranks; i++)
        any_dead |= dead[i] && member_of(comm, failure->ranks[i]) >= 0;
    for (int i = 0; i < failure->nranks; i++) {
        int member = member_of(comm, failure->ranks[i]);
        /* Who left in good order is not to blame beside one that died. */
        if (member < 0 || (any_dead && !dead[i]))
            continue;
        record->peer = record->peer < 0 ? member : record->peer;
        error_add_culprit(record, member);
    }
    add_address(comm, record->peer, record);
    snprintf(record->message, sizeof(record->message), "%s%s%s", failure->text,
             record->address[0] != '\0' ? ", at " : "", record->address);
}

/* How long a communicator that is being finalized waits for the last messages of ranks that are
 * gone: ranks exit as soon as they have sent theirs. */
#define LAST_MESSAGES_NS 100000000

static bool is_finalizing(const rota_comm *comm) {
    return atomic_load_explicit(&comm->finalizing, memory_order_relaxed);
}

static bool any_finalizing(const struct job *job) {
    const rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry)
    if (is_finalizing(comm))
        return true;
    return false;
}

/* False: end it now. */
static bool postpone(rota_comm *comm, const rota_error *record) {
    if (comm->ending != NULL)
        return true; /* the first verdict counts */
    if (!is_finalizing(comm))
        return false;
    comm->ending = malloc(sizeof(*comm->ending));
    if (comm->ending == NULL)
        return false;
    *comm->ending = *record;
    comm->ending_ns = clock_now_ns() + LAST_MESSAGES_NS;
    job_scan_by(comm->job, comm->ending_ns);
    return true;
}

/* Ends what dead ranks are members of, and what is held for any of the ranks. Communicators are
 * destroyed by their owners only, so the list stays as it is. */
static void end_comms(struct job *job, const struct failure *failure, const bool *dead) {
    rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry) {
        bool concerned = false;
        for (int i = 0; i < failure->nranks; i++) {
            concerned |= dead[i] && member_of(comm, failure->ranks[i]) >= 0;
            concerned |= comm->held != NULL && comm->held_peer == failure->ranks[i];
        }
        if (!concerned)
            continue;
        rota_error record;
        verdict_record(comm, failure, dead, &record);
        if (!postpone(comm, &record))
            comm_end(comm, &record);
    }
}

static void apply_verdict(struct job *job, const struct failure *failure) {
    bool *dead = calloc((size_t)failure->nranks + 1, sizeof(*dead));
    for (int i = 0; i < failure->nranks && dead != NULL; i++)
        dead[i] = !failure->left[i];
    log_write(LOG_INFO, "rank %d: %s (epoch %u)", job->rank, failure->text, failure->epoch);
    if (dead != NULL)
        end_comms(job, failure, dead);
    bool finalizing = any_finalizing(job);
    for (int i = 0; i < failure->nranks; i++)
        endpoint_gone(job, failure->ranks[i], dead == NULL || !dead[i] || finalizing,
                      failure->text);
    free(dead);
}

/* The peer of a broken connection lives: the connection alone is to blame. */
static void apply_cleared(struct job *job, int peer) {
    rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry)
    if (comm->held != NULL && comm->held_peer == peer) {
        rota_error record = *comm->held;
        comm_fail(comm, &record);
    }
}

static void apply_isolated(struct job *job, const struct failure *failure) {
    snprintf(job->isolated, sizeof(job->isolated), "%s", failure->text);
    /* Partner: agreements that are waited for. */
    atomic_store_explicit(&job->is_isolated, true, memory_order_release);
    rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry)
    if (comm->nranks > 1) {
        rota_error record;
        verdict_record(comm, failure, NULL, &record);
        comm_end(comm, &record);
    }
}

static void apply(struct job *job, const struct failure *failure) {
    rota_comm *comm;
    switch (failure->type) {
    case FAILURE_COMM:
        comm = find_comm(job, failure->finding.comm, failure->finding.generation);
        if (comm == NULL)
            break;
        /* A census is this rank's own finding; a notice has been passed on already. */
        inquiry_notice(comm->inquiry, &failure->finding.record);
        comm_end(comm, &failure->finding.record);
        break;
    case FAILURE_VERDICT:
        apply_verdict(job, failure);
        break;
    case FAILURE_CLEARED:
        apply_cleared(job, failure->ranks[0]);
        break;
    case FAILURE_ISOLATED:
        apply_isolated(job, failure);
        break;
    }
}

int failures_apply(struct job *job) {
    /* What has been sent counts: an operation that can end still ends well. */
    job_drain(job);
    pthread_mutex_lock(&job->failures_lock);
    struct failure *failure = job->failures;
    job->failures = NULL;
    atomic_store_explicit(&job->failing, false, memory_order_relaxed);
    pthread_mutex_unlock(&job->failures_lock);
    int count = 0;
    while (failure != NULL) {
        struct failure *next = failure->next;
        apply(job, failure);
        free(failure);
        failure = next;
        count++;
    }
    return count;
}

/* -- communicators ------------------------------------------------------------------------------
 */

rota_status failures_comm_open(rota_comm *comm) {
    struct job *job = comm->job;
    rota_status status =
        inquiry_comm_create(job->inquiry, comm->id, comm->generation, comm->members, comm->nranks,
                            comm->rank, comm->name, comm->check, &comm->asked, &comm->inquiry);
    if (status != ROTA_OK)
        return status;
    /* Verdicts that come from here on find the communicator in the job's list. */
    rota_error record = ROTA_ERROR_INIT;
    record.peer = record.kind = -1;
    record.epoch = liveness_epoch(job->liveness);
    for (int i = 0; i < comm->nranks; i++) {
        if (comm->members[i] == job->rank || liveness_member(job->liveness, comm->members[i]))
            continue;
        record.status = ROTA_ERR_PEER;
        record.peer = record.peer < 0 ? i : record.peer;
        error_add_culprit(&record, i);
    }
    if (record.status != ROTA_OK) {
        char who[160];
        inquiry_rank_text(job->inquiry, comm->inquiry, record.peer, who, sizeof(who));
        snprintf(record.message, sizeof(record.message), "%s has failed or left the job before",
                 who);
        comm_end(comm, &record);
    }
    return ROTA_OK;
}

void failures_comm_close(rota_comm *comm) {
    inquiry_comm_destroy(comm->inquiry, comm->sequence);
    comm->inquiry = NULL;
    free(comm->held);
    comm->held = NULL;
}

void failure_hold(rota_comm *comm, const rota_error *record, int64_t until_ns, int peer) {
    if (comm->held != NULL || atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
        return;
    rota_error *held = malloc(sizeof(*held));
    if (held == NULL) {
        comm_fail(comm, record);
        return;
    }
    *held = *record;
    comm->held = held;
    comm->held_until_ns = until_ns;
    comm->held_peer = peer;
    job_scan_by(comm->job, until_ns);
    executor_cancel(comm->executor);
}

void failure_tell(rota_comm *comm, const rota_error *record) {
    if (comm->inquiry == NULL || comm->nranks < 2)
        return;
    rota_error told = *record;
    char prefix[64];
    snprintf(prefix, sizeof(prefix), "rank %d of %d: ", comm->rank, comm->nranks);
    const char *text = strstr(record->message, prefix);
    text = text != NULL ? text + strlen(prefix) : record->message;
    if (record->status == ROTA_ERR_TIMEOUT)
        snprintf(told.message, sizeof(told.message), "rank %d %s", comm->rank, text);
    else
        memmove(told.message, text, strlen(text) + 1);
    inquiry_notice(comm->inquiry, &told);
}

/* -- what operations meet -----------------------------------------------------------------------
 */

struct call_summary request_summary(const rota_request *request) {
    if (request->strict_for != NULL)
        request = request->strict_for;
    const struct call_args *args = &request->args;
    bool native = request->stage == REQUEST_NATIVE;
    bool fused = sched_kind_collective(args->kind) && args->tag != 0;
    unsigned flags = (args->vector ? (unsigned)RECORD_VECTOR : 0u) |
                     (native ? (unsigned)RECORD_NATIVE : 0u) |
                     (fused ? (unsigned)RECORD_FUSED : 0u);
    return (struct call_summary){
        .sequence = sched_kind_collective(args->kind) ? request->sequence : 0,
        .fingerprint = call_fingerprint(request->comm, args, NULL),
        .count = args->count,
        .dtype = args->dtype,
        .root = args->root,
        .kind = (uint8_t)args->kind,
        .op = (uint8_t)(args->op < RECORD_USER_OP ? args->op : RECORD_USER_OP),
        .mode = (uint8_t)args->numerics,
        .flags = (uint8_t)flags,
        .algorithm =
            !native && request->algorithm != NULL ? recorder_hash(request->algorithm->name) : 0};
}

void failure_mismatch(rota_request *request) {
    rota_comm *comm = request->comm;
    rota_error record = *error_record();
    struct call_summary mine = request_summary(request);
    if (comm->inquiry == NULL || !comm->check) {
        comm_fail(comm, &record);
        return;
    }
    failure_hold(comm, &record, clock_now_ns() + MISMATCH_NS, -1);
    inquiry_census(comm->inquiry, &mine);
}

void failure_link(rota_request *request, const struct link *link, int member) {
    rota_comm *comm = request->comm;
    const struct endpoint *endpoint = link->endpoint;
    if (comm->held != NULL)
        return;
    if (endpoint->gone || comm->inquiry == NULL) {
        request_raise(request, ROTA_ERR_PEER, member, "lost rank %d: %s", member,
                      endpoint->evidence);
        error_record()->system_error = endpoint->system_error;
        error_add_culprit(error_record(), member);
        /* It may have left because of something that this rank is being told. */
        rota_error gone = *error_record();
        failure_hold(comm, &gone, clock_now_ns() + FAILURE_LEFT_NS, -1);
        return;
    }
    const char *evidence =
        endpoint->evidence[0] != '\0' ? endpoint->evidence : "nothing more can be sent";
    request_raise(request, ROTA_ERR_PEER, member, "the connection of rank %d and rank %d broke: %s",
                  comm->rank, member, evidence);
    rota_error record = *error_record();
    record.system_error = endpoint->system_error;
    error_add_culprit(&record, comm->rank);
    error_add_culprit(&record, member);
    add_address(comm, member, &record);
    failure_hold(comm, &record, clock_now_ns() + BROKEN_NS, link->peer);
    liveness_suspect(comm->job->liveness, link->peer, LIVENESS_BROKEN, endpoint->system_error,
                     evidence);
}

/* What a transport knows of the way to one of the members (none: to anybody) that would explain
 * silence. */
static void add_trouble(const rota_comm *comm, const int *awaited, int nawaited, char *text,
                        size_t size) {
    for (int i = 0; i < (nawaited > 0 ? nawaited : comm->nranks); i++) {
        int peer = comm->members[nawaited > 0 ? awaited[i] : i];
        const struct endpoint *endpoint = &comm->job->endpoints[peer];
        char trouble[200];
        size_t n = strlen(text);
        if (peer != comm->job->rank && endpoint->state == ENDPOINT_READY &&
            endpoint->transport->ops->trouble != NULL &&
            endpoint->transport->ops->trouble(endpoint->transport, peer, trouble,
                                              sizeof(trouble)) &&
            n < size) {
            snprintf(text + n, size - n, "%s%s", n > 0 ? "; " : "", trouble);
            return;
        }
    }
}

void failure_expire(rota_request *request, const int *awaited, int nawaited) {
    rota_comm *comm = request->comm;
    int64_t waited = (clock_now_ns() - request->started_ns) / 1000000;
    struct inquiry_summary summary = {0};
    struct call_summary mine = request_summary(request);
    if (comm->inquiry != NULL)
        inquiry_conclude(comm->inquiry, &mine, awaited, nawaited, waited, &summary);
    bool known = summary.nabsent + summary.nsilent > 0;
    if (!known && mine.sequence != 0 && comm->nranks > 1 && comm->nranks <= INQUIRY_ALL_RANKS)
        snprintf(summary.text, sizeof(summary.text), "all ranks are in this call, and slow");
    add_trouble(comm, awaited, nawaited, summary.text, sizeof(summary.text));
    char list[96] = "";
    size_t n = 0;
    for (int i = 0; i < nawaited && n < sizeof(list) - 12; i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%d", i > 0 ? ", " : "", awaited[i]);
    int peer = nawaited > 0          ? awaited[0]
               : summary.nabsent > 0 ? summary.absent[0]
               : summary.nsilent > 0 ? summary.silent[0]
                                     : -1;
    request_raise(request, ROTA_ERR_TIMEOUT, peer,
                  nawaited > 0 ? "waited %lld ms for rank%s %s%s%s" : "waited %lld ms%s%s%s%s",
                  (long long)waited, nawaited > 1 ? "s" : "", list,
                  summary.text[0] != '\0' ? ": " : "", summary.text);
    rota_error record = *error_record();
    record.epoch = comm->inquiry != NULL ? liveness_epoch(comm->job->liveness) : 0;
    for (int i = 0; i < summary.nsilent; i++)
        error_add_culprit(&record, summary.silent[i]);
    for (int i = 0; i < summary.nabsent; i++)
        error_add_culprit(&record, summary.absent[i]);
    if (record.culprit_count > 0)
        record.peer = record.culprits[0];
    add_address(comm, record.peer, &record);
    if (summary.nsilent == 0) {
        comm_fail(comm, &record);
        return;
    }
    int64_t agree_ms = settings_integer(comm->job->settings, SETTING_AGREE_TIMEOUT_MS);
    failure_hold(comm, &record, clock_now_ns() + agree_ms * 1000000 + VERDICT_NS, -1);
    for (int i = 0; i < summary.nsilent; i++)
        liveness_suspect(comm->job->liveness, comm->members[summary.silent[i]], LIVENESS_SILENT, 0,
                         "does not answer");
}

/* How long before its deadline a call asks everybody. */
static int64_t last_inquiry_lead_ns(const rota_request *request) {
    int64_t lead = (request->deadline_ns - request->started_ns) / 4;
    return lead < 200000000 ? lead : 200000000;
}

static void ask_everybody(rota_request *request, const struct call_summary *mine,
                          const int *awaited, int nawaited, int64_t now_ns) {
    request->asked_last = true;
    inquiry_last(request->comm->inquiry, mine, awaited, nawaited, now_ns);
}

bool failure_postpone(rota_request *request, const int *awaited, int nawaited, int64_t now_ns) {
    rota_comm *comm = request->comm;
    if (request->asked_last || comm->inquiry == NULL || comm->nranks < 2 || comm->held != NULL)
        return false;
    struct call_summary mine = request_summary(request);
    request->deadline_ns = now_ns + last_inquiry_lead_ns(request);
    ask_everybody(request, &mine, awaited, nawaited, now_ns);
    return true;
}

int64_t failure_wait(rota_request *request, const int *awaited, int nawaited, int64_t now_ns) {
    rota_comm *comm = request->comm;
    if (comm->inquiry == NULL || comm->nranks < 2 || comm->held != NULL)
        return CLOCK_NEVER;
    int64_t first = request->started_ns + INQUIRY_FIRST_NS,
            near = request->deadline_ns - last_inquiry_lead_ns(request);
    if (now_ns < first && now_ns < near)
        return first < near ? first : near;
    struct call_summary mine = request_summary(request);
    int64_t next = inquiry_wait(comm->inquiry, &request->turn, &mine, awaited, nawaited,
                                request->started_ns, now_ns);
    if (!request->asked_last && now_ns >= near)
        ask_everybody(request, &mine, awaited, nawaited, now_ns);
    next = !request->asked_last && near < next ? near : next;
    /* Whom it waits for may change meanwhile. */
    return next < now_ns + LOOK_NS ? next : now_ns + LOOK_NS;
}
