/* Mock device memory.
 *
 * An allocation is a memfd mapped twice: the view that callers hold is PROT_NONE, so that touching
 * it by mistake ends the test, and an alias is what the worker thread reads and writes. Copies and
 * reductions are put into a list with a due time drawn from a seeded generator; the worker always
 * takes the one due first, so they complete out of order as on a device with several queues.
 *
 * Invariant: every range named by an operation in the list or in the worker's hands has its count
 * of users raised, and a range is unmapped only at zero. One lock guards everything; the worker
 * holds it except while it moves bytes and while it notifies. */
#include "base/clock.h"
#include "base/error.h"
#include "memory/memory.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct range {
    struct range *next;
    char *view;  /* what callers hold */
    char *alias; /* the same pages, readable and writable */
    size_t bytes, mapped_bytes;
    size_t users; /* pointers into it in operations that have not ended */
};

/* A pointer of a caller, and the range that it lies in (NULL: host memory). */
struct place {
    char *pointer;
    struct range *range;
};

struct operation {
    struct operation *next;
    int64_t due_ns;
    struct memory_ticket *ticket;
    struct reduce_spec spec;
    size_t noperands; /* 0: a copy of `count` bytes from `source` */
    size_t count;
    bool finish;
    struct place dst, source;
    struct place *places; /* of the operands; in the same allocation, after them */
    struct reduce_operand operands[];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t work;  /* the worker waits: a new operation, or stop */
    pthread_cond_t ended; /* free waits: an operation has let go of its ranges */
    pthread_t thread;
    bool running, stopping, conditions_ready;
    struct range *ranges;
    struct operation *operations;
    uint64_t random;
    unsigned delay_us;
    uint64_t completed;
} mock = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Ranges in the table: while 0, identify needs no lock. */
static _Atomic size_t range_count;

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t next_random(void) {
    uint64_t z = mock.random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static struct range *find_range(const void *pointer) {
    for (struct range *range = mock.ranges; range; range = range->next) {
        uintptr_t offset = (uintptr_t)pointer - (uintptr_t)range->view;
        if (offset < range->bytes)
            return range;
    }
    return NULL;
}

/* Where the worker finds a caller's bytes. False when they begin inside a range and end outside. */
static bool translate(const void *pointer, size_t bytes, struct place *place) {
    struct range *range = find_range(pointer);
    if (!range) {
        *place = (struct place){.pointer = (char *)(uintptr_t)pointer};
        return true;
    }
    size_t offset = (size_t)((const char *)pointer - range->view);
    if (bytes > range->bytes - offset)
        return false;
    *place = (struct place){range->alias + offset, range};
    return true;
}

static void hold(const struct place *place) {
    if (place->range)
        place->range->users++;
}

static void let_go(const struct place *place) {
    if (place->range)
        place->range->users--;
}

static void let_go_all(const struct operation *operation) {
    let_go(&operation->dst);
    let_go(&operation->source);
    for (size_t i = 0; i < operation->noperands; i++)
        let_go(&operation->places[i]);
}

static void hold_all(const struct operation *operation) {
    hold(&operation->dst);
    hold(&operation->source);
    for (size_t i = 0; i < operation->noperands; i++)
        hold(&operation->places[i]);
}

/* The worker. */

static struct operation **first_due(void) {
    struct operation **first = &mock.operations;
    for (struct operation **at = first; *at; at = &(*at)->next)
        if ((*at)->due_ns < (*first)->due_ns)
            first = at;
    return first;
}

/* Takes the operation that is due, waiting for one; NULL when stopped and nothing is left. What is
 * left at the stop is due at once. */
static struct operation *take_operation(void) {
    for (;;) {
        struct operation **first = first_due();
        if (!*first) {
            if (mock.stopping)
                return NULL;
            pthread_cond_wait(&mock.work, &mock.lock);
            continue;
        }
        struct operation *operation = *first;
        if (mock.stopping || clock_passed(operation->due_ns)) {
            *first = operation->next;
            return operation;
        }
        struct timespec until = {.tv_sec = (time_t)(operation->due_ns / 1000000000),
                                 .tv_nsec = (long)(operation->due_ns % 1000000000)};
        pthread_cond_timedwait(&mock.work, &mock.lock, &until);
    }
}

static void perform(const struct operation *operation) {
    if (operation->noperands)
        reduce_run(&operation->spec, operation->dst.pointer, operation->finish, operation->operands,
                   operation->noperands, operation->count);
    else
        memmove(operation->dst.pointer, operation->source.pointer, operation->count);
}

static void *work(void *arg) {
    (void)arg;
    pthread_mutex_lock(&mock.lock);
    for (struct operation *operation; (operation = take_operation());) {
        pthread_mutex_unlock(&mock.lock);
        perform(operation);
        struct memory_ticket *ticket = operation->ticket;
        pthread_mutex_lock(&mock.lock);
        let_go_all(operation);
        mock.completed++;
        pthread_cond_broadcast(&mock.ended);
        pthread_mutex_unlock(&mock.lock);
        free(operation);
        /* Read first: without a notification the ticket may be gone after the store. */
        void (*notify)(struct memory_ticket *) = ticket->notify;
        /* Partner: the acquire load of whoever polls the ticket; it then sees the bytes. */
        atomic_store_explicit(&ticket->state, 1, memory_order_release);
        if (notify)
            notify(ticket);
        pthread_mutex_lock(&mock.lock);
    }
    pthread_mutex_unlock(&mock.lock);
    return NULL;
}

/* Starts an operation whose places are translated; false when the worker is not there. */
static bool submit(struct operation *operation) {
    if (!mock.running || mock.stopping)
        return false;
    hold_all(operation);
    uint64_t delay_ns = 1000 * (next_random() % ((uint64_t)mock.delay_us + 1));
    operation->due_ns = clock_now_ns() + (int64_t)delay_ns;
    atomic_store_explicit(&operation->ticket->state, 0, memory_order_relaxed);
    operation->next = mock.operations;
    mock.operations = operation;
    pthread_cond_signal(&mock.work);
    return true;
}

/* The kind. */

static bool mock_identify(const void *pointer, size_t bytes) {
    (void)bytes;
    /* A thread that knows of a range was told of it by the one that allocated it, so it sees at
     * least that range's count. */
    if (atomic_load_explicit(&range_count, memory_order_relaxed) == 0)
        return false;
    pthread_mutex_lock(&mock.lock);
    bool found = find_range(pointer) != NULL;
    pthread_mutex_unlock(&mock.lock);
    return found;
}

static enum memory_result mock_copy(void *dst, const void *src, size_t bytes,
                                    struct memory_ticket *ticket) {
    if (bytes == 0)
        return MEMORY_DONE;
    struct operation *operation = calloc(1, sizeof(*operation));
    if (!ticket || !operation) {
        free(operation);
        return MEMORY_FAILED;
    }
    operation->ticket = ticket;
    operation->count = bytes;
    pthread_mutex_lock(&mock.lock);
    bool submitted = translate(dst, bytes, &operation->dst) &&
                     translate(src, bytes, &operation->source) && submit(operation);
    pthread_mutex_unlock(&mock.lock);
    if (submitted)
        return MEMORY_PENDING;
    free(operation);
    return MEMORY_FAILED;
}

static struct operation *new_reduction(const struct reduce_spec *spec,
                                       const struct reduce_operand *operands, size_t noperands) {
    const size_t per_operand = sizeof(struct reduce_operand) + sizeof(struct place);
    if (noperands == 0 || noperands > (SIZE_MAX - sizeof(struct operation)) / per_operand)
        return NULL;
    struct operation *operation = calloc(1, sizeof(*operation) + noperands * per_operand);
    if (!operation)
        return NULL;
    operation->spec = *spec;
    operation->noperands = noperands;
    memcpy(operation->operands, operands, noperands * sizeof(*operands));
    operation->places = (struct place *)(void *)(operation->operands + noperands);
    return operation;
}

static bool translate_operands(struct operation *operation) {
    const struct reduce_spec *spec = &operation->spec;
    for (size_t i = 0; i < operation->noperands; i++) {
        struct reduce_operand *operand = &operation->operands[i];
        size_t size = operand->partial ? spec->partial_size : spec->element_size;
        if (!translate(operand->data, operation->count * size, &operation->places[i]))
            return false;
        operand->data = operation->places[i].pointer;
    }
    return true;
}

static enum memory_result mock_reduce(const struct reduce_spec *spec, void *dst, bool finish,
                                      const struct reduce_operand *operands, size_t noperands,
                                      size_t count, struct memory_ticket *ticket) {
    if (count == 0)
        return MEMORY_DONE;
    if (!ticket || count > SIZE_MAX / sizeof(uint64_t))
        return MEMORY_FAILED;
    struct operation *operation = new_reduction(spec, operands, noperands);
    if (!operation)
        return MEMORY_FAILED;
    operation->ticket = ticket;
    operation->count = count;
    operation->finish = finish;
    size_t dst_size = finish ? spec->element_size : spec->partial_size;
    pthread_mutex_lock(&mock.lock);
    bool submitted = translate(dst, count * dst_size, &operation->dst) &&
                     translate_operands(operation) && submit(operation);
    pthread_mutex_unlock(&mock.lock);
    if (submitted)
        return MEMORY_PENDING;
    free(operation);
    return MEMORY_FAILED;
}

static bool map_range(struct range *range) {
    int descriptor = memfd_create("rota-mock", MFD_CLOEXEC);
    if (descriptor < 0)
        return false;
    void *view = MAP_FAILED, *alias = MAP_FAILED;
    if (ftruncate(descriptor, (off_t)range->mapped_bytes) == 0) {
        view = mmap(NULL, range->mapped_bytes, PROT_NONE, MAP_SHARED, descriptor, 0);
        alias = mmap(NULL, range->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    }
    close(descriptor);
    if (view != MAP_FAILED && alias != MAP_FAILED) {
        range->view = view;
        range->alias = alias;
        return true;
    }
    if (view != MAP_FAILED)
        munmap(view, range->mapped_bytes);
    if (alias != MAP_FAILED)
        munmap(alias, range->mapped_bytes);
    return false;
}

static void destroy_range(struct range *range) {
    munmap(range->view, range->mapped_bytes);
    munmap(range->alias, range->mapped_bytes);
    free(range);
}

static void *mock_allocate(size_t bytes) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    struct range *range = calloc(1, sizeof(*range));
    if (!range || bytes > (size_t)PTRDIFF_MAX - page)
        goto fail;
    range->bytes = bytes ? bytes : 1;
    range->mapped_bytes = (range->bytes + page - 1) / page * page;
    if (!map_range(range))
        goto fail;
    pthread_mutex_lock(&mock.lock);
    bool running = mock.running && !mock.stopping;
    if (running) {
        range->next = mock.ranges;
        mock.ranges = range;
        atomic_fetch_add_explicit(&range_count, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&mock.lock);
    if (running)
        return range->view;
    destroy_range(range);
    return NULL;
fail:
    free(range);
    return NULL;
}

/* Takes a range out of the table and returns it once no operation uses it. */
static struct range *detach_range(const void *view) {
    struct range **at = &mock.ranges;
    while (*at && (*at)->view != view)
        at = &(*at)->next;
    struct range *range = *at;
    if (!range)
        return NULL;
    *at = range->next;
    atomic_fetch_sub_explicit(&range_count, 1, memory_order_relaxed);
    while (range->users)
        pthread_cond_wait(&mock.ended, &mock.lock);
    return range;
}

/* Waits for the operations that use the memory, as devices' free does. */
static void mock_free(void *pointer) {
    pthread_mutex_lock(&mock.lock);
    struct range *range = pointer ? detach_range(pointer) : NULL;
    pthread_mutex_unlock(&mock.lock);
    if (range)
        destroy_range(range);
}

const struct memory_kind memory_mock = {
    .name = "mock",
    .id = 1,
    .host_readable = false,
    .identify = mock_identify,
    .copy = mock_copy,
    .reduce = mock_reduce,
    .allocate = mock_allocate,
    .free = mock_free,
};

/* Start and stop. */

/* The conditions live as long as the process: another thread may still be leaving a wait. */
static int prepare_conditions(void) {
    if (mock.conditions_ready)
        return 0;
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);
    if (error)
        return error;
    error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (!error)
        error = pthread_cond_init(&mock.work, &attributes);
    if (!error)
        error = pthread_cond_init(&mock.ended, &attributes);
    pthread_condattr_destroy(&attributes);
    mock.conditions_ready = !error;
    return error;
}

/* The thread inherits a mask that blocks all signals; the caller's is as before when this
 * returns. */
static int start_thread(void) {
    sigset_t all, before;
    sigfillset(&all);
    int error = pthread_sigmask(SIG_SETMASK, &all, &before);
    if (error)
        return error;
    error = pthread_create(&mock.thread, NULL, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

rota_status memory_mock_start(uint64_t seed, unsigned delay_us) {
    rota_status status = memory_kind_register(&memory_mock);
    if (status != ROTA_OK)
        return status;
    pthread_mutex_lock(&mock.lock);
    if (mock.running) {
        pthread_mutex_unlock(&mock.lock);
        return error_raise(ROTA_ERR_STATE, "mock memory is started already");
    }
    int error = prepare_conditions();
    if (!error) {
        mock.random = seed;
        mock.delay_us = delay_us;
        mock.completed = 0;
        error = start_thread();
    }
    mock.running = !error;
    pthread_mutex_unlock(&mock.lock);
    return error ? error_raise_system(error, "mock memory: cannot start its thread") : ROTA_OK;
}

void memory_mock_stop(void) {
    pthread_mutex_lock(&mock.lock);
    if (!mock.running || mock.stopping) {
        pthread_mutex_unlock(&mock.lock);
        return;
    }
    mock.stopping = true;
    pthread_cond_signal(&mock.work);
    pthread_mutex_unlock(&mock.lock);
    pthread_join(mock.thread, NULL);

    pthread_mutex_lock(&mock.lock);
    struct range *ranges = mock.ranges;
    mock.ranges = NULL;
    atomic_store_explicit(&range_count, 0, memory_order_relaxed);
    mock.running = mock.stopping = false;
    pthread_mutex_unlock(&mock.lock);
    while (ranges) {
        struct range *next = ranges->next;
        destroy_range(ranges);
        ranges = next;
    }
}

/* Copies now. A stray pointer is a bug of the test that passes it. */
static void copy_now(void *host, const void *pointer, size_t bytes, bool write) {
    if (bytes == 0)
        return;
    struct place place;
    pthread_mutex_lock(&mock.lock);
    if (!translate(pointer, bytes, &place) || !place.range)
        abort();
    if (write)
        memcpy(place.pointer, host, bytes);
    else
        memcpy(host, place.pointer, bytes);
    pthread_mutex_unlock(&mock.lock);
}

void memory_mock_write(void *pointer, const void *host, size_t bytes) {
    copy_now((void *)(uintptr_t)host, pointer, bytes, true);
}

void memory_mock_read(void *host, const void *pointer, size_t bytes) {
    copy_now(host, pointer, bytes, false);
}

uint64_t memory_mock_operations(void) {
    pthread_mutex_lock(&mock.lock);
    uint64_t completed = mock.completed;
    pthread_mutex_unlock(&mock.lock);
    return completed;
}
