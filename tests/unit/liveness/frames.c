/* What comes in over control connections: messages as bytes, and peers that send anything else. */
#include "base/clock.h"
#include "bootstrap/control.h"
#include "liveness/agreement.h"
#include "liveness/wire.h"
#include <criterion/criterion.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static uint64_t state = 88172645463325252u;
static uint32_t draw(uint32_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint32_t)(state >> 16) % below;
}

static void draw_set(struct ranks *set) {
    ranks_clear(set);
    for (uint32_t i = draw(6); i > 0; i--)
        ranks_add(set, (int)draw((uint32_t)set->n));
}

static bool same_set(const struct ranks *a, const struct ranks *b) {
    return memcmp(a->words, b->words, ranks_words(a) * sizeof *a->words) == 0;
}

Test(frames, view_messages_as_bytes_and_back) {
    enum { N = 100 };
    static uint8_t payload[WIRE_MAX];
    struct wire_view in;
    struct ranks dead, failed;
    cr_assert(wire_view_init(&in, N) && ranks_init(&dead, N) && ranks_init(&failed, N));
    for (int i = 0; i < 2000; i++) {
        struct view_value value = {.status = ROTA_ERR_PEER, .failed = &failed};
        snprintf(value.text, sizeof value.text, "rank %u exited", draw(100));
        struct view_message out = {.type = 1 + draw(VIEW_MESSAGE_TYPES - 1),
                                   .epoch = draw(UINT32_MAX),
                                   .ballot = {draw(1000), draw(N)},
                                   .dead = draw(2) ? &dead : NULL,
                                   .accepted = {draw(1000), draw(N)},
                                   .decided = draw(2),
                                   .value = draw(2) ? &value : NULL,
                                   .peer = (int)draw(N),
                                   .proved = draw(2),
                                   .reason = draw(2) ? "why" : NULL};
        draw_set(&dead);
        draw_set(&failed);
        size_t bytes = wire_view_write(&out, payload, sizeof payload);
        cr_assert_gt(bytes, 0);
        cr_assert(wire_view_read(payload, bytes, &in));
        const struct view_message *got = &in.message;
        cr_assert(got->type == out.type && got->epoch == out.epoch && got->peer == out.peer);
        cr_assert(memcmp(&got->ballot, &out.ballot, sizeof out.ballot) == 0 &&
                  memcmp(&got->accepted, &out.accepted, sizeof out.accepted) == 0);
        cr_assert(got->decided == out.decided && got->proved == out.proved);
        cr_assert(out.dead != NULL ? same_set(got->dead, &dead) : ranks_empty(got->dead));
        cr_assert_eq(got->value != NULL, out.value != NULL);
        if (got->value != NULL)
            cr_assert(same_set(got->value->failed, &failed) &&
                      strcmp(got->value->text, value.text) == 0 &&
                      got->value->status == value.status);
        cr_assert_str_eq(got->reason, out.reason != NULL ? out.reason : "");
        /* Cut anywhere, or with more behind it, it is none. */
        cr_assert_not(wire_view_read(payload, draw((uint32_t)bytes), &in));
        cr_assert_not(wire_view_read(payload, bytes + 1, &in));
        cr_assert_eq(wire_view_write(&out, payload, bytes - 1), 0);
    }
    wire_view_free(&in);
    ranks_free(&dead);
    ranks_free(&failed);
}

Test(frames, sets_that_are_too_large_are_not_sent) {
    enum { N = 20000 };
    static uint8_t payload[WIRE_MAX];
    struct ranks all;
    cr_assert(ranks_init(&all, N));
    for (int r = 0; r < N; r++)
        ranks_add(&all, r);
    struct view_message out = {.type = VIEW_PREPARE, .dead = &all};
    cr_assert_eq(wire_view_write(&out, payload, sizeof payload), 0);
    ranks_free(&all);
}

/* Sound frames with some bytes changed, and noise: read without harm, and what is accepted is
 * within its bounds; the view takes it without harm, too. */
Test(frames, changed_bytes) {
    enum { N = 9 };
    uint8_t payload[512], changed[512];
    struct wire_view in;
    struct ranks set;
    uint64_t accepted = 0;
    cr_assert(wire_view_init(&in, N) && ranks_init(&set, N));
    for (int i = 0; i < 200000; i++) {
        struct view_value value = {.status = ROTA_ERR_TIMEOUT, .failed = &set, .text = "text"};
        struct view_message out = {.type = 1 + draw(VIEW_MESSAGE_TYPES - 1),
                                   .ballot = {1, draw(N)},
                                   .dead = &set,
                                   .value = &value,
                                   .reason = "why"};
        draw_set(&set);
        size_t bytes = wire_view_write(&out, payload, sizeof payload);
        memcpy(changed, payload, bytes);
        for (uint32_t k = 1 + draw(3); k > 0; k--)
            changed[draw((uint32_t)bytes)] = (uint8_t)draw(256);
        if (!wire_view_read(changed, bytes, &in))
            continue;
        accepted++;
        cr_assert(in.message.peer >= 0 && in.message.peer < N);
        cr_assert_lt(strlen(in.reason), sizeof in.reason);
        cr_assert_lt(strlen(in.value.text), sizeof in.value.text);
        RANKS_EACH (in.message.dead, rank)
            cr_assert_lt(rank, N);
    }
    cr_assert_gt(accepted, 1000);
    wire_view_free(&in);
    ranks_free(&set);
}

