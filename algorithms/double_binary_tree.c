/* Two complementary binary trees, each for half of the data: a rank has children in one of them at
 * most, so nobody sends or receives more than the data once (all_reduce twice), in log2(n) hops.
 * After Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth broadcast, reduction and
 * scan" (2009).
 *
 * Ranks count from the root; the root has one child, the top of the tree over ranks 1 .. n - 1. A
 * node at position p has its children at p -+ lowbit(p) / 2, so odd positions are leaves. Tree 0
 * puts rank x at position x and tree 1 at x + 1 (whose position 1, a leaf, is empty). For n = 8:
 *
 *     tree 0       4          tree 1           7
 *                2   6                   3
 *               1 3 5 7                1   5
 *                                       2 4 6
 *
 * Both are in order, so counted from the root operands stand in ascending order. Each half is cut
 * into chunks, so that the levels overlap also where a message is one slice. Every tree has a lane
 * of its own, and in all_reduce either direction. */
#include "algorithms/algorithm.h"

enum { TREES = 2, TREE_CHUNKS = 4 /* of either half */ };

/* One rank's place in one tree. Peers are ranks; parent -1: it is the root. */
struct place {
    int parent;
    int children[2];
    bool leaf[2]; /* whether the child has no children */
    uint32_t nchildren;
    uint32_t nleft; /* children whose operands stand left of the own one */
};

static uint32_t tree_chunks(int nranks) {
    return nranks > 2 ? TREE_CHUNKS : 1; /* two ranks have one link: nothing to overlap */
}

/* From one of two ranks to the other both halves would go the same way: one message is enough. */
static uint32_t trees_of(rota_kind kind, int nranks) {
    return nranks == 2 && kind != ROTA_KIND_ALL_REDUCE ? 1 : TREES;
}

static uint32_t highest_bit(uint32_t x) {
    return 1u << (31 - (uint32_t)__builtin_clz(x));
}

struct tree {
    uint32_t n, root, number;
    uint32_t size; /* positions */
};

static void add_child(const struct tree *t, struct place *place, uint32_t position) {
    bool childless = t->number == 1 && position == 2 && t->size < 3;
    place->leaf[place->nchildren] = position % 2 == 1 || childless;
    place->children[place->nchildren++] = (int)((position - t->number + t->root) % t->n);
}

static struct place place_of(const struct tree *t, int rank) {
    struct place place = {.parent = -1};
    uint32_t relative = ((uint32_t)rank + t->n - t->root) % t->n;
    if (relative == 0) {
        add_child(t, &place, highest_bit(t->size));
        return place;
    }
    uint32_t position = relative + t->number, low = position & -position;
    uint32_t up = (position ^ low) | low << 1;
    if (up > t->size) /* the tree is cut short there: the ancestor left of it takes its place */
        up = position ^ low;
    place.parent = (int)(up ? (up - t->number + t->root) % t->n : t->root);
    if (low > 1 && !(t->number == 1 && position == 2)) {
        add_child(t, &place, position - low / 2);
        place.nleft = 1;
    }
    for (uint32_t half = low / 2; half; half /= 2) {
        if (position + half <= t->size) {
            add_child(t, &place, position + half);
            break;
        }
    }
    return place;
}

/* Combines the chunks of the children with the own one. Returns the step that reads the input. */
static uint32_t combine(struct sched_builder *b, const struct place *at, uint32_t chunk,
                        struct sched_range result, uint32_t finish) {
    struct sched_range value = sched_input(chunk, 1);
    uint32_t flags = SCHED_LOAD_LOCAL | finish, reads = 0;
    if (at->nchildren == 2 && at->leaf[0] == at->leaf[1]) {
        flags |= at->leaf[0] ? SCHED_LOAD_MESSAGE : 0u;
        return sched_recv_reduce_list(b, at->children, 2, at->nleft, &value, 1, &result, 1, flags);
    }
    for (uint32_t i = 0; i < at->nchildren; i++) {
        flags = (i == 0 ? SCHED_LOAD_LOCAL : 0u) | (at->leaf[i] ? SCHED_LOAD_MESSAGE : 0u) |
                (i + 1 == at->nchildren ? finish : 0u);
        uint32_t step = sched_recv_reduce(b, at->children[i], value, i < at->nleft, result, flags);
        reads = i == 0 ? step : reads;
        value = result;
    }
    return reads;
}

