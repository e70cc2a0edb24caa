/* The table of operations. */
#include "bench/operation.h"

#include <string.h>

/* nccl-tests rounds blocks down to this many bytes, so that each begins aligned. */
#define BLOCK_ALIGNMENT ((size_t)16)
#define RING_TAG 1

static const struct bench_operation operations[] = {
    {"all_reduce", BENCH_ALL_REDUCE, ROTA_KIND_ALL_REDUCE, false, true, false, true, false},
    {"all_gather", BENCH_ALL_GATHER, ROTA_KIND_ALL_GATHER, true, false, false, true, false},
    {"reduce_scatter", BENCH_REDUCE_SCATTER, ROTA_KIND_REDUCE_SCATTER, true, true, false, true,
     false},
    {"broadcast", BENCH_BROADCAST, ROTA_KIND_BROADCAST, false, false, true, true, false},
    {"reduce", BENCH_REDUCE, ROTA_KIND_REDUCE, false, true, true, true, false},
    {"all_to_all", BENCH_ALL_TO_ALL, ROTA_KIND_ALL_TO_ALL, true, false, false, false, false},
    {"gather", BENCH_GATHER, ROTA_KIND_GATHER, true, false, true, true, false},
    {"scatter", BENCH_SCATTER, ROTA_KIND_SCATTER, true, false, true, true, false},
    {"scan", BENCH_SCAN, ROTA_KIND_SCAN, false, true, false, true, false},
    {"exclusive_scan", BENCH_EXCLUSIVE_SCAN, ROTA_KIND_EXCLUSIVE_SCAN, false, true, false, true,
     false},
    {"send_recv", BENCH_SEND_RECV, ROTA_KIND_SEND, false, false, false, false, false},
    {"barrier", BENCH_BARRIER, ROTA_KIND_BARRIER, false, false, false, false, false},
    {"all_gatherv", BENCH_ALL_GATHER, ROTA_KIND_ALL_GATHER, true, false, false, true, true},
    {"reduce_scatterv", BENCH_REDUCE_SCATTER, ROTA_KIND_REDUCE_SCATTER, true, true, false, true,
     true},
    {"all_to_allv", BENCH_ALL_TO_ALL, ROTA_KIND_ALL_TO_ALL, true, false, false, false, true},
    {"gatherv", BENCH_GATHER, ROTA_KIND_GATHER, true, false, true, true, true},
    {"scatterv", BENCH_SCATTER, ROTA_KIND_SCATTER, true, false, true, true, true},
};

static const struct {
    const char *alias, *name;
} aliases[] = {{"allreduce", "all_reduce"},  {"allgather", "all_gather"},
               {"alltoall", "all_to_all"},   {"reducescatter", "reduce_scatter"},
               {"sendrecv", "send_recv"},    {"bcast", "broadcast"},
               {"exscan", "exclusive_scan"}, {"allgatherv", "all_gatherv"},
               {"alltoallv", "all_to_allv"}, {"reducescatterv", "reduce_scatterv"}};

#define OPERATION_COUNT (sizeof(operations) / sizeof(operations[0]))

static const struct bench_operation *by_name(const char *name, size_t length) {
    for (size_t i = 0; i < OPERATION_COUNT; i++)
        if (strlen(operations[i].name) == length && memcmp(operations[i].name, name, length) == 0)
            return &operations[i];
    return NULL;
}

const struct bench_operation *bench_operation_find(const char *name) {
    static const char suffix[] = "_perf";
    size_t length = strlen(name), cut = sizeof(suffix) - 1;
    if (length > cut && strcmp(name + length - cut, suffix) == 0)
        length -= cut;
    for (size_t i = 0; i < sizeof(aliases) / sizeof(aliases[0]); i++)
        if (strlen(aliases[i].alias) == length && memcmp(aliases[i].alias, name, length) == 0)
            return by_name(aliases[i].name, strlen(aliases[i].name));
    return by_name(name, length);
}

const struct bench_operation *bench_operation_at(int index) {
    return index >= 0 && (size_t)index < OPERATION_COUNT ? &operations[index] : NULL;
}

bool bench_operation_has(const struct bench_operation *operation, rota_op op, rota_dtype dtype) {
    bool scans = operation->shape == BENCH_SCAN || operation->shape == BENCH_EXCLUSIVE_SCAN;
    return !operation->reduces || (rota_op_accepts(op, dtype) && (!scans || op != ROTA_AVG));
}

/* Never more than nranks * count in all. */
static size_t vector_length(const struct bench_case *row, int block) {
    size_t base = row->count, quarter = base / 4 + (base % 4 != 0);
    size_t lengths[3] = {base - quarter, base, base + quarter};
    int empty = row->nranks / 2;
    if (row->nranks < 3 || (block != empty && block != empty - 1))
        return lengths[block % 3];
    return block == empty ? 0 : lengths[block % 3] + lengths[empty % 3];
}

