/* The executor's hands: where chunks lie, and moving and combining them. With host memory every
 * operation ends inside the call; with other kinds it may end later, and executor_poll_memory
 * brings the news. */
#include "base/error.h"
#include "engine/executor_state.h"
#include "schedule/chunk_map.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* -- where chunks lie ---------------------------------------------------------------------------
 */

/* Walks over the chunks of a list of ranges, in order. */
struct walk {
    const struct executor *executor;
    uint32_t range, range_end;
    uint32_t rep, index;
    uint32_t slot, slice;
};

static struct walk walk_begin(const struct executor *executor, struct sched_list list,
                              uint32_t slot) {
    return (struct walk){.executor = executor,
                         .range = list.begin,
                         .range_end = list.begin + list.count,
                         .slot = slot,
                         .slice = executor->slots[slot].slice};
}

/* Elements of a block of a buffer; of SCRATCH, of the block whose global number is given. */
static size_t block_count(const struct executor *executor, enum sched_buffer buffer,
                          uint32_t block) {
    const struct call_args *args = &executor->request->args;
    bool output = buffer == SCHED_OUTPUT || (buffer == SCHED_SCRATCH && args->send_counts == NULL);
    const size_t *counts = output ? args->recv_counts : args->send_counts;
    return counts != NULL ? counts[block] : args->count;
}

/* Where a block begins in the user's buffer. */
static size_t block_offset(const struct executor *executor, enum sched_buffer buffer,
                           uint32_t block) {
    const struct call_args *args = &executor->request->args;
    const size_t *displs = buffer == SCHED_INPUT ? args->send_displs : args->recv_displs;
    return displs != NULL ? displs[block] : (size_t)block * args->count;
}

/* First element of chunk `sub` of a block. */
static size_t sub_begin(const struct executor *executor, size_t count, uint32_t sub) {
    if (!executor->vector)
        return executor->begin[sub];
    return chunk_begin(count, executor->plan->schedule->chunks_per_block, sub);
}

/* Elements of a chunk; `chunk` counts within the buffer, of SCRATCH globally. */
static size_t chunk_elements(const struct executor *executor, enum sched_buffer buffer,
                             uint32_t chunk) {
    uint32_t chunks = executor->plan->schedule->chunks_per_block, sub = chunk % chunks;
    size_t count = executor->vector ? block_count(executor, buffer, chunk / chunks) : 0;
    return sub_begin(executor, count, sub + 1) - sub_begin(executor, count, sub);
}

static size_t slice_length(const struct executor *executor, enum sched_buffer buffer,
                           uint32_t chunk, uint32_t slice) {
    size_t length = chunk_elements(executor, buffer, chunk);
    size_t skip = (size_t)slice * executor->slice_elements;
    if (length <= skip)
        return 0;
    length -= skip;
    return length < executor->slice_elements ? length : executor->slice_elements;
}

static unsigned char *user_chunk(const struct executor *executor, enum sched_buffer buffer,
                                 uint32_t chunk, uint32_t slice) {
    uint32_t chunks = executor->plan->schedule->chunks_per_block, block = chunk / chunks;
    const struct call_args *args = &executor->request->args;
    size_t count = executor->vector ? block_count(executor, buffer, block) : 0;
    size_t element = block_offset(executor, buffer, block) +
                     sub_begin(executor, count, chunk % chunks) +
                     (size_t)slice * executor->slice_elements;
    unsigned char *base = buffer == SCHED_INPUT ? (unsigned char *)(uintptr_t)args->send
                                                : (unsigned char *)args->recv;
    return base + element * executor->element_size;
}

