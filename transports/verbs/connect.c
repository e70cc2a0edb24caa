/* Connecting by the CM, as state machines that its events drive: calls of ours, calls of peers,
 * crossing, the end.
 *
 * Who gets through. Each pair of ranks needs one connection, and both may call. A call carries the
 * token of the called rank, which only members of the job know, so strangers are refused. Of two
 * calls that cross, that of the lower rank lives: who has called and is called by a lower rank
 * drops its own call; by a higher one, refuses. Between two calls anybody is let in. A connection
 * counts only when the first frame has come from the other side; one that ends before is tried
 * again. */
#include "verbs.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "net/handshake.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define RESOLVE_MS 2000
#define BACKOFF_FIRST_NS (20 * MS)
#define BACKOFF_MOST_NS (1000 * MS)
#define CROSSING_NS (200 * MS)
/* After so long without success a failed call is the last one. The CM itself tries to reach a port
 * for about a minute. */
#define CALLING_NS (10000 * MS)
#define BACKLOG 1024

/* -- what peers are told ------------------------------------------------------------------- */

size_t verbs_describe(struct transport *transport, void *data) {
    const struct verbs *verbs = verbs_of(transport);
    struct verbs_blob blob = {.magic = VERBS_MAGIC,
                              .port = verbs->port,
                              .nrails = (uint8_t)verbs->nports,
                              .mtu = IBV_MTU_4096};
    memcpy(blob.token, verbs->token, sizeof blob.token);
    for (int i = 0; i < verbs->nports; i++) {
        memcpy(blob.addresses[i], verbs->rails[i].ip, sizeof blob.addresses[i]);
        while (blob.mtu > IBV_MTU_256 && 128u << blob.mtu > verbs->rails[i].mtu)
            blob.mtu--;
    }
    memcpy(data, &blob, sizeof blob);
    return sizeof blob;
}

static const struct verbs_blob *blob_of(const struct verbs *verbs, int peer) {
    return verbs->mux.host->peers[peer].blob;
}

bool verbs_reaches(struct transport *transport, int peer) {
    struct verbs *verbs = verbs_of(transport);
    const struct transport_peer *entry = &verbs->mux.host->peers[peer];
    const struct verbs_blob *blob = entry->blob;
    return peer != verbs->mux.host->rank && entry->blob_bytes >= sizeof *blob &&
           blob->magic == VERBS_MAGIC && blob->nrails >= 1 && blob->nrails <= VERBS_MAX_RAILS;
}

static void address_text(const uint8_t ip[16], uint16_t port, char text[NET_ADDRESS_TEXT]) {
    struct sockaddr_storage storage;
    struct net_address address = {0};
    verbs_address(ip, 0, port, &storage);
    net_address_from_socket((struct sockaddr *)&storage, &address);
    net_address_text(&address, text);
}

/* Whether a ring may have so many. */
static bool is_slots(uint32_t slots) {
    return slots >= VERBS_MIN_SLOTS && (slots & (slots - 1)) == 0;
}

/* -- pairs --------------------------------------------------------------------------------- */

static struct verbs_pair *pair_new(struct verbs_connection *connection, int role) {
    struct verbs_pair *pair = calloc(1, sizeof *pair);
    if (!pair)
        return NULL;
    pair->connection = connection;
    pair->role = role;
    if (role == 0)
        connection->pair = pair;
    else
        connection->ways[role - 1] = pair;
    return pair;
}

void verbs_pair_destroy(struct verbs *verbs, struct verbs_pair *pair) {
    struct verbs_connection *connection = pair->connection;
    if (verbs->recent == pair)
        verbs->recent = NULL;
    if (pair->number != 0) {
        HASH_DEL(verbs->pairs, pair);
        if (pair->role == 0 && pair->port->srq)
            pair->port->spare += connection->slots;
    }
    if (pair->id) {
        if (pair->established)
            (void)verbs->calls->disconnect(pair->id);
        /* Destroying it, not its state, promises that the adapter touches no memory for it. */
        if (pair->id->qp)
            verbs->calls->destroy_qp(pair->id);
        (void)verbs->calls->destroy_id(pair->id);
    }
    if (connection->pair == pair)
        connection->pair = NULL;
    free(pair);
}

