/* The table of algorithms: every algorithm, kind, number of ranks, root and in-place form is proven
 * and compared with what the algorithm says about itself. */
#include "algorithms/algorithm.h"
#include "schedule/verify.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 17 };

/* What build() tells of the machine. */
static const struct algorithm_topology *grouping;

static struct sched **build(const struct algorithm *a, rota_kind kind, int n, int root,
                            int in_place) {
    struct sched **ranks = calloc((size_t)n, sizeof(struct sched *));
    cr_assert(ranks);
    for (int r = 0; r < n; r++) {
        struct algorithm_request q = {
            kind, n, r, root, in_place == 1 || (in_place == 2 && r % 2), 1, grouping};
        cr_assert_eq(algorithm_build(a, &q, &ranks[r]), ROTA_OK, "%s", a->name);
    }
    return ranks;
}

static void release(struct sched **ranks, int n) {
    for (int r = 0; r < n; r++)
        sched_free(ranks[r]);
    free(ranks);
}

typedef void check_fn(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                      struct sched **ranks);

static int for_all(check_fn *check) {
    int cases = 0;
    const struct algorithm *a;
    for (int i = 0; (a = algorithm_at(i)); i++)
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
            for (int n = 1; n <= LARGEST; n++) {
                if (!algorithm_can(a, (rota_kind)kind, n))
                    continue;
                bool rooted = sched_kind_rooted((rota_kind)kind);
                for (int root = rooted ? 0 : -1; root < (rooted ? n : 0); root++)
                    for (int in_place = 0; in_place < 3; in_place++) {
                        struct sched **ranks = build(a, (rota_kind)kind, n, root, in_place);
                        check(a, (rota_kind)kind, n, root, in_place, ranks);
                        release(ranks, n);
                        cases++;
                    }
            }
    return cases;
}

/* Which results are the canonical tree, as the documentation promises. */
static bool promises_canonical(const struct algorithm *a) {
    static const char *const others[] = {"ring", "pairwise", "double_binary_tree", "pat"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(a->name, others[i]) == 0)
            return false;
    return true;
}

static void check_proven(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                         struct sched **ranks) {
    struct sched_verdict v;
    cr_assert_eq(sched_verify(ranks, n, NULL, &v), ROTA_OK);
    cr_assert_eq(v.fault, SCHED_FAULT_NONE, "%s %s, %d ranks, root %d, in place %d: %s: %s",
                 a->name, sched_kind_name(kind), n, root, in_place, sched_fault_name(v.fault),
                 v.text);
    cr_assert(v.same_on_all_ranks);
    cr_assert_eq(v.roundings,
                 sched_kind_reduces(kind) && n + (kind != ROTA_KIND_EXCLUSIVE_SCAN) > 1);
    if (promises_canonical(a) && !grouping)
        cr_assert(v.canonical_tree && v.ascending, "%s %s, %d ranks, root %d", a->name,
                  sched_kind_name(kind), n, root);
    if (strcmp(a->name, "double_binary_tree") == 0 && root <= 0)
        cr_assert(v.ascending, "%s, %d ranks", sched_kind_name(kind), n);
}

/* Ranks round partials at the same places, whoever is in place; and no more often than they add. */
static void check_rounded(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                          struct sched **ranks) {
    const struct sched_verify_options options = {.rounded_partials = true};
    struct sched_verdict v;
    cr_assert_eq(sched_verify(ranks, n, &options, &v), ROTA_OK);
    cr_assert_eq(v.fault, SCHED_FAULT_NONE, "%s %s, %d ranks, root %d, in place %d: %s: %s",
                 a->name, sched_kind_name(kind), n, root, in_place, sched_fault_name(v.fault),
                 v.text);
    cr_assert_leq(v.roundings, v.max_depth + 1);
    if (strncmp(a->name, "direct", 6) == 0)
        cr_assert_leq(v.roundings, 1);
    if (strcmp(a->name, "ring") == 0 && kind == ROTA_KIND_ALL_REDUCE)
        cr_assert_eq(v.roundings, n > 1 ? (unsigned)n - 1 : 1);
}

Test(algorithms, ranks_round_alike) {
    for_all(check_rounded);
}

Test(algorithms, all_are_proven) {
    cr_expect_geq(for_all(check_proven), 3000);
}

static uint32_t sent(const struct sched *s, uint32_t *widest) {
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        if (s->steps[i].type != SCHED_SEND)
            continue;
        uint32_t message = sched_list_chunks(s, s->steps[i].src);
        chunks += message * s->steps[i].peers.count;
        *widest = message > *widest ? message : *widest;
    }
    return chunks;
}

