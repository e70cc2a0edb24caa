/* Plans: a schedule prepared for the executor. Hazards become edges once; what depends on the
 * count is computed when a run begins, so a plan serves all sizes and types. */
#ifndef ENGINE_PLAN_H
#define ENGINE_PLAN_H

#include "engine/comm.h"
#include "schedule/schedule.h"

struct plan_step {
    uint32_t pending;            /* steps it waits for */
    struct sched_list followers; /* of plan.followers: steps that wait for it */
    bool token;
};

/* A step, or one peer's part of it; peer: index among the step's. */
struct plan_action {
    uint32_t step, peer;
};

struct plan_lane {
    struct sched_list sends, recvs; /* of plan.order: step numbers in order */
};

struct plan {
    struct plan *next;
    const struct algorithm *algorithm;
    rota_kind kind;
    int root;
    bool in_place;
    struct sched *schedule;
    struct plan_step *steps;
    uint32_t *followers;
    struct plan_lane *lanes;
    uint32_t *order;
    /* Per entry of schedule->peers: the message's number on its (peer, channel) and direction. */
    uint32_t *positions;
    uint32_t widest; /* chunks of the widest message of any rank */
    /* All of it in one order that keeps the edges and the order of the lanes, sends as early as
     * they can; none of plans whose sends, or receives, are in several lanes. */
    struct plan_action *line;
    uint32_t nline;
    struct straight *straight; /* the executor's: how it last ran so, */
    size_t straight_bytes;     /* in one piece of memory */
};

/* Finds or builds the plan. Errors: ROTA_ERR_MEMORY, ROTA_ERR_UNSUPPORTED. */
rota_status plan_get(rota_comm *comm, const struct algorithm *algorithm, rota_kind kind, int root,
                     bool in_place, struct plan **plan);
void plan_free_all(struct plan *plans);
/* Bytes of a list of plans with their schedules. */
size_t plan_memory(const struct plan *plans);
/* For tests: plans made from now on lack their number-th edge (1 is the first; 0: none is left
 * out), to show that tests notice a hazard that is not kept. Process-wide. */
void plan_test_drop_edge(uint32_t number);

#endif
