/* What can be given up before it has ended: a receive, a group; and what a call-back may read of an
 * operation that failed. */
#include "ranks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 5, LARGE = 1 << 20 };

static const size_t sizes[] = {8, 3000, 20000, 70000, LARGE};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

static uint8_t byte_of(int message, size_t i) {
    return (uint8_t)(message * 31 + (int)i * 7 + 1);
}

static void fill(uint8_t *data, size_t bytes, int message) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = byte_of(message, i);
}

static bool holds(const uint8_t *data, size_t bytes, int message) {
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != byte_of(message, i))
            return false;
    return true;
}

static rota_request *post(void *data, size_t bytes, int source, const struct rank *rank) {
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_recv(data, bytes, ROTA_UINT8, source, TAG, rank->comm, NULL, &call));
    return request;
}

static void expect_cancelled(rota_request *request) {
    bool done = false;
    rota_error error = ROTA_ERROR_INIT;
    CHECK_OK(rota_request_cancel(request));
    CHECK_STATUS(rota_request_test(request, &done), ROTA_ERR_ABORTED);
    CHECK(done, "a cancelled receive goes on");
    CHECK_OK(rota_request_error(request, &error));
    CHECK(error.status == ROTA_ERR_ABORTED && strstr(error.message, "cancelled") != NULL, "%s",
          error.message);
    CHECK_OK(rota_request_cancel(request)); /* once more is harmless */
    CHECK_OK(rota_request_free(request));
}

static void expect_message(rota_request *request, const uint8_t *data, size_t bytes, int message) {
    CHECK_OK(rota_request_wait(request, 10000));
    CHECK(holds(data, bytes, message), "%zu bytes are not message %d", bytes, message);
    CHECK_OK(rota_request_free(request));
}

static void run_everywhere(int nranks, void (*body)(const struct rank *rank)) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(nranks, 20000, body, NULL);
    }
}

/* -- receives ---------------------------------------------------------------------------------- */

/* Posted, cancelled and its buffer freed before anything is sent; the message goes to the next. */
static void before_body(const struct rank *rank) {
    for (int s = 0; s < SIZES; s++) {
        size_t bytes = sizes[s];
        uint8_t *data = malloc(bytes);
        if (rank->rank == 0) {
            rota_request *request = post(data, bytes, 1, rank);
            sleep_ms(3); /* so that it is announced */
            expect_cancelled(request);
            free(data);
            data = malloc(bytes);
            memset(data, 0, bytes);
            CHECK_OK(rota_barrier(rank->comm, NULL));
            request = post(data, bytes, s % 2 == 0 ? 1 : ROTA_ANY_SOURCE, rank);
            expect_message(request, data, bytes, s);
        } else {
            fill(data, bytes, s);
            CHECK_OK(rota_barrier(rank->comm, NULL));
            CHECK_OK(rota_send(data, bytes, ROTA_UINT8, 0, TAG, rank->comm, NULL));
        }
        free(data);
    }
    CHECK_OK(rota_comm_query(rank->comm));
}

static void cancelled_before_its_message(void) {
    run_everywhere(2, before_body);
}

/* A short one was announced; a long message comes for the next. */
static void longer_body(const struct rank *rank) {
    uint8_t *data = calloc(LARGE, 1), small[8];
    if (rank->rank == 0) {
        rota_request *request = post(small, sizeof(small), 1, rank);
        sleep_ms(3);
        expect_cancelled(request);
        CHECK_OK(rota_barrier(rank->comm, NULL));
        expect_message(post(data, LARGE, 1, rank), data, LARGE, 3);
    } else {
        fill(data, LARGE, 3);
        CHECK_OK(rota_barrier(rank->comm, NULL));
        CHECK_OK(rota_send(data, LARGE, ROTA_UINT8, 0, TAG, rank->comm, NULL));
    }
    free(data);
}

static void a_longer_one_comes_next(void) {
    run_everywhere(2, longer_body);
}

