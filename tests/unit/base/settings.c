/* C94: every setting against every hostile value, by environment and by file. What is expected is
 * written here per type and number, apart from the parser. */
#include "base/settings.h"
#include "base/error.h"
#include "base/log.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TYPE(type) (1u << SETTING_##type)
#define TEXTS (TYPE(LIST) | TYPE(STRING) | TYPE(SECRET) | TYPE(PATH))
#define NONE INT64_MIN

/* A value, the types whose form it has, and its number for INTEGER and for BYTES. */
struct hostile {
    const char *text;
    size_t repeat; /* of text, 0 = once */
    unsigned types;
    int64_t integer, bytes;
};

static const struct hostile values[] = {
    {"A", 128, TEXTS, NONE, NONE},
    {"A", 1024, TEXTS, NONE, NONE},
    {"A", 1025, TYPE(PATH), NONE, NONE},
    {"A", 4095, TYPE(PATH), NONE, NONE},
    {"A", 4096, 0, NONE, NONE},
    {"A", 65536, 0, NONE, NONE},
    {"A", 100000, 0, NONE, NONE},
    {"9", 65536, 0, NONE, NONE},
    {"1,", 20000, 0, NONE, NONE},
    {"\\", 300, TEXTS, NONE, NONE},
    {"-1", 0, TEXTS & ~TYPE(SECRET), -1, NONE},
    {"0", 0, TEXTS & ~TYPE(SECRET), 0, 0},
    {"-0", 0, TEXTS & ~TYPE(SECRET), 0, NONE},
    {"007", 0, TEXTS & ~TYPE(SECRET), 7, 7},
    {"1000", 0, TEXTS & ~TYPE(SECRET), 1000, 1000},
    {"9223372036854775807", 0, TEXTS, INT64_MAX, INT64_MAX},
    {"9223372036854775808", 0, TEXTS, NONE, NONE},
    {"-9223372036854775808", 0, TEXTS, NONE, NONE},
    {"18446744073709551616", 0, TEXTS, NONE, NONE},
    {"8589934592G", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"1e9", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"0x", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"0x10", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"+5", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"-", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"--5", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"4M", 0, TEXTS & ~TYPE(SECRET), NONE, 4194304},
    {"4k", 0, TEXTS & ~TYPE(SECRET), NONE, 4096},
    {"1G", 0, TEXTS & ~TYPE(SECRET), NONE, 1073741824},
    {"M", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"4MB", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"4 M", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"1.5", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"nan", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"1,2,,", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"1,2,", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"1,2", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {",", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"^", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"^^a", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"^a,b", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"a,^b", 0, TYPE(STRING) | TYPE(PATH), NONE, NONE},
    {"1-65535", 0, (TEXTS & ~TYPE(SECRET)) | TYPE(PORTS), NONE, NONE},
    {"5000-5000", 0, (TEXTS & ~TYPE(SECRET)) | TYPE(PORTS), NONE, NONE},
    {"0-5", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"6-5", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"1-65536", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"1-", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"1-2-3", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"\xff\xfe\xc3", 0, TYPE(PATH), NONE, NONE},
    {"\xc3\xa9t\xc3\xa9", 0, TYPE(PATH), NONE, NONE},
    {"a\x01\x1b[2Jb", 0, 0, NONE, NONE},
    {"%s%n%s%n%s%n%s%n%s%n", 0, TEXTS, NONE, NONE},
    {"|", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"off|fingerprint", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
    {"OFF", 0, TEXTS & ~TYPE(SECRET), NONE, NONE},
};
#define VALUE_COUNT (sizeof(values) / sizeof(values[0]))

/* Only in the environment: a file's values are trimmed. */
static const struct hostile blanks[] = {
    {" ", 0, 0, NONE, NONE},
    {"     ", 0, 0, NONE, NONE},
    {"\t", 0, 0, NONE, NONE},
    {"4MB ", 0, TYPE(PATH), NONE, NONE},
    {" 1000", 0, TYPE(PATH), NONE, NONE},
    {"1000\n", 0, 0, NONE, NONE},
};

static char *repeated(const struct hostile *value) {
    size_t times = value->repeat ? value->repeat : 1, length = strlen(value->text);
    char *text = malloc(times * length + 1);
    cr_assert_not_null(text);
    for (size_t i = 0; i < times; i++)
        memcpy(text + i * length, value->text, length);
    text[times * length] = '\0';
    return text;
}

static bool expected(const struct setting *setting, const struct hostile *value) {
    int64_t number = setting->type == SETTING_INTEGER ? value->integer : value->bytes;
    if (setting->type == SETTING_INTEGER || setting->type == SETTING_BYTES)
        return number != NONE && number >= setting->minimum && number <= setting->maximum;
    return (value->types & (1u << setting->type)) != 0;
}

/* A refusal names its place and what is accepted, and shows at most 60 characters, printable. */
static void check_refusal(const struct setting *setting, const char *place, const char *text) {
    rota_error error = ROTA_ERROR_INIT;
    cr_assert_eq(rota_last_error(&error), ROTA_OK);
    cr_assert_eq(error.status, ROTA_ERR_SETTING);
    cr_assert_not_null(strstr(error.message, place), "no %s in: %s", place, error.message);
    cr_assert_not_null(strstr(error.message, setting->name), "%s: %s", setting->name,
                       error.message);
    cr_assert_not_null(strstr(error.message, setting->range), "%s: %s", setting->name,
                       error.message);
    for (const char *at = error.message; *at != '\0'; at++)
        cr_assert((unsigned char)*at >= 0x20 && (unsigned char)*at < 0x7f);
    if (setting->type == SETTING_SECRET) {
        cr_assert(strlen(text) < 3 || strstr(error.message, text) == NULL, "secret is shown");
        return;
    }
    if (strlen(text) > 60) {
        cr_assert_not_null(strstr(error.message, "...\""), "%s", error.message);
        cr_assert_null(strstr(error.message, "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
                                             "AAAAAAAAAAA"),
                       "more than 60 characters shown");
    }
}

static void check_accepted(const struct settings *settings, int id, const char *text,
                           const struct hostile *value, const char *origin) {
    const struct setting *setting = &settings_table()[id];
    enum setting_id which = (enum setting_id)id;
    cr_assert_str_eq(settings_text(settings, which), text);
    cr_assert_str_eq(settings_origin(settings, which), origin);
    cr_assert_not(settings_is_default(settings, which));
    if (setting->type == SETTING_INTEGER)
        cr_assert_eq(settings_integer(settings, which), value->integer);
    if (setting->type == SETTING_BYTES)
        cr_assert_eq(settings_integer(settings, which), value->bytes);
}

static void by_environment(int id, const struct hostile *value) {
    const struct setting *setting = &settings_table()[id];
    char *text = repeated(value);
    setenv(setting->name, text, 1);
    struct settings *settings = NULL;
    rota_status status = settings_load(&settings);
    if (expected(setting, value)) {
        cr_assert_eq(status, ROTA_OK, "%s=%.70s: %s", setting->name, text, error_record()->message);
        check_accepted(settings, id, text, value, "environment");
    } else {
        cr_assert_eq(status, ROTA_ERR_SETTING, "%s=%.70s is accepted", setting->name, text);
        cr_assert_null(settings, "output set on failure");
        check_refusal(setting, setting->name, text);
    }
    settings_free(settings);
    unsetenv(setting->name);
    free(text);
}

Test(settings, C94_every_value_by_environment) {
    for (int id = 0; id < SETTING_COUNT; id++) {
        if (id == SETTING_CONF)
            continue;
        for (size_t i = 0; i < VALUE_COUNT; i++)
            by_environment(id, &values[i]);
        for (size_t i = 0; i < sizeof(blanks) / sizeof(blanks[0]); i++)
            by_environment(id, &blanks[i]);
    }
}

Test(settings, C94_conf_is_refused_whatever_it_holds) {
    for (size_t i = 0; i < VALUE_COUNT; i++) {
        char *text = repeated(&values[i]);
        setenv("ROTA_CONF", text, 1);
        struct settings *settings = NULL;
        cr_assert_eq(settings_load(&settings), ROTA_ERR_SETTING, "ROTA_CONF=%.70s", text);
        cr_assert_not_null(strstr(error_record()->message, "ROTA_CONF"));
        free(text);
    }
}

/* One file with one setting, named relative to a folder of its own. */
static char folder[64];

static void enter_folder(void) {
    strcpy(folder, "/tmp/rota-test-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    cr_assert_eq(chdir(folder), 0);
}

static void leave_folder(void) {
    unlink("conf");
    cr_assert_eq(rmdir(folder), 0);
}

TestSuite(settings_by_file, .init = enter_folder, .fini = leave_folder);

static void by_file(int id, const struct hostile *value) {
    const struct setting *setting = &settings_table()[id];
    char *text = repeated(value);
    FILE *file = fopen("conf", "w");
    cr_assert_not_null(file);
    fprintf(file, "# a comment\n\n  %s\t= %s \r\n", setting->name, text);
    fclose(file);
    struct settings *settings = NULL;
    rota_status status = settings_load(&settings);
    if (id == SETTING_CONF) {
        cr_assert_eq(status, ROTA_ERR_SETTING);
        cr_assert_str_eq(error_record()->message,
                         "conf:3: ROTA_CONF is read from the environment only");
    } else if (expected(setting, value)) {
        cr_assert_eq(status, ROTA_OK, "%s=%.70s: %s", setting->name, text, error_record()->message);
        check_accepted(settings, id, text, value, "conf:3");
    } else {
        cr_assert_eq(status, ROTA_ERR_SETTING, "%s=%.70s is accepted", setting->name, text);
        check_refusal(setting, "conf:3: ", text);
    }
    settings_free(settings);
    free(text);
}

Test(settings_by_file, C94_every_value) {
    setenv("ROTA_CONF", "conf", 1);
    for (int id = 0; id < SETTING_COUNT; id++)
        for (size_t i = 0; i < VALUE_COUNT; i++)
            by_file(id, &values[i]);
}

Test(settings, every_default_is_acceptable) {
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    for (int id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &settings_table()[id];
        cr_assert(settings_is_default(settings, (enum setting_id)id));
        cr_assert_str_eq(settings_origin(settings, (enum setting_id)id), "default");
        cr_assert_str_eq(settings_text(settings, (enum setting_id)id), setting->default_value);
        cr_assert(setting->range[0] && setting->help[0] && setting->since[0]);
        cr_assert_eq(settings_find(setting->name), id);
        if (setting->default_value[0] == '\0')
            continue;
        setenv(setting->name, setting->default_value, 1);
        struct settings *given = NULL;
        cr_assert_eq(settings_load(&given), ROTA_OK, "%s", error_record()->message);
        cr_assert_eq(settings_integer(given, (enum setting_id)id),
                     settings_integer(settings, (enum setting_id)id));
        cr_assert_eq(settings_agreement(given), settings_agreement(settings));
        settings_free(given);
        unsetenv(setting->name);
    }
    cr_assert_eq(settings_integer(settings, SETTING_TIMEOUT_MS), 1800000);
    cr_assert_eq(settings_integer(settings, SETTING_RANK), -1);
    settings_free(settings);
}

Test(settings, every_choice_is_accepted_by_its_position) {
    for (int id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &settings_table()[id];
        if (setting->type != SETTING_CHOICE)
            continue;
        char words[256];
        int64_t position = 0;
        snprintf(words, sizeof(words), "%s", setting->choices);
        char *rest = NULL;
        for (char *word = strtok_r(words, "|", &rest); word; word = strtok_r(NULL, "|", &rest)) {
            struct settings *settings = NULL;
            setenv(setting->name, word, 1);
            cr_assert_eq(settings_load(&settings), ROTA_OK);
            cr_assert_eq(settings_integer(settings, (enum setting_id)id), position++);
            cr_assert_str_eq(settings_text(settings, (enum setting_id)id), word);
            settings_free(settings);
        }
        unsetenv(setting->name);
    }
}

Test(settings, ranges_end_where_they_say) {
    for (int id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &settings_table()[id];
        if (setting->type != SETTING_INTEGER && setting->type != SETTING_BYTES)
            continue;
        for (int step = -1; step <= 1; step++) {
            char low[32], high[32];
            struct settings *settings = NULL;
            snprintf(low, sizeof(low), "%lld", (long long)setting->minimum + step);
            setenv(setting->name, low, 1);
            cr_assert_eq(settings_load(&settings), step < 0 ? ROTA_ERR_SETTING : ROTA_OK, "%s=%s",
                         setting->name, low);
            settings_free(settings);
            settings = NULL;
            if (setting->maximum == INT64_MAX && step > 0)
                continue;
            snprintf(high, sizeof(high), "%lld", (long long)setting->maximum + step);
            setenv(setting->name, high, 1);
            cr_assert_eq(settings_load(&settings), step > 0 ? ROTA_ERR_SETTING : ROTA_OK, "%s=%s",
                         setting->name, high);
            settings_free(settings);
        }
        unsetenv(setting->name);
    }
}

static uint64_t agreement(void) {
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK, "%s", error_record()->message);
    uint64_t hash = settings_agreement(settings);
    settings_free(settings);
    return hash;
}

Test(settings, agreement_covers_what_must_agree_and_nothing_else) {
    /* A value per type that differs from every default. */
    static const char *const other[] = {
        [SETTING_INTEGER] = "3",
        [SETTING_BYTES] = "8192",
        [SETTING_LIST] = "other",
        [SETTING_PORTS] = "700-701",
        [SETTING_STRING] = "other",
        [SETTING_PATH] = "other",
        [SETTING_SECRET] = "sixteen characters or more",
    };
    uint64_t base = agreement();
    for (int id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &settings_table()[id];
        const char *value = other[setting->type];
        char word[64];
        if (id == SETTING_CONF)
            continue;
        if (setting->type == SETTING_CHOICE) {
            size_t first = strcspn(setting->choices, "|");
            snprintf(word, sizeof(word), "%.*s", (int)first, setting->choices);
            if (strcmp(word, setting->default_value) == 0)
                continue;
            value = word;
        }
        if (setting->type == SETTING_INTEGER && setting->minimum > 3) {
            snprintf(word, sizeof(word), "%lld", (long long)setting->minimum);
            value = word;
        }
        setenv(setting->name, value, 1);
        cr_assert_eq(agreement() != base, setting->must_agree, "%s", setting->name);
        unsetenv(setting->name);
    }
    setenv("ROTA_SLICE_BYTES", "1M", 1);
    uint64_t mega = agreement();
    setenv("ROTA_SLICE_BYTES", "1024K", 1);
    cr_assert_eq(agreement(), mega);
    setenv("ROTA_SLICE_BYTES", "1048576", 1);
    cr_assert_eq(agreement(), mega);
    setenv("ROTA_SLICE_BYTES", "1048577", 1);
    cr_assert_neq(agreement(), mega);
}

Test(settings, agreement_text_has_whole_lines_only) {
    setenv("ROTA_ALGORITHM", "ring", 1);
    setenv("ROTA_SLICE_BYTES", "64K", 1);
    setenv("ROTA_JOB_KEY", "0123456789abcdef", 1);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    char text[8192], cut[8192];
    size_t length = settings_agreement_text(settings, text, sizeof(text));
    cr_assert_eq(length, strlen(text));
    cr_assert_not_null(strstr(text, "ROTA_ALGORITHM=ring\n"));
    cr_assert_not_null(strstr(text, "ROTA_SLICE_BYTES=65536\n"));
    cr_assert_null(strstr(text, "0123456789abcdef"));
    for (size_t size = 0; size <= length + 1; size++) {
        memset(cut, 0x5a, sizeof(cut));
        size_t got = settings_agreement_text(settings, cut, size);
        cr_assert_eq(cut[size], 0x5a, "written beyond the buffer");
        if (size == 0)
            continue;
        cr_assert_eq(got, strlen(cut));
        cr_assert_eq(memcmp(cut, text, got), 0);
        cr_assert(got == 0 || cut[got - 1] == '\n');
        cr_assert_eq(got == length, size == length + 1);
    }
    settings_free(settings);
}

Test(settings, secrets_are_not_shown) {
    setenv("ROTA_JOB_KEY", "0123456789abcdef", 1);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_str_eq(settings_text(settings, SETTING_JOB_KEY), "0123456789abcdef");
    cr_assert_str_eq(settings_shown(settings, SETTING_JOB_KEY), "(hidden)");
    cr_assert_str_eq(settings_shown(settings, SETTING_CHECK), "fingerprint");
    settings_free(settings);
    unsetenv("ROTA_JOB_KEY");
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_str_eq(settings_shown(settings, SETTING_JOB_KEY), "");
    settings_free(settings);
    setenv("ROTA_JOB_KEY", "shortsecret", 1);
    cr_assert_eq(settings_load(&settings), ROTA_ERR_SETTING);
    cr_assert_null(strstr(error_record()->message, "shortsecret"));
}

Test(settings, unknown_variables_cost_one_warning) {
    int ends[2];
    char text[4096];
    cr_assert_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    setenv("ROTA_TEST_SHARED", "left to tests", 1);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    settings_free(settings);
    cr_assert_lt(read(ends[0], text, sizeof(text)), 0, "a warning without a reason");

    setenv("ROTA_TIMEOUT", "value-not-shown", 1);
    for (int i = 0; i < 3; i++) {
        cr_assert_eq(settings_load(&settings), ROTA_OK);
        settings_free(settings);
    }
    ssize_t length = read(ends[0], text, sizeof(text) - 1);
    cr_assert_gt(length, 0);
    text[length] = '\0';
    cr_assert_not_null(strstr(text, "ROTA_TIMEOUT is no setting"));
    cr_assert_null(strstr(text, "value-not-shown"));
    cr_assert_eq(strchr(text, '\n') - text, length - 1, "more than one line: %s", text);
}

Test(settings, unknown_variables_of_any_form_harm_nothing) {
    char name[5000];
    memset(name, 'A', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    memcpy(name, "ROTA_", 5);
    setenv(name, "x", 1);
    setenv("ROTA_", "x", 1);
    setenv("ROTA_\x1b\xff", "x", 1);
    setenv("ROTA_LOG", "silent", 1);
    struct settings *settings = NULL;
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(log_get_level(), LOG_SILENT);
    settings_free(settings);
}
