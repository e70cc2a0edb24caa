/* Topologies that broke other libraries, by the numbers of docs/cases.md. */
#include "machines.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <pthread.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static const char *last_message(void) {
    static rota_error error;
    error = (rota_error)ROTA_ERROR_INIT;
    rota_last_error(&error);
    return error.message;
}

static rota_topo *read_topology(const char *text) {
    rota_topo *topo = NULL;
    rota_status status = rota_topo_read(text, strlen(text), "made up", &topo);
    cr_assert_eq(status, ROTA_OK, "%s", last_message());
    return topo;
}

static int gpu_count(const rota_topo *topo) {
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    return info.gpus;
}

/* Whether some warning holds the words. */
static bool warned(const rota_topo *topo, const char *words) {
    const char *line;
    for (int i = 0; (line = rota_topo_warning(topo, i)) != NULL; i++)
        if (strstr(line, words) != NULL)
            return true;
    return false;
}

static void each_ring_is_whole(const rota_topo *topo, const rota_topo_result *result, int gpus) {
    bool *seen = calloc((size_t)gpus, sizeof(bool));
    for (int r = 0; r < result->count; r++) {
        rota_topo_ring ring = ROTA_TOPO_RING_INIT;
        cr_assert_eq(rota_topo_ring_describe(topo, r, &ring), ROTA_OK);
        cr_assert_eq(ring.gpu_count, gpus);
        memset(seen, 0, (size_t)gpus * sizeof(bool));
        for (int i = 0; i < gpus; i++) {
            cr_assert(ring.gpus[i] >= 0 && ring.gpus[i] < gpus && !seen[ring.gpus[i]],
                      "ring %d, place %d", r, i);
            seen[ring.gpus[i]] = true;
        }
    }
    free(seen);
}

/* Reads, searches, frees; the number of GPUs. */
static int work_through(const char *text) {
    rota_topo *topo = read_topology(text);
    rota_topo_result rings = ROTA_TOPO_RESULT_INIT, trees = ROTA_TOPO_RESULT_INIT;
    int gpus = gpu_count(topo);
    cr_assert_eq(rota_topo_find_rings(topo, &rings), ROTA_OK);
    cr_assert_eq(rota_topo_find_trees(topo, &trees), ROTA_OK);
    each_ring_is_whole(topo, &rings, gpus);
    rota_topo_free(topo);
    return gpus;
}

static void *small_stack(void *argument) {
    return (void *)(intptr_t)work_through(argument);
}

static void run_on_stack(const char *text, size_t bytes) {
    pthread_attr_t attributes;
    pthread_t thread;
    void *gpus = NULL;
#if defined(__SANITIZE_ADDRESS__)
    bytes *= 4; /* red zones around every variable */
#endif
    cr_assert_eq(pthread_attr_init(&attributes), 0);
    cr_assert_eq(pthread_attr_setstacksize(&attributes, bytes), 0);
    cr_assert_eq(pthread_create(&thread, &attributes, small_stack, (void *)(uintptr_t)text), 0);
    cr_assert_eq(pthread_join(thread, &gpus), 0);
    cr_assert_eq((intptr_t)gpus, 128);
    pthread_attr_destroy(&attributes);
}

static const char cluster_of_128[] = "cluster 1\nhosts 16\nnuma 2\ngpus 8 arch 90\nlinks nvswitch "
                                     "18\nnics 8 speed 400\nfabric fat-tree leaves 4 spines 2\n";

Test(topology, C85_small_stack_128_gpus) {
    struct rlimit limit = {256 << 10, 256 << 10};
    char *text = machine_large(128);
    cr_assert_eq(setrlimit(RLIMIT_STACK, &limit), 0);
    run_on_stack(text, 128 << 10);
    run_on_stack(cluster_of_128, 128 << 10);
    free(text);
}

Test(topology, C85_unlimited_stack) {
    struct rlimit limit = {RLIM_INFINITY, RLIM_INFINITY};
    if (setrlimit(RLIMIT_STACK, &limit) != 0)
        cr_skip_test("the hard limit cannot be raised");
    cr_assert_eq(work_through(cluster_of_128), 128);
}

