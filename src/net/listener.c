/* The acceptor's half of the handshake, for every port that rota listens on.
 *
 * Design notes. Strangers may connect at any time, send anything or nothing. So unfinished
 * connections live in a table of fixed size, each reads one message of known length into its slot,
 * and nothing of it but the magic is looked at before its proof was checked. When the table is
 * full the oldest entry gives way, but not before it had STEP_ASIDE_MS: a burst of ranks that join
 * at once waits in the kernel's backlog instead of throwing each other out. What the listener
 * sends fits into an empty socket buffer, so sending never waits; only reading has states.
 * All descriptors are kept in the struct, so that they can be closed in the child of a fork. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "net/proof.h"
#include "net/socket.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define MAX_UNFINISHED 64
#define HANDSHAKE_MS 5000
#define STEP_ASIDE_MS 100
#define RETRY_ACCEPT_MS 50 /* after accept failed, e.g. without descriptors */
#define BACKLOG 4096       /* cut by net.core.somaxconn */
#define BIND_ATTEMPTS 24
#define BIND_PAUSE_MS 50 /* between attempts at any port: those of ended connections come back */
#define LOG_LINES_PER_S 10
#define MS 1000000ll

struct unfinished {
    int socket;          /* -1: free slot */
    bool local, passing; /* passing: admitted, its descriptors are awaited */
    int64_t accepted_ns;
    size_t filled;
    struct net_challenge challenge;
    struct net_hello_message hello;
};

struct net_listener {
    struct net_gate gate;
    int epoll, inet, local;
    bool accepting;          /* listening sockets are in the epoll set */
    int64_t accept_again_ns; /* when not */
    int64_t log_second;
    int log_lines, log_dropped;
    struct unfinished slots[MAX_UNFINISHED];
};

/* What an epoll event is about: a listening socket or a slot. */
enum { EVENT_INET = MAX_UNFINISHED, EVENT_LOCAL };

/* -- strangers ---------------------------------------------------------------------------------
 */

/* One line per foreign connection, and not more than some per second. */
static void log_foreign(struct net_listener *listener, const struct unfinished *slot,
                        const char *what) {
    int64_t second = clock_now_ns() / (1000 * MS);
    if (log_get_level() < LOG_INFO)
        return;
    if (second != listener->log_second) {
        if (listener->log_dropped > 0)
            log_write(LOG_INFO, "%d more foreign connections were dropped", listener->log_dropped);
        listener->log_second = second;
        listener->log_lines = listener->log_dropped = 0;
    }
    if (listener->log_lines++ >= LOG_LINES_PER_S) {
        listener->log_dropped++;
        return;
    }
    char text[NET_ADDRESS_TEXT] = "a local socket";
    if (!slot->local) {
        struct net_endpoint peer = {.length = sizeof peer.storage};
        if (getpeername(slot->socket, (struct sockaddr *)&peer.storage, &peer.length) == 0)
            net_endpoint_text(&peer, text);
    }
    log_write(LOG_INFO, "dropped a foreign connection from %s: %s", text, what);
}

static void slot_close(struct net_listener *listener, struct unfinished *slot) {
    /* Closing alone is not enough when a forked child holds the socket too. */
    epoll_ctl(listener->epoll, EPOLL_CTL_DEL, slot->socket, NULL);
    shutdown(slot->socket, SHUT_RDWR);
    close(slot->socket);
    slot->socket = -1;
}

static void slot_drop(struct net_listener *listener, struct unfinished *slot, const char *what) {
    log_foreign(listener, slot, what);
    slot_close(listener, slot);
}

/* -- handshake ---------------------------------------------------------------------------------
 */

static void slot_admit(struct net_listener *listener, struct unfinished *slot,
                       const int *descriptors, int ndescriptors) {
    int fd = slot->socket;
    struct net_hello hello = slot->hello.hello;
    epoll_ctl(listener->epoll, EPOLL_CTL_DEL, fd, NULL);
    slot->socket = -1;
    listener->gate.admit(listener->gate.context, &hello, fd, descriptors, ndescriptors);
}

static enum net_verdict decide(struct net_listener *listener, const struct net_identity *identity,
                               const struct net_hello *hello, struct net_answer *answer,
                               int *descriptors, int *ndescriptors) {
    answer->protocol = net_proof_protocol(hello->protocol_first, hello->protocol_last,
                                          identity->protocol_first, identity->protocol_last);
    if (answer->protocol == 0)
        return NET_REFUSED_PROTOCOL;
    /* Rendezvous and table compare settings themselves, to name the one that differs. */
    if (hello->purpose >= NET_PURPOSE_CONTROL && hello->agreement != identity->agreement)
        return NET_REFUSED_SETTINGS;
    return listener->gate.judge(listener->gate.context, hello, descriptors, ndescriptors);
}

