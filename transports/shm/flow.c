/* The native forms of all kinds but all-reduce and barrier: one routine, in which a kind is a row
 * of a table that says who gives what to whom.
 *
 * Design note. A member *gives* (all do, or the root, or all others), *takes*, or both. What it
 * gives is one block for everybody or, in kinds that *spread*, a block for each. It stands in the
 * call's line (inline), in the slot of the line (one-shot), or slice by slice in `move` (staged);
 * the line is published when the first slice is there. Takers copy out of it, or reduce.
 *
 * Where everybody gives and takes, the lines and slots are those of all-reduces, under their rule
 * (struct shm_group_line). In rooted calls nobody waits for who gives nothing: a root runs ahead,
 * members that were read run ahead of the root. So what is given there stands in posts, and a
 * member that is about to write to a post looks whether those who read it before have said so in
 * `received`. Moves, by whatever kind, are used again in the same way by `fetched`. Both counters
 * are numbers that all members count alike, so a reader that skips calls in which it takes nothing
 * is never ahead of what it has read.
 *
 * A turn shows slice t, keeps the own block's part of it, and takes slice t - 1. With four moves no
 * member waits in it for what another has yet to do in the same turn, and in place an input slice
 * is shown before the same slice of the output is written.
 *
 * Where everybody gives and takes, a large input that lies in its member's heap is not shown but
 * named in the line, and read in place; that member returns when all its readers have fetched the
 * last slice. Only who gives decides, and says so in its line. All-to-all in place writes to what
 * others read: it is shown. Rooted calls stage always: their root and the others copy side by side,
 * which measured beats one copy by the reader alone, and nobody waits at the end.
 *
 * Sums are taken of all operands at once in the aligned tree over members, as in all-reduce. */
#include "transports/shm/lines.h"

/* How the blocks of a kind travel. */
struct shm_flow {
    enum { NOT_HERE, EVERYBODY, FROM_ROOT, TO_ROOT } way;
    bool spread;   /* the input has a block for each taker */
    bool collects; /* the output has a block of each giver */
    bool reduces;
};

static const struct shm_flow flows[ROTA_KIND_COUNT] = {
    [ROTA_KIND_REDUCE] = {.way = TO_ROOT, .reduces = true},
    [ROTA_KIND_BROADCAST] = {.way = FROM_ROOT},
    [ROTA_KIND_ALL_GATHER] = {.way = EVERYBODY, .collects = true},
    [ROTA_KIND_REDUCE_SCATTER] = {.way = EVERYBODY, .spread = true, .reduces = true},
    [ROTA_KIND_ALL_TO_ALL] = {.way = EVERYBODY, .spread = true, .collects = true},
    [ROTA_KIND_GATHER] = {.way = TO_ROOT, .collects = true},
    [ROTA_KIND_SCATTER] = {.way = FROM_ROOT, .spread = true},
};

static const struct native_form form_inline = {"shm-inline", "direct", 0};
static const struct native_form form_one_shot = {"shm-one-shot", "direct", 0};
static const struct native_form form_staged = {"shm-staged", "direct", 0};
static const struct native_form form_mapped = {"shm-mapped", "direct", 0};

/* Bytes given by a member up to which a call is one-shot, and from which on it may be mapped. */
#define ONE_SHOT_EVERYBODY ((size_t)32 * 1024)
#define ONE_SHOT_ROOTED ((size_t)SHM_POST_BYTES)
#define MAPPED_BYTES ((size_t)128 * 1024)
/* Bytes of a slice: the pipeline is filled soon, and the slices stay in a second-level cache. In
 * rooted calls one member fills it for the others, so smaller ones are cut finer. */
#define SLICE_BYTES ((size_t)128 * 1024)
#define SLICE_LEAST ((size_t)16 * 1024)

_Static_assert(ONE_SHOT_EVERYBODY <= SHM_ONE_SHOT_BYTES && SLICE_BYTES <= SHM_MOVE_BYTES, "room");

/* Bytes that a member gives in all. */
static inline size_t given_bytes(const struct native_group *group, const struct shm_flow *flow,
                                 size_t bytes) {
    return flow->spread ? bytes * (size_t)group->n : bytes;
}

