/* Layouts: what a whole job's buffers hold before and after must fit together. */
#include "bench/layout.h"
#include <criterion/criterion.h>

#define RANKS 5

static struct layout_segment segments[LAYOUT_MAX_SEGMENTS(RANKS)];

static struct bench_case case_of(const struct bench_operation *operation, int rank, bool in_place) {
    struct bench_case row = {.operation = operation,
                             .dtype = ROTA_INT32,
                             .nranks = RANKS,
                             .rank = rank,
                             .root = operation->rooted ? 3 : -1,
                             .in_place = in_place,
                             .salt = 7};
    bench_case_size(&row, 4000);
    return row;
}

/* Segments cover the buffer; only an all-gather's own block lies over poison. */
Test(layout, covers_the_buffer) {
    for (int i = 0; bench_operation_at(i); i++)
        for (int form = 0; form < 2; form++)
            for (int rank = 0; rank < RANKS; rank++)
                for (enum layout_buffer buffer = LAYOUT_SEND; buffer <= LAYOUT_RECV; buffer++) {
                    struct bench_case row = case_of(bench_operation_at(i), rank, form);
                    size_t whole = layout_count(&row, buffer), covered = 0;
                    if (whole == 0)
                        continue;
                    int count = layout_after(&row, buffer, segments);
                    cr_assert_leq(count, LAYOUT_MAX_SEGMENTS(RANKS));
                    for (int s = 0; s < count; s++) {
                        cr_assert_eq(segments[s].offset, covered, "%s", row.operation->name);
                        cr_assert_lt(segments[s].phase, PATTERN_PERIOD);
                        covered += segments[s].count;
                    }
                    cr_assert_eq(covered, whole, "%s", row.operation->name);
                }
}

Test(layout, all_to_all_transposes) {
    const struct bench_operation *operation = bench_operation_find("alltoall");
    uint32_t sent[RANKS][RANKS];
    for (int rank = 0; rank < RANKS; rank++) {
        struct bench_case row = case_of(operation, rank, false);
        cr_assert_eq(layout_before(&row, LAYOUT_SEND, segments), RANKS);
        for (int to = 0; to < RANKS; to++)
            sent[rank][to] = segments[to].phase;
    }
    for (int rank = 0; rank < RANKS; rank++) {
        struct bench_case row = case_of(operation, rank, false);
        cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), RANKS);
        for (int from = 0; from < RANKS; from++) {
            cr_assert_eq(segments[from].origin, from);
            cr_assert_eq(segments[from].phase, sent[from][rank]);
        }
    }
}

/* What one rank sends to another is what that one expects, in both forms, and one block is empty.
 */
Test(layout, v_forms_agree_on_lengths) {
    static const char *names[] = {"all_gatherv", "reduce_scatterv", "alltoallv", "gatherv",
                                  "scatterv_perf"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        for (int form = 0; form < 2; form++) {
            size_t tables[RANKS][BENCH_TABLES * RANKS], sent = 0;
            int empty = 0;
            for (int rank = 0; rank < RANKS; rank++) {
                struct bench_case row = case_of(bench_operation_find(names[i]), rank, form);
                row.tables = tables[rank];
                bench_case_tables_fill(&row);
                cr_assert_leq(row.size, 4000);
                cr_assert_geq(row.size, 3500);
                sent += bench_case_block(&row, 0, rank) * sizeof(int32_t);
                empty += bench_case_block(&row, 0, rank) == 0;
                if (rank == RANKS - 1 && row.operation->shape != BENCH_ALL_GATHER &&
                    row.operation->shape != BENCH_GATHER) {
                    cr_assert_eq(sent, row.size);
                    cr_assert_eq(empty, 1);
                }
            }
            for (int from = 0; from < RANKS; from++)
                for (int to = 0; to < RANKS; to++)
                    cr_assert_eq(tables[from][BENCH_SEND_COUNTS * RANKS + to],
                                 tables[to][BENCH_RECV_COUNTS * RANKS + from], "%s", names[i]);
        }
}

/* Every block lies where the tables say, between gaps; in the other half packed and in order. */
Test(layout, v_forms_have_gaps_in_one_half) {
    for (int form = 0; form < 2; form++) {
        size_t tables[BENCH_TABLES * RANKS];
        struct bench_case row = case_of(bench_operation_find("reduce_scatterv"), 1, form);
        row.tables = tables;
        bench_case_tables_fill(&row);
        bool gaps = bench_case_gap(&row) > 0;
        cr_assert_eq(gaps, !form);
        int count = layout_before(&row, form ? LAYOUT_RECV : LAYOUT_SEND, segments);
        cr_assert_eq(count, gaps ? 2 * RANKS + 1 : RANKS);
        for (int place = 0; place < RANKS; place++) {
            int rank = gaps ? (place + 1) % RANKS : place;
            const struct layout_segment *block = &segments[gaps ? 2 * place + 1 : place];
            cr_assert_eq(block->offset, tables[BENCH_SEND_OFFSETS * RANKS + rank]);
            cr_assert_eq(block->count, tables[BENCH_SEND_COUNTS * RANKS + rank]);
            cr_assert(!gaps || (block[-1].origin == PATTERN_POISONED && block[-1].count > 0));
        }
        cr_assert_eq(layout_recv_offset(&row), tables[BENCH_SEND_OFFSETS * RANKS + 1]);
    }
}

/* In place the empty block of rank 2 begins where that of rank 3 does. */
Test(layout, an_empty_result_leaves_its_neighbour_alone) {
    struct bench_case row = case_of(bench_operation_find("reduce_scatterv"), RANKS / 2, true);
    cr_assert_eq(bench_case_recv_count(&row), 0);
    cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), RANKS);
    for (int s = 0; s < RANKS; s++)
        cr_assert_eq(segments[s].origin, s == RANKS / 2 ? PATTERN_RESULT : RANKS / 2);
}

