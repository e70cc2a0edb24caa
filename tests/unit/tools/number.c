/* The check's own conversions, against values worked out by hand. */
#include "bench/number.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static uint16_t narrow(double value, rota_dtype dtype) {
    uint16_t bits;
    number_encode_floats(&value, 1, dtype, &bits);
    return bits;
}

Test(number, half_rounds_to_nearest_even) {
    static const struct {
        double value;
        uint16_t bits;
    } cases[] = {{0, 0},          {-0.0, 0x8000},   {1, 0x3c00},          {-2, 0xc000},
                 {65504, 0x7bff}, {65519, 0x7bff},  {65520, 0x7c00},      {2049, 0x6800},
                 {2051, 0x6802},  {0x1p-14, 0x400}, {0x1p-24, 1},         {0x1p-25, 0},
                 {0x1.8p-24, 2},  {0x1.1p-25, 1},   {0x1.ff8p-15, 0x3ff}, {0x1.ffcp-15, 0x400}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_assert_eq(narrow(cases[i].value, ROTA_FLOAT16), cases[i].bits, "%a: %04x",
                     cases[i].value, narrow(cases[i].value, ROTA_FLOAT16));
}

Test(number, bfloat_rounds_to_nearest_even) {
    cr_assert_eq(narrow(1, ROTA_BFLOAT16), 0x3f80);
    cr_assert_eq(narrow(257, ROTA_BFLOAT16), 0x4380); /* tie, to the even 256 */
    cr_assert_eq(narrow(259, ROTA_BFLOAT16), 0x4382); /* tie, to the even 260 */
    cr_assert_eq(narrow(263, ROTA_BFLOAT16), 0x4384);
    cr_assert_eq(narrow(-0.5, ROTA_BFLOAT16), 0xbf00);
}

/* Every finite half and bfloat survives the way through double. */
Test(number, narrow_types_survive) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        if ((bits & 0x7c00) != 0x7c00)
            cr_assert_eq(narrow(number_from_bits(bits, ROTA_FLOAT16), ROTA_FLOAT16), bits);
        if ((bits & 0x7f80) != 0x7f80)
            cr_assert_eq(narrow(number_from_bits(bits, ROTA_BFLOAT16), ROTA_BFLOAT16), bits);
    }
}

Test(number, wide_types_are_those_of_the_machine) {
    static const uint32_t patterns[] = {0,          1,          0x80000000, 0x3f800000, 0x7f7fffff,
                                        0xff800000, 0x007fffff, 0x00800000, 0xc2280000};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++) {
        float single;
        memcpy(&single, &patterns[i], sizeof single);
        double value = number_from_bits(patterns[i], ROTA_FLOAT32);
        cr_assert_eq(value, (double)single);
        cr_assert_eq(signbit(value) != 0, signbit(single) != 0);
    }
}

Test(number, order) {
    cr_assert(number_less(-0.0, 0.0));
    cr_assert_not(number_less(0.0, -0.0));
    cr_assert_not(number_less(1, 1));
    cr_assert(number_less(-(double)INFINITY, -1e300));
}

Test(number, integers_keep_their_sign) {
    cr_assert_eq(number_integer(0xff, ROTA_INT8), UINT64_MAX);
    cr_assert_eq(number_integer(0x1ff, ROTA_UINT8), 0xff);
    cr_assert_eq(number_integer(0x8000, ROTA_INT16), 0xffffffffffff8000u);
    cr_assert_eq(number_integer(UINT64_MAX, ROTA_UINT32), 0xffffffffu);
}
