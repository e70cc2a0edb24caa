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

/* Places are NUMA nodes and packages; those that hold no others have memory. */
#define MAX_PLACES 1024

struct writing {
    FILE *out;
    int *memory;          /* by node: number of its memory, -1 none */
    hwloc_bitmap_t *cpus; /* by node: of the places at or below it, NULL where there is none */
    hwloc_bitmap_t *nodes;
};

static bool is_place(const struct topo_node *node) {
    return node->kind == TOPO_NUMA || node->kind == TOPO_PACKAGE;
}

/* Memory has the number of its NUMA node where no other has it, else one behind all of these. */
static void number_memory(const struct topo *topo, int *memory) {
    int most = -1, behind = 0, shared[MAX_PLACES] = {0};
    for (int i = 0; i < topo->node_count; i++)
        memory[i] = is_place(&topo->nodes[i]) ? 0 : -1;
    for (int i = 0; i < topo->node_count; i++)
        if (is_place(&topo->nodes[i]) && topo->nodes[i].parent >= 0)
            memory[topo->nodes[i].parent] = -1;
    for (int i = 0; i < topo->node_count; i++) {
        int numa = topo->nodes[i].numa;
        if (memory[i] == 0 && numa >= 0 && numa < MAX_PLACES) {
            shared[numa]++;
            most = numa > most ? numa : most;
        }
    }
    for (int i = 0; i < topo->node_count; i++) {
        int numa = topo->nodes[i].numa;
        if (memory[i] < 0)
            continue;
        bool own = numa >= 0 && numa < MAX_PLACES && shared[numa] == 1;
        memory[i] = own ? numa : most + 1 + behind;
        behind++;
    }
}

static bool add_to(hwloc_bitmap_t *set, hwloc_const_bitmap_t more) {
    if (*set == NULL)
        *set = hwloc_bitmap_alloc();
    return *set != NULL && hwloc_bitmap_or(*set, *set, more) == 0;
}

/* The sets of a place belong to all that hold it too. */
static bool add_up(const struct topo *topo, struct writing *writing, int index,
                   hwloc_const_bitmap_t cpus, hwloc_bitmap_t node) {
    bool fine = true;
    hwloc_bitmap_zero(node);
    if (writing->memory[index] >= 0)
        fine = hwloc_bitmap_set(node, (unsigned)writing->memory[index]) == 0;
    for (int at = index; at >= 0 && fine; at = topo->nodes[at].parent)
        fine = add_to(&writing->cpus[at], cpus) && add_to(&writing->nodes[at], node);
    return fine;
}

/* A place has its CPUs without those of earlier places beside it (hwloc refuses an overlap), or one
 * that is made up. */
static bool find_sets(const struct topo *topo, struct writing *writing, hwloc_bitmap_t *taken) {
    int made_up = 0;
    hwloc_bitmap_t own = hwloc_bitmap_alloc(), memory = hwloc_bitmap_alloc();
    bool fine = own != NULL && memory != NULL;
    for (int i = 0; i < topo->node_count; i++) {
        int last = topo->nodes[i].cpus == NULL ? -1 : hwloc_bitmap_last(topo->nodes[i].cpus);
        made_up = last >= made_up ? last + 1 : made_up;
    }
    for (int i = 0; i < topo->node_count && fine; i++) {
        const struct topo_node *node = &topo->nodes[i];
        if (!is_place(node))
            continue;
        bool known = node->cpus != NULL && hwloc_bitmap_last(node->cpus) >= 0; /* and finite */
        hwloc_bitmap_zero(own);
        fine = !known || (hwloc_bitmap_copy(own, node->cpus) == 0 &&
                          (taken[node->parent] == NULL ||
                           hwloc_bitmap_andnot(own, own, taken[node->parent]) == 0) &&
                          add_to(&taken[node->parent], node->cpus));
        if (hwloc_bitmap_iszero(own))
            fine = fine && hwloc_bitmap_set(own, (unsigned)made_up++) == 0;
        fine = fine && add_up(topo, writing, i, own, memory);
    }
    hwloc_bitmap_free(own);
    hwloc_bitmap_free(memory);
    return fine;
}

static void free_sets(hwloc_bitmap_t *sets, int count) {
    for (int i = 0; i < count && sets != NULL; i++)
        hwloc_bitmap_free(sets[i]);
    free(sets);
}

static void writing_free(const struct topo *topo, struct writing *writing) {
    free_sets(writing->cpus, topo->node_count);
    free_sets(writing->nodes, topo->node_count);
    free(writing->memory);
}

