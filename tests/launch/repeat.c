/* Joins three jobs one after the other, as a program under a launcher may. */
#include <rota/rota.h>

#include <stdio.h>

static int join(int job) {
    rota_comm *comm;
    int rank = 0, nranks = 0;
    float mine, sum = 0;
    rota_status status = rota_init(NULL, &comm, NULL);
    if (status != ROTA_OK) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        fprintf(stderr, "job %d: %s: %s\n", job, rota_status_name(status), error.message);
        return 1;
    }
    rota_comm_rank(comm, &rank);
    rota_comm_size(comm, &nranks);
    mine = (float)(rank + job);
    status = rota_all_reduce(&mine, &sum, 1, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
    float expected = (float)(nranks * (nranks - 1) / 2 + nranks * job);
    int failed = status != ROTA_OK || sum < expected || sum > expected;
    if (failed)
        fprintf(stderr, "job %d: %s, sum %g instead of %g\n", job, rota_status_name(status),
                (double)sum, (double)expected);
    if (rota_comm_destroy(comm) != ROTA_OK)
        failed = 1;
    if (!failed && rank == 0)
        printf("job %d of %d ranks\n", job, nranks);
    return failed;
}

int main(void) {
    int failed = 0;
    for (int job = 0; job < 3 && !failed; job++)
        failed = join(job);
    return failed;
}
