/* Several sockets per pair of ranks, below the one pipe that transports/mux sees.
 *
 * Design notes. The bytes of the pipe are cut into chunks, each behind a head that says how long it
 * is and on which socket the next one comes. So the receiver reads in order, from one socket at a
 * time and straight to where the bytes belong, while the kernel holds what the other sockets
 * brought; nothing is put together again here. The sender chooses the next socket by what its
 * kernel still has to send: a path that is slow, or shares its link, gets less. What is short stays
 * on the socket of the chunk before, so a small message is still one call of the system to send;
 * it costs one more to receive.
 *
 * Who dialed the pair dials the other sockets, one after the other, when the pair is ready. Each
 * side uses those that it has; one that cannot be had is done without. */
#include "tcp.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define DIAL_NS (5000 * MS)

/* -- sending ------------------------------------------------------------------------------- */

/* The socket whose kernel has least to send; of several the one that comes next in turn. */
static unsigned emptiest(const struct tcp_connection *connection) {
    unsigned best = connection->out.at;
    int least = INT32_MAX;
    for (unsigned i = 1; i <= TCP_CONNECTIONS_MOST; i++) {
        unsigned s = (connection->out.at + i) % TCP_CONNECTIONS_MOST;
        int queued = 0;
        if (connection->fds[s] < 0 || ioctl(connection->fds[s], SIOCOUTQ, &queued) != 0)
            continue;
        if (queued < least) {
            least = queued;
            best = s;
        }
    }
    return best;
}

static void chunk_begin(struct tcp_connection *connection, size_t bytes) {
    struct tcp_chunk *out = &connection->out;
    uint32_t length = (uint32_t)(bytes < TCP_CHUNK ? bytes : TCP_CHUNK);
    out->head = (struct tcp_chunk_head){.length = length, .magic = TCP_CHUNK_MAGIC};
    out->head.next = (uint16_t)(length == TCP_CHUNK ? emptiest(connection) : out->at);
    out->head_bytes = 0;
    out->left = length;
    out->begun = true;
}

static void chunk_end(struct tcp_connection *connection, struct tcp_chunk *chunk) {
    unsigned before = chunk->at;
    chunk->at = chunk->head.next;
    chunk->begun = false;
    chunk->head_bytes = 0;
    if (chunk->at != before && !tcp_watch(connection, connection->watching))
        mux_break(&connection->base, errno, "a socket cannot be watched");
}

/* Sends what fits of the chunk, from byte `skip` of the iovecs on; returns bytes of payload. */
static ssize_t chunk_send(struct tcp_connection *connection, const struct iovec *iov, int count,
                          size_t skip) {
    struct tcp_chunk *out = &connection->out;
    struct iovec parts[MUX_BATCH_IOVS + 1];
    size_t head = sizeof out->head - out->head_bytes, left = out->left;
    int n = 0;
    if (head > 0)
        parts[n++] = (struct iovec){(char *)&out->head + out->head_bytes, head};
    for (int i = 0; i < count && left > 0; i++) {
        if (skip >= iov[i].iov_len) {
            skip -= iov[i].iov_len;
            continue;
        }
        size_t length = iov[i].iov_len - skip;
        length = length < left ? length : left;
        parts[n++] = (struct iovec){(char *)iov[i].iov_base + skip, length};
        left -= length;
        skip = 0;
    }
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = (size_t)n};
    ssize_t sent = sendmsg(connection->fds[out->at], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0)
        return -1;
    size_t of_head = (size_t)sent < head ? (size_t)sent : head;
    out->head_bytes += of_head;
    out->left -= (uint32_t)((size_t)sent - of_head);
    if ((size_t)sent == of_head) {
        errno = EAGAIN;
        return -1;
    }
    return sent - (ssize_t)of_head;
}

ssize_t tcp_stripes_send(struct tcp_connection *connection, const struct iovec *iov, int count) {
    struct tcp_chunk *out = &connection->out;
    size_t bytes = 0, done = 0;
    for (int i = 0; i < count; i++)
        bytes += iov[i].iov_len;
    while (done < bytes) {
        if (!out->begun)
            chunk_begin(connection, bytes - done);
        ssize_t sent = chunk_send(connection, iov, count, done);
        if (sent < 0)
            return done > 0 ? (ssize_t)done : -1;
        done += (size_t)sent;
        if (out->left > 0)
            break;
        chunk_end(connection, out);
    }
    return (ssize_t)done;
}

/* -- receiving ----------------------------------------------------------------------------- */

