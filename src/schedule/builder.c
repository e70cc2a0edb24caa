/* Builder: collects the steps that an algorithm emits into the arrays of a schedule. Waits may be
 * named in any order, so they are kept as pairs and sorted to their steps at the end. */
#include "schedule/builder.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

struct wait_pair {
    uint32_t step, other;
};

struct sched_builder {
    rota_status status; /* the first error */
    struct sched *schedule;
    uint32_t lane, channel;
    uint32_t step_room, range_room, peer_room, wait_room;
    uint32_t npairs;
    struct wait_pair *pairs;
};

static void fail(struct sched_builder *b, const char *what) {
    if (b->status == ROTA_OK)
        b->status = error_raise(ROTA_ERR_ARGUMENT, "schedule builder: %s", what);
}

/* Makes room for one more element of `size` bytes; doubles, so emitting stays linear. */
static bool grow(struct sched_builder *b, void **array, uint32_t *room, uint32_t used,
                 uint32_t more, size_t size) {
    if (b->status != ROTA_OK)
        return false;
    if (more > UINT32_MAX / 4 - used) {
        b->status = error_raise(ROTA_ERR_MEMORY, "schedule builder: too many steps");
        return false;
    }
    if (used + more <= *room)
        return true;
    uint32_t wanted = *room ? *room : 16;
    while (wanted < used + more)
        wanted *= 2;
    void *larger = realloc(*array, wanted * size);
    if (!larger) {
        b->status =
            error_raise(ROTA_ERR_MEMORY, "schedule builder: no memory for %u entries", wanted);
        return false;
    }
    *array = larger;
    *room = wanted;
    return true;
}

rota_status sched_builder_create(const struct sched_shape *shape, struct sched_builder **builder) {
    bool rooted = sched_kind_rooted(shape->kind);
    if (!sched_kind_collective(shape->kind))
        return error_raise(ROTA_ERR_ARGUMENT, "kind %d has no schedules", (int)shape->kind);
    if (shape->nranks < 1 || shape->rank < 0 || shape->rank >= shape->nranks)
        return error_raise(ROTA_ERR_ARGUMENT, "rank %d of %d does not exist", shape->rank,
                           shape->nranks);
    if (rooted ? shape->root < 0 || shape->root >= shape->nranks : shape->root != -1)
        return error_raise(ROTA_ERR_ARGUMENT, "root %d: expected %s", shape->root,
                           rooted ? "a rank" : "-1, because the kind has no root");
    struct sched_builder *b = calloc(1, sizeof *b);
    struct sched *schedule = calloc(1, sizeof *schedule);
    if (!b || !schedule) {
        free(b);
        free(schedule);
        return error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
    }
    schedule->kind = shape->kind;
    schedule->nranks = shape->nranks;
    schedule->rank = shape->rank;
    schedule->root = shape->root;
    schedule->in_place = shape->in_place;
    schedule->blocks = sched_kind_blocks(shape->kind, shape->nranks);
    schedule->chunks_per_block = schedule->blocks ? 1 : 0;
    schedule->lanes = schedule->channels = 1;
    b->schedule = schedule;
    *builder = b;
    return ROTA_OK;
}

void sched_builder_destroy(struct sched_builder *builder) {
    if (!builder)
        return;
    sched_free(builder->schedule);
    free(builder->pairs);
    free(builder);
}

/* Turns the pairs into one list per step, stable in the order of naming. */
static rota_status sort_waits(struct sched_builder *b) {
    struct sched *s = b->schedule;
    if (!b->npairs)
        return ROTA_OK;
    s->waits = malloc(b->npairs * sizeof *s->waits);
    if (!s->waits)
        return error_raise(ROTA_ERR_MEMORY, "no memory for %u waits", b->npairs);
    for (uint32_t i = 0; i < b->npairs; i++) {
        if (b->pairs[i].step >= s->nsteps || b->pairs[i].other >= s->nsteps)
            return error_raise(ROTA_ERR_ARGUMENT, "schedule builder: wait for no step");
        s->steps[b->pairs[i].step].waits.count++;
    }
    uint32_t begin = 0;
    for (uint32_t i = 0; i < s->nsteps; i++) {
        s->steps[i].waits.begin = begin;
        begin += s->steps[i].waits.count;
        s->steps[i].waits.count = 0;
    }
    for (uint32_t i = 0; i < b->npairs; i++) {
        struct sched_list *list = &s->steps[b->pairs[i].step].waits;
        s->waits[list->begin + list->count++] = b->pairs[i].other;
    }
    s->nwaits = b->npairs;
    return ROTA_OK;
}

