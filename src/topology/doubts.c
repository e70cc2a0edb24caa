/* What a topology seems to lack. Machines are built from equal parts, so a part that differs from
 * most of its siblings is likely to be broken, hidden or left out; it is named, never repaired. */
#include "base/error.h"
#include "topology/graph.h"

#include <stdlib.h>
#include <string.h>

/* PCI devices (vendor, device) that exist only with links between GPUs (PCI ID repository). */
static const struct {
    uint32_t vendor, device;
    const char *name;
} linked_models[] = {
    {0x10de, 0x15f9, "P100-SXM2"},      {0x10de, 0x1db1, "V100-SXM2-16GB"},
    {0x10de, 0x1db5, "V100-SXM2-32GB"}, {0x10de, 0x1db8, "V100-SXM3"},
    {0x10de, 0x20b0, "A100-SXM4-40GB"}, {0x10de, 0x20b2, "A100-SXM4-80GB"},
    {0x10de, 0x2330, "H100-SXM5"},      {0x10de, 0x2335, "H200-SXM"},
    {0x10de, 0x2901, "B200"},           {0x1002, 0x66a1, "MI50/MI60"},
    {0x1002, 0x7408, "MI250X"},         {0x1002, 0x740c, "MI250"},
    {0x1002, 0x74a1, "MI300X"},
};

/* The value that more than half of the entries have, -1 none; entries below 0 do not count. */
static int majority(const int *values, int count) {
    int candidate = -1, lead = 0, seen = 0, valid = 0;
    for (int i = 0; i < count; i++) {
        if (values[i] < 0)
            continue;
        if (lead == 0)
            candidate = values[i];
        lead += values[i] == candidate ? 1 : -1;
        valid++;
    }
    for (int i = 0; i < count; i++)
        seen += values[i] >= 0 && values[i] == candidate;
    return seen * 2 > valid ? candidate : -1;
}

static int count_of(const int *values, int count, int value) {
    int found = 0;
    for (int i = 0; i < count; i++)
        found += values[i] == value;
    return found;
}

static const char *brand_name(const struct topo *topo) {
    return topo->brand == TOPO_XGMI ? "xGMI link" : "NVLink";
}

/* Links of each GPU against those of its siblings. */
static void doubt_links(struct topo *topo, int *degrees) {
    int gpus = topo->gpu_count, linked = 0;
    char label[96];
    for (int i = 0; i < gpus; i++) {
        degrees[i] = topo->switch_links[i] + topo->nodes[topo->gpus[i]].self_links;
        for (int j = 0; j < gpus; j++)
            degrees[i] += topo_links(topo, i, j);
        linked += degrees[i] > 0;
    }
    int usual = majority(degrees, gpus);
    for (int i = 0; i < gpus && linked > 0; i++) {
        const char *name = topo_node_label(topo, topo->gpus[i], label);
        if (degrees[i] == 0 && usual > 0)
            topo_warn(topo, "%s has no %s while its %d siblings have %d", name, brand_name(topo),
                      count_of(degrees, gpus, usual), usual);
        else if (degrees[i] == 0)
            topo_warn(topo, "%s has no %s while %d other%s some", name, brand_name(topo), linked,
                      linked == 1 ? " has" : "s have");
        else if (degrees[i] < usual)
            topo_warn(topo, "%s has %d %s%s while %d of its siblings have %d", name, degrees[i],
                      brand_name(topo), degrees[i] == 1 ? "" : "s", count_of(degrees, gpus, usual),
                      usual);
    }
}

static void doubt_symmetry(struct topo *topo) {
    for (int i = 0; i < topo->gpu_count; i++)
        for (int j = 0; j < i; j++) {
            int there = topo_links(topo, i, j), back = topo_links(topo, j, i);
            if (there != back)
                topo_warn(topo, "links from GPU %d to GPU %d: %d, but back: %d", i, j, there, back);
        }
}

