/* Workers on lent cores.
 *
 * Design note. A round is open while its number is odd. A worker that sees an open round says that
 * it is inside, looks again whether the same round is still open, and only then reads what there is
 * to do; the caller closes the round and waits until nobody is inside. Both sides write their own
 * word before they read the other's (sequentially consistent), so either the worker sees that the
 * round is over or the caller sees the worker. Blocks are taken from one counter: a worker that
 * wakes late costs nothing, and the caller never waits for more than blocks under way. */
#include "reduce/team.h"

#include "base/cpu.h"
#include "base/error.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>

/* Looks at the round before a worker sleeps: some 20 us, as much as a wake-up costs. */
#define SPIN_TURNS 2000
/* Blocks per core at most: what is waited for at the end is part of one. Longer blocks keep each
 * core in memory of its own, since it fetches ahead what is another's at the end of each. Measured
 * for 64 MiB on two cores: 80 GB/s in blocks of 64 KiB, 85 to 88 from 512 KiB on. */
#define CORE_BLOCKS 8

struct reduce_team {
    _Alignas(128) _Atomic uint32_t round; /* odd: open */
    _Alignas(128) _Atomic uint32_t inside;
    _Alignas(128) _Atomic size_t next; /* first element that nobody has taken */
    /* The round's work; written while it is closed and nobody is inside. */
    _Alignas(128) size_t total, block;
    reduce_team_fn work;
    const void *arg;
    atomic_flag taken; /* some caller has the team */
    _Atomic int sleepers;
    _Atomic bool stop;
    pthread_mutex_t lock;
    pthread_cond_t opened;
    int nthreads;
    pthread_t threads[REDUCE_TEAM_CORES];
};

/* One turn of waiting for a thread that runs, or should. */
static void pass_turn(int turn) {
    if (turn < SPIN_TURNS)
        cpu_relax();
    else
        sched_yield();
}

static void take_blocks(struct reduce_team *team) {
    size_t total = team->total, block = team->block;
    for (;;) {
        size_t first = atomic_fetch_add_explicit(&team->next, block, memory_order_relaxed);
        if (first >= total)
            return;
        team->work(team->arg, first, total - first < block ? total - first : block);
    }
}

/* Partner of the first load: the opening store in reduce_team_run. */
static uint32_t wait_for_round(struct reduce_team *team) {
    for (int i = 0; i < SPIN_TURNS; i++) {
        uint32_t round = atomic_load_explicit(&team->round, memory_order_acquire);
        if ((round & 1) != 0 || atomic_load_explicit(&team->stop, memory_order_relaxed))
            return round;
        cpu_relax();
    }
    pthread_mutex_lock(&team->lock);
    atomic_fetch_add(&team->sleepers, 1);
    uint32_t round = 0;
    while (((round = atomic_load(&team->round)) & 1) == 0 && !atomic_load(&team->stop))
        pthread_cond_wait(&team->opened, &team->lock);
    atomic_fetch_sub(&team->sleepers, 1);
    pthread_mutex_unlock(&team->lock);
    return round;
}

static void *serve(void *arg) {
    struct reduce_team *team = arg;
    while (!atomic_load_explicit(&team->stop, memory_order_acquire)) {
        uint32_t round = wait_for_round(team);
        atomic_fetch_add(&team->inside, 1);
        bool open = (round & 1) != 0 && atomic_load(&team->round) == round;
        if (open)
            take_blocks(team);
        /* Partner: the caller's loads of `inside`: it then sees what was written. */
        atomic_fetch_sub_explicit(&team->inside, 1, memory_order_release);
        if (!open)
            continue;
        /* Nothing is left of this round: the next one has another number. */
        for (int turn = 0; atomic_load_explicit(&team->round, memory_order_acquire) == round;
             turn++)
            pass_turn(turn);
    }
    return NULL;
}

/* Wakes those who sleep. Partner: wait_for_round, which counts itself before it looks. */
static void wake(struct reduce_team *team) {
    if (atomic_load(&team->sleepers) == 0)
        return;
    pthread_mutex_lock(&team->lock);
    pthread_cond_broadcast(&team->opened);
    pthread_mutex_unlock(&team->lock);
}

void reduce_team_run(struct reduce_team *team, size_t total, size_t block, reduce_team_fn work,
                     const void *arg) {
    if (atomic_flag_test_and_set_explicit(&team->taken, memory_order_acquire)) {
        work(arg, 0, total);
        return;
    }
    size_t most = block * CORE_BLOCKS * (size_t)(team->nthreads + 1);
    team->total = total;
    team->block = total > most ? block * (total / most) : block;
    team->work = work;
    team->arg = arg;
    atomic_store_explicit(&team->next, 0, memory_order_relaxed);
    atomic_fetch_add(&team->round, 1);
    wake(team);
    take_blocks(team);
    atomic_fetch_add(&team->round, 1);
    for (int turn = 0; atomic_load(&team->inside) != 0; turn++)
        pass_turn(turn);
    /* Partner: the next caller. */
    atomic_flag_clear_explicit(&team->taken, memory_order_release);
}

rota_status reduce_team_open(int cores, struct reduce_team **out) {
    *out = NULL;
    if (cores <= 1)
        return ROTA_OK;
    struct reduce_team *team = aligned_alloc(128, sizeof(*team));
    if (team == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %d lent cores", cores);
    *team = (struct reduce_team){.taken = ATOMIC_FLAG_INIT};
    pthread_mutex_init(&team->lock, NULL);
    pthread_cond_init(&team->opened, NULL);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = 0;
    while (team->nthreads < cores - 1 && team->nthreads < REDUCE_TEAM_CORES && failed == 0) {
        failed = pthread_create(&team->threads[team->nthreads], NULL, serve, team);
        if (failed == 0)
            pthread_setname_np(team->threads[team->nthreads++], "rota-worker");
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0) {
        reduce_team_close(team);
        return error_raise_system(failed, "cannot start a thread on a lent core");
    }
    *out = team;
    return ROTA_OK;
}

void reduce_team_close(struct reduce_team *team) {
    if (team == NULL)
        return;
    atomic_store(&team->stop, true);
    wake(team);
    for (int i = 0; i < team->nthreads; i++)
        pthread_join(team->threads[i], NULL);
    pthread_cond_destroy(&team->opened);
    pthread_mutex_destroy(&team->lock);
    free(team);
}