rota_status sched_builder_finish(struct sched_builder *builder, struct sched **schedule) {
    if (builder->status == ROTA_OK)
        builder->status = sort_waits(builder);
    if (builder->status != ROTA_OK)
        return builder->status;
    *schedule = builder->schedule;
    builder->schedule = NULL;
    builder->status = ROTA_ERR_STATE; /* nothing can be added any more */
    return ROTA_OK;
}

void sched_set_chunks(struct sched_builder *builder, uint32_t chunks_per_block) {
    if (builder->status != ROTA_OK)
        return;
    struct sched *s = builder->schedule;
    if (s->nsteps || (s->blocks && !chunks_per_block) || (!s->blocks && chunks_per_block))
        fail(builder, "chunks are set before the first step, at least 1 per block");
    else if (s->blocks && chunks_per_block > UINT32_MAX / 4 / s->blocks)
        fail(builder, "too many chunks");
    else
        s->chunks_per_block = chunks_per_block;
}

uint32_t sched_alloc_scratch(struct sched_builder *builder, uint32_t chunks) {
    if (builder->status != ROTA_OK)
        return 0;
    uint32_t first = builder->schedule->scratch_chunks;
    if (chunks > UINT32_MAX / 4 - first)
        fail(builder, "too much scratch");
    else
        builder->schedule->scratch_chunks += chunks;
    return first;
}

struct sched_range sched_input(uint32_t first, uint32_t count) {
    return (struct sched_range){.buffer = SCHED_INPUT, .first = first, .count = count, .reps = 1};
}

struct sched_range sched_output(uint32_t first, uint32_t count) {
    return (struct sched_range){.buffer = SCHED_OUTPUT, .first = first, .count = count, .reps = 1};
}

struct sched_range sched_scratch(uint32_t first, uint32_t count, uint32_t like) {
    return (struct sched_range){
        .buffer = SCHED_SCRATCH, .first = first, .count = count, .reps = 1, .like = like};
}

void sched_lane(struct sched_builder *builder, uint32_t lane, uint32_t channel) {
    if (lane >= UINT32_MAX / 4 || channel >= UINT32_MAX / 4) {
        fail(builder, "lane or channel out of range");
        return;
    }
    builder->lane = lane;
    builder->channel = channel;
}

static struct sched_list add_ranges(struct sched_builder *b, const struct sched_range *ranges,
                                    uint32_t count) {
    struct sched *s = b->schedule;
    struct sched_list list = {0, 0};
    for (uint32_t i = 0; i < count; i++) {
        if (!ranges[i].count || !ranges[i].reps)
            continue;
        if (!grow(b, (void **)&s->ranges, &b->range_room, s->nranges, 1, sizeof *s->ranges))
            return list;
        if (!list.count++)
            list.begin = s->nranges;
        s->ranges[s->nranges++] = ranges[i];
    }
    return list;
}

static struct sched_list add_peers(struct sched_builder *b, const int *peers, uint32_t count) {
    struct sched *s = b->schedule;
    struct sched_list list = {0, 0};
    if (b->status != ROTA_OK || !count ||
        !grow(b, (void **)&s->peers, &b->peer_room, s->npeers, count, sizeof *s->peers))
        return list;
    for (uint32_t i = 0; i < count; i++)
        if (peers[i] < 0 || peers[i] >= s->nranks || peers[i] == s->rank)
            fail(b, "a peer is another rank");
    list = (struct sched_list){s->npeers, count};
    memcpy(&s->peers[s->npeers], peers, count * sizeof *peers);
    s->npeers += count;
    return list;
}

