/* Packing spanning trees.
 *
 * An all-gather that pipelines along trees sends from each GPU, as a root, at rate y to all others.
 * What leaves a set S of GPUs is at least y |S|, so y <= leaving(S) / |S| for every S, and in the
 * unit of rings (a ring of share w moves what trees of rate w / (n - 1) from each root move) the
 * bound is min leaving(S) (n - 1) / |S|. By Edmonds (1973) trees reach it exactly.
 *
 * The bound: a source s with an arc of rate y to every GPU can send n y to each GPU if and only if
 * y is possible; a cut that says no gives the next lower y, until none does (Dinkelbach, 1967). All
 * in whole numbers: y = p / q, links scaled by q.
 *
 * The trees: batches of equal trees under construction, at first one per root, p of them, holding
 * the root alone. One grows by an arc x -> v; as many of its trees may as the arc carries, and as
 * leaves every set U with v, without x, that touches the batch, enough arcs for the batches that
 * have not reached it: a maximum flow from x to v tells (Berczi and Frank, 2010; ForestColl, 2024).
 * If not all may, the batch is split. */
#include "topology/trees.h"
#include "base/error.h"
#include "topology/flow.h"
#include "topology/grow.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Above this many GPUs the flows take seconds; rings are unrolled into chains then. */
#define MAX_EXACT 24
/* Edges of all chains: half a GiB. Above, rings are unrolled from one GPU each. */
#define MAX_EDGES (1 << 26)

struct batch {
    int root, size, grown; /* vertices reached; edges tried from order[grown ...] */
    int64_t times;
    int *order, *parent; /* vertices in the order in which they were reached; by vertex */
    bool *in;
};

struct forest {
    const struct topo *topo;
    int n, batch_count, batch_room, link_count;
    struct batch *batches;
    int *from, *to;    /* of links */
    int64_t *capacity; /* what is left of each */
};

static struct topo_tree *add_tree(struct topo_trees *trees, int root, double share) {
    if (!grow((void **)&trees->trees, trees->count, &trees->room, sizeof(*trees->trees)))
        return NULL;
    struct topo_tree *tree = &trees->trees[trees->count];
    *tree = (struct topo_tree){.root = root, .share = share};
    tree->parents = calloc((size_t)trees->gpu_count + 1, sizeof(int));
    tree->children = calloc((size_t)trees->gpu_count + 1, sizeof(int));
    trees->count++; /* freed with the others whatever is missing */
    return tree->parents != NULL && tree->children != NULL ? tree : NULL;
}

static void add_edge(struct topo_tree *tree, int parent, int child) {
    tree->parents[tree->edge_count] = parent;
    tree->children[tree->edge_count++] = child;
}

void topo_free_trees(struct topo_trees *trees) {
    for (int i = 0; i < trees->count; i++) {
        free(trees->trees[i].parents);
        free(trees->trees[i].children);
    }
    free(trees->trees);
    *trees = (struct topo_trees){.kind = NULL};
}

/* The greatest rate y = p / q of every root; false without memory. p is 0 when links do not reach
 * everybody. */
static bool find_rate(const struct topo *topo, int64_t *p, int64_t *q) {
    int n = topo->gpu_count;
    int64_t least = INT64_MAX;
    for (int to = 0; to < n; to++) {
        int64_t entering = 0;
        for (int from = 0; from < n; from++)
            entering += topo_links(topo, from, to);
        least = entering < least ? entering : least;
    }
    *p = least;
    *q = n - 1;
    for (bool lower = true; lower && *p > 0;) {
        struct flow flow;
        lower = false;
        if (!flow_init(&flow, n + 1))
            return false;
        for (int i = 0; i < n; i++) {
            flow_add(&flow, n, i, *p);
            for (int j = 0; j < n; j++)
                if (topo_links(topo, i, j) > 0)
                    flow_add(&flow, i, j, topo_links(topo, i, j) * *q);
        }
        for (int to = 0; to < n && !lower && !flow.no_memory; to++) {
            flow_reset(&flow);
            if (flow_max(&flow, n, to) >= n * *p)
                continue;
            int64_t leaving = 0, size = 0;
            for (int i = 0; i < n; i++) {
                size += flow_reached(&flow, i);
                for (int j = 0; j < n; j++)
                    if (flow_reached(&flow, i) && !flow_reached(&flow, j))
                        leaving += topo_links(topo, i, j);
            }
            *p = leaving;
            *q = size;
            lower = true;
        }
        bool failed = flow.no_memory;
        flow_free(&flow);
        if (failed)
            return false;
    }
    return true;
}

static void forest_free(struct forest *forest) {
    for (int i = 0; i < forest->batch_count; i++) {
        free(forest->batches[i].order);
        free(forest->batches[i].parent);
        free(forest->batches[i].in);
    }
    free(forest->batches);
    free(forest->from);
    free(forest->to);
    free(forest->capacity);
}

