/* Turns MSCCL's thread blocks into schedules.
 *
 * A thread block becomes a lane. MSCCL runs the steps of one strictly one after the other and
 * buffers messages; a lane promises less (schedule.h) and channels hold nothing, so what the file
 * orders is kept where two steps touch one chunk, as waits between lanes, and dropped elsewhere.
 * What it leaves without order is a race, which the verifier finds.
 *
 * The file says where values lie, not what they are: inputs, partials or results. That is found by
 * running the file once, all GPUs together, with messages in queues. A location of the file ("i"
 * and "o" are one when it is in place) holds its input in INPUT, a result that belongs there in
 * OUTPUT, and everything else in a chunk of scratch of its own. The order of that run does not
 * matter to the values unless there is a race.
 *
 * Which steps come before which on a GPU is kept as a vector of counts per step: how far each of
 * its thread blocks had come by dependencies. */
#include "schedule/msccl.h"

#include "base/error.h"
#include "schedule/builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LOCATIONS = 1 << 22, MAX_MOVES = 1 << 22, MAX_CLOCKS = 1 << 24, TURNS = 4 };
#define NONE UINT32_MAX

enum form { EMPTY = 0, RAW, PARTIAL, DONE };

struct value {
    enum form form;
    enum sched_buffer buffer;
    uint32_t index; /* of the buffer */
    uint32_t like;  /* global number of the chunk that it is (a part of) */
    uint32_t ranks; /* whose inputs it sums */
    uint32_t low;   /* the lowest of them */
};

/* An access: the block and step of the file, and the step that it became. */
struct access {
    uint32_t block, step, number;
    uint32_t next; /* of the readers, index + 1 */
};

struct location {
    struct value value;
    uint32_t output;      /* chunk of OUTPUT, or NONE */
    uint32_t shadow;      /* chunk of scratch, or NONE */
    struct access writer; /* number NONE: none yet */
    uint32_t readers;     /* since: index + 1 */
};

struct queue {
    struct value *values;
    uint32_t count, room, taken;
};

struct progress {
    uint32_t done;             /* steps */
    uint32_t peer;             /* block that receives what this one sends */
    uint32_t temporary[TURNS]; /* first of its scratch chunks, or NONE */
    uint32_t turn;
    size_t clocks;      /* of its first step */
    struct queue queue; /* what was sent to it */
    bool queued;        /* in the list of blocks to look at */
};

struct translation {
    const struct msccl *file;
    rota_status status;
    const struct msccl_step *at; /* for messages */
    uint32_t inputs, outputs;    /* chunks of the buffers */
    bool reduces;
    struct sched_builder **builders;
    struct location *locations;
    size_t *first_location; /* by GPU */
    struct progress *blocks;
    uint32_t *clocks;
    struct access *readers;
    uint32_t nreaders, reader_room;
    uint32_t *ready;
    uint32_t nready;
    uint64_t moves;
    /* The step at hand. */
    struct value *message, *local, *result;
    struct sched_range *src, *dst;
    uint32_t nsrc, ndst;
};

static bool fail(struct translation *t, const char *what) {
    if (t->status == ROTA_OK)
        t->status = t->at != NULL ? error_raise(ROTA_ERR_FORMAT, "line %u: %s", t->at->line, what)
                                  : error_raise(ROTA_ERR_FORMAT, "%s", what);
    return false;
}

static bool no_memory(struct translation *t) {
    t->status = error_raise(ROTA_ERR_MEMORY, "no memory for a schedule");
    return false;
}

/* -- locations --------------------------------------------------------------------------------- */

