/* `rota explain`: what could run an operation, at what price, what is chosen and why. It starts
 * ranks as `rota run` does and asks the library on them, so it tells what would happen. */
#include "cli/arguments.h"
#include "launch/launch.h"
#include "tools/command.h"

#include <jansson.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "rota explain";

#define MAX_RANKS 256
#define MAX_CANDIDATES 64
#define MAX_BYTES ((int64_t)1 << 44)

enum { KEY_RANKS = 0x100, KEY_HOSTS, KEY_TRANSPORT, KEY_MODE, KEY_DTYPE, KEY_FORMAT };

struct question {
    bool named, sized, json;
    rota_kind kind;
    int64_t bytes;
    rota_dtype dtype;
    int ranks;
    int *host_of;
    size_t count;
    rota_candidate found[MAX_CANDIDATES];
    int nfound;
};

static const struct argp_option options[] = {
    {"ranks", KEY_RANKS, "N", 0, "ranks (default: the usable cores, at least 2)", 0},
    {"hosts", KEY_HOSTS, "HOSTS", 0, "pretend hosts, as in rota run: 2+2 or 0,1,1,0", 0},
    {"transport", KEY_TRANSPORT, "T", 0, "ROTA_TRANSPORT, as shm or tcp", 0},
    {"mode", KEY_MODE, "M", 0, "ROTA_MODE: equal, reproducible or fast", 0},
    {"dtype", KEY_DTYPE, "TYPE", 0, "element type (float32)", 0},
    {"format", KEY_FORMAT, "F", 0, "text or json", 0},
    {0}};

/* The library reads its settings from the environment alone. */
static void setting_set(const char *name, const char *option, const char *value) {
    char text[64], origin[64];
    if (setenv(name, value, 1) ||
        rota_setting_value(name, text, sizeof(text), origin, sizeof(origin)) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        cli_fail(command, "%s: %s", option, error.message);
    }
}

static void hosts_parse(struct question *question, const char *value) {
    char why[256];
    int ranks;
    free(question->host_of);
    question->host_of = launch_hosts_parse(value, &ranks, why, sizeof(why));
    if (!question->host_of)
        cli_fail(command, "%s", why);
    if (question->ranks && question->ranks != ranks)
        cli_fail(command, "--hosts names %d ranks, but --ranks is %d", ranks, question->ranks);
    question->ranks = ranks;
}

static void argument_parse(struct question *question, const char *value) {
    char quoted[CLI_QUOTED];
    if (!question->named) {
        question->named = true;
        if (rota_kind_parse(value, &question->kind) || question->kind == ROTA_KIND_SEND ||
            question->kind == ROTA_KIND_RECV)
            cli_fail(command, "OPERATION: expected a collective, as all_reduce, not %s",
                     cli_quote(value, quoted));
    } else if (!question->sized) {
        question->sized = true;
        question->bytes = cli_bytes(command, "BYTES", value, 0, MAX_BYTES);
    } else {
        cli_fail(command, "unexpected argument %s", cli_quote(value, quoted));
    }
}

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct question *question = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case KEY_RANKS: {
        int ranks = (int)cli_integer(command, "--ranks", value, 2, MAX_RANKS);
        if (question->host_of && question->ranks != ranks)
            cli_fail(command, "--hosts names %d ranks, but --ranks is %d", question->ranks, ranks);
        question->ranks = ranks;
        return 0;
    }
    case KEY_HOSTS:
        hosts_parse(question, value);
        return 0;
    case KEY_TRANSPORT:
        setting_set("ROTA_TRANSPORT", "--transport", value);
        return 0;
    case KEY_MODE:
        setting_set("ROTA_MODE", "--mode", value);
        return 0;
    case KEY_DTYPE:
        if (rota_dtype_parse(value, &question->dtype))
            cli_fail(command, "--dtype expects a type, as float32 or bfloat16, not %s",
                     cli_quote(value, quoted));
        return 0;
    case KEY_FORMAT:
        question->json = strcmp(value, "json") == 0;
        if (!question->json && strcmp(value, "text") != 0)
            cli_fail(command, "--format expects text or json, not %s", cli_quote(value, quoted));
        return 0;
    case ARGP_KEY_ARG:
        argument_parse(question, value);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .args_doc = "OPERATION BYTES",
    .doc =
        "Tells what could run an operation whose larger buffer has so many bytes: each "
        "algorithm and native form with its rounds, messages, bytes and price, which one is "
        "chosen, and why.\vStarts the ranks, asks the library on them, and measures nothing. "
        "Prices are built in or those of the profile that ROTA_PROFILE names; rules (ROTA_RULES) "
        "and ROTA_ALGORITHM are followed."};

