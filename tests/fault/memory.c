/* Shared memory as containers have it: small, full, missing, forbidden, with what others left there
 * or take away; copies between processes that are denied; huge pages. */
#include "kit.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { OTHER_USER = 65534, MIB = 1 << 20 };

static int cycles(int few) {
    const char *wanted = getenv("ROTA_TEST_CYCLES");
    return wanted != NULL ? atoi(wanted) : few;
}

/* Right results, and at most one warning per process. */
static void expect_quiet_success(const struct kit_job *job, const char *what) {
    kit_expect_success(job, what);
    for (int r = 0; r < job->nranks; r++) {
        const char *said = kit_said(job, r);
        CHECK(kit_lines(said) <= 1, "%s: rank %d said: %s", what, r, said);
    }
}

/* -- C71 --------------------------------------------------------------------------------------- */

static rota_status much_data(struct kit_seat *seat) {
    size_t *mib = seat->job->arg;
    rota_status status = kit_sum(seat, mib[0] * MIB / sizeof(int32_t));
    if (status == ROTA_OK)
        status = kit_exchange(seat, mib[1] * MIB / sizeof(int32_t) / (size_t)seat->nranks);
    return status;
}

/* Every page of /dev/shm that is in use at some time while the job runs. */
static long long watch_use(struct kit_job *job) {
    long long most = 0;
    kit_job_start(job);
    for (bool running = true; running;) {
        long long used = kit_used_bytes("/dev/shm");
        most = used > most ? used : most;
        running = false;
        for (int r = 0; r < job->nranks; r++)
            running |= kill(job->outcomes[r].pid, 0) == 0 &&
                       atomic_load(&job->outcomes[r].stage) < 3 && job->outcomes[r].init == ROTA_OK;
        running &= kit_now_ms() - job->started_ms < 100000;
        kit_sleep_ms(2);
    }
    kit_job_wait(job, 20000);
    return most;
}

static void in_64_mib(size_t sum_mib, size_t exchange_mib) {
    static const char *const transports[] = {"shm", NULL};
    size_t mib[2] = {sum_mib, exchange_mib};
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 8,
                              .transport = transports[t],
                              .body = much_data,
                              .arg = mib,
                              .init_timeout_ms = 60000,
                              .timeout_ms = 100000};
        long long most = watch_use(&job);
        expect_quiet_success(&job, "64 MB of shared memory");
        CHECK(most <= 32 * MIB, "%lld bytes of /dev/shm in use", most);
    }
}

static void C71_small_shared_memory(void) {
    in_64_mib(24, 8);
}

static void C71_small_shared_memory_much_data(void) {
    in_64_mib(256, 64);
}

/* -- C72 --------------------------------------------------------------------------------------- */