ssize_t tcp_stripes_head(struct tcp_connection *connection) {
    struct tcp_chunk *in = &connection->in;
    int fd = connection->fds[in->at];
    if (in->begun)
        return (ssize_t)in->left;
    if (fd < 0) { /* it was let in, and is on its way to us */
        errno = EAGAIN;
        return -1;
    }
    if (in->head_bytes < sizeof in->head) {
        ssize_t got = recv(fd, (char *)&in->head + in->head_bytes, sizeof in->head - in->head_bytes,
                           MSG_DONTWAIT);
        if (got <= 0)
            return got;
        in->head_bytes += (size_t)got;
    }
    if (in->head_bytes < sizeof in->head) {
        errno = EAGAIN;
        return -1;
    }
    if (in->head.magic != TCP_CHUNK_MAGIC || in->head.length == 0 || in->head.length > TCP_CHUNK ||
        in->head.next >= tcp_mux(&connection->base)->connections) {
        errno = EPROTO;
        return -1;
    }
    in->left = in->head.length;
    in->begun = true;
    return (ssize_t)in->left;
}

bool tcp_stripes_took(struct tcp_connection *connection, size_t bytes) {
    struct tcp_chunk *in = &connection->in;
    size_t ahead = bytes > in->left ? bytes - in->left : 0;
    in->left -= (uint32_t)(bytes - ahead);
    if (in->left > 0)
        return false;
    bool more = ahead > 0 || in->head.length == TCP_CHUNK;
    chunk_end(connection, in);
    if (ahead > 0) {
        in->head = connection->ahead;
        in->head_bytes = ahead;
    }
    return more;
}

/* -- the other sockets --------------------------------------------------------------------- */

void tcp_stripes_reset(struct tcp_connection *connection) {
    for (unsigned i = 0; i < TCP_CONNECTIONS_MOST; i++) {
        if (connection->fds[i] >= 0)
            close(connection->fds[i]); /* leaves the epoll set too */
        connection->fds[i] = -1;
        connection->events[i] = 0;
    }
    memset(&connection->in, 0, sizeof connection->in);
    memset(&connection->out, 0, sizeof connection->out);
    connection->dialing = 0;
    connection->watching = TCP_UNWATCHED;
}

static bool stripe_add(struct tcp_connection *connection, unsigned stripe, int fd) {
    if (!tcp_socket_prepare(connection, fd)) {
        close(fd);
        return false;
    }
    connection->fds[stripe] = fd;
    if (!tcp_watch(connection, connection->watching))
        mux_break(&connection->base, errno, "a socket cannot be watched");
    return true;
}

void tcp_accept_stripe(struct transport *transport, int peer, int stripe, int socket) {
    struct tcp *tcp = tcp_of(transport);
    struct tcp_connection *connection = tcp_connection_of(tcp->mux.connections[peer]);
    if (!connection || !connection->base.open || connection->base.is_broken || stripe < 1 ||
        (unsigned)stripe >= tcp->connections || connection->fds[stripe] >= 0) {
        close(socket);
        return;
    }
    /* Its sender may use it already, so doing without would wait for ever. */
    if (!stripe_add(connection, (unsigned)stripe, socket))
        mux_break(&connection->base, errno, "connection %d to rank %d cannot be used", stripe,
                  peer);
}

static void stripe_failed(struct tcp_connection *connection) {
    log_write(LOG_WARN, "rank %d is reached by %u instead of %u TCP connections: %s",
              connection->base.peer, connection->dialing, tcp_mux(&connection->base)->connections,
              error_record()->message);
    error_clear();
    tcp_dial_drop(connection);
    connection->dialing = 0;
    connection->base.due_ns = CLOCK_NEVER;
}

void tcp_stripes_dial(struct tcp_connection *connection) {
    struct tcp *tcp = tcp_mux(&connection->base);
    const struct net_address *address = tcp_address_at(connection, connection->next_address);
    if (++connection->dialing >= tcp->connections || !address) {
        connection->dialing = 0;
        return;
    }
    struct net_target target = {.inet = *address, .local_name = NULL};
    if (net_dial_start(tcp->mux.host->identity, &target, connection->base.peer,
                       (enum net_purpose)(NET_PURPOSE_DATA + TRANSPORT_TCP), NULL, 0,
                       clock_now_ns() + DIAL_NS, &connection->dial) != ROTA_OK) {
        connection->dial = NULL;
        stripe_failed(connection);
        return;
    }
    net_dial_stripe(connection->dial, (uint16_t)connection->dialing);
    mux_due(&connection->base, DIAL_NS + MS);
    tcp_dial_watch(connection);
}

void tcp_stripes_step(struct tcp_connection *connection) {
    struct net_answer answer = {0};
    bool finished = false;
    if (net_dial_step(connection->dial, &finished, &answer) != ROTA_OK) {
        stripe_failed(connection);
        return;
    }
    if (!finished) {
        tcp_dial_watch(connection);
        return;
    }
    int fd = tcp_dial_finish(connection);
    connection->base.due_ns = CLOCK_NEVER;
    /* The peer has it now: one that is of no use here is one that it must not use. */
    if (!stripe_add(connection, connection->dialing, fd))
        mux_break(&connection->base, errno, "a connection cannot be used");
    else
        tcp_stripes_dial(connection);
}
