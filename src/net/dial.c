/* The initiator's half of the handshake: connect, be challenged, prove, be answered, and pass
 * descriptors. A state machine; each step does what can be done now. */
#include "base/clock.h"
#include "base/error.h"
#include "net/proof.h"
#include "net/socket.h"
#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum dial_state {
    DIAL_CONNECTING,
    DIAL_CHALLENGE, /* reading it */
    DIAL_ANSWER,    /* hello is sent; reading the answer */
    DIAL_DESCRIPTORS /* ours are sent; waiting for theirs */,
    DIAL_DONE
};

struct net_dial {
    enum dial_state state;
    int socket;
    struct net_identity identity;
    struct net_endpoint endpoint;
    bool local;
    int target_rank;
    int64_t begun_ns, deadline_ns;
    int offered[NET_MAX_DESCRIPTORS], noffered;
    int received[NET_MAX_DESCRIPTORS], nreceived;
    size_t filled; /* of the message being read */
    struct net_challenge challenge;
    struct net_hello_message hello;
    struct net_answer_message answer;
};

static void fill_hello(struct net_dial *dial, enum net_purpose purpose, bool descriptors) {
    struct net_hello *hello = &dial->hello.hello;
    hello->magic = NET_MAGIC;
    hello->protocol_first = dial->identity.protocol_first;
    hello->protocol_last = dial->identity.protocol_last;
    memcpy(hello->job, dial->identity.job, sizeof hello->job);
    hello->rank = (uint32_t)dial->identity.rank;
    hello->target_rank = (uint32_t)dial->target_rank;
    hello->incarnation = dial->identity.incarnation;
    hello->purpose = (uint16_t)purpose;
    hello->descriptors = descriptors;
    hello->stripes = 1;
    hello->agreement = dial->identity.agreement;
    net_random(dial->hello.nonce, sizeof dial->hello.nonce);
}

/* Adds the address to the record that was just raised. */
static rota_status at_address(const struct net_dial *dial, rota_status status) {
    rota_error *record = error_record();
    char text[NET_ADDRESS_TEXT];
    net_endpoint_text(&dial->endpoint, text);
    snprintf(record->address, sizeof record->address, "%.*s", (int)sizeof record->address - 1,
             text);
    record->peer = dial->target_rank;
    return status;
}

static rota_status connect_failed(const struct net_dial *dial, int system_error) {
    char text[NET_ADDRESS_TEXT];
    net_endpoint_text(&dial->endpoint, text);
    return at_address(dial, error_raise_system(system_error, "cannot connect to %s", text));
}

rota_status net_dial_start(const struct net_identity *identity, const struct net_target *target,
                           int target_rank, enum net_purpose purpose, const int *offered,
                           int noffered, int64_t deadline_ns, struct net_dial **dial) {
    if (noffered < 0 || noffered > NET_MAX_DESCRIPTORS ||
        (noffered > 0 && target->inet.family != 0))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "%d descriptors offered: at most %d can be passed, by local name",
                           noffered, NET_MAX_DESCRIPTORS);
    net_proof_init();
    struct net_dial *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a connection");
    made->identity = *identity;
    made->target_rank = target_rank;
    made->begun_ns = clock_now_ns();
    made->deadline_ns = deadline_ns;
    made->local = target->inet.family == 0;
    made->noffered = noffered;
    if (noffered > 0)
        memcpy(made->offered, offered, (size_t)noffered * sizeof *offered);
    /* On Unix sockets descriptors may come from the acceptor alone, so the exchange is always
     * announced there; it is one byte each way. */
    fill_hello(made, purpose, made->local);
    rota_status status;
    if (!made->local) {
        net_endpoint_inet(&made->endpoint, &target->inet);
    } else if (target->local_name == NULL ||
               !net_endpoint_local(&made->endpoint, target->local_name)) {
        free(made);
        return error_raise(ROTA_ERR_ARGUMENT, "a connection needs an address or a local name");
    }
    made->socket = net_socket_open(made->endpoint.storage.ss_family);
    if (made->socket < 0) {
        status = error_raise_system(errno, "cannot open a socket");
        free(made);
        return status;
    }
    if (!made->local && purpose < NET_PURPOSE_DATA)
        net_socket_small_segments(made->socket);
    if (connect(made->socket, (struct sockaddr *)&made->endpoint.storage, made->endpoint.length) ==
        0) {
        made->state = DIAL_CHALLENGE;
    } else if (errno != EINPROGRESS && errno != EINTR) {
        status = connect_failed(made, errno);
        net_dial_free(made);
        return status;
    }
    *dial = made;
    return ROTA_OK;
}

