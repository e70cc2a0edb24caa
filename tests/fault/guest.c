/* The library as a guest in its process: signals, masks, floating-point state, affinity, errno,
 * environment, forks, programs that are started, exits, and unloading. */
#include "kit.h"
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fenv.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

extern char **environ;

static const char *const transports[] = {"shm", "tcp"};

static int cycles(int few) {
    const char *wanted = getenv("ROTA_TEST_CYCLES");
    return wanted != NULL ? atoi(wanted) : few;
}

/* -- state of the process ---------------------------------------------------------------------- */

struct state {
    unsigned vector_control;
    unsigned short x87_control;
    int rounding;
    sigset_t mask;
    struct sigaction actions[65];
    cpu_set_t affinity;
    char **environment;
    unsigned long environment_hash;
    int nice, policy;
    mode_t umask;
    char folder[4096];
    struct rlimit limits[RLIM_NLIMITS];
};

static unsigned long hash_environment(void) {
    unsigned long hash = 5381;
    for (char **entry = environ; *entry != NULL; entry++)
        for (const char *c = *entry; *c != 0; c++)
            hash = hash * 33 + (unsigned char)*c;
    return hash;
}

static void state_read(struct state *state) {
    memset(state, 0, sizeof(*state));
#if defined(__x86_64__)
    state->vector_control = _mm_getcsr() & ~0x3fu; /* without what has happened so far */
    __asm__ volatile("fnstcw %0" : "=m"(state->x87_control));
#endif
    state->rounding = fegetround();
    pthread_sigmask(SIG_SETMASK, NULL, &state->mask);
    for (int number = 1; number < 65; number++)
        (void)sigaction(number, NULL, &state->actions[number]);
    sched_getaffinity(0, sizeof(state->affinity), &state->affinity);
    state->environment = environ;
    state->environment_hash = hash_environment();
    state->nice = getpriority(PRIO_PROCESS, 0);
    state->policy = sched_getscheduler(0);
    state->umask = umask(0);
    umask(state->umask);
    if (getcwd(state->folder, sizeof(state->folder)) == NULL)
        state->folder[0] = 0;
    for (int i = 0; i < RLIM_NLIMITS; i++)
        getrlimit((__rlimit_resource_t)i, &state->limits[i]);
}

static void state_compare(const struct state *before, const char *when) {
    struct state now;
    state_read(&now);
    CHECK(now.vector_control == before->vector_control, "%s: MXCSR %#x, was %#x", when,
          now.vector_control, before->vector_control);
    CHECK(now.x87_control == before->x87_control, "%s: x87 control word", when);
    CHECK(now.rounding == before->rounding, "%s: rounding", when);
    for (int number = 1; number < 65; number++) {
        CHECK(sigismember(&now.mask, number) == sigismember(&before->mask, number),
              "%s: mask of signal %d", when, number);
        CHECK(now.actions[number].sa_handler == before->actions[number].sa_handler &&
                  now.actions[number].sa_flags == before->actions[number].sa_flags,
              "%s: disposition of signal %d", when, number);
    }
    CHECK(CPU_EQUAL(&now.affinity, &before->affinity), "%s: affinity", when);
    CHECK(now.environment == before->environment &&
              now.environment_hash == before->environment_hash,
          "%s: environment", when);
    CHECK(now.nice == before->nice && now.policy == before->policy, "%s: priority", when);
    CHECK(now.umask == before->umask, "%s: umask", when);
    CHECK(strcmp(now.folder, before->folder) == 0, "%s: folder", when);
    CHECK(memcmp(now.limits, before->limits, sizeof(now.limits)) == 0, "%s: limits", when);
}

/* Blocked signals of the library's threads: all that can be blocked. */
static void look_at_threads(int users) {
    DIR *folder = opendir("/proc/self/task");
    int others = 0;
    for (struct dirent *entry = readdir(folder); entry != NULL; entry = readdir(folder)) {
        char path[300], line[256], name[32] = "";
        unsigned long long blocked = 0;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *status = entry->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (status != NULL && fgets(line, sizeof(line), status) != NULL) {
            (void)sscanf(line, "Name: %31s", name);
            (void)sscanf(line, "SigBlk: %llx", &blocked);
        }
        if (status == NULL)
            continue;
        fclose(status);
        if (strncmp(name, "rota", 4) != 0)
            continue;
        others++;
        /* But KILL, STOP, and the two that the C library keeps for itself. */
        unsigned long long wanted = ~(1ull << 8 | 1ull << 18 | 3ull << 31);
        CHECK((blocked & wanted) == wanted, "%s blocks %#llx", name, blocked);
    }
    closedir(folder);
    CHECK(others >= 1 && others <= 2, "%d threads of the library", others);
    (void)users;
}

