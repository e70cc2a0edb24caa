/* A PMI server for tests: what hydra is to its ranks, in a process of its own. */
#ifndef TEST_PMI_SERVER_H
#define TEST_PMI_SERVER_H

#include <sys/types.h>

#define PMI_MAX_RANKS 16

struct pmi_server {
    int nranks;
    int version;    /* the only one that it speaks */
    int value_size; /* vallen_max */
    /* Answers in order, instead of what is right; NULL ends them, "" hangs up. */
    const char *const *script;
    int sockets[PMI_MAX_RANKS]; /* the ranks' ends, filled by pmi_server_start */
    pid_t pid;
};
void pmi_server_start(struct pmi_server *server);
void pmi_server_stop(struct pmi_server *server);

#endif
