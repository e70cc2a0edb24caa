/* Messages of the PMI wire protocols. */
#include "bootstrap/pmi_wire.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/cancel.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define LENGTH_DIGITS 6 /* of PMI-2 */

static rota_status wait_for(const struct pmi_wire *wire, short events, int64_t deadline_ns) {
    struct pollfd fd = {.fd = wire->socket, .events = events};
    for (;;) {
        int n = poll(&fd, 1, clock_left_ms(cancel_look_ns(deadline_ns)));
        if (n > 0)
            return ROTA_OK;
        if (n < 0 && errno != EINTR)
            return error_raise_system(errno, "cannot wait for the launcher's PMI server");
        if (n == 0 && cancel_or_passed(deadline_ns))
            return error_raise(ROTA_ERR_TIMEOUT,
                               "the launcher's PMI server did not answer in time: has every rank "
                               "called rota_init?");
    }
}

static rota_status raise_gone(int failure) {
    rota_status status = error_raise(ROTA_ERR_PEER, "the launcher's PMI server closed the "
                                                    "connection");
    error_record()->system_error = failure;
    return status;
}

static rota_status send_all(const struct pmi_wire *wire, const char *bytes, size_t count,
                            int64_t deadline_ns) {
    while (count > 0) {
        ssize_t sent = send(wire->socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent > 0) {
            bytes += sent;
            count -= (size_t)sent;
        } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            rota_status status = wait_for(wire, POLLOUT, deadline_ns);
            if (status != ROTA_OK)
                return status;
        } else if (sent < 0 && errno != EINTR) {
            if (errno == EPIPE || errno == ECONNRESET)
                return raise_gone(errno);
            return error_raise_system(errno, "cannot write to the launcher's PMI server");
        }
    }
    return ROTA_OK;
}

/* Where the next message starts in `in` and how long it is, separators at the end included;
 * *length 0: it is not whole yet. */
static rota_status frame(const struct pmi_wire *wire, int *start, int *length) {
    *start = *length = 0;
    if (wire->version == 1) {
        const char *end = memchr(wire->in, '\n', (size_t)wire->filled);
        *length = end != NULL ? (int)(end - wire->in) + 1 : 0;
    } else if (wire->filled >= LENGTH_DIGITS) {
        char digits[LENGTH_DIGITS + 1] = "", *end;
        memcpy(digits, wire->in, LENGTH_DIGITS);
        long announced = strtol(digits, &end, 10);
        if (*end != 0 || announced < 1 || announced >= PMI_MESSAGE - LENGTH_DIGITS)
            return error_raise(ROTA_ERR_FORMAT,
                               "the launcher's PMI server sent no length of a PMI-2 message");
        if (wire->filled >= LENGTH_DIGITS + (int)announced) {
            *start = LENGTH_DIGITS;
            *length = (int)announced;
        }
    }
    if (*length == 0 && wire->filled == PMI_MESSAGE)
        return error_raise(ROTA_ERR_FORMAT,
                           "the launcher's PMI server sent a message of more than %d bytes",
                           PMI_MESSAGE);
    return ROTA_OK;
}

/* Moves the next message to `message`, separators turned to PMI-2's and one at each end. */
static rota_status take(struct pmi_wire *wire, int start, int length) {
    char *out = wire->message;
    rota_status status = ROTA_OK;
    *out++ = ';';
    for (int i = 0; i < length; i++) {
        char c = wire->in[start + i];
        if (c == '\n' || (wire->version == 1 && c == ' '))
            c = ';';
        else if (c < ' ' || c > '~')
            status = error_raise(ROTA_ERR_FORMAT,
                                 "the launcher's PMI server sent what is no printable text");
        if (c != ';' || out[-1] != ';')
            *out++ = c;
    }
    if (out[-1] != ';')
        *out++ = ';';
    *out = 0;
    wire->filled -= start + length;
    memmove(wire->in, wire->in + start + length, (size_t)wire->filled);
    return status;
}

