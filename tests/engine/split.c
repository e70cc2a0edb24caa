/* Splitting communicators: colors, keys, order, children that outlive their parents, many of them.
 */
#include "ranks.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Every member of a communicator adds its rank in the world; checks sum and size. */
static void check_members(rota_comm *comm, int world_rank, int64_t sum, int size, int place) {
    int64_t in = world_rank, out = -1;
    int n = 0, r = -1;
    CHECK_OK(rota_comm_size(comm, &n));
    CHECK_OK(rota_comm_rank(comm, &r));
    CHECK(n == size && r == place, "rank %d of %d, expected %d of %d", r, n, place, size);
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_SUM, comm, NULL));
    CHECK(out == sum, "sum %lld, expected %lld", (long long)out, (long long)sum);
}

static void colors(const struct rank *rank) {
    static const int color[6] = {0, 0, 1, 1, ROTA_COLOR_UNDEFINED, ROTA_COLOR_UNDEFINED};
    rota_comm *child = rank->comm;
    CHECK_OK(rota_comm_split(rank->comm, color[rank->rank], 0, NULL, &child, NULL));
    if (rank->rank > 3) {
        CHECK(child == NULL, "a communicator for an undefined color");
    } else {
        check_members(child, rank->rank, rank->rank < 2 ? 1 : 5, 2, rank->rank % 2);
        check_members(rank->comm, rank->rank, 15, 6, rank->rank);
        check_members(child, rank->rank, rank->rank < 2 ? 1 : 5, 2, rank->rank % 2);
        CHECK_OK(rota_comm_destroy(child));
        return;
    }
    check_members(rank->comm, rank->rank, 15, 6, rank->rank);
}

static void keys(const struct rank *rank) {
    static const int key[6] = {10, 7, 500, 500, -3, 0};
    static const int place[6] = {3, 2, 4, 5, 0, 1};
    rota_comm *child = NULL;
    CHECK_OK(rota_comm_split(rank->comm, INT_MAX, key[rank->rank], "keyed", &child, NULL));
    check_members(child, rank->rank, 15, 6, place[rank->rank]);
    rota_comm *back = NULL;
    CHECK_OK(rota_comm_split(child, 0, -place[rank->rank], NULL, &back, NULL));
    check_members(back, rank->rank, 15, 6, 5 - place[rank->rank]);
    CHECK_OK(rota_comm_destroy(child)); /* the parent before the child */
    check_members(back, rank->rank, 15, 6, 5 - place[rank->rank]);
    CHECK_OK(rota_comm_destroy(back));
}

static void C36_split(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(6, 20000, colors, NULL);
        ranks_run(6, 20000, keys, NULL);
    }
}

static void wrong_color(const struct rank *rank) {
    rota_comm *child = NULL;
    int64_t began = now_ms();
    if (rank->rank == 3)
        CHECK_STATUS(rota_comm_split(rank->comm, -5, 0, NULL, &child, NULL), ROTA_ERR_ARGUMENT);
    else
        CHECK(rota_comm_split(rank->comm, 0, 0, NULL, &child, NULL) != ROTA_OK,
              "a split that rank 3 refused");
    CHECK(now_ms() - began < 3500, "it took %lld ms", (long long)(now_ms() - began));
    CHECK(child == NULL, "a communicator was made");
}

static void C36_wrong_color_on_one_rank(void) {
    way_take(&ways[0]);
    ranks_run(4, 1500, wrong_color, NULL);
}

/* Pairs over {0,1}, {1,2}, {0,2} in turn, freed in another order than made. */
static void pairs(const struct rank *rank) {
    enum { LIVE = 60 };
    rota_comm *live[LIVE];
    unsigned seed = 1;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < LIVE; i++) {
            int out = i % 3 == 0 ? 2 : i % 3 == 1 ? 0 : 1;
            int color = rank->rank == out ? ROTA_COLOR_UNDEFINED : 0;
            CHECK_OK(rota_comm_split(rank->comm, color, 0, NULL, &live[i], NULL));
        }
        for (int i = 0; i < LIVE; i++) {
            int64_t in = 1 + i, sum = 0;
            if (live[i] != NULL) {
                CHECK_OK(rota_all_reduce(&in, &sum, 1, ROTA_INT64, ROTA_SUM, live[i], NULL));
                CHECK(sum == 2 * (1 + i), "sum %lld in pair %d", (long long)sum, i);
            }
        }
        for (int left = LIVE; left > 0; left--) {
            seed = seed * 1103515245u + 12345u;
            int victim = (int)(seed / 65536u % (unsigned)left);
            if (live[victim] != NULL)
                CHECK_OK(rota_comm_destroy(live[victim]));
            live[victim] = live[left - 1];
        }
    }
}

static void C84_pairs_in_random_order(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, pairs, NULL);
    }
}

static void cycles(const struct rank *rank) {
    for (int i = 0; i < 2000; i++) {
        rota_comm *child = NULL;
        CHECK_OK(rota_comm_split(rank->comm, 0, rank->rank, NULL, &child, NULL));
        CHECK_OK(rota_comm_destroy(child));
    }
    check_members(rank->comm, rank->rank, 3, 3, rank->rank);
}

static void C84_many_cycles(void) {
    way_take(&ways[0]);
    ranks_run(3, 20000, cycles, NULL);
}

