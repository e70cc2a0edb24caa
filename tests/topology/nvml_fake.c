/* The calls of NVML that rota uses, with the types of nvml.h of driver 535. FAKE_OLD: a driver that
 * does not know what is at the other end of a link; FAKE_BROKEN: one without a call that is needed.
 */
#include "nvml_fake.h"

#include <stdio.h>
#include <string.h>

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct fake_nvml fake_nvml;

int nvmlInit_v2(void);
int nvmlShutdown(void);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *info);
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *kind);

enum { NOT_INITIALIZED = 1, INVALID = 2 };

static int is_open(void) {
    return fake_nvml.inits > fake_nvml.shutdowns;
}

int nvmlInit_v2(void) {
    fake_nvml.inits += fake_nvml.init_error == 0;
    return fake_nvml.init_error;
}

int nvmlShutdown(void) {
    fake_nvml.shutdowns++;
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)fake_nvml.gpu_count;
    return is_open() ? 0 : NOT_INITIALIZED;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    if (!is_open() || index >= (unsigned)fake_nvml.gpu_count)
        return INVALID;
    *device = &fake_nvml.gpus[index];
    return 0;
}

static int fill(const char *bus_id, struct pci_info *info) {
    memset(info, 0x5a, sizeof(*info)); /* what is not said is not looked at */
    snprintf(info->bus_id, sizeof(info->bus_id), "%s", bus_id);
    return sscanf(bus_id, "%x:%x:%x", &info->domain, &info->bus, &info->device) == 3 ? 0 : INVALID;
}

int nvmlDeviceGetPciInfo_v3(void *device, struct pci_info *info) {
    const struct fake_gpu *gpu = device;
    return gpu->error != 0 ? gpu->error : fill(gpu->bus_id, info);
}

int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    const struct fake_gpu *gpu = device;
    *major = gpu->major;
    *minor = gpu->minor;
    return gpu->major > 0 ? 0 : INVALID;
}

int nvmlDeviceGetNvLinkState(void *device, unsigned link, unsigned *active) {
    const struct fake_gpu *gpu = device;
    if (link >= FAKE_LINKS)
        return INVALID;
    *active = (unsigned)gpu->links[link].state;
    return gpu->links[link].error;
}

#ifndef FAKE_BROKEN
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci_info *info) {
    const struct fake_gpu *gpu = device;
    return link < FAKE_LINKS && gpu->links[link].remote != NULL
               ? fill(gpu->links[link].remote, info)
               : INVALID;
}
#endif

#ifndef FAKE_OLD
int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, unsigned *kind) {
    const struct fake_gpu *gpu = device;
    if (link >= FAKE_LINKS)
        return INVALID;
    *kind = gpu->links[link].kind;
    return 0;
}
#endif
