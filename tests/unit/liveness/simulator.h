/* View and agreement machines of some ranks on a network that exists in memory alone, in time that
 * passes by counting: everything is decided by a seed. */
#ifndef TESTS_LIVENESS_SIMULATOR_H
#define TESTS_LIVENESS_SIMULATOR_H

#include "liveness/agreement.h"
#include "liveness/wire.h"

#define SIM_RANKS 8
#define SIM_EPOCHS (SIM_RANKS + 1)
#define SIM_TOPICS 4
#define SIM_MS INT64_C(1000000)

struct sim;
struct sim_rank {
    struct view *view;
    struct agreements *agreements;
    bool dead, stopped, began[SIM_TOPICS];
    bool proofs;   /* it learns of deaths by itself */
    int die_after; /* messages; -1: not so */
    int isolated, unchanged, changes;
    uint32_t unreached;
    bool view_changed;
    /* By epoch of the new view; `failed` as bits. */
    bool decided[SIM_EPOCHS];
    uint32_t failed[SIM_EPOCHS];
    char text[SIM_EPOCHS][VIEW_TEXT];
    bool agreed[SIM_TOPICS];
    struct liveness_ballot ballot[SIM_TOPICS], result[SIM_TOPICS];
    uint32_t left_out[SIM_TOPICS];
};

struct sim_event {
    int64_t when;
    uint64_t order;
    enum { SIM_VIEW, SIM_AGREEMENT, SIM_PROOF, SIM_CALL } type;
    int from, to;
    uint8_t *bytes;
    size_t nbytes;
    void (*call)(struct sim *sim, int argument);
};

struct sim {
    int n;
    uint64_t random, seed;
    int64_t now;
    uint64_t sent;
    int drop_percent, slow_percent, slow_ms;
    bool reorder;
    uint32_t cut[SIM_RANKS]; /* per sender: those it cannot reach */
    int64_t last[SIM_RANKS][SIM_RANKS];
    struct sim_rank ranks[SIM_RANKS];
    struct sim_event *events;
    size_t nevents, size;
    uint8_t payload[WIRE_MAX];
};

void sim_begin(struct sim *sim, int n, uint64_t seed);
void sim_end(struct sim *sim);
uint32_t sim_random(struct sim *sim, uint32_t below);
/* Time passes until `until`. */
void sim_run(struct sim *sim, int64_t until);
void sim_call(struct sim *sim, int64_t when, void (*call)(struct sim *sim, int argument),
              int argument);

/* Things that happen; `rank` as argument of sim_call. */
void sim_kill(struct sim *sim, int rank); /* proofs reach the others after a while */
void sim_stop(struct sim *sim, int rank);
void sim_resume(struct sim *sim, int rank);
void sim_suspect(struct sim *sim, int pair); /* pair: by * SIM_RANKS + whom */
void sim_agree(struct sim *sim, int pair);   /* rank * SIM_TOPICS + topic */
/* Ranks of the two sets cannot reach each other any more. */
void sim_partition(struct sim *sim, uint32_t side);

uint32_t sim_members(const struct sim *sim, int rank);
/* What must hold at any time: among ranks that live, one value for each epoch and topic. Text of
 * what does not, NULL: all does. */
const char *sim_wrong(const struct sim *sim);

#endif
