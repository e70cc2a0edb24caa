/* Ranks that come late, stopped, twice, with other numbers, or never; clocks that jump; host names
 * that are nearly equal. */
#include "kit.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* -- C54: a wall clock that jumps ---------------------------------------------------------------
 * In place of the C library's: all code of this program sees it, the library's too. */

static int clock_jumps; /* set in the ranks */

/* One hour ahead in every odd second, one behind in every even one. */
static time_t jumped(time_t seconds) {
    return clock_jumps ? seconds + (kit_now_ms() / 1000 % 2 == 0 ? -3600 : 3600) : seconds;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = (int)syscall(SYS_clock_gettime, clock, time);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        time->tv_sec = jumped(time->tv_sec);
    return result;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    int result = (int)syscall(SYS_gettimeofday, time, NULL);
    if (result == 0)
        time->tv_sec = jumped(time->tv_sec);
    return result;
}

time_t time(time_t *result) {
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
    now.tv_sec = jumped(now.tv_sec);
    if (result != NULL)
        *result = now.tv_sec;
    return now.tv_sec;
}

static void jump(const struct kit_job *job, int rank) {
    (void)job;
    (void)rank;
    clock_jumps = 1;
    kit_deny_wall_clock_waits();
}

/* Sums with pauses in which the peer is waited for, so that all ways of waiting are taken. */
static rota_status sums_with_pauses(struct kit_seat *seat) {
    rota_status status = kit_sums(seat);
    for (int i = 0; status == ROTA_OK && i < 2; i++) {
        if (seat->rank == i)
            kit_sleep_ms(1200);
        status = kit_sum(seat, i == 0 ? 10 : 100000);
    }
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    if (status == ROTA_OK)
        status = rota_barrier(seat->comm, &call);
    if (status == ROTA_OK)
        status = rota_request_wait(request, 5000);
    rota_request_free(request);
    return status;
}

static void C54_clock_jumps(void) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 2,
                              .root = "127.0.0.1:5000",
                              .transport = transports[t],
                              .prepare = jump,
                              .body = sums_with_pauses};
        kit_job_prepare(&job);
        kit_rank_start(&job, 0);
        kit_sleep_ms(2000);
        kit_rank_start(&job, 1);
        kit_job_wait(&job, 20000);
        kit_expect_success(&job, transports[t]);
    }
}

static void C54_deadlines_by_the_steady_clock(void) {
    struct kit_job job = {
        .nranks = 2, .root = "127.0.0.1:5000", .prepare = jump, .init_timeout_ms = 3000};
    kit_job_prepare(&job);
    kit_rank_start(&job, 0);
    kit_job_wait(&job, 20000);
    const struct kit_outcome *outcome = &job.outcomes[0];
    CHECK(outcome->init == ROTA_ERR_TIMEOUT && outcome->init_ms >= 3000 && outcome->init_ms < 5000,
          "%s after %lld ms, wait status %#x", rota_status_name(outcome->init),
          (long long)outcome->init_ms, (unsigned)outcome->wait_status);
}

/* -- C56 --------------------------------------------------------------------------------------- */

static void check_patience(const struct kit_job *job, int64_t late_ms, const char *what) {
    kit_expect_success(job, what);
    for (int r = 0; r < job->nranks; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        if (outcome->init_ms >= late_ms / 2)
            CHECK(outcome->init_cpu_ms < outcome->init_ms / 10,
                  "%s: rank %d used the processor for %lld of %lld ms", what, r,
                  (long long)outcome->init_cpu_ms, (long long)outcome->init_ms);
    }
}

static void one_is_late(int late_rank, int64_t late_ms, const char *root) {
    char what[64];
    struct kit_job job = {.nranks = 4, .root = root, .init_timeout_ms = 60000};
    kit_job_prepare(&job);
    for (int r = 0; r < 4; r++)
        if (r != late_rank)
            kit_rank_start(&job, r);
    kit_sleep_ms(late_ms);
    kit_rank_start(&job, late_rank);
    kit_job_wait(&job, 20000);
    snprintf(what, sizeof(what), "rank %d is %lld ms late at %s", late_rank, (long long)late_ms,
             root);
    check_patience(&job, late_ms, what);
}

