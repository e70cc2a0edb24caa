/* Every type, operator and instruction set against the reference, over shapes: number of operands
 * and their forms, counts, offsets, results in place. Buffers end in red zones. */
#include "reduce/kernels.h"
#include "reference.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPERANDS 9
#define MAX_COUNT 4099
#define RED_BYTES 64
#define RED 0xa5

struct shape {
    size_t noperands, count, offset; /* offset in elements from a 64-byte boundary */
    unsigned forms;                  /* bit i: operand i is partial */
    bool finish, in_place;
};

struct buffers {
    unsigned char *storage; /* aligned to 64 */
    unsigned char *operands[MAX_OPERANDS];
    unsigned char *result;
};

static const size_t buffer_bytes = RED_BYTES + 64 * 16 + MAX_COUNT * 16 + RED_BYTES;

static struct buffers make_buffers(void) {
    struct buffers buffers;
    size_t each = (buffer_bytes + 63) / 64 * 64;
    buffers.storage = aligned_alloc(64, each * (MAX_OPERANDS + 1));
    cr_assert_not_null(buffers.storage);
    for (size_t i = 0; i < MAX_OPERANDS; i++)
        buffers.operands[i] = buffers.storage + i * each;
    buffers.result = buffers.storage + MAX_OPERANDS * each;
    return buffers;
}

static unsigned char *place(unsigned char *buffer, size_t offset, size_t size) {
    return buffer + RED_BYTES + offset % 64 * size;
}

static void check_red(const unsigned char *buffer, const unsigned char *data, size_t bytes,
                      const char *what) {
    for (const unsigned char *p = buffer; p < data; p++)
        cr_assert_eq(*p, RED, "%s: wrote %td bytes before the result", what, data - p);
    for (size_t i = 0; i < RED_BYTES; i++)
        cr_assert_eq(data[bytes + i], RED, "%s: wrote %zu bytes after the result", what, i);
}

/* Random operands of both forms, made once per (type, operator): shapes use their beginnings. */
struct samples {
    unsigned char *raw[MAX_OPERANDS], *partial[MAX_OPERANDS];
};

static struct samples make_samples(rota_dtype dtype, rota_op op) {
    struct samples samples;
    uint64_t state = dtype * 16 + op;
    for (size_t k = 0; k < MAX_OPERANDS; k++) {
        samples.raw[k] = malloc(MAX_COUNT * 16);
        samples.partial[k] = malloc(MAX_COUNT * 16);
        cr_assert(samples.raw[k] && samples.partial[k]);
        size_t raw = rota_dtype_size(dtype), partial = reduce_partial_size(dtype, op);
        for (size_t i = 0; i < MAX_COUNT; i++) {
            bits value = reference_sample(dtype, op, false, &state);
            memcpy(samples.raw[k] + i * raw, &value, raw);
            value = reference_sample(dtype, op, true, &state);
            memcpy(samples.partial[k] + i * partial, &value, partial);
        }
    }
    return samples;
}

static void free_samples(struct samples *samples) {
    for (size_t k = 0; k < MAX_OPERANDS; k++) {
        free(samples->raw[k]);
        free(samples->partial[k]);
    }
}

static size_t operand_size(const struct reduce_spec *spec, const struct shape *shape, size_t k) {
    return shape->forms >> k & 1 ? spec->partial_size : spec->element_size;
}

/* The reference's results of a whole (forms, operands, finish), computed once for all shapes. */
static void expect(const struct reduce_spec *spec, const struct samples *samples,
                   const struct shape *shape, bits *expected) {
    struct reduce_operand operands[MAX_OPERANDS];
    for (size_t k = 0; k < shape->noperands; k++) {
        bool partial = shape->forms >> k & 1;
        operands[k] =
            (struct reduce_operand){partial ? samples->partial[k] : samples->raw[k], partial};
    }
    for (size_t i = 0; i < shape->count; i++)
        expected[i] = reference_reduce(spec->dtype, spec->op, spec->nranks, operands,
                                       shape->noperands, i, shape->finish);
}

