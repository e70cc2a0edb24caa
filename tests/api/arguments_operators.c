/* Refused arguments of the functions of rota/operator.h, and of calls with operators that do not
 * fit their type. */
#include "pair.h"

#include <stdint.h>

static void nothing(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                    void *arg) {
    (void)left;
    (void)right_inout;
    (void)count;
    (void)dtype;
    (void)arg;
}

Test(arguments, rota_op_create) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    rota_op op = 77;
    REFUSED(rota_op_create(NULL, NULL, true, NULL, comm, &op), ROTA_ERR_ARGUMENT, NULL, "function");
    REFUSED(rota_op_create(nothing, NULL, true, NULL, NULL, &op), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_op_create(nothing, NULL, true, NULL, comm, NULL), ROTA_ERR_ARGUMENT, NULL, "op");
    REFUSED(rota_op_create(nothing, NULL, true, "", comm, &op), ROTA_ERR_ARGUMENT, comm, "name");
    REFUSED(rota_op_create(nothing, NULL, true, "of thirty-two bytes, one too many", comm, &op),
            ROTA_ERR_ARGUMENT, comm, "name");
    cr_assert_eq(op, 77);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_op_create_pre_mul_sum) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    double scalar[2] = {1, 2};
    rota_op op = 77;
    REFUSED(rota_op_create_pre_mul_sum(NULL, ROTA_FLOAT64, comm, &op), ROTA_ERR_ARGUMENT, NULL,
            "scalar");
    REFUSED(rota_op_create_pre_mul_sum(scalar, ROTA_FLOAT64, NULL, &op), ROTA_ERR_ARGUMENT, NULL,
            "comm");
    REFUSED(rota_op_create_pre_mul_sum(scalar, ROTA_FLOAT64, comm, NULL), ROTA_ERR_ARGUMENT, NULL,
            "op");
    REFUSED(rota_op_create_pre_mul_sum(scalar, ROTA_DTYPE_COUNT, comm, &op), ROTA_ERR_ARGUMENT,
            comm, "no type");
    REFUSED(rota_op_create_pre_mul_sum(scalar, ROTA_BOOL, comm, &op), ROTA_ERR_ARGUMENT, comm,
            "bool");
    REFUSED(rota_op_create_pre_mul_sum(scalar, ROTA_INT64_INT64, comm, &op), ROTA_ERR_ARGUMENT,
            comm, "int64_int64");
    REFUSED(rota_op_create_pre_mul_sum(scalar, rota_dtype_bytes(8), comm, &op), ROTA_ERR_ARGUMENT,
            comm, "bytes");
    cr_assert_eq(op, 77);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_reduce_local) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    float left[4] = {1, 2, 3, 4}, right[4] = {4, 3, 2, 1};
    REFUSED(rota_reduce_local(left, right, 4, ROTA_FLOAT32, ROTA_SUM, NULL), ROTA_ERR_ARGUMENT,
            NULL, "comm");
    REFUSED(rota_reduce_local(NULL, right, 4, ROTA_FLOAT32, ROTA_SUM, comm), ROTA_ERR_ARGUMENT,
            comm, "left");
    REFUSED(rota_reduce_local(left, NULL, 4, ROTA_FLOAT32, ROTA_SUM, comm), ROTA_ERR_ARGUMENT, comm,
            "right_inout");
    REFUSED(rota_reduce_local(left, left + 1, 2, ROTA_FLOAT32, ROTA_SUM, comm), ROTA_ERR_ARGUMENT,
            comm, "overlap");
    REFUSED(rota_reduce_local(left, right, SIZE_MAX / 2, ROTA_FLOAT32, ROTA_SUM, comm),
            ROTA_ERR_ARGUMENT, comm, "overflow");
    REFUSED(rota_reduce_local(left, right, 4, ROTA_DTYPE_COUNT, ROTA_SUM, comm), ROTA_ERR_ARGUMENT,
            comm, "dtype");
    REFUSED(rota_reduce_local(left, right, 4, ROTA_FLOAT32, ROTA_BITWISE_AND, comm),
            ROTA_ERR_ARGUMENT, comm, "not defined");
    REFUSED(rota_reduce_local(left, right, 4, ROTA_FLOAT32, ROTA_AVG, comm), ROTA_ERR_ARGUMENT,
            comm, "avg");
    cr_assert_eq(right[3], 1);
    cr_assert_eq(rota_reduce_local(left, right, 3, ROTA_FLOAT32, ROTA_SUM, comm), ROTA_OK);
    cr_assert(right[0] == 5 && right[2] == 5 && right[3] == 1);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_op_free) {
    struct pair pair;
    pair_open(&pair);
    rota_op op = 0;
    cr_assert_eq(rota_op_create(nothing, NULL, true, NULL, pair.comms[0], &op), ROTA_OK);
    REFUSED(rota_op_free(op, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_op_free(ROTA_SUM, pair.comms[0]), ROTA_ERR_ARGUMENT, pair.comms[0], "op");
    REFUSED(rota_op_free(op, pair.comms[1]), ROTA_ERR_ARGUMENT, pair.comms[1], "op");
    cr_assert_eq(rota_op_free(op, pair.comms[0]), ROTA_OK);
    REFUSED(rota_op_free(op, pair.comms[0]), ROTA_ERR_ARGUMENT, pair.comms[0], "op");
    pair_works(&pair);
    pair_close(&pair);
}

/* Both are named. */
Test(operators, that_mean_nothing_for_the_type) {
    struct pair pair;
    pair_open(&pair);
    _Alignas(16) unsigned char data[2][64] = {{0}};
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
            if (rota_op_accepts(op, dtype))
                continue;
            for (int r = 0; r < 2; r++) {
                rota_comm *comm = pair.comms[r];
                REFUSED(rota_all_reduce(data[0], data[1], 1, dtype, op, comm, NULL),
                        ROTA_ERR_ARGUMENT, comm, rota_op_name(op));
                REFUSED(rota_reduce_scatter(data[0], data[1], 1, dtype, op, comm, NULL),
                        ROTA_ERR_ARGUMENT, comm, rota_dtype_name(dtype));
                rota_plan *plan = NULL;
                REFUSED(rota_plan_create_all_reduce(1, dtype, op, comm, NULL, &plan),
                        ROTA_ERR_ARGUMENT, comm, rota_dtype_name(dtype));
            }
        }
    rota_dtype bytes = rota_dtype_bytes(3);
    REFUSED(rota_all_reduce(data[0], data[1], 1, bytes, ROTA_SUM, pair.comms[0], NULL),
            ROTA_ERR_ARGUMENT, pair.comms[0], "bytes");
    pair_works(&pair);
    pair_close(&pair);
}

