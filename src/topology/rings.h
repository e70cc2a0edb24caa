/* Rings: what a search found, and the bound beside it. */
#ifndef TOPOLOGY_RINGS_H
#define TOPOLOGY_RINGS_H

#include "topology/graph.h"

struct topo_ring {
    int *gpus; /* every GPU once */
    double share, gbps;
    int *ports; /* entry and exit of each host that the ring passes, in its order; -1 none */
};

/* GPUs that links join, where these carry no ring through all of them. */
struct topo_island {
    int *gpus, count;
    int paths; /* simultaneous directed paths through all of it, -1: alone, or not known */
};

struct topo_rings {
    const char *kind, *bound_kind; /* as rota_topo_result has them */
    int gpu_count, port_count;     /* per ring */
    int count;
    struct topo_ring *rings;
    double score, bound, score_gbps;
    bool optimal;
    int hops[ROTA_PATH_COUNT], bound_hops[ROTA_PATH_COUNT];
    int island_count;
    struct topo_island *islands;
    int path_bound; /* rings, if hops between islands cost nothing; -1 not known */
};

/* Errors: ROTA_ERR_MEMORY. */
rota_status topo_find_rings(const struct topo *topo, struct topo_rings *rings);
void topo_free_rings(struct topo_rings *rings);

/* For the search among several hosts (hosts.c). */
rota_status topo_find_host_rings(const struct topo *topo, struct topo_rings *rings);
/* What trees through several hosts cannot exceed: the cuts around single hosts, through their NICs.
 * In links (GB/s without); infinite where no NIC is known. */
double topo_host_cut_bound(const struct topo *topo);
/* Appends a ring with room for its GPUs and ports; NULL without memory. */
struct topo_ring *topo_add_ring(struct topo_rings *rings, double share);
/* What joins these GPUs: "direct" (links with a Hamiltonian cycle), "nvswitch", ... */
const char *topo_ring_kind(const struct topo *topo, const int *gpus, int count);
/* The order of GPUs with the fewest far hops; a cycle, or a path when `open`. */
bool topo_short_order(const struct topo *topo, const int *gpus, int count, bool open, bool links,
                      int *order);

/* The rings of a NCCL graph file, as device numbers: `count` of `width` each. */
struct topo_graph_file {
    int count, width;
    int *devices;
};
rota_status topo_read_graph(const char *source, const char *bytes, size_t length,
                            struct topo_graph_file *file);
void topo_free_graph(struct topo_graph_file *file);
/* Scores its rings on the topology. Errors: ROTA_ERR_FORMAT when they do not fit. */
rota_status topo_judge(const struct topo *topo, const char *source,
                       const struct topo_graph_file *file, struct topo_rings *rings);
/* Fills score, hops, score_gbps from the rings, by loads of links. */
bool topo_score(const struct topo *topo, struct topo_rings *rings);

/* The links among these GPUs as arcs of paths: `open` (packing.h). */
struct packing;
bool topo_pack_paths(const struct topo *topo, const int *gpus, int count, struct packing *problem);

#endif
