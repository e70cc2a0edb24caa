/* Monotonic time. Wall-clock time is never used for waiting. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

/* Nanoseconds of CLOCK_MONOTONIC. */
int64_t clock_now_ns(void);

#define CLOCK_NEVER INT64_MAX
/* Deadline `timeout_ms` from now; saturates at CLOCK_NEVER. */
int64_t clock_deadline(int64_t timeout_ms);
/* The same from a time that is known. */
int64_t clock_deadline_from(int64_t now_ns, int64_t timeout_ms);
/* Milliseconds left, rounded up and at most INT_MAX: for poll and epoll. 0 when passed. */
int clock_left_ms(int64_t deadline_ns);
bool clock_passed(int64_t deadline_ns);

#endif
