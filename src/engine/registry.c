/* The list of communicators, and what becomes of them in the child of a fork.
 *
 * Design notes. A child has its parent's sockets and shared memory, but is no rank: a byte that it
 * sent, or a word that it wrote, would be taken for the parent's. Its copy of a communicator may
 * also have been in the middle of a change by another thread, which does not exist there. So all of
 * them are failed in the child before the fork returns, and their jobs are cut off: nothing walks
 * their lists, progresses their transports or waits for their locks any more. Their memory stays.
 */
#include "engine/registry.h"

#include "base/error.h"
#include "engine/progress.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Held during a fork; a leaf, so holding it delays a fork by instructions only. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct registered {
    rota_comm *comm;
    struct registered *next;
} * registry;

static void before_fork(void) {
    pthread_mutex_lock(&lock);
}

static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&lock);
}

static void after_fork_in_child(void) {
    for (const struct registered *entry = registry; entry != NULL; entry = entry->next) {
        rota_comm *comm = entry->comm;
        job_after_fork(comm->job);
        comm->record = (rota_error)ROTA_ERROR_INIT;
        comm->record.status = ROTA_ERR_STATE;
        comm->record.peer = comm->record.kind = -1;
        strcpy(comm->record.message,
               "this process was forked from a rank of the job and is none itself");
        atomic_store_explicit(&comm->status, ROTA_ERR_STATE, memory_order_relaxed);
        atomic_store_explicit(&comm->native_state, NATIVE_NONE, memory_order_relaxed);
        atomic_store_explicit(&comm->busy, false, memory_order_relaxed);
        atomic_store_explicit(&comm->users, 0, memory_order_relaxed);
    }
    progress_after_fork();
    pthread_mutex_unlock(&lock);
}

static void install(void) {
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

rota_status registry_add(rota_comm *comm) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install);
    struct registered *entry = malloc(sizeof(*entry));
    if (entry == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    entry->comm = comm;
    pthread_mutex_lock(&lock);
    entry->next = registry;
    registry = entry;
    pthread_mutex_unlock(&lock);
    return ROTA_OK;
}

bool registry_remove(const rota_comm *comm) {
    pthread_mutex_lock(&lock);
    struct registered **at = &registry;
    while (*at != NULL && (*at)->comm != comm)
        at = &(*at)->next;
    struct registered *entry = *at;
    if (entry != NULL)
        *at = entry->next;
    pthread_mutex_unlock(&lock);
    free(entry);
    return entry != NULL;
}