static struct state state_before;

static void take_state(const struct kit_job *job, int rank) {
    (void)job;
    (void)rank;
    /* Nothing at its default, so that a default would be seen. */
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & ~0x6000u) | 0x2000u); /* rounds down */
#endif
    fesetround(FE_DOWNWARD);
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, SIGWINCH);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &ignore, NULL);
    umask(027);
    state_read(&state_before);
    errno = 1234;
}

static rota_status compare_states(struct kit_seat *seat) {
    int32_t in = 1, out = 0;
    CHECK(errno == 1234, "errno is %d after init", errno);
    state_compare(&state_before, "after init");
    rota_status status = kit_sums(seat);
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    errno = 1234;
    if (status == ROTA_OK)
        status = rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, seat->comm, &call);
    CHECK(errno == 1234, "errno is %d after a start", errno);
    if (status == ROTA_OK)
        status = rota_request_wait(request, 0);
    CHECK(errno == 1234, "errno is %d after a wait", errno);
    rota_request_free(request);
    if (seat->rank == 1)
        kit_sleep_ms(200);
    errno = 1234;
    if (status == ROTA_OK)
        status = rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    CHECK(errno == 1234, "errno is %d after a long wait", errno);
    state_compare(&state_before, "after operations");
    look_at_threads(1);
    rota_comm *comm = seat->comm;
    seat->comm = NULL;
    errno = 1234;
    rota_comm_destroy(comm);
    CHECK(errno == 1234, "errno is %d after destroy", errno);
    state_compare(&state_before, "after destroy");
    return status;
}

static void C90_state_of_the_process(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {
            .nranks = 2, .transport = transports[t], .prepare = take_state, .body = compare_states};
        kit_job_run(&job, 20000);
        kit_expect_success(&job, transports[t]);
    }
}

/* -- C90: signals from outside ----------------------------------------------------------------- */

enum { NSIGNALS = 4, EACH = 100 };
static const int numbers[NSIGNALS] = {SIGUSR1, SIGUSR2, SIGCHLD, SIGTERM};
static _Atomic uint64_t *caught; /* values of the rank's outcome: by signal, then by library */

static void count_signal(int number) {
    char name[16] = "";
    int saved = errno;
    for (int i = 0; i < NSIGNALS; i++)
        if (numbers[i] == number)
            atomic_fetch_add(&caught[i], 1);
    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (strncmp(name, "rota", 4) == 0)
        atomic_fetch_add(&caught[NSIGNALS], 1);
    errno = saved;
}

static void take_signals(const struct kit_job *job, int rank) {
    struct sigaction mine = {.sa_handler = count_signal}; /* no SA_RESTART: calls are interrupted */
    caught = job->outcomes[rank].values;
    for (int i = 0; i < NSIGNALS; i++)
        sigaction(numbers[i], &mine, NULL);
}

/* Until both ranks have got all their signals. */
static rota_status sums_until_told(struct kit_seat *seat) {
    rota_status status = ROTA_OK;
    int32_t done = 0, all = 0;
    while (status == ROTA_OK && all < seat->nranks) {
        status = kit_sum(seat, atomic_load(&seat->outcome->rounds) % 50 == 0 ? 50000 : 30);
        done = atomic_load(&seat->outcome->values[KIT_VALUES - 1]) != 0;
        if (status == ROTA_OK)
            status = rota_all_reduce(&done, &all, 1, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    }
    return status;
}

static bool grows(_Atomic uint64_t *count, uint64_t wanted) {
    for (int i = 0; i < 5000 && atomic_load(count) < wanted; i++)
        kit_sleep_ms(1);
    return atomic_load(count) >= wanted;
}

static void C90_signals_from_outside(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 2,
                              .transport = transports[t],
                              .prepare = take_signals,
                              .body = sums_until_told,
                              .timeout_ms = 30000};
        kit_job_start(&job);
        for (int r = 0; r < 2; r++)
            while (atomic_load(&job.outcomes[r].stage) < 2 && job.outcomes[r].init == ROTA_OK)
                kit_sleep_ms(1);
        bool all = true;
        for (uint64_t i = 1; i <= EACH && all; i++)
            for (int r = 0; r < 2; r++)
                for (int s = 0; s < NSIGNALS && all; s++) {
                    kill(job.outcomes[r].pid, numbers[s]);
                    all = grows(&job.outcomes[r].values[s], i);
                    CHECK(all, "signal %d did not arrive at rank %d", numbers[s], r);
                }
        for (int r = 0; r < 2; r++)
            atomic_store(&job.outcomes[r].values[KIT_VALUES - 1], 1);
        kit_job_wait(&job, 20000);
        kit_expect_success(&job, transports[t]);
        for (int r = 0; r < 2; r++)
            CHECK(atomic_load(&job.outcomes[r].values[NSIGNALS]) == 0,
                  "%llu signals in threads of the library",
                  (unsigned long long)atomic_load(&job.outcomes[r].values[NSIGNALS]));
    }
}

