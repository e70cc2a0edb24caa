/* What the RDMA transport promises beyond the contract, over the double of the libraries: what a
 * message costs, that large ones are written where they belong and by whom no longer, faults. */
#include "world.h"

#include "base/error.h"
#include "memory/memory.h"
#include "transports/verbs/calls.h"
#include "unit/verbs/fake.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE ((size_t)1 << 20)

static struct world world;
static struct world_link there, back;

static void both_ways(void) {
    world_open_connected(&world, 2);
    link_open(&there, &world, 0, 1, 1);
    back = there;
    back.from = there.to;
    back.to = there.from;
}

/* What only the double can do: fail, or stop, when it is told to. */
static void needs_double(void) {
    if (getenv("ROTA_TEST_REAL_DEVICE") != NULL)
        cr_skip_test("faults are injected into the double of the libraries alone");
}

static void *registered(int rank, void *data, size_t bytes) {
    struct transport *transport = world.ranks[rank].transport;
    char key[64];
    size_t key_bytes = 0;
    void *handle = NULL;
    cr_assert_eq(transport->ops->register_memory(transport, data, bytes, key, &key_bytes, &handle),
                 ROTA_OK, "%s", error_record()->message);
    return handle;
}

/* One message from registered memory into registered memory. */
static void send_large(struct world_link *link, char *from, char *to, size_t bytes, uint64_t seed) {
    struct world_ticket sending, receiving;
    struct transport_header header = header_make(seed, bytes);
    pattern_fill(from, bytes, seed);
    memset(to, 0, bytes);
    cr_assert(link_post(link, to, bytes, &receiving));
    world_progress(link->world);
    link_send(link, &header, from, &sending);
    WORLD_UNTIL(link->world, sending.done && receiving.done);
    cr_assert_eq(sending.result, TRANSPORT_OK);
    cr_assert_eq(receiving.result, TRANSPORT_OK);
    cr_assert_eq(receiving.ticket.header.length, bytes);
    cr_assert(pattern_check(to, bytes, seed));
}

/* Sends until messages are written and not copied any more. */
static void warm(struct world_link *link, char *from, char *to, uint64_t seed) {
    bool immediate = fake_counts.immediates > 0;
    int64_t deadline = clock_deadline(WORLD_PATIENCE_MS);
    for (uint64_t i = 0;; i++) {
        struct fake_counts counts = fake_counts;
        send_large(link, from, to, LARGE, seed + i);
        uint64_t writes = fake_counts.writes - counts.writes;
        uint64_t chunks = immediate ? 0 : fake_counts.sends - counts.sends;
        if (writes > chunks)
            return;
        cr_assert(!clock_passed(deadline), "nothing is written in place");
    }
}

static char *large[2];
static void *handles[2];

static void open_large(void) {
    both_ways();
    for (int i = 0; i < 2; i++) {
        large[i] = aligned_alloc(4096, LARGE);
        handles[i] = registered(i, large[i], LARGE);
    }
}

static void close_large(void) {
    link_close(&there);
    for (int i = 0; i < 2; i++) {
        struct transport *transport = world.ranks[i].transport;
        transport->ops->deregister_memory(transport, handles[i]);
        free(large[i]);
    }
    world_close(&world);
}

/* A small message is one inline request (without immediate data two), one in 64 is signalled, and
 * there is nothing else on the wire as long as both sides send. */
Test(verbs, eight_bytes_are_one_request) {
    enum { ROUNDS = 640 };
    char sent[8] = "8 bytes", got[8];
    both_ways();
    for (int i = 0; i < 10; i++) {
        struct transport_header header = header_make((uint64_t)i, sizeof sent);
        cr_assert(link_send_slot(&there, &header, sent));
        link_take(&there, sizeof got, got, sizeof got);
        cr_assert(link_send_slot(&back, &header, sent));
        link_take(&back, sizeof got, got, sizeof got);
    }
    struct fake_counts before = fake_counts;
    for (int i = 0; i < ROUNDS; i++) {
        struct transport_header header = header_make((uint64_t)i, sizeof sent);
        cr_assert(link_send_slot(&there, &header, sent));
        link_take(&there, sizeof got, got, sizeof got);
        cr_assert(link_send_slot(&back, &header, sent));
        link_take(&back, sizeof got, got, sizeof got);
        cr_assert_str_eq(got, sent);
    }
    uint64_t messages = 2 * ROUNDS, each = before.immediates > 0 ? 1 : 2;
    cr_assert_eq(fake_counts.requests - before.requests, messages * each);
    cr_assert_geq(fake_counts.inlined - before.inlined, messages);
    cr_assert_leq(fake_counts.signalled - before.signalled, messages * each / 64 + 2);
    cr_assert_eq(fake_counts.not_ready, 0);
    link_close(&there);
    world_close(&world);
}

