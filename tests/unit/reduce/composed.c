/* Reductions by operators that were created: premultiplied sums against their terms computed one by
 * one, and user operators against the tree by recursion. */
#include "reference.h"
#include <criterion/criterion.h>
#include <string.h>

#define MAX_OPERANDS 37
#define MAX_COUNT 2500

static uint64_t data[MAX_OPERANDS][2 * MAX_COUNT], work[MAX_OPERANDS][2 * MAX_COUNT];
static uint64_t terms[MAX_OPERANDS][2 * MAX_COUNT], result[2 * MAX_COUNT];

static void fill(rota_dtype dtype, size_t count) {
    uint64_t state = dtype;
    size_t size = rota_dtype_size(dtype);
    for (size_t k = 0; k < MAX_OPERANDS; k++)
        for (size_t i = 0; i < count; i++) {
            bits value = reference_sample(dtype, ROTA_PROD, false, &state);
            memcpy((char *)data[k] + i * size, &value, size);
        }
    memcpy(work, data, sizeof(data));
}

/* terms[k] becomes operand k times the scalar, a partial. */
static void multiply(rota_dtype dtype, const void *scalar, bool scalar_is_partial, size_t k,
                     size_t count) {
    size_t size = reduce_partial_size(dtype, ROTA_PROD);
    for (size_t i = 0; i < count; i++) {
        const struct reduce_operand pair[] = {
            {(const char *)data[k] + i * rota_dtype_size(dtype), false},
            {scalar, scalar_is_partial}};
        bits value = reference_reduce(dtype, ROTA_PROD, 1, pair, 2, 0, false);
        memcpy((char *)terms[k] + i * size, &value, size);
    }
}

static void check_pre_mul_sum(rota_dtype dtype, const void *scalar, rota_dtype scalar_dtype,
                              size_t n, size_t count) {
    size_t size = rota_dtype_size(dtype);
    struct reduce_operand operands[MAX_OPERANDS], partials[MAX_OPERANDS];
    for (size_t k = 0; k < n; k++) {
        multiply(dtype, scalar, scalar_dtype != dtype, k, count);
        operands[k] = (struct reduce_operand){work[k], false};
        partials[k] = (struct reduce_operand){terms[k], true};
    }
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        struct reduce_spec spec;
        if (!cpu_isa_available(isa))
            continue;
        cr_assert_eq(reduce_spec_init_pre_mul_sum(&spec, dtype, scalar, scalar_dtype, 1, isa),
                     ROTA_OK);
        cr_assert_not(spec.canonical || spec.ordered);
        /* In place of an operand, now and then. */
        void *dst = count % 2 ? (void *)result : (void *)work[n / 2];
        reduce_run(&spec, dst, true, operands, n, count);
        for (size_t i = 0; i < count; i++) {
            bits expected = reference_reduce(dtype, ROTA_SUM, 1, partials, n, i, true);
            cr_assert(reference_load(dst, i, size) == expected, "%s %s: %zu operands, %zu of %zu",
                      rota_dtype_name(dtype), cpu_isa_name(isa), n, i, count);
        }
        memcpy(work, data, sizeof(data));
    }
}

Test(composed, premultiplied_sums) {
    const float third = 1.0F / 3;
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        uint64_t state = 77;
        _Alignas(16) bits scalar;
        if (!rota_op_accepts(ROTA_PROD, dtype) || dtype == ROTA_BOOL)
            continue;
        fill(dtype, 100);
        for (size_t n = 1; n <= 9; n++)
            for (size_t count = 1; count <= 70; count += n % 3 == 0 ? 1 : 13) {
                scalar = reference_sample(dtype, ROTA_PROD, false, &state);
                check_pre_mul_sum(dtype, &scalar, dtype, n, count);
                if (reduce_is_narrow(dtype))
                    check_pre_mul_sum(dtype, &third, ROTA_FLOAT32, n, count);
            }
    }
    fill(ROTA_BFLOAT16, MAX_COUNT); /* several blocks */
    check_pre_mul_sum(ROTA_BFLOAT16, &third, ROTA_FLOAT32, MAX_OPERANDS, MAX_COUNT);
}

Test(composed, premultiplied_pairs) {
    const float half = 0.5F;
    struct reduce_spec spec;
    float left[] = {1, 2, 3}, right[] = {4, 5, 6}, one[3], two[3];
    cr_assert_eq(
        reduce_spec_init_pre_mul_sum(&spec, ROTA_FLOAT32, &half, ROTA_FLOAT32, 2, cpu_isa_best()),
        ROTA_OK);
    reduce_pair(&spec, one, two, left, right, 3);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(one[i], (left[i] + right[i]) / 2);
        cr_assert_eq(two[i], one[i]);
    }
}

