/* Sending: the queue of a stream, permission, and the batch that a connection writes. */
#include "mux.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A reserved slot lies behind its record, from here on. */
#define SLOT_AT ((sizeof(struct mux_outgoing) + sizeof(struct transport_piece) + 63) & ~(size_t)63)

/* -- lists --------------------------------------------------------------------------------- */

void mux_dirty(struct mux_connection *connection) {
    if (connection->in_dirty)
        return;
    connection->in_dirty = true;
    TAILQ_INSERT_TAIL(&connection->mux->dirty, connection, dirty_link);
}

void mux_need(struct transport_stream *stream, uint8_t need) {
    struct mux_connection *connection = stream->connection;
    stream->needs |= need;
    if (!stream->in_control) {
        stream->in_control = true;
        TAILQ_INSERT_TAIL(&connection->control, stream, control_link);
    }
    mux_dirty(connection);
}

void mux_answer(struct mux_connection *connection, enum frame_type type,
                const struct transport_key *key, uint64_t message) {
    if (connection->nanswers == connection->answers_size) {
        unsigned size = connection->answers_size ? 2 * connection->answers_size : 64;
        struct mux_answer *larger =
            size > MUX_MAX_ANSWERS ? NULL : realloc(connection->answers, size * sizeof *larger);
        if (!larger) {
            mux_break(connection, EPROTO, "too many frames about unknown streams");
            return;
        }
        connection->answers = larger;
        connection->answers_size = size;
    }
    connection->answers[connection->nanswers++] = (struct mux_answer){*key, message, type};
    mux_dirty(connection);
}

static void ready_insert(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    if (!stream->in_ready) {
        stream->in_ready = true;
        TAILQ_INSERT_TAIL(&connection->ready, stream, ready_link);
    }
    mux_dirty(connection);
}

static void asking_set(struct transport_stream *stream, bool asking) {
    if (stream->asking == asking)
        return;
    stream->asking = asking;
    if (asking)
        stream->connection->waiting_requests++;
    else
        stream->connection->waiting_requests--;
    mux_connection_touch(stream->connection);
}

static void pool_wait(struct transport_stream *stream, bool wait) {
    struct mux *mux = stream->connection->mux;
    if (stream->wants_pool == wait)
        return;
    stream->wants_pool = wait;
    if (wait) {
        TAILQ_INSERT_TAIL(&mux->pool_waiters, stream, pool_link);
        mux->npool_waiters++;
    } else {
        TAILQ_REMOVE(&mux->pool_waiters, stream, pool_link);
        mux->npool_waiters--;
    }
}

void mux_forget_waits(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    asking_set(stream, false);
    if (stream->retry) {
        stream->retry = false;
        connection->retry_streams--;
    }
    pool_wait(stream, false);
}

void mux_forget_lists(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
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
    stream->connection->mux->host->writable(stream->owner);
}

/* -- permission ---------------------------------------------------------------------------- */

static bool has_credit(const struct transport_stream *stream, uint64_t length) {
    const struct mux_connection *connection = stream->connection;
    if (length > connection->mux->eager_bytes)
        return false;
    uint64_t out = stream->charged - stream->consumed;
    if (out == 0 && connection->slots_used >= connection->slots)
        return false;
    return out + mux_charge(length) <= connection->mux->slot_charge;
}

static void take_credit(struct transport_stream *stream, uint64_t length) {
    if (stream->charged == stream->consumed)
        stream->connection->slots_used++;
    stream->charged += mux_charge(length);
}

static bool may_go(const struct transport_stream *stream, const struct mux_outgoing *outgoing) {
    return outgoing->ready && outgoing->way != MUX_WRITING &&
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
    mux_need(stream, MUX_NEED_REQUEST);
}

/* -- places -------------------------------------------------------------------------------- */

static void place_drop(struct transport_stream *stream, struct mux_place_entry *entry) {
    TAILQ_REMOVE(&stream->places, entry, link);
    mux_pool_put(&stream->connection->mux->pool, entry, sizeof *entry);
}

