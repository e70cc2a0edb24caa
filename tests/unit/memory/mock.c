/* Mock device memory, used by one thread. */
#include "memory/memory.h"
#include <criterion/criterion.h>
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static void wait_for(struct memory_ticket *ticket) {
    for (int turns = 0; turns < 100000; turns++) {
        /* Partner: the worker's release store. */
        if (atomic_load_explicit(&ticket->state, memory_order_acquire) != 0)
            return;
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    cr_assert(false, "a ticket never completed");
}

static size_t count_entries(const char *path) {
    DIR *directory = opendir(path);
    cr_assert_not_null(directory);
    size_t n = 0;
    while (readdir(directory))
        n++;
    closedir(directory);
    return n;
}

static void start(unsigned delay_us) {
    cr_assert_eq(memory_mock_start(42, delay_us), ROTA_OK);
}

Test(mock, identify) {
    start(0);
    char *memory = memory_mock.allocate(5000);
    cr_assert_not_null(memory);
    cr_assert_eq((uintptr_t)memory % 4096, 0);
    cr_assert_eq(memory_identify(memory, 5000), &memory_mock);
    cr_assert_eq(memory_identify(memory + 4999, 1), &memory_mock);
    cr_assert_eq(memory_identify(memory + 4999, 2), &memory_mock, "begins inside");
    cr_assert_eq(memory_identify(memory + 5000, 1), &memory_host);
    cr_assert_eq(memory_identify(memory - 1, 2), &memory_host, "begins outside");
    cr_assert_eq(memory_identify(memory, 0), &memory_host);
    cr_assert_eq(memory_identify(&memory_mock, 1), &memory_host);
    memory_mock.free(memory);
    cr_assert_eq(memory_identify(memory, 1), &memory_host);
    memory_mock_stop();
}

/* The address says nothing about the memory: host memory may be mapped where mock memory was. */
Test(mock, C103_address_used_again) {
    start(0);
    enum { BYTES = 8192 };
    for (int round = 0; round < 100; round++) {
        char *memory = memory_mock.allocate(BYTES);
        cr_assert_eq(memory_identify(memory, BYTES), &memory_mock);
        memory_mock.free(memory);
        char *host = mmap(memory, BYTES, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        cr_assert_eq(host, memory);
        cr_assert_eq(memory_identify(host, BYTES), &memory_host);
        host[0] = 1;
        munmap(host, BYTES);
    }
    memory_mock_stop();
}

Test(mock, processor_cannot_touch_it, .signal = SIGSEGV) {
    start(0);
    volatile char *memory = memory_mock.allocate(10);
    cr_assert_not_null((void *)(uintptr_t)memory);
    signal(SIGSEGV, SIG_DFL); /* a sanitizer's handler would report it */
    memory[0] = 1;
}

Test(mock, copies_both_ways) {
    start(200);
    enum { BYTES = 10000 };
    unsigned char from[BYTES], to[BYTES];
    for (size_t i = 0; i < BYTES; i++)
        from[i] = (unsigned char)(i * 7);
    char *a = memory_mock.allocate(BYTES), *b = memory_mock.allocate(BYTES);
    cr_assert(a && b);
    memset(to, 0, BYTES);
    struct memory_ticket tickets[3] = {0};
    cr_assert_eq(memory_mock.copy(a, from, BYTES, &tickets[0]), MEMORY_PENDING);
    wait_for(&tickets[0]);
    cr_assert_eq(memory_mock.copy(b + 3, a, BYTES - 3, &tickets[1]), MEMORY_PENDING);
    wait_for(&tickets[1]);
    cr_assert_eq(memory_mock.copy(to, b + 3, BYTES - 3, &tickets[2]), MEMORY_PENDING);
    wait_for(&tickets[2]);
    for (int i = 0; i < 3; i++)
        cr_assert_eq(atomic_load(&tickets[i].state), 1);
    cr_assert(memcmp(to, from, BYTES - 3) == 0);
    for (size_t i = BYTES - 3; i < BYTES; i++)
        cr_assert_eq(to[i], 0);
    cr_assert_eq(memory_mock_operations(), 3);
    memory_mock_stop();
}

/* A reduction over mock and host operands; the caller's array of operands is gone by then. */
Test(mock, reduces) {
    start(300);
    enum { COUNT = 3001 };
    float left[COUNT], right[COUNT], third[COUNT], result[COUNT];
    for (int i = 0; i < COUNT; i++) {
        left[i] = (float)i;
        right[i] = 2 * (float)i;
        third[i] = 0.25f;
    }
    float *a = memory_mock.allocate(sizeof(left)), *b = memory_mock.allocate(sizeof(left));
    cr_assert(a && b);
    memory_mock_write(a, left, sizeof(left));
    memory_mock_write(b, right, sizeof(right));
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, ROTA_FLOAT32, ROTA_AVG, 3, cpu_isa_best()), ROTA_OK);
    struct reduce_operand operands[] = {{a, false}, {b, false}, {third, false}};
    struct memory_ticket ticket = {0};
    cr_assert_eq(memory_mock.reduce(&spec, a, true, operands, 3, COUNT, &ticket), MEMORY_PENDING);
    memset(operands, 0xff, sizeof(operands));
    memset(&spec, 0xff, sizeof(spec));
    wait_for(&ticket);
    memory_mock_read(result, a, sizeof(result));
    for (int i = 0; i < COUNT; i++)
        cr_assert_eq(result[i], (3 * (float)i + 0.25f) / 3);
    memory_mock_stop();
}

