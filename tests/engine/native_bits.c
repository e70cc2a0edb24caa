/* Native forms hold the bits of the schedules that they equal: random floating-point inputs over
 * ten binades, whose sum depends on the order, by a form and by its schedule. */
#include "ranks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static double value(uint64_t *seed) {
    double mantissa = (double)draw(seed) / 2147483648.0 + 0.5;
    int exponent = (int)(draw(seed) % 10) - 5;
    return (draw(seed) & 1 ? -1 : 1) * ldexp(mantissa, exponent);
}

/* Writes `count` elements of a type; the narrow ones by the upper bits of a float, so that bfloat16
 * gets ten binades and float16 some bit patterns of its own. */
static void fill(void *to, rota_dtype dtype, size_t count, int rank) {
    uint64_t seed = 77u + (uint64_t)rank * 1315423911u + dtype;
    for (size_t i = 0; i < count; i++) {
        double exact = value(&seed);
        float single = (float)exact;
        uint32_t bits;
        memcpy(&bits, &single, sizeof(bits));
        if (dtype == ROTA_FLOAT64)
            ((double *)to)[i] = exact;
        else if (dtype == ROTA_FLOAT32)
            ((float *)to)[i] = single;
        else if (dtype == ROTA_BFLOAT16)
            ((uint16_t *)to)[i] = (uint16_t)(bits >> 16);
        else /* sign, exponents 10 to 20, any fraction */
            ((uint16_t *)to)[i] =
                (uint16_t)((bits >> 31) << 15 | (10 + draw(&seed) % 10) << 10 | (bits & 0x3ff));
    }
}

struct form {
    rota_kind kind;
    const char *name, *schedule;
    size_t bytes; /* of a block: a size at which the form is taken on 2 to 5 ranks */
};
static const struct form forms[] = {
    {ROTA_KIND_ALL_REDUCE, "shm-inline", "direct", 40},
    {ROTA_KIND_ALL_REDUCE, "shm-one-shot", "direct", 4000},
    {ROTA_KIND_ALL_REDUCE, "shm-two-shot", "direct_two_shot", 600014},
    {ROTA_KIND_REDUCE_SCATTER, "shm-inline", "direct", 8},
    {ROTA_KIND_REDUCE_SCATTER, "shm-one-shot", "direct", 4000},
    {ROTA_KIND_REDUCE_SCATTER, "shm-staged", "direct", 300014},
    {ROTA_KIND_REDUCE, "shm-inline", "direct", 40},
    {ROTA_KIND_REDUCE, "shm-one-shot", "direct", 4000},
    {ROTA_KIND_REDUCE, "shm-staged", "direct", 600014}};

static void reduce(const struct rank *rank, const struct form *form, const void *send, void *recv,
                   size_t count, rota_dtype dtype, rota_op op, const rota_call *call) {
    if (form->kind == ROTA_KIND_ALL_REDUCE)
        CHECK_OK(rota_all_reduce(send, recv, count, dtype, op, rank->comm, call));
    else if (form->kind == ROTA_KIND_REDUCE_SCATTER)
        CHECK_OK(rota_reduce_scatter(send, recv, count, dtype, op, rank->comm, call));
    else
        CHECK_OK(rota_reduce(send, recv, count, dtype, op, rank->nranks - 1, rank->comm, call));
}