/* Of several in a row the middle one goes, and one from any source that held others up. */
static void row_body(const struct rank *rank) {
    enum { BYTES = 20000 };
    uint8_t *data[4];
    rota_request *requests[4];
    for (int i = 0; i < 4; i++)
        data[i] = calloc(BYTES, 1);
    if (rank->rank == 0) {
        for (int i = 0; i < 3; i++)
            requests[i] = post(data[i], BYTES, 1, rank);
        expect_cancelled(requests[1]);
        CHECK_OK(rota_barrier(rank->comm, NULL));
        expect_message(requests[0], data[0], BYTES, 1);
        expect_message(requests[2], data[2], BYTES, 2);
        requests[0] = post(data[1], BYTES, ROTA_ANY_SOURCE, rank);
        requests[3] = post(data[3], BYTES, 1, rank);
        expect_cancelled(requests[0]);
        CHECK_OK(rota_barrier(rank->comm, NULL));
        expect_message(requests[3], data[3], BYTES, 3);
    } else {
        for (int message = 1; message <= 3; message++) {
            if (message != 2)
                CHECK_OK(rota_barrier(rank->comm, NULL));
            fill(data[0], BYTES, message);
            CHECK_OK(rota_send(data[0], BYTES, ROTA_UINT8, 0, TAG, rank->comm, NULL));
        }
    }
    for (int i = 0; i < 4; i++)
        free(data[i]);
}

static void others_of_a_row_go_on(void) {
    run_everywhere(2, row_body);
}

/* Cancelled while the messages come: each is received once, in order, whole. */
static void race_body(const struct rank *rank) {
    enum { MESSAGES = 60 };
    uint8_t *data = malloc(LARGE);
    for (int message = 0; message < MESSAGES; message++) {
        size_t bytes = sizes[message % (SIZES - 1)];
        if (rank->rank == 1) {
            fill(data, bytes, message);
            CHECK_OK(rota_send(data, bytes, ROTA_UINT8, 0, TAG, rank->comm, NULL));
            continue;
        }
        int tries = 0;
        for (bool got = false; !got; tries++) {
            memset(data, 0, bytes);
            rota_request *request = post(data, bytes, message % 3 == 0 ? ROTA_ANY_SOURCE : 1, rank);
            if (tries % 3 == 2)
                sleep_ms(1);
            if (tries < 6)
                CHECK_OK(rota_request_cancel(request));
            rota_status status = rota_request_wait(request, 10000);
            got = status != ROTA_ERR_ABORTED;
            CHECK(!got || (status == ROTA_OK && holds(data, bytes, message)), "message %d: %s",
                  message, rota_status_name(status));
            CHECK_OK(rota_request_free(request));
        }
    }
    free(data);
    CHECK_OK(rota_barrier(rank->comm, NULL));
}

static void cancelled_while_messages_come(void) {
    run_everywhere(2, race_body);
}

static void self_body(const struct rank *rank) {
    for (int s = 0; s < SIZES; s++) {
        uint8_t *out = malloc(sizes[s]), *in = malloc(sizes[s]);
        expect_cancelled(post(in, sizes[s], rank->rank, rank));
        free(in);
        in = calloc(sizes[s], 1);
        fill(out, sizes[s], s);
        rota_request *request = post(in, sizes[s], rank->rank, rank);
        CHECK_OK(rota_send(out, sizes[s], ROTA_UINT8, rank->rank, TAG, rank->comm, NULL));
        expect_message(request, in, sizes[s], s);
        free(in);
        free(out);
    }
    /* Slices that do not fit are taken one by one. */
    uint8_t *out = malloc(LARGE), in[20000];
    fill(out, LARGE, 9);
    rota_request *request = post(in, sizeof(in), rank->rank, rank);
    CHECK_OK(rota_send(out, LARGE, ROTA_UINT8, rank->rank, TAG, rank->comm, NULL));
    CHECK_STATUS(rota_request_wait(request, 10000), ROTA_ERR_TRUNCATED);
    CHECK(holds(in, sizeof(in), 9), "not the beginning of the message");
    CHECK_OK(rota_request_free(request));
    free(out);
}

static void messages_to_oneself(void) {
    run_everywhere(1, self_body);
}

