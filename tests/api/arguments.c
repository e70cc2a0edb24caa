/* What the functions of jobs, communicators, requests, settings and names refuse. */
#include "pair.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* -- jobs and communicators -------------------------------------------------------------------- */

Test(arguments, rota_unique_id_create) {
    REFUSED(rota_unique_id_create(NULL), ROTA_ERR_ARGUMENT, NULL, "id");
}

static int failing_all_gather(const void *send, void *recv, size_t bytes, void *arg) {
    (void)send;
    (void)recv;
    (void)bytes;
    ++*(int *)arg;
    return 1;
}

Test(arguments, rota_init) {
    rota_comm *const untouched = (rota_comm *)&failing_all_gather;
    rota_comm *comm = untouched;
    rota_config config = ROTA_CONFIG_INIT;
    rota_unique_id id = {{0}};
    REFUSED(rota_init(NULL, NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    config.size = offsetof(rota_config, store) - 1; /* less than the first version had */
    REFUSED(rota_init(&config, &comm, NULL), ROTA_ERR_ARGUMENT, NULL, "config->size");
    config = (rota_config)ROTA_CONFIG_INIT;
    config.nranks = -1;
    REFUSED(rota_init(&config, &comm, NULL), ROTA_ERR_ARGUMENT, NULL, "nranks");
    config.nranks = 3;
    config.id = &id;
    static const int wrong[] = {-1, 3, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        config.rank = wrong[i];
        REFUSED(rota_init(&config, &comm, NULL), ROTA_ERR_ARGUMENT, NULL, "rank");
    }
    config.rank = 0;
    config.nranks = 0;
    REFUSED(rota_init(&config, &comm, NULL), ROTA_ERR_ARGUMENT, NULL, "nranks");
    int calls = 0;
    config.nranks = 1;
    config.all_gather = failing_all_gather;
    config.all_gather_arg = &calls;
    REFUSED(rota_init(&config, &comm, NULL), ROTA_ERR_ARGUMENT, NULL, "all-gather");
    cr_assert_eq(calls, 0);
    /* Options */
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = -5;
    REFUSED(rota_init(NULL, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    call = (rota_call)ROTA_CALL_INIT;
    call.done_arg = &calls;
    REFUSED(rota_init(NULL, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "request");
    call = (rota_call)ROTA_CALL_INIT;
    call.send_mem = &calls;
    REFUSED(rota_init(NULL, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "send_mem");
    rota_group *group = NULL;
    cr_assert_eq(rota_group_begin(&group), ROTA_OK);
    call = (rota_call)ROTA_CALL_INIT;
    call.group = group;
    REFUSED(rota_init(NULL, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "group");
    REFUSED(rota_init_threads(1, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "group");
    cr_assert_eq(rota_group_free(group), ROTA_OK);
    /* With a request, what is wrong here and now is told at once. */
    rota_request *request = NULL;
    call = (rota_call)ROTA_CALL_INIT;
    call.request = &request;
    config = (rota_config)ROTA_CONFIG_INIT;
    config.nranks = 3;
    config.rank = 4;
    REFUSED(rota_init(&config, &comm, &call), ROTA_ERR_ARGUMENT, NULL, "rank");
    cr_assert_null(request);
    cr_assert_eq(comm, untouched);
}

/* An id that nobody made, a failing all-gather, and wrong variables end in errors at once. */
Test(init, hostile_rendezvous) {
    rota_comm *comm = NULL;
    rota_unique_id id = {{0}};
    rota_config config = ROTA_CONFIG_INIT;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = 2000;
    config.nranks = 2;
    config.rank = 1;
    config.id = &id;
    cr_assert_neq(rota_init(&config, &comm, &call), ROTA_OK);
    memset(&id, 0xff, sizeof(id));
    cr_assert_neq(rota_init(&config, &comm, &call), ROTA_OK);
    int calls = 0;
    config.id = NULL;
    config.all_gather = failing_all_gather;
    config.all_gather_arg = &calls;
    cr_assert_neq(rota_init(&config, &comm, &call), ROTA_OK);
    cr_assert_eq(calls, 1);
    setenv("ROTA_RANK", "first", 1);
    setenv("ROTA_SIZE", "2", 1);
    REFUSED(rota_init(NULL, &comm, &call), ROTA_ERR_SETTING, NULL, "ROTA_RANK");
    setenv("ROTA_RANK", "2", 1);
    cr_assert_neq(rota_init(NULL, &comm, &call), ROTA_OK);
    cr_assert_null(comm);
}

Test(arguments, rota_init_threads) {
    rota_comm *comms[1] = {NULL};
    REFUSED(rota_init_threads(1, NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "comms");
    static const int wrong[] = {0, -1, 1025, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        REFUSED(rota_init_threads(wrong[i], comms, NULL), ROTA_ERR_ARGUMENT, NULL, "nranks");
    rota_call call = ROTA_CALL_INIT;
    call.flags = 1;
    REFUSED(rota_init_threads(1, comms, &call), ROTA_ERR_ARGUMENT, NULL, "flags");
    call = (rota_call)ROTA_CALL_INIT;
    rota_request *request = NULL;
    call.request = &request;
    REFUSED(rota_init_threads(1, comms, &call), ROTA_ERR_ARGUMENT, NULL, "request");
    setenv("ROTA_SLICE_BYTES", "many", 1);
    REFUSED(rota_init_threads(1, comms, NULL), ROTA_ERR_SETTING, NULL, "ROTA_SLICE_BYTES");
    setenv("ROTA_SLICE_BYTES", "0", 1);
    setenv("ROTA_TRANSPORT", "pigeon", 1);
    REFUSED(rota_init_threads(1, comms, NULL), ROTA_ERR_SETTING, NULL, "pigeon");
    setenv("ROTA_TRANSPORT", "", 1);
    setenv("ROTA_ALGORITHM", "luck", 1);
    REFUSED(rota_init_threads(1, comms, NULL), ROTA_ERR_SETTING, NULL, "luck");
    cr_assert_null(comms[0]);
    unsetenv("ROTA_ALGORITHM");
    cr_assert_eq(rota_init_threads(1, comms, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_destroy(comms[0]), ROTA_OK);
}

Test(arguments, rota_comm_finalize) {
    struct pair pair;
    pair_open(&pair);
    REFUSED(rota_comm_finalize(NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = -1;
    REFUSED(rota_comm_finalize(pair.comms[0], &call), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    call = (rota_call)ROTA_CALL_INIT;
    rota_request *request = NULL;
    call.request = &request;
    REFUSED(rota_comm_finalize(pair.comms[0], &call), ROTA_ERR_ARGUMENT, NULL, "request");
    pair_works(&pair);
    pair_close(&pair);
    rota_comm *alone = NULL;
    cr_assert_eq(rota_init_threads(1, &alone, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_finalize(alone, NULL), ROTA_OK);
    REFUSED(rota_barrier(alone, NULL), ROTA_ERR_STATE, alone, "finalized");
    REFUSED(rota_comm_finalize(alone, NULL), ROTA_ERR_STATE, alone, "finalized");
    cr_assert_eq(rota_comm_destroy(alone), ROTA_OK);
}

Test(arguments, rota_comm_destroy) {
    struct pair pair;
    pair_open(&pair);
    cr_assert_eq(rota_comm_destroy(NULL), ROTA_OK);
    pair_works(&pair);
    rota_comm *first = pair.comms[0];
    pair_close(&pair);
    REFUSED(rota_comm_destroy(first), ROTA_ERR_ARGUMENT, NULL, "communicator");
    REFUSED(rota_comm_destroy((rota_comm *)&pair), ROTA_ERR_ARGUMENT, NULL, "communicator");
}

Test(arguments, rota_comm_abort) {
    struct pair pair;
    pair_open(&pair);
    REFUSED(rota_comm_abort(NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    pair_works(&pair);
    cr_assert_eq(rota_comm_abort(pair.comms[0]), ROTA_OK);
    cr_assert_eq(rota_comm_abort(pair.comms[0]), ROTA_OK, "a second abort is harmless");
    cr_assert_eq(rota_comm_query(pair.comms[0]), ROTA_ERR_ABORTED);
    pair_close(&pair);
}

Test(arguments, rota_comm_revoke) {
    struct pair pair;
    pair_open(&pair);
    REFUSED(rota_comm_revoke(NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    pair_works(&pair);
    cr_assert_eq(rota_comm_revoke(pair.comms[0]), ROTA_OK);
    cr_assert_eq(rota_comm_revoke(pair.comms[0]), ROTA_OK, "a second one is harmless");
    cr_assert_eq(rota_comm_query(pair.comms[0]), ROTA_ERR_REVOKED);
    REFUSED(rota_barrier(pair.comms[0], NULL), ROTA_ERR_REVOKED, pair.comms[0], "revoked");
    pair_close(&pair);
}

Test(arguments, rota_comm_agree) {
    struct pair pair;
    pair_open(&pair);
    uint64_t flags = 5;
    rota_call call = ROTA_CALL_INIT;
    REFUSED(rota_comm_agree(NULL, &flags, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_agree(pair.comms[0], NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "flags");
    call.timeout_ms = -1;
    REFUSED(rota_comm_agree(pair.comms[0], &flags, &call), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    call = (rota_call)ROTA_CALL_INIT;
    rota_request *request = NULL;
    call.request = &request;
    REFUSED(rota_comm_agree(pair.comms[0], &flags, &call), ROTA_ERR_ARGUMENT, NULL, "request");
    cr_assert_eq(flags, 5);
    pair_works(&pair);
    cr_assert_eq(rota_comm_abort(pair.comms[0]), ROTA_OK);
    REFUSED(rota_comm_agree(pair.comms[0], &flags, NULL), ROTA_ERR_STATE, NULL, "aborted");
    pair_close(&pair);
    rota_comm *alone = NULL;
    cr_assert_eq(rota_init_threads(1, &alone, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_agree(alone, &flags, NULL), ROTA_OK);
    cr_assert_eq(flags, 5);
    cr_assert_eq(rota_comm_destroy(alone), ROTA_OK);
}

Test(arguments, rota_comm_shrink) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *shrunk = NULL;
    rota_call call = ROTA_CALL_INIT;
    REFUSED(rota_comm_shrink(NULL, NULL, &shrunk, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_shrink(pair.comms[0], NULL, NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "shrunk");
    call.timeout_ms = -1;
    REFUSED(rota_comm_shrink(pair.comms[0], NULL, &shrunk, &call), ROTA_ERR_ARGUMENT, NULL,
            "timeout_ms");
    cr_assert_null(shrunk);
    pair_works(&pair);
    pair_close(&pair);
    rota_comm *alone = NULL;
    cr_assert_eq(rota_init_threads(1, &alone, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_shrink(alone, "less", &shrunk, NULL), ROTA_OK);
    int size = 0;
    cr_assert_eq(rota_comm_size(shrunk, &size), ROTA_OK);
    cr_assert_eq(size, 1);
    cr_assert_eq(rota_comm_destroy(alone), ROTA_OK);
    cr_assert_eq(rota_barrier(shrunk, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_destroy(shrunk), ROTA_OK);
}

Test(arguments, rota_comm_rank) {
    struct pair pair;
    pair_open(&pair);
    int rank = -7;
    REFUSED(rota_comm_rank(NULL, &rank), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_rank(pair.comms[0], NULL), ROTA_ERR_ARGUMENT, NULL, "rank");
    cr_assert_eq(rank, -7);
    cr_assert_eq(rota_comm_rank(pair.comms[1], &rank), ROTA_OK);
    cr_assert_eq(rank, 1);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_size) {
    struct pair pair;
    pair_open(&pair);
    int nranks = -7;
    REFUSED(rota_comm_size(NULL, &nranks), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_size(pair.comms[0], NULL), ROTA_ERR_ARGUMENT, NULL, "nranks");
    cr_assert_eq(nranks, -7);
    cr_assert_eq(rota_comm_size(pair.comms[1], &nranks), ROTA_OK);
    cr_assert_eq(nranks, 2);
    pair_close(&pair);
}

Test(arguments, rota_comm_query) {
    REFUSED(rota_comm_query(NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
}

Test(arguments, rota_comm_error) {
    struct pair pair;
    pair_open(&pair);
    rota_error error = ROTA_ERROR_INIT;
    REFUSED(rota_comm_error(NULL, &error), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_error(pair.comms[0], NULL), ROTA_ERR_ARGUMENT, NULL, "error");
    error.size = 4;
    cr_assert_eq(rota_comm_error(pair.comms[0], &error), ROTA_ERR_ARGUMENT);
    /* A smaller record of an older caller is filled as far as it goes. */
    error = (rota_error){.size = offsetof(rota_error, message), .message = "kept"};
    cr_assert_eq(rota_comm_error(pair.comms[0], &error), ROTA_OK);
    cr_assert_eq(error.status, ROTA_OK);
    cr_assert_str_eq(error.message, "kept");
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_set_numerics) {
    struct pair pair;
    pair_open(&pair);
    REFUSED(rota_comm_set_numerics(NULL, ROTA_NUMERICS_FAST), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_set_numerics(pair.comms[0], ROTA_NUMERICS_DEFAULT), ROTA_ERR_ARGUMENT, NULL,
            "numerics");
    REFUSED(rota_comm_set_numerics(pair.comms[0], (rota_numerics)4), ROTA_ERR_ARGUMENT, NULL,
            "numerics");
    for (int r = 0; r < 2; r++)
        cr_assert_eq(rota_comm_set_numerics(pair.comms[r], ROTA_NUMERICS_FAST), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_set_timeout) {
    struct pair pair;
    pair_open(&pair);
    REFUSED(rota_comm_set_timeout(NULL, 1), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_set_timeout(pair.comms[0], 0), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    REFUSED(rota_comm_set_timeout(pair.comms[0], INT64_MIN), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    cr_assert_eq(rota_comm_set_timeout(pair.comms[0], INT64_MAX), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_split) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *child = NULL;
    REFUSED(rota_comm_split(NULL, 0, 0, NULL, &child, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_split(pair.comms[0], 0, 0, NULL, NULL, NULL), ROTA_ERR_ARGUMENT, NULL,
            "child");
    REFUSED(rota_comm_split(pair.comms[0], -5, 0, NULL, &child, NULL), ROTA_ERR_ARGUMENT, NULL,
            "color");
    cr_assert_null(child);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_create_group) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *group = NULL, *comm = pair.comms[0];
    const int both[] = {1, 0}, twice[] = {0, 0}, beyond[] = {0, 2}, other[] = {1};
    REFUSED(rota_comm_create_group(NULL, both, 2, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "comm");
    REFUSED(rota_comm_create_group(comm, NULL, 2, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "ranks");
    REFUSED(rota_comm_create_group(comm, both, 2, 0, NULL, NULL, NULL), ROTA_ERR_ARGUMENT, NULL,
            "group");
    REFUSED(rota_comm_create_group(comm, both, 0, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "nranks");
    REFUSED(rota_comm_create_group(comm, both, 3, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "nranks");
    REFUSED(rota_comm_create_group(comm, both, 2, -1, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "tag");
    REFUSED(rota_comm_create_group(comm, twice, 2, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "twice");
    REFUSED(rota_comm_create_group(comm, beyond, 2, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "2");
    REFUSED(rota_comm_create_group(comm, other, 1, 0, NULL, &group, NULL), ROTA_ERR_ARGUMENT, NULL,
            "not in the list");
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    REFUSED(rota_comm_create_group(comm, both, 2, 0, NULL, &group, &call), ROTA_ERR_ARGUMENT, NULL,
            "request");
    cr_assert_null(group);
    cr_assert_eq(rota_comm_create_group(comm, both, 2, 0, NULL, &group, NULL), ROTA_OK);
    cr_assert_eq(rota_comm_destroy(group), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_duplicate) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *copy = NULL;
    REFUSED(rota_comm_duplicate(NULL, &copy, NULL), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_duplicate(pair.comms[0], NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "copy");
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_memory) {
    struct pair pair;
    pair_open(&pair);
    size_t bytes = 0;
    REFUSED(rota_comm_memory(NULL, &bytes), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_memory(pair.comms[0], NULL), ROTA_ERR_ARGUMENT, NULL, "bytes");
    cr_assert_eq(rota_comm_memory(pair.comms[0], &bytes), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

/* -- groups ------------------------------------------------------------------------------------ */

Test(arguments, rota_group_begin) {
    REFUSED(rota_group_begin(NULL), ROTA_ERR_ARGUMENT, NULL, "group");
}

Test(arguments, rota_group_add) {
    rota_group *outer = NULL, *inner = NULL;
    cr_assert_eq(rota_group_begin(&outer), ROTA_OK);
    cr_assert_eq(rota_group_begin(&inner), ROTA_OK);
    REFUSED(rota_group_add(NULL, inner), ROTA_ERR_ARGUMENT, NULL, "outer");
    REFUSED(rota_group_add(outer, NULL), ROTA_ERR_ARGUMENT, NULL, "inner");
    REFUSED(rota_group_add(outer, outer), ROTA_ERR_ARGUMENT, NULL, "inner");
    cr_assert_eq(rota_group_add(outer, inner), ROTA_OK);
    REFUSED(rota_group_add(outer, inner), ROTA_ERR_STATE, NULL, "in a group");
    cr_assert_eq(rota_group_end(inner, NULL), ROTA_OK);
    cr_assert_eq(rota_group_end(outer, NULL), ROTA_OK);
}

Test(arguments, rota_group_end) {
    struct pair pair;
    pair_open(&pair);
    rota_group *group = NULL;
    rota_request *request = NULL;
    REFUSED(rota_group_end(NULL, NULL), ROTA_ERR_ARGUMENT, NULL, "group");
    cr_assert_eq(rota_group_begin(&group), ROTA_OK);
    rota_call call = ROTA_CALL_INIT;
    call.group = group;
    call.request = &request;
    int32_t value = 0;
    REFUSED(rota_send(&value, 1, ROTA_INT32, 1, 0, pair.comms[0], &call), ROTA_ERR_ARGUMENT, NULL,
            "request");
    REFUSED(rota_group_end(group, NULL), ROTA_ERR_ARGUMENT, NULL, "request");
    cr_assert_eq(rota_group_begin(&group), ROTA_OK);
    call.group = NULL;
    REFUSED(rota_group_end(group, &call), ROTA_ERR_ARGUMENT, NULL, "without operations");
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_group_free) {
    struct pair pair;
    pair_open(&pair);
    rota_group *outer = NULL, *inner = NULL;
    int32_t value = 0;
    rota_call call = ROTA_CALL_INIT;
    cr_assert_eq(rota_group_begin(&outer), ROTA_OK);
    cr_assert_eq(rota_group_begin(&inner), ROTA_OK);
    cr_assert_eq(rota_group_add(outer, inner), ROTA_OK);
    call.group = inner;
    cr_assert_eq(rota_send(&value, 1, ROTA_INT32, 1, 0, pair.comms[0], &call), ROTA_OK);
    REFUSED(rota_group_free(outer), ROTA_ERR_STATE, NULL, "open");
    cr_assert_eq(rota_group_free(inner), ROTA_OK);
    cr_assert_eq(rota_group_free(outer), ROTA_OK);
    cr_assert_eq(rota_group_free(NULL), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

/* -- requests ---------------------------------------------------------------------------------- */

/* A receive that does not end by itself. */
static rota_request *open_request(const struct pair *pair, int32_t *number) {
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    cr_assert_eq(rota_recv(number, 1, ROTA_INT32, 1, 3, pair->comms[0], NULL, &call), ROTA_OK);
    return request;
}

static void end_request(const struct pair *pair, rota_request *request) {
    int32_t number = 5;
    cr_assert_eq(rota_send(&number, 1, ROTA_INT32, 0, 3, pair->comms[1], NULL), ROTA_OK);
    cr_assert_eq(rota_request_wait(request, 0), ROTA_OK);
    cr_assert_eq(rota_request_free(request), ROTA_OK);
    pair_works(pair);
}

Test(arguments, rota_request_test) {
    struct pair pair;
    int32_t number = 0;
    pair_open(&pair);
    rota_request *request = open_request(&pair, &number);
    bool done = true;
    REFUSED(rota_request_test(NULL, &done), ROTA_ERR_ARGUMENT, NULL, "request");
    REFUSED(rota_request_test(request, NULL), ROTA_ERR_ARGUMENT, NULL, "done");
    cr_assert(done, "not touched by a refused call");
    cr_assert_eq(rota_request_test(request, &done), ROTA_OK);
    cr_assert_not(done);
    end_request(&pair, request);
    cr_assert_eq(number, 5);
    pair_close(&pair);
}

Test(arguments, rota_request_cancel) {
    struct pair pair;
    int32_t number = 0;
    pair_open(&pair);
    rota_request *request = open_request(&pair, &number), *sum = NULL;
    REFUSED(rota_request_cancel(NULL), ROTA_ERR_ARGUMENT, NULL, "request");
    int32_t one = 1, sums[2] = {0, 0};
    rota_call call = ROTA_CALL_INIT;
    call.request = &sum;
    cr_assert_eq(rota_all_reduce(&one, &sums[0], 1, ROTA_INT32, ROTA_SUM, pair.comms[0], &call),
                 ROTA_OK);
    REFUSED(rota_request_cancel(sum), ROTA_ERR_UNSUPPORTED, NULL, "all_reduce");
    cr_assert_eq(rota_all_reduce(&one, &sums[1], 1, ROTA_INT32, ROTA_SUM, pair.comms[1], NULL),
                 ROTA_OK);
    cr_assert_eq(rota_request_wait(sum, 0), ROTA_OK);
    cr_assert_eq(rota_request_free(sum), ROTA_OK);
    cr_assert_eq(rota_request_cancel(request), ROTA_OK);
    cr_assert_eq(rota_request_wait(request, 0), ROTA_ERR_ABORTED);
    cr_assert_eq(rota_request_free(request), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_request_wait) {
    struct pair pair;
    int32_t number = 0;
    pair_open(&pair);
    rota_request *request = open_request(&pair, &number);
    REFUSED(rota_request_wait(NULL, 1), ROTA_ERR_ARGUMENT, NULL, "request");
    REFUSED(rota_request_wait(request, -1), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    REFUSED(rota_request_wait(request, 20), ROTA_ERR_TIMEOUT, NULL, "20 ms");
    end_request(&pair, request);
    pair_close(&pair);
}

Test(arguments, rota_request_error) {
    struct pair pair;
    int32_t number = 0;
    pair_open(&pair);
    rota_request *request = open_request(&pair, &number);
    rota_error error = ROTA_ERROR_INIT;
    REFUSED(rota_request_error(NULL, &error), ROTA_ERR_ARGUMENT, NULL, "request");
    REFUSED(rota_request_error(request, NULL), ROTA_ERR_ARGUMENT, NULL, "error");
    REFUSED(rota_request_error(request, &error), ROTA_ERR_STATE, NULL, "not ended");
    error.size = 0;
    cr_assert_eq(rota_send(&number, 1, ROTA_INT32, 0, 3, pair.comms[1], NULL), ROTA_OK);
    cr_assert_eq(rota_request_wait(request, 0), ROTA_OK);
    cr_assert_eq(rota_request_error(request, &error), ROTA_ERR_ARGUMENT);
    error.size = sizeof(error);
    cr_assert_eq(rota_request_error(request, &error), ROTA_OK);
    cr_assert_eq(error.status, ROTA_OK);
    cr_assert_eq(rota_request_free(request), ROTA_OK);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_request_free) {
    cr_assert_eq(rota_request_free(NULL), ROTA_OK);
}

/* -- settings, names, errors ------------------------------------------------------------------- */

Test(arguments, rota_setting_describe) {
    rota_setting_info info = ROTA_SETTING_INFO_INIT;
    REFUSED(rota_setting_describe(-1, &info), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_setting_describe(rota_setting_count(), &info), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_setting_describe(0, NULL), ROTA_ERR_ARGUMENT, NULL, "info");
    info.size = sizeof(info) - 1;
    REFUSED(rota_setting_describe(0, &info), ROTA_ERR_ARGUMENT, NULL, "info");
    cr_assert_null(info.name);
    info.size = sizeof(info);
    for (int i = 0; i < rota_setting_count(); i++) {
        cr_assert_eq(rota_setting_describe(i, &info), ROTA_OK);
        cr_assert(strncmp(info.name, "ROTA_", 5) == 0);
        cr_assert_not_null(info.type, "%s has no type", info.name);
        cr_assert(strlen(info.type) > 0 && strlen(info.help) > 0 && strlen(info.since) > 0);
        cr_assert_not_null(info.default_value);
        cr_assert_not_null(info.range);
    }
}

Test(arguments, rota_setting_value) {
    char value[64] = "kept", origin[64] = "kept";
    const char *name = "ROTA_TIMEOUT_MS";
    REFUSED(rota_setting_value(NULL, value, 64, origin, 64), ROTA_ERR_ARGUMENT, NULL, "name");
    REFUSED(rota_setting_value(name, NULL, 64, origin, 64), ROTA_ERR_ARGUMENT, NULL, "value");
    REFUSED(rota_setting_value(name, value, 0, origin, 64), ROTA_ERR_ARGUMENT, NULL, "value");
    REFUSED(rota_setting_value(name, value, 64, NULL, 64), ROTA_ERR_ARGUMENT, NULL, "origin");
    REFUSED(rota_setting_value(name, value, 64, origin, 0), ROTA_ERR_ARGUMENT, NULL, "origin");
    REFUSED(rota_setting_value("ROTA_LUCK", value, 64, origin, 64), ROTA_ERR_ARGUMENT, NULL,
            "ROTA_LUCK");
    setenv(name, "soon", 1);
    REFUSED(rota_setting_value(name, value, 64, origin, 64), ROTA_ERR_SETTING, NULL, name);
    cr_assert_str_eq(value, "kept");
    setenv(name, "1234567", 1);
    REFUSED(rota_setting_value(name, value, 7, origin, 64), ROTA_ERR_ARGUMENT, NULL, "value");
    REFUSED(rota_setting_value(name, value, 64, origin, 11), ROTA_ERR_ARGUMENT, NULL, "origin");
    cr_assert_str_eq(value, "kept");
    cr_assert_eq(rota_setting_value(name, value, 8, origin, 12), ROTA_OK);
    cr_assert_str_eq(value, "1234567");
    cr_assert_str_eq(origin, "environment");
    /* A secret is not shown. */
    setenv("ROTA_JOB_KEY", "0123456789abcdef", 1);
    cr_assert_eq(rota_setting_value("ROTA_JOB_KEY", value, 64, origin, 64), ROTA_OK);
    cr_assert_null(strstr(value, "0123"));
}

Test(arguments, rota_comm_counters) {
    struct pair pair;
    pair_open(&pair);
    rota_counters counters = ROTA_COUNTERS_INIT;
    REFUSED(rota_comm_counters(NULL, &counters), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_counters(pair.comms[0], NULL), ROTA_ERR_ARGUMENT, NULL, "counters");
    counters.size = sizeof(counters) - 1;
    REFUSED(rota_comm_counters(pair.comms[0], &counters), ROTA_ERR_ARGUMENT, NULL, "counters");
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_comm_peer_counters) {
    struct pair pair;
    pair_open(&pair);
    rota_comm *comm = pair.comms[0];
    rota_peer_counters counters = ROTA_PEER_COUNTERS_INIT;
    REFUSED(rota_comm_peer_counters(NULL, 0, &counters), ROTA_ERR_ARGUMENT, NULL, "comm");
    REFUSED(rota_comm_peer_counters(comm, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "counters");
    REFUSED(rota_comm_peer_counters(comm, -1, &counters), ROTA_ERR_ARGUMENT, NULL, "peer");
    REFUSED(rota_comm_peer_counters(comm, 2, &counters), ROTA_ERR_ARGUMENT, NULL, "peer");
    counters.size = sizeof(counters) - 1;
    counters.waits = 77;
    REFUSED(rota_comm_peer_counters(comm, 1, &counters), ROTA_ERR_ARGUMENT, NULL, "counters");
    cr_assert_eq(counters.waits, 77);
    pair_works(&pair);
    pair_close(&pair);
}

Test(arguments, rota_last_error) {
    rota_error error = {.size = 3};
    cr_assert_eq(rota_last_error(NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_last_error(&error), ROTA_ERR_ARGUMENT);
}

Test(arguments, rota_dtype_parse) {
    rota_dtype dtype = 99;
    REFUSED(rota_dtype_parse("float33", &dtype), ROTA_ERR_ARGUMENT, NULL, "float33");
    REFUSED(rota_dtype_parse("", &dtype), ROTA_ERR_ARGUMENT, NULL, "\"\"");
    cr_assert_eq(rota_dtype_parse(NULL, &dtype), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_dtype_parse("float32", NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(dtype, 99);
    cr_assert_null(rota_dtype_name(ROTA_DTYPE_COUNT));
    cr_assert_eq(rota_dtype_size(ROTA_DTYPE_COUNT), 0);
    for (rota_dtype i = 0; i < ROTA_DTYPE_COUNT; i++) {
        cr_assert_eq(rota_dtype_parse(rota_dtype_name(i), &dtype), ROTA_OK);
        cr_assert_eq(dtype, i);
    }
}

Test(arguments, rota_op_parse) {
    rota_op op = 99;
    REFUSED(rota_op_parse("xor", &op), ROTA_ERR_ARGUMENT, NULL, "xor");
    cr_assert_eq(rota_op_parse(NULL, &op), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_op_parse("sum", NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(op, 99);
    cr_assert_null(rota_op_name(ROTA_OP_COUNT));
}

Test(arguments, rota_kind_parse) {
    rota_kind kind = ROTA_KIND_COUNT;
    REFUSED(rota_kind_parse("all_guess", &kind), ROTA_ERR_ARGUMENT, NULL, "all_guess");
    cr_assert_eq(rota_kind_parse(NULL, &kind), ROTA_ERR_ARGUMENT);
    cr_assert_eq(rota_kind_parse("barrier", NULL), ROTA_ERR_ARGUMENT);
    cr_assert_eq(kind, ROTA_KIND_COUNT);
    cr_assert_null(rota_kind_name(ROTA_KIND_COUNT));
    cr_assert_null(rota_kind_name((rota_kind)-1));
}

Test(names, past_the_end) {
    cr_assert_null(rota_transport_name(-1));
    cr_assert_null(rota_transport_name(1000));
    cr_assert_null(rota_algorithm_name(-1));
    cr_assert_null(rota_algorithm_name(1000));
    cr_assert_null(rota_algorithm_help(-1));
    cr_assert_null(rota_algorithm_help(1000));
    cr_assert_not(rota_algorithm_does(NULL, ROTA_KIND_ALL_REDUCE, 2));
    cr_assert_not(rota_algorithm_does("luck", ROTA_KIND_ALL_REDUCE, 2));
    cr_assert_not(rota_algorithm_does("ring", (rota_kind)77, 2));
    cr_assert_not(rota_algorithm_does("ring", ROTA_KIND_ALL_REDUCE, 0));
    cr_assert_not(rota_algorithm_does("ring", ROTA_KIND_SEND, 2));
    cr_assert_str_eq(rota_status_name((rota_status)1000), "unknown");
    cr_assert_str_eq(rota_status_name((rota_status)-1), "unknown");
    cr_assert(rota_usable_cores() >= 1);
    cr_assert_not_null(rota_isa_name());
    cr_assert_not_null(rota_version());
}

Test(arguments, rota_request_wait_all) {
    struct pair pair;
    pair_open(&pair);
    int32_t number = 0;
    rota_request *requests[2] = {open_request(&pair, &number), NULL};
    REFUSED(rota_request_wait_all(NULL, 1, 0), ROTA_ERR_ARGUMENT, NULL, "requests");
    REFUSED(rota_request_wait_all(requests, 0, 0), ROTA_ERR_ARGUMENT, NULL, "count");
    REFUSED(rota_request_wait_all(requests, 2, 0), ROTA_ERR_ARGUMENT, NULL, "requests[1]");
    REFUSED(rota_request_wait_all(requests, 1, -1), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    REFUSED(rota_request_wait_all(requests, 1, 10), ROTA_ERR_TIMEOUT, NULL, "10 ms");
    cr_assert_eq(rota_request_free(requests[0]), ROTA_OK);
    pair_close(&pair);
}

Test(arguments, rota_request_wait_any) {
    struct pair pair;
    pair_open(&pair);
    int32_t number = 0;
    int index = -1;
    rota_request *requests[1] = {open_request(&pair, &number)};
    REFUSED(rota_request_wait_any(NULL, 1, 0, &index), ROTA_ERR_ARGUMENT, NULL, "requests");
    REFUSED(rota_request_wait_any(requests, 1, 0, NULL), ROTA_ERR_ARGUMENT, NULL, "index");
    REFUSED(rota_request_wait_any(requests, 1, -1, &index), ROTA_ERR_ARGUMENT, NULL, "timeout_ms");
    REFUSED(rota_request_wait_any(requests, 1, 10, &index), ROTA_ERR_TIMEOUT, NULL, "10 ms");
    cr_assert_eq(index, -1);
    cr_assert_eq(rota_request_free(requests[0]), ROTA_OK);
    pair_close(&pair);
}