/* Messages are taken before their completions, but not before all of them is there. */
Test(verbs, short_messages_that_come_in_pieces) {
    enum { MESSAGES = 3000, MOST = 180 };
    char sent[MOST], got[MOST];
    needs_double();
    both_ways();
    fake_scatter(true);
    for (int i = 0; i < MESSAGES; i++) {
        size_t bytes = 1 + (size_t)i * 7 % MOST;
        struct world_link *link = i % 3 == 0 ? &back : &there;
        struct transport_header header = header_make((uint64_t)i, bytes);
        pattern_fill(sent, bytes, (uint64_t)i);
        cr_assert(link_send_slot(link, &header, sent));
        link_take(link, bytes, got, bytes);
        cr_assert(pattern_check(got, bytes, (uint64_t)i), "message %d", i);
    }
    cr_assert_eq(fake_counts.not_ready, 0);
    fake_scatter(false);
    link_close(&there);
    world_close(&world);
}

/* Both rings full of small messages that nobody takes: credit still comes through. */
Test(verbs, credit_when_one_side_is_silent) {
    enum { MESSAGES = 5000 };
    char sent[64] = "one way", got[64];
    both_ways();
    for (int i = 0; i < MESSAGES; i++) {
        struct transport_header header = header_make((uint64_t)i, sizeof sent);
        cr_assert(link_send_slot(&there, &header, sent));
        link_take(&there, sizeof got, got, sizeof got);
    }
    cr_assert_eq(fake_counts.not_ready, 0);
    link_close(&there);
    world_close(&world);
}

/* A large message between registered buffers is written in place: one write per way, and at most
 * two small messages of each side. */
Test(verbs, a_large_message_is_one_write) {
    open_large();
    warm(&there, large[0], large[1], 1);
    struct fake_counts before = fake_counts;
    send_large(&there, large[0], large[1], LARGE, 1000);
    uint64_t control =
        fake_counts.immediates - before.immediates + fake_counts.sends - before.sends;
    uint64_t chunks = before.immediates > 0 ? 0 : fake_counts.sends - before.sends;
    uint64_t writes = fake_counts.writes - before.writes - chunks;
    cr_assert(writes == (before.immediates > 0 ? 1 : 2), "%d writes", (int)writes);
    cr_assert_leq(control, 4);
    size_t domains = before.immediates > 0 ? 1 : 2; /* of each rank */
    for (size_t rank = 0; rank < 2; rank++) {
        uint64_t own = 0;
        for (size_t i = rank * domains; i < (rank + 1) * domains; i++)
            own += fake_counts.controls[i] - before.controls[i];
        cr_assert_leq(own, 2, "%d by rank %d", (int)own, (int)rank);
    }
    /* Only the double tells; without immediate data a write precedes each send. */
    if (getenv("ROTA_TEST_REAL_DEVICE") == NULL && before.immediates > 0) {
        cr_assert_eq(fake_counts.from, (uintptr_t)large[0]);
        cr_assert_eq(fake_counts.to, (uintptr_t)large[1]);
    }
    cr_assert_leq(fake_counts.written - before.written, LARGE + 4 * 256);
    warm(&back, large[1], large[0], 2000);
    cr_assert_eq(fake_counts.not_ready, 0);
    close_large();
}

/* Several at once, and ends that are not multiples of anything. */
Test(verbs, many_large_messages_in_flight) {
    enum { COUNT = 24 };
    struct world_ticket sending[COUNT], receiving[COUNT];
    open_large();
    warm(&there, large[0], large[1], 1);
    size_t each = LARGE / COUNT - 3;
    pattern_fill(large[0], LARGE, 5);
    memset(large[1], 0, LARGE);
    for (size_t i = 0; i < COUNT; i++)
        cr_assert(link_post(&there, large[1] + i * each, each, &receiving[i]));
    for (size_t i = 0; i < COUNT; i++) {
        struct transport_header header = header_make(i, each);
        link_send(&there, &header, large[0] + i * each, &sending[i]);
    }
    for (size_t i = 0; i < COUNT; i++)
        WORLD_UNTIL(&world, sending[i].done && receiving[i].done);
    cr_assert_eq(memcmp(large[0], large[1], COUNT * each), 0);
    close_large();
}

