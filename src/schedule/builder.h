/* Builder: how an algorithm emits a schedule. Errors are sticky: after the first one every call is
 * ignored and sched_builder_finish returns it, so algorithms need no checks of their own. */
#ifndef SCHEDULE_BUILDER_H
#define SCHEDULE_BUILDER_H

#include "schedule/schedule.h"

struct sched_builder;

struct sched_shape {
    rota_kind kind;
    int nranks, rank, root;
    bool in_place;
};

rota_status sched_builder_create(const struct sched_shape *shape, struct sched_builder **builder);
void sched_builder_destroy(struct sched_builder *builder);
/* Hands out the schedule, or the first error. The builder may be destroyed afterwards. */
rota_status sched_builder_finish(struct sched_builder *builder, struct sched **schedule);

/* Before the first step: chunks of each block (at least 1 except for barrier), scratch chunks. */
void sched_set_chunks(struct sched_builder *builder, uint32_t chunks_per_block);
uint32_t sched_alloc_scratch(struct sched_builder *builder,
                             uint32_t chunks); /* returns the first */

/* Range shorthands. Scratch needs the global number of the chunk whose length it has. */
struct sched_range sched_input(uint32_t first, uint32_t count);
struct sched_range sched_output(uint32_t first, uint32_t count);
struct sched_range sched_scratch(uint32_t first, uint32_t count, uint32_t like);

/* Lane and channel of the steps that follow (0 and 0 at first). */
void sched_lane(struct sched_builder *builder, uint32_t lane, uint32_t channel);

/* Each returns the number of its step, for sched_wait. `ranges` may hold several ranges; the plain
 * forms take one. A range with count 0 or reps 0 is left out, so empty means token for sends. */
uint32_t sched_send(struct sched_builder *b, int peer, struct sched_range src, uint32_t flags);
uint32_t sched_recv(struct sched_builder *b, int peer, struct sched_range dst, uint32_t flags);
uint32_t sched_recv_reduce(struct sched_builder *b, int peer, struct sched_range local,
                           bool message_left, struct sched_range dst, uint32_t flags);
uint32_t sched_copy(struct sched_builder *b, struct sched_range src, struct sched_range dst,
                    uint32_t flags);
uint32_t sched_reduce(struct sched_builder *b, const struct sched_range *operands,
                      uint32_t noperands, struct sched_range dst, uint32_t flags);
uint32_t sched_send_token(struct sched_builder *b, int peer);
uint32_t sched_recv_token(struct sched_builder *b, int peer);

uint32_t sched_send_list(struct sched_builder *b, const int *peers, uint32_t npeers,
                         const struct sched_range *src, uint32_t nsrc, uint32_t flags);
uint32_t sched_recv_list(struct sched_builder *b, int peer, const struct sched_range *dst,
                         uint32_t ndst, uint32_t flags);
/* Received operands of the ordered peers; the local one (nsrc 0: none) after `position` of them. */
uint32_t sched_recv_reduce_list(struct sched_builder *b, const int *peers, uint32_t npeers,
                                uint32_t position, const struct sched_range *src, uint32_t nsrc,
                                const struct sched_range *dst, uint32_t ndst, uint32_t flags);

/* Any step, for readers: type, flags, position and operands are those of `step`, its lists are
 * given aside, lane and channel are the current ones. */
uint32_t sched_append(struct sched_builder *b, const struct sched_step *step, const int *peers,
                      uint32_t npeers, const struct sched_range *src, uint32_t nsrc,
                      const struct sched_range *dst, uint32_t ndst);

/* Makes `step` wait for `other`, a step of another lane. */
void sched_wait(struct sched_builder *builder, uint32_t step, uint32_t other);

#endif
