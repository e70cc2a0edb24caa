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

static rota_status check_local(rota_comm *comm, const void *left, const void *right, size_t count,
                               rota_dtype dtype, rota_op op) {
    size_t bytes = 0;
    rota_status status = check_dtype(dtype);
    if (status == ROTA_OK)
        status = check_op(comm, op, dtype);
    if (status == ROTA_OK && op == ROTA_AVG)
        status = error_raise(ROTA_ERR_ARGUMENT, "op is avg, which divides by a number of ranks");
    if (status == ROTA_OK)
        status = check_buffer("left", left, 1, count, dtype, &bytes);
    if (status == ROTA_OK)
        status = check_buffer("right_inout", right, 1, count, dtype, &bytes);
    if (status == ROTA_OK)
        status = check_overlap(left, bytes, right, bytes, "not possible here", false);
    if (status == ROTA_OK && !(memory_identify(left, bytes)->host_readable &&
                               memory_identify(right, bytes)->host_readable))
        status = error_raise(ROTA_ERR_ARGUMENT, "left and right_inout must be host memory");
    return status;
}

rota_status rota_reduce_local(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                              rota_op op, rota_comm *comm) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    comm_enter(comm);
    struct call_args args = {.dtype = dtype, .op = op};
    struct reduce_spec spec;
    rota_status status = check_local(comm, left, right_inout, count, dtype, op);
    if (status == ROTA_OK)
        status = comm_make_spec(comm, &args, &spec);
    if (status == ROTA_OK && spec.form == REDUCE_PRE_MUL_SUM)
        status = error_raise(ROTA_ERR_ARGUMENT, "op multiplies what ranks give, so it needs ranks");
    if (status == ROTA_OK) {
        const struct reduce_operand operands[2] = {{left, false}, {right_inout, false}};
        reduce_run(&spec, right_inout, true, operands, 2, count);
    }
    return leave(comm, status);
}
