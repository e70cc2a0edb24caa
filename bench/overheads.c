/* `rota bench --overheads`: what checking and recording cost a small call.
 *
 * Four jobs of two threads each differ in one setting. They take turns in short blocks of calls, in
 * changing order, so that what disturbs the machine falls on all alike; what is told is the median
 * of the differences between the blocks of a round. A job's place in memory costs or saves some ns
 * by itself, so the jobs are made anew several times, and the median over these is the result. */
#include "bench/bench.h"
#include "bench/samples.h"

#include "cli/arguments.h"
#include <pthread.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND "rota bench --overheads"
#define BLOCK 500
#define SETS 7

static const struct {
    const char *name, *check, *record;
    double most_ns; /* what it may cost; 0: nothing is promised */
} ways[] = {
    {"neither", "off", "off", 0},
    {"fingerprint (ROTA_CHECK=fingerprint)", "fingerprint", "off", 4},
    {"recorder (ROTA_RECORD=file)", "off", "file", 5},
    {"recorder, every call with its time (ROTA_RECORD=stamps)", "off", "stamps", 20},
};
#define WAYS ((int)(sizeof(ways) / sizeof(ways[0])))

struct side {
    rota_comm *comms[WAYS];
    int rank, rounds;
    double *times; /* of rank 0: [round * WAYS + way], ns per call */
    rota_status status;
};

static void *run_side(void *arg) {
    struct side *side = arg;
    float in[2] = {1, 2}, out[2];
    for (int round = 0; round < side->rounds && side->status == ROTA_OK; round++)
        for (int i = 0; i < WAYS && side->status == ROTA_OK; i++) {
            int way = (i + round) % WAYS;
            rota_comm *comm = side->comms[way];
            /* The first calls meet a cold cache. */
            for (int c = 0; c < 16 && side->status == ROTA_OK; c++)
                side->status = rota_all_reduce(in, out, 2, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
            double began = bench_now_ns();
            for (int c = 0; c < BLOCK && side->status == ROTA_OK; c++)
                side->status = rota_all_reduce(in, out, 2, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
            if (side->rank == 0)
                side->times[round * WAYS + way] = (bench_now_ns() - began) / BLOCK;
        }
    return NULL;
}

static int fail(const char *what) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, COMMAND ": %s: %s\n", what, error.message);
    return 1;
}

/* One set of jobs, made, measured and ended. costs[0]: ns per call without either. */
static int measure_set(int rounds, double costs[WAYS]) {
    struct side sides[2] = {{.rank = 0, .rounds = rounds}, {.rank = 1, .rounds = rounds}};
    double *times = calloc((size_t)rounds * WAYS, sizeof(*times));
    double *values = calloc((size_t)rounds, sizeof(*values));
    pthread_t thread;
    int status = 0, made = 0;
    if (times == NULL || values == NULL) {
        fprintf(stderr, COMMAND ": out of memory\n");
        status = 1;
    }
    for (; made < WAYS && status == 0; made++) {
        rota_comm *pair[2];
        setenv("ROTA_CHECK", ways[made].check, 1);
        setenv("ROTA_RECORD", ways[made].record, 1);
        if (rota_init_threads(2, pair, NULL) != ROTA_OK) {
            status = fail("joining");
            break;
        }
        sides[0].comms[made] = pair[0];
        sides[1].comms[made] = pair[1];
    }
    sides[0].times = times;
    if (status == 0 && pthread_create(&thread, NULL, run_side, &sides[1]) != 0) {
        fprintf(stderr, COMMAND ": cannot start a thread\n");
        status = 1;
    } else if (status == 0) {
        run_side(&sides[0]);
        if (sides[0].status != ROTA_OK)
            status = fail("all_reduce");
        pthread_join(thread, NULL);
    }
    for (int way = 0; way < WAYS && status == 0; way++) {
        for (int round = 0; round < rounds; round++)
            values[round] = times[round * WAYS + way] - (way > 0 ? times[round * WAYS] : 0);
        costs[way] = bench_median(values, rounds);
    }
    for (int i = 0; i < made; i++) {
        rota_comm_destroy(sides[0].comms[i]);
        rota_comm_destroy(sides[1].comms[i]);
    }
    free(times);
    free(values);
    return status;
}

struct overheads_arguments {
    int64_t calls;
};

static const struct argp_option options[] = {
    {"iters", 'n', "N", 0, "calls of each kind, default 1000000", 0}, {0}};

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct overheads_arguments *arguments = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'n':
        arguments->calls = cli_integer(COMMAND, "-n", value, SETS * BLOCK, 1000000000);
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
    .doc = "Measures what fingerprints and the flight recorder cost each all_reduce of 8 bytes "
           "between two threads, over shared memory: paired, in blocks that take turns.\v"
           "Needs two cores of its own; `chrt -r 1` in front keeps others away."};

int bench_overheads(int argc, char **argv) {
    struct overheads_arguments arguments = {.calls = 1000000};
    double all[WAYS][SETS], costs[WAYS];
    cli_arguments_parse(&parser, COMMAND, argc, argv, 0, &arguments);
    int rounds = (int)(arguments.calls / (SETS * BLOCK));
    setenv("ROTA_TRANSPORT", "shm", 1);
    printf(
        "# all_reduce of 8 bytes, 2 ranks as threads, %d calls of each kind, paired in blocks of "
        "%d\n",
        rounds * SETS * BLOCK, BLOCK);
    for (int set = 0; set < SETS; set++) {
        int status = measure_set(rounds, costs);
        if (status != 0)
            return status;
        for (int way = 0; way < WAYS; way++)
            all[way][set] = costs[way];
    }
    for (int way = 0; way < WAYS; way++) {
        double cost = bench_median(all[way], SETS);
        printf("%-56s %s%8.1f ns", ways[way].name, way > 0 ? "+" : " ", cost);
        printf("   (%.1f ... %.1f)", all[way][0], all[way][SETS - 1]);
        if (ways[way].most_ns > 0)
            printf("  promised: %.0f%s", ways[way].most_ns,
                   cost > ways[way].most_ns ? ", MISSED" : "");
        printf("\n");
    }
    return 0;
}
