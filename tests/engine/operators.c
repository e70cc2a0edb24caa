/* Operators that callers make: the order and the tree of their terms, in every algorithm and native
 * form; premultiplied sums; what ranks must agree on; how long an operator lives. */
#include "ranks.h"

#include <stdlib.h>
#include <string.h>

/* -- the tree ------------------------------------------------------------------------------------
 * The operator mixes both sides into a number, so that every other order or tree gives another
 * result. It is not associative, which no operator should be: so the result names its tree. */

struct term {
    unsigned char bytes[12]; /* of which the last four are left as they are on the right */
};

static uint64_t mix(uint64_t left, uint64_t right) {
    uint64_t z = left * UINT64_C(0x9e3779b97f4a7c15) + right;
    return (z ^ (z >> 29)) * UINT64_C(0xbf58476d1ce4e5b9);
}

static void mix_terms(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                      void *arg) {
    CHECK(dtype == rota_dtype_bytes(sizeof(struct term)), "type %#x", dtype);
    CHECK(arg == (void *)mix_terms, "another argument");
    for (size_t i = 0; i < count; i++) {
        uint64_t a, b;
        memcpy(&a, (const struct term *)left + i, sizeof(a));
        memcpy(&b, (struct term *)right_inout + i, sizeof(b));
        b = mix(a, b);
        memcpy((struct term *)right_inout + i, &b, sizeof(b));
    }
}

static uint64_t input(int rank, size_t i) {
    return mix((uint64_t)rank + 1, i);
}

/* node(first, height) of the tree over the ranks from 0 to n - 1, absent ones left out. */
static uint64_t tree(int first, int width, int n, size_t i) {
    if (width == 1)
        return input(first, i);
    uint64_t left = tree(first, width / 2, n, i);
    return first + width / 2 < n ? mix(left, tree(first + width / 2, width / 2, n, i)) : left;
}

static struct term *make_terms(int rank, size_t count) {
    struct term *terms = calloc(count + 1, sizeof(*terms));
    for (size_t i = 0; i < count; i++) {
        uint64_t value = input(rank, i);
        memcpy(&terms[i], &value, sizeof(value));
    }
    return terms;
}

static void check_terms(const struct rank *rank, const struct term *got, size_t first, size_t count,
                        int n, const char *what) {
    for (size_t i = 0; i < count; i++) {
        uint64_t value, expected = tree(0, 64, n, first + i);
        memcpy(&value, &got[i], sizeof(value));
        if (value != expected) {
            CHECK(false, "%s on rank %d of %d: element %zu of %zu", what, rank->rank, rank->nranks,
                  i, count);
            return;
        }
    }
}

static rota_status reduce_terms(const struct rank *rank, rota_kind kind, const struct term *send,
                                struct term *recv, size_t count, rota_op op,
                                const rota_call *call) {
    rota_dtype dtype = rota_dtype_bytes(sizeof(struct term));
    switch (kind) {
    case ROTA_KIND_ALL_REDUCE:
        return rota_all_reduce(send, recv, count, dtype, op, rank->comm, call);
    case ROTA_KIND_REDUCE:
        return rota_reduce(send, recv, count, dtype, op, 0, rank->comm, call);
    case ROTA_KIND_REDUCE_SCATTER:
        return rota_reduce_scatter(send, recv, count / (size_t)rank->nranks, dtype, op, rank->comm,
                                   call);
    case ROTA_KIND_SCAN:
        return rota_scan(send, recv, count, dtype, op, rank->comm, call);
    default:
        return rota_exclusive_scan(send, recv, count, dtype, op, rank->comm, call);
    }
}

static const rota_kind kinds[] = {ROTA_KIND_ALL_REDUCE, ROTA_KIND_REDUCE, ROTA_KIND_REDUCE_SCATTER,
                                  ROTA_KIND_SCAN, ROTA_KIND_EXCLUSIVE_SCAN};

/* How many calls an algorithm took; the same on all ranks. */
static int run_kind(const struct rank *rank, rota_kind kind, size_t count, rota_op op,
                    const char *algorithm) {
    size_t n = (size_t)rank->nranks, self = (size_t)rank->rank;
    struct term *send = make_terms(rank->rank, count), *recv = make_terms(63, count);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    rota_status status =
        reduce_terms(rank, kind, send, recv, count, op, algorithm != NULL ? &call : NULL);
    const char *what = algorithm != NULL ? algorithm : rota_kind_name(kind);
    CHECK(status == ROTA_OK || (algorithm != NULL && status == ROTA_ERR_UNSUPPORTED), "%s: %s",
          what, last_error()->message);
    if (status != ROTA_OK)
        ;
    else if (kind == ROTA_KIND_REDUCE_SCATTER)
        check_terms(rank, recv, self * (count / n), count / n, rank->nranks, what);
    else if (kind == ROTA_KIND_SCAN)
        check_terms(rank, recv, 0, count, rank->rank + 1, what);
    else if (kind == ROTA_KIND_EXCLUSIVE_SCAN && rank->rank > 0)
        check_terms(rank, recv, 0, count, rank->rank, what);
    else if (kind == ROTA_KIND_ALL_REDUCE || (kind == ROTA_KIND_REDUCE && rank->rank == 0))
        check_terms(rank, recv, 0, count, rank->nranks, what);
    free(send);
    free(recv);
    return status == ROTA_OK;
}

