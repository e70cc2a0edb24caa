/* Ranks that die, leave, abort or fall silent: what the others are told, and when. */
#include "kit.h"
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static const char *const transports[] = {"shm", "tcp"};

static int repeats(int few) {
    const char *wanted = getenv("ROTA_TEST_CYCLES");
    return wanted != NULL ? atoi(wanted) : few;
}

static unsigned draw(void) {
    static unsigned state = 4711;
    state = state * 1103515245 + 12345;
    return state >> 16;
}

static bool names(const rota_error *error, int rank) {
    for (int i = 0; i < error->culprit_count; i++)
        if (error->culprits[i] == rank)
            return true;
    return false;
}

static bool names_others(const rota_error *error, int rank) {
    for (int i = 0; i < error->culprit_count; i++)
        if (error->culprits[i] != rank)
            return true;
    return false;
}

/* -- C46 --------------------------------------------------------------------------------------- */

enum load { LARGE_SUMS, SMALL_SUMS, BARRIERS, NOTHING, LOADS };

/* Operations until one fails, and what follows that. */
static rota_status work_until_error(struct kit_seat *seat) {
    const enum load *load = seat->job->arg;
    rota_status status = ROTA_OK;
    int32_t in[2] = {1, 2}, out[2];
    if (*load == NOTHING && seat->rank == 2)
        for (;;)
            pause();
    while (status == ROTA_OK) {
        kit_call_began(seat);
        if (*load == LARGE_SUMS)
            status = kit_sum(seat, 64 * MIB / sizeof(int32_t));
        else if (*load == BARRIERS)
            status = rota_barrier(seat->comm, NULL);
        else
            status = rota_all_reduce(in, out, 2, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    }
    rota_comm_error(seat->comm, &seat->outcome->error);
    int64_t began = kit_now_ms();
    CHECK(rota_barrier(seat->comm, NULL) != ROTA_OK && kit_now_ms() - began < 500,
          "a call after the failure took %lld ms", (long long)(kit_now_ms() - began));
    return status;
}

static void check_survivors(struct kit_job *job, int victim, int64_t killed_ms, const char *what) {
    int failed = kit_failures();
    kit_job_wait(job, 20000);
    for (int r = 0; r < job->nranks; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        if (r == victim)
            continue;
        CHECK(outcome->wait_status == 0, "%s: rank %d ended with %#x", what, r,
              (unsigned)outcome->wait_status);
        CHECK(outcome->init == ROTA_OK && outcome->body == ROTA_ERR_PEER, "%s: rank %d: %s, %s",
              what, r, rota_status_name(outcome->init), rota_status_name(outcome->body));
        CHECK(outcome->ended_ms - killed_ms < 5000, "%s: rank %d returned after %lld ms", what, r,
              (long long)(outcome->ended_ms - killed_ms));
        CHECK(names(&outcome->error, victim) && !names_others(&outcome->error, victim),
              "%s: rank %d does not name rank %d alone", what, r, victim);
        CHECK(outcome->destroy_ms < 2000, "%s: rank %d was destroyed in %lld ms", what, r,
              (long long)outcome->destroy_ms);
        CHECK(outcome->wrong == 0, "%s: rank %d got wrong results", what, r);
    }
    CHECK(kit_entries("/dev/shm") == 0, "%s: files are left", what);
    if (kit_failures() > failed)
        kit_tell(job);
}

static void wait_for_start(const struct kit_job *job) {
    for (int r = 0; r < job->nranks; r++)
        for (int i = 0; i < 5000 && atomic_load(&job->outcomes[r].stage) < 2; i++)
            kit_sleep_ms(1);
}

static void C46_peer_is_killed(void) {
    static const char *const loads[] = {"64 MiB", "8 B", "barrier", "before its first operation"};
    char what[96];
    for (int i = 0; i < repeats(8); i++) {
        enum load load = (enum load)(i / 2 % LOADS);
        struct kit_job job = {.nranks = 4,
                              .transport = transports[i % 2],
                              .body = work_until_error,
                              .arg = &load,
                              .timeout_ms = 60000};
        kit_job_start(&job);
        wait_for_start(&job);
        unsigned delay = draw() % 300;
        kit_sleep_ms(delay);
        int64_t now = kit_now_ms();
        kill(job.outcomes[2].pid, SIGKILL);
        snprintf(what, sizeof(what), "%s, %s, %u ms", transports[i % 2], loads[load], delay);
        check_survivors(&job, 2, now, what);
        kit_job_end(&job);
    }
}

/* -- C48 --------------------------------------------------------------------------------------- */

static void *abort_soon(void *arg) {
    const struct kit_seat *seat = arg;
    kit_sleep_ms(100);
    int64_t began = kit_now_ms();
    CHECK(rota_comm_abort(seat->comm) == ROTA_OK, "abort");
    CHECK(kit_now_ms() - began < 2000, "abort took %lld ms", (long long)(kit_now_ms() - began));
    return NULL;
}

/* Rank 0 blocks and is aborted by two threads; ranks 1 and 2 never call. */
static rota_status abort_while_blocked(struct kit_seat *seat) {
    const size_t *count = seat->job->arg;
    pthread_t threads[2];
    if (seat->rank != 0) {
        kit_sleep_ms(400);
        return ROTA_OK;
    }
    int32_t *in = calloc(*count, sizeof(*in)), *out = calloc(*count, sizeof(*out));
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, abort_soon, seat);
    kit_call_began(seat);
    rota_status status = rota_all_reduce(in, out, *count, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    int64_t took = kit_now_ms() - seat->outcome->began_ms;
    free(in); /* nobody touches them any more */
    free(out);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    CHECK(status == ROTA_ERR_ABORTED && took < 2100, "%s after %lld ms", rota_status_name(status),
          (long long)took);
    CHECK(rota_comm_query(seat->comm) == ROTA_ERR_ABORTED, "query");
    return ROTA_OK;
}

static void C48_abort_while_blocked(void) {
    for (int i = 0; i < repeats(8); i++) {
        size_t count = i / 2 % 2 == 0 ? 2 : 16 * MIB;
        struct kit_job job = {.nranks = 3,
                              .transport = transports[i % 2],
                              .body = abort_while_blocked,
                              .arg = &count,
                              .timeout_ms = 30000};
        kit_job_run(&job, 20000);
        kit_expect_success(&job, transports[i % 2]);
        kit_job_end(&job);
    }
}

/* -- C49 --------------------------------------------------------------------------------------- */

static rota_status leave_waiting_peers(struct kit_seat *seat) {
    enum { BYTES = 64 * MIB };
    char *data = calloc(BYTES, 1), word[8] = {0};
    rota_status status = rota_barrier(seat->comm, NULL);
    if (seat->rank == 1) {
        if (status == ROTA_OK)
            status = rota_recv(word, 8, ROTA_UINT8, 0, 1, seat->comm, NULL, NULL);
        if (status == ROTA_OK)
            status = rota_send(word, 8, ROTA_UINT8, 2, 2, seat->comm, NULL);
        rota_comm_abort(seat->comm);
        _exit(status == ROTA_OK ? 0 : 9);
    }
    kit_call_began(seat);
    if (seat->rank == 0) {
        status = rota_send(word, 8, ROTA_UINT8, 1, 1, seat->comm, NULL);
        if (status == ROTA_OK)
            status = rota_recv(word, 8, ROTA_UINT8, 1, 3, seat->comm, NULL, NULL);
    } else {
        status = rota_recv(word, 8, ROTA_UINT8, 1, 2, seat->comm, NULL, NULL);
        if (status == ROTA_OK)
            status = rota_send(data, BYTES, ROTA_UINT8, 1, 4, seat->comm, NULL);
    }
    free(data);
    return status;
}

static void C49_peers_of_an_aborted_rank(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 3,
                              .transport = transports[t],
                              .body = leave_waiting_peers,
                              .timeout_ms = 10000};
        kit_job_run(&job, 20000);
        int failed = kit_failures();
        CHECK(job.outcomes[1].wait_status == 0, "rank 1 ended with %#x",
              (unsigned)job.outcomes[1].wait_status);
        for (int r = 0; r < 3; r += 2) {
            const struct kit_outcome *outcome = &job.outcomes[r];
            CHECK(outcome->body != ROTA_OK && outcome->ended_ms - outcome->began_ms < 5000,
                  "%s: rank %d: %s after %lld ms", transports[t], r,
                  rota_status_name(outcome->body),
                  (long long)(outcome->ended_ms - outcome->began_ms));
            CHECK(names(&outcome->error, 1), "%s: rank %d does not name rank 1", transports[t], r);
        }
        if (kit_failures() > failed)
            kit_tell(&job);
    }
}

