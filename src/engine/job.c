/* Jobs: joining, the table of transports and peers, progress, closing. */
#include "engine/job.h"

#include "base/error.h"
#include "base/log.h"
#include "bootstrap/cancel.h"
#include "engine/buffers.h"
#include "engine/collective.h"
#include "engine/comm.h"
#include "engine/executor.h"
#include "engine/failure.h"
#include "engine/persistent.h"
#include "engine/profile.h"
#include "engine/progress.h"
#include "engine/rules.h"
#include "engine/topology.h"
#include "recording/recorder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A connection that the control thread let in, on its way to the transport. */
struct admission {
    struct admission *next;
    int transport, peer, stripe, socket, ndescriptors;
    int descriptors[NET_MAX_DESCRIPTORS];
};

/* -- the control thread's side ------------------------------------------------------------------
 */

static enum net_verdict judge(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors) {
    struct job *job = context;
    int index = hello->purpose - NET_PURPOSE_DATA;
    *ndescriptors = 0;
    if (index < 0 || index >= JOB_MAX_TRANSPORTS || job->transports[index] == NULL ||
        hello->rank >= (uint32_t)job->nranks)
        return NET_REFUSED_TARGET;
    if (hello->agreement != job->place.identity.agreement)
        return NET_REFUSED_SETTINGS;
    struct transport *transport = job->transports[index];
    if (hello->stripe > 0)
        return transport->ops->accept_stripe != NULL ? NET_GO : NET_REFUSED_TARGET;
    if (!transport->ops->admit(transport, (int)hello->rank))
        return transport->ops->gave_up(transport, (int)hello->rank) ? NET_REFUSED_GIVEN_UP
                                                                    : NET_REFUSED_CROSSING;
    if (transport->ops->offer != NULL)
        *ndescriptors = transport->ops->offer(transport, (int)hello->rank, descriptors);
    return NET_GO;
}

static void admitted(void *context, const struct net_hello *hello, int socket,
                     const int *descriptors, int ndescriptors) {
    struct job *job = context;
    struct admission *admission = calloc(1, sizeof(*admission));
    if (admission == NULL) {
        close(socket);
        for (int i = 0; i < ndescriptors; i++)
            close(descriptors[i]);
        return;
    }
    admission->transport = hello->purpose - NET_PURPOSE_DATA;
    admission->peer = (int)hello->rank;
    admission->stripe = hello->stripe;
    admission->socket = socket;
    admission->ndescriptors = ndescriptors;
    for (int i = 0; i < ndescriptors; i++)
        admission->descriptors[i] = descriptors[i];
    pthread_mutex_lock(&job->admissions_lock);
    struct admission **end = &job->admissions;
    while (*end != NULL)
        end = &(*end)->next;
    *end = admission;
    atomic_store_explicit(&job->admitted, true, memory_order_release);
    pthread_mutex_unlock(&job->admissions_lock);
    doorbell_interrupt(&job->host.bell);
}

static struct admission *take_admissions(struct job *job) {
    pthread_mutex_lock(&job->admissions_lock);
    struct admission *list = job->admissions;
    job->admissions = NULL;
    atomic_store_explicit(&job->admitted, false, memory_order_relaxed);
    pthread_mutex_unlock(&job->admissions_lock);
    return list;
}

static void drop_admissions(struct job *job) {
    struct admission *admission = take_admissions(job);
    while (admission != NULL) {
        struct admission *next = admission->next;
        close(admission->socket);
        for (int i = 0; i < admission->ndescriptors; i++)
            close(admission->descriptors[i]);
        free(admission);
        admission = next;
    }
}

static int accept_admissions(struct job *job) {
    int count = 0;
    struct admission *admission = take_admissions(job);
    while (admission != NULL) {
        struct admission *next = admission->next;
        struct transport *transport = job->transports[admission->transport];
        if (admission->stripe > 0)
            transport->ops->accept_stripe(transport, admission->peer, admission->stripe,
                                          admission->socket);
        else
            transport->ops->accept(transport, admission->peer, admission->socket,
                                   admission->descriptors, admission->ndescriptors);
        free(admission);
        admission = next;
        count++;
    }
    return count;
}

