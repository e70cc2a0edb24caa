/* What the user asked for, and the command line that says it. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include "bench/operation.h"

#define BENCH_MAX_OPERATIONS 32
#define BENCH_MAX_OVERLAYS 16
#define BENCH_COMMAND "rota bench"

/* How the times of the ranks become one (-a). */
enum bench_average { BENCH_RANK0 = 0, BENCH_MEAN = 1, BENCH_MIN = 2, BENCH_MAX = 3 };

/* What is asked of the operations, beside how long they take. */
enum bench_study { BENCH_ROWS, BENCH_SELECTION, BENCH_GUIDELINES, BENCH_OVERLAP, BENCH_CALIBRATE };

struct bench_options {
    const struct bench_operation *operations[BENCH_MAX_OPERATIONS];
    int operation_count;
    int ranks;   /* 0: not said */
    int threads; /* ranks per process; 0: not said, one */
    int64_t min_bytes, max_bytes, step_bytes;
    int64_t factor; /* 0: by step_bytes */
    int64_t iterations, warmup, checks;
    enum bench_average average;
    rota_dtype dtypes[ROTA_DTYPE_COUNT];
    rota_op ops[ROTA_OP_COUNT];
    int dtype_count, op_count;
    int root;              /* -1: all */
    const char *algorithm; /* NULL: the library chooses */
    bool all_algorithms;
    const char *transport, *mode;
    int *host_of; /* by rank; NULL: as it is */
    const char *json;
    bool table; /* false when JSON goes to standard output */
    bool hash;
    int64_t pieces;     /* calls that the data of a hashed call is cut into */
    int64_t timeout_ms; /* 0: the library's */
    enum bench_study study;
    int64_t tolerance;     /* of the studies, in percent */
    const char *calibrate; /* the profile to write */
    const char *plot;      /* the picture to draw; NULL: none */
    const char *overlays[BENCH_MAX_OVERLAYS];
    int overlay_count;
};

/* Reads and checks the command line; a fault ends the process with one line and status 2. Sets
 * ROTA_TRANSPORT, ROTA_MODE and ROTA_TIMEOUT_MS in the environment as the options say. */
void bench_options_parse(struct bench_options *options, int argc, char **argv);

#endif
