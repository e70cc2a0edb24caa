/* The data of the check: inputs that differ by rank and position, and the exact result of reducing
 * them, which does not depend on the order of summation.
 *
 * Design: all data of a rank repeat with the period PATTERN_PERIOD, a prime, so that no slice or
 * block of a power of two falls on an equal one. One period is worked out element by element;
 * from then on filling and checking are memcpy and memcmp of a tile of a few whole periods. The
 * result is computed here from the documented rules of each operator, not by the library. */
#ifndef BENCH_PATTERN_H
#define BENCH_PATTERN_H

#include <rota/rota.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PATTERN_PERIOD 1021u
/* Elements of a tile: enough periods for 8 KiB of the narrowest type, and one more to begin at
 * any phase. */
#define PATTERN_RUN (8u * PATTERN_PERIOD)
#define PATTERN_TILE (PATTERN_RUN + PATTERN_PERIOD)
#define PATTERN_POISON 0xa5

struct pattern_tile {
    bool valid;
    rota_dtype dtype;
    rota_op op; /* PATTERN_NO_OP: data are only moved */
    int nranks;
    int origin; /* rank whose input it is, or one of: */
    _Alignas(64) unsigned char bytes[PATTERN_TILE * 16];
};
#define PATTERN_RESULT (-1)
#define PATTERN_POISONED (-2)
/* Result over the first k ranks; the last of these numbers. */
#define PATTERN_PREFIX(k) (-2 - (k))
#define PATTERN_NO_OP ROTA_OP_COUNT

/* Makes `tile` hold one rank's input, the result, or poison; cheap when it does already. */
void pattern_tile_set(struct pattern_tile *tile, rota_dtype dtype, rota_op op, int nranks,
                      int origin);
/* Writes count elements that begin at phase `phase` of the tile. */
void pattern_fill(const struct pattern_tile *tile, void *data, size_t count, uint32_t phase);
/* Number of elements that differ from the tile; *first is set to the first of them. */
size_t pattern_compare(const struct pattern_tile *tile, const void *data, size_t count,
                       uint32_t phase, size_t *first);

/* Input of --hash: seeded values of both signs over ten binades, without period. */
void pattern_fill_order_dependent(void *data, size_t count, rota_dtype dtype, int rank);

#endif
