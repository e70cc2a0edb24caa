/* Inputs and exact results of the check. */
#include "bench/pattern.h"

#include "bench/number.h"
#include <string.h>

/* One period as numbers: integers as 64 bits, sign-extended where the type is signed. Of complex
 * numbers f and g are the parts, of pairs f or u the value and index the index. */
struct period {
    double f[PATTERN_PERIOD], g[PATTERN_PERIOD];
    uint64_t u[PATTERN_PERIOD], index[PATTERN_PERIOD];
};

/* The largest sum of magnitudes that each type holds exactly: 2^(bits of its significand). */
static double exact_limit(rota_dtype dtype) {
    switch (dtype) {
    case ROTA_FLOAT8_E4M3:
        return 16;
    case ROTA_FLOAT8_E5M2:
        return 8;
    case ROTA_FLOAT16:
        return 2048;
    case ROTA_BFLOAT16:
        return 256;
    case ROTA_FLOAT32:
        return 16777216;
    default:
        return 9007199254740992;
    }
}

/* Small integers, so that every partial sum is exact in the type itself. With more ranks than the
 * type can count, only every stride-th rank contributes at a position. */
static double sum_value(uint64_t random, rota_dtype dtype, int nranks, int rank,
                        uint32_t position) {
    double limit = exact_limit(dtype);
    uint32_t stride = (uint32_t)((nranks + (int)(limit < 4096 ? limit : 4096) - 1) /
                                 (int)(limit < 4096 ? limit : 4096));
    if (((uint32_t)rank + position) % stride)
        return 0;
    uint64_t bound = (uint64_t)(limit * stride / nranks);
    return (double)(random % (2 * bound + 1)) - (double)bound;
}

/* Powers of two in both directions; at most eight ranks differ from 1 at a position, so that every
 * partial product is a normal number of every type. */
static double prod_value(uint64_t random, int nranks, int rank, uint32_t position) {
    uint32_t stride = ((uint32_t)nranks + 7) / 8;
    double sign = random & 1 ? -1 : 1;
    if (((uint32_t)rank + position) % stride)
        return sign;
    return sign * (random & 2 ? 1 : random & 4 ? 2 : 0.5);
}

/* Any number but NaN, and often a zero of either sign. */
static double order_value(uint64_t random, rota_dtype dtype) {
    if (random % 16 == 0)
        return random & 16 ? -0.0 : 0.0;
    return number_from_bits(random >> 8, dtype);
}

static void float_period(struct period *values, rota_dtype dtype, rota_op op, int nranks,
                         int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
        values->g[i] = 0;
        if (op == ROTA_SUM || op == ROTA_AVG)
            values->f[i] = sum_value(random, dtype, nranks, rank, i);
        else if (op == ROTA_PROD)
            values->f[i] = prod_value(random, nranks, rank, i);
        else
            values->f[i] = order_value(random, dtype);
    }
}

/* Integers use their whole width, for sums and products wrap; only the 64-bit average must not,
 * and odd factors keep products from vanishing. */
static void integer_period(struct period *values, rota_dtype dtype, rota_op op, int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
        if (op == ROTA_PROD)
            random |= 1;
        if (op >= ROTA_LOGICAL_AND && random % 3 == 0)
            random = 0;
        if (op == ROTA_AVG && rota_dtype_size(dtype) == 8)
            random =
                number_is_signed(dtype) ? (uint64_t)((int64_t)random / (1 << 20)) : random >> 20;
        values->u[i] = number_integer(random, dtype);
    }
}

/* Sums of parts as of real numbers. A product of a few factors i^k (2 + i) and of units is exact
 * and has no part that is zero, whose sign would depend on the order; the first rank's is never a
 * unit, so that this holds for the first so many ranks too. */
static void complex_period(struct period *values, rota_dtype dtype, rota_op op, int nranks,
                           int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
        uint64_t other = number_random((uint64_t)rank, i + PATTERN_PERIOD);
        if (op != ROTA_PROD) {
            values->f[i] = sum_value(random, number_part(dtype), nranks, rank, i);
            values->g[i] = sum_value(other, number_part(dtype), nranks, rank, i);
            continue;
        }
        uint32_t stride = ((uint32_t)nranks + 7) / 8;
        bool unit = rank > 0 && ((uint32_t)rank + i) % stride != 0;
        double sign = random & 1 ? -1 : 1, re = unit ? 1 : 2, im = unit ? 0 : 1;
        bool turned = !unit && random & 2;
        values->f[i] = sign * (turned ? -im : re);
        values->g[i] = unit ? 0 : sign * (turned ? re : im);
    }
}

/* Few values and few indices, so that there are ties. */
static void pair_period(struct period *values, int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
        int64_t value = (int64_t)(random % 5) - 2;
        values->f[i] = value == 0 && random & 64 ? -0.0 : (double)value;
        values->u[i] = (uint64_t)value;
        values->index[i] = (uint64_t)((int64_t)(random >> 8 & 7) - 2);
    }
}

static void truth_period(struct period *values, int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++)
        values->u[i] = number_random((uint64_t)rank, i) & 1;
}

