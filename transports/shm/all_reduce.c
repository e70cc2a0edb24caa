/* The native forms of all-reduce (inline, one-shot, two-shot) and barrier; those of all other kinds
 * are in flow.c.
 *
 * Design note. Every call has a number k. A member publishes k in line k % 2 of its area together
 * with the call's fingerprint, and waits for k in the lines of all others; so in every form all
 * wait for all, and what call k used may be overwritten in call k + 2 (see struct shm_group_line).
 *
 *   barrier    the line alone
 *   inline     the operand stands in the line itself: one transfer of a cache line
 *   one-shot   the operand stands in slot k % 2, and every member reduces everything
 *   two-shot   slice by slice: each member shows its input (stage), reduces its own chunk of the
 *              slice and shows that (result), and collects the others' chunks
 *
 * Slices are numbered over all calls; slice g uses stage and result g % 2. The loop does, in turn
 * g, gather g - 2, stage g, reduce g - 1. Stage g overwrites slice g - 2, which all have reduced,
 * since gather g - 2 waited for that. Result g - 1 overwrites slice g - 3, which all have gathered:
 * they did so before they staged g - 1, for which reduce g - 1 waits.
 *
 * A large two-shot call reads buffers that lie in the heap of their rank (heap.h) in place. What is
 * mapped is local, so each member says it in its line, and what is not goes through staging: the
 * reader decides for each member by the line, and keeps to the same slices and waits. Only where
 * all buffers of all members are mapped (`mapped`) are slices larger and nothing waits for
 * `staged`: the line says that the input is there, and neither stage nor result is touched. A
 * member whose recv is read returns only when all others have `taken` what they read; that of send
 * is over when all have reduced. Where some member cannot read some heap, nobody names a buffer.
 *
 * Sums are taken in the aligned tree over members for each element by itself, so neither slices nor
 * chunks show in the bits. With two members the operands may change places: every operator is
 * commutative in its bits, NaN being canonical. */
#include "transports/shm/lines.h"

static const struct native_form form_barrier = {"shm-barrier", "direct", 0};
static const struct native_form form_inline = {"shm-inline", "direct", 0};
static const struct native_form form_one_shot = {"shm-one-shot", "direct", 0};
static const struct native_form form_two_shot = {"shm-two-shot", "direct_two_shot", 0};
static const struct native_form form_mapped = {"shm-mapped", "direct_two_shot", 0};

/* A slice where all buffers are mapped. */
#define MAPPED_SLICE_BYTES ((size_t)1024 * 1024)

/* Largest one-shot call. One-shot reads n - 1 whole operands, two-shot twice (n - 1) / n of one,
 * but waits for all members a second time. Measured for two members: equal at 32 to 64 KiB on an
 * EPYC, a tenth shorter at 64 KiB on a Xeon; for more the limit keeps what is read at about that.
 */
size_t shm_one_shot_limit(int n) {
    return n <= 2 ? 65536 : n <= 4 ? 16384 : n <= 8 ? 8192 : 4096;
}

const struct native_form *shm_native_query(const struct native_group *group, rota_kind kind,
                                           size_t bytes, const struct reduce_spec *spec) {
    if (!(group->forms & SHM_FORM_SMALL))
        return NULL;
    const struct native_form *levelled =
        group->levels.block ? shm_level_query(group, kind, bytes, spec) : NULL;
    if (levelled)
        return levelled;
    if (kind == ROTA_KIND_BARRIER)
        return &form_barrier;
    if (kind != ROTA_KIND_ALL_REDUCE || !spec)
        return shm_flow_query(group, kind, bytes, spec);
    if (bytes <= SHM_INLINE_BYTES)
        return &form_inline;
    if (bytes <= shm_one_shot_limit(group->n))
        return &form_one_shot;
    return group->forms & SHM_FORM_STAGED ? &form_two_shot : NULL;
}

/* Reduces the operands of all members. */
static inline void reduce_members(struct native_group *group, const struct native_call *call) {
    for (int i = 0; i < group->n; i++)
        group->operands[i].partial = false;
    reduce_run(call->spec, call->recv, true, group->operands, (size_t)group->n, call->count);
}

/* -- barrier, inline, one-shot --------------------------------------------------------------- */

static struct native_result run_barrier(struct native_group *group, const struct native_call *call,
                                        struct native_wait *wait) {
    if (!group->running) {
        line_begin(group, call);
        line_publish(group);
    }
    struct native_result result = lines_wait(group, call, wait);
    group->running = result.outcome == NATIVE_PAUSED;
    line_fetch(&group->area->line[(group->sequence + 1) & 1]);
    return result;
}