static void trees(const struct rank *rank) {
    static const size_t counts[] = {1, 4, 100, 3001, 40000};
    rota_op ordered = 0, swapped = 0;
    CHECK_OK(rota_op_create(mix_terms, (void *)mix_terms, false, NULL, rank->comm, &ordered));
    CHECK_OK(rota_op_create(mix_terms, (void *)mix_terms, false, "mix", rank->comm, &swapped));
    int taken = 0, refused = 0;
    for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
        for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
            CHECK(run_kind(rank, kinds[k], counts[c], ordered, NULL), "no algorithm of its own");
            for (int a = 0; c < 3 && rota_algorithm_name(a) != NULL; a++) {
                const char *name = rota_algorithm_name(a);
                if (!rota_algorithm_does(name, kinds[k], rank->nranks))
                    continue;
                int ran = run_kind(rank, kinds[k], counts[c], swapped, name);
                taken += ran;
                refused += !ran;
            }
        }
    }
    CHECK(taken > 0, "no algorithm took the operator");
    CHECK(rank->nranks < 4 || refused > 0, "no algorithm was refused");
    CHECK_OK(rota_op_free(ordered, rank->comm));
    CHECK_OK(rota_op_free(swapped, rank->comm));
}

static void terms_keep_the_canonical_tree(void) {
    for (int w = 0; ways[w].name != NULL; w++) {
        if (ways[w].algorithm[0] != '\0')
            continue;
        way_take(&ways[w]);
        for (int n = 1; n <= 6; n++)
            ranks_run(n, 30000, trees, NULL);
    }
}

/* -- requests, plans, life ----------------------------------------------------------------------
 */

static void add_floats(const void *left, void *right_inout, size_t count, rota_dtype dtype,
                       void *arg) {
    (void)arg;
    CHECK(dtype == ROTA_FLOAT32, "type %u", dtype);
    for (size_t i = 0; i < count; i++)
        ((float *)right_inout)[i] += ((const float *)left)[i];
}

