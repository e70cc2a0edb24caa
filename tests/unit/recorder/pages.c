/* What is recorded and found again, in memory. */
#include "folder.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static struct recorder *in_memory(void) {
    setenv("ROTA_RECORD", "memory", 1);
    return folder_recorder(1, 0, 2);
}

static struct record_page *world(struct recorder *recorder) {
    return recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, "world", 0, 2, NULL);
}

Test(pages, last_calls_are_found) {
    struct recorder *recorder = in_memory();
    struct record_page *page = world(recorder);
    struct record_call call;
    cr_assert(!recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 0, &call));
    for (uint64_t i = 1; i <= 1000; i++) {
        struct record_entry entry = folder_entry(i);
        entry.count = i * 3;
        struct record_call *line = record_begin(page, &entry, record_stamps(page, i, 40));
        cr_assert(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 0, &call));
        cr_assert_eq(call.sequence, i);
        cr_assert_eq(call.state, RECORD_RUNNING);
        record_end(line, i % 2 ? ROTA_OK : ROTA_ERR_PEER);
    }
    for (uint64_t i = 1; i <= 1001; i++) {
        bool kept = i > 1000 - RECORD_CALLS && i <= 1000;
        cr_assert_eq(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, i, &call), kept, "%d",
                     (int)i);
        if (!kept)
            continue;
        cr_assert_eq(call.count, i * 3);
        cr_assert_eq(call.fingerprint, 77);
        cr_assert_eq(call.kind, ROTA_KIND_ALL_REDUCE);
        cr_assert_eq(call.state, i % 2 ? ROTA_OK : ROTA_ERR_PEER);
        cr_assert_eq(call.begun != 0, i % 64 == 0);
        cr_assert_eq(call.ended != 0, i % 64 == 0);
    }
    cr_assert(!recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 1, 0, &call));
    cr_assert(!recorder_find(recorder, RECORD_PAGE_MESSAGES, 0, 0, 0, &call));
    recorder_close(recorder, true);
}

Test(pages, stamps_and_user_operators) {
    struct recorder *recorder = in_memory();
    struct record_page *page = world(recorder);
    cr_assert(record_stamps(page, 64, 8));
    cr_assert(!record_stamps(page, 65, 4095));
    cr_assert(record_stamps(page, 65, 4096));
    struct record_entry entry = folder_entry(65);
    entry.op = 0x80000003u;
    struct record_call *line = record_begin(page, &entry, false), call;
    record_waiting(page, line, 1);
    uint64_t began = line->begun;
    cr_assert_neq(began, 0);
    record_waiting(page, line, 0);
    cr_assert_eq(line->begun, began);
    record_end(line, ROTA_OK);
    cr_assert_geq(line->ended, began);
    cr_assert(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 65, &call));
    cr_assert_eq(call.waiting_for, 0);
    cr_assert_eq(call.op, RECORD_USER_OP);
    recorder_close(recorder, true);
}

/* Stamps convert to the clock that the rest of the library waits by. */
Test(pages, ticks_are_times) {
    struct recorder *recorder = in_memory();
    uint64_t ticks = recorder_ticks(), ns = recorder_clock_ns();
    struct timespec pause = {.tv_nsec = 50000000};
    nanosleep(&pause, NULL);
    int64_t off = (int64_t)(recorder_ticks_to_ns(recorder, ticks) - ns);
    cr_assert_lt(llabs(off), 5000000, "off by %lld ns", (long long)off);
    int64_t now = (int64_t)(recorder_ticks_to_ns(recorder, recorder_ticks()) - recorder_clock_ns());
    cr_assert_lt(llabs(now), 5000000, "off by %lld ns", (long long)now);
    cr_assert_eq(recorder_ticks_to_ns(recorder, 0), 0);
    recorder_close(recorder, true);
}

