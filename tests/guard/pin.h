/* Threads of the guards: each on a core of its own, where there are enough, since the scheduler may
 * put both on one, above all when other programs run. */
#ifndef TESTS_GUARD_PIN_H
#define TESTS_GUARD_PIN_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

static inline void guard_pin(int rank) {
    cpu_set_t allowed, mine;
    CPU_ZERO(&allowed);
    CPU_ZERO(&mine);
    sched_getaffinity(0, sizeof(allowed), &allowed);
    int seen = 0;
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &allowed) && seen++ == rank)
            CPU_SET(cpu, &mine);
    if (CPU_COUNT(&mine) == 1)
        pthread_setaffinity_np(pthread_self(), sizeof(mine), &mine);
}

/* Runs both ranks, the first in this thread. False: there is no thread for the second. */
static inline bool guard_run_both(void *(*run)(void *rank), void *first, void *second) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, second) != 0)
        return false;
    run(first);
    pthread_join(thread, NULL);
    return true;
}

#endif
