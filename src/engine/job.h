/* One rank of one job: identity, the table of ranks, transports, endpoints, progress domain.
 * Communicators hold references; the last one closes the job. */
#ifndef ENGINE_JOB_H
#define ENGINE_JOB_H

#include "bootstrap/bootstrap.h"
#include "engine/domain.h"
#include "engine/endpoint.h"
#include <sys/queue.h>
#include <transports/transport.h>

#define JOB_MAX_TRANSPORTS 6

struct admission; /* a connection that the control thread let in */
struct agreement;
struct failure;
struct inquiry;
struct liveness;
struct profile;
struct recorder;
struct rota_comm;
struct rules;

struct job {
    int references; /* guarded by the domain */
    int rank, nranks;
    struct settings *settings;
    struct profile *profile; /* of ROTA_PROFILE and ROTA_RULES; NULL: none */
    struct rules *rules;
    struct bootstrap_place place;
    struct bootstrap_record *records; /* nranks, by rank */
    int *ring; /* nranks, in the order of the file that ROTA_GRAPH_FILE names; NULL: none */
    struct control_job control;
    bool control_acquired, control_registered;
    struct doorbell_line *private_line; /* where the bell lives when no transport places it */
    struct transport_host host;         /* what all transports are offered ... */
    struct transport_host hosts[TRANSPORT_COUNT];     /* ... and each one's copy, with its peers */
    struct transport_peer *peers;                     /* [transport * nranks + rank] */
    struct transport *transports[JOB_MAX_TRANSPORTS]; /* by index in transports.def; NULL: absent */
    struct transport *active[JOB_MAX_TRANSPORTS];     /* those that are there */
    int nactive;
    bool foreign_memory;        /* a communicator has used memory that is not the host's */
    struct endpoint *endpoints; /* nranks */
    struct domain domain;
    struct reduce_team *team;  /* on cores that the user lends; NULL: none */
    struct recorder *recorder; /* NULL: ROTA_RECORD=off */
    pthread_mutex_t admissions_lock;
    struct admission *admissions; /* oldest first */
    _Atomic bool admitted;        /* there are some */
    uint32_t next_comm;           /* above the id of every communicator so far; the world has 0 */
    size_t message_bytes;         /* bytes of a message that all ranks use: see job_message_bytes */
    int local_ranks;              /* ranks on this host */
    uint32_t common_transports;   /* bit per transport that every rank has */
    bool shares_memory;           /* every rank has shared memory and is on one host */
    LIST_HEAD(, rota_comm) comms;
    TAILQ_HEAD(job_requests, rota_request) polled; /* native calls and copies under way */
    LIST_HEAD(, rota_request) spare;               /* no requests at present */
    int nspare;
    struct job_requests callbacks; /* ended, done call-back not yet run */
    _Atomic bool has_callbacks;
    struct rota_plan *_Atomic started; /* plans whose run is to begin, the last one first */
    _Atomic int background;            /* requests that the progress thread must serve */
    uint64_t operations;
    _Atomic int64_t next_scan_ns; /* when deadlines are looked at again */
    struct liveness *liveness;
    struct inquiry *inquiry;
    pthread_mutex_t failures_lock;
    _Atomic int64_t told_ns;      /* when a notice was sent last; 0: never */
    struct failure *failures;     /* found and not yet taken note of, oldest first; see failure.h */
    _Atomic bool failing;         /* there are some */
    struct agreement *agreements; /* that are waited for; with failures_lock held */
    _Atomic bool is_isolated;
    char isolated[256]; /* and why */
    uint32_t progress_turns;
    LIST_ENTRY(job) progress_link;
    bool progress_listed;
    bool forked; /* this is a copy in the child of a fork: see registry.c */
};

/* Finds out where a job is met: settings and environment, nothing that waits. timeout_ms: of the
 * whole joining, 0 = the setting. Errors: those of rota_init. */
rota_status job_locate(const rota_config *config, int64_t timeout_ms, struct job **job);
/* Meets the other ranks there. What it waits for ends when the thread's cancel is raised
 * (bootstrap/cancel.h), with ROTA_ERR_ABORTED. After an error the job is gone. */
rota_status job_join(struct job *job);
/* Opens all ranks of a job of threads: jobs[r] for rank r. */
rota_status job_open_threads(int nranks, struct job **jobs);
/* References: one per communicator and per request. Taken inside the domain, dropped outside of it;
 * the last one closes the job. */
void job_retain(struct job *job);
void job_release(struct job *job);
/* The same in two parts: inside the domain, and outside of it where that was the last one. */
bool job_drop(struct job *job);
void job_close(struct job *job);

/* In the child of a fork: the copy does nothing any more. Idempotent. */
void job_after_fork(struct job *job);

/* Moves what can move; called inside the domain. Returns the number of events. */
int job_progress(void *context);

/* Deadlines are looked at by then. Inside the domain. */
static inline void job_scan_by(struct job *job, int64_t at_ns) {
    if (at_ns < atomic_load_explicit(&job->next_scan_ns, memory_order_relaxed))
        atomic_store_explicit(&job->next_scan_ns, at_ns, memory_order_relaxed);
}

/* Goes on with what has come already, until nothing moves any more. Inside the domain. */
void job_drain(struct job *job);

/* Whether ranks a and b are on one host and both have a transport. */
bool job_same_host(const struct job *job, int a, int b);

#endif
