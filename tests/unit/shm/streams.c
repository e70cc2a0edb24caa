/* Streams over shared memory: order, credit, bounds, closing. */
#include "cluster.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

static const struct transport_ops *const ops = &transport_shm;

struct pair {
    struct cluster cluster;
    struct transport *a, *b;
};

static void pair_open(struct pair *pair) {
    cluster_open(&pair->cluster, 2);
    cluster_connect_all(&pair->cluster);
    pair->a = pair->cluster.ranks[0].transport;
    pair->b = pair->cluster.ranks[1].transport;
}

static struct transport_stream *stream(struct transport *transport, int peer, uint32_t channel,
                                       struct cluster_owner *owner) {
    struct transport_key key = {.comm = 3, .generation = 1, .channel = channel};
    struct transport_stream *result = NULL;
    REQUIRE(ops->stream_open(transport, peer, &key, owner, &result) == ROTA_OK);
    return result;
}

static uint8_t pattern(uint64_t number, size_t i) {
    return (uint8_t)(number * 131 + i * 7 + (i >> 8));
}

static enum transport_result put(struct transport *transport, struct transport_stream *s,
                                 uint64_t number, size_t length) {
    struct transport_header header = {.sequence = number, .length = length, .fingerprint = 5};
    struct transport_slot slot;
    enum transport_result result = ops->reserve(transport, s, &header, &slot);
    if (result != TRANSPORT_OK)
        return result;
    cr_assert_eq(slot.length, length);
    for (size_t i = 0; i < length; i++)
        ((uint8_t *)slot.data)[i] = pattern(number, i);
    ops->commit(transport, s, &slot);
    return TRANSPORT_OK;
}

/* Takes one message and checks it; false when there is none. */
static bool get(struct transport *transport, struct transport_stream *s, uint64_t number,
                size_t length) {
    struct transport_arrival arrival;
    if (ops->peek(transport, s, &arrival) != TRANSPORT_OK)
        return false;
    cr_assert_eq(arrival.header.sequence, number);
    cr_assert_eq(arrival.header.length, length);
    cr_assert_eq(arrival.header.fingerprint, 5);
    cr_assert_eq(arrival.pieces[0].length + arrival.pieces[1].length, length);
    for (size_t i = 0; i < length; i++)
        cr_assert_eq(((const uint8_t *)arrival.pieces[0].data)[i], pattern(number, i));
    ops->release(transport, s, &arrival);
    return true;
}

Test(shm_streams, order_and_content_of_all_sizes) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    const size_t sizes[] = {0, 1, 8, 47, 48, 49, 1000, 4095, 4096, 4097, 65535, 65536};
    uint64_t number = 0;
    for (int round = 0; round < 200; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++, number++) {
            ops->expect(p.b, b, sizes[i]);
            ops->progress(p.a, 100); /* the grant */
            cr_assert_eq(put(p.a, a, number, sizes[i]), TRANSPORT_OK);
            cr_assert_gt(ops->progress(p.b, 100), 0);
            cr_assert(get(p.b, b, number, sizes[i]));
        }
    }
    cr_assert_eq(ob.arrived, (int)number);
    cr_assert_eq(p.a->counters.messages_sent, number);
    cr_assert_eq(p.b->counters.messages_received, number);
    cluster_close(&p.cluster);
}

Test(shm_streams, large_message_asks_for_permission) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    cr_assert_eq(put(p.a, a, 1, 50000), TRANSPORT_AGAIN);
    cr_assert_eq(put(p.a, a, 1, 50000), TRANSPORT_AGAIN);
    struct transport_header header = {0};
    cr_assert_not(ops->pending(p.b, b, &header));
    ops->progress(p.b, 100);
    cr_assert_eq(ob.arrived, 1);
    cr_assert(ops->pending(p.b, b, &header));
    cr_assert_eq(header.length, 50000);
    struct transport_arrival arrival;
    cr_assert_eq(ops->peek(p.b, b, &arrival), TRANSPORT_AGAIN);
    ops->expect(p.b, b, 50000);
    cr_assert_eq(oa.writable, 0);
    ops->progress(p.a, 100);
    cr_assert_eq(oa.writable, 1);
    cr_assert_eq(put(p.a, a, 1, 50000), TRANSPORT_OK);
    ops->progress(p.b, 100);
    cr_assert(ops->pending(p.b, b, &header));
    cr_assert(get(p.b, b, 1, 50000));
    cr_assert_not(ops->pending(p.b, b, &header));
    cluster_close(&p.cluster);
}

