/* Reduction operators that the caller makes.
 *
 * An operator belongs to one communicator and is given to its collectives in place of ROTA_SUM and
 * the like. Making and freeing one is local and sends nothing; each rank of a call passes its own
 * handle, and the call compares what must agree (below). An operator may be freed as soon as the
 * calls that use it have been started; those that are left go with their communicator. */
#ifndef ROTA_OPERATOR_H
#define ROTA_OPERATOR_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* right_inout[i] = left[i] op right_inout[i] for i < count. `left` holds lower ranks than
 * `right_inout`. Both are aligned as dtype asks, or to nothing for rota_dtype_bytes; they do not
 * overlap. It is called in any thread of the library or of the caller, perhaps in several at once,
 * must not block and must not call the library. */
typedef void (*rota_op_fn)(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                           void *arg);

/* An operator of the caller's. It must be associative. The order of ranks is kept, and terms are
 * combined in the aligned binary tree over rank numbers, as in mode `reproducible`, in every mode;
 * `commutative` lets an algorithm swap the sides of a combination, so that more of them will do.
 * Elements of all types and of rota_dtype_bytes are taken, results are left as the function gives
 * them, and `function` and `arg` must live as long as calls that use the operator.
 *
 * All ranks of a call must agree on `commutative` and on `name`, at most 31 bytes; where name is
 * NULL, on how many nameless operators their communicator had made before. A difference is
 * ROTA_ERR_MISMATCH. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_op_create(rota_op_fn function, void *arg, bool commutative,
                                    const char *name, rota_comm *comm, rota_op *op);

/* The sum of all ranks' elements, each multiplied by *scalar first, as ncclRedOpCreatePreMulSum.
 * The product of a narrow type (float8, float16, bfloat16) is taken in float32 and not rounded to
 * the type: a result is rounded once. `scalar` is host memory and copied.
 *
 * The operator takes elements of `dtype`: an integer, floating or complex type. Where dtype is
 * ROTA_FLOAT32 it takes the narrow types too, so that a factor such as 1/n keeps its precision.
 * All ranks of a call must have the same scalar, to the bit, and the same dtype; else
 * ROTA_ERR_MISMATCH. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_op_create_pre_mul_sum(const void *scalar, rota_dtype dtype,
                                                rota_comm *comm, rota_op *op);

/* Frees an operator of the communicator. Errors: ROTA_ERR_ARGUMENT when it has no such one. */
ROTA_API rota_status rota_op_free(rota_op op, rota_comm *comm);

/* right_inout[i] = left[i] op right_inout[i] for i < count, in this process alone, as
 * MPI_Reduce_local: the step of which reductions over ranks are made. Results of narrow types are
 * rounded once per call. Both buffers are host memory, count elements each, and do not overlap.
 * Takes the built-in operators but ROTA_AVG, which divides by a number of ranks, and those made by
 * rota_op_create. With ROTA_CORES above 1 large calls are spread over as many cores. Any thread,
 * also several at once. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_reduce_local(const void *left, void *right_inout, size_t count,
                                       rota_dtype dtype, rota_op op, rota_comm *comm);

#ifdef __cplusplus
}
#endif
#endif