static void fill_shared_memory(long long leave) {
    int file = open("/dev/shm/filler", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    char page[4096] = {1};
    while (write(file, page, sizeof(page)) == (ssize_t)sizeof(page))
        ;
    if (leave > 0 && ftruncate(file, lseek(file, 0, SEEK_END) - leave) != 0)
        kit_skip("cannot fill /dev/shm");
    close(file);
}

static void deny_memfd(const struct kit_job *job, int rank) {
    const int *only = job->arg;
    if (only == NULL || *only == rank)
        kit_deny(SYS_memfd_create, ENOSYS);
}

/* With memfd and without it, on all ranks and on one. */
static void run_in_full_memory(const char *what) {
    static int one = 2;
    char text[128];
    for (int variant = 0; variant < 3; variant++) {
        struct kit_job job = {.nranks = 4,
                              .prepare = variant > 0 ? deny_memfd : NULL,
                              .arg = variant == 2 ? &one : NULL};
        snprintf(text, sizeof(text), "%s, memfd denied to %s", what,
                 variant == 0   ? "none"
                 : variant == 1 ? "all"
                                : "one");
        kit_job_run(&job, 30000);
        expect_quiet_success(&job, text);
    }
}

static void C72_shared_memory_full(void) {
    if (umount("/dev/shm") != 0)
        kit_skip("umount /dev/shm: %s", strerror(errno));
    kit_tmpfs("/dev/shm", "size=64k,mode=1777");
    run_in_full_memory("64 KiB");
    umount("/dev/shm");
    kit_tmpfs("/dev/shm", "size=64m,mode=1777");
    fill_shared_memory(4096);
    run_in_full_memory("4 KiB free");
    unlink("/dev/shm/filler");
}

static void C72_filled_while_ranks_start(void) {
    for (int variant = 0; variant < 2; variant++) {
        struct kit_job job = {.nranks = 4, .prepare = variant > 0 ? deny_memfd : NULL};
        kit_job_prepare(&job);
        kit_rank_start(&job, 0);
        kit_sleep_ms(300);
        fill_shared_memory(0);
        for (int r = 1; r < 4; r++)
            kit_rank_start(&job, r);
        kit_job_wait(&job, 30000);
        expect_quiet_success(&job, "filled between the start of ranks 0 and 1");
        unlink("/dev/shm/filler");
    }
}

/* Shared memory alone, and it cannot be had: every rank hears so. */
static void C72_shared_memory_alone_is_impossible(void) {
    struct kit_job job = {
        .nranks = 4, .prepare = deny_memfd, .transport = "shm", .timeout_ms = 3000};
    kit_job_run(&job, 30000);
    for (int r = 0; r < 4; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->wait_status == 0, "rank %d: wait status %#x", r, outcome->wait_status);
        CHECK(outcome->init != ROTA_OK || outcome->body != ROTA_OK, "rank %d succeeded", r);
        CHECK(outcome->error.message[0] != 0, "rank %d: no message", r);
    }
}

/* -- C73 --------------------------------------------------------------------------------------- */

static rota_status endless_sums(struct kit_seat *seat) {
    rota_status status = ROTA_OK;
    while (status == ROTA_OK)
        status = kit_sum(seat, 16 * MIB / sizeof(int32_t));
    return status;
}

static rota_status short_sums(struct kit_seat *seat) {
    return kit_sum(seat, 1000);
}

static void C73_nothing_left_after_kills(void) {
    unsigned state = 12345;
    for (int i = 0; i < cycles(12); i++) {
        struct kit_job job = {.nranks = 4, .body = i % 3 == 2 ? short_sums : endless_sums};
        state = state * 1103515245 + 12345;
        int64_t delay = i % 3 == 0 ? state >> 16 & 15 : i % 3 == 1 ? 50 + (state >> 16 & 255) : 12;
        kit_job_start(&job);
        kit_sleep_ms(delay);
        for (int r = 0; r < 4; r++)
            kill(job.outcomes[r].pid, SIGKILL);
        kit_job_wait(&job, 5000);
        CHECK(kit_entries("/dev/shm") == 0, "cycle %d left %d files", i, kit_entries("/dev/shm"));
        CHECK(kit_used_bytes("/dev/shm") == 0, "cycle %d left %lld bytes", i,
              kit_used_bytes("/dev/shm"));
    }
    struct kit_job job = {.nranks = 4};
    kit_job_run(&job, 20000);
    kit_expect_success(&job, "after the kills");
}

/* -- C74 --------------------------------------------------------------------------------------- */

/* Binds the abstract names that another job uses, as far as they are free, and keeps them. */
static void take_local_names(void) {
    FILE *table = fopen("/proc/net/unix", "re");
    char line[512], name[128];
    while (table != NULL && fgets(line, sizeof(line), table) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (sscanf(line, "%*s %*s %*s %*s %*s %*s %*s @%100s", name) != 1)
            continue;
        int probe = socket(AF_UNIX, SOCK_STREAM, 0);
        memcpy(address.sun_path + 1, name, strlen(name));
        (void)bind(probe, (struct sockaddr *)&address,
                   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name)));
    }
    if (table != NULL)
        fclose(table);
}

enum leftover { EMPTY_FILE, FOREIGN_FILE, LINK, FOLDER };

