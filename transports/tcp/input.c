/* Input of a connection: reading, taking frames apart, and putting payload where it belongs. */
#include "tcp.h"

#include <errno.h>
#include <string.h>

/* -- frames -------------------------------------------------------------------------------- */

/* Whether a message that begins has permission; NULL, or what is wrong. */
static const char *check_data(struct tcp_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    if (frame->length > TCP_MAX_MESSAGE)
        return "message is too long";
    if (frame->message != stream->arriving)
        return "message out of order";
    if (!(frame->flags & FRAME_FLAG_EAGER))
        return frame->message < stream->grant ? NULL : "message without permission";
    if (frame->length > TCP_EAGER_BYTES)
        return "eager message is too long";
    if (stream->got_charge == stream->reported) {
        if (connection->slots_bound >= connection->slots_given)
            return "more streams than slots";
        connection->slots_bound++;
    }
    stream->got_charge += tcp_charge(frame->length);
    if (stream->got_charge - stream->reported > TCP_SLOT_CHARGE)
        return "message without credit";
    return NULL;
}

/* Memory of our own for a message that nobody posted a receive for. */
static bool begin_message(struct tcp_connection *connection, size_t stored) {
    const struct frame *frame = &connection->frame;
    struct tcp_message *message =
        tcp_pool_get(&connection->tcp->pool, sizeof(struct tcp_message) + stored);
    if (!message)
        return false;
    frame_get_header(frame, &message->header);
    message->number = frame->message;
    message->charge = frame->flags & FRAME_FLAG_EAGER ? tcp_charge(frame->length) : 0;
    message->claim = NULL;
    message->stored = stored;
    connection->message = message;
    connection->pieces[0] = (struct transport_piece){message->data, stored};
    connection->npieces = 1;
    return true;
}

static void begin_data(struct tcp_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    const char *wrong = check_data(connection, stream);
    if (wrong) {
        tcp_break(connection, EPROTO, "%s", wrong);
        return;
    }
    struct tcp_post *post = TAILQ_FIRST(&stream->posts);
    stream->arriving++;
    if (stream->has_request && stream->request_number < stream->arriving)
        stream->has_request = false;
    connection->target = stream;
    connection->post = post;
    connection->message = NULL;
    connection->drop = stream->state == STREAM_CLOSED;
    connection->left_bytes = frame->length;
    connection->npieces = connection->piece = 0;
    connection->piece_done = 0;
    connection->was_large = frame->length >= TCP_LARGE;
    if (post) {
        TAILQ_REMOVE(&stream->posts, post, link);
        connection->drop |= post->dropped;
    }
    if (connection->drop)
        return;
    if (post && post->posted) {
        connection->npieces = post->npieces;
        if (post->npieces > 0)
            memcpy(connection->pieces, post->pieces,
                   (size_t)post->npieces * sizeof post->pieces[0]);
        return;
    }
    /* Of a message much longer than announced the engine needs no more than the header. An
     * announcement of 0 says that the length is not known. */
    size_t stored = frame->length;
    size_t room = post && post->length == 0 ? TCP_MAX_MESSAGE : TCP_PREFERRED_SLICE;
    if (post && post->length > room)
        room = post->length;
    if (!begin_message(connection, stored < room ? stored : room))
        tcp_break(connection, ENOMEM, "no memory for a message of %zu bytes", stored);
}

static void data_finished(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    struct transport_stream *stream = connection->target;
    struct tcp_message *message = connection->message;
    struct tcp_post *post = connection->post;
    struct transport_header header;
    uint32_t charge =
        connection->frame.flags & FRAME_FLAG_EAGER ? tcp_charge(connection->frame.length) : 0;
    connection->post = NULL;
    connection->message = NULL;
    tcp->events++;
    tcp->base.counters.messages_received++;
    tcp->base.counters.bytes_received += connection->frame.length;
    frame_get_header(&connection->frame, &header);
    if (connection->drop || (post && post->posted)) {
        struct transport_ticket *ticket = !connection->drop ? post->ticket : NULL;
        tcp_taken(stream, charge);
        if (connection->drop && charge)
            tcp_need(stream, TCP_NEED_CREDIT); /* nobody will send anything back */
        if (message && message->claim)
            tcp_post_free(stream, message->claim);
        if (message)
            tcp_message_free(stream, message);
        if (post)
            tcp_post_free(stream, post);
        if (ticket) {
            ticket->header = header;
            ticket->done(ticket, TRANSPORT_OK);
        }
        return;
    }
    if (post)
        tcp_post_free(stream, post);
    if (message->claim) {
        tcp_claim(stream, message, message->claim);
        return;
    }
    TAILQ_INSERT_TAIL(&stream->arrived, message, link);
    if (stream->state == STREAM_OPEN)
        tcp->host->arrived(stream->owner);
}

