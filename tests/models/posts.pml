/* Posts of rooted calls in native groups: what a member gives stands in one of few places, and each
 * is used again when those who read it have said so by a counter. After begin, show, take and finish
 * in transports/shm/flow.c; slices in moves are used again in the same way.
 *
 * Every call has a root that gives to all others, or takes from them. Nobody waits for a member that
 * gives nothing. As in lines.pml, stores wait in a buffer that empties in any order, save that a
 * release store follows the stores before it, and every word is the number of its call. */
#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef CALLS
#define CALLS 4
#endif
#ifndef POSTS
#define POSTS 2
#endif
#define LINES (POSTS * MEMBERS)
#define AT(member, call) (POSTS * (member) + (call) % POSTS)
#define ALL MEMBERS
#define GIVES(member, call) (gives[call] == ((member) == root[call]))

/* Of each call: its root, and whether that gives. Drawn by who comes first. */
byte root[CALLS + 1];
bit gives[CALLS + 1], drawn[CALLS + 1];

byte sequence[LINES], first[LINES], last[LINES], received[MEMBERS];
byte to_sequence[LINES], to_first[LINES], to_last[LINES], to_received[MEMBERS];

#ifdef MUTANT_NO_RELEASE
#define RELEASED(line) 1
#else
#define RELEASED(line) (!to_first[line] && !to_last[line])
#endif

#define EMPTIES(line) \
    :: d_step { to_first[line] -> first[line] = to_first[line]; to_first[line] = 0 } \
    :: d_step { to_last[line] -> last[line] = to_last[line]; to_last[line] = 0 } \
    :: d_step { to_sequence[line] && RELEASED(line) -> sequence[line] = to_sequence[line]; to_sequence[line] = 0 }
#define TOLD(member) \
    :: d_step { to_received[member] -> received[member] = to_received[member]; to_received[member] = 0 }

active proctype memory() {
end:
    do
    EMPTIES(0) EMPTIES(1) TOLD(0) TOLD(1)
#if LINES > 2
    EMPTIES(2)
#endif
#if LINES > 3
    EMPTIES(3)
#endif
#if LINES > 4
    EMPTIES(4) EMPTIES(5)
#endif
#if MEMBERS > 2
    TOLD(2)
#endif
    od
}

inline draw(call) {
    atomic {
        if
        :: drawn[call] -> skip
        :: else ->
            drawn[call] = 1;
            if
            :: root[call] = 0
            :: root[call] = 1
#if MEMBERS > 2
            :: root[call] = 2
#endif
            fi;
            if
            :: gives[call] = 0
            :: gives[call] = 1
            fi
        fi
    }
}

inline load_payload(line, call) {
    if
    :: assert(first[line] == call); assert(last[line] == call)
    :: assert(last[line] == call); assert(first[line] == call)
    fi
}

/* Waits for those who have read what stands in a post. */
inline await_readers(post) {
#ifdef MUTANT_NO_WAITING
    skip
#else
    peer = 0;
    do
    :: peer == MEMBERS -> break
    :: peer < MEMBERS ->
        if
        :: written[post] && peer != me &&
#ifdef MUTANT_ONE_READER
           peer == (reader[post] == ALL -> 1 - (me > 0) : reader[post]) ->
#else
           (reader[post] == ALL || reader[post] == peer) ->
#endif
            received[peer] >= written[post]
        :: else -> skip
        fi;
        peer++
    od
#endif
}

inline give(call) {
    await_readers(call % POSTS);
    line = AT(me, call);
    d_step {
        written[call % POSTS] = call;
        reader[call % POSTS] = (gives[call] -> ALL : root[call]);
        to_first[line] = call;
        to_last[line] = call
    };
    to_sequence[line] = call
}

inline take(call) {
    peer = 0;
    do
    :: peer == MEMBERS -> break
    :: peer < MEMBERS && (peer == me || !GIVES(peer, call)) -> peer++
    :: peer < MEMBERS && peer != me && GIVES(peer, call) ->
        line = AT(peer, call);
#ifdef MUTANT_NO_ACQUIRE
        early = first[line];
#endif
        sequence[line] >= call; /* waits */
        assert(sequence[line] == call);
#ifdef MUTANT_NO_ACQUIRE
        assert(early == call);
#endif
#ifdef MUTANT_EARLY_TELLING
        to_received[me] = call;
#endif
        load_payload(line, call);
        peer++
    od;
    to_received[me] = call
}

active [MEMBERS] proctype member() {
    byte me = _pid - 1;
    byte call = 1, peer, line;
    byte written[POSTS], reader[POSTS];
#ifdef MUTANT_NO_ACQUIRE
    byte early;
#endif
    do
    :: call > CALLS -> break
    :: else ->
        draw(call);
        if
        :: GIVES(me, call) -> give(call)
        :: else -> take(call)
        fi;
        call++
    od
}