static void leave_behind(enum leftover kind, const char *victim) {
    static const char *const forms[] = {"rota-%d", "rota.%d", "rota-0-%d", "rota_%d",
                                        "rota-65534-%d"};
    char path[64];
    for (int i = 0; i < 1000; i++) {
        strcpy(path, "/dev/shm/");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(path + 9, sizeof(path) - 9, forms[i % 5], i / 5);
#pragma GCC diagnostic pop
        if (kind == FOLDER) {
            mkdir(path, 0755);
        } else if (kind == LINK) {
            if (symlink(victim, path) != 0)
                kit_skip("no symbolic links");
        } else {
            int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
            if (kind == FOREIGN_FILE && fchown(file, 1, 1) != 0)
                kit_skip("cannot change owners");
            close(file);
        }
    }
}

static void become_other_user(const struct kit_job *job, int rank) {
    (void)job;
    (void)rank;
    kit_become(OTHER_USER);
}

/* Nobody but the owner can open what the ranks of a job share. */
static rota_status look_at_own_memory(struct kit_seat *seat) {
    rota_status status = kit_sums(seat);
    DIR *folder = opendir("/proc/self/fd");
    int segments = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[300], target[300] = "";
        struct stat info;
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        if (readlink(path, target, sizeof(target) - 1) < 0 ||
            strstr(target, "memfd:rota") == NULL || stat(path, &info) != 0)
            continue;
        segments++;
        CHECK((info.st_mode & 0777) == 0600, "%s has mode %o", target, info.st_mode & 0777);
    }
    closedir(folder);
    CHECK(segments > 0, "rank %d shares no memory", seat->rank);
    return status == ROTA_OK ? rota_barrier(seat->comm, NULL) : status;
}

static void C74_stale_and_foreign_names(void) {
    char victim[] = "/tmp/rota-test-victim-XXXXXX", text[32] = "";
    int file = mkstemp(victim);
    if (file < 0 || write(file, "untouched", 9) != 9)
        kit_skip("no place for a victim");
    for (int kind = EMPTY_FILE; kind <= FOLDER; kind++) {
        leave_behind((enum leftover)kind, victim);
        struct kit_job job = {.nranks = 4,
                              .prepare = kind == FOREIGN_FILE ? become_other_user : NULL,
                              .body = look_at_own_memory};
        kit_job_start(&job);
        take_local_names();
        kit_job_wait(&job, 30000);
        expect_quiet_success(&job, "stale names");
        CHECK(kit_entries("/dev/shm") == 1000, "%d of 1000 foreign files are left",
              kit_entries("/dev/shm"));
        CHECK(pread(file, text, sizeof(text) - 1, 0) == 9 && strcmp(text, "untouched") == 0,
              "the victim holds \"%s\"", text);
        kit_shell("rm -rf /dev/shm/rota*");
    }
    close(file);
    unlink(victim);
}

/* -- C75 --------------------------------------------------------------------------------------- */

static rota_status sums_of_this_job(struct kit_seat *seat) {
    const int *value = seat->job->arg;
    rota_status status = ROTA_OK;
    for (int i = 0; status == ROTA_OK && i < 200; i++) {
        int32_t in[2] = {*value, i}, out[2] = {0};
        status = rota_all_reduce(in, out, 2, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
        seat->outcome->wrong += out[0] != seat->nranks * *value || out[1] != seat->nranks * i;
    }
    atomic_store(&seat->outcome->values[0], (uint64_t)getpid());
    return status;
}

/* Threads take numbers too: no rank goes on before all processes are there. */
static void wait_for_all(const struct kit_job *job, int rank) {
    (void)rank;
    for (int i = 0; i < 1000 && *(volatile pid_t *)&job->outcomes[1].pid == 0; i++)
        kit_sleep_ms(1);
}

/* A job whose processes have the same numbers as those of the other one. */
static void run_in_own_processes(int value) {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0)
        kit_skip("no further process namespace: %s", strerror(errno));
    pid_t first = fork();
    if (first == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (mount("proc", "/proc", "proc", 0, NULL) != 0)
            kit_skip("cannot mount /proc: %s", strerror(errno));
        struct kit_job job = {
            .nranks = 2, .prepare = wait_for_all, .body = sums_of_this_job, .arg = &value};
        kit_job_run(&job, 20000);
        kit_expect_success(&job, "a job with the same process numbers");
        CHECK(atomic_load(&job.outcomes[0].values[0]) == 2 &&
                  atomic_load(&job.outcomes[1].values[0]) == 3,
              "the process numbers are not those expected");
        _exit(0);
    }
    int status = 0;
    waitpid(first, &status, 0);
    CHECK(status == 0, "wait status %#x", (unsigned)status);
    _exit(0);
}

