/* Levelled native forms: how members are divided, and what they read of other blocks. That they
 * give the right bits is in forms.c and flows.c. */
#include "cluster.h"
#include "transports/shm/group.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static void open_groups(struct cluster *cluster, int n, struct native_group **groups) {
    int members[CLUSTER_MAX];
    cluster_connect_all(cluster);
    for (int i = 0; i < n; i++)
        members[i] = i;
    for (int r = 0; r < n; r++)
        REQUIRE(shm_native.group_open(cluster->ranks[r].transport, 1, 1, members, n, r,
                                      &groups[r]) == ROTA_OK);
    for (int turn = 0; turn < 2; turn++)
        for (int r = 0; r < n; r++)
            REQUIRE(shm_native.group_connect(groups[r]) == TRANSPORT_OK || turn == 0);
}

/* Ranks that say where they are, a letter each: third-level caches, then NUMA nodes; '-': bound to
 * none. All come to the same block. */
static void expect_block(const char *caches, const char *nodes, int block) {
    struct cluster cluster;
    struct native_group *groups[CLUSTER_MAX];
    int n = (int)strlen(caches);
    cluster_open(&cluster, n);
    for (int r = 0; r < n; r++) {
        uint32_t *place = shm_of(cluster.ranks[r].transport)->arena.head->identity.place;
        place[0] = caches[r] == '-' ? 0 : (uint32_t)caches[r];
        place[1] = nodes[r] == '-' ? 0 : (uint32_t)nodes[r];
    }
    open_groups(&cluster, n, groups);
    for (int r = 0; r < n; r++) {
        const struct shm_levels *levels = &groups[r]->levels;
        cr_assert_eq(levels->block, block, "%s, %s: rank %d has blocks of %d", caches, nodes, r,
                     levels->block);
        cr_assert(block == 0 ||
                  (levels->first == r / block * block &&
                   levels->blocks == (n + block - 1) / block &&
                   levels->size == (levels->first + block > n ? n - levels->first : block)));
        shm_native.group_close(groups[r]);
    }
    cluster_close(&cluster);
}

Test(shm_levels, blocks_span_no_border) {
    expect_block("aaaabbbb", "--------", 4);
    expect_block("aabbccdd", "xxxxyyyy", 2);
    expect_block("aaaaaaaa", "xxxxyyyy", 4);
    expect_block("abcdefgh", "xxxxyyyy", 4); /* one rank for each cache: by node */
    expect_block("aaabbbccc", "xxxxxxxxx", 0);
    expect_block("aaabbb", "------", 0);
    expect_block("aaaaaabbbbbb", "------------", 2);
    expect_block("aaaabbbbbbcc", "------------", 2);
    expect_block("aaaaaaaabbbb", "------------", 8);
    expect_block("aaaabbb", "-------", 4);
    expect_block("aaaab", "-----", 0); /* one is no block */
    expect_block("aaaaaaaa", "xxxxxxxx", 0);
    expect_block("abababab", "xyxyxyxy", 0);
    expect_block("--------", "--------", 0);
    expect_block("aaaa----", "--------", 4); /* those bound to none count as one cache */
    expect_block("aab", "xxx", 0);
}

/* -- what is read ---------------------------------------------------------------------------- */

struct count {
    rota_kind kind;
    rota_dtype dtype;
    size_t bytes; /* of a block */
    uint64_t far,
        flat; /* bytes that member 1 of 8 reads of the other four, and does in flat forms */
};

