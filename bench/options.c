/* The command line of `rota bench`. nccl-tests' letters keep their meaning. */
#include "bench/options.h"
#include "bench/plot.h"
#include "bench/study.h"

#include "cli/arguments.h"
#include "launch/launch.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_BYTES ((int64_t)1 << 44)
#define MAX_ITERATIONS 1000000

static const char command[] = BENCH_COMMAND;

enum {
    KEY_RANKS = 0x100,
    KEY_TRANSPORT,
    KEY_ALGORITHM,
    KEY_MODE,
    KEY_HOSTS,
    KEY_JSON,
    KEY_HASH,
    KEY_PIECES,
    KEY_ALL,
    KEY_QUICK,
    KEY_SELECTION,
    KEY_GUIDELINES,
    KEY_OVERLAP,
    KEY_CALIBRATE,
    KEY_TOLERANCE,
    KEY_PLOT,
    KEY_OVERLAY
};

static const struct argp_option help[] = {
    {0, 0, 0, 0, "Ranks:", 1},
    {"ranks", KEY_RANKS, "N", 0, "ranks to start (default: the usable cores, at least 2)", 1},
    {"nthreads", 't', "T", 0, "T ranks as threads in each process; alone: one process", 1},
    {"hosts", KEY_HOSTS, "HOSTS", 0, "pretend hosts, as in rota run: 2+2 or 0,1,1,0", 1},
    {0, 0, 0, 0, "What is measured:", 2},
    {"all", KEY_ALL, NULL, 0, "all operations", 2},
    {"quick", KEY_QUICK, NULL, 0, "few sizes, few iterations: -b 8 -e 1M -f 16 -n 5", 2},
    {"minbytes", 'b', "BYTES", 0, "smallest size (8); sizes take K, M, G", 2},
    {"maxbytes", 'e', "BYTES", 0, "largest size (64M)", 2},
    {"stepbytes", 'i', "BYTES", 0, "from one size to the next by so much", 2},
    {"stepfactor", 'f', "F", 0, "from one size to the next by this factor (4)", 2},
    {"datatype", 'd', "TYPE|all", 0, "element type (float)", 2},
    {"op", 'o', "OP|all", 0,
     "operator: sum, prod, min, max, avg, bitwise_and, logical_or, minloc ... (sum)", 2},
    {"root", 'r', "R|all", 0, "root of the operations that have one (0)", 2},
    {"transport", KEY_TRANSPORT, "T", 0, "ROTA_TRANSPORT for this run, as shm or tcp", 2},
    {"algorithm", KEY_ALGORITHM, "A|all", 0, "use this algorithm, or each in turn", 2},
    {"mode", KEY_MODE, "M", 0, "ROTA_MODE for this run", 2},
    {0, 0, 0, 0, "How:", 3},
    {"iters", 'n', "N", 0, "timed calls per size (20)", 3},
    {"warmup_iters", 'w', "N", 0, "calls before them (1)", 3},
    {"check", 'c', "N", 0, "calls whose results are checked (1); 0: none", 3},
    {"average", 'a', "0..3", 0, "time is that of rank 0, or mean, min, max over ranks (1)", 3},
    {"timeout", 'T', "S", 0, "deadline of each call in seconds", 3},
    {0, 0, 0, 0, "Output:", 4},
    {"json", KEY_JSON, "FILE|-", 0, "one JSON object per line of the table; -: instead of it", 4},
    {"hash", KEY_HASH, NULL, 0,
     "hash the results of inputs whose sum depends on the order, per row", 4},
    {"pieces", KEY_PIECES, "N", 0, "for --hash: the same data in N calls (1)", 4},
    {"plot", KEY_PLOT, "FILE.svg", 0, "draw bus bandwidth and time over size (gnuplot)", 4},
    {"overlay", KEY_OVERLAY, "FILE.jsonl", 0, "for --plot: other JSON lines; may be repeated", 4},
    {0, 0, 0, 0, "Studies, in place of the table:", 5},
    {"selection", KEY_SELECTION, NULL, 0, "regret: the library's choice against the best algorithm",
     5},
    {"guidelines", KEY_GUIDELINES, NULL, 0,
     "whether operations are consistent: all_reduce <= reduce + broadcast, ...", 5},
    {"overlap", KEY_OVERLAP, NULL, 0, "how much goes on beside a computation", 5},
    {"calibrate", KEY_CALIBRATE, "FILE", 0,
     "measure what links cost here, and write it into a profile for ROTA_PROFILE", 5},
    {"tolerance", KEY_TOLERANCE, "PERCENT", 0,
     "what is slower by more than this is told and gives status 1 (30)", 5},
    {0}};

