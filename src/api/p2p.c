/* Public sends, receives and requests. */
#include <rota/p2p.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/collective.h"
#include <rota/request.h>

static rota_status check(const rota_comm *comm, const struct call_args *args, const void *buffer,
                         const rota_call *call) {
    size_t bytes = 0;
    rota_status status = check_call(call, true);
    if (status == ROTA_OK)
        status = check_dtype(args->dtype);
    bool any = args->kind == ROTA_KIND_RECV && args->root == ROTA_ANY_SOURCE;
    if (status == ROTA_OK && !any)
        status =
            check_rank(args->kind == ROTA_KIND_SEND ? "dest" : "source", args->root, comm->nranks);
    if (status == ROTA_OK && args->tag < 0)
        status = error_raise(ROTA_ERR_ARGUMENT, "tag is %d, expected 0 or more", args->tag);
    if (status == ROTA_OK)
        status = check_buffer(args->kind == ROTA_KIND_SEND ? "send" : "recv", buffer, 1,
                              args->count, args->dtype, &bytes);
    bool sends = args->kind == ROTA_KIND_SEND;
    if (status == ROTA_OK)
        status =
            check_memory(comm, call, args->send, sends ? bytes : 0, args->recv, sends ? 0 : bytes);
    if (status == ROTA_OK && args->info != NULL && args->info->size < sizeof(*args->info))
        status = error_raise(ROTA_ERR_ARGUMENT, "info->size is %zu, expected %zu", args->info->size,
                             sizeof(*args->info));
    return status;
}

rota_status rota_send(const void *send, size_t count, rota_dtype dtype, int dest, int tag,
                      rota_comm *comm, const rota_call *call) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    struct call_args args = {.kind = ROTA_KIND_SEND,
                             .send = send,
                             .count = count,
                             .dtype = dtype,
                             .root = dest,
                             .tag = tag};
    if (p2p_run_again(comm, &args, call))
        return ROTA_OK;
    comm_enter(comm);
    rota_status status = check(comm, &args, send, call);
    status = check_run(comm, &args, call, status);
    comm_leave(comm);
    return status;
}

rota_status rota_recv(void *recv, size_t count, rota_dtype dtype, int source, int tag,
                      rota_comm *comm, rota_recv_info *info, const rota_call *call) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    struct call_args args = {.kind = ROTA_KIND_RECV,
                             .recv = recv,
                             .count = count,
                             .dtype = dtype,
                             .root = source,
                             .tag = tag,
                             .info = info};
    if (p2p_run_again(comm, &args, call))
        return ROTA_OK;
    comm_enter(comm);
    rota_status status = check(comm, &args, recv, call);
    status = check_run(comm, &args, call, status);
    comm_leave(comm);
    return status;
}

rota_status rota_request_test(rota_request *request, bool *done) {
    CHECK_KEEP_ERRNO;
    if (request == NULL || done == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "request and done must not be NULL");
    *done = request_wait(request, 0);
    return *done ? request_outcome(request) : ROTA_OK;
}

rota_status rota_request_wait(rota_request *request, int64_t timeout_ms) {
    if (request != NULL && timeout_ms >= 0 && request_is_done(request))
        return request_outcome(request);
    CHECK_KEEP_ERRNO;
    if (request == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "request is NULL");
    if (timeout_ms < 0)
        return error_raise(ROTA_ERR_ARGUMENT, "timeout_ms is %lld, expected 0 or more",
                           (long long)timeout_ms);
    if (request_wait(request, timeout_ms > 0 ? clock_deadline(timeout_ms) : CLOCK_NEVER))
        return request_outcome(request);
    if (request_forked(request))
        return error_raise(ROTA_ERR_STATE,
                           "the request is that of a process which forked this one");
    return error_raise(ROTA_ERR_TIMEOUT, "the request has not ended after %lld ms; it goes on",
                       (long long)timeout_ms);
}

rota_status rota_request_error(const rota_request *request, rota_error *error) {
    if (request == NULL || error == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "request and error must not be NULL");
    if (!request_has_record(request))
        return error_raise(ROTA_ERR_STATE, "the request has not ended");
    return error_copy(&request->record, error);
}

rota_status rota_request_cancel(rota_request *request) {
    CHECK_KEEP_ERRNO;
    if (request == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "request is NULL");
    return request_cancel(request);
}

rota_status rota_request_free(rota_request *request) {
    if (request != NULL)
        request_release(request);
    return ROTA_OK;
}
