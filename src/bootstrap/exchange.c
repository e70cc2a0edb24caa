/* The exchange of records by sockets, as one rank sees it.
 *
 * Design notes. One loop in the caller's thread drives up to four things at once: the rendezvous,
 * where this rank serves it; the way to it (reach, register, be answered); the mailbox into which
 * the control thread puts the connection that brings the table; and the passing on to children.
 * Rank 0 registers with its own rendezvous by a socket pair, so that it is a rank like any other.
 * All reads and writes are in pieces, and the loop sleeps in poll. A rank that has registered
 * waits a little beyond its deadline: the rendezvous decides at the deadline, and knows who is
 * missing. */
#include "bootstrap/exchange.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/cancel.h"
#include "bootstrap/rendezvous.h"
#include "bootstrap/resolve.h"
#include "bootstrap/service.h"
#include "bootstrap/spread.h"
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000ll
#define VERDICT_MS 500      /* beyond the deadline, for the rendezvous to say who is missing */
#define SERVE_AGAIN_MS 2000 /* how long rank 0 tries to get its port */
#define RESOLVE_AGAIN_MS 1000
#define LEAVE_MS 1000  /* for the rendezvous to tell the others that this rank was cancelled */
#define LINGER_MS 1000 /* how long rank 0 answers others when it knows that the job is off */

struct exchange {
    const struct bootstrap_place *place;
    const struct settings *settings;
    struct bootstrap_record mine;
    struct bootstrap_record *records;
    int64_t begun_ns, deadline_ns;
    rota_error error; /* status ROTA_OK: nothing failed */
    int64_t leave_ns; /* it ends by then, whoever still is to be answered */
    bool acquired;    /* a reference to the control thread */

    struct net_identity serving; /* of the rendezvous: any protocol, for it names the difference */
    struct net_listener *listener;
    struct rendezvous *rendezvous;
    bool served; /* everybody has been answered */

    struct reach reach;
    int64_t resolve_again_ns;
    rota_error resolve_error;
    int socket; /* to the rendezvous */
    struct bootstrap_inbox inbox;
    bool met;

    struct control_service service; /* for the table */
    bool listed;                    /* it is with the control thread */
    pthread_mutex_t lock;           /* guards mail */
    int mail, bell;                 /* socket that the control thread delivered; eventfd */
    int table;                      /* socket, taken from mail */
    struct bootstrap_inbox table_inbox;

    bool complete; /* records are there */
    struct spread *spread;
    bool spread_done;
};

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static void keep_error(struct exchange *exchange) {
    if (exchange->error.status != ROTA_OK)
        return;
    exchange->error = *error_record();
    exchange->leave_ns = earlier(exchange->leave_ns, clock_deadline(LINGER_MS));
}

static int64_t timeout_ms(const struct exchange *exchange) {
    if (exchange->place->timeout_ms > 0)
        return exchange->place->timeout_ms;
    return (exchange->deadline_ns - exchange->begun_ns + MS - 1) / MS;
}

/* -- the table's connection, on the control thread ---------------------------------------------
 */

static void table_admitted(void *context, const struct net_hello *hello, int socket,
                           const int *descriptors, int ndescriptors) {
    struct exchange *exchange = context;
    uint64_t one = 1;
    (void)hello;
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    pthread_mutex_lock(&exchange->lock);
    int before = exchange->mail;
    exchange->mail = socket; /* a newer one replaces one that its sender gave up */
    pthread_mutex_unlock(&exchange->lock);
    if (before >= 0)
        close(before);
    (void)!write(exchange->bell, &one, sizeof one);
}

/* Ranks beyond the first get the table by a connection to their control listener. */
static rota_status open_mailbox(struct exchange *exchange) {
    const struct bootstrap_place *place = exchange->place;
    if (place->rank < BOOTSTRAP_FAN_OUT)
        return ROTA_OK;
    struct net_addresses addresses;
    rota_status status = control_acquire(exchange->settings, &addresses);
    if (status != ROTA_OK)
        return status;
    exchange->acquired = true;
    exchange->mine.addresses = addresses;
    exchange->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (exchange->bell < 0)
        return error_raise_system(errno, "cannot make an eventfd");
    exchange->service = (struct control_service){
        .identity = place->identity, .context = exchange, .admitted = table_admitted};
    memcpy(exchange->service.key.job, place->identity.job, sizeof place->identity.job);
    exchange->service.key.rank = (uint32_t)place->rank;
    exchange->service.key.kind = CONTROL_TABLE;
    status = control_service_add(&exchange->service);
    exchange->listed = status == ROTA_OK;
    return status;
}

