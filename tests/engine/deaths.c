/* Ranks that are processes, and die or stop: the others end soon, and name them. Prints how long it
 * took from the fault to the last survivor's return; the limits here leave room for sanitizers and
 * for other programs on the machine. */
#include <errno.h>
#include <rota/rota.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS 8
#define KILL_LIMIT_MS 3000
#define STOP_DEADLINE_MS 1000
#define STOP_LIMIT_MS (STOP_DEADLINE_MS + 3000)

struct rank_state {
    _Atomic int rounds;
    _Atomic int64_t ended_ns;
    rota_status status;
    int culprits, culprit;
    int group; /* members of the shrunk communicator, a bit each; -1: none */
    char text[ROTA_ERROR_MAX_MESSAGE];
};

static struct board {
    struct rank_state ranks[MAX_RANKS];
    _Atomic int go;
} * board;
static int failures;

#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            printf("  %s:%d: ", __FILE__, __LINE__);                                               \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            failures++;                                                                            \
        }                                                                                          \
    } while (0)

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

struct job {
    int nranks, victim, second;
    const char *transport;
    size_t count;
    bool shrinks;
    pid_t pids[MAX_RANKS];
};

static void note(struct rank_state *state, rota_status status, const rota_comm *comm) {
    rota_error error = ROTA_ERROR_INIT;
    rota_comm_error(comm, &error);
    state->status = status;
    state->culprits = error.culprit_count;
    state->culprit = error.culprit_count > 0 ? error.culprits[0] : -1;
    snprintf(state->text, sizeof(state->text), "%s", error.message);
    atomic_store(&state->ended_ns, now_ns());
}

/* Makes groups of the living until a collective in one works. */
static void go_on(const struct job *job, struct rank_state *state, rota_comm *comm, int rank) {
    for (int tries = 0; tries < 4; tries++) {
        rota_comm *shrunk = NULL;
        rota_call call = ROTA_CALL_INIT;
        call.timeout_ms = 10000;
        rota_comm_revoke(comm);
        rota_status status = rota_comm_shrink(comm, NULL, &shrunk, &call);
        rota_comm_destroy(comm);
        if (status != ROTA_OK) {
            rota_error error = ROTA_ERROR_INIT;
            rota_last_error(&error);
            snprintf(state->text, sizeof(state->text), "shrink: %.400s", error.message);
            return;
        }
        int32_t mine = 1 << rank, all = 0;
        comm = shrunk;
        status = rota_all_reduce(&mine, &all, 1, ROTA_INT32, ROTA_SUM, comm, NULL);
        uint64_t good = status == ROTA_OK;
        if (rota_comm_agree(comm, &good, &call) == ROTA_OK && good == 1) {
            state->group = all;
            break;
        }
    }
    (void)job;
    rota_comm_destroy(comm);
}

static void *map(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        _exit(4);
    return memory;
}

static int run_rank(const struct job *job, int rank) {
    struct rank_state *state = &board->ranks[rank];
    char number[16];
    rota_comm *comm = NULL;
    snprintf(number, sizeof(number), "%d", rank);
    setenv("ROTA_RANK", number, 1);
    if (rota_init(NULL, &comm, NULL) != ROTA_OK)
        return 3;
    size_t bytes = job->count * sizeof(float);
    void *in = map(bytes), *out = map(bytes);
    rota_status status = ROTA_OK;
    while (status == ROTA_OK) {
        status = rota_all_reduce(in, out, job->count, ROTA_FLOAT32, ROTA_SUM, comm, NULL);
        /* Nobody touches them any more. */
        if (status != ROTA_OK) {
            munmap(in, bytes);
            munmap(out, bytes);
        }
        atomic_fetch_add(&state->rounds, status == ROTA_OK);
    }
    note(state, status, comm);
    if (job->shrinks)
        go_on(job, state, comm, rank);
    else
        rota_comm_destroy(comm);
    return 0;
}

static void start(struct job *job) {
    static int jobs;
    char size[16], root[64];
    memset(board, 0, sizeof(*board));
    snprintf(size, sizeof(size), "%d", job->nranks);
    snprintf(root, sizeof(root), "@rota-deaths-%d-%d", (int)getpid(), jobs++);
    setenv("ROTA_SIZE", size, 1);
    setenv("ROTA_ROOT", root, 1);
    setenv("ROTA_JOB_KEY", "key of a test that kills", 1);
    setenv("ROTA_TRANSPORT", job->transport, 1);
    for (int r = 0; r < job->nranks; r++) {
        board->ranks[r].group = -1;
        job->pids[r] = fork();
        if (job->pids[r] == 0)
            _exit(run_rank(job, r));
    }
}

