/* Sending: the queue of a stream, permission, and the batch that a connection writes. */
#include "tcp.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* -- lists --------------------------------------------------------------------------------- */

void tcp_dirty(struct tcp_connection *connection) {
    if (connection->in_dirty)
        return;
    connection->in_dirty = true;
    TAILQ_INSERT_TAIL(&connection->tcp->dirty, connection, dirty_link);
}

void tcp_need(struct transport_stream *stream, uint8_t need) {
    struct tcp_connection *connection = stream->connection;
    stream->needs |= need;
    if (!stream->in_control) {
        stream->in_control = true;
        TAILQ_INSERT_TAIL(&connection->control, stream, control_link);
    }
    tcp_dirty(connection);
}

void tcp_answer(struct tcp_connection *connection, enum frame_type type,
                const struct transport_key *key, uint64_t message) {
    if (connection->nanswers == connection->answers_size) {
        unsigned size = connection->answers_size ? 2 * connection->answers_size : 64;
        struct tcp_answer *larger =
            size > TCP_MAX_ANSWERS ? NULL : realloc(connection->answers, size * sizeof *larger);
        if (!larger) {
            tcp_break(connection, EPROTO, "too many frames about unknown streams");
            return;
        }
        connection->answers = larger;
        connection->answers_size = size;
    }
    connection->answers[connection->nanswers++] = (struct tcp_answer){*key, message, type};
    tcp_dirty(connection);
}

static void ready_insert(struct transport_stream *stream) {
    struct tcp_connection *connection = stream->connection;
    if (!stream->in_ready) {
        stream->in_ready = true;
        TAILQ_INSERT_TAIL(&connection->ready, stream, ready_link);
    }
    tcp_dirty(connection);
}

static void asking_set(struct transport_stream *stream, bool asking) {
    if (stream->asking == asking)
        return;
    stream->asking = asking;
    if (asking)
        stream->connection->waiting_requests++;
    else
        stream->connection->waiting_requests--;
    tcp_connection_touch(stream->connection);
}

static void pool_wait(struct transport_stream *stream, bool wait) {
    struct tcp_transport *tcp = stream->connection->tcp;
    if (stream->wants_pool == wait)
        return;
    stream->wants_pool = wait;
    if (wait) {
        TAILQ_INSERT_TAIL(&tcp->pool_waiters, stream, pool_link);
        tcp->npool_waiters++;
    } else {
        TAILQ_REMOVE(&tcp->pool_waiters, stream, pool_link);
        tcp->npool_waiters--;
    }
}

void tcp_forget_waits(struct transport_stream *stream) {
    struct tcp_connection *connection = stream->connection;
    asking_set(stream, false);
    if (stream->retry) {
        stream->retry = false;
        connection->retry_streams--;
    }
    pool_wait(stream, false);
}

void tcp_forget_lists(struct transport_stream *stream) {
    struct tcp_connection *connection = stream->connection;
    if (stream->in_control)
        TAILQ_REMOVE(&connection->control, stream, control_link);
    if (stream->in_ready)
        TAILQ_REMOVE(&connection->ready, stream, ready_link);
    if (stream->in_owing)
        TAILQ_REMOVE(&connection->owing, stream, owing_link);
    stream->in_control = stream->in_ready = stream->in_owing = false;
    stream->needs = 0;
}

static void writable(struct transport_stream *stream) {
    if (!stream->wants_writable || stream->state != STREAM_OPEN)
        return;
    stream->wants_writable = false;
    stream->connection->tcp->host->writable(stream->owner);
}

/* -- permission ---------------------------------------------------------------------------- */

static bool has_credit(const struct transport_stream *stream, uint64_t length) {
    const struct tcp_connection *connection = stream->connection;
    if (length > TCP_EAGER_BYTES)
        return false;
    uint64_t out = stream->charged - stream->consumed;
    if (out == 0 && connection->slots_used >= connection->slots)
        return false;
    return out + tcp_charge(length) <= TCP_SLOT_CHARGE;
}

static void take_credit(struct transport_stream *stream, uint64_t length) {
    if (stream->charged == stream->consumed)
        stream->connection->slots_used++;
    stream->charged += tcp_charge(length);
}

static bool may_go(const struct transport_stream *stream, const struct tcp_outgoing *outgoing) {
    return outgoing->ready &&
           (outgoing->charged || outgoing->permitted || stream->next_number < stream->granted ||
            has_credit(stream, outgoing->header.length));
}

