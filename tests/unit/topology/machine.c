/* The machine probe: on machines made up by hwloc, under an affinity mask, and without binding. */
#include "topology/machine.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static struct topo_machine probe(void) {
    struct topo_machine machine;
    cr_assert_eq(topo_machine_probe(&machine), ROTA_OK, "%s", error_record()->message);
    return machine;
}

Test(machine, synthetic_machine_is_counted) {
    setenv("HWLOC_SYNTHETIC", "pack:2 numa:2(memory=1073741824) l3:1(size=33554432) core:4 pu:2",
           1);
    struct topo_machine machine = probe();
    cr_assert_eq(machine.packages, 2);
    cr_assert_eq(machine.numa_nodes, 4);
    cr_assert_eq(machine.l3_groups, 4);
    cr_assert_eq(machine.cores, 16);
    cr_assert_eq(machine.pus, 32);
    cr_assert_eq(machine.usable_packages, 2);
    cr_assert_eq(machine.usable_numa_nodes, 4);
    cr_assert_eq(machine.usable_l3_groups, 4);
    cr_assert_eq(machine.usable_cores, 16);
    cr_assert_eq(machine.usable_pus, 32);
    cr_assert_eq(machine.memory_bytes, UINT64_C(4) << 30);
    cr_assert_eq(machine.l3_bytes, 33554432);
    char text[256];
    topo_machine_text(&machine, text, sizeof(text));
    cr_assert_str_eq(text, "2 packages, 4 NUMA nodes (4.0 GiB), 4 L3 groups (of 32.0 MiB), 16 "
                           "cores, 32 PUs; usable: 16 cores, 32 PUs");
    char cut[] = "XXXXXXXXXXXX";
    topo_machine_text(&machine, cut, 9);
    cr_assert_eq(memcmp(cut, "2 packag\0XXX", 12), 0);
}

Test(machine, machine_without_cores_or_caches) {
    setenv("HWLOC_SYNTHETIC", "pu:3", 1);
    struct topo_machine machine = probe();
    cr_assert_eq(machine.cores, 3);
    cr_assert_eq(machine.usable_cores, 3);
    cr_assert_eq(machine.l3_groups, 0);
    char text[256];
    topo_machine_text(&machine, text, sizeof(text));
    cr_assert_not_null(strstr(text, "no L3 cache known, 3 cores, 3 PUs"));
}

Test(machine, this_machine_is_plausible) {
    cpu_set_t mask;
    cr_assert_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    struct topo_machine machine = probe();
    cr_assert_eq(machine.usable_pus, CPU_COUNT(&mask));
    cr_assert_geq(machine.pus, machine.usable_pus);
    cr_assert_geq(machine.cores, machine.usable_cores);
    cr_assert(machine.usable_cores >= 1 && machine.usable_cores <= machine.usable_pus);
    cr_assert_geq(machine.numa_nodes, 1);
    cr_assert_gt(machine.memory_bytes, 0);
}

Test(machine, C87_one_usable_core_under_a_mask) {
    cpu_set_t all, after;
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    int pus = probe().pus;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &all))
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
        struct topo_machine machine = probe();
        cr_assert_eq(machine.usable_cores, 1);
        cr_assert_eq(machine.usable_pus, 1);
        cr_assert_eq(machine.usable_packages, 1);
        cr_assert_eq(machine.pus, pus, "the machine shrank");
        cr_assert_eq(sched_getaffinity(0, sizeof(after), &after), 0);
        cr_assert(CPU_EQUAL(&one, &after), "the affinity changed");
    }
}

static volatile sig_atomic_t bindings;

static void count_binding(int signal_number) {
    (void)signal_number;
    bindings = bindings + 1;
}

/* From here on each call of sched_setaffinity raises SIGSYS instead. */
static void trap_bindings(void) {
    struct sigaction action = {.sa_handler = count_binding};
    cr_assert_eq(sigaction(SIGSYS, &action, NULL), 0);
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sched_setaffinity, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

Test(machine, C87_probing_binds_nothing) {
    trap_bindings();
    probe();
    cr_assert_eq(bindings, 0, "%d attempts to bind", (int)bindings);
    cpu_set_t mask;
    cr_assert_eq(sched_getaffinity(0, sizeof(mask), &mask), 0);
    sched_setaffinity(0, sizeof(mask), &mask);
    cr_assert_eq(bindings, 1, "the trap does not work");
}
