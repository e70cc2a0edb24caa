/* Connecting by TCP: attempts of ours, admission of peers, crossing.
 *
 * Who gets through. Each pair of ranks needs one connection, and both may begin. The state of the
 * peer is one atomic byte. An attempt of ours holds it in DIALING; then the control thread admits
 * the peer only if the peer's rank is lower than ours, so of two crossing attempts that of the
 * lower rank lives. Between attempts (WAITING) anybody is admitted. A connection counts only when
 * the first frame has come from the other side; one that ends before leads to another attempt. */
#include "tcp.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define MS INT64_C(1000000)
/* One attempt at one address; time for two repetitions of a lost SYN. */
#define DIAL_NS (5000 * MS)
#define BACKOFF_FIRST_NS (5 * MS)
#define BACKOFF_MOST_NS (1000 * MS)
/* A process that refuses for this long is gone: its listener is older than its address. */
#define REFUSED_NS (2000 * MS)
/* After this the pair is given up whatever the reason. */
#define CONNECT_NS (60000 * MS)
/* Between the admission of a peer and its connection. */
#define ADMITTED_NS (3000 * MS)
#define CROSSING_NS (200 * MS)

static bool state_move(struct tcp *tcp, int peer, enum tcp_state from, enum tcp_state to) {
    uint8_t expected = (uint8_t)from;
    /* Partner: the other side's compare-and-swap, control thread or domain; the byte itself is all
     * that they share. */
    return atomic_compare_exchange_strong_explicit(&tcp->states[peer], &expected, (uint8_t)to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static enum tcp_state state_get(struct tcp *tcp, int peer) {
    return (enum tcp_state)atomic_load_explicit(&tcp->states[peer], memory_order_acquire);
}

bool tcp_admit(struct transport *transport, int peer) {
    struct tcp *tcp = tcp_of(transport);
    if (peer < 0 || peer >= tcp->mux.host->nranks || peer == tcp->mux.host->rank)
        return false;
    return state_move(tcp, peer, TCP_IDLE, TCP_ADMITTED) ||
           state_move(tcp, peer, TCP_WAITING, TCP_ADMITTED) ||
           (peer < tcp->mux.host->rank && state_move(tcp, peer, TCP_DIALING, TCP_ADMITTED)) ||
           state_get(tcp, peer) == TCP_ADMITTED;
}

bool tcp_gave_up(struct transport *transport, int peer) {
    struct tcp *tcp = tcp_of(transport);
    return peer >= 0 && peer < tcp->mux.host->nranks && state_get(tcp, peer) == TCP_GIVEN_UP;
}

void tcp_connection_init(struct mux_connection *mux_connection) {
    struct tcp_connection *connection = tcp_connection_of(mux_connection);
    for (int i = 0; i < TCP_CONNECTIONS_MOST; i++)
        connection->fds[i] = -1;
    connection->dial_fd = -1;
    connection->backoff_ns = BACKOFF_FIRST_NS;
}

/* -- attempts ------------------------------------------------------------------------------ */

static void attempt(struct tcp_connection *connection);

void tcp_due(struct mux_connection *mux_connection) {
    struct tcp_connection *connection = tcp_connection_of(mux_connection);
    /* An admission that came to nothing is taken back. */
    if (connection->fds[0] < 0 && connection->wanted)
        (void)state_move(tcp_mux(mux_connection), mux_connection->peer, TCP_ADMITTED, TCP_WAITING);
    if (connection->dial)
        tcp_dial_step(connection); /* sees its deadline */
    else
        attempt(connection);
}

static void give_up(struct tcp_connection *connection, int system_error, const char *text) {
    struct tcp *tcp = tcp_mux(&connection->base);
    if (!state_move(tcp, connection->base.peer, TCP_DIALING, TCP_GIVEN_UP) &&
        !state_move(tcp, connection->base.peer, TCP_WAITING, TCP_GIVEN_UP))
        return; /* the peer was admitted meanwhile */
    connection->wanted = false;
    tcp->mux.host->unreachable(tcp->mux.host->context, &tcp->mux.base, connection->base.peer,
                               system_error, text);
}

void tcp_dial_drop(struct tcp_connection *connection) {
    if (!connection->dial)
        return;
    if (connection->dial_fd >= 0)
        (void)epoll_ctl(tcp_mux(&connection->base)->mux.epoll_fd, EPOLL_CTL_DEL,
                        connection->dial_fd, NULL);
    connection->dial_fd = -1;
    net_dial_free(connection->dial);
    connection->dial = NULL;
}

const struct net_address *tcp_address_at(const struct tcp_connection *connection, int index) {
    const struct net_addresses *all =
        tcp_mux(&connection->base)->mux.host->peers[connection->base.peer].addresses;
    if (!all || index >= NET_MAX_ADDRESSES || all->inet[index].family == 0)
        return NULL;
    return &all->inet[index];
}

/* An attempt failed: the next address, or a pause, or the end. */
static void attempt_failed(struct tcp_connection *connection, int system_error, int64_t pause_ns) {
    struct tcp *tcp = tcp_mux(&connection->base);
    const rota_error *record = error_record();
    int64_t now = clock_now_ns();
    char text[ROTA_ERROR_MAX_MESSAGE];
    snprintf(text, sizeof text, "%s", record->message);
    tcp_dial_drop(connection);
    if (system_error != ECONNREFUSED)
        connection->refused_ns = 0;
    else if (connection->refused_ns == 0)
        connection->refused_ns = now;
    bool refused = connection->refused_ns && now - connection->refused_ns > REFUSED_NS;
    if (pause_ns < 0 || refused || now - connection->began_ns > CONNECT_NS) {
        give_up(connection, system_error, text);
        return;
    }
    if (!state_move(tcp, connection->base.peer, TCP_DIALING, TCP_WAITING))
        return;
    connection->next_address++;
    if (pause_ns == 0 && tcp_address_at(connection, connection->next_address)) {
        mux_due(&connection->base, 0);
        return;
    }
    connection->next_address = 0;
    mux_due(&connection->base,
            pause_ns > connection->backoff_ns ? pause_ns : connection->backoff_ns);
    connection->backoff_ns *= 2;
    if (connection->backoff_ns > BACKOFF_MOST_NS)
        connection->backoff_ns = BACKOFF_MOST_NS;
}

void tcp_dial_watch(struct tcp_connection *connection) {
    uint32_t events = 0;
    int fd = net_dial_descriptor(connection->dial, &events);
    struct epoll_event event = {.events = events, .data.ptr = connection};
    int how = fd == connection->dial_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(tcp_mux(&connection->base)->mux.epoll_fd, how, fd, &event) != 0 &&
        errno == ENOENT)
        (void)epoll_ctl(tcp_mux(&connection->base)->mux.epoll_fd, EPOLL_CTL_ADD, fd, &event);
    connection->dial_fd = fd;
}

static void attempt(struct tcp_connection *connection) {
    struct tcp *tcp = tcp_mux(&connection->base);
    if (!connection->wanted || !state_move(tcp, connection->base.peer, TCP_WAITING, TCP_DIALING))
        return;
    const struct net_address *address = tcp_address_at(connection, connection->next_address);
    if (!address) {
        error_raise(ROTA_ERR_PEER, "rank %d announced no IP address", connection->base.peer);
        attempt_failed(connection, 0, -1);
        return;
    }
    struct net_target target = {.inet = *address, .local_name = NULL};
    net_address_text(address, connection->base.address);
    rota_status status = net_dial_start(tcp->mux.host->identity, &target, connection->base.peer,
                                        (enum net_purpose)(NET_PURPOSE_DATA + TRANSPORT_TCP), NULL,
                                        0, clock_now_ns() + DIAL_NS, &connection->dial);
    if (status != ROTA_OK) {
        connection->dial = NULL;
        attempt_failed(connection, error_record()->system_error, 0);
        return;
    }
    mux_due(&connection->base, DIAL_NS + MS); /* nobody else looks at its deadline */
    tcp_dial_watch(connection);
    mux_connection_touch(&connection->base);
}

static bool begin(struct tcp_connection *connection, int fd);

static void refused(struct tcp_connection *connection, const struct net_answer *answer) {
    switch (answer->verdict) {
    case NET_REFUSED_CROSSING: /* the peer's own attempt lives */
        attempt_failed(connection, 0, CROSSING_NS);
        break;
    case NET_REFUSED_TARGET: /* not there yet */
        attempt_failed(connection, 0, BACKOFF_FIRST_NS);
        break;
    default:
        attempt_failed(connection, 0, -1);
    }
}

int tcp_dial_finish(struct tcp_connection *connection) {
    int descriptors[NET_MAX_DESCRIPTORS], ndescriptors = 0;
    (void)epoll_ctl(tcp_mux(&connection->base)->mux.epoll_fd, EPOLL_CTL_DEL, connection->dial_fd,
                    NULL);
    connection->dial_fd = -1;
    int fd = net_dial_take(connection->dial, descriptors, &ndescriptors);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    tcp_dial_drop(connection);
    return fd;
}

void tcp_dial_step(struct tcp_connection *connection) {
    struct tcp *tcp = tcp_mux(&connection->base);
    struct net_answer answer = {0};
    bool finished = false;
    if (connection->dialing > 0) {
        tcp_stripes_step(connection);
        return;
    }
    if (state_get(tcp, connection->base.peer) != TCP_DIALING) {
        tcp_dial_drop(connection); /* the peer's attempt was admitted */
        return;
    }
    rota_status status = net_dial_step(connection->dial, &finished, &answer);
    if (status == ROTA_ERR_MISMATCH) {
        refused(connection, &answer);
        return;
    }
    if (status != ROTA_OK) {
        attempt_failed(connection, error_record()->system_error, 0);
        return;
    }
    if (!finished) {
        tcp_dial_watch(connection);
        return;
    }
    int fd = tcp_dial_finish(connection);
    if (!state_move(tcp, connection->base.peer, TCP_DIALING, TCP_SHAKING)) {
        close(fd);
        return;
    }
    connection->base.due_ns = CLOCK_NEVER;
    if (!begin(connection, fd)) {
        (void)state_move(tcp, connection->base.peer, TCP_SHAKING, TCP_DIALING);
        attempt_failed(connection, errno, 0);
    }
}

void tcp_connect(struct transport *transport, int peer) {
    struct tcp *tcp = tcp_of(transport);
    enum tcp_state state = state_get(tcp, peer);
    if (state == TCP_GIVEN_UP || state == TCP_FAILED) {
        tcp->mux.host->unreachable(tcp->mux.host->context, transport, peer, 0,
                                   "the connection by tcp was given up before");
        return;
    }
    struct tcp_connection *connection = tcp_connection_of(mux_connection_get(&tcp->mux, peer));
    if (!connection) {
        tcp->mux.host->unreachable(tcp->mux.host->context, transport, peer, ENOMEM,
                                   "no memory for a connection");
        return;
    }
    if (connection->wanted || state == TCP_READY)
        return;
    connection->wanted = true;
    connection->began_ns = clock_now_ns();
    if (state_move(tcp, peer, TCP_IDLE, TCP_WAITING))
        attempt(connection);
    else if (connection->fds[0] < 0)
        mux_due(&connection->base, ADMITTED_NS);
}

/* -- the connection itself ----------------------------------------------------------------- */

/* The peer's address for messages, from the socket itself. */
static void note_address(struct tcp_connection *connection, int fd) {
    struct sockaddr_storage name = {0};
    socklen_t length = sizeof name;
    struct net_address address = {0};
    if (getpeername(fd, (struct sockaddr *)&name, &length) != 0)
        return;
    if (name.ss_family == AF_INET) {
        const struct sockaddr_in *in = (const struct sockaddr_in *)&name;
        address.family = AF_INET;
        address.port = ntohs(in->sin_port);
        memcpy(address.bytes, &in->sin_addr, 4);
    } else if (name.ss_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&name;
        address.family = AF_INET6;
        address.port = ntohs(in6->sin6_port);
        address.scope = in6->sin6_scope_id;
        memcpy(address.bytes, &in6->sin6_addr, 16);
    } else {
        snprintf(connection->base.address, sizeof connection->base.address, "local socket");
        return;
    }
    net_address_text(&address, connection->base.address);
}

bool tcp_socket_prepare(struct tcp_connection *connection, int fd) {
    int flags = fcntl(fd, F_GETFL), one = 1;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return false;
    /* Fails on sockets that are not TCP, which tests use; nothing depends on it. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (!connection->base.mux->host->peers[connection->base.peer].same_host)
        net_far(fd);
    return true;
}

static bool begin(struct tcp_connection *connection, int fd) {
    connection->fds[0] = fd;
    if (!tcp_socket_prepare(connection, fd) || !tcp_watch(connection, TCP_WATCHED)) {
        error_raise_system(errno, "connection to rank %d", connection->base.peer);
        int kept = errno;
        tcp_stripes_reset(connection);
        errno = kept;
        return false;
    }
    note_address(connection, fd);
    mux_begin(&connection->base);
    return true;
}

void tcp_shut(struct mux_connection *mux_connection) {
    struct tcp_connection *connection = tcp_connection_of(mux_connection);
    if (connection->dialing > 0)
        tcp_dial_drop(connection);
    tcp_stripes_reset(connection);
}

void tcp_ended(struct mux_connection *mux_connection, bool used) {
    struct tcp_connection *connection = tcp_connection_of(mux_connection);
    struct tcp *tcp = tcp_mux(mux_connection);
    int peer = mux_connection->peer;
    if (used) {
        atomic_store_explicit(&tcp->states[peer], TCP_FAILED, memory_order_release);
        return;
    }
    /* Nobody has used it: try again, if it is wanted here. */
    enum tcp_state next = connection->wanted ? TCP_WAITING : TCP_IDLE;
    (void)(state_move(tcp, peer, TCP_ADMITTED, next) || state_move(tcp, peer, TCP_SHAKING, next));
    if (connection->wanted)
        mux_due(mux_connection, connection->backoff_ns);
}

void tcp_ready(struct mux_connection *mux_connection) {
    struct tcp *tcp = tcp_mux(mux_connection);
    bool dialed = state_get(tcp, mux_connection->peer) == TCP_SHAKING;
    atomic_store_explicit(&tcp->states[mux_connection->peer], TCP_READY, memory_order_release);
    tcp_connection_of(mux_connection)->wanted = false;
    if (dialed && tcp->connections > 1)
        tcp_stripes_dial(tcp_connection_of(mux_connection));
}

void tcp_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                int ndescriptors) {
    struct tcp *tcp = tcp_of(transport);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    struct tcp_connection *connection = tcp_connection_of(mux_connection_get(&tcp->mux, peer));
    /* An admission that was taken back meanwhile is as good as any. */
    (void)(state_move(tcp, peer, TCP_WAITING, TCP_ADMITTED) ||
           state_move(tcp, peer, TCP_IDLE, TCP_ADMITTED));
    if (!connection || state_get(tcp, peer) != TCP_ADMITTED) {
        close(socket);
        return;
    }
    tcp_dial_drop(connection);
    if (connection->fds[0] >= 0)
        mux_shut(&connection->base); /* the peer began anew */
    connection->base.due_ns = CLOCK_NEVER;
    if (!begin(connection, socket) && connection->wanted)
        mux_due(&connection->base, BACKOFF_FIRST_NS);
}

