/* The topology as JSON: one object, written straight to the file. docs/topology.md lists its
 * fields. */
#include "base/error.h"
#include "topology/print.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void topo_print_quoted(const char *text, FILE *out) {
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

rota_status topo_printed(FILE *out) {
    if (fflush(out) != 0 || ferror(out))
        return error_raise_system(errno, "the topology cannot be written");
    return ROTA_OK;
}

struct topo_counts topo_count(const struct topo *topo) {
    int of[TOPO_GONE + 1] = {0};
    for (int i = 0; i < topo->node_count; i++)
        of[topo->nodes[i].kind]++;
    return (struct topo_counts){
        .hosts = of[TOPO_HOST],
        .cpus = of[TOPO_NUMA] > 0 ? of[TOPO_NUMA] : of[TOPO_PACKAGE],
        .pci_switches = of[TOPO_PCI],
        .gpus = of[TOPO_GPU],
        .nics = of[TOPO_NIC],
        .ports = of[TOPO_PORT],
        .nvswitches = of[TOPO_NVSWITCH],
        .switches = of[TOPO_SWITCH],
    };
}

static void print_machine(const struct topo *topo, FILE *out) {
    struct topo_counts counts = topo_count(topo);
    fputs("{\"machine\": {\"source\": ", out);
    topo_print_quoted(topo->source, out);
    fprintf(out,
            ", \"hosts\": %d, \"cpus\": %d, \"pci_switches\": %d, \"gpus\": %d, \"nics\": %d, "
            "\"ports\": %d, \"nvswitches\": %d, \"switches\": %d, \"link_name\": ",
            counts.hosts, counts.cpus, counts.pci_switches, counts.gpus, counts.nics, counts.ports,
            counts.nvswitches, counts.switches);
    topo_print_quoted(topo->link_name, out);
    fprintf(out, ", \"link_gbps\": %g, \"link_source\": ", topo->link_gbps);
    topo_print_quoted(topo->link_from, out);
    if (topo->has_machine)
        fprintf(out, ", \"cores\": %d, \"usable_cores\": %d, \"usable_pus\": %d",
                topo->machine.cores, topo->machine.usable_cores, topo->machine.usable_pus);
    fputc('}', out);
}

static void print_ports(const struct topo *topo, const int *ports, int count, FILE *out) {
    fputc('[', out);
    for (int i = 0; i < count; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (ports[i] < 0)
            fputs("null", out);
        else
            topo_print_quoted(topo->nodes[topo->ports[ports[i]]].name, out);
    }
    fputc(']', out);
}

static void print_cpus(const struct topo *topo, int node, FILE *out) {
    char *list = NULL;
    while (node >= 0 && topo->nodes[node].cpus == NULL)
        node = topo->nodes[node].parent;
    if (node < 0 || hwloc_bitmap_list_asprintf(&list, topo->nodes[node].cpus) < 0)
        return;
    fputs(", \"cpus\": ", out);
    topo_print_quoted(list, out);
    free(list);
}

static bool print_gpus(const struct topo *topo, FILE *out) {
    int *ports = malloc(((size_t)topo->port_count + 1) * sizeof(int));
    if (ports == NULL)
        return false;
    fputs(",\n \"gpus\": [", out);
    for (int i = 0; i < topo->gpu_count; i++) {
        const struct topo_node *gpu = &topo->nodes[topo->gpus[i]];
        rota_path best;
        int count = topo_nearest_ports(topo, i, ports, &best);
        fprintf(out, "%s\n  {\"id\": %d, \"busid\": ", i > 0 ? "," : "", i);
        topo_print_quoted(gpu->busid, out);
        fputs(", \"name\": ", out);
        topo_print_quoted(gpu->name, out);
        fprintf(out, ", \"host\": %d, \"numa\": %d, \"arch\": %d", gpu->host, gpu->numa, gpu->arch);
        print_cpus(topo, topo->gpus[i], out);
        fputs(", \"nearest_nics\": ", out);
        print_ports(topo, ports, count, out);
        fprintf(out, ", \"nearest_class\": %s%s%s}", count > 0 ? "\"" : "",
                count > 0 ? rota_path_name(best) : "null", count > 0 ? "\"" : "");
    }
    fputs("]", out);
    free(ports);
    return true;
}

