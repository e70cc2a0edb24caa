/* Public collectives: check, then hand over to the engine. */
#include "api/check.h"
#include "base/error.h"
#include "engine/collective.h"
#include "engine/repeat.h"
#include <rota/collectives.h>

static rota_status check_comm(const rota_comm *comm) {
    return comm != NULL ? ROTA_OK : error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
}

/* What every collective checks: communicator, options, type, operator, root, buffers. */
static rota_status check(rota_comm *comm, const struct call_args *args, size_t send_blocks,
                         size_t recv_blocks, const char *in_place, const rota_call *call) {
    rota_status status = check_call(call, true);
    if (status == ROTA_OK)
        status = check_dtype(args->dtype);
    if (status == ROTA_OK && sched_kind_reduces(args->kind))
        status = check_op(comm, args->op, args->dtype);
    if (status == ROTA_OK && sched_kind_scans(args->kind) && args->op == ROTA_AVG)
        status = error_raise(ROTA_ERR_ARGUMENT, "op is avg, which has no scan");
    if (status == ROTA_OK && sched_kind_rooted(args->kind))
        status = check_rank("root", args->root, comm->nranks);
    size_t send_bytes = 0, recv_bytes = 0;
    if (status == ROTA_OK)
        status =
            check_buffer("send", args->send, send_blocks, args->count, args->dtype, &send_bytes);
    if (status == ROTA_OK)
        status =
            check_buffer("recv", args->recv, recv_blocks, args->count, args->dtype, &recv_bytes);
    if (status == ROTA_OK)
        status = check_overlap(args->send, send_bytes, args->recv, recv_bytes, in_place,
                               call_in_place(comm, args, rota_dtype_size(args->dtype)));
    if (status == ROTA_OK)
        status = check_memory(comm, call, args->send, send_bytes, args->recv, recv_bytes);
    return status;
}

static rota_status run(rota_comm *comm, struct call_args *args, size_t send_blocks,
                       size_t recv_blocks, const char *in_place, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    rota_status status;
    if (call == NULL && repeat_run(comm, args, send_blocks, recv_blocks, &status))
        return status;
    comm_enter(comm);
    status = check(comm, args, send_blocks, recv_blocks, in_place, call);
    status = check_run(comm, args, call, status);
    comm_leave(comm);
    return status;
}

rota_status rota_all_reduce(const void *send, void *recv, size_t count, rota_dtype dtype,
                            rota_op op, rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    struct call_args args = {.kind = ROTA_KIND_ALL_REDUCE,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .op = op,
                             .root = -1};
    return run(comm, &args, 1, 1, "send == recv", call);
}

rota_status rota_reduce(const void *send, void *recv, size_t count, rota_dtype dtype, rota_op op,
                        int root, rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    bool receives = root == comm->rank;
    struct call_args args = {.kind = ROTA_KIND_REDUCE,
                             .send = send,
                             .recv = receives ? recv : NULL,
                             .count = count,
                             .dtype = dtype,
                             .op = op,
                             .root = root};
    return run(comm, &args, 1, receives ? 1 : 0, "send == recv on the root", call);
}

rota_status rota_broadcast(const void *send, void *recv, size_t count, rota_dtype dtype, int root,
                           rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    bool sends = root == comm->rank;
    struct call_args args = {.kind = ROTA_KIND_BROADCAST,
                             .send = sends ? send : NULL,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .root = root};
    return run(comm, &args, sends ? 1 : 0, 1, "send == recv on the root", call);
}

rota_status rota_all_gather(const void *send, void *recv, size_t count, rota_dtype dtype,
                            rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    struct call_args args = {.kind = ROTA_KIND_ALL_GATHER,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .root = -1};
    return run(comm, &args, 1, (size_t)comm->nranks, "send == recv + rank * count", call);
}

rota_status rota_reduce_scatter(const void *send, void *recv, size_t count, rota_dtype dtype,
                                rota_op op, rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    struct call_args args = {.kind = ROTA_KIND_REDUCE_SCATTER,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .op = op,
                             .root = -1};
    return run(comm, &args, (size_t)comm->nranks, 1, "recv == send + rank * count", call);
}

rota_status rota_all_to_all(const void *send, void *recv, size_t count, rota_dtype dtype,
                            rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    struct call_args args = {.kind = ROTA_KIND_ALL_TO_ALL,
                             .send = send,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .root = -1};
    return run(comm, &args, (size_t)comm->nranks, (size_t)comm->nranks, "send == recv", call);
}

rota_status rota_gather(const void *send, void *recv, size_t count, rota_dtype dtype, int root,
                        rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    bool receives = root == comm->rank;
    struct call_args args = {.kind = ROTA_KIND_GATHER,
                             .send = send,
                             .recv = receives ? recv : NULL,
                             .count = count,
                             .dtype = dtype,
                             .root = root};
    return run(comm, &args, 1, receives ? (size_t)comm->nranks : 0,
               "send == recv + root * count on the root", call);
}

rota_status rota_scatter(const void *send, void *recv, size_t count, rota_dtype dtype, int root,
                         rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    bool sends = root == comm->rank;
    struct call_args args = {.kind = ROTA_KIND_SCATTER,
                             .send = sends ? send : NULL,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .root = root};
    return run(comm, &args, sends ? (size_t)comm->nranks : 0, 1,
               "recv == send + root * count on the root", call);
}

static rota_status scan(rota_kind kind, const void *send, void *recv, size_t count,
                        rota_dtype dtype, rota_op op, rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    bool receives = kind == ROTA_KIND_SCAN || comm->rank > 0;
    struct call_args args = {.kind = kind,
                             .send = send,
                             .recv = receives ? recv : NULL,
                             .count = count,
                             .dtype = dtype,
                             .op = op,
                             .root = -1};
    return run(comm, &args, 1, receives ? 1 : 0, "send == recv", call);
}

rota_status rota_scan(const void *send, void *recv, size_t count, rota_dtype dtype, rota_op op,
                      rota_comm *comm, const rota_call *call) {
    return scan(ROTA_KIND_SCAN, send, recv, count, dtype, op, comm, call);
}

rota_status rota_exclusive_scan(const void *send, void *recv, size_t count, rota_dtype dtype,
                                rota_op op, rota_comm *comm, const rota_call *call) {
    return scan(ROTA_KIND_EXCLUSIVE_SCAN, send, recv, count, dtype, op, comm, call);
}

rota_status rota_barrier(rota_comm *comm, const rota_call *call) {
    if (check_comm(comm) != ROTA_OK)
        return ROTA_ERR_ARGUMENT;
    struct call_args args = {.kind = ROTA_KIND_BARRIER, .dtype = ROTA_UINT8, .root = -1};
    return run(comm, &args, 0, 0, "", call);
}