/* -- serving -----------------------------------------------------------------------------------
 */

static const struct net_identity *serve_find(void *context, const struct net_hello *hello) {
    struct exchange *exchange = context;
    bool ours = hello->purpose == NET_PURPOSE_RENDEZVOUS &&
                memcmp(hello->job, exchange->serving.job, sizeof hello->job) == 0;
    return ours ? &exchange->serving : NULL;
}

static enum net_verdict serve_judge(void *context, const struct net_hello *hello, int *descriptors,
                                    int *ndescriptors) {
    (void)context, (void)hello, (void)descriptors;
    *ndescriptors = 0;
    return NET_GO;
}

static void serve_admit(void *context, const struct net_hello *hello, int socket,
                        const int *descriptors, int ndescriptors) {
    struct exchange *exchange = context;
    (void)hello;
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
    rendezvous_add(exchange->rendezvous, socket);
}

/* Port of "HOST:PORT"; the form was checked when the place was found. */
static int root_port(const char *root_name) {
    return (int)strtol(strrchr(root_name, ':') + 1, NULL, 10);
}

/* Where rank 0 listens: on every address, since what the name resolves to here (often 127.0.1.1)
 * or outside (an address of a cluster's service) need not be one of ours; but on loopback alone
 * when the job names a loopback address. */
static struct net_address serve_address(const char *root_name) {
    struct net_address address = {.family = AF_INET6};
    struct net_address parsed[1];
    char host[64] = "";
    uint8_t bytes[16];
    int count;
    sscanf(root_name, root_name[0] == '[' ? "[%63[^]]" : "%63[^:]", host);
    bool numeric = inet_pton(AF_INET, host, bytes) == 1 || inet_pton(AF_INET6, host, bytes) == 1;
    if (numeric && net_address_parse(root_name, parsed, 1, &count) == ROTA_OK &&
        net_address_is_loopback(&parsed[0]))
        address = parsed[0];
    return address;
}

static rota_status serve_listen(struct exchange *exchange) {
    const struct bootstrap_place *place = exchange->place;
    struct net_gate gate = {
        .context = exchange, .find = serve_find, .judge = serve_judge, .admit = serve_admit};
    if (place->root_name[0] == 0)
        return net_listener_open_at(NULL, place->root.local_name, &gate, &exchange->listener);
    struct net_address address = serve_address(place->root_name);
    rota_status status = ROTA_ERR_SYSTEM;
    for (int i = 0; i <= place->root_candidates; i++) {
        int port = root_port(place->root_name) + place->root_offset + i;
        if (port > 65535)
            break;
        address.port = (uint16_t)port;
        status = net_listener_open_at(&address, NULL, &gate, &exchange->listener);
        if (status == ROTA_OK || error_record()->system_error != EADDRINUSE)
            break;
    }
    return status;
}

static rota_status register_socket(struct exchange *exchange);

/* Opens the rendezvous. When its place is taken, perhaps by a second rank 0, the rank goes there
 * as a guest, which brings the duplicate to light, and tries again for a while. */
static void serve_open(struct exchange *exchange) {
    int pair[2];
    if (serve_listen(exchange) != ROTA_OK) {
        if (error_record()->system_error != EADDRINUSE ||
            clock_passed(exchange->begun_ns + SERVE_AGAIN_MS * MS) ||
            clock_passed(exchange->deadline_ns))
            keep_error(exchange);
        return;
    }
    if (rendezvous_create(&exchange->rendezvous) != ROTA_OK) {
        keep_error(exchange);
        return;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        (void)error_raise_system(errno, "cannot make a socket pair");
        keep_error(exchange);
        return;
    }
    reach_end(&exchange->reach);
    exchange->socket = pair[0];
    rendezvous_add(exchange->rendezvous, pair[1]);
    if (register_socket(exchange) != ROTA_OK)
        keep_error(exchange);
}

