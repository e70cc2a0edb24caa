/* Messages of the bootstrap: receiving them in pieces, checking them, and the rules by which the
 * records of one job must fit together. */
#include "bootstrap/message.h"
#include "base/error.h"
#include "net/handshake.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static rota_status inbox_begin_body(struct bootstrap_inbox *inbox, size_t max_bytes) {
    const struct bootstrap_header *header = &inbox->header;
    if (header->magic != NET_MAGIC || header->bytes > max_bytes)
        return error_raise(ROTA_ERR_FORMAT, "a peer sent a bootstrap message that is none");
    inbox->body = malloc(header->bytes + 1);
    if (inbox->body == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a bootstrap message of %zu bytes",
                           (size_t)header->bytes);
    inbox->body[header->bytes] = 0;
    return ROTA_OK;
}

rota_status bootstrap_inbox_step(struct bootstrap_inbox *inbox, int socket, size_t max_bytes,
                                 bool *complete) {
    size_t head = sizeof inbox->header;
    *complete = false;
    for (;;) {
        if (inbox->filled == head && inbox->body == NULL) {
            rota_status status = inbox_begin_body(inbox, max_bytes);
            if (status != ROTA_OK)
                return status;
        }
        bool in_body = inbox->filled >= head;
        size_t left = in_body ? head + inbox->header.bytes - inbox->filled : head - inbox->filled;
        if (in_body && left == 0) {
            *complete = true;
            return ROTA_OK;
        }
        uint8_t *to = in_body ? inbox->body + (inbox->filled - head)
                              : (uint8_t *)&inbox->header + inbox->filled;
        ssize_t got = recv(socket, to, left, MSG_DONTWAIT);
        if (got > 0)
            inbox->filled += (size_t)got;
        else if (got == 0 || errno == ECONNRESET)
            return error_raise(ROTA_ERR_PEER, "the peer closed the connection");
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return ROTA_OK;
        else if (errno != EINTR)
            return error_raise_system(errno, "recv");
    }
}

void bootstrap_inbox_clear(struct bootstrap_inbox *inbox) {
    free(inbox->body);
    memset(inbox, 0, sizeof *inbox);
}

bool bootstrap_record_valid(const struct bootstrap_record *record) {
    if (record->magic != NET_MAGIC || record->nranks < 1 || record->nranks > BOOTSTRAP_MAX_RANKS ||
        record->rank >= record->nranks || record->protocol_first > record->protocol_last ||
        memchr(record->host, 0, sizeof record->host) == NULL ||
        !net_addresses_valid(&record->addresses))
        return false;
    for (int i = 0; i < BOOTSTRAP_TRANSPORTS + 2; i++)
        if (record->blob_bytes[i] > BOOTSTRAP_BLOB)
            return false;
    return true;
}

rota_status bootstrap_table_take(const struct bootstrap_inbox *inbox, int nranks,
                                 struct bootstrap_record *records) {
    size_t bytes = (size_t)nranks * sizeof *records;
    if (inbox->header.bytes != bytes)
        return error_raise(ROTA_ERR_FORMAT, "the table of ranks has %zu bytes instead of %zu",
                           (size_t)inbox->header.bytes, bytes);
    for (int rank = 0; rank < nranks; rank++) {
        struct bootstrap_record record;
        memcpy(&record, inbox->body + (size_t)rank * sizeof record, sizeof record);
        if (!bootstrap_record_valid(&record) || record.rank != (uint32_t)rank ||
            record.nranks != (uint32_t)nranks)
            return error_raise(ROTA_ERR_FORMAT, "the table of ranks is wrong at rank %d", rank);
    }
    memcpy(records, inbox->body, bytes);
    return ROTA_OK;
}

rota_status bootstrap_failure_raise(const struct bootstrap_inbox *inbox) {
    struct bootstrap_failure failure;
    if (inbox->header.bytes != sizeof failure)
        return error_raise(ROTA_ERR_FORMAT, "the rendezvous sent an error that does not parse");
    memcpy(&failure, inbox->body, sizeof failure);
    failure.message[sizeof failure.message - 1] = 0;
    bool known = failure.status > ROTA_OK && failure.status <= ROTA_ERR_INTERNAL;
    rota_status status =
        error_raise(known ? (rota_status)failure.status : ROTA_ERR_FORMAT, "%s", failure.message);
    for (int i = 0; i < failure.culprit_count && i < ROTA_ERROR_MAX_CULPRITS; i++)
        error_add_culprit(error_record(), failure.culprits[i]);
    error_record()->waited_ms = failure.waited_ms;
    return status;
}

