/* Wrong schedules, one fault each: made from right ones by one change, or written out. Each must
 * be refused with the fault that it has, and the right one it came from must pass. */
#include "read_schedule.h"

struct mutant {
    const char *name;
    const char *algorithm;
    rota_kind kind;
    int nranks, root;
    bool in_place;
    void (*change)(struct sched **ranks);
    enum sched_fault fault;
};

static void drop(struct sched *s, uint32_t step) {
    memmove(&s->steps[step], &s->steps[step + 1], (s->nsteps - step - 1) * sizeof *s->steps);
    s->nsteps--;
}

static void repeat(struct sched *s, uint32_t step) {
    s->steps = realloc(s->steps, (s->nsteps + 1) * sizeof *s->steps);
    cr_assert(s->steps);
    memmove(&s->steps[step + 1], &s->steps[step], (s->nsteps - step) * sizeof *s->steps);
    s->nsteps++;
}

static void swap(struct sched *s, uint32_t a, uint32_t b) {
    struct sched_step step = s->steps[a];
    s->steps[a] = s->steps[b];
    s->steps[b] = step;
}

static struct sched_range *src_of(struct sched *s, uint32_t step) {
    return &s->ranges[s->steps[step].src.begin];
}

static struct sched_range *dst_of(struct sched *s, uint32_t step) {
    return &s->ranges[s->steps[step].dst.begin];
}

static int *peer_of(struct sched *s, uint32_t step) {
    return &s->peers[s->steps[step].peers.begin];
}

/* Steps of `ring` all_reduce on 3 ranks: 0 send input, 1 recv_reduce to scratch, 2 send it,
 * 3 recv_reduce to output, 4 send that, 5 recv, 6 send it on, 7 recv. */
static void drop_send(struct sched **r) {
    drop(r[0], 0);
}
static void drop_recv(struct sched **r) {
    drop(r[1], 7);
}
static void double_send(struct sched **r) {
    repeat(r[2], 4);
}
static void double_recv_reduce(struct sched **r) {
    repeat(r[2], 3);
}
static void swap_sends(struct sched **r) {
    swap(r[0], 4, 6);
}
static void forward_before_recv(struct sched **r) {
    swap(r[0], 5, 6);
}
static void misaddress(struct sched **r) {
    *peer_of(r[0], 2) = 2;
}
static void address_itself(struct sched **r) {
    *peer_of(r[0], 2) = 0;
}
static void address_nobody(struct sched **r) {
    *peer_of(r[0], 2) = 3;
}
static void send_wrong_chunk(struct sched **r) {
    src_of(r[0], 0)->first = 1;
}
static void reduce_wrong_chunk(struct sched **r) {
    src_of(r[0], 1)->first = 1;
}
static void wrong_length(struct sched **r) {
    src_of(r[0], 4)->first = 0;
    src_of(r[0], 4)->count = 2;
}
static void send_token_for_data(struct sched **r) {
    r[0]->steps[4].src.count = 0;
}
static void read_unwritten(struct sched **r) {
    r[0]->scratch_chunks = 2;
    src_of(r[0], 2)->first = 1;
}
static void read_unwritten_output(struct sched **r) {
    drop(r[0], 3);
    drop(r[2], 2);
}
static void miss_load_local(struct sched **r) {
    r[1]->steps[1].flags &= ~(uint32_t)SCHED_LOAD_LOCAL;
}
static void miss_load_message(struct sched **r) {
    r[1]->steps[1].flags &= ~(uint32_t)SCHED_LOAD_MESSAGE;
}
static void load_message_twice(struct sched **r) {
    r[1]->steps[3].flags |= SCHED_LOAD_MESSAGE;
}
static void miss_finish(struct sched **r) {
    r[2]->steps[3].flags &= ~(uint32_t)SCHED_FINISH;
}
static void finish_early(struct sched **r) {
    r[2]->steps[1].flags |= SCHED_FINISH;
}
static void overrun_scratch(struct sched **r) {
    dst_of(r[2], 1)->first = 1;
}
static void overrun_output(struct sched **r) {
    dst_of(r[2], 5)->first = 3;
}
static void overflow_range(struct sched **r) {
    dst_of(r[2], 5)->stride = dst_of(r[2], 5)->reps = UINT32_MAX;
}
static void write_input(struct sched **r) {
    dst_of(r[2], 7)->buffer = SCHED_INPUT;
}
static void recv_as_partial(struct sched **r) {
    r[0]->steps[5].flags |= SCHED_PARTIAL;
}
static void send_partial_as_element(struct sched **r) {
    r[0]->steps[2].flags = 0;
}
static void second_send_lane(struct sched **r) {
    r[0]->lanes = 2;
    r[0]->steps[6].lane = 1;
}
static void lane_beyond(struct sched **r) {
    r[0]->steps[6].lane = 1;
}
static void other_chunks(struct sched **r) {
    r[2]->chunks_per_block = 4;
}
static void other_kind(struct sched **r) {
    r[2]->kind = ROTA_KIND_REDUCE;
}
static void other_rank(struct sched **r) {
    r[2]->rank = 1;
}
static void list_beyond(struct sched **r) {
    r[1]->steps[5].dst.begin = r[1]->nranges;
}
static void unknown_flag(struct sched **r) {
    r[1]->steps[5].flags |= 64;
}
static void unknown_type(struct sched **r) {
    r[1]->steps[5].type = (enum sched_step_type)17;
}
static void position_beyond(struct sched **r) {
    r[1]->steps[1].position = 2;
}