/* Number of a location within its GPU, NONE outside of the buffer. */
static uint32_t locate(const struct translation *t, uint32_t gpu, int buffer, uint64_t chunk) {
    const struct msccl *file = t->file;
    uint32_t own = gpu * file->chunks_per_block;
    uint32_t size = buffer == MSCCL_INPUT    ? t->inputs
                    : buffer == MSCCL_OUTPUT ? t->outputs
                                             : file->gpus[gpu].scratch_chunks;
    if (chunk >= size)
        return NONE;
    uint32_t index = (uint32_t)chunk;
    if (buffer == MSCCL_SCRATCH)
        return t->inputs + t->outputs + index;
    if (!file->in_place || t->inputs == t->outputs)
        return buffer == MSCCL_INPUT || file->in_place ? index : t->inputs + index;
    if (t->inputs < t->outputs) /* the input is the own block of the output */
        return t->inputs + (buffer == MSCCL_INPUT ? own + index : index);
    return buffer == MSCCL_OUTPUT ? own + index : index;
}

static struct location *location(struct translation *t, uint32_t gpu, int buffer, int32_t offset,
                                 uint32_t i) {
    uint32_t number = offset < 0 ? NONE : locate(t, gpu, buffer, (uint64_t)offset + i);
    if (number == NONE) {
        fail(t, "a step touches a chunk outside of its buffer");
        return NULL;
    }
    return &t->locations[t->first_location[gpu] + number];
}

static void place_buffers(struct translation *t, uint32_t gpu) {
    const struct msccl *file = t->file;
    uint32_t own = gpu * file->chunks_per_block;
    struct location *first = &t->locations[t->first_location[gpu]];
    for (uint32_t i = 0; i < t->inputs + t->outputs + file->gpus[gpu].scratch_chunks; i++) {
        first[i].output = first[i].shadow = first[i].writer.number = NONE;
        first[i].value.form = EMPTY;
    }
    for (uint32_t i = 0; i < t->outputs; i++)
        first[locate(t, gpu, MSCCL_OUTPUT, i)].output = i;
    for (uint32_t i = 0; i < t->inputs; i++)
        first[locate(t, gpu, MSCCL_INPUT, i)].value =
            (struct value){.form = RAW,
                           .buffer = SCHED_INPUT,
                           .index = i,
                           .like = file->kind == ROTA_KIND_ALL_GATHER ? own + i : i,
                           .ranks = 1,
                           .low = gpu};
}

/* Whether a value is what the output chunk may hold. */
static bool belongs(const struct translation *t, uint32_t gpu, const struct location *at,
                    const struct value *value) {
    uint32_t chunks = t->file->chunks_per_block;
    if (at->output == NONE || (t->reduces && value->form != DONE))
        return false;
    if (t->file->kind == ROTA_KIND_ALL_TO_ALL)
        return at->output % chunks == value->like % chunks;
    uint32_t own = t->file->kind == ROTA_KIND_REDUCE_SCATTER ? gpu * chunks : 0;
    return own + at->output == value->like;
}

static void append(struct sched_range *ranges, uint32_t *count, const struct value *value) {
    struct sched_range *last = *count > 0 ? &ranges[*count - 1] : NULL;
    bool scratch = value->buffer == SCHED_SCRATCH;
    if (last != NULL && last->buffer == value->buffer &&
        last->first + last->count == value->index &&
        (!scratch || last->like + last->count == value->like)) {
        last->count++;
        return;
    }
    ranges[(*count)++] = (struct sched_range){.buffer = value->buffer,
                                              .first = value->index,
                                              .count = 1,
                                              .reps = 1,
                                              .like = scratch ? value->like : 0};
}

/* -- order ------------------------------------------------------------------------------------- */

static uint32_t *clock_of(const struct translation *t, uint32_t block, uint32_t step) {
    uint32_t blocks = t->file->gpus[t->file->blocks[block].gpu].nblocks;
    return &t->clocks[t->blocks[block].clocks + (size_t)step * blocks];
}

/* Joins an earlier access in another lane to the step `number`, if the file orders them. */
static void join(struct translation *t, uint32_t block, uint32_t number,
                 const struct access *before) {
    const struct msccl_block *own = &t->file->blocks[block];
    if (before->number == NONE || before->block == block || t->status != ROTA_OK)
        return;
    const uint32_t *clock = clock_of(t, block, t->blocks[block].done);
    if (clock[before->block - t->file->gpus[own->gpu].first_block] > before->step)
        sched_wait(t->builders[own->gpu], number, before->number);
}

