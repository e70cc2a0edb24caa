/* Inside of the verbs transport: rings in registered memory as the pipe of transports/mux, and
 * writes into user memory beside it.
 *
 * Design notes.
 *
 * The ring. Each side of a pair has a ring of SLOTS slots that the other side writes, and a mirror
 * of the peer's ring from which the adapter reads. A *chunk* fills whole slots from the head on,
 * never past the end: 16 bytes of head (bytes that follow, slots consumed so far in the other
 * direction, a check), then bytes of the pipe. A chunk is one RDMA write with immediate, which is
 * valid by its receive completion; where the adapter has none (iWARP), a write and behind it an
 * empty send, whose completion promises the same.
 *
 * Looking. A chunk of one slot need not wait for its completion: who waits for messages looks at
 * the slots that come next. In what order an adapter writes the bytes is not known, so such a chunk
 * carries a check over all of its words, its number in the ring and a secret of its receiver, and
 * counts when that is right: by chance once in 2^64, for a chunk that is half there as for payload
 * that somebody made up to look like one. The completion comes all the same, later: it
 * returns the slot, and wakes who sleeps, so sleeping and credit know nothing of looking.
 *
 * Credit. A chunk takes at least one slot and one receive request, and both sides have as many
 * requests as slots, so who has slots needs no more permission and the receiver is never not ready
 * (RNR retries are off). Consumed slots are told in every chunk, and by a chunk of its own when
 * half of the ring is owed; VERBS_SLOTS_KEPT slots are for those alone, so both sides can always
 * tell. A ring is emptied whenever progress is made, whoever wants its messages. A slot of the
 * mirror may be filled again when the peer has consumed it: what the adapter might still repeat of
 * it the peer's adapter has seen and drops.
 *
 * Completions. Of the ring's requests one in VERBS_SIGNAL_EACH is signalled, to know how far the
 * send queue is free. Errors always complete.
 *
 * Writes into user memory go by queue pairs of their own (direct.c), so that they can be stopped at
 * any time by destroying those, while the ring, and with it all other streams, go on.
 *
 * Memory. Registered are the rings and what the user registers or had allocated (memory.c). */
#ifndef VERBS_H
#define VERBS_H

#include "calls.h"
#include "devices.h"
#include "transports/mux/mux.h"

#include <pthread.h>

#define VERBS_SLOT_BYTES 256u
#define VERBS_MAX_SLOTS 1024u
/* So that a message of MUX_ROOM_MOST finds room in what is not yet owed. */
#define VERBS_MIN_SLOTS 128u
#define VERBS_SLOTS_KEPT 4u
/* Rings and mirrors of all peers together. */
#define VERBS_RING_POOL ((size_t)64 << 20)
#define VERBS_MAX_CHUNK ((size_t)32 << 10)
#define VERBS_SIGNAL_EACH 64u
#define VERBS_SEND_DEPTH 256u
/* Enough for a frame and 64 bytes of payload; what the adapter has beyond is used up to a slot. */
#define VERBS_INLINE_BYTES 256u
#define VERBS_TOKEN_BYTES 16
/* Queue pairs that write into user memory, per pair of ranks; writes in flight on each. */
#define VERBS_MAX_WAYS 4
#define VERBS_WAY_DEPTH 16u
#define VERBS_MAX_SGE 8
/* From here on a message is worth a place. Shorter ones mostly travel unannounced. */
#define VERBS_PLACE_FROM (MUX_EAGER_MIN + 1)
/* One write; a message of this length keeps any adapter busy while the next one is told of. */
#define VERBS_PREFERRED_SLICE ((size_t)4 << 20)
/* Written per turn of progress and peer, at least one message. */
#define VERBS_TURN_BYTES ((size_t)128 << 10)
/* Each stripe of a striped message has at least this many bytes. */
#define VERBS_STRIPE_FROM ((size_t)64 << 10)
/* Of a send: 4.096 us * 2^16 = 268 ms without acknowledgement, repeated 6 times, then an error. 7
 * would mean for ever to some devices. */
#define VERBS_ACK_TIMEOUT 16
#define VERBS_RETRIES 6
/* Looked into before completions are: connections that something is expected of, if so few. */
#define VERBS_LOOKS 4u
#define VERBS_RECEIVE_ID (UINT64_C(1) << 63)

/* What peers must know to connect. The token lets in: only members of the job can know it. */
struct verbs_blob {
    uint32_t magic;
    uint16_t port;
    uint8_t nrails, mtu; /* the smallest of the rails, as enum ibv_mtu */
    uint8_t token[VERBS_TOKEN_BYTES];
    uint8_t addresses[VERBS_MAX_RAILS][16]; /* of the rails, as verbs_rail.ip */
};
_Static_assert(sizeof(struct verbs_blob) == 56, "announced to the peers");
#define VERBS_MAGIC 0x33627672u /* "rvb3", little endian */

