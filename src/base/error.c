/* Error records of the calling thread, names of statuses, and the version. Raising allocates
 * nothing, takes no lock and keeps errno. */
#include "base/error.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifndef ROTA_VERSION
#error "ROTA_VERSION comes from the build"
#endif

#define NO_ERROR                                                                                   \
    { .size = sizeof(rota_error), .status = ROTA_OK, .peer = -1, .kind = -1 }

static _Thread_local rota_error thread_record = NO_ERROR;

void error_clear(void) {
    thread_record = (rota_error)NO_ERROR;
}

rota_error *error_record(void) {
    return &thread_record;
}

/* Formats into `text`; what does not fit ends in "...". */
static void format_cut(char *text, size_t size, const char *format, va_list arguments)
    __attribute__((format(printf, 3, 0)));

static void format_cut(char *text, size_t size, const char *format, va_list arguments) {
    int length = vsnprintf(text, size, format, arguments);
    if (length < 0)
        text[0] = '\0';
    else if ((size_t)length >= size)
        memcpy(text + size - 4, "...", 4);
}

void error_describe(rota_status status, const char *format, ...) {
    int saved_errno = errno;
    /* Formatted aside, because an argument may be the text of the record that is replaced. */
    char message[ROTA_ERROR_MAX_MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    format_cut(message, sizeof(message), format, arguments);
    va_end(arguments);
    error_clear();
    thread_record.status = status;
    memcpy(thread_record.message, message, sizeof(message));
    errno = saved_errno;
}

void error_describe_system(int system_error, const char *format, ...) {
    int saved_errno = errno;
    char buffer[128];
    const char *reason = strerror_r(system_error, buffer, sizeof(buffer));
    size_t tail = 2 + strnlen(reason, sizeof(buffer));
    char message[ROTA_ERROR_MAX_MESSAGE];
    va_list arguments;
    va_start(arguments, format);
    format_cut(message, sizeof(message) - tail, format, arguments);
    va_end(arguments);
    size_t length = strlen(message);
    snprintf(message + length, sizeof(message) - length, ": %s", reason);
    error_clear();
    thread_record.status = ROTA_ERR_SYSTEM;
    thread_record.system_error = system_error;
    memcpy(thread_record.message, message, length + tail + 1);
    errno = saved_errno;
}

void error_add_culprit(rota_error *record, int rank) {
    for (int i = 0; i < record->culprit_count; i++)
        if (record->culprits[i] == rank)
            return;
    if (record->culprit_count < ROTA_ERROR_MAX_CULPRITS)
        record->culprits[record->culprit_count++] = rank;
}

rota_status error_copy(const rota_error *from, rota_error *to) {
    if (to == NULL || to->size < offsetof(rota_error, peer))
        return ROTA_ERR_ARGUMENT;
    size_t size = to->size < sizeof(*from) ? to->size : sizeof(*from);
    size_t head = offsetof(rota_error, status);
    memmove((char *)to + head, (const char *)from + head, size - head);
    return ROTA_OK;
}

rota_status rota_last_error(rota_error *error) {
    return error_copy(&thread_record, error);
}

const char *rota_version(void) {
    return ROTA_VERSION;
}

const char *rota_status_name(rota_status status) {
    static const char *const names[] = {
        [ROTA_OK] = "ok",
        [ROTA_ERR_ARGUMENT] = "argument",
        [ROTA_ERR_MEMORY] = "memory",
        [ROTA_ERR_SYSTEM] = "system",
        [ROTA_ERR_TIMEOUT] = "timeout",
        [ROTA_ERR_MISMATCH] = "mismatch",
        [ROTA_ERR_ABORTED] = "aborted",
        [ROTA_ERR_PEER] = "peer",
        [ROTA_ERR_ISOLATED] = "isolated",
        [ROTA_ERR_BUSY] = "busy",
        [ROTA_ERR_UNSUPPORTED] = "unsupported",
        [ROTA_ERR_SETTING] = "setting",
        [ROTA_ERR_FORMAT] = "format",
        [ROTA_ERR_TRUNCATED] = "truncated",
        [ROTA_ERR_STATE] = "state",
        [ROTA_ERR_SCHEDULE] = "schedule",
        [ROTA_ERR_INTERNAL] = "internal",
        [ROTA_ERR_REVOKED] = "revoked",
    };
    size_t index = (size_t)(unsigned)status;
    return index < sizeof(names) / sizeof(names[0]) ? names[index] : "unknown";
}
