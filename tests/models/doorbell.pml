/* The doorbell: no wake-up is lost. After src/base/doorbell.h and domain_sleep in
 * src/engine/domain.c.
 *
 * Publishers are local peers, each with one message for one thread of the rank; their stores wait in
 * a buffer that empties at any time, so a publisher's look at `armed` may overtake its store.
 * Threads of the rank sleep, each on an epoll set out of the rank's pool; whoever is inside the
 * progress domain completes the others' messages too. With INTERRUPT the last thread waits for
 * nothing but the failure of its communicator, as a native form does. A lost wake-up is a sleeper
 * that nobody will wake: an invalid end state.
 *
 * FENCING_PUBLISHERS: membarrier is refused, publishers fence themselves. */
#define THREADS 2
#ifdef INTERRUPT
#define PUBLISHERS 1
#else
#define PUBLISHERS 2
#endif

bit buffered[PUBLISHERS]; /* stores of data that nobody sees yet */
bit data[PUBLISHERS];
bit done[THREADS], failed[THREADS];
bit edge[THREADS], used[THREADS]; /* epoll sets: event pending, taken out of the pool */
bit inside;                       /* the domain's lock */
byte armed, interrupt;
#ifdef MUTANT_NO_SLEEPER_FENCE
bit unseen[THREADS]; /* counted in `armed`, but nobody sees it yet */
#endif

inline flush(p) {
    if
    :: buffered[p] -> data[p] = 1; buffered[p] = 0
    :: else
    fi
}
inline ring() {
    edge[0] = 1; edge[1] = 1
}

active proctype memory() {
end:
    do
    :: d_step { buffered[0] -> flush(0) }
#if PUBLISHERS > 1
    :: d_step { buffered[1] -> flush(1) }
#endif
#ifdef MUTANT_NO_SLEEPER_FENCE
    :: d_step { unseen[0] -> unseen[0] = 0; armed++ }
    :: d_step { unseen[1] -> unseen[1] = 0; armed++ }
#endif
    od
}

active [PUBLISHERS] proctype publisher() {
    byte p = _pid - 1;
    buffered[p] = 1; /* release store */
#if defined(FENCING_PUBLISHERS) && !defined(MUTANT_NO_PUBLISHER_FENCE)
    d_step { flush(p) }
#endif
    if
    :: armed != 0 -> d_step { flush(p); ring() } /* the kernel's lock orders store and event */
    :: armed == 0
    fi
}

/* Completes what came; inside the domain. */
inline progress(p) {
    if
    :: data[p] && !done[p] ->
        done[p] = 1; /* a full fence in domain_wake follows */
        if
        :: armed != 0 -> d_step { ring() }
        :: armed == 0
        fi
    :: else
    fi
}

inline arm() {
#ifdef MUTANT_NO_SLEEPER_FENCE
    unseen[me] = 1
#else
    armed++;
#if !defined(FENCING_PUBLISHERS) && !defined(MUTANT_NO_MEMBARRIER)
    /* membarrier: each publisher passes a fence, one after the other */
    d_step { flush(0) };
#if PUBLISHERS > 1
    d_step { flush(1) }
#endif
#endif
#endif
}

inline look() {
#ifdef MUTANT_NO_SECOND_LOOK
    quiet = 1
#else
    if
    :: d_step { !inside -> inside = 1 };
        progress(0);
#if PUBLISHERS > 1
        progress(1);
#endif
        quiet = 1;
        inside = 0
    :: inside -> quiet = 0 /* sleeps for a millisecond at most */
    fi
#endif
}

active [THREADS] proctype sleeper() {
    byte me = _pid - 1 - PUBLISHERS;
    byte set, seen;
    bit quiet;
    seen = interrupt;
    do
    :: done[me] || failed[me] -> break
    :: else ->
        if
        :: d_step { !used[0] -> used[0] = 1; set = 0 }
        :: d_step { !used[1] -> used[1] = 1; set = 1 }
        fi;
#ifdef MUTANT_LATE_INTERRUPTS
        seen = interrupt; /* after the caller looked whether its communicator failed */
#endif
        arm();
        look();
        if
        :: quiet && !done[me] && seen == interrupt ->
            d_step { edge[set] -> edge[set] = 0 }
        :: else
        fi;
#ifdef MUTANT_NO_SLEEPER_FENCE
        d_step { if :: unseen[me] -> unseen[me] = 0 :: else -> armed-- fi };
#else
        armed--;
#endif
        used[set] = 0;
        seen = interrupt /* what comes from here on, the caller's own look may have missed */
    od
}

#ifdef INTERRUPT
active proctype failure() {
    failed[THREADS - 1] = 1;
    interrupt++;
    d_step { ring() }
}
#endif
