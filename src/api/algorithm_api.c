/* Public functions that register the caller's algorithms, and the builder that they emit steps
 * with: the one of the library's own, whose types the public ones mirror. */
#include <rota/algorithm.h>

#include "algorithms/own.h"
#include "api/check.h"
#include "base/error.h"

#include <stddef.h>

#define SAME_MEMBER(name)                                                                          \
    _Static_assert(offsetof(rota_range, name) == offsetof(struct sched_range, name), #name)
_Static_assert(sizeof(rota_range) == sizeof(struct sched_range), "ranges are handed through");
_Static_assert(sizeof(enum sched_buffer) == sizeof(uint32_t), "a buffer is a number");
SAME_MEMBER(buffer);
SAME_MEMBER(first);
SAME_MEMBER(count);
SAME_MEMBER(stride);
SAME_MEMBER(reps);
SAME_MEMBER(like);
SAME_MEMBER(like_stride);
_Static_assert(ROTA_BUFFER_INPUT == (int)SCHED_INPUT && ROTA_BUFFER_OUTPUT == (int)SCHED_OUTPUT &&
                   ROTA_BUFFER_SCRATCH == (int)SCHED_SCRATCH,
               "buffers");
_Static_assert(ROTA_STEP_LOAD_MESSAGE == (int)SCHED_LOAD_MESSAGE &&
                   ROTA_STEP_LOAD_LOCAL == (int)SCHED_LOAD_LOCAL &&
                   ROTA_STEP_FINISH == (int)SCHED_FINISH && ROTA_STEP_PARTIAL == (int)SCHED_PARTIAL,
               "flags");

rota_status rota_algorithm_register(const char *name, uint32_t kinds, rota_algorithm_fn function,
                                    void *arg) {
    CHECK_KEEP_ERRNO;
    if (name == NULL || function == NULL)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_algorithm_register: expected a name and a function");
    return own_register(name, kinds, function, arg);
}

rota_status rota_algorithm_read(const char *name, const char *bytes, size_t length) {
    CHECK_KEEP_ERRNO;
    struct sched_set set = {0, NULL};
    if (name == NULL || bytes == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_algorithm_read: expected a name and bytes");
    rota_status status = sched_read(bytes, length, &set);
    if (status == ROTA_OK)
        status = own_register_set(name, &set);
    sched_set_free(&set);
    return status;
}

static struct sched_builder *inner(rota_builder *builder) {
    return (struct sched_builder *)builder;
}

static const struct sched_range *inner_ranges(const rota_range *ranges) {
    return (const struct sched_range *)ranges;
}

static struct sched_range inner_range(rota_range range) {
    return (struct sched_range){.buffer = (enum sched_buffer)range.buffer,
                                .first = range.first,
                                .count = range.count,
                                .stride = range.stride,
                                .reps = range.reps,
                                .like = range.like,
                                .like_stride = range.like_stride};
}

void rota_builder_chunks(rota_builder *builder, uint32_t chunks_per_block) {
    sched_set_chunks(inner(builder), chunks_per_block);
}

uint32_t rota_builder_scratch(rota_builder *builder, uint32_t chunks) {
    return sched_alloc_scratch(inner(builder), chunks);
}

void rota_builder_lane(rota_builder *builder, uint32_t lane, uint32_t channel) {
    /* Numbers too high for the executor's tables are refused by the builder. */
    const uint32_t most = 65535;
    sched_lane(inner(builder), lane <= most ? lane : UINT32_MAX,
               channel <= most ? channel : UINT32_MAX);
}

uint32_t rota_builder_send(rota_builder *builder, int peer, rota_range src, uint32_t flags) {
    return sched_send(inner(builder), peer, inner_range(src), flags);
}

uint32_t rota_builder_recv(rota_builder *builder, int peer, rota_range dst, uint32_t flags) {
    return sched_recv(inner(builder), peer, inner_range(dst), flags);
}

uint32_t rota_builder_recv_reduce(rota_builder *builder, int peer, rota_range local,
                                  bool message_left, rota_range dst, uint32_t flags) {
    return sched_recv_reduce(inner(builder), peer, inner_range(local), message_left,
                             inner_range(dst), flags);
}

uint32_t rota_builder_copy(rota_builder *builder, rota_range src, rota_range dst, uint32_t flags) {
    return sched_copy(inner(builder), inner_range(src), inner_range(dst), flags);
}

uint32_t rota_builder_reduce(rota_builder *builder, const rota_range *operands, uint32_t count,
                             rota_range dst, uint32_t flags) {
    return sched_reduce(inner(builder), inner_ranges(operands), count, inner_range(dst), flags);
}

uint32_t rota_builder_send_list(rota_builder *builder, const int *peers, uint32_t npeers,
                                const rota_range *src, uint32_t nsrc, uint32_t flags) {
    return sched_send_list(inner(builder), peers, npeers, inner_ranges(src), nsrc, flags);
}

uint32_t rota_builder_recv_list(rota_builder *builder, int peer, const rota_range *dst,
                                uint32_t ndst, uint32_t flags) {
    return sched_recv_list(inner(builder), peer, inner_ranges(dst), ndst, flags);
}

uint32_t rota_builder_recv_reduce_list(rota_builder *builder, const int *peers, uint32_t npeers,
                                       uint32_t position, const rota_range *src, uint32_t nsrc,
                                       const rota_range *dst, uint32_t ndst, uint32_t flags) {
    return sched_recv_reduce_list(inner(builder), peers, npeers, position, inner_ranges(src), nsrc,
                                  inner_ranges(dst), ndst, flags);
}

void rota_builder_wait(rota_builder *builder, uint32_t step, uint32_t other) {
    sched_wait(inner(builder), step, other);
}