static char *nested(int levels) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    fputs("<system version=\"1\"><cpu numaid=\"0\">", out);
    for (int i = 0; i < levels; i++)
        fputs("<pci busid=\"0000:00:00.0\" class=\"0x060400\">", out);
    fputs("<gpu dev=\"0\"/>", out);
    for (int i = 0; i < levels; i++)
        fputs("</pci>", out);
    fputs("</cpu></system>", out);
    fclose(out);
    return text;
}

Test(topology, C85_nesting) {
    char *text = nested(200);
    rota_topo *topo = read_topology(text), *none = NULL;
    cr_assert_eq(gpu_count(topo), 1);
    rota_topo_free(topo);
    free(text);
    text = nested(100000);
    cr_assert_eq(rota_topo_read(text, strlen(text), "deep", &none), ROTA_ERR_FORMAT);
    cr_assert(strstr(last_message(), "nested") != NULL, "%s", last_message());
    free(text);
}

/* Takes the attribute out of the text: its first place, or all. The number of places. */
static int without(const char *text, const char *attribute, bool all, char *to) {
    char pattern[64];
    int places = 0;
    snprintf(pattern, sizeof(pattern), " %s=\"", attribute);
    for (const char *at = text; *at != '\0';) {
        if (strncmp(at, pattern, strlen(pattern)) == 0 && (all || places == 0)) {
            places++;
            at = strchr(at + strlen(pattern), '"') + 1;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
    return places;
}

static void try_without(const char *file, const char *const *attributes, int *read, int *refused) {
    char *text = machine_file(file), *less = malloc(strlen(text) + 1);
    for (; *attributes != NULL; attributes++)
        for (int all = 0; all < 2; all++) {
            rota_topo *topo = NULL;
            rota_topo_result result = ROTA_TOPO_RESULT_INIT;
            cr_assert_gt(without(text, *attributes, all == 1, less), 0, "%s: %s", file,
                         *attributes);
            rota_status status = rota_topo_read(less, strlen(less), file, &topo);
            if (status == ROTA_OK) {
                ++*read;
                cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
                each_ring_is_whole(topo, &result, gpu_count(topo));
            } else {
                ++*refused;
                cr_assert_eq(status, ROTA_ERR_FORMAT, "%s without %s", file, *attributes);
                cr_assert(strstr(last_message(), file) != NULL &&
                              strstr(last_message(), *attributes) != NULL,
                          "without %s: %s", *attributes, last_message());
            }
            rota_topo_free(topo);
        }
    free(less);
    free(text);
}

Test(topology, C97_attributes_missing) {
    static const char *const hwloc[] = {
        "type",         "cpuset",     "os_index", "pci_busid",  "pci_type", "nodeset",
        "local_memory", "osdev_type", "gp_index", "bridge_pci", NULL};
    static const char *const nccl[] = {"numaid",     "affinity",   "arch",   "vendor", "familyid",
                                       "busid",      "class",      "device", "dev",    "rank",
                                       "link_speed", "link_width", "target", "count",  "tclass",
                                       "name",       "speed",      NULL};
    static const char *const rccl[] = {"gcn", "arch", "sm", "target", "count", "version", NULL};
    int read = 0, refused = 0;
    try_without("hwloc/power8-p100-v2.xml", hwloc, &read, &refused);
    cr_assert_gt(refused, 0);
    refused = 0;
    try_without("nccl/dgx1v-derived.xml", nccl, &read, &refused);
    try_without("nccl/rccl-8p1h_3.xml", rccl, &read, &refused);
    cr_assert_eq(refused, 0); /* NCCL's files are read with defaults whatever they lack */
    cr_assert_gt(read, 40);
}

Test(topology, C97_devices_without_parents) {
    rota_topo *topo =
        read_topology("<system version=\"1\"><gpu dev=\"9\"/><pci busid=\"0000:01:00.0\"/>"
                      "<cpu numaid=\"0\"><gpu dev=\"0\"/><nic><net name=\"eth0\"/></nic>"
                      "<net name=\"eth1\"/><nvlink target=\"x\"/></cpu></system>");
    cr_assert_eq(gpu_count(topo), 1);
    cr_assert_eq(rota_topo_port_path(topo, 0, 0), ROTA_PATH_PHB);
    cr_assert(warned(topo, "outside a GPU"));
    rota_topo_free(topo);
}

/* hwloc's: a GPU that hangs on no bridge, and a machine without a NUMA node. */
Test(topology, C97_hwloc_without_bridge_or_node) {
#define SETS "cpuset=\"0x1\" complete_cpuset=\"0x1\" nodeset=\"0x1\" complete_nodeset=\"0x1\" "
    static const char start[] =
        "<topology version=\"2.0\"><object type=\"Machine\" os_index=\"0\" " SETS "gp_index=\"1\">";
    static const char node[] = "<object type=\"NUMANode\" os_index=\"0\" " SETS "gp_index=\"2\" "
                               "local_memory=\"1024\"/>";
    static const char rest[] =
        "<object type=\"PU\" os_index=\"0\" " SETS "gp_index=\"3\"/>"
        "<object type=\"PCIDev\" gp_index=\"4\" pci_busid=\"0000:01:00.0\" "
        "pci_type=\"0302 [10de:20b0] [0000:0000] 00\" pci_link_speed=\"15.75\">"
        "<object type=\"OSDev\" gp_index=\"5\" name=\"nvml0\" osdev_type=\"1\"/></object>"
        "</object></topology>";
    char text[2048];
    rota_topo *topo = NULL;
    for (int with = 0; with < 2; with++) {
        snprintf(text, sizeof(text), "%s%s%s", start, with == 1 ? node : "", rest);
        rota_status status = rota_topo_read(text, strlen(text), "odd", &topo);
        if (status == ROTA_OK) {
            cr_assert_eq(gpu_count(topo), 1);
            rota_topo_free(topo);
        } else { /* hwloc itself wants a node */
            cr_assert_eq(status, ROTA_ERR_FORMAT);
            cr_assert_eq(with, 0);
            cr_assert_not_null(strstr(last_message(), "odd"), "%s", last_message());
        }
    }
#undef SETS
}

Test(topology, C99_128_gpus_64_nics) {
    char *text = machine_large(128);
    struct timespec began, ended;
    struct rusage usage;
    clock_gettime(CLOCK_MONOTONIC, &began);
    rota_topo *topo = read_topology(text);
    rota_topo_info info = ROTA_TOPO_INFO_INIT;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_describe(topo, &info), ROTA_OK);
    cr_assert_eq(info.gpus, 128);
    cr_assert_eq(info.ports, 64);
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    each_ring_is_whole(topo, &result, 128);
    cr_assert_eq(result.hops[ROTA_PATH_SYS], 4);
    cr_assert_eq(result.hops[ROTA_PATH_PHB], 60);
    cr_assert_eq(result.hops[ROTA_PATH_PIX], 64);
    cr_assert(result.optimal);
    cr_assert_lt(ended.tv_sec - began.tv_sec, 5);
    getrusage(RUSAGE_SELF, &usage);
    cr_assert_lt(usage.ru_maxrss, 256 << 10);
    rota_topo_free(topo);
    free(text);
}

Test(topology, C99_limits_are_told) {
    rota_topo *topo = NULL;
    static const char text[] = "cluster 1\nhosts 4096\ngpus 8\n";
    cr_assert_eq(rota_topo_read(text, strlen(text), "huge", &topo), ROTA_ERR_FORMAT);
    cr_assert(strstr(last_message(), "4096") != NULL && strstr(last_message(), "huge") != NULL,
              "%s", last_message());
    cr_assert_null(topo);
}

static rota_status judge(const char *cluster, const char *graph, rota_topo_result *result) {
    char path[] = "/tmp/rota-graph-XXXXXX";
    rota_topo *topo = read_topology(cluster);
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, graph, strlen(graph)), (ssize_t)strlen(graph));
    close(fd);
    rota_status status = rota_topo_judge(topo, path, result);
    unlink(path);
    rota_topo_free(topo);
    return status;
}

