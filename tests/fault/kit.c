/* Running cases: namespaces, limits of time, assertions, files. */
#include "kit.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77, CODE_PRINTS = 40 };

static _Atomic int *failures; /* shared by the processes of a case */

void kit_failed(const char *file, int line, const char *format, ...) {
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    const char *name = strrchr(file, '/');
    if (atomic_fetch_add(failures, 1) < CODE_PRINTS)
        dprintf(STDOUT_FILENO, "  %s:%d: %s\n", name != NULL ? name + 1 : file, line, text);
}

int kit_failures(void) {
    return atomic_load(failures);
}

void kit_skip(const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    dprintf(STDOUT_FILENO, "  skipped: %s\n", text);
    _exit(SKIPPED);
}

/* Not clock_gettime: a case may put its own in the place of the C library's. */
int64_t kit_now_ms(void) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void kit_sleep_ms(int64_t ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    while (nanosleep(&time, &time) != 0 && errno == EINTR)
        ;
}

void *kit_shared(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        abort();
    return memory;
}

/* -- shell and files --------------------------------------------------------------------------- */

static int shell(const char *format, va_list args) {
    char *command;
    if (vasprintf(&command, format, args) < 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        dup2(STDOUT_FILENO, STDERR_FILENO);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    free(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

int kit_shell(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = shell(format, args);
    va_end(args);
    return status;
}

void kit_must(const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = shell(format, args);
    va_end(args);
    if (status != 0)
        kit_skip("\"%s\" is not possible here", format);
}

void kit_need(const char *program) {
    if (kit_shell("PATH=$PATH:/usr/sbin:/sbin command -v %s >/dev/null", program) != 0)
        kit_skip("there is no %s", program);
}

void kit_replace_file(const char *path, const char *text) {
    char copy[] = "/dev/shm/kit-XXXXXX";
    int file = mkstemp(copy);
    if (file < 0 || write(file, text, strlen(text)) != (ssize_t)strlen(text) ||
        fchmod(file, 0644) != 0 || mount(copy, path, NULL, MS_BIND, NULL) != 0)
        kit_skip("cannot replace %s: %s", path, strerror(errno));
    close(file);
    unlink(copy);
}

void kit_tmpfs(const char *path, const char *options) {
    if (mount("kit", path, "tmpfs", MS_NOSUID | MS_NODEV, options) != 0)
        kit_skip("cannot mount a tmpfs on %s: %s", path, strerror(errno));
}

int kit_entries(const char *path) {
    DIR *folder = opendir(path);
    if (folder == NULL)
        return -1;
    int count = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder))
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    closedir(folder);
    return count;
}

long long kit_used_bytes(const char *mount_point) {
    struct statvfs info;
    if (statvfs(mount_point, &info) != 0)
        return -1;
    return (long long)(info.f_blocks - info.f_bfree) * (long long)info.f_frsize;
}

int kit_free_port(void) {
    int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof(address);
    if (probe < 0 || bind(probe, (struct sockaddr *)&address, length) != 0 ||
        getsockname(probe, (struct sockaddr *)&address, &length) != 0)
        abort();
    close(probe);
    return ntohs(address.sin_port);
}

/* -- cases ------------------------------------------------------------------------------------- */

/* What every process of a case sees: its own mounts, an own /dev/shm, an own lo. */
static void furnish(void) {
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0 ||
        mount("kit", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=1777") != 0)
        kit_skip("cannot mount /proc and /dev/shm of its own: %s", strerror(errno));
    /* Recordings of jobs that fail end with the case, too. */
    if (mount("kit", "/mnt", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777") == 0)
        setenv("XDG_RUNTIME_DIR", "/mnt", 1);
    if (setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1) != 0)
        abort();
    kit_need("ip");
    kit_must("ip link set lo up");
}

/* The first process of the case's process namespace: ends with the case, and takes the others with
 * it. */
static _Noreturn void reap_until(pid_t last) {
    for (;;) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid == last)
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status) % 28);
        if (pid < 0 && errno != EINTR)
            _exit(1);
    }
}

static _Noreturn void run_inside(const struct kit_case *one) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID) != 0)
        kit_skip("namespaces cannot be made (needs root): %s", strerror(errno));
    pid_t init = fork();
    if (init != 0) {
        int status = 1;
        while (waitpid(init, &status, 0) < 0 && errno == EINTR)
            ;
        _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pid_t body = fork();
    if (body != 0)
        reap_until(body);
    furnish();
    one->run();
    CHECK(kit_entries("/dev/shm") <= 0, "%d files left in /dev/shm", kit_entries("/dev/shm"));
    _exit(kit_failures() > 0);
}

/* Exit status of a case, 1 when its time was over. */
static int run_case(const struct kit_case *one) {
    atomic_store(failures, 0);
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        run_inside(one);
    int64_t end = kit_now_ms() + (int64_t)one->limit_s * 1000;
    int status = 0;
    while (waitpid(pid, &status, WNOHANG) == 0) {
        if (kit_now_ms() > end) {
            printf("  %s took more than %d s\n", one->name, one->limit_s);
            kill(pid, SIGKILL);
            waitpid(pid, &status, 0);
            return 1;
        }
        kit_sleep_ms(5);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

static bool wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strcmp(name, argv[i]) == 0)
            return true;
    return argc < 2;
}

int kit_main(const struct kit_case *cases, int argc, char **argv) {
    int counts[3] = {0}; /* passed, failed, skipped */
    static const char *const words[] = {"ok     ", "FAILED ", "skipped"};
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (; cases->name != NULL; cases++)
            puts(cases->name);
        return 0;
    }
    failures = kit_shared(sizeof(*failures));
    for (; cases->name != NULL; cases++) {
        if (!wanted(cases->name, argc, argv))
            continue;
        int64_t began = kit_now_ms();
        int status = run_case(cases);
        int end = status == 0 ? 0 : status == SKIPPED ? 2 : 1;
        counts[end]++;
        printf("%s %s (%lld ms)\n", words[end], cases->name, (long long)(kit_now_ms() - began));
        fflush(stdout);
    }
    printf("%d passed, %d failed, %d skipped\n", counts[0], counts[1], counts[2]);
    if (counts[1] > 0 || counts[0] + counts[2] == 0)
        return 1;
    return counts[0] > 0 ? 0 : SKIPPED;
}
