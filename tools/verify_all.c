/* Every algorithm x operation x number of ranks x root x in-place form, on all usable cores.
 *
 * A task is one (algorithm, operation, number of ranks); threads draw the largest first, so that
 * the last to finish is a small one. Each task's summary has its own place, so nothing is shared
 * but the counter. */
#include "cli/progress.h"
#include "tools/verify.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct verify_task {
    const char *algorithm;
    rota_kind kind;
    int nranks;
    struct verify_summary summary;
};

struct verify_work {
    const struct verify_request *request;
    struct verify_task *tasks;
    int count;
    atomic_int next, done;
};

void verify_summary_init(struct verify_summary *summary) {
    memset(summary, 0, sizeof(*summary));
    summary->same = summary->canonical = summary->ascending = summary->same_in_fast = true;
}

void verify_summary_merge(struct verify_summary *into, const struct verify_summary *from) {
    if (from->schedules == 0 && !from->failed)
        return;
    into->schedules += from->schedules;
    if (into->fewest == 0 || from->fewest < into->fewest)
        into->fewest = from->fewest;
    if (from->most > into->most)
        into->most = from->most;
    into->same &= from->same;
    into->canonical &= from->canonical;
    into->ascending &= from->ascending;
    into->same_in_fast &= from->same_in_fast;
    if (from->fast_roundings > into->fast_roundings)
        into->fast_roundings = from->fast_roundings;
    if (from->depth > into->depth)
        into->depth = from->depth;
    if (!into->refuted && !into->failed)
        memcpy(into->text, from->text, sizeof(into->text));
    into->refuted |= from->refuted;
    into->failed |= from->failed;
}

void verify_summary_print(const struct verify_summary *summary, rota_kind kind) {
    bool reduces = kind == ROTA_KIND_ALL_REDUCE || kind == ROTA_KIND_REDUCE ||
                   kind == ROTA_KIND_REDUCE_SCATTER || kind == ROTA_KIND_SCAN ||
                   kind == ROTA_KIND_EXCLUSIVE_SCAN;
    printf("proven, n = %d..%d, %ld schedules", summary->fewest, summary->most, summary->schedules);
    if (reduces)
        printf(": %s, %s, %s, depth up to %u, fast: %s%u roundings",
               summary->same ? "the same on all ranks" : "not the same on all ranks",
               summary->canonical ? "canonical tree" : "other trees",
               summary->ascending ? "ascending" : "not ascending", summary->depth,
               summary->same_in_fast ? "" : "not the same on all ranks, ", summary->fast_roundings);
    printf("\n");
}

bool verify_kind_has_root(rota_kind kind) {
    return kind == ROTA_KIND_REDUCE || kind == ROTA_KIND_BROADCAST || kind == ROTA_KIND_GATHER ||
           kind == ROTA_KIND_SCATTER;
}

static void describe(char *text, size_t size, const char *algorithm, rota_kind kind, int nranks,
                     int root, int in_place) {
    static const char *const forms[] = {"out of place", "in place", "every second rank in place"};
    char where[32] = "";
    if (root >= 0)
        snprintf(where, sizeof(where), ", root %d", root);
    snprintf(text, size, "%s %s, n = %d%s, %s", algorithm, rota_kind_name(kind), nranks, where,
             forms[in_place]);
}

void verify_one(const char *algorithm, rota_kind kind, int nranks, int root, int in_place,
                struct verify_summary *summary) {
    rota_schedule *schedule = NULL;
    rota_verdict verdict = ROTA_VERDICT_INIT;
    char what[128];
    rota_status status = rota_schedule_build(algorithm, kind, nranks, root, in_place, &schedule);
    if (status == ROTA_OK)
        status = rota_schedule_verify(schedule, &verdict);
    describe(what, sizeof(what), algorithm, kind, nranks, root, in_place);
    if (status) {
        rota_error error = ROTA_ERROR_INIT;
        rota_last_error(&error);
        if (!summary->failed && !summary->refuted)
            snprintf(summary->text, sizeof(summary->text), "%s: %s: %.300s", what,
                     rota_status_name(status), error.message);
        summary->failed = true;
    } else if (!verdict.proven) {
        if (!summary->failed && !summary->refuted)
            snprintf(summary->text, sizeof(summary->text), "%s: %s: %s", what, verdict.fault,
                     verdict.text);
        summary->refuted = true;
    } else {
        summary->same &= verdict.same_on_all_ranks;
        summary->canonical &= verdict.canonical_tree;
        summary->ascending &= verdict.ascending;
        summary->same_in_fast &= verdict.same_in_fast;
        if (verdict.fast_roundings > summary->fast_roundings)
            summary->fast_roundings = verdict.fast_roundings;
        if (verdict.max_depth > summary->depth)
            summary->depth = verdict.max_depth;
    }
    summary->schedules++;
    rota_schedule_free(schedule);
}

