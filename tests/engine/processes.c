/* What the library does to its process: descriptors, threads, mappings, affinity, signals, forks,
 * exits; and ranks that are processes of their own. Each test runs in a process of its own. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <rota/rota.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void take_transport(const char *name) {
    setenv("ROTA_TRANSPORT", name, 1);
    setenv("ROTA_TIMEOUT_MS", "10000", 1);
}

/* -- ranks as threads -------------------------------------------------------------------------- */

struct side {
    rota_comm *comm;
    int nranks, rounds;
    _Atomic bool *stop;
    bool good;
};

static void *sum_some(void *arg) {
    struct side *side = arg;
    side->good = true;
    for (int i = 0; side->good && i < side->rounds; i++) {
        int32_t in[600], out[600];
        for (int j = 0; j < 600; j++)
            in[j] = i + j;
        size_t count = i % 2 == 0 ? 3 : 600;
        side->good =
            rota_all_reduce(in, out, count, ROTA_INT32, ROTA_SUM, side->comm, NULL) == ROTA_OK;
        for (size_t j = 0; j < count; j++)
            side->good &= out[j] == side->nranks * (i + (int)j);
    }
    return NULL;
}

/* Init, some sums, a request, destroy. */
static void cycle(int nranks, int rounds) {
    rota_comm *comms[8];
    struct side sides[8];
    pthread_t threads[8];
    cr_assert_eq(rota_init_threads(nranks, comms, NULL), ROTA_OK);
    for (int r = 0; r < nranks; r++) {
        sides[r] = (struct side){.comm = comms[r], .nranks = nranks, .rounds = rounds};
        cr_assert_eq(pthread_create(&threads[r], NULL, sum_some, &sides[r]), 0);
    }
    for (int r = 0; r < nranks; r++)
        pthread_join(threads[r], NULL);
    rota_request *requests[8];
    for (int r = 0; r < nranks; r++) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[r];
        cr_assert(sides[r].good, "rank %d got wrong sums", r);
        cr_assert_eq(rota_barrier(comms[r], &call), ROTA_OK);
    }
    for (int r = 0; r < nranks; r++) {
        cr_assert_eq(rota_request_wait(requests[r], 0), ROTA_OK);
        rota_request_free(requests[r]);
    }
    for (int r = 0; r < nranks; r++)
        cr_assert_eq(rota_comm_destroy(comms[r]), ROTA_OK);
}

/* Entries of a folder of /proc/self, or lines of a file there. Counted in this process: a child
 * that counted could see descriptors that exist only because it was started. */
static int count_in(const char *name) {
    char path[64];
    int count = 0;
    snprintf(path, sizeof(path), "/proc/self/%s", name);
    DIR *folder = opendir(path);
    if (folder != NULL) {
        while (readdir(folder) != NULL)
            count++;
        closedir(folder);
        return count;
    }
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    for (int c = fgetc(file); c != EOF; c = fgetc(file))
        count += c == '\n';
    fclose(file);
    return count;
}

/* Whether a count comes down to a limit: threads that are left behind at a deadline, and what they
 * hold, go a little later. */
static bool settles(const char *folder, int limit) {
    for (int i = 0; i < 200 && count_in(folder) > limit; i++)
        usleep(10000);
    return count_in(folder) <= limit;
}

static void many_cycles(const char *transport) {
    take_transport(transport);
    int descriptors = count_in("fd"), threads = count_in("task"), mappings = 0;
    const char *wanted = getenv("ROTA_TEST_CYCLES");
    int cycles = wanted != NULL ? atoi(wanted) : 30;
    for (int i = 0; i < cycles; i++) {
        cycle(2, 4);
        if (i == 9)
            mappings = count_in("maps");
    }
    cr_assert(settles("fd", descriptors), "\"%s\": %d descriptors before, %d after", transport,
              descriptors, count_in("fd"));
    cr_assert(settles("task", threads), "%s: threads left", transport);
    cr_assert(count_in("maps") <= mappings + 4, "%s: %d mappings after 10 cycles, %d after %d",
              transport, mappings, count_in("maps"), cycles);
}

Test(processes, C81_cycles_leave_nothing) {
    many_cycles("");
    many_cycles("tcp");
}

