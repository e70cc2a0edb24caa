/* A queue of entries between two ranks, with slots: after entry_begin, entry_publish, harvest_peer
 * in transports/shm/send.c and shm_peer_read, message_release in transports/shm/stream.c.
 *
 * The sender writes payload into a free slot of its own and an entry that names it; the reader moves
 * entries to a list of its own, acknowledges them by `consumed`, reads payloads later, of any
 * stream first, and gives slots back by their numbers in a ring and the count `released`. All that a
 * rank writes lies in its own arena; its stores wait in a buffer that empties in any order, save
 * that a release store follows the stores before it. Payloads are the message's number. */
#ifndef MESSAGES
#define MESSAGES 5
#endif
#define ENTRIES 2 /* of the queue */
#define SLOTS 3
#define RING 4 /* above SLOTS */
#define NONE 255

/* The sender's arena. */
byte sequence[ENTRIES], slot_of[ENTRIES], number_of[ENTRIES], payload[SLOTS];
byte to_sequence[ENTRIES], to_slot_of[ENTRIES] = NONE, to_number_of[ENTRIES], to_payload[SLOTS];
/* The reader's. */
byte consumed, released, given[RING];
byte to_consumed, to_released, to_given[RING] = NONE;

#ifdef MUTANT_NO_RELEASE
#define ENTRY_RELEASED(e) 1
#else
#define ENTRY_RELEASED(e) (to_slot_of[e] == NONE && !to_number_of[e] && !to_payload[slot_of[e]])
#endif
#ifdef MUTANT_NO_RELEASE_OF_SLOTS
#define SLOT_RELEASED 1
#else
#define SLOT_RELEASED (to_given[released % RING] == NONE)
#endif

#define ENTRY_EMPTIES(e) \
    :: d_step { to_slot_of[e] != NONE -> slot_of[e] = to_slot_of[e]; to_slot_of[e] = NONE } \
    :: d_step { to_number_of[e] -> number_of[e] = to_number_of[e]; to_number_of[e] = 0 } \
    :: d_step { to_sequence[e] && ENTRY_RELEASED(e) -> sequence[e] = to_sequence[e]; to_sequence[e] = 0 }
#define PAYLOAD_EMPTIES(i) \
    :: d_step { to_payload[i] -> payload[i] = to_payload[i]; to_payload[i] = 0 }
#define SLOT_EMPTIES(g) \
    :: d_step { to_given[g] != NONE -> given[g] = to_given[g]; to_given[g] = NONE }

active proctype memory() {
end:
    do
    ENTRY_EMPTIES(0) ENTRY_EMPTIES(1)
    PAYLOAD_EMPTIES(0) PAYLOAD_EMPTIES(1) PAYLOAD_EMPTIES(2)
    SLOT_EMPTIES(0) SLOT_EMPTIES(1) SLOT_EMPTIES(2) SLOT_EMPTIES(3)
    :: d_step { to_consumed -> consumed = to_consumed; to_consumed = 0 }
    :: d_step { released < to_released && SLOT_RELEASED -> released++ } /* number by number */
    od
}

active proctype sender() {
    byte published, harvested, seen, slot, entry;
    bit free[SLOTS] = 1;
    do
    :: published == MESSAGES -> break
    :: else ->
        /* A slot. */
        do
        :: d_step { free[0] -> free[0] = 0; slot = 0 }; break
        :: d_step { free[1] -> free[1] = 0; slot = 1 }; break
        :: d_step { free[2] -> free[2] = 0; slot = 2 }; break
        :: !free[0] && !free[1] && !free[2] ->
            released != harvested; /* waits; acquire */
            seen = released;
            do
            :: harvested == seen -> break
            :: else ->
                d_step {
                    slot = given[harvested % RING];
                    assert(slot < SLOTS && !free[slot]);
                    free[slot] = 1;
                    harvested++
                }
            od
        od;
        /* Stores to one place stay in order: nothing older is on its way. */
        assert(!to_payload[slot]);
        to_payload[slot] = published + 1;
        /* Room in the queue. */
#ifndef MUTANT_NO_CONSUMED
        published - consumed < ENTRIES; /* waits; acquire */
#endif
        entry = published % ENTRIES;
#ifndef MUTANT_NO_CONSUMED
        assert(!to_sequence[entry]);
#endif
        d_step { to_slot_of[entry] = slot; to_number_of[entry] = published + 1 };
        published++;
        to_sequence[entry] = published
    od
}

/* Reads a payload and gives its slot back. */
#ifdef MUTANT_EARLY_GIVING
#define READ_EARLY(i) skip
#define READ_LATE(i) assert(payload[i] == kept[i])
#else
#define READ_EARLY(i) assert(payload[i] == kept[i])
#define READ_LATE(i) skip
#endif
#define GIVE(i) \
    :: kept[i] -> \
        READ_EARLY(i); \
        assert(to_given[gone % RING] == NONE); \
        to_given[gone % RING] = i; \
        gone++; \
        to_released = gone; /* release: the load of the payload came before */ \
        READ_LATE(i); \
        kept[i] = 0

active proctype reader() {
    byte read, gone, entry, slot;
    byte kept[SLOTS]; /* private list: number of the message in a slot, 0: none */
    do
    :: gone == MESSAGES -> break
    :: read < MESSAGES && sequence[read % ENTRIES] == read + 1 -> /* acquire */
        entry = read % ENTRIES;
        slot = slot_of[entry];
        assert(slot < SLOTS && !kept[slot]); /* a slot holds one message */
        assert(number_of[entry] == read + 1);
        read++;
        kept[slot] = read;
        to_consumed = read /* release: the loads of the entry came before */
    GIVE(0)
    GIVE(1)
    GIVE(2)
    od
}