/* -- progress -----------------------------------------------------------------------------------
 */

/* Turns between two looks at the clock. */
#define SCAN_TURNS 64

static void scan_deadlines(struct job *job) {
    int64_t now = clock_now_ns();
    if (now < atomic_load_explicit(&job->next_scan_ns, memory_order_relaxed))
        return;
    atomic_store_explicit(&job->next_scan_ns, CLOCK_NEVER, memory_order_relaxed);
    rota_comm *comm;
    LIST_FOREACH(comm, &job->comms, job_entry)
    job_scan_by(job, comm_expire(comm, now));
}

static int poll_requests(struct job *job) {
    int events = 0;
    rota_request *request, *next;
    for (request = TAILQ_FIRST(&job->polled); request != NULL; request = next) {
        next = TAILQ_NEXT(request, poll_entry);
        if (collective_poll(request)) {
            events++;
            break; /* the list may have changed */
        }
    }
    rota_comm *comm;
    if (job->foreign_memory)
        LIST_FOREACH(comm, &job->comms, job_entry)
    events += executor_poll_memory(comm->executor);
    return events;
}

void job_drain(struct job *job) {
    /* Not every turn looks at every socket: so many quiet ones mean that nothing is there. */
    enum { MOST_TURNS = 10000, QUIET_TURNS = 40 };
    int quiet = 0;
    for (int turns = 0; quiet < QUIET_TURNS && turns < MOST_TURNS; turns++) {
        int events = 0;
        for (int i = 0; i < job->nactive; i++)
            events += job->active[i]->ops->progress(job->active[i], 64);
        if (!TAILQ_EMPTY(&job->polled) || job->foreign_memory)
            events += poll_requests(job);
        quiet = events > 0 ? 0 : quiet + 1;
    }
}

int job_progress(void *context) {
    enum { BUDGET = 64 };
    struct job *job = context;
    int events = 0;
    if (atomic_load_explicit(&job->failing, memory_order_acquire))
        events += failures_apply(job);
    if (atomic_load_explicit(&job->admitted, memory_order_acquire))
        events += accept_admissions(job);
    if (atomic_load_explicit(&job->started, memory_order_relaxed) != NULL)
        events += persistent_begin_all(job);
    for (int i = 0; i < job->nactive; i++)
        events += job->active[i]->ops->progress(job->active[i], BUDGET);
    if (!TAILQ_EMPTY(&job->polled) || job->foreign_memory)
        events += poll_requests(job);
    if (++job->progress_turns % SCAN_TURNS == 0)
        scan_deadlines(job);
    return events;
}

void job_after_fork(struct job *job) {
    job->forked = true;
    job->nactive = 0;
    job->foreign_memory = false;
    LIST_INIT(&job->comms);
    TAILQ_INIT(&job->polled);
    TAILQ_INIT(&job->callbacks);
    atomic_store_explicit(&job->started, NULL, memory_order_relaxed);
    atomic_store_explicit(&job->has_callbacks, false, memory_order_relaxed);
    atomic_store_explicit(&job->admitted, false, memory_order_relaxed);
    pthread_mutex_init(&job->admissions_lock, NULL);
    domain_after_fork(&job->domain);
}

static bool job_arm(void *context) {
    struct job *job = context;
    bool quiet = !atomic_load_explicit(&job->admitted, memory_order_acquire) &&
                 !atomic_load_explicit(&job->failing, memory_order_acquire) &&
                 atomic_load_explicit(&job->started, memory_order_relaxed) == NULL;
    for (int i = 0; i < job->nactive && quiet; i++)
        quiet = job->active[i]->ops->arm(job->active[i]);
    scan_deadlines(job);
    return quiet && poll_requests(job) == 0;
}

static void job_disarm(void *context) {
    struct job *job = context;
    for (int i = 0; i < job->nactive; i++)
        job->active[i]->ops->disarm(job->active[i]);
}

/* -- opening ------------------------------------------------------------------------------------
 */

/* Whether the setting ROTA_TRANSPORT lets a transport in: a list of names, or of ^names. */
static bool wanted(const struct settings *settings, const char *name) {
    const char *list = settings_text(settings, SETTING_TRANSPORT);
    return list[0] == '\0' || strcmp(name, "self") == 0 ||
           settings_list_has(settings, SETTING_TRANSPORT, name) != (list[0] == '^');
}