static void note_read(struct translation *t, uint32_t block, struct location *at, uint32_t number) {
    join(t, block, number, &at->writer);
    if (t->nreaders == t->reader_room) {
        uint32_t room = t->reader_room > 0 ? t->reader_room * 2 : 256;
        struct access *larger = realloc(t->readers, room * sizeof(*larger));
        if (larger == NULL) {
            no_memory(t);
            return;
        }
        t->readers = larger;
        t->reader_room = room;
    }
    t->readers[t->nreaders] = (struct access){block, t->blocks[block].done, number, at->readers};
    at->readers = ++t->nreaders;
}

static void note_write(struct translation *t, uint32_t block, struct location *at,
                       uint32_t number) {
    join(t, block, number, &at->writer);
    for (uint32_t i = at->readers; i != 0; i = t->readers[i - 1].next)
        join(t, block, number, &t->readers[i - 1]);
    at->readers = 0;
    at->writer = (struct access){block, t->blocks[block].done, number, 0};
}

/* Each location of a step's source or destination, once the step has its number. */
static void note_all(struct translation *t, uint32_t block, bool source, bool written,
                     uint32_t number) {
    const struct msccl_step *step = t->at;
    uint32_t gpu = t->file->blocks[block].gpu;
    for (uint32_t i = 0; i < step->count && t->status == ROTA_OK; i++) {
        struct location *at = location(t, gpu, source ? step->src_buffer : step->dst_buffer,
                                       source ? step->src_offset : step->dst_offset, i);
        if (at != NULL && written)
            note_write(t, block, at, number);
        else if (at != NULL)
            note_read(t, block, at, number);
    }
}

/* -- values ------------------------------------------------------------------------------------ */

static bool read_values(struct translation *t, uint32_t gpu, bool source, struct value *values) {
    const struct msccl_step *step = t->at;
    for (uint32_t i = 0; i < step->count; i++) {
        struct location *at = location(t, gpu, source ? step->src_buffer : step->dst_buffer,
                                       source ? step->src_offset : step->dst_offset, i);
        if (at == NULL)
            return false;
        if (at->value.form == EMPTY)
            return fail(t, "a step reads a chunk that nothing was written to");
        values[i] = at->value;
    }
    return true;
}

/* Gives the values their places at the step's destination. */
static bool write_values(struct translation *t, uint32_t gpu, struct value *values) {
    const struct msccl_step *step = t->at;
    for (uint32_t i = 0; i < step->count; i++) {
        struct location *at = location(t, gpu, step->dst_buffer, step->dst_offset, i);
        if (at == NULL)
            return false;
        if (belongs(t, gpu, at, &values[i])) {
            values[i].buffer = SCHED_OUTPUT;
            values[i].index = at->output;
        } else {
            if (at->shadow == NONE)
                at->shadow = sched_alloc_scratch(t->builders[gpu], 1);
            values[i].buffer = SCHED_SCRATCH;
            values[i].index = at->shadow;
        }
        at->value = values[i];
    }
    return true;
}

/* Places that no location of the file stands for: of one block, used in turn. With a single one a
 * ring would stop: what comes in could not be kept before the last sum has gone. */
static void keep_aside(struct translation *t, uint32_t block, struct value *values) {
    struct progress *own = &t->blocks[block];
    uint32_t *turn = &own->temporary[own->turn++ % TURNS];
    if (*turn == NONE)
        *turn = sched_alloc_scratch(t->builders[t->file->blocks[block].gpu], t->file->widest);
    for (uint32_t i = 0; i < t->at->count; i++) {
        values[i].buffer = SCHED_SCRATCH;
        values[i].index = *turn + i;
    }
}

