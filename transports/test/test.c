/* A transport for tests that lies over another one and makes it late, unordered or broken, as the
 * setting ROTA_TEST_TRANSPORT says: "over=tcp,seed=7,delay_us=50,fail_after=0".
 *
 *   over        name of the transport below
 *   seed        of the random delays; the same seed draws the same delays
 *   delay_us    longest delay of a completion or of the appearance of a message
 *   fail_after  after so many messages (sent and received) the peer of the last one "fails"; 0:
 *               never
 *
 * Delays of one stream keep their order, delays of different streams do not. They end by
 * themselves in progress; while one is pending, arm says BUSY. What the transport below has read
 * or written stays as it is: only the news of it are late. */
#include "transports/transport.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

/* A ticket of the engine, on loan to the transport below. */
struct test_ticket {
    struct transport_ticket below; /* first: what the transport below knows */
    struct transport_ticket *user;
    struct transport_stream *stream;
    TAILQ_ENTRY(test_ticket) link;
};

/* News that wait for their time. */
struct test_event {
    TAILQ_ENTRY(test_event) link;
    int64_t due_ns;
    struct transport_stream *stream;
    enum { EVENT_ARRIVED, EVENT_WRITABLE, EVENT_TICKET } what;
    struct transport_ticket *ticket;
    enum transport_result result;
};

struct transport_stream {
    TAILQ_ENTRY(transport_stream) link;
    struct test_transport *test;
    struct transport_stream *below;
    void *owner;
    int peer;
    int64_t last_due_ns;
    bool head_seen; /* the oldest message below was seen and shows at head_due_ns */
    int64_t head_due_ns;
    TAILQ_HEAD(, test_ticket) tickets;
};

struct test_transport {
    struct transport base;
    struct transport_host *host;
    struct transport_host below_host;
    pthread_mutex_t peers_lock; /* below_host.peers is filled in from two threads */
    struct transport *below;
    uint64_t random;
    int64_t delay_ns;
    uint64_t fail_after, messages;
    bool failed; /* fail_after has done its work */
    bool *failed_peers;
    TAILQ_HEAD(test_events, test_event) events; /* by time */
    TAILQ_HEAD(, transport_stream) streams;
};

static struct test_transport *test_of(struct transport *transport) {
    return (struct test_transport *)transport;
}

/* -- delays -------------------------------------------------------------------------------- */

static int64_t draw(struct test_transport *test) {
    test->random ^= test->random << 13; /* xorshift64, Marsaglia 2003 */
    test->random ^= test->random >> 7;
    test->random ^= test->random << 17;
    return test->delay_ns ? (int64_t)(test->random % (uint64_t)test->delay_ns) : 0;
}

static int64_t stream_due(struct transport_stream *stream) {
    int64_t due_ns = clock_now_ns() + draw(stream->test);
    if (due_ns < stream->last_due_ns)
        due_ns = stream->last_due_ns;
    stream->last_due_ns = due_ns;
    return due_ns;
}

static void deliver(struct test_transport *test, const struct test_event *event) {
    if (event->what == EVENT_ARRIVED)
        test->host->arrived(event->stream->owner);
    else if (event->what == EVENT_WRITABLE)
        test->host->writable(event->stream->owner);
    else
        event->ticket->done(event->ticket, event->result);
}

static void later(struct transport_stream *stream, int64_t due_ns, const struct test_event *what) {
    struct test_transport *test = stream->test;
    struct test_event *event = malloc(sizeof *event), *before;
    if (!event) {
        deliver(test, what); /* without memory it is in time */
        return;
    }
    *event = *what;
    event->stream = stream;
    event->due_ns = due_ns;
    TAILQ_FOREACH_REVERSE(before, &test->events, test_events, link) {
        if (before->due_ns <= due_ns)
            break;
    }
    if (before)
        TAILQ_INSERT_AFTER(&test->events, before, event, link);
    else
        TAILQ_INSERT_HEAD(&test->events, event, link);
}

static int deliver_due(struct test_transport *test) {
    struct test_event *event;
    int delivered = 0;
    if (TAILQ_EMPTY(&test->events))
        return 0;
    int64_t now = clock_now_ns();
    while ((event = TAILQ_FIRST(&test->events)) && event->due_ns <= now) {
        struct test_event copy = *event;
        TAILQ_REMOVE(&test->events, event, link);
        free(event);
        deliver(test, &copy);
        delivered++;
    }
    return delivered;
}

