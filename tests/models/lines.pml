/* Lines and slots of native groups: a call's number, fingerprint and payload, two of each in turn,
 * no acknowledgement. After run_one_shot and lines_wait in transports/shm/all_reduce.c.
 *
 * Each member's stores wait in a buffer that empties in any order, save that a release store
 * follows the stores before it. A member loads the payload after the number (acquire) and before it
 * publishes its next number (release), in either order of words. Every word is the number of the
 * call that wrote it, so what is read tells whether it belongs to the reader's call. */
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifdef MUTANT_ONE_SLOT
#define SLOT(call) 0
#else
#define SLOT(call) ((call) % 2)
#endif
#define LINES (2 * MEMBERS)
#define AT(member, call) (2 * (member) + SLOT(call))

byte sequence[LINES], fingerprint[LINES], first[LINES], last[LINES];
/* Stores on their way, 0: none. */
byte to_sequence[LINES], to_fingerprint[LINES], to_first[LINES], to_last[LINES];

#ifdef MUTANT_NO_RELEASE
#define RELEASED(line) 1
#else
#define RELEASED(line) (!to_fingerprint[line] && !to_first[line] && !to_last[line])
#endif

#define EMPTIES(line) \
    :: d_step { to_fingerprint[line] -> fingerprint[line] = to_fingerprint[line]; to_fingerprint[line] = 0 } \
    :: d_step { to_first[line] -> first[line] = to_first[line]; to_first[line] = 0 } \
    :: d_step { to_last[line] -> last[line] = to_last[line]; to_last[line] = 0 } \
    :: d_step { to_sequence[line] && RELEASED(line) -> sequence[line] = to_sequence[line]; to_sequence[line] = 0 }

active proctype memory() {
end:
    do
    EMPTIES(0) EMPTIES(1) EMPTIES(2) EMPTIES(3)
#if MEMBERS > 2
    EMPTIES(4) EMPTIES(5)
#endif
    od
}

inline load_payload(line, call) {
    if
    :: assert(first[line] == call); assert(last[line] == call)
    :: assert(last[line] == call); assert(first[line] == call)
    fi
}

active [MEMBERS] proctype member() {
    byte me = _pid - 1;
    byte call, peer, line;
    call = 1;
    do
    :: call > CALLS -> break
    :: else ->
        line = AT(me, call);
        /* Stores to one place stay in order: nothing older may be on its way. */
        assert(!to_sequence[line] || SLOT(0) == SLOT(1));
        d_step { to_fingerprint[line] = call; to_first[line] = call; to_last[line] = call };
        to_sequence[line] = call;
        peer = 0;
        do
        :: peer == MEMBERS -> break
        :: peer == me -> peer++
        :: peer < MEMBERS && peer != me ->
            line = AT(peer, call);
#ifdef MUTANT_NO_ACQUIRE
            byte early = first[line];
#endif
            sequence[line] >= call; /* waits */
            assert(sequence[line] == call);
            assert(fingerprint[line] == call);
#ifdef MUTANT_NO_ACQUIRE
            assert(early == call);
#endif
            peer++
        od;
        peer = 0;
        do
        :: peer == MEMBERS -> break
        :: peer == me -> peer++
        :: peer < MEMBERS && peer != me ->
            line = AT(peer, call);
            load_payload(line, call);
            peer++
        od;
        call++
    od
}
