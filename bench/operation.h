/* The operations that can be measured: how large their buffers are, how they are called, and how
 * their bandwidth counts. */
#ifndef BENCH_OPERATION_H
#define BENCH_OPERATION_H

#include <rota/rota.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum bench_shape {
    BENCH_ALL_REDUCE,
    BENCH_REDUCE,
    BENCH_BROADCAST,
    BENCH_ALL_GATHER,
    BENCH_REDUCE_SCATTER,
    BENCH_ALL_TO_ALL,
    BENCH_GATHER,
    BENCH_SCATTER,
    BENCH_SCAN,
    BENCH_EXCLUSIVE_SCAN,
    BENCH_SEND_RECV, /* a ring: every rank sends to the next */
    BENCH_BARRIER
};

struct bench_operation {
    const char *name;
    enum bench_shape shape;
    rota_kind kind;       /* what an algorithm must be able to do */
    bool blocks;          /* the count is per rank */
    bool reduces, rooted; /* it has an operator, a root */
    bool in_place;        /* nccl-tests measures its in-place form */
    bool vector;          /* a v-form: blocks of different lengths */
};

/* Whether the operation has this operator: there is no average of some of the ranks. */
bool bench_operation_has(const struct bench_operation *operation, rota_op op, rota_dtype dtype);

/* The operation of that name, also in nccl-tests' spelling and with _perf behind; NULL: none. */
const struct bench_operation *bench_operation_find(const char *name);
const struct bench_operation *bench_operation_at(int index);

/* One line of the table: an operation with everything that it is called with. */
struct bench_case {
    const struct bench_operation *operation;
    rota_dtype dtype;
    rota_op op;
    int root; /* -1: none */
    const char *algorithm;
    int64_t bytes;    /* asked for */
    size_t count;     /* elements, as the call takes them; of a v-form a block's on average */
    size_t size;      /* bytes of the larger buffer, as nccl-tests counts; without gaps */
    int nranks, rank; /* who we are */
    bool in_place;
    uint32_t salt;          /* makes the data of each call different */
    rota_request **request; /* NULL: the call blocks */
    size_t *tables;         /* of a v-form: room for BENCH_TABLES arrays of nranks */
};

void bench_case_size(struct bench_case *row, int64_t bytes);

/* Blocks. Those of a v-form have lengths that follow from the ranks alone, so that every rank knows
 * them: three quarters to five quarters of the count in turn, from three ranks on one empty and
 * its neighbour longer by as much. Half of the calls, by type and half of the row, have them packed
 * and in order; the others rotated, with gaps of BENCH_GAP elements around each. */
#define BENCH_GAP ((size_t)3)
/* Elements of the block that goes from one rank to another. */
size_t bench_case_block(const struct bench_case *row, int from, int to);
size_t bench_case_gap(const struct bench_case *row);
/* The rank whose block lies at this place, and where that rank's block begins in the buffer. Of a
 * buffer that receives, ranks are senders; else receivers. */
int bench_case_block_at(const struct bench_case *row, int place);
size_t bench_case_block_offset(const struct bench_case *row, bool receives, int rank);

enum { BENCH_SEND_COUNTS, BENCH_SEND_OFFSETS, BENCH_RECV_COUNTS, BENCH_RECV_OFFSETS, BENCH_TABLES };
/* Fills row->tables of a v-form with what bench_case_call passes on; anew for each half. */
void bench_case_tables_fill(struct bench_case *row);

/* Elements of the send and receive buffer of this rank, with the gaps. */
size_t bench_case_send_count(const struct bench_case *row);
size_t bench_case_recv_count(const struct bench_case *row);
/* Whether this rank's send buffer is read, and its receive buffer written. */
bool bench_case_is_source(const struct bench_case *row);
bool bench_case_is_target(const struct bench_case *row);
/* busbw / algbw */
double bench_case_factor(const struct bench_case *row);
/* "sum" or "none" */
const char *bench_case_op_name(const struct bench_case *row);
/* nccl-tests' word for the type */
const char *bench_case_dtype_name(const struct bench_case *row);

/* Calls the operation on buffers laid out as the operation wants them. */
rota_status bench_case_call(const struct bench_case *row, const void *send, void *recv,
                            rota_comm *comm);

#endif
