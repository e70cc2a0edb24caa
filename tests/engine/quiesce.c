/* When a call has returned an error nobody touches the caller's buffers any more: here they become
 * inaccessible, or are written and looked at, at that very moment, while the other ranks still send
 * to this one and read from it. */
#include "ranks.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A root runs ahead of who stays away, by so many calls and more. */
enum { RANKS = 4, TIMEOUT_MS = 60, LATE_MS = 30, MARK = 0x5a, AWAY_EVERY = 64 };

enum operation { ALL_REDUCE, ALL_GATHER, BROADCAST, EXCHANGE, RING, OPERATIONS };
enum ending { BY_DEADLINE, BY_ABORT, ENDINGS };

struct test {
    enum ending ending;
    size_t count; /* int32 per block */
    bool shared;  /* buffers that all ranks of the host map */
};

struct buffer {
    void *memory;
    size_t bytes;
};

static struct buffer take(const struct rank *rank, const struct test *test) {
    struct buffer buffer = {.bytes = test->count * RANKS * sizeof(int32_t)};
    if (test->shared) {
        CHECK_OK(rota_mem_alloc(rank->comm, buffer.bytes, &buffer.memory));
    } else {
        buffer.memory =
            mmap(NULL, buffer.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(buffer.memory != MAP_FAILED, "no memory");
    }
    memset(buffer.memory, 1, buffer.bytes);
    return buffer;
}

/* From here on an access of this process is a fault. */
static void close_buffer(const struct test *test, const struct buffer *buffer) {
    if (test->shared)
        memset(buffer->memory, MARK, buffer->bytes);
    else
        CHECK(mprotect(buffer->memory, buffer->bytes, PROT_NONE) == 0, "mprotect");
}

static void check_marks(const struct buffer *buffer, const char *what) {
    const unsigned char *bytes = buffer->memory;
    for (size_t i = 0; i < buffer->bytes; i++)
        if (bytes[i] != MARK) {
            CHECK(false, "%s: byte %zu of %zu was written after the call", what, i, buffer->bytes);
            return;
        }
}

static void give_back(const struct rank *rank, const struct test *test, struct buffer *buffer) {
    if (test->shared)
        CHECK_OK(rota_mem_free(rank->comm, buffer->memory));
    else
        munmap(buffer->memory, buffer->bytes);
}

static rota_status ring(const struct rank *rank, const struct test *test, void *in, void *out) {
    int next = (rank->rank + 1) % rank->nranks;
    int before = (rank->rank + rank->nranks - 1) % rank->nranks;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    rota_status status =
        rota_recv(out, test->count, ROTA_INT32, before, 1, rank->comm, NULL, &call);
    if (status != ROTA_OK)
        return status;
    status = rota_send(in, test->count, ROTA_INT32, next, 1, rank->comm, NULL);
    rota_status received = rota_request_wait(request, 0);
    rota_request_free(request);
    return status != ROTA_OK ? status : received;
}

static rota_status operate(const struct rank *rank, const struct test *test,
                           enum operation operation, void *in, void *out) {
    switch (operation) {
    case ALL_REDUCE:
        return rota_all_reduce(in, out, test->count, ROTA_INT32, ROTA_SUM, rank->comm, NULL);
    case ALL_GATHER:
        return rota_all_gather(in, out, test->count, ROTA_INT32, rank->comm, NULL);
    case BROADCAST:
        return rota_broadcast(in, out, test->count, ROTA_INT32, 1, rank->comm, NULL);
    case EXCHANGE:
        return rota_all_to_all(in, out, test->count, ROTA_INT32, rank->comm, NULL);
    default:
        return ring(rank, test, in, out);
    }
}

struct aborter {
    rota_comm *comm;
    int after_ms;
};

static void *run_aborter(void *arg) {
    const struct aborter *aborter = arg;
    sleep_ms(aborter->after_ms);
    CHECK_OK(rota_comm_abort(aborter->comm));
    return NULL;
}

/* Which operation runs when it ends; the same on all ranks. */
static enum operation current;

static void body(const struct rank *rank) {
    const struct test *test = rank->arg;
    struct buffer in = take(rank, test), out = take(rank, test);
    pthread_t thread;
    struct aborter aborter = {.comm = rank->comm, .after_ms = 5 + 7 * rank->rank};
    bool aborts = test->ending == BY_ABORT && rank->rank < 2;
    bool stays_away = test->ending == BY_DEADLINE && rank->rank == 0;
    if (aborts && pthread_create(&thread, NULL, run_aborter, &aborter) != 0)
        abort();
    rota_status status = ROTA_OK;
    for (int i = 0; status == ROTA_OK; i++) {
        if (stays_away && i % AWAY_EVERY == 3) /* longer each time: the others may be late too */
            sleep_ms((2 + i / AWAY_EVERY) * TIMEOUT_MS);
        status = operate(rank, test, current, in.memory, out.memory);
    }
    close_buffer(test, &in);
    memset(out.memory, MARK, out.bytes);
    sleep_ms(LATE_MS);
    check_marks(&out, rank->rank == 0 ? "rank 0" : "another rank");
    close_buffer(test, &out);
    if (aborts)
        pthread_join(thread, NULL);
    sleep_ms(LATE_MS);
    give_back(rank, test, &in);
    give_back(rank, test, &out);
}

/* Every operation meets every way, with sizes in turn; with all of them where ROTA_TEST_EVERY_SIZE
 * is set. */
static void ends(enum ending ending) {
    static const size_t counts[] = {16, 5000, 300000};
    enum { SIZES = sizeof(counts) / sizeof(counts[0]) };
    bool every_size = getenv("ROTA_TEST_EVERY_SIZE") != NULL;
    unsigned turn = 0;
    for (const struct way *way = ways; way->name != NULL; way++, turn++) {
        way_take(way);
        for (int shared = 0; shared < 2; shared++)
            for (current = ALL_REDUCE; current < OPERATIONS; current++, turn++)
                for (unsigned c = 0; c < SIZES; c++) {
                    struct test test = {
                        .ending = ending, .count = counts[c], .shared = shared != 0};
                    if (every_size || c == turn % SIZES)
                        ranks_run(RANKS, ending == BY_DEADLINE ? TIMEOUT_MS : 20000, body, &test);
                }
    }
}

static void after_a_deadline(void) {
    ends(BY_DEADLINE);
}

static void after_an_abort(void) {
    ends(BY_ABORT);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"after_a_deadline", after_a_deadline}, {"after_an_abort", after_an_abort}, {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
