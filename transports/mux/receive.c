/* Receiving as the engine sees it: announcements, and messages that are kept until they are
 * released or claimed. */
#include "mux.h"

#include <errno.h>
#include <string.h>

static size_t post_bytes(int npieces) {
    return sizeof(struct mux_post) + (size_t)npieces * sizeof(struct transport_piece);
}

void mux_post_free(struct transport_stream *stream, struct mux_post *post) {
    struct mux_connection *connection = stream->connection;
    if (post->counted) {
        connection->nposts--;
        mux_connection_touch(connection);
    }
    mux_pool_put(&connection->mux->pool, post, post_bytes(post->npieces));
}

void mux_message_free(struct transport_stream *stream, struct mux_message *message) {
    mux_pool_put(&stream->connection->mux->pool, message, sizeof *message + message->stored);
}

void mux_taken(struct transport_stream *stream, uint32_t charge) {
    struct mux_connection *connection = stream->connection;
    if (charge == 0)
        return;
    stream->taken += charge;
    if (!stream->in_owing) {
        stream->in_owing = true;
        TAILQ_INSERT_TAIL(&connection->owing, stream, owing_link);
    }
    if (stream->taken - stream->reported >= connection->mux->slot_charge / 2)
        mux_need(stream, MUX_NEED_CREDIT);
}

static struct mux_post *post_new(struct transport_stream *stream, size_t length,
                                 const struct transport_piece *pieces, int npieces,
                                 struct transport_ticket *ticket) {
    struct mux_post *post = mux_pool_get(&stream->connection->mux->pool, post_bytes(npieces));
    if (!post)
        return NULL;
    memset(post, 0, sizeof *post);
    post->length = length;
    post->ticket = ticket;
    post->npieces = npieces;
    if (npieces > 0)
        memcpy(post->pieces, pieces, (size_t)npieces * sizeof *pieces);
    return post;
}

/* Tells of the places that wait for it, if those are at least as many as the peer knows still, or
 * `now`. */
static void tell_places(struct transport_stream *stream, bool now) {
    if (stream->places_kept > 0 && (now || stream->places_kept >= stream->places_told))
        mux_need(stream, MUX_NEED_PLACE);
}

/* Queues the announcement of a message that has not begun to arrive, and permits it when its
 * sender will need that. */
static void announce(struct transport_stream *stream, struct mux_post *post) {
    struct mux_connection *connection = stream->connection;
    TAILQ_INSERT_TAIL(&stream->posts, post, link);
    post->counted = true;
    connection->nposts++;
    mux_connection_touch(connection);
    post->number = stream->announced++;
    const struct mux_pipe *pipe = connection->mux->pipe;
    bool asked = stream->has_request && stream->request_number < stream->announced;
    post->placed = post->posted && pipe->place && post->length >= pipe->place_from &&
                   pipe->place(connection, post, &post->place);
    if (post->length > connection->mux->eager_bytes || asked) {
        stream->grant = stream->announced;
        if (asked || !post->placed)
            mux_need(stream, MUX_NEED_CREDIT);
    }
    if (post->placed) {
        stream->places_kept++;
        tell_places(stream, asked);
    }
}

void mux_post_begun(struct transport_stream *stream, struct mux_post *post) {
    TAILQ_REMOVE(&stream->posts, post, link);
    if (post->told)
        stream->places_told--;
    else if (post->placed)
        stream->places_kept--;
    tell_places(stream, false);
}

void mux_expect(struct transport *transport, struct transport_stream *stream, size_t length) {
    (void)transport;
    if (stream->announced < stream->arriving) {
        stream->announced++; /* it is here, or on its way into memory of ours */
        return;
    }
    struct mux_post *post =
        mux_usable(stream->connection) ? post_new(stream, length, NULL, 0, NULL) : NULL;
    if (post)
        announce(stream, post);
    else if (!stream->connection->is_broken)
        mux_break(stream->connection, ENOMEM, "no memory to announce a message");
}

/* Copies a message that came before its receive. */
static void claim_copy(const struct mux_message *message, const struct mux_post *post) {
    size_t at = 0;
    for (int i = 0; i < post->npieces && at < message->stored; i++) {
        size_t n = message->stored - at;
        if (n > post->pieces[i].length)
            n = post->pieces[i].length;
        if (n > 0)
            memcpy(post->pieces[i].data, message->data + at, n);
        at += n;
    }
}

