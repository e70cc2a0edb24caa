/* Splitting communicators. */
#ifndef ENGINE_SPLIT_H
#define ENGINE_SPLIT_H

#include "engine/comm.h"

/* See rota_comm_split. Arguments are checked; outside the domain. */
rota_status split_run(rota_comm *parent, int color, int key, const char *name,
                      const rota_call *call, rota_comm **comm);
/* The name of a child: `id` is above those that its members have used so far. Children of two
 * parents in two threads may still come to the same one; the generation, a hash of the parent's
 * name and the child's number there, tells them apart. Outside the domain. */
struct comm_name split_name(const rota_comm *parent, uint32_t id, uint32_t number);
/* See rota_comm_create_group. Arguments are checked; outside the domain. */
rota_status split_group(rota_comm *parent, const int *ranks, int nranks, int tag, const char *name,
                        const rota_call *call, rota_comm **comm);
/* Bytes of memory that a communicator holds on this rank. */
size_t split_memory(rota_comm *comm);

#endif