/* Private data of a connection request: at most 56 bytes are the user's. */
struct verbs_request {
    uint32_t magic;
    uint32_t rank; /* of the caller */
    uint8_t token[VERBS_TOKEN_BYTES];
    uint8_t role; /* 0: the ring; 1 + i: way i of `ways` */
    uint8_t ways;
    uint16_t rail;       /* of the caller, by which it calls */
    uint32_t generation; /* of the ways */
    uint64_t ring;       /* address, key and slots of the caller's ring */
    uint32_t key, slots;
};
_Static_assert(sizeof(struct verbs_request) == 48, "sent in a connection request");
/* Private data of the answer. */
struct verbs_answer {
    uint32_t magic;
    uint32_t slots;
    uint8_t token[VERBS_TOKEN_BYTES]; /* the caller's */
    uint64_t ring;
    uint32_t key, rail; /* rail: of the called side */
};
_Static_assert(sizeof(struct verbs_answer) == 40, "sent in the answer to a request");
/* Private data of a refusal: why. */
enum verbs_refusal { VERBS_REFUSED_CROSSING = 1, VERBS_REFUSED_GIVEN_UP, VERBS_REFUSED_LATER };

struct verbs_chunk {
    uint32_t bytes;    /* that follow */
    uint32_t consumed; /* slots of the other direction, a running sum */
    uint64_t check;    /* of a chunk of one slot; of longer ones 0, which says nothing */
};
_Static_assert(sizeof(struct verbs_chunk) == 16, "written into the peer's memory");

/* A rail in use. */
struct verbs_port {
    const struct verbs_rail *rail;
    struct ibv_pd *pd;
    struct ibv_comp_channel *channel;
    struct ibv_cq *cq;
    struct ibv_srq *srq; /* NULL: the device has none */
    struct ibv_device_attr attr;
    unsigned spare; /* receive requests in srq that no connection has claimed */
    unsigned slack; /* requests in srq beyond all slots, */
    unsigned owed;  /* and those of them that are used up */
};

struct verbs_connection;

/* A queue pair with its CM id. */
struct verbs_pair {
    UT_hash_handle hh; /* by number */
    uint32_t number;
    struct verbs_connection *connection;
    struct verbs_port *port;
    struct rdma_cm_id *id;
    int role;
    int peer_rail; /* at which it ends */
    bool established;
    uint64_t posted, completed; /* send requests */
    uint32_t inline_bytes;
    struct verbs_write *writes[VERBS_WAY_DEPTH]; /* of a way: that of request i at i % depth */
};

/* A message that is being written into its place, or waits for room to be. */
struct verbs_write {
    TAILQ_ENTRY(verbs_write) link;
    struct mux_outgoing *outgoing;
    struct mux_place place;
    struct ibv_sge sges[VERBS_MAX_SGE]; /* keys are set per port */
    uint32_t keys[VERBS_MAX_SGE][VERBS_MAX_RAILS];
    int nsges;
    unsigned left; /* requests to complete; 0 while it waits */
};
TAILQ_HEAD(verbs_writes, verbs_write);

enum verbs_state {
    VERBS_IDLE = 0,
    VERBS_CALLING,  /* an attempt of ours is on its way */
    VERBS_WAITING,  /* between two attempts */
    VERBS_ACCEPTED, /* the peer's attempt; until its first frame came */
    VERBS_READY,
    VERBS_GIVEN_UP,
    VERBS_FAILED
};

struct verbs_connection {
    struct mux_connection base;
    enum verbs_state state;
    bool wanted, caller;
    unsigned failures; /* attempts that failed in a row */
    int64_t began_ns, backoff_ns;
    struct verbs_pair *pair; /* of the ring */

    /* the ring here and the mirror of the peer's, in one registration */
    char *memory, *ring, *mirror;
    size_t memory_bytes;
    struct ibv_mr *mr;
    uint32_t slots; /* of either ring: the smaller number of both sides */
    uint64_t peer_ring;
    uint32_t peer_key;
    uint64_t sent, acknowledged; /* slots of the peer's ring */
    uint64_t taken;              /* slots of ours: those before it were looked into, */
    uint64_t received, told;     /* are complete, and are known to be */
    uint64_t secret, peer_secret;
    bool owes, signal_next, last_sent;

    /* the ways to write into user memory */
    struct verbs_pair *ways[VERBS_MAX_WAYS];
    unsigned nways, ways_up;
    uint32_t generation;
    int64_t ways_ns; /* when they were last asked for */
    struct verbs_writes writes;
};

struct verbs_region;

struct verbs {
    struct mux mux;
    const struct verbs_calls *calls;
    struct verbs_rail rails[VERBS_MAX_RAILS];
    struct verbs_port ports[VERBS_MAX_RAILS]; /* of the rails */
    int nports;
    uint32_t slots; /* of each ring */
    struct rdma_event_channel *events;
    struct rdma_cm_id *listener;
    uint16_t port;
    uint8_t token[VERBS_TOKEN_BYTES];
    struct verbs_pair *pairs;     /* uthash, by number */
    struct verbs_pair *recent;    /* found last */
    bool polling, closing, waits; /* waits: some messages may be written, in the next turn */
    bool looked;                  /* and found something in the last turn */
    unsigned calling;             /* attempts on their way: look at the CM often */
    pthread_mutex_t regions_lock;
    struct verbs_region *regions;
};

