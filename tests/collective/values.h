/* Inputs whose exact result does not depend on the order in which it is reduced, and that result.
 * An element is a pure function of (salt, rank, index), so every rank knows what all others hold.
 */
#ifndef TESTS_COLLECTIVE_VALUES_H
#define TESTS_COLLECTIVE_VALUES_H

#include <rota/types.h>

/* In place of an operator: the element is only moved, any bits will do. */
#define VALUE_MOVED ROTA_OP_COUNT
#define VALUE_MAX_RANKS 64

uint64_t value_mix(uint64_t number);
/* Writes element `index` of rank's input. */
void value_input(rota_dtype dtype, rota_op op, uint64_t salt, int rank, size_t index,
                 void *element);
/* Writes the element that reducing all ranks' elements `index` gives. */
void value_expected(rota_dtype dtype, rota_op op, uint64_t salt, int nranks, size_t index,
                    void *element);

#endif
