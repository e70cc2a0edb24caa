/* The reference: tree by recursion, conversions from the formats' definitions with ldexp and
 * nearbyint, integers in 128 bits. Slow and obvious. */
#include "reference.h"
#include <math.h>
#include <string.h>

bits reference_load(const void *data, size_t index, size_t size) {
    bits value = 0;
    memcpy(&value, (const char *)data + index * size, size);
    return value;
}

static double small_value(unsigned number, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = (int)(number >> fraction_bits) & ((1 << exponent_bits) - 1);
    int fraction = (int)number & ((1 << fraction_bits) - 1);
    double value;
    if (exponent == (1 << exponent_bits) - 1)
        value = fraction ? (double)NAN : (double)INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
    return number >> (exponent_bits + fraction_bits) ? -value : value;
}

static uint16_t small_round(double value, int exponent_bits, int fraction_bits) {
    int bias = (1 << (exponent_bits - 1)) - 1;
    unsigned infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    if (isnan(value))
        return (uint16_t)(infinity | 1u << (fraction_bits - 1));
    unsigned sign = signbit(value) ? 0x8000 : 0;
    double magnitude = fabs(value);
    if (magnitude == 0)
        return (uint16_t)sign;
    if (isinf(magnitude))
        return (uint16_t)(sign | infinity);
    int exponent;
    frexp(magnitude, &exponent); /* magnitude in [2^(exponent-1), 2^exponent) */
    int unit = exponent - 1 - fraction_bits;
    if (unit < 1 - bias - fraction_bits)
        unit = 1 - bias - fraction_bits;
    double rounded = ldexp(nearbyint(ldexp(magnitude, -unit)), unit);
    if (rounded >= ldexp(1, bias + 1))
        return (uint16_t)(sign | infinity);
    /* Exact from here: read exponent and fraction off. */
    if (rounded < ldexp(1, 1 - bias))
        return (uint16_t)(sign | (unsigned)ldexp(rounded, bias - 1 + fraction_bits));
    frexp(rounded, &exponent);
    unsigned fraction = (unsigned)ldexp(rounded, fraction_bits + 1 - exponent);
    fraction -= 1u << fraction_bits;
    return (uint16_t)(sign | (unsigned)(exponent - 1 + bias) << fraction_bits | fraction);
}

double reference_half_value(uint16_t half) {
    return small_value(half, 5, 10);
}
uint16_t reference_half_round(double value) {
    return small_round(value, 5, 10);
}
double reference_brain_value(uint16_t brain) {
    return small_value(brain, 8, 7);
}
uint16_t reference_brain_round(double value) {
    return small_round(value, 8, 7);
}

/* A number on its way through the tree. */
union number {
    uint64_t u;
    double d;
};

static bool is_real(rota_dtype dtype) {
    return dtype >= ROTA_FLOAT16;
}

static bool is_signed(rota_dtype dtype) {
    return dtype <= ROTA_INT64 && dtype % 2 == 0;
}

static double float_bits_value(bits value) {
    uint32_t narrow = (uint32_t)value;
    float f;
    memcpy(&f, &narrow, sizeof(f));
    return (double)f;
}

/* Integers are kept as their value modulo 2^64, sign-extended. */
static union number widen(rota_dtype dtype, bool partial_differs, bits value) {
    union number n = {.u = value};
    if (dtype == ROTA_FLOAT64)
        memcpy(&n.d, &value, sizeof(n.d));
    else if (is_real(dtype) && (partial_differs || dtype == ROTA_FLOAT32))
        n.d = float_bits_value(value);
    else if (dtype == ROTA_FLOAT16)
        n.d = reference_half_value((uint16_t)value);
    else if (dtype == ROTA_BFLOAT16)
        n.d = reference_brain_value((uint16_t)value);
    else if (is_signed(dtype) && !partial_differs) {
        int unused = 64 - 8 * (int)rota_dtype_size(dtype);
        n.u = (uint64_t)((int64_t)(value << unused) >> unused);
    }
    return n;
}

static double real_extreme(double a, double b, bool smaller) {
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == b)
        return (signbit(a) != 0) == smaller ? a : b;
    return (a < b) == smaller ? a : b;
}

static union number combine(rota_dtype dtype, rota_op op, union number a, union number b) {
    union number n = {.u = 0};
    if (is_real(dtype)) {
        if (op == ROTA_MIN || op == ROTA_MAX)
            n.d = real_extreme(a.d, b.d, op == ROTA_MIN);
        else if (dtype == ROTA_FLOAT64)
            n.d = op == ROTA_PROD ? a.d * b.d : a.d + b.d;
        else /* the double sum or product of floats rounds to float as the exact one */
            n.d = (double)(float)(op == ROTA_PROD ? a.d * b.d : a.d + b.d);
        return n;
    }
    switch (op) {
    case ROTA_PROD:
        n.u = a.u * b.u;
        break;
    case ROTA_MIN:
        n.u =
            is_signed(dtype) ? ((int64_t)a.u < (int64_t)b.u ? a.u : b.u) : (a.u < b.u ? a.u : b.u);
        break;
    case ROTA_MAX:
        n.u =
            is_signed(dtype) ? ((int64_t)a.u > (int64_t)b.u ? a.u : b.u) : (a.u > b.u ? a.u : b.u);
        break;
    default:
        n.u = a.u + b.u;
    }
    if (op != ROTA_AVG) { /* wraps in its own width */
        size_t size = rota_dtype_size(dtype);
        bits low = size == 8 ? n.u : n.u & ((UINT64_C(1) << 8 * size) - 1);
        n = widen(dtype, false, low);
    }
    return n;
}

