/* Cases from the field, at the level of the kernels: each runs on every instruction set that the
 * machine has. */
#include "reference.h"
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#define MAX_RANKS 8

#define FOR_EACH_ISA(isa)                                                                          \
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++)                                \
        if (cpu_isa_available(isa))

static struct reduce_spec spec_of(rota_dtype dtype, rota_op op, int nranks, enum cpu_isa isa) {
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, dtype, op, nranks, isa), ROTA_OK);
    return spec;
}

/* Reduces values[rank] repeated `count` times and checks that every element is `expected`. */
static void check_constant(rota_dtype dtype, rota_op op, const uint64_t *values, int nranks,
                           size_t count, uint64_t expected) {
    size_t size = rota_dtype_size(dtype);
    unsigned char *data = malloc((size_t)(nranks + 1) * count * size);
    cr_assert_not_null(data);
    unsigned char *result = data + (size_t)nranks * count * size;
    struct reduce_operand operands[MAX_RANKS];
    for (int r = 0; r < nranks; r++) {
        operands[r] = (struct reduce_operand){data + (size_t)r * count * size, false};
        for (size_t i = 0; i < count; i++)
            memcpy(data + ((size_t)r * count + i) * size, &values[r], size);
    }
    FOR_EACH_ISA(isa) {
        struct reduce_spec spec = spec_of(dtype, op, nranks, isa);
        memset(result, 0x55, count * size);
        reduce_run(&spec, result, true, operands, (size_t)nranks, count);
        for (size_t i = 0; i < count; i++) {
            uint64_t value = (uint64_t)reference_load(result, i, size);
            cr_assert_eq(value, expected, "%s %s %s: element %zu of %zu is %#lx, not %#lx",
                         rota_dtype_name(dtype), rota_op_name(op), cpu_isa_name(isa), i, count,
                         value, expected);
        }
    }
    free(data);
}

static void check_two(rota_dtype dtype, rota_op op, uint64_t left, uint64_t right,
                      uint64_t expected) {
    const uint64_t values[] = {left, right};
    for (size_t count = 1; count <= 70; count++)
        check_constant(dtype, op, values, 2, count, expected);
}

Test(cases, C01_bfloat16_sum_of_eight) {
    const size_t counts[] = {1, 17, 4099};
    for (int holder = 0; holder < 8; holder++) {
        uint64_t values[8];
        for (int r = 0; r < 8; r++)
            values[r] = r == holder ? 0x4380 : 0x3f80;
        for (size_t c = 0; c < 3; c++)
            check_constant(ROTA_BFLOAT16, ROTA_SUM, values, 8, counts[c], 0x4384);
    }
}

/* All patterns and three more, against constants; the exact sum fits into a double. */
Test(cases, C02_float16_all_patterns) {
    enum { COUNT = 65536 + 3 };
    static const uint16_t constants[] = {0x0000, 0x8000, 0x0001, 0x03ff, 0x3c00, 0x4bff,
                                         0x4c00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00};
    static uint16_t left[COUNT], right[COUNT], sum[COUNT], expected[COUNT];
    for (size_t k = 0; k < sizeof(constants) / sizeof(constants[0]); k++) {
        for (size_t i = 0; i < COUNT; i++) {
            left[i] = (uint16_t)i;
            right[i] = constants[k];
            expected[i] = reference_half_round(reference_half_value(left[i]) +
                                               reference_half_value(constants[k]));
        }
        FOR_EACH_ISA(isa) {
            struct reduce_spec spec = spec_of(ROTA_FLOAT16, ROTA_SUM, 2, isa);
            reduce_pair(&spec, sum, NULL, left, right, COUNT);
            for (size_t i = 0; i < COUNT; i++)
                cr_assert_eq(sum[i], expected[i], "%s: %04x + %04x = %04x, not %04x",
                             cpu_isa_name(isa), left[i], right[i], sum[i], expected[i]);
        }
    }
}

Test(cases, C02_float16_named_sums) {
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x7bff, 0x4bff, 0x7bff); /* 65504 + 15.992 */
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x7bff, 0x4c00, 0x7c00); /* 65504 + 16 */
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x6800, 0x3c00, 0x6800); /* 2048 + 1 */
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x7c00, 0xfc00, 0x7e00);
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x0001, 0x0001, 0x0002);
}

