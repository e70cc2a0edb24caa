/* Integers take all their bits, because they wrap whatever the order. Floating numbers are small
 * whole numbers (sums are exact in every type) or powers of two (products are exact), and now and
 * then a zero of either sign, an infinity or a NaN with a payload. */
#include "values.h"
#include "reference.h"
#include <math.h>
#include <string.h>

uint64_t value_mix(uint64_t number) { /* splitmix64 (Steele, Lea, Flood 2014) */
    number += UINT64_C(0x9e3779b97f4a7c15);
    number = (number ^ (number >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    number = (number ^ (number >> 27)) * UINT64_C(0x94d049bb133111eb);
    return number ^ (number >> 31);
}

static uint64_t draw(uint64_t salt, int rank, size_t index) {
    return value_mix(salt ^ ((uint64_t)rank << 48) ^ ((uint64_t)index << 8));
}

static bool is_signed(rota_dtype dtype) {
    return dtype == ROTA_INT8 || dtype == ROTA_INT16 || dtype == ROTA_INT32 || dtype == ROTA_INT64;
}

static uint64_t integer_input(rota_dtype dtype, rota_op op, uint64_t random) {
    size_t width = 8 * rota_dtype_size(dtype);
    if (op == ROTA_AVG && width == 64) /* their sum must fit */
        return is_signed(dtype) ? (uint64_t)((int64_t)random / 256) : random / 256;
    if (width == 64)
        return random;
    uint64_t low = random & ((UINT64_C(1) << width) - 1);
    if (is_signed(dtype) && low >> (width - 1) != 0)
        low |= ~UINT64_C(0) << width;
    return low;
}

static double float_input(rota_op op, uint64_t random) {
    if (random % 64 == 0) {
        switch ((random >> 8) % 5) {
        case 0:
            return -0.0;
        case 1:
            return (double)INFINITY;
        case 2:
            return -(double)INFINITY;
        case 3:
            return (double)NAN;
        default:
            return 0.0;
        }
    }
    if (op == ROTA_PROD)
        return ldexp((random >> 8) % 2 == 0 ? 1 : -1, (int)((random >> 16) % 3) - 1);
    return (double)((random >> 8) % 31) - 15;
}

static void store_float(rota_dtype dtype, double value, void *element) {
    uint16_t narrow;
    float single = (float)value;
    switch (dtype) {
    case ROTA_FLOAT16:
        narrow = reference_half_round(value);
        memcpy(element, &narrow, sizeof(narrow));
        break;
    case ROTA_BFLOAT16:
        narrow = reference_brain_round(value);
        memcpy(element, &narrow, sizeof(narrow));
        break;
    case ROTA_FLOAT32:
        memcpy(element, &single, sizeof(single));
        break;
    default:
        memcpy(element, &value, sizeof(value));
    }
}

/* A NaN that is not the canonical one, or the canonical one. */
static void store_nan(rota_dtype dtype, bool canonical, void *element) {
    static const uint64_t quiet[] = {0x7e00, 0x7fc0, 0x7fc00000, UINT64_C(0x7ff8000000000000)};
    uint64_t pattern = quiet[dtype - ROTA_FLOAT16];
    size_t size = rota_dtype_size(dtype);
    if (!canonical)
        pattern |= UINT64_C(1) | UINT64_C(1) << (8 * size - 1);
    memcpy(element, &pattern, size); /* little-endian */
}

static bool is_complex(rota_dtype dtype) {
    return dtype == ROTA_COMPLEX64 || dtype == ROTA_COMPLEX128;
}

/* Those that the numbers above are made for; what came later is compared with the reference. */
static bool is_plain(rota_dtype dtype, rota_op op) {
    return dtype <= ROTA_FLOAT64 && op <= ROTA_AVG;
}

/* A product of powers of 2 + i and of units is exact and has no part that is zero, whose sign would
 * depend on the order. The first rank is in every product that is asked for. */
static void complex_input(rota_dtype dtype, rota_op op, uint64_t random, int rank, void *element) {
    double parts[2] = {float_input(op, random), float_input(op, value_mix(random))};
    if (op == ROTA_PROD) {
        double sign = (random >> 8) % 2 == 0 ? 1 : -1;
        bool turned = (random >> 9) % 2 == 0 && rank < 8;
        parts[0] = rank >= 8 ? sign : turned ? -sign : 2 * sign;
        parts[1] = rank >= 8 ? 0 : turned ? 2 * sign : sign;
    }
    float singles[2] = {(float)parts[0], (float)parts[1]};
    memcpy(element, dtype == ROTA_COMPLEX64 ? (void *)singles : (void *)parts,
           rota_dtype_size(dtype));
}

/* Small enough for sums that are rounded to the type at every step. */
static void float8_input(rota_dtype dtype, rota_op op, uint64_t random, void *element) {
    double value = op == ROTA_PROD ? ldexp(random % 2 == 0 ? 1 : -1, (int)(random / 2 % 3) - 1)
                                   : (double)(random % 3) - 1;
    if (random / 8 % 64 == 0)
        value = random / 512 % 2 == 0 ? (double)NAN : -0.0;
    uint8_t number =
        dtype == ROTA_FLOAT8_E4M3 ? reference_e4m3_round(value) : reference_e5m2_round(value);
    memcpy(element, &number, sizeof(number));
}

static void later_input(rota_dtype dtype, rota_op op, uint64_t random, int rank, void *element) {
    if (is_complex(dtype)) {
        complex_input(dtype, op, random, rank, element);
    } else if (dtype == ROTA_FLOAT8_E4M3 || dtype == ROTA_FLOAT8_E5M2) {
        float8_input(dtype, op, random, element);
    } else {
        bits sample = reference_sample(dtype, op, false, &random);
        memcpy(element, &sample, rota_dtype_size(dtype));
    }
}

static void later_expected(rota_dtype dtype, rota_op op, uint64_t salt, int nranks, size_t index,
                           void *element) {
    _Alignas(16) unsigned char inputs[VALUE_MAX_RANKS][16];
    struct reduce_operand operands[VALUE_MAX_RANKS];
    for (int rank = 0; rank < nranks; rank++) {
        later_input(dtype, op, draw(salt, rank, index), rank, inputs[rank]);
        operands[rank] = (struct reduce_operand){.data = inputs[rank]};
    }
    bits value = reference_reduce(dtype, op, nranks, operands, (size_t)nranks, 0, true);
    memcpy(element, &value, rota_dtype_size(dtype));
}

void value_input(rota_dtype dtype, rota_op op, uint64_t salt, int rank, size_t index,
                 void *element) {
    uint64_t random = draw(salt, rank, index);
    if (op == VALUE_MOVED) {
        const uint64_t patterns[] = {random, value_mix(random)};
        memcpy(element, patterns, rota_dtype_size(dtype));
        return;
    }
    if (!is_plain(dtype, op)) {
        later_input(dtype, op, random, rank, element);
        return;
    }
    if (dtype < ROTA_FLOAT16) {
        uint64_t pattern = integer_input(dtype, op, random);
        memcpy(element, &pattern, rota_dtype_size(dtype));
        return;
    }
    double value = float_input(op, random);
    if (isnan(value))
        store_nan(dtype, false, element);
    else
        store_float(dtype, value, element);
}

static bool less(rota_dtype dtype, uint64_t a, uint64_t b) {
    return is_signed(dtype) ? (int64_t)a < (int64_t)b : a < b;
}

static uint64_t fold_integer(rota_dtype dtype, rota_op op, uint64_t a, uint64_t b) {
    switch (op) {
    case ROTA_PROD:
        return a * b;
    case ROTA_MIN:
        return less(dtype, b, a) ? b : a;
    case ROTA_MAX:
        return less(dtype, a, b) ? b : a;
    default:
        return a + b;
    }
}

static double fold_float(rota_op op, double a, double b) {
    if (isnan(a) || isnan(b))
        return (double)NAN;
    bool b_below = b < a || (b == a && signbit(b) && !signbit(a));
    switch (op) {
    case ROTA_PROD:
        return a * b;
    case ROTA_MIN:
        return b_below ? b : a;
    case ROTA_MAX:
        return b_below ? a : b;
    default:
        return a + b;
    }
}

static void expected_integer(rota_dtype dtype, rota_op op, uint64_t salt, int nranks, size_t index,
                             void *element) {
    uint64_t total = integer_input(dtype, op, draw(salt, 0, index));
    for (int rank = 1; rank < nranks; rank++)
        total = fold_integer(dtype, op, total, integer_input(dtype, op, draw(salt, rank, index)));
    if (op == ROTA_AVG)
        total = is_signed(dtype) ? (uint64_t)((int64_t)total / nranks) : total / (uint64_t)nranks;
    memcpy(element, &total, rota_dtype_size(dtype));
}

void value_expected(rota_dtype dtype, rota_op op, uint64_t salt, int nranks, size_t index,
                    void *element) {
    if (!is_plain(dtype, op)) {
        later_expected(dtype, op, salt, nranks, index, element);
        return;
    }
    if (dtype < ROTA_FLOAT16) {
        expected_integer(dtype, op, salt, nranks, index, element);
        return;
    }
    double total = float_input(op, draw(salt, 0, index));
    for (int rank = 1; rank < nranks; rank++)
        total = fold_float(op, total, float_input(op, draw(salt, rank, index)));
    if (op == ROTA_AVG)
        total = dtype == ROTA_FLOAT64 ? total / nranks : (double)((float)total / (float)nranks);
    if (isnan(total))
        store_nan(dtype, true, element);
    else
        store_float(dtype, total, element);
}
