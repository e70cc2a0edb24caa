/* The graph that every reader fills and every search looks at: devices in a tree of what contains
 * what (host, package, NUMA node, PCI), and links across it (NVLink, xGMI, switches). */
#ifndef TOPOLOGY_GRAPH_H
#define TOPOLOGY_GRAPH_H

#include "topology/machine.h"

#include <hwloc.h>
#include <rota/topology.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum topo_kind { /* as users have it */
                 TOPO_HOST = ROTA_TOPO_HOST,
                 TOPO_PACKAGE = ROTA_TOPO_PACKAGE,
                 TOPO_NUMA = ROTA_TOPO_NUMA,
                 TOPO_ROOT = ROTA_TOPO_ROOT,
                 TOPO_PCI = ROTA_TOPO_PCI, /* while reading also a device not yet told apart */
                 TOPO_GPU = ROTA_TOPO_GPU,
                 TOPO_NIC = ROTA_TOPO_NIC,
                 TOPO_PORT = ROTA_TOPO_PORT,
                 TOPO_NVSWITCH = ROTA_TOPO_NVSWITCH,
                 TOPO_SWITCH = ROTA_TOPO_SWITCH,
                 TOPO_GONE = ROTA_TOPO_GONE,
};

/* What kind of direct link joins GPUs. */
enum topo_brand { TOPO_NVLINK, TOPO_XGMI };

struct topo_node {
    enum topo_kind kind;
    int parent;     /* index of the node that holds it, -1: none (hosts, network switches) */
    int host;       /* number of its host, -1: none */
    int id;         /* number among GPUs or ports, -1 for others */
    int numa;       /* number of the NUMA node that the source gives, -1 unknown */
    int column;     /* in given_classes, -1: none */
    int rank, dev;  /* of GPUs and ports, as the source gives them, -1: not */
    int arch;       /* of GPUs: compute capability times 10, or gfx number (942); 0 unknown */
    int self_links; /* of GPUs: links that the source says lead to the GPU itself */
    int lanes;      /* PCI lanes upward, 0 unknown */
    double gbps;    /* PCI upward, or a port's line: GB/s of one direction, 0 unknown */
    double gts;     /* PCI transfers per second and lane, in 10^9, 0 unknown */
    uint32_t pci_class, vendor, device, family, model;
    char name[64], busid[32], arch_name[16], vendor_name[32];
    hwloc_bitmap_t cpus; /* of NUMA nodes and packages, NULL unknown */
};

/* `count` links from one node to another, one direction. */
struct topo_link {
    int from, to, count;
};

/* A core that this process may use, in the order of nearness that hwloc gives. */
struct topo_core {
    hwloc_bitmap_t cpus;
    int numa; /* of a node with memory, -1 not known */
};

#define TOPO_MAX_WARNINGS 256

struct topo {
    char source[256];
    bool is_this_machine;
    struct topo_node *nodes;
    int node_count, node_room;
    struct topo_link *links;
    int link_count, link_room;
    struct topo_core *cores; /* of one host, where hwloc tells of it */
    int core_count;
    char **warnings;
    int warning_count, warnings_dropped;
    bool no_memory;     /* some addition failed: what was read is not whole */
    double fabric_gbps; /* of one link between network switches, 0: they carry all that comes */

    /* Set by topo_finish. */
    int host_count, gpu_count, port_count;
    int *gpus, *ports; /* node indices in the order of ids */
    enum topo_brand brand;
    double link_gbps;      /* of one direct link, one direction */
    const char *link_name; /* "NVLink3", ... */
    const char *link_from; /* source of the number */
    int *matrix;           /* gpu_count squared: direct links i -> j */
    int *switch_links;     /* links of a GPU to NVSwitches, per GPU */
    uint8_t *classes;      /* (gpu_count + port_count) squared: enum rota_path; above it, shifted
                              by 4, the one that the tree alone gives */
    int *nearest, *nearest_first; /* ports next to GPU i: from nearest_first[i] to before [i + 1] */
    uint8_t *given_classes; /* where the source gives classes itself: given_width squared, in its
                               own order (node.column); else NULL */
    int given_width;
    struct topo_machine machine;
    bool has_machine;
};

