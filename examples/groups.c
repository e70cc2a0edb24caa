/* Groups: eight ranks train a model that is cut in three ways at once, and each cut has its own
 * communicator, made by rota_comm_split.
 *
 *     rota run -n 8 -- groups
 *
 * Rank = data * 4 + pipeline * 2 + tensor. Ranks of one tensor group hold parts of the same layers
 * and sum what they computed; those of one pipeline group hand activations to the next stage; those
 * of one data group average gradients; those of one expert group, here the four ranks of a stage,
 * send every token to the rank that holds its expert. Rank 1 is late on purpose: the table in the
 * end shows for whom each rank waited. */
#include "check.h"

#include <time.h>

#define TOKENS 64 /* that a rank has for each expert */
#define STEPS 5
#define ACTIVATIONS 2 /* tag */

enum { TENSOR, PIPELINE, DATA, EXPERT, KINDS };
static const char *const names[KINDS] = {"tensor", "pipeline", "data", "expert"};

struct model {
    rota_comm *world, *group[KINDS];
    int rank, place[KINDS], size[KINDS];
};

static void expect(bool right, const struct model *model, const char *what) {
    if (right)
        return;
    fprintf(stderr, "rank %d: %s is wrong\n", model->rank, what);
    exit(1);
}

static void make_groups(struct model *model) {
    int tensor = model->rank % 2, pipeline = model->rank / 2 % 2, data = model->rank / 4;
    /* Ranks of one color differ only in the coordinate along which the group goes. */
    const int color[KINDS] = {[TENSOR] = data * 2 + pipeline,
                              [PIPELINE] = data * 2 + tensor,
                              [DATA] = pipeline * 2 + tensor,
                              [EXPERT] = pipeline};
    for (int k = 0; k < KINDS; k++) {
        check(
            rota_comm_split(model->world, color[k], model->rank, names[k], &model->group[k], NULL),
            "split", model->world);
        check(rota_comm_rank(model->group[k], &model->place[k]), "rank", model->group[k]);
        check(rota_comm_size(model->group[k], &model->size[k]), "size", model->group[k]);
        expect(model->size[k] == (k == EXPERT ? 4 : 2), model, names[k]);
    }
    expect(model->place[TENSOR] == tensor && model->place[PIPELINE] == pipeline &&
               model->place[DATA] == data && model->place[EXPERT] == data * 2 + tensor,
           model, "a place");
}

/* Each rank has half of a layer: the halves' results are summed. */
static float tensor_step(const struct model *model, int step) {
    float part = (float)(step + 10 * model->place[TENSOR] + 100 * model->place[PIPELINE]);
    float whole = 0;
    check(rota_all_reduce(&part, &whole, 1, ROTA_FLOAT32, ROTA_SUM, model->group[TENSOR], NULL),
          "all_reduce", model->group[TENSOR]);
    expect(whole == (float)(2 * step + 10 + 200 * model->place[PIPELINE]), model, "the layer");
    return whole;
}

/* The first stage sends what it computed to the second. */
static void pipeline_step(const struct model *model, int step, float activation) {
    rota_comm *comm = model->group[PIPELINE];
    if (model->place[PIPELINE] == 0) {
        check(rota_send(&activation, 1, ROTA_FLOAT32, 1, ACTIVATIONS, comm, NULL), "send", comm);
        return;
    }
    float received = 0;
    check(rota_recv(&received, 1, ROTA_FLOAT32, 0, ACTIVATIONS, comm, NULL, NULL), "recv", comm);
    expect(received == (float)(2 * step + 10), model, "the activation");
}

/* Every rank holds one expert; token t for expert e comes back as what expert e makes of it. */
static void expert_step(const struct model *model) {
    rota_comm *comm = model->group[EXPERT];
    int32_t tokens[4 * TOKENS], routed[4 * TOKENS];
    for (int i = 0; i < 4 * TOKENS; i++)
        tokens[i] = 1000 * model->place[EXPERT] + i;
    check(rota_all_to_all(tokens, routed, TOKENS, ROTA_INT32, comm, NULL), "all_to_all", comm);
    for (int i = 0; i < 4 * TOKENS; i++) {
        int32_t from = i / TOKENS, token = model->place[EXPERT] * TOKENS + i % TOKENS;
        expect(routed[i] == 1000 * from + token, model, "a token");
        routed[i] *= 2;
    }
    check(rota_all_to_all(routed, tokens, TOKENS, ROTA_INT32, comm, NULL), "all_to_all", comm);
    for (int i = 0; i < 4 * TOKENS; i++)
        expect(tokens[i] == 2 * (1000 * model->place[EXPERT] + i), model, "an expert's answer");
}

