/* Hello: joins a job, learns rank and size, meets all others at a barrier.
 *
 *     rota run -n 4 -- hello
 *
 * rota_init(NULL, ...) finds the job in the environment that `rota run` or torchrun set; without
 * one it is a job of a single rank. */
#include "check.h"

int main(void) {
    rota_comm *comm = NULL;
    int rank, size;

    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    printf("hello from rank %d of %d\n", rank, size);

    check(rota_barrier(comm, NULL), "barrier", comm);
    if (rank == 0)
        printf("all %d ranks are here; rota %s\n", size, rota_version());

    /* finalize waits for everyone's operations, destroy frees. */
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
