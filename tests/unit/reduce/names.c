/* Names of types, operators and kinds, and what is no name. */
#include <criterion/criterion.h>
#include <rota/types.h>
#include <stdlib.h>
#include <string.h>

Test(names, round_trip) {
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        rota_dtype parsed = 99;
        cr_assert_eq(rota_dtype_parse(rota_dtype_name(dtype), &parsed), ROTA_OK);
        cr_assert_eq(parsed, dtype);
    }
    for (rota_op op = 0; op < ROTA_OP_COUNT; op++) {
        rota_op parsed = 99;
        cr_assert_eq(rota_op_parse(rota_op_name(op), &parsed), ROTA_OK);
        cr_assert_eq(parsed, op);
    }
    for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
        rota_kind parsed = ROTA_KIND_COUNT;
        cr_assert_eq(rota_kind_parse(rota_kind_name((rota_kind)kind), &parsed), ROTA_OK);
        cr_assert_eq((int)parsed, kind);
    }
}

Test(names, sizes) {
    const size_t sizes[ROTA_DTYPE_COUNT] = {1, 1, 2, 2, 4,  4, 8, 8,  2, 2, 4,
                                            8, 1, 1, 8, 16, 1, 8, 16, 8, 16};
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++)
        cr_assert_eq(rota_dtype_size(dtype), sizes[dtype]);
    cr_assert_eq(rota_dtype_size(ROTA_DTYPE_COUNT), 0);
    cr_assert_eq(rota_dtype_size(UINT32_MAX), 0);
}

Test(names, alignments) {
    cr_assert_eq(rota_dtype_alignment(ROTA_FLOAT8_E4M3), 1);
    cr_assert_eq(rota_dtype_alignment(ROTA_COMPLEX64), sizeof(float));
    cr_assert_eq(rota_dtype_alignment(ROTA_COMPLEX128), sizeof(double));
    cr_assert_eq(rota_dtype_alignment(ROTA_FLOAT32_INT32), _Alignof(rota_float32_int32));
    cr_assert_eq(rota_dtype_alignment(ROTA_FLOAT64_INT32), _Alignof(rota_float64_int32));
    cr_assert_eq(rota_dtype_alignment(ROTA_DTYPE_COUNT), 0);
}

Test(names, opaque_types) {
    for (size_t size = 1; size <= ROTA_DTYPE_BYTES_MAX; size++) {
        rota_dtype dtype = rota_dtype_bytes(size);
        cr_assert_eq(rota_dtype_size(dtype), size);
        cr_assert_eq(rota_dtype_alignment(dtype), 1);
        cr_assert_str_eq(rota_dtype_name(dtype), "bytes");
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++)
            cr_assert_not(rota_op_accepts(op, dtype));
    }
    const size_t refused[] = {0, ROTA_DTYPE_BYTES_MAX + 1, (size_t)1 << 31, (size_t)1 << 32,
                              SIZE_MAX};
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        cr_assert_eq(rota_dtype_size(rota_dtype_bytes(refused[i])), 0);
        cr_assert_eq(rota_dtype_alignment(rota_dtype_bytes(refused[i])), 0);
        cr_assert_null(rota_dtype_name(rota_dtype_bytes(refused[i])));
    }
}

/* What means something, as a picture: one row per type, one letter per operator. */
Test(names, accepted) {
    static const char *const integers = "xxxxxxxxxxx..", *const reals = "xxxxx........",
                             *const complexes = "xx..x........", *const truths = "xxxx.xxxxxx..",
                             *const pairs = "...........xx";
    for (rota_dtype dtype = 0; dtype < ROTA_DTYPE_COUNT; dtype++) {
        const char *row = dtype <= ROTA_UINT64                                  ? integers
                          : dtype <= ROTA_FLOAT8_E5M2                           ? reals
                          : dtype == ROTA_COMPLEX64 || dtype == ROTA_COMPLEX128 ? complexes
                          : dtype == ROTA_BOOL                                  ? truths
                                                                                : pairs;
        for (rota_op op = 0; op < ROTA_OP_COUNT; op++)
            cr_assert_eq(rota_op_accepts(op, dtype), row[op] == 'x', "%s of %s", rota_op_name(op),
                         rota_dtype_name(dtype));
    }
    cr_assert_not(rota_op_accepts(ROTA_OP_COUNT, ROTA_FLOAT32));
    cr_assert_not(rota_op_accepts(ROTA_SUM, ROTA_DTYPE_COUNT));
}

