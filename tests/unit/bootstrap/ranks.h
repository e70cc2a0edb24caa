/* Ranks as forked processes that meet, and what came of it. */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include "bootstrap/bootstrap.h"

#define MAX_TEST_RANKS 256

struct rank_result {
    rota_status status;
    rota_error error;
    int64_t took_ms, cpu_ms;
    uint64_t table_hash;    /* of the records */
    uint64_t identity_hash; /* of key and job id */
    int descriptors_left;
    bool ended;
};

struct rank_spec {
    int rank, nranks;
    int delay_ms;
    int fork_after_ms; /* after the process of the spec before */
    int64_t timeout_ms;
    const char *environment[8]; /* NAME=VALUE */
    const rota_unique_id *id;
    rota_all_gather_fn all_gather;
    void *all_gather_arg;
    const rota_store *store;
};

/* Runs one process per spec and waits for all. Results are in shared memory. */
struct rank_result *ranks_run(const struct rank_spec *specs, int count);
/* What one rank does: locate, describe, exchange. */
void rank_meet(const struct rank_spec *spec, struct rank_result *result);
int count_descriptors(void);
int count_threads(void);

#endif
