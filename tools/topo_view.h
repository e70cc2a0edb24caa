/* What `rota topo` shows: everything that the library tells of a topology, gathered once. */
#ifndef TOOLS_TOPO_VIEW_H
#define TOOLS_TOPO_VIEW_H

#include <rota/rota.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    TOPO_WITH_RINGS = 1,
    TOPO_WITH_TREES = 2,
    TOPO_WITH_NICS = 4,
    TOPO_WITH_MATRIX = 8,
    TOPO_WITH_REASONS = 16
};

struct topo_view {
    rota_topo *topo;
    unsigned parts;
    rota_topo_info info;
    rota_topo_node *nodes;
    int *gpus, *ports; /* their nodes */
    rota_topo_gpu *gpu;
    rota_topo_result rings, trees;
};

/* Searches what parts ask for. To be closed whatever it returns. Errors: those of the library. */
rota_status topo_view_open(struct topo_view *view, rota_topo *topo, unsigned parts);
void topo_view_close(struct topo_view *view);

/* Text and picture: false without memory. */
bool topo_text_print(const struct topo_view *view, FILE *out);
bool topo_svg_print(const struct topo_view *view, FILE *out);
void topo_json_print(const struct topo_view *view, FILE *out);

/* The node of `kind` at or above `node`, -1 none. */
int topo_view_above(const struct topo_view *view, int node, rota_topo_kind kind);
rota_topo_ring topo_view_ring(const struct topo_view *view, int index);
rota_topo_tree topo_view_tree(const struct topo_view *view, int index);
rota_topo_island topo_view_island(const struct topo_view *view, int index);
/* Whether rings a and b take the GPUs in the same order, wherever they begin. */
bool topo_view_same_order(const struct topo_view *view, int a, int b);
/* The first ring in the order of this one. */
int topo_view_first_alike(const struct topo_view *view, int index);
/* "2 SYS + 6 PIX" */
void topo_view_print_hops(const int *hops, FILE *out);

#endif
