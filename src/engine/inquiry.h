/* Inquiry: what ranks ask and tell each other about their calls, over the control plane.
 *
 * Design note. Who has waited 10 ms asks whom it waits for about the call of that number; the other
 * rank's control thread answers from its recorder, and wakes nobody. A question that comes before
 * its call is kept, and answered when the call begins: so however rarely a long wait asks again, a
 * contradiction shows at once. Whoever sees one takes a census: all members are asked for their
 * call of that number, and after 30 ms, or when one that differs has answered, the groups of ranks
 * by call are made known to all in a notice. A notice ends the communicator wherever it comes; the
 * first one counts. Before a deadline all members are asked once more (a rank that was kept from
 * running asks when it comes to, and then waits for the answers), so that the error can say who is
 * absent, who is in another call, who is blocked in a circle, and who does not answer at all.
 *
 * What comes from peers is checked before it is used. All state is under one lock; what is told to
 * the engine (`found`) is told under it, and must only be taken note of. */
#ifndef ENGINE_INQUIRY_H
#define ENGINE_INQUIRY_H

#include "bootstrap/bootstrap.h"
#include "engine/call.h"
#include "recording/format.h"
#include <stdatomic.h>
#include <stdbool.h>

/* Waits shorter than this ask nothing. */
#define INQUIRY_FIRST_NS 10000000
/* Members beyond this number are not all asked and told directly. */
#define INQUIRY_ALL_RANKS 64

struct inquiry;
struct inquiry_comm;

/* News for a communicator: it is to end with the record. */
struct inquiry_finding {
    uint32_t comm, generation;
    rota_error record;
};

/* What it stands on. `send` and `found` must not call back. */
struct inquiry_host {
    void *context;
    int rank, nranks;                       /* of the job */
    const struct bootstrap_record *records; /* names of ranks in messages */
    bool blind;                             /* nothing is recorded here */
    void (*send)(void *context, int peer, const void *message, size_t bytes);
    void (*watch)(void *context, int peer);
    bool (*find)(void *context, uint32_t comm, uint32_t generation, uint64_t sequence,
                 struct record_call *call);
    /* What this rank is blocked in; *waited_ms: since when. */
    bool (*running)(void *context, struct record_call *call, struct record_page *head,
                    uint64_t *waited_ms);
    /* All threads of this process have passed a full fence when it returns. */
    void (*fence)(void *context);
    void (*found)(void *context, const struct inquiry_finding *finding);
    /* Waiters are to call inquiry_wait. */
    void (*wake)(void *context);
};

rota_status inquiry_create(const struct inquiry_host *host, struct inquiry **inquiry);
void inquiry_destroy(struct inquiry *inquiry);
/* Control thread: a message of a peer's inquiry; anything that is none is dropped. */
void inquiry_message(struct inquiry *inquiry, int from, const void *message, size_t bytes);

/* Whether a message that is sent is a notice. */
bool inquiry_is_notice(const void *message, size_t bytes);

/* A communicator comes and goes. `members` and `name` outlive it; `asked` is raised while a call
 * of it is asked for that has not begun. What came for it before it was there is found now. */
rota_status inquiry_comm_create(struct inquiry *inquiry, uint32_t comm, uint32_t generation,
                                const int *members, int nmembers, int self, const char *name,
                                bool compares, _Atomic bool *asked, struct inquiry_comm **out);
/* `last`: number of the last collective that it called here. */
void inquiry_comm_destroy(struct inquiry_comm *comm, uint64_t last);

/* A wait goes on since `since_ns`, for the given members: asks what is due. Returns when it wants
 * to be called again. `mine`: the call that waits; of sends and receives its sequence is 0. */
int64_t inquiry_wait(struct inquiry_comm *comm, struct inquiry_turn *turn,
                     const struct call_summary *mine, const int *awaited, int nawaited,
                     int64_t since_ns, int64_t now_ns);
/* The caller has seen that a member's call of this number is not its own: takes a census, whose
 * outcome is found within 30 ms and a little. */
void inquiry_census(struct inquiry_comm *comm, const struct call_summary *mine);
/* A call begins while `asked` is raised; its line has been recorded. */
void inquiry_started(struct inquiry_comm *comm);
/* Asks everybody, because a deadline is near. */
void inquiry_last(struct inquiry_comm *comm, const struct call_summary *mine, const int *awaited,
                  int nawaited, int64_t now_ns);

/* What is known at a deadline. */
struct inquiry_summary {
    int nabsent, absent[ROTA_ERROR_MAX_CULPRITS]; /* members that are not in the call */
    int nsilent, silent[ROTA_ERROR_MAX_CULPRITS]; /* that did not answer the last question */
    char text[320];
};
void inquiry_conclude(struct inquiry_comm *comm, const struct call_summary *mine,
                      const int *awaited, int nawaited, int64_t waited_ms,
                      struct inquiry_summary *summary);

/* Tells all members that the communicator has ended here with the record, whose message is about
 * the communicator and not about a call of this rank. */
void inquiry_notice(struct inquiry_comm *comm, const rota_error *record);

/* "rank 5 (host b, pid 812)" of a member, or of the job where comm is NULL. */
size_t inquiry_rank_text(const struct inquiry *inquiry, const struct inquiry_comm *comm, int rank,
                         char *text, size_t size);

#endif
