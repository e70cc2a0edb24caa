/* An algorithm of one's own: a ring all_reduce, in the thirty lines of `ring`. Registered under a
 * name, verified by the library, run by that name on every rank, and compared with the true sums.
 * A second one, with a mistake, is refused before anything is sent, with a sentence that says why.
 *
 *     rota run -n 4 -- own_algorithm */
#include "check.h"
#include <string.h>

/* Chunk c goes once around the ring, from rank c + 1 to rank c, summed on the way; then its sum
 * goes around. `arg`, when not NULL, is the rank that forgets to pass on its last sum. */
static rota_status ring(const rota_algorithm_request *request, rota_builder *builder, void *arg) {
    uint32_t n = (uint32_t)request->nranks, me = (uint32_t)request->rank;
    int next = (int)((me + 1) % n), previous = (int)((me + n - 1) % n);
    rota_builder_chunks(builder, n);
    uint32_t partial = rota_builder_scratch(builder, n);
    for (uint32_t round = 0; round + 1 < n; round++) {
        uint32_t out = (me + n - 1 - round) % n, in = (out + n - 1) % n;
        bool last = round + 2 == n; /* then the chunk that comes is complete */
        if (round == 0)
            rota_builder_send(builder, next, rota_input(out, 1), 0);
        else
            rota_builder_send(builder, next, rota_scratch(partial + out, 1, out),
                              ROTA_STEP_PARTIAL);
        rota_builder_recv_reduce(builder, previous, rota_input(in, 1), true,
                                 last ? rota_output(in, 1) : rota_scratch(partial + in, 1, in),
                                 ROTA_STEP_LOAD_LOCAL | (round == 0 ? ROTA_STEP_LOAD_MESSAGE : 0u) |
                                     (last ? ROTA_STEP_FINISH : 0u));
    }
    for (uint32_t round = 0; round + 1 < n; round++) {
        uint32_t out = (me + n - round) % n, in = (out + n - 1) % n;
        if (!arg || round + 2 < n || *(const uint32_t *)arg != me)
            rota_builder_send(builder, next, rota_output(out, 1), 0);
        rota_builder_recv(builder, previous, rota_output(in, 1), 0);
    }
    return ROTA_OK;
}

enum { COUNT = 100003 };

static void run(const char *name, bool in_place, rota_comm *comm, int rank, int size) {
    static float input[COUNT], output[COUNT];
    float *from = in_place ? output : input;
    for (int i = 0; i < COUNT; i++)
        from[i] = (float)(i % 1000 + rank);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = name;
    check(rota_all_reduce(from, output, COUNT, ROTA_FLOAT32, ROTA_SUM, comm, &call), name, comm);
    for (int i = 0; i < COUNT; i++) {
        if (output[i] != (float)(size * (i % 1000) + size * (size - 1) / 2)) {
            fprintf(stderr, "rank %d: element %d is %g\n", rank, i, (double)output[i]);
            exit(1);
        }
    }
}

int main(void) {
    static uint32_t forgetful = 1;
    uint32_t kinds = ROTA_KIND_BIT(ROTA_KIND_ALL_REDUCE);
    check(rota_algorithm_register("my_ring", kinds, ring, NULL), "register", NULL);
    check(rota_algorithm_register("my_mistake", kinds, ring, &forgetful), "register", NULL);

    rota_comm *comm;
    int rank, size;
    check(rota_init(NULL, &comm, NULL), "init", NULL);
    check(rota_comm_rank(comm, &rank), "rank", comm);
    check(rota_comm_size(comm, &size), "size", comm);
    run("my_ring", false, comm, rank, size);
    run("my_ring", true, comm, rank, size);
    const char *ran = rota_comm_algorithm(comm, ROTA_KIND_ALL_REDUCE);
    if (!ran || strcmp(ran, "my_ring") != 0) {
        fprintf(stderr, "it was %s that ran\n", ran ? ran : "nothing");
        return 1;
    }

    float one = 1, sum = 0;
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = "my_mistake";
    rota_status status = rota_all_reduce(&one, &sum, 1, ROTA_FLOAT32, ROTA_SUM, comm, &call);
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    if (size > 1 && (status != ROTA_ERR_UNSUPPORTED || !strstr(error.message, "rank"))) {
        fprintf(stderr, "the mistake was not refused: %s\n", rota_status_name(status));
        return 1;
    }
    if (rank == 0)
        printf("my_ring: right on %d ranks\nrefused: %s\n", size, error.message);
    check(rota_comm_finalize(comm, NULL), "finalize", comm);
    check(rota_comm_destroy(comm), "destroy", NULL);
    return 0;
}