Test(topology, C100_graph_of_another_machine) {
    char *graph = machine_file("nccl-graph/azure-ncv4-graph.xml"); /* of 4 GPUs */
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(judge("cluster 1\ngpus 4\nlinks mesh 2\n", graph, &result), ROTA_OK);
    cr_assert_eq(result.count, 2);
    cr_assert_float_eq(result.score, 4.0, 1e-9); /* one ring each way, two links wide */
    cr_assert_eq(judge("cluster 1\ngpus 3\nlinks mesh 2\n", graph, &result), ROTA_ERR_FORMAT);
    cr_assert(strstr(last_message(), "4 GPUs") != NULL, "%s", last_message());
    cr_assert_eq(judge("cluster 1\ngpus 5\nlinks mesh 2\n", graph, &result), ROTA_ERR_FORMAT);
    cr_assert_eq(judge("cluster 1\ngpus 2\n",
                       "<graphs><graph pattern=\"4\"><channel><gpu dev=\"0\"/><gpu dev=\"7\"/>"
                       "</channel></graph></graphs>",
                       &result),
                 ROTA_ERR_FORMAT);
    cr_assert(strstr(last_message(), "no GPU 7") != NULL, "%s", last_message());
    cr_assert_eq(judge("cluster 1\ngpus 2\n",
                       "<graphs><graph pattern=\"4\"><channel><gpu dev=\"0\"/><gpu dev=\"0\"/>"
                       "</channel></graph></graphs>",
                       &result),
                 ROTA_ERR_FORMAT);
    free(graph);
}