/* Sends and receives `total` messages of `length` bytes on one stream; the reader announces when
 * it reads, not before. */
static void flood(struct pair *p, struct transport_stream *a, struct transport_stream *b,
                  uint64_t total, size_t length) {
    uint64_t sent = 0, received = 0;
    for (int idle = 0; received < total; idle++) {
        REQUIRE(idle < 100000);
        while (sent < total && put(p->a, a, sent, length) == TRANSPORT_OK)
            sent++;
        ops->progress(p->b, 1000);
        struct transport_header header;
        while (ops->pending(p->b, b, &header)) {
            ops->expect(p->b, b, (size_t)header.length);
            while (!get(p->b, b, received, length)) {
                ops->progress(p->a, 1000);
                if (put(p->a, a, sent, length) == TRANSPORT_OK)
                    sent++;
                ops->progress(p->b, 1000);
            }
            received++;
        }
        ops->progress(p->a, 1000);
    }
}

Test(shm_streams, C43_flood_is_bounded) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    const size_t sizes[] = {8, 64, 4096, 30000};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        /* A reader that does not read: only a window travels. */
        uint64_t sent = 0;
        while (put(p.a, a, sent, sizes[i]) == TRANSPORT_OK)
            REQUIRE(++sent < 1000);
        cr_assert_leq(sent, SHM_WINDOW);
        ops->progress(p.b, 1000);
        for (uint64_t k = 0; k < sent; k++) {
            ops->expect(p.b, b, sizes[i]);
            cr_assert(get(p.b, b, k, sizes[i]));
        }
        flood(&p, a, b, 3000, sizes[i]);
        ops->progress(p.a, 1000);
        ops->progress(p.b, 1000);
    }
    cluster_close(&p.cluster);
}

Test(shm_streams, unread_streams_block_nobody) {
    struct pair p;
    pair_open(&p);
    enum { IDLE = 40 };
    struct cluster_owner oa[IDLE + 1] = {0}, ob[IDLE + 1] = {0};
    struct transport_stream *a[IDLE + 1], *b[IDLE + 1];
    for (uint32_t i = 0; i <= IDLE; i++) {
        a[i] = stream(p.a, 1, i, &oa[i]);
        b[i] = stream(p.b, 0, i, &ob[i]);
    }
    /* Unannounced messages on many streams until nothing goes any more. */
    uint64_t sent[IDLE] = {0}, total = 0;
    for (int i = 0; i < IDLE; i++)
        while (put(p.a, a[i], sent[i], 100) == TRANSPORT_OK)
            sent[i]++, total++;
    ops->progress(p.b, 100000);
    cr_assert_eq(total, SHM_SMALL_SLOTS / 2);
    /* Announced ones still travel, of every size. */
    for (uint64_t k = 0; k < 1000; k++) {
        size_t length = k % 2 ? 300 : 65536;
        ops->expect(p.b, b[IDLE], length);
        for (int turn = 0; put(p.a, a[IDLE], k, length) == TRANSPORT_AGAIN; turn++) {
            REQUIRE(turn < 10);
            ops->progress(p.b, 100);
            ops->progress(p.a, 100);
        }
        ops->progress(p.b, 100);
        cr_assert(get(p.b, b[IDLE], k, length));
    }
    /* And what was kept is all there. */
    for (int i = 0; i < IDLE; i++)
        for (uint64_t k = 0; k < sent[i]; k++)
            cr_assert(get(p.b, b[i], k, 100));
    cluster_close(&p.cluster);
}

