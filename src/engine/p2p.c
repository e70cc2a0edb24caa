/* Point to point over streams of (peer, tag). A message of any length travels as slices of the
 * job's message size, at least one; the first carries the whole length, so a receive learns it
 * from there. Receives are matched in the order in which they were posted; one from any source
 * takes the first message that no receive of that source claims, and those of its tag that were
 * posted later wait behind it. */
#include "engine/p2p.h"

#include "base/error.h"
#include "engine/failure.h"
#include "engine/p2p_state.h"
#include <stdlib.h>
#include <string.h>

/* Receives of a lane that are announced at a time. */
#define P2P_AHEAD 8
/* From these sizes on a message that was copied into the transport's memory is taken out of it by
 * string moves, which beat vectors by a sixth there, and then past the caches, which it would only
 * flush. */
#define P2P_STRING_BYTES ((size_t)128 * 1024)
#define P2P_STREAM_BYTES ((size_t)8 * 1024 * 1024)
/* What is copied into a slot before the receiver is told of it. */
#define P2P_PART_BYTES 16384

static void lane_attached(struct link *link);
static void lane_arrived(struct link *link);
static void lane_writable(struct link *link);
static void lane_failed(struct link *link);

static const struct link_events lane_events = {.attached = lane_attached,
                                               .arrived = lane_arrived,
                                               .writable = lane_writable,
                                               .failed = lane_failed};

struct p2p_table *p2p_table_create(rota_comm *comm) {
    struct p2p_table *table = calloc(1, sizeof(*table));
    if (table == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for point to point");
        return NULL;
    }
    table->comm = comm;
    table->first = (uint64_t)settings_integer(comm->job->settings, SETTING_TEST_SEQUENCE_START) + 1;
    TAILQ_INIT(&table->unmatched);
    return table;
}

void p2p_table_destroy(struct p2p_table *table) {
    if (table == NULL)
        return;
    struct p2p_lane *lane = NULL, *next = NULL;
    HASH_ITER(hh, table->lanes, lane, next) {
        HASH_DEL(table->lanes, lane);
        link_close(&lane->link);
        free(lane);
    }
    free(table);
}

static struct p2p_lane *lane_get(struct p2p_table *table, int peer, int tag) {
    struct p2p_name name = {.peer = peer, .tag = tag};
    struct p2p_lane *lane = NULL;
    HASH_FIND(hh, table->lanes, &name, sizeof(name), lane);
    if (lane != NULL)
        return lane;
    lane = calloc(1, sizeof(*lane));
    if (lane == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a stream to rank %d", peer);
        return NULL;
    }
    lane->name = name;
    lane->comm = table->comm;
    lane->sent = lane->received = table->first;
    TAILQ_INIT(&lane->sends);
    TAILQ_INIT(&lane->recvs);
    struct transport_key key = {.comm = table->comm->id,
                                .generation = table->comm->generation,
                                .channel = (uint32_t)tag,
                                .space = 1};
    if (link_open(&lane->link, table->comm->job, table->comm->members[peer], &key, &lane_events,
                  lane) != ROTA_OK) {
        free(lane);
        return NULL;
    }
    HASH_ADD(hh, table->lanes, name, sizeof(lane->name), lane);
    return lane;
}

/* Where data go from user memory to user memory longer slices cost nothing. */
size_t p2p_slice_bytes(const struct p2p_lane *lane) {
    const struct job *job = lane->comm->job;
    size_t preferred = lane->link.transport->caps.preferred_message;
    bool longer =
        preferred > job->message_bytes && settings_integer(job->settings, SETTING_SLICE_BYTES) == 0;
    return longer ? preferred : job->message_bytes;
}

static void fail_request(rota_request *request) {
    comm_fail(request->comm, error_record());
}

static struct p2p_post *free_post(rota_request *request) {
    for (int i = 0; i < P2P_WINDOW; i++)
        if (!request->p2p.posts[i].active)
            return &request->p2p.posts[i];
    return NULL;
}

