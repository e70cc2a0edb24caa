/* Hamiltonian cycles: exactly up to 17 vertices, by search above.
 *
 * Exact: Held and Karp (1962). State (S, v): the cheapest path from vertex 0 through all of S,
 * ending in v. Sets ascend as numbers, so each is complete before a larger one needs it; states
 * that cannot be reached are skipped, which makes sparse link graphs cheap. n 2^(n-1) states, 5 MB
 * for 16 vertices.
 *
 * Search: Posa's rotations (1976) for any cycle, moves of segments (Or, 1976) for short ones. */
#include "topology/hamilton.h"

#include <stdlib.h>
#include <string.h>

bool hamilton_init(struct hamilton *search, int n) {
    size_t states = ((size_t)1 << (n - 1)) * (size_t)(n - 1);
    *search = (struct hamilton){.n = n};
    search->cost = malloc(states * sizeof(*search->cost));
    search->from = malloc(states);
    if (search->cost != NULL && search->from != NULL)
        return true;
    hamilton_free(search);
    return false;
}

void hamilton_free(struct hamilton *search) {
    free(search->cost);
    free(search->from);
    *search = (struct hamilton){.n = 0};
}

/* Vertices 1 ... n-1 are bits 0 ... n-2 of a set. */
static void fill_states(struct hamilton *search, const double *weights) {
    int n = search->n, m = n - 1;
    size_t sets = (size_t)1 << m;
    for (size_t i = 0; i < sets * (size_t)m; i++)
        search->cost[i] = HAMILTON_NONE;
    for (int v = 0; v < m; v++) {
        search->cost[((size_t)1 << v) * (size_t)m + (size_t)v] = weights[v + 1];
        search->from[((size_t)1 << v) * (size_t)m + (size_t)v] = -1;
    }
    for (size_t set = 1; set < sets; set++)
        for (int last = 0; last < m; last++) {
            double cost = search->cost[set * (size_t)m + (size_t)last];
            if (cost >= HAMILTON_NONE)
                continue;
            const double *row = &weights[(last + 1) * n + 1];
            for (size_t rest = ~set & (sets - 1); rest != 0; rest &= rest - 1) {
                int next = __builtin_ctzl(rest);
                size_t at = (set | (size_t)1 << next) * (size_t)m + (size_t)next;
                if (row[next] < HAMILTON_NONE && cost + row[next] < search->cost[at]) {
                    search->cost[at] = cost + row[next];
                    search->from[at] = (int8_t)last;
                }
            }
        }
}

static void trace(const struct hamilton *search, int last, int *cycle) {
    int m = search->n - 1;
    size_t set = ((size_t)1 << m) - 1;
    cycle[0] = 0;
    for (int at = m; at > 0; at--) {
        cycle[at] = last + 1;
        int before = search->from[set * (size_t)m + (size_t)last];
        set &= ~((size_t)1 << last);
        last = before;
    }
}

int hamilton_best(struct hamilton *search, const double *weights, int most, int *cycles,
                  double *costs) {
    int n = search->n, m = n - 1, found = 0;
    bool taken[HAMILTON_EXACT] = {false};
    fill_states(search, weights);
    const double *full = &search->cost[(((size_t)1 << m) - 1) * (size_t)m];
    while (found < most) {
        int best = -1;
        double best_cost = HAMILTON_NONE;
        for (int last = 0; last < m; last++) {
            double home = weights[(last + 1) * n];
            if (taken[last] || full[last] >= HAMILTON_NONE || home >= HAMILTON_NONE)
                continue;
            if (full[last] + home < best_cost) {
                best_cost = full[last] + home;
                best = last;
            }
        }
        if (best < 0)
            break;
        taken[best] = true;
        trace(search, best, &cycles[found * n]);
        costs[found++] = best_cost;
    }
    return found;
}

static void nearest_neighbours(int n, const double *weights, int *cycle) {
    for (int i = 0; i < n; i++)
        cycle[i] = i;
    for (int i = 1; i < n; i++) {
        const double *row = &weights[(size_t)cycle[i - 1] * (size_t)n];
        int best = i;
        for (int j = i + 1; j < n; j++)
            if (row[cycle[j]] < row[cycle[best]])
                best = j;
        int vertex = cycle[best]; /* the others keep their order: ties go to the lowest */
        memmove(&cycle[i + 1], &cycle[i], (size_t)(best - i) * sizeof(int));
        cycle[i] = vertex;
    }
}

