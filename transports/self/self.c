/* The transport of a rank to itself. A stream is one queue of messages and one queue of
 * announcements (posted receives and expectations); whatever is at both heads is matched. Posted
 * sends are read in place: copied once into a posted receive, or shown to peek as they lie. Slots
 * of reserve are private memory, bounded per instance.
 *
 * Tickets are completed inside the call that made the match. Matching does not nest: a call made
 * from within a ticket only queues, and the loop that runs already goes on with it. */
#include "transports/transport.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

/* Memory lent by reserve at a time, to all streams and to one; beyond it reserve says AGAIN, save
 * to a stream that has nothing, which no other stream may hinder. */
#define SELF_SLOT_BYTES ((size_t)16 << 20)
#define SELF_STREAM_BYTES ((size_t)4 << 20)
/* What a message costs beside its payload. */
#define SELF_MESSAGE_BYTES ((size_t)256)

struct self_message {
    TAILQ_ENTRY(self_message) link;
    struct transport_header header;
    struct transport_ticket *ticket; /* of a posted send */
    struct transport_stream *stream;
    bool committed, shown, posted;
    char *own; /* slot of reserve, or gathered copy of more than two pieces */
    int npieces;
    struct transport_piece pieces[];
};

struct self_announcement {
    TAILQ_ENTRY(self_announcement) link;
    struct transport_ticket *ticket; /* NULL: an expectation */
    bool posted;
    int npieces;
    struct transport_piece pieces[];
};

struct transport_stream {
    LIST_ENTRY(transport_stream) link;
    struct transport_key key;
    void *owner;
    size_t slot_bytes;
    bool matching, wants_slot;
    bool failed; /* an expectation was lost for want of memory */
    int users;   /* callers further up the stack that still look at this stream */
    bool closed;
    TAILQ_HEAD(, self_message) messages;
    TAILQ_HEAD(, self_announcement) announcements;
};

struct self_transport {
    struct transport base;
    struct transport_host *host;
    size_t slot_bytes;
    LIST_HEAD(, transport_stream) streams;
};

static struct self_transport *self_of(struct transport *transport) {
    return (struct self_transport *)transport;
}

/* -- life and connections ------------------------------------------------------------------ */

static const struct transport_caps self_caps = {
    .size = sizeof(struct transport_caps),
    .version = TRANSPORT_VERSION,
    .max_message = (size_t)1 << 40,
    .preferred_slice = (size_t)1 << 20,
    .eager_bytes = (size_t)16 << 10,
    .posts_send = true,
    .posts_recv = true,
    .memory_kinds = 1,
};

static rota_status self_open(struct transport_host *host, struct transport **transport) {
    struct self_transport *self = calloc(1, sizeof *self);
    if (!self)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the transport to oneself");
    self->base.ops = &transport_self;
    self->base.caps = self_caps;
    self->host = host;
    LIST_INIT(&self->streams);
    *transport = &self->base;
    return ROTA_OK;
}

static size_t self_describe(struct transport *transport, void *blob) {
    (void)transport;
    (void)blob;
    return 0;
}

static bool self_reaches(struct transport *transport, int peer) {
    return peer == self_of(transport)->host->rank;
}

static void self_connect(struct transport *transport, int peer) {
    struct transport_host *host = self_of(transport)->host;
    if (peer == host->rank)
        host->connected(host->context, transport, peer);
    else
        host->unreachable(host->context, transport, peer, 0, "another rank is not oneself");
}

static bool self_admit(struct transport *transport, int peer) {
    (void)transport;
    (void)peer;
    return false; /* nobody connects from outside */
}

static bool self_gave_up(struct transport *transport, int peer) {
    return peer != self_of(transport)->host->rank;
}

static void self_accept(struct transport *transport, int peer, int socket, const int *descriptors,
                        int ndescriptors) {
    (void)transport;
    (void)peer;
    (void)socket;
    (void)descriptors;
    (void)ndescriptors;
}

/* -- messages ------------------------------------------------------------------------------ */

static size_t slot_cost(uint64_t length) {
    return length + SELF_MESSAGE_BYTES;
}

static void message_free(struct self_transport *self, struct self_message *message) {
    if (message->own && !message->posted) {
        self->slot_bytes -= slot_cost(message->header.length);
        message->stream->slot_bytes -= slot_cost(message->header.length);
    }
    free(message->own);
    free(message);
}