static void C75_two_jobs_with_the_same_pids(void) {
    for (int i = 0; i < cycles(5); i++) {
        pid_t pids[2];
        for (int j = 0; j < 2; j++) {
            pids[j] = fork();
            if (pids[j] == 0)
                run_in_own_processes(10 + j);
        }
        for (int j = 0; j < 2; j++) {
            int status = 0;
            waitpid(pids[j], &status, 0);
            CHECK(status == 0, "job %d: wait status %#x", j, (unsigned)status);
        }
    }
}

/* Ranks of one job whose processes have the same number, each in a container of its own. */
static void enter_own_processes(const struct kit_job *job, int rank) {
    (void)job;
    (void)rank;
    if (unshare(CLONE_NEWPID) != 0)
        kit_skip("no further process namespace: %s", strerror(errno));
    pid_t inner = fork();
    if (inner == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return; /* the rank goes on here */
    }
    int status = 0;
    waitpid(inner, &status, 0);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

static void C75_ranks_with_the_same_pid(void) {
    static int value = 3;
    struct kit_job job = {
        .nranks = 3, .prepare = enter_own_processes, .body = sums_of_this_job, .arg = &value};
    kit_job_run(&job, 20000);
    kit_expect_success(&job, "ranks with the same process number");
    for (int r = 0; r < 3; r++)
        CHECK(atomic_load(&job.outcomes[r].values[0]) == 1, "rank %d is not process 1", r);
}

/* -- C76 --------------------------------------------------------------------------------------- */

static rota_status thousand_sums(struct kit_seat *seat) {
    rota_status status = ROTA_OK;
    for (int i = 0; status == ROTA_OK && i < 1000; i++)
        status = kit_sum(seat, i % 50 == 0 ? 30000 : 20);
    return status;
}

static void C76_files_deleted_by_others(void) {
    pid_t deleter = fork();
    if (deleter == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) {
            kit_shell("rm -rf /dev/shm/*");
            kit_sleep_ms(100);
        }
    }
    for (int variant = 0; variant < 2; variant++) {
        struct kit_job job = {
            .nranks = 4, .body = thousand_sums, .prepare = variant > 0 ? deny_memfd : NULL};
        kit_job_run(&job, 40000);
        kit_expect_success(&job, "files deleted by others");
    }
    kill(deleter, SIGKILL);
}

/* -- C77 --------------------------------------------------------------------------------------- */

static void run_twice(const char *what, void (*prepare)(const struct kit_job *, int)) {
    struct kit_job job = {.nranks = 4, .prepare = prepare};
    kit_job_run(&job, 30000);
    expect_quiet_success(&job, what);
}

static void C77_shared_memory_read_only(void) {
    if (mount(NULL, "/dev/shm", NULL, MS_REMOUNT | MS_RDONLY, NULL) != 0)
        kit_skip("cannot remount /dev/shm: %s", strerror(errno));
    run_twice("/dev/shm read-only", NULL);
    run_twice("/dev/shm read-only, no memfd", deny_memfd);
}

static void C77_shared_memory_absent(void) {
    umount("/dev/shm");
    kit_tmpfs("/dev", "size=64k");
    if (mknod("/dev/null", S_IFCHR | 0666, makedev(1, 3)) != 0 ||
        mknod("/dev/urandom", S_IFCHR | 0444, makedev(1, 9)) != 0)
        kit_skip("cannot make devices: %s", strerror(errno));
    run_twice("no /dev/shm", NULL);
    run_twice("no /dev/shm, no memfd", deny_memfd);
}

