/* What stands in the buffers of a call before and after it, as segments of patterns: the one
 * description from which buffers are filled and checked. */
#ifndef BENCH_LAYOUT_H
#define BENCH_LAYOUT_H

#include "bench/operation.h"
#include "bench/pattern.h"

struct layout_segment {
    int origin;           /* rank whose input it is, PATTERN_RESULT or PATTERN_POISONED */
    uint32_t phase;       /* of the pattern */
    size_t offset, count; /* elements of the buffer */
};

enum layout_buffer { LAYOUT_SEND, LAYOUT_RECV };

#define LAYOUT_MAX_SEGMENTS(nranks) (2 * (nranks) + 2)

/* Number of segments of one buffer, at most LAYOUT_MAX_SEGMENTS, written to `segments`. In place
 * only LAYOUT_RECV exists. */
int layout_before(const struct bench_case *row, enum layout_buffer buffer,
                  struct layout_segment *segments);
int layout_after(const struct bench_case *row, enum layout_buffer buffer,
                 struct layout_segment *segments);
/* Elements of a buffer. */
size_t layout_count(const struct bench_case *row, enum layout_buffer buffer);
/* Offsets in elements of the send and receive pointers of an in-place call. */
size_t layout_send_offset(const struct bench_case *row);
size_t layout_recv_offset(const struct bench_case *row);

#endif
