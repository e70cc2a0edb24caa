/* Small messages that end in their call, without a request: one that can leave at once, or is
 * there. A call like the one before is known by peer, tag and type, and only its buffer is looked
 * at. */
#include "engine/call.h"
#include "engine/p2p_state.h"
#include "engine/record_calls.h"
#include <string.h>

/* An adapter's answer takes longer than one by shared memory, and asking for it as little. */
#define P2P_FAR_TURNS 16
/* Polls of a receive that does not wait: one looks, one after progress. */
#define P2P_LOOKS 2
/* Looks of a receive at its own stream alone: before one that waits progresses for all, and before
 * one that does not becomes a request, which costs about as much. */
#define P2P_OWN_LOOKS 128
#define P2P_FEW_LOOKS 24

static bool send_at_once(struct p2p_lane *lane, const void *data, size_t bytes) {
    struct transport *transport = lane->link.transport;
    struct transport_stream *stream = lane->link.stream;
    if (transport->ops->put == NULL ||
        transport->ops->put(transport, stream, lane->sent, data, bytes) != TRANSPORT_OK) {
        struct transport_header header = {.sequence = lane->sent, .length = bytes, .total = bytes};
        struct transport_slot slot;
        if (transport->ops->reserve(transport, stream, &header, &slot) != TRANSPORT_OK)
            return false;
        reduce_hand_over(lane->comm->isa, slot.near, slot.data, data, bytes);
        transport->ops->commit(transport, stream, &slot);
    }
    link_note_sent(&lane->link, bytes);
    lane->sent++;
    return true;
}

static void note_taken(struct p2p_lane *lane, const struct call_args *args, size_t length) {
    link_note_received(&lane->link, length);
    lane->received++;
    if (args->info != NULL) {
        args->info->source = lane->name.peer;
        args->info->tag = args->tag;
        args->info->count = length / rota_dtype_size(args->dtype);
    }
}

/* Takes a message that is there, whole, no longer than the buffer, and was announced. */
static bool take_announced(struct p2p_lane *lane, const struct call_args *args, size_t bytes) {
    struct transport *transport = lane->link.transport;
    struct transport_arrival arrival;
    if (transport->ops->peek(transport, lane->link.stream, &arrival) != TRANSPORT_OK)
        return false;
    size_t length = (size_t)arrival.header.length;
    if (arrival.header.sequence != lane->received || arrival.header.slice != 0 ||
        arrival.header.total != length || length > bytes || arrival.pieces[1].length > 0)
        return false;
    reduce_copy(lane->comm->isa, args->recv, arrival.pieces[0].data, length);
    transport->ops->release(transport, lane->link.stream, &arrival);
    note_taken(lane, args, length);
    return true;
}

/* The same of a message that was not, in one step. */
static bool take_at_once(struct p2p_lane *lane, const struct call_args *args, size_t bytes,
                         int looks) {
    struct transport *transport = lane->link.transport;
    if (transport->ops->take == NULL || lane->announced > 0)
        return false;
    size_t length = bytes;
    for (int look = 0; look < looks; look++) {
        if (transport->ops->take(transport, lane->link.stream, lane->received, args->recv,
                                 &length) == TRANSPORT_OK) {
            note_taken(lane, args, length);
            return true;
        }
        if (atomic_load_explicit(&lane->comm->job->domain.wanted, memory_order_relaxed) != 0)
            break;
    }
    return false;
}