/* C81: also when init fails. */
Test(processes, C81_failed_init_leaves_nothing) {
    rota_comm *comm = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = 30;
    setenv("ROTA_RANK", "1", 1);
    setenv("ROTA_SIZE", "3", 1);
    setenv("ROTA_ROOT", "@rota-test-nobody-serves", 1);
    setenv("ROTA_JOB_KEY", "a key for the test", 1);
    int descriptors = 0, threads = 0;
    for (int i = 0; i < 20; i++) {
        cr_assert_neq(rota_init(NULL, &comm, &call), ROTA_OK);
        if (i == 0) {
            descriptors = count_in("fd");
            threads = count_in("task");
        }
    }
    cr_assert(settles("fd", descriptors), "%d descriptors, then %d", descriptors, count_in("fd"));
    cr_assert(settles("task", threads), "threads left");
    cr_assert_null(comm);
}

Test(processes, C82_descriptors_above_1023) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 8192 ? limit.rlim_max : 8192;
    setrlimit(RLIMIT_NOFILE, &limit);
    int last = 0;
    for (int i = 0; i < 2000; i++)
        last = open("/dev/null", O_RDONLY | O_CLOEXEC);
    cr_assert(last > 1500, "only %d descriptors", last);
    take_transport("");
    cycle(4, 6);
    take_transport("tcp");
    cycle(4, 6);
}

/* How many threads of the library there are; none of them may run elsewhere. */
static int library_threads_on(const cpu_set_t *cpus) {
    DIR *folder = opendir("/proc/self/task");
    cr_assert_not_null(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[300], name[16] = "";
        cpu_set_t mask, both;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        if (fgets(name, sizeof(name), file) != NULL && strncmp(name, "rota", 4) == 0 &&
            sched_getaffinity((pid_t)atoi(entry->d_name), sizeof(mask), &mask) == 0) {
            CPU_AND(&both, &mask, cpus);
            cr_assert(CPU_EQUAL(&both, &mask), "thread %s", name);
            count++;
        }
        fclose(file);
    }
    closedir(folder);
    return count;
}

/* C87: the affinity of the user's threads stays, and library threads stay inside it. */
Test(processes, C87_affinity_is_respected) {
    cpu_set_t one, after;
    CPU_ZERO(&one);
    sched_getaffinity(0, sizeof(after), &after);
    for (size_t cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (CPU_ISSET(cpu, &after)) {
            CPU_SET(cpu, &one);
            break;
        }
    }
    cr_assert_eq(sched_setaffinity(0, sizeof(one), &one), 0);
    cr_assert_eq(rota_usable_cores(), 1);
    take_transport("");
    rota_comm *comms[2];
    cr_assert_eq(rota_init_threads(2, comms, NULL), ROTA_OK);
    cr_assert_gt(library_threads_on(&one), 0);
    for (int r = 0; r < 2; r++)
        cr_assert_eq(rota_comm_destroy(comms[r]), ROTA_OK);
    cycle(3, 20);
    cr_assert_eq(sched_getaffinity(0, sizeof(after), &after), 0);
    cr_assert(CPU_EQUAL(&one, &after));
}

/* -- C90, C92: signals and forks during operations --------------------------------------------- */

static _Atomic int caught, caught_by_library;

static void on_signal(int number) {
    (void)number;
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    atomic_fetch_add(&caught, 1);
    if (strncmp(name, "rota", 4) == 0)
        atomic_fetch_add(&caught_by_library, 1);
}

static void compare_dispositions(const struct sigaction *before, const sigset_t *mask) {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, NULL, &now);
    for (int number = 1; number < 65; number++) {
        struct sigaction action;
        if (sigaction(number, NULL, &action) != 0)
            continue;
        cr_assert_eq(action.sa_handler, before[number].sa_handler, "signal %d", number);
        cr_assert_eq(action.sa_flags, before[number].sa_flags, "flags of signal %d", number);
        cr_assert_eq(sigismember(&now, number), sigismember(mask, number), "mask of %d", number);
    }
}

static void with_signals(const char *transport) {
    static const int numbers[] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM};
    struct sigaction before[65] = {0}, mine = {.sa_handler = on_signal};
    sigset_t mask;
    for (int i = 0; i < 4; i++)
        sigaction(numbers[i], &mine, NULL);
    for (int number = 1; number < 65; number++)
        sigaction(number, NULL, &before[number]);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    take_transport(transport);
    fflush(NULL);
    pid_t self = getpid(), raiser = fork();
    if (raiser == 0) { /* no SA_RESTART: system calls of the library are interrupted */
        for (int i = 0; i < 200; i++) {
            kill(self, numbers[i % 4]);
            usleep(500);
        }
        _exit(0);
    }
    int status = 0;
    pid_t ended = 0;
    while ((ended = waitpid(raiser, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR))
        cycle(2, 30);
    cr_assert(atomic_load(&caught) > 20, "%d signals", atomic_load(&caught));
    cr_assert_eq(atomic_load(&caught_by_library), 0);
    compare_dispositions(before, &mask);
}

