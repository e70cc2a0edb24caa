/* Many small sums in one group, as a model with many small gradients has them.
 *
 *     rota run -n 2 -- fusion
 *     ROTA_FUSION_BYTES=64K rota run -n 2 -- fusion
 *
 * The second way they travel together as one, and arrive where each belongs. */
#include "check.h"

#include <time.h>

enum { SUMS = 32, ELEMENTS = 16, ROUNDS = 200 };

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* Each rank adds its gradients to everybody's, all sums in one group. */
static void sum_all(rota_comm *comm, float gradients[SUMS][ELEMENTS]) {
    rota_group *group = NULL;
    rota_call call = ROTA_CALL_INIT;
    check(rota_group_begin(&group), "begin", comm);
    call.group = group;
    for (int i = 0; i < SUMS; i++)
        check(rota_all_reduce(gradients[i], gradients[i], ELEMENTS, ROTA_FLOAT32, ROTA_SUM, comm,
                              &call),
              "record", comm);
    check(rota_group_end(group, NULL), "sums", comm);
}

int main(void) {
    rota_comm *comm = NULL;
    int rank, size;
    float gradients[SUMS][ELEMENTS];
    double least = 1e9;

    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SUMS; i++)
            for (int j = 0; j < ELEMENTS; j++)
                gradients[i][j] = (float)(rank + i * j);
        double before = now_us();
        sum_all(comm, gradients);
        double took = now_us() - before;
        least = took < least ? took : least;
        for (int i = 0; i < SUMS; i++)
            for (int j = 0; j < ELEMENTS; j++)
                if (gradients[i][j] != (float)(size * (size - 1) / 2 + size * i * j)) {
                    fprintf(stderr, "rank %d: sum %d is wrong at %d\n", rank, i, j);
                    return 1;
                }
    }
    if (rank == 0)
        printf("%d sums of %d floats over %d ranks: %.1f us together\n", SUMS, ELEMENTS, size,
               least);
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
