/* Plans of the public API: requests that are started again and again. */
#ifndef ENGINE_PERSISTENT_H
#define ENGINE_PERSISTENT_H

#include "engine/comm.h"

/* Prepares a checked operation. Outside the domain. */
rota_status persistent_create(rota_comm *comm, const struct call_args *args, const rota_call *call,
                              rota_plan **plan);
/* The request of the last run, and what it was made for; NULL communicator: destroyed. */
rota_request *persistent_request(rota_plan *plan);
rota_comm *persistent_comm(const rota_plan *plan);
/* Takes the plan for a run: false when the last one has not ended. */
bool persistent_take(rota_plan *plan);
void persistent_put_back(rota_plan *plan);
/* Starts a taken plan on checked buffers. Lock-free. */
void persistent_start(rota_plan *plan, const void *send, void *recv);
rota_status persistent_free(rota_plan *plan);

/* Inside the domain: begins the runs that were started, in their order. Returns their number. */
int persistent_begin_all(struct job *job);
/* Inside the domain: the communicator is going away. */
void persistent_orphan(rota_comm *comm);

#endif