Test(processes, C90_signals_stay_the_users) {
    with_signals("");
    with_signals("tcp");
}

static void *sum_until_stopped(void *arg) {
    struct side *side = arg;
    side->good = true;
    int32_t go = 1;
    while (side->good && go == 1) {
        int32_t in[2] = {atomic_load(side->stop) ? 0 : 1, 5}, out[2] = {0};
        side->good =
            rota_all_reduce(in, out, 2, ROTA_INT32, ROTA_MIN, side->comm, NULL) == ROTA_OK &&
            out[1] == 5;
        go = out[0];
    }
    return NULL;
}

/* Counts the descriptors that a program sees which was started while operations run. */
static int descriptors_of_a_child(void) {
    int ends[2], status = 0;
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    char *const argv[] = {"sh", "-c", "ls /proc/self/fd | wc -l", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    pid_t child;
    cr_assert_eq(posix_spawn(&child, "/bin/sh", &actions, NULL, argv, environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    char text[32] = "";
    cr_assert(read(ends[0], text, sizeof(text) - 1) > 0);
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return atoi(text);
}

static void with_forks(const char *transport) {
    int before = descriptors_of_a_child();
    take_transport(transport);
    rota_comm *comms[2];
    struct side sides[2];
    pthread_t threads[2];
    _Atomic bool stop = false;
    cr_assert_eq(rota_init_threads(2, comms, NULL), ROTA_OK);
    for (int r = 0; r < 2; r++) {
        sides[r] = (struct side){.comm = comms[r], .nranks = 2, .stop = &stop};
        pthread_create(&threads[r], NULL, sum_until_stopped, &sides[r]);
    }
    for (int i = 0; i < 8; i++) {
        cr_assert_eq(descriptors_of_a_child(), before, "%s: descriptors were inherited", transport);
        cr_assert_eq(system("true"), 0);
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        cr_assert_eq(waitpid(child, &status, 0), child);
        cr_assert_eq(status, 0);
    }
    atomic_store(&stop, true);
    for (int r = 0; r < 2; r++) {
        pthread_join(threads[r], NULL);
        cr_assert(sides[r].good, "%s: rank %d", transport, r);
        cr_assert_eq(rota_comm_destroy(comms[r]), ROTA_OK);
    }
}

Test(processes, C92_forks_during_operations) {
    with_forks("");
    with_forks("tcp");
}

/* -- ranks as processes ------------------------------------------------------------------------ */

typedef int (*rank_body)(rota_comm *comm, int rank);

/* Forks the ranks of a job; body's value is the exit status. Returns pids. */
static void start_ranks(const char *transport, int nranks, pid_t *pids, rank_body body) {
    static int jobs;
    char text[64];
    take_transport(transport);
    snprintf(text, sizeof(text), "@rota-test-%d-%d", (int)getpid(), jobs++);
    setenv("ROTA_ROOT", text, 1);
    setenv("ROTA_JOB_KEY", "a key for the test", 1);
    setenv("ROTA_INIT_TIMEOUT_MS", "10000", 1);
    snprintf(text, sizeof(text), "%d", nranks);
    setenv("ROTA_SIZE", text, 1);
    fflush(NULL);
    for (int r = 0; r < nranks; r++) {
        pids[r] = fork();
        if (pids[r] != 0)
            continue;
        snprintf(text, sizeof(text), "%d", r);
        setenv("ROTA_RANK", text, 1);
        rota_comm *comm = NULL;
        if (rota_init(NULL, &comm, NULL) != ROTA_OK)
            _exit(99);
        _exit(body(comm, r));
    }
}

static int end_of(pid_t pid) {
    int status = -1;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

/* C46, C91: rank 2 is killed while the others send it much, and while they are in collectives. */
static int killed_body(rota_comm *comm, int rank) {
    enum { COUNT = 4 << 20 };
    char *data = calloc(COUNT, 1);
    if (data == NULL || rota_barrier(comm, NULL) != ROTA_OK)
        return 1;
    if (rank == 2)
        raise(SIGKILL);
    rota_comm_set_timeout(comm, 5000);
    int64_t began = now_ms();
    rota_status status = ROTA_OK;
    for (int i = 0; status == ROTA_OK && i < 20; i++)
        status = rota_send(data, COUNT, ROTA_UINT8, 2, 0, comm, NULL);
    if (status != ROTA_ERR_PEER && status != ROTA_ERR_TIMEOUT)
        return 2;
    if (now_ms() - began > 5000 + 2000)
        return 3;
    rota_error error = ROTA_ERROR_INIT;
    if (rota_comm_error(comm, &error) != ROTA_OK || error.peer != 2)
        return 4;
    if (rota_barrier(comm, NULL) != status)
        return 5;
    began = now_ms();
    if (rota_comm_destroy(comm) != ROTA_OK || now_ms() - began > 2000)
        return 6;
    free(data);
    return 0;
}

static void kill_a_peer(const char *transport) {
    pid_t pids[3];
    start_ranks(transport, 3, pids, killed_body);
    cr_assert_eq(end_of(pids[2]), SIGKILL);
    for (int r = 0; r < 2; r++) {
        int status = end_of(pids[r]);
        cr_assert_eq(status, 0, "%s: rank %d ended with wait status %#x", transport, r, status);
    }
}

Test(processes, C91_killed_peer_kills_nobody) {
    kill_a_peer("tcp");
    kill_a_peer("shm");
}

/* C50: rank 1 exits without a word; the others destroy at once. */
static int leaving_body(rota_comm *comm, int rank) {
    if (rota_barrier(comm, NULL) != ROTA_OK)
        return 1;
    if (rank == 1)
        return 0;
    usleep(100000);
    int64_t began = now_ms();
    return rota_comm_destroy(comm) == ROTA_OK && now_ms() - began < 2000 ? 0 : 2;
}

Test(processes, C50_peer_exited_before_destroy) {
    static const char *const transports[] = {"", "tcp"};
    for (int t = 0; t < 2; t++) {
        pid_t pids[3];
        start_ranks(transports[t], 3, pids, leaving_body);
        for (int r = 0; r < 3; r++)
            cr_assert_eq(end_of(pids[r]), 0);
    }
}

/* C51: exits with live communicators and with the progress thread running. */
static int exiting_body(rota_comm *comm, int rank) {
    static int32_t in, out;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    if (rota_barrier(comm, NULL) != ROTA_OK ||
        rota_recv(&out, 1, ROTA_INT32, 1 - rank, 77, comm, NULL, &call) != ROTA_OK)
        return 1;
    if (rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, comm, NULL) != ROTA_OK)
        return 2;
    exit(40 + rank);
}

Test(processes, C51_exit_without_destroy) {
    static const char *const transports[] = {"", "tcp"};
    for (int i = 0; i < 6; i++) {
        pid_t pids[2];
        FILE *errors = tmpfile();
        int saved = dup(STDERR_FILENO);
        dup2(fileno(errors), STDERR_FILENO);
        start_ranks(transports[i % 2], 2, pids, exiting_body);
        int first = end_of(pids[0]), second = end_of(pids[1]);
        dup2(saved, STDERR_FILENO);
        close(saved);
        cr_assert_eq(first, 40 << 8, "wait status %#x", first);
        cr_assert_eq(second, 41 << 8, "wait status %#x", second);
        char said[512] = "";
        rewind(errors);
        size_t length = fread(said, 1, sizeof(said) - 1, errors);
        fclose(errors);
        /* LeakSanitizer speaks of threads that it could not stop. */
        cr_assert(length == 0 || strstr(said, "was not suspended") != NULL, "on stderr: %s", said);
    }
}

/* C57: a rank that never joins is named by the others, in time. */
Test(processes, C57_rank_never_joins) {
    enum { LIMIT_MS = 700 };
    char text[64];
    snprintf(text, sizeof(text), "@rota-test-%d-missing", (int)getpid());
    setenv("ROTA_ROOT", text, 1);
    setenv("ROTA_JOB_KEY", "a key for the test", 1);
    setenv("ROTA_SIZE", "3", 1);
    fflush(NULL);
    pid_t other = fork();
    setenv("ROTA_RANK", other == 0 ? "1" : "0", 1);
    rota_comm *comm = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.timeout_ms = LIMIT_MS;
    int64_t began = now_ms();
    rota_status status = rota_init(NULL, &comm, &call);
    int64_t took = now_ms() - began;
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    if (other == 0)
        _exit(status == ROTA_ERR_TIMEOUT && took < LIMIT_MS + 2000 ? 0 : 1);
    cr_assert_eq(status, ROTA_ERR_TIMEOUT, "%s: %s", rota_status_name(status), error.message);
    /* The earliest deadline of those who wait ends it for all, and the other rank began before. */
    cr_assert(took >= LIMIT_MS / 2 && took < LIMIT_MS + 2000, "%lld ms", (long long)took);
    cr_assert_not_null(strstr(error.message, "2"), "%s", error.message);
    cr_assert_eq(end_of(other), 0);
}