/* Whether all are partials (or all complete), as one step must have it. */
static bool uniform(struct translation *t, const struct value *values, bool exact) {
    for (uint32_t i = 1; i < t->at->count; i++)
        if (exact ? values[i].form != values[0].form
                  : (values[i].form == PARTIAL) != (values[0].form == PARTIAL))
            return fail(t, "a step takes inputs, partial and complete sums together: split it");
    return true;
}

static uint32_t moving(const struct value *values) {
    return values[0].form == PARTIAL ? SCHED_PARTIAL : 0;
}

static bool combine(struct translation *t) {
    for (uint32_t i = 0; i < t->at->count; i++) {
        const struct value *a = &t->message[i], *b = &t->local[i];
        if (!t->reduces)
            return fail(t, "a step reduces in a collective that only moves");
        if (a->form == DONE || b->form == DONE || a->ranks + b->ranks > t->file->ngpus)
            return fail(t, "a step adds to a sum that is complete");
        if (a->like != b->like)
            return fail(t, "a step adds different chunks to each other");
        t->result[i] =
            (struct value){.form = a->ranks + b->ranks == t->file->ngpus ? DONE : PARTIAL,
                           .like = a->like,
                           .ranks = a->ranks + b->ranks,
                           .low = a->low < b->low ? a->low : b->low};
    }
    return uniform(t, t->message, true) && uniform(t, t->local, true) &&
           uniform(t, t->result, true);
}

static void list(struct translation *t, const struct value *src, const struct value *dst) {
    t->nsrc = t->ndst = 0;
    for (uint32_t i = 0; i < t->at->count; i++) {
        if (src != NULL)
            append(t->src, &t->nsrc, &src[i]);
        if (dst != NULL)
            append(t->dst, &t->ndst, &dst[i]);
    }
}

/* -- steps ------------------------------------------------------------------------------------- */

static struct sched_builder *builder_of(struct translation *t, uint32_t block) {
    return t->builders[t->file->blocks[block].gpu];
}

static void wake(struct translation *t, uint32_t block) {
    if (t->blocks[block].queued)
        return;
    t->blocks[block].queued = true;
    t->ready[t->nready++] = block;
}

static bool deliver(struct translation *t, uint32_t block, const struct value *values) {
    struct queue *queue = &t->blocks[t->blocks[block].peer].queue;
    uint32_t count = t->at->count;
    if (queue->room - queue->count < count) {
        uint32_t room = queue->room + queue->room / 2 + count + 16;
        struct value *larger = realloc(queue->values, room * sizeof(*larger));
        if (larger == NULL)
            return no_memory(t);
        queue->values = larger;
        queue->room = room;
    }
    memcpy(queue->values + queue->count, values, count * sizeof(*values));
    queue->count += count;
    wake(t, t->blocks[block].peer);
    return true;
}

static bool send_values(struct translation *t, uint32_t block, const struct value *values,
                        uint32_t *number) {
    const struct msccl_block *own = &t->file->blocks[block];
    int peer = own->send;
    if (peer < 0 || t->blocks[block].peer == NONE)
        return fail(t, peer < 0 ? "a step sends in a tb without send"
                                : "a step sends to a gpu where no tb receives on that chan");
    if (!uniform(t, values, false))
        return false;
    list(t, values, NULL);
    *number = sched_send_list(builder_of(t, block), &peer, 1, t->src, t->nsrc, moving(values));
    return deliver(t, block, values);
}

static bool take_message(struct translation *t, uint32_t block) {
    struct queue *queue = &t->blocks[block].queue;
    memcpy(t->message, queue->values + queue->taken, t->at->count * sizeof(*t->message));
    queue->taken += t->at->count;
    return true;
}

/* r and rcs. */
static bool do_receive(struct translation *t, uint32_t block) {
    uint32_t gpu = t->file->blocks[block].gpu, sent = NONE;
    int peer = t->file->blocks[block].recv;
    if (!take_message(t, block) || !uniform(t, t->message, false) ||
        !write_values(t, gpu, t->message))
        return false;
    list(t, NULL, t->message);
    uint32_t number = sched_recv_list(t->builders[gpu], peer, t->dst, t->ndst, moving(t->message));
    note_all(t, block, false, true, number);
    if (t->at->type == MSCCL_RECV)
        return true;
    if (!send_values(t, block, t->message, &sent))
        return false;
    note_all(t, block, false, false, sent);
    return true;
}