static uint32_t received(const struct sched *s) {
    uint32_t chunks = 0;
    for (uint32_t i = 0; i < s->nsteps; i++)
        if (s->steps[i].type == SCHED_RECV || s->steps[i].type == SCHED_RECV_REDUCE)
            chunks += sched_list_chunks(s, s->steps[i].dst) * s->steps[i].peers.count;
    return chunks;
}

/* Slice sizes are computed from bounds on messages and scratch: they must hold. */
static void check_bounds(const struct algorithm *a, rota_kind kind, int n, struct sched **ranks) {
    uint32_t widest = 1, scratch = 0;
    for (int r = 0; r < n; r++) {
        sent(ranks[r], &widest);
        if (ranks[r]->scratch_chunks > scratch)
            scratch = ranks[r]->scratch_chunks;
    }
    cr_assert_eq(widest, a->widest ? a->widest(kind, n) : 1, "%s %s, %d ranks: widest %u", a->name,
                 sched_kind_name(kind), n, widest);
    cr_assert_leq(scratch, a->scratch ? a->scratch(kind, n) : 0, "%s %s, %d ranks: scratch %u",
                  a->name, sched_kind_name(kind), n, scratch);
}

/* Prices must be of what is built. */
static void check_prices(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                         struct sched **ranks) {
    uint32_t busiest = 0, widest = 1;
    for (int r = 0; r < n; r++) {
        uint32_t out = sent(ranks[r], &widest), in = received(ranks[r]);
        busiest = out > busiest ? out : busiest;
        busiest = in > busiest ? in : busiest;
    }
    uint32_t chunks = ranks[0]->blocks * ranks[0]->chunks_per_block;
    double volume = chunks ? (double)busiest / chunks : 0;
    double claimed = a->volume(kind, n), difference = claimed - volume;
    if (root > 0 && difference > 0)
        difference = 0; /* other roots may cost less */
    cr_assert(difference < 1e-9 && difference > -1e-9, "%s %s, %d ranks: volume %g, claimed %g",
              a->name, sched_kind_name(kind), n, volume, claimed);
    check_bounds(a, kind, n, ranks);
    (void)in_place;
}

/* Numbers of ranks beyond those that are tried in full: all up to 33 and some large ones. */
static void check_large(const char *name) {
    static const int large[] = {48, 64, 96, 100, 127, 255};
    const struct algorithm *a = algorithm_find(name);
    cr_assert(a);
    for (int i = LARGEST + 1; i < 40; i++) {
        int n = i <= 33 ? i : large[i - 34];
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
            if (!algorithm_can(a, (rota_kind)kind, n))
                continue;
            bool rooted = sched_kind_rooted((rota_kind)kind);
            int roots[] = {rooted ? 0 : -1, 1, n - 1};
            for (int k = 0; k < (rooted ? 3 : 1); k++) {
                int in_place = (i + k) % 3;
                struct sched **ranks = build(a, (rota_kind)kind, n, roots[k], in_place);
                check_proven(a, (rota_kind)kind, n, roots[k], in_place, ranks);
                check_prices(a, (rota_kind)kind, n, roots[k], in_place, ranks);
                release(ranks, n);
            }
        }
    }
}

Test(algorithms, claim_what_they_build) {
    for_all(check_prices);
}

Test(algorithms, double_binary_tree_large) {
    check_large("double_binary_tree");
}

Test(algorithms, knomial_large) {
    check_large("binomial");
    check_large("knomial");
}

Test(algorithms, halving_doubling_large) {
    check_large("halving_doubling");
}

Test(algorithms, bruck_large) {
    check_large("bruck");
}

Test(algorithms, pat_large) {
    check_large("pat");
}

Test(algorithms, hierarchical_large) {
    check_large("hierarchical");
}