/* -- C50 --------------------------------------------------------------------------------------- */

static void *destroy_elsewhere(void *arg) {
    CHECK(rota_comm_destroy(arg) == ROTA_OK, "destroy by another thread");
    return NULL;
}

static rota_status destroy_in_any_order(struct kit_seat *seat) {
    rota_comm *child = NULL, *other = NULL, *world = seat->comm;
    pthread_t thread;
    int32_t out = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    rota_status status = rota_comm_split(world, 0, 0, NULL, &child, NULL);
    if (status == ROTA_OK)
        status = rota_comm_duplicate(world, &other, NULL);
    CHECK(rota_comm_destroy(NULL) == ROTA_OK, "destroy of NULL");
    if (status == ROTA_OK)
        status = rota_barrier(world, NULL);
    if (status != ROTA_OK)
        return status;
    seat->comm = child;
    CHECK(rota_comm_destroy(world) == ROTA_OK, "destroy of the parent");
    CHECK(rota_comm_destroy(world) == ROTA_ERR_ARGUMENT, "a second destroy");
    status = kit_sums(seat);
    /* With an operation outstanding that cannot end; unless a peer has destroyed its side before.
     */
    rota_status started =
        rota_recv(&out, 1, ROTA_INT32, (seat->rank + 1) % 3, 9, other, NULL, &call);
    CHECK(rota_comm_destroy(other) == ROTA_OK, "destroy with a request");
    CHECK(started != ROTA_OK || rota_request_wait(request, 2000) != ROTA_OK,
          "the request ended well");
    rota_request_free(request);
    if (status != ROTA_OK)
        return status;
    if (seat->rank == 1)
        _exit(0); /* without a word */
    kit_sleep_ms(100);
    int64_t began = kit_now_ms();
    seat->comm = NULL;
    pthread_create(&thread, NULL, destroy_elsewhere, child);
    pthread_join(thread, NULL);
    CHECK(kit_now_ms() - began < 2000, "destroy took %lld ms", (long long)(kit_now_ms() - began));
    return ROTA_OK;
}

