/* The world in which transports are tested. */
#include "world.h"

#ifdef WORLD_FAKE
#include "unit/verbs/fake.h"
#endif

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool world_is(const char *transport) {
    return strcmp(WORLD_TRANSPORT, transport) == 0;
}

/* -- what the engine would be told --------------------------------------------------------- */

static void on_arrived(void *owner) {
    ((struct world_end *)owner)->arrived++;
}
static void on_writable(void *owner) {
    ((struct world_end *)owner)->writable++;
}
static void on_connected(void *context, struct transport *transport, int peer) {
    struct world_rank *rank = context;
    cr_assert_eq(transport, rank->transport);
    rank->connected[peer]++;
}
static void on_unreachable(void *context, struct transport *transport, int peer, int system_error,
                           const char *text) {
    struct world_rank *rank = context;
    cr_assert_eq(transport, rank->transport);
    rank->unreachable[peer]++;
    rank->system_error = system_error;
    snprintf(rank->evidence, sizeof rank->evidence, "%s", text);
}
static void on_failed(void *context, struct transport *transport, int peer, int system_error,
                      const char *evidence) {
    struct world_rank *rank = context;
    cr_assert_eq(transport, rank->transport);
    rank->failed[peer]++;
    rank->system_error = system_error;
    snprintf(rank->evidence, sizeof rank->evidence, "%s", evidence);
}

/* -- the control plane --------------------------------------------------------------------- */

static const struct net_identity *gate_find(void *context, const struct net_hello *hello) {
    struct world_rank *rank = context;
    return hello->target_rank == (uint32_t)rank->host.rank ? &rank->identity : NULL;
}

static enum net_verdict gate_judge(void *context, const struct net_hello *hello, int *descriptors,
                                   int *ndescriptors) {
    struct world_rank *rank = context;
    const struct transport_ops *ops = rank->transport->ops;
    *ndescriptors = 0;
    if (hello->stripe > 0)
        return ops->accept_stripe ? NET_GO : NET_REFUSED_TARGET;
    if (!ops->admit(rank->transport, (int)hello->rank))
        return NET_REFUSED_CROSSING;
    if (ops->offer)
        *ndescriptors = ops->offer(rank->transport, (int)hello->rank, descriptors);
    return NET_GO;
}

static void gate_admit(void *context, const struct net_hello *hello, int socket,
                       const int *descriptors, int ndescriptors) {
    struct world_rank *rank = context;
    const struct transport_ops *ops = rank->transport->ops;
    if (hello->stripe > 0) {
        ops->accept_stripe(rank->transport, (int)hello->rank, hello->stripe, socket);
        return;
    }
    ops->accept(rank->transport, (int)hello->rank, socket, descriptors, ndescriptors);
}

/* -- life ---------------------------------------------------------------------------------- */

static void rank_open(struct world *world, int r) {
    struct world_rank *rank = &world->ranks[r];
    const struct transport_ops *ops = transport_find(WORLD_TRANSPORT);
    cr_assert_not_null(ops);
    rank->world = world;
    rank->line = aligned_alloc(128, sizeof *rank->line);
    cr_assert_not_null(rank->line);
    memset(rank->line, 0, sizeof *rank->line);
    rank->identity = (struct net_identity){.key = {1, 2, 3},
                                           .job = {7, 7},
                                           .rank = r,
                                           .incarnation = 1000 + (uint64_t)r,
                                           .protocol_first = NET_PROTOCOL_FIRST,
                                           .protocol_last = NET_PROTOCOL_LAST};
    rank->host = (struct transport_host){.rank = r,
                                         .nranks = world->n,
                                         .identity = &rank->identity,
                                         .settings = world->settings,
                                         .context = rank,
                                         .arrived = on_arrived,
                                         .writable = on_writable,
                                         .connected = on_connected,
                                         .unreachable = on_unreachable,
                                         .peer_failed = on_failed};
    cr_assert_eq(doorbell_open(&rank->host.bell, rank->line), ROTA_OK);
    cr_assert_eq(ops->open(&rank->host, &rank->transport), ROTA_OK);
    rank->blob_bytes = ops->describe(rank->transport, rank->blob);
    cr_assert_leq(rank->blob_bytes, sizeof rank->blob);
    struct net_gate gate = {
        .context = rank, .find = gate_find, .judge = gate_judge, .admit = gate_admit};
    cr_assert_eq(net_listener_open(world->settings, &gate, &rank->addresses, &rank->listener),
                 ROTA_OK);
}

