/* Calls that cannot succeed: contradicting, late, missing, aborted, destroyed. Every one ends in an
 * error within its time on every rank, and says what it waited for. */
#include "ranks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define T_MS 250
#define LATE_MS (T_MS + 2000)
#define EARLY_MS 100
#define NUMBERS 40000 /* more than native forms and single slices take */

struct outcome {
    rota_status status;
    int64_t took_ms;
    rota_error error; /* of the communicator */
};

/* -- C44, C45: contradicting calls ------------------------------------------------------------- */

struct call {
    rota_kind kind;
    size_t count;
    rota_dtype dtype;
    rota_op op;
    int root;
    const char *algorithm;
};

struct contradiction {
    const char *name;
    struct call odd, others;
    int odd_rank;
    bool next_call; /* nobody needs to wait in the call itself: the next one finds it */
    struct outcome outcomes[4];
};

static rota_status make_call(rota_comm *comm, const struct call *what, void *in, void *out) {
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = what->algorithm;
    switch (what->kind) {
    case ROTA_KIND_ALL_REDUCE:
        return rota_all_reduce(in, out, what->count, what->dtype, what->op, comm, &call);
    case ROTA_KIND_BROADCAST:
        return rota_broadcast(in, out, what->count, what->dtype, what->root, comm, &call);
    case ROTA_KIND_ALL_GATHER:
        return rota_all_gather(in, out, what->count, what->dtype, comm, &call);
    case ROTA_KIND_REDUCE:
        return rota_reduce(in, out, what->count, what->dtype, what->op, what->root, comm, &call);
    default:
        return rota_barrier(comm, &call);
    }
}

static void contradiction_body(const struct rank *rank) {
    struct contradiction *test = rank->arg;
    struct outcome *outcome = &test->outcomes[rank->rank];
    void *in = calloc(NUMBERS, 8), *out = calloc((size_t)rank->nranks * NUMBERS, 8);
    /* A right call first, so that the contradiction is not the first use. */
    int32_t one = 1, sum = 0;
    outcome->status = rota_all_reduce(&one, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL);
    rota_comm_set_timeout(rank->comm, T_MS);
    int64_t began = now_ms();
    /* The others may have contradicted each other before this rank has the result. */
    if (outcome->status == ROTA_OK)
        outcome->status = make_call(
            rank->comm, rank->rank == test->odd_rank ? &test->odd : &test->others, in, out);
    const struct call next = {ROTA_KIND_ALL_REDUCE, 9, ROTA_INT32, ROTA_SUM, 0, "direct"};
    if (outcome->status == ROTA_OK && test->next_call)
        outcome->status = make_call(rank->comm, &next, in, out);
    outcome->took_ms = now_ms() - began;
    outcome->error = (rota_error)ROTA_ERROR_INIT;
    CHECK_OK(rota_comm_error(rank->comm, &outcome->error));
    free(in);
    free(out);
}

/* At least one rank says that the calls contradict, and which rank it disagrees with; nobody
 * succeeds; nobody is late. */
static void check_contradiction(struct contradiction *test, int nranks) {
    int mismatches = 0, timeouts = 0;
    ranks_run(nranks, 10000, contradiction_body, test);
    for (int r = 0; r < nranks; r++) {
        const struct outcome *outcome = &test->outcomes[r];
        mismatches += outcome->status == ROTA_ERR_MISMATCH;
        timeouts += outcome->status == ROTA_ERR_TIMEOUT;
        if (test->next_call && outcome->status == ROTA_OK)
            continue; /* it had all that it needed */
        CHECK(outcome->status != ROTA_OK, "%s: rank %d succeeded", test->name, r);
        CHECK(outcome->took_ms < LATE_MS, "%s: rank %d took %lld ms", test->name, r,
              (long long)outcome->took_ms);
        CHECK(outcome->error.status == outcome->status && outcome->error.message[0] != '\0',
              "%s: rank %d got %s but its communicator says %s", test->name, r,
              rota_status_name(outcome->status), rota_status_name(outcome->error.status));
        if (outcome->status == ROTA_ERR_MISMATCH)
            CHECK(strstr(outcome->error.message, "rank") != NULL && outcome->error.peer >= 0,
                  "%s: rank %d names no rank: %s", test->name, r, outcome->error.message);
    }
    /* Where all wait and nobody has sent anything there is nothing to find a mismatch by. */
    CHECK(mismatches > 0 || (test->next_call && timeouts == nranks),
          "%s: no rank found the mismatch: %s; %s", test->name, test->outcomes[0].error.message,
          test->outcomes[1].error.message);
}

