/* As many Hamiltonian cycles at once as capacities allow. */
#ifndef TOPOLOGY_PACKING_H
#define TOPOLOGY_PACKING_H

#include <stdbool.h>

/* States looked at in exact searches: some seconds, that links of machines that exist do not take.
 * What was found until then counts, and the bound that the last prices prove. */
#define PACKING_STATES 3e9

#define PACKING_FREE (-1) /* an arc without limit */
#define PACKING_NONE (-2) /* no arc */

/* Vertices 0 ... n-1. Arc i -> j uses one unit of row[n * i + j]. */
struct packing {
    int n, rows;
    int *row;
    double *capacity;
};

/* Cycles with their shares; each begins with 0. */
struct packed {
    int n, count;
    int *cycles;
    double *shares;
    double score;  /* sum of shares: fits the capacities */
    double bound;  /* proven: no set of cycles scores more */
    double states; /* looked at to find them */
};

/* An arc with a row of its own from i to j where capacity[n * i + j] is above 0. `open`: with one
 * vertex more, 0, which free arcs join with all others, 1 ... n. There is room for 2 n + 2 further
 * rows. To be freed whatever it returns; false without memory. */
bool packing_describe(struct packing *problem, int n, const int *capacity, bool open);
void packing_forget(struct packing *problem);
/* For at most HAMILTON_EXACT vertices; with a pool (else NULL), of its cycles alone, whatever the
 * number of vertices, and nothing is proven of the bound. All fields zero when there is no cycle at
 * all. False without memory. */
bool packing_solve(const struct packing *problem, const struct packed *pool, struct packed *result);
/* Whole cycles (shares are whole numbers), `wanted` of them; false when none were found within a
 * fixed amount of work (or without memory). */
bool packing_whole(const struct packing *problem, int wanted, struct packed *result);
void packing_free(struct packed *result);

#endif
