/* Plans: operations that are prepared once and started many times (persistent collectives).
 * Starting one never blocks, allocates, takes a lock or calls back; the operation runs on the
 * progress thread, or in a thread that waits for it. */
#ifndef ROTA_PLAN_H
#define ROTA_PLAN_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Prepare an operation; arguments as in the plain function, buffers come with each start. Local.
 * call may carry timeout_ms (of each run), numerics, algorithm, label, done and done_arg; no
 * request and no group. The plan must be freed before its communicator is destroyed; a plan whose
 * communicator is gone can only be freed.
 * Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_UNSUPPORTED, ROTA_ERR_MEMORY, ROTA_ERR_STATE. */
ROTA_API rota_status rota_plan_create_all_reduce(size_t count, rota_dtype dtype, rota_op op,
                                                 rota_comm *comm, const rota_call *call,
                                                 rota_plan **plan);
ROTA_API rota_status rota_plan_create_reduce(size_t count, rota_dtype dtype, rota_op op, int root,
                                             rota_comm *comm, const rota_call *call,
                                             rota_plan **plan);
ROTA_API rota_status rota_plan_create_broadcast(size_t count, rota_dtype dtype, int root,
                                                rota_comm *comm, const rota_call *call,
                                                rota_plan **plan);
ROTA_API rota_status rota_plan_create_all_gather(size_t count, rota_dtype dtype, rota_comm *comm,
                                                 const rota_call *call, rota_plan **plan);
ROTA_API rota_status rota_plan_create_reduce_scatter(size_t count, rota_dtype dtype, rota_op op,
                                                     rota_comm *comm, const rota_call *call,
                                                     rota_plan **plan);
ROTA_API rota_status rota_plan_create_all_to_all(size_t count, rota_dtype dtype, rota_comm *comm,
                                                 const rota_call *call, rota_plan **plan);
ROTA_API rota_status rota_plan_create_barrier(rota_comm *comm, const rota_call *call,
                                              rota_plan **plan);
ROTA_API rota_status rota_plan_create_send(size_t count, rota_dtype dtype, int dest, int tag,
                                           rota_comm *comm, const rota_call *call,
                                           rota_plan **plan);
ROTA_API rota_status rota_plan_create_recv(size_t count, rota_dtype dtype, int source, int tag,
                                           rota_comm *comm, const rota_call *call,
                                           rota_plan **plan);

/* Starts a run on these buffers (ignored where the operation has none). Collectives of one
 * communicator, by plan or not, run in the order in which they were started, by one thread at a
 * time. Errors: ROTA_ERR_BUSY (the last run has not ended), ROTA_ERR_ARGUMENT (buffers),
 * ROTA_ERR_STATE (the communicator is gone). What goes wrong later is the run's status. */
ROTA_API rota_status rota_plan_start(rota_plan *plan, const void *send, void *recv);

/* Like rota_request_test and rota_request_wait, for the last run; ROTA_OK before the first. */
ROTA_API rota_status rota_plan_test(rota_plan *plan, bool *done);
ROTA_API rota_status rota_plan_wait(rota_plan *plan, int64_t timeout_ms);

/* Frees a plan. Errors: ROTA_ERR_BUSY while a run has not ended. NULL is harmless. */
ROTA_API rota_status rota_plan_free(rota_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