static unsigned char *buffer_of(const rota_request *request) {
    if (request->args.kind == ROTA_KIND_SEND)
        return request->staged_send != NULL ? request->staged_send
                                            : (unsigned char *)(uintptr_t)request->args.send;
    return request->staged_recv != NULL ? request->staged_recv : request->args.recv;
}

/* -- sending ------------------------------------------------------------------------------------
 */

static void pump_sends(struct p2p_lane *lane);

static void send_done(struct transport_ticket *ticket, enum transport_result result) {
    struct p2p_post *post = (struct p2p_post *)ticket;
    rota_request *request = post->request;
    struct p2p_lane *lane = request->p2p.lane;
    post->active = false;
    request->p2p.pending--;
    request->p2p.finished += post->bytes;
    if (result != TRANSPORT_OK) {
        lane_failed(&lane->link);
        return;
    }
    if (request->p2p.finished == request->p2p.total && request->p2p.pending == 0 &&
        request->p2p.announced == request->p2p.total && !request->queued)
        request_end(request, ROTA_OK);
    else
        pump_sends(lane);
}

void p2p_fill(struct p2p_lane *lane, struct transport_slot *slot, const void *data, size_t length) {
    struct transport *transport = lane->link.transport;
    const char *from = data;
    size_t done = 0;
    for (; transport->ops->publish != NULL && length - done > P2P_PART_BYTES;
         done += P2P_PART_BYTES) {
        reduce_publish(lane->comm->isa, (char *)slot->data + done, from + done, P2P_PART_BYTES);
        transport->ops->publish(transport, lane->link.stream, slot, done + P2P_PART_BYTES);
    }
    if (length > done)
        reduce_hand_over(lane->comm->isa, slot->near, (char *)slot->data + done, from + done,
                         length - done);
    transport->ops->commit(transport, lane->link.stream, slot);
}

/* Hands one slice to the transport. */
static enum transport_result send_slice(struct p2p_lane *lane, rota_request *request) {
    struct p2p_state *p2p = &request->p2p;
    struct transport *transport = lane->link.transport;
    size_t length = p2p->total - p2p->announced;
    length = length < p2p_slice_bytes(lane) ? length : p2p_slice_bytes(lane);
    struct transport_header header = {.sequence = lane->sent,
                                      .slice = (uint32_t)(p2p->announced / p2p_slice_bytes(lane)),
                                      .length = length,
                                      .total = p2p->announced == 0 ? p2p->total : 0};
    unsigned char *data = length > 0 ? buffer_of(request) + p2p->announced : NULL;
    if (transport->caps.posts_send && (length >= P2P_POST_BYTES || transport->caps.gathers)) {
        struct p2p_post *post = free_post(request);
        if (post == NULL)
            return TRANSPORT_AGAIN;
        *post = (struct p2p_post){
            .ticket = {.done = send_done}, .request = request, .bytes = length, .active = true};
        p2p->pending++;
        p2p->announced += length;
        p2p->begun = true;
        struct transport_piece piece = {.data = data, .length = length};
        enum transport_result result = transport->ops->post_send(transport, lane->link.stream,
                                                                 &header, &piece, 1, &post->ticket);
        if (result == TRANSPORT_OK) {
            link_note_sent(&lane->link, length);
            return result;
        }
        post->active = false;
        p2p->pending--;
        p2p->announced -= length;
        if (result != TRANSPORT_UNSUPPORTED)
            return result;
    }
    struct transport_slot slot;
    enum transport_result result =
        transport->ops->reserve(transport, lane->link.stream, &header, &slot);
    if (result != TRANSPORT_OK)
        return result;
    p2p_fill(lane, &slot, data, length);
    link_note_sent(&lane->link, length);
    p2p->announced += length;
    p2p->finished += length;
    p2p->begun = true;
    return TRANSPORT_OK;
}

