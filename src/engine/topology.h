/* The files that ROTA_TOPO_FILE and ROTA_GRAPH_FILE name. */
#ifndef ENGINE_TOPOLOGY_H
#define ENGINE_TOPOLOGY_H

#include "base/settings.h"

/* Looks at them when a job of nranks ranks begins. A topology that cannot be read is an error that
 * names file and setting; rings that do not fit the job are a warning that does, and left aside.
 * `ring` gets the first of them, else the first that is found in a topology of nranks GPUs: nranks
 * ranks in its order, to be freed; NULL where there is none.
 */
rota_status topology_check_settings(const struct settings *settings, int nranks, int **ring);

#endif
