/* Inputs and results of the check: exact, different by rank and position, and sharp. */
#include "bench/pattern.h"
#include "bench/number.h"
#include <criterion/criterion.h>
#include <string.h>

static struct pattern_tile tiles[12];
static struct pattern_tile result;

static double float_at(const struct pattern_tile *tile, size_t index) {
    uint64_t bits = 0;
    size_t element = rota_dtype_size(tile->dtype);
    memcpy(&bits, tile->bytes + index * element, element);
    return number_from_bits(bits, tile->dtype);
}

/* The sum rounded to the type after every addition, in ascending and in descending order, is the
 * expected result: so no order and no per-hop rounding can miss it. */
Test(pattern, sums_and_products_do_not_depend_on_the_order) {
    for (rota_dtype dtype = ROTA_FLOAT16; dtype <= ROTA_FLOAT8_E5M2; dtype++)
        for (rota_op op = ROTA_SUM; op <= ROTA_PROD; op++)
            for (int nranks = 1; nranks <= 12; nranks++) {
                for (int r = 0; r < nranks; r++)
                    pattern_tile_set(&tiles[r], dtype, op, nranks, r);
                pattern_tile_set(&result, dtype, op, nranks, PATTERN_RESULT);
                size_t element = rota_dtype_size(dtype);
                for (size_t i = 0; i < PATTERN_PERIOD; i++) {
                    uint64_t up_bits = 0, down_bits = 0, expected = 0;
                    double up = float_at(&tiles[0], i), down = float_at(&tiles[nranks - 1], i);
                    number_encode_floats(&up, 1, dtype, &up_bits);
                    number_encode_floats(&down, 1, dtype, &down_bits);
                    for (int r = 1; r < nranks; r++) {
                        double b = float_at(&tiles[r], i);
                        double c = float_at(&tiles[nranks - 1 - r], i);
                        up = op == ROTA_SUM ? up + b : up * b;
                        down = op == ROTA_SUM ? down + c : down * c;
                        up_bits = down_bits = 0;
                        number_encode_floats(&up, 1, dtype, &up_bits);
                        number_encode_floats(&down, 1, dtype, &down_bits);
                        up = number_from_bits(up_bits, dtype);
                        down = number_from_bits(down_bits, dtype);
                    }
                    memcpy(&expected, result.bytes + i * element, element);
                    cr_assert_eq(up_bits, expected, "type %u op %u n %d element %zu", dtype, op,
                                 nranks, i);
                    cr_assert_eq(down_bits, expected);
                }
            }
}

/* The same of complex numbers in float32, to the sign of a zero. */
Test(pattern, complex_products_do_not_depend_on_the_order) {
    for (int nranks = 1; nranks <= 12; nranks++) {
        for (int r = 0; r < nranks; r++)
            pattern_tile_set(&tiles[r], ROTA_COMPLEX64, ROTA_PROD, nranks, r);
        pattern_tile_set(&result, ROTA_COMPLEX64, ROTA_PROD, nranks, PATTERN_RESULT);
        for (size_t i = 0; i < PATTERN_PERIOD; i++) {
            float down[2], next[2], expected[2];
            memcpy(down, tiles[nranks - 1].bytes + i * sizeof(down), sizeof(down));
            for (int r = nranks - 2; r >= 0; r--) {
                memcpy(next, tiles[r].bytes + i * sizeof(next), sizeof(next));
                const float real = down[0] * next[0] - down[1] * next[1];
                down[1] = down[0] * next[1] + down[1] * next[0];
                down[0] = real;
            }
            memcpy(expected, result.bytes + i * sizeof(expected), sizeof(expected));
            cr_assert(memcmp(down, expected, sizeof(down)) == 0,
                      "n %d element %zu: %a %a, not %a %a", nranks, i, (double)down[0],
                      (double)down[1], (double)expected[0], (double)expected[1]);
            cr_assert(down[0] != 0 && down[1] != 0);
        }
    }
}

/* Every number of eight bits is read and written as itself, and what lies between goes to the
 * nearest: the even one of two. */
