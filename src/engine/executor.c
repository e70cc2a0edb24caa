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

/* -- wires ------------------------------------------------------------------------------------- */

static void wire_attached(struct link *link);
static void wire_arrived(struct link *link);
static void wire_writable(struct link *link);
static void wire_failed(struct link *link);

static const struct link_events wire_events = {.attached = wire_attached,
                                               .arrived = wire_arrived,
                                               .writable = wire_writable,
                                               .failed = wire_failed};

static struct wire *wire_get(struct executor *executor, int peer, uint32_t channel) {
    rota_comm *comm = executor->comm;
    uint32_t index = channel * (uint32_t)comm->nranks + (uint32_t)peer;
    if (index >= executor->nwires) {
        uint32_t count = (channel + 1) * (uint32_t)comm->nranks;
        struct wire **wires = realloc(executor->wires, count * sizeof(*wires));
        if (wires == NULL)
            return NULL;
        memset(wires + executor->nwires, 0, (count - executor->nwires) * sizeof(*wires));
        executor->wires = wires;
        executor->nwires = count;
    }
    if (executor->wires[index] != NULL)
        return executor->wires[index];
    struct wire *wire = calloc(1, sizeof(*wire));
    if (wire == NULL)
        return NULL;
    wire->executor = executor;
    struct transport_key key = {
        .comm = comm->id, .generation = comm->generation, .channel = channel, .space = 0};
    if (link_open(&wire->link, comm->job, comm->members[peer], &key, &wire_events, wire) !=
        ROTA_OK) {
        free(wire);
        return NULL;
    }
    executor->wires[index] = wire;
    return wire;
}

/* -- failing ------------------------------------------------------------------------------------
 */

/* Ends the communicator with the thread's error record. */
static void fail(struct executor *executor) {
    comm_fail(executor->comm, error_record());
}

static void fail_memory(struct executor *executor) {
    request_raise(executor->request, ROTA_ERR_MEMORY, -1, "out of memory");
    fail(executor);
}

static int rank_of(const struct executor *executor, const struct wire *wire) {
    const rota_comm *comm = executor->comm;
    for (int i = 0; i < comm->nranks; i++)
        if (comm->members[i] == wire->link.peer)
            return i;
    return -1;
}

