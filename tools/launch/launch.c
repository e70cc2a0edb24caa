/* The life of a job: start all ranks, pass signals and output on, end all when one fails.
 *
 * One poll loop over a signalfd and the ranks' pipes. A rank that has ended is looked at with
 * WNOWAIT first: while it is a zombie its number names its process group safely, so what it left
 * running is killed before it is reaped. */
#include "launch/launch.h"
#include "launch/ranks.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From SIGTERM to SIGKILL. */
#define END_GRACE_MS 5000
/* How long output is awaited from processes that hold a pipe after all ranks have ended. */
#define DRAIN_MS 200

int64_t launch_now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void rank_signal(const struct launch_rank *rank, int number) {
    if (rank->pid > 0)
        kill(rank->own_group ? -rank->pid : rank->pid, number);
}

void launch_end(struct launch_state *state) {
    if (state->kill_ms)
        return;
    state->kill_ms = launch_now_ms() + END_GRACE_MS;
    for (int r = 0; r < state->job->nranks; r++) {
        rank_signal(&state->ranks[r], SIGTERM);
        rank_signal(&state->ranks[r], SIGCONT);
    }
}

static void rank_ended(struct launch_state *state, int rank, const siginfo_t *how) {
    struct launch_rank *ended = &state->ranks[rank];
    pid_t pid = ended->pid;
    bool by_signal = how->si_code != CLD_EXITED;
    if (ended->own_group)
        kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
    ended->pid = 0;
    state->running--;
    if (how->si_status == 0 || state->failed)
        return;
    bool go_on = by_signal && state->job->keep_going && ++state->lost < state->job->nranks;
    state->failed = !go_on;
    if (!go_on)
        state->result = by_signal ? 128 + how->si_status : how->si_status;
    const char *others = state->running == 0 ? ""
                         : go_on             ? "; the others go on"
                                             : "; ending the others";
    if (by_signal)
        fprintf(stderr, "%s: rank %d (pid %d) was ended by signal %d (%s)%s\n", state->job->command,
                rank, (int)pid, how->si_status, strsignal(how->si_status), others);
    else if (!state->job->quiet)
        fprintf(stderr, "%s: rank %d (pid %d) failed with status %d%s\n", state->job->command, rank,
                (int)pid, how->si_status, others);
    if (!go_on)
        launch_end(state);
}

