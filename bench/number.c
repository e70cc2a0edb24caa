/* Conversions between element types and double. */
#include "bench/number.h"

#include <math.h>
#include <string.h>

bool number_is_float(rota_dtype dtype) {
    return dtype >= ROTA_FLOAT16 && dtype <= ROTA_FLOAT64;
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

/* Half precision from double, one rounding: scale so that the unit in the last place is 1, round
 * to nearest even (the default rounding of rint), scale back into the field. */
static uint16_t to_half(double value) {
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    if (magnitude >= 65520)
        return sign | 0x7c00;
    int exponent = magnitude < 0x1p-14 ? -14 : ilogb(magnitude);
    uint32_t units = (uint32_t)rint(ldexp(magnitude, 10 - exponent));
    /* units carries the implied bit of normal numbers into the exponent field. */
    return (uint16_t)(sign | (((uint32_t)(exponent + 14) << 10) + units));
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
        else
            ((uint64_t *)data)[i] = values[i];
    }
}
