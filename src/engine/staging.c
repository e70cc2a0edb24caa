/* Host copies of foreign memory, and how its operations end. */
#include "engine/staging.h"

#include "base/error.h"
#include <sched.h>
#include <stdlib.h>

/* Blocks of `count` elements that this rank sends, or receives. */
static size_t send_blocks(const struct call_args *args, const rota_comm *comm) {
    bool at_root = args->root == comm->rank;
    switch (args->kind) {
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)comm->nranks;
    case ROTA_KIND_SCATTER:
        return at_root ? (size_t)comm->nranks : 0;
    case ROTA_KIND_BROADCAST:
        return at_root ? 1 : 0;
    case ROTA_KIND_BARRIER:
    case ROTA_KIND_RECV:
        return 0;
    default:
        return 1;
    }
}

static size_t recv_blocks(const struct call_args *args, const rota_comm *comm) {
    bool at_root = args->root == comm->rank;
    switch (args->kind) {
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)comm->nranks;
    case ROTA_KIND_GATHER:
        return at_root ? (size_t)comm->nranks : 0;
    case ROTA_KIND_REDUCE:
        return at_root ? 1 : 0;
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return comm->rank > 0 ? 1 : 0;
    case ROTA_KIND_BARRIER:
    case ROTA_KIND_SEND:
        return 0;
    default:
        return 1;
    }
}

size_t staging_send_bytes(const rota_request *request) {
    return send_blocks(&request->args, request->comm) * request->args.count * request->element_size;
}

size_t staging_recv_bytes(const rota_request *request) {
    return recv_blocks(&request->args, request->comm) * request->args.count * request->element_size;
}

/* On the kind's thread. */
static void notify(struct memory_ticket *memory) {
    struct staging_ticket *ticket = (struct staging_ticket *)memory;
    /* Partner of both: staging_ticket_ended. */
    atomic_store_explicit(&ticket->notified, true, memory_order_release);
    domain_wake(&ticket->job->domain);
    atomic_store_explicit(&ticket->left, true, memory_order_release);
}

void staging_ticket_init(struct staging_ticket *ticket, struct job *job) {
    ticket->memory.notify = notify;
    ticket->job = job;
}

bool staging_ticket_ended(const struct staging_ticket *ticket) {
    if (!atomic_load_explicit(&ticket->notified, memory_order_acquire))
        return false;
    while (!atomic_load_explicit(&ticket->left, memory_order_acquire))
        sched_yield();
    return true;
}

static rota_status copy_begin(rota_request *request, const struct memory_kind *kind, void *dst,
                              const void *src, size_t bytes) {
    struct staging_ticket *copy = calloc(1, sizeof(*copy));
    if (copy == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a copy");
    staging_ticket_init(copy, request->comm->job);
    switch (kind->copy(dst, src, bytes, &copy->memory)) {
    case MEMORY_PENDING:
        request->copy = copy;
        return ROTA_OK;
    case MEMORY_DONE:
        free(copy);
        return ROTA_OK;
    default:
        free(copy);
        return error_raise(ROTA_ERR_MEMORY, "memory kind %s failed to copy %zu bytes", kind->name,
                           bytes);
    }
}

rota_status staging_in(rota_request *request) {
    size_t send = staging_send_bytes(request), recv = staging_recv_bytes(request);
    const struct memory_kind *kind = memory_identify(request->args.send, send);
    if (!memory_identify(request->args.recv, recv)->host_readable &&
        (request->staged_recv = malloc(recv)) == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu bytes of staging", recv);
    if (kind->host_readable)
        return ROTA_OK;
    request->staged_send = malloc(send);
    if (request->staged_send == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu bytes of staging", send);
    return copy_begin(request, kind, request->staged_send, request->args.send, send);
}

rota_status staging_out(rota_request *request) {
    size_t bytes = staging_recv_bytes(request);
    const struct memory_kind *kind = memory_identify(request->args.recv, bytes);
    if (request->args.kind == ROTA_KIND_RECV && request->p2p.total < bytes)
        bytes = request->p2p.total;
    if (bytes == 0)
        return ROTA_OK;
    return copy_begin(request, kind, request->args.recv, request->staged_recv, bytes);
}

bool staging_ended(rota_request *request, rota_status *status) {
    struct staging_ticket *copy = request->copy;
    if (!staging_ticket_ended(copy))
        return false;
    *status = atomic_load_explicit(&copy->memory.state, memory_order_acquire) > 0
                  ? ROTA_OK
                  : error_raise(ROTA_ERR_MEMORY, "a copy of foreign memory failed");
    free(copy);
    request->copy = NULL;
    return true;
}

void staging_free(rota_request *request) {
    if (request->copy != NULL) {
        while (!staging_ticket_ended(request->copy))
            sched_yield();
        free(request->copy);
        request->copy = NULL;
    }
    free(request->staged_send);
    free(request->staged_recv);
    request->staged_send = NULL;
    request->staged_recv = NULL;
}
