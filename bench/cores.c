/* `rota bench --cores`: what lent cores gain a large local reduction.
 *
 * One communicator has one core, the other all that are asked for; they take turns on the same
 * buffers, and what is told are medians and the median of the ratios of neighbouring rounds. */
#include "bench/bench.h"
#include "bench/samples.h"

#include "cli/arguments.h"
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COMMAND "rota bench --cores"
#define ROUNDS 15

struct cores_arguments {
    int64_t cores, bytes;
};

static const struct argp_option options[] = {
    {"lent", 'k', "CORES", 0, "cores of the second way, default the usable ones, at least 2", 0},
    {"bytes", 'b', "BYTES", 0, "of each operand, default 64M", 0},
    {0}};

static error_t option_parse(int key, char *value, struct argp_state *state) {
    struct cores_arguments *arguments = state->input;
    char quoted[CLI_QUOTED];
    switch (key) {
    case ARGP_KEY_INIT:
        cli_arguments_init(state);
        return 0;
    case 'k':
        arguments->cores = cli_integer(COMMAND, "-k", value, 2, 256);
        return 0;
    case 'b':
        arguments->bytes = cli_bytes(COMMAND, "-b", value, 4, (int64_t)1 << 40);
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
    .doc = "Measures a float sum a += b by rota_reduce_local in one process, on one core and on "
           "cores lent by ROTA_CORES, in turns."};

static int fail(void) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, COMMAND ": %s\n", error.message);
    return 1;
}

static int measure(rota_comm *const comms[2], int64_t cores, int64_t bytes) {
    size_t count = (size_t)bytes / sizeof(float);
    float *left = malloc(count * sizeof(float)), *right = malloc(count * sizeof(float));
    double times[2][ROUNDS], ratios[ROUNDS];
    int status = 0;
    if (left == NULL || right == NULL) {
        fprintf(stderr, COMMAND ": out of memory for two operands of %lld bytes\n",
                (long long)bytes);
        status = 1;
    }
    for (size_t i = 0; status == 0 && i < count; i++) {
        left[i] = 1;
        right[i] = (float)(i % 1024);
    }
    for (int round = -1; round < ROUNDS && status == 0; round++) { /* the first one warms up */
        for (int turn = 0; turn < 2 && status == 0; turn++) {
            int way = round % 2 == 0 ? turn : !turn;
            double began = 1e-9 * bench_now_ns();
            if (rota_reduce_local(left, right, count, ROTA_FLOAT32, ROTA_SUM, comms[way]) !=
                ROTA_OK)
                status = fail();
            else if (round >= 0)
                times[way][round] = 1e-9 * bench_now_ns() - began;
        }
        if (round >= 0)
            ratios[round] = times[0][round] / times[1][round];
    }
    for (size_t i = 0; status == 0 && i < count; i++)
        if (right[i] != (float)(i % 1024) + 2 * (ROUNDS + 1)) {
            fprintf(stderr, COMMAND ": element %zu is wrong\n", i);
            status = 1;
        }
    if (status == 0) {
        double moved = 3e-9 * (double)(count * sizeof(float));
        printf("# a += b of floats, %lld bytes each; GB/s of bytes read and written, medians of "
               "%d\n",
               (long long)bytes, ROUNDS);
        printf("1 core    %7.2f GB/s\n", moved / bench_median(times[0], ROUNDS));
        printf("%lld cores   %7.2f GB/s   %.2f times as fast\n", (long long)cores,
               moved / bench_median(times[1], ROUNDS), bench_median(ratios, ROUNDS));
    }
    free(left);
    free(right);
    return status;
}

int bench_cores(int argc, char **argv) {
    long usable = sysconf(_SC_NPROCESSORS_ONLN);
    struct cores_arguments arguments = {.cores = usable < 2     ? 2
                                                 : usable > 256 ? 256
                                                                : usable,
                                        .bytes = (int64_t)64 << 20};
    rota_comm *comms[2] = {NULL, NULL};
    char cores[16];
    cli_arguments_parse(&parser, COMMAND, argc, argv, 0, &arguments);
    snprintf(cores, sizeof(cores), "%d", (int)arguments.cores);
    int status = 0;
    for (int way = 0; way < 2 && status == 0; way++) {
        setenv("ROTA_CORES", way == 0 ? "1" : cores, 1);
        if (rota_init_threads(1, &comms[way], NULL) != ROTA_OK)
            status = fail();
    }
    if (status == 0)
        status = measure(comms, arguments.cores, arguments.bytes);
    for (int way = 0; way < 2; way++)
        if (comms[way] != NULL)
            rota_comm_destroy(comms[way]);
    return status;
}
