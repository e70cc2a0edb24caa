/* The frame that precedes everything on a connection between two ranks. Little endian; 128 bytes;
 * protected by a CRC-32C of its own. Fields that no version uses yet are sent as zero and
 * ignored, unknown flags are refused, bytes of a trailer are skipped by its length. */
#ifndef MUX_FRAME_H
#define MUX_FRAME_H

#include "transports/transport.h"

#include <stddef.h>

enum frame_type {
    FRAME_INIT = 1, /* first frame each way: credit = slots granted, length 0 */
    FRAME_DATA,     /* a message; `length` bytes of payload follow */
    FRAME_REQUEST,  /* header only: a message of this length waits for permission */
    FRAME_CREDIT,   /* returns credit and permits messages of a stream */
    FRAME_RETRY,    /* the request was not kept: ask again later */
    FRAME_CLOSE,    /* the sender closed the stream; message 1: in answer to a CLOSE */
    FRAME_BYE,      /* last frame: the peer closes in good order */
    FRAME_PLACE,    /* CREDIT, and where a posted message may be written: total = address, length,
                       fingerprint = keys, sequence = generation of the writing side's way */
    FRAME_STOPPED   /* the way to write of this generation (sequence) is gone; make a new one */
};

/* DATA that spends credit of its stream; without it the message was permitted by number. */
#define FRAME_FLAG_EAGER 1u
/* DATA without payload: it was written to its place before. */
#define FRAME_FLAG_WRITTEN 2u
#define FRAME_FLAGS_KNOWN (FRAME_FLAG_EAGER | FRAME_FLAG_WRITTEN)

struct frame {
    uint8_t type; /* enum frame_type */
    uint8_t version;
    uint16_t flags;
    uint32_t crc; /* of the frame with this field 0 */
    struct transport_key key;
    uint32_t epoch;
    uint32_t slice;
    uint64_t sequence;
    uint64_t length;
    uint64_t total;
    uint64_t fingerprint;
    uint64_t message;      /* number of the message in its stream, from 0 */
    uint64_t number;       /* of the frame on the connection: resumable links, 0 */
    uint64_t acknowledged; /* as above */
    uint64_t credit;       /* eager charge consumed on the stream so far; INIT: slots */
    uint64_t grant;        /* messages of the stream below this number may be sent */
    uint32_t position;
    uint32_t header_flags;
    uint32_t trailer; /* bytes after the payload that a receiver may skip */
    uint16_t stripe, stripes;
    uint64_t unused;
};
_Static_assert(sizeof(struct frame) == 128, "frames are sent over the wire");
_Static_assert(offsetof(struct frame, sequence) == 32, "no padding");
_Static_assert(offsetof(struct frame, unused) == 120, "no padding");

#define FRAME_VERSION 1
/* Most bytes of a trailer that a peer may ask us to skip. */
#define FRAME_MAX_TRAILER 4096u

/* Writes version, CRC and byte order of a filled frame; it is then as it travels. */
void frame_seal(struct frame *frame);
/* Turns a received frame into host order and checks it. NULL, or what is wrong with it. */
const char *frame_check(struct frame *frame);

/* The same as what differs from the frame before it, for pipes that guard their bytes themselves
 * (packets of RDMA have a CRC): a bit per 8 bytes, then those that differ, little endian. A frame
 * of a stream that goes on has 26 bytes. `last`, zero at first, becomes the frame; returns bytes.
 */
#define FRAME_PACKED_MOST (2 + sizeof(struct frame))
size_t frame_pack(struct frame *last, struct frame *frame, uint8_t *packed);
/* Bytes of the packed frame that begins with these two. */
size_t frame_packed_bytes(const uint8_t *packed);
/* NULL, or what is wrong with it. */
const char *frame_unpack(struct frame *last, const uint8_t *packed, struct frame *frame);

void frame_put_header(struct frame *frame, const struct transport_header *header);
void frame_get_header(const struct frame *frame, struct transport_header *header);

/* CRC-32C (Castagnoli), by the processor's instruction where it has one. */
uint32_t frame_crc32c(const void *data, size_t bytes);
/* The same by table, for tests and other processors. */
uint32_t frame_crc32c_table(const void *data, size_t bytes);

#endif
