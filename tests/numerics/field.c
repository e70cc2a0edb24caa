/* Cases from the field about the bits of sums. With "long" as the first argument at their full
 * size: a million elements, 20 repetitions. */
#include "engine/ranks.h"
#include "inputs.h"

#include <stdlib.h>
#include <string.h>

enum { TIMEOUT_MS = 60000 };

static bool full; /* set once, before any rank runs */

static const struct way *const transports[] = {&ways[0], &ways[2]};
static const rota_numerics modes[] = {ROTA_NUMERICS_EQUAL, ROTA_NUMERICS_REPRODUCIBLE,
                                      ROTA_NUMERICS_FAST};
enum { MODES = sizeof(modes) / sizeof(modes[0]) };

static const char *name_of(const char *algorithm) {
    return algorithm != NULL ? algorithm : "the library's choice";
}

/* Calls `run` with each algorithm that can do an all_reduce, and first with none. */
static void for_algorithms(const struct rank *rank,
                           void (*run)(const struct rank *rank, const char *algorithm)) {
    run(rank, NULL);
    for (int i = 0; rota_algorithm_name(i) != NULL; i++)
        if (rota_algorithm_does(rota_algorithm_name(i), ROTA_KIND_ALL_REDUCE, rank->nranks))
            run(rank, rota_algorithm_name(i));
}

/* An all_reduce in a mode. False: the algorithm is refused, which only reproducible may do. */
static bool all_reduce(const struct rank *rank, const void *send, void *recv, size_t count,
                       rota_dtype dtype, rota_op op, rota_numerics mode, const char *algorithm) {
    rota_call call = ROTA_CALL_INIT;
    call.numerics = mode;
    call.algorithm = algorithm;
    rota_status status = rota_all_reduce(send, recv, count, dtype, op, rank->comm, &call);
    bool refused =
        status == ROTA_ERR_UNSUPPORTED && algorithm != NULL && mode == ROTA_NUMERICS_REPRODUCIBLE;
    CHECK(status == ROTA_OK || refused, "%s in mode %s: %s: %s", name_of(algorithm),
          rota_numerics_name(mode), rota_status_name(status), last_error()->message);
    return status == ROTA_OK;
}

/* -- C01: one 256 and seven 1 in bfloat16 --------------------------------------------------------
 */

enum { C01_RANKS = 8, C01_COUNT = 4099 };

static double brain(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof(value));
    return value;
}

static void c01_call(const struct rank *rank, rota_numerics mode, const char *algorithm,
                     size_t count, int holder) {
    uint16_t send[C01_COUNT] = {0}, recv[C01_COUNT];
    for (size_t i = 0; i < count; i++)
        send[i] = rank->rank == holder ? 0x4380 : 0x3f80;
    if (!all_reduce(rank, send, recv, count, ROTA_BFLOAT16, ROTA_SUM, mode, algorithm))
        return;
    for (size_t i = 0; i < count; i++) {
        double value = brain(recv[i]);
        /* Seven hops, half a unit in the last place of 256 each. */
        CHECK(mode == ROTA_NUMERICS_FAST ? value >= 256 && value <= 270 : recv[i] == 0x4384,
              "256 at rank %d, mode %s, %s: element %zu of %zu is %g", holder,
              rota_numerics_name(mode), name_of(algorithm), i, count, value);
        if (i > 0 && mode != ROTA_NUMERICS_FAST)
            CHECK(recv[i] == recv[0], "elements %zu and 0 differ", i);
    }
}

static void c01_algorithm(const struct rank *rank, const char *algorithm) {
    static const size_t counts[] = {1, 17, C01_COUNT};
    for (size_t m = 0; m < MODES; m++)
        for (size_t c = 0; c < 3; c++)
            for (int holder = 0; holder < C01_RANKS; holder++)
                c01_call(rank, modes[m], algorithm, counts[c], holder);
}

/* The control: a ring that rounds at every hop does lose ones. */
static void c01_control(const struct rank *rank) {
    bool loses = false;
    for (int holder = 0; holder < C01_RANKS; holder++) {
        uint16_t send = rank->rank == holder ? 0x4380 : 0x3f80, recv = 0;
        all_reduce(rank, &send, &recv, 1, ROTA_BFLOAT16, ROTA_SUM, ROTA_NUMERICS_FAST, "ring");
        loses |= recv != 0x4384;
    }
    CHECK(loses, "mode fast rounded once");
}

static void c01_rank(const struct rank *rank) {
    for_algorithms(rank, c01_algorithm);
    c01_control(rank);
}

static void C01_bfloat16_is_summed_in_float32(void) {
    for (size_t t = 0; t < 2; t++) {
        way_take(transports[t]);
        ranks_run(C01_RANKS, TIMEOUT_MS, c01_rank, NULL);
    }
}

/* -- C04: all ranks hold the same bits -----------------------------------------------------------
 */

static const rota_dtype c04_types[] = {ROTA_FLOAT16, ROTA_BFLOAT16, ROTA_FLOAT32, ROTA_FLOAT64};
static const rota_op c04_ops[] = {ROTA_SUM, ROTA_PROD, ROTA_AVG};

