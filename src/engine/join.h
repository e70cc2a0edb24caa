/* rota_init: in the caller's thread, or, with a request, in one of its own that ends with it. */
#ifndef ENGINE_JOIN_H
#define ENGINE_JOIN_H

#include "engine/comm.h"

/* See rota_init. Arguments are checked. */
rota_status join_start(const rota_config *config, const rota_call *call, rota_comm **comm);
/* The communicator of all ranks of a job; the caller's reference on the job passes to it, also on
 * failure. */
rota_status join_world(struct job *job, const char *name, rota_numerics numerics, rota_comm **comm);

/* -- of a request with request->join: any thread, no domain -------------------------------------
 */
/* False: not ended at the deadline, or the request is that of a process which forked this one. */
bool join_wait(const rota_request *request, int64_t deadline_ns);
bool join_forked(const rota_request *request);
void join_cancel(const rota_request *request);
void join_release(rota_request *request);

#endif
