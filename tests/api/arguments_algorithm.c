/* What the functions that register algorithms refuse, and what becomes of wrong ones. */
#include "pair.h"
#include <stdlib.h>
#include <string.h>

static const uint32_t all_reduce = ROTA_KIND_BIT(ROTA_KIND_ALL_REDUCE);

/* All-gather, everybody to everybody, for any number of ranks. It ignores in_place. */
static rota_status gather(const rota_algorithm_request *request, rota_builder *builder, void *arg) {
    (void)arg;
    uint32_t me = (uint32_t)request->rank;
    cr_expect(request->size == sizeof(*request) && request->nranks >= 2 && request->root == -1);
    rota_builder_copy(builder, rota_input(0, 1), rota_output(me, 1), 0);
    for (int peer = 0; peer < request->nranks; peer++)
        if (peer != request->rank) {
            rota_builder_lane(builder, 1 + (uint32_t)peer, 0);
            rota_builder_send(builder, peer, rota_input(0, 1), 0);
            rota_builder_recv(builder, peer, rota_output((uint32_t)peer, 1), 0);
        }
    return ROTA_OK;
}

static rota_status unwilling(const rota_algorithm_request *request, rota_builder *builder,
                             void *arg) {
    (void)request, (void)builder, (void)arg;
    return ROTA_ERR_UNSUPPORTED;
}

/* Uses the builder wrongly in the way that *arg says. */
static rota_status clumsy(const rota_algorithm_request *request, rota_builder *builder, void *arg) {
    switch (*(int *)arg) {
    case 0:
        rota_builder_send(builder, request->rank, rota_input(0, 1), 0); /* to itself */
        break;
    case 1:
        rota_builder_lane(builder, 65536, 0);
        break;
    case 2:
        rota_builder_chunks(builder, 0);
        break;
    case 3:
        rota_builder_wait(builder, 7, 9); /* no such steps */
        break;
    default:
        rota_builder_copy(builder, rota_input(0, 1000), rota_output(0, 1000), 0);
        break;
    }
    return ROTA_OK;
}

Test(arguments, rota_algorithm_register) {
    REFUSED(rota_algorithm_register(NULL, all_reduce, gather, NULL), ROTA_ERR_ARGUMENT, NULL,
            "name");
    REFUSED(rota_algorithm_register("x", all_reduce, NULL, NULL), ROTA_ERR_ARGUMENT, NULL,
            "function");
    REFUSED(rota_algorithm_register("", all_reduce, gather, NULL), ROTA_ERR_ARGUMENT, NULL, "name");
    REFUSED(rota_algorithm_register("a b", all_reduce, gather, NULL), ROTA_ERR_ARGUMENT, NULL,
            "a b");
    REFUSED(rota_algorithm_register("a_name_of_more_than_31_letters_is_too_long", all_reduce,
                                    gather, NULL),
            ROTA_ERR_ARGUMENT, NULL, "31");
    REFUSED(rota_algorithm_register("x", 0, gather, NULL), ROTA_ERR_ARGUMENT, NULL, "at least one");
    REFUSED(rota_algorithm_register("x", ROTA_KIND_BIT(ROTA_KIND_SEND), gather, NULL),
            ROTA_ERR_ARGUMENT, NULL, "kind");
    REFUSED(rota_algorithm_register("x", 1u << 31, gather, NULL), ROTA_ERR_ARGUMENT, NULL, "kind");
    REFUSED(rota_algorithm_register("ring", all_reduce, gather, NULL), ROTA_ERR_ARGUMENT, NULL,
            "ring");
    cr_assert_eq(rota_algorithm_register("mine", all_reduce, gather, NULL), ROTA_OK);
    REFUSED(rota_algorithm_register("mine", all_reduce, gather, NULL), ROTA_ERR_ARGUMENT, NULL,
            "mine");
    cr_assert(rota_algorithm_does("mine", ROTA_KIND_ALL_REDUCE, 5));
    cr_assert_not(rota_algorithm_does("mine", ROTA_KIND_BARRIER, 5));
}