static void print_matrices(const struct topo *topo, FILE *out) {
    int gpus = topo->gpu_count;
    bool switched = false;
    fputs(",\n \"links\": [", out);
    for (int i = 0; i < gpus; i++) {
        fputs(i > 0 ? ",\n  [" : "\n  [", out);
        for (int j = 0; j < gpus; j++)
            fprintf(out, "%s%d", j > 0 ? ", " : "", topo_links(topo, i, j));
        fputc(']', out);
        switched = switched || topo_on_switch(topo, i);
    }
    fputs("]", out);
    if (switched) {
        fputs(",\n \"switch_links\": [", out);
        for (int i = 0; i < gpus; i++)
            fprintf(out, "%s%d", i > 0 ? ", " : "", topo->switch_links[i]);
        fputs("]", out);
    }
    fputs(",\n \"classes\": [", out);
    for (int i = 0; i < gpus; i++) {
        fputs(i > 0 ? ",\n  [" : "\n  [", out);
        for (int j = 0; j < gpus; j++)
            fprintf(out, "%s\"%s\"", j > 0 ? ", " : "",
                    i == j ? "X" : rota_path_name(topo_gpu_class(topo, i, j)));
        fputc(']', out);
    }
    fputs("]", out);
}

static void print_nics(const struct topo *topo, FILE *out) {
    fputs(",\n \"nics\": [", out);
    for (int p = 0; p < topo->port_count; p++) {
        const struct topo_node *port = &topo->nodes[topo->ports[p]];
        fputs(p > 0 ? ",\n  {\"name\": " : "\n  {\"name\": ", out);
        topo_print_quoted(port->name, out);
        fprintf(out, ", \"host\": %d, \"numa\": %d, \"gbps\": %g, \"classes\": [", port->host,
                port->numa, port->gbps);
        for (int i = 0; i < topo->gpu_count; i++)
            fprintf(out, "%s\"%s\"", i > 0 ? ", " : "",
                    rota_path_name(topo_port_class(topo, i, p)));
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

static void print_islands(const struct topo_rings *rings, FILE *out) {
    fputs(",\n \"islands\": {\"groups\": [", out);
    for (int i = 0; i < rings->island_count; i++) {
        fputs(i > 0 ? ", [" : "[", out);
        for (int g = 0; g < rings->islands[i].count; g++)
            fprintf(out, "%s%d", g > 0 ? ", " : "", rings->islands[i].gpus[g]);
        fputc(']', out);
    }
    fputs("], \"directed_hamiltonian_paths_per_group\": [", out);
    for (int i = 0; i < rings->island_count; i++) {
        fputs(i > 0 ? ", " : "", out);
        if (rings->islands[i].paths < 0)
            fputs("null", out);
        else
            fprintf(out, "%d", rings->islands[i].paths);
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

static void print_rings(const struct topo *topo, const struct topo_rings *rings, FILE *out) {
    fprintf(out, ",\n \"ring_kind\": \"%s\",\n \"rings\": [", rings->kind);
    for (int r = 0; r < rings->count; r++) {
        const struct topo_ring *ring = &rings->rings[r];
        fputs(r > 0 ? ",\n  {\"gpus\": [" : "\n  {\"gpus\": [", out);
        for (int i = 0; i < rings->gpu_count; i++)
            fprintf(out, "%s%d", i > 0 ? ", " : "", ring->gpus[i]);
        fputs("], \"share\": ", out);
        print_number(ring->share, out);
        fputs(", \"bandwidth_gbps\": ", out);
        print_number(ring->gbps, out);
        fputs(", \"nics\": ", out);
        print_ports(topo, ring->ports, topo->port_count > 0 ? rings->port_count : 0, out);
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
        print_islands(rings, out);
}

static void print_trees(const struct topo_trees *trees, FILE *out) {
    fputs(",\n \"trees\": [", out);
    for (int t = 0; t < trees->count; t++) {
        const struct topo_tree *tree = &trees->trees[t];
        fprintf(out, "%s\n  {\"root\": %d, \"edges\": [", t > 0 ? "," : "", tree->root);
        for (int i = 0; i < tree->edge_count; i++)
            fprintf(out, "%s[%d, %d]", i > 0 ? ", " : "", tree->parents[i], tree->children[i]);
        fputs("], \"share\": ", out);
        print_number(tree->share, out);
        fputc('}', out);
    }
    fputs("],\n \"tree_score\": ", out);
    print_number(trees->score, out);
    fputs(",\n \"tree_bound\": ", out);
    print_number(trees->bound, out);
    fprintf(out, ",\n \"tree_bound_kind\": \"%s\"", trees->bound_kind);
}

rota_status topo_print_json(const struct topo_view *view, FILE *out) {
    const struct topo *topo = view->topo;
    print_machine(topo, out);
    if (!print_gpus(topo, out))
        return error_raise(ROTA_ERR_MEMORY, "no memory to print the topology");
    print_matrices(topo, out);
    if ((view->parts & ROTA_TOPO_WITH_NICS) != 0)
        print_nics(topo, out);
    if (view->rings != NULL)
        print_rings(topo, view->rings, out);
    if (view->trees != NULL)
        print_trees(view->trees, out);
    fputs(",\n \"warnings\": [", out);
    for (int i = 0; i < topo->warning_count; i++) {
        fputs(i > 0 ? ",\n  " : "\n  ", out);
        topo_print_quoted(topo->warnings[i], out);
    }
    fputs("]}\n", out);
    return topo_printed(out);
}
