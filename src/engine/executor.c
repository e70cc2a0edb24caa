/* The executor: event-driven on steps, in slices.
 *
 * Design. Data are cut into slices of S elements of every chunk, and W of them are in flight, each
 * in a *slot*. A *cell* is one step in one slot; it has a count of the cells (same slot) that it
 * still waits for. When that is 0, a local step runs at once, and a send or receive is issued as
 * soon as its lane's cursor stands at it: cursors go through (block of W slices, step, slot),
 * which is the order on the wire. A cell that completes lowers its followers' counts. A slot whose
 * cells are all complete moves on to the slice W later: scratch belongs to slots, so no hazard
 * crosses blocks. Since one block alone cannot deadlock (the verifier proves it at capacity zero)
 * and every rank finishes a slot's block before it begins the next, neither can any number.
 *
 * Received messages are matched per link in the order in which their receives were issued: the
 * header must carry the call's sequence and fingerprint and the place that the plan expects. */
#include "engine/executor.h"

#include "base/error.h"
#include "engine/executor_state.h"
#include "engine/numerics.h"
#include "schedule/chunk_map.h"
#include <stdlib.h>
#include <string.h>

rota_status executor_create(rota_comm *comm, struct executor **out) {
    struct executor *executor = calloc(1, sizeof(*executor));
    if (executor == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for an executor");
    executor->comm = comm;
    *out = executor;
    return ROTA_OK;
}

void executor_destroy(struct executor *executor) {
    if (executor == NULL)
        return;
    for (uint32_t i = 0; i < executor->nwires; i++) {
        if (executor->wires[i] == NULL)
            continue;
        link_close(&executor->wires[i]->link);
        free(executor->wires[i]->awaited);
        free(executor->wires[i]);
    }
    free(executor->wires);
    free(executor->cells);
    free(executor->lanes);
    free(executor->ready);
    free(executor->begin);
    free(executor->arrivals);
    free(executor->operands);
    free(executor->scratch);
    while (executor->free_posts != NULL) {
        struct post *post = executor->free_posts;
        executor->free_posts = post->next;
        free(post);
    }
    while (executor->free_transfers != NULL) {
        struct transfer *transfer = executor->free_transfers;
        executor->free_transfers = transfer->next;
        free(transfer);
    }
    free(executor);
}

/* -- completion of cells ------------------------------------------------------------------------
 */

/* A cell's count reached 0. */
static void cell_ready(struct executor *executor, uint32_t step, uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    if (what->type == SCHED_COPY || what->type == SCHED_REDUCE)
        executor->ready[executor->nready++] = (struct cell_name){.step = step, .slot = slot};
    else
        executor->dirty = true;
}

static void slot_begin(struct executor *executor, uint32_t slot, uint32_t slice) {
    const struct plan *plan = executor->plan;
    executor->slots[slot].slice = slice;
    executor->slots[slot].left = plan->schedule->nsteps;
    for (uint32_t step = 0; step < plan->schedule->nsteps; step++) {
        struct cell *cell = executor_cell(executor, step, slot);
        *cell = (struct cell){.pending = plan->steps[step].pending};
        if (cell->pending == 0)
            cell_ready(executor, step, slot);
    }
    executor->dirty = true;
}

static void slot_end(struct executor *executor, uint32_t slot) {
    uint32_t next = executor->slots[slot].slice + executor->nslots;
    if (next < executor->nslices)
        slot_begin(executor, slot, next);
    else
        executor->active--;
}

void executor_complete(struct executor *executor, uint32_t step, uint32_t slot) {
    const struct plan *plan = executor->plan;
    const struct sched_list followers = plan->steps[step].followers;
    for (uint32_t f = followers.begin; f < followers.begin + followers.count; f++) {
        uint32_t follower = plan->followers[f];
        if (--executor_cell(executor, follower, slot)->pending == 0)
            cell_ready(executor, follower, slot);
    }
    if (--executor->slots[slot].left == 0)
        slot_end(executor, slot);
}

/* -- pumping ------------------------------------------------------------------------------------
 */

/* To the next (block, step, slot). */
static void cursor_step(const struct executor *executor, struct sched_list list,
                        struct cursor *cursor) {
    if (cursor->slot + 1 < executor->nslots &&
        cursor->block + cursor->slot + 1 < executor->nslices) {
        cursor->slot++;
        return;
    }
    cursor->slot = 0;
    if (++cursor->index < list.count)
        return;
    cursor->index = 0;
    cursor->block += executor->nslots;
}

/* Issues what stands at a cursor, as far as it goes. Returns whether anything was issued. */
static bool pump_lane(struct executor *executor, uint32_t number, bool sending) {
    struct lane *lane = &executor->lanes[number];
    struct sched_list list =
        sending ? executor->plan->lanes[number].sends : executor->plan->lanes[number].recvs;
    struct cursor *cursor = sending ? &lane->send : &lane->recv;
    bool moved = false;
    while (list.count > 0 && cursor->block < executor->nslices) {
        uint32_t step = executor->plan->order[list.begin + cursor->index];
        if (executor->slots[cursor->slot].slice != cursor->block + cursor->slot)
            return moved;
        struct cell *cell = executor_cell(executor, step, cursor->slot);
        if (cell->pending > 0)
            return moved;
        uint32_t slot = cursor->slot;
        /* The cursor moves first: issuing may complete cells and come back here. */
        if (!sending) {
            cursor_step(executor, list, cursor);
            if (!executor_issue_recv(executor, step, slot))
                return true;
        } else {
            if (!executor_issue_send(executor, lane, step, slot))
                return moved;
            if (executor->request == NULL)
                return true;
            cursor_step(executor, list, cursor);
        }
        moved = true;
    }
    return moved;
}

static void run_local(struct executor *executor, struct cell_name cell) {
    const struct sched_step *what = &executor->plan->schedule->steps[cell.step];
    struct transfer *transfer = executor_transfer(
        executor, what->type == SCHED_COPY ? TRANSFER_COPY : TRANSFER_REDUCE, cell.step, cell.slot);
    if (transfer == NULL) {
        executor_fail_memory(executor);
        return;
    }
    if (what->type == SCHED_COPY)
        executor_copy_local(executor, transfer);
    else
        executor_reduce(executor, transfer);
}

/* Runs everything that can run; ends the request when nothing is left. */
void executor_pump(struct executor *executor) {
    if (executor->pumping)
        return;
    executor->pumping = true;
    while (executor->request != NULL &&
           (executor->nready > 0 || executor->looks != NULL || executor->dirty)) {
        if (executor->nready > 0) {
            run_local(executor, executor->ready[--executor->nready]);
            continue;
        }
        if (executor->looks != NULL) {
            struct wire *wire = executor->looks;
            executor->looks = wire->next_look;
            wire->look = false;
            executor_look(executor, wire);
            continue;
        }
        executor->dirty = false;
        for (uint32_t lane = 0; lane < executor->plan->schedule->lanes; lane++) {
            bool moved = pump_lane(executor, lane, false);
            if (executor->request == NULL)
                break;
            moved |= pump_lane(executor, lane, true);
            if (executor->request == NULL)
                break;
            executor->dirty |= moved;
        }
    }
    executor->pumping = false;
    if (executor->request != NULL && executor->active == 0) {
        rota_request *request = executor->request;
        executor->request = NULL;
        request_end(request, ROTA_OK);
    }
}

/* -- start and end ------------------------------------------------------------------------------
 */

static bool grow(void *array, size_t *capacity, size_t count, size_t size) {
    if (count <= *capacity)
        return true;
    void *grown = realloc(*(void **)array, count * size);
    if (grown == NULL)
        return false;
    *(void **)array = grown;
    *capacity = count;
    return true;
}

/* Bytes of the widest element that is looked into: a complex number of two float64. */
#define WIDEST_NUMBER 16

/* Elements of a slice: as many as fit the message size of the communicator. All ranks come to the
 * same number, because all of it is agreed. */
static size_t slice_elements(const rota_comm *comm, uint32_t widest, size_t partial_size) {
    size_t elements = comm->job->message_bytes / (partial_size * widest);
    /* Opaque elements may be wider than any line: there a slice begins at any of them. */
    return elements - elements % (partial_size > WIDEST_NUMBER ? 1 : CHUNK_QUANTUM);
}

bool executor_fits(const rota_comm *comm, const struct algorithm *algorithm, rota_kind kind,
                   int root, size_t partial_size) {
    uint32_t widest = algorithm_widest(algorithm, kind, comm->nranks, root);
    return slice_elements(comm, widest > 0 ? widest : 1, partial_size) > 0;
}

static rota_status prepare_memory(struct executor *executor) {
    const struct sched *schedule = executor->plan->schedule;
    size_t cells = (size_t)schedule->nsteps * EXECUTOR_SLOTS + 1;
    size_t peers = (size_t)schedule->npeers * EXECUTOR_SLOTS + 1;
    size_t scratch = (size_t)schedule->scratch_chunks * executor->nslots * executor->scratch_stride;
    uint32_t operands = 2;
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_step *step = &schedule->steps[i];
        uint32_t count = step->type == SCHED_REDUCE ? step->operands : step->peers.count + 1;
        operands = count > operands ? count : operands;
    }
    if (!grow(&executor->cells, &executor->cell_capacity, cells, sizeof(struct cell)) ||
        !grow(&executor->ready, &executor->ready_capacity, cells, sizeof(struct cell_name)) ||
        !grow(&executor->lanes, &executor->lane_capacity, schedule->lanes + 1,
              sizeof(struct lane)) ||
        !grow(&executor->begin, &executor->begin_capacity, schedule->chunks_per_block + 1,
              sizeof(size_t)) ||
        !grow(&executor->arrivals, &executor->arrival_capacity, peers,
              sizeof(struct arrival_slot)) ||
        !grow(&executor->operands, &executor->operand_capacity, operands,
              sizeof(struct reduce_operand)))
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a collective");
    if (scratch > executor->scratch_capacity) {
        free(executor->scratch);
        executor->scratch_capacity = 0;
        executor->scratch = aligned_alloc(64, (scratch + 63) & ~(size_t)63);
        if (executor->scratch == NULL)
            return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu bytes of scratch", scratch);
        executor->scratch_capacity = scratch;
    }
    return ROTA_OK;
}