/* Copies a message into the memory of a posted receive, as much as fits. */
static void copy_pieces(const struct transport_piece *from, int nfrom,
                        const struct transport_piece *to, int nto) {
    size_t read = 0, written = 0;
    while (nfrom > 0 && nto > 0) {
        size_t n = from->length - read;
        if (n > to->length - written)
            n = to->length - written;
        if (n > 0)
            memcpy((char *)to->data + written, (const char *)from->data + read, n);
        read += n;
        written += n;
        if (read == from->length) {
            from++, nfrom--;
            read = 0;
        }
        if (written == to->length) {
            to++, nto--;
            written = 0;
        }
    }
}

static void stream_leave(struct transport_stream *stream) {
    if (--stream->users == 0 && stream->closed)
        free(stream);
}

static void wake_writers(struct self_transport *self) {
    struct transport_stream *stream;
    int waiting = 0;
    LIST_FOREACH(stream, &self->streams, link) waiting += stream->wants_slot;
    /* A call-back may change the list and wait anew: start from the head, each once. */
    while (waiting-- > 0) {
        LIST_FOREACH(stream, &self->streams, link) if (stream->wants_slot) break;
        if (!stream)
            return;
        stream->wants_slot = false;
        LIST_REMOVE(stream, link);
        LIST_INSERT_HEAD(&self->streams, stream, link);
        self->host->writable(stream->owner);
    }
}

static void message_done(struct self_transport *self, struct self_message *message) {
    struct transport_ticket *ticket = message->ticket;
    bool slot = message->own && !message->posted;
    self->base.counters.messages_received++;
    self->base.counters.bytes_received += message->header.length;
    message_free(self, message);
    if (ticket)
        ticket->done(ticket, TRANSPORT_OK);
    if (slot)
        wake_writers(self);
}

/* Matches posted receives with messages for as long as both are at the heads of their queues. */
static void match(struct self_transport *self, struct transport_stream *stream) {
    if (stream->matching)
        return;
    stream->matching = true;
    stream->users++;
    while (!stream->closed) {
        struct self_message *message = TAILQ_FIRST(&stream->messages);
        struct self_announcement *announced = TAILQ_FIRST(&stream->announcements);
        if (!message || !message->committed || !announced || !announced->posted)
            break;
        TAILQ_REMOVE(&stream->messages, message, link);
        TAILQ_REMOVE(&stream->announcements, announced, link);
        copy_pieces(message->pieces, message->npieces, announced->pieces, announced->npieces);
        struct transport_ticket *ticket = announced->ticket;
        free(announced);
        if (ticket)
            ticket->header = message->header;
        message_done(self, message);
        if (ticket)
            ticket->done(ticket, TRANSPORT_OK);
    }
    stream->matching = false;
    stream_leave(stream);
}

/* A message has become visible: match it, or tell the owner of the stream. */
static void message_visible(struct self_transport *self, struct transport_stream *stream) {
    self->base.counters.messages_sent++;
    stream->users++;
    match(self, stream);
    struct self_message *message = stream->closed ? NULL : TAILQ_FIRST(&stream->messages);
    if (message && message->committed && !stream->matching)
        self->host->arrived(stream->owner);
    stream_leave(stream);
}

/* -- streams ------------------------------------------------------------------------------- */

static rota_status self_stream_open(struct transport *transport, int peer,
                                    const struct transport_key *key, void *owner,
                                    struct transport_stream **out) {
    struct self_transport *self = self_of(transport);
    struct transport_stream *stream;
    (void)peer;
    LIST_FOREACH(stream, &self->streams, link) {
        if (memcmp(&stream->key, key, sizeof *key) == 0)
            return error_raise(ROTA_ERR_INTERNAL, "stream of a rank to itself opened twice");
    }
    stream = calloc(1, sizeof *stream);
    if (!stream)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a stream");
    stream->key = *key;
    stream->owner = owner;
    stream->users = 1;
    TAILQ_INIT(&stream->messages);
    TAILQ_INIT(&stream->announcements);
    LIST_INSERT_HEAD(&self->streams, stream, link);
    *out = stream;
    return ROTA_OK;
}

static void self_stream_close(struct transport *transport, struct transport_stream *stream) {
    struct self_transport *self = self_of(transport);
    struct self_message *message;
    struct self_announcement *announced;
    while ((message = TAILQ_FIRST(&stream->messages))) {
        TAILQ_REMOVE(&stream->messages, message, link);
        message_free(self, message);
    }
    while ((announced = TAILQ_FIRST(&stream->announcements))) {
        TAILQ_REMOVE(&stream->announcements, announced, link);
        free(announced);
    }
    LIST_REMOVE(stream, link);
    stream->closed = true;
    stream_leave(stream);
}

