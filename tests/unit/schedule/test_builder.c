/* Builder and schedule: shapes, errors that stick, maps of chunks. */
#include "schedule/builder.h"
#include "schedule/chunk_map.h"

#include <criterion/criterion.h>
#include <string.h>

static struct sched_builder *create(rota_kind kind, int nranks, int rank, int root) {
    struct sched_shape shape = {kind, nranks, rank, root, false};
    struct sched_builder *b = NULL;
    cr_assert_eq(sched_builder_create(&shape, &b), ROTA_OK);
    return b;
}

Test(builder, refuses_shapes_that_do_not_exist) {
    const struct sched_shape shapes[] = {
        {ROTA_KIND_ALL_REDUCE, 0, 0, -1, false},  {ROTA_KIND_ALL_REDUCE, 2, 2, -1, false},
        {ROTA_KIND_ALL_REDUCE, 2, -1, -1, false}, {ROTA_KIND_ALL_REDUCE, 2, 0, 0, false},
        {ROTA_KIND_REDUCE, 2, 0, -1, false},      {ROTA_KIND_REDUCE, 2, 0, 2, false},
        {ROTA_KIND_SEND, 2, 0, -1, false},        {(rota_kind)99, 2, 0, -1, false},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        struct sched_builder *b = (void *)&b;
        cr_expect_eq(sched_builder_create(&shapes[i], &b), ROTA_ERR_ARGUMENT, "shape %zu", i);
        cr_expect_eq((void *)b, (void *)&b, "the output of shape %zu was set", i);
    }
}

Test(builder, numbers_steps_and_collects_lists) {
    struct sched_builder *b = create(ROTA_KIND_ALL_REDUCE, 4, 1, -1);
    sched_set_chunks(b, 8);
    cr_assert_eq(sched_alloc_scratch(b, 2), 0);
    cr_assert_eq(sched_alloc_scratch(b, 3), 2);
    const struct sched_range both[] = {sched_input(0, 2), sched_input(5, 0), sched_input(6, 1)};
    const int peers[] = {3, 0};
    cr_assert_eq(sched_send_list(b, peers, 2, both, 3, 0), 0);
    sched_lane(b, 2, 1);
    cr_assert_eq(sched_recv(b, 2, sched_scratch(2, 3, 5), SCHED_PARTIAL), 1);
    cr_assert_eq(sched_send_token(b, 2), 2);
    sched_wait(b, 2, 0);
    sched_wait(b, 1, 0);
    struct sched *s = NULL;
    cr_assert_eq(sched_builder_finish(b, &s), ROTA_OK);
    cr_expect_eq(sched_send_token(b, 2), 0, "a finished builder takes nothing");
    sched_builder_destroy(b);
    cr_expect_eq(s->nsteps, 3);
    cr_expect_eq(s->scratch_chunks, 5);
    cr_expect_eq(s->lanes, 3);
    cr_expect_eq(s->channels, 2);
    cr_expect_eq(s->blocks * s->chunks_per_block, 8);
    cr_expect_eq(s->steps[0].src.count, 2, "the empty range is left out");
    cr_expect_eq(sched_list_chunks(s, s->steps[0].src), 3);
    cr_expect_eq(s->peers[s->steps[0].peers.begin + 1], 0);
    cr_expect_eq(s->steps[1].lane, 2);
    cr_expect_eq(s->steps[1].channel, 1);
    cr_expect_eq(s->steps[2].src.count, 0, "a token");
    cr_expect_eq(s->waits[s->steps[1].waits.begin], 0);
    cr_expect_eq(s->steps[2].waits.count, 1);
    sched_free(s);
}

Test(builder, the_first_error_sticks) {
    struct sched_builder *b = create(ROTA_KIND_ALL_REDUCE, 2, 1, -1);
    sched_send(b, 1, sched_input(0, 1), 0); /* to itself */
    sched_recv(b, 0, sched_output(0, 1), 0);
    struct sched *s = NULL;
    cr_expect_eq(sched_builder_finish(b, &s), ROTA_ERR_ARGUMENT);
    cr_expect_null(s);
    sched_builder_destroy(b);

    b = create(ROTA_KIND_ALL_REDUCE, 2, 1, -1);
    sched_wait(b, sched_send(b, 0, sched_input(0, 1), 0), 7);
    cr_expect_eq(sched_builder_finish(b, &s), ROTA_ERR_ARGUMENT, "a wait for no step");
    sched_builder_destroy(b);

    b = create(ROTA_KIND_ALL_REDUCE, 2, 1, -1);
    sched_send(b, 0, sched_input(0, 1), 0);
    sched_set_chunks(b, 2);
    cr_expect_eq(sched_builder_finish(b, &s), ROTA_ERR_ARGUMENT, "chunks after a step");
    sched_builder_destroy(b);
}