/* -- printing ----------------------------------------------------------------------------------
 */

static double sum(const double values[ROTA_LINK_COUNT]) {
    double total = 0;
    for (int link = 0; link < ROTA_LINK_COUNT; link++)
        total += values[link];
    return total;
}

static void head_print(const struct question *question, const char *mode, const char *profile) {
    const rota_candidate *any = &question->found[0];
    bool barrier = question->kind == ROTA_KIND_BARRIER;
    printf("%s", rota_kind_name(question->kind));
    if (!barrier)
        printf(" of %lld bytes (%s, count %zu)", (long long)question->bytes,
               rota_dtype_name(question->dtype), question->count);
    printf(": %d ranks on %d host%s, %.4g per core, mode %s\n", question->ranks, any->hosts,
           any->hosts > 1 ? "s" : "", any->crowding, mode);
    if (any->measured_ranks > 0)
        printf("prices measured with %d ranks: profile %s\n", any->measured_ranks, profile);
    else
        printf("prices are built in%s\n",
               strcmp(profile, "none") == 0 ? ": no profile (ROTA_PROFILE)" : "");
    printf("\n%-8s %12s %14s %12s %17s\n", "link", "us a round", "us a message", "us a MiB",
           "us a MiB reduced");
    for (int link = 0; link < ROTA_LINK_COUNT; link++)
        printf("%-8s %12.3f %14.3f %12.2f %17.2f\n", rota_link_name(link), any->latency_us[link],
               any->overhead_us[link], any->us_per_byte[link] * 1048576,
               any->reduce_us_per_byte[link] * 1048576);
}

static int by_price(const void *left, const void *right) {
    const rota_candidate *a = left, *b = right;
    if (a->chosen != b->chosen)
        return a->chosen ? -1 : 1;
    if (a->able != b->able)
        return a->able ? -1 : 1;
    return (a->price_us > b->price_us) - (a->price_us < b->price_us);
}

static void text_print(const struct question *question) {
    const rota_candidate *found = question->found;
    printf("\n%12s %7s %9s %12s %12s %12s  %s\n", "price us", "rounds", "messages", "bytes",
           "path bytes", "reduced", "candidate");
    for (int i = 0; i < question->nfound; i++) {
        const rota_candidate *one = &found[i];
        if (one->able)
            printf("%12.2f %7.0f %9.4g %12.0f %12.0f %12.0f  %s", one->price_us, one->rounds,
                   sum(one->messages), sum(one->bytes), one->path_bytes, one->reduced_bytes,
                   one->name);
        else
            printf("%12s %7s %9s %12s %12s %12s  %s", "-", "-", "-", "-", "-", "-", one->name);
        printf("%s%s\n", one->why[0] ? ": " : "", one->why);
    }
    if (question->nfound > 0 && found[0].chosen)
        printf("\nchosen: %s: %s\n", found[0].name, found[0].why);
    else
        printf("\nchosen: none: the call would be refused\n");
}

static json_t *candidate_json(const rota_candidate *one) {
    json_t *messages = json_object(), *bytes = json_object();
    for (int link = 0; link < ROTA_LINK_COUNT; link++) {
        json_object_set_new(messages, rota_link_name(link), json_real(one->messages[link]));
        json_object_set_new(bytes, rota_link_name(link), json_real(one->bytes[link]));
    }
    json_t *object = json_pack(
        "{s:s, s:b, s:b, s:b, s:s, s:f, s:f, s:f, s:f, s:f, s:o, s:o}", "name", one->name, "native",
        one->native, "able", one->able, "chosen", one->chosen, "why", one->why, "price_us",
        one->price_us, "rounds", one->rounds, "far_rounds", one->far_rounds, "path_bytes",
        one->path_bytes, "reduced_bytes", one->reduced_bytes, "messages", messages, "bytes", bytes);
    return object;
}

