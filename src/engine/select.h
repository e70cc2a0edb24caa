/* Which algorithm runs a call, and what the others would cost. */
#ifndef ENGINE_SELECT_H
#define ENGINE_SELECT_H

#include "engine/comm.h"
#include <rota/selection.h>

/* The algorithm for a call; the same on all ranks, since it depends only on what all of them know.
 * `forced` is the call's own wish, an order; the setting ROTA_ALGORITHM is followed wherever it
 * fits, then the rules, and else the cheapest is taken. One that does not keep what the mode
 * promises is refused, as a wish, as a setting and as a rule; where only the operator asks for a
 * tree, the setting is passed by. NULL and an error raised when there is none. */
const struct algorithm *select_algorithm(rota_comm *comm, const char *forced,
                                         const struct call_args *args,
                                         const struct reduce_spec *spec);
/* Whether a rule orders the algorithm, so that no native form may run the call. */
bool select_by_rule(const rota_comm *comm, const struct call_args *args);
/* Inside the domain: the index-th candidate for a call; see rota_comm_candidate. Sets
 * args->numerics and all but size. False past the last one, and `count` is set. */
bool select_candidate(rota_comm *comm, struct call_args *args, const struct reduce_spec *spec,
                      const rota_call *call, int index, rota_candidate *candidate);
void select_free(rota_comm *comm);
/* Bytes that it holds. */
size_t select_memory(const rota_comm *comm);

#endif