static void forget_events(struct transport_stream *stream, bool tickets_only) {
    struct test_transport *test = stream->test;
    struct test_event *event, *next;
    for (event = TAILQ_FIRST(&test->events); event; event = next) {
        next = TAILQ_NEXT(event, link);
        if (event->stream != stream || (tickets_only && event->what != EVENT_TICKET))
            continue;
        TAILQ_REMOVE(&test->events, event, link);
        free(event);
    }
}

/* -- failing on command -------------------------------------------------------------------- */

/* Whoever fails keeps no hold on user memory: the streams below are quiesced first. */
static void fail_peer(struct test_transport *test, int peer) {
    struct transport_stream *stream;
    struct test_ticket *ticket;
    char text[96];
    test->failed_peers[peer] = true;
    TAILQ_FOREACH(stream, &test->streams, link) {
        if (stream->peer == peer)
            test->below->ops->quiesce(test->below, stream->below);
    }
    snprintf(text, sizeof text, "rank %d: test transport fails after %llu messages", peer,
             (unsigned long long)test->messages);
    test->host->peer_failed(test->host->context, &test->base, peer, ECONNRESET, text);
    TAILQ_FOREACH(stream, &test->streams, link) {
        if (stream->peer != peer)
            continue;
        while ((ticket = TAILQ_FIRST(&stream->tickets))) {
            struct test_event event = {
                .what = EVENT_TICKET, .ticket = ticket->user, .result = TRANSPORT_FAILED};
            TAILQ_REMOVE(&stream->tickets, ticket, link);
            free(ticket);
            later(stream, stream_due(stream), &event);
        }
    }
}

static void count_message(struct transport_stream *stream) {
    struct test_transport *test = stream->test;
    test->messages++;
    if (test->fail_after && !test->failed && test->messages >= test->fail_after) {
        test->failed = true;
        fail_peer(test, stream->peer);
    }
}

static bool is_failed(const struct transport_stream *stream) {
    return stream->test->failed_peers[stream->peer];
}

/* -- what the transport below calls -------------------------------------------------------- */

static void below_arrived(void *owner) {
    struct transport_stream *stream = owner;
    later(stream, stream_due(stream), &(struct test_event){.what = EVENT_ARRIVED});
}

static void below_writable(void *owner) {
    struct transport_stream *stream = owner;
    later(stream, stream_due(stream), &(struct test_event){.what = EVENT_WRITABLE});
}

static void below_connected(void *context, struct transport *transport, int peer) {
    struct test_transport *test = context;
    (void)transport;
    test->host->connected(test->host->context, &test->base, peer);
}

static void below_unreachable(void *context, struct transport *transport, int peer, int error,
                              const char *text) {
    struct test_transport *test = context;
    (void)transport;
    test->host->unreachable(test->host->context, &test->base, peer, error, text);
}

static void below_failed(void *context, struct transport *transport, int peer, int error,
                         const char *evidence) {
    struct test_transport *test = context;
    (void)transport;
    if (!test->failed_peers[peer])
        test->host->peer_failed(test->host->context, &test->base, peer, error, evidence);
}

static void below_done(struct transport_ticket *below, enum transport_result result) {
    struct test_ticket *ticket = (struct test_ticket *)below;
    struct transport_stream *stream = ticket->stream;
    struct test_event event = {.what = EVENT_TICKET, .ticket = ticket->user, .result = result};
    ticket->user->header = below->header;
    TAILQ_REMOVE(&stream->tickets, ticket, link);
    free(ticket);
    later(stream, stream_due(stream), &event);
    count_message(stream);
}

/* -- life and connections ------------------------------------------------------------------ */

/* The value behind "name=" in the setting; NULL when it is not there. */
static const char *option(const char *text, const char *name) {
    size_t length = strlen(name);
    for (const char *at = text; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 && at[length] == '=')
            return at + length + 1;
    }
    return NULL;
}

static rota_status option_number(const char *text, const char *name, uint64_t *number) {
    const char *value = option(text, name);
    char *end;
    if (!value)
        return ROTA_OK;
    errno = 0;
    unsigned long long parsed = strtoull(value, &end, 10);
    if (errno || end == value || *value < '0' || *value > '9' || (*end && *end != ','))
        return error_raise(ROTA_ERR_SETTING,
                           "ROTA_TEST_TRANSPORT: %s is no number (form: "
                           "over=tcp,seed=7,delay_us=50,fail_after=0)",
                           name);
    *number = parsed;
    return ROTA_OK;
}

