/* A look at the machine and the environment before a job, as `rota doctor` prints it. */
#ifndef ROTA_DOCTOR_H
#define ROTA_DOCTOR_H

#include <rota/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rota_finding_level {
    ROTA_FINDING_OK = 0,
    ROTA_FINDING_NOTE = 1,   /* works, but may surprise */
    ROTA_FINDING_PROBLEM = 2 /* jobs will fail or be slow: `advice` says what to do */
} rota_finding_level;

/* One thing that was looked at. Texts are valid during the call alone. */
typedef struct rota_finding {
    size_t size;
    rota_finding_level level;
    const char *topic;  /* a word: "memlock", "interface", ... */
    const char *text;   /* what was found, one line */
    const char *advice; /* what to do about it; NULL */
} rota_finding;

typedef void (*rota_finding_fn)(const rota_finding *finding, void *arg);

/* Looks at what a rank that begins here would meet: limits, shared memory, what processes may do to
 * each other, interfaces, ports, clock, cores, launcher, key, place of recordings, settings, RDMA
 * devices; calls
 * `tell` once for each. Reads and changes nothing that lasts. Takes less than a second.
 * Errors: ROTA_ERR_ARGUMENT (NULL), ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_preflight(rota_finding_fn tell, void *arg);

/* What the transport of this index (as for rota_transport_name) finds on this machine: each device
 * or port, with whether it is used and why, and what would be in the way. Calls `tell` once for
 * each; not at all for a transport that needs nothing to be found. rota_preflight has these too.
 * Takes less than a second, and keeps nothing open.
 * Errors: ROTA_ERR_ARGUMENT (index, NULL), ROTA_ERR_SETTING (a setting is refused),
 * ROTA_ERR_MEMORY. */
ROTA_API rota_status rota_transport_survey(int index, rota_finding_fn tell, void *arg);

#ifdef __cplusplus
}
#endif
#endif
