/* LightGBM's two functions as two calls of rota: a reduce-scatter by a reducer of LightGBM's, with
 * a table of blocks, and an all-gather with one. Elements are opaque to rota; an element that is
 * larger than it takes goes by an all-to-all and is reduced here. */
#include "rota_lightgbm.h"

#include "file_store.h"

#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define OPERATORS_MAX 16

EXPORT long n_rs, n_ag, b_rs, b_ag;
EXPORT long t_hist[64];

/* A reducer of LightGBM's and the operator that stands for it. */
struct operator_of_reducer {
    lightgbm_reducer reducer;
    rota_op op;
};

static struct {
    rota_comm *comm;
    int rank, nranks;
    struct operator_of_reducer operators[OPERATORS_MAX];
    int operator_count;
    size_t *counts, *displs; /* of blocks, nranks each */
    char *aside;
    size_t aside_bytes;
} network;

static void die(const char *what) {
    rota_error record = ROTA_ERROR_INIT;
    if (network.comm != NULL)
        (void)rota_comm_error(network.comm, &record);
    if (record.message[0] == '\0')
        (void)rota_last_error(&record);
    fprintf(stderr, "rota_lightgbm: %s failed: %s\n", what,
            record.message[0] != '\0' ? record.message : "out of memory");
    fflush(stderr);
    _Exit(1);
}

static char *aside(size_t bytes) {
    if (bytes > network.aside_bytes) {
        free(network.aside);
        network.aside = malloc(bytes);
        network.aside_bytes = network.aside != NULL ? bytes : 0;
        if (network.aside == NULL)
            die("a copy");
    }
    return network.aside;
}

static void reduce(const void *left, void *right_inout, size_t count, rota_dtype dtype, void *arg) {
    const struct operator_of_reducer *entry = arg;
    int size = (int)rota_dtype_size(dtype);
    entry->reducer(left, right_inout, size, (int32_t)(count * (size_t)size));
}

/* LightGBM's reducers commute: its own sockets combine in an order that depends on the number of
 * ranks. They get operators in the order in which they come, which is the same on all ranks. */
static rota_op operator_of(lightgbm_reducer reducer) {
    for (int i = 0; i < network.operator_count; i++)
        if (network.operators[i].reducer == reducer)
            return network.operators[i].op;
    if (network.operator_count == OPERATORS_MAX)
        die("more than 16 reducers: a reduction");
    struct operator_of_reducer *entry = &network.operators[network.operator_count];
    entry->reducer = reducer;
    if (rota_op_create(reduce, entry, true, NULL, network.comm, &entry->op) != ROTA_OK)
        die("an operator");
    network.operator_count++;
    return entry->op;
}

/* Blocks in units of `size` bytes. */
static void take_blocks(const int32_t *start, const int32_t *length, int size) {
    for (int r = 0; r < network.nranks; r++) {
        network.counts[r] = (size_t)length[r] / (size_t)size;
        network.displs[r] = (size_t)start[r] / (size_t)size;
    }
}

static bool divisible(const int32_t *start, const int32_t *length, int size) {
    for (int r = 0; r < network.nranks; r++)
        if (start[r] % size != 0 || length[r] % size != 0)
            return false;
    return true;
}

/* Everybody's version of this rank's block comes here, and is reduced in the order of ranks. */
static void reduce_large(char *input, int type_size, int32_t own, char *output,
                         lightgbm_reducer reducer) {
    size_t n = (size_t)network.nranks, bytes = (size_t)own;
    char *blocks = aside(n * bytes + 1);
    size_t *taken = calloc(n, sizeof(*taken));
    if (taken == NULL)
        die("a copy");
    for (size_t r = 0; r < n; r++)
        taken[r] = bytes;
    if (rota_all_to_allv(input, network.counts, network.displs, blocks, taken, NULL, ROTA_UINT8,
                         network.comm, NULL) != ROTA_OK)
        die("reduce-scatter");
    free(taken);
    memcpy(output, blocks, bytes);
    for (size_t r = 1; r < n; r++)
        reducer(blocks + r * bytes, output, type_size, own);
}

