/* Recordings: what the ranks of a job called last, read from the files of the flight recorder.
 *
 * Each rank of a job writes a file, rank-N.rota in the job's folder (setting ROTA_RECORD_DIR), that
 * outlives a crash of its process. Opening a folder reads all of its files, of a job that runs, has
 * failed or was killed, and merges them: where ranks called different things, who has not called,
 * who waits for whom, and who comes late. It is a snapshot; open again for a later one.
 *
 * Files are checked, never trusted: what does not parse is left out and counted. A recording is
 * used by one thread at a time. Ranks are those of the job, members those of a communicator. Times
 * are nanoseconds since 1970; between hosts they differ by what the clocks do. */
#ifndef ROTA_RECORDING_H
#define ROTA_RECORDING_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct rota_recording rota_recording;

/* Opens the folder of a job, or of a folder of jobs that with the newest recording.
 * Errors: ROTA_ERR_ARGUMENT (NULL), ROTA_ERR_SYSTEM (the folder cannot be read), ROTA_ERR_FORMAT
 * (no file in it is a recording), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_recording_open(const char *folder, rota_recording **recording);
/* Opens the folder of the job that a running process of this machine is a rank of, and finds which
 * rank that is. Errors: as above; ROTA_ERR_SYSTEM when there is no such process, ROTA_ERR_STATE
 * when it has no recording. */
ROTA_API rota_status rota_recording_open_process(int64_t pid, rota_recording **recording,
                                                 int *rank);
ROTA_API void rota_recording_close(rota_recording *recording);

/* What the recording is as a whole. */
typedef struct rota_recording_info {
    size_t size;
    const char *folder; /* as long as the recording is open */
    char job[33];       /* id of the job */
    int nranks;         /* of the job */
    int rank_count;     /* of which there is a recording */
    int damaged_count;  /* files that are no recording, or of another job */
    int comm_count;     /* communicators of the job that ranks have called on */
    int wait_count;
    int cycle_count; /* rings of ranks each of which waits for the next, for ever */
    int64_t taken_ns;
} rota_recording_info;
#define ROTA_RECORDING_INFO_INIT ROTA_SIZED(rota_recording_info)
ROTA_API rota_status rota_recording_describe(const rota_recording *recording,
                                             rota_recording_info *info);

/* State of a rank. */
typedef enum rota_recorded_life {
    ROTA_LIFE_UNKNOWN = 0, /* of another host or container */
    ROTA_LIFE_RUNNING = 1, /* its process is there */
    ROTA_LIFE_ENDED = 2,   /* it left the job, after a failure */
    ROTA_LIFE_DEAD = 3     /* its process ended without leaving the job */
} rota_recorded_life;

typedef struct rota_recorded_rank {
    size_t size;
    int rank;
    int64_t pid;
    char host[64];
    rota_recorded_life life;
    bool joined;         /* rota_init was over */
    int64_t started_ns;  /* when the recording began */
    int64_t seen_ns;     /* it lived at that time */
    int page_count;      /* communicators and directions: rota_recording_page */
    rota_status failure; /* of the first communicator that failed here, ROTA_OK if none */
    int64_t failed_ns;
    char failed_comm[ROTA_ERROR_MAX_NAME];
    char failed_text[ROTA_ERROR_MAX_MESSAGE];
} rota_recorded_rank;
#define ROTA_RECORDED_RANK_INIT ROTA_SIZED(rota_recorded_rank)
/* The index-th rank, in order. Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_recording_rank(const rota_recording *recording, int index,
                                         rota_recorded_rank *rank);

/* What a rank did on a communicator: its collectives, or its messages. */
typedef struct rota_recorded_page {
    size_t size;
    char name[ROTA_ERROR_MAX_NAME];
    uint32_t id, generation; /* name the communicator in its job */
    int member, nranks;      /* its rank in it, and the size of it */
    bool messages;
    uint64_t calls; /* recorded so far; of these the last ones are kept */
    int call_count;
} rota_recorded_page;
#define ROTA_RECORDED_PAGE_INIT ROTA_SIZED(rota_recorded_page)
ROTA_API rota_status rota_recording_page(const rota_recording *recording, int rank_index, int index,
                                         rota_recorded_page *page);

