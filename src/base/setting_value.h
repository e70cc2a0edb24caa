/* Inside the settings table: checking one value, and showing a refused one. */
#ifndef BASE_SETTING_VALUE_H
#define BASE_SETTING_VALUE_H

#include "base/setting_file.h"
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

#endif
