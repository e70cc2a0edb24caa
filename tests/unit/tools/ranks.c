/* Starting ranks: status, failure, time limit, output, what a rank finds in its environment. */
#include "launch/launch.h"
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Runs a shell command on all ranks with stdout in a memory file; returns the job's status. */
static int shell(int nranks, const char *script, bool prefix, int64_t timeout_ms, char *output,
                 size_t size) {
    char *argv[] = {"/bin/sh", "-c", (char *)(uintptr_t)script, NULL};
    struct launch_job job = {.command = "test",
                             .nranks = nranks,
                             .prefix = prefix,
                             .timeout_ms = timeout_ms,
                             .argv = argv};
    int file = memfd_create("output", MFD_CLOEXEC), kept = dup(STDOUT_FILENO);
    fflush(stdout);
    dup2(file, STDOUT_FILENO);
    int status = launch_ranks(&job);
    fflush(stdout);
    dup2(kept, STDOUT_FILENO);
    close(kept);
    ssize_t got = pread(file, output, size - 1, 0);
    output[got > 0 ? got : 0] = '\0';
    close(file);
    return status;
}

static int lines_with(const char *text, const char *line) {
    int count = 0;
    size_t length = strlen(line);
    for (const char *at = text; (at = strstr(at, line)); at += length)
        count += (at == text || at[-1] == '\n') && at[length] == '\n';
    return count;
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

Test(ranks, lines_are_whole_and_prefixed) {
    char output[4096];
    int status =
        shell(3, "printf 'a '; sleep 0.1; echo b; printf last", true, 0, output, sizeof output);
    cr_assert_eq(status, 0);
    cr_assert_eq(strlen(output), 3 * strlen("[0] a b\n[0] last\n"));
    for (int r = 0; r < 3; r++) {
        char line[32];
        snprintf(line, sizeof line, "[%d] a b", r);
        cr_assert_eq(lines_with(output, line), 1, "%s", output);
        snprintf(line, sizeof line, "[%d] last", r);
        cr_assert_eq(lines_with(output, line), 1, "%s", output);
    }
}

Test(ranks, environment) {
    char output[4096];
    cr_assert_eq(shell(2, "echo $ROTA_RANK/$ROTA_SIZE ${#ROTA_JOB_KEY} ${ROTA_ROOT%-*}", true, 0,
                       output, sizeof output),
                 0);
    cr_assert_eq(lines_with(output, "[0] 0/2 64 @rota"), 1, "%s", output);
    cr_assert_eq(lines_with(output, "[1] 1/2 64 @rota"), 1, "%s", output);
}

Test(ranks, first_failure_ends_the_others) {
    char output[256];
    double begin = now_s();
    cr_assert_eq(shell(3, "[ $ROTA_RANK = 1 ] && exit 7; sleep 60", true, 0, output, sizeof output),
                 7);
    cr_assert_lt(now_s() - begin, 4);
}

Test(ranks, signal_becomes_status) {
    char output[256];
    cr_assert_eq(
        shell(2, "[ $ROTA_RANK = 0 ] && kill -ABRT $$; sleep 60", true, 0, output, sizeof output),
        128 + SIGABRT);
}

Test(ranks, who_ignores_term_is_killed) {
    char output[256];
    double begin = now_s();
    cr_assert_eq(shell(2,
                       "trap '' TERM; [ $ROTA_RANK = 1 ] && { sleep 0.3; exit 3; }; "
                       "while :; do sleep 1; done",
                       true, 0, output, sizeof output),
                 3);
    double spent = now_s() - begin;
    cr_assert_gt(spent, 4.5);
    cr_assert_lt(spent, 10);
}

Test(ranks, time_limit) {
    char output[256];
    cr_assert_eq(shell(2, "sleep 60", true, 300, output, sizeof output), LAUNCH_EXIT_TIMEOUT);
}

Test(ranks, nothing_survives) {
    char output[256];
    cr_assert_eq(shell(1, "sleep 60 & echo $!", true, 0, output, sizeof output), 0);
    int pid = atoi(output + strlen("[0] "));
    cr_assert_gt(pid, 1);
    /* Its parent is gone: init reaps it in a moment. A zombie is dead too. */
    for (int tries = 0; tries < 100; tries++) {
        char path[64], state = 'Z';
        snprintf(path, sizeof path, "/proc/%d/stat", pid);
        FILE *file = fopen(path, "re");
        if (!file)
            return;
        int fields = fscanf(file, "%*d %*s %c", &state);
        fclose(file);
        if (fields != 1 || state == 'Z')
            return;
        usleep(20000);
    }
    cr_assert_fail("process %d of the rank is alive", pid);
}

Test(ranks, long_lines_stay_whole) {
    static char output[200000];
    cr_assert_eq(
        shell(2, "head -c 70000 /dev/zero | tr '\\0' x; echo", true, 0, output, sizeof output), 0);
    cr_assert_eq(strlen(output), 2 * (strlen("[0] ") + 70000 + 1));
    cr_assert_eq(strspn(output + 4, "x"), 70000);
}

static int entry(void *argument) {
    int *expected = argument;
    return atoi(getenv("ROTA_RANK")) == 1 ? *expected : 0;
}

Test(ranks, functions_in_children) {
    int status = 9;
    struct launch_job job = {
        .command = "test", .nranks = 2, .quiet = true, .entry = entry, .arg = &status};
    cr_assert_eq(launch_ranks(&job), 9);
    status = 0;
    cr_assert_eq(launch_ranks(&job), 0);
}

Test(ranks, process_is_as_before) {
    sigset_t before, after;
    char output[64];
    sigprocmask(SIG_SETMASK, NULL, &before);
    cr_assert_eq(shell(2, "true", true, 0, output, sizeof output), 0);
    sigprocmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 32; number++)
        cr_assert_eq(sigismember(&before, number), sigismember(&after, number));
}
