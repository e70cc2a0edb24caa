/* Status codes and error records.
 *
 * Every function of rota returns a `rota_status`; 0 is success and outputs are set on success
 * only. What went wrong in detail stands in an error record that belongs to the request or to the
 * communicator (`rota_request_error`, `rota_comm_error`) or, for functions that have neither, to
 * the calling thread (`rota_last_error`). */
#ifndef ROTA_STATUS_H
#define ROTA_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(_WIN32)
#error "rota runs on Linux"
#endif

/* Marks what the shared library exports. */
#define ROTA_API __attribute__((visibility("default")))

/* Value of a struct that begins with its size: that size, and zero in all else. */
#ifdef __cplusplus
#define ROTA_SIZED(type)                                                                           \
    [] {                                                                                           \
        type sized = type();                                                                       \
        sized.size = sizeof(type);                                                                 \
        return sized;                                                                              \
    }()
#else
#define ROTA_SIZED(type)                                                                           \
    { .size = sizeof(type) }
#endif

/* Outcome of a call. The numbers are part of the ABI: new codes are added at the end. */
typedef enum rota_status {
    ROTA_OK = 0,
    ROTA_ERR_ARGUMENT = 1,     /* an argument of this call is wrong; nothing was communicated */
    ROTA_ERR_MEMORY = 2,       /* memory, or a bounded pool, is exhausted */
    ROTA_ERR_SYSTEM = 3,       /* a system call failed: see `system_error` in the record */
    ROTA_ERR_TIMEOUT = 4,      /* the deadline of the call or of the communicator passed */
    ROTA_ERR_MISMATCH = 5,     /* ranks called different things, or lengths differ */
    ROTA_ERR_ABORTED = 6,      /* rota_comm_abort or rota_request_cancel was called here */
    ROTA_ERR_PEER = 7,         /* a peer died or its connection broke */
    ROTA_ERR_ISOLATED = 8,     /* this rank cannot reach a majority of the others */
    ROTA_ERR_BUSY = 9,         /* another thread is inside a collective of this communicator */
    ROTA_ERR_UNSUPPORTED = 10, /* this combination does not exist (the message says which) */
    ROTA_ERR_SETTING = 11,     /* a setting, variable or configuration file is wrong */
    ROTA_ERR_FORMAT = 12,      /* a file or a message from the network does not parse */
    ROTA_ERR_TRUNCATED = 13,   /* a message was longer than the buffer that was to receive it */
    ROTA_ERR_STATE = 14,       /* the object is finalized, failed, or not ready for this call */
    ROTA_ERR_SCHEDULE = 15,    /* a schedule was refused by the verifier */
    ROTA_ERR_INTERNAL = 16,    /* a bug in rota */
    ROTA_ERR_REVOKED = 17      /* a rank called rota_comm_revoke on this communicator */
} rota_status;

#define ROTA_ERROR_MAX_CULPRITS 16
#define ROTA_ERROR_MAX_MESSAGE 512
#define ROTA_ERROR_MAX_NAME 64
#define ROTA_ERROR_MAX_GROUPS 4

/* Ranks that called the same, in a mismatch. */
typedef struct rota_error_group {
    int rank_count;
    int ranks[8];  /* the first of them, ascending; those beyond are -1 */
    char call[88]; /* "all_reduce #5 (float32 sum, 1000)"; "" where they have called nothing yet */
} rota_error_group;

/* Error record: complete without logs. Set `size` to sizeof(rota_error) before passing one in
 * (ROTA_ERROR_INIT does); fields beyond the caller's size are not written. */
typedef struct rota_error {
    size_t size;
    rota_status status;
    int peer;          /* the rank waited for or spoken with, -1 where there is none */
    int culprit_count; /* ranks that are to blame; 0 where nobody is (a mismatch has none) */
    int culprits[ROTA_ERROR_MAX_CULPRITS];
    int kind;           /* rota_kind of the operation, -1 outside operations */
    int system_error;   /* errno of the failed system call, 0 where there is none */
    uint64_t sequence;  /* number of the operation on its communicator */
    uint64_t waited_ms; /* how long the call had waited when it ended */
    uint32_t epoch;     /* view of the job in which this was decided */
    char comm_name[ROTA_ERROR_MAX_NAME];
    char address[ROTA_ERROR_MAX_NAME]; /* address of the peer, "" where it does not matter */
    char message[ROTA_ERROR_MAX_MESSAGE];
    /* Who called what, where ROTA_ERR_MISMATCH is about whole calls; a fifth and further groups are
     * in no place but the message. */
    int group_count;
    rota_error_group groups[ROTA_ERROR_MAX_GROUPS];
} rota_error;

#define ROTA_ERROR_INIT ROTA_SIZED(rota_error)

/* Name of a status, e.g. "timeout"; never NULL, also for numbers that are no status. */
ROTA_API const char *rota_status_name(rota_status status);

/* Copies the last error of the calling thread into `error`: for functions without a communicator
 * or request. Errors: ROTA_ERR_ARGUMENT when error is NULL or its size is too small to be one. */
ROTA_API rota_status rota_last_error(rota_error *error);

/* Library version as "MAJOR.MINOR.PATCH". */
ROTA_API const char *rota_version(void);

#ifdef __cplusplus
}
#endif
#endif
