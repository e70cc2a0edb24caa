/* Cases from the field: counts that do not divide, arguments that only the root has, and sizes of
 * slices that fit nothing. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

enum { RED_ZONE = 64, RED_BYTE = 0xA5, VALUES = 7, MAX_RANKS = 8 };

/* -- elements: small whole numbers, exact in every type and in every sum ------------------------
 */

/* What element i is on all ranks, before the rank is added. */
static unsigned kind_of(size_t i) {
    return (unsigned)((i * 3 + i / 97) % VALUES);
}

static unsigned value_of(int rank, unsigned kind) {
    return ((unsigned)rank * 5 + kind) % VALUES;
}

/* Bits of a whole number below 128 as a float with so many bits of mantissa and such a bias. */
static uint16_t narrow_float(unsigned value, unsigned mantissa, unsigned bias) {
    unsigned exponent = 0;
    if (value == 0)
        return 0;
    while (value >> (exponent + 1) != 0)
        exponent++;
    unsigned fraction = (value - (1u << exponent)) << (mantissa - exponent);
    return (uint16_t)((exponent + bias) << mantissa | fraction);
}

/* Writes one element of the type; returns its size. */
static size_t encode(unsigned value, rota_dtype dtype, void *at) {
    uint64_t whole = value; /* little-endian: its first bytes are the narrower integers */
    uint16_t narrow =
        dtype == ROTA_FLOAT16 ? narrow_float(value, 10, 15) : narrow_float(value, 7, 127);
    float single = (float)value;
    double wide = value;
    const void *from = &whole;
    if (dtype == ROTA_FLOAT16 || dtype == ROTA_BFLOAT16)
        from = &narrow;
    else if (dtype == ROTA_FLOAT32)
        from = &single;
    else if (dtype == ROTA_FLOAT64)
        from = &wide;
    memcpy(at, from, rota_dtype_size(dtype));
    return rota_dtype_size(dtype);
}

/* A buffer between two red zones. */
struct zoned {
    unsigned char *memory, *data;
    size_t bytes;
};

static void zoned_take(struct zoned *zoned, size_t bytes) {
    zoned->memory = malloc(bytes + 2 * RED_ZONE);
    if (zoned->memory == NULL)
        abort();
    zoned->data = zoned->memory + RED_ZONE;
    zoned->bytes = bytes;
    memset(zoned->memory, RED_BYTE, bytes + 2 * RED_ZONE);
}

/* The two zones are as they were; frees the buffer. */
static bool zoned_give_back(struct zoned *zoned) {
    bool intact = true;
    for (size_t i = 0; i < RED_ZONE; i++)
        intact &= zoned->memory[i] == RED_BYTE && zoned->data[zoned->bytes + i] == RED_BYTE;
    free(zoned->memory);
    return intact;
}

/* Elements of one rank, or with rank < 0 the sums over nranks ranks. */
struct pattern {
    unsigned char bytes[VALUES][8];
    size_t size;
};

static void pattern_make(struct pattern *pattern, int rank, int nranks, rota_dtype dtype) {
    for (unsigned kind = 0; kind < VALUES; kind++) {
        unsigned value = rank >= 0 ? value_of(rank, kind) : 0;
        for (int r = 0; rank < 0 && r < nranks; r++)
            value += value_of(r, kind);
        pattern->size = encode(value, dtype, pattern->bytes[kind]);
    }
}

static void pattern_fill(const struct pattern *pattern, unsigned char *data, size_t count) {
    for (size_t i = 0; i < count; i++)
        memcpy(data + i * pattern->size, pattern->bytes[kind_of(i)], pattern->size);
}

/* Index of the first element, numbered from `first`, that differs; count where there is none. */
static size_t pattern_differs(const struct pattern *pattern, const unsigned char *data,
                              size_t first, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (memcmp(data + i * pattern->size, pattern->bytes[kind_of(first + i)], pattern->size) !=
            0)
            return i;
    return count;
}

