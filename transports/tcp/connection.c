/* Connections: attempts of ours, admission of peers, crossing, the end.
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
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
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
#define RETRY_NS (5 * MS)

static bool state_move(struct tcp_transport *tcp, int peer, enum tcp_state from,
                       enum tcp_state to) {
    uint8_t expected = (uint8_t)from;
    /* Partner: the other side's compare-and-swap, control thread or domain; the byte itself is all
     * that they share. */
    return atomic_compare_exchange_strong_explicit(&tcp->states[peer], &expected, (uint8_t)to,
                                                   memory_order_acq_rel, memory_order_acquire);
}

static enum tcp_state state_get(struct tcp_transport *tcp, int peer) {
    return (enum tcp_state)atomic_load_explicit(&tcp->states[peer], memory_order_acquire);
}

bool tcp_admit(struct transport *transport, int peer) {
    struct tcp_transport *tcp = tcp_of(transport);
    if (peer < 0 || peer >= tcp->host->nranks || peer == tcp->host->rank)
        return false;
    return state_move(tcp, peer, TCP_IDLE, TCP_ADMITTED) ||
           state_move(tcp, peer, TCP_WAITING, TCP_ADMITTED) ||
           (peer < tcp->host->rank && state_move(tcp, peer, TCP_DIALING, TCP_ADMITTED)) ||
           state_get(tcp, peer) == TCP_ADMITTED;
}

bool tcp_gave_up(struct transport *transport, int peer) {
    struct tcp_transport *tcp = tcp_of(transport);
    return peer >= 0 && peer < tcp->host->nranks && state_get(tcp, peer) == TCP_GIVEN_UP;
}

static struct tcp_connection *connection_get(struct tcp_transport *tcp, int peer) {
    struct tcp_connection *connection = tcp->connections[peer];
    if (connection)
        return connection;
    connection = calloc(1, sizeof *connection);
    if (!connection)
        return NULL;
    connection->tcp = tcp;
    connection->peer = peer;
    connection->fd = connection->dial_fd = -1;
    connection->due_ns = connection->retry_due_ns = CLOCK_NEVER;
    connection->backoff_ns = BACKOFF_FIRST_NS;
    TAILQ_INIT(&connection->tombs);
    TAILQ_INIT(&connection->graves);
    TAILQ_INIT(&connection->control);
    TAILQ_INIT(&connection->ready);
    TAILQ_INIT(&connection->owing);
    TAILQ_INIT(&connection->batch);
    tcp->connections[peer] = connection;
    TAILQ_INSERT_TAIL(&tcp->all, connection, all_link);
    return connection;
}

/* -- timers -------------------------------------------------------------------------------- */

