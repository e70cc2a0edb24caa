/* The topology as text for people: the tree of devices, matrices, rings, trees, reasons. */
#include "tools/topo_view.h"

#include <stdlib.h>
#include <string.h>

static void print_head(const struct topo_view *view, FILE *out) {
    const rota_topo_info *info = &view->info;
    fprintf(out, "%s: %d host%s, %d GPU%s, %d NIC%s (%d port%s)", info->source, info->hosts,
            info->hosts == 1 ? "" : "s", info->gpus, info->gpus == 1 ? "" : "s", info->nics,
            info->nics == 1 ? "" : "s", info->ports, info->ports == 1 ? "" : "s");
    if (info->nvswitches > 0)
        fprintf(out, ", %d NVSwitch%s", info->nvswitches, info->nvswitches == 1 ? "" : "es");
    if (info->switches > 0)
        fprintf(out, ", %d network switches", info->switches);
    if (info->link_gbps > 0)
        fprintf(out, ", %s of %.1f GB/s per direction", info->link_name, info->link_gbps);
    fputc('\n', out);
    if (info->machine[0] != '\0')
        fprintf(out, "%s\n", info->machine);
}

static void print_links_of(const struct topo_view *view, int gpu, FILE *out) {
    const char *separator = "  links: ";
    for (int j = 0; j < view->info.gpus; j++)
        if (rota_topo_links(view->topo, gpu, j) > 0) {
            fprintf(out, "%s%d x GPU %d", separator, rota_topo_links(view->topo, gpu, j), j);
            separator = ", ";
        }
    if (view->gpu[gpu].switch_links > 0)
        fprintf(out, "%s%d to NVSwitch", separator, view->gpu[gpu].switch_links);
}

static void print_node(const struct topo_view *view, int index, FILE *out) {
    const rota_topo_node *node = &view->nodes[index];
    int depth = 0;
    for (int above = node->parent; above >= 0; above = view->nodes[above].parent)
        depth++;
    fprintf(out, "%*s%s", 2 * (depth < 40 ? depth : 40), "", node->label);
    if (node->kind == ROTA_TOPO_GPU && node->name[0] != '\0' && node->bus_id[0] != '\0')
        fprintf(out, " %s", node->bus_id);
    if (node->kind == ROTA_TOPO_NIC && node->bus_id[0] != '\0' && node->name[0] != '\0')
        fprintf(out, " %s", node->bus_id);
    if (node->gts > 0 && node->lanes > 0 && node->kind != ROTA_TOPO_PORT)
        fprintf(out, "  %.3g GT/s x%d", node->gts, node->lanes);
    if (node->kind == ROTA_TOPO_PORT && node->vendor[0] != '\0')
        fprintf(out, " (%s)", node->vendor);
    if (node->kind == ROTA_TOPO_PORT && node->gbps > 0)
        fprintf(out, "  %.0f Gbit/s", node->gbps * 8);
    if (node->kind == ROTA_TOPO_GPU)
        print_links_of(view, node->id, out);
    if (node->cpus != NULL)
        fprintf(out, "  CPUs %s", node->cpus[0] != '\0' ? node->cpus : "none");
    fputc('\n', out);
}

/* Depth first, the way back by parents; children in the order of their numbers. */
static bool print_nodes(const struct topo_view *view, FILE *out) {
    size_t count = (size_t)view->info.nodes + 1;
    int *next = malloc(2 * count * sizeof(int)), *first = next + count, roots = -1;
    if (next == NULL)
        return false;
    for (size_t i = 0; i < count; i++)
        first[i] = -1;
    for (int i = view->info.nodes - 1; i >= 0; i--) {
        int parent = view->nodes[i].parent;
        int *list = parent < 0 ? &roots : &first[parent];
        if (view->nodes[i].kind == ROTA_TOPO_GONE)
            continue;
        next[i] = *list;
        *list = i;
    }
    for (int at = roots; at >= 0;) {
        print_node(view, at, out);
        if (first[at] >= 0) {
            at = first[at];
            continue;
        }
        while (at >= 0 && next[at] < 0)
            at = view->nodes[at].parent;
        at = at < 0 ? -1 : next[at];
    }
    free(next);
    return true;
}

static void print_matrix(const struct topo_view *view, FILE *out) {
    fputs("\nGPU to GPU (L: direct links, S: links to NVSwitch)\n       ", out);
    for (int j = 0; j < view->info.gpus; j++)
        fprintf(out, " %4d", j);
    for (int p = 0; p < view->info.ports; p++)
        fprintf(out, " %8.8s", rota_topo_port_name(view->topo, p));
    fputc('\n', out);
    for (int i = 0; i < view->info.gpus; i++) {
        fprintf(out, "GPU %-3d", i);
        for (int j = 0; j < view->info.gpus; j++) {
            char cell[16];
            int links = rota_topo_links(view->topo, i, j);
            rota_path class = rota_topo_gpu_path(view->topo, i, j);
            if (links > 0)
                snprintf(cell, sizeof(cell), "L%d", links);
            else if (i != j && class == ROTA_PATH_LNK)
                snprintf(cell, sizeof(cell), "S%d", view->gpu[i].switch_links);
            else
                snprintf(cell, sizeof(cell), "%s", i == j ? "X" : rota_path_name(class));
            fprintf(out, " %4s", cell);
        }
        for (int p = 0; p < view->info.ports; p++)
            fprintf(out, " %8s", rota_path_name(rota_topo_port_path(view->topo, i, p)));
        fputc('\n', out);
    }
}

