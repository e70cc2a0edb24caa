/* The executor's short cut: a call that is one slice of short messages in host memory runs
 * straight. What executor.c finds out from cells as messages come and go is known beforehand here:
 * the order (plan->line), and, from the last call of the same size, where the bytes of each step
 * lie. What travels is the same, so a rank may run straight while its peers do not.
 *
 * A line cannot deadlock: all its receives are announced before anything is sent, so a send waits
 * at most for its peer to enter the call; and messages are taken in the order of the lane, of which
 * the verifier proves that it ends with one receive in flight. */
#include "base/error.h"
#include "engine/executor_state.h"
#include <stdlib.h>
#include <string.h>

/* Where a list of chunks lies in one piece. */
struct place {
    enum sched_buffer buffer;
    size_t offset, elements;
};

struct straight_action {
    uint32_t step, peer;
    uint32_t places; /* index of the step's destination; its sources follow */
    size_t bytes;    /* of the message */
};

/* A plan's line as it ran last, of one size. */
struct straight {
    size_t count, element_size, partial_size;
    enum { STRAIGHT_NEW, STRAIGHT_FITS, STRAIGHT_NOT } state; /* NOT: this size does not run so */
    uint32_t nactions;
    struct place *places; /* behind the actions */
    struct straight_action actions[];
};

static const struct sched_step *step_at(const struct executor *executor, uint32_t step) {
    return &executor->plan->schedule->steps[step];
}

/* -- where bytes lie ----------------------------------------------------------------------------
 */

static unsigned char *base_of(const struct executor *executor, enum sched_buffer buffer) {
    const struct call_args *args = &executor->request->args;
    if (buffer == SCHED_SCRATCH)
        return executor->scratch;
    return buffer == SCHED_INPUT ? (unsigned char *)(uintptr_t)args->send : args->recv;
}

static unsigned char *data_at(const struct executor *executor, const struct place *place) {
    return place->elements > 0 ? base_of(executor, place->buffer) + place->offset : NULL;
}

/* False: the list lies in several pieces. */
static bool find_place(const struct executor *executor, struct sched_list list, size_t size,
                       struct place *place) {
    const struct sched_range *ranges = &executor->plan->schedule->ranges[list.begin];
    struct transport_piece piece;
    int pieces = executor_pieces(executor, list, 0, size, &piece, 1);
    *place = (struct place){0};
    if (pieces <= 0)
        return pieces == 0;
    for (uint32_t r = 1; r < list.count; r++)
        if (ranges[r].buffer != ranges[0].buffer)
            return false; /* neighbours by chance, if at all */
    place->buffer = ranges[0].buffer;
    place->offset = (size_t)((unsigned char *)piece.data - base_of(executor, place->buffer));
    place->elements = piece.length / size;
    return true;
}

static uint32_t sources_of(const struct sched_step *step) {
    return step->type == SCHED_REDUCE ? step->operands : 1;
}

/* Of a step: its destination, and its sources. */
static bool find_places(const struct executor *executor, const struct sched_step *step,
                        struct place *places) {
    bool reduces = step->type == SCHED_RECV_REDUCE || step->type == SCHED_REDUCE;
    bool moves_partials = (step->flags & SCHED_PARTIAL) != 0;
    bool dst_partial = reduces ? (step->flags & SCHED_FINISH) == 0 : moves_partials;
    bool src_partial = reduces ? (step->flags & SCHED_LOAD_LOCAL) == 0 : moves_partials;
    uint32_t sources = sources_of(step), each = step->src.count / sources;
    bool found = find_place(executor, step->dst, executor_size(executor, dst_partial), &places[0]);
    for (uint32_t i = 0; i < sources && found; i++) {
        struct sched_list part = {.begin = step->src.begin + i * each, .count = each};
        found = find_place(executor, part, executor_size(executor, src_partial), &places[1 + i]);
    }
    return found;
}

/* -- the line of a size -------------------------------------------------------------------------
 */

