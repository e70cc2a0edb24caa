/* Point to point: order, tags, any source, truncation, self sends, floods; and the cases about
 * shapes and places of buffers in collectives. */
#include "ranks.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void all_ways(int nranks, int64_t timeout_ms, void (*body)(const struct rank *rank),
                     void *arg) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(nranks, timeout_ms, body, arg);
    }
}

static rota_request *recv_later(rota_comm *comm, void *data, size_t count, int source, int tag,
                                rota_recv_info *info) {
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_recv(data, count, ROTA_INT32, source, tag, comm, info, &call));
    return request;
}

static rota_request *send_later(rota_comm *comm, const void *data, size_t count, int dest,
                                int tag) {
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_send(data, count, ROTA_INT32, dest, tag, comm, &call));
    return request;
}

static void end(rota_request *request, rota_status expected) {
    CHECK_STATUS(rota_request_wait(request, 0), expected);
    CHECK_OK(rota_request_free(request));
}

/* -- C41 --------------------------------------------------------------------------------------- */

/* Both send first and receive afterwards, blocking: right, or a time-out on both. */
static void c41_send_first_body(const struct rank *rank) {
    const size_t count = *(const size_t *)rank->arg;
    int other = 1 - rank->rank;
    int32_t *out = calloc(count, sizeof(*out)), *in = calloc(count, sizeof(*in));
    for (size_t i = 0; i < count; i++)
        out[i] = (int32_t)i + rank->rank;
    int64_t began = now_ms();
    rota_status status = rota_send(out, count, ROTA_INT32, other, 0, rank->comm, NULL);
    if (status == ROTA_OK)
        status = rota_recv(in, count, ROTA_INT32, other, 0, rank->comm, NULL, NULL);
    CHECK(status == ROTA_OK || (status == ROTA_ERR_TIMEOUT && count > 1024), "%s: %s",
          rota_status_name(status), last_error()->message);
    CHECK(now_ms() - began < 600 + 2000, "took %lld ms", (long long)(now_ms() - began));
    for (size_t i = 0; status == ROTA_OK && i < count; i++)
        CHECK(in[i] == (int32_t)i + other, "element %zu: %d", i, in[i]);
    free(in);
    free(out);
}

static void C41_both_send_first(void) {
    size_t counts[] = {2, 1024, 1 << 20};
    for (int i = 0; i < 3; i++)
        all_ways(2, i < 2 ? 10000 : 600, c41_send_first_body, &counts[i]);
}

static void c41_ring_body(const struct rank *rank) {
    const size_t count = *(const size_t *)rank->arg;
    int next = (rank->rank + 1) % rank->nranks,
        before = (rank->rank + rank->nranks - 1) % rank->nranks;
    int32_t *out = calloc(count, sizeof(*out)), *in = calloc(count, sizeof(*in));
    for (size_t i = 0; i < count; i++)
        out[i] = (int32_t)i * (rank->rank + 1);
    rota_request *sending = send_later(rank->comm, out, count, next, 4);
    rota_request *receiving = recv_later(rank->comm, in, count, before, 4, NULL);
    end(sending, ROTA_OK);
    end(receiving, ROTA_OK);
    for (size_t i = 0; i < count; i++)
        CHECK(in[i] == (int32_t)i * (before + 1), "element %zu: %d", i, in[i]);
    free(in);
    free(out);
}

/* Ring of five, and a rank to itself. */
static void C41_ring_and_self(void) {
    size_t counts[] = {2, 200000};
    for (int i = 0; i < 2; i++) {
        all_ways(5, 20000, c41_ring_body, &counts[i]);
        all_ways(1, 20000, c41_ring_body, &counts[i]);
    }
}

/* -- C42, C43: order, sizes, floods ------------------------------------------------------------ */