static inline struct verbs *verbs_of(struct transport *transport) {
    return (struct verbs *)transport;
}
static inline struct verbs *verbs_mux(const struct mux_connection *connection) {
    return (struct verbs *)connection->mux;
}
static inline struct verbs_connection *verbs_connection_of(struct mux_connection *connection) {
    return (struct verbs_connection *)connection;
}
static inline struct verbs *verbs_home(const struct verbs_connection *connection) {
    return verbs_mux(&connection->base);
}

/* -- verbs.c -- */
/* Posts n receive requests, to the shared queue or the pair's own. */
bool verbs_post_receives(struct verbs *verbs, struct verbs_port *port, struct verbs_pair *pair,
                         unsigned n);
/* Takes completions of all ports. */
void verbs_poll(struct mux *mux);

/* -- connect.c -- */
void verbs_connection_init(struct mux_connection *connection);
rota_status verbs_listen(struct verbs *verbs);
void verbs_unlisten(struct verbs *verbs);
size_t verbs_describe(struct transport *transport, void *blob);
bool verbs_reaches(struct transport *transport, int peer);
void verbs_connect(struct transport *transport, int peer);
bool verbs_admit(struct transport *transport, int peer);
bool verbs_gave_up(struct transport *transport, int peer);
void verbs_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                  int ndescriptors);
bool verbs_peer_gone(struct transport *transport, int peer, bool left, const char *text);
void verbs_due(struct mux_connection *connection);
void verbs_shut(struct mux_connection *connection);
void verbs_ended(struct mux_connection *connection, bool used);
void verbs_ready(struct mux_connection *connection);
/* Takes events of the CM. */
void verbs_cm_events(struct verbs *verbs);
/* Begins to connect a way. */
bool verbs_call(struct verbs_connection *connection, int role);
void verbs_pair_destroy(struct verbs *verbs, struct verbs_pair *pair);
/* The connection may be used: ESTABLISHED came, or the peer's first chunk before it. */
void verbs_established(struct verbs_pair *pair);

/* -- ring.c -- */
bool verbs_ring_open(struct verbs_connection *connection, struct verbs_port *port);
void verbs_ring_close(struct verbs_connection *connection);
ssize_t verbs_send(struct mux_connection *connection, struct iovec *iov, int count);
/* A chunk of one slot, made in the mirror. */
char *verbs_begin(struct mux_connection *connection, size_t bytes);
void verbs_end(struct mux_connection *connection, size_t bytes);
size_t verbs_room(const struct mux_connection *connection);
/* A chunk has come; `bytes` with its head as the adapter says, 0: it does not. */
void verbs_chunk_came(struct verbs_connection *connection, uint32_t bytes);
/* Takes chunks that are whole and have no completion yet. */
void verbs_ring_look(struct verbs_connection *connection);
/* Tells of consumed slots, if many are owed. */
void verbs_ring_tell(struct verbs_connection *connection);
/* Sends an empty chunk whose completion says that the peer's adapter has all before it. */
bool verbs_ring_last(struct verbs_connection *connection);

/* -- direct.c -- */
bool verbs_places(struct transport *transport, const void *data, size_t length);
bool verbs_place(struct mux_connection *connection, const struct mux_post *post,
                 struct mux_place *place);
bool verbs_write(struct mux_connection *connection, struct mux_outgoing *outgoing,
                 const struct mux_place *place);
void verbs_stop_writes(struct mux_connection *connection);
void verbs_stopped(struct mux_connection *connection, uint32_t generation);
/* Writes of what waits for its turn. */
void verbs_write_waiting(struct verbs *verbs);
/* A request of a way has completed. */
void verbs_way_completed(struct verbs_pair *pair, enum ibv_wc_status status);
/* A way is established; failed to be. */
void verbs_way_up(struct verbs_pair *pair);
void verbs_ways_failed(struct verbs_connection *connection);
/* The peer calls for ways of a generation; false refuses. */
bool verbs_ways_called(struct verbs_connection *connection, const struct verbs_request *request);
void verbs_ways_close(struct verbs_connection *connection);

/* -- memory.c -- */
rota_status verbs_register_memory(struct transport *transport, void *data, size_t bytes, void *key,
                                  size_t *key_bytes, void **handle);
void verbs_deregister_memory(struct transport *transport, void *handle);
void verbs_regions_free(struct verbs *verbs);
/* Keys of registered memory, per port; false: some of it is not registered (for `writing`). */
bool verbs_lookup(struct verbs *verbs, const void *data, size_t bytes, bool writing,
                  uint32_t lkeys[VERBS_MAX_RAILS], uint32_t rkeys[VERBS_MAX_RAILS]);
/* As ibv_reg_mr; raises an error that says what to do about limits. */
struct ibv_mr *verbs_mr(struct verbs *verbs, struct verbs_port *port, void *data, size_t bytes,
                        int access);

#endif
