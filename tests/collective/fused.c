/* Fused all-reduces of memory that the processor cannot touch, next to memory that it can: one
 * thread records the calls of all ranks in one group. */
#include "memory/memory.h"

#include <rota/rota.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, SUMS = 6, COUNT = 50, ROUNDS = 20 };

static bool failed(const char *what, rota_status status) {
    if (status == ROTA_OK)
        return false;
    printf("%s: %s\n", what, rota_status_name(status));
    return true;
}

/* Even sums are in mock memory, odd ones in the host's. */
static int32_t *place(int sum, void *mock, int32_t *host) {
    return sum % 2 == 0 ? (int32_t *)mock + sum * COUNT : host + sum * COUNT;
}

static bool round_run(rota_comm *const *comms, void *const *mock, int32_t host[][SUMS * COUNT]) {
    int32_t values[COUNT];
    rota_group *group = NULL;
    rota_call call = ROTA_CALL_INIT;
    if (failed("begin", rota_group_begin(&group)))
        return false;
    call.group = group;
    for (int s = 0; s < SUMS; s++)
        for (int r = 0; r < RANKS; r++) {
            int32_t *at = place(s, mock[r], host[r]);
            for (int i = 0; i < COUNT; i++)
                values[i] = s * 1000 + r * 100 + i;
            if (s % 2 == 0)
                memory_mock_write(at, values, sizeof(values));
            for (int i = 0; s % 2 != 0 && i < COUNT; i++)
                at[i] = values[i];
            if (failed("record",
                       rota_all_reduce(at, at, COUNT, ROTA_INT32, ROTA_SUM, comms[r], &call)))
                return false;
        }
    if (failed("end", rota_group_end(group, NULL)))
        return false;
    for (int s = 0; s < SUMS; s++)
        for (int r = 0; r < RANKS; r++) {
            const int32_t *got = place(s, mock[r], host[r]);
            if (s % 2 == 0) {
                memory_mock_read(values, got, sizeof(values));
                got = values;
            }
            for (int i = 0; i < COUNT; i++)
                if (got[i] != RANKS * (s * 1000 + i) + 100 * RANKS * (RANKS - 1) / 2) {
                    printf("rank %d, sum %d: element %d is %d\n", r, s, i, got[i]);
                    return false;
                }
        }
    return true;
}

int main(void) {
    static int32_t host[RANKS][SUMS * COUNT];
    rota_comm *comms[RANKS];
    void *mock[RANKS];
    bool right = true;
    setenv("ROTA_FUSION_BYTES", "64K", 1);
    if (failed("mock memory", memory_mock_start(7, 300)) ||
        failed("init", rota_init_threads(RANKS, comms, NULL)))
        return 1;
    for (int r = 0; r < RANKS; r++)
        right &= (mock[r] = memory_mock.allocate(sizeof(host[r]))) != NULL;
    uint64_t before = memory_mock_operations();
    for (int round = 0; round < ROUNDS && right; round++)
        right = round_run(comms, mock, host);
    /* Each rank's mock sums were copied in and out once. */
    uint64_t copies = memory_mock_operations() - before;
    if (right && copies != (uint64_t)ROUNDS * RANKS * SUMS) {
        printf("%llu copies\n", (unsigned long long)copies);
        right = false;
    }
    for (int r = 0; r < RANKS; r++) {
        rota_counters counters = ROTA_COUNTERS_INIT;
        if (rota_comm_counters(comms[r], &counters) != ROTA_OK || counters.operations != ROUNDS) {
            printf("rank %d: %llu operations\n", r, (unsigned long long)counters.operations);
            right = false;
        }
        memory_mock.free(mock[r]);
        right &= rota_comm_destroy(comms[r]) == ROTA_OK;
    }
    memory_mock_stop();
    puts(right ? "fused sums of foreign memory are right" : "FAILED");
    return right ? 0 : 1;
}