Test(arguments, rota_algorithm_read) {
    static const char one[] = "schedule barrier ranks 1 rank 0\n";
    static const char wrong[] = "schedule broadcast ranks 2 rank 0 root 0 chunks 1\n"
                                "0: send to 1 input[0]\n"
                                "schedule broadcast ranks 2 rank 1 root 0 chunks 1\n"
                                "0: recv from 0 output[0]\n"; /* the root's output is missing */
    size_t half = (size_t)(strstr(wrong + 1, "schedule") - wrong);
    REFUSED(rota_algorithm_read(NULL, one, sizeof(one) - 1), ROTA_ERR_ARGUMENT, NULL, "name");
    REFUSED(rota_algorithm_read("x", NULL, 3), ROTA_ERR_ARGUMENT, NULL, "bytes");
    REFUSED(rota_algorithm_read("x y", one, sizeof(one) - 1), ROTA_ERR_ARGUMENT, NULL, "x y");
    REFUSED(rota_algorithm_read("x", "nonsense", 8), ROTA_ERR_FORMAT, NULL, "1");
    REFUSED(rota_algorithm_read("x", wrong, strlen(wrong)), ROTA_ERR_UNSUPPORTED, NULL, "rank 0");
    REFUSED(rota_algorithm_read("x", wrong, half), ROTA_ERR_ARGUMENT, NULL, "1 of 2");
    REFUSED(rota_algorithm_read("ring", one, sizeof(one) - 1), ROTA_ERR_ARGUMENT, NULL, "ring");
    cr_assert_eq(rota_algorithm_read("x", one, sizeof(one) - 1), ROTA_OK);
}

static rota_verdict verdict_of(const char *name, rota_kind kind, int nranks, int in_place) {
    rota_schedule *schedule = NULL;
    rota_verdict verdict = ROTA_VERDICT_INIT;
    cr_assert_eq(rota_schedule_build(name, kind, nranks, -1, in_place, &schedule), ROTA_OK);
    cr_assert_eq(rota_schedule_verify(schedule, &verdict), ROTA_OK);
    rota_schedule_free(schedule);
    return verdict;
}

Test(algorithms, are_proven_in_all_forms) {
    uint32_t kinds = ROTA_KIND_BIT(ROTA_KIND_ALL_GATHER);
    cr_assert_eq(rota_algorithm_register("everybody", kinds, gather, NULL), ROTA_OK);
    for (int nranks = 1; nranks <= 9; nranks++)
        for (int in_place = 0; in_place < 3; in_place++) {
            rota_verdict verdict = verdict_of("everybody", ROTA_KIND_ALL_GATHER, nranks, in_place);
            cr_expect(verdict.proven, "%d ranks, form %d: %s", nranks, in_place, verdict.text);
        }
}

Test(algorithms, wrong_use_of_the_builder_is_refused) {
    static int ways[] = {0, 1, 2, 3};
    static const char *const names[] = {"w0", "w1", "w2", "w3"};
    rota_schedule *schedule = NULL;
    for (int i = 0; i < 4; i++) {
        cr_assert_eq(rota_algorithm_register(names[i], all_reduce, clumsy, &ways[i]), ROTA_OK);
        cr_expect_eq(rota_schedule_build(names[i], ROTA_KIND_ALL_REDUCE, 3, -1, 0, &schedule),
                     ROTA_ERR_ARGUMENT, "way %d", i);
    }
    static int outside = 4;
    cr_assert_eq(rota_algorithm_register("w4", all_reduce, clumsy, &outside), ROTA_OK);
    cr_expect_not(verdict_of("w4", ROTA_KIND_ALL_REDUCE, 3, 0).proven);
    cr_assert_eq(rota_algorithm_register("w5", all_reduce, unwilling, NULL), ROTA_OK);
    cr_expect_eq(rota_schedule_build("w5", ROTA_KIND_ALL_REDUCE, 3, -1, 0, &schedule),
                 ROTA_ERR_UNSUPPORTED);
    cr_expect_null(schedule);
}
