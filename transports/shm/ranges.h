/* Free ranges of an address space, by first fit. */
#ifndef TRANSPORTS_SHM_RANGES_H
#define TRANSPORTS_SHM_RANGES_H

#include <stdbool.h>
#include <stddef.h>

struct shm_range {
    size_t offset, bytes;
};

struct shm_ranges {
    struct shm_range *range; /* ascending, never adjacent */
    size_t count, room;
};

/* All of [offset, offset + bytes) is free. False when out of memory. */
bool shm_ranges_open(struct shm_ranges *ranges, size_t offset, size_t bytes);
void shm_ranges_close(struct shm_ranges *ranges);
/* False when no range is long enough. */
bool shm_ranges_take(struct shm_ranges *ranges, size_t bytes, size_t *offset);
/* Joins it with its neighbours. Out of memory, the range is lost to later calls. */
void shm_ranges_put(struct shm_ranges *ranges, size_t offset, size_t bytes);

#endif
