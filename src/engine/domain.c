/* Progress domain: entering, leaving and the one way of waiting. */
#include "engine/domain.h"

#include "base/cpu.h"
#include "base/error.h"
#include "base/probe.h"
#include <sched.h>
#include <stdlib.h>

/* How often a wait polls before it offers the core to others between polls, and how often it does
 * that before it sleeps. A poll costs 20-50 ns, or 300 ns and more with sockets to read; a sleep
 * and its wake-up cost about 10 us, so polling a few times as long loses little. A yield costs
 * about 0.3 us when nobody wants the core. With more ranks than cores the peer wants it, so it is
 * offered at once. */
enum { SPIN_TURNS = 32, SPIN_TURNS_CROWDED = 1, YIELD_TURNS = 500, YIELD_TURNS_CROWDED = 1000 };

/* Yields between two looks at the clock, and time between two looks at where the rank runs. */
enum { SETTLE_YIELDS = 64 };
#define SETTLE_NS INT64_C(10000000)

struct sleeper_entry {
    struct doorbell_sleeper *sleeper;
    struct sleeper_entry *next;
};

/* Sleepers not in use. */
struct sleeper_pool {
    pthread_mutex_t lock;
    struct sleeper_entry *free;
};

rota_status domain_init(struct domain *domain, const struct doorbell *bell, int place) {
    bool crowded = place >= 0;
    domain->sleepers = calloc(1, sizeof(*domain->sleepers));
    if (domain->sleepers == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a progress domain");
    pthread_mutex_init(&domain->sleepers->lock, NULL);
    pthread_mutex_init(&domain->lock, NULL);
    atomic_init(&domain->wanted, 0);
    atomic_init(&domain->waiters, 0);
    atomic_init(&domain->sleeps, 0);
    atomic_init(&domain->yields, 0);
    atomic_init(&domain->settle_ns, 0);
    domain->place = place;
    domain->bell = *bell;
    domain->spin_turns = crowded ? SPIN_TURNS_CROWDED : SPIN_TURNS;
    domain->yield_turns = crowded ? YIELD_TURNS_CROWDED : YIELD_TURNS;
    return ROTA_OK;
}

void domain_destroy(struct domain *domain) {
    if (domain->sleepers == NULL)
        return;
    while (domain->sleepers->free != NULL) {
        struct sleeper_entry *entry = domain->sleepers->free;
        domain->sleepers->free = entry->next;
        doorbell_sleeper_destroy(entry->sleeper);
        free(entry);
    }
    pthread_mutex_destroy(&domain->sleepers->lock);
    free(domain->sleepers);
    domain->sleepers = NULL;
    pthread_mutex_destroy(&domain->lock);
}

static struct sleeper_entry *sleeper_get(struct domain *domain) {
    struct sleeper_pool *pool = domain->sleepers;
    pthread_mutex_lock(&pool->lock);
    struct sleeper_entry *entry = pool->free;
    if (entry != NULL)
        pool->free = entry->next;
    pthread_mutex_unlock(&pool->lock);
    if (entry != NULL)
        return entry;
    entry = calloc(1, sizeof(*entry));
    if (entry == NULL)
        return NULL;
    if (doorbell_sleeper_create(&domain->bell, &entry->sleeper) != ROTA_OK)
        goto free_entry;
    for (int i = 0; i < domain->nwatched; i++)
        if (doorbell_sleeper_watch(entry->sleeper, domain->watched[i]) != ROTA_OK)
            goto destroy_sleeper;
    return entry;
destroy_sleeper:
    doorbell_sleeper_destroy(entry->sleeper);
free_entry:
    free(entry);
    return NULL;
}

static void sleeper_put(struct domain *domain, struct sleeper_entry *entry) {
    struct sleeper_pool *pool = domain->sleepers;
    pthread_mutex_lock(&pool->lock);
    entry->next = pool->free;
    pool->free = entry;
    pthread_mutex_unlock(&pool->lock);
}

void domain_after_fork(struct domain *domain) {
    pthread_mutex_init(&domain->lock, NULL);
    pthread_mutex_init(&domain->sleepers->lock, NULL);
    domain->sleepers->free = NULL; /* their epoll sets are the parent's, too */
    atomic_store_explicit(&domain->wanted, 0, memory_order_relaxed);
    atomic_store_explicit(&domain->waiters, 0, memory_order_relaxed);
}

bool domain_try_enter(struct domain *domain) {
    return pthread_mutex_trylock(&domain->lock) == 0;
}

void domain_enter(struct domain *domain) {
    if (domain_try_enter(domain))
        return;
    atomic_fetch_add_explicit(&domain->wanted, 1, memory_order_relaxed);
    pthread_mutex_lock(&domain->lock);
    atomic_fetch_sub_explicit(&domain->wanted, 1, memory_order_relaxed);
}

void domain_leave(struct domain *domain) {
    pthread_mutex_unlock(&domain->lock);
}

void domain_wake(struct domain *domain) {
    /* Partner: doorbell_arm in domain_sleep, before it looks at `ready`. */
    doorbell_ring(domain->bell.line, domain->bell.event_fd);
}

/* Arms, looks once more, sleeps. */
static void domain_sleep(struct domain *domain, uint32_t interrupts, bool (*ready)(const void *arg),
                         const void *arg, int64_t deadline_ns) {
    struct sleeper_entry *entry = sleeper_get(domain);
    if (entry == NULL) { /* no descriptor left: wait without one */
        sched_yield();
        return;
    }
    doorbell_arm(&domain->bell);
    bool quiet = false, armed = false;
    if (domain_try_enter(domain)) {
        armed = true;
        quiet = domain->arm(domain->context);
        if (!quiet)
            domain->progress(domain->context);
        domain_leave(domain);
    } else {
        /* Someone is inside and will ring when it completes what we wait for; but it may leave
         * without progressing what comes later, so sleep only briefly. */
        quiet = true;
        int64_t brief = clock_now_ns() + 1000000;
        deadline_ns = brief < deadline_ns ? brief : deadline_ns;
    }
    if (quiet && !ready(arg) && interrupts == doorbell_interrupts(domain->bell.line)) {
        atomic_fetch_add_explicit(&domain->sleeps, 1, memory_order_relaxed);
        PROBE0(sleep);
        doorbell_sleep(entry->sleeper, deadline_ns);
    }
    if (armed && domain_try_enter(domain)) {
        domain->disarm(domain->context);
        domain_leave(domain);
    } /* else whoever is inside progresses, armed or not */
    doorbell_disarm(&domain->bell);
    sleeper_put(domain, entry);
}

/* Polls inside the domain until something happens, somebody wants in, or the turns are used up. */
static bool domain_poll(struct domain *domain, bool (*ready)(const void *arg), const void *arg,
                        uint32_t turns) {
    bool moved = false;
    if (!domain_try_enter(domain)) {
        cpu_relax();
        return false;
    }
    for (uint32_t i = 0; i < turns && !moved; i++) {
        moved = domain->progress(domain->context) > 0 || ready(arg);
        if (atomic_load_explicit(&domain->wanted, memory_order_relaxed) != 0)
            break;
        if (!moved)
            cpu_relax();
    }
    domain_leave(domain);
    if (atomic_load_explicit(&domain->wanted, memory_order_relaxed) != 0)
        sched_yield();
    return moved;
}

/* Offers the core. Ranks that share cores under a real-time policy stay where they happen to be
 * when they begin to spin, however unevenly, so each goes to its place now and then. A rank of
 * which several threads wait leaves that be. */
static void yield(struct domain *domain) {
    sched_yield();
    if (domain->place < 0)
        return;
    uint32_t yields = atomic_load_explicit(&domain->yields, memory_order_relaxed) + 1;
    atomic_store_explicit(&domain->yields, yields, memory_order_relaxed);
    if (yields % SETTLE_YIELDS != 0 ||
        !clock_passed(atomic_load_explicit(&domain->settle_ns, memory_order_relaxed)) ||
        atomic_load_explicit(&domain->waiters, memory_order_relaxed) > 1)
        return;
    (void)cpu_settle(domain->place);
    atomic_store_explicit(&domain->settle_ns, clock_now_ns() + SETTLE_NS, memory_order_relaxed);
}

bool domain_wait_sleeps(const struct domain *domain, const struct domain_wait *wait) {
    return wait->turns - wait->quiet >= domain->spin_turns + domain->yield_turns;
}

void domain_pause(struct domain *domain, struct domain_wait *wait, bool (*ready)(const void *arg),
                  const void *arg, int64_t deadline_ns) {
    enum { BATCH = 16 };
    uint32_t spent = wait->turns - wait->quiet;
    uint32_t batch = domain->spin_turns < BATCH ? domain->spin_turns : BATCH;
    if (domain_poll(domain, ready, arg, batch)) {
        wait->turns++;
        wait->quiet = wait->turns;
    } else if (spent < domain->spin_turns) {
        wait->turns += batch;
    } else if (spent < domain->spin_turns + domain->yield_turns) {
        wait->turns++;
        yield(domain);
    } else {
        domain_sleep(domain, wait->interrupts, ready, arg, deadline_ns);
    }
    /* Before the caller looks at its own state: what interrupts from here on ends the next sleep,
     * even when another thread has eaten the event of the epoll set that this one takes. */
    wait->interrupts = doorbell_interrupts(domain->bell.line);
}