/* -- C92 --------------------------------------------------------------------------------------- */

static _Atomic bool stop_sums;

/* Sums until told to stop, together with the peer. */
static void *sums_in_thread(void *arg) {
    struct kit_seat *seat = arg;
    rota_status *status = malloc(sizeof(*status));
    int32_t all = 0;
    *status = ROTA_OK;
    while (*status == ROTA_OK && all < seat->nranks) {
        int32_t done = atomic_load(&stop_sums);
        *status = kit_sum(seat, atomic_load(&seat->outcome->rounds) % 50 == 0 ? 50000 : 30);
        if (*status == ROTA_OK)
            *status = rota_all_reduce(&done, &all, 1, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    }
    return status;
}

/* Descriptors that a program sees which is started now. */
static int count_in_program(bool spawn) {
    static char *const arguments[] = {"ls", "/proc/self/fd", NULL};
    int ends[2], count = 0;
    char c;
    pid_t pid = -1;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return -1;
    if (spawn) {
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        (void)posix_spawn(&pid, "/bin/ls", &actions, NULL, arguments, environ);
        posix_spawn_file_actions_destroy(&actions);
    } else {
        pid = fork();
        if (pid == 0) {
            dup2(ends[1], STDOUT_FILENO);
            execv("/bin/ls", arguments);
            _exit(127);
        }
    }
    close(ends[1]);
    while (read(ends[0], &c, 1) == 1)
        count += c == '\n';
    close(ends[0]);
    waitpid(pid, NULL, 0);
    return count;
}

static int programs_before; /* descriptors seen before init */

static void count_before(const struct kit_job *job, int rank) {
    (void)job;
    (void)rank;
    programs_before = count_in_program(false);
}

static rota_status fork_and_start(struct kit_seat *seat) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, sums_in_thread, seat);
    for (int i = 0; i < cycles(25); i++) {
        int status = 0, spawned = count_in_program(true), executed = count_in_program(false);
        CHECK(spawned == programs_before && executed == programs_before,
              "a program sees %d and %d descriptors instead of %d", spawned, executed,
              programs_before);
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, &status, 0);
        CHECK(status == 0, "a child ended with %#x", (unsigned)status);
        CHECK(system("true") == 0, "system");
    }
    atomic_store(&stop_sums, true);
    pthread_join(thread, &result);
    rota_status status = *(rota_status *)result;
    free(result);
    return status;
}

static void C92_forks_and_programs(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 2,
                              .transport = transports[t],
                              .prepare = count_before,
                              .body = fork_and_start,
                              .timeout_ms = 30000};
        kit_job_run(&job, 100000);
        kit_expect_success(&job, transports[t]);
        for (int r = 0; r < 2; r++)
            CHECK(kit_quiet(&job, r), "rank %d said: %s", r, kit_said(&job, r));
    }
}

/* A child may have a job of its own, with a progress thread of its own. */
static int join_in_child(void) {
    rota_comm *comms[2];
    rota_request *requests[2];
    int32_t in[2] = {3, 4}, out[2] = {0};
    if (rota_init_threads(2, comms, NULL) != ROTA_OK)
        return 4;
    for (int i = 0; i < 50; i++) {
        for (int r = 0; r < 2; r++) {
            rota_call call = ROTA_CALL_INIT;
            call.request = &requests[r];
            call.timeout_ms = 5000;
            if (rota_all_reduce(&in[r], &out[r], 1, ROTA_INT32, ROTA_SUM, comms[r], &call) !=
                ROTA_OK)
                return 5;
        }
        for (int r = 0; r < 2; r++) {
            if (rota_request_wait(requests[r], 0) != ROTA_OK || out[r] != 7)
                return 6;
            rota_request_free(requests[r]);
        }
    }
    for (int r = 0; r < 2; r++)
        if (rota_comm_destroy(comms[r]) != ROTA_OK)
            return 7;
    return 0;
}

