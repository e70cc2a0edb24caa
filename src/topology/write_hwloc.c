/* Writer of hwloc XML, version 2, for hwloc's tools and for HWLOC_XMLFILE.
 *
 * hwloc wants CPUs, memory and bus ids of everything. Where the graph has none, PUs are made up,
 * one per NUMA node, above all that are known; each switch gets the ports that it would have, in
 * PCI domain fffe, which no machine uses. Links become the matrix NVLinkBandwidth or XGMIBandwidth.
 */
#include "base/error.h"
#include "topology/walk.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of objects: hwloc wants them unique within a file, and matrices refer to them. */
#define NUMBER(index, part) ((unsigned)(index)*8 + 8 + (part))
enum { PART_SELF, PART_MEMORY, PART_PORT, PART_OS };

/* Which CPUs a place has in the file: its own, or one that is made up. */
static bool is_place(const struct topo_node *node) {
    return node->kind == TOPO_NUMA || node->kind == TOPO_PACKAGE;
}

static unsigned made_up_cpu(const struct topo *topo, int index) {
    int last = -1;
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].cpus != NULL && hwloc_bitmap_last(topo->nodes[i].cpus) > last)
            last = hwloc_bitmap_last(topo->nodes[i].cpus);
    return (unsigned)(last + 1 + index);
}

/* Its CPUs without those of earlier places of the same kind: hwloc refuses an overlap. */
static hwloc_bitmap_t cpus_of(const struct topo *topo, int index) {
    const struct topo_node *node = &topo->nodes[index];
    hwloc_bitmap_t cpus = node->cpus != NULL ? hwloc_bitmap_dup(node->cpus) : hwloc_bitmap_alloc();
    for (int i = 0; i < index && cpus != NULL; i++)
        if (is_place(&topo->nodes[i]) && topo->nodes[i].cpus != NULL &&
            topo->nodes[i].parent == node->parent)
            hwloc_bitmap_andnot(cpus, cpus, topo->nodes[i].cpus);
    if (cpus != NULL && hwloc_bitmap_iszero(cpus))
        hwloc_bitmap_set(cpus, made_up_cpu(topo, index));
    return cpus;
}

static bool has_places(const struct topo *topo, int index) {
    for (int i = index + 1; i < topo->node_count; i++)
        if (is_place(&topo->nodes[i]) && topo->nodes[i].parent == index)
            return true;
    return false;
}

#define MAX_NUMA 1024

/* Number of a place with memory of its own: that of the NUMA node where no other has it, else one
 * behind all of these; -1 for other places. */
static int memory_number(const struct topo *topo, int index) {
    int numa = topo->nodes[index].numa, most = -1, before = 0;
    bool own = numa >= 0 && numa < MAX_NUMA;
    if (has_places(topo, index))
        return -1;
    for (int i = 0; i < topo->node_count; i++) {
        int other = topo->nodes[i].numa;
        if (i == index || !is_place(&topo->nodes[i]) || has_places(topo, i))
            continue;
        own = own && other != numa;
        most = other > most && other < MAX_NUMA ? other : most;
        before += i < index;
    }
    most = numa > most && numa < MAX_NUMA ? numa : most;
    return own ? numa : most + 1 + before;
}

static void print_set(const char *name, hwloc_const_bitmap_t set, FILE *out) {
    char *text = NULL;
    if (hwloc_bitmap_asprintf(&text, set) < 0)
        return;
    fprintf(out, " %s=\"%s\" complete_%s=\"%s\"", name, text, name, text);
    free(text);
}

static void print_sets(hwloc_const_bitmap_t cpus, hwloc_const_bitmap_t nodes, FILE *out) {
    print_set("cpuset", cpus, out);
    print_set("nodeset", nodes, out);
}

/* CPUs and memory nodes at or below a place. */
static void gather(const struct topo *topo, int index, hwloc_bitmap_t cpus, hwloc_bitmap_t nodes) {
    for (int i = 0; i < topo->node_count; i++) {
        int above = i;
        while (above >= 0 && above != index)
            above = topo->nodes[above].parent;
        if (above != index || !is_place(&topo->nodes[i]))
            continue;
        hwloc_bitmap_t own = cpus_of(topo, i);
        if (own != NULL)
            hwloc_bitmap_or(cpus, cpus, own);
        hwloc_bitmap_free(own);
        if (memory_number(topo, i) >= 0)
            hwloc_bitmap_set(nodes, (unsigned)memory_number(topo, i));
    }
}

