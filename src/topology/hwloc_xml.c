/* This machine, or an hwloc XML file (versions 1 and 2), as a graph.
 *
 * hwloc lists every PCI bridge; a switch is there as its upstream port above its downstream ports,
 * and a root port above that. Ports that lead to one thing only are left out, so that what remains
 * of PCI are switches, as in NCCL's files, and path classes mean the same for both. */
#include "base/error.h"
#include "topology/graph.h"
#include "topology/hwloc_check.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* What an OS device's name says of a GPU, the most telling first. */
static const struct {
    const char *prefix;
    int rank;
} gpu_names[] = {{"nvml", 0},   {"rsmi", 1},    {"ze", 2},  {"cuda", 3},
                 {"opencl", 4}, {"renderD", 5}, {"card", 6}};
#define GPU_NAMES (int)(sizeof(gpu_names) / sizeof(gpu_names[0]))

#define VENDOR_NVIDIA 0x10de
#define VENDOR_AMD 0x1002
#define VENDOR_INTEL 0x8086
#define VENDOR_CRAY 0x17db /* Slingshot NICs, which are no OpenFabrics devices */

struct import {
    struct topo *topo;
    hwloc_topology_t hwloc;
    int host;
    int *node_of;  /* of a PCI object, by its place in the list of PCI objects; -1 none */
    int family;    /* of gpu_names, by which GPUs are known */
    bool all_nics; /* Ethernet too, because there is nothing better */
};

static bool is_pci_class(hwloc_obj_t pci, unsigned class) {
    return pci->attr->pcidev.class_id >> 8 == class;
}

/* Index in gpu_names of an OS device that stands for a GPU, GPU_NAMES for another. */
static int gpu_family(hwloc_obj_t os) {
    int found = GPU_NAMES;
    for (int i = 0; i < GPU_NAMES && found == GPU_NAMES; i++)
        if (os->name != NULL &&
            strncmp(os->name, gpu_names[i].prefix, strlen(gpu_names[i].prefix)) == 0)
            found = i;
    hwloc_obj_t pci = os->parent;
    if (found == GPU_NAMES || pci == NULL || pci->type != HWLOC_OBJ_PCI_DEVICE)
        return GPU_NAMES;
    unsigned vendor = pci->attr->pcidev.vendor_id;
    bool accelerator =
        is_pci_class(pci, 0x12) || is_pci_class(pci, 0x03) || pci->attr->pcidev.class_id == 0;
    bool known = vendor == VENDOR_NVIDIA || vendor == VENDOR_AMD || vendor == VENDOR_INTEL;
    return accelerator && (known || found < 5) ? found : GPU_NAMES; /* card: not the BMC's */
}

static hwloc_obj_t gpu_os_device(const struct import *import, hwloc_obj_t pci) {
    for (hwloc_obj_t os = pci->io_first_child; os != NULL; os = os->next_sibling)
        if (import->family < GPU_NAMES && os->type == HWLOC_OBJ_OS_DEVICE &&
            gpu_family(os) == import->family)
            return os;
    return NULL;
}

/* GPUs are what the best back-end found, for others would find displays too; without any, PCI
 * classes of 3D controllers and accelerators decide. */
static bool is_gpu(const struct import *import, hwloc_obj_t pci) {
    if (import->family < GPU_NAMES)
        return gpu_os_device(import, pci) != NULL;
    unsigned vendor = pci->attr->pcidev.vendor_id, class = pci->attr->pcidev.class_id;
    return class == 0x0302 || class == 0x1200 || (class == 0x0380 && vendor == VENDOR_AMD);
}

static bool is_fast_nic(hwloc_obj_t os) {
    if (os->type != HWLOC_OBJ_OS_DEVICE || os->parent == NULL)
        return false;
    return os->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS ||
           (os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK &&
            os->parent->type == HWLOC_OBJ_PCI_DEVICE &&
            os->parent->attr->pcidev.vendor_id == VENDOR_CRAY);
}

static bool is_port(const struct import *import, hwloc_obj_t os) {
    return os->type == HWLOC_OBJ_OS_DEVICE &&
           (is_fast_nic(os) ||
            (import->all_nics && os->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK));
}

static bool is_nvswitch(hwloc_obj_t pci) {
    /* Of class "other bridge"; where driver or container hide class and maker, the subtype tells.
     */
    return (pci->attr->pcidev.vendor_id == VENDOR_NVIDIA && pci->attr->pcidev.class_id == 0x0680) ||
           (pci->subtype != NULL && strcmp(pci->subtype, "NVSwitch") == 0);
}

