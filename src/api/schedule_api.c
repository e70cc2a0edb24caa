/* Public entry points for schedules as data: build, read, write, verify; and the names of the
 * algorithms. Nothing here touches a communicator. */
#include <rota/info.h>
#include <rota/schedule.h>

#include "algorithms/algorithm.h"
#include "base/error.h"
#include "schedule/text.h"
#include "schedule/verify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct rota_schedule {
    struct sched_set set; /* ranks ascending; all of them unless a file held fewer */
};

const char *rota_algorithm_name(int index) {
    const struct algorithm *algorithm = algorithm_at(index);
    return algorithm ? algorithm->name : NULL;
}

const char *rota_algorithm_help(int index) {
    const struct algorithm *algorithm = algorithm_at(index);
    return algorithm ? algorithm->help : NULL;
}

bool rota_algorithm_does(const char *name, rota_kind kind, int nranks) {
    const struct algorithm *algorithm = algorithm_find(name);
    return algorithm && algorithm_can(algorithm, kind, nranks);
}

static rota_status build_ranks(const struct algorithm *algorithm, rota_kind kind, int root,
                               int in_place, int nranks, struct sched_set *set) {
    for (int rank = 0; rank < nranks; rank++) {
        struct algorithm_request request = {
            .kind = kind,
            .nranks = nranks,
            .rank = rank,
            .root = root,
            .in_place = in_place == 1 || (in_place == 2 && rank % 2 == 1),
            .lanes = 1,
        };
        rota_status status = algorithm_build(algorithm, &request, &set->schedules[rank]);
        if (status != ROTA_OK)
            return status;
        set->count = rank + 1;
    }
    return ROTA_OK;
}

rota_status rota_schedule_build(const char *name, rota_kind kind, int nranks, int root,
                                int in_place, rota_schedule **schedule) {
    if (!name || !schedule || nranks < 1 || in_place < 0 || in_place > 2)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_schedule_build: expected a name, at least 1 rank, in_place 0, 1 "
                           "or 2 and where to put the schedule");
    const struct algorithm *algorithm = algorithm_find(name);
    if (!algorithm)
        return error_raise(ROTA_ERR_ARGUMENT, "there is no algorithm '%.40s'", name);
    rota_schedule *made = calloc(1, sizeof *made);
    if (made)
        made->set.schedules = calloc((size_t)nranks, sizeof(struct sched *));
    if (!made || !made->set.schedules) {
        rota_schedule_free(made);
        return error_raise(ROTA_ERR_MEMORY, "no memory for the schedules of %d ranks", nranks);
    }
    rota_status status = build_ranks(algorithm, kind, root, in_place, nranks, &made->set);
    if (status != ROTA_OK) {
        rota_schedule_free(made);
        return status;
    }
    *schedule = made;
    return ROTA_OK;
}

rota_status rota_schedule_read(const char *bytes, size_t length, rota_schedule **schedule) {
    if (!bytes || !schedule)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_schedule_read: expected bytes and where to put "
                                              "the schedule");
    rota_schedule *made = calloc(1, sizeof *made);
    if (!made)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
    rota_status status = sched_read(bytes, length, &made->set);
    if (status != ROTA_OK) {
        free(made);
        return status;
    }
    *schedule = made;
    return ROTA_OK;
}

rota_status rota_schedule_write(const rota_schedule *schedule, int rank, rota_format format,
                                FILE *out) {
    if (!schedule || !out || (format != ROTA_FORMAT_TEXT && format != ROTA_FORMAT_JSON))
        return error_raise(ROTA_ERR_ARGUMENT, "rota_schedule_write: expected a schedule, a format "
                                              "and a file");
    int first = 0, end = schedule->set.count;
    if (rank >= 0) {
        while (first < end && schedule->set.schedules[first]->rank != rank)
            first++;
        if (first == end)
            return error_raise(ROTA_ERR_ARGUMENT, "the schedule has no rank %d", rank);
        end = first + 1;
    }
    if (format == ROTA_FORMAT_JSON)
        return sched_write_json(schedule->set.schedules + first, end - first, out);
    for (int i = first; i < end; i++) {
        rota_status status = sched_write_text(schedule->set.schedules[i], out);
        if (status != ROTA_OK)
            return status;
    }
    return ROTA_OK;
}

/* The same schedule with partials that are rounded where they are stored. */
static rota_status verify_rounded(const struct sched_set *set, rota_verdict *result) {
    const struct sched_verify_options options = {.rounded_partials = true};
    struct sched_verdict found;
    rota_status status = sched_verify(set->schedules, set->count, &options, &found);
    if (status != ROTA_OK)
        return status;
    result->same_in_fast = found.fault == SCHED_FAULT_NONE && found.same_on_all_ranks;
    result->fast_roundings = found.roundings;
    return ROTA_OK;
}

rota_status rota_schedule_verify(const rota_schedule *schedule, rota_verdict *verdict) {
    size_t at_first = offsetof(rota_verdict, same_in_fast); /* what it had before it grew */
    if (!schedule || !verdict || verdict->size < at_first)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_schedule_verify: expected a schedule and a "
                                              "verdict with its size set");
    const struct sched_set *set = &schedule->set;
    if (set->count != set->schedules[0]->nranks)
        return error_raise(ROTA_ERR_ARGUMENT, "only %d of %d ranks are there to verify", set->count,
                           set->schedules[0]->nranks);
    struct sched_verdict found;
    rota_status status = sched_verify(set->schedules, set->count, NULL, &found);
    if (status != ROTA_OK)
        return status;
    rota_verdict result = {
        .size = verdict->size,
        .proven = found.fault == SCHED_FAULT_NONE,
        .rank = found.rank,
        .same_on_all_ranks = found.same_on_all_ranks,
        .canonical_tree = found.canonical_tree,
        .ascending = found.ascending,
        .max_depth = found.max_depth,
        .messages = found.messages,
        .steps = found.steps,
    };
    if (result.proven && sched_kind_reduces(set->schedules[0]->kind))
        status = verify_rounded(set, &result);
    else
        result.same_in_fast = result.proven;
    if (status != ROTA_OK)
        return status;
    if (!result.proven) {
        strncpy(result.fault, sched_fault_name(found.fault), sizeof result.fault - 1);
        memcpy(result.text, found.text, sizeof result.text);
    }
    memcpy(verdict, &result, verdict->size < sizeof result ? verdict->size : sizeof result);
    return ROTA_OK;
}

void rota_schedule_free(rota_schedule *schedule) {
    if (!schedule)
        return;
    sched_set_free(&schedule->set);
    free(schedule);
}