static void idle_memory(const struct rank *rank) {
    rota_comm *copy = NULL;
    size_t idle = 0, used = 0;
    CHECK_OK(rota_comm_duplicate(rank->comm, &copy, NULL));
    CHECK_OK(rota_comm_memory(copy, &idle));
    CHECK(idle > 1000 && idle <= 16384, "an idle communicator holds %zu bytes", idle);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "ring";
    float in[3000] = {0}, out[3000];
    CHECK_OK(rota_all_reduce(in, out, 3000, ROTA_FLOAT32, ROTA_SUM, copy, &call));
    CHECK_OK(rota_comm_memory(copy, &used));
    CHECK(used > idle, "%zu bytes after use, %zu before", used, idle);
    CHECK_OK(rota_comm_destroy(copy));
}

static void idle_communicators_are_small(void) {
    way_take(&ways[0]);
    ranks_run(4, 20000, idle_memory, NULL);
}

/* -- groups: made by their members alone ------------------------------------------------------- */

/* Ranks 3 and 1 of four, in this order; 0 and 2 do nothing but call on the parent. */
static void some_members(const struct rank *rank) {
    static const int list[2] = {3, 1};
    rota_comm *group = NULL, *again = NULL, *inner = NULL;
    if (rank->rank % 2 == 1) {
        int place = rank->rank == 3 ? 0 : 1, self = place;
        CHECK_OK(rota_comm_create_group(rank->comm, list, 2, 0, "odd", &group, NULL));
        CHECK_OK(rota_comm_create_group(rank->comm, list, 2, 0, NULL, &again, NULL));
        for (int i = 0; i < 3; i++) {
            check_members(group, rank->rank, 4, 2, place);
            check_members(again, rank->rank, 4, 2, place);
        }
        int32_t mine = 10 + rank->rank, got = 0;
        rota_request *request = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.request = &request;
        CHECK_OK(rota_recv(&got, 1, ROTA_INT32, 1 - place, 4, group, NULL, &call));
        CHECK_OK(rota_send(&mine, 1, ROTA_INT32, 1 - place, 4, group, NULL));
        CHECK_OK(rota_request_wait(request, 0));
        CHECK_OK(rota_request_free(request));
        CHECK(got == 10 + (4 - rank->rank), "got %d", got);
        /* A group of one, of a group; a split of a group. */
        CHECK_OK(rota_comm_create_group(group, &self, 1, 7, NULL, &inner, NULL));
        check_members(inner, rank->rank, rank->rank, 1, 0);
        CHECK_OK(rota_comm_destroy(inner));
        CHECK_OK(rota_comm_split(again, 0, place, NULL, &inner, NULL));
        check_members(inner, rank->rank, 4, 2, place);
        CHECK_OK(rota_comm_destroy(inner));
    }
    check_members(rank->comm, rank->rank, 6, 4, rank->rank);
    CHECK_OK(rota_comm_destroy(group));
    if (again != NULL)
        check_members(again, rank->rank, 4, 2, rank->rank == 3 ? 0 : 1);
    CHECK_OK(rota_comm_destroy(again));
}

/* Two threads of each rank make one each, with tags of their own, over and over. */
struct maker {
    const struct rank *rank;
    int tag;
};

static void *make_groups(void *arg) {
    const struct maker *maker = arg;
    static const int list[3] = {2, 0, 1};
    static const int place[3] = {1, 2, 0};
    for (int i = 0; i < 20; i++) {
        rota_comm *group = NULL;
        CHECK_OK(
            rota_comm_create_group(maker->rank->comm, list, 3, maker->tag, NULL, &group, NULL));
        int64_t in = 100 * maker->tag + i, out = 0;
        int r = -1;
        CHECK_OK(rota_comm_rank(group, &r));
        CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT64, ROTA_SUM, group, NULL));
        CHECK(out == 3 * in && r == place[maker->rank->rank], "sum %lld, rank %d", (long long)out,
              r);
        CHECK_OK(rota_comm_destroy(group));
    }
    return NULL;
}

static void several_at_once(const struct rank *rank) {
    struct maker makers[2] = {{rank, 1}, {rank, 2}};
    pthread_t thread;
    pthread_create(&thread, NULL, make_groups, &makers[1]);
    make_groups(&makers[0]);
    pthread_join(thread, NULL);
}

static void groups_of_members_alone(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(4, 20000, some_members, NULL);
        ranks_run(3, 20000, several_at_once, NULL);
    }
}

/* A member that does not make it is named by whoever waits for it. */
static void one_does_not(const struct rank *rank) {
    static const int list[2] = {0, 2};
    rota_comm *group = NULL;
    if (rank->rank == 0) {
        CHECK_OK(rota_comm_create_group(rank->comm, list, 2, 0, "absent", &group, NULL));
        CHECK_OK(rota_comm_set_timeout(group, 500));
        CHECK_STATUS(rota_barrier(group, NULL), ROTA_ERR_TIMEOUT);
        const rota_error *error = last_error();
        CHECK(error->culprit_count == 1 && error->culprits[0] == 1 &&
                  strcmp(error->comm_name, "absent") == 0,
              "%s", error->message);
        CHECK_OK(rota_comm_destroy(group));
    }
    check_members(rank->comm, rank->rank, 3, 3, rank->rank);
}

static void groups_with_an_absent_member(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, one_does_not, NULL);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C36_split", C36_split},
        {"C36_wrong_color_on_one_rank", C36_wrong_color_on_one_rank},
        {"C84_pairs_in_random_order", C84_pairs_in_random_order},
        {"C84_many_cycles", C84_many_cycles},
        {"idle_communicators_are_small", idle_communicators_are_small},
        {"groups_of_members_alone", groups_of_members_alone},
        {"groups_with_an_absent_member", groups_with_an_absent_member},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
