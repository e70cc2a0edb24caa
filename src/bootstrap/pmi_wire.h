/* Messages of the PMI wire protocols, over the socket that an mpiexec or srun gave this process.
 * PMI-1: lines "cmd=NAME key=value ...\n". PMI-2: six digits of length, then
 * "cmd=NAME;key=value;...". What comes is checked here; every read and write has a deadline.
 * Internal to bootstrap. */
#ifndef BOOTSTRAP_PMI_WIRE_H
#define BOOTSTRAP_PMI_WIRE_H

#include <rota/status.h>
#include <stdint.h>

#define PMI_MESSAGE 4096 /* of either direction, with its end */

struct pmi_wire {
    int socket;
    int version; /* 1 or 2: how messages are framed */
    char in[PMI_MESSAGE];
    int filled; /* bytes of `in` that came, the next message first */
    char message[PMI_MESSAGE];
};

/* Sends a command, written with PMI-2's separators ("cmd=put;key=a;value=b;"), and reads the
 * answer, which must be the command `answer` (NULL: sends only) and, if it has an rc, say rc=0.
 * Errors: ROTA_ERR_TIMEOUT, ROTA_ERR_PEER (the server is gone), ROTA_ERR_FORMAT, ROTA_ERR_SYSTEM
 * (refused: "rc" is not 0). */
rota_status pmi_call(struct pmi_wire *wire, const char *answer, int64_t deadline_ns,
                     const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Reads one more message that must be the command `answer`. */
rota_status pmi_await(struct pmi_wire *wire, const char *answer, int64_t deadline_ns);
/* A field of the message read last. ROTA_ERR_FORMAT when it is absent, or longer than the buffer.
 */
rota_status pmi_text(const struct pmi_wire *wire, const char *name, char *value, int size);
rota_status pmi_integer(const struct pmi_wire *wire, const char *name, int least, int most,
                        int *value);

#endif
