/* Bootstrap: how the ranks of a job learn of each other. Each contributes one record; each gets
 * all. Back-ends: sockets (by unique id or by a known root), a key-value store (the caller's, or a
 * launcher's) that leads to the sockets, the caller's all-gather, threads of one process. */
#ifndef BOOTSTRAP_BOOTSTRAP_H
#define BOOTSTRAP_BOOTSTRAP_H

#include "bootstrap/control.h"
#include <rota/comm.h>

#define BOOTSTRAP_TRANSPORTS 6
#define BOOTSTRAP_BLOB 64

/* What every rank tells every other. Fixed layout: it is sent. */
struct bootstrap_record {
    uint32_t magic; /* NET_MAGIC */
    uint16_t protocol_first, protocol_last;
    uint32_t rank, nranks;
    uint64_t incarnation;
    uint64_t agreement; /* settings_agreement */
    int32_t pid;
    uint32_t cores;      /* usable cores of this process */
    uint8_t machine[16]; /* hash of ROTA_HOST_ID, or of boot id and host name: equal = same host */
    uint8_t process[16]; /* random per process: equal = threads of one process */
    char host[64];       /* host name, for messages */
    struct net_addresses addresses;
    uint32_t transports; /* bit per transports.def entry that works here */
    uint32_t first_core; /* the lowest of the usable cores: launchers may bind ranks to cores */
    uint16_t blob_bytes[BOOTSTRAP_TRANSPORTS + 2];
    uint8_t blobs[BOOTSTRAP_TRANSPORTS][BOOTSTRAP_BLOB];
    uint64_t pid_space; /* equal: `pid` names the same process there and here; 0: unknown */
    uint64_t started;   /* when the process started, as process_started says; 0: unknown */
};
_Static_assert(sizeof(struct bootstrap_record) == 696, "bootstrap_record is sent over the wire");

/* Where a job is met and who we are in it. */
struct bootstrap_place {
    int nranks, rank;
    struct net_identity identity; /* key and job id, filled by bootstrap_locate */
    enum {
        BOOTSTRAP_SINGLE,
        BOOTSTRAP_ROOT,
        BOOTSTRAP_ID,
        BOOTSTRAP_CALLBACK,
        BOOTSTRAP_STORE,   /* the caller's; becomes ID */
        BOOTSTRAP_LAUNCHER /* by the launcher's server; becomes ID or SINGLE */
    } way;
    enum { LAUNCHER_NONE, LAUNCHER_PMIX, LAUNCHER_PMI, LAUNCHER_SLURM, LAUNCHER_OPEN_MPI } launcher;
    struct net_addresses root; /* ID: where it is served; ROOT: local_name of @NAME */
    char root_name[256];       /* ROOT: HOST:PORT, resolved while joining */
    bool serves;               /* ROOT: this rank opens the listener */
    int root_offset;           /* ROOT by torchrun, Slurm: first port, relative to root_name's, */
    int root_candidates;       /* and how many more after it (see rendezvous in exchange.c) */
    char job_text[256];        /* what a launcher says of the job: part of a derived key */
    rota_store store;
    int64_t timeout_ms; /* set by the caller: of the whole call, for messages; 0: what is left */
    bool made_id;       /* this rank serves the id that a store told the others */
    rota_all_gather_fn all_gather;
    void *all_gather_arg;
};

/* Finds out from config and environment; derives key and job id. Errors: ROTA_ERR_ARGUMENT,
 * ROTA_ERR_SETTING (naming the variable). */
rota_status bootstrap_locate(const rota_config *config, const struct settings *settings,
                             struct bootstrap_place *place);
/* With the caller's all-gather: takes rank 0's key and job id, so that this rank can listen for
 * its peers before the table is there. With a store: gets rank 0's unique id. From here on nranks
 * and identity are known. Nothing to do in the other ways. Errors: ROTA_ERR_TIMEOUT,
 * ROTA_ERR_SYSTEM, ROTA_ERR_FORMAT, ROTA_ERR_ARGUMENT. */
rota_status bootstrap_agree_identity(struct bootstrap_place *place, int64_t deadline_ns);
/* After a failure: ends what this rank served for the others. */
void bootstrap_withdraw(struct bootstrap_place *place);
/* Exchanges records: `mine` in, nranks records in rank order out. The callback back-end may replace
 * place->identity's key and job id (rank 0's are taken) before it returns. Checks that ranks are
 * distinct and that sizes, protocols and agreements match. Never spins; ends by the deadline.
 * Errors: ROTA_ERR_TIMEOUT (culprits: the missing ranks), ROTA_ERR_MISMATCH, ROTA_ERR_SYSTEM. */
rota_status bootstrap_exchange(struct bootstrap_place *place, const struct settings *settings,
                               const struct bootstrap_record *mine,
                               struct bootstrap_record *records, int64_t deadline_ns);
/* How many cores the ranks on the host of `rank` may use together: ranks with the same first core
 * and number of cores share them, and others have cores of their own. At least 1. */
int bootstrap_host_cores(const struct bootstrap_record *records, int nranks, int rank);
/* Fills the parts of a record that do not depend on the job: pid, cores, machine, process, host. */
rota_status bootstrap_describe(const struct settings *settings, struct bootstrap_record *record);

/* Makes a unique id and serves its rendezvous on the control thread until the job has met (or the
 * process ends). The 128 bytes: magic, version, key, job id, addresses of this process. */
rota_status bootstrap_unique_id(rota_unique_id *id);

#endif
