/* This machine as hwloc sees it: what there is, and what of it this thread may use. */
#ifndef TOPOLOGY_MACHINE_H
#define TOPOLOGY_MACHINE_H

#include <rota/status.h>

/* Counts of the whole machine, and of those parts that hold at least one usable PU. A PU (hardware
 * thread) is usable when the thread's affinity mask and the cpuset control group allow it; CPU
 * quotas are not part of it (cpu_usable_cores has them). */
struct topo_machine {
    int packages, usable_packages;
    int numa_nodes, usable_numa_nodes;
    int l3_groups, usable_l3_groups; /* groups of cores that share an L3 cache; 0: none known */
    int cores, usable_cores;
    int pus, usable_pus;
    uint64_t l3_bytes;     /* of the largest L3 cache, 0 when unknown */
    uint64_t memory_bytes; /* of all NUMA nodes, 0 when unknown */
    char model[64];        /* of the processor, "" when unknown */
};

/* Asks hwloc. Binds nothing and changes no affinity, not even for a moment. hwloc's own variables
 * (HWLOC_XMLFILE, HWLOC_SYNTHETIC) put another machine in place of this one. Errors:
 * ROTA_ERR_SYSTEM, ROTA_ERR_MEMORY. */
rota_status topo_machine_probe(struct topo_machine *machine);

/* One line such as "2 packages, 2 NUMA nodes (64.0 GiB), 4 L3 groups (of 32.0 MiB), 16 cores, 32
 * PUs; usable: 1 core, 1 PU". At most `size` bytes with the final NUL. */
void topo_machine_text(const struct topo_machine *machine, char *text, size_t size);

#endif
