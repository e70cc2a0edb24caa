/* Element types, reduction operators, kinds of collective, numerics modes and the per-call
 * options that every operation takes. */
#ifndef ROTA_TYPES_H
#define ROTA_TYPES_H

#include <rota/status.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element type. A plain number so that later kinds (opaque elements) fit. */
typedef uint32_t rota_dtype;
enum {
    ROTA_INT8 = 0,
    ROTA_UINT8 = 1,
    ROTA_INT16 = 2,
    ROTA_UINT16 = 3,
    ROTA_INT32 = 4,
    ROTA_UINT32 = 5,
    ROTA_INT64 = 6,
    ROTA_UINT64 = 7,
    ROTA_FLOAT16 = 8,  /* IEEE 754 binary16 */
    ROTA_BFLOAT16 = 9, /* upper half of a binary32 */
    ROTA_FLOAT32 = 10,
    ROTA_FLOAT64 = 11,
    ROTA_DTYPE_COUNT = 12
};

/* Reduction operator. AVG is the sum divided by the number of ranks, rounded once; MIN and MAX
 * follow IEEE 754-2019 minimum and maximum (a NaN wins, -0 < +0). Integer sums wrap. */
typedef uint32_t rota_op;
enum { ROTA_SUM = 0, ROTA_PROD = 1, ROTA_MIN = 2, ROTA_MAX = 3, ROTA_AVG = 4, ROTA_OP_COUNT = 5 };

/* Kind of operation. */
typedef enum rota_kind {
    ROTA_KIND_ALL_REDUCE = 0,
    ROTA_KIND_REDUCE = 1,
    ROTA_KIND_BROADCAST = 2,
    ROTA_KIND_ALL_GATHER = 3,
    ROTA_KIND_REDUCE_SCATTER = 4,
    ROTA_KIND_ALL_TO_ALL = 5,
    ROTA_KIND_BARRIER = 6,
    ROTA_KIND_SEND = 7,
    ROTA_KIND_RECV = 8,
    ROTA_KIND_GATHER = 9,
    ROTA_KIND_SCATTER = 10,
    ROTA_KIND_SCAN = 11,
    ROTA_KIND_EXCLUSIVE_SCAN = 12,
    ROTA_KIND_COUNT = 13
} rota_kind;

/* What is promised about the bits of a floating-point result. */
typedef enum rota_numerics {
    ROTA_NUMERICS_DEFAULT = 0, /* the communicator's mode (setting ROTA_MODE) */
    ROTA_NUMERICS_EQUAL = 1    /* identical bits on all ranks, narrow types rounded once */
} rota_numerics;

/* Bytes of one element, 0 for a number that is no type. */
ROTA_API size_t rota_dtype_size(rota_dtype dtype);
/* "float32", "bfloat16", ...; NULL for a number that is no type. */
ROTA_API const char *rota_dtype_name(rota_dtype dtype);
/* "sum", "prod", "min", "max", "avg"; NULL for a number that is no operator. */
ROTA_API const char *rota_op_name(rota_op op);
/* "all_reduce", ...; NULL for a number that is no kind. */
ROTA_API const char *rota_kind_name(rota_kind kind);
/* The inverse of the three above. nccl-tests' spellings (half, float, double, int8, ...) are
 * understood too. Errors: ROTA_ERR_ARGUMENT for an unknown name. */
ROTA_API rota_status rota_dtype_parse(const char *name, rota_dtype *dtype);
ROTA_API rota_status rota_op_parse(const char *name, rota_op *op);
ROTA_API rota_status rota_kind_parse(const char *name, rota_kind *kind);

/* Handles of communicators and of operations that go on while the caller computes. */
typedef struct rota_comm rota_comm;
typedef struct rota_request rota_request;
typedef struct rota_group rota_group;
typedef struct rota_plan rota_plan;

/* Called once when an operation ends, before waiters wake. It may start operations and must not
 * block. */
typedef void (*rota_done_fn)(void *arg, rota_status status);

/* Options of one call; NULL in place of one means: blocking, with the communicator's defaults.
 * Zero in any field is that field's default, so ROTA_CALL_INIT is enough for all that is unset. */
typedef struct rota_call {
    size_t size;            /* sizeof(rota_call) */
    rota_request **request; /* not NULL: the call returns at once and sets *request */
    void *stream;           /* reserved for device streams: must be NULL */
    int64_t timeout_ms;     /* deadline of this call; 0 = the communicator's */
    rota_numerics numerics;
    const char *algorithm; /* name from the table of algorithms; NULL = the library chooses */
    const char *label;     /* shown in error records; copied */
    const void *send_mem;  /* rota_mem handles that hold the buffers, or NULL: rota/memory.h */
    const void *recv_mem;
    rota_done_fn done; /* only together with request */
    void *done_arg;
    int priority;      /* reserved: must be 0 */
    uint32_t flags;    /* reserved: must be 0 */
    rota_group *group; /* not NULL: recorded in the group, started when that ends */
} rota_call;

#define ROTA_CALL_INIT ROTA_SIZED(rota_call)

#ifdef __cplusplus
}
#endif
#endif
