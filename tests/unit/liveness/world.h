/* A job of which only liveness runs: ranks as processes or as threads, driven by orders in shared
 * memory, where they also write down what they are told. */
#ifndef TESTS_LIVENESS_WORLD_H
#define TESTS_LIVENESS_WORLD_H

#include "base/clock.h"
#include "liveness/liveness.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>

#define WORLD_RANKS 8
#define WORLD_AGREEMENTS 64

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s failed\n", __FILE__, __LINE__, #condition);                 \
            world_dump();                                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum order_type {
    ORDER_WATCH = 1,
    ORDER_SEND,
    ORDER_SUSPECT,
    ORDER_AGREE,
    ORDER_FORK,
    ORDER_CLOSE
};
struct order {
    enum order_type type;
    int peer, evidence;
    const char *text;
    uint64_t flags;  /* AGREE */
    uint32_t number; /* AGREE: highest; topic number for it */
};

struct rank_log {
    struct bootstrap_record record;
    _Atomic int open, closed, verdicts, messages, isolated, agreements, cleared[WORLD_RANKS];
    _Atomic int descriptors; /* more than before, after the end */
    int64_t verdict_ns, isolated_ns;
    uint32_t epoch;
    rota_status status;
    uint32_t failed; /* bit per rank, of all verdicts */
    char text[256], isolated_text[256], message[64];
    uint32_t unreached;
    struct {
        uint32_t number, highest, failed;
        uint64_t flags;
        int64_t ns;
    } agreed[WORLD_AGREEMENTS];
    struct order order;
    _Atomic int ordered, done; /* orders given and carried out */
};

struct world {
    int nranks;
    bool threads, pretend_hosts, no_pidfd;
    uint8_t key[NET_KEY_BYTES], job[16];
    pid_t pids[WORLD_RANKS];
    _Atomic int described;
    struct rank_log ranks[WORLD_RANKS];
};
extern struct world *world;

/* Network namespaces for the ranks to be in, set before world_start; "": where we are. */
extern char world_spaces[WORLD_RANKS][64];

enum world_kind { WORLD_PROCESSES, WORLD_THREADS };
/* hosts: each rank claims a host of its own, so that only connections tell. */
void world_start(int nranks, enum world_kind kind, bool hosts, bool no_pidfd);
void world_end(void);
/* Without waiting for it to be carried out. */
void order_post(int rank, struct order order);
void order_wait(int rank);
void order(int rank, struct order order);
void order_all(struct order order); /* to all that are not gone */
void world_kill(int rank, int signal);
void world_reap(int rank);
/* Waits until *counter >= value; false after ms. */
bool wait_for(_Atomic int *counter, int value, int ms);
void world_dump(void);

#endif
