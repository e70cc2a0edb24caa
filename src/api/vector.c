/* Public v-forms: tables of counts and displacements are checked here, block by block. */
#include "api/check.h"
#include "base/error.h"
#include "engine/collective.h"
#include <rota/collectives.h>
#include <stdlib.h>

/* A block in memory. */
struct span {
    uintptr_t begin, end;
};

static int compare_spans(const void *left, const void *right) {
    const struct span *a = left, *b = right;
    return a->begin < b->begin ? -1 : a->begin > b->begin;
}

/* The blocks of a table as sorted spans; empty ones are left out. */
static rota_status take_spans(const char *what, const void *buffer, const size_t *counts,
                              const size_t *displs, int n, rota_dtype dtype, struct span *spans,
                              int *nspans) {
    size_t size = rota_dtype_size(dtype), packed = 0;
    *nspans = 0;
    for (int r = 0; r < n; r++) {
        size_t at = displs != NULL ? displs[r] : packed, end = 0, bytes = 0;
        if (__builtin_add_overflow(at, counts[r], &end) ||
            __builtin_mul_overflow(end, size, &bytes) || bytes > SIZE_MAX / 2)
            return error_raise(ROTA_ERR_ARGUMENT, "%s: block %d, %zu elements at %zu, overflows",
                               what, r, counts[r], at);
        packed = end;
        if (counts[r] > 0)
            spans[(*nspans)++] = (struct span){.begin = (uintptr_t)buffer + at * size,
                                               .end = (uintptr_t)buffer + bytes};
    }
    size_t unused = 0;
    rota_status status = check_buffer(what, buffer, *nspans > 0 ? 1 : 0, 1, dtype, &unused);
    if (status == ROTA_OK && *nspans > 1)
        qsort(spans, (size_t)*nspans, sizeof(*spans), compare_spans);
    return status;
}

static rota_status check_disjoint(const struct span *spans, int n) {
    for (int i = 1; i < n; i++)
        if (spans[i].begin < spans[i - 1].end)
            return error_raise(ROTA_ERR_ARGUMENT, "recv: two blocks overlap");
    return ROTA_OK;
}

/* Whether a sent and a received block overlap; both lists are sorted, and received ones disjoint.
 */
static bool lists_overlap(const struct span *sent, int nsent, const struct span *received,
                          int nreceived) {
    for (int s = 0; s < nsent; s++)
        for (int r = 0; r < nreceived && received[r].begin < sent[s].end; r++)
            if (received[r].end > sent[s].begin)
                return true;
    return false;
}

/* A buffer of one block as a table. */
static rota_status take_block(const char *what, const void *buffer, size_t count, rota_dtype dtype,
                              struct span *spans, int *nspans) {
    return take_spans(what, buffer, &count, NULL, 1, dtype, spans, nspans);
}

/* Where sorted blocks begin, and the bytes from there to the last one's end. */
static const void *first(const struct span *spans, int n) {
    return n > 0 ? (const void *)spans[0].begin : NULL;
}
static size_t extent(const struct span *spans, int n) {
    uintptr_t end = 0;
    for (int i = 0; i < n; i++)
        end = spans[i].end > end ? spans[i].end : end;
    return n > 0 ? end - spans[0].begin : 0;
}

static rota_status check_spans(const rota_comm *comm, const struct call_args *args,
                               const rota_call *call, struct span *spans) {
    int n = comm->nranks, nsent = 0, nreceived = 0;
    struct span *received = spans + n;
    bool root = args->root == comm->rank;
    size_t sent_count = args->kind == ROTA_KIND_SCATTER && !root ? 0 : args->count;
    size_t received_count = args->kind == ROTA_KIND_GATHER && !root ? 0 : args->count;
    rota_status status =
        args->send_counts != NULL
            ? take_spans("send", args->send, args->send_counts, args->send_displs, n, args->dtype,
                         spans, &nsent)
            : take_block("send", args->send, sent_count, args->dtype, spans, &nsent);
    if (status == ROTA_OK)
        status =
            args->recv_counts != NULL
                ? take_spans("recv", args->recv, args->recv_counts, args->recv_displs, n,
                             args->dtype, received, &nreceived)
                : take_block("recv", args->recv, received_count, args->dtype, received, &nreceived);
    if (status == ROTA_OK)
        status = check_disjoint(received, nreceived);
    bool in_place = args->kind != ROTA_KIND_ALL_TO_ALL &&
                    call_in_place(comm, args, rota_dtype_size(args->dtype));
    if (status == ROTA_OK && !in_place && lists_overlap(spans, nsent, received, nreceived))
        status = error_raise(ROTA_ERR_ARGUMENT, "send and recv overlap");
    if (status == ROTA_OK)
        status = check_memory(comm, call, first(spans, nsent), extent(spans, nsent),
                              first(received, nreceived), extent(received, nreceived));
    return status;
}