static void c42_body(const struct rank *rank) {
    static const size_t sizes[] = {5, 3000, 0, 1, 100000};
    enum { MESSAGES = 5, ROOM = 100000 };
    rota_request *requests[MESSAGES];
    int32_t *data = malloc(sizeof(*data) * MESSAGES * ROOM);
    rota_recv_info infos[MESSAGES];
    for (int m = 0; m < MESSAGES; m++) {
        infos[m] = (rota_recv_info)ROTA_RECV_INFO_INIT;
        int32_t *at = data + m * ROOM;
        for (size_t i = 0; i < ROOM; i++)
            at[i] = rank->rank == 0 ? (int32_t)i + 1000 * m : -1;
        requests[m] = rank->rank == 0
                          ? send_later(rank->comm, at, sizes[m], 1, 9)
                          : recv_later(rank->comm, at, sizes[m] + (m % 2 ? 7 : 0), 0, 9, &infos[m]);
    }
    for (int m = 0; m < MESSAGES; m++) {
        int32_t *at = data + m * ROOM;
        end(requests[m], ROTA_OK);
        if (rank->rank == 0)
            continue;
        CHECK(infos[m].count == sizes[m] && infos[m].source == 0 && infos[m].tag == 9,
              "message %d: %zu elements from %d", m, infos[m].count, infos[m].source);
        for (size_t i = 0; i < sizes[m]; i++)
            CHECK(at[i] == (int32_t)i + 1000 * m, "message %d element %zu: %d", m, i, at[i]);
        if (sizes[m] < ROOM)
            CHECK(at[sizes[m]] == -1, "message %d: written past its end", m);
    }
    free(data);
}

static void C42_messages_match_in_order(void) {
    all_ways(2, 20000, c42_body, NULL);
}

/* A message that is too long ends its receive only. */
static void truncated_body(const struct rank *rank) {
    static const size_t sizes[] = {10, 5000, 150000};
    int32_t *data = calloc(150000, sizeof(*data));
    for (int s = 0; s < 3; s++) {
        if (rank->rank == 0) {
            for (size_t i = 0; i < sizes[s]; i++)
                data[i] = (int32_t)i;
            CHECK_OK(rota_send(data, sizes[s], ROTA_INT32, 1, 1, rank->comm, NULL));
            CHECK_OK(rota_send(data, 3, ROTA_INT32, 1, 1, rank->comm, NULL));
            continue;
        }
        size_t room = sizes[s] - 4;
        rota_recv_info info = ROTA_RECV_INFO_INIT;
        memset(data, 0xff, 150000 * sizeof(*data));
        CHECK_STATUS(rota_recv(data, room, ROTA_INT32, 0, 1, rank->comm, &info, NULL),
                     ROTA_ERR_TRUNCATED);
        rota_error error = ROTA_ERROR_INIT;
        CHECK_OK(rota_comm_error(rank->comm, &error));
        CHECK(error.status == ROTA_ERR_TRUNCATED && error.peer == 0, "%s", error.message);
        for (size_t i = 0; i < room; i++)
            CHECK(data[i] == (int32_t)i, "size %zu element %zu: %d", sizes[s], i, data[i]);
        CHECK(data[room] == -1, "written past the buffer");
        CHECK_OK(rota_recv(data, 5, ROTA_INT32, 0, 1, rank->comm, &info, NULL));
        CHECK(info.count == 3 && data[2] == 2, "%zu elements", info.count);
        CHECK_OK(rota_comm_query(rank->comm));
    }
    CHECK_OK(rota_barrier(rank->comm, NULL));
    free(data);
}

static void C42_longer_message_is_truncated(void) {
    all_ways(2, 20000, truncated_body, NULL);
}

