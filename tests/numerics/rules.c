/* The rules of docs/numerics.md as a table: what the ranks hold and what comes out, by every
 * algorithm of every operation that reduces, in shared memory and over TCP, in every mode, in the
 * body of a vector and in its tail. Cases C08 to C15 are among them. */
#include "engine/ranks.h"

#include <stdlib.h>
#include <string.h>

struct rule {
    const char *name;
    rota_dtype dtype;
    rota_op op;
    int nranks;
    bool not_fast;                    /* rounding on the way may give something else */
    uint64_t inputs[4][2], result[2]; /* bits, low half first */
};

#define SUM(dtype, a, b, r)                                                                        \
    {                                                                                              \
        "sum", dtype, ROTA_SUM, 2, false, {{a, 0}, {b, 0}}, {                                      \
            r, 0                                                                                   \
        }                                                                                          \
    }
#define TWO(name, dtype, op, a, b, r)                                                              \
    {                                                                                              \
        name, dtype, op, 2, false, {{a, 0}, {b, 0}}, {                                             \
            r, 0                                                                                   \
        }                                                                                          \
    }
#define PAIR(name, dtype, op, ...)                                                                 \
    { name, dtype, op, 2, false, __VA_ARGS__ }

static const struct rule rules[] = {
    {"C08", ROTA_FLOAT16, ROTA_AVG, 4, true, {{0x7b53}, {0x7b53}, {0x7b53}, {0x7b53}}, {0x7b53}},
    {"C08", ROTA_BFLOAT16, ROTA_AVG, 3, false, {{0x7f7f}, {0x7f7f}, {0x7f7f}}, {0x7f80}},
    {"C09", ROTA_INT8, ROTA_AVG, 3, false, {{7}, {7}, {7}}, {7}},
    {"C09", ROTA_INT8, ROTA_AVG, 3, false, {{0xff}, {0xff}, {0xfe}}, {0xff}},
    {"C09", ROTA_INT8, ROTA_AVG, 3, false, {{100}, {100}, {100}}, {100}},
    {"C09", ROTA_UINT8, ROTA_AVG, 3, false, {{255}, {255}, {255}}, {255}},
    {"C09", ROTA_INT32, ROTA_AVG, 3, false, {{1}, {1}, {2}}, {1}},
    {"C09", ROTA_UINT32, ROTA_AVG, 3, false, {{0}, {0}, {1}}, {0}},
    {"C09", ROTA_INT64, ROTA_AVG, 3, false, {{~0ull}, {~0ull}, {~0ull - 1}}, {~0ull}},
    {"C10",
     ROTA_FLOAT32,
     ROTA_AVG,
     4,
     false,
     {{0x3f800000}, {0x40000000}, {0x40400000}, {0x40800000}},
     {0x40200000}},
    {"C10", ROTA_BFLOAT16, ROTA_AVG, 4, false, {{0x3f80}, {0x4000}, {0x4040}, {0x4080}}, {0x4020}},
    {"C10", ROTA_INT32, ROTA_AVG, 4, false, {{1}, {2}, {3}, {4}}, {2}},
    TWO("C12", ROTA_UINT8, ROTA_MIN, 0, 0xff, 0),
    TWO("C12", ROTA_UINT16, ROTA_MAX, 0xffff, 0, 0xffff),
    TWO("C12", ROTA_UINT32, ROTA_MIN, 0xffffffff, 0, 0),
    TWO("C12", ROTA_UINT64, ROTA_MAX, 0, ~0ull, ~0ull),
    TWO("C13", ROTA_BFLOAT16, ROTA_MIN, 0xbf80, 0xc000, 0xc000),
    TWO("C13", ROTA_BFLOAT16, ROTA_MAX, 0xff80, 0x4040, 0x4040),
    TWO("C13", ROTA_FLOAT16, ROTA_MIN, 0x8001, 0x0001, 0x8001),
    TWO("C13 zeros", ROTA_FLOAT32, ROTA_MIN, 0, 0x80000000, 0x80000000),
    TWO("C13 zeros", ROTA_FLOAT32, ROTA_MAX, 0x80000000, 0, 0),
    TWO("C13 NaN", ROTA_FLOAT64, ROTA_MIN, 0xfff0000000000001, 0, 0x7ff8000000000000),
    TWO("C13 NaN", ROTA_FLOAT8_E4M3, ROTA_MAX, 0xff, 0x38, 0x7f),
    TWO("C13 NaN", ROTA_FLOAT8_E5M2, ROTA_MIN, 0xfd, 0xfc, 0x7e),
    SUM(ROTA_BFLOAT16, 0x0001, 0x0001, 0x0002), /* C14 */
    SUM(ROTA_BFLOAT16, 0x007f, 0x0001, 0x0080),
    SUM(ROTA_BFLOAT16, 0x8001, 0x8001, 0x8002),
    SUM(ROTA_FLOAT16, 0x0001, 0x0001, 0x0002),
    SUM(ROTA_FLOAT32, 1, 1, 2),
    SUM(ROTA_FLOAT64, 1, 1, 2),
    SUM(ROTA_FLOAT8_E4M3, 0x07, 0x01, 0x08),
    SUM(ROTA_FLOAT8_E5M2, 0x03, 0x01, 0x04),
    TWO("C14", ROTA_BFLOAT16, ROTA_AVG, 0x0001, 0x0003, 0x0002),
    SUM(ROTA_BFLOAT16, 0xff81, 0, 0x7fc0), /* C15 */
    SUM(ROTA_BFLOAT16, 0x7fff, 0, 0x7fc0),
    SUM(ROTA_FLOAT16, 0x7c01, 0, 0x7e00),
    SUM(ROTA_BFLOAT16, 0xff80, 0x3f80, 0xff80),
    SUM(ROTA_BFLOAT16, 0x7f7f, 0x7f7f, 0x7f80),
    SUM(ROTA_BFLOAT16, 0x7f7f, 0x7a80, 0x7f7f),
    SUM(ROTA_BFLOAT16, 0x7f7f, 0x7b00, 0x7f80),
    SUM(ROTA_FLOAT32, 0x7f800000, 0xff800000, 0x7fc00000),
    SUM(ROTA_FLOAT32, 0x80000000, 0x80000000, 0x80000000), /* -0 + -0 */
    SUM(ROTA_FLOAT32, 0x80000000, 0, 0),
    SUM(ROTA_FLOAT8_E4M3, 0x7e, 0x58, 0x7e), /* 448 + 16: to even */
    SUM(ROTA_FLOAT8_E4M3, 0x7e, 0x60, 0x7f), /* 448 + 32 overflows to the NaN */
    SUM(ROTA_FLOAT8_E4M3, 0xfe, 0xfe, 0x7f),
    SUM(ROTA_FLOAT8_E5M2, 0x7b, 0x6c, 0x7c), /* 57344 + 4096: to even, which is infinity */
    SUM(ROTA_FLOAT8_E5M2, 0xfb, 0xfb, 0xfc),
    SUM(ROTA_FLOAT8_E5M2, 0x7c, 0xfc, 0x7e),
    SUM(ROTA_INT8, 0x7f, 1, 0x80),
    TWO("wraps", ROTA_UINT16, ROTA_PROD, 0x100, 0x100, 0),
    /* (1 + 2i) (3 - i) = 5 + 5i; parts are added each by itself. */
    TWO("product", ROTA_COMPLEX64, ROTA_PROD, 0x400000003f800000, 0xbf80000040400000,
        0x40a0000040a00000),
    TWO("sum", ROTA_COMPLEX64, ROTA_SUM, 0x3f800000ffc00001, 0x3f8000003f800000,
        0x400000007fc00000),
    PAIR("average", ROTA_COMPLEX128, ROTA_AVG,
         {{0x3ff0000000000000, 0}, {0x4008000000000000, 0x4000000000000000}},
         {0x4000000000000000, 0x3ff0000000000000}),
    TWO("truth", ROTA_BOOL, ROTA_SUM, 2, 0, 1),
    TWO("truth", ROTA_BOOL, ROTA_MIN, 2, 255, 1),
    TWO("truth", ROTA_BOOL, ROTA_PROD, 2, 0, 0),
    TWO("truth", ROTA_BOOL, ROTA_BITWISE_XOR, 2, 3, 0),
    TWO("bits", ROTA_UINT8, ROTA_BITWISE_AND, 0xf0, 0x3c, 0x30),
    TWO("bits", ROTA_INT64, ROTA_BITWISE_XOR, ~0ull, 0xff, ~0xffull),
    TWO("logical", ROTA_INT32, ROTA_LOGICAL_AND, 4, 3, 1),
    TWO("logical", ROTA_INT16, ROTA_LOGICAL_XOR, 4, 3, 0),
    TWO("logical", ROTA_UINT64, ROTA_LOGICAL_OR, 1ull << 40, 0, 1),
    TWO("lowest index", ROTA_FLOAT32_INT32, ROTA_MINLOC, 0x000000053f800000, 0xfffffffd3f800000,
        0xfffffffd3f800000),
    TWO("NaN wins", ROTA_FLOAT32_INT32, ROTA_MAXLOC, 0x00000000ff800000, 0x00000007ff800001,
        0x000000077fc00000),
    TWO("of two NaN", ROTA_FLOAT32_INT32, ROTA_MINLOC, 0x00000009ffc00001, 0x000000027f800001,
        0x000000027fc00000),
    TWO("-0 is below", ROTA_FLOAT32_INT32, ROTA_MINLOC, 0x0000000500000000, 0x0000000980000000,
        0x0000000980000000),
    TWO("value first", ROTA_INT32_INT32, ROTA_MAXLOC, 0x00000001ffffffff, 0x0000000800000002,
        0x0000000800000002),
    PAIR("padding", ROTA_FLOAT64_INT32, ROTA_MAXLOC,
         {{0x3ff0000000000000, 0xaaaaaaaa00000003}, {0x3ff0000000000000, 0x5555555500000001}},
         {0x3ff0000000000000, 1}),
    PAIR("64 bits", ROTA_INT64_INT64, ROTA_MINLOC, {{1ull << 40, 1}, {~0ull << 41, 1ull << 50}},
         {~0ull << 41, 1ull << 50})};
