/* Endpoints and links. An endpoint is a peer of the job: the transport that reaches it is decided
 * when somebody first sends, by trying the transports in order of preference, or by the peer's
 * connecting to us. A link is a stream to a peer that may be wanted before the endpoint is
 * decided: it attaches when it is. All functions are called inside the progress domain. */
#ifndef ENGINE_ENDPOINT_H
#define ENGINE_ENDPOINT_H

#include "base/probe.h"
#include <transports/transport.h>

struct job;
struct link;

enum endpoint_state { ENDPOINT_IDLE, ENDPOINT_CONNECTING, ENDPOINT_READY, ENDPOINT_FAILED };

struct endpoint {
    enum endpoint_state state;
    int candidate; /* transport being tried */
    struct transport *transport;
    struct link *links; /* all links of this peer */
    int system_error;
    char evidence[256]; /* why it failed */
    bool gone;          /* the rank itself has failed or left; that is certain */
    /* Payload by messages; what native forms move in shared memory is not in it. */
    uint64_t messages_sent, messages_received, bytes_sent, bytes_received;
};

/* What the owner of a link hears. */
struct link_events {
    void (*attached)(struct link *link); /* the stream is open: announce receives, send */
    void (*arrived)(struct link *link);
    void (*writable)(struct link *link);
    void (*failed)(struct link *link); /* the endpoint failed; evidence is in the endpoint */
};

struct link {
    struct job *job;
    int peer; /* rank in the job */
    struct endpoint *endpoint;
    struct transport_key key;
    const struct link_events *events;
    void *owner;
    struct transport *transport; /* NULL until attached */
    struct transport_stream *stream;
    struct link *next, **previous; /* in endpoint.links */
};

/* Opens a link; attaches at once when the endpoint is ready (without calling events->attached). */
rota_status link_open(struct link *link, struct job *job, int peer, const struct transport_key *key,
                      const struct link_events *events, void *owner);
/* Forgets all that is queued on it; no user memory is touched afterwards. */
void link_close(struct link *link);
/* Makes sure that somebody connects: called by senders. */
void link_connect(struct link *link);
bool link_failed(const struct link *link);

/* Counts a message that the transport has taken, or that came and was the expected one. */
static inline void link_note_sent(struct link *link, size_t bytes) {
    link->endpoint->messages_sent++;
    link->endpoint->bytes_sent += bytes;
    PROBE2(message_sent, link->peer, bytes);
}
static inline void link_note_received(struct link *link, size_t bytes) {
    link->endpoint->messages_received++;
    link->endpoint->bytes_received += bytes;
    PROBE2(message_received, link->peer, bytes);
}

/* The rank has failed, or left in good order, as `text` says: nothing is sent to it any more, and
 * who waits for it is told when what it sent before is used up. */
void endpoint_gone(struct job *job, int peer, bool left, const char *text);

/* The transports' call-backs. */
void endpoint_connected(void *context, struct transport *transport, int peer);
void endpoint_unreachable(void *context, struct transport *transport, int peer, int system_error,
                          const char *text);
bool endpoint_has_other(void *context, struct transport *transport, int peer);
void endpoint_broken(void *context, struct transport *transport, int peer, int system_error,
                     const char *evidence);
void endpoint_arrived(void *owner);
void endpoint_writable(void *owner);

#endif