/* The next chunk's slice; false at the end. */
static bool walk_next(struct walk *walk, unsigned char **data, size_t *elements) {
    const struct executor *executor = walk->executor;
    const struct sched *schedule = executor->plan->schedule;
    if (walk->range == walk->range_end)
        return false;
    const struct sched_range *range = &schedule->ranges[walk->range];
    uint32_t chunk = range->first + walk->rep * range->stride + walk->index;
    uint32_t like = chunk;
    if (range->buffer == SCHED_SCRATCH) {
        like = range->like + walk->rep * range->like_stride + walk->index;
        /* Without elements there may be no scratch at all. */
        *data = executor->scratch == NULL
                    ? NULL
                    : executor->scratch + ((size_t)chunk * executor->nslots + walk->slot) *
                                              executor->scratch_stride;
    }
    *elements = slice_length(executor, range->buffer, like, walk->slice);
    if (range->buffer != SCHED_SCRATCH)
        *data = *elements > 0 ? user_chunk(executor, range->buffer, chunk, walk->slice) : NULL;
    if (++walk->index == range->count) {
        walk->index = 0;
        if (++walk->rep == range->reps) {
            walk->rep = 0;
            walk->range++;
        }
    }
    return true;
}

/* Sums slices [slice, slice + 1), or all of them. */
static size_t list_elements(const struct executor *executor, struct sched_list list, uint32_t slice,
                            bool all) {
    const struct sched *schedule = executor->plan->schedule;
    size_t elements = 0;
    for (uint32_t r = list.begin; r < list.begin + list.count; r++) {
        const struct sched_range *range = &schedule->ranges[r];
        for (uint32_t rep = 0; rep < range->reps; rep++) {
            for (uint32_t i = 0; i < range->count; i++) {
                uint32_t like = range->buffer == SCHED_SCRATCH
                                    ? range->like + rep * range->like_stride + i
                                    : range->first + rep * range->stride + i;
                elements += all ? chunk_elements(executor, range->buffer, like)
                                : slice_length(executor, range->buffer, like, slice);
            }
        }
    }
    return elements;
}

size_t executor_length(const struct executor *executor, struct sched_list list, uint32_t slice,
                       bool partial) {
    return list_elements(executor, list, slice, false) * executor_size(executor, partial);
}

size_t executor_total(const struct executor *executor, struct sched_list list, bool partial) {
    return list_elements(executor, list, 0, true) * executor_size(executor, partial);
}

int executor_pieces(const struct executor *executor, struct sched_list list, uint32_t slot,
                    size_t size, struct transport_piece *pieces, int max) {
    struct walk walk = walk_begin(executor, list, slot);
    int count = 0;
    unsigned char *data = NULL;
    size_t elements = 0;
    while (walk_next(&walk, &data, &elements)) {
        if (elements == 0)
            continue;
        struct transport_piece *last = count > 0 ? &pieces[count - 1] : NULL;
        if (last != NULL && (unsigned char *)last->data + last->length == data) {
            last->length += elements * size;
            continue;
        }
        if (count == max)
            return -1;
        pieces[count++] = (struct transport_piece){.data = data, .length = elements * size};
    }
    return count;
}

int executor_gather(const struct executor *executor, const struct sched_step *step, uint32_t slot,
                    bool destination, struct transport_piece *pieces) {
    return executor_pieces(executor, destination ? step->dst : step->src, slot,
                           executor_size(executor, (step->flags & SCHED_PARTIAL) != 0), pieces,
                           EXECUTOR_MAX_PIECES);
}

void executor_set_memory(struct executor *executor) {
    const rota_request *request = executor->request;
    const struct sched *schedule = executor->plan->schedule;
    /* Blocks of v-forms may be empty where others are not; their beginning tells. */
    size_t bytes = executor->vector ? 1 : request->args.count * request->element_size;
    const struct memory_kind *send =
        memory_identify(request->args.send, sched_input_chunks(schedule) > 0 ? bytes : 0);
    const struct memory_kind *recv =
        memory_identify(request->args.recv, sched_output_chunks(schedule) > 0 ? bytes : 0);
    executor->host_memory = send->host_readable && recv->host_readable;
    executor->kind = send->host_readable ? recv : send;
    executor->comm->job->foreign_memory |= !executor->host_memory;
}

/* -- transfers ----------------------------------------------------------------------------------
 */

struct transfer *executor_transfer(struct executor *executor, enum transfer_kind kind,
                                   uint32_t step, uint32_t slot) {
    struct transfer *transfer = executor->free_transfers;
    if (transfer != NULL)
        executor->free_transfers = transfer->next;
    else if ((transfer = calloc(1, sizeof(*transfer))) == NULL)
        return NULL;
    *transfer =
        (struct transfer){.executor = executor, .kind = kind, .cell = {.step = step, .slot = slot}};
    transfer->next = executor->transfers;
    transfer->previous = &executor->transfers;
    if (transfer->next != NULL)
        transfer->next->previous = &transfer->next;
    executor->transfers = transfer;
    return transfer;
}

