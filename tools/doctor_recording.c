/* `rota doctor DIR` and `--pid`: says in plain words what the recordings of a job show. */
#include "tools/doctor.h"

#include <rota/recording.h>
#include <rota/rota.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* -- words --------------------------------------------------------------------------------------
 */

/* "3.1 s", "12 ms", "5 us". */
static const char *duration(int64_t ns, char text[32]) {
    if (ns < 0)
        ns = 0;
    if (ns < 1000000)
        snprintf(text, 32, "%.0f us", (double)ns / 1e3);
    else if (ns < 1000000000)
        snprintf(text, 32, "%.0f ms", (double)ns / 1e6);
    else if (ns < INT64_C(600000000000))
        snprintf(text, 32, "%.1f s", (double)ns / 1e9);
    else
        snprintf(text, 32, "%.1f min", (double)ns / 6e10);
    return text;
}

static const char *clock_time(int64_t ns, char text[48]) {
    time_t seconds = (time_t)(ns / 1000000000);
    struct tm broken;
    if (localtime_r(&seconds, &broken) == NULL || strftime(text, 40, "%F %T", &broken) == 0)
        return strcpy(text, "?");
    size_t length = strlen(text);
    snprintf(text + length, 48 - length, ".%03d", (int)(ns / 1000000 % 1000));
    return text;
}

/* "0, 2-3, 7", with an end that says how many more there are. */
static void list_ranks(const int *ranks, int count, char *text, size_t size) {
    size_t n = 0;
    text[0] = '\0';
    for (int i = 0; i < count;) {
        int last = i;
        while (last + 1 < count && ranks[last + 1] == ranks[last] + 1)
            last++;
        if (n + 40 > size) {
            snprintf(text + n, size - n, " and %d more", count - i);
            return;
        }
        n += (size_t)snprintf(text + n, size - n, "%s%d", i > 0 ? ", " : "", ranks[i]);
        if (last > i)
            n += (size_t)snprintf(text + n, size - n, "%s%d", last > i + 1 ? "-" : ", ",
                                  ranks[last]);
        i = last + 1;
    }
}

static int compare(const void *a, const void *b) {
    return *(const int *)a - *(const int *)b;
}

/* "all_reduce #5 (float32 sum, 1000) by ring". */
static void describe_call(const rota_recorded_call *call, char *text, size_t size) {
    const char *kind = rota_kind_name(call->kind), *dtype = rota_dtype_name(call->dtype);
    bool messages = call->kind == ROTA_KIND_SEND || call->kind == ROTA_KIND_RECV;
    bool reduces = call->kind == ROTA_KIND_ALL_REDUCE || call->kind == ROTA_KIND_REDUCE ||
                   call->kind == ROTA_KIND_REDUCE_SCATTER || call->kind == ROTA_KIND_SCAN ||
                   call->kind == ROTA_KIND_EXCLUSIVE_SCAN;
    const char *op = rota_op_name(call->op);
    int n = snprintf(text, size, "%s%s", kind, call->vector ? "_v" : "");
    if (!messages)
        n += snprintf(text + n, size - (size_t)n, " #%llu", (unsigned long long)call->sequence);
    if (call->kind != ROTA_KIND_BARRIER)
        n += snprintf(text + n, size - (size_t)n, " (%s%s%s, %llu)", dtype ? dtype : "unknown type",
                      reduces ? " " : "", reduces ? (op ? op : "user's operator") : "",
                      (unsigned long long)call->count);
    if (messages && call->root >= 0)
        n += snprintf(text + n, size - (size_t)n, " %s member %d, tag %d",
                      call->kind == ROTA_KIND_SEND ? "to" : "from", call->root, call->tag);
    else if (messages)
        n += snprintf(text + n, size - (size_t)n, " from any member, tag %d", call->tag);
    else if (call->root >= 0)
        n += snprintf(text + n, size - (size_t)n, " root %d", call->root);
    if (call->algorithm[0] != '\0')
        snprintf(text + n, size - (size_t)n, " by %s", call->algorithm);
}

static const rota_recorded_rank *find_rank(const struct doctor *doctor, int rank) {
    for (int i = 0; i < doctor->info.rank_count; i++)
        if (doctor->ranks[i].rank == rank)
            return &doctor->ranks[i];
    return NULL;
}