Test(cases, C08_average_overflow) {
    const uint64_t sixty_thousand[] = {0x7b53, 0x7b53, 0x7b53, 0x7b53};
    cr_assert_eq(reference_half_value(0x7b53), 60000.0);
    check_constant(ROTA_FLOAT16, ROTA_AVG, sixty_thousand, 4, 70, 0x7b53);
    const uint64_t largest[] = {0x7f7f, 0x7f7f, 0x7f7f};
    check_constant(ROTA_BFLOAT16, ROTA_AVG, largest, 3, 70, 0x7f80);
}

static void check_average(rota_dtype dtype, int64_t a, int64_t b, int64_t c, int64_t expected) {
    size_t size = rota_dtype_size(dtype);
    uint64_t mask = size == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * size) - 1;
    const uint64_t values[] = {(uint64_t)a, (uint64_t)b, (uint64_t)c};
    check_constant(dtype, ROTA_AVG, values, 3, 35, (uint64_t)expected & mask);
}

Test(cases, C09_integer_average) {
    for (rota_dtype dtype = ROTA_INT8; dtype <= ROTA_UINT64; dtype++) {
        check_average(dtype, 7, 7, 7, 7);
        check_average(dtype, 1, 1, 2, 1);
        check_average(dtype, 0, 0, 1, 0);
        check_average(dtype, 100, 100, 100, 100);
        if (dtype % 2 == 0)
            check_average(dtype, -1, -1, -2, -1);
    }
    check_average(ROTA_UINT8, 255, 255, 255, 255);
    check_average(ROTA_INT8, -128, -128, -128, -128);
    check_average(ROTA_INT32, INT32_MIN, INT32_MIN, INT32_MIN, INT32_MIN);
    check_average(ROTA_UINT32, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX);
    /* 64 bits wrap: 3 * 2^62 is -2^62. */
    check_average(ROTA_INT64, INT64_C(1) << 62, INT64_C(1) << 62, INT64_C(1) << 62,
                  -(INT64_C(1) << 62) / 3);
}

Test(cases, C10_average_is_no_sum) {
    const uint64_t floats[] = {0x3f800000, 0x40000000, 0x40400000, 0x40800000};
    const uint64_t brains[] = {0x3f80, 0x4000, 0x4040, 0x4080};
    const uint64_t integers[] = {1, 2, 3, 4};
    for (size_t count = 1; count < 300; count += 37) {
        check_constant(ROTA_FLOAT32, ROTA_AVG, floats, 4, count, 0x40200000);
        check_constant(ROTA_BFLOAT16, ROTA_AVG, brains, 4, count, 0x4020);
        check_constant(ROTA_INT32, ROTA_AVG, integers, 4, count, 2);
    }
}

Test(cases, C12_unsigned_extremes) {
    for (rota_dtype dtype = ROTA_UINT8; dtype <= ROTA_UINT64; dtype += 2) {
        size_t size = rota_dtype_size(dtype);
        uint64_t largest = size == 8 ? UINT64_MAX : (UINT64_C(1) << 8 * size) - 1;
        check_two(dtype, ROTA_MIN, 0, largest, 0);
        check_two(dtype, ROTA_MIN, largest, 0, 0);
        check_two(dtype, ROTA_MAX, 0, largest, largest);
        check_two(dtype, ROTA_MAX, largest, 0, largest);
    }
    check_two(ROTA_INT8, ROTA_MIN, 0xff, 0, 0xff);
    check_two(ROTA_INT64, ROTA_MAX, UINT64_MAX, 0, 0);
}

static void check_extremes(rota_dtype dtype, uint64_t low, uint64_t high) {
    check_two(dtype, ROTA_MIN, low, high, low);
    check_two(dtype, ROTA_MIN, high, low, low);
    check_two(dtype, ROTA_MAX, low, high, high);
    check_two(dtype, ROTA_MAX, high, low, high);
}