static struct verbs_port *port_of(struct verbs *verbs, const struct rdma_cm_id *id) {
    for (int i = 0; i < verbs->nports; i++) {
        if (verbs->rails[i].context == id->verbs)
            return &verbs->ports[i];
    }
    return NULL;
}

/* Makes the queue pair; that of the ring with the ring and its receive requests. */
static bool pair_prepare(struct verbs *verbs, struct verbs_pair *pair) {
    struct verbs_connection *connection = pair->connection;
    struct verbs_port *port = port_of(verbs, pair->id);
    static const uint32_t inlines[] = {VERBS_INLINE_BYTES, 144, 64, 0};
    if (!port) {
        error_raise(ROTA_ERR_PEER, "the way to rank %d leaves by a device that is not used",
                    connection->base.peer);
        return false;
    }
    pair->port = port;
    if (pair->role == 0 && !verbs_ring_open(connection, port))
        return false;
    int error = 0;
    for (size_t i = 0; i < sizeof inlines / sizeof inlines[0]; i++) {
        struct ibv_qp_init_attr attr = {
            .send_cq = port->cq,
            .recv_cq = port->cq,
            .srq = port->srq,
            .qp_type = IBV_QPT_RC,
            .cap = {.max_send_wr = pair->role == 0 ? VERBS_SEND_DEPTH : VERBS_WAY_DEPTH,
                    .max_recv_wr = port->srq         ? 0
                                   : pair->role == 0 ? connection->slots
                                                     : 1,
                    .max_send_sge = pair->role == 0 ? 1 : VERBS_MAX_SGE,
                    .max_recv_sge = 1,
                    .max_inline_data = pair->role == 0 ? inlines[i] : 0}};
        error = verbs->calls->create_qp(pair->id, port->pd, &attr) == 0 ? 0 : errno;
        pair->inline_bytes = attr.cap.max_inline_data;
        if (error == 0)
            break;
    }
    if (error != 0) {
        error_raise_system(error, "rdma_create_qp on %s", port->rail->name);
        return false;
    }
    if (pair->inline_bytes > VERBS_SLOT_BYTES)
        pair->inline_bytes = VERBS_SLOT_BYTES;
    pair->number = pair->id->qp->qp_num;
    HASH_ADD(hh, verbs->pairs, number, sizeof pair->number, pair);
    if (pair->role > 0)
        return true;
    /* Those of connections that ended are still in the shared queue. */
    unsigned there = port->spare < connection->slots ? port->spare : connection->slots;
    port->spare -= there;
    if (verbs_post_receives(verbs, port, pair, connection->slots - there))
        return true;
    error_raise_system(errno, "posting receive requests on %s", port->rail->name);
    return false;
}

/* -- calling ------------------------------------------------------------------------------- */

void verbs_connection_init(struct mux_connection *base) {
    struct verbs_connection *connection = verbs_connection_of(base);
    connection->backoff_ns = BACKOFF_FIRST_NS;
    TAILQ_INIT(&connection->writes);
}

/* Drops what there is of a ring that nobody has used. */
static void drop(struct verbs_connection *connection) {
    struct verbs *verbs = verbs_home(connection);
    if (connection->pair)
        verbs_pair_destroy(verbs, connection->pair);
    verbs_ring_close(connection);
    if (connection->state == VERBS_CALLING)
        verbs->calling--;
}

static void give_up(struct verbs_connection *connection, int system_error, const char *text) {
    struct mux *mux = connection->base.mux;
    connection->state = VERBS_GIVEN_UP;
    connection->wanted = false;
    mux->host->unreachable(mux->host->context, &mux->base, connection->base.peer, system_error,
                           text);
}

