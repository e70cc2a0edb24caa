/* The shape of machines: what is connected to what, and the rings and trees that its links carry.
 * A topology comes from this machine or from a file: NCCL or RCCL topology XML, hwloc XML, the text
 * of `nvidia-smi topo -m`, or rota's own text for clusters. See docs/topology.md. */
#ifndef ROTA_TOPOLOGY_H
#define ROTA_TOPOLOGY_H

#include <rota/types.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A machine, or several, as a graph. Any thread may read it; one at a time may search rings or
 * trees in it. */
typedef struct rota_topo rota_topo;

/* How two devices reach each other, nearest first. */
typedef enum rota_path {
    ROTA_PATH_LOC = 0,  /* the same device */
    ROTA_PATH_LNK = 1,  /* NVLink or xGMI, direct or by a switch */
    ROTA_PATH_PIX = 2,  /* one PCI switch */
    ROTA_PATH_PXB = 3,  /* several PCI switches */
    ROTA_PATH_PHB = 4,  /* a host bridge (the CPU) */
    ROTA_PATH_NODE = 5, /* two host bridges of one NUMA node or package */
    ROTA_PATH_SYS = 6,  /* the link between NUMA nodes or packages */
    ROTA_PATH_NET = 7,  /* the network between hosts */
    ROTA_PATH_COUNT = 8
} rota_path;

/* "LOC", "LNK", ...; NULL for other values. */
ROTA_API const char *rota_path_name(rota_path path);

/* Reads a file, or asks this machine when path is NULL. The form of the file is found by its
 * content. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_SYSTEM (cannot be read), ROTA_ERR_FORMAT
 * (rota_last_error names file, place and what was expected), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_topo_load(const char *path, rota_topo **topo);

/* Reads a file of this machine and fills in what it lacks (links, models, speeds, names) by asking
 * the machine, where bus ids agree; warnings say what. Errors: as rota_topo_load. */
ROTA_API rota_status rota_topo_load_merged(const char *path, rota_topo **topo);

/* Reads `length` bytes of memory; `source` (may be NULL) is what messages call them. Errors: as
 * rota_topo_load. */
ROTA_API rota_status rota_topo_read(const char *bytes, size_t length, const char *source,
                                    rota_topo **topo);

/* Frees a topology. NULL is harmless. */
ROTA_API void rota_topo_free(rota_topo *topo);

/* What there is. Strings here and below live as long as the topology. */
typedef struct rota_topo_info {
    size_t size;
    const char *source; /* file, or "this machine" */
    int nodes;          /* of the tree of what holds what */
    int hosts, cpus;    /* cpus: NUMA nodes, else packages */
    int pci_switches;
    int gpus, nics, ports;    /* a NIC may have several ports */
    int nvswitches, switches; /* of GPUs, of the network */
    int warnings;
    double link_gbps;                    /* one direct link, one direction; 0 without links */
    const char *link_name;               /* "NVLink3", ... or "" */
    const char *link_source;             /* of the number */
    const char *machine;                 /* what hwloc says of CPUs and memory in a line, or "" */
    int cores, usable_cores, usable_pus; /* 0 where hwloc does not tell */
} rota_topo_info;

#define ROTA_TOPO_INFO_INIT ROTA_SIZED(rota_topo_info)

/* Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_topo_describe(const rota_topo *topo, rota_topo_info *info);

/* The i-th sentence on what is doubtful or was filled in; NULL past the end. */
ROTA_API const char *rota_topo_warning(const rota_topo *topo, int index);

typedef enum rota_topo_kind {
    ROTA_TOPO_HOST = 0,
    ROTA_TOPO_PACKAGE = 1,
    ROTA_TOPO_NUMA = 2,
    ROTA_TOPO_ROOT = 3, /* a host bridge: what PCI devices hang on */
    ROTA_TOPO_PCI = 4,  /* a PCI switch */
    ROTA_TOPO_GPU = 5,
    ROTA_TOPO_NIC = 6,
    ROTA_TOPO_PORT = 7, /* of a NIC: what traffic names, as mlx5_0 */
    ROTA_TOPO_NVSWITCH = 8,
    ROTA_TOPO_SWITCH = 9, /* of the network */
    ROTA_TOPO_GONE = 10   /* taken out: to be passed over */
} rota_topo_kind;

