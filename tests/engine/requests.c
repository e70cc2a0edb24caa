/* Requests: several outstanding, tested, waited for with a limit, freed early, with call-backs that
 * start operations; and threads that share communicators. */
#include "ranks.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OUTSTANDING = 20, MOST = 5000, CHAIN = 300 };

static size_t count_of(int i) {
    return (size_t)(i * 37 % MOST) * (i % 3 == 0 ? 1 : 0) + (size_t)i + 1;
}

/* Starts all_reduces of different sizes at once and waits for them from the last to the first. */
static void several_body(const struct rank *rank) {
    rota_request *requests[OUTSTANDING];
    int32_t *data = malloc(2 * sizeof(*data) * MOST * OUTSTANDING);
    for (int i = 0; i < OUTSTANDING; i++) {
        int32_t *in = data + 2 * i * MOST, *out = in + MOST;
        for (size_t j = 0; j < count_of(i); j++)
            in[j] = (int32_t)j * (rank->rank + 1) + i;
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[i];
        CHECK_OK(rota_all_reduce(in, out, count_of(i), ROTA_INT32, ROTA_SUM, rank->comm, &call));
    }
    /* A blocking call queues behind them. */
    CHECK_OK(rota_barrier(rank->comm, NULL));
    for (int i = OUTSTANDING - 1; i >= 0; i--) {
        bool done = false;
        CHECK_OK(rota_request_test(requests[i], &done));
        CHECK(done, "request %d has not ended before the barrier behind it", i);
        CHECK_OK(rota_request_wait(requests[i], 0));
        int32_t *out = data + (2 * i + 1) * MOST, ranks = rank->nranks * (rank->nranks + 1) / 2;
        for (size_t j = 0; j < count_of(i); j++)
            CHECK(out[j] == (int32_t)j * ranks + i * rank->nranks, "request %d element %zu: %d", i,
                  j, out[j]);
        CHECK_OK(rota_request_free(requests[i]));
    }
    free(data);
}

static void several_outstanding(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, several_body, NULL);
    }
}

/* Tested until it ends, without any blocking call. */
static void tested_body(const struct rank *rank) {
    for (int i = 0; i < 20; i++) {
        rota_request *request = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.request = &request;
        int64_t in = rank->rank + i, out = 0;
        CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_MAX, rank->comm, &call));
        bool done = false;
        int64_t until = now_ms() + 15000;
        while (!done && now_ms() < until)
            CHECK_OK(rota_request_test(request, &done));
        CHECK(done && out == rank->nranks - 1 + i, "done %d, value %lld", done, (long long)out);
        CHECK_OK(rota_request_free(request));
    }
}

static void tested_until_done(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, tested_body, NULL);
    }
}

/* Nobody waits or tests: the progress thread alone brings them to their end, also when freed. */
static void freed_body(const struct rank *rank) {
    int32_t in[3][100], out[3][100];
    memset(out, 0, sizeof(out));
    for (int i = 0; i < 3; i++) {
        rota_request *request = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.request = &request;
        for (int j = 0; j < 100; j++)
            in[i][j] = i + j + rank->rank;
        CHECK_OK(rota_all_reduce(in[i], out[i], 100, ROTA_INT32, ROTA_MIN, rank->comm, &call));
        CHECK_OK(rota_request_free(request));
    }
    CHECK_OK(rota_barrier(rank->comm, NULL));
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 100; j++)
            CHECK(out[i][j] == i + j, "freed request %d element %d: %d", i, j, out[i][j]);
}

static void freed_before_the_end(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, freed_body, NULL);
    }
}

/* Large ones, which their caller does not begin itself: of two communicators, whose other rank
 * calls them later and the other way round. */
enum { LARGE = 300000 };

static void note_done(void *arg, rota_status status) {
    atomic_fetch_add((_Atomic int *)arg, status == ROTA_OK ? 1 : 100);
}

static void large_body(const struct rank *rank) {
    rota_comm *comms[2] = {rank->comm, NULL};
    CHECK_OK(rota_comm_duplicate(rank->comm, &comms[1], NULL));
    rota_request *requests[2];
    _Atomic int done = 0;
    int32_t *data = malloc(4 * sizeof(*data) * LARGE);
    for (int turn = 0; turn < 2; turn++) {
        int i = rank->rank == 0 ? turn : 1 - turn;
        int32_t *in = data + 2 * i * LARGE, *out = in + LARGE;
        for (int j = 0; j < LARGE; j++)
            in[j] = j + i + rank->rank;
        rota_call call = ROTA_CALL_INIT;
        if (rank->rank == 0) {
            call.request = &requests[i];
            call.done = note_done;
            call.done_arg = &done;
        }
        if (rank->rank != 0)
            sleep_ms(60);
        CHECK_OK(rota_all_reduce(in, out, LARGE, ROTA_INT32, ROTA_SUM, comms[i], &call));
    }
    /* Outside the library until both have ended. */
    for (int64_t until = now_ms() + 15000; rank->rank == 0 && done < 2 && now_ms() < until;)
        sleep_ms(1);
    CHECK(rank->rank != 0 || done == 2, "%d of 2 done", done);
    for (int i = 0; i < 2; i++) {
        const int32_t *out = data + (2 * i + 1) * LARGE;
        if (rank->rank == 0)
            CHECK_OK(rota_request_free(requests[i]));
        for (int j = 0; j < LARGE; j++)
            CHECK(out[j] == 2 * (j + i) + 1, "call %d element %d: %d", i, j, out[j]);
    }
    CHECK_OK(rota_comm_destroy(comms[1]));
    free(data);
}

