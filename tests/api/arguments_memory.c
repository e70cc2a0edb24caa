/* What the functions of memory refuse, and the registrations that calls are given. */
#include "pair.h"

#include <stdlib.h>
#include <string.h>

Test(arguments, rota_mem_alloc) {
    struct pair pair;
    pair_open(&pair);
    void *const untouched = &pair;
    void *memory = untouched;
    REFUSED(rota_mem_alloc(NULL, 64, &memory), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_mem_alloc(pair.comms[0], 64, NULL), ROTA_ERR_ARGUMENT, pair.comms[0], "memory");
    REFUSED(rota_mem_alloc(pair.comms[0], 0, &memory), ROTA_ERR_ARGUMENT, pair.comms[0], "bytes");
    REFUSED(rota_mem_alloc(pair.comms[0], SIZE_MAX, &memory), ROTA_ERR_MEMORY, pair.comms[0],
            "memory");
    cr_assert_eq(memory, untouched);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_mem_free) {
    struct pair pair;
    pair_open(&pair);
    void *memory = NULL;
    cr_assert_eq(rota_mem_alloc(pair.comms[0], 10000, &memory), ROTA_OK);
    cr_assert_eq((uintptr_t)memory % 4096, 0);
    memset(memory, 1, 10000);
    REFUSED(rota_mem_free(NULL, memory), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_mem_free(pair.comms[0], &pair), ROTA_ERR_ARGUMENT, pair.comms[0], "allocated");
    REFUSED(rota_mem_free(pair.comms[0], (char *)memory + 4096), ROTA_ERR_ARGUMENT, pair.comms[0],
            "allocated");
    /* Ranks that are threads are ranks of jobs of their own. */
    REFUSED(rota_mem_free(pair.comms[1], memory), ROTA_ERR_ARGUMENT, pair.comms[1], "allocated");
    cr_assert_eq(rota_mem_free(pair.comms[0], NULL), ROTA_OK);
    cr_assert_eq(rota_mem_free(pair.comms[0], memory), ROTA_OK);
    REFUSED(rota_mem_free(pair.comms[0], memory), ROTA_ERR_ARGUMENT, pair.comms[0], "before");
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_mem_register) {
    struct pair pair;
    pair_open(&pair);
    rota_mem *const untouched = (rota_mem *)&pair;
    rota_mem *handle = untouched;
    rota_comm *comm = pair.comms[0];
    char memory[64];
    REFUSED(rota_mem_register(NULL, memory, 64, &handle), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_mem_register(comm, NULL, 64, &handle), ROTA_ERR_ARGUMENT, comm, "memory");
    REFUSED(rota_mem_register(comm, memory, 64, NULL), ROTA_ERR_ARGUMENT, comm, "handle");
    REFUSED(rota_mem_register(comm, memory, 0, &handle), ROTA_ERR_ARGUMENT, comm, "bytes");
    REFUSED(rota_mem_register(comm, memory, SIZE_MAX, &handle), ROTA_ERR_ARGUMENT, comm, "bytes");
    cr_assert_eq(handle, untouched);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_mem_deregister) {
    struct pair pair;
    pair_open(&pair);
    char memory[64];
    rota_mem *handle = NULL, *left = NULL;
    cr_assert_eq(rota_mem_deregister(NULL), ROTA_OK);
    REFUSED(rota_mem_deregister((rota_mem *)memory), ROTA_ERR_ARGUMENT, NULL, "handle");
    cr_assert_eq(rota_mem_register(pair.comms[0], memory, 64, &handle), ROTA_OK);
    cr_assert_eq(rota_mem_register(pair.comms[0], memory, 64, &left), ROTA_OK);
    cr_assert_neq(handle, left);
    cr_assert_eq(rota_mem_deregister(handle), ROTA_OK);
    REFUSED(rota_mem_deregister(handle), ROTA_ERR_ARGUMENT, NULL, "handle");
    pair_close(&pair);
    REFUSED(rota_mem_deregister(left), ROTA_ERR_ARGUMENT, NULL, "handle");
}

Test(memory, registrations_of_calls) {
    struct pair pair;
    pair_open(&pair);
    int32_t numbers[16] = {0}, results[16];
    rota_mem *sent = NULL, *received = NULL, *foreign = NULL;
    rota_comm *comm = pair.comms[0];
    cr_assert_eq(rota_mem_register(comm, numbers + 1, 14 * 4, &sent), ROTA_OK);
    cr_assert_eq(rota_mem_register(comm, results, 16 * 4, &received), ROTA_OK);
    cr_assert_eq(rota_mem_register(pair.comms[1], numbers, 16 * 4, &foreign), ROTA_OK);
    rota_call call = ROTA_CALL_INIT;
    call.send_mem = sent;
    call.recv_mem = received;
#define REDUCE(send, recv, count)                                                                  \
    rota_all_reduce((send), (recv), (count), ROTA_INT32, ROTA_SUM, comm, &call)
    REFUSED(REDUCE(numbers, results, 14), ROTA_ERR_ARGUMENT, comm, "send_mem");
    REFUSED(REDUCE(numbers + 1, results, 15), ROTA_ERR_ARGUMENT, comm, "send_mem");
    REFUSED(REDUCE(numbers + 1, numbers + 1, 14), ROTA_ERR_ARGUMENT, comm, "recv_mem");
    call.send_mem = foreign;
    REFUSED(REDUCE(numbers + 1, results, 14), ROTA_ERR_ARGUMENT, comm, "send_mem");
    call.send_mem = sent;
    REFUSED(rota_send(numbers, 1, ROTA_INT32, 1, 0, comm, &call), ROTA_ERR_ARGUMENT, comm,
            "send_mem");
    size_t counts[2] = {7, 7}, displs[2] = {0, 8};
    REFUSED(rota_all_to_allv(numbers + 1, counts, displs, results, counts, NULL, ROTA_INT32, comm,
                             &call),
            ROTA_ERR_ARGUMENT, comm, "send_mem");
    rota_comm *copy = NULL;
    REFUSED(rota_comm_duplicate(comm, &copy, &call), ROTA_ERR_ARGUMENT, NULL, "send_mem");
    /* What fits is taken: by both ranks, so that the call can end. */
    rota_request *request = NULL;
    call.request = &request;
    cr_assert_eq(REDUCE(numbers + 1, results, 14), ROTA_OK);
    int32_t other[14] = {5}, sum[14];
    rota_call theirs = ROTA_CALL_INIT;
    cr_assert_eq(rota_all_reduce(other, sum, 14, ROTA_INT32, ROTA_SUM, pair.comms[1], &theirs),
                 ROTA_OK);
    cr_assert_eq(rota_request_wait(request, 0), ROTA_OK);
    cr_assert_eq(results[0], 5);
    rota_request_free(request);
    cr_assert_eq(rota_mem_deregister(sent), ROTA_OK);
    cr_assert_eq(rota_mem_deregister(received), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}
