/* Public entry points for topologies. Nothing here touches a communicator. */
#include <rota/topology.h>

#include "base/error.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <stdlib.h>
#include <string.h>

struct rota_topo {
    struct topo *graph;
    char machine[256];
    char **cpus; /* by node, NULL unknown */
    bool has_rings;
    struct topo_rings rings;
    struct topo_trees trees;
};

static rota_status merge_machine(struct topo *graph) {
    struct topo *machine = topo_create("this machine");
    if (machine == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a topology");
    rota_status status = topo_read_machine(machine);
    if (status == ROTA_OK)
        topo_merge(graph, machine);
    topo_destroy(machine);
    return status;
}

/* Sets of CPUs as text. */
static bool write_cpus(rota_topo *topo) {
    int count = topo->graph->node_count;
    topo->cpus = calloc((size_t)count + 1, sizeof(*topo->cpus));
    for (int i = 0; i < count && topo->cpus != NULL; i++) {
        hwloc_const_bitmap_t cpus = topo->graph->nodes[i].cpus;
        if (cpus != NULL && hwloc_bitmap_list_asprintf(&topo->cpus[i], cpus) < 0)
            return false;
    }
    return topo->cpus != NULL;
}

/* bytes NULL: this machine. */
static rota_status make(const char *bytes, size_t length, const char *source, bool merged,
                        rota_topo **topo) {
    rota_topo *made = calloc(1, sizeof *made);
    if (made != NULL)
        made->graph = topo_create(source);
    if (made == NULL || made->graph == NULL) {
        free(made);
        return error_raise(ROTA_ERR_MEMORY, "no memory for a topology");
    }
    rota_status status =
        bytes == NULL ? topo_read_machine(made->graph) : topo_read(made->graph, bytes, length);
    if (status == ROTA_OK && merged)
        status = merge_machine(made->graph);
    if (status == ROTA_OK)
        status = topo_finish(made->graph);
    if (status == ROTA_OK && !write_cpus(made))
        status = error_raise(ROTA_ERR_MEMORY, "no memory for a topology");
    if (made->graph->has_machine)
        topo_machine_text(&made->graph->machine, made->machine, sizeof made->machine);
    if (status != ROTA_OK) {
        rota_topo_free(made);
        return status;
    }
    *topo = made;
    return ROTA_OK;
}

static rota_status load_file(const char *path, bool merged, rota_topo **topo) {
    char *bytes = NULL;
    size_t length = 0;
    rota_status status = topo_read_file(path, &bytes, &length);
    if (status == ROTA_OK)
        status = make(bytes, length, path, merged, topo);
    free(bytes);
    return status;
}

rota_status rota_topo_load(const char *path, rota_topo **topo) {
    if (topo == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_load: topo is NULL");
    return path == NULL ? make(NULL, 0, "this machine", false, topo) : load_file(path, false, topo);
}

rota_status rota_topo_load_merged(const char *path, rota_topo **topo) {
    if (path == NULL || topo == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_load_merged: expected a path and where to "
                                              "put the topology");
    return load_file(path, true, topo);
}

rota_status rota_topo_read(const char *bytes, size_t length, const char *source, rota_topo **topo) {
    if (bytes == NULL || topo == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_read: expected bytes and where to put the "
                                              "topology");
    if (length > TOPO_MAX_FILE)
        return error_raise(ROTA_ERR_FORMAT, "rota_topo_read: expected at most %zu MiB",
                           TOPO_MAX_FILE >> 20);
    return make(bytes, length, source != NULL ? source : "(memory)", false, topo);
}

void rota_topo_free(rota_topo *topo) {
    if (topo == NULL)
        return;
    topo_free_rings(&topo->rings);
    topo_free_trees(&topo->trees);
    for (int i = 0; i < topo->graph->node_count && topo->cpus != NULL; i++)
        free(topo->cpus[i]);
    free(topo->cpus);
    topo_destroy(topo->graph);
    free(topo);
}

rota_status rota_topo_describe(const rota_topo *topo, rota_topo_info *info) {
    if (topo == NULL || info == NULL || info->size < sizeof *info)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_describe: expected a topology and an info "
                                              "with its size set");
    const struct topo *graph = topo->graph;
    int of[TOPO_GONE + 1] = {0};
    for (int i = 0; i < graph->node_count; i++)
        of[graph->nodes[i].kind]++;
    *info = (rota_topo_info){
        .size = info->size,
        .source = graph->source,
        .nodes = graph->node_count,
        .hosts = of[TOPO_HOST],
        .cpus = of[TOPO_NUMA] > 0 ? of[TOPO_NUMA] : of[TOPO_PACKAGE],
        .pci_switches = of[TOPO_PCI],
        .gpus = of[TOPO_GPU],
        .nics = of[TOPO_NIC],
        .ports = of[TOPO_PORT],
        .nvswitches = of[TOPO_NVSWITCH],
        .switches = of[TOPO_SWITCH],
        .warnings = graph->warning_count,
        .link_gbps = graph->link_gbps,
        .link_name = graph->link_name,
        .link_source = graph->link_from,
        .machine = topo->machine,
        .cores = graph->machine.cores,
        .usable_cores = graph->machine.usable_cores,
        .usable_pus = graph->machine.usable_pus,
    };
    return ROTA_OK;
}

const char *rota_topo_warning(const rota_topo *topo, int index) {
    return topo != NULL && index >= 0 && index < topo->graph->warning_count
               ? topo->graph->warnings[index]
               : NULL;
}

static bool has_gpu(const rota_topo *topo, int gpu) {
    return topo != NULL && gpu >= 0 && gpu < topo->graph->gpu_count;
}

rota_status rota_topo_node_describe(const rota_topo *topo, int index, rota_topo_node *node) {
    if (topo == NULL || index < 0 || index >= topo->graph->node_count || node == NULL ||
        node->size < sizeof *node)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_node_describe: expected a topology, a node of it and where "
                           "to describe it with its size set");
    const struct topo_node *found = &topo->graph->nodes[index];
    *node = (rota_topo_node){
        .size = node->size,
        .kind = (rota_topo_kind)found->kind,
        .parent = found->parent,
        .host = found->host,
        .id = found->id,
        .numa = found->numa,
        .lanes = found->lanes,
        .gts = found->gts,
        .gbps = found->gbps,
        .name = found->name,
        .bus_id = found->busid,
        .vendor = found->vendor_name,
        .cpus = topo->cpus[index],
    };
    topo_node_label(topo->graph, index, node->label);
    return ROTA_OK;
}

