/* The TCP transport: its table, its life, and the socket as a pipe. */
#include "tcp.h"

#include "base/error.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* Up to so many connections with something outstanding are read directly; with more, epoll says
 * which have something. */
#define TCP_DIRECT_READS 4
/* Connections that nothing is expected of are looked at every so many calls of progress, more
 * often when each call reads a socket anyway. */
#define TCP_EPOLL_TURNS 32
#define TCP_EPOLL_TURNS_READING 8
#define TCP_EPOLL_EVENTS 32
/* Reads in a row between two sleeps after which a socket is no longer watched. */
#define TCP_UNWATCH_READS 64
/* What describe writes. */
#define TCP_BLOB 0x31706374u /* "tcp1", little endian */

static const struct transport_caps tcp_caps = {
    .size = sizeof(struct transport_caps),
    .version = TRANSPORT_VERSION,
    .max_message = MUX_MAX_MESSAGE,
    .preferred_slice = MUX_PREFERRED_SLICE,
    .preferred_message = TCP_PREFERRED_MESSAGE,
    .posts_send = true,
    .posts_recv = true,
    .gathers = true,
    .memory_kinds = 1,
};

static const struct mux_pipe tcp_pipe;

static rota_status tcp_open(struct transport_host *host, struct transport **transport) {
    struct tcp *tcp = calloc(1, sizeof *tcp);
    if (!tcp)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the tcp transport");
    rota_status status = mux_init(&tcp->mux, &tcp_pipe, host);
    tcp->mux.base.caps = tcp_caps;
    tcp->connections = (unsigned)settings_integer(host->settings, SETTING_TCP_CONNECTIONS);
    tcp->mux.base.caps.eager_bytes = tcp->mux.eager_bytes;
    tcp->states = calloc((size_t)host->nranks, sizeof *tcp->states);
    tcp->read_buffer = malloc(TCP_READ_BUFFER);
    if (status == ROTA_OK && (!tcp->states || !tcp->read_buffer))
        status = error_raise(ROTA_ERR_MEMORY, "no memory for the tcp transport");
    if (status == ROTA_OK) {
        *transport = &tcp->mux.base;
        return ROTA_OK;
    }
    mux_destroy(&tcp->mux);
    free(tcp->read_buffer);
    free(tcp->states);
    free(tcp);
    return status;
}

/* Says good-bye on a connection, as far as that goes without waiting. What is unread is read away
 * first: closing with unread bytes would reset the connection under the peer's feet. */
static void say_bye(struct tcp_connection *connection) {
    char *buffer = tcp_mux(&connection->base)->read_buffer;
    if (connection->fds[0] < 0 || !connection->base.got_init || connection->base.is_broken)
        return;
    connection->base.want_bye = true;
    mux_flush(&connection->base);
    for (int s = 0; s < TCP_CONNECTIONS_MOST && connection->fds[s] >= 0; s++) {
        (void)shutdown(connection->fds[s], SHUT_WR);
        for (int i = 0; i < 64; i++) {
            if (recv(connection->fds[s], buffer, TCP_READ_BUFFER, MSG_DONTWAIT) <= 0)
                break;
        }
    }
}

static void tcp_close(struct transport *transport) {
    struct tcp *tcp = tcp_of(transport);
    struct mux_connection *connection;
    TAILQ_FOREACH(connection, &tcp->mux.all, all_link) {
        say_bye(tcp_connection_of(connection));
        tcp_dial_drop(tcp_connection_of(connection));
    }
    mux_destroy(&tcp->mux);
    free(tcp->read_buffer);
    free(tcp->states);
    free(tcp);
}

static size_t tcp_describe(struct transport *transport, void *blob) {
    const uint8_t bytes[4] = {TCP_BLOB & 0xff, TCP_BLOB >> 8 & 0xff, TCP_BLOB >> 16 & 0xff,
                              TCP_BLOB >> 24};
    (void)transport;
    memcpy(blob, bytes, sizeof bytes);
    return sizeof bytes;
}

static bool tcp_reaches(struct transport *transport, int peer) {
    struct mux *mux = mux_of(transport);
    const struct transport_peer *entry = &mux->host->peers[peer];
    uint8_t mine[64];
    size_t bytes = tcp_describe(transport, mine);
    return peer != mux->host->rank && entry->blob_bytes >= bytes &&
           memcmp(entry->blob, mine, bytes) == 0 && entry->addresses &&
           entry->addresses->inet[0].family != 0;
}

/* -- the pipe ------------------------------------------------------------------------------ */

