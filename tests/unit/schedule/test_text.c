/* Text and JSON: exact round trips of all algorithms, and garbage. */
#include "read_schedule.h"

#include <stdio.h>

enum form { TEXT, JSON };

/* Writes a set; the caller frees. */
static char *write_set(const struct sched_set *set, enum form form, size_t *length) {
    char *bytes = NULL;
    FILE *out = open_memstream(&bytes, length);
    cr_assert(out);
    if (form == JSON)
        cr_assert_eq(sched_write_json(set->schedules, set->count, out), ROTA_OK);
    for (int r = 0; form == TEXT && r < set->count; r++)
        cr_assert_eq(sched_write_text(set->schedules[r], out), ROTA_OK);
    cr_assert_eq(fclose(out), 0);
    return bytes;
}

static bool same_list(struct sched_list a, struct sched_list b) {
    return a.begin == b.begin && a.count == b.count;
}

static bool same_step(const struct sched_step *a, const struct sched_step *b) {
    return a->type == b->type && a->flags == b->flags && a->lane == b->lane &&
           a->channel == b->channel && a->position == b->position && a->operands == b->operands &&
           a->peers.count == b->peers.count && same_list(a->src, b->src) &&
           same_list(a->dst, b->dst) && a->waits.count == b->waits.count;
}

static bool same_schedule(const struct sched *a, const struct sched *b) {
    bool same = a->kind == b->kind && a->nranks == b->nranks && a->rank == b->rank &&
                a->root == b->root && a->in_place == b->in_place && a->blocks == b->blocks &&
                a->chunks_per_block == b->chunks_per_block &&
                a->scratch_chunks == b->scratch_chunks && a->lanes == b->lanes &&
                a->channels == b->channels && a->nsteps == b->nsteps && a->nranges == b->nranges &&
                a->npeers == b->npeers && a->nwaits == b->nwaits;
    for (uint32_t i = 0; same && i < a->nsteps; i++)
        same = same_step(&a->steps[i], &b->steps[i]);
    return same && (!a->nranges || !memcmp(a->ranges, b->ranges, a->nranges * sizeof *a->ranges)) &&
           (!a->npeers || !memcmp(a->peers, b->peers, a->npeers * sizeof *a->peers)) &&
           (!a->nwaits || !memcmp(a->waits, b->waits, a->nwaits * sizeof *a->waits));
}

static void check_round_trip(const struct sched_set *set, enum form form, const char *name) {
    size_t length, again_length;
    char *bytes = write_set(set, form, &length);
    struct sched_set again = {0, NULL};
    cr_assert_eq(sched_read(bytes, length, &again), ROTA_OK, "%s: %s", name,
                 error_record()->message);
    cr_assert_eq(again.count, set->count, "%s", name);
    for (int r = 0; r < set->count; r++)
        cr_assert(same_schedule(set->schedules[r], again.schedules[r]), "%s, rank %d", name, r);
    char *again_bytes = write_set(&again, form, &again_length);
    cr_assert(again_length == length && !memcmp(bytes, again_bytes, length), "%s", name);
    free(bytes);
    free(again_bytes);
    sched_set_free(&again);
}

Test(text, round_trips_of_all_algorithms) {
    const struct algorithm *a;
    for (int i = 0; (a = algorithm_at(i)); i++)
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
            for (int n = 1; n < 10; n++) {
                if (!algorithm_can(a, (rota_kind)kind, n))
                    continue;
                int root = sched_kind_rooted((rota_kind)kind) ? n / 2 : -1;
                struct sched_set set = build_schedule(a->name, (rota_kind)kind, n, root, n % 2);
                check_round_trip(&set, TEXT, a->name);
                check_round_trip(&set, JSON, a->name);
                sched_set_free(&set);
            }
}

