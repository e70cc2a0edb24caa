/* A world of ranks in one process and one thread, each with an instance of the transport under
 * test, a listener of its own and the callbacks of an engine that only counts. Which transport:
 * WORLD_TRANSPORT, given by the build; "self" has one rank that speaks to itself. */
#ifndef WORLD_H
#define WORLD_H

#include "base/clock.h"
#include "net/handshake.h"
#include "transports/transport.h"

#include <criterion/criterion.h>

#define WORLD_MAX 6
#define WORLD_PATIENCE_MS 30000

struct world_rank {
    struct world *world;
    struct transport_host host;
    struct net_identity identity;
    struct net_listener *listener;
    struct net_addresses addresses;
    struct doorbell_line *line;
    struct transport *transport;
    struct transport_peer peers[WORLD_MAX];
    char blob[64];
    size_t blob_bytes;
    int connected[WORLD_MAX], unreachable[WORLD_MAX], failed[WORLD_MAX];
    int system_error;
    char evidence[512];
};

struct world {
    int n;
    struct settings *settings;
    struct world_rank ranks[WORLD_MAX];
};

/* One end of a stream; the owner that callbacks name. */
struct world_end {
    struct world_rank *rank;
    struct transport *transport;
    struct transport_stream *stream;
    int arrived, writable;
};
/* Both ends of a stream in one direction; for "self" they are the same. */
struct world_link {
    struct world *world;
    struct world_end ends[2];
    struct world_end *from, *to;
};

/* A ticket that remembers its outcome. */
struct world_ticket {
    struct transport_ticket ticket; /* first */
    int done;
    enum transport_result result;
};

bool world_is(const char *transport);
void world_open(struct world *world, int n);
/* Opens, and connects all pairs. */
void world_open_connected(struct world *world, int n);
/* Closes the instance of one rank, as if it had ended. */
void world_close_rank(struct world *world, int rank);
void world_close(struct world *world);
void world_progress(struct world *world);

#define WORLD_UNTIL(world, condition)                                                              \
    do {                                                                                           \
        int64_t world_deadline_ = clock_deadline(WORLD_PATIENCE_MS);                               \
        while (!(condition)) {                                                                     \
            world_progress(world);                                                                 \
            cr_assert(!clock_passed(world_deadline_), "never: %s", #condition);                    \
        }                                                                                          \
    } while (0)

/* From rank `from` to rank `to` (for "self" from 0 to 0), on a channel. */
void link_open(struct world_link *link, struct world *world, int from, int to, uint32_t channel);
void link_open_generation(struct world_link *link, struct world *world, int from, int to,
                          uint32_t channel, uint32_t generation);
void link_close(struct world_link *link);
void end_open(struct world_end *end, struct world *world, int rank, int peer, uint32_t channel,
              uint32_t generation);

void ticket_init(struct world_ticket *ticket);
struct transport_header header_make(uint64_t sequence, size_t length);

/* Sends by post where the transport can, else by a slot that it waits for. `data` must stay until
 * the ticket is done. */
void link_send(struct world_link *link, const struct transport_header *header, void *data,
               struct world_ticket *ticket);
/* Reserves (waiting), fills from data and commits. False: the transport does not do this length. */
bool link_send_slot(struct world_link *link, const struct transport_header *header,
                    const void *data);
/* Posts a receive where the transport can; false: it cannot. */
bool link_post(struct world_link *link, void *data, size_t length, struct world_ticket *ticket);
/* Expects a message, waits for it, copies at most `room` bytes of it, releases it. */
struct transport_header link_take(struct world_link *link, size_t expected, void *data,
                                  size_t room);
/* As link_take for a message that was announced already. */
struct transport_header link_take_announced(struct world_link *link, void *data, size_t room);

/* Bytes that depend on stream, message and place. */
void pattern_fill(void *data, size_t bytes, uint64_t seed);
bool pattern_check(const void *data, size_t bytes, uint64_t seed);

#endif
