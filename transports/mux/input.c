/* Input of a connection: reading, taking frames apart, and putting payload where it belongs. */
#include "mux.h"

#include <errno.h>
#include <string.h>

/* -- frames -------------------------------------------------------------------------------- */

/* Whether a message that begins has permission; NULL, or what is wrong. */
static const char *check_data(struct mux_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    if (frame->length > MUX_MAX_MESSAGE)
        return "message is too long";
    if (frame->message != stream->arriving)
        return "message out of order";
    const struct mux_post *post = TAILQ_FIRST(&stream->posts);
    if (frame->flags & FRAME_FLAG_WRITTEN && stream->state != STREAM_CLOSED &&
        (!post || !post->told || frame->length > post->length))
        return "message without a place was written";
    if (!(frame->flags & FRAME_FLAG_EAGER))
        return frame->message < stream->grant ? NULL : "message without permission";
    if (frame->length > connection->mux->eager_bytes)
        return "eager message is too long";
    if (stream->got_charge == stream->reported) {
        if (connection->slots_bound >= connection->slots_given)
            return "more streams than slots";
        connection->slots_bound++;
    }
    stream->got_charge += mux_charge(frame->length);
    if (stream->got_charge - stream->reported > connection->mux->slot_charge)
        return "message without credit";
    return NULL;
}

/* Memory of our own for a message that nobody posted a receive for. */
static bool begin_message(struct mux_connection *connection, size_t stored) {
    const struct frame *frame = &connection->frame;
    struct mux_message *message =
        mux_pool_get(&connection->mux->pool, sizeof(struct mux_message) + stored);
    if (!message)
        return false;
    frame_get_header(frame, &message->header);
    message->number = frame->message;
    message->charge = frame->flags & FRAME_FLAG_EAGER ? mux_charge(frame->length) : 0;
    message->claim = NULL;
    message->stored = stored;
    connection->message = message;
    connection->pieces[0] = (struct transport_piece){message->data, stored};
    connection->npieces = 1;
    return true;
}

