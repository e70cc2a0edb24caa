/* The progress thread. It polls the jobs that want it and, when nothing moves, sleeps on all of
 * their doorbells at once: it arms each such job, looks once more, and waits in an epoll set over
 * sleepers (an epoll set can watch epoll sets) and a descriptor for commands. Jobs without requests
 * neither ring nor wake it. Callers that are blocked progress by themselves and usually get there
 * first. */
#include "engine/progress.h"

#include "base/error.h"
#include "base/log.h"
#include "engine/comm.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Polls without an event before it sleeps: it shares the cores with its users' computation. */
#define IDLE_POLLS 32
/* Longest sleep, so that deadlines are looked at; and while a job's own callers progress it, the
 * longer the longer they do. */
#define SLEEP_MS 50
#define LEFT_TO_WAITERS_MS 1
#define LEFT_TO_WAITERS_MOST_MS 2

/* A job that the thread serves. */
struct served {
    struct job *job;
    struct doorbell_sleeper *sleeper;
    bool armed;   /* its doorbell, by the thread */
    bool watched; /* its sleeper wakes the thread */
    bool busy;    /* the thread is inside; forget waits */
    bool gone;    /* being forgotten */
    bool dead;    /* forgotten by the thread itself: it frees it after its visit */
    struct served *next;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t quiet; /* a job's `busy` fell */
    struct served *jobs;
    pthread_t thread;
    bool running;
    bool stop;
    int command_fd, epoll_fd;
    _Atomic bool asleep; /* the thread sleeps, or will unless it finds work that is there now */
    _Atomic bool brief;  /* the thread's own: the next sleep is short; and */
    bool left;           /* some job is left to its waiters, so do not poll meanwhile */
    int brief_ms;
} state = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .quiet = PTHREAD_COND_INITIALIZER,
           .brief_ms = LEFT_TO_WAITERS_MS,
           .command_fd = -1,
           .epoll_fd = -1};

