/* Groups of operations, and waiting for several requests. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

static rota_call in_group(rota_group *group) {
    rota_call call = ROTA_CALL_INIT;
    call.group = group;
    return call;
}

/* C41: everybody sends to the right and receives from the left, in one group, large and small. */
static void ring(const struct rank *rank) {
    static const size_t counts[] = {1, 1000, 3000000};
    int n = rank->nranks, right = (rank->rank + 1) % n, left = (rank->rank + n - 1) % n;
    for (size_t i = 0; i < 3; i++) {
        size_t count = counts[i];
        int32_t *send = malloc(count * sizeof(*send)), *recv = calloc(count, sizeof(*recv));
        for (size_t j = 0; j < count; j++)
            send[j] = rank->rank * 7 + (int32_t)j;
        rota_group *group = NULL;
        CHECK_OK(rota_group_begin(&group));
        rota_call call = in_group(group);
        CHECK_OK(rota_send(send, count, ROTA_INT32, right, 5, rank->comm, &call));
        CHECK_OK(rota_recv(recv, count, ROTA_INT32, left, 5, rank->comm, NULL, &call));
        CHECK_OK(rota_group_end(group, NULL));
        for (size_t j = 0; j < count; j++)
            if (recv[j] != left * 7 + (int32_t)j) {
                CHECK(false, "element %zu of %zu", j, count);
                break;
            }
        free(send);
        free(recv);
    }
}

static void C41_sends_in_a_circle(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(1, 20000, ring, NULL);
        ranks_run(2, 20000, ring, NULL);
        ranks_run(5, 20000, ring, NULL);
    }
}

/* C42: messages match in the order in which they were recorded; one side groups, the other not. */
static void order(const struct rank *rank) {
    int32_t a[2] = {1, 2}, b[3] = {3, 4, 5}, c[2] = {0}, d[3] = {0};
    rota_group *group = NULL;
    if (rank->rank == 0) {
        CHECK_OK(rota_group_begin(&group));
        rota_call call = in_group(group);
        CHECK_OK(rota_send(a, 2, ROTA_INT32, 1, 1, rank->comm, &call));
        CHECK_OK(rota_send(b, 3, ROTA_INT32, 1, 1, rank->comm, &call));
        CHECK_OK(rota_group_end(group, NULL));
    } else {
        CHECK_OK(rota_recv(c, 2, ROTA_INT32, 0, 1, rank->comm, NULL, NULL));
        CHECK_OK(rota_recv(d, 3, ROTA_INT32, 0, 1, rank->comm, NULL, NULL));
        CHECK(c[0] == 1 && c[1] == 2 && d[0] == 3 && d[2] == 5, "wrong order");
    }
    /* a call that is refused: the end tells, nothing starts, and the next call works */
    CHECK_OK(rota_group_begin(&group));
    rota_call call = in_group(group);
    CHECK_OK(rota_send(a, 2, ROTA_INT32, 1 - rank->rank, 2, rank->comm, &call));
    CHECK_STATUS(rota_send(a, 2, ROTA_INT32, 9, 2, rank->comm, &call), ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_group_end(group, NULL), ROTA_ERR_ARGUMENT);
    CHECK(strstr(last_error()->message, "dest") != NULL, "%s", last_error()->message);
    int64_t one = 1, sum = 0;
    CHECK_OK(rota_all_reduce(&one, &sum, 1, ROTA_INT64, ROTA_SUM, rank->comm, NULL));
    CHECK(sum == 2, "sum %lld", (long long)sum);
}

