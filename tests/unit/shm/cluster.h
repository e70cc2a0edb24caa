/* Ranks of the shared-memory transport inside one process, connected without any network: the
 * tests' stand-in for engine and bootstrap. Ranks become processes by fork after connecting, or
 * threads. */
#ifndef TESTS_UNIT_SHM_CLUSTER_H
#define TESTS_UNIT_SHM_CLUSTER_H

#include "transports/shm/shm.h"

#define CLUSTER_MAX 12

struct cluster_rank {
    struct transport_host host;
    struct doorbell_line *line;
    struct net_identity identity;
    struct transport_peer peers[CLUSTER_MAX];
    struct net_addresses addresses[CLUSTER_MAX];
    struct transport *transport;
    int connected, unreachable, failed; /* call-backs so far */
    const char *text;                   /* of the last unreachable or peer_failed */
};

struct cluster {
    int n;
    struct settings *settings;
    struct cluster_rank *ranks;
};

/* What stream_open is given as owner, for counting call-backs. */
struct cluster_owner {
    int arrived, writable;
};

/* Opens n ranks; aborts the test program on failure. */
void cluster_open(struct cluster *cluster, int n);
/* Connects a pair, as an accepted connection on both sides. `descriptors` NULL: the right ones,
 * else two descriptors that rank b shows in place of its own. */
void cluster_connect(struct cluster *cluster, int a, int b, const int *descriptors);
void cluster_connect_all(struct cluster *cluster);
void cluster_progress(struct cluster *cluster);
void cluster_close(struct cluster *cluster);

/* A wait for native forms that spins and then yields; stops after 60 s. */
struct cluster_wait {
    struct native_wait wait;
    int64_t deadline_ns;
    bool impatient; /* stops at once */
    bool crowded;   /* yields at every turn */
    bool stopped;
};
void cluster_wait_init(struct cluster_wait *wait);

/* Opens n connected ranks, makes n - 1 of them processes of their own, and runs `body` on all.
 * Returns when all are done; a failed one fails the test. */
void cluster_run(int n, void (*body)(struct cluster *cluster, int rank, void *arg), void *arg);
/* Opens and connects a native group of the ranks 0 .. n - 1. */
struct native_group *cluster_group(struct cluster *cluster, int rank, uint32_t comm, int n);

/* A check that holds in every build. */
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition))                                                                          \
            cluster_fail(__FILE__, __LINE__, #condition);                                          \
    } while (0)
_Noreturn void cluster_fail(const char *file, int line, const char *condition);

#endif
