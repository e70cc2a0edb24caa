/* The kernels of one (datatype, operator, instruction set), as the dispatcher sees them. Each
 * instruction set has one table; a file that its compiler flags do not fit defines none. */
#ifndef REDUCE_KERNELS_H
#define REDUCE_KERNELS_H

#include "reduce/reduce.h"

#if defined(__x86_64__)
#define REDUCE_HAVE_X86 1
#else
#define REDUCE_HAVE_X86 0
#endif
#if defined(__aarch64__)
#define REDUCE_HAVE_NEON 1
#else
#define REDUCE_HAVE_NEON 0
#endif

typedef void (*reduce_single_fn)(void *dst, const void *src, size_t count, int nranks);
typedef void (*reduce_pair_fn)(void *dst, const void *left, const void *right, size_t count,
                               int nranks);
typedef void (*reduce_two_fn)(void *dst, void *dst2, const void *left, const void *right,
                              size_t count, int nranks);
typedef void (*reduce_quad_fn)(void *dst, const void *const operands[4], size_t count, int nranks);

typedef void (*reduce_scale_fn)(void *dst, const void *src, size_t count, const void *scalar);

/* Indices: whether an operand is partial, then whether the result is finished. */
struct reduce_kernels {
    reduce_single_fn single[2][2]; /* NULL: the bytes are copied */
    reduce_pair_fn pair[2][2][2];
    reduce_quad_fn quad[2][2]; /* all operands of one kind: (0 op 1) op (2 op 3) */
    reduce_two_fn two;         /* raw operands, finished result, two destinations */
    /* Of a product only, and NULL where there is none: raw operand times scalar, a partial. */
    reduce_scale_fn scale;
};

/* NULL: the operator means nothing for the type. */

typedef const struct reduce_kernels *reduce_table[ROTA_DTYPE_COUNT][ROTA_OP_COUNT];

/* The kernel that premultiplies, NULL where the type has none. */
reduce_scale_fn reduce_scale_of(rota_dtype dtype, enum cpu_isa isa);

extern const reduce_table reduce_table_scalar;
void reduce_copy_scalar(void *dst, const void *src, size_t bytes);
#if REDUCE_HAVE_X86
extern const reduce_table reduce_table_avx2;
extern const reduce_table reduce_table_avx512;
/* Of bfloat16, on a processor that has AVX512_BF16 besides and on any; NULL: the table's serve. */
const struct reduce_kernels *reduce_kernels_avx512_bf16(rota_op op);
const struct reduce_kernels *reduce_kernels_avx512_by_hand(rota_op op);
void reduce_copy_avx2(void *dst, const void *src, size_t bytes);
void reduce_copy_avx512(void *dst, const void *src, size_t bytes);
#endif
#if REDUCE_HAVE_NEON
extern const reduce_table reduce_table_neon;
void reduce_copy_neon(void *dst, const void *src, size_t bytes);
#endif

#endif