Test(cases, C13_float_extremes) {
    check_extremes(ROTA_BFLOAT16, 0xc000, 0xbf80); /* -2, -1 */
    check_extremes(ROTA_BFLOAT16, 0xbf80, 0x3f80); /* -1, 1 */
    check_extremes(ROTA_BFLOAT16, 0xff80, 0x4040); /* -Inf, 3 */
    check_extremes(ROTA_BFLOAT16, 0x8001, 0x0001);
    check_extremes(ROTA_BFLOAT16, 0x8000, 0x0000);
    check_extremes(ROTA_FLOAT16, 0xc000, 0xbc00);
    check_extremes(ROTA_FLOAT16, 0xbc00, 0x3c00);
    check_extremes(ROTA_FLOAT16, 0xfc00, 0x4200);
    check_extremes(ROTA_FLOAT16, 0x8001, 0x0001);
    check_extremes(ROTA_FLOAT16, 0x8000, 0x0000);
    check_extremes(ROTA_FLOAT32, 0x80000000, 0);
    check_extremes(ROTA_FLOAT32, 0x80000001, 1);
    check_extremes(ROTA_FLOAT64, UINT64_C(1) << 63, 0);
    check_extremes(ROTA_FLOAT64, UINT64_C(0xfff0000000000000), 1);
}

Test(cases, C13_nan_wins) {
    const struct {
        rota_dtype dtype;
        uint64_t signalling, one, canonical;
    } types[] = {
        {ROTA_FLOAT16, 0xfc01, 0x3c00, 0x7e00},
        {ROTA_BFLOAT16, 0xff81, 0x3f80, 0x7fc0},
        {ROTA_FLOAT32, 0xff800001, 0x3f800000, 0x7fc00000},
        {ROTA_FLOAT64, UINT64_C(0xfff0000000000001), UINT64_C(0x3ff0000000000000),
         UINT64_C(0x7ff8000000000000)},
        {ROTA_FLOAT8_E4M3, 0xff, 0x38, 0x7f},
        {ROTA_FLOAT8_E5M2, 0xfd, 0x3c, 0x7e},
    };
    for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++) {
        for (rota_op op = 0; op <= ROTA_AVG; op++) {
            check_two(types[t].dtype, op, types[t].signalling, types[t].one, types[t].canonical);
            check_two(types[t].dtype, op, types[t].one, types[t].signalling, types[t].canonical);
            check_constant(types[t].dtype, op, &types[t].signalling, 1, 70, types[t].canonical);
        }
    }
}

Test(cases, C14_subnormals) {
    const rota_dtype brain = ROTA_BFLOAT16;
    check_two(brain, ROTA_SUM, 0x0001, 0x0001, 0x0002);
    check_two(brain, ROTA_SUM, 0x007f, 0x0001, 0x0080);
    check_two(brain, ROTA_SUM, 0x8001, 0x8001, 0x8002);
    check_two(brain, ROTA_AVG, 0x0001, 0x0003, 0x0002);
    check_two(brain, ROTA_AVG, 0x8001, 0x8001, 0x8001);
    check_two(brain, ROTA_MIN, 0x0001, 0x0002, 0x0001);
    check_two(brain, ROTA_MAX, 0x0001, 0x0002, 0x0002);
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x0001, 0x0001, 0x0002);
    check_two(ROTA_FLOAT16, ROTA_AVG, 0x0001, 0x0003, 0x0002);
    check_two(ROTA_FLOAT16, ROTA_MIN, 0x8001, 0x8002, 0x8002);
    check_two(ROTA_FLOAT16, ROTA_MAX, 0x0001, 0x0003, 0x0003);
    check_two(ROTA_FLOAT32, ROTA_SUM, 1, 1, 2);
    check_two(ROTA_FLOAT32, ROTA_AVG, 1, 3, 2);
    check_two(ROTA_FLOAT32, ROTA_MIN, 1, 2, 1);
    check_two(ROTA_FLOAT32, ROTA_MAX, 1, 2, 2);
    check_two(ROTA_FLOAT64, ROTA_SUM, 1, 1, 2);
    check_two(ROTA_FLOAT64, ROTA_AVG, 1, 3, 2);
    check_two(ROTA_FLOAT64, ROTA_MIN, 1, 2, 1);
    check_two(ROTA_FLOAT64, ROTA_MAX, 1, 2, 2);
}

