/* Negative control of the matrix: when a plan lacks one hazard edge, mock memory's late copies and
 * reductions must let wrong data be seen, else the matrix could not notice such a plan. And with
 * all its edges the same calls are right. */
#include "case_rank.h"
#include "engine/plan.h"
#include "memory/memory.h"
#include "values.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 4, EDGES = 14 };

struct part {
    rota_comm *comm;
    struct matrix_case test;
    int rank;
    enum case_outcome outcome;
    char text[1024];
};

static void *run(void *arg) {
    struct part *part = arg;
    part->outcome =
        case_run(&part->test, part->rank, part->comm, true, part->text, sizeof(part->text));
    return NULL;
}

/* Whether every rank held the right bytes; wrong data are told from errors by `wrong`. */
static bool attempt(const char *algorithm, uint32_t dropped, bool *wrong) {
    rota_comm *comms[RANKS];
    struct part parts[RANKS];
    pthread_t threads[RANKS];
    plan_test_drop_edge(dropped);
    if (rota_init_threads(RANKS, comms, NULL) != ROTA_OK)
        abort();
    for (int r = 0; r < RANKS; r++) {
        rota_comm_set_timeout(comms[r], 2000);
        parts[r] = (struct part){.comm = comms[r], .rank = r};
        parts[r].test = (struct matrix_case){.kind = ROTA_KIND_ALL_REDUCE,
                                             .dtype = ROTA_INT32,
                                             .op = ROTA_SUM,
                                             .nranks = RANKS,
                                             .count = 6000,
                                             .place = MATRIX_IN_PLACE,
                                             .algorithm = algorithm,
                                             .salt = value_mix(dropped)};
        pthread_create(&threads[r], NULL, run, &parts[r]);
    }
    bool right = true;
    for (int r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        right &= parts[r].outcome == CASE_PASSED;
        *wrong |= strstr(parts[r].text, "are wrong") != NULL;
        if (dropped == 0 && parts[r].outcome != CASE_PASSED)
            printf("%s with all edges: %s\n", algorithm, parts[r].text);
    }
    for (int r = 0; r < RANKS; r++)
        rota_comm_destroy(comms[r]);
    return right;
}

int main(void) {
    setenv("ROTA_SLICE_BYTES", "512", 1);
    if (memory_mock_start(11, 300) != ROTA_OK)
        return 2;
    int seen = 0, failed = 0;
    const char *name;
    for (int i = 0; (name = rota_algorithm_name(i)) != NULL; i++) {
        if (!rota_algorithm_does(name, ROTA_KIND_ALL_REDUCE, RANKS))
            continue;
        bool wrong = false;
        failed += !attempt(name, 0, &wrong);
        uint32_t edge = 0;
        while (!wrong && edge < EDGES)
            attempt(name, ++edge, &wrong);
        printf("%s: %s %u\n", name, wrong ? "wrong data without edge" : "nothing wrong up to edge",
               edge);
        seen += wrong;
    }
    plan_test_drop_edge(0);
    memory_mock_stop();
    failed += seen == 0;
    printf("%d passed, %d failed\n", seen, failed);
    return failed > 0;
}