uint32_t sched_append(struct sched_builder *b, const struct sched_step *step, const int *peers,
                      uint32_t npeers, const struct sched_range *src, uint32_t nsrc,
                      const struct sched_range *dst, uint32_t ndst) {
    struct sched *s = b->schedule;
    struct sched_step added = {.type = step->type,
                               .flags = step->flags,
                               .position = step->position,
                               .operands = step->operands,
                               .lane = b->lane};
    added.peers = add_peers(b, peers, npeers);
    added.src = add_ranges(b, src, nsrc);
    added.dst = add_ranges(b, dst, ndst);
    if (b->status != ROTA_OK ||
        !grow(b, (void **)&s->steps, &b->step_room, s->nsteps, 1, sizeof *s->steps))
        return 0;
    if (b->lane >= s->lanes)
        s->lanes = b->lane + 1;
    if (npeers) {
        added.channel = b->channel;
        if (b->channel >= s->channels)
            s->channels = b->channel + 1;
    }
    s->steps[s->nsteps] = added;
    return s->nsteps++;
}

static bool names_chunks(const struct sched_range *ranges, uint32_t count) {
    for (uint32_t i = 0; i < count; i++)
        if (ranges[i].count && ranges[i].reps)
            return true;
    return false;
}

uint32_t sched_send_list(struct sched_builder *b, const int *peers, uint32_t npeers,
                         const struct sched_range *src, uint32_t nsrc, uint32_t flags) {
    const struct sched_step step = {.type = SCHED_SEND, .flags = flags};
    if (!npeers)
        fail(b, "a send needs a peer");
    return sched_append(b, &step, peers, npeers, src, nsrc, NULL, 0);
}

uint32_t sched_recv_list(struct sched_builder *b, int peer, const struct sched_range *dst,
                         uint32_t ndst, uint32_t flags) {
    const struct sched_step step = {.type = SCHED_RECV, .flags = flags};
    return sched_append(b, &step, &peer, 1, NULL, 0, dst, ndst);
}

uint32_t sched_recv_reduce_list(struct sched_builder *b, const int *peers, uint32_t npeers,
                                uint32_t position, const struct sched_range *src, uint32_t nsrc,
                                const struct sched_range *dst, uint32_t ndst, uint32_t flags) {
    const struct sched_step step = {
        .type = SCHED_RECV_REDUCE, .flags = flags, .position = position};
    if (!npeers || position > npeers)
        fail(b, "a receive with reduction needs peers, and a position among them");
    if (!names_chunks(dst, ndst))
        fail(b, "a reduction needs a destination");
    return sched_append(b, &step, peers, npeers, src, nsrc, dst, ndst);
}

uint32_t sched_send(struct sched_builder *b, int peer, struct sched_range src, uint32_t flags) {
    return sched_send_list(b, &peer, 1, &src, 1, flags);
}

uint32_t sched_recv(struct sched_builder *b, int peer, struct sched_range dst, uint32_t flags) {
    return sched_recv_list(b, peer, &dst, 1, flags);
}

uint32_t sched_recv_reduce(struct sched_builder *b, int peer, struct sched_range local,
                           bool message_left, struct sched_range dst, uint32_t flags) {
    return sched_recv_reduce_list(b, &peer, 1, message_left ? 1 : 0, &local, 1, &dst, 1, flags);
}

uint32_t sched_copy(struct sched_builder *b, struct sched_range src, struct sched_range dst,
                    uint32_t flags) {
    const struct sched_step step = {.type = SCHED_COPY, .flags = flags};
    if (!names_chunks(&src, 1) || !names_chunks(&dst, 1))
        fail(b, "a copy needs a source and a destination");
    return sched_append(b, &step, NULL, 0, &src, 1, &dst, 1);
}

uint32_t sched_reduce(struct sched_builder *b, const struct sched_range *operands,
                      uint32_t noperands, struct sched_range dst, uint32_t flags) {
    const struct sched_step step = {.type = SCHED_REDUCE, .flags = flags, .operands = noperands};
    if (!names_chunks(operands, noperands) || !names_chunks(&dst, 1))
        fail(b, "a reduction needs operands and a destination");
    return sched_append(b, &step, NULL, 0, operands, noperands, &dst, 1);
}

uint32_t sched_send_token(struct sched_builder *b, int peer) {
    return sched_send_list(b, &peer, 1, NULL, 0, 0);
}

uint32_t sched_recv_token(struct sched_builder *b, int peer) {
    return sched_recv_list(b, peer, NULL, 0, 0);
}

void sched_wait(struct sched_builder *builder, uint32_t step, uint32_t other) {
    if (!grow(builder, (void **)&builder->pairs, &builder->wait_room, builder->npairs, 1,
              sizeof *builder->pairs))
        return;
    builder->pairs[builder->npairs++] = (struct wait_pair){step, other};
}
