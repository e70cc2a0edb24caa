/* Hamiltonian cycles in graphs that are too large for exact search: by way of cycle covers. */
#ifndef TOPOLOGY_COVERS_H
#define TOPOLOGY_COVERS_H

#include "topology/packing.h"

/* The least cut between vertex 0 and one of 1 ... ends - 1, in one direction: no set of directed
 * cycles through these scores more, where capacity[n * i + j] of them may take the arc i -> j. Of
 * very large graphs only the cuts around single vertices. Negative without memory. */
double covers_cut(int n, int ends, const int *capacity);

/* As many Hamiltonian cycles at once as the search finds, within 1 % of the bound if it can; fields
 * as those of packing_solve. The bound is that of cuts, and of arcs between any two sets of
 * vertices, of which each cycle needs some. False without memory. */
bool covers_pack(int n, const int *capacity, struct packed *result);

#endif
