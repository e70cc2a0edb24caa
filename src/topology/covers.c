/* Packing Hamiltonian cycles by way of cycle covers.
 *
 * A cover gives each vertex one arc out and one arc in: a permutation. Where p arcs can leave and
 * enter every vertex, which a flow tells, these arcs fall into p covers (Koenig, 1916), and flows
 * find them. Only covers of a single cycle are of use. So cycles are joined: the vertices from
 * which covers a and b lead to the same set form alternating cycles (v, what b leaves to reach
 * where a leads from v, ...), and along each of them a and b may exchange their arcs; in the same
 * way a cover exchanges arcs with those that no cover uses. Exchanges that do not raise the number
 * of cycles are kept, and now and then one that does, until all covers are single cycles or the
 * work is done. Others are dropped; where that leaves too little, linear programming shares the
 * links among the cycles of all searches.
 *
 * Exchanges between covers keep the parity of the number of all cycles: an alternating cycle of m
 * vertices changes the sign of both permutations or of none. So where no arc is left over, covers
 * of the wrong parity are drawn again at once.
 *
 * Bounds that are no whole numbers are reached by parts: the same in k times the capacities. */
#include "topology/covers.h"
#include "topology/flow.h"
#include "topology/hamilton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-9
/* Vertices looked at in one search: a tenth of a second or two. */
#define MAX_WORK 3e7
#define MAX_TRIES 4
/* At both ends of a search; a cycle more is kept with a chance of exp(-1 / heat). */
#define HOT 0.3
#define COLD 0.1
/* Near enough to the bound to stop at. */
#define ENOUGH 0.995
#define MAX_COVERS 1024
/* Most arcs for linear programming over the cycles of all searches, whose tables have that squared.
 */
#define MAX_ROWS 1500
/* Flows through more arcs take too much memory or, once per cover or vertex, time: one ring is
 * enough then, fewer covers, the bound by degrees alone. */
#define MAX_ARCS (1 << 20)
#define MAX_DRAW_WORK (1 << 24)
#define MAX_CUT_WORK (1 << 23)
/* Longest exchange with unused arcs. */
#define MAX_DETOUR 8

struct covers {
    int n, count, arcs;
    int *order;         /* arcs with capacity, n * from + to, shuffled; all are one allocation */
    int *next, *prev;   /* per cover and vertex */
    int *cycles;        /* per cover: how many */
    int *label;         /* per cover and vertex: which cycle */
    int *left, *used;   /* per arc: in no cover; in covers still to be taken apart */
    int *trail, *fresh; /* labels of two covers that were changed */
    uint64_t random;
    double heat; /* of the annealing */
};

static bool covers_init(struct covers *covers, int n, const int *capacity, int most) {
    size_t arcs = (size_t)n * (size_t)n, width = (size_t)most * (size_t)n;
    *covers = (struct covers){.n = n, .random = 1};
    covers->order = malloc((3 * arcs + 3 * width + (size_t)most + 3 * (size_t)n) * sizeof(int));
    if (covers->order == NULL)
        return false;
    covers->left = &covers->order[arcs];
    covers->used = &covers->left[arcs];
    covers->next = &covers->used[arcs];
    covers->prev = &covers->next[width];
    covers->label = &covers->prev[width];
    covers->cycles = &covers->label[width];
    covers->trail = &covers->cycles[most];
    covers->fresh = &covers->trail[n];
    for (int i = 0; i < n * n; i++)
        if (capacity[i] > 0 && i / n != i % n)
            covers->order[covers->arcs++] = i;
    return true;
}

static int draw(struct covers *covers, int below) {
    return (int)(hamilton_random(&covers->random) % (uint64_t)below);
}

/* Which arcs `supply` covers take out of `scale` times the capacities; whether there are so many.
 * Vertices i and n + i are the ends of arcs, 2n and 2n + 1 source and sink. */