void net_dial_stripe(struct net_dial *dial, uint16_t stripe) {
    dial->hello.hello.stripe = stripe;
}

int net_dial_descriptor(const struct net_dial *dial, uint32_t *events) {
    *events = dial->state == DIAL_CONNECTING ? EPOLLOUT : EPOLLIN;
    return dial->socket;
}

static rota_status step_connecting(struct net_dial *dial, bool *again) {
    int failure = 0;
    socklen_t length = sizeof failure;
    struct sockaddr_storage peer;
    socklen_t peer_length = sizeof peer;
    if (getsockopt(dial->socket, SOL_SOCKET, SO_ERROR, &failure, &length) != 0)
        failure = errno;
    if (failure != 0)
        return connect_failed(dial, failure);
    if (getpeername(dial->socket, (struct sockaddr *)&peer, &peer_length) == 0)
        dial->state = DIAL_CHALLENGE;
    else
        *again = true; /* still on its way */
    return ROTA_OK;
}

/* Reads one message of the peer; what its end of file means depends on the state. */
static rota_status step_read(struct net_dial *dial, void *message, size_t bytes, bool *again) {
    enum net_io result = net_socket_read(dial->socket, message, bytes, &dial->filled);
    int failure = errno;
    char text[NET_ADDRESS_TEXT];
    net_endpoint_text(&dial->endpoint, text);
    if (result == NET_IO_AGAIN) {
        *again = true;
    } else if (dial->state == DIAL_ANSWER &&
               (result == NET_IO_CLOSED || (result == NET_IO_FAILED && failure == ECONNRESET))) {
        return at_address(
            dial,
            error_raise(ROTA_ERR_FORMAT,
                        "%s closed the connection during the handshake: it belongs to another "
                        "job, or its job key differs",
                        text));
    } else if (result != NET_IO_DONE) {
        failure = result == NET_IO_CLOSED ? ECONNRESET : failure;
        return at_address(dial, error_raise_system(failure, "%s broke off the handshake", text));
    }
    return ROTA_OK;
}

static rota_status not_rota(const struct net_dial *dial, const char *what) {
    char text[NET_ADDRESS_TEXT];
    net_endpoint_text(&dial->endpoint, text);
    return at_address(dial, error_raise(ROTA_ERR_FORMAT, "%s %s", text, what));
}

static rota_status step_challenge(struct net_dial *dial, bool *again) {
    rota_status status = step_read(dial, &dial->challenge, sizeof dial->challenge, again);
    if (dial->filled >= sizeof dial->challenge.magic && dial->challenge.magic != NET_MAGIC)
        return not_rota(dial, "does not speak rota's protocol");
    if (status != ROTA_OK || *again)
        return status;
    net_proof_hello(dial->identity.key, &dial->challenge, &dial->hello, dial->hello.mac);
    if (!net_socket_send(dial->socket, &dial->hello, sizeof dial->hello))
        return connect_failed(dial, errno);
    dial->filled = 0;
    dial->state = DIAL_ANSWER;
    return ROTA_OK;
}

static rota_status refused(struct net_dial *dial) {
    const struct net_answer *answer = &dial->answer.answer;
    char text[NET_ADDRESS_TEXT];
    net_endpoint_text(&dial->endpoint, text);
    switch (answer->verdict) {
    case NET_REFUSED_PROTOCOL:
        return error_raise(ROTA_ERR_MISMATCH,
                           "%s speaks protocol %u to %u, rank %d speaks %u to %u: the library "
                           "versions do not fit",
                           text, answer->protocol_first, answer->protocol_last, dial->identity.rank,
                           dial->identity.protocol_first, dial->identity.protocol_last);
    case NET_REFUSED_SETTINGS:
        return error_raise(ROTA_ERR_MISMATCH, "settings of rank %d differ from those at %s",
                           dial->identity.rank, text);
    case NET_REFUSED_CROSSING:
        return error_raise(ROTA_ERR_MISMATCH, "%s has a connection of its own under way", text);
    case NET_REFUSED_TARGET:
        return error_raise(ROTA_ERR_MISMATCH, "%s does not serve rank %d of this job", text,
                           dial->target_rank);
    case NET_REFUSED_GIVEN_UP:
        return error_raise(ROTA_ERR_MISMATCH, "%s gave up this transport", text);
    default:
        return error_raise(ROTA_ERR_FORMAT, "%s answered with the unknown verdict %u", text,
                           answer->verdict);
    }
}

