/* Public functions for going on after failures. */
#include <rota/comm.h>

#include "api/check.h"
#include "base/error.h"
#include "engine/agree.h"

rota_status rota_comm_revoke(rota_comm *comm) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    agree_revoke(comm);
    comm_leave(comm);
    error_clear();
    return ROTA_OK;
}

rota_status rota_comm_agree(rota_comm *comm, uint64_t *flags, const rota_call *call) {
    if (comm == NULL || flags == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and flags must not be NULL");
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    comm_enter(comm);
    status = agree_run(comm, flags, call);
    comm_leave(comm);
    return status;
}

rota_status rota_comm_shrink(rota_comm *comm, const char *name, rota_comm **shrunk,
                             const rota_call *call) {
    if (comm == NULL || shrunk == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and shrunk must not be NULL");
    rota_status status = check_call(call, false);
    if (status != ROTA_OK)
        return status;
    comm_enter(comm);
    status = agree_shrink(comm, name != NULL ? name : comm->name, call, shrunk);
    comm_leave(comm);
    return status;
}