/* A window of receives that is kept full: the peer is told of half a window at a time. */
Test(verbs, a_window_of_places_is_told_by_halves) {
    enum { WINDOW = 16, COUNT = 10 * WINDOW };
    struct world_ticket sending[WINDOW], receiving[WINDOW];
    open_large();
    warm(&there, large[0], large[1], 1);
    size_t each = LARGE / WINDOW;
    struct fake_counts before = fake_counts;
    pattern_fill(large[0], LARGE, 5);
    memset(large[1], 0, LARGE);
    for (size_t i = 0; i < COUNT + WINDOW; i++) {
        struct transport_header header = header_make(i, each);
        size_t at = i % WINDOW;
        if (i >= WINDOW)
            WORLD_UNTIL(&world, sending[at].done && receiving[at].done);
        if (i >= COUNT)
            continue;
        cr_assert(link_post(&there, large[1] + at * each, each, &receiving[at]));
        link_send(&there, &header, large[0] + at * each, &sending[at]);
    }
    cr_assert_eq(memcmp(large[0], large[1], LARGE), 0);
    uint64_t told = 0;
    size_t domains = before.immediates > 0 ? 1 : 2;
    for (size_t i = domains; i < 2 * domains; i++)
        told += fake_counts.controls[i] - before.controls[i];
    cr_assert_leq(told, WINDOW + 2 * COUNT / WINDOW, "%d messages tell of %d places", (int)told,
                  COUNT);
    cr_assert_geq(fake_counts.writes - before.writes, COUNT - WINDOW, "written in place");
    close_large();
}

/* When the receiver has let go, a write that was on its way changes nothing; other streams and
 * later messages are served, soon by writes again. */
Test(verbs, quiesced_receiver_is_not_written) {
    struct world_link other;
    struct world_ticket sending, receiving;
    needs_double();
    open_large();
    link_open(&other, &world, 0, 1, 2);
    warm(&there, large[0], large[1], 1);
    fake_pause(true);
    struct transport_header header = header_make(7, LARGE);
    memset(large[1], 0x55, LARGE);
    cr_assert(link_post(&other, large[1], LARGE, &receiving));
    fake_pause(false);
    for (int i = 0; i < 100; i++)
        world_progress(&world);
    fake_pause(true);
    uint64_t writes = fake_counts.writes;
    pattern_fill(large[0], LARGE, 7);
    link_send(&other, &header, large[0], &sending);
    world_progress(&world);
    cr_assert_gt(fake_counts.writes, writes, "the write is on its way");
    other.to->transport->ops->quiesce(other.to->transport, other.to->stream);
    fake_pause(false);
    for (int i = 0; i < 2000; i++)
        world_progress(&world);
    for (size_t i = 0; i < LARGE; i++)
        cr_assert_eq(large[1][i], 0x55);
    cr_assert_eq(receiving.done, 0);
    cr_assert_eq(sending.done, 1, "it went by the ring, to nobody");
    cr_assert_eq(world.ranks[0].failed[1] + world.ranks[1].failed[0], 0);
    send_large(&there, large[0], large[1], LARGE, 8);
    warm(&there, large[0], large[1], 100);
    warm(&back, large[1], large[0], 200);
    link_close(&other);
    close_large();
}

/* A sender that has let go may use its memory; what it had begun to write goes into no result. */
Test(verbs, quiesced_sender_is_not_read) {
    struct world_ticket sending, receiving, again;
    needs_double();
    open_large();
    warm(&there, large[0], large[1], 1);
    struct transport_header header = header_make(7, LARGE);
    cr_assert(link_post(&there, large[1], LARGE, &receiving));
    for (int i = 0; i < 100; i++)
        world_progress(&world);
    fake_pause(true);
    uint64_t writes = fake_counts.writes;
    link_send(&there, &header, large[0], &sending);
    cr_assert_gt(fake_counts.writes, writes);
    there.from->transport->ops->quiesce(there.from->transport, there.from->stream);
    fake_pause(false);
    pattern_fill(large[0], LARGE, 9);
    link_send(&there, &header, large[0], &again);
    WORLD_UNTIL(&world, receiving.done && again.done);
    cr_assert_eq(sending.done, 0);
    cr_assert(pattern_check(large[1], LARGE, 9));
    close_large();
}

