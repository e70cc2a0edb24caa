/* Inside of the TCP transport: one connection per pair of ranks, many streams on it.
 *
 * Design notes.
 *
 * Permission. A message travels only if its receiver has room for it, so nothing ever waits inside
 * a connection and no stream waits for another's reader. There are two kinds of permission:
 *   - credit: each side gives the other K slots when the connection begins. A sender binds a slot
 *     to a stream while eager messages of that stream are not yet known to be consumed; a slot
 *     holds TCP_SLOT_CHARGE bytes of charge. The receiver returns credit as a running sum, on any
 *     frame of the stream or in a CREDIT frame.
 *   - grant: the receiver permits all messages of a stream below a number. It grants what has been
 *     announced (expect, post_recv) when that is large, or when the sender asked.
 * A sender with neither sends one REQUEST per message, which carries the header; the receiver
 * answers as soon as the message is announced, and returns all credit that it owes.
 *
 * Numbers. Messages of a stream are numbered from 0 in the order in which they enter the wire, so
 * whatever is dropped before it was begun leaves no gap.
 *
 * Output. A connection writes one batch at a time: frames and payload as an array of iovecs that
 * point into user memory. Control frames are made from the state of their stream at the moment
 * when the batch is built, so that any number of announcements merges into one frame.
 *
 * Input. All connections share one read buffer: whatever is read is parsed at once, and only the
 * head of a frame may stay behind, in the connection. Payload that is longer than what came along
 * with its header is read where it belongs.
 *
 * Streams are found by their key. One that was closed stays as a tombstone until the peer has
 * closed it too (CLOSE frames), so that what arrives late is dropped and its credit returned. */
#ifndef TCP_H
#define TCP_H

#include "frame.h"
#include "net/handshake.h"
#include "transports/transport.h"

#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/uio.h>
#include <uthash.h>

#define TCP_EAGER_BYTES ((size_t)16 << 10)
#define TCP_MAX_MESSAGE ((size_t)1 << 30)
#define TCP_PREFERRED_SLICE ((size_t)256 << 10)
#define TCP_MAX_PIECES 64
/* What a message costs beside its payload: the receiver's record of it. */
#define TCP_MESSAGE_CHARGE 128u
#define TCP_SLOT_CHARGE (TCP_EAGER_BYTES + TCP_MESSAGE_CHARGE)
#define TCP_MAX_SLOTS 64u
/* Bytes that all peers together may send unannounced. */
#define TCP_SLOT_POOL ((size_t)16 << 20)
/* Announced messages from this length are granted at once; smaller ones usually have credit. */
#define TCP_GRANT_FROM ((size_t)8 << 10)
/* Largest message in a slot of reserve, and all slots together. */
#define TCP_RESERVE_MAX ((size_t)1 << 20)
#define TCP_RESERVE_POOL ((size_t)8 << 20)
/* Streams of a connection that only the peer uses so far. */
#define TCP_MAX_UNOPENED 4096u
/* Requests on streams that are not open here; more are answered by RETRY. */
#define TCP_MAX_REQUESTS 1024u
/* Answers (RETRY, CLOSE) that wait for the socket. */
#define TCP_MAX_ANSWERS 65536u
#define TCP_READ_BUFFER ((size_t)64 << 10)
/* After a payload of this length the next frame is read without read-ahead. */
#define TCP_LARGE ((size_t)32 << 10)
#define TCP_BATCH_FRAMES 64
/* Repetitions in a row (0.2, 0.4, 0.8 s, ...) after which a path is called bad. */
#define TCP_TROUBLE_BACKOFF 2
#define TCP_BATCH_IOVS (2 * TCP_BATCH_FRAMES + 2 * TCP_MAX_PIECES)
#define TCP_BATCH_BYTES ((size_t)256 << 10)

/* State of the connection to a peer. The control thread moves it to ADMITTED only, by
 * compare-and-swap; everything else is done with the domain held. */
