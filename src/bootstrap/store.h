/* Meeting by a key-value store: rank 0 makes a unique id, and the store tells it to the others.
 * Internal to bootstrap. */
#ifndef BOOTSTRAP_STORE_H
#define BOOTSTRAP_STORE_H

#include "bootstrap/bootstrap.h"

/* Turns a place whose nranks and rank are known into one of way BOOTSTRAP_ID, or SINGLE for one
 * rank. `raises`: the store's functions describe their failures with error_raise themselves.
 * Errors: ROTA_ERR_TIMEOUT (rank 0 has set nothing), ROTA_ERR_SYSTEM, ROTA_ERR_FORMAT (no id),
 * ROTA_ERR_ARGUMENT (the id of an earlier job). */
rota_status store_agree(struct bootstrap_place *place, const rota_store *store, bool raises,
                        int64_t deadline_ns);

#endif
