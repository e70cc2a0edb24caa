/* The table of operations. */
#include "bench/operation.h"

#include <string.h>

/* nccl-tests rounds blocks down to this many bytes, so that each begins aligned. */
#define BLOCK_ALIGNMENT ((size_t)16)
#define RING_TAG 1

static const struct bench_operation operations[] = {
    {"all_reduce", BENCH_ALL_REDUCE, ROTA_KIND_ALL_REDUCE, false, true, false, true},
    {"all_gather", BENCH_ALL_GATHER, ROTA_KIND_ALL_GATHER, true, false, false, true},
    {"reduce_scatter", BENCH_REDUCE_SCATTER, ROTA_KIND_REDUCE_SCATTER, true, true, false, true},
    {"broadcast", BENCH_BROADCAST, ROTA_KIND_BROADCAST, false, false, true, true},
    {"reduce", BENCH_REDUCE, ROTA_KIND_REDUCE, false, true, true, true},
    {"all_to_all", BENCH_ALL_TO_ALL, ROTA_KIND_ALL_TO_ALL, true, false, false, false},
    {"gather", BENCH_GATHER, ROTA_KIND_GATHER, true, false, true, true},
    {"scatter", BENCH_SCATTER, ROTA_KIND_SCATTER, true, false, true, true},
    {"scan", BENCH_SCAN, ROTA_KIND_SCAN, false, true, false, true},
    {"exclusive_scan", BENCH_EXCLUSIVE_SCAN, ROTA_KIND_EXCLUSIVE_SCAN, false, true, false, true},
    {"send_recv", BENCH_SEND_RECV, ROTA_KIND_SEND, false, false, false, false},
    {"barrier", BENCH_BARRIER, ROTA_KIND_BARRIER, false, false, false, false},
};

static const struct {
    const char *alias, *name;
} aliases[] = {{"allreduce", "all_reduce"}, {"allgather", "all_gather"},
               {"alltoall", "all_to_all"},  {"reducescatter", "reduce_scatter"},
               {"sendrecv", "send_recv"},   {"bcast", "broadcast"},
               {"exscan", "exclusive_scan"}};

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

bool bench_operation_has(const struct bench_operation *operation, rota_op op) {
    bool scans = operation->shape == BENCH_SCAN || operation->shape == BENCH_EXCLUSIVE_SCAN;
    return !scans || op != ROTA_AVG;
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
    return many ? row->count * (size_t)row->nranks : row->count;
}

size_t bench_case_recv_count(const struct bench_case *row) {
    enum bench_shape shape = row->operation->shape;
    bool many = shape == BENCH_ALL_GATHER || shape == BENCH_ALL_TO_ALL || shape == BENCH_GATHER;
    return many ? row->count * (size_t)row->nranks : row->count;
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

rota_status bench_case_call(const struct bench_case *row, const void *send, void *recv,
                            rota_comm *comm) {
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = row->algorithm;
    const rota_call *options = row->algorithm ? &call : NULL;
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
