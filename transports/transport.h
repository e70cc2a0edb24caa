/* The contract between the engine and a transport.
 *
 * Model. A transport instance belongs to one rank of one job. It carries *streams*: per peer and
 * key (communicator and channel, or communicator and tag) an ordered sequence of messages in each
 * direction. Each stream has its own order and its own credit: no message of one stream ever waits
 * for the reader of another. A message is at most `caps.max_message` bytes.
 *
 * Threads. Every function is called with the progress domain of the rank held, so a transport is
 * single-threaded; the exceptions are `admit` and `offer`, which the control thread calls at any
 * time. Nothing blocks, nothing sleeps: what cannot be done now returns TRANSPORT_AGAIN and is
 * followed by a call-back (host->arrived, host->writable) or by a ticket. Call-backs and tickets
 * are invoked inside `progress` or inside the call itself; they may call the transport again.
 *
 * Failures. A transport never decides that a rank is dead. It reports evidence by
 * host->peer_failed and goes on serving the other peers; streams of that peer then return
 * TRANSPORT_FAILED. Message headers that contradict what is expected are the engine's affair; bytes
 * that are no message at all are the transport's (evidence: protocol error). */
#ifndef TRANSPORTS_TRANSPORT_H
#define TRANSPORTS_TRANSPORT_H

#include "base/doorbell.h"
#include "base/settings.h"
#include "memory/memory.h"
#include "net/address.h"
#include <rota/doctor.h>

enum transport_result {
    TRANSPORT_OK = 0,
    TRANSPORT_AGAIN,       /* not now; a call-back follows */
    TRANSPORT_UNSUPPORTED, /* never; use the other form (post <-> reserve/commit, peek/release) */
    TRANSPORT_FAILED       /* the peer's connection is gone, or memory is exhausted */
};

#define TRANSPORT_VERSION 1

struct transport_caps {
    uint32_t size;          /* sizeof(struct transport_caps) */
    uint32_t version;       /* TRANSPORT_VERSION */
    size_t max_message;     /* most bytes of one message */
    size_t preferred_slice; /* bytes per message that fill the link best */
    /* The same of point to point, where both ends are user memory; 0: slices of the job. */
    size_t preferred_message;
    size_t eager_bytes;    /* up to this a message may travel before its receive is posted */
    bool posts_send;       /* post_send reads user memory in place */
    bool posts_recv;       /* post_recv writes user memory in place */
    bool gathers;          /* short posts of a burst wait for each other, until progress */
    uint32_t memory_kinds; /* bit (1 << memory_kind.id): kinds that posts may touch */
    bool remote_read, multicast;
    bool native_forms;
};

/* Names a stream at a pair of ranks. */
struct transport_key {
    uint32_t comm;       /* communicator id */
    uint32_t generation; /* tells apart communicators that reuse an id */
    uint32_t channel;    /* channel of schedules, or tag */
    uint32_t space;      /* 0 collectives, 1 point to point, 2 the library's own */
};

/* What goes with every message; the engine compares it, the transport carries it. */
struct transport_header {
    uint64_t sequence; /* of the operation on its communicator (or of the message on its tag) */
    uint32_t position; /* of the message in its channel within the operation */
    uint32_t slice;
    uint64_t length;      /* bytes of this message */
    uint64_t total;       /* point to point, first slice: bytes of all slices; else 0 */
    uint64_t fingerprint; /* of the call */
    uint32_t epoch;
    uint32_t flags; /* TRANSPORT_FLAG_ */
};
_Static_assert(sizeof(struct transport_header) == 48, "carried as it is between processes");

struct transport_piece {
    void *data;
    size_t length;
};

struct transport;
struct transport_stream;

/* Completion of a post. Lives in the poster's memory until done is called (exactly once, unless
 * quiesce on its stream comes first: then never). */
struct transport_ticket {
    void (*done)(struct transport_ticket *ticket, enum transport_result result);
    struct transport_header header; /* post_recv: what arrived */
};

