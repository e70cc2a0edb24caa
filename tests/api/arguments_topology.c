/* What the functions of topologies refuse. */
#include "pair.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char machine[] = "cluster 1\ngpus 4 arch 80\nlinks mesh 2\nnics 2 speed 100\n";
static const rota_topo *const untouched = (const rota_topo *)&untouched;

static rota_topo *made(void) {
    rota_topo *topo = NULL;
    cr_assert_eq(rota_topo_read(machine, strlen(machine), "four", &topo), ROTA_OK);
    return topo;
}

Test(arguments, rota_topo_load) {
    rota_topo *topo = (rota_topo *)(uintptr_t)untouched;
    REFUSED(rota_topo_load(NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "topo");
    REFUSED(rota_topo_load("/no/such/file", &topo), ROTA_ERR_SYSTEM, NULL, "/no/such/file");
    REFUSED(rota_topo_load("/", &topo), ROTA_ERR_FORMAT, NULL, "a file");
    REFUSED(rota_topo_load("/dev/zero", &topo), ROTA_ERR_FORMAT, NULL, "/dev/zero");
    cr_assert_eq(topo, untouched);
}

Test(arguments, rota_topo_load_merged) {
    rota_topo *topo = (rota_topo *)(uintptr_t)untouched;
    REFUSED(rota_topo_load_merged(NULL, &topo), ROTA_ERR_ARGUMENT, NULL, "path");
    REFUSED(rota_topo_load_merged("/no/such/file", NULL), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_load_merged("/no/such/file", &topo), ROTA_ERR_SYSTEM, NULL, "/no/such/file");
    cr_assert_eq(topo, untouched);
}

Test(arguments, rota_topo_read) {
    static const struct {
        const char *text, *names;
    } bad[] = {
        {"", "empty"},
        {"\n  \n", "empty"},
        {"hello", "expected"},
        {"<system>", "line 1"},
        {"<system version=\"1\"><cpu></system>", "mismatched"},
        {"<other/>", "<system>"},
        {"<!DOCTYPE s [<!ENTITY a \"b\">]><system>&a;</system>", "entity"},
        {"<topology version=\"2.0\"><object type=\"PU\" os_index=\"0\"/></topology>", "cpuset"},
        {"<topology version=\"2.0\"><object/></topology>", "type"},
        {"<topology version=\"3.0\"><object type=\"Machine\"/></topology>", "version 3"},
        {"<graphs version=\"1\"/>", "graph"},
        {"cluster 2\n", "version 1"},
        {"cluster 1\nhosts none\n", "line 2"},
        {"cluster 1\nhosts 6\nfabric torus 2 2\n", "torus"},
        {"        GPU0    GPU1\nGPU0     X      FOO\n", "FOO"},
        {"        GPU0    GPU1\nGPU0     X\n", "GPU0"},
        {"        GPU0    GPU0\n", "GPU0"}};
    rota_topo *topo = (rota_topo *)(uintptr_t)untouched;
    REFUSED(rota_topo_read(NULL, 4, NULL, &topo), ROTA_ERR_ARGUMENT, NULL, "bytes");
    REFUSED(rota_topo_read(machine, strlen(machine), NULL, NULL), ROTA_ERR_ARGUMENT, NULL,
            "topology");
    REFUSED(rota_topo_read(machine, SIZE_MAX, NULL, &topo), ROTA_ERR_FORMAT, NULL, "MiB");
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        REFUSED(rota_topo_read(bad[i].text, strlen(bad[i].text), "bad", &topo), ROTA_ERR_FORMAT,
                NULL, bad[i].names);
    REFUSED(rota_topo_read("<a\0b>", 5, "bad", &topo), ROTA_ERR_FORMAT, NULL, "binary");
    cr_assert_eq(topo, untouched);
}

Test(arguments, rota_topo_describe) {
    rota_topo *topo = made();
    rota_topo_info info = ROTA_TOPO_INFO_INIT, none = {.size = 8};
    REFUSED(rota_topo_describe(NULL, &info), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_describe(topo, NULL), ROTA_ERR_ARGUMENT, NULL, "info");
    REFUSED(rota_topo_describe(topo, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    cr_assert_eq(info.gpus, 4);
    cr_assert_eq(info.ports, 2);
    cr_assert_str_eq(info.source, "four");
    rota_topo_free(topo);
    rota_topo_free(NULL);
}

Test(arguments, rota_topo_gpu_describe) {
    rota_topo *topo = made();
    rota_topo_gpu gpu = ROTA_TOPO_GPU_INIT, none = {.size = 8};
    REFUSED(rota_topo_gpu_describe(NULL, 0, &gpu), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_gpu_describe(topo, -1, &gpu), ROTA_ERR_ARGUMENT, NULL, "GPU");
    REFUSED(rota_topo_gpu_describe(topo, 4, &gpu), ROTA_ERR_ARGUMENT, NULL, "GPU");
    REFUSED(rota_topo_gpu_describe(topo, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "info");
    REFUSED(rota_topo_gpu_describe(topo, 0, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_topo_gpu_path(topo, 0, 4), ROTA_PATH_COUNT);
    cr_assert_eq(rota_topo_gpu_path(NULL, 0, 0), ROTA_PATH_COUNT);
    cr_assert_eq(rota_topo_port_path(topo, 0, 2), ROTA_PATH_COUNT);
    cr_assert_eq(rota_topo_port_path(topo, -1, 0), ROTA_PATH_COUNT);
    cr_assert_eq(rota_topo_links(topo, 0, 4), 0);
    cr_assert_eq(rota_topo_links(topo, 0, 1), 2);
    cr_assert_null(rota_topo_port_name(topo, 2));
    cr_assert_null(rota_topo_port_name(NULL, 0));
    cr_assert_null(rota_topo_warning(topo, 4096));
    cr_assert_null(rota_topo_warning(topo, -1));
    cr_assert_null(rota_path_name(ROTA_PATH_COUNT));
    rota_topo_free(topo);
}

Test(arguments, rota_topo_place) {
    rota_topo *topo = made();
    rota_topo_cpus cpus = ROTA_TOPO_CPUS_INIT, none = {.size = 8};
    REFUSED(rota_topo_place(NULL, 0, 1, &cpus), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_place(topo, -1, 1, &cpus), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_topo_place(topo, 1, 1, &cpus), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_topo_place(topo, 0, 0, &cpus), ROTA_ERR_ARGUMENT, NULL, "rank");
    REFUSED(rota_topo_place(topo, 0, 1, NULL), ROTA_ERR_ARGUMENT, NULL, "CPUs");
    REFUSED(rota_topo_place(topo, 0, 1, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    REFUSED(rota_topo_place(topo, 0, 1, &cpus), ROTA_ERR_UNSUPPORTED, NULL, "cores of four");
    rota_topo_free(topo);
}

Test(arguments, rota_topo_node_describe) {
    rota_topo *topo = made();
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    rota_topo_node node = ROTA_TOPO_NODE_INIT, none = {.size = 8};
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    REFUSED(rota_topo_node_describe(NULL, 0, &node), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_node_describe(topo, -1, &node), ROTA_ERR_ARGUMENT, NULL, "node");
    REFUSED(rota_topo_node_describe(topo, info.nodes, &node), ROTA_ERR_ARGUMENT, NULL, "node");
    REFUSED(rota_topo_node_describe(topo, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "describe");
    REFUSED(rota_topo_node_describe(topo, 0, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    int gpus = 0;
    for (int i = 0; i < info.nodes; i++) {
        cr_assert_eq(rota_topo_node_describe(topo, i, &node), ROTA_OK);
        cr_assert_lt(node.parent, info.nodes);
        gpus += node.kind == ROTA_TOPO_GPU;
        if (node.kind == ROTA_TOPO_GPU)
            cr_assert_eq(strncmp(node.label, "GPU ", 4), 0, "%s", node.label);
    }
    cr_assert_eq(gpus, 4);
    rota_topo_free(topo);
}

Test(arguments, rota_topo_island_describe) {
    static const char matrix[] = "\tGPU0\tGPU1\tGPU2\tGPU3\nGPU0\tX\tNV2\tSYS\tSYS\n"
                                 "GPU1\tNV2\tX\tSYS\tSYS\nGPU2\tSYS\tSYS\tX\tNV2\n"
                                 "GPU3\tSYS\tSYS\tNV2\tX\n";
    rota_topo *topo = NULL;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    rota_topo_island island = ROTA_TOPO_ISLAND_INIT, none = {.size = 8};
    cr_assert_eq(rota_topo_read(matrix, strlen(matrix), "pairs", &topo), ROTA_OK);
    REFUSED(rota_topo_island_describe(topo, 0, &island), ROTA_ERR_ARGUMENT, NULL, "island");
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    cr_assert_eq(result.island_count, 2);
    REFUSED(rota_topo_island_describe(NULL, 0, &island), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_island_describe(topo, -1, &island), ROTA_ERR_ARGUMENT, NULL, "island");
    REFUSED(rota_topo_island_describe(topo, 2, &island), ROTA_ERR_ARGUMENT, NULL, "island");
    REFUSED(rota_topo_island_describe(topo, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "island");
    REFUSED(rota_topo_island_describe(topo, 0, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_topo_island_describe(topo, 1, &island), ROTA_OK);
    cr_assert_eq(island.gpu_count, 2);
    cr_assert_eq(island.gpus[0], 2);
    cr_assert_eq(island.paths, 4); /* two links each way */
    rota_topo_free(topo);
}

Test(arguments, rota_topo_find_rings) {
    rota_topo *topo = made();
    rota_topo_result result = ROTA_TOPO_RESULT_INIT, none = {.size = 8};
    REFUSED(rota_topo_find_rings(NULL, &result), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_find_rings(topo, NULL), ROTA_ERR_ARGUMENT, NULL, "result");
    REFUSED(rota_topo_find_rings(topo, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    rota_topo_free(topo);
}

Test(arguments, rota_topo_find_trees) {
    rota_topo *topo = made();
    rota_topo_result result = ROTA_TOPO_RESULT_INIT, none = {.size = 8};
    REFUSED(rota_topo_find_trees(NULL, &result), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_find_trees(topo, NULL), ROTA_ERR_ARGUMENT, NULL, "result");
    REFUSED(rota_topo_find_trees(topo, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    rota_topo_free(topo);
}

Test(arguments, rota_topo_ring_describe) {
    rota_topo *topo = made();
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    rota_topo_ring ring = ROTA_TOPO_RING_INIT, none = {.size = 8};
    REFUSED(rota_topo_ring_describe(topo, 0, &ring), ROTA_ERR_ARGUMENT, NULL, "ring");
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    REFUSED(rota_topo_ring_describe(NULL, 0, &ring), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_ring_describe(topo, -1, &ring), ROTA_ERR_ARGUMENT, NULL, "ring");
    REFUSED(rota_topo_ring_describe(topo, result.count, &ring), ROTA_ERR_ARGUMENT, NULL, "ring");
    REFUSED(rota_topo_ring_describe(topo, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "ring");
    REFUSED(rota_topo_ring_describe(topo, 0, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_topo_ring_describe(topo, 0, &ring), ROTA_OK);
    cr_assert_eq(ring.gpu_count, 4);
    rota_topo_free(topo);
}

Test(arguments, rota_topo_tree_describe) {
    rota_topo *topo = made();
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    rota_topo_tree tree = ROTA_TOPO_TREE_INIT, none = {.size = 8};
    REFUSED(rota_topo_tree_describe(topo, 0, &tree), ROTA_ERR_ARGUMENT, NULL, "tree");
    cr_assert_eq(rota_topo_find_trees(topo, &result), ROTA_OK);
    REFUSED(rota_topo_tree_describe(NULL, 0, &tree), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_tree_describe(topo, -1, &tree), ROTA_ERR_ARGUMENT, NULL, "tree");
    REFUSED(rota_topo_tree_describe(topo, result.count, &tree), ROTA_ERR_ARGUMENT, NULL, "tree");
    REFUSED(rota_topo_tree_describe(topo, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "tree");
    REFUSED(rota_topo_tree_describe(topo, 0, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    cr_assert_eq(rota_topo_tree_describe(topo, 0, &tree), ROTA_OK);
    cr_assert_eq(tree.edge_count, 3);
    rota_topo_free(topo);
}

Test(arguments, rota_topo_judge) {
    rota_topo *topo = made();
    rota_topo_result result = ROTA_TOPO_RESULT_INIT, none = {.size = 8};
    char path[] = "/tmp/rota-graph-XXXXXX";
    static const char three[] = "<graphs version=\"1\"><graph id=\"0\" pattern=\"4\"><channel>"
                                "<gpu dev=\"0\"/><gpu dev=\"1\"/><gpu dev=\"2\"/></channel></graph>"
                                "</graphs>";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, three, strlen(three)), (ssize_t)strlen(three));
    close(fd);
    REFUSED(rota_topo_judge(NULL, path, &result), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_judge(topo, NULL, &result), ROTA_ERR_ARGUMENT, NULL, "path");
    REFUSED(rota_topo_judge(topo, path, NULL), ROTA_ERR_ARGUMENT, NULL, "result");
    REFUSED(rota_topo_judge(topo, path, &none), ROTA_ERR_ARGUMENT, NULL, "size");
    REFUSED(rota_topo_judge(topo, "/no/such/file", &result), ROTA_ERR_SYSTEM, NULL,
            "/no/such/file");
    REFUSED(rota_topo_judge(topo, path, &result), ROTA_ERR_FORMAT, NULL, "3 GPUs");
    unlink(path);
    rota_topo_free(topo);
}

Test(arguments, rota_topo_write) {
    rota_topo *topo = made();
    FILE *full = fopen("/dev/full", "w");
    REFUSED(rota_topo_write(NULL, ROTA_TOPO_NCCL_XML, stdout), ROTA_ERR_ARGUMENT, NULL, "topology");
    REFUSED(rota_topo_write(topo, ROTA_TOPO_NCCL_XML, NULL), ROTA_ERR_ARGUMENT, NULL, "file");
    REFUSED(rota_topo_write(topo, (rota_topo_format)9, stdout), ROTA_ERR_ARGUMENT, NULL, "format");
    REFUSED(rota_topo_write(topo, ROTA_TOPO_NCCL_XML, full), ROTA_ERR_SYSTEM, NULL, "written");
    fclose(full);
    rota_topo_free(topo);
}