static void step_server(struct exchange *exchange) {
    bool met;
    if (exchange->rendezvous == NULL || exchange->served)
        return;
    net_listener_step(exchange->listener);
    rendezvous_step(exchange->rendezvous);
    exchange->served = rendezvous_ended(exchange->rendezvous, &met);
}

/* -- the way to the rendezvous -----------------------------------------------------------------
 */

/* Resolves the root's name, again and again while it is unknown: names appear late in clusters. */
static void find_candidates(struct exchange *exchange) {
    const struct bootstrap_place *place = exchange->place;
    struct reach *reach = &exchange->reach;
    struct net_address address, found[NET_MAX_ADDRESSES];
    int count = 0;
    if (reach->ntargets > 0 || !clock_passed(exchange->resolve_again_ns))
        return;
    exchange->resolve_again_ns = clock_deadline(RESOLVE_AGAIN_MS);
    if (place->root_name[0] == 0) {
        reach_add_local(reach, place->root.local_name);
        for (int i = 0; net_pick_address(&place->root, false, i, &address); i++)
            reach_add_inet(reach, &address);
        return;
    }
    exchange->resolve_error.status = ROTA_OK;
    if (resolve_address(place->root_name, found, &count, exchange->deadline_ns) != ROTA_OK) {
        exchange->resolve_error = *error_record();
        return;
    }
    for (int port = place->root_offset; port <= place->root_offset + place->root_candidates; port++)
        for (int i = 0; i < count && found[i].port + port <= 65535; i++) {
            address = found[i];
            address.port = (uint16_t)(address.port + port);
            reach_add_inet(reach, &address);
        }
}

/* Sends the registration: it fits into the empty buffer of a new connection. */
static rota_status register_socket(struct exchange *exchange) {
    struct {
        struct bootstrap_header header;
        struct bootstrap_registration registration;
        char text[BOOTSTRAP_TEXT];
    } message = {.header = {.magic = NET_MAGIC, .type = BOOTSTRAP_REGISTER}};
    struct bootstrap_registration *registration = &message.registration;
    int64_t left_ns = exchange->deadline_ns - clock_now_ns();
    size_t text = settings_agreement_text(exchange->settings, message.text, sizeof message.text);
    if (text >= sizeof message.text)
        text = sizeof message.text - 1;
    registration->record = exchange->mine;
    registration->timeout_ms = (uint64_t)timeout_ms(exchange);
    registration->left_ms = left_ns > 0 ? (uint64_t)((left_ns + MS - 1) / MS) : 0;
    registration->text_bytes = (uint32_t)text;
    message.header.bytes = sizeof *registration + text;
    size_t bytes = sizeof message.header + message.header.bytes;
    ssize_t sent = send(exchange->socket, &message, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent != (ssize_t)bytes)
        return error_raise_system(sent < 0 ? errno : ENOBUFS,
                                  "cannot register with the rendezvous");
    return ROTA_OK;
}

/* The connection is of no use any more: begin again. */
static void leave_rendezvous(struct exchange *exchange) {
    exchange->reach.error = *error_record();
    close(exchange->socket);
    exchange->socket = -1;
    bootstrap_inbox_clear(&exchange->inbox);
    if (exchange->rendezvous != NULL && exchange->error.status == ROTA_OK) {
        (void)error_raise(ROTA_ERR_INTERNAL, "rank 0 lost its own rendezvous");
        keep_error(exchange);
    }
}

static void take_table(struct exchange *exchange, const struct bootstrap_inbox *inbox) {
    const struct bootstrap_place *place = exchange->place;
    if (bootstrap_table_take(inbox, place->nranks, exchange->records) != ROTA_OK) {
        keep_error(exchange);
        return;
    }
    if (memcmp(&exchange->records[place->rank], &exchange->mine, sizeof exchange->mine) != 0) {
        (void)error_raise(ROTA_ERR_MISMATCH,
                          "rank %d was claimed by another process (host %s, pid %d)", place->rank,
                          exchange->records[place->rank].host, exchange->records[place->rank].pid);
        keep_error(exchange);
        return;
    }
    exchange->complete = true;
    if (spread_begin(&place->identity, exchange->records, place->nranks, exchange->deadline_ns,
                     &exchange->spread) != ROTA_OK)
        keep_error(exchange);
}