enum tcp_state {
    TCP_IDLE = 0,
    TCP_DIALING,  /* an attempt of ours is on its way */
    TCP_WAITING,  /* between two attempts; anybody may be admitted */
    TCP_ADMITTED, /* the control thread let the peer in; until its first frame came */
    TCP_SHAKING,  /* our attempt was let in; until the peer's first frame came */
    TCP_READY,
    TCP_GIVEN_UP,
    TCP_FAILED
};

struct tcp_pool {
    struct tcp_pool_entry *free[24];
    size_t cached;
};
void *tcp_pool_get(struct tcp_pool *pool, size_t bytes);
void tcp_pool_put(struct tcp_pool *pool, void *memory, size_t bytes);
void tcp_pool_clear(struct tcp_pool *pool);

/* A message on its way out: queued on its stream, then in the batch of its connection. */
struct tcp_outgoing {
    TAILQ_ENTRY(tcp_outgoing) link;
    struct transport_stream *stream;
    struct transport_header header;
    struct transport_ticket *ticket;
    bool ready;     /* committed; posts are at once */
    bool reserved;  /* payload is a slot of ours */
    bool charged;   /* credit was taken already */
    bool permitted; /* by number, when it was reserved */
    char *slot;
    char *rest; /* private copy of what quiesce found unsent */
    size_t rest_bytes;
    int iov_first, iov_count;
    uint64_t end; /* position in the batch behind the last byte */
    int npieces;
    struct transport_piece pieces[];
};
TAILQ_HEAD(tcp_outgoings, tcp_outgoing);

/* An announcement of a message that has not begun to arrive. */
struct tcp_post {
    TAILQ_ENTRY(tcp_post) link;
    struct transport_ticket *ticket;
    size_t length;
    bool posted;  /* goes to `pieces`; else an expectation */
    bool dropped; /* quiesced: what comes is thrown away */
    bool counted; /* in nposts of the connection */
    int npieces;
    struct transport_piece pieces[];
};
TAILQ_HEAD(tcp_posts, tcp_post);

/* A message kept here until it is released or claimed by a post. */
struct tcp_message {
    TAILQ_ENTRY(tcp_message) link;
    struct transport_header header;
    uint64_t number;
    uint32_t charge;        /* credit to return, 0 when granted */
    struct tcp_post *claim; /* post that came while the message was arriving */
    size_t stored;
    _Alignas(64) char data[];
};
TAILQ_HEAD(tcp_messages, tcp_message);

enum { TCP_NEED_CREDIT = 1, TCP_NEED_REQUEST = 2, TCP_NEED_CLOSE = 4 };

struct transport_stream {
    UT_hash_handle hh;
    struct transport_key key;
    struct tcp_connection *connection;
    void *owner;
    enum { STREAM_UNOPENED, STREAM_OPEN, STREAM_CLOSED } state;

    /* sending */
    struct tcp_outgoings queue;
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

    /* receiving */
    uint64_t arriving; /* number of the next message to begin */
    uint64_t announced;
    uint64_t grant;      /* what the peer may send, as sent or about to be */
    uint64_t got_charge; /* eager charge received, */
    uint64_t taken;      /* consumed, */
    uint64_t reported;   /* and told to the peer */
    struct tcp_posts posts;
    struct tcp_messages arrived;
    bool has_request, counted_request;
    uint64_t request_number;
    struct transport_header request;

    uint8_t needs;
    bool in_control, in_ready, in_owing, in_grave;
    bool touched; /* a frame of it came or went */
    bool close_sent, close_came;
    TAILQ_ENTRY(transport_stream) control_link, ready_link, owing_link, tomb_link, pool_link;
};
TAILQ_HEAD(tcp_streams, transport_stream);

/* A frame to send about a stream that has no record here. */
struct tcp_answer {
    struct transport_key key;
    uint64_t message;
    enum frame_type type;
};

struct tcp_connection {
    struct tcp_transport *tcp;
    int peer;
    int fd;         /* -1: none */
    bool got_init;  /* the peer's first frame came */
    bool left;      /* BYE came */
    bool told_left; /* and it was reported */
    int broken;     /* errno of what broke it, 0 while it works; reported by progress */
    bool is_broken;
    char why[160];
    char address[NET_ADDRESS_TEXT];

