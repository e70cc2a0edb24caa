/* Rings in graphs too large for exact search, and through networks that limit them. */
#include "machines.h"

#include <criterion/criterion.h>
#include <math.h>
#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A machine under construction: links[i][j] from GPU i to GPU j. */
struct machine {
    int gpus;
    int links[128][128];
};

static struct machine *machine_new(int gpus) {
    struct machine *machine = calloc(1, sizeof(*machine));
    cr_assert_not_null(machine);
    machine->gpus = gpus;
    return machine;
}

static void join(struct machine *machine, int a, int b, int width) {
    machine->links[a][b] += width;
    machine->links[b][a] += width;
}

/* As NCCL writes it. */
static char *machine_xml(const struct machine *machine) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    cr_assert_not_null(out);
    fputs("<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">\n", out);
    for (int i = 0; i < machine->gpus; i++) {
        fprintf(out,
                "<pci busid=\"0000:%02x:00.0\" class=\"0x030200\"><gpu dev=\"%d\" sm=\"90\">\n", i,
                i);
        for (int j = 0; j < machine->gpus; j++)
            if (machine->links[i][j] > 0)
                fprintf(out,
                        "<nvlink target=\"0000:%02x:00.0\" count=\"%d\" tclass=\"0x030200\"/>\n", j,
                        machine->links[i][j]);
        fputs("</gpu></pci>\n", out);
    }
    fputs("</cpu></system>\n", out);
    cr_assert_eq(fclose(out), 0);
    return text;
}