static union number divide(rota_dtype dtype, union number n, int nranks) {
    if (dtype == ROTA_FLOAT64)
        n.d /= nranks;
    else if (is_real(dtype))
        n.d = (double)((float)n.d / (float)nranks);
    else if (is_signed(dtype))
        n.u = (uint64_t)(int64_t)((__int128)(int64_t)n.u / nranks);
    else
        n.u /= (uint64_t)nranks;
    return n;
}

static bits narrow(rota_dtype dtype, bool float_partial, union number n, size_t size) {
    bits value = n.u;
    if (is_real(dtype) && (float_partial || dtype == ROTA_FLOAT32)) {
        float f = (float)n.d;
        uint32_t b;
        memcpy(&b, &f, sizeof(b));
        value = isnan(n.d) ? 0x7fc00000 : b;
    } else if (dtype == ROTA_FLOAT64) {
        if (isnan(n.d))
            value = UINT64_C(0x7ff8000000000000);
    } else if (dtype == ROTA_FLOAT16) {
        value = reference_half_round(n.d);
    } else if (dtype == ROTA_BFLOAT16) {
        value = reference_brain_round(n.d);
    }
    return size == 8 ? value : value & ((UINT64_C(1) << 8 * size) - 1);
}

struct tree {
    rota_dtype dtype;
    rota_op op;
    const struct reduce_operand *operands;
    size_t noperands, index;
};

/* node(first, height) of the aligned tree, absent positions dropped. */
static union number node(const struct tree *tree, size_t first, int height) {
    if (height == 0) {
        const struct reduce_operand *operand = &tree->operands[first];
        size_t element = rota_dtype_size(tree->dtype);
        size_t partial = reduce_partial_size(tree->dtype, tree->op);
        size_t size = operand->partial ? partial : element;
        return widen(tree->dtype, operand->partial && partial != element,
                     reference_load(operand->data, tree->index, size));
    }
    size_t half = (size_t)1 << (height - 1);
    union number left = node(tree, first, height - 1);
    if (first + half >= tree->noperands)
        return left;
    return combine(tree->dtype, tree->op, left, node(tree, first + half, height - 1));
}

bits reference_reduce(rota_dtype dtype, rota_op op, int nranks,
                      const struct reduce_operand *operands, size_t noperands, size_t index,
                      bool finish) {
    struct tree tree = {dtype, op, operands, noperands, index};
    int height = 0;
    while (((size_t)1 << height) < noperands)
        height++;
    union number root = node(&tree, 0, height);
    if (finish && op == ROTA_AVG)
        root = divide(dtype, root, nranks);
    size_t partial = reduce_partial_size(dtype, op), element = rota_dtype_size(dtype);
    return narrow(dtype, !finish && partial != element, root, finish ? element : partial);
}

static bool is_nan(rota_dtype dtype, size_t size, bits value) {
    if (size == 8)
        return (value & INT64_MAX) > UINT64_C(0x7ff0000000000000);
    if (size == 4)
        return (value & INT32_MAX) > 0x7f800000;
    return (value & INT16_MAX) > (dtype == ROTA_FLOAT16 ? 0x7c00 : 0x7f80);
}

bool reference_same(rota_dtype dtype, rota_op op, bool finish, bits expected, bits value) {
    if (expected == value)
        return true;
    size_t partial = reduce_partial_size(dtype, op);
    return !finish && is_real(dtype) && is_nan(dtype, partial, expected) &&
           is_nan(dtype, partial, value);
}

uint64_t reference_random(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Sign, exponent within `spread` of the middle, any fraction; 1 of 32 is any pattern at all, and 1
 * of 64 one of the edges. */
static bits sample_real(int exponent_bits, int fraction_bits, int spread, uint64_t *state) {
    uint64_t r = reference_random(state);
    int width = 1 + exponent_bits + fraction_bits;
    uint64_t all = width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1;
    uint64_t infinity = ((UINT64_C(1) << exponent_bits) - 1) << fraction_bits;
    uint64_t sign = (r >> 63) << (width - 1);
    switch (r % 64) {
    case 0:
    case 1:
        return reference_random(state) & all;
    case 2: {
        const uint64_t edges[] = {
            0, 1, (UINT64_C(1) << fraction_bits) - 1, infinity - 1, infinity, infinity + 1};
        return sign | edges[(r >> 8) % 6];
    }
    default: {
        uint64_t bias = (UINT64_C(1) << (exponent_bits - 1)) - 1;
        uint64_t exponent = bias + (r >> 8) % (uint64_t)(2 * spread + 1) - (uint64_t)spread;
        uint64_t fraction = reference_random(state) & ((UINT64_C(1) << fraction_bits) - 1);
        return sign | exponent << fraction_bits | fraction;
    }
    }
}

bits reference_sample(rota_dtype dtype, rota_op op, bool partial, uint64_t *state) {
    bool differs = reduce_partial_size(dtype, op) != rota_dtype_size(dtype);
    switch (dtype) {
    case ROTA_FLOAT16:
        return partial && differs ? sample_real(8, 23, 8, state) : sample_real(5, 10, 5, state);
    case ROTA_BFLOAT16:
        return partial && differs ? sample_real(8, 23, 8, state) : sample_real(8, 7, 8, state);
    case ROTA_FLOAT32:
        return sample_real(8, 23, 12, state);
    case ROTA_FLOAT64:
        return sample_real(11, 52, 16, state);
    default:
        return reference_random(state);
    }
}
