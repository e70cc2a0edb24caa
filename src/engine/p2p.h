/* Point to point: one stream per (peer, tag); a message travels as slices, the first of which tells
 * the whole length. Functions are called inside the progress domain unless they say otherwise. */
#ifndef ENGINE_P2P_H
#define ENGINE_P2P_H

#include <rota/types.h>
#include <transports/transport.h>

/* Slices of one message under way at a time. */
#define P2P_WINDOW 4
/* Messages of p2p_run_again. */
#define P2P_AGAIN_BYTES 4096

struct call_args;
struct p2p_table;
struct p2p_lane; /* one (peer, tag) */

struct p2p_post {
    struct transport_ticket ticket; /* first: done gets its address */
    rota_request *request;
    size_t bytes;
    bool active;
};

/* Part of a request. */
struct p2p_state {
    struct p2p_lane *lane; /* NULL while a receive from any source has not found one */
    size_t bytes;          /* of the user's buffer */
    size_t total;          /* of the message; a receive learns it from the first slice */
    size_t announced;      /* bytes handed to the transport, or announced to it */
    size_t finished;       /* bytes that have left, or have come */
    size_t taken;          /* bytes copied of the slice that comes */
    bool begun;            /* the first slice was handed over, or has come */
    bool first_announced;
    int pending; /* posts under way */
    struct p2p_post posts[P2P_WINDOW];
};

struct p2p_table *p2p_table_create(rota_comm *comm);
void p2p_table_destroy(struct p2p_table *table);
/* Bytes that it holds. */
size_t p2p_memory(const struct p2p_table *table);
/* Starts a send or receive; it may end at once. */
void p2p_start(rota_request *request);
/* How far a receive has come before it became a request. */
struct p2p_begun {
    bool announced; /* its message was, to the peer */
    size_t taken;   /* bytes copied of it */
};
/* A call as far as it needs no request of its own: a message of one slice in host memory that is
 * sent at once, or is there; a caller that waits polls for it as its wait would begin. False: the
 * caller makes a request, without leaving the domain meanwhile, that goes on from there. */
bool p2p_at_once(rota_comm *comm, const struct call_args *args, const rota_call *call,
                 struct p2p_begun *begun);
/* The same of a call, outside the domain, that is like the last small one but for its buffer and
 * has no option but a request: nothing of it was checked yet. False: nothing has happened. */
bool p2p_run_again(rota_comm *comm, const struct call_args *args, const rota_call *call);
/* Takes a receive back whose message has not begun to come; false where it has. The caller ends it,
 * and then calls p2p_go_on with the table and the request's lane. */
bool p2p_withdraw(rota_request *request);
void p2p_go_on(struct p2p_table *table, struct p2p_lane *lane);
/* Forgets everything: no user memory of any request is touched afterwards. */
void p2p_cancel_all(struct p2p_table *table);
/* Source of a receive that has ended. */
int p2p_source(const rota_request *request);

#endif