static void pump_sends(struct p2p_lane *lane) {
    rota_request *request;
    while ((request = TAILQ_FIRST(&lane->sends)) != NULL) {
        struct p2p_state *p2p = &request->p2p;
        if (link_failed(&lane->link)) {
            lane_failed(&lane->link);
            return;
        }
        if (lane->link.stream == NULL) {
            link_connect(&lane->link);
            if (lane->link.stream == NULL)
                return;
            continue;
        }
        if (!p2p->begun || p2p->announced < p2p->total) {
            enum transport_result result = send_slice(lane, request);
            if (result == TRANSPORT_AGAIN)
                return;
            if (result != TRANSPORT_OK) {
                lane_failed(&lane->link);
                return;
            }
            continue;
        }
        TAILQ_REMOVE(&lane->sends, request, queue_entry);
        request->queued = false;
        lane->sent++;
        if (p2p->pending == 0)
            request_end(request, ROTA_OK);
    }
}

/* -- receiving ----------------------------------------------------------------------------------
 */

static void pump_recvs(struct p2p_lane *lane);

static bool same_message(struct p2p_lane *lane, rota_request *request,
                         const struct transport_header *header) {
    if (header->sequence == lane->received &&
        header->slice == request->p2p.finished / p2p_slice_bytes(lane))
        return true;
    request_raise(request, ROTA_ERR_MISMATCH, lane->name.peer,
                  "rank %d sent message %llu slice %u where %llu slice %zu was expected",
                  lane->name.peer, (unsigned long long)header->sequence, header->slice,
                  (unsigned long long)lane->received,
                  request->p2p.finished / p2p_slice_bytes(lane));
    fail_request(request);
    return false;
}

static void recv_finish(struct p2p_lane *lane, rota_request *request) {
    TAILQ_REMOVE(&lane->recvs, request, queue_entry);
    request->queued = false;
    lane->received++;
    const struct p2p_state *p2p = &request->p2p;
    rota_status status = ROTA_OK;
    if (p2p->total > p2p->bytes)
        status = request_raise(request, ROTA_ERR_TRUNCATED, lane->name.peer,
                               "the message of rank %d has %zu bytes, the buffer %zu",
                               lane->name.peer, p2p->total, p2p->bytes);
    request_end(request, status);
}

/* The first slice tells how many there are. It was announced by this receive, or by one behind it.
 */
static void recv_begin(struct p2p_state *p2p, const struct transport_header *header) {
    p2p->begun = true;
    p2p->total = (size_t)header->total;
    p2p->announced = (size_t)header->length;
}

/* Books a slice that has come. */
static bool recv_slice(struct p2p_lane *lane, rota_request *request,
                       const struct transport_header *header) {
    struct p2p_state *p2p = &request->p2p;
    if (!same_message(lane, request, header))
        return false;
    link_note_received(&lane->link, (size_t)header->length);
    if (!p2p->begun)
        recv_begin(p2p, header);
    p2p->finished += (size_t)header->length;
    if (p2p->announced < p2p->finished)
        p2p->announced = p2p->finished;
    if (p2p->finished >= p2p->total) {
        recv_finish(lane, request);
        return false;
    }
    return true;
}

/* A slice of the head lies in the memory of a receive behind it: see recv_announce_ahead. */
static rota_request *recv_shift(struct p2p_lane *lane, rota_request *request, size_t bytes) {
    rota_request *head = TAILQ_FIRST(&lane->recvs);
    size_t at = head->p2p.finished;
    size_t room = at < head->p2p.bytes ? head->p2p.bytes - at : 0;
    bytes = bytes < room ? bytes : room;
    if (bytes > 0)
        reduce_copy(lane->comm->isa, buffer_of(head) + at, buffer_of(request), bytes);
    request->p2p.first_announced = false;
    return head;
}

