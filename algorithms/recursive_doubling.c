/* Recursive doubling: in level k ranks whose numbers differ by 2^k exchange what they have, so
 * log2(n) rounds do. Results are the canonical tree, on any number of ranks.
 *
 * all_reduce on n not a power of two. In level k blocks of 2^k ranks pair up; block [b, b + 2^k)
 * and the block right of it, which may be cut short by n (m ranks) or be missing. Where it is cut
 * short, its ranks serve several ranks of the left block each:
 *
 *     n = 7, level 2:   left 0 1 2 3     4 sends to 0 and 3, 5 to 1, 6 to 2
 *                      right 4 5 6 -     0 sends to 4, 1 to 5, 2 to 6, 3 to nobody
 *
 * That keeps the tree and the rounds at the price of messages; folding the ranks beyond the power
 * of two in would cost two rounds and another tree.
 *
 * reduce_scatter halves with doubling distance: after level k a rank holds the partials of all
 * blocks whose numbers agree with its own in the lowest k + 1 bits, packed in scratch. */
#include "algorithms/algorithm.h"
#include "algorithms/scan.h"

#include "base/error.h"

#include <stdlib.h>

static uint32_t levels_of(uint32_t n) {
    uint32_t levels = 0;
    while (levels < 31 && (1u << levels) < n)
        levels++;
    return levels;
}

/* What a rank does in one level. */
struct exchange {
    uint32_t from;        /* whom it receives from; n: it takes no part */
    uint32_t to, to_step; /* first whom it sends to, distance to the next */
    uint32_t to_end;      /* end of those */
    bool from_raw;        /* the other block is a single rank: its input comes unreduced */
    bool raw;             /* the own block is */
};

static struct exchange exchange_of(uint32_t n, uint32_t rank, uint32_t level) {
    uint32_t size = 1u << level, left = rank >> (level + 1) << (level + 1), right = left + size;
    if (right >= n)
        return (struct exchange){.from = n};
    uint32_t right_size = n - right < size ? n - right : size;
    struct exchange x = {.from_raw = size == 1, .raw = size == 1};
    if (rank < right) {
        x.from = right + (rank - left) % right_size;
        x.from_raw = right_size == 1;
        x.to = rank + size;
        x.to_step = size;
        x.to_end = x.to < n ? x.to + 1 : x.to;
    } else {
        x.from = rank - size;
        x.raw = right_size == 1;
        x.to = rank - size;
        x.to_step = right_size;
        x.to_end = right;
    }
    return x;
}

static void send_level(const struct exchange *x, struct sched_builder *b, int *peers,
                       struct sched_range value) {
    uint32_t npeers = 0;
    for (uint32_t to = x->to; to < x->to_end; to += x->to_step)
        peers[npeers++] = (int)to;
    if (npeers)
        sched_send_list(b, peers, npeers, &value, 1, x->raw ? 0 : SCHED_PARTIAL);
}

/* The partial alternates between two scratch chunks, so that a level can be received while the
 * one before is still being sent. In place, an input that is sent in the last level must not be
 * overwritten by what is received in it. */
static rota_status build_all_reduce(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank, levels = levels_of(n);
    int *peers = malloc(n * sizeof *peers);
    if (!peers)
        return error_raise(ROTA_ERR_MEMORY, "no memory for %u ranks", n);
    uint32_t slot = n == 2 && !q->in_place ? 0 : sched_alloc_scratch(b, 2);
    struct sched_range value = sched_input(0, 1), output = sched_output(0, 1);
    for (uint32_t level = 0; level < levels; level++) {
        struct exchange x = exchange_of(n, r, level);
        if (x.from == n)
            continue;
        send_level(&x, b, peers, value);
        bool last = level + 1 == levels, aside = last && q->in_place && x.raw;
        uint32_t flags = (x.from_raw ? SCHED_LOAD_MESSAGE : 0u) | (x.raw ? SCHED_LOAD_LOCAL : 0u);
        struct sched_range result = sched_scratch(slot + level % 2, 1, 0);
        if (last && !aside)
            result = output;
        sched_recv_reduce(b, (int)x.from, value, x.from < r, result,
                          flags | (last ? SCHED_FINISH : 0u));
        if (aside)
            sched_copy(b, result, output, 0);
        value = result;
    }
    free(peers);
    return ROTA_OK;
}

static void build_all_gather(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output(r, 1), 0);
    for (uint32_t size = 1; size < n; size *= 2) {
        uint32_t own = r / size * size, other = own ^ size;
        sched_send(b, (int)(r ^ size), size == 1 ? sched_input(0, 1) : sched_output(own, size), 0);
        sched_recv(b, (int)(r ^ size), sched_output(other, size), 0);
    }
}

/* Blocks first, first + stride, ... of all n: every `step`-th chunk of `packed` beyond `skip`. */
static struct sched_range every(struct sched_range packed, uint32_t skip, uint32_t step,
                                uint32_t first, uint32_t stride, uint32_t n) {
    packed.first += skip;
    packed.count = 1;
    packed.reps = n / stride;
    packed.stride = packed.reps > 1 ? step : 0;
    if (packed.buffer == SCHED_SCRATCH) {
        packed.like = first;
        packed.like_stride = packed.reps > 1 ? stride : 0;
    }
    return packed;
}

