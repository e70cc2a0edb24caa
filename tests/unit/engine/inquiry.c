/* Inquiry alone: ranks whose recorders and control plane are arrays of this program. */
#include "engine/inquiry.h"

#include "base/clock.h"
#include "engine/inquiry_state.h"
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#define RANKS 4
#define CALLS 16
#define COMM 7
#define GENERATION 99

struct letter {
    int from, to;
    size_t bytes;
    unsigned char data[1024];
};

static struct letter post[4096];
static int sent, delivered;
static bool silent[RANKS]; /* does not hear */

struct node {
    int rank;
    struct inquiry *inquiry;
    struct inquiry_comm *comm;
    _Atomic bool asked;
    struct record_call calls[CALLS]; /* by number */
    uint64_t last;
    struct record_call running;
    struct record_page head;
    bool runs;
    int found, watched, wakes;
    struct inquiry_finding finding;
};
static struct node nodes[RANKS];
static struct bootstrap_record records[RANKS];
static int members[RANKS];

static void node_send(void *context, int peer, const void *message, size_t bytes) {
    const struct node *node = context;
    cr_assert(bytes <= sizeof(post[0].data) && sent < 4096);
    struct letter *letter = &post[sent++];
    letter->from = node->rank;
    letter->to = peer;
    letter->bytes = bytes;
    memcpy(letter->data, message, bytes);
}

static void node_watch(void *context, int peer) {
    ((struct node *)context)->watched |= 1 << peer;
}

static bool node_find(void *context, uint32_t comm, uint32_t generation, uint64_t sequence,
                      struct record_call *call) {
    const struct node *node = context;
    if (comm != COMM || generation != GENERATION)
        return false;
    uint64_t wanted = sequence == 0 ? node->last : sequence;
    if (wanted == 0 || wanted > node->last || wanted >= CALLS)
        return false;
    *call = node->calls[wanted];
    return true;
}

static bool node_running(void *context, struct record_call *call, struct record_page *head,
                         uint64_t *waited_ms) {
    const struct node *node = context;
    if (!node->runs)
        return false;
    *call = node->running;
    *head = node->head;
    *waited_ms = 1234;
    return true;
}

static void node_fence(void *context) {
    (void)context;
    atomic_thread_fence(memory_order_seq_cst);
}

static void node_found(void *context, const struct inquiry_finding *finding) {
    struct node *node = context;
    node->finding = *finding;
    node->found++;
}

static void node_wake(void *context) {
    ((struct node *)context)->wakes++;
}

static void begin(int rank, rota_kind kind, uint64_t count, rota_op op, int root) {
    struct node *node = &nodes[rank];
    struct record_call *call = &node->calls[++node->last];
    memset(call, 0, sizeof(*call));
    atomic_store(&call->sequence, node->last);
    call->kind = (uint8_t)kind;
    call->count = count;
    call->dtype = ROTA_FLOAT32;
    call->op = (uint8_t)op;
    call->mode = ROTA_NUMERICS_EQUAL;
    call->root = root;
    atomic_store(&call->state, RECORD_RUNNING);
    atomic_store(&call->waiting_for, -1);
    if (atomic_load(&node->asked))
        inquiry_started(node->comm);
}

static struct call_summary mine(int rank) {
    return inquiry_summarize(&nodes[rank].calls[nodes[rank].last]);
}

static void deliver(void) {
    while (delivered < sent) {
        const struct letter letter = post[delivered++];
        if (!silent[letter.to])
            inquiry_message(nodes[letter.to].inquiry, letter.from, letter.data, letter.bytes);
    }
}

static void open_all(void) {
    for (int r = 0; r < RANKS; r++) {
        members[r] = r;
        snprintf(records[r].host, sizeof(records[r].host), "host%c", 'a' + r);
        records[r].pid = 100 + r;
    }
    for (int r = 0; r < RANKS; r++) {
        struct inquiry_host host = {.context = &nodes[r],
                                    .rank = r,
                                    .nranks = RANKS,
                                    .records = records,
                                    .send = node_send,
                                    .watch = node_watch,
                                    .find = node_find,
                                    .running = node_running,
                                    .fence = node_fence,
                                    .found = node_found,
                                    .wake = node_wake};
        nodes[r].rank = r;
        cr_assert_eq(inquiry_create(&host, &nodes[r].inquiry), ROTA_OK);
        cr_assert_eq(inquiry_comm_create(nodes[r].inquiry, COMM, GENERATION, members, RANKS, r,
                                         "tp", true, &nodes[r].asked, &nodes[r].comm),
                     ROTA_OK);
    }
}

