/* Spanning trees, the same share from every root. */
#ifndef TOPOLOGY_TREES_H
#define TOPOLOGY_TREES_H

#include "topology/rings.h"

struct topo_tree {
    int root, edge_count;
    int *parents, *children; /* of edges, a parent's own edge before */
    double share;
};

struct topo_trees {
    const char *kind, *bound_kind;
    int gpu_count, count, room;
    struct topo_tree *trees;
    double score, bound;
    bool optimal;
};

/* `rings` may be NULL; where trees cannot be packed exactly, those of the rings are taken. Errors:
 * ROTA_ERR_MEMORY. */
rota_status topo_find_trees(const struct topo *topo, const struct topo_rings *rings,
                            struct topo_trees *trees);
void topo_free_trees(struct topo_trees *trees);

#endif
