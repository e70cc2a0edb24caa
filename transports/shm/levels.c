/* The levelled native forms: members that share a cache or a NUMA node combine first.
 *
 * Design note. In a flat form every member reads of every other. Where the members sit on several
 * third-level caches or NUMA nodes, most of that crosses between these, again and again the same
 * bytes. Here members are divided into blocks of 2^k neighbours, none of which spans two places. A
 * member reads the others of its own block, and of each other block one member only.
 *
 * Blocks are nodes of the aligned tree over members. So a block's partial, not finished, is a node
 * of the tree that the flat form computes, and the bits are the same in every mode; a border that
 * is not at a multiple of 2^k makes the blocks smaller, down to no division. All members come to
 * the same blocks because they look at the same places: those that the arenas' heads name.
 *
 * Small calls: a member reduces the operands of its block into a second line or slot, and reads
 * those of one member in each other block. Who leaves call k has seen that all have entered it,
 * since those that it reads have seen all of their blocks: the rule of struct shm_group_line holds.
 *
 * Large calls go slice by slice. A slice is cut into n chunks; a chunk has an *owner*, the member
 * of its number or the root, and in each block a *holder*, the member at (chunk modulo size).
 * Steps:
 *
 *   stage    shows the own input, as far as others of the block hold it
 *   partial  reduces the chunks that it holds over its block and shows the partials
 *   combine  the owner reduces a chunk over its holders' partials, or has it, and shows it
 *   fetch    reads the chunks that it holds from owners in other blocks and shows them
 *   gather   reads all chunks from the own block: from owners, and from holders
 *
 * Reductions take the steps to combine, what all get takes those from combine on; all_reduce both.
 * A counter per step tells how many slices have passed it. A step waits for the steps whose results
 * it reads, and, as rooms serve every second slice, for those that read what it overwrites:
 *
 *   stage t      block: partial t - 2
 *   partial t    block: stage t          owners of what it holds: combine t - 2
 *   combine t    holders: partial t      holders: fetch t - 2, block: gather t - 2
 *   fetch t      owners: combine t       (block: gather t - 2: it came before fetch t - 1, for
 *   gather t     block: fetch t           which gather t - 1 has waited)
 *
 * A turn does gather t - 4, stage t, partial t - 1, combine t - 2, fetch t - 3, so no member waits
 * for what another has yet to do in the same turn, but for gather, which comes first in it. All
 * lines are awaited before the first partial: then all have left the calls before. The input is
 * staged earlier, so a call in which nobody gathers ends with waiting for those who read it. */
#include "transports/shm/lines.h"

#include "base/place.h"
#include "base/settings.h"

