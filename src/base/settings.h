/* The one table of settings. A snapshot is read from environment and configuration file when a job
 * begins and never changes afterwards. */
#ifndef BASE_SETTINGS_H
#define BASE_SETTINGS_H

#include <rota/status.h>
#include <stdbool.h>

/* One entry per line of settings.def, in its order: SETTING_TRANSPORT, SETTING_TIMEOUT_MS, ... */
enum setting_id {
#define SETTING(id, ...) SETTING_##id,
#include "base/settings.def"
#undef SETTING
    SETTING_COUNT
};

enum setting_type {
    SETTING_INTEGER, /* decimal, within [minimum, maximum] */
    SETTING_BYTES,   /* integer with an optional K, M or G (powers of 1024) */
    SETTING_CHOICE,  /* one of the words of `choices`, separated by '|' */
    SETTING_LIST,    /* comma-separated words, '^' in front excludes */
    SETTING_STRING,
    SETTING_PATH
};

struct setting {
    const char *name; /* "ROTA_TIMEOUT_MS" */
    enum setting_type type;
    const char *default_value;
    int64_t minimum, maximum;
    const char *choices;
    bool must_agree;
    const char *since;
    const char *help;
};

struct settings;

const struct setting *settings_table(void); /* SETTING_COUNT entries */

/* Reads all settings. On a bad value: ROTA_ERR_SETTING, with a message that names variable or
 * file:line, the value (cut to 60 characters, unprintable bytes escaped) and what is accepted. */
rota_status settings_load(struct settings **settings);
void settings_free(struct settings *settings);

int64_t settings_integer(const struct settings *settings, enum setting_id id);
/* Text as given, or the default; never NULL. For CHOICE the word. */
const char *settings_text(const struct settings *settings, enum setting_id id);
/* "default", "environment" or "PATH:LINE". */
const char *settings_origin(const struct settings *settings, enum setting_id id);
bool settings_is_default(const struct settings *settings, enum setting_id id);
/* Hash of all values on which ranks must agree; equal hashes on all ranks of a job are required. */
uint64_t settings_agreement(const struct settings *settings);
/* Name=value lines of those settings, for naming the one that differs. At most `size` bytes. */
size_t settings_agreement_text(const struct settings *settings, char *text, size_t size);

#endif