Test(algorithms, rounds_of_known_cases) {
    const struct {
        const char *name;
        rota_kind kind;
        int n;
        double rounds;
    } rows[] = {
        {"ring", ROTA_KIND_ALL_REDUCE, 8, 14},
        {"ring", ROTA_KIND_ALL_GATHER, 8, 7},
        {"recursive_doubling", ROTA_KIND_ALL_REDUCE, 8, 3},
        {"recursive_doubling", ROTA_KIND_ALL_REDUCE, 9, 4},
        {"recursive_doubling", ROTA_KIND_BARRIER, 17, 5},
        {"binomial", ROTA_KIND_BROADCAST, 9, 4},
        {"binomial", ROTA_KIND_ALL_REDUCE, 8, 6},
        {"direct", ROTA_KIND_ALL_REDUCE, 8, 1},
        {"direct_two_shot", ROTA_KIND_ALL_REDUCE, 8, 2},
        {"pairwise", ROTA_KIND_ALL_TO_ALL, 8, 7},
        {"knomial", ROTA_KIND_BROADCAST, 16, 2},
        {"knomial", ROTA_KIND_REDUCE, 17, 3},
        {"knomial", ROTA_KIND_BARRIER, 4, 2},
        {"double_binary_tree", ROTA_KIND_BROADCAST, 2, 1},
        {"bruck", ROTA_KIND_ALL_GATHER, 9, 4},
        {"bruck", ROTA_KIND_ALL_TO_ALL, 8, 3},
        {"pat", ROTA_KIND_REDUCE_SCATTER, 17, 5},
        {"halving_doubling", ROTA_KIND_ALL_REDUCE, 8, 6},
        {"halving_doubling", ROTA_KIND_ALL_REDUCE, 9, 8},
        {"double_binary_tree", ROTA_KIND_REDUCE, 8, 7},
        {"double_binary_tree", ROTA_KIND_ALL_REDUCE, 8, 11},
        {"direct", ROTA_KIND_BARRIER, 1, 0},
        {"ring", ROTA_KIND_ALL_REDUCE, 1, 0},
        {"ring", ROTA_KIND_BROADCAST, 1, 0},
        {"recursive_doubling", ROTA_KIND_ALL_REDUCE, 1, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cr_expect_eq(algorithm_find(rows[i].name)->rounds(rows[i].kind, rows[i].n), rows[i].rounds,
                     "row %zu", i);
}

/* In place changes local steps only: sends and receives name the same peers and chunks in order. */
static void check_messages(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                           struct sched **ranks) {
    if (in_place == 0)
        return;
    struct sched **plain = build(a, kind, n, root, 0);
    for (int r = 0; r < n; r++) {
        const struct sched *x = plain[r], *y = ranks[r];
        uint32_t i = 0, j = 0;
        for (;;) {
            while (i < x->nsteps && !x->steps[i].peers.count)
                i++;
            while (j < y->nsteps && !y->steps[j].peers.count)
                j++;
            cr_assert_eq(i == x->nsteps, j == y->nsteps, "%s, rank %d", a->name, r);
            if (i == x->nsteps)
                break;
            const struct sched_step *p = &x->steps[i++], *q = &y->steps[j++];
            cr_assert_eq(p->type, q->type);
            cr_assert_eq(p->channel, q->channel);
            cr_assert_eq(p->peers.count, q->peers.count);
            cr_assert(!memcmp(x->peers + p->peers.begin, y->peers + q->peers.begin,
                              p->peers.count * sizeof *x->peers));
            bool sends = p->type == SCHED_SEND;
            cr_assert_eq(sched_list_chunks(x, sends ? p->src : p->dst),
                         sched_list_chunks(y, sends ? q->src : q->dst));
        }
    }
    release(plain, n);
}

Test(algorithms, messages_do_not_depend_on_in_place) {
    for_all(check_messages);
}

/* One grouping: every kind and root, in all forms; messages, bounds, and whether the results are
 * the canonical tree. */
static void check_grouping(const int *group_of, int n, int ngroups, bool canonical) {
    const struct algorithm *a = algorithm_find("hierarchical");
    const struct algorithm_topology topology = {ngroups, group_of, NULL};
    grouping = &topology;
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
        if (!algorithm_can(a, (rota_kind)kind, n))
            continue;
        bool rooted = sched_kind_rooted((rota_kind)kind);
        for (int root = rooted ? 0 : -1; root < (rooted ? n : 0); root++)
            for (int in_place = 0; in_place < 3; in_place++) {
                struct sched **ranks = build(a, (rota_kind)kind, n, root, in_place);
                check_proven(a, (rota_kind)kind, n, root, in_place, ranks);
                check_rounded(a, (rota_kind)kind, n, root, in_place, ranks);
                check_messages(a, (rota_kind)kind, n, root, in_place, ranks);
                check_bounds(a, (rota_kind)kind, n, ranks);
                struct sched_verdict v;
                cr_assert_eq(sched_verify(ranks, n, NULL, &v), ROTA_OK);
                cr_assert(!canonical || v.canonical_tree, "%s", sched_kind_name((rota_kind)kind));
                release(ranks, n);
            }
    }
    grouping = NULL;
}

Test(algorithms, hierarchical_groupings) {
    static const struct {
        int n, ngroups;
        bool canonical;
        int group_of[16];
    } rows[] = {
        {4, 2, true, {0, 0, 1, 1}},
        {4, 2, true, {1, 1, 0, 0}},
        {4, 2, false, {0, 1, 0, 1}},
        {4, 2, false, {0, 1, 1, 1}},
        {4, 2, false, {0, 0, 0, 1}},
        {5, 2, false, {0, 0, 0, 1, 1}},
        {5, 2, false, {1, 0, 1, 0, 1}},
        {5, 3, false, {2, 0, 1, 2, 0}},
        {3, 2, true, {0, 0, 1}},
        {3, 3, true, {2, 0, 1}},
        {6, 3, true, {0, 0, 1, 1, 2, 2}},
        {6, 2, false, {0, 0, 0, 1, 1, 1}},
        {7, 2, true, {0, 0, 0, 0, 1, 1, 1}},
        {7, 3, false, {0, 1, 1, 2, 2, 2, 2}},
        {8, 1, true, {0, 0, 0, 0, 0, 0, 0, 0}},
        {8, 8, true, {7, 6, 5, 4, 3, 2, 1, 0}},
        {12, 3, true, {0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2}},
        {16, 4, false, {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_grouping(rows[i].group_of, rows[i].n, rows[i].ngroups, rows[i].canonical);
}

/* Any grouping of any number of ranks. */
Test(algorithms, hierarchical_random_groupings) {
    uint32_t state = 12345;
    for (int n = 2; n <= 33; n += n < 20 ? 1 : 7) {
        int group_of[33], ngroups = 1 + n / 3;
        for (int r = 0; r < n; r++) {
            state = state * 1664525u + 1013904223u;
            group_of[r] = r < ngroups ? ngroups - 1 - r : (int)((state >> 16) % (uint32_t)ngroups);
        }
        check_grouping(group_of, n, ngroups, false);
    }
}

/* Traffic between hosts: each rank of equal hosts carries its share and not more. */
Test(algorithms, hierarchical_traffic_between_hosts) {
    static const int group_of[] = {0, 0, 0, 0, 1, 1, 1, 1};
    const struct algorithm_topology topology = {2, group_of, NULL};
    grouping = &topology;
    struct sched **ranks = build(algorithm_find("hierarchical"), ROTA_KIND_ALL_REDUCE, 8, -1, 0);
    for (int r = 0; r < 8; r++) {
        uint32_t outside = 0;
        for (uint32_t i = 0; i < ranks[r]->nsteps; i++) {
            const struct sched_step *step = &ranks[r]->steps[i];
            for (uint32_t k = 0; step->type == SCHED_SEND && k < step->peers.count; k++)
                if (group_of[ranks[r]->peers[step->peers.begin + k]] != group_of[r])
                    outside += sched_list_chunks(ranks[r], step->src);
        }
        cr_expect_eq(ranks[r]->chunks_per_block, 8);
        cr_expect_eq(outside, 2, "rank %d: half of its quarter, there and back", r);
    }
    release(ranks, 8);
    grouping = NULL;
}

Test(algorithms, hierarchical_refuses_groups_out_of_bounds) {
    const int group_of[] = {0, 5, 0};
    const struct algorithm_topology topology = {2, group_of, NULL};
    struct sched *s = NULL;
    struct algorithm_request q = {ROTA_KIND_BARRIER, 3, 0, -1, false, 1, &topology};
    cr_expect_eq(algorithm_build(algorithm_find("hierarchical"), &q, &s), ROTA_ERR_ARGUMENT);
    cr_expect_null(s);
}

Test(algorithms, table_and_names) {
    const struct algorithm *a;
    int count = 0;
    for (; (a = algorithm_at(count)); count++) {
        cr_expect_eq(algorithm_find(a->name), a);
        cr_expect(a->help && strlen(a->help) > 10 && !strchr(a->help, '\n'));
        cr_expect(a->kinds && a->rounds && a->volume);
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
            cr_expect_eq(algorithm_can(a, (rota_kind)kind, 1), a->kinds >> kind & 1);
        cr_expect_not(algorithm_can(a, ROTA_KIND_SEND, 2));
        cr_expect_not(algorithm_can(a, (rota_kind)99, 2));
        cr_expect_not(algorithm_can(a, ROTA_KIND_ALL_REDUCE, 0));
    }
    cr_expect_eq(count, 12);
    cr_expect_null(algorithm_at(-1));
    cr_expect_null(algorithm_find("rings"));
    cr_expect_null(algorithm_find(NULL));
}

/* Each kind has an algorithm on any number of ranks, so one that cannot is no dead end. */
Test(algorithms, every_kind_on_every_number) {
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
        for (int n = 1; n < 130; n++) {
            bool can = false;
            const struct algorithm *a;
            for (int i = 0; (a = algorithm_at(i)); i++)
                can = can || algorithm_can(a, (rota_kind)kind, n);
            cr_expect(can == sched_kind_collective((rota_kind)kind), "kind %d on %d ranks", kind,
                      n);
        }
}

Test(algorithms, refuse_what_they_cannot) {
    struct sched *s = NULL;
    struct algorithm_request q = {ROTA_KIND_ALL_GATHER, 6, 0, -1, false, 1, NULL};
    cr_expect_eq(algorithm_build(algorithm_find("recursive_doubling"), &q, &s),
                 ROTA_ERR_UNSUPPORTED);
    q.kind = ROTA_KIND_ALL_TO_ALL;
    cr_expect_eq(algorithm_build(algorithm_find("ring"), &q, &s), ROTA_ERR_UNSUPPORTED);
    q.kind = ROTA_KIND_REDUCE;
    cr_expect_eq(algorithm_build(algorithm_find("ring"), &q, &s), ROTA_ERR_ARGUMENT, "no root");
    q.root = 0;
    q.rank = 6;
    cr_expect_eq(algorithm_build(algorithm_find("ring"), &q, &s), ROTA_ERR_ARGUMENT, "no rank");
    q.rank = 0;
    q.lanes = 0;
    cr_expect_eq(algorithm_build(algorithm_find("ring"), &q, &s), ROTA_ERR_ARGUMENT, "no lane");
    cr_expect_null(s);
}

/* Time in proportion to the steps: a rank of a million builds its few steps at once. */
Test(algorithms, a_million_ranks, .timeout = 20) {
    const char *names[] = {"recursive_doubling", "binomial", "knomial", "double_binary_tree"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct sched *s = NULL;
        struct algorithm_request q = {ROTA_KIND_ALL_REDUCE, 1000000, 654321, -1, false, 1, NULL};
        cr_assert_eq(algorithm_build(algorithm_find(names[i]), &q, &s), ROTA_OK);
        cr_expect_leq(s->nsteps, 45);
        sched_free(s);
    }
}

/* Any order of ranks: proven, the same messages in all forms, and to neighbours in it alone. */
static void check_ring(const int *ring, int n) {
    const struct algorithm *a = algorithm_find("ring");
    const struct algorithm_topology topology = {.ngroups = 1, .ring = ring};
    grouping = &topology;
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
        bool rooted = sched_kind_rooted((rota_kind)kind), scans = sched_kind_scans((rota_kind)kind);
        if (!algorithm_can(a, (rota_kind)kind, n))
            continue;
        for (int root = rooted ? 0 : -1; root < (rooted ? n : 0); root++)
            for (int in_place = 0; in_place < 3; in_place++) {
                struct sched **ranks = build(a, (rota_kind)kind, n, root, in_place);
                check_proven(a, (rota_kind)kind, n, root, in_place, ranks);
                check_rounded(a, (rota_kind)kind, n, root, in_place, ranks);
                check_messages(a, (rota_kind)kind, n, root, in_place, ranks);
                for (int place = 0; place < n && !scans; place++) {
                    const struct sched *s = ranks[ring[place]];
                    for (uint32_t p = 0; p < s->npeers; p++)
                        cr_assert(s->peers[p] == ring[(place + 1) % n] ||
                                  s->peers[p] == ring[(place + n - 1) % n]);
                }
                release(ranks, n);
            }
    }
    grouping = NULL;
}

Test(algorithms, ring_follows_any_order) {
    uint32_t seed = 7;
    for (int n = 2; n <= 9; n++)
        for (int round = 0; round < 6; round++) {
            int ring[9];
            for (int i = 0; i < n; i++)
                ring[i] = i;
            for (int i = n - 1; i > 0; i--) {
                seed = seed * 1664525u + 1013904223u;
                int other = (int)((seed >> 8) % (uint32_t)(i + 1)), kept = ring[i];
                ring[i] = ring[other];
                ring[other] = kept;
            }
            check_ring(ring, n);
        }
}