typedef struct rota_recorded_call {
    size_t size;
    uint64_t sequence, count;
    rota_kind kind;
    rota_dtype dtype;
    rota_op op; /* 255: a user's */
    rota_numerics mode;
    int root;    /* member; of messages the peer, -1: any or none */
    int tag;     /* of messages */
    bool vector; /* v-form: `count` is this rank's own */
    bool running;
    rota_status status;         /* when it has ended */
    int waiting_for;            /* member that it waited for last, -1 unknown */
    int64_t begun_ns, ended_ns; /* 0: not stamped */
    char algorithm[32];         /* or native form; "" unknown */
} rota_recorded_call;
#define ROTA_RECORDED_CALL_INIT ROTA_SIZED(rota_recorded_call)
/* The index-th call, oldest first. */
ROTA_API rota_status rota_recording_call(const rota_recording *recording, int rank_index,
                                         int page_index, int index, rota_recorded_call *call);

/* -- merged -------------------------------------------------------------------------------------
 */

typedef enum rota_recorded_state {
    ROTA_RECORDED_QUIET = 0,   /* all are through the same last call */
    ROTA_RECORDED_APART = 1,   /* nobody is in a call; some have called
                                    more */
    ROTA_RECORDED_RUNNING = 2, /* all members have begun the call */
    ROTA_RECORDED_WAITING =
        3, /* some are in a call, or have failed in it, that others have not begun */
    ROTA_RECORDED_DIVERGED = 4 /* ranks called different things under one number */
} rota_recorded_state;

/* A communicator over all ranks. */
typedef struct rota_recorded_comm {
    size_t size;
    char name[ROTA_ERROR_MAX_NAME];
    uint32_t id, generation;
    int nranks, seen; /* members, and those of which there is a recording */
    rota_recorded_state state;
    uint64_t sequence; /* the call that `state` speaks of, 0 when there was none */
    int camp_count;
} rota_recorded_comm;
#define ROTA_RECORDED_COMM_INIT ROTA_SIZED(rota_recorded_comm)
ROTA_API rota_status rota_recording_comm(const rota_recording *recording, int index,
                                         rota_recorded_comm *comm);

/* Ranks that did the same with that call. */
typedef struct rota_recorded_camp {
    size_t size;
    bool absent;             /* they have not called; `call` is the last of the first of them, or
                                has sequence 0 when it never called */
    rota_recorded_call call; /* of the first of them */
    int rank_count;
    int running, failed; /* of them: are in it, and have failed in it */
    int64_t begun_ns;    /* the earliest stamp, 0: none */
} rota_recorded_camp;
#define ROTA_RECORDED_CAMP_INIT ROTA_SIZED(rota_recorded_camp)
/* Camps of a communicator, those that have called first; `ranks` gets the job ranks, at most
 * `capacity` of them. Ranks of which there is no recording are in no camp. */
ROTA_API rota_status rota_recording_camp(const rota_recording *recording, int comm_index, int index,
                                         rota_recorded_camp *camp, int *ranks, int capacity);

/* A rank that is in a call which another has not joined, or that has failed in it. */
typedef struct rota_recorded_wait {
    size_t size;
    int waiter, awaited; /* ranks */
    int comm_index;      /* -1: messages on a communicator without collectives */
    char comm_name[ROTA_ERROR_MAX_NAME];
    rota_recorded_call call;
    int cycle; /* number of the cycle that it is part of, in order; -1: none */
} rota_recorded_wait;
#define ROTA_RECORDED_WAIT_INIT ROTA_SIZED(rota_recorded_wait)
ROTA_API rota_status rota_recording_wait(const rota_recording *recording, int index,
                                         rota_recorded_wait *wait);

/* How a rank arrives at the calls of a communicator, by those that are recorded with their time. */
typedef struct rota_recorded_skew {
    size_t size;
    int rank;
    int calls;       /* compared with others */
    int64_t late_ns; /* behind the first, on average */
    int64_t most_late_ns;
    int64_t cost_ns; /* that others have waited for it, all together */
    double share;    /* of their time */
} rota_recorded_skew;
#define ROTA_RECORDED_SKEW_INIT ROTA_SIZED(rota_recorded_skew)
/* Of the index-th of the `seen` members. */
ROTA_API rota_status rota_recording_skew(const rota_recording *recording, int comm_index, int index,
                                         rota_recorded_skew *skew);

#ifdef __cplusplus
}
#endif
#endif