static void request(struct transport_stream *stream, uint64_t number,
                    const struct transport_header *header) {
    asking_set(stream, true);
    if (stream->requested == number + 1)
        return;
    stream->requested = number + 1;
    stream->request_header = *header;
    tcp_need(stream, TCP_NEED_REQUEST);
}

void tcp_stream_update(struct transport_stream *stream) {
    struct tcp_outgoing *head = TAILQ_FIRST(&stream->queue);
    if (!head || !head->ready || stream->connection->is_broken)
        return;
    if (may_go(stream, head))
        ready_insert(stream);
    else
        request(stream, stream->next_number, &head->header);
}

void tcp_permission(struct transport_stream *stream, const struct frame *frame) {
    struct tcp_connection *connection = stream->connection;
    if (frame->credit > stream->charged || frame->credit < stream->consumed) {
        tcp_break(connection, EPROTO, "credit of a stream is impossible");
        return;
    }
    if (frame->credit == stream->consumed && frame->grant <= stream->granted)
        return;
    if (stream->charged != stream->consumed && frame->credit == stream->charged)
        connection->slots_used--;
    stream->consumed = frame->credit;
    if (frame->grant > stream->granted)
        stream->granted = frame->grant;
    asking_set(stream, false);
    tcp_stream_update(stream);
    tcp_check_closed(stream);
    writable(stream);
}

/* -- the batch ----------------------------------------------------------------------------- */

static void batch_add(struct tcp_connection *connection, void *data, size_t length) {
    connection->iov[connection->iov_end++] = (struct iovec){data, length};
    connection->batch_bytes += length;
}

/* Gives back the credit of a message that will not be sent. */
void tcp_uncharge(struct tcp_outgoing *outgoing) {
    struct transport_stream *stream = outgoing->stream;
    if (!outgoing->charged)
        return;
    outgoing->charged = false;
    stream->charged -= tcp_charge(outgoing->header.length);
    if (stream->charged == stream->consumed)
        stream->connection->slots_used--;
}

/* A frame of the batch; heads that follow each other directly share an iovec. */
static struct frame *batch_frame(struct tcp_connection *connection, enum frame_type type) {
    struct frame *frame = &connection->heads[connection->nheads++];
    struct iovec *last = connection->iov_end ? &connection->iov[connection->iov_end - 1] : NULL;
    memset(frame, 0, sizeof *frame);
    frame->type = (uint8_t)type;
    if (last && (char *)last->iov_base + last->iov_len == (char *)frame) {
        last->iov_len += sizeof *frame;
        connection->batch_bytes += sizeof *frame;
    } else {
        batch_add(connection, frame, sizeof *frame);
    }
    return frame;
}

/* Tells the peer all that it should know of a stream. */
static void report(struct transport_stream *stream, struct frame *frame) {
    struct tcp_connection *connection = stream->connection;
    stream->touched = true;
    frame->key = stream->key;
    frame->credit = stream->taken;
    frame->grant = stream->grant;
    if (stream->got_charge != stream->reported && stream->got_charge == stream->taken)
        connection->slots_bound--;
    stream->reported = stream->taken;
    stream->needs &= (uint8_t)~TCP_NEED_CREDIT;
    if (stream->in_owing) {
        stream->in_owing = false;
        TAILQ_REMOVE(&connection->owing, stream, owing_link);
    }
}

static void batch_control(struct tcp_connection *connection) {
    struct transport_stream *stream;
    while (connection->nheads < TCP_BATCH_FRAMES && (stream = TAILQ_FIRST(&connection->control))) {
        TAILQ_REMOVE(&connection->control, stream, control_link);
        stream->in_control = false;
        if (stream->needs & TCP_NEED_CLOSE) {
            struct frame *frame = batch_frame(connection, FRAME_CLOSE);
            stream->needs = 0;
            report(stream, frame);
            frame_seal(frame);
            stream->close_sent = true;
            tcp_check_closed(stream);
        } else if (stream->needs & TCP_NEED_REQUEST) {
            struct frame *frame = batch_frame(connection, FRAME_REQUEST);
            stream->needs = 0;
            frame_put_header(frame, &stream->request_header);
            frame->message = stream->requested - 1;
            report(stream, frame);
            frame_seal(frame);
        } else if (stream->needs & TCP_NEED_CREDIT) {
            struct frame *frame = batch_frame(connection, FRAME_CREDIT);
            report(stream, frame);
            frame_seal(frame);
            tcp_check_closed(stream);
        }
    }
    while (connection->nheads < TCP_BATCH_FRAMES && connection->nanswers > 0) {
        struct tcp_answer *answer = &connection->answers[--connection->nanswers];
        struct frame *frame = batch_frame(connection, answer->type);
        frame->key = answer->key;
        frame->message = answer->message;
        frame_seal(frame);
    }
}

