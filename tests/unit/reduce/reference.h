/* An independent implementation of the reductions, element by element and in plain C, to compare
 * the kernels with. */
#ifndef TESTS_REDUCE_REFERENCE_H
#define TESTS_REDUCE_REFERENCE_H

#include "reduce/reduce.h"

/* A raw element or a partial, in the least significant bytes. */
__extension__ typedef unsigned __int128 bits;

bits reference_load(const void *data, size_t index, size_t size);

/* Element `index` of the reduction: raw operands of dtype or partials, as flagged; the result is
 * finished or a partial. */
bits reference_reduce(rota_dtype dtype, rota_op op, int nranks,
                      const struct reduce_operand *operands, size_t noperands, size_t index,
                      bool finish);

/* Whether both are the same bits; of partials, whether they read as the same, since their NaNs may
 * have any payload and a lone operand may be stored as it is. */
bool reference_same(rota_dtype dtype, rota_op op, bool finish, bits expected, bits value);

/* Conversions by value, from the formats' definitions. */
double reference_half_value(uint16_t half);
uint16_t reference_half_round(double value);
double reference_brain_value(uint16_t brain);
uint16_t reference_brain_round(double value);
double reference_e4m3_value(uint8_t number);
uint8_t reference_e4m3_round(double value);
double reference_e5m2_value(uint8_t number);
uint8_t reference_e5m2_round(double value);

/* A reproducible source of numbers. */
uint64_t reference_random(uint64_t *state);
/* An operand's bits: for floating types numbers over some binades, now and then something special
 * (zeros of both signs, subnormals, infinities, NaNs). */
bits reference_sample(rota_dtype dtype, rota_op op, bool partial, uint64_t *state);

#endif