static void C50_destroy_in_any_order(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {
            .nranks = 3, .transport = transports[t], .body = destroy_in_any_order};
        kit_job_run(&job, 20000);
        for (int r = 0; r < 3; r++)
            CHECK(job.outcomes[r].wait_status == 0 && job.outcomes[r].body == ROTA_OK &&
                      job.outcomes[r].wrong == 0,
                  "%s: rank %d: wait status %#x, %s", transports[t], r,
                  (unsigned)job.outcomes[r].wait_status, rota_status_name(job.outcomes[r].body));
        if (kit_failures() > 0)
            kit_tell(&job);
    }
}

/* -- C55 --------------------------------------------------------------------------------------- */

static rota_status one_rank_sleeps(struct kit_seat *seat) {
    const char *algorithm = seat->job->arg;
    enum { COUNT = 30000 };
    static int32_t in[COUNT], out[COUNT];
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = algorithm;
    rota_status status = rota_barrier(seat->comm, NULL);
    if (status != ROTA_OK)
        return status;
    if (seat->rank == 5) {
        kit_sleep_ms(4500);
        return ROTA_OK;
    }
    kit_call_began(seat);
    return rota_all_reduce(in, out, COUNT, ROTA_INT32, ROTA_SUM, seat->comm, &call);
}