static rota_status options_read(struct test_transport *test, const struct transport_ops **below) {
    const char *text = settings_text(test->host->settings, SETTING_TEST_TRANSPORT);
    const char *over = option(text, "over");
    uint64_t seed = 1, delay_us = 0;
    char name[32] = "tcp";
    rota_status status;
    if (over) {
        size_t length = strcspn(over, ",");
        if (length >= sizeof name)
            length = sizeof name - 1;
        memcpy(name, over, length);
        name[length] = '\0';
    }
    *below = transport_find(name);
    if (!*below || *below == &transport_test)
        return error_raise(ROTA_ERR_SETTING, "ROTA_TEST_TRANSPORT: there is no transport \"%s\"",
                           name);
    if ((status = option_number(text, "seed", &seed)) != ROTA_OK ||
        (status = option_number(text, "delay_us", &delay_us)) != ROTA_OK ||
        (status = option_number(text, "fail_after", &test->fail_after)) != ROTA_OK)
        return status;
    if (delay_us > 1000000)
        return error_raise(ROTA_ERR_SETTING, "ROTA_TEST_TRANSPORT: delay_us is above 1000000");
    test->delay_ns = (int64_t)delay_us * 1000;
    /* Never 0, and different on all ranks. */
    test->random = (((seed + 1) * 0x9e3779b97f4a7c15u) ^ ((uint64_t)test->host->rank << 32)) | 1;
    return ROTA_OK;
}

static rota_status test_open(struct transport_host *host, struct transport **transport) {
    const struct transport_ops *below;
    rota_status status;
    struct test_transport *test = calloc(1, sizeof *test);
    if (!test || !(test->failed_peers = calloc((size_t)host->nranks, sizeof(bool)))) {
        free(test);
        return error_raise(ROTA_ERR_MEMORY, "no memory for the test transport");
    }
    test->host = host;
    TAILQ_INIT(&test->events);
    TAILQ_INIT(&test->streams);
    test->below_host = *host;
    test->below_host.context = test;
    test->below_host.arrived = below_arrived;
    test->below_host.writable = below_writable;
    test->below_host.connected = below_connected;
    test->below_host.unreachable = below_unreachable;
    test->below_host.peer_failed = below_failed;
    if ((status = options_read(test, &below)) != ROTA_OK ||
        (status = below->open(&test->below_host, &test->below)) != ROTA_OK) {
        free(test->failed_peers);
        free(test);
        return status;
    }
    pthread_mutex_init(&test->peers_lock, NULL);
    host->bell = test->below_host.bell; /* its line may have moved into shared memory */
    test->base.ops = &transport_test;
    test->base.caps = test->below->caps;
    test->base.caps.native_forms = false;
    test->base.caps.remote_read = false;
    *transport = &test->base;
    return ROTA_OK;
}

static void test_stream_close(struct transport *transport, struct transport_stream *stream);

static void test_close(struct transport *transport) {
    struct test_transport *test = test_of(transport);
    while (!TAILQ_EMPTY(&test->streams))
        test_stream_close(transport, TAILQ_FIRST(&test->streams));
    test->below->ops->close(test->below);
    pthread_mutex_destroy(&test->peers_lock);
    free(test->failed_peers);
    free(test);
}

static size_t test_describe(struct transport *transport, void *blob) {
    struct test_transport *test = test_of(transport);
    return test->below->ops->describe(test->below, blob);
}

/* Hands the table of peers down once it is there. */
static struct transport *below_of(struct transport *transport) {
    struct test_transport *test = test_of(transport);
    pthread_mutex_lock(&test->peers_lock);
    if (test->below_host.peers != test->host->peers)
        test->below_host.peers = test->host->peers;
    pthread_mutex_unlock(&test->peers_lock);
    return test->below;
}

static bool test_reaches(struct transport *transport, int peer) {
    struct transport *below = below_of(transport);
    return below->ops->reaches(below, peer);
}

static void test_connect(struct transport *transport, int peer) {
    struct transport *below = below_of(transport);
    below->ops->connect(below, peer);
}

static bool test_admit(struct transport *transport, int peer) {
    struct transport *below = below_of(transport);
    return below->ops->admit(below, peer);
}

static bool test_gave_up(struct transport *transport, int peer) {
    struct transport *below = below_of(transport);
    return below->ops->gave_up(below, peer);
}

static int test_offer(struct transport *transport, int peer, int *descriptors) {
    struct transport *below = below_of(transport);
    return below->ops->offer ? below->ops->offer(below, peer, descriptors) : 0;
}

