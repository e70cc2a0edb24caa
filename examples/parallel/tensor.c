/* Tensor parallelism: every layer is cut over the ranks, and every rank sees all samples.
 *
 *     rota run -n 4 -- parallel_tensor
 *
 * Layers come in pairs (Shoeybi et al., "Megatron-LM", 2019). The first of a pair is cut by outputs
 * (columns of W^T): each rank computes its own, from the whole input. The second is cut by inputs:
 * each rank uses the outputs that it has, and an all-reduce adds the parts. On the way back the
 * second needs nothing, and an all-reduce adds the gradients of the first's input. So a pair costs
 * one all-reduce forward and one backward. The bias of the second belongs to rank 0's part. */
#include "net.h"

#include <string.h>

#define STEPS 20
#define WIDTH 48
#define PAIRS 2

static const struct net net = {.layers = 2 * PAIRS,
                               .widths = {PIXELS, WIDTH, PIXELS, WIDTH, CLASSES}};

/* This rank's part of a pair. */
struct pair {
    int inputs, outputs, begin, width; /* hidden units begin ... begin + width - 1 are here */
    float *first, *second;             /* [width][inputs] and biases, [outputs][width] and biases */
    float *first_v, *second_v, *first_g, *second_g;
    float *hidden, *output;
    size_t first_size, second_size;
};

static struct pair pair_open(const float *params, int p, int rank, int size) {
    struct pair pair = {.inputs = net.widths[2 * p], .outputs = net.widths[2 * p + 2]};
    pair.begin = part_begin(WIDTH, rank, size);
    pair.width = part_begin(WIDTH, rank + 1, size) - pair.begin;
    pair.first_size = (size_t)pair.width * (size_t)(pair.inputs + 1);
    pair.second_size = (size_t)pair.outputs * (size_t)(pair.width + 1);
    pair.first = ALLOCATE(pair.first_size, float);
    pair.second = ALLOCATE(pair.second_size, float);
    pair.first_v = ALLOCATE(pair.first_size, float);
    pair.second_v = ALLOCATE(pair.second_size, float);
    pair.first_g = ALLOCATE(pair.first_size, float);
    pair.second_g = ALLOCATE(pair.second_size, float);
    const float *w = params + layer_begin(&net, 2 * p);
    memcpy(pair.first, w + (size_t)pair.begin * (size_t)pair.inputs,
           (size_t)pair.width * (size_t)pair.inputs * sizeof(*w));
    w = params + layer_begin(&net, 2 * p + 1); /* both biases begin at zero */
    for (int o = 0; o < pair.outputs; o++)
        memcpy(pair.second + (size_t)o * (size_t)pair.width, w + (size_t)o * WIDTH + pair.begin,
               (size_t)pair.width * sizeof(*w));
    return pair;
}

static void pair_close(struct pair *pair) {
    free(pair->first);
    free(pair->second);
    free(pair->first_v);
    free(pair->second_v);
    free(pair->first_g);
    free(pair->second_g);
}

static void sum(rota_comm *comm, float *values, size_t count) {
    check(rota_all_reduce(values, values, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL), "all_reduce",
          comm);
}

static void pair_forward(struct pair *pair, rota_comm *comm, int n, const float *x, bool last) {
    size_t count = (size_t)n * (size_t)pair->outputs;
    pair->hidden = ALLOCATE((size_t)n * (size_t)pair->width, float);
    pair->output = ALLOCATE(count, float);
    layer_forward(pair->first, pair->inputs, pair->width, true, n, x, pair->hidden);
    layer_forward(pair->second, pair->width, pair->outputs, false, n, pair->hidden, pair->output);
    sum(comm, pair->output, count);
    for (size_t i = 0; i < count && !last; i++)
        pair->output[i] = pair->output[i] > 0 ? pair->output[i] : 0;
}

