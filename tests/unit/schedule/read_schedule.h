/* Schedules of tests, from text or from an algorithm. */
#ifndef TESTS_READ_SCHEDULE_H
#define TESTS_READ_SCHEDULE_H

#include "algorithms/algorithm.h"
#include "base/error.h"
#include "schedule/text.h"
#include "schedule/verify.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static inline struct sched_set read_schedule(const char *text) {
    struct sched_set set = {0, NULL};
    cr_assert_eq(sched_read(text, strlen(text), &set), ROTA_OK, "%s", error_record()->message);
    return set;
}

static inline struct sched_set build_schedule(const char *name, rota_kind kind, int nranks,
                                              int root, bool in_place) {
    struct sched_set set = {nranks, calloc((size_t)nranks, sizeof(struct sched *))};
    const struct algorithm *algorithm = algorithm_find(name);
    cr_assert(algorithm && set.schedules);
    for (int r = 0; r < nranks; r++) {
        struct algorithm_request request = {kind, nranks, r, root, in_place, 1, NULL};
        cr_assert_eq(algorithm_build(algorithm, &request, &set.schedules[r]), ROTA_OK);
    }
    return set;
}

static inline struct sched_verdict verify_with(const struct sched_set *set,
                                               struct sched_verify_options options) {
    struct sched_verdict verdict;
    cr_assert_eq(sched_verify(set->schedules, set->count, &options, &verdict), ROTA_OK);
    return verdict;
}

static inline struct sched_verdict verify(const struct sched_set *set) {
    return verify_with(set, (struct sched_verify_options){.channel_capacity = 0});
}

#endif
