/* Expert parallelism: a mixture of experts whose experts are spread over the ranks.
 *
 *     rota run -n 4 -- parallel_experts
 *
 * A fixed router sends each sample to one of eight experts (small two-layer networks), unevenly, as
 * real routers do. Ranks hold parts of the samples; each sample travels to its expert's rank and
 * its result back, by all-to-allv with the counts exchanged first; the gradients travel the same
 * way. An expert sees its samples in the order of ranks, which is their order in the data, so the
 * weights end with the bits of one rank. After Lepikhin et al., "GShard" (2020). */
#include "net.h"

#include <string.h>

#define STEPS 12
#define EXPERTS 8

static const struct net expert = {.layers = 2, .widths = {PIXELS, 24, CLASSES}};

/* Brightness of the left half decides: some experts get many samples, some hardly any. */
static int route(const float *pixels) {
    float sum = 0;
    for (int i = 0; i < PIXELS; i++)
        sum += i % 8 < 4 ? pixels[i] : 0;
    int chosen = (int)(sum * 0.8f) % EXPERTS;
    return chosen;
}

struct layer_of_experts {
    rota_comm *comm;
    int rank, size;
    int first, last;                 /* experts here */
    float *params, *velocity, *grad; /* of all experts; only those here are used */
    const struct samples *samples;
    int begin, n;                   /* this rank's samples */
    int *order;                     /* of them, by expert */
    size_t *out_counts, *in_counts; /* samples to and from each rank */
    size_t *out_expert, *in_expert; /* [EXPERTS], [rank][expert here]: samples of each expert */
    size_t in_total;
};

static float *of_expert(float *vector, int e) {
    return vector + (size_t)e * net_size(&expert);
}

/* Sorts this rank's samples by expert and tells the experts' ranks how many come. */
static void plan_exchange(struct layer_of_experts *l) {
    int at = 0;
    for (int e = 0; e < EXPERTS; e++) {
        l->out_expert[e] = 0;
        for (int i = 0; i < l->n; i++)
            if (route(l->samples->pixels[l->begin + i]) == e) {
                l->order[at++] = l->begin + i;
                l->out_expert[e]++;
            }
    }
    size_t *everybodys = ALLOCATE((size_t)l->size * EXPERTS, size_t);
    check(rota_all_gather(l->out_expert, everybodys, EXPERTS, ROTA_UINT64, l->comm, NULL),
          "all_gather", l->comm);
    l->in_total = 0;
    for (int r = 0; r < l->size; r++) {
        l->out_counts[r] = l->in_counts[r] = 0;
        for (int e = part_begin(EXPERTS, r, l->size); e < part_begin(EXPERTS, r + 1, l->size); e++)
            l->out_counts[r] += l->out_expert[e];
        for (int e = l->first; e < l->last; e++) {
            l->in_expert[r * EXPERTS + e] = everybodys[r * EXPERTS + e];
            l->in_counts[r] += everybodys[r * EXPERTS + e];
        }
        l->in_total += l->in_counts[r];
    }
    free(everybodys);
}

/* Moves `width` values per sample, to the experts or back. */
static float *exchange(struct layer_of_experts *l, const float *from, size_t width, bool back) {
    size_t *send = ALLOCATE((size_t)l->size, size_t), *recv = ALLOCATE((size_t)l->size, size_t);
    size_t total = back ? (size_t)l->n : l->in_total;
    float *to = ALLOCATE(total * width, float);
    for (int r = 0; r < l->size; r++) {
        send[r] = width * (back ? l->in_counts[r] : l->out_counts[r]);
        recv[r] = width * (back ? l->out_counts[r] : l->in_counts[r]);
    }
    check(rota_all_to_allv(from, send, NULL, to, recv, NULL, ROTA_FLOAT32, l->comm, NULL),
          "all_to_allv", l->comm);
    free(send);
    free(recv);
    return to;
}

/* Gathers (or scatters back) the rows of one expert, which lie in one run per source rank. */
static size_t rows_of(const struct layer_of_experts *l, int e, float *packed, float *all,
                      size_t width, bool back) {
    size_t at = 0, row = 0;
    for (int r = 0; r < l->size; r++)
        for (int other = l->first; other < l->last; other++) {
            size_t rows = l->in_expert[r * EXPERTS + other];
            if (other == e && back)
                memcpy(all + row * width, packed + at * width, rows * width * sizeof(float));
            else if (other == e)
                memcpy(packed + at * width, all + row * width, rows * width * sizeof(float));
            at += other == e ? rows : 0;
            row += rows;
        }
    return at;
}

