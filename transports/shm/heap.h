/* The heap of a rank: memory for the user's buffers that peers can read in place. */
#ifndef TRANSPORTS_SHM_HEAP_H
#define TRANSPORTS_SHM_HEAP_H

#include "transports/shm/ranges.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#define SHM_HEAP_BYTES ((size_t)16 << 30) /* of address space */

struct shm_block; /* an allocation */

struct shm_heap {
    int fd;        /* -1: there is no heap */
    uint8_t *base; /* never changes, so that shm_heap_find needs no lock */
    size_t bytes;
    pthread_mutex_t lock;
    struct shm_ranges free;
    struct shm_block *blocks; /* by offset */
};

/* Makes the heap, or leaves it out where the system refuses it or limits address space: buffers are
 * then ordinary memory. `huge`: asks for huge pages. */
void shm_heap_open(struct shm_heap *heap, bool huge);
void shm_heap_close(struct shm_heap *heap);

/* Whole pages; NULL when there is no room. Any thread. */
void *shm_heap_allocate(struct shm_heap *heap, size_t bytes);
/* Gives the pages back to the system. False when nothing was allocated there. Any thread. */
bool shm_heap_free(struct shm_heap *heap, void *memory);

/* Offset of a buffer in the heap plus 1, by which peers find it; 0 when it does not lie inside. */
static inline uint64_t shm_heap_find(const struct shm_heap *heap, const void *buffer,
                                     size_t bytes) {
    size_t offset = (size_t)((uintptr_t)buffer - (uintptr_t)heap->base);
    return offset < heap->bytes && bytes <= heap->bytes - offset ? offset + 1 : 0;
}

/* Maps a peer's heap read-only. NULL when it cannot be, or is not what the peer said. */
const uint8_t *shm_heap_map(int fd, size_t bytes);
void shm_heap_unmap(const uint8_t *base, size_t bytes);

#endif
