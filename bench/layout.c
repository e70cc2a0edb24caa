/* Buffers before and after each operation. */
#include "bench/layout.h"

/* Distance in phase between neighbouring blocks. */
#define BLOCK_PHASE 101u

static uint32_t block_phase(const struct bench_case *row, int block) {
    return (row->salt + BLOCK_PHASE * (uint32_t)block) % PATTERN_PERIOD;
}

static int one(struct layout_segment *segments, int origin, uint32_t phase, size_t count) {
    segments[0] = (struct layout_segment){.origin = origin, .phase = phase, .count = count};
    return 1;
}

/* A rank's own input: one block for each rank where the operation deals them out. */
static int input(const struct bench_case *row, struct layout_segment *segments) {
    bool dealt =
        row->operation->shape == BENCH_REDUCE_SCATTER || row->operation->shape == BENCH_ALL_TO_ALL;
    if (!dealt)
        return one(segments, row->rank, block_phase(row, 0), row->count);
    for (int block = 0; block < row->nranks; block++)
        segments[block] = (struct layout_segment){.origin = row->rank,
                                                  .phase = block_phase(row, block),
                                                  .offset = (size_t)block * row->count,
                                                  .count = row->count};
    return row->nranks;
}

static bool is_source(const struct bench_case *row) {
    return row->operation->shape != BENCH_BROADCAST || row->rank == row->root;
}

static bool is_target(const struct bench_case *row) {
    return row->operation->shape != BENCH_REDUCE || row->rank == row->root;
}

size_t layout_count(const struct bench_case *row, enum layout_buffer buffer) {
    size_t send = bench_case_send_count(row), recv = bench_case_recv_count(row);
    if (row->in_place)
        return buffer == LAYOUT_SEND ? 0 : send > recv ? send : recv;
    return buffer == LAYOUT_SEND ? send : recv;
}

size_t layout_send_offset(const struct bench_case *row) {
    return row->operation->shape == BENCH_ALL_GATHER ? (size_t)row->rank * row->count : 0;
}

size_t layout_recv_offset(const struct bench_case *row) {
    return row->operation->shape == BENCH_REDUCE_SCATTER ? (size_t)row->rank * row->count : 0;
}

int layout_before(const struct bench_case *row, enum layout_buffer buffer,
                  struct layout_segment *segments) {
    size_t count = layout_count(row, buffer);
    bool holds_input = row->in_place || buffer == LAYOUT_SEND;
    if (!holds_input || !is_source(row))
        return one(segments, PATTERN_POISONED, 0, count);
    if (!row->in_place || row->operation->shape != BENCH_ALL_GATHER)
        return input(row, segments);
    /* All gather in place: the own block amid poison. */
    one(segments, PATTERN_POISONED, 0, count);
    input(row, segments + 1);
    segments[1].offset = layout_send_offset(row);
    return 2;
}

static int blocks_from_all(const struct bench_case *row, struct layout_segment *segments) {
    bool to_me = row->operation->shape == BENCH_ALL_TO_ALL;
    for (int from = 0; from < row->nranks; from++)
        segments[from] = (struct layout_segment){.origin = from,
                                                 .phase = block_phase(row, to_me ? row->rank : 0),
                                                 .offset = (size_t)from * row->count,
                                                 .count = row->count};
    return row->nranks;
}

static int output(const struct bench_case *row, struct layout_segment *segments) {
    int previous = (row->rank + row->nranks - 1) % row->nranks;
    switch (row->operation->shape) {
    case BENCH_ALL_REDUCE:
    case BENCH_REDUCE:
        return one(segments, PATTERN_RESULT, block_phase(row, 0), row->count);
    case BENCH_REDUCE_SCATTER:
        return one(segments, PATTERN_RESULT, block_phase(row, row->rank), row->count);
    case BENCH_BROADCAST:
        return one(segments, row->root, block_phase(row, 0), row->count);
    case BENCH_SEND_RECV:
        return one(segments, previous, block_phase(row, 0), row->count);
    case BENCH_ALL_GATHER:
    case BENCH_ALL_TO_ALL:
        return blocks_from_all(row, segments);
    case BENCH_BARRIER:
        break;
    }
    return 0;
}

int layout_after(const struct bench_case *row, enum layout_buffer buffer,
                 struct layout_segment *segments) {
    if (!is_target(row) || (buffer == LAYOUT_SEND && !row->in_place))
        return layout_before(row, buffer, segments);
    if (!row->in_place || row->operation->shape != BENCH_REDUCE_SCATTER)
        return output(row, segments);
    /* Reduce scatter in place: the own block is the result, the others are still input. */
    int count = input(row, segments);
    segments[row->rank].origin = PATTERN_RESULT;
    return count;
}