static bool all_went(const struct job *job, int rounds) {
    for (int r = 0; r < job->nranks; r++)
        if (atomic_load(&board->ranks[r].rounds) < rounds)
            return false;
    return true;
}

static void wait_for_rounds(const struct job *job, int rounds) {
    int64_t until = now_ns() + INT64_C(30000000000);
    while (!all_went(job, rounds) && now_ns() < until)
        usleep(500);
    CHECK(all_went(job, rounds), "ranks do not begin");
}

/* Waits for the survivors to exit; kills those that do not. */
static void collect(const struct job *job, int64_t limit_ms) {
    int64_t until = now_ns() + limit_ms * 1000000;
    for (int r = 0; r < job->nranks; r++) {
        int status = 0;
        if (r == job->victim || r == job->second)
            continue;
        pid_t got = 0;
        while ((got = waitpid(job->pids[r], &status, WNOHANG)) == 0 && now_ns() < until)
            usleep(500);
        CHECK(got == job->pids[r] && WIFEXITED(status) && WEXITSTATUS(status) == 0,
              "n = %d, %s: rank %d does not exit well: %d, %#x", job->nranks, job->transport, r,
              (int)got, (unsigned)status);
        if (got == 0)
            kill(job->pids[r], SIGKILL);
    }
    for (int r = 0; r < job->nranks; r++) {
        kill(job->pids[r], SIGKILL);
        while (waitpid(job->pids[r], NULL, 0) < 0 && errno == EINTR)
            ;
    }
}

/* The time of the last survivor's return after the fault. */
static int64_t check_survivors(const struct job *job, int64_t fault_ns, rota_status expected,
                               int64_t limit_ms) {
    int64_t last = 0;
    for (int r = 0; r < job->nranks; r++) {
        const struct rank_state *state = &board->ranks[r];
        if (r == job->victim)
            continue;
        int64_t took = (atomic_load(&state->ended_ns) - fault_ns) / 1000000;
        last = took > last ? took : last;
        CHECK((state->status == expected || state->status == ROTA_ERR_PEER) &&
                  state->culprits == 1 && state->culprit == job->victim,
              "n = %d, %s, %zu: rank %d: %s, %d culprits, %d: %s", job->nranks, job->transport,
              job->count, r, rota_status_name(state->status), state->culprits, state->culprit,
              state->text);
        CHECK(took < limit_ms, "n = %d, %s: rank %d took %lld ms", job->nranks, job->transport, r,
              (long long)took);
    }
    return last;
}