/* A listener without the job's key cannot prove its refusal: the proof stays zero. */
static void answer_unknown(struct net_listener *listener, struct unfinished *slot) {
    struct net_answer_message message = {.answer = {.verdict = NET_REFUSED_TARGET}};
    (void)net_socket_send(slot->socket, &message, sizeof message);
    slot_drop(listener, slot, "it wants a job or rank that is not here");
}

static void slot_hello(struct net_listener *listener, struct unfinished *slot) {
    const struct net_hello *hello = &slot->hello.hello;
    const struct net_identity *identity = listener->gate.find(listener->gate.context, hello);
    if (identity == NULL) {
        answer_unknown(listener, slot);
        return;
    }
    uint8_t mac[NET_MAC_BYTES];
    net_proof_hello(identity->key, &slot->challenge, &slot->hello, mac);
    if (!net_proof_equal(mac, slot->hello.mac)) {
        slot_drop(listener, slot, "it does not hold the job key");
        return;
    }
    if (hello->purpose == 0 || hello->protocol_first > hello->protocol_last ||
        (hello->descriptors && !slot->local)) {
        slot_drop(listener, slot, "its hello contradicts itself");
        return;
    }
    int descriptors[NET_MAX_DESCRIPTORS], ndescriptors = 0;
    struct net_answer_message message = {.answer = {.protocol_first = identity->protocol_first,
                                                    .protocol_last = identity->protocol_last,
                                                    .rank = (uint32_t)identity->rank,
                                                    .incarnation = identity->incarnation}};
    enum net_verdict verdict =
        decide(listener, identity, hello, &message.answer, descriptors, &ndescriptors);
    message.answer.verdict = verdict;
    net_proof_answer(identity->key, &slot->challenge, &slot->hello, &message.answer, message.mac);
    bool sent = net_socket_send(slot->socket, &message, sizeof message);
    if (!sent || verdict != NET_GO) {
        slot_close(listener, slot);
        return;
    }
    if (!hello->descriptors) {
        slot_admit(listener, slot, NULL, 0);
    } else if (net_socket_send_descriptors(slot->socket, descriptors, ndescriptors)) {
        slot->passing = true;
    } else {
        slot_close(listener, slot);
    }
}

static void slot_descriptors(struct net_listener *listener, struct unfinished *slot) {
    int descriptors[NET_MAX_DESCRIPTORS], ndescriptors = 0;
    switch (net_socket_take_descriptors(slot->socket, descriptors, &ndescriptors)) {
    case NET_IO_AGAIN:
        return;
    case NET_IO_DONE:
        slot_admit(listener, slot, descriptors, ndescriptors);
        return;
    default:
        slot_close(listener, slot);
    }
}

static void slot_step(struct net_listener *listener, struct unfinished *slot) {
    if (slot->passing) {
        slot_descriptors(listener, slot);
        return;
    }
    enum net_io result =
        net_socket_read(slot->socket, &slot->hello, sizeof slot->hello, &slot->filled);
    if (slot->filled >= sizeof slot->hello.hello.magic && slot->hello.hello.magic != NET_MAGIC)
        slot_drop(listener, slot, "it does not speak rota's protocol");
    else if (result == NET_IO_DONE)
        slot_hello(listener, slot);
    else if (result != NET_IO_AGAIN)
        slot_drop(listener, slot, "it closed during the handshake");
    if (slot->passing)
        slot_descriptors(listener, slot); /* often there already */
}

/* -- accepting ---------------------------------------------------------------------------------
 */

