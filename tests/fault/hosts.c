/* Hosts: namespaces that a process of their own holds, and the cables between them. */
#include "kit.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct host {
    pid_t holder;
    int network, name, mounts; /* of /proc/PID/ns */
} hosts[KIT_HOSTS];
static int nhosts;

static int open_namespace(pid_t pid, const char *name) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, name);
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        kit_skip("%s: %s", path, strerror(errno));
    return descriptor;
}

int kit_host(const char *name) {
    int ready[2];
    char byte = 0;
    if (nhosts == KIT_HOSTS || pipe2(ready, O_CLOEXEC) != 0)
        abort();
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (unshare(CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWNS) != 0 ||
            mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
            mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) != 0 ||
            sethostname(name, strlen(name)) != 0 || write(ready[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    if (read(ready[0], &byte, 1) != 1)
        kit_skip("a second network namespace cannot be made");
    close(ready[0]);
    hosts[nhosts] = (struct host){.holder = pid,
                                  .network = open_namespace(pid, "net"),
                                  .name = open_namespace(pid, "uts"),
                                  .mounts = open_namespace(pid, "mnt")};
    kit_must_on(nhosts, "ip link set lo up");
    return nhosts++;
}

void kit_enter(int host) {
    if (host == KIT_HERE || (host == 0 && nhosts == 0))
        return;
    if (setns(hosts[host].network, CLONE_NEWNET) != 0 ||
        setns(hosts[host].name, CLONE_NEWUTS) != 0 || setns(hosts[host].mounts, CLONE_NEWNS) != 0) {
        dprintf(STDOUT_FILENO, "  cannot enter host %d: %s\n", host, strerror(errno));
        _exit(1);
    }
}

struct command {
    char text[1024];
    int status;
};

static void run_command(void *arg) {
    struct command *command = arg;
    command->status = kit_shell("%s", command->text);
}

void kit_call_on(int host, void (*run)(void *arg), void *arg) {
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (host != KIT_HERE && hosts[host].holder != 0 &&
            (setns(hosts[host].network, CLONE_NEWNET) != 0 ||
             setns(hosts[host].name, CLONE_NEWUTS) != 0 ||
             setns(hosts[host].mounts, CLONE_NEWNS) != 0))
            _exit(1);
        run(arg);
        _exit(0);
    }
    int status = -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (status != 0)
        kit_skip("work on host %d ended with wait status %#x", host, (unsigned)status);
}

static int command_on(int host, const char *format, va_list args) {
    struct command *command = kit_shared(sizeof(*command));
    command->status = -1;
    vsnprintf(command->text, sizeof(command->text), format, args);
    kit_call_on(host, run_command, command);
    return command->status;
}

int kit_on(int host, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = command_on(host, format, args);
    va_end(args);
    return status;
}

void kit_must_on(int host, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int status = command_on(host, format, args);
    va_end(args);
    if (status != 0)
        kit_skip("\"%s\" is not possible here", format);
}

void kit_cable(int a, const char *end_a, int b, const char *end_b) {
    kit_must("ip link add %s netns %d type veth peer name %s netns %d", end_a, (int)hosts[a].holder,
             end_b, (int)hosts[b].holder);
}

void kit_two_hosts(void) {
    int left = kit_host("left"), right = kit_host("right");
    kit_cable(left, "eth0", right, "eth0");
    kit_must_on(left, "ip addr add 10.7.0.1/24 dev eth0 && ip link set eth0 up");
    kit_must_on(right, "ip addr add 10.7.0.2/24 dev eth0 && ip link set eth0 up");
}

void kit_drop(int host) {
    kit_must_on(host, "nft 'add table inet cut; add chain inet cut in "
                      "{ type filter hook input priority 0; }; "
                      "add rule inet cut in iif != lo drop'");
}

void kit_pass(int host) {
    kit_must_on(host, "nft delete table inet cut");
}
