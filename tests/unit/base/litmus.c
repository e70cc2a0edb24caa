/* Each round begins when both sides have said that they are there; the side that arms then waits a
 * little, and the publisher's store is held up a little, by lengths that change from round to
 * round. */
#include "litmus.h"
#include "base/clock.h"
#include "base/cpu.h"

#include <sched.h>

/* Spins before the processor is given away: the sides meet only while both run. */
#define SPINS 100000
#define DELAYS 512

static bool wait_for(struct litmus *shared, _Atomic uint64_t *word, uint64_t value,
                     int64_t deadline_ns) {
    for (int spins = 0; atomic_load_explicit(word, memory_order_acquire) < value; spins++) {
        if (spins < SPINS) {
            cpu_relax();
            continue;
        }
        if (atomic_load_explicit(&shared->stop, memory_order_relaxed) || clock_passed(deadline_ns))
            return false;
        sched_yield();
        spins = 0;
    }
    return true;
}

/* A number below `limit` that jumps about from round to round, for each `use` in its own way. */
static uint64_t scatter(uint64_t round, uint64_t use, uint64_t limit) {
    return ((round * 4 + use) * UINT64_C(0x9e3779b97f4a7c15) >> 32) % limit;
}

static void touch_cold(struct litmus *shared, uint64_t round, uint64_t count) {
    for (size_t i = 0; i < count; i++)
        atomic_store_explicit(&shared->cold[i].word, round, memory_order_relaxed);
}

void litmus_publish(struct litmus *shared, int64_t deadline_ns) {
    for (uint64_t round = 1;; round++) {
        atomic_store_explicit(&shared->publishing.word, round, memory_order_release);
        if (!wait_for(shared, &shared->arming.word, round, deadline_ns))
            return;
        touch_cold(shared, round, scatter(round, 0, LITMUS_COLD + 1));
        atomic_store_explicit(&shared->data.word, round, memory_order_release);
        bool ring = doorbell_must_ring(&shared->line);
        atomic_store_explicit(&shared->rang.word, 2 * round + ring, memory_order_release);
    }
}

struct litmus_result litmus_arm(struct litmus *shared, const struct doorbell *bell,
                                int64_t until_ns) {
    struct litmus_result result = {0};
    int64_t patience = until_ns + INT64_C(10000000000);
    for (uint64_t round = 1; !clock_passed(until_ns); round++) {
        touch_cold(shared, round, LITMUS_COLD);
        if (!wait_for(shared, &shared->publishing.word, round, patience))
            break;
        atomic_store_explicit(&shared->arming.word, round, memory_order_release);
        for (volatile uint64_t delay = scatter(round, 1, DELAYS); delay > 0; delay = delay - 1)
            ;
        doorbell_arm(bell);
        bool late = atomic_load_explicit(&shared->data.word, memory_order_acquire) < round;
        if (!wait_for(shared, &shared->rang.word, 2 * round, patience))
            break;
        bool rang = atomic_load_explicit(&shared->rang.word, memory_order_acquire) & 1;
        doorbell_disarm(bell);
        result.rounds = round;
        result.met += late && rang;
        result.lost += late && !rang;
    }
    atomic_store_explicit(&shared->stop, 1, memory_order_relaxed);
    return result;
}
