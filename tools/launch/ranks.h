/* The ranks of a running job and their output, shared by the files of this folder. */
#ifndef LAUNCH_RANKS_H
#define LAUNCH_RANKS_H

#include "launch/launch.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/types.h>

struct launch_stream {
    int source; /* read end of the rank's pipe, -1 when closed */
    int target; /* descriptor that its lines go to */
    int rank;
    char *line; /* what has come of a line that has not ended */
    size_t used, capacity;
};

struct launch_rank {
    pid_t pid; /* 0 before it is started and after it has ended */
    bool own_group;
};

struct launch_state {
    const struct launch_job *job;
    struct launch_rank *ranks;
    struct launch_stream *streams; /* two per rank when prefixing, else NULL */
    int running;
    int signals;      /* signalfd */
    int result;       /* exit status of the job so far */
    bool failed;      /* result is decided */
    int lost;         /* keep_going: ranks that a signal ended */
    bool output_lost; /* stdout or stderr of this process is gone */
    int64_t limit_ms; /* when the job's time is over; 0: never */
    int64_t kill_ms;  /* when the ranks that are left get SIGKILL; 0: not ending */
    /* What children get back. */
    sigset_t old_mask;
    struct sigaction old_pipe, old_child;
    struct rlimit old_files;
    char root[64], key[65];
};

int64_t launch_now_ms(void);

/* spawn.c: starts one rank. False with errno. */
bool launch_spawn(struct launch_state *state, int rank);

/* launch.c: looks at signals that have arrived; never blocks. */
void launch_signals_handle(struct launch_state *state);
void launch_end(struct launch_state *state);

/* output.c */
bool launch_stream_reserve(struct launch_stream *stream, size_t room);
/* Takes what has come; closes the stream at its end. */
void launch_stream_read(struct launch_state *state, struct launch_stream *stream);
/* Writes a last line that has no end, and closes the stream. */
void launch_stream_close(struct launch_state *state, struct launch_stream *stream);

#endif