static void compare(const struct rank *rank, const struct form *form, rota_dtype dtype,
                    rota_op op) {
    size_t size = rota_dtype_size(dtype), count = form->bytes / size;
    size_t blocks = form->kind == ROTA_KIND_REDUCE_SCATTER ? (size_t)rank->nranks : 1;
    unsigned char *send = malloc(blocks * count * size), *native = calloc(count, size),
                  *scheduled = calloc(count, size);
    fill(send, dtype, blocks * count, rank->rank);
    rota_call call = ROTA_CALL_INIT;
    const char *ran = NULL;
    reduce(rank, form, send, native, count, dtype, op, NULL);
    ran = rota_comm_algorithm(rank->comm, form->kind);
    CHECK(ran != NULL && strcmp(ran, form->name) == 0, "%s ran, expected %s",
          ran != NULL ? ran : "nothing", form->name);
    call.algorithm = form->schedule;
    reduce(rank, form, send, scheduled, count, dtype, op, &call);
    CHECK(memcmp(native, scheduled, count * size) == 0, "%s of %s and %s differ (%s %s, %zu)",
          form->name, rota_kind_name(form->kind), form->schedule, rota_dtype_name(dtype),
          rota_op_name(op), count);
    free(send);
    free(native);
    free(scheduled);
}

static void all_types(const struct rank *rank) {
    static const rota_dtype dtypes[] = {ROTA_FLOAT16, ROTA_BFLOAT16, ROTA_FLOAT32, ROTA_FLOAT64};
    for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++)
        for (size_t d = 0; d < sizeof(dtypes) / sizeof(dtypes[0]); d++)
            for (rota_op op = 0; op <= ROTA_AVG; op++)
                compare(rank, &forms[f], dtypes[d], op);
}

static void forms_equal_their_schedules(void) {
    way_take(&ways[0]);
    for (int n = 2; n <= 5; n++)
        ranks_run(n, 30000, all_types, NULL);
}

/* By levels too; and so in mode reproducible, where those schedules are taken. */
static void levels(const struct rank *rank) {
    static const struct form levelled[] = {
        {ROTA_KIND_ALL_REDUCE, "shm-one-shot-by-2", "direct", 40},
        {ROTA_KIND_ALL_REDUCE, "shm-one-shot-by-2", "direct", 4000},
        {ROTA_KIND_ALL_REDUCE, "shm-two-shot-by-2", "direct_two_shot", 300014},
        {ROTA_KIND_REDUCE_SCATTER, "shm-staged-by-2", "direct", 8},
        {ROTA_KIND_REDUCE_SCATTER, "shm-staged-by-2", "direct", 60014},
        {ROTA_KIND_REDUCE, "shm-staged-by-2", "direct", 300014}};
    CHECK_OK(rota_comm_set_numerics(rank->comm, ROTA_NUMERICS_REPRODUCIBLE));
    for (size_t f = 0; f < sizeof(levelled) / sizeof(levelled[0]); f++)
        for (rota_op op = 0; op <= ROTA_AVG; op += ROTA_AVG)
            compare(rank, &levelled[f], op == 0 ? ROTA_FLOAT32 : ROTA_BFLOAT16, op);
}

static void levels_equal_schedules(void) {
    way_take(&ways[0]);
    setenv("ROTA_LEVELS", "2", 1);
    for (int n = 4; n <= 7; n += 3)
        ranks_run(n, 30000, levels, NULL);
    unsetenv("ROTA_LEVELS");
}

/* The control: sums of these inputs do depend on the order, so equal bits above say something. */
static void other_tree(const struct rank *rank) {
    enum { COUNT = 5000 };
    float send[COUNT], tree[COUNT], ring[COUNT];
    fill(send, ROTA_FLOAT32, COUNT, rank->rank);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "direct";
    CHECK_OK(rota_all_reduce(send, tree, COUNT, ROTA_FLOAT32, ROTA_SUM, rank->comm, &call));
    call.algorithm = "ring";
    CHECK_OK(rota_all_reduce(send, ring, COUNT, ROTA_FLOAT32, ROTA_SUM, rank->comm, &call));
    CHECK(memcmp(tree, ring, sizeof(tree)) != 0, "a ring and a tree gave the same bits");
}

static void order_matters(void) {
    way_take(&ways[0]);
    ranks_run(5, 30000, other_tree, NULL);
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"forms_equal_their_schedules", forms_equal_their_schedules},
        {"levels_equal_schedules", levels_equal_schedules},
        {"order_matters", order_matters},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
