/* Joining a job.
 *
 * Design notes. Joining blocks in many places, some of them functions of the caller's. With a
 * request all of it runs in a thread that lives as long as the joining: so the caller's thread is
 * free, and what it blocks in ends when the flag that is attached to the thread is raised
 * (bootstrap/cancel.h). Until it has ended there is no communicator, and no progress domain: the
 * request has a lock and a condition of its own. Whatever frees the memory, the request or the
 * thread, comes last of the two. */
#include "engine/join.h"

#include "base/error.h"
#include "bootstrap/cancel.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct join {
    rota_request *request;
    struct job *job; /* located; passes to the communicator */
    char name[ROTA_ERROR_MAX_NAME];
    rota_numerics numerics;
    rota_comm **comm;
    int64_t begun_ns;
    _Atomic bool cancelled;
    pthread_t thread;     /* set with the lock held, before it is looked at there */
    pid_t owner;          /* in a child of a fork there is no such thread */
    pthread_mutex_t lock; /* guards request->freed, and done against those who wait for it */
    pthread_cond_t ended;
};

rota_status join_world(struct job *job, const char *name, rota_numerics numerics,
                       rota_comm **comm) {
    int *members = malloc((size_t)job->nranks * sizeof(*members));
    rota_status status = ROTA_OK;
    if (members == NULL)
        status = error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    for (int i = 0; status == ROTA_OK && i < job->nranks; i++)
        members[i] = i;
    if (status == ROTA_OK)
        status =
            comm_create(job, name, members, job->nranks, job->rank, (struct comm_name){0}, comm);
    if (status == ROTA_OK && numerics != ROTA_NUMERICS_DEFAULT)
        atomic_store_explicit(&(*comm)->numerics, (int)numerics, memory_order_relaxed);
    free(members);
    job_release(job);
    return status;
}

/* It was cancelled when it had met the others: they hear that it goes. */
static rota_status give_back(rota_comm *comm) {
    struct job *job = comm->job;
    (void)error_raise(ROTA_ERR_ABORTED, "rank %d of %d was cancelled while it joined", comm->rank,
                      comm->nranks);
    rota_error record = *error_record();
    domain_enter(&job->domain);
    comm_fail(comm, &record);
    domain_leave(&job->domain);
    comm_destroy(comm);
    *error_record() = record;
    return record.status;
}

static rota_status run(struct job *job, const char *name, rota_numerics numerics,
                       rota_comm **comm) {
    rota_comm *made = NULL;
    rota_status status = job_join(job);
    if (status == ROTA_OK)
        status = join_world(job, name, numerics, &made);
    if (status == ROTA_OK && cancel_is_raised())
        status = give_back(made);
    if (status == ROTA_OK)
        *comm = made;
    return status;
}

/* -- with a request -----------------------------------------------------------------------------
 */

static void join_free(struct join *join) {
    pthread_cond_destroy(&join->ended);
    pthread_mutex_destroy(&join->lock);
    free(join->request);
    free(join);
}

static struct join *join_new(const rota_call *call, rota_comm **comm) {
    struct join *join = calloc(1, sizeof(*join));
    rota_request *request = calloc(1, sizeof(*request));
    if (join == NULL || request == NULL) {
        free(join);
        free(request);
        return NULL;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&join->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    pthread_mutex_init(&join->lock, NULL);
    join->request = request;
    join->comm = comm;
    join->numerics = call->numerics;
    join->begun_ns = clock_now_ns();
    join->owner = getpid();
    request->join = join;
    request->record = (rota_error)ROTA_ERROR_INIT;
    request->record.peer = request->record.kind = -1;
    request->deadline_ns = CLOCK_NEVER; /* it has one where it waits */
    request->done_fn = call->done;
    request->done_arg = call->done_arg;
    return join;
}

static void *join_main(void *context) {
    struct join *join = context;
    rota_request *request = join->request;
    cancel_attach(&join->cancelled);
    rota_status status = run(join->job, join->name, join->numerics, join->comm);
    cancel_attach(NULL);
    if (status != ROTA_OK) {
        rota_error *record = error_record();
        record->waited_ms = (uint64_t)((clock_now_ns() - join->begun_ns) / 1000000);
        snprintf(record->comm_name, sizeof(record->comm_name), "%s", join->name);
    }
    request_keep(request, status);
    request_call_back(request);
    pthread_mutex_lock(&join->lock);
    bool freed = request->freed;
    /* Partner: waiters' loads of done, also those without the lock. */
    atomic_store_explicit(&request->done, true, memory_order_release);
    pthread_cond_broadcast(&join->ended);
    pthread_mutex_unlock(&join->lock);
    if (freed)
        join_free(join);
    return NULL;
}

/* Takes the job over. */
static rota_status start_thread(struct job *job, const char *name, const rota_call *call,
                                rota_comm **comm) {
    struct join *join = join_new(call, comm);
    if (join == NULL) {
        job_release(job);
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a request");
    }
    join->job = job;
    snprintf(join->name, sizeof(join->name), "%s", name);
    *call->request = join->request;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_mutex_lock(&join->lock);
    int failure = pthread_create(&join->thread, NULL, join_main, join);
    if (failure == 0)
        pthread_setname_np(join->thread, "rota-join");
    pthread_mutex_unlock(&join->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failure == 0)
        return ROTA_OK;
    *call->request = NULL;
    join_free(join);
    job_release(job);
    return error_raise_system(failure, "cannot start a thread that joins the job");
}

rota_status join_start(const rota_config *config, const rota_call *call, rota_comm **comm) {
    const char *name = config != NULL && config->name != NULL ? config->name : "world";
    struct job *job = NULL;
    rota_status status = job_locate(config, call != NULL ? call->timeout_ms : 0, &job);
    if (status != ROTA_OK)
        return status;
    if (call != NULL && call->request != NULL)
        return start_thread(job, name, call, comm);
    return run(job, name, call != NULL ? call->numerics : ROTA_NUMERICS_DEFAULT, comm);
}

bool join_forked(const rota_request *request) {
    return request->join->owner != getpid();
}

bool join_wait(const rota_request *request, int64_t deadline_ns) {
    struct join *join = request->join;
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000),
                             .tv_nsec = (long)(deadline_ns % 1000000000)};
    if (atomic_load_explicit(&request->done, memory_order_acquire))
        return true;
    if (join_forked(request))
        return false;
    pthread_mutex_lock(&join->lock);
    bool done = false;
    while (!(done = atomic_load_explicit(&request->done, memory_order_acquire)) &&
           !clock_passed(deadline_ns))
        (void)pthread_cond_timedwait(&join->ended, &join->lock, &until);
    pthread_mutex_unlock(&join->lock);
    return done;
}

void join_cancel(const rota_request *request) {
    /* Partner: cancel_is_raised. */
    atomic_store_explicit(&request->join->cancelled, true, memory_order_relaxed);
}

void join_release(rota_request *request) {
    struct join *join = request->join;
    if (join_forked(request))
        return;
    pthread_mutex_lock(&join->lock);
    bool done = atomic_load_explicit(&request->done, memory_order_relaxed);
    if (!done) {
        request->freed = true;
        pthread_detach(join->thread);
    }
    pthread_mutex_unlock(&join->lock);
    if (!done)
        return;
    pthread_join(join->thread, NULL);
    join_free(join);
}