void mux_places_forget(struct transport_stream *stream) {
    struct mux_place_entry *entry;
    while ((entry = TAILQ_FIRST(&stream->places)))
        place_drop(stream, entry);
}

/* Begins to write those queued messages whose places are known, in order; of several that are being
 * written each sends its frame when it is the head. */
static void start_writes(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    const struct mux_pipe *pipe = connection->mux->pipe;
    struct mux_outgoing *outgoing;
    struct mux_place_entry *entry;
    uint64_t number = stream->next_number;
    TAILQ_FOREACH(outgoing, &stream->queue, link) {
        while ((entry = TAILQ_FIRST(&stream->places)) && entry->number < number)
            place_drop(stream, entry);
        if (!entry)
            return;
        if (entry->number == number && !outgoing->reserved && outgoing->way == MUX_BYTES &&
            outgoing->header.length >= pipe->place_from &&
            outgoing->header.length <= entry->place.length) {
            if (pipe->write(connection, outgoing, &entry->place))
                outgoing->way = MUX_WRITING;
            place_drop(stream, entry);
        }
        number++;
    }
}

void mux_place_came(struct transport_stream *stream, const struct frame *frame) {
    struct mux_place_entry *last = TAILQ_LAST(&stream->places, mux_places), *entry;
    if (frame->message < stream->next_number || (last && last->number >= frame->message))
        return; /* the message was begun without it */
    entry = mux_pool_get(&stream->connection->mux->pool, sizeof *entry);
    if (!entry)
        return; /* so it goes by frames */
    entry->number = frame->message;
    entry->place = (struct mux_place){
        .address = frame->total,
        .length = frame->length,
        .keys = {(uint32_t)frame->fingerprint, (uint32_t)(frame->fingerprint >> 32)},
        .generation = (uint32_t)frame->sequence};
    TAILQ_INSERT_TAIL(&stream->places, entry, link);
}

void mux_written(struct mux_outgoing *outgoing) {
    outgoing->way = MUX_WRITTEN;
    outgoing->write = NULL;
    outgoing->permitted = true;
    mux_stream_update(outgoing->stream);
}

void mux_unwritten(struct mux_outgoing *outgoing) {
    outgoing->way = MUX_BYTES;
    outgoing->write = NULL;
    if (outgoing->stream->connection->open)
        mux_stream_update(outgoing->stream);
}

void mux_tell_stopped(struct mux_connection *connection, uint32_t generation) {
    connection->want_stopped = true;
    connection->stopped_generation = generation;
    mux_dirty(connection);
}

void mux_stream_update(struct transport_stream *stream) {
    struct mux_outgoing *head = TAILQ_FIRST(&stream->queue);
    if (!head || stream->connection->is_broken)
        return;
    if (!TAILQ_EMPTY(&stream->places))
        start_writes(stream);
    if (!head->ready || head->way == MUX_WRITING)
        return;
    if (may_go(stream, head))
        ready_insert(stream);
    else
        request(stream, stream->next_number, &head->header);
}