void mux_claim(struct transport_stream *stream, struct mux_message *message,
               struct mux_post *post) {
    struct transport_ticket *ticket = post->ticket;
    claim_copy(message, post);
    if (ticket)
        ticket->header = message->header;
    mux_taken(stream, message->charge);
    mux_message_free(stream, message);
    mux_post_free(stream, post);
    if (ticket)
        ticket->done(ticket, TRANSPORT_OK);
}

/* A receive for a message that has begun to arrive already. */
static enum transport_result claim(struct transport_stream *stream, struct mux_post *post) {
    struct mux_connection *connection = stream->connection;
    uint64_t number = stream->announced;
    struct mux_message *message;
    TAILQ_FOREACH(message, &stream->arrived, link) {
        if (message->number != number)
            continue;
        stream->announced++;
        TAILQ_REMOVE(&stream->arrived, message, link);
        mux_claim(stream, message, post);
        return TRANSPORT_OK;
    }
    message = connection->message;
    if (connection->in_frame && connection->target == stream && message && !message->claim &&
        message->number == number && mux_usable(connection)) {
        stream->announced++;
        message->claim = post;
        post->counted = true;
        connection->nposts++;
        mux_connection_touch(connection);
        return TRANSPORT_OK;
    }
    mux_post_free(stream, post);
    return TRANSPORT_FAILED;
}

enum transport_result mux_post_recv(struct transport *transport, struct transport_stream *stream,
                                    size_t length, const struct transport_piece *pieces,
                                    int npieces, struct transport_ticket *ticket) {
    (void)transport;
    bool here = stream->announced < stream->arriving;
    if (npieces > MUX_MAX_PIECES)
        return TRANSPORT_UNSUPPORTED;
    if (!here && !mux_usable(stream->connection))
        return TRANSPORT_FAILED;
    struct mux_post *post = post_new(stream, length, pieces, npieces, ticket);
    if (!post)
        return TRANSPORT_FAILED;
    post->posted = true;
    if (here)
        return claim(stream, post);
    announce(stream, post);
    return TRANSPORT_OK;
}

bool mux_withdraw(struct transport *transport, struct transport_stream *stream,
                  struct transport_ticket *ticket) {
    struct mux_post *post = TAILQ_LAST(&stream->posts, mux_posts);
    (void)transport;
    while (post != NULL && post->ticket == NULL && post->length == 0) /* was turned before */
        post = TAILQ_PREV(post, mux_posts, link);
    if (post == NULL || post->ticket != ticket || post->dropped)
        return ticket == NULL; /* it is coming; into memory of ours unless it was posted */
    if (post->placed)
        return false; /* the peer may be writing there */
    post->posted = false;
    post->ticket = NULL;
    post->length = 0;
    return true;
}

enum transport_result mux_peek(struct transport *transport, struct transport_stream *stream,
                               struct transport_arrival *arrival) {
    (void)transport;
    struct mux_message *message = TAILQ_FIRST(&stream->arrived);
    if (!message)
        return !stream->connection->open || stream->connection->is_broken ? TRANSPORT_FAILED
                                                                          : TRANSPORT_AGAIN;
    memset(arrival, 0, sizeof *arrival);
    arrival->header = message->header;
    arrival->pieces[0] = (struct transport_piece){message->data, message->stored};
    arrival->kind = &memory_host;
    arrival->handle = message;
    return TRANSPORT_OK;
}

void mux_release(struct transport *transport, struct transport_stream *stream,
                 struct transport_arrival *arrival) {
    struct mux_message *message = arrival->handle;
    (void)transport;
    if (stream->announced <= message->number)
        stream->announced = message->number + 1;
    TAILQ_REMOVE(&stream->arrived, message, link);
    mux_taken(stream, message->charge);
    mux_message_free(stream, message);
}

bool mux_pending(struct transport *transport, struct transport_stream *stream,
                 struct transport_header *header) {
    (void)transport;
    struct mux_message *message = TAILQ_FIRST(&stream->arrived);
    struct mux_post *post = TAILQ_FIRST(&stream->posts);
    if (message) {
        *header = message->header;
        return true;
    }
    /* What was only asked for does not come by a broken connection. */
    if (!stream->has_request || (post && post->posted) || !stream->connection->open ||
        stream->connection->is_broken)
        return false;
    *header = stream->request;
    return true;
}