/* Nothing of an earlier use of an address is remembered: 100 times other memory at one place, in
 * turns registered and not. */
Test(verbs, C103_addresses_are_used_again) {
    both_ways();
    char *place = mmap(NULL, LARGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    large[0] = aligned_alloc(4096, LARGE);
    handles[0] = registered(0, large[0], LARGE);
    struct transport *transport = world.ranks[1].transport;
    for (uint64_t round = 0; round < 100; round++) {
        cr_assert_eq(mmap(place, LARGE, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0),
                     place);
        void *handle = round % 3 != 0 ? registered(1, place, LARGE) : NULL;
        send_large(&there, large[0], place, LARGE, round);
        send_large(&back, place, large[0], LARGE, round + 1000);
        if (handle)
            transport->ops->deregister_memory(transport, handle);
        cr_assert_eq(munmap(place, LARGE), 0);
    }
    link_close(&there);
    world.ranks[0].transport->ops->deregister_memory(world.ranks[0].transport, handles[0]);
    free(large[0]);
    world_close(&world);
}

/* A wire that is cut is noticed by what is sent, whatever it is, and named. */
Test(verbs, cut_wire_ends_in_evidence) {
    struct world_ticket sending, receiving;
    needs_double();
    open_large();
    warm(&there, large[0], large[1], 1);
    struct transport_header header = header_make(7, LARGE);
    cr_assert(link_post(&there, large[1], LARGE, &receiving));
    for (int i = 0; i < 100; i++)
        world_progress(&world);
    fake_cut(true);
    link_send(&there, &header, large[0], &sending);
    WORLD_UNTIL(&world, world.ranks[0].failed[1] == 1 && sending.done);
    cr_assert_eq(sending.result, TRANSPORT_FAILED);
    cr_assert_not_null(strstr(world.ranks[0].evidence, "does not answer"), "%s",
                       world.ranks[0].evidence);
    cr_assert_eq(world.ranks[0].system_error, ETIMEDOUT);
    fake_cut(false);
    link_close(&there);
    for (int i = 0; i < 2; i++) {
        transport_find("verbs")->deregister_memory(world.ranks[i].transport, handles[i]);
        free(large[i]);
    }
    world_close(&world);
}

/* Address resolution that fails now and then; a call that the adapter refuses. */
Test(verbs, calls_are_tried_again) {
    needs_double();
    world_open(&world, 2);
    fake_fail("address", 1, 3, ETIMEDOUT);
    fake_fail("connect", 1, 1, EINVAL);
    world.ranks[0].transport->ops->connect(world.ranks[0].transport, 1);
    WORLD_UNTIL(&world, world.ranks[0].connected[1] && world.ranks[1].connected[0]);
    world_close(&world);
}

/* What ends a call says to which address, from which port, and what was expected. */
Test(verbs, calls_that_fail_say_why) {
    static const struct {
        const char *call, *text;
    } cases[] = {{"address", "no adapter here answers for that address"},
                 {"route", "no path to that GID"},
                 {"unreachable", "no answer to the call"},
                 {"connection", "the connection was answered, but not made"},
                 {"listener", "nobody listens there"}};
    needs_double();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_open(&world, 2);
        error_clear();
        fake_fail(cases[i].call, 1, 1, EIO);
        world.ranks[0].transport->ops->connect(world.ranks[0].transport, 1);
        WORLD_UNTIL(&world, strstr(error_record()->message, cases[i].text) != NULL);
        cr_assert_not_null(strstr(error_record()->message, "rank 1 by RDMA at 1"), "%s",
                           error_record()->message);
        cr_assert_not_null(strstr(error_record()->message, " from fake0:1 (1"), "%s",
                           error_record()->message);
        WORLD_UNTIL(&world, world.ranks[0].connected[1] && world.ranks[1].connected[0]);
        world_close(&world);
    }
}

Test(verbs, crossing_calls_make_one_connection) {
    world_open(&world, 4);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b)
                world.ranks[a].transport->ops->connect(world.ranks[a].transport, b);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            if (a != b)
                WORLD_UNTIL(&world, world.ranks[a].connected[b] == 1);
    cr_assert_eq(fake_counts.pairs, 12);
    world_close(&world);
}

static bool yes(void *context, struct transport *transport, int peer) {
    (void)context, (void)transport, (void)peer;
    return true;
}

