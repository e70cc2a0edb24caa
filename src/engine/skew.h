/* Arrival skew: how long a rank waited for each peer of a communicator. The table is made by the
 * first wait that is worth a clock reading, and outlives the communicator while a waiter holds it.
 */
#ifndef ENGINE_SKEW_H
#define ENGINE_SKEW_H

#include <rota/types.h>
#include <stdatomic.h>

struct domain_wait;

struct skew_entry {
    _Atomic uint64_t waited_ns, waits;
};

struct skew {
    _Atomic int references;
    int nranks;
    struct skew_entry peers[];
};

/* The communicator's table, made when there is none; NULL without memory. Any thread that is inside
 * a call on the communicator, or the domain. */
struct skew *skew_of(rota_comm *comm);
void skew_drop(struct skew *skew);
size_t skew_memory(const rota_comm *comm);
/* Books `ns` for a peer; `fresh`: it is a new wait. Peers out of range are ignored. */
void skew_add(struct skew *skew, int peer, int64_t ns, bool fresh);

/* Most peers that one sample charges. */
#define SKEW_MAX_PEERS 16

/* How a thread that waits for a request watches whom it waits for. Zero-initialise. */
struct skew_watch {
    struct skew *skew;         /* a reference */
    int peers[SKEW_MAX_PEERS]; /* of the last sample */
    int npeers;
    int64_t since_ns; /* not charged yet; 0: nothing */
    uint32_t pauses;  /* since the wait last saw something happen */
};

/* Before a turn of a wait that nothing has happened in yet: looks, now and then, whom the request
 * waits for. Outside the domain. */
void skew_watch_pause(struct skew_watch *watch, rota_request *request,
                      const struct domain_wait *wait);
/* The wait is over: charges the time since the last sample. */
void skew_watch_end(struct skew_watch *watch);

#endif
