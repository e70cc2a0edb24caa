/* Recordings as they are read: all files of a job, checked and merged. */
#ifndef RECORDING_READER_H
#define RECORDING_READER_H

#include "recording/format.h"
#include <limits.h>
#include <rota/recording.h>
#include <stdbool.h>

struct recording_page {
    rota_recorded_page info;
    int first, stride;                      /* see record_page */
    uint64_t fingerprints[RECORD_CALLS];    /* of calls[] */
    rota_recorded_call calls[RECORD_CALLS]; /* by sequence */
};

struct recording_rank {
    rota_recorded_rank info;
    uint8_t job[16];
    int nranks;
    char boot[40];
    int64_t wall_offset_ns;
    int npages;
    struct recording_page *pages;
};

/* A member of a communicator; rank -1: nobody knows which it is. */
struct recording_member {
    int rank;                          /* of the job */
    const struct recording_rank *of;   /* NULL: no recording */
    const struct recording_page *page; /* NULL: it has not called */
    int camp;                          /* -1: none */
    int64_t late_ns, most_late_ns, cost_ns, window_ns;
    int compared;
};

struct recording_comm {
    rota_recorded_comm info;
    struct recording_member *members; /* info.nranks */
    rota_recorded_camp *camps;        /* at most one per member */
};

struct rota_recording {
    char folder[PATH_MAX];
    int64_t now_ns;
    int nranks, count, damaged;
    struct recording_rank *ranks; /* by rank */
    int ncomms;
    int64_t nmembers; /* of all of them */
    struct recording_comm *comms;
    int nwaits, ncycles;
    rota_recorded_wait *waits;
};

/* Reads the files of a folder. Errors: see rota_recording_open. */
rota_status recording_read(const char *folder, struct rota_recording *recording);
/* Finds the folder of a process's job. */
rota_status recording_find_process(int64_t pid, char folder[PATH_MAX]);
/* One file, for the first: ROTA_ERR_FORMAT when it is no recording. */
rota_status recording_read_rank(int at, const char *name, int64_t now_ns,
                                struct recording_rank *rank);

/* recording_merge.c, recording_waits.c: what all ranks together say. Errors: ROTA_ERR_MEMORY. */
rota_status recording_merge(struct rota_recording *recording);
rota_status recording_find_waits(struct rota_recording *recording);
void recording_measure_skew(const struct rota_recording *recording, struct recording_comm *comm);
/* The call of a page with this number, or NULL. */
const rota_recorded_call *recording_call_at(const struct recording_page *page, uint64_t sequence);
/* It runs, or has failed: for whom it waited then is as good to know. */
bool recording_is_unfinished(const rota_recorded_call *call);

void recording_free(struct rota_recording *recording);

#endif
