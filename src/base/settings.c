/* The settings table and its snapshot. The file that ROTA_CONF names is read first, the
 * environment is laid over it; every value is checked, also one in the file that the environment
 * hides. */
#include "base/settings.h"
#include "base/error.h"
#include "base/log.h"
#include "base/setting_value.h"

#include <fnmatch.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

/* Ranges in words, put together by the compiler. */
#define RANGE_SETTING_INTEGER(minimum, maximum, choices) "an integer from " #minimum " to " #maximum
#define RANGE_SETTING_BYTES(minimum, maximum, choices)                                             \
    "bytes from " #minimum " to " #maximum ", also as 4K, 4M, 4G (powers of 1024)"
#define RANGE_SETTING_CHOICE(minimum, maximum, choices) "one of " choices
#define RANGE_SETTING_LIST(minimum, maximum, choices)                                              \
    "words separated by commas, ^ in front of the first to exclude them all"
#define RANGE_SETTING_PORTS(minimum, maximum, choices) "FIRST-LAST with 1 <= FIRST <= LAST <= 65535"
#define RANGE_SETTING_STRING(minimum, maximum, choices)                                            \
    "up to 1024 printable ASCII characters, no blanks at the ends"
#define RANGE_SETTING_SECRET(minimum, maximum, choices)                                            \
    "16 to 1024 printable ASCII characters, no blanks at the ends"
#define RANGE_SETTING_PATH(minimum, maximum, choices)                                              \
    "a path of up to 4095 bytes without control characters"

