/* The shared-memory transport's own structures. */
#ifndef TRANSPORTS_SHM_SHM_H
#define TRANSPORTS_SHM_SHM_H

#include "base/cpu.h"
#include "transports/native.h"
#include "transports/shm/arena.h"
#include "transports/shm/heap.h"

#include <uthash.h>

/* A peer's connection. Changed by compare-and-swap, because the control thread (admit) and the
 * domain meet here:
 *
 *   IDLE -> DIALLING      connect: this rank dials
 *   IDLE -> ADMITTED      admit: the peer dials
 *   DIALLING -> ADMITTED  admit of a lower rank: of crossing connections its lives
 *   DIALLING, ADMITTED -> CONFIRMING   descriptors are here, each side tells whether it could map
 *   CONFIRMING -> ESTABLISHED
 *   any -> GIVEN_UP       final */
enum shm_peer_state {
    SHM_PEER_IDLE = 0,
    SHM_PEER_DIALLING,
    SHM_PEER_ADMITTED,
    SHM_PEER_CONFIRMING,
    SHM_PEER_ESTABLISHED,
    SHM_PEER_GIVEN_UP
};

/* A stream's place in a list of streams, which it may leave at any time. */
struct shm_listed {
    struct transport_stream *stream;
    struct shm_listed *next, **back; /* back NULL: in no list */
};

/* Unless it is in one. */
static inline void listed_add(struct shm_listed **list, struct shm_listed *listed) {
    if (listed->back)
        return;
    listed->next = *list;
    listed->back = list;
    if (*list)
        (*list)->back = &listed->next;
    *list = listed;
}

static inline void listed_remove(struct shm_listed *listed) {
    if (!listed->back)
        return;
    *listed->back = listed->next;
    if (listed->next)
        listed->next->back = listed->back;
    listed->next = NULL;
    listed->back = NULL;
}

/* A whole list, for who goes through it while call-backs put streams back or close any. */
static inline void listed_move(struct shm_listed **from, struct shm_listed **to) {
    *to = *from;
    *from = NULL;
    if (*to)
        (*to)->back = to;
}

/* A message that arrived and was not released. */
struct shm_message {
    struct shm_message *next;
    struct transport_header header;
    int32_t slot; /* of the sender's, -1: payload in data */
    uint8_t data[SHM_TINY_BYTES];
};
_Static_assert(SHM_TINY_BYTES >= SHM_INLINE_BYTES, "either fits");

/* A message on its way out: reserved, then committed, then in an entry. */
struct shm_outgoing {
    struct shm_outgoing *next;
    struct transport_key key;
    struct transport_header header;
    int32_t slot; /* -1: payload in data */
    bool committed;
    bool shown; /* its entry is written, while its slot is filled */
    uint8_t data[SHM_INLINE_BYTES];
};

/* Free slots of one size. */
struct shm_pool {
    uint16_t *free;
    int nfree, total;
};

struct shm_slot {
    int32_t holder; /* rank that the message in it is for; -1: it is free */
    bool published; /* the holder may read it, and give it back */
    bool unannounced;
};

struct shm_peer {
    int rank;
    /* Connecting. */
    struct net_dial *dial;
    int dial_fd;
    int socket;      /* while confirming */
    uint8_t verdict; /* what this side told */
    const char *why; /* reason of a failure to map */
    int system_error;
    int64_t deadline_ns;
    bool in_connecting;
    bool failed; /* wrote what is no message */
    /* Connected. */
    struct shm_map map;
    const uint8_t *heap; /* of the peer, read-only; NULL: there is none, or it cannot be read */
    size_t heap_bytes;
    int event_fd;
    struct shm_pair *out;      /* in this rank's arena */
    const struct shm_pair *in; /* in the peer's */
    const uint8_t *small_slots, *large_slots;
    const struct shm_filled *filled;
    uint64_t published;     /* entries written to out->fifo */
    uint64_t consumed_seen; /* last seen of in->ack.consumed */
    uint64_t read;          /* entries read of in->fifo */
    uint64_t released;      /* slots given back to the peer */
    uint64_t harvested;     /* slots taken back from the peer */
    uint64_t inline_sent, inline_released, inline_released_seen;
    bool near;   /* it was seen to run on a thread of this core */
    int held[2]; /* slots of each pool that messages to the peer hold */
    struct shm_outgoing *ready, **ready_tail; /* committed, waiting for room in the queue */
    struct shm_listed *notes;                 /* streams with a grant or request to send */
    struct transport_stream *last;            /* of the last message read */
};

