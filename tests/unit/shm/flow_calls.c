#include "flow_calls.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GUARD 64

struct buffers {
    uint8_t *sends[2], *recvs[2]; /* ordinary, and in the heap */
    int mapped_calls;
};

/* One call as all ranks reckon it. */
struct plan {
    rota_kind kind;
    int root, n;
    size_t count; /* int32 elements of a block */
    uint64_t number;
};

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 31) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 29) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 32;
}

/* Element i of a rank's input in a call. */
static int32_t input(const struct plan *plan, int rank, size_t i) {
    return (int32_t)mix(plan->number << 40 ^ (uint64_t)rank << 32 ^ i);
}

static bool rooted(rota_kind kind) {
    return kind == ROTA_KIND_REDUCE || kind == ROTA_KIND_BROADCAST || kind == ROTA_KIND_GATHER ||
           kind == ROTA_KIND_SCATTER;
}

static size_t send_blocks(const struct plan *plan, int rank) {
    switch (plan->kind) {
    case ROTA_KIND_BARRIER:
        return 0;
    case ROTA_KIND_BROADCAST:
        return rank == plan->root ? 1 : 0;
    case ROTA_KIND_SCATTER:
        return rank == plan->root ? (size_t)plan->n : 0;
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)plan->n;
    default:
        return 1;
    }
}

static size_t recv_blocks(const struct plan *plan, int rank) {
    switch (plan->kind) {
    case ROTA_KIND_BARRIER:
        return 0;
    case ROTA_KIND_REDUCE:
        return rank == plan->root ? 1 : 0;
    case ROTA_KIND_GATHER:
        return rank == plan->root ? (size_t)plan->n : 0;
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)plan->n;
    default:
        return 1;
    }
}

static int32_t sum(const struct plan *plan, size_t i) {
    uint32_t total = 0;
    for (int r = 0; r < plan->n; r++)
        total += (uint32_t)input(plan, r, i);
    return (int32_t)total;
}

/* Element i of a block of a rank's output. */
static int32_t output(const struct plan *plan, int rank, size_t block, size_t i) {
    size_t own = (size_t)rank * plan->count;
    switch (plan->kind) {
    case ROTA_KIND_ALL_REDUCE:
    case ROTA_KIND_REDUCE:
        return sum(plan, i);
    case ROTA_KIND_REDUCE_SCATTER:
        return sum(plan, own + i);
    case ROTA_KIND_BROADCAST:
        return input(plan, plan->root, i);
    case ROTA_KIND_SCATTER:
        return input(plan, plan->root, own + i);
    case ROTA_KIND_ALL_TO_ALL:
        return input(plan, (int)block, own + i);
    default:
        return input(plan, (int)block, i);
    }
}

/* Where the input lies when the call is in place: in the output, or the output in it. */
static uint8_t *in_place(const struct plan *plan, int rank, uint8_t *send, uint8_t **recv) {
    size_t own = (size_t)rank * plan->count * 4;
    switch (plan->kind) {
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_SCATTER:
        *recv = send + own;
        return send;
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        return *recv + own;
    default:
        return *recv;
    }
}

static struct plan draw(const struct flow_calls *calls, uint64_t *state, uint64_t number) {
    static const rota_kind kinds[] = {
        ROTA_KIND_REDUCE_SCATTER, ROTA_KIND_ALL_GATHER, ROTA_KIND_BROADCAST,
        ROTA_KIND_ALL_TO_ALL,     ROTA_KIND_REDUCE,     ROTA_KIND_GATHER,
        ROTA_KIND_SCATTER,        ROTA_KIND_ALL_REDUCE, ROTA_KIND_BARRIER};
    uint64_t random = *state = mix(*state + 0x9e3779b97f4a7c15u);
    struct plan plan = {.n = calls->n, .number = number};
    bool all = calls->only == ROTA_KIND_COUNT;
    plan.kind = all ? kinds[random % (sizeof kinds / sizeof *kinds)] : calls->only;
    plan.root = all && rooted(plan.kind) ? (int)((random >> 8) % (uint64_t)calls->n) : 0;
    /* Sizes of all magnitudes, so that the form changes from call to call. */
    size_t top = calls->limit >> (random >> 16) % (calls->mapped ? 3 : 16);
    plan.count = (size_t)(random >> 24) % (top + 1) / (4 * (size_t)calls->n);
    return plan;
}

static void check(const struct plan *plan, int rank, const uint8_t *recv) {
    for (size_t block = 0; block < recv_blocks(plan, rank); block++) {
        size_t step = plan->count > 2000 ? plan->count / 1000 : 1;
        for (size_t i = plan->number % step; i < plan->count; i += step) {
            int32_t value;
            memcpy(&value, recv + (block * plan->count + i) * 4, 4);
            if (value != output(plan, rank, block, i)) {
                fprintf(stderr, "%s root %d n %d count %zu rank %d: element %zu of block %zu\n",
                        rota_kind_name(plan->kind), plan->root, plan->n, plan->count, rank, i,
                        block);
                cluster_fail(__FILE__, __LINE__, "what the others gave");
            }
        }
    }
}

