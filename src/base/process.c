/* Processes by /proc. */
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void read_text(const char *path, char *text, size_t size) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got;
    do
        got = fd >= 0 ? read(fd, text, size - 1) : 0;
    while (got < 0 && errno == EINTR);
    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0)
        close(fd);
}

uint64_t process_started(pid_t pid) {
    char path[40], text[1024];
    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    read_text(path, text, sizeof(text));
    const char *at = strrchr(text, ')'); /* the name before it, the 2nd field, may hold anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at != NULL ? strtoull(at + 1, NULL, 10) : 0;
}

void process_boot_id(char id[40]) {
    read_text("/proc/sys/kernel/random/boot_id", id, 40);
    id[strcspn(id, "\n")] = '\0';
}