/* A peer that no packet reaches is left to the next transport, by both sides, where there is one;
 * else the CM goes on. */
Test(verbs, unanswered_calls_end_where_others_can_serve) {
    needs_double();
    setenv("ROTA_RDMA_ANSWER_MS", "200", 1);
    world_open(&world, 3);
    world.ranks[0].host.has_other = yes;
    fake_cut(true);
    int64_t begun = clock_now_ns();
    for (int rank = 0; rank < 2; rank++)
        world.ranks[rank].transport->ops->connect(world.ranks[rank].transport, 2);
    WORLD_UNTIL(&world, world.ranks[0].unreachable[2] == 1);
    cr_assert_geq(clock_now_ns() - begun, 200000000);
    cr_assert_not_null(strstr(world.ranks[0].evidence, "UDP 4791"), "%s", world.ranks[0].evidence);
    cr_assert_eq(world.ranks[0].system_error, ETIMEDOUT);
    for (int64_t until = clock_deadline(300); !clock_passed(until);)
        world_progress(&world);
    cr_assert_eq(world.ranks[1].unreachable[2], 0);
    fake_cut(false);
    world.ranks[2].transport->ops->connect(world.ranks[2].transport, 0);
    WORLD_UNTIL(&world, world.ranks[2].unreachable[0] == 1);
    cr_assert_eq(world.ranks[0].connected[2] + world.ranks[2].connected[0], 0);
    world_close(&world);
}

/* More peers than a shared receive queue has room for. */
Test(verbs, many_peers_on_a_device) {
    needs_double();
    struct transport *transport = NULL;
    world_open(&world, 2);
    struct transport_host host = world.ranks[0].host;
    host.nranks = 301;
    cr_assert_eq(transport_find("verbs")->open(&host, &transport), ROTA_OK, "%s",
                 error_record()->message);
    transport->ops->close(transport);
    host.nranks = 5000;
    cr_assert_eq(transport_find("verbs")->open(&host, &transport), ROTA_ERR_UNSUPPORTED);
    cr_assert_not_null(strstr(error_record()->message, "too few"));
    world_close(&world);
}

/* C79: calls that fail when the transport is opened cost the transport, with a line that names
 * call and error; nothing is left behind. */
Test(verbs, C79_calls_that_fail_at_the_beginning) {
    static const struct {
        const char *call;
        int error;
        const char *text;
    } cases[] = {{"alloc_pd", ENOMEM, "ibv_alloc_pd"},
                 {"create_cq", ENOMEM, "ibv_create_cq"},
                 {"create_comp_channel", EMFILE, "ibv_create_comp_channel"},
                 {"reg_mr", ENOMEM, "ibv_reg_mr"},
                 {"query_device", EIO, "ibv_query_device"},
                 {"open_device", EACCES, "ibv_open_device"},
                 {"get_device_list", EPERM, "ibv_get_device_list"},
                 {"create_event_channel", ENODEV, "rdma_create_event_channel"},
                 {"listen", EADDRINUSE, "rdma_listen"}};
    needs_double();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct transport *transport = NULL;
        world_open(&world, 2);
        fake_fail(cases[i].call, 1, 2, cases[i].error);
        cr_assert_eq(transport_find("verbs")->open(&world.ranks[0].host, &transport),
                     ROTA_ERR_UNSUPPORTED);
        cr_assert_not_null(strstr(error_record()->message, cases[i].text), "%s: %s", cases[i].call,
                           error_record()->message);
        cr_assert_eq(error_record()->system_error, cases[i].error);
        world_close(&world);
    }
}

/* C79: memory that cannot be locked when a connection is made costs the connection, at once and on
 * both sides. */
Test(verbs, C79_no_memory_for_a_connection) {
    needs_double();
    world_open(&world, 2);
    fake_fail("reg_mr", 1, 1, ENOMEM);
    world.ranks[0].transport->ops->connect(world.ranks[0].transport, 1);
    WORLD_UNTIL(&world, world.ranks[0].unreachable[1] == 1);
    cr_assert_not_null(strstr(world.ranks[0].evidence, "ibv_reg_mr"), "%s",
                       world.ranks[0].evidence);
    world.ranks[1].transport->ops->connect(world.ranks[1].transport, 0);
    WORLD_UNTIL(&world, world.ranks[1].unreachable[0] == 1);
    world_close(&world);
}

