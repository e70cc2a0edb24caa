/* A folder of recordings for one test, and recorders in it. */
#ifndef TESTS_RECORDER_FOLDER_H
#define TESTS_RECORDER_FOLDER_H

#include "base/settings.h"
#include "recording/recorder.h"
#include "recording/recorder_file.h"
#include <criterion/criterion.h>

/* A new folder under /tmp, named by ROTA_RECORD_DIR from now on. */
const char *folder_make(void);
/* Takes it away with all that is in it. */
void folder_remove(const char *folder);
/* Names in a folder, without "." and "..": their number; -1: no folder. */
int folder_count(const char *folder);
/* A recorder of job `job` (a byte repeated), as the settings are now. */
struct recorder *folder_recorder(unsigned char job, int rank, int nranks);
/* An all_reduce of 10 floats. */
struct record_entry folder_entry(uint64_t sequence);

#endif