/* Gives a plan memory for its line. */
static bool straight_make(struct plan *plan) {
    size_t nplaces = 0;
    for (uint32_t i = 0; i < plan->schedule->nsteps; i++)
        nplaces += 1 + sources_of(&plan->schedule->steps[i]);
    size_t actions = plan->nline * sizeof(struct straight_action);
    size_t bytes = sizeof(struct straight) + actions + nplaces * sizeof(struct place);
    struct straight *straight = malloc(bytes);
    if (straight == NULL)
        return false;
    *straight =
        (struct straight){.state = STRAIGHT_NEW,
                          .places = (struct place *)(void *)((char *)straight->actions + actions)};
    plan->straight = straight;
    plan->straight_bytes = bytes;
    return true;
}

/* Bytes of a step's message; of local work, of its result. */
static size_t bytes_of(const struct executor *executor, const struct sched_step *step,
                       const struct place *places) {
    size_t size = executor_size(executor, executor_moves_partials(step));
    return places[step->type == SCHED_SEND].elements * size;
}

static void straight_set(const struct executor *executor, struct straight *straight) {
    const struct plan *plan = executor->plan;
    uint32_t nplaces = 0, places = 0;
    size_t bytes = 0;
    straight->count = executor->request->args.count;
    straight->element_size = executor->element_size;
    straight->partial_size = executor->partial_size;
    straight->nactions = 0;
    bool fits = true;
    for (uint32_t i = 0; i < plan->nline && fits; i++) {
        struct plan_action action = plan->line[i];
        const struct sched_step *step = step_at(executor, action.step);
        if (action.peer == 0) {
            places = nplaces;
            nplaces += 1 + sources_of(step);
            fits = find_places(executor, step, &straight->places[places]);
            bytes = bytes_of(executor, step, &straight->places[places]);
        }
        fits = fits && bytes < EXECUTOR_POST_BYTES;
        bool message = sched_receives(step->type) || step->type == SCHED_SEND;
        if (bytes > 0 || (message && executor_sends_empty(executor, action.step, 0)))
            straight->actions[straight->nactions++] = (struct straight_action){
                .step = action.step, .peer = action.peer, .places = places, .bytes = bytes};
    }
    straight->state = fits ? STRAIGHT_FITS : STRAIGHT_NOT;
}

bool executor_is_straight(struct executor *executor) {
    struct plan *plan = executor->plan;
    if (executor->nslices != 1 || executor->vector || !executor->host_memory || plan->nline == 0 ||
        (plan->straight == NULL && !straight_make(plan)))
        return false;
    struct straight *straight = plan->straight;
    executor->slots[0].slice = 0;
    if (straight->state == STRAIGHT_NEW || straight->count != executor->request->args.count ||
        straight->element_size != executor->element_size ||
        straight->partial_size != executor->partial_size)
        straight_set(executor, straight);
    if (straight->state == STRAIGHT_NOT)
        return false;
    executor->straight = straight;
    executor->action = 0;
    return true;
}

/* -- running ------------------------------------------------------------------------------------
 */

static void copy(void *dst, const void *src, size_t bytes) {
    if (bytes > 0 && dst != src)
        memcpy(dst, src, bytes);
}

/* The message of a receive, in one or two pieces, to where it belongs. */
static void copy_in(const struct executor *executor, const struct straight_action *action) {
    const struct transport_piece *pieces =
        executor_arrivals(executor, action->step, 0)->arrival.pieces;
    unsigned char *dst = data_at(executor, &executor->straight->places[action->places]);
    copy(dst, pieces[0].data, pieces[0].length);
    if (pieces[1].length > 0)
        copy(dst + pieces[0].length, pieces[1].data, pieces[1].length);
}