/* Gradients are averaged over the copies of the model. */
static void data_step(const struct model *model) {
    float gradient = (float)model->rank, mean = 0;
    check(rota_all_reduce(&gradient, &mean, 1, ROTA_FLOAT32, ROTA_AVG, model->group[DATA], NULL),
          "all_reduce", model->group[DATA]);
    expect(mean == (float)(model->rank % 4 + 2), model, "the gradient");
}

static void be_late(const struct model *model) {
    const struct timespec pause = {.tv_nsec = 20 * 1000 * 1000};
    if (model->rank == 1)
        nanosleep(&pause, NULL);
}

/* Adds the time waited in each group; along each cut the peers are other ranks of the world. */
static void add_waits(const struct model *model, double waited_ms[8]) {
    static const int stride[KINDS] = {[TENSOR] = 1, [PIPELINE] = 2, [DATA] = 4};
    for (int k = 0; k < KINDS; k++) {
        for (int place = 0; place < model->size[k]; place++) {
            int rank = model->rank + (place - model->place[k]) * stride[k];
            if (k == EXPERT)
                rank = place / 2 * 4 + model->place[PIPELINE] * 2 + place % 2;
            rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
            check(rota_comm_peer_counters(model->group[k], place, &counters), "counters",
                  model->group[k]);
            waited_ms[rank] += (double)counters.waited_ns * 1e-6;
        }
    }
}

static void print_memory(const struct model *model) {
    for (int k = 0; k < KINDS; k++) {
        size_t bytes = 0;
        check(rota_comm_memory(model->group[k], &bytes), "memory", model->group[k]);
        const char *sum = rota_comm_algorithm(model->group[k], ROTA_KIND_ALL_REDUCE);
        printf("%-8s group of %d: %zu bytes, all_reduce by %s\n", names[k], model->size[k], bytes,
               sum != NULL ? sum : "nobody");
    }
}

/* Rank 0 prints what its groups hold, and for whom everybody waited. */
static void report(const struct model *model) {
    double waited_ms[8] = {0}, table[64];
    add_waits(model, waited_ms);
    check(rota_gather(waited_ms, table, 8, ROTA_FLOAT64, 0, model->world, NULL), "gather",
          model->world);
    if (model->rank != 0)
        return;
    print_memory(model);
    printf("milliseconds waited for rank\n       ");
    for (int peer = 0; peer < 8; peer++)
        printf("%8d", peer);
    for (int rank = 0; rank < 8; rank++) {
        printf("\nrank %d ", rank);
        for (int peer = 0; peer < 8; peer++)
            printf("%8.1f", table[rank * 8 + peer]);
    }
    printf("\n");
    expect(table[0 * 8 + 1] > STEPS * 10.0, model, "the time waited for rank 1");
}

int main(void) {
    struct model model = {0};
    int size;
    check(rota_init(NULL, &model.world, NULL), "init", NULL);
    check(rota_comm_rank(model.world, &model.rank), "rank", model.world);
    check(rota_comm_size(model.world, &size), "size", model.world);
    if (size != 8) {
        fprintf(stderr, "groups wants 8 ranks\n");
        return 2;
    }
    make_groups(&model);
    for (int step = 0; step < STEPS; step++) {
        be_late(&model);
        float activation = tensor_step(&model, step);
        pipeline_step(&model, step, activation);
        expert_step(&model);
        data_step(&model);
    }
    report(&model);
    for (int k = 0; k < KINDS; k++)
        check(rota_comm_destroy(model.group[k]), "destroy", NULL);
    check(rota_comm_finalize(model.world, NULL), "finalize", model.world);
    check(rota_comm_destroy(model.world), "destroy", NULL);
    return 0;
}
