/* Gathers what the library tells of a topology. */
#include "tools/topo_view.h"

#include <stdlib.h>

static rota_status describe_all(struct topo_view *view) {
    rota_status status = ROTA_OK;
    for (int i = 0; i < view->info.nodes && status == ROTA_OK; i++) {
        rota_topo_node *node = &view->nodes[i];
        *node = (rota_topo_node)ROTA_TOPO_NODE_INIT;
        status = rota_topo_node_describe(view->topo, i, node);
        if (status == ROTA_OK && node->id >= 0)
            (node->kind == ROTA_TOPO_GPU ? view->gpus : view->ports)[node->id] = i;
    }
    for (int i = 0; i < view->info.gpus && status == ROTA_OK; i++) {
        view->gpu[i] = (rota_topo_gpu)ROTA_TOPO_GPU_INIT;
        status = rota_topo_gpu_describe(view->topo, i, &view->gpu[i]);
    }
    return status;
}

rota_status topo_view_open(struct topo_view *view, rota_topo *topo, unsigned parts) {
    *view = (struct topo_view){.topo = topo,
                               .parts = parts,
                               .info = ROTA_TOPO_INFO_INIT,
                               .rings = ROTA_TOPO_RESULT_INIT,
                               .trees = ROTA_TOPO_RESULT_INIT};
    rota_status status = ROTA_OK;
    if ((parts & TOPO_WITH_RINGS) != 0)
        status = rota_topo_find_rings(topo, &view->rings);
    if (status == ROTA_OK && (parts & TOPO_WITH_TREES) != 0)
        status = rota_topo_find_trees(topo, &view->trees);
    if (status == ROTA_OK)
        status = rota_topo_describe(topo, &view->info);
    if (status != ROTA_OK)
        return status;
    view->nodes = calloc((size_t)view->info.nodes + 1, sizeof(*view->nodes));
    view->gpus = calloc((size_t)view->info.gpus + 1, sizeof(int));
    view->ports = calloc((size_t)view->info.ports + 1, sizeof(int));
    view->gpu = calloc((size_t)view->info.gpus + 1, sizeof(*view->gpu));
    bool fine = view->nodes && view->gpus && view->ports && view->gpu;
    return fine ? describe_all(view) : ROTA_ERR_MEMORY;
}

void topo_view_close(struct topo_view *view) {
    free(view->nodes);
    free(view->gpus);
    free(view->ports);
    free(view->gpu);
}

int topo_view_above(const struct topo_view *view, int node, rota_topo_kind kind) {
    while (node >= 0 && view->nodes[node].kind != kind)
        node = view->nodes[node].parent;
    return node;
}

rota_topo_ring topo_view_ring(const struct topo_view *view, int index) {
    rota_topo_ring ring = ROTA_TOPO_RING_INIT;
    (void)rota_topo_ring_describe(view->topo, index, &ring);
    return ring;
}

bool topo_view_same_order(const struct topo_view *view, int a, int b) {
    const int *left = topo_view_ring(view, a).gpus, *right = topo_view_ring(view, b).gpus;
    int count = view->info.gpus, at = 0;
    while (at < count && right[at] != left[0])
        at++;
    for (int i = 0; i < count; i++)
        if (left[i] != right[(at + i) % count])
            return false;
    return true;
}

int topo_view_first_alike(const struct topo_view *view, int index) {
    int first = 0;
    while (first < index && !topo_view_same_order(view, first, index))
        first++;
    return first;
}

void topo_view_print_hops(const int *hops, FILE *out) {
    const char *separator = "";
    for (int path = ROTA_PATH_COUNT - 1; path > ROTA_PATH_LOC; path--)
        if (hops[path] > 0) {
            fprintf(out, "%s%d %s", separator, hops[path], rota_path_name((rota_path)path));
            separator = " + ";
        }
}

rota_topo_tree topo_view_tree(const struct topo_view *view, int index) {
    rota_topo_tree tree = ROTA_TOPO_TREE_INIT;
    (void)rota_topo_tree_describe(view->topo, index, &tree);
    return tree;
}

rota_topo_island topo_view_island(const struct topo_view *view, int index) {
    rota_topo_island island = ROTA_TOPO_ISLAND_INIT;
    (void)rota_topo_island_describe(view->topo, index, &island);
    return island;
}
