/* Pipeline parallelism: each rank holds some consecutive layers; micro-batches flow through them.
 *
 *     rota run -n 4 -- parallel_pipeline
 *
 * Two schedules. GPipe (Huang et al., 2019) runs all micro-batches forward, then all backward, and
 * holds the activations of all of them. 1F1B (Narayanan et al., "PipeDream", 2019) begins the
 * backward pass of a micro-batch as soon as it can, so that stage s of n holds n - s of them. The
 * order of backward passes is the same, and gradients are added sample by sample, so both end with
 * the bits of one rank. */
#include "net.h"

#include <string.h>

#define STEPS 10
#define MICRO_BATCHES 8

static const struct net net = {.layers = 6, .widths = {PIXELS, 40, 36, 32, 28, 24, CLASSES}};

enum tag { FORWARD = 1, BACKWARD = 2 };

struct stage {
    rota_comm *comm;
    int rank, size;
    int first, last; /* layers first ... last - 1 are here */
    float *params, *velocity, *grad;
    const struct samples *samples;
    /* Of each micro-batch under way: the values between layers, [0] being the input. */
    float *values[MICRO_BATCHES][MAX_LAYERS + 1];
    int held, most_held;
};

static int batch_begin(const struct stage *stage, int micro) {
    return part_begin(stage->samples->count, micro, MICRO_BATCHES);
}

static int batch_size(const struct stage *stage, int micro) {
    return batch_begin(stage, micro + 1) - batch_begin(stage, micro);
}

static float *layer(float *vector, int l) {
    return vector + layer_begin(&net, l);
}

static void forward(struct stage *stage, int micro) {
    int n = batch_size(stage, micro);
    float **values = stage->values[micro];
    values[stage->first] = ALLOCATE((size_t)n * (size_t)net.widths[stage->first], float);
    if (stage->rank == 0)
        memcpy(values[0], stage->samples->pixels[batch_begin(stage, micro)],
               (size_t)n * PIXELS * sizeof(float));
    else
        check(rota_recv(values[stage->first], (size_t)n * (size_t)net.widths[stage->first],
                        ROTA_FLOAT32, stage->rank - 1, FORWARD, stage->comm, NULL, NULL),
              "recv", stage->comm);
    for (int l = stage->first; l < stage->last; l++) {
        values[l + 1] = ALLOCATE((size_t)n * (size_t)net.widths[l + 1], float);
        layer_forward(layer(stage->params, l), net.widths[l], net.widths[l + 1], l + 1 < net.layers,
                      n, values[l], values[l + 1]);
    }
    if (stage->rank + 1 < stage->size)
        check(rota_send(values[stage->last], (size_t)n * (size_t)net.widths[stage->last],
                        ROTA_FLOAT32, stage->rank + 1, FORWARD, stage->comm, NULL),
              "send", stage->comm);
    stage->held++;
    stage->most_held = stage->held > stage->most_held ? stage->held : stage->most_held;
}

/* The gradient of what this stage put out. */
static float *output_delta(struct stage *stage, int micro) {
    int n = batch_size(stage, micro);
    size_t count = (size_t)n * (size_t)net.widths[stage->last];
    float *delta = ALLOCATE(count, float);
    if (stage->rank + 1 == stage->size) {
        memcpy(delta, stage->values[micro][stage->last], count * sizeof(*delta));
        loss_backward(delta, stage->samples->classes + batch_begin(stage, micro), n);
    } else {
        check(rota_recv(delta, count, ROTA_FLOAT32, stage->rank + 1, BACKWARD, stage->comm, NULL,
                        NULL),
              "recv", stage->comm);
    }
    return delta;
}