static void root_is_stopped(int64_t stopped_ms) {
    struct kit_job job = {.nranks = 4, .root = "127.0.0.1:5000", .init_timeout_ms = 60000};
    kit_job_prepare(&job);
    for (int r = 0; r < 3; r++)
        kit_rank_start(&job, r);
    kit_sleep_ms(300);
    kill(job.outcomes[0].pid, SIGSTOP);
    kit_rank_start(&job, 3);
    kit_sleep_ms(stopped_ms);
    kill(job.outcomes[0].pid, SIGCONT);
    kit_job_wait(&job, 20000);
    check_patience(&job, stopped_ms, "rank 0 is stopped");
}

static void C56_late_ranks(void) {
    one_is_late(0, 2500, "127.0.0.1:5000");
    one_is_late(0, 1500, "@rota-test-late");
    one_is_late(3, 2500, "127.0.0.1:5000");
    struct kit_job job = {.nranks = 4, .root = "127.0.0.1:5000", .init_timeout_ms = 60000};
    kit_job_run(&job, 20000);
    kit_expect_success(&job, "all at once");
    root_is_stopped(2500);
}

static void C56_very_late_ranks(void) {
    one_is_late(0, 20000, "127.0.0.1:5000");
    one_is_late(3, 20000, "127.0.0.1:5000");
    root_is_stopped(15000);
}

/* -- C57 --------------------------------------------------------------------------------------- */

/* As one of four, of whom one never comes; then as one of three. */
static rota_status miss_one(struct kit_seat *seat) {
    rota_comm *comm = NULL;
    rota_error error = ROTA_ERROR_INIT;
    char rank[12];
    snprintf(rank, sizeof(rank), "%d", seat->rank);
    setenv("ROTA_ROOT", "127.0.0.1:5000", 1);
    setenv("ROTA_JOB_KEY", "the key of this test", 1);
    setenv("ROTA_RANK", rank, 1);
    setenv("ROTA_SIZE", "4", 1);
    setenv("ROTA_INIT_TIMEOUT_MS", "2000", 1);
    rota_barrier(seat->comm, NULL);
    int descriptors = kit_entries("/proc/self/fd");
    int64_t began = kit_now_ms();
    rota_status status = rota_init(NULL, &comm, NULL);
    int64_t took = kit_now_ms() - began;
    rota_last_error(&error);
    CHECK(status == ROTA_ERR_TIMEOUT && took < 2000 + 2000, "rank %d: %s after %lld ms", seat->rank,
          rota_status_name(status), (long long)took);
    CHECK(error.culprit_count == 1 && error.culprits[0] == 3, "rank %d: %s", seat->rank,
          error.message);
    CHECK(kit_entries("/proc/self/fd") == descriptors, "rank %d: %d descriptors, then %d",
          seat->rank, descriptors, kit_entries("/proc/self/fd"));
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = seat->nranks;
    config.rank = seat->rank;
    config.id = seat->job->arg;
    if (seat->rank == 0)
        rota_unique_id_create(seat->job->arg);
    rota_barrier(seat->comm, NULL);
    status = rota_init(&config, &comm, NULL);
    rota_comm *user = seat->comm;
    seat->comm = comm;
    if (status == ROTA_OK)
        status = kit_sums(seat);
    rota_comm_destroy(comm);
    seat->comm = user;
    return status == ROTA_OK ? rota_barrier(user, NULL) : status;
}

static void C57_missing_rank_then_without_it(void) {
    struct kit_job job = {.nranks = 3, .body = miss_one, .arg = kit_shared(sizeof(rota_unique_id))};
    kit_job_run(&job, 20000);
    kit_expect_success(&job, "three ranks and a missing fourth");
}

/* -- C58 --------------------------------------------------------------------------------------- */

