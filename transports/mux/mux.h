/* Many streams on one ordered pipe of bytes between two ranks: what the transports over sockets and
 * over RDMA rings have in common. They bring the pipe (struct mux_pipe) and connect it.
 *
 * Design notes.
 *
 * Permission. A message travels only if its receiver has room for it, so nothing ever waits inside
 * a connection and no stream waits for another's reader. There are two kinds of permission:
 *   - credit: each side gives the other K slots when the connection begins. A sender binds a slot
 *     to a stream while eager messages of that stream are not yet known to be consumed; a slot
 *     holds `slot_charge` bytes of charge. The receiver returns credit as a running sum, on any
 *     frame of the stream or in a CREDIT frame.
 *   - grant: the receiver permits all messages of a stream below a number. It grants what has been
 *     announced (expect, post_recv) when credit cannot pay for it, or when the sender asked.
 * A sender with neither sends one REQUEST per message, which carries the header; the receiver
 * answers as soon as the message is announced, and returns all credit that it owes.
 *
 * Numbers. Messages of a stream are numbered from 0 in the order in which they enter the wire, so
 * whatever is dropped before it was begun leaves no gap.
 *
 * Places. A pipe that can write into the peer's memory beside its bytes may be told by the receiver
 * where one posted message belongs (PLACE frame, which permits the message too); of a window of
 * receives half at a time, since each frame costs both adapters a request. The sender may
 * then write it there and send its DATA frame without payload when the write is complete. It need
 * not: a message whose bytes follow its frame is always right, so nothing depends on places.
 *
 * Output. A connection writes one batch at a time: frames and payload as an array of iovecs that
 * point into user memory. Control frames are made from the state of their stream at the moment
 * when the batch is built, so that any number of announcements merges into one frame.
 *
 * Input. The pipe hands over bytes as they come (mux_input), or reads payload where it belongs
 * (mux_targets, mux_placed). Only the head of a frame may stay behind, in the connection.
 *
 * Streams are found by their key. One that was closed stays as a tombstone until the peer has
 * closed it too (CLOSE frames), so that what arrives late is dropped and its credit returned. */
#ifndef MUX_H
#define MUX_H

#include "frame.h"
#include "transports/transport.h"

#include <sys/queue.h>
#include <sys/uio.h>
#include <uthash.h>

#define MUX_MAX_MESSAGE ((size_t)1 << 30)
#define MUX_PREFERRED_SLICE ((size_t)256 << 10)
#define MUX_MAX_PIECES 64
/* What a message costs beside its payload: the receiver's record of it. */
#define MUX_MESSAGE_CHARGE 128u
/* The longest message that may travel unannounced has at least so many bytes. The pipe may like
 * more; in a large job it is less, so that each peer has MUX_MIN_SLOTS slots out of the pool. */
#define MUX_EAGER_MIN ((size_t)16 << 10)
/* Longest messages in a slot: credit that is returned by half slots then rarely needs a frame of
 * its own, nor does its sender have to wait for it. */
#define MUX_SLOT_MESSAGES 4
#define MUX_MIN_SLOTS 4u
#define MUX_MAX_SLOTS 64u
/* Bytes that all peers together may send unannounced. */
#define MUX_SLOT_POOL ((size_t)16 << 20)
/* Largest message in a slot of reserve, and all slots together. */
#define MUX_RESERVE_MAX ((size_t)1 << 20)
#define MUX_RESERVE_POOL ((size_t)8 << 20)
/* Messages up to this length are sure to go when they are committed, where the pipe knows its room.
 */
#define MUX_ROOM_MOST ((size_t)8 << 10)
/* Streams of a connection that only the peer uses so far. */
#define MUX_MAX_UNOPENED 4096u
/* Requests on streams that are not open here; more are answered by RETRY. */
#define MUX_MAX_REQUESTS 1024u
/* Answers (RETRY, CLOSE) that wait for the pipe. */
#define MUX_MAX_ANSWERS 65536u
/* After a payload of this length the next frame is read without read-ahead. */
#define MUX_LARGE ((size_t)32 << 10)
#define MUX_BATCH_FRAMES 64
/* A burst: short posts on one connection that follow each other so closely, with no progress in
 * between. After the first ones the next wait for company, up to so many messages and bytes: a
 * call of the system costs 4 us, a message in a batch 0.5, and too large a batch keeps the
 * receiver idle. */
