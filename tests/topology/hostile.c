/* Files that crashed a reader, or kept one busy for minutes. */
#include "machines.h"

#include <criterion/criterion.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Reads the text, which must be in order. */
static rota_topo *read_all(const char *text) {
    rota_topo *topo = NULL;
    rota_error error = ROTA_ERROR_INIT;
    if (rota_topo_read(text, strlen(text), "hostile", &topo) != ROTA_OK) {
        rota_last_error(&error);
        cr_assert_fail("%s", error.message);
    }
    return topo;
}

/* hwloc gives names where the file has some: NULL for this port, and for what might be a GPU. */
Test(topology_hostile, os_devices_without_a_name) {
#define SETS "cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
    rota_topo *topo = read_all(
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" " SETS "gp_index=\"1\">"
        "<object type=\"NUMANode\" os_index=\"0\" " SETS "gp_index=\"2\" local_memory=\"1024\"/>"
        "<object type=\"PU\" os_index=\"0\" " SETS "gp_index=\"3\"/>"
        "<object type=\"PCIDev\" gp_index=\"4\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0207 [15b3:101b] [0000:0000] 00\" pci_link_speed=\"15.75\">"
        "<object type=\"OSDev\" gp_index=\"5\" osdev_type=\"3\"/></object>"
        "<object type=\"PCIDev\" gp_index=\"6\" pci_busid=\"0000:02:00.0\" "
        "pci_type=\"0302 [10de:20b0] [0000:0000] 00\" pci_link_speed=\"15.75\">"
        "<object type=\"OSDev\" gp_index=\"7\" osdev_type=\"1\"/></object>"
        "</object></topology>");
#undef SETS
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    cr_assert_eq(info.gpus, 1);
    cr_assert_eq(info.ports, 1);
    rota_topo_free(topo);
}

static void refuses(const char *text, const char *words) {
    rota_topo *topo = NULL;
    rota_error error = ROTA_ERROR_INIT;
    cr_assert_eq(rota_topo_read(text, strlen(text), "hostile", &topo), ROTA_ERR_FORMAT);
    rota_last_error(&error);
    cr_assert_not_null(strstr(error.message, words), "%s", error.message);
}

/* Numbers that cost memory and time for each unit. */
Test(topology_hostile, numbers_that_no_machine_has, .timeout = 60) {
    refuses("cluster 1\nhosts 4096\nnuma 64\ngpus 1\n", "262144 NUMA nodes");
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\"><gpu dev=\"0\">",
          out);
    for (int i = 0; i < 5; i++)
        fputs("<nvlink target=\"s\" count=\"1024\" tclass=\"0x068000\"/>", out);
    fputs("</gpu></pci></cpu></system>", out);
    fclose(out);
    refuses(text, "GPU 0 has");
    free(text);
    refuses("<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0x1\" "
            "complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\"/>"
            "<distances2 type=\"PU\" nbobjs=\"65536\" kind=\"5\" indexing=\"os\"/></topology>",
            "nbobjs");
}

/* Two hosts without links between GPUs, but with one that makes it the unit: of such a speed, rings
 * would be cut into a hundred thousand pieces. */
Test(topology_hostile, a_speed_that_no_bus_has, .timeout = 60) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("<system version=\"1\">", out);
    for (int gpu = 0; gpu < 12; gpu++)
        fprintf(out,
                "%s<pci busid=\"0000:%02x:00.0\" class=\"0x030200\" link_speed=\"999999 GT/s\" "
                "link_width=\"64\"><gpu dev=\"%d\">%s</gpu></pci>%s",
                gpu == 0   ? "<cpu host_hash=\"a\" numaid=\"0\">"
                : gpu == 6 ? "<cpu host_hash=\"b\" numaid=\"0\">"
                           : "",
                gpu, gpu,
                gpu % 6 == 0 ? "<nvlink target=\"s\" count=\"1\" tclass=\"0x068000\"/>" : "",
                gpu % 6 == 5 ? "</cpu>" : "");
    fputs("</system>", out);
    fclose(out);
    rota_topo *topo = read_all(text);
    rota_topo_result rings = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_find_rings(topo, &rings), ROTA_OK);
    cr_assert_lt(rings.count, 1000);
    rota_topo_free(topo);
    free(text);
}

/* A row of a table whose cells add up to more links than a GPU has: each pair is looked at. */
Test(topology_hostile, a_thousand_columns, .timeout = 60) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    for (int i = 0; i < 1023; i++)
        fprintf(out, "\tGPU%d", i);
    fputs("\nGPU0\tX", out);
    for (int i = 1; i < 1023; i++)
        fputs("\tNV1", out);
    fputs("\n", out);
    fclose(out);
    rota_topo *topo = read_all(text);
    cr_assert_not_null(rota_topo_warning(topo, 255));
    cr_assert_null(rota_topo_warning(topo, 256));
    cr_assert_not_null(strstr(rota_topo_warning(topo, 255), " more"));
    rota_topo_free(topo);
    free(text);
}

static rota_status write_as(const char *text, rota_topo_format format) {
    rota_topo *topo = read_all(text);
    FILE *nowhere = fopen("/dev/null", "we");
    cr_assert_not_null(nowhere);
    rota_status status = rota_topo_write(topo, format, nowhere);
    fclose(nowhere);
    rota_topo_free(topo);
    return status;
}

