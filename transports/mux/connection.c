/* Connections: their beginning above the pipe, what becomes of them when they break, the end. */
#include "mux.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct mux_connection *mux_connection_get(struct mux *mux, int peer) {
    struct mux_connection *connection = mux->connections[peer];
    if (connection)
        return connection;
    connection = calloc(1, mux->pipe->connection_bytes);
    if (!connection)
        return NULL;
    connection->mux = mux;
    connection->peer = peer;
    connection->due_ns = connection->retry_due_ns = CLOCK_NEVER;
    TAILQ_INIT(&connection->tombs);
    TAILQ_INIT(&connection->graves);
    TAILQ_INIT(&connection->control);
    TAILQ_INIT(&connection->ready);
    TAILQ_INIT(&connection->owing);
    TAILQ_INIT(&connection->batch);
    mux->connections[peer] = connection;
    TAILQ_INSERT_TAIL(&mux->all, connection, all_link);
    mux->pipe->init(connection);
    return connection;
}

/* How many slots this peer gets: an equal share of the pool, none when it is empty. */
static unsigned slots_share(const struct mux *mux) {
    size_t peers = mux->host->nranks > 1 ? (size_t)mux->host->nranks - 1 : 1;
    size_t share = MUX_SLOT_POOL / mux->slot_charge / peers;
    size_t left = (MUX_SLOT_POOL - mux->slot_bytes_given) / mux->slot_charge;
    if (share < MUX_MIN_SLOTS)
        share = MUX_MIN_SLOTS;
    if (share > MUX_MAX_SLOTS)
        share = MUX_MAX_SLOTS;
    return (unsigned)(share < left ? share : left);
}

void mux_begin(struct mux_connection *connection) {
    struct mux *mux = connection->mux;
    connection->open = true;
    connection->slots_given = slots_share(mux);
    mux->slot_bytes_given += connection->slots_given * mux->slot_charge;
    connection->want_init = true;
    connection->npartial = 0;
    memset(&connection->last_in, 0, sizeof connection->last_in);
    memset(&connection->last_out, 0, sizeof connection->last_out);
    connection->in_frame = false;
    mux_connection_touch(connection);
    mux_flush(connection);
}

void mux_shut(struct mux_connection *connection) {
    struct mux *mux = connection->mux;
    if (connection->open) {
        connection->open = false;
        mux->pipe->shut(connection);
    }
    mux->slot_bytes_given -= connection->slots_given * mux->slot_charge;
    connection->slots_given = 0;
    connection->is_broken = false;
    connection->broken = connection->write_error = 0;
    connection->iov_next = connection->iov_end = 0;
    mux_connection_touch(connection);
}

void mux_init_came(struct mux_connection *connection, const struct frame *frame) {
    struct mux *mux = connection->mux;
    if (frame->total != mux->slot_charge || frame->length != 0) {
        mux_break(connection, EPROTO, "the peer's slots differ from ours");
        return;
    }
    connection->slots = frame->credit < MUX_MAX_SLOTS ? (unsigned)frame->credit : MUX_MAX_SLOTS;
    connection->got_init = true;
    mux->pipe->ready(connection);
    mux->events++;
    mux_dirty(connection);
    mux_connection_touch(connection);
    mux->host->connected(mux->host->context, &mux->base, connection->peer);
}

void mux_connection_touch(struct mux_connection *connection) {
    struct mux *mux = connection->mux;
    bool hot = connection->open && (connection->nposts > 0 || connection->waiting_requests > 0 ||
                                    !connection->got_init);
    if (hot == connection->in_hot)
        return;
    connection->in_hot = hot;
    if (hot) {
        TAILQ_INSERT_TAIL(&mux->hot, connection, hot_link);
        mux->nhot++;
    } else {
        TAILQ_REMOVE(&mux->hot, connection, hot_link);
        mux->nhot--;
    }
}

/* -- the end ------------------------------------------------------------------------------- */

void mux_break(struct mux_connection *connection, int system_error, const char *format, ...) {
    va_list arguments;
    if (connection->is_broken)
        return;
    connection->is_broken = true;
    connection->broken = system_error;
    va_start(arguments, format);
    vsnprintf(connection->why, sizeof connection->why, format, arguments);
    va_end(arguments);
    connection->mux->something_broke = true;
}