/* rrc, rrs and rrcs. */
static bool do_receive_reduce(struct translation *t, uint32_t block) {
    uint32_t gpu = t->file->blocks[block].gpu, sent = NONE;
    int peer = t->file->blocks[block].recv;
    bool kept = t->at->type != MSCCL_RECV_REDUCE_SEND;
    if (!take_message(t, block) || !read_values(t, gpu, true, t->local) || !combine(t))
        return false;
    if (!kept)
        keep_aside(t, block, t->result);
    else if (!write_values(t, gpu, t->result))
        return false;
    list(t, t->local, t->result);
    uint32_t flags = (t->message[0].form == RAW ? SCHED_LOAD_MESSAGE : 0u) |
                     (t->local[0].form == RAW ? SCHED_LOAD_LOCAL : 0u) |
                     (t->result[0].form == DONE ? SCHED_FINISH : 0u);
    uint32_t position = t->message[0].low < t->local[0].low ? 1 : 0;
    uint32_t number = sched_recv_reduce_list(t->builders[gpu], &peer, 1, position, t->src, t->nsrc,
                                             t->dst, t->ndst, flags);
    note_all(t, block, true, false, number);
    if (kept)
        note_all(t, block, false, true, number);
    if (t->at->type == MSCCL_RECV_REDUCE_COPY)
        return true;
    if (!send_values(t, block, t->result, &sent))
        return false;
    if (kept)
        note_all(t, block, false, false, sent);
    return true;
}

static bool do_copy(struct translation *t, uint32_t block) {
    const struct sched_step step = {.type = SCHED_COPY};
    uint32_t gpu = t->file->blocks[block].gpu;
    if (!read_values(t, gpu, true, t->local) || !uniform(t, t->local, false))
        return false;
    memcpy(t->result, t->local, t->at->count * sizeof(*t->result));
    if (!write_values(t, gpu, t->result))
        return false;
    list(t, t->local, t->result);
    struct sched_step moved = step;
    moved.flags = moving(t->local);
    uint32_t number =
        sched_append(t->builders[gpu], &moved, NULL, 0, t->src, t->nsrc, t->dst, t->ndst);
    note_all(t, block, true, false, number);
    note_all(t, block, false, true, number);
    return true;
}

/* An input beside a partial is widened first, so that both operands are partials. */
static void widen(struct translation *t, uint32_t block, bool source, struct value *values) {
    struct sched_step step = {.type = SCHED_REDUCE, .operands = 1, .flags = SCHED_LOAD_LOCAL};
    memcpy(t->result, values, t->at->count * sizeof(*values));
    keep_aside(t, block, t->result);
    list(t, values, t->result);
    uint32_t number =
        sched_append(builder_of(t, block), &step, NULL, 0, t->src, t->nsrc, t->dst, t->ndst);
    note_all(t, block, source, false, number);
    for (uint32_t i = 0; i < t->at->count; i++) {
        values[i] = t->result[i];
        values[i].form = PARTIAL;
    }
}