static const char everything[] =
    "# a comment\n"
    "schedule all_reduce ranks 3 rank 0 chunks 9 scratch 64 in_place # and another\n"
    "\n"
    "0: send to 1,2 input[1:2:3:2] scratch[4:2:1:1]~3:1 partial lane 2 channel 1 wait 1,2\n"
    "1: recv from 1 output[8]\r\n"
    "2:\trecv_reduce from 2,1 position 1 -> scratch[7]~2 load_message\n"
    "3: reduce 3 scratch[0:3]~1 input[0:6] -> output[0:3] load_local finish lane 1\n"
    "4: copy input[0:2] scratch[63]~4 -> output[0] scratch[0:2:5:1]~0:7 wait 3\n"
    "5: send to 1 channel 2 lane 3";

Test(text, everything_that_can_be_written) {
    struct sched_set set = read_schedule(everything);
    cr_assert_eq(set.count, 1);
    const struct sched *s = set.schedules[0];
    cr_expect_eq(s->nsteps, 6);
    cr_expect_eq(s->scratch_chunks, 64);
    cr_expect(s->in_place);
    cr_expect_eq(s->lanes, 4);
    cr_expect_eq(s->channels, 3);
    const struct sched_step *first = &s->steps[0];
    cr_expect_eq(first->peers.count, 2);
    cr_expect_eq(first->waits.count, 2);
    cr_expect_eq(first->flags, SCHED_PARTIAL);
    const struct sched_range *range = &s->ranges[first->src.begin];
    cr_expect(range[0].buffer == SCHED_INPUT && range[0].first == 1 && range[0].count == 2 &&
              range[0].stride == 3 && range[0].reps == 2);
    cr_expect(range[1].buffer == SCHED_SCRATCH && range[1].like == 3 && range[1].like_stride == 1);
    cr_expect_eq(s->steps[2].src.count, 0);
    cr_expect_eq(s->steps[3].operands, 3);
    check_round_trip(&set, TEXT, "text");
    check_round_trip(&set, JSON, "json");
    sched_set_free(&set);
}

static void refuse(const char *bytes, const char *message) {
    struct sched_set set = {77, NULL};
    cr_expect_eq(sched_read(bytes, strlen(bytes), &set), ROTA_ERR_FORMAT, "%s", bytes);
    cr_expect_eq(set.count, 77, "outputs are set on success only");
    cr_expect(strstr(error_record()->message, message), "of '%s': '%s', expected '%s'", bytes,
              error_record()->message, message);
}

#define HEAD "schedule all_reduce ranks 2 rank 0 chunks 1 scratch 1\n"

