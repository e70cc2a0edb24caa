/* Numbers of all element types as double or 64-bit integers, independent of the library's own
 * conversions so that the check does not repeat their faults. */
#ifndef BENCH_NUMBER_H
#define BENCH_NUMBER_H

#include <rota/rota.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What elements of a type are made of. */
enum number_class {
    NUMBER_INTEGER,
    NUMBER_FLOAT,
    NUMBER_COMPLEX,
    NUMBER_TRUTH,
    NUMBER_FLOAT_PAIR,  /* a floating value and an index */
    NUMBER_INTEGER_PAIR /* an integer value and an index */
};
enum number_class number_class(rota_dtype dtype);
bool number_is_float(rota_dtype dtype);
bool number_is_signed(rota_dtype dtype);
/* The type of the parts of a complex one, of the value of a pair. */
rota_dtype number_part(rota_dtype dtype);

/* A fixed random function of two numbers. */
uint64_t number_random(uint64_t stream, uint64_t index);

/* Cuts to the width of an integer type (or of any type's bits, without sign); sign-extends. */
uint64_t number_integer(uint64_t bits, rota_dtype dtype);
/* The value of a floating-point type with these bits; Inf, or the largest number where there is no
 * Inf, instead of a NaN. Exact. */
double number_from_bits(uint64_t bits, rota_dtype dtype);
/* a < b with -0 < +0. Neither is NaN. */
bool number_less(double a, double b);

/* Rounds to nearest even. */
void number_encode_floats(const double *values, size_t count, rota_dtype dtype, void *data);
/* Complex numbers and pairs, from two arrays. */
void number_encode_complex(const double *real, const double *imaginary, size_t count,
                           rota_dtype dtype, void *data);
void number_encode_float_pairs(const double *values, const uint64_t *indices, size_t count,
                               rota_dtype dtype, void *data);
void number_encode_integer_pairs(const uint64_t *values, const uint64_t *indices, size_t count,
                                 rota_dtype dtype, void *data);
/* Elements of up to 16 bytes; the upper half of 16 is the lower one's complement. */
void number_encode_integers(const uint64_t *values, size_t count, size_t element, void *data);

#endif