static void large_ones_left_alone(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, large_body, NULL);
    }
}

/* A wait that ends early leaves the operation alone. */
static void wait_body(const struct rank *rank) {
    int32_t value = rank->rank + 1, sum = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    if (rank->rank == 1)
        sleep_ms(150);
    CHECK_OK(rota_all_reduce(&value, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    if (rank->rank == 0) {
        int64_t began = now_ms();
        CHECK_STATUS(rota_request_wait(request, 30), ROTA_ERR_TIMEOUT);
        CHECK(now_ms() - began >= 30, "waited %lld ms", (long long)(now_ms() - began));
    }
    CHECK_OK(rota_request_wait(request, 0));
    CHECK(sum == 3, "sum %d", sum);
    CHECK_OK(rota_request_free(request));
    CHECK_OK(rota_comm_query(rank->comm));
}

static void wait_with_limit(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, wait_body, NULL);
    }
}

/* A chain of operations: each is started by the call-back of the one before. */
struct chain {
    rota_comm *comm;
    int nranks;
    int32_t in, out;
    rota_request *requests[CHAIN];
    int started;
    _Atomic int ended, errors;
};

static void chain_next(struct chain *chain);

static void chain_done(void *arg, rota_status status) {
    struct chain *chain = arg;
    if (status != ROTA_OK || chain->out != chain->nranks * chain->in)
        atomic_fetch_add(&chain->errors, 1);
    if (chain->started < CHAIN)
        chain_next(chain);
    atomic_fetch_add(&chain->ended, 1);
}

static void chain_next(struct chain *chain) {
    rota_call call = ROTA_CALL_INIT;
    int number = chain->started++;
    chain->in = number + 3;
    chain->out = 0;
    call.request = &chain->requests[number];
    call.done = chain_done;
    call.done_arg = chain;
    rota_status status =
        rota_all_reduce(&chain->in, &chain->out, 1, ROTA_INT32, ROTA_SUM, chain->comm, &call);
    if (status != ROTA_OK) {
        atomic_fetch_add(&chain->errors, 1);
        atomic_fetch_add(&chain->ended, CHAIN - number);
    }
}

static void chain_body(const struct rank *rank) {
    struct chain chain = {.comm = rank->comm, .nranks = rank->nranks};
    chain_next(&chain);
    int64_t until = now_ms() + 15000;
    while (atomic_load(&chain.ended) < CHAIN && now_ms() < until)
        sleep_ms(1);
    CHECK(atomic_load(&chain.ended) == CHAIN && atomic_load(&chain.errors) == 0,
          "%d ended, %d errors", atomic_load(&chain.ended), atomic_load(&chain.errors));
    for (int i = 0; i < chain.started; i++) {
        CHECK_OK(rota_request_wait(chain.requests[i], 0));
        CHECK_OK(rota_request_free(chain.requests[i]));
    }
}

static void callback_starts_operations(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, chain_body, NULL);
        ranks_run(1, 20000, chain_body, NULL);
    }
}

/* -- C37, C38 ---------------------------------------------------------------------------------- */

static void c37_pair_body(const struct rank *rank) {
    const int *number = rank->arg;
    for (int i = 0; i < 100; i++) {
        int64_t in[3] = {*number, i, 7}, out[3] = {0};
        CHECK_OK(rota_all_reduce(in, out, 3, ROTA_INT64, ROTA_SUM, rank->comm, NULL));
        CHECK(out[0] == 2 * *number && out[1] == 2 * i && out[2] == 14,
              "communicator %d iteration %d: %lld %lld %lld", *number, i, (long long)out[0],
              (long long)out[1], (long long)out[2]);
    }
}

static void *c37_thread(void *arg) {
    ranks_run(2, 20000, c37_pair_body, arg);
    return NULL;
}

static void run_threads(void *(*body)(void *arg)) {
    pthread_t threads[4];
    int numbers[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, body, &numbers[i]);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void C37_many_communicators_in_threads(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        run_threads(c37_thread);
    }
}

static void *c37_shared_thread(void *arg) {
    rota_comm *comm = arg;
    int done = 0;
    int64_t until = now_ms() + 20000;
    while (done < 25 && now_ms() < until) {
        int64_t in = 7, out = 0;
        rota_status status = rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_SUM, comm, NULL);
        if (status == ROTA_ERR_BUSY) {
            sleep_ms(0);
            continue;
        }
        CHECK(status == ROTA_OK && out == 14, "%s, %lld", rota_status_name(status), (long long)out);
        done++;
    }
    CHECK(done == 25, "only %d calls got through", done);
    return NULL;
}

