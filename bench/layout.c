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

static struct layout_segment poison(size_t offset, size_t count) {
    return (struct layout_segment){.origin = PATTERN_POISONED, .offset = offset, .count = count};
}

/* A block for each rank, in the order and with the gaps of the case. */
static int blocks(const struct bench_case *row, bool receives, struct layout_segment *segments) {
    bool to_me = row->operation->shape == BENCH_ALL_TO_ALL;
    size_t gap = bench_case_gap(row), offset = 0;
    int used = 0;
    for (int place = 0; place < row->nranks; place++) {
        int rank = bench_case_block_at(row, place);
        if (gap > 0)
            segments[used++] = poison(offset, gap);
        offset += gap;
        struct layout_segment block = {.origin = row->rank, .offset = offset};
        if (receives) {
            block.origin = rank;
            block.phase = block_phase(row, to_me ? row->rank : 0);
            block.count = bench_case_block(row, rank, row->rank);
        } else {
            block.phase = block_phase(row, rank);
            block.count = bench_case_block(row, row->rank, rank);
        }
        segments[used++] = block;
        offset += block.count;
    }
    if (gap > 0)
        segments[used++] = poison(offset, gap);
    return used;
}

/* A rank's own input: one block for each rank where the operation deals them out. */
static int input(const struct bench_case *row, struct layout_segment *segments) {
    enum bench_shape shape = row->operation->shape;
    bool dealt =
        shape == BENCH_REDUCE_SCATTER || shape == BENCH_ALL_TO_ALL || shape == BENCH_SCATTER;
    if (!dealt)
        return one(segments, row->rank, block_phase(row, 0), bench_case_send_count(row));
    return blocks(row, false, segments);
}

size_t layout_count(const struct bench_case *row, enum layout_buffer buffer) {
    size_t send = bench_case_send_count(row), recv = bench_case_recv_count(row);
    if (row->in_place)
        return buffer == LAYOUT_SEND ? 0 : send > recv ? send : recv;
    return buffer == LAYOUT_SEND ? send : recv;
}

static bool gathers(const struct bench_case *row) {
    return row->operation->shape == BENCH_ALL_GATHER || row->operation->shape == BENCH_GATHER;
}

static bool scatters(const struct bench_case *row) {
    return row->operation->shape == BENCH_REDUCE_SCATTER || row->operation->shape == BENCH_SCATTER;
}

size_t layout_send_offset(const struct bench_case *row) {
    return gathers(row) ? bench_case_block_offset(row, true, row->rank) : 0;
}

size_t layout_recv_offset(const struct bench_case *row) {
    return scatters(row) ? bench_case_block_offset(row, false, row->rank) : 0;
}

/* One block at `offset` amid poison; the block comes with origin, phase and count. */
static int amid_poison(struct layout_segment *segments, struct layout_segment block, size_t offset,
                       size_t total) {
    size_t end = offset + block.count;
    segments[0] = poison(0, offset);
    block.offset = offset;
    segments[1] = block;
    segments[2] = poison(end, total - end);
    return 3;
}

int layout_before(const struct bench_case *row, enum layout_buffer buffer,
                  struct layout_segment *segments) {
    size_t count = layout_count(row, buffer);
    bool holds_input = row->in_place || buffer == LAYOUT_SEND;
    if (!holds_input || !bench_case_is_source(row))
        return one(segments, PATTERN_POISONED, 0, count);
    int inputs = input(row, segments);
    if (!row->in_place || !gathers(row))
        return inputs;
    return amid_poison(segments, segments[0], layout_send_offset(row), count);
}

static int output(const struct bench_case *row, struct layout_segment *segments) {
    int previous = (row->rank + row->nranks - 1) % row->nranks;
    switch (row->operation->shape) {
    case BENCH_ALL_REDUCE:
    case BENCH_REDUCE:
        return one(segments, PATTERN_RESULT, block_phase(row, 0), row->count);
    case BENCH_REDUCE_SCATTER:
        return one(segments, PATTERN_RESULT, block_phase(row, row->rank),
                   bench_case_recv_count(row));
    case BENCH_BROADCAST:
        return one(segments, row->root, block_phase(row, 0), row->count);
    case BENCH_SCATTER:
        return one(segments, row->root, block_phase(row, row->rank), bench_case_recv_count(row));
    case BENCH_SCAN:
    case BENCH_EXCLUSIVE_SCAN:
        return one(segments,
                   PATTERN_PREFIX(row->rank + (row->operation->shape == BENCH_SCAN ? 1 : 0)),
                   block_phase(row, 0), row->count);
    case BENCH_SEND_RECV:
        return one(segments, previous, block_phase(row, 0), row->count);
    case BENCH_ALL_GATHER:
    case BENCH_ALL_TO_ALL:
    case BENCH_GATHER:
        return blocks(row, true, segments);
    case BENCH_BARRIER:
        break;
    }
    return 0;
}

int layout_after(const struct bench_case *row, enum layout_buffer buffer,
                 struct layout_segment *segments) {
    if (!bench_case_is_target(row) || (buffer == LAYOUT_SEND && !row->in_place))
        return layout_before(row, buffer, segments);
    if (!row->in_place || !scatters(row))
        return output(row, segments);
    if (!bench_case_is_source(row)) { /* scatter off the root: the own block comes amid poison */
        output(row, segments);
        return amid_poison(segments, segments[0], layout_recv_offset(row),
                           layout_count(row, buffer));
    }
    /* The own block is the result, the others are still input. */
    int count = input(row, segments);
    for (int place = 0; place < row->nranks; place++)
        if (row->operation->shape == BENCH_REDUCE_SCATTER &&
            bench_case_block_at(row, place) == row->rank)
            segments[bench_case_gap(row) ? 2 * place + 1 : place].origin = PATTERN_RESULT;
    return count;
}
