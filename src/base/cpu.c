/* Instruction sets and usable cores.
 *
 * Instruction sets: CPUID says what the processor has, XGETBV whether the kernel keeps the wide
 * registers; __builtin_cpu_supports looks at both. F16C is read from CPUID itself, because not
 * every compiler knows its name; its registers are those of AVX.
 *
 * Cores: the affinity mask, cut by the CPU quota of the control group and of each of its
 * ancestors (version 2: cpu.max, version 1: cpu.cfs_quota_us), rounded up. In a container the path
 * in /proc/self/cgroup may name what only the host sees; then the walk towards the root of the
 * mount finds the container's own quota there.
 *
 * Placing: where the kernel would leave three spinning ranks on one core and one on the other. */
#include "base/cpu.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif

#if defined(__x86_64__) || defined(__i386__)
static bool has_f16c(void) {
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}

static bool has_avx2(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
}

static bool has_avx512(void) {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
}
#endif

bool cpu_isa_available(enum cpu_isa isa) {
    switch (isa) {
    case CPU_SCALAR:
        return true;
#if defined(__x86_64__) || defined(__i386__)
    case CPU_AVX2:
        return has_avx2();
    case CPU_AVX512:
        return has_avx512();
#elif defined(__aarch64__)
    case CPU_NEON:
        return true; /* part of the base instruction set */
#endif
    default:
        return false;
    }
}

bool cpu_has_bf16(void) {
#if defined(__x86_64__)
    return __builtin_cpu_supports("avx512bf16");
#else
    return false;
#endif
}

bool cpu_fast_strings(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 9)) != 0;
#else
    return false;
#endif
}

enum cpu_isa cpu_isa_best(void) {
    static const enum cpu_isa order[] = {CPU_AVX512, CPU_AVX2, CPU_NEON};
    for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++)
        if (cpu_isa_available(order[i]))
            return order[i];
    return CPU_SCALAR;
}

const char *cpu_isa_name(enum cpu_isa isa) {
    static const char *const names[CPU_ISA_COUNT] = {"scalar", "avx2", "avx512", "neon"};
    return (unsigned)isa < CPU_ISA_COUNT ? names[isa] : "unknown";
}

/* Reads a small file of the kernel's as text; false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    size_t length = 0;
    while (length < size - 1) {
        ssize_t got = read(fd, text + length, size - 1 - length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        length += (size_t)got;
    }
    close(fd);
    text[length] = '\0';
    return length > 0;
}

/* Rounded up; 0 when quota or period say "no limit" or nonsense. */
static int quota_cores(long long quota_us, long long period_us) {
    if (quota_us <= 0 || period_us <= 0)
        return 0;
    long long cores = quota_us / period_us + (quota_us % period_us != 0);
    return cores > INT_MAX ? INT_MAX : (int)cores;
}

/* The quota of one control group's folder, 0 where it has none. */
static int folder_cores(const char *folder) {
    char path[PATH_MAX], text[64];
    long long quota = 0, period = 0;
    if (snprintf(path, sizeof(path), "%s/cpu.max", folder) < (int)sizeof(path) &&
        read_text(path, text, sizeof(text)))
        return sscanf(text, "%lld %lld", &quota, &period) == 2 ? quota_cores(quota, period) : 0;
    if (snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder) >= (int)sizeof(path) ||
        !read_text(path, text, sizeof(text)) || sscanf(text, "%lld", &quota) != 1)
        return 0;
    if (snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder) >= (int)sizeof(path) ||
        !read_text(path, text, sizeof(text)) || sscanf(text, "%lld", &period) != 1)
        return 0;
    return quota_cores(quota, period);
}

/* The tightest quota from `group` up to the root of `mount`. */
static int walk_cores(const char *mount, const char *group) {
    char folder[PATH_MAX];
    int length = snprintf(folder, sizeof(folder), "%s%s", mount, group);
    if (length < 0 || (size_t)length >= sizeof(folder))
        return 0;
    int tightest = 0;
    size_t root = strlen(mount);
    for (;;) {
        int cores = folder_cores(folder);
        if (cores > 0 && (tightest == 0 || cores < tightest))
            tightest = cores;
        char *slash = strrchr(folder + root, '/');
        if (slash == NULL)
            return tightest;
        *slash = '\0';
    }
}

int cpu_quota_cores(const char *cgroup_file, const char *mount_root) {
    /* Where each version's CPU controller is mounted, after the mount root. */
    static const char *const mounts[] = {"", "/unified", "/cpu", "/cpu,cpuacct"};
    char text[16384];
    if (!read_text(cgroup_file, text, sizeof(text)))
        return 0;
    int tightest = 0;
    char *rest = NULL;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        /* "ID:CONTROLLERS:/path"; version 2 has the id 0 and no controllers. */
        char *controllers = strchr(line, ':');
        char *group = controllers == NULL ? NULL : strchr(controllers + 1, ':');
        if (group == NULL)
            continue;
        *group++ = '\0';
        controllers++;
        bool second = controllers[0] == '\0';
        if (!second && strstr(controllers, "cpu") == NULL)
            continue;
        for (size_t i = second ? 0 : 2; i < (second ? 2u : 4u); i++) {
            char mount[PATH_MAX];
            if (snprintf(mount, sizeof(mount), "%s%s", mount_root, mounts[i]) >= (int)sizeof(mount))
                continue;
            int cores = walk_cores(mount, group);
            if (cores > 0 && (tightest == 0 || cores < tightest))
                tightest = cores;
        }
    }
    return tightest;
}

/* Processors in the calling thread's affinity mask; the mask grows until the kernel's fits. */
static int affinity_cores(void) {
    for (int capacity = 1024; capacity <= 1 << 20; capacity *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)capacity);
        if (set == NULL)
            return 1;
        size_t bytes = CPU_ALLOC_SIZE((size_t)capacity);
        int failed = sched_getaffinity(0, bytes, set);
        int reason = errno;
        int count = failed ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (!failed)
            return count > 0 ? count : 1;
        if (reason != EINVAL)
            return 1;
    }
    return 1;
}

int cpu_usable_cores(void) {
    int saved_errno = errno;
    int cores = affinity_cores();
    int quota = cpu_quota_cores("/proc/self/cgroup", "/sys/fs/cgroup");
    errno = saved_errno;
    return quota > 0 && quota < cores ? quota : cores;
}

bool cpu_settle(int nth) {
    int policy = sched_getscheduler(0), cpu = 0;
    cpu_set_t mask, one;
    if ((policy != SCHED_FIFO && policy != SCHED_RR) || nth < 0 ||
        sched_getaffinity(0, sizeof(mask), &mask) != 0 || CPU_COUNT(&mask) < 2)
        return false;
    nth %= CPU_COUNT(&mask);
    while (!CPU_ISSET((size_t)cpu, &mask) || nth-- > 0)
        cpu++;
    if (sched_getcpu() == cpu)
        return true;
    CPU_ZERO(&one);
    CPU_SET((size_t)cpu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        return false;
    (void)sched_setaffinity(0, sizeof(mask), &mask);
    return true;
}