/* A slot handed out by reserve, or a message shown by peek. */
struct transport_slot {
    void *data;
    size_t length;
    void *handle; /* the transport's */
    bool near;    /* whoever reads it is seen to run on a thread of this core */
};
struct transport_arrival {
    struct transport_header header;
    struct transport_piece pieces[2]; /* the payload, back to back; unused ones have length 0 */
    const struct memory_kind *kind;   /* of the pieces */
    void *handle;
};

/* A peer as bootstrap announced it. */
struct transport_peer {
    int rank;
    bool same_host;    /* may share memory (found out at connect time whether it can) */
    bool same_process; /* a rank that is a thread of this process */
    uint64_t incarnation;
    const struct net_addresses *addresses; /* where its control thread listens */
    const void *blob;                      /* what the transport's `describe` wrote there */
    size_t blob_bytes;
};

/* What the engine offers to its transports. All pointers outlive the transport. */
struct transport_host {
    int rank, nranks;
    int cores; /* that ranks of this host may use, taken together; 0 until all have met */
    struct net_identity *identity; /* of this rank in its job: key, job id, rank, incarnation */
    const struct settings *settings;
    const struct transport_peer *peers; /* nranks entries; own entry unused */
    struct doorbell bell;               /* of this rank; its line is the shm transport's to place */
    void *context;
    /* Data side. `owner` is what stream_open was given. */
    /* peek will show a message, or pending a header, that it did not show before. Not called for
     * what was there before stream_open: look once after opening. */
    void (*arrived)(void *owner);
    void (*writable)(void *owner); /* a reserve that said AGAIN may work now */
    /* Connection side: `peer` is usable over this transport; or connecting failed for good (the
     * engine tries another transport); or the established connection broke. */
    void (*connected)(void *context, struct transport *transport, int peer);
    void (*unreachable)(void *context, struct transport *transport, int peer, int system_error,
                        const char *text);
    /* Whether another transport would be tried if this one gave up connecting; NULL: none. */
    bool (*has_other)(void *context, struct transport *transport, int peer);
    void (*peer_failed)(void *context, struct transport *transport, int peer, int system_error,
                        const char *evidence);
};

/* Counters a transport keeps for all its peers together. */
struct transport_counters {
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t wire_bytes_sent, wire_bytes_received;
};

struct transport {
    const struct transport_ops *ops;
    struct transport_caps caps;
    struct transport_counters counters;
};

struct transport_ops {
    const char *name;
    const char *help;

    /* -- life ------------------------------------------------------------------------------ */
    /* Makes an instance. ROTA_ERR_UNSUPPORTED: cannot work here (the message says why) and the job
     * goes on without: with a warning when the record names a system error or the user asked for
     * this transport, in silence when there is merely nothing to work with. `host` outlives the
     * instance; host->peers is filled in only later, before the first connect. */
    rota_status (*open)(struct transport_host *host, struct transport **transport);
    void (*close)(struct transport *transport);
    /* Writes what peers must know to connect: at most 64 bytes, returns their number. */
    size_t (*describe)(struct transport *transport, void *blob);

    /* Tells people what it finds on this machine: devices, which are used and why the others are
     * not, what would be in its way. No instance is needed. NULL: nothing needs to be found. */
    void (*survey)(const struct settings *settings, rota_finding_fn tell, void *arg);

    /* -- connections ----------------------------------------------------------------------- */
    /* Whether a connection to peer is worth trying (from its blob and host). */
    bool (*reaches)(struct transport *transport, int peer);
    /* Begins to connect, unless connected or connecting. The outcome is host->connected or
     * host->unreachable, perhaps before this returns. */
    void (*connect)(struct transport *transport, int peer);
    /* Control thread: a peer that proved the job's key wants to connect for this transport. False
     * refuses it (crossing connections: that of the lower rank lives; or given up before). */
    bool (*admit)(struct transport *transport, int peer);
    /* Control thread, after admit refused: whether the pair was given up, so that the peer need not
     * wait for a connection of ours. */
    bool (*gave_up)(struct transport *transport, int peer);
    /* Control thread: descriptors that go to the peer after it was admitted. Returns their number,
     * at most NET_MAX_DESCRIPTORS. They stay the transport's. NULL: none. */
    int (*offer)(struct transport *transport, int peer, int *descriptors);
    /* An admitted connection: socket (the transport's from now on) and descriptors received. */
    void (*accept)(struct transport *transport, int peer, int socket, const int *descriptors,
                   int ndescriptors);
    /* A further socket to a peer that is connected, from 1. NULL: there is only one. */
    void (*accept_stripe)(struct transport *transport, int peer, int stripe, int socket);