static void flood_body(const struct rank *rank) {
    enum { MESSAGES = 4000 };
    int32_t message[16] = {0};
    if (rank->rank == 1)
        sleep_ms(200);
    for (int m = 0; m < MESSAGES; m++) {
        if (rank->rank == 0) {
            message[0] = m;
            message[15] = -m;
            CHECK_OK(rota_send(message, 16, ROTA_INT32, 1, 0, rank->comm, NULL));
        } else {
            CHECK_OK(rota_recv(message, 16, ROTA_INT32, 0, 0, rank->comm, NULL, NULL));
            CHECK(message[0] == m && message[15] == -m, "message %d: %d %d", m, message[0],
                  message[15]);
        }
        if (rota_comm_query(rank->comm) != ROTA_OK)
            return;
    }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
static long resident_bytes(void) {
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    CHECK(file != NULL && fscanf(file, "%ld %ld", &total, &resident) == 2, "no statm");
    if (file != NULL)
        fclose(file);
    return resident * sysconf(_SC_PAGESIZE);
}
#endif

/* Both ranks live in this process: what piles up at either shows in its resident memory. */
static void C43_slow_receiver(void) {
    all_ways(2, 30000, flood_body, NULL);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they keep what is freed */
    long before = resident_bytes();
    all_ways(2, 30000, flood_body, NULL);
    CHECK(resident_bytes() - before < 16l << 20, "%ld bytes more after the second flood",
          resident_bytes() - before);
#endif
}

/* Tags have their own order: a later tag is received while an earlier one waits. */
static void tags_body(const struct rank *rank) {
    enum { TAGS = 40 };
    int32_t numbers[TAGS];
    if (rank->rank == 0) {
        for (int t = 0; t < TAGS; t++) {
            numbers[t] = 7 * t;
            CHECK_OK(rota_send(&numbers[t], 1, ROTA_INT32, 1, t * 1000, rank->comm, NULL));
        }
    } else {
        for (int t = TAGS - 1; t >= 0; t--) {
            CHECK_OK(rota_recv(&numbers[t], 1, ROTA_INT32, 0, t * 1000, rank->comm, NULL, NULL));
            CHECK(numbers[t] == 7 * t, "tag %d: %d", t, numbers[t]);
        }
    }
}

static void tags_are_independent(void) {
    all_ways(2, 20000, tags_body, NULL);
}

/* Everybody sends to rank 0, which takes what comes; each sender's order is kept. */
static void any_source_body(const struct rank *rank) {
    enum { EACH = 60, ROOM = 3000 };
    int32_t *message = calloc(ROOM, sizeof(*message));
    if (rank->rank != 0) {
        for (int m = 0; m < EACH; m++) {
            size_t count = m % 7 == 0 ? ROOM : 2;
            for (size_t i = 0; i < count; i++)
                message[i] = i % 2 == 0 ? rank->rank : m;
            CHECK_OK(rota_send(message, count, ROTA_INT32, 0, 5, rank->comm, NULL));
        }
        free(message);
        return;
    }
    int next[16] = {0};
    for (int m = 0; m < EACH * (rank->nranks - 1); m++) {
        rota_recv_info info = ROTA_RECV_INFO_INIT;
        CHECK_OK(rota_recv(message, ROOM, ROTA_INT32, ROTA_ANY_SOURCE, 5, rank->comm, &info, NULL));
        int from = info.source;
        if (from < 1 || from >= rank->nranks) {
            CHECK(false, "message %d came from rank %d", m, from);
            break;
        }
        size_t count = next[from] % 7 == 0 ? ROOM : 2;
        CHECK(info.count == count && message[0] == from && message[count - 1] == next[from],
              "rank %d message %d: count %zu, %d %d", from, next[from], info.count, message[0],
              message[count - 1]);
        next[from]++;
    }
    for (int r = 1; r < rank->nranks; r++)
        CHECK(next[r] == EACH, "rank %d: %d messages", r, next[r]);
    free(message);
}

static void any_source_keeps_order(void) {
    all_ways(4, 20000, any_source_body, NULL);
}

/* Small messages that have ended when their call returns: everything that may be done with a
 * request may be done with theirs. */
static void at_once_body(const struct rank *rank) {
    enum { MESSAGES = 100 };
    rota_comm *comm = rank->comm;
    int other = 1 - rank->rank, ended = -1;
    int32_t value = 0;
    rota_recv_info info = ROTA_RECV_INFO_INIT;
    for (int m = 0; m < MESSAGES; m++) {
        int32_t out = 1000 * rank->rank + m;
        rota_request *requests[2] = {send_later(comm, &out, 1, other, 9), NULL};
        CHECK_STATUS(rota_request_cancel(requests[0]), ROTA_ERR_UNSUPPORTED);
        CHECK_OK(rota_barrier(comm, NULL)); /* the other's message is here */
        requests[1] = recv_later(comm, &value, 1, other, 9, &info);
        if (m % 3 == 0) {
            CHECK_OK(rota_request_wait_all(requests, 2, 0));
        } else if (m % 3 == 1) {
            CHECK_OK(rota_request_wait_any(requests, 2, 0, &ended));
            CHECK(ended == 0 || ended == 1, "request %d", ended);
        }
        for (int i = 0; i < 2; i++)
            CHECK_OK(rota_request_wait(requests[i], 0));
        bool done = false;
        rota_error error = ROTA_ERROR_INIT;
        CHECK_OK(rota_request_test(requests[1], &done));
        CHECK(done, "message %d", m);
        CHECK_OK(rota_request_error(requests[1], &error));
        CHECK(error.status == ROTA_OK, "%s", error.message);
        CHECK_OK(rota_request_cancel(requests[1])); /* too late, so nothing */
        CHECK(value == 1000 * other + m && info.source == other && info.tag == 9 && info.count == 1,
              "message %d: %d from %d, tag %d, count %zu", m, value, info.source, info.tag,
              info.count);
        for (int i = 0; i < 2; i++)
            CHECK_OK(rota_request_free(requests[i]));
        /* The same information is filled in again and again. */
        rota_request *answer = send_later(comm, &out, 1, other, 10);
        CHECK_OK(rota_recv(&value, 1, ROTA_INT32, other, 10, comm, &info, NULL));
        CHECK(info.size == sizeof(info) && info.tag == 10, "size %zu", info.size);
        end(answer, ROTA_OK);
    }
}

static void messages_end_at_once(void) {
    all_ways(2, 20000, at_once_body, NULL);
}

/* Calls that are like the one before, and not: small ones of two tags and changing sizes, blocking
 * and not, some longer than their buffer and some from any source. Both ranks draw the same. */
static void alike_body(const struct rank *rank) {
    enum { MESSAGES = 3000, FEW = 30, MOST = 1100 };
    rota_comm *comm = rank->comm;
    int other = 1 - rank->rank;
    unsigned seed = 11;
    for (int m = 0; m < MESSAGES; m++) {
        bool sends = (rand_r(&seed) & 7) < 4 ? rank->rank == 0 : rank->rank == 1;
        bool waits = rand_r(&seed) % 2 == 0, any = rand_r(&seed) % 8 == 0;
        size_t count = 2;
        if (rand_r(&seed) % 4 == 0)
            count = (size_t)rand_r(&seed) % (rand_r(&seed) % 4 == 0 ? MOST : FEW);
        size_t room = rand_r(&seed) % 16 == 0 && count > 0 ? count - 1 : count;
        int tag = rand_r(&seed) % 5 == 0;
        int32_t values[MOST];
        for (int i = 0; i < MOST; i++)
            values[i] = sends ? 100 * m + i : -1;
        if (sends) {
            if (waits)
                CHECK_OK(rota_send(values, count, ROTA_INT32, other, tag, comm, NULL));
            else
                end(send_later(comm, values, count, other, tag), ROTA_OK);
            continue;
        }
        rota_recv_info info = ROTA_RECV_INFO_INIT;
        int source = any ? ROTA_ANY_SOURCE : other;
        rota_status expected = room < count ? ROTA_ERR_TRUNCATED : ROTA_OK;
        if (waits)
            CHECK_STATUS(rota_recv(values, room, ROTA_INT32, source, tag, comm, &info, NULL),
                         expected);
        else
            end(recv_later(comm, values, room, source, tag, &info), expected);
        for (int i = 0; i < MOST; i++)
            CHECK(values[i] == ((size_t)i < room ? 100 * m + i : -1),
                  "message %d: element %d is %d", m, i, values[i]);
        CHECK(expected != ROTA_OK ||
                  (info.source == other && info.tag == tag && info.count == count),
              "message %d: from %d, tag %d, count %zu", m, info.source, info.tag, info.count);
    }
}

static void calls_alike(void) {
    all_ways(2, 20000, alike_body, NULL);
}

/* Messages of up to a slice, which their receivers take as they are written, while another thread
 * of each rank wants the library too: a receive that had begun goes on as a request. */
enum { SLICE_MESSAGES = 400, SLICE_MOST = 65536 };

static void exchange(const struct rank *rank, int tag, size_t most) {
    unsigned seed = (unsigned)tag;
    int other = 1 - rank->rank;
    uint8_t *out = malloc(most), *in = malloc(most);
    for (int m = 0; m < SLICE_MESSAGES; m++) {
        size_t bytes = 1 + (size_t)rand_r(&seed) % most;
        rota_recv_info info = ROTA_RECV_INFO_INIT;
        memset(in, 0, bytes);
        for (size_t i = 0; i < bytes; i++)
            out[i] = (uint8_t)(i * 7 + i / 256 + (size_t)m + (size_t)tag);
        if ((m + rank->rank) % 2 == 0)
            CHECK_OK(rota_send(out, bytes, ROTA_UINT8, other, tag, rank->comm, NULL));
        CHECK_OK(rota_recv(in, most, ROTA_UINT8, other, tag, rank->comm, &info, NULL));
        CHECK(info.count == bytes && memcmp(in, out, bytes) == 0, "message %d of %zu bytes: %zu", m,
              bytes, info.count);
        if ((m + rank->rank) % 2 != 0)
            CHECK_OK(rota_send(out, bytes, ROTA_UINT8, other, tag, rank->comm, NULL));
    }
    free(in);
    free(out);
}

static void *exchange_short(void *rank) {
    exchange(rank, 2, 100);
    return NULL;
}

static void slices_body(const struct rank *rank) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, exchange_short, (void *)(uintptr_t)rank) == 0, "no thread");
    exchange(rank, 1, SLICE_MOST);
    pthread_join(thread, NULL);
}

