/* What the parts of point to point share: p2p.c moves messages of any length and matches receives,
 * at_once.c serves small calls that need no request. */
#ifndef ENGINE_P2P_STATE_H
#define ENGINE_P2P_STATE_H

#include "engine/comm.h"
#include <uthash.h>

/* From here on posting user memory beats a copy through the transport's own. */
#define P2P_POST_BYTES 8192

TAILQ_HEAD(request_list, rota_request);

struct p2p_name {
    int peer; /* rank in the communicator */
    int tag;
};
_Static_assert(sizeof(struct p2p_name) == 8, "hashed as bytes: no padding");

struct p2p_lane {
    struct p2p_name name;
    rota_comm *comm;
    struct link link;
    struct request_list sends, recvs; /* the heads run */
    uint64_t sent, received;          /* number of the next message */
    int announced;                    /* first slices that are, by receives that were taken back */
    bool receiving, again;            /* see pump_recvs */
    UT_hash_handle hh;
};

/* A small call, for those like it. */
struct p2p_recent {
    struct p2p_lane *lane; /* NULL: there was none */
    rota_dtype dtype;
    size_t element_size;
    uintptr_t misaligned; /* bits that no address of an element has */
};

struct p2p_table {
    rota_comm *comm;
    struct p2p_lane *lanes;
    struct p2p_recent recent_send, recent_recv;
    struct request_list unmatched; /* receives from any source, and those behind them */
    uint64_t first;                /* number of the first message of a lane */
};

/* Whether a receive that was taken back has left its announcement to this one. */
static inline bool lane_takes_announced(struct p2p_lane *lane) {
    bool left = lane->announced > 0;
    lane->announced -= left;
    return left;
}

/* What a message longer than that is cut into. */
size_t p2p_slice_bytes(const struct p2p_lane *lane);
/* Copies a message into a reserved slot and sends it; a long one is shown to its receiver as it
 * grows. */
void p2p_fill(struct p2p_lane *lane, struct transport_slot *slot, const void *data, size_t length);
/* Copies a part of a message of `total` bytes out of the transport's memory. */
void p2p_take(const struct p2p_lane *lane, size_t total, void *to, const void *from, size_t bytes);

#endif
