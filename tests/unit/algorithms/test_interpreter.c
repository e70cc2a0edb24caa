/* Runs the schedules of all ranks on real numbers, at channel capacity zero, with hazards found
 * by comparing every pair of steps: a second opinion on what schedules mean, which shares no code
 * with the verifier. Three operators: the sum; and "leftmost" and "rightmost", which are
 * associative but do not commute, so they show the order of operands. */
#include "algorithms/algorithm.h"
#include "schedule/chunk_map.h"
#include "schedule/verify.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum operation { SUM, LEFTMOST, RIGHTMOST };

struct rank {
    const struct sched *s;
    int64_t *input, *output, *scratch; /* in place, one of the first two lies in the other */
    bool *done;                        /* by step */
    uint32_t *served;                  /* by step: peers that had (sends) or sent their message */
    int64_t **arrived;                 /* by entry of s->peers: the message, if it came early */
};

struct run {
    int n;
    size_t count; /* elements of a block */
    enum operation operation;
    struct rank *ranks;
};

static int64_t input_value(int rank, size_t element) {
    return (int64_t)((uint64_t)(rank + 1) * UINT64_C(0x9E3779B97F4A7C15) + element * 1000003u);
}

static int64_t combine(enum operation operation, int64_t left, int64_t right) {
    if (operation == SUM)
        return (int64_t)((uint64_t)left + (uint64_t)right);
    return operation == LEFTMOST ? left : right;
}

/* First element and length of chunk `i` of a list, counted over all of its ranges. */
static int64_t *chunk_at(const struct run *run, const struct rank *rank, struct sched_list list,
                         uint32_t i, size_t *length) {
    const struct sched *s = rank->s;
    const struct sched_range *range = &s->ranges[list.begin];
    while (i >= range->count * range->reps) {
        i -= range->count * range->reps;
        range++;
    }
    uint32_t rep = i / range->count, at = i % range->count, cpb = s->chunks_per_block;
    uint32_t chunk = range->first + rep * range->stride + at;
    if (range->buffer == SCHED_SCRATCH) {
        uint32_t like = range->like + rep * range->like_stride + at;
        *length = chunk_length(run->count, cpb, like % cpb);
        return rank->scratch + (size_t)chunk * (run->count + 1);
    }
    *length = chunk_length(run->count, cpb, chunk % cpb);
    size_t begin = chunk / cpb * run->count + chunk_begin(run->count, cpb, chunk % cpb);
    return (range->buffer == SCHED_INPUT ? rank->input : rank->output) + begin;
}

/* Memory that two lists share, at the granularity of whole chunks. */
static bool overlap(const struct run *run, const struct rank *rank, struct sched_list a,
                    struct sched_list b) {
    uint32_t na = sched_list_chunks(rank->s, a), nb = sched_list_chunks(rank->s, b);
    for (uint32_t i = 0; i < na; i++)
        for (uint32_t j = 0; j < nb; j++) {
            size_t la, lb;
            int64_t *pa = chunk_at(run, rank, a, i, &la), *pb = chunk_at(run, rank, b, j, &lb);
            if (la && lb && pa < pb + lb && pb < pa + la)
                return true;
        }
    return false;
}

static bool is_recv(const struct sched_step *step) {
    return step->type == SCHED_RECV || step->type == SCHED_RECV_REDUCE;
}

/* Earlier steps of the lane: one at a time may send and one receive; the rest is hazards. */
static bool can_start(const struct run *run, const struct rank *rank, uint32_t number) {
    const struct sched *s = rank->s;
    const struct sched_step *step = &s->steps[number];
    if (rank->done[number])
        return false;
    for (uint32_t i = 0; i < step->waits.count; i++)
        if (!rank->done[s->waits[step->waits.begin + i]])
            return false;
    for (uint32_t i = 0; i < number; i++) {
        const struct sched_step *other = &s->steps[i];
        if (rank->done[i] || other->lane != step->lane)
            continue;
        if ((other->type == SCHED_SEND && step->type == SCHED_SEND) ||
            (is_recv(other) && is_recv(step)) || overlap(run, rank, other->dst, step->dst) ||
            overlap(run, rank, other->dst, step->src) || overlap(run, rank, other->src, step->dst))
            return false;
    }
    return true;
}

