/* The flag by which a join is given up. */
#include "bootstrap/cancel.h"
#include "base/clock.h"
#include <stdatomic.h>
#include <stddef.h>

static _Thread_local const _Atomic bool *flag;

void cancel_attach(const _Atomic bool *raised) {
    flag = raised;
}

bool cancel_is_raised(void) {
    /* Partner: join_cancel; nothing but the flag itself is passed. */
    return flag != NULL && atomic_load_explicit(flag, memory_order_relaxed);
}

int64_t cancel_look_ns(int64_t deadline_ns) {
    int64_t look_ns = flag != NULL ? clock_deadline(CANCEL_LOOK_MS) : CLOCK_NEVER;
    return look_ns < deadline_ns ? look_ns : deadline_ns;
}

bool cancel_or_passed(int64_t deadline_ns) {
    return cancel_is_raised() || clock_passed(deadline_ns);
}