Test(topology, C101_poor_numa_nodes) {
    char *text = machine_poor();
    rota_topo *topo = read_topology(text);
    int gpus = gpu_count(topo);
    cr_assert_eq(gpus, 6);
    for (int i = 0; i < gpus; i++) {
        rota_topo_gpu gpu = ROTA_TOPO_GPU_INIT;
        cr_assert_eq(rota_topo_gpu_describe(topo, i, &gpu), ROTA_OK);
        cr_assert(gpu.cpus != NULL && gpu.cpus[0] != '\0');
        cr_assert_eq(gpu.nearest_class, ROTA_PATH_PIX);
        cr_assert_neq(gpu.numa, 2); /* no device is told to be near the node without CPUs */
    }
    rota_topo_free(topo);
    free(text);
}

/* A job of threads while the environment names the file; the status of its creation. */
static rota_status job_with(const char *setting, const char *path, int nranks) {
    rota_comm *comms[8] = {NULL};
    setenv(setting, path, 1);
    rota_status status = rota_init_threads(nranks, comms, NULL);
    unsetenv(setting);
    for (int r = 0; status == ROTA_OK && r < nranks; r++)
        rota_comm_destroy(comms[r]);
    return status;
}

static int open_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (readdir(folder) != NULL)
        count++;
    closedir(folder);
    return count;
}

Test(topology, C81_files_that_do_not_parse) {
    char path[] = "/tmp/rota-topo-XXXXXX";
    static const char text[] = "<system version=\"1\"><cpu numaid=\"0\"><pci></cpu></system>";
    int fd = mkstemp(path), before = 0;
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    for (int i = 0; i < 200; i++) {
        rota_topo *topo = NULL;
        if (i == 10)
            before = open_descriptors();
        cr_assert_eq(rota_topo_load(path, &topo), ROTA_ERR_FORMAT);
        cr_assert(strstr(last_message(), path) != NULL);
        cr_assert_null(topo);
    }
    cr_assert_eq(open_descriptors(), before);
    for (int i = 0; i < 200; i++) { /* and jobs that are given it */
        if (i == 10)
            before = open_descriptors();
        cr_assert_eq(job_with("ROTA_TOPO_FILE", path, 2), ROTA_ERR_FORMAT);
    }
    cr_assert_eq(open_descriptors(), before);
    cr_assert_eq(job_with("ROTA_LOG", "warn", 2), ROTA_OK, "%s", last_message());
    unlink(path);
}