static rota_status read_message(struct pmi_wire *wire, int64_t deadline_ns) {
    for (;;) {
        int start, length;
        rota_status status = frame(wire, &start, &length);
        if (status != ROTA_OK)
            return status;
        if (length > 0 && length <= PMI_MESSAGE - 3)
            return take(wire, start, length);
        if (length > 0)
            return error_raise(ROTA_ERR_FORMAT, "the launcher's PMI server sent too long a line");
        ssize_t got = recv(wire->socket, wire->in + wire->filled,
                           (size_t)(PMI_MESSAGE - wire->filled), MSG_DONTWAIT);
        if (got > 0)
            wire->filled += (int)got;
        else if (got == 0 || errno == ECONNRESET)
            return raise_gone(got == 0 ? 0 : errno);
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            status = wait_for(wire, POLLIN, deadline_ns);
        else if (errno != EINTR)
            return error_raise_system(errno, "cannot read from the launcher's PMI server");
        if (status != ROTA_OK)
            return status;
    }
}

/* The value of ";name=" in the message, up to the next ';'. NULL: absent. */
static const char *find(const struct pmi_wire *wire, const char *name, int *length) {
    char pattern[40];
    int n = snprintf(pattern, sizeof pattern, ";%s=", name);
    const char *at = strstr(wire->message, pattern);
    if (at == NULL)
        return NULL;
    at += n;
    *length = (int)strcspn(at, ";");
    return at;
}

rota_status pmi_text(const struct pmi_wire *wire, const char *name, char *value, int size) {
    int length = 0;
    const char *at = find(wire, name, &length);
    if (at == NULL || length >= size)
        return error_raise(ROTA_ERR_FORMAT,
                           "the launcher's PMI server answered \"%.80s\": expected %s of at most "
                           "%d characters",
                           wire->message + 1, name, size - 1);
    memcpy(value, at, (size_t)length);
    value[length] = 0;
    return ROTA_OK;
}

rota_status pmi_integer(const struct pmi_wire *wire, const char *name, int least, int most,
                        int *value) {
    char text[16], *end;
    rota_status status = pmi_text(wire, name, text, sizeof text);
    if (status != ROTA_OK)
        return status;
    long number = strtol(text, &end, 10);
    if (end == text || *end != 0 || number < least || number > most)
        return error_raise(ROTA_ERR_FORMAT,
                           "the launcher's PMI server answered %s=%.16s: expected an integer from "
                           "%d to %d",
                           name, text, least, most);
    *value = (int)number;
    return ROTA_OK;
}

rota_status pmi_await(struct pmi_wire *wire, const char *answer, int64_t deadline_ns) {
    int length, rc = 0;
    rota_status status = read_message(wire, deadline_ns);
    if (status != ROTA_OK)
        return status;
    const char *command = find(wire, "cmd", &length);
    if (command == NULL || strlen(answer) != (size_t)length ||
        memcmp(command, answer, (size_t)length) != 0)
        return error_raise(ROTA_ERR_FORMAT,
                           "the launcher's PMI server answered \"%.80s\", expected cmd=%s",
                           wire->message + 1, answer);
    if (find(wire, "rc", &length) != NULL)
        status = pmi_integer(wire, "rc", INT_MIN, INT_MAX, &rc);
    if (status == ROTA_OK && rc != 0)
        return error_raise(ROTA_ERR_SYSTEM, "the launcher's PMI server refused: \"%.120s\"",
                           wire->message + 1);
    return status;
}

rota_status pmi_call(struct pmi_wire *wire, const char *answer, int64_t deadline_ns,
                     const char *format, ...) {
    char text[PMI_MESSAGE], framed[PMI_MESSAGE + LENGTH_DIGITS + 2];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 1 || length >= (int)sizeof text)
        return error_raise(ROTA_ERR_INTERNAL, "too long a command for the PMI server");
    if (wire->version == 1) {
        for (int i = 0; i < length; i++)
            if (text[i] == ';')
                text[i] = ' ';
        length = snprintf(framed, sizeof framed, "%.*s\n", length - 1, text);
    } else {
        length = snprintf(framed, sizeof framed, "%*d%s", LENGTH_DIGITS, length, text);
    }
    rota_status status = send_all(wire, framed, (size_t)length, deadline_ns);
    return status == ROTA_OK && answer != NULL ? pmi_await(wire, answer, deadline_ns) : status;
}