static void absent_rank(const char *transport, const char *algorithm) {
    enum { T_MS = 1500 };
    char what[64];
    struct kit_job job = {.nranks = 8,
                          .transport = transport,
                          .body = one_rank_sleeps,
                          .arg = (void *)(uintptr_t)algorithm,
                          .timeout_ms = T_MS};
    int failed = kit_failures();
    bool named = false;
    kit_job_run(&job, 20000);
    snprintf(what, sizeof(what), "%s by %s", transport, algorithm != NULL ? algorithm : "default");
    for (int r = 0; r < 8; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        const char *text = outcome->error.message;
        if (r == 5)
            continue;
        CHECK(outcome->body != ROTA_OK && outcome->ended_ms - outcome->began_ms < T_MS + 2000,
              "%s: rank %d: %s after %lld ms", what, r, rota_status_name(outcome->body),
              (long long)(outcome->ended_ms - outcome->began_ms));
        CHECK(strstr(text, "all_reduce") != NULL && strstr(text, "30000") != NULL &&
                  strstr(text, "int32") != NULL && strstr(text, "of 8") != NULL,
              "%s: rank %d's text: %s", what, r, text);
        named |= names(&outcome->error, 5);
        CHECK(!names_others(&outcome->error, 5), "%s: rank %d names another: %s", what, r, text);
    }
    CHECK(named, "%s: nobody names rank 5", what);
    if (kit_failures() > failed)
        kit_tell(&job);
    kit_job_end(&job);
}

static void C55_absent_rank(void) {
    absent_rank("shm", NULL);
    absent_rank("tcp", NULL);
}

static void C55_absent_rank_every_algorithm(void) {
    for (int a = 0; rota_algorithm_name(a) != NULL; a++)
        if (rota_algorithm_does(rota_algorithm_name(a), ROTA_KIND_ALL_REDUCE, 8))
            for (int t = 0; t < 2; t++)
                absent_rank(transports[t], rota_algorithm_name(a));
}

/* -- an isolated rank -------------------------------------------------------------------------- */

enum { STOPPED = 1, DONE = 2 };

/* Rank 0 waits for ranks that are stopped, and is isolated; they wait for it all the time, and have
 * asked so often already that they will not ask again for seconds. */
static rota_status wait_for_isolated(struct kit_seat *seat) {
    const _Atomic int *state = seat->job->arg;
    int32_t in = 1, out = 0;
    rota_status status = rota_barrier(seat->comm, NULL);
    kit_call_began(seat);
    if (seat->rank != 0 || status != ROTA_OK)
        return status != ROTA_OK
                   ? status
                   : rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = 400;
    while (atomic_load(state) != STOPPED)
        kit_sleep_ms(5);
    status = rota_recv(&in, 1, ROTA_INT32, 1, 0, seat->comm, NULL, &call);
    CHECK(status == ROTA_ERR_ISOLATED, "rank 0: %s", rota_status_name(status));
    atomic_store(&seat->outcome->values[0], 1);
    for (int i = 0; i < 2000 && atomic_load(state) != DONE; i++)
        kit_sleep_ms(5);
    return ROTA_OK;
}