/* How long a call that runs had run when its rank was last seen; "" when that is not known. */
static const char *since(const struct doctor *doctor, int rank, int64_t begun_ns, char text[64]) {
    const rota_recorded_rank *self = find_rank(doctor, rank);
    char length[32], at[48];
    text[0] = '\0';
    if (self == NULL || begun_ns == 0)
        return text;
    if (self->life == ROTA_LIFE_RUNNING)
        snprintf(text, 64, ", for %s", duration(doctor->info.taken_ns - begun_ns, length));
    else
        snprintf(text, 64, ", since %s", clock_time(begun_ns, at));
    return text;
}

/* -- ranks --------------------------------------------------------------------------------------
 */

/* Ranks that are told one by one. */
#define MANY_RANKS 16

static void print_rank(struct doctor *doctor, const rota_recorded_rank *rank) {
    char at[48];
    printf("  rank %d (%s, pid %lld): ", rank->rank, rank->host, (long long)rank->pid);
    switch (rank->life) {
    case ROTA_LIFE_RUNNING:
        printf("%s", rank->joined ? "running" : "running, still joining the job");
        break;
    case ROTA_LIFE_ENDED:
        printf("has left the job");
        break;
    case ROTA_LIFE_DEAD:
        printf("DEAD: its process ended without leaving the job, last seen %s",
               clock_time(rank->seen_ns, at));
        doctor->bad = true;
        break;
    default:
        printf("of another host or container: whether it runs cannot be told here");
    }
    printf("\n");
    if (rank->failure == ROTA_OK)
        return;
    doctor->bad = true;
    printf("    FAILED with %s on %s at %s: %s\n", rota_status_name(rank->failure),
           rank->failed_comm[0] ? rank->failed_comm : "the job", clock_time(rank->failed_ns, at),
           rank->failed_text);
}

static void print_ranks(struct doctor *doctor) {
    const rota_recording_info *info = &doctor->info;
    printf("job %s, %d rank%s, recordings of %d, in %s\n", info->job, info->nranks,
           info->nranks == 1 ? "" : "s", info->rank_count, info->folder);
    if (info->damaged_count > 0)
        printf("  %d file%s no recording of this job and left out\n", info->damaged_count,
               info->damaged_count == 1 ? " is" : "s are");
    if (info->rank_count < info->nranks)
        printf("  the others' are missing: bring the files of all hosts into one folder\n");
    /* Of many ranks those that run well share a line. */
    bool many = info->rank_count > MANY_RANKS;
    int well = 0;
    for (int i = 0; i < info->rank_count; i++) {
        const rota_recorded_rank *rank = &doctor->ranks[i];
        if (many && rank->life == ROTA_LIFE_RUNNING && rank->joined && rank->failure == ROTA_OK)
            doctor->list[well++] = rank->rank;
        else
            print_rank(doctor, rank);
    }
    if (well > 0) {
        char text[512];
        list_ranks(doctor->list, well, text, sizeof(text));
        printf("  ranks %s: running\n", text);
    }
}

/* -- communicators ------------------------------------------------------------------------------
 */

/* What a rank that is absent does instead. */
static void print_instead(const struct doctor *doctor, int rank, const rota_recorded_comm *comm) {
    const rota_recorded_rank *self = find_rank(doctor, rank);
    char text[256], length[64];
    int index = self != NULL ? (int)(self - doctor->ranks) : -1;
    bool told = false;
    for (int p = 0; self != NULL && p < self->page_count; p++) {
        rota_recorded_page page = ROTA_RECORDED_PAGE_INIT;
        rota_recorded_call call = ROTA_RECORDED_CALL_INIT;
        if (rota_recording_page(doctor->recording, index, p, &page) != ROTA_OK)
            continue;
        for (int c = 0; c < page.call_count && !told; c++) {
            if (rota_recording_call(doctor->recording, index, p, c, &call) != ROTA_OK ||
                !call.running)
                continue;
            describe_call(&call, text, sizeof(text));
            printf("    rank %d is in %s on %s instead%s\n", rank, text, page.name,
                   since(doctor, rank, call.begun_ns, length));
            told = true;
        }
    }
    if (self != NULL && !told)
        printf("    rank %d is in no call%s\n", rank,
               self->life == ROTA_LIFE_DEAD ? ": it is dead" : "");
    (void)comm;
}

