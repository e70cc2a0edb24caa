/* Fusion. A small all-reduce costs the same for one element as for many, so those that one group
 * has recorded one after the other are copied together and go as one. That changes what is sent, so
 * whether it is done depends on the setting, which all ranks share, and on the calls alone; the
 * fingerprint holds how the elements are divided, so that a rank that groups otherwise is told.
 * Results do not change in reproducible mode: every element is summed by itself. */
#include "engine/fusion.h"

#include "base/error.h"
#include "engine/staging.h"
#include "memory/memory.h"
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

size_t fusion_limit(const rota_comm *comm) {
    return (size_t)settings_integer(comm->job->settings, SETTING_FUSION_BYTES);
}

static size_t bytes_of(const struct call_args *args) {
    return args->count * rota_dtype_size(args->dtype);
}

bool fusion_takes(const rota_comm *comm, const struct call_args *args, const rota_call *call) {
    return args->kind == ROTA_KIND_ALL_REDUCE && args->op < ROTA_OP_COUNT &&
           call->algorithm == NULL && args->count > 0 && bytes_of(args) < fusion_limit(comm);
}

bool fusion_joins(const struct call_args *a, const rota_call *a_call, const struct call_args *b,
                  const rota_call *b_call) {
    return a->dtype == b->dtype && a->op == b->op && a_call->numerics == b_call->numerics;
}

struct fusion *fusion_create(const struct call_args *like, int capacity) {
    struct fusion *fusion =
        calloc(1, sizeof(*fusion) + (size_t)capacity * sizeof(fusion->parts[0]));
    if (fusion == NULL)
        return NULL;
    fusion->args = *like;
    fusion->args.count = 0;
    return fusion;
}

void fusion_add(struct fusion *fusion, const struct call_args *part) {
    fusion->parts[fusion->count++] = *part;
    fusion->args.count += part->count;
}

static rota_status copy_foreign(struct job *job, const struct memory_kind *kind, void *to,
                                const void *from, size_t bytes) {
    struct staging_ticket ticket = {0};
    staging_ticket_init(&ticket, job);
    enum memory_result result = kind->copy(to, from, bytes, &ticket.memory);
    while (result == MEMORY_PENDING && !staging_ticket_ended(&ticket))
        sched_yield();
    if (result == MEMORY_FAILED ||
        (result == MEMORY_PENDING &&
         atomic_load_explicit(&ticket.memory.state, memory_order_acquire) < 0))
        return error_raise(ROTA_ERR_MEMORY, "memory kind %s failed to copy %zu bytes", kind->name,
                           bytes);
    return ROTA_OK;
}

/* Of the parts' inputs into the fusion's memory, or of its results to them. */
static rota_status copy_parts(const struct fusion *fusion, struct job *job, bool results) {
    char *at = fusion->memory;
    rota_status status = ROTA_OK;
    for (int i = 0; i < fusion->count && status == ROTA_OK; i++) {
        const struct call_args *part = &fusion->parts[i];
        const void *user = results ? part->recv : part->send;
        void *to = results ? part->recv : at;
        const void *from = results ? at : part->send;
        const struct memory_kind *kind = memory_identify(user, bytes_of(part));
        if (kind->host_readable)
            memcpy(to, from, bytes_of(part));
        else
            status = copy_foreign(job, kind, to, from, bytes_of(part));
        at += bytes_of(part);
    }
    return status;
}

/* Of how the elements are divided. Never 0, which is the tag of a call by itself. */
static int division(const struct fusion *fusion) {
    uint64_t hash = 0;
    for (int i = 0; i < fusion->count; i++)
        hash = XXH64(&fusion->parts[i].count, sizeof(fusion->parts[i].count), hash);
    return (int)(hash >> 33 | 1);
}

rota_status fusion_pack(struct fusion *fusion, struct job *job) {
    fusion->memory = malloc(bytes_of(&fusion->args));
    if (fusion->memory == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu elements together",
                           fusion->args.count);
    fusion->args.send = fusion->args.recv = fusion->memory;
    fusion->args.tag = division(fusion);
    return copy_parts(fusion, job, false);
}

rota_status fusion_unpack(const struct fusion *fusion, struct job *job) {
    return copy_parts(fusion, job, true);
}

void fusion_free(struct fusion *fusion) {
    if (fusion != NULL)
        free(fusion->memory);
    free(fusion);
}
