/* One rank: fork, environment, descriptors, exec.
 *
 * Nothing may survive the launcher: each rank leads a process group of its own, which is killed
 * when the rank has ended, and gets SIGKILL from the kernel when the launcher dies. Only a rank 0
 * that reads a terminal stays in the launcher's group, for a background group may not read it. */
#include "launch/ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static void environment_set(const struct launch_state *state, int rank) {
    const struct launch_job *job = state->job;
    char text[32];
    bool set = true;
    snprintf(text, sizeof(text), "%d", rank);
    set &= setenv("ROTA_RANK", text, 1) == 0;
    snprintf(text, sizeof(text), "%d", job->nranks);
    set &= setenv("ROTA_SIZE", text, 1) == 0;
    set &= setenv("ROTA_ROOT", state->root, 1) == 0;
    set &= setenv("ROTA_JOB_KEY", state->key, 1) == 0;
    set &= unsetenv("ROTA_KEY_FILE") == 0;
    if (job->host_of) {
        snprintf(text, sizeof(text), "host%d", job->host_of[rank]);
        set &= setenv("ROTA_HOST_ID", text, 1) == 0;
    }
    if (!set) {
        fprintf(stderr, "%s: rank %d: cannot set its environment\n", job->command, rank);
        _exit(1);
    }
}

static _Noreturn void child(const struct launch_state *state, int rank, pid_t parent,
                            const int output[2]) {
    const struct launch_job *job = state->job;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    if (state->ranks[rank].own_group)
        setpgid(0, 0);
    if (output[0] >= 0 &&
        (dup2(output[0], STDOUT_FILENO) < 0 || dup2(output[1], STDERR_FILENO) < 0))
        _exit(1);
    if (rank > 0) {
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (null < 0 || dup2(null, STDIN_FILENO) < 0)
            _exit(1);
        if (null != STDIN_FILENO)
            close(null);
    }
    if (job->cpus && sched_setaffinity(0, job->cpus_bytes, job->cpus[rank]))
        fprintf(stderr, "%s: rank %d is not bound: %s\n", job->command, rank, strerror(errno));
    environment_set(state, rank);
    setrlimit(RLIMIT_NOFILE, &state->old_files);
    sigaction(SIGPIPE, &state->old_pipe, NULL);
    sigaction(SIGCHLD, &state->old_child, NULL);
    sigprocmask(SIG_SETMASK, &state->old_mask, NULL);
    if (!job->argv) {
        close(state->signals);
        exit(job->entry(job->arg));
    }
    execvp(job->argv[0], job->argv);
    int error = errno;
    if (rank == 0 || job->prefix)
        fprintf(stderr, "%s: cannot start %s: %s\n", job->command, job->argv[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
}

static bool streams_open(struct launch_state *state, int rank, int output[2]) {
    int out[2], err[2];
    if (pipe2(out, O_CLOEXEC))
        return false;
    if (pipe2(err, O_CLOEXEC)) {
        close(out[0]);
        close(out[1]);
        return false;
    }
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(err[0], F_SETFL, O_NONBLOCK);
    state->streams[2 * rank].source = out[0];
    state->streams[2 * rank + 1].source = err[0];
    output[0] = out[1];
    output[1] = err[1];
    return true;
}

bool launch_spawn(struct launch_state *state, int rank) {
    int output[2] = {-1, -1};
    if (state->streams && !streams_open(state, rank, output))
        return false;
    struct launch_rank *started = &state->ranks[rank];
    started->own_group = !(rank == 0 && isatty(STDIN_FILENO) == 1);
    pid_t parent = getpid();
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        child(state, rank, parent, output);
    int error = errno;
    if (output[0] >= 0) {
        close(output[0]);
        close(output[1]);
    }
    if (pid < 0) {
        errno = error;
        return false;
    }
    /* Both sides set the group, so that it exists whoever is first. */
    if (started->own_group)
        setpgid(pid, pid);
    started->pid = pid;
    state->running++;
    return true;
}