/* A stream that is not open here keeps its request in a bounded table; beyond it the sender is
 * told to ask again. */
static bool request_fits(struct tcp_connection *connection, struct transport_stream *stream) {
    if (stream) {
        if (stream->state != STREAM_UNOPENED || stream->counted_request)
            return true;
        if (connection->requests < TCP_MAX_REQUESTS) {
            stream->counted_request = true;
            connection->requests++;
            return true;
        }
    }
    tcp_answer(connection, FRAME_RETRY, &connection->frame.key, connection->frame.message);
    return false;
}

static void request_came(struct tcp_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    struct transport_stream *owing;
    TAILQ_FOREACH(owing, &connection->owing, owing_link) tcp_need(owing, TCP_NEED_CREDIT);
    if (!request_fits(connection, stream) || frame->message < stream->arriving)
        return;
    if (stream->state == STREAM_CLOSED)
        return;
    stream->has_request = true;
    stream->request_number = frame->message;
    frame_get_header(frame, &stream->request);
    if (frame->message < stream->announced) {
        stream->grant = stream->announced;
        tcp_need(stream, TCP_NEED_CREDIT);
    }
    connection->tcp->events++;
    if (stream->state == STREAM_OPEN)
        connection->tcp->host->arrived(stream->owner);
}

static void retry_came(struct tcp_connection *connection, struct transport_stream *stream) {
    if (!stream || stream->requested != connection->frame.message + 1 || stream->retry)
        return;
    stream->retry = true;
    connection->retry_streams++;
    tcp_retry_later(connection);
}

/* Handles a frame of a stream; `stream` may be unknown when it only tells something. */
static void stream_frame(struct tcp_connection *connection) {
    const struct frame *frame = &connection->frame;
    bool data = frame->type == FRAME_DATA;
    bool create = data || (frame->type != FRAME_CLOSE && frame->type != FRAME_RETRY &&
                           connection->unopened < TCP_MAX_UNOPENED);
    struct transport_stream *stream = tcp_stream_find(connection, &frame->key, create);
    if (!stream && (data || create)) {
        tcp_break(connection, ENOMEM, "no memory for a stream");
        return;
    }
    if (stream && frame->type != FRAME_RETRY &&
        !(frame->type == FRAME_CLOSE && frame->message == 1)) {
        stream->touched = true;
        tcp_permission(stream, frame);
    }
    if (connection->is_broken)
        return;
    if (data)
        begin_data(connection, stream);
    else if (frame->type == FRAME_REQUEST)
        request_came(connection, stream);
    else if (frame->type == FRAME_RETRY)
        retry_came(connection, stream);
    else if (frame->type == FRAME_CLOSE)
        tcp_close_came(connection, stream);
}

static void frame_begin(struct tcp_connection *connection) {
    struct frame *frame = &connection->frame;
    const char *wrong = frame_check(frame);
    if (!wrong && connection->got_init == (frame->type == FRAME_INIT))
        wrong = "first frame expected once, and first";
    if (!wrong && connection->left)
        wrong = "frame after the last one";
    if (wrong) {
        tcp_break(connection, EPROTO, "%s", wrong);
        return;
    }
    connection->target = NULL;
    connection->left_bytes = 0;
    connection->skip_bytes = frame->trailer;
    connection->in_frame = true;
    if (frame->type == FRAME_INIT)
        tcp_init_came(connection, frame);
    else if (frame->type == FRAME_BYE)
        connection->left = true;
    else
        stream_frame(connection);
}

/* -- bytes --------------------------------------------------------------------------------- */

