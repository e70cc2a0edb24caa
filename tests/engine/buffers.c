/* Buffers from rota_mem_alloc and from malloc, mixed in every way: the results are the same. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RANKS = 5 };

/* How a rank's buffers come. */
enum { SEND_ALLOCATED = 1, RECV_ALLOCATED = 2, IN_PLACE = 4 };

static int32_t value_of(int rank, unsigned round, size_t i) {
    return (int32_t)((unsigned)rank * 1000003u + round * 7919u + (unsigned)i * 31u);
}

static void *take(rota_comm *comm, bool allocated, size_t bytes) {
    void *memory = NULL;
    if (allocated)
        CHECK_OK(rota_mem_alloc(comm, bytes, &memory));
    else
        memory = malloc(bytes);
    return memory;
}

static void give_back(rota_comm *comm, bool allocated, void *memory) {
    if (allocated)
        CHECK_OK(rota_mem_free(comm, memory));
    else
        free(memory);
}

static void check_sum(const int32_t *recv, size_t count, int nranks, unsigned round) {
    for (size_t i = 0; i < count; i++) {
        uint32_t sum = 0;
        for (int r = 0; r < nranks; r++)
            sum += (uint32_t)value_of(r, round, i);
        if (recv[i] != (int32_t)sum) {
            CHECK(false, "element %zu of %zu is %d, expected %d (%d ranks, round %u)", i, count,
                  recv[i], (int32_t)sum, nranks, round);
            return;
        }
    }
}

/* The form that reads buffers in place runs when it can, and otherwise another. A pair that sees
 * its cores far from each other stages what their caches hold. */
static void check_form(const struct rank *rank, bool all_alike, unsigned how, size_t count) {
    bool mapped = (how & SEND_ALLOCATED) && (how & (RECV_ALLOCATED | IN_PLACE));
    const char *form = rota_comm_algorithm(rank->comm, ROTA_KIND_ALL_REDUCE);
    bool ran = form != NULL && strcmp(form, "shm-mapped") == 0;
    if (all_alike)
        CHECK(ran == (mapped && count * sizeof(int32_t) >= 262144) || (!ran && rank->nranks == 2),
              "%s ran for %zu elements", form, count);
    else
        CHECK(!ran || mapped, "%s ran with ordinary buffers", form);
}