void world_open(struct world *world, int n) {
    memset(world, 0, sizeof *world);
    setenv("ROTA_INTERFACE", "lo", 1);
    if (world_is("test"))
        setenv("ROTA_TEST_TRANSPORT", "over=" WORLD_OVER ",seed=7,delay_us=50", 0);
#ifdef WORLD_FAKE
    if (getenv("ROTA_TEST_REAL_DEVICE") != NULL)
        fake_watch();
    else
        fake_begin(WORLD_FAKE);
#endif
    cr_assert_eq(settings_load(&world->settings), ROTA_OK);
    world->n = world_is("self") ? 1 : n;
    for (int r = 0; r < world->n; r++)
        rank_open(world, r);
    for (int r = 0; r < world->n; r++) {
        struct world_rank *rank = &world->ranks[r];
        for (int p = 0; p < world->n; p++)
            rank->peers[p] = (struct transport_peer){.rank = p,
                                                     .same_host = true,
                                                     .incarnation = 1000 + (uint64_t)p,
                                                     .addresses = &world->ranks[p].addresses,
                                                     .blob = world->ranks[p].blob,
                                                     .blob_bytes = world->ranks[p].blob_bytes};
        rank->host.peers = rank->peers;
    }
}

void world_open_connected(struct world *world, int n) {
    world_open(world, n);
    for (int a = 0; a < world->n; a++) {
        struct world_rank *rank = &world->ranks[a];
        int first = world_is("self") ? 0 : a + 1;
        for (int b = first; b < world->n; b++) {
            cr_assert(rank->transport->ops->reaches(rank->transport, b));
            rank->transport->ops->connect(rank->transport, b);
            WORLD_UNTIL(world, rank->connected[b] && world->ranks[b].connected[a]);
        }
    }
}

void world_close_rank(struct world *world, int r) {
    struct world_rank *rank = &world->ranks[r];
    if (!rank->transport)
        return;
    net_listener_close(rank->listener);
    rank->transport->ops->close(rank->transport);
    rank->transport = NULL;
    doorbell_close(&rank->host.bell);
    free(rank->line);
}

void world_close(struct world *world) {
    for (int r = 0; r < world->n; r++)
        world_close_rank(world, r);
    settings_free(world->settings);
#ifdef WORLD_FAKE
    if (getenv("ROTA_TEST_REAL_DEVICE") != NULL)
        fake_unwatch();
    else
        fake_end();
#endif
}

void world_progress(struct world *world) {
    bool moved = false;
    for (int r = 0; r < world->n; r++) {
        struct world_rank *rank = &world->ranks[r];
        if (!rank->transport)
            continue;
        (void)net_listener_step(rank->listener);
        moved |= rank->transport->ops->progress(rank->transport, 64) > 0;
    }
    if (!moved)
        sched_yield();
}

/* -- streams ------------------------------------------------------------------------------- */

void end_open(struct world_end *end, struct world *world, int rank, int peer, uint32_t channel,
              uint32_t generation) {
    struct transport_key key = {.comm = 5, .generation = generation, .channel = channel};
    memset(end, 0, sizeof *end);
    end->rank = &world->ranks[rank];
    end->transport = end->rank->transport;
    cr_assert_eq(end->transport->ops->stream_open(end->transport, peer, &key, end, &end->stream),
                 ROTA_OK);
}

void link_open_generation(struct world_link *link, struct world *world, int from, int to,
                          uint32_t channel, uint32_t generation) {
    link->world = world;
    link->from = link->to = &link->ends[0];
    if (world_is("self")) {
        end_open(link->from, world, 0, 0, channel, generation);
        return;
    }
    link->to = &link->ends[1];
    end_open(link->from, world, from, to, channel, generation);
    end_open(link->to, world, to, from, channel, generation);
}

void link_open(struct world_link *link, struct world *world, int from, int to, uint32_t channel) {
    link_open_generation(link, world, from, to, channel, 1);
}

void link_close(struct world_link *link) {
    link->from->transport->ops->stream_close(link->from->transport, link->from->stream);
    if (link->to != link->from)
        link->to->transport->ops->stream_close(link->to->transport, link->to->stream);
}

static void on_done(struct transport_ticket *ticket, enum transport_result result) {
    struct world_ticket *own = (struct world_ticket *)ticket;
    own->done++;
    own->result = result;
}

void ticket_init(struct world_ticket *ticket) {
    memset(ticket, 0, sizeof *ticket);
    ticket->ticket.done = on_done;
}

