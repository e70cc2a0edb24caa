/* Jobs that meet and jobs that do not: by root, by local name, by unique id, by call-back. */
#include "base/clock.h"
#include "base/error.h"
#include "ranks.h"
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* A port that was free a moment ago, below those that the kernel hands out by itself: what other
 * tests open meanwhile does not take it. */
static int free_port(void) {
    static unsigned drawn;
    for (;;) {
        int port = 21000 + (int)(((unsigned)getpid() * 37u + drawn++ * 101u) % 11000u);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        bool taken = bind(fd, (struct sockaddr *)&address, sizeof address) != 0;
        close(fd);
        if (!taken)
            return port;
    }
}

static char root[64];
static void choose_root(const char *form) {
    snprintf(root, sizeof root, form, free_port());
}

static struct rank_spec *specs_for(int nranks, int64_t timeout_ms) {
    static struct rank_spec specs[MAX_TEST_RANKS];
    memset(specs, 0, sizeof specs);
    for (int rank = 0; rank < nranks; rank++)
        specs[rank] = (struct rank_spec){
            .rank = rank, .nranks = nranks, .timeout_ms = timeout_ms, .environment = {root}};
    return specs;
}

static void expect_met(const struct rank_result *results, int n) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(results[i].status, ROTA_OK, "rank %d: %s", i, results[i].error.message);
        cr_assert_neq(results[i].table_hash, 0);
        cr_assert_eq(results[i].table_hash, results[0].table_hash);
        cr_assert_eq(results[i].identity_hash, results[0].identity_hash);
        cr_assert_eq(results[i].descriptors_left, 0, "rank %d: %d descriptors left", i,
                     results[i].descriptors_left);
    }
}

static void expect_failed(const struct rank_result *results, int n, rota_status status,
                          const char *text, int64_t most_ms) {
    for (int i = 0; i < n; i++) {
        cr_assert_eq(results[i].status, status, "process %d: %s: %s", i,
                     rota_status_name(results[i].status), results[i].error.message);
        cr_assert(strstr(results[i].error.message, text), "process %d: %s", i,
                  results[i].error.message);
        cr_assert_leq(results[i].took_ms, most_ms);
        cr_assert_eq(results[i].descriptors_left, 0);
    }
}

/* -- meeting -----------------------------------------------------------------------------------
 */

Test(exchange, root_of_every_form) {
    static const char *const forms[] = {"ROTA_ROOT=127.0.0.1:%d", "ROTA_ROOT=localhost:%d",
                                        "ROTA_ROOT=[::1]:%d", "ROTA_ROOT=@rota-test-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        choose_root(forms[i]);
        expect_met(ranks_run(specs_for(4, 5000), 4), 4);
    }
}

Test(exchange, tree_of_two_levels) {
    choose_root("ROTA_ROOT=@rota-test-%d");
    expect_met(ranks_run(specs_for(17, 20000), 17), 17);
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    expect_met(ranks_run(specs_for(40, 20000), 40), 40);
}

Test(exchange, unique_id_from_outside_the_job) {
    rota_unique_id id;
    int threads = count_threads(), descriptors = count_descriptors();
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    struct rank_spec *specs = specs_for(20, 20000);
    for (int rank = 0; rank < 20; rank++)
        specs[rank].id = &id;
    expect_met(ranks_run(specs, 20), 20);
    /* The job has met: thread and descriptors go. */
    for (int i = 0; i < 200 && count_threads() != threads; i++)
        usleep(10000);
    cr_assert_eq(count_threads(), threads);
    cr_assert_eq(count_descriptors(), descriptors);
}

Test(exchange, threads_of_a_process_are_ranks_too) {
    rota_unique_id id;
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    struct rank_spec spec = {.rank = 0, .nranks = 1, .timeout_ms = 5000, .id = &id};
    struct rank_result result = {0};
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_OK, "%s", result.error.message);
}

Test(exchange, C56_late_ranks) {
    for (int late = 0; late < 4; late += 3) {
        choose_root("ROTA_ROOT=127.0.0.1:%d");
        struct rank_spec *specs = specs_for(4, 20000);
        specs[late].delay_ms = 2000;
        struct rank_result *results = ranks_run(specs, 4);
        expect_met(results, 4);
        for (int i = 0; i < 4; i++) {
            cr_assert_leq(results[i].took_ms, 3000);
            cr_assert_leq(results[i].cpu_ms, 200, "rank %d used %ld ms", i,
                          (long)results[i].cpu_ms);
        }
    }
}

/* -- not meeting -------------------------------------------------------------------------------
 */