Test(topology_hostile, thousands_of_numa_nodes, .timeout = 60) {
    for (int nodes = 1000; nodes <= 5000; nodes += 4000) {
        char *text = NULL;
        size_t length = 0;
        FILE *out = open_memstream(&text, &length);
        fputs("<system version=\"1\">", out);
        for (int i = 0; i < nodes; i++)
            fputs("<cpu numaid=\"1\"/>", out);
        fputs("</system>", out);
        fclose(out);
        cr_assert_eq(write_as(text, ROTA_TOPO_NCCL_XML), ROTA_OK);
        cr_assert_eq(write_as(text, ROTA_TOPO_HWLOC_XML),
                     nodes == 1000 ? ROTA_OK : ROTA_ERR_UNSUPPORTED);
        free(text);
    }
}

/* hwloc's sets may have no end. */
Test(topology_hostile, endless_sets, .timeout = 60) {
#define SETS "cpuset=\"0xf...f\" complete_cpuset=\"0xf...f\" "
#define NODES "nodeset=\"0x1\" complete_nodeset=\"0x1\" "
    static const char text[] =
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" " SETS NODES
        "gp_index=\"1\"><object type=\"Package\" os_index=\"0\" " SETS NODES "gp_index=\"2\">"
        "<object type=\"NUMANode\" os_index=\"0\" " SETS NODES "gp_index=\"3\" "
        "local_memory=\"1024\"/><object type=\"PU\" os_index=\"0\" " SETS NODES "gp_index=\"4\"/>"
        "</object></object></topology>";
#undef SETS
#undef NODES
    cr_assert_eq(write_as(text, ROTA_TOPO_HWLOC_XML), ROTA_OK);
}

/* Links so wide and uneven that no whole rings reach the bound: the search gives up in time. */
Test(topology_hostile, uneven_links_of_15_gpus, .timeout = 100) {
    int width[15][15] = {{0}};
    unsigned state = 6;
    for (int i = 0; i < 15; i++)
        for (int j = 0; j < i; j++) {
            state = state * 1103515245 + 12345;
            width[i][j] = width[j][i] = state / 65536 % 10 < 8 ? 1 + (int)(state / 256 % 400) : 0;
        }
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("<system version=\"1\"><cpu numaid=\"0\">", out);
    for (int i = 0; i < 15; i++) {
        fprintf(out, "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\"><gpu dev=\"%d\">", i, i);
        for (int j = 0; j < 15; j++)
            if (width[i][j] > 0)
                fprintf(out, "<nvlink target=\"0000:%02x:00.0\" count=\"%d\"/>", j, width[i][j]);
        fputs("</gpu></pci>", out);
    }
    fputs("</cpu></system>", out);
    fclose(out);
    rota_topo *topo = read_all(text);
    rota_topo_result rings = ROTA_TOPO_RESULT_INIT;
    clock_t began = clock();
    cr_assert_eq(rota_topo_find_rings(topo, &rings), ROTA_OK);
    cr_assert_str_eq(rings.kind, "direct");
    cr_assert_geq(rings.score, 0.99 * rings.bound);
#if !defined(__SANITIZE_ADDRESS__)
    cr_assert_lt((double)(clock() - began) / CLOCKS_PER_SEC, 12);
#else
    (void)began;
#endif
    rota_topo_free(topo);
    free(text);
}

/* Hosts that are alike are searched once. */
Test(topology_hostile, many_hosts_of_16_gpus, .timeout = 60) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("<system version=\"1\">", out);
    for (int gpu = 0; gpu < 64 * 16; gpu++) {
        if (gpu % 16 == 0)
            fprintf(out, "<cpu host_hash=\"%d\" numaid=\"0\">", gpu / 16);
        fprintf(out, "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\"><gpu dev=\"%d\">", gpu % 16,
                gpu);
        for (int step = 1; step <= 5; step += 2)
            fprintf(out, "<nvlink target=\"0000:%02x:00.0\" count=\"%d\"/>", (gpu + step) % 16,
                    1024 / step);
        fprintf(out, "</gpu></pci>%s", gpu % 16 == 15 ? "</cpu>" : "");
    }
    fputs("</system>", out);
    fclose(out);
    rota_topo *topo = read_all(text);
    rota_topo_result rings = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_find_rings(topo, &rings), ROTA_OK);
    cr_assert_str_eq(rings.kind, "hosts");
    cr_assert_float_eq(rings.score, rings.bound, 1e-3);
    rota_topo_free(topo);
    free(text);
}

/* A chain from every GPU along every ring would take gigabytes. */
Test(topology_hostile, trees_of_2048_gpus, .timeout = 60) {
    rota_topo *topo = read_all("cluster 1\nhosts 256\ngpus 8\nlinks nvswitch 18\nnics 8\n");
    rota_topo_result rings = ROTA_TOPO_RESULT_INIT, trees = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_find_rings(topo, &rings), ROTA_OK);
    cr_assert_eq(rota_topo_find_trees(topo, &trees), ROTA_OK);
    cr_assert_eq(trees.count, rings.count);
    cr_assert_float_eq(trees.score, rings.score, 1e-9);
    rota_topo_free(topo);
}
