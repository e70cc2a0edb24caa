/* The flight recorder: what this rank called last, in a mapped file that survives kill -9.
 *
 * Design notes. Every communicator that has made a call owns a page of 4 KiB: a head, and a ring of
 * its last calls, one cache line each. Only the thread that is inside a collective of the
 * communicator writes its ring, so recording a call takes a few stores and no atomic read-modify-
 * write; point to point is recorded in a page of its own, inside the progress domain. Readers (the
 * control thread that answers a peer, `rota doctor` on the file) read a line, then its sequence
 * again, and drop what changed meanwhile. Pages are given out and found under a small lock of the
 * recorder's; the control thread never waits for a domain. Pages never move: their place in memory
 * is reserved, and file pages are mapped into it as they are needed.
 *
 * Where the file cannot be written the pages lie in anonymous memory and all else is the same. */
#ifndef RECORDING_RECORDER_H
#define RECORDING_RECORDER_H

#include "recording/format.h"
#include <rota/types.h>
#include <stdbool.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

struct recorder;
struct settings;

/* What a file says of whom it is of. */
struct recorder_owner {
    uint8_t job[16];
    int rank, nranks;
    const char *host; /* as ranks call it; NULL: the host's name */
};

/* `directory`: the setting ROTA_RECORD_DIR; the file is DIRECTORY/JOB/rank-N.rota. Never fails for
 * want of a place to write: then it is anonymous memory, and one line is logged at info. With
 * ROTA_RECORD=off *recorder is NULL, which all functions below take. Errors: ROTA_ERR_MEMORY. */
rota_status recorder_open(const struct settings *settings, const struct recorder_owner *owner,
                          struct recorder **recorder);
/* The job has met: rota_init is over for this rank. */
void recorder_joined(struct recorder *recorder);
/* `clean`: nothing has failed (recorder_failed), so the file goes away; else it stays, and of older
 * jobs' folders the last 16. */
void recorder_close(struct recorder *recorder, bool clean);
/* Path of the file; "" when it is anonymous memory. */
const char *recorder_path(const struct recorder *recorder);

/* The page of a communicator, made on its first call; NULL when there is no memory, and then
 * nothing is recorded. Any thread. `members`: job ranks, NULL for all in order. */
struct record_page *recorder_page(struct recorder *recorder, uint32_t kind, uint32_t comm,
                                  uint32_t generation, const char *name, int rank, int nranks,
                                  const int *members);
/* Gives a page back: the communicator is destroyed. That of a failed one is kept for readers of
 * the file while there is room. NULL is harmless. */
void recorder_page_free(struct recorder *recorder, struct record_page *page);
/* A communicator has failed: the file says so, and stays. The first failure is kept in full. */
void recorder_failed(struct recorder *recorder, uint32_t comm, uint32_t generation,
                     const rota_error *error);
bool recorder_has_failed(const struct recorder *recorder);
/* Hash of an algorithm's name, as ranks and files tell each other of it. */
uint32_t recorder_hash(const char *name);
/* The same of an algorithm or a form, which the file then knows. Cheap for the name of the
 * last call (by pointer). Whoever may write the page. */
uint32_t recorder_algorithm(struct recorder *recorder, const char *name);

/* A consistent copy of a call; false: not (or no longer) in the ring. sequence 0 asks for the last
 * one. Any thread; in particular the control thread, while calls go on. */
bool recorder_find(struct recorder *recorder, uint32_t kind, uint32_t comm, uint32_t generation,
                   uint64_t sequence, struct record_call *call);
/* The call of this rank that runs now and has waited longest, of any communicator: what a blocked
 * rank is in. Of several calls in a communicator's queue the first counts. False: none runs. Name,
 * rank and size of its communicator are in *head, whose ring is left out. */
bool recorder_running(struct recorder *recorder, struct record_call *call,
                      struct record_page *head);

/* Time stamps: the processor's counter where it is constant, else the monotonic clock in ns. The
 * file's head says how to convert. */
extern bool recorder_counts; /* set before the first recorder is there, and never again */
uint64_t recorder_clock_ns(void);
static inline uint64_t recorder_ticks(void) {
#if defined(__x86_64__)
    if (__builtin_expect(recorder_counts, 1))
        return __rdtsc();
#elif defined(__aarch64__)
    if (__builtin_expect(recorder_counts, 1)) {
        uint64_t ticks;
        __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
        return ticks;
    }
#endif
    return recorder_clock_ns();
}
/* CLOCK_MONOTONIC of a stamp; 0 for 0. */
uint64_t recorder_ticks_to_ns(const struct recorder *recorder, uint64_t ticks);

