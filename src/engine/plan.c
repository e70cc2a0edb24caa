/* Makes plans: the edges between steps, the order of messages in lanes, their numbers on channels.
 */
#include "engine/plan.h"

#include "base/error.h"
#include <stdlib.h>
#include <string.h>

/* A growing array of edges (from, to). */
struct edges {
    uint32_t *pairs;
    size_t count, capacity;
    bool failed;
};

static void edge_add(struct edges *edges, uint32_t from, uint32_t to) {
    if (edges->failed)
        return;
    if (edges->count == edges->capacity) {
        size_t capacity = edges->capacity > 0 ? 2 * edges->capacity : 64;
        uint32_t *pairs = realloc(edges->pairs, capacity * 2 * sizeof(*pairs));
        if (pairs == NULL) {
            edges->failed = true;
            return;
        }
        edges->pairs = pairs;
        edges->capacity = capacity;
    }
    edges->pairs[2 * edges->count] = from;
    edges->pairs[2 * edges->count + 1] = to;
    edges->count++;
}

/* Who touched each chunk of one lane so far. Readers since the last write form a list. */
struct access {
    uint32_t writer;  /* step + 1, 0 = none */
    uint32_t readers; /* index + 1 in reads */
};
struct read {
    uint32_t step, next;
};

struct hazards {
    const struct sched *schedule;
    struct access *chunks; /* INPUT, OUTPUT, SCRATCH one after the other */
    uint32_t begin[3];
    uint32_t total;
    struct read *reads;
    uint32_t nreads, read_capacity;
    struct edges *edges;
};

static struct access *access_of(struct hazards *hazards, enum sched_buffer buffer, uint32_t chunk) {
    if (buffer == SCHED_INPUT && hazards->schedule->in_place) {
        uint32_t alias = sched_input_alias(hazards->schedule, chunk);
        if (alias != UINT32_MAX)
            return &hazards->chunks[hazards->begin[SCHED_OUTPUT] + alias];
    }
    return &hazards->chunks[hazards->begin[buffer] + chunk];
}

static void note_read(struct hazards *hazards, struct access *access, uint32_t step) {
    if (access->writer != 0 && access->writer - 1 != step)
        edge_add(hazards->edges, access->writer - 1, step);
    if (hazards->nreads == hazards->read_capacity) {
        uint32_t capacity = hazards->read_capacity > 0 ? 2 * hazards->read_capacity : 64;
        struct read *reads = realloc(hazards->reads, capacity * sizeof(*reads));
        if (reads == NULL) {
            hazards->edges->failed = true;
            return;
        }
        hazards->reads = reads;
        hazards->read_capacity = capacity;
    }
    hazards->reads[hazards->nreads] = (struct read){.step = step, .next = access->readers};
    access->readers = ++hazards->nreads;
}

static void note_write(struct hazards *hazards, struct access *access, uint32_t step) {
    if (access->writer != 0 && access->writer - 1 != step)
        edge_add(hazards->edges, access->writer - 1, step);
    for (uint32_t i = access->readers; i != 0; i = hazards->reads[i - 1].next)
        if (hazards->reads[i - 1].step != step)
            edge_add(hazards->edges, hazards->reads[i - 1].step, step);
    access->readers = 0;
    access->writer = step + 1;
}

static void note_list(struct hazards *hazards, struct sched_list list, uint32_t step, bool write) {
    for (uint32_t r = list.begin; r < list.begin + list.count; r++) {
        const struct sched_range *range = &hazards->schedule->ranges[r];
        for (uint32_t rep = 0; rep < range->reps; rep++) {
            for (uint32_t i = 0; i < range->count; i++) {
                struct access *access =
                    access_of(hazards, range->buffer, range->first + rep * range->stride + i);
                if (write)
                    note_write(hazards, access, step);
                else
                    note_read(hazards, access, step);
            }
        }
    }
}

