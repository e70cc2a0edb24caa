/* Public functions of groups, and waiting for several requests. */
#include <rota/group.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/group.h"

rota_status rota_group_begin(rota_group **group) {
    if (group == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "group is NULL");
    return group_begin(group);
}

rota_status rota_group_add(rota_group *outer, rota_group *inner) {
    if (outer == NULL || inner == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "outer and inner must not be NULL");
    return group_add(outer, inner);
}

rota_status rota_group_end(rota_group *group, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (group == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "group is NULL: no group was begun");
    rota_status status = check_call(call, true);
    if (status == ROTA_OK && check_group(call) != NULL)
        status =
            error_raise(ROTA_ERR_ARGUMENT, "call->group: put groups into groups by rota_group_add");
    return status == ROTA_OK ? group_end(group, call) : status;
}

rota_status rota_group_free(rota_group *group) {
    return group != NULL ? group_drop(group) : ROTA_OK;
}

static rota_status check_requests(rota_request *const *requests, int count, int64_t timeout_ms) {
    if (count < 1 || requests == NULL)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "requests is NULL, or count is %d, expected 1 or more", count);
    for (int i = 0; i < count; i++)
        if (requests[i] == NULL)
            return error_raise(ROTA_ERR_ARGUMENT, "requests[%d] is NULL", i);
    if (timeout_ms < 0)
        return error_raise(ROTA_ERR_ARGUMENT, "timeout_ms is %lld, expected 0 or more",
                           (long long)timeout_ms);
    return ROTA_OK;
}

static rota_status not_ended(int64_t timeout_ms) {
    return error_raise(ROTA_ERR_TIMEOUT, "not ended after %lld ms; the requests go on",
                       (long long)timeout_ms);
}

rota_status rota_request_wait_all(rota_request *const *requests, int count, int64_t timeout_ms) {
    CHECK_KEEP_ERRNO;
    rota_status status = check_requests(requests, count, timeout_ms);
    if (status != ROTA_OK)
        return status;
    int64_t deadline = timeout_ms > 0 ? clock_deadline(timeout_ms) : CLOCK_NEVER;
    for (int i = 0; i < count; i++)
        if (!request_wait(requests[i], deadline))
            return not_ended(timeout_ms);
    for (int i = 0; i < count && status == ROTA_OK; i++)
        status = request_outcome(requests[i]);
    return status;
}

rota_status rota_request_wait_any(rota_request *const *requests, int count, int64_t timeout_ms,
                                  int *index) {
    CHECK_KEEP_ERRNO;
    rota_status status = check_requests(requests, count, timeout_ms);
    if (status == ROTA_OK && index == NULL)
        status = error_raise(ROTA_ERR_ARGUMENT, "index is NULL");
    if (status != ROTA_OK)
        return status;
    int ended = request_wait_any(requests, count,
                                 timeout_ms > 0 ? clock_deadline(timeout_ms) : CLOCK_NEVER);
    if (ended < 0)
        return not_ended(timeout_ms);
    *index = ended;
    return request_outcome(requests[ended]);
}
