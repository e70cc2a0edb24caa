/* Three ways at once: data x pipeline x tensor parallelism on a grid of ranks.
 *
 *     rota run -n 8 -- parallel_grid
 *
 * The world is split three times: into tensor groups (neighbours, which talk most), pipelines and
 * data groups. Each pipeline stage is a pair of layers cut over its tensor group (as in tensor.c);
 * micro-batches go through the stages (as in pipeline.c, GPipe); gradients are summed over the data
 * group. 8 ranks make 2 x 2 x 2, 4 make 1 x 2 x 2, 2 make 1 x 1 x 2. */
#include "net.h"

#include <string.h>

#define STEPS 10
#define MICRO_BATCHES 4
#define STAGES_MOST 2
#define WIDTH 48

static const struct net net = {.layers = 2 * STAGES_MOST,
                               .widths = {PIXELS, WIDTH, PIXELS, WIDTH, CLASSES}};

struct grid {
    rota_comm *world, *tensor, *pipeline, *data;
    int rank, size;
    int tensors, stages, copies; /* extents of the grid */
    int tensor_rank, stage, copy;
};

/* One pair of layers, this tensor rank's part of it, with the activations of its micro-batches. */
struct pair {
    int index, inputs, outputs, width;
    size_t first_size, size; /* of the first layer's part, and of both */
    float *params, *velocity, *grad;
    float *x[MICRO_BATCHES], *hidden[MICRO_BATCHES], *y[MICRO_BATCHES];
};

static int factor(int *left, int most) {
    int by = 1;
    while (by * 2 <= most && *left % 2 == 0) {
        by *= 2;
        *left /= 2;
    }
    return by;
}

static rota_comm *split(rota_comm *world, int color, int key, const char *name) {
    rota_comm *comm = NULL;
    check(rota_comm_split(world, color, key, name, &comm, NULL), "split", world);
    return comm;
}

static struct grid grid_open(void) {
    struct grid g;
    g.world = join(&g.rank, &g.size);
    int left = g.size;
    g.tensors = factor(&left, 2);
    g.stages = factor(&left, STAGES_MOST);
    g.copies = left;
    g.tensor_rank = g.rank % g.tensors;
    g.stage = g.rank / g.tensors % g.stages;
    g.copy = g.rank / (g.tensors * g.stages);
    g.tensor = split(g.world, g.rank / g.tensors, g.rank, "tensor");
    g.pipeline = split(g.world, g.copy * g.tensors + g.tensor_rank, g.stage, "pipeline");
    g.data = split(g.world, g.stage * g.tensors + g.tensor_rank, g.copy, "data");
    return g;
}

static void grid_close(struct grid *g) {
    check(rota_comm_destroy(g->tensor), "destroy", NULL);
    check(rota_comm_destroy(g->pipeline), "destroy", NULL);
    check(rota_comm_destroy(g->data), "destroy", NULL);
    leave(g->world);
}

static void sum(rota_comm *comm, float *values, size_t count) {
    check(rota_all_reduce(values, values, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL), "all_reduce",
          comm);
}

/* Copies this rank's part out of the whole network's vector, or back into it. */
static void pair_copy(const struct grid *g, const struct pair *pair, float *whole, bool back) {
    int begin = part_begin(WIDTH, g->tensor_rank, g->tensors);
    float *w1 = whole + layer_begin(&net, 2 * pair->index);
    float *w2 = whole + layer_begin(&net, 2 * pair->index + 1);
    size_t in = (size_t)pair->inputs, width = (size_t)pair->width;
    struct run {
        float *here, *there;
        size_t count;
    } runs[3 + PIXELS] = {{pair->params, w1 + (size_t)begin * in, width * in},
                          {pair->params + width * in, w1 + WIDTH * in + begin, width}};
    int n = 2;
    float *second = pair->params + pair->first_size;
    for (int o = 0; o < pair->outputs; o++)
        runs[n++] = (struct run){second + (size_t)o * width, w2 + (size_t)o * WIDTH + begin, width};
    if (g->tensor_rank == 0)
        runs[n++] = (struct run){second + (size_t)pair->outputs * width,
                                 w2 + (size_t)pair->outputs * WIDTH, (size_t)pair->outputs};
    for (int i = 0; i < n; i++)
        memcpy(back ? runs[i].there : runs[i].here, back ? runs[i].here : runs[i].there,
               runs[i].count * sizeof(float));
}