/* What a child does with what it inherited; its exit status says what went wrong. */
static int misuse_in_child(struct kit_seat *seat, int way) {
    int32_t in = 1, out = 0;
    rota_comm *comm = NULL;
    rota_error error = ROTA_ERROR_INIT;
    int64_t began = kit_now_ms();
    rota_status status = ROTA_OK;
    if (way == 0)
        status = rota_all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    else if (way == 1)
        status = rota_send(&in, 1, ROTA_INT32, 1 - seat->rank, 5, seat->comm, NULL);
    else if (way == 2)
        status = rota_comm_split(seat->comm, 0, 0, NULL, &comm, NULL);
    else if (way == 3)
        status = rota_barrier(seat->comm, NULL);
    if (way == 7)
        return join_in_child();
    if (way < 4 && status == ROTA_OK)
        return 1;
    rota_last_error(&error);
    if (way < 4 && strstr(error.message, "fork") == NULL)
        return 2;
    if (way == 4)
        (void)rota_comm_destroy(seat->comm);
    if (way == 5)
        (void)rota_comm_abort(seat->comm);
    return kit_now_ms() - began < 1000 ? 0 : 3;
}

static rota_status misuse_in_children(struct kit_seat *seat) {
    pthread_t thread;
    void *result = NULL;
    pthread_create(&thread, NULL, sums_in_thread, seat);
    for (int way = 0; way < 8; way++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            int verdict = misuse_in_child(seat, way);
#ifndef KIT_SANITIZED /* what other threads had allocated would be called leaks of the child */
            if (way == 6)
                exit(verdict); /* with whatever the library does at exit */
#endif
            _exit(verdict);
        }
        int64_t end = kit_now_ms() + 3000;
        while (waitpid(pid, &status, WNOHANG) == 0) {
            if (kit_now_ms() > end) {
                CHECK(false, "the child of way %d hangs", way);
                kill(pid, SIGKILL);
                waitpid(pid, &status, 0);
                break;
            }
            kit_sleep_ms(1);
        }
        CHECK(status == 0, "the child of way %d ended with %#x", way, (unsigned)status);
    }
    atomic_store(&stop_sums, true);
    pthread_join(thread, &result);
    rota_status status = *(rota_status *)result;
    free(result);
    return status;
}

static void C92_children_that_call_the_library(void) {
    for (int t = 0; t < 2; t++) {
        struct kit_job job = {.nranks = 2,
                              .transport = transports[t],
                              .body = misuse_in_children,
                              .timeout_ms = 20000};
        kit_job_run(&job, 60000);
        kit_expect_success(&job, transports[t]);
        for (int r = 0; r < 2; r++)
            CHECK(kit_quiet(&job, r), "rank %d said: %s", r, kit_said(&job, r));
    }
}

/* -- C51 --------------------------------------------------------------------------------------- */

static void *exit_from_thread(void *arg) {
    (void)arg;
    exit(7);
}

/* With a live communicator, and a progress thread that waits for a message. */
static rota_status leave(struct kit_seat *seat) {
    static int32_t out;
    const int *way = seat->job->arg;
    pthread_t thread;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    rota_status status = kit_sums(seat);
    if (status == ROTA_OK)
        status = rota_recv(&out, 1, ROTA_INT32, 1 - seat->rank, 77, seat->comm, NULL, &call);
    if (status == ROTA_OK)
        status = rota_barrier(seat->comm, NULL);
    if (status != ROTA_OK)
        _exit(99);
    if (*way == 0)
        exit(7);
    if (*way == 1)
        _exit(7);
    if (*way == 2)
        quick_exit(7);
    pthread_create(&thread, NULL, exit_from_thread, NULL);
    for (;;)
        if (*way == 3)
            pause();
        else
            (void)kit_sums(seat); /* in the middle of operations, which end when a peer leaves */
}

