/* Places near a thread: on machines that files describe, and of memory on this one. */
#include "base/place.h"

#include <criterion/criterion.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof(full), "%s/%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

/* Two nodes of four cores, each of two hardware threads (c and c + 8); node 2 has CPUs and no
 * memory, node 3 memory and no CPUs. */
static void make_machine(void) {
    char path[64], text[32];
    strcpy(root, "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
    put("cpu/online", "0-17\n");
    put("node/has_memory", "0-1,3\n");
    put("node/node0/cpulist", "0-3,8-11\n");
    put("node/node1/cpulist", "4-7,12-15\n");
    put("node/node2/cpulist", "16-17\n");
    put("node/node3/cpulist", "\n");
    for (int cpu = 0; cpu < 18; cpu++) {
        snprintf(path, sizeof(path), "cpu/cpu%d/topology/thread_siblings_list", cpu);
        if (cpu < 16)
            snprintf(text, sizeof(text), "%d,%d\n", cpu % 8, cpu % 8 + 8);
        else
            snprintf(text, sizeof(text), "%d\n", cpu);
        put(path, text);
    }
}

static void remove_machine(void) {
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

/* CPUs first ... last and, unless negative, one more. */
static cpu_set_t range(size_t first, size_t last, int more) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (; first <= last; first++)
        CPU_SET(first, &set);
    if (more >= 0)
        CPU_SET((size_t)more, &set);
    return set;
}

static int node_of(size_t first, size_t last, int more) {
    cpu_set_t set = range(first, last, more);
    return place_node(root, &set);
}

Test(place, C101_nodes_hold_all_cpus_and_memory, .init = make_machine, .fini = remove_machine) {
    cr_assert_eq(node_of(0, 3, -1), 0);
    cr_assert_eq(node_of(9, 9, -1), 0);
    cr_assert_eq(node_of(4, 7, 15), 1);
    cr_assert_eq(node_of(3, 4, -1), -1);   /* of two nodes */
    cr_assert_eq(node_of(16, 17, -1), -1); /* no memory */
    cr_assert_eq(node_of(18, 18, -1), -1);
    cr_assert_eq(node_of(1, 0, -1), -1); /* none */
    put("node/has_memory", "");
    cr_assert_eq(node_of(0, 3, -1), -1);
    put("node/has_memory", "0-4000\n"); /* more than sets hold */
    cr_assert_eq(node_of(0, 3, -1), -1);
    remove_machine();
    mkdir(root, 0700);
    cr_assert_eq(node_of(0, 3, -1), -1); /* nothing is told */
}

static int cache_of(size_t first, size_t last) {
    cpu_set_t set = range(first, last, -1);
    return place_cache(root, &set);
}

Test(place, caches_hold_all_cpus, .init = make_machine, .fini = remove_machine) {
    cr_assert_eq(cache_of(2, 3), -1); /* nothing is told */
    for (int cpu = 0; cpu < 8; cpu++) {
        char path[64];
        snprintf(path, sizeof(path), "cpu/cpu%d/cache/index3/shared_cpu_list", cpu);
        put(path, cpu < 4 ? "0-3,8-11\n" : cpu < 6 ? "4-5,12-13\n" : "");
    }
    cr_assert_eq(cache_of(2, 3), 0);
    cr_assert_eq(cache_of(5, 5), 4);
    cr_assert_eq(cache_of(3, 4), -1); /* of two caches */
    cr_assert_eq(cache_of(6, 6), -1);
    cr_assert_eq(cache_of(1, 0), -1); /* none */
}

static bool beside_is(cpu_set_t mine, int cpu, cpu_set_t expected) {
    cpu_set_t beside;
    return place_beside(root, &mine, cpu, &beside) && CPU_EQUAL(&beside, &expected);
}

Test(place, beside_a_rank, .init = make_machine, .fini = remove_machine) {
    cpu_set_t beside, mine;
    /* Cores 0 and 1 with all their threads: beside core 0 is core 1. */
    mine = range(0, 1, 8);
    CPU_SET(9, &mine);
    cr_assert(beside_is(mine, 0, range(1, 1, 9)));
    cr_assert(beside_is(mine, 9, range(0, 0, 8)));
    /* Over two nodes: those of the node where the rank is. */
    cr_assert(beside_is(range(2, 5, -1), 3, range(2, 2, -1)));
    cr_assert(beside_is(range(2, 5, -1), 5, range(4, 4, -1)));
    /* Alone on its node: others are better than its own core. */
    cr_assert(beside_is(range(3, 4, -1), 3, range(4, 4, -1)));
    cr_assert(beside_is(range(16, 17, -1), 16, range(17, 17, -1)));
    /* Nothing is left, or the rank may run everywhere. */
    mine = range(5, 5, 13);
    cr_assert_not(place_beside(root, &mine, 5, &beside));
    mine = range(0, 17, -1);
    cr_assert_not(place_beside(root, &mine, 5, &beside));
    put("cpu/online", "");
    mine = range(0, 1, -1);
    cr_assert_not(place_beside(root, &mine, 7777, &beside));
}

/* What this machine can show: the policy is there, and pages come when they are touched. */
Test(place, memory_prefers_the_node) {
    size_t bytes = 1 << 20;
    cpu_set_t mine;
    cr_assert_eq(sched_getaffinity(0, sizeof(mine), &mine), 0);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) /* one CPU is on one node */
        if (CPU_ISSET(cpu, &mine)) {
            mine = range(cpu, cpu, -1);
            break;
        }
    cr_assert_eq(sched_setaffinity(0, sizeof(mine), &mine), 0);
    int node = place_node(NULL, &mine), mode = -1, fd = memfd_create("place", MFD_CLOEXEC);
    if (node < 0)
        cr_skip_test("the kernel tells of no NUMA node");
    cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    cr_assert_neq(memory, MAP_FAILED);
    unsigned long nodes[16] = {0};
    long refused = syscall(SYS_mbind, memory, bytes, MPOL_DEFAULT, NULL, 0, 0);
    place_memory("memory", memory, bytes);
    if (refused == 0) {
        cr_assert_eq(syscall(SYS_get_mempolicy, &mode, nodes, 1024, memory, MPOL_F_ADDR), 0);
        cr_assert_eq(mode, MPOL_PREFERRED);
        cr_assert_eq(nodes[node / 64], 1ul << node % 64);
    }
    memset(memory, 1, bytes);
    munmap(memory, bytes);
    close(fd);
}