Test(composed, refused_scalars) {
    struct reduce_spec spec;
    const uint64_t scalar[2] = {1, 1};
    const rota_dtype no_types[] = {ROTA_BOOL, ROTA_INT32_INT32, ROTA_DTYPE_COUNT,
                                   rota_dtype_bytes(4), UINT32_MAX};
    for (size_t i = 0; i < sizeof(no_types) / sizeof(no_types[0]); i++)
        cr_assert_eq(
            reduce_spec_init_pre_mul_sum(&spec, no_types[i], scalar, no_types[i], 1, CPU_SCALAR),
            ROTA_ERR_ARGUMENT);
    cr_assert_eq(
        reduce_spec_init_pre_mul_sum(&spec, ROTA_FLOAT64, scalar, ROTA_FLOAT32, 1, CPU_SCALAR),
        ROTA_ERR_ARGUMENT);
    cr_assert_eq(
        reduce_spec_init_pre_mul_sum(&spec, ROTA_FLOAT16, scalar, ROTA_BFLOAT16, 1, CPU_SCALAR),
        ROTA_ERR_ARGUMENT);
    cr_assert_eq(
        reduce_spec_init_pre_mul_sum(&spec, ROTA_INT32, scalar, ROTA_FLOAT32, 1, CPU_SCALAR),
        ROTA_ERR_ARGUMENT);
}

/* -- user operators -----------------------------------------------------------------------------
 */

static uint64_t mix(uint64_t left, uint64_t right) {
    uint64_t z = left * UINT64_C(0x9e3779b97f4a7c15) + right;
    return (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
}

static int calls;

static void mix_elements(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                         void *arg) {
    size_t size = rota_dtype_size(dtype);
    cr_assert_eq(arg, &calls);
    calls++;
    for (size_t i = 0; i < count; i++) {
        uint64_t a, b;
        memcpy(&a, (const char *)left + i * size, sizeof(a));
        memcpy(&b, (char *)right_inout + i * size, sizeof(b));
        b = mix(a, b);
        memcpy((char *)right_inout + i * size, &b, sizeof(b));
    }
}

static uint64_t node(size_t first, size_t width, size_t n, size_t at) {
    if (width == 1) {
        uint64_t value;
        memcpy(&value, (const char *)data[first] + at, sizeof(value));
        return value;
    }
    uint64_t left = node(first, width / 2, n, at);
    return first + width / 2 < n ? mix(left, node(first + width / 2, width / 2, n, at)) : left;
}

static void check_user(size_t size, size_t n, size_t count) {
    struct reduce_spec spec;
    struct reduce_operand operands[MAX_OPERANDS];
    cr_assert_eq(reduce_spec_init_user(&spec, rota_dtype_bytes(size), mix_elements, &calls, n % 2,
                                       cpu_isa_best()),
                 ROTA_OK);
    cr_assert(spec.canonical && spec.ordered == (n % 2 == 0));
    cr_assert_eq(spec.partial_size, size);
    for (size_t k = 0; k < n; k++)
        operands[k] = (struct reduce_operand){work[k], k % 2};
    memcpy(work, data, sizeof(data));
    void *dst = count % 2 ? (void *)result : (void *)work[n - 1];
    calls = 0;
    reduce_run(&spec, dst, n % 3 != 0, operands, n, count);
    cr_assert(n == 1 || calls > 0);
    for (size_t i = 0; i < count; i++) {
        uint64_t value, expected = node(0, 64, n, i * size);
        memcpy(&value, (const char *)dst + i * size, sizeof(value));
        cr_assert_eq(value, expected, "%zu operands, element %zu of %zu of %zu bytes", n, i, count,
                     size);
    }
}

Test(composed, user_operators_have_the_canonical_tree) {
    static const size_t sizes[] = {8, 12, 16, 333, 1024};
    uint64_t state = 3;
    for (size_t k = 0; k < MAX_OPERANDS; k++)
        for (size_t i = 0; i < 2 * MAX_COUNT; i++)
            data[k][i] = reference_random(&state);
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
        for (size_t n = 1; n <= MAX_OPERANDS; n++) {
            check_user(sizes[s], n, 1);
            check_user(sizes[s], n, sizeof(data[0]) / sizes[s] / (1 + n % 3));
        }
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init_user(&spec, ROTA_DTYPE_COUNT, mix_elements, NULL, true, 0),
                 ROTA_ERR_ARGUMENT);
}