/* Other bases. */
static void flip_operands(struct sched **r) {
    r[1]->steps[1].position ^= 1;
}
static void load_local_twice(struct sched **r) {
    r[1]->steps[1].flags |= SCHED_LOAD_LOCAL;
}
static void finish_twice(struct sched **r) {
    r[1]->steps[0].flags |= SCHED_FINISH;
}
static void send_wrong_block(struct sched **r) {
    src_of(r[0], 0)->first = 2;
}
static void drop_copy(struct sched **r) {
    for (uint32_t i = 0; i < r[1]->nsteps; i++)
        if (r[1]->steps[i].type == SCHED_COPY)
            drop(r[1], i);
}
static void drop_token(struct sched **r) {
    drop(r[2], 3);
}
static void forget_waits(struct sched **r) {
    r[1]->steps[2].waits.count = 0;
}
static void wait_in_circle(struct sched **r) {
    for (int i = 0; i < 3; i++)
        r[i]->waits[0] = 3;
}
static void wait_own_lane(struct sched **r) {
    r[0]->waits[0] = 0;
}
static void wait_nowhere(struct sched **r) {
    r[0]->waits[0] = 4;
}
static void name_peer_twice(struct sched **r) {
    peer_of(r[0], 0)[1] = peer_of(r[0], 0)[0];
}

#define RING3 "ring", ROTA_KIND_ALL_REDUCE, 3, -1, false
#define TREE4 "recursive_doubling", ROTA_KIND_ALL_REDUCE, 4, -1, false
#define DIRECT3 "direct", ROTA_KIND_ALL_REDUCE, 3, -1, true
#define BELOW3 "ring", ROTA_KIND_EXCLUSIVE_SCAN, 3, -1, false
#define REDUCE4 "binomial", ROTA_KIND_REDUCE, 4, 1, false
#define PAIRS4 "pairwise", ROTA_KIND_ALL_TO_ALL, 4, -1, true
#define BARRIER3 "recursive_doubling", ROTA_KIND_BARRIER, 3, -1, false

