/* Aggregated trees: every block has a binomial tree of its own, turned so that its root is the
 * block's rank, and all trees advance together, so each round is one message to one rank and one
 * from another. log2(n) rounds on any number of ranks, the least bytes. After the PAT algorithm of
 * NCCL 2.23 (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at scale",
 * 2025). Unlike Bruck's, the widest messages go to the nearest ranks.
 *
 * In the tree of block t rank t + i has the parent t + i - lowbit(i). all_gather comes down, over
 * distances n/2, ..., 2, 1; seen from rank r, block r - i arrives over the distance lowbit(i).
 * reduce_scatter rises, over distances 1, 2, ..., n/2; the partial of block r - i, i even, is
 * collected in scratch. */
#include "algorithms/algorithm.h"
#include "algorithms/ranges.h"

static uint32_t top_distance(uint32_t n) {
    uint32_t distance = 1;
    while (2 * (uint64_t)distance < n)
        distance *= 2;
    return distance;
}

/* Largest number of the form start + j * step below n; start < n. */
static uint32_t last_below(uint32_t n, uint32_t start, uint32_t step) {
    return start + (n - 1 - start) / step * step;
}

/* Blocks r - i for i = start, start + step, ... below `end`, in descending order of i. */
static void add_blocks(struct ranges *list, enum sched_buffer buffer, uint32_t n, uint32_t r,
                       uint32_t start, uint32_t step, uint32_t end) {
    ranges_clear(list);
    for (uint32_t i = last_below(end, start, step) + step; i > start; i -= step) {
        uint32_t block = (r + n - (i - step)) % n;
        ranges_add(list, buffer, buffer == SCHED_SCRATCH ? (n - 1 - (i - step)) / 2 : block, block);
    }
}

static void build_all_gather(const struct algorithm_request *q, struct sched_builder *b,
                             struct ranges *list) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output(r, 1), 0);
    for (uint32_t distance = top_distance(n); distance; distance /= 2) {
        add_blocks(list, SCHED_OUTPUT, n, r, 0, 2 * distance, n - distance);
        ranges_send(b, (int)((r + distance) % n), list, 0);
        add_blocks(list, SCHED_OUTPUT, n, r, distance, 2 * distance, n);
        ranges_recv(b, (int)((r + n - distance) % n), list, 0);
    }
}

/* Inputs go raw over distance 1; the last tree node of an odd n has no child there, and joins the
 * partials by conversion. */
static void build_reduce_scatter(const struct algorithm_request *q, struct sched_builder *b,
                                 struct ranges *list, struct ranges *result) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank, top = top_distance(n);
    if (n > 2)
        sched_alloc_scratch(b, (n + 1) / 2);
    for (uint32_t distance = 1; distance <= top; distance *= 2) {
        bool first = distance == 1;
        enum sched_buffer from = first ? SCHED_INPUT : SCHED_SCRATCH;
        uint32_t flags = first ? SCHED_LOAD_LOCAL | SCHED_LOAD_MESSAGE : 0u;
        add_blocks(list, from, n, r, distance, 2 * distance, n);
        ranges_send(b, (int)((r + n - distance) % n), list, first ? 0 : SCHED_PARTIAL);
        add_blocks(list, from, n, r, 0, 2 * distance, n - distance);
        if (distance == top) {
            ranges_clear(result);
            ranges_add(result, SCHED_OUTPUT, 0, 0);
            flags |= SCHED_FINISH;
        } else {
            add_blocks(result, SCHED_SCRATCH, n, r, 0, 2 * distance, n - distance);
        }
        int child = (int)((r + distance) % n);
        sched_recv_reduce_list(b, &child, 1, 0, list->items, list->count, result->items,
                               result->count, flags);
        if (first && n % 2 == 1) {
            struct sched_range input = sched_input((r + 1) % n, 1);
            sched_reduce(b, &input, 1, sched_scratch(0, 1, (r + 1) % n), SCHED_LOAD_LOCAL);
        }
    }
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    struct ranges list = {0}, result = {0};
    rota_status status = ranges_create(&list, (uint32_t)request->nranks);
    if (status == ROTA_OK)
        status = ranges_create(&result, (uint32_t)request->nranks);
    if (status == ROTA_OK && request->kind == ROTA_KIND_ALL_GATHER)
        build_all_gather(request, builder, &list);
    else if (status == ROTA_OK)
        build_reduce_scatter(request, builder, &list, &result);
    ranges_destroy(&list);
    ranges_destroy(&result);
    return status;
}

static double rounds(rota_kind kind, int nranks) {
    (void)kind;
    return nranks > 1 ? 32 - __builtin_clz((unsigned)nranks - 1) : 0;
}

static double volume(rota_kind kind, int nranks) {
    (void)kind;
    return (nranks - 1.0) / nranks;
}

static uint32_t widest(rota_kind kind, int nranks) {
    (void)kind;
    return nranks > 1 ? (uint32_t)nranks / 2 : 1;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    return kind == ROTA_KIND_REDUCE_SCATTER && nranks > 2 ? ((uint32_t)nranks + 1) / 2 : 0;
}

const struct algorithm algorithm_pat = {
    .name = "pat",
    .help = "one tree per block, all advancing together: log2(n) rounds on any number of ranks, "
            "the least bytes",
    .kinds = 1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_REDUCE_SCATTER,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .widest = widest,
    .scratch = scratch,
};
