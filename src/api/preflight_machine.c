/* What the machine allows: limits, memory, clock, cores. */
#include "api/preflight.h"

#include "base/cpu.h"
#include "topology/machine.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <unistd.h>

#define TMPFS_NUMBER 0x01021994

/* Descriptors of a rank besides its connections, and per peer that it reaches over TCP. */
#define OWN_DESCRIPTORS 64

static void show_limit(rlim_t limit, char text[32]) {
    if (limit == RLIM_INFINITY)
        snprintf(text, 32, "unlimited");
    else
        snprintf(text, 32, "%llu", (unsigned long long)limit);
}

/* One line of a file, without its end; false when it cannot be read. */
static bool read_line(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    text[0] = '\0';
    if (file == NULL)
        return false;
    bool good = fgets(text, (int)size, file) != NULL;
    fclose(file);
    text[strcspn(text, "\n")] = '\0';
    return good;
}

static void look_at_descriptors(const struct preflight *preflight) {
    struct rlimit limit;
    char soft[32], hard[32];
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    show_limit(limit.rlim_cur, soft);
    show_limit(limit.rlim_max, hard);
    unsigned long long peers =
        limit.rlim_cur > OWN_DESCRIPTORS ? limit.rlim_cur - OWN_DESCRIPTORS : 0;
    if (limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= 4096)
        preflight_tell(preflight, ROTA_FINDING_OK, "nofile", NULL, "%s descriptors", soft);
    else if (limit.rlim_cur >= 256)
        preflight_tell(preflight, ROTA_FINDING_NOTE, "nofile",
                       "for larger jobs raise it: ulimit -n 65536",
                       "%s descriptors (up to %s may be asked for): enough for connections to "
                       "about %llu ranks, besides those of the program",
                       soft, hard, peers);
    else
        preflight_tell(preflight, ROTA_FINDING_PROBLEM, "nofile", "raise it: ulimit -n 4096",
                       "%s descriptors (up to %s may be asked for): connections to about %llu "
                       "ranks at most",
                       soft, hard, peers);
}

static void look_at_limits(const struct preflight *preflight) {
    struct rlimit limit;
    char soft[32], pids[64];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) {
        show_limit(limit.rlim_cur, soft);
        bool small = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < (64u << 20);
        preflight_tell(preflight, small ? ROTA_FINDING_NOTE : ROTA_FINDING_OK, "memlock",
                       small ? "only RDMA needs it: ulimit -l unlimited" : NULL,
                       "%s bytes may be locked", soft);
    }
    look_at_descriptors(preflight);
    if (getrlimit(RLIMIT_NPROC, &limit) == 0) {
        show_limit(limit.rlim_cur, soft);
        bool small = limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < 256 && geteuid() != 0;
        preflight_tell(preflight, small ? ROTA_FINDING_PROBLEM : ROTA_FINDING_OK, "nproc",
                       small ? "each rank has up to two threads of its own: ulimit -u 4096" : NULL,
                       "%s processes and threads of this user", soft);
    }
    if (read_line("/sys/fs/cgroup/pids.max", pids, sizeof(pids)) && strcmp(pids, "max") != 0) {
        bool small = strtoull(pids, NULL, 10) < 256;
        preflight_tell(preflight, small ? ROTA_FINDING_PROBLEM : ROTA_FINDING_OK, "pids",
                       small ? "raise the container's limit of processes (docker: --pids-limit)"
                             : NULL,
                       "%s processes and threads in this control group", pids);
    }
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        preflight_tell(preflight, ROTA_FINDING_NOTE, "memory",
                       "shared memory of all peers counts in it: ulimit -v unlimited",
                       "%llu MiB of addresses", (unsigned long long)limit.rlim_cur >> 20);
}