static void close_all(void) {
    for (int r = 0; r < RANKS; r++) {
        inquiry_comm_destroy(nodes[r].comm, nodes[r].last);
        inquiry_destroy(nodes[r].inquiry);
    }
}

/* A wait of `rank` for `peer` that has lasted. Returns when to come again, after `now`. */
static int64_t wait_for(int rank, int peer, struct inquiry_turn *turn, int64_t waited_ns) {
    struct call_summary call = mine(rank);
    int64_t now = clock_now_ns();
    int64_t next = inquiry_wait(nodes[rank].comm, turn, &call, &peer, 1, now - waited_ns, now);
    return next - (now - waited_ns);
}

Test(inquiry, short_waits_ask_nothing) {
    open_all();
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    struct inquiry_turn turn = {0};
    cr_assert_eq(wait_for(0, 1, &turn, 5000000), INQUIRY_FIRST_NS);
    cr_assert_eq(sent, 0);
    close_all();
}

Test(inquiry, questions_come_rarer) {
    open_all();
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    struct inquiry_turn turn = {0};
    const int64_t ms = 1000000;
    cr_assert_eq(wait_for(0, 1, &turn, 10 * ms), 100 * ms);
    cr_assert_eq(sent, 1);
    cr_assert_eq(nodes[0].watched, 1 << 1);
    turn.next_ns = clock_now_ns();
    cr_assert_eq(wait_for(0, 1, &turn, 100 * ms), 1000 * ms);
    cr_assert_eq(sent, 2);
    /* Who is waited for later is asked at once. */
    wait_for(0, 2, &turn, 101 * ms);
    cr_assert_eq(sent, 3);
    cr_assert_eq(post[2].to, 2);
    wait_for(0, 2, &turn, 102 * ms);
    cr_assert_eq(sent, 3);
    close_all();
}

static void all_found(const char *const words[]) {
    for (int r = 0; r < RANKS; r++) {
        cr_assert_eq(nodes[r].found, 1, "rank %d found %d", r, nodes[r].found);
        const rota_error *record = &nodes[r].finding.record;
        cr_assert_eq(record->status, ROTA_ERR_MISMATCH);
        cr_assert_eq(record->culprit_count, 0);
        for (int i = 0; words[i] != NULL; i++)
            cr_assert(strstr(record->message, words[i]) != NULL, "\"%s\" lacks \"%s\"",
                      record->message, words[i]);
    }
}

/* The engine tells the others what it has found. */
static void tell(int rank) {
    inquiry_notice(nodes[rank].comm, &nodes[rank].finding.record);
    deliver();
}

Test(inquiry, mismatch_names_groups) {
    open_all();
    for (int r = 0; r < RANKS; r++)
        begin(r, r == 2 ? ROTA_KIND_ALL_GATHER : ROTA_KIND_ALL_REDUCE, 1000, ROTA_SUM, -1);
    struct inquiry_turn turn = {0};
    wait_for(0, 2, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[0].found, 1);
    tell(0);
    const char *const words[] = {"ranks 0-1, 3 called all_reduce #1 (float32 sum, 1000)",
                                 "rank 2 called all_gather #1 (float32, 1000)", NULL};
    all_found(words);
    const rota_error *record = &nodes[3].finding.record;
    cr_assert_eq(record->group_count, 2);
    cr_assert_eq(record->groups[0].rank_count, 3);
    cr_assert_eq(record->groups[0].ranks[2], 3);
    cr_assert_eq(record->groups[0].ranks[3], -1);
    cr_assert_str_eq(record->groups[1].call, "all_gather #1 (float32, 1000)");
    close_all();
}

/* The question is older than the call that contradicts. */
Test(inquiry, late_calls_are_compared_at_once) {
    open_all();
    for (int r = 0; r < RANKS - 1; r++)
        begin(r, ROTA_KIND_BROADCAST, 5, 0, 0);
    struct inquiry_turn turn = {0};
    wait_for(1, 3, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[1].found, 0);
    cr_assert(atomic_load(&nodes[3].asked));
    begin(3, ROTA_KIND_BROADCAST, 5, 0, 1);
    cr_assert_not(atomic_load(&nodes[3].asked));
    deliver();
    cr_assert_eq(nodes[1].found, 1);
    tell(1);
    const char *const words[] = {"ranks 0-2 called broadcast #1 (float32, 5) root 0",
                                 "rank 3 called broadcast #1 (float32, 5) root 1", NULL};
    all_found(words);
    close_all();
}

