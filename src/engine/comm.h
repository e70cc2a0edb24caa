/* Communicators and requests: the state behind the two public handles. */
#ifndef ENGINE_COMM_H
#define ENGINE_COMM_H

#include "engine/call.h"
#include "engine/job.h"
#include "engine/operators.h"
#include "engine/p2p.h"
#include "engine/skew.h"
#include "reduce/reduce.h"
#include <algorithms/algorithm.h>
#include <rota/p2p.h>
#include <transports/native.h>

struct executor;
struct inquiry_comm;
struct strict;
struct join;
struct record_call;
struct record_page;
struct numerics_proof;
struct plan;
struct select_state;

enum request_stage {
    REQUEST_QUEUED,      /* not begun: behind another of its communicator, or left to progress */
    REQUEST_CONNECTING,  /* waits until the communicator knows whether it has native forms */
    REQUEST_STAGING_IN,  /* copies memory that a form cannot touch to the host */
    REQUEST_NATIVE,      /* a native form runs it */
    REQUEST_RUNNING,     /* the executor or point to point runs it */
    REQUEST_STAGING_OUT, /* copies the result back */
    REQUEST_ENDED
};

/* A request: one operation from its start to its end. Fields are guarded by the domain, but
 * `done`, which is set last (release) and read by waiters (acquire). */
struct rota_request {
    rota_comm *comm;   /* alive until the request has ended */
    struct job *job;   /* holds a reference */
    struct join *join; /* of a rota_init, see join.c: it has neither of the two */
    struct call_args args;
    struct reduce_spec spec; /* kinds that reduce */
    bool rounds_partials;    /* see numerics.h; then hop_spec makes what is stored on the way */
    struct reduce_spec hop_spec;
    size_t element_size;
    uint64_t sequence, fingerprint;
    int64_t started_ns, deadline_ns;
    struct inquiry_turn turn; /* of asking those it waits for */
    bool asked_last;          /* everybody was asked, as the deadline is near */
    struct strict *strict;    /* not NULL: one of the library's own, which compares ... */
    rota_request *strict_for; /* ... this one's call on all ranks before it begins */
    const struct algorithm *algorithm;
    const struct comm_repeat *like; /* not NULL: what is known of it from one before */
    enum request_stage stage;
    bool may_be_native;
    const struct native_form *form;  /* a native form runs it */
    int native_waits_for;            /* rank that the form waited for last, or -1 */
    size_t *tables;                  /* v-forms: counts and displacements */
    struct record_page *line_page;   /* the recorder's ... */
    struct record_call *line;        /* ... and this call in it; NULL: not recorded */
    void *staged_send, *staged_recv; /* host copies, see staging.h */
    struct staging_ticket *copy;     /* under way */
    struct p2p_state p2p;
    _Atomic bool done;
    rota_status status;
    rota_done_fn done_fn;
    void *done_arg;
    bool background; /* counted in job->background */
    bool freed;      /* by the user, before it ended */
    bool queued;     /* by queue_entry, in comm->queue or a list of p2p */
    bool polled;     /* in job->polled */
    TAILQ_ENTRY(rota_request) queue_entry;
    TAILQ_ENTRY(rota_request) poll_entry; /* job->polled or job->callbacks */
    LIST_ENTRY(rota_request) comm_entry;  /* comm->requests */
    char label[32];
    rota_error record; /* last: one that is used again has it empty already */
};

#define COMM_MAX_ALGORITHMS 32
#define COMM_SPECS 32

/* What a call came to, as far as the same call may rely on it: see repeat.h. */
struct comm_repeat {
    struct call_shape shape;
    uint64_t fingerprint;  /* of the call alone, */
    uint64_t by_algorithm; /* and with its algorithm */
    size_t bytes;
    size_t alignment;                  /* of an element */
    const struct native_form *form;    /* that ran it, */
    const struct algorithm *algorithm; /* or whose schedule did; both NULL: empty */
    bool reduces;
    struct reduce_spec spec;
};
#define COMM_REPEATS 8 /* a power of two */

enum native_state { NATIVE_UNKNOWN, NATIVE_CONNECTING, NATIVE_READY, NATIVE_NONE };

/* Groups of one list and tag (its hash) that were created from a communicator. */
struct comm_groups {
    uint64_t list;
    uint32_t count;
};