struct shm_stream_id {
    int32_t peer;
    struct transport_key key;
};

struct transport_stream {
    struct shm_stream_id id;
    UT_hash_handle hh;
    struct shm_peer *peer;
    void *owner;
    bool open;
    /* Receiving. Counts of messages since the stream's beginning. */
    struct shm_message *head, **tail;
    uint64_t arrived, announced, granted;
    bool requested;     /* the sender waits for a grant of its message request_number */
    bool request_known; /* that message has not arrived yet; its header is `request` */
    uint64_t request_number;
    struct transport_header request;
    uint64_t part_seen; /* of its oldest message, which peek has shown as far as it had come */
    struct shm_listed partial; /* in shm->partial: more of that is to come */
    /* Sending. */
    struct shm_outgoing *reserved, **reserved_tail;
    uint64_t sent;  /* reserved */
    uint64_t known; /* announced by the receiver, as far as this rank knows */
    bool request_sent;
    struct shm_listed waiting; /* in shm->waiting */
    /* Notes for the peer that did not yet get an entry. */
    bool grant_due, request_due;
    struct transport_header request_header;
    struct shm_listed notes; /* in the peer's */
};

/* Messages of a stream that may travel before the receiver is known to have announced them: of any
 * kind, and for one that needs a slot. */
#define SHM_WINDOW 64
#define SHM_WINDOW_SLOTS 16
/* Free nodes kept; more are given back to the system. */
#define SHM_SPARE_NODES 4096

/* Keys of streams that were closed here: what still arrives for them is dropped. */
#define SHM_GRAVES 4096
struct shm_grave {
    struct shm_stream_id id;
    UT_hash_handle hh;
};

struct shm {
    struct transport transport;
    struct transport_host *host;
    struct shm_arena arena;
    struct shm_heap heap;
    struct doorbell_line *private_line; /* where the doorbell was before */
    int epoll_fd;                       /* over the sockets of connections being made */
    uint64_t start;                     /* first value of all sequence counters */
    enum cpu_isa isa;                   /* that copies use */
    _Atomic uint8_t *states;            /* enum shm_peer_state of each rank */
    struct shm_peer **peers;            /* of each rank, NULL until there is something to say */
    struct shm_peer **connected;        /* established ones */
    int nconnected;
    struct shm_peer **connecting; /* those that progress has to look after */
    int nconnecting;
    /* Slots of this rank. */
    uint16_t small_free[SHM_SMALL_SLOTS], large_free[SHM_LARGE_SLOTS];
    struct shm_pool pools[2]; /* of small and of large ones */
    int unannounced;          /* small slots that travel on eager credit */
    struct shm_slot slots[SHM_SLOTS];
    struct transport_stream *streams; /* by id */
    struct shm_listed *waiting;       /* reserve said AGAIN */
    struct shm_listed *partial;       /* peek showed a part of a message */
    struct shm_grave *graves, *grave_ring;
    unsigned grave_next;
    struct shm_message *spare_messages; /* free nodes of both kinds, kept for the next ones */
    struct shm_outgoing *spare_outgoing;
    unsigned nspare_messages, nspare_outgoing;
    struct native_group *groups; /* open ones and closed ones whose area is still read */
    uint32_t groups_used;
    uint16_t group_spare[SHM_GROUPS]; /* entries given back, oldest first */
    unsigned group_spare_head, group_spare_count;
};

static inline struct shm *shm_of(struct transport *transport) {
    return (struct shm *)transport; /* its first member */
}
static inline uint8_t shm_state(const struct shm *shm, int rank) {
    return atomic_load_explicit(&shm->states[rank], memory_order_acquire);
}
static inline const struct doorbell_line *shm_peer_bell(const struct shm_peer *peer) {
    return &peer->map.head->bell;
}

/* What an entry or a line holds, by few moves of any alignment. */
static inline void copy_small(uint8_t *dst, const uint8_t *src, size_t bytes) {
    if (bytes >= 16) {
        for (size_t i = 0; i + 16 <= bytes; i += 16)
            memcpy(dst + i, src + i, 16);
        memcpy(dst + bytes - 16, src + bytes - 16, 16);
    } else if (bytes >= 8) {
        memcpy(dst, src, 8);
        memcpy(dst + bytes - 8, src + bytes - 8, 8);
    } else if (bytes >= 4) {
        memcpy(dst, src, 4);
        memcpy(dst + bytes - 4, src + bytes - 4, 4);
    } else {
        for (size_t i = 0; i < bytes; i++)
            dst[i] = src[i];
    }
}

