/* Vector types of VECTOR_BYTES bytes and what the kernel templates need to speak of them. Included
 * by the files of the instruction sets, which define VECTOR_BYTES first. */
#ifndef REDUCE_VECTORS_H
#define REDUCE_VECTORS_H

#include "kernels.h"
#include <string.h>

#define INLINE inline __attribute__((always_inline))
#define REDUCE_CAT_(a, b) a##b
#define REDUCE_CAT(a, b) REDUCE_CAT_(a, b)
#define REDUCE_CAT3_(a, b, c) a##b##c
#define REDUCE_CAT3(a, b, c) REDUCE_CAT3_(a, b, c)

/* How far ahead of the right operand lines are asked for: measured best for lines that another
 * core has just written (19-20 GB/s against 10-18 without). */
#define PREFETCH_BYTES 1024

/* Lane by lane: a where the mask is all ones, b where it is zero. Integer vectors. */
#define SELECT(mask, a, b) (((__typeof__(a))(mask) & (a)) | (~((__typeof__(a))(mask)) & (b)))

typedef uint64_t v_u64 __attribute__((vector_size(VECTOR_BYTES)));
typedef int64_t v_s64 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint32_t v_u32 __attribute__((vector_size(VECTOR_BYTES)));
typedef uint16_t v_u16 __attribute__((vector_size(VECTOR_BYTES / 2))); /* as many as v_f32 */
typedef float v_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double v_f64 __attribute__((vector_size(VECTOR_BYTES)));

#endif