static void look_at_shared_memory(const struct preflight *preflight) {
    struct statfs fs;
    if (statfs("/dev/shm", &fs) != 0)
        preflight_tell(preflight, ROTA_FINDING_OK, "/dev/shm", NULL,
                       "is not there, and is not needed: rota shares memory by memfd");
    else
        preflight_tell(preflight, ROTA_FINDING_OK, "/dev/shm", NULL,
                       "%llu MiB, %llu MiB free, %s; not used: rota shares memory by memfd",
                       (unsigned long long)fs.f_blocks * (unsigned long long)fs.f_bsize >> 20,
                       (unsigned long long)fs.f_bavail * (unsigned long long)fs.f_bsize >> 20,
                       (unsigned long long)fs.f_type == TMPFS_NUMBER ? "tmpfs" : "no tmpfs");
    int fd = memfd_create("rota-preflight", MFD_CLOEXEC);
    int error = errno;
    void *memory = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, 1 << 20) == 0)
        memory = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    error = memory == MAP_FAILED && fd >= 0 ? errno : error;
    if (memory != MAP_FAILED)
        preflight_tell(preflight, ROTA_FINDING_OK, "memfd", NULL,
                       "shared memory can be made and mapped");
    else
        preflight_tell(
            preflight, ROTA_FINDING_PROBLEM, "memfd",
            "allow memfd_create (seccomp profile of the container, kernel 3.17 or later)",
            "shared memory cannot be made: %s; ranks of this host will use TCP", strerror(error));
    if (memory != MAP_FAILED)
        munmap(memory, 1 << 20);
    if (fd >= 0)
        close(fd);
}

static void look_at_huge_pages(const struct preflight *preflight) {
    char text[128];
    if (!read_line("/sys/kernel/mm/transparent_hugepage/shmem_enabled", text, sizeof(text)))
        preflight_tell(preflight, ROTA_FINDING_OK, "huge pages", NULL, "this system has none");
    else if (strstr(text, "[never]") != NULL || strstr(text, "[deny]") != NULL)
        preflight_tell(preflight, ROTA_FINDING_OK, "huge pages", NULL,
                       "not for shared memory; rota_mem_alloc uses them after echo advise "
                       "> /sys/kernel/mm/transparent_hugepage/shmem_enabled");
    else
        preflight_tell(preflight, ROTA_FINDING_OK, "huge pages", NULL,
                       "for memory from rota_mem_alloc, unless ROTA_HUGE_PAGES=off");
}

static void look_at_ptrace(const struct preflight *preflight) {
    char scope[16];
    if (!read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope)))
        preflight_tell(preflight, ROTA_FINDING_OK, "ptrace", NULL, "not restricted by yama");
    else
        preflight_tell(preflight, ROTA_FINDING_OK, "ptrace", NULL, "scope %s%s", scope,
                       strcmp(scope, "0") == 0
                           ? ""
                           : ": processes may not read each other; rota does not need it, "
                             "debuggers that attach do");
}

static void look_at_clock(const struct preflight *preflight) {
    char source[32];
    if (!read_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", source,
                   sizeof(source)))
        snprintf(source, sizeof(source), "unknown");
    bool slow = strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0 ||
                strcmp(source, "jiffies") == 0 || strcmp(source, "xen") == 0;
    preflight_tell(preflight, slow ? ROTA_FINDING_NOTE : ROTA_FINDING_OK, "clock",
                   slow ? "reading it costs a system call each time: see why the kernel does not "
                          "trust the TSC (dmesg)"
                        : NULL,
                   "clock source %s", source);
}

static void look_at_cores(const struct preflight *preflight) {
    struct topo_machine machine;
    char text[256] = "";
    int usable = cpu_usable_cores(), quota = cpu_quota_cores("/proc/self/cgroup", "/sys/fs/cgroup");
    if (topo_machine_probe(&machine) == ROTA_OK)
        topo_machine_text(&machine, text, sizeof(text));
    preflight_tell(preflight, usable == 1 ? ROTA_FINDING_NOTE : ROTA_FINDING_OK, "cores",
                   usable == 1 ? "more than one rank here will share it; check the launcher's "
                                 "binding (taskset -cp) and the container's CPU limit"
                               : NULL,
                   "%d usable%s", usable, quota > 0 ? ", limited by a quota" : "");
    if (text[0] != '\0')
        preflight_tell(preflight, ROTA_FINDING_OK, "machine", NULL, "%s, kernels for %s", text,
                       cpu_isa_name(cpu_isa_best()));
}

void preflight_machine(const struct preflight *preflight) {
    look_at_limits(preflight);
    look_at_shared_memory(preflight);
    look_at_huge_pages(preflight);
    look_at_ptrace(preflight);
    look_at_clock(preflight);
    look_at_cores(preflight);
}
