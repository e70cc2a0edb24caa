/* No stream waits for another's reader, memory at a slow receiver is bounded, senders are found
 * before they are permitted to send. */
#include "world.h"

#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define FLOOD 40000u
#else
#define FLOOD 200000u
#endif

static struct world world;

static void setup(void) {
    world_open_connected(&world, 2);
}
static void teardown(void) {
    world_close(&world);
}

TestSuite(flow, .init = setup, .fini = teardown, .timeout = 60);

/* Commits small messages until the transport has had enough; returns how many. */
static uint64_t push(struct world_link *link, uint64_t from, uint64_t to) {
    const struct transport_ops *ops = link->from->transport->ops;
    uint64_t m;
    for (m = from; m < to; m++) {
        struct transport_header header = header_make(m, 64);
        struct transport_slot slot;
        if (ops->reserve(link->from->transport, link->from->stream, &header, &slot) != TRANSPORT_OK)
            break;
        pattern_fill(slot.data, 64, m);
        ops->commit(link->from->transport, link->from->stream, &slot);
    }
    return m - from;
}

static uint64_t pull(struct world_link *link, uint64_t next, uint64_t limit) {
    const struct transport_ops *ops = link->to->transport->ops;
    struct transport_arrival arrival;
    uint64_t taken = 0;
    while (taken < limit &&
           ops->peek(link->to->transport, link->to->stream, &arrival) == TRANSPORT_OK) {
        cr_assert_eq(arrival.header.sequence, next + taken);
        cr_assert_eq(arrival.header.length, 64);
        cr_assert_eq(arrival.pieces[0].length, 64);
        cr_assert(pattern_check(arrival.pieces[0].data, 64, next + taken));
        ops->expect(link->to->transport, link->to->stream, 64);
        ops->release(link->to->transport, link->to->stream, &arrival);
        taken++;
    }
    return taken;
}

