/* Buffers of a rank lie in areas: 64 bytes of red zone, a few elements of offset (another one on
 * each rank), the data, and a red zone. An area's image before the call and the image expected
 * after it are made from the case alone, so one comparison covers results, untouched inputs and
 * red zones. */
#include "case_rank.h"
#include "memory/memory.h"
#include "values.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RED_ZONE 64
#define POISON 0xAB

struct area {
    unsigned char *base;     /* what the library sees: mock memory, or `image` */
    unsigned char *image;    /* host bytes */
    unsigned char *expected; /* after the call */
    size_t bytes, begin;     /* of the area; of the data in it */
};

struct side {
    const struct matrix_case *test;
    int rank;
    size_t element, in_bytes, out_bytes;
    size_t in_offset, out_offset; /* in the data of their areas */
    bool in_place;
    struct area areas[2]; /* send and recv; only the first one in place */
};

static bool area_make(struct area *area, size_t data, size_t offset, bool mock) {
    area->begin = RED_ZONE + offset;
    area->bytes = area->begin + data + RED_ZONE;
    area->image = aligned_alloc(64, (area->bytes + 63) / 64 * 64);
    area->expected = malloc(area->bytes);
    if (area->image == NULL || area->expected == NULL)
        return false;
    memset(area->image, POISON, area->bytes);
    area->base = mock ? memory_mock.allocate(area->bytes) : area->image;
    return area->base != NULL;
}

static void area_free(struct area *area) {
    if (area->base != NULL && area->base != area->image)
        memory_mock.free(area->base);
    free(area->image);
    free(area->expected);
}

static void fill_inputs(const struct side *side, unsigned char *data) {
    const struct matrix_case *test = side->test;
    for (size_t i = 0; i < side->in_bytes / side->element; i++)
        value_input(test->dtype, test->op, test->salt, side->rank, i, data + i * side->element);
}

static void output_at(const struct side *side, size_t index, void *element) {
    const struct matrix_case *test = side->test;
    int from = (int)(index / test->count);
    size_t own = (size_t)side->rank * test->count, within = index % test->count;
    switch (test->kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_REDUCE:
        value_expected(test->dtype, test->op, test->salt, test->nranks, index, element);
        return;
    case ROTA_KIND_REDUCE_SCATTER:
        value_expected(test->dtype, test->op, test->salt, test->nranks, own + index, element);
        return;
    case ROTA_KIND_BROADCAST:
        value_input(test->dtype, test->op, test->salt, test->root, index, element);
        return;
    case ROTA_KIND_SCATTER:
        value_input(test->dtype, test->op, test->salt, test->root, own + index, element);
        return;
    case ROTA_KIND_SCAN:
        value_expected(test->dtype, test->op, test->salt, side->rank + 1, index, element);
        return;
    case ROTA_KIND_EXCLUSIVE_SCAN:
        value_expected(test->dtype, test->op, test->salt, side->rank, index, element);
        return;
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        value_input(test->dtype, test->op, test->salt, from, within, element);
        return;
    case ROTA_KIND_ALL_TO_ALL:
        value_input(test->dtype, test->op, test->salt, from, own + within, element);
        return;
    default:
        from = (side->rank + test->nranks - 1) % test->nranks;
        value_input(test->dtype, test->op, test->salt, from, index, element);
    }
}

/* Makes areas and images. */
static bool prepare(struct side *side, bool mock) {
    const struct matrix_case *test = side->test;
    uint64_t random = value_mix(test->salt + (uint64_t)side->rank + 1);
    size_t block = test->count * side->element;
    side->in_place =
        side->in_bytes > 0 && side->out_bytes > 0 &&
        (test->place == MATRIX_IN_PLACE || (test->place == MATRIX_MIXED && side->rank % 2 == 1));
    if (side->in_place && (test->kind == ROTA_KIND_ALL_GATHER || test->kind == ROTA_KIND_GATHER))
        side->in_offset = (size_t)side->rank * block;
    if (side->in_place &&
        (test->kind == ROTA_KIND_REDUCE_SCATTER || test->kind == ROTA_KIND_SCATTER))
        side->out_offset = (size_t)side->rank * block;
    size_t first = side->in_bytes;
    if (side->in_place && side->out_bytes > first)
        first = side->out_bytes;
    if (!area_make(&side->areas[0], first, random % 16 * side->element,
                   mock && (random >> 8) % 3 > 0) ||
        (!side->in_place &&
         !area_make(&side->areas[1], side->out_bytes, (random >> 4) % 16 * side->element,
                    mock && (random >> 16) % 3 > 0)))
        return false;
    struct area *in = &side->areas[0], *out = &side->areas[side->in_place ? 0 : 1];
    fill_inputs(side, in->image + in->begin + side->in_offset);
    memcpy(in->expected, in->image, in->bytes);
    memcpy(out->expected, out->image, out->bytes);
    unsigned char *results = out->expected + out->begin + side->out_offset;
    for (size_t i = 0; i < side->out_bytes / side->element; i++)
        output_at(side, i, results + i * side->element);
    for (int i = 0; i < 2; i++)
        if (side->areas[i].base != side->areas[i].image)
            memory_mock_write(side->areas[i].base, side->areas[i].image, side->areas[i].bytes);
    return true;
}