static void input_period(struct period *values, rota_dtype dtype, rota_op op, int nranks,
                         int rank) {
    enum number_class class = op == PATTERN_NO_OP ? NUMBER_INTEGER : number_class(dtype);
    if (class == NUMBER_FLOAT)
        float_period(values, dtype, op, nranks, rank);
    else if (class == NUMBER_COMPLEX)
        complex_period(values, dtype, op, nranks, rank);
    else if (class == NUMBER_FLOAT_PAIR || class == NUMBER_INTEGER_PAIR)
        pair_period(values, rank);
    else if (class == NUMBER_TRUTH)
        truth_period(values, rank);
    else
        integer_period(values, dtype, op, rank);
}

static void float_combine(struct period *sum, const struct period *values, rota_op op) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        double a = sum->f[i], b = values->f[i];
        if (op == ROTA_SUM || op == ROTA_AVG)
            sum->f[i] = a + b;
        else if (op == ROTA_PROD)
            sum->f[i] = a * b;
        else /* -0 < +0 */
            sum->f[i] = number_less(a, b) == (op == ROTA_MIN) ? a : b;
    }
}

static uint64_t integer_combined(uint64_t a, uint64_t b, bool less, rota_op op) {
    switch (op) {
    case ROTA_SUM:
    case ROTA_AVG:
        return a + b;
    case ROTA_PROD:
        return a * b;
    case ROTA_MIN:
        return less ? a : b;
    case ROTA_MAX:
        return less ? b : a;
    case ROTA_BITWISE_AND:
        return a & b;
    case ROTA_BITWISE_OR:
        return a | b;
    case ROTA_BITWISE_XOR:
        return a ^ b;
    case ROTA_LOGICAL_AND:
        return a && b;
    case ROTA_LOGICAL_OR:
        return a || b;
    default:
        return !a != !b;
    }
}

static void integer_combine(struct period *sum, const struct period *values, rota_dtype dtype,
                            rota_op op) {
    bool is_signed = number_is_signed(dtype);
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t a = sum->u[i], b = values->u[i];
        bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
        sum->u[i] = integer_combined(a, b, less, op);
    }
}

/* Of truths a sum and a maximum are `or`, a product and a minimum `and`. */
static void truth_combine(struct period *sum, const struct period *values, rota_op op) {
    rota_op logical = op == ROTA_SUM || op == ROTA_MAX    ? ROTA_LOGICAL_OR
                      : op == ROTA_PROD || op == ROTA_MIN ? ROTA_LOGICAL_AND
                                                          : op;
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++)
        sum->u[i] = integer_combined(sum->u[i], values->u[i], false, logical);
}

static void complex_combine(struct period *sum, const struct period *values, rota_op op) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        double a = sum->f[i], b = sum->g[i], c = values->f[i], d = values->g[i];
        sum->f[i] = op == ROTA_PROD ? a * c - b * d : a + c;
        sum->g[i] = op == ROTA_PROD ? a * d + b * c : b + d;
    }
}

/* The smaller or larger value; of equal ones (-0 is below +0) the lower index. */
static void pair_combine(struct period *sum, const struct period *values, bool floats, rota_op op) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        int64_t a = (int64_t)sum->u[i], b = (int64_t)values->u[i];
        bool less = floats ? number_less(sum->f[i], values->f[i]) : a < b;
        bool more = floats ? number_less(values->f[i], sum->f[i]) : b < a;
        bool lower = (int64_t)values->index[i] < (int64_t)sum->index[i];
        bool taken = less || more ? less != (op == ROTA_MINLOC) : lower;
        if (!taken)
            continue;
        sum->f[i] = values->f[i];
        sum->u[i] = values->u[i];
        sum->index[i] = values->index[i];
    }
}

static void combine(struct period *sum, const struct period *values, rota_dtype dtype, rota_op op) {
    switch (number_class(dtype)) {
    case NUMBER_FLOAT:
        float_combine(sum, values, op);
        break;
    case NUMBER_COMPLEX:
        complex_combine(sum, values, op);
        break;
    case NUMBER_TRUTH:
        truth_combine(sum, values, op);
        break;
    case NUMBER_FLOAT_PAIR:
    case NUMBER_INTEGER_PAIR:
        pair_combine(sum, values, number_class(dtype) == NUMBER_FLOAT_PAIR, op);
        break;
    default:
        integer_combine(sum, values, dtype, op);
    }
}

/* The average: one division in the accumulation type; integers truncate toward zero. */
static void divide(struct period *sum, rota_dtype dtype, int nranks) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        if (number_part(dtype) == ROTA_FLOAT64) {
            sum->f[i] /= nranks;
            sum->g[i] /= nranks;
        } else if (number_is_float(dtype) || dtype == ROTA_COMPLEX64) {
            sum->f[i] = (double)((float)sum->f[i] / (float)nranks);
            sum->g[i] = (double)((float)sum->g[i] / (float)nranks);
        } else if (number_is_signed(dtype))
            sum->u[i] = (uint64_t)((int64_t)sum->u[i] / nranks);
        else
            sum->u[i] /= (uint64_t)nranks;
    }
}

