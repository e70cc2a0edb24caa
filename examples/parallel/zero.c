/* ZeRO: data parallelism in which every rank keeps its share only of what need not be everywhere.
 *
 *     rota run -n 4 -- parallel_zero
 *
 * Each layer's parameters are padded and cut into one shard per rank; a rank updates its shards.
 *   stage 1: the optimizer's state is sharded. Gradients are summed everywhere (all-reduce), each
 *            rank steps its shard, the new parameters are gathered.
 *   stage 2: so are the gradients: reduce-scatter in place of the all-reduce.
 *   stage 3: so are the parameters: a layer is gathered before it is used, while the layer before
 *            it computes, and dropped after it; its gradient goes out by a reduce-scatter that
 *            runs beside the backward pass of the next.
 * After Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
 * (2020). The sums are reproducible, so all three end with the bits of one rank. */
#include "net.h"

#include <string.h>

#define STEPS 20

static const struct net net = {.layers = 4, .widths = {PIXELS, 40, 40, 24, CLASSES}};

/* One layer as a rank sees it. */
struct shard {
    size_t size;                     /* of the layer, without padding */
    size_t length;                   /* of one rank's shard */
    float *params, *velocity, *grad; /* this rank's shard */
    float *whole;                    /* gathered parameters: nranks * length; NULL when dropped */
    float *whole_grad;
    rota_request *gathering, *reducing;
};

struct trainer {
    rota_comm *comm;
    int rank, size, stage;
    struct shard shards[MAX_LAYERS];
    const struct samples *samples;
    int first, n;
    size_t bytes, most_bytes; /* of parameters, gradients and state held, now and at most */
};

static float *hold(struct trainer *t, size_t count) {
    t->bytes += count * sizeof(float);
    t->most_bytes = t->bytes > t->most_bytes ? t->bytes : t->most_bytes;
    return ALLOCATE(count, float);
}

static void drop(struct trainer *t, float **values, size_t count) {
    t->bytes -= count * sizeof(float);
    free(*values);
    *values = NULL;
}

static size_t padded(const struct trainer *t, const struct shard *shard) {
    return shard->length * (size_t)t->size;
}

static void finish(rota_comm *comm, rota_request **request) {
    if (*request == NULL)
        return;
    check(rota_request_wait(*request, 0), "wait", comm);
    rota_request_free(*request);
    *request = NULL;
}

static void trainer_open(struct trainer *t) {
    float *initial = ALLOCATE(net_size(&net), float);
    net_init(&net, initial);
    for (int l = 0; l < net.layers; l++) {
        struct shard *shard = &t->shards[l];
        shard->size = layer_size(&net, l);
        shard->length = (shard->size + (size_t)t->size - 1) / (size_t)t->size;
        shard->params = hold(t, shard->length);
        shard->velocity = hold(t, shard->length);
        shard->grad = hold(t, shard->length);
        size_t begin = shard->length * (size_t)t->rank;
        for (size_t i = 0; i < shard->length && begin + i < shard->size; i++)
            shard->params[i] = initial[layer_begin(&net, l) + begin + i];
    }
    free(initial);
}

/* Starts to gather a layer's parameters, unless they are there or on their way. */
static void gather_start(struct trainer *t, int l) {
    if (l < 0 || l >= net.layers || t->shards[l].whole != NULL)
        return;
    struct shard *shard = &t->shards[l];
    rota_call call = ROTA_CALL_INIT;
    call.request = &shard->gathering;
    shard->whole = hold(t, padded(t, shard));
    check(rota_all_gather(shard->params, shard->whole, shard->length, ROTA_FLOAT32, t->comm, &call),
          "all_gather", t->comm);
}

/* Waits for layer l and, in stage 3, starts the one that is needed next. */
static const float *gather(struct trainer *t, int l, int next) {
    gather_start(t, l);
    finish(t->comm, &t->shards[l].gathering);
    if (t->stage == 3)
        gather_start(t, next);
    return t->shards[l].whole;
}

static void release(struct trainer *t, int l) {
    if (t->stage == 3)
        drop(t, &t->shards[l].whole, padded(t, &t->shards[l]));
}