struct shm_level_forms {
    struct native_form small, two_shot, large, mapped;
};
#define FORMS(block)                                                                               \
    {                                                                                              \
        {"shm-one-shot-by-" #block, "direct", block},                                              \
            {"shm-two-shot-by-" #block, "direct_two_shot", block},                                 \
            {"shm-staged-by-" #block, "direct", block}, {                                          \
            "shm-mapped-by-" #block, "direct", block                                               \
        }                                                                                          \
    }
static const struct shm_level_forms forms[] = {FORMS(2),  FORMS(4),  FORMS(8),  FORMS(16),
                                               FORMS(32), FORMS(64), FORMS(128)};
_Static_assert(SHM_GROUP_MEMBERS <= 256, "a block is at most half of the members");

/* Unless the setting says so, levels are for calls of so many bytes or, for what fits a slot, for
 * groups in which a member would read so many of other blocks one after the other. Not measured:
 * below that, the second wait is taken to cost more than what is saved. */
#define LEVEL_BYTES ((size_t)64 * 1024)
#define LEVEL_READS 8
/* A slice of all chunks, in partials: half of what `stage` holds, whose other half the input has;
 * and it fits `result`. */
#define ROOM_BYTES ((size_t)SHM_STAGE_BYTES / 2)
/* Halves of a slot, for a small call's operand and its partial. */
#define SLOT_BYTES ((size_t)SHM_ONE_SHOT_BYTES / 2)

_Static_assert(ROOM_BYTES <= SHM_RESULT_BYTES, "a slice has its room");

/* -- the division ---------------------------------------------------------------------------- */

void shm_levels_place(const struct settings *settings, int rank, uint32_t *place) {
    int64_t size = settings_integer(settings, SETTING_LEVELS);
    cpu_set_t mine;
    place[0] = place[1] = 0;
    if (size > 0) {
        place[0] = (uint32_t)(rank / size + 1);
    } else if (size < 0 && sched_getaffinity(0, sizeof mine, &mine) == 0) {
        place[0] = (uint32_t)(place_cache(NULL, &mine) + 1);
        place[1] = (uint32_t)(place_node(NULL, &mine) + 1);
    }
}

static uint32_t place_of(const struct native_group *group, int member, int level) {
    const struct shm *shm = group->shm;
    const struct shm_head *head =
        member == group->self ? shm->arena.head : shm->peers[group->members[member].rank]->map.head;
    return head->identity.place[level];
}

/* The largest block: each border between places is at a multiple of it. */
static int largest_block(const struct native_group *group, int level) {
    int block = 256;
    for (int i = 1; i < group->n; i++)
        if (place_of(group, i, level) != place_of(group, i - 1, level) && (i & -i) < block)
            block = i & -i;
    return block;
}

void shm_levels_divide(struct native_group *group) {
    struct shm_levels *levels = &group->levels;
    int n = group->n, block = largest_block(group, 0);
    if (block < 2 || block >= n)
        block = largest_block(group, 1);
    *levels = (struct shm_levels){0};
    if (block < 2 || n < block + 2) /* two members in each of two blocks */
        return;
    levels->block = block;
    levels->blocks = (n + block - 1) / block;
    levels->first = group->self & ~(block - 1);
    levels->size = n - levels->first < block ? n - levels->first : block;
    levels->forms = &forms[__builtin_ctz((unsigned)block) - 1];
    levels->always = settings_integer(group->shm->host->settings, SETTING_LEVELS) > 0;
}

/* -- a call's step with a slice -------------------------------------------------------------- */

static const struct shape {
    bool here, reduces, spreads;
    bool rooted; /* the root owns all chunks */
    bool blocks; /* input or output has a block for each member: these are the chunks */
} shapes[ROTA_KIND_COUNT] = {
    [ROTA_KIND_BARRIER] = {.here = true},
    [ROTA_KIND_ALL_REDUCE] = {.here = true, .reduces = true, .spreads = true},
    [ROTA_KIND_REDUCE] = {.here = true, .reduces = true, .rooted = true},
    [ROTA_KIND_REDUCE_SCATTER] = {.here = true, .reduces = true, .blocks = true},
    [ROTA_KIND_ALL_GATHER] = {.here = true, .spreads = true, .blocks = true},
    [ROTA_KIND_BROADCAST] = {.here = true, .spreads = true, .rooted = true},
};

struct run {
    struct native_group *group;
    struct shm_levels *levels;
    const struct native_call *call;
    struct native_wait *wait;
    const struct shape *shape;
    size_t size, partial; /* bytes of an element; in kinds that do not reduce elements are bytes */
    /* The slice. */
    size_t index;        /* in the call */
    uint64_t number;     /* over all calls */
    size_t share, count; /* elements of a chunk, but for the last; of all chunks */
    size_t sent, received, sent_stride, received_stride; /* where chunks are in the buffers */
};

static struct run run_of(struct native_group *group, const struct native_call *call,
                         struct native_wait *wait) {
    struct run run = {.group = group, .levels = &group->levels, .call = call, .wait = wait};
    run.shape = &shapes[call->kind];
    run.size = run.shape->reduces ? call->spec->element_size : 1;
    run.partial = run.shape->reduces ? call->spec->partial_size : 1;
    return run;
}

static void slice_at(struct run *run, size_t index) {
    const struct native_call *call = run->call;
    size_t n = (size_t)run->group->n, step = run->group->step;
    size_t left = call->bytes / run->size - index * step;
    run->index = index;
    run->number = run->group->slices + index;
    run->count = left < step ? left : step;
    run->sent = run->received = index * step * run->size;
    if (run->shape->blocks) {
        run->share = run->count;
        run->count *= n;
        run->sent_stride = run->shape->reduces ? call->bytes : 0;
        run->received_stride = run->shape->spreads ? call->bytes : 0;
    } else {
        run->share = ((run->count + n - 1) / n + SHM_CHUNK_ELEMENTS - 1) / SHM_CHUNK_ELEMENTS;
        run->share *= SHM_CHUNK_ELEMENTS;
        run->sent_stride = run->received_stride = run->share * run->size;
    }
}

/* Elements of a chunk; where they begin in the slice, in elements. */
static inline size_t chunk_at(const struct run *run, int chunk, size_t *begin) {
    *begin = run->share * (size_t)chunk;
    size_t left = *begin < run->count ? run->count - *begin : 0;
    return left < run->share ? left : run->share;
}
static inline const uint8_t *sent_at(const struct run *run, const void *send, int chunk) {
    return (const uint8_t *)send + run->sent + run->sent_stride * (size_t)chunk;
}
static inline uint8_t *received_at(const struct run *run, const void *recv, int chunk) {
    return (uint8_t *)(uintptr_t)recv + run->received + run->received_stride * (size_t)chunk;
}
static inline uint8_t *partial_of(const struct run *run, int member, size_t begin) {
    const struct shm_staging *staging = run->group->members[member].staging;
    return (uint8_t *)(uintptr_t)staging->stage[run->number & 1] + ROOM_BYTES +
           begin * run->partial;
}

/* -- who has what ---------------------------------------------------------------------------- */

static inline bool in_block(const struct native_group *group, int member) {
    return (member & ~(group->levels.block - 1)) == group->levels.first;
}
static inline int holder(const struct native_group *group, int block, int chunk) {
    int first = block * group->levels.block, size = group->n - first;
    return first + chunk % (size < group->levels.block ? size : group->levels.block);
}
static inline int own_holder(const struct native_group *group, int chunk) {
    return group->levels.first + chunk % group->levels.size;
}
static inline int owner(const struct run *run, int chunk) {
    return run->shape->rooted ? run->call->root : chunk;
}

enum set {
    BLOCK,  /* the own block */
    OWNERS, /* of the chunks that this member holds */
    HOLDERS /* of the chunks that it owns */
};

/* The k-th member of a set, -1 behind the last. */
static int set_member(const struct run *run, enum set set, int k) {
    const struct native_group *group = run->group;
    const struct shm_levels *levels = run->levels;
    int chunk = group->self - levels->first + k * levels->size;
    if (set == BLOCK)
        return k < levels->size ? levels->first + k : -1;
    if (set == OWNERS && run->shape->rooted)
        return k == 0 ? run->call->root : -1;
    if (set == OWNERS)
        return chunk < group->n ? chunk : -1;
    if (run->shape->rooted)
        return group->self == run->call->root && k < group->n ? k : -1;
    return k < levels->blocks ? holder(group, k, group->self) : -1;
}

/* Waits until all of a set have passed a step with so many slices. */
static enum native_outcome set_wait(const struct run *run, enum set set, enum shm_level_step step,
                                    uint64_t slices) {
    enum native_outcome outcome = NATIVE_DONE;
    for (int k = 0, peer; outcome == NATIVE_DONE && (peer = set_member(run, set, k)) >= 0; k++)
        if (peer != run->group->self) /* acquire: partner is the release store in pass */
            outcome =
                wait_for(run->group, peer, &run->group->members[peer].area->level[step].slices,
                         slices, run->wait);
    return outcome;
}

static void set_ring(const struct run *run, enum set set) {
    for (int k = 0, peer; (peer = set_member(run, set, k)) >= 0; k++)
        if (run->group->members[peer].bell)
            doorbell_ring(run->group->members[peer].bell, run->group->members[peer].event_fd);
}

/* Tells that a slice has passed a step, to those who wait for that. */
static void pass(const struct run *run, enum shm_level_step step) {
    /* Release: partner is set_wait. */
    atomic_store_explicit(&run->group->area->level[step].slices, run->number + 1,
                          memory_order_release);
    set_ring(run, step == SHM_LEVEL_COMBINE ? HOLDERS : BLOCK);
    if (step == SHM_LEVEL_PARTIAL || step == SHM_LEVEL_FETCH)
        set_ring(run, OWNERS);
}

/* -- steps ----------------------------------------------------------------------------------- */

/* Shows a chunk of the own output, unless it is read there. */
static void show(const struct run *run, int chunk) {
    size_t begin, count = chunk_at(run, chunk, &begin);
    if (count > 0 && !run->group->received)
        shm_hand_over(run->group, run->group->staging->result[run->number & 1] + begin * run->size,
                      received_at(run, run->call->recv, chunk), count * run->size);
}

/* Copies a chunk that a member shows. */
static void take(const struct run *run, int peer, int chunk, bool streams) {
    const struct shm_member *member = &run->group->members[peer];
    size_t begin, bytes = chunk_at(run, chunk, &begin) * run->size;
    uint8_t *to = received_at(run, run->call->recv, chunk);
    if (bytes == 0)
        return;
    const uint8_t *from = member->recv
                              ? received_at(run, member->recv, chunk)
                              : member->staging->result[run->number & 1] + begin * run->size;
    if (streams)
        reduce_stream(run->group->isa, to, from, bytes);
    else
        reduce_copy(run->group->isa, to, from, bytes);
    if (!in_block(run->group, peer))
        run->levels->far_bytes += bytes;
}

static enum native_outcome run_gather(const struct run *run) {
    struct native_group *group = run->group;
    for (; group->peer < run->levels->size; group->peer++) {
        int peer = run->levels->first + group->peer;
        if (peer == group->self)
            continue;
        enum native_outcome outcome =
            wait_for(group, peer, &group->members[peer].area->level[SHM_LEVEL_FETCH].slices,
                     run->number + 1, run->wait);
        if (outcome != NATIVE_DONE)
            return outcome;
        for (int chunk = 0; chunk < group->n; chunk++) {
            int from = owner(run, chunk);
            if (from == peer || (!in_block(group, from) && own_holder(group, chunk) == peer))
                take(run, peer, chunk, group->streams);
        }
    }
    return NATIVE_DONE;
}

static enum native_outcome run_stage(const struct run *run) {
    struct native_group *group = run->group;
    enum native_outcome outcome = NATIVE_DONE;
    if (run->index >= 2)
        outcome = set_wait(run, BLOCK, SHM_LEVEL_PARTIAL, run->number - 1);
    for (int chunk = 0; chunk < group->n && outcome == NATIVE_DONE && !group->sent; chunk++) {
        size_t begin, count = chunk_at(run, chunk, &begin);
        if (count > 0 && own_holder(group, chunk) != group->self)
            shm_hand_over(group, group->staging->stage[run->number & 1] + begin * run->size,
                          sent_at(run, run->call->send, chunk), count * run->size);
    }
    return outcome;
}

static enum native_outcome run_partial(const struct run *run) {
    struct native_group *group = run->group;
    int size = run->levels->size;
    enum native_outcome outcome = set_wait(run, BLOCK, SHM_LEVEL_STAGE, run->number + 1);
    if (outcome == NATIVE_DONE && run->index >= 2)
        outcome = set_wait(run, OWNERS, SHM_LEVEL_COMBINE, run->number - 1);
    if (outcome != NATIVE_DONE)
        return outcome;
    for (int chunk = group->self - run->levels->first; chunk < group->n; chunk += size) {
        size_t begin, count = chunk_at(run, chunk, &begin);
        if (count == 0)
            break;
        for (int i = 0; i < size; i++) {
            const struct shm_member *member = &group->members[run->levels->first + i];
            const void *send = member->area == group->area ? run->call->send : member->send;
            group->operands[i] = (struct reduce_operand){
                .data = send ? sent_at(run, send, chunk)
                             : member->staging->stage[run->number & 1] + begin * run->size};
        }
        reduce_run(run->call->spec, partial_of(run, group->self, begin), false, group->operands,
                   (size_t)size, count);
    }
    return NATIVE_DONE;
}

static void combine_chunk(const struct run *run, int chunk) {
    struct native_group *group = run->group;
    size_t begin, count = chunk_at(run, chunk, &begin);
    const uint8_t *send = sent_at(run, run->call->send, chunk);
    uint8_t *recv = received_at(run, run->call->recv, chunk);
    if (count == 0)
        return;
    if (!run->shape->reduces) {
        if (recv != send)
            memcpy(recv, send, count * run->size);
        return;
    }
    for (int b = 0; b < run->levels->blocks; b++) {
        int from = holder(group, b, chunk);
        group->operands[b] =
            (struct reduce_operand){.data = partial_of(run, from, begin), .partial = true};
        run->levels->far_bytes += in_block(group, from) ? 0 : count * run->partial;
    }
    reduce_run(run->call->spec, recv, true, group->operands, (size_t)run->levels->blocks, count);
}

static enum native_outcome run_combine(const struct run *run) {
    enum native_outcome outcome = NATIVE_DONE;
    if (run->shape->reduces)
        outcome = set_wait(run, HOLDERS, SHM_LEVEL_PARTIAL, run->number + 1);
    if (outcome == NATIVE_DONE && run->shape->spreads && run->index >= 2)
        outcome = set_wait(run, HOLDERS, SHM_LEVEL_FETCH, run->number - 1);
    if (outcome == NATIVE_DONE && run->shape->spreads && run->index >= 2)
        outcome = set_wait(run, BLOCK, SHM_LEVEL_GATHER, run->number - 1);
    for (int chunk = 0; chunk < run->group->n && outcome == NATIVE_DONE; chunk++) {
        if (owner(run, chunk) != run->group->self)
            continue;
        combine_chunk(run, chunk);
        if (run->shape->spreads)
            show(run, chunk);
    }
    return outcome;
}

static enum native_outcome run_fetch(const struct run *run) {
    const struct native_group *group = run->group;
    enum native_outcome outcome = set_wait(run, OWNERS, SHM_LEVEL_COMBINE, run->number + 1);
    for (int chunk = 0; chunk < group->n && outcome == NATIVE_DONE; chunk++) {
        int from = owner(run, chunk);
        if (in_block(group, from) || own_holder(group, chunk) != group->self)
            continue;
        take(run, from, chunk, false);
        show(run, chunk);
    }
    return outcome;
}

/* -- large calls ----------------------------------------------------------------------------- */

static inline size_t given_bytes(const struct run *run) {
    return run->call->bytes *
           (run->shape->blocks && run->shape->reduces ? (size_t)run->group->n : 1);
}
static inline size_t got_bytes(const struct run *run) {
    return run->call->bytes *
           (run->shape->blocks && run->shape->spreads ? (size_t)run->group->n : 1);
}

/* Numbers the call, and says in its line where those buffers are that others may read in place:
 * inputs that are reduced, outputs that all get. */
static void large_begin(const struct run *run) {
    struct native_group *group = run->group;
    const struct native_call *call = run->call;
    size_t given = given_bytes(run), got = got_bytes(run), elements = ROOM_BYTES / run->partial;
    long_line_begin(group, call);
    if (run->shape->blocks)
        elements /= (size_t)group->n;
    group->step = elements < SHM_CHUNK_ELEMENTS
                      ? elements
                      : elements / SHM_CHUNK_ELEMENTS * SHM_CHUNK_ELEMENTS;
    group->slice = 0;
    group->phase = SHM_PHASE_LEVELS;
    group->known = group->lent = false;
    group->streams = got >= SHM_STREAM_BYTES;
    bool may = (given > got ? given : got) >= SHM_MAPPED_BYTES && (group->forms & SHM_FORM_MAPPED);
    const struct shm_heap *heap = &group->shm->heap;
    group->sent = may && run->shape->reduces ? shm_heap_find(heap, call->send, given) : 0;
    group->received = may && run->shape->spreads ? shm_heap_find(heap, call->recv, got) : 0;
    buffers_name(group, own_line(group));
    line_publish(group);
}

/* Awaits all lines, and takes from them what is read in place. */
static struct native_result lines_read(const struct run *run) {
    struct native_group *group = run->group;
    struct native_result result = lines_wait(group, run->call, run->wait);
    if (result.outcome != NATIVE_DONE)
        return result;
    group->mapped =
        (group->sent || !run->shape->reduces) && (group->received || !run->shape->spreads);
    for (int i = 0; i < group->n; i++) {
        struct shm_member *member = &group->members[i];
        member->send = member->recv = NULL;
        if (i == group->self)
            continue;
        if (!buffers_take(group, member, line_of(group, i), given_bytes(run), got_bytes(run)))
            return shm_mismatch(group, run->call, i, line_of(group, i));
        group->mapped &=
            (member->send || !run->shape->reduces) && (member->recv || !run->shape->spreads);
        group->lent |= member->recv != NULL;
    }
    group->known = true;
    return result;
}

static const struct {
    enum native_outcome (*run)(const struct run *run);
    size_t behind; /* slices behind the one that is staged */
    bool up, down; /* of reductions; of kinds that spread */
} steps[SHM_LEVEL_STEPS] = {[SHM_LEVEL_GATHER] = {run_gather, 4, false, true},
                            [SHM_LEVEL_STAGE] = {run_stage, 0, true, false},
                            [SHM_LEVEL_PARTIAL] = {run_partial, 1, true, false},
                            [SHM_LEVEL_COMBINE] = {run_combine, 2, true, true},
                            [SHM_LEVEL_FETCH] = {run_fetch, 3, false, true}};

/* One turn's steps from where the call stands. */
static struct native_result turn(struct run *run, size_t slices) {
    struct native_result result = {.outcome = NATIVE_DONE};
    struct native_group *group = run->group;
    for (; group->phase < SHM_PHASE_TAKEN; group->phase++) {
        enum shm_level_step step = (enum shm_level_step)(group->phase - SHM_PHASE_LEVELS);
        size_t index = group->slice - steps[step].behind; /* wraps where there is none yet */
        if (step == SHM_LEVEL_PARTIAL && group->slice == 1 && !group->known)
            result = lines_read(run);
        if (result.outcome == NATIVE_DONE && index < slices &&
            ((steps[step].up && run->shape->reduces) ||
             (steps[step].down && run->shape->spreads))) {
            slice_at(run, index);
            result.outcome = steps[step].run(run);
            if (result.outcome == NATIVE_DONE)
                pass(run, step);
        }
        if (result.outcome != NATIVE_DONE)
            return result;
        group->peer = 0;
    }
    group->phase = SHM_PHASE_LEVELS;
    group->slice++;
    return result;
}

/* The end: buffers and rooms that others read are this rank's again when they have been read. */
static enum native_outcome large_end(const struct run *run, uint64_t slices) {
    struct native_group *group = run->group;
    enum native_outcome outcome = NATIVE_DONE;
    if (group->phase != SHM_PHASE_TAKEN && group->lent) {
        /* Release: the reads of others' buffers come before; partner is wait_for below. */
        atomic_store_explicit(&group->area->taken.slices, slices, memory_order_release);
        ring_members(group);
    }
    group->phase = SHM_PHASE_TAKEN;
    if (!run->shape->spreads)
        outcome = set_wait(run, BLOCK, SHM_LEVEL_PARTIAL, slices);
    if (!run->shape->spreads && outcome == NATIVE_DONE)
        outcome = set_wait(run, OWNERS, SHM_LEVEL_COMBINE, slices);
    for (int i = 0; i < group->n && outcome == NATIVE_DONE && group->received; i++)
        if (i != group->self)
            outcome = wait_for(group, i, &group->members[i].area->taken.slices, slices, run->wait);
    return outcome;
}

static struct native_result run_large(struct run *run) {
    struct native_group *group = run->group;
    struct native_result result = {.outcome = NATIVE_DONE};
    if (!group->running) {
        result.outcome = shm_moves_settle(group, run->wait);
        if (result.outcome == NATIVE_DONE)
            large_begin(run);
    }
    size_t slices = 0;
    if (result.outcome == NATIVE_DONE)
        slices = (run->call->bytes / run->size + group->step - 1) / group->step;
    while (result.outcome == NATIVE_DONE && group->slice < slices + steps[SHM_LEVEL_GATHER].behind)
        result = turn(run, slices);
    if (result.outcome == NATIVE_DONE)
        result.outcome = large_end(run, group->slices + slices);
    if (result.outcome == NATIVE_DONE) {
        group->slices += slices;
        group->running = false;
        result.form = group->mapped ? &run->levels->forms->mapped : NULL;
    } else if (result.outcome != NATIVE_MISMATCH) {
        result.peer = run->wait->waiting_for;
    }
    return result;
}

/* -- small calls ----------------------------------------------------------------------------- */

/* Where operand and partial of a call stand: in the two lines, or in the slot. */
static inline uint8_t *small_room(const struct run *run, int member, bool partial) {
    const struct shm_area *area = run->group->members[member].area;
    unsigned which = run->group->sequence & 1;
    const uint8_t *room = area->slot[which] + (partial ? SLOT_BYTES : 0);
    if (run->count * run->partial <= SHM_INLINE_BYTES)
        room = (partial ? area->level_line : area->line)[which].payload;
    return (uint8_t *)(uintptr_t)room;
}

static void small_publish(const struct run *run, struct shm_group_line *lines, enum set readers) {
    struct shm_group_line *line = &lines[run->group->sequence & 1];
    line->fingerprint = run->group->word;
    /* Release: partner is line_wait. */
    atomic_store_explicit(&line->sequence, run->group->sequence, memory_order_release);
    set_ring(run, readers);
}

static struct native_result line_wait(const struct run *run, int peer,
                                      const struct shm_group_line *lines) {
    struct native_group *group = run->group;
    const struct shm_group_line *line = &lines[group->sequence & 1];
    struct native_result result = {.peer = peer};
    result.outcome = wait_for(group, peer, &line->sequence, group->sequence, run->wait);
    return result.outcome == NATIVE_DONE && line_differs(group, line)
               ? shm_mismatch(group, run->call, peer, line)
               : result;
}

static void small_begin(const struct run *run) {
    const struct native_call *call = run->call;
    long_line_begin(run->group, call);
    run->group->phase = SHM_PHASE_GATHER;
    uint8_t *room = small_room(run, run->group->self, false);
    if (run->count * run->size <= SHM_INLINE_BYTES)
        copy_small(room, call->send, run->count * run->size);
    else
        shm_hand_over(run->group, room, call->send, run->count * run->size);
    small_publish(run, run->group->area->line, BLOCK);
}

/* Reduces operands of the block, or partials of the blocks. */
static void small_reduce(const struct run *run, void *to, bool finish, int noperands) {
    if (run->count > 0)
        reduce_run(run->call->spec, to, finish, run->group->operands, (size_t)noperands,
                   run->count);
}

static struct native_result run_small(struct run *run) {
    struct native_group *group = run->group;
    const struct shm_levels *levels = run->levels;
    struct native_result result = {.outcome = NATIVE_DONE};
    run->count = run->shape->reduces ? run->call->count : 0; /* of a barrier nothing */
    if (!group->running)
        small_begin(run);
    for (int i = 0; group->phase == SHM_PHASE_GATHER && i < levels->size; i++) {
        int peer = levels->first + i;
        if (peer != group->self)
            result = line_wait(run, peer, group->members[peer].area->line);
        if (result.outcome != NATIVE_DONE)
            return result;
        group->operands[i] = (struct reduce_operand){.data = small_room(run, peer, false)};
    }
    if (group->phase == SHM_PHASE_GATHER) {
        small_reduce(run, small_room(run, group->self, true), false, levels->size);
        small_publish(run, group->area->level_line, OWNERS);
        group->phase = SHM_PHASE_REDUCE;
    }
    for (int b = 0; b < levels->blocks; b++) {
        bool own = b * levels->block == levels->first; /* its partial is each member's */
        int peer = own ? group->self : holder(group, b, group->self);
        if (!own)
            result = line_wait(run, peer, group->members[peer].area->level_line);
        if (result.outcome != NATIVE_DONE)
            return result;
        group->operands[b] =
            (struct reduce_operand){.data = small_room(run, peer, true), .partial = true};
    }
    group->running = false;
    small_reduce(run, run->call->recv, true, levels->blocks);
    run->levels->far_bytes += (size_t)(levels->blocks - 1) * (SHM_LINE + run->count * run->partial);
    return result;
}

/* -- which calls ----------------------------------------------------------------------------- */

const struct native_form *shm_level_query(const struct native_group *group, rota_kind kind,
                                          size_t bytes, const struct reduce_spec *spec) {
    const struct shm_levels *levels = &group->levels;
    const struct shape *shape = &shapes[kind];
    bool small = levels->always || group->n - levels->block >= LEVEL_READS;
    if (!shape->here || (shape->reduces && !spec))
        return NULL;
    if (kind == ROTA_KIND_BARRIER)
        return small ? &levels->forms->small : NULL;
    if (kind == ROTA_KIND_ALL_REDUCE && small && bytes <= shm_one_shot_limit(group->n) &&
        bytes / spec->element_size * spec->partial_size <= SLOT_BYTES)
        return &levels->forms->small;
    size_t all = bytes * (shape->blocks ? (size_t)group->n : 1);
    if (all < (levels->always ? 1 : LEVEL_BYTES) || !(group->forms & SHM_FORM_STAGED))
        return NULL;
    return kind == ROTA_KIND_ALL_REDUCE ? &levels->forms->two_shot : &levels->forms->large;
}

struct native_result shm_level_advance(struct native_group *group, const struct native_form *form,
                                       const struct native_call *call, struct native_wait *wait) {
    struct run run = run_of(group, call, wait);
    return form == &group->levels.forms->small ? run_small(&run) : run_large(&run);
}