static void slices_are_taken_as_they_come(void) {
    all_ways(2, 20000, slices_body, NULL);
}

/* Many receives stand in a row whose memory peers may write themselves: messages that are longer
 * than their buffers (by several slices), shorter ones, and receives that were given up among them
 * must not shift anything. Two seeds, so that what is announced when differs. */
enum { ROW = 24, ROW_ROOM = 96 << 10 };

static size_t row_message(unsigned *seed) {
    static const size_t sizes[] = {40000, 65536, 98304, 20000, 9000, 16385, 100, 98304, 300000, 0};
    return rand_r(seed) % 12 == 0 ? (size_t)9 << 20 : sizes[rand_r(seed) % 10];
}

static void row_begin(const struct rank *rank, rota_request **request, uint8_t *at, size_t bytes,
                      rota_recv_info *info) {
    rota_call call = ROTA_CALL_INIT;
    call.request = request;
    *info = (rota_recv_info)ROTA_RECV_INFO_INIT;
    memset(at, 0xee, ROW_ROOM);
    CHECK_OK(rota_recv(at, bytes, ROTA_UINT8, 0, 4, rank->comm, info, &call));
}

static void row_check(rota_request *request, const uint8_t *at, size_t bytes, size_t sent,
                      unsigned m) {
    size_t came = sent < bytes ? sent : bytes;
    CHECK_STATUS(rota_request_wait(request, 0), sent > bytes ? ROTA_ERR_TRUNCATED : ROTA_OK);
    for (size_t i = 0; i < came; i++)
        if (at[i] != (uint8_t)(i * 7 + m)) {
            CHECK(false, "message %u of %zu in %zu, byte %zu: %u", m, sent, bytes, i, at[i]);
            break;
        }
    CHECK(bytes >= ROW_ROOM || at[bytes] == 0xee, "message %u: written past the buffer", m);
}

