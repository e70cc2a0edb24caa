/* Memory for messages, slots and records: free lists by powers of two, last in first out so that
 * what comes back is warm in the cache. A little slack per class keeps a payload of exactly a
 * power of two, with its record, in the class of that power. */
#include "mux.h"

#include <stdlib.h>

#define POOL_SMALLEST ((size_t)256)
#define POOL_SLACK ((size_t)256)
#define POOL_CLASSES 24
/* Free memory kept for reuse; more is given back to the system. */
#define POOL_KEEP ((size_t)8 << 20)

struct mux_pool_entry {
    struct mux_pool_entry *next;
};

static int class_of(size_t bytes, size_t *size) {
    size_t limit = POOL_SMALLEST;
    int class = 0;
    while (bytes > limit + POOL_SLACK && class < POOL_CLASSES) {
        limit *= 2;
        class ++;
    }
    *size = limit + POOL_SLACK;
    return class;
}

void *mux_pool_get(struct mux_pool *pool, size_t bytes) {
    size_t size;
    int class = class_of(bytes, &size);
    if (class >= POOL_CLASSES)
        return NULL;
    struct mux_pool_entry *entry = pool->free[class];
    if (!entry)
        return aligned_alloc(64, size);
    pool->free[class] = entry->next;
    pool->cached -= size;
    return entry;
}

void mux_pool_put(struct mux_pool *pool, void *memory, size_t bytes) {
    size_t size;
    int class = class_of(bytes, &size);
    if (pool->cached + size > POOL_KEEP) {
        free(memory);
        return;
    }
    struct mux_pool_entry *entry = memory;
    entry->next = pool->free[class];
    pool->free[class] = entry;
    pool->cached += size;
}

void mux_pool_clear(struct mux_pool *pool) {
    for (int class = 0; class < POOL_CLASSES; class ++) {
        struct mux_pool_entry *entry;
        while ((entry = pool->free[class])) {
            pool->free[class] = entry->next;
            free(entry);
        }
    }
    pool->cached = 0;
}