/* The order in which completions were told, as the kind's thread saw it. */
static _Atomic int told;
static int told_order[16];

static void tell(struct memory_ticket *ticket) {
    int n = atomic_load_explicit(&told, memory_order_relaxed);
    told_order[n] = *(const int *)ticket->context;
    atomic_store_explicit(&told, n + 1, memory_order_release);
}

static void copies_out_of_order(uint64_t seed, int order[16]) {
    enum { N = 16 };
    cr_assert_eq(memory_mock_start(seed, 20000), ROTA_OK);
    unsigned char *memory = memory_mock.allocate(N);
    cr_assert_not_null(memory);
    struct memory_ticket tickets[N] = {0};
    unsigned char host[N] = {0};
    int numbers[N];
    atomic_store(&told, 0);
    for (int i = 0; i < N; i++) {
        numbers[i] = i;
        tickets[i].notify = tell;
        tickets[i].context = &numbers[i];
        cr_assert_eq(memory_mock.copy(memory + i, host + i, 1, &tickets[i]), MEMORY_PENDING);
    }
    while (atomic_load_explicit(&told, memory_order_acquire) < N)
        sched_yield();
    memcpy(order, told_order, sizeof(told_order));
    memory_mock_stop();
}

Test(mock, completes_out_of_order) {
    int order[16];
    copies_out_of_order(7, order);
    bool sorted = true;
    for (int i = 1; i < 16; i++)
        sorted = sorted && order[i] > order[i - 1];
    cr_assert_not(sorted);
}

