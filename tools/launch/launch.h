/* Starting the ranks of a job on this machine: as programs (`rota run`) or as functions in forked
 * children (`rota bench` without a launcher). */
#ifndef LAUNCH_LAUNCH_H
#define LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LAUNCH_MAX_RANKS 1024

/* Exit status when the time limit of the job passed, as timeout(1). */
#define LAUNCH_EXIT_TIMEOUT 124

struct launch_job {
    const char *command; /* whose messages these are: "rota run" */
    int nranks;
    const int *host_of;      /* by rank: which pretended host it is on; NULL: all on this one */
    bool prefix;             /* "[rank] " before each line of output */
    const void *const *cpus; /* by rank: set of CPUs as sched_setaffinity takes it; NULL: as we */
    size_t cpus_bytes;       /* of each set */
    bool keep_going;         /* a rank that a signal ends does not end the others */
    bool quiet;              /* no line about a rank that failed with a status: it has said why */
    int64_t timeout_ms;      /* end the job after so long; 0: never */
    char *const *argv;       /* program to run; NULL: call entry in the child instead */
    int (*entry)(void *arg); /* returns the exit status; only without prefix */
    void *arg;
};

/* Runs the job and returns its exit status: 0 when all ranks ended with 0, else that of the first
 * rank that failed (128 + signal when a signal ended it), LAUNCH_EXIT_TIMEOUT, or 1 when ranks
 * could not be started. With keep_going ranks that a signal ended do not count, unless all ended
 * so. When one rank fails the others get SIGTERM, and SIGKILL five seconds later. SIGINT, SIGTERM,
 * SIGHUP, SIGUSR1 and SIGUSR2 are passed on to all ranks. Nothing that a rank started in its own
 * process group survives this call. To be called by a process of one thread. */
int launch_ranks(const struct launch_job *job);

/* Reads "2+2" (ranks per host, in rank order) or "0,1,1,0" (host of each rank). Returns the hosts
 * by rank, to be freed, and their number; NULL with a sentence in `why` when it is neither. */
int *launch_hosts_parse(const char *text, int *nranks, char *why, size_t why_size);

#endif