Test(text, says_line_and_what_was_expected) {
    refuse("", "line 1: expected schedule, found the end of the file");
    refuse("\n\n  # nothing\n", "line 4: expected schedule");
    refuse("\n0: send to 1", "line 2: expected schedule, found '0:'");
    refuse("schedule all_reduces ranks 2",
           "expected the name of a collective, found 'all_reduces'");
    refuse("schedule all_reduce rank 0 chunks 1", "expected ranks and rank, found the end of the");
    refuse("schedule all_reduce ranks 2 rank 2 chunks 1", "a rank below the number of ranks");
    refuse("schedule all_reduce ranks 0 rank 0 chunks 1", "expected 1 to 65536 ranks");
    refuse("schedule all_reduce ranks 99999 rank 0 chunks 1", "expected 1 to 65536 ranks");
    refuse("schedule all_reduce ranks 2 rank 0 root 0 chunks 1", "this kind has no root");
    refuse("schedule reduce ranks 2 rank 0 chunks 1", "this kind needs a root");
    refuse("schedule reduce ranks 2 rank 0 root 5 chunks 1", "a root below the number of ranks");
    refuse("schedule all_reduce ranks 2 rank 0", "expected at least 1 chunk");
    refuse("schedule barrier ranks 2 rank 0 chunks 1", "a barrier has no chunks");
    refuse("schedule all_gather ranks 65536 rank 0 chunks 65536", "at most 4194304 chunks");
    refuse("schedule all_reduce ranks 2 rank 99999999999 chunks 1", "a number below 4294967296");
    refuse(HEAD "1: send to 1", "line 2: expected the number of the next step, found '1:'");
    refuse(HEAD "0 send to 1", "line 2: expected :, found 'send'");
    refuse(HEAD "0: sent to 1", "line 2: expected send, recv, recv_reduce, copy or reduce, found");
    refuse(HEAD "0: send from 1", "expected to, found 'from'");
    refuse(HEAD "0: send to 0 input[0]", "expected peers that are other ranks");
    refuse(HEAD "0: send to 2 input[0]", "expected peers that are other ranks");
    refuse(HEAD "0: send to 1 input(0)", "expected [, found '(0)'");
    refuse(HEAD "0: send to 1 input[0", "expected ], found the end of the file");
    refuse(HEAD "0: send to 1 input[0:0]", "expected at least 1 chunk");
    refuse(HEAD "0: send to 1 input[0:1:2]", "expected :, found ']'");
    refuse(HEAD "0: send to 1 input[0:1000000:1:1000000]", "at most 16777216 chunks");
    refuse(HEAD "0: send to 1 inputs[0]", "expected a flag, lane, channel, wait or the end");
    refuse(HEAD "0: copy input[0] output[0]", "expected ->");
    refuse(HEAD "0: recv_reduce from 1 input[0] -> output[0]", "expected position");
    refuse(HEAD "0: send to 1 lane 65536", "expected lane and channel below 65536");
    refuse(HEAD "0: send to 1 wait 5\n", "rank 0: schedule builder: wait for no step");
    refuse(HEAD "0: send to 1 \x01", "found '\\x01'");
    refuse(HEAD HEAD, "expected ranks in ascending order");
    refuse(HEAD "schedule all_reduce ranks 3 rank 1 chunks 1\n", "expected the same collective");
}

Test(json, says_where_and_what_was_expected) {
    refuse("{", "line 1, column 1");
    refuse("[]", "expected the schedule of at least 1 rank");
    refuse("[1]", "[0]: expected an object");
    refuse("{}", "[0].collective: expected the name of a collective");
    refuse("{\"collective\": \"barrier\"}", "expected ranks and rank");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"rank\": -1}",
           "[0].rank: expected a number");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"rank\": 0}",
           "[0].steps: expected an array");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"rank\": 0, \"steps\": [], \"x\": 1}",
           "member that is not known");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"rank\": 0, \"steps\": [{}]}",
           "[0].steps[0].type: expected send");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"rank\": 0, \"steps\": "
           "[{\"type\": \"send\", \"peers\": [\"x\"]}]}",
           "[0].steps[0].peers: expected a number");
    refuse("{\"collective\": \"barrier\", \"ranks\": 2, \"ranks\": 2, \"rank\": 0, \"steps\": []}",
           "duplicate");
}

/* Whatever is read is safe to verify and to write. */
static void try_garbage(const char *bytes, size_t length) {
    struct sched_set set = {0, NULL};
    char *exact = malloc(length ? length : 1); /* so that the sanitizer sees reads beyond the end */
    cr_assert(exact);
    memcpy(exact, bytes, length);
    rota_status status = sched_read(exact, length, &set);
    free(exact);
    if (status != ROTA_OK) {
        cr_assert(status == ROTA_ERR_FORMAT, "status %d", (int)status);
        cr_assert(error_record()->message[0]);
        return;
    }
    struct sched_verdict verdict;
    cr_assert_eq(sched_verify(set.schedules, set.count, NULL, &verdict), ROTA_OK);
    size_t written;
    free(write_set(&set, TEXT, &written));
    free(write_set(&set, JSON, &written));
    sched_set_free(&set);
}

