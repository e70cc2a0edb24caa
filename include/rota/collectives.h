/* Collective operations.
 *
 * Common rules. Counts are in elements of `dtype`. All ranks of the communicator call the same
 * operations in the same order with the same count, dtype, op and root; a difference is found and
 * reported as ROTA_ERR_MISMATCH. Exactly count * size bytes of each buffer are touched and send
 * buffers are never written. Buffers may be NULL where their count is 0. Send and receive buffer
 * must be disjoint or the in-place form named at each operation; anything else that overlaps is
 * ROTA_ERR_ARGUMENT. A pointer must be aligned as its elements are in C
 * (rota_dtype_alignment).
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

/* recv[r * count + i] on `root` = send[i] of rank r. count elements in; nranks * count out on the
 * root, recv is ignored elsewhere and may be NULL. In place on the root: send == recv + root *
 * count.
 */
ROTA_API rota_status rota_gather(const void *send, void *recv, size_t count, rota_dtype dtype,
                                 int root, rota_comm *comm, const rota_call *call);

/* recv[i] = send[rank * count + i] of `root`. nranks * count elements in on the root, send is
 * ignored elsewhere and may be NULL; count out. In place on the root: recv == send + root * count.
 */
ROTA_API rota_status rota_scatter(const void *send, void *recv, size_t count, rota_dtype dtype,
                                  int root, rota_comm *comm, const rota_call *call);

/* recv[i] = op over ranks 0 ... rank of send[i]. count elements in and out. In place: send == recv.
 * op is not ROTA_AVG. */
ROTA_API rota_status rota_scan(const void *send, void *recv, size_t count, rota_dtype dtype,
                               rota_op op, rota_comm *comm, const rota_call *call);

/* As scan, over ranks 0 ... rank - 1; on rank 0 recv is left as it is and may be NULL. */
ROTA_API rota_status rota_exclusive_scan(const void *send, void *recv, size_t count,
                                         rota_dtype dtype, rota_op op, rota_comm *comm,
                                         const rota_call *call);

/* -- v-forms: blocks of different lengths --------------------------------------------------------
 * Counts and displacements are in elements, one entry per rank; displacements NULL means packed,
 * one block after the other. The arrays may be freed when the call returns, also with a request.
 * Blocks that are received must not overlap each other. A length that differs between sender and
 * receiver is ROTA_ERR_MISMATCH and names both. */

/* As all_gather, with recv_counts[r] elements from rank r at recv + recv_displs[r]; send_count must
 * be recv_counts[rank], and all ranks pass the same recv_counts.
 * In place: send == recv + recv_displs[rank]. */
ROTA_API rota_status rota_all_gatherv(const void *send, size_t send_count, void *recv,
                                      const size_t *recv_counts, const size_t *recv_displs,
                                      rota_dtype dtype, rota_comm *comm, const rota_call *call);

/* As reduce_scatter, with send_counts[r] elements at send + send_displs[r] for rank r; recv_count
 * must be send_counts[rank], and all ranks pass the same send_counts. In place: recv == send +
 * send_displs[rank]. */
ROTA_API rota_status rota_reduce_scatterv(const void *send, const size_t *send_counts,
                                          const size_t *send_displs, void *recv, size_t recv_count,
                                          rota_dtype dtype, rota_op op, rota_comm *comm,
                                          const rota_call *call);

/* As all_to_all: send_counts[r] elements go to rank r, recv_counts[r] come from it. Each rank knows
 * its own counts only. No in-place form. */
ROTA_API rota_status rota_all_to_allv(const void *send, const size_t *send_counts,
                                      const size_t *send_displs, void *recv,
                                      const size_t *recv_counts, const size_t *recv_displs,
                                      rota_dtype dtype, rota_comm *comm, const rota_call *call);

/* As gather: the root receives recv_counts[r] elements from rank r at recv + recv_displs[r]; the
 * tables and recv are read on the root only. In place on the root: send == recv +
 * recv_displs[root]. */
ROTA_API rota_status rota_gatherv(const void *send, size_t send_count, void *recv,
                                  const size_t *recv_counts, const size_t *recv_displs,
                                  rota_dtype dtype, int root, rota_comm *comm,
                                  const rota_call *call);

/* As scatter: the root sends send_counts[r] elements at send + send_displs[r] to rank r; the tables
 * and send are read on the root only. In place on the root: recv == send + send_displs[root]. */
ROTA_API rota_status rota_scatterv(const void *send, const size_t *send_counts,
                                   const size_t *send_displs, void *recv, size_t recv_count,
                                   rota_dtype dtype, int root, rota_comm *comm,
                                   const rota_call *call);

/* Returns on no rank before every rank has called it. */
ROTA_API rota_status rota_barrier(rota_comm *comm, const rota_call *call);

#ifdef __cplusplus
}
#endif
#endif
