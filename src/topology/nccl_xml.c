/* Reader of NCCL's and RCCL's topology XML, as found in the wild: whole dumps, hand-written partial
 * files, devices without elements, attributes missing or odd. What cannot be told stays unknown;
 * what looks wrong is named in the warnings; only what is no such file is refused.
 *
 * expat calls element by element; `stack` holds, per open element, the node that its children hang
 * on (-1: they are of no use), so depth costs heap and no stack. Link targets are kept as text and
 * resolved at the end, when all devices are known. */
#include "base/error.h"
#include "topology/graph.h"
#include "topology/grow.h"
#include "topology/xml.h"

#include <ctype.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* An answer of more hosts than this is not a machine that anybody has in one file. */
#define MAX_HOSTS 4096
/* There are 256 buses; much of what is asked of the graph takes time by depth. */
#define MAX_DEPTH 256
/* PCIe 7.0 has 128 GT/s per lane; the fastest ports have 800000 Mbit/s. */
#define MAX_GTS 1024
#define MAX_MBPS 16e6

struct target {
    int gpu;
    int count;
    bool xgmi;
    char busid[32];
    uint32_t tclass;
};

struct reading {
    struct topo_xml xml;
    struct topo *topo;
    int *stack;
    int depth, room;
    struct target *targets;
    int target_count, target_room;
    size_t affinity_length;
    int unclassified, by_class, no_speed, no_vendor, no_affinity, no_port_speed, stray_text;
    char some_gpu[32], some_port[64]; /* of those */
    int ports, direct_ports;
};

static int attribute_int(const char **attributes, const char *name, int fallback) {
    const char *text = topo_xml_attribute(attributes, name);
    char *end;
    if (text == NULL)
        return fallback;
    long value = strtol(text, &end, 10);
    return end == text || value < -1 || value > INT_MAX / 4 ? fallback : (int)value;
}

static uint32_t attribute_hex(const char **attributes, const char *name) {
    const char *text = topo_xml_attribute(attributes, name);
    return text == NULL ? 0 : (uint32_t)strtoul(text, NULL, 16);
}

/* Number at the beginning: "16 GT/s", "16.0 GT/s PCIe"; 0 for none, or one above `most`. */
static double leading_number(const char *text, double most) {
    char *end;
    double value = text == NULL ? 0 : strtod(text, &end);
    return text != NULL && end != text && value > 0 && value <= most ? value : 0;
}

static void copy_busid(char to[32], const char *from) {
    topo_copy_text(to, 32, from);
    for (char *at = to; *at != '\0'; at++)
        *at = (char)tolower((unsigned char)*at);
}

/* Words of 32 bits, the highest first. The kernel writes the masks of all NUMA nodes with the same
 * number of digits, so one that is shorter has lost some on the way. */
static hwloc_bitmap_t read_affinity(struct reading *reading, const char *text, int numa) {
    hwloc_bitmap_t cpus = hwloc_bitmap_alloc();
    if (cpus == NULL) {
        reading->topo->no_memory = true;
        return NULL;
    }
    unsigned words = 1;
    for (const char *at = text; *at != '\0'; at++)
        words += *at == ',';
    size_t length = strlen(text);
    if (reading->affinity_length == 0)
        reading->affinity_length = length;
    if (length != reading->affinity_length)
        topo_warn(reading->topo,
                  "NUMA node %d: its affinity, \"%.20s...\", has %zu characters and "
                  "that of others %zu: CPUs may be missing",
                  numa, text, length, reading->affinity_length);
    const char *at = text;
    for (unsigned word = words; word > 0 && words <= 1024; word--) {
        char *end;
        unsigned long bits = strtoul(at, &end, 16);
        if (end == at || (*end != ',' && *end != '\0') || bits > UINT32_MAX) {
            topo_warn(reading->topo,
                      "NUMA node %d: affinity \"%.80s\" is no list of hexadecimal "
                      "words, ignored",
                      numa, text);
            hwloc_bitmap_zero(cpus);
            break;
        }
        for (unsigned bit = 0; bit < 32; bit++)
            if (bits >> bit & 1)
                hwloc_bitmap_set(cpus, (word - 1) * 32 + bit);
        at = end + 1; /* not read after the last word */
    }
    return cpus;
}