static void backward(struct stage *stage, int micro) {
    int n = batch_size(stage, micro);
    float **values = stage->values[micro], *delta = output_delta(stage, micro);
    for (int l = stage->last - 1; l >= stage->first; l--) {
        float *before = ALLOCATE((size_t)n * (size_t)net.widths[l], float);
        layer_backward(layer(stage->params, l), net.widths[l], net.widths[l + 1],
                       l + 1 < net.layers, n, values[l], values[l + 1], delta,
                       layer(stage->grad, l), before);
        free(delta);
        delta = before;
    }
    if (stage->rank > 0)
        check(rota_send(delta, (size_t)n * (size_t)net.widths[stage->first], ROTA_FLOAT32,
                        stage->rank - 1, BACKWARD, stage->comm, NULL),
              "send", stage->comm);
    free(delta);
    for (int l = stage->first; l <= stage->last; l++)
        free(values[l]);
    stage->held--;
}

static void run_gpipe(struct stage *stage) {
    for (int m = 0; m < MICRO_BATCHES; m++)
        forward(stage, m);
    for (int m = 0; m < MICRO_BATCHES; m++)
        backward(stage, m);
}

static void run_1f1b(struct stage *stage) {
    int ahead = stage->size - 1 - stage->rank; /* forward passes before the first backward one */
    ahead = ahead < MICRO_BATCHES ? ahead : MICRO_BATCHES;
    for (int m = 0; m < ahead; m++)
        forward(stage, m);
    for (int m = 0; m < MICRO_BATCHES; m++) {
        if (m + ahead < MICRO_BATCHES)
            forward(stage, m + ahead);
        backward(stage, m);
    }
}

static void train(struct stage *stage, void (*schedule)(struct stage *stage)) {
    size_t begin = layer_begin(&net, stage->first);
    size_t count = layer_begin(&net, stage->last) - begin;
    net_init(&net, stage->params);
    memset(stage->velocity, 0, net_size(&net) * sizeof(float));
    stage->most_held = 0;
    for (int s = 0; s < STEPS; s++) {
        memset(stage->grad, 0, net_size(&net) * sizeof(float));
        schedule(stage);
        momentum_step(stage->params + begin, stage->velocity + begin, stage->grad + begin, count,
                      stage->samples->count);
    }
}

/* Each stage tells its layers to all. */
static void collect(struct stage *stage) {
    for (int r = 0; r < stage->size; r++) {
        size_t begin = layer_begin(&net, part_begin(net.layers, r, stage->size));
        size_t end = layer_begin(&net, part_begin(net.layers, r + 1, stage->size));
        check(rota_broadcast(stage->params + begin, stage->params + begin, end - begin,
                             ROTA_FLOAT32, r, stage->comm, NULL),
              "broadcast", stage->comm);
    }
}

int main(int argc, char **argv) {
    struct samples samples = samples_read(argc, argv, 160);
    struct stage stage = {.samples = &samples};
    size_t count = net_size(&net);
    stage.comm = join(&stage.rank, &stage.size);
    if (stage.size > net.layers) {
        fprintf(stderr, "at most %d ranks: one layer each\n", net.layers);
        return 2;
    }
    stage.first = part_begin(net.layers, stage.rank, stage.size);
    stage.last = part_begin(net.layers, stage.rank + 1, stage.size);
    stage.params = ALLOCATE(count, float);
    stage.velocity = ALLOCATE(count, float);
    stage.grad = ALLOCATE(count, float);
    float *alone = ALLOCATE(count, float);
    net_init(&net, alone);
    train_alone(&net, &samples, STEPS, 1, alone);
    static const struct {
        const char *name;
        void (*run)(struct stage *stage);
    } schedules[] = {{"GPipe", run_gpipe}, {"1F1B", run_1f1b}};
    for (int i = 0; i < 2; i++) {
        char what[64];
        train(&stage, schedules[i].run);
        collect(&stage);
        snprintf(what, sizeof(what), "pipeline, %s (rank 0 held %d micro-batches)",
                 schedules[i].name, stage.most_held);
        compare(what, stage.params, alone, count, 0, stage.comm);
    }
    free(stage.params);
    free(stage.velocity);
    free(stage.grad);
    free(alone);
    samples_free(&samples);
    leave(stage.comm);
    return 0;
}
