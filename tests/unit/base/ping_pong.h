/* Two sides that wake each other by doorbells as fast as they can, to provoke lost wake-ups. */
#ifndef TEST_PING_PONG_H
#define TEST_PING_PONG_H

#include "base/doorbell.h"

/* What the two sides share; lies in memory that both may write. */
struct ping_pong_side {
    struct doorbell_line line;
    _Atomic uint64_t published; /* by this side, read by the other */
    char unused[120];
    /* Lines that this side writes before it publishes and the other side reads meanwhile: they keep
     * the store buffer busy, so that the publication becomes visible late. */
    struct {
        _Atomic uint64_t word;
        char unused[56];
    } cold[64];
} __attribute__((aligned(128)));

struct ping_pong {
    struct ping_pong_side sides[2];
    _Atomic int stop;
    _Atomic int ready; /* sides that have opened their bells */
};

struct ping_pong_result {
    uint64_t rounds;
    uint64_t sleeps;
    uint64_t lost; /* sleeps that ended by their deadline although the data were there */
    rota_status status;
};

/* Runs one side until `until_ns`; the other side runs elsewhere at the same time. `bell` is this
 * side's, `peer_fd` the eventfd of the other's. */
struct ping_pong_result ping_pong_run(struct ping_pong *shared, int side,
                                      const struct doorbell *bell, int peer_fd, int64_t until_ns);

#endif
