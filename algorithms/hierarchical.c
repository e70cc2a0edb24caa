/* Stages by host: inside of the groups, between them, inside again, so that what crosses from host
 * to host is as little as possible and every rank carries its share of it.
 *
 * A group is the ranks of one host, in any order and number. Groups are ordered by their lowest
 * rank, members by rank. The first `columns` members of every group, as many as the smallest group
 * has, form the columns: column j is member j of each group. For data that is spread:
 *
 *     all_reduce       each column owns its part of the data, cut into a piece per group: column
 *                      members collect their part inside of the group, then the piece of their
 *                      group inside of the column, and give both back.
 *     reduce_scatter   block of member i belongs to column i mod columns: collected inside of the
 *                      groups, then inside of the column, and where i >= columns handed over.
 *     all_gather       the same backwards.
 *
 * broadcast, reduce and barrier are trees inside of the groups and one over their leaders. Results
 * are the canonical tree where groups are aligned blocks of 2^k consecutive ranks. Where nothing is
 * known of the machine there is one group, which leaves the direct forms.
 *
 * Deadlock: all ranks walk through the same sequence of small exchanges (one piece or block per
 * column), and within one, the m-th ahead is served while the m-th behind is received from. */
#include "algorithms/algorithm.h"
#include "algorithms/tree.h"

#include "base/error.h"

#include <stdlib.h>

enum { RADIX = 2 };

struct hierarchy {
    uint32_t n, groups, columns;
    uint32_t group, index, size; /* own group, place in it, its members */
    uint32_t largest;            /* members of the largest group */
    int *members;                /* group after group */
    uint32_t *begin;             /* by group, and the end; index of members */
    uint32_t *group_of, *slot;   /* by rank */
    int *peers;
};

static uint32_t size_of(const struct hierarchy *h, uint32_t group) {
    return h->begin[group + 1] - h->begin[group];
}

static int rank_at(const struct hierarchy *h, uint32_t group, uint32_t index) {
    return h->members[h->begin[group] + index];
}

static bool owns(const struct hierarchy *h) {
    return h->index < h->columns;
}

/* Numbers the groups by their lowest rank; `slot` serves as the table of numbers. */
static rota_status number_groups(struct hierarchy *h, const struct algorithm_topology *topology) {
    bool flat = !topology || topology->ngroups <= 1 || topology->ngroups >= (int)h->n;
    for (uint32_t r = 0; r < h->n; r++)
        h->slot[r] = UINT32_MAX;
    for (uint32_t r = 0; r < h->n; r++) {
        int group = flat ? 0 : topology->group_of[r];
        if (group < 0 || group >= (int)h->n)
            return error_raise(ROTA_ERR_ARGUMENT, "hierarchical: rank %u is in group %d of %u", r,
                               group, h->n);
        if (h->slot[group] == UINT32_MAX)
            h->slot[group] = h->groups++;
        h->group_of[r] = h->slot[group];
    }
    return ROTA_OK;
}

static rota_status hierarchy_create(struct hierarchy *h, const struct algorithm_request *q) {
    size_t n = (size_t)q->nranks;
    *h = (struct hierarchy){.n = (uint32_t)n};
    h->begin = calloc(3 * n + 2, sizeof *h->begin);
    h->members = malloc(2 * n * sizeof *h->members);
    if (!h->begin || !h->members)
        return error_raise(ROTA_ERR_MEMORY, "no memory for %zu ranks", n);
    h->group_of = h->begin + n + 2;
    h->slot = h->group_of + n;
    h->peers = h->members + n;
    rota_status status = number_groups(h, q->topology);
    if (status != ROTA_OK)
        return status;
    for (uint32_t r = 0; r < h->n; r++) /* shifted by two, so that filling leaves the begins */
        h->begin[h->group_of[r] + 2]++;
    h->columns = h->n;
    for (uint32_t g = 0; g < h->groups; g++) {
        uint32_t size = h->begin[g + 2];
        h->columns = size < h->columns ? size : h->columns;
        h->largest = size > h->largest ? size : h->largest;
        h->begin[g + 2] += h->begin[g + 1];
    }
    for (uint32_t r = 0; r < h->n; r++) {
        uint32_t *next = &h->begin[h->group_of[r] + 1];
        if ((int)r == q->rank)
            h->index = *next;
        h->members[(*next)++] = (int)r;
    }
    h->group = h->group_of[q->rank];
    h->index -= h->begin[h->group];
    h->size = size_of(h, h->group);
    return ROTA_OK;
}

