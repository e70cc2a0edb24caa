/* Connections begin and end, and user memory is let go when it must be. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

static struct world world;

static void nothing(void) {
}
TestSuite(ends, .init = nothing, .timeout = 60);

static void exchange(int from, int to, uint32_t channel) {
    struct world_link link;
    char got[100], sent[100];
    struct transport_header header = header_make(channel, sizeof sent);
    link_open(&link, &world, from, to, channel);
    pattern_fill(sent, sizeof sent, channel);
    cr_assert(link_send_slot(&link, &header, sent));
    header = link_take(&link, sizeof sent, got, sizeof got);
    cr_assert_eq(header.sequence, channel);
    cr_assert(pattern_check(got, sizeof got, channel));
    link_close(&link);
}

/* All ranks connect to all others at once, in varying order: each pair ends with one connection. */
Test(ends, crossing) {
    if (world_is("self"))
        return;
    for (int round = 0; round < 12; round++) {
        int n = 2 + round % 3;
        world_open(&world, n);
        for (int i = 0; i < n * n; i++) {
            int a = (i * 7 + round) % n, b = (i + round / 2) % n;
            struct transport *transport = world.ranks[a].transport;
            if (a != b)
                transport->ops->connect(transport, b);
            for (int turn = 0; turn < round % 4; turn++)
                world_progress(&world);
        }
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++) {
                struct transport *transport = world.ranks[a].transport;
                if (a == b)
                    continue;
                transport->ops->connect(transport, b); /* again, without effect */
                WORLD_UNTIL(&world, world.ranks[a].connected[b] + world.ranks[a].unreachable[b]);
            }
        }
        for (int a = 0; a < n; a++) {
            for (int b = 0; b < n; b++) {
                cr_assert_eq(world.ranks[a].connected[b], a != b);
                cr_assert_eq(world.ranks[a].unreachable[b], 0);
                if (a != b)
                    exchange(a, b, (uint32_t)(a * n + b));
            }
        }
        world_close(&world);
    }
}

/* The receiver gives up in the middle of a message: its memory is free at once, the other streams
 * go on, and the sender comes to an end too. */
Test(ends, quiesce_receiver) {
    struct world_link link;
    struct world_ticket sending, receiving;
    world_open_connected(&world, 2);
    link_open(&link, &world, 0, 1, 3);
    size_t length = (size_t)24 << 20;
    if (length > link.from->transport->caps.max_message)
        length = link.from->transport->caps.max_message;
    char *sent = malloc(length), *got = malloc(length);
    memset(sent, 1, length);
    if (link_post(&link, got, length, &receiving)) {
        struct transport_header header = header_make(1, length);
        if (!world_is("self"))
            link_send(&link, &header, sent, &sending);
        for (int turn = 0; turn < 3; turn++)
            world_progress(&world);
        link.to->transport->ops->quiesce(link.to->transport, link.to->stream);
        int done = receiving.done;
        free(got);
        got = NULL;
        if (!world_is("self")) {
            for (int turn = 0; turn < 2000; turn++)
                world_progress(&world);
            exchange(0, 1, 4);
            exchange(1, 0, 5);
        }
        cr_assert_eq(receiving.done, done, "a ticket was completed after quiesce");
        link.from->transport->ops->quiesce(link.from->transport, link.from->stream);
    }
    link_close(&link);
    free(got);
    free(sent);
    world_close(&world);
}

/* The sender gives up in the middle of a message and frees it. */
Test(ends, quiesce_sender) {
    struct world_link link;
    struct world_ticket sending, second, receiving;
    world_open_connected(&world, 2);
    link_open(&link, &world, 0, 1, 3);
    size_t length = (size_t)24 << 20;
    if (length > link.from->transport->caps.max_message)
        length = link.from->transport->caps.max_message;
    char *sent = malloc(length), *got = malloc(length);
    memset(sent, 1, length);
    ticket_init(&receiving);
    if (link.from->transport->caps.posts_send) {
        struct transport_header header = header_make(1, length);
        if (!world_is("self"))
            link_post(&link, got, length, &receiving);
        link_send(&link, &header, sent, &sending);
        link_send(&link, &header, sent, &second);
        for (int turn = 0; turn < 3; turn++)
            world_progress(&world);
        link.from->transport->ops->quiesce(link.from->transport, link.from->stream);
        int done = sending.done + second.done;
        free(sent);
        sent = NULL;
        for (int turn = 0; turn < 2000; turn++)
            world_progress(&world);
        if (!world_is("self")) {
            exchange(0, 1, 4);
            exchange(1, 0, 5);
        }
        cr_assert_eq(sending.done + second.done, done, "a ticket was completed after quiesce");
        link.to->transport->ops->quiesce(link.to->transport, link.to->stream);
    }
    link_close(&link);
    free(got);
    free(sent);
    world_close(&world);
}