#if defined(__x86_64__)
/* Flags of past exceptions may be raised; all else of MXCSR is the process's, whatever it holds. */
Test(cases, C14_control_state) {
    const unsigned control = ~(unsigned)_MM_EXCEPT_MASK;
    const unsigned before = _mm_getcsr();
    const unsigned states[] = {before, before | _MM_FLUSH_ZERO_ON | 0x40, before | _MM_ROUND_UP};
    static unsigned char data[2][128 * 16], result[128 * 16];
    const struct reduce_operand operands[] = {{data[0], false}, {data[1], false}, {data[0], false}};
    for (size_t s = 0; s < 3; s++) {
        FOR_EACH_ISA(isa) {
            for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
                for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
                    if (!rota_op_accepts(op, dtype))
                        continue;
                    struct reduce_spec spec = spec_of(dtype, op, 2, isa);
                    _mm_setcsr(states[s]);
                    reduce_pair(&spec, result, NULL, data[0], data[1], 77);
                    reduce_run(&spec, result, true, operands, 3, 77);
                    unsigned after = _mm_getcsr();
                    _mm_setcsr(before);
                    cr_assert_eq(after & control, states[s] & control);
                }
            }
        }
    }
}
#endif

Test(cases, C15_nan_stays_nan) {
    for (uint64_t payload = 0x7f81; payload <= 0x7fff; payload++) {
        const uint64_t positive[] = {payload, 0}, negative[] = {payload | 0x8000, 0};
        check_constant(ROTA_BFLOAT16, ROTA_SUM, positive, 2, 19, 0x7fc0);
        check_constant(ROTA_BFLOAT16, ROTA_SUM, negative, 2, 19, 0x7fc0);
    }
    for (uint64_t payload = 0x7c01; payload <= 0x7fff; payload++) {
        const uint64_t positive[] = {payload, 0}, negative[] = {payload | 0x8000, 0};
        check_constant(ROTA_FLOAT16, ROTA_SUM, positive, 2, 19, 0x7e00);
        check_constant(ROTA_FLOAT16, ROTA_SUM, negative, 2, 19, 0x7e00);
    }
}

Test(cases, C15_infinities_and_overflow) {
    const rota_dtype brain = ROTA_BFLOAT16;
    check_two(brain, ROTA_SUM, 0x7f80, 0x3f80, 0x7f80);
    check_two(brain, ROTA_SUM, 0xff80, 0x3f80, 0xff80);
    check_two(brain, ROTA_SUM, 0x7f7f, 0x7f7f, 0x7f80);
    check_two(brain, ROTA_SUM, 0xff7f, 0xff7f, 0xff80);
    check_two(brain, ROTA_SUM, 0x7f7f, 0x7a80, 0x7f7f); /* a quarter of an ulp */
    check_two(brain, ROTA_SUM, 0x7f7f, 0x7b00, 0x7f80); /* half an ulp: to even */
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x7c00, 0x3c00, 0x7c00);
    check_two(ROTA_FLOAT16, ROTA_SUM, 0x7bff, 0x7bff, 0x7c00);
    check_two(ROTA_FLOAT32, ROTA_SUM, 0x7f7fffff, 0x7f7fffff, 0x7f800000);
}

/* Every bfloat16 with some others: all instruction sets give the scalar kernels' bits, in whole
 * steps and in their tails, also where one subnormal or NaN is among plain numbers. */
Test(cases, C15_brain_sums_of_all_numbers) {
    enum { COUNT = 65536 + 17 };
    static const uint16_t others[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x3f80, 0xbf81,
                                      0x7f7f, 0xff7f, 0x7f80, 0xff80, 0x7fc0, 0x4b00, 0x3b80};
    static uint16_t all[COUNT], other[COUNT], expected[COUNT], result[2][COUNT];
    const struct reduce_operand four[] = {
        {all, false}, {other, false}, {other, false}, {all, false}};
    for (size_t i = 0; i < COUNT; i++)
        all[i] = (uint16_t)(i * 40503); /* odd: every number, unlike ones side by side */
    for (size_t o = 0; o < sizeof(others) / sizeof(others[0]); o++) {
        for (size_t i = 0; i < COUNT; i++)
            other[i] = o == 0 || i % 7 == 3 ? others[o] : 0x3f80;
        for (int average = 0; average <= 1; average++) {
            rota_op op = average ? ROTA_AVG : ROTA_SUM;
            for (size_t n = 2; n <= 4; n += 2) {
                struct reduce_spec plain = spec_of(ROTA_BFLOAT16, op, 3, CPU_SCALAR);
                reduce_run(&plain, expected, true, four, n, COUNT);
                FOR_EACH_ISA(isa) {
                    struct reduce_spec spec = spec_of(ROTA_BFLOAT16, op, 3, isa);
                    reduce_run(&spec, result[0], true, four, n, COUNT);
                    cr_assert_arr_eq(result[0], expected, sizeof(expected), "%s, %zu operands",
                                     cpu_isa_name(isa), n);
                    if (n != 2)
                        continue;
                    reduce_pair(&spec, result[0], result[1], all, other, COUNT);
                    cr_assert_arr_eq(result[0], expected, sizeof(expected));
                    cr_assert_arr_eq(result[1], expected, sizeof(expected));
                }
            }
        }
    }
}