static unsigned draw(unsigned *seed) {
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

static void kills(int tries) {
    static const int sizes[] = {2, 4, 8};
    static const char *const transports[] = {"shm", "tcp"};
    unsigned seed = 17;
    for (int s = 0; s < 3; s++)
        for (int t = 0; t < 2; t++) {
            int64_t worst = 0, sum = 0;
            for (int i = 0; i < tries; i++) {
                struct job job = {.nranks = sizes[s],
                                  .transport = transports[t],
                                  .count = i % 2 == 0 ? 2 : 300000,
                                  .second = -1};
                job.victim = (int)(draw(&seed) % (unsigned)job.nranks);
                start(&job);
                wait_for_rounds(&job, 3);
                usleep(draw(&seed) % 10000);
                int64_t fault = now_ns();
                kill(job.pids[job.victim], SIGKILL);
                collect(&job, KILL_LIMIT_MS + 3000);
                int64_t took = check_survivors(&job, fault, ROTA_ERR_PEER, KILL_LIMIT_MS);
                worst = took > worst ? took : worst;
                sum += took;
            }
            printf("  kill, n = %d, %s: %lld ms on average, %lld ms at most\n", sizes[s],
                   transports[t], (long long)(sum / tries), (long long)worst);
        }
}

static void stops(int tries) {
    static const char *const transports[] = {"shm", "tcp"};
    unsigned seed = 5;
    setenv("ROTA_TIMEOUT_MS", "1000", 1);
    for (int t = 0; t < 2; t++) {
        int64_t worst = 0;
        for (int i = 0; i < tries; i++) {
            struct job job = {.nranks = 4, .transport = transports[t], .count = 2, .second = -1};
            job.victim = (int)(draw(&seed) % 4);
            start(&job);
            wait_for_rounds(&job, 3);
            int64_t fault = now_ns();
            kill(job.pids[job.victim], SIGSTOP);
            collect(&job, STOP_LIMIT_MS + 3000);
            int64_t took = check_survivors(&job, fault, ROTA_ERR_TIMEOUT, STOP_LIMIT_MS);
            worst = took > worst ? took : worst;
        }
        printf("  stop, n = 4, %s: %lld ms at most, with a deadline of %d ms\n", transports[t],
               (long long)worst, STOP_DEADLINE_MS);
    }
    unsetenv("ROTA_TIMEOUT_MS");
}

/* The survivor, too, is kept from running, until its deadline has passed: what it knew by then is
 * not what is so. The calls are long, so that it knows something. */
static void delays(int tries) {
    static const char *const transports[] = {"shm", "tcp"};
    unsigned seed = 7;
    setenv("ROTA_TIMEOUT_MS", "1000", 1);
    for (int i = 0; i < 2 * tries; i++) {
        struct job job = {.nranks = 2,
                          .transport = transports[i % 2],
                          .count = (size_t)32 << 20,
                          .victim = 1, /* rank 0 alone is no minority */
                          .second = -1};
        start(&job);
        wait_for_rounds(&job, 2);
        usleep(30000 + draw(&seed) % 30000);
        int64_t fault = now_ns();
        kill(job.pids[job.victim], SIGSTOP);
        usleep(5000);
        kill(job.pids[0], SIGSTOP);
        usleep(STOP_DEADLINE_MS * 1200);
        kill(job.pids[0], SIGCONT);
        collect(&job, STOP_LIMIT_MS + 3000);
        check_survivors(&job, fault, ROTA_ERR_TIMEOUT, STOP_LIMIT_MS);
    }
    printf("  stop of one, delay of the other: %d tries\n", 2 * tries);
    unsetenv("ROTA_TIMEOUT_MS");
}

/* A second rank dies while the others make a group of those that are left. */
static void shrinks(int tries) {
    unsigned seed = 23;
    for (int i = 0; i < tries; i++) {
        struct job job = {.nranks = 5,
                          .transport = i % 2 == 0 ? "shm" : "tcp",
                          .count = 2,
                          .shrinks = true,
                          .victim = (int)(draw(&seed) % 5)};
        job.second = (job.victim + 1 + (int)(draw(&seed) % 4)) % 5;
        start(&job);
        wait_for_rounds(&job, 3);
        kill(job.pids[job.victim], SIGKILL);
        usleep(draw(&seed) % 60000);
        kill(job.pids[job.second], SIGKILL);
        collect(&job, 20000);
        int group = -1;
        for (int r = 0; r < job.nranks; r++) {
            const struct rank_state *state = &board->ranks[r];
            if (r == job.victim || r == job.second)
                continue;
            group = group < 0 ? state->group : group;
            CHECK(state->group == group && state->group > 0 && (state->group & 1 << r) != 0 &&
                      (state->group & 1 << job.victim) == 0,
                  "try %d, %s: rank %d is in group %#x, another in %#x: %s", i, job.transport, r,
                  (unsigned)state->group, (unsigned)group, state->text);
        }
    }
    printf("  shrink under a second death: %d tries\n", tries);
}

int main(int argc, char **argv) {
    int tries = argc > 2 ? atoi(argv[2]) : 3;
    const char *only = argc > 1 ? argv[1] : "";
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        return 1;
    setenv("ROTA_RECORD", "memory", 1);
    setenv("ROTA_LOG", "silent", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (only[0] == '\0' || strcmp(only, "kills") == 0)
        kills(tries);
    if (only[0] == '\0' || strcmp(only, "stops") == 0)
        stops(tries);
    if (only[0] == '\0' || strcmp(only, "delays") == 0)
        delays(tries);
    if (only[0] == '\0' || strcmp(only, "shrinks") == 0)
        shrinks(4 * tries);
    printf("%d failures\n", failures);
    return failures > 0;
}
