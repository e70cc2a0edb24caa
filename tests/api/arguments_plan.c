/* What plans refuse: when they are made, and when they are started. */
#include "pair.h"

/* One plan of the pair's rank 0, or why there is none. */
typedef rota_status (*create_fn)(size_t count, rota_dtype dtype, rota_op op, int rank,
                                 rota_comm *comm, const rota_call *call, rota_plan **plan);

struct needs {
    bool dtype, op, rank;
    const char *rank_name;
};

/* Every argument that the operation has, wrong in turn. */
static void check_create(create_fn create, const struct needs *needs) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    rota_plan *plan = NULL;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    REFUSED(create(4, ROTA_INT32, ROTA_SUM, 0, NULL, NULL, &plan), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(create(4, ROTA_INT32, ROTA_SUM, 0, comm, NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "plan");
    if (needs->dtype)
        REFUSED(create(4, 99, ROTA_SUM, 0, comm, NULL, &plan), ROTA_ERR_ARGUMENT, NULL, "dtype");
    if (needs->op)
        REFUSED(create(4, ROTA_INT32, 99, 0, comm, NULL, &plan), ROTA_ERR_ARGUMENT, NULL, "op");
    if (needs->rank)
        REFUSED(create(4, ROTA_INT32, ROTA_SUM, 2, comm, NULL, &plan), ROTA_ERR_ARGUMENT, NULL,
                needs->rank_name);
    call.request = &request;
    REFUSED(create(4, ROTA_INT32, ROTA_SUM, 0, comm, &call, &plan), ROTA_ERR_ARGUMENT, NULL,
            "request");
    call = (rota_call)ROTA_CALL_INIT;
    call.timeout_ms = -1;
    REFUSED(create(4, ROTA_INT32, ROTA_SUM, 0, comm, &call, &plan), ROTA_ERR_ARGUMENT, NULL,
            "timeout_ms");
    cr_assert_null(plan);
    cr_assert_eq(create(4, ROTA_INT32, ROTA_SUM, 0, comm, NULL, &plan), ROTA_OK);
    cr_assert_eq(rota_plan_free(plan), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

#define UNUSED(x) (void)(x)

static rota_status all_reduce(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                              const rota_call *call, rota_plan **plan) {
    UNUSED(rank);
    return rota_plan_create_all_reduce(count, dtype, op, comm, call, plan);
}
Test(arguments, rota_plan_create_all_reduce) {
    check_create(all_reduce, &(struct needs){.dtype = true, .op = true});
}

Test(arguments, rota_plan_create_reduce) {
    check_create(rota_plan_create_reduce,
                 &(struct needs){.dtype = true, .op = true, .rank = true, .rank_name = "root"});
}

static rota_status broadcast(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                             const rota_call *call, rota_plan **plan) {
    UNUSED(op);
    return rota_plan_create_broadcast(count, dtype, rank, comm, call, plan);
}
Test(arguments, rota_plan_create_broadcast) {
    check_create(broadcast, &(struct needs){.dtype = true, .rank = true, .rank_name = "root"});
}

static rota_status all_gather(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                              const rota_call *call, rota_plan **plan) {
    UNUSED(op);
    UNUSED(rank);
    return rota_plan_create_all_gather(count, dtype, comm, call, plan);
}
Test(arguments, rota_plan_create_all_gather) {
    check_create(all_gather, &(struct needs){.dtype = true});
}

static rota_status reduce_scatter(size_t count, rota_dtype dtype, rota_op op, int rank,
                                  rota_comm *comm, const rota_call *call, rota_plan **plan) {
    UNUSED(rank);
    return rota_plan_create_reduce_scatter(count, dtype, op, comm, call, plan);
}
Test(arguments, rota_plan_create_reduce_scatter) {
    check_create(reduce_scatter, &(struct needs){.dtype = true, .op = true});
}

static rota_status all_to_all(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                              const rota_call *call, rota_plan **plan) {
    UNUSED(op);
    UNUSED(rank);
    return rota_plan_create_all_to_all(count, dtype, comm, call, plan);
}
Test(arguments, rota_plan_create_all_to_all) {
    check_create(all_to_all, &(struct needs){.dtype = true});
}

static rota_status barrier(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                           const rota_call *call, rota_plan **plan) {
    UNUSED(count);
    UNUSED(dtype);
    UNUSED(op);
    UNUSED(rank);
    return rota_plan_create_barrier(comm, call, plan);
}
Test(arguments, rota_plan_create_barrier) {
    check_create(barrier, &(struct needs){0});
}

static rota_status send_to(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                           const rota_call *call, rota_plan **plan) {
    UNUSED(op);
    return rota_plan_create_send(count, dtype, rank, 0, comm, call, plan);
}
Test(arguments, rota_plan_create_send) {
    check_create(send_to, &(struct needs){.dtype = true, .rank = true, .rank_name = "dest"});
}

static rota_status recv_from(size_t count, rota_dtype dtype, rota_op op, int rank, rota_comm *comm,
                             const rota_call *call, rota_plan **plan) {
    UNUSED(op);
    return rota_plan_create_recv(count, dtype, rank, 0, comm, call, plan);
}
Test(arguments, rota_plan_create_recv) {
    check_create(recv_from, &(struct needs){.dtype = true, .rank = true, .rank_name = "source"});
}

Test(arguments, rota_plan_start) {
    struct pair pair;
    pair_open(&pair);
    rota_plan *plan = NULL;
    int32_t values[8] = {0};
    cr_assert_eq(rota_plan_create_all_reduce(4, ROTA_INT32, ROTA_SUM, pair.comms[0], NULL, &plan),
                 ROTA_OK);
    REFUSED(rota_plan_start(NULL, values, values), ROTA_ERR_ARGUMENT, NULL, "plan");
    REFUSED(rota_plan_start(plan, NULL, values), ROTA_ERR_ARGUMENT, NULL, "send");
    REFUSED(rota_plan_start(plan, values, NULL), ROTA_ERR_ARGUMENT, NULL, "recv");
    REFUSED(rota_plan_start(plan, values, values + 1), ROTA_ERR_ARGUMENT, NULL, "overlap");
    REFUSED(rota_plan_start(plan, (char *)values + 1, values), ROTA_ERR_ARGUMENT, NULL, "aligned");
    cr_assert_eq(rota_plan_free(plan), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_plan_test) {
    struct pair pair;
    pair_open(&pair);
    rota_plan *plan = NULL;
    bool done = false;
    cr_assert_eq(rota_plan_create_barrier(pair.comms[0], NULL, &plan), ROTA_OK);
    REFUSED(rota_plan_test(NULL, &done), ROTA_ERR_ARGUMENT, NULL, "plan");
    REFUSED(rota_plan_test(plan, NULL), ROTA_ERR_ARGUMENT, NULL, "done");
    cr_assert_eq(rota_plan_free(plan), ROTA_OK);
    pair_close(&pair);
}

Test(arguments, rota_plan_wait) {
    struct pair pair;
    pair_open(&pair);
    rota_plan *plan = NULL;
    cr_assert_eq(rota_plan_create_barrier(pair.comms[0], NULL, &plan), ROTA_OK);
    REFUSED(rota_plan_wait(NULL, 0), ROTA_ERR_ARGUMENT, NULL, "plan");
    REFUSED(rota_plan_wait(plan, -1), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    cr_assert_eq(rota_plan_free(plan), ROTA_OK);
    pair_close(&pair);
}

Test(arguments, rota_plan_free) {
    struct pair pair;
    pair_open(&pair);
    rota_plan *plan = NULL;
    int32_t in = 0, out = 0;
    cr_assert_eq(rota_plan_free(NULL), ROTA_OK);
    cr_assert_eq(rota_plan_create_recv(1, ROTA_INT32, 1, 0, pair.comms[0], NULL, &plan), ROTA_OK);
    cr_assert_eq(rota_plan_start(plan, &in, &out), ROTA_OK);
    REFUSED(rota_plan_free(plan), ROTA_ERR_BUSY, NULL, "not ended");
    cr_assert_eq(rota_send(&in, 1, ROTA_INT32, 0, 0, pair.comms[1], NULL), ROTA_OK);
    cr_assert_eq(rota_plan_wait(plan, 0), ROTA_OK);
    cr_assert_eq(rota_plan_free(plan), ROTA_OK);
    pair_close(&pair);
}