size_t bench_case_block(const struct bench_case *row, int from, int to) {
    if (!row->operation->vector)
        return row->count;
    switch (row->operation->shape) {
    case BENCH_ALL_TO_ALL: /* no two ranks have the same tables, but all send the same in all */
        return vector_length(row, (to - from + row->nranks) % row->nranks);
    case BENCH_ALL_GATHER:
    case BENCH_GATHER:
        return vector_length(row, from);
    default:
        return vector_length(row, to);
    }
}

size_t bench_case_gap(const struct bench_case *row) {
    return row->operation->vector && row->in_place == (row->dtype % 2 != 0) ? BENCH_GAP : 0;
}

int bench_case_block_at(const struct bench_case *row, int place) {
    return bench_case_gap(row) ? (place + 1) % row->nranks : place;
}

size_t bench_case_block_offset(const struct bench_case *row, bool receives, int rank) {
    size_t gap = bench_case_gap(row), offset = gap;
    for (int place = 0; place < row->nranks; place++) {
        int block = bench_case_block_at(row, place);
        if (block == rank)
            break;
        offset += gap + (receives ? bench_case_block(row, block, row->rank)
                                  : bench_case_block(row, row->rank, block));
    }
    return offset;
}

/* Elements of a buffer with a block for each rank. */
static size_t whole_count(const struct bench_case *row, bool receives) {
    int last = bench_case_block_at(row, row->nranks - 1);
    return bench_case_block_offset(row, receives, last) + bench_case_gap(row) +
           (receives ? bench_case_block(row, last, row->rank)
                     : bench_case_block(row, row->rank, last));
}

void bench_case_tables_fill(struct bench_case *row) {
    size_t n = (size_t)row->nranks;
    for (int rank = 0; row->operation->vector && rank < row->nranks; rank++) {
        size_t *entry = row->tables + rank;
        entry[BENCH_SEND_COUNTS * n] = bench_case_block(row, row->rank, rank);
        entry[BENCH_SEND_OFFSETS * n] = bench_case_block_offset(row, false, rank);
        entry[BENCH_RECV_COUNTS * n] = bench_case_block(row, rank, row->rank);
        entry[BENCH_RECV_OFFSETS * n] = bench_case_block_offset(row, true, rank);
    }
}

void bench_case_size(struct bench_case *row, int64_t bytes) {
    const struct bench_operation *operation = row->operation;
    size_t element = rota_dtype_size(row->dtype);
    row->bytes = bytes;
    row->count = (size_t)bytes / element;
    row->size = row->count * element;
    if (operation->shape == BENCH_BARRIER) {
        row->bytes = 0;
        row->count = row->size = 0;
    } else if (operation->vector) {
        size_t total = 0;
        row->count /= (size_t)row->nranks;
        for (int block = 0; block < row->nranks; block++)
            total += vector_length(row, block);
        row->size = total * element;
    } else if (operation->blocks) {
        row->count = row->count / (size_t)row->nranks / (BLOCK_ALIGNMENT / element) *
                     (BLOCK_ALIGNMENT / element);
        row->size = row->count * element * (size_t)row->nranks;
    }
}

size_t bench_case_send_count(const struct bench_case *row) {
    enum bench_shape shape = row->operation->shape;
    bool many =
        shape == BENCH_REDUCE_SCATTER || shape == BENCH_ALL_TO_ALL || shape == BENCH_SCATTER;
    return many ? whole_count(row, false) : bench_case_block(row, row->rank, row->rank);
}

size_t bench_case_recv_count(const struct bench_case *row) {
    enum bench_shape shape = row->operation->shape;
    bool many = shape == BENCH_ALL_GATHER || shape == BENCH_ALL_TO_ALL || shape == BENCH_GATHER;
    return many ? whole_count(row, true) : bench_case_block(row, row->rank, row->rank);
}

bool bench_case_is_source(const struct bench_case *row) {
    enum bench_shape shape = row->operation->shape;
    bool root_only = shape == BENCH_BROADCAST || shape == BENCH_SCATTER;
    return !root_only || row->rank == row->root;
}

bool bench_case_is_target(const struct bench_case *row) {
    enum bench_shape shape = row->operation->shape;
    if (shape == BENCH_EXCLUSIVE_SCAN)
        return row->rank > 0;
    return (shape != BENCH_REDUCE && shape != BENCH_GATHER) || row->rank == row->root;
}

double bench_case_factor(const struct bench_case *row) {
    double n = row->nranks;
    if (row->operation->shape == BENCH_ALL_REDUCE)
        return 2 * (n - 1) / n;
    return row->operation->blocks ? (n - 1) / n : 1;
}