static void print_camp(const struct doctor *doctor, int comm_index, const rota_recorded_comm *comm,
                       int index) {
    rota_recorded_camp camp = ROTA_RECORDED_CAMP_INIT;
    if (rota_recording_camp(doctor->recording, comm_index, index, &camp, doctor->list,
                            comm->nranks) != ROTA_OK)
        return;
    char ranks[256], call[256], length[64];
    qsort(doctor->list, (size_t)camp.rank_count, sizeof(int), compare);
    list_ranks(doctor->list, camp.rank_count, ranks, sizeof(ranks));
    const char *word = camp.rank_count == 1 ? "rank" : "ranks";
    describe_call(&camp.call, call, sizeof(call));
    if (!camp.absent) {
        bool one = camp.rank_count == 1;
        const char *doing = camp.running > 0  ? (one ? "is in" : "are in")
                            : camp.failed > 0 ? "failed in"
                                              : (one ? "has ended" : "have ended");
        printf("  %s %s %s %s%s\n", word, ranks, doing, call,
               camp.running > 0 ? since(doctor, doctor->list[0], camp.begun_ns, length) : "");
        int through = camp.rank_count - camp.running - camp.failed;
        if (camp.running + camp.failed > 0 && through > 0)
            printf("    %d of them ended it well\n", through);
        return;
    }
    printf("  %s %s %s not called #%llu", word, ranks, camp.rank_count == 1 ? "has" : "have",
           (unsigned long long)comm->sequence);
    if (camp.call.sequence == 0)
        printf("; nor anything before on this communicator\n");
    else
        printf("; the last call of rank %d was %s\n", doctor->list[0], call);
    enum { MOST = 8 };
    int told = camp.rank_count < MOST ? camp.rank_count : MOST;
    int few[MOST];
    memcpy(few, doctor->list, (size_t)told * sizeof(int));
    for (int i = 0; i < told; i++)
        print_instead(doctor, few[i], comm);
}

static void print_comm(struct doctor *doctor, int index) {
    rota_recorded_comm comm = ROTA_RECORDED_COMM_INIT;
    if (rota_recording_comm(doctor->recording, index, &comm) != ROTA_OK)
        return;
    printf("\ncommunicator %s (%d ranks): ", comm.name, comm.nranks);
    unsigned long long sequence = comm.sequence;
    switch (comm.state) {
    case ROTA_RECORDED_QUIET:
        printf(comm.sequence == 0 ? "no call is recorded\n" : "all have ended call #%llu\n",
               sequence);
        return;
    case ROTA_RECORDED_APART:
        printf("nobody is in a call, and some have called more than others: #%llu\n", sequence);
        break;
    case ROTA_RECORDED_RUNNING:
        printf("all have begun call #%llu\n", sequence);
        break;
    case ROTA_RECORDED_WAITING:
        printf("INCOMPLETE: not all have begun call #%llu\n", sequence);
        doctor->bad = true;
        break;
    default:
        printf("ranks DIVERGE at call #%llu\n", sequence);
        doctor->bad = true;
    }
    for (int i = 0; i < comm.camp_count; i++)
        print_camp(doctor, index, &comm, i);
}

/* -- waits --------------------------------------------------------------------------------------
 */

static void print_cycle(const struct doctor *doctor, int cycle) {
    printf("  CYCLE, none of these can go on:\n");
    for (int i = 0; i < doctor->info.wait_count; i++) {
        rota_recorded_wait wait = ROTA_RECORDED_WAIT_INIT;
        char call[256];
        if (rota_recording_wait(doctor->recording, i, &wait) != ROTA_OK || wait.cycle != cycle)
            continue;
        describe_call(&wait.call, call, sizeof(call));
        printf("    rank %d, in %s on %s, waits for rank %d\n", wait.waiter, call, wait.comm_name,
               wait.awaited);
    }
}

/* Those for whom others wait and who wait for nobody: where to look first. */
static void print_ends(const struct doctor *doctor) {
    int *role = calloc((size_t)doctor->info.nranks, sizeof(*role)); /* 1 awaited, 2 waits */
    if (role == NULL)
        return;
    for (int i = 0; i < doctor->info.wait_count; i++) {
        rota_recorded_wait wait = ROTA_RECORDED_WAIT_INIT;
        if (rota_recording_wait(doctor->recording, i, &wait) != ROTA_OK)
            continue;
        role[wait.waiter] |= 2;
        role[wait.awaited] |= 1;
    }
    for (int r = 0; r < doctor->info.nranks; r++) {
        const rota_recorded_rank *self = role[r] == 1 ? find_rank(doctor, r) : NULL;
        if (self == NULL)
            continue;
        printf("  look at rank %d first (%s, pid %lld): others wait for it, it waits for none%s\n",
               r, self->host, (long long)self->pid,
               self->life == ROTA_LIFE_DEAD ? ", and it is dead" : "");
    }
    free(role);
}