#define CALL(...) ((struct call){__VA_ARGS__})
static const struct call plain = {ROTA_KIND_ALL_REDUCE, 100, ROTA_FLOAT32, ROTA_SUM, 0, NULL};

static void contradict(const char *name, struct call odd, struct call others) {
    bool rooted = odd.kind == ROTA_KIND_REDUCE || odd.kind == ROTA_KIND_BROADCAST;
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        for (int odd_rank = 0; odd_rank < 3; odd_rank += 2) {
            struct contradiction test = {.name = name,
                                         .odd = odd,
                                         .others = others,
                                         .odd_rank = odd_rank,
                                         .next_call = rooted};
            check_contradiction(&test, 3);
        }
    }
}

static void C44_different_counts(void) {
    struct call odd = plain;
    odd.count = 98;
    contradict("count", odd, plain);
    odd.count = 0;
    contradict("no count", odd, plain);
    struct call large = plain;
    large.count = NUMBERS;
    odd.count = NUMBERS - 2;
    contradict("large count", odd, large);
    contradict("small and large count", plain, large);
}

static void C45_different_calls(void) {
    struct call odd = plain;
    odd.dtype = ROTA_FLOAT64;
    odd.count = 50;
    contradict("dtype of the same bytes", odd, plain);
    odd = plain;
    odd.dtype = ROTA_INT32;
    contradict("dtype", odd, plain);
    odd = plain;
    odd.op = ROTA_MAX;
    contradict("op", odd, plain);
    contradict("kind", CALL(ROTA_KIND_ALL_GATHER, 100, ROTA_FLOAT32, 0, 0, NULL), plain);
    contradict("barrier", CALL(ROTA_KIND_BARRIER, 0, ROTA_FLOAT32, 0, 0, NULL), plain);
    contradict("root", CALL(ROTA_KIND_REDUCE, 100, ROTA_FLOAT32, ROTA_SUM, 1, NULL),
               CALL(ROTA_KIND_REDUCE, 100, ROTA_FLOAT32, ROTA_SUM, 0, NULL));
    contradict("root of a broadcast", CALL(ROTA_KIND_BROADCAST, 100, ROTA_FLOAT32, 0, 1, NULL),
               CALL(ROTA_KIND_BROADCAST, 100, ROTA_FLOAT32, 0, 0, NULL));
    odd = plain;
    odd.algorithm = "ring";
    struct call other = plain;
    other.algorithm = "recursive_doubling";
    contradict("algorithm", odd, other);
}

/* -- C27: one rank's argument is refused ------------------------------------------------------- */

static void c27_body(const struct rank *rank) {
    int32_t data[8] = {0}, out[8];
    rota_comm_set_timeout(rank->comm, T_MS);
    int64_t began = now_ms();
    rota_status status = rota_all_reduce(data, rank->rank == 1 ? data + 1 : out, 7, ROTA_INT32,
                                         ROTA_SUM, rank->comm, NULL);
    int64_t took = now_ms() - began;
    if (rank->rank == 1)
        CHECK(status == ROTA_ERR_ARGUMENT && took < 200, "%s after %lld ms",
              rota_status_name(status), (long long)took);
    else
        CHECK(status != ROTA_OK && status != ROTA_ERR_ARGUMENT && took < LATE_MS,
              "%s after %lld ms", rota_status_name(status), (long long)took);
}

static void C27_overlap_on_one_rank(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, T_MS, c27_body, NULL);
    }
}

/* -- C54, C55: a rank that does not come ------------------------------------------------------- */