Test(schedule, buffers_of_every_kind) {
    /* kind, input and output chunks of rank 1 of 3 with 2 chunks per block, root 1 and 0 */
    const struct {
        rota_kind kind;
        int root;
        uint32_t inputs, outputs, input_global, output_global, alias;
    } rows[] = {
        {ROTA_KIND_ALL_REDUCE, -1, 2, 2, 1, 1, 1},
        {ROTA_KIND_REDUCE, 1, 2, 2, 1, 1, 1},
        {ROTA_KIND_REDUCE, 0, 2, 0, 1, 1, UINT32_MAX},
        {ROTA_KIND_BROADCAST, 1, 2, 2, 1, 1, 1},
        {ROTA_KIND_BROADCAST, 0, 0, 2, 1, 1, UINT32_MAX},
        {ROTA_KIND_ALL_GATHER, -1, 2, 6, 3, 1, 3},
        {ROTA_KIND_REDUCE_SCATTER, -1, 6, 2, 1, 3, UINT32_MAX},
        {ROTA_KIND_ALL_TO_ALL, -1, 6, 6, 1, 1, 1},
        {ROTA_KIND_BARRIER, -1, 0, 0, 1, 1, UINT32_MAX},
        {ROTA_KIND_GATHER, 1, 2, 6, 3, 1, 3},
        {ROTA_KIND_GATHER, 0, 2, 0, 3, 1, UINT32_MAX},
        {ROTA_KIND_SCATTER, 1, 6, 2, 1, 3, UINT32_MAX},
        {ROTA_KIND_SCATTER, 0, 0, 2, 1, 3, UINT32_MAX},
        {ROTA_KIND_SCAN, -1, 2, 2, 1, 1, 1},
        {ROTA_KIND_EXCLUSIVE_SCAN, -1, 2, 2, 1, 1, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct sched s = {.kind = rows[i].kind, .nranks = 3, .rank = 1, .root = rows[i].root};
        s.blocks = sched_kind_blocks(s.kind, 3);
        s.chunks_per_block = s.blocks ? 2 : 0;
        cr_expect_eq(sched_input_chunks(&s), rows[i].inputs, "row %zu", i);
        cr_expect_eq(sched_output_chunks(&s), rows[i].outputs, "row %zu", i);
        cr_expect_eq(sched_input_alias(&s, 1), UINT32_MAX, "row %zu", i);
        s.in_place = true;
        cr_expect_eq(sched_input_alias(&s, 1), rows[i].alias, "row %zu", i);
        if (rows[i].inputs)
            cr_expect_eq(sched_global_chunk(&s, SCHED_INPUT, 1), rows[i].input_global, "row %zu",
                         i);
        if (rows[i].outputs)
            cr_expect_eq(sched_global_chunk(&s, SCHED_OUTPUT, 1), rows[i].output_global, "row %zu",
                         i);
    }
    struct sched s = {.kind = ROTA_KIND_REDUCE_SCATTER,
                      .nranks = 3,
                      .rank = 1,
                      .root = -1,
                      .blocks = 3,
                      .chunks_per_block = 2,
                      .in_place = true};
    cr_expect_eq(sched_input_alias(&s, 3), 1, "the own block is the output");
    cr_expect_eq(sched_input_alias(&s, 4), UINT32_MAX);
}

Test(schedule, names_are_those_of_the_library) {
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
        if (sched_kind_collective((rota_kind)kind))
            cr_expect_str_eq(sched_kind_name((rota_kind)kind), rota_kind_name((rota_kind)kind));
    const rota_kind others[] = {ROTA_KIND_SEND, ROTA_KIND_RECV, ROTA_KIND_COUNT, (rota_kind)-1};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        cr_expect_null(sched_kind_name(others[i]));
        cr_expect_not(sched_kind_collective(others[i]));
    }
}

Test(schedule, chunks_cover_a_block) {
    const size_t counts[] = {0, 1, 5, 63, 64, 65, 448, 10007, 10556587, (size_t)1 << 40};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (uint32_t chunks = 1; chunks < 20; chunks++) {
            size_t sum = 0;
            for (uint32_t c = 0; c < chunks; c++) {
                cr_assert_eq(chunk_begin(counts[i], chunks, c), sum);
                sum += chunk_length(counts[i], chunks, c);
            }
            cr_assert_eq(sum, counts[i]);
        }
}