/* A batch of its own, or one that goes on from another. */
static bool add_batch(struct forest *forest, int root, int64_t times, int like) {
    size_t n = (size_t)forest->n;
    if (!grow((void **)&forest->batches, forest->batch_count, &forest->batch_room,
              sizeof(*forest->batches)))
        return false;
    struct batch *batch = &forest->batches[forest->batch_count++];
    *batch = (struct batch){.root = root, .size = 1, .times = times};
    batch->order = calloc(n + 1, sizeof(int));
    batch->parent = calloc(n + 1, sizeof(int));
    batch->in = calloc(n + 1, sizeof(bool));
    if (batch->order == NULL || batch->parent == NULL || batch->in == NULL)
        return false;
    batch->order[0] = root;
    batch->in[root] = true;
    if (like >= 0) {
        const struct batch *other = &forest->batches[like];
        batch->size = other->size;
        memcpy(batch->order, other->order, n * sizeof(int));
        memcpy(batch->parent, other->parent, n * sizeof(int));
        memcpy(batch->in, other->in, n * sizeof(bool));
    }
    return true;
}

static bool forest_init(struct forest *forest, const struct topo *topo, int64_t p, int64_t q) {
    size_t n = (size_t)topo->gpu_count;
    *forest = (struct forest){.topo = topo, .n = topo->gpu_count};
    forest->from = malloc(n * n * sizeof(int));
    forest->to = malloc(n * n * sizeof(int));
    forest->capacity = malloc(n * n * sizeof(int64_t));
    if (forest->from == NULL || forest->to == NULL || forest->capacity == NULL)
        return false;
    for (int i = 0; i < forest->n; i++)
        for (int j = 0; j < forest->n; j++)
            if (topo_links(topo, i, j) > 0) {
                forest->from[forest->link_count] = i;
                forest->to[forest->link_count] = j;
                forest->capacity[forest->link_count++] = topo_links(topo, i, j) * q;
            }
    for (int root = 0; root < forest->n; root++)
        if (!add_batch(forest, root, p, -1))
            return false;
    return true;
}

/* How many trees of the batch may take the link; -1 without memory. */
static int64_t may_grow(const struct forest *forest, int which, int link) {
    struct flow flow;
    int64_t others = 0;
    int n = forest->n;
    if (!flow_init(&flow, n + forest->batch_count))
        return -1;
    for (int i = 0; i < forest->link_count; i++)
        if (forest->capacity[i] > 0)
            flow_add(&flow, forest->from[i], forest->to[i], forest->capacity[i]);
    for (int b = 0; b < forest->batch_count; b++) {
        const struct batch *batch = &forest->batches[b];
        if (b == which || batch->size == n)
            continue;
        others += batch->times;
        flow_add(&flow, forest->from[link], n + b, batch->times);
        for (int i = 0; i < batch->size; i++)
            flow_add(&flow, n + b, batch->order[i], FLOW_WITHOUT_LIMIT / 4);
    }
    int64_t may =
        flow.no_memory ? -1 : flow_max(&flow, forest->from[link], forest->to[link]) - others;
    flow_free(&flow);
    int64_t times = forest->batches[which].times;
    may = may > times ? times : may;
    return may > forest->capacity[link] ? forest->capacity[link] : may;
}

/* Links out of the batch from its vertices nearest to the root first, which keeps trees shallow.
 * False without memory, or when no link may be taken, which the bound excludes. */
static bool grow_by_one(struct forest *forest, int which) {
    for (int at = 0; at < forest->batches[which].size; at++)
        for (int link = 0; link < forest->link_count; link++) {
            struct batch *batch = &forest->batches[which];
            int from = forest->from[link], to = forest->to[link];
            if (from != batch->order[at] || batch->in[to] || forest->capacity[link] == 0)
                continue;
            int64_t times = may_grow(forest, which, link);
            if (times == 0)
                continue;
            if (times < 0 || (times < batch->times &&
                              !add_batch(forest, batch->root, batch->times - times, which)))
                return false;
            batch = &forest->batches[which];
            batch->times = times;
            batch->in[to] = true;
            batch->parent[to] = from;
            batch->order[batch->size++] = to;
            forest->capacity[link] -= times;
            return true;
        }
    return false;
}

static bool find_packed(const struct topo *topo, int64_t p, int64_t q, struct topo_trees *trees) {
    struct forest forest;
    bool fine = forest_init(&forest, topo, p, q);
    for (int b = 0; b < forest.batch_count && fine; b++)
        while (forest.batches[b].size < forest.n && fine)
            fine = grow_by_one(&forest, b);
    for (int b = 0; b < forest.batch_count && fine; b++) {
        const struct batch *batch = &forest.batches[b];
        struct topo_tree *tree = add_tree(trees, batch->root, (double)batch->times / (double)q);
        fine = tree != NULL;
        for (int i = 1; i < batch->size && fine; i++)
            add_edge(tree, batch->parent[batch->order[i]], batch->order[i]);
    }
    forest_free(&forest);
    return fine;
}