/* A census does not wait for those who do not answer. */
Test(inquiry, census_ends_without_answers) {
    open_all();
    silent[1] = true;
    for (int r = 0; r < RANKS; r++)
        if (r != 3)
            begin(r, ROTA_KIND_ALL_REDUCE, r == 2 ? 9 : 8, ROTA_SUM, -1);
    struct inquiry_turn turn = {0};
    int64_t next = wait_for(0, 2, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[0].found, 0);
    cr_assert_gt(nodes[0].wakes, 0);
    next = wait_for(0, 2, &turn, INQUIRY_FIRST_NS);
    cr_assert_lt(next, 100000000);
    while (nodes[0].found == 0)
        wait_for(0, 2, &turn, INQUIRY_FIRST_NS);
    const char *message = nodes[0].finding.record.message;
    cr_assert(strstr(message, "rank 0 called") && strstr(message, "rank 2 called") &&
                  strstr(message, "rank 3 called nothing yet") && !strstr(message, "rank 1 "),
              "%s", message);
    close_all();
}

Test(inquiry, same_calls_are_no_mismatch) {
    open_all();
    for (int r = 0; r < RANKS; r++)
        begin(r, ROTA_KIND_ALL_REDUCE, 8, ROTA_SUM, -1);
    struct inquiry_turn turn = {0};
    for (int r = 1; r < RANKS; r++)
        wait_for(0, r, &turn, INQUIRY_FIRST_NS);
    deliver();
    for (int r = 0; r < RANKS; r++)
        cr_assert_eq(nodes[r].found, 0);
    close_all();
}

/* What a destroyed communicator's rank still says, and what it said before. */
Test(inquiry, destroyed_is_told) {
    open_all();
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    begin(1, ROTA_KIND_BARRIER, 0, 0, -1);
    inquiry_comm_destroy(nodes[1].comm, 1);
    struct inquiry_turn turn = {0};
    wait_for(0, 1, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[0].found, 0, "it took part in #1");
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    turn = (struct inquiry_turn){0};
    wait_for(0, 1, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[0].found, 1);
    cr_assert_eq(nodes[0].finding.record.status, ROTA_ERR_PEER);
    cr_assert_eq(nodes[0].finding.record.culprits[0], 1);
    inquiry_comm_create(nodes[1].inquiry, COMM, GENERATION, members, RANKS, 1, "tp", true,
                        &nodes[1].asked, &nodes[1].comm);
    close_all();
}

/* A question about a communicator that has failed is answered by why. */
Test(inquiry, failure_is_told_again) {
    open_all();
    rota_error record = ROTA_ERROR_INIT;
    record.status = ROTA_ERR_ABORTED;
    record.peer = -1;
    record.kind = -1;
    snprintf(record.message, sizeof(record.message), "somebody aborted it");
    silent[0] = true;
    inquiry_notice(nodes[2].comm, &record);
    deliver();
    cr_assert_eq(nodes[1].found, 1);
    cr_assert_eq(nodes[0].found, 0);
    silent[0] = false;
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    struct inquiry_turn turn = {0};
    wait_for(0, 2, &turn, INQUIRY_FIRST_NS);
    deliver();
    cr_assert_eq(nodes[0].found, 1);
    const rota_error *heard = &nodes[0].finding.record;
    cr_assert_eq(heard->status, ROTA_ERR_PEER);
    cr_assert(heard->culprit_count == 1 && heard->culprits[0] == 2 && heard->peer == 2);
    cr_assert(strstr(heard->message, "host hostc, pid 102") && strstr(heard->message, "aborted"),
              "%s", heard->message);
    close_all();
}

/* A notice that is there before its communicator. */
Test(inquiry, early_notices_wait) {
    open_all();
    inquiry_comm_destroy(nodes[1].comm, 0);
    inquiry_destroy(nodes[1].inquiry);
    struct inquiry_host host = nodes[0].inquiry->host;
    host.context = &nodes[1];
    host.rank = 1;
    cr_assert_eq(inquiry_create(&host, &nodes[1].inquiry), ROTA_OK);
    rota_error record = ROTA_ERROR_INIT;
    record.status = ROTA_ERR_REVOKED;
    record.peer = record.kind = -1;
    inquiry_notice(nodes[3].comm, &record);
    deliver();
    cr_assert_eq(nodes[1].found, 0);
    inquiry_comm_create(nodes[1].inquiry, COMM, GENERATION, members, RANKS, 1, "tp", true,
                        &nodes[1].asked, &nodes[1].comm);
    cr_assert_eq(nodes[1].found, 1);
    cr_assert_eq(nodes[1].finding.record.status, ROTA_ERR_REVOKED);
    close_all();
}