/* One call with new buffers that begin `shift` elements into their memory. */
static void reduce(const struct rank *rank, unsigned how, bool all_alike, size_t count,
                   size_t shift, unsigned round) {
    bool in_place = (how & IN_PLACE) != 0;
    size_t bytes = (count + shift) * sizeof(int32_t);
    int32_t *sent = take(rank->comm, (how & SEND_ALLOCATED) != 0, bytes);
    int32_t *received = in_place ? sent : take(rank->comm, (how & RECV_ALLOCATED) != 0, bytes);
    if (sent == NULL || received == NULL)
        return;
    int32_t *send = sent + shift, *recv = received + shift;
    if (!in_place)
        memset(recv, 0xff, count * sizeof(*recv));
    for (size_t i = 0; i < count; i++)
        send[i] = value_of(rank->rank, round, i);
    CHECK_OK(rota_all_reduce(send, recv, count, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
    check_sum(recv, count, rank->nranks, round);
    check_form(rank, all_alike, how, count);
    for (size_t i = 0; !in_place && i < count; i++)
        if (send[i] != value_of(rank->rank, round, i)) {
            CHECK(false, "the send buffer was written at %zu", i);
            break;
        }
    if (!in_place)
        give_back(rank->comm, (how & RECV_ALLOCATED) != 0, received);
    give_back(rank->comm, (how & SEND_ALLOCATED) != 0, sent);
}

/* Small, staged, and those that mapped buffers serve: whole slices, and odd counts. */
static const size_t counts[] = {3, 5000, 65536, 65537, 262144 + 7, 700001};

static void run_mix(const struct rank *rank) {
    unsigned round = 0;
    for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
        for (unsigned mix = 0; mix < 12; mix++) {
            /* All alike first, then every rank by itself. */
            unsigned how = mix < 6 ? mix : (mix * 5 + (unsigned)rank->rank * 7) % 8;
            reduce(rank, how, mix < 6, counts[c], mix % 3, round++);
        }
    }
}

static void mix(void) {
    for (int n = 2; n <= MAX_RANKS; n++)
        ranks_run(n, 60000, run_mix, NULL);
}

/* C103: an address that held one thing holds another in the next round. */
static void run_remapped(const struct rank *rank) {
    size_t count = 100000;
    for (unsigned round = 0; round < 100; round++)
        reduce(rank, round % 4 == 3 ? 0 : round % 8, true, count, 0, round);
}

static void C103_remapped_addresses(void) {
    ranks_run(2, 60000, run_remapped, NULL);
    ranks_run(3, 60000, run_remapped, NULL);
}

/* The caller writes and frees its buffers as soon as its call has returned, while others are late.
 */
static void run_reused(const struct rank *rank) {
    size_t count = 131072;
    for (unsigned round = 0; round < 60; round++) {
        void *memory = NULL;
        CHECK_OK(rota_mem_alloc(rank->comm, 2 * count * sizeof(int32_t), &memory));
        int32_t *send = memory, *recv = send + count;
        for (size_t i = 0; i < count; i++)
            send[i] = value_of(rank->rank, round, i);
        if ((int)(round % 5) == rank->rank)
            sleep_ms(1);
        CHECK_OK(rota_all_reduce(send, recv, count, ROTA_INT32, ROTA_SUM, rank->comm, NULL));
        check_sum(recv, count, rank->nranks, round);
        memset(memory, 0x5a, 2 * count * sizeof(int32_t));
        CHECK_OK(rota_mem_free(rank->comm, memory));
    }
}

static void reused_at_once(void) {
    for (int n = 2; n <= 4; n++)
        ranks_run(n, 60000, run_reused, NULL);
}

/* Requests, and other operations in between. */
static void run_requests(const struct rank *rank) {
    enum { CALLS = 6 };
    size_t count = 150000;
    int32_t *buffers[CALLS];
    rota_request *requests[CALLS];
    for (unsigned c = 0; c < CALLS; c++) {
        buffers[c] = take(rank->comm, (c + (unsigned)rank->rank) % 3 != 0, count * 4);
        for (size_t i = 0; i < count; i++)
            buffers[c][i] = value_of(rank->rank, c, i);
    }
    for (unsigned c = 0; c < CALLS; c++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[c];
        CHECK_OK(rota_all_reduce(buffers[c], buffers[c], count, ROTA_INT32, ROTA_SUM, rank->comm,
                                 &call));
    }
    for (unsigned c = 0; c < CALLS; c++) {
        CHECK_OK(rota_request_wait(requests[c], 0));
        rota_request_free(requests[c]);
        check_sum(buffers[c], count, rank->nranks, c);
        give_back(rank->comm, (c + (unsigned)rank->rank) % 3 != 0, buffers[c]);
    }
    CHECK_OK(rota_barrier(rank->comm, NULL));
}

static void requests(void) {
    ranks_run(2, 60000, run_requests, NULL);
    ranks_run(4, 60000, run_requests, NULL);
}

static void run_memory(const struct rank *rank) {
    char *blocks[64];
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 64; i++) {
            size_t bytes = (size_t)(i * 3001 + 1);
            blocks[i] = take(rank->comm, true, bytes);
            memset(blocks[i], i + 1, bytes);
        }
        for (int i = 0; i < 64; i++) {
            int which = (i * 37 + round) % 64;
            size_t last = (size_t)(which * 3001);
            CHECK(blocks[which][0] == which + 1 && blocks[which][last] == which + 1,
                  "block %d was overwritten", which);
            CHECK_OK(rota_mem_free(rank->comm, blocks[which]));
        }
    }
    /* Left to the job's end. */
    memset(take(rank->comm, true, 100000), 1, 100000);
}

static void many_blocks(void) {
    ranks_run(2, 60000, run_memory, NULL);
}

/* Without shared memory between the ranks it is ordinary memory. */
static void over_tcp(void) {
    setenv("ROTA_TRANSPORT", "tcp", 1);
    ranks_run(2, 60000, run_memory, NULL);
    ranks_run(2, 60000, run_requests, NULL);
    unsetenv("ROTA_TRANSPORT");
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"mix", mix},
        {"C103_remapped_addresses", C103_remapped_addresses},
        {"reused_at_once", reused_at_once},
        {"requests", requests},
        {"many_blocks", many_blocks},
        {"over_tcp", over_tcp},
        {NULL, NULL},
    };
    return cases_main(cases, argc, argv);
}