/* Moves cycle[from ... from + length - 1] behind the vertex at `to`, which lies outside. */
static void move_segment(int n, int *cycle, int from, int length, int to) {
    int segment[3];
    memcpy(segment, &cycle[from], (size_t)length * sizeof(int));
    memmove(&cycle[from], &cycle[from + length], (size_t)(n - from - length) * sizeof(int));
    int after = to >= from + length ? to - length + 1 : to + 1;
    memmove(&cycle[after + length], &cycle[after], (size_t)(n - length - after) * sizeof(int));
    memcpy(&cycle[after], segment, (size_t)length * sizeof(int));
}

/* One pass over all segments of up to three; whether a move helped. */
static bool improve(int n, const double *weights, int *cycle) {
    bool improved = false;
#define W(a, b) weights[(size_t)(a) * (size_t)n + (size_t)(b)]
    for (int length = 1; length <= 3 && length < n - 1; length++)
        for (int from = 0; from + length <= n; from++) {
            int before = cycle[(from + n - 1) % n], after = cycle[(from + length) % n];
            int first = cycle[from], last = cycle[from + length - 1];
            double freed = W(before, first) + W(last, after) - W(before, after), gain = 1e-9;
            int best = -1;
            for (int to = 0; to < n; to++) {
                if ((to >= from && to < from + length) || to == (from + n - 1) % n)
                    continue;
                int next = cycle[(to + 1) % n];
                double cost = W(cycle[to], first) + W(last, next) - W(cycle[to], next);
                if (freed - cost > gain) {
                    gain = freed - cost;
                    best = to;
                }
            }
            if (best >= 0) {
                move_segment(n, cycle, from, length, best);
                improved = true;
            }
        }
#undef W
    return improved;
}

void hamilton_short(int n, const double *weights, int *cycle) {
    nearest_neighbours(n, weights, cycle);
    /* Every pass shortens the cycle; the limit only bounds the time. */
    for (int pass = 0; pass < 50 && n <= 512 && improve(n, weights, cycle); pass++)
        ;
}

uint64_t hamilton_random(uint64_t *state) { /* splitmix64 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void reverse(int *path, int from, int to) {
    for (; from < to; from++, to--) {
        int vertex = path[from];
        path[from] = path[to];
        path[to] = vertex;
    }
}

/* A neighbour of `end` among places first ... last - 1 of the permutation, -1 none: one at random
 * of the lightest, or of all. */
static int pick(int n, const double *weights, const int *path, int end, int first, int last,
                bool lightest, uint64_t *state) {
    const double *row = &weights[(size_t)end * (size_t)n];
    int found = -1, seen = 0;
    for (int i = first; i < last; i++) {
        double weight = row[path[i]];
        if (weight >= HAMILTON_NONE || (lightest && found >= 0 && weight > row[path[found]]))
            continue;
        if (lightest && found >= 0 && weight < row[path[found]])
            seen = 0;
        if (hamilton_random(state) % (uint64_t)++seen == 0)
            found = i;
    }
    return found;
}

/* Vertices looked at in all attempts but the first: a second or two. */
#define MAX_LOOKS 2e9

/* Arcs both ways are taken as one edge; whether the cycle holds as directed is checked at the end.
 * path[0 ... length-1] is the path, the rest is still to be visited. */
bool hamilton_any(int n, const double *weights, int most, uint64_t seed, int *cycle) {
    double looks = 40.0 * n * n; /* of an attempt, at most */
    for (int attempt = 0; attempt < most && attempt * looks < MAX_LOOKS; attempt++) {
        int length = 1;
        for (int i = 0; i < n; i++)
            cycle[i] = i;
        int start = (int)(hamilton_random(&seed) % (uint64_t)n);
        cycle[0] = start;
        cycle[start] = 0;
        for (int turn = 0; turn < 40 * n; turn++) {
            int end = cycle[length - 1];
            int next =
                pick(n, weights, cycle, end, length, n, hamilton_random(&seed) % 4 > 0, &seed);
            if (next >= 0) {
                int vertex = cycle[next];
                cycle[next] = cycle[length];
                cycle[length++] = vertex;
            } else if (length == n &&
                       weights[(size_t)end * (size_t)n + (size_t)cycle[0]] < HAMILTON_NONE) {
                bool whole = true;
                for (int i = 0; i < n && whole; i++)
                    whole = weights[(size_t)cycle[i] * (size_t)n + (size_t)cycle[(i + 1) % n]] <
                            HAMILTON_NONE;
                if (whole)
                    return true;
                break;
            } else {
                int pivot =
                    length > 2 ? pick(n, weights, cycle, end, 0, length - 2, false, &seed) : -1;
                if (pivot < 0)
                    break;
                reverse(cycle, pivot + 1, length - 1);
            }
        }
    }
    return false;
}
