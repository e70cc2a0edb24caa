/* Streams: finding, opening, closing, quiescing, and what becomes of them when the connection
 * breaks. */
#include "mux.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct transport_key) == 16, "hashed without padding");

struct transport_stream *mux_stream_find(struct mux_connection *connection,
                                         const struct transport_key *key, bool create) {
    struct transport_stream *stream = connection->last;
    if (stream && memcmp(&stream->key, key, sizeof *key) == 0)
        return stream;
    HASH_FIND(hh, connection->streams, key, sizeof *key, stream);
    if (!stream && create) {
        stream = calloc(1, sizeof *stream);
        if (!stream)
            return NULL;
        stream->key = *key;
        stream->connection = connection;
        TAILQ_INIT(&stream->queue);
        TAILQ_INIT(&stream->posts);
        TAILQ_INIT(&stream->arrived);
        TAILQ_INIT(&stream->places);
        HASH_ADD(hh, connection->streams, key, sizeof *key, stream);
        connection->unopened++;
    }
    if (stream)
        connection->last = stream;
    return stream;
}

rota_status mux_stream_open(struct transport *transport, int peer, const struct transport_key *key,
                            void *owner, struct transport_stream **out) {
    struct mux *mux = mux_of(transport);
    struct mux_connection *connection = mux->connections[peer];
    if (!connection || !connection->open || !connection->got_init)
        return error_raise(ROTA_ERR_PEER, "rank %d is not connected by %s", peer,
                           transport->ops->name);
    struct transport_stream *stream = mux_stream_find(connection, key, true);
    if (!stream)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a stream");
    if (stream->state == STREAM_OPEN)
        return error_raise(ROTA_ERR_INTERNAL, "stream to rank %d opened twice", peer);
    if (stream->state == STREAM_CLOSED) {
        if (stream->in_grave)
            TAILQ_REMOVE(&connection->graves, stream, tomb_link);
        else
            TAILQ_REMOVE(&connection->tombs, stream, tomb_link);
        stream->in_grave = stream->close_sent = stream->close_came = false;
        stream->needs &= (uint8_t)~MUX_NEED_CLOSE;
        stream->announced = stream->arriving;
    } else {
        connection->unopened--;
    }
    if (stream->counted_request) {
        stream->counted_request = false;
        connection->requests--;
    }
    stream->state = STREAM_OPEN;
    stream->owner = owner;
    *out = stream;
    return ROTA_OK;
}

/* Whatever arrives on this stream right now goes nowhere. */
static void arrival_detach(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    if (!connection->in_frame || connection->target != stream)
        return;
    bool posted = connection->post && connection->post->posted;
    bool claimed = connection->message && connection->message->claim;
    if (posted || claimed || stream->state == STREAM_CLOSED) {
        connection->drop = true;
        connection->npieces = connection->piece = 0;
    }
}

void mux_posts_unplace(struct mux_connection *connection) {
    struct transport_stream *stream;
    struct mux_post *post;
    for (stream = connection->streams; stream; stream = stream->hh.next) {
        TAILQ_FOREACH(post, &stream->posts, link)
        post->placed = false;
        stream->places_kept = 0;
    }
}

/* Whether user memory of the stream may be written by the peer, or is being read for it. */
static bool has_writes(const struct transport_stream *stream) {
    const struct mux_outgoing *outgoing;
    const struct mux_post *post;
    TAILQ_FOREACH(outgoing, &stream->queue, link) {
        if (outgoing->way == MUX_WRITING)
            return true;
    }
    TAILQ_FOREACH(post, &stream->posts, link) {
        if (post->placed)
            return true;
    }
    return false;
}

void mux_quiesce(struct transport *transport, struct transport_stream *stream) {
    struct mux_outgoing *outgoing, *next;
    struct mux_post *post;
    (void)transport;
    if (has_writes(stream))
        stream->connection->mux->pipe->stop_writes(stream->connection);
    for (outgoing = TAILQ_FIRST(&stream->queue); outgoing; outgoing = next) {
        next = TAILQ_NEXT(outgoing, link);
        if (outgoing->reserved)
            continue; /* its memory is ours */
        TAILQ_REMOVE(&stream->queue, outgoing, link);
        stream->queued--;
        mux_outgoing_free(outgoing);
    }
    stream->requested = 0; /* the next message asks for itself */
    stream->needs &= (uint8_t)~MUX_NEED_REQUEST;
    mux_batch_detach(stream);
    TAILQ_FOREACH(post, &stream->posts, link) {
        if (post->posted)
            post->dropped = true;
    }
    arrival_detach(stream);
    mux_stream_update(stream);
}