static void deny_and_become(const struct kit_job *job, int rank) {
    deny_memfd(job, rank);
    kit_become(OTHER_USER);
}

static void C77_shared_memory_of_root(void) {
    if (chmod("/dev/shm", 0755) != 0)
        kit_skip("cannot change /dev/shm");
    run_twice("/dev/shm of root", become_other_user);
    run_twice("/dev/shm of root, no memfd", deny_and_become);
}

static void C77_processes_hidden(void) {
    if (mount("proc", "/proc", "proc", 0, "hidepid=2") != 0)
        kit_skip("no hidepid: %s", strerror(errno));
    run_twice("hidepid=2", become_other_user);
}

/* -- C78 --------------------------------------------------------------------------------------- */

static int short_copies; /* process_vm_readv moves at most this much, when not 0 */

/* In place of the C library's: what is counted short is what is copied. */
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                         const struct iovec *remote, unsigned long nremote, unsigned long flags);
ssize_t process_vm_readv(pid_t pid, const struct iovec *local, unsigned long nlocal,
                         const struct iovec *remote, unsigned long nremote, unsigned long flags) {
    if (short_copies > 0 && nlocal > 0 && nremote > 0) {
        struct iovec here = local[0], there = remote[0];
        size_t limit = (size_t)short_copies;
        limit = here.iov_len < limit ? here.iov_len : limit;
        limit = there.iov_len < limit ? there.iov_len : limit;
        here.iov_len = there.iov_len = limit;
        return syscall(SYS_process_vm_readv, pid, &here, 1UL, &there, 1UL, flags);
    }
    return syscall(SYS_process_vm_readv, pid, local, nlocal, remote, nremote, flags);
}

struct denial {
    const char *name;
    int error, only, short_bytes;
};

static void deny_copies(const struct kit_job *job, int rank) {
    const struct denial *denial = job->arg;
    short_copies = denial->short_bytes;
    if (denial->error == 0 || (denial->only >= 0 && denial->only != rank))
        return;
    kit_deny(SYS_process_vm_readv, denial->error);
    kit_deny(SYS_process_vm_writev, denial->error);
}

static rota_status many_sizes(struct kit_seat *seat) {
    rota_status status = ROTA_OK;
    for (size_t bytes = 4; status == ROTA_OK && bytes <= 64 * MIB; bytes *= 8) {
        status = kit_sum(seat, bytes / 4);
        if (status == ROTA_OK)
            status = kit_exchange(seat, bytes / 8);
    }
    return status == ROTA_OK ? kit_sum(seat, 64 * MIB / 4) : status;
}

static void C78_copies_denied(void) {
    static struct denial denials[] = {{"EPERM on both", EPERM, -1, 0},
                                      {"EPERM on rank 1", EPERM, 1, 0},
                                      {"ENOSYS", ENOSYS, -1, 0},
                                      {"short counts", 0, -1, 1000}};
    for (int i = 0; i < 4; i++) {
        struct kit_job job = {.nranks = 2,
                              .transport = "shm",
                              .prepare = deny_copies,
                              .arg = &denials[i],
                              .body = many_sizes,
                              .timeout_ms = 30000};
        kit_job_run(&job, 60000);
        expect_quiet_success(&job, denials[i].name);
    }
}

/* -- C80 --------------------------------------------------------------------------------------- */

