/* v-forms: zero and uneven counts, gaps, many slices, lengths that differ. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 8 };

static unsigned draw(unsigned *seed, unsigned below) {
    *seed = *seed * 1103515245u + 12345u;
    return *seed / 65536u % below;
}

/* Element i of what rank `from` holds for rank `to`. */
static int32_t value_of(int from, int to, size_t i) {
    return (int32_t)(from * 1000003 + to * 7919 + (int)i * 31);
}

/* Counts of one round, the same on every rank: [from][to]. */
struct table {
    size_t count[MAX_RANKS][MAX_RANKS];
};

static void draw_table(struct table *table, int n, unsigned round) {
    unsigned seed = round * 77u + (unsigned)n;
    size_t scale = round % 3 == 0 ? 7 : round % 3 == 1 ? 400 : 9000;
    for (int from = 0; from < n; from++)
        for (int to = 0; to < n; to++)
            table->count[from][to] = draw(&seed, 2) == 0 ? 0 : draw(&seed, (unsigned)scale) + 1;
    /* C20: only the first k ranks have data */
    for (int from = (int)round % (n + 1); round % 4 == 3 && from < n; from++)
        memset(table->count[from], 0, sizeof(table->count[from]));
}

/* Blocks with gaps of three elements, or packed. Returns the elements of the whole buffer. */
static size_t lay_out(const size_t *counts, size_t *displs, int n, bool packed) {
    size_t at = packed ? 0 : 3;
    for (int r = 0; r < n; r++) {
        displs[r] = at;
        at += counts[r] + (packed ? 0 : 3);
    }
    return at;
}

static void check_gaps(const int32_t *buffer, size_t length, const size_t *counts,
                       const size_t *displs, int n) {
    for (size_t i = 0; i < length; i++) {
        bool inside = false;
        for (int r = 0; r < n; r++)
            inside |= i >= displs[r] && i < displs[r] + counts[r];
        CHECK(inside || buffer[i] == -1, "element %zu between blocks was written", i);
    }
}

static void to_all(const struct rank *rank, const struct table *table, bool packed) {
    int n = rank->nranks, me = rank->rank;
    size_t recv_counts[MAX_RANKS], sent[MAX_RANKS], received[MAX_RANKS];
    for (int r = 0; r < n; r++)
        recv_counts[r] = table->count[r][me];
    size_t out = lay_out(table->count[me], sent, n, packed);
    size_t in = lay_out(recv_counts, received, n, packed);
    int32_t *send = calloc(out + 1, sizeof(*send)), *recv = malloc((in + 1) * sizeof(*recv));
    memset(recv, 0xff, (in + 1) * sizeof(*recv));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < table->count[me][r]; i++)
            send[sent[r] + i] = value_of(me, r, i);
    CHECK_OK(rota_all_to_allv(send, table->count[me], packed ? NULL : sent, recv, recv_counts,
                              packed ? NULL : received, ROTA_INT32, rank->comm, NULL));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < recv_counts[r]; i++)
            if (recv[received[r] + i] != value_of(r, me, i)) {
                CHECK(false, "element %zu from rank %d is wrong", i, r);
                break;
            }
    check_gaps(recv, in, recv_counts, received, n);
    free(send);
    free(recv);
}

static void gather_all(const struct rank *rank, const size_t *counts, bool in_place) {
    int n = rank->nranks, me = rank->rank;
    size_t displs[MAX_RANKS], length = lay_out(counts, displs, n, in_place);
    int32_t *recv = malloc((length + 1) * sizeof(*recv));
    int32_t *own = malloc((counts[me] + 1) * sizeof(*own));
    memset(recv, 0xff, (length + 1) * sizeof(*recv));
    int32_t *send = in_place ? recv + displs[me] : own;
    for (size_t i = 0; i < counts[me]; i++)
        send[i] = value_of(me, 0, i);
    CHECK_OK(rota_all_gatherv(send, counts[me], recv, counts, in_place ? NULL : displs, ROTA_INT32,
                              rank->comm, NULL));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            if (recv[displs[r] + i] != value_of(r, 0, i)) {
                CHECK(false, "element %zu of rank %d is wrong", i, r);
                break;
            }
    check_gaps(recv, length, counts, displs, n);
    free(own);
    free(recv);
}

