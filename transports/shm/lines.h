/* What all native forms are made of: waiting for a member's word, ringing, and the line in which a
 * member announces a call. Inline, because calls of a few bytes are little else. */
#ifndef TRANSPORTS_SHM_LINES_H
#define TRANSPORTS_SHM_LINES_H

#include "transports/shm/group.h"

#include <string.h>

/* -- waiting --------------------------------------------------------------------------------- */

/* The rest of wait_for: asks the engine how to wait. */
enum native_outcome shm_wait_slowly(struct native_group *group, int peer,
                                    const _Atomic uint64_t *word, uint64_t value,
                                    struct native_wait *wait);

/* Waits until a member's word has reached a value. Acquire: partner is the member's release store
 * of that word; what it wrote before is then visible. */
static inline enum native_outcome wait_for(struct native_group *group, int peer,
                                           const _Atomic uint64_t *word, uint64_t value,
                                           struct native_wait *wait) {
    for (int i = 0; i < group->polls; i++) {
        if (__builtin_expect(atomic_load_explicit(word, memory_order_acquire) >= value, 1))
            return NATIVE_DONE;
        cpu_relax();
    }
    return shm_wait_slowly(group, peer, word, value, wait);
}

static inline void ring_members(const struct native_group *group) {
    const struct shm_member *member = group->members;
    for (int i = 0; i < group->n; i++, member++)
        if (member->bell)
            doorbell_ring(member->bell, member->event_fd);
}

/* -- the line of a call ---------------------------------------------------------------------- */

/* What stands beside the number: the fingerprint, and the place of the call on the communicator. */
static inline uint64_t call_word(const struct native_call *call) {
    return call->fingerprint ? call->fingerprint + call->sequence * 0x9e3779b97f4a7c15ull : 0;
}

static inline struct shm_group_line *own_line(const struct native_group *group) {
    return &group->area->line[group->sequence & 1];
}
static inline const struct shm_group_line *line_of(const struct native_group *group, int peer) {
    return &group->members[peer].area->line[group->sequence & 1];
}

/* Fetches the own line of the next call, which the others have read, to be written soon: a call of
 * a few bytes then finds it here. Measured for 8 bytes between two cores: 0.285 instead of 0.33 us.
 * Where more is copied first it is a loss, as others who poll the line fetch it back. */
static inline void line_fetch(const struct shm_group_line *line) {
#if defined(__x86_64__)
    __asm__ volatile("prefetchw %0" : : "m"(*line)); /* __builtin_prefetch fetches it to read */
#else
    __builtin_prefetch(line, 1);
#endif
}

/* Numbers the call; the line may then be filled. */
static inline void line_begin(struct native_group *group, const struct native_call *call) {
    group->sequence++;
    group->running = true;
    group->peer = 0;
    group->word = call_word(call);
}

/* Sees how long it takes to get the next call's line back from those who have read it. */
void shm_look_near(struct native_group *group);

/* The same for calls of more than a line. Their line comes from the others' cores unless the call
 * before has fetched it, which is when to look where they are, now and then. */
static inline void long_line_begin(struct native_group *group, const struct native_call *call) {
    if ((group->sequence & 63) == 0 && group->unfetched == group->sequence && group->sequence > 0)
        shm_look_near(group);
    line_begin(group, call);
    group->unfetched = group->sequence;
}

static inline void line_publish(struct native_group *group) {
    own_line(group)->fingerprint = group->word; /* not before: who polls fetches the line back */
    /* Release: partner is wait_for in lines_wait. */
    atomic_store_explicit(&own_line(group)->sequence, group->sequence, memory_order_release);
    ring_members(group);
}

/* A member's line names another call. */
struct native_result shm_mismatch(const struct native_group *group, const struct native_call *call,
                                  int peer, const struct shm_group_line *line);

static inline bool line_differs(const struct native_group *group,
                                const struct shm_group_line *line) {
    uint64_t word = line->fingerprint;
    return __builtin_expect(word != group->word && word && group->word, 0);
}

/* Waits for the call's number in all other lines and compares fingerprints. */
static inline struct native_result
lines_wait(struct native_group *group, const struct native_call *call, struct native_wait *wait) {
    struct native_result result = {.outcome = NATIVE_DONE};
    for (; group->peer < group->n; group->peer++) {
        int peer = group->peer;
        if (peer == group->self)
            continue;
        const struct shm_group_line *line = line_of(group, peer);
        result.outcome = wait_for(group, peer, &line->sequence, group->sequence, wait);
        if (__builtin_expect(result.outcome != NATIVE_DONE, 0)) {
            result.peer = peer;
            return result;
        }
        if (line_differs(group, line))
            return shm_mismatch(group, call, peer, line);
    }
    return result;
}

/* -- payloads -------------------------------------------------------------------------------- */

/* To where the other members read. */
static inline void shm_hand_over(const struct native_group *group, uint8_t *dst, const uint8_t *src,
                                 size_t bytes) {
    reduce_hand_over(group->isa, group->near, dst, src, bytes);
}

/* -- buffers that are read in place ------------------------------------------------------------ */

/* Names in the own line, which is not published yet, which of the call's buffers others read in
 * place: group->sent and group->received. */
static inline void buffers_name(const struct native_group *group, struct shm_group_line *line) {
    struct shm_line_buffers buffers = {group->sent, group->received};
    memcpy(line->payload, &buffers, sizeof buffers);
}

/* Whether a buffer of that size that a line names lies in its member's heap; 0 names none. */
static inline bool is_inside(const struct shm_member *member, uint64_t place, size_t bytes) {
    return place == 0 ||
           (place - 1 < member->heap_bytes && bytes <= member->heap_bytes - (place - 1));
}

/* Takes from a member's line where its buffers are, NULL where they are not read in place. False:
 * the line names what is none. */
static inline bool buffers_take(const struct native_group *group, struct shm_member *member,
                                const struct shm_group_line *line, size_t send_bytes,
                                size_t recv_bytes) {
    struct shm_line_buffers buffers;
    memcpy(&buffers, line->payload, sizeof buffers);
    if (((buffers.send || buffers.recv) && !(group->forms & SHM_FORM_MAPPED)) ||
        !is_inside(member, buffers.send, send_bytes) ||
        !is_inside(member, buffers.recv, recv_bytes))
        return false;
    member->send = buffers.send ? member->heap + (buffers.send - 1) : NULL;
    member->recv = buffers.recv ? member->heap + (buffers.recv - 1) : NULL;
    return true;
}

#endif