enum { RULES = sizeof(rules) / sizeof(rules[0]), MAX_COUNT = 70 };

static const rota_kind kinds[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_REDUCE, ROTA_KIND_REDUCE_SCATTER};
static const rota_numerics modes[] = {ROTA_NUMERICS_EQUAL, ROTA_NUMERICS_REPRODUCIBLE,
                                      ROTA_NUMERICS_FAST};

static rota_status reduce(const struct rank *rank, rota_kind kind, const struct rule *rule,
                          const void *send, void *recv, size_t count, const rota_call *call) {
    if (kind == ROTA_KIND_ALL_REDUCE)
        return rota_all_reduce(send, recv, count, rule->dtype, rule->op, rank->comm, call);
    if (kind == ROTA_KIND_REDUCE)
        return rota_reduce(send, recv, count, rule->dtype, rule->op, 0, rank->comm, call);
    return rota_reduce_scatter(send, recv, count, rule->dtype, rule->op, rank->comm, call);
}

static void check_rule(const struct rank *rank, const struct rule *rule, rota_kind kind,
                       const rota_call *call, size_t count) {
    static _Thread_local _Alignas(16) unsigned char send[4 * MAX_COUNT * 16], recv[MAX_COUNT * 16];
    size_t size = rota_dtype_size(rule->dtype);
    for (size_t i = 0; i < 4 * count; i++)
        memcpy(send + i * size, rule->inputs[rank->rank], size);
    memset(recv, 0x55, sizeof(recv));
    rota_status status = reduce(rank, kind, rule, send, recv, count, call);
    bool refused = status == ROTA_ERR_UNSUPPORTED && call->algorithm != NULL &&
                   call->numerics == ROTA_NUMERICS_REPRODUCIBLE;
    const char *how = call->algorithm != NULL ? call->algorithm : "the library's choice";
    CHECK(status == ROTA_OK || refused, "%s: %s", how, last_error()->message);
    bool receives = status == ROTA_OK && (kind != ROTA_KIND_REDUCE || rank->rank == 0);
    for (size_t i = 0; receives && i < count; i++) {
        if (memcmp(recv + i * size, rule->result, size) == 0)
            continue;
        uint64_t low = 0;
        memcpy(&low, recv + i * size, size < sizeof(low) ? size : sizeof(low));
        CHECK(false, "%s %s %s: %s by %s in mode %s: element %zu of %zu is %#llx, not %#llx",
              rule->name, rota_dtype_name(rule->dtype), rota_op_name(rule->op),
              rota_kind_name(kind), how, rota_numerics_name(call->numerics), i, count,
              (unsigned long long)low, (unsigned long long)rule->result[0]);
        return;
    }
}

