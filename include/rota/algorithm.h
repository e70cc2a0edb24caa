/* Algorithms of the caller's: a function that emits one rank's schedule, or a file of schedules.
 *
 * An algorithm is registered under a name of its own, on all ranks alike, and then taken by that
 * name, in rota_call.algorithm or the setting ROTA_ALGORITHM (for that register it before
 * rota_init). Before it runs the first time for a kind, number of ranks and root, every rank builds
 * the schedules of all ranks and verifies them (docs/schedules.md); what is refuted does not run:
 * the call ends with ROTA_ERR_UNSUPPORTED and the verifier's sentence on all ranks. The library
 * never chooses such an algorithm by itself. examples/own_algorithm.c shows all of it. */
#ifndef ROTA_ALGORITHM_H
#define ROTA_ALGORITHM_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Takes the steps of one rank. Errors stick: after the first one every call is ignored, and the
 * schedule is refused with it, so build functions need no checks of their own. */
typedef struct rota_builder rota_builder;

/* Whose steps are asked for. */
typedef struct rota_algorithm_request {
    size_t size; /* set by the library */
    rota_kind kind;
    int nranks, rank; /* nranks is at least 2 */
    int root;         /* -1 where the kind has none */
    /* Input and output are one buffer. It may change local steps, never a message. One may ignore
     * it: where the schedule is not right in place, the library runs it on a copy of the input. */
    bool in_place;
} rota_algorithm_request;

/* Emits the steps of request->rank. It depends on its arguments alone, so that all ranks come to
 * the same; it is called in any thread, for all ranks, never twice at once, and must not call the
 * library but for the builder. Anything but ROTA_OK refuses the request. */
typedef rota_status (*rota_algorithm_fn)(const rota_algorithm_request *request,
                                         rota_builder *builder, void *arg);

/* Kinds of an algorithm: ROTA_KIND_BIT(ROTA_KIND_ALL_REDUCE) | ... */
#define ROTA_KIND_BIT(kind) (1u << (kind))

/* Registers an algorithm for the process, until it ends. `name`, at most 31 letters, digits, '_',
 * '-' and '.', is copied; `function` and `arg` must live on. Any thread.
 * Errors: ROTA_ERR_ARGUMENT (NULL, a name that is taken or none, kinds without schedules),
 * ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_algorithm_register(const char *name, uint32_t kinds,
                                             rota_algorithm_fn function, void *arg);

/* Registers the schedules of a file that was read into memory (text, JSON or MSCCL's XML, as
 * rota_schedule_read takes them) as an algorithm for their kind, number of ranks and root. All
 * ranks must be in it. They are verified here. Any thread.
 * Errors: ROTA_ERR_ARGUMENT (also a name that is taken), ROTA_ERR_FORMAT, ROTA_ERR_MEMORY,
 * ROTA_ERR_UNSUPPORTED (refuted: rota_last_error has the verifier's sentence). */
ROTA_API rota_status rota_algorithm_read(const char *name, const char *bytes, size_t length);

/* Buffers, in chunks as docs/schedules.md numbers them. */
enum { ROTA_BUFFER_INPUT = 0, ROTA_BUFFER_OUTPUT = 1, ROTA_BUFFER_SCRATCH = 2 };

/* `reps` runs of `count` chunks, run r beginning at chunk first + r * stride. Of scratch, chunk i
 * of run r has the length of the chunk with global number like + r * like_stride + i. */
typedef struct rota_range {
    uint32_t buffer, first, count, stride, reps, like, like_stride;
} rota_range;

static inline rota_range rota_range_of(uint32_t buffer, uint32_t first, uint32_t count,
                                       uint32_t like) {
    rota_range range;
    range.buffer = buffer;
    range.first = first;
    range.count = count;
    range.stride = 0;
    range.reps = 1;
    range.like = like;
    range.like_stride = 0;
    return range;
}
static inline rota_range rota_input(uint32_t first, uint32_t count) {
    return rota_range_of(ROTA_BUFFER_INPUT, first, count, 0);
}
static inline rota_range rota_output(uint32_t first, uint32_t count) {
    return rota_range_of(ROTA_BUFFER_OUTPUT, first, count, 0);
}
static inline rota_range rota_scratch(uint32_t first, uint32_t count, uint32_t like) {
    return rota_range_of(ROTA_BUFFER_SCRATCH, first, count, like);
}

/* What a step does with values in kinds that reduce (docs/schedules.md, Representation). */
enum {
    ROTA_STEP_LOAD_MESSAGE = 1, /* received operands are raw inputs */
    ROTA_STEP_LOAD_LOCAL = 2,   /* local operands are raw inputs */
    ROTA_STEP_FINISH = 4,       /* the result is complete */
    ROTA_STEP_PARTIAL = 8       /* moves partials */
};

/* Before the first step: chunks of each block (1 if not said; a barrier has none). */
ROTA_API void rota_builder_chunks(rota_builder *builder, uint32_t chunks_per_block);
/* Returns the first of `chunks` new chunks of scratch. */
ROTA_API uint32_t rota_builder_scratch(rota_builder *builder, uint32_t chunks);
/* Lane and channel, below 65536, of the steps that follow (0 and 0 at first). */
ROTA_API void rota_builder_lane(rota_builder *builder, uint32_t lane, uint32_t channel);

/* Steps; each returns its number, for rota_builder_wait. Flags are ROTA_STEP_*. A message without
 * chunks is a token. */
ROTA_API uint32_t rota_builder_send(rota_builder *builder, int peer, rota_range src,
                                    uint32_t flags);
ROTA_API uint32_t rota_builder_recv(rota_builder *builder, int peer, rota_range dst,
                                    uint32_t flags);
/* dst = message op local, with the message as the left operand where message_left. */
ROTA_API uint32_t rota_builder_recv_reduce(rota_builder *builder, int peer, rota_range local,
                                           bool message_left, rota_range dst, uint32_t flags);
ROTA_API uint32_t rota_builder_copy(rota_builder *builder, rota_range src, rota_range dst,
                                    uint32_t flags);
/* dst = operands in the aligned binary tree; one operand is converted. */
ROTA_API uint32_t rota_builder_reduce(rota_builder *builder, const rota_range *operands,
                                      uint32_t count, rota_range dst, uint32_t flags);

/* The same with lists: a send to several peers serves them in order, a message carries the chunks
 * of its ranges back to back, and of a reduction of messages from several peers the local operand
 * (nsrc 0: none) stands after `position` of them. */
ROTA_API uint32_t rota_builder_send_list(rota_builder *builder, const int *peers, uint32_t npeers,
                                         const rota_range *src, uint32_t nsrc, uint32_t flags);
ROTA_API uint32_t rota_builder_recv_list(rota_builder *builder, int peer, const rota_range *dst,
                                         uint32_t ndst, uint32_t flags);
ROTA_API uint32_t rota_builder_recv_reduce_list(rota_builder *builder, const int *peers,
                                                uint32_t npeers, uint32_t position,
                                                const rota_range *src, uint32_t nsrc,
                                                const rota_range *dst, uint32_t ndst,
                                                uint32_t flags);

/* Makes `step` wait for `other`, a step of another lane. */
ROTA_API void rota_builder_wait(rota_builder *builder, uint32_t step, uint32_t other);

#ifdef __cplusplus
}
#endif
#endif