/* Closing a stream lets go of everything, whatever was going on. */
Test(ends, close_stream_in_the_middle) {
    struct world_link link;
    world_open_connected(&world, 2);
    for (uint32_t round = 0; round < 20; round++) {
        struct world_ticket sending, receiving;
        link_open_generation(&link, &world, 0, 1, 3, round + 1);
        size_t length = (size_t)2 << 20;
        if (length > link.from->transport->caps.max_message)
            length = link.from->transport->caps.max_message;
        char *sent = malloc(length), *got = malloc(length);
        memset(sent, 1, length);
        if (!world_is("self") && link.from->transport->caps.posts_send) {
            struct transport_header header = header_make(1, length);
            if (round % 2)
                link_post(&link, got, length, &receiving);
            else
                link.to->transport->ops->expect(link.to->transport, link.to->stream, length);
            link_send(&link, &header, sent, &sending);
            for (uint32_t turn = 0; turn < round / 2; turn++)
                world_progress(&world);
        }
        link_close(&link);
        free(sent);
        free(got);
        for (uint32_t turn = 0; turn < 3 * round; turn++)
            world_progress(&world);
    }
    if (!world_is("self"))
        exchange(0, 1, 4);
    world_close(&world);
}

/* A rank that ends: what it sent before is still received; what is wanted of it afterwards fails
 * with evidence that names it, and other peers are served on. */
Test(ends, peer_closes) {
    struct world_link link, other;
    struct world_ticket receiving;
    char got[100], sent[100] = "last words";
    if (!world_is("tcp") && !world_is("verbs"))
        return; /* elsewhere the end of a peer is seen by its process, not by the transport */
    world_open_connected(&world, 3);
    link_open(&link, &world, 1, 0, 3);
    link_open(&other, &world, 2, 0, 3);
    struct transport_header header = header_make(1, sizeof sent);
    cr_assert(link_send_slot(&link, &header, sent));
    world_close_rank(&world, 1);
    link_take(&link, sizeof sent, got, sizeof got);
    cr_assert_str_eq(got, "last words");
    for (int turn = 0; turn < 200; turn++)
        world_progress(&world);
    cr_assert_eq(world.ranks[0].failed[1], 0, "it left, and nothing was wanted of it");
    struct transport_piece piece = {got, sizeof got};
    ticket_init(&receiving);
    cr_assert_eq(link.to->transport->ops->post_recv(link.to->transport, link.to->stream, 100,
                                                    &piece, 1, &receiving.ticket),
                 TRANSPORT_FAILED);
    WORLD_UNTIL(&world, world.ranks[0].failed[1] == 1);
    cr_assert_not_null(strstr(world.ranks[0].evidence, "left"));
    cr_assert_eq(receiving.done, 0);
    exchange(2, 0, 8);
    world_close(&world);
}

Test(ends, peer_closes_while_awaited) {
    struct world_link link, other;
    struct world_ticket receiving, sending;
    struct transport_arrival arrival;
    if (!world_is("tcp") && !world_is("verbs"))
        return;
    world_open_connected(&world, 3);
    link_open(&link, &world, 1, 0, 3);
    link_open(&other, &world, 0, 1, 4);
    size_t length = (size_t)24 << 20;
    char *data = malloc(length), got[100];
    struct transport_header header = header_make(1, length);
    memset(data, 1, length);
    cr_assert(link_post(&link, got, sizeof got, &receiving));
    link_send(&other, &header, data, &sending);
    for (int turn = 0; turn < 10; turn++)
        world_progress(&world);
    world_close_rank(&world, 1);
    WORLD_UNTIL(&world, receiving.done && sending.done);
    cr_assert_eq(receiving.result, TRANSPORT_FAILED);
    cr_assert_eq(sending.result, TRANSPORT_FAILED);
    cr_assert_eq(world.ranks[0].failed[1], 1);
    cr_assert_eq(world.ranks[0].failed[2], 0);
    cr_assert_not_null(strstr(world.ranks[0].evidence, "rank 1"));
    cr_assert_not_null(strstr(world.ranks[0].evidence, world_is("tcp") ? "127.0.0.1:" : ":1): "),
                       "evidence: %s", world.ranks[0].evidence);
    const struct transport_ops *ops = link.to->transport->ops;
    cr_assert_eq(ops->peek(link.to->transport, link.to->stream, &arrival), TRANSPORT_FAILED);
    exchange(0, 2, 7);
    free(data);
    world_close(&world);
}