/* Joins a second time by the same id, while the first communicator lives and after its end. */
static rota_status use_id_again(struct kit_seat *seat) {
    rota_unique_id *id = seat->job->arg;
    rota_config config = ROTA_CONFIG_INIT;
    rota_comm *first = NULL;
    rota_call call = ROTA_CALL_INIT;
    if (seat->rank == 0)
        CHECK(rota_unique_id_create(id) == ROTA_OK, "no id");
    rota_barrier(seat->comm, NULL);
    config.nranks = seat->nranks;
    config.rank = seat->rank;
    config.id = id;
    call.timeout_ms = 2000;
    rota_status status = rota_init(&config, &first, &call);
    if (status != ROTA_OK)
        return status;
    for (int again = 0; again < 2; again++) {
        rota_comm *second = NULL;
        rota_error error = ROTA_ERROR_INIT;
        int64_t began = kit_now_ms();
        status = rota_init(&config, &second, &call);
        rota_last_error(&error);
        CHECK(kit_now_ms() - began < 2000 + 2000, "took %lld ms",
              (long long)(kit_now_ms() - began));
        CHECK(status == ROTA_OK || error.message[0] != 0, "%s without a message",
              rota_status_name(status));
        if (status == ROTA_OK)
            rota_comm_destroy(second);
        rota_comm *user = seat->comm;
        seat->comm = again == 0 ? first : user;
        CHECK(kit_sum(seat, 500) == ROTA_OK, "the first communicator is harmed");
        seat->comm = user;
        rota_barrier(seat->comm, NULL);
        if (again == 0)
            rota_comm_destroy(first);
    }
    return kit_sums(seat);
}

static void C58_id_used_twice(void) {
    struct kit_job job = {
        .nranks = 2, .body = use_id_again, .arg = kit_shared(sizeof(rota_unique_id))};
    kit_job_run(&job, 30000);
    kit_expect_success(&job, "an id used twice");
}

static int compare_ids(const void *a, const void *b) {
    return memcmp(a, b, sizeof(rota_unique_id));
}

static void C58_ids_of_many_processes(void) {
    enum { OWN = 1000, EACH = 100, PROCESSES = 8, ALL = OWN + EACH * PROCESSES };
    rota_unique_id *ids = kit_shared(ALL * sizeof(*ids));
    pid_t pids[PROCESSES];
    for (int i = 0; i < OWN; i++)
        CHECK(rota_unique_id_create(&ids[i]) == ROTA_OK, "id %d", i);
    for (int p = 0; p < PROCESSES; p++) {
        pids[p] = fork();
        for (int i = 0; pids[p] == 0 && i < EACH; i++)
            CHECK(rota_unique_id_create(&ids[OWN + p * EACH + i]) == ROTA_OK, "id %d of %d", i, p);
        if (pids[p] == 0)
            _exit(0);
    }
    for (int p = 0; p < PROCESSES; p++)
        waitpid(pids[p], NULL, 0);
    qsort(ids, ALL, sizeof(*ids), compare_ids);
    for (int i = 1; i < ALL; i++)
        CHECK(compare_ids(&ids[i - 1], &ids[i]) != 0, "ids %d and %d are equal", i - 1, i);
}

/* -- C59 --------------------------------------------------------------------------------------- */

struct claim {
    const char *name;
    int nranks;           /* processes */
    const char *ranks[3]; /* what each says of itself */
    const char *sizes[3];
    const char *protocols[3]; /* NULL: the real one */
    bool at_once[3];          /* its own arguments are impossible */
    const char *words[2];     /* that every message must hold */
};

static void claim_to_be(const struct kit_job *job, int rank) {
    const struct claim *claim = job->arg;
    setenv("ROTA_RANK", claim->ranks[rank], 1);
    setenv("ROTA_SIZE", claim->sizes[rank], 1);
    if (claim->protocols[rank] != NULL)
        setenv("ROTA_TEST_PROTOCOL", claim->protocols[rank], 1);
}