static void transfer_put(struct executor *executor, struct transfer *transfer) {
    *transfer->previous = transfer->next;
    if (transfer->next != NULL)
        transfer->next->previous = transfer->previous;
    free(transfer->straightened);
    transfer->next = executor->free_transfers;
    executor->free_transfers = transfer;
}

/* Ends a transfer whose operations have all ended. */
static void settle(struct transfer *transfer) {
    if (transfer->pending > 0 || !transfer->whole)
        return;
    struct executor *executor = transfer->executor;
    struct transfer done = *transfer;
    transfer_put(executor, transfer);
    switch (done.kind) {
    case TRANSFER_SEND:
        executor_transfer_sent(executor, &done);
        break;
    case TRANSFER_RECV:
    case TRANSFER_RECV_REDUCE:
        executor_transfer_received(executor, &done);
        break;
    case TRANSFER_COPY:
    case TRANSFER_REDUCE:
        executor_complete(executor, done.cell.step, done.cell.slot);
        break;
    }
}

/* -- operations of other memory kinds -----------------------------------------------------------
 */

static struct memory_operation *operation_get(struct executor *executor,
                                              struct transfer *transfer) {
    struct memory_operation *operation = calloc(1, sizeof(*operation));
    if (operation == NULL)
        return NULL;
    staging_ticket_init(&operation->ticket, executor->comm->job);
    operation->transfer = transfer;
    return operation;
}

static void fail_operation(struct executor *executor, struct memory_operation *operation) {
    free(operation);
    request_raise(executor->request, ROTA_ERR_MEMORY, -1, "memory kind %s failed to copy or reduce",
                  executor->kind->name);
    comm_fail(executor->comm, error_record());
}

/* Books the outcome of a call to a memory kind. */
static void operation_begun(struct executor *executor, struct memory_operation *operation,
                            enum memory_result result) {
    if (result == MEMORY_DONE) {
        free(operation);
    } else if (result == MEMORY_PENDING) {
        operation->transfer->pending++;
        operation->next = executor->operations;
        executor->operations = operation;
    } else {
        fail_operation(executor, operation);
    }
}

static bool move(struct executor *executor, struct transfer *transfer, void *dst, const void *src,
                 size_t bytes) {
    if (bytes == 0 || dst == src)
        return true;
    if (executor->host_memory) {
        memcpy(dst, src, bytes);
        return true;
    }
    struct memory_operation *operation = operation_get(executor, transfer);
    if (operation == NULL) {
        fail_operation(executor, NULL);
        return false;
    }
    operation_begun(executor, operation,
                    executor->kind->copy(dst, src, bytes, &operation->ticket.memory));
    return executor->request != NULL;
}

int executor_poll_memory(struct executor *executor) {
    int ended = 0;
    struct memory_operation **at = &executor->operations;
    while (*at != NULL) {
        struct memory_operation *operation = *at;
        if (!staging_ticket_ended(&operation->ticket)) {
            at = &operation->next;
            continue;
        }
        int state = atomic_load_explicit(&operation->ticket.memory.state, memory_order_acquire);
        *at = operation->next;
        ended++;
        struct transfer *transfer = operation->transfer;
        if (state < 0) {
            fail_operation(executor, operation);
            return ended;
        }
        free(operation);
        transfer->pending--;
        settle(transfer);
        if (executor->request == NULL)
            return ended;
        at = &executor->operations; /* settling may have begun new ones */
    }
    if (ended > 0)
        executor_pump(executor);
    return ended;
}

void executor_quiesce_memory(struct executor *executor) {
    while (executor->operations != NULL) {
        struct memory_operation *operation = executor->operations;
        /* Delays of memory kinds are bounded, and user memory must not be touched afterwards. */
        while (!staging_ticket_ended(&operation->ticket))
            sched_yield();
        executor->operations = operation->next;
        free(operation);
    }
    while (executor->transfers != NULL)
        transfer_put(executor, executor->transfers);
}

