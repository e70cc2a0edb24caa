/* k-nomial trees over a list of ranks: parts of several algorithms. */
#ifndef ALGORITHMS_TREE_H
#define ALGORITHMS_TREE_H

#include "algorithms/ranges.h"
#include "schedule/builder.h"

enum { TREE_MAX_RADIX = 4, TREE_MAX_CHILDREN = 48 };

struct tree {
    uint32_t n, self, root; /* members, and positions among them */
    uint32_t radix;         /* 2 .. TREE_MAX_RADIX */
    const int *ranks;       /* by position; NULL: positions are ranks */
};

/* Least number of levels that reach n members. */
uint32_t tree_levels(uint32_t n, uint32_t radix);
/* Children of the root when that is position 0: no other member has more, whatever the root. */
uint32_t tree_children(uint32_t n, uint32_t radix);

/* Combines the `value` of all members at the root, in the aligned tree over positions. `raw` says
 * that values are inputs, else partials. The root stores to `result`, with SCHED_FINISH if that is
 * given; other members, and it on the way, use `partial`: a scratch chunk that is allocated when
 * its count is 0 and it is needed. There are at least two members. */
struct tree_reduction {
    struct sched_range value, partial, result;
    bool raw;
    uint32_t finish;
};
void tree_reduce(const struct tree *t, struct sched_builder *b, struct tree_reduction *what);

/* From the root's `source` to everybody else's `target`. */
void tree_broadcast(const struct tree *t, struct sched_builder *b, struct sched_range source,
                    struct sched_range target);

/* gather and scatter of one chunk per rank, as the kinds number them; positions are ranks. `list`
 * has room for n chunks. */
void tree_gather(const struct tree *t, struct sched_builder *b, struct ranges *list, bool in_place);
void tree_scatter(const struct tree *t, struct sched_builder *b, struct ranges *list,
                  bool in_place);
/* Most blocks in one of their messages, and most scratch. */
uint32_t tree_widest(uint32_t n, uint32_t radix);

/* Barrier, first half: tokens rise to the root. At the root `heard` receives the steps after which
 * all members have entered. Receives are in lane 1, sends in lane 0. */
struct tree_tokens {
    uint32_t steps[TREE_MAX_CHILDREN];
    uint32_t count;
};
void tree_tokens_up(const struct tree *t, struct sched_builder *b, struct tree_tokens *heard);
/* Second half: tokens come down, at the root after the steps of `heard`. */
void tree_tokens_down(const struct tree *t, struct sched_builder *b,
                      const struct tree_tokens *heard);

#endif