/* Through a switch every GPU is one step from every other: stars, of depth 1. */
static bool find_stars(const struct topo *topo, struct topo_trees *trees) {
    int n = topo->gpu_count, width = topo->switch_links[0];
    for (int i = 0; i < n; i++)
        width = topo->switch_links[i] < width ? topo->switch_links[i] : width;
    trees->bound = width;
    for (int root = 0; root < n; root++) {
        struct topo_tree *tree = add_tree(trees, root, (double)width / (n - 1));
        if (tree == NULL)
            return false;
        for (int i = 0; i < n; i++)
            if (i != root)
                add_edge(tree, root, i);
    }
    return true;
}

static bool may_unroll(const struct topo_rings *rings) {
    return (double)rings->count * rings->gpu_count * rings->gpu_count <= MAX_EDGES;
}

/* Each ring as a chain from every GPU, or from its first alone. */
static bool unroll(const struct topo_rings *rings, bool all_roots, struct topo_trees *trees) {
    int n = rings->gpu_count;
    for (int r = 0; r < rings->count; r++)
        for (int start = 0; start < (all_roots ? n : 1); start++) {
            const int *gpus = rings->rings[r].gpus;
            struct topo_tree *tree =
                add_tree(trees, gpus[start], rings->rings[r].share / (all_roots ? n - 1 : 1));
            if (tree == NULL)
                return false;
            for (int i = 0; i + 1 < n; i++)
                add_edge(tree, gpus[(start + i) % n], gpus[(start + i + 1) % n]);
        }
    return true;
}

/* The score from the loads of the trees: least rate of a root over highest load of a link. */
static bool score_direct(const struct topo *topo, struct topo_trees *trees) {
    int n = topo->gpu_count;
    double *load = calloc((size_t)n * (size_t)n + (size_t)n + 1, sizeof(double)), worst = 0;
    if (load == NULL)
        return false;
    double *rate = &load[n * n], least = INFINITY;
    for (int t = 0; t < trees->count; t++) {
        const struct topo_tree *tree = &trees->trees[t];
        rate[tree->root] += tree->share;
        for (int i = 0; i < tree->edge_count; i++)
            load[tree->parents[i] * n + tree->children[i]] += tree->share;
    }
    for (int i = 0; i < n; i++) {
        least = fmin(least, rate[i]);
        for (int j = 0; j < n; j++)
            if (load[i * n + j] > 0)
                worst = topo_links(topo, i, j) > 0
                            ? fmax(worst, load[i * n + j] / topo_links(topo, i, j))
                            : INFINITY;
    }
    free(load);
    trees->score = worst > 0 ? least * (n - 1) / fmax(worst, 1) : 0;
    return true;
}

static bool find_direct(const struct topo *topo, const struct topo_rings *rings,
                        struct topo_trees *trees) {
    int64_t p, q;
    if (!find_rate(topo, &p, &q))
        return false;
    trees->bound = (double)p * (topo->gpu_count - 1) / (double)q;
    bool exact = topo->gpu_count <= MAX_EXACT;
    if (!exact && !may_unroll(rings)) {
        trees->score = rings->score;
        return unroll(rings, false, trees);
    }
    return (exact ? find_packed(topo, p, q, trees) : unroll(rings, true, trees)) &&
           score_direct(topo, trees);
}

rota_status topo_find_trees(const struct topo *topo, const struct topo_rings *rings,
                            struct topo_trees *trees) {
    struct topo_rings own = {.kind = NULL};
    bool fine = true;
    *trees = (struct topo_trees){
        .kind = "none", .bound_kind = "cut", .gpu_count = topo->gpu_count, .optimal = true};
    if (topo->gpu_count < 2)
        return ROTA_OK;
    if (rings == NULL) {
        rota_status status = topo_find_rings(topo, &own);
        if (status != ROTA_OK)
            return status;
        rings = &own;
    }
    trees->kind = rings->kind;
    if (strcmp(rings->kind, "nvswitch") == 0) {
        fine = find_stars(topo, trees);
        trees->score = trees->bound;
    } else if (strcmp(rings->kind, "direct") == 0) {
        fine = find_direct(topo, rings, trees);
    } else {
        bool hosts = strcmp(rings->kind, "hosts") == 0;
        fine = unroll(rings, hosts && may_unroll(rings), trees);
        trees->score = rings->score;
        trees->bound = hosts ? topo_host_cut_bound(topo) : rings->bound;
        trees->bound_kind = hosts ? "cut" : "hops";
        if (hosts && topo->link_gbps <= 0) /* rings count in units of what they got */
            trees->score = rings->score_gbps;
    }
    trees->optimal = trees->score > trees->bound - 1e-4;
    topo_free_rings(&own);
    if (fine)
        return ROTA_OK;
    topo_free_trees(trees);
    return error_raise(ROTA_ERR_MEMORY, "no memory for the search of trees");
}