static void run_count(struct cluster *cluster, int rank, void *arg) {
    const struct count *count = arg;
    struct native_group *group = cluster_group(cluster, rank, 1, 8);
    struct reduce_spec spec;
    REQUIRE(reduce_spec_init(&spec, count->dtype, ROTA_SUM, 8, cpu_isa_best()) == ROTA_OK);
    bool reduces = count->kind == ROTA_KIND_ALL_REDUCE || count->kind == ROTA_KIND_REDUCE ||
                   count->kind == ROTA_KIND_REDUCE_SCATTER;
    uint8_t *data = calloc(16, count->bytes + 1);
    REQUIRE(data && group->levels.block == 4);
    struct native_call call = {.kind = count->kind,
                               .count = count->bytes / spec.element_size,
                               .bytes = count->bytes,
                               .spec = reduces ? &spec : NULL,
                               .root = 1,
                               .sequence = 1,
                               .send = data,
                               .recv = data + 8 * count->bytes};
    const struct native_form *form = shm_native.query(group, call.kind, call.bytes, call.spec);
    REQUIRE(form && form->block == 4);
    struct cluster_wait wait;
    cluster_wait_init(&wait);
    wait.crowded = true;
    REQUIRE(shm_native.advance(group, form, &call, &wait.wait).outcome == NATIVE_DONE);
    if (rank == (count->kind == ROTA_KIND_BROADCAST ? 5 : 1))
        REQUIRE(group->levels.far_bytes == count->far && count->far * 4 <= count->flat * 2);
    shm_native.group_close(group);
    free(data);
}

Test(shm_levels, few_bytes_come_from_other_blocks) {
    const size_t m = 1 << 20;
    const struct count counts[] = {
        {ROTA_KIND_BARRIER, ROTA_INT8, 0, SHM_LINE, 4 * SHM_LINE},
        {ROTA_KIND_ALL_REDUCE, ROTA_FLOAT32, 8, SHM_LINE + 8, 4 * (SHM_LINE + 8)},
        {ROTA_KIND_ALL_REDUCE, ROTA_FLOAT32, m, 2 * m / 8, 2 * 4 * m / 8},
        {ROTA_KIND_ALL_REDUCE, ROTA_BFLOAT16, m, 3 * m / 8, 2 * 4 * m / 8}, /* partials: float32 */
        {ROTA_KIND_REDUCE_SCATTER, ROTA_FLOAT32, m / 8, m / 8, 4 * m / 8},
        {ROTA_KIND_ALL_GATHER, ROTA_FLOAT32, m / 8, m / 8, 4 * m / 8},
        {ROTA_KIND_BROADCAST, ROTA_FLOAT32, m, m / 4, m},
        {ROTA_KIND_REDUCE, ROTA_FLOAT32, m, m, 4 * m}};
    setenv("ROTA_LEVELS", "4", 1);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        cluster_run(8, run_count, (void *)&counts[i]);
    unsetenv("ROTA_LEVELS");
}

/* Without the setting small groups keep the flat forms for small calls. */
Test(shm_levels, sizes_decide) {
    struct cluster cluster;
    struct native_group *groups[CLUSTER_MAX];
    for (int n = 8; n <= 12; n += 4) {
        cluster_open(&cluster, n);
        for (int r = 0; r < n; r++) {
            uint32_t *place = shm_of(cluster.ranks[r].transport)->arena.head->identity.place;
            place[0] = 0;
            place[1] = (uint32_t)(1 + r / 4);
        }
        open_groups(&cluster, n, groups);
        struct reduce_spec spec;
        REQUIRE(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_SUM, n, CPU_SCALAR) == ROTA_OK);
        const struct {
            rota_kind kind;
            size_t bytes;
            bool levelled;
        } cases[] = {{ROTA_KIND_BARRIER, 0, n == 12},          {ROTA_KIND_ALL_REDUCE, 8, n == 12},
                     {ROTA_KIND_ALL_REDUCE, 16384, false},     {ROTA_KIND_ALL_REDUCE, 65536, true},
                     {ROTA_KIND_ALL_GATHER, 1000, false},      {ROTA_KIND_ALL_GATHER, 65536, true},
                     {ROTA_KIND_ALL_TO_ALL, 1 << 20, false},   {ROTA_KIND_GATHER, 1 << 20, false},
                     {ROTA_KIND_REDUCE_SCATTER, 1 << 20, true}};
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            const struct native_form *form =
                shm_native.query(groups[0], cases[i].kind, cases[i].bytes, &spec);
            cr_assert(form != NULL && (form->block == 4) == cases[i].levelled, "case %zu, n %d", i,
                      n);
        }
        for (int r = 0; r < n; r++)
            shm_native.group_close(groups[r]);
        cluster_close(&cluster);
    }
}