static void C51_ways_to_exit(void) {
    for (int i = 0; i < cycles(20); i++) {
        int way = i / 2 % 5;
        struct kit_job job = {
            .nranks = 2, .transport = transports[i % 2], .body = leave, .arg = &way};
        kit_job_run(&job, 20000);
        for (int r = 0; r < 2; r++) {
            CHECK(job.outcomes[r].wait_status == 7 << 8, "way %d: rank %d ended with %#x", way, r,
                  (unsigned)job.outcomes[r].wait_status);
            CHECK(kit_quiet(&job, r), "way %d: rank %d said: %s", way, r, kit_said(&job, r));
        }
        CHECK(kit_entries("/dev/shm") == 0, "files left in /dev/shm");
    }
}

/* -- C51: unloading ---------------------------------------------------------------------------- */

#ifdef SHARED_LIBRARY
static struct {
    rota_status (*init_threads)(int, rota_comm **, const rota_call *);
    rota_status (*all_reduce)(const void *, void *, size_t, rota_dtype, rota_op, rota_comm *,
                              const rota_call *);
    rota_status (*request_wait)(rota_request *, int64_t);
    rota_status (*request_free)(rota_request *);
    rota_status (*destroy)(rota_comm *);
} loaded;
static _Atomic int unloaded;

static void *use_loaded(void *arg) {
    int32_t in = 1, out = 0;
    rota_request *request = NULL;
    rota_call call = ROTA_CALL_INIT;
    call.request = &request;
    CHECK(loaded.all_reduce(&in, &out, 1, ROTA_INT32, ROTA_SUM, arg, &call) == ROTA_OK, "start");
    CHECK(loaded.request_wait(request, 0) == ROTA_OK && out == 2, "sum %d", out);
    loaded.request_free(request);
    /* A failed call leaves a record with the thread, which ends after the library. */
    (void)loaded.all_reduce(NULL, NULL, 1, 99, ROTA_SUM, arg, NULL);
    loaded.destroy(arg);
    atomic_fetch_add(&unloaded, 1);
    while (atomic_load(&unloaded) < 3)
        kit_sleep_ms(1);
    return NULL;
}

static void load(const char *name, void *library, void *function) {
    void *symbol = dlsym(library, name);
    CHECK(symbol != NULL, "no %s", name);
    memcpy(function, &symbol, sizeof(symbol));
}

static void C51_unloading(void) {
    for (int i = 0; i < 5; i++) {
        void *library = dlopen(SHARED_LIBRARY, RTLD_NOW | RTLD_LOCAL);
        rota_comm *comms[2];
        pthread_t threads[2];
        if (library == NULL)
            kit_skip("%s", dlerror());
        load("rota_init_threads", library, &loaded.init_threads);
        load("rota_all_reduce", library, &loaded.all_reduce);
        load("rota_request_wait", library, &loaded.request_wait);
        load("rota_request_free", library, &loaded.request_free);
        load("rota_comm_destroy", library, &loaded.destroy);
        atomic_store(&unloaded, 0);
        CHECK(loaded.init_threads(2, comms, NULL) == ROTA_OK, "init");
        for (int r = 0; r < 2; r++)
            pthread_create(&threads[r], NULL, use_loaded, comms[r]);
        while (atomic_load(&unloaded) < 2)
            kit_sleep_ms(1);
        CHECK(dlclose(library) == 0, "dlclose: %s", dlerror());
        kit_sleep_ms(50);
        atomic_fetch_add(&unloaded, 1);
        for (int r = 0; r < 2; r++)
            pthread_join(threads[r], NULL);
        pid_t child = fork(); /* handlers of the library must be gone, or still there */
        if (child == 0)
            _exit(3);
        int status = 0;
        waitpid(child, &status, 0);
        CHECK(status == 3 << 8, "a fork after unloading ended with %#x", (unsigned)status);
    }
}
#else
static void C51_unloading(void) {
    kit_skip("no shared library was built");
}
#endif

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C51_ways_to_exit", C51_ways_to_exit, 200},
        {"C51_unloading", C51_unloading, 30},
        {"C90_state_of_the_process", C90_state_of_the_process, 60},
        {"C90_signals_from_outside", C90_signals_from_outside, 120},
        {"C92_forks_and_programs", C92_forks_and_programs, 250},
        {"C92_children_that_call_the_library", C92_children_that_call_the_library, 120},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
