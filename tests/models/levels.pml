/* Large calls of the levelled native forms: the rooms for two slices, used again without a wait for
 * all. After run_large in transports/shm/levels.c; four members in two blocks of two, so that the
 * others of a step's sets are one each: `beside` in the block, `across` in the other one.
 *
 * What is checked is the order of steps: counters and rooms are seen by all at once (how number and
 * payload pass between cores is in lines.pml). A room is 0 while it is written and holds the
 * slice's number after it, and who reads it looks at its begin and at its end. Default: all_reduce;
 * REDUCES, SPREADS: kinds of the upper, the lower steps alone. */
#define MEMBERS 4
#ifndef SLICES
#define SLICES 3
#endif
#ifndef CALLS
#define CALLS 2
#endif
#if defined(REDUCES)
#define UP 1
#define DOWN 0
#elif defined(SPREADS)
#define UP 0
#define DOWN 1
#else
#define UP 1
#define DOWN 1
#endif

#define ROOM(member, t) (2 * (member) + (t) % 2)

byte entered[MEMBERS]; /* calls whose line is published */
/* Slices that have passed a step. */
byte staged[MEMBERS], partial[MEMBERS], combined[MEMBERS], fetched[MEMBERS], gathered[MEMBERS];
/* Rooms of operands, of partials, of the own chunk's result, of results that were fetched. */
byte operand_room[2 * MEMBERS], partial_room[2 * MEMBERS], own_room[2 * MEMBERS], fetched_room[2 * MEMBERS];

#define WRITE(room, member, t) room[ROOM(member, t)] = 0; room[ROOM(member, t)] = (t) + 1
#define READ(room, member, t) assert(room[ROOM(member, t)] == (t) + 1); assert(room[ROOM(member, t)] == (t) + 1)

/* Waits for a step of slice t - 2 of this call: rooms of earlier calls are known to be free. */
#define AGAIN(step, who) (t - first < 2 || step[who] + 1 >= t)

inline gather() {
    fetched[beside] >= t + 1;
    READ(own_room, beside, t);
    READ(fetched_room, beside, t);
    gathered[me] = t + 1
}

inline stage() {
#ifndef MUTANT_STAGE
    AGAIN(partial, beside);
#endif
    WRITE(operand_room, me, t);
    staged[me] = t + 1
}

inline reduce() {
    staged[beside] >= t + 1;
#ifndef MUTANT_PARTIAL
    AGAIN(combined, across);
#endif
    READ(operand_room, beside, t);
    WRITE(partial_room, me, t);
    partial[me] = t + 1
}

inline combine() {
    !UP || partial[across] >= t + 1;
#ifndef MUTANT_COMBINE_FETCH
    !DOWN || AGAIN(fetched, across);
#endif
#ifndef MUTANT_COMBINE_GATHER
    !DOWN || AGAIN(gathered, beside);
#endif
    if
    :: UP -> READ(partial_room, across, t)
    :: else
    fi;
    if
    :: DOWN -> WRITE(own_room, me, t)
    :: else
    fi;
    combined[me] = t + 1
}

inline fetch() {
    combined[across] >= t + 1;
    READ(own_room, across, t);
    WRITE(fetched_room, me, t);
    fetched[me] = t + 1
}

/* A step of the turn, where its slice is one of the call. */
#define STEP(used, behind, run) \
    if \
    :: used && turn >= behind && turn - behind < SLICES -> t = first + turn - behind; run \
    :: else \
    fi

active [MEMBERS] proctype member() {
    byte me = _pid, call, turn, first, t, other;
    byte beside = _pid ^ 1, across = _pid ^ 2;
    do
    :: call == CALLS -> break
    :: else ->
        entered[me] = call + 1;
        first = call * SLICES;
        turn = 0;
        do
        :: turn == SLICES + 4 -> break
        :: else ->
#ifndef MUTANT_GATHER_LAST
            STEP(DOWN, 4, gather());
#endif
            STEP(UP, 0, stage());
#ifndef MUTANT_NO_LINES
            if
            :: turn == 1 ->
                for (other : 0 .. MEMBERS - 1) {
                    entered[other] >= call + 1
                }
            :: else
            fi;
#endif
            STEP(UP, 1, reduce());
            STEP(1, 2, combine());
            STEP(DOWN, 3, fetch());
#ifdef MUTANT_GATHER_LAST
            STEP(DOWN, 4, gather());
#endif
            turn++
        od;
#ifndef MUTANT_NO_END
        /* Nobody gathers: the call ends with waiting for those who read the input and partials. */
        DOWN || partial[beside] >= first + SLICES;
        DOWN || combined[across] >= first + SLICES;
#endif
        call++
    od
}