static struct native_result run_inline(struct native_group *group, const struct native_call *call,
                                       struct native_wait *wait) {
    if (!group->running) {
        line_begin(group, call);
        copy_small(own_line(group)->payload, call->send, call->bytes);
        line_publish(group);
    }
    struct native_result result = lines_wait(group, call, wait);
    group->running = result.outcome == NATIVE_PAUSED;
    if (result.outcome != NATIVE_DONE)
        return result;
    line_fetch(&group->area->line[(group->sequence + 1) & 1]);
    if (group->n == 2 && !call->spec->ordered) {
        reduce_pair(call->spec, call->recv, NULL, call->send, line_of(group, !group->self)->payload,
                    call->count);
        return result;
    }
    for (int i = 0; i < group->n; i++)
        group->operands[i].data = line_of(group, i)->payload;
    reduce_members(group, call);
    return result;
}

static struct native_result run_one_shot(struct native_group *group, const struct native_call *call,
                                         struct native_wait *wait) {
    if (!group->running) {
        long_line_begin(group, call);
        shm_hand_over(group, group->area->slot[group->sequence & 1], call->send, call->bytes);
        line_publish(group);
    }
    struct native_result result = lines_wait(group, call, wait);
    group->running = result.outcome == NATIVE_PAUSED;
    if (result.outcome != NATIVE_DONE)
        return result;
    if (group->n == 2 && !call->spec->ordered) {
        reduce_pair(call->spec, call->recv, NULL, call->send,
                    group->members[!group->self].area->slot[group->sequence & 1], call->count);
        return result;
    }
    for (int i = 0; i < group->n; i++)
        group->operands[i].data = group->members[i].area->slot[group->sequence & 1];
    group->operands[group->self].data = call->send;
    reduce_members(group, call);
    return result;
}

/* -- two-shot -------------------------------------------------------------------------------- */

/* A slice of a call: elements [first, first + count), cut into chunks of `share`. */
struct slice {
    size_t first, count, share, size;
};

static inline size_t slice_elements(const struct native_call *call, size_t bytes) {
    return (bytes / call->spec->element_size) & ~(size_t)(SHM_CHUNK_ELEMENTS - 1);
}
static inline bool may_be_mapped(const struct native_group *group, const struct native_call *call) {
    return call->bytes >= SHM_MAPPED_BYTES && (group->forms & SHM_FORM_MAPPED);
}

static struct slice slice_at(const struct native_group *group, const struct native_call *call,
                             size_t index) {
    size_t step = group->step;
    struct slice slice = {.first = index * step, .size = call->spec->element_size};
    slice.count = call->count - slice.first < step ? call->count - slice.first : step;
    size_t n = (size_t)group->n;
    slice.share =
        ((slice.count + n - 1) / n + SHM_CHUNK_ELEMENTS - 1) & ~(size_t)(SHM_CHUNK_ELEMENTS - 1);
    return slice;
}

/* Bytes of a member's chunk and where it begins in the slice. */
static inline size_t chunk_at(const struct slice *slice, int member, size_t *offset) {
    size_t begin = slice->share * (size_t)member;
    if (begin >= slice->count) {
        *offset = 0;
        return 0;
    }
    size_t left = slice->count - begin;
    *offset = begin * slice->size;
    return (left < slice->share ? left : slice->share) * slice->size;
}

/* All lines are there: decides what is read in place, the same on all members. False when a line
 * names what is no buffer; group->peer is then its member. */
static bool decide(struct native_group *group, const struct native_call *call) {
    bool mapped = group->sent && group->received, lent = group->received;
    group->known = true;
    group->peer = 0;
    if (!may_be_mapped(group, call))
        return true;
    for (int i = 0; i < group->n; i++) {
        struct shm_member *member = &group->members[i];
        if (i == group->self)
            continue;
        if (!buffers_take(group, member, line_of(group, i), call->bytes, call->bytes)) {
            group->peer = i;
            return false;
        }
        mapped &= member->send && member->recv;
        lent |= member->recv != NULL;
    }
    group->lent = lent;
    group->mapped = mapped;
    if (mapped)
        group->step = slice_elements(call, MAPPED_SLICE_BYTES);
    return true;
}

static struct native_result two_shot_lines(struct native_group *group,
                                           const struct native_call *call,
                                           struct native_wait *wait) {
    struct native_result result = lines_wait(group, call, wait);
    if (result.outcome == NATIVE_DONE && !decide(group, call))
        result = shm_mismatch(group, call, group->peer, line_of(group, group->peer));
    return result;
}

/* What a far core has just written is slow to read; a string move into staging takes it out of that
 * core's cache. Measured for two ranks, staged and mapped in us: 1 MiB 62 and 96, 4 MiB 255 and
 * 375; what no cache holds, and near ranks, are faster mapped. Each rank decides for its own
 * buffers. */
