/* Ring: every rank talks to its two neighbours only, so it needs two connections and moves the
 * least bytes that are possible; latency grows with the number of ranks.
 *
 * reduce_scatter: chunk c starts raw at the rank after its owner, travels once round the ring and
 * gathers one operand per hop; the owner finishes it. all_gather: chunks travel once round.
 * all_reduce is both, with one chunk per rank. broadcast and reduce are a chain from or to the
 * root, scans one from rank 0 to the last, in CHAIN_CHUNKS chunks so that the links overlap also
 * where a message is one slice.
 *
 * The ring may follow the links of the machine (algorithm_topology.ring). A rank's *place* is its
 * position there; rounds count places, and the chunk of a place is that of the rank which has it.
 */
#include "algorithms/algorithm.h"

enum {
    RING_SLOTS = 4,  /* partials under way: one is received while earlier ones are still sent */
    CHAIN_CHUNKS = 4 /* of broadcast and reduce */
};

static uint32_t place_of(const struct algorithm_request *q) {
    const int *ring = q->topology ? q->topology->ring : NULL;
    uint32_t place = ring ? 0 : (uint32_t)q->rank;
    while (ring && ring[place] != q->rank)
        place++;
    return place;
}

static uint32_t rank_at(const struct algorithm_request *q, uint32_t place) {
    place %= (uint32_t)q->nranks;
    return q->topology && q->topology->ring ? (uint32_t)q->topology->ring[place] : place;
}

static uint32_t ring_slots(int nranks) {
    uint32_t partials = (uint32_t)nranks - 2; /* the last one is finished at once */
    return partials < RING_SLOTS ? partials : RING_SLOTS;
}

/* n - 1 rounds in which chunk `first` (raw) is sent to the next rank and chunk first - 1 - s is
 * received in round s, combined with the own input, and passed on. The last one received is
 * finished into `result`. Rank 0 puts its operand left, because all others are higher. */
static void reduce_scatter_rounds(const struct algorithm_request *q, struct sched_builder *b,
                                  uint32_t first, struct sched_range result) {
    uint32_t n = (uint32_t)q->nranks, place = place_of(q);
    int next = (int)rank_at(q, place + 1), previous = (int)rank_at(q, place + n - 1);
    uint32_t slots = ring_slots(q->nranks);
    uint32_t scratch = sched_alloc_scratch(b, slots);
    struct sched_range outgoing = sched_input(rank_at(q, first), 1);
    for (uint32_t s = 0; s + 1 < n; s++) {
        uint32_t chunk = rank_at(q, first + 2 * n - 1 - s);
        bool last = s + 2 == n;
        uint32_t flags = SCHED_LOAD_LOCAL;
        struct sched_range incoming = result;
        if (s == 0)
            flags |= SCHED_LOAD_MESSAGE;
        if (last)
            flags |= SCHED_FINISH;
        else
            incoming = sched_scratch(scratch + s % slots, 1, chunk);
        sched_send(b, next, outgoing, s == 0 ? 0 : SCHED_PARTIAL);
        sched_recv_reduce(b, previous, sched_input(chunk, 1), previous < q->rank, incoming, flags);
        outgoing = incoming;
    }
}

/* n - 1 rounds in which chunk `first` is sent to the next rank, and each chunk that comes from
 * the previous one is stored and passed on. */
static void all_gather_rounds(const struct algorithm_request *q, struct sched_builder *b,
                              uint32_t first, struct sched_range outgoing) {
    uint32_t n = (uint32_t)q->nranks, place = place_of(q);
    int next = (int)rank_at(q, place + 1), previous = (int)rank_at(q, place + n - 1);
    for (uint32_t s = 0; s + 1 < n; s++) {
        struct sched_range incoming = sched_output(rank_at(q, first + 2 * n - 1 - s), 1);
        sched_send(b, next, outgoing, 0);
        sched_recv(b, previous, incoming, 0);
        outgoing = incoming;
    }
}

static void build_all_reduce(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t place = place_of(q);
    struct sched_range own = sched_output(rank_at(q, place + 1), 1);
    sched_set_chunks(b, (uint32_t)q->nranks);
    reduce_scatter_rounds(q, b, place, own);
    all_gather_rounds(q, b, place + 1, own);
}

static void build_reduce_scatter(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t before = place_of(q) + (uint32_t)q->nranks - 1;
    reduce_scatter_rounds(q, b, before, sched_output(0, 1));
}

static void build_all_gather(const struct algorithm_request *q, struct sched_builder *b) {
    if (!q->in_place)
        sched_copy(b, sched_input(0, 1), sched_output((uint32_t)q->rank, 1), 0);
    all_gather_rounds(q, b, place_of(q), sched_input(0, 1));
}

static uint32_t chain_chunks(int nranks) {
    return nranks > 2 ? CHAIN_CHUNKS : 1; /* two ranks have one link: nothing to overlap */
}

static void build_broadcast(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t chunks = chain_chunks(q->nranks);
    uint32_t place = place_of(q);
    int next = (int)rank_at(q, place + 1);
    int previous = (int)rank_at(q, place + (uint32_t)q->nranks - 1);
    sched_set_chunks(b, chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        if (q->rank == q->root) {
            sched_send(b, next, sched_input(c, 1), 0);
            continue;
        }
        sched_recv(b, previous, sched_output(c, 1), 0);
        if (next != q->root)
            sched_send(b, next, sched_output(c, 1), 0);
    }
    if (q->rank == q->root && !q->in_place)
        sched_copy(b, sched_input(0, chunks), sched_output(0, chunks), 0);
}