static rota_status check_transport_names(const struct settings *settings) {
    const char *word = settings_text(settings, SETTING_TRANSPORT);
    while (*word != '\0') {
        size_t length = strcspn(word, ",");
        const char *start = word[0] == '^' ? word + 1 : word;
        char name[16];
        snprintf(name, sizeof(name), "%.*s", (int)(length - (size_t)(start - word)), start);
        bool known = false;
        for (int i = 0; transport_at(i) != NULL; i++)
            known |= strcmp(transport_at(i)->name, name) == 0;
        if (!known)
            return error_raise(ROTA_ERR_SETTING,
                               "ROTA_TRANSPORT (from %s): there is no transport \"%s\"",
                               settings_origin(settings, SETTING_TRANSPORT), name);
        word += length + (word[length] == ',');
    }
    return ROTA_OK;
}

static rota_status open_transports(struct job *job, struct bootstrap_record *record) {
    rota_status status = check_transport_names(job->settings);
    if (status != ROTA_OK)
        return status;
    for (int i = 0; i < TRANSPORT_COUNT; i++) {
        if (!wanted(job->settings, transport_at(i)->name))
            continue;
        const struct transport_ops *ops = transport_choose(job->settings, i);
        struct transport_host *host = &job->hosts[i];
        *host = job->host;
        status = ops->open(host, &job->transports[i]);
        if (status == ROTA_ERR_UNSUPPORTED) {
            bool silent = error_record()->system_error == 0 &&
                          !settings_list_has(job->settings, SETTING_TRANSPORT, ops->name);
            log_write(silent ? LOG_INFO : LOG_WARN, "transport %s is not used: %s", ops->name,
                      error_record()->message);
            continue;
        }
        if (status != ROTA_OK)
            return status;
        record->transports |= 1u << i;
        record->blob_bytes[i] = (uint16_t)ops->describe(job->transports[i], record->blobs[i]);
        job->host.bell = host->bell; /* a transport may have moved its line */
        job->active[job->nactive++] = job->transports[i];
    }
    return ROTA_OK;
}

bool job_same_host(const struct job *job, int a, int b) {
    return memcmp(job->records[a].machine, job->records[b].machine,
                  sizeof(job->records[a].machine)) == 0;
}

/* What every transport carries: for jobs in which a rank lacks one that others have. */
#define MESSAGE_BYTES_OF_ANY 65536

/* Bytes of a message on which all ranks agree: what the transports that some pair may use like
 * best, and all of them can carry. It must follow from the records alone: a rank whose shared
 * memory does not work has no transport to ask what the others prefer. */
static void set_message_bytes(struct job *job) {
    bool local_pair = false, remote_pair = false, uniform = true;
    job->shares_memory = true;
    job->common_transports = UINT32_MAX;
    for (int i = 0; i < job->nranks; i++) {
        job->common_transports &= job->records[i].transports;
        uniform &= job->records[i].transports == job->records[0].transports;
        job->shares_memory &= (job->records[i].transports & (1u << TRANSPORT_SHM)) != 0;
        for (int j = 0; j < i; j++) {
            bool same = job_same_host(job, i, j);
            local_pair |= same;
            remote_pair |= !same;
        }
    }
    struct transport *shm = job->transports[TRANSPORT_SHM], *tcp = job->transports[TRANSPORT_TCP];
    job->shares_memory &= !remote_pair && shm != NULL;
    size_t limit = SIZE_MAX, bytes = 262144;
    if (tcp != NULL) {
        bytes = tcp->caps.preferred_slice;
        limit = tcp->caps.max_message;
    }
    if (shm != NULL && local_pair) {
        limit = shm->caps.max_message < limit ? shm->caps.max_message : limit;
        bytes = shm->caps.preferred_slice;
    }
    if (!uniform)
        bytes = limit = MESSAGE_BYTES_OF_ANY;
    size_t setting = (size_t)settings_integer(job->settings, SETTING_SLICE_BYTES);
    if (setting > 0)
        bytes = setting;
    /* At least one quantum of the widest element, which has 16 bytes. */
    bytes = bytes < 1024 ? 1024 : bytes;
    job->message_bytes = bytes < limit ? bytes : limit;
}