/* The score from the loads of links, counted here. */
static double count_score(const struct machine *machine, const rota_topo *topo,
                          const rota_topo_result *result) {
    static double load[128][128];
    double sum = 0, worst = 0;
    int n = machine->gpus;
    memset(load, 0, sizeof(load));
    for (int r = 0; r < result->count; r++) {
        rota_topo_ring ring = ROTA_TOPO_RING_INIT;
        bool seen[128] = {false};
        cr_assert_eq(rota_topo_ring_describe(topo, r, &ring), ROTA_OK);
        cr_assert_eq(ring.gpu_count, n);
        for (int i = 0; i < n; i++) {
            cr_assert_not(seen[ring.gpus[i]]);
            seen[ring.gpus[i]] = true;
            load[ring.gpus[i]][ring.gpus[(i + 1) % n]] += ring.share;
        }
        sum += ring.share;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            if (load[i][j] > 0)
                worst = fmax(worst, load[i][j] / machine->links[i][j]);
    return worst > 0 ? sum / fmax(worst, 1) : 0;
}

/* Searches, looks at the score and frees the machine. */
static void expect(struct machine *machine, const char *what, double bound, double share) {
    char *text = machine_xml(machine);
    rota_topo *topo = NULL;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    struct timespec begin, end;
    cr_assert_eq(rota_topo_read(text, strlen(text), what, &topo), ROTA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    double seconds =
        (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    double score = count_score(machine, topo, &result);
    if (getenv("ROTA_TEST_SHOW") != NULL)
        fprintf(stderr, "%-24s %3d GPUs: %.4g of %.4g (%s), %d rings, %.2f s\n", what,
                machine->gpus, score, result.bound, result.bound_kind, result.count, seconds);
    cr_assert_str_eq(result.kind, "direct", "%s: %s", what, result.kind);
    cr_assert_float_eq(result.bound, bound, 1e-6, "%s: bound %g, expected %g", what, result.bound,
                       bound);
    cr_assert_float_eq(result.score, score, 1e-6, "%s: told %g, counted %g", what, result.score,
                       score);
    cr_assert_geq(score, share * bound - 1e-6, "%s: %g of %g", what, score, bound);
#if !defined(__SANITIZE_ADDRESS__)
    cr_assert_lt(seconds, 5, "%s", what);
#endif
    rota_topo_free(topo);
    free(text);
    free(machine);
}

/* Grids closed in each direction; a side of 2 has one link, not two. */
static struct machine *torus(int x, int y, int z, int width) {
    struct machine *machine = machine_new(x * y * z);
    int sizes[3] = {x, y, z};
    for (int i = 0; i < machine->gpus; i++)
        for (int d = 0, stride = 1; d < 3; stride *= sizes[d++]) {
            int at = i / stride % sizes[d], next = (at + 1) % sizes[d];
            if (sizes[d] > 2 || (sizes[d] == 2 && at == 0))
                join(machine, i, i + (next - at) * stride, width);
        }
    return machine;
}

Test(large, tori) {
    expect(torus(4, 5, 1, 2), "torus 4 x 5", 8, 1);
    expect(torus(3, 7, 1, 1), "torus 3 x 7", 4, 1);
    expect(torus(6, 6, 1, 1), "torus 6 x 6", 4, 1);
    expect(torus(8, 16, 1, 1), "torus 8 x 16", 4, 1);
    expect(torus(8, 16, 1, 3), "torus 8 x 16, wide", 12, 1);
    expect(torus(3, 3, 3, 1), "torus 3 x 3 x 3", 6, 1);
    expect(torus(4, 4, 4, 2), "torus 4 x 4 x 4", 12, 1);
    expect(torus(4, 4, 8, 1), "torus 4 x 4 x 8", 6, 1);
}

Test(large, cubes) {
    struct machine *machine = machine_new(32);
    for (int i = 0; i < 32; i++)
        for (int bit = 1; bit < 32; bit *= 2)
            if (i < (i ^ bit))
                join(machine, i, i ^ bit, 1);
    expect(machine, "cube of 32", 5, 1);
    machine = machine_new(64);
    for (int i = 0; i < 64; i++)
        for (int bit = 1; bit < 64; bit *= 2)
            if (i < (i ^ bit))
                join(machine, i, i ^ bit, 1);
    expect(machine, "cube of 64", 6, 1);
}

static struct machine *mesh(int gpus, int width) {
    struct machine *machine = machine_new(gpus);
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < i; j++)
            join(machine, i, j, width);
    return machine;
}

Test(large, meshes) {
    expect(mesh(18, 1), "mesh of 18", 17, 1);
    expect(mesh(19, 2), "mesh of 19", 36, 1);
    expect(mesh(32, 1), "mesh of 32", 31, 1);
    expect(mesh(128, 1), "mesh of 128", 127, 0.99);
}

/* Meshes of eight in a ring, `width` pairs of links between neighbours. */
static struct machine *islands(int count, int pairs) {
    struct machine *machine = machine_new(8 * count);
    for (int island = 0; island < count; island++) {
        for (int i = 0; i < 8; i++)
            for (int j = 0; j < i; j++)
                join(machine, 8 * island + i, 8 * island + j, 1);
        for (int i = 0; i < pairs; i++)
            join(machine, 8 * island + i, (8 * island + 15 - i) % (8 * count), 1);
    }
    return machine;
}

Test(large, few_links_between_islands) {
    expect(islands(4, 4), "islands of 8", 8, 0.99);
    expect(islands(4, 2), "islands of 8, narrow", 4, 0.99);
    expect(islands(16, 3), "sixteen islands of 8", 6, 0.49); /* 6 is possible: not found */
}

/* Without a link, without both directions of some, with links doubled: no rings of equal links. */
Test(large, uneven_graphs) {
    struct machine *machine = torus(5, 5, 1, 2);
    machine->links[0][1]--;
    expect(machine, "torus 5 x 5 less a link", 7, 0.99);
    machine = torus(5, 7, 1, 1);
    join(machine, 0, 1, 1);
    join(machine, 17, 18, 1);
    expect(machine, "torus 5 x 7 and two links", 4, 1);
    machine = machine_new(48); /* each is joined to seven others by lot, of any width */
    uint64_t state = 7;
    for (int i = 0; i < 48; i++) {
        join(machine, i, (i + 1) % 48, 2);
        for (int k = 0; k < 3; k++) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            int other = (int)(state >> 33) % 48;
            if (other != i)
                join(machine, i, other, 1 + (int)(state >> 62));
        }
    }
    int least = 1 << 20;
    for (int i = 0; i < 48; i++) {
        int sum = 0;
        for (int j = 0; j < 48; j++)
            sum += machine->links[i][j];
        least = sum < least ? sum : least;
    }
    expect(machine, "by lot", least, 0.99);
}

static rota_topo_result rings_of(const char *text) {
    rota_topo *topo = NULL;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_read(text, strlen(text), "cluster", &topo), ROTA_OK);
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    if (getenv("ROTA_TEST_SHOW") != NULL)
        fprintf(stderr, "%s: %g of %g GB/s, %d rings\n", text, result.score_gbps,
                result.score_gbps * result.bound / result.score, result.count);
    rota_topo_free(topo);
    return result;
}

#define HOSTS(hosts) "cluster 1\nhosts " #hosts "\ngpus 8 arch 90\nlinks nvswitch 18\n"

/* GB/s of all rings, and of the bound. */
static void expect_gbps(const char *text, double gbps, double bound) {
    rota_topo_result result = rings_of(text);
    cr_assert_float_eq(result.score_gbps, gbps, 1e-3 * gbps, "%s: %g GB/s, expected %g", text,
                       result.score_gbps, gbps);
    double proven = result.bound * result.score_gbps / result.score;
    cr_assert_float_eq(proven, bound, 1e-3 * bound, "%s: bound %g GB/s, expected %g", text, proven,
                       bound);
}

