/* Files, and which reader one is for: told by its content, since names say little. */
#include "base/error.h"
#include "topology/graph.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

rota_status topo_read_file(const char *path, char **bytes, size_t *length) {
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO does not keep us waiting */
    struct stat info;
    if (fd < 0)
        return error_raise_system(errno, "%.200s cannot be read", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || (size_t)info.st_size > TOPO_MAX_FILE) {
        close(fd);
        return error_raise(ROTA_ERR_FORMAT, "%.200s: expected a file of at most %zu MiB", path,
                           TOPO_MAX_FILE >> 20);
    }
    size_t size = (size_t)info.st_size, got = 0;
    char *buffer = malloc(size + 1);
    rota_status status =
        buffer == NULL ? error_raise(ROTA_ERR_MEMORY, "no memory for %.200s", path) : ROTA_OK;
    while (status == ROTA_OK && got < size) {
        ssize_t part = read(fd, buffer + got, size - got);
        if (part < 0 && errno == EINTR)
            continue;
        if (part < 0)
            status = error_raise_system(errno, "%.200s cannot be read", path);
        if (part <= 0)
            break;
        got += (size_t)part;
    }
    close(fd);
    if (status != ROTA_OK) {
        free(buffer);
        return status;
    }
    buffer[got] = '\0';
    *bytes = buffer;
    *length = got;
    return ROTA_OK;
}

/* The first element of an XML text, past declarations and comments; "" when there is none. */
static void first_element(const char *bytes, size_t length, char name[32]) {
    const char *at = bytes, *end = bytes + length;
    name[0] = '\0';
    while ((at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        size_t left = (size_t)(end - at);
        if (left > 4 && memcmp(at, "<!--", 4) == 0) {
            at = memmem(at, left, "-->", 3);
            if (at == NULL)
                return;
        } else if (left > 1 && at[1] != '!' && at[1] != '?') {
            size_t size = 0;
            while (size < 31 && size + 1 < left && (isalnum((unsigned char)at[size + 1]) != 0))
                size++;
            memcpy(name, at + 1, size);
            name[size] = '\0';
            return;
        }
        at++;
    }
}

rota_status topo_read(struct topo *topo, const char *bytes, size_t length) {
    char element[32];
    size_t at = 0;
    while (at < length && isspace((unsigned char)bytes[at]))
        at++;
    if (at == length)
        return error_raise(ROTA_ERR_FORMAT, "%s: the file is empty", topo->source);
    if (memchr(bytes, '\0', length) != NULL)
        return error_raise(ROTA_ERR_FORMAT, "%s: a binary file, expected XML or text",
                           topo->source);
    if (bytes[at] == '<') {
        first_element(bytes, length, element);
        if (strcmp(element, "topology") == 0)
            return topo_read_hwloc(topo, bytes, length);
        if (strcmp(element, "graphs") == 0)
            return error_raise(ROTA_ERR_FORMAT,
                               "%s: a NCCL graph file (rings), expected a topology", topo->source);
        return topo_read_nccl(topo, bytes, length);
    }
    if (length - at >= 7 && memcmp(bytes + at, "cluster", 7) == 0)
        return topo_read_cluster(topo, bytes, length);
    if (memmem(bytes, length, "\tGPU", 4) != NULL || memmem(bytes, length, " GPU", 4) != NULL)
        return topo_read_matrix(topo, bytes, length);
    return error_raise(ROTA_ERR_FORMAT,
                       "%s: expected NCCL or hwloc XML, the table of nvidia-smi topo -m, or a text "
                       "that begins with \"cluster\"",
                       topo->source);
}