static void conclude(int rank, int peer, struct inquiry_summary *summary) {
    struct call_summary call = mine(rank);
    inquiry_last(nodes[rank].comm, &call, &peer, 1, clock_now_ns());
    deliver();
    inquiry_conclude(nodes[rank].comm, &call, &peer, 1, 3100, summary);
}

Test(inquiry, absent_and_silent_are_told_apart) {
    open_all();
    silent[3] = true;
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    begin(2, ROTA_KIND_BARRIER, 0, 0, -1);
    struct inquiry_summary summary;
    conclude(0, 1, &summary);
    cr_assert(summary.nabsent == 1 && summary.absent[0] == 1, "%d absent", summary.nabsent);
    cr_assert(summary.nsilent == 1 && summary.silent[0] == 3, "%d silent", summary.nsilent);
    cr_assert(strstr(summary.text, "rank 1 (host hostb, pid 101) has not called for 3.1 s") &&
                  strstr(summary.text, "rank 3 (host hostd, pid 103) does not answer"),
              "%s", summary.text);
    close_all();
}

static void block(int rank, const char *comm, uint32_t id, int waits_for) {
    struct node *node = &nodes[rank];
    node->runs = true;
    memset(&node->running, 0, sizeof(node->running));
    atomic_store(&node->running.sequence, 3);
    node->running.kind = ROTA_KIND_RECV; /* whose peer stands in root */
    node->running.dtype = ROTA_INT32;
    node->running.mode = ROTA_NUMERICS_EQUAL;
    node->running.root = waits_for;
    node->head.comm = id;
    node->head.generation = GENERATION;
    snprintf(node->head.name, sizeof(node->head.name), "%s", comm);
}

/* Rank 0 waits for 1, which waits for 2 elsewhere, which waits for 0. */
Test(inquiry, circles_are_named) {
    open_all();
    _Atomic bool unused[2] = {false, false};
    struct inquiry_comm *other[2];
    for (int i = 0; i < 2; i++)
        inquiry_comm_create(nodes[i + 1].inquiry, COMM + 1, GENERATION, members, RANKS, i + 1, "pp",
                            true, &unused[i], &other[i]);
    begin(0, ROTA_KIND_ALL_REDUCE, 1, ROTA_SUM, -1);
    begin(3, ROTA_KIND_ALL_REDUCE, 1, ROTA_SUM, -1);
    block(1, "pp", COMM + 1, 2);
    block(2, "pp", COMM + 1, 0);
    struct inquiry_summary summary;
    conclude(0, 1, &summary);
    cr_assert(strstr(summary.text, "a circle: rank 0 of the job waits for 1, which in recv") &&
                  strstr(summary.text, "on pp waits for 0"),
              "%s", summary.text);
    cr_assert_eq(summary.nabsent, 2);
    for (int i = 0; i < 2; i++)
        inquiry_comm_destroy(other[i], 0);
    close_all();
}

/* Anything may come: nothing but notices from members, in order, has an effect. */
Test(inquiry, hostile_messages_are_dropped) {
    open_all();
    begin(0, ROTA_KIND_BARRIER, 0, 0, -1);
    uint64_t seed = 12345;
    for (int i = 0; i < 200000; i++) {
        unsigned char bytes[1024];
        for (size_t k = 0; k < sizeof(bytes); k += 8) {
            seed = seed * 6364136223846793005ull + 1442695040888963407ull;
            memcpy(bytes + k, &seed, 8);
        }
        const size_t sizes[] = {sizeof(struct inquiry_question),
                                sizeof(struct inquiry_answer),
                                sizeof(struct inquiry_notice),
                                3,
                                0,
                                1024};
        struct inquiry_head head = {.magic = INQUIRY_MAGIC,
                                    .type = 1 + (uint32_t)(i % 3),
                                    .comm = COMM,
                                    .generation = GENERATION};
        memcpy(bytes, &head, sizeof(head));
        inquiry_message(nodes[0].inquiry, (int)(seed >> 60) % (RANKS + 2) - 1, bytes,
                        sizes[i % 3 + (i % 17 == 0 ? 3 : 0)]);
        sent = delivered = 0;
    }
    cr_assert_eq(nodes[0].found, 0);
    struct inquiry_summary summary;
    conclude(0, 1, &summary);
    close_all();
}
