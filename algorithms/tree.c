/* k-nomial trees over a list of ranks.
 *
 * Reduction. In level k the owners of up to `radix` neighbouring blocks of radix^k positions
 * combine theirs at one of them, lower positions left. The owner of a block is the root if it lies
 * in it, else its lowest position; so the tree of operations is the same for every root and only
 * who computes a node depends on it. Radix 4 combines 4 operands as (0 + 1) + (2 + 3), which is two
 * levels of radix 2: for radices that are powers of two the result is the aligned binary tree.
 *
 * Broadcast, gather, scatter and tokens run over positions relative to the root: the parent of a
 * position is that without its lowest digit that is not 0, in the base of the radix. */
#include "algorithms/tree.h"

static int rank_of(const struct tree *t, uint64_t position) {
    return t->ranks ? t->ranks[position] : (int)position;
}

uint32_t tree_levels(uint32_t n, uint32_t radix) {
    uint32_t levels = 0;
    for (uint64_t size = 1; size < n; size *= radix)
        levels++;
    return levels;
}

uint32_t tree_children(uint32_t n, uint32_t radix) {
    uint32_t children = 0;
    for (uint64_t size = 1; size < n; size *= radix)
        for (uint32_t digit = 1; digit < radix && digit * size < n; digit++)
            children++;
    return children;
}

/* The blocks of one level that become one. */
struct merger {
    uint64_t base; /* of the first block */
    uint64_t size; /* of each */
    uint64_t owner;
    int peers[TREE_MAX_RADIX]; /* owners of the other blocks */
    uint32_t npeers;
    uint32_t position; /* peers that stand left of the owner's block */
    bool raw;          /* the messages are inputs: no peer has combined anything yet */
};

static uint64_t owner_of(const struct tree *t, uint64_t base, uint64_t size) {
    return t->root >= base && t->root - base < size ? t->root : base;
}

static struct merger merger_of(const struct tree *t, uint64_t size) {
    struct merger m = {.size = size, .raw = true};
    m.base = t->self / (size * t->radix) * (size * t->radix);
    m.owner = owner_of(t, m.base, size * t->radix);
    for (uint32_t i = 0; i < t->radix && m.base + i * size < t->n; i++) {
        uint64_t block = m.base + i * size;
        if (m.owner >= block && m.owner - block < size) {
            m.position = m.npeers;
            continue;
        }
        m.raw = m.raw && (size == 1 || block + 1 == t->n);
        m.peers[m.npeers++] = rank_of(t, owner_of(t, block, size));
    }
    return m;
}

static void use_partial(struct sched_builder *b, struct tree_reduction *what) {
    if (!what->partial.count)
        what->partial = sched_scratch(sched_alloc_scratch(b, 1), 1, 0);
}

/* Messages of one merger are all inputs or all partials: an input among partials is converted. */
static void send_up(const struct tree *t, struct sched_builder *b, struct tree_reduction *what,
                    const struct merger *m, struct sched_range value, bool raw) {
    bool inputs = m->raw && what->raw;
    if (raw && !inputs) {
        use_partial(b, what);
        sched_reduce(b, &value, 1, what->partial, SCHED_LOAD_LOCAL);
        value = what->partial;
    }
    sched_send(b, rank_of(t, m->owner), value, inputs ? 0 : SCHED_PARTIAL);
}

void tree_reduce(const struct tree *t, struct sched_builder *b, struct tree_reduction *what) {
    struct sched_range value = what->value;
    bool raw = what->raw; /* nothing was combined with the own value yet */
    for (uint64_t size = 1; size < t->n; size *= t->radix) {
        struct merger m = merger_of(t, size);
        if (!m.npeers)
            continue;
        if (m.owner != t->self) {
            send_up(t, b, what, &m, value, raw);
            return;
        }
        uint32_t flags =
            (m.raw && what->raw ? SCHED_LOAD_MESSAGE : 0u) | (raw ? SCHED_LOAD_LOCAL : 0u);
        struct sched_range result = what->result;
        if (size * t->radix < t->n) {
            use_partial(b, what);
            result = what->partial;
        } else {
            flags |= what->finish;
        }
        sched_recv_reduce_list(b, m.peers, m.npeers, m.position, &value, 1, &result, 1, flags);
        value = result;
        raw = false;
    }
}

/* Neighbours in the tree over relative positions. */
struct node {
    bool has_parent;
    int parent;
    int children[TREE_MAX_CHILDREN]; /* largest subtree first */
    uint32_t nchildren;
    /* Relative positions of the node and its subtree's end, and those of the children. */
    uint64_t first, end;
    uint64_t child_first[TREE_MAX_CHILDREN], child_end[TREE_MAX_CHILDREN];
};