static size_t most_bytes(const struct exchange *exchange) {
    size_t table = (size_t)exchange->place->nranks * sizeof(struct bootstrap_record);
    return table > sizeof(struct bootstrap_failure) ? table : sizeof(struct bootstrap_failure);
}

static void step_answer(struct exchange *exchange) {
    struct bootstrap_inbox *inbox = &exchange->inbox;
    bool whole = false;
    if (bootstrap_inbox_step(inbox, exchange->socket, most_bytes(exchange), &whole) != ROTA_OK) {
        leave_rendezvous(exchange);
        return;
    }
    if (!whole)
        return;
    if (inbox->header.type == BOOTSTRAP_TABLE) {
        take_table(exchange, inbox);
    } else if (inbox->header.type == BOOTSTRAP_MET) {
        exchange->met = true;
    } else if (inbox->header.type == BOOTSTRAP_ERROR) {
        (void)bootstrap_failure_raise(inbox);
        keep_error(exchange);
    } else {
        (void)error_raise(ROTA_ERR_FORMAT, "the rendezvous sent a message of unknown type %u",
                          inbox->header.type);
        keep_error(exchange);
    }
    close(exchange->socket);
    exchange->socket = -1;
    bootstrap_inbox_clear(inbox);
}

static void step_join(struct exchange *exchange) {
    bool round_over;
    if (exchange->met || exchange->complete)
        return;
    if (exchange->socket >= 0) {
        step_answer(exchange);
        return;
    }
    find_candidates(exchange);
    exchange->socket = reach_step(&exchange->reach, &round_over);
    if (exchange->socket >= 0) {
        reach_end(&exchange->reach);
        exchange->reach.next = 0;
        if (register_socket(exchange) != ROTA_OK)
            leave_rendezvous(exchange);
    } else if (round_over && exchange->place->serves) {
        serve_open(exchange);
    }
}

static void step_mail(struct exchange *exchange) {
    bool whole = false;
    if (!exchange->listed || exchange->complete)
        return;
    pthread_mutex_lock(&exchange->lock);
    int fresh = exchange->mail;
    exchange->mail = -1;
    pthread_mutex_unlock(&exchange->lock);
    if (fresh >= 0) {
        uint64_t count;
        (void)!read(exchange->bell, &count, sizeof count);
        if (exchange->table >= 0)
            close(exchange->table);
        bootstrap_inbox_clear(&exchange->table_inbox);
        exchange->table = fresh;
    }
    if (exchange->table < 0)
        return;
    rota_status status =
        bootstrap_inbox_step(&exchange->table_inbox, exchange->table, most_bytes(exchange), &whole);
    if (status == ROTA_OK && !whole)
        return;
    if (status == ROTA_OK && exchange->table_inbox.header.type == BOOTSTRAP_TABLE)
        take_table(exchange, &exchange->table_inbox);
    close(exchange->table); /* after a failure the sender comes again */
    exchange->table = -1;
    bootstrap_inbox_clear(&exchange->table_inbox);
}

/* -- the loop ----------------------------------------------------------------------------------
 */

static void place_text(const struct exchange *exchange, char *text, size_t size) {
    const struct bootstrap_place *place = exchange->place;
    char address[NET_ADDRESS_TEXT] = "";
    if (place->root_name[0] != 0)
        snprintf(text, size, "%.200s", place->root_name);
    else if (place->way == BOOTSTRAP_ROOT)
        snprintf(text, size, "@%s", place->root.local_name);
    else {
        net_address_text(&place->root.inet[0], address);
        snprintf(text, size, "%s (unique id)", address);
    }
}

static void raise_unreached(const struct exchange *exchange) {
    const rota_error *why = exchange->resolve_error.status != ROTA_OK ? &exchange->resolve_error
                                                                      : &exchange->reach.error;
    char text[256];
    place_text(exchange, text, sizeof text);
    (void)error_raise(ROTA_ERR_TIMEOUT, "rank %d could not join at %s within %lld ms: %.250s",
                      exchange->place->rank, text, (long long)timeout_ms(exchange),
                      why->status != ROTA_OK ? why->message : "no answer");
    error_record()->system_error = why->system_error;
    memcpy(error_record()->address, why->address, sizeof why->address);
}