/* A sum whose buffers end with `count` elements from 4 bytes before a boundary of 2 MiB. */
static rota_status sum_in(struct kit_seat *seat, int advice, int map_flags) {
    enum { HUGE = 2 << 20, COUNT = 300000 };
    unsigned char *maps[2];
    int32_t *data[2];
    for (int i = 0; i < 2; i++) {
        maps[i] = mmap(NULL, 4 * HUGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | map_flags, -1, 0);
        if (maps[i] == MAP_FAILED)
            return map_flags != 0 ? ROTA_OK : ROTA_ERR_MEMORY; /* none are reserved */
        if (advice != 0)
            (void)madvise(maps[i], 4 * HUGE, advice);
        uintptr_t boundary = ((uintptr_t)maps[i] + 2 * HUGE - 1) / HUGE * HUGE;
        data[i] = (int32_t *)(boundary - 4);
    }
    for (int i = 0; i < COUNT; i++)
        data[0][i] = i + seat->rank;
    rota_status status =
        rota_all_reduce(data[0], data[1], COUNT, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    for (int i = 0; status == ROTA_OK && i < COUNT; i++)
        seat->outcome->wrong += data[1][i] != 2 * i + 1;
    for (int i = 0; i < 2; i++)
        munmap(maps[i], 4 * HUGE);
    return status;
}

static rota_status huge_buffers(struct kit_seat *seat) {
    rota_status status = sum_in(seat, MADV_HUGEPAGE, 0);
    if (status == ROTA_OK)
        status = sum_in(seat, MADV_NOHUGEPAGE, 0);
    return status == ROTA_OK ? sum_in(seat, 0, MAP_HUGETLB) : status;
}

static void C80_huge_pages(void) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 2, .transport = transports[t], .body = huge_buffers};
        kit_job_run(&job, 20000);
        expect_quiet_success(&job, transports[t]);
    }
}

/* -- C101 -------------------------------------------------------------------------------------- */

static void deny_policies(const struct kit_job *job, int rank) {
    const int *error = job->arg;
    cpu_set_t mine;
    (void)rank;
    sched_getaffinity(0, sizeof(mine), &mine);
    for (size_t cpu = 0, kept = 0; cpu < CPU_SETSIZE; cpu++) /* one CPU: of one node for sure */
        if (CPU_ISSET(cpu, &mine) && kept++ > 0)
            CPU_CLR(cpu, &mine);
    sched_setaffinity(0, sizeof(mine), &mine);
    kit_deny(SYS_mbind, *error);
    kit_deny(SYS_set_mempolicy, *error);
    setenv("ROTA_LOG", "info", 1);
}

/* As in containers: where memory cannot be bound it lies anywhere, and a line at info says so. */
static void C101_memory_policies_are_refused(void) {
    static int errors[] = {EPERM, ENOSYS};
    for (int i = 0; i < 2; i++) {
        struct kit_job job = {
            .nranks = 4, .prepare = deny_policies, .arg = &errors[i], .transport = "shm"};
        kit_job_run(&job, 30000);
        kit_expect_success(&job, strerror(errors[i]));
        for (int r = 0; r < 4 && access("/sys/devices/system/node/has_memory", R_OK) == 0; r++)
            CHECK(strstr(kit_said(&job, r), "the arena is not bound to NUMA node") != NULL,
                  "rank %d, %s: %s", r, strerror(errors[i]), kit_said(&job, r));
    }
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C71_small_shared_memory", C71_small_shared_memory, 120},
        {"C71_small_shared_memory_much_data", C71_small_shared_memory_much_data, 300},
        {"C72_shared_memory_full", C72_shared_memory_full, 120},
        {"C72_filled_while_ranks_start", C72_filled_while_ranks_start, 60},
        {"C72_shared_memory_alone_is_impossible", C72_shared_memory_alone_is_impossible, 60},
        {"C73_nothing_left_after_kills", C73_nothing_left_after_kills, 200},
        {"C74_stale_and_foreign_names", C74_stale_and_foreign_names, 120},
        {"C75_two_jobs_with_the_same_pids", C75_two_jobs_with_the_same_pids, 200},
        {"C75_ranks_with_the_same_pid", C75_ranks_with_the_same_pid, 60},
        {"C76_files_deleted_by_others", C76_files_deleted_by_others, 120},
        {"C77_shared_memory_read_only", C77_shared_memory_read_only, 60},
        {"C77_shared_memory_absent", C77_shared_memory_absent, 60},
        {"C77_shared_memory_of_root", C77_shared_memory_of_root, 60},
        {"C77_processes_hidden", C77_processes_hidden, 60},
        {"C78_copies_denied", C78_copies_denied, 200},
        {"C80_huge_pages", C80_huge_pages, 60},
        {"C101_memory_policies_are_refused", C101_memory_policies_are_refused, 60},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
