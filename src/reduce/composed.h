/* Reductions that are put together from other kernels or the caller's function. */
#ifndef REDUCE_COMPOSED_H
#define REDUCE_COMPOSED_H

#include "reduce/reduce.h"

/* reduce_run for operators that were created. */
void reduce_composed(const struct reduce_spec *spec, void *dst, bool finish,
                     const struct reduce_operand *operands, size_t noperands, size_t count);

#endif