static void open_place(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    hwloc_bitmap_t one = hwloc_bitmap_alloc();
    int memory = memory_number(topo, index);
    bool package = node->kind == TOPO_PACKAGE || topo->nodes[node->parent].kind == TOPO_HOST;
    if (cpus != NULL && nodes != NULL && one != NULL) {
        gather(topo, index, cpus, nodes);
        fprintf(out, "<object type=\"%s\" os_index=\"%d\"", package ? "Package" : "Group", index);
        print_sets(cpus, nodes, out);
        fprintf(out, " gp_index=\"%u\">\n", NUMBER(index, PART_SELF));
        if (memory >= 0) {
            fprintf(out, "<object type=\"NUMANode\" os_index=\"%d\"", memory);
            print_sets(cpus, nodes, out);
            fprintf(out, " gp_index=\"%u\" local_memory=\"1073741824\"/>\n",
                    NUMBER(index, PART_MEMORY));
            for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0; cpu = hwloc_bitmap_next(cpus, cpu)) {
                hwloc_bitmap_only(one, (unsigned)cpu);
                fprintf(out, "<object type=\"PU\" os_index=\"%d\"", cpu);
                print_sets(one, nodes, out);
                fprintf(out, " gp_index=\"%u\"/>\n",
                        NUMBER(topo->node_count, PART_SELF) + (unsigned)cpu);
            }
        }
    }
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    hwloc_bitmap_free(one);
}

/* "0000:0f:00.0" where it is a bus id that hwloc can hold, else one of domain fffd. */
static void print_busid(const struct topo_node *node, int index, FILE *out) {
    unsigned domain, bus, device, function;
    char rest;
    if (sscanf(node->busid, "%x:%x:%x.%x%c", &domain, &bus, &device, &function, &rest) == 4 &&
        domain <= 0xffff && bus <= 0xff && device <= 0x1f && function <= 7)
        fprintf(out, " pci_busid=\"%04x:%02x:%02x.%x\"", domain, bus, device, function);
    else
        fprintf(out, " pci_busid=\"fffd:%02x:%02x.%x\"", index >> 8 & 0xff, index >> 3 & 0x1f,
                index & 7);
}

static void print_pci(const struct topo_node *node, int index, uint32_t class, FILE *out) {
    print_busid(node, index, out);
    fprintf(out,
            " pci_type=\"%04x [%04x:%04x] [0000:0000] 00\" pci_link_speed=\"%.6f\" gp_index=\"%u\"",
            class, node->vendor, node->device, node->gbps * 15.75 / 12.0, NUMBER(index, PART_SELF));
}

static bool has_port_above(const struct topo *topo, const struct topo_node *node) {
    return node->parent >= 0 && (topo->nodes[node->parent].kind == TOPO_ROOT ||
                                 topo->nodes[node->parent].kind == TOPO_PCI);
}

static void open_port_above(int index, FILE *out) {
    fprintf(out,
            "<object type=\"Bridge\" bridge_type=\"1-1\" depth=\"1\" bridge_pci=\"fffe:[00-ff]\" "
            "pci_busid=\"fffe:%02x:%02x.%x\" pci_type=\"0604 [0000:0000] [0000:0000] 00\" "
            "pci_link_speed=\"0.000000\" gp_index=\"%u\">\n",
            index >> 8 & 0xff, index >> 3 & 0x1f, index & 7, NUMBER(index, PART_PORT));
}

static void print_os_device(const char *name, int id, int type, int index, FILE *out) {
    fputs("<object type=\"OSDev\" name=\"", out);
    topo_print_xml(name, out);
    if (id >= 0)
        fprintf(out, "%d", id);
    fprintf(out, "\" osdev_type=\"%d\" gp_index=\"%u\"/>\n", type, NUMBER(index, PART_OS));
}

static void open_device(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    uint32_t class = node->pci_class >> 8;
    if (node->kind == TOPO_GPU) {
        fputs("<object type=\"PCIDev\"", out);
        print_pci(node, index, class != 0 ? class : 0x0302, out);
        fputs(">\n", out);
        print_os_device(topo->brand == TOPO_XGMI ? "rsmi" : "nvml", node->id, 1, index, out);
    } else if (node->kind == TOPO_NIC) {
        fputs("<object type=\"PCIDev\"", out);
        print_pci(node, index, class != 0 ? class : 0x0200, out);
        fputs(">\n", out);
    } else { /* an NVSwitch: known by its class and maker */
        struct topo_node made = *node;
        made.vendor = 0x10de;
        fputs("<object type=\"PCIDev\"", out);
        print_pci(&made, index, 0x0680, out);
        fputs(">\n", out);
    }
}

static void open_node(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    if (node->kind == TOPO_PORT) {
        print_os_device(node->name, -1, 3, index, out);
        return;
    }
    if (is_place(node)) {
        open_place(topo, index, out);
        return;
    }
    if (node->kind == TOPO_HOST || node->kind == TOPO_SWITCH)
        return;
    if (has_port_above(topo, node))
        open_port_above(index, out);
    if (node->kind == TOPO_ROOT) {
        fprintf(out,
                "<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "
                "bridge_pci=\"0000:[00-ff]\" gp_index=\"%u\">\n",
                NUMBER(index, PART_SELF));
    } else if (node->kind == TOPO_PCI) {
        fputs("<object type=\"Bridge\" bridge_type=\"1-1\" depth=\"2\" "
              "bridge_pci=\"0000:[00-ff]\"",
              out);
        print_pci(node, index, 0x0604, out);
        fputs(">\n", out);
    } else {
        open_device(topo, index, out);
    }
}