static void ranks_reap(struct launch_state *state) {
    for (int r = 0; r < state->job->nranks; r++) {
        siginfo_t how = {0};
        pid_t pid = state->ranks[r].pid;
        if (pid > 0 && waitid(P_PID, (id_t)pid, &how, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            how.si_pid == pid)
            rank_ended(state, r, &how);
    }
}

void launch_signals_handle(struct launch_state *state) {
    struct signalfd_siginfo got;
    while (read(state->signals, &got, sizeof(got)) == (ssize_t)sizeof(got)) {
        if (got.ssi_signo == SIGCHLD)
            continue;
        for (int r = 0; r < state->job->nranks; r++) {
            /* A key on the terminal has reached a rank of our own group already. */
            if (got.ssi_code == SI_KERNEL && !state->ranks[r].own_group)
                continue;
            rank_signal(&state->ranks[r], (int)got.ssi_signo);
        }
    }
    ranks_reap(state);
}

static void deadlines_check(struct launch_state *state, int64_t now) {
    if (state->limit_ms && now >= state->limit_ms && !state->kill_ms) {
        if (!state->failed) {
            state->failed = true;
            state->result = LAUNCH_EXIT_TIMEOUT;
            fprintf(stderr, "%s: not done after %g s; ending all ranks\n", state->job->command,
                    (double)state->job->timeout_ms / 1000);
        }
        launch_end(state);
    }
    if (state->kill_ms && now >= state->kill_ms)
        for (int r = 0; r < state->job->nranks; r++)
            rank_signal(&state->ranks[r], SIGKILL);
}

static int poll_timeout(const struct launch_state *state, int64_t now) {
    if (state->running == 0)
        return DRAIN_MS;
    int64_t next = state->kill_ms ? state->kill_ms : state->limit_ms;
    if (next == 0)
        return -1;
    /* After the kill the kernel may need a moment; look again rather than spin. */
    return next <= now ? 100 : next - now > 60000 ? 60000 : (int)(next - now);
}

/* One round of the loop. False when all has been said. */
static bool job_step(struct launch_state *state, struct pollfd *polled) {
    int nstreams = state->streams ? 2 * state->job->nranks : 0, open = 0;
    polled[0] = (struct pollfd){.fd = state->signals, .events = POLLIN};
    for (int s = 0; s < nstreams; s++) {
        polled[s + 1] = (struct pollfd){.fd = state->streams[s].source, .events = POLLIN};
        open += state->streams[s].source >= 0;
    }
    if (state->running == 0 && open == 0)
        return false;
    int ready = poll(polled, (nfds_t)nstreams + 1, poll_timeout(state, launch_now_ms()));
    if (ready < 0 && errno != EINTR)
        return false;
    if (ready == 0 && state->running == 0)
        return false;
    for (int s = 0; s < nstreams && ready > 0; s++)
        if (polled[s + 1].revents && state->streams[s].source >= 0)
            launch_stream_read(state, &state->streams[s]);
    if (ready > 0 && polled[0].revents)
        launch_signals_handle(state);
    deadlines_check(state, launch_now_ms());
    return true;
}

static bool random_hex(char *text, size_t size) {
    unsigned char bytes[32];
    size_t count = (size - 1) / 2;
    if (count > sizeof(bytes) || getrandom(bytes, count, 0) != (ssize_t)count)
        return false;
    for (size_t i = 0; i < count; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Signals through a descriptor, SIGPIPE as an error of write, and descriptors for all pipes. */
static bool process_prepare(struct launch_state *state) {
    sigset_t set;
    sigemptyset(&set);
    static const int taken[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD};
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        sigaddset(&set, taken[i]);
    sigprocmask(SIG_BLOCK, &set, &state->old_mask);
    struct sigaction ignore = {.sa_handler = SIG_IGN}, standard = {.sa_handler = SIG_DFL};
    sigaction(SIGPIPE, &ignore, &state->old_pipe);
    sigaction(SIGCHLD, &standard, &state->old_child);
    getrlimit(RLIMIT_NOFILE, &state->old_files);
    struct rlimit files = state->old_files;
    rlim_t needed = (rlim_t)state->job->nranks * 2 + 64;
    if (state->streams && files.rlim_cur < needed) {
        files.rlim_cur = needed < files.rlim_max ? needed : files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    state->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    char name[33];
    if (state->signals < 0 || !random_hex(name, sizeof(name)) ||
        !random_hex(state->key, sizeof(state->key)))
        return false;
    /* A local socket: nothing to choose a port for, and nothing that stays in a folder. */
    snprintf(state->root, sizeof(state->root), "@rota-%s", name);
    return true;
}

static void process_restore(struct launch_state *state) {
    if (state->signals >= 0)
        close(state->signals);
    setrlimit(RLIMIT_NOFILE, &state->old_files);
    sigaction(SIGPIPE, &state->old_pipe, NULL);
    sigaction(SIGCHLD, &state->old_child, NULL);
    sigprocmask(SIG_SETMASK, &state->old_mask, NULL);
}

static void job_run(struct launch_state *state, struct pollfd *polled) {
    const struct launch_job *job = state->job;
    for (int r = 0; r < job->nranks; r++) {
        if (launch_spawn(state, r))
            continue;
        fprintf(stderr, "%s: cannot start rank %d: %s\n", job->command, r, strerror(errno));
        state->failed = true;
        state->result = 1;
        launch_end(state);
        break;
    }
    if (job->timeout_ms)
        state->limit_ms = launch_now_ms() + job->timeout_ms;
    while (job_step(state, polled))
        ;
    for (int s = 0; state->streams && s < 2 * job->nranks; s++)
        launch_stream_close(state, &state->streams[s]);
}

int launch_ranks(const struct launch_job *job) {
    struct launch_state state = {.job = job, .signals = -1, .result = 0};
    size_t nstreams = 2 * (size_t)job->nranks;
    state.ranks = calloc((size_t)job->nranks, sizeof(*state.ranks));
    state.streams = job->prefix ? calloc(nstreams, sizeof(*state.streams)) : NULL;
    struct pollfd *polled = calloc(nstreams + 1, sizeof(*polled));
    if (!state.ranks || (job->prefix && !state.streams) || !polled) {
        fprintf(stderr, "%s: out of memory\n", job->command);
        state.result = 1;
        goto out;
    }
    for (size_t s = 0; state.streams && s < nstreams; s++) {
        state.streams[s].source = -1;
        state.streams[s].target = s % 2 ? STDERR_FILENO : STDOUT_FILENO;
        state.streams[s].rank = (int)(s / 2);
    }
    if (process_prepare(&state)) {
        job_run(&state, polled);
    } else {
        fprintf(stderr, "%s: cannot watch signals: %s\n", job->command, strerror(errno));
        state.result = 1;
    }
    process_restore(&state);
out:
    free(polled);
    free(state.streams);
    free(state.ranks);
    return state.result;
}