#define MUX_BURST_NS 10000
#define MUX_BURST_FIRST 4
#define MUX_HELD_MOST 32
#define MUX_HELD_BYTES ((size_t)32 << 10)
#define MUX_HELD_MESSAGE ((size_t)8 << 10) /* longer ones never wait */
#define MUX_BATCH_IOVS (2 * MUX_BATCH_FRAMES + 2 * MUX_MAX_PIECES)
#define MUX_BATCH_BYTES ((size_t)256 << 10)

struct mux_pool {
    struct mux_pool_entry *free[24];
    size_t cached;
};
void *mux_pool_get(struct mux_pool *pool, size_t bytes);
void mux_pool_put(struct mux_pool *pool, void *memory, size_t bytes);
void mux_pool_clear(struct mux_pool *pool);

/* A message on its way out: queued on its stream, then in the batch of its connection. */
struct mux_outgoing {
    TAILQ_ENTRY(mux_outgoing) link;
    struct transport_stream *stream;
    struct transport_header header;
    struct transport_ticket *ticket;
    bool ready;     /* committed; posts are at once */
    bool reserved;  /* payload is a slot of ours */
    bool charged;   /* credit was taken already */
    bool permitted; /* by number, when it was reserved */
    char *rest;     /* private copy of what quiesce found unsent */
    size_t rest_bytes;
    enum { MUX_BYTES, MUX_WRITING, MUX_WRITTEN } way; /* by frames, or into the place of the peer */
    void *write;                                      /* the pipe's, while MUX_WRITING */
    int iov_first, iov_count;
    uint64_t end; /* position in the batch behind the last byte */
    int npieces;
    struct transport_piece pieces[];
};
TAILQ_HEAD(mux_outgoings, mux_outgoing);

/* Where a posted message belongs, as the peer names it. */
struct mux_place {
    uint64_t address, length;
    uint32_t keys[2];    /* per rail */
    uint32_t generation; /* of the queue pairs that may write there; 0: none */
};

/* An announcement of a message that has not begun to arrive. */
struct mux_post {
    TAILQ_ENTRY(mux_post) link;
    struct transport_ticket *ticket;
    size_t length;
    bool posted;  /* goes to `pieces`; else an expectation */
    bool dropped; /* quiesced: what comes is thrown away */
    bool counted; /* in nposts of the connection */
    bool placed;  /* the peer may be writing into `pieces` */
    bool told;    /* or has been let to */
    uint64_t number;
    struct mux_place place;
    int npieces;
    struct transport_piece pieces[];
};
TAILQ_HEAD(mux_posts, mux_post);

/* At the sender: where a message may be written. */
struct mux_place_entry {
    TAILQ_ENTRY(mux_place_entry) link;
    uint64_t number;
    struct mux_place place;
};
TAILQ_HEAD(mux_places, mux_place_entry);

/* A message kept here until it is released or claimed by a post. */
struct mux_message {
    TAILQ_ENTRY(mux_message) link;
    struct transport_header header;
    uint64_t number;
    uint32_t charge;        /* credit to return, 0 when granted */
    struct mux_post *claim; /* post that came while the message was arriving */
    size_t stored;
    _Alignas(64) char data[];
};
TAILQ_HEAD(mux_messages, mux_message);

enum { MUX_NEED_CREDIT = 1, MUX_NEED_REQUEST = 2, MUX_NEED_CLOSE = 4, MUX_NEED_PLACE = 8 };

struct transport_stream {
    UT_hash_handle hh;
    struct transport_key key;
    struct mux_connection *connection;
    void *owner;
    enum { STREAM_UNOPENED, STREAM_OPEN, STREAM_CLOSED } state;

    /* sending */
    struct mux_outgoings queue;
    uint64_t queued;      /* messages in `queue` */
    unsigned reserved;    /* slots not yet sent */
    uint64_t next_number; /* of the head of the queue */
    uint64_t charged, consumed;
    uint64_t granted;
    uint64_t requested; /* 1 + number of the message last asked for */
    struct transport_header request_header;
    bool wants_writable; /* a reserve said AGAIN */
    bool wants_pool;     /* because slots were short here */
    bool asking;         /* a REQUEST has no answer yet */
    bool retry;          /* to be sent again */
    int in_batch;
    struct mux_places places;

    /* receiving */
    uint64_t arriving; /* number of the next message to begin */
    uint64_t announced;
    uint64_t grant;      /* what the peer may send, as sent or about to be */
    uint64_t got_charge; /* eager charge received, */
    uint64_t taken;      /* consumed, */
    uint64_t reported;   /* and told to the peer */
    struct mux_posts posts;
    uint64_t places_told, places_kept; /* of posts: told to the peer, to be told later */
    struct mux_messages arrived;
    bool has_request, counted_request;
    uint64_t request_number;
    struct transport_header request;