/* Moves the head of a stream's queue into the batch. */
static void batch_message(struct transport_stream *stream, struct tcp_outgoing *outgoing) {
    struct tcp_connection *connection = stream->connection;
    struct frame *frame = batch_frame(connection, FRAME_DATA);
    bool by_number = outgoing->permitted || (!outgoing->charged && //
                                             stream->next_number < stream->granted);
    if (!by_number) {
        if (!outgoing->charged)
            take_credit(stream, outgoing->header.length);
        frame->flags = FRAME_FLAG_EAGER;
    }
    TAILQ_REMOVE(&stream->queue, outgoing, link);
    stream->queued--;
    stream->in_batch++;
    frame_put_header(frame, &outgoing->header);
    frame->message = stream->next_number++;
    report(stream, frame);
    frame_seal(frame);
    outgoing->iov_first = connection->iov_end;
    for (int i = 0; i < outgoing->npieces; i++) {
        if (outgoing->pieces[i].length > 0)
            batch_add(connection, outgoing->pieces[i].data, outgoing->pieces[i].length);
    }
    outgoing->iov_count = connection->iov_end - outgoing->iov_first;
    outgoing->end = connection->batch_bytes;
    TAILQ_INSERT_TAIL(&connection->batch, outgoing, link);
}

static void batch_build(struct tcp_connection *connection) {
    struct transport_stream *stream;
    connection->nheads = connection->iov_next = connection->iov_end = 0;
    connection->batch_sent = connection->batch_bytes = 0;
    if (connection->want_init) {
        struct frame *frame = batch_frame(connection, FRAME_INIT);
        frame->credit = connection->slots_given;
        frame->total = TCP_SLOT_CHARGE;
        frame_seal(frame);
        connection->want_init = false;
    }
    if (!connection->got_init)
        return; /* nobody may use it yet */
    batch_control(connection);
    while (connection->nheads < TCP_BATCH_FRAMES && connection->batch_bytes < TCP_BATCH_BYTES &&
           (stream = TAILQ_FIRST(&connection->ready))) {
        struct tcp_outgoing *head = TAILQ_FIRST(&stream->queue);
        if (head && may_go(stream, head)) {
            if (connection->iov_end + 1 + head->npieces > TCP_BATCH_IOVS)
                break;
            batch_message(stream, head);
        }
        TAILQ_REMOVE(&connection->ready, stream, ready_link);
        stream->in_ready = false;
        tcp_stream_update(stream); /* to the end of the round, if there is more */
    }
    if (connection->want_bye && connection->nheads < TCP_BATCH_FRAMES &&
        TAILQ_EMPTY(&connection->ready)) {
        frame_seal(batch_frame(connection, FRAME_BYE));
        connection->want_bye = false;
    }
}

bool tcp_has_output(const struct tcp_connection *connection) {
    if (connection->fd < 0 || connection->is_broken || connection->write_error)
        return false;
    if (connection->iov_next < connection->iov_end || connection->want_init)
        return true;
    return connection->got_init &&
           (!TAILQ_EMPTY(&connection->control) || !TAILQ_EMPTY(&connection->ready) ||
            connection->nanswers > 0 || connection->want_bye);
}

static void pool_returned(struct tcp_transport *tcp) {
    struct transport_stream *stream;
    /* Those that find too little again queue at the end: each is asked once. */
    for (unsigned n = tcp->npool_waiters; n > 0; n--) {
        stream = TAILQ_FIRST(&tcp->pool_waiters);
        if (!stream)
            return;
        pool_wait(stream, false);
        writable(stream);
    }
}

void tcp_outgoing_free(struct tcp_outgoing *outgoing) {
    struct tcp_transport *tcp = outgoing->stream->connection->tcp;
    size_t bytes = sizeof *outgoing + (size_t)outgoing->npieces * sizeof outgoing->pieces[0];
    if (outgoing->reserved) {
        tcp->reserved_bytes -= outgoing->header.length;
        outgoing->stream->reserved--;
        tcp_pool_put(&tcp->pool, outgoing->slot, outgoing->header.length);
    }
    if (outgoing->rest)
        tcp_pool_put(&tcp->pool, outgoing->rest, outgoing->rest_bytes);
    tcp_pool_put(&tcp->pool, outgoing, bytes);
}