/* Sums a layer's gradient over ranks: of the whole layer in stage 1, else of this rank's shard. */
static void reduce_start(struct trainer *t, int l) {
    struct shard *shard = &t->shards[l];
    rota_call call = ROTA_CALL_INIT;
    call.request = &shard->reducing;
    call.numerics = ROTA_NUMERICS_REPRODUCIBLE;
    if (t->stage == 1)
        check(rota_all_reduce(shard->whole_grad, shard->whole_grad, padded(t, shard), ROTA_FLOAT32,
                              ROTA_SUM, t->comm, &call),
              "all_reduce", t->comm);
    else
        check(rota_reduce_scatter(shard->whole_grad, shard->grad, shard->length, ROTA_FLOAT32,
                                  ROTA_SUM, t->comm, &call),
              "reduce_scatter", t->comm);
}

static void step_layer(struct trainer *t, int l) {
    struct shard *shard = &t->shards[l];
    finish(t->comm, &shard->reducing);
    if (t->stage == 1)
        memcpy(shard->grad, shard->whole_grad + shard->length * (size_t)t->rank,
               shard->length * sizeof(float));
    drop(t, &shard->whole_grad, padded(t, shard));
    momentum_step(shard->params, shard->velocity, shard->grad, shard->length, t->samples->count);
    if (t->stage < 3) {
        drop(t, &shard->whole, padded(t, shard));
        gather_start(t, l);
    }
}

static void step(struct trainer *t) {
    float *values[MAX_LAYERS + 1] = {t->n > 0 ? t->samples->pixels[t->first] : NULL};
    int last = net.layers - 1;
    for (int l = 0; l <= last; l++) {
        values[l + 1] = ALLOCATE((size_t)t->n * (size_t)net.widths[l + 1], float);
        layer_forward(gather(t, l, l + 1), net.widths[l], net.widths[l + 1], l < last, t->n,
                      values[l], values[l + 1]);
        if (l < last)
            release(t, l);
    }
    float *delta = ALLOCATE((size_t)t->n * CLASSES, float);
    memcpy(delta, values[net.layers], (size_t)t->n * CLASSES * sizeof(*delta));
    loss_backward(delta, t->samples->classes + t->first, t->n);
    for (int l = last; l >= 0; l--) {
        float *before = ALLOCATE((size_t)t->n * (size_t)net.widths[l], float);
        t->shards[l].whole_grad = hold(t, padded(t, &t->shards[l]));
        layer_backward(gather(t, l, l - 1), net.widths[l], net.widths[l + 1], l < last, t->n,
                       values[l], values[l + 1], delta, t->shards[l].whole_grad, before);
        release(t, l);
        reduce_start(t, l);
        if (t->stage > 1 && l < last)
            step_layer(t, l + 1); /* its reduction ran beside this layer's backward pass */
        free(delta);
        free(values[l + 1]);
        delta = before;
    }
    free(delta);
    for (int l = t->stage > 1 ? 0 : last; l >= 0; l--)
        step_layer(t, l);
}

/* The whole network, for the comparison. */
static void collect(struct trainer *t, float *params) {
    for (int l = 0; l < net.layers; l++) {
        memcpy(params + layer_begin(&net, l), gather(t, l, -1), t->shards[l].size * sizeof(float));
        drop(t, &t->shards[l].whole, padded(t, &t->shards[l]));
    }
}

static void trainer_close(struct trainer *t) {
    for (int l = 0; l < net.layers; l++) {
        drop(t, &t->shards[l].params, t->shards[l].length);
        drop(t, &t->shards[l].velocity, t->shards[l].length);
        drop(t, &t->shards[l].grad, t->shards[l].length);
    }
}

int main(int argc, char **argv) {
    int rank, size;
    rota_comm *comm = join(&rank, &size);
    struct samples samples = samples_read(argc, argv, 240);
    float *params = ALLOCATE(net_size(&net), float), *alone = ALLOCATE(net_size(&net), float);
    net_init(&net, alone);
    train_alone(&net, &samples, STEPS, size, alone);
    int first = part_begin(samples.count, rank, size);
    for (int stage = 1; stage <= 3; stage++) {
        struct trainer t = {.comm = comm,
                            .rank = rank,
                            .size = size,
                            .stage = stage,
                            .samples = &samples,
                            .first = first,
                            .n = part_begin(samples.count, rank + 1, size) - first};
        char what[64];
        trainer_open(&t);
        for (int s = 0; s < STEPS; s++)
            step(&t);
        collect(&t, params);
        snprintf(what, sizeof(what), "ZeRO stage %d (%zu kB at most)", stage, t.most_bytes / 1000);
        trainer_close(&t);
        compare(what, params, alone, net_size(&net), 0, comm);
    }
    free(params);
    free(alone);
    samples_free(&samples);
    leave(comm);
    return 0;
}
