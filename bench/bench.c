/* `rota bench`: finds or starts the ranks, and runs the rows on each. */
#include "bench/bench.h"
#include "bench/plot.h"
#include "bench/session.h"
#include "bench/study.h"

#include "cli/arguments.h"
#include "launch/launch.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bench_thread {
    pthread_t thread;
    const struct bench_options *options;
    rota_comm *comm; /* NULL: joins the job by itself */
    int rank, nranks;
    int status;
};

static const char *environment(const char *name) {
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* Number of processes that a launcher started, 0 without one; in the library's order. That it
 * started one alone counts only where it was rota run or torchrun: srun --pty starts shells. */
static int launched_processes(int *process) {
    static const char *const names[][2] = {{"ROTA_RANK", "ROTA_SIZE"},
                                           {"RANK", "WORLD_SIZE"},
                                           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                           {"PMI_RANK", "PMI_SIZE"},
                                           {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
    char quoted[CLI_QUOTED];
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *rank = environment(names[i][0]), *size = environment(names[i][1]);
        int64_t values[2];
        if (!rank || !size)
            continue;
        if (!cli_parse_integer(size, 1, 1 << 20, &values[1]))
            cli_fail(BENCH_COMMAND, "%s expects a number of ranks, not %s", names[i][1],
                     cli_quote(size, quoted));
        if (!cli_parse_integer(rank, 0, values[1] - 1, &values[0]))
            cli_fail(BENCH_COMMAND, "%s expects a rank below %lld, not %s", names[i][0],
                     (long long)values[1], cli_quote(rank, quoted));
        if (i >= 2 && values[1] == 1)
            continue;
        *process = (int)values[0];
        return (int)values[1];
    }
    return 0;
}

static int failed(const struct bench_session *session, const char *what, rota_status status) {
    bench_session_report(session, what, status);
    return 1;
}

/* Wrong arguments that only the number of ranks shows; every rank decides the same. */
static bool ranks_suit(const struct bench_session *session) {
    const struct bench_options *options = session->options;
    const struct bench_operation *only = options->operations[0];
    char why[BENCH_WHY_BYTES + 64] = "", refused[BENCH_WHY_BYTES];
    if (options->root >= session->nranks)
        snprintf(why, sizeof(why), "-r %d is no rank: expected one below %d", options->root,
                 session->nranks);
    if (options->algorithm && options->operation_count == 1 &&
        !bench_algorithm_fits(session, only, options->algorithm, refused, sizeof(refused))) {
        if (refused[0])
            snprintf(why, sizeof(why), "--algorithm: %s", refused);
        else
            snprintf(why, sizeof(why), "--algorithm: %s does no %s on %d ranks", options->algorithm,
                     only->name, session->nranks);
    }
    if (why[0] && session->rank == 0)
        fprintf(stderr, BENCH_COMMAND ": %s\n", why);
    return why[0] == '\0';
}

static bool json_open(struct bench_session *session) {
    const char *path = session->options->json;
    if (session->rank != 0 || !path)
        return true;
    session->json = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
    if (!session->json)
        perror(BENCH_COMMAND ": --json");
    return session->json != NULL;
}

static rota_status rows_run(struct bench_session *session) {
    if (session->rank == 0)
        bench_table_head(session);
    rota_status status = bench_table_devices(session);
    if (status) {
        bench_session_report(session, "collecting the ranks' places", status);
        return status;
    }
    status = bench_rows_run(session);
    if (session->rank != 0 || status)
        return status;
    bench_table_foot(session);
    if (session->options->plot && !bench_plot_write(session))
        session->wrong++;
    return ROTA_OK;
}

static rota_status work_run(struct bench_session *session) {
    switch (session->options->study) {
    case BENCH_SELECTION:
        return study_selection(session);
    case BENCH_GUIDELINES:
        return study_guidelines(session);
    case BENCH_OVERLAP:
        return study_overlap(session);
    case BENCH_CALIBRATE:
        return study_calibrate(session);
    case BENCH_ROWS:
        break;
    }
    return rows_run(session);
}

/* *ran: every rank comes to its end, whatever was found. */
static int session_run(struct bench_session *session, bool *ran) {
    *ran = !ranks_suit(session);
    if (*ran || !json_open(session))
        return CLI_EXIT_USAGE;
    rota_status status = work_run(session);
    *ran = status == ROTA_OK;
    bool unwritten = session->json &&
                     (ferror(session->json) || (session->json != stdout && fclose(session->json)));
    unwritten |= session->rank == 0 && (fflush(stdout) || ferror(stdout));
    if (unwritten)
        fprintf(stderr, BENCH_COMMAND ": results could not be written\n");
    return status || session->wrong || unwritten;
}

/* One rank from joined to left. */
static int rank_run(const struct bench_options *options, rota_comm *comm) {
    struct bench_session session;
    bool ran = false;
    int result;
    rota_status status = bench_session_open(&session, options, comm);
    result = status ? failed(&session, "opening", status) : session_run(&session, &ran);
    /* A rank that found something wrong leaves with the others too: a launcher that sees it fail
     * would end rank 0 before that has printed its account. */
    if (ran) {
        status = rota_comm_finalize(comm, NULL);
        if (status)
            result = failed(&session, "finalize", status);
    }
    rota_comm_destroy(comm);
    bench_plot_free(&session);
    bench_session_close(&session);
    return result;
}

static int rank_join(const struct bench_options *options, const rota_config *config) {
    rota_comm *comm = NULL;
    rota_status status = rota_init(config, &comm, NULL);
    if (status == ROTA_OK)
        return rank_run(options, comm);
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, BENCH_COMMAND ": joining the job: %s: %s\n", rota_status_name(status),
            error.message);
    return 1;
}

static void *thread_main(void *argument) {
    struct bench_thread *thread = argument;
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = thread->nranks;
    config.rank = thread->rank;
    thread->status = thread->comm ? rank_run(thread->options, thread->comm)
                                  : rank_join(thread->options, &config);
    if (thread->status) {
        /* The other threads may wait for this one: the process is over. */
        fflush(NULL);
        _exit(thread->status);
    }
    return NULL;
}

/* T ranks as threads of this process, `first` and on of nranks. */
static int threads_run(const struct bench_options *options, int first, int nranks) {
    int count = options->threads;
    struct bench_thread *threads = calloc((size_t)count, sizeof(*threads));
    rota_comm **comms = calloc((size_t)count, sizeof(*comms));
    bool whole = count == nranks;
    int status = 1;
    if (!threads || !comms) {
        fprintf(stderr, BENCH_COMMAND ": out of memory\n");
        goto free_tables;
    }
    if (whole && rota_init_threads(nranks, comms, NULL)) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, BENCH_COMMAND ": %s\n", error.message);
        goto free_tables;
    }
    for (int t = 0; t < count; t++) {
        threads[t] = (struct bench_thread){
            .options = options, .comm = comms[t], .rank = first + t, .nranks = nranks};
        int error = pthread_create(&threads[t].thread, NULL, thread_main, &threads[t]);
        if (error) {
            fprintf(stderr, BENCH_COMMAND ": cannot start thread %d: %s\n", t, strerror(error));
            _exit(1);
        }
    }
    for (int t = 0; t < count; t++)
        pthread_join(threads[t].thread, NULL);
    status = 0;