static void check_shape(const struct reduce_spec *spec, const struct samples *samples,
                        struct buffers *buffers, const struct shape *shape, const bits *expected) {
    char what[128];
    snprintf(what, sizeof(what), "%s %s %s operands %zu forms %x finish %d count %zu offset %zu",
             rota_dtype_name(spec->dtype), rota_op_name(spec->op), cpu_isa_name(spec->isa),
             shape->noperands, shape->forms, shape->finish, shape->count, shape->offset);
    size_t size = shape->finish ? spec->element_size : spec->partial_size;
    struct reduce_operand operands[MAX_OPERANDS];
    unsigned char *dst = NULL, *dst_buffer = NULL;
    for (size_t k = 0; k < shape->noperands; k++) {
        size_t from = operand_size(spec, shape, k);
        bool partial = shape->forms >> k & 1;
        unsigned char *data = place(buffers->operands[k], shape->offset + k, from);
        size_t bytes = shape->count * from;
        memset(buffers->operands[k], RED, (size_t)(data - buffers->operands[k]));
        memset(data + bytes, RED, RED_BYTES);
        if (bytes)
            memcpy(data, partial ? samples->partial[k] : samples->raw[k], bytes);
        operands[k] = (struct reduce_operand){data, partial};
        if (shape->in_place && from == size) { /* the last that fits */
            dst = data;
            dst_buffer = buffers->operands[k];
        }
    }
    if (!dst) {
        dst_buffer = buffers->result;
        dst = place(dst_buffer, shape->offset * 3 + 1, size);
        memset(dst_buffer, RED, (size_t)(dst - dst_buffer) + shape->count * size + RED_BYTES);
    }
    reduce_run(spec, dst, shape->finish, operands, shape->noperands, shape->count);
    check_red(dst_buffer, dst, shape->count * size, what);
    for (size_t i = 0; i < shape->count; i++) {
        bits value = reference_load(dst, i, size);
        cr_assert(reference_same(spec->dtype, spec->op, shape->finish, expected[i], value),
                  "%s: element %zu is %#lx and should be %#lx", what, i, (unsigned long)value,
                  (unsigned long)expected[i]);
    }
    for (size_t k = 0; k < shape->noperands; k++) {
        bool partial = shape->forms >> k & 1;
        size_t bytes = shape->count * operand_size(spec, shape, k);
        if (operands[k].data != dst && bytes)
            cr_assert(memcmp(operands[k].data, partial ? samples->partial[k] : samples->raw[k],
                             bytes) == 0,
                      "%s: operand %zu was written", what, k);
    }
}

/* Forms of operands worth a run: all raw, all partial, one of either among the others. */
static size_t list_forms(const struct reduce_spec *spec, size_t noperands, unsigned forms[4]) {
    unsigned all = (1u << noperands) - 1;
    size_t n = 0;
    forms[n++] = 0;
    if (spec->element_size == spec->partial_size)
        return n;
    forms[n++] = all;
    if (noperands > 1) {
        forms[n++] = 1u << (noperands - 1);
        forms[n++] = all & 0x15;
    }
    return n;
}

static void check_counts(struct reduce_spec *spec, const struct samples *samples,
                         struct buffers *buffers, struct shape shape, const bits *expected) {
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (!cpu_isa_available((enum cpu_isa)isa))
            continue;
        cr_assert_eq(reduce_spec_init(spec, spec->dtype, spec->op, spec->nranks, (enum cpu_isa)isa),
                     ROTA_OK);
        for (size_t i = 0; i <= 70; i++) {
            shape.count = i;
            shape.offset = i * 5;
            shape.in_place = i / 3 & 1;
            check_shape(spec, samples, buffers, &shape, expected);
        }
        shape.count = MAX_COUNT;
        shape.offset = shape.noperands;
        shape.in_place = shape.noperands & 1;
        check_shape(spec, samples, buffers, &shape, expected);
    }
}

static void check_operator(rota_dtype dtype, rota_op op) {
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, dtype, op, 7, CPU_SCALAR), ROTA_OK);
    cr_assert_eq(spec.element_size, rota_dtype_size(dtype));
    cr_assert_eq(spec.partial_size, reduce_partial_size(dtype, op));
    struct samples samples = make_samples(dtype, op);
    struct buffers buffers = make_buffers();
    bits *expected = malloc(MAX_COUNT * sizeof(*expected));
    cr_assert_not_null(expected);
    for (size_t noperands = 1; noperands <= MAX_OPERANDS; noperands++) {
        unsigned forms[4];
        size_t nforms = list_forms(&spec, noperands, forms);
        for (size_t f = 0; f < nforms; f++) {
            for (int finish = 0; finish <= 1; finish++) {
                struct shape shape = {.noperands = noperands,
                                      .forms = forms[f],
                                      .finish = finish,
                                      .count = MAX_COUNT};
                expect(&spec, &samples, &shape, expected);
                check_counts(&spec, &samples, &buffers, shape, expected);
            }
        }
    }
    free(expected);
    free(buffers.storage);
    free_samples(&samples);
}

/* One test per operator, so that they run side by side. */
static void check_all_types(rota_op op) {
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        if (rota_op_accepts(op, dtype))
            check_operator(dtype, op);
}