/* A call failed: a pause, or the end. */
static void call_failed(struct verbs_connection *connection, int refusal, int system_error) {
    char text[ROTA_ERROR_MAX_MESSAGE];
    bool waits = refusal == VERBS_REFUSED_CROSSING || refusal == VERBS_REFUSED_LATER;
    snprintf(text, sizeof text, "%s", error_record()->message);
    log_write(LOG_DEBUG, "call to rank %d by RDMA: %s", connection->base.peer, text);
    drop(connection);
    connection->state = connection->wanted ? VERBS_WAITING : VERBS_IDLE;
    if (!connection->wanted)
        return; /* who calls is told, who is called lets others try */
    if (refusal == VERBS_REFUSED_GIVEN_UP ||
        (!waits && clock_now_ns() - connection->began_ns > CALLING_NS)) {
        give_up(connection, system_error, text);
        return;
    }
    mux_due(&connection->base, waits ? CROSSING_NS : connection->backoff_ns);
    if (!waits && connection->backoff_ns < BACKOFF_MOST_NS)
        connection->backoff_ns *= 2;
}

bool verbs_call(struct verbs_connection *connection, int role) {
    struct verbs *verbs = verbs_home(connection);
    const struct verbs_blob *blob = blob_of(verbs, connection->base.peer);
    int number = role > 0 ? role - 1 : 0;
    const uint8_t *ip = blob->addresses[number % blob->nrails];
    uint32_t mtu = 0;
    int rail = verbs_route(verbs->rails, verbs->nports, ip, &mtu);
    if (rail < 0)
        rail = number % verbs->nports; /* the CM says what is wrong with it */
    struct sockaddr_storage to, from = verbs->rails[rail].address;
    verbs_address(ip, verbs->rails[rail].interface, blob->port, &to);
    struct verbs_pair *pair = pair_new(connection, role);
    if (!pair) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for a queue pair");
        return false;
    }
    if (verbs->calls->create_id(verbs->events, &pair->id, pair, RDMA_PS_TCP) != 0) {
        pair->id = NULL;
        error_raise_system(errno, "rdma_create_id");
        return false;
    }
    if (verbs->calls->resolve_addr(pair->id, (struct sockaddr *)&from, (struct sockaddr *)&to,
                                   RESOLVE_MS) != 0) {
        error_raise_system(errno, "rdma_resolve_addr of rank %d", connection->base.peer);
        return false;
    }
    return true;
}

static void attempt(struct verbs_connection *connection) {
    struct verbs *verbs = verbs_home(connection);
    connection->state = VERBS_CALLING;
    connection->caller = true;
    verbs->calling++;
    mux_due(&connection->base,
            settings_integer(verbs->mux.host->settings, SETTING_RDMA_ANSWER_MS) * MS);
    if (!verbs_call(connection, 0))
        call_failed(connection, 0, error_record()->system_error);
}

/* Where a call goes, for messages: the peer's address and the port here that it leaves by. */
static void call_ends(const struct verbs_pair *pair, char *text, size_t size) {
    const struct verbs *verbs = verbs_home(pair->connection);
    const struct verbs_blob *blob = blob_of(verbs, pair->connection->base.peer);
    int number = pair->role > 0 ? pair->role - 1 : 0;
    char from[NET_ADDRESS_TEXT], to[NET_ADDRESS_TEXT];
    const struct verbs_rail *own =
        pair->port ? pair->port->rail : &verbs->rails[number % verbs->nports];
    address_text(blob->addresses[number % blob->nrails], blob->port, to);
    address_text(own->ip, 0, from);
    snprintf(text, size, "%.60s from %.30s (%.60s)", to, own->name, from);
}

/* A peer that is busy answers late, one whose packets are dropped never, and the CM tells neither
 * from the other before a minute has passed. So only who has another way stops waiting. */
static void unanswered(struct verbs_connection *connection) {
    const struct transport_host *host = connection->base.mux->host;
    if (!host->has_other ||
        !host->has_other(host->context, &connection->base.mux->base, connection->base.peer))
        return;
    char ends[192];
    call_ends(connection->pair, ends, sizeof ends);
    error_raise(ROTA_ERR_PEER,
                "rank %d by RDMA at %s has not answered a call for %lld ms: it is busy elsewhere "
                "(ROTA_RDMA_ANSWER_MS), or packets to its adapter are dropped (RoCE: UDP 4791)",
                connection->base.peer, ends,
                (long long)settings_integer(host->settings, SETTING_RDMA_ANSWER_MS));
    call_failed(connection, VERBS_REFUSED_GIVEN_UP, ETIMEDOUT);
}

