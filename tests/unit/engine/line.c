/* The line of a plan: its steps in one order, which keeps all that orders them. */
#include "engine/plan.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 8 };

static uint32_t actions_of(const struct sched_step *step) {
    return sched_receives(step->type) || step->type == SCHED_SEND ? step->peers.count : 1;
}

/* Where each step begins in the line; all of it is there, once, and in one piece. */
static uint32_t *begins_of(const struct plan *plan) {
    uint32_t nsteps = plan->schedule->nsteps, at = 0;
    uint32_t *begins = malloc((nsteps + 1) * sizeof(*begins));
    for (uint32_t i = 0; i < nsteps; i++)
        begins[i] = UINT32_MAX;
    for (; at < plan->nline; at += actions_of(&plan->schedule->steps[plan->line[at].step])) {
        uint32_t step = plan->line[at].step;
        cr_assert_lt(step, nsteps);
        cr_assert_eq(begins[step], UINT32_MAX, "step %u twice", step);
        begins[step] = at;
        for (uint32_t peer = 0; peer < actions_of(&plan->schedule->steps[step]); peer++) {
            cr_assert_eq(plan->line[at + peer].step, step);
            cr_assert_eq(plan->line[at + peer].peer, peer);
        }
    }
    cr_assert_eq(at, plan->nline);
    for (uint32_t i = 0; i < nsteps; i++)
        cr_assert_neq(begins[i], UINT32_MAX, "step %u is missing", i);
    return begins;
}

static void check_line(const struct plan *plan) {
    const struct sched *schedule = plan->schedule;
    uint32_t *begins = begins_of(plan);
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_list followers = plan->steps[i].followers;
        for (uint32_t f = followers.begin; f < followers.begin + followers.count; f++)
            cr_assert_lt(begins[i], begins[plan->followers[f]], "an edge is not kept");
        for (uint32_t j = i + 1; j < schedule->nsteps; j++) {
            const struct sched_step *a = &schedule->steps[i], *b = &schedule->steps[j];
            if (a->lane == b->lane && ((sched_receives(a->type) && sched_receives(b->type)) ||
                                       (a->type == SCHED_SEND && b->type == SCHED_SEND)))
                cr_assert_lt(begins[i], begins[j], "the order of lane %u is not kept", a->lane);
        }
    }
    free(begins);
}

/* Whether sends, and receives, are in one lane each. */
static bool is_simple(const struct sched *schedule) {
    uint32_t lanes[2] = {UINT32_MAX, UINT32_MAX};
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_step *step = &schedule->steps[i];
        if (!sched_receives(step->type) && step->type != SCHED_SEND)
            continue;
        uint32_t *lane = &lanes[sched_receives(step->type)];
        if (*lane != UINT32_MAX && *lane != step->lane)
            return false;
        *lane = step->lane;
    }
    return true;
}

/* Of one host, its ring in the order of the ranks. */
static rota_comm comm_of(int rank, int nranks) {
    static int groups[MOST_RANKS], ring[MOST_RANKS];
    for (int i = 0; i < MOST_RANKS; i++)
        ring[i] = i;
    return (rota_comm){.rank = rank,
                       .nranks = nranks,
                       .topology = {.ring = ring, .ngroups = 1, .group_of = groups}};
}

/* NULL: the algorithm does no such thing. */
static struct plan *plan_of(rota_comm *comm, const struct algorithm *algorithm, rota_kind kind) {
    struct plan *plan = NULL;
    int root = sched_kind_collective(kind) && sched_kind_rooted(kind) ? comm->nranks / 2 : -1;
    if (!sched_kind_collective(kind) || !algorithm_can(algorithm, kind, comm->nranks))
        return NULL;
    cr_assert_eq(plan_get(comm, algorithm, kind, root, comm->rank % 2 == 0, &plan), ROTA_OK);
    return plan;
}

static void check_plan(const struct plan *plan, int *lines, int *others) {
    bool simple = is_simple(plan->schedule);
    cr_assert_eq(plan->nline > 0, simple && plan->schedule->nsteps > 0, "%s of %s, rank %d of %d",
                 rota_kind_name(plan->kind), plan->algorithm->name, plan->schedule->rank,
                 plan->schedule->nranks);
    if (plan->nline > 0)
        check_line(plan);
    *lines += plan->nline > 0;
    *others += !simple;
}

Test(plan, lines_keep_the_order) {
    int lines = 0, others = 0;
    for (int a = 0; algorithm_at(a) != NULL; a++) {
        for (int n = 1; n <= MOST_RANKS; n++) {
            for (int rank = 0; rank < n; rank++) {
                rota_comm comm = comm_of(rank, n);
                for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
                    const struct plan *plan = plan_of(&comm, algorithm_at(a), (rota_kind)kind);
                    if (plan != NULL)
                        check_plan(plan, &lines, &others);
                }
                plan_free_all(comm.plans);
            }
        }
    }
    cr_assert_gt(lines, 100);
    cr_assert_gt(others, 0);
}

/* Short calls run straight by whatever is chosen for most of them. */
Test(plan, short_calls_have_lines) {
    static const char *const names[] = {"recursive_doubling", "direct", "binomial", "ring"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const struct algorithm *algorithm = NULL;
        for (int a = 0; algorithm == NULL || strcmp(algorithm->name, names[i]) != 0; a++)
            cr_assert_not_null(algorithm = algorithm_at(a), "no %s", names[i]);
        for (int k = 0; k < ROTA_KIND_COUNT; k++) {
            rota_comm comm = comm_of(1, 4);
            struct plan *plan = plan_of(&comm, algorithm, (rota_kind)k);
            if (plan != NULL)
                cr_assert_gt(plan->nline, 0, "%s of %s", rota_kind_name((rota_kind)k), names[i]);
            plan_free_all(comm.plans);
        }
    }
}
