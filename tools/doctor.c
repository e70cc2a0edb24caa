/* `rota doctor`: what is wrong with a job, by its recordings, or with this machine before one. */
#include "tools/doctor.h"
#include "cli/arguments.h"
#include "tools/command.h"

#include <rota/doctor.h>
#include <rota/rota.h>
#include <stdlib.h>

struct doctor_arguments {
    const char *folder;
    int64_t pid; /* 0: none */
};

static const struct argp_option options[] = {
    {"pid", 'p', "PID", 0, "ask the rank that runs as process PID of this machine", 0}, {0}};

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct doctor_arguments *arguments = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'p':
        arguments->pid = cli_integer(DOCTOR_COMMAND, "--pid", value, 1, INT32_MAX);
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->folder != NULL)
            cli_fail(DOCTOR_COMMAND, "unexpected argument %s: one folder is enough",
                     cli_quote(value, quoted));
        if (value[0] == '\0')
            cli_fail(DOCTOR_COMMAND, "DIR is empty: expected a folder of recordings");
        arguments->folder = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .args_doc = "[DIR]",
    .doc = "Without arguments: looks at this machine and environment as a rank of a job would meet "
           "them, a line for each thing: ok, note, or PROBLEM with what to do.\v"
           "With DIR, the folder of a job's recordings (or a folder of such folders, of which the "
           "newest counts): merges what all ranks recorded, of a job that runs, failed or was "
           "killed, and says where ranks called different things, who has not called, who waits "
           "for whom, and who comes late. ROTA_RECORD_DIR says where recordings are written. "
           "Status 0: nothing is wrong, 1: something is."};

static void print_finding(const rota_finding *finding, void *arg) {
    static const char *const words[] = {"ok", "note", "PROBLEM"};
    int *problems = arg;
    printf("%-8s %-12s %s\n", words[finding->level], finding->topic, finding->text);
    if (finding->advice != NULL)
        printf("%-8s %-12s -> %s\n", "", "", finding->advice);
    *problems += finding->level == ROTA_FINDING_PROBLEM;
}

int doctor_preflight(void) {
    int problems = 0;
    if (rota_preflight(print_finding, &problems) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "%s: %s\n", DOCTOR_COMMAND, error.message);
        return 1;
    }
    if (problems > 0)
        printf("\n%d problem%s\n", problems, problems == 1 ? "" : "s");
    return problems > 0;
}

int command_doctor(int argc, char **argv) {
    struct doctor_arguments arguments = {0};
    cli_arguments_parse(&parser, DOCTOR_COMMAND, argc, argv, 0, &arguments);
    if (arguments.pid != 0 && arguments.folder != NULL)
        cli_fail(DOCTOR_COMMAND, "give either DIR or --pid, not both");
    if (arguments.pid != 0)
        return doctor_process(arguments.pid);
    return arguments.folder != NULL ? doctor_folder(arguments.folder) : doctor_preflight();
}