void mux_permission(struct transport_stream *stream, const struct frame *frame) {
    struct mux_connection *connection = stream->connection;
    if (frame->credit > stream->charged || frame->credit < stream->consumed) {
        mux_break(connection, EPROTO, "credit of a stream is impossible");
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
    mux_stream_update(stream);
    mux_check_closed(stream);
    writable(stream);
}

/* -- the batch ----------------------------------------------------------------------------- */

static void batch_add(struct mux_connection *connection, void *data, size_t length) {
    connection->iov[connection->iov_end++] = (struct iovec){data, length};
    connection->batch_bytes += length;
}

/* Gives back the credit of a message that will not be sent. */
void mux_uncharge(struct mux_outgoing *outgoing) {
    struct transport_stream *stream = outgoing->stream;
    if (!outgoing->charged)
        return;
    outgoing->charged = false;
    stream->charged -= mux_charge(outgoing->header.length);
    if (stream->charged == stream->consumed)
        stream->connection->slots_used--;
}

/* The next frame of the batch, to be filled and then sealed. */
static struct frame *batch_frame(struct mux_connection *connection, enum frame_type type) {
    struct frame *frame = &connection->head;
    connection->nheads++;
    memset(frame, 0, sizeof *frame);
    frame->type = (uint8_t)type;
    return frame;
}

/* Heads that follow each other directly share an iovec. */
static void batch_seal(struct mux_connection *connection) {
    struct iovec *last = connection->iov_end ? &connection->iov[connection->iov_end - 1] : NULL;
    uint8_t *at = connection->heads + connection->heads_bytes;
    size_t bytes = sizeof connection->head;
    if (connection->mux->pipe->packs) {
        bytes = frame_pack(&connection->last_out, &connection->head, at);
    } else {
        frame_seal(&connection->head);
        memcpy(at, &connection->head, bytes);
    }
    connection->heads_bytes += bytes;
    if (last && (uint8_t *)last->iov_base + last->iov_len == at) {
        last->iov_len += bytes;
        connection->batch_bytes += bytes;
    } else {
        batch_add(connection, at, bytes);
    }
}

/* Tells the peer all that it should know of a stream. */
static void report(struct transport_stream *stream, struct frame *frame) {
    struct mux_connection *connection = stream->connection;
    stream->touched = true;
    frame->key = stream->key;
    frame->credit = stream->taken;
    frame->grant = stream->grant;
    if (stream->got_charge != stream->reported && stream->got_charge == stream->taken)
        connection->slots_bound--;
    stream->reported = stream->taken;
    stream->needs &= (uint8_t)~MUX_NEED_CREDIT;
    if (stream->in_owing) {
        stream->in_owing = false;
        TAILQ_REMOVE(&connection->owing, stream, owing_link);
    }
}

/* Tells of the next place that the peer does not know. */
static void batch_place(struct transport_stream *stream) {
    struct mux_post *post;
    TAILQ_FOREACH(post, &stream->posts, link) {
        if (post->placed && !post->told)
            break;
    }
    if (!post) {
        stream->needs &= (uint8_t)~MUX_NEED_PLACE;
        return;
    }
    struct frame *frame = batch_frame(stream->connection, FRAME_PLACE);
    post->told = true;
    stream->places_told++;
    stream->places_kept--;
    frame->message = post->number;
    frame->total = post->place.address;
    frame->length = post->place.length;
    frame->fingerprint = post->place.keys[0] | (uint64_t)post->place.keys[1] << 32;
    frame->sequence = post->place.generation;
    report(stream, frame);
    batch_seal(stream->connection);
}

static void batch_control(struct mux_connection *connection) {
    struct transport_stream *stream;
    while (connection->nheads < MUX_BATCH_FRAMES && (stream = TAILQ_FIRST(&connection->control))) {
        if (stream->needs & MUX_NEED_CLOSE) {
            struct frame *frame = batch_frame(connection, FRAME_CLOSE);
            stream->needs = 0;
            report(stream, frame);
            batch_seal(connection);
            stream->close_sent = true;
            mux_check_closed(stream);
        } else if (stream->needs & MUX_NEED_REQUEST) {
            struct frame *frame = batch_frame(connection, FRAME_REQUEST);
            stream->needs &= (uint8_t)~MUX_NEED_REQUEST;
            frame_put_header(frame, &stream->request_header);
            frame->message = stream->requested - 1;
            report(stream, frame);
            batch_seal(connection);
        } else if (stream->needs & MUX_NEED_PLACE) {
            batch_place(stream);
        } else if (stream->needs & MUX_NEED_CREDIT) {
            struct frame *frame = batch_frame(connection, FRAME_CREDIT);
            report(stream, frame);
            batch_seal(connection);
            mux_check_closed(stream);
        }
        if (stream->needs == 0) {
            TAILQ_REMOVE(&connection->control, stream, control_link);
            stream->in_control = false;
        }
    }
    while (connection->nheads < MUX_BATCH_FRAMES && connection->nanswers > 0) {
        struct mux_answer *answer = &connection->answers[--connection->nanswers];
        struct frame *frame = batch_frame(connection, answer->type);
        frame->key = answer->key;
        frame->message = answer->message;
        batch_seal(connection);
    }
}

/* Fills the frame of the next message of a stream. */
static void message_frame(struct transport_stream *stream, const struct transport_header *header,
                          unsigned flags) {
    struct frame *frame = batch_frame(stream->connection, FRAME_DATA);
    frame->flags = (uint16_t)flags;
    frame_put_header(frame, header);
    frame->message = stream->next_number++;
    report(stream, frame);
}

/* Takes the head of a stream's queue off; by what right and way it goes. */
static unsigned take_head(struct transport_stream *stream, struct mux_outgoing *outgoing) {
    bool by_number =
        outgoing->permitted || (!outgoing->charged && stream->next_number < stream->granted);
    if (!by_number && !outgoing->charged)
        take_credit(stream, outgoing->header.length);
    TAILQ_REMOVE(&stream->queue, outgoing, link);
    stream->queued--;
    return (by_number ? 0 : FRAME_FLAG_EAGER) |
           (outgoing->way == MUX_WRITTEN ? FRAME_FLAG_WRITTEN : 0);
}

/* Moves the head of a stream's queue into the batch. */
static void batch_message(struct transport_stream *stream, struct mux_outgoing *outgoing) {
    struct mux_connection *connection = stream->connection;
    message_frame(stream, &outgoing->header, take_head(stream, outgoing));
    stream->in_batch++;
    batch_seal(connection);
    outgoing->iov_first = connection->iov_end;
    for (int i = 0; i < outgoing->npieces && outgoing->way == MUX_BYTES; i++) {
        if (outgoing->pieces[i].length > 0)
            batch_add(connection, outgoing->pieces[i].data, outgoing->pieces[i].length);
    }
    outgoing->iov_count = connection->iov_end - outgoing->iov_first;
    outgoing->end = connection->batch_bytes;
    TAILQ_INSERT_TAIL(&connection->batch, outgoing, link);
}

static void batch_clear(struct mux_connection *connection) {
    connection->heads_bytes = 0;
    connection->nheads = connection->iov_next = connection->iov_end = 0;
    connection->batch_sent = connection->batch_bytes = 0;
}

static void batch_build(struct mux_connection *connection) {
    struct transport_stream *stream;
    batch_clear(connection);
    if (connection->want_init) {
        struct frame *frame = batch_frame(connection, FRAME_INIT);
        frame->credit = connection->slots_given;
        frame->total = connection->mux->slot_charge;
        batch_seal(connection);
        connection->want_init = false;
    }
    if (!connection->got_init)
        return; /* nobody may use it yet */
    if (connection->want_stopped && connection->nheads < MUX_BATCH_FRAMES) {
        struct frame *frame = batch_frame(connection, FRAME_STOPPED);
        frame->sequence = connection->stopped_generation;
        batch_seal(connection);
        connection->want_stopped = false;
    }
    batch_control(connection);
    while (connection->nheads < MUX_BATCH_FRAMES && connection->batch_bytes < MUX_BATCH_BYTES &&
           (stream = TAILQ_FIRST(&connection->ready))) {
        struct mux_outgoing *head = TAILQ_FIRST(&stream->queue);
        if (head && may_go(stream, head)) {
            if (connection->iov_end + 1 + head->npieces > MUX_BATCH_IOVS)
                break;
            batch_message(stream, head);
        }
        TAILQ_REMOVE(&connection->ready, stream, ready_link);
        stream->in_ready = false;
        mux_stream_update(stream); /* to the end of the round, if there is more */
    }
    if (connection->want_bye && connection->nheads < MUX_BATCH_FRAMES &&
        TAILQ_EMPTY(&connection->ready)) {
        (void)batch_frame(connection, FRAME_BYE);
        batch_seal(connection);
        connection->want_bye = false;
    }
}

bool mux_has_output(const struct mux_connection *connection) {
    if (!connection->open || connection->is_broken || connection->write_error)
        return false;
    if (connection->iov_next < connection->iov_end || connection->want_init)
        return true;
    return connection->got_init &&
           (!TAILQ_EMPTY(&connection->control) || !TAILQ_EMPTY(&connection->ready) ||
            connection->nanswers > 0 || connection->want_bye || connection->want_stopped);
}

void mux_room_came(struct mux *mux) {
    struct transport_stream *stream;
    /* Those that find too little again queue at the end: each is asked once. */
    for (unsigned n = mux->npool_waiters; n > 0; n--) {
        stream = TAILQ_FIRST(&mux->pool_waiters);
        if (!stream)
            return;
        pool_wait(stream, false);
        writable(stream);
    }
}

void mux_outgoing_free(struct mux_outgoing *outgoing) {
    struct mux *mux = outgoing->stream->connection->mux;
    size_t bytes = sizeof *outgoing + (size_t)outgoing->npieces * sizeof outgoing->pieces[0];
    if (outgoing->reserved) {
        mux->reserved_bytes -= outgoing->header.length;
        outgoing->stream->reserved--;
        bytes = SLOT_AT + outgoing->header.length;
    }
    if (outgoing->rest)
        mux_pool_put(&mux->pool, outgoing->rest, outgoing->rest_bytes);
    mux_pool_put(&mux->pool, outgoing, bytes);
}

static void count_sent(struct mux *mux, const struct transport_header *header) {
    mux->base.counters.messages_sent++;
    mux->base.counters.bytes_sent += header->length;
}

/* The pipe took all of it. */
static void outgoing_sent(struct mux *mux, struct mux_outgoing *outgoing) {
    struct transport_stream *stream = outgoing->stream;
    struct transport_ticket *ticket = outgoing->ticket;
    bool reserved = outgoing->reserved;
    count_sent(mux, &outgoing->header);
    mux->events++;
    mux_outgoing_free(outgoing);
    if (ticket)
        ticket->done(ticket, TRANSPORT_OK);
    if (reserved && !TAILQ_EMPTY(&mux->pool_waiters))
        mux_room_came(mux);
    if (TAILQ_EMPTY(&stream->queue))
        writable(stream);
}

static void batch_advance(struct mux_connection *connection, size_t bytes) {
    struct mux_outgoing *outgoing;
    connection->batch_sent += bytes;
    connection->mux->base.counters.wire_bytes_sent += bytes;
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
    while ((outgoing = TAILQ_FIRST(&connection->batch)) &&
           outgoing->end <= connection->batch_sent) {
        TAILQ_REMOVE(&connection->batch, outgoing, link);
        outgoing->stream->in_batch--;
        outgoing_sent(connection->mux, outgoing);
    }
}

void mux_flush(struct mux_connection *connection) {
    if (connection->flushing)
        return; /* the loop further up goes on */
    connection->flushing = true;
    connection->held = 0;
    connection->held_bytes = 0;
    while (mux_has_output(connection)) {
        if (connection->iov_next == connection->iov_end)
            batch_build(connection);
        if (connection->iov_next == connection->iov_end)
            break;
        uint64_t left = connection->batch_bytes - connection->batch_sent;
        ssize_t n = connection->mux->pipe->send(connection, &connection->iov[connection->iov_next],
                                                connection->iov_end - connection->iov_next);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            if (errno != EAGAIN && errno != EWOULDBLOCK) {
                /* What the peer sent before it went is read first; then this is reported. */
                connection->write_error = errno;
                connection->mux->something_broke = true;
            }
            break;
        }
        batch_advance(connection, (size_t)n);
        if ((uint64_t)n < left)
            break; /* the pipe is full */
    }
    connection->flushing = false;
    if (mux_has_output(connection)) {
        mux_dirty(connection);
    } else if (connection->wants_room) {
        connection->wants_room = false;
        mux_room_came(connection->mux);
    }
}