Test(shm_streams, peer_that_does_not_read_stops_nobody) {
    struct cluster cluster;
    cluster_open(&cluster, 6);
    cluster_connect_all(&cluster);
    struct transport *a = cluster.ranks[0].transport;
    struct cluster_owner owners[6][2] = {0};
    struct transport_stream *out[6], *in[6];
    for (int r = 1; r < 6; r++) {
        out[r] = stream(a, r, 0, &owners[r][0]);
        in[r] = stream(cluster.ranks[r].transport, 0, 0, &owners[r][1]);
        /* All announce much; only rank 5 reads. */
        for (int k = 0; k < 300; k++)
            ops->expect(cluster.ranks[r].transport, in[r], 65536);
    }
    ops->progress(a, 10000);
    for (int r = 1; r < 5; r++)
        for (uint64_t k = 0; put(a, out[r], k, k % 2 ? 65536 : 4096) == TRANSPORT_OK; k++)
            REQUIRE(k < SHM_SLOTS);
    struct transport *reader = cluster.ranks[5].transport;
    for (uint64_t k = 0; k < 300; k++) {
        size_t length = k % 2 ? 65536 : 4096;
        for (int turn = 0; put(a, out[5], k, length) == TRANSPORT_AGAIN; turn++) {
            REQUIRE(turn < 10);
            ops->progress(a, 100);
        }
        ops->progress(reader, 100);
        cr_assert(get(reader, in[5], k, length));
    }
    cluster_close(&cluster);
}

Test(shm_streams, commit_out_of_order_travels_in_order) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    struct transport_slot slots[8];
    for (uint64_t k = 0; k < 8; k++) {
        struct transport_header header = {.sequence = k, .length = k * 20, .fingerprint = 5};
        cr_assert_eq(ops->reserve(p.a, a, &header, &slots[k]), TRANSPORT_OK);
        for (size_t i = 0; i < k * 20; i++)
            ((uint8_t *)slots[k].data)[i] = pattern(k, i);
    }
    for (int k = 7; k > 0; k--)
        ops->commit(p.a, a, &slots[k]);
    cr_assert_eq(ops->progress(p.b, 100), 0);
    ops->commit(p.a, a, &slots[0]);
    cr_assert_eq(ops->progress(p.b, 100), 8);
    for (uint64_t k = 0; k < 8; k++)
        cr_assert(get(p.b, b, k, k * 20));
    cluster_close(&p.cluster);
}

Test(shm_streams, full_queue_waits_and_goes_on) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    const uint64_t total = 5 * SHM_FIFO_ENTRIES;
    for (uint64_t k = 0; k < total; k++)
        ops->expect(p.b, b, 16);
    ops->progress(p.a, 1000);
    uint64_t sent = 0;
    while (sent < total && put(p.a, a, sent, 16) == TRANSPORT_OK)
        sent++;
    cr_assert_gt(sent, SHM_FIFO_ENTRIES);
    cr_assert(ops->arm(p.a));
    for (uint64_t k = 0; k < total;) {
        ops->progress(p.b, 10);
        if (((struct shm *)p.a)->peers[1]->ready)
            cr_assert_not(ops->arm(p.a), "room came and arm did not notice");
        ops->progress(p.a, 10);
        while (sent < total && put(p.a, a, sent, 16) == TRANSPORT_OK)
            sent++;
        while (get(p.b, b, k, 16))
            k++;
    }
    cluster_close(&p.cluster);
}

Test(shm_streams, message_before_its_stream_is_kept) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 9, &oa);
    cr_assert_eq(put(p.a, a, 1, 20), TRANSPORT_OK);
    cr_assert_eq(put(p.a, a, 2, 200), TRANSPORT_OK);
    ops->progress(p.b, 100);
    ops->stream_close(p.a, a); /* what was sent is on its way */
    struct transport_stream *b = stream(p.b, 0, 9, &ob);
    cr_assert_eq(ob.arrived, 0);
    cr_assert(get(p.b, b, 1, 20));
    cr_assert(get(p.b, b, 2, 200));
    cluster_close(&p.cluster);
}

