/* Inside the settings table: checking one value, and showing a refused one. */
#ifndef BASE_SETTING_VALUE_H
#define BASE_SETTING_VALUE_H

#include "base/settings.h"

/* Longest value of each kind of text, in bytes. */
#define SETTING_TEXT_MAX 1024
#define SETTING_PATH_MAX 4095
#define SETTING_SECRET_MIN 16

/* Checks `text` (not empty) against the setting; *number gets what settings_integer returns. */
bool setting_value_parse(const struct setting *setting, const char *text, int64_t *number);

#define SETTING_QUOTE_CHARS 60
#define SETTING_QUOTE_SIZE (4 * SETTING_QUOTE_CHARS + 4)
/* The first 60 bytes with unprintable ones as \xNN, and "..." where more follow. */
const char *setting_value_quote(const char *text, char quoted[SETTING_QUOTE_SIZE]);

/* Refuses a value: `place` is the name of the variable, or FILE:LINE and the name. */
rota_status setting_value_refuse(const struct setting *setting, const char *place,
                                 const char *text);

/* One "NAME = VALUE" line. `value` is trimmed and may be "". */
typedef rota_status (*setting_line_fn)(void *arg, const char *path, int line, const char *name,
                                       const char *value);
/* Reads a configuration file and hands its lines on; ends at the first error. Errors:
 * ROTA_ERR_SETTING, ROTA_ERR_MEMORY. */
rota_status setting_file_read(const char *path, setting_line_fn take, void *arg);
/* "PATH:LINE" for messages: the path's end when it is long, unprintable bytes escaped. */
#define SETTING_PLACE_SIZE 512
void setting_file_place(const char *path, int line, char place[SETTING_PLACE_SIZE]);

#endif