Test(kernels, sum) {
    check_all_types(ROTA_SUM);
}
Test(kernels, prod) {
    check_all_types(ROTA_PROD);
}
Test(kernels, min) {
    check_all_types(ROTA_MIN);
}
Test(kernels, max) {
    check_all_types(ROTA_MAX);
}
Test(kernels, avg) {
    check_all_types(ROTA_AVG);
}
Test(kernels, bitwise) {
    for (rota_op op = ROTA_BITWISE_AND; op <= ROTA_BITWISE_XOR; op++)
        check_all_types(op);
}
Test(kernels, logical) {
    for (rota_op op = ROTA_LOGICAL_AND; op <= ROTA_LOGICAL_XOR; op++)
        check_all_types(op);
}
Test(kernels, location) {
    check_all_types(ROTA_MINLOC);
    check_all_types(ROTA_MAXLOC);
}

/* Deep stacks: many operands, block edges, and a result in place of each operand in turn. */
Test(kernels, many_operands) {
    enum { OPERANDS = 77, COUNT = 1100 };
    static float data[OPERANDS][COUNT], work[OPERANDS][COUNT], expected[COUNT];
    uint64_t state = 5;
    struct reduce_operand operands[OPERANDS], originals[OPERANDS];
    for (size_t k = 0; k < OPERANDS; k++) {
        operands[k] = (struct reduce_operand){work[k], false};
        originals[k] = (struct reduce_operand){data[k], false};
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t value = (uint32_t)reference_sample(ROTA_FLOAT32, ROTA_SUM, false, &state);
            memcpy(&data[k][i], &value, sizeof(value));
        }
    }
    for (size_t n = 1; n <= OPERANDS; n++) {
        for (size_t i = 0; i < COUNT; i++) {
            uint32_t value =
                (uint32_t)reference_reduce(ROTA_FLOAT32, ROTA_SUM, 1, originals, n, i, true);
            memcpy(&expected[i], &value, sizeof(value));
        }
        for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
            struct reduce_spec spec;
            if (!cpu_isa_available((enum cpu_isa)isa))
                continue;
            cr_assert_eq(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, 1, (enum cpu_isa)isa),
                         ROTA_OK);
            memcpy(work, data, sizeof(work));
            float *dst = work[(n * 31) % n];
            reduce_run(&spec, dst, true, operands, n, COUNT);
            cr_assert(memcmp(dst, expected, sizeof(expected)) == 0, "%zu operands, %s", n,
                      cpu_isa_name((enum cpu_isa)isa));
        }
    }
}

static void check_pair(struct reduce_spec *spec, size_t count, size_t offset) {
    static _Alignas(64) unsigned char left[16 * 1200], right[16 * 1200], one[16 * 1200 + RED_BYTES],
        two[16 * 1200 + RED_BYTES];
    size_t size = spec->element_size;
    uint64_t state = count;
    unsigned char *l = left + offset * size, *r = right + (offset + 1) * size;
    for (size_t i = 0; i < count; i++) {
        bits a = reference_sample(spec->dtype, spec->op, false, &state);
        bits b = reference_sample(spec->dtype, spec->op, false, &state);
        memcpy(l + i * size, &a, size);
        memcpy(r + i * size, &b, size);
    }
    const struct reduce_operand operands[] = {{l, false}, {r, false}};
    memset(one, RED, sizeof(one));
    memset(two, RED, sizeof(two));
    reduce_pair(spec, one + offset * size, two + 2 * offset * size, l, r, count);
    for (size_t i = 0; i < count; i++) {
        bits value = reference_load(one + offset * size, i, size);
        bits expected = reference_reduce(spec->dtype, spec->op, spec->nranks, operands, 2, i, true);
        cr_assert(value == expected, "%s %s %s, %zu of %zu", rota_dtype_name(spec->dtype),
                  rota_op_name(spec->op), cpu_isa_name(spec->isa), i, count);
    }
    cr_assert(memcmp(one + offset * size, two + 2 * offset * size, count * size) == 0);
    for (size_t i = 0; i < RED_BYTES; i++) {
        cr_assert_eq(one[(offset + count) * size + i], RED);
        cr_assert_eq(two[(2 * offset + count) * size + i], RED);
    }
    /* One destination, in place. */
    unsigned char *kept = two + 2 * offset * size;
    reduce_pair(spec, l, NULL, l, r, count);
    cr_assert(memcmp(l, kept, count * size) == 0);
}

Test(kernels, pair) {
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
            for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
                struct reduce_spec spec;
                if (!cpu_isa_available((enum cpu_isa)isa) || !rota_op_accepts(op, dtype))
                    continue;
                cr_assert_eq(reduce_spec_init(&spec, dtype, op, 3, (enum cpu_isa)isa), ROTA_OK);
                for (size_t count = 0; count <= 70; count++)
                    check_pair(&spec, count, count % 16);
                check_pair(&spec, 1001, 5);
            }
        }
    }
}

