/* What all commands share in reading their arguments: numbers that are checked, words quoted for
 * messages, and the one way in which a wrong argument ends a command. */
#ifndef CLI_ARGUMENTS_H
#define CLI_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Exit status of a command whose arguments are wrong. */
#define CLI_EXIT_USAGE 2

/* Prints "COMMAND: message" as one line on stderr and exits with CLI_EXIT_USAGE. */
_Noreturn void cli_fail(const char *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#define CLI_QUOTED 96
/* Puts `text` in quotes into a buffer of CLI_QUOTED bytes: one line, printable, shortened. */
const char *cli_quote(const char *text, char buffer[CLI_QUOTED]);

/* Decimal numbers in [minimum, maximum]; cli_parse_bytes also takes K, M, G, T (powers of 1024, an
 * optional B or iB behind). Return false and leave *value alone for everything else. */
bool cli_parse_integer(const char *text, int64_t minimum, int64_t maximum, int64_t *value);
bool cli_parse_bytes(const char *text, int64_t minimum, int64_t maximum, int64_t *value);

/* The same for the value of an option: a bad one ends the command with a message naming both. */
int64_t cli_integer(const char *command, const char *option, const char *text, int64_t minimum,
                    int64_t maximum);
int64_t cli_bytes(const char *command, const char *option, const char *text, int64_t minimum,
                  int64_t maximum);

/* argp_parse for a command called `command` (shown in messages and help; argv[0] is replaced).
 * Errors are one line on stderr and exit with CLI_EXIT_USAGE. The parser must call
 * cli_arguments_init on ARGP_KEY_INIT and print its own errors with cli_fail. */
void cli_arguments_parse(const struct argp *argp, const char *command, int argc, char **argv,
                         unsigned flags, void *input);
void cli_arguments_init(struct argp_state *state);

#endif