static bool watch(struct net_listener *listener, int fd, uint32_t what) {
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = what};
    return epoll_ctl(listener->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void accepting_set(struct net_listener *listener, bool accepting) {
    if (listener->accepting == accepting)
        return;
    listener->accepting = accepting;
    for (int which = 0; which < 2; which++) {
        int fd = which == 0 ? listener->inet : listener->local;
        struct epoll_event event = {.events = accepting ? EPOLLIN : 0,
                                    .data.u32 = which == 0 ? EVENT_INET : EVENT_LOCAL};
        if (fd >= 0)
            epoll_ctl(listener->epoll, EPOLL_CTL_MOD, fd, &event);
    }
}

static void accepting_pause(struct net_listener *listener, int64_t until_ns) {
    listener->accept_again_ns = until_ns;
    accepting_set(listener, false);
}

/* A free slot, or that of the oldest connection once it had its time; NULL: not now. */
static struct unfinished *slot_find(struct net_listener *listener) {
    struct unfinished *oldest = &listener->slots[0];
    for (int i = 0; i < MAX_UNFINISHED; i++) {
        struct unfinished *slot = &listener->slots[i];
        if (slot->socket < 0)
            return slot;
        if (slot->accepted_ns < oldest->accepted_ns)
            oldest = slot;
    }
    int64_t step_aside_ns = oldest->accepted_ns + STEP_ASIDE_MS * MS;
    if (!clock_passed(step_aside_ns)) {
        accepting_pause(listener, step_aside_ns);
        return NULL;
    }
    slot_drop(listener, oldest, "it did not finish the handshake and others wait");
    return oldest;
}

static void slot_begin(struct net_listener *listener, struct unfinished *slot, int fd, bool local) {
    memset(slot, 0, sizeof *slot);
    slot->socket = fd;
    slot->local = local;
    slot->accepted_ns = clock_now_ns();
    slot->challenge.magic = NET_MAGIC;
    slot->challenge.protocol_first = NET_PROTOCOL_FIRST;
    slot->challenge.protocol_last = NET_PROTOCOL_LAST;
    net_random(slot->challenge.nonce, sizeof slot->challenge.nonce);
    if (!net_socket_send(fd, &slot->challenge, sizeof slot->challenge) ||
        !watch(listener, fd, (uint32_t)(slot - listener->slots)))
        slot_close(listener, slot);
    else
        slot_step(listener, slot); /* who closed already or sent noise gets no seat */
}

/* Accepts one connection; false when there is none or none can be taken now. */
static bool accept_one(struct net_listener *listener, bool local) {
    struct unfinished *slot = slot_find(listener);
    if (slot == NULL)
        return false;
    int fd =
        accept4(local ? listener->local : listener->inet, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
        slot_begin(listener, slot, fd, local);
        return true;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        log_write(LOG_INFO, "cannot accept a connection: %s", strerror(errno));
        accepting_pause(listener, clock_now_ns() + RETRY_ACCEPT_MS * MS);
        return false;
    }
    /* Errors of the connection that was to be accepted are not ours. */
    return errno != EAGAIN && errno != EWOULDBLOCK && errno != EBADF && errno != EINVAL;
}

static void drop_late(struct net_listener *listener) {
    for (int i = 0; i < MAX_UNFINISHED; i++) {
        struct unfinished *slot = &listener->slots[i];
        if (slot->socket >= 0 && clock_passed(slot->accepted_ns + HANDSHAKE_MS * MS))
            slot_drop(listener, slot, "it did not finish the handshake in time");
    }
}

static int next_deadline_ms(const struct net_listener *listener) {
    int64_t next = listener->accepting ? CLOCK_NEVER : listener->accept_again_ns;
    for (int i = 0; i < MAX_UNFINISHED; i++) {
        int64_t deadline = listener->slots[i].accepted_ns + HANDSHAKE_MS * MS;
        if (listener->slots[i].socket >= 0 && deadline < next)
            next = deadline;
    }
    return next == CLOCK_NEVER ? -1 : clock_left_ms(next);
}

int net_listener_step(struct net_listener *listener) {
    struct epoll_event events[MAX_UNFINISHED + 2];
    if (!listener->accepting && clock_passed(listener->accept_again_ns))
        accepting_set(listener, true);
    int n = epoll_wait(listener->epoll, events, MAX_UNFINISHED + 2, 0);
    for (int i = 0; i < n; i++) {
        uint32_t what = events[i].data.u32;
        if (what < MAX_UNFINISHED && listener->slots[what].socket >= 0)
            slot_step(listener, &listener->slots[what]);
    }
    /* Slots first, new connections after: an event never meets a slot that was taken again. */
    for (int i = 0; i < n; i++) {
        uint32_t what = events[i].data.u32;
        for (int k = 0; what >= MAX_UNFINISHED && k < MAX_UNFINISHED; k++)
            if (!accept_one(listener, what == EVENT_LOCAL))
                break;
    }
    drop_late(listener);
    return next_deadline_ms(listener);
}

int net_listener_descriptor(const struct net_listener *listener) {
    return listener->epoll;
}

/* -- opening -----------------------------------------------------------------------------------
 */

static rota_status listener_create(const struct net_gate *gate, struct net_listener **listener) {
    net_proof_init();
    struct net_listener *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a listener");
    made->gate = *gate;
    made->inet = made->local = -1;
    made->accepting = true;
    for (int i = 0; i < MAX_UNFINISHED; i++)
        made->slots[i].socket = -1;
    made->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (made->epoll < 0) {
        rota_status status = error_raise_system(errno, "cannot make an epoll set");
        free(made);
        return status;
    }
    *listener = made;
    return ROTA_OK;
}

/* Binds and listens; -1 with errno. */
static int listen_on(const struct net_endpoint *endpoint) {
    int fd = net_socket_open(endpoint->storage.ss_family);
    if (fd < 0)
        return -1;
    int off = 0;
    if (endpoint->storage.ss_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
    if (bind(fd, (const struct sockaddr *)&endpoint->storage, endpoint->length) == 0 &&
        listen(fd, BACKLOG) == 0)
        return fd;
    int failure = errno;
    close(fd);
    errno = failure;
    return -1;
}

static bool is_wildcard(const struct net_address *address) {
    static const uint8_t zero[16];
    return memcmp(address->bytes, zero, 16) == 0;
}

/* Listens on an address; the wildcard means both families where there are both. */
static int listen_inet(const struct net_address *address) {
    struct net_endpoint endpoint;
    if (!is_wildcard(address)) {
        net_endpoint_inet(&endpoint, address);
        return listen_on(&endpoint);
    }
    struct net_address wildcard = {.family = AF_INET6, .port = address->port};
    net_endpoint_inet(&endpoint, &wildcard);
    int fd = listen_on(&endpoint);
    if (fd >= 0 || errno == EADDRINUSE || errno == EACCES || errno == EMFILE || errno == ENFILE)
        return fd;
    wildcard.family = AF_INET;
    net_endpoint_inet(&endpoint, &wildcard);
    return listen_on(&endpoint);
}

static rota_status parse_range(const char *text, unsigned *first, unsigned *last) {
    int end = 0;
    *first = *last = 0;
    if (*text == 0)
        return ROTA_OK;
    if (sscanf(text, "%5u-%5u%n", first, last, &end) != 2 || text[end] != 0 || *first < 1 ||
        *last > 65535 || *first > *last)
        return error_raise(ROTA_ERR_SETTING,
                           "ROTA_PORT_RANGE=\"%.60s\": expected FIRST-LAST, ports from 1 to 65535",
                           text);
    return ROTA_OK;
}

static bool port_is_taken(void) {
    return errno == EADDRINUSE || errno == EACCES;
}

/* Tries all ports of a range; processes that start together seldom collide. Returns the socket, or
 * -1 and errno. */
static int listen_in_range(unsigned first, unsigned last) {
    unsigned count = last - first + 1;
    uint32_t start;
    int fd = -1;
    net_random(&start, sizeof start);
    for (unsigned i = 0; i < count && fd < 0; i++) {
        struct net_address wildcard = {.family = AF_INET6,
                                       .port = (uint16_t)(first + (start % count + i) % count)};
        fd = listen_inet(&wildcard);
        if (fd < 0 && !port_is_taken())
            break;
    }
    return fd;
}

/* Ports that the kernel gives to whoever asks for any. */
static bool local_ports(unsigned *first, unsigned *last) {
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    bool good = file != NULL && fscanf(file, "%u %u", first, last) == 2 && *first >= 1 &&
                *last <= 65535 && *first <= *last;
    if (file != NULL)
        fclose(file);
    return good;
}

/* Any port. The kernel gives none that an ended connection still holds (TIME_WAIT), although one
 * may listen there; so when it has no other left, they are tried by number, and for a while. */
static int listen_anywhere(void) {
    const struct timespec pause = {.tv_nsec = BIND_PAUSE_MS * MS};
    const struct net_address any = {.family = AF_INET6};
    unsigned first, last;
    int fd = -1;
    for (int i = 0; i < BIND_ATTEMPTS && fd < 0; i++) {
        if (i > 0)
            (void)nanosleep(&pause, NULL);
        fd = listen_inet(&any);
        if (fd < 0 && !port_is_taken())
            break;
        if (fd < 0 && local_ports(&first, &last))
            fd = listen_in_range(first, last);
        else if (fd < 0)
            errno = EADDRINUSE;
    }
    return fd;
}

/* The port is chosen by binding it, and kept: nobody can take it in between. */
static rota_status open_port(struct net_listener *listener, const char *range) {
    unsigned first, last;
    rota_status status = parse_range(range, &first, &last);
    if (status != ROTA_OK)
        return status;
    listener->inet = first == 0 ? listen_anywhere() : listen_in_range(first, last);
    if (listener->inet >= 0 || errno == EAFNOSUPPORT)
        return ROTA_OK; /* without any IP the local name is all there is */
    if (errno != EADDRINUSE && errno != EACCES)
        return error_raise_system(errno, "cannot listen on a TCP port");
    if (first != 0)
        return error_raise_system(errno, "no free port in the range %u-%u (ROTA_PORT_RANGE)", first,
                                  last);
    return error_raise_system(errno, "no free TCP port");
}

/* A name of 64 random bits: nobody can take it beforehand. Short enough for a unique id. */
static void open_local(struct net_listener *listener, char name[40]) {
    for (int i = 0; i < BIND_ATTEMPTS && listener->local < 0; i++) {
        struct net_endpoint endpoint;
        uint64_t random;
        net_random(&random, sizeof random);
        snprintf(name, 40, "rota-%016llx", (unsigned long long)random);
        if (net_endpoint_local(&endpoint, name))
            listener->local = listen_on(&endpoint);
    }
    if (listener->local < 0)
        name[0] = 0;
}

static rota_status announce(const struct net_listener *listener, const struct settings *settings,
                            struct net_addresses *addresses) {
    int count = 0;
    rota_status status = net_interfaces(settings, addresses->inet, NET_MAX_ADDRESSES, &count);
    if (status != ROTA_OK || listener->inet < 0) {
        memset(addresses->inet, 0, sizeof addresses->inet);
        return status;
    }
    struct net_endpoint bound = {.length = sizeof bound.storage};
    struct net_address address;
    if (getsockname(listener->inet, (struct sockaddr *)&bound.storage, &bound.length) != 0)
        return error_raise_system(errno, "getsockname");
    net_address_from_socket((const struct sockaddr *)&bound.storage, &address);
    for (int i = 0; i < count; i++)
        addresses->inet[i].port = address.port;
    return ROTA_OK;
}

static rota_status watch_sockets(struct net_listener *listener) {
    if ((listener->inet >= 0 && !watch(listener, listener->inet, EVENT_INET)) ||
        (listener->local >= 0 && !watch(listener, listener->local, EVENT_LOCAL)))
        return error_raise_system(errno, "cannot watch a listening socket");
    return ROTA_OK;
}

rota_status net_listener_open(const struct settings *settings, const struct net_gate *gate,
                              struct net_addresses *addresses, struct net_listener **listener) {
    struct net_listener *made = NULL;
    struct net_addresses found = {0};
    rota_status status = listener_create(gate, &made);
    if (status != ROTA_OK)
        return status;
    status = open_port(made, settings != NULL ? settings_text(settings, SETTING_PORT_RANGE) : "");
    if (status == ROTA_OK)
        open_local(made, found.local_name);
    if (status == ROTA_OK)
        status = announce(made, settings, &found);
    if (status == ROTA_OK && made->inet < 0 && made->local < 0)
        status = error_raise(ROTA_ERR_SYSTEM, "neither IP nor local sockets work here");
    if (status == ROTA_OK)
        status = watch_sockets(made);
    if (status != ROTA_OK) {
        net_listener_close(made);
        return status;
    }
    *addresses = found;
    *listener = made;
    return ROTA_OK;
}

rota_status net_listener_open_at(const struct net_address *address, const char *local_name,
                                 const struct net_gate *gate, struct net_listener **listener) {
    struct net_listener *made = NULL;
    rota_status status = listener_create(gate, &made);
    if (status != ROTA_OK)
        return status;
    if (address != NULL && address->family != 0) {
        char text[NET_ADDRESS_TEXT];
        net_address_text(address, text);
        made->inet = listen_inet(address);
        if (made->inet < 0)
            status = error_raise_system(errno, "cannot listen on %s", text);
    }
    if (status == ROTA_OK && local_name != NULL && local_name[0] != 0) {
        struct net_endpoint endpoint;
        if (!net_endpoint_local(&endpoint, local_name))
            status = error_raise(ROTA_ERR_ARGUMENT, "local name \"%.60s\" is too long", local_name);
        else if ((made->local = listen_on(&endpoint)) < 0)
            status = error_raise_system(errno, "cannot listen on @%s", local_name);
    }
    if (status == ROTA_OK)
        status = watch_sockets(made);
    if (status != ROTA_OK) {
        net_listener_close(made);
        return status;
    }
    *listener = made;
    return ROTA_OK;
}

void net_listener_close_inherited(struct net_listener *listener) {
    for (int i = 0; i < MAX_UNFINISHED; i++)
        if (listener->slots[i].socket >= 0)
            close(listener->slots[i].socket);
    if (listener->inet >= 0)
        close(listener->inet);
    if (listener->local >= 0)
        close(listener->local);
    close(listener->epoll);
}

void net_listener_close(struct net_listener *listener) {
    if (listener == NULL)
        return;
    net_listener_close_inherited(listener);
    free(listener);
}