/* A handle of one communicator is nothing to another. */
Test(operators, of_another_communicator) {
    struct pair pair;
    pair_open(&pair);
    int32_t in = 1, out = 0;
    rota_op op = 0;
    cr_assert_eq(rota_op_create(nothing, NULL, true, NULL, pair.comms[0], &op), ROTA_OK);
    cr_assert_null(rota_op_name(op));
    REFUSED(rota_all_reduce(&in, &out, 1, ROTA_INT32, op, pair.comms[1], NULL), ROTA_ERR_ARGUMENT,
            pair.comms[1], "op");
    pair_works(&pair);
    pair_close(&pair);
}

/* Alignment is that of the C type, not the size. */
Test(operators, elements_are_aligned_as_in_c) {
    struct pair pair;
    pair_open(&pair);
    _Alignas(16) unsigned char data[64] = {0};
    REFUSED(rota_broadcast(data + 2, data + 32, 1, ROTA_COMPLEX64, 0, pair.comms[0], NULL),
            ROTA_ERR_ARGUMENT, pair.comms[0], "4 bytes");
    REFUSED(rota_broadcast(data + 4, data + 32, 1, ROTA_FLOAT64_INT32, 0, pair.comms[0], NULL),
            ROTA_ERR_ARGUMENT, pair.comms[0], "8 bytes");
    pair_works(&pair);
    pair_close(&pair);
}
