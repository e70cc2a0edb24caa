/* Files as readers find them: of killed ranks, cut off, overwritten, of somebody else's making. */
#include "folder.h"

#include "recording/reader.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static rota_status read_all(const char *folder, struct rota_recording **out) {
    struct rota_recording *recording = calloc(1, sizeof(*recording));
    rota_status status = recording_read(folder, recording);
    if (status == ROTA_OK)
        status = recording_merge(recording);
    if (status == ROTA_OK)
        status = recording_find_waits(recording);
    if (status != ROTA_OK) {
        recording_free(recording);
        recording = NULL;
    }
    *out = recording;
    return status;
}

/* One rank of a job as a process that is killed in the middle of call `last`. */
static void killed_rank(int rank, int nranks, uint64_t last, rota_kind kind, int waiting_for) {
    pid_t child = fork();
    if (child == 0) {
        struct recorder *recorder = folder_recorder(9, rank, nranks);
        recorder_joined(recorder);
        struct record_page *page =
            recorder_page(recorder, RECORD_PAGE_COLLECTIVES, 0, 0, "world", rank, nranks, NULL);
        for (uint64_t i = 1; i <= last; i++) {
            struct record_entry entry = folder_entry(i);
            entry.kind = (uint8_t)(i == last ? kind : ROTA_KIND_ALL_REDUCE);
            entry.fingerprint = 5 + entry.kind;
            entry.algorithm = recorder_algorithm(recorder, "ring");
            struct record_call *line = record_begin(page, &entry, true);
            if (i < last)
                record_end(line, ROTA_OK);
            else if (waiting_for >= 0)
                record_waiting(page, line, waiting_for);
        }
        raise(SIGKILL);
    }
    int status;
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFSIGNALED(status));
}

Test(reading, killed_ranks) {
    const char *folder = folder_make();
    struct rota_recording *recording;
    killed_rank(0, 4, 640, ROTA_KIND_ALL_REDUCE, 1);
    killed_rank(1, 4, 640, ROTA_KIND_ALL_GATHER, -1);
    killed_rank(2, 4, 639, ROTA_KIND_ALL_REDUCE, -1);
    cr_assert_eq(read_all(folder, &recording), ROTA_OK);
    cr_assert_eq(recording->nranks, 4);
    cr_assert_eq(recording->count, 3);
    cr_assert_eq(recording->ncomms, 1);
    const rota_recorded_comm *comm = &recording->comms[0].info;
    cr_assert_eq(comm->state, ROTA_RECORDED_DIVERGED);
    cr_assert_eq(comm->sequence, 640);
    cr_assert_eq(comm->seen, 3);
    cr_assert_eq(comm->camp_count, 3);
    const rota_recorded_camp *camps = recording->comms[0].camps;
    cr_assert_eq(camps[0].call.kind, ROTA_KIND_ALL_REDUCE);
    cr_assert_eq(camps[0].rank_count, 1);
    cr_assert_eq(camps[0].running, 1);
    cr_assert_str_eq(camps[0].call.algorithm, "ring");
    cr_assert_eq(camps[1].call.kind, ROTA_KIND_ALL_GATHER);
    cr_assert(camps[2].absent);
    cr_assert_eq(camps[2].call.sequence, 639);
    const rota_recorded_rank *rank = &recording->ranks[2].info;
    cr_assert_eq(rank->life, ROTA_LIFE_DEAD);
    cr_assert_str_eq(rank->host, "here");
    cr_assert(rank->joined);
    cr_assert_eq(recording->ranks[0].pages[0].info.call_count, RECORD_CALLS);
    int64_t begun = recording->ranks[0].pages[0].calls[0].begun_ns;
    cr_assert_lt(llabs(recording->now_ns - begun), INT64_C(60000000000));
    recording_free(recording);
    folder_remove(folder);
}

Test(reading, failure_is_kept) {
    const char *folder = folder_make();
    struct rota_recording *recording;
    struct recorder *recorder = folder_recorder(9, 0, 1);
    rota_error error = ROTA_ERROR_INIT;
    error.status = ROTA_ERR_TIMEOUT;
    snprintf(error.comm_name, sizeof(error.comm_name), "tp");
    snprintf(error.message, sizeof(error.message), "waited\x1b[31m for rank 1");
    recorder_failed(recorder, 7, 0, &error);
    error.status = ROTA_ERR_PEER;
    recorder_failed(recorder, 8, 0, &error);
    recorder_close(recorder, false);
    cr_assert_eq(read_all(folder, &recording), ROTA_OK);
    const rota_recorded_rank *rank = &recording->ranks[0].info;
    cr_assert_eq(rank->life, ROTA_LIFE_ENDED);
    cr_assert_eq(rank->failure, ROTA_ERR_TIMEOUT);
    cr_assert_str_eq(rank->failed_comm, "tp");
    cr_assert_str_eq(rank->failed_text, "waited?[31m for rank 1"); /* no control characters */
    recording_free(recording);
    folder_remove(folder);
}

