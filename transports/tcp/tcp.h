/* Inside of the TCP transport: a socket per pair of ranks as the pipe of transports/mux. */
#ifndef TCP_H
#define TCP_H

#include "net/handshake.h"
#include "transports/mux/mux.h"

#include <stdatomic.h>

#define TCP_EAGER_MOST ((size_t)64 << 10)
#define TCP_PREFERRED_MESSAGE ((size_t)1 << 20)
/* Sockets per pair of ranks, at most; and bytes that go on one before the next is chosen. */
#define TCP_CONNECTIONS_MOST 8
#define TCP_CHUNK ((size_t)128 << 10)
#define TCP_CHUNK_MAGIC 0x6b63u /* "ck", little endian */
#define TCP_READ_BUFFER ((size_t)64 << 10)
/* Repetitions in a row (0.2, 0.4, 0.8 s, ...) after which a path is called bad. */
#define TCP_TROUBLE_BACKOFF 2

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

/* What the epoll set says of a socket. Each segment that arrives at a watched one costs a call to
 * whoever might sleep on it (0.3-0.4 us of 3.5), so with few peers a socket that is being read
 * anyway is taken out of the set, until somebody is about to sleep. */
enum tcp_watching { TCP_UNWATCHED, TCP_WATCHED, TCP_WATCHED_BOTH /* and when it can be written */ };

/* Before each chunk, where a pair has several sockets. */
struct tcp_chunk_head {
    uint32_t length;
    uint16_t next; /* socket on which the next chunk comes */
    uint16_t magic;
};
_Static_assert(sizeof(struct tcp_chunk_head) == 8, "sent over the wire");

/* The chunk that is being sent, or received. */
struct tcp_chunk {
    unsigned at; /* its socket */
    bool begun;
    uint32_t left;
    size_t head_bytes; /* of the head that are through */
    struct tcp_chunk_head head;
};

struct tcp_connection {
    struct mux_connection base;
    int fds[TCP_CONNECTIONS_MOST];         /* the first is there while the pipe is open; -1: none */
    uint32_t events[TCP_CONNECTIONS_MOST]; /* that epoll tells of */
    struct tcp_chunk in, out;
    struct tcp_chunk_head ahead; /* read behind the chunk before */
    unsigned dialing;            /* number of the further socket that we dial; 0: none */
    enum tcp_watching watching;
    unsigned reads; /* that brought something, since it is watched */
    /* connecting */
    bool wanted;
    struct net_dial *dial;
    int dial_fd;
    int next_address;
    int64_t began_ns, refused_ns;
    int64_t backoff_ns;
};

struct tcp {
    struct mux mux;
    _Atomic uint8_t *states; /* enum tcp_state, per peer */
    char *read_buffer;
    unsigned connections; /* sockets per pair */
};

static inline struct tcp *tcp_of(struct transport *transport) {
    return (struct tcp *)transport;
}
static inline struct tcp *tcp_mux(const struct mux_connection *connection) {
    return (struct tcp *)connection->mux;
}
static inline struct tcp_connection *tcp_connection_of(struct mux_connection *connection) {
    return (struct tcp_connection *)connection;
}

/* -- connect.c -- */
void tcp_connection_init(struct mux_connection *connection);
void tcp_connect(struct transport *transport, int peer);
bool tcp_admit(struct transport *transport, int peer);
bool tcp_peer_gone(struct transport *transport, int peer, bool left, const char *text);
bool tcp_gave_up(struct transport *transport, int peer);
void tcp_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                int ndescriptors);
void tcp_due(struct mux_connection *connection);
/* Goes on with an attempt whose descriptor is ready; gives one up. */
void tcp_dial_step(struct tcp_connection *connection);
void tcp_dial_drop(struct tcp_connection *connection);
void tcp_shut(struct mux_connection *connection);
void tcp_ended(struct mux_connection *connection, bool used);
void tcp_ready(struct mux_connection *connection);
int tcp_dial_finish(struct tcp_connection *connection); /* its socket */
void tcp_dial_watch(struct tcp_connection *connection);
const struct net_address *tcp_address_at(const struct tcp_connection *connection, int index);
bool tcp_socket_prepare(struct tcp_connection *connection, int fd);
/* Tells epoll what to watch: the sockets of the chunks that come next. False: the kernel had no
 * memory for it. */
bool tcp_watch(struct tcp_connection *connection, enum tcp_watching watching);

/* -- stripes.c -- */
/* As sendmsg, in chunks. */
ssize_t tcp_stripes_send(struct tcp_connection *connection, const struct iovec *iov, int count);
/* Bytes that are left of the chunk, whose head is read first; as recv if there is none. */
ssize_t tcp_stripes_head(struct tcp_connection *connection);
/* So many bytes were read: of the chunk, and behind it into `ahead`. Whether the next one is likely
 * to be there. */
bool tcp_stripes_took(struct tcp_connection *connection, size_t bytes);
/* Closes all sockets. */
void tcp_stripes_reset(struct tcp_connection *connection);
void tcp_stripes_dial(struct tcp_connection *connection);
void tcp_stripes_step(struct tcp_connection *connection);
void tcp_accept_stripe(struct transport *transport, int peer, int stripe, int socket);

#endif
