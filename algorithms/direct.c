/* Direct: every rank talks to every other, each message is one block from its origin to its
 * destination, and inputs travel raw. The fewest rounds that are possible; n - 1 messages per rank.
 * Who reduces holds all operands at once, in the order of the ranks, so results are the canonical
 * tree. `direct_two_shot` is all_reduce as direct reduce_scatter and all_gather: it moves the bytes
 * of a ring in two rounds, while `direct` sends whole inputs to everybody in one.
 *
 * In place, a rank must not overwrite what it has not yet sent, and it cannot wait for that before
 * it receives, since its peers would do the same: such results pass through scratch. */
#include "algorithms/algorithm.h"

#include "base/error.h"

#include <stdlib.h>

/* All other ranks. For receives in ascending order (that of the operands), for sends from the next
 * rank on, so that not everybody begins with rank 0. */
struct others {
    uint32_t count;
    int *ascending, *rotated;
};

static rota_status others_create(const struct algorithm_request *q, struct others *others) {
    int n = q->nranks;
    others->count = (uint32_t)n - 1;
    others->ascending = malloc(2 * (size_t)n * sizeof(int));
    if (!others->ascending)
        return error_raise(ROTA_ERR_MEMORY, "no memory for %d ranks", n);
    others->rotated = others->ascending + n;
    for (int i = 1; i < n; i++) {
        others->ascending[i - 1] = i - 1 < q->rank ? i - 1 : i;
        others->rotated[i - 1] = (q->rank + i) % n;
    }
    return ROTA_OK;
}

static void send_all(const struct others *o, struct sched_builder *b, struct sched_range src) {
    sched_send_list(b, o->rotated, o->count, &src, 1, 0);
}

/* One block of every other rank, combined with the own one in the order of the ranks. */
static void reduce_all(const struct algorithm_request *q, const struct others *o,
                       struct sched_builder *b, struct sched_range own, struct sched_range result,
                       uint32_t finish) {
    sched_recv_reduce_list(b, o->ascending, o->count, (uint32_t)q->rank, &own, 1, &result, 1,
                           SCHED_LOAD_MESSAGE | SCHED_LOAD_LOCAL | finish);
}

static void build_all_reduce(const struct algorithm_request *q, const struct others *o,
                             struct sched_builder *b) {
    struct sched_range input = sched_input(0, 1), output = sched_output(0, 1);
    send_all(o, b, input);
    if (!q->in_place) {
        reduce_all(q, o, b, input, output, SCHED_FINISH);
        return;
    }
    struct sched_range aside = sched_scratch(sched_alloc_scratch(b, 1), 1, 0);
    reduce_all(q, o, b, input, aside, SCHED_FINISH);
    sched_copy(b, aside, output, 0);
}

/* Block p of the input to rank p. */
static void send_blocks(const struct others *o, struct sched_builder *b) {
    for (uint32_t i = 0; i < o->count; i++)
        sched_send(b, o->rotated[i], sched_input((uint32_t)o->rotated[i], 1), 0);
}

/* Block p of the output from rank p, those first that send to this rank first. */
static void recv_blocks(const struct others *o, struct sched_builder *b) {
    for (uint32_t i = o->count; i-- > 0;)
        sched_recv(b, o->rotated[i], sched_output((uint32_t)o->rotated[i], 1), 0);
}

static void build_two_shot(const struct algorithm_request *q, const struct others *o,
                           struct sched_builder *b) {
    uint32_t r = (uint32_t)q->rank;
    sched_set_chunks(b, (uint32_t)q->nranks);
    send_blocks(o, b);
    reduce_all(q, o, b, sched_input(r, 1), sched_output(r, 1), SCHED_FINISH);
    send_all(o, b, sched_output(r, 1));
    recv_blocks(o, b);
}

static void build_reduce(const struct algorithm_request *q, const struct others *o,
                         struct sched_builder *b) {
    if (q->rank == q->root)
        reduce_all(q, o, b, sched_input(0, 1), sched_output(0, 1), SCHED_FINISH);
    else
        sched_send(b, q->root, sched_input(0, 1), 0);
}

static void build_broadcast(const struct algorithm_request *q, const struct others *o,
                            struct sched_builder *b) {
    if (q->rank != q->root) {
        sched_recv(b, q->root, sched_output(0, 1), 0);
        return;
    }
    send_all(o, b, sched_input(0, 1));
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output(0, 1), 0);
}

static void build_all_gather(const struct algorithm_request *q, const struct others *o,
                             struct sched_builder *b) {
    send_all(o, b, sched_input(0, 1));
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output((uint32_t)q->rank, 1), 0);
    recv_blocks(o, b);
}

static void build_reduce_scatter(const struct algorithm_request *q, const struct others *o,
                                 struct sched_builder *b) {
    send_blocks(o, b);
    reduce_all(q, o, b, sched_input((uint32_t)q->rank, 1), sched_output(0, 1), SCHED_FINISH);
}

static void build_all_to_all(const struct algorithm_request *q, const struct others *o,
                             struct sched_builder *b) {
    uint32_t r = (uint32_t)q->rank;
    if (!q->in_place) {
        send_blocks(o, b);
        sched_copy(b, sched_input(r, 1), sched_output(r, 1), 0);
        recv_blocks(o, b);
        return;
    }
    uint32_t aside = sched_alloc_scratch(b, o->count);
    for (uint32_t i = 0; i < o->count; i++) {
        uint32_t p = (uint32_t)o->rotated[i];
        struct sched_range copy = sched_scratch(aside + i, 1, p);
        sched_copy(b, sched_input(p, 1), copy, 0);
        sched_send(b, o->rotated[i], copy, 0);
    }
    recv_blocks(o, b);
}