void tcp_timer_set(struct tcp_transport *tcp, int64_t due_ns) {
    if (due_ns >= tcp->due_ns)
        return;
    tcp->due_ns = due_ns;
    struct itimerspec when = {
        .it_value = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000}};
    (void)timerfd_settime(tcp->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

static void due(struct tcp_connection *connection, int64_t delay_ns) {
    connection->due_ns = clock_now_ns() + delay_ns;
    tcp_timer_set(connection->tcp, connection->due_ns);
}

void tcp_retry_later(struct tcp_connection *connection) {
    if (connection->retry_due_ns != CLOCK_NEVER)
        return;
    connection->retry_due_ns = clock_now_ns() + RETRY_NS;
    tcp_timer_set(connection->tcp, connection->retry_due_ns);
}

static void ask_again(struct tcp_connection *connection) {
    struct transport_stream *stream, *next;
    connection->retry_due_ns = CLOCK_NEVER;
    for (stream = connection->streams; stream; stream = next) {
        next = stream->hh.next;
        if (!stream->retry)
            continue;
        stream->retry = false;
        connection->retry_streams--;
        if (stream->requested > stream->next_number)
            tcp_need(stream, TCP_NEED_REQUEST);
    }
}

static void attempt(struct tcp_connection *connection);

void tcp_timers(struct tcp_transport *tcp) {
    struct tcp_connection *connection;
    int64_t now = clock_now_ns(), earliest = CLOCK_NEVER;
    if (now < tcp->due_ns)
        return;
    uint64_t expirations;
    (void)!read(tcp->timer_fd, &expirations, sizeof expirations);
    tcp->due_ns = CLOCK_NEVER;
    TAILQ_FOREACH(connection, &tcp->all, all_link) {
        if (connection->due_ns <= now) {
            connection->due_ns = CLOCK_NEVER;
            /* An admission that came to nothing is taken back. */
            if (connection->fd < 0 && connection->wanted)
                (void)state_move(tcp, connection->peer, TCP_ADMITTED, TCP_WAITING);
            if (connection->dial)
                tcp_dial_step(connection); /* sees its deadline */
            else
                attempt(connection);
        }
        if (connection->retry_due_ns <= now)
            ask_again(connection);
        if (connection->due_ns < earliest)
            earliest = connection->due_ns;
        if (connection->retry_due_ns < earliest)
            earliest = connection->retry_due_ns;
    }
    tcp_timer_set(tcp, earliest);
}

/* -- attempts ------------------------------------------------------------------------------ */

static void give_up(struct tcp_connection *connection, int system_error, const char *text) {
    struct tcp_transport *tcp = connection->tcp;
    if (!state_move(tcp, connection->peer, TCP_DIALING, TCP_GIVEN_UP) &&
        !state_move(tcp, connection->peer, TCP_WAITING, TCP_GIVEN_UP))
        return; /* the peer was admitted meanwhile */
    connection->wanted = false;
    tcp->host->unreachable(tcp->host->context, &tcp->base, connection->peer, system_error, text);
}

static void dial_drop(struct tcp_connection *connection) {
    if (!connection->dial)
        return;
    if (connection->dial_fd >= 0)
        (void)epoll_ctl(connection->tcp->epoll_fd, EPOLL_CTL_DEL, connection->dial_fd, NULL);
    connection->dial_fd = -1;
    net_dial_free(connection->dial);
    connection->dial = NULL;
}

static const struct net_address *address_at(const struct tcp_connection *connection, int index) {
    const struct net_addresses *all = connection->tcp->host->peers[connection->peer].addresses;
    if (!all || index >= NET_MAX_ADDRESSES || all->inet[index].family == 0)
        return NULL;
    return &all->inet[index];
}

/* An attempt failed: the next address, or a pause, or the end. */
static void attempt_failed(struct tcp_connection *connection, int system_error, int64_t pause_ns) {
    struct tcp_transport *tcp = connection->tcp;
    const rota_error *record = error_record();
    int64_t now = clock_now_ns();
    char text[ROTA_ERROR_MAX_MESSAGE];
    snprintf(text, sizeof text, "%s", record->message);
    dial_drop(connection);
    if (system_error != ECONNREFUSED)
        connection->refused_ns = 0;
    else if (connection->refused_ns == 0)
        connection->refused_ns = now;
    bool refused = connection->refused_ns && now - connection->refused_ns > REFUSED_NS;
    if (pause_ns < 0 || refused || now - connection->began_ns > CONNECT_NS) {
        give_up(connection, system_error, text);
        return;
    }
    if (!state_move(tcp, connection->peer, TCP_DIALING, TCP_WAITING))
        return;
    connection->next_address++;
    if (pause_ns == 0 && address_at(connection, connection->next_address)) {
        due(connection, 0);
        return;
    }
    connection->next_address = 0;
    due(connection, pause_ns > connection->backoff_ns ? pause_ns : connection->backoff_ns);
    connection->backoff_ns *= 2;
    if (connection->backoff_ns > BACKOFF_MOST_NS)
        connection->backoff_ns = BACKOFF_MOST_NS;
}

static void dial_watch(struct tcp_connection *connection) {
    uint32_t events = 0;
    int fd = net_dial_descriptor(connection->dial, &events);
    struct epoll_event event = {.events = events, .data.ptr = connection};
    int how = fd == connection->dial_fd ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
    if (epoll_ctl(connection->tcp->epoll_fd, how, fd, &event) != 0 && errno == ENOENT)
        (void)epoll_ctl(connection->tcp->epoll_fd, EPOLL_CTL_ADD, fd, &event);
    connection->dial_fd = fd;
}

static void attempt(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    if (!connection->wanted || !state_move(tcp, connection->peer, TCP_WAITING, TCP_DIALING))
        return;
    const struct net_address *address = address_at(connection, connection->next_address);
    if (!address) {
        error_raise(ROTA_ERR_PEER, "rank %d announced no IP address", connection->peer);
        attempt_failed(connection, 0, -1);
        return;
    }
    struct net_target target = {.inet = *address, .local_name = NULL};
    net_address_text(address, connection->address);
    rota_status status = net_dial_start(tcp->host->identity, &target, connection->peer,
                                        (enum net_purpose)(NET_PURPOSE_DATA + TRANSPORT_TCP), NULL,
                                        0, clock_now_ns() + DIAL_NS, &connection->dial);
    if (status != ROTA_OK) {
        connection->dial = NULL;
        attempt_failed(connection, error_record()->system_error, 0);
        return;
    }
    due(connection, DIAL_NS + MS); /* nobody else looks at its deadline */
    dial_watch(connection);
    tcp_connection_touch(connection);
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

void tcp_dial_step(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    struct net_answer answer = {0};
    bool finished = false;
    if (state_get(tcp, connection->peer) != TCP_DIALING) {
        dial_drop(connection); /* the peer's attempt was admitted */
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
        dial_watch(connection);
        return;
    }
    int descriptors[NET_MAX_DESCRIPTORS], ndescriptors = 0;
    (void)epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, connection->dial_fd, NULL);
    connection->dial_fd = -1;
    int fd = net_dial_take(connection->dial, descriptors, &ndescriptors);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    dial_drop(connection);
    if (!state_move(tcp, connection->peer, TCP_DIALING, TCP_SHAKING)) {
        close(fd);
        return;
    }
    connection->due_ns = CLOCK_NEVER;
    if (!begin(connection, fd)) {
        (void)state_move(tcp, connection->peer, TCP_SHAKING, TCP_DIALING);
        attempt_failed(connection, errno, 0);
    }
}

void tcp_connect(struct transport *transport, int peer) {
    struct tcp_transport *tcp = tcp_of(transport);
    enum tcp_state state = state_get(tcp, peer);
    if (state == TCP_GIVEN_UP || state == TCP_FAILED) {
        tcp->host->unreachable(tcp->host->context, transport, peer, 0,
                               "the connection by tcp was given up before");
        return;
    }
    struct tcp_connection *connection = connection_get(tcp, peer);
    if (!connection) {
        tcp->host->unreachable(tcp->host->context, transport, peer, ENOMEM,
                               "no memory for a connection");
        return;
    }
    if (connection->wanted || state == TCP_READY)
        return;
    connection->wanted = true;
    connection->began_ns = clock_now_ns();
    if (state_move(tcp, peer, TCP_IDLE, TCP_WAITING))
        attempt(connection);
    else if (connection->fd < 0)
        due(connection, ADMITTED_NS);
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
        snprintf(connection->address, sizeof connection->address, "local socket");
        return;
    }
    net_address_text(&address, connection->address);
}

