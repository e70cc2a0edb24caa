/* Rounds of barrier and all_reduce of 1 KiB, timed. Started on every rank by `rota run`; what it
 * prints is read by rounds.sh.
 *
 *   rounds N    N rounds; prints "rank R of SIZE: MS ms" */
#include <rota/rota.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ELEMENTS = 256 };

static int fail(const char *what, const rota_comm *comm) {
    rota_error error = ROTA_ERROR_INIT;
    if (comm != NULL)
        rota_comm_error(comm, &error);
    if (error.status == ROTA_OK)
        rota_last_error(&error);
    fprintf(stderr, "%s: %s\n", what, error.message);
    return 1;
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* One round; false when a value is wrong. */
static bool round_of(rota_comm *comm, int rank, int nranks, int round, rota_status *status) {
    int32_t in[ELEMENTS], out[ELEMENTS] = {0};
    for (int i = 0; i < ELEMENTS; i++)
        in[i] = rank + round * 3 + i;
    *status = rota_barrier(comm, NULL);
    if (*status == ROTA_OK)
        *status = rota_all_reduce(in, out, ELEMENTS, ROTA_INT32, ROTA_SUM, comm, NULL);
    bool right = true;
    for (int i = 0; i < ELEMENTS; i++)
        right &= out[i] == nranks * (nranks - 1) / 2 + nranks * (round * 3 + i);
    return right;
}

int main(int argc, char **argv) {
    int rounds = argc == 2 ? atoi(argv[1]) : 0, rank = -1, nranks = 0;
    if (rounds < 1) {
        fprintf(stderr, "usage: rounds N\n");
        return 2;
    }
    rota_comm *comm = NULL;
    if (rota_init(NULL, &comm, NULL) != ROTA_OK)
        return fail("init", NULL);
    rota_comm_rank(comm, &rank);
    rota_comm_size(comm, &nranks);
    double began = now_ms();
    for (int round = 0; round < rounds; round++) {
        rota_status status = ROTA_OK;
        bool right = round_of(comm, rank, nranks, round, &status);
        if (status != ROTA_OK)
            return fail("a round", comm);
        if (!right) {
            fprintf(stderr, "rank %d: wrong sums in round %d\n", rank, round);
            return 1;
        }
    }
    printf("rank %d of %d: %.0f ms\n", rank, nranks, now_ms() - began);
    if (rota_comm_finalize(comm, NULL) != ROTA_OK)
        return fail("finalize", comm);
    return rota_comm_destroy(comm) == ROTA_OK ? 0 : 1;
}