static bool same_wait(const rota_recorded_wait *a, const rota_recorded_wait *b) {
    bool messages = a->call.kind == ROTA_KIND_SEND || a->call.kind == ROTA_KIND_RECV;
    return !messages && a->awaited == b->awaited && a->comm_index == b->comm_index &&
           a->call.kind == b->call.kind && a->call.sequence == b->call.sequence &&
           a->call.running == b->call.running;
}

/* Those that wait for the same rank in the same call share a line; waits[first] is the first. */
static void print_wait(const struct doctor *doctor, const rota_recorded_wait *waits, int first,
                       bool *told) {
    const rota_recorded_wait *wait = &waits[first];
    char ranks[256], call[256], length[64];
    int count = 0;
    for (int i = first; i < doctor->info.wait_count; i++) {
        if (i != first && (told[i] || !same_wait(wait, &waits[i])))
            continue;
        told[i] = true;
        if (count < doctor->info.nranks)
            doctor->list[count++] = waits[i].waiter;
    }
    list_ranks(doctor->list, count, ranks, sizeof(ranks));
    describe_call(&wait->call, call, sizeof(call));
    const char *waiting = !wait->call.running ? "waited" : count == 1 ? "waits" : "wait";
    printf("  rank%s %s %s for rank %d in %s on %s%s\n", count == 1 ? "" : "s", ranks, waiting,
           wait->awaited, call, wait->comm_name,
           wait->call.running ? since(doctor, wait->waiter, wait->call.begun_ns, length) : "");
}

static void print_waits(const struct doctor *doctor) {
    enum { MOST = 64 };
    int count = doctor->info.wait_count, lines = 0;
    if (count == 0)
        return;
    rota_recorded_wait *waits = calloc((size_t)count, sizeof(*waits));
    bool *told = calloc((size_t)count, sizeof(*told));
    printf("\nwaits\n");
    for (int i = 0; waits != NULL && told != NULL && i < count; i++) {
        waits[i] = (rota_recorded_wait)ROTA_RECORDED_WAIT_INIT;
        if (rota_recording_wait(doctor->recording, i, &waits[i]) != ROTA_OK)
            told[i] = true;
    }
    for (int i = 0; waits != NULL && told != NULL && i < count && lines < MOST; i++)
        if (!told[i]) {
            print_wait(doctor, waits, i, told);
            lines++;
        }
    if (lines == MOST)
        printf("  and perhaps more\n");
    free(waits);
    free(told);
    for (int c = 0; c < doctor->info.cycle_count; c++)
        print_cycle(doctor, c);
    print_ends(doctor);
}

/* -- skew ---------------------------------------------------------------------------------------
 */

/* Most cost first. */
static int by_cost(const void *a, const void *b) {
    const rota_recorded_skew *left = a, *right = b;
    if (left->cost_ns != right->cost_ns)
        return left->cost_ns < right->cost_ns ? 1 : -1;
    return left->rank - right->rank;
}

static void print_skews(const char *name, const rota_recorded_skew *skews, int count) {
    printf("\narrival on %s, by the calls that are recorded with their time\n"
           "  %6s %8s %12s %12s %14s %7s\n",
           name, "rank", "calls", "late, mean", "most", "others waited", "share");
    for (int i = 0; i < count && i < MANY_RANKS; i++) {
        char late[32], most[32], cost[32];
        printf("  %6d %8d %12s %12s %14s %6.1f%%\n", skews[i].rank, skews[i].calls,
               duration(skews[i].late_ns, late), duration(skews[i].most_late_ns, most),
               duration(skews[i].cost_ns, cost), 100 * skews[i].share);
    }
    if (count > MANY_RANKS)
        printf("  and %d more, for which others waited less\n", count - MANY_RANKS);
}

static void print_skew(const struct doctor *doctor, int comm_index) {
    rota_recorded_comm comm = ROTA_RECORDED_COMM_INIT;
    if (rota_recording_comm(doctor->recording, comm_index, &comm) != ROTA_OK || comm.seen == 0)
        return;
    rota_recorded_skew *skews = calloc((size_t)comm.seen, sizeof(*skews));
    int count = 0;
    for (int i = 0; skews != NULL && i < comm.seen; i++) {
        skews[count] = (rota_recorded_skew)ROTA_RECORDED_SKEW_INIT;
        if (rota_recording_skew(doctor->recording, comm_index, i, &skews[count]) == ROTA_OK)
            count += skews[count].calls > 0 || skews[count].cost_ns > 0;
    }
    if (count > MANY_RANKS)
        qsort(skews, (size_t)count, sizeof(*skews), by_cost);
    if (count > 0)
        print_skews(comm.name, skews, count);
    free(skews);
}