static void row_send(const struct rank *rank, unsigned seed) {
    uint8_t *data = malloc((size_t)9 << 20);
    for (unsigned m = 0; m < ROW; m++) {
        size_t bytes = row_message(&seed);
        for (size_t i = 0; i < bytes; i++)
            data[i] = (uint8_t)(i * 7 + m);
        CHECK_OK(rota_send(data, bytes, ROTA_UINT8, 1, 4, rank->comm, NULL));
    }
    free(data);
}

static void row_body(const struct rank *rank) {
    const unsigned seed = *(const unsigned *)rank->arg;
    unsigned lengths = seed, rooms = seed + 1000;
    if (rank->rank == 0) {
        CHECK_OK(rota_barrier(rank->comm, NULL));
        row_send(rank, seed);
        return;
    }
    void *memory = NULL;
    CHECK_OK(rota_mem_alloc(rank->comm, (size_t)ROW * ROW_ROOM, &memory));
    rota_request *requests[ROW];
    rota_recv_info infos[ROW];
    size_t bytes[ROW];
    for (unsigned m = 0; m < ROW; m++) {
        bytes[m] = rand_r(&rooms) % 3 == 0 ? 65536 : rand_r(&rooms) % 3 == 0 ? 30000 : ROW_ROOM;
        bytes[m] = rand_r(&rooms) % 16 == 0 ? 5000 : bytes[m];
        row_begin(rank, &requests[m], (uint8_t *)memory + m * ROW_ROOM, bytes[m], &infos[m]);
    }
    for (unsigned m = 3; m < ROW; m += 5)
        CHECK_OK(rota_request_cancel(requests[m]));
    CHECK_OK(rota_barrier(rank->comm, NULL));
    unsigned next = 0;
    for (unsigned m = 0; m < ROW; m++) {
        bool ended = false;
        uint8_t *at = (uint8_t *)memory + m * ROW_ROOM;
        if (rota_request_test(requests[m], &ended) != ROTA_ERR_ABORTED)
            row_check(requests[m], at, bytes[m], row_message(&lengths), next++);
        CHECK_OK(rota_request_free(requests[m]));
    }
    while (next < ROW) { /* what the given up ones have left */
        row_begin(rank, &requests[0], memory, ROW_ROOM, &infos[0]);
        row_check(requests[0], memory, ROW_ROOM, row_message(&lengths), next++);
        CHECK_OK(rota_request_free(requests[0]));
    }
    CHECK_OK(rota_mem_free(rank->comm, memory));
}

