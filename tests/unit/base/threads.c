/* Doorbells between threads, as a plain program for ThreadSanitizer: two sides that wake each
 * other, and one ring that must wake all sleepers. */
#include "base/clock.h"
#include "base/doorbell.h"
#include "ping_pong.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct ping_pong shared;
static struct doorbell bells[2];
static struct ping_pong_result results[2];
static int64_t until_ns;

static void *run_side(void *argument) {
    int side = (int)(intptr_t)argument;
    results[side] = ping_pong_run(&shared, side, &bells[side], bells[1 - side].event_fd, until_ns);
    return NULL;
}

static void two_threads(void) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        CHECK(doorbell_open(&bells[i], &shared.sides[i].line) == ROTA_OK);
    until_ns = clock_deadline(1000);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, run_side, (void *)(intptr_t)i) == 0);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < 2; i++) {
        doorbell_close(&bells[i]); /* only now: the last ring of either side may come late */
        CHECK(results[i].status == ROTA_OK);
        CHECK(results[i].lost == 0);
        CHECK(results[i].rounds > 100);
    }
    CHECK(results[0].sleeps + results[1].sleeps > 0);
    printf("%llu rounds, %llu sleeps\n", (unsigned long long)results[0].rounds,
           (unsigned long long)(results[0].sleeps + results[1].sleeps));
}

#define SLEEPERS 4
#define GENERATIONS 300

static struct doorbell_line common_line __attribute__((aligned(128)));
static struct doorbell common;
static _Atomic uint64_t generation;
static _Atomic uint64_t seen[SLEEPERS];
static _Atomic uint64_t late;

static void *follow_generations(void *argument) {
    size_t me = (size_t)(intptr_t)argument;
    struct doorbell_sleeper *sleeper = NULL;
    CHECK(doorbell_sleeper_create(&common, &sleeper) == ROTA_OK);
    for (uint64_t wanted = 1; wanted <= GENERATIONS; wanted++) {
        while (atomic_load_explicit(&generation, memory_order_acquire) < wanted) {
            doorbell_arm(&common);
            if (atomic_load_explicit(&generation, memory_order_acquire) < wanted) {
                int64_t deadline = clock_deadline(2000);
                doorbell_sleep(sleeper, deadline);
                if (clock_passed(deadline))
                    atomic_fetch_add(&late, 1);
            }
            doorbell_disarm(&common);
        }
        atomic_store_explicit(&seen[me], wanted, memory_order_release);
    }
    doorbell_sleeper_destroy(sleeper);
    return NULL;
}

static void one_ring_wakes_all(void) {
    pthread_t threads[SLEEPERS];
    CHECK(doorbell_open(&common, &common_line) == ROTA_OK);
    for (size_t i = 0; i < SLEEPERS; i++)
        CHECK(pthread_create(&threads[i], NULL, follow_generations, (void *)(intptr_t)i) == 0);
    for (uint64_t next = 1; next <= GENERATIONS; next++) {
        atomic_store_explicit(&generation, next, memory_order_release);
        if (next % 10 == 0)
            doorbell_interrupt(&common);
        else
            doorbell_ring(common.line, common.event_fd);
        int64_t deadline = clock_deadline(10000);
        for (size_t i = 0; i < SLEEPERS; i++)
            while (atomic_load_explicit(&seen[i], memory_order_acquire) < next)
                CHECK(!clock_passed(deadline));
    }
    for (size_t i = 0; i < SLEEPERS; i++)
        pthread_join(threads[i], NULL);
    CHECK(atomic_load(&late) == 0);
    CHECK(atomic_load(&common_line.armed) == 0);
    CHECK(doorbell_interrupts(&common_line) == GENERATIONS / 10);
    doorbell_close(&common);
}

int main(void) {
    two_threads();
    one_ring_wakes_all();
    return 0;
}
