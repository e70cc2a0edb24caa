/* Conversions between element types and double. */
#include "bench/number.h"

#include <math.h>
#include <string.h>

enum number_class number_class(rota_dtype dtype) {
    switch (dtype) {
    case ROTA_FLOAT16:
    case ROTA_BFLOAT16:
    case ROTA_FLOAT32:
    case ROTA_FLOAT64:
    case ROTA_FLOAT8_E4M3:
    case ROTA_FLOAT8_E5M2:
        return NUMBER_FLOAT;
    case ROTA_COMPLEX64:
    case ROTA_COMPLEX128:
        return NUMBER_COMPLEX;
    case ROTA_BOOL:
        return NUMBER_TRUTH;
    case ROTA_FLOAT32_INT32:
    case ROTA_FLOAT64_INT32:
        return NUMBER_FLOAT_PAIR;
    case ROTA_INT32_INT32:
    case ROTA_INT64_INT64:
        return NUMBER_INTEGER_PAIR;
    default:
        return NUMBER_INTEGER;
    }
}

bool number_is_float(rota_dtype dtype) {
    return number_class(dtype) == NUMBER_FLOAT;
}

rota_dtype number_part(rota_dtype dtype) {
    switch (dtype) {
    case ROTA_COMPLEX64:
    case ROTA_FLOAT32_INT32:
        return ROTA_FLOAT32;
    case ROTA_COMPLEX128:
    case ROTA_FLOAT64_INT32:
        return ROTA_FLOAT64;
    case ROTA_INT32_INT32:
        return ROTA_INT32;
    case ROTA_INT64_INT64:
        return ROTA_INT64;
    default:
        return dtype;
    }
}

bool number_is_signed(rota_dtype dtype) {
    return dtype == ROTA_INT8 || dtype == ROTA_INT16 || dtype == ROTA_INT32 || dtype == ROTA_INT64;
}