/* Fills the table of peers as each transport sees it: with its own blobs. */
static void set_peers(struct job *job) {
    const struct bootstrap_record *own = &job->records[job->rank];
    for (int r = 0; r < job->nranks; r++)
        job->local_ranks += job_same_host(job, r, job->rank);
    for (int i = 0; i < TRANSPORT_COUNT; i++) {
        struct transport_peer *peers = job->peers + (size_t)i * (size_t)job->nranks;
        job->hosts[i].peers = peers;
        for (int r = 0; r < job->nranks; r++) {
            const struct bootstrap_record *record = &job->records[r];
            peers[r] = (struct transport_peer){
                .rank = r,
                .same_host = job_same_host(job, r, job->rank),
                .same_process = memcmp(record->process, own->process, sizeof(own->process)) == 0,
                .incarnation = record->incarnation,
                .addresses = &record->addresses,
                .blob = record->blobs[i],
                .blob_bytes = record->blob_bytes[i]};
        }
    }
}

static rota_status open_domain(struct job *job) {
    int cores = bootstrap_host_cores(job->records, job->nranks, job->rank), place = -1;
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        job->hosts[i].cores = cores;
    for (int r = 0; job->local_ranks > cores && r <= job->rank; r++)
        place += job_same_host(job, r, job->rank);
    rota_status status = domain_init(&job->domain, &job->host.bell, place);
    if (status != ROTA_OK)
        return status;
    job->domain.progress = job_progress;
    job->domain.arm = job_arm;
    job->domain.disarm = job_disarm;
    job->domain.context = job;
    for (int i = 0; i < job->nactive; i++) {
        int fd = job->active[i]->ops->descriptor(job->active[i]);
        if (fd >= 0)
            job->domain.watched[job->domain.nwatched++] = fd;
    }
    return ROTA_OK;
}

