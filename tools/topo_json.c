/* The topology as JSON: one object, written straight to the file. docs/topology.md lists its
 * fields. */
#include "tools/topo_view.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void print_quoted(const char *text, FILE *out) {
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            fputc('\\', out);
        if ((unsigned char)*text < 0x20)
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    }
    fputc('"', out);
}

static void print_machine(const struct topo_view *view, FILE *out) {
    const rota_topo_info *info = &view->info;
    fputs("{\"machine\": {\"source\": ", out);
    print_quoted(info->source, out);
    fprintf(out,
            ", \"hosts\": %d, \"cpus\": %d, \"pci_switches\": %d, \"gpus\": %d, \"nics\": %d, "
            "\"ports\": %d, \"nvswitches\": %d, \"switches\": %d, \"link_name\": ",
            info->hosts, info->cpus, info->pci_switches, info->gpus, info->nics, info->ports,
            info->nvswitches, info->switches);
    print_quoted(info->link_name, out);
    fprintf(out, ", \"link_gbps\": %g, \"link_source\": ", info->link_gbps);
    print_quoted(info->link_source, out);
    if (info->machine[0] != '\0')
        fprintf(out, ", \"cores\": %d, \"usable_cores\": %d, \"usable_pus\": %d", info->cores,
                info->usable_cores, info->usable_pus);
    fputc('}', out);
}

static void print_ports(const struct topo_view *view, const int *ports, int count, FILE *out) {
    fputc('[', out);
    for (int i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (ports[i] < 0)
            fputs("null", out);
        else
            print_quoted(rota_topo_port_name(view->topo, ports[i]), out);
    }
    fputc(']', out);
}

static void print_gpus(const struct topo_view *view, FILE *out) {
    fputs(",\n \"gpus\": [", out);
    for (int i = 0; i < view->info.gpus; i++) {
        const rota_topo_gpu *gpu = &view->gpu[i];
        bool near = gpu->nearest_count > 0;
        fprintf(out, "%s\n  {\"id\": %d, \"busid\": ", i > 0 ? "," : "", i);
        print_quoted(gpu->bus_id, out);
        fputs(", \"name\": ", out);
        print_quoted(gpu->name, out);
        fprintf(out, ", \"host\": %d, \"numa\": %d, \"arch\": %d", gpu->host, gpu->numa, gpu->arch);
        if (gpu->cpus != NULL) {
            fputs(", \"cpus\": ", out);
            print_quoted(gpu->cpus, out);
        }
        fputs(", \"nearest_nics\": ", out);
        print_ports(view, gpu->nearest_ports, gpu->nearest_count, out);
        fprintf(out, ", \"nearest_class\": %s%s%s}", near ? "\"" : "",
                near ? rota_path_name(gpu->nearest_class) : "null", near ? "\"" : "");
    }
    fputs("]", out);
}

static void print_matrices(const struct topo_view *view, FILE *out) {
    int gpus = view->info.gpus;
    bool switched = false;
    fputs(",\n \"links\": [", out);
    for (int i = 0; i < gpus; i++) {
        fputs(i > 0 ? ",\n  [" : "\n  [", out);
        for (int j = 0; j < gpus; j++)
            fprintf(out, "%s%d", j > 0 ? ", " : "", rota_topo_links(view->topo, i, j));
        fputc(']', out);
        switched = switched || (view->gpu[i].switch_links > 0);
    }
    fputs("]", out);
    if (switched) {
        fputs(",\n \"switch_links\": [", out);
        for (int i = 0; i < gpus; i++)
            fprintf(out, "%s%d", i > 0 ? ", " : "", view->gpu[i].switch_links);
        fputs("]", out);
    }
    fputs(",\n \"classes\": [", out);
    for (int i = 0; i < gpus; i++) {
        fputs(i > 0 ? ",\n  [" : "\n  [", out);
        for (int j = 0; j < gpus; j++)
            fprintf(out, "%s\"%s\"", j > 0 ? ", " : "",
                    i == j ? "X" : rota_path_name(rota_topo_gpu_path(view->topo, i, j)));
        fputc(']', out);
    }
    fputs("]", out);
}