/* Elements of the longest chunk of any block. Ranks of v-forms may differ in it: then some have
 * slices in which they send and receive nothing. */
static size_t longest_chunk(const struct executor *executor) {
    const struct call_args *args = &executor->request->args;
    uint32_t chunks = executor->plan->schedule->chunks_per_block;
    size_t count = args->count, longest = 0;
    for (int r = 0; executor->vector && r < executor->comm->nranks; r++) {
        if (args->send_counts != NULL && args->send_counts[r] > count)
            count = args->send_counts[r];
        if (args->recv_counts != NULL && args->recv_counts[r] > count)
            count = args->recv_counts[r];
    }
    for (uint32_t i = 0; i < chunks; i++) {
        size_t length = chunk_length(count, chunks, i);
        longest = length > longest ? length : longest;
    }
    return longest;
}

static size_t partial_size_of(const rota_request *request) {
    return sched_kind_reduces(request->args.kind)
               ? numerics_partial_size(request->args.numerics, &request->spec)
               : request->element_size;
}

/* Whether the sizes are those of the call before. */
static bool are_sizes_set(const struct executor *executor) {
    const rota_request *request = executor->request;
    return executor->sized == executor->plan && !call_is_vector(&request->args) &&
           executor->sized_count == request->args.count &&
           executor->element_size == request->element_size &&
           executor->partial_size == partial_size_of(request);
}

