/* Filling buffers and checking every byte of them after a call. */
#include "bench/session.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#define PAGE_BYTES ((size_t)4096)
/* Runs of wrong elements whose first is shown, per rank. */
#define SHOWN_MAX 8u
#define BARRIER_DELAY_NS (2 * 1000 * 1000)
#define RED_ZONE_BYTE 0x5a

static unsigned char *data_of(struct bench_session *session, enum layout_buffer buffer) {
    return session->buffers[buffer].block + PAGE_BYTES;
}

void *bench_send_pointer(struct bench_session *session, const struct bench_case *row) {
    if (!row->in_place)
        return data_of(session, LAYOUT_SEND);
    return data_of(session, LAYOUT_RECV) + layout_send_offset(row) * rota_dtype_size(row->dtype);
}

void *bench_recv_pointer(struct bench_session *session, const struct bench_case *row) {
    size_t offset = row->in_place ? layout_recv_offset(row) * rota_dtype_size(row->dtype) : 0;
    return data_of(session, LAYOUT_RECV) + offset;
}

/* The tile of an origin. The own input and the result stay; others share one place. */
static const struct pattern_tile *tile_of(struct bench_session *session,
                                          const struct bench_case *row, int origin) {
    rota_op op = row->operation->reduces ? row->op : PATTERN_NO_OP;
    struct pattern_tile *tile = origin == session->rank ? session->input
                                : origin == PATTERN_RESULT || origin < PATTERN_POISONED
                                    ? session->result
                                : origin == PATTERN_POISONED ? session->poison
                                                             : session->other;
    pattern_tile_set(tile, row->dtype, op, row->nranks, origin);
    return tile;
}

static void buffer_fill(struct bench_session *session, const struct bench_case *row,
                        enum layout_buffer buffer) {
    size_t element = rota_dtype_size(row->dtype);
    int count = layout_before(row, buffer, session->segments);
    for (int s = 0; s < count; s++) {
        const struct layout_segment *segment = &session->segments[s];
        pattern_fill(tile_of(session, row, segment->origin),
                     data_of(session, buffer) + segment->offset * element, segment->count,
                     segment->phase);
    }
}

void bench_inputs_fill(struct bench_session *session, const struct bench_case *row) {
    if (row->operation->shape == BENCH_BARRIER || !bench_case_is_source(row))
        return;
    /* In place the second buffer holds the input; where blocks are gathered the own one only. */
    if (row->in_place &&
        (row->operation->shape == BENCH_ALL_GATHER || row->operation->shape == BENCH_GATHER)) {
        pattern_fill(tile_of(session, row, row->rank), bench_send_pointer(session, row),
                     bench_case_send_count(row), row->salt % PATTERN_PERIOD);
        return;
    }
    buffer_fill(session, row, row->in_place ? LAYOUT_RECV : LAYOUT_SEND);
}

void bench_buffers_fill(struct bench_session *session, const struct bench_case *row) {
    for (enum layout_buffer buffer = LAYOUT_SEND; buffer <= LAYOUT_RECV; buffer++) {
        unsigned char *data = data_of(session, buffer);
        size_t bytes = layout_count(row, buffer) * rota_dtype_size(row->dtype);
        memset(data - BENCH_RED_ZONE, RED_ZONE_BYTE, BENCH_RED_ZONE);
        memset(data + bytes, RED_ZONE_BYTE, BENCH_RED_ZONE);
        if (bytes > 0)
            buffer_fill(session, row, buffer);
    }
}

static void wrong_show(const struct bench_session *session, const struct bench_case *row,
                       enum layout_buffer buffer, size_t index, const unsigned char *found,
                       const unsigned char *expected) {
    char what[192], words[2][2 * 16 + 1];
    size_t element = rota_dtype_size(row->dtype);
    bench_case_describe(row, what, sizeof(what));
    for (size_t b = 0; b < element; b++) { /* little endian: the last byte is the first digit */
        snprintf(words[0] + 2 * b, 3, "%02x", found[element - 1 - b]);
        snprintf(words[1] + 2 * b, 3, "%02x", expected[element - 1 - b]);
    }
    fprintf(stderr,
            BENCH_COMMAND ": rank %d: %s: element %zu of the %s buffer is 0x%s, expected 0x%s\n",
            session->rank, what, index, buffer == LAYOUT_SEND ? "send" : "receive", words[0],
            words[1]);
}

