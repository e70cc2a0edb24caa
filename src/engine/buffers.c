/* Buffers that the library allocates or knows for the user: two tables of the process, by address
 * of the memory and of the handle, so that wrong pointers are refused without being followed. */
#include "engine/buffers.h"

#include "base/error.h"
#include "base/log.h"
#include "engine/job.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <uthash.h>

/* What the transports of the job, in the order of job->active, know memory by. */
struct pins {
    void *handles[JOB_MAX_TRANSPORTS];
};

struct allocation {
    void *memory;
    const struct job *job;
    struct transport *transport; /* NULL: ordinary memory */
    struct pins pins;
    UT_hash_handle hh;
};

struct rota_mem {
    const void *self; /* the key */
    const struct job *job;
    uintptr_t begin;
    size_t bytes;
    struct pins pins;
    UT_hash_handle hh;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards both tables */
static struct allocation *allocations;
static struct rota_mem *registrations;

/* Makes memory known to the transports that want to know it. One that cannot take it works without,
 * slower. */
static void pin(const struct job *job, const void *memory, size_t bytes, struct pins *pins) {
    static _Atomic bool warned;
    uint32_t kind = 1u << memory_identify(memory, bytes)->id;
    for (int i = 0; i < job->nactive; i++) {
        struct transport *transport = job->active[i];
        size_t key_bytes = 0;
        char key[64];
        if (transport->ops->register_memory == NULL || !(transport->caps.memory_kinds & kind) ||
            transport->ops->register_memory(transport, (void *)(uintptr_t)memory, bytes, key,
                                            &key_bytes, &pins->handles[i]) == ROTA_OK)
            continue;
        pins->handles[i] = NULL;
        log_write(atomic_exchange_explicit(&warned, true, memory_order_relaxed) ? LOG_INFO
                                                                                : LOG_WARN,
                  "%s; messages are copied instead", error_record()->message);
    }
}

static void unpin(const struct job *job, const struct pins *pins) {
    for (int i = 0; i < job->nactive; i++)
        if (pins->handles[i] != NULL)
            job->active[i]->ops->deregister_memory(job->active[i], pins->handles[i]);
}

/* From the first transport that has memory of its own, else ordinary. */
static void *take(struct job *job, size_t bytes, struct transport **transport) {
    for (int i = 0; i < job->nactive; i++) {
        *transport = job->active[i];
        void *memory = (*transport)->ops->allocate != NULL
                           ? (*transport)->ops->allocate(*transport, bytes)
                           : NULL;
        if (memory != NULL)
            return memory;
    }
    *transport = NULL;
    return memory_host.allocate(bytes);
}

static void give_back(const struct allocation *allocation) {
    struct transport *transport = allocation->transport;
    unpin(allocation->job, &allocation->pins);
    if (transport != NULL)
        (void)transport->ops->deallocate(transport, allocation->memory);
    else
        memory_host.free(allocation->memory);
}

rota_status buffers_allocate(struct job *job, size_t bytes, void **memory) {
    struct allocation *allocation = calloc(1, sizeof(*allocation));
    if (allocation != NULL)
        allocation->memory = take(job, bytes, &allocation->transport);
    if (allocation == NULL || allocation->memory == NULL) {
        free(allocation);
        return error_raise(ROTA_ERR_MEMORY, "no memory for a buffer of %zu bytes", bytes);
    }
    allocation->job = job;
    pin(job, allocation->memory, bytes, &allocation->pins);
    pthread_mutex_lock(&lock);
    HASH_ADD_PTR(allocations, memory, allocation);
    pthread_mutex_unlock(&lock);
    *memory = allocation->memory;
    return ROTA_OK;
}

rota_status buffers_free(const struct job *job, void *memory) {
    struct allocation *allocation = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(allocations, &memory, allocation);
    if (allocation != NULL && allocation->job != job)
        allocation = NULL;
    if (allocation != NULL)
        HASH_DEL(allocations, allocation);
    pthread_mutex_unlock(&lock);
    if (allocation == NULL)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "memory %p was not allocated by rota_mem_alloc for this job, or was "
                           "freed before",
                           memory);
    give_back(allocation);
    free(allocation);
    return ROTA_OK;
}

rota_status buffers_register(const struct job *job, const void *memory, size_t bytes,
                             rota_mem **handle) {
    struct rota_mem *registration = calloc(1, sizeof(*registration));
    if (registration == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a registration");
    registration->self = registration;
    registration->job = job;
    registration->begin = (uintptr_t)memory;
    registration->bytes = bytes;
    pin(job, memory, bytes, &registration->pins);
    pthread_mutex_lock(&lock);
    HASH_ADD_PTR(registrations, self, registration);
    pthread_mutex_unlock(&lock);
    *handle = registration;
    return ROTA_OK;
}

rota_status buffers_deregister(rota_mem *handle) {
    struct rota_mem *registration = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(registrations, &handle, registration);
    if (registration != NULL)
        HASH_DEL(registrations, registration);
    pthread_mutex_unlock(&lock);
    if (registration == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "handle %p is no registration, or ended before",
                           (void *)handle);
    unpin(registration->job, &registration->pins);
    free(registration);
    return ROTA_OK;
}

bool buffers_covered(const struct job *job, const void *handle, const void *buffer, size_t bytes) {
    struct rota_mem *registration = NULL;
    pthread_mutex_lock(&lock);
    HASH_FIND_PTR(registrations, &handle, registration);
    bool covered = registration != NULL && registration->job == job;
    if (covered && bytes > 0) {
        size_t offset = (size_t)((uintptr_t)buffer - registration->begin);
        covered = offset < registration->bytes && bytes <= registration->bytes - offset;
    }
    pthread_mutex_unlock(&lock);
    return covered;
}

void buffers_forget(const struct job *job) {
    struct allocation *allocation, *next_allocation;
    struct rota_mem *registration, *next_registration;
    pthread_mutex_lock(&lock);
    HASH_ITER(hh, allocations, allocation, next_allocation) {
        if (allocation->job != job)
            continue;
        HASH_DEL(allocations, allocation);
        give_back(allocation);
        free(allocation);
    }
    HASH_ITER(hh, registrations, registration, next_registration) {
        if (registration->job != job)
            continue;
        HASH_DEL(registrations, registration);
        unpin(job, &registration->pins);
        free(registration);
    }
    pthread_mutex_unlock(&lock);
}
