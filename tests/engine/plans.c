/* Persistent operations: started many times, on new buffers, in order with plain calls. */
#include "ranks.h"

#include <string.h>

static void repeated(const struct rank *rank) {
    enum { COUNT = 1000, RUNS = 50 };
    static _Thread_local int32_t in[3][COUNT], out[3][COUNT];
    rota_plan *plan = NULL;
    CHECK_OK(rota_plan_create_all_reduce(COUNT, ROTA_INT32, ROTA_SUM, rank->comm, NULL, &plan));
    bool done = false;
    CHECK_OK(rota_plan_test(plan, &done));
    CHECK(done, "not done before the first run");
    for (int run = 0; run < RUNS; run++) {
        int32_t *send = in[run % 3], *recv = run % 4 == 3 ? send : out[run % 3];
        for (int i = 0; i < COUNT; i++)
            send[i] = rank->rank + run + i;
        CHECK_OK(rota_plan_start(plan, send, recv));
        CHECK_OK(rota_plan_wait(plan, 0));
        int n = rank->nranks;
        for (int i = 0; i < COUNT; i++)
            if (recv[i] != n * (n - 1) / 2 + n * (run + i)) {
                CHECK(false, "run %d element %d is %d", run, i, recv[i]);
                break;
            }
    }
    CHECK_OK(rota_plan_free(plan));
}

/* Plans and plain calls of one communicator keep their order; several plans are under way. */
static void mixed(const struct rank *rank) {
    int64_t values[4] = {1, 2, 3, 4}, sums[4] = {0}, maximum = 0, one = rank->rank;
    rota_plan *plans[4];
    for (int i = 0; i < 4; i++)
        CHECK_OK(rota_plan_create_all_reduce(1, ROTA_INT64, ROTA_SUM, rank->comm, NULL, &plans[i]));
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 4; i++) {
            CHECK_OK(rota_plan_start(plans[i], &values[i], &sums[i]));
            if (i == 1) {
                CHECK_OK(
                    rota_all_reduce(&one, &maximum, 1, ROTA_INT64, ROTA_MAX, rank->comm, NULL));
                CHECK(maximum == rank->nranks - 1, "maximum %lld", (long long)maximum);
            }
        }
        for (int i = 3; i >= 0; i--) {
            CHECK_OK(rota_plan_wait(plans[i], 0));
            CHECK(sums[i] == values[i] * rank->nranks, "sum %lld", (long long)sums[i]);
            values[i] += round;
        }
    }
    for (int i = 0; i < 4; i++)
        CHECK_OK(rota_plan_free(plans[i]));
}

static void messages(const struct rank *rank) {
    int right = (rank->rank + 1) % rank->nranks;
    int left = (rank->rank + rank->nranks - 1) % rank->nranks;
    rota_plan *send = NULL, *recv = NULL, *barrier = NULL;
    CHECK_OK(rota_plan_create_send(3, ROTA_INT32, right, 1, rank->comm, NULL, &send));
    CHECK_OK(rota_plan_create_recv(3, ROTA_INT32, left, 1, rank->comm, NULL, &recv));
    CHECK_OK(rota_plan_create_barrier(rank->comm, NULL, &barrier));
    for (int run = 0; run < 20; run++) {
        int32_t out[3] = {rank->rank, run, 7}, in[3] = {0};
        CHECK_OK(rota_plan_start(recv, NULL, in));
        CHECK_OK(rota_plan_start(send, out, NULL));
        CHECK_OK(rota_plan_wait(recv, 0));
        CHECK_OK(rota_plan_wait(send, 0));
        CHECK(in[0] == left && in[1] == run && in[2] == 7, "got %d %d", in[0], in[1]);
        CHECK_OK(rota_plan_start(barrier, NULL, NULL));
        CHECK_OK(rota_plan_wait(barrier, 0));
    }
    CHECK_OK(rota_plan_free(send));
    CHECK_OK(rota_plan_free(recv));
    CHECK_OK(rota_plan_free(barrier));
}

static void plans_run_again_and_again(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        for (int n = 1; n <= 4; n += n == 1 ? 1 : 2) {
            ranks_run(n, 20000, repeated, NULL);
            ranks_run(n, 20000, mixed, NULL);
            ranks_run(n, 20000, messages, NULL);
        }
    }
}

/* A run that cannot end, another start meanwhile, and a communicator that goes first. */
static void misuse(const struct rank *rank) {
    if (rank->rank != 0) {
        sleep_ms(300);
        return;
    }
    rota_comm *copy = rank->comm;
    rota_plan *plan = NULL;
    int32_t in = 1, out = 0;
    bool done = true;
    CHECK_OK(rota_plan_create_all_reduce(1, ROTA_INT32, ROTA_SUM, copy, NULL, &plan));
    CHECK_STATUS(rota_plan_start(plan, NULL, &out), ROTA_ERR_ARGUMENT);
    CHECK_OK(rota_plan_start(plan, &in, &out));
    CHECK_STATUS(rota_plan_start(plan, &in, &out), ROTA_ERR_BUSY);
    CHECK_STATUS(rota_plan_free(plan), ROTA_ERR_BUSY);
    CHECK_OK(rota_plan_test(plan, &done));
    CHECK(!done, "a run without the others has ended");
    CHECK_STATUS(rota_plan_wait(plan, 30), ROTA_ERR_TIMEOUT);
    CHECK_OK(rota_comm_abort(copy));
    CHECK_STATUS(rota_plan_wait(plan, 0), ROTA_ERR_ABORTED);
    CHECK_OK(rota_plan_start(plan, &in, &out));
    CHECK(rota_plan_wait(plan, 0) != ROTA_OK, "a run on an aborted communicator");
    CHECK_OK(rota_plan_free(plan));
}

static void wrong_uses_are_told(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, misuse, NULL);
    }
}

static void communicator_goes_first(void) {
    rota_comm *comm = NULL;
    rota_plan *plan = NULL;
    int32_t in = 1, out = 0;
    CHECK_OK(rota_init_threads(1, &comm, NULL));
    CHECK_OK(rota_plan_create_all_reduce(1, ROTA_INT32, ROTA_SUM, comm, NULL, &plan));
    CHECK_OK(rota_plan_start(plan, &in, &out));
    CHECK_OK(rota_plan_wait(plan, 0));
    CHECK_OK(rota_comm_destroy(comm));
    CHECK_STATUS(rota_plan_start(plan, &in, &out), ROTA_ERR_STATE);
    CHECK_OK(rota_plan_free(plan));
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"plans_run_again_and_again", plans_run_again_and_again},
        {"wrong_uses_are_told", wrong_uses_are_told},
        {"communicator_goes_first", communicator_goes_first},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
