/* Counters per peer, algorithms per kind, and arrival skew: exact where they can be, in bounds
 * where time is measured. */
#include "ranks.h"

#include <string.h>

static rota_peer_counters of_peer(rota_comm *comm, int peer) {
    rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
    CHECK_OK(rota_comm_peer_counters(comm, peer, &counters));
    return counters;
}

/* Rank 0 sends five messages of 1000 bytes to rank 1, which sends one empty one back; rank 2 looks
 * on. Splits and barriers are left out: their messages would count too. */
static void messages(const struct rank *rank) {
    const char *transport = rank->arg;
    unsigned char data[1000];
    memset(data, rank->rank, sizeof(data));
    for (int i = 0; i < 5 && rank->rank == 0; i++)
        CHECK_OK(rota_send(data, sizeof(data), ROTA_UINT8, 1, 7, rank->comm, NULL));
    for (int i = 0; i < 5 && rank->rank == 1; i++)
        CHECK_OK(rota_recv(data, sizeof(data), ROTA_UINT8, 0, 7, rank->comm, NULL, NULL));
    if (rank->rank == 1)
        CHECK_OK(rota_send(NULL, 0, ROTA_UINT8, 0, 8, rank->comm, NULL));
    if (rank->rank == 0)
        CHECK_OK(rota_recv(NULL, 0, ROTA_UINT8, 1, 8, rank->comm, NULL, NULL));
    for (int peer = 0; peer < 3; peer++) {
        rota_peer_counters counters = of_peer(rank->comm, peer);
        bool first = rank->rank == 0 && peer == 1, second = rank->rank == 1 && peer == 0;
        CHECK(counters.messages_sent == (first    ? 5
                                         : second ? 1
                                                  : 0),
              "rank %d sent rank %d %llu", rank->rank, peer,
              (unsigned long long)counters.messages_sent);
        CHECK(counters.messages_received == (first    ? 1
                                             : second ? 5
                                                      : 0),
              "rank %d received from rank %d %llu", rank->rank, peer,
              (unsigned long long)counters.messages_received);
        CHECK(counters.bytes_sent == (first ? 5000 : 0), "bytes sent %llu",
              (unsigned long long)counters.bytes_sent);
        CHECK(counters.bytes_received == (second ? 5000 : 0), "bytes received %llu",
              (unsigned long long)counters.bytes_received);
        if (first || second)
            CHECK(strcmp(counters.transport, transport) == 0, "transport \"%s\", expected \"%s\"",
                  counters.transport, transport);
        else if (rank->rank == 2)
            CHECK(counters.transport[0] == '\0', "transport \"%s\" to a peer unused",
                  counters.transport);
    }
}

static void messages_and_bytes_per_peer(void) {
    static char shm[] = "shm", tcp[] = "tcp";
    static const struct way both[] = {{"shm", "", "", ""}, {"tcp", "tcp", "", ""}};
    for (int i = 0; i < 2; i++) {
        way_take(&both[i]);
        ranks_run(3, 20000, messages, i == 0 ? shm : tcp);
    }
}

/* Slices posted from user memory are counted like copied ones. */
static void collective_bytes(const struct rank *rank) {
    enum { COUNT = 300000 };
    static float in[2][COUNT], out[2][COUNT];
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "ring";
    CHECK_OK(rota_all_reduce(in[rank->rank], out[rank->rank], COUNT, ROTA_FLOAT32, ROTA_SUM,
                             rank->comm, &call));
    rota_peer_counters counters = of_peer(rank->comm, 1 - rank->rank);
    /* A ring of two sends and receives every element once. */
    CHECK(counters.bytes_sent == COUNT * sizeof(float), "%llu bytes sent",
          (unsigned long long)counters.bytes_sent);
    CHECK(counters.bytes_received == COUNT * sizeof(float), "%llu bytes received",
          (unsigned long long)counters.bytes_received);
    CHECK(counters.messages_sent >= 2 && counters.messages_received >= 2, "%llu messages",
          (unsigned long long)counters.messages_sent);
}

static void every_way_counts_bytes(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, collective_bytes, NULL);
    }
}

