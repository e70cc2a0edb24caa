/* The heap of a rank.
 *
 * Design note. The heap is a memfd of its own, large and sparse: pages are there once touched. It
 * is sealed against shrinking, so that a peer that reads a buffer while it is freed sees zeros and
 * never SIGBUS. It cannot carry the arena's seal against writable mappings, since that forbids
 * giving pages back too; peers map it read-only. A peer reads by offset, through one mapping for
 * the life of the connection: when a buffer is freed and its pages are used again, the peer sees
 * what is there now, whatever the addresses.
 *
 * Huge pages are asked for by advice, never reserved: the system gives what it has and small ones
 * else, and a page that is not there is never a signal. Pages of hugetlbfs would be: a peer that
 * reads a hole finds the pool empty. Peers get them by the file; both mappings are aligned for them
 * by the kernel where shared memory may have them.
 *
 * The mapping is made without access and opened afterwards, because a process that locks all its
 * future memory would otherwise get every page of it. */
#include "transports/shm/heap.h"

#include "base/place.h"
#include "transports/shm/layout.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <uthash.h>

struct shm_block {
    size_t offset, bytes;
    UT_hash_handle hh;
};

/* Any limit says that address space is short. */
static bool space_is_limited(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
}

static void *map(int fd, size_t bytes, int protection) {
    if (space_is_limited())
        return NULL;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED)
        return NULL;
    (void)munlock(base, bytes);
    (void)madvise(base, bytes, MADV_DONTDUMP); /* most of it is nothing */
    if (mprotect(base, bytes, protection) == 0)
        return base;
    munmap(base, bytes);
    return NULL;
}

void shm_heap_open(struct shm_heap *heap, bool huge) {
    *heap = (struct shm_heap){.fd = -1};
    pthread_mutex_init(&heap->lock, NULL);
    struct rlimit limit; /* growing the file beyond it would raise SIGXFSZ */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < SHM_HEAP_BYTES)
        return;
    int fd = memfd_create("rota-heap", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return;
    (void)fchmod(fd, 0600);
    if (ftruncate(fd, (off_t)SHM_HEAP_BYTES) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        goto close;
    heap->base = map(fd, SHM_HEAP_BYTES, PROT_READ | PROT_WRITE);
    if (!heap->base)
        goto close;
    if (!shm_ranges_open(&heap->free, 0, SHM_HEAP_BYTES)) {
        munmap(heap->base, SHM_HEAP_BYTES);
        heap->base = NULL;
        goto close;
    }
    place_memory("the heap", heap->base, SHM_HEAP_BYTES);
    if (huge) /* else what the system does unasked */
        (void)madvise(heap->base, SHM_HEAP_BYTES, MADV_HUGEPAGE);
    heap->bytes = SHM_HEAP_BYTES;
    heap->fd = fd;
    return;
close:
    close(fd);
}

void shm_heap_close(struct shm_heap *heap) {
    struct shm_block *block, *next;
    HASH_ITER(hh, heap->blocks, block, next) {
        HASH_DEL(heap->blocks, block);
        free(block);
    }
    if (heap->base)
        munmap(heap->base, heap->bytes);
    if (heap->fd >= 0)
        close(heap->fd);
    shm_ranges_close(&heap->free);
    pthread_mutex_destroy(&heap->lock);
}

void *shm_heap_allocate(struct shm_heap *heap, size_t bytes) {
    if (bytes > heap->bytes)
        return NULL;
    struct shm_block *block = calloc(1, sizeof *block);
    if (!block)
        return NULL;
    block->bytes = (bytes + SHM_PAGE - 1) / SHM_PAGE * SHM_PAGE;
    pthread_mutex_lock(&heap->lock);
    bool found = shm_ranges_take(&heap->free, block->bytes, &block->offset);
    if (found)
        HASH_ADD(hh, heap->blocks, offset, sizeof block->offset, block);
    pthread_mutex_unlock(&heap->lock);
    if (!found) {
        free(block);
        return NULL;
    }
    void *memory = heap->base + block->offset;
    (void)madvise(memory, block->bytes, MADV_DODUMP);
    return memory;
}

bool shm_heap_free(struct shm_heap *heap, void *memory) {
    uint64_t found = shm_heap_find(heap, memory, 0);
    if (!found)
        return false;
    size_t offset = found - 1;
    struct shm_block *block = NULL;
    pthread_mutex_lock(&heap->lock);
    HASH_FIND(hh, heap->blocks, &offset, sizeof offset, block);
    if (block)
        HASH_DEL(heap->blocks, block);
    pthread_mutex_unlock(&heap->lock);
    if (!block)
        return false;
    int saved = errno, failed;
    (void)madvise(memory, block->bytes, MADV_DONTDUMP);
    do
        failed = fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset,
                           (off_t)block->bytes);
    while (failed && errno == EINTR);
    errno = saved;
    pthread_mutex_lock(&heap->lock);
    shm_ranges_put(&heap->free, offset, block->bytes);
    pthread_mutex_unlock(&heap->lock);
    free(block);
    return true;
}

const uint8_t *shm_heap_map(int fd, size_t bytes) {
    struct stat file;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || fstat(fd, &file) != 0 || file.st_size < 0 ||
        (size_t)file.st_size != bytes || bytes > SHM_HEAP_BYTES)
        return NULL;
    return map(fd, bytes, PROT_READ);
}

void shm_heap_unmap(const uint8_t *base, size_t bytes) {
    if (base)
        munmap((void *)(uintptr_t)base, bytes);
}
