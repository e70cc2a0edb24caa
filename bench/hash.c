/* --hash: a fingerprint of results that do depend on the order of summation. */
#include "bench/session.h"

#include <inttypes.h>
#include <stdlib.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Every rank computes the hash of its result; where all must hold the same result, a difference
 * counts as wrong. The hash of a row is that of rank 0 there, else of all ranks' hashes in order.
 */
static rota_status combine(struct bench_session *session, const struct bench_case *row,
                           uint64_t mine, uint64_t *hash, uint64_t *wrong) {
    bool same = row->operation->shape == BENCH_ALL_REDUCE ||
                row->operation->shape == BENCH_ALL_GATHER ||
                row->operation->shape == BENCH_BROADCAST;
    uint64_t *all = calloc((size_t)session->nranks, sizeof(*all));
    if (!all)
        return ROTA_ERR_MEMORY;
    rota_status status = bench_session_gather(session, &mine, all, sizeof(mine));
    if (status == ROTA_OK && same) {
        *hash = all[0];
        if (mine != all[0]) {
            char what[192];
            bench_case_describe(row, what, sizeof(what));
            fprintf(stderr,
                    BENCH_COMMAND ": rank %d: %s: hash %016" PRIx64 ", but %016" PRIx64
                                  " on rank 0\n",
                    session->rank, what, mine, all[0]);
            (*wrong)++;
        }
    } else if (status == ROTA_OK) {
        *hash = XXH64(all, (size_t)session->nranks * sizeof(*all), 0);
    }
    free(all);
    return status;
}

/* The data in so many calls, each longer than the one before. */
static rota_status call_in_pieces(const struct bench_case *row, const char *send, char *recv,
                                  rota_comm *comm, uint64_t pieces) {
    size_t element = rota_dtype_size(row->dtype), begin = 0;
    struct bench_case piece = *row;
    rota_status status = ROTA_OK;
    for (uint64_t i = 1; i <= pieces && status == ROTA_OK; i++) {
        double share = (double)i / (double)pieces;
        size_t end = i == pieces ? row->count : (size_t)((double)row->count * share * share);
        piece.count = end - begin;
        status = bench_case_call(&piece, send + begin * element, recv + begin * element, comm);
        begin = end;
    }
    return status;
}

/* One call's hash on this rank. */
static rota_status hash_once(struct bench_session *session, const struct bench_case *row,
                             uint64_t *mine) {
    size_t element = rota_dtype_size(row->dtype);
    char *send = bench_send_pointer(session, row), *recv = bench_recv_pointer(session, row);
    bench_buffers_fill(session, row);
    if (bench_case_is_source(row))
        pattern_fill_order_dependent(send, bench_case_send_count(row), row->dtype, row->rank);
    rota_status status =
        call_in_pieces(row, send, recv, session->comm, (uint64_t)session->options->pieces);
    if (status)
        return status;
    *mine = bench_case_is_target(row) ? XXH64(recv, bench_case_recv_count(row) * element, 0) : 0;
    return ROTA_OK;
}

rota_status bench_hash(struct bench_session *session, struct bench_case *row, uint64_t *hash,
                       uint64_t *wrong) {
    uint64_t first = 0, mine = 0;
    *hash = 0;
    if (row->operation->shape == BENCH_BARRIER)
        return ROTA_OK;
    for (int64_t i = 0; i == 0 || i < session->options->checks; i++) {
        rota_status status = hash_once(session, row, &mine);
        if (status)
            return status;
        if (i == 0)
            first = mine;
        if (mine == first)
            continue;
        char what[192];
        bench_case_describe(row, what, sizeof(what));
        fprintf(stderr,
                BENCH_COMMAND ": rank %d: %s: hash %016" PRIx64
                              " in repetition %lld, but %016" PRIx64 " before\n",
                session->rank, what, mine, (long long)i, first);
        (*wrong)++;
    }
    return combine(session, row, first, hash, wrong);
}