static void algorithms(const struct rank *rank) {
    CHECK(rota_comm_algorithm(rank->comm, ROTA_KIND_ALL_REDUCE) == NULL, "nothing has run yet");
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "ring";
    int32_t in = 1, out = 0;
    CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
    CHECK_OK(rota_barrier(rank->comm, NULL));
    const char *sum = rota_comm_algorithm(rank->comm, ROTA_KIND_ALL_REDUCE);
    const char *barrier = rota_comm_algorithm(rank->comm, ROTA_KIND_BARRIER);
    CHECK(sum != NULL && strcmp(sum, "ring") == 0, "all_reduce ran by %s", sum);
    CHECK(barrier != NULL && strcmp(barrier, "ring") != 0, "barrier ran by %s", barrier);
    CHECK(rota_comm_algorithm(rank->comm, ROTA_KIND_BROADCAST) == NULL, "no broadcast has run");
    CHECK(rota_comm_algorithm(rank->comm, ROTA_KIND_COUNT) == NULL, "no kind");
    CHECK(rota_comm_algorithm(NULL, ROTA_KIND_BARRIER) == NULL, "no communicator");
}

static void algorithm_of_each_kind(void) {
    way_take(&ways[0]);
    ranks_run(2, 20000, algorithms, NULL);
}

enum { LATE_MS = 150 };

/* Rank 1 comes late three times: what rank 0 waited is charged to it and not the other way. The
 * first call connects, so that its waits are not looked at. */
static void late(const struct rank *rank) {
    int32_t in = 1, out = 0;
    rota_call call = ROTA_CALL_INIT;
    rota_request *request = NULL;
    bool background = rank->arg != NULL;
    CHECK_OK(rota_barrier(rank->comm, NULL));
    CHECK_OK(rota_barrier(rank->comm, NULL));
    uint64_t before = of_peer(rank->comm, 1 - rank->rank).waited_ns;
    int64_t began = now_ms();
    for (int i = 0; i < 3; i++) {
        if (rank->rank == 1)
            sleep_ms(LATE_MS);
        call.request = background ? &request : NULL;
        CHECK_OK(rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, rank->comm, &call));
        if (background) {
            CHECK_OK(rota_request_wait(request, 0));
            CHECK_OK(rota_request_free(request));
        }
    }
    uint64_t elapsed = (uint64_t)(now_ms() - began + 2) * 1000000;
    rota_peer_counters counters = of_peer(rank->comm, 1 - rank->rank);
    uint64_t waited = counters.waited_ns - before;
    if (rank->rank == 0) {
        CHECK(waited > 2 * LATE_MS * 1000000ull, "waited %llu us for a rank 3 * %d ms late",
              (unsigned long long)waited / 1000, LATE_MS);
        CHECK(counters.waits >= 3, "%llu waits", (unsigned long long)counters.waits);
    } else {
        CHECK(waited < LATE_MS * 1000000ull, "waited %llu us for a rank that was there",
              (unsigned long long)waited / 1000);
    }
    CHECK(waited <= elapsed, "waited %llu us in %llu", (unsigned long long)waited / 1000,
          (unsigned long long)elapsed / 1000);
    CHECK(of_peer(rank->comm, rank->rank).waited_ns == 0, "waited for oneself");
}

static void late_ranks_are_charged(void) {
    static char background[] = "background";
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(2, 20000, late, NULL);
        ranks_run(2, 20000, late, background);
    }
}

/* A receive waits for its source; one from any source for nobody in particular. */
static void late_sender(const struct rank *rank) {
    int32_t value = 4;
    int64_t began = now_ms(), first_ms = 0;
    for (int i = 0; i < 2; i++) {
        if (rank->rank == 2) {
            sleep_ms(LATE_MS);
            CHECK_OK(rota_send(&value, 1, ROTA_INT32, 0, i, rank->comm, NULL));
        } else if (rank->rank == 0) {
            CHECK_OK(rota_recv(&value, 1, ROTA_INT32, i == 0 ? 2 : ROTA_ANY_SOURCE, i, rank->comm,
                               NULL, NULL));
            first_ms = i == 0 ? now_ms() - began + 2 : first_ms;
        }
    }
    if (rank->rank != 0)
        return;
    rota_peer_counters late_one = of_peer(rank->comm, 2);
    CHECK(late_one.waited_ns > LATE_MS * 600000ull &&
              late_one.waited_ns <= (uint64_t)first_ms * 1000000,
          "waited %llu us in %lld ms", (unsigned long long)late_one.waited_ns / 1000,
          (long long)first_ms);
    CHECK(late_one.waits == 1, "%llu waits", (unsigned long long)late_one.waits);
    CHECK(of_peer(rank->comm, 1).waited_ns == 0, "waited for a rank that took no part");
}

static void late_senders_are_charged(void) {
    way_take(&ways[0]);
    ranks_run(3, 20000, late_sender, NULL);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"messages_and_bytes_per_peer", messages_and_bytes_per_peer},
        {"every_way_counts_bytes", every_way_counts_bytes},
        {"algorithm_of_each_kind", algorithm_of_each_kind},
        {"late_ranks_are_charged", late_ranks_are_charged},
        {"late_senders_are_charged", late_senders_are_charged},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
