/* Launchers: what they say in the environment, and their key-value stores. Internal to bootstrap.
 */
#ifndef BOOTSTRAP_LAUNCHER_H
#define BOOTSTRAP_LAUNCHER_H

#include "bootstrap/bootstrap.h"

/* A launcher's variable as an integer from 0 to `most`; it is set. ROTA_ERR_SETTING. */
rota_status launcher_number(const char *name, long most, int *value);
bool launcher_is_set(const char *name);

/* Finds rank, size and place->launcher in the variables of PMIx, PMI, Slurm or Open MPI, in this
 * order; place->launcher stays LAUNCHER_NONE where there is nothing of them. nranks is 0 where only
 * the launcher's server knows it; PMI may leave the rank to its server too (-1).
 * Errors: ROTA_ERR_SETTING (naming the variable). */
rota_status launcher_find(struct bootstrap_place *place);
/* Where a job is met that Slurm's or Open MPI's variables alone describe, in the form of ROTA_ROOT.
 * Errors: ROTA_ERR_SETTING. */
rota_status launcher_root(struct bootstrap_place *place, char *root, size_t size);

/* Meeting by the launcher's server; the same as store_agree (store.h). */
rota_status pmi_agree(struct bootstrap_place *place, int64_t deadline_ns);
rota_status pmix_agree(struct bootstrap_place *place, int64_t deadline_ns);
/* Whether there is a libpmix for this process. */
bool pmix_available(void);

/* The first host of a list in Slurm's form, "a[01-03,7]b,c" -> "a01b". ROTA_ERR_FORMAT. */
rota_status hostlist_first(const char *list, char *host, size_t size);

#endif
