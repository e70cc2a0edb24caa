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
    unsigned sign_bit = 1u << (exponent_bits + fraction_bits);
    unsigned infinity = ((1u << exponent_bits) - 1) << fraction_bits;
    if (isnan(value))
        return (uint16_t)(infinity | 1u << (fraction_bits - 1));
    unsigned sign = signbit(value) ? sign_bit : 0;
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

double reference_e5m2_value(uint8_t number) {
    return small_value(number, 5, 2);
}
uint8_t reference_e5m2_round(double value) {
    return (uint8_t)small_round(value, 5, 2);
}

/* What would be infinity and NaN, but for the last pattern, are numbers of one more binade. */
double reference_e4m3_value(uint8_t number) {
    unsigned magnitude = number & 0x7f;
    if (magnitude == 0x7f)
        return (double)NAN;
    double value = magnitude >= 0x78 ? ldexp(8 + (magnitude & 7), 5) : small_value(magnitude, 4, 3);
    return number & 0x80 ? -value : value;
}

/* The nearest of all patterns, the even one of two: by looking at each. */
uint8_t reference_e4m3_round(double value) {
    double magnitude = fabs(value);
    unsigned best = 0;
    if (isnan(value) || magnitude > 464) /* 448 + half of 32 */
        return 0x7f;
    for (unsigned number = 1; number < 0x7f; number++) {
        double distance = fabs(reference_e4m3_value((uint8_t)number) - magnitude);
        double so_far = fabs(reference_e4m3_value((uint8_t)best) - magnitude);
        if (distance < so_far || (distance == so_far && number % 2 == 0))
            best = number;
    }
    return (uint8_t)(best | (signbit(value) ? 0x80 : 0));
}

/* A number on its way through the tree; of complex numbers also the imaginary part, of pairs the
 * index. */
struct number {
    uint64_t u;
    double d, imaginary;
    int64_t index;
};

static bool is_real(rota_dtype dtype) {
    return dtype >= ROTA_FLOAT16 && dtype <= ROTA_FLOAT8_E5M2;
}

static bool is_complex(rota_dtype dtype) {
    return dtype == ROTA_COMPLEX64 || dtype == ROTA_COMPLEX128;
}

static bool is_pair(rota_dtype dtype) {
    return dtype >= ROTA_FLOAT32_INT32 && dtype <= ROTA_INT64_INT64;
}

static bool is_signed(rota_dtype dtype) {
    return dtype <= ROTA_INT64 && dtype % 2 == 0;
}

static bool is_logical(rota_dtype dtype, rota_op op) {
    return dtype == ROTA_BOOL || (op >= ROTA_LOGICAL_AND && op <= ROTA_LOGICAL_XOR);
}

static double float_bits_value(bits value) {
    uint32_t narrow = (uint32_t)value;
    float f;
    memcpy(&f, &narrow, sizeof(f));
    return (double)f;
}

static double double_bits_value(bits value) {
    uint64_t low = (uint64_t)value;
    double d;
    memcpy(&d, &low, sizeof(d));
    return d;
}

static bits float_bits(double d) {
    float f = (float)d;
    uint32_t b;
    memcpy(&b, &f, sizeof(b));
    return isnan(d) ? 0x7fc00000 : b;
}

static bits double_bits(double d) {
    uint64_t b;
    memcpy(&b, &d, sizeof(b));
    return isnan(d) ? UINT64_C(0x7ff8000000000000) : b;
}

static struct number widen_pair(rota_dtype dtype, bits value) {
    switch (dtype) {
    case ROTA_FLOAT32_INT32:
        return (struct number){.d = float_bits_value(value), .index = (int32_t)(value >> 32)};
    case ROTA_FLOAT64_INT32:
        return (struct number){.d = double_bits_value(value), .index = (int32_t)(value >> 64)};
    case ROTA_INT32_INT32:
        return (struct number){.u = (uint64_t)(int32_t)value, .index = (int32_t)(value >> 32)};
    default:
        return (struct number){.u = (uint64_t)value, .index = (int64_t)(value >> 64)};
    }
}

