/* The arena of a rank: making it, mapping a peer's, allocating from the own one. */
#ifndef TRANSPORTS_SHM_ARENA_H
#define TRANSPORTS_SHM_ARENA_H

#include "net/handshake.h"
#include "transports/shm/layout.h"
#include "transports/shm/ranges.h"

struct shm_arena {
    int fd;
    uint8_t *base;
    struct shm_head *head;
    struct shm_ranges free;
};

/* A peer's arena. Nothing writes to it through here. */
struct shm_map {
    const uint8_t *base;
    size_t bytes;
    const struct shm_head *head;
};

/* heap_bytes: of the rank's heap (heap.h), 0 when it has none. Errors: ROTA_ERR_UNSUPPORTED with
 * the reason. */
rota_status shm_arena_open(struct shm_arena *arena, const struct net_identity *identity, int nranks,
                           size_t heap_bytes);
void shm_arena_close(struct shm_arena *arena);

/* Whole pages, zeroed when never used before; 0 when there is no room. */
size_t shm_arena_allocate(struct shm_arena *arena, size_t bytes);
void shm_arena_free(struct shm_arena *arena, size_t offset, size_t bytes);
static inline void *shm_arena_at(const struct shm_arena *arena, size_t offset) {
    return arena->base + offset;
}

/* Maps what a peer sent and checks that it is the arena of that rank in this job and can never
 * shrink. NULL when it was mapped, else the reason; *system_error is 0 or an errno value. */
const char *shm_map_open(struct shm_map *map, int fd, const struct net_identity *own, int rank,
                         uint64_t incarnation, int nranks, int *system_error);
void shm_map_close(struct shm_map *map);
/* Memory of a peer's arena; NULL when it does not lie inside or is not aligned to a line. */
const void *shm_map_at(const struct shm_map *map, uint64_t offset, size_t bytes);

#endif
