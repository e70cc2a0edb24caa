/* Going through the tree of devices without recursion. */
#ifndef TOPOLOGY_WALK_H
#define TOPOLOGY_WALK_H

#include "topology/graph.h"

typedef void topo_visit(const struct topo *topo, int node, void *context);

/* Calls `open` on the way down and `close` on the way up, for every node that is there. `parent`
 * says where a node hangs. Errors: ROTA_ERR_MEMORY. */
rota_status topo_walk(const struct topo *topo, void *context,
                      int (*parent)(const struct topo *topo, int node), topo_visit *open,
                      topo_visit *close);
/* Text with &, <, > and " replaced. */
void topo_print_xml(const char *text, FILE *out);
/* Whether all was written. Errors: ROTA_ERR_SYSTEM. */
rota_status topo_printed(FILE *out);

#endif