Test(pattern, numbers_of_eight_bits) {
    for (rota_dtype dtype = ROTA_FLOAT8_E4M3; dtype <= ROTA_FLOAT8_E5M2; dtype++) {
        unsigned last = dtype == ROTA_FLOAT8_E4M3 ? 0x7e : 0x7b;
        for (unsigned number = 0; number < last; number++) {
            double value = number_from_bits(number, dtype),
                   next = number_from_bits(number + 1, dtype);
            double middle = (value + next) / 2, above = middle + (next - value) / 8;
            uint8_t here, tie, up;
            number_encode_floats(&value, 1, dtype, &here);
            number_encode_floats(&middle, 1, dtype, &tie);
            number_encode_floats(&above, 1, dtype, &up);
            cr_assert_lt(value, next);
            cr_assert_eq(here, number);
            cr_assert_eq(tie, number + number % 2);
            cr_assert_eq(up, number + 1);
        }
    }
    double values[] = {464, 465, -465, 61439, 61440, -61440};
    uint8_t numbers[6];
    number_encode_floats(values, 3, ROTA_FLOAT8_E4M3, numbers);
    number_encode_floats(values + 3, 3, ROTA_FLOAT8_E5M2, numbers + 3);
    const uint8_t expected[] = {0x7e, 0x7f, 0x7f, 0x7b, 0x7c, 0xfc};
    cr_assert_arr_eq(numbers, expected, 6);
}

Test(pattern, results_of_one_element) {
    int8_t values[3], expected;
    for (rota_op op = 0; op < ROTA_MINLOC; op++) {
        for (int r = 0; r < 3; r++) {
            pattern_tile_set(&tiles[r], ROTA_INT8, op, 3, r);
            values[r] = (int8_t)tiles[r].bytes[17];
        }
        pattern_tile_set(&result, ROTA_INT8, op, 3, PATTERN_RESULT);
        int a = values[0], b = values[1], c = values[2];
        int least = a < b ? a : b, most = a > b ? a : b;
        least = least < c ? least : c;
        most = most > c ? most : c;
        const int wanted[] = {a + b + c,       a * b * c,   least,           most,
                              (a + b + c) / 3, a & b & c,   a | b | c,       a ^ b ^ c,
                              a && b && c,     a || b || c, !a ^ !b ^ !c ^ 1};
        memcpy(&expected, result.bytes + 17, 1);
        cr_assert_eq(expected, (int8_t)wanted[op], "op %u", op);
    }
}

Test(pattern, ranks_and_positions_differ) {
    pattern_tile_set(&tiles[0], ROTA_FLOAT32, ROTA_SUM, 4, 0);
    pattern_tile_set(&tiles[1], ROTA_FLOAT32, ROTA_SUM, 4, 1);
    int same_rank = 0, same_shift = 0;
    for (size_t i = 0; i < PATTERN_PERIOD; i++) {
        same_rank += memcmp(tiles[0].bytes + 4 * i, tiles[1].bytes + 4 * i, 4) == 0;
        same_shift += memcmp(tiles[0].bytes + 4 * i, tiles[0].bytes + 4 * (i + 64), 4) == 0;
    }
    cr_assert_lt(same_rank, 10);
    cr_assert_lt(same_shift, 10);
}

Test(pattern, every_wrong_byte_is_found) {
    static unsigned char data[3 * PATTERN_RUN];
    size_t first;
    pattern_tile_set(&tiles[0], ROTA_UINT8, PATTERN_NO_OP, 2, 1);
    pattern_fill(&tiles[0], data, sizeof data, 100);
    cr_assert_eq(pattern_compare(&tiles[0], data, sizeof data, 100, &first), 0);
    cr_assert_neq(pattern_compare(&tiles[0], data, sizeof data, 101, &first), 0);
    for (size_t i = 0; i < sizeof data; i += 997) {
        data[i] ^= 1;
        cr_assert_eq(pattern_compare(&tiles[0], data, sizeof data, 100, &first), 1);
        cr_assert_eq(first, i);
        data[i] ^= 1;
    }
}

/* Of the first rank it is that rank's input, of all ranks the result. */
Test(pattern, prefixes_begin_with_an_input_and_end_with_the_result) {
    static struct pattern_tile prefix, other;
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
            if (!rota_op_accepts(op, dtype) || op == ROTA_AVG)
                continue;
            size_t period = PATTERN_PERIOD * rota_dtype_size(dtype);
            pattern_tile_set(&prefix, dtype, op, 5, PATTERN_PREFIX(1));
            pattern_tile_set(&other, dtype, op, 5, 0);
            if (op < ROTA_LOGICAL_AND || op > ROTA_LOGICAL_XOR) /* these give 0 and 1 */
                cr_assert_arr_eq(prefix.bytes, other.bytes, period);
            pattern_tile_set(&prefix, dtype, op, 5, PATTERN_PREFIX(5));
            pattern_tile_set(&other, dtype, op, 5, PATTERN_RESULT);
            cr_assert_arr_eq(prefix.bytes, other.bytes, period);
            pattern_tile_set(&prefix, dtype, op, 5, PATTERN_PREFIX(4));
            cr_assert(memcmp(prefix.bytes, other.bytes, period) != 0);
        }
}