static bool writing_init(const struct topo *topo, FILE *out, struct writing *writing) {
    size_t nodes = (size_t)topo->node_count;
    hwloc_bitmap_t *taken = calloc(nodes, sizeof(hwloc_bitmap_t));
    *writing = (struct writing){.out = out,
                                .memory = calloc(nodes, sizeof(int)),
                                .cpus = calloc(nodes, sizeof(hwloc_bitmap_t)),
                                .nodes = calloc(nodes, sizeof(hwloc_bitmap_t))};
    bool fine =
        taken != NULL && writing->memory != NULL && writing->cpus != NULL && writing->nodes != NULL;
    if (fine)
        number_memory(topo, writing->memory);
    fine = fine && find_sets(topo, writing, taken);
    free_sets(taken, topo->node_count);
    return fine;
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

static void open_place(const struct topo *topo, int index, const struct writing *writing) {
    const struct topo_node *node = &topo->nodes[index];
    hwloc_const_bitmap_t cpus = writing->cpus[index], nodes = writing->nodes[index];
    hwloc_bitmap_t one = hwloc_bitmap_alloc();
    FILE *out = writing->out;
    bool package = node->kind == TOPO_PACKAGE || topo->nodes[node->parent].kind == TOPO_HOST;
    fprintf(out, "<object type=\"%s\" os_index=\"%d\"", package ? "Package" : "Group", index);
    print_sets(cpus, nodes, out);
    fprintf(out, " gp_index=\"%u\">\n", NUMBER(index, PART_SELF));
    if (writing->memory[index] >= 0) {
        fprintf(out, "<object type=\"NUMANode\" os_index=\"%d\"", writing->memory[index]);
        print_sets(cpus, nodes, out);
        fprintf(out, " gp_index=\"%u\" local_memory=\"1073741824\"/>\n",
                NUMBER(index, PART_MEMORY));
        for (int cpu = hwloc_bitmap_first(cpus); cpu >= 0 && one != NULL;
             cpu = hwloc_bitmap_next(cpus, cpu)) {
            hwloc_bitmap_only(one, (unsigned)cpu);
            fprintf(out, "<object type=\"PU\" os_index=\"%d\"", cpu);
            print_sets(one, nodes, out);
            fprintf(out, " gp_index=\"%u\"/>\n",
                    NUMBER(topo->node_count, PART_SELF) + (unsigned)cpu);
        }
    }
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

static void open_node(const struct topo *topo, int index, void *context) {
    const struct writing *writing = context;
    FILE *out = writing->out;
    const struct topo_node *node = &topo->nodes[index];
    if (node->kind == TOPO_PORT) {
        print_os_device(node->name, -1, 3, index, out);
        return;
    }
    if (is_place(node)) {
        open_place(topo, index, writing);
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

static void close_node(const struct topo *topo, int index, void *context) {
    FILE *out = ((const struct writing *)context)->out;
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

/* In the matrix of links, which has this number squared. */
#define MAX_LINKED 1024

static bool is_linked(const struct topo_node *node) {
    return node->kind == TOPO_GPU || node->kind == TOPO_NVSWITCH;
}

/* GPUs and NVSwitches, then bandwidths in MB/s. */
static bool print_links(const struct topo *topo, FILE *out) {
    int *nodes = malloc(((size_t)topo->node_count + 1) * sizeof(int)), count = 0;
    if (nodes == NULL)
        return false;
    for (int i = 0; i < topo->node_count; i++)
        if (is_linked(&topo->nodes[i]))
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

/* Why hwloc's XML cannot say it; NULL when it can. */
static const char *objection(const struct topo *topo) {
    int places = 0, devices = 0;
    for (int i = 0; i < topo->node_count; i++) {
        places += is_place(&topo->nodes[i]);
        devices += is_linked(&topo->nodes[i]);
    }
    if (topo->given_classes != NULL)
        return "a table says nothing of the devices";
    if (topo->host_count != 1)
        return "there is not one host";
    if (places == 0)
        return "there is no NUMA node";
    if (places > MAX_PLACES || devices > MAX_LINKED)
        return "there are more than 1024 NUMA nodes, or GPUs and NVSwitches";
    return NULL;
}

rota_status topo_write_hwloc(const struct topo *topo, FILE *out) {
    const char *wrong = objection(topo);
    struct writing writing;
    int host = 0;
    if (wrong != NULL)
        return error_raise(ROTA_ERR_UNSUPPORTED,
                           "%.150s: hwloc's XML describes one machine with NUMA nodes: %s",
                           topo->source, wrong);
    while (topo->nodes[host].kind != TOPO_HOST)
        host++;
    rota_status status = ROTA_OK;
    if (writing_init(topo, out, &writing)) {
        fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM "
              "\"hwloc2.dtd\">\n<topology version=\"2.0\">\n<object type=\"Machine\" "
              "os_index=\"0\"",
              out);
        print_sets(writing.cpus[host], writing.nodes[host], out);
        fputs(" gp_index=\"1\">\n", out);
        status = topo_walk(topo, &writing, hwloc_parent, open_node, close_node);
        fputs("</object>\n", out);
    } else {
        status = error_raise(ROTA_ERR_MEMORY, "no memory to write the topology");
    }
    writing_free(topo, &writing);
    if (status == ROTA_OK && !print_links(topo, out))
        status = error_raise(ROTA_ERR_MEMORY, "no memory to write the topology");
    fputs("</topology>\n", out);
    return status != ROTA_OK ? status : topo_printed(out);
}
