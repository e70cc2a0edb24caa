/* The rendezvous of one job: collects the ranks' registrations and answers all of them, with the
 * table or with what is wrong. A state machine that never blocks; the thread that drives it is the
 * control thread (unique ids) or the one inside bootstrap_exchange (rank 0 at a known place). */
#ifndef BOOTSTRAP_RENDEZVOUS_H
#define BOOTSTRAP_RENDEZVOUS_H

#include "bootstrap/message.h"

struct rendezvous;

rota_status rendezvous_create(struct rendezvous **rendezvous);
void rendezvous_destroy(struct rendezvous *rendezvous);
/* Takes an authenticated connection whose registration is still to come. */
void rendezvous_add(struct rendezvous *rendezvous, int socket);
/* Readable when step has work. */
int rendezvous_descriptor(const struct rendezvous *rendezvous);
/* Does what can be done now. */
void rendezvous_step(struct rendezvous *rendezvous);
/* When step must be called at the latest; CLOCK_NEVER. */
int64_t rendezvous_deadline(const struct rendezvous *rendezvous);
/* Whether it has nothing to answer yet. */
bool rendezvous_collecting(const struct rendezvous *rendezvous);
/* Whether all have been answered; *met: with the table. */
bool rendezvous_ended(const struct rendezvous *rendezvous, bool *met);

#endif