/* Whether the engine still waits for something of this connection. */
static bool is_needed(const struct mux_connection *connection) {
    const struct transport_stream *stream;
    if (connection->nposts > 0 || !TAILQ_EMPTY(&connection->batch))
        return true;
    for (stream = connection->streams; stream; stream = stream->hh.next) {
        if (!TAILQ_EMPTY(&stream->queue) || stream->wants_writable)
            return true;
    }
    return false;
}

bool mux_usable(struct mux_connection *connection) {
    if (connection->open && !connection->is_broken && !connection->left)
        return true;
    if (connection->left && !connection->told_left) {
        connection->told_left = true;
        mux_break(connection, 0, "it has left the job in good order");
    }
    return false;
}

/* Completes everything outstanding with FAILED. */
static void fail_all(struct mux_connection *connection) {
    struct transport_stream *stream;
    struct mux_post *post = connection->post;
    struct mux_message *message = connection->message;
    struct transport_ticket *tickets[2] = {NULL, NULL};
    if (connection->in_frame && connection->target) {
        if (post && post->posted && !connection->drop)
            tickets[0] = post->ticket;
        if (message && message->claim) {
            tickets[1] = connection->drop ? NULL : message->claim->ticket;
            mux_post_free(connection->target, message->claim);
        }
        if (message)
            mux_message_free(connection->target, message);
        if (post)
            mux_post_free(connection->target, post);
    }
    connection->in_frame = false;
    connection->post = NULL;
    connection->message = NULL;
    for (int i = 0; i < 2; i++) {
        if (tickets[i])
            tickets[i]->done(tickets[i], TRANSPORT_FAILED);
    }
    mux_batch_drop(connection);
    for (stream = connection->streams; stream; stream = stream->hh.next)
        mux_stream_fail(stream);
}

static void report(struct mux_connection *connection) {
    struct mux *mux = connection->mux;
    int error = connection->broken;
    char why[sizeof connection->why];
    char text[sizeof why + NET_ADDRESS_TEXT + 32];
    memcpy(why, connection->why, sizeof why);
    if (!connection->got_init) {
        mux_shut(connection);
        connection->in_frame = false;
        mux->pipe->ended(connection, false);
        return;
    }
    if (connection->left && !connection->told_left && !is_needed(connection)) {
        mux_shut(connection); /* it left when nothing was wanted of it: no failure, so far */
        return;
    }
    connection->told_left = true;
    snprintf(text, sizeof text, "rank %d (%s): %s", connection->peer, connection->address,
             connection->left && !error ? "it has left the job in good order" : why);
    mux_shut(connection);
    mux->pipe->ended(connection, true);
    mux->host->peer_failed(mux->host->context, &mux->base, connection->peer, error, text);
    fail_all(connection);
}

void mux_report_broken(struct mux *mux) {
    struct mux_connection *connection;
    mux->something_broke = false;
    TAILQ_FOREACH(connection, &mux->all, all_link) {
        if (connection->write_error && !connection->is_broken) {
            mux->budget = INT32_MAX;
            mux->pipe->receive(connection);
            if (!connection->is_broken)
                mux_break(connection, connection->write_error, "%s",
                          strerror(connection->write_error));
        }
        if (connection->is_broken) {
            mux->events++;
            report(connection);
        }
    }
}

void mux_gone(struct mux_connection *connection, const char *text) {
    struct mux *mux = connection->mux;
    if (!connection->open)
        return;
    mux->budget = INT32_MAX;
    mux->pipe->receive(connection); /* what it sent before counts */
    mux_break(connection, 0, "%s", text);
}

void mux_connection_free(struct mux_connection *connection) {
    struct transport_stream *stream, *next;
    mux_shut(connection);
    if (connection->in_frame && connection->target) {
        if (connection->message && connection->message->claim)
            mux_post_free(connection->target, connection->message->claim);
        if (connection->message)
            mux_message_free(connection->target, connection->message);
        if (connection->post)
            mux_post_free(connection->target, connection->post);
    }
    struct mux_outgoing *outgoing;
    while ((outgoing = TAILQ_FIRST(&connection->batch))) {
        TAILQ_REMOVE(&connection->batch, outgoing, link);
        mux_outgoing_free(outgoing);
    }
    for (stream = connection->streams; stream; stream = next) {
        next = stream->hh.next;
        mux_stream_free(stream);
    }
    free(connection->answers);
    free(connection);
}