void verbs_due(struct mux_connection *base) {
    struct verbs_connection *connection = verbs_connection_of(base);
    if (!connection->wanted || verbs_home(connection)->closing)
        return;
    if (connection->state == VERBS_WAITING)
        attempt(connection);
    else if (connection->state == VERBS_CALLING)
        unanswered(connection);
}

void verbs_connect(struct transport *transport, int peer) {
    struct mux *mux = mux_of(transport);
    struct verbs_connection *connection = verbs_connection_of(mux_connection_get(mux, peer));
    if (!connection || connection->state == VERBS_GIVEN_UP || connection->state == VERBS_FAILED) {
        mux->host->unreachable(mux->host->context, transport, peer, connection ? 0 : ENOMEM,
                               connection ? "the connection by verbs was given up before"
                                          : "no memory for a connection");
        return;
    }
    if (connection->wanted || connection->state == VERBS_READY)
        return;
    connection->wanted = true;
    connection->began_ns = clock_now_ns();
    if (connection->state == VERBS_IDLE)
        attempt(connection);
}

/* Bytes in a packet on the way to the peer's rail: what both ends and the route carry. */
static uint32_t mtu_to(const struct verbs_rail *own, const struct verbs_blob *blob, int rail) {
    uint32_t mtu = own->mtu;
    if (verbs_route(own, 1, blob->addresses[rail % blob->nrails], &mtu) < 0)
        mtu = own->mtu; /* the CM may know a way */
    return blob->mtu >= IBV_MTU_256 && blob->mtu <= IBV_MTU_4096 && 128u << blob->mtu < mtu
               ? 128u << blob->mtu
               : mtu;
}

/* The address of the peer's port is known: asks for the way there. */
static bool address_resolved(struct verbs *verbs, struct verbs_pair *pair) {
    int rail = pair->role > 0 ? pair->role - 1 : 0;
    const struct verbs_rail *own = &verbs->rails[rail % verbs->nports];
    uint8_t timeout = VERBS_ACK_TIMEOUT;
    uint32_t mtu = mtu_to(own, blob_of(verbs, pair->connection->base.peer), rail);
    /* Older kernels do not know the option; their own value is finite too. */
    (void)verbs->calls->set_option(pair->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                                   sizeof timeout);
    if (own->ethernet && own->immediate && mtu < own->link_mtu) {
        if (verbs_set_path(verbs->calls, pair->id, mtu, timeout) == 0)
            return true;
        error_raise_system(errno, "setting a path with an MTU of %u bytes", mtu);
        return false;
    }
    if (verbs->calls->resolve_route(pair->id, RESOLVE_MS) == 0)
        return true;
    error_raise_system(errno, "rdma_resolve_route");
    return false;
}

static bool route_resolved(struct verbs *verbs, struct verbs_pair *pair) {
    struct verbs_connection *connection = pair->connection;
    struct verbs_request request = {.magic = VERBS_MAGIC,
                                    .rank = (uint32_t)verbs->mux.host->rank,
                                    .role = (uint8_t)pair->role,
                                    .ways = (uint8_t)connection->nways,
                                    .rail = (uint16_t)(pair->port - verbs->ports),
                                    .generation = connection->generation,
                                    .ring = (uintptr_t)connection->ring,
                                    .key = connection->mr->rkey,
                                    .slots = connection->slots};
    memcpy(request.token, blob_of(verbs, connection->base.peer)->token, sizeof request.token);
    struct rdma_conn_param param = {.private_data = &request,
                                    .private_data_len = sizeof request,
                                    .retry_count = VERBS_RETRIES,
                                    .rnr_retry_count = 0};
    if (verbs->calls->connect(pair->id, &param) == 0)
        return true;
    error_raise_system(errno, "rdma_connect");
    return false;
}

