/* The flight recorder: what this rank called last, in a mapped file that survives kill -9.
 *
 * Design notes. Every communicator that has made a call owns a page of 4 KiB: a head, and a ring of
 * its last calls, one cache line each. Only the thread that is inside a collective of the
 * communicator writes its ring, so recording a call takes a few stores and no atomic read-modify-
 * write; point to point is recorded in a page of its own, inside the progress domain. Readers (the
 * control thread that answers a peer, `rota doctor` on the file) read a line, then its sequence
 * again, and drop what changed meanwhile. Pages are given out and found under a small lock of the
 * recorder's; the control thread never waits for a domain.
 *
 * Where the file cannot be written the pages lie in anonymous memory and all else is the same. */
#ifndef ENGINE_RECORDER_H
#define ENGINE_RECORDER_H

#include <rota/types.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORD_PAGE 4096
#define RECORD_CALLS 62

enum record_state {
    RECORD_RUNNING = -1 /* else the rota_status it ended with */
};
enum record_flags { RECORD_VECTOR = 1, RECORD_NATIVE = 2, RECORD_BLOCKING = 4 };

/* One call. 64 bytes: a line. */
struct record_call {
    _Atomic uint64_t sequence; /* 0: empty, or being written; stored last (release) */
    uint64_t fingerprint;      /* of the call, without algorithm; point to point: the tag */
    uint64_t count;            /* elements */
    uint8_t kind, op, mode, flags;
    uint32_t dtype;
    int32_t root;                /* point to point: the peer; -1: none */
    _Atomic int32_t state;       /* record_state */
    _Atomic int32_t waiting_for; /* member last waited for, -1 */
    uint32_t algorithm;          /* XXH32 of its name, 0 unknown */
    _Atomic uint64_t begun, ended; /* recorder_ticks; 0: not stamped */
};
_Static_assert(sizeof(struct record_call) == 64, "read from files");

/* A communicator's page. */
struct record_page {
    _Atomic uint32_t used; /* 0: free; else RECORD_PAGE_ values */
    uint32_t comm, generation;
    int32_t rank, nranks;
    uint32_t number;           /* of the page in its file */
    _Atomic uint64_t calls;    /* recorded so far: the next goes to calls % RECORD_CALLS */
    char name[64];
    uint8_t unused[128 - 8 * 4 - 64];
    struct record_call ring[RECORD_CALLS];
};
_Static_assert(sizeof(struct record_page) == RECORD_PAGE, "read from files");
enum { RECORD_PAGE_COLLECTIVES = 1, RECORD_PAGE_MESSAGES = 2 };

struct recorder;

/* `directory`: the setting ROTA_RECORD_DIR; the file is DIRECTORY/JOB/rank-N.rota. Never fails for
 * want of a place to write: then it is anonymous memory, and one line is logged at info. Errors:
 * ROTA_ERR_MEMORY. */
struct job;
rota_status recorder_open(const struct job *job, struct recorder **recorder);
/* `clean`: nothing has failed, so the file goes away; else it stays, and of older jobs' folders
 * the last 16. */
void recorder_close(struct recorder *recorder, bool clean);

/* The page of a communicator, made on its first call; NULL when there is no memory, and then
 * nothing is recorded. Any thread. */
struct record_page *recorder_page(struct recorder *recorder, uint32_t kind, uint32_t comm,
                                  uint32_t generation, const char *name, int rank, int nranks);
/* Gives a page back: the communicator is destroyed. */
void recorder_page_free(struct recorder *recorder, struct record_page *page);

/* A consistent copy of a call; false: not (or no longer) in the ring. sequence 0 asks for the last
 * one. Any thread; in particular the control thread, while calls go on. */
bool recorder_find(struct recorder *recorder, uint32_t kind, uint32_t comm, uint32_t generation,
                   uint64_t sequence, struct record_call *call);
/* The call of this rank that runs now and has waited longest, of any communicator: what a blocked
 * rank is in. False: none runs. Name, rank and size of its communicator are in *page's copy. */
bool recorder_running(struct recorder *recorder, struct record_call *call,
                      struct record_page *head);

/* Time stamps: the processor's counter where it is constant, else the monotonic clock in ns. The
 * file's head says how to convert. */
uint64_t recorder_ticks(void);
uint64_t recorder_ticks_to_ns(const struct recorder *recorder, uint64_t ticks);

/* By the thread inside the call: writes the line; the stores of the line come before that of
 * `sequence` (release), so a reader that sees the number sees the line. Returns it, NULL for a NULL
 * page. A call of 4 KiB and more is stamped, of smaller ones every 64th; `waiting` stamps too. */
struct record_call *record_begin(struct record_page *page, const struct record_call *call,
                                 bool stamp);
void record_end(struct record_call *line, rota_status status);
/* It has waited for 10 us and more: since when, and for which member. */
void record_waiting(struct record_call *line, int member, uint64_t begun);

#endif
