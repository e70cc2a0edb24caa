/* Scans by recursive doubling. Before level k a rank has the *total* of its aligned block of 2^k
 * ranks and the *prefix* of those of them up to itself (of exclusive_scan: below itself). Blocks
 * pair up; the left one sends its total to the right one, where it comes left of the prefix:
 *
 *     n = 6      0   1    2    3     4    5
 *     level 0       01        23         45       rank 1 has 0 + 1, 3 has 2 + 3, 5 has 4 + 5
 *     level 1            012  0123                ranks 2 and 3 put 01 in front
 *     level 2                       0..4  0..5    ranks 4 and 5 put 0123 in front
 *
 * So each prefix is the canonical tree over its ranks. The right total goes back only where there
 * are ranks beyond both, which will need the sum of both; the last block may be cut short, but then
 * nobody needs its total. */
#include "algorithms/scan.h"

struct scan {
    struct sched_builder *b;
    bool exclusive;
    uint32_t slot;
    uint32_t n, rank;
    struct sched_range total, prefix; /* prefix.count 0: nobody is below yet */
    bool raw;                         /* the prefix is the input */
    uint32_t sums;                    /* totals computed: they alternate between two places */
};

enum { TOTALS = 0, PREFIX = 2, RECEIVED = 3 };

static struct sched_range place(const struct scan *s, uint32_t which) {
    return sched_scratch(s->slot + which, 1, 0);
}

static struct sched_range next_total(struct scan *s) {
    return place(s, TOTALS + s->sums++ % 2);
}

/* Puts the received total, which is in scratch, in front of the prefix. */
static void extend_from_scratch(struct scan *s, bool received_raw, bool last) {
    struct sched_range operands[2] = {place(s, RECEIVED), s->prefix};
    struct sched_range result = last ? sched_output(0, 1) : place(s, PREFIX);
    uint32_t finish = last ? SCHED_FINISH : 0, count = s->prefix.count ? 2 : 1;
    if (count == 2 && s->raw && !received_raw) { /* operands of one step are alike */
        sched_reduce(s->b, &s->prefix, 1, place(s, PREFIX), SCHED_LOAD_LOCAL);
        operands[1] = place(s, PREFIX);
    }
    sched_reduce(s->b, operands, count, result, finish | (received_raw ? SCHED_LOAD_LOCAL : 0u));
    s->prefix = result;
    s->raw = false;
}

static void extend_from_message(struct scan *s, int from, bool received_raw, bool last) {
    struct sched_range result = last ? sched_output(0, 1) : place(s, PREFIX);
    uint32_t flags = (received_raw ? SCHED_LOAD_MESSAGE : 0u) | (last ? SCHED_FINISH : 0u);
    bool local = s->prefix.count > 0;
    sched_recv_reduce_list(s->b, &from, 1, 1, &s->prefix, local ? 1 : 0, &result, 1,
                           flags | (local && s->raw ? SCHED_LOAD_LOCAL : 0u));
    s->prefix = result;
    s->raw = false;
}

static void left_level(struct scan *s, uint32_t size, bool needed) {
    int partner = (int)(s->rank + size);
    bool raw = size == 1;
    sched_send(s->b, partner, s->total, raw ? 0 : SCHED_PARTIAL);
    if (!needed)
        return;
    struct sched_range sum = next_total(s);
    sched_recv_reduce(s->b, partner, s->total, false, sum,
                      raw ? SCHED_LOAD_MESSAGE | SCHED_LOAD_LOCAL : 0u);
    s->total = sum;
}

static void right_level(struct scan *s, uint32_t size, bool needed) {
    int partner = (int)(s->rank - size);
    bool raw = size == 1, last = s->rank / size == 1; /* the highest bit of the rank */
    if (!needed) {
        extend_from_message(s, partner, raw, last);
        return;
    }
    sched_send(s->b, partner, s->total, raw ? 0 : SCHED_PARTIAL);
    sched_recv(s->b, partner, place(s, RECEIVED), raw ? 0 : SCHED_PARTIAL);
    struct sched_range operands[2] = {place(s, RECEIVED), s->total}, sum = next_total(s);
    sched_reduce(s->b, operands, 2, sum, raw ? SCHED_LOAD_LOCAL : 0u);
    s->total = sum;
    extend_from_scratch(s, raw, last);
}

void scan_build(const struct algorithm_request *q, struct sched_builder *b) {
    struct sched_range input = sched_input(0, 1);
    struct scan s = {.b = b,
                     .exclusive = q->kind == ROTA_KIND_EXCLUSIVE_SCAN,
                     .n = (uint32_t)q->nranks,
                     .rank = (uint32_t)q->rank,
                     .total = input,
                     .raw = true};
    s.slot = sched_alloc_scratch(b, SCAN_SCRATCH);
    if (!s.exclusive)
        s.prefix = input;
    for (uint32_t size = 1; size < s.n; size *= 2) {
        uint32_t end = (s.rank / (2 * size) + 1) * (2 * size); /* of the merged block */
        if (s.rank & size)
            right_level(&s, size, end < s.n);
        else if (s.rank + size < s.n)
            left_level(&s, size, end < s.n);
    }
    if (s.rank == 0 && !s.exclusive)
        sched_reduce(b, &input, 1, sched_output(0, 1), SCHED_LOAD_LOCAL | SCHED_FINISH);
}
