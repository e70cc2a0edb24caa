/* Strict checking. Before each collective its communicator runs small ones of the library's own,
 * with the same number: an all-reduce (minimum) of the fingerprint and of its complement, which
 * come back unchanged only where all are alike. Of v-forms whose counts only two ranks know of each
 * block, these exchange them first; whether they fit is the third word of the all-reduce, so that
 * nobody begins to move data where one pair disagrees. They are requests like any other, in the
 * queue before the one that they are for; what runs them is chosen as ever. */
#include "engine/strict.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/failure.h"
#include "engine/numerics.h"
#include "engine/select.h"
#include <stdio.h>
#include <stdlib.h>

enum { WORDS = 3, FITS = 2 };

/* What the requests of one comparison share. */
struct strict {
    int references;
    uint64_t mine[WORDS], all[WORDS];
    int wrong; /* rank whose count is not the one expected, -1 */
    uint64_t sends, expected;
    uint64_t counts[]; /* told, then heard: nranks each */
};

static struct strict *strict_new(const rota_request *request) {
    int n = request->comm->nranks;
    struct strict *strict = calloc(1, sizeof(*strict) + 2 * (size_t)n * sizeof(uint64_t));
    if (strict == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a comparison");
        return NULL;
    }
    uint64_t fingerprint = call_fingerprint(request->comm, &request->args, request->algorithm);
    strict->mine[0] = fingerprint;
    strict->mine[1] = ~fingerprint;
    strict->mine[FITS] = 1;
    strict->wrong = -1;
    return strict;
}

void strict_free(rota_request *request) {
    struct strict *strict = request->strict;
    request->strict = NULL;
    if (strict != NULL && --strict->references == 0)
        free(strict);
}

/* A collective of the comparison, into the queue. */
static rota_status add(rota_request *whole, struct strict *strict, const struct call_args *args) {
    rota_comm *comm = whole->comm;
    rota_request *request = request_create(comm, args, NULL);
    if (request == NULL)
        return ROTA_ERR_MEMORY;
    request->strict = strict;
    strict->references++;
    request->strict_for = whole;
    request->freed = true;
    request->sequence = whole->sequence;
    request->started_ns = whole->started_ns;
    request->deadline_ns = whole->deadline_ns;
    rota_status status = ROTA_OK;
    const struct reduce_spec *spec = NULL;
    if (sched_kind_reduces(args->kind)) {
        status = comm_make_spec(comm, &request->args, &request->spec);
        spec = &request->spec;
    }
    if (status == ROTA_OK && spec != NULL)
        status = numerics_prepare(request);
    if (status == ROTA_OK) {
        request->algorithm = select_algorithm(comm, NULL, &request->args, spec);
        if (request->algorithm == NULL)
            status = error_record()->status;
    }
    if (status != ROTA_OK) {
        request_close(request, status);
        return status;
    }
    request->may_be_native = collective_may_be_native(comm, NULL);
    request->queued = true;
    atomic_fetch_add_explicit(&comm->outstanding, 1, memory_order_relaxed);
    TAILQ_INSERT_TAIL(&comm->queue, request, queue_entry);
    return ROTA_OK;
}

/* Tells each block's count to the rank at its other end. */
static rota_status add_counts(rota_request *request, struct strict *strict) {
    const rota_comm *comm = request->comm;
    const struct call_args *args = &request->args;
    size_t n = (size_t)comm->nranks;
    uint64_t *told = strict->counts, *heard = strict->counts + n;
    for (size_t i = 0; i < n; i++)
        told[i] = args->send_counts != NULL ? args->send_counts[i] : args->count;
    return add(request, strict,
               &(struct call_args){.kind = args->kind,
                                   .send = told,
                                   .recv = heard,
                                   .count = 1,
                                   .dtype = ROTA_UINT64,
                                   .numerics = ROTA_NUMERICS_EQUAL,
                                   .root = args->root});
}

rota_status strict_enqueue(rota_request *request) {
    struct strict *strict = strict_new(request);
    if (strict == NULL)
        return ROTA_ERR_MEMORY;
    strict->references = 1; /* while they are made */
    rota_status status = ROTA_OK;
    if (call_counts_are_local(&request->args))
        status = add_counts(request, strict);
    if (status == ROTA_OK)
        status = add(request, strict,
                     &(struct call_args){.kind = ROTA_KIND_ALL_REDUCE,
                                         .send = strict->mine,
                                         .recv = strict->all,
                                         .count = WORDS,
                                         .dtype = ROTA_UINT64,
                                         .op = ROTA_MIN,
                                         .numerics = ROTA_NUMERICS_EQUAL,
                                         .root = -1});
    if (--strict->references == 0)
        free(strict);
    return status;
}

/* The others' counts are here: those that this rank expects must be them. */
static void compare_counts(struct strict *strict, const rota_request *whole) {
    const rota_comm *comm = whole->comm;
    const struct call_args *args = &whole->args;
    const uint64_t *heard = strict->counts + comm->nranks;
    bool receives = args->recv_counts != NULL;
    int blocks = receives ? comm->nranks : args->kind == ROTA_KIND_SCATTER ? 1 : 0;
    for (int i = 0; i < blocks && strict->wrong < 0; i++) {
        uint64_t expected = receives ? args->recv_counts[i] : args->count;
        if (heard[i] == expected)
            continue;
        strict->wrong = receives ? i : args->root;
        strict->sends = heard[i];
        strict->expected = expected;
        strict->mine[FITS] = 0;
    }
}

void strict_ended(rota_request *request) {
    struct strict *strict = request->strict;
    rota_request *whole = request->strict_for;
    if (request->args.kind != ROTA_KIND_ALL_REDUCE || request->args.dtype != ROTA_UINT64 ||
        request->args.recv != strict->all) {
        compare_counts(strict, whole);
        return;
    }
    if (strict->wrong >= 0) {
        request_raise(whole, ROTA_ERR_MISMATCH, strict->wrong,
                      "rank %d sends %llu elements to rank %d, which expects %llu", strict->wrong,
                      (unsigned long long)strict->sends, whole->comm->rank,
                      (unsigned long long)strict->expected);
        rota_error record = *error_record();
        comm_fail(whole->comm, &record);
    } else if (strict->all[0] != strict->mine[0] || strict->all[1] != strict->mine[1]) {
        request_raise(
            whole, ROTA_ERR_MISMATCH, -1,
            "the ranks' calls differ (operation, count, type, operator, root, algorithm)");
        failure_mismatch(whole);
    } else if (strict->all[FITS] == 0) {
        request_raise(whole, ROTA_ERR_MISMATCH, -1, "two ranks disagree about a block's count");
        rota_error record = *error_record();
        failure_hold(whole->comm, &record, clock_now_ns() + INT64_C(300000000), -1);
    }
}