/* Our call was answered. */
static bool answered(struct verbs *verbs, struct verbs_pair *pair, const void *data, size_t bytes) {
    struct verbs_connection *connection = pair->connection;
    struct verbs_answer answer;
    if (bytes < sizeof answer)
        goto wrong;
    memcpy(&answer, data, sizeof answer);
    if (answer.magic != VERBS_MAGIC || !is_slots(answer.slots) ||
        answer.slots > connection->slots || answer.rail >= VERBS_MAX_RAILS ||
        memcmp(answer.token, verbs->token, sizeof answer.token) != 0)
        goto wrong;
    pair->peer_rail = (int)answer.rail;
    if (pair->role > 0)
        return true;
    if (pair->port->srq)
        pair->port->spare += connection->slots - answer.slots;
    connection->slots = answer.slots;
    connection->peer_ring = answer.ring;
    connection->peer_key = answer.key;
    verbs->calling--;
    connection->state = VERBS_ACCEPTED;
    return true;
wrong:
    error_raise(ROTA_ERR_FORMAT, "rank %d answered with something else", connection->base.peer);
    return false;
}

static void note_address(struct verbs_connection *connection) {
    const struct verbs_blob *blob = blob_of(verbs_home(connection), connection->base.peer);
    char text[NET_ADDRESS_TEXT];
    address_text(blob->addresses[0], blob->port, text);
    snprintf(connection->base.address, sizeof connection->base.address, "%.60s by %.30s", text,
             connection->pair->port->rail->name);
}

void verbs_established(struct verbs_pair *pair) {
    if (pair->established)
        return;
    pair->established = true;
    if (pair->role > 0) {
        verbs_way_up(pair);
        return;
    }
    note_address(pair->connection);
    mux_begin(&pair->connection->base);
}

/* -- being called -------------------------------------------------------------------------- */

static void refuse(struct verbs *verbs, struct rdma_cm_id *id, enum verbs_refusal why) {
    uint8_t reason = (uint8_t)why;
    (void)verbs->calls->reject(id, &reason, sizeof reason);
    (void)verbs->calls->destroy_id(id);
}

/* Whether a peer may have the ring now; if so, room is made for it. 0, or why not. */
static int admit_ring(struct verbs_connection *connection) {
    const struct mux_connection *base = &connection->base;
    switch (connection->state) {
    case VERBS_CALLING:
        if (base->peer > base->mux->host->rank)
            return VERBS_REFUSED_CROSSING;
        break;
    case VERBS_IDLE:
    case VERBS_WAITING:
        break;
    case VERBS_ACCEPTED: /* the peer began anew */
        if (base->got_init)
            return VERBS_REFUSED_LATER;
        break;
    case VERBS_READY:
        return VERBS_REFUSED_LATER;
    default:
        return VERBS_REFUSED_GIVEN_UP;
    }
    if (base->open)
        mux_shut(&connection->base);
    else
        drop(connection);
    connection->base.in_frame = false;
    connection->caller = false;
    connection->state = VERBS_ACCEPTED;
    return 0;
}

static bool accept_call(struct verbs *verbs, struct verbs_pair *pair,
                        const struct verbs_request *request) {
    struct verbs_connection *connection = pair->connection;
    pair->peer_rail = request->rail;
    if (pair->role == 0) {
        if (request->slots < connection->slots) {
            if (pair->port->srq)
                pair->port->spare += connection->slots - request->slots;
            connection->slots = request->slots;
        }
        connection->peer_ring = request->ring;
        connection->peer_key = request->key;
    }
    struct verbs_answer answer = {.magic = VERBS_MAGIC,
                                  .slots = connection->slots,
                                  .ring = (uintptr_t)connection->ring,
                                  .key = connection->mr->rkey,
                                  .rail = (uint32_t)(pair->port - verbs->ports)};
    memcpy(answer.token, blob_of(verbs, connection->base.peer)->token, sizeof answer.token);
    struct rdma_conn_param param = {.private_data = &answer,
                                    .private_data_len = sizeof answer,
                                    .retry_count = VERBS_RETRIES,
                                    .rnr_retry_count = 0};
    uint8_t timeout = VERBS_ACK_TIMEOUT;
    (void)verbs->calls->set_option(pair->id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                                   sizeof timeout);
    if (verbs->calls->accept(pair->id, &param) == 0)
        return true;
    error_raise_system(errno, "rdma_accept");
    return false;
}

