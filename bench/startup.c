/* `rota bench --init`: what a job costs before it does anything: the time to join, memory,
 * descriptors and connections per rank, for growing numbers of ranks. */
#include "bench/bench.h"
#include "bench/samples.h"

#include "cli/arguments.h"
#include "launch/launch.h"
#include <dirent.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COMMAND "rota bench --init"
#define MAX_RANKS 256

enum { JOIN_MS, FIRST_MS, PSS_KIB, WORLD_KIB, IDLE_KIB, USED_KIB, SOCKETS, DESCRIPTORS, VALUES };

struct startup_arguments {
    int ranks;
};

/* Proportional share of the memory that is resident, in KiB; 0 where the kernel does not tell. */
static double pss_kib(void) {
    char line[256];
    long kib = 0;
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file && fgets(line, sizeof(line), file))
        if (sscanf(line, "Pss: %ld kB", &kib) == 1)
            break;
    if (file)
        fclose(file);
    return (double)kib;
}

static void descriptors_count(double values[VALUES]) {
    DIR *folder = opendir("/proc/self/fd");
    const struct dirent *entry;
    char target[64];
    values[SOCKETS] = values[DESCRIPTORS] = 0;
    while (folder && (entry = readdir(folder))) {
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (length <= 0 || atoi(entry->d_name) == dirfd(folder))
            continue;
        target[length] = '\0';
        values[DESCRIPTORS]++;
        values[SOCKETS] += strncmp(target, "socket:", 7) == 0;
    }
    if (folder)
        closedir(folder);
}

static rota_status sum_run(rota_comm *comm) {
    float in[256] = {1}, out[256];
    return rota_all_reduce(in, out, 256, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
}

/* What one rank sees of its joining. */
static rota_status measure(rota_comm *comm, double values[VALUES]) {
    rota_comm *child = NULL;
    size_t world = 0, idle = 0, used = 0;
    double began = 1e-6 * bench_now_ns();
    rota_status status = rota_barrier(comm, NULL);
    if (status == ROTA_OK)
        status = sum_run(comm);
    values[FIRST_MS] = 1e-6 * bench_now_ns() - began;
    if (status == ROTA_OK)
        status = rota_comm_memory(comm, &world);
    if (status == ROTA_OK)
        status = rota_comm_duplicate(comm, &child, NULL);
    if (status == ROTA_OK)
        status = rota_comm_memory(child, &idle);
    if (status == ROTA_OK)
        status = sum_run(child);
    if (status == ROTA_OK)
        status = rota_comm_memory(child, &used);
    descriptors_count(values);
    values[PSS_KIB] = pss_kib();
    values[WORLD_KIB] = (double)world / 1024;
    values[IDLE_KIB] = (double)idle / 1024;
    values[USED_KIB] = (double)used / 1024;
    if (child)
        rota_comm_destroy(child);
    return status;
}

static void row_print(const double *all, int nranks) {
    double most[VALUES] = {0}, sum[VALUES] = {0};
    for (int r = 0; r < nranks; r++)
        for (int i = 0; i < VALUES; i++) {
            double value = all[r * VALUES + i];
            most[i] = value > most[i] ? value : most[i];
            sum[i] += value;
        }
    printf("%7d %10.1f %10.1f %10.0f %10.1f %10.1f %10.1f %8.0f %8.0f\n", nranks, most[JOIN_MS],
           most[FIRST_MS], sum[PSS_KIB] / nranks, most[WORLD_KIB], most[IDLE_KIB], most[USED_KIB],
           most[SOCKETS], most[DESCRIPTORS]);
    fflush(stdout);
}

static int rank_main(void *arg) {
    rota_comm *comm = NULL;
    double values[VALUES] = {0}, *all = NULL, began = 1e-6 * bench_now_ns();
    int rank = -1, nranks = 1;
    (void)arg;
    rota_status status = rota_init(NULL, &comm, NULL);
    values[JOIN_MS] = 1e-6 * bench_now_ns() - began;
    if (status == ROTA_OK)
        status = rota_comm_rank(comm, &rank);
    if (status == ROTA_OK)
        status = rota_comm_size(comm, &nranks);
    if (status == ROTA_OK)
        status = measure(comm, values);
    all = calloc((size_t)nranks, sizeof(values));
    if (status == ROTA_OK && !all)
        status = ROTA_ERR_MEMORY;
    if (status == ROTA_OK)
        status = rota_all_gather(values, all, VALUES, ROTA_FLOAT64, comm, NULL);
    if (status == ROTA_OK && rank == 0)
        row_print(all, nranks);
    if (status != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, COMMAND ": rank %d: %s\n", rank, error.message);
    } else {
        status = rota_comm_finalize(comm, NULL);
    }
    rota_comm_destroy(comm);
    free(all);
    return status != ROTA_OK;
}

static const struct argp_option options[] = {
    {"ranks", 'N', "N", 0, "up to so many ranks, at most 256 (256)", 0},
    {"transport", 'T', "T", 0, "ROTA_TRANSPORT for this run, as shm or tcp", 0},
    {0}};

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct startup_arguments *arguments = state->input;
    char quoted[CLI_QUOTED], text[64], origin[64];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'N':
        arguments->ranks = (int)cli_integer(COMMAND, "--ranks", value, 2, MAX_RANKS);
        return 0;
    case 'T':
        if (setenv("ROTA_TRANSPORT", value, 1) ||
            rota_setting_value("ROTA_TRANSPORT", text, sizeof(text), origin, sizeof(origin)))
            cli_fail(COMMAND, "--transport expects names of transports, not %s",
                     cli_quote(value, quoted));
        return 0;
    case ARGP_KEY_ARG:
        cli_fail(COMMAND, "unexpected argument %s", cli_quote(value, quoted));
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .doc = "Starts jobs of 2, 4, 8, ... ranks and tells for each the time of rota_init and of the "
           "first barrier and all_reduce (slowest rank), resident memory per rank (mean of Pss), "
           "what the world, an unused and a used duplicate hold, and open sockets and descriptors "
           "(most of any rank)."};

int bench_startup(int argc, char **argv) {
    struct startup_arguments arguments = {.ranks = MAX_RANKS};
    cli_arguments_parse(&parser, COMMAND, argc, argv, 0, &arguments);
    printf("#%6s %10s %10s %10s %10s %10s %10s %8s %8s\n#%6s %10s %10s %10s %10s %10s %10s\n",
           "ranks", "init", "first", "Pss", "world", "unused", "used", "sockets", "files", "", "ms",
           "ms", "KiB/rank", "KiB", "KiB", "KiB");
    for (int n = 2; n <= arguments.ranks; n *= 2) {
        struct launch_job job = {
            .command = COMMAND, .nranks = n, .quiet = true, .entry = rank_main, .arg = NULL};
        fflush(stdout);
        int status = launch_ranks(&job);
        if (status)
            return status;
    }
    return 0;
}