static void lives(const struct rank *rank) {
    enum { COUNT = 30000 };
    float *send = malloc(COUNT * sizeof(*send)), *recv = malloc(COUNT * sizeof(*recv));
    for (int i = 0; i < COUNT; i++)
        send[i] = (float)(rank->rank + i % 7);
    rota_op op = 0;
    CHECK_OK(rota_op_create(add_floats, NULL, true, NULL, rank->comm, &op));
    rota_plan *plan = NULL;
    CHECK_OK(rota_plan_create_all_reduce(COUNT, ROTA_FLOAT32, op, rank->comm, NULL, &plan));
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK_OK(rota_all_reduce(send, recv, COUNT, ROTA_FLOAT32, op, rank->comm, &call));
    CHECK_OK(rota_op_free(op, rank->comm)); /* the call and the plan go on */
    CHECK_OK(rota_request_wait(request, 0));
    CHECK_OK(rota_request_free(request));
    float first = recv[6];
    CHECK_OK(rota_plan_start(plan, send, recv));
    CHECK_OK(rota_plan_wait(plan, 0));
    float sum = (float)(rank->nranks * (rank->nranks - 1) / 2 + 6 * rank->nranks);
    CHECK(first == sum && recv[6] == sum, "%f and %f, not %f", (double)first, (double)recv[6],
          (double)sum);
    CHECK_OK(rota_plan_free(plan));
    CHECK_STATUS(rota_all_reduce(send, recv, COUNT, ROTA_FLOAT32, op, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
    CHECK_STATUS(rota_op_free(op, rank->comm), ROTA_ERR_ARGUMENT);
    free(send);
    free(recv);
}

static void operators_outlive_their_handle(void) {
    way_take(&ways[0]);
    ranks_run(3, 30000, lives, NULL);
}

/* -- premultiplied sums -------------------------------------------------------------------------
 */

static void premultiplied(const struct rank *rank) {
    const float third = 1.0F / 3, nan = __builtin_nanf("1");
    rota_op op = 0, bad = 0;
    for (size_t count = 1; count <= 70; count += 23) {
        float singles[70], sums[70];
        uint16_t brains[70], narrow[70];
        for (size_t i = 0; i < count; i++) {
            singles[i] = (float)(rank->rank + 1) + (float)i / 64;
            brains[i] = (uint16_t)(0x3f80 + 16 * rank->rank); /* 1 + rank / 8 */
        }
        CHECK_OK(rota_op_create_pre_mul_sum(&third, ROTA_FLOAT32, rank->comm, &op));
        CHECK_OK(rota_all_reduce(singles, sums, count, ROTA_FLOAT32, op, rank->comm, NULL));
        CHECK_OK(rota_all_reduce(brains, narrow, count, ROTA_BFLOAT16, op, rank->comm, NULL));
        float total = 0, brain = 0; /* three ranks: from left to right is the tree */
        for (int r = 0; r < 3; r++) {
            total += ((float)(r + 1) + (float)(count - 1) / 64) * third;
            brain += (1 + (float)r / 8) * third;
        }
        uint32_t bits;
        memcpy(&bits, &brain, sizeof(bits));
        bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
        CHECK(sums[count - 1] == total, "%a, not %a", (double)sums[count - 1], (double)total);
        CHECK(narrow[count - 1] == bits, "%#x, not %#x", narrow[count - 1], bits);
        CHECK_OK(rota_op_free(op, rank->comm));
    }
    /* C15: a NaN stays one. */
    uint16_t one = 0x3f80, result = 0;
    CHECK_OK(rota_op_create_pre_mul_sum(&nan, ROTA_FLOAT32, rank->comm, &bad));
    CHECK_OK(rota_all_reduce(&one, &result, 1, ROTA_BFLOAT16, bad, rank->comm, NULL));
    CHECK(result == 0x7fc0, "%#x", result);
    int32_t factor = -3, value = rank->rank + 1, product = 0;
    CHECK_OK(rota_op_create_pre_mul_sum(&factor, ROTA_INT32, rank->comm, &op));
    CHECK_OK(rota_all_reduce(&value, &product, 1, ROTA_INT32, op, rank->comm, NULL));
    CHECK(product == -18, "%d", product);
    CHECK_STATUS(rota_all_reduce(&value, &product, 1, ROTA_UINT32, op, rank->comm, NULL),
                 ROTA_ERR_ARGUMENT);
}

static void scalars_multiply_before_the_sum(void) {
    for (int w = 0; ways[w].name != NULL; w++) {
        if (ways[w].algorithm[0] != '\0') /* a ring has another order */
            continue;
        way_take(&ways[w]);
        ranks_run(3, 30000, premultiplied, NULL);
    }
}

/* -- agreement ----------------------------------------------------------------------------------
 */

struct difference {
    const char *what;
    rota_status expected;
    void (*make)(const struct rank *rank, rota_op *op);
};

static void other_scalar(const struct rank *rank, rota_op *op) {
    float scalar = rank->rank == 0 ? 0.5F : 0.25F;
    CHECK_OK(rota_op_create_pre_mul_sum(&scalar, ROTA_FLOAT32, rank->comm, op));
}
static void other_name(const struct rank *rank, rota_op *op) {
    CHECK_OK(rota_op_create(add_floats, NULL, true, rank->rank == 0 ? "a" : "b", rank->comm, op));
}
static void other_commutativity(const struct rank *rank, rota_op *op) {
    CHECK_OK(rota_op_create(add_floats, NULL, rank->rank == 0, "a", rank->comm, op));
}
static void other_number(const struct rank *rank, rota_op *op) {
    for (int i = 0; i <= rank->rank; i++)
        CHECK_OK(rota_op_create(add_floats, NULL, true, NULL, rank->comm, op));
}
static void other_kind(const struct rank *rank, rota_op *op) {
    *op = ROTA_SUM;
    if (rank->rank == 0)
        CHECK_OK(rota_op_create(add_floats, NULL, true, NULL, rank->comm, op));
}
/* Handles differ, and what was made before; name and commutativity do not. */
static void other_handle(const struct rank *rank, rota_op *op) {
    float scalar = 2;
    if (rank->rank == 0)
        CHECK_OK(rota_op_create_pre_mul_sum(&scalar, ROTA_FLOAT32, rank->comm, op));
    CHECK_OK(rota_op_create(add_floats, NULL, true, "add", rank->comm, op));
}

static const struct difference differences[] = {
    {"scalar", ROTA_ERR_MISMATCH, other_scalar},
    {"name", ROTA_ERR_MISMATCH, other_name},
    {"commutativity", ROTA_ERR_MISMATCH, other_commutativity},
    {"number", ROTA_ERR_MISMATCH, other_number},
    {"kind", ROTA_ERR_MISMATCH, other_kind},
    {"handle", ROTA_OK, other_handle}};

static void disagree(const struct rank *rank) {
    const struct difference *difference = rank->arg;
    float value = 1, sum = 0;
    rota_op op = 0;
    difference->make(rank, &op);
    rota_status status = rota_all_reduce(&value, &sum, 1, ROTA_FLOAT32, op, rank->comm, NULL);
    CHECK(status == difference->expected, "another %s: %s", difference->what,
          rota_status_name(status));
    CHECK(status != ROTA_OK || sum == 2, "sum %f", (double)sum);
}

static void differences_are_found(void) {
    for (int w = 0; w < 3; w += 2) {
        way_take(&ways[w]);
        for (size_t i = 0; i < sizeof(differences) / sizeof(differences[0]); i++)
            ranks_run(2, 5000, disagree, (void *)&differences[i]);
    }
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"terms_keep_the_canonical_tree", terms_keep_the_canonical_tree},
        {"operators_outlive_their_handle", operators_outlive_their_handle},
        {"scalars_multiply_before_the_sum", scalars_multiply_before_the_sum},
        {"differences_are_found", differences_are_found},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
