/* The doorbell's fence by itself: one side publishes and looks whether to ring, the other arms and
 * looks for the data, both at the same moment, over and over. Both missing each other is the lost
 * wake-up, counted directly and without sleeping. */
#ifndef TEST_LITMUS_H
#define TEST_LITMUS_H

#include "base/doorbell.h"

#define LITMUS_COLD 48

struct litmus {
    struct doorbell_line line; /* of the side that arms */
    struct {
        _Atomic uint64_t word;
        char unused[120];
    } data, rang, arming, publishing;
    /* Lines that both sides write, so that the publisher's store has to wait for them. */
    struct {
        _Atomic uint64_t word;
        char unused[56];
    } cold[LITMUS_COLD];
    _Atomic int stop;
} __attribute__((aligned(128)));

struct litmus_result {
    uint64_t rounds;
    uint64_t met;  /* rounds in which the data came too late and the bell was rung */
    uint64_t lost; /* rounds in which the data came too late and nobody rang */
};

/* Returns when the side that arms has ended, or at the deadline. */
void litmus_publish(struct litmus *shared, int64_t deadline_ns);
/* Runs for a time and stops both sides. */
struct litmus_result litmus_arm(struct litmus *shared, const struct doorbell *bell,
                                int64_t until_ns);

#endif