static void build_reduce_scatter(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    uint32_t slots[2] = {sched_alloc_scratch(b, n / 2), 0};
    slots[1] = sched_alloc_scratch(b, n / 4);
    struct sched_range packed = sched_input(0, 1);
    for (uint32_t size = 1, level = 0; size < n; size *= 2, level++) {
        /* Of the blocks that agree with r below bit `level`, those that also agree in it stay. */
        uint32_t keep = r % (2 * size), give = keep ^ size;
        struct sched_range kept, given, result;
        if (level == 0) {
            kept = every(packed, keep, 2, keep, 2, n);
            given = every(packed, give, 2, give, 2, n);
        } else {
            kept = every(packed, keep / size, 2, keep, 2 * size, n);
            given = every(packed, give / size, 2, give, 2 * size, n);
        }
        uint32_t flags = level == 0 ? SCHED_LOAD_MESSAGE | SCHED_LOAD_LOCAL : 0u;
        struct sched_range next = sched_scratch(slots[level % 2], 1, keep);
        if (2 * size == n) {
            result = sched_output(0, 1);
            flags |= SCHED_FINISH;
        } else {
            result = every(next, 0, 1, keep, 2 * size, n);
        }
        sched_send(b, (int)(r ^ size), given, level == 0 ? 0 : SCHED_PARTIAL);
        sched_recv_reduce(b, (int)(r ^ size), kept, (r & size) != 0, result, flags);
        packed = next;
    }
}

/* Dissemination: in level k a token goes 2^k ranks ahead; it says that the sender has heard all
 * that came before. Tokens carry no data, so a send waits for the receive before it by name. */
static void build_barrier(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank, heard = 0;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
        sched_lane(b, 0, 0);
        uint32_t sent = sched_send_token(b, (int)((r + distance) % n));
        if (distance > 1)
            sched_wait(b, sent, heard);
        sched_lane(b, 1, 0);
        heard = sched_recv_token(b, (int)((r + n - distance) % n));
    }
}

static bool fits(rota_kind kind, int nranks) {
    bool power_of_two = (nranks & (nranks - 1)) == 0;
    return power_of_two || (kind != ROTA_KIND_ALL_GATHER && kind != ROTA_KIND_REDUCE_SCATTER);
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    switch (request->kind) {
    case ROTA_KIND_ALL_REDUCE:
        return build_all_reduce(request, builder);
    case ROTA_KIND_ALL_GATHER:
        build_all_gather(request, builder);
        return ROTA_OK;
    case ROTA_KIND_REDUCE_SCATTER:
        build_reduce_scatter(request, builder);
        return ROTA_OK;
    case ROTA_KIND_BARRIER:
        build_barrier(request, builder);
        return ROTA_OK;
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        scan_build(request, builder);
        return ROTA_OK;
    default:
        return ROTA_ERR_UNSUPPORTED;
    }
}

static double rounds(rota_kind kind, int nranks) {
    (void)kind;
    return levels_of((uint32_t)nranks);
}

/* all_reduce: whole inputs; the busiest is one of the first ranks of a block that is cut short. */
static double volume(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks, levels = levels_of(n);
    if (kind == ROTA_KIND_BARRIER)
        return 0;
    if (sched_kind_scans(kind))
        return levels; /* of rank 0 */
    if (kind != ROTA_KIND_ALL_REDUCE)
        return (nranks - 1.0) / nranks;
    uint32_t busiest = 0;
    for (uint32_t k = 0; k < levels; k++) {
        uint32_t rank = ((n - 1) >> k) << k, sent = 0; /* first of the last block of 2^k */
        for (uint32_t level = 0; level < levels; level++) {
            struct exchange x = exchange_of(n, rank, level);
            if (x.from != n)
                sent += (x.to_end - x.to + x.to_step - 1) / x.to_step;
        }
        busiest = sent > busiest ? sent : busiest;
    }
    return busiest;
}

static uint32_t widest(rota_kind kind, int nranks) {
    bool halves = kind == ROTA_KIND_ALL_GATHER || kind == ROTA_KIND_REDUCE_SCATTER;
    return halves && nranks > 1 ? (uint32_t)nranks / 2 : 1;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    uint32_t n = (uint32_t)nranks;
    if (kind == ROTA_KIND_ALL_REDUCE)
        return n > 1 ? 2 : 0;
    if (sched_kind_scans(kind))
        return n > 1 ? SCAN_SCRATCH : 0;
    return kind == ROTA_KIND_REDUCE_SCATTER && n > 1 ? n / 2 + n / 4 : 0;
}

const struct algorithm algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .help = "exchanges over distances 1, 2, 4, ...: log2(n) rounds; canonical tree; all_gather "
            "and reduce_scatter on powers of two",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_ALL_GATHER |
             1u << ROTA_KIND_REDUCE_SCATTER | 1u << ROTA_KIND_BARRIER | 1u << ROTA_KIND_SCAN |
             1u << ROTA_KIND_EXCLUSIVE_SCAN,
    .fits = fits,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .widest = widest,
    .scratch = scratch,
    .sends_partials = true,
};
