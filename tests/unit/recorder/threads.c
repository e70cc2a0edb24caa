/* The recorder under threads, for ThreadSanitizer: one that calls, as collectives do, one that
 * asks, as the control thread does, one that makes and drops communicators, and forks in between.
 */
#include "recording/recorder.h"

#include "base/settings.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS 200000

static struct recorder *recorder;
static struct record_page *page;
static _Atomic bool stop;
static _Atomic uint64_t found, torn;

static struct record_entry entry_of(uint64_t sequence) {
    return (struct record_entry){.sequence = sequence,
                                 .fingerprint = sequence + 1,
                                 .count = sequence * 3,
                                 .dtype = ROTA_FLOAT32,
                                 .root = -1,
                                 .kind = ROTA_KIND_ALL_REDUCE};
}

static void *call(void *arg) {
    static const char *const names[] = {"ring", "direct", "tree"};
    /* On one core the one that asks may come late. */
    for (uint64_t i = 1; i <= CALLS || (atomic_load(&found) < 100 && i < 1000ull * CALLS); i++) {
        struct record_entry entry = entry_of(i);
        entry.algorithm = recorder_algorithm(recorder, names[i % 3]);
        struct record_call *line = record_begin(page, &entry, record_stamps(page, i, 8));
        if (i % 7 == 0)
            record_waiting(page, line, (int)(i % 2));
        record_end(line, ROTA_OK);
    }
    atomic_store(&stop, true);
    return arg;
}

static void *ask(void *arg) {
    struct record_call copy;
    struct record_page head;
    while (!atomic_load(&stop)) {
        if (recorder_find(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, 0, &copy)) {
            atomic_fetch_add(&found, 1);
            if (copy.count != copy.sequence * 3 || copy.fingerprint != copy.sequence + 1)
                atomic_fetch_add(&torn, 1);
        }
        if (recorder_running(recorder, &copy, &head) && copy.begun != 0)
            recorder_ticks_to_ns(recorder, copy.begun);
    }
    return arg;
}

static void *make(void *arg) {
    rota_error error = ROTA_ERROR_INIT;
    error.status = ROTA_ERR_PEER;
    for (uint32_t i = 1; !atomic_load(&stop); i++) {
        struct record_page *own =
            recorder_page(recorder, RECORD_PAGE_COLLECTIVES, i, 0, "other", 0, 2, NULL);
        struct record_entry entry = entry_of(1);
        record_end(record_begin_queued(own, &entry, true), ROTA_OK);
        if (i % 50 == 0)
            recorder_failed(recorder, i, 0, &error);
        recorder_page_free(recorder, own);
    }
    return arg;
}

int main(void) {
    char folder[] = "/tmp/rota-test-XXXXXX", job[128];
    struct settings *settings;
    struct recorder_owner owner = {.nranks = 2, .host = "here"};
    if (mkdtemp(folder) == NULL || setenv("ROTA_RECORD_DIR", folder, 1) != 0 ||
        settings_load(&settings) != ROTA_OK ||
        recorder_open(settings, &owner, &recorder) != ROTA_OK || recorder_path(recorder)[0] == 0)
        return 1;
    page = recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, "world", 0, 2, NULL);
    pthread_t threads[3];
    pthread_create(&threads[0], NULL, call, NULL);
    pthread_create(&threads[1], NULL, ask, NULL);
    pthread_create(&threads[2], NULL, make, NULL);
    int forks = 0, failed = 0, status;
    for (; forks < 20; forks++) {
        pid_t child = fork();
        if (child == 0) /* what was the file is empty memory here */
            _exit(page->ring[0].sequence != 0 || page->used != 0);
        failed += child < 0 || waitpid(child, &status, 0) != child || status != 0;
    }
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    recorder_close(recorder, true);
    settings_free(settings);
    snprintf(job, sizeof(job), "%s/00000000000000000000000000000000", folder);
    printf("%llu copies, %llu torn, %d of %d forks went wrong\n", (unsigned long long)found,
           (unsigned long long)torn, failed, forks);
    bool gone = access(job, F_OK) != 0 && rmdir(folder) == 0;
    return found == 0 || torn != 0 || failed != 0 || !gone;
}