void bootstrap_failure_fill(struct bootstrap_failure *failure) {
    const rota_error *record = error_record();
    memset(failure, 0, sizeof *failure);
    failure->status = (int32_t)record->status;
    failure->culprit_count = record->culprit_count;
    for (int i = 0; i < record->culprit_count; i++)
        failure->culprits[i] = record->culprits[i];
    failure->waited_ms = record->waited_ms;
    snprintf(failure->message, sizeof failure->message, "%s", record->message);
}

/* -- fitting together --------------------------------------------------------------------------
 */

#define WHO "rank %u (host %s, pid %d)"
#define WHO_OF(record) (record)->rank, (record)->host, (record)->pid

/* The first line of `text` that `other` has not, e.g. ROTA_MODE=fast; false when there is none. */
static bool differing_line(const char *text, const char *other, char line[200]) {
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        bool found = false;
        for (const char *there = other; *there != 0 && !found;) {
            size_t there_length = strcspn(there, "\n");
            found = there_length == length && memcmp(text, there, length) == 0;
            there += there_length + (there[there_length] == '\n');
        }
        if (!found) {
            snprintf(line, 200, "%.*s", (int)(length < 199 ? length : 199), text);
            return true;
        }
        text += length + (text[length] == '\n');
    }
    return false;
}

/* The value of `name` (up to its '=') in a text. */
static void value_of(const char *text, const char *name, size_t name_length, char value[200]) {
    snprintf(value, 200, "(unknown)");
    while (*text != 0) {
        size_t length = strcspn(text, "\n");
        if (length > name_length && memcmp(text, name, name_length) == 0 &&
            text[name_length] == '=') {
            size_t bytes = length - name_length - 1;
            snprintf(value, 200, "%.*s", (int)(bytes < 199 ? bytes : 199), text + name_length + 1);
            return;
        }
        text += length + (text[length] == '\n');
    }
}

static rota_status settings_differ(const struct bootstrap_record *a, const char *text_a,
                                   const struct bootstrap_record *b, const char *text_b) {
    char line[200], value_a[200], value_b[200];
    if (text_a == NULL || text_b == NULL ||
        (!differing_line(text_a, text_b, line) && !differing_line(text_b, text_a, line)))
        return error_raise(ROTA_ERR_MISMATCH, "settings of " WHO " and " WHO " differ", WHO_OF(a),
                           WHO_OF(b));
    size_t name = strcspn(line, "=");
    value_of(text_a, line, name, value_a);
    value_of(text_b, line, name, value_b);
    return error_raise(ROTA_ERR_MISMATCH,
                       "%.*s must be the same on all ranks: it is \"%.60s\" on " WHO
                       " and \"%.60s\" on " WHO,
                       (int)name, line, value_a, WHO_OF(a), value_b, WHO_OF(b));
}

rota_status bootstrap_records_fit(const struct bootstrap_record *a, const char *text_a,
                                  const struct bootstrap_record *b, const char *text_b) {
    if (a->nranks != b->nranks)
        return error_raise(ROTA_ERR_MISMATCH, WHO " says that there are %u ranks, " WHO " says %u",
                           WHO_OF(a), a->nranks, WHO_OF(b), b->nranks);
    if (a->protocol_first > b->protocol_last || b->protocol_first > a->protocol_last)
        return error_raise(ROTA_ERR_MISMATCH,
                           WHO " speaks protocol %u to %u, " WHO
                               " speaks %u to %u: the library versions do not fit",
                           WHO_OF(a), a->protocol_first, a->protocol_last, WHO_OF(b),
                           b->protocol_first, b->protocol_last);
    if (a->agreement != b->agreement)
        return settings_differ(a, text_a, b, text_b);
    return ROTA_OK;
}

rota_status bootstrap_duplicate_raise(const struct bootstrap_record *a,
                                      const struct bootstrap_record *b) {
    return error_raise(ROTA_ERR_MISMATCH,
                       "rank %u of %u was claimed twice: by host %s, pid %d and by host %s, pid %d",
                       a->rank, a->nranks, a->host, a->pid, b->host, b->pid);
}
