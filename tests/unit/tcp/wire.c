/* What comes over a connection is checked: frames, permission, order; and what cannot be reached
 * is given up. A peer is played by hand over one end of a socket pair. */
#include "transports/tcp/tcp.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static struct transport_host host;
static struct net_identity identity = {.rank = 1};
static struct net_addresses addresses;
static struct transport_peer peers[3];
static struct settings *settings;
static struct transport *transport;
static int connected, failed, unreachable, arrived, system_error;
static char evidence[512];
static int wire; /* the peer's end */

static void on_owner(void *owner) {
    (void)owner;
    arrived++;
}
static void on_connected(void *context, struct transport *self, int peer) {
    (void)context, (void)self, (void)peer;
    connected++;
}
static void on_lost(int *count, int error, const char *text) {
    ++*count;
    system_error = error;
    snprintf(evidence, sizeof evidence, "%s", text);
}
static void on_unreachable(void *context, struct transport *self, int peer, int error,
                           const char *text) {
    (void)context, (void)self, (void)peer;
    on_lost(&unreachable, error, text);
}
static void on_failed(void *context, struct transport *self, int peer, int error,
                      const char *text) {
    (void)context, (void)self, (void)peer;
    on_lost(&failed, error, text);
}

static void setup(void) {
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    for (int i = 0; i < 3; i++)
        peers[i] = (struct transport_peer){.rank = i, .addresses = &addresses};
    host = (struct transport_host){.rank = 1,
                                   .nranks = 3,
                                   .identity = &identity,
                                   .settings = settings,
                                   .peers = peers,
                                   .arrived = on_owner,
                                   .writable = on_owner,
                                   .connected = on_connected,
                                   .unreachable = on_unreachable,
                                   .peer_failed = on_failed};
    cr_assert_eq(transport_tcp.open(&host, &transport), ROTA_OK);
    wire = -1;
}

static void teardown(void) {
    transport_tcp.close(transport);
    settings_free(settings);
    if (wire >= 0)
        close(wire);
}

TestSuite(wire, .init = setup, .fini = teardown, .timeout = 30);

static void turns(int n) {
    for (int i = 0; i < n; i++)
        transport_tcp.progress(transport, 64);
}

