/* Threads that start, stop, register and unregister while connections come in. A plain program, to
 * run under the thread sanitizer. */
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/bootstrap.h"
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define THREADS 6
#define ROUNDS 60

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s failed: %s\n", __FILE__, __LINE__, #condition,              \
                    error_record()->message);                                                      \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

struct rank {
    struct control_job job;
    int socket, arrived[2];
    int registered; /* plain on purpose: written after unregister, read by call-backs */
};

static enum net_verdict judge(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors) {
    struct rank *rank = context;
    (void)hello, (void)descriptors;
    *ndescriptors = 0;
    return rank->registered ? NET_GO : NET_REFUSED_GIVEN_UP;
}

static void admitted(void *context, const struct net_hello *hello, int socket,
                     const int *descriptors, int ndescriptors) {
    struct rank *rank = context;
    (void)hello, (void)descriptors;
    CHECK(ndescriptors == 0);
    rank->socket = socket;
    CHECK(write(rank->arrived[1], "x", 1) == 1);
}

static rota_status dial(struct rank *rank, const struct net_addresses *addresses,
                        struct net_answer *answer) {
    struct net_target target = {.local_name = addresses->local_name};
    struct net_dial *dial;
    bool finished = false;
    rota_status status = net_dial_start(&rank->job.identity, &target, rank->job.identity.rank,
                                        NET_PURPOSE_DATA, NULL, 0, clock_deadline(10000), &dial);
    while (status == ROTA_OK && !finished) {
        status = net_dial_step(dial, &finished, answer);
        uint32_t events;
        struct pollfd one = {.fd = net_dial_descriptor(dial, &events)};
        one.events = (short)events;
        if (status == ROTA_OK && !finished)
            poll(&one, 1, 1000);
    }
    net_dial_free(dial);
    return status;
}

static void one_round(struct rank *rank) {
    struct net_addresses addresses;
    struct net_answer answer;
    char letter;
    CHECK(control_acquire(NULL, &addresses) == ROTA_OK);
    rank->registered = 1;
    CHECK(control_register(&rank->job) == ROTA_OK);
    CHECK(control_register(&rank->job) == ROTA_ERR_MISMATCH);
    CHECK(dial(rank, &addresses, &answer) == ROTA_OK);
    CHECK(read(rank->arrived[0], &letter, 1) == 1);
    close(rank->socket);
    control_unregister(&rank->job);
    rank->registered = 0; /* no call-back may read it now */
    CHECK(dial(rank, &addresses, &answer) == ROTA_ERR_MISMATCH);
    CHECK(answer.verdict == NET_REFUSED_TARGET);
    control_release();
}

static void *thread_main(void *argument) {
    struct rank rank = {0};
    rota_unique_id id;
    CHECK(pipe(rank.arrived) == 0);
    memset(rank.job.identity.key, 7, sizeof rank.job.identity.key);
    rank.job.identity.rank = *(int *)argument;
    rank.job.identity.protocol_first = rank.job.identity.protocol_last = 1;
    rank.job.nranks = THREADS;
    rank.job.context = &rank;
    rank.job.judge = judge;
    rank.job.admitted = admitted;
    for (int i = 0; i < ROUNDS; i++) {
        one_round(&rank);
        if (i == ROUNDS / 2)
            CHECK(bootstrap_unique_id(&id) == ROTA_OK);
    }
    close(rank.arrived[0]);
    close(rank.arrived[1]);
    return NULL;
}

/* All threads are ranks of one job that meets by one id, again and again. */
static rota_unique_id meeting;
static void *meet_main(void *argument) {
    struct settings *settings;
    struct bootstrap_place place;
    struct bootstrap_record mine = {0}, records[THREADS];
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = THREADS;
    config.rank = *(int *)argument;
    config.id = &meeting;
    CHECK(settings_load(&settings) == ROTA_OK);
    CHECK(control_acquire(settings, &mine.addresses) == ROTA_OK);
    CHECK(bootstrap_describe(settings, &mine) == ROTA_OK);
    CHECK(bootstrap_locate(&config, settings, &place) == ROTA_OK);
    CHECK(bootstrap_exchange(&place, settings, &mine, records, clock_deadline(20000)) == ROTA_OK);
    CHECK(records[THREADS - 1].rank == THREADS - 1);
    CHECK(memcmp(records[0].process, records[THREADS - 1].process, 16) == 0);
    CHECK(bootstrap_exchange(&place, settings, &mine, records, clock_deadline(20000)) ==
          ROTA_ERR_ARGUMENT);
    control_release();
    settings_free(settings);
    return NULL;
}

static void run(void *(*main_of)(void *)) {
    pthread_t threads[THREADS];
    int ranks[THREADS];
    for (int i = 0; i < THREADS; i++) {
        ranks[i] = i;
        CHECK(pthread_create(&threads[i], NULL, main_of, &ranks[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void) {
    for (int i = 0; i < 20; i++) {
        CHECK(bootstrap_unique_id(&meeting) == ROTA_OK);
        run(meet_main);
    }
    run(thread_main);
    return 0;
}
