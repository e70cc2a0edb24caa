/* Public functions that read recordings. */
#include <rota/recording.h>

#include "base/error.h"
#include "recording/reader.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the caller's struct and index are good. */
static rota_status check(const rota_recording *recording, const void *out, size_t size,
                         size_t expected, int index, int count, const char *what) {
    if (recording == NULL || out == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "recording and %s must not be NULL", what);
    if (size < expected)
        return error_raise(ROTA_ERR_ARGUMENT, "%s->size is %zu, expected %zu", what, size,
                           expected);
    if (index < 0 || index >= count)
        return error_raise(ROTA_ERR_ARGUMENT, "index of the %s is %d, expected one below %d", what,
                           index, count);
    return ROTA_OK;
}

#define CHECK(recording, out, index, count)                                                        \
    check((recording), (out), (out) != NULL ? (out)->size : 0, sizeof(*(out)), (index),            \
          (recording) != NULL ? (count) : 0, #out)

/* Copies a struct that begins with its size, which stays the caller's. */
#define COPY(out, from)                                                                            \
    do {                                                                                           \
        size_t size_ = (out)->size;                                                                \
        *(out) = (from);                                                                           \
        (out)->size = size_;                                                                       \
    } while (0)

static rota_status open_folder(const char *folder, rota_recording **out) {
    rota_recording *recording = calloc(1, sizeof(*recording));
    if (recording == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a recording");
    rota_status status = recording_read(folder, recording);
    if (status == ROTA_OK)
        status = recording_merge(recording);
    if (status == ROTA_OK)
        status = recording_find_waits(recording);
    if (status != ROTA_OK) {
        recording_free(recording);
        return status;
    }
    *out = recording;
    return ROTA_OK;
}

rota_status rota_recording_open(const char *folder, rota_recording **recording) {
    if (folder == NULL || folder[0] == '\0' || recording == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "folder and recording must not be NULL or empty");
    return open_folder(folder, recording);
}

rota_status rota_recording_open_process(int64_t pid, rota_recording **recording, int *rank) {
    if (pid < 1 || recording == NULL || rank == NULL)
        return error_raise(ROTA_ERR_ARGUMENT, "pid must be 1 or more, and recording and rank not "
                                              "NULL");
    char folder[PATH_MAX];
    rota_recording *opened = NULL;
    rota_status status = recording_find_process(pid, folder);
    if (status == ROTA_OK)
        status = open_folder(folder, &opened);
    if (status != ROTA_OK)
        return status;
    for (int i = 0; i < opened->count; i++)
        if (opened->ranks[i].info.pid == pid && opened->ranks[i].info.life == ROTA_LIFE_RUNNING) {
            *rank = opened->ranks[i].info.rank;
            *recording = opened;
            return ROTA_OK;
        }
    recording_free(opened);
    return error_raise(ROTA_ERR_STATE, "none of the recordings in %.300s is of process %lld",
                       folder, (long long)pid);
}

void rota_recording_close(rota_recording *recording) {
    recording_free(recording);
}

rota_status rota_recording_describe(const rota_recording *recording, rota_recording_info *info) {
    rota_status status = CHECK(recording, info, 0, 1);
    if (status != ROTA_OK)
        return status;
    info->folder = recording->folder;
    for (int i = 0; i < 16; i++)
        snprintf(info->job + 2 * i, 3, "%02x", recording->ranks[0].job[i]);
    info->nranks = recording->nranks;
    info->rank_count = recording->count;
    info->damaged_count = recording->damaged;
    info->comm_count = recording->ncomms;
    info->wait_count = recording->nwaits;
    info->cycle_count = recording->ncycles;
    info->taken_ns = recording->now_ns;
    return ROTA_OK;
}

rota_status rota_recording_rank(const rota_recording *recording, int index,
                                rota_recorded_rank *rank) {
    rota_status status = CHECK(recording, rank, index, recording->count);
    if (status == ROTA_OK)
        COPY(rank, recording->ranks[index].info);
    return status;
}

static rota_status check_rank_index(const rota_recording *recording, int index) {
    if (recording != NULL && (index < 0 || index >= recording->count))
        return error_raise(ROTA_ERR_ARGUMENT, "rank_index is %d, expected one below %d", index,
                           recording->count);
    return ROTA_OK;
}

rota_status rota_recording_page(const rota_recording *recording, int rank_index, int index,
                                rota_recorded_page *page) {
    rota_status status = check_rank_index(recording, rank_index);
    if (status == ROTA_OK)
        status = CHECK(recording, page, index, recording->ranks[rank_index].npages);
    if (status == ROTA_OK)
        COPY(page, recording->ranks[rank_index].pages[index].info);
    return status;
}

rota_status rota_recording_call(const rota_recording *recording, int rank_index, int page_index,
                                int index, rota_recorded_call *call) {
    rota_status status = check_rank_index(recording, rank_index);
    if (status != ROTA_OK)
        return status;
    if (recording != NULL && (page_index < 0 || page_index >= recording->ranks[rank_index].npages))
        return error_raise(ROTA_ERR_ARGUMENT, "page_index is %d, expected one below %d", page_index,
                           recording->ranks[rank_index].npages);
    status = CHECK(recording, call, index,
                   recording->ranks[rank_index].pages[page_index].info.call_count);
    if (status == ROTA_OK)
        COPY(call, recording->ranks[rank_index].pages[page_index].calls[index]);
    return status;
}

rota_status rota_recording_comm(const rota_recording *recording, int index,
                                rota_recorded_comm *comm) {
    rota_status status = CHECK(recording, comm, index, recording->ncomms);
    if (status == ROTA_OK)
        COPY(comm, recording->comms[index].info);
    return status;
}

static rota_status check_comm_index(const rota_recording *recording, int index) {
    if (recording != NULL && (index < 0 || index >= recording->ncomms))
        return error_raise(ROTA_ERR_ARGUMENT, "comm_index is %d, expected one below %d", index,
                           recording->ncomms);
    return ROTA_OK;
}

rota_status rota_recording_camp(const rota_recording *recording, int comm_index, int index,
                                rota_recorded_camp *camp, int *ranks, int capacity) {
    rota_status status = check_comm_index(recording, comm_index);
    if (status == ROTA_OK)
        status = CHECK(recording, camp, index, recording->comms[comm_index].info.camp_count);
    if (status == ROTA_OK && (capacity < 0 || (ranks == NULL && capacity > 0)))
        status =
            error_raise(ROTA_ERR_ARGUMENT, "ranks is NULL, or capacity %d is negative", capacity);
    if (status != ROTA_OK)
        return status;
    const struct recording_comm *comm = &recording->comms[comm_index];
    COPY(camp, comm->camps[index]);
    int count = 0;
    for (int m = 0; m < comm->info.nranks && count < capacity; m++)
        if (comm->members[m].camp == index)
            ranks[count++] = comm->members[m].rank;
    return ROTA_OK;
}

rota_status rota_recording_wait(const rota_recording *recording, int index,
                                rota_recorded_wait *wait) {
    rota_status status = CHECK(recording, wait, index, recording->nwaits);
    if (status == ROTA_OK)
        COPY(wait, recording->waits[index]);
    return status;
}

rota_status rota_recording_skew(const rota_recording *recording, int comm_index, int index,
                                rota_recorded_skew *skew) {
    rota_status status = check_comm_index(recording, comm_index);
    if (status == ROTA_OK)
        status = CHECK(recording, skew, index, recording->comms[comm_index].info.seen);
    if (status != ROTA_OK)
        return status;
    const struct recording_comm *comm = &recording->comms[comm_index];
    const struct recording_member *self = NULL;
    double window = 0;
    for (int m = 0, seen = 0; m < comm->info.nranks; m++) {
        if (comm->members[m].of == NULL)
            continue;
        if (seen++ == index)
            self = &comm->members[m];
        else
            window += (double)comm->members[m].window_ns;
    }
    skew->rank = self->rank;
    skew->calls = self->compared;
    skew->late_ns = self->compared > 0 ? self->late_ns / self->compared : 0;
    skew->most_late_ns = self->most_late_ns;
    skew->cost_ns = self->cost_ns;
    skew->share = window > 0 ? (double)self->cost_ns / window : 0;
    return ROTA_OK;
}