static void recv_done(struct transport_ticket *ticket, enum transport_result result) {
    struct p2p_post *post = (struct p2p_post *)ticket;
    rota_request *request = post->request;
    struct p2p_lane *lane = request->p2p.lane;
    struct transport_header header = ticket->header;
    post->active = false;
    request->p2p.pending--;
    if (result != TRANSPORT_OK) {
        lane_failed(&lane->link);
        return;
    }
    if (request != TAILQ_FIRST(&lane->recvs))
        request = recv_shift(lane, request,
                             header.length < post->bytes ? (size_t)header.length : post->bytes);
    recv_slice(lane, request, &header);
    if (atomic_load_explicit(&lane->comm->status, memory_order_relaxed) == ROTA_OK)
        pump_recvs(lane);
}

/* Whether the slice at `offset` goes straight to the user's memory: it must fit whatever comes. */
static bool recv_posts(const struct p2p_lane *lane, const rota_request *request, size_t offset,
                       size_t length) {
    return lane->link.transport->caps.posts_recv && length >= P2P_POST_BYTES &&
           offset + length <= request->p2p.bytes;
}

/* Announces the slice at `offset`. */
static void recv_announce(struct p2p_lane *lane, rota_request *request, size_t offset,
                          size_t length) {
    struct transport *transport = lane->link.transport;
    struct p2p_post *post = free_post(request);
    if (post != NULL && recv_posts(lane, request, offset, length)) {
        *post = (struct p2p_post){
            .ticket = {.done = recv_done}, .request = request, .bytes = length, .active = true};
        request->p2p.pending++;
        struct transport_piece piece = {.data = buffer_of(request) + offset, .length = length};
        if (transport->ops->post_recv(transport, lane->link.stream, length, &piece, 1,
                                      &post->ticket) == TRANSPORT_OK)
            return;
        post->active = false;
        request->p2p.pending--;
    }
    transport->ops->expect(transport, lane->link.stream, length);
}

void p2p_take(const struct p2p_lane *lane, size_t total, void *to, const void *from, size_t bytes) {
    enum cpu_isa isa = lane->comm->isa;
    if (total >= P2P_STREAM_BYTES)
        reduce_stream(isa, to, from, bytes);
    else if (total >= P2P_STRING_BYTES)
        reduce_publish(isa, to, from, bytes);
    else
        reduce_copy(isa, to, from, bytes);
}

/* The first receive behind the head that has announced its message; NULL: none has. */
static rota_request *announced_behind(const struct p2p_lane *lane) {
    rota_request *request = TAILQ_FIRST(&lane->recvs);
    for (int i = 1; i < P2P_AHEAD && request != NULL; i++) {
        request = TAILQ_NEXT(request, queue_entry);
        if (request != NULL && request->p2p.first_announced)
            return request;
    }
    return NULL;
}

/* Announces the first slice, unless it is, or somebody has left his announcement. */
static void recv_announce_first(struct p2p_lane *lane, rota_request *request) {
    size_t slice = p2p_slice_bytes(lane), bytes = request->p2p.bytes;
    if (request->p2p.first_announced)
        return;
    request->p2p.first_announced = true;
    if (!lane_takes_announced(lane))
        recv_announce(lane, request, 0, bytes < slice ? bytes : slice);
}

/* Announces the head's slices: the first alone, then up to a window. Those that receives behind it
 * have announced come first, whoever they were meant for. */
static void recv_announce_more(struct p2p_lane *lane, rota_request *request) {
    const struct transport *transport = lane->link.transport;
    struct p2p_state *p2p = &request->p2p;
    size_t slice = p2p_slice_bytes(lane);
    if (transport->caps.posts_recv && announced_behind(lane) != NULL)
        return;
    if (!p2p->begun) {
        recv_announce_first(lane, request);
        return;
    }
    while (p2p->announced < p2p->total && p2p->announced - p2p->finished < P2P_WINDOW * slice) {
        size_t length = p2p->total - p2p->announced;
        length = length < slice ? length : slice;
        size_t offset = p2p->announced;
        p2p->announced += length;
        recv_announce(lane, request, offset, length);
    }
}