static const struct mutant mutants[] = {
    {"dropped send", RING3, drop_send, SCHED_FAULT_UNMATCHED},
    {"dropped recv", RING3, drop_recv, SCHED_FAULT_UNMATCHED},
    {"doubled send", RING3, double_send, SCHED_FAULT_UNMATCHED},
    {"doubled recv_reduce", RING3, double_recv_reduce, SCHED_FAULT_UNMATCHED},
    {"swapped sends", RING3, swap_sends, SCHED_FAULT_MESSAGE_SHAPE},
    {"forwarded before received", RING3, forward_before_recv, SCHED_FAULT_READ_UNWRITTEN},
    {"misaddressed", RING3, misaddress, SCHED_FAULT_UNMATCHED},
    {"addressed to itself", RING3, address_itself, SCHED_FAULT_SHAPE},
    {"addressed to nobody", RING3, address_nobody, SCHED_FAULT_SHAPE},
    {"wrong chunk sent", RING3, send_wrong_chunk, SCHED_FAULT_MESSAGE_SHAPE},
    {"wrong chunk reduced", RING3, reduce_wrong_chunk, SCHED_FAULT_SHAPE},
    {"longer message", RING3, wrong_length, SCHED_FAULT_MESSAGE_SHAPE},
    {"token for data", RING3, send_token_for_data, SCHED_FAULT_MESSAGE_SHAPE},
    {"unwritten scratch read", RING3, read_unwritten, SCHED_FAULT_READ_UNWRITTEN},
    {"unwritten output read", RING3, read_unwritten_output, SCHED_FAULT_READ_UNWRITTEN},
    {"missing load of the local operand", RING3, miss_load_local, SCHED_FAULT_LOAD},
    {"missing load of the message", RING3, miss_load_message, SCHED_FAULT_LOAD},
    {"message loaded twice", RING3, load_message_twice, SCHED_FAULT_LOAD},
    {"local operand loaded twice", REDUCE4, load_local_twice, SCHED_FAULT_LOAD},
    {"missing finish", RING3, miss_finish, SCHED_FAULT_FINISH},
    {"finished early", RING3, finish_early, SCHED_FAULT_REPRESENTATION},
    {"finished twice", BELOW3, finish_twice, SCHED_FAULT_FINISH},
    {"scratch overrun", RING3, overrun_scratch, SCHED_FAULT_SCRATCH_BOUNDS},
    {"output overrun", RING3, overrun_output, SCHED_FAULT_SHAPE},
    {"range that overflows", RING3, overflow_range, SCHED_FAULT_SHAPE},
    {"input written", RING3, write_input, SCHED_FAULT_INPUT_WRITTEN},
    {"elements received as partials", RING3, recv_as_partial, SCHED_FAULT_REPRESENTATION},
    {"partial sent as element", RING3, send_partial_as_element, SCHED_FAULT_LOAD},
    {"channel in two lanes", RING3, second_send_lane, SCHED_FAULT_LANES},
    {"lane beyond the number", RING3, lane_beyond, SCHED_FAULT_SHAPE},
    {"other number of chunks", RING3, other_chunks, SCHED_FAULT_SHAPE},
    {"other kind", RING3, other_kind, SCHED_FAULT_SHAPE},
    {"other rank", RING3, other_rank, SCHED_FAULT_SHAPE},
    {"list beyond its array", RING3, list_beyond, SCHED_FAULT_SHAPE},
    {"unknown flag", RING3, unknown_flag, SCHED_FAULT_SHAPE},
    {"unknown type", RING3, unknown_type, SCHED_FAULT_SHAPE},
    {"position beyond the operands", RING3, position_beyond, SCHED_FAULT_SHAPE},
    {"operands flipped on one rank", TREE4, flip_operands, SCHED_FAULT_DIFFERENT},
    {"wrong block", PAIRS4, send_wrong_block, SCHED_FAULT_CONTRIBUTION},
    {"missing copy", "ring", ROTA_KIND_BROADCAST, 3, 1, false, drop_copy,
     SCHED_FAULT_OUTPUT_MISSING},
    {"missing copy of the own block", "direct", ROTA_KIND_ALL_GATHER, 3, -1, false, drop_copy,
     SCHED_FAULT_OUTPUT_MISSING},
    {"missing copy from scratch", PAIRS4, drop_copy, SCHED_FAULT_OUTPUT_MISSING},
    {"dropped token", BARRIER3, drop_token, SCHED_FAULT_UNMATCHED},
    {"token that waits for nothing", "recursive_doubling", ROTA_KIND_BARRIER, 5, -1, false,
     forget_waits, SCHED_FAULT_CONTRIBUTION},
    {"waits in a circle", BARRIER3, wait_in_circle, SCHED_FAULT_DEADLOCK},
    {"wait in the own lane", BARRIER3, wait_own_lane, SCHED_FAULT_SHAPE},
    {"wait for no step", BARRIER3, wait_nowhere, SCHED_FAULT_SHAPE},
    {"peer named twice", DIRECT3, name_peer_twice, SCHED_FAULT_SHAPE},
};