/* How many slots this peer gets: an equal share of the pool, none when it is empty. */
static unsigned slots_share(const struct tcp_transport *tcp) {
    size_t peers = tcp->host->nranks > 1 ? (size_t)tcp->host->nranks - 1 : 1;
    size_t share = TCP_SLOT_POOL / TCP_SLOT_CHARGE / peers;
    size_t left = (TCP_SLOT_POOL - tcp->slot_bytes_given) / TCP_SLOT_CHARGE;
    if (share < 4)
        share = 4;
    if (share > TCP_MAX_SLOTS)
        share = TCP_MAX_SLOTS;
    return (unsigned)(share < left ? share : left);
}

static bool begin(struct tcp_connection *connection, int fd) {
    struct tcp_transport *tcp = connection->tcp;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    int flags = fcntl(fd, F_GETFL), one = 1;
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(fd, F_SETFD, FD_CLOEXEC) != 0 ||
        epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, fd, &event) != 0) {
        error_raise_system(errno, "connection to rank %d", connection->peer);
        int kept = errno;
        close(fd);
        errno = kept;
        return false;
    }
    /* Fails on sockets that are not TCP, which tests use; nothing depends on it. */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection->fd = fd;
    connection->slots_given = slots_share(tcp);
    tcp->slot_bytes_given += connection->slots_given * TCP_SLOT_CHARGE;
    connection->want_init = true;
    connection->npartial = 0;
    connection->in_frame = false;
    note_address(connection, fd);
    tcp_connection_touch(connection);
    tcp_flush(connection);
    return true;
}