    uint8_t needs;
    bool in_control, in_ready, in_owing, in_grave;
    bool touched; /* a frame of it came or went */
    bool close_sent, close_came;
    TAILQ_ENTRY(transport_stream) control_link, ready_link, owing_link, tomb_link, pool_link;
};
TAILQ_HEAD(mux_streams, transport_stream);

/* A frame to send about a stream that has no record here. */
struct mux_answer {
    struct transport_key key;
    uint64_t message;
    enum frame_type type;
};

struct mux_connection {
    struct mux *mux;
    int peer;
    bool open;      /* the pipe is there */
    bool got_init;  /* the peer's first frame came */
    bool left;      /* BYE came */
    bool told_left; /* and it was reported */
    int broken;     /* errno of what broke it, 0 while it works; reported by progress */
    bool is_broken;
    char why[160];
    char address[NET_ADDRESS_TEXT];

    int64_t due_ns; /* when the pipe wants to be called */

    struct transport_stream *streams; /* uthash, by key */
    struct transport_stream *last;    /* found last */
    unsigned unopened, requests;
    struct mux_streams tombs, graves;

    /* sending */
    unsigned slots, slots_used; /* given by the peer */
    struct mux_streams control, ready;
    struct mux_outgoings batch;
    struct iovec iov[MUX_BATCH_IOVS];
    int iov_next, iov_end;
    uint64_t batch_bytes, batch_sent;
    int write_error;       /* errno; what came before it is read first */
    struct frame head;     /* being filled */
    struct frame last_out; /* of pipes that pack frames */
    uint8_t heads[MUX_BATCH_FRAMES * FRAME_PACKED_MOST];
    size_t heads_bytes;
    int nheads;
    bool flushing, in_dirty, want_init, want_bye, want_stopped;
    bool wants_room;   /* a slot was refused because something was before it */
    int64_t posted_ns; /* the last short post, */
    uint32_t posted_turn;
    unsigned burst, held; /* those before it in the burst; those that wait */
    size_t held_bytes;
    uint32_t stopped_generation;
    struct mux_answer *answers;
    unsigned nanswers, answers_size;
    unsigned waiting_requests; /* streams that asked and have no answer */
    unsigned retry_streams;
    int64_t retry_due_ns;

    /* receiving */
    unsigned slots_given, slots_bound;
    struct mux_streams owing; /* credit not yet reported */
    size_t npartial;          /* bytes of `frame` or `packed`, while not in_frame */
    struct frame frame;       /* being received */
    struct frame last_in;     /* of pipes that pack frames */
    uint8_t packed[FRAME_PACKED_MOST];
    bool in_frame;
    bool drop;           /* what arrives goes nowhere */
    uint64_t left_bytes; /* of payload */
    uint32_t skip_bytes; /* of trailer */
    struct transport_stream *target;
    struct mux_post *post;
    struct mux_message *message;
    struct transport_piece pieces[MUX_MAX_PIECES];
    int npieces, piece;
    size_t piece_done;
    bool was_large;
    unsigned nposts; /* announcements outstanding on all streams */
    bool in_hot;

    TAILQ_ENTRY(mux_connection) dirty_link, hot_link, all_link;
};
TAILQ_HEAD(mux_connections, mux_connection);

/* What a transport brings. A connection of the pipe begins with its struct mux_connection. */
struct mux_pipe {
    const struct transport_ops *ops;
    size_t connection_bytes;
    size_t eager_most; /* bytes of an unannounced message, if slots suffice */
    bool packs;        /* frames travel packed: no byte of the pipe is ever wrong */
    /* A connection was made: sets up the pipe's part. */
    void (*init)(struct mux_connection *connection);
    /* As sendmsg without waiting; -1 and errno, EAGAIN: not now. */
    ssize_t (*send)(struct mux_connection *connection, struct iovec *iov, int count);
    /* Bytes that surely go now and need nobody here afterwards; when there are more again the pipe
     * calls mux_room_came. NULL: the system keeps and sends what it took, which is enough. */
    size_t (*room)(const struct mux_connection *connection);
    /* Where up to `bytes` that go at once may be put, NULL: not now; and sends so many of them,
     * which cannot be refused. NULL: the pipe has no memory of its own. */
    char *(*begin)(struct mux_connection *connection, size_t bytes);
    void (*end)(struct mux_connection *connection, size_t bytes);
    /* Takes all that has come, as far as the budget goes. */
    void (*receive)(struct mux_connection *connection);
    /* One turn of progress, between two flushes. */
    void (*poll)(struct mux *mux);
    /* connection->due_ns has passed. */
    void (*due)(struct mux_connection *connection);
    /* Closes the pipe: nothing of the peer's is written here any more. */
    void (*shut)(struct mux_connection *connection);
    /* After shut. Unused: nobody has used the connection, so that it may be tried again. */
    void (*ended)(struct mux_connection *connection, bool used);
    /* The peer's first frame came. */
    void (*ready)(struct mux_connection *connection);

