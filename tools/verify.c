/* `rota verify`: proves algorithms and schedule files, or says what is wrong with them. */
#include "tools/verify.h"
#include "cli/arguments.h"
#include "tools/command.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char command[] = "rota verify";

/* No schedule that a person writes or an exporter makes comes near. */
#define FILE_MAX_BYTES ((size_t)256 << 20)

struct verify_arguments {
    struct verify_request request;
    const char *subject; /* algorithm or file */
    bool all;
    int print; /* rota_format or -1 */
};

enum { KEY_ALL = 0x100, KEY_KIND, KEY_ROOT, KEY_PRINT };

static const struct argp_option options[] = {
    {"all", KEY_ALL, NULL, 0, "every algorithm", 0},
    {"ranks", 'n', "N|A..B", 0, "number of ranks, or a range of numbers", 0},
    {"kind", KEY_KIND, "KIND", 0, "only this operation, as all_reduce", 0},
    {"root", KEY_ROOT, "R|all", 0,
     "only this root (default: all up to 16 ranks; 0, 1 and the last above)", 0},
    {"print", KEY_PRINT, "text|json", 0, "print the schedules of one operation and one N too", 0},
    {0}};

static void ranks_parse(const char *value, struct verify_request *request) {
    char first[16], quoted[CLI_QUOTED];
    const char *dots = strstr(value, "..");
    int64_t low, high;
    size_t length = dots ? (size_t)(dots - value) : strlen(value);
    bool good = length < sizeof(first);
    if (good) {
        memcpy(first, value, length);
        first[length] = '\0';
        good = cli_parse_integer(first, 1, VERIFY_MAX_RANKS, &low) &&
               cli_parse_integer(dots ? dots + 2 : first, low, VERIFY_MAX_RANKS, &high);
    }
    if (!good)
        cli_fail(command, "-n expects a number of ranks or a range A..B within 1..%d, not %s",
                 VERIFY_MAX_RANKS, cli_quote(value, quoted));
    request->first = (int)low;
    request->last = (int)high;
}

static void kind_parse(const char *value, struct verify_request *request) {
    char quoted[CLI_QUOTED];
    rota_kind kind;
    if (rota_kind_parse(value, &kind) || kind == ROTA_KIND_SEND || kind == ROTA_KIND_RECV)
        cli_fail(command, "--kind expects an operation as all_reduce or broadcast, not %s",
                 cli_quote(value, quoted));
    request->kind = (int)kind;
}

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct verify_arguments *arguments = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case KEY_ALL:
        arguments->all = true;
        return 0;
    case 'n':
        ranks_parse(value, &arguments->request);
        return 0;
    case KEY_KIND:
        kind_parse(value, &arguments->request);
        return 0;
    case KEY_ROOT:
        arguments->request.root =
            strcmp(value, "all") == 0
                ? VERIFY_ROOT_ALL
                : (int)cli_integer(command, "--root", value, 0, VERIFY_MAX_RANKS - 1);
        return 0;
    case KEY_PRINT:
        if (strcmp(value, "text") && strcmp(value, "json"))
            cli_fail(command, "--print expects text or json, not %s", cli_quote(value, quoted));
        arguments->print = strcmp(value, "json") ? ROTA_FORMAT_TEXT : ROTA_FORMAT_JSON;
        return 0;
    case ARGP_KEY_ARG:
        if (arguments->subject)
            cli_fail(command, "unexpected argument %s: one algorithm or file at a time",
                     cli_quote(value, quoted));
        arguments->subject = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .args_doc = "ALGORITHM|FILE|--all",
    .doc = "Runs the schedules of all ranks symbolically and proves that every contribution "
           "arrives exactly once, without deadlock or race, or names the first fault.\v"
           "FILE is a schedule as text, JSON or MSCCL's XML; - is standard input. An algorithm is "
           "looked at for "
           "every operation it knows, out of place, in place and mixed. Status 1 when something "
           "was refuted."};

/* The whole of a regular file, or of standard input. */
static char *file_read(const char *path, size_t *length) {
    char quoted[CLI_QUOTED];
    bool standard = strcmp(path, "-") == 0;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int file = standard ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat status;
    if (file < 0 || fstat(file, &status))
        cli_fail(command, "%s is no algorithm, and as a file it cannot be read: %s",
                 cli_quote(path, quoted), strerror(errno));
    if (!standard && !S_ISREG(status.st_mode))
        cli_fail(command, "%s is no algorithm and no regular file", cli_quote(path, quoted));
    size_t capacity = 1 << 16, used = 0;
    char *bytes = malloc(capacity);
    ssize_t got = 1;
    while (bytes && got > 0 && used < FILE_MAX_BYTES) {
        if (used == capacity) {
            char *grown = realloc(bytes, capacity *= 2);
            if (!grown)
                free(bytes);
            bytes = grown;
            continue;
        }
        got = read(file, bytes + used, capacity - used);
        if (got < 0 && errno == EINTR)
            got = 1;
        else if (got > 0)
            used += (size_t)got;
    }
    close(file);
    if (!bytes || got != 0)
        cli_fail(command, "%s: %s", cli_quote(path, quoted),
                 !bytes    ? "out of memory"
                 : got < 0 ? strerror(errno)
                           : "more than 256 MiB");
    *length = used;
    return bytes;
}