static size_t memory_used(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

/* A fast sender and a reader that does not come: the sender is stopped within the bound, another
 * stream is not hindered, and everything arrives in the end. */
Test(flow, C43_slow_reader) {
    struct world_link slow, quick;
    char got[64];
    link_open(&slow, &world, 0, 1, 1);
    link_open(&quick, &world, 0, 1, 2);
    size_t before = memory_used();
    uint64_t sent = 0, taken = 0;
    for (int turn = 0; turn < 300; turn++) {
        sent += push(&slow, sent, FLOOD);
        world_progress(&world);
    }
    cr_assert_lt(sent * 64, (uint64_t)16 << 20);
    cr_assert_lt(memory_used(), before + ((size_t)32 << 20));
    for (uint64_t m = 0; m < 100; m++) {
        struct transport_header header = header_make(m, 64);
        char text[64] = "quick";
        cr_assert(link_send_slot(&quick, &header, text));
        header = link_take(&quick, 64, got, sizeof got);
        cr_assert_eq(header.sequence, m);
    }
    int64_t deadline = clock_deadline(WORLD_PATIENCE_MS);
    while (taken < FLOOD) {
        sent += push(&slow, sent, FLOOD);
        world_progress(&world);
        taken += pull(&slow, taken, FLOOD);
        cr_assert(!clock_passed(deadline), "stuck at %zu of %zu", (size_t)taken, (size_t)sent);
    }
    cr_assert_lt(memory_used(), before + ((size_t)64 << 20));
    link_close(&slow);
    link_close(&quick);
}

/* More streams than there are slots, each with a message that nobody reads yet: all of them still
 * arrive, in whatever order they are read. */
Test(flow, more_streams_than_slots) {
    enum { STREAMS = 150 };
    static struct world_link links[STREAMS];
    static struct world_ticket tickets[STREAMS][2];
    static char data[STREAMS][2][1000];
    char got[1000];
    for (int s = 0; s < STREAMS; s++) {
        link_open(&links[s], &world, 0, 1, (uint32_t)s);
        for (int m = 0; m < 2 && links[s].from->transport->caps.posts_send; m++) {
            struct transport_header header = header_make((uint64_t)m, 1000);
            pattern_fill(data[s][m], 1000, (uint64_t)s);
            link_send(&links[s], &header, data[s][m], &tickets[s][m]);
        }
    }
    for (int i = 0; i < STREAMS && links[0].from->transport->caps.posts_send; i++) {
        int s = (i * 37 + 149) % STREAMS; /* 37 and 150 have no common factor */
        for (int m = 0; m < 2; m++) {
            struct transport_header header = link_take(&links[s], 1000, got, sizeof got);
            cr_assert_eq(header.sequence, (uint64_t)m);
            cr_assert(pattern_check(got, 1000, (uint64_t)s));
        }
    }
    for (int s = 0; s < STREAMS; s++)
        link_close(&links[s]);
}

/* A message too large to travel unannounced is known by its header. */
Test(flow, pending_shows_what_waits) {
    struct world_link link;
    struct world_ticket sending, receiving;
    struct transport_header header;
    link_open(&link, &world, 0, 1, 3);
    size_t length = (size_t)300000 < link.from->transport->caps.max_message
                        ? 300000
                        : link.from->transport->caps.max_message;
    char *sent = malloc(length), *got = malloc(length);
    const struct transport_ops *ops = link.to->transport->ops;
    cr_assert_not(ops->pending(link.to->transport, link.to->stream, &header));
    if (link.from->transport->caps.posts_send) {
        struct transport_header mine = header_make(12, length);
        pattern_fill(sent, length, 12);
        link_send(&link, &mine, sent, &sending);
        WORLD_UNTIL(&world, ops->pending(link.to->transport, link.to->stream, &header));
        cr_assert_eq(memcmp(&header, &mine, sizeof mine), 0);
        WORLD_UNTIL(&world, link.to->arrived > 0);
        if (link_post(&link, got, length, &receiving))
            WORLD_UNTIL(&world, receiving.done);
        else
            link_take(&link, length, got, length);
        cr_assert(pattern_check(got, length, 12));
        cr_assert_not(ops->pending(link.to->transport, link.to->stream, &header));
        WORLD_UNTIL(&world, sending.done);
    }
    link_close(&link);
    free(sent);
    free(got);
}

/* A receive that does not know the length gets the whole message. */
Test(flow, unknown_length) {
    struct world_link link;
    struct world_ticket sending;
    link_open(&link, &world, 0, 1, 3);
    size_t length = (size_t)1 << 20;
    if (length > link.from->transport->caps.max_message)
        length = link.from->transport->caps.max_message;
    char *sent = malloc(length), *got = malloc(length);
    struct transport_header header = header_make(1, length);
    pattern_fill(sent, length, 3);
    link.to->transport->ops->expect(link.to->transport, link.to->stream, 0);
    link_send(&link, &header, sent, &sending);
    link_take_announced(&link, got, length);
    cr_assert(pattern_check(got, length, 3));
    WORLD_UNTIL(&world, sending.done);
    link_close(&link);
    free(sent);
    free(got);
}

/* Both directions at once, each larger than what sockets and slots hold (C41). */
Test(flow, C41_both_send_first) {
    struct world_link there, back;
    struct world_ticket tickets[2];
    if (world_is("self"))
        return;
    link_open(&there, &world, 0, 1, 1);
    link_open(&back, &world, 1, 0, 2);
    size_t length = (size_t)8 << 20;
    if (length > there.from->transport->caps.max_message)
        length = there.from->transport->caps.max_message;
    char *data = malloc(4 * length);
    pattern_fill(data, length, 1);
    pattern_fill(data + length, length, 2);
    struct transport_header header = header_make(1, length);
    struct world_link *links[2] = {&there, &back};
    bool posts = there.from->transport->caps.posts_send;
    /* Without posts the sender needs a slot, so the receives come first. */
    for (int turn = 0; turn < 2; turn++) {
        bool send = turn == (posts ? 0 : 1);
        for (size_t i = 0; i < 2; i++) {
            struct transport *to = links[i]->to->transport;
            if (send)
                link_send(links[i], &header, data + i * length, &tickets[i]);
            else
                to->ops->expect(to, links[i]->to->stream, length);
        }
    }
    for (size_t i = 0; i < 2; i++)
        link_take_announced(links[i], data + (2 + i) * length, length);
    cr_assert(pattern_check(data + 2 * length, length, 1));
    cr_assert(pattern_check(data + 3 * length, length, 2));
    WORLD_UNTIL(&world, tickets[0].done && tickets[1].done);
    link_close(&there);
    link_close(&back);
    free(data);
}

/* An armed rank is woken by what comes: by its descriptor or by its doorbell. */
Test(flow, a_sleeper_is_woken) {
    struct world_link link;
    struct transport_header header = header_make(1, 32);
    char got[32] = {0};
    if (world_is("self"))
        return;
    link_open(&link, &world, 0, 1, 3);
    struct transport *sleeper = link.to->transport;
    struct doorbell *bell = &link.to->rank->host.bell;
    link.to->transport->ops->expect(sleeper, link.to->stream, 32);
    for (int turn = 0; turn < 200; turn++)
        world_progress(&world);
    doorbell_arm(bell);
    bool armed = false;
    for (int turn = 0; turn < 100000 && !(armed = sleeper->ops->arm(sleeper)); turn++)
        sleeper->ops->progress(sleeper, 10);
    cr_assert(armed);
    struct pollfd fds[2] = {{.fd = bell->event_fd, .events = POLLIN},
                            {.fd = sleeper->ops->descriptor(sleeper), .events = POLLIN}};
    int before = poll(fds, 2, 0);
    cr_assert_eq(before, 0, "readable before anything came");
    cr_assert(link_send_slot(&link, &header, got));
    for (int turn = 0; turn < 10; turn++)
        link.from->transport->ops->progress(link.from->transport, 10);
    cr_assert_gt(poll(fds, 2, 5000), 0);
    sleeper->ops->disarm(sleeper);
    doorbell_disarm(bell);
    header = link_take_announced(&link, got, sizeof got);
    cr_assert_eq(header.sequence, 1);
    link_close(&link);
}

/* Streams come and go with communicators; nothing stays behind. */
Test(flow, streams_come_and_go) {
    struct world_link link;
    char text[100] = "x";
    size_t after_first = 0;
    for (uint32_t generation = 0; generation < 3000; generation++) {
        link_open_generation(&link, &world, 0, 1, 1, generation + 10);
        for (uint64_t m = 0; m < 3; m++) {
            struct transport_header header = header_make(m, sizeof text);
            cr_assert(link_send_slot(&link, &header, text));
        }
        /* Of three messages one is never read. */
        link_take(&link, sizeof text, text, sizeof text);
        link_take(&link, sizeof text, text, sizeof text);
        link_close(&link);
        for (int turn = 0; turn < 4; turn++)
            world_progress(&world);
        if (generation == 500)
            after_first = memory_used();
    }
    for (int turn = 0; turn < 200; turn++)
        world_progress(&world);
    cr_assert_lt(memory_used(), after_first + ((size_t)1 << 20));
}
