/* Training that goes on when a rank is lost.
 *
 *     rota run -n 4 --keep-going -- parallel_survive
 *
 * In the middle of step 13 the highest rank is killed. The others get an error that names it,
 * shrink their communicator to those who live, and go on from the last step that all of them have
 * completed. An all-reduce is not atomic: some ranks may have seen it succeed when others saw it
 * fail, so they may be one step apart; each keeps the state before its last step, and who is ahead
 * goes back. The samples are cut anew over those who are left. */
#include "net.h"

#include <math.h>
#include <signal.h>
#include <string.h>

#define STEPS 40
#define STEPS_OF_ALL 12

static const struct net net = {.layers = 3, .widths = {PIXELS, 48, 32, CLASSES}};

struct state {
    int step; /* completed */
    float loss;
    float *params, *velocity;
};

static struct state state_new(void) {
    struct state state = {.params = ALLOCATE(net_size(&net), float),
                          .velocity = ALLOCATE(net_size(&net), float)};
    net_init(&net, state.params);
    return state;
}

static void state_copy(struct state *to, const struct state *from) {
    to->step = from->step;
    to->loss = from->loss;
    memcpy(to->params, from->params, net_size(&net) * sizeof(float));
    memcpy(to->velocity, from->velocity, net_size(&net) * sizeof(float));
}

static void state_free(struct state *state) {
    free(state->params);
    free(state->velocity);
}

/* One step on the ranks of comm; on an error the state is as before. */
static rota_status step(rota_comm *comm, const struct samples *samples, struct state *state,
                        struct state *before, float *grad, bool dies) {
    int rank, size;
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    size_t count = net_size(&net);
    int first = part_begin(samples->count, rank, size);
    memset(grad, 0, (count + 1) * sizeof(*grad));
    grad[count] = net_gradient(&net, state->params, samples, first,
                               part_begin(samples->count, rank + 1, size) - first, grad);
    if (dies && state->step == STEPS_OF_ALL)
        raise(SIGKILL);
    rota_status status = rota_all_reduce(grad, grad, count + 1, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
    if (status != ROTA_OK)
        return status;
    state_copy(before, state);
    momentum_step(state->params, state->velocity, grad, count, samples->count);
    state->loss = grad[count] / (float)samples->count;
    state->step++;
    return ROTA_OK;
}

/* The communicator of those who live, and a state that all of them have. */
static rota_comm *recover(rota_comm *broken, struct state *state, const struct state *before) {
    rota_error error = ROTA_ERROR_INIT;
    rota_comm *comm = NULL;
    int rank, size, least = 0;
    check(rota_comm_error(broken, &error), "error", broken);
    check(rota_comm_shrink(broken, "survivors", &comm, NULL), "shrink", broken);
    check(rota_comm_destroy(broken), "destroy", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    check(rota_all_reduce(&state->step, &least, 1, ROTA_INT32, ROTA_MIN, comm, NULL), "all_reduce",
          comm);
    if (state->step > least)
        state_copy(state, before);
    if (rank == 0)
        printf("%s\nafter step %d: going on with %d ranks\n", error.message, state->step, size);
    return comm;
}

int main(int argc, char **argv) {
    int rank, size;
    rota_comm *comm = join(&rank, &size);
    struct samples samples = samples_read(argc, argv, 240);
    struct state state = state_new(), before = state_new();
    float *grad = ALLOCATE(net_size(&net) + 1, float), loss_before = INFINITY;
    bool dies = size > 1 && rank == size - 1;
    while (state.step < STEPS) {
        if (step(comm, &samples, &state, &before, grad, dies) != ROTA_OK) {
            comm = recover(comm, &state, &before);
            loss_before = state.loss;
        } else if (rank == 0 && state.step % 4 == 0) {
            printf("step %2d: loss %.4f\n", state.step, (double)state.loss);
        }
    }
    bool fell = state.loss < loss_before;
    if (!fell)
        fprintf(stderr, "the loss did not fall: %.4f, and %.4f when a rank was lost\n",
                (double)state.loss, (double)loss_before);
    state_free(&state);
    state_free(&before);
    free(grad);
    samples_free(&samples);
    leave(comm);
    return fell ? 0 : 1;
}
