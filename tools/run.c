/* `rota run`: starts the ranks of a program on this machine. */
#include "cli/arguments.h"
#include "launch/launch.h"
#include "tools/command.h"

#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char command[] = "rota run";

enum bind { BIND_AUTO, BIND_NONE, BIND_NUMA, BIND_CORES };

struct run_arguments {
    struct launch_job job;
    const char *hosts;
    enum bind bind;
};

enum { KEY_HOSTS = 0x100, KEY_TIMEOUT, KEY_NO_PREFIX, KEY_BIND, KEY_KEEP_GOING };

static const struct argp_option options[] = {
    {"ranks", 'n', "N", 0, "ranks to start (needed unless --hosts says it)", 0},
    {"hosts", KEY_HOSTS, "HOSTS", 0,
     "pretend hosts: ranks per host, as 2+2, or the host of each rank, as 0,1,1,0", 0},
    {"timeout", KEY_TIMEOUT, "S", 0, "end all ranks after S seconds, with status 124", 0},
    {"no-prefix", KEY_NO_PREFIX, NULL, 0, "pass output through as it is, without [rank]", 0},
    {"keep-going", KEY_KEEP_GOING, NULL, 0, "a rank that a signal ends does not end the others", 0},
    {"bind", KEY_BIND, "WHERE", OPTION_ARG_OPTIONAL,
     "cores: each rank to its share of them, near its GPU where there are GPUs for all; numa: to "
     "the NUMA nodes of these (default where there are several); none",
     0},
    {0}};

static enum bind bind_parse(const char *value) {
    if (!value || strcmp(value, "cores") == 0)
        return BIND_CORES;
    if (strcmp(value, "numa") == 0)
        return BIND_NUMA;
    if (strcmp(value, "none") != 0)
        cli_fail(command, "--bind expects cores, numa or none, not %s", value);
    return BIND_NONE;
}

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct run_arguments *run = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'n':
        run->job.nranks = (int)cli_integer(command, "-n", value, 1, LAUNCH_MAX_RANKS);
        return 0;
    case KEY_HOSTS:
        run->hosts = value;
        return 0;
    case KEY_TIMEOUT:
        run->job.timeout_ms = 1000 * cli_integer(command, "--timeout", value, 1, 100000000);
        return 0;
    case KEY_NO_PREFIX:
        run->job.prefix = false;
        return 0;
    case KEY_KEEP_GOING:
        run->job.keep_going = true;
        return 0;
    case KEY_BIND:
        run->bind = bind_parse(value);
        return 0;
    case ARGP_KEY_ARG:
        /* The first word that is no option is the program; all behind it are its own. */
        run->job.argv = state->argv + state->next - 1;
        state->next = state->argc;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp parser = {
    .options = options,
    .parser = option_parse,
    .args_doc = "[--] PROGRAM [ARGUMENT...]",
    .doc = "Starts N processes of PROGRAM on this machine as the ranks of one job.\v"
           "Each rank finds its place in ROTA_RANK, ROTA_SIZE, ROTA_ROOT and ROTA_JOB_KEY, and in "
           "ROTA_HOST_ID with --hosts. Lines of output begin with [rank]; standard input goes to "
           "rank 0. Signals INT, TERM, HUP, USR1 and USR2 are passed on. When a rank fails the "
           "others are ended (TERM, then KILL after 5 s) and its status is returned, 128 + number "
           "for a signal. With --keep-going a rank that a signal ended is no failure, unless all "
           "ranks ended so."};

/* Asking hwloc takes a while, which nobody should wait for on a laptop. */
static bool has_several_nodes(void) {
    char nodes[256] = "";
    FILE *file = fopen("/sys/devices/system/node/has_cpu", "re");
    bool several = file && fgets(nodes, sizeof(nodes), file) && strpbrk(nodes, ",-");
    if (file)
        fclose(file);
    return several;
}

/* Sets of CPUs by rank, to be freed with the topology's own memory: one block. NULL where nothing
 * is to be bound or known. */
static const void **sets_find(const struct run_arguments *run) {
    rota_topo *topo = NULL;
    int nranks = run->job.nranks;
    if (run->bind == BIND_NONE || (run->bind == BIND_AUTO && (nranks < 2 || !has_several_nodes())))
        return NULL;
    size_t pointers = (size_t)nranks * sizeof(void *);
    const void **sets = malloc(pointers + (size_t)nranks * sizeof(rota_topo_cpus));
    rota_topo_cpus *cpus = sets ? (rota_topo_cpus *)(void *)&sets[nranks] : NULL;
    rota_status status = sets ? rota_topo_load(NULL, &topo) : ROTA_ERR_MEMORY;
    for (int r = 0; r < nranks && status == ROTA_OK; r++) {
        cpus[r] = (rota_topo_cpus)ROTA_TOPO_CPUS_INIT;
        status = rota_topo_place(topo, r, nranks, &cpus[r]);
        sets[r] = run->bind == BIND_CORES ? cpus[r].share : cpus[r].near;
    }
    rota_topo_free(topo);
    if (status == ROTA_OK)
        return sets;
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, "%s: ranks are not bound: %s\n", command,
            sets ? error.message : "out of memory");
    free(sets);
    return NULL;
}

int command_run(int argc, char **argv) {
    struct run_arguments run = {.job = {.command = command, .prefix = true}};
    cli_arguments_parse(&parser, command, argc, argv, ARGP_IN_ORDER, &run);
    int *hosts = NULL;
    if (run.hosts) {
        char why[256];
        int nranks;
        hosts = launch_hosts_parse(run.hosts, &nranks, why, sizeof(why));
        if (!hosts)
            cli_fail(command, "%s", why);
        if (run.job.nranks && run.job.nranks != nranks)
            cli_fail(command, "--hosts names %d ranks, but -n asks for %d", nranks, run.job.nranks);
        run.job.nranks = nranks;
        run.job.host_of = hosts;
    }
    if (!run.job.nranks)
        cli_fail(command, "-n N is missing: how many ranks to start");
    if (!run.job.argv)
        cli_fail(command, "PROGRAM is missing: what to start");
    const void **sets = sets_find(&run);
    run.job.cpus = sets;
    run.job.cpus_bytes = ROTA_TOPO_CPUS / 8;
    int status = launch_ranks(&run.job);
    free(sets);
    free(hosts);
    return status;
}