static struct pair pair_open(const struct grid *g, int index, float *whole) {
    struct pair pair = {
        .index = index, .inputs = net.widths[2 * index], .outputs = net.widths[2 * index + 2]};
    pair.width = part_begin(WIDTH, g->tensor_rank + 1, g->tensors) -
                 part_begin(WIDTH, g->tensor_rank, g->tensors);
    pair.first_size = (size_t)pair.width * (size_t)(pair.inputs + 1);
    pair.size = pair.first_size + (size_t)pair.outputs * (size_t)(pair.width + 1);
    pair.params = ALLOCATE(pair.size, float);
    pair.velocity = ALLOCATE(pair.size, float);
    pair.grad = ALLOCATE(pair.size, float);
    pair_copy(g, &pair, whole, false);
    return pair;
}

static void pair_close(struct pair *pair) {
    free(pair->params);
    free(pair->velocity);
    free(pair->grad);
}

/* Takes over `x`. */
static float *pair_forward(const struct grid *g, struct pair *pair, int micro, int n, float *x) {
    bool last = pair->index + 1 == STAGES_MOST;
    size_t count = (size_t)n * (size_t)pair->outputs;
    float *hidden = ALLOCATE((size_t)n * (size_t)pair->width, float), *y = ALLOCATE(count, float);
    layer_forward(pair->params, pair->inputs, pair->width, true, n, x, hidden);
    layer_forward(pair->params + pair->first_size, pair->width, pair->outputs, false, n, hidden, y);
    sum(g->tensor, y, count);
    for (size_t i = 0; i < count && !last; i++)
        y[i] = y[i] > 0 ? y[i] : 0;
    pair->x[micro] = x;
    pair->hidden[micro] = hidden;
    pair->y[micro] = y;
    return y;
}

/* Takes over `delta`. */
static float *pair_backward(const struct grid *g, struct pair *pair, int micro, int n,
                            float *delta) {
    bool last = pair->index + 1 == STAGES_MOST;
    float *hidden_delta = ALLOCATE((size_t)n * (size_t)pair->width, float);
    float *before = ALLOCATE((size_t)n * (size_t)pair->inputs, float);
    layer_backward(pair->params + pair->first_size, pair->width, pair->outputs, !last, n,
                   pair->hidden[micro], pair->y[micro], delta, pair->grad + pair->first_size,
                   hidden_delta);
    layer_backward(pair->params, pair->inputs, pair->width, true, n, pair->x[micro],
                   pair->hidden[micro], hidden_delta, pair->grad, before);
    sum(g->tensor, before, (size_t)n * (size_t)pair->inputs);
    free(delta);
    free(hidden_delta);
    free(pair->x[micro]);
    free(pair->hidden[micro]);
    free(pair->y[micro]);
    return before;
}

/* The pairs of this stage are pairs[0 ... npairs - 1]. */
static void forward(const struct grid *g, struct pair *pairs, int npairs, int micro,
                    const struct samples *samples, int first, int n) {
    size_t in = (size_t)n * (size_t)pairs[0].inputs;
    float *x = ALLOCATE(in, float);
    if (g->stage == 0)
        memcpy(x, samples->pixels[first], in * sizeof(*x));
    else
        check(rota_recv(x, in, ROTA_FLOAT32, g->stage - 1, 1, g->pipeline, NULL, NULL), "recv",
              g->pipeline);
    for (int p = 0; p < npairs; p++) {
        float *y = pair_forward(g, &pairs[p], micro, n, x);
        size_t out = (size_t)n * (size_t)pairs[p].outputs;
        if (p + 1 < npairs) {
            x = ALLOCATE(out, float);
            memcpy(x, y, out * sizeof(*x));
        } else if (g->stage + 1 < g->stages) {
            check(rota_send(y, out, ROTA_FLOAT32, g->stage + 1, 1, g->pipeline, NULL), "send",
                  g->pipeline);
        }
    }
}