Test(shm_streams, closed_streams_give_slots_back) {
    struct pair p;
    pair_open(&p);
    for (uint32_t channel = 0; channel < 500; channel++) {
        struct cluster_owner oa = {0}, ob = {0};
        struct transport_stream *a = stream(p.a, 1, channel, &oa);
        struct transport_stream *b = stream(p.b, 0, channel, &ob);
        for (uint64_t k = 0; k < 10; k++)
            cr_assert_eq(put(p.a, a, k, 500), TRANSPORT_OK, "channel %u, message %d", channel,
                         (int)k);
        struct transport_slot open;
        struct transport_header header = {.length = 500};
        cr_assert_eq(ops->reserve(p.a, a, &header, &open), TRANSPORT_OK);
        if (channel % 2) { /* closed before, or after, the messages are read */
            ops->stream_close(p.b, b);
            ops->progress(p.b, 100);
        } else {
            ops->progress(p.b, 100);
            ops->stream_close(p.b, b);
        }
        ops->stream_close(p.a, a);
        ops->progress(p.a, 100);
    }
    struct shm *shm = (struct shm *)p.a;
    shm_harvest(shm);
    cr_assert_eq(shm->pools[0].nfree, SHM_SMALL_SLOTS);
    cr_assert_eq(shm->peers[1]->held[0], 0);
    cr_assert_eq(shm->unannounced, 0);
    cluster_close(&p.cluster);
}

static size_t shown(struct transport *transport, struct transport_stream *s) {
    struct transport_arrival arrival;
    if (ops->peek(transport, s, &arrival) != TRANSPORT_OK)
        return 0;
    for (size_t i = 0; i < arrival.pieces[0].length; i++)
        cr_assert_eq(((const uint8_t *)arrival.pieces[0].data)[i], pattern(1, i));
    return arrival.pieces[0].length;
}

/* Reserves a message of 50,000 bytes, number 1, and publishes `bytes` of it. */
static void publish(struct pair *p, struct transport_stream *a, struct transport_stream *b,
                    struct transport_slot *slot, size_t bytes) {
    struct transport_header header = {.sequence = 1, .length = 50000, .fingerprint = 5};
    ops->expect(p->b, b, 50000);
    ops->progress(p->a, 100);
    cr_assert_eq(ops->reserve(p->a, a, &header, slot), TRANSPORT_OK);
    for (size_t i = 0; i < 50000; i++)
        ((uint8_t *)slot->data)[i] = pattern(1, i);
    ops->publish(p->a, a, slot, bytes);
    ops->progress(p->b, 100);
}

Test(shm_streams, a_message_is_shown_as_it_is_published) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    for (int round = 1; round <= 300; round++) { /* more than there are slots */
        struct transport_slot slot;
        ob.arrived = 0;
        publish(&p, a, b, &slot, 20000);
        cr_assert_eq(ob.arrived, 1);
        cr_assert_eq(shown(p.b, b), 20000);
        cr_assert(ops->arm(p.b));
        ops->progress(p.b, 100);
        cr_assert_eq(ob.arrived, 1, "nothing more has come");
        ops->publish(p.a, a, &slot, 30000);
        cr_assert_not(ops->arm(p.b));
        ops->progress(p.b, 100);
        cr_assert_eq(ob.arrived, 2);
        cr_assert_eq(shown(p.b, b), 30000);
        ops->publish(p.a, a, &slot, 10); /* a count that falls is none */
        cr_assert_eq(shown(p.b, b), 30000);
        ops->commit(p.a, a, &slot);
        ops->progress(p.b, 100);
        cr_assert_eq(ob.arrived, 3);
        cr_assert(get(p.b, b, 1, 50000));
        cr_assert_eq(ops->progress(p.b, 100), 0);
        cr_assert_eq(put(p.a, a, 2, 100), TRANSPORT_OK);
        ops->progress(p.b, 100);
        cr_assert(get(p.b, b, 2, 100));
        ops->expect(p.b, b, 100);
    }
    cr_assert_eq(p.a->counters.messages_sent, 600);
    cluster_close(&p.cluster);
}

/* One that waits behind another is published when it is committed, in its turn. */
Test(shm_streams, only_the_next_message_is_published) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    struct transport_header header = {.sequence = 0, .length = 8, .fingerprint = 5};
    struct transport_slot first, second;
    cr_assert_eq(ops->reserve(p.a, a, &header, &first), TRANSPORT_OK);
    for (size_t i = 0; i < 8; i++)
        ((uint8_t *)first.data)[i] = pattern(0, i);
    ops->expect(p.b, b, 8);
    publish(&p, a, b, &second, 20000);
    cr_assert_eq(ob.arrived, 0);
    ops->commit(p.a, a, &second);
    ops->commit(p.a, a, &first);
    ops->progress(p.b, 100);
    cr_assert(get(p.b, b, 0, 8));
    cr_assert(get(p.b, b, 1, 50000));
    cluster_close(&p.cluster);
}

