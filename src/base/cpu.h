/* What the processor can do and how much of it is ours; asked at run time, never assumed. */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <rota/status.h>
#include <stdbool.h>

enum cpu_isa { CPU_SCALAR = 0, CPU_AVX2 = 1, CPU_AVX512 = 2, CPU_NEON = 3, CPU_ISA_COUNT = 4 };

/* Best instruction set of this machine (AVX2 means with FMA and F16C; AVX512 means F+BW+VL+DQ). */
enum cpu_isa cpu_isa_best(void);
/* Whether this machine can run it. */
bool cpu_isa_available(enum cpu_isa isa);
const char *cpu_isa_name(enum cpu_isa isa);

/* Whether the processor rounds to bfloat16 itself (x86: AVX512_BF16), given CPU_AVX512. */
bool cpu_has_bf16(void);

/* Whether `rep movsb` is the processor's own fast copy (x86: ERMS). It writes whole cache lines
 * without fetching them first, which matters where another core holds them. */
bool cpu_fast_strings(void);

/* Cores that this process may use: affinity mask, cut by the cgroup's CPU quota; at least 1. */
int cpu_usable_cores(void);
/* The quota part of it, in cores rounded up, 0 where there is none: read from a file in the form of
 * /proc/self/cgroup and from the control groups mounted under `mount_root`. */
int cpu_quota_cores(const char *cgroup_file, const char *mount_root);

/* Moves the calling thread to core `nth` of those that it may use (modulo their number) and leaves
 * its mask as it was, so it is free to go. For threads of a real-time policy that spin: the kernel
 * evens out fair threads alone and never moves one that runs among its equals, however many share
 * the core. False for threads that are the kernel's to place. */
bool cpu_settle(int nth);

/* One turn of a spin loop (pause, yield, isb). */
static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("isb" ::: "memory");
#endif
}

#endif
