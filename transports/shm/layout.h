/* What ranks see of each other in shared memory.
 *
 * Each rank owns one arena, to which nobody else writes. So every shared line has one writer, and
 * what a reader has to say about a writer's data (how far it has read, which slots it gave back)
 * stands in the reader's own arena. Lines that different cores write are 128 bytes apart, because
 * processors fetch them in pairs.
 *
 * An arena holds, in this order: the head; the directory, from rank to its pair block; the table of
 * native groups; the two slot pools; how far large slots are filled; and the heap, from which pair
 * blocks and group areas come. Pages that were never touched cost nothing. */
#ifndef TRANSPORTS_SHM_LAYOUT_H
#define TRANSPORTS_SHM_LAYOUT_H

#include "base/doorbell.h"
#include "transports/transport.h"

#define SHM_MAGIC 0x306d687361746f72ull /* "rotashm0", little endian */
#define SHM_VERSION 7
#define SHM_LINE 128
#define SHM_PAGE 4096

#define SHM_ARENA_BYTES ((size_t)512 << 20) /* of address space */

/* Slots for payloads that do not fit into an entry. Small ones may travel unannounced. */
#define SHM_SMALL_BYTES 4096
#define SHM_SMALL_SLOTS 256
#define SHM_LARGE_BYTES 65536
#define SHM_LARGE_SLOTS 128
#define SHM_SLOTS (SHM_SMALL_SLOTS + SHM_LARGE_SLOTS)

#define SHM_FIFO_ENTRIES 256 /* a power of two */
#define SHM_RELEASE_RING 512 /* a power of two above SHM_SLOTS: it cannot overflow */
_Static_assert(SHM_RELEASE_RING > SHM_SLOTS, "every slot may be given back before a harvest");

#define SHM_GROUPS 4096 /* native groups that exist at one time */
#define SHM_INLINE_BYTES 48
#define SHM_TINY_BYTES 88
#define SHM_HALF_LINE_BYTES 24 /* of which the first */
#define SHM_PLACES 2

/* First line of an arena: written before the arena is shown to anybody. */
struct shm_identity {
    uint64_t magic;
    uint32_t version;
    uint32_t rank;
    uint64_t incarnation;
    uint8_t job[16];
    uint64_t bytes;
    uint32_t nranks;
    uint32_t groups;
    uint64_t directory; /* offsets in the arena */
    uint64_t group_table;
    uint64_t small_slots;
    uint64_t large_slots;
    uint64_t filled;     /* a struct shm_filled for each large slot */
    uint64_t heap_bytes; /* of the rank's heap for users' buffers, a file of its own; 0: none */
    /* Third-level cache and NUMA node to which the rank is bound, by numbers above 0; 0: to none.
     */
    uint32_t place[SHM_PLACES];
    uint8_t unused[16];
};
_Static_assert(sizeof(struct shm_identity) == SHM_LINE, "one line");

struct shm_head {
    struct shm_identity identity;
    struct doorbell_line bell;
    struct {
        /* Not 0 while a sender of this rank waits for slots or room: readers ring when they give
         * something back. Raised before the doorbell is armed. */
        _Atomic uint32_t wanted;
        uint8_t unused[124];
    } room;
    struct {
        _Atomic uint32_t used; /* entries of the group table that were ever used */
        uint8_t unused[124];
    } groups;
};
_Static_assert(sizeof(struct shm_head) == 4 * SHM_LINE, "four lines");

enum shm_entry_type {
    SHM_ENTRY_INLINE = 1, /* a message; payload in the entry */
    SHM_ENTRY_SLOT,       /* a message; payload in a slot of the sender's */
    /* Messages of `put`: payload in the entry, or in a small slot. Their entries fill half a line
     * unless there is more than SHM_HALF_LINE_BYTES, and that is all that moves. */
    SHM_ENTRY_TINY,
    SHM_ENTRY_SHORT,
    SHM_ENTRY_REQUEST, /* header of a message that may not travel yet */
    SHM_ENTRY_GRANT    /* so many messages of the stream have been announced */
};

/* One entry of a pair's queue. */
struct shm_entry {
    /* Number of the entry, from 1: the last word written (release), the first read (acquire). */
    _Atomic uint64_t sequence;
    uint32_t type;
    uint32_t slot; /* TINY: length */
    struct transport_key key;
    union {
        struct {
            struct transport_header header;
            union {
                uint8_t data[SHM_INLINE_BYTES];
                uint64_t count; /* REQUEST: number of the message in its stream; GRANT: announced */
            } body;
        };
        struct {
            uint64_t sequence; /* of the header */
            union {
                uint8_t data[SHM_TINY_BYTES];
                uint64_t length; /* SHORT */
            };
        } tiny;
    };
};
_Static_assert(sizeof(struct shm_entry) == SHM_LINE, "one line");
_Static_assert(offsetof(struct shm_entry, tiny.data) + SHM_HALF_LINE_BYTES == 64,
               "what a processor moves");

/* How many bytes of the payload stand in a large slot. Raised while the sender copies (release), so
 * that the reader copies at the same time. */
struct shm_filled {
    _Atomic uint64_t bytes;
    uint8_t unused[120];
};
_Static_assert(sizeof(struct shm_filled) == SHM_LINE, "one line");

