/* Jobs of ranks in surroundings that are made for them: hosts that are network, host name and mount
 * namespaces joined by cables, full or missing folders, denied system calls, tight limits.
 *
 * Design notes. Each case runs in namespaces of its own (network, mounts, processes, host name)
 * with a small /dev/shm of its own, so cases may run at the same time as anything else, and with
 * the last process of a case all that it made is gone: the first process of its process namespace
 * ends with the case, and the kernel then ends the rest. Everything has a limit of time. What the
 * kernel or the caller's rights do not allow is a skip (exit status 77) that says why. */
#ifndef TESTS_FAULT_KIT_H
#define TESTS_FAULT_KIT_H

#include <rota/rota.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/types.h>

enum { KIT_RANKS = 16, KIT_HOSTS = 6, KIT_VALUES = 8 };

/* -- cases ------------------------------------------------------------------------------------- */

struct kit_case {
    const char *name;
    void (*run)(void);
    int limit_s; /* killed after so long */
};

/* Runs the case that the argument names, or all. Exit status 0, 1, or 77 when every one was
 * skipped. `--list` prints the names. */
int kit_main(const struct kit_case *cases, int argc, char **argv);

/* An assertion, in the case's process or in a rank: counted and printed; the case goes on. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            kit_failed(__FILE__, __LINE__, __VA_ARGS__);                                           \
    } while (0)
void kit_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
int kit_failures(void);
/* Ends the case: not here. */
_Noreturn void kit_skip(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Skips where a program is missing. */
void kit_need(const char *program);

int64_t kit_now_ms(void);
void kit_sleep_ms(int64_t ms);
/* Memory that the processes of a case share, zeroed. */
void *kit_shared(size_t bytes);
/* Runs a shell command, returns its exit status; its output goes to ours. */
int kit_shell(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same, and a failure skips the case: the kernel does not have it. */
void kit_must(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Puts a text into place of a file, seen by this case (or host) alone. */
void kit_replace_file(const char *path, const char *text);
/* Mounts a tmpfs on a folder; options as for mount(8), NULL for none. */
void kit_tmpfs(const char *path, const char *options);
/* Entries of a folder, and bytes in its files. */
int kit_entries(const char *path);
long long kit_used_bytes(const char *mount);
/* A port on which nobody listens now. */
int kit_free_port(void);

/* -- hosts ------------------------------------------------------------------------------------- */

enum { KIT_HERE = -1 };

/* A network, host name and mount namespace with lo up; returns its index. */
int kit_host(const char *name);
/* Moves the calling process, which has one thread, there. */
void kit_enter(int host);
/* As kit_shell and kit_must, there. */
int kit_on(int host, const char *format, ...) __attribute__((format(printf, 2, 3)));
void kit_must_on(int host, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Runs a function there, in a process of its own. */
void kit_call_on(int host, void (*run)(void *arg), void *arg);
/* A cable between two hosts; ends without address, down. */
void kit_cable(int a, const char *end_a, int b, const char *end_b);
/* Two hosts "left" and "right", eth0 10.7.0.1/24 and 10.7.0.2/24 joined by a cable, up. */
void kit_two_hosts(void);
/* Drops, or lets pass again, what comes in to a host from outside by IP. */
void kit_drop(int host);
void kit_pass(int host);

/* -- jobs -------------------------------------------------------------------------------------- */

struct kit_outcome {
    _Atomic int stage; /* 1 started, 2 joined, 3 body ended */
    _Atomic uint64_t rounds;
    pid_t pid;
    int wait_status;        /* -1: not ended */
    rota_status init, body; /* of rota_init; of the body */
    int wrong;              /* results that were not right */
    rota_error error;       /* of whichever failed */
    int64_t init_ms;        /* that rota_init took */
    int64_t began_ms;       /* when the body's last call began, by kit_call_began */
    int64_t ended_ms;       /* when the body ended */
    int64_t destroy_ms;     /* that rota_comm_destroy took */
    int64_t init_cpu_ms;    /* processor time of the process until init ended */
    _Atomic uint64_t values[KIT_VALUES];
    int output; /* what it wrote to stderr */
};

struct kit_job;
struct kit_seat { /* what a rank's body gets */
    int rank, nranks;
    rota_comm *comm;
    struct kit_outcome *outcome;
    struct kit_job *job;
};

struct kit_job {
    int nranks;
    const char *transport;               /* NULL: all */
    const char *root;                    /* ROTA_ROOT; NULL: a unique id that rank 0 makes */
    int64_t init_timeout_ms, timeout_ms; /* 0: 10 s */
    int hosts[KIT_RANKS];                /* 0 is host 0 when there are hosts, else KIT_HERE */
    void (*prepare)(const struct kit_job *job, int rank); /* in the rank's process before init */
    rota_status (*body)(struct kit_seat *seat);           /* NULL: kit_sums */
    void *arg;
    /* Of the kit. */
    struct kit_outcome *outcomes; /* by rank; as long as the case */
    struct kit_meeting *meeting;
    int64_t started_ms;
};

void kit_job_start(struct kit_job *job);
/* One rank of a job that kit_job_prepare has made ready. */
void kit_job_prepare(struct kit_job *job);
void kit_rank_start(struct kit_job *job, int rank);
/* Waits for all ranks that were started; those that do not end in time fail the case and are
 * killed. */
void kit_job_wait(struct kit_job *job, int64_t limit_ms);
void kit_job_run(struct kit_job *job, int64_t limit_ms);
/* The unique id that rank 0 made; NULL: not yet. */
const rota_unique_id *kit_job_id(const struct kit_job *job);
/* Gives back what a job holds, for cases that run many; its outcomes are gone. */
void kit_job_end(struct kit_job *job);
/* Every rank joined, got right results only, and ended of its own. */
void kit_expect_success(const struct kit_job *job, const char *what);
/* What a rank wrote to stderr; freed with the case. */
const char *kit_said(const struct kit_job *job, int rank);
int kit_lines(const char *text);
/* It said nothing; a sanitizer's remark about threads that it could not stop does not count. */
bool kit_quiet(const struct kit_job *job, int rank);
/* Prints all outcomes. */
void kit_tell(const struct kit_job *job);

/* Body: barriers, sums, all-to-alls of small and middle sizes, checked. */
rota_status kit_sums(struct kit_seat *seat);
/* One checked operation. */
rota_status kit_sum(struct kit_seat *seat, size_t count);
rota_status kit_exchange(struct kit_seat *seat, size_t count);
/* Notes when the call began whose end is measured. */
void kit_call_began(struct kit_seat *seat);

/* -- limits ------------------------------------------------------------------------------------ */

/* From now on the system call fails with this error in this process. */
void kit_deny(int syscall_number, int error);
/* A wait on a futex that is timed by the wall clock kills this process. */
void kit_deny_wall_clock_waits(void);
void kit_limit(int resource, unsigned long long value);
/* From now on another user, as if the program had been started by it. */
void kit_become(unsigned id);

#endif
