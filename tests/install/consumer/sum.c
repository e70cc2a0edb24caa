/* What every consumer does: an all-reduce over all ranks, its result on standard output. */
#include <rota/rota.h>
#include <stdio.h>

int main(void) {
    rota_comm *comm = NULL;
    if (rota_init(NULL, &comm, NULL) != ROTA_OK)
        return 1;
    int rank = -1, size = 0;
    rota_comm_rank(comm, &rank);
    rota_comm_size(comm, &size);
    double value = rank + 1;
    rota_call call = ROTA_CALL_INIT;
    call.label = "sum";
    if (rota_all_reduce(&value, &value, 1, ROTA_FLOAT64, ROTA_SUM, comm, &call) != ROTA_OK)
        return 2;
    printf("sum %g of %d ranks\n", value, size);
    return rota_comm_finalize(comm, NULL) != ROTA_OK || rota_comm_destroy(comm) != ROTA_OK;
}
