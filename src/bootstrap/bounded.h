/* Calls of other libraries that may block for ever (name resolution, PMIx), ended for us by a
 * deadline. Internal to bootstrap. */
#ifndef BOOTSTRAP_BOUNDED_H
#define BOOTSTRAP_BOUNDED_H

#include <rota/status.h>
#include <stdbool.h>
#include <stdint.h>

/* Runs call(argument) in a thread of its own, all signals blocked there, and waits for it. *late:
 * it has not returned by the deadline, or before this was given up (cancel.h); it is left behind
 * then, and with it the argument, on which that thread calls `discard` if the call ever returns.
 * Errors: ROTA_ERR_SYSTEM, ROTA_ERR_MEMORY (nothing was called; the argument stays the caller's).
 */
rota_status bounded_call(void (*call)(void *argument), void (*discard)(void *argument),
                         void *argument, int64_t deadline_ns, bool *late);

#endif