static void survey(struct import *import) {
    import->family = GPU_NAMES;
    import->all_nics = true;
    for (hwloc_obj_t os = NULL; (os = hwloc_get_next_osdev(import->hwloc, os)) != NULL;) {
        int family = gpu_family(os);
        if (family < import->family)
            import->family = family;
        if (is_fast_nic(os))
            import->all_nics = false;
    }
}

/* The NUMA node of a place: of those in its nodeset, the first whose CPUs are all in the place. A
 * node without CPUs belongs to everybody's nodeset and to nobody. */
static int numa_of(hwloc_topology_t hwloc, hwloc_obj_t place) {
    int first = place->nodeset == NULL ? -1 : hwloc_bitmap_first(place->nodeset);
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (place->nodeset != NULL && node->cpuset != NULL &&
            hwloc_bitmap_isset(place->nodeset, node->os_index) &&
            !hwloc_bitmap_iszero(node->cpuset) &&
            hwloc_bitmap_isincluded(node->cpuset, place->cpuset))
            return (int)node->os_index;
    return first;
}

/* The node for a place among the CPUs: host, package, and NUMA node below it where the place is
 * smaller than a package. Equal places share one. */
static int cpu_node(struct import *import, hwloc_obj_t place) {
    struct topo *topo = import->topo;
    hwloc_obj_t package = place;
    while (package != NULL && package->type != HWLOC_OBJ_PACKAGE)
        package = package->parent;
    if (package == NULL && hwloc_get_nbobjs_by_type(import->hwloc, HWLOC_OBJ_PACKAGE) == 1)
        package = place = hwloc_get_obj_by_type(import->hwloc, HWLOC_OBJ_PACKAGE, 0);
    bool whole = place->parent == NULL; /* all of the machine: nothing is known of where */
    enum topo_kind kind = place == package ? TOPO_PACKAGE : TOPO_NUMA;
    if (whole)
        return import->host;
    int above = package == NULL || package == place ? import->host : cpu_node(import, package);
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == kind && topo->nodes[i].parent == above &&
            topo->nodes[i].cpus != NULL && place->cpuset != NULL &&
            hwloc_bitmap_isequal(topo->nodes[i].cpus, place->cpuset))
            return i;
    int node = topo_add_node(topo, kind, above);
    if (node < 0)
        return -1;
    topo->nodes[node].numa = numa_of(import->hwloc, place);
    topo->nodes[node].cpus = hwloc_bitmap_dup(place->cpuset);
    const char *vendor = hwloc_obj_get_info_by_name(package != NULL ? package : place, "CPUVendor");
    topo_copy_text(topo->nodes[node].vendor_name, sizeof(topo->nodes[node].vendor_name), vendor);
    return node;
}

static int pci_depth(hwloc_obj_t bridge) {
    int depth = 0;
    while ((bridge = bridge->parent) != NULL && bridge->type == HWLOC_OBJ_BRIDGE)
        depth++;
    return depth;
}

/* PCI-to-PCI bridges by distance from the host bridge: root port, upstream port of a switch, its
 * downstream ports, upstream ports of further switches... */
static bool is_upstream_port(hwloc_obj_t bridge) {
    return bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI && pci_depth(bridge) % 2 == 0;
}

static int interesting_below(const struct import *import, hwloc_obj_t object);

static bool is_interesting(const struct import *import, hwloc_obj_t pci) {
    if (pci->type != HWLOC_OBJ_PCI_DEVICE)
        return false;
    if (is_gpu(import, pci) || is_nvswitch(pci))
        return true;
    for (hwloc_obj_t os = pci->io_first_child; os != NULL; os = os->next_sibling)
        if (is_port(import, os))
            return true;
    return false;
}

/* How many children of a bridge lead to a device, 2 meaning two or more. */
static int interesting_below(const struct import *import, hwloc_obj_t bridge) {
    int found = 0;
    for (hwloc_obj_t child = bridge->io_first_child; child != NULL && found < 2;
         child = child->next_sibling) {
        hwloc_obj_t at = child; /* depth first through the subtree, without recursion */
        bool hit = false;
        while (at != NULL && !hit) {
            hit = is_interesting(import, at);
            if (at->io_first_child != NULL && at->type == HWLOC_OBJ_BRIDGE) {
                at = at->io_first_child;
                continue;
            }
            while (at != child && at->next_sibling == NULL)
                at = at->parent;
            at = at == child ? NULL : at->next_sibling;
        }
        found += hit;
    }
    return found;
}

