/* The side that waits sleeps at once or after a short spin of changing length, so that its arming
 * meets the publication at every distance. */
#include "ping_pong.h"
#include "base/clock.h"
#include "base/cpu.h"

/* A wake-up that takes this long counts as lost; far above what a loaded machine needs. */
#define LOST_MS 1500

static bool arrived(const struct ping_pong_side *peer, uint64_t wanted) {
    /* Partner: the release store in ping_pong_run. */
    return atomic_load_explicit(&peer->published, memory_order_acquire) >= wanted;
}

static bool stopped(struct ping_pong *shared) {
    return atomic_load_explicit(&shared->stop, memory_order_acquire) != 0;
}

static void await(struct ping_pong *shared, const struct ping_pong_side *peer, uint64_t wanted,
                  const struct doorbell *bell, struct doorbell_sleeper *sleeper,
                  struct ping_pong_result *result) {
    for (size_t i = 0; i < 64; i++)
        (void)atomic_load_explicit(&peer->cold[i].word, memory_order_relaxed);
    for (uint64_t spin = wanted * 7 % 64; spin > 0 && !arrived(peer, wanted); spin--)
        cpu_relax();
    while (!arrived(peer, wanted) && !stopped(shared)) {
        doorbell_arm(bell);
        if (!arrived(peer, wanted) && !stopped(shared)) {
            int64_t deadline = clock_deadline(LOST_MS);
            doorbell_sleep(sleeper, deadline);
            result->sleeps++;
            if (clock_passed(deadline) && arrived(peer, wanted))
                result->lost++;
        }
        doorbell_disarm(bell);
    }
}

struct ping_pong_result ping_pong_run(struct ping_pong *shared, int side,
                                      const struct doorbell *bell, int peer_fd, int64_t until_ns) {
    struct ping_pong_side *mine = &shared->sides[side], *peer = &shared->sides[1 - side];
    struct ping_pong_result result = {0};
    struct doorbell_sleeper *sleeper = NULL;
    result.status = doorbell_sleeper_create(bell, &sleeper);
    if (result.status != ROTA_OK)
        return result;
    for (uint64_t round = 1; !clock_passed(until_ns) && !stopped(shared); round++) {
        if (side == 1)
            await(shared, peer, round, bell, sleeper, &result);
        for (size_t i = 0; i < round % 64; i++)
            atomic_store_explicit(&mine->cold[i].word, round, memory_order_relaxed);
        atomic_store_explicit(&mine->published, round, memory_order_release);
        doorbell_ring(&peer->line, peer_fd);
        if (side == 0)
            await(shared, peer, round, bell, sleeper, &result);
        result.rounds = round;
    }
    atomic_store_explicit(&shared->stop, 1, memory_order_release);
    doorbell_write(peer_fd);
    doorbell_sleeper_destroy(sleeper);
    return result;
}