/* -- C17 --------------------------------------------------------------------------------------- */

static const rota_kind odd_kinds[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_REDUCE, ROTA_KIND_BROADCAST};

static rota_status odd_call(rota_kind kind, const void *send, void *recv, size_t count,
                            rota_dtype dtype, int root, rota_comm *comm, const rota_call *call) {
    if (kind == ROTA_KIND_ALL_REDUCE)
        return rota_all_reduce(send, recv, count, dtype, ROTA_SUM, comm, call);
    if (kind == ROTA_KIND_REDUCE)
        return rota_reduce(send, recv, count, dtype, ROTA_SUM, root, comm, call);
    return rota_broadcast(send, recv, count, dtype, root, comm, call);
}

/* One operation; false where it went wrong. */
static bool odd_count(const struct rank *rank, rota_kind kind, size_t count, rota_dtype dtype,
                      const char *algorithm) {
    int n = rank->nranks, root = (int)(count % (size_t)n);
    struct zoned send, recv;
    struct pattern own, wanted;
    zoned_take(&send, count * rota_dtype_size(dtype));
    zoned_take(&recv, count * rota_dtype_size(dtype));
    pattern_make(&own, rank->rank, n, dtype);
    pattern_make(&wanted, kind == ROTA_KIND_BROADCAST ? root : -1, n, dtype);
    pattern_fill(&own, send.data, count);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    rota_status status =
        odd_call(kind, send.data, recv.data, count, dtype, root, rank->comm, &call);
    size_t good = count;
    bool untouched = true;
    if (kind != ROTA_KIND_REDUCE || rank->rank == root)
        good = pattern_differs(&wanted, recv.data, 0, count);
    else
        for (size_t i = 0; i < recv.bytes; i++)
            untouched &= recv.data[i] == RED_BYTE;
    size_t sent = pattern_differs(&own, send.data, 0, count);
    bool zones = zoned_give_back(&send), recv_zones = zoned_give_back(&recv);
    bool right =
        status == ROTA_OK && good == count && sent == count && untouched && zones && recv_zones;
    CHECK(right,
          "%s of %zu %s by %s, rank %d of %d: %s, first wrong element %zu, of the send buffer "
          "%zu, red zones %d %d, untouched %d",
          rota_kind_name(kind), count, rota_dtype_name(dtype), algorithm ? algorithm : "default",
          rank->rank, n, rota_status_name(status), good, sent, zones, recv_zones, untouched);
    return right;
}

/* The same on all ranks: every algorithm, kind and count, with the types in turn. */
static void odd_counts(const struct rank *rank) {
    for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
        const char *name = a < 0 ? NULL : rota_algorithm_name(a);
        for (size_t k = 0; k < sizeof(odd_kinds) / sizeof(odd_kinds[0]); k++) {
            if (name != NULL && !rota_algorithm_does(name, odd_kinds[k], rank->nranks))
                continue;
            for (size_t count = 0; count <= 33; count++) {
                rota_dtype dtype =
                    (rota_dtype)(count + k * 5 + (size_t)(a + 1)) % (ROTA_FLOAT64 + 1);
                if (!odd_count(rank, odd_kinds[k], count, dtype, name))
                    return;
            }
            if (!odd_count(rank, odd_kinds[k], 10007, ROTA_FLOAT32, name))
                return;
        }
    }
}

static void every_type(const struct rank *rank) {
    for (size_t k = 0; k < sizeof(odd_kinds) / sizeof(odd_kinds[0]); k++)
        for (rota_dtype dtype = 0; dtype <= ROTA_FLOAT64; dtype++)
            if (!odd_count(rank, odd_kinds[k], 1, dtype, NULL) ||
                !odd_count(rank, odd_kinds[k], 10007, dtype, NULL))
                return;
}