static void step(struct layer_of_experts *l) {
    size_t p = PIXELS, c = CLASSES, hidden = (size_t)expert.widths[1];
    float *sent = ALLOCATE((size_t)l->n * p, float), *x[EXPERTS], *h[EXPERTS], *y[EXPERTS];
    size_t n[EXPERTS];
    for (int i = 0; i < l->n; i++)
        memcpy(sent + (size_t)i * p, l->samples->pixels[l->order[i]], p * sizeof(float));
    float *received = exchange(l, sent, p, false);
    float *logits = ALLOCATE(l->in_total * c, float);
    for (int e = l->first; e < l->last; e++) {
        float *w = of_expert(l->params, e);
        x[e] = ALLOCATE(l->in_total * p, float);
        n[e] = rows_of(l, e, x[e], received, p, false);
        h[e] = ALLOCATE(n[e] * hidden, float);
        y[e] = ALLOCATE(n[e] * c, float);
        layer_forward(w, PIXELS, (int)hidden, true, (int)n[e], x[e], h[e]);
        layer_forward(w + layer_begin(&expert, 1), (int)hidden, CLASSES, false, (int)n[e], h[e],
                      y[e]);
        rows_of(l, e, y[e], logits, c, true);
    }
    float *mine = exchange(l, logits, c, true);
    for (int i = 0; i < l->n; i++)
        loss_backward(mine + (size_t)i * c, &l->samples->classes[l->order[i]], 1);
    float *deltas = exchange(l, mine, c, false);
    for (int e = l->first; e < l->last; e++) {
        float *w = of_expert(l->params, e), *g = of_expert(l->grad, e);
        float *before = ALLOCATE(n[e] * hidden, float);
        memset(g, 0, net_size(&expert) * sizeof(*g));
        rows_of(l, e, y[e], deltas, c, false);
        layer_backward(w + layer_begin(&expert, 1), (int)hidden, CLASSES, false, (int)n[e], h[e],
                       y[e], y[e], g + layer_begin(&expert, 1), before);
        layer_backward(w, PIXELS, (int)hidden, true, (int)n[e], x[e], h[e], before, g, NULL);
        momentum_step(w, of_expert(l->velocity, e), g, net_size(&expert), l->samples->count);
        free(before);
        free(x[e]);
        free(h[e]);
        free(y[e]);
    }
    free(sent);
    free(received);
    free(logits);
    free(mine);
    free(deltas);
}

/* All experts on one rank. */
static void reference(const struct samples *samples, float *params) {
    struct samples routed = {.pixels = allocate((size_t)samples->count, sizeof(*samples->pixels)),
                             .classes = ALLOCATE((size_t)samples->count, int)};
    size_t size = net_size(&expert);
    float *velocity = ALLOCATE(EXPERTS * size, float), *grad = ALLOCATE(size, float);
    for (int e = 0; e < EXPERTS; e++) {
        routed.count = 0;
        for (int i = 0; i < samples->count; i++)
            if (route(samples->pixels[i]) == e) {
                memcpy(routed.pixels[routed.count], samples->pixels[i], sizeof(*samples->pixels));
                routed.classes[routed.count++] = samples->classes[i];
            }
        for (int s = 0; s < STEPS; s++) {
            memset(grad, 0, size * sizeof(*grad));
            net_gradient(&expert, of_expert(params, e), &routed, 0, routed.count, grad);
            momentum_step(of_expert(params, e), of_expert(velocity, e), grad, size, samples->count);
        }
    }
    samples_free(&routed);
    free(velocity);
    free(grad);
}

int main(int argc, char **argv) {
    struct samples samples = samples_read(argc, argv, 200);
    struct layer_of_experts l = {.samples = &samples};
    size_t count = EXPERTS * net_size(&expert);
    l.comm = join(&l.rank, &l.size);
    l.first = part_begin(EXPERTS, l.rank, l.size);
    l.last = part_begin(EXPERTS, l.rank + 1, l.size);
    l.begin = part_begin(samples.count, l.rank, l.size);
    l.n = part_begin(samples.count, l.rank + 1, l.size) - l.begin;
    l.params = ALLOCATE(count, float);
    l.velocity = ALLOCATE(count, float);
    l.grad = ALLOCATE(count, float);
    l.order = ALLOCATE((size_t)l.n, int);
    l.out_counts = ALLOCATE((size_t)l.size, size_t);
    l.in_counts = ALLOCATE((size_t)l.size, size_t);
    l.out_expert = ALLOCATE(EXPERTS, size_t);
    l.in_expert = ALLOCATE((size_t)l.size * EXPERTS, size_t);
    float *alone = ALLOCATE(count, float);
    for (int e = 0; e < EXPERTS; e++) {
        net_init(&expert, of_expert(l.params, e));
        net_init(&expert, of_expert(alone, e));
    }
    plan_exchange(&l);
    for (int s = 0; s < STEPS; s++)
        step(&l);
    for (int r = 0; r < l.size; r++) {
        float *w = of_expert(l.params, part_begin(EXPERTS, r, l.size));
        size_t n = (size_t)(of_expert(l.params, part_begin(EXPERTS, r + 1, l.size)) - w);
        check(rota_broadcast(w, w, n, ROTA_FLOAT32, r, l.comm, NULL), "broadcast", l.comm);
    }
    reference(&samples, alone);
    compare("experts", l.params, alone, count, 0, l.comm);
    free(l.params);
    free(l.velocity);
    free(l.grad);
    free(l.order);
    free(l.out_counts);
    free(l.in_counts);
    free(l.out_expert);
    free(l.in_expert);
    free(alone);
    samples_free(&samples);
    leave(l.comm);
    return 0;
}