Test(shm_streams, half_a_message_of_a_dead_peer_is_none) {
    for (int closed = 0; closed < 2; closed++) {
        struct pair p;
        pair_open(&p);
        struct cluster_owner oa = {0}, ob = {0};
        struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
        struct transport_slot slot;
        publish(&p, a, b, &slot, 20000);
        cr_assert_eq(shown(p.b, b), 20000);
        if (closed) { /* while it is written */
            ops->stream_close(p.b, b);
            ops->publish(p.a, a, &slot, 40000);
            ops->commit(p.a, a, &slot);
            cr_assert_eq(ops->progress(p.b, 100), 0);
        } else {
            struct transport_header header;
            struct transport_arrival arrival;
            cr_assert(ops->peer_gone(p.b, 0, false, "it died"));
            cr_assert_not(ops->arm(p.b));
            ops->progress(p.b, 100);
            cr_assert_eq(ob.arrived, 2, "its owner is told");
            cr_assert_eq(ops->peek(p.b, b, &arrival), TRANSPORT_FAILED);
            cr_assert_not(ops->pending(p.b, b, &header));
            cr_assert(ops->arm(p.b));
        }
        cluster_close(&p.cluster);
    }
}

/* Puts one message in one step; its bytes are those of get. */
static enum transport_result put_at_once(struct pair *p, struct transport_stream *a,
                                         uint64_t number, size_t length) {
    uint8_t data[SHM_SMALL_BYTES + 1];
    for (size_t i = 0; i < length; i++)
        data[i] = pattern(number, i);
    struct transport_header header = {.sequence = number, .length = length, .total = length};
    return ops->put(p->a, a, &header, data);
}

/* Takes one. */
static enum transport_result take_at_once(struct pair *p, struct transport_stream *b,
                                          uint64_t number, size_t length) {
    uint8_t data[SHM_SMALL_BYTES + 1];
    size_t room = sizeof data;
    enum transport_result result = ops->take(p->b, b, number, data, &room);
    if (result != TRANSPORT_OK)
        return result;
    cr_assert_eq(room, length);
    for (size_t i = 0; i < length; i++)
        cr_assert_eq(data[i], pattern(number, i));
    return result;
}

/* In half an entry, in an entry, in a slot. */
static const size_t short_lengths[] = {0,
                                       1,
                                       4,
                                       8,
                                       12,
                                       16,
                                       20,
                                       SHM_HALF_LINE_BYTES,
                                       SHM_HALF_LINE_BYTES + 1,
                                       SHM_INLINE_BYTES + 1,
                                       SHM_TINY_BYTES,
                                       SHM_TINY_BYTES + 1,
                                       SHM_SMALL_BYTES};
#define SHORT_LENGTHS (sizeof short_lengths / sizeof *short_lengths)

Test(shm_streams, short_messages_in_one_step) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    uint64_t number = 0;
    for (int round = 0; round < 100; round++) {
        for (size_t i = 0; i < SHORT_LENGTHS; i++) {
            size_t length = short_lengths[i];
            ops->progress(p.a, 100); /* grants */
            /* From the queue itself; after progress has read it; between others. */
            cr_assert_eq(put_at_once(&p, a, number, length), TRANSPORT_OK);
            cr_assert_eq(take_at_once(&p, b, number++, length), TRANSPORT_OK);
            cr_assert_eq(put_at_once(&p, a, number, length), TRANSPORT_OK);
            cr_assert_gt(ops->progress(p.b, 100), 0);
            cr_assert_eq(take_at_once(&p, b, number++, length), TRANSPORT_OK);
            cr_assert_eq(put_at_once(&p, a, number, length), TRANSPORT_OK);
            cr_assert_eq(put(p.a, a, number + 1, 100), TRANSPORT_OK);
            cr_assert_eq(take_at_once(&p, b, number++, length), TRANSPORT_OK);
            cr_assert_eq(take_at_once(&p, b, number, 100), TRANSPORT_UNSUPPORTED, "it says more");
            cr_assert_gt(ops->progress(p.b, 100), 0);
            cr_assert_eq(take_at_once(&p, b, number, 100), TRANSPORT_UNSUPPORTED);
            ops->expect(p.b, b, 100);
            cr_assert(get(p.b, b, number++, 100));
        }
    }
    cr_assert_eq(p.a->counters.messages_sent, number);
    cr_assert_eq(p.b->counters.messages_received, number);
    cr_assert_eq(p.a->counters.bytes_sent, p.b->counters.bytes_received);
    cluster_close(&p.cluster);
}