/* Integers are kept as their value modulo 2^64, sign-extended. */
static struct number widen(rota_dtype dtype, rota_op op, bool partial_differs, bits value) {
    struct number n = {.u = (uint64_t)value};
    if (is_pair(dtype))
        return widen_pair(dtype, value);
    if (is_logical(dtype, op))
        n.u = value != 0;
    else if (dtype == ROTA_COMPLEX64)
        n = (struct number){.d = float_bits_value(value),
                            .imaginary = float_bits_value(value >> 32)};
    else if (dtype == ROTA_COMPLEX128)
        n = (struct number){.d = double_bits_value(value),
                            .imaginary = double_bits_value(value >> 64)};
    else if (dtype == ROTA_FLOAT64)
        n.d = double_bits_value(value);
    else if (is_real(dtype) && (partial_differs || dtype == ROTA_FLOAT32))
        n.d = float_bits_value(value);
    else if (dtype == ROTA_FLOAT16)
        n.d = reference_half_value((uint16_t)value);
    else if (dtype == ROTA_BFLOAT16)
        n.d = reference_brain_value((uint16_t)value);
    else if (dtype == ROTA_FLOAT8_E4M3)
        n.d = reference_e4m3_value((uint8_t)value);
    else if (dtype == ROTA_FLOAT8_E5M2)
        n.d = reference_e5m2_value((uint8_t)value);
    else if (is_signed(dtype) && !partial_differs) {
        int unused = 64 - 8 * (int)rota_dtype_size(dtype);
        n.u = (uint64_t)((int64_t)(n.u << unused) >> unused);
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

/* Whether the values are the same, -0 and +0 being two. */
static bool same_value(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && !signbit(a) == !signbit(b));
}

static struct number combine_pairs(rota_dtype dtype, bool smaller, struct number a,
                                   struct number b) {
    bool same, a_first;
    if (dtype == ROTA_FLOAT32_INT32 || dtype == ROTA_FLOAT64_INT32) {
        same = same_value(a.d, b.d);
        a_first = same_value(real_extreme(a.d, b.d, smaller), a.d);
    } else {
        same = a.u == b.u;
        a_first = ((int64_t)a.u < (int64_t)b.u) == smaller;
    }
    return (same ? a.index <= b.index : a_first) ? a : b;
}

/* A sum or product, rounded to float where the type is narrower than double: the double sum or
 * product of floats rounds to float as the exact one. */
static double rounded(bool narrow, double value) {
    volatile float single = (float)value; /* gcc 12 leaves the rounding out of two in a row */
    return narrow ? (double)single : value;
}

static struct number combine_complex(bool narrow, bool product, struct number a, struct number b) {
    if (!product)
        return (struct number){.d = rounded(narrow, a.d + b.d),
                               .imaginary = rounded(narrow, a.imaginary + b.imaginary)};
    double re_re = rounded(narrow, a.d * b.d), im_im = rounded(narrow, a.imaginary * b.imaginary);
    double re_im = rounded(narrow, a.d * b.imaginary), im_re = rounded(narrow, a.imaginary * b.d);
    return (struct number){.d = rounded(narrow, re_re - im_im),
                           .imaginary = rounded(narrow, re_im + im_re)};
}

static struct number combine_real(rota_dtype dtype, rota_op op, struct number a, struct number b) {
    if (op == ROTA_MIN || op == ROTA_MAX)
        return (struct number){.d = real_extreme(a.d, b.d, op == ROTA_MIN)};
    return (struct number){
        .d = rounded(dtype != ROTA_FLOAT64, op == ROTA_PROD ? a.d * b.d : a.d + b.d)};
}

static uint64_t combine_truths(rota_op op, uint64_t a, uint64_t b) {
    switch (op) {
    case ROTA_PROD:
    case ROTA_MIN:
    case ROTA_BITWISE_AND:
    case ROTA_LOGICAL_AND:
        return a & b;
    case ROTA_BITWISE_XOR:
    case ROTA_LOGICAL_XOR:
        return a ^ b;
    default:
        return a | b;
    }
}

static uint64_t combine_integers(rota_dtype dtype, rota_op op, uint64_t a, uint64_t b) {
    bool a_less = is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case ROTA_PROD:
        return a * b;
    case ROTA_MIN:
        return a_less ? a : b;
    case ROTA_MAX:
        return a_less ? b : a;
    case ROTA_BITWISE_AND:
        return a & b;
    case ROTA_BITWISE_OR:
        return a | b;
    case ROTA_BITWISE_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

static struct number combine(rota_dtype dtype, rota_op op, struct number a, struct number b) {
    if (is_pair(dtype))
        return combine_pairs(dtype, op == ROTA_MINLOC, a, b);
    if (is_complex(dtype))
        return combine_complex(dtype == ROTA_COMPLEX64, op == ROTA_PROD, a, b);
    if (is_real(dtype))
        return combine_real(dtype, op, a, b);
    if (is_logical(dtype, op))
        return (struct number){.u = combine_truths(op, a.u, b.u)};
    struct number n = {.u = combine_integers(dtype, op, a.u, b.u)};
    if (op != ROTA_AVG) { /* wraps in its own width */
        size_t size = rota_dtype_size(dtype);
        n = widen(dtype, op, false, size == 8 ? n.u : n.u & ((UINT64_C(1) << 8 * size) - 1));
    }
    return n;
}

static struct number divide(rota_dtype dtype, struct number n, int nranks) {
    if (dtype == ROTA_FLOAT64 || dtype == ROTA_COMPLEX128) {
        n.d /= nranks;
        n.imaginary /= nranks;
    } else if (is_real(dtype) || is_complex(dtype)) {
        n.d = (double)((float)n.d / (float)nranks);
        n.imaginary = (double)((float)n.imaginary / (float)nranks);
    } else if (is_signed(dtype)) {
        n.u = (uint64_t)((int64_t)n.u / nranks);
    } else {
        n.u /= (uint64_t)nranks;
    }
    return n;
}

static bits narrow(rota_dtype dtype, bool float_partial, struct number n, size_t size) {
    uint64_t index = (uint64_t)n.index;
    switch (float_partial && is_real(dtype) ? ROTA_FLOAT32 : dtype) {
    case ROTA_FLOAT32:
        return float_bits(n.d);
    case ROTA_FLOAT64:
        return double_bits(n.d);
    case ROTA_FLOAT16:
        return reference_half_round(n.d);
    case ROTA_BFLOAT16:
        return reference_brain_round(n.d);
    case ROTA_FLOAT8_E4M3:
        return reference_e4m3_round(n.d);
    case ROTA_FLOAT8_E5M2:
        return reference_e5m2_round(n.d);
    case ROTA_COMPLEX64:
        return float_bits(n.d) | float_bits(n.imaginary) << 32;
    case ROTA_COMPLEX128:
        return double_bits(n.d) | double_bits(n.imaginary) << 64;
    case ROTA_FLOAT32_INT32:
        return float_bits(n.d) | (bits)(uint32_t)index << 32;
    case ROTA_FLOAT64_INT32:
        return double_bits(n.d) | (bits)(uint32_t)index << 64;
    case ROTA_INT32_INT32:
        return (uint32_t)n.u | (bits)(uint32_t)index << 32;
    case ROTA_INT64_INT64:
        return n.u | (bits)index << 64;
    default:
        return size == 8 ? n.u : n.u & ((UINT64_C(1) << 8 * size) - 1);
    }
}

struct tree {
    rota_dtype dtype;
    rota_op op;
    const struct reduce_operand *operands;
    size_t noperands, index;
};

/* node(first, height) of the aligned tree, absent positions dropped. */
static struct number node(const struct tree *tree, size_t first, int height) {
    if (height == 0) {
        const struct reduce_operand *operand = &tree->operands[first];
        size_t element = rota_dtype_size(tree->dtype);
        size_t partial = reduce_partial_size(tree->dtype, tree->op);
        size_t size = operand->partial ? partial : element;
        return widen(tree->dtype, tree->op, operand->partial && partial != element,
                     reference_load(operand->data, tree->index, size));
    }
    size_t half = (size_t)1 << (height - 1);
    struct number left = node(tree, first, height - 1);
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
    struct number root = node(&tree, 0, height);
    if (finish && op == ROTA_AVG)
        root = divide(dtype, root, nranks);
    size_t partial = reduce_partial_size(dtype, op), element = rota_dtype_size(dtype);
    return narrow(dtype, !finish && partial != element, root, finish ? element : partial);
}

/* A partial may hold whatever reads as the same number. */
bool reference_same(rota_dtype dtype, rota_op op, bool finish, bits expected, bits value) {
    if (expected == value || finish)
        return expected == value;
    size_t size = reduce_partial_size(dtype, op);
    bool differs = size != rota_dtype_size(dtype);
    return narrow(dtype, differs, widen(dtype, op, differs, expected), size) ==
           narrow(dtype, differs, widen(dtype, op, differs, value), size);
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

/* Few values, so that there are ties: numbers, zeros of both signs, NaNs with payloads. */
static bits sample_pair(rota_dtype dtype, uint64_t *state) {
    static const float floats[] = {1, -1, 0, -0.0F, 2, INFINITY, -INFINITY, 1e-40F};
    uint64_t r = reference_random(state), index = (uint64_t)((int64_t)(r >> 32 & 7) - 3);
    uint32_t narrow_bits;
    float f = floats[r % 8];
    double d = (double)f;
    uint64_t wide_bits;
    memcpy(&narrow_bits, &f, sizeof(narrow_bits));
    memcpy(&wide_bits, &d, sizeof(wide_bits));
    if (r >> 8 & 1 && r >> 9 & 1) {
        narrow_bits = (narrow_bits & 0x80000000) | 0x7f800001;
        wide_bits = (wide_bits & ~(uint64_t)INT64_MAX) | UINT64_C(0x7ff0000000000001);
    }
    switch (dtype) {
    case ROTA_FLOAT32_INT32:
        return narrow_bits | (bits)(uint32_t)index << 32;
    case ROTA_FLOAT64_INT32: /* and any padding */
        return wide_bits | (bits)(uint32_t)index << 64 | (bits)(r >> 40) << 96;
    case ROTA_INT32_INT32:
        return (uint32_t)((r & 3) - 2) | (bits)(uint32_t)index << 32;
    default:
        return ((r & 3) - 2) << (r & 63) | (bits)index << 64;
    }
}

bits reference_sample(rota_dtype dtype, rota_op op, bool partial, uint64_t *state) {
    bool differs = reduce_partial_size(dtype, op) != rota_dtype_size(dtype);
    switch (dtype) {
    case ROTA_FLOAT16:
        return partial && differs ? sample_real(8, 23, 8, state) : sample_real(5, 10, 5, state);
    case ROTA_BFLOAT16:
        return partial && differs ? sample_real(8, 23, 8, state) : sample_real(8, 7, 8, state);
    case ROTA_FLOAT8_E4M3:
        return partial && differs ? sample_real(8, 23, 6, state) : sample_real(4, 3, 3, state);
    case ROTA_FLOAT8_E5M2:
        return partial && differs ? sample_real(8, 23, 8, state) : sample_real(5, 2, 5, state);
    case ROTA_COMPLEX64:
        return sample_real(8, 23, 12, state) | sample_real(8, 23, 12, state) << 32;
    case ROTA_COMPLEX128:
        return sample_real(11, 52, 16, state) | sample_real(11, 52, 16, state) << 64;
    case ROTA_BOOL:
        return reference_random(state) & 1 ? 0 : reference_random(state) & 0xff;
    case ROTA_FLOAT32_INT32:
    case ROTA_FLOAT64_INT32:
    case ROTA_INT32_INT32:
    case ROTA_INT64_INT64:
        return sample_pair(dtype, state);
    case ROTA_FLOAT32:
        return sample_real(8, 23, 12, state);
    case ROTA_FLOAT64:
        return sample_real(11, 52, 16, state);
    default:                      /* now and then zero, for the logical operators */
        if (partial && differs) { /* of an average: what sums of up to 2^20 ranks can be */
            uint64_t any = reference_random(state);
            return is_signed(dtype) ? (bits)(uint64_t)((int64_t)any >> 16) : (bits)(any >> 16);
        }
        return reference_random(state) % 8 ? reference_random(state) : 0;
    }
}
