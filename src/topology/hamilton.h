/* Cheapest Hamiltonian cycles: what every search for rings comes down to. */
#ifndef TOPOLOGY_HAMILTON_H
#define TOPOLOGY_HAMILTON_H

#include <stdbool.h>
#include <stdint.h>

/* Above this many vertices the exact method takes too much memory (2^(n-1) * n * 9 bytes). */
#define HAMILTON_EXACT 17

/* An arc that is not there. */
#define HAMILTON_NONE 1e300

struct hamilton {
    int n;
    double *cost; /* states: [set of vertices 1 ... n-1][last] */
    int8_t *from; /* the vertex before, per state */
};

/* For graphs of n vertices, 2 <= n <= HAMILTON_EXACT. False without memory. */
bool hamilton_init(struct hamilton *search, int n);
void hamilton_free(struct hamilton *search);

/* Cheapest cycle under weights[n * i + j] >= 0 (HAMILTON_NONE: no arc). Writes up to `most` cycles,
 * the cheapest for each last vertex, best first, each n vertices beginning with 0; their costs into
 * `costs`. Returns how many; 0 when the graph has no Hamiltonian cycle. */
int hamilton_best(struct hamilton *search, const double *weights, int most, int *cycles,
                  double *costs);

/* A short cycle for larger graphs, without a proof: nearest neighbour, then moves of segments as
 * long as they help. Writes n vertices. Arcs that are not there must have a finite high weight. */
void hamilton_short(int n, const double *weights, int *cycle);
/* Up to `most` tries, each from another start, by extending and rotating paths (Posa), to find any
 * cycle on arcs with weight below HAMILTON_NONE; lighter arcs are preferred. Deterministic. False
 * when none was found. */
bool hamilton_any(int n, const double *weights, int most, uint64_t seed, int *cycle);
/* The next of the numbers that searches draw. */
uint64_t hamilton_random(uint64_t *state);

#endif