/* The step of `rank` that sends to `peer` on a channel next, if it has come to that peer;
 * UINT32_MAX otherwise. Peers of one step are served in their order. */
static uint32_t ready_sender(const struct run *run, int rank, int peer, uint32_t channel) {
    const struct rank *r = &run->ranks[rank];
    for (uint32_t i = 0; i < r->s->nsteps; i++) {
        const struct sched_step *step = &r->s->steps[i];
        if (r->done[i] || step->type != SCHED_SEND || step->channel != channel)
            continue;
        for (uint32_t k = r->served[i]; k < step->peers.count; k++)
            if (r->s->peers[step->peers.begin + k] == peer)
                return k == r->served[i] && can_start(run, r, i) ? i : UINT32_MAX;
    }
    return UINT32_MAX;
}

static int64_t tree(enum operation operation, int64_t *values, uint32_t count) {
    for (uint32_t stride = 1; stride < count; stride *= 2)
        for (uint32_t i = 0; i + stride < count; i += 2 * stride)
            values[i] = combine(operation, values[i], values[i + stride]);
    return values[0];
}

/* Carries one message, if its sender has come to it. */
static bool try_carry(struct run *run, int rank, uint32_t number, uint32_t k) {
    struct rank *r = &run->ranks[rank];
    const struct sched_step *step = &r->s->steps[number];
    uint32_t entry = step->peers.begin + k, chunks = sched_list_chunks(r->s, step->dst);
    struct rank *from = &run->ranks[r->s->peers[entry]];
    uint32_t sender = ready_sender(run, r->s->peers[entry], rank, step->channel);
    if (r->arrived[entry] || sender == UINT32_MAX)
        return false;
    struct sched_list list = from->s->steps[sender].src;
    cr_assert_eq(sched_list_chunks(from->s, list), chunks);
    int64_t *to = r->arrived[entry] = malloc((chunks + 1) * (run->count + 1) * sizeof *to);
    cr_assert(to);
    for (uint32_t c = 0; c < chunks; c++) {
        size_t length, expected;
        const int64_t *src = chunk_at(run, from, list, c, &length);
        chunk_at(run, r, step->dst, c, &expected);
        cr_assert_eq(length, expected);
        memcpy(to, src, length * sizeof *to);
        to += length;
    }
    if (++from->served[sender] == from->s->steps[sender].peers.count)
        from->done[sender] = true;
    r->served[number]++;
    return true;
}

/* Combines what has arrived with the local operand. */
static void take_in(struct run *run, struct rank *r, const struct sched_step *step) {
    uint32_t chunks = sched_list_chunks(r->s, step->dst), npeers = step->peers.count;
    size_t offset = 0;
    for (uint32_t c = 0; c < chunks; c++) {
        size_t length, other;
        int64_t *dst = chunk_at(run, r, step->dst, c, &length);
        for (size_t e = 0; e < length; e++, offset++) {
            int64_t values[65];
            uint32_t operands = 0;
            for (uint32_t k = 0; k <= npeers; k++) {
                if (step->type == SCHED_RECV_REDUCE && k == step->position && step->src.count)
                    values[operands++] = chunk_at(run, r, step->src, c, &other)[e];
                if (k < npeers)
                    values[operands++] = r->arrived[step->peers.begin + k][offset];
            }
            dst[e] = tree(run->operation, values, operands);
        }
    }
    for (uint32_t k = 0; k < npeers; k++) {
        free(r->arrived[step->peers.begin + k]);
        r->arrived[step->peers.begin + k] = NULL;
    }
}

static bool try_recv(struct run *run, int rank, uint32_t number) {
    struct rank *r = &run->ranks[rank];
    const struct sched_step *step = &r->s->steps[number];
    bool moved = false;
    if (!can_start(run, r, number))
        return false;
    for (uint32_t k = 0; k < step->peers.count; k++)
        moved |= try_carry(run, rank, number, k);
    if (r->served[number] == step->peers.count) {
        take_in(run, r, step);
        r->done[number] = true;
    }
    return moved;
}