static void hierarchy_destroy(struct hierarchy *h) {
    free(h->begin);
    free(h->members);
}

/* The m-th member ahead of, or behind, the own place. */
static uint32_t ahead(const struct hierarchy *h, uint32_t m) {
    return (h->index + m) % h->size;
}

static uint32_t behind(const struct hierarchy *h, uint32_t m) {
    return (h->index + h->size - m) % h->size;
}

static uint32_t group_ahead(const struct hierarchy *h, uint32_t m) {
    return (h->group + m) % h->groups;
}

static uint32_t group_behind(const struct hierarchy *h, uint32_t m) {
    return (h->group + h->groups - m) % h->groups;
}

/* Combines what all other members of the group send with the own input; a single member converts
 * its own. */
static void collect_in_group(const struct hierarchy *h, struct sched_builder *b,
                             struct sched_range own, struct sched_range result, uint32_t finish) {
    uint32_t flags = SCHED_LOAD_LOCAL | finish, npeers = 0;
    if (h->size == 1) {
        sched_reduce(b, &own, 1, result, flags);
        return;
    }
    for (uint32_t i = 0; i < h->size; i++)
        if (i != h->index)
            h->peers[npeers++] = rank_at(h, h->group, i);
    sched_recv_reduce_list(b, h->peers, npeers, h->index, &own, 1, &result, 1,
                           flags | SCHED_LOAD_MESSAGE);
}

/* The same with partials, inside of the column; completes the result. */
static void collect_in_column(const struct hierarchy *h, struct sched_builder *b,
                              struct sched_range own, struct sched_range result) {
    uint32_t npeers = 0;
    for (uint32_t g = 0; g < h->groups; g++)
        if (g != h->group)
            h->peers[npeers++] = rank_at(h, g, h->index);
    sched_recv_reduce_list(b, h->peers, npeers, h->group, &own, 1, &result, 1, SCHED_FINISH);
}

/* To all other members of the group but `without`. */
static void give_to_group(const struct hierarchy *h, struct sched_builder *b,
                          struct sched_range src, int without) {
    uint32_t npeers = 0;
    for (uint32_t m = 1; m < h->size; m++)
        if (rank_at(h, h->group, ahead(h, m)) != without)
            h->peers[npeers++] = rank_at(h, h->group, ahead(h, m));
    if (npeers)
        sched_send_list(b, h->peers, npeers, &src, 1, 0);
}

static void give_to_column(const struct hierarchy *h, struct sched_builder *b,
                           struct sched_range src) {
    for (uint32_t m = 1; m < h->groups; m++)
        h->peers[m - 1] = rank_at(h, group_ahead(h, m), h->index);
    sched_send_list(b, h->peers, h->groups - 1, &src, 1, 0);
}

/* Piece x of column j is chunk j * groups + x. */
static void all_reduce_in_columns(const struct hierarchy *h, struct sched_builder *b,
                                  uint32_t slot) {
    uint32_t first = h->index * h->groups, own = first + h->group;
    for (uint32_t m = 1; m < h->groups; m++) {
        uint32_t x = group_ahead(h, m);
        sched_send(b, rank_at(h, x, h->index), sched_scratch(slot + x, 1, first + x),
                   SCHED_PARTIAL);
    }
    collect_in_column(h, b, sched_scratch(slot + h->group, 1, own), sched_output(own, 1));
    give_to_column(h, b, sched_output(own, 1));
    for (uint32_t m = 1; m < h->groups; m++) {
        uint32_t x = group_behind(h, m);
        sched_recv(b, rank_at(h, x, h->index), sched_output(first + x, 1), 0);
    }
}