rota_status rota_topo_gpu_describe(const rota_topo *topo, int gpu, rota_topo_gpu *info) {
    if (!has_gpu(topo, gpu) || info == NULL || info->size < sizeof *info)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_gpu_describe: expected a topology, a GPU of it and an info "
                           "with its size set");
    const struct topo *graph = topo->graph;
    const struct topo_node *node = &graph->nodes[graph->gpus[gpu]];
    int count, near = graph->gpus[gpu];
    const int *ports = topo_nearest_ports(graph, gpu, &count);
    while (near >= 0 && graph->nodes[near].cpus == NULL)
        near = graph->nodes[near].parent;
    *info = (rota_topo_gpu){
        .size = info->size,
        .bus_id = node->busid,
        .name = node->name,
        .host = node->host,
        .numa = node->numa,
        .arch = node->arch,
        .switch_links = graph->switch_links[gpu],
        .nearest_class = topo_nearest_class(graph, gpu),
        .nearest_count = count,
        .nearest_ports = ports,
        .cpus = near < 0 ? NULL : topo->cpus[near],
    };
    return ROTA_OK;
}

static void copy_set(hwloc_const_bitmap_t set, unsigned long *words) {
    const unsigned bits = 8 * sizeof(*words);
    for (int cpu = hwloc_bitmap_first(set); cpu >= 0 && cpu < ROTA_TOPO_CPUS;
         cpu = hwloc_bitmap_next(set, cpu))
        words[(unsigned)cpu / bits] |= 1ul << (unsigned)cpu % bits;
}