struct rota_comm {
    struct job *job;
    int rank, nranks;
    int *members; /* job ranks */
    char name[ROTA_ERROR_MAX_NAME];
    uint32_t id, generation; /* name its streams: no pair of ranks has two alike */
    uint32_t splits;         /* of this one so far; the same on all members */
    _Atomic bool busy;       /* a thread is starting or running a collective */
    _Atomic int users;       /* threads inside a call */
    _Atomic int outstanding; /* collectives in the queue */
    _Atomic int status;      /* ROTA_OK while it works */
    _Atomic bool asked;      /* a peer has asked for a call that has not begun: failure.h */
    _Atomic int64_t timeout_ms;
    rota_error record; /* why it does not work, or the last failed call */
    bool bare;         /* the record says nothing yet of the call that it ended */
    /* Trouble whose cause is looked for; see failure_hold. NULL: none. */
    rota_error *held;
    int64_t held_until_ns;
    int held_peer;
    struct inquiry_comm *inquiry;
    uint32_t agreements;  /* so far; the same on all members */
    _Atomic int numerics; /* rota_numerics of calls that name none */
    bool check;           /* fingerprints travel */
    bool strict;          /* calls are compared before data move */
    bool deliberate;      /* that, or rules: no call is run before it was looked at */
    bool finalized;
    _Atomic bool finalizing; /* in the last barrier: who is gone may have sent all that it had to */
    rota_error *ending;      /* a verdict that waits for what is still on its way, */
    int64_t ending_ns;       /* until then */
    uint64_t sequence;       /* of the last collective */
    uint64_t history;        /* of all collectives so far: see comm_chain */
    const struct algorithm *forced; /* setting ROTA_ALGORITHM */
    struct algorithm_topology topology;
    int *ring; /* of the topology */
    uint64_t ring_hash;
    int *group_of;
    struct select_state *select;                /* NULL before selection was asked */
    TAILQ_HEAD(comm_queue, rota_request) queue; /* collectives, in order; the head runs */
    LIST_HEAD(, rota_request) requests;         /* all that have not ended */
    struct executor *executor;
    struct plan *plans;            /* cache */
    struct numerics_proof *proofs; /* cache */
    struct p2p_table *p2p;
    _Atomic int native_state;
    const struct transport_native_ops *native_ops;
    struct native_group *native;
    _Atomic uint64_t native_calls;
    const char *_Atomic last_algorithm;
    const char *_Atomic algorithms[ROTA_KIND_COUNT];        /* of the last call of each kind */
    struct record_page *recorded_calls, *recorded_messages; /* NULL before the first call */
    const char *recorded_name; /* of what ran the last call, and its hash */
    uint32_t recorded_hash;
    struct skew *_Atomic skew;            /* see skew_of */
    struct reduce_spec specs[COMM_SPECS]; /* of types and operators that were used last */
    struct reduce_spec created_spec;      /* of the last operator that was created */
    struct operators operators;
    struct comm_repeat repeats[COMM_REPEATS];
    enum cpu_isa isa;
    struct comm_groups *groups; /* created from it, by list and tag; guarded by the domain */
    int ngroups;
    LIST_HEAD(, rota_plan) persistent;
    LIST_ENTRY(rota_comm) job_entry;
};

struct comm_name {
    uint32_t id, generation;
};

/* Makes a communicator of the given job ranks (members is copied; self is the caller's index). */
rota_status comm_create(struct job *job, const char *name, const int *members, int nmembers,
                        int self, struct comm_name wire_name, rota_comm **comm);
/* Ends everything and frees it; drops its reference on the job. Any thread, outside the domain.
 * ROTA_ERR_ARGUMENT when there is no such communicator (destroyed before). */
rota_status comm_destroy(rota_comm *comm);
/* Every public function that works on a communicator runs between these, but calls that hold
 * `busy` to their end. */
static inline void comm_enter(rota_comm *comm) {
    atomic_fetch_add_explicit(&comm->users, 1, memory_order_relaxed);
}
static inline void comm_leave(rota_comm *comm) {
    /* Partner: comm_destroy waits for 0 before it frees. */
    atomic_fetch_sub_explicit(&comm->users, 1, memory_order_release);
}
/* Whether a thread is inside a call: comm_destroy waits for the last. */
static inline bool comm_in_use(const rota_comm *comm) {
    /* Partners: comm_leave, and who releases `busy`. */
    return atomic_load_explicit(&comm->users, memory_order_acquire) > 0 ||
           atomic_load_explicit(&comm->busy, memory_order_acquire);
}
/* Marks it failed, ends all its requests with the record, and tells the other members. Inside the
 * domain, as the next one. */
void comm_fail(rota_comm *comm, const rota_error *record);
/* The same with a record that the other members hear of by themselves. Its message is about the
 * communicator; each request's own record says of which call it is. */
void comm_end(rota_comm *comm, const rota_error *record);
/* The spec of a call's type and operator, good until the next call; sets args->op_identity. NULL
 * and an error raised for unknown ones. Only by the thread that holds `busy`. */