static void scatter_sum(const struct rank *rank, const size_t *counts, bool in_place) {
    int n = rank->nranks, me = rank->rank;
    size_t displs[MAX_RANKS], length = lay_out(counts, displs, n, in_place);
    int32_t *send = calloc(length + 1, sizeof(*send));
    int32_t *own = malloc((counts[me] + 1) * sizeof(*own));
    for (int r = 0; r < n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            send[displs[r] + i] = me + r * 100 + (int32_t)i;
    int32_t *recv = in_place ? send + displs[me] : own;
    CHECK_OK(rota_reduce_scatterv(send, counts, in_place ? NULL : displs, recv, counts[me],
                                  ROTA_INT32, ROTA_SUM, rank->comm, NULL));
    for (size_t i = 0; i < counts[me]; i++) {
        int32_t expected = n * (n - 1) / 2 + n * (me * 100 + (int32_t)i);
        if (recv[i] != expected) {
            CHECK(false, "element %zu is %d, expected %d", i, recv[i], expected);
            break;
        }
    }
    free(own);
    free(send);
}

static void gather_scatter(const struct rank *rank, const size_t *counts, int root) {
    int n = rank->nranks, me = rank->rank;
    size_t displs[MAX_RANKS], length = lay_out(counts, displs, n, false);
    int32_t *all = malloc((length + 1) * sizeof(*all));
    int32_t *own = malloc((counts[me] + 1) * sizeof(*own));
    memset(all, 0xff, (length + 1) * sizeof(*all));
    for (size_t i = 0; i < counts[me]; i++)
        own[i] = value_of(me, root, i);
    bool is_root = me == root;
    CHECK_OK(rota_gatherv(own, counts[me], is_root ? all : NULL, is_root ? counts : NULL,
                          is_root ? displs : NULL, ROTA_INT32, root, rank->comm, NULL));
    for (int r = 0; is_root && r < n; r++)
        for (size_t i = 0; i < counts[r]; i++)
            CHECK(all[displs[r] + i] == value_of(r, root, i), "gathered from rank %d", r);
    if (is_root)
        check_gaps(all, length, counts, displs, n);
    memset(own, 0xff, (counts[me] + 1) * sizeof(*own));
    CHECK_OK(rota_scatterv(is_root ? all : NULL, is_root ? counts : NULL, is_root ? displs : NULL,
                           own, counts[me], ROTA_INT32, root, rank->comm, NULL));
    for (size_t i = 0; i < counts[me]; i++)
        CHECK(own[i] == value_of(me, root, i), "scattered element %zu", i);
    CHECK(own[counts[me]] == -1, "written past the end");
    free(own);
    free(all);
}

static void rounds(const struct rank *rank) {
    for (unsigned round = 0; round < 12; round++) {
        struct table table;
        draw_table(&table, rank->nranks, round);
        to_all(rank, &table, round % 2 == 0);
        gather_all(rank, table.count[0], round % 2 == 0);
        scatter_sum(rank, table.count[rank->nranks - 1], round % 2 == 0);
        gather_scatter(rank, table.count[0], (int)round % rank->nranks);
        int64_t in = round, sum = -1; /* C22: and the ranks are still in step */
        CHECK_OK(rota_all_reduce(&in, &sum, 1, ROTA_INT64, ROTA_SUM, rank->comm, NULL));
        CHECK(sum == (int64_t)round * rank->nranks, "out of step in round %u", round);
    }
}

static void C20_C22_uneven_and_zero_counts(void) {
    setenv("ROTA_SLICE_BYTES", "4096", 1);
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        for (int n = 1; n <= 5; n += n == 3 ? 2 : 1)
            ranks_run(n, 30000, rounds, NULL);
    }
    unsetenv("ROTA_SLICE_BYTES");
}

/* Rank 0 sends `sent` bytes to rank 3, which expects `expected`. */
struct difference {
    size_t sent, expected;
};

static void differ(const struct rank *rank) {
    const struct difference *difference = rank->arg;
    size_t send_counts[4] = {16, 16, 16, 16}, recv_counts[4] = {16, 16, 16, 16};
    if (rank->rank == 0)
        send_counts[3] = difference->sent;
    if (rank->rank == 3)
        recv_counts[0] = difference->expected;
    char *send = calloc(400000, 1), *recv = calloc(400000, 1);
    int64_t began = now_ms();
    rota_status status = rota_all_to_allv(send, send_counts, NULL, recv, recv_counts, NULL,
                                          ROTA_INT8, rank->comm, NULL);
    if (rank->rank == 3) {
        char sizes[64];
        snprintf(sizes, sizeof(sizes), "sends %zu bytes to rank 3, which expects %zu",
                 difference->sent, difference->expected);
        CHECK(status == ROTA_ERR_MISMATCH, "status %s", rota_status_name(status));
        CHECK(strstr(last_error()->message, sizes) != NULL, "%s", last_error()->message);
    }
    CHECK(now_ms() - began < 3000, "it took %lld ms", (long long)(now_ms() - began));
    free(send);
    free(recv);
}

static void C21_lengths_differ(void) {
    static struct difference differences[] = {{0, 1597}, {36, 0}, {131072, 65536}, {65536, 131072}};
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++)
            ranks_run(4, 600, differ, &differences[i]);
    }
}

static void refuse(const struct rank *rank) {
    size_t counts[2] = {4, 4}, displs[2] = {0, 3}, huge[2] = {SIZE_MAX / 2, 4};
    int32_t send[8] = {0}, recv[8] = {0};
    CHECK_STATUS(
        rota_all_to_allv(send, counts, NULL, recv, counts, displs, ROTA_INT32, rank->comm, NULL),
        ROTA_ERR_ARGUMENT);
    CHECK(strstr(last_error()->message, "overlap") != NULL, "%s", last_error()->message);
    CHECK_STATUS(
        rota_all_to_allv(send, counts, NULL, send + 2, counts, NULL, ROTA_INT32, rank->comm, NULL),
        ROTA_ERR_ARGUMENT);
    CHECK_STATUS(
        rota_all_to_allv(send, huge, NULL, recv, counts, NULL, ROTA_INT32, rank->comm, NULL),
        ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_all_gatherv(send, 3, recv, counts, NULL, ROTA_INT32, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_OK(rota_barrier(rank->comm, NULL));
}

static void wrong_tables_are_refused(void) {
    way_take(&ways[0]);
    ranks_run(2, 5000, refuse, NULL);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C20_C22_uneven_and_zero_counts", C20_C22_uneven_and_zero_counts},
        {"C21_lengths_differ", C21_lengths_differ},
        {"wrong_tables_are_refused", wrong_tables_are_refused},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