static bool assign(struct flow *flow, const struct covers *covers, const int *capacity,
                   int64_t scale, int64_t supply) {
    int n = covers->n;
    if (!flow_init(flow, 2 * n + 2))
        return false;
    for (int i = 0; i < n; i++) {
        flow_add(flow, 2 * n, i, supply);
        flow_add(flow, n + i, 2 * n + 1, supply);
    }
    for (int i = 0; i < covers->arcs; i++) {
        int arc = covers->order[i];
        if (capacity[arc] > 0)
            flow_add(flow, arc / n, n + arc % n, capacity[arc] * scale);
    }
    return flow_max(flow, 2 * n, 2 * n + 1) == n * supply && !flow->no_memory;
}

/* The most that covers can score, as *p / *q, if it is less: an arc's ends are in sets S and T of
 * vertices, each cover has |S| + |T| - n arcs or more from S to T. A least cut shows such sets
 * when *p / *q is too much, and what they allow is tried next (Dinkelbach, 1967). */
static bool lower_to_covers(const struct covers *covers, const int *capacity, int64_t *p,
                            int64_t *q) {
    int n = covers->n;
    while (*p > 0) {
        struct flow flow;
        bool reached = assign(&flow, covers, capacity, *q, *p), failed = flow.no_memory;
        if (!reached && flow.first != NULL && !failed) {
            *p = 0;
            *q = -n;
            for (int i = 0; i < n; i++)
                *q += flow_reached(&flow, i) + !flow_reached(&flow, n + i);
            for (int i = 0; i < covers->arcs; i++)
                if (flow_reached(&flow, covers->order[i] / n) &&
                    !flow_reached(&flow, n + covers->order[i] % n))
                    *p += capacity[covers->order[i]];
        }
        failed = failed || flow.first == NULL;
        flow_free(&flow);
        if (failed || reached)
            return !failed;
    }
    return true;
}

/* The least number of links into or out of one of the first `ends` vertices. */
static int64_t least_degree(int n, int ends, const int *capacity) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < ends; i++) {
        int64_t out = 0, in = 0;
        for (int j = 0; j < n; j++) {
            out += i != j ? capacity[i * n + j] : 0;
            in += i != j ? capacity[j * n + i] : 0;
        }
        least = out < least ? out : least;
        least = in < least ? in : least;
    }
    return least;
}

double covers_cut(int n, int ends, const int *capacity) {
    struct flow flow;
    int64_t least = least_degree(n, ends, capacity);
    if (!flow_init(&flow, n))
        return -1;
    for (int i = 0; i < n * n && flow.arc_count / 2 <= MAX_CUT_WORK / ends; i++)
        if (capacity[i] > 0 && i / n != i % n)
            flow_add(&flow, i / n, i % n, capacity[i]);
    bool failed = flow.no_memory;
    for (int i = 1; i < ends && !failed && flow.arc_count / 2 <= MAX_CUT_WORK / ends; i++)
        for (int back = 0; back < 2; back++) {
            flow_reset(&flow);
            int64_t cut = flow_max(&flow, back ? i : 0, back ? 0 : i);
            least = cut < least ? cut : least;
        }
    flow_free(&flow);
    return failed ? -1 : (double)least;
}

static bool find_bound(const struct covers *covers, const int *capacity, int64_t *p, int64_t *q) {
    double cut = covers_cut(covers->n, covers->n, capacity);
    *q = 1;
    *p = (int64_t)cut;
    return cut >= 0 && (covers->arcs > MAX_ARCS || lower_to_covers(covers, capacity, p, q));
}

static int count_cycles(const struct covers *covers, int cover, int *label) {
    const int *next = &covers->next[cover * covers->n];
    int count = 0;
    memset(label, 0xff, (size_t)covers->n * sizeof(int));
    for (int v = 0; v < covers->n; v++) {
        if (label[v] >= 0)
            continue;
        for (int at = v; label[at] < 0; at = next[at])
            label[at] = count;
        count++;
    }
    return count;
}

static void shuffle(struct covers *covers) {
    for (int i = covers->arcs - 1; i > 0; i--) {
        int other = draw(covers, i + 1), arc = covers->order[i];
        covers->order[i] = covers->order[other];
        covers->order[other] = arc;
    }
}