static int open_cpu(struct reading *reading, const char **attributes) {
    struct topo *topo = reading->topo;
    const char *hash = topo_xml_attribute(attributes, "host_hash");
    int host = topo_host_named(topo, hash != NULL ? hash : "");
    if (topo->host_count > MAX_HOSTS)
        topo_xml_refuse(&reading->xml, "more than 4096 hosts (host_hash)");
    int numa = topo_add_node(topo, TOPO_NUMA, host);
    if (host < 0 || numa < 0)
        return -1;
    struct topo_node *node = &topo->nodes[numa];
    node->numa = attribute_int(attributes, "numaid", -1);
    topo_copy_text(node->arch_name, sizeof(node->arch_name),
                   topo_xml_attribute(attributes, "arch"));
    topo_copy_text(node->vendor_name, sizeof(node->vendor_name),
                   topo_xml_attribute(attributes, "vendor"));
    node->family = (uint32_t)attribute_int(attributes, "familyid", 0);
    node->model = (uint32_t)attribute_int(attributes, "modelid", 0);
    reading->no_vendor += node->arch_name[0] == '\0' || node->vendor_name[0] == '\0';
    if (node->numa < 0)
        topo_warn(topo, "a cpu element has no numaid");
    const char *affinity = topo_xml_attribute(attributes, "affinity");
    if (affinity != NULL && affinity[0] != '\0')
        topo->nodes[numa].cpus = read_affinity(reading, affinity, topo->nodes[numa].numa);
    else
        reading->no_affinity++;
    return topo_add_node(topo, TOPO_ROOT, numa);
}

static int open_pci(struct reading *reading, int parent, const char **attributes) {
    int pci = topo_add_node(reading->topo, TOPO_PCI, parent);
    if (pci < 0)
        return -1;
    struct topo_node *node = &reading->topo->nodes[pci];
    copy_busid(node->busid, topo_xml_attribute(attributes, "busid"));
    node->pci_class = attribute_hex(attributes, "class");
    node->vendor = attribute_hex(attributes, "vendor");
    node->device = attribute_hex(attributes, "device");
    node->gts = leading_number(topo_xml_attribute(attributes, "link_speed"), MAX_GTS);
    node->lanes = attribute_int(attributes, "link_width", 0);
    if (node->lanes < 0 || node->lanes > 64)
        node->lanes = 0;
    node->gbps = topo_pci_speed(node->gts, node->lanes);
    reading->no_speed += node->gbps <= 0;
    return pci;
}

/* A device element turns the PCI node that it stands in into the device; a second one in the same
 * node, or one directly below a CPU, gets a node of its own. */
static int device_node(struct reading *reading, enum topo_kind kind, int parent) {
    struct topo_node *above = &reading->topo->nodes[parent];
    if (above->kind == TOPO_PCI) {
        above->kind = kind;
        return parent;
    }
    int holder = above->kind == TOPO_ROOT ? parent : above->parent;
    int node = topo_add_node(reading->topo, kind, holder);
    if (node >= 0 && holder != parent) {
        const struct topo_node *twin = &reading->topo->nodes[parent];
        memcpy(reading->topo->nodes[node].busid, twin->busid, sizeof(twin->busid));
        reading->topo->nodes[node].gbps = twin->gbps;
    }
    return node;
}

/* "910", "gfx942", "gfx90a" (910 in older files). */
static int read_gcn(const char *text) {
    if (strncmp(text, "gfx", 3) == 0)
        text += 3;
    if (strncmp(text, "90a", 3) == 0)
        return 910;
    return (int)leading_number(text, 1e6);
}