    /* -- streams --------------------------------------------------------------------------- */
    /* The peer must be connected. Messages that came before the stream was opened are kept for it
     * (look once with peek or pending; no call-back was made). */
    rota_status (*stream_open)(struct transport *transport, int peer,
                               const struct transport_key *key, void *owner,
                               struct transport_stream **stream);
    /* Forgets the stream and what is queued on it; implies quiesce. */
    void (*stream_close)(struct transport *transport, struct transport_stream *stream);

    /* -- sending --------------------------------------------------------------------------- */
    /* A slot for a message of header->length bytes; AGAIN without credit or slot. Several may be
     * open; they travel in the order of reserve, each not before its commit. */
    enum transport_result (*reserve)(struct transport *transport, struct transport_stream *stream,
                                     const struct transport_header *header,
                                     struct transport_slot *slot);
    void (*commit)(struct transport *transport, struct transport_stream *stream,
                   struct transport_slot *slot);
    /* The first `bytes` bytes of a reserved slot are written: the receiver may read them before the
     * message is committed, so that it copies while the sender copies. The caller goes on to commit
     * without leaving the domain. NULL: messages travel whole. */
    void (*publish)(struct transport *transport, struct transport_stream *stream,
                    struct transport_slot *slot, size_t bytes);
    /* Reserve, a copy and commit in one step for a small message of header->length bytes in the
     * caller's memory. AGAIN: nothing was done; reserve may do more. NULL: there is no shorter
     * way. */
    enum transport_result (*put)(struct transport *transport, struct transport_stream *stream,
                                 const struct transport_header *header, const void *data);
    /* Sends from the caller's memory; ticket->done when it may be overwritten. Queues behind
     * earlier messages of the stream when there is no credit; never AGAIN. npieces <= 64; the
     * array is copied. */
    enum transport_result (*post_send)(struct transport *transport, struct transport_stream *stream,
                                       const struct transport_header *header,
                                       const struct transport_piece *pieces, int npieces,
                                       struct transport_ticket *ticket);

    /* -- receiving -------------------------------------------------------------------------
     * Every message is announced once, in order, by `expect` (it will be taken by peek/release) or
     * by `post_recv` (it goes to the given memory). Announcing gives the sender credit. Messages
     * may arrive unannounced within eager_bytes. The length is that of the message where it is
     * known; expect(0) also serves for one of unknown length. What is longer than announced is
     * shown by its header, perhaps without all of its payload. */
    void (*expect)(struct transport *transport, struct transport_stream *stream, size_t length);
    enum transport_result (*post_recv)(struct transport *transport, struct transport_stream *stream,
                                       size_t length, const struct transport_piece *pieces,
                                       int npieces, struct transport_ticket *ticket);
    /* Whether a peer would write a message that is posted there into it by itself; NULL: never. */
    bool (*places)(struct transport *transport, const void *data, size_t length);
    /* Turns the newest announcement that is not of length 0, by post_recv with this ticket or
     * (NULL) by expect, into expect(0): nothing is written to the posted memory any more, and the
     * ticket is forgotten.
     * False: a message is coming to that memory already, and its ticket will be called. NULL: it
     * cannot be done here. */
    bool (*withdraw)(struct transport *transport, struct transport_stream *stream,
                     struct transport_ticket *ticket);
    /* The oldest message not yet released, once it is whole; AGAIN when there is none. It may be
     * shown before it was announced: that is how a receive from any source finds its sender. Of a
     * message that its sender publishes as it writes, pieces[0] is what there is of the payload;
     * `arrived` is called when there is more, and it is released when it was shown whole. */
    enum transport_result (*peek)(struct transport *transport, struct transport_stream *stream,
                                  struct transport_arrival *arrival);
    void (*release)(struct transport *transport, struct transport_stream *stream,
                    struct transport_arrival *arrival);
    /* Expect, peek and release in one step of such a message, if it has come, has this sequence and
     * fits into the *room bytes at data; *room is then its length. May look for what has come, but
     * calls nobody back. AGAIN: nothing has come for the stream; UNSUPPORTED: something else has,
     * or what peek alone shows. NULL: as above. */
    enum transport_result (*take)(struct transport *transport, struct transport_stream *stream,
                                  uint64_t sequence, void *data, size_t *room);
    /* True when the oldest message that is neither released nor taken by a post_recv is known by
     * its header: it arrived, or its sender asked for permission to send it (a message too large
     * to travel unannounced). That is how a receive from any source finds a sender whose message
     * only peek cannot show: `arrived` is called for it, peek says AGAIN, pending gives the
     * header; announce it (post_recv or expect) and it comes. Every transport implements it. */
    bool (*pending)(struct transport *transport, struct transport_stream *stream,
                    struct transport_header *header);