struct topo *topo_create(const char *source);
void topo_destroy(struct topo *topo);
/* Index of the new node, -1 without memory. Pointers to nodes are stale after it. */
int topo_add_node(struct topo *topo, enum topo_kind kind, int parent);
/* Several between the same nodes add up; nothing for count 0. */
void topo_add_link(struct topo *topo, int from, int to, int count);
/* A sentence about what is doubtful, missing or was filled in. The same one is kept once. */
void topo_warn(struct topo *topo, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The host with that key, made when new. */
int topo_host_named(struct topo *topo, const char *name);
/* One whose key is known to be new. */
int topo_add_host(struct topo *topo, const char *name);
/* Copies at most size - 1 bytes, unprintable ones as '?'. */
void topo_copy_text(char *to, size_t size, const char *from);
/* The node of `kind` at or above `node`, -1: none. */
int topo_above(const struct topo *topo, int node, enum topo_kind kind);
/* Nodes above it. */
int topo_depth(const struct topo *topo, int node);
/* "NIC3", "mlx5_3" -> 3; -1: no number at the end. */
int topo_trailing_number(const char *name);
const char *topo_kind_name(enum topo_kind kind);
/* "GPU 3 (0000:0f:00.0)", in one of several static-free buffers that the caller gives. */
const char *topo_node_label(const struct topo *topo, int node, char text[96]);

/* Numbers GPUs and ports, fills in what is missing, computes links and classes, and adds what looks
 * doubtful to the warnings. After it the graph does not change. Errors: ROTA_ERR_MEMORY,
 * ROTA_ERR_FORMAT. */
rota_status topo_finish(struct topo *topo);

/* machine.c: loads this machine without touching any binding; describes what was loaded. */
rota_status topo_machine_open(hwloc_topology_t topology);
rota_status topo_machine_describe(hwloc_topology_t topology, struct topo_machine *machine);
/* What this thread may run on: its mask, cut by the cpuset; of another machine all of it. */
rota_status topo_machine_usable(hwloc_topology_t topology, hwloc_bitmap_t usable);

/* place.c: where rank `rank` of `ranks` on this host runs: `share`, cores that no other rank gets
 * if there are enough, and `near`, all cores of their NUMA nodes. *gpu is the GPU that both are
 * near to, -1 none. False when cores are not known, or without memory. */
bool topo_place(const struct topo *topo, int ranks, int rank, hwloc_bitmap_t share,
                hwloc_bitmap_t near, int *gpu);

/* The CPUs next to a node: its own, or of what holds it. NULL: not known. */
hwloc_const_bitmap_t topo_near_cpus(const struct topo *topo, int node);

/* paths.c */
/* GB/s of one direction between two GPUs off the links: the narrowest part of the way. */
double topo_path_gbps(const struct topo *topo, int a, int b);
static inline int topo_both_classes(const struct topo *topo, int a, int b) {
    return topo->classes[(size_t)a * (size_t)(topo->gpu_count + topo->port_count) + (size_t)b];
}
static inline rota_path topo_gpu_class(const struct topo *topo, int a, int b) {
    return (rota_path)(topo_both_classes(topo, a, b) & 15);
}
/* As if there were no links between GPUs. */
static inline rota_path topo_tree_class(const struct topo *topo, int a, int b) {
    return (rota_path)(topo_both_classes(topo, a, b) >> 4);
}
static inline rota_path topo_port_class(const struct topo *topo, int gpu, int port) {
    return topo_gpu_class(topo, gpu, topo->gpu_count + port);
}
static inline int topo_links(const struct topo *topo, int from, int to) {
    return topo->matrix[from * topo->gpu_count + to];
}
/* Whether the GPU reaches others through an NVSwitch. */
static inline bool topo_on_switch(const struct topo *topo, int gpu) {
    return topo->switch_links[gpu] > 0;
}
/* Ports of the best class for the GPU, those with the fewest steps first. */
static inline const int *topo_nearest_ports(const struct topo *topo, int gpu, int *count) {
    *count = topo->nearest_first[gpu + 1] - topo->nearest_first[gpu];
    return &topo->nearest[topo->nearest_first[gpu]];
}
/* Their class, ROTA_PATH_COUNT where there is none. */
static inline rota_path topo_nearest_class(const struct topo *topo, int gpu) {
    int count;
    const int *ports = topo_nearest_ports(topo, gpu, &count);
    return count > 0 ? topo_port_class(topo, gpu, ports[0]) : ROTA_PATH_COUNT;
}

/* classes.c: the table of links */
double topo_link_speed(enum topo_brand brand, int arch, const char **name, const char **source);
/* Line rate of one NVLink of the GPU in MB/s, as hwloc's matrices count. */
unsigned topo_nvlink_mbps(const struct topo_node *gpu);
double topo_cpu_speed(const struct topo_node *cpu, const char **source);
double topo_pci_speed(double gts, int lanes);

/* doubts.c */
rota_status topo_find_doubts(struct topo *topo);

/* Readers. `length` bytes are not followed by a NUL. Errors: ROTA_ERR_FORMAT naming the source,
 * ROTA_ERR_MEMORY. The graph is not finished yet. */
rota_status topo_read_nccl(struct topo *topo, const char *bytes, size_t length);
rota_status topo_read_hwloc(struct topo *topo, const char *bytes, size_t length);
rota_status topo_read_matrix(struct topo *topo, const char *bytes, size_t length);
rota_status topo_read_cluster(struct topo *topo, const char *bytes, size_t length);
rota_status topo_read_machine(struct topo *topo);
/* Adds NVLinks and compute capabilities of this machine where NVML is there. */
void topo_read_nvml(struct topo *topo);
/* The whole file; *bytes is the caller's to free, with a NUL behind. Errors: ROTA_ERR_SYSTEM,
 * ROTA_ERR_FORMAT (no regular file, too large), ROTA_ERR_MEMORY. */
rota_status topo_read_file(const char *path, char **bytes, size_t *length);
/* Files are at most this large: the largest real one has 0.2 MiB. */
#define TOPO_MAX_FILE ((size_t)64 << 20)
/* Finds the form of the bytes and reads them. */
rota_status topo_read(struct topo *topo, const char *bytes, size_t length);

/* Fills in from `machine`, read like `topo` and not finished, what the file lacks. */
void topo_merge(struct topo *topo, const struct topo *machine);

/* Writers. Errors: ROTA_ERR_SYSTEM. */
rota_status topo_write_nccl(const struct topo *topo, FILE *out);
rota_status topo_write_hwloc(const struct topo *topo, FILE *out);

#endif
