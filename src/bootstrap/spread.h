/* Brings the table of ranks to this rank's children in the tree. Internal to bootstrap. */
#ifndef BOOTSTRAP_SPREAD_H
#define BOOTSTRAP_SPREAD_H

#include "bootstrap/message.h"
#include "bootstrap/reach.h"

struct spread;

/* Begins; *spread is NULL when this rank has no children. `records` outlives it. */
rota_status spread_begin(const struct net_identity *identity,
                         const struct bootstrap_record *records, int nranks, int64_t deadline_ns,
                         struct spread **spread);
/* Goes on; true when every child has the table. */
bool spread_step(struct spread *spread);
#define SPREAD_POLL (BOOTSTRAP_FAN_OUT * REACH_ACTIVE)
int spread_poll(const struct spread *spread, struct pollfd *fds);
int64_t spread_deadline(const struct spread *spread);
/* At the deadline: says which child could not be reached and why. ROTA_ERR_TIMEOUT. */
rota_status spread_raise(const struct spread *spread);
void spread_end(struct spread *spread);

#endif