static void shut(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    if (connection->fd >= 0)
        close(connection->fd); /* leaves the epoll set too */
    connection->fd = -1;
    connection->polls_out = false;
    tcp->slot_bytes_given -= connection->slots_given * TCP_SLOT_CHARGE;
    connection->slots_given = 0;
    connection->is_broken = false;
    connection->broken = connection->write_error = 0;
    connection->iov_next = connection->iov_end = 0;
    tcp_connection_touch(connection);
}

void tcp_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                int ndescriptors) {
    struct tcp_transport *tcp = tcp_of(transport);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    struct tcp_connection *connection = connection_get(tcp, peer);
    /* An admission that was taken back meanwhile is as good as any. */
    (void)(state_move(tcp, peer, TCP_WAITING, TCP_ADMITTED) ||
           state_move(tcp, peer, TCP_IDLE, TCP_ADMITTED));
    if (!connection || state_get(tcp, peer) != TCP_ADMITTED) {
        close(socket);
        return;
    }
    dial_drop(connection);
    if (connection->fd >= 0)
        shut(connection); /* the peer began anew */
    connection->due_ns = CLOCK_NEVER;
    if (!begin(connection, socket) && connection->wanted)
        due(connection, BACKOFF_FIRST_NS);
}

void tcp_init_came(struct tcp_connection *connection, const struct frame *frame) {
    struct tcp_transport *tcp = connection->tcp;
    if (frame->total != TCP_SLOT_CHARGE || frame->length != 0) {
        tcp_break(connection, EPROTO, "the peer's slots differ from ours");
        return;
    }
    connection->slots = frame->credit < TCP_MAX_SLOTS ? (unsigned)frame->credit : TCP_MAX_SLOTS;
    connection->got_init = true;
    atomic_store_explicit(&tcp->states[connection->peer], TCP_READY, memory_order_release);
    connection->wanted = false;
    tcp->events++;
    tcp_dirty(connection);
    tcp_connection_touch(connection);
    tcp->host->connected(tcp->host->context, &tcp->base, connection->peer);
}

void tcp_watch(struct tcp_connection *connection, bool out) {
    if (connection->polls_out == out || connection->fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0u), .data.ptr = connection};
    if (epoll_ctl(connection->tcp->epoll_fd, EPOLL_CTL_MOD, connection->fd, &event) == 0)
        connection->polls_out = out;
}

void tcp_connection_touch(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    bool hot = connection->fd >= 0 && (connection->nposts > 0 || connection->waiting_requests > 0 ||
                                       !connection->got_init);
    if (hot == connection->in_hot)
        return;
    connection->in_hot = hot;
    if (hot) {
        TAILQ_INSERT_TAIL(&tcp->hot, connection, hot_link);
        tcp->nhot++;
    } else {
        TAILQ_REMOVE(&tcp->hot, connection, hot_link);
        tcp->nhot--;
    }
}

/* -- the end ------------------------------------------------------------------------------- */

void tcp_break(struct tcp_connection *connection, int system_error, const char *format, ...) {
    va_list arguments;
    if (connection->is_broken)
        return;
    connection->is_broken = true;
    connection->broken = system_error;
    va_start(arguments, format);
    vsnprintf(connection->why, sizeof connection->why, format, arguments);
    va_end(arguments);
    connection->tcp->something_broke = true;
}

/* Whether the engine still waits for something of this connection. */
static bool is_needed(const struct tcp_connection *connection) {
    const struct transport_stream *stream;
    if (connection->nposts > 0 || !TAILQ_EMPTY(&connection->batch))
        return true;
    for (stream = connection->streams; stream; stream = stream->hh.next) {
        if (!TAILQ_EMPTY(&stream->queue) || stream->wants_writable)
            return true;
    }
    return false;
}

bool tcp_usable(struct tcp_connection *connection) {
    if (connection->fd >= 0 && !connection->is_broken && !connection->left)
        return true;
    if (connection->left && !connection->told_left) {
        connection->told_left = true;
        tcp_break(connection, 0, "it has left the job in good order");
    }
    return false;
}

