/* Bandwidth of the kernels against memcpy, per instruction set and size: best of several rounds,
 * bytes counted as read and written. Also the cost of a tiny call. */
#include "reduce/reduce.h"
#include <rota/types.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

struct buffers {
    unsigned char *operands[8], *dst;
};

enum work { COPY, LIBC_COPY, PAIR, PAIR_TWO, RUN_FOUR, RUN_EIGHT, WORK_COUNT };
static const char *const work_names[WORK_COUNT] = {"reduce_copy", "memcpy",   "pair",
                                                   "pair to 2",   "run of 4", "run of 8"};

static size_t do_work(enum work work, const struct reduce_spec *spec, struct buffers *b,
                      size_t bytes) {
    size_t count = bytes / spec->element_size;
    struct reduce_operand operands[8];
    for (size_t i = 0; i < 8; i++)
        operands[i] = (struct reduce_operand){b->operands[i], false};
    switch (work) {
    case COPY:
        reduce_copy(spec->isa, b->dst, b->operands[0], bytes);
        return 2 * bytes;
    case LIBC_COPY:
        memcpy(b->dst, b->operands[0], bytes);
        return 2 * bytes;
    case PAIR:
        reduce_pair(spec, b->dst, NULL, b->operands[0], b->operands[1], count);
        return 3 * bytes;
    case PAIR_TWO:
        reduce_pair(spec, b->dst, b->operands[7], b->operands[0], b->operands[1], count);
        return 4 * bytes;
    case RUN_FOUR:
        reduce_run(spec, b->dst, true, operands, 4, count);
        return 5 * bytes;
    default:
        reduce_run(spec, b->dst, true, operands, 8, count);
        return 9 * bytes;
    }
}

/* Returns GB/s; *ns_per_call. */
static double measure(enum work work, const struct reduce_spec *spec, struct buffers *b,
                      size_t bytes, double *ns_per_call) {
    size_t calls = 1 + ((size_t)8 << 20) / (bytes + 64), moved = 0;
    if (calls > 100000)
        calls = 100000;
    double best = 1e9;
    for (int round = 0; round < 7; round++) {
        double start = now_s();
        for (size_t i = 0; i < calls; i++) {
            moved = do_work(work, spec, b, bytes);
            __asm__ volatile("" ::: "memory");
        }
        double took = (now_s() - start) / (double)calls;
        best = took < best ? took : best;
    }
    *ns_per_call = best * 1e9;
    return (double)moved / best * 1e-9;
}

int main(void) {
    static const size_t sizes[] = {8, 64, 4096, 65536, 1 << 20, 16 << 20};
    static const rota_dtype dtypes[] = {ROTA_FLOAT32, ROTA_BFLOAT16, ROTA_FLOAT16};
    struct buffers b;
    for (size_t i = 0; i < 9; i++) {
        unsigned char *p = aligned_alloc(64, (16 << 20) + 64);
        if (!p)
            return 1;
        memset(p, 0, (16 << 20) + 64);
        *(i < 8 ? &b.operands[i] : &b.dst) = p;
    }
    printf("%-8s %-9s %-12s %9s %10s %9s\n", "isa", "type", "work", "bytes", "ns", "GB/s");
    for (enum cpu_isa isa = CPU_SCALAR; isa < CPU_ISA_COUNT; isa++) {
        for (size_t d = 0; cpu_isa_available(isa) && d < 3; d++) {
            struct reduce_spec spec;
            if (reduce_spec_init(&spec, dtypes[d], ROTA_SUM, 2, isa) != ROTA_OK)
                return 1;
            for (enum work work = d ? PAIR : COPY; work < WORK_COUNT; work++) {
                for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
                    double ns, rate = measure(work, &spec, &b, sizes[s], &ns);
                    printf("%-8s %-9s %-12s %9zu %10.1f %9.1f\n", cpu_isa_name(isa),
                           rota_dtype_name(dtypes[d]), work_names[work], sizes[s], ns, rate);
                }
            }
        }
    }
    return 0;
}
