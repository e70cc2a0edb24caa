/* Native forms: whole schedules that a transport runs itself.
 *
 * A *group* is a communicator as the transport sees it. Whether a form runs may depend only on
 * what all ranks of the group know (struct native_call); what is local (pointers, alignment, in
 * place) may not change what peers see. Each form names the algorithm whose schedule it equals, bit
 * for bit.
 *
 * Threads: a group's functions are called by the one thread that is inside a collective of the
 * communicator, without the progress domain, except group_open, group_connect and group_close,
 * which are called with it. A form touches only memory of its group and its own rank's buffers. */
#ifndef TRANSPORTS_NATIVE_H
#define TRANSPORTS_NATIVE_H

#include "transports/transport.h"

struct native_group;

struct native_call {
    rota_kind kind;
    size_t count;
    size_t bytes;                   /* count * element size */
    const struct reduce_spec *spec; /* NULL in kinds that do not reduce */
    int root;
    uint64_t sequence;    /* of the operation on the communicator, from 1 */
    uint64_t fingerprint; /* 0 when checking is off */
    const void *send;     /* host memory; local, not known to peers */
    void *recv;
};

struct native_form {
    const char *name;   /* "shm-one-shot" */
    const char *equals; /* name of the algorithm whose schedule it equals */
    int block; /* so many neighbouring members combine or pass on among themselves first; 0: none */
};

/* How a form waits: it polls, and between polls asks the engine, which spins, yields, sleeps on
 * the rank's doorbell, or says stop (deadline, abort, failed peer). */
struct native_wait {
    /* False: return NATIVE_PAUSED now. `ready` looks at the memory that is waited for; the engine
     * calls it after arming the doorbell. */
    bool (*pause)(struct native_wait *wait, bool (*ready)(const void *arg), const void *arg);
    int waiting_for; /* the form notes the member it waits for: for the error record */
    uint32_t turns;  /* the engine's */
    uint32_t interrupt_seen;
};

enum native_outcome {
    NATIVE_DONE,
    NATIVE_PAUSED,   /* native_wait said so: advance may be called again with the same call */
    NATIVE_MISMATCH, /* a member's fingerprint differs: `peer`, `peer_fingerprint` */
    NATIVE_CLOSED    /* a member closed its group */
};
struct native_result {
    enum native_outcome outcome;
    int peer; /* member index */
    uint64_t peer_fingerprint;
    const struct native_form
        *form; /* DONE: what ran, where it is more special than what was asked */
};

struct transport_native_ops {
    /* Local part; members[i] is the job rank of member i, `self` the caller's index. */
    rota_status (*group_open)(struct transport *transport, uint32_t comm, uint32_t generation,
                              const int *members, int nmembers, int self,
                              struct native_group **group);
    /* Connects what is needed. OK: ready on this rank, and every member will come to the same
     * answer. UNSUPPORTED: some member cannot, and every member will come to that answer. AGAIN:
     * call again after progress. */
    enum transport_result (*group_connect)(struct native_group *group);
    /* While it connects: a member that has not come yet, -1 when there is none; for error records.
     */
    int (*group_missing)(const struct native_group *group);
    /* Local. Members still inside a call see NATIVE_CLOSED. */
    void (*group_close)(struct native_group *group);
    /* The form for a call, NULL when the schedule should run it. */
    const struct native_form *(*query)(const struct native_group *group, rota_kind kind,
                                       size_t bytes, const struct reduce_spec *spec);
    /* Begins the call, or goes on with the one under way (same call->sequence), waiting by `wait`.
     * Requests need this: the progress thread serves many groups, so it passes a `wait` whose pause
     * says stop at once, gets NATIVE_PAUSED, serves others, and calls again. Where the call stands
     * (phase, slice) is therefore kept in the group, not on the stack; a call has at most one
     * thread inside at a time, but different threads may take turns. After MISMATCH or CLOSED, or
     * when the engine gives a paused call up, the group is only to be closed. */
    struct native_result (*advance)(struct native_group *group, const struct native_form *form,
                                    const struct native_call *call, struct native_wait *wait);
};

#endif