static rota_status step_answer(struct net_dial *dial, bool *again) {
    rota_status status = step_read(dial, &dial->answer, sizeof dial->answer, again);
    if (status != ROTA_OK || *again)
        return status;
    const struct net_answer *answer = &dial->answer.answer;
    uint8_t mac[NET_MAC_BYTES];
    net_proof_answer(dial->identity.key, &dial->challenge, &dial->hello, answer, mac);
    if (!net_proof_equal(mac, dial->answer.mac)) {
        /* A listener that does not know the job has no key to prove its refusal with. */
        if (answer->verdict == NET_REFUSED_TARGET && sodium_is_zero(dial->answer.mac, sizeof mac))
            return at_address(dial, refused(dial));
        return not_rota(dial, "could not prove that it holds the job key");
    }
    if (answer->verdict != NET_GO)
        return at_address(dial, refused(dial));
    if (dial->target_rank >= 0 && answer->rank != (uint32_t)dial->target_rank)
        return not_rota(dial, "answered for another rank");
    if (answer->protocol < dial->identity.protocol_first ||
        answer->protocol > dial->identity.protocol_last)
        return not_rota(dial, "chose a protocol version that was not offered");
    dial->state = DIAL_DONE;
    if (dial->hello.hello.descriptors) {
        if (!net_socket_send_descriptors(dial->socket, dial->offered, dial->noffered))
            return connect_failed(dial, errno);
        dial->state = DIAL_DESCRIPTORS;
    }
    return ROTA_OK;
}

static rota_status step_descriptors(struct net_dial *dial, bool *again) {
    enum net_io result =
        net_socket_take_descriptors(dial->socket, dial->received, &dial->nreceived);
    if (result == NET_IO_AGAIN)
        *again = true;
    else if (result == NET_IO_DONE)
        dial->state = DIAL_DONE;
    else
        return at_address(dial, error_raise_system(result == NET_IO_CLOSED ? ECONNRESET : errno,
                                                   "cannot receive descriptors of rank %d",
                                                   dial->target_rank));
    return ROTA_OK;
}

static rota_status step_late(const struct net_dial *dial) {
    static const char *const waits[] = {"accept the connection", "begin the handshake",
                                        "answer in the handshake", "pass its descriptors"};
    char text[NET_ADDRESS_TEXT];
    int64_t waited_ms = (clock_now_ns() - dial->begun_ns) / 1000000;
    net_endpoint_text(&dial->endpoint, text);
    rota_status status = error_raise(ROTA_ERR_TIMEOUT, "%s did not %s within %lld ms (timed out)",
                                     text, waits[dial->state], (long long)waited_ms);
    error_record()->system_error = ETIMEDOUT;
    error_record()->waited_ms = (uint64_t)waited_ms;
    return at_address(dial, status);
}

rota_status net_dial_step(struct net_dial *dial, bool *finished, struct net_answer *answer) {
    rota_status status = ROTA_OK;
    bool again = false;
    while (status == ROTA_OK && !again && dial->state != DIAL_DONE) {
        switch (dial->state) {
        case DIAL_CONNECTING:
            status = step_connecting(dial, &again);
            break;
        case DIAL_CHALLENGE:
            status = step_challenge(dial, &again);
            break;
        case DIAL_ANSWER:
            status = step_answer(dial, &again);
            break;
        default:
            status = step_descriptors(dial, &again);
            break;
        }
    }
    *answer = dial->answer.answer;
    *finished = status == ROTA_OK && dial->state == DIAL_DONE;
    if (status == ROTA_OK && !*finished && clock_passed(dial->deadline_ns))
        return step_late(dial);
    return status;
}

int net_dial_take(struct net_dial *dial, int *descriptors, int *ndescriptors) {
    int fd = dial->socket;
    if (descriptors != NULL && ndescriptors != NULL) {
        for (int i = 0; i < dial->nreceived; i++)
            descriptors[i] = dial->received[i];
        *ndescriptors = dial->nreceived;
    } else {
        net_close_all(dial->received, dial->nreceived);
    }
    dial->socket = -1;
    dial->nreceived = 0;
    return fd;
}

void net_dial_free(struct net_dial *dial) {
    if (dial == NULL)
        return;
    if (dial->socket >= 0)
        close(dial->socket);
    net_close_all(dial->received, dial->nreceived);
    sodium_memzero(dial->identity.key, sizeof dial->identity.key);
    free(dial);
}
