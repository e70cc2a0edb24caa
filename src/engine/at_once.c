/* Messages of one slice that end in their call, without a request: one that can leave at once, or
 * is there. A call like the one before is known by peer, tag and type, and only its buffer is
 * looked at. */
#include "base/cpu.h"
#include "engine/call.h"
#include "engine/p2p_state.h"
#include "engine/record_calls.h"
#include <string.h>

/* For how many times the turns of another wait a receive polls for its message before it becomes a
 * request: shared memory brings it when its sender has copied it, some microseconds; an adapter's
 * answer takes longer, and asking for it as little. */
#define P2P_NEAR_TURNS 8
#define P2P_FAR_TURNS 16
/* Polls of a receive that does not wait: one looks, one after progress. */
#define P2P_LOOKS 2
/* Looks of a receive at its own stream alone: before one that waits progresses for all, and before
 * one that does not becomes a request, which costs about as much. */
#define P2P_OWN_LOOKS 128
#define P2P_FEW_LOOKS 24
/* Looks, for each turn, of a receive at a message that its sender still writes. */
#define P2P_PART_LOOKS 16

static bool send_at_once(struct p2p_lane *lane, const void *data, size_t bytes) {
    struct transport *transport = lane->link.transport;
    struct transport_stream *stream = lane->link.stream;
    struct transport_header header = {.sequence = lane->sent, .length = bytes, .total = bytes};
    if (transport->ops->put == NULL ||
        transport->ops->put(transport, stream, &header, data) != TRANSPORT_OK) {
        struct transport_slot slot;
        if (transport->ops->reserve(transport, stream, &header, &slot) != TRANSPORT_OK)
            return false;
        p2p_fill(lane, &slot, data, bytes);
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

/* Takes what is there of a message that was announced and fits into the buffer, `*taken` bytes of
 * which were taken before. True: that was all. */
static bool take_announced(struct p2p_lane *lane, const struct call_args *args, size_t bytes,
                           size_t *taken) {
    struct transport *transport = lane->link.transport;
    struct transport_arrival arrival;
    if (transport->ops->peek(transport, lane->link.stream, &arrival) != TRANSPORT_OK)
        return false;
    size_t length = (size_t)arrival.header.length, there = arrival.pieces[0].length;
    if (arrival.header.sequence != lane->received || arrival.header.slice != 0 ||
        arrival.header.total != length || length > bytes || arrival.pieces[1].length > 0)
        return false;
    p2p_take(lane, length, (char *)args->recv + *taken,
             (const char *)arrival.pieces[0].data + *taken, there - *taken);
    *taken = there;
    if (there < length)
        return false;
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
    enum transport_result result = TRANSPORT_AGAIN;
    for (int look = 0; look < looks && result == TRANSPORT_AGAIN; look++) {
        result =
            transport->ops->take(transport, lane->link.stream, lane->received, args->recv, &length);
        if (atomic_load_explicit(&lane->comm->job->domain.wanted, memory_order_relaxed) != 0)
            break;
    }
    if (result == TRANSPORT_OK)
        note_taken(lane, args, length);
    return result == TRANSPORT_OK;
}

static bool receive_at_once(struct p2p_lane *lane, const struct call_args *args, size_t bytes,
                            uint32_t turns, struct p2p_begun *begun) {
    rota_comm *comm = lane->comm;
    struct domain *domain = &comm->job->domain;
    struct transport *transport = lane->link.transport;
    begun->announced = true;
    if (!lane_takes_announced(lane))
        transport->ops->expect(transport, lane->link.stream, bytes);
    uint32_t looks = 0;
    for (uint32_t turn = 0; turn < turns;
         turn += begun->taken == 0 || looks % P2P_PART_LOOKS == 0) {
        size_t before = begun->taken;
        if (take_announced(lane, args, bytes, &begun->taken))
            return true;
        if (atomic_load_explicit(&domain->wanted, memory_order_relaxed) != 0 ||
            atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK ||
            link_failed(&lane->link))
            return false;
        if (begun->taken != before)
            continue;
        looks++;
        if (begun->taken > 0)
            cpu_relax();
        else
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

/* Longer messages go from memory to memory, or in slices; and receives that do not wait for theirs
 * are announced before those behind them come. */
static size_t most_at_once(const struct p2p_lane *lane, bool receives) {
    const struct transport_caps *caps = &lane->link.transport->caps;
    return receives || caps->posts_send || caps->posts_recv ? P2P_POST_BYTES - 1
                                                            : p2p_slice_bytes(lane);
}

static uint32_t wait_turns(const struct p2p_lane *lane) {
    const struct domain *domain = &lane->comm->job->domain;
    const struct transport_ops *ops = lane->link.transport->ops;
    if (ops->places != NULL)
        return domain->spin_turns * P2P_FAR_TURNS;
    bool near = ops->take != NULL && domain->place < 0; /* and the peer does not want the core */
    return near ? domain->spin_turns * P2P_NEAR_TURNS : domain->spin_turns;
}

/* A burst of requests goes together. */
static bool goes_with_others(const struct p2p_lane *lane, bool waits) {
    return !waits && lane->link.transport->caps.gathers;
}

static bool run_at_once(rota_comm *comm, const struct call_args *args, bool waits,
                        struct p2p_begun *begun) {
    struct p2p_table *table = comm->p2p;
    size_t bytes = args->count * rota_dtype_size(args->dtype);
    struct p2p_lane *lane = lane_find(table, args);
    if (lane == NULL || lane->link.stream == NULL || link_failed(&lane->link) ||
        bytes > most_at_once(lane, !waits && args->kind == ROTA_KIND_RECV))
        return false;
    if (goes_with_others(lane, waits))
        return false;
    if (args->kind == ROTA_KIND_SEND)
        return is_next(table, lane, args->kind) && send_at_once(lane, args->send, bytes);
    if (!waits && !TAILQ_EMPTY(&lane->recvs))
        job_progress(comm->job); /* which may end those before it */
    if (!is_next(table, lane, args->kind) ||
        atomic_load_explicit(&comm->status, memory_order_relaxed) != ROTA_OK)
        return false;
    if (take_at_once(lane, args, bytes, 1))
        return true;
    return receive_at_once(lane, args, bytes, waits ? wait_turns(lane) : P2P_LOOKS, begun);
}

bool p2p_at_once(rota_comm *comm, const struct call_args *args, const rota_call *call,
                 struct p2p_begun *begun) {
    bool waits = waits_for(call);
    *begun = (struct p2p_begun){0};
    if ((!waits && call->done != NULL) || !memory_identify(buffer_of(args), 1)->host_readable ||
        !run_at_once(comm, args, waits, begun))
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
        goes_with_others(lane, waits) || link_failed(&lane->link) ||
        !is_next(comm->p2p, lane, args->kind) || comm->finalized ||
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