static void raise_silent(const struct exchange *exchange) {
    const struct bootstrap_place *place = exchange->place;
    char text[256];
    place_text(exchange, text, sizeof text);
    if (exchange->met)
        (void)error_raise(
            ROTA_ERR_TIMEOUT, "rank %d did not get the table of ranks from rank %d within %lld ms",
            place->rank, place->rank / BOOTSTRAP_FAN_OUT - 1, (long long)timeout_ms(exchange));
    else
        (void)error_raise(ROTA_ERR_TIMEOUT,
                          "rank %d registered at %s and was not answered within %lld ms",
                          place->rank, text, (long long)timeout_ms(exchange));
    error_record()->peer = exchange->met ? place->rank / BOOTSTRAP_FAN_OUT - 1 : 0;
    error_add_culprit(error_record(), error_record()->peer);
}

/* Ends what the deadline ends. */
static void check_deadline(struct exchange *exchange) {
    if (exchange->error.status != ROTA_OK || !clock_passed(exchange->deadline_ns))
        return;
    if (exchange->complete) {
        if (exchange->spread_done)
            return;
        (void)spread_raise(exchange->spread);
    } else if (exchange->met || exchange->socket >= 0) {
        if (!clock_passed(exchange->deadline_ns + VERDICT_MS * MS))
            return;
        raise_silent(exchange);
    } else {
        raise_unreached(exchange);
        if (exchange->place->way == BOOTSTRAP_ROOT && exchange->place->rank != 0)
            error_add_culprit(error_record(), 0);
    }
    error_record()->waited_ms = (uint64_t)((clock_now_ns() - exchange->begun_ns) / MS);
    keep_error(exchange);
}

/* Given up by another thread: tells the rendezvous, which tells the others. A rank that is still on
 * its way there goes on for a moment, since the others would wait for it. */
static void check_cancel(struct exchange *exchange) {
    const struct bootstrap_header leave = {.magic = NET_MAGIC, .type = BOOTSTRAP_LEAVE};
    char text[256];
    if (exchange->error.status != ROTA_OK || !cancel_is_raised() ||
        (exchange->complete && exchange->spread_done))
        return;
    bool coming = exchange->socket < 0 && !exchange->met && !exchange->complete;
    exchange->leave_ns = earlier(exchange->leave_ns, clock_deadline(LEAVE_MS));
    if (coming && !clock_passed(exchange->leave_ns))
        return;
    place_text(exchange, text, sizeof text);
    (void)error_raise(ROTA_ERR_ABORTED, "rank %d of %d was cancelled while it joined at %s",
                      exchange->place->rank, exchange->place->nranks, text);
    keep_error(exchange);
    if (exchange->socket >= 0)
        (void)!send(exchange->socket, &leave, sizeof leave, MSG_NOSIGNAL | MSG_DONTWAIT);
    step_server(exchange); /* so that it is not seen as still collecting */
}

static int64_t next_deadline(const struct exchange *exchange) {
    int64_t next = earlier(exchange->deadline_ns, exchange->leave_ns);
    bool joining = !exchange->met && !exchange->complete && exchange->error.status == ROTA_OK;
    if (clock_passed(next))
        next = exchange->deadline_ns + VERDICT_MS * MS;
    if (exchange->rendezvous != NULL && !exchange->served)
        next = earlier(next, rendezvous_deadline(exchange->rendezvous));
    if (joining && exchange->socket < 0)
        next = earlier(next, reach_deadline(&exchange->reach));
    if (exchange->spread != NULL && !exchange->spread_done)
        next = earlier(next, spread_deadline(exchange->spread));
    return next;
}

