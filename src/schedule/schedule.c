/* The schedule as a plain value: what the kinds of collective look like in chunks, and where their
 * input and output meet in place. */
#include "schedule/schedule.h"

#include <stdlib.h>

void sched_free(struct sched *schedule) {
    if (!schedule)
        return;
    free(schedule->steps);
    free(schedule->ranges);
    free(schedule->peers);
    free(schedule->waits);
    free(schedule);
}

const char *sched_kind_name(rota_kind kind) {
    static const char *const names[] = {
        [ROTA_KIND_ALL_REDUCE] = "all_reduce",
        [ROTA_KIND_REDUCE] = "reduce",
        [ROTA_KIND_BROADCAST] = "broadcast",
        [ROTA_KIND_ALL_GATHER] = "all_gather",
        [ROTA_KIND_REDUCE_SCATTER] = "reduce_scatter",
        [ROTA_KIND_ALL_TO_ALL] = "all_to_all",
        [ROTA_KIND_BARRIER] = "barrier",
        [ROTA_KIND_GATHER] = "gather",
        [ROTA_KIND_SCATTER] = "scatter",
        [ROTA_KIND_SCAN] = "scan",
        [ROTA_KIND_EXCLUSIVE_SCAN] = "exclusive_scan",
    };
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

bool sched_kind_rooted(rota_kind kind) {
    return kind == ROTA_KIND_REDUCE || kind == ROTA_KIND_BROADCAST || kind == ROTA_KIND_GATHER ||
           kind == ROTA_KIND_SCATTER;
}

bool sched_kind_reduces(rota_kind kind) {
    return kind == ROTA_KIND_ALL_REDUCE || kind == ROTA_KIND_REDUCE ||
           kind == ROTA_KIND_REDUCE_SCATTER || sched_kind_scans(kind);
}

bool sched_kind_scans(rota_kind kind) {
    return kind == ROTA_KIND_SCAN || kind == ROTA_KIND_EXCLUSIVE_SCAN;
}

uint32_t sched_kind_blocks(rota_kind kind, int nranks) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return 1;
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_ALL_TO_ALL:
    case ROTA_KIND_GATHER:
    case ROTA_KIND_SCATTER:
        return (uint32_t)nranks;
    default:
        return 0;
    }
}

uint32_t sched_input_chunks(const struct sched *schedule) {
    bool at_root = schedule->rank == schedule->root;
    switch (schedule->kind) {
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        return schedule->chunks_per_block;
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCATTER:
        return at_root ? schedule->blocks * schedule->chunks_per_block : 0;
    default:
        return schedule->blocks * schedule->chunks_per_block;
    }
}

uint32_t sched_output_chunks(const struct sched *schedule) {
    bool at_root = schedule->rank == schedule->root;
    switch (schedule->kind) {
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_SCATTER:
        return schedule->chunks_per_block;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_GATHER:
        return at_root ? schedule->blocks * schedule->chunks_per_block : 0;
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return schedule->rank > 0 ? schedule->chunks_per_block : 0;
    default:
        return schedule->blocks * schedule->chunks_per_block;
    }
}

/* Whether a buffer holds the own block only, of a kind that has one for each rank. */
static bool is_own_block(rota_kind kind, enum sched_buffer buffer) {
    if (buffer == SCHED_INPUT)
        return kind == ROTA_KIND_ALL_GATHER || kind == ROTA_KIND_GATHER;
    return buffer == SCHED_OUTPUT &&
           (kind == ROTA_KIND_REDUCE_SCATTER || kind == ROTA_KIND_SCATTER);
}

uint32_t sched_global_chunk(const struct sched *schedule, enum sched_buffer buffer,
                            uint32_t index) {
    uint32_t own = (uint32_t)schedule->rank * schedule->chunks_per_block;
    return is_own_block(schedule->kind, buffer) ? own + index : index;
}

uint32_t sched_input_alias(const struct sched *schedule, uint32_t index) {
    if (!schedule->in_place || index >= sched_input_chunks(schedule))
        return UINT32_MAX;
    uint32_t own = (uint32_t)schedule->rank * schedule->chunks_per_block;
    if (is_own_block(schedule->kind, SCHED_INPUT))
        return sched_output_chunks(schedule) ? own + index : UINT32_MAX;
    if (is_own_block(schedule->kind, SCHED_OUTPUT))
        return index >= own && index - own < schedule->chunks_per_block ? index - own : UINT32_MAX;
    return index < sched_output_chunks(schedule) ? index : UINT32_MAX;
}

uint32_t sched_list_chunks(const struct sched *schedule, struct sched_list list) {
    uint64_t total = 0;
    for (uint32_t i = 0; i < list.count; i++) {
        const struct sched_range *range = &schedule->ranges[list.begin + i];
        total += (uint64_t)range->count * range->reps;
    }
    return total < UINT32_MAX ? (uint32_t)total : UINT32_MAX;
}