Test(names, no_such_number) {
    cr_assert_null(rota_dtype_name(ROTA_DTYPE_COUNT));
    cr_assert_null(rota_dtype_name(UINT32_MAX));
    cr_assert_null(rota_op_name(ROTA_OP_COUNT));
    cr_assert_null(rota_op_name(UINT32_MAX));
    cr_assert_null(rota_kind_name(ROTA_KIND_COUNT));
    cr_assert_null(rota_kind_name((rota_kind)-1));
}

Test(names, other_spellings) {
    const struct {
        const char *name;
        rota_dtype dtype;
    } dtypes[] = {{"half", ROTA_FLOAT16},     {"float", ROTA_FLOAT32}, {"double", ROTA_FLOAT64},
                  {"int8", ROTA_INT8},        {"uint8", ROTA_UINT8},   {"int32", ROTA_INT32},
                  {"uint32", ROTA_UINT32},    {"int64", ROTA_INT64},   {"uint64", ROTA_UINT64},
                  {"bfloat16", ROTA_BFLOAT16}};
    for (size_t i = 0; i < sizeof(dtypes) / sizeof(dtypes[0]); i++) {
        rota_dtype parsed = 99;
        cr_assert_eq(rota_dtype_parse(dtypes[i].name, &parsed), ROTA_OK, "%s", dtypes[i].name);
        cr_assert_eq(parsed, dtypes[i].dtype, "%s", dtypes[i].name);
    }
    const struct {
        const char *name;
        rota_kind kind;
    } kinds[] = {{"allreduce", ROTA_KIND_ALL_REDUCE},
                 {"allgather", ROTA_KIND_ALL_GATHER},
                 {"alltoall", ROTA_KIND_ALL_TO_ALL},
                 {"reducescatter", ROTA_KIND_REDUCE_SCATTER},
                 {"exscan", ROTA_KIND_EXCLUSIVE_SCAN}};
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        rota_kind parsed = ROTA_KIND_COUNT;
        cr_assert_eq(rota_kind_parse(kinds[i].name, &parsed), ROTA_OK, "%s", kinds[i].name);
        cr_assert_eq(parsed, kinds[i].kind, "%s", kinds[i].name);
    }
}

static void check_refused(const char *name) {
    rota_dtype dtype = 77;
    rota_op op = 77;
    rota_kind kind = ROTA_KIND_BARRIER;
    cr_assert_eq(rota_dtype_parse(name, &dtype), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_op_parse(name, &op), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_kind_parse(name, &kind), ROTA_ERR_ARGUMENT);
    cr_assert_eq(dtype, 77);
    cr_assert_eq(op, 77);
    cr_assert_eq(kind, ROTA_KIND_BARRIER);
}

Test(names, refused) {
    const char *const names[] = {NULL,   "",       " ",        "float ", " float",     "FLOAT32",
                                 "sum,", "float3", "float324", "%n%s",   "\xff\xfe\n", "all_reduc"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        check_refused(names[i]);
    char *endless = malloc(65537);
    cr_assert_not_null(endless);
    memset(endless, 'A', 65536);
    endless[65536] = '\0';
    check_refused(endless);
    free(endless);
    cr_assert_eq(rota_dtype_parse("float", NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_op_parse("sum", NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_kind_parse("barrier", NULL), ROTA_ERR_ARGUMENT);
}

Test(names, message_is_printable) {
    rota_dtype dtype;
    cr_assert_eq(rota_dtype_parse("\x1b[2J evil", &dtype), ROTA_ERR_ARGUMENT);
    rota_error error = ROTA_ERROR_INIT;
    cr_assert_eq(rota_last_error(&error), ROTA_OK);
    cr_assert_not_null(strstr(error.message, "?[2J evil"), "%s", error.message);
}