Test(exchange, C57_missing_rank_is_named) {
    static const char *const forms[] = {"ROTA_ROOT=127.0.0.1:%d", "ROTA_ROOT=@rota-test-%d"};
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        choose_root(forms[i]);
        struct rank_result *results = ranks_run(specs_for(4, 1000), 3);
        expect_failed(results, 3, ROTA_ERR_TIMEOUT, "rank 3 of 4 did not join within 1000 ms",
                      2500);
        for (int rank = 0; rank < 3; rank++) {
            cr_assert_eq(results[rank].error.culprit_count, 1);
            cr_assert_eq(results[rank].error.culprits[0], 3);
            /* The deadline that counts is that of the rank which came first. */
            cr_assert_geq(results[rank].took_ms, 800);
        }
        struct rank_spec *again = specs_for(3, 5000);
        expect_met(ranks_run(again, 3), 3);
    }
}

Test(exchange, missing_ranks_by_id_can_try_again) {
    rota_unique_id id;
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    struct rank_spec *specs = specs_for(9, 500);
    for (int i = 0; i < 9; i++)
        specs[i].id = &id;
    expect_failed(ranks_run(specs, 2), 2, ROTA_ERR_TIMEOUT, "ranks 2-8 of 9 did not join", 1500);
    for (int i = 0; i < 9; i++)
        specs[i].timeout_ms = 5000;
    expect_met(ranks_run(specs, 9), 9);
}

Test(exchange, rank_0_missing_names_address_and_reason) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_result *results = ranks_run(specs_for(2, 700) + 1, 1);
    expect_failed(results, 1, ROTA_ERR_TIMEOUT, root + strlen("ROTA_ROOT="), 1500);
    cr_assert_eq(results[0].error.culprits[0], 0);
    cr_assert_eq(results[0].error.system_error, ECONNREFUSED);
    cr_assert(strstr(results[0].error.message, "Connection refused"));
}

Test(exchange, C59_duplicate_rank) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(3, 5000);
    specs[2].rank = 1;
    expect_failed(ranks_run(specs, 3), 3, ROTA_ERR_MISMATCH, "rank 1 of 3 was claimed twice", 3000);
}

Test(exchange, C59_two_ranks_0) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(3, 5000);
    specs[2].rank = 0;
    expect_failed(ranks_run(specs, 3), 3, ROTA_ERR_MISMATCH, "rank 0 of 3 was claimed twice", 4000);
}

Test(exchange, C59_different_sizes) {
    choose_root("ROTA_ROOT=@rota-test-%d");
    struct rank_spec *specs = specs_for(3, 5000);
    specs[1].nranks = 4;
    struct rank_result *results = ranks_run(specs, 3);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "4", 4000);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "3", 4000);
}

Test(exchange, C59_different_protocols) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(3, 5000);
    specs[2].environment[1] = "ROTA_TEST_PROTOCOL=7";
    struct rank_result *results = ranks_run(specs, 3);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "speaks protocol", 4000);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "7 to 7", 4000);
}

Test(exchange, different_settings_are_named) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(3, 5000);
    specs[1].environment[1] = "ROTA_LANES=7";
    struct rank_result *results = ranks_run(specs, 3);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "ROTA_LANES must be the same", 4000);
    expect_failed(results, 3, ROTA_ERR_MISMATCH, "\"7\"", 4000);
}

Test(exchange, other_key_is_a_stranger) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(2, 1000);
    specs[0].environment[1] = "ROTA_JOB_KEY=0123456789abcdef";
    specs[1].environment[1] = "ROTA_JOB_KEY=0123456789abcdeF";
    struct rank_result *results = ranks_run(specs, 2);
    expect_failed(results, 1, ROTA_ERR_TIMEOUT, "rank 1 of 2 did not join", 2500);
    expect_failed(results + 1, 1, ROTA_ERR_TIMEOUT, "does not serve rank 0", 2500);
}

Test(exchange, C58_id_used_twice) {
    rota_unique_id id;
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    struct rank_spec *specs = specs_for(2, 5000);
    /* Another id keeps the control thread, as a living communicator would. */
    rota_unique_id other;
    cr_assert_eq(bootstrap_unique_id(&other), ROTA_OK);
    specs[0].id = specs[1].id = &id;
    expect_met(ranks_run(specs, 2), 2);
    expect_failed(ranks_run(specs, 2), 2, ROTA_ERR_ARGUMENT, "used for a job already", 1000);
}

/* Children of a fork hold the sockets of the rendezvous too: closing one must still end it. */
Test(exchange, forks_while_ranks_register) {
    struct timespec begun, ended;
    rota_unique_id ids[2];
    cr_assert_eq(bootstrap_unique_id(&ids[0]), ROTA_OK);
    cr_assert_eq(bootstrap_unique_id(&ids[1]), ROTA_OK);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begun);
    for (int round = 0; round < 2; round++) {
        struct rank_spec *specs = specs_for(20, 20000);
        for (int i = 0; i < 20; i++) {
            specs[i].id = &ids[round];
            specs[i].fork_after_ms = 20;
        }
        expect_met(ranks_run(specs, 20), 20);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ended);
    cr_assert_lt(ended.tv_sec - begun.tv_sec, 2);
}

