/* The folders and files of recordings. /tmp is anybody's: so folders are opened one by one without
 * following links, must be this user's and closed to others, and all else is named relative to
 * their descriptors. Nothing here is needed for the job to run: what fails says why, once. */
#include "recording/recorder_file.h"

#include "base/process.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Of folders whose processes cannot be looked at from here (another host or container), and which
 * therefore may be in use, this many times more are kept. */
#define FOREIGN_FACTOR 4

static int refuse(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int refuse(char *why, size_t size, const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return -1;
}

/* -- processes ----------------------------------------------------------------------------------
 */

uint64_t recorder_pid_namespace(void) {
    struct stat status;
    return stat("/proc/self/ns/pid", &status) == 0 ? (uint64_t)status.st_ino : 0;
}

int recorder_process_lives(const struct record_head *head) {
    char boot[40];
    process_boot_id(boot);
    if (head->boot[0] == '\0' || strncmp(boot, head->boot, sizeof(boot)) != 0 ||
        head->pid_namespace == 0 || head->pid_namespace != recorder_pid_namespace() ||
        head->pid <= 0 || head->pid > INT_MAX)
        return -1;
    uint64_t started = process_started((pid_t)head->pid);
    if (started == 0) /* /proc may hide others' processes */
        return kill((pid_t)head->pid, 0) == 0 || errno == EPERM ? -1 : 0;
    return started == head->pid_started;
}

/* -- folders ------------------------------------------------------------------------------------
 */

void recorder_file_default_root(char root[PATH_MAX]) {
    const char *base = getenv("XDG_RUNTIME_DIR");
    struct stat status;
    if (base == NULL || base[0] != '/' || strlen(base) > PATH_MAX - 64 ||
        lstat(base, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        access(base, W_OK | X_OK) != 0)
        base = "/tmp";
    snprintf(root, PATH_MAX, "%.*s/rota-%u", PATH_MAX - 64, base, (unsigned)geteuid());
}

/* Memory that others need for messages is not for recordings. */
static bool is_shared_memory(const struct stat *folder) {
    struct stat shm, root;
    return stat("/dev/shm", &shm) == 0 && stat("/", &root) == 0 && shm.st_dev != root.st_dev &&
           shm.st_dev == folder->st_dev;
}

/* Opens a folder, made if it is missing, without following a link at its end. `own`: it must be
 * this user's, and closed to others. */
static int open_folder(int at, const char *name, const char *shown, bool own, bool *made, char *why,
                       size_t size) {
    *made = mkdirat(at, name, 0700) == 0;
    if (!*made && errno != EEXIST)
        return refuse(why, size, "%s cannot be made: %s", shown, strerror(errno));
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ELOOP || errno == ENOTDIR
                   ? refuse(why, size, "%s is a link or no folder", shown)
                   : refuse(why, size, "%s cannot be opened: %s", shown, strerror(errno));
    struct stat status;
    if (fstat(fd, &status) != 0)
        refuse(why, size, "%s: %s", shown, strerror(errno));
    else if (own && status.st_uid != geteuid())
        refuse(why, size, "%s belongs to user %u", shown, (unsigned)status.st_uid);
    else if (own && (status.st_mode & 077) != 0)
        refuse(why, size, "%s is open to others (mode %03o, expected 700)", shown,
               (unsigned)status.st_mode & 0777u);
    else if (is_shared_memory(&status))
        refuse(why, size, "%s lies in /dev/shm", shown);
    else
        return fd;
    close(fd);
    return -1;
}

/* A file of this name from before is of an earlier run of a job with the same id: it goes. */
static int create_in(int folder, struct recorder_file *file, char *why, size_t size) {
    const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(folder, file->name, flags, 0600);
    if (fd < 0 && errno == EEXIST && unlinkat(folder, file->name, 0) == 0)
        fd = openat(folder, file->name, flags, 0600);
    struct stat status;
    if (fd >= 0 && fstat(fd, &status) == 0) {
        file->device = status.st_dev;
        file->inode = status.st_ino;
        return fd;
    }
    int error = errno;
    if (fd >= 0)
        close(fd);
    refuse(why, size, "%.1000s cannot be made: %s", file->path, strerror(error));
    errno = error;
    return -1;
}

int recorder_file_create(struct recorder_file *file, const char *setting, const uint8_t job[16],
                         int rank, char *why, size_t why_size) {
    if (setting[0] == '\0')
        recorder_file_default_root(file->root);
    else if (snprintf(file->root, sizeof(file->root), "%s", setting) > PATH_MAX - 128)
        return refuse(why, why_size, "the path is longer than %d bytes", PATH_MAX - 128);
    for (int i = 0; i < 16; i++)
        snprintf(file->folder + 2 * i, 3, "%02x", job[i]);
    snprintf(file->name, sizeof(file->name), "rank-%d.rota", rank);
    snprintf(file->path, sizeof(file->path), "%.*s/%s/%s", PATH_MAX - 64, file->root, file->folder,
             file->name);
    bool made;
    int root =
        open_folder(AT_FDCWD, file->root, file->root, setting[0] == '\0', &made, why, why_size);
    if (root < 0)
        return -1;
    int fd = -1;
    /* Another rank of the job that is over may take the folder away in between. */
    for (int attempt = 0; fd < 0 && attempt < 8; attempt++) {
        char shown[PATH_MAX];
        snprintf(shown, sizeof(shown), "%.*s/%s", PATH_MAX - 64, file->root, file->folder);
        int folder = open_folder(root, file->folder, shown, true, &file->first, why, why_size);
        if (folder < 0)
            break;
        fd = create_in(folder, file, why, why_size);
        bool gone = fd < 0 && errno == ENOENT;
        close(folder);
        if (!gone)
            break;
    }
    close(root);
    return fd;
}

static int reopen_folder(const struct recorder_file *file) {
    int root = open(file->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (root < 0)
        return -1;
    int folder = openat(root, file->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    close(root);
    return folder;
}

static bool is_same(const struct recorder_file *file, const struct stat *status) {
    return S_ISREG(status->st_mode) && status->st_dev == file->device &&
           status->st_ino == file->inode;
}

int recorder_file_reopen(const struct recorder_file *file) {
    int folder = reopen_folder(file);
    if (folder < 0)
        return -1;
    int fd = openat(folder, file->name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    close(folder);
    struct stat status;
    if (fd >= 0 && (fstat(fd, &status) != 0 || !is_same(file, &status))) {
        close(fd);
        fd = -1;
    }
    return fd;
}

bool recorder_file_extend(int fd, off_t bytes) {
    /* A file that grows beyond the limit costs its process a signal. */
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        (rlim_t)bytes > limit.rlim_cur)
        return false;
    int error;
    do
        error = posix_fallocate(fd, 0, bytes);
    while (error == EINTR);
    return error == 0;
}

void recorder_file_remove(const struct recorder_file *file) {
    int root = open(file->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int folder = root >= 0
                     ? openat(root, file->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                     : -1;
    struct stat status;
    if (folder >= 0 && fstatat(folder, file->name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
        is_same(file, &status))
        unlinkat(folder, file->name, 0);
    if (folder >= 0)
        close(folder);
    if (root >= 0) {
        unlinkat(root, file->folder, AT_REMOVEDIR); /* refused while other ranks' files are there */
        close(root);
    }
}

/* -- old folders --------------------------------------------------------------------------------
 */

struct old_job {
    char name[33];
    struct timespec written;
};

static bool is_job_name(const char *name) {
    size_t digits = strspn(name, "0123456789abcdef");
    return digits == 32 && name[32] == '\0';
}

static bool is_rank_name(const char *name) {
    if (strncmp(name, "rank-", 5) != 0)
        return false;
    size_t digits = strspn(name + 5, "0123456789");
    return digits > 0 && strcmp(name + 5 + digits, ".rota") == 0;
}

/* Whether a rank's process may still write the file: 1, 0, or -1 when that cannot be told. Notes
 * when it was last written. */
static int may_live(int folder, const char *name, struct timespec *written) {
    static const struct record_head empty;
    struct record_head head = empty;
    int fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat status;
    if (fd < 0)
        return 0;
    if (fstat(fd, &status) != 0) {
        close(fd);
        return -1;
    }
    bool whole = S_ISREG(status.st_mode) &&
                 pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
                 head.magic == RECORD_MAGIC;
    close(fd);
    if (status.st_mtim.tv_sec > written->tv_sec ||
        (status.st_mtim.tv_sec == written->tv_sec && status.st_mtim.tv_nsec > written->tv_nsec))
        *written = status.st_mtim;
    if (!whole) /* perhaps just being made */
        return time(NULL) - status.st_mtim.tv_sec < 60;
    return recorder_process_lives(&head);
}

/* The same of a folder; 1 also for one that holds something else than recordings. */
static int in_use(int root, const char *name, struct timespec *written) {
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat status;
    if (fd < 0)
        return 1;
    DIR *folder = NULL;
    if (fstat(fd, &status) == 0 && status.st_uid == geteuid())
        folder = fdopendir(fd);
    if (folder == NULL) {
        close(fd);
        return 1;
    }
    *written = status.st_mtim;
    int used = 0;
    const struct dirent *entry;
    while (used <= 0 && (entry = readdir(folder)) != NULL) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        int lives = is_rank_name(entry->d_name) ? may_live(fd, entry->d_name, written) : 1;
        used = lives != 0 ? lives : used;
    }
    closedir(folder);
    return used;
}

static void remove_job(int root, const char *name) {
    int fd = openat(root, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *folder = fd >= 0 ? fdopendir(fd) : NULL;
    if (folder == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL)
        if (is_rank_name(entry->d_name))
            unlinkat(fd, entry->d_name, 0);
    closedir(folder);
    unlinkat(root, name, AT_REMOVEDIR);
}

static int newest_first(const void *a, const void *b) {
    const struct old_job *left = a, *right = b;
    if (left->written.tv_sec != right->written.tv_sec)
        return left->written.tv_sec < right->written.tv_sec ? 1 : -1;
    if (left->written.tv_nsec != right->written.tv_nsec)
        return left->written.tv_nsec < right->written.tv_nsec ? 1 : -1;
    return strcmp(left->name, right->name);
}

static void remove_oldest(int root, struct old_job *jobs, int count, int keep) {
    if (count > keep)
        qsort(jobs, (size_t)count, sizeof(*jobs), newest_first);
    for (int i = keep; i < count; i++)
        remove_job(root, jobs[i].name);
}

void recorder_file_prune(const struct recorder_file *file, int keep) {
    int fd = open(file->root, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *root = fd >= 0 ? fdopendir(fd) : NULL;
    if (root == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    enum { MOST = 1024 }; /* looked at in one go: more than this the next job takes away */
    struct old_job *jobs = malloc(MOST * sizeof(*jobs));
    int count = 0;
    const struct dirent *entry;
    while (jobs != NULL && count < MOST && (entry = readdir(root)) != NULL)
        if (is_job_name(entry->d_name) && strcmp(entry->d_name, file->folder) != 0)
            memcpy(jobs[count++].name, entry->d_name, sizeof(jobs->name));
    /* Only who finds many folders looks into them. Those that are over go to the front of the
     * table, those that may be in use to its end. */
    int over = 0, foreign = 0;
    for (int i = 0; count > keep && i < count - foreign; i++) {
        struct old_job job = jobs[i];
        int used = in_use(fd, job.name, &job.written);
        if (used == 0) {
            jobs[over++] = job;
        } else if (used < 0) {
            foreign++;
            jobs[i] = jobs[count - foreign];
            jobs[count - foreign] = job;
            i--;
        }
    }
    remove_oldest(fd, jobs, over, keep);
    remove_oldest(fd, jobs + count - foreign, foreign, keep * FOREIGN_FACTOR);
    free(jobs);
    closedir(root);
}
