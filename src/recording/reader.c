/* Reading recordings. Files may be of another user's making, cut off, or written at this moment:
 * they are read, never mapped, twice each, and a line counts only when both readings agree. All
 * numbers are checked before they are used, all text before it is shown. */
#include "recording/reader.h"

#include "base/error.h"
#include "recording/recorder_file.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAX_RANKS (1 << 20)

/* Printable ASCII, terminated, from a field of a file. */
static void copy_text(char *to, size_t size, const char *from, size_t field) {
    size_t n = 0;
    for (; n + 1 < size && n < field && from[n] != '\0'; n++)
        to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
    to[n] = '\0';
}

/* -- time ---------------------------------------------------------------------------------------
 */

/* How stamps of a file become CLOCK_MONOTONIC of its machine. */
struct stamps {
    double rate; /* ns per tick; 0: cannot be converted */
    uint64_t ticks, ns;
};

static struct stamps read_clock(const struct record_head *head) {
    struct stamps stamps = {.rate = 0};
    uint64_t ticks = atomic_load_explicit(&head->anchor_ticks, memory_order_relaxed);
    uint64_t ns = atomic_load_explicit(&head->anchor_ns, memory_order_relaxed);
    if (head->ticks == 0 || head->ns == 0 || ns >= INT64_MAX)
        return stamps;
    stamps.ticks = ticks;
    stamps.ns = ns;
    if (ticks > head->ticks && ns > head->ns)
        stamps.rate = (double)(ns - head->ns) / (double)(ticks - head->ticks);
    return stamps;
}

static int64_t convert(const struct stamps *stamps, int64_t offset, uint64_t ticks) {
    if (ticks == 0 || stamps->rate <= 0)
        return 0;
    double ns = (double)(int64_t)(ticks - stamps->ticks) * stamps->rate;
    if (ns > 1e18 || ns < -1e18)
        return 0;
    int64_t at;
    if (__builtin_add_overflow((int64_t)stamps->ns, (int64_t)ns, &at) ||
        __builtin_add_overflow(at, offset, &at))
        return 0;
    return at > 0 && at < INT64_MAX / 2 ? at : 0; /* so that differences are numbers */
}

/* -- one file -----------------------------------------------------------------------------------
 */

static const char *name_of(const struct record_head *head, uint32_t hash) {
    for (int i = 0; hash != 0 && i < RECORD_NAMES; i++)
        if (atomic_load_explicit(&head->names[i].hash, memory_order_relaxed) == hash)
            return head->names[i].name;
    return "";
}

/* False: empty, or not what the recorder writes. */
static bool read_call(const struct record_head *head, const struct stamps *stamps,
                      const struct record_page *page, const struct record_call *line,
                      rota_recorded_call *call) {
    bool messages = page->used == RECORD_PAGE_MESSAGES;
    if (line->sequence == 0 || line->kind >= ROTA_KIND_COUNT || line->root < -1 ||
        line->root >= page->nranks || line->waiting_for < -1 || line->waiting_for >= page->nranks ||
        line->state < RECORD_RUNNING ||
        messages != (line->kind == ROTA_KIND_SEND || line->kind == ROTA_KIND_RECV))
        return false;
    *call = (rota_recorded_call)ROTA_RECORDED_CALL_INIT;
    call->sequence = line->sequence;
    call->count = line->count;
    call->kind = (rota_kind)line->kind;
    call->dtype = line->dtype;
    call->op = line->op;
    call->mode = (rota_numerics)line->mode;
    call->root = line->root;
    call->tag = messages ? (int)(int64_t)line->fingerprint : 0;
    call->vector = (line->flags & RECORD_VECTOR) != 0;
    call->running = line->state == RECORD_RUNNING;
    call->status = call->running ? ROTA_OK : (rota_status)line->state;
    call->waiting_for = line->waiting_for;
    call->begun_ns = convert(stamps, head->wall_offset_ns, line->begun);
    call->ended_ns = convert(stamps, head->wall_offset_ns, line->ended);
    copy_text(call->algorithm, sizeof(call->algorithm), name_of(head, line->algorithm),
              sizeof(head->names[0].name));
    return true;
}

struct sortable {
    rota_recorded_call call;
    uint64_t fingerprint;
};

static int by_sequence(const void *a, const void *b) {
    const struct sortable *left = a, *right = b;
    return left->call.sequence < right->call.sequence   ? -1
           : left->call.sequence > right->call.sequence ? 1
                                                        : 0;
}