    /* connecting */
    bool wanted;
    struct net_dial *dial;
    int dial_fd;
    int next_address;
    int64_t began_ns, refused_ns, due_ns;
    int64_t backoff_ns;

    struct transport_stream *streams; /* uthash, by key */
    struct transport_stream *last;    /* found last */
    unsigned unopened, requests;
    struct tcp_streams tombs, graves;

    /* sending */
    unsigned slots, slots_used; /* given by the peer */
    struct tcp_streams control, ready;
    struct tcp_outgoings batch;
    struct iovec iov[TCP_BATCH_IOVS];
    int iov_next, iov_end;
    uint64_t batch_bytes, batch_sent;
    int write_error; /* errno; what came before it is read first */
    struct frame heads[TCP_BATCH_FRAMES];
    int nheads;
    bool flushing, in_dirty, want_init, want_bye, polls_out;
    struct tcp_answer *answers;
    unsigned nanswers, answers_size;
    unsigned waiting_requests; /* streams that asked and have no answer */
    unsigned retry_streams;
    int64_t retry_due_ns;

    /* receiving */
    unsigned slots_given, slots_bound;
    struct tcp_streams owing; /* credit not yet reported */
    char partial[sizeof(struct frame)];
    size_t npartial;
    struct frame frame; /* being received */
    bool in_frame;
    bool drop;           /* what arrives goes nowhere */
    uint64_t left_bytes; /* of payload */
    uint32_t skip_bytes; /* of trailer */
    struct transport_stream *target;
    struct tcp_post *post;
    struct tcp_message *message;
    struct transport_piece pieces[TCP_MAX_PIECES];
    int npieces, piece;
    size_t piece_done;
    bool was_large;
    unsigned nposts; /* announcements outstanding on all streams */
    bool in_hot;

    TAILQ_ENTRY(tcp_connection) dirty_link, hot_link, all_link;
};
TAILQ_HEAD(tcp_connections, tcp_connection);

struct tcp_transport {
    struct transport base;
    struct transport_host *host;
    int epoll_fd, timer_fd;
    _Atomic uint8_t *states; /* enum tcp_state, per peer */
    struct tcp_connection **connections;
    struct tcp_connections all, dirty, hot;
    unsigned nhot;
    struct tcp_streams pool_waiters;
    unsigned npool_waiters;
    size_t reserved_bytes, slot_bytes_given;
    struct tcp_pool pool;
    char *read_buffer;
    bool in_progress;
    bool something_broke, has_graves;
    int events, budget; /* of the progress call that runs */
    uint32_t turn;
    int64_t due_ns; /* earliest timer, CLOCK_NEVER when there is none */
};

static inline struct tcp_transport *tcp_of(struct transport *transport) {
    return (struct tcp_transport *)transport;
}
static inline uint32_t tcp_charge(uint64_t length) {
    return (uint32_t)length + TCP_MESSAGE_CHARGE;
}

/* -- connection.c -- */
void tcp_connect(struct transport *transport, int peer);
bool tcp_admit(struct transport *transport, int peer);
bool tcp_peer_gone(struct transport *transport, int peer, bool left, const char *text);
bool tcp_gave_up(struct transport *transport, int peer);
void tcp_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                int ndescriptors);
/* Goes on with an attempt whose descriptor is ready. */
void tcp_dial_step(struct tcp_connection *connection);
void tcp_connection_free(struct tcp_connection *connection);
/* The first frame of the peer came. */
void tcp_init_came(struct tcp_connection *connection, const struct frame *frame);
/* Notes that the connection cannot go on; progress reports it. */
void tcp_break(struct tcp_connection *connection, int system_error, const char *format, ...)
    __attribute__((format(printf, 3, 4), cold));