/* The socket took all of it. */
static void outgoing_sent(struct tcp_connection *connection, struct tcp_outgoing *outgoing) {
    struct tcp_transport *tcp = connection->tcp;
    struct transport_stream *stream = outgoing->stream;
    struct transport_ticket *ticket = outgoing->ticket;
    bool reserved = outgoing->reserved;
    TAILQ_REMOVE(&connection->batch, outgoing, link);
    stream->in_batch--;
    tcp->base.counters.messages_sent++;
    tcp->base.counters.bytes_sent += outgoing->header.length;
    tcp->events++;
    tcp_outgoing_free(outgoing);
    if (ticket)
        ticket->done(ticket, TRANSPORT_OK);
    if (reserved && !TAILQ_EMPTY(&tcp->pool_waiters))
        pool_returned(tcp);
    if (TAILQ_EMPTY(&stream->queue))
        writable(stream);
}

static void batch_advance(struct tcp_connection *connection, size_t bytes) {
    struct tcp_outgoing *outgoing;
    connection->batch_sent += bytes;
    connection->tcp->base.counters.wire_bytes_sent += bytes;
    while (connection->iov_next < connection->iov_end) {
        struct iovec *iov = &connection->iov[connection->iov_next];
        if (bytes < iov->iov_len) {
            iov->iov_base = (char *)iov->iov_base + bytes;
            iov->iov_len -= bytes;
            break;
        }
        bytes -= iov->iov_len;
        connection->iov_next++;
    }
    while ((outgoing = TAILQ_FIRST(&connection->batch)) && outgoing->end <= connection->batch_sent)
        outgoing_sent(connection, outgoing);
}

void tcp_flush(struct tcp_connection *connection) {
    if (connection->flushing)
        return; /* the loop further up goes on */
    connection->flushing = true;
    while (tcp_has_output(connection)) {
        if (connection->iov_next == connection->iov_end)
            batch_build(connection);
        if (connection->iov_next == connection->iov_end)
            break;
        struct msghdr message = {
            .msg_iov = &connection->iov[connection->iov_next],
            .msg_iovlen = (size_t)(connection->iov_end - connection->iov_next),
        };
        uint64_t left = connection->batch_bytes - connection->batch_sent;
        ssize_t n = sendmsg(connection->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                /* What the peer sent before it went is read first; then this is reported. */
                connection->write_error = errno;
                connection->tcp->something_broke = true;
            }
            break;
        }
        batch_advance(connection, (size_t)n);
        if ((uint64_t)n < left)
            break; /* the socket is full */
    }
    connection->flushing = false;
    if (tcp_has_output(connection))
        tcp_dirty(connection);
}

void tcp_batch_detach(struct transport_stream *stream) {
    struct tcp_connection *connection = stream->connection;
    struct tcp_outgoing *outgoing;
    if (stream->in_batch == 0)
        return;
    TAILQ_FOREACH(outgoing, &connection->batch, link) {
        if (outgoing->stream != stream || outgoing->reserved)
            continue;
        outgoing->ticket = NULL;
        int first = outgoing->iov_first, end = first + outgoing->iov_count;
        if (first < connection->iov_next)
            first = connection->iov_next;
        size_t bytes = 0, at = 0;
        for (int i = first; i < end; i++)
            bytes += connection->iov[i].iov_len;
        if (bytes == 0 || outgoing->rest)
            continue;
        outgoing->rest = tcp_pool_get(&connection->tcp->pool, bytes);
        if (!outgoing->rest) {
            tcp_break(connection, ENOMEM, "no memory to finish a message that was given up");
            return;
        }
        outgoing->rest_bytes = bytes;
        for (int i = first; i < end; i++) {
            struct iovec *iov = &connection->iov[i];
            if (iov->iov_len > 0)
                memcpy(outgoing->rest + at, iov->iov_base, iov->iov_len);
            at += iov->iov_len;
            iov->iov_len = 0;
        }
        connection->iov[first] = (struct iovec){outgoing->rest, bytes};
    }
}

void tcp_batch_drop(struct tcp_connection *connection) {
    struct tcp_outgoing *outgoing;
    connection->iov_next = connection->iov_end = 0;
    while ((outgoing = TAILQ_FIRST(&connection->batch))) {
        struct transport_ticket *ticket = outgoing->ticket;
        TAILQ_REMOVE(&connection->batch, outgoing, link);
        outgoing->stream->in_batch--;
        tcp_outgoing_free(outgoing);
        if (ticket)
            ticket->done(ticket, TRANSPORT_FAILED);
    }
}

/* -- the contract's functions -------------------------------------------------------------- */