static void build_gather(const struct algorithm_request *q, const struct others *o,
                         struct sched_builder *b) {
    if (q->rank != q->root) {
        sched_send(b, q->root, sched_input(0, 1), 0);
        return;
    }
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output((uint32_t)q->rank, 1), 0);
    recv_blocks(o, b);
}

static void build_scatter(const struct algorithm_request *q, const struct others *o,
                          struct sched_builder *b) {
    if (q->rank != q->root) {
        sched_recv(b, q->root, sched_output(0, 1), 0);
        return;
    }
    send_blocks(o, b);
    if (!q->in_place)
        sched_copy(b, sched_input((uint32_t)q->rank, 1), sched_output(0, 1), 0);
}

/* Inputs go to all ranks above, which combine them. */
static void build_scan(const struct algorithm_request *q, const struct others *o,
                       struct sched_builder *b) {
    uint32_t below = (uint32_t)q->rank, above = o->count - below;
    struct sched_range input = sched_input(0, 1), output = sched_output(0, 1);
    bool own = q->kind == ROTA_KIND_SCAN;
    if (above)
        sched_send_list(b, o->ascending + below, above, &input, 1, 0);
    if (below)
        sched_recv_reduce_list(b, o->ascending, below, below, &input, own ? 1 : 0, &output, 1,
                               SCHED_LOAD_MESSAGE | SCHED_FINISH | (own ? SCHED_LOAD_LOCAL : 0u));
    else if (own)
        sched_reduce(b, &input, 1, output, SCHED_LOAD_LOCAL | SCHED_FINISH);
}

/* Everybody tells everybody, so no token has to wait for another. */
static void build_barrier(const struct others *o, struct sched_builder *b) {
    sched_send_list(b, o->rotated, o->count, NULL, 0, 0);
    for (uint32_t i = o->count; i-- > 0;)
        sched_recv_token(b, o->rotated[i]);
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    struct others others;
    rota_status status = others_create(request, &others);
    if (status != ROTA_OK)
        return status;
    switch (request->kind) {
    case ROTA_KIND_ALL_REDUCE:
        build_all_reduce(request, &others, builder);
        break;
    case ROTA_KIND_REDUCE:
        build_reduce(request, &others, builder);
        break;
    case ROTA_KIND_BROADCAST:
        build_broadcast(request, &others, builder);
        break;
    case ROTA_KIND_ALL_GATHER:
        build_all_gather(request, &others, builder);
        break;
    case ROTA_KIND_REDUCE_SCATTER:
        build_reduce_scatter(request, &others, builder);
        break;
    case ROTA_KIND_ALL_TO_ALL:
        build_all_to_all(request, &others, builder);
        break;
    case ROTA_KIND_BARRIER:
        build_barrier(&others, builder);
        break;
    case ROTA_KIND_GATHER:
        build_gather(request, &others, builder);
        break;
    case ROTA_KIND_SCATTER:
        build_scatter(request, &others, builder);
        break;
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        build_scan(request, &others, builder);
        break;
    default:
        status = ROTA_ERR_UNSUPPORTED;
    }
    free(others.ascending);
    return status;
}

static rota_status build_two_shot_kind(const struct algorithm_request *request,
                                       struct sched_builder *builder) {
    struct others others;
    rota_status status = others_create(request, &others);
    if (status != ROTA_OK)
        return status;
    build_two_shot(request, &others, builder);
    free(others.ascending);
    return ROTA_OK;
}

static double rounds(rota_kind kind, int nranks) {
    (void)kind;
    return nranks > 1 ? 1 : 0;
}

static double volume(rota_kind kind, int nranks) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return nranks - 1;
    case ROTA_KIND_BARRIER:
        return 0;
    default:
        return (nranks - 1.0) / nranks;
    }
}

static uint32_t scratch(rota_kind kind, int nranks) {
    if (nranks < 2)
        return 0;
    if (kind == ROTA_KIND_ALL_REDUCE)
        return 1;
    return kind == ROTA_KIND_ALL_TO_ALL ? (uint32_t)nranks - 1 : 0;
}

static double two_shot_rounds(rota_kind kind, int nranks) {
    (void)kind;
    return nranks > 1 ? 2 : 0;
}

static double two_shot_volume(rota_kind kind, int nranks) {
    (void)kind;
    return 2 * (nranks - 1.0) / nranks;
}

const struct algorithm algorithm_direct = {
    .name = "direct",
    .help = "everybody to everybody: 1 round, n-1 messages per rank; canonical tree",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_REDUCE_SCATTER |
             1u << ROTA_KIND_ALL_TO_ALL | 1u << ROTA_KIND_BARRIER | 1u << ROTA_KIND_GATHER |
             1u << ROTA_KIND_SCATTER | 1u << ROTA_KIND_SCAN | 1u << ROTA_KIND_EXCLUSIVE_SCAN,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
    .always_canonical = true,
};

const struct algorithm algorithm_direct_two_shot = {
    .name = "direct_two_shot",
    .help = "direct reduce_scatter, then direct all_gather: 2 rounds, the bytes of a ring; "
            "canonical tree",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE,
    .build = build_two_shot_kind,
    .rounds = two_shot_rounds,
    .volume = two_shot_volume,
    .always_canonical = true,
};
