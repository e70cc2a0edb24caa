/* Inputs and exact results of the check. */
#include "bench/pattern.h"

#include "bench/number.h"
#include <string.h>

/* One period as numbers: integers as 64 bits, sign-extended where the type is signed. */
union period {
    double f[PATTERN_PERIOD];
    uint64_t u[PATTERN_PERIOD];
};

/* The largest sum of magnitudes that each type holds exactly: 2^(bits of its significand). */
static double exact_limit(rota_dtype dtype) {
    switch (dtype) {
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

static void float_period(union period *values, rota_dtype dtype, rota_op op, int nranks, int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
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
static void integer_period(union period *values, rota_dtype dtype, rota_op op, int rank) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t random = number_random((uint64_t)rank, i);
        if (op == ROTA_PROD)
            random |= 1;
        if (op == ROTA_AVG && rota_dtype_size(dtype) == 8)
            random =
                number_is_signed(dtype) ? (uint64_t)((int64_t)random / (1 << 20)) : random >> 20;
        values->u[i] = number_integer(random, dtype);
    }
}

static void input_period(union period *values, rota_dtype dtype, rota_op op, int nranks, int rank) {
    if (number_is_float(dtype) && op != PATTERN_NO_OP)
        float_period(values, dtype, op, nranks, rank);
    else
        integer_period(values, dtype, op, rank);
}

static void float_combine(union period *sum, const union period *values, rota_op op) {
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

static void integer_combine(union period *sum, const union period *values, rota_dtype dtype,
                            rota_op op) {
    bool is_signed = number_is_signed(dtype);
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        uint64_t a = sum->u[i], b = values->u[i];
        bool less = is_signed ? (int64_t)a < (int64_t)b : a < b;
        if (op == ROTA_SUM || op == ROTA_AVG)
            sum->u[i] = a + b;
        else if (op == ROTA_PROD)
            sum->u[i] = a * b;
        else
            sum->u[i] = less == (op == ROTA_MIN) ? a : b;
    }
}

/* The average: one division in the accumulation type; integers truncate toward zero. */
static void divide(union period *sum, rota_dtype dtype, int nranks) {
    for (uint32_t i = 0; i < PATTERN_PERIOD; i++) {
        if (dtype == ROTA_FLOAT64)
            sum->f[i] /= nranks;
        else if (number_is_float(dtype))
            sum->f[i] = (double)((float)sum->f[i] / (float)nranks);
        else if (number_is_signed(dtype))
            sum->u[i] = (uint64_t)((int64_t)sum->u[i] / nranks);
        else
            sum->u[i] /= (uint64_t)nranks;
    }
}

/* Over the first `count` of nranks ranks. */
static void result_period(union period *sum, rota_dtype dtype, rota_op op, int nranks, int count) {
    union period values;
    input_period(sum, dtype, op, nranks, 0);
    for (int r = 1; r < count; r++) {
        input_period(&values, dtype, op, nranks, r);
        if (number_is_float(dtype))
            float_combine(sum, &values, op);
        else
            integer_combine(sum, &values, dtype, op);
    }
    if (op == ROTA_AVG)
        divide(sum, dtype, nranks);
}

void pattern_tile_set(struct pattern_tile *tile, rota_dtype dtype, rota_op op, int nranks,
                      int origin) {
    union period values;
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
        if (number_is_float(dtype) && op != PATTERN_NO_OP)
            number_encode_floats(values.f, PATTERN_PERIOD, dtype, tile->bytes);
        else
            number_encode_integers(values.u, PATTERN_PERIOD, rota_dtype_size(dtype), tile->bytes);
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
    size_t element = rota_dtype_size(dtype);
    unsigned char *target = data;
    for (size_t done = 0; done < count; done += 256, target += 256 * element) {
        size_t run = count - done < 256 ? count - done : 256;
        for (size_t i = 0; i < run; i++) {
            uint64_t random = number_random(~(uint64_t)rank, done + i);
            double magnitude = 1 + (double)(random >> 24) / (double)((uint64_t)1 << 40);
            integers[i] = random;
            floats[i] = (random & 1 ? -magnitude : magnitude) *
                        (double)(1u << (random >> 1 & 15) % 10) / 32;
        }
        if (number_is_float(dtype))
            number_encode_floats(floats, run, dtype, target);
        else
            number_encode_integers(integers, run, element, target);
    }
}