/* One chunk on its way to the root. Returns the step after which the output may change: at the root
 * it is the one that completes it, elsewhere the last one that reads the input. */
static uint32_t add_up(struct sched_builder *b, const struct place *at, uint32_t chunk,
                       uint32_t scratch) {
    if (at->parent < 0)
        return combine(b, at, chunk, sched_output(chunk, 1), SCHED_FINISH);
    if (!at->nchildren)
        return sched_send(b, at->parent, sched_input(chunk, 1), 0);
    struct sched_range partial = sched_scratch(scratch, 1, chunk);
    uint32_t reads = combine(b, at, chunk, partial, 0);
    sched_send(b, at->parent, partial, SCHED_PARTIAL);
    return reads;
}

/* One chunk on its way from the root, which sends `source`. Returns the first step. */
static uint32_t add_down(struct sched_builder *b, const struct place *at, uint32_t chunk,
                         struct sched_range source) {
    uint32_t first = 0;
    if (at->parent >= 0) {
        source = sched_output(chunk, 1);
        first = sched_recv(b, at->parent, source, 0);
    }
    if (at->nchildren) {
        uint32_t sent = sched_send_list(b, at->children, at->nchildren, &source, 1, 0);
        first = at->parent >= 0 ? first : sent;
    }
    return first;
}

static void add_tree(const struct algorithm_request *q, struct sched_builder *b, uint32_t number) {
    uint32_t chunks = tree_chunks(q->nranks), n = (uint32_t)q->nranks;
    uint32_t root = q->kind == ROTA_KIND_ALL_REDUCE ? 0 : (uint32_t)q->root;
    const struct tree t = {n, root, number, n - 1 + number};
    const struct place at = place_of(&t, q->rank);
    bool both = q->kind == ROTA_KIND_ALL_REDUCE, accumulates = at.parent >= 0 && at.nchildren;
    uint32_t scratch =
        sched_kind_reduces(q->kind) && accumulates ? sched_alloc_scratch(b, chunks) : 0;
    for (uint32_t c = 0; c < chunks; c++) {
        uint32_t chunk = number * chunks + c, up = 0;
        if (q->kind != ROTA_KIND_BROADCAST) {
            sched_lane(b, number, number);
            up = add_up(b, &at, chunk, scratch + c);
        }
        if (q->kind == ROTA_KIND_REDUCE)
            continue;
        sched_lane(b, both ? TREES + number : number, number);
        uint32_t down =
            add_down(b, &at, chunk, both ? sched_output(chunk, 1) : sched_input(chunk, 1));
        if (both && (at.parent < 0 || q->in_place))
            sched_wait(b, down, up);
    }
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    uint32_t trees = trees_of(request->kind, request->nranks);
    uint32_t chunks = trees * tree_chunks(request->nranks);
    sched_set_chunks(builder, chunks);
    for (uint32_t number = 0; number < trees; number++)
        add_tree(request, builder, number);
    if (request->kind == ROTA_KIND_BROADCAST && request->rank == request->root &&
        !request->in_place)
        sched_copy(builder, sched_input(0, chunks), sched_output(0, chunks), 0);
    return ROTA_OK;
}

/* The deeper tree is that of n positions; each further chunk follows one hop behind. */
static double rounds(rota_kind kind, int nranks) {
    if (nranks < 2)
        return 0;
    double hops = nranks == 2 ? 1 : 32 - __builtin_clz((unsigned)nranks);
    double behind = tree_chunks(nranks) - 1.0;
    return kind == ROTA_KIND_ALL_REDUCE ? 2 * hops + behind : hops + behind;
}

/* Of all_reduce: the whole data up, and down half of them to each child in one tree. */
static double volume(rota_kind kind, int nranks) {
    if (nranks < 2)
        return 0;
    if (kind != ROTA_KIND_ALL_REDUCE || nranks == 2)
        return 1;
    return nranks == 3 ? 1.5 : 2;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    return nranks > 2 && sched_kind_reduces(kind) ? TREES * tree_chunks(nranks) : 0;
}

const struct algorithm algorithm_double_binary_tree = {
    .name = "double_binary_tree",
    .help = "two complementary trees, each for half of the data: log2(n) hops, all links used; for "
            "large data on many ranks",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
    .sends_partials = true,
};
