/* Collectives that a native form runs. Which calls those are depends only on what all ranks know.
 */
#ifndef ENGINE_NATIVE_RUN_H
#define ENGINE_NATIVE_RUN_H

#include "engine/comm.h"

/* The form that runs a blocking call at once, or NULL. */
const struct native_form *native_form_of_call(const rota_comm *comm, const struct call_args *args,
                                              const struct reduce_spec *spec, size_t bytes,
                                              const rota_call *call);
/* Whether the communicator, which has native forms, may run one at once: it works, and nothing is
 * queued before. */
static inline bool native_may_run(const rota_comm *comm) {
    return atomic_load_explicit(&comm->outstanding, memory_order_acquire) == 0 &&
           atomic_load_explicit(&comm->status, memory_order_relaxed) == ROTA_OK &&
           !comm->finalized &&
           atomic_load_explicit(&comm->native_state, memory_order_acquire) == NATIVE_READY;
}
/* The fast path: a blocking call that a native form runs at once in this thread. */
rota_status native_run(rota_comm *comm, const struct call_args *args,
                       const struct native_form *form, const struct reduce_spec *spec, size_t bytes,
                       uint64_t fingerprint, const rota_call *call);
/* Inside the domain: asks whether the group has met. Returns true once that is known. */
bool native_connect(rota_comm *comm);
/* Inside the domain: goes on with a request that a form runs. Returns whether anything happened. */
bool native_advance(rota_request *request);

#endif
