/* Counts beyond 2^31 and 2^32: gigabytes of address space in which only a few bytes are looked at.
 * To be run alone. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Memory that costs nothing before it is written. */
static uint8_t *reserve(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        printf("cannot reserve %zu bytes\n", bytes);
        abort();
    }
    return memory;
}

static uint8_t marker(int rank, size_t i) {
    return (uint8_t)(1 + rank * 16 + (int)(i % 13));
}

/* -- C17: the large count ---------------------------------------------------------------------- */

enum { ODD_COUNT = 10556587, RED_ZONE = 16 };

static void odd_large(const struct rank *rank) {
    static const char *const algorithms[] = {NULL, "ring", "double_binary_tree"};
    int n = rank->nranks;
    float *send = malloc(ODD_COUNT * sizeof(*send));
    float *memory = malloc((ODD_COUNT + 2 * RED_ZONE) * sizeof(*memory)), *recv = memory + RED_ZONE;
    if (send == NULL || memory == NULL)
        abort();
    for (size_t i = 0; i < ODD_COUNT; i++)
        send[i] = (float)((i % 1009) * (size_t)(rank->rank + 1));
    for (size_t a = 0; a < sizeof(algorithms) / sizeof(algorithms[0]); a++) {
        rota_call call = ROTA_CALL_INIT;
        call.algorithm = algorithms[a];
        if (call.algorithm != NULL && !rota_algorithm_does(call.algorithm, ROTA_KIND_ALL_REDUCE, n))
            continue;
        for (size_t i = 0; i < ODD_COUNT + 2 * RED_ZONE; i++)
            memory[i] = -7;
        CHECK_OK(rota_all_reduce(send, recv, ODD_COUNT, ROTA_FLOAT32, ROTA_SUM, rank->comm, &call));
        size_t wrong = 0;
        for (size_t i = 0; i < ODD_COUNT; i++)
            wrong += recv[i] != (float)((i % 1009) * (size_t)(n * (n + 1) / 2));
        for (size_t i = 0; i < RED_ZONE; i++)
            wrong += memory[i] != -7 || recv[ODD_COUNT + i] != -7;
        CHECK(wrong == 0, "%d ranks, %s: %zu wrong elements", n,
              algorithms[a] ? algorithms[a] : "default", wrong);
    }
    free(send);
    free(memory);
}

static void C17_large_count(void) {
    static const int sizes[] = {2, 3, 5, 7, 8};
    for (int w = 0; w < 3; w += 2) {
        way_take(&ways[w]);
        for (int s = 0; s < 5; s++)
            ranks_run(sizes[s], 120000, odd_large, NULL);
    }
}

/* -- C31 --------------------------------------------------------------------------------------- */

static const size_t BLOCK = ((size_t)1 << 30) + 1;

struct gathering {
    const char *algorithm;
    int root;
};

static void gather(const struct rank *rank) {
    const struct gathering *how = rank->arg;
    bool is_root = rank->rank == how->root;
    int n = rank->nranks;
    uint8_t *send = reserve(BLOCK), *recv = is_root ? reserve((size_t)n * BLOCK) : NULL;
    for (size_t i = 0; i < 8; i++) {
        send[i] = marker(rank->rank, i);
        send[BLOCK - 8 + i] = marker(rank->rank, i + 5);
    }
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = how->algorithm;
    CHECK_OK(rota_gather(send, recv, BLOCK, ROTA_INT8, how->root, rank->comm, &call));
    for (int r = 0; is_root && r < n; r++) {
        const uint8_t *block = recv + (size_t)r * BLOCK;
        bool right = block[8] == 0 && block[BLOCK / 2] == 0 && block[BLOCK - 9] == 0;
        for (size_t i = 0; i < 8; i++)
            right &= block[i] == marker(r, i) && block[BLOCK - 8 + i] == marker(r, i + 5);
        CHECK(right, "%s, root %d: block %d is wrong", how->algorithm, how->root, r);
    }
    munmap(send, BLOCK);
    if (is_root)
        munmap(recv, (size_t)n * BLOCK);
}

static void C31_overflow_inside_of_the_tree(void) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int t = 0; t < 2; t++) {
        setenv("ROTA_TRANSPORT", transports[t], 1);
        for (int a = 0; rota_algorithm_name(a) != NULL; a++) {
            struct gathering how = {.algorithm = rota_algorithm_name(a)};
            if (!rota_algorithm_does(how.algorithm, ROTA_KIND_GATHER, 4))
                continue;
            for (how.root = 0; how.root < 4; how.root += 3) {
                int64_t began = now_ms();
                ranks_run(4, 300000, gather, &how);
                printf("  %s over %s, root %d: %lld ms\n", how.algorithm, transports[t], how.root,
                       (long long)(now_ms() - began));
                fflush(stdout);
            }
        }
    }
}