static void nested(const struct rank *rank) {
    int64_t one = 1 + rank->rank, sum = 0, product = 0;
    rota_group *outer = NULL, *inner = NULL;
    CHECK_OK(rota_group_begin(&outer));
    CHECK_OK(rota_group_begin(&inner));
    rota_call call = in_group(inner);
    CHECK_OK(
        rota_all_reduce(&one, &sum, 1, ROTA_INT64, ROTA_SUM, rank->comm, &call)); /* before ... */
    CHECK_OK(rota_group_add(outer, inner));
    CHECK_OK(rota_all_reduce(&one, &product, 1, ROTA_INT64, ROTA_PROD, rank->comm, &call));
    CHECK_STATUS(rota_group_add(inner, outer), ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_group_end(outer, NULL), ROTA_ERR_STATE);
    CHECK_OK(rota_group_end(inner, NULL)); /* ... and after: nothing has started */
    CHECK(sum == 0 && product == 0, "started too early");
    CHECK_OK(rota_group_end(outer, NULL));
    CHECK(sum == 3 && product == 2, "sum %lld, product %lld", (long long)sum, (long long)product);
    CHECK_STATUS(rota_group_end(NULL, NULL), ROTA_ERR_ARGUMENT);
}

static void C42_orders_and_nesting(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, order, NULL);
        ranks_run(2, 20000, nested, NULL);
    }
}

/* C39: collectives of two communicators, which the ranks record in opposite order. */
static void opposite(const struct rank *rank) {
    rota_comm *comms[2];
    CHECK_OK(rota_comm_duplicate(rank->comm, &comms[0], NULL));
    CHECK_OK(rota_comm_duplicate(rank->comm, &comms[1], NULL));
    for (int round = 0; round < 20; round++) {
        int64_t in = round + 1, out[2] = {0};
        rota_request *request = NULL;
        rota_group *group = NULL;
        CHECK_OK(rota_group_begin(&group));
        rota_call call = in_group(group), end = ROTA_CALL_INIT;
        for (int i = 0; i < 2; i++) {
            int which = (i + rank->rank) % 2;
            CHECK_OK(
                rota_all_reduce(&in, &out[which], 1, ROTA_INT64, ROTA_SUM, comms[which], &call));
        }
        end.request = &request;
        CHECK_OK(rota_group_end(group, &end));
        CHECK_OK(rota_request_wait(request, 0));
        CHECK_OK(rota_request_free(request));
        CHECK(out[0] == 2 * in && out[1] == 2 * in, "%lld and %lld", (long long)out[0],
              (long long)out[1]);
    }
    CHECK_OK(rota_comm_destroy(comms[0]));
    CHECK_OK(rota_comm_destroy(comms[1]));
}

/* Three communicators of two over three ranks: A = {0,1}, B = {1,2}, C = {0,2}. */
static void make_pairs(const struct rank *rank, rota_comm *pair[3]) {
    static const int members[3][2] = {{0, 1}, {1, 2}, {0, 2}};
    static const char *const names[3] = {"A", "B", "C"};
    for (int i = 0; i < 3; i++) {
        bool inside = rank->rank == members[i][0] || rank->rank == members[i][1];
        CHECK_OK(rota_comm_split(rank->comm, inside ? 0 : ROTA_COLOR_UNDEFINED, 0, names[i],
                                 &pair[i], NULL));
    }
}

static void same_order(const struct rank *rank) {
    rota_comm *pair[3];
    make_pairs(rank, pair);
    for (int round = 0; round < 1000; round++) {
        for (int i = 0; i < 3; i++) {
            int64_t in = round + i, out = 0;
            if (pair[i] == NULL)
                continue;
            CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_SUM, pair[i], NULL));
            CHECK(out == 2 * in, "%lld in round %d", (long long)out, round);
        }
    }
    for (int i = 0; i < 3; i++)
        CHECK_OK(rota_comm_destroy(pair[i]));
}