Test(exchange, C58_many_ids) {
    static rota_unique_id ids[1000];
    int threads = count_threads(), descriptors = count_descriptors();
    for (int i = 0; i < 1000; i++)
        cr_assert_eq(bootstrap_unique_id(&ids[i]), ROTA_OK);
    cr_assert_leq(count_threads(), threads + 1);
    cr_assert_leq(count_descriptors(), descriptors + 8);
    for (int i = 0; i < 1000; i++)
        for (int j = 0; j < i; j++)
            cr_assert_neq(memcmp(&ids[i], &ids[j], sizeof ids[i]), 0);
    /* A child of this process makes ids of its own and serves them. */
    struct rank_spec *specs = specs_for(2, 5000);
    pid_t child = fork();
    if (child == 0) {
        rota_unique_id own;
        bool good = bootstrap_unique_id(&own) == ROTA_OK;
        for (int i = 0; i < 1000; i++)
            good = good && memcmp(&ids[i], &own, sizeof own) != 0;
        specs[0].id = specs[1].id = &own;
        struct rank_result *results = ranks_run(specs, 2);
        good = good && results[0].status == ROTA_OK && results[1].status == ROTA_OK;
        _exit(good ? 0 : 1);
    }
    int state;
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert_eq(state, 0);
    specs[0].id = specs[1].id = &ids[500];
    expect_met(ranks_run(specs, 2), 2);
}

/* -- the caller's all-gather -------------------------------------------------------------------
 */

struct shared_gather {
    _Atomic int turn;
    int nranks;
    char bytes[MAX_TEST_RANKS * 4096];
};
static int gather_rank; /* set in each process */

static int shared_gather(const void *send, void *recv, size_t bytes, void *argument) {
    struct shared_gather *shared = argument;
    static int calls;
    memcpy(shared->bytes + (size_t)gather_rank * bytes, send, bytes);
    shared->turn++;
    calls++;
    for (int i = 0; i < 5000 && shared->turn < 2 * calls * shared->nranks - shared->nranks; i++)
        usleep(1000);
    memcpy(recv, shared->bytes, (size_t)shared->nranks * bytes);
    shared->turn++;
    for (int i = 0; i < 5000 && shared->turn < 2 * calls * shared->nranks; i++)
        usleep(1000);
    return 0;
}

static int failing_gather(const void *send, void *recv, size_t bytes, void *argument) {
    (void)send, (void)recv, (void)bytes, (void)argument;
    return 42;
}

static struct rank_result *run_gather(int n, const char *odd_environment) {
    struct shared_gather *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct rank_result *results = mmap(NULL, sizeof *results * MAX_TEST_RANKS,
                                       PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared->nranks = n;
    for (int rank = 0; rank < n; rank++) {
        struct rank_spec spec = {.rank = rank,
                                 .nranks = n,
                                 .timeout_ms = 5000,
                                 .all_gather = shared_gather,
                                 .all_gather_arg = shared};
        if (fork() != 0)
            continue;
        alarm(60);
        gather_rank = rank;
        if (rank == 1 && odd_environment != NULL)
            putenv((char *)(uintptr_t)odd_environment);
        rank_meet(&spec, &results[rank]);
        _exit(0);
    }
    for (int rank = 0; rank < n; rank++)
        wait(NULL);
    return results;
}

Test(exchange, by_callback) {
    expect_met(run_gather(4, NULL), 4);
}

Test(exchange, by_callback_with_different_settings) {
    expect_failed(run_gather(3, "ROTA_LANES=7"), 3, ROTA_ERR_MISMATCH, "ROTA_LANES must", 3000);
    expect_failed(run_gather(3, "ROTA_TEST_PROTOCOL=7"), 3, ROTA_ERR_MISMATCH, "7 to 7", 3000);
}

Test(exchange, by_callback_that_fails) {
    struct rank_spec spec = {
        .rank = 1, .nranks = 2, .timeout_ms = 1000, .all_gather = failing_gather};
    struct rank_result result = {0};
    rank_meet(&spec, &result);
    cr_assert_eq(result.status, ROTA_ERR_SYSTEM);
    cr_assert(strstr(result.error.message, "42"));
}

/* -- launchers and strangers -------------------------------------------------------------------
 */

static void run_torch(const char *agent, bool store_there) {
    static char port[32], rank[4][32];
    int number = free_port();
    struct rank_spec *specs = specs_for(4, 10000);
    int store = -1;
    snprintf(port, sizeof port, "MASTER_PORT=%d", number);
    if (store_there) {
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number)};
        store = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        cr_assert_eq(bind(store, (struct sockaddr *)&address, sizeof address), 0);
        listen(store, 16);
    }
    for (int i = 0; i < 4; i++) {
        snprintf(rank[i], sizeof rank[i], "RANK=%d", i);
        specs[i] =
            (struct rank_spec){.timeout_ms = 10000,
                               .environment = {rank[i], "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1",
                                               port, "TORCHELASTIC_RUN_ID=x", agent}};
    }
    expect_met(ranks_run(specs, 4), 4);
    close(store);
}

