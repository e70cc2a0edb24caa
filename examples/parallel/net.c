/* The network, its data, its training on one rank, and the comparison with it. */
#include "net.h"

#include <math.h>
#include <string.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "examples/data/digits.csv"
#endif
#define RATE 0.2f
#define MOMENTUM 0.9f

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(1);
    }
    return memory;
}

rota_comm *join(int *rank, int *size) {
    rota_comm *comm = NULL;
    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, rank), "rank", comm);
    check(rota_comm_size(comm, size), "size", comm);
    return comm;
}

void leave(rota_comm *comm) {
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
}

/* -- data -------------------------------------------------------------------------------------- */

static bool digit_read(FILE *file, float pixels[PIXELS], int *class) {
    int value;
    for (int i = 0; i < PIXELS; i++) {
        if (fscanf(file, "%d,", &value) != 1 || value < 0 || value > 16)
            return false;
        pixels[i] = (float)value / 16;
    }
    return fscanf(file, "%d\n", class) == 1 && *class >= 0 && *class < CLASSES;
}

struct samples samples_read(int argc, char **argv, int most) {
    const char *path = argc > 1 ? argv[1] : DIGITS_CSV;
    FILE *file = fopen(path, "r");
    struct samples samples = {.pixels = allocate((size_t)most, sizeof(*samples.pixels)),
                              .classes = ALLOCATE((size_t)most, int)};
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    while (samples.count < most) {
        int i = samples.count;
        if (!digit_read(file, samples.pixels[i], &samples.classes[i])) {
            fprintf(stderr, "%s:%d: expected 64 numbers 0-16 and a class 0-9\n", path, i + 1);
            exit(2);
        }
        samples.count++;
    }
    fclose(file);
    return samples;
}

void samples_free(struct samples *samples) {
    free(samples->pixels);
    free(samples->classes);
}

/* -- network ----------------------------------------------------------------------------------- */

size_t layer_size(const struct net *net, int l) {
    return (size_t)net->widths[l + 1] * (size_t)(net->widths[l] + 1);
}

size_t layer_begin(const struct net *net, int l) {
    size_t begin = 0;
    for (int i = 0; i < l; i++)
        begin += layer_size(net, i);
    return begin;
}

size_t net_size(const struct net *net) {
    return layer_begin(net, net->layers);
}

void net_init(const struct net *net, float *params) {
    uint64_t state = 88172645463325252u; /* xorshift64* */
    for (int l = 0; l < net->layers; l++) {
        float *w = params + layer_begin(net, l);
        size_t weights = (size_t)net->widths[l] * (size_t)net->widths[l + 1];
        for (size_t i = 0; i < weights; i++) {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            w[i] = ((float)((state * 2685821657736338717u) >> 40) / 8388608.0f - 1.0f) * 0.2f;
        }
        memset(w + weights, 0, (size_t)net->widths[l + 1] * sizeof(*w));
    }
}

void layer_forward(const float *params, int inputs, int outputs, bool rectified, int n,
                   const float *x, float *y) {
    const float *bias = params + (size_t)inputs * (size_t)outputs;
    for (int s = 0; s < n; s++)
        for (int o = 0; o < outputs; o++) {
            const float *w = params + (size_t)o * (size_t)inputs;
            float value = bias[o];
            for (int i = 0; i < inputs; i++)
                value += w[i] * x[(size_t)s * (size_t)inputs + (size_t)i];
            y[(size_t)s * (size_t)outputs + (size_t)o] = rectified && value <= 0 ? 0 : value;
        }
}

void layer_backward(const float *params, int inputs, int outputs, bool rectified, int n,
                    const float *x, const float *y, float *dy, float *grad, float *dx) {
    float *bias = grad + (size_t)inputs * (size_t)outputs;
    if (dx != NULL)
        memset(dx, 0, (size_t)n * (size_t)inputs * sizeof(*dx));
    for (int s = 0; s < n; s++)
        for (int o = 0; o < outputs; o++) {
            size_t at = (size_t)s * (size_t)outputs + (size_t)o, row = (size_t)o * (size_t)inputs;
            const float *xs = x + (size_t)s * (size_t)inputs;
            if (rectified && y[at] <= 0)
                dy[at] = 0;
            bias[o] += dy[at];
            for (int i = 0; i < inputs; i++)
                grad[row + (size_t)i] += dy[at] * xs[i];
            if (dx != NULL)
                for (int i = 0; i < inputs; i++)
                    dx[(size_t)s * (size_t)inputs + (size_t)i] += dy[at] * params[row + (size_t)i];
        }
}

