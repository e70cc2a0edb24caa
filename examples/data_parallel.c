/* Data-parallel training: a two-layer perceptron (64-64-10) learns handwritten digits on all ranks.
 *
 *     rota run -n 2 -- data_parallel [FILE.csv [EPOCHS]]
 *     torchrun --no-python --nproc-per-node 2 data_parallel
 *
 * Every rank holds the whole network and works on its share of each batch; one all-reduce per step
 * sums the gradients (and the loss, which rides along). Every rank then takes the same step from
 * the same bits, so the weights stay equal without being sent again: the program checks that at its
 * end by the hash of the weights, and that the held-out fifth of the data is recognised. */
#include "check.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

#ifndef DIGITS_CSV
#define DIGITS_CSV "examples/data/digits.csv"
#endif

#define INPUTS 64
#define HIDDEN 64
#define CLASSES 10
#define SAMPLES_MAX 4096
#define BATCH 64
#define EPOCHS 30
#define RATE 0.08f
#define MOMENTUM 0.9f
#define ENOUGH 0.95

/* The network as one vector, so that one all-reduce carries all of its gradient. */
struct network {
    float w1[HIDDEN][INPUTS], b1[HIDDEN];
    float w2[CLASSES][HIDDEN], b2[CLASSES];
};
struct gradient {
    struct network sum;
    float loss;
};
#define WEIGHTS (sizeof(struct network) / sizeof(float))

struct digits {
    float pixels[SAMPLES_MAX][INPUTS];
    int class[SAMPLES_MAX];
    int count;
};

static struct digits train, held_out;
static struct network weights, velocity;
static struct gradient mine, all;

/* xorshift64*: the same numbers on every machine. */
static uint64_t random_state = 88172645463325252u;
static uint64_t random_next(void) {
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * 2685821657736338717u;
}

/* e^x for x <= 0 by halving and squaring: the C library's may differ between machines in its last
 * bit, and then the ranks' gradients would not repeat. */
static float exponential(float x) {
    double y = x < -40 ? -40.0 / 1024 : (double)x / 1024;
    double value = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4)));
    for (int i = 0; i < 10; i++)
        value *= value;
    return (float)value;
}

static bool line_read(FILE *file, float pixels[INPUTS], int *class) {
    for (int i = 0; i <= INPUTS; i++) {
        int value;
        if (fscanf(file, i ? ",%d" : "%d", &value) != 1 || value < 0 || value > 16)
            return false;
        if (i < INPUTS)
            pixels[i] = (float)value / 16;
        else
            *class = value;
    }
    return *class < CLASSES;
}

/* Every fifth digit is held out. */
static void digits_read(const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        perror(path);
        exit(2);
    }
    int line = 0;
    for (int next; (next = getc(file)) != EOF; line++) {
        ungetc(next, file);
        struct digits *set = line % 5 == 4 ? &held_out : &train;
        if (set->count == SAMPLES_MAX ||
            !line_read(file, set->pixels[set->count], &set->class[set->count])) {
            fprintf(stderr, "%s:%d: expected 64 numbers 0-16 and a class 0-9\n", path, line + 1);
            exit(2);
        }
        set->count++;
        while (next != '\n' && next != EOF) /* the rest of the line */
            next = getc(file);
    }
    fclose(file);
    if (held_out.count == 0) {
        fprintf(stderr, "%s: too few digits\n", path);
        exit(2);
    }
}

/* Uniform in +-sqrt(3 / inputs): unit variance behind each layer. */
static void weights_init(void) {
    float *w = &weights.w1[0][0];
    for (size_t i = 0; i < WEIGHTS; i++)
        w[i] = ((float)(random_next() >> 40) / 8388608.0f - 1.0f) * 0.2f;
    memset(weights.b1, 0, sizeof(weights.b1));
    memset(weights.b2, 0, sizeof(weights.b2));
}

/* Hidden layer (rectified) and the classes' probabilities (softmax). */
static void forward(const float *pixels, float hidden[HIDDEN], float output[CLASSES]) {
    float largest = -1e30f, sum = 0;
    for (int h = 0; h < HIDDEN; h++) {
        float value = weights.b1[h];
        for (int i = 0; i < INPUTS; i++)
            value += weights.w1[h][i] * pixels[i];
        hidden[h] = value > 0 ? value : 0;
    }
    for (int c = 0; c < CLASSES; c++) {
        output[c] = weights.b2[c];
        for (int h = 0; h < HIDDEN; h++)
            output[c] += weights.w2[c][h] * hidden[h];
        largest = output[c] > largest ? output[c] : largest;
    }
    for (int c = 0; c < CLASSES; c++)
        sum += output[c] = exponential(output[c] - largest);
    for (int c = 0; c < CLASSES; c++)
        output[c] /= sum;
}

/* Adds one sample's gradient of the cross-entropy, output - target at the last layer, and its loss.
 * The logarithm is for the report alone: no weight depends on it. */
