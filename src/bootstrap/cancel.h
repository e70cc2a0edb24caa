/* Giving up a join from another thread. Whoever joins a job in a thread of its own attaches a flag
 * to that thread; the few places of bootstrap that block look at it at least every CANCEL_LOOK_MS,
 * and end as at their deadline once it is raised. In threads without a flag nothing changes. */
#ifndef BOOTSTRAP_CANCEL_H
#define BOOTSTRAP_CANCEL_H

#include <stdbool.h>
#include <stdint.h>

/* How long a raised flag stays unseen; a caller's store is asked in pieces of this length. */
#define CANCEL_LOOK_MS 250

/* NULL: none any more. */
void cancel_attach(const _Atomic bool *raised);
bool cancel_is_raised(void);
/* Until when the calling thread may block of a wait that lasts until `deadline_ns`. */
int64_t cancel_look_ns(int64_t deadline_ns);
/* Whether a wait is over: its deadline has passed, or the flag is raised. */
bool cancel_or_passed(int64_t deadline_ns);

#endif