static void c37_shared_body(const struct rank *rank) {
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, c37_shared_thread, rank->comm);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

static void C37_threads_on_one_communicator(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, c37_shared_body, NULL);
    }
}

/* Where nobody takes the core from a thread that tries again and again. */
static void C37_threads_of_a_real_time_process(void) {
    const struct sched_param real_time = {.sched_priority = 1}, usual = {0};
    if (sched_setscheduler(0, SCHED_RR, &real_time) != 0) {
        printf("    skipped: no real-time policy here\n");
        return;
    }
    int64_t began = now_ms();
    ranks_run(2, 20000, c37_shared_body, NULL);
    CHECK(now_ms() - began < 5000, "took %lld ms", (long long)(now_ms() - began));
    sched_setscheduler(0, SCHED_OTHER, &usual);
}

static void c38_body(const struct rank *rank) {
    int32_t one = 1, sum = 0;
    CHECK_OK(rota_all_reduce(&one, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
    CHECK(sum == 2, "sum %d", sum);
}

static void *c38_thread(void *arg) {
    for (int i = 0; i < 8; i++)
        ranks_run(2, 20000, c38_body, arg);
    return NULL;
}

static void C38_init_in_many_threads(void) {
    run_threads(c38_thread);
    way_take(&ways[2]);
    run_threads(c38_thread);
}

/* -- C34 --------------------------------------------------------------------------------------- */

static void c34_body(const struct rank *rank) {
    int other = 1 - rank->rank;
    for (int i = 0; i < 10; i++) {
        int32_t in[200], out[200], got = -1, mine = 10 * i + rank->rank;
        for (int j = 0; j < 200; j++)
            in[j] = i + j;
        size_t count = i % 2 == 0 ? 2 : 200;
        CHECK_OK(rota_all_reduce(in, out, count, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
        for (size_t j = 0; j < count; j++)
            CHECK(out[j] == 2 * (i + (int)j), "call %d element %zu: %d", i, j, out[j]);
        rota_request *request = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.request = &request;
        CHECK_OK(rota_recv(&got, 1, ROTA_INT32, other, i % 2, rank->comm, NULL, &call));
        CHECK_OK(rota_send(&mine, 1, ROTA_INT32, other, i % 2, rank->comm, NULL));
        CHECK_OK(rota_request_wait(request, 0));
        CHECK_OK(rota_request_free(request));
        CHECK(got == 10 * i + other, "message %d: %d", i, got);
    }
}

static void C34_sequence_numbers_wrap(void) {
    static const char *const starts[] = {"2147483645", "4294967293", "9223372036854775795"};
    for (size_t s = 0; s < 3; s++) {
        setenv("ROTA_TEST_SEQUENCE_START", starts[s], 1);
        for (const struct way *way = ways; way->name != NULL; way++) {
            way_take(way);
            ranks_run(2, 10000, c34_body, NULL);
        }
    }
    unsetenv("ROTA_TEST_SEQUENCE_START");
}

/* -- a thread that sleeps ---------------------------------------------------------------------- */

/* A message that nobody asks for yet lies there, and the progress thread does not turn for it. */
static void idle_body(const struct rank *rank) {
    rota_comm *comm = rank->comm;
    int32_t in = rank->rank, out = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, comm, &call));
    CHECK_OK(rota_request_wait(request, 0));
    CHECK_OK(rota_request_free(request));
    for (int m = 0; m < 2 && rank->rank == 1; m++)
        CHECK_OK(rota_send(&in, 1, ROTA_INT32, 0, 0, comm, NULL));
    struct timespec before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    sleep_ms(300);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t used =
        (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
    CHECK(used < 150, "%lld ms of processor in 300 ms", (long long)used);
    for (int m = 0; m < 2 && rank->rank == 0; m++) {
        CHECK_OK(rota_recv(&out, 1, ROTA_INT32, 1, 0, comm, NULL, NULL));
        CHECK(out == 1, "message %d: %d", m, out);
    }
}

static void idle_ranks_use_no_processor(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, idle_body, NULL);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"several_outstanding", several_outstanding},
        {"tested_until_done", tested_until_done},
        {"freed_before_the_end", freed_before_the_end},
        {"large_ones_left_alone", large_ones_left_alone},
        {"wait_with_limit", wait_with_limit},
        {"callback_starts_operations", callback_starts_operations},
        {"idle_ranks_use_no_processor", idle_ranks_use_no_processor},
        {"C34_sequence_numbers_wrap", C34_sequence_numbers_wrap},
        {"C37_many_communicators_in_threads", C37_many_communicators_in_threads},
        {"C37_threads_on_one_communicator", C37_threads_on_one_communicator},
        {"C37_threads_of_a_real_time_process", C37_threads_of_a_real_time_process},
        {"C38_init_in_many_threads", C38_init_in_many_threads},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
