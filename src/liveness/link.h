/* Control connections to peers: made when needed, by the one authenticated connect and accept, and
 * closed when unused. Of each pair there is one connection, for both directions. Everything runs on
 * the control thread. Internal to liveness. */
#ifndef LIVENESS_LINK_H
#define LIVENESS_LINK_H

#include "liveness/wire.h"

/* How a peer refused: all its addresses (or the one by which it was reached before) said no. */
enum link_refusal {
    LINK_REFUSED, /* nobody listens */
    LINK_ABSENT   /* its process does not have that rank of the job */
};

struct link_events {
    void *context;
    /* False: it is not sound; the connection is closed. */
    bool (*frame)(void *context, int from, const struct wire_header *header,
                  const uint8_t *payload);
    /* Connecting was refused. `met`: and it had been possible: to that rank of the process before,
     * or (LINK_REFUSED) until its last connection broke, unless that was a local one: those are
     * refused by nobody else. `first_ns`: since when without interruption. */
    void (*refused)(void *context, int peer, enum link_refusal refusal, bool met, int64_t first_ns);
};

struct links;

/* Watches its descriptors in `epoll`, with (tag << 32 | peer) as data. NULL: no memory. */
struct links *links_create(const struct net_identity *identity, int nranks,
                           const struct bootstrap_record *records, int epoll, uint32_t tag,
                           const struct link_events *events);
/* Sends what can be sent at once, then closes all. */
void links_destroy(struct links *links);
/* In the child of a fork: closes the parent's descriptors here and leaves the memory alone. */
void links_close_inherited(struct links *links);

/* Best effort, in order; connects if need be. False: too much waits already. */
bool links_send(struct links *links, int peer, enum wire_type type, uint32_t epoch,
                const void *payload, size_t bytes);
/* Whether a connection is to be kept, and made again when it breaks. */
void links_want(struct links *links, int peer, bool wanted);
/* Drops connection, queue and want. */
void links_drop(struct links *links, int peer);
/* Whether frames for the peer wait to be sent. */
bool links_unsent(const struct links *links, int peer);
bool links_open(const struct links *links, int peer);

enum net_verdict links_judge(struct links *links, const struct net_hello *hello);
void links_admit(struct links *links, const struct net_hello *hello, int socket);

/* The descriptor of `peer` is ready. */
void links_ready(struct links *links, int peer);
int64_t links_deadline(const struct links *links);
void links_tick(struct links *links);

#endif
