/* C44, C45: ranks that call different things. Every rank is told, within moments of the last one's
 * call, and at least one is told who called what. */
#include "kit.h"
#include <stdlib.h>
#include <string.h>

/* After the last rank's call; the bound that users are promised on an idle machine is far lower. */
enum { AT_MOST_MS = 2000, T_MS = 5000, LARGEST = 32768000 };

struct call {
    rota_kind kind;
    size_t count;
    rota_dtype dtype;
    rota_op op;
    int root;
};

struct disagreement {
    const char *name;
    int nodd, odd[2]; /* ranks that make the odd call */
    struct call theirs, others;
    const char *words[4]; /* that the texts of all ranks together hold; NULL ends */
};

static const struct disagreement disagreements[] = {
    {"a little more on rank 0",
     1,
     {0, 0},
     {ROTA_KIND_ALL_REDUCE, 409600, ROTA_FLOAT32, ROTA_SUM, 0},
     {ROTA_KIND_ALL_REDUCE, 409598, ROTA_FLOAT32, ROTA_SUM, 0},
     {"409600", "409598", NULL}},
    {"much less on rank 0",
     1,
     {0, 0},
     {ROTA_KIND_ALL_REDUCE, 409600, ROTA_FLOAT32, ROTA_SUM, 0},
     {ROTA_KIND_ALL_REDUCE, LARGEST, ROTA_FLOAT32, ROTA_SUM, 0},
     {"409600", "32768000", NULL}},
    {"nothing on rank 2",
     1,
     {2, 0},
     {ROTA_KIND_ALL_REDUCE, 0, ROTA_FLOAT32, ROTA_SUM, 0},
     {ROTA_KIND_ALL_REDUCE, 5, ROTA_FLOAT32, ROTA_SUM, 0},
     {"sum, 0", "sum, 5", NULL}},
    {"all_gather on rank 2",
     1,
     {2, 0},
     {ROTA_KIND_ALL_GATHER, 1000, ROTA_FLOAT32, ROTA_SUM, 0},
     {ROTA_KIND_ALL_REDUCE, 1000, ROTA_FLOAT32, ROTA_SUM, 0},
     {"all_gather", "all_reduce", "rank 2", NULL}},
    {"another type of the same size",
     1,
     {1, 0},
     {ROTA_KIND_ALL_REDUCE, 500, ROTA_FLOAT64, ROTA_SUM, 0},
     {ROTA_KIND_ALL_REDUCE, 1000, ROTA_FLOAT32, ROTA_SUM, 0},
     {"float64", "float32", "rank 1", NULL}},
    {"another operator",
     1,
     {3, 0},
     {ROTA_KIND_ALL_REDUCE, 1000, ROTA_FLOAT32, ROTA_MAX, 0},
     {ROTA_KIND_ALL_REDUCE, 1000, ROTA_FLOAT32, ROTA_SUM, 0},
     {"max", "sum", "rank 3", NULL}},
    {"two roots",
     2,
     {1, 2},
     {ROTA_KIND_BROADCAST, 1000, ROTA_FLOAT32, ROTA_SUM, 1},
     {ROTA_KIND_BROADCAST, 1000, ROTA_FLOAT32, ROTA_SUM, 0},
     {"root 0", "root 1", "broadcast", NULL}},
};
enum { NDISAGREEMENTS = sizeof(disagreements) / sizeof(disagreements[0]) };

struct trial {
    const struct disagreement *what;
    const char *algorithm;
};

static rota_status make_call(struct kit_seat *seat) {
    const struct trial *trial = seat->job->arg;
    const struct disagreement *what = trial->what;
    bool odd = false;
    for (int i = 0; i < what->nodd; i++)
        odd |= what->odd[i] == seat->rank;
    const struct call *mine = odd ? &what->theirs : &what->others;
    size_t bytes = (mine->count + 1) * 8;
    void *in = calloc(1, bytes);
    void *out = calloc(mine->kind == ROTA_KIND_ALL_GATHER ? (size_t)seat->nranks : 1, bytes);
    rota_call call = ROTA_CALL_INIT;
    call.algorithm = trial->algorithm;
    rota_status status = rota_barrier(seat->comm, NULL);
    if (status != ROTA_OK)
        return status;
    kit_call_began(seat);
    if (mine->kind == ROTA_KIND_ALL_REDUCE)
        status = rota_all_reduce(in, out, mine->count, mine->dtype, mine->op, seat->comm, &call);
    else if (mine->kind == ROTA_KIND_ALL_GATHER)
        status =
            rota_all_gather(in, out, mine->count, mine->dtype, seat->comm,
                            trial->algorithm != NULL &&
                                    rota_algorithm_does(trial->algorithm, mine->kind, seat->nranks)
                                ? &call
                                : NULL);
    else
        status = rota_broadcast(in, out, mine->count, mine->dtype, mine->root, seat->comm, NULL);
    /* A rank that had nothing to wait for finds it at its next call. */
    if (status == ROTA_OK)
        status = rota_barrier(seat->comm, NULL);
    atomic_store(&seat->outcome->values[0], (uint64_t)kit_now_ms());
    free(in);
    free(out);
    return status;
}