/* Gaps in numbers that should run from 0 up; devices are in ascending order of them, or it is not
 * looked at. */
static void doubt_numbers(struct topo *topo, const int *devices, int count, bool ranks,
                          const char *what) {
    bool ascending = count > 0 && topo->host_count < 2;
    int last = -1, gap = 0;
    for (int i = 0; i < count && ascending; i++) {
        const struct topo_node *node = &topo->nodes[devices[i]];
        int number = ranks ? node->rank : node->dev;
        ascending = number > last;
        gap += ascending ? number - last - 1 : 0;
        last = number;
    }
    last = -1;
    for (int i = 0; i < count && ascending && gap > 0 && gap <= 64; i++) {
        const struct topo_node *node = &topo->nodes[devices[i]];
        for (int number = ranks ? node->rank : node->dev; ++last < number;)
            topo_warn(topo, "there is no %s %d, though there is a later one", what, last);
    }
}

/* GPUs or NICs below each NUMA node, package or switch against those of the others at the same
 * depth. What holds none is of interest if it is a NUMA node without any device, or a switch with
 * NICs among such as have GPUs too, and if at least three times as many hold some. */
static void doubt_groups(struct topo *topo, enum topo_kind kind, enum topo_kind device) {
    size_t count = (size_t)topo->node_count + 1;
    int *below = calloc(3 * count, sizeof(int)), *level = below + count, deepest = 0;
    int *any = level + count; /* GPUs and NICs */
    bool with_nics = kind == TOPO_PCI && device == TOPO_GPU;
    char label[96];
    if (below == NULL) {
        topo->no_memory = true;
        return;
    }
    for (int i = 0; i < topo->node_count; i++)
        for (int at = topo->nodes[i].parent; at >= 0; at = topo->nodes[at].parent) {
            any[at] += topo->nodes[i].kind == TOPO_GPU || topo->nodes[i].kind == TOPO_NIC;
            if (topo->nodes[i].kind == device && topo->nodes[at].kind == kind) {
                below[at]++;
                int depth = topo_depth(topo, at);
                deepest = depth > deepest ? depth : deepest;
            }
        }
    for (int depth = 0; depth <= deepest && depth < 16; depth++) {
        int groups = 0, most = 0, full = 0, empty = 0;
        for (int i = 0; i < topo->node_count; i++) {
            bool bare = topo->nodes[i].kind == kind &&
                        (with_nics ? any[i] > 0 : kind == TOPO_NUMA && any[i] == 0);
            level[i] = (below[i] > 0 || bare) && topo_depth(topo, i) == depth ? below[i] : -1;
            groups += level[i] > 0;
            full += level[i] > 0 && (!with_nics || any[i] > below[i]);
            empty += level[i] == 0;
            most = level[i] > most ? level[i] : most;
        }
        for (int i = 0; i < topo->node_count && full < 3 * empty; i++)
            level[i] = level[i] == 0 ? -1 : level[i];
        int usual = majority(level, topo->node_count);
        usual = usual < 0 && (groups == 2 || (empty > 0 && full >= 3 * empty)) ? most : usual;
        for (int i = 0; i < topo->node_count && groups > 1; i++)
            if (level[i] >= 0 && level[i] < usual)
                topo_warn(topo, "%s holds %d %s%s while its siblings hold %d",
                          topo_node_label(topo, i, label), level[i], topo_kind_name(device),
                          level[i] == 1 ? "" : "s", usual);
    }
    free(below);
}