/* One node of the tree. */
typedef struct rota_topo_node {
    size_t size;
    rota_topo_kind kind;
    int parent, host;          /* node that holds it, number of its host; -1: none */
    int id;                    /* among GPUs or ports, -1 for others */
    int numa;                  /* -1 unknown */
    int lanes;                 /* PCI upward, 0 unknown */
    double gts, gbps;          /* per lane; GB/s of one direction, of a port its line; 0 unknown */
    const char *name, *bus_id; /* "" when unknown */
    const char *vendor;        /* of the CPU or device, "" when unknown */
    const char *cpus;          /* its own, as "0-3,8-11", NULL when not known */
    char label[96];            /* what messages call it: "GPU 3 (0000:0f:00.0)" */
} rota_topo_node;

#define ROTA_TOPO_NODE_INIT ROTA_SIZED(rota_topo_node)

/* Node 0 ... nodes - 1. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_topo_node_describe(const rota_topo *topo, int index,
                                             rota_topo_node *node);

/* One GPU. */
typedef struct rota_topo_gpu {
    size_t size;
    const char *bus_id, *name; /* "" when unknown */
    int host, numa;            /* numa -1 when unknown */
    int arch;                  /* compute capability times 10, gfx number; 0 when unknown */
    int switch_links;          /* links to NVSwitches */
    rota_path nearest_class;   /* of the nearest NIC ports; ROTA_PATH_COUNT when there is none */
    int nearest_count;         /* how many ports are that near */
    const int *nearest_ports;  /* them, those with the fewest steps first */
    const char *cpus;          /* near it, as "0-3,8-11"; NULL when not known */
} rota_topo_gpu;

#define ROTA_TOPO_GPU_INIT ROTA_SIZED(rota_topo_gpu)

/* GPU `gpu` of 0 ... gpus - 1: by rank where ranks are unique, else by device number, else by host
 * and bus id. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_topo_gpu_describe(const rota_topo *topo, int gpu, rota_topo_gpu *info);

/* Places for CPUs in rota_topo_cpus. */
#define ROTA_TOPO_CPUS 4096

/* Where a rank should run: sets of CPUs in the form that sched_setaffinity takes. CPUs beyond
 * ROTA_TOPO_CPUS are left out. */
typedef struct rota_topo_cpus {
    size_t size;
    int gpu; /* the GPU that they are near to, -1: none */
    /* Cores that no other rank gets, where there are enough, else one that several get. */
    unsigned long share[ROTA_TOPO_CPUS / (8 * sizeof(unsigned long))];
    /* All usable cores of the NUMA nodes that these belong to. */
    unsigned long near[ROTA_TOPO_CPUS / (8 * sizeof(unsigned long))];
} rota_topo_cpus;

#define ROTA_TOPO_CPUS_INIT ROTA_SIZED(rota_topo_cpus)

/* Where rank `rank` of `ranks` on this host should run, of the cores that the calling thread might
 * use when the topology was loaded: near the GPU of its number where there are GPUs for all, else
 * evenly over NUMA nodes. Binds nothing. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_UNSUPPORTED (nothing
 * is known of cores: only hwloc tells of them), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_topo_place(const rota_topo *topo, int rank, int ranks,
                                     rota_topo_cpus *cpus);

/* Name of NIC port 0 ... ports - 1, as "mlx5_0"; NULL past the end. */
ROTA_API const char *rota_topo_port_name(const rota_topo *topo, int port);

/* How GPU a reaches GPU b, and how a GPU reaches a NIC port. ROTA_PATH_COUNT for numbers that are
 * not there. */
ROTA_API rota_path rota_topo_gpu_path(const rota_topo *topo, int a, int b);
ROTA_API rota_path rota_topo_port_path(const rota_topo *topo, int gpu, int port);

/* Direct links from GPU a to GPU b; 0 when there are none. */
ROTA_API int rota_topo_links(const rota_topo *topo, int a, int b);

/* What a search found and what was proven. Scores are in links of one direction: a ring set scores
 * (sum of shares) / (highest load of a link). */
