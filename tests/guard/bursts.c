/* Short sends with a request that follow each other closely share system calls over TCP: a window
 * of them, counted by a sendmsg that stands in front of the system's. ptrace would not do: under it
 * no send follows another closely. Where a rank loses its core sends follow each other late, so
 * a quarter of the windows is enough. */
#include "pin.h"
#include <rota/rota.h>

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { WINDOW = 64, WINDOWS = 200, MOST_CALLS = WINDOW / 2, ENOUGH = WINDOWS / 4 };

static _Thread_local int sends; /* system calls of this thread */

ssize_t sendmsg(int fd, const struct msghdr *message, int flags) {
    sends++;
    return syscall(SYS_sendmsg, fd, message, flags);
}

struct rank {
    rota_comm *comm;
    int rank;
    int shared, all; /* windows of few calls, calls of all */
    rota_status status;
};

static rota_status window(struct rank *rank, char *bytes) {
    rota_request *requests[WINDOW];
    rota_status status = ROTA_OK;
    int started = 0;
    sends = 0;
    for (; started < WINDOW && status == ROTA_OK; started += status == ROTA_OK) {
        rota_call call = ROTA_CALL_INIT;
        call.request = &requests[started];
        char *byte = bytes + started;
        status = rank->rank == 0 ? rota_send(byte, 1, ROTA_UINT8, 1, 0, rank->comm, &call)
                                 : rota_recv(byte, 1, ROTA_UINT8, 0, 0, rank->comm, NULL, &call);
    }
    for (int i = 0; i < started; i++) {
        rota_status ended = rota_request_wait(requests[i], 0);
        rota_request_free(requests[i]);
        status = status == ROTA_OK ? ended : status;
    }
    rank->all += sends;
    rank->shared += sends <= MOST_CALLS;
    return status == ROTA_OK ? rota_barrier(rank->comm, NULL) : status;
}

static void *rank_run(void *arg) {
    struct rank *rank = arg;
    char bytes[WINDOW] = {0};
    guard_pin(rank->rank);
    for (int i = 0; i < WINDOWS && rank->status == ROTA_OK; i++)
        rank->status = window(rank, bytes);
    return NULL;
}

int main(void) {
    rota_comm *comms[2];
    struct rank ranks[2];
    setenv("ROTA_TRANSPORT", "tcp", 1);
    if (rota_init_threads(2, comms, NULL) != ROTA_OK)
        return 1;
    for (int r = 0; r < 2; r++)
        ranks[r] = (struct rank){.comm = comms[r], .rank = r};
    if (!guard_run_both(rank_run, &ranks[0], &ranks[1]))
        return 1;
    for (int r = 0; r < 2; r++)
        rota_comm_destroy(comms[r]);
    bool failed = ranks[0].status != ROTA_OK || ranks[1].status != ROTA_OK;
    bool bad = ranks[0].all == 0 || ranks[0].shared < ENOUGH;
    printf("%d windows of %d sends over tcp: %d by at most %d sendmsg, %.1f in the mean%s%s\n",
           WINDOWS, WINDOW, ranks[0].shared, MOST_CALLS, (double)ranks[0].all / WINDOWS,
           bad ? ": TOO MANY" : "", failed ? ", FAILED" : "");
    return failed || bad;
}