static void absent_body(const struct rank *rank) {
    enum { ABSENT = 2 };
    const size_t count = *(const size_t *)rank->arg;
    float *in = calloc(count, sizeof(*in)), *out = calloc(count, sizeof(*out));
    CHECK_OK(rota_barrier(rank->comm, NULL));
    CHECK_OK(rota_barrier(rank->comm, NULL));
    if (rank->rank == ABSENT) {
        sleep_ms(T_MS + 150);
    } else {
        char text[32];
        rota_call call = ROTA_CALL_INIT;
        call.timeout_ms = T_MS;
        call.label = "gradients";
        int64_t began = now_ms();
        CHECK_STATUS(rota_all_reduce(in, out, count, ROTA_FLOAT32, ROTA_MAX, rank->comm, &call),
                     ROTA_ERR_TIMEOUT);
        int64_t took = now_ms() - began;
        /* The other rank's deadline ends it too, and may be a little earlier. */
        CHECK(took >= T_MS - EARLY_MS && took < LATE_MS, "took %lld ms", (long long)took);
        rota_error error = ROTA_ERROR_INIT;
        CHECK_OK(rota_comm_error(rank->comm, &error));
        CHECK(error.status == ROTA_ERR_TIMEOUT && error.kind == ROTA_KIND_ALL_REDUCE, "%d %d",
              (int)error.status, error.kind);
        CHECK(error.sequence == 3 && error.waited_ms >= T_MS - EARLY_MS &&
                  error.waited_ms < LATE_MS,
              "sequence %llu, waited %llu", (unsigned long long)error.sequence,
              (unsigned long long)error.waited_ms);
        CHECK(error.peer >= 0 && error.culprit_count > 0 && error.culprits[0] == error.peer,
              "peer %d, %d culprits", error.peer, error.culprit_count);
        CHECK(strcmp(error.comm_name, "world") == 0, "communicator \"%s\"", error.comm_name);
        snprintf(text, sizeof(text), "%zu)", count);
        const char *const words[] = {"all_reduce #3",
                                     "float32 max",
                                     text,
                                     "gradients",
                                     "rank",
                                     "waited",
                                     rank->rank == 0 ? "rank 0 of 3" : "rank 1 of 3"};
        for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
            CHECK(strstr(error.message, words[i]) != NULL, "\"%s\" lacks \"%s\"", error.message,
                  words[i]);
        /* The communicator is done for, and says so at once. */
        CHECK_STATUS(rota_barrier(rank->comm, NULL), ROTA_ERR_TIMEOUT);
        CHECK_STATUS(rota_comm_query(rank->comm), ROTA_ERR_TIMEOUT);
    }
    free(in);
    free(out);
}

static void C55_absent_rank_is_named(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        size_t counts[] = {2, 1000, NUMBERS};
        for (int i = 0; i < 3; i++)
            ranks_run(3, 10000, absent_body, &counts[i]);
    }
}

/* A request ends in the same way, and so does a receive. */
static void absent_peer_body(const struct rank *rank) {
    CHECK_OK(rota_barrier(rank->comm, NULL));
    if (rank->rank == 1) {
        sleep_ms(T_MS + 300);
        return;
    }
    int32_t in = 0, out = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = T_MS;
    call.request = &request;
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    CHECK_STATUS(rota_request_wait(request, 0), ROTA_ERR_TIMEOUT);
    rota_error error = ROTA_ERROR_INIT;
    CHECK_OK(rota_request_error(request, &error));
    CHECK(error.peer == 1 && error.culprit_count == 1 && error.culprits[0] == 1, "peer %d: %s",
          error.peer, error.message);
    CHECK_OK(rota_request_free(request));
}

static void absent_request_body(const struct rank *rank) {
    if (rank->rank == 0) {
        int32_t value = 0;
        rota_request *request = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.timeout_ms = T_MS;
        call.request = &request;
        CHECK_OK(rota_recv(&value, 1, ROTA_INT32, 1, 12, rank->comm, NULL, &call));
        int64_t began = now_ms();
        CHECK_STATUS(rota_request_wait(request, 0), ROTA_ERR_TIMEOUT);
        CHECK(now_ms() - began < LATE_MS, "took %lld ms", (long long)(now_ms() - began));
        rota_error error = ROTA_ERROR_INIT;
        CHECK_OK(rota_request_error(request, &error));
        CHECK(error.status == ROTA_ERR_TIMEOUT && error.peer == 1 && error.kind == ROTA_KIND_RECV,
              "%s peer %d", rota_status_name(error.status), error.peer);
        CHECK(strstr(error.message, "recv") != NULL && strstr(error.message, "tag 12") != NULL,
              "%s", error.message);
        CHECK_OK(rota_request_free(request));
    } else {
        sleep_ms(T_MS + 300);
    }
}

static void C55_absent_sender_is_named(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 10000, absent_request_body, NULL);
        ranks_run(2, 10000, absent_peer_body, NULL);
    }
}

/* -- C48, C50: abort and destroy --------------------------------------------------------------- */

struct abort_test {
    size_t count;
    bool destroy;
    _Atomic int blocked;
};

static void *abort_it(void *comm) {
    int64_t began = now_ms();
    CHECK_OK(rota_comm_abort(comm));
    CHECK(now_ms() - began < 1000, "abort took %lld ms", (long long)(now_ms() - began));
    return NULL;
}

static void *destroy_it(void *comm) {
    int64_t began = now_ms();
    CHECK_OK(rota_comm_destroy(comm));
    CHECK(now_ms() - began < 1000, "destroy took %lld ms", (long long)(now_ms() - began));
    return NULL;
}