/* Draws `count` covers; *fits says whether the capacities have so many. False without memory. */
static bool draw_covers(struct covers *covers, const int *capacity, int scale, int count,
                        bool *fits) {
    int n = covers->n, *used = covers->used;
    struct flow flow;
    shuffle(covers);
    *fits = assign(&flow, covers, capacity, scale, count);
    bool fine = flow.first != NULL && !flow.no_memory;
    memset(used, 0, (size_t)n * (size_t)n * sizeof(int));
    memset(covers->left, 0, (size_t)n * (size_t)n * sizeof(int));
    for (int i = 0; i < covers->arcs; i++)
        covers->left[covers->order[i]] = capacity[covers->order[i]] * scale;
    for (int cover = -1; cover < count && fine && *fits; cover++) {
        for (int i = 0; i < flow.arc_count; i += 2) {
            int from = flow.arcs[i + 1].to, to = flow.arcs[i].to - n;
            int times = (int)(flow.arcs[i].capacity - flow.arcs[i].left);
            if (from >= n || to < 0 || to >= n || times == 0)
                continue;
            if (cover < 0) {
                used[from * n + to] = times;
                covers->left[from * n + to] -= times;
            } else {
                used[from * n + to]--;
                covers->next[cover * n + from] = to;
                covers->prev[cover * n + to] = from;
            }
        }
        flow_free(&flow);
        if (cover >= 0)
            covers->cycles[cover] = count_cycles(covers, cover, &covers->label[cover * n]);
        if (cover + 1 < count)
            fine = assign(&flow, covers, used, 1, 1);
    }
    flow_free(&flow);
    covers->count = fine && *fits ? count : 0;
    return fine;
}

/* Exchanges the arcs of a and b along the alternating cycle through v. Once more undoes it. */
static void exchange(struct covers *covers, int a, int b, int v) {
    int *next_a = &covers->next[a * covers->n], *prev_a = &covers->prev[a * covers->n];
    int *next_b = &covers->next[b * covers->n], *prev_b = &covers->prev[b * covers->n];
    int length = 0, at = v;
    do {
        covers->trail[length++] = at;
        at = prev_b[next_a[at]];
    } while (at != v);
    for (int i = 0; i < length; i++) {
        int from = covers->trail[i], to = next_a[from];
        next_a[from] = next_b[from];
        next_b[from] = to;
        prev_a[next_a[from]] = from;
        prev_b[to] = from;
    }
}

/* Whether to keep what has so many cycles more: annealing (Kirkpatrick et al., 1983). */
static bool accept(struct covers *covers, int more) {
    return more <= 0 ||
           (double)(hamilton_random(&covers->random) >> 11) * 0x1p-53 < exp(-more / covers->heat);
}

static void keep_labels(struct covers *covers, int cover, int cycles, const int *label) {
    covers->cycles[cover] = cycles;
    memcpy(&covers->label[cover * covers->n], label, (size_t)covers->n * sizeof(int));
}

/* A vertex by lot; one from which b leads into another cycle of a, if a few lots give one. */
static int draw_seam(struct covers *covers, int a, int b) {
    const int *label = &covers->label[a * covers->n], *next = &covers->next[b * covers->n];
    int v = draw(covers, covers->n);
    for (int lots = 0; lots < 32 && label[v] == label[next[v]]; lots++)
        v = draw(covers, covers->n);
    return v;
}

static void try_exchange(struct covers *covers, int a) {
    int n = covers->n, b = draw(covers, covers->count);
    if (a == b)
        return;
    int v = draw_seam(covers, a, b);
    if (covers->next[a * n + v] == covers->next[b * n + v])
        return;
    exchange(covers, a, b, v);
    int cycles_a = count_cycles(covers, a, covers->fresh);
    int cycles_b = count_cycles(covers, b, &covers->fresh[n]);
    if (accept(covers, cycles_a + cycles_b - covers->cycles[a] - covers->cycles[b])) {
        keep_labels(covers, a, cycles_a, covers->fresh);
        keep_labels(covers, b, cycles_b, &covers->fresh[n]);
    } else {
        exchange(covers, a, b, v);
    }
}

/* An unused arc out of `from`, first found from a place by lot; its end, -1 none. */
static int unused_arc(struct covers *covers, int from) {
    const int *row = &covers->left[from * covers->n];
    int start = draw(covers, covers->n);
    for (int i = 0; i < covers->n; i++) {
        int to = start + i < covers->n ? start + i : start + i - covers->n;
        if (row[to] > 0)
            return to;
    }
    return -1;
}

