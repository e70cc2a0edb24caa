/* Doorbells; the idea stands in doorbell.h.
 *
 * Design note. A wake-up is lost only if the publisher misses `armed` and the sleeper misses the
 * data: publisher stores data, loads armed; sleeper stores armed, loads data. This is Dekker's
 * pattern and needs a full fence on both sides. The sleeper goes to the kernel anyway, so it pays
 * for both: membarrier(GLOBAL_EXPEDITED) makes every running thread of every registered process
 * pass a full fence. A publisher's pair (store, load) is then as a whole before or after that
 * fence or around it: before, the sleeper sees the data; after, the publisher sees `armed`;
 * around, both. Against the compiler a signal fence suffices.
 * Who cannot take part says so: a sleeper without membarrier asks all its publishers to fence
 * (`publisher_fences`), a publisher whose registration was refused fences for itself
 * (`doorbell_self_fences`). Should membarrier be taken away later (a filter installed by the
 * program), sleeps become short, which costs time and loses nothing.
 * Cost: publisher two loads from lines that nobody writes meanwhile; sleeper one membarrier (a few
 * microseconds) and one epoll_wait. */
#include "base/doorbell.h"
#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Longest sleep once membarrier has failed at run time. */
#define UNFENCED_SLEEP_MS 1

struct doorbell_sleeper {
    int epoll_fd;
};

_Atomic uint32_t doorbell_self_fences = 0;
static _Atomic bool sleeps_unfenced = false;

static int membarrier(int command) {
    return (int)syscall(SYS_membarrier, command, 0, 0);
}

rota_status doorbell_open(struct doorbell *bell, struct doorbell_line *line) {
    int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (fd < 0)
        return error_raise_system(errno, "cannot make the eventfd of a doorbell");
    int saved_errno = errno;
    bool registered = membarrier(MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED) == 0;
    errno = saved_errno;
    if (!registered)
        atomic_store_explicit(&doorbell_self_fences, 1, memory_order_relaxed);
    line->publisher_fences = registered ? 0 : 1;
    bell->line = line;
    bell->event_fd = fd;
    return ROTA_OK;
}

void doorbell_close(struct doorbell *bell) {
    if (bell->event_fd >= 0)
        close(bell->event_fd);
    bell->event_fd = -1;
    bell->line = NULL;
}

void doorbell_write(int event_fd) {
    int saved_errno = errno;
    const uint64_t one = 1;
    ssize_t written;
    /* EAGAIN would need 2^64 rings; a descriptor that is gone has no sleeper either. */
    do {
        written = write(event_fd, &one, sizeof(one));
    } while (written < 0 && errno == EINTR);
    errno = saved_errno;
}

void doorbell_interrupt(const struct doorbell *bell) {
    /* Partner: doorbell_interrupts. The write is unconditional: it is kept as an edge for sleepers
     * that are about to sleep. */
    atomic_fetch_add_explicit(&bell->line->interrupt, 1, memory_order_release);
    doorbell_write(bell->event_fd);
}

rota_status doorbell_sleeper_create(const struct doorbell *bell,
                                    struct doorbell_sleeper **sleeper) {
    struct doorbell_sleeper *made = malloc(sizeof(*made));
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a doorbell's sleeper");
    made->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (made->epoll_fd < 0) {
        int reason = errno;
        free(made);
        return error_raise_system(reason, "cannot make the epoll set of a sleeper");
    }
    struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.fd = bell->event_fd};
    if (epoll_ctl(made->epoll_fd, EPOLL_CTL_ADD, bell->event_fd, &event) != 0) {
        int reason = errno;
        doorbell_sleeper_destroy(made);
        return error_raise_system(reason, "cannot watch the eventfd of a doorbell");
    }
    *sleeper = made;
    return ROTA_OK;
}

void doorbell_sleeper_destroy(struct doorbell_sleeper *sleeper) {
    if (sleeper == NULL)
        return;
    close(sleeper->epoll_fd);
    free(sleeper);
}

rota_status doorbell_sleeper_watch(struct doorbell_sleeper *sleeper, int fd) {
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    if (epoll_ctl(sleeper->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0 && errno != EEXIST)
        return error_raise_system(errno, "cannot watch descriptor %d", fd);
    return ROTA_OK;
}

int doorbell_sleeper_descriptor(const struct doorbell_sleeper *sleeper) {
    return sleeper->epoll_fd;
}

void doorbell_sleeper_drain(struct doorbell_sleeper *sleeper) {
    struct epoll_event events[8];
    int saved_errno = errno;
    while (epoll_wait(sleeper->epoll_fd, events, 8, 0) < 0 && errno == EINTR)
        ;
    errno = saved_errno;
}

void doorbell_fence(const struct doorbell *bell) {
    /* Partner: doorbell_must_ring, in this and in every other process. */
    atomic_thread_fence(memory_order_seq_cst);
    if (bell->line->publisher_fences)
        return;
    int saved_errno = errno;
    if (membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED) != 0)
        atomic_store_explicit(&sleeps_unfenced, true, memory_order_relaxed);
    errno = saved_errno;
}

void doorbell_arm(const struct doorbell *bell) {
    atomic_fetch_add_explicit(&bell->line->armed, 1, memory_order_relaxed);
    doorbell_fence(bell);
}

void doorbell_disarm(const struct doorbell *bell) {
    atomic_fetch_sub_explicit(&bell->line->armed, 1, memory_order_relaxed);
}

void doorbell_sleep(struct doorbell_sleeper *sleeper, int64_t deadline_ns) {
    int saved_errno = errno;
    struct epoll_event events[8];
    int count;
    do {
        int left_ms = clock_left_ms(deadline_ns);
        if (atomic_load_explicit(&sleeps_unfenced, memory_order_relaxed) &&
            left_ms > UNFENCED_SLEEP_MS)
            left_ms = UNFENCED_SLEEP_MS;
        count = epoll_wait(sleeper->epoll_fd, events, 8, left_ms);
    } while (count < 0 && errno == EINTR);
    errno = saved_errno;
}
