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
    SETTING_PORTS,   /* FIRST-LAST, 1 to 65535 */
    SETTING_STRING,  /* printable ASCII */
    SETTING_SECRET,  /* as STRING, 16 characters or more, never shown */
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
    const char *range; /* what is accepted, in words */
};

struct settings;

const struct setting *settings_table(void); /* SETTING_COUNT entries */
/* "integer", "bytes", "choice", "list", "ports", "string", "secret" or "path". */
const char *settings_type_name(enum setting_type type);
/* Position of "ROTA_..." in the table, -1 when there is no such setting. */
int settings_find(const char *name);

/* Reads all settings and applies ROTA_LOG. An empty value is the default. A ROTA_ variable that is
 * no setting costs one warning per process (names that begin with ROTA_TEST_ are left to tests). On
 * a bad value: ROTA_ERR_SETTING, with a message that names variable or
 * file:line, the value (cut to 60 characters, unprintable bytes escaped) and what is accepted. */
rota_status settings_load(struct settings **settings);
void settings_free(struct settings *settings);

/* Of INTEGER and BYTES the number, of CHOICE the position of the word in `choices`, else 0. */
int64_t settings_integer(const struct settings *settings, enum setting_id id);
/* Text as given, or the default; never NULL. For CHOICE the word. */
const char *settings_text(const struct settings *settings, enum setting_id id);
/* As settings_text, for showing: of a secret only whether it is set ("" or "(hidden)"). */
const char *settings_shown(const struct settings *settings, enum setting_id id);
/* "default", "environment" or "PATH:LINE". */
const char *settings_origin(const struct settings *settings, enum setting_id id);
/* Whether a word of a LIST, without its ^, matches the name; * and ? stand for any characters. */
bool settings_list_has(const struct settings *settings, enum setting_id id, const char *name);
bool settings_is_default(const struct settings *settings, enum setting_id id);
/* Of a setting that names a file: ranks compare a hash of what it holds, and not its path. Before
 * the next two. */
void settings_agree_on(struct settings *settings, enum setting_id id, uint64_t hash);
/* Hash of all values on which ranks must agree; equal hashes on all ranks of a job are required. */
uint64_t settings_agreement(const struct settings *settings);
/* Name=value lines of those settings, for naming the one that differs. Only whole
 * lines, at most `size` bytes with the final NUL; returns the length without it. */
size_t settings_agreement_text(const struct settings *settings, char *text, size_t size);

#endif
