/* A case number is a number in mixed radix: its digits pick type, operator, root, count, place and
 * algorithm, and the radices follow from the library's own tables. */
#include "cases.h"
#include "values.h"
#include <stdio.h>
#include <string.h>

#define COUNTS 14
/* Slices in flight per block are fewer than this, so that a count has several blocks. */
#define SLICES_OF_SEVERAL_BLOCKS 9

static bool reduces(rota_kind kind) {
    return kind == ROTA_KIND_ALL_REDUCE || kind == ROTA_KIND_REDUCE ||
           kind == ROTA_KIND_REDUCE_SCATTER || kind == ROTA_KIND_SCAN ||
           kind == ROTA_KIND_EXCLUSIVE_SCAN;
}

/* Whether the kind reduces elements of the type by the operator; averages have no scan. */
static bool means_something(rota_kind kind, rota_dtype dtype, rota_op op) {
    bool scans = kind == ROTA_KIND_SCAN || kind == ROTA_KIND_EXCLUSIVE_SCAN;
    return rota_op_accepts(op, dtype) && !(scans && op == ROTA_AVG);
}

/* Types, or pairs of a type and an operator that it has; *at is how many of them to pass by. */
static uint64_t walk_types(rota_kind kind, uint64_t *at, struct matrix_case *test) {
    uint64_t count = 0;
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        for (rota_op op = 0; op < (reduces(kind) ? ROTA_OP_COUNT : 1); op++) {
            if (reduces(kind) && !means_something(kind, dtype, op))
                continue;
            if (at != NULL && count == *at) {
                test->dtype = dtype;
                test->op = op;
            }
            count++;
        }
    }
    return count;
}

static bool rooted(rota_kind kind) {
    return kind == ROTA_KIND_REDUCE || kind == ROTA_KIND_BROADCAST || kind == ROTA_KIND_GATHER ||
           kind == ROTA_KIND_SCATTER;
}

static size_t count_at(const struct matrix_options *options, rota_kind kind, int nranks,
                       size_t element, uint64_t digit) {
    size_t n = (size_t)nranks, slice = options->slice > 0 ? options->slice : 4096;
    size_t blocks = SLICES_OF_SEVERAL_BLOCKS * slice / element + 7;
    bool many_blocks = kind == ROTA_KIND_ALL_GATHER || kind == ROTA_KIND_REDUCE_SCATTER ||
                       kind == ROTA_KIND_ALL_TO_ALL || kind == ROTA_KIND_GATHER ||
                       kind == ROTA_KIND_SCATTER;
    bool one_block = !many_blocks && kind != ROTA_KIND_BARRIER;
    switch (digit) {
    case 4:
        return n - 1;
    case 5:
        return n;
    case 6:
        return n + 1;
    case 7:
        return 63;
    case 8:
        return 64;
    case 9:
        return 65;
    case 10:
        return 1021;
    case 11:
        return blocks;
    case 12: /* several blocks also where a count is cut into n chunks */
        return one_block && n * blocks < 100000 ? n * blocks + 3 : blocks + 64;
    case 13:
        return one_block ? 70001 / element : 1500;
    default:
        return digit; /* 0 to 3 */
    }
}

/* The index-th algorithm that can do it, 0 being none; NULL also past the end. */
static const char *algorithm_at_digit(const struct matrix_options *options, rota_kind kind,
                                      int nranks, uint64_t digit) {
    const char *name;
    if (options->algorithm != NULL)
        return strcmp(options->algorithm, "native") == 0 ||
                       !rota_algorithm_does(options->algorithm, kind, nranks)
                   ? NULL
                   : options->algorithm;
    for (int i = 0; digit > 0 && (name = rota_algorithm_name(i)) != NULL; i++)
        if (rota_algorithm_does(name, kind, nranks) && --digit == 0)
            return name;
    return NULL;
}

static uint64_t algorithm_digits(const struct matrix_options *options, rota_kind kind, int nranks) {
    uint64_t digits = 1;
    const char *name;
    if (options->algorithm != NULL)
        return 1;
    for (int i = 0; (name = rota_algorithm_name(i)) != NULL; i++)
        digits += rota_algorithm_does(name, kind, nranks);
    return digits;
}

struct radices {
    uint64_t types, roots, counts, places, algorithms, modes;
};

#define MODES 3

static struct radices radices_of(const struct matrix_options *options, rota_kind kind, int nranks) {
    struct radices radices = {.types = walk_types(kind, NULL, NULL),
                              .roots = rooted(kind) ? (uint64_t)nranks : 1,
                              .counts = COUNTS,
                              .places = kind == ROTA_KIND_SEND ? 1 : MATRIX_PLACES,
                              .algorithms = algorithm_digits(options, kind, nranks),
                              .modes = reduces(kind) && options->mode == 0 ? MODES : 1};
    if (kind == ROTA_KIND_BARRIER)
        radices.types = radices.counts = radices.places = 1;
    return radices;
}

