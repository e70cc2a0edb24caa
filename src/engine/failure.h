/* Failures: what is found out about peers and their calls, brought to where it ends operations.
 *
 * Liveness and inquiry run on the control thread, which never enters a progress domain. What they
 * find is put in a list of the job and the doorbell is rung; whoever progresses next takes it from
 * there. Every wait progresses, so every wait hears of it.
 *
 * An operation that has met trouble whose cause is not known yet (a connection that broke, a
 * message of another call, silence at a deadline) is *held*: it moves nothing any more, and ends
 * when the cause is found, or with what is known when the time for that is over. */
#ifndef ENGINE_FAILURE_H
#define ENGINE_FAILURE_H

#include "engine/comm.h"
#include "engine/inquiry.h"

/* Opens liveness and inquiry of a job whose table of ranks is there, and closes them. */
rota_status failures_open(struct job *job);
void failures_close(struct job *job);

/* -- inside the domain --------------------------------------------------------------------------
 */
/* Takes what was found. Returns its number. */
int failures_apply(struct job *job);
/* A communicator is there, or goes. */
rota_status failures_comm_open(rota_comm *comm);
void failures_comm_close(rota_comm *comm);

/* How long it takes that a notice arrives, of a rank that leaves after it. */
#define FAILURE_LEFT_NS 40000000

/* Holds the communicator's operations until `until_ns`, when it fails with the record unless
 * something better was found. `peer`: rank of the job whose connection it is about, or -1. */
void failure_hold(rota_comm *comm, const rota_error *record, int64_t until_ns, int peer);
/* The operation has seen a message, or a line, of another call; the error is raised. */
void failure_mismatch(rota_request *request);
/* The connection to a rank that the operation needs is gone. */
void failure_link(rota_request *request, const struct link *link, int member);
/* The operation's deadline has passed, and nobody was asked before it, as this rank itself was kept
 * from running: what is known may be old. Asks now, and moves the deadline until the answers must
 * be here. False: that was done. */
bool failure_postpone(rota_request *request, const int *awaited, int nawaited, int64_t now_ns);
/* The operation's deadline has passed while it waited for the members. */
void failure_expire(rota_request *request, const int *awaited, int nawaited);
/* It waits and has waited for a while: asks what is due; when to come again. */
int64_t failure_wait(rota_request *request, const int *awaited, int nawaited, int64_t now_ns);
/* Tells the other members that the communicator has ended here; the record is one of a call. */
void failure_tell(rota_comm *comm, const rota_error *record);

/* -- any thread ---------------------------------------------------------------------------------
 */
/* A call begins and has been recorded: whoever asked for it hears of it. */
static inline void failure_call_begins(rota_comm *comm) {
    if (__builtin_expect(atomic_load_explicit(&comm->asked, memory_order_relaxed), 0))
        inquiry_started(comm->inquiry);
}

#endif