/* Takes the slice that peek shows. False: nothing more to do now. */
static bool recv_peeked(struct p2p_lane *lane, rota_request *request) {
    struct transport *transport = lane->link.transport;
    struct transport_arrival arrival;
    enum transport_result result = transport->ops->peek(transport, lane->link.stream, &arrival);
    if (result == TRANSPORT_FAILED)
        lane_failed(&lane->link);
    if (result != TRANSPORT_OK)
        return false;
    struct transport_header header = arrival.header;
    struct p2p_state *p2p = &request->p2p;
    size_t total = p2p->begun ? p2p->total : (size_t)header.total;
    size_t at = p2p->finished, skip = p2p->taken; /* of the first piece: was copied before */
    for (int i = 0; i < 2; i++) {
        size_t length = arrival.pieces[i].length - skip;
        at += skip;
        size_t room = at < p2p->bytes ? p2p->bytes - at : 0;
        size_t part = length < room ? length : room;
        if (part > 0)
            p2p_take(lane, total, buffer_of(request) + at,
                     (const char *)arrival.pieces[i].data + skip, part);
        at += length;
        skip = 0;
    }
    p2p->taken = at - p2p->finished;
    bool partial = transport->ops->publish != NULL && p2p->taken < header.length;
    if (partial) { /* its sender still writes */
        if (!p2p->begun && same_message(lane, request, &header)) {
            recv_begin(p2p, &header);
            recv_announce_more(lane, request);
        }
        return false;
    }
    p2p->taken = 0;
    bool own = p2p->begun ? p2p->announced > p2p->finished : p2p->first_announced;
    rota_request *behind = own || !transport->caps.posts_recv ? NULL : announced_behind(lane);
    if (behind != NULL)
        behind->p2p.first_announced = false;
    transport->ops->release(transport, lane->link.stream, &arrival);
    recv_slice(lane, request, &header);
    return atomic_load_explicit(&lane->comm->status, memory_order_relaxed) == ROTA_OK;
}

/* Whether a receive is, or may be, announced before those ahead of it have ended. */
static bool goes_ahead(const struct p2p_lane *lane, const rota_request *request) {
    struct transport *transport = lane->link.transport;
    size_t bytes = request->p2p.bytes;
    if (!transport->caps.posts_recv)
        return bytes > transport->caps.eager_bytes;
    if (bytes > p2p_slice_bytes(lane))
        return false;
    if (request->p2p.first_announced)
        return request->p2p.pending > 0;
    return bytes >= P2P_POST_BYTES &&
           (transport->ops->places == NULL ||
            transport->ops->places(transport, buffer_of(request), bytes));
}

/* Whether slices of a receive are still to be announced, as far as is known. */
static bool more_to_announce(const struct p2p_lane *lane, const rota_request *request) {
    const struct p2p_state *p2p = &request->p2p;
    return p2p->begun ? p2p->announced < p2p->total : p2p->bytes > p2p_slice_bytes(lane);
}

/* The first slices of receives behind the head are announced too when those of all before them are,
 * so that their senders need not wait for one after the other, and what comes needs no copy; where
 * messages go straight to memory, only those of one slice: of an adapter's, those that the peer
 * writes there itself.
 *
 * A message may be longer than its buffer and take more announcements than its own. What then lies
 * in the memory of a receive behind it is copied (recv_shift), and that receive is announced anew;
 * so none is announced that has less room than one before it.
 * No post may be left when its receive has ended, so announcements stand in the order of their
 * receives: none is made while one behind it stands, nor a post behind an expectation. */
static void recv_announce_ahead(struct p2p_lane *lane) {
    struct transport *transport = lane->link.transport;
    rota_request *head = TAILQ_FIRST(&lane->recvs), *request = head;
    if (transport->caps.posts_recv && (head->p2p.begun || !head->p2p.first_announced))
        return;
    size_t least = 0;
    for (int i = 0; i < P2P_AHEAD && request != NULL; i++) {
        if (!goes_ahead(lane, request) || request->p2p.bytes < least)
            return;
        least = transport->caps.posts_recv ? request->p2p.bytes : 0;
        recv_announce_first(lane, request);
        if (TAILQ_FIRST(&lane->recvs) != head)
            return; /* it was here already */
        if (more_to_announce(lane, request))
            return;
        request = TAILQ_NEXT(request, queue_entry);
    }
}