static void path_of(const char *folder, int rank, char path[256]) {
    snprintf(path, 256, "%s/09090909090909090909090909090909/rank-%d.rota", folder, rank);
}

Test(reading, cut_off_at_any_length) {
    const char *folder = folder_make();
    struct rota_recording *recording;
    char path[256];
    struct stat status;
    killed_rank(0, 2, 100, ROTA_KIND_ALL_REDUCE, 1);
    path_of(folder, 0, path);
    cr_assert_eq(stat(path, &status), 0);
    for (off_t bytes = status.st_size; bytes > 0; bytes -= 1000) {
        cr_assert_eq(truncate(path, bytes), 0);
        rota_status expected = bytes >= RECORD_PAGE ? ROTA_OK : ROTA_ERR_FORMAT;
        cr_assert_eq(read_all(folder, &recording), expected, "%d bytes", (int)bytes);
        if (expected == ROTA_OK)
            cr_assert_eq(recording->ncomms, bytes >= 2 * RECORD_PAGE);
        recording_free(recording);
    }
    cr_assert_eq(truncate(path, 0), 0);
    cr_assert_eq(read_all(folder, &recording), ROTA_ERR_FORMAT);
    folder_remove(folder);
}

/* Random bytes in random places: read or refused, never a crash (the sanitizers look on). */
Test(reading, hostile_bytes) {
    const char *folder = folder_make();
    char path[256];
    uint64_t seed = 12345;
    static unsigned char good[16 * RECORD_PAGE], bad[16 * RECORD_PAGE];
    killed_rank(0, 3, 100, ROTA_KIND_ALL_REDUCE, 1);
    killed_rank(1, 3, 90, ROTA_KIND_ALL_REDUCE, 2);
    path_of(folder, 0, path);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ssize_t bytes = pread(fd, good, sizeof(good), 0);
    cr_assert_gt(bytes, 2 * RECORD_PAGE);
    int read_well = 0, refused = 0;
    for (int round = 0; round < 3000; round++) {
        memcpy(bad, good, (size_t)bytes);
        for (int i = 0; i <= round % 40; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            size_t at = (size_t)(seed >> 33) % (size_t)(round % 2 ? bytes : 2 * RECORD_PAGE);
            bad[at] = (unsigned char)(round % 3 == 0 ? 0xff : seed >> 20);
        }
        cr_assert_eq(pwrite(fd, bad, (size_t)bytes, 0), bytes);
        struct rota_recording *recording;
        rota_status status = read_all(folder, &recording);
        cr_assert(status == ROTA_OK || status == ROTA_ERR_FORMAT, "%d", (int)status);
        read_well += status == ROTA_OK && recording->count == 2;
        refused += status != ROTA_OK || recording->damaged == 1;
        recording_free(recording);
    }
    cr_assert_gt(read_well, 500);
    cr_assert_gt(refused, 100);
    close(fd);
    folder_remove(folder);
}

Test(reading, what_is_no_file_is_left_out) {
    const char *folder = folder_make();
    char path[256], other[256];
    struct rota_recording *recording;
    killed_rank(0, 5, 3, ROTA_KIND_ALL_REDUCE, 1);
    path_of(folder, 0, path);
    path_of(folder, 1, other);
    cr_assert_eq(symlink(path, other), 0); /* rank 1: a link */
    path_of(folder, 2, other);
    cr_assert_eq(mkfifo(other, 0600), 0); /* rank 2: would block for ever */
    path_of(folder, 3, other);
    cr_assert_eq(mkdir(other, 0700), 0);
    path_of(folder, 4, other);
    cr_assert_eq(link(path, other), 0); /* rank 4: says that it is rank 0 */
    cr_assert_eq(read_all(folder, &recording), ROTA_OK);
    cr_assert_eq(recording->count, 1);
    cr_assert_eq(recording->damaged, 4);
    recording_free(recording);
    cr_assert_eq(read_all("/tmp/rota-test-there-is-no-such-folder", &recording), ROTA_ERR_SYSTEM);
    cr_assert_eq(read_all("/proc/self", &recording), ROTA_ERR_FORMAT);
    folder_remove(folder);
}
