/* Mock memory used by several threads at once while others allocate, free and identify: for
 * ThreadSanitizer, and to see that results are right and every ticket completes. */
#include "memory/memory.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define WORKERS 3
#define ROUNDS 200
#define COUNT 300

/* Ends the program with the place of a failed expectation, also in optimised builds. */
#define EXPECT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static _Atomic int notifications;
static _Atomic bool stop_churning;

static void count(struct memory_ticket *ticket) {
    /* Partner: the acquire load of the waiter, which then knows that the ticket is its own. */
    atomic_store_explicit((_Atomic bool *)ticket->context, true, memory_order_release);
    atomic_fetch_add_explicit(&notifications, 1, memory_order_relaxed);
}

static void wait_for(struct memory_ticket *ticket) {
    struct timespec pause = {.tv_nsec = 20000};
    /* Partner: the release store in count. */
    while (!atomic_load_explicit((_Atomic bool *)ticket->context, memory_order_acquire))
        nanosleep(&pause, NULL);
    EXPECT(atomic_load_explicit(&ticket->state, memory_order_acquire) == 1);
}

static void run_round(const struct reduce_spec *spec, uint32_t seed) {
    uint32_t host[COUNT], result[COUNT];
    for (uint32_t i = 0; i < COUNT; i++)
        host[i] = seed + i;
    uint32_t *memory = memory_mock.allocate(sizeof(host));
    EXPECT(memory && memory_identify(memory, sizeof(host)) == &memory_mock);
    _Atomic bool notified = false;
    struct memory_ticket ticket = {.notify = count, .context = &notified};
    EXPECT(memory_mock.copy(memory, host, sizeof(host), &ticket) == MEMORY_PENDING);
    wait_for(&ticket);

    atomic_store_explicit(&notified, false, memory_order_relaxed);
    const struct reduce_operand operands[] = {{memory, false}, {host, false}};
    EXPECT(memory_mock.reduce(spec, memory, true, operands, 2, COUNT, &ticket) == MEMORY_PENDING);
    wait_for(&ticket);
    memory_mock_read(result, memory, sizeof(result));
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT(result[i] == 2 * (seed + i));

    /* Freed while a copy out of it is under way: the copy is right, and done when free returns. */
    atomic_store_explicit(&notified, false, memory_order_relaxed);
    memset(result, 0, sizeof(result));
    EXPECT(memory_mock.copy(result, memory, sizeof(result), &ticket) == MEMORY_PENDING);
    memory_mock.free(memory);
    wait_for(&ticket);
    for (uint32_t i = 0; i < COUNT; i++)
        EXPECT(result[i] == 2 * (seed + i));
}

static void *work(void *arg) {
    struct reduce_spec spec;
    EXPECT(reduce_spec_init(&spec, ROTA_UINT32, ROTA_SUM, 2, cpu_isa_best()) == ROTA_OK);
    uint32_t worker = *(const uint32_t *)arg;
    for (uint32_t round = 0; round < ROUNDS; round++)
        run_round(&spec, worker * 1000000 + round);
    return NULL;
}

/* Allocates, identifies and frees all the while. */
static void *churn(void *arg) {
    int local = 0;
    (void)arg;
    while (!atomic_load_explicit(&stop_churning, memory_order_relaxed)) {
        char *memory = memory_mock.allocate(9000);
        EXPECT(memory && memory_identify(memory + 8999, 1) == &memory_mock);
        EXPECT(memory_identify(&local, sizeof(local)) == &memory_host);
        memory_mock.free(memory);
        EXPECT(memory_mock_operations() <= 3 * WORKERS * ROUNDS);
    }
    return NULL;
}

int main(void) {
    EXPECT(memory_mock_start(99, 50) == ROTA_OK);
    pthread_t workers[WORKERS], churner;
    uint32_t numbers[WORKERS];
    EXPECT(pthread_create(&churner, NULL, churn, NULL) == 0);
    for (uint32_t i = 0; i < WORKERS; i++) {
        numbers[i] = i;
        EXPECT(pthread_create(&workers[i], NULL, work, &numbers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++)
        EXPECT(pthread_join(workers[i], NULL) == 0);
    atomic_store_explicit(&stop_churning, true, memory_order_relaxed);
    EXPECT(pthread_join(churner, NULL) == 0);
    EXPECT(memory_mock_operations() == 3 * WORKERS * ROUNDS);
    EXPECT(atomic_load(&notifications) == 3 * WORKERS * ROUNDS);
    memory_mock_stop();
    return 0;
}