    /* -- places; NULL in pipes of bytes alone ---------------------------------------------- */
    size_t place_from; /* shorter messages are not worth it */
    /* Where the peer may write a posted message; false: nowhere. */
    bool (*place)(struct mux_connection *connection, const struct mux_post *post,
                  struct mux_place *place);
    /* Begins to write a message there, sets outgoing->write; mux_written follows. False: not this
     * way. */
    bool (*write)(struct mux_connection *connection, struct mux_outgoing *outgoing,
                  const struct mux_place *place);
    /* Ends all writes of both sides at once: when it returns nothing is written or read any more.
     * Calls mux_unwritten for each write that had not ended. */
    void (*stop_writes)(struct mux_connection *connection);
    /* The peer stopped the writes of a generation, or asks for a way to write. */
    void (*stopped)(struct mux_connection *connection, uint32_t generation);
};

struct mux {
    struct transport base;
    struct transport_host *host;
    const struct mux_pipe *pipe;
    int epoll_fd, timer_fd;
    struct mux_connection **connections; /* per rank, NULL: none yet */
    struct mux_connections all, dirty, hot;
    unsigned nhot;
    struct mux_streams pool_waiters;
    unsigned npool_waiters;
    size_t reserved_bytes, slot_bytes_given;
    size_t eager_bytes; /* most bytes of an unannounced message */
    size_t slot_charge; /* what a slot holds; both follow from the number of ranks */
    struct mux_pool pool;
    bool in_progress;
    bool something_broke, has_graves;
    int events, budget; /* of the progress call that runs */
    uint32_t turn;
    int64_t due_ns; /* earliest timer, CLOCK_NEVER when there is none */
};

static inline struct mux *mux_of(struct transport *transport) {
    return (struct mux *)transport;
}
static inline uint32_t mux_charge(uint64_t length) {
    return (uint32_t)length + MUX_MESSAGE_CHARGE;
}

/* -- connection.c -- */
rota_status mux_init(struct mux *mux, const struct mux_pipe *pipe, struct transport_host *host);
void mux_destroy(struct mux *mux);
/* The connection to a peer, made if there is none; NULL without memory. */
struct mux_connection *mux_connection_get(struct mux *mux, int peer);
/* The pipe is there: sends the first frame. */
void mux_begin(struct mux_connection *connection);
void mux_shut(struct mux_connection *connection);
/* The first frame of the peer came. */
void mux_init_came(struct mux_connection *connection, const struct frame *frame);
void mux_connection_free(struct mux_connection *connection);
/* Reports connections that broke. */
void mux_report_broken(struct mux *mux);
/* Notes that the connection cannot go on; progress reports it. */
void mux_break(struct mux_connection *connection, int system_error, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* For peer_gone, where the peer is not connected or for sure gone. */
void mux_gone(struct mux_connection *connection, const char *text);
/* Sets connection->due_ns. */
void mux_due(struct mux_connection *connection, int64_t delay_ns);
/* Calls what is due; for who finds timer_fd readable. */
void mux_timers(struct mux *mux);
int mux_progress(struct transport *transport, int budget);
void mux_flush_dirty(struct mux *mux);
/* Asks again for streams whose request was not kept. */
void mux_retry_later(struct mux_connection *connection);
/* Whether the connection belongs to the few that something is expected of. */
void mux_connection_touch(struct mux_connection *connection);
/* False when nothing more can be sent or asked for; makes sure that this is reported. */
bool mux_usable(struct mux_connection *connection);

/* -- stream.c -- */
struct transport_stream *mux_stream_find(struct mux_connection *connection,
                                         const struct transport_key *key, bool create);
rota_status mux_stream_open(struct transport *transport, int peer, const struct transport_key *key,
                            void *owner, struct transport_stream **stream);
void mux_stream_close(struct transport *transport, struct transport_stream *stream);
void mux_quiesce(struct transport *transport, struct transport_stream *stream);
void mux_stream_fail(struct transport_stream *stream);
void mux_stream_free(struct transport_stream *stream);
/* Puts a stream that both sides have closed into its grave; frees those that nothing points to. */
void mux_check_closed(struct transport_stream *stream);
/* No post is a place any more: nobody writes. */
void mux_posts_unplace(struct mux_connection *connection);
void mux_bury(struct mux_connection *connection);
void mux_close_came(struct mux_connection *connection, struct transport_stream *stream);
/* Queues an answer about a stream without record. */
void mux_answer(struct mux_connection *connection, enum frame_type type,
                const struct transport_key *key, uint64_t message);
/* Takes the stream off the lists of those that wait; of those that have something to send. */
void mux_forget_waits(struct transport_stream *stream);
void mux_forget_lists(struct transport_stream *stream);

/* -- send.c -- */
enum transport_result mux_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot);
void mux_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot);
enum transport_result mux_put(struct transport *transport, struct transport_stream *stream,
                              const struct transport_header *header, const void *data);