const struct native_form *shm_flow_query(const struct native_group *group, rota_kind kind,
                                         size_t bytes, const struct reduce_spec *spec) {
    const struct shm_flow *flow = &flows[kind];
    if (flow->way == NOT_HERE || (flow->reduces && !spec))
        return NULL;
    size_t given = given_bytes(group, flow, bytes);
    if (given <= SHM_INLINE_BYTES)
        return &form_inline;
    if (given <= (flow->way == EVERYBODY ? ONE_SHOT_EVERYBODY : ONE_SHOT_ROOTED))
        return &form_one_shot;
    return group->forms & SHM_FORM_STAGED ? &form_staged : NULL;
}

/* -- waiting for readers ---------------------------------------------------------------------- */

/* Waits until what was written has been read. Acquire in wait_for: partners are the release stores
 * of `received` in finish and of `fetched` in take. */
static enum native_outcome readers_wait(struct native_group *group,
                                        const struct shm_written *written, bool move,
                                        struct native_wait *wait) {
    if (written->number == 0)
        return NATIVE_DONE;
    int first = written->reader == SHM_ALL ? 0 : written->reader;
    int last = written->reader == SHM_ALL ? group->n - 1 : written->reader;
    for (int i = first; i <= last; i++) {
        struct shm_member *member = &group->members[i];
        uint64_t *seen = move ? &member->fetched : &member->received;
        if (i == group->self || *seen >= written->number)
            continue;
        const _Atomic uint64_t *word =
            move ? &member->area->fetched.slices : &member->area->received.slices;
        enum native_outcome outcome = wait_for(group, i, word, written->number, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
        *seen = atomic_load_explicit(word, memory_order_acquire);
    }
    return NATIVE_DONE;
}

enum native_outcome shm_moves_settle(struct native_group *group, struct native_wait *wait) {
    enum native_outcome outcome = NATIVE_DONE;
    for (int i = 0; i < SHM_MOVES && outcome == NATIVE_DONE; i++)
        outcome = readers_wait(group, &group->move[i], true, wait);
    return outcome;
}

static void ring(const struct native_group *group, int only) {
    if (only == SHM_ALL) {
        ring_members(group);
    } else {
        const struct shm_member *member = &group->members[only];
        if (member->bell)
            doorbell_ring(member->bell, member->event_fd);
    }
}

/* -- giving ----------------------------------------------------------------------------------- */

static inline size_t slice_bytes(const struct native_group *group, const struct native_call *call,
                                 size_t index) {
    size_t left = call->bytes - index * group->step;
    return left < group->step ? left : group->step;
}

/* Where a member's slice stands that is not mapped. */
static inline const uint8_t *room_of(const struct native_group *group,
                                     const struct shm_member *member, size_t index) {
    switch (group->room) {
    case SHM_ROOM_LINE:
        return member->area->line[group->place].payload;
    case SHM_ROOM_SLOT:
        return group->place < 2 ? member->area->slot[group->place]
                                : member->area->post_slot[group->place - 2];
    default:
        return member->staging->move[(group->moves + index) % SHM_MOVES];
    }
}

/* Puts a slice of the own input where the takers look for it. */
static void put(struct native_group *group, const struct native_call *call, size_t index) {
    uint8_t *to = (uint8_t *)room_of(group, &group->members[group->self], index);
    const uint8_t *from = (const uint8_t *)call->send + index * group->step;
    size_t bytes = slice_bytes(group, call, index);
    if (group->room == SHM_ROOM_LINE) {
        copy_small(to, from, given_bytes(group, group->flow, bytes));
    } else if (!group->flow->spread) {
        shm_hand_over(group, to, from, bytes);
    } else {
        for (size_t p = 0; p < (size_t)group->n; p++)
            if (p != (size_t)group->self)
                shm_hand_over(group, to + p * group->step, from + p * call->bytes, bytes);
    }
}

/* Shows the slice of this turn; the first one by the call's line. */
static enum native_outcome show(struct native_group *group, const struct native_call *call,
                                struct native_wait *wait) {
    size_t index = group->slice;
    uint64_t number = group->moves + index + 1;
    if (group->room == SHM_ROOM_MOVE && !group->sent) {
        struct shm_written *written = &group->move[(number - 1) % SHM_MOVES];
        enum native_outcome outcome = readers_wait(group, written, true, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
        *written = (struct shm_written){number, group->reader};
    }
    if (!group->sent && call->bytes > 0)
        put(group, call, index);
    if (index == 0) {
        struct shm_group_line *line = &group->area->line[group->place];
        line->fingerprint = group->word;
        if (group->room == SHM_ROOM_MOVE)
            buffers_name(group, line);
        /* Release, as the next one: partner is wait_for in take. */
        atomic_store_explicit(&line->sequence, group->number, memory_order_release);
    } else {
        atomic_store_explicit(&group->area->shown.slices, number, memory_order_release);
    }
    ring(group, group->reader);
    return NATIVE_DONE;
}

/* Copies the part of the own input that stays with this rank. */
static void keep(struct native_group *group, const struct native_call *call) {
    size_t own = (size_t)group->self * call->bytes, at = group->slice * group->step;
    const uint8_t *from = (const uint8_t *)call->send + (group->flow->spread ? own : 0) + at;
    uint8_t *to = (uint8_t *)call->recv + (group->flow->collects ? own : 0) + at;
    if (from == to)
        return;
    if (group->streams)
        reduce_stream(group->isa, to, from, slice_bytes(group, call, group->slice));
    else
        memcpy(to, from, slice_bytes(group, call, group->slice));
}

/* -- taking ----------------------------------------------------------------------------------- */

/* Reads in a member's line whether its input is mapped. False when the line names no buffer. */
static bool input_take(struct native_group *group, const struct native_call *call,
                       struct shm_member *member, const struct shm_group_line *line) {
    if (!buffers_take(group, member, line, given_bytes(group, group->flow, call->bytes), 0))
        return false;
    group->mapped &= member->send != NULL;
    return true;
}

/* Waits for a slice of the member whose turn it is. */
static struct native_result slice_wait(struct native_group *group, const struct native_call *call,
                                       size_t index, struct native_wait *wait) {
    int peer = group->peer;
    struct shm_member *member = &group->members[peer];
    struct native_result result = {.outcome = NATIVE_DONE, .peer = peer};
    if (index > 0) {
        if (!member->send)
            result.outcome =
                wait_for(group, peer, &member->area->shown.slices, group->moves + index + 1, wait);
        return result;
    }
    const struct shm_group_line *line = &member->area->line[group->place];
    result.outcome = wait_for(group, peer, &line->sequence, group->number, wait);
    if (result.outcome == NATIVE_DONE &&
        (line_differs(group, line) ||
         (group->room == SHM_ROOM_MOVE && !input_take(group, call, member, line))))
        return shm_mismatch(group, call, peer, line);
    return result;
}

/* A member's slice for this rank. */
static inline const uint8_t *source_of(const struct native_group *group,
                                       const struct native_call *call, int peer, size_t index) {
    const struct shm_member *member = &group->members[peer];
    size_t block = group->flow->spread ? (size_t)group->self : 0;
    if (group->room == SHM_ROOM_MOVE && member->send)
        return member->send + block * call->bytes + index * group->step;
    return room_of(group, member, index) + block * group->step;
}

static void copy_in(const struct native_group *group, const struct native_call *call, int peer,
                    size_t index) {
    size_t block = group->flow->collects ? (size_t)peer : 0;
    uint8_t *to = (uint8_t *)call->recv + block * call->bytes + index * group->step;
    const uint8_t *from = source_of(group, call, peer, index);
    size_t bytes = slice_bytes(group, call, index);
    if (group->room == SHM_ROOM_LINE)
        copy_small(to, from, bytes);
    else if (group->streams)
        reduce_stream(group->isa, to, from, bytes);
    else
        reduce_copy(group->isa, to, from, bytes);
}

static void combine(struct native_group *group, const struct native_call *call, size_t index) {
    size_t at = index * group->step;
    size_t own = group->flow->spread ? (size_t)group->self * call->bytes : 0;
    for (int i = 0; i < group->n; i++)
        group->operands[i] = (struct reduce_operand){
            .data = i == group->self ? (const uint8_t *)call->send + own + at
                                     : source_of(group, call, i, index)};
    reduce_run(call->spec, (uint8_t *)call->recv + at, true, group->operands, (size_t)group->n,
               slice_bytes(group, call, index) / call->spec->element_size);
}

/* Takes a slice of all members that give. */
static struct native_result take(struct native_group *group, const struct native_call *call,
                                 size_t index, struct native_wait *wait) {
    struct native_result result = {.outcome = NATIVE_DONE};
    for (; group->peer < group->last; group->peer++) {
        if (group->peer == group->self)
            continue;
        result = slice_wait(group, call, index, wait);
        if (result.outcome != NATIVE_DONE)
            return result;
        if (!group->flow->reduces && call->bytes > 0)
            copy_in(group, call, group->peer, index);
    }
    if (group->room == SHM_ROOM_LINE)
        line_fetch(&group->area->line[2 + (group->posts + 1) % SHM_POSTS]);
    if (group->flow->reduces && call->bytes > 0)
        combine(group, call, index);
    if (group->room == SHM_ROOM_MOVE) {
        /* Release: what was read is read; partner is readers_wait. */
        atomic_store_explicit(&group->area->fetched.slices, group->moves + index + 1,
                              memory_order_release);
        ring(group, group->flow->way == FROM_ROOT ? call->root : SHM_ALL);
    }
    return result;
}

/* -- the call --------------------------------------------------------------------------------- */

/* Cuts the call into slices of whole elements, the same on all members. */
static void cut(struct native_group *group, const struct native_call *call) {
    size_t size = group->flow->reduces ? call->spec->element_size : 1;
    size_t most = group->flow->spread ? SHM_MOVE_BYTES / (size_t)group->n : SHM_MOVE_BYTES;
    size_t wanted = SLICE_BYTES;
    size_t part = call->bytes / SHM_MOVES + 64 * size; /* and so at most as many slices as moves */
    if (group->flow->way != EVERYBODY && part < wanted)
        wanted = part > SLICE_LEAST ? part : SLICE_LEAST;
    size_t elements = (most < wanted ? most : wanted) / size;
    if (elements >= 64)
        elements &= ~(size_t)63;
    group->step = elements * size;
    group->nslices = (call->bytes + group->step - 1) / group->step;
    group->streams =
        call->bytes * (group->flow->collects ? (size_t)group->n : 1) >= SHM_STREAM_BYTES;
}

/* Where the own input lies in the heap, when it is to be read there. */
static uint64_t lend(const struct native_group *group, const struct native_call *call) {
    size_t given = given_bytes(group, group->flow, call->bytes);
    bool overwritten = call->kind == ROTA_KIND_ALL_TO_ALL && call->send == call->recv;
    if (group->flow->way != EVERYBODY || given < MAPPED_BYTES || overwritten ||
        !(group->forms & SHM_FORM_MAPPED))
        return 0;
    return shm_heap_find(&group->shm->heap, call->send, given);
}

/* Numbers a rooted call, when the post that it will use is free. */
static enum native_outcome post_begin(struct native_group *group, const struct native_call *call,
                                      struct native_wait *wait) {
    struct shm_written *written = &group->post[(group->posts + 1) % SHM_POSTS];
    bool root = call->root == group->self;
    group->gives = root == (group->flow->way == FROM_ROOT);
    group->takes = !group->gives;
    if (group->gives) {
        enum native_outcome outcome = readers_wait(group, written, false, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
        *written = (struct shm_written){group->posts + 1, group->reader};
    }
    group->number = ++group->posts;
    group->place = 2 + (unsigned)(group->posts % SHM_POSTS);
    group->word = call_word(call);
    group->running = true;
    return NATIVE_DONE;
}

static enum native_outcome begin(struct native_group *group, const struct native_form *form,
                                 const struct native_call *call, struct native_wait *wait) {
    const struct shm_flow *flow = group->flow = &flows[call->kind];
    group->reader = flow->way == TO_ROOT ? call->root : SHM_ALL;
    if (flow->way == EVERYBODY) {
        long_line_begin(group, call);
        group->number = group->sequence;
        group->place = (unsigned)(group->sequence & 1);
        group->gives = group->takes = true;
    } else {
        enum native_outcome outcome = post_begin(group, call, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
    }
    group->first = flow->way == FROM_ROOT ? call->root : 0;
    group->last = flow->way == FROM_ROOT ? call->root + 1 : group->n;
    group->slice = 0;
    group->phase = SHM_PHASE_STAGE;
    group->sent = group->received = 0;
    if (form == &form_staged) {
        group->room = SHM_ROOM_MOVE;
        cut(group, call);
        group->sent = lend(group, call);
        group->mapped = group->sent || !group->gives;
    } else {
        group->room = form == &form_inline ? SHM_ROOM_LINE : SHM_ROOM_SLOT;
        group->step = call->bytes;
        group->nslices = 1;
        group->mapped = group->streams = false;
    }
    return NATIVE_DONE;
}

/* Shows a slice and takes the one before. */
static struct native_result turn(struct native_group *group, const struct native_call *call,
                                 struct native_wait *wait) {
    struct native_result result = {.outcome = NATIVE_DONE};
    if (group->phase == SHM_PHASE_STAGE) {
        if (group->slice < group->nslices) {
            if (group->gives && (!group->sent || group->slice == 0))
                result.outcome = show(group, call, wait);
            if (result.outcome != NATIVE_DONE)
                return result;
            if (call->bytes > 0 && !group->flow->reduces &&
                (group->flow->way == EVERYBODY || call->root == group->self))
                keep(group, call);
        }
        group->phase = SHM_PHASE_GATHER;
        group->peer = group->first;
    }
    if (group->takes && group->slice > 0)
        result = take(group, call, group->slice - 1, wait);
    if (result.outcome != NATIVE_DONE)
        return result;
    group->phase = SHM_PHASE_STAGE;
    group->slice++;
    return result;
}

/* Where everybody gives and takes so little that it fits into the lines, there is nothing to turn.
 */
static struct native_result run_inline(struct native_group *group, const struct native_call *call,
                                       struct native_wait *wait) {
    const struct shm_flow *flow = &flows[call->kind];
    size_t bytes = call->bytes, own = (size_t)group->self * bytes;
    const uint8_t *kept = (const uint8_t *)call->send + (flow->spread ? own : 0);
    uint8_t *recv = call->recv;
    if (!group->running) {
        line_begin(group, call);
        copy_small(own_line(group)->payload, call->send, given_bytes(group, flow, bytes));
        line_publish(group);
        if (flow->collects && kept != recv + own)
            copy_small(recv + own, kept, bytes);
    }
    struct native_result result = lines_wait(group, call, wait);
    group->running = result.outcome == NATIVE_PAUSED;
    if (result.outcome != NATIVE_DONE)
        return result;
    line_fetch(&group->area->line[(group->sequence + 1) & 1]);
    for (int i = 0; i < group->n; i++) {
        const uint8_t *block = line_of(group, i)->payload + (flow->spread ? own : 0);
        group->operands[i] = (struct reduce_operand){.data = i == group->self ? kept : block};
        if (flow->collects && i != group->self)
            copy_small(recv + (size_t)i * bytes, block, bytes);
    }
    if (flow->reduces)
        reduce_run(call->spec, recv, true, group->operands, (size_t)group->n, call->count);
    return result;
}

/* The end: what others read in place is this rank's again when they have read it. */
static enum native_outcome finish(struct native_group *group, const struct native_call *call,
                                  struct native_wait *wait) {
    if (group->takes && group->flow->way != EVERYBODY) {
        /* Release: the post is read; partner is readers_wait. */
        atomic_store_explicit(&group->area->received.slices, group->number, memory_order_release);
        ring(group, group->flow->way == FROM_ROOT ? call->root : SHM_ALL);
    }
    if (group->room != SHM_ROOM_MOVE)
        return NATIVE_DONE;
    struct shm_written lent = {group->moves + group->nslices, group->reader};
    enum native_outcome outcome =
        group->sent ? readers_wait(group, &lent, true, wait) : NATIVE_DONE;
    if (outcome == NATIVE_DONE)
        group->moves += group->nslices;
    return outcome;
}

struct native_result shm_flow_advance(struct native_group *group, const struct native_form *form,
                                      const struct native_call *call, struct native_wait *wait) {
    if (form == &form_inline && flows[call->kind].way == EVERYBODY)
        return run_inline(group, call, wait);
    if (form->block)
        return shm_level_advance(group, form, call, wait);
    struct native_result result = {.outcome = NATIVE_DONE};
    if (!group->running)
        result.outcome = begin(group, form, call, wait);
    while (result.outcome == NATIVE_DONE && group->slice <= group->nslices)
        result = turn(group, call, wait);
    if (result.outcome == NATIVE_DONE) {
        result.outcome = finish(group, call, wait);
        result.form = group->mapped ? &form_mapped : NULL;
    }
    if (result.outcome == NATIVE_DONE)
        group->running = false;
    else if (result.outcome != NATIVE_MISMATCH)
        result.peer = wait->waiting_for;
    return result;
}