static void check_trial(const struct kit_job *job, const struct trial *trial) {
    char texts[KIT_RANKS * ROTA_ERROR_MAX_MESSAGE] = "", what[160];
    int failed = kit_failures();
    int64_t last_call = 0;
    snprintf(what, sizeof(what), "%s, %d ranks, %s, %s", trial->what->name, job->nranks,
             job->transport, trial->algorithm != NULL ? trial->algorithm : "default");
    for (int r = 0; r < job->nranks; r++)
        if (job->outcomes[r].began_ms > last_call)
            last_call = job->outcomes[r].began_ms;
    for (int r = 0; r < job->nranks; r++) {
        const struct kit_outcome *outcome = &job->outcomes[r];
        CHECK(outcome->wait_status == 0 && outcome->body != ROTA_OK, "%s: rank %d: %s", what, r,
              rota_status_name(outcome->body));
        /* Who calls later finds the communicator failed; the reason is the same. */
        CHECK(outcome->error.status == ROTA_ERR_MISMATCH, "%s: rank %d: %s", what, r,
              rota_status_name(outcome->error.status));
        CHECK(outcome->error.culprit_count == 0, "%s: rank %d blames somebody", what, r);
        int64_t took = (int64_t)atomic_load(&outcome->values[0]) - last_call;
        CHECK(took < AT_MOST_MS, "%s: rank %d returned after %lld ms", what, r, (long long)took);
        strcat(texts, outcome->error.message);
    }
    for (int i = 0; trial->what->words[i] != NULL; i++)
        CHECK(strstr(texts, trial->what->words[i]) != NULL, "%s: nobody says \"%s\"", what,
              trial->what->words[i]);
    if (kit_failures() > failed)
        kit_tell(job);
}

static void try(int nranks, const char *transport, const struct disagreement *what,
                const char *algorithm) {
    struct trial trial = {.what = what, .algorithm = algorithm};
    struct kit_job job = {.nranks = nranks,
                          .transport = transport,
                          .body = make_call,
                          .arg = &trial,
                          .timeout_ms = T_MS};
    kit_job_run(&job, 30000);
    check_trial(&job, &trial);
    kit_job_end(&job);
}

/* From `first` to before `end` of the table. */
static void try_all(int nranks, int first, int end, bool algorithms) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int t = 0; t < 2; t++)
        for (int d = first; d < end; d++) {
            const struct disagreement *what = &disagreements[d];
            if (!algorithms || what->others.kind == ROTA_KIND_BROADCAST)
                try(nranks, transports[t], what, NULL);
            for (int a = 0; algorithms && rota_algorithm_name(a) != NULL; a++)
                if (what->others.kind == ROTA_KIND_ALL_REDUCE &&
                    rota_algorithm_does(rota_algorithm_name(a), ROTA_KIND_ALL_REDUCE, nranks))
                    try(nranks, transports[t], what, rota_algorithm_name(a));
        }
}

enum { COUNTS = 3 };

static void C44_different_counts(void) {
    try_all(4, 0, COUNTS, false);
    try_all(8, 0, COUNTS, false);
}

static void C44_different_counts_every_algorithm(void) {
    try_all(4, 0, COUNTS, true);
    try_all(8, 0, COUNTS, true);
}

static void C45_different_calls(void) {
    try_all(4, COUNTS, NDISAGREEMENTS, false);
}

static void C45_different_calls_every_algorithm(void) {
    try_all(4, COUNTS, NDISAGREEMENTS, true);
}

int main(int argc, char **argv) {
    static const struct kit_case cases[] = {
        {"C44_different_counts", C44_different_counts, 200},
        {"C44_different_counts_every_algorithm", C44_different_counts_every_algorithm, 390},
        {"C45_different_calls", C45_different_calls, 100},
        {"C45_different_calls_every_algorithm", C45_different_calls_every_algorithm, 390},
        {NULL, NULL, 0},
    };
    return kit_main(cases, argc, argv);
}