/* A queue longer than the ring keeps its head, for which everything waits. */
Test(pages, running_calls_are_not_overwritten) {
    struct recorder *recorder = in_memory();
    struct record_page *page = world(recorder), head;
    struct record_call *lines[200], call;
    for (uint64_t i = 0; i < 200; i++) {
        struct record_entry entry = folder_entry(i + 1);
        lines[i] = record_begin_queued(page, &entry, true);
        cr_assert_eq(lines[i] != NULL, i < RECORD_CALLS);
    }
    cr_assert(recorder_running(recorder, &call, &head));
    cr_assert_eq(call.sequence, 1);
    cr_assert_str_eq(head.name, "world");
    cr_assert_eq(head.nranks, 2);
    record_end(lines[0], ROTA_OK);
    cr_assert(recorder_running(recorder, &call, &head));
    cr_assert_eq(call.sequence, 2);
    struct record_entry entry = folder_entry(201);
    cr_assert_eq(record_begin_queued(page, &entry, true), lines[0]);
    recorder_close(recorder, true);
}

Test(pages, oldest_wait_of_all_communicators) {
    struct recorder *recorder = in_memory();
    struct record_page *one = world(recorder), head;
    struct record_page *two =
        recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 5, 1, "tp", 1, 2, NULL);
    struct record_call call;
    cr_assert(!recorder_running(recorder, &call, &head));
    struct record_entry first = folder_entry(8), second = folder_entry(3);
    struct record_call *line = record_begin(two, &second, true);
    record_begin(one, &first, true);
    cr_assert(recorder_running(recorder, &call, &head));
    cr_assert_eq(call.sequence, 3);
    cr_assert_eq(head.comm, 5);
    cr_assert_eq(head.generation, 1);
    record_end(line, ROTA_OK);
    cr_assert(recorder_running(recorder, &call, &head));
    cr_assert_eq(call.sequence, 8);
    recorder_close(recorder, true);
}

/* Pages are given out again; those of failed communicators last. */
Test(pages, many_communicators) {
    struct recorder *recorder = in_memory();
    struct record_page *pages[RECORD_MAX_PAGES];
    struct record_call call;
    uint32_t made = 0;
    for (;; made++) {
        pages[made] = recorder_page(recorder, RECORD_PAGE_COLLECTIVES, made, 0, "c", 0, 2, NULL);
        if (pages[made] == NULL)
            break;
        cr_assert_eq(pages[made]->number, made + 1);
    }
    cr_assert_eq(made, RECORD_MAX_PAGES - 1);
    rota_error error = ROTA_ERROR_INIT;
    error.status = ROTA_ERR_PEER;
    recorder_failed(recorder, 10, 0, &error);
    cr_assert(recorder_has_failed(recorder));
    recorder_page_free(recorder, pages[20]);
    recorder_page_free(recorder, pages[10]);
    struct record_entry entry = folder_entry(1);
    record_begin(pages[11], &entry, true);
    cr_assert_eq(recorder_page(recorder, RECORD_PAGE_MESSAGES, 1, 1, "d", 0, 2, NULL), pages[20]);
    cr_assert_eq(recorder_page(recorder, RECORD_PAGE_MESSAGES, 2, 1, "e", 0, 2, NULL), pages[10]);
    cr_assert_null(recorder_page(recorder, RECORD_PAGE_MESSAGES, 3, 1, "f", 0, 2, NULL));
    cr_assert(recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 11, 0, 1, &call));
    recorder_close(recorder, true);
}

struct reader {
    struct recorder *recorder;
    _Atomic bool stop;
    uint64_t found, torn;
};

static void *read_on(void *arg) {
    struct reader *reader = arg;
    struct record_call call;
    while (!atomic_load(&reader->stop)) {
        if (!recorder_find(reader->recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 0, &call))
            continue;
        reader->found++;
        reader->torn += call.count != call.sequence * 3 || call.fingerprint != call.sequence + 1;
    }
    return NULL;
}

/* Copies are of one call, never of two, while calls go on. */
Test(pages, copies_are_whole) {
    struct reader reader = {.recorder = in_memory()};
    struct record_page *page = world(reader.recorder);
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, read_on, &reader), 0);
    for (uint64_t i = 1; i <= 2000000; i++) {
        struct record_entry entry = folder_entry(i);
        entry.count = i * 3;
        entry.fingerprint = i + 1;
        record_end(record_begin(page, &entry, false), ROTA_OK);
    }
    atomic_store(&reader.stop, true);
    pthread_join(thread, NULL);
    cr_assert_gt(reader.found, 0);
    cr_assert_eq(reader.torn, 0, "%d of %d", (int)reader.torn, (int)reader.found);
    recorder_close(reader.recorder, true);
}