static struct verbs_connection *caller_of(struct verbs *verbs, const struct verbs_request *request,
                                          size_t bytes) {
    uint8_t differs = 0;
    if (bytes < sizeof *request || request->magic != VERBS_MAGIC ||
        request->rank >= (uint32_t)verbs->mux.host->nranks ||
        request->rank == (uint32_t)verbs->mux.host->rank || !verbs->mux.host->peers)
        return NULL;
    for (int i = 0; i < VERBS_TOKEN_BYTES; i++)
        differs |= request->token[i] ^ verbs->token[i];
    if (differs || request->rail >= VERBS_MAX_RAILS ||
        !verbs_reaches(&verbs->mux.base, (int)request->rank) ||
        (request->role == 0 && !is_slots(request->slots)))
        return NULL;
    return verbs_connection_of(mux_connection_get(&verbs->mux, (int)request->rank));
}

static void called(struct verbs *verbs, struct rdma_cm_id *id, const void *data, size_t bytes) {
    struct verbs_request request = {0};
    memcpy(&request, data, bytes < sizeof request ? bytes : sizeof request);
    struct verbs_connection *connection = verbs->closing ? NULL : caller_of(verbs, &request, bytes);
    if (!connection) {
        refuse(verbs, id, VERBS_REFUSED_GIVEN_UP);
        return;
    }
    int refusal = request.role == 0                         ? admit_ring(connection)
                  : verbs_ways_called(connection, &request) ? 0
                                                            : VERBS_REFUSED_LATER;
    struct verbs_pair *pair = refusal == 0 ? pair_new(connection, request.role) : NULL;
    if (!pair) {
        refuse(verbs, id, refusal ? (enum verbs_refusal)refusal : VERBS_REFUSED_LATER);
        return;
    }
    pair->id = id;
    id->context = pair;
    bool prepared = pair_prepare(verbs, pair);
    if (prepared && accept_call(verbs, pair, &request))
        return;
    log_write(LOG_INFO, "rank %d is not let in by RDMA: %s", connection->base.peer,
              error_record()->message);
    uint8_t reason = prepared ? VERBS_REFUSED_LATER : VERBS_REFUSED_GIVEN_UP;
    (void)verbs->calls->reject(id, &reason, sizeof reason);
    if (request.role > 0)
        verbs_ways_failed(connection);
    else
        call_failed(connection, prepared ? 0 : VERBS_REFUSED_GIVEN_UP,
                    error_record()->system_error);
}

/* -- events -------------------------------------------------------------------------------- */

static void failed(struct verbs_pair *pair, int refusal, int system_error) {
    struct verbs_connection *connection = pair->connection;
    if (pair->role > 0)
        verbs_ways_failed(connection);
    else if (!connection->base.open)
        call_failed(connection, refusal, system_error);
}

/* The peer hung up, or its process ended. What it sent before is taken first. */
static void hung_up(struct verbs_pair *pair) {
    struct verbs_connection *connection = pair->connection;
    struct verbs *verbs = verbs_home(connection);
    if (pair->role > 0) {
        verbs_ways_failed(connection);
    } else if (!connection->base.open && !verbs->closing) {
        error_raise(ROTA_ERR_PEER, "rank %d hung up", connection->base.peer);
        call_failed(connection, 0, 0);
    } else if (connection->base.open) {
        verbs->mux.pipe->receive(&connection->base);
        mux_break(&connection->base, 0, "the RDMA connection was closed by the other side");
    }
}