/* False: free, or damaged. */
static bool read_page(const struct record_head *head, const struct stamps *stamps,
                      const struct record_page *page, const struct record_page *again,
                      struct recording_page *out) {
    if ((page->used != RECORD_PAGE_COLLECTIVES && page->used != RECORD_PAGE_MESSAGES) ||
        memcmp(page, again, offsetof(struct record_page, calls)) != 0 || page->nranks < 1 ||
        page->nranks > MAX_RANKS || page->rank < 0 || page->rank >= page->nranks ||
        page->nranks > head->nranks)
        return false;
    *out = (struct recording_page){.first = page->first, .stride = page->stride};
    out->info = (rota_recorded_page)ROTA_RECORDED_PAGE_INIT;
    copy_text(out->info.name, sizeof(out->info.name), page->name, sizeof(page->name));
    out->info.id = page->comm;
    out->info.generation = page->generation;
    out->info.member = page->rank;
    out->info.nranks = page->nranks;
    out->info.messages = page->used == RECORD_PAGE_MESSAGES;
    out->info.calls = page->calls;
    int64_t last = (int64_t)out->first + (int64_t)out->stride * (page->nranks - 1);
    if (out->first < 0 || out->first >= head->nranks || last < 0 || last >= head->nranks ||
        (page->nranks > 1 && out->stride == 0))
        out->stride = 0;
    struct sortable sorted[RECORD_CALLS];
    int count = 0;
    for (int i = 0; i < RECORD_CALLS; i++) {
        const struct record_call *line = &page->ring[i];
        /* What may change in a line that stands is its end: these two words and `waiting_for`. */
        if (line->sequence != again->ring[i].sequence || line->count != again->ring[i].count ||
            line->fingerprint != again->ring[i].fingerprint || line->kind != again->ring[i].kind ||
            line->dtype != again->ring[i].dtype)
            continue;
        if (read_call(head, stamps, page, &again->ring[i], &sorted[count].call))
            sorted[count++].fingerprint = line->fingerprint;
    }
    qsort(sorted, (size_t)count, sizeof(sorted[0]), by_sequence);
    for (int i = 0; i < count; i++) {
        out->calls[i] = sorted[i].call;
        out->fingerprints[i] = sorted[i].fingerprint;
    }
    out->info.call_count = count;
    return true;
}

static bool head_is_good(const struct record_head *head) {
    return head->magic == RECORD_MAGIC && head->version == RECORD_VERSION &&
           head->page_bytes == RECORD_PAGE && head->ring_calls == RECORD_CALLS &&
           head->nranks >= 1 && head->nranks <= MAX_RANKS && head->rank >= 0 &&
           head->rank < head->nranks && head->wall_offset_ns > INT64_MIN / 4 &&
           head->wall_offset_ns < INT64_MAX / 4;
}

static void read_head(const struct record_head *head, const struct stamps *stamps, int64_t now_ns,
                      struct recording_rank *rank) {
    rota_recorded_rank *info = &rank->info;
    *info = (rota_recorded_rank)ROTA_RECORDED_RANK_INIT;
    info->rank = head->rank;
    info->pid = head->pid;
    copy_text(info->host, sizeof(info->host), head->host, sizeof(head->host));
    copy_text(rank->boot, sizeof(rank->boot), head->boot, sizeof(head->boot));
    memcpy(rank->job, head->job, sizeof(rank->job));
    rank->nranks = head->nranks;
    rank->wall_offset_ns = head->wall_offset_ns;
    int lives = recorder_process_lives(head);
    info->life = head->phase == RECORD_ENDED ? ROTA_LIFE_ENDED
                 : lives > 0                 ? ROTA_LIFE_RUNNING
                 : lives == 0                ? ROTA_LIFE_DEAD
                                             : ROTA_LIFE_UNKNOWN;
    info->joined = head->phase != RECORD_JOINING;
    info->started_ns = (int64_t)(head->ns < INT64_MAX / 4 ? head->ns : 0) + head->wall_offset_ns;
    info->seen_ns = info->life == ROTA_LIFE_RUNNING ? now_ns
                    : stamps->ns > 0 && stamps->ns < INT64_MAX / 4
                        ? (int64_t)stamps->ns + head->wall_offset_ns
                        : info->started_ns;
    int failure = atomic_load_explicit(&head->failure, memory_order_relaxed);
    if (failure <= ROTA_OK)
        return;
    info->failure = (rota_status)failure;
    info->failed_ns =
        (int64_t)(head->failure_ns < INT64_MAX / 4 ? head->failure_ns : 0) + head->wall_offset_ns;
    copy_text(info->failed_comm, sizeof(info->failed_comm), head->failure_name,
              sizeof(head->failure_name));
    copy_text(info->failed_text, sizeof(info->failed_text), head->failure_text,
              sizeof(head->failure_text));
}