static void no_send(void *context, int to, const struct view_message *message) {
    (void)context, (void)to, (void)message;
}
static void no_decision(void *context, const struct view_value *value) {
    (void)context, (void)value;
}
static void no_change(void *context) {
    (void)context;
}
static void no_isolation(void *context, const char *text, const struct ranks *unreached) {
    (void)context, (void)text, (void)unreached;
}
static void no_agreement_send(void *context, int to, const struct agreement_message *message) {
    (void)context, (void)to, (void)message;
}
static void no_agreement(void *context, const struct liveness_agreement *agreement) {
    (void)context, (void)agreement;
}

/* Sound messages that make no sense: from anybody, of any epoch and ballot. */
Test(frames, messages_without_sense) {
    enum { N = 6 };
    struct view_times times = {.collect = 2, .ballot = 10, .takeover = 15, .isolation = 100000};
    struct view_events events = {
        .send = no_send, .decided = no_decision, .unchanged = no_change, .isolated = no_isolation};
    struct agreement_events agreed = {.send = no_agreement_send, .agreed = no_agreement};
    struct ranks dead, failed;
    int64_t now = 1;
    cr_assert(ranks_init(&dead, N) && ranks_init(&failed, N));
    for (int life = 0; life < 300; life++) {
        struct view *view = view_create(N, life % N, &times, &events);
        struct agreements *agreements = agreements_create(N, life % N, view, &agreed);
        for (int i = 0; i < 500; i++) {
            struct view_value value = {.status = ROTA_ERR_PEER, .failed = &failed, .text = "x"};
            int from = (int)draw(N);
            struct view_message message = {.type = 1 + draw(VIEW_MESSAGE_TYPES - 1),
                                           .epoch = draw(8) == 0 ? draw(UINT32_MAX) : draw(4),
                                           .ballot = {draw(9), draw(2) ? (uint32_t)from : draw(N)},
                                           .dead = draw(4) == 0 ? &dead : NULL,
                                           .accepted = {draw(4), draw(UINT32_MAX)},
                                           .decided = draw(2),
                                           .value = draw(2) ? &value : NULL,
                                           .peer = (int)draw(N),
                                           .reason = "why"};
            struct agreement_message agreement = {.type = 1 + draw(6),
                                                  .epoch = draw(3),
                                                  .topic = {.number = draw(200)},
                                                  .accepted_epoch = draw(2) ? UINT32_MAX : draw(3),
                                                  .value = {.epoch = draw(3)}};
            int ranks[2] = {(int)draw(N), (int)draw(N)};
            draw_set(&dead);
            draw_set(&failed);
            view_receive(view, from, &message, ++now);
            view_tick(view, now);
            if (from != life % N)
                agreements_receive(agreements, from, &agreement, now);
            if (draw(20) == 0)
                agreements_begin(agreements, &agreement.topic, ranks, 2, &agreement.mine, now);
            if (draw(20) == 0)
                agreements_view_changed(agreements, now);
            cr_assert_leq(view_epoch(view), (uint32_t)N);
            cr_assert_not(ranks_has(view_dead(view), life % N));
        }
        agreements_destroy(agreements);
        view_destroy(view);
    }
    ranks_free(&dead);
    ranks_free(&failed);
}

/* -- a peer that holds the key and sends nonsense ------------------------------------------------
 */

static _Atomic int messages, others;
static void on_message(void *context, int from, const void *message, size_t bytes) {
    (void)context;
    cr_assert(from == 1 && bytes == 5 && memcmp(message, "hello", 5) == 0);
    atomic_fetch_add(&messages, 1);
}
static void on_verdict(void *context, const struct liveness_verdict *verdict) {
    (void)context, (void)verdict;
    atomic_fetch_add(&others, 1);
}
static void on_cleared(void *context, int peer) {
    (void)context, (void)peer;
    atomic_fetch_add(&others, 1);
}
static void on_isolated(void *context, const char *text, const int *unreached, int nunreached) {
    (void)context, (void)text, (void)unreached, (void)nunreached;
    atomic_fetch_add(&others, 1);
}