static int open_gpu(struct reading *reading, int parent, const char **attributes) {
    int gpu = device_node(reading, TOPO_GPU, parent);
    if (gpu < 0)
        return -1;
    struct topo_node *node = &reading->topo->nodes[gpu];
    const char *gcn = topo_xml_attribute(attributes, "gcn");
    node->dev = attribute_int(attributes, "dev", -1);
    node->rank = attribute_int(attributes, "rank", -1);
    node->arch = gcn != NULL ? read_gcn(gcn) : attribute_int(attributes, "sm", 0);
    if (node->arch < 0)
        node->arch = 0;
    return gpu;
}

static int open_port(struct reading *reading, int parent, const char **attributes) {
    int port = topo_add_node(reading->topo, TOPO_PORT, parent);
    if (port < 0)
        return -1;
    struct topo_node *node = &reading->topo->nodes[port];
    const char *name = topo_xml_attribute(attributes, "name");
    node->dev = attribute_int(attributes, "dev", -1);
    if (name != NULL && name[0] != '\0')
        topo_copy_text(node->name, sizeof(node->name), name);
    else
        snprintf(node->name, sizeof(node->name), "net%d", node->dev);
    node->gbps = leading_number(topo_xml_attribute(attributes, "speed"), MAX_MBPS) / 8000.0;
    reading->direct_ports += attribute_int(attributes, "gdr", 1) != 0;
    reading->ports++;
    if (node->gbps <= 0 && reading->no_port_speed++ == 0)
        memcpy(reading->some_port, node->name, sizeof(node->name));
    return port;
}

static void add_target(struct reading *reading, int gpu, bool xgmi, const char **attributes) {
    if (!grow((void **)&reading->targets, reading->target_count, &reading->target_room,
              sizeof(*reading->targets))) {
        reading->topo->no_memory = true;
        return;
    }
    struct target *target = &reading->targets[reading->target_count];
    target->gpu = gpu;
    target->xgmi = xgmi;
    target->count = attribute_int(attributes, "count", -1);
    target->tclass = attribute_hex(attributes, "tclass");
    copy_busid(target->busid, topo_xml_attribute(attributes, "target"));
    if (target->count < 0 || target->count > 1024) {
        topo_warn(reading->topo, "a link to %s has no usable count: taken as 1", target->busid);
        target->count = 1;
    }
    reading->target_count++;
}

/* What the children of this element hang on. */
static int open_element(struct reading *reading, int parent, const char *name,
                        const char **attributes) {
    enum topo_kind above = parent >= 0 ? reading->topo->nodes[parent].kind : TOPO_GONE;
    if (strcmp(name, "cpu") == 0)
        return open_cpu(reading, attributes);
    if (above == TOPO_GONE)
        return -1;
    if (strcmp(name, "pci") == 0)
        return open_pci(reading, parent, attributes);
    if (strcmp(name, "gpu") == 0)
        return open_gpu(reading, parent, attributes);
    if (strcmp(name, "nic") == 0)
        return device_node(reading, TOPO_NIC, parent);
    if (strcmp(name, "net") == 0) {
        if (above != TOPO_NIC)
            parent = device_node(reading, TOPO_NIC, parent);
        return parent < 0 ? -1 : open_port(reading, parent, attributes);
    }
    bool xgmi = strcmp(name, "xgmi") == 0;
    if (xgmi || strcmp(name, "nvlink") == 0) {
        if (above == TOPO_GPU)
            add_target(reading, parent, xgmi, attributes);
        else
            topo_warn(reading->topo, "an <%s> stands outside a GPU, ignored", name);
        return -1;
    }
    if (strcmp(name, "c2c") != 0)
        topo_warn(reading->topo, "element <%.40s> is not known, ignored", name);
    return -1;
}

static void on_start(void *argument, const char *name, const char **attributes) {
    struct reading *reading = argument;
    if (reading->depth == 0 && strcmp(name, "system") != 0)
        topo_xml_refuse(&reading->xml, "the root element is not <system>");
    if (reading->depth > MAX_DEPTH) {
        topo_xml_refuse(&reading->xml,
                        "elements are nested deeper than 256 levels, which PCI cannot be");
        return;
    }
    if (!grow((void **)&reading->stack, reading->depth, &reading->room, sizeof(int))) {
        reading->topo->no_memory = true;
        topo_xml_refuse(&reading->xml, "no memory");
        return;
    }
    int parent = reading->depth > 0 ? reading->stack[reading->depth - 1] : -1;
    reading->stack[reading->depth] =
        reading->depth == 0 ? -1 : open_element(reading, parent, name, attributes);
    reading->depth++;
}

