/* Recursive halving, then doubling (Rabenseifner): all_reduce as a reduce_scatter and an all_gather
 * of log2(n) rounds each, at the bytes of a ring. Distances double in the first half, so that
 * results are the canonical tree, on any number of ranks.
 *
 * There are P chunks, P the next power of two. In level k blocks [b, b + 2^k) pair up with the
 * block right of them. In a whole block the partial of chunk c is held by rank b + c mod 2^k. The
 * last block may be cut short to m ranks; there q is the power of two that holds m, y = c mod q,
 * and rank b + y holds chunk c, or rank b + y - q/2 where the former is missing. So what a rank
 * holds is always one class of chunks, c = first mod step. Merging two blocks, each chunk goes to
 * that of its two holders which is its holder in the larger block:
 *
 *     n = 7, P = 8, level 1, blocks {4, 5} and {6}: rank 4 holds c = 0 mod 2, 5: 1 mod 2, 6: all.
 *     Afterwards rank 4 holds 0 mod 4, 6: 2 mod 4, and 5, for the missing 7 as well: 1 mod 2.
 *
 * The all_gather runs the levels backwards with every message turned round.
 *
 * reduce_scatter is the first half alone, with the blocks for chunks: in the end rank r holds chunk
 * r. Of the P chunks those from n on do not exist, and messages that would hold no other are left
 * out. */
#include "algorithms/algorithm.h"

struct class {
    uint32_t first, step; /* chunks first, first + step, ... */
};

static uint32_t next_power(uint32_t n) {
    uint32_t power = 1;
    while (power < n)
        power *= 2;
    return power;
}

/* What a rank does in one level: it exchanges with one rank, and if its own block is cut short it
 * also gives to further ones, whose partner is missing. */
struct level {
    bool active;
    bool left;
    int partner;
    struct class give, keep;          /* to and from the partner; give.step 0: nothing */
    uint32_t size;                    /* ranks of a whole block: 2^k */
    uint32_t extra_first, extra_step; /* further positions in the left block, up to `size` */
    uint32_t left_base;
    bool raw, partner_raw; /* blocks of one rank */
};

/* Position in a block of `m` ranks that holds the chunks of class y mod 2^k. */
static uint32_t fold(uint32_t y, uint32_t m) {
    uint32_t q = next_power(m);
    y %= q;
    return y < m ? y : y - q / 2;
}

static struct level level_of(uint32_t n, uint32_t rank, uint32_t size) {
    uint32_t left = rank / (2 * size) * (2 * size), right = left + size;
    struct level l = {.size = size, .left_base = left};
    if (right >= n)
        return l;
    uint32_t m = n - right < size ? n - right : size, q = next_power(m);
    l.active = true;
    l.left = rank < right;
    uint32_t y = rank - (l.left ? left : right);
    l.raw = l.left ? size == 1 : m == 1;
    l.partner_raw = l.left ? m == 1 : size == 1;
    if (l.left) {
        bool whole = right + y < n;
        l.partner = (int)(right + fold(y, m));
        l.keep = (struct class){y, whole ? 2 * size : size};
        if (whole)
            l.give = (struct class){y + size, 2 * size};
        return l;
    }
    l.partner = (int)(left + y);
    l.keep = (struct class){y + size, 2 * size};
    l.give = (struct class){y, 2 * size};
    uint32_t held = y < q / 2 && y + q / 2 >= m ? q / 2 : q;
    l.extra_first = y + held;
    l.extra_step = held;
    return l;
}

/* Where the chunks of a rank are: in the input, in scratch packed by class, or in the output. */
struct holding {
    uint32_t chunks; /* P */
    uint32_t exist;  /* those below */
    bool scatters;   /* the result is the own chunk alone */
    uint32_t slot;
    struct class packed; /* step 0: nothing is in scratch yet */
};

/* Chunks of a class that exist. */
static uint32_t count_of(const struct holding *h, struct class c) {
    return c.step && c.first < h->exist ? (h->exist - 1 - c.first) / c.step + 1 : 0;
}

static struct sched_range strided(struct sched_range range, uint32_t reps, uint32_t stride) {
    range.reps = reps;
    range.stride = reps > 1 ? stride : 0;
    return range;
}

static struct sched_range in_scratch(const struct holding *h, struct class c) {
    uint32_t reps = count_of(h, c);
    struct sched_range range =
        strided(sched_scratch(h->slot + (c.first - h->packed.first) / h->packed.step, 1, c.first),
                reps, c.step / h->packed.step);
    range.like_stride = reps > 1 ? c.step : 0;
    return range;
}

static struct sched_range held(const struct holding *h, struct class c) {
    if (h->packed.step)
        return in_scratch(h, c);
    return strided(sched_input(c.first, 1), count_of(h, c), c.step);
}

static struct sched_range in_output(const struct holding *h, struct class c) {
    if (h->scatters)
        return sched_output(0, 1);
    return strided(sched_output(c.first, 1), count_of(h, c), c.step);
}

/* Sends everything that goes away, then receives what is kept. Kept partials are combined in their
 * own place. */