rota_status rota_topo_place(const rota_topo *topo, int rank, int ranks, rota_topo_cpus *cpus) {
    if (topo == NULL || cpus == NULL || cpus->size < sizeof *cpus || rank < 0 || rank >= ranks)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_place: expected a topology, a rank of 0 ... ranks - 1 and "
                           "where to put the CPUs with its size set");
    if (topo->graph->core_count == 0)
        return error_raise(ROTA_ERR_UNSUPPORTED, "nothing is known of the cores of %.150s",
                           topo->graph->source);
    rota_topo_cpus found = {.size = cpus->size};
    hwloc_bitmap_t share = hwloc_bitmap_alloc(), near = hwloc_bitmap_alloc();
    bool fine = share != NULL && near != NULL &&
                topo_place(topo->graph, ranks, rank, share, near, &found.gpu);
    if (fine) {
        copy_set(share, found.share);
        copy_set(near, found.near);
        *cpus = found;
    }
    hwloc_bitmap_free(share);
    hwloc_bitmap_free(near);
    return fine ? ROTA_OK : error_raise(ROTA_ERR_MEMORY, "no memory to place ranks");
}

const char *rota_topo_port_name(const rota_topo *topo, int port) {
    return topo != NULL && port >= 0 && port < topo->graph->port_count
               ? topo->graph->nodes[topo->graph->ports[port]].name
               : NULL;
}

rota_path rota_topo_gpu_path(const rota_topo *topo, int a, int b) {
    return has_gpu(topo, a) && has_gpu(topo, b) ? topo_gpu_class(topo->graph, a, b)
                                                : ROTA_PATH_COUNT;
}

rota_path rota_topo_port_path(const rota_topo *topo, int gpu, int port) {
    return has_gpu(topo, gpu) && port >= 0 && port < topo->graph->port_count
               ? topo_port_class(topo->graph, gpu, port)
               : ROTA_PATH_COUNT;
}

int rota_topo_links(const rota_topo *topo, int a, int b) {
    return has_gpu(topo, a) && has_gpu(topo, b) ? topo_links(topo->graph, a, b) : 0;
}

static void fill_result(const struct topo_rings *rings, rota_topo_result *result) {
    *result = (rota_topo_result){
        .size = result->size,
        .count = rings->count,
        .score = rings->score,
        .bound = rings->bound,
        .score_gbps = rings->score_gbps,
        .kind = rings->kind,
        .bound_kind = rings->bound_kind,
        .optimal = rings->optimal,
    };
    result->island_count = rings->island_count;
    result->path_bound = rings->path_bound;
    memcpy(result->hops, rings->hops, sizeof result->hops);
    memcpy(result->bound_hops, rings->bound_hops, sizeof result->bound_hops);
}

rota_status rota_topo_find_rings(rota_topo *topo, rota_topo_result *result) {
    struct topo_rings found;
    if (topo == NULL || result == NULL || result->size < sizeof *result)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_find_rings: expected a topology and a "
                                              "result with its size set");
    rota_status status = topo_find_rings(topo->graph, &found);
    if (status != ROTA_OK)
        return status;
    topo_free_rings(&topo->rings);
    topo->rings = found;
    topo->has_rings = true;
    fill_result(&topo->rings, result);
    return ROTA_OK;
}

