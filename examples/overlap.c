/* Overlap: sums a vector over all ranks while each rank computes something else.
 *
 *     rota run -n 2 -- overlap
 *
 * With call.request the operation starts and the call returns; the buffers belong to it until
 * rota_request_wait has returned. */
#include "check.h"

#define COUNT ((size_t)1 << 20)

/* Work that has nothing to do with the vector: a sum that converges to pi. */
static double compute(void) {
    double sum = 0;
    for (int k = 0; k < 10 * 1000 * 1000; k++)
        sum += (k % 2 ? -4.0 : 4.0) / (2 * k + 1);
    return sum;
}

int main(void) {
    rota_comm *comm = NULL;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    int rank, size;

    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    float *input = malloc(COUNT * sizeof(float)), *sum = malloc(COUNT * sizeof(float));
    if (!input || !sum) {
        fprintf(stderr, "out of memory\n");
        return 1;
    }
    for (size_t i = 0; i < COUNT; i++)
        input[i] = (float)(rank + (int)(i % 100));

    call.request = &request;
    call.label = "overlapped sum";
    check(rota_all_reduce(input, sum, COUNT, ROTA_FLOAT32, ROTA_SUM, comm, &call), "start", comm);
    double pi = compute();
    bool done;
    check(rota_request_test(request, &done), "test", comm);
    check(rota_request_wait(request, 0), "wait", comm);
    check(rota_request_free(request), "free", comm);

    for (size_t i = 0; i < COUNT; i++) {
        float expected = (float)(size * (size - 1) / 2 + size * (int)(i % 100));
        if (sum[i] != expected) {
            fprintf(stderr, "rank %d: element %zu is %g, expected %g\n", rank, i, sum[i], expected);
            return 1;
        }
    }
    printf("rank %d: pi is about %.6f; the sum was %s when that was known\n", rank, pi,
           done ? "done" : "still under way");
    free(input);
    free(sum);
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