typedef struct rota_topo_result {
    size_t size;
    int count;              /* rings or trees */
    double score, bound;    /* of the set; proven upper bound */
    double score_gbps;      /* score times the speed of a link; where no link ring exists, the
                               narrowest hop of the ring by estimate */
    const char *kind;       /* "direct", "nvswitch", "nvswitch-incomplete", "islands", "pcie-only",
                               "hosts", "none" (fewer than two GPUs) */
    const char *bound_kind; /* "whole", "fractional", "hops", "cut" */
    bool optimal;           /* score reaches bound */
    int hops[ROTA_PATH_COUNT];       /* of the single ring, where bound_kind is "hops" */
    int bound_hops[ROTA_PATH_COUNT]; /* the fewest possible, where proven */
    int island_count;                /* of kind "islands" */
    int path_bound; /* whole rings, if hops between islands cost nothing; -1 not known */
} rota_topo_result;

#define ROTA_TOPO_RESULT_INIT ROTA_SIZED(rota_topo_result)

/* Finds rings: as many at once as the links carry, whole or shared by parts; where no ring of links
 * exists, the one with the fewest far hops. The result is kept in the topology. Errors:
 * ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_topo_find_rings(rota_topo *topo, rota_topo_result *result);
/* Finds spanning trees, the same share from every root: what pipelined all-gathers reach. */
ROTA_API rota_status rota_topo_find_trees(rota_topo *topo, rota_topo_result *result);

/* One directed ring. Arrays live until rings are searched again. */
typedef struct rota_topo_ring {
    size_t size;
    int gpu_count;
    const int *gpus; /* in the order of the ring, every GPU once */
    double share;    /* part of a link on each hop */
    double bandwidth_gbps;
    int port_count;   /* two per host where there are several: entry, exit */
    const int *ports; /* -1: none */
} rota_topo_ring;

#define ROTA_TOPO_RING_INIT ROTA_SIZED(rota_topo_ring)

/* Errors: ROTA_ERR_ARGUMENT (not searched yet, or no such ring). */
ROTA_API rota_status rota_topo_ring_describe(const rota_topo *topo, int index,
                                             rota_topo_ring *ring);

/* GPUs that links join, where these carry no ring through all of them. */
typedef struct rota_topo_island {
    size_t size;
    int gpu_count;
    const int *gpus; /* ascending; live until rings are searched again */
    int paths;       /* directed paths through all of it at once; -1: alone, or not known */
} rota_topo_island;

#define ROTA_TOPO_ISLAND_INIT ROTA_SIZED(rota_topo_island)

/* Errors: ROTA_ERR_ARGUMENT (not searched yet, or no such island). */
ROTA_API rota_status rota_topo_island_describe(const rota_topo *topo, int index,
                                               rota_topo_island *island);

/* One spanning tree. Edge i leads from parents[i] to children[i]; a parent's own edge comes first.
 */
typedef struct rota_topo_tree {
    size_t size;
    int root, edge_count;
    const int *parents, *children;
    double share; /* part of a link on each edge */
} rota_topo_tree;

#define ROTA_TOPO_TREE_INIT ROTA_SIZED(rota_topo_tree)

/* Errors: ROTA_ERR_ARGUMENT (not searched yet, or no such tree). */
ROTA_API rota_status rota_topo_tree_describe(const rota_topo *topo, int index,
                                             rota_topo_tree *tree);

/* Scores the rings of a NCCL graph file (NCCL_GRAPH_DUMP_FILE) on this topology. Errors:
 * ROTA_ERR_ARGUMENT, ROTA_ERR_SYSTEM, ROTA_ERR_FORMAT (also: it names a GPU that is not there, or
 * another number of GPUs), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_topo_judge(const rota_topo *topo, const char *graph_path,
                                     rota_topo_result *result);

typedef enum rota_topo_format { ROTA_TOPO_NCCL_XML = 0, ROTA_TOPO_HWLOC_XML = 1 } rota_topo_format;

/* Writes the topology in a form that others read. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_UNSUPPORTED
 * (the form cannot hold it), ROTA_ERR_SYSTEM (writing failed), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_topo_write(const rota_topo *topo, rota_topo_format format, FILE *out);

#ifdef __cplusplus
}
#endif
#endif