/* Each rank waits for the next one: all end by their deadline, and say where they waited. */
static void circle(const struct rank *rank) {
    static const int first[3] = {0, 1, 2}; /* rank 0 A then C, rank 1 B then A, rank 2 C then B */
    static const char *const name[3] = {"on A,", "on B,", "on C,"};
    rota_comm *pair[3];
    make_pairs(rank, pair);
    int64_t in = 1, out = 0, began = now_ms();
    rota_comm *comm = pair[first[rank->rank]];
    CHECK_OK(rota_comm_set_timeout(comm, 700));
    CHECK_STATUS(rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_SUM, comm, NULL), ROTA_ERR_TIMEOUT);
    CHECK(now_ms() - began < 2700, "it took %lld ms", (long long)(now_ms() - began));
    CHECK(strstr(last_error()->message, "all_reduce") != NULL &&
              strstr(last_error()->message, name[first[rank->rank]]) != NULL &&
              strstr(last_error()->message, "for rank") != NULL,
          "%s", last_error()->message);
    sleep_ms(300); /* nobody leaves before the others have waited */
    for (int i = 0; i < 3; i++)
        CHECK_OK(rota_comm_destroy(pair[i]));
}

static void C39_overlapping_communicators(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, same_order, NULL);
        ranks_run(3, 20000, circle, NULL);
    }
}

static void C39_opposite_orders(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, opposite, NULL);
    }
}

/* One thread drives all ranks of a job. */
static void one_thread_many_ranks(void) {
    enum { N = 3 };
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        rota_comm *comms[N];
        CHECK_OK(rota_init_threads(N, comms, NULL));
        for (int round = 0; round < 5; round++) {
            int64_t in[N], out[N] = {0};
            rota_group *group = NULL;
            CHECK_OK(rota_group_begin(&group));
            rota_call call = in_group(group);
            for (int r = 0; r < N; r++) {
                in[r] = r + round;
                CHECK_OK(
                    rota_all_reduce(&in[r], &out[r], 1, ROTA_INT64, ROTA_MAX, comms[r], &call));
            }
            CHECK_OK(rota_group_end(group, NULL));
            for (int r = 0; r < N; r++)
                CHECK(out[r] == round + N - 1, "rank %d has %lld", r, (long long)out[r]);
        }
        for (int r = 0; r < N; r++)
            CHECK_OK(rota_comm_destroy(comms[r]));
    }
}

static uint64_t operations(rota_comm *comm) {
    rota_counters counters = ROTA_COUNTERS_INIT;
    CHECK_OK(rota_comm_counters(comm, &counters));
    return counters.operations;
}

/* 10 + 3 + 10 sums of 8 bytes with a maximum, a message and a large sum between, 64 bytes together
 * at most: as sums of 8, 2, then 3, then 8, 2. Messages do not part what is around them. */
static void fused(const struct rank *rank) {
    enum { RUN = 10, LARGE = 100 };
    int n = rank->nranks, me = rank->rank;
    int64_t in[2 * RUN + 3], out[2 * RUN + 3] = {0}, large[LARGE], most = me, message = me,
                                           got = -1;
    for (int i = 0; i < 2 * RUN + 3; i++)
        in[i] = 100 * me + i;
    for (int i = 0; i < LARGE; i++)
        large[i] = me + i;
    uint64_t before = operations(rank->comm);
    rota_group *group = NULL;
    CHECK_OK(rota_group_begin(&group));
    rota_call call = in_group(group);
    for (int i = 0; i < 2 * RUN + 3; i++) {
        if (i == RUN)
            CHECK_OK(rota_all_reduce(&most, &most, 1, ROTA_INT64, ROTA_MAX, rank->comm, &call));
        if (i == RUN + 1) {
            CHECK_OK(rota_send(&message, 1, ROTA_INT64, (me + 1) % n, 0, rank->comm, &call));
            CHECK_OK(rota_recv(&got, 1, ROTA_INT64, (me + n - 1) % n, 0, rank->comm, NULL, &call));
        }
        if (i == RUN + 3)
            CHECK_OK(rota_all_reduce(large, large, LARGE, ROTA_INT64, ROTA_SUM, rank->comm, &call));
        CHECK_OK(rota_all_reduce(&in[i], &out[i], 1, ROTA_INT64, ROTA_SUM, rank->comm, &call));
    }
    CHECK_OK(rota_group_end(group, NULL));
    for (int i = 0; i < 2 * RUN + 3; i++)
        CHECK(out[i] == 100 * n * (n - 1) / 2 + n * i, "sum %d is %lld", i, (long long)out[i]);
    for (int i = 0; i < LARGE; i++)
        CHECK(large[i] == n * (n - 1) / 2 + n * i, "sum %d is %lld", i, (long long)large[i]);
    CHECK(most == n - 1 && got == (me + n - 1) % n, "%lld, %lld", (long long)most, (long long)got);
    uint64_t calls = operations(rank->comm) - before;
    CHECK(calls == 2 + 1 + 1 + 1 + 2 + 2, "%llu operations", (unsigned long long)calls);
}