static void check_kind(const struct rank *rank, const struct rule *rule, rota_kind kind) {
    static const size_t counts[] = {1, 9, MAX_COUNT};
    rota_call call = ROTA_CALL_INIT;
    for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
        if (rule->not_fast && modes[m] == ROTA_NUMERICS_FAST)
            continue;
        call.numerics = modes[m];
        for (int a = -1; a < 0 || rota_algorithm_name(a) != NULL; a++) {
            call.algorithm = a < 0 ? NULL : rota_algorithm_name(a);
            if (a >= 0 && !rota_algorithm_does(call.algorithm, kind, rank->nranks))
                continue;
            for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++)
                check_rule(rank, rule, kind, &call, counts[c]);
        }
    }
}

static void check_all(const struct rank *rank) {
    for (size_t r = 0; r < RULES; r++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
            if (rules[r].nranks == rank->nranks)
                check_kind(rank, &rules[r], kinds[k]);
}

static void run_over(const struct way *way) {
    way_take(way);
    for (int n = 2; n <= 4; n++)
        ranks_run(n, 30000, check_all, NULL);
}

static void rules_in_shared_memory(void) {
    run_over(&ways[0]);
}

static void rules_over_tcp(void) {
    run_over(&ways[2]);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {{"rules_in_shared_memory", rules_in_shared_memory},
                                             {"rules_over_tcp", rules_over_tcp},
                                             {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