Test(mutants, of_algorithms) {
    for (size_t i = 0; i < sizeof mutants / sizeof *mutants; i++) {
        const struct mutant *m = &mutants[i];
        struct sched_set set =
            build_schedule(m->algorithm, m->kind, m->nranks, m->root, m->in_place);
        struct sched_verdict verdict = verify(&set);
        cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "base of %s: %s", m->name, verdict.text);
        m->change(set.schedules);
        verdict = verify(&set);
        cr_expect_eq(verdict.fault, m->fault, "%s: expected %s, got %s: %s", m->name,
                     sched_fault_name(m->fault), sched_fault_name(verdict.fault), verdict.text);
        cr_expect(verdict.text[0] && !verdict.canonical_tree && !verdict.ascending &&
                      !verdict.same_on_all_ranks,
                  "%s: a fault proves nothing", m->name);
        sched_set_free(&set);
    }
}

/* A rank that is in place stores a partial before it finishes: in mode fast it rounds once more. */
Test(mutants, roundings_differ) {
    struct sched_set set = read_schedule(
        "schedule all_reduce ranks 2 rank 0 chunks 1\n"
        "0: send to 1 input[0]\n"
        "1: recv_reduce from 1 position 0 input[0] -> output[0] load_message load_local finish\n"
        "schedule all_reduce ranks 2 rank 1 chunks 1 scratch 1 in_place\n"
        "0: send to 0 input[0]\n"
        "1: recv_reduce from 0 position 1 input[0] -> scratch[0] ~ 0 load_message load_local\n"
        "2: reduce 1 scratch[0] ~ 0 -> output[0] finish\n");
    struct sched_verdict verdict = verify(&set);
    cr_expect(verdict.fault == SCHED_FAULT_NONE && verdict.same_on_all_ranks, "%s", verdict.text);
    cr_expect_eq(verdict.roundings, 1);
    verdict = verify_with(&set, (struct sched_verify_options){.rounded_partials = true});
    cr_expect_eq(verdict.fault, SCHED_FAULT_DIFFERENT, "%s", verdict.text);
    sched_set_free(&set);
}

static void expect(const char *text, enum sched_fault fault) {
    struct sched_set set = read_schedule(text);
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, fault, "expected %s, got %s: %s, in\n%s", sched_fault_name(fault),
                 sched_fault_name(verdict.fault), verdict.text, text);
    sched_set_free(&set);
}

Test(mutants, an_exchange_in_place_needs_capacity) {
    struct sched_set set = read_schedule("schedule all_to_all ranks 2 rank 0 chunks 1 in_place\n"
                                         "0: send to 1 input[1]\n"
                                         "1: recv from 1 output[1]\n"
                                         "schedule all_to_all ranks 2 rank 1 chunks 1 in_place\n"
                                         "0: send to 0 input[0]\n"
                                         "1: recv from 0 output[0]\n");
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_DEADLOCK, "%s", verdict.text);
    cr_expect_eq(verdict.rank, 0);
    cr_expect_eq(verdict.step, 0);
    verdict = verify_with(&set, (struct sched_verify_options){.channel_capacity = 1});
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    sched_set_free(&set);
}

