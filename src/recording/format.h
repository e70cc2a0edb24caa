/* The file of a recording: one per rank, pages of 4 KiB in the byte order of the machine. Page 0 is
 * the head; each of the others belongs to a communicator. Readers trust nothing of it. */
#ifndef RECORDING_FORMAT_H
#define RECORDING_FORMAT_H

#include <rota/status.h>
#include <stdatomic.h>
#include <stdint.h>

#define RECORD_MAGIC 0x64636572u /* "recd", little endian */
#define RECORD_VERSION 1
#define RECORD_PAGE 4096
#define RECORD_CALLS 62
#define RECORD_MAX_PAGES 2048
#define RECORD_NAMES 64
#define RECORD_USER_OP 255

enum record_state {
    RECORD_RUNNING = -1 /* else the rota_status it ended with */
};
enum record_flags {
    RECORD_VECTOR = 1,
    RECORD_NATIVE = 2,
    RECORD_BLOCKING = 4,
    RECORD_FUSED = 8 /* several calls of a group as one */
};

/* One call. 64 bytes: a line. */
struct record_call {
    _Atomic uint64_t sequence; /* 0: empty, or being written; stored last (release) */
    uint64_t fingerprint;      /* of the call, without algorithm; point to point: the tag */
    uint64_t count;            /* elements */
    uint8_t kind, op, mode, flags;
    uint32_t dtype;
    int32_t root;                  /* point to point: the peer; -1: none */
    _Atomic int32_t state;         /* record_state */
    _Atomic int32_t waiting_for;   /* member last waited for, -1 */
    uint32_t algorithm;            /* XXH32 of its name, 0 unknown */
    _Atomic uint64_t begun, ended; /* recorder_ticks; 0: not stamped */
};
_Static_assert(sizeof(struct record_call) == 64, "read from files");

enum record_page_kind { RECORD_PAGE_COLLECTIVES = 1, RECORD_PAGE_MESSAGES = 2 };

/* A communicator's page. */
struct record_page {
    _Atomic uint32_t used; /* 0: free; else record_page_kind */
    uint32_t comm, generation;
    int32_t rank, nranks;   /* in the communicator */
    uint32_t number;        /* of the page in its file */
    _Atomic uint64_t calls; /* recorded so far */
    char name[64];
    _Atomic uint32_t closed; /* 1: its communicator has failed and is destroyed */
    _Atomic int32_t failed;  /* status with which the communicator failed, 0 */
    uint32_t stamp_mask;     /* calls whose sequence has none of these bits are stamped */
    /* Job ranks of its members, where they are first, first + stride, ...; stride 0: not so. */
    int32_t first, stride;
    uint32_t unused[3];
    struct record_call ring[RECORD_CALLS];
};
_Static_assert(sizeof(struct record_page) == RECORD_PAGE, "read from files");

struct record_name {
    _Atomic uint32_t hash; /* 0: free; stored last (release) */
    char name[28];
};

enum record_phase { RECORD_JOINING = 1, RECORD_JOINED = 2, RECORD_ENDED = 3 };

struct record_head {
    uint32_t magic, version, page_bytes, ring_calls;
    uint8_t job[16];
    int32_t rank, nranks;
    int64_t pid;
    uint64_t pid_started;   /* by /proc: clock ticks from boot to its start */
    uint64_t pid_namespace; /* inode: what `pid` counts in; 0 unknown */
    char boot[40];          /* boot id of the machine: "" unknown */
    char host[64];
    char library[16]; /* its version */
    /* CLOCK_REALTIME minus CLOCK_MONOTONIC, and two pairs of ticks and CLOCK_MONOTONIC from which
     * stamps are converted: the second is renewed, at an odd version it is being written. */
    int64_t wall_offset_ns;
    uint64_t ticks, ns;
    _Atomic uint64_t anchor_version, anchor_ticks, anchor_ns;
    _Atomic uint32_t pages; /* of the file, with this one */
    _Atomic uint32_t phase;
    /* The first communicator that failed; `failure` is stored last (release). */
    _Atomic int32_t failure;
    uint32_t failure_comm, failure_generation;
    int32_t failure_kind;
    uint64_t failure_sequence, failure_ns;
    char failure_name[64];
    char failure_text[512];
    struct record_name names[RECORD_NAMES];
    uint8_t unused[RECORD_PAGE - 848 - RECORD_NAMES * sizeof(struct record_name)];
};
_Static_assert(sizeof(struct record_head) == RECORD_PAGE, "read from files");

#endif
