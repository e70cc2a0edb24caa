/* Doorbells between processes, and what sleeping promises. */
#include "base/doorbell.h"
#include "base/clock.h"
#include "ping_pong.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define SECOND INT64_C(1000000000)

static struct doorbell_line own_line __attribute__((aligned(128)));

static struct doorbell open_bell(void) {
    struct doorbell bell;
    cr_assert_eq(doorbell_open(&bell, &own_line), ROTA_OK);
    cr_assert(fcntl(bell.event_fd, F_GETFD) & FD_CLOEXEC);
    cr_assert(fcntl(bell.event_fd, F_GETFL) & O_NONBLOCK);
    return bell;
}

static struct doorbell_sleeper *new_sleeper(const struct doorbell *bell) {
    struct doorbell_sleeper *sleeper = NULL;
    cr_assert_eq(doorbell_sleeper_create(bell, &sleeper), ROTA_OK);
    return sleeper;
}

/* Nanoseconds that a sleep of at most `ms` took. */
static int64_t slept(struct doorbell_sleeper *sleeper, int64_t ms) {
    int64_t before = clock_now_ns();
    doorbell_sleep(sleeper, clock_deadline(ms));
    return clock_now_ns() - before;
}

/* Both sides in processes of their own, the line and counters in shared memory. */
static void two_processes(bool publishers_fence) {
    struct ping_pong *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ping_pong_result *results =
        mmap(NULL, 2 * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED && results != MAP_FAILED);
    struct doorbell bells[2];
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(doorbell_open(&bells[i], &shared->sides[i].line), ROTA_OK);
        if (publishers_fence)
            shared->sides[i].line.publisher_fences = 1;
    }
    int64_t until = clock_deadline(1000);
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        struct doorbell_line scratch __attribute__((aligned(128))) = {0};
        struct doorbell registering;
        if (doorbell_open(&registering, &scratch) == ROTA_OK)
            results[1] = ping_pong_run(shared, 1, &bells[1], bells[0].event_fd, until);
        _exit(0);
    }
    results[0] = ping_pong_run(shared, 0, &bells[0], bells[1].event_fd, until);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(results[i].status, ROTA_OK);
        cr_assert_eq(results[i].lost, 0, "side %d lost %lu wake-ups in %lu rounds", i,
                     (unsigned long)results[i].lost, (unsigned long)results[i].rounds);
        cr_assert_gt(results[i].rounds, 100);
        cr_assert_eq(atomic_load(&shared->sides[i].line.armed), 0);
        doorbell_close(&bells[i]);
        cr_assert_eq(bells[i].event_fd, -1);
    }
    cr_assert_gt(results[0].sleeps + results[1].sleeps, 100, "nobody ever slept");
    munmap(shared, sizeof(*shared));
    munmap(results, 2 * sizeof(*results));
}

Test(doorbell, no_wake_up_is_lost_between_processes, .timeout = 60) {
    two_processes(false);
}

Test(doorbell, no_wake_up_is_lost_without_membarrier, .timeout = 60) {
    two_processes(true);
}

Test(doorbell, nobody_rings_while_nobody_is_armed) {
    struct doorbell bell = open_bell();
    cr_assert_not(doorbell_must_ring(bell.line));
    doorbell_ring(bell.line, bell.event_fd);
    uint64_t count;
    cr_assert_lt(read(bell.event_fd, &count, sizeof(count)), 0, "rung in vain");
    doorbell_arm(&bell);
    doorbell_arm(&bell);
    cr_assert(doorbell_must_ring(bell.line));
    doorbell_disarm(&bell);
    cr_assert(doorbell_must_ring(bell.line), "one sleeper is left");
    doorbell_disarm(&bell);
    cr_assert_not(doorbell_must_ring(bell.line));
    doorbell_close(&bell);
}

Test(doorbell, sleep_ends_at_its_deadline) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *sleeper = new_sleeper(&bell);
    int64_t took = slept(sleeper, 100);
    cr_assert(took >= SECOND / 10 && took < 10 * SECOND);
    cr_assert_lt(slept(sleeper, 0), SECOND);
    cr_assert_lt(slept(sleeper, -5), SECOND);
    doorbell_sleeper_destroy(sleeper);
    doorbell_sleeper_destroy(NULL);
    doorbell_close(&bell);
}