static void print_nics(const struct topo_view *view, FILE *out) {
    fputs("\nNearest NICs\n", out);
    for (int i = 0; i < view->info.gpus; i++) {
        const rota_topo_gpu *gpu = &view->gpu[i];
        fprintf(out, "GPU %-3d %s:", i,
                gpu->nearest_count > 0 ? rota_path_name(gpu->nearest_class) : "none");
        for (int p = 0; p < gpu->nearest_count; p++)
            fprintf(out, " %s", rota_topo_port_name(view->topo, gpu->nearest_ports[p]));
        fputc('\n', out);
    }
}

static void print_order(const struct topo_view *view, const int *gpus, FILE *out) {
    for (int i = 0; i < view->info.gpus; i++) {
        rota_path class = rota_topo_gpu_path(view->topo, gpus[i], gpus[(i + 1) % view->info.gpus]);
        fprintf(out, "%d", gpus[i]);
        if (class == ROTA_PATH_LNK)
            fputs(" -> ", out);
        else
            fprintf(out, " -%s-> ", rota_path_name(class));
    }
    fprintf(out, "%d", gpus[0]);
}

static void print_ports(const struct topo_view *view, const rota_topo_ring *ring, FILE *out) {
    for (int p = 0; p < ring->port_count && ring->ports[p] >= 0; p++)
        fprintf(out, "%s%s",
                p == 0       ? "  in "
                : p % 2 == 1 ? ", out "
                             : ", in ",
                rota_topo_port_name(view->topo, ring->ports[p]));
}

/* Rings of one order that open at the same GPU, next to the same NICs. */
static bool opens_alike(const struct topo_view *view, int a, int b) {
    rota_topo_ring left = topo_view_ring(view, a), right = topo_view_ring(view, b);
    return left.gpus[0] == right.gpus[0] && topo_view_same_order(view, a, b) &&
           memcmp(left.ports, right.ports, (size_t)left.port_count * sizeof(int)) == 0;
}

/* "rings 0-3 8  from GPU 0  in mlx5_0, out mlx5_3" */
static void print_numbers(const struct topo_view *view, int first, int last, FILE *out) {
    rota_topo_ring ring = topo_view_ring(view, first);
    fputs("    rings", out);
    for (int r = first; r <= last; r++) {
        int end = r;
        if (!opens_alike(view, first, r))
            continue;
        while (end < last && opens_alike(view, first, end + 1))
            end++;
        fprintf(out, end > r ? " %d-%d" : " %d", r, end);
        r = end;
    }
    fprintf(out, "  from GPU %d", ring.gpus[0]);
    print_ports(view, &ring, out);
    fputc('\n', out);
}

/* Rings that take the GPUs in one order, which is printed once, and the NICs where they open. */
static void print_alike(const struct topo_view *view, int first, FILE *out) {
    rota_topo_ring ring = topo_view_ring(view, first);
    int count = 0, last = first;
    double share = 0;
    for (int r = first; r < view->rings.count; r++)
        if (topo_view_first_alike(view, r) == first) {
            share += topo_view_ring(view, r).share;
            last = r;
            count++;
        }
    if (count == 1) {
        fprintf(out, "  ring %-3d %5.3g x %6.1f GB/s  ", first, ring.share, ring.bandwidth_gbps);
        print_order(view, ring.gpus, out);
        print_ports(view, &ring, out);
        fputc('\n', out);
        return;
    }
    fprintf(out, "  %d rings, %.3g links together, %.1f GB/s each:  ", count, share,
            ring.bandwidth_gbps);
    print_order(view, ring.gpus, out);
    fputc('\n', out);
    for (int r = first; r <= last; r++) {
        bool again = topo_view_first_alike(view, r) != first;
        for (int q = first; q < r && !again; q++)
            again = opens_alike(view, q, r);
        if (!again)
            print_numbers(view, r, last, out);
    }
}