static int json_print(const struct question *question, const char *mode, const char *profile) {
    const rota_candidate *any = &question->found[0];
    json_t *links = json_object(), *candidates = json_array();
    for (int link = 0; link < ROTA_LINK_COUNT; link++)
        json_object_set_new(links, rota_link_name(link),
                            json_pack("{s:f, s:f, s:f, s:f}", "latency_us", any->latency_us[link],
                                      "overhead_us", any->overhead_us[link], "us_per_byte",
                                      any->us_per_byte[link], "reduce_us_per_byte",
                                      any->reduce_us_per_byte[link]));
    for (int i = 0; i < question->nfound; i++)
        json_array_append_new(candidates, candidate_json(&question->found[i]));
    json_t *object = json_pack(
        "{s:s, s:I, s:I, s:s, s:i, s:i, s:f, s:s, s:s, s:i, s:o, s:o}", "op",
        rota_kind_name(question->kind), "bytes", (json_int_t)question->bytes, "count",
        (json_int_t)question->count, "dtype", rota_dtype_name(question->dtype), "ranks",
        question->ranks, "hosts", any->hosts, "crowding", any->crowding, "mode", mode, "profile",
        profile, "measured_ranks", any->measured_ranks, "links", links, "candidates", candidates);
    if (!object || json_dumpf(object, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(9))) {
        fprintf(stderr, "%s: no memory for JSON\n", command);
        return 1;
    }
    printf("\n");
    json_decref(object);
    return 0;
}

static int answer_print(const struct question *question) {
    char mode[32] = "", origin[256] = "", profile[4608] = "";
    if (rota_setting_value("ROTA_MODE", mode, sizeof(mode), origin, sizeof(origin)) ||
        rota_profile_describe(profile, sizeof(profile)))
        return 1;
    int status = 0;
    if (question->json) {
        status = json_print(question, mode, profile);
    } else {
        head_print(question, mode, profile);
        text_print(question);
    }
    return status || fflush(stdout) || ferror(stdout);
}

/* -- asking ------------------------------------------------------------------------------------
 */

static rota_status candidates_find(struct question *question, rota_comm *comm) {
    rota_status status = ROTA_OK;
    int count = 1;
    for (int i = 0; i < count && i < MAX_CANDIDATES && status == ROTA_OK; i++) {
        question->found[i] = (rota_candidate)ROTA_CANDIDATE_INIT;
        status = rota_comm_candidate(comm, question->kind, question->count, question->dtype,
                                     ROTA_SUM, 0, NULL, i, &question->found[i]);
        count = question->found[i].count;
        question->nfound = i + (status == ROTA_OK);
    }
    qsort(question->found, (size_t)question->nfound, sizeof(question->found[0]), by_price);
    return status;
}

static size_t count_of(const struct question *question) {
    bool blocks = question->kind == ROTA_KIND_ALL_GATHER ||
                  question->kind == ROTA_KIND_REDUCE_SCATTER ||
                  question->kind == ROTA_KIND_ALL_TO_ALL || question->kind == ROTA_KIND_GATHER ||
                  question->kind == ROTA_KIND_SCATTER;
    return (size_t)question->bytes / rota_dtype_size(question->dtype) /
           (size_t)(blocks ? question->ranks : 1);
}

/* One rank. A barrier first: native forms come up with the first collective. */
static int rank_main(void *arg) {
    struct question *question = arg;
    rota_comm *comm = NULL;
    int rank = -1, failed = 0;
    rota_status status = rota_init(NULL, &comm, NULL);
    if (status == ROTA_OK)
        status = rota_comm_rank(comm, &rank);
    if (status == ROTA_OK)
        status = rota_barrier(comm, NULL);
    if (status == ROTA_OK && rank == 0)
        status = candidates_find(question, comm);
    if (status == ROTA_OK && rank == 0)
        failed = answer_print(question);
    if (status != ROTA_OK && rank <= 0) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "%s: %s\n", command, error.message);
    }
    if (status == ROTA_OK)
        status = rota_comm_finalize(comm, NULL);
    rota_comm_destroy(comm);
    return status != ROTA_OK || failed;
}

int command_explain(int argc, char **argv) {
    static struct question question = {.dtype = ROTA_FLOAT32};
    cli_arguments_parse(&parser, command, argc, argv, 0, &question);
    if (!question.named || (!question.sized && question.kind != ROTA_KIND_BARRIER))
        cli_fail(command, "OPERATION and BYTES are missing, as in rota explain all_reduce 1M");
    if (!question.ranks)
        question.ranks = rota_usable_cores() > 2 ? rota_usable_cores() : 2;
    if (question.ranks > MAX_RANKS)
        cli_fail(command, "--hosts names %d ranks: at most %d", question.ranks, MAX_RANKS);
    question.count = count_of(&question);
    struct launch_job job = {.command = command,
                             .nranks = question.ranks,
                             .host_of = question.host_of,
                             .quiet = true,
                             .entry = rank_main,
                             .arg = &question};
    int status = launch_ranks(&job);
    free(question.host_of);
    return status;
}
