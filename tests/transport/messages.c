/* Messages arrive whole, unchanged and in the order of their stream, whatever their size and
 * however they are sent and received. */
#include "world.h"

#include <stdlib.h>
#include <string.h>

#define LONGEST 70001

static struct world world;

static void setup(void) {
    world_open_connected(&world, 2);
}
static void teardown(void) {
    world_close(&world);
}

TestSuite(messages, .init = setup, .fini = teardown, .timeout = 60);

static void expect_header(const struct transport_header *got, uint64_t sequence, size_t length) {
    struct transport_header right = header_make(sequence, length);
    cr_assert_eq(memcmp(got, &right, sizeof right), 0, "header of message %zu", (size_t)sequence);
}

/* Sizes around everything that could be a border. */
static size_t size_at(int index) {
    static const size_t borders[] = {0,     1,     47,    48,    49,    127,   128,  129,   2047,
                                     2048,  2049,  4095,  4096,  4097,  8191,  8192, 16383, 16384,
                                     16385, 32768, 65535, 65536, 65537, 69999, 70000};
    int n = (int)(sizeof borders / sizeof borders[0]);
    size_t size = index < n ? borders[index] : (size_t)(index * 7919 + 1) % LONGEST;
    return size;
}
#define SIZES 60

enum receive_how { BY_PEEK, BY_POST, BY_POST_LATE };

static void all_sizes(bool slot, enum receive_how how) {
    struct world_link link;
    char *sent = malloc(LONGEST), *got = malloc(LONGEST);
    link_open(&link, &world, 0, 1, 3);
    size_t most = link.from->transport->caps.max_message;
    bool unannounced = how == BY_POST_LATE && !link.from->transport->caps.posts_send;
    if ((slot || unannounced) && most > link.from->transport->caps.eager_bytes)
        most = link.from->transport->caps.eager_bytes;
    for (int i = 0; i < SIZES; i++) {
        size_t length = size_at(i) < most ? size_at(i) : most;
        struct transport_header header = header_make((uint64_t)i + 1, length);
        struct world_ticket sending, receiving;
        ticket_init(&sending);
        bool posted = how == BY_POST && link_post(&link, got, length, &receiving);
        if (how != BY_POST_LATE && !posted)
            link.to->transport->ops->expect(link.to->transport, link.to->stream, length);
        pattern_fill(sent, length, (uint64_t)i);
        memset(got, 0xee, LONGEST);
        if (slot)
            cr_assert(link_send_slot(&link, &header, sent));
        else
            link_send(&link, &header, sent, &sending);
        if (how == BY_POST_LATE) {
            for (int turn = 0; turn < 20; turn++)
                world_progress(&world);
            posted = link_post(&link, got, length, &receiving);
            if (!posted)
                link.to->transport->ops->expect(link.to->transport, link.to->stream, length);
        }
        if (posted) {
            WORLD_UNTIL(&world, receiving.done);
            cr_assert_eq(receiving.result, TRANSPORT_OK);
            expect_header(&receiving.ticket.header, (uint64_t)i + 1, length);
        } else {
            struct transport_header taken = link_take_announced(&link, got, LONGEST);
            expect_header(&taken, (uint64_t)i + 1, length);
        }
        cr_assert(pattern_check(got, length, (uint64_t)i), "%zu bytes", length);
        cr_assert(length == LONGEST || (unsigned char)got[length] == 0xee);
        if (!slot)
            WORLD_UNTIL(&world, sending.done == 1);
    }
    link_close(&link);
    free(sent);
    free(got);
}

Test(messages, post_to_peek) {
    all_sizes(false, BY_PEEK);
}
Test(messages, post_to_post) {
    all_sizes(false, BY_POST);
}
Test(messages, post_to_late_post) {
    all_sizes(false, BY_POST_LATE);
}
Test(messages, slot_to_peek) {
    all_sizes(true, BY_PEEK);
}
Test(messages, slot_to_post) {
    all_sizes(true, BY_POST);
}

#define STREAMS 24
#define PER_STREAM 40