static void *blocked_call(void *arg) {
    const struct rank *rank = arg;
    struct abort_test *test = rank->arg;
    int32_t *in = calloc(test->count, sizeof(*in)), *out = calloc(test->count, sizeof(*out));
    atomic_fetch_add(&test->blocked, 1);
    rota_status status =
        rota_all_reduce(in, out, test->count, ROTA_INT32, ROTA_SUM, rank->comm, NULL);
    /* Whose peer ends first may hear of that before it is ended itself. */
    CHECK(status == ROTA_ERR_ABORTED || status == ROTA_ERR_PEER, "%s: %s", rota_status_name(status),
          last_error()->message);
    free(in);
    free(out);
    return NULL;
}

static void abort_body(const struct rank *rank) {
    struct abort_test *test = rank->arg;
    CHECK_OK(rota_barrier(rank->comm, NULL));
    if (rank->rank == 2)
        return; /* never calls */
    pthread_t caller, first, second;
    int64_t began = now_ms();
    pthread_create(&caller, NULL, blocked_call, (void *)(uintptr_t)rank);
    while (atomic_load(&test->blocked) < 2)
        sleep_ms(1);
    sleep_ms(30);
    if (test->destroy) {
        pthread_create(&first, NULL, destroy_it, rank->comm);
        pthread_join(first, NULL);
        rank->comms[rank->rank] = NULL;
    } else {
        pthread_create(&first, NULL, abort_it, rank->comm);
        pthread_create(&second, NULL, abort_it, rank->comm);
        pthread_join(first, NULL);
        pthread_join(second, NULL);
    }
    pthread_join(caller, NULL);
    CHECK(now_ms() - began < 2000, "took %lld ms", (long long)(now_ms() - began));
}

static void abort_all_ways(bool destroy) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        size_t counts[] = {2, 1000, 300000};
        for (int i = 0; i < 3; i++) {
            struct abort_test test = {.count = counts[i], .destroy = destroy};
            ranks_run(3, 60000, abort_body, &test);
        }
    }
}

static void C48_abort_while_blocked(void) {
    abort_all_ways(false);
}

static void C50_destroy_while_blocked(void) {
    abort_all_ways(true);
}

/* A destroyed communicator ends its requests, which stay valid until they are freed. */
static void outstanding_body(const struct rank *rank) {
    if (rank->rank == 1)
        return;
    int32_t in[2] = {1, 2}, out[2], got;
    rota_request *requests[2];
    rota_call call = ROTA_CALL_INIT;
    call.request = &requests[0];
    CHECK_OK(rota_all_reduce(in, out, 2, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    call.request = &requests[1];
    CHECK_OK(rota_recv(&got, 1, ROTA_INT32, ROTA_ANY_SOURCE, 0, rank->comm, NULL, &call));
    CHECK_OK(rota_comm_destroy(rank->comm));
    CHECK_STATUS(rota_comm_destroy(rank->comm), ROTA_ERR_ARGUMENT);
    rank->comms[0] = NULL;
    for (int i = 0; i < 2; i++) {
        CHECK_STATUS(rota_request_wait(requests[i], 0), ROTA_ERR_ABORTED);
        rota_error error = ROTA_ERROR_INIT;
        CHECK_OK(rota_request_error(requests[i], &error));
        CHECK(error.status == ROTA_ERR_ABORTED, "%s", rota_status_name(error.status));
        CHECK_OK(rota_request_free(requests[i]));
    }
}

static void C50_destroy_with_outstanding_requests(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 10000, outstanding_body, NULL);
    }
}

/* One rank goes; those that wait for it learn of it. */
static void leaver_body(const struct rank *rank) {
    int32_t value = 1, sum = 0;
    CHECK_OK(rota_all_reduce(&value, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
    if (rank->rank == 1) {
        CHECK_OK(rota_comm_destroy(rank->comm));
        rank->comms[1] = NULL;
        return;
    }
    int64_t began = now_ms();
    rota_status status = rota_all_reduce(&value, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, NULL);
    CHECK(status != ROTA_OK && now_ms() - began < 3000 + 2000, "%s after %lld ms",
          rota_status_name(status), (long long)(now_ms() - began));
}

static void C50_one_rank_leaves(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 3000, leaver_body, NULL);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C27_overlap_on_one_rank", C27_overlap_on_one_rank},
        {"C44_different_counts", C44_different_counts},
        {"C45_different_calls", C45_different_calls},
        {"C48_abort_while_blocked", C48_abort_while_blocked},
        {"C50_destroy_while_blocked", C50_destroy_while_blocked},
        {"C50_destroy_with_outstanding_requests", C50_destroy_with_outstanding_requests},
        {"C50_one_rank_leaves", C50_one_rank_leaves},
        {"C55_absent_rank_is_named", C55_absent_rank_is_named},
        {"C55_absent_sender_is_named", C55_absent_sender_is_named},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
