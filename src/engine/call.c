/* What is called, as the caller gave it: its fingerprint, its tables, whether it is in place. */
#include "engine/call.h"

#include "algorithms/own.h"
#include "base/error.h"
#include "engine/comm.h"
#include "recording/recorder.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* First element of this rank's block in the buffer that has nranks blocks. */
static size_t own_offset(const rota_comm *comm, const struct call_args *args) {
    bool received = args->recv_counts != NULL;
    const size_t *displs = received ? args->recv_displs : args->send_displs;
    const size_t *counts = received ? args->recv_counts : args->send_counts;
    size_t offset = 0;
    if (counts == NULL)
        return (size_t)comm->rank * args->count;
    if (displs != NULL)
        return displs[comm->rank];
    for (int r = 0; r < comm->rank; r++)
        offset += counts[r];
    return offset;
}

bool call_in_place(const rota_comm *comm, const struct call_args *args, size_t element_size) {
    const unsigned char *send = args->send, *recv = args->recv;
    size_t own = own_offset(comm, args) * element_size;
    if (args->count == 0)
        return false;
    switch (args->kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_ALL_TO_ALL:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return send == recv;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
        return args->root == comm->rank && send == recv;
    case ROTA_KIND_ALL_GATHER:
        return send == recv + own;
    case ROTA_KIND_REDUCE_SCATTER:
        return recv == send + own;
    case ROTA_KIND_GATHER:
        return args->root == comm->rank && send == recv + own;
    case ROTA_KIND_SCATTER:
        return args->root == comm->rank && recv == send + own;
    default:
        return false;
    }
}

uint64_t call_fingerprint(const rota_comm *comm, const struct call_args *args,
                          const struct algorithm *algorithm) {
    if (!comm->check)
        return 0;
    struct call_shape shape = call_shape_of(args);
    uint64_t words[5] = {shape.words[0], shape.words[1], shape.words[2],
                         algorithm != NULL ? XXH64(algorithm->name, strlen(algorithm->name), 0) : 0,
                         args->op_identity};
    words[3] ^= algorithm != NULL ? comm->ring_hash : 0; /* ranks may have been given others */
    if (args->vector) { /* counts only where every rank knows all of them */
        const size_t *counts = args->send_counts != NULL ? args->send_counts : args->recv_counts;
        words[1] |= 1ull << 32;
        words[2] = call_counts_are_local(args)
                       ? 0
                       : XXH3_64bits(counts, (size_t)comm->nranks * sizeof(*counts));
    }
    return XXH3_64bits(words, sizeof(words)) | 1;
}

/* Copies one table; packed displacements where the caller gave none. */
static const size_t *keep_table(size_t *to, const size_t *from, const size_t *counts, int n) {
    size_t at = 0;
    for (int r = 0; r < n; r++) {
        to[r] = from != NULL ? from[r] : at;
        at += counts[r];
    }
    return to;
}

