/* The control thread: one per process, from the first job to the last. It sleeps in epoll with all
 * signals blocked, accepts connections for all jobs of the process, and hands them on. It never
 * touches user data and never waits for a progress domain. */
#ifndef BOOTSTRAP_CONTROL_H
#define BOOTSTRAP_CONTROL_H

#include "net/handshake.h"

/* One rank of one job in this process, as the control thread knows it. The calls come from the
 * control thread; they must not block. */
struct control_job {
    struct net_identity identity;
    int nranks;
    void *context;
    /* purpose >= NET_PURPOSE_DATA: whether to let the peer in, and what to give it. */
    enum net_verdict (*judge)(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors);
    /* Takes a finished connection (purpose >= NET_PURPOSE_DATA). */
    void (*admitted)(void *context, const struct net_hello *hello, int socket,
                     const int *descriptors, int ndescriptors);
};

/* Starts the thread or joins those who use it; fills where it listens. Settings of the first
 * caller decide port range and interfaces. Errors: ROTA_ERR_SYSTEM, ROTA_ERR_SETTING. */
rota_status control_acquire(const struct settings *settings, struct net_addresses *addresses);
void control_release(void);
/* Adds a job's rank; connections for it are answered NET_REFUSED_TARGET before. `job` outlives its
 * registration. Errors: ROTA_ERR_MISMATCH when (job id, rank) is registered already. */
rota_status control_register(struct control_job *job);
/* After it returns no call-back for this job runs any more. */
void control_unregister(struct control_job *job);

#endif