/* What depends on the count. */
static rota_status set_sizes(struct executor *executor) {
    const rota_request *request = executor->request;
    const struct plan *plan = executor->plan;
    executor->sized = NULL;
    executor->element_size = request->element_size;
    executor->partial_size = partial_size_of(request);
    executor->widest_size = executor->partial_size > executor->element_size
                                ? executor->partial_size
                                : executor->element_size;
    executor->vector = call_is_vector(&request->args);
    size_t longest = 0;
    if (plan->kind == ROTA_KIND_BARRIER) {
        executor->slice_elements = CHUNK_QUANTUM;
        executor->nslices = 1;
    } else {
        size_t elements = slice_elements(executor->comm, plan->widest > 0 ? plan->widest : 1,
                                         executor->widest_size);
        longest = longest_chunk(executor);
        executor->slice_elements = elements;
        size_t slices = (longest + elements - 1) / elements;
        if (slices >= UINT32_MAX)
            return error_raise(ROTA_ERR_ARGUMENT, "count %zu needs too many slices",
                               request->args.count);
        executor->nslices = slices > 0 ? (uint32_t)slices : 1;
    }
    executor->nslots = executor->nslices < EXECUTOR_SLOTS
                           ? (executor->nslices > 0 ? executor->nslices : 1)
                           : EXECUTOR_SLOTS;
    size_t part = longest < executor->slice_elements ? longest : executor->slice_elements;
    executor->scratch_stride = (part * executor->widest_size + 127) & ~(size_t)127;
    rota_status status = prepare_memory(executor);
    if (status != ROTA_OK)
        return status;
    uint32_t chunks = plan->schedule->chunks_per_block;
    for (uint32_t i = 0; i <= chunks; i++)
        executor->begin[i] = chunk_begin(request->args.count, chunks, i);
    executor->sized = executor->vector ? NULL : plan;
    executor->sized_count = request->args.count;
    return ROTA_OK;
}