/* Gives vertices other arcs in the cover, in exchange for those that they have, which `to` holds
 * then. */
static void redirect(struct covers *covers, int cover, int length, const int *from, int *to) {
    int *next = &covers->next[cover * covers->n], *prev = &covers->prev[cover * covers->n];
    for (int i = 0; i < length; i++) {
        int before = next[from[i]];
        covers->left[from[i] * covers->n + before]++;
        covers->left[from[i] * covers->n + to[i]]--;
        next[from[i]] = to[i];
        prev[to[i]] = from[i];
        to[i] = before;
    }
}

/* An exchange with unused arcs: a vertex takes one, who led there before takes another, until one
 * of them leads to where the first had led. */
static void try_detour(struct covers *covers, int cover) {
    int n = covers->n, from[MAX_DETOUR], to[MAX_DETOUR], length = 0, at = draw(covers, n);
    const int *prev = &covers->prev[cover * n];
    int home = covers->next[cover * n + at];
    bool closed = false;
    while (!closed) {
        closed = length > 0 && covers->left[at * n + home] > 0;
        int end = closed ? home : unused_arc(covers, at);
        for (int i = 0; i < length; i++)
            if (from[i] == at)
                return;
        if (length == MAX_DETOUR || end < 0 || (end == home && !closed))
            return;
        from[length] = at;
        to[length++] = end;
        at = prev[end];
    }
    redirect(covers, cover, length, from, to);
    int cycles = count_cycles(covers, cover, covers->fresh);
    if (accept(covers, cycles - covers->cycles[cover]))
        keep_labels(covers, cover, cycles, covers->fresh);
    else
        redirect(covers, cover, length, from, to);
}

/* How many covers are single cycles in the end. */
static int join_cycles(struct covers *covers) {
    int single = 0, slack = 0;
    for (int i = 0; i < covers->arcs; i++)
        slack += covers->left[covers->order[i]];
    for (double work = 0; work < MAX_WORK; work += 3 * covers->n + 64) {
        covers->heat = HOT + (COLD - HOT) * work / MAX_WORK;
        int cover = draw(covers, covers->count), i = 0;
        while (i < covers->count && covers->cycles[cover] == 1) {
            cover = cover + 1 < covers->count ? cover + 1 : 0;
            i++;
        }
        if (i == covers->count)
            break;
        if (slack > 0 && (covers->count == 1 || draw(covers, 2) == 0))
            try_detour(covers, cover);
        else if (covers->count > 1)
            try_exchange(covers, cover);
        else
            break;
    }
    for (int cover = 0; cover < covers->count; cover++)
        single += covers->cycles[cover] == 1;
    return single;
}

/* Adds the covers that are single cycles to the pool. */
static bool keep(const struct covers *covers, double share, struct packed *pool) {
    size_t n = (size_t)covers->n, most = (size_t)(pool->count + covers->count);
    int *cycles = realloc(pool->cycles, most * n * sizeof(int));
    double *shares = realloc(pool->shares, most * sizeof(double));
    pool->cycles = cycles != NULL ? cycles : pool->cycles;
    pool->shares = shares != NULL ? shares : pool->shares;
    if (cycles == NULL || shares == NULL)
        return false;
    for (int cover = 0; cover < covers->count; cover++) {
        if (covers->cycles[cover] != 1)
            continue;
        int *cycle = &cycles[(size_t)pool->count * n];
        for (int i = 0, at = 0; i < covers->n; i++, at = covers->next[cover * covers->n + at])
            cycle[i] = at;
        shares[pool->count++] = share;
    }
    return true;
}

/* Cycles of many searches, of which some fit together: `best` is the range that one search found.
 */
struct found {
    struct packed pool;
    int first, count;
    double score;
};