static void copy_pci(struct topo_node *node, hwloc_obj_t object) {
    const struct hwloc_pcidev_attr_s *pci = object->type == HWLOC_OBJ_BRIDGE
                                                ? &object->attr->bridge.upstream.pci
                                                : &object->attr->pcidev;
    snprintf(node->busid, sizeof(node->busid), "%04x:%02x:%02x.%01x", pci->domain, pci->bus,
             pci->dev, pci->func);
    node->pci_class = (uint32_t)pci->class_id << 8;
    node->vendor = pci->vendor_id;
    node->device = pci->device_id;
    node->gbps = (double)pci->linkspeed * 12.0 / 15.75; /* line rate of 16 lanes of 8 GT/s */
    node->lanes = 16;
    node->gts = node->gbps * 8.0 / 12.0;
}

/* The node that holds a device: made with all bridges above it that count. */
static int holder_node(struct import *import, hwloc_obj_t object) {
    struct topo *topo = import->topo;
    hwloc_obj_t chain[256];
    int length = 0, node = -1;
    for (; object != NULL && object->type == HWLOC_OBJ_BRIDGE; object = object->parent) {
        bool host_bridge = object->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
        if (length < 256 &&
            (host_bridge || is_upstream_port(object) || interesting_below(import, object) > 1))
            chain[length++] = object;
    }
    if (object == NULL)
        return -1;
    node = cpu_node(import, object);
    if (length == 0 || chain[length - 1]->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_HOST)
        node = topo_add_node(topo, TOPO_ROOT, node);
    while (length-- > 0 && node >= 0) {
        hwloc_obj_t bridge = chain[length];
        int *known = &import->node_of[bridge->logical_index];
        if (*known < 0) {
            bool host_bridge = bridge->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_HOST;
            *known = topo_add_node(topo, host_bridge ? TOPO_ROOT : TOPO_PCI, node);
            if (*known >= 0 && !host_bridge)
                copy_pci(&topo->nodes[*known], bridge);
        }
        node = *known;
    }
    return node;
}

/* Device numbers by name; opencl counts devices of several platforms: opencl1d0 comes after
 * opencl0d7. */
static void name_gpu(const struct import *import, struct topo_node *node, hwloc_obj_t pci) {
    hwloc_obj_t os = gpu_os_device(import, pci);
    if (os == NULL)
        return;
    topo_copy_text(node->name, sizeof(node->name), os->name);
    node->dev = topo_trailing_number(os->name);
    if (strncmp(os->name, "opencl", 6) == 0 && node->dev >= 0)
        node->dev += (int)(strtol(os->name + 6, NULL, 10) & 0xff) * 4096;
    if (strncmp(os->name, "ze", 2) == 0)
        node->dev = -1;
    const char *model = hwloc_obj_get_info_by_name(pci, "PCIDevice");
    topo_copy_text(node->vendor_name, sizeof(node->vendor_name), model);
}

static void import_ports(struct import *import, hwloc_obj_t pci, int nic) {
    for (hwloc_obj_t os = pci->io_first_child; os != NULL; os = os->next_sibling) {
        if (!is_port(import, os))
            continue;
        int port = topo_add_node(import->topo, TOPO_PORT, nic);
        if (port < 0)
            return;
        struct topo_node *node = &import->topo->nodes[port];
        const char *name = os->name != NULL ? os->name : "";
        topo_copy_text(node->name, sizeof(node->name), name);
        if (strncmp(name, "mlx", 3) == 0 || strncmp(name, "hfi", 3) == 0) /* mlx5_3 */
            node->dev = topo_trailing_number(name);
    }
}

static void import_device(struct import *import, hwloc_obj_t pci, int *node_of_pci) {
    struct topo *topo = import->topo;
    if (!is_interesting(import, pci))
        return;
    int holder = holder_node(import, pci->parent);
    if (holder < 0)
        return;
    enum topo_kind kind = is_gpu(import, pci) ? TOPO_GPU
                          : is_nvswitch(pci)  ? TOPO_NVSWITCH
                                              : TOPO_NIC;
    int node = topo_add_node(topo, kind, holder);
    if (node < 0)
        return;
    copy_pci(&topo->nodes[node], pci);
    node_of_pci[pci->logical_index] = node;
    hwloc_obj_t place = hwloc_get_non_io_ancestor_obj(import->hwloc, pci);
    topo->nodes[node].numa =
        place == NULL || place->parent == NULL ? -1 : numa_of(import->hwloc, place);
    if (kind == TOPO_GPU)
        name_gpu(import, &topo->nodes[node], pci);
    else if (kind == TOPO_NIC)
        import_ports(import, pci, node);
}

