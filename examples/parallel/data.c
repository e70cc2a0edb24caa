/* Data parallelism: every rank holds the whole network and works on its part of the samples.
 *
 *     rota run -n 4 -- parallel_data
 *
 * The gradient is summed by one all-reduce per layer, started as soon as the backward pass has
 * produced it, so that communication of one layer goes on beside the computation of the one before.
 * In mode `reproducible` the sum is the aligned tree over ranks, whatever the transport or the
 * algorithm, so the weights end with the bits that one rank gets when it adds in that tree. */
#include "net.h"

#include <string.h>

#define STEPS 20

static const struct net net = {.layers = 3, .widths = {PIXELS, 48, 32, CLASSES}};

/* The gradient of this rank's samples, each layer's sum over ranks started when it is there. */
static void step(rota_comm *comm, const struct samples *samples, int first, int n,
                 const float *params, float *grad, rota_request **requests) {
    float *values[MAX_LAYERS + 1] = {n > 0 ? samples->pixels[first] : NULL};
    float *delta = NULL;
    for (int l = 0; l < net.layers; l++) {
        values[l + 1] = ALLOCATE((size_t)n * (size_t)net.widths[l + 1], float);
        layer_forward(params + layer_begin(&net, l), net.widths[l], net.widths[l + 1],
                      l + 1 < net.layers, n, values[l], values[l + 1]);
    }
    delta = ALLOCATE((size_t)n * CLASSES, float);
    memcpy(delta, values[net.layers], (size_t)n * CLASSES * sizeof(*delta));
    loss_backward(delta, samples->classes + first, n);
    for (int l = net.layers - 1; l >= 0; l--) {
        size_t begin = layer_begin(&net, l), size = layer_size(&net, l);
        float *before = ALLOCATE((size_t)n * (size_t)net.widths[l], float);
        layer_backward(params + begin, net.widths[l], net.widths[l + 1], l + 1 < net.layers, n,
                       values[l], values[l + 1], delta, grad + begin, before);
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[l];
        call.numerics = ROTA_NUMERICS_REPRODUCIBLE;
        check(
            rota_all_reduce(grad + begin, grad + begin, size, ROTA_FLOAT32, ROTA_SUM, comm, &call),
            "all_reduce", comm);
        free(delta);
        free(values[l + 1]);
        delta = before;
    }
    free(delta);
}

int main(int argc, char **argv) {
    int rank, size;
    rota_comm *comm = join(&rank, &size);
    struct samples samples = samples_read(argc, argv, 240);
    size_t count = net_size(&net);
    float *params = ALLOCATE(count, float), *velocity = ALLOCATE(count, float);
    float *grad = ALLOCATE(count, float), *alone = ALLOCATE(count, float);
    rota_request *requests[MAX_LAYERS];
    int first = part_begin(samples.count, rank, size);
    int mine = part_begin(samples.count, rank + 1, size) - first;

    net_init(&net, params);
    for (int s = 0; s < STEPS; s++) {
        memset(grad, 0, count * sizeof(*grad));
        step(comm, &samples, first, mine, params, grad, requests);
        for (int l = net.layers - 1; l >= 0; l--) {
            check(rota_request_wait(requests[l], 0), "wait", comm);
            rota_request_free(requests[l]);
        }
        momentum_step(params, velocity, grad, count, samples.count);
    }
    net_init(&net, alone);
    train_alone(&net, &samples, STEPS, size, alone);
    compare("data parallel", params, alone, count, 0, comm);
    free(params);
    free(velocity);
    free(grad);
    free(alone);
    samples_free(&samples);
    leave(comm);
    return 0;
}
