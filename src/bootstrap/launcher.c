/* What launchers say in the environment. Each is recognised by variables that it sets for the ranks
 * of a job and for nothing else: a Slurm batch script has a SLURM_PROCID, but is no step. */
#include "bootstrap/launcher.h"
#include "base/error.h"
#include "bootstrap/message.h"
#include <errno.h>
#include <limits.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Where rank 0 of a Slurm step listens: a block of ports per step, below the ephemeral ports of
 * Linux (32768), and the first free one in the block; docs/launching.md names the range. */
#define SLURM_FIRST_PORT 20000
#define SLURM_BLOCKS 768
#define SLURM_BLOCK_PORTS 16

bool launcher_is_set(const char *name) {
    const char *text = getenv(name);
    return text != NULL && text[0] != 0;
}

rota_status launcher_number(const char *name, long most, int *value) {
    const char *text = getenv(name);
    char *end;
    errno = 0;
    long number = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != 0 || errno != 0 || number > most)
        return error_raise(ROTA_ERR_SETTING, "%s=\"%.60s\": expected an integer from 0 to %ld",
                           name, text, most);
    *value = (int)number;
    return ROTA_OK;
}

/* Rank and size from two variables that are set. */
static rota_status take_ranks(const char *rank_name, const char *size_name,
                              struct bootstrap_place *place) {
    rota_status status = launcher_number(size_name, BOOTSTRAP_MAX_RANKS, &place->nranks);
    if (status == ROTA_OK && place->nranks == 0)
        return error_raise(ROTA_ERR_SETTING, "%s is 0: expected a number of ranks", size_name);
    return status == ROTA_OK ? launcher_number(rank_name, place->nranks - 1, &place->rank) : status;
}

