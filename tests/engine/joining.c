/* rota_init with a request: joining in the background, and giving it up while ranks are missing,
 * wherever it waits. All ranks are of this process, so that what they leave behind can be counted.
 */
#include "ranks.h"
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SLOWER = 5 };
#else
enum { SLOWER = 1 };
#endif
enum { MOST = 4, SOON_MS = 2000 * SLOWER, ROUNDS = 10 };

/* One rank that joins. */
struct joiner {
    rota_comm *comm;
    rota_request *request;
    rota_status done;
    _Atomic int dones;
    rota_error seen; /* in the call-back */
};

static void note_done(void *arg, rota_status status) {
    struct joiner *joiner = arg;
    joiner->done = status;
    joiner->seen = (rota_error)ROTA_ERROR_INIT;
    CHECK_OK(rota_request_error(joiner->request, &joiner->seen));
    atomic_fetch_add(&joiner->dones, 1);
}

static void begin(struct joiner *joiner, const rota_config *config, int64_t timeout_ms) {
    rota_call call = ROTA_CALL_INIT;
    memset(joiner, 0, sizeof(*joiner));
    call.request = &joiner->request;
    call.done = note_done;
    call.done_arg = joiner;
    call.timeout_ms = timeout_ms;
    CHECK_OK(rota_init(config, &joiner->comm, &call));
}

static rota_config place(int rank, int nranks, const rota_unique_id *id) {
    rota_config config = ROTA_CONFIG_INIT;
    config.rank = rank;
    config.nranks = nranks;
    config.id = id;
    return config;
}

/* Waits for its end, and returns how that was. */
static rota_status end(struct joiner *joiner) {
    rota_status status = rota_request_wait(joiner->request, 0);
    CHECK(atomic_load(&joiner->dones) == 1 && joiner->done == status &&
              joiner->seen.status == status,
          "%d call-backs, status %s, in the call-back %s with a record of %s",
          atomic_load(&joiner->dones), rota_status_name(status), rota_status_name(joiner->done),
          rota_status_name(joiner->seen.status));
    CHECK((joiner->comm != NULL) == (status == ROTA_OK), "a communicator with %s",
          rota_status_name(status));
    CHECK_OK(rota_request_free(joiner->request));
    joiner->request = NULL;
    return status;
}

static void *cancel(void *arg) {
    const struct joiner *joiner = arg;
    int64_t began = now_ms();
    CHECK_OK(rota_request_cancel(joiner->request));
    CHECK(now_ms() - began < SOON_MS, "cancel took %lld ms", (long long)(now_ms() - began));
    return NULL;
}

/* Two threads at once. */
static void cancel_twice(struct joiner *joiner) {
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, cancel, joiner);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

static void expect_aborted(struct joiner *joiner, int64_t since_ms) {
    rota_status status = end(joiner);
    CHECK(status == ROTA_ERR_ABORTED && now_ms() - since_ms < SOON_MS, "%s after %lld ms: %s",
          rota_status_name(status), (long long)(now_ms() - since_ms), joiner->seen.message);
    CHECK(strstr(joiner->seen.message, "cancelled") != NULL, "%s", joiner->seen.message);
}

static void expect_told(struct joiner *joiner, int culprit, int64_t since_ms) {
    rota_status status = end(joiner);
    CHECK(status == ROTA_ERR_PEER && now_ms() - since_ms < SOON_MS, "%s after %lld ms: %s",
          rota_status_name(status), (long long)(now_ms() - since_ms), joiner->seen.message);
    CHECK(joiner->seen.culprit_count == 1 && joiner->seen.culprits[0] == culprit,
          "rank %d is not named: %s", culprit, joiner->seen.message);
}