/* What an event of the CM that ends a call means, and what it would have needed. */
static void raise_unreachable(const struct verbs_pair *pair, enum rdma_cm_event_type type,
                              int status) {
    char ends[192];
    int peer = pair->connection->base.peer, error = status < 0 ? -status : status;
    call_ends(pair, ends, sizeof ends);
    switch (type) {
    case RDMA_CM_EVENT_ADDR_ERROR:
        error_raise_system(error,
                           "rank %d by RDMA at %s: no adapter here answers for that address; it "
                           "must be in a network of the port, and its neighbour entry resolve",
                           peer, ends);
        break;
    case RDMA_CM_EVENT_ROUTE_ERROR:
        error_raise_system(error,
                           "rank %d by RDMA at %s: no path to that GID; a subnet manager "
                           "(InfiniBand) or a route (RoCE) must know one",
                           peer, ends);
        break;
    case RDMA_CM_EVENT_UNREACHABLE:
        error_raise_system(error,
                           "rank %d by RDMA at %s: no answer to the call; its adapter must be up "
                           "and packets to it pass (RoCE: UDP port 4791)",
                           peer, ends);
        break;
    default:
        error_raise_system(error,
                           "rank %d by RDMA at %s: the connection was answered, but not made; "
                           "both adapters must take its queue pair and MTU",
                           peer, ends);
    }
}

/* `status` is the CM's reason; 28: the program refused, in its own words. */
static int raise_rejected(const struct verbs_pair *pair, int status, const uint8_t *data,
                          size_t bytes) {
    enum { NO_LISTENER = 8, BY_PROGRAM = 28 };
    static const char *const words[] = {
        [VERBS_REFUSED_CROSSING] = "it calls itself, and its call goes on",
        [VERBS_REFUSED_GIVEN_UP] = "it has given RDMA up, or the call was not of this job",
        [VERBS_REFUSED_LATER] = "it is not ready; the call is repeated"};
    int refusal = bytes > 0 && status == BY_PROGRAM ? data[0] : 0;
    bool known = refusal > 0 && refusal <= VERBS_REFUSED_LATER;
    char ends[192];
    call_ends(pair, ends, sizeof ends);
    error_raise(ROTA_ERR_PEER, "rank %d by RDMA at %s: the call was refused (reason %d): %s",
                pair->connection->base.peer, ends, status,
                known                   ? words[refusal]
                : status == NO_LISTENER ? "nobody listens there; the rank has ended, or the "
                                          "address belongs to another machine"
                                        : "the adapter there does not accept it");
    return refusal;
}

static void handle(struct verbs *verbs, enum rdma_cm_event_type type, struct rdma_cm_id *id,
                   int status, const uint8_t *data, size_t bytes) {
    struct verbs_pair *pair = id->context;
    bool good = true;
    if (type == RDMA_CM_EVENT_CONNECT_REQUEST) {
        called(verbs, id, data, bytes);
        return;
    }
    if (!pair || (verbs->closing && type != RDMA_CM_EVENT_DISCONNECTED))
        return;
    switch (type) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
        good = address_resolved(verbs, pair);
        break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
        if (pair_prepare(verbs, pair))
            good = route_resolved(verbs, pair);
        else /* what lacks here will lack again */
            failed(pair, VERBS_REFUSED_GIVEN_UP, error_record()->system_error);
        break;
    case RDMA_CM_EVENT_ESTABLISHED:
        if (pair->connection->caller)
            good = answered(verbs, pair, data, bytes);
        if (good)
            verbs_established(pair);
        break;
    case RDMA_CM_EVENT_DISCONNECTED:
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
        hung_up(pair);
        break;
    case RDMA_CM_EVENT_REJECTED:
        failed(pair, raise_rejected(pair, status, data, bytes), ECONNREFUSED);
        break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
        raise_unreachable(pair, type, status);
        failed(pair, 0, status < 0 ? -status : status);
        break;
    default:
        break;
    }
    if (!good)
        failed(pair, 0, error_record()->system_error);
}