/* Edges by hazards between steps of one lane, lane after lane, and by named waits. */
static rota_status find_edges(const struct sched *schedule, struct edges *edges) {
    struct hazards hazards = {.schedule = schedule, .edges = edges};
    hazards.begin[SCHED_OUTPUT] = sched_input_chunks(schedule);
    hazards.begin[SCHED_SCRATCH] = hazards.begin[SCHED_OUTPUT] + sched_output_chunks(schedule);
    hazards.total = hazards.begin[SCHED_SCRATCH] + schedule->scratch_chunks;
    hazards.chunks = calloc((size_t)hazards.total + 1, sizeof(*hazards.chunks));
    if (hazards.chunks == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    for (uint32_t lane = 0; lane < schedule->lanes; lane++) {
        memset(hazards.chunks, 0, (size_t)hazards.total * sizeof(*hazards.chunks));
        hazards.nreads = 0;
        for (uint32_t i = 0; i < schedule->nsteps; i++) {
            if (schedule->steps[i].lane != lane)
                continue;
            note_list(&hazards, schedule->steps[i].src, i, false);
            note_list(&hazards, schedule->steps[i].dst, i, true);
        }
    }
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_list waits = schedule->steps[i].waits;
        for (uint32_t w = waits.begin; w < waits.begin + waits.count; w++)
            edge_add(edges, schedule->waits[w], i);
    }
    free(hazards.reads);
    free(hazards.chunks);
    return edges->failed ? error_raise(ROTA_ERR_MEMORY, "out of memory for a plan") : ROTA_OK;
}

static int compare_edges(const void *left, const void *right) {
    const uint32_t *a = left, *b = right;
    if (a[0] != b[0])
        return a[0] < b[0] ? -1 : 1;
    return a[1] < b[1] ? -1 : a[1] > b[1];
}

static _Atomic uint32_t dropped_edge;

void plan_test_drop_edge(uint32_t number) {
    atomic_store_explicit(&dropped_edge, number, memory_order_relaxed);
}