Test(shm_streams, what_is_not_taken_in_one_step) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0}, oc = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    struct transport_stream *c = stream(p.a, 1, 1, &oc);
    cr_assert_eq(put_at_once(&p, a, 1, SHM_SMALL_BYTES + 1), TRANSPORT_AGAIN, "longer");
    cr_assert_eq(take_at_once(&p, b, 1, 8), TRANSPORT_AGAIN, "nothing has come");
    cr_assert_eq(put_at_once(&p, c, 7, 8), TRANSPORT_OK);
    cr_assert_eq(put_at_once(&p, a, 1, 8), TRANSPORT_OK);
    cr_assert_eq(take_at_once(&p, b, 1, 8), TRANSPORT_UNSUPPORTED, "another stream's comes first");
    cr_assert_gt(ops->progress(p.b, 100), 0);
    uint64_t value;
    size_t room = 7;
    cr_assert_eq(ops->take(p.b, b, 1, &value, &room), TRANSPORT_UNSUPPORTED, "no room");
    cr_assert_eq(take_at_once(&p, b, 2, 8), TRANSPORT_UNSUPPORTED, "another message");
    cr_assert_eq(take_at_once(&p, b, 1, 8), TRANSPORT_OK);
    /* The same in a slot, in the queue and read; and one of a large slot. */
    cr_assert_eq(put_at_once(&p, a, 2, 1000), TRANSPORT_OK);
    for (int i = 0; i < 2; i++) {
        room = 7;
        cr_assert_eq(ops->take(p.b, b, 2, &value, &room), TRANSPORT_UNSUPPORTED, "no room");
        cr_assert_eq(take_at_once(&p, b, 3, 1000), TRANSPORT_UNSUPPORTED, "another message");
        ops->progress(p.b, 100);
    }
    cr_assert_eq(take_at_once(&p, b, 2, 1000), TRANSPORT_OK);
    ops->expect(p.b, b, SHM_LARGE_BYTES);
    ops->progress(p.a, 100);
    cr_assert_eq(put(p.a, a, 3, SHM_LARGE_BYTES), TRANSPORT_OK);
    for (int i = 0; i < 2; i++) {
        uint8_t *large = malloc(SHM_LARGE_BYTES);
        room = SHM_LARGE_BYTES;
        cr_assert_eq(ops->take(p.b, b, 3, large, &room), TRANSPORT_UNSUPPORTED);
        free(large);
        ops->progress(p.b, 100);
    }
    cr_assert(get(p.b, b, 3, SHM_LARGE_BYTES));
    cluster_close(&p.cluster);
}

/* A grant before the message is no reason to look elsewhere for it, nor one that has come to wait
 * for progress: neither side calls it here. */
Test(shm_streams, grants_are_read_on_the_way) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    for (uint64_t number = 0; number < 1000; number++) {
        size_t length = short_lengths[number % SHORT_LENGTHS];
        cr_assert_eq(put_at_once(&p, a, number, length), TRANSPORT_OK);
        cr_assert_eq(take_at_once(&p, b, number, length), TRANSPORT_OK);
    }
    uint8_t data[8];
    for (uint64_t number = 0; number < 1000; number++) { /* the other way, behind them */
        struct transport_header header = {
            .sequence = number, .length = sizeof number, .total = sizeof number};
        cr_assert_eq(ops->put(p.b, b, &header, &number), TRANSPORT_OK);
        enum transport_result result = TRANSPORT_AGAIN;
        for (int look = 0; look < 200 && result == TRANSPORT_AGAIN; look++) {
            size_t room = sizeof data;
            result = ops->take(p.a, a, number, data, &room);
        }
        cr_assert_eq(result, TRANSPORT_OK);
        cr_assert_eq(memcmp(data, &number, sizeof data), 0);
    }
    /* A large one may go as soon as its receiver has said so. */
    for (uint64_t number = 1000; number < 1010; number++) {
        ops->expect(p.b, b, SHM_LARGE_BYTES);
        cr_assert_eq(put(p.a, a, number, SHM_LARGE_BYTES), TRANSPORT_OK);
        ops->progress(p.b, 100);
        cr_assert(get(p.b, b, number, SHM_LARGE_BYTES));
    }
    cr_assert_eq(oa.writable, 0, "nobody has waited");
    cluster_close(&p.cluster);
}

