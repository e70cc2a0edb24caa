/* Proof that a process of this host has ended: a pidfd. Internal to liveness. */
#ifndef LIVENESS_EXIT_H
#define LIVENESS_EXIT_H

#include "bootstrap/bootstrap.h"

enum exit_watch {
    EXIT_WATCHED,    /* *descriptor becomes readable when the process ends; the caller closes it */
    EXIT_ENDED,      /* it has ended */
    EXIT_CANNOT_TELL /* another host or pid namespace, this process, or the system refuses */
};

/* Descriptor of the process that made the record, never of another that has its number now. */
enum exit_watch exit_watch_open(const struct bootstrap_record *own,
                                const struct bootstrap_record *peer, int *descriptor);

#endif
