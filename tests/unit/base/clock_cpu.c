/* Deadlines at their limits; instruction sets; cores under affinity masks and CPU quotas. */
#include "base/clock.h"
#include "base/cpu.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

Test(clock, never_goes_back) {
    int64_t before = clock_now_ns();
    for (int i = 0; i < 100000; i++) {
        int64_t now = clock_now_ns();
        cr_assert_geq(now, before);
        before = now;
    }
}

Test(clock, deadlines_saturate) {
    cr_assert_eq(clock_deadline(INT64_MAX), CLOCK_NEVER);
    cr_assert_eq(clock_deadline(INT64_MAX / 1000000), CLOCK_NEVER);
    cr_assert_lt(clock_deadline(INT64_C(1000000000000)), CLOCK_NEVER);
    cr_assert_eq(clock_left_ms(CLOCK_NEVER), INT_MAX);
    cr_assert_eq(clock_left_ms(CLOCK_NEVER - 1), INT_MAX);
    cr_assert_not(clock_passed(CLOCK_NEVER));
    cr_assert_not(clock_passed(CLOCK_NEVER - 1));
}

Test(clock, past_and_odd_deadlines) {
    const int64_t passed[] = {INT64_MIN, -1, 0, 1};
    for (size_t i = 0; i < sizeof(passed) / sizeof(passed[0]); i++) {
        cr_assert(clock_passed(passed[i]));
        cr_assert_eq(clock_left_ms(passed[i]), 0);
    }
    cr_assert(clock_passed(clock_deadline(0)));
    cr_assert(clock_passed(clock_deadline(-1)));
    cr_assert(clock_passed(clock_deadline(INT64_MIN)));
}

Test(clock, left_is_rounded_up) {
    cr_assert_eq(clock_left_ms(clock_now_ns() + 500000), 1);
    int64_t deadline = clock_deadline(50);
    int left = clock_left_ms(deadline);
    cr_assert(left > 0 && left <= 50);
    cr_assert_not(clock_passed(deadline));
    while (!clock_passed(deadline))
        usleep(1000);
    cr_assert_eq(clock_left_ms(deadline), 0);
    cr_assert_geq(clock_now_ns(), deadline);
}

Test(cpu, best_is_available_and_named) {
    cr_assert(cpu_isa_available(CPU_SCALAR));
    cr_assert(cpu_isa_available(cpu_isa_best()));
    cr_assert_not(cpu_isa_available(CPU_ISA_COUNT));
    cr_assert_not(cpu_isa_available((enum cpu_isa) - 1));
    cr_assert_str_eq(cpu_isa_name(CPU_AVX512), "avx512");
    cr_assert_str_eq(cpu_isa_name((enum cpu_isa)99), "unknown");
    if (cpu_isa_available(CPU_AVX512))
        cr_assert(cpu_isa_available(CPU_AVX2));
}

Test(cpu, usable_cores_follow_the_affinity_mask) {
    cpu_set_t all;
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    cr_assert_geq(cpu_usable_cores(), 1);
    cr_assert_leq(cpu_usable_cores(), CPU_COUNT(&all));
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        cr_assert_eq(cpu_usable_cores(), 1);
    }
}

/* A folder that stands for /sys/fs/cgroup. */
static char root[64];

static void put(const char *path, const char *text) {
    char full[256];
    snprintf(full, sizeof(full), "%s%s", root, path);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0700);
        *slash = '/';
    }
    FILE *file = fopen(full, "w");
    cr_assert_not_null(file);
    fputs(text, file);
    fclose(file);
}

static int quota(const char *cgroup) {
    char path[256];
    put("/self", cgroup);
    snprintf(path, sizeof(path), "%s/self", root);
    return cpu_quota_cores(path, root);
}

static void make_root(void) {
    strcpy(root, "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(root));
}

static void remove_root(void) {
    char command[128];
    snprintf(command, sizeof(command), "rm -rf %s", root);
    cr_assert_eq(system(command), 0);
}

TestSuite(quota, .init = make_root, .fini = remove_root);

Test(quota, version_2_is_rounded_up_and_the_tightest_ancestor_wins) {
    put("/a/b/cpu.max", "250000 100000\n");
    cr_assert_eq(quota("0::/a/b\n"), 3);
    put("/a/cpu.max", "20000 100000\n");
    cr_assert_eq(quota("0::/a/b\n"), 1);
    put("/a/cpu.max", "max 100000\n");
    cr_assert_eq(quota("0::/a/b\n"), 3);
    cr_assert_eq(quota("0::/\n"), 0);
}

Test(quota, container_sees_its_own_root) {
    put("/cpu.max", "150000 100000\n");
    cr_assert_eq(quota("0::/\n"), 2);
    cr_assert_eq(quota("0::/system.slice/only-the-host-sees-this\n"), 2);
    cr_assert_eq(quota("0::/../../outside\n"), 2);
}

Test(quota, version_1_and_mixed) {
    put("/cpu,cpuacct/x/cpu.cfs_quota_us", "20000\n");
    put("/cpu,cpuacct/x/cpu.cfs_period_us", "10000\n");
    cr_assert_eq(quota("4:memory:/x\n3:cpu,cpuacct:/x\n0::/\n"), 2);
    put("/cpu,cpuacct/x/cpu.cfs_quota_us", "-1\n");
    cr_assert_eq(quota("3:cpu,cpuacct:/x\n0::/\n"), 0);
    put("/unified/x/cpu.max", "100000 100000\n");
    cr_assert_eq(quota("3:cpu,cpuacct:/x\n0::/x\n"), 1);
}

Test(quota, nonsense_is_no_limit) {
    const char *texts[] = {"",          "\n",      "0 100000",
                           "-5 100000", "100000",  "100000 0",
                           "x",         "1e9 100", "99999999999999999999999 1"};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        put("/g/cpu.max", texts[i]);
        int cores = quota("0::/g\n");
        /* Never negative; digits before garbage or a saturated number may count as a large one. */
        cr_assert(cores == 0 || cores >= 1, "cpu.max %s gave %d", texts[i], cores);
    }
    put("/g/cpu.max", "0 100000");
    cr_assert_eq(quota("0::/g\n"), 0);
    cr_assert_eq(quota(""), 0);
    cr_assert_eq(quota("garbage\n::\n0:\n:::\n"), 0);
    cr_assert_eq(cpu_quota_cores("/nonexistent", root), 0);
}

Test(cpu, settles_real_time_threads_alone) {
    cpu_set_t before, after;
    struct sched_param lowest = {.sched_priority = sched_get_priority_min(SCHED_RR)};
    cr_assert_eq(sched_getaffinity(0, sizeof(before), &before), 0);
    cr_assert_not(cpu_settle(0), "a fair thread is the kernel's to place");
    if (CPU_COUNT(&before) < 2 || sched_setscheduler(0, SCHED_RR, &lowest) != 0)
        cr_skip_test("needs two cores and the right to a real-time policy");
    cr_assert_not(cpu_settle(-1));
    for (int nth = 0; nth < 2 * CPU_COUNT(&before); nth++) {
        cr_assert(cpu_settle(nth));
        int cpu = sched_getcpu(), lower = 0;
        for (int i = 0; i < cpu; i++)
            lower += CPU_ISSET((size_t)i, &before);
        cr_assert_eq(lower, nth % CPU_COUNT(&before));
    }
    cr_assert_eq(sched_getaffinity(0, sizeof(after), &after), 0);
    cr_assert(CPU_EQUAL(&before, &after));
}