static void C17_count_not_divisible(void) {
    static const int sizes[] = {2, 3, 5, 7, 8};
    for (int w = 0; w < 3; w += 2) {
        way_take(&ways[w]);
        for (int s = 0; s < 5; s++) {
            ranks_run(sizes[s], 30000, odd_counts, NULL);
            ranks_run(sizes[s], 30000, every_type, NULL);
        }
    }
}

/* -- C23 --------------------------------------------------------------------------------------- */

enum { BLOCK = 37, LARGE_BLOCK = 20011 };

static int32_t block_value(int rank, size_t i) {
    return (int32_t)(rank * 1000000 + (int)i);
}

static void check_block(const int32_t *data, int rank, size_t first, size_t count, const char *what,
                        int root) {
    for (size_t i = 0; i < count; i++)
        if (data[i] != block_value(rank, first + i)) {
            CHECK(false, "%s with root %d: element %zu of block %d is %d", what, root, i, rank,
                  data[i]);
            return;
        }
}

/* gatherv and scatterv, packed and with the blocks in falling order; tables on the root alone. */
static void root_has_tables(const struct rank *rank, int root, int32_t *all, int32_t *mine,
                            bool falling) {
    size_t counts[MAX_RANKS], displs[MAX_RANKS], place = 0, total = 0;
    bool is_root = rank->rank == root;
    int n = rank->nranks;
    for (int r = 0; r < n; r++)
        total += counts[r] = BLOCK + (size_t)r * 100;
    for (int r = 0; r < n; r++) {
        displs[r] = falling ? total - place - counts[r] : place;
        place += counts[r];
    }
    size_t count = counts[rank->rank];
    const size_t *given = is_root ? counts : NULL, *places = is_root && falling ? displs : NULL;
    for (size_t i = 0; i < count; i++)
        mine[i] = block_value(rank->rank, i);
    memset(all, 0xff, total * sizeof(*all));
    CHECK_OK(rota_gatherv(mine, count, is_root ? all : NULL, given, places, ROTA_INT32, root,
                          rank->comm, NULL));
    for (int r = 0; is_root && r < n; r++)
        check_block(all + displs[r], r, 0, counts[r], "gatherv", root);
    memset(mine, 0xff, count * sizeof(*mine));
    CHECK_OK(rota_scatterv(is_root ? all : NULL, given, places, mine, count, ROTA_INT32, root,
                           rank->comm, NULL));
    check_block(mine, rank->rank, 0, count, "scatterv", root);
}

static void root_has_buffers(const struct rank *rank, int root, size_t count, int32_t *all,
                             int32_t *mine, const char *algorithm) {
    bool is_root = rank->rank == root;
    int n = rank->nranks;
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    for (size_t i = 0; i < count; i++)
        mine[i] = block_value(rank->rank, i);
    memset(all, 0xff, count * (size_t)n * sizeof(*all));
    if (algorithm == NULL || rota_algorithm_does(algorithm, ROTA_KIND_GATHER, n)) {
        CHECK_OK(
            rota_gather(mine, is_root ? all : NULL, count, ROTA_INT32, root, rank->comm, &call));
        for (int r = 0; is_root && r < n; r++)
            check_block(all + (size_t)r * count, r, 0, count, "gather", root);
    }
    if (algorithm == NULL || rota_algorithm_does(algorithm, ROTA_KIND_REDUCE, n)) {
        CHECK_OK(rota_reduce(mine, is_root ? all : NULL, count, ROTA_INT32, ROTA_MAX, root,
                             rank->comm, &call));
        if (is_root)
            check_block(all, n - 1, 0, count, "reduce", root);
    }
    if (algorithm == NULL || rota_algorithm_does(algorithm, ROTA_KIND_SCATTER, n)) {
        for (int r = 0; is_root && r < n; r++)
            for (size_t i = 0; i < count; i++)
                all[(size_t)r * count + i] = block_value(r, i);
        memset(mine, 0xff, count * sizeof(*mine));
        CHECK_OK(
            rota_scatter(is_root ? all : NULL, mine, count, ROTA_INT32, root, rank->comm, &call));
        check_block(mine, rank->rank, 0, count, "scatter", root);
    }
}

