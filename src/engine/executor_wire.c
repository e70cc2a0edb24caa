/* The executor's mouth and ears: wires to peers, sending what cells hold, matching what arrives
 * with the receives that were issued, in their order. executor.c decides when. */
#include "base/error.h"
#include "engine/collective.h"
#include "engine/executor_state.h"
#include "engine/failure.h"
#include <stdlib.h>
#include <string.h>

/* -- wires ------------------------------------------------------------------------------------- */

static void wire_attached(struct link *link);
static void wire_arrived(struct link *link);
static void wire_writable(struct link *link);
static void wire_failed(struct link *link);

static const struct link_events wire_events = {.attached = wire_attached,
                                               .arrived = wire_arrived,
                                               .writable = wire_writable,
                                               .failed = wire_failed};

struct wire *executor_wire(struct executor *executor, int peer, uint32_t channel) {
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

void executor_fail_memory(struct executor *executor) {
    request_raise(executor->request, ROTA_ERR_MEMORY, -1, "out of memory");
    fail(executor);
}

int executor_rank_of(const struct executor *executor, const struct wire *wire) {
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
    /* What came before is used first; who takes the last of it comes back here. */
    struct transport_header header;
    if (wire->stalled == 0 && link->stream != NULL &&
        (wire->shown || link->transport->ops->pending(link->transport, link->stream, &header)))
        return;
    failure_link(executor->request, link, executor_rank_of(executor, wire));
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

void executor_post_put(struct executor *executor, struct post *post) {
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
        executor_post_put(executor, post);
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
        executor_fail_memory(executor);
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

/* A message without data is sent as a header alone: tokens are, all messages of a call without
 * elements, and the first slices of v-forms, so that ranks which disagree find it. */
bool executor_sends_empty(const struct executor *executor, uint32_t step, uint32_t slice) {
    if (executor->vector)
        return slice == 0;
    return executor->plan->steps[step].token || executor->request->args.count == 0;
}

/* The wire to a peer that can be sent to; NULL: not now, or the request has ended. */
static struct wire *wire_to(struct executor *executor, int peer, uint32_t channel) {
    struct wire *wire = executor_wire(executor, peer, channel);
    if (wire == NULL) {
        executor_fail_memory(executor);
        return NULL;
    }
    if (link_failed(&wire->link)) {
        wire->stalled = 1;
        wire_failed(&wire->link);
        return NULL;
    }
    wire->stalled = wire->link.stream == NULL; /* before it connects: that may fail at once */
    if (wire->stalled)
        link_connect(&wire->link);
    if (executor->request == NULL)
        return NULL;
    wire->stalled = wire->link.stream == NULL;
    return wire->stalled ? NULL : wire;
}

/* What became of handing a message to its wire. False: not now, or the request has ended. */
static bool has_left(struct executor *executor, struct wire *wire, int peer, size_t length,
                     enum transport_result result) {
    if (executor->request == NULL)
        return false;
    wire->stalled = result == TRANSPORT_AGAIN;
    if (result == TRANSPORT_OK) {
        link_note_sent(&wire->link, length);
    } else if (result == TRANSPORT_FAILED) { /* and is about to say why */
        failure_link(executor->request, &wire->link, peer);
    } else if (result == TRANSPORT_UNSUPPORTED) {
        request_raise(executor->request, ROTA_ERR_PEER, peer, "cannot send %zu bytes to rank %d",
                      length, peer);
        fail(executor);
    }
    return result == TRANSPORT_OK;
}

bool executor_issue_send(struct executor *executor, struct lane *lane, uint32_t step,
                         uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t slice = executor->slots[slot].slice;
    size_t length = executor_length(executor, what->src, slice, executor_moves_partials(what));
    bool skip = length == 0 && !executor_sends_empty(executor, step, slice);
    while (!skip && lane->send_peer < what->peers.count) {
        uint32_t entry = what->peers.begin + lane->send_peer;
        int peer = executor->plan->schedule->peers[entry];
        struct wire *wire = wire_to(executor, peer, what->channel);
        if (wire == NULL)
            return false;
        struct transport_header header = header_of(executor, what, entry, slice, length);
        enum transport_result result = TRANSPORT_UNSUPPORTED;
        if (posts_pay(executor, wire->link.transport, true, length))
            result = send_post(executor, wire, step, slot, &header);
        if (result == TRANSPORT_UNSUPPORTED)
            result = send_copy(executor, wire, step, slot, &header);
        if (!has_left(executor, wire, peer, length, result))
            return false;
        lane->send_peer++;
    }
    lane->send_peer = 0;
    struct cell *cell = executor_cell(executor, step, slot);
    cell->issued = true;
    if (cell->waiting == 0)
        executor_complete(executor, step, slot);
    return true;
}

bool executor_send_short(struct executor *executor, uint32_t step, uint32_t peer, const void *data,
                         size_t length) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t entry = what->peers.begin + peer;
    int rank = executor->plan->schedule->peers[entry];
    struct wire *wire = wire_to(executor, rank, what->channel);
    if (wire == NULL)
        return false;
    struct transport *transport = wire->link.transport;
    struct transport_header header = header_of(executor, what, entry, 0, length);
    enum transport_result result = TRANSPORT_AGAIN;
    if (transport->ops->put != NULL)
        result = transport->ops->put(transport, wire->link.stream, &header, data);
    if (result == TRANSPORT_AGAIN) {
        struct transport_slot slot;
        result = transport->ops->reserve(transport, wire->link.stream, &header, &slot);
        if (result == TRANSPORT_OK) {
            if (length > 0)
                memcpy(slot.data, data, length);
            transport->ops->commit(transport, wire->link.stream, &slot);
        }
    }
    return has_left(executor, wire, rank, length, result);
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

static struct awaited *executor_await_at(struct wire *wire, uint32_t index) {
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
    while (!executor_await_at(wire, i)->posted || executor_await_at(wire, i)->settled)
        i++;
    return executor_await_at(wire, i);
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
            executor_post_put(executor, post);
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
    int peer = executor_rank_of(executor, wire);
    if (header->sequence != request->sequence || header->fingerprint != request->fingerprint)
        request_raise(
            request, ROTA_ERR_MISMATCH, peer,
            "rank %d is in another call: its #%llu, fingerprint %016llx, is not this "
            "one's %016llx (operation, count, type, operator, root, algorithm must agree, now "
            "and in all calls before)",
            peer, (unsigned long long)header->sequence, (unsigned long long)header->fingerprint,
            (unsigned long long)request->fingerprint);
    if (header->sequence != request->sequence || header->fingerprint != request->fingerprint) {
        failure_mismatch(executor->request);
        return false;
    }
    if (header->total != awaited->total)
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
        executor_fail_memory(executor);
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
    executor_release(executor, step, slot);
    struct arrival_slot *arrivals = executor_arrivals(executor, step, slot);
    for (uint32_t i = 0; i < what->peers.count; i++)
        look_later(executor, arrivals[i].wire);
    executor_complete(executor, step, slot);
}

void executor_release(struct executor *executor, uint32_t step, uint32_t slot) {
    struct arrival_slot *arrivals = executor_arrivals(executor, step, slot);
    uint32_t count = executor->plan->schedule->steps[step].peers.count;
    for (uint32_t i = 0; i < count; i++) {
        struct wire *wire = arrivals[i].wire;
        wire->link.transport->ops->release(wire->link.transport, wire->link.stream,
                                           &arrivals[i].arrival);
        wire->shown = false;
    }
}

/* Shows the oldest message that is awaited on a wire, and was announced, to its receive. False: it
 * is not here, or the request has ended. */
static bool show_oldest(struct executor *executor, struct wire *wire, struct awaited *shown) {
    struct transport *transport = wire->link.transport;
    struct transport_arrival arrival;
    enum transport_result result = transport->ops->peek(transport, wire->link.stream, &arrival);
    if (result != TRANSPORT_OK) {
        if (result != TRANSPORT_AGAIN)
            wire_failed(&wire->link);
        return false;
    }
    *shown = *executor_await_at(wire, 0);
    if (!same_call(executor, wire, shown, &arrival.header))
        return false;
    link_note_received(&wire->link, shown->length);
    await_pop(wire);
    wire->shown = true;
    executor_arrivals(executor, shown->cell.step, shown->cell.slot)[shown->peer] =
        (struct arrival_slot){.wire = wire, .arrival = arrival};
    return true;
}

bool executor_take_short(struct executor *executor, uint32_t step, uint32_t peer) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    int rank = executor->plan->schedule->peers[what->peers.begin + peer];
    struct wire *wire = executor_wire(executor, rank, what->channel);
    struct awaited shown;
    if (wire->link.stream == NULL) {
        if (link_failed(&wire->link))
            wire_failed(&wire->link);
        return false;
    }
    return executor_await_at(wire, 0)->announced && show_oldest(executor, wire, &shown);
}

/* Takes messages that wait at a wire, as far as receives were issued for them. */
void executor_look(struct executor *executor, struct wire *wire) {
    while (wire->count > 0 && !wire->shown && wire->link.stream != NULL) {
        struct awaited *awaited = executor_await_at(wire, 0);
        if (awaited->settled) {
            await_pop(wire);
            continue;
        }
        if (awaited->posted || !awaited->announced)
            return;
        struct awaited shown;
        if (!show_oldest(executor, wire, &shown))
            return;
        uint32_t step = shown.cell.step, slot = shown.cell.slot;
        struct cell *cell = executor_cell(executor, step, slot);
        if (++cell->arrived == executor->plan->schedule->steps[step].peers.count)
            take_in(executor, step, slot);
        if (executor->request == NULL)
            return;
    }
}

/* Something may be possible that was not. */
static void go_on(struct executor *executor, struct wire *wire) {
    if (executor->straight != NULL) {
        executor_run_straight(executor);
        return;
    }
    executor_look(executor, wire);
    executor_pump(executor);
}

static void wire_attached(struct link *link) {
    struct wire *wire = link->owner;
    struct executor *executor = wire->executor;
    if (executor->request == NULL)
        return;
    for (uint32_t i = 0; i < wire->count; i++) {
        struct awaited *awaited = executor_await_at(wire, i);
        if (!awaited->announced)
            announce(executor, wire, awaited);
    }
    executor->dirty = true;
    go_on(executor, wire);
}

static void wire_arrived(struct link *link) {
    struct wire *wire = link->owner;
    if (wire->executor->request != NULL)
        go_on(wire->executor, wire);
}

static void wire_writable(struct link *link) {
    struct wire *wire = link->owner;
    if (wire->executor->request == NULL)
        return;
    wire->executor->dirty = true;
    go_on(wire->executor, wire);
}

static void post_done(struct transport_ticket *ticket, enum transport_result result) {
    struct post *post = (struct post *)ticket;
    struct executor *executor = post->executor;
    struct wire *wire = post->wire;
    struct cell_name cell = post->cell;
    bool receiving = post->receiving;
    struct transport_header header = ticket->header;
    executor_post_put(executor, post);
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

bool executor_await(struct executor *executor, uint32_t step, uint32_t peer, uint32_t slot,
                    size_t length) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t entry = what->peers.begin + peer, slice = executor->slots[slot].slice;
    struct wire *wire =
        executor_wire(executor, executor->plan->schedule->peers[entry], what->channel);
    struct awaited *awaited = wire != NULL ? await_push(wire) : NULL;
    if (awaited == NULL) {
        executor_fail_memory(executor);
        return false;
    }
    bool tells_total = executor->vector && slice == 0;
    bool partial = executor_moves_partials(what);
    *awaited =
        (struct awaited){.cell = {.step = step, .slot = slot},
                         .peer = peer,
                         .position = executor->plan->positions[entry],
                         .slice = slice,
                         .length = length,
                         .total = tells_total ? executor_total(executor, what->dst, partial) : 0};
    if (wire->link.stream != NULL)
        announce(executor, wire, awaited);
    else if (link_failed(&wire->link))
        wire_failed(&wire->link);
    return executor->request != NULL;
}

bool executor_issue_recv(struct executor *executor, uint32_t step, uint32_t slot) {
    const struct sched_step *what = &executor->plan->schedule->steps[step];
    uint32_t slice = executor->slots[slot].slice;
    size_t length = executor_length(executor, what->dst, slice, executor_moves_partials(what));
    executor_cell(executor, step, slot)->issued = true;
    if (length == 0 && !executor_sends_empty(executor, step, slice)) {
        executor_complete(executor, step, slot);
        return true;
    }
    for (uint32_t i = 0; i < what->peers.count; i++) {
        if (!executor_await(executor, step, i, slot, length))
            return false;
        int peer = executor->plan->schedule->peers[what->peers.begin + i];
        executor_look(executor, executor_wire(executor, peer, what->channel));
        if (executor->request == NULL)
            return false;
    }
    return true;
}
