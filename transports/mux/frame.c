/* Frames: byte order, checks, CRC-32C. */
#include "frame.h"

#include <pthread.h>
#include <string.h>

#define CRC32C_POLYNOMIAL 0x82f63b78u /* Castagnoli, reflected (RFC 3720, appendix B.4) */
#define FRAME_WORDS (sizeof(struct frame) / 8)

static uint32_t crc_table[256];
static uint32_t (*crc_function)(const void *data, size_t bytes);
static pthread_once_t crc_once = PTHREAD_ONCE_INIT;

static uint32_t crc_by_table(const void *data, size_t bytes) {
    const uint8_t *next = data;
    uint32_t crc = ~0u;
    while (bytes--)
        crc = crc >> 8 ^ crc_table[(crc ^ *next++) & 0xff];
    return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc_by_sse42(const void *data, size_t bytes) {
    const uint8_t *next = data;
    uint64_t crc = ~0u;
    for (; bytes >= 8; bytes -= 8, next += 8) {
        uint64_t word;
        memcpy(&word, next, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    uint32_t rest = (uint32_t)crc;
    while (bytes--)
        rest = __builtin_ia32_crc32qi(rest, *next++);
    return ~rest;
}
#endif

static void crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
        crc_table[i] = crc;
    }
    crc_function = crc_by_table;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2"))
        crc_function = crc_by_sse42;
#endif
}

uint32_t frame_crc32c(const void *data, size_t bytes) {
    pthread_once(&crc_once, crc_prepare);
    return crc_function(data, bytes);
}

uint32_t frame_crc32c_table(const void *data, size_t bytes) {
    pthread_once(&crc_once, crc_prepare);
    return crc_by_table(data, bytes);
}

/* Between host order and little endian, in place; the same both ways. */
static void frame_swap(struct frame *frame) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    frame->flags = __builtin_bswap16(frame->flags);
    frame->key.comm = __builtin_bswap32(frame->key.comm);
    frame->key.generation = __builtin_bswap32(frame->key.generation);
    frame->key.channel = __builtin_bswap32(frame->key.channel);
    frame->key.space = __builtin_bswap32(frame->key.space);
    frame->epoch = __builtin_bswap32(frame->epoch);
    frame->slice = __builtin_bswap32(frame->slice);
    frame->sequence = __builtin_bswap64(frame->sequence);
    frame->length = __builtin_bswap64(frame->length);
    frame->total = __builtin_bswap64(frame->total);
    frame->fingerprint = __builtin_bswap64(frame->fingerprint);
    frame->message = __builtin_bswap64(frame->message);
    frame->number = __builtin_bswap64(frame->number);
    frame->acknowledged = __builtin_bswap64(frame->acknowledged);
    frame->credit = __builtin_bswap64(frame->credit);
    frame->grant = __builtin_bswap64(frame->grant);
    frame->position = __builtin_bswap32(frame->position);
    frame->header_flags = __builtin_bswap32(frame->header_flags);
    frame->trailer = __builtin_bswap32(frame->trailer);
    frame->stripe = __builtin_bswap16(frame->stripe);
    frame->stripes = __builtin_bswap16(frame->stripes);
#else
    (void)frame;
#endif
}

static uint32_t crc_swap(uint32_t crc) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap32(crc);
#else
    return crc;
#endif
}

void frame_seal(struct frame *frame) {
    frame->version = FRAME_VERSION;
    frame->crc = 0;
    frame_swap(frame);
    frame->crc = crc_swap(frame_crc32c(frame, sizeof *frame));
}

static const char *check_fields(const struct frame *frame) {
    if (frame->version != FRAME_VERSION)
        return "frame of an unknown version";
    if (frame->type < FRAME_INIT || frame->type > FRAME_STOPPED)
        return "frame of an unknown type";
    if (frame->flags & ~FRAME_FLAGS_KNOWN)
        return "frame with unknown flags";
    if (frame->trailer > FRAME_MAX_TRAILER)
        return "trailer of a frame is too long";
    return NULL;
}

const char *frame_check(struct frame *frame) {
    uint32_t crc = crc_swap(frame->crc);
    frame->crc = 0;
    if (frame_crc32c(frame, sizeof *frame) != crc)
        return "checksum of a frame is wrong";
    frame->crc = crc;
    frame_swap(frame);
    return check_fields(frame);
}

size_t frame_pack(struct frame *last, struct frame *frame, uint8_t *packed) {
    uint32_t mask = 0;
    size_t bytes = 2;
    frame->version = FRAME_VERSION;
    frame_swap(frame);
    for (unsigned i = 0; i < FRAME_WORDS; i++) {
        uint64_t word, before;
        memcpy(&word, (char *)frame + 8 * i, sizeof word);
        memcpy(&before, (char *)last + 8 * i, sizeof before);
        if (word == before)
            continue;
        mask |= 1u << i;
        memcpy(packed + bytes, &word, sizeof word);
        memcpy((char *)last + 8 * i, &word, sizeof word);
        bytes += sizeof word;
    }
    packed[0] = (uint8_t)mask;
    packed[1] = (uint8_t)(mask >> 8);
    return bytes;
}

size_t frame_packed_bytes(const uint8_t *packed) {
    return 2 + 8 * (size_t)__builtin_popcount(packed[0] | (unsigned)packed[1] << 8);
}

const char *frame_unpack(struct frame *last, const uint8_t *packed, struct frame *frame) {
    uint32_t mask = packed[0] | (uint32_t)packed[1] << 8;
    packed += 2;
    for (; mask != 0; mask &= mask - 1, packed += 8)
        memcpy((char *)last + 8 * __builtin_ctz(mask), packed, 8);
    *frame = *last;
    frame_swap(frame);
    return check_fields(frame);
}

void frame_put_header(struct frame *frame, const struct transport_header *header) {
    frame->sequence = header->sequence;
    frame->position = header->position;
    frame->slice = header->slice;
    frame->length = header->length;
    frame->total = header->total;
    frame->fingerprint = header->fingerprint;
    frame->epoch = header->epoch;
    frame->header_flags = header->flags;
}

void frame_get_header(const struct frame *frame, struct transport_header *header) {
    header->sequence = frame->sequence;
    header->position = frame->position;
    header->slice = frame->slice;
    header->length = frame->length;
    header->total = frame->total;
    header->fingerprint = frame->fingerprint;
    header->epoch = frame->epoch;
    header->flags = frame->header_flags;
}