static void close_node(const struct topo *topo, int index, FILE *out) {
    const struct topo_node *node = &topo->nodes[index];
    if (node->kind == TOPO_HOST || node->kind == TOPO_SWITCH || node->kind == TOPO_PORT)
        return;
    fputs(has_port_above(topo, node) ? "</object>\n</object>\n" : "</object>\n", out);
}

/* NVSwitches that only links know hang on the first host bridge. */
static int hwloc_parent(const struct topo *topo, int index) {
    int parent = topo->nodes[index].parent;
    if (topo->nodes[index].kind != TOPO_NVSWITCH || topo->nodes[parent].kind != TOPO_HOST)
        return parent;
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == TOPO_ROOT)
            return i;
    return parent;
}

static unsigned object_number(const struct topo *topo, int index) {
    return NUMBER(index, topo->nodes[index].kind == TOPO_GPU ? PART_OS : PART_SELF);
}

/* GPUs and NVSwitches, then bandwidths in MB/s. */
static bool print_links(const struct topo *topo, FILE *out) {
    int *nodes = malloc(((size_t)topo->node_count + 1) * sizeof(int)), count = 0;
    if (nodes == NULL)
        return false;
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == TOPO_GPU || topo->nodes[i].kind == TOPO_NVSWITCH)
            nodes[count++] = i;
    int *counts = calloc((size_t)count * (size_t)count + 1, sizeof(int)), any = 0;
    int *place = calloc((size_t)topo->node_count + 1, sizeof(int));
    for (int i = 0; i < count && place != NULL; i++)
        place[nodes[i]] = i;
    for (int i = 0; i < topo->link_count && counts != NULL && place != NULL; i++) {
        const struct topo_link *link = &topo->links[i];
        enum topo_kind to = topo->nodes[link->to].kind;
        if (topo->nodes[link->from].kind != TOPO_GPU || (to != TOPO_GPU && to != TOPO_NVSWITCH))
            continue;
        counts[place[link->from] * count + place[link->to]] += link->count;
        any = 1;
    }
    unsigned mbps = topo->gpu_count > 0 ? topo_nvlink_mbps(&topo->nodes[topo->gpus[0]]) : 0;
    if (any) {
        fprintf(out, "<distances2hetero nbobjs=\"%d\" kind=\"25\" name=\"%s\">\n", count,
                topo->brand == TOPO_XGMI ? "XGMIBandwidth" : "NVLinkBandwidth");
        for (int i = 0; i < count; i++) {
            char text[48];
            int length = snprintf(text, sizeof(text), "%s:%u ",
                                  topo->nodes[nodes[i]].kind == TOPO_GPU ? "OSDev" : "PCIDev",
                                  object_number(topo, nodes[i]));
            fprintf(out, "<indexes length=\"%d\">%s</indexes>\n", length, text);
        }
        for (int i = 0; i < count * count; i++) {
            char text[32];
            int length = snprintf(text, sizeof(text), "%lld ", counts[i] * (long long)mbps);
            fprintf(out, "<u64values length=\"%d\">%s</u64values>\n", length, text);
        }
        fputs("</distances2hetero>\n", out);
    }
    bool fine = counts != NULL && place != NULL;
    free(nodes);
    free(counts);
    free(place);
    return fine;
}

rota_status topo_write_hwloc(const struct topo *topo, FILE *out) {
    int host = 0, place = -1;
    for (int i = 0; i < topo->node_count; i++)
        place = is_place(&topo->nodes[i]) ? i : place;
    while (host < topo->node_count && topo->nodes[host].kind != TOPO_HOST)
        host++;
    if (topo->given_classes != NULL)
        return error_raise(ROTA_ERR_UNSUPPORTED,
                           "%.150s: a table says nothing of the devices that "
                           "hwloc's XML describes",
                           topo->source);
    if (topo->host_count > 1 || host == topo->node_count || place < 0)
        return error_raise(ROTA_ERR_UNSUPPORTED,
                           "%.150s: hwloc's XML describes one machine with NUMA nodes, this has %d "
                           "hosts%s",
                           topo->source, topo->host_count, place < 0 ? " and no NUMA node" : "");
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc(), nodes = hwloc_bitmap_alloc();
    bool fine = cpus != NULL && nodes != NULL;
    if (fine) {
        gather(topo, host, cpus, nodes);
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM "
              "\"hwloc2.dtd\">\n<topology version=\"2.0\">\n<object type=\"Machine\" "
              "os_index=\"0\"",
              out);
        print_sets(cpus, nodes, out);
        fputs(" gp_index=\"1\">\n", out);
    }
    hwloc_bitmap_free(cpus);
    hwloc_bitmap_free(nodes);
    rota_status status = fine ? topo_walk(topo, out, hwloc_parent, open_node, close_node)
                              : error_raise(ROTA_ERR_MEMORY, "no memory to write the topology");
    fputs("</object>\n", out);
    if (status == ROTA_OK && !print_links(topo, out))
        status = error_raise(ROTA_ERR_MEMORY, "no memory to write the topology");
    fputs("</topology>\n", out);
    return status != ROTA_OK ? status : topo_printed(out);
}
