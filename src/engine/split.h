/* Splitting communicators. */
#ifndef ENGINE_SPLIT_H
#define ENGINE_SPLIT_H

#include "engine/comm.h"

/* See rota_comm_split. Arguments are checked; outside the domain. */
rota_status split_run(rota_comm *parent, int color, int key, const char *name,
                      const rota_call *call, rota_comm **comm);
/* Bytes of memory that a communicator holds on this rank. */
size_t split_memory(rota_comm *comm);

#endif
