/* Where recordings lie: the folder of a job, a rank's file in it, and which old folders go. */
#ifndef RECORDING_RECORDER_FILE_H
#define RECORDING_RECORDER_FILE_H

#include "recording/format.h"
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Folders of failed jobs that are kept on a machine, the last ones. */
#define RECORDER_KEPT_JOBS 16

struct recorder_file {
    char root[PATH_MAX]; /* folder of all jobs: ROTA_RECORD_DIR, or .../rota-UID */
    char folder[33];     /* the job's in it: its id in hex */
    char name[24];       /* rank-N.rota */
    char path[PATH_MAX]; /* of the file, for people */
    bool first;          /* this rank made the folder */
    dev_t device;        /* of the file: what is opened again must be the same */
    ino_t inode;
};

/* Makes the file, empty, and gives its descriptor, which the caller closes; -1 when there is no
 * place to write: `why` then says what was found. `setting`: ROTA_RECORD_DIR, "" for the default.
 */
int recorder_file_create(struct recorder_file *file, const char *setting, const uint8_t job[16],
                         int rank, char *why, size_t why_size);
/* Opens it again for writing; -1 when it is not there any more. */
int recorder_file_reopen(const struct recorder_file *file);
/* Gives the file `bytes` bytes that can be written without running out of space. */
bool recorder_file_extend(int fd, off_t bytes);
/* Takes it away, and the folder when it was the last file in it. */
void recorder_file_remove(const struct recorder_file *file);
/* Takes the oldest folders of jobs away that run no more, but for `keep` of them; never the file's
 * own. What is no recording is left alone. */
void recorder_file_prune(const struct recorder_file *file, int keep);

/* The default folder of all jobs of this user, whether it exists or not. */
void recorder_file_default_root(char root[PATH_MAX]);
/* Inode of this process's PID namespace, 0 unknown. */
uint64_t recorder_pid_namespace(void);
/* Whether the process of a recording lives: 1, 0, or -1 when that cannot be told from here. */
int recorder_process_lives(const struct record_head *head);

#endif
