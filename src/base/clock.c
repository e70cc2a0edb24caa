/* Monotonic time and deadlines. */
#include "base/clock.h"

#include <limits.h>
#include <time.h>

#define NS_PER_MS INT64_C(1000000)

int64_t clock_now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* cannot fail with this clock */
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t clock_deadline_from(int64_t now_ns, int64_t timeout_ms) {
    if (timeout_ms <= 0)
        return now_ns;
    if (timeout_ms > (CLOCK_NEVER - now_ns) / NS_PER_MS)
        return CLOCK_NEVER;
    return now_ns + timeout_ms * NS_PER_MS;
}

int64_t clock_deadline(int64_t timeout_ms) {
    return clock_deadline_from(clock_now_ns(), timeout_ms);
}

int clock_left_ms(int64_t deadline_ns) {
    if (deadline_ns == CLOCK_NEVER)
        return INT_MAX;
    int64_t now = clock_now_ns();
    if (deadline_ns <= now)
        return 0;
    /* A deadline may be any number; the difference of a positive and a larger one fits. */
    int64_t left = deadline_ns - now;
    int64_t ms = left / NS_PER_MS + (left % NS_PER_MS != 0);
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

bool clock_passed(int64_t deadline_ns) {
    return deadline_ns != CLOCK_NEVER && clock_now_ns() >= deadline_ns;
}
