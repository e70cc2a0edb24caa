/* Which ranks run where on a host.
 *
 * Ranks that are near the same part of the machine share its cores evenly. Where there are GPUs for
 * all ranks, a rank is near the GPU of its number. Else ranks are dealt out to NUMA nodes by the
 * number of their cores; fewer ranks than nodes share all cores evenly. Cores come in the order of
 * hwloc, in which those that share caches are neighbours, and so are then the cores of a rank. */
#include "topology/graph.h"

/* A part of the machine: all of it, or some CPUs, or a NUMA node (-1: cores of which none is
 * known).
 */
struct part {
    bool all;
    hwloc_const_bitmap_t cpus;
    int numa;
};

static bool holds(const struct part *part, const struct topo_core *core) {
    return part->all || (part->cpus != NULL ? hwloc_bitmap_intersects(part->cpus, core->cpus) != 0
                                            : part->numa == core->numa);
}

static int count_cores(const struct topo *topo, const struct part *part) {
    int count = 0;
    for (int i = 0; i < topo->core_count; i++)
        count += holds(part, &topo->cores[i]);
    return count;
}

hwloc_const_bitmap_t topo_near_cpus(const struct topo *topo, int node) {
    while (node >= 0 &&
           (topo->nodes[node].cpus == NULL || hwloc_bitmap_iszero(topo->nodes[node].cpus)))
        node = topo->nodes[node].parent;
    return node >= 0 ? topo->nodes[node].cpus : NULL;
}

/* Whether there is a GPU for each rank with usable cores near it. */
static bool has_gpus(const struct topo *topo, int ranks) {
    if (topo->host_count != 1 || topo->gpu_count < ranks)
        return false;
    for (int i = 0; i < ranks; i++) {
        struct part part = {.cpus = topo_near_cpus(topo, topo->gpus[i])};
        if (part.cpus == NULL || count_cores(topo, &part) == 0)
            return false;
    }
    return true;
}

static int count_numa_nodes(const struct topo *topo) {
    int count = 0;
    for (int i = 0; i < topo->core_count; i++) {
        int before = 0;
        while (before < i && topo->cores[before].numa != topo->cores[i].numa)
            before++;
        count += before == i;
    }
    return count;
}

/* By what ranks are told apart. */
enum rule { BY_GPU, BY_NODE, TOGETHER };

static struct part part_of(const struct topo *topo, int ranks, int rank, enum rule rule) {
    if (rule == BY_GPU)
        return (struct part){.cpus = topo_near_cpus(topo, topo->gpus[rank])};
    if (rule == TOGETHER)
        return (struct part){.all = true};
    int core = (int)((int64_t)rank * topo->core_count / ranks);
    return (struct part){.numa = topo->cores[core].numa};
}

static bool same(const struct part *a, const struct part *b) {
    return a->cpus != NULL && b->cpus != NULL ? hwloc_bitmap_isequal(a->cpus, b->cpus) != 0
                                              : a->cpus == b->cpus && a->numa == b->numa;
}

/* The cores from number `first` to `last` of the part; of any node that these belong to. */
static bool collect(const struct topo *topo, const struct part *part, int first, int last,
                    hwloc_bitmap_t share, hwloc_bitmap_t near) {
    int failed = 0;
    for (int i = 0, at = 0; i < topo->core_count; i++) {
        const struct topo_core *core = &topo->cores[i];
        if (!holds(part, core) || at++ < first || at > last + 1)
            continue;
        failed |= hwloc_bitmap_or(share, share, core->cpus);
        for (int other = 0; other < topo->core_count; other++)
            if (topo->cores[other].numa == core->numa)
                failed |= hwloc_bitmap_or(near, near, topo->cores[other].cpus);
    }
    return failed == 0;
}

bool topo_place(const struct topo *topo, int ranks, int rank, hwloc_bitmap_t share,
                hwloc_bitmap_t near, int *gpu) {
    if (topo->core_count == 0)
        return false;
    enum rule rule = has_gpus(topo, ranks)            ? BY_GPU
                     : ranks < count_numa_nodes(topo) ? TOGETHER
                                                      : BY_NODE;
    struct part part = part_of(topo, ranks, rank, rule);
    int before = 0, together = 0, cores = count_cores(topo, &part);
    for (int other = 0; other < ranks; other++) {
        struct part others = part_of(topo, ranks, other, rule);
        if (!same(&part, &others))
            continue;
        before += other < rank;
        together++;
    }
    int first = (int)((int64_t)before * cores / together);
    int end = (int)((int64_t)(before + 1) * cores / together);
    hwloc_bitmap_zero(share);
    hwloc_bitmap_zero(near);
    *gpu = rule == BY_GPU ? rank : -1;
    return collect(topo, &part, first, end > first ? end - 1 : first, share, near);
}
