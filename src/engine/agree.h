/* Agreements among the living members of a communicator, and what is left of one after failures. */
#ifndef ENGINE_AGREE_H
#define ENGINE_AGREE_H

#include "engine/comm.h"

struct liveness_agreement;

/* See rota_comm_agree, rota_comm_shrink, rota_comm_revoke. Arguments are checked; outside the
 * domain. */
rota_status agree_run(rota_comm *comm, uint64_t *flags, const rota_call *call);
rota_status agree_shrink(rota_comm *comm, const char *name, const rota_call *call,
                         rota_comm **shrunk);
void agree_revoke(rota_comm *comm);

/* Control thread: an agreement was decided. `context` is the job. */
void agreement_heard(void *context, const struct liveness_agreement *agreement);

#endif