static ssize_t tcp_send(struct mux_connection *connection, struct iovec *iov, int count) {
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)count};
    if (tcp_mux(connection)->connections > 1)
        return tcp_stripes_send(tcp_connection_of(connection), iov, count);
    return sendmsg(tcp_connection_of(connection)->fds[0], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Keeps so many bytes of the iovecs; what they lack is left in *bytes. */
static int clip(struct iovec *iov, int count, size_t *bytes) {
    int n = 0;
    while (n < count && *bytes != 0) {
        if (iov[n].iov_len > *bytes)
            iov[n].iov_len = *bytes;
        *bytes -= iov[n].iov_len;
        n++;
    }
    return n;
}

/* Whether a read that brought nothing ends the connection. */
static bool read_failed(struct mux_connection *connection, ssize_t got) {
    int error = got < 0 ? errno : 0;
    if (got > 0 || error == EINTR || error == EAGAIN || error == EWOULDBLOCK)
        return false;
    mux_break(connection, error, "%s",
              error == EPROTO ? "head of a chunk is wrong"
              : error         ? strerror(error)
                              : "the connection was closed by the other side");
    return true;
}

/* With few peers a socket that is read again and again need not be watched. */
static void count_read(struct tcp_connection *connection) {
    struct tcp *tcp = tcp_mux(&connection->base);
    if (connection->watching == TCP_WATCHED && connection->base.in_hot &&
        tcp->mux.host->nranks - 1 <= TCP_DIRECT_READS && ++connection->reads >= TCP_UNWATCH_READS)
        (void)tcp_watch(connection, TCP_UNWATCHED);
}

/* One read: the rest of a payload straight to its target, and behind it whatever else came. All
 * connections share one buffer, since whatever is read is parsed at once. Returns false when the
 * socket is empty for now. */
static bool read_once(struct mux_connection *connection) {
    struct tcp *tcp = tcp_mux(connection);
    struct tcp_connection *self = tcp_connection_of(connection);
    bool striped = tcp->connections > 1;
    struct iovec iov[MUX_MAX_PIECES + 2];
    int n = 0;
    size_t direct = mux_targets(connection, iov, &n);
    size_t ahead = TCP_READ_BUFFER, chunk = SIZE_MAX;
    if (connection->was_large && (direct > 0 || !connection->in_frame))
        ahead = sizeof(struct frame) - connection->npartial;
    iov[n++] = (struct iovec){tcp->read_buffer, ahead};
    if (striped) {
        ssize_t left = tcp_stripes_head(self);
        if (left <= 0) {
            (void)read_failed(connection, left);
            return false;
        }
        size_t beyond = chunk = (size_t)left;
        n = clip(iov, n, &beyond);
        if (beyond == 0 && self->in.head.next == self->in.at)
            iov[n++] = (struct iovec){&self->ahead, sizeof self->ahead};
    }
    struct msghdr message = {.msg_iov = iov, .msg_iovlen = (size_t)n};
    ssize_t got;
    do /* recv is the shorter call */
        got = n == 1 ? recv(self->fds[self->in.at], iov[0].iov_base, iov[0].iov_len, MSG_DONTWAIT)
                     : recvmsg(self->fds[self->in.at], &message, MSG_DONTWAIT);
    while (got < 0 && errno == EINTR);
    if (got <= 0) {
        (void)read_failed(connection, got);
        return false;
    }
    count_read(self);
    bool more = striped && tcp_stripes_took(self, (size_t)got);
    if ((size_t)got > chunk)
        got = (ssize_t)chunk;
    size_t placed = (size_t)got < direct ? (size_t)got : direct;
    tcp->mux.base.counters.wire_bytes_received += placed;
    mux_placed(connection, placed);
    if ((size_t)got > placed || connection->in_frame)
        mux_input(connection, tcp->read_buffer, (size_t)got - placed);
    return more || (size_t)got == direct + ahead;
}

static void tcp_receive(struct mux_connection *connection) {
    while (connection->open && !connection->is_broken && read_once(connection)) {
        if (connection->mux->events >= connection->mux->budget)
            break;
    }
}

static void receive_hot(struct mux *mux) {
    struct mux_connection *connections[TCP_DIRECT_READS], *connection;
    int n = 0;
    TAILQ_FOREACH(connection, &mux->hot, hot_link) {
        connections[n++] = connection;
        if (n == TCP_DIRECT_READS)
            break;
    }
    for (int i = 0; i < n; i++)
        tcp_receive(connections[i]);
}

static void receive_events(struct mux *mux) {
    struct epoll_event events[TCP_EPOLL_EVENTS];
    int n = epoll_wait(mux->epoll_fd, events, TCP_EPOLL_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct tcp_connection *connection = events[i].data.ptr;
        if (!connection)
            mux_timers(mux);
        else if (connection->dial)
            tcp_dial_step(connection);
        if (connection && events[i].events & ~(uint32_t)EPOLLOUT)
            tcp_receive(&connection->base);
        if (connection && connection->watching == TCP_WATCHED_BOTH &&
            !mux_has_output(&connection->base))
            (void)tcp_watch(connection, TCP_WATCHED);
    }
}

/* Those that epoll does not tell of, and that nothing is expected of. */
static void receive_unwatched(struct mux *mux) {
    struct mux_connection *connection;
    TAILQ_FOREACH(connection, &mux->all, all_link) {
        if (tcp_connection_of(connection)->watching == TCP_UNWATCHED && !connection->in_hot)
            tcp_receive(connection);
    }
}

static void tcp_poll(struct mux *mux) {
    if (mux->nhot > 0 && mux->nhot <= TCP_DIRECT_READS)
        receive_hot(mux);
    if (mux->nhot > TCP_DIRECT_READS ||
        mux->turn % (mux->nhot > 0 ? TCP_EPOLL_TURNS_READING : TCP_EPOLL_TURNS) == 0) {
        receive_events(mux);
        receive_unwatched(mux);
    }
}

/* The descriptor is readable while anything waits in a socket; so all that can be missed is what
 * is known here already. */
static bool tcp_arm(struct transport *transport) {
    struct mux *mux = mux_of(transport);
    struct mux_connection *connection;
    if (mux->something_broke)
        return false;
    mux->events = 0;
    mux_flush_dirty(mux);
    if (mux->events > 0 || mux->something_broke)
        return false;
    bool watched = true;
    TAILQ_FOREACH(connection, &mux->all, all_link) {
        enum tcp_watching how = connection->in_dirty ? TCP_WATCHED_BOTH : TCP_WATCHED;
        if (tcp_connection_of(connection)->watching < how)
            watched &= tcp_watch(tcp_connection_of(connection), how);
    }
    return watched;
}

static void tcp_disarm(struct transport *transport) {
    (void)transport; /* EPOLLOUT goes when its connection has nothing more to write */
}

static int tcp_descriptor(struct transport *transport) {
    return mux_of(transport)->epoll_fd;
}

/* What was sent keeps being sent again, unacknowledged. Small segments may have passed: a router
 * whose MTU is smaller, and whose word of it does not arrive, lets only those through. */
static bool tcp_trouble(struct transport *transport, int peer, char *text, size_t size) {
    const struct tcp_connection *connection =
        tcp_connection_of(mux_of(transport)->connections[peer]);
    struct tcp_info info;
    socklen_t length = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (connection == NULL || connection->fds[0] < 0 || connection->base.is_broken ||
        getsockopt(connection->fds[connection->out.at], IPPROTO_TCP, TCP_INFO, &info, &length) !=
            0 ||
        info.tcpi_unacked == 0 || info.tcpi_backoff < TCP_TROUBLE_BACKOFF)
        return false;
    snprintf(text, size,
             "%s does not acknowledge %u segments of %u bytes, sent %u times: packets are dropped, "
             "or a link on the way has a smaller MTU (then net.ipv4.tcp_mtu_probing=1 helps)",
             connection->base.address, info.tcpi_unacked, info.tcpi_snd_mss,
             info.tcpi_backoff + 1u);
    return true;
}

static const struct mux_pipe tcp_pipe = {
    .ops = &transport_tcp,
    .connection_bytes = sizeof(struct tcp_connection),
    .eager_most = TCP_EAGER_MOST,
    .init = tcp_connection_init,
    .send = tcp_send,
    .receive = tcp_receive,
    .poll = tcp_poll,
    .due = tcp_due,
    .shut = tcp_shut,
    .ended = tcp_ended,
    .ready = tcp_ready,
};

const struct transport_ops transport_tcp = {
    .name = "tcp",
    .help = "TCP sockets, between any ranks",
    .open = tcp_open,
    .close = tcp_close,
    .describe = tcp_describe,
    .reaches = tcp_reaches,
    .connect = tcp_connect,
    .admit = tcp_admit,
    .gave_up = tcp_gave_up,
    .accept = tcp_accept,
    .accept_stripe = tcp_accept_stripe,
    .stream_open = mux_stream_open,
    .stream_close = mux_stream_close,
    .reserve = mux_reserve,
    .commit = mux_commit,
    .put = mux_put,
    .post_send = mux_post_send,
    .expect = mux_expect,
    .post_recv = mux_post_recv,
    .withdraw = mux_withdraw,
    .peek = mux_peek,
    .release = mux_release,
    .pending = mux_pending,
    .progress = mux_progress,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .descriptor = tcp_descriptor,
    .quiesce = mux_quiesce,
    .peer_gone = tcp_peer_gone,
    .trouble = tcp_trouble,
};
