/* The table's way down the tree: each rank dials its children's control listeners, all at the same
 * time, and writes what it got. A child that is stopped delays nobody but itself. */
#include "bootstrap/spread.h"
#include "base/clock.h"
#include "base/error.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

struct child {
    int rank;
    struct reach reach;
    int socket; /* -1: not reached yet */
    size_t sent;
    bool done;
};

struct spread {
    const struct bootstrap_record *records;
    struct bootstrap_header header;
    int nchildren;
    struct child children[BOOTSTRAP_FAN_OUT];
};

static void add_candidates(struct child *child, const struct bootstrap_record *mine,
                           const struct bootstrap_record *theirs) {
    bool same_host = memcmp(mine->machine, theirs->machine, sizeof mine->machine) == 0;
    struct net_address address;
    if (same_host)
        reach_add_local(&child->reach, theirs->addresses.local_name);
    for (int i = 0; net_pick_address(&theirs->addresses, same_host, i, &address); i++)
        reach_add_inet(&child->reach, &address);
}

rota_status spread_begin(const struct net_identity *identity,
                         const struct bootstrap_record *records, int nranks, int64_t deadline_ns,
                         struct spread **spread) {
    *spread = NULL;
    int64_t first = ((int64_t)identity->rank + 1) * BOOTSTRAP_FAN_OUT;
    if (first >= nranks)
        return ROTA_OK;
    struct spread *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for passing on the table of ranks");
    made->records = records;
    made->header = (struct bootstrap_header){
        .magic = NET_MAGIC, .type = BOOTSTRAP_TABLE, .bytes = (uint64_t)nranks * sizeof *records};
    for (int64_t rank = first; rank < nranks && rank < first + BOOTSTRAP_FAN_OUT; rank++) {
        struct child *child = &made->children[made->nchildren++];
        child->rank = (int)rank;
        child->socket = -1;
        reach_begin(&child->reach, identity, child->rank, NET_PURPOSE_TABLE, deadline_ns);
        add_candidates(child, &records[identity->rank], &records[rank]);
    }
    *spread = made;
    return ROTA_OK;
}

/* Writes on; a broken connection is made anew. */
static void child_send(struct spread *spread, struct child *child) {
    const size_t head = sizeof spread->header, all = head + spread->header.bytes;
    while (child->sent < all) {
        struct iovec parts[2] = {
            {.iov_base = &spread->header, .iov_len = head},
            {.iov_base = (void *)(uintptr_t)spread->records, .iov_len = spread->header.bytes}};
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
        size_t skip = child->sent;
        for (int i = 0; i < 2; i++) {
            size_t cut = skip < parts[i].iov_len ? skip : parts[i].iov_len;
            parts[i].iov_base = (char *)parts[i].iov_base + cut;
            parts[i].iov_len -= cut;
            skip -= cut;
        }
        ssize_t sent = sendmsg(child->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0) {
            child->sent += (size_t)sent;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return;
        } else if (errno != EINTR) {
            close(child->socket);
            child->socket = -1;
            child->sent = 0;
            return;
        }
    }
    close(child->socket);
    child->socket = -1;
    child->done = true;
}

bool spread_step(struct spread *spread) {
    bool all = true;
    for (int i = 0; i < spread->nchildren; i++) {
        struct child *child = &spread->children[i];
        bool round_over;
        if (child->done)
            continue;
        if (child->socket < 0) {
            child->socket = reach_step(&child->reach, &round_over);
            if (child->socket >= 0)
                reach_end(&child->reach);
        }
        if (child->socket >= 0)
            child_send(spread, child);
        all = all && child->done;
    }
    return all;
}

int spread_poll(const struct spread *spread, struct pollfd *fds) {
    int n = 0;
    for (int i = 0; i < spread->nchildren; i++) {
        const struct child *child = &spread->children[i];
        if (child->done)
            continue;
        if (child->socket >= 0)
            fds[n++] = (struct pollfd){.fd = child->socket, .events = POLLOUT};
        else
            n += reach_poll(&child->reach, fds + n);
    }
    return n;
}

int64_t spread_deadline(const struct spread *spread) {
    int64_t first = CLOCK_NEVER;
    for (int i = 0; i < spread->nchildren; i++) {
        const struct child *child = &spread->children[i];
        if (child->done || child->socket >= 0)
            continue;
        int64_t deadline = reach_deadline(&child->reach);
        first = deadline < first ? deadline : first;
    }
    return first;
}

rota_status spread_raise(const struct spread *spread) {
    rota_status status = error_raise(ROTA_ERR_TIMEOUT, "the table of ranks reached all children");
    bool first = true;
    for (int i = 0; i < spread->nchildren; i++) {
        const struct child *child = &spread->children[i];
        if (child->done)
            continue;
        if (first) {
            const rota_error *why = &child->reach.error;
            status = error_raise(ROTA_ERR_TIMEOUT,
                                 "rank %d (host %s) did not take the table of ranks%s%.300s",
                                 child->rank, spread->records[child->rank].host,
                                 why->status != ROTA_OK ? ": " : "", why->message);
            error_record()->system_error = why->system_error;
            error_record()->peer = child->rank;
            first = false;
        }
        error_add_culprit(error_record(), child->rank);
    }
    return status;
}

void spread_end(struct spread *spread) {
    if (spread == NULL)
        return;
    for (int i = 0; i < spread->nchildren; i++) {
        reach_end(&spread->children[i].reach);
        if (spread->children[i].socket >= 0)
            close(spread->children[i].socket);
    }
    free(spread);
}