static bool root_wanted(const struct verify_request *request, int nranks, int root) {
    if (request->root >= 0)
        return root == request->root;
    if (request->root == VERIFY_ROOT_ALL || nranks <= VERIFY_ALL_ROOTS)
        return true;
    return root <= 1 || root == nranks - 1;
}

static void task_run(const struct verify_request *request, struct verify_task *task) {
    bool rooted = verify_kind_has_root(task->kind);
    verify_summary_init(&task->summary);
    for (int root = rooted ? 0 : -1; root < (rooted ? task->nranks : 0); root++) {
        if (rooted && !root_wanted(request, task->nranks, root))
            continue;
        for (int in_place = 0; in_place <= 2; in_place++)
            verify_one(task->algorithm, task->kind, task->nranks, root, in_place, &task->summary);
    }
    task->summary.fewest = task->summary.most = task->nranks;
}

static void *tasks_draw(void *argument) {
    struct verify_work *work = argument;
    for (;;) {
        /* Relaxed: the tasks were written before the threads were made, and are read after join. */
        int index = atomic_fetch_add_explicit(&work->next, 1, memory_order_relaxed);
        if (index >= work->count)
            return NULL;
        task_run(work->request, &work->tasks[index]);
        atomic_fetch_add_explicit(&work->done, 1, memory_order_relaxed);
    }
}

static void tasks_collect(struct verify_work *work) {
    const struct verify_request *request = work->request;
    for (int nranks = request->last; nranks >= request->first; nranks--)
        for (int i = 0; rota_algorithm_name(i); i++) {
            const char *name = rota_algorithm_name(i);
            if (request->algorithm && strcmp(name, request->algorithm))
                continue;
            for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
                if ((request->kind >= 0 && kind != request->kind) ||
                    !rota_algorithm_does(name, (rota_kind)kind, nranks))
                    continue;
                if (work->tasks)
                    work->tasks[work->count] = (struct verify_task){
                        .algorithm = name, .kind = (rota_kind)kind, .nranks = nranks};
                work->count++;
            }
        }
}

static void *progress_run(void *argument) {
    struct verify_work *work = argument;
    struct cli_progress progress;
    struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    cli_progress_start(&progress);
    for (int done = 0; done < work->count;) {
        done = atomic_load_explicit(&work->done, memory_order_relaxed);
        cli_progress_show(&progress, "verify: %d of %d", done, work->count);
        nanosleep(&pause, NULL);
    }
    cli_progress_clear(&progress);
    return NULL;
}

static void work_run(struct verify_work *work) {
    struct cli_progress probe;
    int wanted = rota_usable_cores(), started = 0;
    pthread_t threads[64], progress;
    if (wanted > 64)
        wanted = 64;
    cli_progress_start(&probe);
    bool shown = probe.terminal && pthread_create(&progress, NULL, progress_run, work) == 0;
    for (int i = 1; i < wanted; i++)
        if (pthread_create(&threads[started], NULL, tasks_draw, work) == 0)
            started++;
    tasks_draw(work);
    for (int i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    if (shown)
        pthread_join(progress, NULL);
}

/* One line per (algorithm, operation), in the order of the table; sums up into *total. */
static int results_print(const struct verify_work *work, struct verify_summary *total) {
    int lines = 0;
    verify_summary_init(total);
    for (int i = 0; rota_algorithm_name(i); i++)
        for (int kind = 0; kind < ROTA_KIND_COUNT; kind++) {
            struct verify_summary sum;
            verify_summary_init(&sum);
            for (int t = work->count - 1; t >= 0; t--)
                if (strcmp(work->tasks[t].algorithm, rota_algorithm_name(i)) == 0 &&
                    (int)work->tasks[t].kind == kind)
                    verify_summary_merge(&sum, &work->tasks[t].summary);
            if (sum.schedules == 0)
                continue;
            lines++;
            verify_summary_merge(total, &sum);
            printf("%-20s %-16s", rota_algorithm_name(i), rota_kind_name((rota_kind)kind));
            if (sum.refuted || sum.failed)
                printf("%s: %s\n", sum.refuted ? "REFUTED" : "FAILED", sum.text);
            else
                verify_summary_print(&sum, (rota_kind)kind);
        }
    return lines;
}

int verify_all(const struct verify_request *request) {
    struct verify_work work = {.request = request};
    struct verify_summary total;
    tasks_collect(&work);
    work.tasks = calloc((size_t)work.count + 1, sizeof(*work.tasks));
    if (!work.tasks) {
        fprintf(stderr, "%s: out of memory\n", request->command);
        return 1;
    }
    work.count = 0;
    tasks_collect(&work);
    if (work.count == 0) {
        fprintf(stderr, "%s: no algorithm does that for these numbers of ranks\n",
                request->command);
        free(work.tasks);
        return 1;
    }
    work_run(&work);
    int lines = results_print(&work, &total);
    bool wrong = total.refuted || total.failed;
    printf("total: %d algorithms and operations, %ld schedules: %s\n", lines, total.schedules,
           wrong ? "NOT PROVEN" : "all proven");
    free(work.tasks);
    return wrong;
}