static void receives_in_a_row(void) {
    for (unsigned seed = 1; seed <= 2; seed++)
        all_ways(2, 20000, row_body, &seed);
}

/* One of several alike is given up before anything is sent: it has ended, and those behind it get
 * what comes. */
static void middle_body(const struct rank *rank) {
    enum { ALIKE = 6, GIVEN_UP = 2, BYTES = 65536 };
    uint8_t *data = malloc((size_t)ALIKE * BYTES);
    rota_request *requests[ALIKE];
    rota_recv_info infos[ALIKE];
    for (int m = 0; m < ALIKE && rank->rank == 1; m++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[m];
        infos[m] = (rota_recv_info)ROTA_RECV_INFO_INIT;
        CHECK_OK(
            rota_recv(data + m * BYTES, BYTES, ROTA_UINT8, 0, 4, rank->comm, &infos[m], &call));
    }
    if (rank->rank == 1) {
        bool ended = false;
        CHECK_OK(rota_request_cancel(requests[GIVEN_UP]));
        CHECK_STATUS(rota_request_test(requests[GIVEN_UP], &ended), ROTA_ERR_ABORTED);
        CHECK(ended, "it was not given up");
    }
    CHECK_OK(rota_barrier(rank->comm, NULL));
    for (int m = 0; m < ALIKE; m++) {
        if (m == GIVEN_UP)
            continue;
        uint8_t *at = data + m * BYTES;
        if (rank->rank == 0) {
            memset(at, m, BYTES);
            CHECK_OK(rota_send(at, BYTES, ROTA_UINT8, 1, 4, rank->comm, NULL));
            continue;
        }
        CHECK_OK(rota_request_wait(requests[m], 0));
        CHECK(infos[m].count == BYTES && at[0] == m && at[BYTES - 1] == m, "message %d: %d %d", m,
              at[0], at[BYTES - 1]);
    }
    for (int m = 0; m < ALIKE && rank->rank == 1; m++)
        CHECK_OK(rota_request_free(requests[m]));
    free(data);
}

static void given_up_in_the_middle(void) {
    all_ways(2, 20000, middle_body, NULL);
}

/* -- C19, C24, C25, C26, C29: shapes and places ------------------------------------------------ */