static rota_status open_bell(struct job *job) {
    job->private_line = aligned_alloc(128, sizeof(*job->private_line));
    if (job->private_line == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a job");
    memset(job->private_line, 0, sizeof(*job->private_line));
    return doorbell_open(&job->host.bell, job->private_line);
}

/* Lets peers in. Before the table of ranks is complete here, since a peer may have it already;
 * connections wait as admissions until this rank progresses. */
static rota_status listen_for_peers(struct job *job) {
    job->control.identity = job->place.identity;
    job->control.nranks = job->nranks;
    job->control.context = job;
    job->control.judge = judge;
    job->control.admitted = admitted;
    rota_status status = control_register(&job->control);
    job->control_registered = status == ROTA_OK;
    return status;
}

static rota_status open_recorder(struct job *job) {
    struct recorder_owner owner = {.rank = job->rank, .nranks = job->nranks};
    const char *host = settings_text(job->settings, SETTING_HOST_ID);
    memcpy(owner.job, job->place.identity.job, sizeof(owner.job));
    owner.host = host[0] != '\0' ? host : NULL;
    return recorder_open(job->settings, &owner, &job->recorder);
}

/* What needs no other rank: settings, identity, transports. */
static rota_status prepare(struct job *job, struct bootstrap_record *record) {
    job->rank = job->place.rank;
    job->nranks = job->place.nranks;
    struct net_identity *identity = &job->place.identity;
    identity->rank = job->rank;
    net_random(&identity->incarnation, sizeof(identity->incarnation));
    identity->agreement = settings_agreement(job->settings);
    size_t n = (size_t)job->nranks;
    job->records = calloc(n, sizeof(*job->records));
    job->peers = calloc(n * TRANSPORT_COUNT, sizeof(*job->peers));
    job->endpoints = calloc(n, sizeof(*job->endpoints));
    if (job->records == NULL || job->peers == NULL || job->endpoints == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a job of %d ranks", job->nranks);
    rota_status status = bootstrap_describe(job->settings, record);
    if (status == ROTA_OK)
        status = control_acquire(job->settings, &record->addresses);
    if (status != ROTA_OK)
        return status;
    job->control_acquired = true;
    status = open_bell(job);
    if (status != ROTA_OK)
        return status;
    job->host.rank = job->rank;
    job->host.nranks = job->nranks;
    job->host.identity = identity;
    job->host.settings = job->settings;
    job->host.context = job;
    job->host.arrived = endpoint_arrived;
    job->host.writable = endpoint_writable;
    job->host.connected = endpoint_connected;
    job->host.unreachable = endpoint_unreachable;
    job->host.has_other = endpoint_has_other;
    job->host.peer_failed = endpoint_broken;
    status = open_transports(job, record);
    record->magic = NET_MAGIC;
    record->protocol_first = identity->protocol_first;
    record->protocol_last = identity->protocol_last;
    record->rank = (uint32_t)job->rank;
    record->nranks = (uint32_t)job->nranks;
    record->incarnation = identity->incarnation;
    record->agreement = identity->agreement;
    if (status == ROTA_OK)
        status = open_recorder(job);
    return status == ROTA_OK ? listen_for_peers(job) : status;
}

/* The table of ranks is there. */
static rota_status begin(struct job *job) {
    set_peers(job);
    set_message_bytes(job);
    recorder_joined(job->recorder);
    rota_status status = open_domain(job);
    return status == ROTA_OK ? failures_open(job) : status;
}

static struct job *job_new(void) {
    struct job *job = calloc(1, sizeof(*job));
    if (job == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a job");
        return NULL;
    }
    pthread_mutex_init(&job->admissions_lock, NULL);
    pthread_mutex_init(&job->failures_lock, NULL);
    atomic_init(&job->next_scan_ns, CLOCK_NEVER);
    job->host.bell.event_fd = -1;
    LIST_INIT(&job->comms);
    TAILQ_INIT(&job->polled);
    TAILQ_INIT(&job->callbacks);
    job->references = 1;
    job->next_comm = 1;
    return job;
}

static void set_log_level(const struct settings *settings) {
    static const char *const names[] = {"silent", "error", "warn", "info", "debug"};
    const char *level = settings_text(settings, SETTING_LOG);
    for (int i = 0; i < (int)(sizeof(names) / sizeof(names[0])); i++)
        if (strcmp(level, names[i]) == 0)
            log_set_level((enum log_level)i);
}

static rota_status load_settings(struct job *job, int64_t *timeout_ms) {
    rota_status status = settings_load(&job->settings);
    if (status != ROTA_OK)
        return status;
    set_log_level(job->settings);
    if (*timeout_ms <= 0)
        *timeout_ms = settings_integer(job->settings, SETTING_INIT_TIMEOUT_MS);
    /* Before anybody is told what must agree: their contents are part of it. */
    status = profile_load(job->settings, &job->profile);
    if (status == ROTA_OK)
        status = rules_load(job->settings, &job->rules);
    if (status != ROTA_OK)
        return status;
    return reduce_team_open((int)settings_integer(job->settings, SETTING_CORES), &job->team);
}

rota_status job_locate(const rota_config *config, int64_t timeout_ms, struct job **out) {
    struct job *job = job_new();
    if (job == NULL)
        return ROTA_ERR_MEMORY;
    rota_status status = load_settings(job, &timeout_ms);
    if (status == ROTA_OK)
        status = bootstrap_locate(config, job->settings, &job->place);
    job->place.timeout_ms = timeout_ms;
    if (status == ROTA_OK)
        *out = job;
    else
        job_release(job);
    return status;
}

rota_status job_join(struct job *job) {
    struct bootstrap_record record = {0};
    int64_t deadline_ns = clock_deadline(job->place.timeout_ms);
    rota_status status = bootstrap_agree_identity(&job->place, deadline_ns);
    if (status == ROTA_OK)
        status = topology_check_settings(job->settings, job->place.nranks, &job->ring);
    if (status == ROTA_OK)
        status = prepare(job, &record);
    if (status == ROTA_OK)
        status = bootstrap_exchange(&job->place, job->settings, &record, job->records, deadline_ns);
    if (status == ROTA_OK)
        status = begin(job);
    if (status == ROTA_OK)
        return ROTA_OK;
    if (status != ROTA_ERR_ABORTED && cancel_is_raised())
        status = error_raise(ROTA_ERR_ABORTED, "rank %d of %d was cancelled while it joined",
                             job->place.rank, job->place.nranks);
    recorder_failed(job->recorder, 0, 0, error_record());
    bootstrap_withdraw(&job->place);
    job_release(job);
    return status;
}

/* Gives all ranks of a job of threads the same key and job id. */
static void share_identity(struct job **jobs, int nranks) {
    struct net_identity *first = &jobs[0]->place.identity;
    net_random(first->key, sizeof(first->key));
    net_random(first->job, sizeof(first->job));
    for (int r = 0; r < nranks; r++) {
        struct net_identity *identity = &jobs[r]->place.identity;
        memcpy(identity->key, first->key, sizeof(first->key));
        memcpy(identity->job, first->job, sizeof(first->job));
        identity->protocol_first = NET_PROTOCOL_FIRST;
        identity->protocol_last = NET_PROTOCOL_LAST;
        jobs[r]->place.nranks = nranks;
        jobs[r]->place.rank = r;
    }
}

rota_status job_open_threads(int nranks, struct job **jobs) {
    struct bootstrap_record *records = calloc((size_t)nranks, sizeof(*records));
    if (records == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a job of %d ranks", nranks);
    rota_status status = ROTA_OK;
    int made = 0;
    int64_t unused = 1;
    for (; made < nranks && status == ROTA_OK; made++) {
        jobs[made] = job_new();
        if (jobs[made] == NULL)
            status = ROTA_ERR_MEMORY;
        else
            status = load_settings(jobs[made], &unused);
    }
    if (status == ROTA_OK)
        status = topology_check_settings(jobs[0]->settings, nranks, &jobs[0]->ring);
    for (int r = 1; r < nranks && status == ROTA_OK && jobs[0]->ring != NULL; r++) {
        jobs[r]->ring = malloc((size_t)nranks * sizeof(int));
        if (jobs[r]->ring == NULL)
            status = error_raise(ROTA_ERR_MEMORY, "no memory for a ring");
        else
            memcpy(jobs[r]->ring, jobs[0]->ring, (size_t)nranks * sizeof(int));
    }
    if (status == ROTA_OK)
        share_identity(jobs, nranks);
    for (int r = 0; r < nranks && status == ROTA_OK; r++)
        status = prepare(jobs[r], &records[r]);
    for (int r = 0; r < nranks && status == ROTA_OK; r++) {
        memcpy(jobs[r]->records, records, (size_t)nranks * sizeof(*records));
        status = begin(jobs[r]);
    }
    if (status != ROTA_OK)
        for (int r = 0; r < made; r++)
            if (jobs[r] != NULL)
                job_release(jobs[r]);
    free(records);
    return status;
}

/* -- closing ------------------------------------------------------------------------------------
 */

void job_close(struct job *job) {
    failures_close(job);
    progress_forget(job);
    if (job->control_registered)
        control_unregister(&job->control);
    buffers_forget(job);
    for (int i = job->nactive - 1; i >= 0; i--)
        job->active[i]->ops->close(job->active[i]);
    drop_admissions(job);
    domain_destroy(&job->domain);
    if (job->host.bell.event_fd >= 0)
        doorbell_close(&job->host.bell);
    if (job->control_acquired)
        control_release();
    recorder_close(job->recorder, !recorder_has_failed(job->recorder));
    pthread_mutex_destroy(&job->admissions_lock);
    pthread_mutex_destroy(&job->failures_lock);
    requests_free_spare(job);
    reduce_team_close(job->team);
    free(job->private_line);
    free(job->records);
    free(job->ring);
    free(job->peers);
    free(job->endpoints);
    profile_free(job->profile);
    rules_free(job->rules);
    settings_free(job->settings);
    free(job);
}

void job_retain(struct job *job) {
    job->references++;
}

bool job_drop(struct job *job) {
    return --job->references == 0;
}

void job_release(struct job *job) {
    bool opened = job->domain.sleepers != NULL;
    if (opened)
        domain_enter(&job->domain);
    bool last = job_drop(job);
    if (opened)
        domain_leave(&job->domain);
    if (last)
        job_close(job);
}