static void wait_for_events(struct exchange *exchange) {
    struct pollfd fds[8 + REACH_ACTIVE + SPREAD_POLL];
    nfds_t n = 0;
    bool joining = !exchange->met && !exchange->complete && exchange->error.status == ROTA_OK;
    int64_t deadline = next_deadline(exchange);
    if (exchange->rendezvous != NULL && !exchange->served) {
        int ms = net_listener_step(exchange->listener);
        if (ms >= 0)
            deadline = earlier(deadline, clock_deadline(ms));
        fds[n++] =
            (struct pollfd){.fd = net_listener_descriptor(exchange->listener), .events = POLLIN};
        fds[n++] =
            (struct pollfd){.fd = rendezvous_descriptor(exchange->rendezvous), .events = POLLIN};
    }
    if (exchange->socket >= 0)
        fds[n++] = (struct pollfd){.fd = exchange->socket, .events = POLLIN};
    else if (joining)
        n += (nfds_t)reach_poll(&exchange->reach, fds + n);
    if (exchange->listed && !exchange->complete)
        fds[n++] = (struct pollfd){.fd = exchange->bell, .events = POLLIN};
    if (exchange->table >= 0)
        fds[n++] = (struct pollfd){.fd = exchange->table, .events = POLLIN};
    if (exchange->spread != NULL && !exchange->spread_done)
        n += (nfds_t)spread_poll(exchange->spread, fds + n);
    /* After EINTR everything is looked at. Other failures (nfds above RLIMIT_NOFILE) must not make
     * this a busy loop. */
    if (poll(fds, n, clock_left_ms(cancel_look_ns(deadline))) < 0 && errno != EINTR)
        (void)clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){.tv_nsec = MS}, NULL);
}

static bool finished(const struct exchange *exchange) {
    bool failed = exchange->error.status != ROTA_OK;
    /* A failure that the rendezvous did not decide is rank 0's own; it ends the rendezvous too. */
    bool served = exchange->rendezvous == NULL || exchange->served ||
                  (failed && rendezvous_collecting(exchange->rendezvous));
    return clock_passed(exchange->leave_ns) ||
           (served && (failed || (exchange->complete && exchange->spread_done)));
}

static void run_loop(struct exchange *exchange) {
    if (exchange->place->serves)
        serve_open(exchange);
    for (;;) {
        step_server(exchange);
        if (exchange->error.status == ROTA_OK) {
            step_join(exchange);
            step_mail(exchange);
        }
        if (exchange->complete && !exchange->spread_done && exchange->error.status == ROTA_OK)
            exchange->spread_done = exchange->spread == NULL || spread_step(exchange->spread);
        check_deadline(exchange);
        check_cancel(exchange);
        if (finished(exchange))
            return;
        wait_for_events(exchange);
    }
}

static void exchange_close(struct exchange *exchange) {
    if (exchange->listed)
        control_service_remove(&exchange->service);
    if (exchange->acquired)
        control_release();
    int sockets[] = {exchange->socket, exchange->mail, exchange->table, exchange->bell};
    for (size_t i = 0; i < sizeof sockets / sizeof *sockets; i++)
        if (sockets[i] >= 0)
            close(sockets[i]);
    bootstrap_inbox_clear(&exchange->inbox);
    bootstrap_inbox_clear(&exchange->table_inbox);
    reach_end(&exchange->reach);
    spread_end(exchange->spread);
    net_listener_close(exchange->listener);
    rendezvous_destroy(exchange->rendezvous);
    pthread_mutex_destroy(&exchange->lock);
    free(exchange);
}

rota_status bootstrap_exchange_sockets(struct bootstrap_place *place,
                                       const struct settings *settings,
                                       const struct bootstrap_record *mine,
                                       struct bootstrap_record *records, int64_t deadline_ns) {
    struct exchange *exchange = calloc(1, sizeof *exchange);
    if (exchange == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory to join a job");
    exchange->place = place;
    exchange->settings = settings;
    exchange->mine = *mine;
    exchange->records = records;
    exchange->begun_ns = clock_now_ns();
    exchange->deadline_ns = earlier(deadline_ns, CLOCK_NEVER / 2);
    exchange->leave_ns = CLOCK_NEVER;
    exchange->serving = place->identity;
    exchange->serving.protocol_first = 1;
    exchange->serving.protocol_last = UINT16_MAX;
    exchange->socket = exchange->mail = exchange->table = exchange->bell = -1;
    pthread_mutex_init(&exchange->lock, NULL);
    reach_begin(&exchange->reach, &place->identity, place->way == BOOTSTRAP_ROOT ? 0 : -1,
                NET_PURPOSE_RENDEZVOUS, exchange->deadline_ns);
    if (open_mailbox(exchange) != ROTA_OK)
        keep_error(exchange);
    else
        run_loop(exchange);
    rota_error error = exchange->error;
    exchange_close(exchange);
    if (error.status != ROTA_OK)
        *error_record() = error;
    return error.status;
}