static struct tcp_outgoing *outgoing_new(struct transport_stream *stream,
                                         const struct transport_header *header, int npieces) {
    struct tcp_transport *tcp = stream->connection->tcp;
    size_t bytes = sizeof(struct tcp_outgoing) + (size_t)npieces * sizeof(struct transport_piece);
    struct tcp_outgoing *outgoing = tcp_pool_get(&tcp->pool, bytes);
    if (!outgoing)
        return NULL;
    memset(outgoing, 0, sizeof *outgoing);
    outgoing->stream = stream;
    outgoing->header = *header;
    outgoing->npieces = npieces;
    return outgoing;
}

static void enqueue(struct transport_stream *stream, struct tcp_outgoing *outgoing) {
    struct tcp_connection *connection = stream->connection;
    TAILQ_INSERT_TAIL(&stream->queue, outgoing, link);
    stream->queued++;
    tcp_stream_update(stream);
    if (!connection->tcp->in_progress)
        tcp_flush(connection);
}

/* Whether reserve may hand out a slot for the next message; *permitted says by what right. */
static bool reserve_allowed(const struct transport_stream *stream, uint64_t length,
                            bool *permitted) {
    *permitted = stream->next_number + stream->queued < stream->granted;
    if (*permitted)
        return true;
    struct tcp_outgoing *tail = TAILQ_LAST(&stream->queue, tcp_outgoings);
    if (tail && !tail->charged && !tail->permitted)
        return false; /* posts that wait go first */
    return has_credit(stream, length);
}

enum transport_result tcp_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot) {
    struct tcp_transport *tcp = tcp_of(transport);
    bool permitted;
    if (!tcp_usable(stream->connection))
        return TRANSPORT_FAILED;
    if (header->length > TCP_RESERVE_MAX)
        return TRANSPORT_UNSUPPORTED;
    if (!reserve_allowed(stream, header->length, &permitted)) {
        stream->wants_writable = true;
        if (TAILQ_EMPTY(&stream->queue))
            request(stream, stream->next_number, header);
        return TRANSPORT_AGAIN;
    }
    /* A stream that has no slot gets one whatever others hold: a peer that reads slowly must not
     * hinder what goes elsewhere. */
    if (stream->reserved > 0 && tcp->reserved_bytes + header->length > TCP_RESERVE_POOL) {
        stream->wants_writable = true;
        pool_wait(stream, true);
        return TRANSPORT_AGAIN;
    }
    struct tcp_outgoing *outgoing = outgoing_new(stream, header, 1);
    char *memory = tcp_pool_get(&tcp->pool, header->length);
    if (!outgoing || !memory) {
        if (outgoing)
            tcp_outgoing_free(outgoing);
        if (memory)
            tcp_pool_put(&tcp->pool, memory, header->length);
        return TRANSPORT_FAILED;
    }
    outgoing->reserved = true;
    outgoing->slot = memory;
    outgoing->pieces[0] = (struct transport_piece){memory, header->length};
    outgoing->permitted = permitted;
    outgoing->charged = !permitted;
    if (!permitted)
        take_credit(stream, header->length);
    tcp->reserved_bytes += header->length;
    stream->reserved++;
    TAILQ_INSERT_TAIL(&stream->queue, outgoing, link);
    stream->queued++;
    *slot = (struct transport_slot){memory, header->length, outgoing};
    return TRANSPORT_OK;
}

void tcp_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot) {
    struct tcp_outgoing *outgoing = slot->handle;
    (void)transport;
    outgoing->ready = true;
    tcp_stream_update(stream);
    if (!stream->connection->tcp->in_progress)
        tcp_flush(stream->connection);
}

enum transport_result tcp_post_send(struct transport *transport, struct transport_stream *stream,
                                    const struct transport_header *header,
                                    const struct transport_piece *pieces, int npieces,
                                    struct transport_ticket *ticket) {
    (void)transport;
    if (!tcp_usable(stream->connection))
        return TRANSPORT_FAILED;
    if (npieces > TCP_MAX_PIECES || header->length > TCP_MAX_MESSAGE)
        return TRANSPORT_UNSUPPORTED;
    struct tcp_outgoing *outgoing = outgoing_new(stream, header, npieces);
    if (!outgoing)
        return TRANSPORT_FAILED;
    if (npieces > 0)
        memcpy(outgoing->pieces, pieces, (size_t)npieces * sizeof *pieces);
    outgoing->ready = true;
    outgoing->ticket = ticket;
    enqueue(stream, outgoing);
    return TRANSPORT_OK;
}