Test(topology, two_hosts_with_the_same_bus_ids) {
    static const char host[] =
        "<cpu host_hash=\"%s\" numaid=\"0\" affinity=\"ff\"><pci busid=\"0000:07:00.0\" "
        "class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\"><gpu dev=\"0\" sm=\"80\" "
        "rank=\"%d\"><nvlink target=\"0000:08:00.0\" count=\"4\" tclass=\"0x030200\"/></gpu></pci>"
        "<pci busid=\"0000:08:00.0\" class=\"0x030200\" link_speed=\"16 GT/s\" link_width=\"16\">"
        "<gpu dev=\"1\" sm=\"80\" rank=\"%d\"><nvlink target=\"0000:07:00.0\" count=\"4\" "
        "tclass=\"0x030200\"/></gpu></pci><nic><net name=\"ib0\" dev=\"0\" speed=\"200000\"/></nic>"
        "</cpu>";
    char text[4096];
    int length = snprintf(text, sizeof(text), "<system version=\"1\">");
    length += snprintf(text + length, sizeof(text) - (size_t)length, host, "left-host", 0, 1);
    length += snprintf(text + length, sizeof(text) - (size_t)length, host, "right host", 2, 3);
    snprintf(text + length, sizeof(text) - (size_t)length, "</system>");
    rota_topo *topo = read_topology(text);
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(gpu_count(topo), 4);
    cr_assert_eq(rota_topo_links(topo, 0, 1), 4);
    cr_assert_eq(rota_topo_links(topo, 1, 2), 0);
    cr_assert_eq(rota_topo_gpu_path(topo, 1, 2), ROTA_PATH_NET);
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    cr_assert_str_eq(result.kind, "hosts");
    each_ring_is_whole(topo, &result, 4);
    cr_assert_eq(result.hops[ROTA_PATH_NET], 2);
    cr_assert_float_eq(result.score_gbps, 25.0, 1e-6); /* the NIC: 200 Gbit/s */
    cr_assert(result.optimal);
    for (int r = 0; r < result.count; r++) {
        rota_topo_ring ring = ROTA_TOPO_RING_INIT;
        cr_assert_eq(rota_topo_ring_describe(topo, r, &ring), ROTA_OK);
        cr_assert_eq(ring.port_count, 4);
        for (int p = 0; p < 4; p++)
            cr_assert_str_eq(rota_topo_port_name(topo, ring.ports[p]), "ib0");
    }
    rota_topo_free(topo);
}

/* GPUs, links, classes, NICs with their speeds, and what rings score. */
static void same_graph(rota_topo *topo, rota_topo *again, const char *file, int format) {
    rota_topo_info left = ROTA_TOPO_INFO_INIT, right = ROTA_TOPO_INFO_INIT;
    rota_topo_result before = ROTA_TOPO_RESULT_INIT, after = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_describe(topo, &left), ROTA_OK);
    cr_assert_eq(rota_topo_describe(again, &right), ROTA_OK);
    cr_assert_eq(right.gpus, left.gpus);
    cr_assert_eq(right.ports, left.ports);
    cr_assert_eq(right.nics, left.nics, "%s %d: %d NICs, %d before", file, format, right.nics,
                 left.nics);
    cr_assert_eq(right.nvswitches, left.nvswitches);
    for (int a = 0; a < left.gpus; a++) {
        rota_topo_gpu one = ROTA_TOPO_GPU_INIT, other = ROTA_TOPO_GPU_INIT;
        cr_assert_eq(rota_topo_gpu_describe(topo, a, &one), ROTA_OK);
        cr_assert_eq(rota_topo_gpu_describe(again, a, &other), ROTA_OK);
        cr_assert_str_eq(other.bus_id, one.bus_id);
        cr_assert_eq(other.numa, one.numa);
        cr_assert_eq(other.switch_links, one.switch_links);
        cr_assert_eq(other.nearest_class, one.nearest_class);
        cr_assert_eq(other.nearest_count, one.nearest_count);
        for (int b = 0; b < left.gpus; b++) {
            cr_assert_eq(rota_topo_links(again, a, b), rota_topo_links(topo, a, b));
            cr_assert_eq(rota_topo_gpu_path(again, a, b), rota_topo_gpu_path(topo, a, b),
                         "%s %d: %d %d", file, format, a, b);
        }
    }
    cr_assert_eq(rota_topo_find_rings(topo, &before), ROTA_OK);
    cr_assert_eq(rota_topo_find_rings(again, &after), ROTA_OK);
    cr_assert_str_eq(after.kind, before.kind);
    cr_assert_float_eq(after.score, before.score, 1e-6);
    cr_assert_arr_eq(after.hops, before.hops, sizeof(before.hops));
}

