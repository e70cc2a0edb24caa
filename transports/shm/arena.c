/* The arena of a rank.
 *
 * Design note. The arena is a memfd: it has no name that could be left over, stolen or deleted, and
 * no /dev/shm that could be full. It is sealed against shrinking, so that no access of a peer can
 * end in SIGBUS. Peers never write to it, but map it as if they might: on AMD's processors (Zen 5)
 * a line that was read through a read-only page costs its writer 3500 instead of 1600 cycles per 64
 * KiB where the cores share a cache. Users' memory (heap.h) is theirs to read only. */
#include "transports/shm/arena.h"

#include "base/error.h"
#include "base/place.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t round_up(size_t bytes, size_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

/* Lays the fixed parts out and gives the rest to the heap. Returns where the heap begins. */
static size_t lay_out(struct shm_identity *identity, int nranks) {
    size_t at = round_up(sizeof(struct shm_head), SHM_PAGE);
    identity->directory = at;
    at += round_up((size_t)nranks * sizeof(uint64_t), SHM_PAGE);
    identity->group_table = at;
    at += SHM_GROUPS * sizeof(struct shm_group_entry);
    identity->small_slots = at;
    at += (size_t)SHM_SMALL_SLOTS * SHM_SMALL_BYTES;
    identity->large_slots = at;
    at += (size_t)SHM_LARGE_SLOTS * SHM_LARGE_BYTES;
    identity->filled = at;
    at += round_up(SHM_LARGE_SLOTS * sizeof(struct shm_filled), SHM_PAGE);
    return at;
}

static rota_status unsupported(int system_error, const char *what) {
    error_describe(ROTA_ERR_UNSUPPORTED, "shared memory cannot be used: %s: %s", what,
                   strerror(system_error));
    error_record()->system_error = system_error;
    return ROTA_ERR_UNSUPPORTED;
}