static bool do_reduce(struct translation *t, uint32_t block) {
    struct sched_step step = {.type = SCHED_REDUCE, .operands = 2};
    uint32_t gpu = t->file->blocks[block].gpu;
    if (!read_values(t, gpu, true, t->message) || !read_values(t, gpu, false, t->local) ||
        !combine(t))
        return false;
    if (t->message[0].form != t->local[0].form) {
        bool source = t->message[0].form == RAW;
        widen(t, block, source, source ? t->message : t->local);
        if (!combine(t))
            return false;
    }
    step.flags = (t->local[0].form == RAW ? SCHED_LOAD_LOCAL : 0u) |
                 (t->result[0].form == DONE ? SCHED_FINISH : 0u);
    bool first = t->message[0].low < t->local[0].low;
    if (!write_values(t, gpu, t->result))
        return false;
    t->nsrc = t->ndst = 0;
    for (uint32_t i = 0; i < 2 * t->at->count; i++) {
        bool message = (i < t->at->count) == first;
        append(t->src, &t->nsrc, &(message ? t->message : t->local)[i % t->at->count]);
    }
    for (uint32_t i = 0; i < t->at->count; i++)
        append(t->dst, &t->ndst, &t->result[i]);
    uint32_t number =
        sched_append(t->builders[gpu], &step, NULL, 0, t->src, t->nsrc, t->dst, t->ndst);
    note_all(t, block, true, false, number);
    note_all(t, block, false, true, number);
    return true;
}

static bool do_send(struct translation *t, uint32_t block) {
    uint32_t number = NONE;
    if (!read_values(t, t->file->blocks[block].gpu, true, t->local) ||
        !send_values(t, block, t->local, &number))
        return false;
    note_all(t, block, true, false, number);
    return true;
}

static bool do_step(struct translation *t, uint32_t block) {
    const struct msccl_block *own = &t->file->blocks[block];
    sched_lane(t->builders[own->gpu], block - t->file->gpus[own->gpu].first_block, own->channel);
    t->moves += t->at->count;
    if (t->moves > MAX_MOVES)
        return fail(t, "expected at most 4194304 chunks in all steps");
    switch (t->at->type) {
    case MSCCL_SEND:
        return do_send(t, block);
    case MSCCL_RECV:
    case MSCCL_RECV_COPY_SEND:
        return do_receive(t, block);
    case MSCCL_RECV_REDUCE_COPY:
    case MSCCL_RECV_REDUCE_SEND:
    case MSCCL_RECV_REDUCE_COPY_SEND:
        return do_receive_reduce(t, block);
    case MSCCL_COPY:
        return do_copy(t, block);
    case MSCCL_REDUCE:
        return do_reduce(t, block);
    default:
        return true;
    }
}

/* -- the run ----------------------------------------------------------------------------------- */

static bool receives(enum msccl_type type) {
    return type == MSCCL_RECV || type == MSCCL_RECV_COPY_SEND || type == MSCCL_RECV_REDUCE_COPY ||
           type == MSCCL_RECV_REDUCE_SEND || type == MSCCL_RECV_REDUCE_COPY_SEND;
}

/* What a step has passed: its own block so far, and with its dependency all that this had passed.
 */
static void set_clock(struct translation *t, uint32_t block) {
    const struct msccl_gpu *gpu = &t->file->gpus[t->file->blocks[block].gpu];
    const struct msccl_step *step = t->at;
    uint32_t done = t->blocks[block].done;
    uint32_t *clock = clock_of(t, block, done);
    if (done > 0)
        memcpy(clock, clock_of(t, block, done - 1), gpu->nblocks * sizeof(*clock));
    clock[block - gpu->first_block] = done;
    if (step->dep_block < 0)
        return;
    uint32_t dependency = (uint32_t)step->dep_step;
    const uint32_t *passed = clock_of(t, gpu->first_block + (uint32_t)step->dep_block, dependency);
    for (uint32_t i = 0; i < gpu->nblocks; i++)
        clock[i] = passed[i] > clock[i] ? passed[i] : clock[i];
    uint32_t *reached = &clock[step->dep_block];
    *reached = dependency >= *reached ? dependency + 1 : *reached;
}

