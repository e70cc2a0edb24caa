/* Output of the ranks: whole lines, each with its rank in front. */
#include "launch/ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A line that grows longer than this is written in pieces. */
#define LINE_MAX_BYTES ((size_t)1 << 20)
#define READ_BYTES ((size_t)16384)
/* A pipe that poll calls writable takes this much without blocking (PIPE_BUF). */
#define WRITE_BYTES ((size_t)4096)
/* How long a reader of our own output may hold up the end of a job. */
#define STUCK_POLL_MS 200

/* Writes all of it, and handles signals while a slow reader is waited for. What cannot be written
 * because the reader is gone, or is stuck while the job is being killed, is dropped. */
static void write_whole(struct launch_state *state, int target, const char *bytes, size_t length) {
    while (length > 0 && !state->output_lost) {
        struct pollfd polled[2] = {{.fd = target, .events = POLLOUT},
                                   {.fd = state->signals, .events = POLLIN}};
        int ready = poll(polled, 2, STUCK_POLL_MS);
        if (polled[1].revents)
            launch_signals_handle(state);
        if (ready <= 0 || !polled[0].revents) {
            if (state->kill_ms && launch_now_ms() > state->kill_ms)
                return;
            continue;
        }
        ssize_t written = write(target, bytes, length < WRITE_BYTES ? length : WRITE_BYTES);
        if (written < 0 && errno != EINTR && errno != EAGAIN) {
            state->output_lost = true;
            if (!state->failed) {
                state->failed = true;
                state->result = errno == EPIPE ? 128 + SIGPIPE : 1;
            }
            launch_end(state);
        } else if (written > 0) {
            bytes += written;
            length -= (size_t)written;
        }
    }
}

/* One line in one write, as far as a pipe takes it whole: prefix, text, newline. The text has room
 * for the newline behind it and for the prefix before it. */
static void line_write(struct launch_state *state, const struct launch_stream *stream,
                       const char *text, size_t length) {
    char piece[WRITE_BYTES];
    int prefix = snprintf(piece, sizeof(piece), "[%d] ", stream->rank);
    if ((size_t)prefix + length + 1 <= sizeof(piece)) {
        memcpy(piece + prefix, text, length);
        piece[(size_t)prefix + length] = '\n';
        write_whole(state, stream->target, piece, (size_t)prefix + length + 1);
        return;
    }
    write_whole(state, stream->target, piece, (size_t)prefix);
    write_whole(state, stream->target, text, length);
    write_whole(state, stream->target, "\n", 1);
}

bool launch_stream_reserve(struct launch_stream *stream, size_t room) {
    if (stream->capacity - stream->used >= room)
        return true;
    size_t capacity = stream->used + room + stream->capacity;
    char *line = realloc(stream->line, capacity);
    if (!line)
        return false;
    stream->line = line;
    stream->capacity = capacity;
    return true;
}

static void lines_take(struct launch_state *state, struct launch_stream *stream, size_t fresh) {
    char *begin = stream->line, *end = stream->line + stream->used;
    char *searched = end - fresh;
    for (char *newline; (newline = memchr(searched, '\n', (size_t)(end - searched)));) {
        line_write(state, stream, begin, (size_t)(newline - begin));
        begin = searched = newline + 1;
    }
    stream->used = (size_t)(end - begin);
    if (stream->used > LINE_MAX_BYTES) {
        line_write(state, stream, begin, stream->used);
        stream->used = 0;
    }
    memmove(stream->line, begin, stream->used);
}

void launch_stream_read(struct launch_state *state, struct launch_stream *stream) {
    if (!launch_stream_reserve(stream, READ_BYTES)) {
        launch_stream_close(state, stream);
        return;
    }
    ssize_t got = read(stream->source, stream->line + stream->used, READ_BYTES);
    if (got > 0) {
        stream->used += (size_t)got;
        lines_take(state, stream, (size_t)got);
    } else if (got == 0 || (errno != EAGAIN && errno != EINTR)) {
        launch_stream_close(state, stream);
    }
}

void launch_stream_close(struct launch_state *state, struct launch_stream *stream) {
    if (stream->source < 0)
        return;
    close(stream->source);
    stream->source = -1;
    if (stream->used > 0)
        line_write(state, stream, stream->line, stream->used);
    free(stream->line);
    stream->line = NULL;
    stream->used = stream->capacity = 0;
}