static rota_status shift(const struct matrix_case *test, int rank, rota_comm *comm,
                         const void *send, void *recv) {
    int next = (rank + 1) % test->nranks, before = (rank + test->nranks - 1) % test->nranks;
    int tag = (int)(test->index % 5);
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    rota_recv_info info = ROTA_RECV_INFO_INIT;
    call.request = &request;
    rota_status status = rota_send(send, test->count, test->dtype, next, tag, comm, &call);
    if (status != ROTA_OK)
        return status;
    int source = test->request ? before : ROTA_ANY_SOURCE;
    status = rota_recv(recv, test->count, test->dtype, source, tag, comm, &info, NULL);
    rota_status sent = rota_request_wait(request, 0);
    rota_request_free(request);
    if (status == ROTA_OK &&
        (info.source != before || info.tag != tag || info.count != test->count))
        return ROTA_ERR_INTERNAL;
    return status != ROTA_OK ? status : sent;
}

static rota_status collective(const struct matrix_case *test, rota_comm *comm, const void *send,
                              void *recv, const rota_call *call) {
    switch (test->kind) {
    case ROTA_KIND_ALL_REDUCE:
        return rota_all_reduce(send, recv, test->count, test->dtype, test->op, comm, call);
    case ROTA_KIND_REDUCE:
        return rota_reduce(send, recv, test->count, test->dtype, test->op, test->root, comm, call);
    case ROTA_KIND_BROADCAST:
        return rota_broadcast(send, recv, test->count, test->dtype, test->root, comm, call);
    case ROTA_KIND_ALL_GATHER:
        return rota_all_gather(send, recv, test->count, test->dtype, comm, call);
    case ROTA_KIND_REDUCE_SCATTER:
        return rota_reduce_scatter(send, recv, test->count, test->dtype, test->op, comm, call);
    case ROTA_KIND_ALL_TO_ALL:
        return rota_all_to_all(send, recv, test->count, test->dtype, comm, call);
    case ROTA_KIND_GATHER:
        return rota_gather(send, recv, test->count, test->dtype, test->root, comm, call);
    case ROTA_KIND_SCATTER:
        return rota_scatter(send, recv, test->count, test->dtype, test->root, comm, call);
    case ROTA_KIND_SCAN:
        return rota_scan(send, recv, test->count, test->dtype, test->op, comm, call);
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return rota_exclusive_scan(send, recv, test->count, test->dtype, test->op, comm, call);
    default:
        return rota_barrier(comm, call);
    }
}

static rota_status call(const struct side *side, rota_comm *comm) {
    const struct matrix_case *test = side->test;
    const struct area *in = &side->areas[0], *out = &side->areas[side->in_place ? 0 : 1];
    /* Empty buffers are NULL half of the time. */
    bool null = test->salt % 2 == 0;
    const void *send = side->in_bytes > 0 || !null ? in->base + in->begin + side->in_offset : NULL;
    void *recv = side->out_bytes > 0 || !null ? out->base + out->begin + side->out_offset : NULL;
    if (test->kind == ROTA_KIND_SEND)
        return shift(test, side->rank, comm, send, recv);
    rota_request *request = NULL;
    rota_call options = ROTA_CALL_INIT;
    options.algorithm = test->algorithm;
    options.numerics = test->mode;
    options.request = test->request ? &request : NULL;
    rota_status status = collective(test, comm, send, recv, &options);
    if (status == ROTA_OK && test->request)
        status = rota_request_wait(request, 0);
    rota_request_free(request);
    return status;
}