uint64_t cases_of_kind(const struct matrix_options *options, rota_kind kind, int nranks) {
    struct radices radices = radices_of(options, kind, nranks);
    return radices.types * radices.roots * radices.counts * radices.places * radices.algorithms *
           radices.modes;
}

static uint64_t take_digit(uint64_t *rest, uint64_t radix) {
    uint64_t digit = *rest % radix;
    *rest /= radix;
    return digit;
}

struct matrix_case case_at(const struct matrix_options *options, rota_kind kind, int nranks,
                           uint64_t index) {
    struct radices radices = radices_of(options, kind, nranks);
    struct matrix_case test = {.index = index, .kind = kind, .nranks = nranks};
    uint64_t rest = index;
    uint64_t type = take_digit(&rest, radices.types);
    walk_types(kind, &type, &test);
    test.root = (int)take_digit(&rest, radices.roots);
    test.count = count_at(options, kind, nranks, rota_dtype_size(test.dtype),
                          take_digit(&rest, radices.counts));
    test.place = (enum matrix_place)take_digit(&rest, radices.places);
    test.algorithm =
        algorithm_at_digit(options, kind, nranks, take_digit(&rest, radices.algorithms));
    test.mode = options->mode;
    if (radices.modes > 1)
        test.mode = (rota_numerics)(ROTA_NUMERICS_EQUAL + take_digit(&rest, radices.modes));
    if (!reduces(kind))
        test.op = VALUE_MOVED;
    test.salt = value_mix(options->seed ^ value_mix(index * ROTA_KIND_COUNT + (uint64_t)kind));
    test.request = test.salt % 4 == 0;
    return test;
}

bool case_next(const struct matrix_options *options, int nranks, uint64_t number,
               struct matrix_case *out) {
    uint64_t total = 0, index = number;
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++)
        if (options->kinds >> kind & 1)
            total += cases_of_kind(options, (rota_kind)kind, nranks);
    if (options->single)
        index = options->index;
    else if (options->samples > 0)
        index = value_mix(options->seed ^ value_mix(number) ^ (uint64_t)nranks) % total;
    if (number >= (options->single ? 1 : options->samples > 0 ? options->samples : total))
        return false;
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
        if ((options->kinds >> kind & 1) == 0)
            continue;
        uint64_t cases = cases_of_kind(options, (rota_kind)kind, nranks);
        if (index < cases) {
            *out = case_at(options, (rota_kind)kind, nranks, index);
            return true;
        }
        index -= cases;
    }
    return false;
}

void case_describe(const struct matrix_options *options, const struct matrix_case *test, char *text,
                   size_t size) {
    static const char *const places[] = {"out of place", "in place", "in place on odd ranks"};
    snprintf(
        text, size,
        "%s %s %s count %zu root %d n %d, %s, algorithm %s, mode %s, %s\n"
        "  reproduce: --transport %s --memory %s --delay %u --slice %zu --seed %llu --ranks %d "
        "--ops %s%s%s%s%s%s --index %llu",
        rota_kind_name(test->kind), rota_dtype_name(test->dtype),
        test->op == VALUE_MOVED ? "-" : rota_op_name(test->op), test->count, test->root,
        test->nranks, places[test->place], test->algorithm != NULL ? test->algorithm : "not forced",
        rota_numerics_name(test->mode), test->request ? "request" : "blocking", options->transport,
        options->mock ? "mock" : "host", options->delay_us, options->slice,
        (unsigned long long)options->seed, test->nranks, rota_kind_name(test->kind),
        options->processes ? " --processes" : "", options->algorithm != NULL ? " --algorithm " : "",
        options->algorithm != NULL ? options->algorithm : "", options->mode != 0 ? " --mode " : "",
        options->mode != 0 ? rota_numerics_name(options->mode) : "",
        (unsigned long long)test->index);
}

size_t case_blocks_in(const struct matrix_case *test, int rank) {
    switch (test->kind) {
    case ROTA_KIND_REDUCE_SCATTER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)test->nranks;
    case ROTA_KIND_BROADCAST:
        return rank == test->root ? 1 : 0;
    case ROTA_KIND_SCATTER:
        return rank == test->root ? (size_t)test->nranks : 0;
    case ROTA_KIND_BARRIER:
        return 0;
    default:
        return 1;
    }
}

size_t case_blocks_out(const struct matrix_case *test, int rank) {
    switch (test->kind) {
    case ROTA_KIND_ALL_GATHER:
    case ROTA_KIND_ALL_TO_ALL:
        return (size_t)test->nranks;
    case ROTA_KIND_REDUCE:
        return rank == test->root ? 1 : 0;
    case ROTA_KIND_GATHER:
        return rank == test->root ? (size_t)test->nranks : 0;
    case ROTA_KIND_EXCLUSIVE_SCAN:
        return rank > 0 ? 1 : 0;
    case ROTA_KIND_BARRIER:
        return 0;
    default:
        return 1;
    }
}