/* Direct links, and a switch that not all GPUs hang on, or one alone. */
Test(topology, links_beside_a_switch) {
    static const char *const kinds[] = {"direct", "direct", "nvswitch-incomplete", "nvswitch"};
    for (int switched = 0; switched < 4; switched++) {
        char text[2048];
        int length = snprintf(text, sizeof(text), "<system version=\"1\"><cpu numaid=\"0\">");
        for (int i = 0; i < 3; i++) {
            length +=
                snprintf(text + length, sizeof(text) - (size_t)length,
                         "<pci busid=\"0000:0%d:00.0\" class=\"0x030200\"><gpu dev=\"%d\">", i, i);
            for (int j = 0; j < 3; j++)
                if (i != j)
                    length += snprintf(text + length, sizeof(text) - (size_t)length,
                                       "<nvlink target=\"0000:0%d:00.0\" count=\"1\"/>", j);
            length += snprintf(text + length, sizeof(text) - (size_t)length, "%s</gpu></pci>",
                               i < switched ? "<nvlink target=\"0000:ff:00.0\" count=\"4\" "
                                              "tclass=\"0x068000\"/>"
                                            : "");
        }
        snprintf(text + length, sizeof(text) - (size_t)length, "</cpu></system>");
        rota_topo *topo = read_topology(text);
        rota_topo_result result = ROTA_TOPO_RESULT_INIT;
        cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
        cr_assert_str_eq(result.kind, kinds[switched]);
        cr_assert_eq(result.hops[ROTA_PATH_LNK], 3);
        cr_assert_leq(result.score, result.bound, "%d: %g of %g", switched, result.score,
                      result.bound);
        cr_assert_eq(strcmp(result.bound_kind, "hops") == 0, switched == 2);
        rota_topo_free(topo);
    }
}

Test(topology, what_is_written_is_read_again) {
    static const char *const files[] = {"nccl/dgx1v-derived.xml", "nccl/rccl-8p1h_3.xml",
                                        "nccl/oci-h100.xml",      "nccl/rccl-4p2h.xml",
                                        "nccl/azure-ndv2.xml",    "hwloc/power8-p100-v2.xml"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        for (int format = ROTA_TOPO_NCCL_XML; format <= ROTA_TOPO_HWLOC_XML; format++) {
            char *text = machine_file(files[i]), *written = NULL;
            size_t length = 0;
            FILE *out = open_memstream(&written, &length);
            rota_topo *topo = read_topology(text);
            cr_assert_eq(rota_topo_write(topo, (rota_topo_format)format, out), ROTA_OK, "%s",
                         last_message());
            fclose(out);
            rota_topo *again = read_topology(written);
            same_graph(topo, again, files[i], format);
            rota_topo_free(topo);
            rota_topo_free(again);
            free(text);
            free(written);
        }
}

Test(topology, what_is_odd_is_named) {
    static const struct {
        const char *file, *words;
    } odd[] = {
        {"nccl/azure-ncv4.xml", "names itself as the target of 12 links"},
        {"nccl/aws-p4d.xml", "by their PCI class alone: 8, the first 0000:10:1c.0"},
        {"nccl/aws-p4d.xml", "direct links, but the source has none"},
        {"nccl/oci-a100-flattened-b4.xml", "CPUs may be missing"},
        {"nccl/oci-h100.xml",
         "0000:08:00.0 and 7 more are said to have 16 lanes of 5.0 GT/s above a device with 16 of "
         "32.0"},
        {"nccl/dgx-a100.xml", "stray text"},
        {"nccl/dgx-a100.xml", "2 NICs have several ports (up to 2), which share their PCI link"},
        {"matrix/8xb200-one-gpu-without-nvlink.txt", "GPU 2 (GPU2) has no NVLink while its 7"},
        {"matrix/dgx-a100.txt", "links per GPU to NVSwitches"},
    };
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        char *text = machine_file(odd[i].file);
        rota_topo *topo = read_topology(text);
        cr_assert(warned(topo, odd[i].words), "%s: no warning with \"%s\"", odd[i].file,
                  odd[i].words);
        rota_topo_free(topo);
        free(text);
    }
}

/* The job works, and stderr has the words, or nothing (NULL). */
static void expect_said(const char *setting, const char *path, int nranks, const char *words) {
    char said[8192];
    FILE *file = tmpfile();
    int before = dup(2);
    cr_assert(file != NULL && before >= 0 && dup2(fileno(file), 2) == 2);
    rota_status status = job_with(setting, path, nranks);
    cr_assert_eq(dup2(before, 2), 2);
    close(before);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = '\0';
    fclose(file);
    cr_assert_eq(status, ROTA_OK, "%s", last_message());
    cr_assert(words == NULL ? said[0] == '\0' : strstr(said, words) != NULL,
              "%s=%s, %d ranks: \"%s\"", setting, path, nranks, said);
}