static void receive_on(struct p2p_lane *lane) {
    rota_request *request;
    while ((request = TAILQ_FIRST(&lane->recvs)) != NULL) {
        if (lane->link.stream == NULL) {
            if (link_failed(&lane->link))
                lane_failed(&lane->link);
            return;
        }
        recv_announce_more(lane, request);
        if (request == TAILQ_FIRST(&lane->recvs))
            recv_announce_ahead(lane);
        if (atomic_load_explicit(&lane->comm->status, memory_order_relaxed) != ROTA_OK)
            return;
        if (request != TAILQ_FIRST(&lane->recvs))
            continue; /* a post ended it at once */
        if (request->p2p.pending > 0 || !recv_peeked(lane, request))
            return;
    }
}

/* Taking a message may end a send that was waiting for that, which brings the next one: what comes
 * in the middle of a step is looked at after it. */
static void pump_recvs(struct p2p_lane *lane) {
    lane->again = true;
    if (lane->receiving)
        return;
    lane->receiving = true;
    while (lane->again) {
        lane->again = false;
        receive_on(lane);
    }
    lane->receiving = false;
}

/* -- matching -----------------------------------------------------------------------------------
 */

static void assign(struct p2p_lane *lane, rota_request *request) {
    request->p2p.lane = lane;
    request->queued = true;
    TAILQ_INSERT_TAIL(&lane->recvs, request, queue_entry);
    pump_recvs(lane);
}

/* A lane of this tag with a message that no receive claims. */
static struct p2p_lane *find_message(struct p2p_table *table, int tag) {
    for (int peer = 0; peer < table->comm->nranks; peer++) {
        struct p2p_lane *lane = lane_get(table, peer, tag);
        struct transport_header header;
        if (lane != NULL && lane->link.stream != NULL && TAILQ_EMPTY(&lane->recvs) &&
            lane->link.transport->ops->pending(lane->link.transport, lane->link.stream, &header))
            return lane;
    }
    return NULL;
}

static bool behind_any(const struct p2p_table *table, const rota_request *request) {
    const rota_request *other;
    TAILQ_FOREACH(other, &table->unmatched, queue_entry) {
        if (other == request)
            return false;
        if (other->args.tag == request->args.tag && other->args.root == ROTA_ANY_SOURCE)
            return true;
    }
    return false;
}

static void match(struct p2p_table *table) {
    bool again = true;
    while (again) {
        again = false;
        rota_request *request;
        TAILQ_FOREACH(request, &table->unmatched, queue_entry) {
            if (behind_any(table, request))
                continue;
            struct p2p_lane *lane = request->args.root == ROTA_ANY_SOURCE
                                        ? find_message(table, request->args.tag)
                                        : lane_get(table, request->args.root, request->args.tag);
            if (lane == NULL)
                continue;
            TAILQ_REMOVE(&table->unmatched, request, queue_entry);
            assign(lane, request);
            again = true; /* the list has changed */
            break;
        }
    }
}

void p2p_start(rota_request *request) {
    struct p2p_table *table = request->comm->p2p;
    struct p2p_state *p2p = &request->p2p;
    p2p->bytes = request->args.count * request->element_size;
    request->queued = true;
    if (request->args.kind == ROTA_KIND_SEND) {
        p2p->total = p2p->bytes;
        p2p->lane = lane_get(table, request->args.root, request->args.tag);
        if (p2p->lane == NULL) {
            request->queued = false;
            request_end(request, ROTA_ERR_MEMORY);
            return;
        }
        TAILQ_INSERT_TAIL(&p2p->lane->sends, request, queue_entry);
        pump_sends(p2p->lane);
        return;
    }
    TAILQ_INSERT_TAIL(&table->unmatched, request, queue_entry);
    match(table);
}

