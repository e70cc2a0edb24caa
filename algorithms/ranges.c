/* Chunks become runs with a common stride: a chunk that continues the last range extends it. Runs
 * of neighbours (stride 1) are kept as one run of many chunks. */
#include "algorithms/ranges.h"

#include "base/error.h"

#include <stdlib.h>

rota_status ranges_create(struct ranges *list, uint32_t chunks) {
    *list = (struct ranges){.items = malloc((chunks + 1u) * sizeof *list->items), .room = chunks};
    if (!list->items)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a list of %u chunks", chunks);
    return ROTA_OK;
}

void ranges_destroy(struct ranges *list) {
    free(list->items);
    *list = (struct ranges){0};
}

void ranges_clear(struct ranges *list) {
    list->count = 0;
}

/* Whether the chunk was made part of the range. Of scratch the chunk whose length it has must
 * advance alike. */
static bool extend(struct sched_range *last, enum sched_buffer buffer, uint32_t chunk,
                   uint32_t like) {
    bool scratch = buffer == SCHED_SCRATCH;
    if (last->buffer != buffer)
        return false;
    if (last->reps == 1 && chunk == last->first + last->count &&
        (!scratch || like == last->like + last->count)) {
        last->count++;
        return true;
    }
    if (last->count != 1 || chunk <= last->first || (scratch && like < last->like))
        return false;
    if (last->reps == 1) {
        last->stride = chunk - last->first;
        last->like_stride = scratch ? like - last->like : 0;
    } else if (chunk != last->first + last->reps * last->stride ||
               (scratch && like != last->like + last->reps * last->like_stride)) {
        return false;
    }
    last->reps++;
    return true;
}

void ranges_add(struct ranges *list, enum sched_buffer buffer, uint32_t chunk, uint32_t like) {
    if (list->count && extend(&list->items[list->count - 1], buffer, chunk, like))
        return;
    if (list->count < list->room)
        list->items[list->count++] =
            (struct sched_range){.buffer = buffer,
                                 .first = chunk,
                                 .count = 1,
                                 .reps = 1,
                                 .like = buffer == SCHED_SCRATCH ? like : 0};
}

uint32_t ranges_send(struct sched_builder *b, int peer, const struct ranges *src, uint32_t flags) {
    return sched_send_list(b, &peer, 1, src->items, src->count, flags);
}

uint32_t ranges_recv(struct sched_builder *b, int peer, const struct ranges *dst, uint32_t flags) {
    return sched_recv_list(b, peer, dst->items, dst->count, flags);
}
