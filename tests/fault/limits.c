/* System calls that fail, limits, other users: what a container or an administrator takes away. */
#include "kit.h"
#include <errno.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LOAD(field)                                                                                \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, (value))

static void install(struct sock_filter *filter, size_t count) {
    struct sock_fprog program = {.len = (unsigned short)count, .filter = filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) != 0)
        kit_skip("system calls cannot be denied: %s", strerror(errno));
}

void kit_deny(int number, int error) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)number, 0, 1),
        RETURN(SECCOMP_RET_ERRNO | ((unsigned)error & SECCOMP_RET_DATA)),
        RETURN(SECCOMP_RET_ALLOW),
    };
    install(filter, sizeof(filter) / sizeof(filter[0]));
}

/* The lower half of each argument is enough: the flag is there, and a timeout's address has one. */
void kit_deny_wall_clock_waits(void) {
    struct sock_filter filter[] = {
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_futex, 0, 4),
        LOAD(args[1]),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, FUTEX_CLOCK_REALTIME, 0, 2),
        LOAD(args[3]),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 1),
        RETURN(SECCOMP_RET_ALLOW),
        RETURN(SECCOMP_RET_KILL_PROCESS),
    };
    install(filter, sizeof(filter) / sizeof(filter[0]));
}

void kit_limit(int resource, unsigned long long value) {
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
    if (setrlimit((__rlimit_resource_t)resource, &limit) != 0)
        kit_skip("limit %d cannot be set: %s", resource, strerror(errno));
}

void kit_become(unsigned id) {
    if (setgroups(0, NULL) != 0 || setresgid(id, id, id) != 0 || setresuid(id, id, id) != 0)
        kit_skip("cannot become user %u: %s", id, strerror(errno));
    /* A change of user takes this away; starting a program as that user would give it back. */
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
}
