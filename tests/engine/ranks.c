#include "ranks.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static _Atomic int failures;

struct way ways[] = {{"native", "", "", ""},
                     {"shm", "shm", "ring", ""},
                     {"tcp", "tcp", "", ""},
                     {"late tcp", "tcp", "", "over=tcp,seed=3,delay_us=100"},
                     {NULL, NULL, NULL, NULL}};

/* Every way becomes that of one transport, of which one is taken. */
static void ways_replace(const char *transport) {
    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++)
        ways[i] = (struct way){i == 0 ? transport : NULL, transport, "", ""};
}

static const struct way *taken = ways;

void way_take(const struct way *way) {
    taken = way;
    setenv("ROTA_TRANSPORT", way->transport, 1);
    setenv("ROTA_ALGORITHM", way->algorithm, 1);
    setenv("ROTA_TEST_TRANSPORT", way->test_transport, 1);
}

void ranks_failed(const char *file, int line, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (atomic_fetch_add(&failures, 1) < 60)
        printf("  %s:%d (%s): %s\n", file, line,
               taken->name != NULL ? taken->name : taken->transport, text);
    fflush(stdout);
}

void ranks_failed_status(const char *file, int line, rota_status got, rota_status expected) {
    ranks_failed(file, line, "%s, expected %s: %s", rota_status_name(got),
                 rota_status_name(expected), last_error()->message);
}

struct body {
    struct rank rank;
    void (*run)(const struct rank *rank);
};

static void *run_body(void *arg) {
    const struct body *body = arg;
    body->run(&body->rank);
    return NULL;
}

void ranks_run(int nranks, int64_t timeout_ms, void (*run)(const struct rank *rank), void *arg) {
    rota_comm *comms[16];
    struct body bodies[16];
    pthread_t threads[16];
    rota_status status = rota_init_threads(nranks, comms, NULL);
    if (status != ROTA_OK) {
        ranks_failed_status(__FILE__, __LINE__, status, ROTA_OK);
        return;
    }
    for (int r = 0; r < nranks; r++) {
        rota_comm_set_timeout(comms[r], timeout_ms);
        bodies[r] = (struct body){
            .rank = {.comm = comms[r], .comms = comms, .rank = r, .nranks = nranks, .arg = arg},
            .run = run};
        pthread_create(&threads[r], NULL, run_body, &bodies[r]);
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < nranks; r++)
        if (comms[r] != NULL) /* a body may have destroyed it */
            CHECK_OK(rota_comm_destroy(comms[r]));
}

int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void sleep_ms(int ms) {
    struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
}

const rota_error *last_error(void) {
    static _Thread_local rota_error error;
    error = (rota_error)ROTA_ERROR_INIT;
    rota_last_error(&error);
    return &error;
}

static bool wanted(const char *name, int argc, char **argv) {
    for (int i = 1; i < argc; i++)
        if (strncmp(name, argv[i], strlen(argv[i])) == 0)
            return true;
    return argc < 2;
}

int cases_main(const struct test_case *cases, int argc, char **argv) {
    int passed = 0, failed = 0;
    const char *only = getenv("ROTA_TEST_WAY");
    if (only != NULL)
        ways_replace(only);
    for (; cases->name != NULL; cases++) {
        if (!wanted(cases->name, argc, argv))
            continue;
        int before = atomic_load(&failures);
        int64_t began = now_ms();
        way_take(&ways[0]);
        cases->run();
        bool good = atomic_load(&failures) == before;
        passed += good;
        failed += !good;
        printf("%s %s (%lld ms)\n", good ? "ok    " : "FAILED", cases->name,
               (long long)(now_ms() - began));
        fflush(stdout);
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
