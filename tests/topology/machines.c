/* Topology files made up by the tests, as text. */
#include "machines.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

static int number; /* of objects within a file */

static void sets(FILE *out, unsigned cpus, unsigned nodes) {
    fprintf(out,
            " cpuset=\"0x%08x\" complete_cpuset=\"0x%08x\" nodeset=\"0x%08x\" "
            "complete_nodeset=\"0x%08x\" gp_index=\"%d\"",
            cpus, cpus, nodes, nodes, ++number);
}

static void open_machine(FILE *out, unsigned cpus, unsigned nodes) {
    number = 0;
    fputs("<?xml version=\"1.0\"?>\n<topology version=\"2.0\">\n<object type=\"Machine\" "
          "os_index=\"0\"",
          out);
    sets(out, cpus, nodes);
    fprintf(out, " allowed_cpuset=\"0x%08x\" allowed_nodeset=\"0x%08x\">\n", cpus, nodes);
}

static void bridge(FILE *out, int domain, int bus, int device, int depth) {
    fprintf(
        out,
        "<object type=\"Bridge\" bridge_type=\"1-1\" depth=\"%d\" bridge_pci=\"%04x:[%02x-ff]\" "
        "pci_busid=\"%04x:%02x:%02x.%x\" pci_type=\"0604 [1000:c010] [0000:0000] 00\" "
        "pci_link_speed=\"15.75\" gp_index=\"%d\">\n",
        depth, domain, bus + 1, domain, bus, device / 8, device % 8, ++number);
}

static void device(FILE *out, int domain, int bus, const char *class, const char *name, int id,
                   int type) {
    number += 2;
    fprintf(out,
            "<object type=\"PCIDev\" pci_busid=\"%04x:%02x:00.0\" pci_type=\"%s [10de:20b0] "
            "[0000:0000] 00\" pci_link_speed=\"15.75\" gp_index=\"%d\">\n<object type=\"OSDev\" "
            "name=\"%s%d\" osdev_type=\"%d\" gp_index=\"%d\"/></object>\n",
            domain, bus, class, number - 1, name, id, type, number);
}

/* A root port, a switch below it, and below that two GPUs and a NIC, each on a port. */
static void pci_switch(FILE *out, int package, int place, int gpu, int nic) {
    int bus = 1 + place * 5;
    bridge(out, package, 0, place, 1);
    bridge(out, package, bus, 0, 2);
    for (int port = 0; port < 3; port++) {
        bridge(out, package, bus + 1, port, 3);
        if (port < 2)
            device(out, package, bus + 2 + port, "0302", "nvml", gpu + port, 1);
        else
            device(out, package, bus + 2 + port, "0207", "mlx5_", nic, 3);
        fputs("</object>\n", out);
    }
    fputs("</object></object>\n", out);
}

char *machine_large(int gpus) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    cr_assert_not_null(out);
    open_machine(out, 0xf, 0xf);
    for (int package = 0; package < 4; package++) {
        unsigned set = 1u << package;
        fprintf(out, "<object type=\"Package\" os_index=\"%d\"", 3 - package);
        sets(out, set, set);
        fprintf(out, ">\n<object type=\"NUMANode\" os_index=\"%d\"", package);
        sets(out, set, set);
        fprintf(out, " local_memory=\"1073741824\"/>\n<object type=\"PU\" os_index=\"%d\"",
                package);
        sets(out, set, set);
        fprintf(out,
                "/>\n<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "
                "bridge_pci=\"%04x:[00-ff]\" gp_index=\"%d\">\n",
                package, ++number);
        for (int place = 0; place < gpus / 8; place++)
            pci_switch(out, package, place, package * gpus / 4 + place * 2,
                       package * gpus / 8 + place);
        fputs("</object></object>\n", out);
    }
    fputs("</object></topology>\n", out);
    cr_assert_eq(fclose(out), 0);
    return text;
}

char *machine_poor(void) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    cr_assert_not_null(out);
    open_machine(out, 0xb, 0xf);
    for (int node = 0; node < 4; node++) {
        unsigned set = 1u << node;
        if (node == 2) { /* no CPUs: it hangs on the whole machine */
            fprintf(out, "<object type=\"NUMANode\" os_index=\"2\"");
            sets(out, 0, set);
            fputs(" local_memory=\"1073741824\"/>\n", out);
            continue;
        }
        fprintf(out, "<object type=\"Package\" os_index=\"%d\"", node);
        sets(out, set, set);
        fprintf(out, ">\n<object type=\"NUMANode\" os_index=\"%d\"", node);
        sets(out, set, set);
        fprintf(out, " local_memory=\"%d\"/>\n<object type=\"PU\" os_index=\"%d\"",
                node == 1 ? 0 : 1073741824, node);
        sets(out, set, set);
        fprintf(out,
                "/>\n<object type=\"Bridge\" bridge_type=\"0-1\" depth=\"0\" "
                "bridge_pci=\"%04x:[00-ff]\" gp_index=\"%d\">\n",
                node, ++number);
        pci_switch(out, node, 0, node * 2, node);
        fputs("</object></object>\n", out);
    }
    fputs("</object></topology>\n", out);
    cr_assert_eq(fclose(out), 0);
    return text;
}

char *machine_file(const char *name) {
    char path[512], *text = NULL;
    size_t length = 0, got;
    snprintf(path, sizeof(path), "%s/%s", TOPOLOGY_DATA, name);
    FILE *in = fopen(path, "r"), *out = open_memstream(&text, &length);
    cr_assert(in != NULL && out != NULL, "%s", path);
    char part[4096];
    while ((got = fread(part, 1, sizeof(part), in)) > 0)
        cr_assert_eq(fwrite(part, 1, got, out), got);
    cr_assert_eq(fclose(in), 0);
    cr_assert_eq(fclose(out), 0);
    return text;
}