static void refused_body(const struct rank *rank) {
    int32_t one = 1, sum = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_all_reduce(&one, &sum, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    CHECK_STATUS(rota_request_cancel(request), ROTA_ERR_UNSUPPORTED);
    CHECK_OK(rota_request_wait(request, 0));
    CHECK(sum == 2, "sum %d", sum);
    CHECK_OK(rota_request_free(request));
}

/* One whose communicator is gone has ended. */
static void destroyed_body(const struct rank *rank) {
    int32_t word = 0;
    rota_request *request = post(&word, sizeof(word), 0, rank);
    CHECK_OK(rota_comm_destroy(rank->comm));
    rank->comms[0] = NULL;
    CHECK_OK(rota_request_cancel(request));
    CHECK_STATUS(rota_request_wait(request, 0), ROTA_ERR_ABORTED);
    CHECK_OK(rota_request_free(request));
}

static void only_receives(void) {
    run_everywhere(2, refused_body);
    run_everywhere(1, destroyed_body);
}

/* -- groups ------------------------------------------------------------------------------------ */

static void group_body(const struct rank *rank) {
    int32_t in = rank->rank + 1, out = 0;
    rota_group *group = NULL, *inner = NULL;
    rota_call call = ROTA_CALL_INIT;
    CHECK_OK(rota_group_begin(&group));
    CHECK_OK(rota_group_begin(&inner));
    CHECK_OK(rota_group_add(group, inner));
    call.group = inner;
    call.label = "never started";
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    call.group = group;
    CHECK_OK(rota_send(&in, 1, ROTA_INT32, 0, TAG, rank->comm, &call));
    CHECK_STATUS(rota_group_free(group), ROTA_ERR_STATE);
    CHECK_OK(rota_group_free(inner));
    CHECK_OK(rota_group_free(group));
    CHECK_OK(rota_group_free(NULL));
    /* Nothing was started: the next calls of all ranks are each other's. */
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_MAX, rank->comm, NULL));
    CHECK(out == rank->nranks, "maximum %d", out);
}

static void groups_that_never_start(void) {
    run_everywhere(3, group_body);
}

/* -- what a call-back may read ----------------------------------------------------------------- */

struct reader {
    rota_request *request;
    rota_status status, read;
    rota_error error;
    _Atomic bool called;
};

static void read_record(void *arg, rota_status status) {
    struct reader *reader = arg;
    reader->status = status;
    reader->error = (rota_error)ROTA_ERROR_INIT;
    reader->read = rota_request_error(reader->request, &reader->error);
    atomic_store(&reader->called, true);
}

static void expect_read(struct reader *reader, rota_status status, const char *word) {
    CHECK_STATUS(rota_request_wait(reader->request, 10000), status);
    CHECK(atomic_load(&reader->called) && reader->read == ROTA_OK && reader->status == status &&
              reader->error.status == status && strstr(reader->error.message, word) != NULL,
          "%s, read %s: %s", rota_status_name(reader->status), rota_status_name(reader->read),
          reader->error.message);
    CHECK_OK(rota_request_free(reader->request));
}

static void record_body(const struct rank *rank) {
    uint8_t data[64] = {0};
    struct reader reader = {0}, whole = {0};
    rota_call call = ROTA_CALL_INIT;
    if (rank->rank == 1) {
        CHECK_OK(rota_send(data, 64, ROTA_UINT8, 0, TAG, rank->comm, NULL));
        CHECK_OK(rota_send(data, 64, ROTA_UINT8, 0, TAG, rank->comm, NULL));
        return;
    }
    call.request = &reader.request;
    call.done = read_record;
    call.done_arg = &reader;
    CHECK_OK(rota_recv(data, 8, ROTA_UINT8, 1, TAG, rank->comm, NULL, &call));
    expect_read(&reader, ROTA_ERR_TRUNCATED, "64 bytes");
    /* A group's request likewise. */
    rota_group *group = NULL;
    rota_call in_group = ROTA_CALL_INIT;
    CHECK_OK(rota_group_begin(&group));
    in_group.group = group;
    CHECK_OK(rota_recv(data, 8, ROTA_UINT8, 1, TAG, rank->comm, NULL, &in_group));
    call.request = &whole.request;
    call.done_arg = &whole;
    CHECK_OK(rota_group_end(group, &call));
    expect_read(&whole, ROTA_ERR_TRUNCATED, "64 bytes");
    /* And of what was cancelled, in the thread that cancels. */
    struct reader last = {0};
    call.request = &last.request;
    call.done_arg = &last;
    CHECK_OK(rota_recv(data, 8, ROTA_UINT8, 1, TAG, rank->comm, NULL, &call));
    CHECK_OK(rota_request_cancel(last.request));
    expect_read(&last, ROTA_ERR_ABORTED, "cancelled");
}

static void call_backs_read_their_record(void) {
    run_everywhere(2, record_body);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"cancelled_before_its_message", cancelled_before_its_message},
        {"a_longer_one_comes_next", a_longer_one_comes_next},
        {"others_of_a_row_go_on", others_of_a_row_go_on},
        {"cancelled_while_messages_come", cancelled_while_messages_come},
        {"messages_to_oneself", messages_to_oneself},
        {"only_receives", only_receives},
        {"groups_that_never_start", groups_that_never_start},
        {"call_backs_read_their_record", call_backs_read_their_record},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