static const char *slurm_size(void) {
    return launcher_is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

static bool in_slurm_step(void) {
    return launcher_is_set("SLURM_PROCID") && launcher_is_set("SLURM_STEP_ID") &&
           launcher_is_set(slurm_size()) && launcher_is_set("SLURM_JOB_ID") &&
           launcher_is_set("SLURM_STEP_NODELIST");
}

static bool by_open_mpi(void) {
    return launcher_is_set("OMPI_COMM_WORLD_RANK") && launcher_is_set("OMPI_COMM_WORLD_SIZE");
}

static bool by_pmix(void) {
    return launcher_is_set("PMIX_RANK") && launcher_is_set("PMIX_NAMESPACE");
}

/* PMIx tells the rank; the size is the server's secret unless a companion tells it. */
static rota_status find_by_pmix(struct bootstrap_place *place) {
    place->launcher = LAUNCHER_PMIX;
    if (by_open_mpi())
        return take_ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", place);
    if (in_slurm_step())
        return take_ranks("SLURM_PROCID", slurm_size(), place);
    place->nranks = 0;
    return launcher_number("PMIX_RANK", BOOTSTRAP_MAX_RANKS - 1, &place->rank);
}

static rota_status find_by_pmi(struct bootstrap_place *place) {
    bool rank = launcher_is_set("PMI_RANK"), size = launcher_is_set("PMI_SIZE");
    place->launcher = LAUNCHER_PMI;
    if (rank && size)
        return take_ranks("PMI_RANK", "PMI_SIZE", place);
    if (launcher_is_set("PMI_FD"))
        return error_raise(ROTA_ERR_SETTING, "PMI_FD is set but %s is not",
                           rank ? "PMI_SIZE" : "PMI_RANK");
    place->nranks = 0;
    place->rank = -1;
    return ROTA_OK;
}

rota_status launcher_find(struct bootstrap_place *place) {
    if (by_pmix() && pmix_available())
        return find_by_pmix(place);
    if (launcher_is_set("PMI_FD") || (launcher_is_set("PMI_PORT") && launcher_is_set("PMI_ID")))
        return find_by_pmi(place);
    if (in_slurm_step()) {
        place->launcher = LAUNCHER_SLURM;
        return take_ranks("SLURM_PROCID", slurm_size(), place);
    }
    if (by_open_mpi()) {
        place->launcher = LAUNCHER_OPEN_MPI;
        return take_ranks("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", place);
    }
    if (by_pmix())
        return error_raise(ROTA_ERR_SETTING,
                           "the launcher speaks PMIx (PMIX_RANK and PMIX_NAMESPACE are set), but "
                           "libpmix.so.2 was not found: add its folder to LD_LIBRARY_PATH, or set "
                           "ROTA_RANK, ROTA_SIZE and ROTA_ROOT");
    return ROTA_OK;
}

/* -- places without a server -------------------------------------------------------------------
 */

static uint64_t hash_text(const char *text) {
    uint8_t hash[crypto_generichash_BYTES];
    uint64_t number;
    crypto_generichash(hash, sizeof hash, (const unsigned char *)text, strlen(text), NULL, 0);
    memcpy(&number, hash, sizeof number);
    return number;
}

static const char *text_of(const char *name) {
    const char *text = getenv(name);
    return text != NULL ? text : "";
}

static rota_status slurm_root(struct bootstrap_place *place, char *root, size_t size) {
    char host[256];
    if (hostlist_first(text_of("SLURM_STEP_NODELIST"), host, sizeof host) != ROTA_OK)
        return error_raise(ROTA_ERR_SETTING,
                           "SLURM_STEP_NODELIST=\"%.80s\": expected a list of hosts such as "
                           "node[01-03,7],other",
                           text_of("SLURM_STEP_NODELIST"));
    snprintf(place->job_text, sizeof place->job_text, "slurm %.60s %.30s.%.30s of user %u",
             text_of("SLURM_CLUSTER_NAME"), text_of("SLURM_JOB_ID"), text_of("SLURM_STEP_ID"),
             (unsigned)getuid());
    uint64_t block = hash_text(place->job_text) % SLURM_BLOCKS;
    place->root_candidates = SLURM_BLOCK_PORTS - 1;
    int length =
        snprintf(root, size, "%s:%u", host, SLURM_FIRST_PORT + (unsigned)block * SLURM_BLOCK_PORTS);
    if (length < 0 || length >= (int)size)
        return error_raise(ROTA_ERR_SETTING, "SLURM_STEP_NODELIST begins with too long a name");
    return ROTA_OK;
}

/* Open MPI without libpmix: on one host a local socket named for the job will do. */
static rota_status open_mpi_root(struct bootstrap_place *place, char *root, size_t size) {
    const char *job = launcher_is_set("PMIX_NAMESPACE") ? text_of("PMIX_NAMESPACE")
                                                        : text_of("OMPI_MCA_ess_base_jobid");
    const char *server = launcher_is_set("PMIX_SERVER_URI2") ? text_of("PMIX_SERVER_URI2")
                                                             : text_of("OMPI_MCA_orte_hnp_uri");
    int local = 0;
    rota_status status = ROTA_OK;
    if (launcher_is_set("OMPI_COMM_WORLD_LOCAL_SIZE"))
        status = launcher_number("OMPI_COMM_WORLD_LOCAL_SIZE", INT_MAX, &local);
    if (status != ROTA_OK)
        return status;
    if (local != place->nranks || job[0] == 0 || server[0] == 0)
        return error_raise(ROTA_ERR_SETTING,
                           "Open MPI started this job on several hosts, but libpmix.so.2 was not "
                           "found: add its folder to LD_LIBRARY_PATH, or set ROTA_ROOT to "
                           "HOST:PORT of rank 0");
    snprintf(place->job_text, sizeof place->job_text, "open mpi %.80s %.120s of user %u", job,
             server, (unsigned)getuid());
    snprintf(root, size, "@rota-%016llx", (unsigned long long)hash_text(place->job_text));
    return ROTA_OK;
}

rota_status launcher_root(struct bootstrap_place *place, char *root, size_t size) {
    return place->launcher == LAUNCHER_SLURM ? slurm_root(place, root, size)
                                             : open_mpi_root(place, root, size);
}
