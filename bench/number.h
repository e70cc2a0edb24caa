/* Numbers of all element types as double or 64-bit integers, independent of the library's own
 * conversions so that the check does not repeat their faults. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <rota/rota.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

bool number_is_float(rota_dtype dtype);
bool number_is_signed(rota_dtype dtype);

/* A fixed random function of two numbers. */
uint64_t number_random(uint64_t stream, uint64_t index);

/* Cuts to the width of an integer type (or of any type's bits, without sign); sign-extends. */
uint64_t number_integer(uint64_t bits, rota_dtype dtype);
/* The value of a floating-point type with these bits; Inf instead of a NaN. Exact. */
double number_from_bits(uint64_t bits, rota_dtype dtype);
/* a < b with -0 < +0. Neither is NaN. */
bool number_less(double a, double b);

/* Rounds to nearest even. */
void number_encode_floats(const double *values, size_t count, rota_dtype dtype, void *data);
void number_encode_integers(const uint64_t *values, size_t count, size_t element, void *data);

#endif
