/* Bruck: log2(n) rounds on any number of ranks, several blocks in one message; for small data.
 * After Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
 * communications in multiport message-passing systems" (1997).
 *
 * all_gather: after round k a rank has the blocks of the 2^(k+1) ranks from itself on, and passes
 * them 2^(k+1) ranks down. They lie in the output where they belong, so nothing is turned round in
 * the end.
 *
 * all_to_all: a block that has i ranks to go travels 2^k ranks ahead in round k if bit k of i is
 * set. At each rank it has place i: before its first hop in the input, after the last one in the
 * output, between in scratch, in one of two areas, since a place is sent and received in the same
 * round. In place the input is copied to scratch first, because outputs arrive before all of it is
 * sent. */
#include "algorithms/algorithm.h"
#include "algorithms/ranges.h"

static uint32_t rounds_of(uint32_t n) {
    uint32_t rounds = 0;
    while (rounds < 31 && (1u << rounds) < n)
        rounds++;
    return rounds;
}

static void add_blocks(struct ranges *list, uint32_t first, uint32_t count, uint32_t n) {
    ranges_clear(list);
    for (uint32_t i = 0; i < count; i++)
        ranges_add(list, SCHED_OUTPUT, (first + i) % n, 0);
}

static void build_all_gather(const struct algorithm_request *q, struct sched_builder *b,
                             struct ranges *list) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output(r, 1), 0);
    for (uint32_t have = 1; have < n; have *= 2) {
        uint32_t blocks = have < n - have ? have : n - have;
        add_blocks(list, r, blocks, n);
        ranges_send(b, (int)((r + n - have) % n), list, 0);
        add_blocks(list, (r + have) % n, blocks, n);
        ranges_recv(b, (int)((r + have) % n), list, 0);
    }
}

static uint32_t hops_before(uint32_t i, uint32_t round) {
    return (uint32_t)__builtin_popcount(i & ((1u << round) - 1));
}

/* Scratch chunk of place i after so many hops; places descend, so that lists are long runs. */
static void add_place(struct ranges *list, uint32_t n, uint32_t i, uint32_t hops) {
    uint32_t place = n - 1 - i;
    ranges_add(list, SCHED_SCRATCH, hops % 2 * n + place, place);
}

static void build_all_to_all(const struct algorithm_request *q, struct sched_builder *b,
                             struct ranges *list) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    sched_alloc_scratch(b, 2 * n);
    if (!q->in_place)
        sched_copy(b, sched_input(r, 1), sched_output(r, 1), 0);
    for (uint32_t i = n - 1; q->in_place && i > 0; i--)
        sched_copy(b, sched_input((r + i) % n, 1), sched_scratch(n - 1 - i, 1, n - 1 - i), 0);
    for (uint32_t round = 0; round < rounds_of(n); round++) {
        uint32_t distance = 1u << round;
        ranges_clear(list);
        for (uint32_t i = n - 1; i > 0; i--) {
            if (!(i & distance))
                continue;
            uint32_t hops = hops_before(i, round);
            if (hops || q->in_place)
                add_place(list, n, i, hops);
            else
                ranges_add(list, SCHED_INPUT, (r + i) % n, 0);
        }
        ranges_send(b, (int)((r + distance) % n), list, 0);
        ranges_clear(list);
        for (uint32_t i = n - 1; i > 0; i--) {
            if (!(i & distance))
                continue;
            if (i >> round == 1)
                ranges_add(list, SCHED_OUTPUT, (r + n - i) % n, 0);
            else
                add_place(list, n, i, hops_before(i, round) + 1);
        }
        ranges_recv(b, (int)((r + n - distance) % n), list, 0);
    }
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    struct ranges list;
    rota_status status = ranges_create(&list, (uint32_t)request->nranks);
    if (status != ROTA_OK)
        return status;
    if (request->kind == ROTA_KIND_ALL_GATHER)
        build_all_gather(request, builder, &list);
    else
        build_all_to_all(request, builder, &list);
    ranges_destroy(&list);
    return ROTA_OK;
}

static double rounds(rota_kind kind, int nranks) {
    (void)kind;
    return rounds_of((uint32_t)nranks);
}

/* Places of 0 .. n - 1 that have bit `round` set. */
static uint32_t places(uint32_t n, uint32_t round) {
    uint32_t distance = 1u << round, rest = n % (2 * distance);
    return n / (2 * distance) * distance + (rest > distance ? rest - distance : 0);
}

static double volume(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks;
    double blocks = 0;
    if (kind == ROTA_KIND_ALL_GATHER)
        return (nranks - 1.0) / nranks;
    for (uint32_t round = 0; round < rounds_of(n); round++)
        blocks += places(n, round);
    return blocks / nranks;
}

static uint32_t widest(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks, most = 1;
    for (uint32_t round = 0; round < rounds_of(n); round++) {
        uint32_t have = 1u << round, blocks = have < n - have ? have : n - have;
        if (kind == ROTA_KIND_ALL_TO_ALL)
            blocks = places(n, round);
        most = blocks > most ? blocks : most;
    }
    return most;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    return kind == ROTA_KIND_ALL_TO_ALL && nranks > 1 ? 2 * (uint32_t)nranks : 0;
}

const struct algorithm algorithm_bruck = {
    .name = "bruck",
    .help = "several blocks in one message: log2(n) rounds on any number of ranks; for small data",
    .kinds = 1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_ALL_TO_ALL,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .widest = widest,
    .scratch = scratch,
};
