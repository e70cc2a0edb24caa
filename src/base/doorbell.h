/* Doorbells: how a rank that sleeps learns that something came.
 *
 * Each rank has one line, written by itself alone, in memory that local peers may read: `armed`
 * counts its sleepers. A publisher stores its data, then looks at `armed` and, when it is not 0,
 * writes the rank's eventfd. A sleeper raises `armed`, looks once more for work, then sleeps in
 * epoll. No wake-up is lost when the publisher's load of `armed` cannot pass its store of the
 * data; that full fence is paid by the sleeper (membarrier, which fences all registered
 * processes) or, where membarrier is refused, by every publisher (`publisher_fences`).
 *
 * A ring wakes all sleepers: each sleeps in an epoll set of its own that watches the eventfd
 * edge-triggered, and nobody ever reads the eventfd, so no sleeper can eat another's edge.
 *
 * `interrupt` counts events that must end any wait (abort, verdict, hand-over of the progress
 * domain); every spin loop reads it. */
#ifndef BASE_DOORBELL_H
#define BASE_DOORBELL_H

#include <rota/status.h>
#include <stdatomic.h>
#include <stdbool.h>

struct doorbell_line {
    _Atomic uint32_t armed;
    _Atomic uint32_t interrupt;
    uint32_t publisher_fences; /* fixed before the line is shared */
    uint8_t unused[116];
};
_Static_assert(sizeof(struct doorbell_line) == 128, "one doorbell line is two cache lines");

struct doorbell {
    struct doorbell_line *line;
    int event_fd;
};

/* Makes the eventfd and prepares a zeroed 128-byte-aligned line in memory of the caller's.
 * Errors: ROTA_ERR_SYSTEM. */
rota_status doorbell_open(struct doorbell *bell, struct doorbell_line *line);
void doorbell_close(struct doorbell *bell);

/* Not 0 when this process could not register with membarrier: its publishers fence themselves. */
extern _Atomic uint32_t doorbell_self_fences;

/* Publisher's side, after the store that publishes (a release store). `line` may be in a read-only
 * mapping of the peer's memory. Any thread, async-signal-safe. */
static inline bool doorbell_must_ring(const struct doorbell_line *line) {
    if (line->publisher_fences | atomic_load_explicit(&doorbell_self_fences, memory_order_relaxed))
        atomic_thread_fence(memory_order_seq_cst); /* partner: doorbell_arm */
    else
        atomic_signal_fence(memory_order_seq_cst);
    return atomic_load_explicit(&line->armed, memory_order_relaxed) != 0;
}
void doorbell_write(int event_fd);
static inline void doorbell_ring(const struct doorbell_line *line, int event_fd) {
    if (__builtin_expect(doorbell_must_ring(line), 0))
        doorbell_write(event_fd);
}

/* Ends any wait of this rank: raises `interrupt` and writes the eventfd. Any thread. */
void doorbell_interrupt(const struct doorbell *bell);
static inline uint32_t doorbell_interrupts(const struct doorbell_line *line) {
    return atomic_load_explicit(&line->interrupt, memory_order_acquire);
}

/* Sleeper's side. A sleeper is an epoll set; get one, arm, look for work, sleep or not, disarm,
 * put it back. */
struct doorbell_sleeper;
rota_status doorbell_sleeper_create(const struct doorbell *bell, struct doorbell_sleeper **sleeper);
void doorbell_sleeper_destroy(struct doorbell_sleeper *sleeper);
/* Watches another descriptor too (level-triggered, EPOLLIN). */
rota_status doorbell_sleeper_watch(struct doorbell_sleeper *sleeper, int fd);
/* For sleeping on several sleepers at once: a descriptor that is readable when one would wake, and
 * what makes it unreadable again. */
int doorbell_sleeper_descriptor(const struct doorbell_sleeper *sleeper);
void doorbell_sleeper_drain(struct doorbell_sleeper *sleeper);
/* Raises `armed` with the full fence. After it the caller must look for work once more. */
void doorbell_arm(const struct doorbell *bell);
void doorbell_disarm(const struct doorbell *bell);
/* When it returns, every thread of every process that has opened a doorbell has passed a full
 * fence since it was called (where membarrier is refused: this thread alone). */
void doorbell_fence(const struct doorbell *bell);
/* Sleeps until the bell rings, a watched descriptor is readable, or the deadline passed. Spurious
 * returns are allowed; EINTR is handled inside. */
void doorbell_sleep(struct doorbell_sleeper *sleeper, int64_t deadline_ns);

#endif