/* Makes the sealed descriptor. */
static rota_status create(struct shm_arena *arena) {
    /* Growing a file beyond the limit would raise SIGXFSZ in the user's process. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < SHM_ARENA_BYTES)
        return unsupported(EFBIG, "the limit on file size (RLIMIT_FSIZE)");
    arena->fd = memfd_create("rota", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0)
        return unsupported(errno, "memfd_create");
    (void)fchmod(arena->fd, 0600); /* made open to all; descriptors are passed, never opened */
    if (ftruncate(arena->fd, (off_t)SHM_ARENA_BYTES) != 0)
        return unsupported(errno, "ftruncate");
    if (fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
        return unsupported(errno, "sealing");
    void *base = mmap(NULL, SHM_ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
    if (base == MAP_FAILED)
        return unsupported(errno, "mmap");
    arena->base = base;
    place_memory("the arena", base, SHM_ARENA_BYTES); /* peers poll it, and may be there first */
    (void)fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SEAL);
    return ROTA_OK;
}

rota_status shm_arena_open(struct shm_arena *arena, const struct net_identity *identity, int nranks,
                           size_t heap_bytes) {
    *arena = (struct shm_arena){.fd = -1};
    rota_status status = create(arena);
    if (status != ROTA_OK)
        goto close;
    struct shm_identity own = {.magic = SHM_MAGIC,
                               .version = SHM_VERSION,
                               .rank = (uint32_t)identity->rank,
                               .incarnation = identity->incarnation,
                               .bytes = SHM_ARENA_BYTES,
                               .nranks = (uint32_t)nranks,
                               .groups = SHM_GROUPS,
                               .heap_bytes = heap_bytes};
    memcpy(own.job, identity->job, sizeof own.job);
    size_t heap = lay_out(&own, nranks);
    if (heap >= SHM_ARENA_BYTES) {
        error_describe(ROTA_ERR_UNSUPPORTED, "shared memory cannot be used: %d ranks are too many",
                       nranks);
        status = ROTA_ERR_UNSUPPORTED;
        error_record()->system_error = E2BIG;
        goto close;
    }
    arena->head = (struct shm_head *)(void *)arena->base;
    arena->head->identity = own;
    if (!shm_ranges_open(&arena->free, heap, SHM_ARENA_BYTES - heap)) {
        status = error_raise(ROTA_ERR_MEMORY, "out of memory");
        goto close;
    }
    return ROTA_OK;
close:
    shm_arena_close(arena);
    return status;
}

void shm_arena_close(struct shm_arena *arena) {
    if (arena->base)
        munmap(arena->base, SHM_ARENA_BYTES);
    if (arena->fd >= 0)
        close(arena->fd);
    shm_ranges_close(&arena->free);
    *arena = (struct shm_arena){.fd = -1};
}

size_t shm_arena_allocate(struct shm_arena *arena, size_t bytes) {
    size_t offset;
    return shm_ranges_take(&arena->free, round_up(bytes, SHM_PAGE), &offset) ? offset : 0;
}

void shm_arena_free(struct shm_arena *arena, size_t offset, size_t bytes) {
    shm_ranges_put(&arena->free, offset, round_up(bytes, SHM_PAGE));
}

const void *shm_map_at(const struct shm_map *map, uint64_t offset, size_t bytes) {
    if (offset % SHM_LINE != 0 || offset > map->bytes || bytes > map->bytes - offset)
        return NULL;
    return map->base + offset;
}

/* Whether a mapped arena is what it should be; NULL or the reason. */
static const char *check_head(const struct shm_map *map, const struct net_identity *own, int rank,
                              uint64_t incarnation, int nranks) {
    const struct shm_identity *peer = &map->head->identity;
    if (peer->magic != SHM_MAGIC)
        return "the peer's descriptor is no arena";
    if (peer->version != SHM_VERSION)
        return "the peer's arena has another layout";
    if (peer->rank != (uint32_t)rank || peer->incarnation != incarnation)
        return "the peer's arena belongs to another rank";
    if (memcmp(peer->job, own->job, sizeof peer->job) != 0)
        return "the peer's arena belongs to another job";
    if (peer->bytes != map->bytes || peer->nranks != (uint32_t)nranks || peer->groups > SHM_GROUPS)
        return "the head of the peer's arena contradicts itself";
    if (!shm_map_at(map, peer->directory, (size_t)nranks * sizeof(uint64_t)) ||
        !shm_map_at(map, peer->group_table, peer->groups * sizeof(struct shm_group_entry)) ||
        !shm_map_at(map, peer->small_slots, (size_t)SHM_SMALL_SLOTS * SHM_SMALL_BYTES) ||
        !shm_map_at(map, peer->large_slots, (size_t)SHM_LARGE_SLOTS * SHM_LARGE_BYTES) ||
        !shm_map_at(map, peer->filled, SHM_LARGE_SLOTS * sizeof(struct shm_filled)))
        return "the head of the peer's arena points outside";
    return NULL;
}

const char *shm_map_open(struct shm_map *map, int fd, const struct net_identity *own, int rank,
                         uint64_t incarnation, int nranks, int *system_error) {
    *map = (struct shm_map){0};
    *system_error = 0;
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &file) != 0) {
        *system_error = errno;
        return "the peer's descriptor is no memfd";
    }
    if (!(seals & F_SEAL_SHRINK))
        return "the peer's arena is not sealed against shrinking";
    if (file.st_size < (off_t)sizeof(struct shm_head) || file.st_size > (off_t)1 << 40)
        return "the peer's arena has a wrong size";
    void *base = mmap(NULL, (size_t)file.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) {
        *system_error = errno;
        return "the peer's arena cannot be mapped";
    }
    map->base = base;
    map->bytes = (size_t)file.st_size;
    map->head = base;
    const char *reason = check_head(map, own, rank, incarnation, nranks);
    if (reason)
        shm_map_close(map);
    return reason;
}

void shm_map_close(struct shm_map *map) {
    if (map->base)
        munmap((void *)(uintptr_t)map->base, map->bytes);
    *map = (struct shm_map){0};
}
