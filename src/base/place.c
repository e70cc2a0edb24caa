/* NUMA nodes and cores as the kernel describes them: a few short files, read when a job begins.
 * hwloc would tell the same, but takes milliseconds. Sets of more than 1024 CPUs are not known. */
#include "base/place.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SYSTEM "/sys/devices/system"

/* Reads a list such as "0-3,8"; "" is the empty set. */
static bool read_list(const char *system, const char *name, int number, cpu_set_t *set) {
    char path[PATH_MAX], pattern[64], text[4096];
    snprintf(pattern, sizeof(pattern), name, number);
    snprintf(path, sizeof(path), "%s/%s", system != NULL ? system : SYSTEM, pattern);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return false;
    text[got] = '\0';
    CPU_ZERO(set);
    for (char *at = text; *at >= '0' && *at <= '9';) {
        unsigned long first = strtoul(at, &at, 10);
        unsigned long last = *at == '-' ? strtoul(at + 1, &at, 10) : first;
        for (; first <= last; first++) {
            if (first >= CPU_SETSIZE)
                return false;
            CPU_SET(first, set);
        }
        at += *at == ',';
    }
    return true;
}

static bool is_within(const cpu_set_t *inner, const cpu_set_t *outer) {
    cpu_set_t both;
    CPU_AND(&both, inner, outer);
    return CPU_EQUAL(&both, inner);
}

int place_node(const char *system, const cpu_set_t *cpus) {
    cpu_set_t nodes, there;
    if (CPU_COUNT(cpus) == 0 || !read_list(system, "node/has_memory", 0, &nodes))
        return -1;
    for (int node = 0; node < CPU_SETSIZE; node++)
        if (CPU_ISSET((size_t)node, &nodes) &&
            read_list(system, "node/node%d/cpulist", node, &there) && is_within(cpus, &there))
            return node;
    return -1;
}

int place_cache(const char *system, const cpu_set_t *cpus) {
    cpu_set_t shared;
    int cpu = 0;
    while (cpu < CPU_SETSIZE && !CPU_ISSET((size_t)cpu, cpus))
        cpu++;
    if (cpu == CPU_SETSIZE ||
        !read_list(system, "cpu/cpu%d/cache/index3/shared_cpu_list", cpu, &shared) ||
        !is_within(cpus, &shared))
        return -1;
    for (cpu = 0; !CPU_ISSET((size_t)cpu, &shared);)
        cpu++;
    return cpu;
}

bool place_beside(const char *system, const cpu_set_t *cpus, int cpu, cpu_set_t *beside) {
    cpu_set_t online, core, near;
    if (!read_list(system, "cpu/online", 0, &online) || is_within(&online, cpus) ||
        !read_list(system, "cpu/cpu%d/topology/thread_siblings_list", cpu, &core))
        return false;
    CPU_AND(&core, &core, cpus);
    CPU_XOR(beside, cpus, &core);
    CPU_ZERO(&core);
    CPU_SET((size_t)cpu, &core);
    int node = place_node(system, &core);
    if (node >= 0 && read_list(system, "node/node%d/cpulist", node, &near)) {
        CPU_AND(&near, &near, beside);
        if (CPU_COUNT(&near) > 0)
            *beside = near;
    }
    return CPU_COUNT(beside) > 0;
}

bool place_beside_me(cpu_set_t *beside) {
    cpu_set_t mine;
    int cpu = sched_getcpu();
    return cpu >= 0 && cpu < CPU_SETSIZE && sched_getaffinity(0, sizeof(mine), &mine) == 0 &&
           place_beside(NULL, &mine, cpu, beside);
}

void place_memory(const char *what, void *memory, size_t bytes) {
    const unsigned bits = 8 * sizeof(unsigned long);
    unsigned long nodes[CPU_SETSIZE / (8 * sizeof(unsigned long))] = {0};
    cpu_set_t mine;
    int saved = errno;
    int node = sched_getaffinity(0, sizeof(mine), &mine) == 0 ? place_node(NULL, &mine) : -1;
    if (node >= 0) {
        nodes[(unsigned)node / bits] |= 1ul << (unsigned)node % bits;
        if (syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, (unsigned long)CPU_SETSIZE,
                    0) != 0)
            log_write(LOG_INFO, "%s is not bound to NUMA node %d: %s", what, node, strerror(errno));
    }
    errno = saved;
}