/* The block that is this rank's own in the other buffer's table. */
static rota_status check_own(const rota_comm *comm, const struct call_args *args) {
    const size_t *counts = args->send_counts != NULL ? args->send_counts : args->recv_counts;
    bool both = args->send_counts != NULL && args->recv_counts != NULL;
    if (both || counts == NULL || counts[comm->rank] == args->count)
        return ROTA_OK;
    bool sends = args->send_counts == NULL;
    return error_raise(ROTA_ERR_ARGUMENT, "%s is %zu, expected %s[rank], %zu",
                       sends ? "send_count" : "recv_count", args->count,
                       sends ? "recv_counts" : "send_counts", counts[comm->rank]);
}

static rota_status check(rota_comm *comm, const struct call_args *args, const rota_call *call) {
    rota_status status = check_call(call, true);
    if (status == ROTA_OK)
        status = check_dtype(args->dtype);
    if (status == ROTA_OK && sched_kind_reduces(args->kind))
        status = check_op(comm, args->op, args->dtype);
    if (status == ROTA_OK && sched_kind_rooted(args->kind))
        status = check_rank("root", args->root, comm->nranks);
    if (status == ROTA_OK)
        status = check_own(comm, args);
    if (status != ROTA_OK)
        return status;
    struct span *spans = malloc(2 * (size_t)comm->nranks * sizeof(*spans));
    if (spans == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %d blocks", comm->nranks);
    status = check_spans(comm, args, call, spans);
    free(spans);
    return status;
}

static rota_status run(rota_comm *comm, struct call_args *args, const rota_call *call) {
    comm_enter(comm);
    rota_status status = check_run(comm, args, call, check(comm, args, call));
    comm_leave(comm);
    return status;
}

rota_status rota_all_gatherv(const void *send, size_t send_count, void *recv,
                             const size_t *recv_counts, const size_t *recv_displs, rota_dtype dtype,
                             rota_comm *comm, const rota_call *call) {
    if (comm == NULL || recv_counts == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and recv_counts must not be NULL");
    struct call_args args = {.kind = ROTA_KIND_ALL_GATHER,
                             .send = send,
                             .recv = recv,
                             .count = send_count,
                             .dtype = dtype,
                             .root = -1,
                             .vector = true,
                             .recv_counts = recv_counts,
                             .recv_displs = recv_displs};
    return run(comm, &args, call);
}

rota_status rota_reduce_scatterv(const void *send, const size_t *send_counts,
                                 const size_t *send_displs, void *recv, size_t recv_count,
                                 rota_dtype dtype, rota_op op, rota_comm *comm,
                                 const rota_call *call) {
    if (comm == NULL || send_counts == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm and send_counts must not be NULL");
    struct call_args args = {.kind = ROTA_KIND_REDUCE_SCATTER,
                             .send = send,
                             .recv = recv,
                             .count = recv_count,
                             .dtype = dtype,
                             .op = op,
                             .root = -1,
                             .vector = true,
                             .send_counts = send_counts,
                             .send_displs = send_displs};
    return run(comm, &args, call);
}

rota_status rota_all_to_allv(const void *send, const size_t *send_counts, const size_t *send_displs,
                             void *recv, const size_t *recv_counts, const size_t *recv_displs,
                             rota_dtype dtype, rota_comm *comm, const rota_call *call) {
    if (comm == NULL || send_counts == NULL || recv_counts == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm, send_counts and recv_counts must not be NULL");
    struct call_args args = {.kind = ROTA_KIND_ALL_TO_ALL,
                             .send = send,
                             .recv = recv,
                             .dtype = dtype,
                             .root = -1,
                             .vector = true,
                             .send_counts = send_counts,
                             .send_displs = send_displs,
                             .recv_counts = recv_counts,
                             .recv_displs = recv_displs};
    return run(comm, &args, call);
}

rota_status rota_gatherv(const void *send, size_t send_count, void *recv, const size_t *recv_counts,
                         const size_t *recv_displs, rota_dtype dtype, int root, rota_comm *comm,
                         const rota_call *call) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    bool receives = root == comm->rank;
    if (receives && recv_counts == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "recv_counts is NULL on the root");
    struct call_args args = {.kind = ROTA_KIND_GATHER,
                             .send = send,
                             .recv = receives ? recv : NULL,
                             .count = send_count,
                             .dtype = dtype,
                             .root = root,
                             .vector = true,
                             .recv_counts = receives ? recv_counts : NULL,
                             .recv_displs = receives ? recv_displs : NULL};
    return run(comm, &args, call);
}

rota_status rota_scatterv(const void *send, const size_t *send_counts, const size_t *send_displs,
                          void *recv, size_t recv_count, rota_dtype dtype, int root,
                          rota_comm *comm, const rota_call *call) {
    if (comm == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "comm is NULL");
    bool sends = root == comm->rank;
    if (sends && send_counts == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "send_counts is NULL on the root");
    struct call_args args = {.kind = ROTA_KIND_SCATTER,
                             .send = sends ? send : NULL,
                             .recv = recv,
                             .count = recv_count,
                             .dtype = dtype,
                             .root = root,
                             .vector = true,
                             .send_counts = sends ? send_counts : NULL,
                             .send_displs = sends ? send_displs : NULL};
    return run(comm, &args, call);
}
