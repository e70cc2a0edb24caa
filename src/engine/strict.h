/* Strict checking (ROTA_CHECK=strict): all members compare their calls before any data move. */
#ifndef ENGINE_STRICT_H
#define ENGINE_STRICT_H

#include "engine/comm.h"

struct strict;

/* Inside the domain: puts the comparison of a collective that is to be queued into the queue before
 * it. Its sequence and deadline are set. Errors are raised. */
rota_status strict_enqueue(rota_request *request);
/* Inside the domain: a request of a comparison has ended well. */
void strict_ended(rota_request *request);
/* Frees what a request of a comparison holds. */
void strict_free(rota_request *request);

#endif