enum transport_result mux_post_send(struct transport *transport, struct transport_stream *stream,
                                    const struct transport_header *header,
                                    const struct transport_piece *pieces, int npieces,
                                    struct transport_ticket *ticket);
/* Looks again at what the head of the stream's queue may do. */
void mux_stream_update(struct transport_stream *stream);
void mux_need(struct transport_stream *stream, uint8_t need);
void mux_dirty(struct mux_connection *connection);
/* Writes what can be written. */
void mux_flush(struct mux_connection *connection);
bool mux_has_output(const struct mux_connection *connection);
void mux_uncharge(struct mux_outgoing *outgoing);
void mux_outgoing_free(struct mux_outgoing *outgoing);
/* Copies what the batch still needs of this stream's user memory. */
void mux_batch_detach(struct transport_stream *stream);
void mux_batch_drop(struct mux_connection *connection);
void mux_room_came(struct mux *mux);
/* Ends of pipe->write: complete; or not written, so it goes by frames. */
void mux_written(struct mux_outgoing *outgoing);
void mux_unwritten(struct mux_outgoing *outgoing);
/* A PLACE frame came. */
void mux_place_came(struct transport_stream *stream, const struct frame *frame);
void mux_places_forget(struct transport_stream *stream);
/* Asks the peer to stop its writes of a generation, or to make a way for them. */
void mux_tell_stopped(struct mux_connection *connection, uint32_t generation);
/* Credit or grant came for a stream. */
void mux_permission(struct transport_stream *stream, const struct frame *frame);

/* -- receive.c -- */
void mux_expect(struct transport *transport, struct transport_stream *stream, size_t length);
enum transport_result mux_post_recv(struct transport *transport, struct transport_stream *stream,
                                    size_t length, const struct transport_piece *pieces,
                                    int npieces, struct transport_ticket *ticket);
bool mux_withdraw(struct transport *transport, struct transport_stream *stream,
                  struct transport_ticket *ticket);
enum transport_result mux_peek(struct transport *transport, struct transport_stream *stream,
                               struct transport_arrival *arrival);
void mux_release(struct transport *transport, struct transport_stream *stream,
                 struct transport_arrival *arrival);
bool mux_pending(struct transport *transport, struct transport_stream *stream,
                 struct transport_header *header);
void mux_message_free(struct transport_stream *stream, struct mux_message *message);
void mux_post_free(struct transport_stream *stream, struct mux_post *post);
/* The message of a post begins to arrive: takes it off the list. */
void mux_post_begun(struct transport_stream *stream, struct mux_post *post);
/* Eager charge was consumed here. */
void mux_taken(struct transport_stream *stream, uint32_t charge);
/* Completes a receive with a message that is here; frees both. */
void mux_claim(struct transport_stream *stream, struct mux_message *message, struct mux_post *post);

/* -- input.c -- */
/* Takes the next bytes of the pipe. */
void mux_input(struct mux_connection *connection, const char *data, size_t bytes);
/* Where the rest of the payload that is arriving belongs, at most MUX_MAX_PIECES; their bytes. */
size_t mux_targets(const struct mux_connection *connection, struct iovec *iov, int *count);
/* The first `bytes` of those have been put there. */
void mux_placed(struct mux_connection *connection, size_t bytes);

#endif
