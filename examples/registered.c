/* Registered: buffers that the ranks of one host read directly from each other.
 *
 *     rota run -n 2 -- registered
 *
 * Any memory gives the same results; that of rota_mem_alloc saves a copy in large calls. */
#include "check.h"

int main(void) {
    const size_t count = 1 << 20;
    rota_comm *comm = NULL;
    void *memory = NULL;
    int rank, size;

    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    check(rota_mem_alloc(comm, count * sizeof(float), &memory), "mem_alloc", comm);

    float *gradient = memory;
    for (size_t i = 0; i < count; i++)
        gradient[i] = (float)(rank + 1);
    check(rota_all_reduce(gradient, gradient, count, ROTA_FLOAT32, ROTA_SUM, comm, NULL),
          "all_reduce", comm);
    if (gradient[count - 1] != (float)(size * (size + 1) / 2))
        return 1;
    if (rank == 0) {
        const char *way = rota_comm_algorithm(comm, ROTA_KIND_ALL_REDUCE);
        printf("%d ranks added %zu numbers by %s\n", size, count, way ? way : "nobody");
    }

    check(rota_mem_free(comm, memory), "mem_free", comm);
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