static void backward(const float *pixels, int class) {
    float hidden[HIDDEN], delta[CLASSES];
    forward(pixels, hidden, delta);
    mine.loss -= logf(delta[class] > 1e-30f ? delta[class] : 1e-30f);
    delta[class] -= 1;
    for (int c = 0; c < CLASSES; c++) {
        mine.sum.b2[c] += delta[c];
        for (int h = 0; h < HIDDEN; h++)
            mine.sum.w2[c][h] += delta[c] * hidden[h];
    }
    for (int h = 0; h < HIDDEN; h++) {
        float back = 0;
        for (int c = 0; c < CLASSES; c++)
            back += delta[c] * weights.w2[c][h];
        if (hidden[h] <= 0)
            continue;
        mine.sum.b1[h] += back;
        for (int i = 0; i < INPUTS; i++)
            mine.sum.w1[h][i] += back * pixels[i];
    }
}

static void step(int batch, float rate) {
    float *w = &weights.w1[0][0], *v = &velocity.w1[0][0], *g = &all.sum.w1[0][0];
    for (size_t i = 0; i < WEIGHTS; i++) {
        v[i] = MOMENTUM * v[i] - rate / (float)batch * g[i];
        w[i] += v[i];
    }
}

static double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* One pass over the training data in an order that all ranks draw alike. Returns the mean loss. */
static double epoch(rota_comm *comm, int rank, int size, float rate, double *communicating) {
    static int order[SAMPLES_MAX];
    double loss = 0;
    for (int i = 0; i < train.count; i++)
        order[i] = i;
    for (int i = train.count - 1; i > 0; i--) {
        int other = (int)(random_next() % (uint64_t)(i + 1)), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (int first = 0; first < train.count; first += BATCH) {
        int batch = train.count - first < BATCH ? train.count - first : BATCH;
        memset(&mine, 0, sizeof(mine));
        for (int i = first + rank; i < first + batch; i += size)
            backward(train.pixels[order[i]], train.class[order[i]]);
        double begin = now_s();
        check(rota_all_reduce(&mine, &all, WEIGHTS + 1, ROTA_FLOAT32, ROTA_SUM, comm, NULL),
              "all_reduce", comm);
        *communicating += now_s() - begin;
        loss += all.loss;
        step(batch, rate);
    }
    return loss / train.count;
}

/* Share of the held-out digits that are recognised; each rank looks at its part of them. */
static double accuracy(rota_comm *comm, int rank, int size) {
    float hidden[HIDDEN], output[CLASSES];
    int32_t right = 0, total = 0;
    for (int s = rank; s < held_out.count; s += size) {
        int best = 0;
        forward(held_out.pixels[s], hidden, output);
        for (int c = 1; c < CLASSES; c++)
            best = output[c] > output[best] ? c : best;
        right += best == held_out.class[s];
    }
    check(rota_all_reduce(&right, &total, 1, ROTA_INT32, ROTA_SUM, comm, NULL), "count", comm);
    return (double)total / held_out.count;
}

/* FNV-1a of the weights' bytes; ends the program when the ranks do not agree. */
static uint64_t weights_hash(rota_comm *comm, int size) {
    uint64_t hash = 14695981039346656037u;
    uint64_t *hashes = calloc((size_t)size, sizeof(*hashes));
    const unsigned char *bytes = (const unsigned char *)&weights;
    for (size_t i = 0; i < sizeof(weights); i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    if (!hashes)
        exit(1);
    check(rota_all_gather(&hash, hashes, 1, ROTA_UINT64, comm, NULL), "all_gather", comm);
    for (int r = 0; r < size; r++)
        if (hashes[r] != hash) {
            fprintf(stderr,
                    "rank %d ended with other weights: %016" PRIx64 ", not %016" PRIx64 "\n", r,
                    hashes[r], hash);
            exit(1);
        }
    free(hashes);
    return hash;
}

int main(int argc, char **argv) {
    rota_comm *comm = NULL;
    int rank, size, epochs = argc > 2 ? atoi(argv[2]) : EPOCHS;
    double communicating = 0;

    digits_read(argc > 1 ? argv[1] : DIGITS_CSV);
    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    weights_init();
    check(rota_broadcast(&weights, &weights, WEIGHTS, ROTA_FLOAT32, 0, comm, NULL), "broadcast",
          comm);
    double begin = now_s();
    for (int e = 1; e <= epochs; e++) {
        /* The last third with smaller steps. */
        double loss = epoch(comm, rank, size, 3 * e > 2 * epochs ? RATE / 5 : RATE, &communicating);
        if (rank == 0 && (e == 1 || e % 5 == 0 || e == epochs))
            printf("epoch %2d: loss %.4f\n", e, loss);
    }
    double spent = now_s() - begin, share = accuracy(comm, rank, size);
    uint64_t hash = weights_hash(comm, size);
    if (rank == 0) {
        printf("held-out accuracy: %.2f %%\n", 100 * share);
        printf("communication: %.1f %% of %.2f s\n", spent > 0 ? 100 * communicating / spent : 0,
               spent);
        printf("weights: %016" PRIx64 ", the same on all %d ranks\n", hash, size);
    }
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return share >= ENOUGH ? 0 : 1;
}