static bool receive_at_once(struct p2p_lane *lane, const struct call_args *args, size_t bytes,
                            uint32_t turns) {
    rota_comm *comm = lane->comm;
    struct domain *domain = &comm->job->domain;
    struct transport *transport = lane->link.transport;
    if (!lane_takes_announced(lane))
        transport->ops->expect(transport, lane->link.stream, bytes);
    for (uint32_t turn = 0; turn < turns; turn++) {
        if (take_announced(lane, args, bytes))
            return true;
        if (atomic_load_explicit(&domain->wanted, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK ||
            link_failed(&lane->link))
            return false;
        job_progress(comm->job);
    }
    return false;
}

static struct p2p_recent *recent_of(struct p2p_table *table, rota_kind kind) {
    return kind == ROTA_KIND_SEND ? &table->recent_send : &table->recent_recv;
}

static bool is_lane_of(const struct p2p_lane *lane, const struct call_args *args) {
    return lane != NULL && lane->name.peer == args->root && lane->name.tag == args->tag;
}

/* The lane if it exists: mostly that of the last call. */
static struct p2p_lane *lane_find(struct p2p_table *table, const struct call_args *args) {
    struct p2p_recent *recent = recent_of(table, args->kind);
    struct p2p_lane *lane = recent->lane;
    if (!is_lane_of(lane, args)) {
        struct p2p_name name = {.peer = args->root, .tag = args->tag};
        HASH_FIND(hh, table->lanes, &name, sizeof(name), lane);
    }
    if (lane != NULL && (recent->lane != lane || recent->dtype != args->dtype))
        *recent = (struct p2p_recent){.lane = lane,
                                      .dtype = args->dtype,
                                      .element_size = rota_dtype_size(args->dtype),
                                      .misaligned = rota_dtype_alignment(args->dtype) - 1};
    return lane;
}

/* Whether the call's message may pass nobody else's. */
static bool is_next(const struct p2p_table *table, const struct p2p_lane *lane, rota_kind kind) {
    return kind == ROTA_KIND_SEND ? TAILQ_EMPTY(&lane->sends)
                                  : TAILQ_EMPTY(&lane->recvs) && TAILQ_EMPTY(&table->unmatched);
}

static bool waits_for(const rota_call *call) {
    return call == NULL || call->request == NULL;
}
static const void *buffer_of(const struct call_args *args) {
    return args->kind == ROTA_KIND_SEND ? args->send : args->recv;
}

/* A message has ended in its call. */
static void note_past(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    if (!waits_for(call))
        *call->request = request_of_past(args->kind);
    comm->job->operations++;
    record_message(comm, args);
}

static bool run_at_once(rota_comm *comm, const struct call_args *args, bool waits,
                        bool *announced) {
    struct p2p_table *table = comm->p2p;
    size_t bytes = args->count * rota_dtype_size(args->dtype);
    struct p2p_lane *lane = bytes < P2P_POST_BYTES ? lane_find(table, args) : NULL;
    if (lane == NULL || lane->link.stream == NULL || link_failed(&lane->link))
        return false;
    if (!waits && lane->link.transport->caps.gathers)
        return false; /* a burst of requests goes together */
    if (args->kind == ROTA_KIND_SEND)
        return is_next(table, lane, args->kind) && send_at_once(lane, args->send, bytes);
    if (!waits && !TAILQ_EMPTY(&lane->recvs))
        job_progress(comm->job); /* which may end those before it */
    if (!is_next(table, lane, args->kind) ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
        return false;
    if (take_at_once(lane, args, bytes, 1))
        return true;
    *announced = true;
    uint32_t turns = comm->job->domain.spin_turns;
    if (lane->link.transport->ops->places != NULL)
        turns *= P2P_FAR_TURNS;
    return receive_at_once(lane, args, bytes, waits ? turns : P2P_LOOKS);
}

bool p2p_at_once(rota_comm *comm, const struct call_args *args, const rota_call *call,
                 bool *announced) {
    bool waits = waits_for(call);
    *announced = false;
    if ((!waits && call->done != NULL) || !memory_identify(buffer_of(args), 1)->host_readable ||
        !run_at_once(comm, args, waits, announced))
        return false;
    note_past(comm, args, call);
    return true;
}

/* -- calls like the last --------------------------------------------------------------------------
 */

/* Whether it has no option but a request. */
static bool is_plain(const rota_call *call) {
    return call == NULL ||
           (call->size >= sizeof(*call) && call->stream == NULL && call->timeout_ms == 0 &&
            call->numerics == ROTA_NUMERICS_DEFAULT && call->algorithm == NULL &&
            call->label == NULL && call->send_mem == NULL && call->recv_mem == NULL &&
            call->done == NULL && call->done_arg == NULL && call->priority == 0 &&
            call->flags == 0 && call->group == NULL);
}

/* Inside the domain. */
static bool run_again(rota_comm *comm, const struct call_args *args, bool waits) {
    const struct p2p_recent *recent = recent_of(comm->p2p, args->kind);
    struct p2p_lane *lane = recent->lane;
    const void *buffer = buffer_of(args);
    if (!is_lane_of(lane, args) || recent->dtype != args->dtype || buffer == NULL ||
        ((uintptr_t)buffer & recent->misaligned) != 0)
        return false;
    size_t bytes = args->count * recent->element_size;
    const struct transport *transport = lane->link.transport;
    if (bytes > P2P_AGAIN_BYTES || lane->link.stream == NULL || transport->ops->put == NULL ||
        link_failed(&lane->link) || !is_next(comm->p2p, lane, args->kind) || comm->finalized ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK ||
        !memory_identify(buffer, 1)->host_readable)
        return false;
    if (args->kind == ROTA_KIND_SEND)
        return send_at_once(lane, args->send, bytes);
    if (comm->job->domain.place >= 0)
        return take_at_once(lane, args, bytes, 1); /* the peer wants the core */
    return take_at_once(lane, args, bytes, waits ? P2P_OWN_LOOKS : P2P_FEW_LOOKS);
}

/* Whoever destroys the communicator meanwhile waits for the domain, and nothing is touched after it
 * is left: so this call need not be counted. */
bool p2p_run_again(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    struct job *job = comm->job;
    if (args->count > P2P_AGAIN_BYTES || !is_plain(call) ||
        atomic_load_explicit(&job->has_callbacks, memory_order_relaxed) ||
        (args->info != NULL && args->info->size < sizeof(*args->info)))
        return false;
    domain_enter(&job->domain);
    bool done = run_again(comm, args, waits_for(call));
    if (done)
        note_past(comm, args, call);
    domain_leave(&job->domain);
    return done;
}