/* Over the first `count` of nranks ranks. */
static void result_period(struct period *sum, rota_dtype dtype, rota_op op, int nranks, int count) {
    struct period values;
    input_period(sum, dtype, op, nranks, 0);
    if (op >= ROTA_LOGICAL_AND && op <= ROTA_LOGICAL_XOR) /* of one rank alone too */
        for (uint32_t i = 0; i < PATTERN_PERIOD; i++)
            sum->u[i] = sum->u[i] != 0;
    for (int r = 1; r < count; r++) {
        input_period(&values, dtype, op, nranks, r);
        combine(sum, &values, dtype, op);
    }
    if (op == ROTA_AVG)
        divide(sum, dtype, nranks);
}

static void encode(const struct period *values, rota_dtype dtype, rota_op op, void *bytes) {
    switch (op == PATTERN_NO_OP ? NUMBER_INTEGER : number_class(dtype)) {
    case NUMBER_FLOAT:
        number_encode_floats(values->f, PATTERN_PERIOD, dtype, bytes);
        break;
    case NUMBER_COMPLEX:
        number_encode_complex(values->f, values->g, PATTERN_PERIOD, dtype, bytes);
        break;
    case NUMBER_FLOAT_PAIR:
        number_encode_float_pairs(values->f, values->index, PATTERN_PERIOD, dtype, bytes);
        break;
    case NUMBER_INTEGER_PAIR:
        number_encode_integer_pairs(values->u, values->index, PATTERN_PERIOD, dtype, bytes);
        break;
    default:
        number_encode_integers(values->u, PATTERN_PERIOD, rota_dtype_size(dtype), bytes);
    }
}

void pattern_tile_set(struct pattern_tile *tile, rota_dtype dtype, rota_op op, int nranks,
                      int origin) {
    struct period values;
    if (tile->valid && tile->dtype == dtype && tile->op == op && tile->nranks == nranks &&
        tile->origin == origin)
        return;
    size_t period = PATTERN_PERIOD * rota_dtype_size(dtype);
    if (origin == PATTERN_POISONED) {
        memset(tile->bytes, PATTERN_POISON, period);
    } else {
        if (origin == PATTERN_RESULT)
            result_period(&values, dtype, op, nranks, nranks);
        else if (origin < PATTERN_POISONED)
            result_period(&values, dtype, op, nranks, PATTERN_PREFIX(origin));
        else
            input_period(&values, dtype, op, nranks, origin);
        encode(&values, dtype, op, tile->bytes);
    }
    for (size_t copy = 1; copy < PATTERN_TILE / PATTERN_PERIOD; copy++)
        memcpy(tile->bytes + copy * period, tile->bytes, period);
    tile->valid = true;
    tile->dtype = dtype;
    tile->op = op;
    tile->nranks = nranks;
    tile->origin = origin;
}

void pattern_fill(const struct pattern_tile *tile, void *data, size_t count, uint32_t phase) {
    size_t element = rota_dtype_size(tile->dtype), bytes = count * element;
    size_t run = PATTERN_RUN * element;
    const unsigned char *source = tile->bytes + phase * element;
    unsigned char *target = data;
    for (size_t done = 0; done < bytes; done += run)
        memcpy(target + done, source, bytes - done < run ? bytes - done : run);
}

size_t pattern_compare(const struct pattern_tile *tile, const void *data, size_t count,
                       uint32_t phase, size_t *first) {
    size_t element = rota_dtype_size(tile->dtype), wrong = 0;
    const unsigned char *expected = tile->bytes + phase * element, *found = data;
    for (size_t done = 0; done < count; done += PATTERN_RUN, found += PATTERN_RUN * element) {
        size_t run = count - done < PATTERN_RUN ? count - done : PATTERN_RUN;
        if (memcmp(found, expected, run * element) == 0)
            continue;
        for (size_t i = 0; i < run; i++)
            if (memcmp(found + i * element, expected + i * element, element) && wrong++ == 0)
                *first = done + i;
    }
    return wrong;
}

void pattern_fill_order_dependent(void *data, size_t count, rota_dtype dtype, int rank) {
    double floats[256];
    uint64_t integers[256];
    if (number_class(dtype) == NUMBER_COMPLEX) { /* the parts, one by one */
        dtype = number_part(dtype);
        count *= 2;
    }
    size_t element = rota_dtype_size(dtype);
    unsigned char *target = data;
    for (size_t done = 0; done < count; done += 256, target += 256 * element) {
        size_t run = count - done < 256 ? count - done : 256;
        for (size_t i = 0; i < run; i++) {
            uint64_t random = number_random(~(uint64_t)rank, done + i);
            double magnitude = 1 + (double)(random >> 24) / (double)((uint64_t)1 << 40);
            integers[i] = number_class(dtype) == NUMBER_TRUTH ? random & 1 : random;
            floats[i] = (random & 1 ? -magnitude : magnitude) *
                        (double)(1u << (random >> 1 & 15) % 10) / 32;
        }
        if (number_is_float(dtype))
            number_encode_floats(floats, run, dtype, target);
        else
            number_encode_integers(integers, run, element, target);
    }
}
