/* The slow ends of waiting and of comparing lines. */
#include "transports/shm/lines.h"

#include "base/clock.h"

struct awaited {
    const _Atomic uint64_t *word;
    uint64_t value;
    const _Atomic uint32_t *closed;
};

static bool awaited_ready(const void *arg) {
    const struct awaited *awaited = arg;
    return atomic_load_explicit(awaited->word, memory_order_acquire) >= awaited->value ||
           atomic_load_explicit(awaited->closed, memory_order_acquire);
}

enum native_outcome shm_wait_slowly(struct native_group *group, int peer,
                                    const _Atomic uint64_t *word, uint64_t value,
                                    struct native_wait *wait) {
    struct awaited awaited = {word, value, &group->members[peer].entry->closed};
    wait->waiting_for = peer;
    for (;;) {
        /* Closed is looked at first: what the member published before it closed still counts.
         * Acquire: partner is the release store in group_close. */
        bool closed = atomic_load_explicit(awaited.closed, memory_order_acquire);
        if (atomic_load_explicit(word, memory_order_acquire) >= value)
            return NATIVE_DONE;
        if (closed)
            return NATIVE_CLOSED;
        if (!wait->pause(wait, awaited_ready, &awaited))
            return NATIVE_PAUSED;
    }
}

struct native_result shm_mismatch(const struct native_group *group, const struct native_call *call,
                                  int peer, const struct shm_group_line *line) {
    return (struct native_result){.outcome = NATIVE_MISMATCH,
                                  .peer = peer,
                                  .peer_fingerprint =
                                      line->fingerprint - (group->word - call->fingerprint)};
}

/* To take a line over takes 5 to 20 ns from the other thread of a core, 40 to 75 from a core of the
 * same third-level cache, 180 and more from another. */
#define NEAR_NS 30
#define FAR_NS 110

/* The reading of the clock, which takes about 20 ns, is taken off. */
static int64_t take_over_ns(_Atomic uint64_t *word) {
    int64_t began = clock_now_ns();
    /* Relaxed, and the value stays: only the line is wanted. */
    (void)atomic_fetch_add_explicit(word, 0, memory_order_relaxed);
    int64_t between = clock_now_ns();
    return 2 * between - began - clock_now_ns();
}

bool shm_line_is_near(_Atomic uint64_t *word) {
    return take_over_ns(word) < NEAR_NS;
}

void shm_look_near(struct native_group *group) {
    int64_t took = take_over_ns(&group->area->line[(group->sequence + 1) & 1].sequence);
    group->near = took < NEAR_NS;
    group->far = took >= FAR_NS;
}
