/* Files that settings name, as the configuration file: NAME = VALUE lines, empty lines, and lines
 * that begin with '#'. Only a regular file of at most 1 MiB is read, and opening it cannot block on
 * a FIFO or a device. */
#include "base/error.h"
#include "base/setting_value.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES_MAX ((size_t)1 << 20)
/* Part of a long path that messages show: its end, which tells more than its beginning. */
#define PLACE_PATH_CHARS 50

void setting_file_place(const char *path, int line, char place[SETTING_PLACE_SIZE]) {
    char quoted[SETTING_QUOTE_SIZE];
    size_t length = strlen(path);
    bool cut = length > SETTING_QUOTE_CHARS;
    const char *shown = cut ? path + length - PLACE_PATH_CHARS : path;
    setting_value_quote(shown, quoted);
    if (line > 0)
        snprintf(place, SETTING_PLACE_SIZE, "%s%s:%d", cut ? "..." : "", quoted, line);
    else
        snprintf(place, SETTING_PLACE_SIZE, "%s%s", cut ? "..." : "", quoted);
}

static rota_status refuse_file(const char *path, const char *variable, const char *what) {
    char place[SETTING_PLACE_SIZE];
    setting_file_place(path, 0, place);
    return error_raise(ROTA_ERR_SETTING, "file %s (%s): %s", place, variable, what);
}

/* Reads the whole file; *text is to be freed and ends in a NUL behind *length bytes. */
static rota_status slurp(const char *path, const char *variable, char **text, size_t *length) {
    rota_status status;
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return refuse_file(path, variable, strerror(errno));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        status = refuse_file(path, variable, "not a regular file");
        goto close_file;
    }
    char *buffer = malloc(FILE_BYTES_MAX + 2);
    if (buffer == NULL) {
        status = error_raise(ROTA_ERR_MEMORY, "no memory for the file of %s", variable);
        goto close_file;
    }
    size_t filled = 0;
    ssize_t got = 1;
    while (got != 0 && filled <= FILE_BYTES_MAX) {
        got = read(fd, buffer + filled, FILE_BYTES_MAX + 1 - filled);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            status = refuse_file(path, variable, strerror(errno));
            goto free_buffer;
        }
        filled += (size_t)got;
    }
    if (filled > FILE_BYTES_MAX) {
        status = refuse_file(path, variable, "larger than 1 MiB");
        goto free_buffer;
    }
    buffer[filled] = '\0';
    *text = buffer;
    *length = filled;
    close(fd);
    return ROTA_OK;

free_buffer:
    free(buffer);
close_file:
    close(fd);
    return status;
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL)
        length--;
    text[length] = '\0';
    return text;
}

static rota_status read_line(const char *path, int number, char *text, setting_line_fn take,
                             void *arg) {
    char *name = trim(text);
    if (name[0] == '\0' || name[0] == '#')
        return ROTA_OK;
    char *equals = strchr(name, '=');
    if (equals == NULL) {
        char place[SETTING_PLACE_SIZE], quoted[SETTING_QUOTE_SIZE];
        setting_file_place(path, number, place);
        return error_raise(ROTA_ERR_SETTING, "%s: \"%s\" is not of the form NAME = VALUE", place,
                           setting_value_quote(name, quoted));
    }
    *equals = '\0';
    return take(arg, path, number, trim(name), trim(equals + 1));
}

rota_status setting_file_read(const char *path, const char *variable, setting_line_fn take,
                              void *arg) {
    char *text = NULL;
    size_t length = 0;
    rota_status status = slurp(path, variable, &text, &length);
    if (status != ROTA_OK)
        return status;
    int number = 0;
    for (char *line = text; line < text + length && status == ROTA_OK;) {
        number++;
        char *end = memchr(line, '\n', (size_t)(text + length - line));
        if (end == NULL)
            end = text + length;
        *end = '\0';
        if (strlen(line) != (size_t)(end - line)) {
            char place[SETTING_PLACE_SIZE];
            setting_file_place(path, number, place);
            status = error_raise(ROTA_ERR_SETTING, "%s: a NUL byte in the line", place);
        } else {
            status = read_line(path, number, line, take, arg);
        }
        line = end + 1;
    }
    explicit_bzero(text, length); /* it may hold the job's key */
    free(text);
    return status;
}
