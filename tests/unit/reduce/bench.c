/* Bandwidth of the kernels, as the tables of docs/performance.md: each line is a type and operator,
 * each column an instruction set, in GB/s of bytes read and written, the best of several rounds.
 * The yardsticks above are memcpy and a plain loop a[i] += b[i] of floats. Without arguments all;
 * else lines whose "type operator" begins with the first argument. */
#include "reduce/reduce.h"
#include <rota/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_OPERANDS 8
#define LARGEST ((size_t)16 << 20)
#define ROUNDS 9

static unsigned char *operands[MAX_OPERANDS], *result;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is measured: returns the bytes that it read and wrote. */
struct work {
    const struct reduce_spec *spec; /* NULL: a yardstick */
    int noperands;                  /* of a yardstick 1 is memcpy, 2 the loop */
    size_t bytes;                   /* of an operand */
};

static size_t run(const struct work *work) {
    size_t bytes = work->bytes, all = (size_t)work->noperands + 1;
    if (work->spec == NULL && work->noperands == 1) {
        memcpy(result, operands[0], bytes);
    } else if (work->spec == NULL) {
        float *a = (float *)(void *)result, *b = (float *)(void *)operands[0];
        for (size_t i = 0; i < bytes / sizeof(float); i++)
            a[i] += b[i];
    } else if (work->noperands == 2) {
        reduce_pair(work->spec, result, NULL, operands[0], operands[1],
                    bytes / work->spec->element_size);
    } else {
        struct reduce_operand list[MAX_OPERANDS];
        for (int i = 0; i < work->noperands; i++)
            list[i] = (struct reduce_operand){operands[i], false};
        reduce_run(work->spec, result, true, list, (size_t)work->noperands,
                   bytes / work->spec->element_size);
    }
    return all * bytes;
}

static double measure(const struct work *work) {
    size_t calls = 1 + ((size_t)1 << 20) / (work->bytes + 64), moved = run(work);
    double best = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        double start = now_s();
        for (size_t i = 0; i < calls; i++) {
            run(work);
            __asm__ volatile("" ::: "memory");
        }
        double took = (now_s() - start) / (double)calls;
        best = took < best ? took : best;
    }
    return (double)moved / best * 1e-9;
}

static const size_t sizes[] = {16384, 1 << 20, LARGEST};
static const int counts[] = {2, 4, 8};

static void print_titles(void) {
    printf("| type operator |");
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++)
        if (cpu_isa_available(isa))
            printf(" %s: 2 of 16 KiB | 2 of 1 MiB | 2 of 16 MiB | 4 of 1 MiB | 8 of 1 MiB | 8 of "
                   "16 MiB |",
                   cpu_isa_name(isa));
    printf("\n");
}

static void print_spec(const struct reduce_spec *spec) {
    for (size_t s = 0; s < 3; s++)
        printf(" %.0f |", measure(&(struct work){spec, counts[0], sizes[s]}));
    printf(" %.0f |", measure(&(struct work){spec, counts[1], sizes[1]}));
    for (size_t s = 1; s < 3; s++)
        printf(" %.0f |", measure(&(struct work){spec, counts[2], sizes[s]}));
}

static void print_yardsticks(void) {
    for (int n = 1; n <= 2; n++) {
        printf("| %s |", n == 1 ? "memcpy" : "a[i] += b[i]");
        for (size_t s = 0; s < 3; s++)
            printf(" %.0f |", measure(&(struct work){NULL, n, sizes[s]}));
        printf("\n");
    }
}

static void print_line(rota_dtype dtype, rota_op op, const char *wanted) {
    char name[64];
    snprintf(name, sizeof(name), "%s %s", rota_dtype_name(dtype), rota_op_name(op));
    if (strncmp(name, wanted, strlen(wanted)) != 0)
        return;
    printf("| %s |", name);
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        struct reduce_spec spec;
        if (cpu_isa_available(isa) && reduce_spec_init(&spec, dtype, op, 2, isa) == ROTA_OK)
            print_spec(&spec);
    }
    printf("\n");
    fflush(stdout);
}

/* Numbers near 1 of any type: no subnormals, which some processors are slow at. */
static void fill(unsigned char *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(0x38 + i % 8);
}

int main(int argc, char **argv) {
    for (int i = 0; i <= MAX_OPERANDS; i++) {
        unsigned char *block = aligned_alloc(4096, LARGEST + 4096);
        if (block == NULL)
            return 1;
        block += 256 * i; /* not all in the same sets of a cache */
        fill(block, LARGEST);
        *(i < MAX_OPERANDS ? &operands[i] : &result) = block;
    }
    print_yardsticks();
    print_titles();
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++)
            if (rota_op_accepts(op, dtype))
                print_line(dtype, op, argc > 1 ? argv[1] : "");
    return 0;
}