/* Completes everything outstanding with FAILED. */
static void fail_all(struct tcp_connection *connection) {
    struct transport_stream *stream;
    struct tcp_post *post = connection->post;
    struct tcp_message *message = connection->message;
    struct transport_ticket *tickets[2] = {NULL, NULL};
    if (connection->in_frame && connection->target) {
        if (post && post->posted && !connection->drop)
            tickets[0] = post->ticket;
        if (message && message->claim) {
            tickets[1] = connection->drop ? NULL : message->claim->ticket;
            tcp_post_free(connection->target, message->claim);
        }
        if (message)
            tcp_message_free(connection->target, message);
        if (post)
            tcp_post_free(connection->target, post);
    }
    connection->in_frame = false;
    connection->post = NULL;
    connection->message = NULL;
    for (int i = 0; i < 2; i++) {
        if (tickets[i])
            tickets[i]->done(tickets[i], TRANSPORT_FAILED);
    }
    tcp_batch_drop(connection);
    for (stream = connection->streams; stream; stream = stream->hh.next)
        tcp_stream_fail(stream);
}

static void report(struct tcp_connection *connection) {
    struct tcp_transport *tcp = connection->tcp;
    int error = connection->broken;
    char why[sizeof connection->why];
    char text[sizeof why + NET_ADDRESS_TEXT + 32];
    memcpy(why, connection->why, sizeof why);
    if (!connection->got_init) {
        /* Nobody has used it: try again, if it is wanted here. */
        shut(connection);
        connection->in_frame = false;
        enum tcp_state next = connection->wanted ? TCP_WAITING : TCP_IDLE;
        (void)(state_move(tcp, connection->peer, TCP_ADMITTED, next) ||
               state_move(tcp, connection->peer, TCP_SHAKING, next));
        if (connection->wanted)
            due(connection, connection->backoff_ns);
        return;
    }
    if (connection->left && !connection->told_left && !is_needed(connection)) {
        shut(connection); /* it left when nothing was wanted of it: no failure, so far */
        return;
    }
    connection->told_left = true;
    snprintf(text, sizeof text, "rank %d (%s): %s", connection->peer, connection->address,
             connection->left && !error ? "it has left the job in good order" : why);
    shut(connection);
    atomic_store_explicit(&tcp->states[connection->peer], TCP_FAILED, memory_order_release);
    tcp->host->peer_failed(tcp->host->context, &tcp->base, connection->peer, error, text);
    fail_all(connection);
}

void tcp_report_broken(struct tcp_transport *tcp) {
    struct tcp_connection *connection;
    tcp->something_broke = false;
    TAILQ_FOREACH(connection, &tcp->all, all_link) {
        if (connection->write_error && !connection->is_broken) {
            tcp->budget = INT32_MAX;
            tcp_receive(connection);
            if (!connection->is_broken)
                tcp_break(connection, connection->write_error, "%s",
                          strerror(connection->write_error));
        }
        if (connection->is_broken) {
            tcp->events++;
            report(connection);
        }
    }
}

bool tcp_peer_gone(struct transport *transport, int peer, bool left, const char *text) {
    struct tcp_transport *tcp = tcp_of(transport);
    struct tcp_connection *connection = tcp->connections[peer];
    if (left && connection && connection->got_init)
        return false; /* what it sent, and that it left, comes by the connection */
    if (!connection)
        return true;
    connection->wanted = false;
    connection->due_ns = CLOCK_NEVER;
    dial_drop(connection);
    (void)(state_move(tcp, peer, TCP_DIALING, TCP_GIVEN_UP) ||
           state_move(tcp, peer, TCP_WAITING, TCP_GIVEN_UP));
    if (connection->fd >= 0) {
        tcp->budget = INT32_MAX;
        tcp_receive(connection); /* what it sent before counts */
        tcp_break(connection, 0, "%s", text);
    }
    return true;
}

void tcp_connection_free(struct tcp_connection *connection) {
    struct transport_stream *stream, *next;
    dial_drop(connection);
    shut(connection);
    if (connection->in_frame && connection->target) {
        if (connection->message && connection->message->claim)
            tcp_post_free(connection->target, connection->message->claim);
        if (connection->message)
            tcp_message_free(connection->target, connection->message);
        if (connection->post)
            tcp_post_free(connection->target, connection->post);
    }
    struct tcp_outgoing *outgoing;
    while ((outgoing = TAILQ_FIRST(&connection->batch))) {
        TAILQ_REMOVE(&connection->batch, outgoing, link);
        tcp_outgoing_free(outgoing);
    }
    for (stream = connection->streams; stream; stream = next) {
        next = stream->hh.next;
        tcp_stream_free(stream);
    }
    free(connection->answers);
    free(connection);
}