const struct reduce_spec *comm_spec(rota_comm *comm, struct call_args *args);
/* The same by any thread, into memory of the caller's. */
rota_status comm_make_spec(rota_comm *comm, struct call_args *args, struct reduce_spec *spec);
/* Notes what runs a call: an algorithm or a native form. */
static inline void comm_note_algorithm(rota_comm *comm, rota_kind kind, const char *name) {
    atomic_store_explicit(&comm->last_algorithm, name, memory_order_relaxed);
    atomic_store_explicit(&comm->algorithms[kind], name, memory_order_relaxed);
}
/* Counts a call that a native form ran. */
static inline void comm_note_native(rota_comm *comm, rota_kind kind, const char *form) {
    uint64_t calls = atomic_load_explicit(&comm->native_calls, memory_order_relaxed);
    atomic_store_explicit(&comm->native_calls, calls + 1, memory_order_relaxed);
    comm_note_algorithm(comm, kind, form);
}
/* What travels of a call that begins: its fingerprint joined with those of all calls before it. So
 * ranks whose calls once differed, and who met nobody that minded, find it at whatever they call
 * next. Multiplying by an odd number loses nothing: a difference stays. */
static inline uint64_t comm_chain(rota_comm *comm, uint64_t fingerprint) {
    if (fingerprint == 0)
        return 0; /* checking is off */
    uint64_t chained = (fingerprint ^ comm->history) | 1;
    comm->history = (comm->history ^ fingerprint) * 0x9e3779b97f4a7c15u;
    return chained;
}
/* ROTA_OK, or raises why the communicator takes no calls: the record that ended it. Inside the
 * domain. */
rota_status comm_usable(rota_comm *comm);
/* Keeps the calling thread's error as the communicator's last one and returns its status. */
rota_status comm_keep_error(rota_comm *comm, rota_status status);

/* -- requests, inside the domain unless said otherwise ------------------------------------------
 */
/* NULL and an error raised when it cannot be made. */
rota_request *request_create(rota_comm *comm, const struct call_args *args, const rota_call *call);
void requests_free_spare(struct job *job);
/* What stands for every send, or receive, that had ended when its call returned. */
rota_request *request_of_past(rota_kind kind);
/* Its caller goes away: unless it has ended, the progress thread goes on with it. */
void request_leave(rota_request *request);
/* The work is done or has failed (status, and the thread's error record): copies results back
 * where needed, then closes it. */
void request_end(rota_request *request, rota_status status);
/* Closes it: lets the next of its communicator begin, and its waiters or call-back know. */
void request_close(rota_request *request, rota_status status);
/* Puts one that begins into its communicator's list, and has its deadlines looked at. */
void request_watch(rota_request *request);
/* Puts it among those that job_progress polls, or takes it out. */
void request_poll(rota_request *request, bool wanted);
/* Outside the domain: waits until it has ended, or until `deadline_ns` (returns false). */
bool request_wait(rota_request *request, int64_t deadline_ns);
/* The status of one that has ended; its record becomes the calling thread's when it failed. */
rota_status request_outcome(const rota_request *request);
/* Outside the domain: waits until one of them has ended; its index, -1 at the deadline. */
int request_wait_any(rota_request *const *requests, int count, int64_t deadline_ns);
/* Whether its record may be read: it has ended, or its call-back runs in this thread. */
bool request_has_record(const rota_request *request);
/* Whether it is seen to have ended without a look at anything else. */
static inline bool request_is_done(const rota_request *request) {
    /* Partner: whoever ends it, after its outcome is set. */
    return request->join == NULL && atomic_load_explicit(&request->done, memory_order_acquire);
}
/* Whether it is that of a process which forked this one. */
bool request_forked(const rota_request *request);
/* See rota_request_cancel. Outside the domain. */
rota_status request_cancel(rota_request *request);
/* Sets its status, and keeps the thread's error as its record. */
void request_keep(rota_request *request, rota_status status);
/* Calls its call-back, if it has one. Outside the domain, when status and record are there. */
void request_call_back(rota_request *request);
/* Outside the domain: a request that stands for others and does nothing itself; call may carry
 * request, done and label. It ends by request_settle, with the thread's error record. */
rota_request *request_create_whole(rota_comm *comm, const rota_call *call);
void request_settle(rota_request *whole, rota_status status);
/* Outside the domain: the user lets go of it. */
void request_release(rota_request *request);
/* Raises an error of an operation: fills rank, kind, sequence, waited time; the message begins
 * with "all_reduce #12 (float32 sum, 4096) on world, rank 2 of 4: ". */
rota_status request_raise(const rota_request *request, rota_status status, int peer,
                          const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Raises a record whose message is about the communicator as one of this request. */
rota_status request_raise_found(const rota_request *request, const rota_error *record);
/* Members that a request waits for now, at most max; their number. */
int request_awaited(const rota_request *request, int *members, int max);
/* The request's call as other ranks may know it. */
struct call_summary request_summary(const rota_request *request);
/* Ends those whose deadline has passed, and asks those that others wait for; returns when it wants
 * to be called again. */
int64_t comm_expire(rota_comm *comm, int64_t now_ns);
/* Runs done call-backs that are due; outside the domain. */
void job_run_callbacks(struct job *job);

#endif