Test(doorbell, a_ring_before_the_sleep_is_kept, .timeout = 60) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *one = new_sleeper(&bell), *two = new_sleeper(&bell);
    doorbell_arm(&bell);
    doorbell_ring(bell.line, bell.event_fd);
    cr_assert_lt(slept(one, 20000), 10 * SECOND);
    cr_assert_lt(slept(two, 20000), 10 * SECOND, "one sleeper ate the other's ring");
    /* The ring is used up: an eventfd that is never read must not look rung for ever. */
    cr_assert_geq(slept(one, 100), SECOND / 10);
    doorbell_write(bell.event_fd);
    cr_assert_lt(slept(one, 20000), 10 * SECOND);
    doorbell_sleeper_destroy(one);
    doorbell_sleeper_destroy(two);
    doorbell_close(&bell);
}

Test(doorbell, interrupt_wakes_the_unarmed_too, .timeout = 60) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *sleeper = new_sleeper(&bell);
    cr_assert_eq(doorbell_interrupts(bell.line), 0);
    doorbell_interrupt(&bell);
    cr_assert_eq(doorbell_interrupts(bell.line), 1);
    cr_assert_lt(slept(sleeper, 20000), 10 * SECOND);
    doorbell_sleeper_destroy(sleeper);
    doorbell_close(&bell);
}

Test(doorbell, watched_descriptors_wake_as_long_as_they_are_readable, .timeout = 60) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *sleeper = new_sleeper(&bell);
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(doorbell_sleeper_watch(sleeper, ends[0]), ROTA_OK);
    cr_assert_eq(doorbell_sleeper_watch(sleeper, ends[0]), ROTA_OK, "watching twice is harmless");
    cr_assert_geq(slept(sleeper, 100), SECOND / 10);
    cr_assert_eq(write(ends[1], "x", 1), 1);
    cr_assert_lt(slept(sleeper, 20000), 10 * SECOND);
    cr_assert_lt(slept(sleeper, 20000), 10 * SECOND);
    cr_assert_eq(doorbell_sleeper_watch(sleeper, -1), ROTA_ERR_SYSTEM);
    doorbell_sleeper_destroy(sleeper);
    doorbell_close(&bell);
}

static volatile sig_atomic_t alarms;

static void count_alarm(int signal_number) {
    (void)signal_number;
    alarms = alarms + 1;
}

Test(doorbell, signals_neither_end_nor_stretch_a_sleep, .timeout = 60) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *sleeper = new_sleeper(&bell);
    struct sigaction action = {.sa_handler = count_alarm}; /* without SA_RESTART */
    cr_assert_eq(sigaction(SIGALRM, &action, NULL), 0);
    struct itimerval every = {{0, 5000}, {0, 5000}};
    cr_assert_eq(setitimer(ITIMER_REAL, &every, NULL), 0);
    int64_t took = slept(sleeper, 300);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    cr_assert(took >= 3 * SECOND / 10 && took < 10 * SECOND);
    cr_assert_gt(alarms, 1);
    doorbell_sleeper_destroy(sleeper);
    doorbell_close(&bell);
}

Test(doorbell, a_publisher_needs_only_a_read_only_line) {
    struct ping_pong_side *side =
        mmap(NULL, sizeof(*side), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(side != MAP_FAILED);
    struct doorbell bell;
    cr_assert_eq(doorbell_open(&bell, &side->line), ROTA_OK);
    doorbell_arm(&bell);
    cr_assert_eq(mprotect(side, sizeof(*side), PROT_READ), 0);
    doorbell_ring(&side->line, bell.event_fd);
    uint64_t count = 0;
    cr_assert_eq(read(bell.event_fd, &count, sizeof(count)), sizeof(count));
    cr_assert_eq(count, 1);
    doorbell_close(&bell);
    munmap(side, sizeof(*side));
}
