/* Probing the machine by hwloc.
 *
 * The whole machine is loaded, also what a cpuset forbids, so that both totals and usable parts can
 * be told. hwloc must not change the binding: its x86 component would bind the calling thread to
 * each PU in turn, only to learn what the kernel's own tables say too. */
#include "topology/machine.h"
#include "base/error.h"
#include "topology/graph.h"
#include "topology/hwloc_check.h"

#include <errno.h>
#include <hwloc.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* Objects of a type, and those of them that hold a usable PU. */
static void count_objects(hwloc_topology_t topology, hwloc_obj_type_t type,
                          hwloc_const_bitmap_t usable, int *all, int *usable_count) {
    *all = *usable_count = 0;
    for (hwloc_obj_t object = NULL;
         (object = hwloc_get_next_obj_by_type(topology, type, object)) != NULL;) {
        (*all)++;
        if (object->cpuset != NULL && hwloc_bitmap_intersects(object->cpuset, usable))
            (*usable_count)++;
    }
}

rota_status topo_machine_usable(hwloc_topology_t topology, hwloc_bitmap_t usable) {
    hwloc_const_bitmap_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    if (!hwloc_topology_is_thissystem(topology)) {
        if (hwloc_bitmap_copy(usable, allowed) != 0)
            return error_raise(ROTA_ERR_MEMORY, "no memory for the machine's topology");
        return ROTA_OK;
    }
    if (hwloc_get_cpubind(topology, usable, HWLOC_CPUBIND_THREAD) != 0)
        return error_raise_system(errno, "hwloc cannot read the affinity mask");
    if (hwloc_bitmap_and(usable, usable, allowed) != 0)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the machine's topology");
    return ROTA_OK;
}

static uint64_t largest_l3(hwloc_topology_t topology) {
    uint64_t largest = 0;
    for (hwloc_obj_t cache = NULL;
         (cache = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_L3CACHE, cache)) != NULL;)
        if (cache->attr->cache.size > largest)
            largest = cache->attr->cache.size;
    return largest;
}

static void describe(hwloc_topology_t topology, hwloc_const_bitmap_t usable,
                     struct topo_machine *machine) {
    struct topo_machine found = {0};
    count_objects(topology, HWLOC_OBJ_PACKAGE, usable, &found.packages, &found.usable_packages);
    count_objects(topology, HWLOC_OBJ_NUMANODE, usable, &found.numa_nodes,
                  &found.usable_numa_nodes);
    count_objects(topology, HWLOC_OBJ_L3CACHE, usable, &found.l3_groups, &found.usable_l3_groups);
    count_objects(topology, HWLOC_OBJ_CORE, usable, &found.cores, &found.usable_cores);
    count_objects(topology, HWLOC_OBJ_PU, usable, &found.pus, &found.usable_pus);
    if (found.cores == 0) { /* some virtual machines do not tell cores */
        found.cores = found.pus;
        found.usable_cores = found.usable_pus;
    }
    hwloc_obj_t root = hwloc_get_root_obj(topology);
    hwloc_obj_t package = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_PACKAGE, NULL);
    const char *model = package == NULL ? NULL : hwloc_obj_get_info_by_name(package, "CPUModel");
    if (model == NULL)
        model = hwloc_obj_get_info_by_name(root, "CPUModel");
    topo_copy_text(found.model, sizeof(found.model), model);
    found.memory_bytes = root->total_memory;
    found.l3_bytes = largest_l3(topology);
    *machine = found;
}

/* hwloc would read the file of HWLOC_XMLFILE by itself, and crash on some that are bad. */
static rota_status open_other_machine(hwloc_topology_t topology, const char *path) {
    char *bytes = NULL, *text = NULL;
    size_t length = 0, text_length = 0;
    int version;
    rota_status status = topo_read_file(path, &bytes, &length);
    if (status == ROTA_OK)
        status = hwloc_check(path, bytes, length, &text, &text_length, &version);
    if (status == ROTA_OK &&
        (hwloc_topology_set_xmlbuffer(topology, text, (int)text_length + 1) != 0 ||
         hwloc_topology_load(topology) != 0))
        status = error_raise(ROTA_ERR_FORMAT,
                             "HWLOC_XMLFILE=%.150s: hwloc cannot read it as a "
                             "topology",
                             path);
    free(bytes);
    free(text);
    return status;
}

rota_status topo_machine_open(hwloc_topology_t topology) {
    unsigned long flags = HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED;
    const char *other = getenv("HWLOC_XMLFILE");
#if HWLOC_API_VERSION >= 0x00020500
    flags |= HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING;
#else
    /* Fails where hwloc has no such component, which is as good. */
    (void)hwloc_topology_set_components(topology, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
#endif
    if (hwloc_topology_set_flags(topology, flags) != 0)
        return error_raise_system(errno, "hwloc cannot load the machine's topology");
    if (other != NULL && other[0] != '\0')
        return open_other_machine(topology, other);
    if (hwloc_topology_load(topology) != 0)
        return error_raise_system(errno, "hwloc cannot load the machine's topology");
    return ROTA_OK;
}

rota_status topo_machine_describe(hwloc_topology_t topology, struct topo_machine *machine) {
    hwloc_bitmap_t usable = hwloc_bitmap_alloc();
    if (usable == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the machine's topology");
    rota_status status = topo_machine_usable(topology, usable);
    if (status == ROTA_OK)
        describe(topology, usable, machine);
    hwloc_bitmap_free(usable);
    return status;
}

rota_status topo_machine_probe(struct topo_machine *machine) {
    hwloc_topology_t topology;
    if (hwloc_topology_init(&topology) != 0)
        return error_raise_system(errno, "hwloc cannot be initialized");
    rota_status status = topo_machine_open(topology);
    if (status == ROTA_OK)
        status = topo_machine_describe(topology, machine);
    hwloc_topology_destroy(topology);
    return status;
}

static const char *plural(int count) {
    return count == 1 ? "" : "s";
}

void topo_machine_text(const struct topo_machine *machine, char *text, size_t size) {
    char l3[64] = "no L3 cache known";
    if (machine->l3_groups > 0)
        snprintf(l3, sizeof(l3), "%d L3 group%s (of %.1f MiB)", machine->l3_groups,
                 plural(machine->l3_groups), (double)machine->l3_bytes / (1 << 20));
    snprintf(text, size,
             "%d package%s, %d NUMA node%s (%.1f GiB), %s, %d core%s, %d PU%s; usable: %d core%s, "
             "%d PU%s",
             machine->packages, plural(machine->packages), machine->numa_nodes,
             plural(machine->numa_nodes), (double)machine->memory_bytes / (1 << 30), l3,
             machine->cores, plural(machine->cores), machine->pus, plural(machine->pus),
             machine->usable_cores, plural(machine->usable_cores), machine->usable_pus,
             plural(machine->usable_pus));
}