/* Frees what is queued. Messages in the batch keep pointing to the stream, which stays. */
static void stream_empty(struct transport_stream *stream) {
    struct mux_outgoing *outgoing;
    struct mux_message *message;
    struct mux_post *post;
    while ((outgoing = TAILQ_FIRST(&stream->queue))) {
        TAILQ_REMOVE(&stream->queue, outgoing, link);
        mux_uncharge(outgoing);
        mux_outgoing_free(outgoing);
    }
    stream->queued = 0;
    while ((post = TAILQ_FIRST(&stream->posts))) {
        TAILQ_REMOVE(&stream->posts, post, link);
        mux_post_free(stream, post);
    }
    stream->places_told = stream->places_kept = 0;
    while ((message = TAILQ_FIRST(&stream->arrived))) {
        TAILQ_REMOVE(&stream->arrived, message, link);
        mux_taken(stream, message->charge);
        mux_message_free(stream, message);
    }
    mux_places_forget(stream);
}

void mux_stream_close(struct transport *transport, struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    mux_quiesce(transport, stream);
    stream->state = STREAM_CLOSED;
    stream->owner = NULL;
    stream->wants_writable = false;
    stream->has_request = false;
    arrival_detach(stream);
    stream_empty(stream);
    mux_forget_waits(stream);
    TAILQ_INSERT_TAIL(&connection->tombs, stream, tomb_link);
    if (stream->touched)
        mux_need(stream, MUX_NEED_CLOSE);
    else
        mux_check_closed(stream);
    mux_connection_touch(connection);
}

void mux_stream_fail(struct transport_stream *stream) {
    struct mux_outgoing *outgoing;
    struct mux_post *post;
    while ((outgoing = TAILQ_FIRST(&stream->queue))) {
        struct transport_ticket *ticket = outgoing->ticket;
        if (outgoing->reserved && !outgoing->ready)
            break; /* commit or close comes for it */
        TAILQ_REMOVE(&stream->queue, outgoing, link);
        stream->queued--;
        mux_outgoing_free(outgoing);
        if (ticket)
            ticket->done(ticket, TRANSPORT_FAILED);
    }
    while ((post = TAILQ_FIRST(&stream->posts))) {
        struct transport_ticket *ticket = post->dropped ? NULL : post->ticket;
        TAILQ_REMOVE(&stream->posts, post, link);
        mux_post_free(stream, post);
        if (ticket)
            ticket->done(ticket, TRANSPORT_FAILED);
    }
    if (stream->wants_writable) {
        stream->wants_writable = false;
        stream->connection->mux->host->writable(stream->owner); /* reserve says FAILED */
    }
}

void mux_stream_free(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    stream_empty(stream);
    mux_forget_waits(stream);
    mux_forget_lists(stream);
    HASH_DELETE(hh, connection->streams, stream);
    if (connection->last == stream)
        connection->last = NULL;
    if (stream->state == STREAM_CLOSED) {
        if (stream->in_grave)
            TAILQ_REMOVE(&connection->graves, stream, tomb_link);
        else
            TAILQ_REMOVE(&connection->tombs, stream, tomb_link);
    } else if (stream->state == STREAM_UNOPENED) {
        connection->unopened--;
    }
    if (stream->counted_request)
        connection->requests--;
    free(stream);
}

/* Nothing about it will come any more, and nothing has to be told. */
void mux_check_closed(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    bool told = stream->charged == stream->consumed && stream->got_charge == stream->reported;
    bool agreed = !stream->touched || (stream->close_sent && stream->close_came);
    if (stream->state != STREAM_CLOSED || stream->in_grave || !told || !agreed)
        return;
    TAILQ_REMOVE(&connection->tombs, stream, tomb_link);
    TAILQ_INSERT_TAIL(&connection->graves, stream, tomb_link);
    stream->in_grave = true;
    connection->mux->has_graves = true;
}

void mux_bury(struct mux_connection *connection) {
    struct transport_stream *stream, *next;
    for (stream = TAILQ_FIRST(&connection->graves); stream; stream = next) {
        next = TAILQ_NEXT(stream, tomb_link);
        bool arriving = connection->in_frame && connection->target == stream;
        if (stream->in_batch > 0 || stream->in_control || arriving)
            connection->mux->has_graves = true; /* next time */
        else
            mux_stream_free(stream);
    }
}

void mux_close_came(struct mux_connection *connection, struct transport_stream *stream) {
    bool answer = connection->frame.message == 1;
    if (!stream || (stream->state == STREAM_UNOPENED && TAILQ_EMPTY(&stream->arrived))) {
        if (stream)
            mux_stream_free(stream);
        if (!answer)
            mux_answer(connection, FRAME_CLOSE, &connection->frame.key, 1);
        return;
    }
    stream->close_came = true;
    mux_check_closed(stream);
}
