/* The parts of `rota doctor`. Exit status: 0 nothing is wrong, 1 something is or cannot be read. */
#ifndef TOOLS_DOCTOR_H
#define TOOLS_DOCTOR_H

#include <rota/recording.h>
#include <stdio.h>

#define DOCTOR_COMMAND "rota doctor"

/* A recording while it is told. */
struct doctor {
    rota_recording *recording;
    rota_recording_info info;
    rota_recorded_rank *ranks; /* info.rank_count */
    int *list;                 /* room for info.nranks ranks */
    int only;                  /* the rank of --pid, -1: all */
    bool bad;                  /* something is wrong */
};

int doctor_folder(const char *folder);
int doctor_process(int64_t pid);
int doctor_preflight(void);

#endif