static void on_end(void *argument, const char *name) {
    (void)name;
    ((struct reading *)argument)->depth--;
}

static void on_text(void *argument, const char *text, int length) {
    struct reading *reading = argument;
    for (int i = 0; i < length; i++)
        if (!isspace((unsigned char)text[i])) {
            reading->stray_text++;
            return;
        }
}

/* Leaves that no element tells apart: by PCI class, else unknown. */
static void classify_leaves(struct reading *reading) {
    struct topo *topo = reading->topo;
    bool *has_child = calloc((size_t)topo->node_count + 1, sizeof(bool));
    if (has_child == NULL) {
        topo->no_memory = true;
        return;
    }
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].parent >= 0)
            has_child[topo->nodes[i].parent] = true;
    for (int i = topo->node_count - 1; i >= 0; i--) {
        struct topo_node *node = &topo->nodes[i];
        if (node->kind != TOPO_PCI || has_child[i])
            continue;
        if (node->pci_class >> 8 == 0x0604)
            topo_warn(topo, "PCI switch %s leads to no device", node->busid);
        uint32_t class = node->pci_class >> 16;
        if (class == 0x03 || class == 0x12)
            node->kind = TOPO_GPU;
        else if (class == 0x02)
            node->kind = TOPO_NIC;
        else if (node->pci_class >> 8 == 0x0680)
            node->kind = TOPO_NVSWITCH;
        else if (node->pci_class == 0) {
            node->kind = TOPO_GONE;
            reading->unclassified++;
        }
        if (node->kind == TOPO_GPU) {
            reading->by_class++;
            memcpy(reading->some_gpu, node->busid, sizeof(node->busid));
        }
    }
    for (int i = 0, count = topo->node_count; i < count; i++)
        if (topo->nodes[i].kind == TOPO_NIC && !has_child[i]) {
            int port = topo_add_node(topo, TOPO_PORT, i);
            if (port >= 0)
                topo_copy_text(topo->nodes[port].name, sizeof(topo->nodes[port].name),
                               topo->nodes[i].busid[0] ? topo->nodes[i].busid : "nic");
        }
    free(has_child);
}

/* What links may lead to: a GPU or NVSwitch, or (node -1) an NVSwitch that only they name. */
struct device {
    int host, node;
    char busid[32];
};

static int compare_places(const void *left, const void *right) {
    const struct device *a = left, *b = right;
    int compared = strcmp(a->busid, b->busid);
    return compared != 0 ? compared : (a->host > b->host) - (a->host < b->host);
}

/* Nodes of the file before what links name. */
static int compare_devices(const void *left, const void *right) {
    const struct device *a = left, *b = right;
    int compared = compare_places(a, b);
    return compared != 0 ? compared : (a->node < 0) - (b->node < 0);
}

static struct device device_named(const char busid[32], int host, int node) {
    struct device device = {.host = host, .node = node};
    memcpy(device.busid, busid, sizeof(device.busid));
    return device;
}

