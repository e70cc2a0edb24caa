/* The numerics modes: what a mode asks of an algorithm, and how partials of narrow types are kept.
 * Which algorithms keep a promise is proven by the verifier (schedule/verify.h), once per
 * communicator, algorithm, kind and root, when it is first asked. */
#ifndef ENGINE_NUMERICS_H
#define ENGINE_NUMERICS_H

#include "engine/comm.h"

/* The mode of a call: its own, else the communicator's; of kinds that do not reduce `equal`. */
static inline rota_numerics numerics_of_call(const rota_comm *comm, rota_kind kind,
                                             const rota_call *call) {
    if (!sched_kind_reduces(kind))
        return ROTA_NUMERICS_EQUAL;
    if (call != NULL && call->numerics != ROTA_NUMERICS_DEFAULT)
        return call->numerics;
    return (rota_numerics)atomic_load_explicit(&comm->numerics, memory_order_relaxed);
}

/* Whether partials are elements, rounded wherever one is stored: mode fast, and sums, products and
 * averages of narrow floating-point types. */
bool numerics_rounds_partials(rota_numerics mode, const struct reduce_spec *spec);
static inline size_t numerics_partial_size(rota_numerics mode, const struct reduce_spec *spec) {
    return numerics_rounds_partials(mode, spec) ? spec->element_size : spec->partial_size;
}
/* Completes a request whose args.numerics and spec are set. */
rota_status numerics_prepare(rota_request *request);

/* Inside the domain: whether an algorithm that can do the kind keeps what the mode asks of it. The
 * same on all ranks. */
bool numerics_allows(rota_comm *comm, const struct algorithm *algorithm, rota_kind kind, int root,
                     rota_numerics mode);
void numerics_free(rota_comm *comm);

#endif