static bool can_run(struct translation *t, uint32_t block) {
    const struct msccl_block *own = &t->file->blocks[block];
    const struct msccl_gpu *gpu = &t->file->gpus[own->gpu];
    const struct queue *queue = &t->blocks[block].queue;
    const struct msccl_step *step = t->at;
    if (step->dep_block >= 0) {
        uint32_t other = gpu->first_block + (uint32_t)step->dep_block;
        if ((uint32_t)step->dep_block >= gpu->nblocks || step->dep_step < 0 ||
            (uint32_t)step->dep_step >= t->file->blocks[other].nsteps)
            return fail(t, "a step depends on a step that does not exist");
        if (t->blocks[other].done <= (uint32_t)step->dep_step)
            return false;
    }
    if (receives(step->type) && own->recv < 0)
        return fail(t, "a step receives in a tb without recv");
    if (receives(step->type) && queue->count - queue->taken < step->count)
        return false;
    set_clock(t, block);
    return true;
}

static bool run(struct translation *t) {
    const struct msccl *file = t->file;
    for (uint32_t b = 0; b < file->nblocks; b++)
        wake(t, b);
    while (t->nready > 0 && t->status == ROTA_OK) {
        uint32_t block = t->ready[--t->nready];
        struct progress *state = &t->blocks[block];
        const struct msccl_gpu *gpu = &file->gpus[file->blocks[block].gpu];
        uint32_t before = state->done;
        state->queued = false;
        while (state->done < file->blocks[block].nsteps) {
            t->at = &file->steps[file->blocks[block].first_step + state->done];
            if (!can_run(t, block) || !do_step(t, block))
                break;
            state->done++;
        }
        for (uint32_t b = 0; b < gpu->nblocks && state->done > before; b++)
            if (gpu->first_block + b != block &&
                t->blocks[gpu->first_block + b].done < file->blocks[gpu->first_block + b].nsteps)
                wake(t, gpu->first_block + b);
    }
    for (uint32_t b = 0; b < file->nblocks && t->status == ROTA_OK; b++)
        if (t->blocks[b].done < file->blocks[b].nsteps) {
            t->at = &file->steps[file->blocks[b].first_step + t->blocks[b].done];
            return fail(t, "deadlock: this step never runs");
        }
    t->at = NULL;
    return t->status == ROTA_OK;
}

/* Inputs that are outputs without a step, since the file is in place. */
static void copy_inputs(struct translation *t, uint32_t gpu) {
    for (uint32_t i = 0; i < t->outputs && !t->reduces; i++) {
        struct location *at =
            &t->locations[t->first_location[gpu] + locate(t, gpu, MSCCL_OUTPUT, i)];
        uint32_t first = i, input = at->value.index;
        while (i < t->outputs && at->value.form == RAW && at->value.buffer == SCHED_INPUT &&
               at->value.index == input + (i - first))
            at = &t->locations[t->first_location[gpu] +
                               (++i < t->outputs ? locate(t, gpu, MSCCL_OUTPUT, i) : 0)];
        if (i == first)
            continue;
        sched_lane(t->builders[gpu], 0, 0);
        sched_copy(t->builders[gpu], sched_input(input, i - first), sched_output(first, i - first),
                   0);
        i--;
    }
}

/* -- setting up -------------------------------------------------------------------------------- */

static bool pair_blocks(struct translation *t) {
    const struct msccl *file = t->file;
    for (uint32_t b = 0; b < file->nblocks; b++) {
        const struct msccl_block *own = &file->blocks[b];
        t->blocks[b].peer = NONE;
        for (int turn = 0; turn < TURNS; turn++)
            t->blocks[b].temporary[turn] = NONE;
        if (own->send < 0)
            continue;
        const struct msccl_gpu *to = &file->gpus[own->send];
        for (uint32_t i = to->first_block; i < to->first_block + to->nblocks; i++)
            if (file->blocks[i].recv == (int32_t)own->gpu &&
                file->blocks[i].channel == own->channel)
                t->blocks[b].peer = i;
    }
    return true;
}

