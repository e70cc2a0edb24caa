/* Views: who the members of a job hold to be alive, changed by ballots. A pure state machine: no
 * I/O, no clock. What comes in are messages, evidence and the time; what goes out are messages and
 * decisions, by call-backs. See view.c for the protocol. Internal to liveness. */
#ifndef LIVENESS_VIEW_H
#define LIVENESS_VIEW_H

#include "liveness/ranks.h"
#include <rota/status.h>

#define VIEW_TEXT 256
#define VIEW_REASON 160 /* why one rank is held to be dead or silent */

struct view_ballot {
    uint32_t round, rank; /* round 0: none; the rank is the coordinator's */
};

enum view_message_type {
    VIEW_EVIDENCE = 1, /* to the coordinator: `peer` is dead (proved) or suspected, and why */
    VIEW_PREPARE,
    VIEW_PROMISE,
    VIEW_REFUSE, /* `ballot` is the one that was promised before */
    VIEW_ACCEPT,
    VIEW_ACCEPTED,
    VIEW_DECIDE,
    VIEW_UNCHANGED, /* all answered: nobody failed */
    VIEW_BEHIND,    /* the sender lacks the decisions since its epoch */
    VIEW_ISOLATED,  /* the sender has given up, for good */
    VIEW_MESSAGE_TYPES
};

/* What an epoch decides: who is no longer in the next view. */
struct view_value {
    rota_status status;
    const struct ranks *failed;
    char text[VIEW_TEXT];
};

/* The reason of who left in good order. */
#define VIEW_LEFT "left the job"

struct view_message {
    enum view_message_type type;
    uint32_t epoch; /* of the view that is to be replaced */
    struct view_ballot ballot;
    const struct ranks *dead;       /* PREPARE, PROMISE, ACCEPT */
    const struct ranks *left;       /* of the dead: those that left in good order; NULL: none */
    struct view_ballot accepted;    /* PROMISE */
    bool decided;                   /* PROMISE: `value` is */
    const struct view_value *value; /* PROMISE (NULL: nothing accepted), ACCEPT, DECIDE */
    int peer;                       /* EVIDENCE */
    bool proved;                    /* EVIDENCE */
    const char *reason;             /* EVIDENCE */
};

struct view_events {
    void *context;
    void (*send)(void *context, int to, const struct view_message *message);
    /* The next view is there; epoch and members are already those of it. */
    void (*decided)(void *context, const struct view_value *value);
    /* Nobody failed: all answered. */
    void (*unchanged)(void *context);
    /* No valid group was reached, or it went on without this rank. Final. */
    void (*isolated)(void *context, const char *text, const struct ranks *unreached);
    /* How to name a rank: "rank 3 (host b, pid 812)". NULL: by its number. */
    void (*name)(void *context, int rank, char *text, size_t size);
};

/* Nanoseconds. A silent member fails after some ballots, fewer when it was suspected before: a busy
 * machine is no failure. */
#define VIEW_PATIENCE 4
#define VIEW_PATIENCE_SUSPECTED 2
struct view_times {
    int64_t collect, ballot, takeover, isolation;
};

struct view;

/* View 0 has all ranks. NULL: no memory. */
struct view *view_create(int nranks, int self, const struct view_times *times,
                         const struct view_events *events);
void view_destroy(struct view *view);

void view_evidence(struct view *view, int peer, bool proved, rota_status status, const char *reason,
                   int64_t now);
void view_receive(struct view *view, int from, const struct view_message *message, int64_t now);
/* A message of other kind came from a peer at this epoch: tells it, or asks, what one of the two
 * has missed. */
void view_heard(struct view *view, int from, uint32_t epoch);
/* When view_tick is to be called, INT64_MAX: not at all. */
int64_t view_deadline(const struct view *view);
void view_tick(struct view *view, int64_t now);

uint32_t view_epoch(const struct view *view);
bool view_isolated(const struct view *view);
/* Members of the current view. */
const struct ranks *view_members(const struct view *view);
/* Whether a decision of an epoch before `epoch` removed the rank. */
bool view_removed_before(const struct view *view, int rank, uint32_t epoch);
/* Those proved dead, members and former members. */
const struct ranks *view_dead(const struct view *view);

#endif
