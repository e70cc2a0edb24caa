/* Operators that callers create. */
#include "engine/operators.h"

#include "base/error.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Bits of a handle; the rest counts. */
#define CREATED UINT32_C(0x80000000)
#define PRE_MUL_SUM UINT32_C(0x40000000)

/* As the public header says. */
#define NAME_MAX_BYTES 31

void operators_init(struct operators *all) {
    *all = (struct operators){0};
    pthread_mutex_init(&all->lock, NULL);
}

void operators_destroy(struct operators *all) {
    pthread_mutex_destroy(&all->lock);
    free(all->entries);
}

bool operator_is_created(rota_op op) {
    return (op & CREATED) != 0;
}

const char *operator_text(rota_op op) {
    const char *name = rota_op_name(op);
    return name != NULL ? name : op & PRE_MUL_SUM ? "pre_mul_sum" : "user";
}

static rota_op next_handle(enum reduce_form form) {
    static atomic_uint made; /* of the process; nothing else is ordered by it */
    uint32_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
    return CREATED | (form == REDUCE_PRE_MUL_SUM ? PRE_MUL_SUM : 0) | (number & (PRE_MUL_SUM - 1));
}

/* With the lock. */
static rota_status append(struct operators *all, const struct operator_entry *entry, rota_op *op) {
    if (all->count == all->room) {
        size_t room = all->room > 0 ? 2 * all->room : 4;
        struct operator_entry *grown = realloc(all->entries, room * sizeof(*grown));
        if (grown == NULL)
            return error_raise(ROTA_ERR_MEMORY, "out of memory for an operator");
        all->entries = grown;
        all->room = room;
    }
    struct operator_entry *added = &all->entries[all->count++];
    *added = *entry;
    added->handle = next_handle(entry->form);
    *op = added->handle;
    return ROTA_OK;
}

rota_status operators_add_user(struct operators *all, rota_op_fn function, void *arg,
                               bool commutative, const char *name, rota_op *op) {
    size_t length = name != NULL ? strnlen(name, NAME_MAX_BYTES + 1) : 0;
    if (name != NULL && (length == 0 || length > NAME_MAX_BYTES))
        return error_raise(ROTA_ERR_ARGUMENT, "name: expected 1 to %d bytes, or NULL",
                           NAME_MAX_BYTES);
    struct operator_entry entry = {
        .form = REDUCE_USER, .commutative = commutative, .function = function, .arg = arg};
    pthread_mutex_lock(&all->lock);
    uint64_t number = all->nameless;
    entry.identity = name != NULL ? XXH3_64bits_withSeed(name, length, 2 + commutative)
                                  : XXH3_64bits_withSeed(&number, sizeof(number), commutative);
    rota_status status = append(all, &entry, op);
    if (status == ROTA_OK)
        all->nameless += name == NULL;
    pthread_mutex_unlock(&all->lock);
    return status;
}

rota_status operators_add_pre_mul_sum(struct operators *all, const void *scalar, rota_dtype dtype,
                                      rota_op *op) {
    struct operator_entry entry = {.form = REDUCE_PRE_MUL_SUM, .dtype = dtype};
    struct reduce_spec spec; /* what it can be used for at all */
    rota_status status = reduce_spec_init_pre_mul_sum(&spec, dtype, scalar, dtype, 1, CPU_SCALAR);
    if (status != ROTA_OK)
        return status;
    memcpy(entry.scalar, scalar, rota_dtype_size(dtype));
    entry.identity =
        XXH3_64bits_withSeed(entry.scalar, sizeof(entry.scalar), UINT64_C(1) << 32 | dtype);
    pthread_mutex_lock(&all->lock);
    status = append(all, &entry, op);
    pthread_mutex_unlock(&all->lock);
    return status;
}

/* With the lock. */
static struct operator_entry *find(struct operators *all, rota_op op) {
    for (size_t i = 0; i < all->count; i++)
        if (all->entries[i].handle == op)
            return &all->entries[i];
    return NULL;
}

bool operators_remove(struct operators *all, rota_op op) {
    pthread_mutex_lock(&all->lock);
    struct operator_entry *entry = find(all, op);
    bool found = entry != NULL;
    if (found)
        *entry = all->entries[--all->count];
    pthread_mutex_unlock(&all->lock);
    return found;
}

rota_status operators_spec(struct operators *all, rota_dtype dtype, rota_op op, int nranks,
                           enum cpu_isa isa, struct reduce_spec *spec, uint64_t *identity) {
    struct operator_entry entry;
    pthread_mutex_lock(&all->lock);
    const struct operator_entry *found = find(all, op);
    if (found != NULL)
        entry = *found;
    pthread_mutex_unlock(&all->lock);
    if (found == NULL)
        return error_raise(ROTA_ERR_ARGUMENT,
                           "op is %#x, which is no operator of this communicator", op);
    *identity = entry.identity;
    rota_status status =
        entry.form == REDUCE_PRE_MUL_SUM
            ? reduce_spec_init_pre_mul_sum(spec, dtype, entry.scalar, entry.dtype, nranks, isa)
            : reduce_spec_init_user(spec, dtype, entry.function, entry.arg, entry.commutative, isa);
    if (status == ROTA_OK)
        spec->op = op;
    return status;
}