/* Many streams at once, all sent before anything is received: each keeps its own order. */
Test(messages, many_streams) {
    static struct world_link links[STREAMS];
    static struct world_ticket tickets[STREAMS][PER_STREAM];
    static char *data[STREAMS][PER_STREAM];
    char *got = malloc(LONGEST);
    for (int s = 0; s < STREAMS; s++)
        link_open(&links[s], &world, 0, 1, (uint32_t)s * 1000);
    bool posts = links[0].from->transport->caps.posts_send;
    for (int m = 0; m < PER_STREAM && posts; m++) {
        for (int s = 0; s < STREAMS; s++) {
            size_t length = size_at((m * 13 + s) % SIZES) % 20000;
            struct transport_header header = header_make((uint64_t)m + 1, length);
            data[s][m] = malloc(length + 1);
            pattern_fill(data[s][m], length, (uint64_t)(s * 1000 + m));
            link_send(&links[s], &header, data[s][m], &tickets[s][m]);
        }
    }
    for (int s = STREAMS - 1; s >= 0 && posts; s--) {
        for (int m = 0; m < PER_STREAM; m++) {
            size_t length = size_at((m * 13 + s) % SIZES) % 20000;
            struct world_ticket ticket;
            struct transport_header header;
            if (m % 3 == 1 && link_post(&links[s], got, length, &ticket)) {
                WORLD_UNTIL(&world, ticket.done);
                header = ticket.ticket.header;
            } else {
                header = link_take(&links[s], length, got, LONGEST);
            }
            expect_header(&header, (uint64_t)m + 1, length);
            cr_assert(pattern_check(got, length, (uint64_t)(s * 1000 + m)));
        }
    }
    for (int s = 0; s < STREAMS; s++) {
        for (int m = 0; m < PER_STREAM && posts; m++) {
            WORLD_UNTIL(&world, tickets[s][m].done == 1);
            free(data[s][m]);
        }
        link_close(&links[s]);
    }
    free(got);
}

/* Several receives announced ahead, of both kinds, before anything is sent. */
Test(messages, announced_ahead) {
    enum { AHEAD = 16, BYTES = 30000 };
    struct world_link link;
    struct world_ticket receiving[AHEAD], sending[AHEAD];
    char *got = malloc(AHEAD * BYTES), *sent = malloc(AHEAD * BYTES);
    bool posted[AHEAD];
    link_open(&link, &world, 0, 1, 8);
    size_t length = BYTES < link.from->transport->caps.max_message
                        ? BYTES
                        : link.from->transport->caps.max_message;
    for (int m = 0; m < AHEAD; m++) {
        posted[m] = m % 4 != 3 && link_post(&link, got + m * BYTES, length, &receiving[m]);
        if (!posted[m])
            link.to->transport->ops->expect(link.to->transport, link.to->stream, length);
    }
    for (int m = 0; m < AHEAD; m++) {
        struct transport_header header = header_make((uint64_t)m, length);
        pattern_fill(sent + m * BYTES, length, (uint64_t)m);
        link_send(&link, &header, sent + m * BYTES, &sending[m]);
    }
    for (int m = 0; m < AHEAD; m++) {
        if (posted[m])
            WORLD_UNTIL(&world, receiving[m].done);
        struct transport_header header = posted[m]
                                             ? receiving[m].ticket.header
                                             : link_take_announced(&link, got + m * BYTES, length);
        expect_header(&header, (uint64_t)m, length);
        cr_assert(pattern_check(got + m * BYTES, length, (uint64_t)m));
        WORLD_UNTIL(&world, sending[m].done);
    }
    link_close(&link);
    free(got);
    free(sent);
}

static void send_other(struct world_link *other) {
    char got[5];
    struct transport_header header = header_make(77, 5);
    cr_assert(link_send_slot(other, &header, "other"));
    header = link_take(other, 5, got, sizeof got);
    expect_header(&header, 77, 5);
}

/* Slots open at the same time travel in the order of reserve, each not before its commit; also when
 * the receiver has said all that it has to say before. */