static inline bool reads_far(const struct native_group *group, const struct native_call *call) {
    return group->far && group->n == 2 && call->bytes < SHM_STREAM_BYTES;
}

/* Numbers the call and says where its buffers are. Who has mapped ones asks what the others have
 * before anything is staged; nobody else waits for that. */
static void two_shot_begin(struct native_group *group, const struct native_call *call) {
    long_line_begin(group, call);
    group->slice = 0;
    group->phase = SHM_PHASE_GATHER;
    group->step = slice_elements(call, SHM_STAGE_BYTES);
    group->known = group->mapped = group->lent = false;
    group->sent = group->received = 0;
    for (int i = 0; i < group->n; i++)
        group->members[i].send = group->members[i].recv = NULL;
    if (!may_be_mapped(group, call))
        return;
    const struct shm_heap *heap = &group->shm->heap;
    if (!reads_far(group, call)) {
        group->sent = shm_heap_find(heap, call->send, call->bytes);
        group->received = shm_heap_find(heap, call->recv, call->bytes);
    }
    buffers_name(group, own_line(group));
    if (group->sent || group->received) {
        line_publish(group);
        group->phase = SHM_PHASE_LINES;
    }
}

static void stage(struct native_group *group, const struct native_call *call, size_t index) {
    struct slice slice = slice_at(group, call, index);
    uint64_t number = group->slices + index;
    const uint8_t *from = (const uint8_t *)call->send + slice.first * slice.size;
    uint8_t *to = group->staging->stage[number & 1];
    size_t begin, bytes = slice.count * slice.size;
    size_t own = chunk_at(&slice, group->self, &begin);
    if (own == 0)
        begin = bytes;
    if (!group->sent) {
        shm_hand_over(group, to, from, begin);
        shm_hand_over(group, to + begin + own, from + begin + own, bytes - begin - own);
    }
    /* Release: partner is wait_for in reduce_step. */
    atomic_store_explicit(&group->area->staged.slices, number + 1, memory_order_release);
    if (index == 0 && !group->known)
        line_publish(group);
    else
        ring_members(group);
}

/* A member's input of this rank's chunk, `at` in the call and `begin` in the slice. */
static inline const uint8_t *input_of(const struct native_group *group, int peer, size_t at,
                                      uint64_t number, size_t begin) {
    const struct shm_member *member = &group->members[peer];
    return member->send ? member->send + at : member->staging->stage[number & 1] + begin;
}

static void reduce_chunk(struct native_group *group, const struct native_call *call,
                         const struct slice *slice, uint64_t number) {
    size_t begin, bytes = chunk_at(slice, group->self, &begin);
    if (bytes == 0)
        return;
    size_t at = slice->first * slice->size + begin, count = bytes / slice->size;
    uint8_t *recv = (uint8_t *)call->recv + at;
    uint8_t *result = group->staging->result[number & 1];
    const uint8_t *send = (const uint8_t *)call->send + at;
    if (group->n == 2 && !call->spec->ordered) {
        reduce_pair(call->spec, recv, NULL, send, input_of(group, !group->self, at, number, begin),
                    count);
    } else {
        for (int i = 0; i < group->n; i++)
            group->operands[i] = (struct reduce_operand){
                .data = i == group->self ? send : input_of(group, i, at, number, begin)};
        reduce_run(call->spec, recv, true, group->operands, (size_t)group->n, count);
    }
    /* A second pass over lines that are in this core's cache beats storing to lines that are not.
     */
    if (!group->received)
        shm_hand_over(group, result, recv, bytes);
}