static void self_close(struct transport *transport) {
    struct self_transport *self = self_of(transport);
    while (!LIST_EMPTY(&self->streams))
        self_stream_close(transport, LIST_FIRST(&self->streams));
    free(self);
}

static struct self_message *message_new(const struct transport_header *header, int npieces) {
    struct self_message *message =
        calloc(1, sizeof *message + (size_t)npieces * sizeof(struct transport_piece));
    if (message) {
        message->header = *header;
        message->npieces = npieces;
    }
    return message;
}

static enum transport_result self_reserve(struct transport *transport,
                                          struct transport_stream *stream,
                                          const struct transport_header *header,
                                          struct transport_slot *slot) {
    struct self_transport *self = self_of(transport);
    size_t cost = slot_cost(header->length);
    if (cost > SELF_STREAM_BYTES)
        return TRANSPORT_UNSUPPORTED;
    if (stream->slot_bytes > 0 && (self->slot_bytes + cost > SELF_SLOT_BYTES ||
                                   stream->slot_bytes + cost > SELF_STREAM_BYTES)) {
        stream->wants_slot = true;
        return TRANSPORT_AGAIN;
    }
    struct self_message *message = message_new(header, 1);
    char *own = malloc(header->length ? header->length : 1);
    if (!message || !own) {
        free(message);
        free(own);
        return TRANSPORT_FAILED;
    }
    self->slot_bytes += cost;
    stream->slot_bytes += cost;
    message->stream = stream;
    message->own = own;
    message->pieces[0] = (struct transport_piece){own, header->length};
    TAILQ_INSERT_TAIL(&stream->messages, message, link);
    *slot = (struct transport_slot){.data = own, .length = header->length, .handle = message};
    return TRANSPORT_OK;
}

static void self_commit(struct transport *transport, struct transport_stream *stream,
                        struct transport_slot *slot) {
    struct self_transport *self = self_of(transport);
    struct self_message *message = slot->handle;
    message->committed = true;
    self->base.counters.bytes_sent += message->header.length;
    message_visible(self, stream);
}

static enum transport_result self_post_send(struct transport *transport,
                                            struct transport_stream *stream,
                                            const struct transport_header *header,
                                            const struct transport_piece *pieces, int npieces,
                                            struct transport_ticket *ticket) {
    struct self_transport *self = self_of(transport);
    struct self_message *message = message_new(header, npieces);
    if (!message)
        return TRANSPORT_FAILED;
    if (npieces > 0)
        memcpy(message->pieces, pieces, (size_t)npieces * sizeof *pieces);
    message->ticket = ticket;
    message->posted = true;
    message->committed = true;
    TAILQ_INSERT_TAIL(&stream->messages, message, link);
    self->base.counters.bytes_sent += header->length;
    message_visible(self, stream);
    return TRANSPORT_OK;
}

static bool announce(struct transport_stream *stream, bool posted,
                     const struct transport_piece *pieces, int npieces,
                     struct transport_ticket *ticket) {
    struct self_announcement *announced =
        calloc(1, sizeof *announced + (size_t)npieces * sizeof *pieces);
    if (!announced)
        return false;
    if (npieces > 0)
        memcpy(announced->pieces, pieces, (size_t)npieces * sizeof *pieces);
    announced->npieces = npieces;
    announced->posted = posted;
    announced->ticket = ticket;
    TAILQ_INSERT_TAIL(&stream->announcements, announced, link);
    return true;
}

static void self_expect(struct transport *transport, struct transport_stream *stream,
                        size_t length) {
    (void)transport;
    (void)length;
    if (!announce(stream, false, NULL, 0, NULL))
        stream->failed = true;
}

static enum transport_result self_post_recv(struct transport *transport,
                                            struct transport_stream *stream, size_t length,
                                            const struct transport_piece *pieces, int npieces,
                                            struct transport_ticket *ticket) {
    (void)length;
    if (!announce(stream, true, pieces, npieces, ticket))
        return TRANSPORT_FAILED;
    match(self_of(transport), stream);
    return TRANSPORT_OK;
}

static bool self_withdraw(struct transport *transport, struct transport_stream *stream,
                          struct transport_ticket *ticket) {
    struct self_announcement *announced;
    (void)transport;
    TAILQ_FOREACH(announced, &stream->announcements, link) {
        if (!announced->posted || announced->ticket != ticket)
            continue;
        announced->posted = false;
        announced->ticket = NULL;
        return true;
    }
    return ticket == NULL; /* an expectation has no memory; else it is being matched now */
}