static bool try_local(struct run *run, int rank, uint32_t number) {
    struct rank *r = &run->ranks[rank];
    const struct sched_step *step = &r->s->steps[number];
    if (!can_start(run, r, number))
        return false;
    uint32_t chunks = sched_list_chunks(r->s, step->dst);
    uint32_t operands = step->type == SCHED_REDUCE ? step->operands : 1;
    for (uint32_t c = 0; c < chunks; c++) {
        size_t length, other;
        int64_t *dst = chunk_at(run, r, step->dst, c, &length);
        for (size_t e = 0; e < length; e++) {
            int64_t values[65];
            for (uint32_t k = 0; k < operands; k++)
                values[k] = chunk_at(run, r, step->src, k * chunks + c, &other)[e];
            dst[e] = tree(run->operation, values, operands);
        }
    }
    r->done[number] = true;
    return true;
}

static void walk(struct run *run, const char *name) {
    bool moved = true;
    while (moved) {
        moved = false;
        for (int r = run->n - 1; r >= 0; r--)
            for (uint32_t i = 0; i < run->ranks[r].s->nsteps; i++) {
                enum sched_step_type type = run->ranks[r].s->steps[i].type;
                if (type != SCHED_SEND && !run->ranks[r].done[i])
                    moved |= type == SCHED_COPY || type == SCHED_REDUCE ? try_local(run, r, i)
                                                                        : try_recv(run, r, i);
            }
    }
    for (int r = 0; r < run->n; r++)
        for (uint32_t i = 0; i < run->ranks[r].s->nsteps; i++)
            cr_assert(run->ranks[r].done[i], "%s %s: rank %d of %d, step %u never ends", name,
                      sched_kind_name(run->ranks[r].s->kind), r, run->n, i);
}

static bool at_root(const struct sched *s) {
    return s->rank == s->root;
}

/* Blocks of the buffers, as the kinds promise them. */
static size_t input_blocks(const struct sched *s) {
    switch (s->kind) {
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        return 1;
    case ROTA_KIND_BROADCAST:
    case ROTA_KIND_SCATTER:
        return at_root(s) ? s->blocks : 0;
    default:
        return s->blocks;
    }
}

static size_t output_blocks(const struct sched *s) {
    switch (s->kind) {
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_SCATTER:
        return 1;
    case ROTA_KIND_REDUCE:
    case ROTA_KIND_GATHER:
        return at_root(s) ? s->blocks : 0;
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return s->rank > 0;
    default:
        return s->blocks;
    }
}

static void start_rank(const struct run *run, struct rank *rank, const struct sched *s) {
    size_t blocks = s->blocks ? s->blocks : 1;
    rank->s = s;
    rank->input = calloc(blocks * run->count + 1, sizeof(int64_t));
    rank->output = s->in_place ? NULL : calloc(blocks * run->count + 1, sizeof(int64_t));
    rank->scratch = calloc((s->scratch_chunks + 1) * (run->count + 1), sizeof(int64_t));
    rank->done = calloc(s->nsteps + 1, sizeof(bool));
    rank->served = calloc(s->nsteps + 1, sizeof(uint32_t));
    rank->arrived = calloc(s->npeers + 1, sizeof(int64_t *));
    cr_assert(rank->input && rank->scratch && rank->done && rank->served && rank->arrived);
    size_t own = (size_t)s->rank * run->count;
    if (s->in_place) { /* one buffer of the larger size */
        rank->output = rank->input;
        if (s->kind == ROTA_KIND_ALL_GATHER || (s->kind == ROTA_KIND_GATHER && at_root(s)))
            rank->input += own;
        if (s->kind == ROTA_KIND_REDUCE_SCATTER || (s->kind == ROTA_KIND_SCATTER && at_root(s)))
            rank->output += own;
    }
    for (size_t i = 0; i < input_blocks(s) * run->count; i++)
        rank->input[i] = input_value(s->rank, i);
}

static void end_rank(struct rank *rank) {
    int64_t *first = rank->input < rank->output ? rank->input : rank->output;
    if (!rank->s->in_place) {
        free(rank->output);
        first = rank->input;
    }
    free(first);
    free(rank->scratch);
    free(rank->done);
    free(rank->served);
    free(rank->arrived);
}