static void build_all_reduce(const struct hierarchy *h, struct sched_builder *b) {
    sched_set_chunks(b, h->columns * h->groups);
    bool between = h->groups > 1;
    uint32_t slot = between && owns(h) ? sched_alloc_scratch(b, h->groups) : 0;
    for (uint32_t x = 0; x < h->groups; x++) {
        for (uint32_t m = 1; m < h->size; m++)
            if (ahead(h, m) < h->columns)
                sched_send(b, rank_at(h, h->group, ahead(h, m)),
                           sched_input(ahead(h, m) * h->groups + x, 1), 0);
        uint32_t chunk = h->index * h->groups + x;
        if (owns(h))
            collect_in_group(h, b, sched_input(chunk, 1),
                             between ? sched_scratch(slot + x, 1, chunk) : sched_output(chunk, 1),
                             between ? 0 : SCHED_FINISH);
    }
    if (between && owns(h))
        all_reduce_in_columns(h, b, slot);
    for (uint32_t x = 0; x < h->groups; x++) {
        if (owns(h))
            give_to_group(h, b, sched_output(h->index * h->groups + x, 1), -1);
        for (uint32_t m = 1; m < h->size; m++)
            if (behind(h, m) < h->columns)
                sched_recv(b, rank_at(h, h->group, behind(h, m)),
                           sched_output(behind(h, m) * h->groups + x, 1), 0);
    }
}

/* Turns of a group: in turn u column j has the block of member u * columns + j, if there is one. */
static bool has_block(const struct hierarchy *h, uint32_t group, uint32_t column, uint32_t turn) {
    return (uint64_t)turn * h->columns + column < size_of(h, group);
}

static uint32_t block_at(const struct hierarchy *h, uint32_t group, uint32_t column,
                         uint32_t turn) {
    return (uint32_t)rank_at(h, group, turn * h->columns + column);
}

static uint32_t turns_of(const struct hierarchy *h, uint32_t size) {
    return (size + h->columns - 1) / h->columns;
}

static void reduce_scatter_in_groups(const struct hierarchy *h, struct sched_builder *b) {
    for (uint32_t g = 0; g < h->groups; g++) {
        for (uint32_t turn = 0; turn < turns_of(h, size_of(h, g)); turn++) {
            for (uint32_t m = 1; m < h->size; m++) {
                uint32_t owner = ahead(h, m);
                if (owner < h->columns && has_block(h, g, owner, turn))
                    sched_send(b, rank_at(h, h->group, owner),
                               sched_input(block_at(h, g, owner, turn), 1), 0);
            }
            if (!owns(h) || !has_block(h, g, h->index, turn))
                continue;
            uint32_t block = block_at(h, g, h->index, turn);
            bool between = h->groups > 1;
            h->slot[block] = between ? sched_alloc_scratch(b, 1) : 0;
            collect_in_group(h, b, sched_input(block, 1),
                             between ? sched_scratch(h->slot[block], 1, block) : sched_output(0, 1),
                             between ? 0 : SCHED_FINISH);
        }
    }
}

static void reduce_scatter_in_columns(const struct hierarchy *h, struct sched_builder *b) {
    for (uint32_t turn = 0; turn < turns_of(h, h->largest); turn++) {
        for (uint32_t m = 1; m < h->groups; m++) {
            uint32_t g = group_ahead(h, m);
            if (!has_block(h, g, h->index, turn))
                continue;
            uint32_t block = block_at(h, g, h->index, turn);
            sched_send(b, rank_at(h, g, h->index), sched_scratch(h->slot[block], 1, block),
                       SCHED_PARTIAL);
        }
        if (!has_block(h, h->group, h->index, turn))
            continue;
        uint32_t block = block_at(h, h->group, h->index, turn);
        struct sched_range result = sched_output(0, 1);
        if (turn > 0)
            result = sched_scratch(sched_alloc_scratch(b, 1), 1, block);
        collect_in_column(h, b, sched_scratch(h->slot[block], 1, block), result);
        if (turn > 0)
            sched_send(b, (int)block, result, 0);
    }
}

