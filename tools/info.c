/* `rota info`: what this build is and what it makes of this machine and environment. */
#include "cli/arguments.h"
#include "tools/command.h"

#include <rota/rota.h>
#include <stdio.h>
#include <string.h>

static const char command[] = "rota info";

static const struct argp_option options[] = {
    {"settings", 's', NULL, 0, "all settings: value, origin, default, range, help", 0}, {0}};

static error_t option_parse(int key, char *value, struct argp_state *state) {
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 's':
        *(bool *)state->input = true;
        return 0;
    case ARGP_KEY_ARG:
        cli_fail(command, "unexpected argument %s: only options are understood",
                 cli_quote(value, quoted));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .doc = "Shows version, instruction set, usable cores, transports and algorithms; with "
           "--settings the table of settings as this process sees it. Status 1 when a setting has "
           "a value that is refused."};

static void kinds_print(const char *algorithm) {
    /* Some algorithms want a power of two, some do not: 8 and 6 tell. */
    const char *separator = "";
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
        if (!rota_algorithm_does(algorithm, (rota_kind)kind, 8))
            continue;
        bool any = rota_algorithm_does(algorithm, (rota_kind)kind, 6);
        printf("%s%s%s", separator, rota_kind_name((rota_kind)kind), any ? "" : " (2^k ranks)");
        separator = ", ";
    }
    printf("\n");
}

static void finding_print(const rota_finding *finding, void *arg) {
    (void)arg;
    printf("  %-14s %s\n", finding->topic, finding->text);
}

/* Under the names of the transports what those have found that look for something. */
static void transports_print(void) {
    printf("transports:     ");
    for (int i = 0; rota_transport_name(i); i++)
        printf(" %s", rota_transport_name(i));
    printf("\n");
    for (int i = 0; rota_transport_name(i); i++)
        (void)rota_transport_survey(i, finding_print, NULL); /* settings are told of below */
}

/* Status 1 when what the setting names is no profile of this machine. */
static int profile_print(void) {
    char text[4608];
    rota_status status = rota_profile_describe(text, sizeof(text));
    if (status != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        printf("profile:         REFUSED: %s\n", error.message);
        return 1;
    }
    printf("profile:         %s\n", text);
    return 0;
}

static int build_print(void) {
    printf("rota %s\n", rota_version());
    printf("instruction set: %s\n", rota_isa_name());
    printf("machine:         %s\n", rota_machine_name());
    printf("usable cores:    %d\n", rota_usable_cores());
    int status = profile_print();
    transports_print();
    printf("\nalgorithms:\n");
    for (int i = 0; rota_algorithm_name(i); i++) {
        printf("  %-20s %s\n  %-20s ", rota_algorithm_name(i), rota_algorithm_help(i), "");
        kinds_print(rota_algorithm_name(i));
    }
    return status;
}

/* Output of this command ends up in bug reports. */
static bool is_secret(const char *name) {
    static const char ending[] = "_KEY";
    size_t length = strlen(name), cut = sizeof(ending) - 1;
    return length > cut && strcmp(name + length - cut, ending) == 0;
}

/* Status 1 when the value that environment or file give is refused. */
static int setting_print(int index) {
    rota_setting_info info = ROTA_SETTING_INFO_INIT;
    char value[1024] = "", origin[1024] = "", quoted[CLI_QUOTED];
    if (rota_setting_describe(index, &info)) {
        fprintf(stderr, "%s: setting %d cannot be described\n", command, index);
        return 1;
    }
    rota_status status =
        rota_setting_value(info.name, value, sizeof(value), origin, sizeof(origin));
    printf("\n%s\n  %s\n", info.name, info.help);
    if (status == ROTA_OK && value[0] && is_secret(info.name)) {
        printf("  value    (hidden) (%s)\n", origin);
    } else if (status == ROTA_OK) {
        printf("  value    %s (%s)\n", cli_quote(value, quoted), origin);
    } else {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        printf("  value    REFUSED: %s\n", error.message);
    }
    printf("  default  '%s'\n  range    %s\n  type     %s, since %s%s\n", info.default_value,
           info.range, info.type, info.since,
           info.must_agree ? ", must be the same on all ranks" : "");
    return status != ROTA_OK;
}

int command_info(int argc, char **argv) {
    bool settings = false;
    int status;
    cli_arguments_parse(&parser, command, argc, argv, 0, &settings);
    status = build_print();
    if (settings) {
        printf("\nsettings:\n");
        for (int i = 0; i < rota_setting_count(); i++)
            status |= setting_print(i);
    }
    return status;
}
