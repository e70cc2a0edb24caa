/* What the examples in this folder share: a stack of fully connected layers on the digits data,
 * its gradient, and the training of it on one rank, which is what every example is checked against.
 *
 * All loops add in a fixed order, sample by sample, so a gradient does not depend on how a run of
 * samples was cut into micro-batches. */
#ifndef EXAMPLES_PARALLEL_NET_H
#define EXAMPLES_PARALLEL_NET_H

#include "check.h"

#define PIXELS 64
#define CLASSES 10
#define MAX_LAYERS 8

struct samples {
    int count;
    float (*pixels)[PIXELS];
    int *classes;
};
/* The first `most` digits of the file named by the first argument, or of examples/data. */
struct samples samples_read(int argc, char **argv, int most);
void samples_free(struct samples *samples);

/* Layer l maps widths[l] values to widths[l + 1]; all but the last are rectified. Its parameters
 * are weights [outputs][inputs], then biases [outputs]; those of all layers are one vector. */
struct net {
    int layers;
    int widths[MAX_LAYERS + 1];
};
size_t layer_size(const struct net *net, int l);
size_t layer_begin(const struct net *net, int l);
size_t net_size(const struct net *net);
/* The same small random weights everywhere. */
void net_init(const struct net *net, float *params);

/* y = x W^T + b, rectified or not, of n samples. */
void layer_forward(const float *params, int inputs, int outputs, bool rectified, int n,
                   const float *x, float *y);
/* Adds to `grad` (in the layout of params); dy is changed; dx may be NULL. */
void layer_backward(const float *params, int inputs, int outputs, bool rectified, int n,
                    const float *x, const float *y, float *dy, float *grad, float *dx);
/* Softmax and cross-entropy: turns logits into their gradient, returns the summed loss. */
float loss_backward(float *logits, const int *classes, int n);

/* Adds the gradient of samples first ... first + n - 1; returns their loss. */
float net_gradient(const struct net *net, const float *params, const struct samples *samples,
                   int first, int n, float *grad);
/* Momentum: v = 0.9 v - rate / batch * g; w += v. */
void momentum_step(float *w, float *v, const float *g, size_t n, int batch);

/* First sample of part r of n. */
static inline int part_begin(int count, int r, int n) {
    return (int)((long)count * r / n);
}

/* Trains on one rank: `steps` steps, each on all samples. The gradient is the sum over `parts` runs
 * of samples, added in the aligned binary tree over them, as mode `reproducible` adds over ranks.
 */
void train_alone(const struct net *net, const struct samples *samples, int steps, int parts,
                 float *params);

/* Ends the program unless the n values are the reference's, bit for bit, or (`tolerance` > 0)
 * within that of it, relative to the reference's largest magnitude. Prints one line on rank 0. */
void compare(const char *what, const float *mine, const float *reference, size_t n,
             double tolerance, rota_comm *comm);

void *allocate(size_t count, size_t size);
#define ALLOCATE(count, type) ((type *)allocate((count), sizeof(type)))

/* Joins the job and tells rank and size. */
rota_comm *join(int *rank, int *size);
void leave(rota_comm *comm);

#endif