static void test_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                        int ndescriptors) {
    struct transport *below = below_of(transport);
    below->ops->accept(below, peer, socket, descriptors, ndescriptors);
}

static void test_accept_stripe(struct transport *transport, int peer, int stripe, int socket) {
    struct transport *below = below_of(transport);
    if (below->ops->accept_stripe)
        below->ops->accept_stripe(below, peer, stripe, socket);
    else
        close(socket);
}

/* -- streams ------------------------------------------------------------------------------- */

static rota_status test_stream_open(struct transport *transport, int peer,
                                    const struct transport_key *key, void *owner,
                                    struct transport_stream **out) {
    struct test_transport *test = test_of(transport);
    struct transport_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a stream");
    stream->test = test;
    stream->owner = owner;
    stream->peer = peer;
    TAILQ_INIT(&stream->tickets);
    rota_status status =
        test->below->ops->stream_open(test->below, peer, key, stream, &stream->below);
    if (status != ROTA_OK) {
        free(stream);
        return status;
    }
    TAILQ_INSERT_TAIL(&test->streams, stream, link);
    *out = stream;
    return ROTA_OK;
}

static void forget_tickets(struct transport_stream *stream) {
    struct test_ticket *ticket;
    while ((ticket = TAILQ_FIRST(&stream->tickets))) {
        TAILQ_REMOVE(&stream->tickets, ticket, link);
        free(ticket);
    }
}

static void test_stream_close(struct transport *transport, struct transport_stream *stream) {
    struct test_transport *test = test_of(transport);
    test->below->ops->stream_close(test->below, stream->below);
    forget_tickets(stream);
    forget_events(stream, false);
    TAILQ_REMOVE(&test->streams, stream, link);
    free(stream);
}

static bool test_peer_gone(struct transport *transport, int peer, bool left, const char *text) {
    struct test_transport *test = test_of(transport);
    return test->below->ops->peer_gone == NULL ||
           test->below->ops->peer_gone(test->below, peer, left, text);
}

static void test_quiesce(struct transport *transport, struct transport_stream *stream) {
    struct test_transport *test = test_of(transport);
    test->below->ops->quiesce(test->below, stream->below);
    forget_tickets(stream);
    forget_events(stream, true);
}

static enum transport_result test_reserve(struct transport *transport,
                                          struct transport_stream *stream,
                                          const struct transport_header *header,
                                          struct transport_slot *slot) {
    struct test_transport *test = test_of(transport);
    if (is_failed(stream))
        return TRANSPORT_FAILED;
    return test->below->ops->reserve(test->below, stream->below, header, slot);
}

static void test_commit(struct transport *transport, struct transport_stream *stream,
                        struct transport_slot *slot) {
    struct test_transport *test = test_of(transport);
    test->below->ops->commit(test->below, stream->below, slot);
    count_message(stream);
}

static struct test_ticket *ticket_new(struct transport_stream *stream,
                                      struct transport_ticket *user) {
    struct test_ticket *ticket = calloc(1, sizeof *ticket);
    if (!ticket)
        return NULL;
    ticket->below.done = below_done;
    ticket->user = user;
    ticket->stream = stream;
    TAILQ_INSERT_TAIL(&stream->tickets, ticket, link);
    return ticket;
}

/* A post that was not taken has no completion. */
static enum transport_result posted(struct transport_stream *stream, struct test_ticket *ticket,
                                    enum transport_result result) {
    if (result != TRANSPORT_OK && ticket) {
        TAILQ_REMOVE(&stream->tickets, ticket, link);
        free(ticket);
    }
    return result;
}

static enum transport_result test_post_send(struct transport *transport,
                                            struct transport_stream *stream,
                                            const struct transport_header *header,
                                            const struct transport_piece *pieces, int npieces,
                                            struct transport_ticket *user) {
    struct test_transport *test = test_of(transport);
    struct test_ticket *ticket = NULL;
    if (is_failed(stream) || (user && !(ticket = ticket_new(stream, user))))
        return TRANSPORT_FAILED;
    return posted(stream, ticket,
                  test->below->ops->post_send(test->below, stream->below, header, pieces, npieces,
                                              ticket ? &ticket->below : NULL));
}

static void test_expect(struct transport *transport, struct transport_stream *stream,
                        size_t length) {
    struct test_transport *test = test_of(transport);
    if (!is_failed(stream))
        test->below->ops->expect(test->below, stream->below, length);
}

