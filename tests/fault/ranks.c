/* Ranks of a job as processes, and what became of each. */
#include "kit.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct kit_meeting {
    _Atomic int made;
    rota_unique_id id;
    struct kit_outcome outcomes[KIT_RANKS];
};

#ifndef KIT_SANITIZED
#define KIT_SANITIZED 0
#endif

enum { STARTED = 1, JOINED = 2, ENDED = 3, DEFAULT_MS = 10000 };

/* -- in the rank ------------------------------------------------------------------------------- */

static void clear_settings(void) {
    for (bool again = true; again;) {
        again = false;
        for (char **entry = environ; *entry != NULL && !again; entry++) {
            char name[128];
            const char *end = strchr(*entry, '=');
            if (strncmp(*entry, "ROTA_", 5) != 0 || strncmp(*entry, "ROTA_TEST_", 10) == 0 ||
                end == NULL || (size_t)(end - *entry) >= sizeof(name))
                continue;
            memcpy(name, *entry, (size_t)(end - *entry));
            name[end - *entry] = 0;
            unsetenv(name);
            again = true;
        }
    }
}

static void set_number(const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof(text), "%lld", (long long)value);
    setenv(name, text, 1);
}

static void take_settings(const struct kit_job *job, int rank) {
    clear_settings();
    set_number("ROTA_INIT_TIMEOUT_MS",
               job->init_timeout_ms > 0 ? job->init_timeout_ms : DEFAULT_MS);
    set_number("ROTA_TIMEOUT_MS", job->timeout_ms > 0 ? job->timeout_ms : DEFAULT_MS);
    if (job->transport != NULL)
        setenv("ROTA_TRANSPORT", job->transport, 1);
    if (job->root != NULL) {
        set_number("ROTA_RANK", rank);
        set_number("ROTA_SIZE", job->nranks);
        setenv("ROTA_ROOT", job->root, 1);
        setenv("ROTA_JOB_KEY", "the key of this test", 1);
    }
}

static rota_status join(struct kit_job *job, int rank, rota_comm **comm) {
    if (job->root != NULL)
        return rota_init(NULL, comm, NULL);
    struct kit_meeting *meeting = job->meeting;
    rota_config config = ROTA_CONFIG_INIT;
    config.nranks = job->nranks;
    config.rank = rank;
    config.id = &meeting->id;
    if (rank == 0) {
        rota_status status = rota_unique_id_create(&meeting->id);
        if (status != ROTA_OK) {
            atomic_store(&meeting->made, -1);
            return status;
        }
        atomic_store(&meeting->made, 1);
    }
    while (atomic_load(&meeting->made) == 0)
        kit_sleep_ms(1);
    if (atomic_load(&meeting->made) < 0)
        return ROTA_ERR_STATE; /* rank 0 tells why */
    return rota_init(&config, comm, NULL);
}