Test(layout, only_the_root_gets_a_reduction) {
    const struct bench_operation *operation = bench_operation_find("reduce");
    for (int rank = 0; rank < RANKS; rank++) {
        struct bench_case row = case_of(operation, rank, false);
        cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), 1);
        cr_assert_eq(segments[0].origin, rank == 3 ? PATTERN_RESULT : PATTERN_POISONED);
    }
}

/* Every rank's block of a scatter is that which the root sends it, also in place. */
Test(layout, scatter_deals_out_the_blocks_of_the_root) {
    const struct bench_operation *operation = bench_operation_find("scatter");
    for (int form = 0; form < 2; form++)
        for (int rank = 0; rank < RANKS; rank++) {
            struct bench_case root = case_of(operation, 3, false);
            cr_assert_eq(layout_before(&root, LAYOUT_SEND, segments), RANKS);
            uint32_t phase = segments[rank].phase;
            struct bench_case row = case_of(operation, rank, form);
            int own = !form ? 0 : rank == 3 ? rank : 1;
            cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), !form      ? 1
                                                                    : own == 1 ? 3
                                                                               : RANKS);
            cr_assert_eq(segments[own].origin, 3);
            cr_assert_eq(segments[own].phase, phase);
            cr_assert_eq(segments[own].count, row.count);
            cr_assert_eq(segments[own].offset, form ? (size_t)rank * row.count : 0);
        }
}

Test(layout, gather_collects_at_the_root) {
    const struct bench_operation *operation = bench_operation_find("gather");
    for (int rank = 0; rank < RANKS; rank++) {
        struct bench_case row = case_of(operation, rank, false);
        int count = layout_after(&row, LAYOUT_RECV, segments);
        cr_assert_eq(count, rank == 3 ? RANKS : 1);
        for (int from = 0; from < count; from++)
            cr_assert_eq(segments[from].origin, rank == 3 ? from : PATTERN_POISONED);
    }
}

Test(layout, scans_give_prefixes) {
    for (int rank = 0; rank < RANKS; rank++) {
        struct bench_case row = case_of(bench_operation_find("scan"), rank, true);
        cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), 1);
        cr_assert_eq(segments[0].origin, PATTERN_PREFIX(rank + 1));
        row = case_of(bench_operation_find("exscan"), rank, true);
        cr_assert_eq(layout_after(&row, LAYOUT_RECV, segments), 1);
        cr_assert_eq(segments[0].origin, rank ? PATTERN_PREFIX(rank) : 0, "rank 0 keeps its input");
    }
}

Test(layout, sizes_are_those_of_nccl_tests) {
    struct bench_case row = {
        .operation = bench_operation_find("all_gather_perf"), .dtype = ROTA_FLOAT32, .nranks = 3};
    bench_case_size(&row, 8);
    cr_assert_eq(row.count, 0); /* blocks are multiples of 16 bytes */
    bench_case_size(&row, 1000);
    cr_assert_eq(row.count, 80);
    cr_assert_eq(row.size, 960);
    cr_assert_float_eq(bench_case_factor(&row), 2.0 / 3, 1e-12);
    row.operation = bench_operation_find("allreduce");
    bench_case_size(&row, 1001);
    cr_assert_eq(row.count, 250);
    cr_assert_eq(row.size, 1000);
    cr_assert_float_eq(bench_case_factor(&row), 4.0 / 3, 1e-12);
    cr_assert_null(bench_operation_find("nope"));
    cr_assert_null(bench_operation_find("_perf"));
}