static enum native_outcome reduce_step(struct native_group *group, const struct native_call *call,
                                       size_t index, struct native_wait *wait) {
    uint64_t number = group->slices + index;
    for (; group->peer < group->n && !group->mapped; group->peer++) {
        int peer = group->peer;
        if (peer == group->self)
            continue;
        enum native_outcome outcome =
            wait_for(group, peer, &group->members[peer].area->staged.slices, number + 1, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
    }
    struct slice slice = slice_at(group, call, index);
    reduce_chunk(group, call, &slice, number);
    /* Release: partner is wait_for in gather_step. */
    atomic_store_explicit(&group->area->reduced.slices, number + 1, memory_order_release);
    ring_members(group);
    return NATIVE_DONE;
}

static enum native_outcome gather_step(struct native_group *group, const struct native_call *call,
                                       size_t index, struct native_wait *wait) {
    struct slice slice = slice_at(group, call, index);
    uint64_t number = group->slices + index;
    uint8_t *recv = (uint8_t *)call->recv + slice.first * slice.size;
    for (; group->peer < group->n; group->peer++) {
        int peer = group->peer;
        if (peer == group->self)
            continue;
        const struct shm_member *member = &group->members[peer];
        enum native_outcome outcome =
            wait_for(group, peer, &member->area->reduced.slices, number + 1, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
        size_t begin, bytes = chunk_at(&slice, peer, &begin);
        const uint8_t *from = member->recv ? member->recv + slice.first * slice.size + begin
                                           : member->staging->result[number & 1];
        if (call->bytes >= SHM_STREAM_BYTES)
            reduce_stream(call->spec->isa, recv + begin, from, bytes);
        else
            reduce_copy(call->spec->isa, recv + begin, from, bytes);
    }
    return NATIVE_DONE;
}

/* One turn's steps from where the call stands. Slices that do not exist are skipped. */
static struct native_result two_shot_turn(struct native_group *group,
                                          const struct native_call *call, size_t slices,
                                          struct native_wait *wait) {
    struct native_result result = {.outcome = NATIVE_DONE};
    if (group->phase == SHM_PHASE_GATHER) {
        if (group->slice >= 2)
            result.outcome = gather_step(group, call, group->slice - 2, wait);
        if (result.outcome != NATIVE_DONE)
            return result;
        group->phase = SHM_PHASE_STAGE;
    }
    if (group->phase == SHM_PHASE_STAGE) {
        if (group->slice < slices && !group->mapped)
            stage(group, call, group->slice);
        group->phase = SHM_PHASE_REDUCE;
        group->peer = 0;
    }
    if (!group->known && group->slice == 1) /* the lines of this call come with its first slice */
        result = two_shot_lines(group, call, wait);
    if (result.outcome == NATIVE_DONE && group->slice >= 1 && group->slice <= slices) {
        result.outcome = reduce_step(group, call, group->slice - 1, wait);
    }
    if (result.outcome != NATIVE_DONE)
        return result;
    group->phase = SHM_PHASE_GATHER;
    group->peer = 0;
    group->slice++;
    return result;
}

/* The end: a buffer that others read is this rank's again when they have taken what they need. */
static enum native_outcome two_shot_end(struct native_group *group, size_t slices,
                                        struct native_wait *wait) {
    uint64_t number = group->slices + slices;
    if (group->phase != SHM_PHASE_TAKEN) {
        group->phase = SHM_PHASE_TAKEN;
        group->peer = 0;
        if (group->lent) {
            /* Release: the reads of others' buffers come before; partner is wait_for below. */
            atomic_store_explicit(&group->area->taken.slices, number, memory_order_release);
            ring_members(group);
        }
    }
    for (; group->peer < group->n && group->received; group->peer++) {
        int peer = group->peer;
        if (peer == group->self)
            continue;
        enum native_outcome outcome =
            wait_for(group, peer, &group->members[peer].area->taken.slices, number, wait);
        if (outcome != NATIVE_DONE)
            return outcome;
    }
    return NATIVE_DONE;
}

static struct native_result run_two_shot(struct native_group *group, const struct native_call *call,
                                         struct native_wait *wait) {
    struct native_result result = {.outcome = NATIVE_DONE};
    if (!group->running) {
        result.outcome = shm_moves_settle(group, wait);
        result.peer = wait->waiting_for;
        if (result.outcome != NATIVE_DONE)
            return result;
        two_shot_begin(group, call);
    }
    if (group->phase == SHM_PHASE_LINES) {
        result = two_shot_lines(group, call, wait);
        if (result.outcome == NATIVE_DONE)
            group->phase = SHM_PHASE_GATHER;
    }
    size_t slices = (call->count + group->step - 1) / group->step;
    while (result.outcome == NATIVE_DONE && group->slice < slices + 2) {
        result = two_shot_turn(group, call, slices, wait);
        slices = (call->count + group->step - 1) / group->step; /* the lines may have changed it */
    }
    if (result.outcome == NATIVE_DONE)
        result.outcome = two_shot_end(group, slices, wait);
    group->running = result.outcome == NATIVE_PAUSED;
    if (result.outcome == NATIVE_DONE) {
        group->slices += slices;
        result.form = group->mapped ? &form_mapped : NULL;
    } else {
        result.peer = group->peer;
    }
    return result;
}

struct native_result shm_native_advance(struct native_group *group, const struct native_form *form,
                                        const struct native_call *call, struct native_wait *wait) {
    if (form == &form_inline)
        return run_inline(group, call, wait);
    if (form == &form_one_shot)
        return run_one_shot(group, call, wait);
    if (form == &form_two_shot)
        return run_two_shot(group, call, wait);
    if (form == &form_barrier)
        return run_barrier(group, call, wait);
    return shm_flow_advance(group, form, call, wait);
}
