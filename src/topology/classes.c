/* How fast links are. Everything that decides something stands in these tables, with its source. */
#include "topology/graph.h"

#include <string.h>

/* One direct link, one direction, as the vendors' libraries reckon with it (below the line rate by
 * what protocols cost). arch is the lowest one of the row; rows ascend. */
static const struct {
    enum topo_brand brand;
    int arch;
    double gbps;
    const char *name, *source;
} links[] = {
    {TOPO_NVLINK, 0, 20.0, "NVLink",
     "assumed: compute capability unknown, that of sm_70 and sm_80"},
    {TOPO_NVLINK, 60, 18.0, "NVLink1", "NCCL src/graph/topo.h SM60_NVLINK_BW"},
    {TOPO_NVLINK, 70, 20.0, "NVLink2", "NCCL src/graph/topo.h SM70_NVLINK_BW"},
    {TOPO_NVLINK, 80, 20.0, "NVLink3", "NCCL src/graph/topo.h SM80_NVLINK_BW"},
    {TOPO_NVLINK, 86, 12.0, "NVLink3", "NCCL src/graph/topo.h SM86_NVLINK_BW"},
    {TOPO_NVLINK, 90, 20.6, "NVLink4", "NCCL src/graph/topo.h SM90_NVLINK_BW"},
    {TOPO_NVLINK, 100, 40.1, "NVLink5", "NCCL src/graph/topo.h SM100_NVLINK_BW"},
    {TOPO_XGMI, 0, 24.0, "xGMI", "assumed: architecture unknown, that of gfx906 and gfx908"},
    {TOPO_XGMI, 906, 24.0, "xGMI", "RCCL src/graph/topo.h VEGA_XGMI_WIDTH"},
    {TOPO_XGMI, 910, 36.0, "xGMI", "RCCL src/graph/topo.h MI200_XGMI_WIDTH"},
    {TOPO_XGMI, 940, 48.0, "xGMI", "RCCL src/graph/topo.h GFX94X_XGMI_WIDTH"},
};

/* Between the NUMA nodes of a machine, one direction; the first row that fits. Model 0: any. */
static const struct {
    const char *vendor;
    uint32_t family, model; /* the lowest model of that family */
    double gbps;
    const char *source;
} processors[] = {
    {"AuthenticAMD", 175, 0, 24.0, "NCCL src/graph/topo.h AMD_ZEN34_BW"},
    {"AuthenticAMD", 0, 0, 16.0, "NCCL src/graph/topo.h AMD_ZEN12_BW"},
    {"GenuineIntel", 6, 207, 40.0, "NCCL src/graph/topo.h ERP_QPI_BW"},
    {"GenuineIntel", 6, 143, 22.0, "NCCL src/graph/topo.h SRP_QPI_BW"},
    {"GenuineIntel", 6, 85, 10.0, "NCCL src/graph/topo.h SKL_QPI_BW"},
    {"GenuineIntel", 0, 0, 6.0, "NCCL src/graph/topo.h BDW_QPI_BW"},
    {"IBM", 0, 0, 32.0, "NCCL src/graph/topo.h P9_BW"},
    {"", 0, 0, 6.0, "assumed: processor unknown, NCCL src/graph/topo.h ARM_BW"},
};

double topo_link_speed(enum topo_brand brand, int arch, const char **name, const char **source) {
    size_t found = 0;
    for (size_t i = 0; i < sizeof(links) / sizeof(links[0]); i++)
        if (links[i].brand == brand && (links[i].arch == 0 || links[i].arch <= arch))
            found = i;
    *name = links[found].name;
    *source = links[found].source;
    return links[found].gbps;
}

/* NVIDIA's white papers: 25 GB/s for NVLink 2 to 4, 50 GB/s from Blackwell (PCI ids from 0x2900)
 * on; NVLink 1 had 20 GB/s and came in pairs. */
unsigned topo_nvlink_mbps(const struct topo_node *gpu) {
    return gpu->arch >= 100 || gpu->device >= 0x2900 ? 50000 : 25000;
}

double topo_cpu_speed(const struct topo_node *cpu, const char **source) {
    size_t i = 0;
    for (; i < sizeof(processors) / sizeof(processors[0]) - 1; i++)
        if (strcmp(processors[i].vendor, cpu->vendor_name) == 0 &&
            (processors[i].family == 0 || processors[i].family == cpu->family) &&
            processors[i].model <= cpu->model)
            break;
    *source = processors[i].source;
    return processors[i].gbps;
}

/* NCCL reckons with 12 GB/s for 16 lanes of 8 GT/s (PCI_BW): 94 MB/s per GT/s and lane. */
double topo_pci_speed(double gts, int lanes) {
    return gts * lanes * 12.0 / (8.0 * 16.0);
}
