/* Public functions of reduction operators that callers make. */
#include <rota/operator.h>

#include "api/check.h"
#include "base/error.h"

/* Keeps what went wrong as the communicator's last error. */
static rota_status leave(rota_comm *comm, rota_status status) {
    if (status != ROTA_OK)
        comm_keep_error(comm, status);
    comm_leave(comm);
    return status;
}

rota_status rota_op_create(rota_op_fn function, void *arg, bool commutative, const char *name,
                           rota_comm *comm, rota_op *op) {
    if (function == NULL || comm == NULL || op == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "function, comm and op must not be NULL");
    comm_enter(comm);
    return leave(comm, operators_add_user(&comm->operators, function, arg, commutative, name, op));
}

rota_status rota_op_create_pre_mul_sum(const void *scalar, rota_dtype dtype, rota_comm *comm,
                                       rota_op *op) {
    if (scalar == NULL || comm == NULL || op == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "scalar, comm and op must not be NULL");
    comm_enter(comm);
    return leave(comm, operators_add_pre_mul_sum(&comm->operators, scalar, dtype, op));
}

rota_status rota_op_free(rota_op op, rota_comm *comm) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    rota_status status = ROTA_OK;
    if (!operators_remove(&comm->operators, op))
        status = error_raise(ROTA_ERR_ARGUMENT,
                             "op is %#x, which was not created on this communicator", op);
    return leave(comm, status);
}