    /* -- memory ---------------------------------------------------------------------------- */
    /* Registers a range for remote access; NULL in transports that need none. The range stays
     * mapped until it is deregistered. The key is what a peer needs, at most 64 bytes. Both: any
     * thread, without the domain. */
    rota_status (*register_memory)(struct transport *transport, void *data, size_t bytes, void *key,
                                   size_t *key_bytes, void **handle);
    void (*deregister_memory)(struct transport *transport, void *handle);
    /* Memory for the user's buffers that serves this transport better than any other would, and
     * back again. NULL when there is no room; false when it is not of this transport. Any thread,
     * without the domain. Functions NULL: it has none. What is left at close is freed. */
    void *(*allocate)(struct transport *transport, size_t bytes);
    bool (*deallocate)(struct transport *transport, void *memory);

    /* -- progress -------------------------------------------------------------------------- */
    /* Moves what can move, about `budget` messages at most; returns how many events happened. */
    int (*progress)(struct transport *transport, int budget);
    /* Before sleeping: false (BUSY) when something came meanwhile. */
    bool (*arm)(struct transport *transport);
    void (*disarm)(struct transport *transport);
    /* Descriptor to watch while asleep, -1 when the doorbell is enough. */
    int (*descriptor)(struct transport *transport);
    /* When it returns, nobody writes user memory posted on this stream any more, and what is still
     * read of it goes into no result; tickets of the stream are forgotten. */
    void (*quiesce)(struct transport *transport, struct transport_stream *stream);
    /* The peer has failed, or left the job in good order (`left`), for certain. What has come from
     * it may still be taken; after it, and where something is to be sent, its streams say FAILED.
     * What it holds of this rank's is taken back, and a connection that is being made is given up.
     * False: it left, and the transport itself will report when all that it sent is here. NULL:
     * there are no peers that could go. */
    bool (*peer_gone)(struct transport *transport, int peer, bool left, const char *text);
    /* For the message of a time-out: what is known of the way to a connected peer that would
     * explain it, as text. False: nothing. NULL: this transport never knows. */
    bool (*trouble)(struct transport *transport, int peer, char *text, size_t size);

    /* -- native forms: see native.h; NULL when there are none ------------------------------- */
    const struct transport_native_ops *native;
};

/* The table of transports in order of preference (transports.def). The index is also the one in
 * the purpose of a data connection (NET_PURPOSE_DATA + index). */
enum transport_index {
#define TRANSPORT(id, ops) TRANSPORT_##id,
#include "transports/transports.def"
#undef TRANSPORT
    TRANSPORT_COUNT
};
#define TRANSPORT(id, ops) extern const struct transport_ops ops;
#include "transports/transports.def"
#undef TRANSPORT
extern const struct transport_ops transport_test; /* not in the table */
/* NULL past the end. */
const struct transport_ops *transport_at(int index);
/* By name, also "test", which is not in the table. NULL when there is none. */
const struct transport_ops *transport_find(const char *name);
/* As transport_at, but the test transport where the setting ROTA_TEST_TRANSPORT puts it over the
 * transport of this index. */
const struct transport_ops *transport_choose(const struct settings *settings, int index);

#endif