/* Compares an area with what is expected. */
static bool check(const struct side *side, const struct area *area, char *text, size_t size) {
    if (area->image == NULL)
        return true;
    if (area->base != area->image)
        memory_mock_read(area->image, area->base, area->bytes);
    if (memcmp(area->image, area->expected, area->bytes) == 0)
        return true;
    size_t at = 0, wrong = 0;
    for (size_t i = area->bytes; i-- > 0;)
        if (area->image[i] != area->expected[i]) {
            at = i;
            wrong++;
        }
    bool data = at >= area->begin && at < area->bytes - RED_ZONE;
    uint64_t got = 0, want = 0;
    size_t element = data ? (at - area->begin) / side->element * side->element + area->begin : at;
    if (side->element > sizeof(got) && data) /* the half of it that is wrong */
        element += (at - element) / sizeof(got) * sizeof(got);
    size_t shown = !data ? 1 : side->element < sizeof(got) ? side->element : sizeof(got);
    memcpy(&got, area->image + element, shown);
    memcpy(&want, area->expected + element, shown);
    snprintf(text, size,
             "rank %d: %zu bytes of the %s buffer%s are wrong, the first in %s %zd: %#llx, "
             "expected %#llx",
             side->rank, wrong, area == side->areas ? "send" : "recv",
             side->in_place ? " (in place)" : "", data ? "element" : "red zone at byte",
             data ? (ptrdiff_t)((at - area->begin) / side->element)
                  : (ptrdiff_t)at - (ptrdiff_t)area->begin,
             (unsigned long long)got, (unsigned long long)want);
    return false;
}

/* Whether the algorithm keeps the canonical tree, as the verifier says. */
static bool keeps_tree(const struct matrix_case *test) {
    bool keeps = true;
    int root = test->kind == ROTA_KIND_REDUCE ? test->root : -1;
    for (int form = 0; form < 3; form++) {
        rota_schedule *schedule = NULL;
        rota_verdict verdict = ROTA_VERDICT_INIT;
        keeps &= rota_schedule_build(test->algorithm, test->kind, test->nranks, root, form,
                                     &schedule) == ROTA_OK &&
                 rota_schedule_verify(schedule, &verdict) == ROTA_OK && verdict.canonical_tree;
        rota_schedule_free(schedule);
    }
    return keeps;
}

/* What a call that was made is worth: mode reproducible takes the algorithms that keep the tree and
 * refuses the others; and a slice may be too small for a forced algorithm. */
static enum case_outcome judge(const struct matrix_case *test, rota_status status) {
    bool refused = status == ROTA_ERR_UNSUPPORTED;
    if (test->algorithm == NULL || (status != ROTA_OK && !refused))
        return status == ROTA_OK ? CASE_PASSED : CASE_FAILED;
    if (test->mode != ROTA_NUMERICS_REPRODUCIBLE || test->op == VALUE_MOVED)
        return refused ? CASE_SKIPPED : CASE_PASSED;
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    bool by_tree = refused && strstr(error.message, "canonical tree") != NULL;
    if (keeps_tree(test) ? by_tree : !refused)
        return CASE_FAILED;
    return !refused ? CASE_PASSED : by_tree ? CASE_REFUSED : CASE_SKIPPED;
}

enum case_outcome case_run(const struct matrix_case *test, int rank, rota_comm *comm, bool mock,
                           char *text, size_t size) {
    struct side side = {.test = test, .rank = rank, .element = rota_dtype_size(test->dtype)};
    side.in_bytes = case_blocks_in(test, rank) * test->count * side.element;
    side.out_bytes = case_blocks_out(test, rank) * test->count * side.element;
    enum case_outcome outcome = CASE_FAILED;
    if (!prepare(&side, mock)) {
        snprintf(text, size, "rank %d: out of memory", rank);
    } else {
        rota_status status = call(&side, comm);
        outcome = judge(test, status);
        if (outcome == CASE_FAILED) {
            rota_error error = ROTA_ERROR_INIT;
            rota_last_error(&error);
            snprintf(text, size, "rank %d: %s: %s", rank, rota_status_name(status), error.message);
        } else if (outcome == CASE_PASSED && !(check(&side, &side.areas[0], text, size) &&
                                               check(&side, &side.areas[1], text, size))) {
            outcome = CASE_FAILED;
        }
    }
    area_free(&side.areas[0]);
    area_free(&side.areas[1]);
    return outcome;
}