static void begin_data(struct mux_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    const char *wrong = check_data(connection, stream);
    if (wrong) {
        mux_break(connection, EPROTO, "%s", wrong);
        return;
    }
    struct mux_post *post = TAILQ_FIRST(&stream->posts);
    stream->arriving++;
    if (stream->has_request && stream->request_number < stream->arriving)
        stream->has_request = false;
    connection->target = stream;
    connection->post = post;
    connection->message = NULL;
    connection->drop = stream->state == STREAM_CLOSED;
    connection->left_bytes = frame->flags & FRAME_FLAG_WRITTEN ? 0 : frame->length;
    connection->npieces = connection->piece = 0;
    connection->piece_done = 0;
    connection->was_large = frame->length >= MUX_LARGE;
    if (post) {
        mux_post_begun(stream, post);
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
    size_t stored = frame->length, slice = connection->mux->base.caps.preferred_slice;
    size_t room = post && post->length == 0 ? MUX_MAX_MESSAGE : slice;
    if (post && post->length > room)
        room = post->length;
    if (!begin_message(connection, stored < room ? stored : room))
        mux_break(connection, ENOMEM, "no memory for a message of %zu bytes", stored);
}

static void data_finished(struct mux_connection *connection) {
    struct mux *mux = connection->mux;
    struct transport_stream *stream = connection->target;
    struct mux_message *message = connection->message;
    struct mux_post *post = connection->post;
    uint32_t charge =
        connection->frame.flags & FRAME_FLAG_EAGER ? mux_charge(connection->frame.length) : 0;
    connection->post = NULL;
    connection->message = NULL;
    mux->events++;
    mux->base.counters.messages_received++;
    mux->base.counters.bytes_received += connection->frame.length;
    if (connection->drop || (post && post->posted)) {
        struct transport_ticket *ticket = !connection->drop ? post->ticket : NULL;
        mux_taken(stream, charge);
        if (connection->drop && charge)
            mux_need(stream, MUX_NEED_CREDIT); /* nobody will send anything back */
        if (message && message->claim)
            mux_post_free(stream, message->claim);
        if (message)
            mux_message_free(stream, message);
        if (post)
            mux_post_free(stream, post);
        if (ticket) {
            frame_get_header(&connection->frame, &ticket->header);
            ticket->done(ticket, TRANSPORT_OK);
        }
        return;
    }
    if (post)
        mux_post_free(stream, post);
    if (message->claim) {
        mux_claim(stream, message, message->claim);
        return;
    }
    TAILQ_INSERT_TAIL(&stream->arrived, message, link);
    if (stream->state == STREAM_OPEN)
        mux->host->arrived(stream->owner);
}

/* A stream that is not open here keeps its request in a bounded table; beyond it the sender is
 * told to ask again. */
static bool request_fits(struct mux_connection *connection, struct transport_stream *stream) {
    if (stream) {
        if (stream->state != STREAM_UNOPENED || stream->counted_request)
            return true;
        if (connection->requests < MUX_MAX_REQUESTS) {
            stream->counted_request = true;
            connection->requests++;
            return true;
        }
    }
    mux_answer(connection, FRAME_RETRY, &connection->frame.key, connection->frame.message);
    return false;
}

static void request_came(struct mux_connection *connection, struct transport_stream *stream) {
    const struct frame *frame = &connection->frame;
    struct transport_stream *owing;
    TAILQ_FOREACH(owing, &connection->owing, owing_link) mux_need(owing, MUX_NEED_CREDIT);
    if (!request_fits(connection, stream) || frame->message < stream->arriving)
        return;
    if (stream->state == STREAM_CLOSED)
        return;
    stream->has_request = true;
    stream->request_number = frame->message;
    frame_get_header(frame, &stream->request);
    if (frame->message < stream->announced) {
        stream->grant = stream->announced;
        mux_need(stream, MUX_NEED_CREDIT);
    }
    connection->mux->events++;
    if (stream->state == STREAM_OPEN)
        connection->mux->host->arrived(stream->owner);
}

static void retry_came(struct mux_connection *connection, struct transport_stream *stream) {
    if (!stream || stream->requested != connection->frame.message + 1 || stream->retry)
        return;
    stream->retry = true;
    connection->retry_streams++;
    mux_retry_later(connection);
}

/* Handles a frame of a stream; `stream` may be unknown when it only tells something. */
static void stream_frame(struct mux_connection *connection) {
    const struct frame *frame = &connection->frame;
    bool data = frame->type == FRAME_DATA;
    bool create = data || (frame->type != FRAME_CLOSE && frame->type != FRAME_RETRY &&
                           connection->unopened < MUX_MAX_UNOPENED);
    struct transport_stream *stream = mux_stream_find(connection, &frame->key, create);
    if (!stream && (data || create)) {
        mux_break(connection, ENOMEM, "no memory for a stream");
        return;
    }
    if (stream && frame->type == FRAME_PLACE)
        mux_place_came(stream, frame);
    if (stream && frame->type != FRAME_RETRY &&
        !(frame->type == FRAME_CLOSE && frame->message == 1)) {
        stream->touched = true;
        mux_permission(stream, frame);
    }
    if (connection->is_broken)
        return;
    if (data)
        begin_data(connection, stream);
    else if (stream && frame->type == FRAME_PLACE)
        mux_stream_update(stream);
    else if (frame->type == FRAME_REQUEST)
        request_came(connection, stream);
    else if (frame->type == FRAME_RETRY)
        retry_came(connection, stream);
    else if (frame->type == FRAME_CLOSE)
        mux_close_came(connection, stream);
}

/* A frame is here: in connection->frame, or packed. */
static void frame_begin(struct mux_connection *connection, const uint8_t *packed) {
    struct frame *frame = &connection->frame;
    const char *wrong =
        packed ? frame_unpack(&connection->last_in, packed, frame) : frame_check(frame);
    if (!wrong && connection->got_init == (frame->type == FRAME_INIT))
        wrong = "first frame expected once, and first";
    if (!wrong && connection->left)
        wrong = "frame after the last one";
    if (!wrong && frame->type > FRAME_BYE && !connection->mux->pipe->write)
        wrong = "frame of an unknown type";
    if (wrong) {
        mux_break(connection, EPROTO, "%s", wrong);
        return;
    }
    connection->target = NULL;
    connection->left_bytes = 0;
    connection->skip_bytes = frame->trailer;
    connection->in_frame = true;
    if (frame->type == FRAME_INIT)
        mux_init_came(connection, frame);
    else if (frame->type == FRAME_BYE)
        connection->left = true;
    else if (frame->type == FRAME_STOPPED)
        connection->mux->pipe->stopped(connection, (uint32_t)frame->sequence);
    else
        stream_frame(connection);
}

/* -- bytes --------------------------------------------------------------------------------- */

/* Takes payload from what came; what has no target is dropped. */
static size_t payload_take(struct mux_connection *connection, const char *data, size_t bytes) {
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

/* Takes bytes of the frame that begins, and the frame when they are all there; how many. */
static size_t head_take(struct mux_connection *connection, const char *data, size_t bytes) {
    bool packs = connection->mux->pipe->packs;
    uint8_t *kept = packs ? connection->packed : (uint8_t *)&connection->frame;
    size_t whole = sizeof connection->frame, taken = 0;
    if (packs && connection->npartial == 0 && bytes >= 2) {
        whole = frame_packed_bytes((const uint8_t *)data);
        if (whole <= bytes) { /* mostly */
            frame_begin(connection, (const uint8_t *)data);
            return whole;
        }
    }
    if (packs) /* the first two say how many there are */
        whole = connection->npartial < 2 ? 2 : frame_packed_bytes(kept);
    for (;;) {
        size_t n = whole - connection->npartial;
        n = n < bytes - taken ? n : bytes - taken;
        memcpy(kept + connection->npartial, data + taken, n);
        connection->npartial += n;
        taken += n;
        if (connection->npartial < whole)
            return taken;
        if (!packs || (whole = frame_packed_bytes(kept)) == connection->npartial)
            break;
    }
    connection->npartial = 0;
    frame_begin(connection, packs ? kept : NULL);
    return taken;
}

void mux_input(struct mux_connection *connection, const char *data, size_t bytes) {
    connection->mux->base.counters.wire_bytes_received += bytes;
    for (;;) {
        if (connection->is_broken)
            return;
        if (!connection->in_frame) {
            size_t n = head_take(connection, data, bytes);
            data += n;
            bytes -= n;
            if (!connection->in_frame || connection->is_broken)
                return; /* there is no more */
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

size_t mux_targets(const struct mux_connection *connection, struct iovec *iov, int *count) {
    size_t bytes = 0;
    int n = 0;
    for (int i = connection->piece; connection->in_frame && i < connection->npieces; i++) {
        size_t skip = i == connection->piece ? connection->piece_done : 0;
        size_t length = connection->pieces[i].length - skip;
        if (length > connection->left_bytes - bytes)
            length = (size_t)(connection->left_bytes - bytes);
        if (length > 0)
            iov[n++] = (struct iovec){(char *)connection->pieces[i].data + skip, length};
        bytes += length;
    }
    *count = n;
    return bytes;
}

void mux_placed(struct mux_connection *connection, size_t bytes) {
    connection->left_bytes -= bytes;
    while (bytes > 0) {
        size_t room = connection->pieces[connection->piece].length - connection->piece_done;
        if (bytes < room) {
            connection->piece_done += bytes;
            return;
        }
        bytes -= room;
        connection->piece++;
        connection->piece_done = 0;
    }
}
