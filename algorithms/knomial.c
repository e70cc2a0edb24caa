/* k-nomial trees from or to one rank, each message a whole buffer, of gather and scatter the blocks
 * of a subtree; for small data. `binomial`
 * (radix 2) takes ceil(log2 n) rounds; `knomial` (radix 4) half of them, with up to three messages
 * in each. Results are the canonical tree over ranks for every root (tree.c). */
#include "algorithms/algorithm.h"
#include "algorithms/tree.h"

enum { BINOMIAL = 2, KNOMIAL = 4 };

static void add_reduce(const struct tree *tree, struct sched_builder *b) {
    struct tree_reduction what = {.value = sched_input(0, 1),
                                  .result = sched_output(0, 1),
                                  .raw = true,
                                  .finish = SCHED_FINISH};
    tree_reduce(tree, b, &what);
}

static rota_status build_blocks(const struct algorithm_request *q, const struct tree *tree,
                                struct sched_builder *b) {
    struct ranges list;
    rota_status status = ranges_create(&list, tree->n);
    if (status != ROTA_OK)
        return status;
    if (q->kind == ROTA_KIND_GATHER)
        tree_gather(tree, b, &list, q->in_place);
    else
        tree_scatter(tree, b, &list, q->in_place);
    ranges_destroy(&list);
    return ROTA_OK;
}

static rota_status build(const struct algorithm_request *q, struct sched_builder *b,
                         uint32_t radix) {
    struct sched_range input = sched_input(0, 1), output = sched_output(0, 1);
    struct tree tree = {.n = (uint32_t)q->nranks, .self = (uint32_t)q->rank, .radix = radix};
    tree.root = q->root < 0 ? 0 : (uint32_t)q->root;
    struct tree_tokens heard = {.count = 0};
    switch (q->kind) {
    case ROTA_KIND_ALL_REDUCE:
        add_reduce(&tree, b);
        tree_broadcast(&tree, b, output, output);
        return ROTA_OK;
    case ROTA_KIND_REDUCE:
        add_reduce(&tree, b);
        return ROTA_OK;
    case ROTA_KIND_BROADCAST:
        tree_broadcast(&tree, b, input, output);
        if (q->rank == q->root && !q->in_place)
            sched_copy(b, input, output, 0);
        return ROTA_OK;
    case ROTA_KIND_BARRIER:
        tree_tokens_up(&tree, b, &heard);
        tree_tokens_down(&tree, b, &heard);
        return ROTA_OK;
    case ROTA_KIND_GATHER:
    case ROTA_KIND_SCATTER:
        return build_blocks(q, &tree, b);
    default:
        return ROTA_ERR_UNSUPPORTED;
    }
}

static rota_status build_binomial(const struct algorithm_request *q, struct sched_builder *b) {
    return build(q, b, BINOMIAL);
}

static rota_status build_knomial(const struct algorithm_request *q, struct sched_builder *b) {
    return build(q, b, KNOMIAL);
}

static double rounds(rota_kind kind, int nranks, uint32_t radix) {
    double levels = tree_levels((uint32_t)nranks, radix);
    return kind == ROTA_KIND_ALL_REDUCE || kind == ROTA_KIND_BARRIER ? 2 * levels : levels;
}

static double binomial_rounds(rota_kind kind, int nranks) {
    return rounds(kind, nranks, BINOMIAL);
}

static double knomial_rounds(rota_kind kind, int nranks) {
    return rounds(kind, nranks, KNOMIAL);
}

static bool moves_blocks(rota_kind kind) {
    return kind == ROTA_KIND_GATHER || kind == ROTA_KIND_SCATTER;
}

static double volume(rota_kind kind, int nranks, uint32_t radix) {
    if (moves_blocks(kind))
        return (nranks - 1.0) / nranks;
    return kind == ROTA_KIND_BARRIER ? 0 : tree_children((uint32_t)nranks, radix);
}

static double binomial_volume(rota_kind kind, int nranks) {
    return volume(kind, nranks, BINOMIAL);
}

static double knomial_volume(rota_kind kind, int nranks) {
    return volume(kind, nranks, KNOMIAL);
}

static uint32_t binomial_widest(rota_kind kind, int nranks) {
    return moves_blocks(kind) ? tree_widest((uint32_t)nranks, BINOMIAL) : 1;
}

static uint32_t knomial_widest(rota_kind kind, int nranks) {
    return moves_blocks(kind) ? tree_widest((uint32_t)nranks, KNOMIAL) : 1;
}

static uint32_t binomial_scratch(rota_kind kind, int nranks) {
    if (moves_blocks(kind))
        return tree_widest((uint32_t)nranks, BINOMIAL) - 1;
    return nranks > 1 && sched_kind_reduces(kind) ? 1 : 0;
}

static uint32_t knomial_scratch(rota_kind kind, int nranks) {
    if (moves_blocks(kind))
        return tree_widest((uint32_t)nranks, KNOMIAL) - 1;
    return nranks > 1 && sched_kind_reduces(kind) ? 1 : 0;
}

const struct algorithm algorithm_binomial = {
    .name = "binomial",
    .help = "a tree: log2(n) rounds to or from the root (all_reduce, barrier twice that); "
            "canonical tree",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_BARRIER | 1u << ROTA_KIND_GATHER | 1u << ROTA_KIND_SCATTER,
    .build = build_binomial,
    .rounds = binomial_rounds,
    .volume = binomial_volume,
    .widest = binomial_widest,
    .scratch = binomial_scratch,
    .sends_partials = true,
};

const struct algorithm algorithm_knomial = {
    .name = "knomial",
    .help = "a tree of radix 4: log4(n) rounds to or from the root, 3 messages in each; canonical "
            "tree",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_BARRIER | 1u << ROTA_KIND_GATHER | 1u << ROTA_KIND_SCATTER,
    .build = build_knomial,
    .rounds = knomial_rounds,
    .volume = knomial_volume,
    .widest = knomial_widest,
    .scratch = knomial_scratch,
    .sends_partials = true,
};