/* -- C33 --------------------------------------------------------------------------------------- */

static const size_t TWO_GIB = (size_t)1 << 31;

/* Where markers are, as far as they are inside of `count`. */
static size_t spots(size_t count, size_t *places) {
    const size_t all[] = {0, TWO_GIB - 1, TWO_GIB, 2 * TWO_GIB - 1, 2 * TWO_GIB};
    size_t number = 0;
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        if (all[i] < count - 1)
            places[number++] = all[i];
    places[number++] = count - 1;
    return number;
}

static void mark(int rank, uint8_t *data, size_t count) {
    size_t places[6], number = spots(count, places);
    for (size_t i = 0; i < number; i++)
        data[places[i]] = marker(rank, i);
}

static void check_marks(int rank, const uint8_t *data, size_t count, const char *what) {
    size_t places[6], number = spots(count, places);
    for (size_t i = 0; i < number; i++) {
        CHECK(data[places[i]] == marker(rank, i), "%s: %d at %zu, expected %d", what,
              data[places[i]], places[i], marker(rank, i));
        /* The neighbour that has no marker is what it was. */
        size_t beside = places[i] < 2 ? places[i] + 1 : places[i] - 2;
        CHECK(data[beside] == 0, "%s: %d at %zu", what, data[beside], beside);
    }
}

static void check_refusals(const struct rank *rank) {
    uint8_t in[8] = {0}, out[8] = {0};
    CHECK_STATUS(rota_all_reduce(in, out, (size_t)-1, ROTA_UINT8, ROTA_SUM, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_all_reduce(in, out, SIZE_MAX / 4, ROTA_INT64, ROTA_SUM, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_send(in, SIZE_MAX / 2, ROTA_INT64, 1 - rank->rank, 0, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_all_gather(in, out, SIZE_MAX / 2 + 1, ROTA_INT8, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
}

static void huge_counts(const struct rank *rank) {
    size_t count = TWO_GIB + 17, most = 2 * TWO_GIB + 5;
    uint8_t *send = reserve(most), *recv = reserve(most);
    check_refusals(rank);
    if (rank->rank == 0)
        mark(0, send, count);
    CHECK_OK(rota_broadcast(send, recv, count, ROTA_INT8, 0, rank->comm, NULL));
    check_marks(0, recv, count, "broadcast");
    CHECK(recv[count] == 0, "broadcast wrote behind its end");
    madvise(recv, most, MADV_DONTNEED);
    mark(rank->rank, send, count);
    CHECK_OK(rota_all_reduce(send, recv, count, ROTA_UINT8, ROTA_MAX, rank->comm, NULL));
    check_marks(1, recv, count, "all_reduce"); /* the markers of rank 1 are greater */
    CHECK(recv[count] == 0, "all_reduce wrote behind its end");
    madvise(recv, most, MADV_DONTNEED);
    madvise(send, most, MADV_DONTNEED);
    if (rank->rank == 0) {
        mark(0, send, most);
        CHECK_OK(rota_send(send, most, ROTA_INT8, 1, 9, rank->comm, NULL));
    } else {
        rota_recv_info info = ROTA_RECV_INFO_INIT;
        CHECK_OK(rota_recv(recv, most, ROTA_INT8, 0, 9, rank->comm, &info, NULL));
        CHECK(info.count == most && info.source == 0, "%zu elements from %d", info.count,
              info.source);
        check_marks(0, recv, most, "recv");
    }
    CHECK_OK(rota_barrier(rank->comm, NULL));
    munmap(send, most);
    munmap(recv, most);
}

static void C33_counts_beyond_32_bits(void) {
    static const char *const transports[] = {"", "shm", "tcp"};
    for (int t = 0; t < 3; t++) {
        setenv("ROTA_TRANSPORT", transports[t], 1);
        int64_t began = now_ms();
        ranks_run(2, 300000, huge_counts, NULL);
        printf("  over \"%s\": %lld ms\n", transports[t], (long long)(now_ms() - began));
        fflush(stdout);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C17_large_count", C17_large_count},
        {"C31_overflow_inside_of_the_tree", C31_overflow_inside_of_the_tree},
        {"C33_counts_beyond_32_bits", C33_counts_beyond_32_bits},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