static void doubt_nics(struct topo *topo, int *classes, int *counts) {
    char label[96];
    int gpus = topo->gpu_count;
    for (int i = 0; i < gpus; i++) {
        topo_nearest_ports(topo, i, &counts[i]);
        classes[i] = (int)topo_nearest_class(topo, i);
    }
    int usual = topo->port_count > 0 ? majority(classes, gpus) : -1;
    for (int i = 0; i < gpus && usual >= 0; i++)
        if (classes[i] > usual)
            topo_warn(topo,
                      "the nearest NIC of %s is %s away, while %d of its siblings have one "
                      "at %s",
                      topo_node_label(topo, topo->gpus[i], label),
                      rota_path_name((rota_path)classes[i]), count_of(classes, gpus, usual),
                      rota_path_name((rota_path)usual));
    int nearest = gpus > 0 ? classes[0] : 0, far = 0;
    for (int i = 0; i < gpus; i++)
        nearest = classes[i] < nearest ? classes[i] : nearest;
    for (int i = 0; i < gpus; i++)
        far += classes[i] == ROTA_PATH_SYS;
    if (far > 0 && usual < 0 && nearest < ROTA_PATH_SYS)
        topo_warn(topo, "%d of %d GPUs have no NIC on their side (%s), others one at %s", far, gpus,
                  rota_path_name(ROTA_PATH_SYS), rota_path_name((rota_path)nearest));
    if (gpus > 0 && topo->port_count == 0)
        topo_warn(topo, "no NIC was found");
    if (gpus == 0 && !topo->is_this_machine)
        topo_warn(topo, "no GPU was found");
    int several = majority(counts, gpus);
    for (int i = 0; i < gpus; i++)
        if (classes[i] == usual && counts[i] < several)
            topo_warn(topo, "%s has %d NIC port%s next to it, while %d of its siblings have %d",
                      topo_node_label(topo, topo->gpus[i], label), counts[i],
                      counts[i] == 1 ? "" : "s", count_of(counts, gpus, several), several);
}

/* Ports share the NIC's way into PCI, which their speeds may add up beyond. */
static void doubt_ports(struct topo *topo) {
    int several = 0, most = 0, *ports = calloc((size_t)topo->node_count + 1, sizeof(int));
    if (ports == NULL) {
        topo->no_memory = true;
        return;
    }
    for (int i = 0; i < topo->port_count; i++) {
        int count = ++ports[topo->nodes[topo->ports[i]].parent];
        several += count == 2;
        most = count > most ? count : most;
    }
    free(ports);
    if (several > 0)
        topo_warn(topo, "%d NIC%s several ports (up to %d), which share %s PCI link", several,
                  several == 1 ? " has" : "s have", most, several == 1 ? "its" : "their");
}

static void warn_of_bridges(struct topo *topo, int first, int count, const char *says) {
    const char *busid = first >= 0 ? topo->nodes[first].busid : "";
    if (count == 1)
        topo_warn(topo, "bridge %s is said to have %s", busid, says);
    else if (count > 1)
        topo_warn(topo, "bridge %s and %d more are said to have %s", busid, count - 1, says);
}

/* Bridges that are slower than what hangs on them: hand-written, or read while the link slept.
 * Fewer lanes than one device below has are taken as that device's; a lower rate may be meant.
 * Those that are alike are named once. */
static void doubt_bridges(struct topo *topo) {
    char said[160] = "", says[160];
    int first = -1, count = 0;
    bool *named = calloc((size_t)topo->node_count + 1, sizeof(bool));
    if (named == NULL) {
        topo->no_memory = true;
        return;
    }
    for (int i = topo->node_count - 1; i >= 0; i--) {
        const struct topo_node *node = &topo->nodes[i];
        struct topo_node *above = node->parent >= 0 ? &topo->nodes[node->parent] : NULL;
        if (above == NULL || above->kind != TOPO_PCI || node->gbps <= 0 || above->gbps <= 0 ||
            node->kind == TOPO_PORT || above->gbps * 2 > node->gbps)
            continue;
        snprintf(says, sizeof(says),
                 "%d lanes of %.1f GT/s above a device with %d of %.1f: doubtful%s", above->lanes,
                 above->gts, node->lanes, node->gts,
                 above->lanes < node->lanes ? ", taken as wide as the device" : "");
        count += !named[node->parent] && strcmp(says, said) == 0;
        if (strcmp(says, said) != 0) {
            warn_of_bridges(topo, first, count, said);
            memcpy(said, says, sizeof(said));
            count = 1;
        }
        named[first = node->parent] = true;
        if (above->lanes < node->lanes) {
            above->lanes = node->lanes;
            above->gbps = topo_pci_speed(above->gts, above->lanes);
        }
    }
    warn_of_bridges(topo, first, count, said);
    free(named);
}

