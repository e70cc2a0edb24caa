/* Operators that callers create, one table per communicator. A handle is a number that no other
 * operator of the process has, so that one of another communicator is not mistaken for it. */
#ifndef ENGINE_OPERATORS_H
#define ENGINE_OPERATORS_H

#include "reduce/reduce.h"
#include <pthread.h>

struct operator_entry {
    rota_op handle;
    enum reduce_form form;
    uint64_t identity; /* of what all ranks of a call must agree on */
    bool commutative;
    rota_dtype dtype; /* of a premultiplied sum */
    rota_op_fn function;
    void *arg;
    _Alignas(16) unsigned char scalar[16];
};

struct operators {
    pthread_mutex_t lock;
    struct operator_entry *entries;
    size_t count, room;
    uint64_t nameless; /* made so far */
};

void operators_init(struct operators *all);
void operators_destroy(struct operators *all);

/* Any thread. Errors: ROTA_ERR_ARGUMENT, ROTA_ERR_MEMORY. */
rota_status operators_add_user(struct operators *all, rota_op_fn function, void *arg,
                               bool commutative, const char *name, rota_op *op);
rota_status operators_add_pre_mul_sum(struct operators *all, const void *scalar, rota_dtype dtype,
                                      rota_op *op);
/* False: there is no such operator here. */
bool operators_remove(struct operators *all, rota_op op);

/* Makes the spec of an operator that was created, and what all ranks must agree on of it. Any
 * thread. Errors: ROTA_ERR_ARGUMENT (no such operator, or it does not take the type). */
rota_status operators_spec(struct operators *all, rota_dtype dtype, rota_op op, int nranks,
                           enum cpu_isa isa, struct reduce_spec *spec, uint64_t *identity);

/* Whether a number is the handle of an operator that some communicator created. */
bool operator_is_created(rota_op op);
/* For messages: "sum", ..., "pre_mul_sum", "user". */
const char *operator_text(rota_op op);

#endif