/* The messages of a receive, and the local operand in its place. False without memory. */
static bool reduce_received(struct executor *executor, const struct straight_action *action) {
    const struct sched_step *step = step_at(executor, action->step);
    const struct place *places = &executor->straight->places[action->places];
    const struct arrival_slot *arrivals = executor_arrivals(executor, action->step, 0);
    bool wide = !executor->request->rounds_partials, has_local = step->src.count > 0;
    struct reduce_operand *operands = executor->operands,
                          local = {.data = data_at(executor, &places[1]),
                                   .partial = wide && (step->flags & SCHED_LOAD_LOCAL) == 0};
    unsigned char *copies = NULL;
    size_t n = 0;
    for (uint32_t i = 0; i < step->peers.count && places[0].elements > 0; i++) {
        if (has_local && i == step->position)
            operands[n++] = local;
        operands[n] =
            (struct reduce_operand){.data = executor_straighten(executor, &arrivals[i].arrival, i,
                                                                step->peers.count, &copies),
                                    .partial = wide && (step->flags & SCHED_LOAD_MESSAGE) == 0};
        if (operands[n++].data == NULL)
            return false;
    }
    if (has_local && step->position >= step->peers.count)
        operands[n++] = local;
    executor_combine(executor, NULL, data_at(executor, &places[0]),
                     (step->flags & SCHED_FINISH) != 0, n, places[0].elements);
    free(copies);
    return true;
}

static void reduce_local(struct executor *executor, const struct straight_action *action) {
    const struct sched_step *step = step_at(executor, action->step);
    const struct place *places = &executor->straight->places[action->places];
    bool partial = !executor->request->rounds_partials && (step->flags & SCHED_LOAD_LOCAL) == 0;
    for (uint32_t i = 0; i < step->operands; i++)
        executor->operands[i] =
            (struct reduce_operand){.data = data_at(executor, &places[1 + i]), .partial = partial};
    executor_combine(executor, NULL, data_at(executor, &places[0]),
                     (step->flags & SCHED_FINISH) != 0, step->operands, places[0].elements);
}

/* Takes one message; the last of a step's, and the step is done. */
static bool receive(struct executor *executor, const struct straight_action *action) {
    const struct sched_step *step = step_at(executor, action->step);
    if (!executor_take_short(executor, action->step, action->peer))
        return false;
    if (action->peer + 1 < step->peers.count)
        return true;
    bool done = true;
    if (step->type == SCHED_RECV)
        copy_in(executor, action);
    else
        done = reduce_received(executor, action);
    if (done)
        executor_release(executor, action->step, 0);
    else
        executor_fail_memory(executor);
    return done;
}

/* False: not now, or the request has ended. */
static bool act(struct executor *executor, const struct straight_action *action) {
    const struct place *places = &executor->straight->places[action->places];
    switch (step_at(executor, action->step)->type) {
    case SCHED_SEND:
        return executor_send_short(executor, action->step, action->peer,
                                   data_at(executor, &places[1]), action->bytes);
    case SCHED_COPY:
        copy(data_at(executor, &places[0]), data_at(executor, &places[1]), action->bytes);
        return true;
    case SCHED_REDUCE:
        reduce_local(executor, action);
        return true;
    default:
        return receive(executor, action);
    }
}

void executor_start_straight(struct executor *executor) {
    const struct straight *straight = executor->straight;
    executor->pumping = true; /* nothing is taken before all are awaited */
    for (uint32_t i = 0; i < straight->nactions && executor->request != NULL; i++) {
        const struct straight_action *action = &straight->actions[i];
        if (sched_receives(step_at(executor, action->step)->type))
            (void)executor_await(executor, action->step, action->peer, 0, action->bytes);
    }
    executor->pumping = false;
    if (executor->request != NULL)
        executor_run_straight(executor);
}

void executor_run_straight(struct executor *executor) {
    const struct straight *straight = executor->straight;
    if (executor->pumping)
        return; /* the loop further up goes on */
    executor->pumping = true;
    while (executor->request != NULL && executor->action < straight->nactions &&
           act(executor, &straight->actions[executor->action]))
        executor->action++;
    executor->pumping = false;
    rota_request *request = executor->request;
    if (request != NULL && executor->action == straight->nactions) {
        executor->request = NULL;
        request_end(request, ROTA_OK);
    }
}