/* Node of an object in a matrix of distances: a GPU's or switch's PCI device, or a package. */
static int matrix_node(struct import *import, hwloc_obj_t object, const int *node_of_pci) {
    while (object != NULL && object->type == HWLOC_OBJ_OS_DEVICE)
        object = object->parent;
    if (object == NULL)
        return -1;
    if (object->type == HWLOC_OBJ_PCI_DEVICE)
        return node_of_pci[object->logical_index];
    return hwloc_obj_type_is_normal(object->type) ? cpu_node(import, object) : -1;
}

/* Bandwidths count links in units of one NVLink, where all are multiples of that, else of the
 * smallest one off the diagonal. A matrix in which all pairs are alike says nothing of widths. */
static void import_links(struct import *import, const char *name, enum topo_brand brand,
                         const int *node_of_pci) {
    struct hwloc_distances_s *matrix;
    unsigned count = 1;
    if (hwloc_distances_get_by_name(import->hwloc, name, &count, &matrix, 0) != 0 || count == 0)
        return;
    hwloc_uint64_t unit = 0, most = 0;
    unsigned objects = matrix->nbobjs, pairs = 0;
    for (unsigned i = 0; i < objects * objects; i++) {
        hwloc_uint64_t value = matrix->values[i];
        if (i / objects == i % objects || value == 0)
            continue;
        pairs++;
        unit = unit == 0 || value < unit ? value : unit;
        most = value > most ? value : most;
    }
    import->topo->brand = brand;
    unsigned nvlink = 0;
    for (int i = 0; i < import->topo->node_count && nvlink == 0; i++)
        if (import->topo->nodes[i].kind == TOPO_GPU)
            nvlink = topo_nvlink_mbps(&import->topo->nodes[i]);
    if (brand == TOPO_NVLINK && nvlink > 0 && unit % nvlink == 0)
        unit = nvlink;
    for (unsigned i = 0; i < objects * objects && unit > 0; i++) {
        hwloc_uint64_t links = (matrix->values[i] + unit / 2) / unit;
        int from = i / objects == i % objects
                       ? -1
                       : matrix_node(import, matrix->objs[i / objects], node_of_pci);
        if (from >= 0 && import->topo->nodes[from].kind == TOPO_GPU && links <= 1024)
            topo_add_link(import->topo, from,
                          matrix_node(import, matrix->objs[i % objects], node_of_pci), (int)links);
    }
    if (brand == TOPO_XGMI && objects > 4 && unit == most && pairs == objects * (objects - 1))
        topo_warn(import->topo,
                  "%s is flat (%llu MB/s between all %u GPUs): known to be wrong for "
                  "MI250X, whose links are 4, 2, 1 or none wide; one link per pair assumed",
                  name, (unsigned long long)unit, objects);
    hwloc_distances_release(import->hwloc, matrix);
}

/* The NUMA node of a core: the first with memory, for others hold nothing that is near. */
static int numa_of_core(hwloc_topology_t hwloc, hwloc_obj_t core) {
    for (hwloc_obj_t node = NULL;
         (node = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_NUMANODE, node)) != NULL;)
        if (node->attr->numanode.local_memory > 0 && node->cpuset != NULL &&
            hwloc_bitmap_intersects(node->cpuset, core->cpuset))
            return (int)node->os_index;
    return -1;
}

/* Some virtual machines do not tell of cores: each PU is one then. */
static bool import_cores(struct topo *topo, hwloc_topology_t hwloc) {
    bool cores = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_CORE) > 0;
    hwloc_obj_type_t type = cores ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
    int most = hwloc_get_nbobjs_by_type(hwloc, type);
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    topo->cores = calloc((size_t)(most > 0 ? most : 0) + 1, sizeof(*topo->cores));
    bool fine =
        usable != NULL && topo->cores != NULL && topo_machine_usable(hwloc, usable) == ROTA_OK;
    for (hwloc_obj_t core = NULL;
         fine && (core = hwloc_get_next_obj_by_type(hwloc, type, core)) != NULL;) {
        if (core->cpuset == NULL || !hwloc_bitmap_intersects(core->cpuset, usable))
            continue;
        struct topo_core *added = &topo->cores[topo->core_count];
        added->cpus = hwloc_bitmap_dup(core->cpuset);
        added->numa = numa_of_core(hwloc, core);
        fine = added->cpus != NULL && hwloc_bitmap_and(added->cpus, added->cpus, usable) == 0;
        topo->core_count += added->cpus != NULL;
    }
    hwloc_bitmap_free(usable);
    return fine;
}