Test(mutants, two_messages_before_an_answer_need_capacity_two) {
    const char *text = "schedule all_to_all ranks 2 rank 0 chunks 2\n"
                       "0: copy input[0:2] -> output[0:2]\n"
                       "1: send to 1 input[2] channel 1\n"
                       "2: send to 1 input[3] channel 1\n"
                       "3: send to 1\n"
                       "4: recv from 1 output[2:2]\n"
                       "schedule all_to_all ranks 2 rank 1 chunks 2 scratch 1\n"
                       "0: copy input[2:2] -> output[2:2]\n"
                       "1: recv from 0\n"
                       "2: recv from 0 output[0] channel 1\n"
                       "3: recv from 0 output[1] channel 1\n"
                       "4: send to 0 input[0:2]\n";
    struct sched_set set = read_schedule(text);
    for (uint32_t capacity = 0; capacity < 4; capacity++) {
        struct sched_verdict verdict =
            verify_with(&set, (struct sched_verify_options){.channel_capacity = capacity});
        cr_expect_eq(verdict.fault, capacity < 2 ? SCHED_FAULT_DEADLOCK : SCHED_FAULT_NONE,
                     "capacity %u: %s", capacity, verdict.text);
    }
    sched_set_free(&set);
}

/* A chain of three ranks whose middle one forwards in another lane than it receives in. */
static void expect_forward(const char *wait, enum sched_fault fault) {
    char text[512];
    snprintf(text, sizeof text,
             "schedule broadcast ranks 3 rank 0 root 0 chunks 1\n"
             "0: copy input[0] -> output[0]\n"
             "1: send to 1 input[0]\n"
             "schedule broadcast ranks 3 rank 1 root 0 chunks 1\n"
             "0: recv from 0 output[0]\n"
             "1: send to 2 output[0] lane 1 %s\n"
             "schedule broadcast ranks 3 rank 2 root 0 chunks 1\n"
             "0: recv from 1 output[0]\n",
             wait);
    expect(text, fault);
}

Test(mutants, lanes_race_unless_joined) {
    expect_forward("wait 0", SCHED_FAULT_NONE);
    expect_forward("", SCHED_FAULT_RACE);
}

Test(mutants, chains_between_lanes_go_through_hazards_and_not_through_the_order_of_a_lane) {
    /* Step 2 waits for step 1; in the first form step 1 depends on step 0 by a hazard, in the
     * second only the order of receives lies between. */
    const char *form = "schedule broadcast ranks 2 rank 0 root 0 chunks 2\n"
                       "0: copy input[0:2] -> output[0:2]\n"
                       "1: send to 1 input[0]\n"
                       "2: send to 1 input[1]\n"
                       "schedule broadcast ranks 2 rank 1 root 0 chunks 2 scratch 2\n"
                       "0: recv from 0 output[0]\n"
                       "1: %s\n"
                       "2: copy output[0] -> scratch[1]~0 lane 1 wait 1\n"
                       "%s";
    char text[600];
    snprintf(text, sizeof text, form, "copy output[0] -> scratch[0]~0",
             "3: recv from 0 output[1]\n");
    expect(text, SCHED_FAULT_NONE);
    snprintf(text, sizeof text, form, "recv from 0 output[1]", "");
    expect(text, SCHED_FAULT_RACE);
}

Test(mutants, an_input_is_overwritten_in_place) {
    expect("schedule all_to_all ranks 2 rank 0 chunks 1 in_place\n"
           "0: recv from 1 output[1]\n"
           "1: send to 1 input[1]\n"
           "schedule all_to_all ranks 2 rank 1 chunks 1 scratch 1 in_place\n"
           "0: send to 0 input[0]\n"
           "1: recv from 0 scratch[0]~0\n"
           "2: copy scratch[0]~0 -> output[0]\n",
           SCHED_FAULT_OVERWRITE);
}