static struct node node_of(const struct tree *t) {
    struct node node = {0};
    uint64_t relative = (t->self + (uint64_t)t->n - t->root) % t->n, weight = 1;
    while (weight < t->n && relative / weight % t->radix == 0)
        weight *= t->radix;
    node.has_parent = relative > 0;
    uint64_t parent = relative - relative / weight % t->radix * weight;
    node.parent = rank_of(t, (parent + t->root) % t->n);
    node.first = relative;
    node.end = relative + weight < t->n ? relative + weight : t->n;
    while (weight > 1) {
        weight /= t->radix;
        for (uint32_t digit = 1; digit < t->radix && relative + digit * weight < t->n; digit++) {
            uint64_t child = relative + digit * weight;
            node.child_first[node.nchildren] = child;
            node.child_end[node.nchildren] = child + weight < t->n ? child + weight : t->n;
            node.children[node.nchildren++] = rank_of(t, (child + t->root) % t->n);
        }
    }
    return node;
}

void tree_broadcast(const struct tree *t, struct sched_builder *b, struct sched_range source,
                    struct sched_range target) {
    struct node node = node_of(t);
    if (node.has_parent) {
        sched_recv(b, node.parent, target, 0);
        source = target;
    }
    if (node.nchildren)
        sched_send_list(b, node.children, node.nchildren, &source, 1, 0);
}

/* The blocks of a child's subtree: where they belong in `whole` at the root, else in scratch behind
 * each other. */
static void add_subtree(const struct tree *t, const struct node *node, uint64_t first, uint64_t end,
                        enum sched_buffer whole, struct ranges *list) {
    for (uint64_t at = first; at < end; at++) {
        uint32_t block = (uint32_t)((at + t->root) % t->n);
        if (node->has_parent)
            ranges_add(list, SCHED_SCRATCH, (uint32_t)(at - node->first - 1), block);
        else
            ranges_add(list, whole, block, 0);
    }
}

void tree_gather(const struct tree *t, struct sched_builder *b, struct ranges *list,
                 bool in_place) {
    struct node node = node_of(t);
    if (node.has_parent)
        sched_alloc_scratch(b, (uint32_t)(node.end - node.first - 1));
    else if (!in_place)
        sched_copy(b, sched_input(0, 1), sched_output(t->self, 1), 0);
    for (uint32_t i = node.nchildren; i-- > 0;) {
        ranges_clear(list);
        add_subtree(t, &node, node.child_first[i], node.child_end[i], SCHED_OUTPUT, list);
        ranges_recv(b, node.children[i], list, 0);
    }
    if (!node.has_parent)
        return;
    ranges_clear(list);
    ranges_add(list, SCHED_INPUT, 0, 0);
    add_subtree(t, &node, node.first + 1, node.end, SCHED_OUTPUT, list);
    ranges_send(b, node.parent, list, 0);
}

void tree_scatter(const struct tree *t, struct sched_builder *b, struct ranges *list,
                  bool in_place) {
    struct node node = node_of(t);
    if (node.has_parent) {
        sched_alloc_scratch(b, (uint32_t)(node.end - node.first - 1));
        ranges_clear(list);
        ranges_add(list, SCHED_OUTPUT, 0, 0);
        add_subtree(t, &node, node.first + 1, node.end, SCHED_INPUT, list);
        ranges_recv(b, node.parent, list, 0);
    }
    for (uint32_t i = 0; i < node.nchildren; i++) {
        ranges_clear(list);
        add_subtree(t, &node, node.child_first[i], node.child_end[i], SCHED_INPUT, list);
        ranges_send(b, node.children[i], list, 0);
    }
    if (!node.has_parent && !in_place)
        sched_copy(b, sched_input(t->self, 1), sched_output(0, 1), 0);
}

/* The root's highest children have whole subtrees but for the last of them, those below smaller
 * ones. */
uint32_t tree_widest(uint32_t n, uint32_t radix) {
    uint64_t top = 1;
    while (top * radix < n)
        top *= radix;
    uint64_t rest = n - top < top ? n - top : top;
    return (uint32_t)(n < 2 ? 1 : rest > top / radix ? rest : top / radix);
}

static void wait_for(struct sched_builder *b, uint32_t step, const struct tree_tokens *tokens) {
    for (uint32_t i = 0; i < tokens->count; i++)
        sched_wait(b, step, tokens->steps[i]);
}

/* Tokens carry no data, so they wait for each other by name. */
void tree_tokens_up(const struct tree *t, struct sched_builder *b, struct tree_tokens *heard) {
    struct node node = node_of(t);
    heard->count = 0;
    sched_lane(b, 1, 0);
    for (uint32_t i = node.nchildren; i-- > 0;)
        heard->steps[heard->count++] = sched_recv_token(b, node.children[i]);
    sched_lane(b, 0, 0);
    if (node.has_parent)
        wait_for(b, sched_send_token(b, node.parent), heard);
}

void tree_tokens_down(const struct tree *t, struct sched_builder *b,
                      const struct tree_tokens *heard) {
    struct node node = node_of(t);
    struct tree_tokens released = *heard;
    if (node.has_parent) {
        sched_lane(b, 1, 0);
        released = (struct tree_tokens){.steps = {sched_recv_token(b, node.parent)}, .count = 1};
    }
    sched_lane(b, 0, 0);
    if (node.nchildren)
        wait_for(b, sched_send_list(b, node.children, node.nchildren, NULL, 0, 0), &released);
}