static void dtypes_parse(struct bench_options *options, const char *value) {
    char quoted[CLI_QUOTED];
    if (strcmp(value, "all") == 0) {
        for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
            options->dtypes[dtype] = dtype;
        options->dtype_count = ROTA_DTYPE_COUNT;
        return;
    }
    if (rota_dtype_parse(value, &options->dtypes[0]))
        cli_fail(command,
                 "-d expects all or a type as int8, half, bfloat16, float, float8_e4m3, complex64, "
                 "bool or int32_int32, not %s",
                 cli_quote(value, quoted));
    options->dtype_count = 1;
}

static void ops_parse(struct bench_options *options, const char *value) {
    char quoted[CLI_QUOTED];
    if (strcmp(value, "all") == 0) {
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++)
            options->ops[op] = op;
        options->op_count = ROTA_OP_COUNT;
        return;
    }
    if (rota_op_parse(value, &options->ops[0]))
        cli_fail(command,
                 "-o expects all, sum, prod, min, max, avg, bitwise_and, logical_or, minloc or "
                 "another operator, not %s",
                 cli_quote(value, quoted));
    options->op_count = 1;
}

static bool name_known(const char *(*name_at)(int), const char *name, size_t length) {
    for (int i = 0; name_at(i); i++)
        if (strlen(name_at(i)) == length && memcmp(name_at(i), name, length) == 0)
            return true;
    return false;
}

static void names_append(const char *(*name_at)(int), char *names, size_t size) {
    size_t used = 0;
    names[0] = '\0';
    for (int i = 0; name_at(i) && used < size; i++)
        used += (size_t)snprintf(names + used, size - used, "%s%s", i ? ", " : "", name_at(i));
}

static void transport_parse(struct bench_options *options, const char *value) {
    char quoted[CLI_QUOTED], names[256];
    const char *name = value + (*value == '^');
    for (;;) {
        size_t length = strcspn(name, ",");
        if (length == 0 || !name_known(rota_transport_name, name, length)) {
            names_append(rota_transport_name, names, sizeof(names));
            cli_fail(command, "--transport expects names out of %s, not %s", names,
                     cli_quote(value, quoted));
        }
        if (name[length] == '\0')
            break;
        name += length + 1;
    }
    options->transport = value;
}

static void algorithm_parse(struct bench_options *options, const char *value) {
    char quoted[CLI_QUOTED], names[256];
    options->all_algorithms = strcmp(value, "all") == 0;
    if (!options->all_algorithms && !name_known(rota_algorithm_name, value, strlen(value))) {
        names_append(rota_algorithm_name, names, sizeof(names));
        cli_fail(command, "--algorithm expects all or one of %s, not %s", names,
                 cli_quote(value, quoted));
    }
    options->algorithm = options->all_algorithms ? NULL : value;
}

static void hosts_parse(struct bench_options *options, const char *value) {
    char why[256];
    int nranks;
    free(options->host_of);
    options->host_of = launch_hosts_parse(value, &nranks, why, sizeof(why));
    if (!options->host_of)
        cli_fail(command, "%s", why);
    if (options->ranks && options->ranks != nranks)
        cli_fail(command, "--hosts names %d ranks, but --ranks is %d", nranks, options->ranks);
    options->ranks = nranks;
}

static void operation_add(struct bench_options *options, const char *name) {
    char quoted[CLI_QUOTED], names[512];
    const struct bench_operation *operation = bench_operation_find(name);
    if (!operation) {
        size_t used = 0;
        for (int i = 0; bench_operation_at(i); i++)
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                                     bench_operation_at(i)->name);
        cli_fail(command, "unknown operation %s: expected one of %s", cli_quote(name, quoted),
                 names);
    }
    if (options->operation_count == BENCH_MAX_OPERATIONS)
        cli_fail(command, "too many operations: at most %d", BENCH_MAX_OPERATIONS);
    options->operations[options->operation_count++] = operation;
}

static void quick_set(struct bench_options *options) {
    options->max_bytes = 1 << 20;
    options->factor = 16;
    options->iterations = 5;
}

