/* Memory kinds: host memory is one kind; others are registered by whoever brings them. With none
 * registered, identifying a pointer costs one load. */
#ifndef MEMORY_MEMORY_H
#define MEMORY_MEMORY_H

#include "reduce/reduce.h"
#include <stdatomic.h>

enum memory_result { MEMORY_DONE, MEMORY_PENDING, MEMORY_FAILED };

/* Completion of a copy or reduction that returned MEMORY_PENDING. The kind sets `state` (release)
 * when it is done, then calls notify (may be NULL), perhaps from a thread of its own. The ticket
 * must live until then. After MEMORY_DONE or MEMORY_FAILED it is left alone; for host memory it may
 * be NULL. */
struct memory_ticket {
    _Atomic int state; /* 0 pending, 1 done, -1 failed */
    void (*notify)(struct memory_ticket *ticket);
    void *context;
};

struct memory_kind {
    const char *name;
    uint32_t id;        /* 0 host, 1 mock; fits a bit mask */
    bool host_readable; /* the processor may load from and store to it directly */
    bool (*identify)(const void *pointer, size_t bytes);
    enum memory_result (*copy)(void *dst, const void *src, size_t bytes,
                               struct memory_ticket *ticket);
    /* As reduce_run. `operands` is copied before the call returns. dst and operands may be memory
     * of this kind or of the host. */
    enum memory_result (*reduce)(const struct reduce_spec *spec, void *dst, bool finish,
                                 const struct reduce_operand *operands, size_t noperands,
                                 size_t count, struct memory_ticket *ticket);
    void *(*allocate)(size_t bytes); /* page-aligned; NULL when exhausted */
    void (*free)(void *pointer);
    /* Optional: a DMA-buf descriptor of the memory, for adapters, and the offset of `pointer` in
     * it. The caller closes it. False: none for this range. */
    bool (*export_dmabuf)(const void *pointer, size_t bytes, int *descriptor, uint64_t *offset);
};

extern const struct memory_kind memory_host;
extern const struct memory_kind memory_mock;

/* Adds a kind that identify may find; at most 8, for the life of the process; adding one again
 * changes nothing. Errors: ROTA_ERR_ARGUMENT (incomplete, or an id that is taken), ROTA_ERR_MEMORY
 * (table full). Any thread. */
rota_status memory_kind_register(const struct memory_kind *kind);
/* The kind of a buffer; memory_host unless another kind claims it. NULL or 0 bytes is host. */
const struct memory_kind *memory_identify(const void *pointer, size_t bytes);

/* Mock device memory, for tests: pages that the processor cannot touch (PROT_NONE), with an alias
 * that a thread uses; copies and reductions complete later, after seeded delays, in any order.
 * A buffer is mock memory when it begins in an allocation; operations on one that ends outside it
 * fail. Starts the thread and registers the kind. `delay_us` is the longest delay. Errors:
 * ROTA_ERR_STATE (started already), ROTA_ERR_SYSTEM. */
rota_status memory_mock_start(uint64_t seed, unsigned delay_us);
/* Completes what is outstanding without delay, ends the thread and frees all mock memory. */
void memory_mock_stop(void);
/* Copies between mock memory and host memory now, for filling and checking in tests. */
void memory_mock_write(void *mock, const void *host, size_t bytes);
void memory_mock_read(void *host, const void *mock, size_t bytes);
/* Counts of asynchronous copies and reductions so far. */
uint64_t memory_mock_operations(void);

#endif