static uint64_t red_zones_check(struct bench_session *session, const struct bench_case *row,
                                enum layout_buffer buffer) {
    unsigned char *data = data_of(session, buffer), what[2] = {0};
    size_t bytes = layout_count(row, buffer) * rota_dtype_size(row->dtype);
    uint64_t wrong = 0;
    for (size_t i = 0; i < BENCH_RED_ZONE; i++) {
        bool before = data[i - BENCH_RED_ZONE] != RED_ZONE_BYTE;
        bool after = data[bytes + i] != RED_ZONE_BYTE;
        what[0] |= before;
        what[1] |= after;
        wrong += (uint64_t)before + after;
    }
    if (wrong > 0) {
        char text[192];
        bench_case_describe(row, text, sizeof(text));
        fprintf(stderr,
                BENCH_COMMAND ": rank %d: %s: %" PRIu64 " bytes %s%s%s the %s buffer were "
                              "written\n",
                session->rank, text, wrong, what[0] ? "before" : "", what[0] && what[1] ? "/" : "",
                what[1] ? "behind" : "", buffer == LAYOUT_SEND ? "send" : "receive");
    }
    return wrong;
}

static uint64_t buffer_check(struct bench_session *session, const struct bench_case *row,
                             enum layout_buffer buffer) {
    size_t element = rota_dtype_size(row->dtype), first = 0;
    uint64_t wrong = red_zones_check(session, row, buffer);
    if (layout_count(row, buffer) == 0)
        return wrong;
    int count = layout_after(row, buffer, session->segments);
    for (int s = 0; s < count; s++) {
        const struct layout_segment segment = session->segments[s];
        const struct pattern_tile *tile = tile_of(session, row, segment.origin);
        const unsigned char *data = data_of(session, buffer) + segment.offset * element;
        size_t found = pattern_compare(tile, data, segment.count, segment.phase, &first);
        if (found > 0 && session->shown++ < SHOWN_MAX)
            wrong_show(session, row, buffer, segment.offset + first, data + first * element,
                       tile->bytes + (segment.phase + first % PATTERN_PERIOD) * element);
        wrong += found;
    }
    return wrong;
}

static int64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* No rank may leave before the last, which comes late on purpose, has entered. Comparable where
 * all ranks read one clock; elsewhere only the call itself is tested. */
static rota_status barrier_check(struct bench_session *session, const struct bench_case *row,
                                 uint64_t *wrong) {
    int64_t mine[2], all[2 * 64];
    if ((uint32_t)session->rank == row->salt % (uint32_t)session->nranks) {
        struct timespec delay = {.tv_nsec = BARRIER_DELAY_NS};
        nanosleep(&delay, NULL);
    }
    mine[0] = clock_ns();
    rota_status status = bench_case_call(row, NULL, NULL, session->comm);
    mine[1] = clock_ns();
    if (status || !session->one_machine || session->nranks > 64)
        return status;
    status = bench_session_gather(session, mine, all, sizeof(mine));
    for (int r = 0; status == ROTA_OK && r < session->nranks; r++)
        if (all[(size_t)r * 2] > mine[1]) {
            fprintf(stderr, BENCH_COMMAND ": rank %d left the barrier before rank %d came\n",
                    session->rank, r);
            (*wrong)++;
        }
    return status;
}

rota_status bench_check(struct bench_session *session, struct bench_case *row, uint64_t *wrong) {
    /* A step that is prime to the period: no two calls in a row have the same data. */
    row->salt = ++session->calls * 7u;
    if (row->operation->shape == BENCH_BARRIER)
        return barrier_check(session, row, wrong);
    bench_buffers_fill(session, row);
    rota_status status = bench_case_call(row, bench_send_pointer(session, row),
                                         bench_recv_pointer(session, row), session->comm);
    if (status)
        return status;
    for (enum layout_buffer buffer = LAYOUT_SEND; buffer <= LAYOUT_RECV; buffer++)
        *wrong += buffer_check(session, row, buffer);
    return ROTA_OK;
}
