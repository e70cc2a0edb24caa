/* Context parallelism: one long sequence is cut over the ranks; keys and values go round a ring.
 *
 *     rota run -n 4 -- parallel_context
 *
 * One causal attention head learns to predict the next row of a long strip of digits. Every rank
 * holds the queries of its part of the sequence. In n - 1 exchanges the keys and values of every
 * part pass by; while one block is worked on the next is on its way. The softmax is kept up to date
 * block by block (largest score, sum, weighted values), as in Liu et al., "Ring Attention" (2023).
 * Backward, the gradients of keys and values travel round with them and come home in the end. */
#include "net.h"

#include <math.h>
#include <string.h>

#define STEPS 10
#define WIDTH 8    /* of a token: one row of a digit */
#define TOKENS 240 /* of the sequence; each predicts the next */
#define SQUARE ((size_t)WIDTH * WIDTH)

/* Parameters: three matrices one after the other; y = x W^T. */
enum { QUERY, KEY, VALUE, MATRICES };

/* A run of tokens first ... first + n - 1 and what belongs to it. */
struct block {
    int first, n;
    float *key, *value, *key_delta, *value_delta;
};

struct attention {
    const float *tokens; /* TOKENS + 1 */
    const float *params;
    float *grad;
    int first, n; /* queries here */
    float *query, *query_delta, *output, *output_delta;
    float *largest, *sum, *inner; /* of each query: see block_forward, block_backward */
};

static const float *token(const struct attention *a, int t) {
    return a->tokens + (size_t)t * WIDTH;
}

static void project(const float *w, int n, const float *x, float *y) {
    for (int t = 0; t < n; t++)
        for (int o = 0; o < WIDTH; o++) {
            float sum = 0;
            for (int i = 0; i < WIDTH; i++)
                sum += w[o * WIDTH + i] * x[t * WIDTH + i];
            y[t * WIDTH + o] = sum;
        }
}

static void project_backward(int n, const float *x, const float *delta, float *grad) {
    for (int t = 0; t < n; t++)
        for (int o = 0; o < WIDTH; o++)
            for (int i = 0; i < WIDTH; i++)
                grad[o * WIDTH + i] += delta[t * WIDTH + o] * x[t * WIDTH + i];
}

static float dot(const float *a, const float *b) {
    float sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += a[i] * b[i];
    return sum;
}

static struct block block_open(const struct attention *a, int first, int n) {
    struct block block = {.first = first, .n = n};
    size_t count = (size_t)n * WIDTH;
    block.key = ALLOCATE(count, float);
    block.value = ALLOCATE(count, float);
    block.key_delta = ALLOCATE(count, float);
    block.value_delta = ALLOCATE(count, float);
    project(a->params + KEY * SQUARE, n, token(a, first), block.key);
    project(a->params + VALUE * SQUARE, n, token(a, first), block.value);
    return block;
}

static void block_close(struct block *block) {
    free(block->key);
    free(block->value);
    free(block->key_delta);
    free(block->value_delta);
}

/* Lets this rank's queries look at one block: running softmax. */
static void block_forward(struct attention *a, const struct block *block) {
    for (int q = 0; q < a->n; q++) {
        float *out = a->output + q * WIDTH;
        for (int k = 0; k < block->n && block->first + k <= a->first + q; k++) {
            float score = dot(a->query + q * WIDTH, block->key + k * WIDTH);
            if (score > a->largest[q]) {
                float shrink = expf(a->largest[q] - score);
                a->sum[q] *= shrink;
                for (int i = 0; i < WIDTH; i++)
                    out[i] *= shrink;
                a->largest[q] = score;
            }
            float weight = expf(score - a->largest[q]);
            a->sum[q] += weight;
            for (int i = 0; i < WIDTH; i++)
                out[i] += weight * block->value[k * WIDTH + i];
        }
    }
}

/* Divides by the softmax's sum; the gradient of half the squared error against the next token. */
static void finish_forward(struct attention *a) {
    for (int q = 0; q < a->n; q++) {
        for (int i = 0; i < WIDTH; i++) {
            int at = q * WIDTH + i;
            a->output[at] /= a->sum[q];
            a->output_delta[at] = a->output[at] - token(a, a->first + q + 1)[i];
        }
        a->inner[q] = dot(a->output_delta + q * WIDTH, a->output + q * WIDTH);
    }
}