Test(topology, C100_files_that_settings_name) {
    char path[512], words[700], conf[] = "/tmp/rota-conf-XXXXXX";
    snprintf(path, sizeof(path), "%s/nccl-graph/azure-ncv4-graph.xml", TOPOLOGY_DATA);
    /* Rings of another machine are left aside, with a warning that names setting and file. */
    snprintf(words, sizeof(words), "ROTA_GRAPH_FILE (environment): %.150s", path);
    expect_said("ROTA_GRAPH_FILE", path, 3, words);
    expect_said("ROTA_GRAPH_FILE", path, 4, NULL);
    expect_said("ROTA_GRAPH_FILE", path, 5, words);
    expect_said("ROTA_GRAPH_FILE", "/no/such/file", 2,
                "ROTA_GRAPH_FILE (environment): /no/such/file");
    int fd = mkstemp(conf);
    snprintf(words, sizeof(words), "ROTA_GRAPH_FILE = %s\n", path);
    cr_assert_eq(write(fd, words, strlen(words)), (ssize_t)strlen(words));
    close(fd);
    snprintf(words, sizeof(words), "ROTA_GRAPH_FILE (%s:1): ", conf);
    expect_said("ROTA_CONF", conf, 3, words);
    expect_said("ROTA_CONF", conf, 4, NULL);
    unlink(conf);
    /* A topology that cannot be read is an error that says which and why. */
    cr_assert_eq(job_with("ROTA_TOPO_FILE", "/no/such/file", 2), ROTA_ERR_SYSTEM);
    cr_assert(strstr(last_message(), "/no/such/file") != NULL &&
                  strstr(last_message(), "ROTA_TOPO_FILE (environment)") != NULL,
              "%s", last_message());
    cr_assert_eq(job_with("ROTA_TOPO_FILE", path, 2), ROTA_ERR_FORMAT);
    cr_assert_not_null(strstr(last_message(), "graph file"), "%s", last_message());
    snprintf(path, sizeof(path), "%s/nccl/dgx1v-derived.xml", TOPOLOGY_DATA);
    cr_assert_eq(job_with("ROTA_TOPO_FILE", path, 2), ROTA_OK, "%s", last_message());
}

Test(topology, what_a_file_lacks_comes_from_the_machine) {
    char path[] = "/tmp/rota-topo-XXXXXX", machine[512];
    static const char partial[] =
        "<system version=\"1\"><cpu numaid=\"0\"><pci busid=\"0002:01:00.0\" class=\"0x030200\"/>"
        "<pci busid=\"0003:01:00.0\" class=\"0x030200\"/></cpu></system>";
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, partial, strlen(partial)), (ssize_t)strlen(partial));
    close(fd);
    rota_topo *alone = NULL, *merged = NULL;
    snprintf(machine, sizeof(machine), "%s/hwloc/power8-p100-v2.xml", TOPOLOGY_DATA);
    setenv("HWLOC_XMLFILE", machine, 1);
    cr_assert_eq(rota_topo_load(path, &alone), ROTA_OK, "%s", last_message());
    cr_assert_eq(rota_topo_load_merged(path, &merged), ROTA_OK, "%s", last_message());
    unsetenv("HWLOC_XMLFILE");
    unlink(path);
    cr_assert_eq(rota_topo_links(alone, 0, 1), 0);
    cr_assert_eq(rota_topo_links(merged, 0, 1), 1);
    cr_assert_eq(gpu_count(merged), 2);
    cr_assert(warned(merged, "2 direct links were filled in"));
    cr_assert(warned(merged, "2 GPUs that the file lacks"));
    rota_topo_free(alone);
    rota_topo_free(merged);
}

static void *begin_job(void *argument) {
    return (void *)(intptr_t)job_with("ROTA_TOPO_FILE", argument, 8);
}

Test(topology, C85_init_on_a_small_stack) {
    char path[] = "/tmp/rota-topo-XXXXXX", *text = machine_large(128);
    pthread_attr_t attributes;
    pthread_t thread;
    void *status = NULL;
    int fd = mkstemp(path);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    pthread_attr_init(&attributes);
#if defined(__SANITIZE_ADDRESS__)
    pthread_attr_setstacksize(&attributes, 512 << 10);
#else
    pthread_attr_setstacksize(&attributes, 128 << 10);
#endif
    cr_assert_eq(pthread_create(&thread, &attributes, begin_job, path), 0);
    cr_assert_eq(pthread_join(thread, &status), 0);
    pthread_attr_destroy(&attributes);
    unlink(path);
    free(text);
    cr_assert_eq((intptr_t)status, ROTA_OK);
}
