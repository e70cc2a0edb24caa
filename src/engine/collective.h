/* Collectives: from checked arguments to a native form or the executor. */
#ifndef ENGINE_COLLECTIVE_H
#define ENGINE_COLLECTIVE_H

#include "engine/comm.h"

/* Runs or starts a collective; sets args->numerics. Outside the domain; arguments are checked
 * already (pointers, counts, types, root); the communicator's state is checked here. */
rota_status collective_run(rota_comm *comm, struct call_args *args, const rota_call *call);
/* Runs a blocking collective without options as one like it was run before, by an algorithm.
 * Holding `busy`, which it releases. */
rota_status collective_again(rota_comm *comm, const struct call_args *args,
                             const struct comm_repeat *like);
/* Sends and receives likewise. */
rota_status collective_p2p(rota_comm *comm, const struct call_args *args, const rota_call *call);
/* Inside the domain: begins a send or receive that has been made. */
void collective_begin_p2p(rota_request *request);
/* Whether a native form may run the call, as far as its caller's options decide. */
bool collective_may_be_native(const rota_comm *comm, const rota_call *call);
/* Inside the domain: begins the first of the queue unless it runs. */
void collective_next(rota_comm *comm);
/* Inside the domain: goes on with a request in job->polled. Returns whether anything happened. */
bool collective_poll(rota_request *request);

#endif