float loss_backward(float *logits, const int *classes, int n) {
    float loss = 0;
    for (int s = 0; s < n; s++) {
        float *z = logits + (size_t)s * CLASSES, largest = z[0], sum = 0;
        for (int c = 1; c < CLASSES; c++)
            largest = z[c] > largest ? z[c] : largest;
        for (int c = 0; c < CLASSES; c++)
            sum += z[c] = expf(z[c] - largest);
        for (int c = 0; c < CLASSES; c++)
            z[c] /= sum;
        loss -= logf(z[classes[s]] > 1e-30f ? z[classes[s]] : 1e-30f);
        z[classes[s]] -= 1;
    }
    return loss;
}

float net_gradient(const struct net *net, const float *params, const struct samples *samples,
                   int first, int n, float *grad) {
    float *values[MAX_LAYERS + 1], *deltas[MAX_LAYERS + 1];
    values[0] = n > 0 ? samples->pixels[first] : NULL;
    deltas[0] = NULL;
    for (int l = 0; l < net->layers; l++) {
        values[l + 1] = ALLOCATE((size_t)n * (size_t)net->widths[l + 1], float);
        deltas[l + 1] = ALLOCATE((size_t)n * (size_t)net->widths[l + 1], float);
        layer_forward(params + layer_begin(net, l), net->widths[l], net->widths[l + 1],
                      l + 1 < net->layers, n, values[l], values[l + 1]);
    }
    size_t logits = (size_t)n * CLASSES;
    memcpy(deltas[net->layers], values[net->layers], logits * sizeof(float));
    float loss = n > 0 ? loss_backward(deltas[net->layers], samples->classes + first, n) : 0;
    for (int l = net->layers - 1; l >= 0; l--) {
        size_t begin = layer_begin(net, l);
        layer_backward(params + begin, net->widths[l], net->widths[l + 1], l + 1 < net->layers, n,
                       values[l], values[l + 1], deltas[l + 1], grad + begin, deltas[l]);
    }
    for (int l = 1; l <= net->layers; l++) {
        free(values[l]);
        free(deltas[l]);
    }
    return loss;
}

void momentum_step(float *w, float *v, const float *g, size_t n, int batch) {
    for (size_t i = 0; i < n; i++) {
        v[i] = MOMENTUM * v[i] - RATE / (float)batch * g[i];
        w[i] += v[i];
    }
}

/* -- on one rank ------------------------------------------------------------------------------- */

/* node(r, k) = node(r, k - 1) + node(r + 2^(k - 1), k - 1); the sum ends in the first vector. */
static void tree_sum(float *vectors, int n, size_t count) {
    for (int distance = 1; distance < n; distance *= 2)
        for (int r = 0; r + distance < n; r += 2 * distance)
            for (size_t i = 0; i < count; i++)
                vectors[(size_t)r * count + i] += vectors[(size_t)(r + distance) * count + i];
}

void train_alone(const struct net *net, const struct samples *samples, int steps, int parts,
                 float *params) {
    size_t size = net_size(net);
    float *grads = ALLOCATE((size_t)parts * size, float), *velocity = ALLOCATE(size, float);
    for (int step = 0; step < steps; step++) {
        memset(grads, 0, (size_t)parts * size * sizeof(*grads));
        for (int r = 0; r < parts; r++) {
            int first = part_begin(samples->count, r, parts);
            net_gradient(net, params, samples, first,
                         part_begin(samples->count, r + 1, parts) - first,
                         grads + (size_t)r * size);
        }
        tree_sum(grads, parts, size);
        momentum_step(params, velocity, grads, size, samples->count);
    }
    free(grads);
    free(velocity);
}

void compare(const char *what, const float *mine, const float *reference, size_t n,
             double tolerance, rota_comm *comm) {
    double largest = 0, difference = 0, worst = 0;
    int rank = 0;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)mine[i] - (double)reference[i]);
        largest = fmax(largest, fabs((double)reference[i]));
        if (!(off <= difference)) /* also for a NaN */
            difference = off;
    }
    difference = largest > 0 ? difference / largest : difference;
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_all_reduce(&difference, &worst, 1, ROTA_FLOAT64, ROTA_MAX, comm, NULL), "compare",
          comm);
    if (rank == 0)
        printf("%s: largest difference from one rank %.1e of the largest weight%s\n", what, worst,
               worst == 0 ? ": the same bits" : "");
    if (!(worst <= tolerance)) {
        fprintf(stderr, "%s: that is more than %.1e\n", what, tolerance);
        exit(1);
    }
}
