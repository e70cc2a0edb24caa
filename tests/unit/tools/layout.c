/* Layouts: what a whole job's buffers hold before and after must fit together. */
#include "bench/layout.h"
#include <criterion/criterion.h>

#define RANKS 5

static struct layout_segment segments[RANKS + 2];

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
                    cr_assert_leq(count, RANKS + 2);
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