/* All of them, sorted, none twice; NULL without memory. */
static struct device *list_devices(struct reading *reading, int *count) {
    struct topo *topo = reading->topo;
    size_t room = (size_t)topo->node_count + (size_t)reading->target_count + 1;
    struct device *devices = calloc(room, sizeof(*devices));
    int listed = 0;
    for (int i = 0; i < topo->node_count && devices != NULL; i++)
        if (topo->nodes[i].kind == TOPO_GPU || topo->nodes[i].kind == TOPO_NVSWITCH)
            devices[listed++] = device_named(topo->nodes[i].busid, topo->nodes[i].host, i);
    for (int i = 0; i < reading->target_count && devices != NULL; i++) {
        const struct target *target = &reading->targets[i];
        if (target->tclass >> 8 == 0x0680)
            devices[listed++] =
                device_named(target->busid, topo->nodes[target->gpu].host, -1 - target->gpu);
    }
    *count = 0;
    if (devices == NULL)
        return NULL;
    qsort(devices, (size_t)listed, sizeof(*devices), compare_devices);
    for (int i = 0; i < listed; i++) {
        struct device *last = *count > 0 ? &devices[*count - 1] : NULL;
        if (last != NULL && compare_places(last, &devices[i]) == 0)
            continue;
        devices[*count] = devices[i];
        struct device *made = &devices[(*count)++];
        if (made->node >= 0)
            continue;
        made->node =
            topo_add_node(topo, TOPO_NVSWITCH, topo_above(topo, -1 - made->node, TOPO_HOST));
        if (made->node >= 0)
            memcpy(topo->nodes[made->node].busid, made->busid, sizeof(made->busid));
    }
    return devices;
}

static void resolve_targets(struct reading *reading) {
    struct topo *topo = reading->topo;
    int count;
    struct device *devices = list_devices(reading, &count);
    if (devices == NULL)
        topo->no_memory = true;
    for (int i = 0; i < reading->target_count && !topo->no_memory; i++) {
        const struct target *target = &reading->targets[i];
        struct topo_node *gpu = &topo->nodes[target->gpu];
        struct device wanted = device_named(target->busid, gpu->host, 0);
        const struct device *found =
            bsearch(&wanted, devices, (size_t)count, sizeof(*devices), compare_places);
        if (found == NULL) {
            topo_warn(topo, "GPU %s has %d links to %s, which is not in the file", gpu->busid,
                      target->count, target->busid);
        } else if (found->node == target->gpu) {
            gpu->self_links += target->count;
            topo_warn(topo, "GPU %s names itself as the target of %d links, ignored", gpu->busid,
                      target->count);
        } else {
            topo->brand = target->xgmi ? TOPO_XGMI : topo->brand;
            topo_add_link(topo, target->gpu, found->node, target->count);
        }
    }
    free(devices);
}

static void summarize(struct reading *reading) {
    struct topo *topo = reading->topo;
    if (reading->by_class > 0)
        topo_warn(topo, "known to be GPUs by their PCI class alone: %d, the first %s",
                  reading->by_class, reading->some_gpu);
    if (reading->no_port_speed > 0)
        topo_warn(topo, "NIC ports without a speed: %d, the first %s", reading->no_port_speed,
                  reading->some_port);
    if (reading->unclassified > 0)
        topo_warn(topo, "PCI devices without a class, left out: %d", reading->unclassified);
    if (reading->no_speed > 0)
        topo_warn(topo, "PCI devices without a usable link_speed or link_width: %d",
                  reading->no_speed);
    if (reading->no_vendor > 0)
        topo_warn(topo, "cpu elements without arch or vendor: %d; NUMA links get the default speed",
                  reading->no_vendor);
    if (reading->no_affinity > 0)
        topo_warn(topo, "cpu elements without affinity: %d; their CPUs are unknown",
                  reading->no_affinity);
    if (reading->ports > 0 && reading->direct_ports == 0)
        topo_warn(topo, "no NIC reaches GPU memory by itself (gdr=0): data are copied through the "
                        "host");
    if (reading->stray_text > 0)
        topo_warn(topo, "stray text between the elements, ignored");
}

rota_status topo_read_nccl(struct topo *topo, const char *bytes, size_t length) {
    struct reading reading = {.topo = topo};
    rota_status status =
        topo_xml_parse(&reading.xml, topo->source, bytes, length, on_start, on_end, on_text);
    if (topo->no_memory)
        status = error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", topo->source);
    if (status == ROTA_OK) {
        classify_leaves(&reading);
        resolve_targets(&reading);
        summarize(&reading);
    }
    free(reading.stack);
    free(reading.targets);
    return status;
}