const char *bench_case_op_name(const struct bench_case *row) {
    return row->operation->reduces ? rota_op_name(row->op) : "none";
}

const char *bench_case_dtype_name(const struct bench_case *row) {
    if (row->operation->shape == BENCH_BARRIER)
        return "none";
    switch (row->dtype) {
    case ROTA_FLOAT16:
        return "half";
    case ROTA_FLOAT32:
        return "float";
    case ROTA_FLOAT64:
        return "double";
    default:
        return rota_dtype_name(row->dtype);
    }
}

static rota_status ring_call(const struct bench_case *row, const void *send, void *recv,
                             rota_comm *comm) {
    rota_call call = ROTA_CALL_INIT;
    rota_request *request = NULL;
    int next = (row->rank + 1) % row->nranks;
    int previous = (row->rank + row->nranks - 1) % row->nranks;
    call.request = &request;
    rota_status status =
        rota_recv(recv, row->count, row->dtype, previous, RING_TAG, comm, NULL, &call);
    if (status)
        return status;
    status = rota_send(send, row->count, row->dtype, next, RING_TAG, comm, NULL);
    rota_status received = rota_request_wait(request, 0);
    rota_request_free(request);
    return status ? status : received;
}

static rota_status vector_call(const struct bench_case *row, const void *send, void *recv,
                               rota_comm *comm, const rota_call *options) {
    const size_t n = (size_t)row->nranks, *tables = row->tables;
    /* Off the root no table is read; packed blocks need no offsets. */
    bool reads = !row->operation->rooted || row->rank == row->root;
    const size_t *to = reads ? tables + BENCH_SEND_COUNTS * n : NULL;
    const size_t *from = reads ? tables + BENCH_RECV_COUNTS * n : NULL;
    bool spread = reads && bench_case_gap(row) > 0;
    const size_t *to_offsets = spread ? tables + BENCH_SEND_OFFSETS * n : NULL;
    const size_t *from_offsets = spread ? tables + BENCH_RECV_OFFSETS * n : NULL;
    size_t own = bench_case_block(row, row->rank, row->rank);
    switch (row->operation->shape) {
    case BENCH_ALL_GATHER:
        return rota_all_gatherv(send, own, recv, from, from_offsets, row->dtype, comm, options);
    case BENCH_REDUCE_SCATTER:
        return rota_reduce_scatterv(send, to, to_offsets, recv, own, row->dtype, row->op, comm,
                                    options);
    case BENCH_ALL_TO_ALL:
        return rota_all_to_allv(send, to, to_offsets, recv, from, from_offsets, row->dtype, comm,
                                options);
    case BENCH_GATHER:
        return rota_gatherv(send, own, recv, from, from_offsets, row->dtype, row->root, comm,
                            options);
    case BENCH_SCATTER:
        return rota_scatterv(send, to, to_offsets, recv, own, row->dtype, row->root, comm, options);
    default:
        return ROTA_ERR_ARGUMENT;
    }
}

rota_status bench_case_call(const struct bench_case *row, const void *send, void *recv,
                            rota_comm *comm) {
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = row->algorithm;
    call.request = row->request;
    const rota_call *options = row->algorithm || row->request ? &call : NULL;
    if (row->operation->vector)
        return vector_call(row, send, recv, comm, options);
    switch (row->operation->shape) {
    case BENCH_ALL_REDUCE:
        return rota_all_reduce(send, recv, row->count, row->dtype, row->op, comm, options);
    case BENCH_REDUCE:
        return rota_reduce(send, recv, row->count, row->dtype, row->op, row->root, comm, options);
    case BENCH_BROADCAST:
        return rota_broadcast(send, recv, row->count, row->dtype, row->root, comm, options);
    case BENCH_ALL_GATHER:
        return rota_all_gather(send, recv, row->count, row->dtype, comm, options);
    case BENCH_REDUCE_SCATTER:
        return rota_reduce_scatter(send, recv, row->count, row->dtype, row->op, comm, options);
    case BENCH_ALL_TO_ALL:
        return rota_all_to_all(send, recv, row->count, row->dtype, comm, options);
    case BENCH_GATHER:
        return rota_gather(send, recv, row->count, row->dtype, row->root, comm, options);
    case BENCH_SCATTER:
        return rota_scatter(send, recv, row->count, row->dtype, row->root, comm, options);
    case BENCH_SCAN:
        return rota_scan(send, recv, row->count, row->dtype, row->op, comm, options);
    case BENCH_EXCLUSIVE_SCAN:
        return rota_exclusive_scan(send, recv, row->count, row->dtype, row->op, comm, options);
    case BENCH_SEND_RECV:
        return ring_call(row, send, recv, comm);
    case BENCH_BARRIER:
        return rota_barrier(comm, options);
    }
    return ROTA_ERR_ARGUMENT;
}
