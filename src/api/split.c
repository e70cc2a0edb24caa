/* Public functions that make communicators from communicators. */
#include "engine/split.h"
#include "api/check.h"
#include "base/error.h"
#include <rota/comm.h>

rota_status rota_comm_split(rota_comm *comm, int color, int key, const char *name,
                            rota_comm **child, const rota_call *call) {
    CHECK_KEEP_ERRNO;
    if (comm == NULL || child == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and child must not be NULL");
    if (color < 0 && color != ROTA_COLOR_UNDEFINED)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "color is %d, expected 0 or more, or ROTA_COLOR_UNDEFINED", color);
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    comm_enter(comm);
    status = split_run(comm, color, key, name != NULL ? name : comm->name, call, child);
    comm_leave(comm);
    return status;
}

rota_status rota_comm_duplicate(rota_comm *comm, rota_comm **copy, const rota_call *call) {
    if (comm == NULL || copy == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and copy must not be NULL");
    return rota_comm_split(comm, 0, comm->rank, NULL, copy, call);
}

rota_status rota_comm_memory(rota_comm *comm, size_t *bytes) {
    if (comm == NULL || bytes == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and bytes must not be NULL");
    comm_enter(comm);
    *bytes = split_memory(comm);
    comm_leave(comm);
    return ROTA_OK;
}
