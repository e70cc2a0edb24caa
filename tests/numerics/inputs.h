/* Inputs whose sums depend on their order, and the value of the canonical tree over them, computed
 * here and not by the library. */
#ifndef TESTS_NUMERICS_INPUTS_H
#define TESTS_NUMERICS_INPUTS_H

#include <rota/types.h>

/* Element `index` of a rank: of either sign, over ten binades. A pure function of its arguments. */
double input_value(rota_dtype dtype, int rank, size_t index);
/* Writes the elements [first, first + count) of a rank. */
void input_fill(void *to, rota_dtype dtype, int rank, size_t first, size_t count);
/* One element: the aligned binary tree over the ranks 0 .. nranks - 1, each sum rounded to the
 * accumulation type (float32, or float64 of float64), the last one to the type. op: sum or avg. */
void input_tree(void *to, rota_dtype dtype, rota_op op, int nranks, size_t index);

#endif
