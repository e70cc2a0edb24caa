/* Where ranks are put, on machines that hwloc makes up and on those of files. */
#include "machines.h"

#include <criterion/criterion.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static rota_topo *synthetic(const char *text) {
    rota_topo *topo = NULL;
    cr_assert_eq(setenv("HWLOC_SYNTHETIC", text, 1), 0);
    cr_assert_eq(rota_topo_load(NULL, &topo), ROTA_OK);
    return topo;
}

/* The set as text, "0-3 8". */
static void tell(const unsigned long *words, char *text, size_t size) {
    size_t length = 0;
    text[0] = '\0';
#define IN(cpu) ((cpu) < ROTA_TOPO_CPUS && (words[(cpu) / 64] >> (cpu) % 64 & 1) != 0)
    for (size_t first = 0; first < ROTA_TOPO_CPUS; first++) {
        size_t last = first;
        if (!IN(first))
            continue;
        while (IN(last + 1))
            last++;
        length +=
            (size_t)snprintf(text + length, size - length, last > first ? "%s%zu-%zu" : "%s%zu",
                             length > 0 ? " " : "", first, last);
        cr_assert_lt(length, size);
        first = last;
    }
#undef IN
}

static void expect(const rota_topo *topo, int rank, int ranks, const char *share, const char *near,
                   int gpu) {
    rota_topo_cpus cpus = ROTA_TOPO_CPUS_INIT;
    char text[256];
    cr_assert_eq(rota_topo_place(topo, rank, ranks, &cpus), ROTA_OK);
    tell(cpus.share, text, sizeof(text));
    cr_assert_str_eq(text, share, "rank %d of %d: share %s, expected %s", rank, ranks, text, share);
    tell(cpus.near, text, sizeof(text));
    cr_assert_str_eq(text, near, "rank %d of %d: near %s, expected %s", rank, ranks, text, near);
    cr_assert_eq(cpus.gpu, gpu);
}

/* Two packages of two nodes of four cores of two threads. */
Test(place, ranks_are_dealt_out_to_numa_nodes) {
    rota_topo *topo = synthetic("pack:2 numa:2 l3:1 core:4 pu:2");
    expect(topo, 0, 1, "0-31", "0-31", -1);
    expect(topo, 0, 2, "0-15", "0-15", -1);
    expect(topo, 1, 2, "16-31", "16-31", -1);
    expect(topo, 1, 3, "10-19", "8-23", -1); /* fewer ranks than nodes: all cores are shared out */
    for (int r = 0; r < 4; r++) {
        char node[16];
        snprintf(node, sizeof(node), "%d-%d", 8 * r, 8 * r + 7);
        expect(topo, r, 4, node, node, -1);
    }
    expect(topo, 2, 8, "8-11", "8-15", -1);
    expect(topo, 0, 5, "0-3", "0-7", -1); /* two on the first node, no rank on parts of two */
    expect(topo, 1, 5, "4-7", "0-7", -1);
    expect(topo, 2, 5, "8-15", "8-15", -1);
    expect(topo, 15, 16, "30-31", "24-31", -1);
    expect(topo, 31, 32, "30-31", "24-31", -1); /* more ranks than cores */
    expect(topo, 30, 32, "30-31", "24-31", -1);
    expect(topo, 29, 32, "28-29", "24-31", -1);
    expect(topo, 1023, 1024, "30-31", "24-31", -1);
    rota_topo_free(topo);
}

/* Cores that share a cache belong to one rank where that is possible, in hwloc's order. */
Test(place, neighbours_stay_together) {
    rota_topo *topo = synthetic("numa:1 l3:2 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)");
    expect(topo, 0, 2, "0-1 4-5", "0-7", -1);
    expect(topo, 1, 2, "2-3 6-7", "0-7", -1);
    rota_topo_free(topo);
}

/* As many GPUs as ranks, or more: ranks are near theirs. */
Test(place, ranks_are_near_their_gpus) {
    rota_topo *topo = NULL;
    char *text = machine_large(8);
    cr_assert_eq(rota_topo_read(text, strlen(text), NULL, &topo), ROTA_OK);
    for (int r = 0; r < 8; r++) {
        char cpu[8];
        snprintf(cpu, sizeof(cpu), "%d", r / 2);
        expect(topo, r, 8, cpu, cpu, r);
    }
    expect(topo, 1, 2, "0", "0", 1);  /* both GPUs are of the first package */
    expect(topo, 8, 9, "3", "3", -1); /* more ranks than GPUs */
    expect(topo, 2, 9, "0", "0", -1);
    rota_topo_free(topo);
    free(text);
}

/* C101: a node without memory, one without CPUs. */
Test(place, C101_poor_nodes) {
    rota_topo *topo = NULL;
    char *text = machine_poor();
    cr_assert_eq(rota_topo_read(text, strlen(text), NULL, &topo), ROTA_OK);
    expect(topo, 0, 6, "0", "0", 0);
    expect(topo, 3, 6, "1", "1", 3);
    expect(topo, 5, 6, "3", "3", 5);
    expect(topo, 0, 7, "0", "0", -1);
    expect(topo, 3, 7, "1", "1", -1);
    expect(topo, 6, 7, "3", "3", -1);
    rota_topo_free(topo);
    free(text);
}

Test(place, only_hwloc_tells_of_cores) {
    rota_topo *topo = NULL;
    rota_topo_cpus cpus = ROTA_TOPO_CPUS_INIT;
    static const char text[] = "cluster 1\ngpus 2\n";
    cr_assert_eq(rota_topo_read(text, strlen(text), NULL, &topo), ROTA_OK);
    cr_assert_eq(rota_topo_place(topo, 0, 2, &cpus), ROTA_ERR_UNSUPPORTED);
    rota_topo_free(topo);
}
