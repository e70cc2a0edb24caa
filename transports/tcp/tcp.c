/* The TCP transport: its table, its life, and progress. See tcp.h for how it works. */
#include "tcp.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* Up to so many connections with something outstanding are read directly; with more, epoll says
 * which have something. */
#define TCP_DIRECT_READS 4
/* Connections that nothing is expected of are looked at every so many calls of progress, more
 * often when each call reads a socket anyway. */
#define TCP_EPOLL_TURNS 32
#define TCP_EPOLL_TURNS_READING 8
#define TCP_EPOLL_EVENTS 32
/* What describe writes. */
#define TCP_BLOB 0x31706374u /* "tcp1", little endian */

static const struct transport_caps tcp_caps = {
    .size = sizeof(struct transport_caps),
    .version = TRANSPORT_VERSION,
    .max_message = TCP_MAX_MESSAGE,
    .preferred_slice = TCP_PREFERRED_SLICE,
    .eager_bytes = TCP_EAGER_BYTES,
    .posts_send = true,
    .posts_recv = true,
    .memory_kinds = 1,
};

static rota_status tcp_open(struct transport_host *host, struct transport **transport) {
    struct tcp_transport *tcp = calloc(1, sizeof *tcp);
    size_t nranks = (size_t)host->nranks;
    if (!tcp)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the tcp transport");
    tcp->epoll_fd = tcp->timer_fd = -1;
    tcp->base.ops = &transport_tcp;
    tcp->base.caps = tcp_caps;
    tcp->host = host;
    tcp->due_ns = CLOCK_NEVER;
    TAILQ_INIT(&tcp->all);
    TAILQ_INIT(&tcp->dirty);
    TAILQ_INIT(&tcp->hot);
    TAILQ_INIT(&tcp->pool_waiters);
    tcp->states = calloc(nranks, sizeof *tcp->states);
    tcp->connections = calloc(nranks, sizeof(struct tcp_connection *));
    tcp->read_buffer = malloc(TCP_READ_BUFFER);
    if (!tcp->states || !tcp->connections || !tcp->read_buffer) {
        error_raise(ROTA_ERR_MEMORY, "no memory for the tcp transport");
        goto undo;
    }
    tcp->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (tcp->epoll_fd < 0 || tcp->timer_fd < 0 ||
        epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, tcp->timer_fd, &event) != 0) {
        error_raise_system(errno, "epoll set of the tcp transport");
        goto undo;
    }
    *transport = &tcp->base;
    return ROTA_OK;
undo:;
    rota_status status = error_record()->status;
    if (tcp->epoll_fd >= 0)
        close(tcp->epoll_fd);
    if (tcp->timer_fd >= 0)
        close(tcp->timer_fd);
    free(tcp->read_buffer);
    free(tcp->connections);
    free(tcp->states);
    free(tcp);
    return status;
}

/* Says good-bye on a connection, as far as that goes without waiting. What is unread is read away
 * first: closing with unread bytes would reset the connection under the peer's feet. */
static void say_bye(struct tcp_connection *connection) {
    char *buffer = connection->tcp->read_buffer;
    if (connection->fd < 0 || !connection->got_init || connection->is_broken)
        return;
    connection->want_bye = true;
    tcp_flush(connection);
    (void)shutdown(connection->fd, SHUT_WR);
    for (int i = 0; i < 64; i++) {
        if (recv(connection->fd, buffer, TCP_READ_BUFFER, MSG_DONTWAIT) <= 0)
            break;
    }
}

static void tcp_close(struct transport *transport) {
    struct tcp_transport *tcp = tcp_of(transport);
    struct tcp_connection *connection;
    TAILQ_FOREACH(connection, &tcp->all, all_link)
    say_bye(connection);
    while ((connection = TAILQ_FIRST(&tcp->all))) {
        TAILQ_REMOVE(&tcp->all, connection, all_link);
        tcp_connection_free(connection);
    }
    close(tcp->timer_fd);
    close(tcp->epoll_fd);
    tcp_pool_clear(&tcp->pool);
    free(tcp->read_buffer);
    free(tcp->connections);
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
    struct tcp_transport *tcp = tcp_of(transport);
    const struct transport_peer *entry = &tcp->host->peers[peer];
    uint8_t mine[64];
    size_t bytes = tcp_describe(transport, mine);
    return peer != tcp->host->rank && entry->blob_bytes >= bytes &&
           memcmp(entry->blob, mine, bytes) == 0 && entry->addresses &&
           entry->addresses->inet[0].family != 0;
}

/* -- progress ------------------------------------------------------------------------------ */

static void flush_dirty(struct tcp_transport *tcp) {
    struct tcp_connections todo;
    struct tcp_connection *connection;
    TAILQ_INIT(&todo);
    TAILQ_CONCAT(&todo, &tcp->dirty, dirty_link);
    while ((connection = TAILQ_FIRST(&todo))) {
        TAILQ_REMOVE(&todo, connection, dirty_link);
        connection->in_dirty = false;
        tcp_flush(connection);
    }
}