static rota_status set_edges(struct plan *plan, struct edges *edges) {
    if (edges->count > 0)
        qsort(edges->pairs, edges->count, 2 * sizeof(*edges->pairs), compare_edges);
    plan->followers = calloc(edges->count + 1, sizeof(*plan->followers));
    if (plan->followers == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    uint32_t dropped = atomic_load_explicit(&dropped_edge, memory_order_relaxed);
    uint32_t used = 0, number = 0;
    for (size_t i = 0; i < edges->count; i++) {
        const uint32_t *pair = &edges->pairs[2 * i];
        if ((i > 0 && compare_edges(pair, pair - 2) == 0) || ++number == dropped)
            continue;
        struct plan_step *from = &plan->steps[pair[0]];
        if (from->followers.count == 0)
            from->followers.begin = used;
        from->followers.count++;
        plan->followers[used++] = pair[1];
        plan->steps[pair[1]].pending++;
    }
    return ROTA_OK;
}

/* Lists sends and receives of each lane in order. */
static rota_status set_order(struct plan *plan) {
    const struct sched *schedule = plan->schedule;
    plan->lanes = calloc((size_t)schedule->lanes + 1, sizeof(*plan->lanes));
    plan->order = calloc((size_t)schedule->nsteps + 1, sizeof(*plan->order));
    if (plan->lanes == NULL || plan->order == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    uint32_t used = 0;
    for (uint32_t lane = 0; lane < schedule->lanes; lane++) {
        for (int receiving = 0; receiving < 2; receiving++) {
            struct sched_list *list =
                receiving ? &plan->lanes[lane].recvs : &plan->lanes[lane].sends;
            list->begin = used;
            for (uint32_t i = 0; i < schedule->nsteps; i++) {
                const struct sched_step *step = &schedule->steps[i];
                if (step->lane == lane &&
                    (receiving ? sched_receives(step->type) : step->type == SCHED_SEND))
                    plan->order[used++] = i;
            }
            list->count = used - list->begin;
        }
    }
    return ROTA_OK;
}

/* Numbers the messages of each (peer, channel) and direction. */
static rota_status set_positions(struct plan *plan) {
    const struct sched *schedule = plan->schedule;
    size_t streams = (size_t)schedule->nranks * (schedule->channels + 1);
    uint32_t *counts = calloc(2 * streams, sizeof(*counts));
    plan->positions = calloc((size_t)schedule->npeers + 1, sizeof(*plan->positions));
    if (counts == NULL || plan->positions == NULL) {
        free(counts);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    }
    for (uint32_t i = 0; i < schedule->nsteps; i++) {
        const struct sched_step *step = &schedule->steps[i];
        struct sched_list data = step->type == SCHED_SEND ? step->src : step->dst;
        plan->steps[i].token = sched_list_chunks(schedule, data) == 0;
        uint32_t *direction = counts + (step->type == SCHED_SEND ? 0 : streams);
        for (uint32_t p = step->peers.begin; p < step->peers.begin + step->peers.count; p++)
            plan->positions[p] =
                direction[(size_t)schedule->peers[p] * (schedule->channels + 1) + step->channel]++;
    }
    free(counts);
    return ROTA_OK;
}

/* What is in the line already, and what can be next. */
struct line_state {
    struct sched_list sends, recvs; /* of plan.order: those that are left */
    uint32_t *pending;              /* per step */
    uint32_t *ready;                /* local steps, oldest first */
    uint32_t nready, taken;
};

static void line_pend(const struct plan *plan, struct line_state *state, uint32_t step,
                      uint32_t pending) {
    enum sched_step_type type = plan->schedule->steps[step].type;
    state->pending[step] = pending;
    if (pending == 0 && (type == SCHED_COPY || type == SCHED_REDUCE))
        state->ready[state->nready++] = step;
}

static bool can_begin(const struct plan *plan, const struct line_state *state,
                      struct sched_list steps) {
    return steps.count > 0 && state->pending[plan->order[steps.begin]] == 0;
}

static uint32_t take_first(const struct plan *plan, struct sched_list *steps) {
    steps->count--;
    return plan->order[steps->begin++];
}

/* The next step of the line: a send before local work, which may take long, and both before a
 * receive, which may wait. UINT32_MAX: there is none. */
static uint32_t line_next(const struct plan *plan, struct line_state *state) {
    if (can_begin(plan, state, state->sends))
        return take_first(plan, &state->sends);
    if (state->taken < state->nready)
        return state->ready[state->taken++];
    return can_begin(plan, state, state->recvs) ? take_first(plan, &state->recvs) : UINT32_MAX;
}

static void line_fill(struct plan *plan, struct line_state *state) {
    const struct sched *schedule = plan->schedule;
    uint32_t steps = 0;
    for (uint32_t i = 0; i < schedule->nsteps; i++)
        line_pend(plan, state, i, plan->steps[i].pending);
    for (uint32_t next = line_next(plan, state); next != UINT32_MAX; steps++) {
        const struct sched_step *step = &schedule->steps[next];
        bool local = step->type == SCHED_COPY || step->type == SCHED_REDUCE;
        for (uint32_t peer = 0; peer < (local ? 1 : step->peers.count); peer++)
            plan->line[plan->nline++] = (struct plan_action){.step = next, .peer = peer};
        const struct sched_list followers = plan->steps[next].followers;
        for (uint32_t f = followers.begin; f < followers.begin + followers.count; f++)
            line_pend(plan, state, plan->followers[f], state->pending[plan->followers[f]] - 1);
        next = line_next(plan, state);
    }
    if (steps < schedule->nsteps)
        plan->nline = 0; /* steps wait for each other, which no proven schedule has */
}

/* The messages of one direction, if one lane has all of them. */
static bool one_lane(const struct plan *plan, bool receiving, struct sched_list *steps) {
    uint32_t lanes = 0;
    *steps = (struct sched_list){0};
    for (uint32_t lane = 0; lane < plan->schedule->lanes; lane++) {
        struct sched_list list = receiving ? plan->lanes[lane].recvs : plan->lanes[lane].sends;
        if (list.count > 0) {
            *steps = list;
            lanes++;
        }
    }
    return lanes <= 1;
}

/* Brings the steps into one order. */
static rota_status set_line(struct plan *plan) {
    struct line_state state = {0};
    if (!one_lane(plan, false, &state.sends) || !one_lane(plan, true, &state.recvs))
        return ROTA_OK;
    size_t steps = (size_t)plan->schedule->nsteps + 1;
    state.pending = malloc(steps * sizeof(*state.pending));
    state.ready = malloc(steps * sizeof(*state.ready));
    plan->line = malloc((steps + plan->schedule->npeers) * sizeof(*plan->line));
    bool whole = state.pending != NULL && state.ready != NULL && plan->line != NULL;
    if (whole)
        line_fill(plan, &state);
    free(state.pending);
    free(state.ready);
    return whole ? ROTA_OK : error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
}

static void plan_free(struct plan *plan) {
    if (plan->schedule != NULL)
        sched_free(plan->schedule);
    free(plan->steps);
    free(plan->followers);
    free(plan->lanes);
    free(plan->order);
    free(plan->positions);
    free(plan->line);
    free(plan->straight);
    free(plan);
}

static rota_status prepare(struct plan *plan) {
    plan->steps = calloc((size_t)plan->schedule->nsteps + 1, sizeof(*plan->steps));
    if (plan->steps == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    struct edges edges = {0};
    rota_status status = find_edges(plan->schedule, &edges);
    if (status == ROTA_OK)
        status = set_edges(plan, &edges);
    free(edges.pairs);
    if (status == ROTA_OK)
        status = set_order(plan);
    if (status == ROTA_OK)
        status = set_positions(plan);
    if (status == ROTA_OK)
        status = set_line(plan);
    return status;
}

rota_status plan_get(rota_comm *comm, const struct algorithm *algorithm, rota_kind kind, int root,
                     bool in_place, struct plan **out) {
    for (struct plan *plan = comm->plans; plan != NULL; plan = plan->next) {
        if (plan->algorithm == algorithm && plan->kind == kind && plan->root == root &&
            plan->in_place == in_place) {
            *out = plan;
            return ROTA_OK;
        }
    }
    struct plan *plan = calloc(1, sizeof(*plan));
    if (plan == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a plan");
    plan->algorithm = algorithm;
    plan->kind = kind;
    plan->root = root;
    plan->in_place = in_place;
    plan->widest = algorithm_widest(algorithm, kind, comm->nranks, root);
    struct algorithm_request request = {.kind = kind,
                                        .nranks = comm->nranks,
                                        .rank = comm->rank,
                                        .root = root,
                                        .in_place = in_place,
                                        .lanes = 1,
                                        .topology = &comm->topology};
    rota_status status = algorithm_build(algorithm, &request, &plan->schedule);
    if (status == ROTA_OK)
        status = prepare(plan);
    if (status != ROTA_OK) {
        plan_free(plan);
        return status;
    }
    plan->next = comm->plans;
    comm->plans = plan;
    *out = plan;
    return ROTA_OK;
}

void plan_free_all(struct plan *plans) {
    while (plans != NULL) {
        struct plan *next = plans->next;
        plan_free(plans);
        plans = next;
    }
}

size_t plan_memory(const struct plan *plans) {
    size_t bytes = 0;
    for (; plans != NULL; plans = plans->next) {
        const struct sched *schedule = plans->schedule;
        bytes += sizeof(*plans) + sizeof(*schedule) +
                 schedule->nsteps *
                     (sizeof(struct sched_step) + sizeof(struct plan_step) + sizeof(uint32_t)) +
                 schedule->nranges * sizeof(struct sched_range) +
                 plans->nline * sizeof(struct plan_action) + plans->straight_bytes +
                 schedule->npeers * (sizeof(int) + sizeof(uint32_t)) +
                 schedule->nwaits * sizeof(uint32_t);
    }
    return bytes;
}