static void backward(const struct grid *g, struct pair *pairs, int npairs, int micro,
                     const struct samples *samples, int first, int n) {
    struct pair *last = &pairs[npairs - 1];
    size_t out = (size_t)n * (size_t)last->outputs;
    float *delta = ALLOCATE(out, float);
    if (g->stage + 1 == g->stages) {
        memcpy(delta, last->y[micro], out * sizeof(*delta));
        loss_backward(delta, samples->classes + first, n);
    } else {
        check(rota_recv(delta, out, ROTA_FLOAT32, g->stage + 1, 2, g->pipeline, NULL, NULL), "recv",
              g->pipeline);
    }
    for (int p = npairs - 1; p >= 0; p--)
        delta = pair_backward(g, &pairs[p], micro, n, delta);
    if (g->stage > 0)
        check(rota_send(delta, (size_t)n * (size_t)pairs[0].inputs, ROTA_FLOAT32, g->stage - 1, 2,
                        g->pipeline, NULL),
              "send", g->pipeline);
    free(delta);
}

static void step(const struct grid *g, struct pair *pairs, int npairs,
                 const struct samples *samples) {
    int begin = part_begin(samples->count, g->copy, g->copies);
    int mine = part_begin(samples->count, g->copy + 1, g->copies) - begin;
    for (int p = 0; p < npairs; p++)
        memset(pairs[p].grad, 0, pairs[p].size * sizeof(float));
    for (int back = 0; back < 2; back++)
        for (int m = 0; m < MICRO_BATCHES; m++) {
            int first = begin + part_begin(mine, m, MICRO_BATCHES);
            int n = begin + part_begin(mine, m + 1, MICRO_BATCHES) - first;
            (back ? backward : forward)(g, pairs, npairs, m, samples, first, n);
        }
    for (int p = 0; p < npairs; p++) {
        if (g->tensor_rank != 0) /* the second layer's bias is tensor rank 0's */
            memset(pairs[p].grad + pairs[p].size - pairs[p].outputs, 0,
                   (size_t)pairs[p].outputs * sizeof(float));
        sum(g->data, pairs[p].grad, pairs[p].size);
        momentum_step(pairs[p].params, pairs[p].velocity, pairs[p].grad, pairs[p].size,
                      samples->count);
    }
}

int main(int argc, char **argv) {
    struct grid g = grid_open();
    struct samples samples = samples_read(argc, argv, 120);
    size_t count = net_size(&net);
    float *params = ALLOCATE(count, float), *alone = ALLOCATE(count, float);
    struct pair pairs[STAGES_MOST];
    int first = part_begin(STAGES_MOST, g.stage, g.stages);
    int npairs = part_begin(STAGES_MOST, g.stage + 1, g.stages) - first;
    char what[96];
    net_init(&net, alone);
    for (int p = 0; p < npairs; p++)
        pairs[p] = pair_open(&g, first + p, alone);
    for (int s = 0; s < STEPS; s++)
        step(&g, pairs, npairs, &samples);
    for (int p = 0; p < npairs; p++) {
        if (g.copy == 0)
            pair_copy(&g, &pairs[p], params, true);
        pair_close(&pairs[p]);
    }
    sum(g.world, params, count);
    train_alone(&net, &samples, STEPS, 1, alone);
    snprintf(what, sizeof(what), "%d data x %d pipeline x %d tensor", g.copies, g.stages,
             g.tensors);
    compare(what, params, alone, count, 1e-5, g.world);
    free(params);
    free(alone);
    samples_free(&samples);
    grid_close(&g);
    return 0;
}
