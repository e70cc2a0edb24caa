/* Log lines: level, form, and what hostile text or a dead reader may not do. */
#include "base/log.h"
#include "base/clock.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* stderr becomes a pipe; returns its reading end. */
static int capture(void) {
    int ends[2];
    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    return ends[0];
}

static size_t drain(int fd, char *text, size_t size) {
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ssize_t got = read(fd, text, size - 1);
    size_t length = got > 0 ? (size_t)got : 0;
    text[length] = '\0';
    return length;
}

Test(log, one_line_with_pid_and_level) {
    int fd = capture();
    char text[4096], expected[128];
    log_set_level(LOG_WARN);
    errno = ENOSPC;
    log_write(LOG_WARN, "rank %d is late", 3);
    cr_assert_eq(errno, ENOSPC);
    log_write(LOG_INFO, "not shown");
    log_write(LOG_SILENT, "not shown either");
    drain(fd, text, sizeof(text));
    snprintf(expected, sizeof(expected), "rota[%d] warn: rank 3 is late\n", (int)getpid());
    cr_assert_str_eq(text, expected);
    log_set_level(LOG_SILENT);
    log_write(LOG_ERROR, "silence");
    cr_assert_eq(drain(fd, text, sizeof(text)), 0);
}

Test(log, hostile_text_stays_one_printable_line) {
    int fd = capture();
    char text[8192], hostile[4096];
    memset(hostile, 'A', sizeof(hostile) - 1);
    hostile[sizeof(hostile) - 1] = '\0';
    memcpy(hostile, "\x1b[2J\nrota[1] error: forged\r\x7f", 28);
    log_set_level(LOG_ERROR);
    log_write(LOG_ERROR, "%s", hostile);
    size_t length = drain(fd, text, sizeof(text));
    cr_assert_eq(length, 1024);
    for (size_t i = 0; i < length - 1; i++)
        cr_assert(text[i] >= 0x20 && text[i] < 0x7f);
    cr_assert_eq(text[length - 1], '\n');
}

Test(log, a_reader_that_is_gone_kills_nobody) {
    close(capture());
    log_set_level(LOG_ERROR);
    log_write(LOG_ERROR, "nobody listens"); /* SIGPIPE would end this test */
}

Test(log, a_reader_that_is_stuck_blocks_nobody, .timeout = 20) {
    int fd = capture();
    log_set_level(LOG_ERROR);
    int64_t before = clock_now_ns();
    fcntl(STDERR_FILENO, F_SETFL, O_NONBLOCK);
    char fill[4096] = {0};
    while (write(STDERR_FILENO, fill, sizeof(fill)) > 0)
        ;
    fcntl(STDERR_FILENO, F_SETFL, 0);
    log_write(LOG_ERROR, "nobody reads");
    cr_assert_lt(clock_now_ns() - before, INT64_C(5000000000));
    close(fd);
}
