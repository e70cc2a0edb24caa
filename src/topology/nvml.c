/* NVIDIA's management library, where a driver brought it: NVLinks between GPUs, and compute
 * capabilities. Loaded at run time with prototypes of our own, so that neither building nor running
 * rota needs NVIDIA's files. Constants and signatures follow nvml.h of driver 535, whose versioned
 * symbols are frozen. */
#include "base/log.h"
#include "topology/graph.h"

#include <dlfcn.h>
#include <string.h>
#include <strings.h>

typedef void *nvml_device;

struct nvml_pci { /* nvmlPciInfo_t of nvmlDeviceGetPciInfo_v3 */
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};
_Static_assert(sizeof(struct nvml_pci) == 68, "nvmlPciInfo_t");

#define NVML_MAX_LINKS 18
#define NVML_REMOTE_GPU 0
#define NVML_REMOTE_SWITCH 2

struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*device_count)(unsigned *);
    int (*device_at)(unsigned, nvml_device *);
    int (*pci_info)(nvml_device, struct nvml_pci *);
    int (*capability)(nvml_device, int *, int *);
    int (*link_state)(nvml_device, unsigned, unsigned *);
    int (*link_remote)(nvml_device, unsigned, struct nvml_pci *);
    int (*link_kind)(nvml_device, unsigned, unsigned *); /* since driver 460; may be NULL */
};

static bool load(void *library, struct nvml *nvml) {
    const struct {
        void **place;
        const char *name;
        bool needed;
    } symbols[] = {{(void **)&nvml->init, "nvmlInit_v2", true},
                   {(void **)&nvml->shutdown, "nvmlShutdown", true},
                   {(void **)&nvml->device_count, "nvmlDeviceGetCount_v2", true},
                   {(void **)&nvml->device_at, "nvmlDeviceGetHandleByIndex_v2", true},
                   {(void **)&nvml->pci_info, "nvmlDeviceGetPciInfo_v3", true},
                   {(void **)&nvml->capability, "nvmlDeviceGetCudaComputeCapability", true},
                   {(void **)&nvml->link_state, "nvmlDeviceGetNvLinkState", true},
                   {(void **)&nvml->link_remote, "nvmlDeviceGetNvLinkRemotePciInfo_v2", true},
                   {(void **)&nvml->link_kind, "nvmlDeviceGetNvLinkRemoteDeviceType", false}};
    for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++)
        if ((*symbols[i].place = dlsym(library, symbols[i].name)) == NULL && symbols[i].needed)
            return false;
    return true;
}

/* NVML writes domains with eight digits, others with four. */
static int find_by_busid(const struct topo *topo, const struct nvml_pci *pci) {
    char busid[32], function[2] = "0";
    size_t length = strnlen(pci->bus_id, sizeof(pci->bus_id));
    if (length > 0 && length < sizeof(pci->bus_id))
        function[0] = pci->bus_id[length - 1];
    snprintf(busid, sizeof(busid), "%04x:%02x:%02x.%s", pci->domain, pci->bus, pci->device,
             function);
    for (int i = 0; i < topo->node_count; i++)
        if ((topo->nodes[i].kind == TOPO_GPU || topo->nodes[i].kind == TOPO_NVSWITCH) &&
            strcasecmp(topo->nodes[i].busid, busid) == 0)
            return i;
    return -1;
}

static void read_links(struct topo *topo, const struct nvml *nvml, nvml_device device, int gpu,
                       int *fabric) {
    for (unsigned link = 0; link < NVML_MAX_LINKS; link++) {
        unsigned active = 0, kind = NVML_REMOTE_GPU;
        struct nvml_pci remote = {.domain = 0};
        if (nvml->link_state(device, link, &active) != 0 || active != 1 ||
            nvml->link_remote(device, link, &remote) != 0)
            continue;
        int to = find_by_busid(topo, &remote);
        if (nvml->link_kind != NULL)
            (void)nvml->link_kind(device, link, &kind);
        if (to < 0 && kind == NVML_REMOTE_SWITCH) { /* in a container switches are not seen */
            if (*fabric < 0)
                *fabric = topo_add_node(topo, TOPO_NVSWITCH, topo_above(topo, gpu, TOPO_HOST));
            to = *fabric;
        }
        topo_add_link(topo, gpu, to, 1);
    }
}

void topo_read_nvml(struct topo *topo) {
    struct nvml nvml = {0};
    unsigned count = 0;
    int fabric = -1;
    bool linked = false;
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return;
    if (!load(library, &nvml) || nvml.init() != 0) {
        log_write(LOG_INFO, "topology: libnvidia-ml.so.1 is there but cannot be used");
        dlclose(library);
        return;
    }
    for (int i = 0; i < topo->link_count; i++)
        linked = linked || topo->nodes[topo->links[i].from].kind == TOPO_GPU;
    (void)nvml.device_count(&count);
    for (unsigned i = 0; i < count; i++) {
        nvml_device device;
        struct nvml_pci pci = {.domain = 0};
        int major = 0, minor = 0;
        if (nvml.device_at(i, &device) != 0 || nvml.pci_info(device, &pci) != 0)
            continue;
        int gpu = find_by_busid(topo, &pci);
        if (gpu < 0 || topo->nodes[gpu].kind != TOPO_GPU)
            continue;
        if (topo->nodes[gpu].arch == 0 && nvml.capability(device, &major, &minor) == 0)
            topo->nodes[gpu].arch = major * 10 + minor;
        if (!linked)
            read_links(topo, &nvml, device, gpu, &fabric);
    }
    (void)nvml.shutdown();
    dlclose(library);
}