/* Divided otherwise on rank 1: as many elements in all, and yet another call. */
static void divided(const struct rank *rank) {
    int32_t in[4] = {1, 2, 3, 4}, out[4] = {0};
    size_t first = rank->rank == 1 ? 1 : 2;
    rota_group *group = NULL;
    CHECK_OK(rota_group_begin(&group));
    rota_call call = in_group(group);
    CHECK_OK(rota_all_reduce(in, out, first, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    CHECK_OK(rota_all_reduce(in + first, out + first, 4 - first, ROTA_INT32, ROTA_SUM, rank->comm,
                             &call));
    CHECK_STATUS(rota_group_end(group, NULL), ROTA_ERR_MISMATCH);
    CHECK(strstr(last_error()->message, "fused of a group's calls") != NULL, "%s",
          last_error()->message);
}

static void small_sums_go_together(void) {
    setenv("ROTA_FUSION_BYTES", "64", 1);
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(1, 20000, fused, NULL);
        ranks_run(2, 20000, fused, NULL);
        ranks_run(3, 20000, fused, NULL);
        ranks_run(3, 20000, divided, NULL);
    }
    one_thread_many_ranks();
    unsetenv("ROTA_FUSION_BYTES");
}

static void several(const struct rank *rank) {
    enum { COUNT = 4 };
    rota_request *requests[COUNT];
    int32_t values[COUNT] = {0};
    int peer = 1 - rank->rank, index = -1;
    for (int i = 0; i < COUNT; i++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[i];
        CHECK_OK(rota_recv(&values[i], 1, ROTA_INT32, peer, i, rank->comm, NULL, &call));
    }
    CHECK_STATUS(rota_request_wait_any(requests, COUNT, 20, &index), ROTA_ERR_TIMEOUT);
    CHECK_OK(rota_barrier(rank->comm, NULL));
    int32_t second = 22;
    CHECK_OK(rota_send(&second, 1, ROTA_INT32, peer, 2, rank->comm, NULL));
    CHECK_OK(rota_request_wait_any(requests, COUNT, 0, &index));
    CHECK(index == 2 && values[2] == 22, "request %d, value %d", index, values[2]);
    CHECK_STATUS(rota_request_wait_all(requests, COUNT, 20), ROTA_ERR_TIMEOUT);
    CHECK_OK(rota_barrier(rank->comm, NULL));
    for (int32_t i = 0; i < COUNT; i++)
        if (i != 2)
            CHECK_OK(rota_send(&i, 1, ROTA_INT32, peer, i, rank->comm, NULL));
    CHECK_OK(rota_request_wait_all(requests, COUNT, 0));
    for (int i = 0; i < COUNT; i++) {
        CHECK(values[i] == (i == 2 ? 22 : i), "value %d is %d", i, values[i]);
        CHECK_OK(rota_request_free(requests[i]));
    }
}

static void any_and_all(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, several, NULL);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C41_sends_in_a_circle", C41_sends_in_a_circle},
        {"C42_orders_and_nesting", C42_orders_and_nesting},
        {"C39_overlapping_communicators", C39_overlapping_communicators},
        {"C39_opposite_orders", C39_opposite_orders},
        {"one_thread_many_ranks", one_thread_many_ranks},
        {"small_sums_go_together", small_sums_go_together},
        {"any_and_all", any_and_all},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
