/* Datatypes and reduction kernels.
 *
 * A kernel combines k operands element by element in the aligned binary tree over operand
 * positions (node(i, j) = node(i, j-1) op node(i + 2^(j-1), j-1), absent positions drop out), so
 * the bits of a result depend on the operands alone: not on instruction set, alignment, count or
 * position of the element in the vector body or tail.
 *
 * A *partial* of sum, product or average has the accumulation type: float for float8, float16 and
 * bfloat16, 64-bit integers of the same signedness for averages of 8-, 16- and 32-bit integers,
 * else the type itself; partials of all other operators are the type itself. */
#ifndef REDUCE_REDUCE_H
#define REDUCE_REDUCE_H

#include "base/cpu.h"
#include "reduce/team.h"
#include <rota/operator.h>

/* What stands behind rota_op: one of its numbers, or an operator that was created. */
enum reduce_form { REDUCE_BUILTIN, REDUCE_PRE_MUL_SUM, REDUCE_USER };

/* Chosen once per (dtype, op); plain data, copyable, independent of the operator it was made from.
 *
 * Who chooses a schedule must look at two promises of user operators, which hold in every mode:
 * `canonical` asks for the aligned binary tree over rank numbers, and `ordered` for lower ranks on
 * the left of every combination. Whoever reduces operands of several ranks by reduce_run gives
 * them in the order of the ranks; reduce_pair takes the lower rank left where `ordered`. */
struct reduce_spec {
    rota_dtype dtype;
    rota_op op;
    int nranks; /* divisor of averages */
    enum cpu_isa isa;
    size_t element_size, partial_size;
    const struct reduce_kernels *kernels; /* of a premultiplied sum those of the sum; NULL of a user
                                             operator */
    enum reduce_form form;
    bool canonical, ordered;
    struct reduce_team *team; /* takes part in large reductions; NULL: none */
    union {
        struct {
            rota_op_fn function;
            void *arg;
        } user;
        _Alignas(16) unsigned char scalar[16]; /* a partial */
    };
};

struct reduce_operand {
    const void *data;
    bool partial; /* else raw elements, widened when read */
};

/* Fills a spec. isa: what the caller wants, at most what the machine has. Errors:
 * ROTA_ERR_ARGUMENT for an unknown type, operator or isa, and for an operator that means nothing
 * for the type, naming both. */
rota_status reduce_spec_init(struct reduce_spec *spec, rota_dtype dtype, rota_op op, int nranks,
                             enum cpu_isa isa);
/* A sum of elements times *scalar, of scalar_dtype: the type itself, or float32 for types with
 * partials of that type. */
rota_status reduce_spec_init_pre_mul_sum(struct reduce_spec *spec, rota_dtype dtype,
                                         const void *scalar, rota_dtype scalar_dtype, int nranks,
                                         enum cpu_isa isa);
/* The caller's own operator, on any type. */
rota_status reduce_spec_init_user(struct reduce_spec *spec, rota_dtype dtype, rota_op_fn function,
                                  void *arg, bool commutative, enum cpu_isa isa);
/* Whether sums, products and averages of the type are taken in float32: float8, float16, bfloat16.
 */
bool reduce_is_narrow(rota_dtype dtype);
size_t reduce_partial_size(rota_dtype dtype, rota_op op);

/* dst[i] = operands[0][i] op ... op operands[n-1][i] for i < count. With `finish` dst holds
 * elements (divided for averages, rounded once, NaN made canonical), else partials. dst may be
 * exactly one of the operands when their element sizes agree; otherwise no overlap. Pointers are
 * aligned to their own elements only. noperands >= 1. The process's floating-point state is not
 * touched. */
void reduce_run(const struct reduce_spec *spec, void *dst, bool finish,
                const struct reduce_operand *operands, size_t noperands, size_t count);

/* Copies into memory whose lines another core has read last, or holds: by the processor's string
 * move where that is fast, since it takes whole lines over without fetching them. Measured between
 * two cores of an EPYC (Zen 5): 44 GB/s against 8 GB/s by vector stores. */
void reduce_publish(enum cpu_isa isa, void *dst, const void *src, size_t bytes);
/* The same, told whether who reads it runs on another thread of this core: long string moves pass
 * its caches by, which is what a far reader wants, and costs a near one what they would have kept.
 */
void reduce_hand_over(enum cpu_isa isa, bool near, void *dst, const void *src, size_t bytes);

/* Copies bytes another core has probably just written: wide loads with a prefetch ahead. */
void reduce_copy(enum cpu_isa isa, void *dst, const void *src, size_t bytes);

/* The same past the caches, which the result would only flush: for outputs larger than these. */
void reduce_stream(enum cpu_isa isa, void *dst, const void *src, size_t bytes);

/* Two-operand kernel of raw elements with finish that writes its result to two places in one pass
 * (dst2 may be NULL): the inner loop of two-shot all-reduce. */
void reduce_pair(const struct reduce_spec *spec, void *dst, void *dst2, const void *left,
                 const void *right, size_t count);

#endif