static rota_status import_all(struct topo *topo, hwloc_topology_t hwloc) {
    struct import import = {.topo = topo, .hwloc = hwloc};
    int bridges = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_BRIDGE);
    int devices = hwloc_get_nbobjs_by_type(hwloc, HWLOC_OBJ_PCI_DEVICE);
    import.node_of = calloc((size_t)(bridges > 0 ? bridges : 0) + 1, sizeof(int));
    int *node_of_pci = calloc((size_t)(devices > 0 ? devices : 0) + 1, sizeof(int));
    import.host = topo_host_named(topo, "");
    if (import.node_of == NULL || node_of_pci == NULL || import.host < 0) {
        free(import.node_of);
        free(node_of_pci);
        return error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", topo->source);
    }
    memset(import.node_of, 0xff, ((size_t)(bridges > 0 ? bridges : 0) + 1) * sizeof(int));
    memset(node_of_pci, 0xff, ((size_t)(devices > 0 ? devices : 0) + 1) * sizeof(int));
    survey(&import);
    for (hwloc_obj_t package = NULL;
         (package = hwloc_get_next_obj_by_type(hwloc, HWLOC_OBJ_PACKAGE, package)) != NULL;)
        cpu_node(&import, package);
    for (hwloc_obj_t pci = NULL; (pci = hwloc_get_next_pcidev(hwloc, pci)) != NULL;)
        import_device(&import, pci, node_of_pci);
    for (int i = 0; i < topo->node_count && import.all_nics; i++)
        if (topo->nodes[i].kind == TOPO_PORT)
            topo_warn(topo, "no NIC with RDMA was found: Ethernet ports are taken as NICs");
    import_links(&import, "NVLinkBandwidth", TOPO_NVLINK, node_of_pci);
    import_links(&import, "XGMIBandwidth", TOPO_XGMI, node_of_pci);
    free(import.node_of);
    free(node_of_pci);
    topo->has_machine = topo_machine_describe(hwloc, &topo->machine) == ROTA_OK;
    if (!import_cores(topo, hwloc))
        return error_raise(ROTA_ERR_MEMORY, "no memory for the cores of %.150s", topo->source);
    return ROTA_OK;
}

/* `text` NULL: this machine; else `length` bytes, the final NUL counted. */
static hwloc_topology_t open_hwloc(struct topo *topo, const char *text, size_t length, int version,
                                   rota_status *status) {
    hwloc_topology_t hwloc;
    *status = ROTA_OK;
    if (hwloc_topology_init(&hwloc) != 0) {
        *status = error_raise_system(errno, "hwloc cannot be initialized");
        return NULL;
    }
    hwloc_topology_set_io_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_ALL);
    hwloc_topology_set_icache_types_filter(hwloc, HWLOC_TYPE_FILTER_KEEP_NONE);
    if (text == NULL) {
        *status = topo_machine_open(hwloc);
    } else {
        hwloc_topology_set_flags(hwloc, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
        if (hwloc_topology_set_xmlbuffer(hwloc, text, (int)length) != 0 ||
            hwloc_topology_load(hwloc) != 0)
            *status =
                version > HWLOC_API_VERSION >> 16
                    ? error_raise(ROTA_ERR_FORMAT,
                                  "%s: hwloc XML of version %d, expected at most %d, which is what "
                                  "the hwloc of this build can read: export it with lstopo 2",
                                  topo->source, version, HWLOC_API_VERSION >> 16)
                    : error_raise(ROTA_ERR_FORMAT, "%s: hwloc cannot read it as a topology",
                                  topo->source);
    }
    if (*status == ROTA_OK)
        return hwloc;
    hwloc_topology_destroy(hwloc);
    return NULL;
}

rota_status topo_read_hwloc(struct topo *topo, const char *bytes, size_t length) {
    char *text = NULL;
    size_t text_length = 0;
    int version = 0;
    rota_status status = hwloc_check(topo->source, bytes, length, &text, &text_length, &version);
    if (status != ROTA_OK)
        return status;
    hwloc_topology_t hwloc = open_hwloc(topo, text, text_length + 1, version, &status);
    free(text);
    if (hwloc == NULL)
        return status;
    status = import_all(topo, hwloc);
    hwloc_topology_destroy(hwloc);
    return status;
}

rota_status topo_read_machine(struct topo *topo) {
    rota_status status;
    hwloc_topology_t hwloc = open_hwloc(topo, NULL, 0, 0, &status);
    if (hwloc == NULL)
        return status;
    topo->is_this_machine = true;
    status = import_all(topo, hwloc);
    hwloc_topology_destroy(hwloc);
    if (status == ROTA_OK)
        topo_read_nvml(topo);
    return status;
}