Test(mutants, a_partial_in_an_output) {
    expect("schedule all_reduce ranks 1 rank 0 chunks 1 scratch 1\n"
           "0: reduce 1 input[0] -> scratch[0]~0 load_local\n"
           "1: copy scratch[0]~0 -> output[0] partial\n",
           SCHED_FAULT_REPRESENTATION);
    expect("schedule all_reduce ranks 1 rank 0 chunks 1\n"
           "0: copy input[0] -> output[0]\n",
           SCHED_FAULT_FINISH);
    expect("schedule all_reduce ranks 1 rank 0 chunks 1 scratch 1\n"
           "0: copy input[0] -> scratch[0]~0\n"
           "1: reduce 1 scratch[0]~0 -> scratch[0]~0 load_local\n"
           "2: reduce 1 scratch[0]~0 -> output[0] finish\n",
           SCHED_FAULT_REPRESENTATION);
}

Test(mutants, contributions_missing_and_double) {
    expect("schedule all_reduce ranks 1 rank 0 chunks 1\n"
           "0: reduce 2 input[0] input[0] -> output[0] load_local finish\n",
           SCHED_FAULT_CONTRIBUTION);
    expect("schedule reduce ranks 2 rank 0 root 0 chunks 1\n"
           "0: reduce 1 input[0] -> output[0] load_local finish\n"
           "schedule reduce ranks 2 rank 1 root 0 chunks 1\n",
           SCHED_FAULT_CONTRIBUTION);
    expect("schedule reduce ranks 2 rank 0 root 0 chunks 1 scratch 1\n"
           "0: recv from 1 scratch[0]~0\n"
           "1: reduce 2 scratch[0]~0 scratch[0]~0 -> output[0] load_local finish\n"
           "schedule reduce ranks 2 rank 1 root 0 chunks 1\n"
           "0: send to 0 input[0]\n",
           SCHED_FAULT_CONTRIBUTION);
    expect("schedule all_reduce ranks 1 rank 0 chunks 1\n", SCHED_FAULT_OUTPUT_MISSING);
}

Test(mutants, steps_that_overlap_themselves) {
    expect("schedule all_gather ranks 1 rank 0 chunks 3 scratch 4\n"
           "0: copy input[0:3] -> scratch[0:3]~0\n"
           "1: copy scratch[0:2]~0 -> scratch[1:2]~0\n"
           "2: copy scratch[0:3]~0 -> output[0:3]\n",
           SCHED_FAULT_SHAPE);
    expect("schedule all_gather ranks 1 rank 0 chunks 2\n"
           "0: copy input[0:2] -> output[0] output[0]\n",
           SCHED_FAULT_SHAPE);
    expect("schedule all_gather ranks 1 rank 0 chunks 2 scratch 1\n"
           "0: copy input[0] -> scratch[0]~0\n"
           "1: copy scratch[0]~1 -> output[1]\n"
           "2: copy input[0] -> output[0]\n",
           SCHED_FAULT_SHAPE);
}

Test(mutants, kinds_that_move_do_not_reduce) {
    expect("schedule all_gather ranks 1 rank 0 chunks 1\n"
           "0: reduce 1 input[0] -> output[0] load_local finish\n",
           SCHED_FAULT_SHAPE);
    expect("schedule barrier ranks 1 rank 0 scratch 1\n"
           "0: copy scratch[0]~0 -> scratch[0]~0\n",
           SCHED_FAULT_SHAPE);
}

Test(mutants, order_is_required_only_on_demand) {
    struct sched_set set = build_schedule("ring", ROTA_KIND_ALL_REDUCE, 4, -1, false);
    cr_expect_eq(verify(&set).fault, SCHED_FAULT_NONE);
    struct sched_verdict verdict =
        verify_with(&set, (struct sched_verify_options){.require_ascending = true});
    cr_expect_eq(verdict.fault, SCHED_FAULT_ORDER, "%s", verdict.text);
    sched_set_free(&set);
    set = build_schedule("recursive_doubling", ROTA_KIND_ALL_REDUCE, 7, -1, false);
    cr_expect_eq(verify_with(&set, (struct sched_verify_options){.require_ascending = true}).fault,
                 SCHED_FAULT_NONE);
    sched_set_free(&set);
}
