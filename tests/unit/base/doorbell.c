/* Doorbells between processes, and what sleeping promises. */
#include "base/doorbell.h"
#include "base/clock.h"
#include "litmus.h"
#include "ping_pong.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
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

/* From here on the kernel refuses membarrier to this process, as a container's filter may. */
static bool refuse_membarrier(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/* Which of the two processes are refused membarrier. */
enum refused { NOBODY, SIDE_0, SIDE_1, BOTH_SIDES };

/* One process: its bell is opened in it, as each rank does; the peer's is known by its eventfd. */
static struct ping_pong_result run_process(struct ping_pong *shared, int side, int event_fd,
                                           int peer_fd, bool refused) {
    struct ping_pong_result result = {.status = ROTA_ERR_INTERNAL};
    struct doorbell bell;
    if (refused && !refuse_membarrier())
        return result;
    if (doorbell_open(&bell, &shared->sides[side].line) != ROTA_OK ||
        bell.line->publisher_fences != refused)
        return result;
    /* The peer holds an eventfd that was made before the fork: let the bell ring that one. */
    if (dup3(event_fd, bell.event_fd, O_CLOEXEC) != bell.event_fd)
        return result;
    /* publisher_fences must be fixed before the peer looks at the line. */
    atomic_fetch_add(&shared->ready, 1);
    for (int64_t deadline = clock_deadline(10000); atomic_load(&shared->ready) < 2; sched_yield())
        if (clock_passed(deadline))
            return result;
    result = ping_pong_run(shared, side, &bell, peer_fd, clock_deadline(1000));
    doorbell_close(&bell);
    return result;
}

/* Both sides in processes of their own, the line and counters in shared memory. */
static void two_processes(enum refused refused) {
    struct ping_pong *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct ping_pong_result *results =
        mmap(NULL, 2 * sizeof(*results), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED && results != MAP_FAILED);
    int fds[2];
    for (int i = 0; i < 2; i++) {
        fds[i] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        cr_assert_geq(fds[i], 0);
    }
    pid_t children[2];
    for (int i = 0; i < 2; i++) {
        children[i] = fork();
        cr_assert_geq(children[i], 0);
        if (children[i] == 0) {
            bool one = refused == BOTH_SIDES || (refused == SIDE_0 && i == 0) ||
                       (refused == SIDE_1 && i == 1);
            results[i] = run_process(shared, i, fds[i], fds[1 - i], one);
            _exit(0);
        }
    }
    for (int i = 0; i < 2; i++) {
        int status;
        cr_assert_eq(waitpid(children[i], &status, 0), children[i]);
        cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        close(fds[i]);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(results[i].status, ROTA_OK);
        cr_assert_eq(results[i].lost, 0, "side %d lost %lu wake-ups in %lu rounds", i,
                     (unsigned long)results[i].lost, (unsigned long)results[i].rounds);
        cr_assert_gt(results[i].rounds, 100);
        cr_assert_eq(atomic_load(&shared->sides[i].line.armed), 0);
    }
    cr_assert_gt(results[0].sleeps + results[1].sleeps, 100, "nobody ever slept");
    munmap(shared, sizeof(*shared));
    munmap(results, 2 * sizeof(*results));
}

Test(doorbell, processes_wake_each_other, .timeout = 60) {
    two_processes(NOBODY);
}

Test(doorbell, processes_wake_each_other_without_membarrier, .timeout = 60) {
    two_processes(BOTH_SIDES);
}

/* Binds the calling thread to the `position`-th processor that it may use. */
static bool bind_to(int position) {
    cpu_set_t all, one;
    CPU_ZERO(&one);
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return false;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && position-- == 0)
            CPU_SET(cpu, &one);
    return CPU_COUNT(&one) == 1 && sched_setaffinity(0, sizeof(one), &one) == 0;
}

/* Side 0 arms, side 1 publishes. */
static void litmus(enum refused refused) {
    struct litmus *shared =
        mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert(shared != MAP_FAILED);
    cpu_set_t all;
    cr_assert_eq(sched_getaffinity(0, sizeof(all), &all), 0);
    if (CPU_COUNT(&all) < 2)
        cr_skip_test("the two sides never run at the same moment on one processor");
    int64_t until = clock_deadline(500);
    /* Before the bell is opened, because a child inherits its parent's registration. */
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        struct doorbell own;
        bool refuse = refused == SIDE_1 || refused == BOTH_SIDES;
        if ((refuse && !refuse_membarrier()) || !bind_to(1) ||
            doorbell_open(&own, &own_line) != ROTA_OK ||
            atomic_load(&doorbell_self_fences) != refuse)
            _exit(1);
        litmus_publish(shared, until + 20 * SECOND);
        _exit(0);
    }
    if (refused == SIDE_0 || refused == BOTH_SIDES)
        cr_assert(refuse_membarrier());
    struct doorbell bell;
    cr_assert_eq(doorbell_open(&bell, &shared->line), ROTA_OK);
    cr_assert(bind_to(0));
    struct litmus_result result = litmus_arm(shared, &bell, until);
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_eq(result.lost, 0, "%lu wake-ups lost in %lu rounds", (unsigned long)result.lost,
                 (unsigned long)result.rounds);
    cr_assert_gt(result.rounds, 100);
    cr_assert_gt(result.met, 0, "in no round did the data come late");
    doorbell_close(&bell);
    munmap(shared, sizeof(*shared));
}

Test(doorbell, no_wake_up_is_lost, .timeout = 60) {
    litmus(NOBODY);
}

Test(doorbell, no_wake_up_is_lost_without_membarrier, .timeout = 60) {
    litmus(BOTH_SIDES);
}

/* A rank in a container that forbids membarrier: its line asks its publishers to fence, and it
 * fences for itself when it publishes to others. */
Test(doorbell, no_wake_up_is_lost_when_the_sleeper_lacks_membarrier, .timeout = 60) {
    litmus(SIDE_0);
}

Test(doorbell, no_wake_up_is_lost_when_the_publisher_lacks_membarrier, .timeout = 60) {
    litmus(SIDE_1);
}

Test(doorbell, membarrier_taken_away_later_shortens_sleeps, .timeout = 60) {
    struct doorbell bell = open_bell();
    struct doorbell_sleeper *sleeper = new_sleeper(&bell);
    cr_assert_eq(bell.line->publisher_fences, 0);
    cr_assert(refuse_membarrier());
    errno = ENOSPC;
    doorbell_arm(&bell);
    cr_assert_eq(errno, ENOSPC);
    cr_assert_lt(slept(sleeper, 20000), 10 * SECOND, "a lost wake-up would last");
    doorbell_disarm(&bell);
    doorbell_sleeper_destroy(sleeper);
    doorbell_close(&bell);
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
