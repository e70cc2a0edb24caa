/* The progress line. */
#include "cli/progress.h"

#include <stdarg.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define PROGRESS_FIRST_MS 2000
#define PROGRESS_EVERY_MS 100

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void cli_progress_start(struct cli_progress *progress) {
    progress->terminal = isatty(STDERR_FILENO) == 1;
    progress->shown = false;
    progress->started_ms = now_ms();
    progress->last_ms = 0;
}

void cli_progress_show(struct cli_progress *progress, const char *format, ...) {
    if (!progress->terminal)
        return;
    int64_t now = now_ms();
    if (now - progress->started_ms < PROGRESS_FIRST_MS ||
        now - progress->last_ms < PROGRESS_EVERY_MS)
        return;
    progress->last_ms = now;
    progress->shown = true;
    va_list arguments;
    va_start(arguments, format);
    fputs("\r\033[K", stderr);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fflush(stderr);
}

void cli_progress_clear(struct cli_progress *progress) {
    if (!progress->shown)
        return;
    fputs("\r\033[K", stderr);
    fflush(stderr);
    progress->shown = false;
}