static float *pair_backward(struct pair *pair, rota_comm *comm, int n, const float *x, float *delta,
                            bool last) {
    float *hidden_delta = ALLOCATE((size_t)n * (size_t)pair->width, float);
    float *before = ALLOCATE((size_t)n * (size_t)pair->inputs, float);
    memset(pair->first_g, 0, pair->first_size * sizeof(float));
    memset(pair->second_g, 0, pair->second_size * sizeof(float));
    layer_backward(pair->second, pair->width, pair->outputs, !last, n, pair->hidden, pair->output,
                   delta, pair->second_g, hidden_delta);
    layer_backward(pair->first, pair->inputs, pair->width, true, n, x, pair->hidden, hidden_delta,
                   pair->first_g, before);
    sum(comm, before, (size_t)n * (size_t)pair->inputs);
    free(hidden_delta);
    return before;
}

static void pair_step(struct pair *pair, int rank, int batch) {
    if (rank != 0) /* the bias is rank 0's: the others' would be added once more each */
        memset(pair->second_g + (size_t)pair->outputs * (size_t)pair->width, 0,
               (size_t)pair->outputs * sizeof(float));
    momentum_step(pair->first, pair->first_v, pair->first_g, pair->first_size, batch);
    momentum_step(pair->second, pair->second_v, pair->second_g, pair->second_size, batch);
    free(pair->hidden);
    free(pair->output);
}

static void step(struct pair *pairs, rota_comm *comm, int rank, const struct samples *samples) {
    int n = samples->count;
    for (int p = 0; p < PAIRS; p++)
        pair_forward(&pairs[p], comm, n, p > 0 ? pairs[p - 1].output : samples->pixels[0],
                     p + 1 == PAIRS);
    float *delta = ALLOCATE((size_t)n * CLASSES, float);
    memcpy(delta, pairs[PAIRS - 1].output, (size_t)n * CLASSES * sizeof(*delta));
    loss_backward(delta, samples->classes, n);
    for (int p = PAIRS - 1; p >= 0; p--) {
        float *before =
            pair_backward(&pairs[p], comm, n, p > 0 ? pairs[p - 1].output : samples->pixels[0],
                          delta, p + 1 == PAIRS);
        free(delta);
        delta = before;
    }
    free(delta);
    for (int p = 0; p < PAIRS; p++)
        pair_step(&pairs[p], rank, n);
}

/* Puts this rank's part of the network into its place in `params`, which is zero elsewhere. */
static void pair_place(const struct pair *pair, int p, float *params) {
    float *w = params + layer_begin(&net, 2 * p);
    size_t rows = (size_t)pair->width * (size_t)pair->inputs;
    memcpy(w + (size_t)pair->begin * (size_t)pair->inputs, pair->first, rows * sizeof(*w));
    memcpy(w + (size_t)WIDTH * (size_t)pair->inputs + pair->begin, pair->first + rows,
           (size_t)pair->width * sizeof(*w));
    w = params + layer_begin(&net, 2 * p + 1);
    for (int o = 0; o < pair->outputs; o++)
        memcpy(w + (size_t)o * WIDTH + pair->begin, pair->second + (size_t)o * (size_t)pair->width,
               (size_t)pair->width * sizeof(*w));
    memcpy(w + (size_t)pair->outputs * WIDTH,
           pair->second + (size_t)pair->outputs * (size_t)pair->width,
           (size_t)pair->outputs * sizeof(*w));
}

int main(int argc, char **argv) {
    int rank, size;
    rota_comm *comm = join(&rank, &size);
    struct samples samples = samples_read(argc, argv, 120);
    size_t count = net_size(&net);
    float *params = ALLOCATE(count, float), *alone = ALLOCATE(count, float);
    struct pair pairs[PAIRS];
    net_init(&net, alone);
    for (int p = 0; p < PAIRS; p++)
        pairs[p] = pair_open(alone, p, rank, size);
    for (int s = 0; s < STEPS; s++)
        step(pairs, comm, rank, &samples);
    for (int p = 0; p < PAIRS; p++) {
        pair_place(&pairs[p], p, params);
        pair_close(&pairs[p]);
    }
    sum(comm, params, count);
    train_alone(&net, &samples, STEPS, 1, alone);
    compare("tensor parallel", params, alone, count, 1e-5, comm);
    free(params);
    free(alone);
    samples_free(&samples);
    leave(comm);
    return 0;
}
