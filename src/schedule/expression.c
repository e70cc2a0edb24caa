/* Hash-consed binary trees: see the header. */
#include "schedule/expression.h"

#include <stdlib.h>
#include <string.h>

enum { SMALLEST_ROOM = 256, SMALLEST_TABLE = 1024 };

void expressions_free(struct expressions *all) {
    free(all->nodes);
    free(all->table);
    memset(all, 0, sizeof *all);
}

static uint32_t hash_of(uint32_t left, uint32_t right) {
    uint64_t mixed = ((uint64_t)left << 32 | right) * UINT64_C(0x9E3779B97F4A7C15);
    return (uint32_t)(mixed >> 32);
}

static bool reserve_node(struct expressions *all) {
    if (all->count < all->room)
        return true;
    if (all->room > UINT32_MAX / 8)
        return false;
    uint32_t room = all->room ? all->room * 2 : SMALLEST_ROOM;
    struct expression *nodes = realloc(all->nodes, room * sizeof *nodes);
    if (!nodes)
        return false;
    all->nodes = nodes;
    all->room = room;
    return true;
}

uint32_t expression_leaf(struct expressions *all, uint32_t rank, uint32_t chunk) {
    if (!reserve_node(all))
        return EXPRESSION_NONE;
    all->nodes[all->count] = (struct expression){.left = EXPRESSION_NONE,
                                                 .right = EXPRESSION_NONE,
                                                 .lowest = rank,
                                                 .highest = rank,
                                                 .chunk = chunk,
                                                 .leaves = 1,
                                                 .ascending = true};
    return all->count++;
}

/* The slot that holds the node, or the empty one where it belongs. */
static uint32_t slot_of(const struct expressions *all, uint32_t left, uint32_t right) {
    uint32_t mask = all->slots - 1, slot = hash_of(left, right) & mask;
    while (all->table[slot] != EXPRESSION_NONE) {
        const struct expression *node = &all->nodes[all->table[slot]];
        if (node->left == left && node->right == right)
            break;
        slot = (slot + 1) & mask;
    }
    return slot;
}

static bool reserve_slot(struct expressions *all) {
    if (all->slots && all->used < all->slots / 2)
        return true;
    uint32_t slots = all->slots ? all->slots * 2 : SMALLEST_TABLE;
    uint32_t *table = malloc(slots * sizeof *table);
    if (!table)
        return false;
    memset(table, 0xff, slots * sizeof *table);
    free(all->table);
    all->table = table;
    all->slots = slots;
    for (uint32_t i = 0; i < all->count; i++)
        if (all->nodes[i].left != EXPRESSION_NONE)
            table[slot_of(all, all->nodes[i].left, all->nodes[i].right)] = i;
    return true;
}

uint32_t expression_find(const struct expressions *all, uint32_t left, uint32_t right) {
    return all->slots ? all->table[slot_of(all, left, right)] : EXPRESSION_NONE;
}

/* The one node with these operands and otherwise as `make` says. */
static uint32_t intern(struct expressions *all, uint32_t left, uint32_t right,
                       struct expression (*make)(const struct expressions *all, uint32_t left,
                                                 uint32_t right)) {
    if (!reserve_slot(all))
        return EXPRESSION_NONE;
    uint32_t slot = slot_of(all, left, right);
    if (all->table[slot] != EXPRESSION_NONE)
        return all->table[slot];
    if (!reserve_node(all))
        return EXPRESSION_NONE;
    all->nodes[all->count] = make(all, left, right);
    all->table[slot] = all->count;
    all->used++;
    return all->count++;
}

static struct expression combined(const struct expressions *all, uint32_t left, uint32_t right) {
    const struct expression *l = &all->nodes[left], *r = &all->nodes[right];
    return (struct expression){
        .left = left,
        .right = right,
        .lowest = l->lowest < r->lowest ? l->lowest : r->lowest,
        .highest = l->highest > r->highest ? l->highest : r->highest,
        .chunk = l->chunk == r->chunk ? l->chunk : UINT32_MAX,
        .leaves = l->leaves > UINT32_MAX - r->leaves ? UINT32_MAX : l->leaves + r->leaves,
        .depth = (l->depth > r->depth ? l->depth : r->depth) + 1,
        .roundings = l->roundings > r->roundings ? l->roundings : r->roundings,
        .ascending = l->ascending && r->ascending && l->highest < r->lowest,
    };
}

uint32_t expression_combine(struct expressions *all, uint32_t left, uint32_t right) {
    return intern(all, left, right, combined);
}

static struct expression rounded(const struct expressions *all, uint32_t left, uint32_t right) {
    struct expression e = all->nodes[left];
    e.left = left;
    e.right = right;
    e.roundings++;
    return e;
}

uint32_t expression_round(struct expressions *all, uint32_t node) {
    const struct expression *e = &all->nodes[node];
    if (e->left == EXPRESSION_NONE || e->right == EXPRESSION_ROUNDED)
        return node;
    return intern(all, node, EXPRESSION_ROUNDED, rounded);
}

/* Marks the ranks of the leaves; false at the first that is there twice. A loop walks the side with
 * more leaves and recursion the other one, so the stack stays as deep as the logarithm of the
 * number of leaves, which the caller has bounded. */
static bool mark_leaves(const struct expressions *all, uint32_t node, uint8_t *seen) {
    const struct expression *e = &all->nodes[node];
    while (e->left != EXPRESSION_NONE) {
        uint32_t small = e->left, large = e->right;
        if (large == EXPRESSION_ROUNDED) {
            e = &all->nodes[small];
            continue;
        }
        if (all->nodes[small].leaves > all->nodes[large].leaves) {
            small = e->right;
            large = e->left;
        }
        if (!mark_leaves(all, small, seen))
            return false;
        e = &all->nodes[large];
    }
    return !seen[e->lowest]++;
}

bool expression_is_complete(const struct expressions *all, uint32_t node, uint32_t nranks,
                            uint8_t *seen) {
    const struct expression *e = &all->nodes[node];
    if (e->leaves != nranks || e->highest >= nranks)
        return false;
    if (e->ascending)
        return true;
    memset(seen, 0, nranks);
    return mark_leaves(all, node, seen);
}
