/* Which algorithm runs a call. */
#ifndef ENGINE_SELECT_H
#define ENGINE_SELECT_H

#include "engine/comm.h"

/* The algorithm for a call; the same on all ranks, since it depends only on what all of them know.
 * `forced` is the call's own wish, an order; the setting ROTA_ALGORITHM is followed wherever it
 * fits. One that does not keep what the mode promises is refused, both as a wish and as a setting;
 * where only the operator asks for a tree, the setting is passed by.
 * NULL and an error raised when there is none. */
const struct algorithm *select_algorithm(rota_comm *comm, const char *forced,
                                         const struct call_args *args,
                                         const struct reduce_spec *spec);

#endif
