/* Checking what callers pass, and the other habits that public functions share. */
#ifndef API_CHECK_H
#define API_CHECK_H

#include "engine/comm.h"
#include <errno.h>

/* Whether the options are ones that this version knows: ROTA_OK, or an error raised. `requests`
 * says whether the call may be made with a request. */
rota_status check_call(const rota_call *call, bool requests);
/* The group that the call is to be recorded in, NULL when there is none. */
rota_group *check_group(const rota_call *call);
/* Hands a call on that was checked with `status`: to its group, or to the engine. */
rota_status check_run(rota_comm *comm, struct call_args *args, const rota_call *call,
                      rota_status status);
/* The registrations that the options name belong to the communicator's job and hold the buffers. */
rota_status check_memory(const rota_comm *comm, const rota_call *call, const void *send,
                         size_t send_bytes, const void *recv, size_t recv_bytes);
rota_status check_dtype(rota_dtype dtype);
/* The operator is known, to this communicator where it was created, and takes the type. */
rota_status check_op(rota_comm *comm, rota_op op, rota_dtype dtype);
rota_status check_rank(const char *what, int rank, int nranks);
/* A buffer of blocks * count elements: not NULL unless empty, aligned, no overflow; *bytes its
 * size. */
rota_status check_buffer(const char *what, const void *buffer, size_t blocks, size_t count,
                         rota_dtype dtype, size_t *bytes);
/* Send and receive buffer are disjoint, or recv == send + offset (the in-place form). */
rota_status check_overlap(const void *send, size_t send_bytes, const void *recv, size_t recv_bytes,
                          const char *in_place, bool is_in_place);

/* First in a public function that makes system calls: errno is the user's. */
static inline void check_errno_restore(const int *saved) {
    errno = *saved;
}
#define CHECK_KEEP_ERRNO                                                                           \
    const int saved_errno __attribute__((cleanup(check_errno_restore), unused)) = errno

#endif
