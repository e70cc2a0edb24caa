/* Names and sizes of element types, operators and kinds of collective. Names to parse come from
 * command lines and files, so they are compared whole and never copied. */
#include <rota/types.h>

#include "base/error.h"
#include <string.h>

/* Opaque elements: this bit and their size. */
#define OPAQUE UINT32_C(0x80000000)

static const struct {
    const char *name;
    size_t size, alignment;
} dtypes[ROTA_DTYPE_COUNT] = {
#define DTYPE(name, text, type) [ROTA_##name] = {text, sizeof(type), _Alignof(type)},
#include "dtypes.def"
};

static const char *const ops[ROTA_OP_COUNT] = {
    [ROTA_SUM] = "sum",
    [ROTA_PROD] = "prod",
    [ROTA_MIN] = "min",
    [ROTA_MAX] = "max",
    [ROTA_AVG] = "avg",
    [ROTA_BITWISE_AND] = "bitwise_and",
    [ROTA_BITWISE_OR] = "bitwise_or",
    [ROTA_BITWISE_XOR] = "bitwise_xor",
    [ROTA_LOGICAL_AND] = "logical_and",
    [ROTA_LOGICAL_OR] = "logical_or",
    [ROTA_LOGICAL_XOR] = "logical_xor",
    [ROTA_MINLOC] = "minloc",
    [ROTA_MAXLOC] = "maxloc",
};

static const char *const kinds[ROTA_KIND_COUNT] = {
    [ROTA_KIND_ALL_REDUCE] = "all_reduce",
    [ROTA_KIND_REDUCE] = "reduce",
    [ROTA_KIND_BROADCAST] = "broadcast",
    [ROTA_KIND_ALL_GATHER] = "all_gather",
    [ROTA_KIND_REDUCE_SCATTER] = "reduce_scatter",
    [ROTA_KIND_ALL_TO_ALL] = "all_to_all",
    [ROTA_KIND_BARRIER] = "barrier",
    [ROTA_KIND_SEND] = "send",
    [ROTA_KIND_RECV] = "recv",
    [ROTA_KIND_GATHER] = "gather",
    [ROTA_KIND_SCATTER] = "scatter",
    [ROTA_KIND_SCAN] = "scan",
    [ROTA_KIND_EXCLUSIVE_SCAN] = "exclusive_scan",
};

struct alias {
    const char *name;
    uint32_t value;
};

/* nccl-tests' spellings, where they differ from ours. */
static const struct alias dtype_aliases[] = {
    {"half", ROTA_FLOAT16},       {"float", ROTA_FLOAT32},        {"double", ROTA_FLOAT64},
    {"char", ROTA_INT8},          {"fp16", ROTA_FLOAT16},         {"bf16", ROTA_BFLOAT16},
    {"fp32", ROTA_FLOAT32},       {"fp64", ROTA_FLOAT64},         {"fp8_e4m3", ROTA_FLOAT8_E4M3},
    {"f8e4m3", ROTA_FLOAT8_E4M3}, {"fp8_e5m2", ROTA_FLOAT8_E5M2}, {"f8e5m2", ROTA_FLOAT8_E5M2},
};
static const struct alias kind_aliases[] = {
    {"allreduce", ROTA_KIND_ALL_REDUCE},         {"allgather", ROTA_KIND_ALL_GATHER},
    {"reducescatter", ROTA_KIND_REDUCE_SCATTER}, {"alltoall", ROTA_KIND_ALL_TO_ALL},
    {"exscan", ROTA_KIND_EXCLUSIVE_SCAN},
};

rota_dtype rota_dtype_bytes(size_t size) {
    return size > 0 && size <= ROTA_DTYPE_BYTES_MAX ? OPAQUE | (uint32_t)size : UINT32_MAX;
}