/* What the rank has sent, in messages and native forms. */
static uint64_t communicated(const struct rank *rank) {
    rota_counters counters = ROTA_COUNTERS_INIT;
    uint64_t sum = 0;
    CHECK_OK(rota_comm_counters(rank->comm, &counters));
    for (int t = 0; t < counters.transport_count; t++)
        sum += counters.transports[t].messages_sent + counters.transports[t].native_calls;
    return sum + counters.operations;
}

static void refuses_root(const struct rank *rank, int root) {
    int32_t data[MAX_RANKS] = {0}, own[MAX_RANKS] = {0};
    size_t counts[MAX_RANKS];
    for (int r = 0; r < MAX_RANKS; r++)
        counts[r] = 1;
    int64_t began = now_ms();
    uint64_t before = communicated(rank);
    rota_comm *comm = rank->comm;
    CHECK_STATUS(rota_gather(own, data, 1, ROTA_INT32, root, comm, NULL), ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_gatherv(own, 1, data, counts, NULL, ROTA_INT32, root, comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_reduce(own, data, 1, ROTA_INT32, ROTA_SUM, root, comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_scatter(data, own, 1, ROTA_INT32, root, comm, NULL), ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_scatterv(data, counts, NULL, own, 1, ROTA_INT32, root, comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_broadcast(own, data, 1, ROTA_INT32, root, comm, NULL), ROTA_ERR_ARGUMENT);
    CHECK(now_ms() - began < 2000, "refusing took %lld ms", (long long)(now_ms() - began));
    CHECK(communicated(rank) == before, "root %d: something was communicated", root);
}

static void rooted(const struct rank *rank) {
    int n = rank->nranks;
    int32_t *all = malloc((size_t)n * LARGE_BLOCK * sizeof(*all));
    int32_t *mine = malloc(LARGE_BLOCK * sizeof(*mine));
    if (all == NULL || mine == NULL)
        abort();
    for (int root = 0; root < n; root++) {
        for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
            const char *name = a < 0 ? NULL : rota_algorithm_name(a);
            root_has_buffers(rank, root, BLOCK, all, mine, name);
            root_has_buffers(rank, root, LARGE_BLOCK, all, mine, name);
        }
        root_has_tables(rank, root, all, mine, false);
        root_has_tables(rank, root, all, mine, true);
        /* A wrong root on all ranks, and on one that the others do not wait for. */
        refuses_root(rank, -1);
        refuses_root(rank, n);
        if (rank->rank == root)
            refuses_root(rank, -1);
        root_has_buffers(rank, root, BLOCK, all, mine, NULL);
    }
    free(all);
    free(mine);
}

static void C23_arguments_of_the_root_alone(void) {
    for (const struct way *way = ways; way->name != NULL; way++) {
        way_take(way);
        ranks_run(3, 20000, rooted, NULL);
    }
}

/* -- C96 --------------------------------------------------------------------------------------- */

struct odd_setting {
    size_t chunk;
    const char *algorithm;
};

/* all_reduce and reduce_scatter of `count` elements (each block of the latter). */
static bool odd_slices(const struct rank *rank, size_t count, const char *algorithm) {
    int n = rank->nranks;
    struct pattern own, sums;
    struct zoned send, recv;
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    zoned_take(&send, count * (size_t)n * 4);
    zoned_take(&recv, count * 4);
    pattern_make(&own, rank->rank, n, ROTA_INT32);
    pattern_make(&sums, -1, n, ROTA_INT32);
    pattern_fill(&own, send.data, count * (size_t)n);
    bool right = true;
    for (int scatters = 0; right && scatters < 2; scatters++) {
        rota_kind kind = scatters ? ROTA_KIND_REDUCE_SCATTER : ROTA_KIND_ALL_REDUCE;
        if (algorithm != NULL && !rota_algorithm_does(algorithm, kind, n))
            continue;
        memset(recv.data, RED_BYTE, recv.bytes);
        rota_status status = scatters ? rota_reduce_scatter(send.data, recv.data, count, ROTA_INT32,
                                                            ROTA_SUM, rank->comm, &call)
                                      : rota_all_reduce(send.data, recv.data, count, ROTA_INT32,
                                                        ROTA_SUM, rank->comm, &call);
        size_t first = scatters ? (size_t)rank->rank * count : 0;
        size_t good = pattern_differs(&sums, recv.data, first, count);
        right = status == ROTA_OK && good == count;
        CHECK(right, "%s of %zu by %s on %d ranks, slices of %s and %s lanes: %s, first wrong %zu",
              rota_kind_name(kind), count, algorithm ? algorithm : "default", n,
              getenv("ROTA_SLICE_BYTES"), getenv("ROTA_LANES"), rota_status_name(status), good);
    }
    bool zones = zoned_give_back(&send), recv_zones = zoned_give_back(&recv);
    CHECK(zones && recv_zones, "red zones of %zu elements by %s", count,
          algorithm ? algorithm : "default");
    return right && zones && recv_zones;
}

static void odd_sizes(const struct rank *rank) {
    const struct odd_setting *setting = rank->arg;
    size_t chunk = setting->chunk;
    const size_t counts[] = {0, 1, chunk - 1, chunk, chunk + 1, 3 * chunk + 7};
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
        if (!odd_slices(rank, counts[i], NULL) || !odd_slices(rank, counts[i], setting->algorithm))
            return;
}

static void C96_odd_sizes_of_slices(void) {
    static const char *const slices[] = {"1", "3", "1000", "131074", "123000", "1000000"};
    static const char *const lanes[] = {"1", "3", "7"};
    int turn = 0, algorithms = 0;
    while (rota_algorithm_name(algorithms) != NULL)
        algorithms++;
    for (int w = 0; w < 3; w += 2) {
        way_take(&ways[w]);
        for (int i = 0; i < 6 * 3 * 2; i++) {
            if (w > 0 && i % 3 != i / 3 % 3)
                continue; /* over tcp every value, not every pair */
            const char *slice = slices[i / 3 % 6];
            size_t bytes = strtoul(slice, NULL, 10);
            setenv("ROTA_SLICE_BYTES", slice, 1);
            setenv("ROTA_LANES", lanes[i % 3], 1);
            /* Less than 64 elements of the widest type is taken as that. */
            struct odd_setting setting = {.chunk = (bytes < 512 ? 512 : bytes) / 4,
                                          .algorithm = rota_algorithm_name(turn++ % algorithms)};
            ranks_run(i < 18 ? 3 : 4, 20000, odd_sizes, &setting);
        }
    }
    setenv("ROTA_SLICE_BYTES", "1073741824", 1); /* the largest that is accepted */
    struct odd_setting largest = {.chunk = 1000, .algorithm = "ring"};
    ranks_run(3, 20000, odd_sizes, &largest);
    setenv("ROTA_SLICE_BYTES", "2147483648", 1);
    rota_comm *comms[3] = {NULL};
    CHECK_STATUS(rota_init_threads(3, comms, NULL), ROTA_ERR_SETTING);
    CHECK(strstr(last_error()->message, "ROTA_SLICE_BYTES") != NULL, "%s", last_error()->message);
    unsetenv("ROTA_SLICE_BYTES");
    unsetenv("ROTA_LANES");
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C17_count_not_divisible", C17_count_not_divisible},
        {"C23_arguments_of_the_root_alone", C23_arguments_of_the_root_alone},
        {"C96_odd_sizes_of_slices", C96_odd_sizes_of_slices},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