/* -- moving -------------------------------------------------------------------------------------
 */

static const struct sched_step *step_of(const struct transfer *transfer) {
    return &transfer->executor->plan->schedule->steps[transfer->cell.step];
}

static void finish(struct transfer *transfer) {
    transfer->whole = true;
    settle(transfer);
}

void executor_copy_out(struct executor *executor, struct transfer *transfer) {
    const struct sched_step *step = step_of(transfer);
    size_t size = executor_size(executor, (step->flags & SCHED_PARTIAL) != 0);
    struct walk walk = walk_begin(executor, step->src, transfer->cell.slot);
    unsigned char *to = transfer->out.data, *data = NULL;
    size_t elements = 0;
    while (walk_next(&walk, &data, &elements)) {
        if (!move(executor, transfer, to, data, elements * size))
            return;
        to += elements * size;
    }
    finish(transfer);
}

/* Copies `bytes` at `offset` of a message in pieces. */
static bool move_from_pieces(struct executor *executor, struct transfer *transfer, void *dst,
                             const struct transport_arrival *arrival, size_t offset, size_t bytes) {
    size_t first = arrival->pieces[0].length;
    if (bytes == 0)
        return true;
    if (offset < first) {
        size_t part = bytes < first - offset ? bytes : first - offset;
        if (!move(executor, transfer, dst, (unsigned char *)arrival->pieces[0].data + offset, part))
            return false;
        dst = (unsigned char *)dst + part;
        offset += part;
        bytes -= part;
    }
    return bytes == 0 || move(executor, transfer, dst,
                              (unsigned char *)arrival->pieces[1].data + (offset - first), bytes);
}

void executor_copy_in(struct executor *executor, struct transfer *transfer) {
    const struct sched_step *step = step_of(transfer);
    size_t size = executor_size(executor, (step->flags & SCHED_PARTIAL) != 0);
    const struct transport_arrival *arrival =
        &executor_arrivals(executor, transfer->cell.step, transfer->cell.slot)->arrival;
    struct walk walk = walk_begin(executor, step->dst, transfer->cell.slot);
    unsigned char *data = NULL;
    size_t elements = 0, offset = 0;
    while (walk_next(&walk, &data, &elements)) {
        if (!move_from_pieces(executor, transfer, data, arrival, offset, elements * size))
            return;
        offset += elements * size;
    }
    finish(transfer);
}

void executor_copy_local(struct executor *executor, struct transfer *transfer) {
    const struct sched_step *step = step_of(transfer);
    size_t size = executor_size(executor, (step->flags & SCHED_PARTIAL) != 0);
    struct walk from = walk_begin(executor, step->src, transfer->cell.slot);
    struct walk to = walk_begin(executor, step->dst, transfer->cell.slot);
    unsigned char *src = NULL, *dst = NULL;
    size_t elements = 0;
    while (walk_next(&from, &src, &elements) && walk_next(&to, &dst, &elements))
        if (!move(executor, transfer, dst, src, elements * size))
            return;
    finish(transfer);
}

/* -- combining ----------------------------------------------------------------------------------
 */

bool executor_combine(struct executor *executor, struct transfer *transfer, void *dst,
                      bool finished, size_t noperands, size_t elements) {
    const struct reduce_spec *spec = &executor->request->spec;
    if (elements == 0)
        return true;
    if (executor->request->rounds_partials && !finished) { /* mode fast: a partial is an element */
        spec = &executor->request->hop_spec;
        finished = true;
    }
    if (executor->host_memory) {
        reduce_run(spec, dst, finished, executor->operands, noperands, elements);
        return true;
    }
    struct memory_operation *operation = operation_get(executor, transfer);
    if (operation == NULL) {
        fail_operation(executor, NULL);
        return false;
    }
    operation_begun(executor, operation,
                    executor->kind->reduce(spec, dst, finished, executor->operands, noperands,
                                           elements, &operation->ticket.memory));
    return executor->request != NULL;
}

