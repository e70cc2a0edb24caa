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

rota_status bench_hash(struct bench_session *session, struct bench_case *row, uint64_t *hash,
                       uint64_t *wrong) {
    size_t element = rota_dtype_size(row->dtype);
    *hash = 0;
    if (row->operation->shape == BENCH_BARRIER)
        return ROTA_OK;
    void *send = bench_send_pointer(session, row), *recv = bench_recv_pointer(session, row);
    bench_buffers_fill(session, row);
    if (bench_case_is_source(row))
        pattern_fill_order_dependent(send, bench_case_send_count(row), row->dtype, row->rank);
    rota_status status = bench_case_call(row, send, recv, session->comm);
    if (status)
        return status;
    uint64_t mine =
        bench_case_is_target(row) ? XXH64(recv, bench_case_recv_count(row) * element, 0) : 0;
    return combine(session, row, mine, hash, wrong);
}
