/* Numbers and words of the command line. */
#include "cli/arguments.h"
#include <criterion/criterion.h>
#include <string.h>

Test(arguments, integers) {
    int64_t value = -1;
    cr_assert(cli_parse_integer("0", 0, 10, &value));
    cr_assert_eq(value, 0);
    cr_assert(cli_parse_integer("-7", -10, 10, &value));
    cr_assert_eq(value, -7);
    cr_assert(cli_parse_integer("9223372036854775807", 0, INT64_MAX, &value));
    cr_assert_eq(value, INT64_MAX);
}

Test(arguments, refused_integers) {
    static const char *const texts[] = {
        "",  " 1", "1 ", "+1", "0x10", "1e9", "--1",
        "-", "11", "-1", "1.", "1,2",  "abc", "99999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t value = 42;
        cr_assert_not(cli_parse_integer(texts[i], 0, 10, &value), "'%s'", texts[i]);
        cr_assert_eq(value, 42, "'%s'", texts[i]);
    }
}

Test(arguments, bytes) {
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"0", 0},
                 {"8", 8},
                 {"4K", 4096},
                 {"4k", 4096},
                 {"4M", 4 << 20},
                 {"1G", 1 << 30},
                 {"2T", 2199023255552},
                 {"64B", 64},
                 {"4KiB", 4096},
                 {"4MB", 4 << 20},
                 {"8388607T", 8388607 * ((int64_t)1 << 40)}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t value = -1;
        cr_assert(cli_parse_bytes(cases[i].text, 0, INT64_MAX, &value), "%s", cases[i].text);
        cr_assert_eq(value, cases[i].value, "%s", cases[i].text);
    }
}

Test(arguments, refused_bytes) {
    static const char *const texts[] = {
        "",     "K",   "-4K",      "4Q",  "4KK",  "4 K", "4Ki",
        "4MB ", "0x4", "8388608T", "1e9", "4.5M", "KB",  "18446744073709551616"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        int64_t value = 42;
        cr_assert_not(cli_parse_bytes(texts[i], 0, INT64_MAX, &value), "'%s'", texts[i]);
        cr_assert_eq(value, 42);
    }
}

Test(arguments, quotes_are_one_printable_line) {
    char buffer[CLI_QUOTED], endless[5000];
    cr_assert_str_eq(cli_quote("abc", buffer), "'abc'");
    cr_assert_str_eq(cli_quote("a\n\xff", buffer), "'a\\x0a\\xff'");
    memset(endless, '\n', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    const char *quoted = cli_quote(endless, buffer);
    cr_assert_lt(strlen(quoted), CLI_QUOTED);
    cr_assert_null(strchr(quoted, '\n'));
    cr_assert_not_null(strstr(quoted, "...'"));
}