static int schedule_print(const rota_schedule *schedule, int format) {
    if (rota_schedule_write(schedule, -1, (rota_format)format, stdout) == ROTA_OK &&
        fflush(stdout) == 0)
        return 0;
    fprintf(stderr, "%s: cannot print the schedule\n", command);
    return 1;
}

static int file_verify(const char *path, int print) {
    size_t length;
    char *bytes = file_read(path, &length);
    rota_schedule *schedule = NULL;
    rota_verdict verdict = ROTA_VERDICT_INIT;
    int status = 0;
    rota_status failed = rota_schedule_read(bytes, length, &schedule);
    free(bytes);
    if (failed == ROTA_OK && print >= 0)
        status = schedule_print(schedule, print);
    if (failed == ROTA_OK)
        failed = rota_schedule_verify(schedule, &verdict);
    if (failed) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "%s: %s: %s: %s\n", command, path, rota_status_name(failed), error.message);
        status = 1;
    } else if (!verdict.proven) {
        printf("%s: refuted (%s): %s\n", path, verdict.fault, verdict.text);
        status = 1;
    } else if (print < 0) {
        printf("%s: proven: %s on all ranks, %s canonical tree, %s order, depth %u, fast: %s%u "
               "roundings, %llu messages, %llu steps\n",
               path, verdict.same_on_all_ranks ? "the same" : "not the same",
               verdict.canonical_tree ? "the" : "not the",
               verdict.ascending ? "ascending" : "no ascending", verdict.max_depth,
               verdict.same_in_fast ? "" : "not the same on all ranks, ", verdict.fast_roundings,
               (unsigned long long)verdict.messages, (unsigned long long)verdict.steps);
    }
    rota_schedule_free(schedule);
    return status;
}

static int algorithm_print(const struct verify_request *request, int print) {
    if (request->kind < 0 || request->first != request->last)
        cli_fail(command, "--print needs --kind KIND and one number of ranks, as -n 4");
    rota_kind kind = (rota_kind)request->kind;
    int root = -1, status;
    if (verify_kind_has_root(kind))
        root = request->root >= 0 ? request->root : 0;
    rota_schedule *schedule = NULL;
    if (rota_schedule_build(request->algorithm, kind, request->first, root, 0, &schedule)) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "%s: %s\n", command, error.message);
        return 1;
    }
    status = schedule_print(schedule, print);
    rota_schedule_free(schedule);
    return status;
}

static bool algorithm_exists(const char *name) {
    for (int i = 0; rota_algorithm_name(i); i++)
        if (strcmp(name, rota_algorithm_name(i)) == 0)
            return true;
    return false;
}

int command_verify(int argc, char **argv) {
    struct verify_arguments arguments = {
        .request = {.command = command, .kind = -1, .root = VERIFY_ROOT_DEFAULT}, .print = -1};
    struct verify_request *request = &arguments.request;
    cli_arguments_parse(&parser, command, argc, argv, 0, &arguments);
    if (arguments.all == (arguments.subject != NULL))
        cli_fail(command, "expected one of ALGORITHM, FILE or --all");
    if (arguments.subject && !algorithm_exists(arguments.subject))
        return file_verify(arguments.subject, arguments.print);
    request->algorithm = arguments.subject;
    if (request->first == 0)
        cli_fail(command, "-n N is missing: for how many ranks, as -n 4 or -n 1..64");
    if (request->root >= request->last)
        cli_fail(command, "--root %d is outside of %d ranks", request->root, request->last);
    if (arguments.print >= 0 && arguments.all)
        cli_fail(command, "--print needs one ALGORITHM or FILE, not --all");
    if (arguments.print >= 0) {
        int status = algorithm_print(request, arguments.print);
        if (status)
            return status;
        /* The schedule alone goes to standard output, so that it can be read again. */
        struct verify_summary summary;
        verify_summary_init(&summary);
        int root = verify_kind_has_root((rota_kind)request->kind)
                       ? (request->root >= 0 ? request->root : 0)
                       : -1;
        verify_one(request->algorithm, (rota_kind)request->kind, request->first, root, 0, &summary);
        if (summary.refuted || summary.failed)
            fprintf(stderr, "%s: %s\n", command, summary.text);
        return summary.refuted || summary.failed;
    }
    return verify_all(request);
}
