/* Control connections.
 *
 * Design notes. A link is idle, dialling or open. Of two crossing connections that of the lower
 * rank lives: who dials a higher rank refuses its connection meanwhile, and who has let a
 * connection in does not dial until it is there or overdue. A new connection replaces an old one,
 * since a peer only dials when it has none. Frames wait in a bounded queue; one that was sent in
 * part is sent whole by the next connection. The side that dialled closes a connection that nobody
 * needs: it says so first, so that nothing the other side has sent gets lost.
 *
 * What a peer sends is not trusted to be sound: anything else closes the connection, and that is
 * evidence of nothing. Only a refused connection is reported; what it proves is decided above.
 * In every struct a descriptor is forgotten before it is closed, for the child of a fork. */
#include "liveness/link.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define MAX_QUEUED (128 * 1024)
#define ATTEMPT_MS 300       /* for one of several addresses */
#define GOOD_ATTEMPT_MS 1000 /* for the one by which the peer was reached before */
#define FIRST_PAUSE_MS 10    /* before the addresses are tried again, doubled up to ... */
#define LAST_PAUSE_MS 500
#define CROSSING_MS 100 /* how long a connection of the peer's is waited for */
#define IDLE_MS 10000
#define FRAMES_PER_TURN 64
#define FIRST_BUFFER 512

struct link {
    int socket; /* -1: not open */
    struct net_dial *dial;
    bool wanted;
    bool met, met_locally;          /* was open once; by a local name */
    bool ended_well;                /* the last connection was closed as agreed, by WIRE_CLOSING */
    bool dialled;                   /* the open connection is ours */
    bool closing;                   /* we said so */
    int candidate, good;            /* address under way; that by which it was reached, -1: none */
    int nrefused, nabsent, nsilent; /* of this round */
    int64_t refused_ns;             /* since when all of it was refused, 0: it is not */
    int64_t pause_ms, retry_ns;     /* not before */
    int64_t used_ns;
    struct wire_header header;
    uint8_t *in; /* payload */
    size_t in_filled, in_size;
    uint8_t *out; /* frames; the first may have been sent in part */
    size_t out_used, out_size, out_sent;
};

struct links {
    const struct net_identity *identity;
    int n, epoll;
    uint32_t tag;
    const struct bootstrap_record *records;
    struct link_events events;
    struct link **links; /* [peer]; NULL: never used */
    int64_t deadline_ns; /* not later than the first of all links' */
};

static struct link *get(struct links *links, int peer) {
    struct link *link = links->links[peer];
    if (link != NULL)
        return link;
    link = calloc(1, sizeof *link);
    if (link == NULL)
        return NULL;
    link->socket = link->good = -1;
    link->pause_ms = FIRST_PAUSE_MS;
    links->links[peer] = link;
    return link;
}

static void act_at(struct links *links, int64_t when_ns) {
    if (when_ns < links->deadline_ns)
        links->deadline_ns = when_ns;
}

/* -- life ---------------------------------------------------------------------------------------
 */

struct links *links_create(const struct net_identity *identity, int nranks,
                           const struct bootstrap_record *records, int epoll, uint32_t tag,
                           const struct link_events *events) {
    struct links *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->identity = identity;
    made->n = nranks;
    made->epoll = epoll;
    made->tag = tag;
    made->records = records;
    made->events = *events;
    made->deadline_ns = CLOCK_NEVER;
    made->links = calloc((size_t)nranks, sizeof *made->links);
    if (made->links == NULL) {
        free(made);
        return NULL;
    }
    return made;
}

static void end_dial(struct links *links, struct link *link) {
    struct net_dial *dial = link->dial;
    uint32_t events;
    if (dial == NULL)
        return;
    link->dial = NULL;
    int fd = net_dial_descriptor(dial, &events);
    if (fd >= 0)
        epoll_ctl(links->epoll, EPOLL_CTL_DEL, fd, NULL);
    net_dial_free(dial);
}

/* Leaves the queue for the next connection. */
static void close_socket(struct links *links, struct link *link) {
    int fd = link->socket;
    if (fd < 0)
        return;
    link->socket = -1;
    link->closing = false;
    link->out_sent = link->in_filled = 0;
    epoll_ctl(links->epoll, EPOLL_CTL_DEL, fd, NULL);
    /* Closing alone is not enough when a forked child holds the socket too. */
    shutdown(fd, SHUT_RDWR);
    close(fd);
}