static bool allocate(struct translation *t) {
    const struct msccl *file = t->file;
    size_t locations = 0, clocks = 0, wide = (size_t)file->widest + 1;
    t->first_location = calloc(file->ngpus, sizeof(*t->first_location));
    t->blocks = calloc((size_t)file->nblocks + 1, sizeof(*t->blocks));
    t->builders = calloc(file->ngpus, sizeof(struct sched_builder *));
    t->ready = calloc((size_t)file->nblocks + 1, sizeof(*t->ready));
    if (t->first_location == NULL || t->blocks == NULL || t->builders == NULL || t->ready == NULL)
        return no_memory(t);
    for (uint32_t g = 0; g < file->ngpus; g++) {
        const struct msccl_gpu *gpu = &file->gpus[g];
        t->first_location[g] = locations;
        locations += (size_t)t->inputs + t->outputs + gpu->scratch_chunks;
        for (uint32_t b = gpu->first_block; b < gpu->first_block + gpu->nblocks; b++) {
            t->blocks[b].clocks = clocks;
            clocks += (size_t)file->blocks[b].nsteps * gpu->nblocks;
        }
    }
    if (locations > MAX_LOCATIONS || clocks > MAX_CLOCKS)
        return fail(t, "expected at most 4194304 chunks in all buffers, and steps times tbs of a "
                       "gpu at most 16777216");
    t->locations = calloc(locations + 1, sizeof(*t->locations));
    t->clocks = calloc(clocks + 1, sizeof(*t->clocks));
    t->message = calloc(3 * wide, sizeof(*t->message));
    t->src = calloc(3 * wide, sizeof(*t->src));
    if (t->locations == NULL || t->clocks == NULL || t->message == NULL || t->src == NULL)
        return no_memory(t);
    t->local = t->message + wide;
    t->result = t->local + wide;
    t->dst = t->src + 2 * wide;
    return true;
}

static bool create_builders(struct translation *t) {
    for (uint32_t g = 0; g < t->file->ngpus && t->status == ROTA_OK; g++) {
        const struct sched_shape shape = {t->file->kind, (int)t->file->ngpus, (int)g, -1, false};
        t->status = sched_builder_create(&shape, &t->builders[g]);
        if (t->status == ROTA_OK) {
            sched_set_chunks(t->builders[g], t->file->chunks_per_block);
            place_buffers(t, g);
        }
    }
    return t->status == ROTA_OK;
}

static bool finish(struct translation *t, struct sched_set *set) {
    set->schedules = calloc(t->file->ngpus, sizeof(struct sched *));
    if (set->schedules == NULL)
        return no_memory(t);
    for (uint32_t g = 0; g < t->file->ngpus && t->status == ROTA_OK; g++) {
        copy_inputs(t, g);
        t->status = sched_builder_finish(t->builders[g], &set->schedules[g]);
        set->count += t->status == ROTA_OK;
    }
    if (t->status != ROTA_OK)
        sched_set_free(set);
    return t->status == ROTA_OK;
}

static void release(struct translation *t) {
    for (uint32_t g = 0; t->builders != NULL && g < t->file->ngpus; g++)
        sched_builder_destroy(t->builders[g]);
    for (uint32_t b = 0; t->blocks != NULL && b < t->file->nblocks; b++)
        free(t->blocks[b].queue.values);
    free(t->builders);
    free(t->locations);
    free(t->first_location);
    free(t->blocks);
    free(t->clocks);
    free(t->readers);
    free(t->ready);
    free(t->message);
    free(t->src);
}

rota_status msccl_translate(const struct msccl *file, struct sched_set *set) {
    uint32_t chunks = file->chunks_per_block;
    uint32_t all = sched_kind_blocks(file->kind, (int)file->ngpus) * chunks;
    struct translation t = {
        .file = file,
        .inputs = file->kind == ROTA_KIND_ALL_GATHER ? chunks : all,
        .outputs = file->kind == ROTA_KIND_REDUCE_SCATTER ? chunks : all,
        .reduces = sched_kind_reduces(file->kind),
    };
    *set = (struct sched_set){0, NULL};
    if (allocate(&t) && create_builders(&t) && pair_blocks(&t) && run(&t))
        finish(&t, set);
    release(&t);
    return t.status;
}
