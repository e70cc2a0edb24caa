/* Binomial tree: ceil(log2 n) rounds from or to one rank, each message a whole buffer. For small
 * data.
 *
 * reduce makes the canonical tree over ranks for every root: in level k the owners of the aligned
 * blocks [b, b + 2^k) and [b + 2^k, b + 2^(k+1)) combine theirs, lower ranks left. The owner of a
 * block is the root if it lies in it, else its lowest rank; so the tree is the same and only who
 * computes a node depends on the root. broadcast runs over ranks relative to the root. */
#include "algorithms/algorithm.h"

static uint32_t levels_of(uint32_t n) {
    uint32_t levels = 0;
    while (levels < 31 && (1u << levels) < n)
        levels++;
    return levels;
}

/* Owner of the block of 2^level ranks that begins at `base`. */
static uint32_t owner_of(uint32_t base, uint32_t level, uint32_t root) {
    return root >> level == base >> level ? root : base;
}

/* The partial is accumulated in one scratch chunk. */
static void add_reduce(const struct algorithm_request *q, struct sched_builder *b, uint32_t root) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank, levels = levels_of(n);
    struct sched_range value = sched_input(0, 1), partial = sched_scratch(0, 1, 0);
    bool raw = true; /* nothing was combined with the own input yet */
    for (uint32_t level = 0; level < levels; level++) {
        uint32_t own = r >> level << level, other = own ^ (1u << level);
        if (other >= n)
            continue;
        uint32_t peer = owner_of(other, level, root);
        if (peer == root || (other < own && r != root)) {
            sched_send(b, (int)peer, value, raw ? 0 : SCHED_PARTIAL);
            return;
        }
        bool peer_raw = level == 0 || other + 1 == n;
        uint32_t flags = (peer_raw ? SCHED_LOAD_MESSAGE : 0u) | (raw ? SCHED_LOAD_LOCAL : 0u);
        bool last = level + 1 == levels;
        if (!last && raw)
            partial = sched_scratch(sched_alloc_scratch(b, 1), 1, 0);
        sched_recv_reduce(b, (int)peer, value, peer < r, last ? sched_output(0, 1) : partial,
                          flags | (last ? SCHED_FINISH : 0u));
        value = partial;
        raw = false;
    }
}

/* The parent of a relative rank is that without its lowest bit; its children add one bit below
 * that. The largest subtree is served first. */
static void add_broadcast(const struct algorithm_request *q, struct sched_builder *b, uint32_t root,
                          struct sched_range source) {
    uint32_t n = (uint32_t)q->nranks, relative = ((uint32_t)q->rank + n - root) % n;
    uint32_t lowest = relative ? relative & -relative : 1u << levels_of(n);
    if (relative) {
        uint32_t parent = relative & (relative - 1);
        source = sched_output(0, 1);
        sched_recv(b, (int)((parent + root) % n), source, 0);
    }
    int children[32];
    uint32_t nchildren = 0;
    for (uint32_t bit = lowest >> 1; bit; bit >>= 1)
        if (relative + bit < n)
            children[nchildren++] = (int)((relative + bit + root) % n);
    if (nchildren)
        sched_send_list(b, children, nchildren, &source, 1, 0);
}

/* Tokens rise to rank 0, each after those from below, and come down again. Tokens carry no data,
 * so they wait for each other by name, between a lane of sends and one of receives. */
static void build_barrier(const struct algorithm_request *q, struct sched_builder *b) {
    uint32_t n = (uint32_t)q->nranks, r = (uint32_t)q->rank;
    uint32_t lowest = r ? r & -r : 1u << levels_of(n);
    int children[32];
    uint32_t heard[32], nchildren = 0, released = 0;
    sched_lane(b, 1, 0);
    for (uint32_t bit = 1; bit < lowest; bit <<= 1) {
        if (r + bit >= n)
            break;
        children[nchildren] = (int)(r + bit);
        heard[nchildren++] = sched_recv_token(b, (int)(r + bit));
    }
    if (r) {
        sched_lane(b, 0, 0);
        uint32_t up = sched_send_token(b, (int)(r & (r - 1)));
        for (uint32_t i = 0; i < nchildren; i++)
            sched_wait(b, up, heard[i]);
        sched_lane(b, 1, 0);
        released = sched_recv_token(b, (int)(r & (r - 1)));
    }
    if (!nchildren)
        return;
    sched_lane(b, 0, 0);
    uint32_t down = sched_send_list(b, children, nchildren, NULL, 0, 0);
    if (r)
        sched_wait(b, down, released);
    for (uint32_t i = 0; !r && i < nchildren; i++)
        sched_wait(b, down, heard[i]);
}

static rota_status build(const struct algorithm_request *request, struct sched_builder *builder) {
    bool is_root = request->rank == request->root;
    switch (request->kind) {
    case ROTA_KIND_ALL_REDUCE:
        add_reduce(request, builder, 0);
        add_broadcast(request, builder, 0, sched_output(0, 1));
        return ROTA_OK;
    case ROTA_KIND_REDUCE:
        add_reduce(request, builder, (uint32_t)request->root);
        return ROTA_OK;
    case ROTA_KIND_BROADCAST:
        add_broadcast(request, builder, (uint32_t)request->root, sched_input(0, 1));
        if (is_root && !request->in_place)
            sched_copy(builder, sched_input(0, 1), sched_output(0, 1), 0);
        return ROTA_OK;
    case ROTA_KIND_BARRIER:
        build_barrier(request, builder);
        return ROTA_OK;
    default:
        return ROTA_ERR_UNSUPPORTED;
    }
}

static double rounds(rota_kind kind, int nranks) {
    uint32_t levels = levels_of((uint32_t)nranks);
    return kind == ROTA_KIND_ALL_REDUCE || kind == ROTA_KIND_BARRIER ? 2.0 * levels : levels;
}

static double volume(rota_kind kind, int nranks) {
    return kind == ROTA_KIND_BARRIER ? 0 : levels_of((uint32_t)nranks);
}

static uint32_t scratch(rota_kind kind, int nranks) {
    return nranks > 1 && sched_kind_reduces(kind) ? 1 : 0;
}

const struct algorithm algorithm_binomial = {
    .name = "binomial",
    .help = "a tree: log2(n) rounds to or from the root (all_reduce, barrier twice that); "
            "canonical tree",
    .kinds = 1u << ROTA_KIND_ALL_REDUCE | 1u << ROTA_KIND_REDUCE | 1u << ROTA_KIND_BROADCAST |
             1u << ROTA_KIND_BARRIER,
    .build = build,
    .rounds = rounds,
    .volume = volume,
    .scratch = scratch,
    .sends_partials = true,
};
