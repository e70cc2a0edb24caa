/* Process exits.
 *
 * A process id says little: it is valid in one pid namespace, and is given away again. So records
 * carry which namespace it was read in, and when the process started; both are compared, the second
 * after the descriptor is there, so that what it names cannot change any more. */
#include "liveness/exit.h"
#include "base/process.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* In the system's own headers only since late versions of the C library. */
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

static bool has_ended(int descriptor) {
    struct pollfd one = {.fd = descriptor, .events = POLLIN};
    return poll(&one, 1, 0) == 1;
}

enum exit_watch exit_watch_open(const struct bootstrap_record *own,
                                const struct bootstrap_record *peer, int *descriptor) {
    if (own->pid_space == 0 || own->pid_space != peer->pid_space || peer->started == 0 ||
        memcmp(own->machine, peer->machine, sizeof own->machine) != 0 ||
        memcmp(own->process, peer->process, sizeof own->process) == 0 || peer->pid <= 0)
        return EXIT_CANNOT_TELL;
    int fd = (int)syscall(SYS_pidfd_open, peer->pid, 0); /* is closed on exec */
    if (fd < 0)
        return errno == ESRCH ? EXIT_ENDED : EXIT_CANNOT_TELL;
    if (has_ended(fd)) {
        close(fd);
        return EXIT_ENDED;
    }
    uint64_t started = process_started(peer->pid);
    if (started == peer->started) {
        *descriptor = fd;
        return EXIT_WATCHED;
    }
    /* Either /proc cannot be read, or another process has the number. */
    close(fd);
    return started != 0 ? EXIT_ENDED : EXIT_CANNOT_TELL;
}