static void slots_far_apart(bool announced) {
    enum { OPEN = 4 };
    struct world_link link, other;
    struct transport_slot slots[OPEN];
    struct transport_arrival arrival;
    char got[256];
    link_open(&link, &world, 0, 1, 1);
    link_open(&other, &world, 0, 1, 2);
    const struct transport_ops *ops = link.from->transport->ops;
    for (int i = 0; i < OPEN && announced; i++)
        ops->expect(link.to->transport, link.to->stream, 100);
    send_other(&other);
    for (int i = 0; i < OPEN; i++) {
        struct transport_header header = header_make((uint64_t)i, 100);
        cr_assert_eq(ops->reserve(link.from->transport, link.from->stream, &header, &slots[i]),
                     TRANSPORT_OK);
        pattern_fill(slots[i].data, 100, (uint64_t)i);
    }
    for (int i = OPEN - 1; i > 0; i--)
        ops->commit(link.from->transport, link.from->stream, &slots[i]);
    send_other(&other);
    cr_assert_eq(ops->peek(link.to->transport, link.to->stream, &arrival), TRANSPORT_AGAIN);
    const struct transport_counters *counters = &link.to->transport->counters;
    uint64_t before = counters->messages_received;
    ops->commit(link.from->transport, link.from->stream, &slots[0]);
    if (link.from->transport != link.to->transport) /* all come before any is taken */
        WORLD_UNTIL(&world, counters->messages_received == before + OPEN);
    for (int i = 0; i < OPEN; i++) {
        struct transport_header header = announced ? link_take_announced(&link, got, sizeof got)
                                                   : link_take(&link, 100, got, sizeof got);
        expect_header(&header, (uint64_t)i, 100);
        cr_assert(pattern_check(got, 100, (uint64_t)i));
    }
    link_close(&link);
    link_close(&other);
}

Test(messages, slots_far_apart) {
    slots_far_apart(false);
}
Test(messages, slots_far_apart_announced) {
    slots_far_apart(true);
}

/* 64 MiB in the largest messages that the transport does, with posted receives or by peek. */
static void large(bool by_post) {
    size_t bytes = (size_t)64 << 20, done = 0;
    struct world_link link;
    link_open(&link, &world, 0, 1, 6);
    size_t most = link.from->transport->caps.max_message;
    char *sent = malloc(bytes), *got = malloc(bytes);
    pattern_fill(sent, bytes, 5);
    for (uint64_t m = 0; done < bytes; m++) {
        size_t length = bytes - done < most ? bytes - done : most;
        struct transport_header header = header_make(m, length);
        struct world_ticket sending, receiving;
        bool posted = by_post && link_post(&link, got + done, length, &receiving);
        if (!posted)
            link.to->transport->ops->expect(link.to->transport, link.to->stream, length);
        link_send(&link, &header, sent + done, &sending);
        if (posted) {
            WORLD_UNTIL(&world, receiving.done);
            header = receiving.ticket.header;
        } else {
            header = link_take_announced(&link, got + done, length);
        }
        expect_header(&header, m, length);
        WORLD_UNTIL(&world, sending.done);
        done += length;
    }
    cr_assert(pattern_check(got, bytes, 5));
    link_close(&link);
    free(sent);
    free(got);
}
Test(messages, large_by_post) {
    large(true);
}
Test(messages, large_by_peek) {
    large(false);
}

/* A message longer than its receive shows its header and touches nothing beyond. */
Test(messages, longer_than_the_receive) {
    struct world_link link;
    struct world_ticket receiving, sending;
    char sent[300], got[300];
    link_open(&link, &world, 0, 1, 9);
    memset(got, 0x11, sizeof got);
    pattern_fill(sent, sizeof sent, 1);
    if (link_post(&link, got, 100, &receiving)) {
        struct transport_header header = header_make(4, sizeof sent);
        link_send(&link, &header, sent, &sending);
        WORLD_UNTIL(&world, receiving.done && sending.done);
        cr_assert_eq(receiving.ticket.header.length, sizeof sent);
        for (size_t i = 100; i < sizeof got; i++)
            cr_assert_eq(got[i], 0x11);
    }
    link_close(&link);
}

/* What was sent before the receiver opened its stream is kept. */
Test(messages, before_the_stream_is_open) {
    struct world_end from, to;
    struct world_link link = {.world = &world, .from = &from, .to = &to};
    char got[64];
    if (world_is("self"))
        return;
    end_open(&from, &world, 0, 1, 11, 1);
    struct transport_header header = header_make(1, 10);
    cr_assert(link_send_slot(&link, &header, "0123456789"));
    for (int turn = 0; turn < 200; turn++)
        world_progress(&world);
    end_open(&to, &world, 1, 0, 11, 1);
    header = link_take(&link, 10, got, sizeof got);
    expect_header(&header, 1, 10);
    cr_assert_eq(memcmp(got, "0123456789", 10), 0);
}