/* What one rank writes for one other. */
struct shm_pair {
    struct {
        _Atomic uint64_t consumed;        /* entries read of the other's queue */
        _Atomic uint64_t released;        /* slots given back to the other */
        _Atomic uint64_t inline_released; /* messages without slot that were released */
        uint8_t unused[104];
    } ack;
    /* Numbers of the slots given back, by count of `released`. */
    _Atomic uint16_t slots[SHM_RELEASE_RING];
    struct shm_entry fifo[SHM_FIFO_ENTRIES];
};
_Static_assert(sizeof(struct shm_pair) ==
                   SHM_LINE + SHM_RELEASE_RING * 2 + SHM_FIFO_ENTRIES * SHM_LINE,
               "whole lines");

/* One entry of the table by which the members of a native group find each other. */
struct shm_group_entry {
    /* Generation of the entry's use << 8 | enum shm_group_state. Written last on each change; a
     * reader that sees the same word before and after reading the rest read one use. */
    _Atomic uint64_t state;
    _Atomic uint64_t key; /* communicator << 32 | generation */
    _Atomic uint64_t area;
    _Atomic uint32_t forms; /* SHM_FORM_... */
    _Atomic uint32_t closed;
    uint8_t unused[96];
};
_Static_assert(sizeof(struct shm_group_entry) == SHM_LINE, "one line");

/* What a member writes in a native group. Calls in which every member waits for every other have
 * numbers, the same on all members; call k uses line and slot k % 2. That is right without
 * acknowledgements because a member leaves call k only after all others have entered it, and so
 * have left call k - 1 and with it all that call k + 1 overwrites.
 *
 * Rooted calls are numbered by themselves; call q uses the post q % SHM_POSTS (a further line, and
 * a small slot) of those members that give something. Nobody waits for who gives nothing, so a post
 * is used again only when those who read it have said so in `received`. */
struct shm_group_line {
    _Atomic uint64_t sequence; /* number of the call: written last (release) */
    uint64_t fingerprint;
    uint8_t payload[SHM_INLINE_BYTES];
    uint8_t unused[64];
};
_Static_assert(sizeof(struct shm_group_line) == SHM_LINE, "one line");

struct shm_group_counter {
    _Atomic uint64_t slices;
    uint8_t unused[120];
};

#define SHM_POSTS 16 /* rooted calls that may be under way: how far a root runs ahead of others */
#define SHM_LINES (2 + SHM_POSTS)
#define SHM_POST_BYTES 8192
#define SHM_ONE_SHOT_BYTES 65536
#define SHM_STAGE_BYTES (512 * 1024) /* of one slice of all chunks */
#define SHM_MOVES 4                  /* the same memory cut for slices of all other kinds */
#define SHM_MOVE_BYTES (2 * SHM_STAGE_BYTES / SHM_MOVES)
#define SHM_RESULT_BYTES (SHM_STAGE_BYTES / 2 + SHM_PAGE) /* of one rank's chunk of a slice */

/* What a member of a levelled group does with each slice, in the order of a turn; levels.c. */
enum shm_level_step {
    SHM_LEVEL_GATHER,
    SHM_LEVEL_STAGE,
    SHM_LEVEL_PARTIAL,
    SHM_LEVEL_COMBINE,
    SHM_LEVEL_FETCH,
    SHM_LEVEL_STEPS
};

struct shm_area {
    struct shm_group_line line[SHM_LINES];
    /* Two-shot all-reduces: slices are numbered over all of them. */
    struct shm_group_counter staged;  /* slices of input that stand in `stage` */
    struct shm_group_counter reduced; /* slices whose own chunk stands in `result` */
    struct shm_group_counter taken;   /* slices of calls in which all of the others' was read */
    /* Staged calls of all other kinds, numbered over all of them. */
    struct shm_group_counter shown;   /* slices that this member has shown in `move` */
    struct shm_group_counter fetched; /* slices of which it has read all that it needs */
    /* Rooted calls that it has read all of. */
    struct shm_group_counter received;
    /* Levelled calls: slices that have passed each step; and a small call's second line. */
    struct shm_group_counter level[SHM_LEVEL_STEPS];
    struct shm_group_line level_line[2];
    uint8_t unused[SHM_PAGE - (6 + SHM_LEVEL_STEPS + 2 + SHM_LINES) * SHM_LINE];
    uint8_t slot[2][SHM_ONE_SHOT_BYTES];
    uint8_t post_slot[SHM_POSTS][SHM_POST_BYTES];
};
_Static_assert(sizeof(struct shm_area) ==
                   SHM_PAGE + 2 * SHM_ONE_SHOT_BYTES + SHM_POSTS * SHM_POST_BYTES,
               "whole pages");

/* Behind struct shm_area where SHM_FORM_STAGED. */
struct shm_staging {
    union {
        uint8_t stage[2][SHM_STAGE_BYTES];
        uint8_t move[SHM_MOVES][SHM_MOVE_BYTES];
    };
    uint8_t result[2][SHM_RESULT_BYTES];
};

/* Payload of the line of a call that may use mapped buffers: where the member's buffers lie in its
 * heap, as offset + 1; 0: they do not. */
struct shm_line_buffers {
    uint64_t send, recv;
};
_Static_assert(sizeof(struct shm_line_buffers) <= SHM_INLINE_BYTES, "fits in a line");

/* What a member's area has room for, and whether it can read the heaps of all others. */
enum { SHM_FORM_SMALL = 1, SHM_FORM_STAGED = 2, SHM_FORM_MAPPED = 4 };

enum shm_group_state {
    SHM_GROUP_FREE = 0,
    SHM_GROUP_OPENED,    /* this member exists */
    SHM_GROUP_CONNECTED, /* and sees all others: final */
    SHM_GROUP_FAILED     /* and does not take part: final */
};

#endif
