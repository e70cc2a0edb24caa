/* The topology as text for people: the tree of devices, matrices, rings, trees, reasons. */
#include "base/error.h"
#include "topology/hamilton.h"
#include "topology/print.h"
#include "topology/walk.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_head(const struct topo *topo, FILE *out) {
    struct topo_counts counts = topo_count(topo);
    fprintf(out, "%s: %d host%s, %d GPU%s, %d NIC%s (%d port%s)", topo->source, counts.hosts,
            counts.hosts == 1 ? "" : "s", counts.gpus, counts.gpus == 1 ? "" : "s", counts.nics,
            counts.nics == 1 ? "" : "s", counts.ports, counts.ports == 1 ? "" : "s");
    if (counts.nvswitches > 0)
        fprintf(out, ", %d NVSwitch%s", counts.nvswitches, counts.nvswitches == 1 ? "" : "es");
    if (counts.switches > 0)
        fprintf(out, ", %d network switches", counts.switches);
    if (topo->link_gbps > 0)
        fprintf(out, ", %s of %.1f GB/s per direction", topo->link_name, topo->link_gbps);
    fputc('\n', out);
    if (topo->has_machine) {
        char text[256];
        topo_machine_text(&topo->machine, text, sizeof(text));
        fprintf(out, "%s\n", text);
    }
}

static void print_links_of(const struct topo *topo, int gpu, FILE *out) {
    const char *separator = "  links: ";
    for (int j = 0; j < topo->gpu_count; j++)
        if (topo_links(topo, gpu, j) > 0) {
            fprintf(out, "%s%d x GPU %d", separator, topo_links(topo, gpu, j), j);
            separator = ", ";
        }
    if (topo_on_switch(topo, gpu))
        fprintf(out, "%s%d to NVSwitch", separator, topo->switch_links[gpu]);
}

static void print_node(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    char label[96], *cpus = NULL;
    int depth = 0;
    for (int above = node->parent; above >= 0; above = topo->nodes[above].parent)
        depth++;
    fprintf(out, "%*s%s", 2 * (depth < 40 ? depth : 40), "", topo_node_label(topo, index, label));
    if (node->kind == TOPO_GPU && node->name[0] != '\0' && node->busid[0] != '\0')
        fprintf(out, " %s", node->busid);
    if (node->kind == TOPO_NIC && node->busid[0] != '\0' && node->name[0] != '\0')
        fprintf(out, " %s", node->busid);
    if (node->gts > 0 && node->lanes > 0 && node->kind != TOPO_PORT)
        fprintf(out, "  %.3g GT/s x%d", node->gts, node->lanes);
    if (node->kind == TOPO_PORT && node->vendor_name[0] != '\0')
        fprintf(out, " (%s)", node->vendor_name);
    if (node->kind == TOPO_PORT && node->gbps > 0)
        fprintf(out, "  %.0f Gbit/s", node->gbps * 8);
    if (node->kind == TOPO_GPU)
        print_links_of(topo, node->id, out);
    if (node->cpus != NULL && hwloc_bitmap_list_asprintf(&cpus, node->cpus) >= 0)
        fprintf(out, "  CPUs %s", cpus[0] != '\0' ? cpus : "none");
    free(cpus);
    fputc('\n', out);
}

static void print_no_end(const struct topo *topo, int index, FILE *out) {
    (void)topo, (void)index, (void)out;
}

static void print_matrix(const struct topo *topo, FILE *out) {
    fputs("\nGPU to GPU (L: direct links, S: links to NVSwitch)\n       ", out);
    for (int j = 0; j < topo->gpu_count; j++)
        fprintf(out, " %4d", j);
    for (int p = 0; p < topo->port_count; p++)
        fprintf(out, " %8.8s", topo->nodes[topo->ports[p]].name);
    fputc('\n', out);
    for (int i = 0; i < topo->gpu_count; i++) {
        fprintf(out, "GPU %-3d", i);
        for (int j = 0; j < topo->gpu_count; j++) {
            char cell[16];
            int links = topo_links(topo, i, j);
            rota_path class = topo_gpu_class(topo, i, j);
            if (links > 0)
                snprintf(cell, sizeof(cell), "L%d", links);
            else if (i != j && class == ROTA_PATH_LNK)
                snprintf(cell, sizeof(cell), "S%d", topo->switch_links[i]);
            else
                snprintf(cell, sizeof(cell), "%s", i == j ? "X" : rota_path_name(class));
            fprintf(out, " %4s", cell);
        }
        for (int p = 0; p < topo->port_count; p++)
            fprintf(out, " %8s", rota_path_name(topo_port_class(topo, i, p)));
        fputc('\n', out);
    }
}

static bool print_nics(const struct topo *topo, FILE *out) {
    int *ports = malloc(((size_t)topo->port_count + 1) * sizeof(int));
    if (ports == NULL)
        return false;
    fputs("\nNearest NICs\n", out);
    for (int i = 0; i < topo->gpu_count; i++) {
        rota_path best;
        int count = topo_nearest_ports(topo, i, ports, &best);
        fprintf(out, "GPU %-3d %s:", i, count > 0 ? rota_path_name(best) : "none");
        for (int p = 0; p < count; p++)
            fprintf(out, " %s", topo->nodes[topo->ports[ports[p]]].name);
        fputc('\n', out);
    }
    free(ports);
    return true;
}

