/* Reduction expressions, stored once each: two values have the same number exactly when they are
 * the same tree over the same inputs, so comparing, counting and ordering operands costs nothing
 * however often a value is passed on. Leaves are the input chunks of all ranks. */
#ifndef SCHEDULE_EXPRESSION_H
#define SCHEDULE_EXPRESSION_H

#include <rota/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPRESSION_NONE UINT32_MAX
/* In place of the right operand: the left one, rounded to its type. */
#define EXPRESSION_ROUNDED (UINT32_MAX - 1)

struct expression {
    uint32_t left, right;     /* EXPRESSION_NONE for leaves */
    uint32_t lowest, highest; /* ranks of the leaves; of a leaf its rank */
    uint32_t chunk;           /* global chunk of all leaves, UINT32_MAX when they differ */
    uint32_t leaves;          /* saturates at UINT32_MAX */
    uint32_t depth;           /* additions between the farthest leaf and the value */
    uint32_t roundings;       /* most of them between a leaf and the value */
    bool ascending;           /* leaves from left to right in strictly ascending rank order */
};

struct expressions {
    struct expression *nodes;
    uint32_t count, room;
    uint32_t *table; /* open addressing over the nodes that are no leaves */
    uint32_t slots, used;
};

void expressions_free(struct expressions *all);
/* Appends a leaf. EXPRESSION_NONE: no memory. */
uint32_t expression_leaf(struct expressions *all, uint32_t rank, uint32_t chunk);
/* The one node with these operands, made if it is new. EXPRESSION_NONE: no memory. */
uint32_t expression_combine(struct expressions *all, uint32_t left, uint32_t right);
/* A value rounded; itself where it is a leaf or rounded already. EXPRESSION_NONE: no memory. */
uint32_t expression_round(struct expressions *all, uint32_t node);
/* As combine, but EXPRESSION_NONE if nobody has made it. */
uint32_t expression_find(const struct expressions *all, uint32_t left, uint32_t right);
/* Whether the leaves are the ranks 0..nranks-1, each once. `seen` holds nranks bytes. */
bool expression_is_complete(const struct expressions *all, uint32_t node, uint32_t nranks,
                            uint8_t *seen);

#endif
