/* Element types, reduction operators, kinds of collective, numerics modes and the per-call
 * options that every operation takes. */
#ifndef ROTA_TYPES_H
#define ROTA_TYPES_H

#include <rota/status.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Element type: one of these numbers, or what rota_dtype_bytes gives. */
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
    ROTA_FLOAT8_E4M3 = 12,   /* OCP: no infinity, overflow is NaN, largest 448 */
    ROTA_FLOAT8_E5M2 = 13,   /* OCP: upper half of a binary16, overflow is infinity */
    ROTA_COMPLEX64 = 14,     /* two float32, real part first */
    ROTA_COMPLEX128 = 15,    /* two float64 */
    ROTA_BOOL = 16,          /* one byte: 0 is false, all else true; results are 0 or 1 */
    ROTA_FLOAT32_INT32 = 17, /* rota_float32_int32, a value and where it was */
    ROTA_FLOAT64_INT32 = 18, /* rota_float64_int32 */
    ROTA_INT32_INT32 = 19,   /* rota_int32_int32 */
    ROTA_INT64_INT64 = 20,   /* rota_int64_int64 */
    ROTA_DTYPE_COUNT = 21
};

/* Elements of the pair types. Padding is moved as it is, and zero in the result of a reduction. */
typedef struct rota_float32_int32 {
    float value;
    int32_t index;
} rota_float32_int32;
typedef struct rota_float64_int32 {
    double value;
    int32_t index;
    int32_t padding;
} rota_float64_int32;
typedef struct rota_int32_int32 {
    int32_t value, index;
} rota_int32_int32;
typedef struct rota_int64_int64 {
    int64_t value, index;
} rota_int64_int64;

/* Reduction operator: one of these numbers, or what a function of rota/operator.h gives.
 *
 * AVG is the sum divided by the number of ranks, rounded once; MIN and MAX follow IEEE 754-2019
 * minimum and maximum (a NaN wins, -0 < +0). Integer sums wrap. The logical operators read all but
 * 0 as true and give 0 or 1. MINLOC and MAXLOC take a pair by its value, and of equal values that
 * of the lowest index. rota_op_accepts tells which types an operator takes; docs/numerics.md has
 * all the rules. */
typedef uint32_t rota_op;
enum {
    ROTA_SUM = 0,
    ROTA_PROD = 1,
    ROTA_MIN = 2,
    ROTA_MAX = 3,
    ROTA_AVG = 4,
    ROTA_BITWISE_AND = 5,
    ROTA_BITWISE_OR = 6,
    ROTA_BITWISE_XOR = 7,
    ROTA_LOGICAL_AND = 8,
    ROTA_LOGICAL_OR = 9,
    ROTA_LOGICAL_XOR = 10,
    ROTA_MINLOC = 11,
    ROTA_MAXLOC = 12,
    ROTA_OP_COUNT = 13
};

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

/* What is promised about the bits of a floating-point result; docs/numerics.md has the details. All
 * ranks of a call that reduces must ask for the same. In every mode the result of an all_reduce is
 * the same on all ranks, to the bit. */
typedef enum rota_numerics {
    ROTA_NUMERICS_DEFAULT = 0, /* the communicator's mode (setting ROTA_MODE) */
    /* Narrow types are summed in float32 and rounded once. The bits repeat with the same count,
     * settings, placement of ranks and version. */
    ROTA_NUMERICS_EQUAL = 1,
    /* Each element is the value of the aligned binary tree over rank numbers, rounded once: the
     * bits depend on the inputs and the number of ranks alone. */
    ROTA_NUMERICS_REPRODUCIBLE = 2,
    /* Sums, products and averages of narrow types may be rounded at every hop, within the number of
     * roundings that `rota verify` prints. */
    ROTA_NUMERICS_FAST = 3
} rota_numerics;

/* Elements of 1 to ROTA_DTYPE_BYTES_MAX bytes that the library does not look into: they are moved,
 * and reduced by the caller's own operators (rota/operator.h). They need no alignment. Another size
 * gives a number that is no type. */
#define ROTA_DTYPE_BYTES_MAX 1024
ROTA_API rota_dtype rota_dtype_bytes(size_t size);

/* Bytes of one element, 0 for a number that is no type. */
ROTA_API size_t rota_dtype_size(rota_dtype dtype);
/* What pointers to elements must be aligned to (their C type's alignment), 0 for no type. */
ROTA_API size_t rota_dtype_alignment(rota_dtype dtype);
/* "float32", "bfloat16", ..., "bytes" for rota_dtype_bytes; NULL for a number that is no type. */
ROTA_API const char *rota_dtype_name(rota_dtype dtype);
/* "sum", "prod", "min", "max", "avg", "bitwise_and", ...; NULL for a number that is no operator,
 * also for one that was created. */
ROTA_API const char *rota_op_name(rota_op op);
/* Whether the operator, one of the numbers above, reduces elements of the type. */
ROTA_API bool rota_op_accepts(rota_op op, rota_dtype dtype);
/* "all_reduce", ...; NULL for a number that is no kind. */
ROTA_API const char *rota_kind_name(rota_kind kind);
/* "default", "equal", "reproducible", "fast"; NULL for a number that is no mode. */
ROTA_API const char *rota_numerics_name(rota_numerics numerics);
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

/* Called once when an operation ends, before waiters wake. It may start operations, and read the
 * record of its request (rota_request_error), and must not block. */
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