static void command(void) {
    uint64_t one = 1;
    while (write(state.command_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
}

/* Progresses one job. Returns whether anything happened. Called without state.lock; served->busy
 * protects the job. */
static bool serve(struct served *served) {
    struct job *job = served->job;
    bool moved = false;
    if (domain_try_enter(&job->domain)) {
        moved = job_progress(job) > 0;
        domain_leave(&job->domain);
    }
    if (atomic_load_explicit(&job->has_callbacks, memory_order_relaxed)) {
        job_run_callbacks(job);
        moved = true;
    }
    return moved;
}

/* Has work, and nobody blocked on it who progresses anyway: two that poll would only take the
 * domain and the core from each other. */
static bool wants(const struct served *served) {
    return atomic_load_explicit(&served->job->background, memory_order_seq_cst) > 0 &&
           atomic_load_explicit(&served->job->domain.waiters, memory_order_relaxed) == 0;
}

/* Has work that is left to its waiters: look again soon, they may be gone. */
static bool left_to_waiters(const struct served *served) {
    return atomic_load_explicit(&served->job->background, memory_order_acquire) > 0 &&
           atomic_load_explicit(&served->job->domain.waiters, memory_order_relaxed) > 0;
}

/* Only a job that the thread would serve wakes it: what comes for another stays readable until
 * somebody calls, and would wake it again and again. */
static void watch(struct served *served, bool on) {
    struct epoll_event event = {.events = on ? EPOLLIN : 0, .data.ptr = served->sleeper};
    if (served->watched != on &&
        epoll_ctl(state.epoll_fd, EPOLL_CTL_MOD, doorbell_sleeper_descriptor(served->sleeper),
                  &event) == 0)
        served->watched = on;
}

enum pass { PASS_SERVE, PASS_ARM, PASS_DISARM };

static bool visit(struct served *served, enum pass pass) {
    struct job *job = served->job;
    switch (pass) {
    case PASS_SERVE:
        if (wants(served))
            return serve(served);
        state.left |= left_to_waiters(served);
        return false;
    case PASS_ARM: {
        bool busy = false;
        watch(served, wants(served));
        if (!served->watched) {
            if (left_to_waiters(served))
                atomic_store_explicit(&state.brief, true, memory_order_relaxed);
            return false;
        }
        served->armed = true;
        doorbell_arm(&job->domain.bell);
        if (domain_try_enter(&job->domain)) {
            busy = !job->domain.arm(job) || job_progress(job) > 0;
            domain_leave(&job->domain);
        }
        return busy;
    }
    default:
        if (served->armed)
            doorbell_disarm(&job->domain.bell);
        served->armed = false;
        return false;
    }
}

static void unlink_served(struct served *served) {
    struct served **at = &state.jobs;
    while (*at != served)
        at = &(*at)->next;
    *at = served->next;
    doorbell_sleeper_destroy(served->sleeper);
    free(served);
}

/* Visits every job that is not being forgotten. The jobs that PASS_ARM armed are those that
 * PASS_DISARM disarms: `busy` stays up in between. */
static bool visit_all(enum pass pass) {
    bool any = false;
    pthread_mutex_lock(&state.lock);
    struct served *next = NULL;
    for (struct served *served = state.jobs; served != NULL; served = next) {
        next = served->next;
        if (pass != PASS_DISARM && served->gone)
            continue;
        if (pass == PASS_DISARM && !served->busy)
            continue;
        served->busy = true;
        pthread_mutex_unlock(&state.lock);
        any |= visit(served, pass);
        pthread_mutex_lock(&state.lock);
        next = served->next;
        if (served->dead) {
            unlink_served(served);
        } else if (pass != PASS_ARM) {
            served->busy = false;
            pthread_cond_broadcast(&state.quiet);
        }
    }
    pthread_mutex_unlock(&state.lock);
    return any;
}

static bool must_stop(void) {
    pthread_mutex_lock(&state.lock);
    bool stop = state.stop;
    pthread_mutex_unlock(&state.lock);
    return stop;
}

/* A job may have been forgotten since its sleeper was reported, so the pointer is only looked up. A
 * new sleeper at the same address is drained for nothing: its job is served next anyway. */
static void drain_sleeper(const void *sleeper) {
    pthread_mutex_lock(&state.lock);
    for (struct served *served = state.jobs; served != NULL; served = served->next)
        if (served->sleeper == sleeper)
            doorbell_sleeper_drain(served->sleeper);
    pthread_mutex_unlock(&state.lock);
}

static void sleep_until_event(void) {
    struct epoll_event events[8];
    bool brief = atomic_exchange_explicit(&state.brief, false, memory_order_relaxed);
    int n = epoll_wait(state.epoll_fd, events, 8, brief ? state.brief_ms : SLEEP_MS);
    if (!brief)
        state.brief_ms = LEFT_TO_WAITERS_MS;
    else if (state.brief_ms < LEFT_TO_WAITERS_MOST_MS)
        state.brief_ms *= 2;
    for (int i = 0; i < n; i++) {
        uint64_t value = 0;
        if (events[i].data.ptr == NULL) {
            if (read(state.command_fd, &value, sizeof(value)) < 0)
                continue;
        } else {
            drain_sleeper(events[i].data.ptr);
        }
    }
}

static void *run(void *unused) {
    (void)unused;
    int idle = 0;
    while (!must_stop()) {
        state.left = false;
        if (visit_all(PASS_SERVE)) {
            idle = 0;
            state.brief_ms = LEFT_TO_WAITERS_MS;
        } else if (state.left || ++idle > IDLE_POLLS) {
            /* Partner: progress_want, which raises the count before it looks here. */
            atomic_store_explicit(&state.asleep, true, memory_order_seq_cst);
            if (!visit_all(PASS_ARM))
                sleep_until_event();
            atomic_store_explicit(&state.asleep, false, memory_order_relaxed);
            visit_all(PASS_DISARM);
            idle = 0;
        } else {
            sched_yield(); /* the caller that this thread works for may want the core */
        }
    }
    return NULL;
}

/* -- starting and stopping; state.lock held ------------------------------------------------------
 */

static bool open_descriptors(void) {
    state.command_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    state.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    return state.command_fd >= 0 && state.epoll_fd >= 0 &&
           epoll_ctl(state.epoll_fd, EPOLL_CTL_ADD, state.command_fd, &event) == 0;
}

static void close_descriptors(void) {
    if (state.command_fd >= 0)
        close(state.command_fd);
    if (state.epoll_fd >= 0)
        close(state.epoll_fd);
    state.command_fd = state.epoll_fd = -1;
}

static bool start_thread(void) {
    if (state.running)
        return true;
    if (state.epoll_fd < 0 && !open_descriptors()) {
        close_descriptors();
        return false;
    }
    state.stop = false;
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    state.running = pthread_create(&state.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (state.running)
        pthread_setname_np(state.thread, "rota-progress");
    else
        close_descriptors();
    return state.running;
}

/* In the child of a fork there is no thread, and the jobs are the parent's. */
void progress_after_fork(void) {
    pthread_mutex_init(&state.lock, NULL);
    pthread_cond_init(&state.quiet, NULL);
    state.jobs = NULL;
    state.running = state.stop = false;
    close_descriptors();
}

static bool add_job(struct job *job) {
    struct served *served = calloc(1, sizeof(*served));
    if (served == NULL || doorbell_sleeper_create(&job->domain.bell, &served->sleeper) != ROTA_OK) {
        free(served);
        return false;
    }
    for (int i = 0; i < job->domain.nwatched; i++)
        if (doorbell_sleeper_watch(served->sleeper, job->domain.watched[i]) != ROTA_OK)
            goto destroy;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = served->sleeper};
    if (epoll_ctl(state.epoll_fd, EPOLL_CTL_ADD, doorbell_sleeper_descriptor(served->sleeper),
                  &event) != 0)
        goto destroy;
    served->job = job;
    served->watched = true;
    served->next = state.jobs;
    state.jobs = served;
    return true;
destroy:
    doorbell_sleeper_destroy(served->sleeper);
    free(served);
    return false;
}

void progress_want(struct job *job, bool begin) {
    int before = atomic_fetch_add_explicit(&job->background, 1, memory_order_seq_cst);
    if (job->progress_listed) {
        /* Partner: run, which looks for work after it said that it will sleep. */
        if ((before == 0 || begin) && atomic_load_explicit(&state.asleep, memory_order_seq_cst))
            command();
        return;
    }
    pthread_mutex_lock(&state.lock);
    if (!job->progress_listed && start_thread())
        job->progress_listed = add_job(job);
    if (!job->progress_listed)
        log_write(LOG_WARN, "no progress thread: requests go on only inside calls");
    else
        command();
    pthread_mutex_unlock(&state.lock);
}

void progress_kick(struct job *job) {
    /* A waiter that polls will see it; one that sleeps is woken. */
    domain_wake(&job->domain);
    if (atomic_load_explicit(&job->domain.waiters, memory_order_relaxed) == 0)
        command();
}

void progress_unwant(struct job *job) {
    atomic_fetch_sub_explicit(&job->background, 1, memory_order_release);
}

/* state.lock held; drops it while waiting. */
static void remove_job(struct job *job) {
    struct served *served = state.jobs;
    while (served->job != job)
        served = served->next;
    served->gone = true;
    job->progress_listed = false;
    if (pthread_equal(pthread_self(), state.thread)) {
        served->dead = true; /* visit_all is below us on the stack */
        return;
    }
    command();
    while (served->busy)
        pthread_cond_wait(&state.quiet, &state.lock);
    unlink_served(served);
}

void progress_forget(struct job *job) {
    if (!job->progress_listed)
        return;
    pthread_mutex_lock(&state.lock);
    remove_job(job);
    bool last = state.jobs == NULL && state.running && !state.stop;
    pthread_t thread = state.thread;
    if (last) {
        state.stop = true;
        command();
    }
    pthread_mutex_unlock(&state.lock);
    if (!last)
        return;
    pthread_join(thread, NULL);
    pthread_mutex_lock(&state.lock);
    state.running = false;
    if (state.jobs == NULL)
        close_descriptors();
    else if (!start_thread()) /* somebody came while the thread went */
        log_write(LOG_WARN, "no progress thread: requests go on only inside calls");
    pthread_mutex_unlock(&state.lock);
}