static void run_call(struct native_group *group, const struct flow_calls *calls,
                     const struct native_call *call, const struct plan *plan,
                     struct buffers *buffers) {
    const struct native_form *form = shm_native.query(group, plan->kind, call->bytes, call->spec);
    REQUIRE(form);
    struct cluster_wait wait;
    cluster_wait_init(&wait);
    wait.crowded = calls->crowded;
    struct native_result result;
    do {
        wait.impatient = calls->impatient;
        result = shm_native.advance(group, form, call, &wait.wait);
        if (result.outcome == NATIVE_PAUSED)
            sched_yield();
    } while (result.outcome == NATIVE_PAUSED && calls->impatient);
    REQUIRE(result.outcome == NATIVE_DONE);
    buffers->mapped_calls += result.form && strncmp(result.form->name, "shm-mapped", 10) == 0;
}

static void one_call(struct native_group *group, const struct flow_calls *calls, int rank,
                     const struct plan *plan, struct buffers *buffers) {
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, ROTA_INT32, ROTA_SUM, plan->n, cpu_isa_best()) == ROTA_OK);
    bool reduces = plan->kind == ROTA_KIND_REDUCE || plan->kind == ROTA_KIND_REDUCE_SCATTER ||
                   plan->kind == ROTA_KIND_ALL_REDUCE;
    uint64_t local = mix(plan->number * 64 + (uint64_t)rank); /* differs between ranks */
    bool all = plan->number % 4 == 0; /* every fourth call those of all ranks */
    uint8_t *send = buffers->sends[calls->mapped && (all || local & 1)] + GUARD;
    uint8_t *recv = buffers->recvs[calls->mapped && (all || local & 2)] + GUARD;
    size_t sent = send_blocks(plan, rank) * plan->count, block = plan->count * 4;
    size_t received = recv_blocks(plan, rank) * block;
    memset(recv - GUARD, 0xa5, received + 2 * GUARD);
    bool inside = (local & 12) == 0 && sent > 0 && received > 0;
    uint8_t *from = inside ? in_place(plan, rank, send, &recv) : send;
    for (size_t i = 0; i < sent; i++)
        memcpy(from + i * 4, &(int32_t){input(plan, rank, i)}, 4);
    if ((local >> 8) % 50 == 0) /* ranks come at different times */
        for (int i = 0; i < 20; i++)
            sched_yield();
    struct native_call call = {.kind = plan->kind,
                               .count = plan->count,
                               .bytes = block,
                               .spec = reduces ? &spec : NULL,
                               .root = plan->root,
                               .sequence = plan->number,
                               .fingerprint = mix(plan->number) | 1,
                               .send = sent > 0 ? from : NULL,
                               .recv = received > 0 ? recv : NULL};
    run_call(group, calls, &call, plan, buffers);
    check(plan, rank, recv);
    if (received > 0 && !inside)
        for (size_t i = 0; i < GUARD; i++)
            REQUIRE(recv[i - GUARD] == 0xa5 && recv[received + i] == 0xa5);
    if (!inside) {
        for (size_t i = 0; i < sent; i += 1 + sent / 500)
            REQUIRE(memcmp(from + i * 4, &(int32_t){input(plan, rank, i)}, 4) == 0);
        memset(from, 0x5a, sent * 4); /* nobody may still read it */
    }
}

void flow_calls_run(struct cluster *cluster, int rank, void *arg) {
    const struct flow_calls *calls = arg;
    struct native_group *group = cluster_group(cluster, rank, 5, calls->n);
    struct shm_heap *heap = &shm_of(cluster->ranks[rank].transport)->heap;
    struct buffers buffers = {0};
    size_t bytes = calls->limit + 2 * GUARD;
    buffers.sends[0] = malloc(bytes);
    buffers.recvs[0] = malloc(bytes);
    REQUIRE(buffers.sends[0] && buffers.recvs[0]);
    if (calls->mapped) {
        buffers.sends[1] = shm_heap_allocate(heap, bytes);
        buffers.recvs[1] = shm_heap_allocate(heap, bytes);
        REQUIRE(buffers.sends[1] && buffers.recvs[1]);
    }
    uint64_t state = 4711;
    for (int k = 1; k <= calls->calls; k++) {
        struct plan plan = draw(calls, &state, (uint64_t)k);
        one_call(group, calls, rank, &plan, &buffers);
    }
    REQUIRE(calls->mapped == (buffers.mapped_calls > 0));
    free(buffers.sends[0]);
    free(buffers.recvs[0]);
    if (calls->mapped)
        REQUIRE(shm_heap_free(heap, buffers.sends[1]) && shm_heap_free(heap, buffers.recvs[1]));
    shm_native.group_close(group);
}