static size_t c04_count(void) {
    return full ? 1000003 : 4003;
}

static uint64_t hash(const unsigned char *bytes, size_t count) { /* FNV-1a, by words */
    uint64_t value = UINT64_C(0xcbf29ce484222325), word = 0;
    for (size_t i = 0; i < count; i += sizeof(word)) {
        word = 0;
        memcpy(&word, bytes + i, count - i < sizeof(word) ? count - i : sizeof(word));
        value = (value ^ word) * UINT64_C(0x100000001b3);
        value ^= value >> 29;
    }
    return value;
}

static void c04_call(const struct rank *rank, const unsigned char *input, rota_dtype dtype,
                     rota_op op, rota_numerics mode, const char *algorithm, bool in_place) {
    size_t count = c04_count(), bytes = count * rota_dtype_size(dtype);
    unsigned char *send = malloc(bytes), *recv = in_place ? send : malloc(bytes);
    uint64_t mine = 0, all[16];
    memcpy(send, input, bytes);
    if (all_reduce(rank, send, recv, count, dtype, op, mode, algorithm))
        mine = hash(recv, bytes);
    CHECK_OK(rota_all_gather(&mine, all, 1, ROTA_UINT64, rank->comm, NULL));
    for (int r = 0; r < rank->nranks; r++)
        CHECK(all[r] == mine, "%s %s, mode %s, %s, %d ranks: ranks %d and %d differ",
              rota_dtype_name(dtype), rota_op_name(op), rota_numerics_name(mode),
              name_of(algorithm), rank->nranks, rank->rank, r);
    free(send);
    if (!in_place)
        free(recv);
}

static void c04_type(const struct rank *rank, const unsigned char *input, rota_dtype dtype,
                     const char *algorithm) {
    for (size_t o = 0; o < 3; o++)
        for (size_t m = 0; m < MODES; m++)
            for (int in_place = 0; in_place < 2; in_place++)
                for (int i = 0; i < (!full ? 1 : m == 0 ? 20 : 2); i++)
                    c04_call(rank, input, dtype, c04_ops[o], modes[m], algorithm, in_place);
}

static void c04_algorithm(const struct rank *rank, const char *algorithm) {
    for (size_t d = 0; d < 4; d++) {
        unsigned char *input = malloc(c04_count() * rota_dtype_size(c04_types[d]));
        input_fill(input, c04_types[d], rank->rank, 0, c04_count());
        c04_type(rank, input, c04_types[d], algorithm);
        free(input);
    }
}

static void c04_rank(const struct rank *rank) {
    for_algorithms(rank, c04_algorithm);
}

static void C04_all_ranks_hold_the_same_bits(void) {
    static const int nranks[] = {2, 3, 5, 7, 8};
    for (size_t t = 0; t < 2; t++)
        for (size_t n = 0; n < 5; n++) {
            way_take(transports[t]);
            ranks_run(nranks[n], TIMEOUT_MS, c04_rank, NULL);
        }
}

/* -- C05: the same data in one call or two, over either transport --------------------------------
 */

enum { C05_RANKS = 4, C05_COUNT = 100003, C05_CUT = 40001 };

/* What the first transport gave, by rank. */
static float c05_first[C05_RANKS][C05_COUNT];

static void c05_rank(const struct rank *rank) {
    float *send = malloc(C05_COUNT * sizeof(float)), *one = malloc(C05_COUNT * sizeof(float)),
          *two = malloc(C05_COUNT * sizeof(float));
    const rota_numerics mode = ROTA_NUMERICS_REPRODUCIBLE;
    input_fill(send, ROTA_FLOAT32, rank->rank, 0, C05_COUNT);
    all_reduce(rank, send, one, C05_COUNT, ROTA_FLOAT32, ROTA_SUM, mode, NULL);
    all_reduce(rank, send, two, C05_CUT, ROTA_FLOAT32, ROTA_SUM, mode, NULL);
    all_reduce(rank, send + C05_CUT, two + C05_CUT, C05_COUNT - C05_CUT, ROTA_FLOAT32, ROTA_SUM,
               mode, NULL);
    CHECK(memcmp(one, two, C05_COUNT * sizeof(float)) == 0, "two calls give other bits");
    if (*(const bool *)rank->arg)
        memcpy(c05_first[rank->rank], one, sizeof(c05_first[0]));
    else
        CHECK(memcmp(c05_first[rank->rank], one, sizeof(c05_first[0])) == 0,
              "transports give different bits");
    free(send);
    free(one);
    free(two);
}

static void C05_one_call_or_two(void) {
    for (size_t t = 0; t < 2; t++) {
        bool first = t == 0;
        way_take(transports[t]);
        ranks_run(C05_RANKS, TIMEOUT_MS, c05_rank, &first);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"C01_bfloat16_is_summed_in_float32", C01_bfloat16_is_summed_in_float32},
        {"C04_all_ranks_hold_the_same_bits", C04_all_ranks_hold_the_same_bits},
        {"C05_one_call_or_two", C05_one_call_or_two},
        {NULL, NULL}};
    full = argc > 1 && strcmp(argv[1], "long") == 0;
    return cases_main(cases, argc - full, argv + full);
}