static int64_t processor_ms(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (int64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
}

static _Noreturn void be_rank(struct kit_job *job, int rank) {
    struct kit_outcome *outcome = &job->outcomes[rank];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(outcome->output, STDERR_FILENO);
    kit_enter(job->hosts[rank]);
    take_settings(job, rank);
    if (job->prepare != NULL)
        job->prepare(job, rank);
    atomic_store(&outcome->stage, STARTED);
    struct kit_seat seat = {
        .rank = rank, .nranks = job->nranks, .outcome = outcome, .job = job, .comm = NULL};
    int64_t began = kit_now_ms(), used = processor_ms();
    outcome->init = join(job, rank, &seat.comm);
    outcome->init_ms = kit_now_ms() - began;
    outcome->init_cpu_ms = processor_ms() - used;
    outcome->error = (rota_error)ROTA_ERROR_INIT;
    if (outcome->init != ROTA_OK) {
        rota_last_error(&outcome->error);
        outcome->ended_ms = kit_now_ms();
        _exit(0);
    }
    atomic_store(&outcome->stage, JOINED);
    outcome->body = job->body != NULL ? job->body(&seat) : kit_sums(&seat);
    outcome->ended_ms = kit_now_ms();
    if (outcome->body != ROTA_OK && seat.comm != NULL) {
        rota_comm_error(seat.comm, &outcome->error);
        if (outcome->error.status == ROTA_OK)
            rota_last_error(&outcome->error);
    }
    atomic_store(&outcome->stage, ENDED);
    began = kit_now_ms();
    if (seat.comm != NULL)
        rota_comm_destroy(seat.comm);
    outcome->destroy_ms = kit_now_ms() - began;
    _exit(0);
}

/* -- in the case ------------------------------------------------------------------------------- */

void kit_job_prepare(struct kit_job *job) {
    job->meeting = kit_shared(sizeof(*job->meeting));
    job->outcomes = job->meeting->outcomes;
    job->started_ms = kit_now_ms();
    for (int r = 0; r < job->nranks; r++) {
        job->outcomes[r].output = memfd_create("kit-output", MFD_CLOEXEC);
        job->outcomes[r].wait_status = -1;
        fcntl(job->outcomes[r].output, F_SETFL, O_APPEND);
    }
}

void kit_rank_start(struct kit_job *job, int rank) {
    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        be_rank(job, rank);
    job->outcomes[rank].pid = pid;
}

void kit_job_start(struct kit_job *job) {
    kit_job_prepare(job);
    for (int r = 0; r < job->nranks; r++)
        kit_rank_start(job, r);
}

void kit_job_wait(struct kit_job *job, int64_t limit_ms) {
    int64_t end = kit_now_ms() + limit_ms;
    for (int r = 0; r < job->nranks; r++) {
        struct kit_outcome *outcome = &job->outcomes[r];
        if (outcome->pid == 0 || outcome->wait_status != -1)
            continue;
        int status = 0;
        while (waitpid(outcome->pid, &status, WNOHANG) == 0) {
            if (kit_now_ms() > end) {
                CHECK(false, "rank %d of %d is still at stage %d after %lld ms", r, job->nranks,
                      atomic_load(&outcome->stage), (long long)limit_ms);
                kill(outcome->pid, SIGKILL);
                waitpid(outcome->pid, &status, 0);
                break;
            }
            kit_sleep_ms(1);
        }
        outcome->wait_status = status;
    }
}

void kit_job_run(struct kit_job *job, int64_t limit_ms) {
    kit_job_start(job);
    kit_job_wait(job, limit_ms);
}

const rota_unique_id *kit_job_id(const struct kit_job *job) {
    return atomic_load(&job->meeting->made) > 0 ? &job->meeting->id : NULL;
}

void kit_job_end(struct kit_job *job) {
    for (int r = 0; r < job->nranks; r++)
        close(job->outcomes[r].output);
    munmap(job->meeting, sizeof(*job->meeting));
    job->outcomes = NULL;
}

const char *kit_said(const struct kit_job *job, int rank) {
    int file = job->outcomes[rank].output;
    off_t length = lseek(file, 0, SEEK_END);
    char *text = kit_shared((size_t)length + 1);
    if (pread(file, text, (size_t)length, 0) != length)
        abort();
    return text;
}

int kit_lines(const char *text) {
    int count = 0;
    for (; *text != 0; text++)
        count += *text == '\n';
    return count;
}

bool kit_quiet(const struct kit_job *job, int rank) {
    const char *said = kit_said(job, rank);
    bool remark = strstr(said, "was not suspended") != NULL && strstr(said, "ERROR") == NULL;
    return *said == 0 || (KIT_SANITIZED && remark);
}

void kit_tell(const struct kit_job *job) {
    for (int r = 0; r < job->nranks; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        dprintf(STDOUT_FILENO,
                "    rank %d: wait status %#x, stage %d, init %s after %lld ms, body %s, "
                "%d wrong, %llu rounds, ended at %lld ms: %s\n",
                r, (unsigned)outcome->wait_status, atomic_load(&outcome->stage),
                rota_status_name(outcome->init), (long long)outcome->init_ms,
                rota_status_name(outcome->body), outcome->wrong,
                (unsigned long long)atomic_load(&outcome->rounds),
                (long long)(outcome->ended_ms - job->started_ms), outcome->error.message);
        for (int i = 0; i < outcome->error.culprit_count; i++)
            dprintf(STDOUT_FILENO, "    culprit: rank %d\n", outcome->error.culprits[i]);
        const char *said = kit_said(job, r);
        if (*said != 0)
            dprintf(STDOUT_FILENO, "    said: %.1500s\n", said);
    }
}

void kit_expect_success(const struct kit_job *job, const char *what) {
    bool good = true;
    for (int r = 0; r < job->nranks; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        good &= outcome->wait_status == 0 && outcome->init == ROTA_OK && outcome->body == ROTA_OK &&
                outcome->wrong == 0 && atomic_load(&outcome->stage) == ENDED;
    }
    CHECK(good, "%s: not all ranks succeeded:", what);
    if (!good)
        kit_tell(job);
}

/* -- bodies ------------------------------------------------------------------------------------ */

void kit_call_began(struct kit_seat *seat) {
    seat->outcome->began_ms = kit_now_ms();
}

rota_status kit_sum(struct kit_seat *seat, size_t count) {
    int32_t *in = calloc(count + 1, sizeof(*in)), *out = calloc(count + 1, sizeof(*out));
    if (in == NULL || out == NULL)
        return ROTA_ERR_MEMORY;
    int base = (int)(atomic_fetch_add(&seat->outcome->rounds, 1) & 0xff);
    for (size_t i = 0; i < count; i++)
        in[i] = base + seat->rank + (int)(i & 0xffff);
    memset(out, 0xff, count * sizeof(*out));
    rota_status status = rota_all_reduce(in, out, count, ROTA_INT32, ROTA_SUM, seat->comm, NULL);
    int n = seat->nranks;
    for (size_t i = 0; status == ROTA_OK && i < count; i++) {
        if (out[i] != n * (base + (int)(i & 0xffff)) + n * (n - 1) / 2) {
            seat->outcome->wrong++;
            break;
        }
    }
    free(in);
    free(out);
    return status;
}

rota_status kit_exchange(struct kit_seat *seat, size_t count) {
    size_t all = count * (size_t)seat->nranks;
    int32_t *in = calloc(all + 1, sizeof(*in)), *out = calloc(all + 1, sizeof(*out));
    if (in == NULL || out == NULL)
        return ROTA_ERR_MEMORY;
    for (size_t i = 0; i < all; i++)
        in[i] = seat->rank * 1000 + (int)(i / count);
    memset(out, 0xff, all * sizeof(*out));
    rota_status status = rota_all_to_all(in, out, count, ROTA_INT32, seat->comm, NULL);
    for (size_t i = 0; status == ROTA_OK && i < all; i++) {
        if (out[i] != (int)(i / count) * 1000 + seat->rank) {
            seat->outcome->wrong++;
            break;
        }
    }
    free(in);
    free(out);
    return status;
}

rota_status kit_sums(struct kit_seat *seat) {
    static const size_t counts[] = {1, 3, 700, 40000};
    rota_status status = rota_barrier(seat->comm, NULL);
    for (int i = 0; status == ROTA_OK && i < 8; i++)
        status = kit_sum(seat, counts[i % 4]);
    for (int i = 0; status == ROTA_OK && i < 4; i++)
        status = kit_exchange(seat, counts[i]);
    if (status == ROTA_OK)
        status = rota_barrier(seat->comm, NULL);
    return status;
}