static void put(const void *data, size_t bytes) {
    cr_assert_eq(send(wire, data, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

static void put_frame(struct frame frame) {
    frame_seal(&frame);
    put(&frame, sizeof frame);
}

/* The next frame from the transport; false when there is none. */
static bool get_frame(struct frame *frame) {
    ssize_t n = recv(wire, frame, sizeof *frame, MSG_DONTWAIT);
    if (n < 0)
        return false;
    cr_assert_eq(n, sizeof *frame);
    cr_assert_null(frame_check(frame));
    return true;
}

/* Progress looks at connections that nothing is expected of every so many turns. */
#define TCP_LOOKS 70

static const struct transport_key key = {.comm = 1, .generation = 2, .channel = 3};

static void let_in(void) {
    int sockets[2];
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    wire = sockets[0];
    cr_assert(transport_tcp.admit(transport, 0));
    transport_tcp.accept(transport, 0, sockets[1], NULL, 0);
}

static void let_in_connected(void) {
    struct frame frame;
    let_in();
    put_frame(
        (struct frame){.type = FRAME_INIT, .credit = 64, .total = mux_of(transport)->slot_charge});
    turns(2);
    cr_assert_eq(connected, 1);
    cr_assert(get_frame(&frame));
    cr_assert_eq(frame.type, FRAME_INIT);
    cr_assert_gt(frame.credit, 0);
}

static struct transport_stream *opened(void) {
    struct transport_stream *stream = NULL;
    cr_assert_eq(transport_tcp.stream_open(transport, 0, &key, &arrived, &stream), ROTA_OK);
    return stream;
}

static struct frame data_frame(uint64_t message, uint64_t length, bool eager) {
    return (struct frame){.type = FRAME_DATA,
                          .flags = eager ? FRAME_FLAG_EAGER : 0,
                          .key = key,
                          .message = message,
                          .length = length,
                          .sequence = 40 + message};
}

static void expect_failure(const char *what) {
    turns(TCP_LOOKS);
    cr_assert_eq(failed, 1, "no failure: %s", what);
    cr_assert_eq(system_error, EPROTO);
    cr_assert_not_null(strstr(evidence, what), "%s", evidence);
    cr_assert_not_null(strstr(evidence, "rank 0"), "%s", evidence);
}

Test(wire, crc_is_castagnoli) {
    uint8_t zeros[32] = {0};
    uint8_t odd[101];
    /* RFC 3720, B.4; and the usual check value. */
    cr_assert_eq(frame_crc32c(zeros, 32), 0x8a9136aau);
    cr_assert_eq(frame_crc32c("123456789", 9), 0xe3069283u);
    for (size_t i = 0; i < sizeof odd; i++)
        odd[i] = (uint8_t)(i * 37);
    for (size_t n = 0; n <= sizeof odd; n++)
        cr_assert_eq(frame_crc32c(odd, n), frame_crc32c_table(odd, n));
}

Test(wire, every_bit_of_a_frame_is_protected) {
    struct frame good = data_frame(3, 77, true);
    frame_seal(&good);
    for (size_t bit = 0; bit < 8 * sizeof good; bit++) {
        struct frame bad = good;
        ((uint8_t *)&bad)[bit / 8] ^= (uint8_t)(1u << bit % 8);
        cr_assert_not_null(frame_check(&bad), "bit %zu", bit);
    }
    cr_assert_null(frame_check(&good));
    cr_assert_eq(good.length, 77);
}

/* Packed frames are those that were packed, whatever came before, and any bytes make a frame that
 * is checked. */
Test(wire, frames_travel_packed) {
    struct frame sent = {0}, sender = {0}, receiver = {0}, got;
    uint8_t packed[FRAME_PACKED_MOST];
    unsigned seed = 7;
    for (int i = 0; i < 1000; i++) {
        sent.type = FRAME_DATA;
        sent.sequence++;
        sent.message = (uint64_t)rand_r(&seed) << (rand_r(&seed) % 33);
        if (i % 10 == 0)
            sent.key.comm = (uint32_t)rand_r(&seed);
        struct frame frame = sent;
        size_t bytes = frame_pack(&sender, &frame, packed);
        cr_assert_eq(frame_packed_bytes(packed), bytes);
        cr_assert(i % 10 == 0 || bytes <= 2 + 3 * 8, "%zu bytes", bytes);
        cr_assert_null(frame_unpack(&receiver, packed, &got));
        got.version = sent.version;
        cr_assert_eq(memcmp(&got, &sent, sizeof got), 0, "frame %d", i);
    }
    int wrong = 0;
    for (int i = 0; i < 1000; i++) {
        for (size_t at = 0; at < sizeof packed; at++)
            packed[at] = (uint8_t)rand_r(&seed);
        cr_assert_leq(frame_packed_bytes(packed), sizeof packed);
        wrong += frame_unpack(&receiver, packed, &got) != NULL;
    }
    cr_assert_gt(wrong, 900);
}

Test(wire, C34_numbers_of_64_bit) {
    struct transport_header header = {.sequence = (1ull << 63) + 5,
                                      .length = (1ull << 33) + 1,
                                      .total = ~0ull,
                                      .fingerprint = ~1ull},
                            back;
    struct frame frame = {.type = FRAME_REQUEST, .message = (1ull << 32) + 3};
    frame_put_header(&frame, &header);
    frame_seal(&frame);
    cr_assert_null(frame_check(&frame));
    frame_get_header(&frame, &back);
    cr_assert_eq(memcmp(&header, &back, sizeof back), 0);
    cr_assert_eq(frame.message, (1ull << 32) + 3);
}

Test(wire, garbage) {
    char noise[500];
    let_in_connected();
    memset(noise, 'x', sizeof noise);
    put(noise, sizeof noise);
    expect_failure("checksum");
}

Test(wire, unknown_flags_are_refused) {
    let_in_connected();
    struct frame frame = data_frame(0, 0, true);
    frame.flags |= 0x8000;
    put_frame(frame);
    expect_failure("unknown flags");
}

Test(wire, unknown_type) {
    let_in_connected();
    put_frame((struct frame){.type = 99});
    expect_failure("unknown type");
}

Test(wire, message_without_permission) {
    let_in_connected();
    opened();
    put_frame(data_frame(0, 100, false));
    expect_failure("without permission");
}

Test(wire, eager_message_too_long) {
    let_in_connected();
    put_frame(data_frame(0, mux_of(transport)->eager_bytes + 1, true));
    expect_failure("too long");
}

Test(wire, more_than_the_slot_holds) {
    static char payload[TCP_EAGER_MOST];
    let_in_connected();
    cr_assert_eq(mux_of(transport)->eager_bytes, sizeof payload);
    for (uint64_t i = 0; i < MUX_SLOT_MESSAGES; i++) {
        put_frame(data_frame(i, sizeof payload, true));
        put(payload, sizeof payload);
        turns(TCP_LOOKS);
        cr_assert_eq(failed, 0);
    }
    put_frame(data_frame(MUX_SLOT_MESSAGES, 1, true));
    expect_failure("without credit");
}

Test(wire, more_streams_than_slots) {
    let_in_connected();
    for (uint32_t i = 0; i <= MUX_MAX_SLOTS; i++) {
        struct frame frame = data_frame(0, 0, true);
        frame.key.channel = i;
        put_frame(frame);
    }
    expect_failure("more streams than slots");
}

Test(wire, message_number_skipped) {
    let_in_connected();
    put_frame(data_frame(1, 0, true));
    expect_failure("out of order");
}

static int left;
static void on_left(struct transport_ticket *ticket, enum transport_result result) {
    (void)ticket;
    left += result == TRANSPORT_OK;
}

/* Short posts of a burst go together, in order, when progress is made; what a slot carries goes
 * behind them at once. A burst that the machine interrupts is tried again. */
Test(wire, posts_of_a_burst_gather) {
    enum { BURST = 12, TRIES = 200 };
    struct transport_ticket tickets[BURST];
    char payload[BURST], got[sizeof(struct frame) + 1];
    uint64_t number = 0;
    bool gathered = false;
    let_in_connected();
    struct transport_stream *stream = opened();
    for (int i = 0; i < TRIES && !gathered; i++) {
        left = 0;
        for (int m = 0; m < BURST; m++) {
            struct transport_header header = {.sequence = number + (uint64_t)m, .length = 1};
            struct transport_piece piece = {&payload[m], 1};
            payload[m] = (char)('a' + m);
            tickets[m].done = on_left;
            cr_assert_eq(
                transport_tcp.post_send(transport, stream, &header, &piece, 1, &tickets[m]),
                TRANSPORT_OK);
            if (m < MUX_BURST_FIRST)
                cr_assert_eq(left, m + 1, "the first ones go at once");
        }
        gathered = left < BURST;
        bool by_slot = i % 2 == 1;
        struct transport_header header = {.sequence = number + BURST, .length = 1};
        struct transport_slot slot;
        if (by_slot) {
            cr_assert_eq(transport_tcp.reserve(transport, stream, &header, &slot), TRANSPORT_OK);
            *(char *)slot.data = (char)('a' + BURST);
            transport_tcp.commit(transport, stream, &slot);
        } else {
            turns(1);
        }
        cr_assert_eq(left, BURST);
        for (int m = 0; m < BURST + by_slot; m++) {
            cr_assert_eq(recv(wire, got, sizeof got, MSG_DONTWAIT), (ssize_t)sizeof got);
            struct frame frame;
            memcpy(&frame, got, sizeof frame);
            cr_assert_null(frame_check(&frame));
            cr_assert_eq(frame.sequence, number++);
            cr_assert_eq(got[sizeof frame], 'a' + m);
        }
        struct frame back = {.type = FRAME_CREDIT, .key = key, .credit = number * mux_charge(1)};
        put_frame(back);
        turns(TCP_LOOKS);
    }
    cr_assert(gathered);
}

/* Reads so many bytes, as the transport goes on. */
static void read_whole(void *data, size_t bytes) {
    for (size_t got = 0; got < bytes;) {
        ssize_t n = recv(wire, (char *)data + got, bytes - got, MSG_DONTWAIT);
        cr_assert(n > 0 || errno == EAGAIN);
        got += n > 0 ? (size_t)n : 0;
        turns(1);
    }
}

/* Messages put in one step while the pipe takes all, a part or nothing of them: they are kept, and
 * the caller's memory is its own again. */
Test(wire, put_into_a_full_pipe) {
    enum { ROUNDS = 3 };
    static char payload[1 << 16], got[1 << 16];
    let_in_connected();
    struct transport_stream *stream = opened();
    put_frame((struct frame){.type = FRAME_CREDIT, .key = key, .grant = 1u << 20});
    turns(TCP_LOOKS);
    uint64_t number = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t lengths[2] = {mux_of(transport)->eager_bytes, 100}, length = lengths[round % 2];
        uint64_t first = number;
        cr_assert_leq(length, sizeof payload);
        for (enum transport_result result = TRANSPORT_OK; result == TRANSPORT_OK;) {
            struct transport_header header = {
                .sequence = number, .position = 7, .length = length, .fingerprint = 9};
            memset(payload, (int)('a' + number % 26), length);
            result = transport_tcp.put(transport, stream, &header, payload);
            number += result == TRANSPORT_OK;
            memset(payload, '#', length);
            cr_assert_lt(number - first, 10000, "the pipe was never full");
        }
        for (uint64_t i = first; i < number; i++) {
            struct frame frame;
            read_whole(&frame, sizeof frame);
            cr_assert_null(frame_check(&frame));
            cr_assert_eq(frame.sequence, i);
            cr_assert_eq(frame.position, 7);
            cr_assert_eq(frame.fingerprint, 9);
            cr_assert_eq(frame.message, i);
            read_whole(got, length);
            for (size_t b = 0; b < length; b++)
                cr_assert_eq(got[b], 'a' + (char)(i % 26));
        }
    }
    cr_assert_eq(transport->counters.messages_sent, number);
}

Test(wire, credit_that_was_never_taken) {
    let_in_connected();
    put_frame((struct frame){.type = FRAME_CREDIT, .key = key, .credit = 5});
    expect_failure("credit");
}

Test(wire, first_frame_twice) {
    let_in_connected();
    put_frame(
        (struct frame){.type = FRAME_INIT, .credit = 64, .total = mux_of(transport)->slot_charge});
    expect_failure("first frame");
}

/* Before its first frame a connection counts for nothing: it is dropped and the peer may come
 * again. */
Test(wire, rubbish_instead_of_the_first_frame) {
    char noise[500] = {0};
    let_in();
    put(noise, sizeof noise);
    turns(TCP_LOOKS);
    cr_assert_eq(failed + connected + unreachable, 0);
    char byte;
    while (recv(wire, &byte, 1, 0) > 0)
        ;
    close(wire);
    let_in_connected();
}

Test(wire, byte_by_byte_with_a_trailer) {
    struct transport_stream *stream;
    struct transport_arrival arrival;
    struct frame frame = data_frame(0, 5, true);
    char bytes[sizeof frame + 5 + 300];
    let_in_connected();
    stream = opened();
    frame.trailer = 300;
    frame_seal(&frame);
    memcpy(bytes, &frame, sizeof frame);
    memcpy(bytes + sizeof frame, "hello", 5);
    memset(bytes + sizeof frame + 5, 0x55, 300);
    transport_tcp.expect(transport, stream, 5);
    for (size_t i = 0; i < sizeof bytes; i++) {
        cr_assert_eq(transport_tcp.peek(transport, stream, &arrival), TRANSPORT_AGAIN);
        put(bytes + i, 1);
        turns(1);
    }
    cr_assert_eq(transport_tcp.peek(transport, stream, &arrival), TRANSPORT_OK);
    cr_assert_eq(arrival.pieces[0].length, 5);
    cr_assert_eq(memcmp(arrival.pieces[0].data, "hello", 5), 0);
    transport_tcp.release(transport, stream, &arrival);
    put_frame(data_frame(1, 0, true));
    turns(TCP_LOOKS);
    cr_assert_eq(transport_tcp.peek(transport, stream, &arrival), TRANSPORT_OK);
    transport_tcp.release(transport, stream, &arrival);
    cr_assert_eq(failed, 0);
}

/* Announcements made between two calls of progress travel in one frame. */
Test(wire, grants_are_merged) {
    struct transport_stream *stream;
    struct frame frame;
    let_in_connected();
    stream = opened();
    for (int i = 0; i < 10; i++)
        transport_tcp.expect(transport, stream, 100000);
    turns(1);
    cr_assert(get_frame(&frame));
    cr_assert_eq(frame.type, FRAME_CREDIT);
    cr_assert_eq(frame.grant, 10);
    cr_assert_not(get_frame(&frame));
}

/* One request per message, however often it is looked at; the grant lets it go. */
Test(wire, request_then_grant) {
    static char payload[100000];
    struct transport_stream *stream;
    struct transport_piece piece = {payload, sizeof payload};
    struct transport_ticket ticket = {.done = NULL};
    struct transport_header header = {.sequence = 1, .length = sizeof payload};
    struct frame frame;
    let_in_connected();
    stream = opened();
    cr_assert_eq(transport_tcp.post_send(transport, stream, &header, &piece, 1, &ticket),
                 TRANSPORT_OK);
    turns(50);
    cr_assert(get_frame(&frame));
    cr_assert_eq(frame.type, FRAME_REQUEST);
    cr_assert_eq(frame.length, sizeof payload);
    cr_assert_eq(frame.message, 0);
    cr_assert_not(get_frame(&frame));
    transport_tcp.quiesce(transport, stream); /* forgets the ticket; the number is free again */
    put_frame((struct frame){.type = FRAME_CREDIT, .key = key, .grant = 1});
    turns(TCP_LOOKS);
    cr_assert_not(get_frame(&frame));
    header.length = 3;
    struct transport_slot slot;
    cr_assert_eq(transport_tcp.reserve(transport, stream, &header, &slot), TRANSPORT_OK);
    transport_tcp.commit(transport, stream, &slot);
    cr_assert(get_frame(&frame));
    cr_assert_eq(frame.type, FRAME_DATA);
    cr_assert_eq(frame.message, 0);
    cr_assert_eq(frame.flags, 0, "sent by grant, not by credit");
}

/* Requests that find no place are answered, and those of streams that are open are kept. */
Test(wire, too_many_requests_are_answered_retry) {
    struct frame frame;
    unsigned retries = 0;
    let_in_connected();
    opened();
    for (uint32_t i = 0; i < MUX_MAX_REQUESTS + 10; i++) {
        put_frame((struct frame){
            .type = FRAME_REQUEST, .key = {.comm = 9, .channel = i}, .length = 1 << 20});
        if (i % 100 == 0)
            turns(TCP_LOOKS);
    }
    struct transport_header header;
    put_frame((struct frame){.type = FRAME_REQUEST, .key = key, .length = 1 << 20});
    turns(TCP_LOOKS);
    while (get_frame(&frame)) {
        cr_assert_eq(frame.type, FRAME_RETRY);
        cr_assert_geq(frame.key.channel, MUX_MAX_REQUESTS);
        retries++;
    }
    cr_assert_eq(retries, 10);
    cr_assert(transport_tcp.pending(
        transport, mux_stream_find(mux_of(transport)->connections[0], &key, false), &header));
    cr_assert_eq(header.length, 1 << 20);
    cr_assert_eq(failed, 0);
}

Test(wire, retry_asks_again) {
    static char payload[100000];
    struct transport_stream *stream;
    struct transport_piece piece = {payload, sizeof payload};
    struct transport_ticket ticket = {.done = NULL};
    struct transport_header header = {.sequence = 1, .length = sizeof payload};
    struct frame frame;
    let_in_connected();
    stream = opened();
    cr_assert_eq(transport_tcp.post_send(transport, stream, &header, &piece, 1, &ticket),
                 TRANSPORT_OK);
    turns(1);
    cr_assert(get_frame(&frame));
    put_frame((struct frame){.type = FRAME_RETRY, .key = key, .message = 0});
    int64_t deadline = clock_deadline(5000);
    while (!get_frame(&frame)) {
        turns(1);
        cr_assert(!clock_passed(deadline));
    }
    cr_assert_eq(frame.type, FRAME_REQUEST);
    cr_assert_eq(frame.message, 0);
    transport_tcp.quiesce(transport, stream);
}

/* C46: the peer vanishes without a word, with and without something expected of it. */
Test(wire, C46_peer_vanishes) {
    let_in_connected();
    close(wire);
    wire = -1;
    turns(TCP_LOOKS);
    cr_assert_eq(failed, 1);
    cr_assert_not_null(strstr(evidence, "closed by the other side"));
}

/* C91: a write to a peer that is gone raises no signal and ends in a report. */
Test(wire, C91_write_to_a_dead_peer) {
    struct transport_stream *stream;
    struct transport_header header = {.length = 100};
    struct transport_slot slot;
    let_in_connected();
    stream = opened();
    close(wire);
    wire = -1;
    cr_assert_eq(transport_tcp.reserve(transport, stream, &header, &slot), TRANSPORT_OK);
    transport_tcp.commit(transport, stream, &slot);
    turns(TCP_LOOKS);
    cr_assert_eq(failed, 1);
    cr_assert_eq(transport_tcp.reserve(transport, stream, &header, &slot), TRANSPORT_FAILED);
}

/* Who is admitted in which state. */
Test(wire, crossing_is_decided_by_rank) {
    cr_assert_not(transport_tcp.admit(transport, 1));
    cr_assert_not(transport_tcp.admit(transport, 7));
    cr_assert_not(transport_tcp.admit(transport, -1));
    atomic_store(&tcp_of(transport)->states[0], TCP_DIALING);
    atomic_store(&tcp_of(transport)->states[2], TCP_DIALING);
    cr_assert(transport_tcp.admit(transport, 0), "the lower rank's attempt lives");
    cr_assert_not(transport_tcp.admit(transport, 2), "the higher rank's does not");
    atomic_store(&tcp_of(transport)->states[2], TCP_WAITING);
    cr_assert(transport_tcp.admit(transport, 2));
    atomic_store(&tcp_of(transport)->states[2], TCP_GIVEN_UP);
    cr_assert_not(transport_tcp.admit(transport, 2));
    atomic_store(&tcp_of(transport)->states[2], TCP_READY);
    cr_assert_not(transport_tcp.admit(transport, 2));
}

/* A port where nobody listens any more: given up after about two seconds, with the address. */
Test(wire, refused_is_given_up) {
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof name;
    int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_eq(bind(taken, (struct sockaddr *)&name, length), 0); /* bound, not listening */
    cr_assert_eq(getsockname(taken, (struct sockaddr *)&name, &length), 0);
    addresses.inet[0] = (struct net_address){
        .family = AF_INET, .port = ntohs(name.sin_port), .bytes = {127, 0, 0, 1}};
    int64_t begin = clock_now_ns(), deadline = clock_deadline(20000);
    transport_tcp.connect(transport, 2);
    while (!unreachable) {
        struct pollfd descriptor = {.fd = transport_tcp.descriptor(transport), .events = POLLIN};
        cr_assert(!clock_passed(deadline));
        if (transport_tcp.arm(transport))
            poll(&descriptor, 1, 5000); /* its timers must end the sleep */
        transport_tcp.disarm(transport);
        turns(TCP_LOOKS);
    }
    cr_assert_eq(system_error, ECONNREFUSED);
    cr_assert_not_null(strstr(evidence, "127.0.0.1:"), "%s", evidence);
    cr_assert_lt(clock_now_ns() - begin, 6000000000);
    close(taken);
}

/* C82: descriptors above 1023. */
Test(wire, C82_many_descriptors) {
    struct rlimit limit;
    struct transport *high;
    static int files[2000];
    cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (int i = 0; i < 2000 && limit.rlim_cur >= 4096; i++)
        files[i] = dup(2);
    high = transport;
    cr_assert_eq(transport_tcp.open(&host, &transport), ROTA_OK);
    let_in_connected();
    transport_tcp.close(high);
    if (limit.rlim_cur >= 4096) {
        cr_assert_gt(wire, 1023);
        cr_assert_gt(transport_tcp.descriptor(transport), 1023);
    }
    put_frame(data_frame(0, 0, true));
    turns(TCP_LOOKS);
    struct transport_arrival arrival;
    cr_assert_eq(transport_tcp.peek(transport, opened(), &arrival), TRANSPORT_OK);
    for (int i = 0; i < 2000 && limit.rlim_cur >= 4096; i++)
        close(files[i]);
}

/* -- several sockets ----------------------------------------------------------------------- */

static int further; /* the peer's end of the second one */

static void setup_striped(void) {
    setenv("ROTA_TCP_CONNECTIONS", "2", 1);
    setup();
    unsetenv("ROTA_TCP_CONNECTIONS");
    further = -1;
}

static void teardown_striped(void) {
    teardown();
    if (further >= 0)
        close(further);
}

TestSuite(striped, .init = setup_striped, .fini = teardown_striped, .timeout = 30);

static void put_chunk(uint32_t length, uint16_t next, uint16_t magic) {
    struct tcp_chunk_head head = {.length = length, .next = next, .magic = magic};
    put(&head, sizeof head);
}

static void let_in_striped(void) {
    int sockets[2];
    let_in();
    put_chunk(sizeof(struct frame), 0, TCP_CHUNK_MAGIC);
    put_frame(
        (struct frame){.type = FRAME_INIT, .credit = 64, .total = mux_of(transport)->slot_charge});
    turns(2);
    cr_assert_eq(connected, 1);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    further = sockets[0];
    transport_tcp.accept_stripe(transport, 0, 1, sockets[1]);
}

Test(striped, wrong_heads_are_refused) {
    static const struct tcp_chunk_head wrong[] = {{0, 0, TCP_CHUNK_MAGIC},
                                                  {TCP_CHUNK + 1, 0, TCP_CHUNK_MAGIC},
                                                  {8, 2, TCP_CHUNK_MAGIC},
                                                  {8, 0, TCP_CHUNK_MAGIC + 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        connected = failed = 0;
        let_in_striped();
        put(&wrong[i], sizeof wrong[i]);
        expect_failure("head of a chunk is wrong");
        teardown_striped();
        setup_striped();
    }
}

/* What the second socket brought first is read when its turn comes; a socket that nobody asked for
 * is closed. */
Test(striped, order_is_that_of_the_chunks) {
    struct transport_arrival shown;
    int sockets[2], first;
    let_in_striped();
    struct transport_stream *stream = opened();
    struct frame frame = data_frame(0, 6, true);
    frame_seal(&frame);
    first = wire;
    wire = further;
    put_chunk(4, 0, TCP_CHUNK_MAGIC);
    put("rota", 4);
    turns(TCP_LOOKS);
    cr_assert_eq(arrived, 0);
    wire = first;
    put_chunk(sizeof frame + 2, 1, TCP_CHUNK_MAGIC);
    put(&frame, sizeof frame);
    put("a ", 2);
    turns(TCP_LOOKS);
    cr_assert_eq(arrived, 1);
    cr_assert_eq(transport_tcp.peek(transport, stream, &shown), TRANSPORT_OK);
    cr_assert_eq(memcmp(shown.pieces[0].data, "a rota", 6), 0);
    transport_tcp.release(transport, stream, &shown);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
    transport_tcp.accept_stripe(transport, 0, 1, sockets[1]);
    char byte;
    cr_assert_eq(recv(sockets[0], &byte, 1, MSG_DONTWAIT), 0);
    close(sockets[0]);
    cr_assert_eq(failed, 0);
}