static int entries(const char *path) {
    DIR *folder = opendir(path);
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* Descriptors and threads; the control thread closes what it has soon. */
static void expect_nothing_left(int descriptors, int threads) {
    int64_t until = now_ms() + 3000;
    while ((entries("/proc/self/fd") > descriptors || entries("/proc/self/task") > threads) &&
           now_ms() < until)
        sleep_ms(5);
    CHECK(entries("/proc/self/fd") <= descriptors, "%d descriptors, then %d", descriptors,
          entries("/proc/self/fd"));
    CHECK(entries("/proc/self/task") <= threads, "%d threads, then %d", threads,
          entries("/proc/self/task"));
}

/* -- all come ---------------------------------------------------------------------------------- */

static void *sum(void *arg) {
    struct joiner *joiner = arg;
    int rank = -1, nranks = 0;
    CHECK_OK(rota_comm_rank(joiner->comm, &rank));
    CHECK_OK(rota_comm_size(joiner->comm, &nranks));
    int32_t mine = rank + 1, all = 0;
    CHECK_OK(rota_all_reduce(&mine, &all, 1, ROTA_INT32, ROTA_SUM, joiner->comm, NULL));
    CHECK(all == nranks * (nranks + 1) / 2, "sum %d of %d ranks", all, nranks);
    CHECK_OK(rota_comm_destroy(joiner->comm));
    return NULL;
}

static void use_all(struct joiner *joiners, int count) {
    pthread_t threads[MOST];
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, sum, &joiners[i]);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void one_thread_joins_them_all(void) {
    struct joiner joiners[3];
    rota_request *requests[3];
    rota_unique_id id;
    int index = -1;
    CHECK_OK(rota_unique_id_create(&id));
    for (int r = 0; r < 2; r++) {
        rota_config config = place(r, 3, &id);
        begin(&joiners[r], &config, 20000);
        requests[r] = joiners[r].request;
    }
    CHECK_STATUS(rota_request_wait(requests[0], 50), ROTA_ERR_TIMEOUT);
    CHECK_STATUS(rota_request_wait_any(requests, 2, 50, &index), ROTA_ERR_TIMEOUT);
    rota_error error = ROTA_ERROR_INIT;
    CHECK_STATUS(rota_request_error(requests[0], &error), ROTA_ERR_STATE);
    bool done = true;
    CHECK_OK(rota_request_test(requests[1], &done));
    CHECK(!done, "joined without rank 2");
    rota_config config = place(2, 3, &id);
    begin(&joiners[2], &config, 20000);
    requests[2] = joiners[2].request;
    CHECK_OK(rota_request_wait_any(requests, 3, 20000, &index));
    CHECK(index >= 0 && index < 3, "index %d", index);
    CHECK_OK(rota_request_wait_all(requests, 3, 20000));
    CHECK_OK(rota_request_cancel(requests[0])); /* too late */
    for (int r = 0; r < 3; r++)
        CHECK_OK(end(&joiners[r]));
    use_all(joiners, 3);
}

static void raise_flag(void *arg, rota_status status) {
    CHECK(status == ROTA_OK, "%s", rota_status_name(status));
    atomic_store((_Atomic bool *)arg, true);
}

/* Freed before the end: it goes on, and its call-back tells. */
static void freed_before_the_end(void) {
    struct joiner joiners[2];
    rota_unique_id id;
    CHECK_OK(rota_unique_id_create(&id));
    rota_config config = place(0, 2, &id);
    rota_call call = ROTA_CALL_INIT;
    memset(joiners, 0, sizeof(joiners));
    rota_request *request = NULL;
    _Atomic bool joined = false;
    call.request = &request;
    call.done = raise_flag;
    call.done_arg = &joined;
    CHECK_OK(rota_init(&config, &joiners[0].comm, &call));
    CHECK_OK(rota_request_free(request));
    config.rank = 1;
    begin(&joiners[1], &config, 20000);
    CHECK_OK(end(&joiners[1]));
    int64_t until = now_ms() + 10000;
    while (!atomic_load(&joined) && now_ms() < until)
        sleep_ms(1);
    CHECK(atomic_load(&joined), "the freed request did not go on");
    if (atomic_load(&joined))
        use_all(joiners, 2);
}

/* -- C48: one is missing ----------------------------------------------------------------------- */

/* Ranks 0 and 1 of three join, and `victim` is cancelled. */
static void cancel_one(const rota_unique_id *id, const rota_store *store, int victim) {
    struct joiner joiners[2];
    for (int r = 0; r < 2; r++) {
        rota_config config = place(r, 3, id);
        config.store = store;
        begin(&joiners[r], &config, 30000);
    }
    sleep_ms(200 * SLOWER); /* both are at the rendezvous now */
    int64_t began = now_ms();
    cancel_twice(&joiners[victim]);
    expect_aborted(&joiners[victim], began);
    expect_told(&joiners[1 - victim], victim, began);
}

static void C48_cancel_by_id(void) {
    rota_unique_id id;
    CHECK_OK(rota_unique_id_create(&id)); /* from here on the control thread is there */
    cancel_one(&id, NULL, 0);
    int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < 4; i++) {
        CHECK_OK(rota_unique_id_create(&id));
        cancel_one(&id, NULL, i % 2);
    }
    /* Who comes late is told. */
    struct joiner joiner;
    int64_t began = now_ms();
    rota_config late = place(2, 3, &id);
    begin(&joiner, &late, 20000);
    expect_told(&joiner, 1, began);
    expect_nothing_left(descriptors, threads);
}

