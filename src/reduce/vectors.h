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
typedef uint8_t v_u8 __attribute__((vector_size(VECTOR_BYTES / 4)));
typedef int32_t v_s32 __attribute__((vector_size(VECTOR_BYTES)));
typedef float v_f32 __attribute__((vector_size(VECTOR_BYTES)));
typedef double v_f64 __attribute__((vector_size(VECTOR_BYTES)));
/* An element of 16 bytes, whatever the instruction set's registers. */
typedef uint64_t v_pair __attribute__((vector_size(16)));
typedef int64_t v_pair_s64 __attribute__((vector_size(16)));
typedef double v_pair_f64 __attribute__((vector_size(16)));
#define WHOLE 0 /* see kernel.inc */

/* A floating type of at most 16 bits, from low to high: fraction, exponent with `bias`, sign. */
struct small_format {
    uint32_t fraction, bias, sign; /* bits, number, place of the bit */
    uint32_t special;              /* magnitudes from here on are infinity and NaN */
    uint32_t overflow_from;        /* bits of the least float that rounds beyond the last number */
    uint32_t nan_from;             /* bits of the least float that becomes a NaN */
    uint32_t nan;                  /* the canonical one */
};
#define FORMAT_HALF ((struct small_format){10, 15, 15, 0x7c00, 0x47800000, 0x7f800001, 0x7e00})
#define FORMAT_E5M2 ((struct small_format){2, 15, 7, 0x7c, 0x47800000, 0x7f800001, 0x7e})
/* 464, half way between the largest number and what would follow, still rounds to even: to 448. */
#define FORMAT_E4M3 ((struct small_format){3, 7, 7, 0x7f, 0x43e80001, 0x43e80001, 0x7f})

/* The floats that equal numbers of the format, which is a constant. Exact, also where the process
 * flushes subnormals: none is used. */
static INLINE v_f32 small_value(v_u32 number, struct small_format format) {
    uint32_t up = 23 - format.fraction;
    v_u32 magnitude = number & ((1u << format.sign) - 1), sign = number >> format.sign << 31;
    v_u32 value = (magnitude << up) + ((127 - format.bias) << 23);
    uint32_t unit = (128 - format.bias - format.fraction) << 23; /* of subnormals */
    float unit_value;
    memcpy(&unit_value, &unit, sizeof(unit));
    v_f32 small = __builtin_convertvector((v_s32)magnitude, v_f32) * unit_value;
    value = SELECT(magnitude < 1u << format.fraction, (v_u32)small, value);
    value = SELECT(magnitude >= format.special, (magnitude << up) | 0x7f800000, value);
    return (v_f32)(value | sign);
}

/* The numbers of the format nearest to floats, ties to even. Subnormals are rounded by hand: a
 * conversion or an addition would follow the process's rounding mode. */
static INLINE v_u32 small_round(v_f32 value, struct small_format format) {
    uint32_t down = 23 - format.fraction, normal_from = (128 - format.bias) << 23;
    v_u32 bits = (v_u32)value, magnitude = bits & 0x7fffffff;
    v_u32 number = (magnitude - ((127 - format.bias) << 23) + ((1u << (down - 1)) - 1) +
                    ((magnitude >> down) & 1)) >>
                   down;
    uint32_t units = (126 + format.bias + format.fraction) << 23; /* per one */
    float units_value;
    memcpy(&units_value, &units, sizeof(units));
    v_f32 scaled = (v_f32)SELECT(magnitude < normal_from, magnitude, (v_u32){0}) * units_value;
    v_s32 whole = __builtin_convertvector(scaled, v_s32); /* toward zero in every mode */
    v_f32 rest = scaled - __builtin_convertvector(whole, v_f32);
    whole -= (v_s32)(rest > 0.5F) | ((v_s32)(rest == 0.5F) & ((whole & 1) != 0));
    number = SELECT(magnitude < normal_from, (v_u32)whole, number);
    number = SELECT(magnitude >= format.overflow_from, (v_u32){0} + format.special, number);
    number |= bits >> 31 << format.sign;
    return SELECT(magnitude >= format.nan_from, (v_u32){0} + format.nan, number);
}

#endif