/* splitmix64 (Steele, Lea, Flood 2014), its state taken from both numbers. */
uint64_t number_random(uint64_t stream, uint64_t index) {
    uint64_t z = stream * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

uint64_t number_integer(uint64_t bits, rota_dtype dtype) {
    unsigned width = (unsigned)rota_dtype_size(dtype) * 8;
    if (width >= 64)
        return bits;
    uint64_t mask = ((uint64_t)1 << width) - 1, sign = (uint64_t)1 << (width - 1);
    bits &= mask;
    return number_is_signed(dtype) && (bits & sign) ? bits | ~mask : bits;
}

static double from_narrow(uint32_t bits, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1, top = (1 << exponent_bits) - 1;
    int exponent = (int)(bits >> fraction_bits) & top;
    double fraction = (double)(bits & ((1u << fraction_bits) - 1));
    double value;
    if (exponent == top)
        value = (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + ldexp(1, fraction_bits), exponent - bias - fraction_bits);
    return bits >> (exponent_bits + fraction_bits) & 1 ? -value : value;
}

double number_from_bits(uint64_t bits, rota_dtype dtype) {
    double value;
    switch (dtype) {
    case ROTA_FLOAT16:
        return from_narrow((uint32_t)bits & 0xffff, 5, 10);
    case ROTA_BFLOAT16:
        return from_narrow((uint32_t)bits & 0xffff, 8, 7);
    case ROTA_FLOAT32:
        return from_narrow((uint32_t)bits, 8, 23);
    case ROTA_FLOAT8_E5M2:
        return from_narrow((uint32_t)bits & 0xff, 5, 2);
    case ROTA_FLOAT8_E4M3: /* no infinity: the highest exponent is one more binade */
        if ((bits & 0x7f) == 0x7f)
            bits &= 0xfe;
        value = (bits & 0x78) == 0x78 ? 256 + 32 * (double)(bits & 7)
                                      : from_narrow((uint32_t)bits & 0x7f, 4, 3);
        return bits & 0x80 ? -value : value;
    default:
        if ((bits >> 52 & 0x7ff) == 0x7ff)
            bits &= (uint64_t)0xfff << 52;
        memcpy(&value, &bits, sizeof(value));
        return value;
    }
}

bool number_less(double a, double b) {
    return a < b || (a == b && signbit(a) && !signbit(b));
}

/* From double, one rounding, of a magnitude that does not overflow: scale so that the unit in the
 * last place is 1, round to nearest even (the default rounding of rint), scale back into the field.
 * `least` is the exponent of the least normal number. */
static uint32_t to_narrow(double magnitude, int least, int fraction_bits) {
    int exponent = magnitude < ldexp(1, least) ? least : ilogb(magnitude);
    uint32_t units = (uint32_t)rint(ldexp(magnitude, fraction_bits - exponent));
    /* units carries the implied bit of normal numbers into the exponent field. */
    return ((uint32_t)(exponent - least) << fraction_bits) + units;
}

static uint16_t to_half(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    return (uint16_t)(sign | (magnitude >= 65520 ? 0x7c00 : to_narrow(magnitude, -14, 10)));
}

static uint8_t to_e5m2(double value) {
    uint8_t sign = signbit(value) ? 0x80 : 0;
    double magnitude = fabs(value);
    return (uint8_t)(sign | (magnitude >= 61440 ? 0x7c : to_narrow(magnitude, -14, 2)));
}

static uint8_t to_e4m3(double value) {
    uint8_t sign = signbit(value) ? 0x80 : 0;
    double magnitude = fabs(value);
    return magnitude > 464 ? 0x7f : (uint8_t)(sign | to_narrow(magnitude, -6, 3));
}

static uint16_t to_bfloat(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

void number_encode_floats(const double *values, size_t count, rota_dtype dtype, void *data) {
    for (size_t i = 0; i < count; i++) {
        float single = (float)values[i];
        if (dtype == ROTA_FLOAT64) {
            ((double *)data)[i] = values[i];
        } else if (dtype == ROTA_FLOAT32) {
            ((float *)data)[i] = single;
        } else if (dtype == ROTA_FLOAT8_E4M3) {
            ((uint8_t *)data)[i] = to_e4m3(values[i]);
        } else if (dtype == ROTA_FLOAT8_E5M2) {
            ((uint8_t *)data)[i] = to_e5m2(values[i]);
        } else {
            ((uint16_t *)data)[i] = dtype == ROTA_FLOAT16 ? to_half(values[i]) : to_bfloat(single);
        }
    }
}

void number_encode_integers(const uint64_t *values, size_t count, size_t element, void *data) {
    for (size_t i = 0; i < count; i++) {
        if (element == 1)
            ((uint8_t *)data)[i] = (uint8_t)values[i];
        else if (element == 2)
            ((uint16_t *)data)[i] = (uint16_t)values[i];
        else if (element == 4)
            ((uint32_t *)data)[i] = (uint32_t)values[i];
        else if (element == 8)
            ((uint64_t *)data)[i] = values[i];
        else
            ((rota_int64_int64 *)data)[i] =
                (rota_int64_int64){(int64_t)values[i], (int64_t)~values[i]};
    }
}

void number_encode_complex(const double *real, const double *imaginary, size_t count,
                           rota_dtype dtype, void *data) {
    for (size_t i = 0; i < count; i++) {
        const double parts[] = {real[i], imaginary[i]};
        number_encode_floats(parts, 2, number_part(dtype),
                             (char *)data + i * rota_dtype_size(dtype));
    }
}

void number_encode_float_pairs(const double *values, const uint64_t *indices, size_t count,
                               rota_dtype dtype, void *data) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == ROTA_FLOAT32_INT32)
            ((rota_float32_int32 *)data)[i] =
                (rota_float32_int32){(float)values[i], (int32_t)indices[i]};
        else
            ((rota_float64_int32 *)data)[i] =
                (rota_float64_int32){.value = values[i], .index = (int32_t)indices[i]};
    }
}

void number_encode_integer_pairs(const uint64_t *values, const uint64_t *indices, size_t count,
                                 rota_dtype dtype, void *data) {
    for (size_t i = 0; i < count; i++) {
        if (dtype == ROTA_INT32_INT32)
            ((rota_int32_int32 *)data)[i] =
                (rota_int32_int32){(int32_t)values[i], (int32_t)indices[i]};
        else
            ((rota_int64_int64 *)data)[i] =
                (rota_int64_int64){(int64_t)values[i], (int64_t)indices[i]};
    }
}
