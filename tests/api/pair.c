#include "pair.h"
#include <pthread.h>
#include <string.h>

void pair_open(struct pair *pair) {
    setenv("ROTA_TIMEOUT_MS", "10000", 1);
    cr_assert_eq(rota_init_threads(2, pair->comms, NULL), ROTA_OK);
}

struct exchange {
    rota_comm *comm;
    int rank;
    bool good;
};

static void *exchange(void *arg) {
    struct exchange *side = arg;
    int32_t mine[3] = {side->rank + 1, 10, -side->rank}, sum[3] = {0}, other = -1;
    rota_status status = rota_all_reduce(mine, sum, 3, ROTA_INT32, ROTA_SUM, side->comm, NULL);
    side->good = status == ROTA_OK && sum[0] == 3 && sum[1] == 20 && sum[2] == -1;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    side->good &=
        rota_recv(&other, 1, ROTA_INT32, 1 - side->rank, 7, side->comm, NULL, &call) == ROTA_OK;
    side->good &= rota_send(mine, 1, ROTA_INT32, 1 - side->rank, 7, side->comm, NULL) == ROTA_OK;
    side->good &= rota_request_wait(request, 0) == ROTA_OK && other == 2 - side->rank;
    rota_request_free(request);
    return NULL;
}

void pair_works(const struct pair *pair) {
    struct exchange sides[2];
    pthread_t threads[2];
    for (int r = 0; r < 2; r++) {
        sides[r] = (struct exchange){.comm = pair->comms[r], .rank = r};
        cr_assert_eq(pthread_create(&threads[r], NULL, exchange, &sides[r]), 0);
    }
    for (int r = 0; r < 2; r++)
        pthread_join(threads[r], NULL);
    for (int r = 0; r < 2; r++) {
        cr_assert(sides[r].good, "rank %d does not work any more", r);
        cr_assert_eq(rota_comm_query(pair->comms[r]), ROTA_OK);
    }
}

void pair_close(struct pair *pair) {
    for (int r = 0; r < 2; r++)
        cr_assert_eq(rota_comm_destroy(pair->comms[r]), ROTA_OK);
}

void refused_at(int line, rota_status got, rota_status expected, const rota_comm *comm,
                const char *word) {
    cr_assert_eq(got, expected, "line %d: %s, expected %s", line, rota_status_name(got),
                 rota_status_name(expected));
    rota_error error = ROTA_ERROR_INIT;
    cr_assert_eq(rota_last_error(&error), ROTA_OK);
    cr_assert_eq(error.status, expected, "line %d: the thread's record says %s: %s", line,
                 rota_status_name(error.status), error.message);
    cr_assert_not_null(strstr(error.message, word), "line %d: \"%s\" does not name %s", line,
                       error.message, word);
    if (comm == NULL)
        return;
    cr_assert_eq(rota_comm_error(comm, &error), ROTA_OK);
    cr_assert_eq(error.status, expected, "line %d: the communicator's record says %s", line,
                 rota_status_name(error.status));
    cr_assert_not_null(strstr(error.message, word), "line %d: \"%s\" does not name %s", line,
                       error.message, word);
}
