#include "inputs.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

static uint64_t mix(uint64_t number) { /* splitmix64 (Steele, Lea, Flood 2014) */
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

/* Bits of the significand that a type stores. */
static int stored_bits(rota_dtype dtype) {
    switch (dtype) {
    case ROTA_FLOAT16:
        return 10;
    case ROTA_BFLOAT16:
        return 7;
    case ROTA_FLOAT32:
        return 23;
    default:
        return 52;
    }
}

double input_value(rota_dtype dtype, int rank, size_t index) {
    uint64_t random = mix(mix((uint64_t)rank + 1) ^ index);
    int bits = stored_bits(dtype);
    double fraction = (double)(random >> 12 & ((UINT64_C(1) << bits) - 1));
    double value = ldexp(1 + ldexp(fraction, -bits), (int)(random % 10) - 5);
    return random & 1024 ? -value : value;
}

/* A value of ten binades near 1, or a sum of a few of them, to a type with so many bits; ties to
 * even. It is no subnormal and nowhere near the largest. */
static void store(void *to, rota_dtype dtype, double value) {
    int exponent = 0;
    uint16_t narrow = 0;
    float single = (float)value;
    if (dtype == ROTA_FLOAT64) {
        memcpy(to, &value, sizeof(value));
        return;
    }
    if (dtype == ROTA_FLOAT32) {
        memcpy(to, &single, sizeof(single));
        return;
    }
    int bits = stored_bits(dtype), bias = dtype == ROTA_FLOAT16 ? 15 : 127;
    if (value != 0) {
        double magnitude = frexp(fabs(value), &exponent); /* 0.5 .. 1 */
        uint32_t significand = (uint32_t)nearbyint(ldexp(magnitude, bits + 1));
        narrow = (uint16_t)(((uint32_t)(exponent - 1 + bias - 1) << bits) + significand);
    }
    if (signbit(value))
        narrow |= 0x8000;
    memcpy(to, &narrow, sizeof(narrow));
}

void input_fill(void *to, rota_dtype dtype, int rank, size_t first, size_t count) {
    size_t size = rota_dtype_size(dtype);
    for (size_t i = 0; i < count; i++)
        store((char *)to + i * size, dtype, input_value(dtype, rank, first + i));
}

/* Ranks [low, low + width), width a power of two, as far as they exist. */
static double node(rota_dtype dtype, int nranks, int low, int width, size_t index) {
    if (width == 1)
        return input_value(dtype, low, index);
    double left = node(dtype, nranks, low, width / 2, index);
    if (low + width / 2 >= nranks)
        return left;
    double right = node(dtype, nranks, low + width / 2, width / 2, index);
    /* volatile: a sum is rounded to its type, whatever the compiler keeps in registers. */
    volatile float single = (float)left + (float)right;
    return dtype == ROTA_FLOAT64 ? left + right : (double)single;
}

void input_tree(void *to, rota_dtype dtype, rota_op op, int nranks, size_t index) {
    int width = 1;
    while (width < nranks)
        width *= 2;
    double sum = node(dtype, nranks, 0, width, index);
    if (op == ROTA_AVG) {
        volatile float single = (float)sum / (float)nranks;
        sum = dtype == ROTA_FLOAT64 ? sum / nranks : (double)single;
    }
    store(to, dtype, sum);
}