/* Every collective without elements, with and without buffers, then with five. */
static void c19_body(const struct rank *rank) {
    rota_comm *comm = rank->comm;
    int32_t some[40], result[40];
    for (int i = 0; i < 40; i++)
        some[i] = rank->rank + i;
    for (int round = 0; round < 3; round++) {
        size_t count = round == 2 ? 5 : 0;
        const void *send = round == 0 ? NULL : some;
        void *recv = round == 0 ? NULL : result;
        memset(result, 0xff, sizeof(result));
        int root = rank->nranks - 1, n = rank->nranks;
        CHECK_OK(rota_all_reduce(send, recv, count, ROTA_INT32, ROTA_SUM, comm, NULL));
        CHECK_OK(rota_reduce(send, recv, count, ROTA_INT32, ROTA_MAX, root, comm, NULL));
        CHECK_OK(rota_broadcast(send, recv, count, ROTA_INT32, root, comm, NULL));
        CHECK_OK(rota_all_gather(send, recv, count, ROTA_INT32, comm, NULL));
        CHECK_OK(rota_all_to_all(send, recv, count, ROTA_INT32, comm, NULL));
        CHECK_OK(rota_reduce_scatter(send, recv, count, ROTA_INT32, ROTA_SUM, comm, NULL));
        rota_request *sending = send_later(comm, send, count, (rank->rank + 1) % n, 0);
        end(recv_later(comm, recv, count, (rank->rank + n - 1) % n, 0, NULL), ROTA_OK);
        end(sending, ROTA_OK);
        for (size_t i = 0; i < 40; i++)
            CHECK(count > 0 || result[i] == -1, "element %zu was touched", i);
        CHECK_OK(rota_all_reduce(some, result, 5, ROTA_INT32, ROTA_SUM, comm, NULL));
        for (int i = 0; i < 5; i++)
            CHECK(result[i] == n * (n - 1) / 2 + n * i, "element %d: %d", i, result[i]);
    }
}

static void C19_zero_counts(void) {
    for (int n = 1; n <= 4; n++)
        all_ways(n, 10000, c19_body, NULL);
}

static void c24_body(const struct rank *rank) {
    enum { COUNT = 7 };
    int n = rank->nranks, r = rank->rank;
    float all[5 * COUNT], *own = all + r * COUNT;
    for (int i = 0; i < COUNT; i++)
        own[i] = (float)(100 * r + i);
    CHECK_OK(rota_all_gather(own, all, COUNT, ROTA_FLOAT32, rank->comm, NULL));
    for (int i = 0; i < n * COUNT; i++)
        CHECK(all[i] == (float)(100 * (i / COUNT) + i % COUNT), "all_gather element %d", i);
    CHECK_OK(rota_reduce_scatter(all, own, COUNT, ROTA_FLOAT32, ROTA_SUM, rank->comm, NULL));
    for (int i = 0; i < COUNT; i++)
        CHECK(own[i] == (float)(n * (100 * r + i)), "reduce_scatter element %d", i);
    for (int root = 0; root < n; root++) {
        float sum[COUNT];
        for (int i = 0; i < COUNT; i++)
            sum[i] = (float)(r + i);
        CHECK_OK(rota_reduce(sum, sum, COUNT, ROTA_FLOAT32, ROTA_SUM, root, rank->comm, NULL));
        CHECK_OK(rota_broadcast(sum, sum, COUNT, ROTA_FLOAT32, root, rank->comm, NULL));
        for (int i = 0; i < COUNT; i++)
            CHECK(sum[i] == (float)(n * (n - 1) / 2 + n * i), "root %d element %d: %f", root, i,
                  (double)sum[i]);
    }
}

static void C24_in_place_blocks(void) {
    for (int n = 1; n <= 5; n++)
        all_ways(n, 10000, c24_body, NULL);
}

static void c25_body(const struct rank *rank) {
    int n = rank->nranks;
    size_t counts[] = {1, (size_t)n, (size_t)n + 1, 65537};
    int64_t *data = malloc(65537 * sizeof(*data));
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = rank->arg;
    for (int c = 0; c < 4; c++) {
        for (size_t i = 0; i < counts[c]; i++)
            data[i] = 1000 * rank->rank + (int64_t)i;
        CHECK_OK(rota_all_reduce(data, data, counts[c], ROTA_INT64, ROTA_SUM, rank->comm, &call));
        for (size_t i = 0; i < counts[c]; i++)
            CHECK(data[i] == 500 * n * (n - 1) + n * (int64_t)i, "%s count %zu element %zu: %lld",
                  call.algorithm != NULL ? call.algorithm : "not forced", counts[c], i,
                  (long long)data[i]);
    }
    free(data);
}