/* Partials come down from the rank before the root, towards the root. */
static void build_reduce(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t chunks = chain_chunks(q->nranks);
    uint32_t place = place_of(q);
    int above = (int)rank_at(q, place + 1);
    int below = (int)rank_at(q, place + (uint32_t)q->nranks - 1);
    bool starts = above == q->root, ends = q->rank == q->root;
    bool above_starts = (int)rank_at(q, place + 2) == q->root;
    sched_set_chunks(b, chunks);
    uint32_t scratch = starts || ends ? 0 : sched_alloc_scratch(b, chunks);
    for (uint32_t c = 0; c < chunks; c++) {
        if (starts) {
            sched_send(b, below, sched_input(c, 1), 0);
            continue;
        }
        uint32_t flags = SCHED_LOAD_LOCAL | (above_starts ? SCHED_LOAD_MESSAGE : 0u);
        struct sched_range partial = sched_scratch(scratch + c, 1, c);
        if (ends) {
            sched_recv_reduce(b, above, sched_input(c, 1), above < q->rank, sched_output(c, 1),
                              flags | SCHED_FINISH);
        } else {
            sched_recv_reduce(b, above, sched_input(c, 1), above < q->rank, partial, flags);
            sched_send(b, below, partial, SCHED_PARTIAL);
        }
    }
}

/* What rank - 1 sends is combined with the own input and passed on; chunk by chunk. */
static void scan_chunk(const struct algorithm_request *q, struct sched_builder *b, uint32_t c,
                       uint32_t scratch) {
    uint32_t raw = q->rank == 1 ? SCHED_LOAD_MESSAGE : 0u, chunks = chain_chunks(q->nranks);
    struct sched_range input = sched_input(c, 1), output = sched_output(c, 1);
    struct sched_range sum = sched_scratch(scratch + c, 1, c);
    struct sched_range operands[] = {sched_scratch(scratch + chunks + c, 1, c), sum};
    bool last = q->rank + 1 == q->nranks, exclusive = q->kind == ROTA_KIND_EXCLUSIVE_SCAN;
    if (last) {
        int before = q->rank - 1;
        sched_recv_reduce_list(b, &before, 1, 1, &input, exclusive ? 0 : 1, &output, 1,
                               raw | SCHED_FINISH | (exclusive ? 0u : SCHED_LOAD_LOCAL));
        return;
    }
    if (exclusive) { /* the value that came is needed twice */
        int before = q->rank - 1;
        sched_recv_reduce_list(b, &before, 1, 1, NULL, 0, operands, 1, raw);
        sched_reduce(b, &input, 1, sum, SCHED_LOAD_LOCAL);
        sched_reduce(b, operands, 2, sum, 0);
    } else {
        sched_recv_reduce(b, q->rank - 1, input, true, sum, raw | SCHED_LOAD_LOCAL);
    }
    sched_send(b, q->rank + 1, sum, SCHED_PARTIAL);
    sched_reduce(b, exclusive ? operands : &sum, 1, output, SCHED_FINISH);
}

static void build_scan(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t chunks = chain_chunks(q->nranks);
    bool passes = q->rank > 0 && q->rank + 1 < q->nranks;
    sched_set_chunks(b, chunks);
    uint32_t scratch = passes ? sched_alloc_scratch(b, 2 * chunks) : 0;
    for (uint32_t c = 0; c < chunks; c++) {
        struct sched_range input = sched_input(c, 1);
        if (q->rank > 0) {
            scan_chunk(q, b, c, scratch);
            continue;
        }
        sched_send(b, 1, input, 0);
        if (q->kind == ROTA_KIND_SCAN)
            sched_reduce(b, &input, 1, sched_output(c, 1), SCHED_LOAD_LOCAL | SCHED_FINISH);
    }
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    switch (request->kind) {
    case ROTA_KIND_ALL_REDUCE:
        build_all_reduce(request, builder);
        return ROTA_OK;
    case ROTA_KIND_REDUCE:
        build_reduce(request, builder);
        return ROTA_OK;
    case ROTA_KIND_BROADCAST:
        build_broadcast(request, builder);
        return ROTA_OK;
    case ROTA_KIND_ALL_GATHER:
        build_all_gather(request, builder);
        return ROTA_OK;
    case ROTA_KIND_REDUCE_SCATTER:
        build_reduce_scatter(request, builder);
        return ROTA_OK;
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        build_scan(request, builder);
        return ROTA_OK;
    default:
        return ROTA_ERR_UNSUPPORTED;
    }
}

static double rounds(rota_kind kind, int nranks) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return 2.0 * (nranks - 1);
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return nranks > 1 ? nranks - 2 + (double)chain_chunks(nranks) : 0;
    default:
        return nranks - 1;
    }
}

static double volume(rota_kind kind, int nranks) {
    double share = (nranks - 1.0) / nranks;
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return 2 * share;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return nranks > 1 ? 1 : 0;
    default:
        return share;
    }
}

static uint32_t scratch(rota_kind kind, int nranks) {
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_REDUCE_SCATTER:
        return nranks > 1 ? ring_slots(nranks) : 0;
    case ROTA_KIND_REDUCE:
        return nranks > 2 ? chain_chunks(nranks) : 0;
    case ROTA_KIND_SCAN:
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return nranks > 2 ? 2 * chain_chunks(nranks) : 0;
    default:
        return 0;
    }
}

const struct algorithm algorithm_ring = {
    .name = "ring",
    .help = "neighbours only: n-1 rounds (all_reduce 2(n-1)), the least bytes; for large data",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_ALL_GATHER | 1u << ROTA_KIND_REDUCE_SCATTER | 1u << ROTA_KIND_SCAN |
             1u << ROTA_KIND_EXCLUSIVE_SCAN,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
    .sends_partials = true,
};
