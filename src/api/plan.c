/* Public plans: what does not depend on buffers is checked when they are made, buffers at each
 * start. */
#include <rota/plan.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/collective.h"
#include "engine/persistent.h"
#include "engine/staging.h"
#include <rota/p2p.h>

static rota_status check_prepared(rota_comm *comm, const struct call_args *args,
                                  const rota_call *call) {
    rota_status status = check_call(call, false);
    if (status == ROTA_OK && check_group(call) != NULL)
        status = error_raise(ROTA_ERR_ARGUMENT, "call->group: plans are in no group");
    if (status == ROTA_OK)
        status = check_dtype(args->dtype);
    if (status == ROTA_OK && sched_kind_reduces(args->kind))
        status = check_op(comm, args->op, args->dtype);
    if (status == ROTA_OK && sched_kind_rooted(args->kind))
        status = check_rank("root", args->root, comm->nranks);
    bool any = args->kind == ROTA_KIND_RECV && args->root == ROTA_ANY_SOURCE;
    if (status == ROTA_OK && !sched_kind_collective(args->kind) && !any)
        status =
            check_rank(args->kind == ROTA_KIND_SEND ? "dest" : "source", args->root, comm->nranks);
    if (status == ROTA_OK && args->tag < 0)
        status = error_raise(ROTA_ERR_ARGUMENT, "tag is %d, expected 0 or more", args->tag);
    return status;
}

static rota_status create(rota_comm *comm, const struct call_args *args, const rota_call *call,
                          rota_plan **plan) {
    if (comm == NULL || plan == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and plan must not be NULL");
    comm_enter(comm);
    rota_status status = check_prepared(comm, args, call);
    if (status == ROTA_OK)
        status = persistent_create(comm, args, call, plan);
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

rota_status rota_plan_create_all_reduce(size_t count, rota_dtype dtype, rota_op op, rota_comm *comm,
                                        const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_ALL_REDUCE, .count = count, .dtype = dtype, .op = op, .root = -1};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_reduce(size_t count, rota_dtype dtype, rota_op op, int root,
                                    rota_comm *comm, const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_REDUCE, .count = count, .dtype = dtype, .op = op, .root = root};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_broadcast(size_t count, rota_dtype dtype, int root, rota_comm *comm,
                                       const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_BROADCAST, .count = count, .dtype = dtype, .root = root};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_all_gather(size_t count, rota_dtype dtype, rota_comm *comm,
                                        const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_ALL_GATHER, .count = count, .dtype = dtype, .root = -1};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_reduce_scatter(size_t count, rota_dtype dtype, rota_op op,
                                            rota_comm *comm, const rota_call *call,
                                            rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_REDUCE_SCATTER, .count = count, .dtype = dtype, .op = op, .root = -1};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_all_to_all(size_t count, rota_dtype dtype, rota_comm *comm,
                                        const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_ALL_TO_ALL, .count = count, .dtype = dtype, .root = -1};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_barrier(rota_comm *comm, const rota_call *call, rota_plan **plan) {
    struct call_args args = {.kind = ROTA_KIND_BARRIER, .dtype = ROTA_UINT8, .root = -1};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_send(size_t count, rota_dtype dtype, int dest, int tag,
                                  rota_comm *comm, const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_SEND, .count = count, .dtype = dtype, .root = dest, .tag = tag};
    return create(comm, &args, call, plan);
}

rota_status rota_plan_create_recv(size_t count, rota_dtype dtype, int source, int tag,
                                  rota_comm *comm, const rota_call *call, rota_plan **plan) {
    struct call_args args = {
        .kind = ROTA_KIND_RECV, .count = count, .dtype = dtype, .root = source, .tag = tag};
    return create(comm, &args, call, plan);
}

static rota_status check_buffers(const rota_comm *comm, const rota_request *request,
                                 const void *send, void *recv) {
    struct call_args args = request->args;
    args.send = send;
    args.recv = recv;
    size_t size = request->element_size, bytes = 0;
    size_t sent = staging_send_bytes(request), received = staging_recv_bytes(request);
    rota_status status = check_buffer("send", send, 1, sent / size, args.dtype, &bytes);
    if (status == ROTA_OK)
        status = check_buffer("recv", recv, 1, received / size, args.dtype, &bytes);
    if (status == ROTA_OK)
        status = check_overlap(send, sent, recv, received, "see the plain function",
                               call_in_place(comm, &args, size));
    return status;
}

rota_status rota_plan_start(rota_plan *plan, const void *send, void *recv) {
    CHECK_KEEP_ERRNO;
    if (plan == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "plan is NULL");
    if (!persistent_take(plan))
        return error_raise(ROTA_ERR_BUSY, "the last run of the plan has not ended");
    rota_comm *comm = persistent_comm(plan);
    rota_status status = comm != NULL
                             ? check_buffers(comm, persistent_request(plan), send, recv)
                             : error_raise(ROTA_ERR_STATE, "the plan's communicator was destroyed");
    if (status != ROTA_OK) {
        persistent_put_back(plan);
        return status;
    }
    persistent_start(plan, send, recv);
    return ROTA_OK;
}

rota_status rota_plan_test(rota_plan *plan, bool *done) {
    CHECK_KEEP_ERRNO;
    if (plan == NULL || done == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "plan and done must not be NULL");
    rota_request *request = persistent_request(plan);
    *done = request_wait(request, 0);
    return *done ? request_outcome(request) : ROTA_OK;
}

rota_status rota_plan_wait(rota_plan *plan, int64_t timeout_ms) {
    CHECK_KEEP_ERRNO;
    if (plan == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "plan is NULL");
    if (timeout_ms < 0)
        return error_raise(ROTA_ERR_ARGUMENT, "timeout_ms is %lld, expected 0 or more",
                           (long long)timeout_ms);
    rota_request *request = persistent_request(plan);
    if (request_wait(request, timeout_ms > 0 ? clock_deadline(timeout_ms) : CLOCK_NEVER))
        return request_outcome(request);
    return error_raise(ROTA_ERR_TIMEOUT, "the run has not ended after %lld ms; it goes on",
                       (long long)timeout_ms);
}

rota_status rota_plan_free(rota_plan *plan) {
    CHECK_KEEP_ERRNO;
    return plan != NULL ? persistent_free(plan) : ROTA_OK;
}