/* Every float's upper half and the edges of rounding, as a partial that is finished alone. */
Test(cases, C15_brain_rounding_of_partials) {
    enum { LOW = 7, COUNT = 65536 * LOW };
    static const uint32_t low[LOW] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff};
    static uint32_t partials[COUNT];
    static uint16_t narrow[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        partials[i] = (uint32_t)(i / LOW) << 16 | low[i % LOW];
    const struct reduce_operand operand = {partials, true};
    FOR_EACH_ISA(isa) {
        for (int half = 0; half <= 1; half++) {
            rota_dtype dtype = half ? ROTA_FLOAT16 : ROTA_BFLOAT16;
            struct reduce_spec spec = spec_of(dtype, ROTA_SUM, 2, isa);
            reduce_run(&spec, narrow, true, &operand, 1, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                float value;
                memcpy(&value, &partials[i], sizeof(value));
                uint16_t expected = half ? reference_half_round((double)value)
                                         : reference_brain_round((double)value);
                cr_assert_eq(narrow[i], expected, "%s %s: %08x to %04x, not %04x",
                             rota_dtype_name(dtype), cpu_isa_name(isa), partials[i], narrow[i],
                             expected);
            }
        }
    }
}

/* Every float's upper half and the edges of rounding again, for the eight-bit types. */
Test(cases, float8_rounding_of_partials) {
    enum { LOW = 6, COUNT = 65536 * LOW };
    static const uint32_t low[LOW] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff};
    static uint32_t partials[COUNT];
    static uint8_t narrow[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        partials[i] = (uint32_t)(i / LOW) << 16 | low[i % LOW];
    const struct reduce_operand operand = {partials, true};
    FOR_EACH_ISA(isa) {
        for (rota_dtype dtype = ROTA_FLOAT8_E4M3; dtype <= ROTA_FLOAT8_E5M2; dtype++) {
            struct reduce_spec spec = spec_of(dtype, ROTA_SUM, 2, isa);
            reduce_run(&spec, narrow, true, &operand, 1, COUNT);
            for (size_t i = 0; i < COUNT; i++) {
                float value;
                memcpy(&value, &partials[i], sizeof(value));
                uint8_t expected = dtype == ROTA_FLOAT8_E4M3 ? reference_e4m3_round((double)value)
                                                             : reference_e5m2_round((double)value);
                cr_assert_eq(narrow[i], expected, "%s %s: %08x to %02x, not %02x",
                             rota_dtype_name(dtype), cpu_isa_name(isa), partials[i], narrow[i],
                             expected);
            }
        }
    }
}

/* All pairs of numbers, of which the exact sum fits into a double. */
Test(cases, float8_all_sums) {
    static uint8_t left[65536], right[65536], sum[65536];
    for (size_t i = 0; i < sizeof(left); i++) {
        left[i] = (uint8_t)(i >> 8);
        right[i] = (uint8_t)i;
    }
    FOR_EACH_ISA(isa) {
        struct reduce_spec four = spec_of(ROTA_FLOAT8_E4M3, ROTA_SUM, 2, isa);
        struct reduce_spec five = spec_of(ROTA_FLOAT8_E5M2, ROTA_SUM, 2, isa);
        reduce_pair(&four, sum, NULL, left, right, sizeof(sum));
        for (size_t i = 0; i < sizeof(sum); i++)
            cr_assert_eq(sum[i], reference_e4m3_round(reference_e4m3_value(left[i]) +
                                                      reference_e4m3_value(right[i])));
        reduce_pair(&five, sum, NULL, left, right, sizeof(sum));
        for (size_t i = 0; i < sizeof(sum); i++) {
            /* Far apart numbers round in float32 first, away from no tie: one of them vanishes. */
            float exact = (float)(reference_e5m2_value(left[i]) + reference_e5m2_value(right[i]));
            cr_assert_eq(sum[i], reference_e5m2_round((double)exact));
        }
    }
}