static void receive_hot(struct tcp_transport *tcp) {
    struct tcp_connection *connections[TCP_DIRECT_READS], *connection;
    int n = 0;
    TAILQ_FOREACH(connection, &tcp->hot, hot_link) {
        connections[n++] = connection;
        if (n == TCP_DIRECT_READS)
            break;
    }
    for (int i = 0; i < n; i++)
        tcp_receive(connections[i]);
}

static void receive_events(struct tcp_transport *tcp) {
    struct epoll_event events[TCP_EPOLL_EVENTS];
    int n = epoll_wait(tcp->epoll_fd, events, TCP_EPOLL_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct tcp_connection *connection = events[i].data.ptr;
        if (!connection)
            tcp_timers(tcp);
        else if (connection->dial)
            tcp_dial_step(connection);
        else if (events[i].events & ~(uint32_t)EPOLLOUT)
            tcp_receive(connection);
        if (connection && connection->polls_out && !tcp_has_output(connection))
            tcp_watch(connection, false);
    }
}

static void bury_all(struct tcp_transport *tcp) {
    struct tcp_connection *connection;
    tcp->has_graves = false;
    TAILQ_FOREACH(connection, &tcp->all, all_link)
    tcp_bury(connection);
}

static int tcp_progress(struct transport *transport, int budget) {
    struct tcp_transport *tcp = tcp_of(transport);
    if (tcp->in_progress)
        return 0;
    tcp->in_progress = true;
    tcp->events = 0;
    tcp->budget = budget > 0 ? budget : 1;
    tcp->turn++;
    if (tcp->has_graves)
        bury_all(tcp);
    if (!TAILQ_EMPTY(&tcp->dirty))
        flush_dirty(tcp);
    if (tcp->nhot > 0 && tcp->nhot <= TCP_DIRECT_READS)
        receive_hot(tcp);
    if (tcp->nhot > TCP_DIRECT_READS ||
        tcp->turn % (tcp->nhot > 0 ? TCP_EPOLL_TURNS_READING : TCP_EPOLL_TURNS) == 0)
        receive_events(tcp);
    if (!TAILQ_EMPTY(&tcp->dirty))
        flush_dirty(tcp);
    if (tcp->something_broke)
        tcp_report_broken(tcp);
    tcp->in_progress = false;
    return tcp->events;
}

/* The descriptor is readable while anything waits in a socket; so all that can be missed is what
 * is known here already. */
static bool tcp_arm(struct transport *transport) {
    struct tcp_transport *tcp = tcp_of(transport);
    struct tcp_connection *connection;
    if (tcp->something_broke)
        return false;
    tcp->events = 0;
    flush_dirty(tcp);
    if (tcp->events > 0 || tcp->something_broke)
        return false;
    TAILQ_FOREACH(connection, &tcp->dirty, dirty_link)
    tcp_watch(connection, true);
    return true;
}

static void tcp_disarm(struct transport *transport) {
    (void)transport; /* EPOLLOUT goes when its connection has nothing more to write */
}

static int tcp_descriptor(struct transport *transport) {
    return tcp_of(transport)->epoll_fd;
}

/* What was sent keeps being sent again, unacknowledged. Small segments may have passed: a router
 * whose MTU is smaller, and whose word of it does not arrive, lets only those through. */
static bool tcp_trouble(struct transport *transport, int peer, char *text, size_t size) {
    const struct tcp_connection *connection = tcp_of(transport)->connections[peer];
    struct tcp_info info;
    socklen_t length = sizeof(info);
    memset(&info, 0, sizeof(info));
    if (connection == NULL || connection->fd < 0 || connection->is_broken ||
        getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
        info.tcpi_unacked == 0 || info.tcpi_backoff < TCP_TROUBLE_BACKOFF)
        return false;
    snprintf(text, size,
             "%s does not acknowledge %u segments of %u bytes, sent %u times: packets are dropped, "
             "or a link on the way has a smaller MTU (then net.ipv4.tcp_mtu_probing=1 helps)",
             connection->address, info.tcpi_unacked, info.tcpi_snd_mss, info.tcpi_backoff + 1u);
    return true;
}

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
    .stream_open = tcp_stream_open,
    .stream_close = tcp_stream_close,
    .reserve = tcp_reserve,
    .commit = tcp_commit,
    .post_send = tcp_post_send,
    .expect = tcp_expect,
    .post_recv = tcp_post_recv,
    .peek = tcp_peek,
    .release = tcp_release,
    .pending = tcp_pending,
    .progress = tcp_progress,
    .arm = tcp_arm,
    .disarm = tcp_disarm,
    .descriptor = tcp_descriptor,
    .quiesce = tcp_quiesce,
    .peer_gone = tcp_peer_gone,
    .trouble = tcp_trouble,
};