static int compare_names(const void *left, const void *right) {
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void doubt_busids(struct topo *topo) {
    const char **names = malloc(((size_t)topo->node_count + 1) * sizeof(*names));
    if (names == NULL) {
        topo->no_memory = true;
        return;
    }
    int total = 0, repeated = 0;
    const char *example = "";
    for (int host = 0; host < topo->host_count && host < 64; host++) {
        int count = 0;
        for (int i = 0; i < topo->node_count; i++)
            if (topo->nodes[i].host == host && topo->nodes[i].busid[0] != '\0' &&
                topo->nodes[i].kind != TOPO_PORT)
                names[count++] = topo->nodes[i].busid;
        qsort(names, (size_t)count, sizeof(*names), compare_names);
        for (int i = 1; i < count; i++)
            if (strcmp(names[i], names[i - 1]) == 0) {
                repeated++;
                example = names[i];
            }
        total += count;
    }
    free(names);
    if (repeated > 0)
        topo_warn(topo, "%d of %d PCI devices have a bus id that stands before, as %s", repeated,
                  total, example);
}

static void doubt_models(struct topo *topo) {
    bool linked = false;
    for (int i = 0; i < topo->link_count; i++)
        linked = linked || topo->nodes[topo->links[i].from].kind == TOPO_GPU;
    for (int i = 0; i < topo->gpu_count && !linked && topo->gpu_count > 1; i++) {
        const struct topo_node *node = &topo->nodes[topo->gpus[i]];
        for (size_t m = 0; m < sizeof(linked_models) / sizeof(linked_models[0]); m++)
            if (linked_models[m].vendor == node->vendor &&
                linked_models[m].device == node->device) {
                topo_warn(topo,
                          "the GPUs are %s, which have direct links, but the source has "
                          "none: rings go over PCI",
                          linked_models[m].name);
                return;
            }
    }
    if (!linked && topo->gpu_count > 1)
        topo_warn(topo, "the source has no links between GPUs; where the machine has some (NCCL "
                        "asks for them at run time), they are missing here");
}

static void doubt_empty_numa(struct topo *topo) {
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == TOPO_NUMA && topo->nodes[i].cpus != NULL &&
            hwloc_bitmap_iszero(topo->nodes[i].cpus))
            topo_warn(topo, "NUMA node %d has no CPUs", topo->nodes[i].numa);
}

rota_status topo_find_doubts(struct topo *topo) {
    int *values = calloc(2 * (size_t)topo->gpu_count + 1, sizeof(int));
    if (values == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", topo->source);
    doubt_bridges(topo);
    doubt_busids(topo);
    doubt_empty_numa(topo);
    doubt_numbers(topo, topo->gpus, topo->gpu_count, true, "GPU with rank");
    doubt_numbers(topo, topo->gpus, topo->gpu_count, false, "GPU with device number");
    doubt_numbers(topo, topo->ports, topo->port_count, false, "NIC port with device number");
    doubt_models(topo);
    doubt_links(topo, values);
    doubt_symmetry(topo);
    for (int device = 0; device < 2; device++) {
        enum topo_kind kind = device == 0 ? TOPO_GPU : TOPO_NIC;
        doubt_groups(topo, TOPO_PACKAGE, kind);
        doubt_groups(topo, TOPO_NUMA, kind);
        doubt_groups(topo, TOPO_PCI, kind);
    }
    doubt_nics(topo, values, &values[topo->gpu_count]);
    doubt_ports(topo);
    free(values);
    if (topo->no_memory)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", topo->source);
    return ROTA_OK;
}