/* The sizes of a study, unless options that follow say others. */
static void study_set(struct bench_options *options, enum bench_study study) {
    options->study = study;
    quick_set(options);
    if (study == BENCH_OVERLAP) {
        options->min_bytes = 64 << 10;
        options->max_bytes = 16 << 20;
    }
}

static error_t study_parse(int key, char *value, struct bench_options *options) {
    switch (key) {
    case KEY_SELECTION:
        study_set(options, BENCH_SELECTION);
        return 0;
    case KEY_GUIDELINES:
        study_set(options, BENCH_GUIDELINES);
        return 0;
    case KEY_OVERLAP:
        study_set(options, BENCH_OVERLAP);
        return 0;
    case KEY_CALIBRATE:
        if (value[0] == '\0' || strlen(value) > 4000)
            cli_fail(command, "--calibrate expects the file to write, of at most 4000 characters");
        study_set(options, BENCH_CALIBRATE);
        options->calibrate = value;
        return 0;
    case KEY_TOLERANCE:
        options->tolerance = cli_integer(command, "--tolerance", value, -99, 100000);
        return 0;
    case KEY_PLOT:
        if (!bench_plot_possible())
            cli_fail(command, "--plot needs gnuplot, which is not in PATH");
        options->plot = value;
        return 0;
    case KEY_OVERLAY:
        if (options->overlay_count == BENCH_MAX_OVERLAYS || access(value, R_OK))
            cli_fail(command, "--overlay: expected at most %d files that can be read",
                     BENCH_MAX_OVERLAYS);
        options->overlays[options->overlay_count++] = value;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t number_parse(int key, char *value, struct bench_options *options) {
    switch (key) {
    case KEY_RANKS: {
        int ranks = (int)cli_integer(command, "--ranks", value, 1, LAUNCH_MAX_RANKS);
        if (options->host_of && options->ranks != ranks)
            cli_fail(command, "--hosts names %d ranks, but --ranks is %d", options->ranks, ranks);
        options->ranks = ranks;
        return 0;
    }
    case 't':
        options->threads = (int)cli_integer(command, "-t", value, 1, LAUNCH_MAX_RANKS);
        return 0;
    case 'b':
        options->min_bytes = cli_bytes(command, "-b", value, 0, MAX_BYTES);
        return 0;
    case 'e':
        options->max_bytes = cli_bytes(command, "-e", value, 0, MAX_BYTES);
        return 0;
    case 'i':
        options->step_bytes = cli_bytes(command, "-i", value, 1, MAX_BYTES);
        options->factor = 0;
        return 0;
    case 'f':
        options->factor = cli_integer(command, "-f", value, 2, 1 << 20);
        return 0;
    case 'n':
        options->iterations = cli_integer(command, "-n", value, 1, MAX_ITERATIONS);
        return 0;
    case 'w':
        options->warmup = cli_integer(command, "-w", value, 0, MAX_ITERATIONS);
        return 0;
    case 'c':
        options->checks = cli_integer(command, "-c", value, 0, MAX_ITERATIONS);
        return 0;
    case 'a':
        options->average = (enum bench_average)cli_integer(command, "-a", value, 0, 3);
        return 0;
    case KEY_PIECES:
        options->pieces = cli_integer(command, "--pieces", value, 1, MAX_ITERATIONS);
        return 0;
    case 'T':
        options->timeout_ms = 1000 * cli_integer(command, "--timeout", value, 1, 100000000);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct bench_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'd':
        dtypes_parse(options, value);
        return 0;
    case 'o':
        ops_parse(options, value);
        return 0;
    case 'r':
        options->root = strcmp(value, "all") == 0
                            ? -1
                            : (int)cli_integer(command, "-r", value, 0, LAUNCH_MAX_RANKS - 1);
        return 0;
    case KEY_TRANSPORT:
        transport_parse(options, value);
        return 0;
    case KEY_ALGORITHM:
        algorithm_parse(options, value);
        return 0;
    case KEY_MODE:
        options->mode = value;
        return 0;
    case KEY_HOSTS:
        hosts_parse(options, value);
        return 0;
    case KEY_JSON:
        options->json = value;
        options->table = strcmp(value, "-") != 0;
        return 0;
    case KEY_HASH:
        options->hash = true;
        return 0;
    case KEY_QUICK:
        quick_set(options);
        return 0;
    case KEY_ALL:
        for (int i = 0; bench_operation_at(i); i++)
            operation_add(options, bench_operation_at(i)->name);
        return 0;
    case ARGP_KEY_ARG:
        operation_add(options, value);
        return 0;
    default:
        return study_parse(key, value, options) == 0 ? 0 : number_parse(key, value, options);
    }
}

static const struct argp parser = {
    .options = help,
    .parser = option_parse,
    .args_doc = "OPERATION...|--all\n--selection|--guidelines|--overlap|--calibrate FILE "
                "[OPERATION...]\n--init [--help]\n--overheads [--help]\n--cores [--help]",
    .doc = "Measures collective operations and checks every element of their results. Prints "
           "nccl-tests' table.\vOperations: all_reduce, all_gather, reduce_scatter, broadcast, "
           "reduce, all_to_all, gather, scatter, scan, exclusive_scan, send_recv, barrier, and "
           "the v-forms all_gatherv, reduce_scatterv, all_to_allv, gatherv, scatterv. Starts its "
           "own ranks when no launcher (rota "
           "run, torchrun) has. Inputs are rewritten between calls and the cost of that is not "
           "counted. Status 1 when anything was wrong."};

/* Through the environment, as the user would: the library reads its settings only there. */
static void environment_set(const char *name, const char *option, const char *text) {
    char value[64], origin[64];
    if (setenv(name, text, 1))
        cli_fail(command, "%s: out of memory", option);
    if (rota_setting_value(name, value, sizeof(value), origin, sizeof(origin)) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        cli_fail(command, "%s: %s", option, error.message);
    }
}

/* Operations and sizes that studies stand on. */
static void study_check(struct bench_options *options) {
    static const char *const all[] = {"all_reduce", "reduce_scatter", "all_gather",
                                      "all_to_all", "broadcast",      "reduce",
                                      "gather",     "scatter",        "barrier"};
    size_t count = sizeof(all) / sizeof(all[0]) - (options->study == BENCH_OVERLAP);
    bool fixed = options->study == BENCH_GUIDELINES || options->study == BENCH_CALIBRATE;
    if (options->study == BENCH_ROWS)
        return;
    if (options->algorithm || options->all_algorithms || options->hash || options->plot)
        cli_fail(command, "--algorithm, --hash and --plot are of the table, not of a study");
    if (fixed && options->operation_count > 0)
        cli_fail(command, "unexpected argument '%s': this study has operations of its own",
                 options->operations[0]->name);
    for (int i = 0; i < options->operation_count; i++)
        if (options->operations[i]->vector || options->operations[i]->shape == BENCH_SEND_RECV)
            cli_fail(command, "studies have no %s", options->operations[i]->name);
    for (size_t i = 0; options->operation_count < (int)count && i < count; i++) {
        if (i == 0 && options->operation_count > 0)
            break;
        operation_add(options, all[i]);
    }
    if (options->study == BENCH_CALIBRATE)
        options->max_bytes = 1 << 20;
}

void bench_options_parse(struct bench_options *options, int argc, char **argv) {
    *options = (struct bench_options){.min_bytes = 8,
                                      .max_bytes = 64 << 20,
                                      .factor = 4,
                                      .iterations = 20,
                                      .warmup = 1,
                                      .checks = 1,
                                      .pieces = 1,
                                      .average = BENCH_MEAN,
                                      .tolerance = STUDY_TOLERANCE_PERCENT,
                                      .dtypes = {ROTA_FLOAT32},
                                      .ops = {ROTA_SUM},
                                      .dtype_count = 1,
                                      .op_count = 1,
                                      .table = true};
    cli_arguments_parse(&parser, command, argc, argv, 0, options);
    study_check(options);
    if (options->operation_count == 0)
        cli_fail(command, "OPERATION is missing: what to measure, as all_reduce, or --all");
    for (int i = 0; i < options->operation_count && options->pieces > 1; i++)
        if (options->operations[i]->blocks)
            cli_fail(command, "--pieces: %s has blocks, which cannot be cut",
                     options->operations[i]->name);
    if (options->min_bytes > options->max_bytes)
        cli_fail(command, "-b is larger than -e: expected the smallest and the largest size");
    if (options->transport)
        environment_set("ROTA_TRANSPORT", "--transport", options->transport);
    if (options->mode)
        environment_set("ROTA_MODE", "--mode", options->mode);
    if (options->timeout_ms) {
        char text[32];
        snprintf(text, sizeof(text), "%lld", (long long)options->timeout_ms);
        environment_set("ROTA_TIMEOUT_MS", "--timeout", text);
    }
}
