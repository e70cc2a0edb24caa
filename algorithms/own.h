/* Algorithms that the program registered: by a function, or from a file of schedules. */
#ifndef ALGORITHMS_OWN_H
#define ALGORITHMS_OWN_H

#include "algorithms/algorithm.h"
#include "schedule/text.h"
#include <rota/algorithm.h>

/* They live until the process ends. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. */
rota_status own_register(const char *name, uint32_t kinds, rota_algorithm_fn function, void *arg);
/* Takes the set, which holds all ranks, and empties it; verifies it, and registers it if it is
 * right. Errors: those, ROTA_ERR_UNSUPPORTED. */
rota_status own_register_set(const char *name, struct sched_set *set);

/* In the order of registration; NULL past the end, or when there is none of that name. */
const struct algorithm *own_at(int index);
const struct algorithm *own_find(const char *name);

/* Whether it has schedules for that many ranks. */
bool own_fits(const struct algorithm *algorithm, int nranks);
/* The schedule of a rank; in place it is the form that the proof settled on. */
rota_status own_build(const struct algorithm *algorithm, const struct algorithm_request *request,
                      struct sched **schedule);
/* ROTA_OK when it was proven, out of place, in place and mixed; else ROTA_ERR_UNSUPPORTED with the
 * verifier's sentence. Proofs are kept. */
rota_status own_prove(const struct algorithm *algorithm, rota_kind kind, int nranks, int root);
/* Chunks of the widest message of any rank, of what was proven. */
uint32_t own_widest(const struct algorithm *algorithm, rota_kind kind, int nranks, int root);

#endif
