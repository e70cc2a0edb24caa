/* Liveness: whether the peers of a job still live, and what the members hold to be true about it.
 *
 * One instance per rank of a job. All of it runs on the control thread: control connections between
 * ranks (made on demand, by the one authenticated connect and accept), process exits, suspicions,
 * views, agreements. Other threads only hand commands to it. Nothing here blocks, touches user data
 * or knows what a communicator is: the engine's questions and answers pass through as bytes.
 *
 * Evidence is *proof* or *suspicion*. Proof: the process ended (a pidfd says so, for peers of the
 * same host and pid namespace), it left the job, or its control connection closed and a new one is
 * refused. Suspicion: a data connection broke, or it does not answer. The members of a job form
 * *views* (epoch, set of ranks); the job begins with view 0, of all. Suspicion and proof lead to a
 * view change (ballots, see view.h), whose verdict every member of the new view hears with the same
 * record. A rank that reaches no valid group within ROTA_AGREE_TIMEOUT_MS of its own suspicion is
 * isolated, for good. */
#ifndef LIVENESS_LIVENESS_H
#define LIVENESS_LIVENESS_H

#include "bootstrap/bootstrap.h"

/* Longest message of the engine's. */
#define LIVENESS_MAX_MESSAGE 1024

enum liveness_evidence {
    LIVENESS_BROKEN, /* a data connection broke: looked into at once; see `cleared` */
    LIVENESS_SILENT  /* a deadline passed and it did not answer the engine's questions */
};

/* What a view change decided. The same on all members of the new view. */
struct liveness_verdict {
    uint32_t epoch; /* of the new view */
    int nfailed;    /* ranks of the job that this change removed, ascending */
    const int *failed;
    const bool *left;   /* for each of them: it left in good order */
    rota_status status; /* ROTA_ERR_PEER; ROTA_ERR_TIMEOUT where only silence is known */
    /* "rank 3 (host b, pid 812) exited; rank 4 (host b, pid 813) left the job": of all removed
     * ranks, as far as there is room. */
    char text[256];
};

/* Names an agreement: the same on all that take part in it. */
struct liveness_topic {
    uint32_t comm, generation, number;
};
/* What each participant brings, and what they agree on: the conjunction of the flags, the highest
 * number, over all participants that were alive when it was decided. */
struct liveness_ballot {
    uint64_t flags;
    uint32_t highest;
};
struct liveness_agreement {
    struct liveness_topic topic;
    struct liveness_ballot result;
    uint32_t epoch;
    int nfailed; /* participants left out because they failed, ascending; ranks of the job */
    const int *failed;
};

/* Called on the control thread, one at a time, never after liveness_close has returned. They must
 * not block, must not enter a progress domain, and may call the functions below. */
struct liveness_events {
    /* A message of a peer's engine. */
    void (*message)(void *context, int from, const void *message, size_t bytes);
    void (*verdict)(void *context, const struct liveness_verdict *verdict);
    /* A peer whose data connection broke (LIVENESS_BROKEN) lives and answers. */
    void (*cleared)(void *context, int peer);
    /* This rank reached no valid group, or a view was decided without it. */
    void (*isolated)(void *context, const char *text, const int *unreached, int nunreached);
    void (*agreed)(void *context, const struct liveness_agreement *agreement);
};

struct liveness;

/* `records` and `identity` outlive it. The control thread is held (control_acquire) until close.
 * From here on peers' control connections are let in. Errors: ROTA_ERR_SYSTEM, ROTA_ERR_MEMORY. */
rota_status liveness_open(const struct net_identity *identity, int nranks,
                          const struct bootstrap_record *records, const struct settings *settings,
                          const struct liveness_events *events, void *context,
                          struct liveness **liveness);
/* Waits until what was handed to liveness_send has been sent, at most so long. Any thread but the
 * control thread. */
void liveness_flush(struct liveness *liveness, int64_t most_ns);
/* Tells those who are connected that this rank leaves, and ends it. No event comes afterwards. Not
 * from an event. Returns within milliseconds, whatever the peers do. */
void liveness_close(struct liveness *liveness);

/* The rest: any thread, never blocks; what cannot be done for want of memory is left out, since
 * deadlines of the engine end every wait anyway. */

/* Looks after a peer from now on: hears of its exit. Done for whoever is waited for. Idempotent,
 * cheap when repeated (one load). */
void liveness_watch(struct liveness *liveness, int peer);
/* Sends a message to a peer's engine, best effort, in order. Connects if need be. */
void liveness_send(struct liveness *liveness, int peer, const void *message, size_t bytes);
/* Evidence against a peer. `text` says what was seen ("connection reset by 10.0.0.2:4711"). */
void liveness_suspect(struct liveness *liveness, int peer, enum liveness_evidence evidence,
                      int system_error, const char *text);
/* Takes part in an agreement among `ranks` (of the job, this one among them). The event `agreed`
 * comes when all that live have brought their ballot, or `isolated`; also when nobody waits for it
 * here any more, since the others may decide with what this rank brought. A topic is decided once;
 * who comes after the decision hears the same. */
void liveness_agree(struct liveness *liveness, const struct liveness_topic *topic, const int *ranks,
                    int nranks, const struct liveness_ballot *mine);
/* The epoch of the last view decided; whether `peer` is in it. */
uint32_t liveness_epoch(const struct liveness *liveness);
bool liveness_member(const struct liveness *liveness, int peer);

#endif
