/* RDMA devices that are not there: the table of verbs calls over memory of this process, with
 * queue pairs, completion queues, keys and a connection manager that mind the rules which an
 * adapter minds (keys and bounds, receive requests, depths of queues, completions that nobody
 * takes), and with faults on demand. Requests are carried out when somebody polls, one per queue
 * pair and poll. Any thread. A broken rule aborts the program with a line that names it. */
#ifndef FAKE_H
#define FAKE_H

#include <stdbool.h>
#include <stdint.h>

struct fake_counts {
    uint64_t requests, inlined, signalled; /* send requests posted */
    uint64_t writes, immediates, sends;    /* of these */
    uint64_t controls[4];                  /* immediates and sends, by protection domain % 4 */
    uint64_t written;                      /* bytes */
    uint64_t from, to;                     /* of the last plain write */
    uint64_t not_ready;                    /* receive requests missing (RNR) */
    int memory, pairs, queues, ids;        /* that exist */
};
extern struct fake_counts fake_counts;

/* Puts the double in place of the libraries: `devices` (1 or 2) with one port each, their addresses
 * 10.77.0.1 and 10.77.0.2. `immediate` false: iWARP. */
void fake_begin(int devices, bool immediate, bool shared_receives);
/* From now on requests are also carried out by a thread, as ranks that sleep need it. */
void fake_run(void);
/* The libraries again; aborts when something was left. */
void fake_end(void);
/* From the `after`-th call of this name on (1: the next), `times` calls fail with this errno. Also
 * "address", "route": its resolution ends in the CM's event of an error; "unreachable",
 * "connection", "listener": a call does, as unreachable, in CONNECT_ERROR, refused for want of one.
 */
void fake_fail(const char *call, int after, int times, int error);
/* For the double: whether a call fails now, with errno; none does any more. */
bool fake_fails(const char *call);
void fake_clear(void);
/* Nothing gets through any more; requests that are under way fail after a while. */
void fake_cut(bool cut);
/* Requests are kept, and none is carried out. */
void fake_pause(bool pause);
/* Writes of up to 256 bytes come in three polls: some of their words, in no order; the others; the
 * completion. */
void fake_scatter(bool scatter);

/* Instead of the double: the libraries, their requests and queue pairs counted. An adapter's own
 * retries for want of a receive request are not seen, those that it gives up are. */
void fake_watch(void);
void fake_unwatch(void);
/* Counts a send request. */
struct ibv_send_wr;
void fake_count(const struct ibv_send_wr *request, uint64_t length);

#endif
