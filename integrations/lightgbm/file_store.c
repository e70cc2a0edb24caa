/* Files as a store. A value is written to a file of its own and renamed, so that a reader sees all
 * of it or nothing. It holds the job's key: only its owner may read it, and a reader takes only
 * what its own user has written. */
#include "file_store.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define POLL_NS 2000000l
#define PATH_BYTES 768

static int path_of(const struct file_store *files, const char *key, char path[PATH_BYTES]) {
    int length = snprintf(path, PATH_BYTES, "%s.%s", files->path, key);
    return length < 0 || length >= PATH_BYTES;
}

static int write_all(int fd, const unsigned char *value, size_t bytes) {
    while (bytes > 0) {
        ssize_t written = write(fd, value, bytes);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return 1;
        value += written;
        bytes -= (size_t)written;
    }
    return 0;
}

static int set_value(void *arg, const char *key, const void *value, size_t bytes) {
    char path[PATH_BYTES], draft[PATH_BYTES + 16];
    if (path_of(arg, key, path) != 0)
        return 1;
    snprintf(draft, sizeof draft, "%s.%ld", path, (long)getpid());
    int fd = open(draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return errno;
    int failure = write_all(fd, value, bytes);
    failure |= close(fd);
    if (failure == 0 && rename(draft, path) == 0)
        return 0;
    unlink(draft);
    return 1;
}

/* Returns 0 with the value, -1 while there is none, an errno else. */
static int read_value(const char *path, void *value, size_t capacity, size_t *bytes) {
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -1 : errno;
    struct stat about;
    int failure = 0;
    if (fstat(fd, &about) != 0 || about.st_uid != geteuid() || !S_ISREG(about.st_mode))
        failure = EPERM;
    else if (about.st_size > (off_t)capacity)
        failure = EFBIG;
    size_t got = 0;
    while (failure == 0 && got < (size_t)about.st_size) {
        ssize_t part = read(fd, (char *)value + got, (size_t)about.st_size - got);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0)
            failure = EIO;
        else
            got += (size_t)part;
    }
    close(fd);
    *bytes = got;
    return failure;
}

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int get_value(void *arg, const char *key, void *value, size_t capacity, size_t *bytes,
                     int64_t timeout_ms) {
    char path[PATH_BYTES];
    if (path_of(arg, key, path) != 0)
        return 1;
    int64_t deadline_ms = now_ms() + timeout_ms;
    for (;;) {
        int failure = read_value(path, value, capacity, bytes);
        if (failure >= 0)
            return failure;
        if (now_ms() >= deadline_ms)
            return ETIMEDOUT;
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
}

int file_store_open(struct file_store *files, const char *id, rota_store *store) {
    const char *folder = getenv("ROTA_STORE_DIR");
    if (folder == NULL)
        folder = getenv("TMPDIR");
    if (folder == NULL)
        folder = "/tmp";
    int length =
        snprintf(files->path, sizeof files->path, "%s/rota-%ld-%s", folder, (long)geteuid(), id);
    if (length < 0 || (size_t)length >= sizeof files->path || strchr(id, '/') != NULL)
        return 1;
    *store = (rota_store)ROTA_STORE_INIT;
    store->set = set_value;
    store->get = get_value;
    store->arg = files;
    return 0;
}

void file_store_remove(const struct file_store *files) {
    char path[PATH_BYTES];
    if (path_of(files, "rota-id", path) == 0)
        unlink(path);
}
