/* Ranks as threads of one process, behind one control thread: commands from several threads at
 * once, agreements, closing in any order, all while others are at work. A plain program, to run
 * under the thread sanitizer. */
#include "world.h"
#include <pthread.h>
#include <string.h>

static struct {
    struct liveness *liveness[WORLD_RANKS];
    struct bootstrap_record records[WORLD_RANKS];
    _Atomic int messages[WORLD_RANKS], agreements[WORLD_RANKS], verdicts[WORLD_RANKS];
    _Atomic int failed[WORLD_RANKS];
} job;

static void on_message(void *context, int from, const void *message, size_t bytes) {
    int self = *(int *)context;
    int expected = from;
    CHECK(bytes == sizeof expected && memcmp(message, &expected, sizeof expected) == 0);
    atomic_fetch_add(&job.messages[self], 1);
    if (job.messages[self] % 16 == 0) /* from the control thread itself */
        liveness_send(job.liveness[self], from, &self, sizeof self);
}
static void on_verdict(void *context, const struct liveness_verdict *verdict) {
    int self = *(int *)context;
    for (int i = 0; i < verdict->nfailed; i++)
        atomic_fetch_or(&job.failed[self], 1 << verdict->failed[i]);
    atomic_fetch_add(&job.verdicts[self], 1);
}
static void on_cleared(void *context, int peer) {
    (void)context, (void)peer;
}
static void on_isolated(void *context, const char *text, const int *unreached, int nunreached) {
    (void)context, (void)unreached;
    CHECK(text == NULL && nunreached < 0); /* it must not come */
}
static void on_agreed(void *context, const struct liveness_agreement *agreement) {
    int self = *(int *)context;
    CHECK(agreement->result.highest == agreement->topic.number + WORLD_RANKS - 1);
    atomic_fetch_add(&job.agreements[self], 1);
}

static int numbers[WORLD_RANKS];
static struct net_identity identities[WORLD_RANKS];

static void open_all(struct settings *settings) {
    const struct liveness_events events = {.message = on_message,
                                           .verdict = on_verdict,
                                           .cleared = on_cleared,
                                           .isolated = on_isolated,
                                           .agreed = on_agreed};
    struct net_identity identity = {.protocol_first = 1, .protocol_last = 1};
    memset(&job, 0, sizeof job);
    net_random(identity.key, sizeof identity.key);
    net_random(identity.job, sizeof identity.job);
    for (int r = 0; r < WORLD_RANKS; r++) {
        struct bootstrap_record *record = &job.records[r];
        CHECK(control_acquire(settings, &record->addresses) == ROTA_OK);
        CHECK(bootstrap_describe(settings, record) == ROTA_OK);
        record->incarnation = identity.incarnation = (uint64_t)r + 5;
        identity.rank = r;
        identities[r] = identity;
    }
    for (int r = 0; r < WORLD_RANKS; r++) {
        numbers[r] = r;
        CHECK(liveness_open(&identities[r], WORLD_RANKS, job.records, settings, &events,
                            &numbers[r], &job.liveness[r]) == ROTA_OK);
    }
}

/* Two threads per rank do this. */
static void *talk(void *argument) {
    int self = *(int *)argument;
    for (int round = 0; round < 40; round++)
        for (int to = 0; to < WORLD_RANKS; to++) {
            liveness_watch(job.liveness[self], to);
            liveness_send(job.liveness[self], to, &self, sizeof self);
            (void)liveness_epoch(job.liveness[self]);
            CHECK(liveness_member(job.liveness[self], to));
        }
    return NULL;
}

static void *agree(void *argument) {
    int self = *(int *)argument;
    for (uint32_t number = 0; number < 20; number++) {
        struct liveness_topic topic = {.comm = 3, .number = number};
        struct liveness_ballot ballot = {.flags = 1, .highest = number + (uint32_t)self};
        liveness_agree(job.liveness[self], &topic, numbers, WORLD_RANKS, &ballot);
    }
    return NULL;
}

static void run(void *(*first)(void *argument), void *(*second)(void *argument)) {
    pthread_t threads[2][WORLD_RANKS];
    for (int r = 0; r < WORLD_RANKS; r++) {
        CHECK(pthread_create(&threads[0][r], NULL, first, &numbers[r]) == 0);
        CHECK(pthread_create(&threads[1][r], NULL, second, &numbers[r]) == 0);
    }
    for (int r = 0; r < WORLD_RANKS; r++) {
        pthread_join(threads[0][r], NULL);
        pthread_join(threads[1][r], NULL);
    }
}

static void *close_one(void *argument) {
    int self = *(int *)argument;
    liveness_close(job.liveness[self]);
    control_release();
    return NULL;
}

static void *do_nothing(void *argument) {
    return argument;
}

int main(void) {
    struct settings *settings;
    CHECK(settings_load(&settings) == ROTA_OK);
    for (int turn = 0; turn < 5; turn++) {
        open_all(settings);
        run(talk, agree);
        for (int r = 0; r < WORLD_RANKS; r++) {
            CHECK(wait_for(&job.messages[r], 40 * (WORLD_RANKS - 1), 10000));
            CHECK(wait_for(&job.agreements[r], 20, 10000));
            CHECK(job.verdicts[r] == 0);
        }
        if (turn % 2 == 0) {
            run(close_one, do_nothing); /* all at once, while they hear of each other */
            continue;
        }
        /* One after the other; who is left hears of each, since it watches all. */
        for (int r = 0; r < WORLD_RANKS; r++) {
            close_one(&numbers[r]);
            for (int other = r + 1; other < WORLD_RANKS; other++) {
                int64_t deadline = clock_deadline(10000);
                while (!(atomic_load(&job.failed[other]) >> r & 1) && !clock_passed(deadline))
                    (void)wait_for(&job.verdicts[other], job.verdicts[other] + 1, 2);
                CHECK(job.failed[other] >> r & 1);
                CHECK(!liveness_member(job.liveness[other], r));
            }
        }
    }
    settings_free(settings);
    return 0;
}
