/* What ranks and rendezvous say to each other after the handshake, and the rules by which records
 * of one job must fit together. Internal to bootstrap. */
#ifndef BOOTSTRAP_MESSAGE_H
#define BOOTSTRAP_MESSAGE_H

#include "bootstrap/bootstrap.h"

/* Ranks 0 .. FAN_OUT-1 get the table from the rendezvous; rank r brings it to the ranks
 * FAN_OUT * (r + 1) .. FAN_OUT * (r + 1) + FAN_OUT - 1. */
#define BOOTSTRAP_FAN_OUT 16
#define BOOTSTRAP_MAX_RANKS (1 << 20)
#define BOOTSTRAP_TEXT 2048 /* of the settings that must agree */

enum bootstrap_message_type {
    BOOTSTRAP_REGISTER = 1, /* rank -> rendezvous: bootstrap_registration, text */
    BOOTSTRAP_TABLE = 2,    /* nranks records */
    BOOTSTRAP_ERROR = 3,    /* bootstrap_failure: the job does not come about */
    BOOTSTRAP_MET = 4,      /* all are here; the table comes by another connection */
    BOOTSTRAP_LEAVE = 5     /* rank -> rendezvous: it was cancelled; nothing follows */
};

struct bootstrap_header {
    uint32_t magic; /* NET_MAGIC */
    uint16_t type;
    uint16_t unused;
    uint64_t bytes; /* that follow */
};
_Static_assert(sizeof(struct bootstrap_header) == 16, "sent over the wire");

struct bootstrap_registration {
    struct bootstrap_record record;
    uint64_t timeout_ms; /* of the rank's call as a whole */
    uint64_t left_ms;    /* of it */
    uint32_t text_bytes; /* that follow: settings_agreement_text */
    uint32_t unused;
};
_Static_assert(sizeof(struct bootstrap_registration) == 720, "sent over the wire");

struct bootstrap_failure {
    int32_t status; /* rota_status */
    int32_t culprit_count;
    int32_t culprits[ROTA_ERROR_MAX_CULPRITS];
    uint64_t waited_ms;
    char message[ROTA_ERROR_MAX_MESSAGE];
};
_Static_assert(sizeof(struct bootstrap_failure) == 592, "sent over the wire");

/* A message that is being received; hostile until it is whole and checked. */
struct bootstrap_inbox {
    struct bootstrap_header header;
    size_t filled; /* of header and body together */
    uint8_t *body; /* header.bytes, and a NUL behind them */
};
/* Reads on. ROTA_ERR_FORMAT for what is no message or longer than max_bytes, ROTA_ERR_PEER when
 * the connection ended. */
rota_status bootstrap_inbox_step(struct bootstrap_inbox *inbox, int socket, size_t max_bytes,
                                 bool *complete);
void bootstrap_inbox_clear(struct bootstrap_inbox *inbox);

/* Whether a record that came over the network is sound in itself. */
bool bootstrap_record_valid(const struct bootstrap_record *record);
/* Checks a received table and copies it. ROTA_ERR_FORMAT. */
rota_status bootstrap_table_take(const struct bootstrap_inbox *inbox, int nranks,
                                 struct bootstrap_record *records);
/* Raises what another process found; never ROTA_OK. */
rota_status bootstrap_failure_raise(const struct bootstrap_inbox *inbox);
/* The record just raised, as a message. */
void bootstrap_failure_fill(struct bootstrap_failure *failure);

/* Whether two ranks may be in one job: sizes, protocols and settings. The texts may be NULL.
 * ROTA_ERR_MISMATCH with both values. */
rota_status bootstrap_records_fit(const struct bootstrap_record *a, const char *text_a,
                                  const struct bootstrap_record *b, const char *text_b);
rota_status bootstrap_duplicate_raise(const struct bootstrap_record *a,
                                      const struct bootstrap_record *b);

#endif
