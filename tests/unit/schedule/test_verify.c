/* What the verifier says of right schedules. */
#include "read_schedule.h"

#include <stdio.h>

Test(verify, counts_and_properties) {
    struct sched_set set = build_schedule("ring", ROTA_KIND_ALL_REDUCE, 5, -1, false);
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect_eq(verdict.messages, 5 * 8);
    cr_expect_eq(verdict.steps, 5 * 16);
    cr_expect_eq(verdict.max_depth, 4);
    cr_expect(verdict.same_on_all_ranks && !verdict.canonical_tree && !verdict.ascending);
    cr_expect_eq(verdict.rank, -1);
    sched_set_free(&set);

    set = build_schedule("direct", ROTA_KIND_ALL_REDUCE, 5, -1, true);
    verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect_eq(verdict.messages, 5 * 4);
    cr_expect_eq(verdict.max_depth, 3);
    cr_expect(verdict.same_on_all_ranks && verdict.canonical_tree && verdict.ascending);
    sched_set_free(&set);
}

Test(verify, ascending_is_not_canonical) {
    /* 0 + (1 + 2), where the aligned tree is (0 + 1) + 2. */
    struct sched_set set = read_schedule(
        "schedule reduce ranks 3 rank 0 root 0 chunks 1\n"
        "0: recv_reduce from 1 position 0 input[0] -> output[0] load_local finish\n"
        "schedule reduce ranks 3 rank 1 root 0 chunks 1 scratch 1\n"
        "0: recv_reduce from 2 position 0 input[0] -> scratch[0]~0 load_message load_local\n"
        "1: send to 0 scratch[0]~0 partial\n"
        "schedule reduce ranks 3 rank 2 root 0 chunks 1\n"
        "0: send to 1 input[0]\n");
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect(verdict.ascending && !verdict.canonical_tree);
    sched_set_free(&set);
}

Test(verify, refuses_what_is_no_set) {
    struct sched_verdict verdict = {.rank = 77};
    struct sched *none[1] = {NULL};
    cr_expect_eq(sched_verify(NULL, 1, NULL, &verdict), ROTA_ERR_ARGUMENT);
    cr_expect_eq(sched_verify(none, 1, NULL, &verdict), ROTA_ERR_ARGUMENT);
    cr_expect_eq(sched_verify(none, 0, NULL, &verdict), ROTA_ERR_ARGUMENT);
    cr_expect_eq(verdict.rank, 77, "outputs are set on success only");
}

Test(verify, mixed_ranks_in_place_have_the_same_messages) {
    struct sched_set set = build_schedule("direct", ROTA_KIND_ALL_TO_ALL, 4, -1, false);
    struct sched_set in_place = build_schedule("direct", ROTA_KIND_ALL_TO_ALL, 4, -1, true);
    struct sched *mixed[4] = {set.schedules[0], in_place.schedules[1], set.schedules[2],
                              in_place.schedules[3]};
    struct sched_verdict verdict;
    cr_assert_eq(sched_verify(mixed, 4, NULL, &verdict), ROTA_OK);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    sched_set_free(&set);
    sched_set_free(&in_place);
}

Test(verify, every_fault_has_a_name) {
    for (int i = 0; i <= SCHED_FAULT_DIFFERENT; i++) {
        cr_expect_str_neq(sched_fault_name((enum sched_fault)i), "unknown");
        cr_expect_lt(strlen(sched_fault_name((enum sched_fault)i)), 32);
        for (int k = 0; k < i; k++)
            cr_expect_str_neq(sched_fault_name((enum sched_fault)i),
                              sched_fault_name((enum sched_fault)k));
    }
    cr_expect_str_eq(sched_fault_name((enum sched_fault)1000), "unknown");
}