Test(mock, refuses) {
    start(0);
    char *memory = memory_mock.allocate(100), host[200];
    memset(host, 0, sizeof(host));
    struct memory_ticket ticket = {0};
    cr_assert_eq(memory_mock.copy(memory + 50, host, 51, &ticket), MEMORY_FAILED);
    cr_assert_eq(memory_mock.copy(host, memory, 101, &ticket), MEMORY_FAILED);
    cr_assert_eq(memory_mock.copy(memory, host, 1, NULL), MEMORY_FAILED);
    cr_assert_eq(memory_mock.copy(memory, host, 0, NULL), MEMORY_DONE);
    struct reduce_spec spec;
    cr_assert_eq(reduce_spec_init(&spec, ROTA_INT32, ROTA_SUM, 1, CPU_SCALAR), ROTA_OK);
    const struct reduce_operand operand = {memory, false};
    cr_assert_eq(memory_mock.reduce(&spec, host, true, &operand, 1, 26, &ticket), MEMORY_FAILED);
    cr_assert_eq(memory_mock.reduce(&spec, host, true, &operand, 1, SIZE_MAX, &ticket),
                 MEMORY_FAILED);
    cr_assert_eq(memory_mock.reduce(&spec, host, true, &operand, 0, 1, &ticket), MEMORY_FAILED);
    cr_assert_eq(memory_mock.reduce(&spec, host, true, &operand, 1, 0, &ticket), MEMORY_DONE);
    cr_assert_eq(memory_mock_operations(), 0);
    cr_assert_eq(memory_mock_start(1, 1), ROTA_ERR_STATE);
    cr_assert_null(memory_mock.allocate(SIZE_MAX));
    memory_mock.free(NULL);
    memory_mock.free(host); /* nobody's: nothing happens */
    memory_mock_stop();
    cr_assert_eq(memory_mock.copy(host, host + 1, 1, &ticket), MEMORY_FAILED, "stopped");
    cr_assert_null(memory_mock.allocate(1), "stopped");
}

/* Stop ends what is outstanding, at once and for real. */
Test(mock, stop_completes) {
    start(3600u * 1000000u);
    unsigned char host[64], *memory = memory_mock.allocate(64);
    memset(host, 9, sizeof(host));
    unsigned char seen[64] = {0};
    struct memory_ticket in = {0}, out = {0};
    memory_mock_write(memory, host, 64);
    cr_assert_eq(memory_mock.copy(seen, memory, 64, &in), MEMORY_PENDING);
    cr_assert_eq(memory_mock.copy(memory, host, 64, &out), MEMORY_PENDING);
    cr_assert_eq(atomic_load(&in.state), 0);
    memory_mock_stop();
    cr_assert_eq(atomic_load(&in.state), 1);
    cr_assert_eq(atomic_load(&out.state), 1);
    cr_assert(memcmp(seen, host, 64) == 0);
    memory_mock_stop(); /* again: nothing happens */
}

Test(mock, leaves_nothing) {
    size_t descriptors = count_entries("/proc/self/fd"), threads = count_entries("/proc/self/task");
    sigset_t before, after;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    for (int i = 0; i < 50; i++) {
        start(10);
        void *memory = memory_mock.allocate(100000);
        cr_assert_not_null(memory);
        cr_assert_eq(count_entries("/proc/self/fd"), descriptors, "mappings need no descriptor");
        if (i & 1)
            memory_mock.free(memory);
        memory_mock_stop();
        cr_assert_eq(memory_identify(memory, 1), &memory_host);
    }
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int number = 1; number < 65; number++)
        cr_assert_eq(sigismember(&before, number), sigismember(&after, number));
    cr_assert_eq(count_entries("/proc/self/fd"), descriptors);
    /* A joined thread's entry may outlive the join by a moment. */
    for (int turns = 0; turns < 1000 && count_entries("/proc/self/task") != threads; turns++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    cr_assert_eq(count_entries("/proc/self/task"), threads);
}

static void count_notification(struct memory_ticket *ticket) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    int *calls = ticket->context;
    bool blocked = sigismember(&mask, SIGUSR1) && sigismember(&mask, SIGTERM);
    *calls += blocked && atomic_load(&ticket->state) == 1 ? 1 : 100;
}

Test(mock, notifies_once_with_signals_blocked) {
    start(100);
    int calls[20] = {0};
    struct memory_ticket tickets[20];
    unsigned char host = 1, *memory = memory_mock.allocate(20);
    for (int i = 0; i < 20; i++) {
        tickets[i] = (struct memory_ticket){.notify = count_notification, .context = &calls[i]};
        cr_assert_eq(memory_mock.copy(memory + i, &host, 1, &tickets[i]), MEMORY_PENDING);
    }
    memory_mock_stop();
    for (int i = 0; i < 20; i++)
        cr_assert_eq(calls[i], 1);
}