/* Notes that n bytes of payload were put into the target's pieces. */
static void pieces_advance(struct tcp_connection *connection, size_t n) {
    connection->left_bytes -= n;
    while (n > 0) {
        size_t room = connection->pieces[connection->piece].length - connection->piece_done;
        if (n < room) {
            connection->piece_done += n;
            return;
        }
        n -= room;
        connection->piece++;
        connection->piece_done = 0;
    }
}

/* Takes payload from the read buffer; what has no place is dropped. */
static size_t payload_take(struct tcp_connection *connection, const char *data, size_t bytes) {
    size_t taken = bytes < connection->left_bytes ? bytes : (size_t)connection->left_bytes;
    size_t left = taken;
    while (left > 0 && connection->piece < connection->npieces) {
        struct transport_piece *piece = &connection->pieces[connection->piece];
        size_t n = piece->length - connection->piece_done;
        if (n > left)
            n = left;
        if (n > 0)
            memcpy((char *)piece->data + connection->piece_done, data, n);
        data += n;
        left -= n;
        connection->left_bytes -= n;
        connection->piece_done += n;
        if (connection->piece_done == piece->length) {
            connection->piece++;
            connection->piece_done = 0;
        }
    }
    connection->left_bytes -= left;
    return taken;
}

static void parse(struct tcp_connection *connection, const char *data, size_t bytes) {
    for (;;) {
        if (connection->is_broken)
            return;
        if (!connection->in_frame) {
            if (bytes < sizeof(struct frame)) {
                memcpy(connection->partial, data, bytes);
                connection->npartial = bytes;
                return;
            }
            memcpy(&connection->frame, data, sizeof(struct frame));
            data += sizeof(struct frame);
            bytes -= sizeof(struct frame);
            frame_begin(connection);
            continue;
        }
        size_t n = payload_take(connection, data, bytes);
        data += n;
        bytes -= n;
        if (connection->left_bytes > 0)
            return;
        n = bytes < connection->skip_bytes ? bytes : connection->skip_bytes;
        data += n;
        bytes -= n;
        connection->skip_bytes -= (uint32_t)n;
        if (connection->skip_bytes > 0)
            return;
        connection->in_frame = false;
        if (connection->target)
            data_finished(connection);
        connection->target = NULL;
    }
}

/* One read: the rest of a payload straight to its place, and behind it whatever else came. Returns
 * false when the socket is empty for now. */
static bool read_once(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    struct iovec iov[TCP_MAX_PIECES + 1];
    size_t direct = 0, prefix = connection->npartial;
    int n = 0;
    for (int i = connection->piece; connection->in_frame && i < connection->npieces; i++) {
        size_t skip = i == connection->piece ? connection->piece_done : 0;
        size_t length = connection->pieces[i].length - skip;
        if (length > connection->left_bytes - direct)
            length = (size_t)(connection->left_bytes - direct);
        if (length > 0)
            iov[n++] = (struct iovec){(char *)connection->pieces[i].data + skip, length};
        direct += length;
    }
    size_t ahead = TCP_READ_BUFFER - prefix;
    if (connection->was_large && (direct > 0 || !connection->in_frame))
        ahead = sizeof(struct frame) - prefix;
    iov[n++] = (struct iovec){tcp->read_buffer + prefix, ahead};
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t got;
    do
        got = recvmsg(connection->fd, &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return false;
    if (got <= 0) {
        int error = got < 0 ? errno : 0;
        tcp_break(connection, error, "%s",
                  error ? strerror(error) : "the connection was closed by the other side");
        return false;
    }
    tcp->base.counters.wire_bytes_received += (size_t)got;
    size_t placed = (size_t)got < direct ? (size_t)got : direct;
    pieces_advance(connection, placed);
    if ((size_t)got > placed || connection->in_frame) {
        memcpy(tcp->read_buffer, connection->partial, prefix);
        connection->npartial = 0;
        parse(connection, tcp->read_buffer, (size_t)got - placed + prefix);
    }
    return (size_t)got == direct + ahead;
}

void tcp_receive(struct tcp_connection *connection) {
    while (connection->fd >= 0 && !connection->is_broken && read_once(connection)) {
        if (connection->tcp->events >= connection->tcp->budget)
            break;
    }
}