/* Outputs of the kinds that have different ones on each rank. */
Test(verify, refuses_wrong_outputs_of_gather_scatter_and_scans) {
    static const struct {
        enum sched_fault fault;
        int rank;
        const char *text;
    } rows[] = {
        {SCHED_FAULT_NONE, -1,
         "schedule gather ranks 2 rank 0 root 1 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule gather ranks 2 rank 1 root 1 chunks 1\n"
         "0: recv from 0 output[0]\n"
         "1: copy input[0] -> output[1]\n"},
        {SCHED_FAULT_OUTPUT_MISSING, 1,
         "schedule gather ranks 2 rank 0 root 1 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule gather ranks 2 rank 1 root 1 chunks 1\n"
         "0: recv from 0 output[0]\n"},
        {SCHED_FAULT_MESSAGE_SHAPE, 1, /* the block of rank 0 where that of rank 1 belongs */
         "schedule gather ranks 2 rank 0 root 1 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule gather ranks 2 rank 1 root 1 chunks 1\n"
         "0: recv from 0 output[1]\n"
         "1: copy input[0] -> output[1]\n"},
        {SCHED_FAULT_SHAPE, 0, /* off the root there is no output */
         "schedule gather ranks 2 rank 0 root 1 chunks 1\n"
         "0: copy input[0] -> output[0]\n"
         "1: send to 1 input[0]\n"
         "schedule gather ranks 2 rank 1 root 1 chunks 1\n"
         "0: recv from 0 output[0]\n"
         "1: copy input[0] -> output[1]\n"},
        {SCHED_FAULT_NONE, -1,
         "schedule scatter ranks 2 rank 0 root 0 chunks 1\n"
         "0: send to 1 input[1]\n"
         "1: copy input[0] -> output[0]\n"
         "schedule scatter ranks 2 rank 1 root 0 chunks 1\n"
         "0: recv from 0 output[0]\n"},
        {SCHED_FAULT_MESSAGE_SHAPE, 1, /* the block of another rank */
         "schedule scatter ranks 2 rank 0 root 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "1: copy input[0] -> output[0]\n"
         "schedule scatter ranks 2 rank 1 root 0 chunks 1\n"
         "0: recv from 0 output[0]\n"},
        {SCHED_FAULT_NONE, -1,
         "schedule scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "1: reduce 1 input[0] -> output[0] load_local finish\n"
         "schedule scan ranks 2 rank 1 chunks 1\n"
         "0: recv_reduce from 0 position 1 input[0] -> output[0] load_message load_local finish\n"},
        {SCHED_FAULT_CONTRIBUTION, 0, /* with the input of a rank above */
         "schedule scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "1: recv_reduce from 1 position 0 input[0] -> output[0] load_message load_local finish\n"
         "schedule scan ranks 2 rank 1 chunks 1\n"
         "0: send to 0 input[0]\n"
         "1: recv_reduce from 0 position 1 input[0] -> output[0] load_message load_local finish\n"},
        {SCHED_FAULT_CONTRIBUTION, 1, /* without the own input */
         "schedule scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "1: reduce 1 input[0] -> output[0] load_local finish\n"
         "schedule scan ranks 2 rank 1 chunks 1\n"
         "0: recv_reduce from 0 position 0 -> output[0] load_message finish\n"},
        {SCHED_FAULT_NONE, -1,
         "schedule exclusive_scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule exclusive_scan ranks 2 rank 1 chunks 1\n"
         "0: recv_reduce from 0 position 0 -> output[0] load_message finish\n"},
        {SCHED_FAULT_CONTRIBUTION, 1, /* with the own input */
         "schedule exclusive_scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule exclusive_scan ranks 2 rank 1 chunks 1\n"
         "0: recv_reduce from 0 position 1 input[0] -> output[0] load_message load_local finish\n"},
        {SCHED_FAULT_SHAPE, 0, /* rank 0 has no output */
         "schedule exclusive_scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "1: reduce 1 input[0] -> output[0] load_local finish\n"
         "schedule exclusive_scan ranks 2 rank 1 chunks 1\n"
         "0: recv_reduce from 0 position 0 -> output[0] load_message finish\n"},
        {SCHED_FAULT_FINISH, 1, /* moved, not completed */
         "schedule exclusive_scan ranks 2 rank 0 chunks 1\n"
         "0: send to 1 input[0]\n"
         "schedule exclusive_scan ranks 2 rank 1 chunks 1\n"
         "0: recv from 0 output[0]\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sched_set set = read_schedule(rows[i].text);
        struct sched_verdict verdict = verify(&set);
        cr_expect_eq(verdict.fault, rows[i].fault, "row %zu: %s: %s", i,
                     sched_fault_name(verdict.fault), verdict.text);
        cr_expect_eq(verdict.rank, rows[i].rank, "row %zu: %s", i, verdict.text);
        sched_set_free(&set);
    }
}

/* Prefixes are compared with the tree over their own ranks. */
Test(verify, trees_of_scans) {
    struct sched_set set = build_schedule("recursive_doubling", ROTA_KIND_SCAN, 7, -1, false);
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect(verdict.canonical_tree && verdict.ascending);
    cr_expect_eq(verdict.max_depth, 3);
    sched_set_free(&set);
    set = build_schedule("ring", ROTA_KIND_EXCLUSIVE_SCAN, 7, -1, true);
    verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect(!verdict.canonical_tree && verdict.ascending);
    cr_expect_eq(verdict.max_depth, 5);
    sched_set_free(&set);
}

/* Not one place in all of them: nothing is added to the address of none. */
Test(verify, steps_that_name_no_memory) {
    struct sched_set set = read_schedule("schedule barrier ranks 2 rank 0\n"
                                         "0: send to 1\n"
                                         "1: recv from 1\n"
                                         "schedule barrier ranks 2 rank 1\n"
                                         "0: send to 0\n"
                                         "1: recv from 0\n");
    struct sched_verdict verdict =
        verify_with(&set, (struct sched_verify_options){.channel_capacity = 1});
    cr_expect_eq(verdict.fault, SCHED_FAULT_NONE, "%s", verdict.text);
    cr_expect_eq(verdict.messages, 2);
    sched_set_free(&set);
}

/* A line of text that names one chunk a million times, beside another lane. */
Test(verify, a_chunk_that_is_read_a_million_times, .timeout = 60) {
    struct sched_set set =
        read_schedule("schedule all_reduce ranks 1 rank 0 chunks 1 scratch 1\n"
                      "0: reduce 1000000 input[0:1:0:1000000] -> output[0] load_local finish\n"
                      "1: copy input[0:1] -> scratch[0]~0 lane 1\n");
    struct sched_verdict verdict = verify(&set);
    cr_expect_eq(verdict.fault, SCHED_FAULT_CONTRIBUTION, "%s", verdict.text);
    sched_set_free(&set);
}

/* Races are found among many that touch one chunk, whoever of them is not joined. */
Test(verify, the_one_that_is_not_joined) {
    char text[2048];
    for (int missing = 0; missing < 15; missing++) {
        int length = snprintf(text, sizeof text,
                              "schedule all_reduce ranks 1 rank 0 chunks 1 scratch 9\n"
                              "0: copy input[0] -> scratch[0]~0\n");
        for (int i = 1; i < 8; i++) /* readers in lanes of their own */
            length += snprintf(text + length, sizeof text - (size_t)length,
                               "%d: copy scratch[0]~0 -> scratch[%d]~0 lane %d%s\n", i, i, i,
                               i == missing ? "" : " wait 0");
        length += snprintf(text + length, sizeof text - (size_t)length,
                           "8: copy input[0] -> scratch[0]~0 lane 8 wait 0");
        for (int i = 1; i < 8; i++)
            if (i != missing - 7)
                length += snprintf(text + length, sizeof text - (size_t)length, ",%d", i);
        snprintf(text + length, sizeof text - (size_t)length,
                 "\n9: reduce 1 input[0] -> output[0] load_local finish\n");
        struct sched_set set = read_schedule(text);
        struct sched_verdict verdict = verify(&set);
        cr_expect_eq(verdict.fault, missing == 0 ? SCHED_FAULT_NONE : SCHED_FAULT_RACE, "%d: %s",
                     missing, verdict.text);
        sched_set_free(&set);
    }
}