/* Reports connections that broke. */
void tcp_report_broken(struct tcp_transport *tcp);
/* Timers of all connections. */
void tcp_timers(struct tcp_transport *tcp);
void tcp_timer_set(struct tcp_transport *tcp, int64_t due_ns);
/* Asks again for streams whose request was not kept. */
void tcp_retry_later(struct tcp_connection *connection);
void tcp_watch(struct tcp_connection *connection, bool out);
/* Whether the connection belongs to the few that progress reads without asking epoll. */
void tcp_connection_touch(struct tcp_connection *connection);
/* False when nothing more can be sent or asked for; makes sure that this is reported. */
bool tcp_usable(struct tcp_connection *connection);
/* The peer left in good order; report it if something is still wanted of it. */
void tcp_check_left(struct tcp_connection *connection);

/* -- stream.c -- */
struct transport_stream *tcp_stream_find(struct tcp_connection *connection,
                                         const struct transport_key *key, bool create);
rota_status tcp_stream_open(struct transport *transport, int peer, const struct transport_key *key,
                            void *owner, struct transport_stream **stream);
void tcp_stream_close(struct transport *transport, struct transport_stream *stream);
void tcp_quiesce(struct transport *transport, struct transport_stream *stream);
void tcp_stream_fail(struct transport_stream *stream);
void tcp_stream_free(struct transport_stream *stream);
/* Puts a stream that both sides have closed into its grave; frees those that nothing points to. */
void tcp_check_closed(struct transport_stream *stream);
void tcp_bury(struct tcp_connection *connection);
void tcp_close_came(struct tcp_connection *connection, struct transport_stream *stream);
/* Queues an answer about a stream without record. */
void tcp_answer(struct tcp_connection *connection, enum frame_type type,
                const struct transport_key *key, uint64_t message);
/* Takes the stream off the lists of those that wait; of those that have something to send. */
void tcp_forget_waits(struct transport_stream *stream);
void tcp_forget_lists(struct transport_stream *stream);

/* -- send.c -- */
enum transport_result tcp_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot);
void tcp_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot);
enum transport_result tcp_post_send(struct transport *transport, struct transport_stream *stream,
                                    const struct transport_header *header,
                                    const struct transport_piece *pieces, int npieces,
                                    struct transport_ticket *ticket);
/* Looks again at what the head of the stream's queue may do. */
void tcp_stream_update(struct transport_stream *stream);
void tcp_need(struct transport_stream *stream, uint8_t need);
void tcp_dirty(struct tcp_connection *connection);
/* Writes what can be written. */
void tcp_flush(struct tcp_connection *connection);
bool tcp_has_output(const struct tcp_connection *connection);
void tcp_uncharge(struct tcp_outgoing *outgoing);
void tcp_outgoing_free(struct tcp_outgoing *outgoing);
/* Copies what the batch still needs of this stream's user memory. */
void tcp_batch_detach(struct transport_stream *stream);
void tcp_batch_drop(struct tcp_connection *connection);
/* Credit or grant came for a stream. */
void tcp_permission(struct transport_stream *stream, const struct frame *frame);

/* -- receive.c -- */
void tcp_expect(struct transport *transport, struct transport_stream *stream, size_t length);
enum transport_result tcp_post_recv(struct transport *transport, struct transport_stream *stream,
                                    size_t length, const struct transport_piece *pieces,
                                    int npieces, struct transport_ticket *ticket);
enum transport_result tcp_peek(struct transport *transport, struct transport_stream *stream,
                               struct transport_arrival *arrival);
void tcp_release(struct transport *transport, struct transport_stream *stream,
                 struct transport_arrival *arrival);
bool tcp_pending(struct transport *transport, struct transport_stream *stream,
                 struct transport_header *header);
void tcp_message_free(struct transport_stream *stream, struct tcp_message *message);
void tcp_post_free(struct transport_stream *stream, struct tcp_post *post);
/* Eager charge was consumed here. */
void tcp_taken(struct transport_stream *stream, uint32_t charge);
/* Completes a receive with a message that is here; frees both. */
void tcp_claim(struct transport_stream *stream, struct tcp_message *message, struct tcp_post *post);

/* -- input.c -- */
/* Reads and handles what came; returns the number of events. */
void tcp_receive(struct tcp_connection *connection);

#endif
