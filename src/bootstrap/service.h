/* What the control thread does for bootstrap itself, beside the jobs of control.h: connections of
 * one purpose for one (job, rank), and descriptors with deadlines to watch. */
#ifndef BOOTSTRAP_SERVICE_H
#define BOOTSTRAP_SERVICE_H

#include "bootstrap/control.h"
#include <uthash.h>

enum control_kind {
    CONTROL_RENDEZVOUS = NET_PURPOSE_RENDEZVOUS,
    CONTROL_TABLE = NET_PURPOSE_TABLE,
    CONTROL_PLANE = NET_PURPOSE_CONTROL,
    CONTROL_DATA = NET_PURPOSE_DATA
};
#define CONTROL_ANY_RANK UINT32_MAX

struct control_service_key {
    uint8_t job[16];
    uint32_t rank; /* that is wanted, CONTROL_ANY_RANK for a rendezvous */
    uint32_t kind;
};
_Static_assert(sizeof(struct control_service_key) == 24, "hashed whole: no padding");

struct control_service {
    struct control_service_key key;
    struct net_identity identity;
    void *context;
    enum net_verdict (*judge)(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors); /* NULL: always GO, without descriptors */
    void (*admitted)(void *context, const struct net_hello *hello, int socket,
                     const int *descriptors, int ndescriptors);
    /* The control thread ended with the service still there; NULL: nothing to do. */
    void (*orphaned)(struct control_service *service);
    UT_hash_handle hh;
};
/* The caller holds a reference to the control thread (control_acquire). Errors:
 * ROTA_ERR_MISMATCH when the key is taken, ROTA_ERR_STATE without control thread. */
rota_status control_service_add(struct control_service *service);
/* After it returns no call-back of the service runs any more, unless it is called by one. Not to
 * be called by `judge`. False when the service is not there: in the child of a fork, or when its
 * control thread is ending. */
bool control_service_remove(struct control_service *service);
/* The same by key, for a service that may be gone already; NULL when it is. */
struct control_service *control_service_take(const struct control_service_key *key);

/* A descriptor and a deadline; `ready` is called on the control thread when the one is readable or
 * the other passed, and may change deadline_ns or remove the watch. */
struct control_watch {
    int descriptor;
    int64_t deadline_ns; /* CLOCK_NEVER: none */
    void *context;
    void (*ready)(void *context);
    struct control_watch *next;
};
rota_status control_watch_add(struct control_watch *watch);
void control_watch_remove(struct control_watch *watch);

#endif