bool tcp_watch(struct tcp_connection *connection, enum tcp_watching watching) {
    struct tcp *tcp = tcp_mux(&connection->base);
    if (connection->fds[0] < 0)
        return true;
    for (unsigned i = 0; i < tcp->connections; i++) {
        struct epoll_event event = {.data.ptr = connection};
        if (watching != TCP_UNWATCHED && i == connection->in.at)
            event.events |= EPOLLIN;
        if (watching == TCP_WATCHED_BOTH && i == connection->out.at)
            event.events |= EPOLLOUT;
        if (connection->fds[i] < 0 || connection->events[i] == event.events)
            continue;
        int how = connection->events[i] == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
        if (event.events == 0)
            how = EPOLL_CTL_DEL;
        if (epoll_ctl(tcp->mux.epoll_fd, how, connection->fds[i], &event) != 0)
            return false;
        connection->events[i] = event.events;
    }
    if (connection->watching != watching)
        connection->reads = 0;
    connection->watching = watching;
    return true;
}

bool tcp_peer_gone(struct transport *transport, int peer, bool left, const char *text) {
    struct tcp *tcp = tcp_of(transport);
    struct tcp_connection *connection = tcp_connection_of(tcp->mux.connections[peer]);
    if (left && connection && connection->base.got_init)
        return false; /* what it sent, and that it left, comes by the connection */
    if (!connection)
        return true;
    connection->wanted = false;
    connection->base.due_ns = CLOCK_NEVER;
    tcp_dial_drop(connection);
    (void)(state_move(tcp, peer, TCP_DIALING, TCP_GIVEN_UP) ||
           state_move(tcp, peer, TCP_WAITING, TCP_GIVEN_UP));
    mux_gone(&connection->base, text);
    return true;
}
