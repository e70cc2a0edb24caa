/* Checked numbers, quoting, and argp with errors of one line. */
#include "cli/arguments.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_fail(const char *command, const char *format, ...) {
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof(message), format, arguments);
    va_end(arguments);
    fflush(stdout);
    fprintf(stderr, "%s: %s\n", command, message);
    exit(CLI_EXIT_USAGE);
}

const char *cli_quote(const char *text, char buffer[CLI_QUOTED]) {
    size_t used = 0;
    buffer[used++] = '\'';
    for (const unsigned char *c = (const unsigned char *)text; *c; c++) {
        if (used + 9 > CLI_QUOTED) { /* \xNN, "...", quote, end */
            memcpy(buffer + used, "...", 3);
            used += 3;
            break;
        }
        if (*c >= 0x20 && *c < 0x7f)
            buffer[used++] = (char)*c;
        else
            used += (size_t)snprintf(buffer + used, 5, "\\x%02x", *c);
    }
    buffer[used++] = '\'';
    buffer[used] = '\0';
    return buffer;
}

bool cli_parse_integer(const char *text, int64_t minimum, int64_t maximum, int64_t *value) {
    const char *digits = *text == '-' ? text + 1 : text;
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    if (errno || *end || number < minimum || number > maximum)
        return false;
    *value = number;
    return true;
}

bool cli_parse_bytes(const char *text, int64_t minimum, int64_t maximum, int64_t *value) {
    static const char units[] = "KMGT";
    char digits[24];
    size_t length = strspn(text, "0123456789");
    if (length == 0 || length >= sizeof(digits))
        return false;
    memcpy(digits, text, length);
    digits[length] = '\0';
    int64_t number;
    if (!cli_parse_integer(digits, 0, INT64_MAX, &number))
        return false;
    const char *rest = text + length;
    int64_t factor = 1;
    if (*rest) {
        char upper = (char)(*rest >= 'a' && *rest <= 'z' ? *rest - 'a' + 'A' : *rest);
        const char *unit = strchr(units, upper);
        if (unit) {
            factor = (int64_t)1 << (10 * (unit - units + 1));
            rest++;
            if (*rest == 'i' && rest[1] == 'B')
                rest++;
        }
        if (*rest == 'B')
            rest++;
    }
    if (*rest || number > INT64_MAX / factor)
        return false;
    number *= factor;
    if (number < minimum || number > maximum)
        return false;
    *value = number;
    return true;
}

int64_t cli_integer(const char *command, const char *option, const char *text, int64_t minimum,
                    int64_t maximum) {
    char quoted[CLI_QUOTED];
    int64_t value;
    if (!cli_parse_integer(text, minimum, maximum, &value))
        cli_fail(command, "%s expects a whole number from %lld to %lld, not %s", option,
                 (long long)minimum, (long long)maximum, cli_quote(text, quoted));
    return value;
}

int64_t cli_bytes(const char *command, const char *option, const char *text, int64_t minimum,
                  int64_t maximum) {
    char quoted[CLI_QUOTED];
    int64_t value;
    if (!cli_parse_bytes(text, minimum, maximum, &value))
        cli_fail(command, "%s expects bytes from %lld to %lld, as 4096, 64K, 4M or 1G, not %s",
                 option, (long long)minimum, (long long)maximum, cli_quote(text, quoted));
    return value;
}

void cli_arguments_init(struct argp_state *state) {
    /* getopt has printed its line when argp would add a second one ("Try ... --help"). */
    state->err_stream = NULL;
}

void cli_arguments_parse(const struct argp *argp, const char *command, int argc, char **argv,
                         unsigned flags, void *input) {
    char name[64];
    snprintf(name, sizeof(name), "%s", command);
    char *first = argv[0];
    argv[0] = name;
    argp_err_exit_status = CLI_EXIT_USAGE;
    error_t failed = argp_parse(argp, argc, argv, flags, NULL, input);
    argv[0] = first;
    if (failed)
        exit(CLI_EXIT_USAGE);
}
