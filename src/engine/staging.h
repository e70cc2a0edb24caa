/* Staging: host copies of buffers in memory that a native form or point to point cannot touch. */
#ifndef ENGINE_STAGING_H
#define ENGINE_STAGING_H

#include "engine/comm.h"

/* An operation of a memory kind that ends later, and then wakes the rank. Zeroed at first. */
struct staging_ticket {
    struct memory_ticket memory; /* first */
    struct job *job;
    /* The news is visible to the sleeper that is woken; the kind's thread will not touch the ticket
     * or the job again. */
    _Atomic bool notified, left;
};
void staging_ticket_init(struct staging_ticket *ticket, struct job *job);
/* Whether it has ended, so that it may be freed. */
bool staging_ticket_ended(const struct staging_ticket *ticket);

/* Bytes of the request's send and receive buffer on this rank. */
size_t staging_send_bytes(const rota_request *request);
size_t staging_recv_bytes(const rota_request *request);
/* Allocates host copies for buffers that the processor cannot touch and begins to fill the send
 * copy. ROTA_OK with request->copy NULL: nothing to wait for. Errors: ROTA_ERR_MEMORY. */
rota_status staging_in(rota_request *request);
/* Begins to copy the result back. As above. */
rota_status staging_out(rota_request *request);
/* Whether the copy under way has ended; frees it. *status is its outcome. */
bool staging_ended(rota_request *request, rota_status *status);
/* Waits for a copy under way (bounded by the memory kind) and frees the host copies. */
void staging_free(rota_request *request);

#endif