/* Whole cycles in `scale` times the capacities, `wanted` of them if all goes well. */
static bool search(struct covers *covers, const int *capacity, int scale, int wanted,
                   struct found *found) {
    int slack = 0;
    for (int i = 0; i < covers->arcs; i++)
        slack += capacity[covers->order[i]];
    bool tight = slack * scale == wanted * covers->n;
    for (int tries = 0, draws = 0; tries < MAX_TRIES && draws < 16 * MAX_TRIES; draws++) {
        bool fits;
        int odd = wanted;
        if (!draw_covers(covers, capacity, scale, wanted, &fits))
            return false;
        if (!fits)
            return true;
        for (int cover = 0; cover < wanted; cover++)
            odd += covers->cycles[cover];
        if (tight && odd % 2 != 0)
            continue;
        int single = join_cycles(covers), first = found->pool.count;
        if (!keep(covers, 1.0 / scale, &found->pool))
            return false;
        if ((double)single / scale > found->score + EPSILON) {
            found->score = (double)single / scale;
            found->first = first;
            found->count = single;
        }
        if (single == wanted)
            return true;
        tries++;
    }
    return true;
}

static int common_divisor(int n, const int *capacity) {
    int common = 0;
    for (int i = 0; i < n * n; i++)
        for (int a = i / n != i % n ? capacity[i] : 0; a != 0;) { /* Euclid */
            int rest = common % a;
            common = a;
            a = rest;
        }
    return common > 0 ? common : 1;
}

/* What all cycles that were found carry together, if that is more. */
static bool share(const struct covers *covers, const int *capacity, const struct found *found,
                  struct packed *result) {
    struct packing problem;
    bool fine = packing_describe(&problem, covers->n, capacity, false) &&
                packing_solve(&problem, &found->pool, result);
    packing_forget(&problem);
    return fine;
}

/* Of the best search, or of all of them. */
static bool choose(const struct covers *covers, const int *capacity, double bound,
                   struct found *found, struct packed *result) {
    size_t n = (size_t)covers->n;
    *result = (struct packed){.n = covers->n};
    if (found->score < ENOUGH * bound && covers->arcs <= MAX_ROWS && found->pool.count > 0) {
        if (!share(covers, capacity, found, result))
            return false;
        if (result->score > found->score + EPSILON)
            return true;
        packing_free(result);
    }
    *result = found->pool;
    found->pool = (struct packed){.n = 0};
    if (found->count > 0) {
        memmove(result->cycles, &result->cycles[(size_t)found->first * n],
                (size_t)found->count * n * sizeof(int));
        memmove(result->shares, &result->shares[found->first],
                (size_t)found->count * sizeof(double));
    }
    result->n = covers->n;
    result->count = found->count;
    result->score = found->score;
    return true;
}

bool covers_pack(int n, const int *capacity, struct packed *result) {
    static const int scales[] = {1, 2, 3, 4, 6, 8, 12};
    int unit = common_divisor(n, capacity);
    size_t arcs = (size_t)n * (size_t)n;
    int *reduced = malloc(arcs * sizeof(int));
    struct covers covers;
    struct found found = {.pool = {.n = n}};
    int64_t p = 0, q = 1;
    for (size_t i = 0; i < arcs && reduced != NULL; i++)
        reduced[i] = capacity[i] / unit;
    if (reduced == NULL || !covers_init(&covers, n, reduced, MAX_COVERS)) {
        free(reduced);
        return false;
    }
    int most = covers.arcs > MAX_ARCS ? 0 : MAX_DRAW_WORK / (covers.arcs + 1);
    most = most < MAX_COVERS ? most : MAX_COVERS;
    bool fine = find_bound(&covers, reduced, &p, &q);
    double bound = (double)p / (double)q;
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]) && fine; i++) {
        int64_t wanted = p * scales[i] / q;
        if (found.score >= ENOUGH * bound || (wanted > most && i > 0))
            break;
        wanted = wanted < most ? wanted : most;
        if ((double)wanted / scales[i] > found.score + EPSILON)
            fine = search(&covers, reduced, scales[i], (int)wanted, &found);
    }
    fine = fine && choose(&covers, reduced, bound, &found, result);
    for (int c = 0; c < result->count && fine; c++)
        result->shares[c] *= unit;
    result->score *= unit;
    result->bound = bound * unit;
    packing_free(&found.pool);
    free(covers.order);
    free(reduced);
    return fine;
}
