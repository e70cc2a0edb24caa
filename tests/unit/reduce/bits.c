/* The bits of all results, as one number that never changes: the same on every machine, compiler
 * and instruction set. A plain program, so that it also runs on an emulated processor (C88). */
#include "reduce/reduce.h"
#include <stdio.h>
#include <string.h>

#define MAX_OPERANDS 9
#define MAX_COUNT 70
#define NRANKS 3
/* Of the types and operators of the first version, and of those that came later. */
#define FIRST_DTYPES 12
#define FIRST_OPS 5
#define EXPECTED_FIRST UINT64_C(0x703d61d45b650ca5)
#define EXPECTED_LATER UINT64_C(0xc19b709fa5ba0ac5)

static uint64_t random_bits(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* FNV-1a. */
static uint64_t add_to_hash(uint64_t hash, const unsigned char *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

/* A partial of a narrow integer's average is a sum of at most 2^20 elements. */
static uint64_t as_sum(const struct reduce_spec *spec, uint64_t value) {
    if (spec->op != ROTA_AVG || spec->partial_size != 8 || spec->element_size == 8)
        return value;
    bool is_signed =
        spec->dtype == ROTA_INT8 || spec->dtype == ROTA_INT16 || spec->dtype == ROTA_INT32;
    return is_signed ? (uint64_t)((int64_t)value >> 16) : value >> 16;
}

/* Operands are any bits at all; the last one is a partial in odd counts. */
static uint64_t hash_shape(const struct reduce_spec *spec, size_t noperands, size_t count,
                           uint64_t hash, uint64_t *state) {
    static uint64_t in[MAX_OPERANDS][2 * MAX_COUNT], second[2 * MAX_COUNT], out[2 * MAX_COUNT];
    struct reduce_operand operands[MAX_OPERANDS];
    for (size_t k = 0; k < noperands; k++) {
        for (size_t i = 0; i < (spec->element_size > 8 ? 2 * count : count); i++)
            in[k][i] = random_bits(state);
        operands[k] = (struct reduce_operand){in[k], k == noperands - 1 && count % 2 == 1};
        for (size_t i = 0; operands[k].partial && i < count; i++)
            in[k][i] = as_sum(spec, in[k][i]);
    }
    reduce_run(spec, out, true, operands, noperands, count);
    if (noperands == 2)
        reduce_pair(spec, out, second, in[0], in[1], count);
    return add_to_hash(hash, (const unsigned char *)out, count * spec->element_size);
}

static uint64_t hash_isa(enum cpu_isa isa, bool later) {
    uint64_t hash = UINT64_C(14695981039346656037), state = 1;
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
            struct reduce_spec spec;
            bool first = dtype < FIRST_DTYPES && op < FIRST_OPS;
            if (first == later || !rota_op_accepts(op, dtype))
                continue;
            if (reduce_spec_init(&spec, dtype, op, NRANKS, isa) != ROTA_OK)
                return 0;
            for (size_t noperands = 1; noperands <= MAX_OPERANDS; noperands++)
                for (size_t count = 0; count <= MAX_COUNT; count++)
                    hash = hash_shape(&spec, noperands, count, hash, &state);
        }
    }
    return hash;
}

int main(void) {
    int wrong = 0;
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        if (!cpu_isa_available(isa))
            continue;
        uint64_t first = hash_isa(isa, false), later = hash_isa(isa, true);
        printf("%s %016llx %016llx\n", cpu_isa_name(isa), (unsigned long long)first,
               (unsigned long long)later);
        wrong += first != EXPECTED_FIRST || later != EXPECTED_LATER;
    }
    if (wrong)
        fprintf(stderr, "should be %016llx %016llx\n", (unsigned long long)EXPECTED_FIRST,
                (unsigned long long)EXPECTED_LATER);
    return wrong != 0;
}