/* Size of an opaque element, 0 where the type is none. */
static size_t opaque_size(rota_dtype dtype) {
    size_t size = dtype & ~OPAQUE;
    return dtype & OPAQUE && size <= ROTA_DTYPE_BYTES_MAX ? size : 0;
}

size_t rota_dtype_size(rota_dtype dtype) {
    return dtype < ROTA_DTYPE_COUNT ? dtypes[dtype].size : opaque_size(dtype);
}

size_t rota_dtype_alignment(rota_dtype dtype) {
    return dtype < ROTA_DTYPE_COUNT ? dtypes[dtype].alignment : opaque_size(dtype) > 0;
}

const char *rota_dtype_name(rota_dtype dtype) {
    return dtype < ROTA_DTYPE_COUNT ? dtypes[dtype].name : opaque_size(dtype) > 0 ? "bytes" : NULL;
}

const char *rota_op_name(rota_op op) {
    return op < ROTA_OP_COUNT ? ops[op] : NULL;
}

const char *rota_numerics_name(rota_numerics numerics) {
    static const char *const names[] = {"default", "equal", "reproducible", "fast"};
    return (unsigned)numerics < sizeof(names) / sizeof(names[0]) ? names[numerics] : NULL;
}

const char *rota_kind_name(rota_kind kind) {
    return (unsigned)kind < ROTA_KIND_COUNT ? kinds[kind] : NULL;
}

/* Longest part of an unknown name that a message repeats. */
#define SHOWN_CHARACTERS 32

static rota_status unknown(const char *what, const char *name) {
    if (!name)
        return error_raise(ROTA_ERR_ARGUMENT, "%s: no name given", what);
    char shown[SHOWN_CHARACTERS + 1];
    size_t n = strnlen(name, SHOWN_CHARACTERS);
    for (size_t i = 0; i < n; i++)
        shown[i] = name[i] >= ' ' && name[i] <= '~' ? name[i] : '?';
    shown[n] = '\0';
    return error_raise(ROTA_ERR_ARGUMENT, "unknown %s \"%s\"", what, shown);
}

static bool find_alias(const char *name, const struct alias *aliases, size_t count,
                       uint32_t *value) {
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, aliases[i].name) == 0) {
            *value = aliases[i].value;
            return true;
        }
    }
    return false;
}

rota_status rota_dtype_parse(const char *name, rota_dtype *dtype) {
    if (!dtype)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_dtype_parse: dtype is NULL");
    if (!name)
        return unknown("element type", name);
    for (uint32_t i = 0; i < ROTA_DTYPE_COUNT; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            *dtype = i;
            return ROTA_OK;
        }
    }
    if (find_alias(name, dtype_aliases, sizeof(dtype_aliases) / sizeof(dtype_aliases[0]), dtype))
        return ROTA_OK;
    return unknown("element type", name);
}

rota_status rota_op_parse(const char *name, rota_op *op) {
    if (!op)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_op_parse: op is NULL");
    if (!name)
        return unknown("reduction operator", name);
    for (uint32_t i = 0; i < ROTA_OP_COUNT; i++) {
        if (strcmp(name, ops[i]) == 0) {
            *op = i;
            return ROTA_OK;
        }
    }
    return unknown("reduction operator", name);
}

rota_status rota_kind_parse(const char *name, rota_kind *kind) {
    if (!kind)
        return error_raise(ROTA_ERR_ARGUMENT, "rota_kind_parse: kind is NULL");
    if (!name)
        return unknown("kind of operation", name);
    for (int i = 0; i < ROTA_KIND_COUNT; i++) {
        if (strcmp(name, kinds[i]) == 0) {
            *kind = (rota_kind)i;
            return ROTA_OK;
        }
    }
    uint32_t value;
    if (find_alias(name, kind_aliases, sizeof(kind_aliases) / sizeof(kind_aliases[0]), &value)) {
        *kind = (rota_kind)value;
        return ROTA_OK;
    }
    return unknown("kind of operation", name);
}
