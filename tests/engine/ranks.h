/* Ranks as threads of this process, and assertions that also work under ThreadSanitizer. */
#ifndef TESTS_ENGINE_RANKS_H
#define TESTS_ENGINE_RANKS_H

#include <rota/rota.h>
#include <stdio.h>

/* Counts a failed assertion; prints where and why. */
void ranks_failed(const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition))                                                                          \
            ranks_failed(__FILE__, __LINE__, __VA_ARGS__);                                         \
    } while (0)
#define CHECK_STATUS(call, expected)                                                               \
    do {                                                                                           \
        rota_status status_ = (call);                                                              \
        if (status_ != (expected))                                                                 \
            ranks_failed_status(__FILE__, __LINE__, status_, (expected));                          \
    } while (0)
#define CHECK_OK(call) CHECK_STATUS(call, ROTA_OK)
void ranks_failed_status(const char *file, int line, rota_status got, rota_status expected);

struct rank {
    rota_comm *comm;
    rota_comm **comms; /* of all ranks */
    int rank, nranks;
    void *arg;
};

/* Runs `body` on nranks threads, each with its communicator, and destroys them in the end.
 * timeout_ms: of the communicators. */
void ranks_run(int nranks, int64_t timeout_ms, void (*body)(const struct rank *rank), void *arg);

/* How ranks are connected. Sets the variables of init; the last entry has no name. Where
 * ROTA_TEST_WAY names a transport, every way is that one. */
struct way {
    const char *name, *transport, *algorithm, *test_transport;
};
extern struct way ways[];
void way_take(const struct way *way);

int64_t now_ms(void);
void sleep_ms(int ms);
/* Tells of the thread's last error. */
const rota_error *last_error(void);

struct test_case {
    const char *name;
    void (*run)(void);
};
/* Runs all cases, or those whose name begins with an argument; prints "N passed, M failed". */
int cases_main(const struct test_case *cases, int argc, char **argv);

#endif
