/* Argument checks: nothing is communicated before they pass. */
#include "api/check.h"

#include "base/error.h"
#include "engine/buffers.h"
#include "engine/collective.h"
#include "engine/group.h"
#include <stddef.h>

rota_group *check_group(const rota_call *call) {
    return call != NULL && call->size >= sizeof(*call) ? call->group : NULL;
}

rota_status check_call(const rota_call *call, bool requests) {
    if (call == NULL)
        return ROTA_OK;
    if (call->size < offsetof(rota_call, group)) /* what it had at first */
        return error_raise(ROTA_ERR_ARGUMENT,
                           "call->size is %zu, expected %zu: initialise with ROTA_CALL_INIT",
                           call->size, sizeof(*call));
    if (call->stream != NULL || call->priority != 0 || call->flags != 0)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "call: stream, priority and flags are reserved and must be zero");
    if (!requests && (call->send_mem != NULL || call->recv_mem != NULL))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "call: send_mem and recv_mem are not for a function without buffers");
    if (call->timeout_ms < 0)
        return error_raise(ROTA_ERR_ARGUMENT, "call->timeout_ms is %lld, expected 0 or more",
                           (long long)call->timeout_ms);
    if (rota_numerics_name(call->numerics) == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "call->numerics is %d, expected a rota_numerics",
                           (int)call->numerics);
    if (call->request == NULL && (call->done != NULL || call->done_arg != NULL))
        return error_raise(ROTA_ERR_ARGUMENT, "call->done needs call->request");
    if (!requests && (call->request != NULL || check_group(call) != NULL))
        return error_raise(ROTA_ERR_ARGUMENT, "this function takes no %s",
                           call->request != NULL ? "request" : "group");
    return ROTA_OK;
}

rota_status check_run(rota_comm *comm, struct call_args *args, const rota_call *call,
                      rota_status status) {
    CHECK_KEEP_ERRNO;
    /* Options that were refused may be no options at all. */
    rota_group *group =
        status == ROTA_OK || check_call(call, true) == ROTA_OK ? check_group(call) : NULL;
    if (status == ROTA_OK && group == NULL)
        return sched_kind_collective(args->kind) ? collective_run(comm, args, call)
                                                 : collective_p2p(comm, args, call);
    if (status == ROTA_OK && call->request != NULL)
        status = error_raise(ROTA_ERR_ARGUMENT, "call->request: a call of a group has none");
    if (status == ROTA_OK)
        status = group_record(comm, args, call);
    if (status != ROTA_OK && group != NULL)
        group_refuse(group);
    return status == ROTA_OK ? ROTA_OK : comm_keep_error(comm, status);
}

rota_status check_memory(const rota_comm *comm, const rota_call *call, const void *send,
                         size_t send_bytes, const void *recv, size_t recv_bytes) {
    if (call == NULL || (call->send_mem == NULL && call->recv_mem == NULL))
        return ROTA_OK;
    if (call->send_mem != NULL && !buffers_covered(comm->job, call->send_mem, send, send_bytes))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "call->send_mem is no registration that holds all of send");
    if (call->recv_mem != NULL && !buffers_covered(comm->job, call->recv_mem, recv, recv_bytes))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "call->recv_mem is no registration that holds all of recv");
    return ROTA_OK;
}

rota_status check_dtype(rota_dtype dtype) {
    if (rota_dtype_size(dtype) == 0)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "dtype is %u, expected one below %d or from rota_dtype_bytes", dtype,
                           ROTA_DTYPE_COUNT);
    return ROTA_OK;
}

rota_status check_op(rota_comm *comm, rota_op op, rota_dtype dtype) {
    if (rota_op_accepts(op, dtype))
        return ROTA_OK;
    if (operator_is_created(op)) {
        struct reduce_spec spec;
        uint64_t identity;
        return operators_spec(&comm->operators, dtype, op, comm->nranks, comm->isa, &spec,
                              &identity);
    }
    if (op >= ROTA_OP_COUNT)
        return error_raise(ROTA_ERR_ARGUMENT, "op is %u, expected one below %d", op, ROTA_OP_COUNT);
    return error_raise(ROTA_ERR_ARGUMENT, "op %s is not defined for elements of %s",
                       rota_op_name(op), rota_dtype_name(dtype));
}

rota_status check_rank(const char *what, int rank, int nranks) {
    if (rank < 0 || rank >= nranks)
        return error_raise(ROTA_ERR_ARGUMENT, "%s is %d, expected 0 ... %d", what, rank,
                           nranks - 1);
    return ROTA_OK;
}

rota_status check_buffer(const char *what, const void *buffer, size_t blocks, size_t count,
                         rota_dtype dtype, size_t *bytes) {
    size_t size = rota_dtype_size(dtype), elements = 0;
    if (__builtin_mul_overflow(blocks, count, &elements) ||
        __builtin_mul_overflow(elements, size, bytes) || *bytes > SIZE_MAX / 2)
        return error_raise(ROTA_ERR_ARGUMENT, "%s: %zu x %zu elements of %s overflow", what, blocks,
                           count, rota_dtype_name(dtype));
    if (*bytes == 0)
        return ROTA_OK;
    if (buffer == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "%s is NULL, expected %zu bytes", what, *bytes);
    size_t alignment = rota_dtype_alignment(dtype); /* a power of two */
    if (((uintptr_t)buffer & (alignment - 1)) != 0)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "%s %p is not aligned to its elements (%s, %zu bytes)", what, buffer,
                           rota_dtype_name(dtype), alignment);
    return ROTA_OK;
}

rota_status check_overlap(const void *send, size_t send_bytes, const void *recv, size_t recv_bytes,
                          const char *in_place, bool is_in_place) {
    uintptr_t a = (uintptr_t)send, b = (uintptr_t)recv;
    if (send_bytes == 0 || recv_bytes == 0 || is_in_place || a + send_bytes <= b ||
        b + recv_bytes <= a)
        return ROTA_OK;
    return error_raise(ROTA_ERR_ARGUMENT,
                       "send and recv overlap: they must be disjoint, or in place: %s", in_place);
}