Test(shm_streams, short_messages_have_a_window) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner oa = {0}, ob = {0};
    struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
    /* Nobody takes: so many and no more, and those that come later wait for permission. */
    const struct {
        size_t length;
        uint64_t most;
    } windows[] = {{8, 2 * SHM_WINDOW}, {40, 2 * SHM_WINDOW}, {1000, 2 * SHM_WINDOW_SLOTS}};
    uint64_t first = 0;
    for (int i = 0; i < 3; i++) {
        size_t length = windows[i].length;
        uint64_t sent = first;
        while (sent < first + 1000 && put_at_once(&p, a, sent, length) == TRANSPORT_OK)
            sent++;
        cr_assert_gt(sent, first);
        cr_assert_leq(sent - first, windows[i].most);
        cr_assert_eq(put(p.a, a, sent, length), TRANSPORT_AGAIN);
        ops->progress(p.b, 1000);
        for (uint64_t number = first; number < sent; number++)
            cr_assert_eq(take_at_once(&p, b, number, length), TRANSPORT_OK);
        ops->progress(p.a, 100);
        cr_assert_eq(oa.writable, i + 1);
        cr_assert_eq(put_at_once(&p, a, sent, length), TRANSPORT_OK);
        ops->progress(p.b, 100);
        cr_assert_eq(take_at_once(&p, b, sent, length), TRANSPORT_OK);
        ops->progress(p.a, 100);
        first = sent + 1;
    }
    cluster_close(&p.cluster);
}

Test(shm_streams, C34_counters_near_their_ends) {
    const char *starts[] = {"2147483645", "4294967293", "9223372036854775805"};
    for (int i = 0; i < 3; i++) {
        setenv("ROTA_TEST_SEQUENCE_START", starts[i], 1);
        struct pair p;
        pair_open(&p);
        struct cluster_owner oa = {0}, ob = {0};
        struct transport_stream *a = stream(p.a, 1, 0, &oa), *b = stream(p.b, 0, 0, &ob);
        flood(&p, a, b, 1000, 40);
        flood(&p, a, b, 1000, 100);
        cluster_close(&p.cluster);
    }
    unsetenv("ROTA_TEST_SEQUENCE_START");
}

static void garbage_is_evidence(uint32_t type, uint32_t slot) {
    struct pair p;
    pair_open(&p);
    struct cluster_owner ob = {0};
    struct transport_stream *b = stream(p.b, 0, 0, &ob);
    struct shm_pair *out = ((struct shm *)p.a)->peers[1]->out;
    out->fifo[0].type = type;
    out->fifo[0].slot = slot;
    out->fifo[0].key = b->id.key;
    atomic_store(&out->fifo[0].sequence, 1);
    cr_assert_neq(take_at_once(&p, b, 0, 0), TRANSPORT_OK);
    ops->progress(p.b, 100);
    cr_assert_eq(p.cluster.ranks[1].failed, 1);
    cr_assert(strstr(p.cluster.ranks[1].text, "protocol error"));
    struct transport_arrival arrival;
    cr_assert_eq(ops->peek(p.b, b, &arrival), TRANSPORT_FAILED);
    cr_assert_eq(put(p.b, b, 1, 8), TRANSPORT_FAILED);
    cr_assert_eq(ops->progress(p.b, 100), 0);
    cluster_close(&p.cluster);
}

Test(shm_streams, garbage_is_evidence_not_a_message) {
    garbage_is_evidence(SHM_ENTRY_SLOT, SHM_SLOTS);
    garbage_is_evidence(SHM_ENTRY_TINY, SHM_TINY_BYTES + 1);
    garbage_is_evidence(SHM_ENTRY_SHORT, SHM_SMALL_SLOTS);
    garbage_is_evidence(0, 0);
}
