/* All communicators of the process: so that destroying one twice is an error and not a crash, and
 * that those which the child of a fork inherits do nothing there. */
#ifndef ENGINE_REGISTRY_H
#define ENGINE_REGISTRY_H

#include "engine/comm.h"

rota_status registry_add(rota_comm *comm);
/* False: there is no such communicator. */
bool registry_remove(const rota_comm *comm);

#endif
