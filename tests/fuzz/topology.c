/* The readers of topology files on arbitrary bytes; what they accept goes through the searches, the
 * placement and the writers. Built once per reader. */
#include "base/error.h"
#include "topology/rings.h"
#include "topology/trees.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef FUZZ_hwloc
const char *__lsan_default_suppressions(void);

/* hwloc 2.9 forgets what it holds when it refuses a file in the middle: objects, sets, matrices.
 * Not ours to free. That we forget nothing of hwloc's is seen in the tests, which run without this.
 */
const char *__lsan_default_suppressions(void) {
    return "leak:libhwloc.so\n";
}
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    return setenv("HWLOC_HIDE_ERRORS", "2", 1); /* its banners would drown what matters */
}

#ifndef FUZZ_graph

#if defined(FUZZ_nccl)
#define READ topo_read_nccl
#elif defined(FUZZ_hwloc)
#define READ topo_read_hwloc
#elif defined(FUZZ_matrix)
#define READ topo_read_matrix
#else
#define READ topo_read_cluster
#endif

static void place_all(const struct topo *topo) {
    hwloc_bitmap_t share = hwloc_bitmap_alloc(), near = hwloc_bitmap_alloc();
    int gpu;
    for (int rank = 0; rank < 5 && topo->core_count > 0; rank++)
        if (!topo_place(topo, 5, rank, share, near, &gpu) || hwloc_bitmap_iszero(share) ||
            !hwloc_bitmap_isincluded(share, near))
            abort();
    hwloc_bitmap_free(share);
    hwloc_bitmap_free(near);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static FILE *nowhere;
    struct topo *topo = topo_create("fuzz");
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "w");
    if (topo == NULL || nowhere == NULL)
        abort();
    rota_status status = READ(topo, (const char *)data, size);
    if (status == ROTA_OK)
        status = topo_finish(topo);
    /* Searches are exact up to some size and bounded above: small ones are the interesting ones,
     * and keep the fuzzer fast. */
    if (status == ROTA_OK && topo->gpu_count <= 12 && topo->port_count <= 64) {
        struct topo_rings rings;
        struct topo_trees trees;
        if (topo_find_rings(topo, &rings) != ROTA_OK ||
            topo_find_trees(topo, &rings, &trees) != ROTA_OK)
            abort();
        if (rings.score > rings.bound + 1e-3)
            abort(); /* a bound that is none */
        (void)topo_write_nccl(topo, nowhere);
        (void)topo_write_hwloc(topo, nowhere);
        place_all(topo);
        topo_free_rings(&rings);
        topo_free_trees(&trees);
    }
    topo_destroy(topo);
    return 0;
}

#else

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char text[] = "cluster 1\ngpus 4\nlinks mesh 2\n";
    struct topo_graph_file file;
    struct topo_rings rings;
    struct topo *topo = topo_create("four");
    if (topo == NULL || topo_read_cluster(topo, text, sizeof(text) - 1) != ROTA_OK ||
        topo_finish(topo) != ROTA_OK)
        abort();
    if (topo_read_graph("fuzz", (const char *)data, size, &file) == ROTA_OK) {
        if (topo_judge(topo, "fuzz", &file, &rings) == ROTA_OK)
            topo_free_rings(&rings);
        topo_free_graph(&file);
    }
    topo_destroy(topo);
    return 0;
}

#endif