static void isolated_rank(const char *transport) {
    _Atomic int *state = kit_shared(sizeof(*state));
    struct kit_job job = {.nranks = 3,
                          .transport = transport,
                          .body = wait_for_isolated,
                          .arg = state,
                          .timeout_ms = 60000};
    int failed = kit_failures();
    kit_job_start(&job);
    wait_for_start(&job);
    kit_sleep_ms(1500);
    for (int r = 1; r < 3; r++)
        kill(job.outcomes[r].pid, SIGSTOP);
    atomic_store(state, STOPPED);
    for (int i = 0; i < 1000 && atomic_load(&job.outcomes[0].values[0]) == 0; i++)
        kit_sleep_ms(5);
    int64_t since = kit_now_ms();
    for (int r = 1; r < 3; r++)
        kill(job.outcomes[r].pid, SIGCONT);
    for (int r = 1; r < 3; r++)
        for (int i = 0; i < 1000 && atomic_load(&job.outcomes[r].stage) < 3; i++)
            kit_sleep_ms(5);
    atomic_store(state, DONE);
    kit_job_wait(&job, 20000);
    for (int r = 1; r < 3; r++) {
        const struct kit_outcome *outcome = &job.outcomes[r];
        CHECK(outcome->body == ROTA_ERR_PEER && outcome->ended_ms - since < 3000,
              "%s: rank %d: %s after %lld ms", transport, r, rota_status_name(outcome->body),
              (long long)(outcome->ended_ms - since));
        CHECK(names(&outcome->error, 0) && !names_others(&outcome->error, 0) &&
                  strstr(outcome->error.message, "isolated") != NULL,
              "%s: rank %d: %s", transport, r, outcome->error.message);
    }
    if (kit_failures() > failed)
        kit_tell(&job);
    kit_job_end(&job);
}

static void isolated_rank_is_named(void) {
    for (int t = 0; t < 2; t++)
        isolated_rank(transports[t]);
}

/* -- C91 --------------------------------------------------------------------------------------- */

/* Ranks 0 and 1 send to rank 2, which is killed meanwhile, or before. */
static rota_status send_to_victim(struct kit_seat *seat) {
    enum { BYTES = 64 * MIB };
    const bool *idle = seat->job->arg;
    char *data = calloc(BYTES, 1);
    rota_status status = rota_barrier(seat->comm, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (*idle && seat->rank < 2)
        kit_sleep_ms(300);
    for (int i = 0; status == ROTA_OK && i < 50; i++) {
        if (seat->rank < 2)
            status = rota_send(data, BYTES, ROTA_UINT8, 2, 0, seat->comm, NULL);
        else if (*idle)
            pause();
        else
            status = rota_recv(data, BYTES, ROTA_UINT8, i % 2, 0, seat->comm, NULL, NULL);
    }
    free(data);
    return status;
}

static void C91_no_broken_pipe(void) {
    for (int i = 0; i < repeats(6); i++) {
        bool idle = i % 2 != 0;
        struct kit_job job = {.nranks = 3,
                              .transport = "tcp",
                              .body = send_to_victim,
                              .arg = kit_shared(1),
                              .timeout_ms = 30000};
        *(bool *)job.arg = idle;
        kit_job_start(&job);
        wait_for_start(&job);
        kit_sleep_ms(50 + draw() % 150);
        int64_t now = kit_now_ms();
        kill(job.outcomes[2].pid, SIGKILL);
        check_survivors(&job, 2, now, idle ? "idle" : "sending");
        kit_job_end(&job);
    }
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C46_peer_is_killed", C46_peer_is_killed, 200},
        {"C48_abort_while_blocked", C48_abort_while_blocked, 120},
        {"C49_peers_of_an_aborted_rank", C49_peers_of_an_aborted_rank, 60},
        {"C50_destroy_in_any_order", C50_destroy_in_any_order, 60},
        {"C55_absent_rank", C55_absent_rank, 60},
        {"C55_absent_rank_every_algorithm", C55_absent_rank_every_algorithm, 300},
        {"isolated_rank_is_named", isolated_rank_is_named, 60},
        {"C91_no_broken_pipe", C91_no_broken_pipe, 120},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