extern const struct transport_ops transport_shm;

/* -- connect.c ------------------------------------------------------------------------------- */
bool shm_reaches(struct transport *transport, int rank);
void shm_connect(struct transport *transport, int rank);
bool shm_admit(struct transport *transport, int rank);
bool shm_gave_up(struct transport *transport, int rank);
int shm_offer(struct transport *transport, int rank, int *descriptors);
void shm_accept(struct transport *transport, int rank, int socket, const int *descriptors,
                int ndescriptors);
/* Advances connections; returns how many events happened. */
int shm_connect_progress(struct shm *shm);
void shm_peer_free(struct shm *shm, struct shm_peer *peer);
bool shm_peer_gone(struct transport *transport, int rank, bool left, const char *text);

/* -- stream.c -------------------------------------------------------------------------------- */
rota_status shm_stream_open(struct transport *transport, int rank, const struct transport_key *key,
                            void *owner, struct transport_stream **stream);
void shm_stream_close(struct transport *transport, struct transport_stream *stream);
void shm_expect(struct transport *transport, struct transport_stream *stream, size_t length);
enum transport_result shm_peek(struct transport *transport, struct transport_stream *stream,
                               struct transport_arrival *arrival);
void shm_release(struct transport *transport, struct transport_stream *stream,
                 struct transport_arrival *arrival);
enum transport_result shm_take(struct transport *transport, struct transport_stream *stream,
                               uint64_t sequence, void *data, size_t *room);
bool shm_pending(struct transport *transport, struct transport_stream *stream,
                 struct transport_header *header);
/* Whether more has come of a message that was shown in part; and tells the owners of those. */
bool shm_part_came(const struct shm *shm);
int shm_wake_partial(struct shm *shm);
/* Reads at most `budget` entries of a peer's queue; returns their number. */
int shm_peer_read(struct shm *shm, struct shm_peer *peer, int budget);
/* Reads the oldest entry of the peer's queue if it is a grant to the stream, whose owner does not
 * wait for one. So nobody is called back. */
bool shm_read_grant(struct shm *shm, struct transport_stream *stream);
bool shm_peer_has_entry(const struct shm_peer *peer);
void shm_streams_free(struct shm *shm);

/* -- send.c ---------------------------------------------------------------------------------- */
enum transport_result shm_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot);
void shm_publish(struct transport *transport, struct transport_stream *stream,
                 struct transport_slot *slot, size_t bytes);
void shm_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot);
enum transport_result shm_put(struct transport *transport, struct transport_stream *stream,
                              const struct transport_header *header, const void *data);
/* Notes that a grant or request of the stream is due, and sends it if there is room. */
void shm_note(struct shm *shm, struct transport_stream *stream);
/* Sends what waits for room in the peer's queue; returns the number of entries. */
int shm_peer_pump(struct shm *shm, struct shm_peer *peer);
/* Takes back slots that readers released; true when there were any. */
bool shm_harvest(struct shm *shm);
/* Whether there is something that harvest or pump would move. */
bool shm_room_came(const struct shm *shm);
/* Tells owners of waiting streams to try again. */
void shm_wake_waiting(struct shm *shm);
void shm_stream_wake(struct shm *shm, struct transport_stream *stream);
/* Drops what is reserved; takes the stream out of all lists. */
void shm_stream_stop_sending(struct shm *shm, struct transport_stream *stream);
void shm_update_wanted(struct shm *shm);
/* The peer will read nothing any more: takes back what it holds, and lets its senders go. */
void shm_peer_drop(struct shm *shm, struct shm_peer *peer);

/* -- lines.c -------------------------------------------------------------------------------- */
/* Whether a line that another core has read comes back at once; the word keeps its value. */
bool shm_line_is_near(_Atomic uint64_t *word);

/* -- native.c -------------------------------------------------------------------------------- */
extern const struct transport_native_ops shm_native;
void shm_groups_free(struct shm *shm);

/* levels.c: where this rank is, as the setting or the system says. */
void shm_levels_place(const struct settings *settings, int rank, uint32_t *place);

#endif