static int dial(const struct net_identity *identity, const char *name) {
    struct net_target target = {.local_name = name};
    struct net_answer answer;
    struct net_dial *made;
    bool finished = false;
    cr_assert_eq(net_dial_start(identity, &target, 0, NET_PURPOSE_CONTROL, NULL, 0,
                                clock_deadline(5000), &made),
                 ROTA_OK);
    while (!finished) {
        uint32_t events;
        struct pollfd one = {.fd = net_dial_descriptor(made, &events)};
        one.events = (short)events;
        poll(&one, 1, 1000);
        cr_assert_eq(net_dial_step(made, &finished, &answer), ROTA_OK);
    }
    int fd = net_dial_take(made, NULL, NULL);
    net_dial_free(made);
    return fd;
}

/* Sends, and whether the other side closes. */
static bool is_closed_after(int fd, const void *data, size_t bytes) {
    char byte;
    cr_assert_eq(net_write_all(fd, data, bytes, clock_deadline(1000)), ROTA_OK);
    return net_read_all(fd, &byte, 1, clock_deadline(300)) == ROTA_ERR_PEER;
}

Test(frames, bad_frames_close_the_connection_and_prove_nothing, .timeout = 60) {
    struct settings *settings;
    struct bootstrap_record records[2] = {0};
    struct net_identity identity[2] = {0};
    struct liveness *liveness;
    const struct liveness_events events = {.message = on_message,
                                           .verdict = on_verdict,
                                           .cleared = on_cleared,
                                           .isolated = on_isolated};
    cr_assert_eq(settings_load(&settings), ROTA_OK);
    cr_assert_eq(control_acquire(settings, &records[0].addresses), ROTA_OK);
    for (int r = 0; r < 2; r++) {
        cr_assert_eq(bootstrap_describe(settings, &records[r]), ROTA_OK);
        identity[r].rank = r;
        identity[r].protocol_first = identity[r].protocol_last = 1;
        identity[r].incarnation = records[r].incarnation = (uint64_t)r + 3;
    }
    cr_assert_eq(liveness_open(&identity[0], 2, records, settings, &events, NULL, &liveness),
                 ROTA_OK);
    const struct wire_header bad[] = {
        {.magic = 1, .type = WIRE_MESSAGE},
        {.magic = WIRE_MAGIC, .type = 0},
        {.magic = WIRE_MAGIC, .type = WIRE_TYPES},
        {.magic = WIRE_MAGIC, .type = WIRE_MESSAGE, .unused = 1},
        {.magic = WIRE_MAGIC, .type = WIRE_MESSAGE, .bytes = LIVENESS_MAX_MESSAGE + 1},
        {.magic = WIRE_MAGIC, .type = WIRE_VIEW, .bytes = WIRE_MAX + 1},
        {.magic = WIRE_MAGIC, .type = WIRE_VIEW, .bytes = UINT32_MAX},
        {.magic = WIRE_MAGIC, .type = WIRE_PING, .bytes = 7},
        {.magic = WIRE_MAGIC, .type = WIRE_LEFT, .bytes = 1},
        {.magic = WIRE_MAGIC, .type = WIRE_AGREEMENT, .bytes = 63}};
    const char *name = records[0].addresses.local_name;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int fd = dial(&identity[1], name);
        cr_assert(is_closed_after(fd, &bad[i], sizeof bad[i]), "frame %zu", i);
        close(fd);
    }
    struct {
        struct wire_header header;
        char text[5];
    } good = {.header = {.magic = WIRE_MAGIC, .type = WIRE_MESSAGE, .bytes = 5}};
    memcpy(good.text, "hello", 5);
    int fd = dial(&identity[1], name);
    for (size_t i = 0; i < sizeof good.header + 5; i++) { /* byte by byte */
        cr_assert_eq(net_write_all(fd, (char *)&good + i, 1, clock_deadline(1000)), ROTA_OK);
        usleep(1000);
    }
    for (int64_t deadline = clock_deadline(5000); messages < 1 && !clock_passed(deadline);)
        usleep(1000);
    cr_assert_eq(messages, 1);
    struct wire_header view = {.magic = WIRE_MAGIC, .type = WIRE_VIEW, .bytes = 0};
    cr_assert(is_closed_after(fd, &view, sizeof view)); /* sound outside alone */
    close(fd);
    liveness_suspect(liveness, 7, LIVENESS_SILENT, 0, "no such rank");
    liveness_watch(liveness, -1);
    liveness_send(liveness, 0, "to oneself", 10);
    usleep(50000);
    cr_assert_eq(others, 0);
    liveness_close(liveness);
    control_release();
    settings_free(settings);
}