static void link_free(struct links *links, struct link *link) {
    end_dial(links, link);
    close_socket(links, link);
    free(link->in);
    free(link->out);
    free(link);
}

static void flush(struct links *links, struct link *link, int peer);

void links_destroy(struct links *links) {
    if (links == NULL)
        return;
    for (int peer = 0; peer < links->n; peer++) {
        struct link *link = links->links[peer];
        if (link == NULL)
            continue;
        flush(links, link, peer);
        if (link->socket >= 0) {
            /* Unread bytes would make the kernel reset the connection, with what was just sent. */
            char waste[4096];
            shutdown(link->socket, SHUT_WR);
            for (int i = 0; i < 64 && recv(link->socket, waste, sizeof waste, MSG_DONTWAIT) > 0;)
                i++;
        }
        link_free(links, link);
    }
    free(links->links);
    free(links);
}

void links_close_inherited(struct links *links) {
    for (int peer = 0; peer < links->n; peer++) {
        struct link *link = links->links[peer];
        uint32_t events;
        if (link != NULL && link->socket >= 0)
            close(link->socket);
        if (link != NULL && link->dial != NULL)
            close(net_dial_descriptor(link->dial, &events));
    }
}

/* -- dialling -----------------------------------------------------------------------------------
 */

static bool watch(struct links *links, int peer, int fd, uint32_t events) {
    struct epoll_event event = {.events = events,
                                .data.u64 = (uint64_t)links->tag << 32 | (uint32_t)peer};
    if (epoll_ctl(links->epoll, EPOLL_CTL_MOD, fd, &event) == 0)
        return true;
    return epoll_ctl(links->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* The index-th way to reach a peer: its local name first where it may work. Link-local addresses
 * only where there are no others: each has to be tried on every interface, and those have to be
 * listed. */
static bool candidate_at(const struct links *links, int peer, int index,
                         struct net_target *target) {
    const struct bootstrap_record *own = &links->records[links->identity->rank];
    const struct bootstrap_record *record = &links->records[peer];
    bool same_host = memcmp(own->machine, record->machine, sizeof own->machine) == 0;
    struct net_addresses wide = {0};
    int nwide = 0;
    memset(target, 0, sizeof *target);
    if (same_host && record->addresses.local_name[0] != 0) {
        target->local_name = record->addresses.local_name;
        if (index == 0)
            return true;
        index--;
    }
    for (int i = 0; i < NET_MAX_ADDRESSES; i++)
        if (record->addresses.inet[i].family != 0 &&
            !net_address_is_link_local(&record->addresses.inet[i]))
            wide.inet[nwide++] = record->addresses.inet[i];
    return net_pick_address(nwide > 0 ? &wide : &record->addresses, same_host, index,
                            &target->inet);
}

static void start_dial(struct links *links, struct link *link, int peer);

/* All addresses were tried, or the one that is known to be right. */
static void round_over(struct links *links, struct link *link, int peer) {
    int64_t now = clock_now_ns();
    bool refused = link->nsilent == 0 && link->nrefused + link->nabsent > 0;
    bool absent = link->nabsent > 0;
    bool again = link->wanted || link->out_used > 0;
    link->retry_ns = again ? now + link->pause_ms * MS : 0;
    link->pause_ms = link->pause_ms * 2 < LAST_PAUSE_MS ? link->pause_ms * 2 : LAST_PAUSE_MS;
    link->candidate = link->good >= 0 ? link->good : 0;
    link->nrefused = link->nabsent = link->nsilent = 0;
    act_at(links, link->retry_ns);
    if (!refused) {
        link->refused_ns = 0;
        return;
    }
    if (link->refused_ns == 0)
        link->refused_ns = now;
    links->events.refused(links->events.context, peer, absent ? LINK_ABSENT : LINK_REFUSED,
                          absent ? link->met
                                 : link->met_locally || (link->met && !link->ended_well),
                          link->refused_ns);
}

/* A refusal says something of the peer only where the address leads to its host: a loopback address
 * that another host announced leads to our own. */
static bool leads_to(const struct links *links, const struct link *link, int peer) {
    const struct bootstrap_record *own = &links->records[links->identity->rank];
    struct net_target target;
    return memcmp(own->machine, links->records[peer].machine, sizeof own->machine) == 0 ||
           !candidate_at(links, peer, link->candidate, &target) ||
           !net_address_is_loopback(&target.inet);
}

/* One address failed. */
static void attempt_failed(struct links *links, struct link *link, int peer, rota_status status,
                           const struct net_answer *answer) {
    struct net_target next;
    end_dial(links, link);
    if (status == ROTA_ERR_MISMATCH && answer->verdict == NET_REFUSED_CROSSING) {
        link->retry_ns = clock_deadline(CROSSING_MS);
        act_at(links, link->retry_ns);
        return;
    }
    if (status == ROTA_ERR_MISMATCH && answer->verdict == NET_REFUSED_TARGET)
        link->nabsent++;
    else if (status == ROTA_ERR_SYSTEM && error_record()->system_error == ECONNREFUSED &&
             leads_to(links, link, peer))
        link->nrefused++;
    else
        link->nsilent++;
    link->candidate++;
    if (link->good < 0 && link->nabsent == 0 && candidate_at(links, peer, link->candidate, &next))
        start_dial(links, link, peer);
    else
        round_over(links, link, peer);
}

/* With a good address that is silent now, the others get their turn in the next round. */
static void forget_good(struct link *link) {
    link->good = -1;
    link->candidate = 0;
}

static void start_dial(struct links *links, struct link *link, int peer) {
    struct net_target target;
    struct net_answer none = {0};
    link->retry_ns = 0;
    if (!candidate_at(links, peer, link->candidate, &target)) {
        link->nsilent++;
        round_over(links, link, peer);
        return;
    }
    int64_t deadline_ns = clock_deadline(link->good >= 0 ? GOOD_ATTEMPT_MS : ATTEMPT_MS);
    rota_status status = net_dial_start(links->identity, &target, peer, NET_PURPOSE_CONTROL, NULL,
                                        0, deadline_ns, &link->dial);
    uint32_t events;
    if (status == ROTA_OK &&
        !watch(links, peer, net_dial_descriptor(link->dial, &events), EPOLLIN | EPOLLOUT))
        status = ROTA_ERR_MEMORY;
    if (status != ROTA_OK) {
        attempt_failed(links, link, peer, status, &none);
        return;
    }
    link->used_ns = deadline_ns; /* of the attempt, while dialling */
    act_at(links, deadline_ns);
}

static void connect_soon(struct links *links, struct link *link) {
    if (link->socket >= 0 || link->dial != NULL)
        return;
    if (link->retry_ns == 0)
        link->retry_ns = 1; /* at the next tick */
    act_at(links, link->retry_ns);
}

static void opened(struct links *links, struct link *link, int peer, int fd, bool dialled,
                   bool local) {
    close_socket(links, link);
    end_dial(links, link);
    link->socket = fd;
    link->dialled = dialled;
    link->met = true;
    link->met_locally |= local;
    link->ended_well = false;
    link->retry_ns = link->refused_ns = 0;
    link->pause_ms = FIRST_PAUSE_MS;
    link->nrefused = link->nabsent = link->nsilent = 0;
    if (dialled)
        link->good = link->candidate;
    link->used_ns = clock_now_ns();
    act_at(links, link->used_ns + IDLE_MS * MS);
    if (!watch(links, peer, fd, EPOLLIN))
        close_socket(links, link);
    else
        flush(links, link, peer);
}

static void step_dial(struct links *links, struct link *link, int peer) {
    bool finished = false;
    struct net_answer answer;
    uint32_t events;
    rota_status status = net_dial_step(link->dial, &finished, &answer);
    if (finished && answer.incarnation == links->records[peer].incarnation) {
        struct net_target target;
        int fd = net_dial_take(link->dial, NULL, NULL);
        (void)candidate_at(links, peer, link->candidate, &target);
        opened(links, link, peer, fd, true, target.inet.family == 0);
    } else if (finished) {
        attempt_failed(links, link, peer, ROTA_ERR_FORMAT, &answer); /* not the process we met */
    } else if (status != ROTA_OK) {
        bool late = status == ROTA_ERR_TIMEOUT && link->good >= 0;
        attempt_failed(links, link, peer, status, &answer);
        if (late && link->dial == NULL)
            forget_good(link);
    } else {
        int fd = net_dial_descriptor(link->dial, &events);
        (void)watch(links, peer, fd, events);
    }
}

/* -- accepting ----------------------------------------------------------------------------------
 */

enum net_verdict links_judge(struct links *links, const struct net_hello *hello) {
    if (hello->rank >= (uint32_t)links->n || hello->rank == (uint32_t)links->identity->rank ||
        hello->incarnation != links->records[hello->rank].incarnation)
        return NET_REFUSED_GIVEN_UP;
    struct link *link = get(links, (int)hello->rank);
    if (link == NULL)
        return NET_REFUSED_GIVEN_UP;
    if (link->dial != NULL && (uint32_t)links->identity->rank < hello->rank)
        return NET_REFUSED_CROSSING;
    if (link->dial == NULL && link->socket < 0) {
        link->retry_ns = clock_deadline(CROSSING_MS); /* no dial of ours meanwhile */
        act_at(links, link->retry_ns);
    }
    return NET_GO;
}

void links_admit(struct links *links, const struct net_hello *hello, int socket) {
    struct link *link = links->links[hello->rank];
    if (link == NULL)
        close(socket);
    else
        opened(links, link, (int)hello->rank, socket, false, hello->descriptors != 0);
}

/* -- sending ------------------------------------------------------------------------------------
 */

/* Drops the frames that have been sent whole. */
static void drop_sent(struct link *link) {
    size_t done = 0;
    while (done + sizeof(struct wire_header) <= link->out_used) {
        struct wire_header header;
        memcpy(&header, link->out + done, sizeof header);
        size_t frame = sizeof header + header.bytes;
        if (done + frame > link->out_sent)
            break;
        done += frame;
    }
    if (done == 0)
        return;
    memmove(link->out, link->out + done, link->out_used - done);
    link->out_used -= done;
    link->out_sent -= done;
}

/* The connection is gone; another is made when somebody wants it. */
static void broke(struct links *links, struct link *link) {
    close_socket(links, link);
    if (link->wanted || link->out_used > 0)
        connect_soon(links, link);
}

static void flush(struct links *links, struct link *link, int peer) {
    while (link->socket >= 0 && !link->closing && link->out_sent < link->out_used) {
        ssize_t sent = send(link->socket, link->out + link->out_sent,
                            link->out_used - link->out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            link->out_sent += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            (void)watch(links, peer, link->socket, EPOLLIN | EPOLLOUT);
            break;
        } else if (errno != EINTR) {
            break; /* receiving finds it closed, after what the peer may have said before */
        }
    }
    if (link->socket < 0 || link->out_used == 0)
        return;
    if (link->out_sent == link->out_used)
        (void)watch(links, peer, link->socket, EPOLLIN);
    drop_sent(link);
}

static bool reserve(uint8_t **buffer, size_t *size, size_t wanted) {
    size_t grown = *size > 0 ? *size : FIRST_BUFFER;
    while (grown < wanted)
        grown *= 2;
    if (grown == *size)
        return true;
    uint8_t *moved = realloc(*buffer, grown);
    if (moved == NULL)
        return false;
    *buffer = moved;
    *size = grown;
    return true;
}

bool links_send(struct links *links, int peer, enum wire_type type, uint32_t epoch,
                const void *payload, size_t bytes) {
    struct link *link = get(links, peer);
    struct wire_header header = {
        .magic = WIRE_MAGIC, .bytes = (uint32_t)bytes, .epoch = epoch, .type = (uint16_t)type};
    if (link == NULL || link->out_used + sizeof header + bytes > MAX_QUEUED ||
        !reserve(&link->out, &link->out_size, link->out_used + sizeof header + bytes))
        return false;
    memcpy(link->out + link->out_used, &header, sizeof header);
    if (bytes > 0)
        memcpy(link->out + link->out_used + sizeof header, payload, bytes);
    link->out_used += sizeof header + bytes;
    if (link->socket >= 0)
        link->used_ns = clock_now_ns();
    flush(links, link, peer);
    connect_soon(links, link);
    return true;
}

void links_want(struct links *links, int peer, bool wanted) {
    struct link *link = wanted ? get(links, peer) : links->links[peer];
    if (link == NULL)
        return;
    link->wanted = wanted;
    if (wanted)
        connect_soon(links, link);
    else if (link->socket >= 0)
        act_at(links, link->used_ns + IDLE_MS * MS);
}

void links_drop(struct links *links, int peer) {
    struct link *link = links->links[peer];
    if (link == NULL)
        return;
    end_dial(links, link);
    close_socket(links, link);
    link->wanted = false;
    link->out_used = link->out_sent = 0;
    link->retry_ns = 0;
}

bool links_unsent(const struct links *links, int peer) {
    return links->links[peer] != NULL && links->links[peer]->out_used > 0;
}

bool links_open(const struct links *links, int peer) {
    return links->links[peer] != NULL && links->links[peer]->socket >= 0;
}

/* -- receiving ----------------------------------------------------------------------------------
 */

/* One more frame, or part of it; false: nothing more now, or the connection is gone. */
static bool receive_one(struct links *links, struct link *link, int peer) {
    const size_t head = sizeof link->header;
    bool in_body = link->in_filled >= head;
    uint8_t *to =
        in_body ? link->in + (link->in_filled - head) : (uint8_t *)&link->header + link->in_filled;
    size_t left = in_body ? head + link->header.bytes - link->in_filled : head - link->in_filled;
    if (left > 0) {
        ssize_t got = recv(link->socket, to, left, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR)
            return true;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return false;
        if (got <= 0) {
            link->ended_well = link->closing;
            broke(links, link);
            return false;
        }
        link->in_filled += (size_t)got;
    }
    if (link->in_filled == head && (!wire_header_sound(&link->header) ||
                                    !reserve(&link->in, &link->in_size, link->header.bytes))) {
        broke(links, link);
        return false;
    }
    if (link->in_filled < head || link->in_filled < head + link->header.bytes)
        return true;
    link->in_filled = 0;
    if (link->header.type == WIRE_CLOSING) {
        flush(links, link, peer);
        link->ended_well = true;
        broke(links, link);
        return false;
    }
    link->used_ns = clock_now_ns();
    if (!links->events.frame(links->events.context, peer, &link->header, link->in))
        broke(links, link);
    return link->socket >= 0;
}

void links_ready(struct links *links, int peer) {
    struct link *link = links->links[peer];
    if (link == NULL)
        return;
    if (link->dial != NULL) {
        step_dial(links, link, peer);
        return;
    }
    for (int i = 0; i < FRAMES_PER_TURN && link->socket >= 0; i++)
        if (!receive_one(links, link, peer))
            break;
    flush(links, link, peer);
}

/* -- time ---------------------------------------------------------------------------------------
 */

int64_t links_deadline(const struct links *links) {
    return links->deadline_ns;
}

/* A connection of ours that nobody uses. The peer closes it when it has read this; one that does
 * not read gets no second chance. */
static void close_idle(struct links *links, struct link *link) {
    const struct wire_header header = {.magic = WIRE_MAGIC, .type = WIRE_CLOSING};
    if (link->closing || link->out_used > 0 ||
        send(link->socket, &header, sizeof header, MSG_NOSIGNAL | MSG_DONTWAIT) !=
            (ssize_t)sizeof header)
        broke(links, link);
    else
        link->closing = true;
    link->used_ns = clock_now_ns();
}

static void tick_one(struct links *links, struct link *link, int peer, int64_t now) {
    if (link->dial != NULL) {
        if (now >= link->used_ns)
            step_dial(links, link, peer); /* it is late, and says so */
        else
            act_at(links, link->used_ns);
    } else if (link->socket < 0 && link->retry_ns != 0) {
        if (now < link->retry_ns)
            act_at(links, link->retry_ns);
        else if (link->wanted || link->out_used > 0)
            start_dial(links, link, peer);
        else
            link->retry_ns = 0;
    } else if (link->socket >= 0 && link->dialled && !link->wanted) {
        if (now >= link->used_ns + IDLE_MS * MS)
            close_idle(links, link);
        act_at(links, link->used_ns + IDLE_MS * MS);
    }
}

void links_tick(struct links *links) {
    int64_t now = clock_now_ns();
    if (now < links->deadline_ns)
        return;
    links->deadline_ns = CLOCK_NEVER;
    for (int peer = 0; peer < links->n; peer++)
        if (links->links[peer] != NULL)
            tick_one(links, links->links[peer], peer, now);
}
