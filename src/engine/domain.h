/* The progress domain: who may touch a rank's transports and operations, and how threads wait.
 *
 * There is one domain per rank of a job (a process has one; ranks that are threads have one each).
 * A thread enters the domain, moves what can move, and leaves. A blocked thread alternates between
 * trying to enter and pausing; whoever is inside progresses for all. Nobody sleeps inside: a
 * sleeper arms the rank's doorbell, looks once more, and sleeps on an epoll set of its own that
 * watches the doorbell and the transports' descriptors, so any event wakes every sleeper, and an
 * operation that another thread completes rings the bell too. */
#ifndef ENGINE_DOMAIN_H
#define ENGINE_DOMAIN_H

#include "base/clock.h"
#include "base/doorbell.h"
#include <pthread.h>

struct domain {
    pthread_mutex_t lock;
    _Atomic int wanted;  /* threads that wait for the lock: whoever polls inside lets them in */
    _Atomic int waiters; /* threads blocked on a request: they progress, so nobody else need */
    struct doorbell bell;
    int watched[8]; /* descriptors of transports that sleepers watch */
    int nwatched;
    uint32_t spin_turns, yield_turns; /* how a wait begins: see domain_init */
    int place;                        /* among the ranks of this host; -1: cores are enough */
    _Atomic uint32_t yields;          /* of waits, when cores are not enough */
    _Atomic int64_t settle_ns;        /* when to look next whether the rank is where it should be */
    struct sleeper_pool *sleepers;
    _Atomic uint64_t sleeps;
    /* Moves what can move; called inside. Returns the number of events. */
    int (*progress)(void *context);
    /* Whether something came since the last progress; called inside, with the bell armed. */
    bool (*arm)(void *context);
    void (*disarm)(void *context);
    void *context;
};

/* `place`: number of this rank among those of its host when they are more than its cores, so that
 * spinning takes the core from the peer that is waited for; else -1. */
rota_status domain_init(struct domain *domain, const struct doorbell *bell, int place);
void domain_destroy(struct domain *domain);
/* In the child of a fork: whoever was inside or asleep is not there. */
void domain_after_fork(struct domain *domain);

bool domain_try_enter(struct domain *domain);
void domain_enter(struct domain *domain);
void domain_leave(struct domain *domain);

/* State of one wait. Zero-initialise. */
struct domain_wait {
    uint32_t turns;
    uint32_t quiet;      /* turns at which progress last found something */
    uint32_t interrupts; /* seen at the end of the last pause; the first one never sleeps */
};

/* One turn of a wait: polls once, spins, yields or sleeps, by how long nothing has happened.
 * `ready` says whether the wait is over; it is called at any time by this thread. Called outside
 * the domain. Returns when it is worth looking again. */
void domain_pause(struct domain *domain, struct domain_wait *wait, bool (*ready)(const void *arg),
                  const void *arg, int64_t deadline_ns);

/* Whether the next turn may sleep. */
bool domain_wait_sleeps(const struct domain *domain, const struct domain_wait *wait);

/* Wakes every sleeper of this rank, if there is one. */
void domain_wake(struct domain *domain);

#endif
