/* Free ranges of an address space. */
#include "transports/shm/ranges.h"

#include <stdlib.h>
#include <string.h>

bool shm_ranges_open(struct shm_ranges *ranges, size_t offset, size_t bytes) {
    *ranges = (struct shm_ranges){.room = 16};
    ranges->range = malloc(ranges->room * sizeof *ranges->range);
    if (!ranges->range)
        return false;
    ranges->range[0] = (struct shm_range){offset, bytes};
    ranges->count = 1;
    return true;
}

void shm_ranges_close(struct shm_ranges *ranges) {
    free(ranges->range);
    *ranges = (struct shm_ranges){0};
}

static void remove_at(struct shm_ranges *ranges, size_t i) {
    ranges->count--;
    memmove(&ranges->range[i], &ranges->range[i + 1], (ranges->count - i) * sizeof *ranges->range);
}

bool shm_ranges_take(struct shm_ranges *ranges, size_t bytes, size_t *offset) {
    for (size_t i = 0; i < ranges->count; i++) {
        struct shm_range *range = &ranges->range[i];
        if (range->bytes < bytes)
            continue;
        *offset = range->offset;
        range->offset += bytes;
        range->bytes -= bytes;
        if (range->bytes == 0)
            remove_at(ranges, i);
        return true;
    }
    return false;
}

void shm_ranges_put(struct shm_ranges *ranges, size_t offset, size_t bytes) {
    struct shm_range *range = ranges->range;
    size_t i = 0;
    while (i < ranges->count && range[i].offset < offset)
        i++;
    bool joins_left = i > 0 && range[i - 1].offset + range[i - 1].bytes == offset;
    bool joins_right = i < ranges->count && offset + bytes == range[i].offset;
    if (joins_left) {
        range[i - 1].bytes += bytes + (joins_right ? range[i].bytes : 0);
        if (joins_right)
            remove_at(ranges, i);
        return;
    }
    if (joins_right) {
        range[i].offset = offset;
        range[i].bytes += bytes;
        return;
    }
    if (ranges->count == ranges->room) {
        range = realloc(range, 2 * ranges->room * sizeof *range);
        if (!range)
            return;
        ranges->range = range;
        ranges->room *= 2;
    }
    memmove(&range[i + 1], &range[i], (ranges->count - i) * sizeof *range);
    range[i] = (struct shm_range){offset, bytes};
    ranges->count++;
}
