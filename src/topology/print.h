/* Showing a topology and what was found in it. */
#ifndef TOPOLOGY_PRINT_H
#define TOPOLOGY_PRINT_H

#include "topology/rings.h"
#include "topology/trees.h"

/* What to show: rings and trees NULL when not searched or not asked for. */
struct topo_view {
    const struct topo *topo;
    const struct topo_rings *rings;
    const struct topo_trees *trees;
    unsigned parts; /* ROTA_TOPO_WITH_... */
};

struct topo_counts {
    int hosts, cpus, pci_switches, gpus, nics, ports, nvswitches, switches;
};
struct topo_counts topo_count(const struct topo *topo);

/* Errors: ROTA_ERR_SYSTEM, ROTA_ERR_MEMORY. */
rota_status topo_print_text(const struct topo_view *view, FILE *out);
rota_status topo_print_json(const struct topo_view *view, FILE *out);
rota_status topo_draw_svg(const struct topo_view *view, FILE *out);

/* Text with ", \ and control bytes escaped, in quotes. */
void topo_print_quoted(const char *text, FILE *out);
/* Text with &, <, > and " replaced. */
void topo_print_xml(const char *text, FILE *out);
rota_status topo_printed(FILE *out);

#endif