static void wire_failed(struct link *link) {
    struct wire *wire = link->owner;
    struct executor *executor = wire->executor;
    if (executor->request == NULL || (wire->count == 0 && wire->stalled == 0))
        return;
    struct endpoint *endpoint = &link->job->endpoints[link->peer];
    request_raise(executor->request, ROTA_ERR_PEER, rank_of(executor, wire), "lost rank %d: %s",
                  rank_of(executor, wire), endpoint->evidence);
    error_record()->system_error = endpoint->system_error;
    fail(executor);
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

/* -- sending ------------------------------------------------------------------------------------
 */

static void post_done(struct transport_ticket *ticket, enum transport_result result);

static struct post *post_get(struct executor *executor, struct wire *wire, uint32_t step,
                             uint32_t slot) {
    struct post *post = executor->free_posts;
    if (post != NULL)
        executor->free_posts = post->next;
    else if ((post = calloc(1, sizeof(*post))) == NULL)
        return NULL;
    post->ticket = (struct transport_ticket){.done = post_done};
    post->executor = executor;
    post->wire = wire;
    post->cell = (struct cell_name){.step = step, .slot = slot};
    post->receiving = false;
    post->next = executor->posts;
    post->previous = &executor->posts;
    if (post->next != NULL)
        post->next->previous = &post->next;
    executor->posts = post;
    return post;
}

static void post_put(struct executor *executor, struct post *post) {
    *post->previous = post->next;
    if (post->next != NULL)
        post->next->previous = post->previous;
    post->next = executor->free_posts;
    executor->free_posts = post;
}

static struct transport_header header_of(const struct executor *executor,
                                         const struct sched_step *step, uint32_t peer_entry,
                                         uint32_t slice, size_t length) {
    bool partial = (step->flags & SCHED_PARTIAL) != 0;
    bool tells_total = executor->vector && slice == 0;
    return (struct transport_header){
        .sequence = executor->request->sequence,
        .position = executor->plan->positions[peer_entry],
        .slice = slice,
        .length = length,
        .total = tells_total ? executor_total(executor, step->src, partial) : 0,
        .fingerprint = executor->request->fingerprint};
}

/* One part of a send's source has left for good. */
static void send_settled(struct executor *executor, uint32_t step, uint32_t slot) {
    struct cell *cell = executor_cell(executor, step, slot);
    if (--cell->waiting == 0 && cell->issued)
        executor_complete(executor, step, slot);
}

static enum transport_result send_post(struct executor *executor, struct wire *wire, uint32_t step,
                                       uint32_t slot, const struct transport_header *header) {
    struct transport_piece pieces[EXECUTOR_MAX_PIECES];
    int count =
        executor_gather(executor, &executor->plan->schedule->steps[step], slot, false, pieces);
    if (count < 0)
        return TRANSPORT_UNSUPPORTED;
    struct post *post = post_get(executor, wire, step, slot);
    if (post == NULL)
        return TRANSPORT_FAILED;
    executor_cell(executor, step, slot)->waiting++;
    enum transport_result result = wire->link.transport->ops->post_send(
        wire->link.transport, wire->link.stream, header, pieces, count, &post->ticket);
    if (result != TRANSPORT_OK) {
        executor_cell(executor, step, slot)->waiting--;
        post_put(executor, post);
    }
    return result;
}

/* Copies into a slot of the transport. */
static enum transport_result send_copy(struct executor *executor, struct wire *wire, uint32_t step,
                                       uint32_t slot, const struct transport_header *header) {
    struct transport *transport = wire->link.transport;
    struct transport_slot out;
    enum transport_result result =
        transport->ops->reserve(transport, wire->link.stream, header, &out);
    if (result != TRANSPORT_OK)
        return result;
    executor_cell(executor, step, slot)->waiting++;
    struct transfer *transfer = executor_transfer(executor, TRANSFER_SEND, step, slot);
    if (transfer == NULL) {
        fail_memory(executor);
        return TRANSPORT_OK;
    }
    transfer->wire = wire;
    transfer->out = out;
    executor_copy_out(executor, transfer);
    return TRANSPORT_OK;
}

void executor_transfer_sent(struct executor *executor, struct transfer *transfer) {
    struct link *link = &transfer->wire->link;
    link->transport->ops->commit(link->transport, link->stream, &transfer->out);
    send_settled(executor, transfer->cell.step, transfer->cell.slot);
}

static bool posts_pay(const struct executor *executor, const struct transport *transport,
                      bool sending, size_t length) {
    return executor->host_memory && length >= EXECUTOR_POST_BYTES &&
           (sending ? transport->caps.posts_send : transport->caps.posts_recv);
}

/* Whether a message without data is sent, as a header alone: tokens are, all messages of a call
 * without elements, and the first slices of v-forms, so that ranks which disagree find it. */
static bool is_sent_empty(const struct executor *executor, uint32_t step, uint32_t slice) {
    if (executor->vector)
        return slice == 0;
    return executor->plan->steps[step].token || executor->request->args.count == 0;
}

/* Sends the cell's message to the peers that have not had it. False: not now. */
static bool issue_send(struct executor *executor, struct lane *lane, uint32_t step, uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t slice = executor->slots[slot].slice;
    size_t length = executor_length(executor, what->src, slice, (what->flags & SCHED_PARTIAL) != 0);
    bool skip = length == 0 && !is_sent_empty(executor, step, slice);
    while (!skip && lane->send_peer < what->peers.count) {
        uint32_t entry = what->peers.begin + lane->send_peer;
        int peer = executor->plan->schedule->peers[entry];
        struct wire *wire = wire_get(executor, peer, what->channel);
        if (wire == NULL) {
            fail_memory(executor);
            return false;
        }
        if (link_failed(&wire->link)) {
            wire->stalled = 1;
            wire_failed(&wire->link);
            return false;
        }
        enum transport_result result = TRANSPORT_AGAIN;
        if (wire->link.stream != NULL) {
            struct transport_header header = header_of(executor, what, entry, slice, length);
            result = TRANSPORT_UNSUPPORTED;
            if (posts_pay(executor, wire->link.transport, true, length))
                result = send_post(executor, wire, step, slot, &header);
            if (result == TRANSPORT_UNSUPPORTED)
                result = send_copy(executor, wire, step, slot, &header);
        } else {
            link_connect(&wire->link);
            if (wire->link.stream != NULL)
                continue;
        }
        if (executor->request == NULL)
            return false;
        wire->stalled = result == TRANSPORT_AGAIN;
        if (result == TRANSPORT_FAILED || result == TRANSPORT_UNSUPPORTED) {
            request_raise(executor->request, ROTA_ERR_PEER, peer,
                          "cannot send %zu bytes to rank %d", length, peer);
            fail(executor);
            return false;
        }
        if (result == TRANSPORT_AGAIN)
            return false;
        link_note_sent(&wire->link, length);
        lane->send_peer++;
    }
    lane->send_peer = 0;
    struct cell *cell = executor_cell(executor, step, slot);
    cell->issued = true;
    if (cell->waiting == 0)
        executor_complete(executor, step, slot);
    return true;
}

/* -- receiving ----------------------------------------------------------------------------------
 */

static struct awaited *await_push(struct wire *wire) {
    if (wire->count == wire->capacity) {
        uint32_t capacity = wire->capacity > 0 ? 2 * wire->capacity : 8;
        struct awaited *awaited = malloc(capacity * sizeof(*awaited));
        if (awaited == NULL)
            return NULL;
        for (uint32_t i = 0; i < wire->count; i++)
            awaited[i] = wire->awaited[(wire->head + i) % wire->capacity];
        free(wire->awaited);
        wire->awaited = awaited;
        wire->capacity = capacity;
        wire->head = 0;
    }
    return &wire->awaited[(wire->head + wire->count++) % wire->capacity];
}

static struct awaited *await_at(struct wire *wire, uint32_t index) {
    return &wire->awaited[(wire->head + index) % wire->capacity];
}

static void await_pop(struct wire *wire) {
    wire->head = (wire->head + 1) % wire->capacity;
    wire->count--;
}

/* The oldest posted message that has not come. Posted messages come in order among themselves, but
 * before older ones that wait to be shown by peek. */
static struct awaited *await_posted(struct wire *wire) {
    uint32_t i = 0;
    while (!await_at(wire, i)->posted || await_at(wire, i)->settled)
        i++;
    return await_at(wire, i);
}

/* Tells the transport about one awaited message. */
static void announce(struct executor *executor, struct wire *wire, struct awaited *awaited) {
    struct transport *transport = wire->link.transport;
    const struct sched_step *what = &executor->plan->schedule->steps[awaited->cell.step];
    awaited->announced = true;
    if (what->type == SCHED_RECV && posts_pay(executor, transport, false, awaited->length)) {
        struct transport_piece pieces[EXECUTOR_MAX_PIECES];
        int count = executor_gather(executor, what, awaited->cell.slot, true, pieces);
        struct post *post =
            count < 0 ? NULL : post_get(executor, wire, awaited->cell.step, awaited->cell.slot);
        if (post != NULL) {
            post->receiving = true;
            awaited->posted = true;
            if (transport->ops->post_recv(transport, wire->link.stream, awaited->length, pieces,
                                          count, &post->ticket) == TRANSPORT_OK)
                return;
            awaited->posted = false;
            post_put(executor, post);
        }
    }
    transport->ops->expect(transport, wire->link.stream, awaited->length);
}

static bool same_call(struct executor *executor, struct wire *wire, const struct awaited *awaited,
                      const struct transport_header *header) {
    const rota_request *request = executor->request;
    if (header->sequence == request->sequence && header->fingerprint == request->fingerprint &&
        header->position == awaited->position && header->slice == awaited->slice &&
        header->length == awaited->length && header->total == awaited->total)
        return true;
    int peer = rank_of(executor, wire);
    if (header->sequence != request->sequence || header->fingerprint != request->fingerprint)
        request_raise(
            request, ROTA_ERR_MISMATCH, peer,
            "rank %d is in another call: its #%llu, fingerprint %016llx, is not this "
            "one's %016llx (operation, count, type, operator, root, algorithm must agree)",
            peer, (unsigned long long)header->sequence, (unsigned long long)header->fingerprint,
            (unsigned long long)request->fingerprint);
    else if (header->total != awaited->total)
        request_raise(request, ROTA_ERR_MISMATCH, peer,
                      "rank %d sends %llu bytes to rank %d, which expects %zu", peer,
                      (unsigned long long)header->total, executor->comm->rank, awaited->total);
    else
        request_raise(request, ROTA_ERR_MISMATCH, peer,
                      "rank %d sent %llu bytes as message %u.%u where %zu as %u.%u were expected",
                      peer, (unsigned long long)header->length, header->position, header->slice,
                      awaited->length, awaited->position, awaited->slice);
    fail(executor);
    return false;
}

/* The next message of a wire may be here already. Taking it at once would recurse once per queued
 * message, so executor_pump does. */
static void look_later(struct executor *executor, struct wire *wire) {
    if (wire->look)
        return;
    wire->look = true;
    wire->next_look = executor->looks;
    executor->looks = wire;
}

/* All messages of a cell are here: combine or copy them. */
static void take_in(struct executor *executor, uint32_t step, uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    struct transfer *transfer = executor_transfer(
        executor, what->type == SCHED_RECV ? TRANSFER_RECV : TRANSFER_RECV_REDUCE, step, slot);
    if (transfer == NULL) {
        fail_memory(executor);
        return;
    }
    if (what->type == SCHED_RECV)
        executor_copy_in(executor, transfer);
    else
        executor_reduce(executor, transfer);
}

void executor_transfer_received(struct executor *executor, struct transfer *transfer) {
    uint32_t step = transfer->cell.step, slot = transfer->cell.slot;
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t count = what->peers.count;
    struct arrival_slot *arrivals = executor_arrivals(executor, step, slot);
    for (uint32_t i = 0; i < count; i++) {
        struct wire *wire = arrivals[i].wire;
        wire->link.transport->ops->release(wire->link.transport, wire->link.stream,
                                           &arrivals[i].arrival);
        wire->shown = false;
        look_later(executor, wire);
    }
    executor_complete(executor, step, slot);
}

/* Takes messages that wait at a wire, as far as receives were issued for them. */
static void look(struct executor *executor, struct wire *wire) {
    while (wire->count > 0 && !wire->shown && wire->link.stream != NULL) {
        struct awaited *awaited = await_at(wire, 0);
        if (awaited->settled) {
            await_pop(wire);
            continue;
        }
        if (awaited->posted || !awaited->announced)
            return;
        struct transport_arrival arrival;
        enum transport_result result =
            wire->link.transport->ops->peek(wire->link.transport, wire->link.stream, &arrival);
        if (result == TRANSPORT_AGAIN)
            return;
        if (result != TRANSPORT_OK) {
            wire_failed(&wire->link);
            return;
        }
        struct awaited taken = *awaited;
        if (!same_call(executor, wire, &taken, &arrival.header))
            return;
        link_note_received(&wire->link, taken.length);
        await_pop(wire);
        uint32_t step = taken.cell.step, slot = taken.cell.slot;
        struct arrival_slot *arrivals = executor_arrivals(executor, step, slot);
        arrivals[taken.peer] = (struct arrival_slot){.wire = wire, .arrival = arrival};
        wire->shown = true;
        struct cell *cell = executor_cell(executor, step, slot);
        if (++cell->arrived == executor->plan->schedule->steps[step].peers.count)
            take_in(executor, step, slot);
        if (executor->request == NULL)
            return;
    }
}

static void wire_attached(struct link *link) {
    struct wire *wire = link->owner;
    struct executor *executor = wire->executor;
    if (executor->request == NULL)
        return;
    for (uint32_t i = 0; i < wire->count; i++) {
        struct awaited *awaited = await_at(wire, i);
        if (!awaited->announced)
            announce(executor, wire, awaited);
    }
    executor->dirty = true;
    look(executor, wire);
    executor_pump(executor);
}

static void wire_arrived(struct link *link) {
    struct wire *wire = link->owner;
    struct executor *executor = wire->executor;
    if (executor->request == NULL)
        return;
    look(executor, wire);
    executor_pump(executor);
}

static void wire_writable(struct link *link) {
    struct wire *wire = link->owner;
    if (wire->executor->request == NULL)
        return;
    wire->executor->dirty = true;
    executor_pump(wire->executor);
}

static void post_done(struct transport_ticket *ticket, enum transport_result result) {
    struct post *post = (struct post *)ticket;
    struct executor *executor = post->executor;
    struct wire *wire = post->wire;
    struct cell_name cell = post->cell;
    bool receiving = post->receiving;
    struct transport_header header = ticket->header;
    post_put(executor, post);
    if (executor->request == NULL)
        return;
    if (result != TRANSPORT_OK) {
        wire->stalled = 1;
        wire_failed(&wire->link);
        return;
    }
    if (!receiving) {
        send_settled(executor, cell.step, cell.slot);
    } else {
        struct awaited *awaited = await_posted(wire);
        if (!same_call(executor, wire, awaited, &header))
            return;
        link_note_received(&wire->link, awaited->length);
        awaited->settled = true;
        executor_complete(executor, cell.step, cell.slot);
        look_later(executor, wire);
    }
    executor_pump(executor);
}

static bool issue_recv(struct executor *executor, uint32_t step, uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t slice = executor->slots[slot].slice;
    bool partial = what->type == SCHED_RECV ? (what->flags & SCHED_PARTIAL) != 0
                                            : (what->flags & SCHED_LOAD_MESSAGE) == 0;
    size_t length = executor_length(executor, what->dst, slice, partial);
    executor_cell(executor, step, slot)->issued = true;
    if (length == 0 && !is_sent_empty(executor, step, slice)) {
        executor_complete(executor, step, slot);
        return true;
    }
    for (uint32_t i = 0; i < what->peers.count; i++) {
        uint32_t entry = what->peers.begin + i;
        struct wire *wire =
            wire_get(executor, executor->plan->schedule->peers[entry], what->channel);
        struct awaited *awaited = wire != NULL ? await_push(wire) : NULL;
        if (awaited == NULL) {
            fail_memory(executor);
            return false;
        }
        *awaited = (struct awaited){.cell = {.step = step, .slot = slot},
                                    .peer = i,
                                    .position = executor->plan->positions[entry],
                                    .slice = slice,
                                    .length = length,
                                    .total = executor->vector && slice == 0
                                                 ? executor_total(executor, what->dst, partial)
                                                 : 0};
        if (wire->link.stream != NULL)
            announce(executor, wire, awaited);
        else if (link_failed(&wire->link))
            wire_failed(&wire->link);
        if (executor->request == NULL)
            return false;
        look(executor, wire);
        if (executor->request == NULL)
            return false;
    }
    return true;
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
            if (!issue_recv(executor, step, slot))
                return true;
        } else {
            if (!issue_send(executor, lane, step, slot))
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
        fail_memory(executor);
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
            look(executor, wire);
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

/* Elements of a slice: as many as fit the message size of the communicator. All ranks come to the
 * same number, because all of it is agreed. */
static size_t slice_elements(const rota_comm *comm, uint32_t widest, size_t partial_size) {
    size_t elements = comm->job->message_bytes / (partial_size * widest);
    return elements - elements % CHUNK_QUANTUM;
}

bool executor_fits(const rota_comm *comm, const struct algorithm *algorithm, rota_kind kind,
                   size_t partial_size) {
    uint32_t widest = algorithm->widest != NULL ? algorithm->widest(kind, comm->nranks) : 1;
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

/* What depends on the count. */
static rota_status set_sizes(struct executor *executor) {
    const rota_request *request = executor->request;
    const struct plan *plan = executor->plan;
    executor->element_size = request->element_size;
    executor->partial_size =
        sched_kind_reduces(plan->kind) ? request->spec.partial_size : request->element_size;
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
    return ROTA_OK;
}

rota_status executor_start(struct executor *executor, rota_request *request, struct plan *plan) {
    executor->request = request;
    executor->plan = plan;
    rota_status status = set_sizes(executor);
    if (status == ROTA_OK)
        status = prepare_memory(executor);
    if (status != ROTA_OK) {
        executor->request = NULL;
        return status;
    }
    uint32_t chunks = plan->schedule->chunks_per_block;
    for (uint32_t i = 0; i <= chunks; i++)
        executor->begin[i] = chunk_begin(request->args.count, chunks, i);
    memset(executor->lanes, 0, (plan->schedule->lanes + 1) * sizeof(struct lane));
    executor->nready = 0;
    executor->dirty = true;
    executor_set_memory(executor);
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
        post_put(executor, executor->posts);
}

int executor_awaited(const struct executor *executor, int *ranks, int max) {
    int count = 0;
    for (uint32_t i = 0; i < executor->nwires && count < max; i++) {
        struct wire *wire = executor->wires[i];
        if (wire != NULL && (wire->count > 0 || wire->stalled))
            ranks[count++] = rank_of(executor, wire);
    }
    return count;
}

int executor_stray(struct executor *executor, uint64_t sequence, uint64_t fingerprint,
                   bool native) {
    for (int peer = 0; peer < executor->comm->nranks; peer++) {
        struct wire *wire = peer != executor->comm->rank ? wire_get(executor, peer, 0) : NULL;
        struct transport_header header;
        if (wire == NULL || wire->link.stream == NULL ||
            !wire->link.transport->ops->pending(wire->link.transport, wire->link.stream, &header))
            continue;
        if (header.sequence < sequence ||
            (header.sequence == sequence && (native || header.fingerprint != fingerprint)))
            return peer;
    }
    return -1;
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