rota_status call_keep_tables(struct call_args *args, int nranks, size_t **tables) {
    size_t *kept = malloc(4 * (size_t)nranks * sizeof(*kept));
    if (kept == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for the counts of %d ranks", nranks);
    if (args->send_counts != NULL) {
        args->send_displs = keep_table(kept, args->send_displs, args->send_counts, nranks);
        args->send_counts = keep_table(kept + nranks, args->send_counts, args->send_counts, nranks);
    }
    if (args->recv_counts != NULL) {
        args->recv_displs =
            keep_table(kept + 2 * nranks, args->recv_displs, args->recv_counts, nranks);
        args->recv_counts =
            keep_table(kept + 3 * nranks, args->recv_counts, args->recv_counts, nranks);
    }
    *tables = kept;
    return ROTA_OK;
}

/* -- summaries ----------------------------------------------------------------------------------
 */

bool call_summary_valid(const struct call_summary *call) {
    return call->kind < ROTA_KIND_COUNT && rota_dtype_name(call->dtype) != NULL &&
           (call->op == RECORD_USER_OP || rota_op_name(call->op) != NULL) &&
           rota_numerics_name((rota_numerics)call->mode) != NULL && call->root >= -1;
}

bool call_differs(const struct call_summary *a, const struct call_summary *b) {
    bool vector = (a->flags & RECORD_VECTOR) != 0;
    if (a->kind != b->kind || a->root != b->root || ((a->flags ^ b->flags) & RECORD_VECTOR) != 0)
        return true;
    if (a->fingerprint != 0 && b->fingerprint != 0 && a->fingerprint != b->fingerprint)
        return true;
    if (a->kind != ROTA_KIND_BARRIER && (a->dtype != b->dtype || (!vector && a->count != b->count)))
        return true;
    if (sched_kind_reduces((rota_kind)a->kind) && (a->op != b->op || a->mode != b->mode))
        return true;
    bool a_native = (a->flags & RECORD_NATIVE) != 0, b_native = (b->flags & RECORD_NATIVE) != 0;
    if (a_native || b_native)
        return (a_native && b->algorithm != 0 && !b_native) ||
               (b_native && a->algorithm != 0 && !a_native);
    return a->algorithm != 0 && b->algorithm != 0 && a->algorithm != b->algorithm;
}

static const char *algorithm_of_hash(uint32_t hash) {
    const struct algorithm *algorithm = NULL;
    for (int i = 0; (algorithm = algorithm_at(i)) != NULL; i++)
        if (recorder_hash(algorithm->name) == hash)
            return algorithm->name;
    for (int i = 0; (algorithm = own_at(i)) != NULL; i++)
        if (recorder_hash(algorithm->name) == hash)
            return algorithm->name;
    return "another algorithm";
}

size_t call_text_add(char *text, size_t size, size_t at, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text + at, size - at, format, args);
    va_end(args);
    return n < 0 ? at : at + (size_t)n < size ? at + (size_t)n : size - 1;
}

size_t call_text(const struct call_summary *call, bool detailed, char *text, size_t size) {
    rota_kind kind = (rota_kind)call->kind;
    bool vector = (call->flags & RECORD_VECTOR) != 0;
    size_t n = call_text_add(text, size, 0, "%s%s", rota_kind_name(kind), vector ? "v" : "");
    if (sched_kind_collective(kind))
        n = call_text_add(text, size, n, " #%llu", (unsigned long long)call->sequence);
    if (kind != ROTA_KIND_BARRIER) {
        n = call_text_add(text, size, n, " (%s", rota_dtype_name(call->dtype));
        if (sched_kind_reduces(kind))
            n = call_text_add(text, size, n, " %s",
                              call->op == RECORD_USER_OP ? "user operator"
                                                         : rota_op_name(call->op));
        if (!vector)
            n = call_text_add(text, size, n, ", %llu", (unsigned long long)call->count);
        if (sched_kind_reduces(kind) && call->mode > ROTA_NUMERICS_EQUAL)
            n = call_text_add(text, size, n, ", %s", rota_numerics_name((rota_numerics)call->mode));
        n = call_text_add(text, size, n, ")");
    }
    if (sched_kind_collective(kind) && call->root >= 0)
        n = call_text_add(text, size, n, " root %d", call->root);
    if (!detailed)
        return n;
    if ((call->flags & RECORD_FUSED) != 0)
        n = call_text_add(text, size, n, " fused of a group's calls, divided as %08x",
                          (unsigned)(call->fingerprint >> 32));
    if ((call->flags & RECORD_NATIVE) != 0)
        return call_text_add(text, size, n, " native");
    if (call->algorithm != 0)
        n = call_text_add(text, size, n, " by %s", algorithm_of_hash(call->algorithm));
    if (vector)
        n = call_text_add(text, size, n, " counts %08x", (unsigned)(call->fingerprint >> 32));
    return n;
}
