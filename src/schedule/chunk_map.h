/* How a count of elements maps to the chunks of a block. */
#ifndef SCHEDULE_CHUNK_MAP_H
#define SCHEDULE_CHUNK_MAP_H

#include <stddef.h>
#include <stdint.h>

/* Slices of a chunk begin at multiples of this many elements, so that every slice of every type
 * begins at a whole cache line relative to its chunk. */
#define CHUNK_QUANTUM 64

/* First element of chunk `sub` of `chunks` in a block of `count` elements; `sub` == chunks gives
 * count. Whole quanta are dealt out evenly and the last chunk takes the rest; blocks with fewer
 * quanta than chunks are dealt out by the element. */
static inline size_t chunk_begin(size_t count, uint32_t chunks, uint32_t sub) {
    if (sub >= chunks)
        return count;
    size_t quanta = count / CHUNK_QUANTUM;
    size_t whole = quanta >= chunks ? quanta : count;
    size_t unit = quanta >= chunks ? CHUNK_QUANTUM : 1;
    size_t share = whole / chunks, rest = whole % chunks;
    return (share * sub + (sub < rest ? sub : rest)) * unit;
}

static inline size_t chunk_length(size_t count, uint32_t chunks, uint32_t sub) {
    return chunk_begin(count, chunks, sub + 1) - chunk_begin(count, chunks, sub);
}

#endif