/* Lays the payload of a message of many pieces out in one. */
static bool gather(struct self_message *message) {
    char *own = malloc(message->header.length ? message->header.length : 1);
    if (!own)
        return false;
    struct transport_piece whole = {own, message->header.length};
    copy_pieces(message->pieces, message->npieces, &whole, 1);
    message->own = own;
    message->pieces[0] = whole;
    message->npieces = 1;
    return true;
}

static enum transport_result self_peek(struct transport *transport, struct transport_stream *stream,
                                       struct transport_arrival *arrival) {
    (void)transport;
    struct self_message *message = TAILQ_FIRST(&stream->messages);
    struct self_announcement *announced = TAILQ_FIRST(&stream->announcements);
    if (stream->failed)
        return TRANSPORT_FAILED;
    if (!message || !message->committed || (announced && announced->posted))
        return TRANSPORT_AGAIN;
    if (message->npieces > 2 && !gather(message))
        return TRANSPORT_FAILED;
    message->shown = true;
    memset(arrival, 0, sizeof *arrival);
    arrival->header = message->header;
    for (int i = 0; i < message->npieces; i++)
        arrival->pieces[i] = message->pieces[i];
    arrival->kind = &memory_host;
    arrival->handle = message;
    return TRANSPORT_OK;
}

static void self_release(struct transport *transport, struct transport_stream *stream,
                         struct transport_arrival *arrival) {
    struct self_transport *self = self_of(transport);
    struct self_message *message = arrival->handle;
    struct self_announcement *announced = TAILQ_FIRST(&stream->announcements);
    TAILQ_REMOVE(&stream->messages, message, link);
    if (announced && !announced->posted) {
        TAILQ_REMOVE(&stream->announcements, announced, link);
        free(announced);
    }
    stream->users++;
    message_done(self, message);
    if (!stream->closed)
        match(self, stream);
    stream_leave(stream);
}

static bool self_pending(struct transport *transport, struct transport_stream *stream,
                         struct transport_header *header) {
    struct transport_arrival arrival;
    if (self_peek(transport, stream, &arrival) != TRANSPORT_OK)
        return false;
    *header = arrival.header;
    return true;
}

/* -- progress ------------------------------------------------------------------------------ */

static int self_progress(struct transport *transport, int budget) {
    (void)transport;
    (void)budget;
    return 0; /* everything happens inside the calls */
}

static bool self_arm(struct transport *transport) {
    (void)transport;
    return true;
}

static void self_disarm(struct transport *transport) {
    (void)transport;
}

static int self_descriptor(struct transport *transport) {
    (void)transport;
    return -1;
}

/* Posted sends disappear; one that peek has shown stays until release, without a ticket and in
 * memory of its own. */
static void self_quiesce(struct transport *transport, struct transport_stream *stream) {
    struct self_transport *self = self_of(transport);
    struct self_message *message, *next;
    struct self_announcement *announced;
    for (message = TAILQ_FIRST(&stream->messages); message; message = next) {
        next = TAILQ_NEXT(message, link);
        if (!message->posted)
            continue;
        message->ticket = NULL;
        if (message->shown && (message->own || gather(message)))
            continue;
        TAILQ_REMOVE(&stream->messages, message, link);
        message_free(self, message);
    }
    while ((announced = TAILQ_FIRST(&stream->announcements))) {
        TAILQ_REMOVE(&stream->announcements, announced, link);
        free(announced);
    }
}

const struct transport_ops transport_self = {
    .name = "self",
    .help = "a rank to itself, by memory",
    .open = self_open,
    .close = self_close,
    .describe = self_describe,
    .reaches = self_reaches,
    .connect = self_connect,
    .admit = self_admit,
    .gave_up = self_gave_up,
    .accept = self_accept,
    .stream_open = self_stream_open,
    .stream_close = self_stream_close,
    .reserve = self_reserve,
    .commit = self_commit,
    .post_send = self_post_send,
    .expect = self_expect,
    .post_recv = self_post_recv,
    .withdraw = self_withdraw,
    .peek = self_peek,
    .release = self_release,
    .pending = self_pending,
    .progress = self_progress,
    .arm = self_arm,
    .disarm = self_disarm,
    .descriptor = self_descriptor,
    .quiesce = self_quiesce,
};
