/* The reader of flight recordings on arbitrary bytes, and what merges them. The input is the files
 * of a job one after the other: each page that begins as a head begins a file. Where FUZZ_SEEDS
 * names a folder, recordings that the recorder wrote go there first: the seeds. */
#include "base/error.h"
#include "base/settings.h"
#include "recording/reader.h"
#include "recording/recorder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILES 8

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void remove_folder(void) {
    (void)rmdir(folder);
}

static void must(bool done, const char *what) {
    if (done)
        return;
    fprintf(stderr, "fuzz: %s\n", what);
    abort();
}

/* -- seeds --------------------------------------------------------------------------------------
 */

/* Calls of one rank of three; who is in the last one, and in which, depends on `variant`. */
static void record(struct recorder *recorder, int rank, int variant) {
    struct record_entry entry = {.fingerprint = 77,
                                 .count = 1 << 20,
                                 .dtype = ROTA_FLOAT32,
                                 .op = ROTA_SUM,
                                 .root = -1,
                                 .kind = ROTA_KIND_ALL_REDUCE};
    struct record_page *page =
        recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, "world", rank, 3, NULL);
    struct record_page *messages =
        recorder_page(recorder, RECORD_PAGE_MESSAGES, 0, 0, "world", rank, 3, NULL);
    must(page != NULL && messages != NULL, "no pages");
    recorder_joined(recorder);
    entry.algorithm = recorder_algorithm(recorder, "ring");
    for (entry.sequence = 1; entry.sequence < 4; entry.sequence++)
        record_end(record_begin(page, &entry, true), ROTA_OK);
    if (variant == 1 && rank == 1) { /* another call than the others' */
        entry.kind = ROTA_KIND_ALL_GATHER;
        entry.fingerprint = 78;
    }
    if (variant < 2 || rank != 2)
        record_waiting(page, record_begin(page, &entry, true), 2);
    entry = (struct record_entry){.sequence = 1, .count = 8, .dtype = ROTA_UINT8};
    entry.kind = rank == 0 ? ROTA_KIND_SEND : ROTA_KIND_RECV;
    entry.root = (rank + 1) % 3;
    (void)record_begin_queued(messages, &entry, true);
    rota_error error = ROTA_ERROR_INIT;
    error.status = ROTA_ERR_TIMEOUT;
    snprintf(error.message, sizeof(error.message), "waited for rank 2");
    if (variant == 2)
        recorder_failed(recorder, 0, 0, &error);
}

static void append(const char *path, FILE *out) {
    char bytes[RECORD_PAGE];
    FILE *in = fopen(path, "re");
    must(in != NULL, "a recording was not written");
    for (size_t got; (got = fread(bytes, 1, sizeof(bytes), in)) > 0;)
        must(fwrite(bytes, 1, got, out) == got, "a seed was not written");
    fclose(in);
    unlink(path);
}

static void write_seed(const char *seeds, int variant) {
    char path[4096];
    struct settings *settings;
    snprintf(path, sizeof(path), "%s/recording-%d", seeds, variant);
    FILE *out = fopen(path, "we");
    must(out != NULL, "the folder of FUZZ_SEEDS takes no files");
    must(setenv("ROTA_RECORD_DIR", seeds, 1) == 0 && settings_load(&settings) == ROTA_OK,
         "no settings");
    for (int rank = 0; rank < 3; rank++) {
        struct recorder *recorder = NULL;
        struct recorder_owner owner = {.rank = rank, .nranks = 3, .host = "here"};
        must(recorder_open(settings, &owner, &recorder) == ROTA_OK, "no recorder");
        record(recorder, rank, variant);
        snprintf(path, sizeof(path), "%s", recorder_path(recorder));
        recorder_close(recorder, false);
        append(path, out);
    }
    settings_free(settings);
    *strrchr(path, '/') = '\0';
    must(rmdir(path) == 0, "the recordings' folder stays");
    must(fclose(out) == 0, "a seed was not written");
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc, (void)argv;
    const char *seeds = getenv("FUZZ_SEEDS");
    snprintf(folder, sizeof(folder), "/dev/shm/rota-fuzz-XXXXXX");
    must(mkdtemp(folder) != NULL && atexit(remove_folder) == 0, "no folder under /dev/shm");
    for (int variant = 0; seeds != NULL && variant < 3; variant++)
        write_seed(seeds, variant);
    return 0;
}

/* -- inputs -------------------------------------------------------------------------------------
 */

static bool is_head(const uint8_t *page, size_t left) {
    uint32_t magic;
    memcpy(&magic, page, sizeof(magic));
    return left >= RECORD_PAGE && magic == RECORD_MAGIC;
}

/* Under the name that its head gives: one of another name is damaged, and no more is seen of it. */
static void write_file(const uint8_t *bytes, size_t size, char path[128]) {
    struct record_head head;
    memcpy(&head, bytes, sizeof(head));
    snprintf(path, 128, "%s/rank-%d.rota", folder, head.rank);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    must(fd >= 0 && write(fd, bytes, size) == (ssize_t)size, "a file was not written");
    close(fd);
}

/* What is read must be true of itself: camps and waits of somebody. */
static void read_all(void) {
    struct rota_recording *recording = calloc(1, sizeof(*recording));
    must(recording != NULL, "no memory");
    bool whole = recording_read(folder, recording) == ROTA_OK &&
                 recording_merge(recording) == ROTA_OK &&
                 recording_find_waits(recording) == ROTA_OK;
    for (int i = 0; whole && i < recording->ncomms; i++)
        for (int m = 0; m < recording->comms[i].info.nranks; m++)
            must(recording->comms[i].members[m].camp < recording->comms[i].info.camp_count,
                 "a member of no camp");
    for (int i = 0; whole && i < recording->nwaits; i++)
        must(recording->waits[i].waiter >= 0 && recording->waits[i].waiter < recording->nranks &&
                 recording->waits[i].awaited >= 0 &&
                 recording->waits[i].awaited < recording->nranks,
             "a wait of nobody");
    recording_free(recording);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char paths[MAX_FILES][128];
    int files = 0;
    for (size_t from = 0, to; from + RECORD_PAGE <= size && files < MAX_FILES; from = to) {
        for (to = from + RECORD_PAGE; to < size && !is_head(&data[to], size - to);)
            to = size - to < RECORD_PAGE ? size : to + RECORD_PAGE;
        write_file(&data[from], to - from, paths[files++]);
    }
    if (files > 0)
        read_all();
    for (int i = 0; i < files; i++)
        unlink(paths[i]);
    return 0;
}
