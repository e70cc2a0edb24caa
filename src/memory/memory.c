/* The table of memory kinds. Host memory is what no other kind claims, so with no other kind
 * registered an identification is one load. */
#include "memory/memory.h"
#include "base/error.h"
#include <pthread.h>

#define MAX_KINDS 8
#define MAX_KIND_ID 31 /* ids are bits of a 32-bit mask */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of writers */
static const struct memory_kind *kinds[MAX_KINDS];
/* Kinds in the table; entries below it never change. */
static _Atomic int kind_count;

static rota_status check_kind(const struct memory_kind *kind) {
    if (!kind || !kind->name || !kind->identify || !kind->copy || !kind->reduce ||
        !kind->allocate || !kind->free)
        return error_raise(ROTA_ERR_ARGUMENT, "a memory kind lacks its name or a function");
    if (kind->id == memory_host.id || kind->id > MAX_KIND_ID)
        return error_raise(ROTA_ERR_ARGUMENT, "memory kind %s: id %u is not in 1 ... %d",
                           kind->name, kind->id, MAX_KIND_ID);
    return ROTA_OK;
}

static rota_status append_kind(const struct memory_kind *kind) {
    int count = atomic_load_explicit(&kind_count, memory_order_relaxed);
    for (int i = 0; i < count; i++) {
        if (kinds[i] == kind)
            return ROTA_OK;
        if (kinds[i]->id == kind->id)
            return error_raise(ROTA_ERR_ARGUMENT, "memory kinds %s and %s have the same id %u",
                               kinds[i]->name, kind->name, kind->id);
    }
    if (count == MAX_KINDS)
        return error_raise(ROTA_ERR_MEMORY, "memory kind %s: there are %d kinds already",
                           kind->name, MAX_KINDS);
    kinds[count] = kind;
    /* Partner: the acquire load in memory_identify, which then reads the entry. */
    atomic_store_explicit(&kind_count, count + 1, memory_order_release);
    return ROTA_OK;
}

rota_status memory_kind_register(const struct memory_kind *kind) {
    rota_status status = check_kind(kind);
    if (status != ROTA_OK)
        return status;
    pthread_mutex_lock(&lock);
    status = append_kind(kind);
    pthread_mutex_unlock(&lock);
    return status;
}

const struct memory_kind *memory_identify(const void *pointer, size_t bytes) {
    /* Partner: the release store in append_kind. */
    int count = atomic_load_explicit(&kind_count, memory_order_acquire);
    if (!pointer || !bytes)
        return &memory_host;
    for (int i = 0; i < count; i++)
        if (kinds[i]->identify(pointer, bytes))
            return kinds[i];
    return &memory_host;
}