/* Registering the user's memory fails with what to do about it, and messages are copied. */
Test(verbs, C79_memory_that_cannot_be_registered) {
    struct transport *transport;
    char key[64];
    size_t key_bytes = 0;
    void *handle = NULL;
    needs_double();
    both_ways();
    transport = world.ranks[0].transport;
    large[0] = malloc(LARGE);
    large[1] = malloc(LARGE);
    fake_fail("reg_mr", 1, 2, ENOMEM);
    cr_assert_eq(
        transport->ops->register_memory(transport, large[0], LARGE, key, &key_bytes, &handle),
        ROTA_ERR_SYSTEM);
    cr_assert_not_null(strstr(error_record()->message, "ibv_reg_mr of 1048576 bytes"));
    send_large(&there, large[0], large[1], LARGE, 3);
    free(large[0]);
    free(large[1]);
    link_close(&there);
    world_close(&world);
}

/* -- memory of other kinds ----------------------------------------------------------------- */

enum { EXPORTED_KIND = 9, EXPORT_OFFSET = 8192 };
static const struct verbs_calls *doubled;
static struct verbs_calls extended;
static char *exported; /* the range that the kind claims */
static int exports, taken, descriptor_now;
static bool refuses;

static bool exported_identify(const void *pointer, size_t bytes) {
    return exported != NULL && (const char *)pointer >= exported &&
           (const char *)pointer + bytes <= exported + LARGE;
}

static bool exported_export(const void *pointer, size_t bytes, int *descriptor, uint64_t *offset) {
    exports++;
    cr_assert(exported_identify(pointer, bytes));
    *descriptor = descriptor_now = memfd_create("exported", MFD_CLOEXEC);
    *offset = EXPORT_OFFSET + (uint64_t)((const char *)pointer - exported);
    return *descriptor >= 0;
}

static struct ibv_mr *take_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
                                  int descriptor, int access) {
    cr_assert_neq(fcntl(descriptor, F_GETFD), -1);
    cr_assert_eq(offset, EXPORT_OFFSET + (iova - (uintptr_t)exported));
    taken++;
    if (!refuses)
        return doubled->reg_mr(pd, (void *)(uintptr_t)iova, length, access);
    errno = EOPNOTSUPP;
    return NULL;
}

/* A kind that has a DMA-buf is registered by it; where the library lacks the call, or the device
 * refuses, by its addresses. The descriptor is closed, once. */
Test(verbs, dmabuf_of_another_kind) {
    static struct memory_kind kind;
    needs_double();
    kind = memory_host;
    kind.name = "exported";
    kind.id = EXPORTED_KIND;
    kind.identify = exported_identify;
    kind.export_dmabuf = exported_export;
    cr_assert_eq(memory_kind_register(&kind), ROTA_OK);
    cr_assert_eq(posix_memalign((void **)&exported, 4096, LARGE), 0);
    for (int way = 0; way < 3; way++) { /* absent, refused, taken */
        struct transport *transport = NULL;
        world_open(&world, 2);
        cr_assert_eq(verbs_calls_load(&doubled), ROTA_OK);
        extended = *doubled;
        extended.reg_dmabuf_mr = way > 0 ? take_dmabuf : NULL;
        refuses = way == 1;
        exports = taken = 0;
        verbs_calls_replace(&extended);
        cr_assert_eq(transport_find("verbs")->open(&world.ranks[0].host, &transport), ROTA_OK);
        int ports = fake_counts.memory;
        char key[64];
        size_t key_bytes = 0;
        void *handle = NULL;
        cr_assert_eq(
            transport->ops->register_memory(transport, exported, LARGE, key, &key_bytes, &handle),
            ROTA_OK);
        ports = fake_counts.memory - ports;
        cr_assert_geq(ports, 1);
        cr_assert_eq(exports, way > 0);
        cr_assert_eq(taken, way > 0 ? ports : 0);
        cr_assert(way == 0 || fcntl(descriptor_now, F_GETFD) == -1, "left open");
        int next = memfd_create("next", MFD_CLOEXEC);
        cr_assert(way == 0 || next == descriptor_now, "closed twice, or another one left open");
        transport->ops->deregister_memory(transport, handle);
        cr_assert_neq(fcntl(next, F_GETFD), -1);
        close(next);
        transport->ops->close(transport);
        verbs_calls_replace(doubled);
        world_close(&world);
    }
    free(exported);
    exported = NULL;
}
