/* Calls that may block for ever, in a thread that can be left behind. */
#include "bootstrap/bounded.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/cancel.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct bounded {
    void (*call)(void *argument);
    void (*discard)(void *argument);
    void *argument;
    pthread_mutex_t lock; /* guards the two flags */
    pthread_cond_t returned_condition;
    bool returned, left_behind;
};

static void bounded_free(struct bounded *bounded) {
    pthread_cond_destroy(&bounded->returned_condition);
    pthread_mutex_destroy(&bounded->lock);
    free(bounded);
}

static void *bounded_main(void *context) {
    struct bounded *bounded = context;
    bounded->call(bounded->argument);
    pthread_mutex_lock(&bounded->lock);
    bounded->returned = true;
    bool left_behind = bounded->left_behind;
    pthread_cond_signal(&bounded->returned_condition);
    pthread_mutex_unlock(&bounded->lock);
    if (left_behind) {
        bounded->discard(bounded->argument);
        bounded_free(bounded);
    }
    return NULL;
}

static struct bounded *bounded_new(void) {
    struct bounded *bounded = calloc(1, sizeof *bounded);
    pthread_condattr_t attributes;
    if (bounded == NULL)
        return NULL;
    pthread_mutex_init(&bounded->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&bounded->returned_condition, &attributes);
    pthread_condattr_destroy(&attributes);
    return bounded;
}

/* Whether it returned in time. */
static bool bounded_wait(struct bounded *bounded, int64_t deadline_ns) {
    pthread_mutex_lock(&bounded->lock);
    while (!bounded->returned && !cancel_or_passed(deadline_ns)) {
        int64_t look_ns = cancel_look_ns(deadline_ns);
        struct timespec until = {.tv_sec = (time_t)(look_ns / 1000000000),
                                 .tv_nsec = (long)(look_ns % 1000000000)};
        (void)pthread_cond_timedwait(&bounded->returned_condition, &bounded->lock, &until);
    }
    bool returned = bounded->returned;
    bounded->left_behind = !returned;
    pthread_mutex_unlock(&bounded->lock);
    return returned;
}

rota_status bounded_call(void (*call)(void *argument), void (*discard)(void *argument),
                         void *argument, int64_t deadline_ns, bool *late) {
    struct bounded *bounded = bounded_new();
    sigset_t all, before;
    pthread_t thread;
    if (bounded == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a call with a deadline");
    bounded->call = call;
    bounded->discard = discard;
    bounded->argument = argument;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failure = pthread_create(&thread, NULL, bounded_main, bounded);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure != 0) {
        bounded_free(bounded);
        return error_raise_system(failure, "cannot start a thread for a call with a deadline");
    }
    *late = !bounded_wait(bounded, deadline_ns);
    if (*late) {
        pthread_detach(thread);
        return ROTA_OK;
    }
    pthread_join(thread, NULL);
    bounded_free(bounded);
    return ROTA_OK;
}