static void print_rings(const struct topo_view *view, FILE *out) {
    const rota_topo_result *rings = &view->rings;
    fprintf(out, "\nRings (%s): ", rings->kind);
    if (rings->count == 0) {
        fputs("none, fewer than two GPUs\n", out);
        return;
    }
    if (strcmp(rings->bound_kind, "hops") == 0) {
        fputs("one, with hops ", out);
        topo_view_print_hops(rings->hops, out);
        fputs(rings->optimal ? ", the fewest possible\n" : "; bound ", out);
        if (!rings->optimal) {
            topo_view_print_hops(rings->bound_hops, out);
            fputc('\n', out);
        }
    } else {
        fprintf(out, "%d, together %.4g of at most %.4g links (%s bound, %.1f GB/s)%s\n",
                rings->count, rings->score, rings->bound, rings->bound_kind, rings->score_gbps,
                rings->optimal ? ": optimal" : "");
    }
    for (int r = 0; r < rings->count; r++)
        if (topo_view_first_alike(view, r) == r)
            print_alike(view, r, out);
    for (int i = 0; i < rings->island_count; i++) {
        rota_topo_island island = topo_view_island(view, i);
        fputs("  island", out);
        for (int g = 0; g < island.gpu_count; g++)
            fprintf(out, " %d", island.gpus[g]);
        if (island.paths >= 0)
            fprintf(out, ": %d paths at once by links", island.paths);
        fputc('\n', out);
    }
}

static void print_trees(const struct topo_view *view, FILE *out) {
    const rota_topo_result *trees = &view->trees;
    fprintf(out, "\nTrees: %d, together as fast as %.4g links of a ring; bound %.4g (%s)%s\n",
            trees->count, trees->score, trees->bound, trees->bound_kind,
            trees->optimal ? ": optimal" : "");
    for (int t = 0; t < trees->count; t++) {
        rota_topo_tree tree = topo_view_tree(view, t);
        fprintf(out, "  root %-3d %5.3g  ", tree.root, tree.share);
        for (int i = 0; i < tree.edge_count; i++)
            fprintf(out, "%s%d>%d", i > 0 ? " " : "", tree.parents[i], tree.children[i]);
        fputc('\n', out);
    }
}

/* Why the search did what it did, in sentences. */
static void print_reasons(const struct topo_view *view, FILE *out) {
    const rota_topo_result *rings = &view->rings, *trees = &view->trees;
    bool searched = (view->parts & TOPO_WITH_RINGS) != 0;
    fputs("\nReasons\n", out);
    if (view->info.link_gbps > 0)
        fprintf(out, "  A link counts %.1f GB/s: %s.\n", view->info.link_gbps,
                view->info.link_source);
    if (!searched) {
        fputs("  No rings were searched (--rings).\n", out);
    } else if (strcmp(rings->kind, "direct") == 0) {
        fprintf(out,
                "  Direct links have a Hamiltonian cycle, so rings are packed into them. %s proves "
                "that no set of\n  rings gets more than %.4g links; %s.\n",
                view->info.gpus > 17 /* rota's limit of exact search */
                    ? "What cuts and the links between any sets of GPUs let through"
                    : "Linear programming over all cycles",
                rings->bound,
                !rings->optimal ? "the search came near it"
                : strcmp(rings->bound_kind, "whole") == 0
                    ? "as many rings with a link of their own on each hop were found"
                    : "no set of rings with links of their own reaches it, so rings share links");
    } else if (strcmp(rings->kind, "nvswitch") == 0) {
        fprintf(out,
                "  All GPUs hang on NVSwitches, so every order is a ring; each ring takes one link "
                "of each GPU, and the\n  GPU with the fewest has %.0f. The order follows the PCI "
                "tree.\n",
                rings->bound);
    } else if (strcmp(rings->kind, "hosts") == 0) {
        fputs(
            "  Several hosts: each carries paths from NIC to NIC; the weakest host bounds all, or "
            "the links between\n  network switches, where their speed is known.\n",
            out);
    } else if (rings->count > 0) {
        fprintf(out,
                "  Links carry no ring through all GPUs (%s), so the ring with the fewest far hops "
                "was taken: first\n  NET, then SYS, NODE, PHB, PXB, PIX.\n",
                rings->kind);
    }
    if (searched && (view->parts & TOPO_WITH_TREES) != 0 && trees->score > rings->score + 1e-6 &&
        strcmp(rings->kind, "direct") == 0)
        fprintf(out, "  Trees reach %.4g where rings reach %.4g: cuts are wider than cycles.\n",
                trees->score, rings->score);
}

bool topo_text_print(const struct topo_view *view, FILE *out) {
    print_head(view, out);
    if (!print_nodes(view, out))
        return false;
    if ((view->parts & TOPO_WITH_MATRIX) != 0)
        print_matrix(view, out);
    if ((view->parts & TOPO_WITH_NICS) != 0)
        print_nics(view, out);
    if ((view->parts & TOPO_WITH_RINGS) != 0)
        print_rings(view, out);
    if ((view->parts & TOPO_WITH_TREES) != 0)
        print_trees(view, out);
    if ((view->parts & TOPO_WITH_REASONS) != 0)
        print_reasons(view, out);
    for (int i = 0; i < view->info.warnings; i++)
        fprintf(out, "%swarning: %s\n", i == 0 ? "\n" : "", rota_topo_warning(view->topo, i));
    return true;
}