rota_status executor_start(struct executor *executor, rota_request *request, struct plan *plan) {
    executor->request = request;
    executor->plan = plan;
    rota_status status = are_sizes_set(executor) ? ROTA_OK : set_sizes(executor);
    if (status != ROTA_OK) {
        executor->request = NULL;
        return status;
    }
    executor_set_memory(executor);
    executor->straight = NULL;
    if (executor_is_straight(executor)) {
        executor_start_straight(executor);
        return ROTA_OK;
    }
    memset(executor->lanes, 0, (plan->schedule->lanes + 1) * sizeof(struct lane));
    executor->nready = 0;
    executor->dirty = true;
    executor->active = plan->schedule->nsteps > 0 && executor->nslices > 0 ? executor->nslots : 0;
    executor->pumping = true;
    for (uint32_t slot = 0; slot < executor->active; slot++)
        slot_begin(executor, slot, slot);
    executor->pumping = false;
    executor_pump(executor);
    return ROTA_OK;
}

void executor_cancel(struct executor *executor) {
    executor->request = NULL;
    executor->straight = NULL;
    executor->looks = NULL;
    executor_quiesce_memory(executor);
    for (uint32_t i = 0; i < executor->nwires; i++) {
        struct wire *wire = executor->wires[i];
        if (wire == NULL)
            continue;
        if (wire->link.stream != NULL)
            wire->link.transport->ops->quiesce(wire->link.transport, wire->link.stream);
        wire->count = 0;
        wire->stalled = 0;
        wire->shown = false;
        wire->look = false;
    }
    while (executor->posts != NULL)
        executor_post_put(executor, executor->posts);
}

/* Adds the peer of a wire, once. */
static int add_awaited(const struct executor *executor, const struct wire *wire, int *ranks,
                       int count) {
    int rank = executor_rank_of(executor, wire);
    for (int i = 0; i < count; i++)
        if (ranks[i] == rank)
            return count;
    ranks[count] = rank;
    return count + 1;
}

int executor_awaited(const struct executor *executor, int *ranks, int max) {
    int count = 0;
    for (uint32_t i = 0; i < executor->nwires && count < max; i++) {
        struct wire *wire = executor->wires[i];
        if (wire != NULL && (wire->count > 0 || wire->stalled))
            count = add_awaited(executor, wire, ranks, count);
    }
    /* And who does not take what was posted to it. */
    for (const struct post *post = executor->posts; post != NULL && count < max; post = post->next)
        if (!post->receiving)
            count = add_awaited(executor, post->wire, ranks, count);
    return count;
}

size_t executor_memory(const struct executor *executor) {
    size_t bytes = sizeof(*executor) + executor->nwires * sizeof(struct wire *);
    for (uint32_t i = 0; i < executor->nwires; i++)
        if (executor->wires[i] != NULL)
            bytes += sizeof(struct wire) + executor->wires[i]->capacity * sizeof(struct awaited);
    return bytes + executor->cell_capacity * sizeof(struct cell) +
           executor->ready_capacity * sizeof(struct cell_name) +
           executor->lane_capacity * sizeof(struct lane) +
           executor->begin_capacity * sizeof(size_t) +
           executor->arrival_capacity * sizeof(struct arrival_slot) +
           executor->operand_capacity * sizeof(struct reduce_operand) + executor->scratch_capacity;
}