static ssize_t read_whole(int fd, void *to, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t got = pread(fd, (char *)to + done, bytes - done, (off_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

/* Whole pages of a file, read twice. Returns their number, 0 when it is none or has no memory. */
static size_t read_twice(int at, const char *name, struct record_page **first,
                         struct record_page **second) {
    int fd = openat(at, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    size_t pages = 0;
    if (fd >= 0 && fstat(fd, &status) == 0 && S_ISREG(status.st_mode))
        pages = (size_t)status.st_size / RECORD_PAGE;
    pages = pages < RECORD_MAX_PAGES ? pages : RECORD_MAX_PAGES;
    *first = pages > 0 ? malloc(pages * RECORD_PAGE) : NULL;
    *second = pages > 0 ? malloc(pages * RECORD_PAGE) : NULL;
    if (*first == NULL || *second == NULL) {
        pages = 0;
    } else {
        size_t one = (size_t)read_whole(fd, *first, pages * RECORD_PAGE) / RECORD_PAGE;
        size_t two = (size_t)read_whole(fd, *second, pages * RECORD_PAGE) / RECORD_PAGE;
        pages = one < two ? one : two;
    }
    if (fd >= 0)
        close(fd);
    return pages;
}

rota_status recording_read_rank(int at, const char *name, int64_t now_ns,
                                struct recording_rank *rank) {
    struct record_page *first, *second;
    size_t pages = read_twice(at, name, &first, &second);
    const struct record_head *head = (const struct record_head *)(const void *)second;
    rota_status status = ROTA_OK;
    *rank = (struct recording_rank){0};
    if (pages == 0 || !head_is_good(head))
        status =
            error_raise(ROTA_ERR_FORMAT, "%.200s is no recording, or of another version", name);
    if (status == ROTA_OK) {
        struct stamps stamps = read_clock(head);
        read_head(head, &stamps, now_ns, rank);
        size_t used = 0;
        for (size_t i = 1; i < pages; i++)
            used += first[i].used != 0;
        rank->pages = calloc(used > 0 ? used : 1, sizeof(*rank->pages));
        if (rank->pages == NULL)
            status = error_raise(ROTA_ERR_MEMORY, "out of memory for %zu pages", used);
        for (size_t i = 1; status == ROTA_OK && i < pages && (size_t)rank->npages < used; i++)
            rank->npages +=
                read_page(head, &stamps, &first[i], &second[i], &rank->pages[rank->npages]);
        rank->info.page_count = rank->npages;
    }
    free(first);
    free(second);
    return status;
}

/* -- folders ------------------------------------------------------------------------------------
 */

/* N of rank-N.rota, -1 for another name. */
static int rank_of_name(const char *name) {
    if (strncmp(name, "rank-", 5) != 0 || strspn(name + 5, "0123456789") > 7)
        return -1;
    char *end;
    long rank = strtol(name + 5, &end, 10);
    return end != name + 5 && strcmp(end, ".rota") == 0 && rank < MAX_RANKS ? (int)rank : -1;
}

static int by_rank(const void *a, const void *b) {
    const struct recording_rank *left = a, *right = b;
    return left->info.rank - right->info.rank;
}

/* Adds a file; one that is damaged is counted. */
static rota_status add_file(struct rota_recording *recording, int folder, const char *name) {
    int capacity = recording->count;
    if ((capacity & (capacity - 1)) == 0) { /* full at each power of two */
        size_t more = capacity > 0 ? 2 * (size_t)capacity : 1;
        struct recording_rank *ranks = realloc(recording->ranks, more * sizeof(*recording->ranks));
        if (ranks == NULL)
            return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu recordings", more);
        recording->ranks = ranks;
    }
    struct recording_rank *rank = &recording->ranks[recording->count];
    rota_status status = recording_read_rank(folder, name, recording->now_ns, rank);
    if (status == ROTA_ERR_MEMORY)
        return status;
    const struct recording_rank *one = recording->ranks;
    if (status == ROTA_OK && rank->info.rank == rank_of_name(name) &&
        (recording->count == 0 ||
         (memcmp(rank->job, one->job, sizeof(rank->job)) == 0 && rank->nranks == one->nranks))) {
        recording->count++;
    } else {
        recording->damaged++;
        free(rank->pages);
    }
    return ROTA_OK;
}

/* Clocks of ranks on one machine are one: differences of their offsets are measuring errors. */
static void align_clocks(struct rota_recording *recording) {
    for (int i = 0; i < recording->count; i++) {
        struct recording_rank *rank = &recording->ranks[i];
        int j = 0;
        while (strcmp(recording->ranks[j].boot, rank->boot) != 0)
            j++;
        int64_t shift = recording->ranks[j].wall_offset_ns - rank->wall_offset_ns;
        if (rank->boot[0] == '\0' || shift == 0 || shift > 1000000000 || shift < -1000000000)
            continue;
        for (int p = 0; p < rank->npages; p++)
            for (int c = 0; c < rank->pages[p].info.call_count; c++) {
                rota_recorded_call *call = &rank->pages[p].calls[c];
                call->begun_ns += call->begun_ns != 0 ? shift : 0;
                call->ended_ns += call->ended_ns != 0 ? shift : 0;
            }
    }
}

/* Follows a folder of jobs to that with the newest file; false: it is none. */
static bool newest_job(char folder[PATH_MAX]) {
    DIR *dir = opendir(folder);
    char newest[33] = "";
    struct timespec written = {0};
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        struct stat status;
        char name[48];
        if (strlen(entry->d_name) != 32 || strspn(entry->d_name, "0123456789abcdef") != 32)
            continue;
        snprintf(name, sizeof(name), "%.32s", entry->d_name);
        if (fstatat(dirfd(dir), name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISDIR(status.st_mode))
            continue;
        if (status.st_mtim.tv_sec > written.tv_sec ||
            (status.st_mtim.tv_sec == written.tv_sec && status.st_mtim.tv_nsec > written.tv_nsec)) {
            written = status.st_mtim;
            memcpy(newest, name, sizeof(newest));
        }
    }
    if (dir != NULL)
        closedir(dir);
    size_t length = strlen(folder);
    if (newest[0] == '\0' || length + sizeof(newest) + 1 > PATH_MAX)
        return false;
    snprintf(folder + length, PATH_MAX - length, "/%s", newest);
    return true;
}

static rota_status read_files(struct rota_recording *recording, int *files) {
    DIR *dir = opendir(recording->folder);
    if (dir == NULL)
        return error_raise_system(errno, "%s cannot be read", recording->folder);
    rota_status status = ROTA_OK;
    const struct dirent *entry;
    *files = 0;
    while (status == ROTA_OK && (entry = readdir(dir)) != NULL)
        if (rank_of_name(entry->d_name) >= 0) {
            (*files)++;
            status = add_file(recording, dirfd(dir), entry->d_name);
        }
    closedir(dir);
    return status;
}

rota_status recording_read(const char *folder, struct rota_recording *recording) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    recording->now_ns = (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
    if (snprintf(recording->folder, sizeof(recording->folder), "%s", folder) >=
        (int)sizeof(recording->folder))
        return error_raise(ROTA_ERR_ARGUMENT, "the path is longer than %d bytes", PATH_MAX - 1);
    int files = 0;
    rota_status status = read_files(recording, &files);
    if (status == ROTA_OK && files == 0 && newest_job(recording->folder))
        status = read_files(recording, &files);
    if (status != ROTA_OK)
        return status;
    if (recording->count == 0)
        return error_raise(ROTA_ERR_FORMAT,
                           "%.300s holds no recording (%d files looked at; expected rank-N.rota "
                           "of this version)",
                           recording->folder, files);
    recording->nranks = recording->ranks[0].nranks;
    qsort(recording->ranks, (size_t)recording->count, sizeof(*recording->ranks), by_rank);
    align_clocks(recording);
    return ROTA_OK;
}

/* -- processes ----------------------------------------------------------------------------------
 */

/* A line of /proc/PID/maps that shows a recording: its path, with the file's name cut off. */
static bool folder_of_mapping(char *line, char folder[PATH_MAX]) {
    line[strcspn(line, "\n")] = '\0';
    char *path = strchr(line, '/');
    char *slash = path != NULL ? strrchr(path, '/') : NULL;
    if (slash == NULL || slash == path || rank_of_name(slash + 1) < 0)
        return false;
    *slash = '\0';
    snprintf(folder, PATH_MAX, "%s", path);
    return true;
}

rota_status recording_find_process(int64_t pid, char folder[PATH_MAX]) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%lld/maps", (long long)pid);
    FILE *maps = fopen(path, "re");
    if (maps == NULL)
        return error_raise_system(errno, "process %lld cannot be looked at", (long long)pid);
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    while (!found && getline(&line, &size, maps) > 0)
        found = folder_of_mapping(line, folder);
    free(line);
    fclose(maps);
    if (!found)
        return error_raise(ROTA_ERR_STATE,
                           "process %lld writes no recording: it is no rank of a job, or has no "
                           "place to write (rota doctor says why)",
                           (long long)pid);
    return ROTA_OK;
}

void recording_free(struct rota_recording *recording) {
    if (recording == NULL)
        return;
    for (int i = 0; i < recording->count; i++)
        free(recording->ranks[i].pages);
    for (int i = 0; i < recording->ncomms; i++) {
        free(recording->comms[i].members);
        free(recording->comms[i].camps);
    }
    free(recording->ranks);
    free(recording->comms);
    free(recording->waits);
    free(recording);
}