void mux_batch_detach(struct transport_stream *stream) {
    struct mux_connection *connection = stream->connection;
    struct mux_outgoing *outgoing;
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
        outgoing->rest = mux_pool_get(&connection->mux->pool, bytes);
        if (!outgoing->rest) {
            mux_break(connection, ENOMEM, "no memory to finish a message that was given up");
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

void mux_batch_drop(struct mux_connection *connection) {
    struct mux_outgoing *outgoing;
    connection->iov_next = connection->iov_end = 0;
    while ((outgoing = TAILQ_FIRST(&connection->batch))) {
        struct transport_ticket *ticket = outgoing->ticket;
        TAILQ_REMOVE(&connection->batch, outgoing, link);
        outgoing->stream->in_batch--;
        mux_outgoing_free(outgoing);
        if (ticket)
            ticket->done(ticket, TRANSPORT_FAILED);
    }
}

/* -- the contract's functions -------------------------------------------------------------- */

static struct mux_outgoing *outgoing_new(struct transport_stream *stream,
                                         const struct transport_header *header, int npieces,
                                         size_t bytes) {
    struct mux *mux = stream->connection->mux;
    struct mux_outgoing *outgoing = mux_pool_get(&mux->pool, bytes);
    if (!outgoing)
        return NULL;
    memset(outgoing, 0, sizeof *outgoing);
    outgoing->stream = stream;
    outgoing->header = *header;
    outgoing->npieces = npieces;
    return outgoing;
}

/* With memory of ours for its payload. */
static struct mux_outgoing *slot_new(struct transport_stream *stream,
                                     const struct transport_header *header) {
    struct mux_outgoing *outgoing = outgoing_new(stream, header, 1, SLOT_AT + header->length);
    if (!outgoing)
        return NULL;
    outgoing->reserved = true;
    outgoing->pieces[0] = (struct transport_piece){(char *)outgoing + SLOT_AT, header->length};
    stream->connection->mux->reserved_bytes += header->length;
    stream->reserved++;
    return outgoing;
}

/* Whether a post waits for company. Its ticket is outstanding, so its owner makes progress, or has
 * somebody do so. */
static bool is_held(struct mux_connection *connection, uint64_t length) {
    struct mux *mux = connection->mux;
    if (!mux->base.caps.gathers || length >= MUX_HELD_MESSAGE)
        return false;
    int64_t now = clock_now_ns();
    bool goes_on =
        connection->posted_turn == mux->turn && now - connection->posted_ns < MUX_BURST_NS;
    connection->posted_ns = now;
    connection->posted_turn = mux->turn;
    connection->burst = goes_on ? connection->burst + 1 : 0;
    connection->held_bytes += length;
    return connection->burst >= MUX_BURST_FIRST && ++connection->held < MUX_HELD_MOST &&
           connection->held_bytes < MUX_HELD_BYTES;
}

static void enqueue(struct transport_stream *stream, struct mux_outgoing *outgoing) {
    struct mux_connection *connection = stream->connection;
    TAILQ_INSERT_TAIL(&stream->queue, outgoing, link);
    stream->queued++;
    mux_stream_update(stream);
    if (!connection->mux->in_progress && !is_held(connection, outgoing->header.length))
        mux_flush(connection);
}

/* Whether reserve may hand out a slot for the next message; *permitted says by what right. */
static bool reserve_allowed(const struct transport_stream *stream, uint64_t length,
                            bool *permitted) {
    *permitted = stream->next_number + stream->queued < stream->granted;
    if (*permitted)
        return true;
    struct mux_outgoing *tail = TAILQ_LAST(&stream->queue, mux_outgoings);
    if (tail && !tail->charged && !tail->permitted)
        return false; /* posts that wait go first */
    return has_credit(stream, length);
}

/* Who sends by slots does not hear when they have left, and may leave the library at once. So a
 * slot is given out when the pipe has room for it and nothing is before it. What is much larger
 * goes from the user's memory with a ticket. */
static bool pipe_has_room(struct mux_connection *connection, uint64_t length) {
    const struct mux_pipe *pipe = connection->mux->pipe;
    if (!pipe->room || length > MUX_ROOM_MOST)
        return true;
    if (mux_has_output(connection))
        mux_flush(connection);
    if (mux_has_output(connection) || connection->flushing) {
        connection->wants_room = true; /* when that has gone */
        return false;
    }
    return sizeof(struct frame) + length <= pipe->room(connection);
}

enum transport_result mux_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot) {
    struct mux *mux = mux_of(transport);
    bool permitted;
    if (!mux_usable(stream->connection))
        return TRANSPORT_FAILED;
    if (stream->connection->held > 0) /* posts go first */
        mux_flush(stream->connection);
    if (header->length > MUX_RESERVE_MAX)
        return TRANSPORT_UNSUPPORTED;
    if (!reserve_allowed(stream, header->length, &permitted)) {
        stream->wants_writable = true;
        if (TAILQ_EMPTY(&stream->queue))
            request(stream, stream->next_number, header);
        return TRANSPORT_AGAIN;
    }
    /* A stream that has no slot gets one whatever others hold: a peer that reads slowly must not
     * hinder what goes elsewhere. */
    if (stream->reserved > 0 && mux->reserved_bytes + header->length > MUX_RESERVE_POOL) {
        stream->wants_writable = true;
        pool_wait(stream, true);
        return TRANSPORT_AGAIN;
    }
    if (!pipe_has_room(stream->connection, header->length)) {
        stream->wants_writable = true;
        pool_wait(stream, true);
        return TRANSPORT_AGAIN;
    }
    struct mux_outgoing *outgoing = slot_new(stream, header);
    if (!outgoing)
        return TRANSPORT_FAILED;
    outgoing->permitted = permitted;
    outgoing->charged = !permitted;
    if (!permitted)
        take_credit(stream, header->length);
    TAILQ_INSERT_TAIL(&stream->queue, outgoing, link);
    stream->queued++;
    *slot = (struct transport_slot){
        .data = outgoing->pieces[0].data, .length = header->length, .handle = outgoing};
    return TRANSPORT_OK;
}

/* Whether what is sent now is before nothing and behind nothing. */
static bool is_idle(const struct mux_connection *connection) {
    return connection->open && !connection->is_broken && !connection->flushing &&
           !connection->write_error && !mux_has_output(connection);
}

/* Room for a short message in the pipe's own memory; NULL: something is before it, or there is
 * none.
 */
static char *at_once(struct mux_connection *connection, size_t length) {
    const struct mux_pipe *pipe = connection->mux->pipe;
    return pipe->begin && is_idle(connection) ? pipe->begin(connection, FRAME_PACKED_MOST + length)
                                              : NULL;
}

static void send_at_once(struct transport_stream *stream, const struct transport_header *header,
                         unsigned flags, char *to, const void *data) {
    struct mux_connection *connection = stream->connection;
    message_frame(stream, header, flags);
    size_t bytes = frame_pack(&connection->last_out, &connection->head, (uint8_t *)to);
    if (header->length > 0) /* of nothing, data may be NULL */
        memcpy(to + bytes, data, header->length);
    bytes += header->length;
    connection->mux->base.counters.wire_bytes_sent += bytes;
    connection->mux->pipe->end(connection, bytes);
}

/* A message begins to go from the caller's memory, and the pipe has taken `taken` bytes of the
 * batch, not all: keeps a copy of its payload, and goes on later. */
static enum transport_result keep_payload(struct transport_stream *stream,
                                          const struct transport_header *header, size_t taken) {
    struct mux_connection *connection = stream->connection;
    struct mux_outgoing *outgoing = slot_new(stream, header);
    if (!outgoing) {
        mux_break(connection, ENOMEM, "no memory to finish a message");
        return TRANSPORT_FAILED;
    }
    if (header->length > 0) {
        struct iovec *payload = &connection->iov[connection->iov_end - 1];
        memcpy(outgoing->pieces[0].data, payload->iov_base, payload->iov_len);
        payload->iov_base = outgoing->pieces[0].data;
    }
    outgoing->end = connection->batch_bytes;
    stream->in_batch++;
    TAILQ_INSERT_TAIL(&connection->batch, outgoing, link);
    batch_advance(connection, taken);
    mux_flush(connection); /* finds the pipe full, or what is wrong with it */
    return TRANSPORT_OK;
}

/* Sends a short message, before which nothing is, from the caller's memory. */
static enum transport_result send_from_memory(struct transport_stream *stream,
                                              const struct transport_header *header, unsigned flags,
                                              const void *data) {
    struct mux_connection *connection = stream->connection;
    struct mux *mux = connection->mux;
    batch_clear(connection);
    message_frame(stream, header, flags);
    batch_seal(connection);
    if (header->length > 0)
        batch_add(connection, (void *)(uintptr_t)data, header->length);
    ssize_t sent = mux->pipe->send(connection, connection->iov, connection->iov_end);
    if (sent < 0 || (uint64_t)sent < connection->batch_bytes)
        return keep_payload(stream, header, sent > 0 ? (size_t)sent : 0);
    connection->iov_next = connection->iov_end;
    mux->base.counters.wire_bytes_sent += (uint64_t)sent;
    count_sent(mux, header);
    return TRANSPORT_OK;
}

enum transport_result mux_put(struct transport *transport, struct transport_stream *stream,
                              const struct transport_header *header, const void *data) {
    struct mux *mux = mux_of(transport);
    struct mux_connection *connection = stream->connection;
    size_t length = header->length;
    bool permitted = stream->next_number < stream->granted;
    if (length > mux->eager_bytes || !mux_usable(connection) || !TAILQ_EMPTY(&stream->queue) ||
        (!permitted && !has_credit(stream, length)) || !is_idle(connection))
        return TRANSPORT_AGAIN;
    char *to = mux->pipe->begin ? mux->pipe->begin(connection, FRAME_PACKED_MOST + length) : NULL;
    if (mux->pipe->begin && !to)
        return TRANSPORT_AGAIN;
    if (!permitted)
        take_credit(stream, length);
    unsigned flags = permitted ? 0 : FRAME_FLAG_EAGER;
    if (!to)
        return send_from_memory(stream, header, flags, data);
    send_at_once(stream, header, flags, to, data);
    count_sent(mux, header);
    return TRANSPORT_OK;
}

void mux_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot) {
    struct mux_outgoing *outgoing = slot->handle;
    (void)transport;
    struct mux *mux = stream->connection->mux;
    outgoing->ready = true;
    char *to = TAILQ_FIRST(&stream->queue) == outgoing
                   ? at_once(stream->connection, outgoing->header.length)
                   : NULL;
    if (to) {
        send_at_once(stream, &outgoing->header, take_head(stream, outgoing), to,
                     outgoing->pieces[0].data);
        outgoing_sent(mux, outgoing);
        if (TAILQ_EMPTY(&stream->queue))
            return; /* else what is behind it may be ready */
    }
    mux_stream_update(stream);
    if (!mux->in_progress || mux->pipe->room) /* before anything else takes the room */
        mux_flush(stream->connection);
}

enum transport_result mux_post_send(struct transport *transport, struct transport_stream *stream,
                                    const struct transport_header *header,
                                    const struct transport_piece *pieces, int npieces,
                                    struct transport_ticket *ticket) {
    (void)transport;
    if (!mux_usable(stream->connection))
        return TRANSPORT_FAILED;
    if (npieces > MUX_MAX_PIECES || header->length > MUX_MAX_MESSAGE)
        return TRANSPORT_UNSUPPORTED;
    struct mux_outgoing *outgoing = outgoing_new(
        stream, header, npieces, sizeof *outgoing + (size_t)npieces * sizeof outgoing->pieces[0]);
    if (!outgoing)
        return TRANSPORT_FAILED;
    if (npieces > 0)
        memcpy(outgoing->pieces, pieces, (size_t)npieces * sizeof *pieces);
    outgoing->ready = true;
    outgoing->ticket = ticket;
    enqueue(stream, outgoing);
    return TRANSPORT_OK;
}