Test(large, networks_limit_rings) {
    /* Eight NICs of 50 GB/s: 370.8 by links, 400 by NICs; more only where the network has it. */
    expect_gbps(HOSTS(16) "nics 8 speed 400\nfabric fat-tree leaves 4 spines 2\n", 370.8, 370.8);
    expect_gbps(HOSTS(16) "nics 8 speed 400\nfabric fat-tree leaves 4 spines 2 speed 400\n", 100,
                100);
    expect_gbps(HOSTS(16) "nics 8 speed 400\nfabric fat-tree leaves 4 spines 2 speed 1600\n", 370.8,
                370.8);
    expect_gbps(HOSTS(16) "nics 8 speed 400\nfabric switch\n", 370.8, 370.8);
    expect_gbps(HOSTS(4) "nics 8 speed 400\nfabric rails\n", 370.8, 370.8);
    /* One host per point: each direction of each axis carries a ring of 50 GB/s. */
    expect_gbps(HOSTS(16) "nics 8 speed 400\nfabric torus 4 4\n", 200, 200);
    expect_gbps(HOSTS(64) "nics 8 speed 400\nfabric torus 4 4 4\n", 300, 300);
    expect_gbps(HOSTS(5) "nics 8 speed 400\nfabric torus 5\n", 100, 100);
    expect_gbps(HOSTS(5) "nics 8 speed 400\nfabric torus 5 speed 3200\n", 370.8, 370.8);
    expect_gbps(HOSTS(5) "nics 1 speed 400\nfabric torus 5\n", 50, 50); /* the NIC is narrower */
    /* Three groups: two links out of each. */
    expect_gbps(HOSTS(12) "nics 4 speed 400\nfabric dragonfly groups 3 routers 4\n", 100, 100);
    /* Two groups: one link between them, taken there and back by every ring. */
    rota_topo_result result = rings_of(HOSTS(8) "nics 4 speed 400\nfabric dragonfly groups 2 "
                                                "routers 4\n");
    cr_assert_float_eq(result.score_gbps * result.bound / result.score, 50, 1e-3);
    cr_assert_float_eq(result.score_gbps, 50, 1e-3);
    /* Three groups, two hosts: the ways between them are many, and all are taken. */
    expect_gbps("cluster 1\nhosts 2\ngpus 6 arch 942\nlinks mesh 1 xgmi\nnics 4 speed 200\n"
                "fabric dragonfly groups 3 routers 4\n",
                50, 50);
}

/* Numbers of hosts that nothing divides, the most that are read, and none at all. */
Test(large, any_number_of_hosts) {
    static const struct {
        const char *text;
        double gbps;
    } fine[] = {
        {"cluster 1\nhosts 447\nnics 1\nfabric rails\n", 12.5},
        {"cluster 1\nhosts 447\ngpus 1\nnics 1\nfabric fat-tree leaves 64 spines 8 speed 100\n",
         12.5},
        {"cluster 1\nhosts 1024\ngpus 3\nnics 1\n", 12.5},
        {"cluster 1\nhosts 1\ngpus 2\nlinks mesh 2\nnics 1\n", 40},
    };
    static const char *const wrong[] = {
        "0", "-1", "-447", "4097", "447x", "99999999999999999999", "", "447 447", "0x10"};
    char text[96];
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        rota_topo_result result = rings_of(fine[i].text);
        cr_assert_float_eq(result.score_gbps, fine[i].gbps, 1e-6, "%s: %g", fine[i].text,
                           result.score_gbps);
        cr_assert_leq(result.score, result.bound * 1.0001);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        rota_topo *topo = NULL;
        rota_error error = ROTA_ERROR_INIT;
        snprintf(text, sizeof(text), "cluster 1\nhosts %s\n", wrong[i]);
        cr_assert_eq(rota_topo_read(text, strlen(text), "hosts", &topo), ROTA_ERR_FORMAT, "%s",
                     text);
        rota_last_error(&error);
        cr_assert_not_null(strstr(error.message, "hosts, line 2"), "%s", error.message);
        cr_assert_null(topo);
    }
}

/* Hosts of one switch follow each other in all rings, and every GPU is in each. */
Test(large, rings_pass_a_switch_once) {
    static const char text[] = HOSTS(8) "nics 8 speed 400\nfabric torus 2 2 2\n";
    rota_topo *topo = NULL;
    rota_topo_result result = ROTA_TOPO_RESULT_INIT;
    cr_assert_eq(rota_topo_read(text, strlen(text), "cluster", &topo), ROTA_OK);
    cr_assert_eq(rota_topo_find_rings(topo, &result), ROTA_OK);
    for (int r = 0; r < result.count; r++) {
        rota_topo_ring ring = ROTA_TOPO_RING_INIT;
        int changes = 0, differ;
        cr_assert_eq(rota_topo_ring_describe(topo, r, &ring), ROTA_OK);
        cr_assert_eq(ring.gpu_count, 64);
        cr_assert_eq(ring.port_count, 16);
        for (int i = 0; i < 64; i++) {
            int host = ring.gpus[i] / 8, next = ring.gpus[(i + 1) % 64] / 8;
            differ = host ^ next;
            changes += differ != 0;
            cr_assert(differ == 0 || differ == 1 || differ == 2 || differ == 4, "%d to %d", host,
                      next);
        }
        cr_assert_eq(changes, 8);
    }
    rota_topo_free(topo);
}
