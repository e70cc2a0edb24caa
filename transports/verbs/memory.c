/* Registered memory.
 *
 * Design note. The adapter reads and writes physical pages that were pinned when a range was
 * registered. When the range is unmapped and something else is mapped there, the registration still
 * means the old pages. Caches of registrations by address try to notice, by replacing munmap and
 * friends or by userfaultfd; the first misses calls that do not go through the replaced symbols
 * (static binaries, raw system calls, mremap, MADV_DONTNEED, other libraries that do the same), the
 * second tells too late, after the unmapping. So nothing is remembered of memory that was only ever
 * passed to a call: such a message goes through the ring, by copies. Registered are exactly the
 * ranges whose lifetime somebody has promised: rota_mem_register's (the user, until deregistered)
 * and rota_mem_alloc's (ours, until freed). Looking one up by address is then right, because the
 * range cannot be anything else while it is in the table.
 *
 * A large range is registered in pieces, which overlap so that every message lies in one of them.
 */
#include "verbs.h"

#include "base/error.h"
#include "memory/memory.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)1 << 30)
#define OVERLAP_BYTES ((size_t)4 << 20)

struct verbs_region {
    struct verbs_region *next;
    void *handle; /* the first piece of the registration */
    uintptr_t begin;
    size_t bytes;
    bool writable;
    struct ibv_mr *mrs[VERBS_MAX_RAILS];
};

struct ibv_mr *verbs_mr(struct verbs *verbs, struct verbs_port *port, void *data, size_t bytes,
                        int access) {
    struct rlimit limit = {0, 0};
    struct ibv_mr *mr = verbs->calls->reg_mr(port->pd, data, bytes, access);
    if (mr)
        return mr;
    int error = errno;
    (void)getrlimit(RLIMIT_MEMLOCK, &limit);
    if ((error == ENOMEM || error == EPERM || error == EAGAIN) && limit.rlim_cur != RLIM_INFINITY)
        error_raise_system(error,
                           "ibv_reg_mr of %zu bytes on %s: this process may lock only %llu KiB of "
                           "memory (ulimit -l; raise memlock in limits.conf, or LimitMEMLOCK of "
                           "the service)",
                           bytes, port->rail->name, (unsigned long long)limit.rlim_cur >> 10);
    else
        error_raise_system(error, "ibv_reg_mr of %zu bytes on %s", bytes, port->rail->name);
    return NULL;
}

static void region_free(struct verbs *verbs, struct verbs_region *region) {
    for (int i = 0; i < verbs->nports; i++) {
        if (region->mrs[i])
            (void)verbs->calls->dereg_mr(region->mrs[i]);
    }
    free(region);
}

/* One piece on all ports. Memory that may only be read can still be sent from. */
static bool region_fill(struct verbs *verbs, struct verbs_region *region, void *data,
                        int descriptor, uint64_t offset) {
    size_t bytes = region->bytes;
    for (int i = 0; i < verbs->nports; i++) {
        struct verbs_port *port = &verbs->ports[i];
        int access = region->writable ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0;
        if (descriptor >= 0)
            region->mrs[i] = verbs->calls->reg_dmabuf_mr(port->pd, offset, bytes, region->begin,
                                                         descriptor, access);
        if (!region->mrs[i])
            region->mrs[i] = verbs->calls->reg_mr(port->pd, data, bytes, access);
        if (!region->mrs[i] && i == 0 && (errno == EFAULT || errno == EACCES)) {
            region->writable = false;
            access = 0;
        }
        if (!region->mrs[i])
            region->mrs[i] = verbs_mr(verbs, port, data, bytes, access);
        if (!region->mrs[i])
            return false;
    }
    return true;
}

/* Memory of other kinds that has a DMA-buf is registered by it, where library and device can. */
static struct verbs_region *region_new(struct verbs *verbs, const struct memory_kind *kind,
                                       char *data, size_t bytes) {
    struct verbs_region *region = calloc(1, sizeof *region);
    int descriptor = -1;
    uint64_t offset = 0;
    if (!region) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a registration");
        return NULL;
    }
    region->begin = (uintptr_t)data;
    region->bytes = bytes;
    region->writable = true;
    if (kind->export_dmabuf && verbs->calls->reg_dmabuf_mr &&
        !kind->export_dmabuf(data, bytes, &descriptor, &offset))
        descriptor = -1;
    bool filled = region_fill(verbs, region, data, descriptor, offset);
    if (descriptor >= 0)
        close(descriptor); /* a registration holds the memory by itself */
    if (filled)
        return region;
    region_free(verbs, region);
    return NULL;
}

static void take_out(struct verbs *verbs, const void *handle) {
    struct verbs_region **at = &verbs->regions, *region;
    while ((region = *at)) {
        if (region->handle != handle) {
            at = &region->next;
            continue;
        }
        *at = region->next;
        region_free(verbs, region);
    }
}

rota_status verbs_register_memory(struct transport *transport, void *data, size_t bytes, void *key,
                                  size_t *key_bytes, void **handle) {
    struct verbs *verbs = verbs_of(transport);
    rota_status status = ROTA_OK;
    (void)key;
    *key_bytes = 0; /* peers are told per message */
    *handle = NULL;
    const struct memory_kind *kind = memory_identify(data, bytes);
    if (kind != &memory_host && !kind->export_dmabuf)
        return ROTA_OK; /* no adapter can reach it: it is copied */
    pthread_mutex_lock(&verbs->regions_lock);
    for (size_t at = 0; at < bytes;) {
        size_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        struct verbs_region *region = region_new(verbs, kind, (char *)data + at, piece);
        if (!region) {
            status = error_record()->status;
            take_out(verbs, *handle);
            break;
        }
        if (!*handle)
            *handle = region;
        region->handle = *handle;
        region->next = verbs->regions;
        verbs->regions = region;
        at += piece < PIECE_BYTES || at + piece == bytes ? piece : PIECE_BYTES - OVERLAP_BYTES;
    }
    pthread_mutex_unlock(&verbs->regions_lock);
    return status;
}

void verbs_deregister_memory(struct transport *transport, void *handle) {
    struct verbs *verbs = verbs_of(transport);
    pthread_mutex_lock(&verbs->regions_lock);
    take_out(verbs, handle);
    pthread_mutex_unlock(&verbs->regions_lock);
}

void verbs_regions_free(struct verbs *verbs) {
    struct verbs_region *region;
    while ((region = verbs->regions)) {
        verbs->regions = region->next;
        region_free(verbs, region);
    }
}

bool verbs_lookup(struct verbs *verbs, const void *data, size_t bytes, bool writing,
                  uint32_t lkeys[VERBS_MAX_RAILS], uint32_t rkeys[VERBS_MAX_RAILS]) {
    const struct verbs_region *region;
    uintptr_t begin = (uintptr_t)data;
    pthread_mutex_lock(&verbs->regions_lock);
    for (region = verbs->regions; region; region = region->next) {
        if (begin >= region->begin && bytes <= region->bytes &&
            begin - region->begin <= region->bytes - bytes && (region->writable || !writing))
            break;
    }
    for (int i = 0; region && i < verbs->nports; i++) {
        lkeys[i] = region->mrs[i]->lkey;
        rkeys[i] = region->mrs[i]->rkey;
    }
    pthread_mutex_unlock(&verbs->regions_lock);
    return region != NULL;
}
