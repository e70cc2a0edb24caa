/* What peers' liveness instances say to each other over a control connection: frames of a header
 * and a payload. Everything that comes in is checked here. Internal to liveness. */
#ifndef LIVENESS_WIRE_H
#define LIVENESS_WIRE_H

#include "liveness/liveness.h"
#include "liveness/view.h"

#define WIRE_MAGIC 0x76696c72u /* "rliv", little endian */
/* Longest payload. Sets of ranks are sent as lists; one that does not fit is not sent. */
#define WIRE_MAX 32768

enum wire_type {
    WIRE_MESSAGE = 1, /* the engine's bytes */
    WIRE_PING,        /* 8 bytes, that the pong repeats */
    WIRE_PONG,
    WIRE_LEFT,    /* the sender has closed its part of the job */
    WIRE_CLOSING, /* the sender has no use for this connection and sends nothing more on it */
    WIRE_VIEW,
    WIRE_AGREEMENT,
    WIRE_TYPES
};

struct wire_header {
    uint32_t magic;
    uint32_t bytes; /* of the payload */
    uint32_t epoch; /* of the sender's view */
    uint16_t type;
    uint16_t unused;
};
_Static_assert(sizeof(struct wire_header) == 16, "wire_header is sent over the wire");

/* Whether the type exists and has such a length. */
bool wire_header_sound(const struct wire_header *header);

/* Bytes written, 0: it does not fit. */
size_t wire_view_write(const struct view_message *message, uint8_t *payload, size_t size);
/* What a message that was read points to. */
struct wire_view {
    struct view_message message;
    struct view_value value;
    struct ranks dead, left, failed;
    char reason[VIEW_REASON];
};
bool wire_view_init(struct wire_view *view, int nranks);
void wire_view_free(struct wire_view *view);
/* False: it is not sound. */
bool wire_view_read(const uint8_t *payload, size_t bytes, struct wire_view *view);

#endif