static uint64_t next_random(uint64_t *state) {
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static void garble(const char *bytes, size_t length) {
    static const char likely[] = "0123456789:,[]~->\n #{}\"\\ax\x00\xff";
    uint64_t state = 1;
    for (size_t cut = 0; cut < length; cut++)
        try_garbage(bytes, cut);
    for (int i = 0; i < 4000; i++) {
        char *copy = malloc(length);
        cr_assert(copy);
        memcpy(copy, bytes, length);
        for (uint64_t changes = next_random(&state) % 3 + 1; changes; changes--) {
            char c = (char)next_random(&state);
            if (next_random(&state) % 4)
                c = likely[next_random(&state) % (sizeof likely - 1)];
            copy[next_random(&state) % length] = c;
        }
        try_garbage(copy, length);
        free(copy);
    }
}

Test(text, garbage) {
    const struct {
        const char *algorithm;
        rota_kind kind;
        int nranks, root;
    } bases[] = {{"ring", ROTA_KIND_ALL_REDUCE, 3, -1},
                 {"recursive_doubling", ROTA_KIND_REDUCE_SCATTER, 4, -1},
                 {"recursive_doubling", ROTA_KIND_BARRIER, 3, -1},
                 {"binomial", ROTA_KIND_REDUCE, 3, 1},
                 {"pairwise", ROTA_KIND_ALL_TO_ALL, 3, -1}};
    garble(everything, sizeof everything - 1);
    for (size_t i = 0; i < sizeof bases / sizeof *bases; i++) {
        struct sched_set set =
            build_schedule(bases[i].algorithm, bases[i].kind, bases[i].nranks, bases[i].root, true);
        for (int form = TEXT; form <= JSON; form++) {
            size_t length;
            char *bytes = write_set(&set, (enum form)form, &length);
            garble(bytes, length);
            free(bytes);
        }
        sched_set_free(&set);
    }
    char deep[20000];
    memset(deep, '[', sizeof deep);
    try_garbage(deep, sizeof deep);
}

Test(text, a_full_disk_is_an_error) {
    struct sched_set set = build_schedule("ring", ROTA_KIND_ALL_REDUCE, 3, -1, false);
    FILE *full = fopen("/dev/full", "w");
    cr_assert(full);
    cr_expect_eq(sched_write_text(set.schedules[0], full), ROTA_ERR_SYSTEM);
    clearerr(full);
    cr_expect_eq(sched_write_json(set.schedules, 3, full), ROTA_ERR_SYSTEM);
    fclose(full);
    sched_set_free(&set);
}

/* The block of the documentation that begins with `start`; the caller frees the page. */
static const char *documented(const char *start, char **page, size_t *length) {
    FILE *file = fopen(SCHEDULES_PAGE, "r");
    cr_assert(file, "%s", SCHEDULES_PAGE);
    *page = calloc(1, 100000);
    cr_assert(*page && fread(*page, 1, 99999, file) > 0);
    fclose(file);
    const char *block = strstr(*page, start);
    cr_assert(block);
    const char *end = strstr(block, "\n```");
    cr_assert(end);
    *length = (size_t)(end - block);
    return block;
}

Test(text, examples_of_the_documentation) {
    char *page;
    size_t length;
    const char *block = documented("# ring all_reduce on two ranks", &page, &length);
    struct sched_set text = {0, NULL}, json = {0, NULL};
    cr_assert_eq(sched_read(block, length, &text), ROTA_OK, "%s", error_record()->message);
    cr_assert_eq(text.count, 2);
    cr_expect_eq(verify(&text).fault, SCHED_FAULT_NONE);
    free(page);
    block = documented("{\"collective\": \"all_reduce\"", &page, &length);
    cr_assert_eq(sched_read(block, length, &json), ROTA_OK, "%s", error_record()->message);
    free(page);
    cr_assert_eq(json.count, 1);
    cr_expect(same_schedule(json.schedules[0], text.schedules[0]));
    struct sched_set built = build_schedule("ring", ROTA_KIND_ALL_REDUCE, 2, -1, false);
    cr_expect(same_schedule(built.schedules[0], text.schedules[0]));
    cr_expect(same_schedule(built.schedules[1], text.schedules[1]));
    sched_set_free(&built);
    sched_set_free(&text);
    sched_set_free(&json);
}