static void block_backward(struct attention *a, struct block *block) {
    for (int q = 0; q < a->n; q++) {
        const float *delta = a->output_delta + q * WIDTH;
        for (int k = 0; k < block->n && block->first + k <= a->first + q; k++) {
            const float *key = block->key + k * WIDTH, *value = block->value + k * WIDTH;
            float score = dot(a->query + q * WIDTH, key);
            float weight = expf(score - a->largest[q]) / a->sum[q];
            float score_delta = weight * (dot(delta, value) - a->inner[q]);
            for (int i = 0; i < WIDTH; i++) {
                block->value_delta[k * WIDTH + i] += weight * delta[i];
                block->key_delta[k * WIDTH + i] += score_delta * a->query[q * WIDTH + i];
                a->query_delta[q * WIDTH + i] += score_delta * key[i];
            }
        }
    }
}

static void attention_begin(struct attention *a) {
    memset(a->grad, 0, MATRICES * SQUARE * sizeof(float));
    memset(a->output, 0, (size_t)a->n * WIDTH * sizeof(float));
    memset(a->query_delta, 0, (size_t)a->n * WIDTH * sizeof(float));
    memset(a->sum, 0, (size_t)a->n * sizeof(float));
    for (int q = 0; q < a->n; q++)
        a->largest[q] = -INFINITY;
    project(a->params + QUERY * SQUARE, a->n, token(a, a->first), a->query);
}

static void attention_end(struct attention *a, const struct block *own) {
    project_backward(a->n, token(a, a->first), a->query_delta, a->grad + QUERY * SQUARE);
    project_backward(own->n, token(a, own->first), own->key_delta, a->grad + KEY * SQUARE);
    project_backward(own->n, token(a, own->first), own->value_delta, a->grad + VALUE * SQUARE);
}

static struct attention attention_open(const float *tokens, const float *params, int first, int n) {
    struct attention a = {.tokens = tokens, .params = params, .first = first, .n = n};
    size_t count = (size_t)n * WIDTH;
    a.grad = ALLOCATE(MATRICES * SQUARE, float);
    a.query = ALLOCATE(count, float);
    a.query_delta = ALLOCATE(count, float);
    a.output = ALLOCATE(count, float);
    a.output_delta = ALLOCATE(count, float);
    a.largest = ALLOCATE((size_t)n, float);
    a.sum = ALLOCATE((size_t)n, float);
    a.inner = ALLOCATE((size_t)n, float);
    return a;
}

static void attention_close(struct attention *a) {
    free(a->grad);
    free(a->query);
    free(a->query_delta);
    free(a->output);
    free(a->output_delta);
    free(a->largest);
    free(a->sum);
    free(a->inner);
}

/* -- the ring ---------------------------------------------------------------------------------- */

/* Passes `count` floats of each of `n` vectors on to the next rank and takes the previous rank's,
 * of `from_count` floats. */
static void pass_on(rota_comm *comm, float **vectors, int n, size_t count, size_t from_count,
                    rota_request **requests, float **arriving) {
    int rank, size;
    rota_comm_rank(comm, &rank);
    rota_comm_size(comm, &size);
    for (int i = 0; i < n; i++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[2 * i];
        arriving[i] = ALLOCATE(from_count, float);
        check(rota_recv(arriving[i], from_count, ROTA_FLOAT32, (rank + size - 1) % size, i, comm,
                        NULL, &call),
              "recv", comm);
        call.request = &requests[2 * i + 1];
        check(rota_send(vectors[i], count, ROTA_FLOAT32, (rank + 1) % size, i, comm, &call), "send",
              comm);
    }
}

static void passed_on(rota_comm *comm, float **vectors, int n, rota_request **requests,
                      float **arriving) {
    for (int i = 0; i < 2 * n; i++) {
        check(rota_request_wait(requests[i], 0), "exchange", comm);
        rota_request_free(requests[i]);
    }
    for (int i = 0; i < n; i++) {
        free(vectors[i]);
        vectors[i] = arriving[i];
    }
}

