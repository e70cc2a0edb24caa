/* A list of chunks that is given one by one and kept as few ranges. */
#ifndef ALGORITHMS_RANGES_H
#define ALGORITHMS_RANGES_H

#include "schedule/builder.h"

struct ranges {
    struct sched_range *items; /* room for `room` of them */
    uint32_t count, room;
};

/* Room for lists of up to `chunks` chunks. Errors: ROTA_ERR_MEMORY. */
rota_status ranges_create(struct ranges *list, uint32_t chunks);
void ranges_destroy(struct ranges *list);
void ranges_clear(struct ranges *list);
/* Appends one chunk; `like` is read for scratch only. */
void ranges_add(struct ranges *list, enum sched_buffer buffer, uint32_t chunk, uint32_t like);

/* The step over the list. */
uint32_t ranges_send(struct sched_builder *b, int peer, const struct ranges *src, uint32_t flags);
uint32_t ranges_recv(struct sched_builder *b, int peer, const struct ranges *dst, uint32_t flags);

#endif