static void set_root(void) {
    static int port;
    char root[40];
    if (port == 0)
        port = 20000 + (int)getpid() % 10000;
    snprintf(root, sizeof(root), "127.0.0.1:%d", port++);
    setenv("ROTA_ROOT", root, 1);
    setenv("ROTA_JOB_KEY", "the key of this test", 1);
}

static void C48_cancel_by_root(void) {
    int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < 2; i++) {
        set_root();
        cancel_one(NULL, NULL, i % 2); /* rank 0 serves */
    }
    /* Nobody serves. */
    struct joiner joiner;
    set_root();
    rota_config config = place(1, 3, NULL);
    begin(&joiner, &config, 30000);
    sleep_ms(150);
    int64_t began = now_ms();
    cancel_twice(&joiner);
    expect_aborted(&joiner, began);
    unsetenv("ROTA_ROOT");
    unsetenv("ROTA_JOB_KEY");
    expect_nothing_left(descriptors, threads);
}

/* A store in memory, in which rank 0's value may be missing. */
struct memory_store {
    pthread_mutex_t lock;
    char value[128];
    size_t bytes;
    _Atomic int gets;
};

static int store_set(void *arg, const char *key, const void *value, size_t bytes) {
    struct memory_store *store = arg;
    (void)key;
    pthread_mutex_lock(&store->lock);
    memcpy(store->value, value, bytes);
    store->bytes = bytes;
    pthread_mutex_unlock(&store->lock);
    return 0;
}

static int store_get(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                     int64_t timeout_ms) {
    struct memory_store *store = arg;
    int64_t until = now_ms() + timeout_ms;
    (void)key, (void)capacity;
    atomic_fetch_add(&store->gets, 1);
    for (;;) {
        pthread_mutex_lock(&store->lock);
        *bytes = store->bytes;
        memcpy(value, store->value, store->bytes);
        pthread_mutex_unlock(&store->lock);
        if (*bytes > 0)
            return 0;
        if (now_ms() >= until)
            return 7;
        sleep_ms(1);
    }
}

static void C48_cancel_by_store(void) {
    struct memory_store memory = {.lock = PTHREAD_MUTEX_INITIALIZER};
    rota_store store = ROTA_STORE_INIT;
    store.set = store_set;
    store.get = store_get;
    store.arg = &memory;
    int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
    for (int i = 0; i < 4; i++) {
        memory.bytes = 0;
        cancel_one(NULL, &store, i % 2);
    }
    /* Rank 0 has set nothing: the store's get is what blocks. */
    struct joiner joiner;
    memory.bytes = 0;
    rota_config config = place(1, 3, NULL);
    config.store = &store;
    begin(&joiner, &config, 30000);
    sleep_ms(600);
    CHECK(atomic_load(&memory.gets) >= 2, "get was called %d times", atomic_load(&memory.gets));
    int64_t began = now_ms();
    cancel_twice(&joiner);
    expect_aborted(&joiner, began);
    /* In the end the store's time is over as ever. */
    begin(&joiner, &config, 700);
    rota_status status = end(&joiner);
    CHECK(status == ROTA_ERR_TIMEOUT && joiner.seen.culprits[0] == 0, "%s: %s",
          rota_status_name(status), joiner.seen.message);
    expect_nothing_left(descriptors, threads);
}