EXPORT void shim_reduce_scatter(char *input, int32_t input_size, int type_size,
                                const int32_t *block_start, const int32_t *block_len, int num_block,
                                char *output, int32_t output_size,
                                const lightgbm_reducer *reducer) {
    int32_t own = block_len[network.rank];
    if (network.comm == NULL || num_block != network.nranks || output_size < own)
        die("reduce-scatter: blocks that are not one for each rank");
    n_rs++;
    b_rs += input_size;
    t_hist[type_size < 63 ? type_size : 63]++;
    if (type_size > ROTA_DTYPE_BYTES_MAX || !divisible(block_start, block_len, type_size)) {
        take_blocks(block_start, block_len, 1);
        reduce_large(input, type_size, own, output, *reducer);
        return;
    }
    take_blocks(block_start, block_len, type_size);
    if (rota_reduce_scatterv(input, network.counts, network.displs, output,
                             network.counts[network.rank], rota_dtype_bytes((size_t)type_size),
                             operator_of(*reducer), network.comm, NULL) != ROTA_OK)
        die("reduce-scatter");
}

EXPORT void shim_allgather(char *input, int32_t input_size, const int32_t *block_start,
                           const int32_t *block_len, int num_block, char *output,
                           int32_t output_size) {
    if (network.comm == NULL || num_block != network.nranks)
        die("all-gather: blocks that are not one for each rank");
    n_ag++;
    b_ag += output_size;
    size_t own = (size_t)block_len[network.rank];
    const char *place = output + block_start[network.rank];
    const char *send = input;
    if (input_size < 0 || (size_t)input_size < own)
        die("all-gather: a block longer than its input");
    /* Input and output may be the same memory, the block at its beginning. */
    if (input != place && input < output + output_size && output < input + own) {
        char *copy = aside(own + 1);
        memcpy(copy, input, own);
        send = copy;
    }
    take_blocks(block_start, block_len, 1);
    if (rota_all_gatherv(send, own, output, network.counts, network.displs, ROTA_UINT8,
                         network.comm, NULL) != ROTA_OK)
        die("all-gather");
}

EXPORT int shim_init(const char *id, int rank, int n, size_t max_bytes) {
    (void)max_bytes;
    if (network.comm != NULL || id == NULL || n < 1) {
        fprintf(stderr, "rota_lightgbm: joined already, or no such job\n");
        return 1;
    }
    struct file_store files;
    rota_store store;
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = n;
    config.rank = rank;
    config.name = "lightgbm";
    bool by_file = getenv("ROTA_ROOT") == NULL && getenv("MASTER_ADDR") == NULL;
    if (by_file && file_store_open(&files, id, &store) != 0) {
        fprintf(stderr, "rota_lightgbm: no file can be named for the job \"%s\"\n", id);
        return 1;
    }
    if (by_file)
        config.store = &store;
    rota_status status = rota_init(&config, &network.comm, NULL);
    if (by_file && rank == 0)
        file_store_remove(&files); /* all have read it, or this run has failed */
    network.counts = calloc((size_t)n, sizeof(*network.counts));
    network.displs = calloc((size_t)n, sizeof(*network.displs));
    network.rank = rank;
    network.nranks = n;
    if (status == ROTA_OK && network.counts != NULL && network.displs != NULL)
        return 0;
    rota_error record = ROTA_ERROR_INIT;
    (void)rota_last_error(&record);
    fprintf(stderr, "rota_lightgbm: %s\n", record.message);
    shim_fini();
    return 1;
}

EXPORT void shim_fini(void) {
    (void)rota_comm_destroy(network.comm);
    free(network.counts);
    free(network.displs);
    free(network.aside);
    memset(&network, 0, sizeof network);
}