static enum transport_result test_post_recv(struct transport *transport,
                                            struct transport_stream *stream, size_t length,
                                            const struct transport_piece *pieces, int npieces,
                                            struct transport_ticket *user) {
    struct test_transport *test = test_of(transport);
    struct test_ticket *ticket = NULL;
    if (is_failed(stream) || (user && !(ticket = ticket_new(stream, user))))
        return TRANSPORT_FAILED;
    return posted(stream, ticket,
                  test->below->ops->post_recv(test->below, stream->below, length, pieces, npieces,
                                              ticket ? &ticket->below : NULL));
}

static bool test_withdraw(struct transport *transport, struct transport_stream *stream,
                          struct transport_ticket *user) {
    struct test_transport *test = test_of(transport);
    struct test_ticket *ticket = NULL;
    if (user != NULL)
        TAILQ_FOREACH(ticket, &stream->tickets, link)
    if (ticket->user == user)
        break;
    if (user != NULL && ticket == NULL)
        return false; /* the news of it is on its way */
    if (!test->below->ops->withdraw(test->below, stream->below,
                                    ticket != NULL ? &ticket->below : NULL))
        return false;
    if (ticket != NULL) {
        TAILQ_REMOVE(&stream->tickets, ticket, link);
        free(ticket);
    }
    return true;
}

static enum transport_result test_peek(struct transport *transport, struct transport_stream *stream,
                                       struct transport_arrival *arrival) {
    struct test_transport *test = test_of(transport);
    if (is_failed(stream))
        return TRANSPORT_FAILED;
    enum transport_result result = test->below->ops->peek(test->below, stream->below, arrival);
    if (result != TRANSPORT_OK || test->delay_ns == 0)
        return result;
    if (!stream->head_seen) {
        stream->head_seen = true;
        stream->head_due_ns = stream_due(stream);
        later(stream, stream->head_due_ns, &(struct test_event){.what = EVENT_ARRIVED});
    }
    return stream->head_due_ns <= clock_now_ns() ? TRANSPORT_OK : TRANSPORT_AGAIN;
}

static void test_release(struct transport *transport, struct transport_stream *stream,
                         struct transport_arrival *arrival) {
    struct test_transport *test = test_of(transport);
    test->below->ops->release(test->below, stream->below, arrival);
    stream->head_seen = false;
    count_message(stream);
}

static bool test_pending(struct transport *transport, struct transport_stream *stream,
                         struct transport_header *header) {
    struct test_transport *test = test_of(transport);
    return !is_failed(stream) && test->below->ops->pending(test->below, stream->below, header);
}

/* -- progress ------------------------------------------------------------------------------ */

static int test_progress(struct transport *transport, int budget) {
    struct test_transport *test = test_of(transport);
    int events = test->below->ops->progress(test->below, budget);
    events += deliver_due(test);
    transport->counters = test->below->counters;
    return events;
}

static bool test_arm(struct transport *transport) {
    struct test_transport *test = test_of(transport);
    bool armed = test->below->ops->arm(test->below);
    if (armed && !TAILQ_EMPTY(&test->events)) {
        test->below->ops->disarm(test->below);
        return false;
    }
    return armed;
}

static void test_disarm(struct transport *transport) {
    struct test_transport *test = test_of(transport);
    test->below->ops->disarm(test->below);
}

static int test_descriptor(struct transport *transport) {
    struct test_transport *test = test_of(transport);
    return test->below->ops->descriptor(test->below);
}

const struct transport_ops transport_test = {
    .name = "test",
    .help = "for tests: makes another transport late, unordered or broken",
    .open = test_open,
    .close = test_close,
    .describe = test_describe,
    .reaches = test_reaches,
    .connect = test_connect,
    .admit = test_admit,
    .gave_up = test_gave_up,
    .offer = test_offer,
    .accept = test_accept,
    .accept_stripe = test_accept_stripe,
    .stream_open = test_stream_open,
    .stream_close = test_stream_close,
    .reserve = test_reserve,
    .commit = test_commit,
    .post_send = test_post_send,
    .expect = test_expect,
    .post_recv = test_post_recv,
    .withdraw = test_withdraw,
    .peek = test_peek,
    .release = test_release,
    .pending = test_pending,
    .progress = test_progress,
    .arm = test_arm,
    .disarm = test_disarm,
    .descriptor = test_descriptor,
    .quiesce = test_quiesce,
    .peer_gone = test_peer_gone,
};