/* -- a running rank -----------------------------------------------------------------------------
 */

/* What one rank is in, and for whom it waits. */
static void print_own(struct doctor *doctor) {
    const rota_recorded_rank *self = find_rank(doctor, doctor->only);
    int index = (int)(self - doctor->ranks);
    bool inside = false;
    printf("rank %d of %d (%s, pid %lld), job %s\n", self->rank, doctor->info.nranks, self->host,
           (long long)self->pid, doctor->info.job);
    if (!self->joined)
        printf("  it is still joining the job\n");
    for (int p = 0; p < self->page_count; p++) {
        rota_recorded_page page = ROTA_RECORDED_PAGE_INIT;
        rota_recorded_call call = ROTA_RECORDED_CALL_INIT;
        char text[256], length[64];
        if (rota_recording_page(doctor->recording, index, p, &page) != ROTA_OK)
            continue;
        for (int c = 0; c < page.call_count; c++) {
            if (rota_recording_call(doctor->recording, index, p, c, &call) != ROTA_OK)
                continue;
            describe_call(&call, text, sizeof(text));
            if (call.running) {
                printf("  in %s on %s%s", text, page.name,
                       since(doctor, self->rank, call.begun_ns, length));
                if (call.waiting_for >= 0 && !page.messages)
                    printf(", waits for member %d", call.waiting_for);
                printf("\n");
                inside = true;
            } else if (c + 1 == page.call_count) {
                printf("  last on %s: %s%s%s\n", page.name, text,
                       call.status == ROTA_OK ? "" : ", which failed with ",
                       call.status == ROTA_OK ? "" : rota_status_name(call.status));
            }
        }
    }
    if (!inside)
        printf("  it is in no call\n");
}

/* -- entry --------------------------------------------------------------------------------------
 */

static int fail(const char *what) {
    rota_error error = ROTA_ERROR_INIT;
    rota_last_error(&error);
    fprintf(stderr, "%s: %s: %s\n", DOCTOR_COMMAND, what, error.message);
    return 1;
}

static int collect(struct doctor *doctor) {
    doctor->info = (rota_recording_info)ROTA_RECORDING_INFO_INIT;
    if (rota_recording_describe(doctor->recording, &doctor->info) != ROTA_OK)
        return fail("the recording");
    doctor->ranks = calloc((size_t)doctor->info.rank_count, sizeof(*doctor->ranks));
    doctor->list = calloc((size_t)doctor->info.nranks, sizeof(*doctor->list));
    if (doctor->ranks == NULL || doctor->list == NULL) {
        fprintf(stderr, "%s: out of memory\n", DOCTOR_COMMAND);
        return 1;
    }
    for (int i = 0; i < doctor->info.rank_count; i++) {
        doctor->ranks[i] = (rota_recorded_rank)ROTA_RECORDED_RANK_INIT;
        if (rota_recording_rank(doctor->recording, i, &doctor->ranks[i]) != ROTA_OK)
            return fail("a rank");
    }
    return 0;
}

static int report(struct doctor *doctor) {
    int status = collect(doctor);
    if (status == 0 && doctor->only >= 0)
        print_own(doctor);
    if (status == 0) {
        if (doctor->only >= 0)
            printf("\n");
        print_ranks(doctor);
        for (int i = 0; i < doctor->info.comm_count; i++)
            print_comm(doctor, i);
        print_waits(doctor);
        for (int i = 0; i < doctor->info.comm_count; i++)
            print_skew(doctor, i);
        status = doctor->bad || doctor->info.cycle_count > 0;
    }
    free(doctor->ranks);
    free(doctor->list);
    rota_recording_close(doctor->recording);
    return status;
}

int doctor_folder(const char *folder) {
    struct doctor doctor = {.only = -1};
    if (rota_recording_open(folder, &doctor.recording) != ROTA_OK)
        return fail(folder);
    return report(&doctor);
}

int doctor_process(int64_t pid) {
    struct doctor doctor = {.only = -1};
    if (rota_recording_open_process(pid, &doctor.recording, &doctor.only) != ROTA_OK)
        return fail("--pid");
    return report(&doctor);
}