/* What a receive has announced becomes the announcement of the next one. False: its message comes.
 */
static bool take_back(struct p2p_lane *lane, rota_request *request) {
    const struct transport_ops *ops = lane->link.transport->ops;
    struct p2p_post *post = NULL;
    if (!request->p2p.first_announced)
        return true;
    for (int i = 0; i < P2P_WINDOW; i++)
        if (request->p2p.posts[i].active)
            post = &request->p2p.posts[i];
    if (lane->link.stream == NULL || ops->withdraw == NULL ||
        !ops->withdraw(lane->link.transport, lane->link.stream,
                       post != NULL ? &post->ticket : NULL))
        return false;
    if (post != NULL) {
        post->active = false;
        request->p2p.pending--;
    }
    request->p2p.first_announced = false;
    lane->announced++;
    return true;
}

/* The same of a receive and those behind it: the newest announcement goes first. */
static bool take_back_from(struct p2p_lane *lane, rota_request *request) {
    rota_request *newest = TAILQ_LAST(&lane->recvs, request_list);
    while (newest != request && take_back(lane, newest))
        newest = TAILQ_PREV(newest, request_list, queue_entry);
    return newest == request && take_back(lane, request);
}

bool p2p_withdraw(rota_request *request) {
    struct p2p_state *p2p = &request->p2p;
    if (!request->queued || p2p->begun || p2p->taken > 0)
        return false;
    if (p2p->lane == NULL) {
        TAILQ_REMOVE(&request->comm->p2p->unmatched, request, queue_entry);
    } else {
        if (p2p->first_announced && !take_back_from(p2p->lane, request))
            return false;
        TAILQ_REMOVE(&p2p->lane->recvs, request, queue_entry);
    }
    request->queued = false;
    return true;
}

void p2p_go_on(struct p2p_table *table, struct p2p_lane *lane) {
    if (lane != NULL)
        pump_recvs(lane);
    match(table);
}

int p2p_source(const rota_request *request) {
    return request->p2p.lane != NULL ? request->p2p.lane->name.peer : -1;
}

/* -- events -------------------------------------------------------------------------------------
 */

static void lane_arrived(struct link *link) {
    struct p2p_lane *lane = link->owner;
    pump_recvs(lane);
    if (!TAILQ_EMPTY(&lane->comm->p2p->unmatched))
        match(lane->comm->p2p);
}

static void lane_writable(struct link *link) {
    pump_sends(link->owner);
}

static void lane_attached(struct link *link) {
    pump_sends(link->owner);
    lane_arrived(link);
}

static void lane_failed(struct link *link) {
    struct p2p_lane *lane = link->owner;
    rota_request *request = TAILQ_FIRST(&lane->sends);
    if (request == NULL)
        request = TAILQ_FIRST(&lane->recvs);
    if (request == NULL)
        return;
    /* What came before is taken first; the receive that finds no more comes back here. */
    struct transport_header header;
    if (request->args.kind == ROTA_KIND_RECV && link->stream != NULL &&
        link->transport->ops->pending(link->transport, link->stream, &header))
        return;
    failure_link(request, link, lane->name.peer);
}

void p2p_cancel_all(struct p2p_table *table) {
    struct p2p_lane *lane = NULL, *next = NULL;
    HASH_ITER(hh, table->lanes, lane, next) {
        if (lane->link.stream != NULL)
            lane->link.transport->ops->quiesce(lane->link.transport, lane->link.stream);
        TAILQ_INIT(&lane->sends);
        TAILQ_INIT(&lane->recvs);
    }
    TAILQ_INIT(&table->unmatched);
}

size_t p2p_memory(const struct p2p_table *table) {
    return sizeof(*table) + HASH_COUNT(table->lanes) * sizeof(struct p2p_lane) +
           HASH_OVERHEAD(hh, table->lanes);
}
