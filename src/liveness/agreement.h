/* Agreements: one value for all participants that live, also when its coordinator dies. A pure
 * state machine as view.h, on top of its views. See agreement.c. Internal to liveness. */
#ifndef LIVENESS_AGREEMENT_H
#define LIVENESS_AGREEMENT_H

#include "liveness/liveness.h"
#include "liveness/view.h"

enum agreement_message_type {
    AGREEMENT_JOIN = 1, /* to the coordinator: my ballot, and what I accepted */
    AGREEMENT_ASK,      /* of the coordinator: join, if you take part */
    AGREEMENT_ACCEPT,
    AGREEMENT_ACCEPTED,
    AGREEMENT_DECIDED,
    AGREEMENT_MESSAGE_TYPES
};

/* What is agreed on; `epoch`: of the view whose members' ballots are in it. */
struct agreement_value {
    struct liveness_ballot ballot;
    uint32_t epoch;
};

/* Fixed layout: it is sent. */
struct agreement_message {
    uint32_t type, epoch; /* epoch: the sender's */
    struct liveness_topic topic;
    uint32_t accepted_epoch; /* JOIN: AGREEMENT_NONE, or when `value` was accepted */
    struct liveness_ballot mine;
    struct agreement_value value;
};
_Static_assert(sizeof(struct agreement_message) == 64, "agreement_message is sent over the wire");
#define AGREEMENT_NONE UINT32_MAX

struct agreement_events {
    void *context;
    void (*send)(void *context, int to, const struct agreement_message *message);
    void (*agreed)(void *context, const struct liveness_agreement *agreement);
};

struct agreements;

/* NULL: no memory. `view` outlives it. */
struct agreements *agreements_create(int nranks, int self, const struct view *view,
                                     const struct agreement_events *events);
void agreements_destroy(struct agreements *agreements);
/* False: no memory. */
bool agreements_begin(struct agreements *agreements, const struct liveness_topic *topic,
                      const int *ranks, int nranks, const struct liveness_ballot *mine,
                      int64_t now);
void agreements_receive(struct agreements *agreements, int from,
                        const struct agreement_message *message, int64_t now);
/* The view has changed. */
void agreements_view_changed(struct agreements *agreements, int64_t now);
int64_t agreements_deadline(const struct agreements *agreements);
void agreements_tick(struct agreements *agreements, int64_t now);
/* Calls back for each peer on whose life an agreement under way depends here. */
void agreements_each_peer(const struct agreements *agreements,
                          void (*call)(void *context, int peer), void *context);

#endif
