/* Large calls on memory as malloc gives it, 16 bytes behind a line, next to the same calls on whole
 * pages: processors have places where a copy that is fast elsewhere takes ten times as long. The
 * least of several rounds counts on both sides. */
#include "pin.h"
#include <rota/rota.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BYTES ((size_t)16 << 20)
#define ROUNDS 7
#define BEHIND 16
#define LIMIT 4.0 /* about 1.1 where it is right; 12 to 15 where it was not */

enum { ALL_GATHER, BROADCAST, SEND, CALLS };
static const char *const names[CALLS] = {"all_gather", "broadcast", "send"};

struct side {
    int rank;
    rota_comm *comm;
    char *in, *out;
    double us[CALLS][2]; /* on pages, and behind */
    rota_status status;
};

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static rota_status call(struct side *side, int what, size_t behind) {
    const char *in = side->in;
    char *out = side->out + behind;
    switch (what) {
    case ALL_GATHER:
        return rota_all_gather(in, out, BYTES / 2, ROTA_UINT8, side->comm, NULL);
    case BROADCAST:
        return rota_broadcast(in, out, BYTES, ROTA_UINT8, 0, side->comm, NULL);
    default:
        return side->rank == 0 ? rota_send(in, BYTES, ROTA_UINT8, 1, 0, side->comm, NULL)
                               : rota_recv(out, BYTES, ROTA_UINT8, 0, 0, side->comm, NULL, NULL);
    }
}

static void *side_run(void *arg) {
    struct side *side = arg;
    guard_pin(side->rank);
    for (int round = 0; round < ROUNDS; round++)
        for (int what = 0; what < CALLS; what++)
            for (int behind = 0; behind < 2 && side->status == ROTA_OK; behind++) {
                rota_barrier(side->comm, NULL);
                double began = now_us(), *least = &side->us[what][behind];
                side->status = call(side, what, behind ? BEHIND : 0);
                double took = now_us() - began;
                *least = round == 0 || took < *least ? took : *least;
            }
    return NULL;
}

int main(void) {
    rota_comm *comms[2];
    struct side sides[2];
    pthread_t threads[2];
    bool failed = false;
    setenv("ROTA_TRANSPORT", "shm", 1);
    if (rota_init_threads(2, comms, NULL) != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        printf("cannot begin: %s\n", error.message);
        return 1;
    }
    for (int r = 0; r < 2; r++) {
        sides[r] = (struct side){.rank = r,
                                 .comm = comms[r],
                                 .in = aligned_alloc(4096, BYTES),
                                 .out = aligned_alloc(4096, BYTES + 4096)};
        if (sides[r].in == NULL || sides[r].out == NULL)
            return 1;
        memset(sides[r].in, 0, BYTES);
        memset(sides[r].out, 0, BYTES + 4096);
        if (pthread_create(&threads[r], NULL, side_run, &sides[r]) != 0)
            return 1;
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int what = 0; what < CALLS; what++) {
        const double *us = sides[1].us[what];
        bool bad =
            sides[0].status != ROTA_OK || sides[1].status != ROTA_OK || us[1] > LIMIT * us[0];
        failed |= bad;
        printf("%-10s on pages %9.1f us, %d bytes behind %9.1f us: %.2f, at most %.0f%s\n",
               names[what], us[0], BEHIND, us[1], us[1] / us[0], LIMIT, bad ? ": FAILED" : "");
    }
    for (int r = 0; r < 2; r++) {
        rota_comm_destroy(comms[r]);
        free(sides[r].in);
        free(sides[r].out);
    }
    return failed;
}