static int64_t expected_reduction(const struct run *run, int ranks, size_t element) {
    if (run->operation == LEFTMOST)
        return input_value(0, element);
    if (run->operation == RIGHTMOST)
        return input_value(ranks - 1, element);
    int64_t sum = 0;
    for (int r = 0; r < ranks; r++)
        sum = combine(SUM, sum, input_value(r, element));
    return sum;
}

static int64_t expected(const struct run *run, const struct sched *s, size_t element) {
    size_t block = run->count ? element / run->count : 0, own = (size_t)s->rank * run->count;
    switch (s->kind) {
    case ROTA_KIND_BROADCAST:
        return input_value(s->root, element);
    case ROTA_KIND_SCATTER:
        return input_value(s->root, own + element);
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_GATHER:
        return input_value((int)block, element % run->count);
    case ROTA_KIND_ALL_TO_ALL:
        return input_value((int)block, own + element % run->count);
    case ROTA_KIND_REDUCE_SCATTER:
        return expected_reduction(run, run->n, own + element);
    case ROTA_KIND_SCAN:
        return expected_reduction(run, s->rank + 1, element);
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return expected_reduction(run, s->rank, element);
    default:
        return expected_reduction(run, run->n, element);
    }
}

static void check_rank(const struct run *run, const struct rank *rank, const char *name) {
    const struct sched *s = rank->s;
    size_t outputs = output_blocks(s) * run->count;
    for (size_t i = 0; i < outputs; i++)
        cr_assert_eq(rank->output[i], expected(run, s, i),
                     "%s %s: %zu elements, rank %d of %d, root %d, in place %d, element %zu", name,
                     sched_kind_name(s->kind), run->count, s->rank, s->nranks, s->root, s->in_place,
                     i);
    size_t inputs = s->in_place ? 0 : input_blocks(s) * run->count;
    for (size_t i = 0; i < inputs; i++)
        cr_assert_eq(rank->input[i], input_value(s->rank, i), "%s %s wrote its input", name,
                     sched_kind_name(s->kind));
}

static void interpret(struct sched *const *schedules, int n, size_t count, enum operation operation,
                      const char *name) {
    struct rank ranks[16];
    struct run run = {n, count, operation, ranks};
    for (int r = 0; r < n; r++)
        start_rank(&run, &ranks[r], schedules[r]);
    walk(&run, name);
    for (int r = 0; r < n; r++)
        check_rank(&run, &ranks[r], name);
    for (int r = 0; r < n; r++)
        end_rank(&ranks[r]);
}

static void interpret_case(const struct algorithm *a, rota_kind kind, int n, int root, int in_place,
                           const struct algorithm_topology *topology) {
    static const size_t counts[] = {0, 1, 7, 641};
    struct sched *schedules[16];
    for (int r = 0; r < n; r++) {
        struct algorithm_request q = {
            kind, n, r, root, in_place == 1 || (in_place == 2 && r % 2), 1, topology};
        cr_assert_eq(algorithm_build(a, &q, &schedules[r]), ROTA_OK);
    }
    struct sched_verdict verdict;
    cr_assert_eq(sched_verify(schedules, n, NULL, &verdict), ROTA_OK);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        interpret(schedules, n, counts[c], SUM, a->name);
        if (verdict.ascending && sched_kind_reduces(kind)) {
            interpret(schedules, n, counts[c], LEFTMOST, a->name);
            interpret(schedules, n, counts[c], RIGHTMOST, a->name);
        }
    }
    for (int r = 0; r < n; r++)
        sched_free(schedules[r]);
}

/* Hosts of any size, and ranks in any order. */
Test(interpreter, hierarchical_computes_what_the_kind_promises) {
    static const int rows[][7] = {
        {0, 0, 1, 1, 2, 2, 0}, {0, 1, 1, 1, 1, 0, 1}, {2, 0, 1, 2, 0, 1, 2}};
    const struct algorithm *a = algorithm_find("hierarchical");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int n = 4; n <= 7; n++)
            for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
                const struct algorithm_topology topology = {i == 1 ? 2 : 3, rows[i], NULL};
                bool rooted = sched_kind_rooted((rota_kind)kind);
                for (int root = rooted ? 0 : -1; root < (rooted ? n : 0); root++)
                    if (algorithm_can(a, (rota_kind)kind, n))
                        interpret_case(a, (rota_kind)kind, n, root, root % 3 + (root < 0),
                                       &topology);
            }
}