/* At any moment of joining: the one that is cancelled joins or is aborted, and so do the others, or
 * they are told, by the rendezvous or, when they had met it, by their first call. */
static void *call_once(void *arg) {
    struct joiner *joiner = arg;
    int32_t one = 1, all = 0;
    rota_status status = rota_all_reduce(&one, &all, 1, ROTA_INT32, ROTA_SUM, joiner->comm, NULL);
    CHECK(status == ROTA_OK || status == ROTA_ERR_PEER, "%s: %s", rota_status_name(status),
          last_error()->message);
    CHECK_OK(rota_comm_destroy(joiner->comm));
    return NULL;
}

static void C48_cancel_at_any_moment(void) {
    unsigned state = 4711;
    int aborted = 0;
    for (int i = 0; i < ROUNDS; i++) {
        struct joiner joiners[3];
        pthread_t threads[3];
        rota_unique_id id;
        rota_status statuses[3];
        CHECK_OK(rota_unique_id_create(&id));
        for (int r = 0; r < 3; r++) {
            rota_config config = place(r, 3, &id);
            begin(&joiners[r], &config, 4000);
        }
        state = state * 1103515245 + 12345;
        usleep(state / 65536 % 20000);
        cancel_twice(&joiners[i % 3]);
        for (int r = 0; r < 3; r++) {
            statuses[r] = end(&joiners[r]);
            aborted += statuses[r] == ROTA_ERR_ABORTED;
            /* Who comes more than a second after the others were told waits in vain. */
            CHECK(statuses[r] == ROTA_OK || (statuses[r] == ROTA_ERR_ABORTED && r == i % 3) ||
                      (statuses[r] == ROTA_ERR_PEER && joiners[r].seen.culprits[0] == i % 3) ||
                      (statuses[r] == ROTA_ERR_TIMEOUT && joiners[r].seen.culprit_count > 0),
                  "round %d, rank %d: %s: %s", i, r, rota_status_name(statuses[r]),
                  joiners[r].seen.message);
        }
        for (int r = 0; r < 3; r++)
            if (statuses[r] == ROTA_OK)
                pthread_create(&threads[r], NULL, call_once, &joiners[r]);
        for (int r = 0; r < 3; r++)
            if (statuses[r] == ROTA_OK)
                pthread_join(threads[r], NULL);
    }
    printf("    aborted in %d of %d rounds\n", aborted, ROUNDS);
}

static void options_that_are_refused(void) {
    rota_comm *comm = NULL;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    rota_unique_id id = {{0}};
    rota_config config = place(0, 2, &id);
    call.request = &request;
    CHECK_STATUS(rota_init(&config, &comm, &call), ROTA_ERR_ARGUMENT); /* at once */
    CHECK(request == NULL && comm == NULL, "a request for a refused call");
}

int main(int argc, char **argv) {
    static const struct test_case cases[] = {
        {"one_thread_joins_them_all", one_thread_joins_them_all},
        {"freed_before_the_end", freed_before_the_end},
        {"C48_cancel_by_id", C48_cancel_by_id},
        {"C48_cancel_by_root", C48_cancel_by_root},
        {"C48_cancel_by_store", C48_cancel_by_store},
        {"C48_cancel_at_any_moment", C48_cancel_at_any_moment},
        {"options_that_are_refused", options_that_are_refused},
        {NULL, NULL}};
    return cases_main(cases, argc, argv);
}