static void C59_contradicting_arguments(void) {
    static struct claim claims[] = {
        {.name = "two ranks 1",
         .nranks = 3,
         .ranks = {"0", "1", "1"},
         .sizes = {"3", "3", "3"},
         .words = {"rank 1", ""}},
        {.name = "one says 4",
         .nranks = 3,
         .ranks = {"0", "1", "2"},
         .sizes = {"3", "4", "3"},
         .words = {"3", "4"}},
        {.name = "another protocol",
         .nranks = 3,
         .ranks = {"0", "1", "2"},
         .sizes = {"3", "3", "3"},
         .protocols = {NULL, NULL, "77"},
         .words = {"77", "protocol"}},
        {.name = "rank -1 of 1",
         .nranks = 1,
         .ranks = {"-1"},
         .sizes = {"3"},
         .at_once = {true},
         .words = {"", ""}},
        {.name = "rank 3 of 3",
         .nranks = 1,
         .ranks = {"3"},
         .sizes = {"3"},
         .at_once = {true},
         .words = {"3", ""}},
        {.name = "no ranks",
         .nranks = 1,
         .ranks = {"0"},
         .sizes = {"0"},
         .at_once = {true},
         .words = {"", ""}},
    };
    for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
        const struct claim *claim = &claims[i];
        struct kit_job job = {.nranks = claim->nranks,
                              .root = "127.0.0.1:5000",
                              .prepare = claim_to_be,
                              .arg = &claims[i],
                              .init_timeout_ms = 3000};
        kit_job_run(&job, 20000);
        int failed = kit_failures();
        for (int r = 0; r < claim->nranks; r++) {
            const struct kit_outcome *outcome = &job.outcomes[r];
            CHECK(outcome->init != ROTA_OK && outcome->init_ms < (claim->at_once[r] ? 500 : 5000),
                  "%s: process %d: %s after %lld ms", claim->name, r,
                  rota_status_name(outcome->init), (long long)outcome->init_ms);
            CHECK(strstr(outcome->error.message, claim->words[0]) != NULL &&
                      strstr(outcome->error.message, claim->words[1]) != NULL,
                  "%s: process %d: %s", claim->name, r, outcome->error.message);
        }
        if (kit_failures() > failed)
            kit_tell(&job);
    }
}

/* -- C68 --------------------------------------------------------------------------------------- */

static void take_host_id(const struct kit_job *job, int rank) {
    const char *const *ids = job->arg;
    setenv("ROTA_HOST_ID", ids[rank], 1);
}

/* What this process has mapped of others' shared memory: all segments but its own two. */
static int foreign_segments(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[512];
    unsigned long seen[32];
    int count = 0;
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL) {
        unsigned long inode = 0;
        bool known = false;
        if (strstr(line, "memfd:rota") == NULL || sscanf(line, "%*s %*s %*s %*s %lu", &inode) != 1)
            continue;
        for (int i = 0; i < count; i++)
            known |= seen[i] == inode;
        if (!known && count < 32)
            seen[count++] = inode;
    }
    if (maps != NULL)
        fclose(maps);
    return count - 2;
}

static rota_status only_by_tcp(struct kit_seat *seat) {
    rota_counters counters = ROTA_COUNTERS_INIT;
    rota_status status = kit_sums(seat);
    rota_comm_counters(seat->comm, &counters);
    for (int t = 0; t < counters.transport_count; t++) {
        const rota_transport_counters *one = &counters.transports[t];
        if (strcmp(one->name, "tcp") == 0)
            CHECK(one->messages_sent > 0, "nothing was sent by tcp");
        else if (strcmp(one->name, "shm") == 0)
            CHECK(one->messages_sent == 0 && one->native_calls == 0, "shared memory was used");
    }
    CHECK(foreign_segments() <= 0, "%d segments of others are mapped", foreign_segments());
    return status;
}

static void C68_names_with_a_common_beginning(void) {
    static char long_names[2][256];
    static const char *const ids[3][2] = {
        {"gpu.rack1", "gpu.rack2"}, {long_names[0], long_names[1]}, {"gpu", "gpu.rack1"}};
    for (int i = 0; i < 2; i++) {
        memset(long_names[i], 'n', 255);
        long_names[i][254] = (char)('1' + i);
    }
    for (int i = 0; i < 3; i++) {
        struct kit_job job = {.nranks = 2,
                              .prepare = take_host_id,
                              .arg = (void *)(uintptr_t)ids[i],
                              .body = only_by_tcp};
        kit_job_run(&job, 20000);
        kit_expect_success(&job, ids[i][0]);
    }
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C54_clock_jumps", C54_clock_jumps, 60},
        {"C54_deadlines_by_the_steady_clock", C54_deadlines_by_the_steady_clock, 30},
        {"C56_late_ranks", C56_late_ranks, 120},
        {"C56_very_late_ranks", C56_very_late_ranks, 200},
        {"C57_missing_rank_then_without_it", C57_missing_rank_then_without_it, 60},
        {"C58_id_used_twice", C58_id_used_twice, 60},
        {"C58_ids_of_many_processes", C58_ids_of_many_processes, 60},
        {"C59_contradicting_arguments", C59_contradicting_arguments, 120},
        {"C68_names_with_a_common_beginning", C68_names_with_a_common_beginning, 60},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
