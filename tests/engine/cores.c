/* Lent cores: large reductions by a team have the bits of those by one thread, whoever else asks
 * for the team at the same time. */
#include "ranks.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 200003, RANKS = 2 };

static float value_of(int rank, size_t i) {
    uint32_t mixed = (uint32_t)i * 2654435761u + (uint32_t)rank * 40503u;
    return ldexpf((float)(mixed >> 8) + 1.0f, (int)(mixed % 10) - 20);
}

struct sums {
    float *in, *out[RANKS];
    float *local[RANKS];
};

static void fill(float *to, int rank) {
    for (size_t i = 0; i < COUNT; i++)
        to[i] = value_of(rank, i);
}

/* Every rank has a team of its own. */
static void reduce(const struct rank *rank) {
    struct sums *sums = rank->arg;
    float *in = malloc(COUNT * sizeof(float));
    fill(in, rank->rank);
    for (int i = 0; i < 5; i++)
        CHECK_OK(rota_all_reduce(in, sums->out[rank->rank], COUNT, ROTA_FLOAT32, ROTA_SUM,
                                 rank->comm, NULL));
    fill(sums->local[rank->rank], RANKS);
    CHECK_OK(
        rota_reduce_local(in, sums->local[rank->rank], COUNT, ROTA_FLOAT32, ROTA_SUM, rank->comm));
    free(in);
}

static struct sums sums_by(const char *cores) {
    struct sums sums = {0};
    for (int r = 0; r < RANKS; r++) {
        sums.out[r] = calloc(COUNT, sizeof(float));
        sums.local[r] = calloc(COUNT, sizeof(float));
    }
    setenv("ROTA_CORES", cores, 1);
    ranks_run(RANKS, 20000, reduce, &sums);
    unsetenv("ROTA_CORES");
    return sums;
}

static void sums_free(struct sums *sums) {
    for (int r = 0; r < RANKS; r++) {
        free(sums->out[r]);
        free(sums->local[r]);
    }
}

static void bits_do_not_depend_on_cores(void) {
    static const char *const cores[] = {"2", "3", "7"};
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        struct sums alone = sums_by("1");
        CHECK(alone.out[0][COUNT - 1] == value_of(0, COUNT - 1) + value_of(1, COUNT - 1), "sum");
        for (size_t i = 0; i < 3; i++) {
            struct sums shared = sums_by(cores[i]);
            for (int r = 0; r < RANKS; r++) {
                CHECK(memcmp(alone.out[0], shared.out[r], COUNT * sizeof(float)) == 0,
                      "%s, %s cores: rank %d has other bits", way->name, cores[i], r);
                CHECK(memcmp(alone.local[r], shared.local[r], COUNT * sizeof(float)) == 0,
                      "%s, %s cores: rank %d has another local sum", way->name, cores[i], r);
            }
            sums_free(&shared);
        }
        sums_free(&alone);
    }
}

/* Several threads of a rank reduce at once; one at a time has the team. */
struct user {
    pthread_t thread;
    rota_comm *comm;
    int number;
};

static void *use_team(void *arg) {
    const struct user *user = arg;
    float *left = malloc(COUNT * sizeof(float)), *right = malloc(COUNT * sizeof(float));
    fill(left, user->number);
    for (int round = 0; round < 10; round++) {
        size_t count = COUNT - (size_t)(round * 18000), wrong = 0;
        fill(right, 9);
        CHECK_OK(rota_reduce_local(left, right, count, ROTA_FLOAT32, ROTA_MAX, user->comm));
        for (size_t i = 0; i < COUNT; i++) {
            float a = value_of(user->number, i), b = value_of(9, i);
            wrong += right[i] != (i < count && a > b ? a : b);
        }
        CHECK(wrong == 0, "%zu of %zu elements are wrong", wrong, count);
    }
    free(left);
    free(right);
    return NULL;
}

static void several_users(const struct rank *rank) {
    struct user users[3];
    for (int i = 0; i < 3; i++) {
        users[i] = (struct user){.comm = rank->comm, .number = i};
        CHECK(pthread_create(&users[i].thread, NULL, use_team, &users[i]) == 0, "no thread");
    }
    for (int i = 0; i < 3; i++)
        pthread_join(users[i].thread, NULL);
}

static void threads_share_a_team(void) {
    setenv("ROTA_CORES", "4", 1);
    ranks_run(1, 20000, several_users, NULL);
    unsetenv("ROTA_CORES");
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"bits_do_not_depend_on_cores", bits_do_not_depend_on_cores},
        {"threads_share_a_team", threads_share_a_team},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