static void build_reduce_scatter(const struct hierarchy *h, struct sched_builder *b) {
    reduce_scatter_in_groups(h, b);
    if (h->groups > 1 && owns(h))
        reduce_scatter_in_columns(h, b);
    if (!owns(h))
        sched_recv(b, rank_at(h, h->group, h->index % h->columns), sched_output(0, 1), 0);
}

static void all_gather_in_columns(const struct hierarchy *h, struct sched_builder *b) {
    for (uint32_t turn = 0; turn < turns_of(h, h->largest); turn++) {
        if (has_block(h, h->group, h->index, turn)) {
            uint32_t block = block_at(h, h->group, h->index, turn);
            give_to_column(h, b, turn ? sched_output(block, 1) : sched_input(0, 1));
        }
        for (uint32_t m = 1; m < h->groups; m++) {
            uint32_t g = group_behind(h, m);
            if (has_block(h, g, h->index, turn))
                sched_recv(b, rank_at(h, g, h->index),
                           sched_output(block_at(h, g, h->index, turn), 1), 0);
        }
    }
}

static void all_gather_in_groups(const struct hierarchy *h, struct sched_builder *b, int rank) {
    for (uint32_t g = 0; g < h->groups; g++) {
        for (uint32_t turn = 0; turn < turns_of(h, size_of(h, g)); turn++) {
            if (owns(h) && has_block(h, g, h->index, turn)) {
                int block = (int)block_at(h, g, h->index, turn);
                give_to_group(h, b,
                              block == rank ? sched_input(0, 1) : sched_output((uint32_t)block, 1),
                              block);
            }
            for (uint32_t m = 1; m < h->size; m++) {
                uint32_t owner = behind(h, m);
                if (owner < h->columns && has_block(h, g, owner, turn) &&
                    (int)block_at(h, g, owner, turn) != rank)
                    sched_recv(b, rank_at(h, h->group, owner),
                               sched_output(block_at(h, g, owner, turn), 1), 0);
            }
        }
    }
}

static void build_all_gather(const struct hierarchy *h, struct sched_builder *b,
                             const struct algorithm_request *q) {
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output((uint32_t)q->rank, 1), 0);
    if (!owns(h))
        sched_send(b, rank_at(h, h->group, h->index % h->columns), sched_input(0, 1), 0);
    for (uint32_t turn = 1; owns(h) && has_block(h, h->group, h->index, turn); turn++) {
        uint32_t block = block_at(h, h->group, h->index, turn);
        sched_recv(b, (int)block, sched_output(block, 1), 0);
    }
    if (h->groups > 1 && owns(h))
        all_gather_in_columns(h, b);
    all_gather_in_groups(h, b, q->rank);
}

/* The tree of the own group, and that of the leaders (in `peers`), who are the lowest of their
 * groups but for the root's, which is the root. */
struct trees {
    struct tree inner, outer;
    bool leads;
};

static struct trees trees_of(const struct hierarchy *h, int root) {
    struct trees t = {.inner = {h->size, h->index, 0, RADIX, h->members + h->begin[h->group]},
                      .outer = {h->groups, h->group, 0, RADIX, h->peers}};
    for (uint32_t g = 0; g < h->groups; g++)
        h->peers[g] = rank_at(h, g, 0);
    if (root >= 0) {
        t.outer.root = h->group_of[root];
        h->peers[t.outer.root] = root;
    }
    while (t.inner.ranks[t.inner.root] != h->peers[h->group])
        t.inner.root++;
    t.leads = t.inner.root == h->index;
    return t;
}

static void build_broadcast(const struct hierarchy *h, struct sched_builder *b,
                            const struct algorithm_request *q) {
    struct trees t = trees_of(h, q->root);
    bool is_root = q->rank == q->root;
    struct sched_range output = sched_output(0, 1), source = is_root ? sched_input(0, 1) : output;
    if (t.leads)
        tree_broadcast(&t.outer, b, source, output);
    tree_broadcast(&t.inner, b, source, output);
    if (is_root && !q->in_place)
        sched_copy(b, source, output, 0);
}