struct transport_header header_make(uint64_t sequence, size_t length) {
    return (struct transport_header){.sequence = sequence,
                                     .position = (uint32_t)sequence * 3,
                                     .slice = (uint32_t)sequence + 1,
                                     .length = length,
                                     .total = sequence * 7,
                                     .fingerprint = sequence * 0x9e3779b97f4a7c15u,
                                     .epoch = 9,
                                     .flags = 0};
}

bool link_send_slot(struct world_link *link, const struct transport_header *header,
                    const void *data) {
    struct world_end *end = link->from;
    struct transport_slot slot;
    int64_t deadline = clock_deadline(WORLD_PATIENCE_MS);
    for (;;) {
        int writable = end->writable;
        enum transport_result result =
            end->transport->ops->reserve(end->transport, end->stream, header, &slot);
        if (result == TRANSPORT_OK)
            break;
        if (result == TRANSPORT_UNSUPPORTED)
            return false;
        cr_assert_eq(result, TRANSPORT_AGAIN);
        while (end->writable == writable) {
            world_progress(link->world);
            cr_assert(!clock_passed(deadline), "reserve said AGAIN, and no call-back came");
        }
    }
    cr_assert_eq(slot.length, header->length);
    if (header->length > 0)
        memcpy(slot.data, data, header->length);
    end->transport->ops->commit(end->transport, end->stream, &slot);
    return true;
}

void link_send(struct world_link *link, const struct transport_header *header, void *data,
               struct world_ticket *ticket) {
    struct world_end *end = link->from;
    struct transport_piece pieces[3];
    size_t third = header->length / 3;
    pieces[0] = (struct transport_piece){data, third};
    pieces[1] = (struct transport_piece){(char *)data + third, third};
    pieces[2] = (struct transport_piece){(char *)data + 2 * third, header->length - 2 * third};
    ticket_init(ticket);
    enum transport_result result = end->transport->ops->post_send(
        end->transport, end->stream, header, pieces, 3, &ticket->ticket);
    if (result == TRANSPORT_OK)
        return;
    cr_assert_eq(result, TRANSPORT_UNSUPPORTED);
    cr_assert(link_send_slot(link, header, data));
    ticket->done = 1;
}

bool link_post(struct world_link *link, void *data, size_t length, struct world_ticket *ticket) {
    struct world_end *end = link->to;
    struct transport_piece pieces[2] = {{data, length / 2},
                                        {(char *)data + length / 2, length - length / 2}};
    ticket_init(ticket);
    enum transport_result result = end->transport->ops->post_recv(
        end->transport, end->stream, length, pieces, 2, &ticket->ticket);
    cr_assert(result == TRANSPORT_OK || result == TRANSPORT_UNSUPPORTED);
    return result == TRANSPORT_OK;
}

struct transport_header link_take_announced(struct world_link *link, void *data, size_t room) {
    struct world_end *end = link->to;
    struct transport_arrival arrival;
    enum transport_result result;
    WORLD_UNTIL(link->world, (result = end->transport->ops->peek(end->transport, end->stream,
                                                                 &arrival)) != TRANSPORT_AGAIN);
    cr_assert_eq(result, TRANSPORT_OK);
    size_t at = 0;
    for (int i = 0; i < 2; i++) {
        size_t n = arrival.pieces[i].length < room - at ? arrival.pieces[i].length : room - at;
        if (n > 0)
            memcpy((char *)data + at, arrival.pieces[i].data, n);
        at += n;
    }
    struct transport_header header = arrival.header;
    end->transport->ops->release(end->transport, end->stream, &arrival);
    return header;
}

struct transport_header link_take(struct world_link *link, size_t expected, void *data,
                                  size_t room) {
    link->to->transport->ops->expect(link->to->transport, link->to->stream, expected);
    return link_take_announced(link, data, room);
}

/* -- patterns ------------------------------------------------------------------------------ */

static uint64_t pattern_word(uint64_t seed, uint64_t index) {
    uint64_t word = (seed + 1) * 0x9e3779b97f4a7c15u ^ index * 0xbf58476d1ce4e5b9u;
    return word ^ word >> 29;
}

void pattern_fill(void *data, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = pattern_word(seed, at);
        memcpy((char *)data + at, &word, bytes - at < 8 ? bytes - at : 8);
    }
}

bool pattern_check(const void *data, size_t bytes, uint64_t seed) {
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = pattern_word(seed, at);
        if (memcmp((const char *)data + at, &word, bytes - at < 8 ? bytes - at : 8) != 0)
            return false;
    }
    return true;
}
