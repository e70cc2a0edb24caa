/* Runs the generated matrix of collectives, or a random sample of it, and prints for the first
 * wrong case a line that runs it alone. Ranks are threads of this process, with --processes
 * processes, or with --joined this process is one rank of a job that a launcher started. A rank
 * goes from case to case without waiting for the others, on one communicator. */
#include "case_rank.h"
#include "memory/memory.h"
#include "values.h"
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALL_TIMEOUT_MS 30000

/* Shared by the ranks, also where they are processes. */
struct tally {
    _Atomic bool failed; /* one rank tells, the others are quiet */
    _Atomic uint64_t passed, skipped, refused;
};

struct rank_part {
    const struct matrix_options *options;
    struct tally *tally;
    rota_comm **comms; /* of all ranks that live here */
    int ncomms, nranks, rank;
};

/* Prints the first failure and ends the operations of all ranks here. */
static void tell_failure(const struct rank_part *part, const struct matrix_case *test,
                         uint64_t number, const char *text) {
    if (atomic_exchange(&part->tally->failed, true))
        return;
    char line[1024];
    case_describe(part->options, test, line, sizeof(line));
    printf("FAILED: %s\n  %s\n  (case %llu of the run; if it passes alone, run again with the "
           "same options and --samples %llu)\n",
           text, line, (unsigned long long)number, (unsigned long long)number + 1);
    fflush(stdout);
    for (int i = 0; i < part->ncomms; i++)
        rota_comm_abort(part->comms[i]);
}

static void *run_rank(void *arg) {
    const struct rank_part *part = arg;
    struct matrix_case test;
    for (uint64_t number = 0; case_next(part->options, part->nranks, number, &test); number++) {
        char text[1024] = "";
        if (atomic_load(&part->tally->failed))
            break;
        enum case_outcome outcome =
            case_run(&test, part->rank, part->comms[part->ncomms > 1 ? part->rank : 0],
                     part->options->mock, text, sizeof(text));
        if (outcome == CASE_FAILED) {
            tell_failure(part, &test, number, text);
            break;
        }
        if (part->rank == 0)
            atomic_fetch_add(outcome == CASE_PASSED    ? &part->tally->passed
                             : outcome == CASE_REFUSED ? &part->tally->refused
                                                       : &part->tally->skipped,
                             1);
    }
    return NULL;
}

static void fail_init(struct tally *tally, rota_status status) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    printf("FAILED: init: %s: %s\n", rota_status_name(status), error.message);
    fflush(stdout);
    atomic_store(&tally->failed, true);
}

static void run_threads(const struct matrix_options *options, struct tally *tally, int nranks) {
    rota_comm *comms[MATRIX_MAX_RANKS];
    struct rank_part parts[MATRIX_MAX_RANKS];
    pthread_t threads[MATRIX_MAX_RANKS];
    rota_status status = rota_init_threads(nranks, comms, NULL);
    if (status != ROTA_OK) {
        fail_init(tally, status);
        return;
    }
    for (int r = 0; r < nranks; r++) {
        rota_comm_set_timeout(comms[r], CALL_TIMEOUT_MS);
        parts[r] = (struct rank_part){.options = options,
                                      .tally = tally,
                                      .comms = comms,
                                      .ncomms = nranks,
                                      .nranks = nranks,
                                      .rank = r};
        pthread_create(&threads[r], NULL, run_rank, &parts[r]);
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < nranks; r++)
        rota_comm_destroy(comms[r]);
}

static void run_process(const struct matrix_options *options, struct tally *tally, int nranks,
                        int rank) {
    if (options->mock && memory_mock_start(options->seed, options->delay_us) != ROTA_OK)
        abort();
    rota_comm *comm = NULL;
    rota_status status = rota_init(NULL, &comm, NULL);
    if (status != ROTA_OK) {
        fail_init(tally, status);
    } else {
        rota_comm_set_timeout(comm, CALL_TIMEOUT_MS);
        struct rank_part part = {.options = options,
                                 .tally = tally,
                                 .comms = &comm,
                                 .ncomms = 1,
                                 .nranks = nranks,
                                 .rank = rank};
        run_rank(&part);
        rota_comm_finalize(comm, NULL);
        rota_comm_destroy(comm);
    }
    if (options->mock)
        memory_mock_stop();
}

