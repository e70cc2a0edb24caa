/* Progress of long work: one line on stderr, rewritten in place, only on a terminal and only once
 * the work has lasted two seconds. */
#ifndef CLI_PROGRESS_H
#define CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct cli_progress {
    bool terminal, shown;
    int64_t started_ms, last_ms;
};

void cli_progress_start(struct cli_progress *progress);
void cli_progress_show(struct cli_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes the line away, before other output and at the end. */
void cli_progress_clear(struct cli_progress *progress);

#endif
