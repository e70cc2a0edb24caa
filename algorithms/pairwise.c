/* Pairwise exchange: n - 1 rounds, in each of which a rank sends to one rank and receives from
 * one, every block straight from its origin to its destination. On powers of two both are the same
 * rank (numbers differ in the bits of the round), else those `round` ahead and behind. The bytes
 * are those of `direct`, with one message at a time in flight, which spares small buffers.
 *
 * all_to_all in place: the block that a round receives may still have to be sent. On powers of two
 * it is received into scratch and copied once the send of the same round is complete; else block
 * r - i, received in round i and sent in round n - i, is set aside first if i <= n - i. */
#include "algorithms/algorithm.h"

static bool power_of_two(int n) {
    return (n & (n - 1)) == 0;
}

struct round {
    int to, from;
};

static struct round round_of(const struct algorithm_request *q, int i) {
    int n = q->nranks;
    if (power_of_two(n))
        return (struct round){q->rank ^ i, q->rank ^ i};
    return (struct round){(q->rank + i) % n, (q->rank + n - i) % n};
}

static void build_all_gather(const struct algorithm_request *q, struct sched_builder *b) {
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output((uint32_t)q->rank, 1), 0);
    for (int i = 1; i < q->nranks; i++) {
        struct round round = round_of(q, i);
        sched_send(b, round.to, sched_input(0, 1), 0);
        sched_recv(b, round.from, sched_output((uint32_t)round.from, 1), 0);
    }
}

/* Raw blocks come one by one and are added to one partial. */
static void build_reduce_scatter(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t r = (uint32_t)q->rank;
    uint32_t slot = q->nranks > 2 ? sched_alloc_scratch(b, 1) : 0;
    struct sched_range partial = sched_scratch(slot, 1, r), value = sched_input(r, 1);
    for (int i = 1; i < q->nranks; i++) {
        struct round round = round_of(q, i);
        bool last = i + 1 == q->nranks;
        uint32_t flags = SCHED_LOAD_MESSAGE | (i == 1 ? SCHED_LOAD_LOCAL : 0u);
        sched_send(b, round.to, sched_input((uint32_t)round.to, 1), 0);
        sched_recv_reduce(b, round.from, value, round.from < q->rank,
                          last ? sched_output(0, 1) : partial, flags | (last ? SCHED_FINISH : 0u));
        value = partial;
    }
}

static void all_to_all_xor_in_place(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t slot = sched_alloc_scratch(b, 2);
    for (int i = 1; i < q->nranks; i++) {
        struct round round = round_of(q, i);
        uint32_t block = (uint32_t)round.to;
        struct sched_range aside = sched_scratch(slot + (uint32_t)i % 2, 1, block);
        sched_send(b, round.to, sched_input(block, 1), 0);
        sched_recv(b, round.from, aside, 0);
        sched_copy(b, aside, sched_output(block, 1), 0);
    }
}

static void all_to_all_shift_in_place(const struct algorithm_request *q, struct sched_builder *b) {
    int n = q->nranks;
    uint32_t aside = sched_alloc_scratch(b, (uint32_t)n / 2);
    for (int i = 1; i < n; i++) {
        struct round round = round_of(q, i);
        uint32_t in = (uint32_t)round.from, out = (uint32_t)round.to;
        if (i <= n / 2)
            sched_copy(b, sched_input(in, 1), sched_scratch(aside + (uint32_t)i - 1, 1, in), 0);
        if (n - i <= n / 2)
            sched_send(b, round.to, sched_scratch(aside + (uint32_t)(n - i) - 1, 1, out), 0);
        else
            sched_send(b, round.to, sched_input(out, 1), 0);
        sched_recv(b, round.from, sched_output(in, 1), 0);
    }
}

static void build_all_to_all(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t r = (uint32_t)q->rank;
    if (q->in_place) {
        if (power_of_two(q->nranks))
            all_to_all_xor_in_place(q, b);
        else
            all_to_all_shift_in_place(q, b);
        return;
    }
    sched_copy(b, sched_input(r, 1), sched_output(r, 1), 0);
    for (int i = 1; i < q->nranks; i++) {
        struct round round = round_of(q, i);
        sched_send(b, round.to, sched_input((uint32_t)round.to, 1), 0);
        sched_recv(b, round.from, sched_output((uint32_t)round.from, 1), 0);
    }
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    switch (request->kind) {
    case ROTA_KIND_ALL_GATHER:
        build_all_gather(request, builder);
        return ROTA_OK;
    case ROTA_KIND_REDUCE_SCATTER:
        build_reduce_scatter(request, builder);
        return ROTA_OK;
    case ROTA_KIND_ALL_TO_ALL:
        build_all_to_all(request, builder);
        return ROTA_OK;
    default:
        return ROTA_ERR_UNSUPPORTED;
    }
}

static double rounds(rota_kind kind, int nranks) {
    (void)kind;
    return nranks - 1;
}

static double volume(rota_kind kind, int nranks) {
    (void)kind;
    return (nranks - 1.0) / nranks;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks;
    if (kind == ROTA_KIND_REDUCE_SCATTER)
        return n > 2 ? 1 : 0;
    if (kind != ROTA_KIND_ALL_TO_ALL || n < 2)
        return 0;
    return power_of_two(nranks) ? 2 : n / 2;
}

const struct algorithm algorithm_pairwise = {
    .name = "pairwise",
    .help = "n-1 rounds with one partner each, blocks straight to their destination",
    .kinds =
        1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_REDUCE_SCATTER | 1u << ROTA_KIND_ALL_TO_ALL,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
};