static void run_processes(const struct matrix_options *options, struct tally *tally, int nranks) {
    char text[64];
    snprintf(text, sizeof(text), "%d", nranks);
    setenv("ROTA_SIZE", text, 1);
    snprintf(text, sizeof(text), "@rota-matrix-%d-%d", (int)getpid(), nranks);
    setenv("ROTA_ROOT", text, 1);
    setenv("ROTA_JOB_KEY", "a key for the matrix", 1);
    fflush(stdout);
    pid_t children[MATRIX_MAX_RANKS];
    for (int r = 0; r < nranks; r++) {
        children[r] = fork();
        if (children[r] == 0) {
            snprintf(text, sizeof(text), "%d", r);
            setenv("ROTA_RANK", text, 1);
            run_process(options, tally, nranks, r);
            exit(0);
        }
    }
    for (int r = 0; r < nranks; r++) {
        int status = 0;
        if (children[r] < 0 || waitpid(children[r], &status, 0) < 0 || status != 0) {
            printf("FAILED: rank %d of %d ended with wait status %#x\n", r, nranks, status);
            atomic_store(&tally->failed, true);
        }
    }
}

static void run_joined(const struct matrix_options *options, struct tally *tally) {
    const char *rank = getenv("ROTA_RANK"), *size = getenv("ROTA_SIZE");
    int nranks = size != NULL ? atoi(size) : 0;
    if (rank == NULL || nranks < 1 || nranks > MATRIX_MAX_RANKS) {
        printf("FAILED: --joined needs ROTA_RANK and a ROTA_SIZE of at most %d\n",
               MATRIX_MAX_RANKS);
        atomic_store(&tally->failed, true);
        return;
    }
    run_process(options, tally, nranks, atoi(rank));
}

/* -- options ------------------------------------------------------------------------------------
 */

static void set_environment(const struct matrix_options *options) {
    char text[96];
    const char *below =
        strncmp(options->transport, "test-", 5) == 0 ? options->transport + 5 : NULL;
    setenv("ROTA_TRANSPORT", below != NULL ? below : options->transport, 1);
    if (strcmp(options->transport, "all") == 0)
        unsetenv("ROTA_TRANSPORT");
    snprintf(text, sizeof(text), "over=%s,seed=%llu,delay_us=%u", below != NULL ? below : "",
             (unsigned long long)options->seed, options->delay_us);
    if (below != NULL)
        setenv("ROTA_TEST_TRANSPORT", text, 1);
    snprintf(text, sizeof(text), "%zu", options->slice);
    setenv("ROTA_SLICE_BYTES", text, 1);
}

static bool parse_ranks(struct matrix_options *options, char *list) {
    options->nranks = 0;
    for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
        int nranks = atoi(word);
        if (nranks < 1 || nranks > MATRIX_MAX_RANKS || options->nranks == MATRIX_MAX_RANKS)
            return false;
        options->ranks[options->nranks++] = nranks;
    }
    return options->nranks > 0;
}

static bool parse_kinds(struct matrix_options *options, char *list) {
    options->kinds = 0;
    for (char *word = strtok(list, ","); word != NULL; word = strtok(NULL, ",")) {
        rota_kind kind;
        if (rota_kind_parse(word, &kind) != ROTA_OK || kind == ROTA_KIND_RECV)
            return false;
        options->kinds |= 1u << kind;
    }
    return options->kinds != 0;
}

static bool parse_mode(struct matrix_options *options, const char *name) {
    for (int mode = ROTA_NUMERICS_EQUAL; mode <= ROTA_NUMERICS_FAST; mode++)
        if (strcmp(rota_numerics_name((rota_numerics)mode), name) == 0)
            options->mode = (rota_numerics)mode;
    return options->mode != ROTA_NUMERICS_DEFAULT;
}

static bool known_algorithm(const char *name) {
    if (strcmp(name, "native") == 0)
        return true;
    for (int i = 0; rota_algorithm_name(i) != NULL; i++)
        if (strcmp(rota_algorithm_name(i), name) == 0)
            return true;
    return false;
}