void verbs_cm_events(struct verbs *verbs) {
    struct rdma_cm_event *event = NULL;
    while (verbs->calls->get_cm_event(verbs->events, &event) == 0) {
        uint8_t data[64] = {0};
        enum rdma_cm_event_type type = event->event;
        struct rdma_cm_id *id = event->id;
        int status = event->status;
        size_t bytes = event->param.conn.private_data ? event->param.conn.private_data_len : 0;
        bytes = bytes < sizeof data ? bytes : sizeof data;
        if (bytes > 0)
            memcpy(data, event->param.conn.private_data, bytes);
        /* An id cannot be destroyed before its events are acknowledged. */
        (void)verbs->calls->ack_cm_event(event);
        handle(verbs, type, id, status, data, bytes);
        verbs->mux.events++;
    }
}

rota_status verbs_listen(struct verbs *verbs) {
    struct sockaddr_storage any = {.ss_family = verbs->rails[0].address.ss_family};
    verbs->events = verbs->calls->create_event_channel();
    if (!verbs->events)
        return error_raise_system(errno, "rdma_create_event_channel");
    int flags = fcntl(verbs->events->fd, F_GETFL);
    if (flags < 0 || fcntl(verbs->events->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(verbs->events->fd, F_SETFD, FD_CLOEXEC) != 0)
        return error_raise_system(errno, "descriptor of CM events");
    if (verbs->calls->create_id(verbs->events, &verbs->listener, NULL, RDMA_PS_TCP) != 0) {
        verbs->listener = NULL;
        return error_raise_system(errno, "rdma_create_id");
    }
    if (verbs->calls->bind_addr(verbs->listener, (struct sockaddr *)&any) != 0)
        return error_raise_system(errno, "rdma_bind_addr");
    if (verbs->calls->listen(verbs->listener, BACKLOG) != 0)
        return error_raise_system(errno, "rdma_listen");
    verbs->port = ntohs(verbs->calls->get_src_port(verbs->listener));
    net_random(verbs->token, sizeof verbs->token);
    return ROTA_OK;
}

void verbs_unlisten(struct verbs *verbs) {
    if (verbs->listener)
        (void)verbs->calls->destroy_id(verbs->listener);
    if (verbs->events)
        verbs->calls->destroy_event_channel(verbs->events);
}

/* -- the end ------------------------------------------------------------------------------- */

void verbs_shut(struct mux_connection *base) {
    struct verbs_connection *connection = verbs_connection_of(base);
    verbs_ways_close(connection);
    if (connection->pair)
        verbs_pair_destroy(verbs_mux(base), connection->pair);
    verbs_ring_close(connection);
}

void verbs_ended(struct mux_connection *base, bool used) {
    struct verbs_connection *connection = verbs_connection_of(base);
    connection->state = used ? VERBS_FAILED : connection->wanted ? VERBS_WAITING : VERBS_IDLE;
    if (!used && connection->wanted)
        mux_due(base, connection->backoff_ns);
}

void verbs_ready(struct mux_connection *base) {
    struct verbs_connection *connection = verbs_connection_of(base);
    connection->state = VERBS_READY;
    connection->wanted = false;
}

bool verbs_peer_gone(struct transport *transport, int peer, bool left, const char *text) {
    struct mux_connection *base = mux_of(transport)->connections[peer];
    struct verbs_connection *connection = verbs_connection_of(base);
    if (left && base && base->got_init)
        return false; /* what it sent, and that it left, comes by the connection */
    if (!base)
        return true;
    connection->wanted = false;
    base->due_ns = CLOCK_NEVER;
    if (!base->open && connection->state != VERBS_FAILED) {
        drop(connection);
        connection->state = VERBS_GIVEN_UP;
    }
    mux_gone(base, text);
    return true;
}

/* Connections come by the CM, never by the control thread. */
bool verbs_admit(struct transport *transport, int peer) {
    (void)transport;
    (void)peer;
    return false;
}

bool verbs_gave_up(struct transport *transport, int peer) {
    (void)transport;
    (void)peer;
    return true;
}

void verbs_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                  int ndescriptors) {
    (void)transport;
    (void)peer;
    close(socket);
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]);
}