static void check_copy(void (*copy)(enum cpu_isa isa, void *dst, const void *src, size_t bytes)) {
    enum { LARGE = 9000 };
    static unsigned char from[LARGE + 256], to[LARGE + 256];
    uint64_t state = 1;
    for (size_t i = 0; i < sizeof(from); i++)
        from[i] = (unsigned char)reference_random(&state);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        if (!cpu_isa_available((enum cpu_isa)isa))
            continue;
        for (size_t bytes = 0; bytes <= LARGE; bytes += bytes < 700 ? 1 : 397) {
            size_t offset = bytes % 61;
            memset(to, RED, sizeof(to));
            copy((enum cpu_isa)isa, to + offset, from + bytes % 17, bytes);
            cr_assert(memcmp(to + offset, from + bytes % 17, bytes) == 0);
            for (size_t i = 0; i < offset; i++)
                cr_assert_eq(to[i], RED);
            for (size_t i = offset + bytes; i < offset + bytes + RED_BYTES; i++)
                cr_assert_eq(to[i], RED);
        }
    }
}

Test(kernels, copy) {
    check_copy(reduce_copy);
    check_copy(reduce_publish);
    check_copy(reduce_stream);
}

#if REDUCE_HAVE_X86
/* A processor that rounds to bfloat16 itself does not choose these kernels, so they are called
 * here: the scalar kernels' bits for every number with some others, and for several ends of a step.
 */
Test(kernels, bfloat16_by_hand) {
    enum { NUMBERS = 65536 };
    static const uint16_t others[] = {0,      0x8000, 0x3f80, 0xbf80, 0x0001, 0x807f,
                                      0x7f80, 0xff80, 0x7fc1, 0x7f7f, 0x3f81, 0xc2f7};
    static uint16_t left[NUMBERS], right[NUMBERS], expected[NUMBERS], got[NUMBERS], second[NUMBERS];
    static const rota_op ops[] = {ROTA_SUM, ROTA_AVG};
    if (!cpu_isa_available(CPU_AVX512))
        cr_skip("no AVX-512 here");
    cr_assert_null(reduce_kernels_avx512_by_hand(ROTA_PROD));
    for (size_t o = 0; o < sizeof(others) / sizeof(others[0]); o++)
        for (size_t k = 0; k < 2; k++) {
            const struct reduce_kernels *scalar = reduce_table_scalar[ROTA_BFLOAT16][ops[k]];
            const struct reduce_kernels *hand = reduce_kernels_avx512_by_hand(ops[k]);
            const void *quad[4] = {left, right, right, left};
            size_t count = NUMBERS - o * 3; /* ends of several lengths */
            for (size_t i = 0; i < NUMBERS; i++) {
                left[i] = (uint16_t)i;
                right[i] = (uint16_t)(others[o] ^ (i % 3));
            }
            scalar->pair[0][0][1](expected, left, right, count, 3);
            hand->pair[0][0][1](got, left, right, count, 3);
            cr_assert_arr_eq(got, expected, count * sizeof(*got));
            hand->two(got, second, right, left, count, 3);
            cr_assert_arr_eq(got, expected, count * sizeof(*got));
            cr_assert_arr_eq(second, expected, count * sizeof(*got));
            scalar->quad[0][1](expected, quad, count, 3);
            hand->quad[0][1](got, quad, count, 3);
            cr_assert_arr_eq(got, expected, count * sizeof(*got));
        }
}
#endif

Test(kernels, spec_refuses) {
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, ROTA_DTYPE_COUNT, ROTA_SUM, 1, CPU_SCALAR),
                 ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, UINT32_MAX, ROTA_SUM, 1, CPU_SCALAR), ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, 0, ROTA_OP_COUNT, 1, CPU_SCALAR), ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, 0, UINT32_MAX, 1, CPU_SCALAR), ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, 0, ROTA_AVG, 0, CPU_SCALAR), ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, 0, ROTA_SUM, -1, CPU_SCALAR), ROTA_ERR_ARGUMENT);
    cr_assert_eq(reduce_spec_init(&spec, 0, ROTA_SUM, 1, CPU_ISA_COUNT), ROTA_ERR_ARGUMENT);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++)
        if (!cpu_isa_available((enum cpu_isa)isa))
            cr_assert_eq(reduce_spec_init(&spec, 0, ROTA_SUM, 1, (enum cpu_isa)isa),
                         ROTA_ERR_ARGUMENT);
}
