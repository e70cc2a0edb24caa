/* Files of NAME = VALUE lines: the configuration file, and others that settings name. */
#ifndef BASE_SETTING_FILE_H
#define BASE_SETTING_FILE_H

#include <rota/status.h>

/* One "NAME = VALUE" line. `value` is trimmed and may be "". */
typedef rota_status (*setting_line_fn)(void *arg, const char *path, int line, const char *name,
                                       const char *value);
/* Reads the file that the setting `variable` names, and hands its lines on; empty lines and those
 * that begin with '#' are skipped. Only a regular file of at most 1 MiB is read. Ends at the first
 * error. Errors: ROTA_ERR_SETTING, ROTA_ERR_MEMORY, what `take` returns. */
rota_status setting_file_read(const char *path, const char *variable, setting_line_fn take,
                              void *arg);
/* "PATH:LINE" for messages: the path's end when it is long, unprintable bytes escaped. */
#define SETTING_PLACE_SIZE 512
void setting_file_place(const char *path, int line, char place[SETTING_PLACE_SIZE]);

#endif