rota_status rota_topo_find_trees(rota_topo *topo, rota_topo_result *result) {
    struct topo_trees found;
    if (topo == NULL || result == NULL || result->size < sizeof *result)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_find_trees: expected a topology and a "
                                              "result with its size set");
    rota_status status =
        topo_find_trees(topo->graph, topo->has_rings ? &topo->rings : NULL, &found);
    if (status != ROTA_OK)
        return status;
    topo_free_trees(&topo->trees);
    topo->trees = found;
    *result = (rota_topo_result){
        .size = result->size,
        .count = found.count,
        .score = found.score,
        .bound = found.bound,
        .score_gbps = found.score * topo->graph->link_gbps,
        .kind = found.kind,
        .bound_kind = found.bound_kind,
        .optimal = found.optimal,
    };
    return ROTA_OK;
}

rota_status rota_topo_ring_describe(const rota_topo *topo, int index, rota_topo_ring *ring) {
    if (topo == NULL || ring == NULL || ring->size < sizeof *ring || index < 0 ||
        index >= topo->rings.count)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_ring_describe: expected a topology, the "
                           "number of a ring found and a ring with its size set");
    const struct topo_ring *found = &topo->rings.rings[index];
    *ring = (rota_topo_ring){
        .size = ring->size,
        .gpu_count = topo->rings.gpu_count,
        .gpus = found->gpus,
        .share = found->share,
        .bandwidth_gbps = found->gbps,
        .port_count = topo->rings.port_count,
        .ports = found->ports,
    };
    return ROTA_OK;
}

rota_status rota_topo_island_describe(const rota_topo *topo, int index, rota_topo_island *island) {
    if (topo == NULL || island == NULL || island->size < sizeof *island || index < 0 ||
        index >= topo->rings.island_count)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_island_describe: expected a topology, the number of an "
                           "island found and an island with its size set");
    const struct topo_island *found = &topo->rings.islands[index];
    *island = (rota_topo_island){.size = island->size,
                                 .gpu_count = found->count,
                                 .gpus = found->gpus,
                                 .paths = found->paths};
    return ROTA_OK;
}

rota_status rota_topo_tree_describe(const rota_topo *topo, int index, rota_topo_tree *tree) {
    if (topo == NULL || tree == NULL || tree->size < sizeof *tree || index < 0 ||
        index >= topo->trees.count)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "rota_topo_tree_describe: expected a topology, the "
                           "number of a tree found and a tree with its size set");
    const struct topo_tree *found = &topo->trees.trees[index];
    *tree = (rota_topo_tree){
        .size = tree->size,
        .root = found->root,
        .edge_count = found->edge_count,
        .parents = found->parents,
        .children = found->children,
        .share = found->share,
    };
    return ROTA_OK;
}

rota_status rota_topo_judge(const rota_topo *topo, const char *graph_path,
                            rota_topo_result *result) {
    struct topo_graph_file file = {0};
    struct topo_rings rings = {.kind = NULL};
    char *bytes = NULL;
    size_t length = 0;
    if (topo == NULL || graph_path == NULL || result == NULL || result->size < sizeof *result)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_judge: expected a topology, the path of a "
                                              "graph file and a result with its size set");
    rota_status status = topo_read_file(graph_path, &bytes, &length);
    if (status == ROTA_OK)
        status = topo_read_graph(graph_path, bytes, length, &file);
    if (status == ROTA_OK)
        status = topo_judge(topo->graph, graph_path, &file, &rings);
    if (status == ROTA_OK)
        fill_result(&rings, result);
    topo_free_rings(&rings);
    topo_free_graph(&file);
    free(bytes);
    return status;
}

rota_status rota_topo_write(const rota_topo *topo, rota_topo_format format, FILE *out) {
    if (topo == NULL || out == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_write: expected a topology and a file");
    if (format == ROTA_TOPO_NCCL_XML)
        return topo_write_nccl(topo->graph, out);
    if (format == ROTA_TOPO_HWLOC_XML)
        return topo_write_hwloc(topo->graph, out);
    return error_raise(ROTA_ERR_ARGUMENT, "rota_topo_write: %d is no format", (int)format);
}