static bool parse(struct matrix_options *options, int argc, char **argv) {
    static const struct option known[] = {{"seed", required_argument, NULL, 's'},
                                          {"samples", required_argument, NULL, 'k'},
                                          {"all", no_argument, NULL, 'a'},
                                          {"transport", required_argument, NULL, 't'},
                                          {"memory", required_argument, NULL, 'm'},
                                          {"ranks", required_argument, NULL, 'n'},
                                          {"ops", required_argument, NULL, 'o'},
                                          {"algorithm", required_argument, NULL, 'A'},
                                          {"slice", required_argument, NULL, 'b'},
                                          {"delay", required_argument, NULL, 'd'},
                                          {"processes", no_argument, NULL, 'p'},
                                          {"mode", required_argument, NULL, 'M'},
                                          {"index", required_argument, NULL, 'i'},
                                          {"joined", no_argument, NULL, 'j'},
                                          {NULL, 0, NULL, 0}};
    bool good = true;
    int option;
    while ((option = getopt_long(argc, argv, "", known, NULL)) != -1) {
        switch (option) {
        case 's':
            options->seed = strtoull(optarg, NULL, 10);
            break;
        case 'k':
            options->samples = strtoull(optarg, NULL, 10);
            break;
        case 'a':
            options->samples = 0;
            break;
        case 't':
            options->transport = optarg;
            break;
        case 'm':
            options->mock = strcmp(optarg, "mock") == 0;
            break;
        case 'n':
            good &= parse_ranks(options, optarg);
            break;
        case 'o':
            good &= parse_kinds(options, optarg);
            break;
        case 'A':
            options->algorithm = optarg;
            good &= known_algorithm(optarg);
            break;
        case 'b':
            options->slice = strtoull(optarg, NULL, 10);
            break;
        case 'd':
            options->delay_us = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'M':
            good &= parse_mode(options, optarg);
            break;
        case 'p':
            options->processes = true;
            break;
        case 'j':
            options->joined = options->processes = true;
            break;
        case 'i':
            options->single = true;
            options->index = strtoull(optarg, NULL, 10);
            break;
        default:
            good = false;
        }
    }
    return good && optind == argc;
}

int main(int argc, char **argv) {
    struct matrix_options options = {.seed = 1,
                                     .samples = 100,
                                     .transport = "all",
                                     .delay_us = 100,
                                     .ranks = {1, 2, 3, 4, 5, 7, 8},
                                     .nranks = 7,
                                     .kinds =
                                         ((1u << ROTA_KIND_COUNT) - 1) & ~(1u << ROTA_KIND_RECV)};
    if (!parse(&options, argc, argv)) {
        fprintf(
            stderr,
            "usage: %s [--seed S] [--samples K | --all] [--transport all|LIST|test-NAME]\n  "
            "[--memory host|mock] [--delay US] [--slice BYTES] [--ranks N,N...] "
            "[--ops OP,OP...]\n  [--algorithm native|NAME] [--mode MODE] [--processes | --joined] "
            "[--index I]\n",
            argv[0]);
        return 2;
    }
    set_environment(&options);
    struct tally *tally =
        mmap(NULL, sizeof(*tally), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (tally == MAP_FAILED)
        return 2;
    bool mock_here = options.mock && !options.processes;
    if (mock_here && memory_mock_start(options.seed, options.delay_us) != ROTA_OK)
        return 2;
    if (options.joined)
        run_joined(&options, tally);
    for (int i = 0; i < options.nranks && !options.joined && !atomic_load(&tally->failed); i++) {
        if (options.processes)
            run_processes(&options, tally, options.ranks[i]);
        else
            run_threads(&options, tally, options.ranks[i]);
    }
    if (mock_here)
        memory_mock_stop();
    bool failed = atomic_load(&tally->failed);
    const char *rank = getenv("ROTA_RANK");
    if (options.joined && !failed && strcmp(rank, "0") != 0)
        return 0; /* rank 0 counts */
    failed |= atomic_load(&tally->passed) == 0;
    printf("%llu passed, %d failed", (unsigned long long)atomic_load(&tally->passed), failed);
    if (atomic_load(&tally->skipped) > 0)
        printf(" (%llu skipped: slice too small for the forced algorithm)",
               (unsigned long long)atomic_load(&tally->skipped));
    if (atomic_load(&tally->refused) > 0)
        printf(" (%llu refused: another tree)", (unsigned long long)atomic_load(&tally->refused));
    printf("\n");
    return failed ? 1 : 0;
}
