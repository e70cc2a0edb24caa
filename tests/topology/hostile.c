/* Files that crashed a reader, or kept one busy for minutes. */
#include "machines.h"

#include <criterion/criterion.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