/* What is recorded of a call when it begins. */
struct record_entry {
    uint64_t sequence, fingerprint, count;
    uint32_t dtype, op; /* operators from 255 on are users' and become 255 */
    int32_t root;
    uint32_t algorithm;
    uint8_t kind, mode, flags;
};

/* Fields of a line are read by other threads and processes while they are written. */
#define RECORD_STORE(field, value) __atomic_store_n(&(field), value, __ATOMIC_RELAXED)

static inline void record_write(struct record_call *line, const struct record_entry *entry,
                                bool stamp) {
    /* Partner: the reader's second look at `sequence`. A reader that sees any store below sees the
     * line as empty or with the new number. */
    atomic_store_explicit(&line->sequence, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_release);
    RECORD_STORE(line->fingerprint, entry->fingerprint);
    RECORD_STORE(line->count, entry->count);
    RECORD_STORE(line->kind, entry->kind);
    RECORD_STORE(line->op, (uint8_t)(entry->op < RECORD_USER_OP ? entry->op : RECORD_USER_OP));
    RECORD_STORE(line->mode, entry->mode);
    RECORD_STORE(line->flags, entry->flags);
    RECORD_STORE(line->dtype, entry->dtype);
    RECORD_STORE(line->root, entry->root);
    RECORD_STORE(line->algorithm, entry->algorithm);
    atomic_store_explicit(&line->state, RECORD_RUNNING, memory_order_relaxed);
    atomic_store_explicit(&line->waiting_for, -1, memory_order_relaxed);
    atomic_store_explicit(&line->begun, stamp ? recorder_ticks() : 0, memory_order_relaxed);
    atomic_store_explicit(&line->ended, 0, memory_order_relaxed);
    /* Partner: the reader's first look: who sees the number sees the line. */
    atomic_store_explicit(&line->sequence, entry->sequence, memory_order_release);
}

/* By the thread inside the call; returns the line, NULL for a NULL page. Calls of 4 KiB and more
 * are stamped, smaller ones every 64th (record_stamps); `record_waiting` stamps too. */
static inline struct record_call *record_begin(struct record_page *page,
                                               const struct record_entry *entry, bool stamp) {
    if (page == NULL)
        return NULL;
    uint64_t calls = atomic_load_explicit(&page->calls, memory_order_relaxed);
    struct record_call *line = &page->ring[calls % RECORD_CALLS];
    record_write(line, entry, stamp);
    atomic_store_explicit(&page->calls, calls + 1, memory_order_relaxed);
    return line;
}
static inline bool record_stamps(const struct record_page *page, uint64_t sequence, size_t bytes) {
    return page != NULL && (bytes >= 4096 || (sequence & page->stamp_mask) == 0);
}
static inline void record_end(struct record_call *line, rota_status status) {
    if (line == NULL)
        return;
    if (atomic_load_explicit(&line->begun, memory_order_relaxed) != 0)
        atomic_store_explicit(&line->ended, recorder_ticks(), memory_order_relaxed);
    /* Partner: readers that see the outcome see when it ended. */
    atomic_store_explicit(&line->state, (int)status, memory_order_release);
}

/* The first of the lines after `calls` whose call has ended; NULL when there is none. */
struct record_call *record_free_line(struct record_page *page, uint64_t calls);
static inline bool record_is_free(const struct record_call *line) {
    return atomic_load_explicit(&line->sequence, memory_order_relaxed) == 0 ||
           atomic_load_explicit(&line->state, memory_order_relaxed) != RECORD_RUNNING;
}
/* For calls of which several run at a time: takes a line whose call has ended, and NULL when there
 * is none. */
static inline struct record_call *
record_begin_queued(struct record_page *page, const struct record_entry *entry, bool stamped) {
    if (page == NULL)
        return NULL;
    uint64_t calls = atomic_load_explicit(&page->calls, memory_order_relaxed);
    atomic_store_explicit(&page->calls, calls + 1, memory_order_relaxed);
    struct record_call *line = &page->ring[calls % RECORD_CALLS];
    if (!record_is_free(line))
        line = record_free_line(page, calls);
    if (line != NULL)
        record_write(line, entry, stamped);
    return line;
}
/* It waits, and in vain for a while already: for which member, -1 when that is not known. The
 * first time is kept as the call's begin unless it has one. NULL is harmless. */
void record_waiting(struct record_page *page, struct record_call *line, int member);

#endif