const unsigned char *executor_straighten(const struct executor *executor,
                                         const struct transport_arrival *arrival, uint32_t index,
                                         uint32_t count, unsigned char **copies) {
    const struct transport_piece *pieces = arrival->pieces;
    if (pieces[1].length == 0 && (uintptr_t)pieces[0].data % executor->widest_size == 0)
        return pieces[0].data;
    size_t place = (pieces[0].length + pieces[1].length + 63) & ~(size_t)63;
    if (*copies == NULL && (*copies = aligned_alloc(64, place * count)) == NULL)
        return NULL;
    unsigned char *to = *copies + index * place;
    memcpy(to, pieces[0].data, pieces[0].length);
    if (pieces[1].length > 0)
        memcpy(to + pieces[0].length, pieces[1].data, pieces[1].length);
    return to;
}

/* Received operands, and the local one in its place, chunk by chunk. */
static void reduce_received(struct executor *executor, struct transfer *transfer) {
    const struct sched_step *step = step_of(transfer);
    struct arrival_slot *arrivals =
        executor_arrivals(executor, transfer->cell.step, transfer->cell.slot);
    uint32_t count = step->peers.count;
    bool wide = !executor->request->rounds_partials;
    bool message_partial = wide && (step->flags & SCHED_LOAD_MESSAGE) == 0;
    bool local_partial = wide && (step->flags & SCHED_LOAD_LOCAL) == 0;
    bool has_local = step->src.count > 0;
    struct walk local = walk_begin(executor, step->src, transfer->cell.slot);
    struct walk to = walk_begin(executor, step->dst, transfer->cell.slot);
    unsigned char *dst = NULL, *own = NULL;
    size_t elements = 0, offset = 0;
    while (walk_next(&to, &dst, &elements)) {
        if (has_local)
            walk_next(&local, &own, &elements);
        if (elements == 0)
            continue;
        size_t n = 0;
        for (uint32_t i = 0; i < count; i++) {
            if (has_local && i == step->position)
                executor->operands[n++] =
                    (struct reduce_operand){.data = own, .partial = local_partial};
            const unsigned char *message = executor_straighten(executor, &arrivals[i].arrival, i,
                                                               count, &transfer->straightened);
            if (message == NULL) {
                fail_operation(executor, NULL);
                return;
            }
            executor->operands[n++] =
                (struct reduce_operand){.data = message + offset, .partial = message_partial};
        }
        if (has_local && step->position >= count)
            executor->operands[n++] =
                (struct reduce_operand){.data = own, .partial = local_partial};
        if (!executor_combine(executor, transfer, dst, (step->flags & SCHED_FINISH) != 0, n,
                              elements))
            return;
        offset += elements * executor_size(executor, message_partial);
    }
    finish(transfer);
}

/* Local operands: equal parts of the source list. */
static void reduce_local(struct executor *executor, struct transfer *transfer) {
    const struct sched_step *step = step_of(transfer);
    bool partial = !executor->request->rounds_partials && (step->flags & SCHED_LOAD_LOCAL) == 0;
    uint32_t each = step->src.count / step->operands;
    uint32_t chunks = sched_list_chunks(executor->plan->schedule, step->dst);
    for (uint32_t c = 0; c < chunks; c++) {
        unsigned char *dst = NULL, *src = NULL;
        size_t elements = 0;
        struct walk to = walk_begin(executor, step->dst, transfer->cell.slot);
        for (uint32_t skip = 0; skip <= c; skip++)
            walk_next(&to, &dst, &elements);
        for (uint32_t i = 0; i < step->operands; i++) {
            struct sched_list part = {.begin = step->src.begin + i * each, .count = each};
            struct walk from = walk_begin(executor, part, transfer->cell.slot);
            for (uint32_t skip = 0; skip <= c; skip++)
                walk_next(&from, &src, &elements);
            executor->operands[i] = (struct reduce_operand){.data = src, .partial = partial};
        }
        if (!executor_combine(executor, transfer, dst, (step->flags & SCHED_FINISH) != 0,
                              step->operands, elements))
            return;
    }
    finish(transfer);
}

void executor_reduce(struct executor *executor, struct transfer *transfer) {
    if (transfer->kind == TRANSFER_RECV_REDUCE)
        reduce_received(executor, transfer);
    else
        reduce_local(executor, transfer);
}
