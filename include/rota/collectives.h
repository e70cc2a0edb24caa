/* Collective operations.
 *
 * Common rules. Counts are in elements of `dtype`. All ranks of the communicator call the same
 * operations in the same order with the same count, dtype, op and root; a difference is found and
 * reported as ROTA_ERR_MISMATCH. Exactly count * size bytes of each buffer are touched and send
 * buffers are never written. Buffers may be NULL where their count is 0. Send and receive buffer
 * must be disjoint or the in-place form named at each operation; anything else that overlaps is
 * ROTA_ERR_ARGUMENT. A pointer must be aligned to its element's size.
 * Threads: collectives of one communicator are started by one thread at a time (else
 * ROTA_ERR_BUSY); those of different communicators by any number of threads.
 * Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_BUSY, ROTA_ERR_STATE, ROTA_ERR_TIMEOUT, ROTA_ERR_MISMATCH,
 * ROTA_ERR_PEER, ROTA_ERR_ABORTED, ROTA_ERR_UNSUPPORTED (a forced algorithm that does not exist
 * for this operation), ROTA_ERR_MEMORY. After an error the contents of receive buffers are
 * undefined. With call->request the buffers belong to the operation until it has ended. */
#ifndef ROTA_COLLECTIVES_H
#define ROTA_COLLECTIVES_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* recv[i] = op over ranks of send[i], on every rank. count elements in and out.
 * In place: send == recv. */
ROTA_API rota_status rota_all_reduce(const void *send, void *recv, size_t count, rota_dtype dtype,
                                     rota_op op, rota_comm *comm, const rota_call *call);

/* As all_reduce, with the result on `root` only; recv is ignored elsewhere and may be NULL.
 * In place on the root: send == recv. */
ROTA_API rota_status rota_reduce(const void *send, void *recv, size_t count, rota_dtype dtype,
                                 rota_op op, int root, rota_comm *comm, const rota_call *call);

/* recv of every rank = send of `root`; send is ignored elsewhere and may be NULL.
 * In place on the root: send == recv. */
ROTA_API rota_status rota_broadcast(const void *send, void *recv, size_t count, rota_dtype dtype,
                                    int root, rota_comm *comm, const rota_call *call);

/* recv[r * count + i] = send[i] of rank r. count elements in, nranks * count out.
 * In place: send == recv + rank * count. */
ROTA_API rota_status rota_all_gather(const void *send, void *recv, size_t count, rota_dtype dtype,
                                     rota_comm *comm, const rota_call *call);

/* recv[i] = op over ranks of send[rank * count + i]. nranks * count elements in, count out.
 * In place: recv == send + rank * count. */
ROTA_API rota_status rota_reduce_scatter(const void *send, void *recv, size_t count,
                                         rota_dtype dtype, rota_op op, rota_comm *comm,
                                         const rota_call *call);

/* recv[r * count + i] on rank q = send[q * count + i] of rank r. nranks * count in and out.
 * In place: send == recv. */
ROTA_API rota_status rota_all_to_all(const void *send, void *recv, size_t count, rota_dtype dtype,
                                     rota_comm *comm, const rota_call *call);

/* Returns on no rank before every rank has called it. */
ROTA_API rota_status rota_barrier(rota_comm *comm, const rota_call *call);

#ifdef __cplusplus
}
#endif
#endif