Test(exchange, torchrun_with_agent_store) {
    run_torch("TORCHELASTIC_USE_AGENT_STORE=True", true);
}

Test(exchange, torchrun_without_agent_store) {
    run_torch("TORCHELASTIC_USE_AGENT_STORE=False", false);
    run_torch("TORCHELASTIC_USE_AGENT_STORE=False", true);
}

Test(exchange, C67_strangers_at_the_rendezvous) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    int port = atoi(strchr(root, ':') + 1);
    pid_t attacker = fork();
    if (attacker == 0) {
        alarm(60);
        struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
        char noise[4096];
        inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
        for (int i = 0;; i++) {
            int fd = socket(AF_INET, SOCK_STREAM, 0);
            if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
                usleep(1000);
            else if (i % 3 == 0)
                net_random(noise, sizeof noise), (void)!send(fd, noise, sizeof noise, MSG_NOSIGNAL);
            if (i % 3 != 1 || i > 300)
                close(fd); /* others stay silent */
        }
    }
    struct rank_spec *specs = specs_for(4, 10000);
    specs[3].delay_ms = 500;
    struct rank_result *results = ranks_run(specs, 4);
    kill(attacker, SIGKILL);
    waitpid(attacker, NULL, 0);
    expect_met(results, 4);
}

Test(exchange, C82_descriptors_above_1023) {
    struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 8192};
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
    setrlimit(RLIMIT_NOFILE, &limit);
    for (int i = 0; i < 1500; i++)
        cr_assert_geq(open("/dev/null", O_RDONLY), 0);
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    expect_met(ranks_run(specs_for(3, 5000), 3), 3);
}

Test(exchange, C83_out_of_descriptors_is_an_error) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    for (rlim_t most = 4; most < 24; most += 2) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            struct rlimit limit = {.rlim_cur = most, .rlim_max = 1024};
            struct rank_result result = {0};
            struct rank_spec spec = {
                .rank = 0, .nranks = 2, .timeout_ms = 200, .environment = {root}};
            putenv(root);
            setrlimit(RLIMIT_NOFILE, &limit);
            rank_meet(&spec, &result);
            limit.rlim_cur = 1024;
            setrlimit(RLIMIT_NOFILE, &limit);
            bool good = result.status == ROTA_ERR_TIMEOUT ||
                        (result.status == ROTA_ERR_SYSTEM &&
                         strstr(result.error.message, "Too many open files"));
            if (!good)
                fprintf(stderr, "limit %d: %s\n", (int)most, result.error.message);
            _exit(good ? 0 : 1);
        }
        int state;
        cr_assert_eq(waitpid(child, &state, 0), child);
        cr_assert_eq(state, 0, "limit %d", (int)most);
    }
}

Test(exchange, too_few_descriptors_for_the_ranks_are_named) {
    struct rlimit limit;
    rota_unique_id id;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 64;
    setrlimit(RLIMIT_NOFILE, &limit);
    cr_assert_eq(bootstrap_unique_id(&id), ROTA_OK);
    struct rank_spec *specs = specs_for(3, 5000);
    for (int i = 0; i < 3; i++) {
        specs[i].nranks = 200;
        specs[i].id = &id;
    }
    expect_failed(ranks_run(specs, 3), 3, ROTA_ERR_SYSTEM, "ulimit -n", 4000);
}

Test(exchange, signals_interrupt_nothing) {
    choose_root("ROTA_ROOT=127.0.0.1:%d");
    struct rank_spec *specs = specs_for(2, 10000);
    specs[1].delay_ms = 1000;
    pid_t child = fork();
    if (child == 0) {
        struct rank_result *results = ranks_run(specs, 2);
        _exit(results[0].status == ROTA_OK && results[1].status == ROTA_OK ? 0 : 1);
    }
    for (int i = 0; i < 50; i++) {
        usleep(10000);
        kill(child, SIGCONT);
    }
    int state;
    cr_assert_eq(waitpid(child, &state, 0), child);
    cr_assert_eq(state, 0);
}