static void print_hops(const int *hops, FILE *out) {
    const char *separator = "";
    for (int class = ROTA_PATH_COUNT - 1; class > ROTA_PATH_LOC; class --)
        if (hops[class] > 0) {
            fprintf(out, "%s%d %s", separator, hops[class], rota_path_name((rota_path) class));
            separator = " + ";
        }
}

static void print_one_ring(const struct topo *topo, const struct topo_rings *rings, int r,
                           FILE *out) {
    const struct topo_ring *ring = &rings->rings[r];
    fprintf(out, "  ring %-3d %5.3g x %6.1f GB/s  ", r, ring->share, ring->gbps);
    for (int i = 0; i < rings->gpu_count; i++) {
        int from = ring->gpus[i], to = ring->gpus[(i + 1) % rings->gpu_count];
        rota_path class = topo_gpu_class(topo, from, to);
        fprintf(out, "%d", from);
        if (class == ROTA_PATH_LNK)
            fputs(" -> ", out);
        else
            fprintf(out, " -%s-> ", rota_path_name(class));
    }
    fprintf(out, "%d", ring->gpus[0]);
    for (int p = 0; p < rings->port_count && ring->ports[p] >= 0; p++)
        fprintf(out, "%s%s",
                p == 0       ? "  in "
                : p % 2 == 1 ? ", out "
                             : ", in ",
                topo->nodes[topo->ports[ring->ports[p]]].name);
    fputc('\n', out);
}

static void print_rings(const struct topo *topo, const struct topo_rings *rings, FILE *out) {
    fprintf(out, "\nRings (%s): ", rings->kind);
    if (rings->count == 0) {
        fputs("none, fewer than two GPUs\n", out);
        return;
    }
    if (strcmp(rings->bound_kind, "hops") == 0) {
        fputs("one, with hops ", out);
        print_hops(rings->hops, out);
        fputs(rings->optimal ? ", the fewest possible\n" : "; bound ", out);
        if (!rings->optimal) {
            print_hops(rings->bound_hops, out);
            fputc('\n', out);
        }
    } else {
        fprintf(out, "%d, together %.4g of at most %.4g links (%s bound, %.1f GB/s)%s\n",
                rings->count, rings->score, rings->bound, rings->bound_kind, rings->score_gbps,
                rings->optimal ? ": optimal" : "");
    }
    for (int r = 0; r < rings->count; r++)
        print_one_ring(topo, rings, r, out);
    for (int i = 0; i < rings->island_count; i++) {
        fputs("  island", out);
        for (int g = 0; g < rings->islands[i].count; g++)
            fprintf(out, " %d", rings->islands[i].gpus[g]);
        if (rings->islands[i].paths >= 0)
            fprintf(out, ": %d paths at once by links", rings->islands[i].paths);
        fputc('\n', out);
    }
}

static void print_trees(const struct topo_trees *trees, FILE *out) {
    fprintf(out, "\nTrees: %d, together as fast as %.4g links of a ring; bound %.4g (%s)%s\n",
            trees->count, trees->score, trees->bound, trees->bound_kind,
            trees->optimal ? ": optimal" : "");
    for (int t = 0; t < trees->count; t++) {
        const struct topo_tree *tree = &trees->trees[t];
        fprintf(out, "  root %-3d %5.3g  ", tree->root, tree->share);
        for (int i = 0; i < tree->edge_count; i++)
            fprintf(out, "%s%d>%d", i > 0 ? " " : "", tree->parents[i], tree->children[i]);
        fputc('\n', out);
    }
}

/* Why the search did what it did, in sentences. */
static void print_reasons(const struct topo_view *view, FILE *out) {
    const struct topo *topo = view->topo;
    const struct topo_rings *rings = view->rings;
    fputs("\nReasons\n", out);
    if (topo->link_gbps > 0)
        fprintf(out, "  A link counts %.1f GB/s: %s.\n", topo->link_gbps, topo->link_from);
    if (rings == NULL) {
        fputs("  No rings were searched (--rings).\n", out);
    } else if (strcmp(rings->kind, "direct") == 0) {
        fprintf(out,
                "  Direct links have a Hamiltonian cycle, so rings are packed into them. %s proves "
                "that no set of\n  rings gets more than %.4g links; %s.\n",
                topo->gpu_count > HAMILTON_EXACT
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
    if (view->trees != NULL && rings != NULL && view->trees->score > rings->score + 1e-6 &&
        strcmp(rings->kind, "direct") == 0)
        fprintf(out, "  Trees reach %.4g where rings reach %.4g: cuts are wider than cycles.\n",
                view->trees->score, rings->score);
}

rota_status topo_print_text(const struct topo_view *view, FILE *out) {
    const struct topo *topo = view->topo;
    print_head(topo, out);
    rota_status status = topo_walk(topo, out, NULL, print_node, print_no_end);
    if ((view->parts & ROTA_TOPO_WITH_MATRIX) != 0)
        print_matrix(topo, out);
    if ((view->parts & ROTA_TOPO_WITH_NICS) != 0)
        status = print_nics(topo, out)
                     ? status
                     : error_raise(ROTA_ERR_MEMORY, "no memory to print the topology");
    if (view->rings != NULL)
        print_rings(topo, view->rings, out);
    if (view->trees != NULL)
        print_trees(view->trees, out);
    if ((view->parts & ROTA_TOPO_WITH_REASONS) != 0)
        print_reasons(view, out);
    for (int i = 0; i < topo->warning_count; i++)
        fprintf(out, "%swarning: %s\n", i == 0 ? "\n" : "", topo->warnings[i]);
    return status != ROTA_OK ? status : topo_printed(out);
}