static void C25_in_place_every_algorithm(void) {
    static const int ranks[] = {2, 3, 4, 5, 8};
    char name[64];
    for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
        ranks_run(ranks[i], 20000, c25_body, NULL);
        for (int a = 0; rota_algorithm_name(a) != NULL; a++) {
            snprintf(name, sizeof(name), "%s", rota_algorithm_name(a));
            if (rota_algorithm_does(name, ROTA_KIND_ALL_REDUCE, ranks[i]))
                ranks_run(ranks[i], 20000, c25_body, name);
        }
    }
}

static void c26_body(const struct rank *rank) {
    size_t n = (size_t)rank->nranks;
    static const size_t counts[] = {10, 70000};
    for (int c = 0; c < 2; c++) {
        uint8_t *data = malloc(n * counts[c]);
        memset(data, rank->rank, n * counts[c]);
        CHECK_OK(rota_all_to_all(data, data, counts[c], ROTA_UINT8, rank->comm, NULL));
        for (size_t i = 0; i < n * counts[c]; i++)
            if (data[i] != i / counts[c]) {
                CHECK(false, "block %zu holds %d", i / counts[c], data[i]);
                break;
            }
        free(data);
    }
}

static void C26_in_place_all_to_all(void) {
    for (int n = 2; n <= 6; n++)
        all_ways(n, 20000, c26_body, NULL);
}

static void c29_body(const struct rank *rank) {
    enum { MOST = 70 };
    uint16_t *memory = aligned_alloc(64, 4 * 256);
    for (size_t k = 0; k < 16; k++) {
        uint16_t *in = memory + (k + 3 * (size_t)rank->rank) % 16;
        uint16_t *out = memory + 256 + (k + 5 * (size_t)rank->rank) % 16;
        for (size_t count = 1; count <= MOST; count += 3) {
            for (size_t i = 0; i < count; i++)
                in[i] = (uint16_t)(0x3f80 + 0x80 * (i % 2)); /* 1 and 2 */
            CHECK_OK(rota_all_reduce(in, out, count, ROTA_BFLOAT16, ROTA_SUM, rank->comm, NULL));
            for (size_t i = 0; i < count; i++)
                CHECK(out[i] == (rank->nranks == 2 ? 0x4000 : 0x4040) + 0x80 * (i % 2),
                      "offset %zu count %zu element %zu: %#x", k, count, i, out[i]);
        }
    }
    CHECK_STATUS(rota_all_reduce((char *)memory + 1, memory + 256, 1, ROTA_BFLOAT16, ROTA_SUM,
                                 rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_OK(rota_barrier(rank->comm, NULL));
    free(memory);
}

static void C29_alignment(void) {
    all_ways(2, 20000, c29_body, NULL);
    way_take(&ways[0]);
    ranks_run(3, 20000, c29_body, NULL);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C19_zero_counts", C19_zero_counts},
        {"C24_in_place_blocks", C24_in_place_blocks},
        {"C25_in_place_every_algorithm", C25_in_place_every_algorithm},
        {"C26_in_place_all_to_all", C26_in_place_all_to_all},
        {"C29_alignment", C29_alignment},
        {"C41_both_send_first", C41_both_send_first},
        {"C41_ring_and_self", C41_ring_and_self},
        {"C42_messages_match_in_order", C42_messages_match_in_order},
        {"C42_longer_message_is_truncated", C42_longer_message_is_truncated},
        {"C43_slow_receiver", C43_slow_receiver},
        {"tags_are_independent", tags_are_independent},
        {"any_source_keeps_order", any_source_keeps_order},
        {"messages_end_at_once", messages_end_at_once},
        {"calls_alike", calls_alike},
        {"slices_are_taken_as_they_come", slices_are_taken_as_they_come},
        {"receives_in_a_row", receives_in_a_row},
        {"given_up_in_the_middle", given_up_in_the_middle},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
