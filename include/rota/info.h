/* What the library is and does: settings, transports, counters. */
#ifndef ROTA_INFO_H
#define ROTA_INFO_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One setting as the table in the library declares it. Strings are static. */
typedef struct rota_setting_info {
    size_t size;
    const char *name;          /* the environment variable, e.g. "ROTA_TIMEOUT_MS" */
    const char *type;          /* "integer", "bytes", "choice", "list", "ports", "string", "secret",
                                  "path" */
    const char *default_value; /* as text */
    const char *range;         /* what is accepted, in words */
    const char *help;
    const char *since; /* version */
    bool must_agree;   /* ranks must hold the same value */
} rota_setting_info;

#define ROTA_SETTING_INFO_INIT ROTA_SIZED(rota_setting_info)

/* Number of settings, and the i-th of them. Errors: ROTA_ERR_ARGUMENT (index, NULL, size). */
ROTA_API int rota_setting_count(void);
ROTA_API rota_status rota_setting_describe(int index, rota_setting_info *info);
/* Present value of a setting as text, read from environment and configuration file now, and where
 * it came from ("default", "environment", "PATH:LINE"). Errors: ROTA_ERR_ARGUMENT (unknown name,
 * buffers), ROTA_ERR_SETTING (the value given is refused: rota_last_error says why). */
ROTA_API rota_status rota_setting_value(const char *name, char *value, size_t value_size,
                                        char *origin, size_t origin_size);

/* Names of what was built in: i-th transport, algorithm; NULL past the end. */
ROTA_API const char *rota_transport_name(int index);
ROTA_API const char *rota_algorithm_name(int index);
/* One line about it; NULL past the end. */
ROTA_API const char *rota_algorithm_help(int index);
/* Whether algorithm `name` can do `kind` on nranks ranks. */
ROTA_API bool rota_algorithm_does(const char *name, rota_kind kind, int nranks);

/* Instruction set that the reduction kernels use on this machine: "scalar", "avx2", ... */
ROTA_API const char *rota_isa_name(void);

/* Cores that this process may use (affinity and cgroup quota), at least 1. */
ROTA_API int rota_usable_cores(void);

#define ROTA_COUNTERS_MAX_TRANSPORTS 8

/* Traffic of one transport since the communicator's job began, as this rank saw it. */
typedef struct rota_transport_counters {
    char name[16];
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;           /* payload */
    uint64_t wire_bytes_sent, wire_bytes_received; /* with headers: what sockets carried */
    uint64_t native_calls;                         /* collectives that a native form ran */
} rota_transport_counters;

/* What the communicator's job has done so far, as this rank saw it. */
typedef struct rota_counters {
    size_t size;
    int transport_count;
    rota_transport_counters transports[ROTA_COUNTERS_MAX_TRANSPORTS];
    uint64_t operations;     /* ended with success */
    uint64_t sleeps;         /* times a waiting thread went to sleep */
    char last_algorithm[32]; /* of the last collective: "ring", "shm-one-shot", ... */
} rota_counters;

#define ROTA_COUNTERS_INIT ROTA_SIZED(rota_counters)

/* Copies the counters of the communicator's job. Any thread. */
ROTA_API rota_status rota_comm_counters(const rota_comm *comm, rota_counters *counters);

/* What this rank had to do with one other. Messages and bytes are those of the job: all of its
 * communicators together, payload only; what native forms move within shared memory passes in no
 * message and is not in them. Waits are those of this communicator. */
typedef struct rota_peer_counters {
    size_t size;
    char transport[16]; /* that reaches the peer; "" while nothing was sent by messages */
    uint64_t messages_sent, messages_received;
    uint64_t bytes_sent, bytes_received;
    uint64_t waits;     /* times that this rank waited for the peer */
    uint64_t waited_ns; /* and for how long: arrival skew */
} rota_peer_counters;

#define ROTA_PEER_COUNTERS_INIT ROTA_SIZED(rota_peer_counters)

/* Copies the counters of `peer`, a rank of the communicator (one's own: only what it sent itself).
 * Any thread.
 *
 * How waits are measured: only threads blocked in a call are looked at, and only after their first
 * polls, of some microseconds, have found nothing; so calls on which nobody is late cost and count
 * nothing. A native form is charged the time of each pause for the one rank it waits for. Else a
 * sample is taken every 64th turn and before each sleep, and the time until the next one is divided
 * among the ranks from which a message was awaited, or to which none could be sent. A rank that is
 * waited for may itself be waiting for another.
 * Errors: ROTA_ERR_ARGUMENT. */
ROTA_API rota_status rota_comm_peer_counters(const rota_comm *comm, int peer,
                                             rota_peer_counters *counters);

/* What ran the last collective of this kind on the communicator: an algorithm ("ring") or a native
 * form ("shm-one-shot"). NULL when there was none, or no such kind. Any thread. */
ROTA_API const char *rota_comm_algorithm(const rota_comm *comm, rota_kind kind);

#ifdef __cplusplus
}
#endif
#endif
