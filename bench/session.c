/* Opening and closing one rank's side of a benchmark. */
#include "bench/session.h"

#include <stdlib.h>
#include <string.h>

#define PAGE_BYTES ((size_t)4096)
#define WIDEST ((size_t)8) /* bytes of the widest element */

/* A page before the data holds the first red zone, so that data begin page-aligned. Memory is
 * touched only as far as a row fills it. */
static bool buffer_open(struct bench_buffer *buffer, size_t capacity) {
    size_t whole = (capacity + 3 * PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
    void *block;
    if (posix_memalign(&block, PAGE_BYTES, whole))
        return false;
    buffer->block = block;
    buffer->capacity = capacity;
    return true;
}

static struct pattern_tile *tile_open(void) {
    struct pattern_tile *tile = aligned_alloc(64, (sizeof(*tile) + 63) / 64 * 64);
    if (tile)
        tile->valid = false;
    return tile;
}

static bool memory_open(struct bench_session *session) {
    const struct bench_options *options = session->options;
    size_t ranks = (size_t)session->nranks;
    /* In place both operands of the call lie in the second buffer. */
    size_t capacity = (size_t)options->max_bytes + (ranks + 1) * BENCH_GAP * WIDEST;
    bool buffers = buffer_open(&session->buffers[LAYOUT_SEND], capacity) &&
                   buffer_open(&session->buffers[LAYOUT_RECV], capacity);
    session->segments = calloc(LAYOUT_MAX_SEGMENTS(ranks), sizeof(*session->segments));
    session->tables = calloc(BENCH_TABLES * ranks, sizeof(*session->tables));
    session->input = tile_open();
    session->result = tile_open();
    session->other = tile_open();
    session->poison = tile_open();
    session->samples = calloc((size_t)options->iterations, sizeof(double));
    return buffers && session->segments && session->tables && session->input && session->result &&
           session->other && session->poison && session->samples;
}

rota_status bench_session_open(struct bench_session *session, const struct bench_options *options,
                               rota_comm *comm) {
    memset(session, 0, sizeof(*session));
    session->options = options;
    session->comm = comm;
    rota_status status = rota_comm_rank(comm, &session->rank);
    if (status == ROTA_OK)
        status = rota_comm_size(comm, &session->nranks);
    if (status)
        return status;
    cli_progress_start(&session->progress);
    if (!memory_open(session)) {
        fprintf(stderr, BENCH_COMMAND ": rank %d: no memory for buffers of %lld bytes\n",
                session->rank, (long long)options->max_bytes);
        return ROTA_ERR_MEMORY;
    }
    return ROTA_OK;
}

void bench_session_close(struct bench_session *session) {
    free(session->buffers[LAYOUT_SEND].block);
    free(session->buffers[LAYOUT_RECV].block);
    free(session->segments);
    free(session->tables);
    free(session->input);
    free(session->result);
    free(session->other);
    free(session->poison);
    free(session->samples);
    memset(session, 0, sizeof(*session));
}

void bench_session_report(const struct bench_session *session, const char *what,
                          rota_status status) {
    rota_error error = ROTA_ERROR_INIT;
    if (session->comm)
        rota_comm_error(session->comm, &error);
    if (!session->comm || error.status == ROTA_OK)
        rota_last_error(&error);
    fprintf(stderr, BENCH_COMMAND ": rank %d: %s: %s%s%s\n", session->rank, what,
            rota_status_name(status), error.message[0] ? ": " : "", error.message);
}

void bench_case_describe(const struct bench_case *row, char *text, size_t size) {
    snprintf(text, size, "%s of %zu %s, %s, root %d, algorithm %s, %s", row->operation->name,
             row->count, bench_case_dtype_name(row), bench_case_op_name(row), row->root,
             row->algorithm ? row->algorithm : "of the library's choice",
             row->in_place ? "in place" : "out of place");
}

rota_status bench_session_gather(struct bench_session *session, const void *mine, void *all,
                                 size_t bytes) {
    return rota_all_gather(mine, all, bytes, ROTA_UINT8, session->comm, NULL);
}
