/* The `rota` command: picks the subcommand. Under a name of nccl-tests, as all_reduce_perf, it is
 * the benchmark of that operation. */
#include "bench/bench.h"
#include "cli/arguments.h"
#include "tools/command.h"

#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*main)(int argc, char **argv);
    const char *help;
} commands[] = {
    {"run", command_run, "start the ranks of a program on this machine"},
    {"bench", bench_main, "measure and check collective operations"},
    {"verify", command_verify, "prove algorithms and schedule files"},
    {"topo", command_topo, "show the machine or a topology file, its rings and trees"},
    {"explain", command_explain, "tell what would run an operation, at what price, and why"},
    {"doctor", command_doctor, "look for what is wrong: here, or with a job by its recordings"},
    {"info", command_info, "show version, machine, transports, algorithms and settings"},
};

#define COMMAND_COUNT (sizeof(commands) / sizeof(commands[0]))

static void usage_print(FILE *out) {
    fputs("Usage: rota COMMAND [OPTION...]\n"
          "Collective communication primitives.\n\n",
          out);
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-8s %s\n", commands[i].name, commands[i].help);
    fputs("\n`rota COMMAND --help` tells more, as does rota --version about this build.\n", out);
}

static int command_find(const char *name) {
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(name, commands[i].name) == 0)
            return (int)i;
    return -1;
}

/* all_reduce_perf ARGS = rota bench all_reduce ARGS */
static int bench_as_perf(const char *name, size_t length, int argc, char **argv) {
    char *operation = strndup(name, length);
    char **arguments = calloc((size_t)argc + 2, sizeof(*arguments));
    if (!operation || !arguments) {
        fputs("rota: out of memory\n", stderr);
        return 1;
    }
    arguments[0] = argv[0];
    arguments[1] = operation;
    memcpy(arguments + 2, argv + 1, (size_t)argc * sizeof(*argv));
    int status = bench_main(argc + 1, arguments);
    free(arguments);
    free(operation);
    return status;
}

static int help_print(int argc, char **argv) {
    char quoted[CLI_QUOTED], option[] = "--help";
    if (argc < 3) {
        usage_print(stdout);
        return 0;
    }
    int found = command_find(argv[2]);
    if (found < 0)
        cli_fail("rota",
                 "unknown command %s: expected run, bench, verify, topo, explain, doctor or info",
                 cli_quote(argv[2], quoted));
    char *arguments[] = {argv[2], option, NULL};
    return commands[found].main(2, arguments);
}

int main(int argc, char **argv) {
    static const char suffix[] = "_perf";
    char quoted[CLI_QUOTED];
    if (argc < 1) {
        usage_print(stderr);
        return CLI_EXIT_USAGE;
    }
    const char *slash = strrchr(argv[0], '/'), *name = slash ? slash + 1 : argv[0];
    size_t length = strlen(name), cut = sizeof(suffix) - 1;
    if (length > cut && strcmp(name + length - cut, suffix) == 0)
        return bench_as_perf(name, length - cut, argc, argv);
    if (argc < 2) {
        usage_print(stderr);
        return CLI_EXIT_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return help_print(argc, argv);
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("rota %s\n", rota_version());
        return 0;
    }
    int found = command_find(argv[1]);
    if (found < 0)
        cli_fail("rota",
                 "unknown command %s: expected run, bench, verify, topo, explain, doctor or info",
                 cli_quote(argv[1], quoted));
    return commands[found].main(argc - 1, argv + 1);
}