static const struct setting table[SETTING_COUNT] = {
#define SETTING(id, kind, default_text, lowest, highest, words, agree, from, help_text)            \
    [SETTING_##id] = {.name = "ROTA_" #id,                                                         \
                      .type = kind,                                                                \
                      .default_value = default_text,                                               \
                      .minimum = lowest,                                                           \
                      .maximum = highest,                                                          \
                      .choices = words,                                                            \
                      .must_agree = agree,                                                         \
                      .since = from,                                                               \
                      .help = help_text,                                                           \
                      .range = RANGE_##kind(lowest, highest, words)},
#include "base/settings.def"
#undef SETTING
};

struct entry {
    char *text;   /* NULL: the default */
    char *origin; /* NULL: the environment */
    int64_t number;
    char agreed[20]; /* what ranks compare in place of the text: see settings_agree_on */
};

struct settings {
    struct entry entries[SETTING_COUNT];
};

const struct setting *settings_table(void) {
    return table;
}

const char *settings_type_name(enum setting_type type) {
    static const char *const names[] = {"integer", "bytes",  "choice", "list",
                                        "ports",   "string", "secret", "path"};
    return (unsigned)type < sizeof(names) / sizeof(names[0]) ? names[type] : "unknown";
}

int settings_find(const char *name) {
    for (int i = 0; i < SETTING_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

static void entry_clear(struct entry *entry) {
    if (entry->text != NULL)
        explicit_bzero(entry->text, strlen(entry->text));
    free(entry->text);
    free(entry->origin);
    *entry = (struct entry){0};
}

/* Checks a value and puts it into the snapshot; `origin` NULL means the environment. */
static rota_status entry_set(struct settings *settings, int id, const char *text,
                             const char *origin, const char *place) {
    int64_t number;
    if (!setting_value_parse(&table[id], text, &number))
        return setting_value_refuse(&table[id], place, text);
    struct entry *entry = &settings->entries[id];
    entry_clear(entry);
    entry->number = number;
    entry->text = strdup(text);
    entry->origin = origin == NULL ? NULL : strdup(origin);
    if (entry->text == NULL || (origin != NULL && entry->origin == NULL))
        return error_raise(ROTA_ERR_MEMORY, "no memory for the settings");
    return ROTA_OK;
}

/* What is known while the file is read: in which line each setting stood. */
struct file_state {
    struct settings *settings;
    int lines[SETTING_COUNT];
};

static rota_status take_line(void *arg, const char *path, int line, const char *name,
                             const char *value) {
    struct file_state *state = arg;
    char where[SETTING_PLACE_SIZE], quoted[SETTING_QUOTE_SIZE];
    setting_file_place(path, line, where);
    int id = settings_find(name);
    if (id < 0)
        return error_raise(ROTA_ERR_SETTING, "%s: \"%s\" is no setting", where,
                           setting_value_quote(name, quoted));
    if (id == SETTING_CONF)
        return error_raise(ROTA_ERR_SETTING, "%s: ROTA_CONF is read from the environment only",
                           where);
    if (state->lines[id] != 0)
        return error_raise(ROTA_ERR_SETTING, "%s: %s was already set in line %d", where, name,
                           state->lines[id]);
    state->lines[id] = line;
    if (value[0] == '\0')
        return ROTA_OK;
    char place[SETTING_PLACE_SIZE + 64];
    snprintf(place, sizeof(place), "%s: %s", where, name);
    size_t size = strlen(path) + 16;
    char *origin = malloc(size);
    if (origin == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the settings");
    snprintf(origin, size, "%s:%d", path, line);
    rota_status status = entry_set(state->settings, id, value, origin, place);
    free(origin);
    return status;
}

static rota_status read_environment(struct settings *settings, int id) {
    const char *text = getenv(table[id].name);
    if (text == NULL || text[0] == '\0')
        return ROTA_OK;
    return entry_set(settings, id, text, NULL, table[id].name);
}

/* A misspelt name would otherwise be ignored in silence. */
static void warn_of_strangers(void) {
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const char *first = NULL;
    int count = 0;
    for (char **variable = environ; variable != NULL && *variable != NULL; variable++) {
        size_t length = strcspn(*variable, "=");
        char name[64];
        if (strncmp(*variable, "ROTA_", 5) != 0 || strncmp(*variable, "ROTA_TEST_", 10) == 0)
            continue;
        if (length < sizeof(name)) {
            memcpy(name, *variable, length);
            name[length] = '\0';
            if (settings_find(name) >= 0)
                continue;
        }
        if (count++ == 0)
            first = *variable;
    }
    if (count == 0 || atomic_flag_test_and_set_explicit(&warned, memory_order_relaxed))
        return;
    /* Only the name: the value may be meant as a secret. */
    size_t length = strcspn(first, "=");
    int shown = length > SETTING_QUOTE_CHARS ? SETTING_QUOTE_CHARS : (int)length;
    if (count == 1)
        log_write(LOG_WARN, "the variable %.*s is no setting and is ignored", shown, first);
    else
        log_write(LOG_WARN, "the variable %.*s and %d more ROTA_ variables are no settings", shown,
                  first, count - 1);
}

rota_status settings_load(struct settings **settings) {
    struct settings *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the settings");
    rota_status status = read_environment(made, SETTING_CONF);
    const char *path = made->entries[SETTING_CONF].text;
    if (status == ROTA_OK && path != NULL) {
        struct file_state state = {.settings = made};
        status = setting_file_read(path, "ROTA_CONF", take_line, &state);
    }
    for (int id = 0; id < SETTING_COUNT && status == ROTA_OK; id++)
        if (id != SETTING_CONF)
            status = read_environment(made, id);
    if (status != ROTA_OK) {
        settings_free(made);
        return status;
    }
    for (int id = 0; id < SETTING_COUNT; id++)
        if (made->entries[id].text == NULL && table[id].default_value[0] != '\0')
            setting_value_parse(&table[id], table[id].default_value, &made->entries[id].number);
    log_set_level((enum log_level)made->entries[SETTING_LOG].number);
    warn_of_strangers();
    *settings = made;
    return ROTA_OK;
}

void settings_free(struct settings *settings) {
    if (settings == NULL)
        return;
    for (int id = 0; id < SETTING_COUNT; id++)
        entry_clear(&settings->entries[id]);
    free(settings);
}

int64_t settings_integer(const struct settings *settings, enum setting_id id) {
    return settings->entries[id].number;
}

const char *settings_text(const struct settings *settings, enum setting_id id) {
    const char *text = settings->entries[id].text;
    return text != NULL ? text : table[id].default_value;
}

const char *settings_shown(const struct settings *settings, enum setting_id id) {
    const char *text = settings_text(settings, id);
    return table[id].type == SETTING_SECRET && text[0] != '\0' ? "(hidden)" : text;
}

const char *settings_origin(const struct settings *settings, enum setting_id id) {
    const struct entry *entry = &settings->entries[id];
    if (entry->text == NULL)
        return "default";
    return entry->origin != NULL ? entry->origin : "environment";
}

bool settings_list_has(const struct settings *settings, enum setting_id id, const char *name) {
    const char *rest = settings_text(settings, id);
    while (*rest != '\0') {
        char word[256];
        size_t length = strcspn(rest, ",");
        snprintf(word, sizeof(word), "%.*s", (int)length, rest);
        if (fnmatch(word[0] == '^' ? word + 1 : word, name, 0) == 0)
            return true;
        rest += length + (rest[length] == ',');
    }
    return false;
}

bool settings_is_default(const struct settings *settings, enum setting_id id) {
    return settings->entries[id].text == NULL;
}

void settings_agree_on(struct settings *settings, enum setting_id id, uint64_t hash) {
    snprintf(settings->entries[id].agreed, sizeof(settings->entries[id].agreed), "%016llx",
             (unsigned long long)hash);
}

/* The value in the one form that equal settings share: 4M and 4096K are the same. */
static const char *canonical(const struct settings *settings, enum setting_id id, char number[24]) {
    if (settings->entries[id].agreed[0] != '\0')
        return settings->entries[id].agreed;
    if (table[id].type != SETTING_INTEGER && table[id].type != SETTING_BYTES)
        return settings_text(settings, id);
    snprintf(number, 24, "%lld", (long long)settings->entries[id].number);
    return number;
}

uint64_t settings_agreement(const struct settings *settings) {
    uint64_t hash = 0;
    for (int id = 0; id < SETTING_COUNT; id++) {
        if (!table[id].must_agree)
            continue;
        char number[24];
        const char *value = canonical(settings, (enum setting_id)id, number);
        /* Each hash seeds the next, and the name goes first, so no two lists run together. */
        hash = XXH64(table[id].name, strlen(table[id].name), hash);
        hash = XXH64(value, strlen(value), hash);
    }
    return hash;
}

size_t settings_agreement_text(const struct settings *settings, char *text, size_t size) {
    size_t length = 0;
    if (size == 0)
        return 0;
    for (int id = 0; id < SETTING_COUNT; id++) {
        if (!table[id].must_agree)
            continue;
        char number[24];
        int added = snprintf(text + length, size - length, "%s=%s\n", table[id].name,
                             canonical(settings, (enum setting_id)id, number));
        if (added < 0 || (size_t)added >= size - length)
            break;
        length += (size_t)added;
    }
    text[length] = '\0';
    return length;
}
