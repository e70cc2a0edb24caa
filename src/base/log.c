/* Log lines. A line goes out by one write(2), so that lines of several processes do not mix, and
 * only when stderr takes it: a stopped or closed reader costs a line, never a hang or a SIGPIPE. */
#include "base/log.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

/* How long a full pipe may delay a line before the line is dropped. */
#define LOG_PATIENCE_MS 100
/* Below PIPE_BUF, so that a pipe takes a line whole or not at all. */
#define LOG_LINE_MAX 1024

static _Atomic int current_level = LOG_WARN;

void log_set_level(enum log_level level) {
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

enum log_level log_get_level(void) {
    return (enum log_level)atomic_load_explicit(&current_level, memory_order_relaxed);
}

static const char *level_name(enum log_level level) {
    static const char *const names[] = {"silent", "error", "warn", "info", "debug"};
    return names[level];
}

void log_write(enum log_level level, const char *format, ...) {
    if (level <= LOG_SILENT || level > LOG_DEBUG || level > log_get_level())
        return;
    int saved_errno = errno;
    char line[LOG_LINE_MAX];
    int head = snprintf(line, sizeof(line), "rota[%d] %s: ", (int)getpid(), level_name(level));
    va_list arguments;
    va_start(arguments, format);
    int body = vsnprintf(line + head, sizeof(line) - (size_t)head, format, arguments);
    va_end(arguments);
    size_t length = (size_t)head + (body > 0 ? (size_t)body : 0);
    if (length > sizeof(line) - 1)
        length = sizeof(line) - 1;
    /* Names come from peers and files: nothing of theirs may steer a terminal or forge a line. */
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f)
            line[i] = '?';
    line[length++] = '\n';
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    if (poll(&out, 1, LOG_PATIENCE_MS) == 1 && out.revents == POLLOUT) {
        ssize_t written;
        do {
            written = write(STDERR_FILENO, line, length);
        } while (written < 0 && errno == EINTR);
    }
    errno = saved_errno;
}