Test(interpreter, computes_what_the_kind_promises) {
    const struct algorithm *a;
    for (int i = 0; (a = algorithm_at(i)); i++)
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
            for (int n = 1; n <= 9; n++) {
                if (!algorithm_can(a, (rota_kind)kind, n))
                    continue;
                bool rooted = sched_kind_rooted((rota_kind)kind);
                for (int root = rooted ? 0 : -1; root < (rooted ? n : 0); root += 2)
                    for (int in_place = 0; in_place < 3; in_place++)
                        interpret_case(a, (rota_kind)kind, n, root, in_place, NULL);
            }
}

static uint32_t pick(uint64_t *state, uint32_t below) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return below ? (uint32_t)(*state >> 33) % below : 0;
}

/* One random change to a random step of a random rank. */
static void mutate(struct sched *const *ranks, int n, uint64_t *state) {
    struct sched *s = ranks[pick(state, (uint32_t)n)];
    if (s->nsteps < 2)
        return;
    uint32_t a = pick(state, s->nsteps), b = pick(state, s->nsteps);
    struct sched_step *step = &s->steps[a], other = s->steps[b];
    bool move = pick(state, 2);
    struct sched_list list = pick(state, 2) ? step->src : step->dst;
    switch (pick(state, 6)) {
    case 0: /* swap two steps, or move one next to another */
        if (move && a + 1 < s->nsteps)
            other = s->steps[b = a + 1];
        s->steps[b] = *step;
        *step = other;
        break;
    case 1: /* drop a step */
        memmove(step, step + 1, (s->nsteps - a - 1) * sizeof *step);
        s->nsteps--;
        break;
    case 2: /* another chunk */
        if (list.count)
            s->ranges[list.begin].first = pick(state, (uint32_t)n);
        break;
    case 3: /* another buffer */
        if (list.count)
            s->ranges[list.begin].buffer = (enum sched_buffer)pick(state, 3);
        break;
    case 4: /* another peer */
        if (step->peers.count)
            s->peers[step->peers.begin] = (int)pick(state, (uint32_t)n);
        break;
    default:
        step->position = pick(state, 3);
    }
}

/* The verifier may refuse what happens to work, never the reverse: random mutants that it proves
 * must compute the right result. */
Test(interpreter, agrees_with_every_proof) {
    uint64_t state = 7;
    int proven = 0, refused = 0, count = 0;
    const struct algorithm *a;
    while (algorithm_at(count))
        count++;
    for (int round = 0; round < 40000; round++) {
        a = algorithm_at((int)pick(&state, (uint32_t)count));
        rota_kind kind = (rota_kind)pick(&state, ROTA_KIND_COUNT);
        int n = (int)pick(&state, 3) + 2, root = -1, in_place = (int)pick(&state, 3);
        if (kind == ROTA_KIND_BARRIER || !algorithm_can(a, kind, n))
            continue;
        if (sched_kind_rooted(kind))
            root = (int)pick(&state, (uint32_t)n);
        struct sched *ranks[4];
        for (int r = 0; r < n; r++) {
            struct algorithm_request q = {
                kind, n, r, root, in_place == 1 || (in_place == 2 && r % 2), 1, NULL};
            cr_assert_eq(algorithm_build(a, &q, &ranks[r]), ROTA_OK);
        }
        for (uint32_t changes = pick(&state, 3) + 1; changes; changes--)
            mutate(ranks, n, &state);
        struct sched_verdict verdict;
        cr_assert_eq(sched_verify(ranks, n, NULL, &verdict), ROTA_OK);
        if (verdict.fault == SCHED_FAULT_NONE) {
            interpret(ranks, n, 7, SUM, a->name);
            if (verdict.ascending && sched_kind_reduces(kind))
                interpret(ranks, n, 7, LEFTMOST, a->name);
            proven++;
        } else {
            refused++;
        }
        for (int r = 0; r < n; r++)
            sched_free(ranks[r]);
    }
    cr_expect(proven > 1000 && refused > 5000, "%d proven, %d refused", proven, refused);
}