static void print_nics(const struct topo_view *view, FILE *out) {
    fputs(",\n \"nics\": [", out);
    for (int p = 0; p < view->info.ports; p++) {
        const rota_topo_node *port = &view->nodes[view->ports[p]];
        fputs(p > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ", out);
        print_quoted(port->name, out);
        fprintf(out, ", \"host\": %d, \"numa\": %d, \"gbps\": %g, \"classes\": [", port->host,
                port->numa, port->gbps);
        for (int i = 0; i < view->info.gpus; i++)
            fprintf(out, "%s\"%s\"", i > 0 ? ", " : "",
                    rota_path_name(rota_topo_port_path(view->topo, i, p)));
        fputs("]}", out);
    }
    fputs("]", out);
}

static void print_hops(const int *hops, FILE *out) {
    bool first = true;
    fputc('{', out);
    for (int class = ROTA_PATH_COUNT - 1; class > ROTA_PATH_LOC; class --)
        if (hops[class] > 0) {
            fprintf(out, "%s\"%s\": %d", first ? "" : ", ", rota_path_name((rota_path) class),
                    hops[class]);
            first = false;
        }
    fputc('}', out);
}

static void print_islands(const struct topo_view *view, FILE *out) {
    const rota_topo_result *rings = &view->rings;
    fputs(",\n \"islands\": {\"groups\": [", out);
    for (int i = 0; i < rings->island_count; i++) {
        fputs(i > 0 ? ", [" : "[", out);
        rota_topo_island island = topo_view_island(view, i);
        for (int g = 0; g < island.gpu_count; g++)
            fprintf(out, "%s%d", g > 0 ? ", " : "", island.gpus[g]);
        fputc(']', out);
    }
    fputs("], \"directed_hamiltonian_paths_per_group\": [", out);
    for (int i = 0; i < rings->island_count; i++) {
        fputs(i > 0 ? ", " : "", out);
        int paths = topo_view_island(view, i).paths;
        if (paths < 0)
            fputs("null", out);
        else
            fprintf(out, "%d", paths);
    }
    fputs("], \"ring_bound_if_pcie_were_free\": ", out);
    if (rings->path_bound < 0)
        fputs("null}", out);
    else
        fprintf(out, "%d}", rings->path_bound);
}

static void print_number(double value, FILE *out) {
    if (isfinite(value))
        fprintf(out, "%.10g", value);
    else
        fputs("null", out);
}

static void print_rings(const struct topo_view *view, FILE *out) {
    const rota_topo_result *rings = &view->rings;
    fprintf(out, ",\n \"ring_kind\": \"%s\",\n \"rings\": [", rings->kind);
    for (int r = 0; r < rings->count; r++) {
        rota_topo_ring ring = topo_view_ring(view, r);
        fputs(r > 0 ? ",\n  {\"gpus\": [" : "\n  {\"gpus\": [", out);
        for (int i = 0; i < view->info.gpus; i++)
            fprintf(out, "%s%d", i > 0 ? ", " : "", ring.gpus[i]);
        fputs("], \"share\": ", out);
        print_number(ring.share, out);
        fputs(", \"bandwidth_gbps\": ", out);
        print_number(ring.bandwidth_gbps, out);
        fputs(", \"nics\": ", out);
        print_ports(view, ring.ports, view->info.ports > 0 ? ring.port_count : 0, out);
        fputc('}', out);
    }
    fprintf(out, "],\n \"bound_kind\": \"%s\",\n \"score\": ", rings->bound_kind);
    if (strcmp(rings->bound_kind, "hops") == 0) {
        print_hops(rings->hops, out);
        fputs(",\n \"bound\": ", out);
        print_hops(rings->bound_hops, out);
    } else {
        print_number(rings->score, out);
        fputs(",\n \"bound\": ", out);
        print_number(rings->bound, out);
    }
    fprintf(out, ",\n \"optimal\": %s,\n \"score_gbps\": ", rings->optimal ? "true" : "false");
    print_number(rings->score_gbps, out);
    if (rings->island_count > 0)
        print_islands(view, out);
}

static void print_trees(const struct topo_view *view, FILE *out) {
    const rota_topo_result *trees = &view->trees;
    fputs(",\n \"trees\": [", out);
    for (int t = 0; t < trees->count; t++) {
        rota_topo_tree tree = topo_view_tree(view, t);
        fprintf(out, "%s\n  {\"root\": %d, \"edges\": [", t > 0 ? "," : "", tree.root);
        for (int i = 0; i < tree.edge_count; i++)
            fprintf(out, "%s[%d, %d]", i > 0 ? ", " : "", tree.parents[i], tree.children[i]);
        fputs("], \"share\": ", out);
        print_number(tree.share, out);
        fputc('}', out);
    }
    fputs("],\n \"tree_score\": ", out);
    print_number(trees->score, out);
    fputs(",\n \"tree_bound\": ", out);
    print_number(trees->bound, out);
    fprintf(out, ",\n \"tree_bound_kind\": \"%s\"", trees->bound_kind);
}

void topo_json_print(const struct topo_view *view, FILE *out) {
    print_machine(view, out);
    print_gpus(view, out);
    print_matrices(view, out);
    if ((view->parts & TOPO_WITH_NICS) != 0)
        print_nics(view, out);
    if ((view->parts & TOPO_WITH_RINGS) != 0)
        print_rings(view, out);
    if ((view->parts & TOPO_WITH_TREES) != 0)
        print_trees(view, out);
    fputs(",\n \"warnings\": [", out);
    for (int i = 0; i < view->info.warnings; i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        print_quoted(rota_topo_warning(view->topo, i), out);
    }
    fputs("]}\n", out);
}