static void build_reduce(const struct hierarchy *h, struct sched_builder *b, int root) {
    struct trees t = trees_of(h, root);
    bool between = h->groups > 1;
    struct tree_reduction what = {.value = sched_input(0, 1),
                                  .result = sched_output(0, 1),
                                  .raw = true,
                                  .finish = between ? 0 : SCHED_FINISH};
    if (between && t.leads)
        what.partial = what.result = sched_scratch(sched_alloc_scratch(b, 1), 1, 0);
    if (h->size > 1)
        tree_reduce(&t.inner, b, &what);
    else
        sched_reduce(b, &what.value, 1, what.result, SCHED_LOAD_LOCAL | what.finish);
    if (!between || !t.leads)
        return;
    what = (struct tree_reduction){.value = what.partial,
                                   .partial = what.partial,
                                   .result = sched_output(0, 1),
                                   .finish = SCHED_FINISH};
    tree_reduce(&t.outer, b, &what);
}

/* Between the leaders tokens spread by dissemination: over distances 1, 2, 4, ... of groups. */
static void build_barrier(const struct hierarchy *h, struct sched_builder *b) {
    struct trees t = trees_of(h, -1);
    struct tree_tokens heard = {.count = 0};
    tree_tokens_up(&t.inner, b, &heard);
    for (uint32_t distance = 1; t.leads && distance < h->groups; distance *= 2) {
        sched_lane(b, 0, 0);
        uint32_t sent = sched_send_token(b, h->peers[group_ahead(h, distance)]);
        for (uint32_t i = 0; i < heard.count; i++)
            sched_wait(b, sent, heard.steps[i]);
        sched_lane(b, 1, 0);
        heard.steps[0] = sched_recv_token(b, h->peers[group_behind(h, distance)]);
        heard.count = 1;
    }
    tree_tokens_down(&t.inner, b, &heard);
}

static rota_status build(const struct algorithm_request *q, struct sched_builder *b) {
    struct hierarchy h;
    rota_status status = hierarchy_create(&h, q);
    if (status == ROTA_OK) {
        switch (q->kind) {
        case ROTA_KIND_ALL_REDUCE:
            build_all_reduce(&h, b);
            break;
        case ROTA_KIND_REDUCE:
            build_reduce(&h, b, q->root);
            break;
        case ROTA_KIND_BROADCAST:
            build_broadcast(&h, b, q);
            break;
        case ROTA_KIND_ALL_GATHER:
            build_all_gather(&h, b, q);
            break;
        case ROTA_KIND_REDUCE_SCATTER:
            build_reduce_scatter(&h, b);
            break;
        case ROTA_KIND_BARRIER:
            build_barrier(&h, b);
            break;
        default:
            status = ROTA_ERR_UNSUPPORTED;
        }
    }
    hierarchy_destroy(&h);
    return status;
}

/* Of two levels; what is not known to a price is where the groups are, so volumes are those of one
 * group. */
static double rounds(rota_kind kind, int nranks) {
    double levels = tree_levels((uint32_t)nranks, RADIX);
    if (nranks < 2)
        return 0;
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return 4;
    case ROTA_KIND_BARRIER:
        return 2 * levels;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
        return levels + 1;
    default:
        return 2;
    }
}

static double volume(rota_kind kind, int nranks) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return 2 * (nranks - 1.0) / nranks;
    case ROTA_KIND_BARRIER:
        return 0;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
        return tree_children((uint32_t)nranks, RADIX);
    default:
        return (nranks - 1.0) / nranks;
    }
}

/* Bounds over all groupings. */
static uint32_t scratch(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks;
    if (n < 2 || !sched_kind_reduces(kind))
        return 0;
    return kind == ROTA_KIND_REDUCE ? 1 : kind == ROTA_KIND_ALL_REDUCE ? n : 2 * n;
}

const struct algorithm algorithm_hierarchical = {
    .name = "hierarchical",
    .help = "stages inside of the hosts and between them, every rank with its share of the traffic "
            "between",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_REDUCE_SCATTER | 1u << ROTA_KIND_BARRIER,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
};