static void scatter_level(const struct level *l, struct sched_builder *b, struct holding *h) {
    uint32_t partial = l->raw ? 0 : SCHED_PARTIAL;
    if (count_of(h, l->give))
        sched_send(b, l->partner, held(h, l->give), partial);
    for (uint32_t y = l->extra_first; l->extra_step && y < l->size; y += l->extra_step)
        if (count_of(h, (struct class){y, l->size}))
            sched_send(b, (int)(l->left_base + y), held(h, (struct class){y, l->size}), partial);
    if (!count_of(h, l->keep))
        return;
    struct sched_range own = held(h, l->keep), result;
    uint32_t flags = (l->raw ? SCHED_LOAD_LOCAL : 0u) | (l->partner_raw ? SCHED_LOAD_MESSAGE : 0u);
    if (2 * l->size >= h->chunks) {
        result = in_output(h, l->keep);
        flags |= SCHED_FINISH;
    } else {
        if (!h->packed.step)
            h->packed = l->keep;
        result = in_scratch(h, l->keep);
    }
    sched_recv_reduce(b, l->partner, own, !l->left, result, flags);
}

static void gather_level(const struct level *l, struct sched_builder *b, const struct holding *h) {
    sched_send(b, l->partner, in_output(h, l->keep), 0);
    if (l->give.step)
        sched_recv(b, l->partner, in_output(h, l->give), 0);
    for (uint32_t y = l->extra_first; l->extra_step && y < l->size; y += l->extra_step)
        sched_recv(b, (int)(l->left_base + y), in_output(h, (struct class){y, l->size}), 0);
}

static rota_status build(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    struct holding h = {.chunks = next_power(n), .scatters = q->kind == ROTA_KIND_REDUCE_SCATTER};
    h.exist = h.scatters ? n : h.chunks;
    if (!h.scatters)
        sched_set_chunks(b, h.chunks);
    h.slot = n > 2 ? sched_alloc_scratch(b, (h.exist + 1) / 2) : 0;
    for (uint32_t size = 1; size < n; size *= 2) {
        struct level l = level_of(n, r, size);
        if (l.active)
            scatter_level(&l, b, &h);
    }
    for (uint32_t size = h.scatters ? 0 : h.chunks / 2; size; size /= 2) {
        struct level l = level_of(n, r, size);
        if (l.active)
            gather_level(&l, b, &h);
    }
    return ROTA_OK;
}

static double rounds(rota_kind kind, int nranks) {
    double levels = nranks > 1 ? 32 - __builtin_clz((unsigned)nranks - 1) : 0;
    return kind == ROTA_KIND_REDUCE_SCATTER ? levels : 2 * levels;
}

/* What a rank sends, or receives if that is more, in the first half. */
static uint32_t scattered(const struct holding *h, uint32_t n, uint32_t rank) {
    uint32_t sent = 0, received = 0;
    for (uint32_t size = 1; size < n; size *= 2) {
        struct level l = level_of(n, rank, size);
        if (!l.active)
            continue;
        sent += count_of(h, l.give);
        for (uint32_t y = l.extra_first; l.extra_step && y < l.size; y += l.extra_step)
            sent += count_of(h, (struct class){y, l.size});
        received += count_of(h, l.keep);
    }
    return sent > received ? sent : received;
}

/* Of the busiest rank, which is one whose partners are missing, in some level. */
static double scatter_volume(uint32_t n) {
    struct holding h = {.chunks = next_power(n), .exist = n};
    uint32_t busiest = 0;
    for (uint32_t rank = 0; rank < n; rank++) {
        uint32_t some = scattered(&h, n, rank);
        busiest = some > busiest ? some : busiest;
    }
    return (double)busiest / n;
}

/* In both halves together a rank sends what it gives away (all but what it holds in the end) and
 * what it receives in the first half. `cut` is the most that a rank of the last block has received
 * up to a level; ranks of whole blocks have received P - P / size. */
static double volume(rota_kind kind, int nranks) {
    if (kind == ROTA_KIND_REDUCE_SCATTER)
        return scatter_volume((uint32_t)nranks);
    uint32_t n = (uint32_t)nranks, chunks = next_power(n), cut = 0, busiest = 2 * chunks - 2;
    for (uint32_t size = 1; size < n; size *= 2) {
        uint32_t right = (n - 1) / (2 * size) * (2 * size) + size, half = chunks / (2 * size);
        if (right >= n)
            continue; /* the last block has no partner in this level */
        uint32_t left = chunks - chunks / size + (n - right < size ? 2 * half : half);
        cut += half;
        if (2 * size >= n)
            busiest = cut + chunks - 1 > busiest ? cut + chunks - 1 : busiest;
        cut = left > cut ? left : cut;
    }
    return n > 1 ? (double)busiest / chunks : 0;
}

static uint32_t widest(rota_kind kind, int nranks) {
    if (kind == ROTA_KIND_REDUCE_SCATTER && nranks > 1)
        return ((uint32_t)nranks + 1) / 2;
    return nranks > 1 ? next_power((uint32_t)nranks) / 2 : 1;
}

static uint32_t scratch(rota_kind kind, int nranks) {
    if (kind == ROTA_KIND_REDUCE_SCATTER)
        return nranks > 2 ? ((uint32_t)nranks + 1) / 2 : 0;
    return nranks > 2 ? next_power((uint32_t)nranks) / 2 : 0;
}

const struct algorithm algorithm_halving_doubling = {
    .name = "halving_doubling",
    .help = "recursive halving, then doubling (Rabenseifner): 2 log2(n) rounds, the bytes of a "
            "ring; canonical tree; reduce_scatter by the first half",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE_SCATTER,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .widest = widest,
    .scratch = scratch,
};