/* Sends the block on and takes the previous rank's. The queries look at it meanwhile, which changes
 * no key and no value; the deltas, to which the way back adds, travel afterwards. */
static void turn(rota_comm *comm, struct attention *a, struct block *block, int size, bool back) {
    int part = 0; /* of the block held now */
    while (part_begin(TOKENS, part, size) != block->first)
        part++;
    part = (part + size - 1) % size;
    int first = part_begin(TOKENS, part, size), n = part_begin(TOKENS, part + 1, size) - first;
    size_t count = (size_t)block->n * WIDTH, from = (size_t)n * WIDTH;
    float *vectors[2] = {block->key, block->value},
          *deltas[2] = {block->key_delta, block->value_delta};
    float *arriving[2], *arriving_deltas[2];
    rota_request *requests[4];
    pass_on(comm, vectors, 2, count, from, requests, arriving);
    if (back)
        block_backward(a, block);
    else
        block_forward(a, block);
    passed_on(comm, vectors, 2, requests, arriving);
    if (back) {
        pass_on(comm, deltas, 2, count, from, requests, arriving_deltas);
        passed_on(comm, deltas, 2, requests, arriving_deltas);
    }
    *block = (struct block){.first = first,
                            .n = n,
                            .key = vectors[0],
                            .value = vectors[1],
                            .key_delta = deltas[0],
                            .value_delta = deltas[1]};
    if (!back) { /* lengths may differ by one token */
        free(block->key_delta);
        free(block->value_delta);
        block->key_delta = ALLOCATE(from, float);
        block->value_delta = ALLOCATE(from, float);
    }
}

static void step(rota_comm *comm, struct attention *a, int size) {
    struct block block = block_open(a, a->first, a->n);
    attention_begin(a);
    for (int i = 0; i < size; i++) /* after n turns the own block is back */
        turn(comm, a, &block, size, false);
    finish_forward(a);
    for (int i = 0; i < size; i++)
        turn(comm, a, &block, size, true);
    attention_end(a, &block);
    block_close(&block);
    check(rota_all_reduce(a->grad, a->grad, MATRICES * SQUARE, ROTA_FLOAT32, ROTA_SUM, comm, NULL),
          "all_reduce", comm);
}

/* -- on one rank ------------------------------------------------------------------------------- */

static void step_alone(struct attention *a) {
    struct block block = block_open(a, 0, TOKENS);
    attention_begin(a);
    block_forward(a, &block);
    finish_forward(a);
    block_backward(a, &block);
    attention_end(a, &block);
    block_close(&block);
}

int main(int argc, char **argv) {
    static const struct net matrices = {.layers = 1, .widths = {WIDTH, MATRICES * WIDTH}};
    int rank, size;
    rota_comm *comm = join(&rank, &size);
    struct samples samples = samples_read(argc, argv, TOKENS / 8 + 1);
    const float *tokens = samples.pixels[0];
    size_t count = MATRICES * SQUARE;
    float *params = ALLOCATE(net_size(&matrices), float), *velocity = ALLOCATE(count, float);
    float *alone = ALLOCATE(net_size(&matrices), float), *velocity_alone = ALLOCATE(count, float);
    net_init(&matrices, params);
    net_init(&matrices, alone);
    int first = part_begin(TOKENS, rank, size);
    struct attention mine =
        attention_open(tokens, params, first, part_begin(TOKENS, rank + 1, size) - first);
    struct attention whole = attention_open(tokens, alone, 0, TOKENS);
    for (int s = 0; s < STEPS; s++) {
        step(comm, &mine, size);
        momentum_step(params, velocity, mine.grad, count, TOKENS);
        step_alone(&whole);
        momentum_step(alone, velocity_alone, whole.grad, count, TOKENS);
    }
    compare("context parallel", params, alone, count, 1e-5, comm);
    attention_close(&mine);
    attention_close(&whole);
    free(params);
    free(velocity);
    free(alone);
    free(velocity_alone);
    samples_free(&samples);
    leave(comm);
    return 0;
}
