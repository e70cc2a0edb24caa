/* Strict parsing of setting values. Values come from the environment and from files, so nothing is
 * assumed about their length or bytes. */
#include "base/setting_value.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* Decimal digits only, no sign, no blanks; false on overflow. Sets *end behind the last digit. */
static bool parse_digits(const char *text, const char **end, int64_t *number) {
    int64_t value = 0;
    const char *at = text;
    for (; *at >= '0' && *at <= '9'; at++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *at - '0', &value))
            return false;
    *end = at;
    *number = value;
    return at != text;
}

static bool in_range(const struct setting *setting, int64_t number) {
    return number >= setting->minimum && number <= setting->maximum;
}

static bool parse_integer(const struct setting *setting, const char *text, int64_t *number) {
    bool negative = text[0] == '-';
    const char *end;
    if (!parse_digits(text + negative, &end, number) || *end != '\0')
        return false;
    if (negative)
        *number = -*number;
    return in_range(setting, *number);
}

static bool parse_bytes(const struct setting *setting, const char *text, int64_t *number) {
    const char *end;
    if (!parse_digits(text, &end, number))
        return false;
    static const char suffixes[] = "KMGkmg";
    if (*end != '\0') {
        const char *suffix = strchr(suffixes, *end);
        if (suffix == NULL || end[1] != '\0')
            return false;
        int64_t unit = INT64_C(1024) << (10 * ((suffix - suffixes) % 3));
        if (__builtin_mul_overflow(*number, unit, number))
            return false;
    }
    return in_range(setting, *number);
}

static bool parse_choice(const struct setting *setting, const char *text, int64_t *number) {
    size_t length = strlen(text);
    int64_t position = 0;
    for (const char *word = setting->choices;; position++) {
        size_t word_length = strcspn(word, "|");
        if (word_length == length && memcmp(word, text, length) == 0) {
            *number = position;
            return true;
        }
        if (word[word_length] == '\0')
            return false;
        word += word_length + 1;
    }
}

static bool printable(const char *text) {
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f)
            return false;
    return true;
}

/* Printable ASCII without blanks at the ends. */
static bool parse_string(const char *text) {
    size_t length = strnlen(text, SETTING_TEXT_MAX + 1);
    return length <= SETTING_TEXT_MAX && text[0] != ' ' && text[length - 1] != ' ' &&
           printable(text);
}

static bool parse_list(const char *text) {
    if (strnlen(text, SETTING_TEXT_MAX + 1) > SETTING_TEXT_MAX || !printable(text))
        return false;
    const char *word = text + (text[0] == '^');
    for (;;) {
        size_t length = strcspn(word, ", ^");
        if (length == 0 || (word[length] != '\0' && word[length] != ','))
            return false;
        if (word[length] == '\0')
            return true;
        word += length + 1;
    }
}

static bool parse_ports(const char *text) {
    const char *end;
    int64_t first, last;
    if (!parse_digits(text, &end, &first) || *end != '-')
        return false;
    if (!parse_digits(end + 1, &end, &last) || *end != '\0')
        return false;
    return first >= 1 && first <= last && last <= 65535;
}

static bool parse_path(const char *text) {
    if (strnlen(text, SETTING_PATH_MAX + 1) > SETTING_PATH_MAX)
        return false;
    bool blank = true;
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            return false;
        blank = blank && *text == ' ';
    }
    return !blank;
}

bool setting_value_parse(const struct setting *setting, const char *text, int64_t *number) {
    *number = 0;
    switch (setting->type) {
    case SETTING_INTEGER:
        return parse_integer(setting, text, number);
    case SETTING_BYTES:
        return parse_bytes(setting, text, number);
    case SETTING_CHOICE:
        return parse_choice(setting, text, number);
    case SETTING_LIST:
        return parse_list(text);
    case SETTING_PORTS:
        return parse_ports(text);
    case SETTING_STRING:
        return parse_string(text);
    case SETTING_SECRET:
        return parse_string(text) && strlen(text) >= SETTING_SECRET_MIN;
    case SETTING_PATH:
        return parse_path(text);
    }
    return false;
}

const char *setting_value_quote(const char *text, char quoted[SETTING_QUOTE_SIZE]) {
    static const char hex[] = "0123456789abcdef";
    char *out = quoted;
    size_t taken = 0;
    for (; text[taken] != '\0' && taken < SETTING_QUOTE_CHARS; taken++) {
        unsigned char byte = (unsigned char)text[taken];
        if (byte >= 0x20 && byte < 0x7f && byte != '"' && byte != '\\') {
            *out++ = (char)byte;
            continue;
        }
        *out++ = '\\';
        *out++ = 'x';
        *out++ = hex[byte >> 4];
        *out++ = hex[byte & 15];
    }
    strcpy(out, text[taken] != '\0' ? "..." : "");
    return quoted;
}

rota_status setting_value_refuse(const struct setting *setting, const char *place,
                                 const char *text) {
    char quoted[SETTING_QUOTE_SIZE];
    if (setting->type == SETTING_SECRET)
        return error_raise(ROTA_ERR_SETTING, "%s: value refused (not shown); accepted: %s", place,
                           setting->range);
    return error_raise(ROTA_ERR_SETTING, "%s: value \"%s\" refused; accepted: %s", place,
                       setting_value_quote(text, quoted), setting->range);
}