free_tables:
    free(comms);
    free(threads);
    return status;
}

/* A process that a launcher, ours or another, has started. */
static int process_run(const struct bench_options *options) {
    int process = 0, processes = launched_processes(&process);
    if (!options->threads)
        return rank_join(options, NULL);
    return threads_run(options, process * options->threads, processes * options->threads);
}

static int process_entry(void *argument) {
    return process_run(argument);
}

/* The ranks of one process share its host. */
static int *process_hosts(const struct bench_options *options, int processes) {
    int threads = options->threads ? options->threads : 1;
    if (!options->host_of)
        return NULL;
    int *hosts = calloc((size_t)processes, sizeof(*hosts));
    if (!hosts)
        cli_fail(BENCH_COMMAND, "out of memory");
    for (int r = 0; r < processes * threads; r++) {
        if (r % threads == 0)
            hosts[r / threads] = options->host_of[r];
        if (hosts[r / threads] != options->host_of[r])
            cli_fail(BENCH_COMMAND, "--hosts puts threads of one process on different hosts");
    }
    return hosts;
}

static int ranks_start(struct bench_options *options) {
    int threads = options->threads ? options->threads : 1, ranks = options->ranks;
    if (!ranks)
        ranks = options->threads ? options->threads : rota_usable_cores();
    if (!options->ranks && !options->threads && ranks < 2)
        ranks = 2;
    if (ranks > LAUNCH_MAX_RANKS)
        ranks = LAUNCH_MAX_RANKS;
    if (ranks % threads)
        cli_fail(BENCH_COMMAND, "--ranks %d is no multiple of -t %d", ranks, threads);
    FILE *json = options->json && options->table ? fopen(options->json, "we") : NULL;
    if (options->json && options->table && !json)
        cli_fail(BENCH_COMMAND, "--json: cannot write the file: %m");
    if (json)
        fclose(json);
    int *hosts = process_hosts(options, ranks / threads);
    if (options->threads == ranks && !hosts)
        return threads_run(options, 0, ranks);
    struct launch_job job = {.command = BENCH_COMMAND,
                             .nranks = ranks / threads,
                             .host_of = hosts,
                             .quiet = true,
                             .entry = process_entry,
                             .arg = options};
    int status = launch_ranks(&job);
    free(hosts);
    return status;
}

int bench_main(int argc, char **argv) {
    struct bench_options options;
    int process, status;
    if (argc > 1 && strcmp(argv[1], "--overheads") == 0)
        return bench_overheads(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--cores") == 0)
        return bench_cores(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "--init") == 0)
        return bench_startup(argc - 1, argv + 1);
    bench_options_parse(&options, argc, argv);
    int processes = launched_processes(&process);
    if (processes == 0) {
        status = ranks_start(&options);
    } else {
        if (options.host_of)
            cli_fail(BENCH_COMMAND, "--hosts is for ranks that rota bench starts itself");
        int ranks = processes * (options.threads ? options.threads : 1);
        if (options.ranks && options.ranks != ranks)
            cli_fail(BENCH_COMMAND, "--ranks %d, but the launcher started %d", options.ranks,
                     ranks);
        status = process_run(&options);
    }
    free(options.host_of);
    return status;
}
