/* Streams, and their receiving side.
 *
 * Design note. All streams of a pair share one queue of entries. The reader moves each entry at
 * once into its stream's own list in private memory, so nobody's message ever waits in the queue
 * behind one that its reader does not take. Payloads that do not fit into an entry stay in the
 * sender's slot, and are read there, until they are released.
 *
 * Credit. A message may travel when its receiver has announced it, as far as the sender knows
 * (`known`), or, up to eager_bytes, within a window of unannounced messages per stream. A receiver
 * grants (tells how many messages it has announced) when a large message is announced, since that
 * cannot travel without; when half a window has been announced since the last grant; and when the
 * sender has asked by a request. */
#include "transports/shm/shm.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static struct transport_stream *stream_find(struct shm *shm, int rank,
                                            const struct transport_key *key) {
    struct shm_stream_id id = {.peer = rank, .key = *key};
    struct transport_stream *stream = NULL;
    HASH_FIND(hh, shm->streams, &id, sizeof id, stream);
    return stream;
}

static struct transport_stream *stream_make(struct shm *shm, struct shm_peer *peer,
                                            const struct transport_key *key) {
    struct transport_stream *stream = calloc(1, sizeof *stream);
    if (!stream)
        return NULL;
    stream->id = (struct shm_stream_id){.peer = peer->rank, .key = *key};
    stream->peer = peer;
    stream->tail = &stream->head;
    stream->reserved_tail = &stream->reserved;
    stream->waiting.stream = stream->notes.stream = stream->partial.stream = stream;
    HASH_ADD(hh, shm->streams, id, sizeof stream->id, stream);
    return stream;
}

static bool grave_find(const struct shm *shm, int rank, const struct transport_key *key) {
    struct shm_stream_id id = {.peer = rank, .key = *key};
    struct shm_grave *grave = NULL;
    HASH_FIND(hh, shm->graves, &id, sizeof id, grave);
    return grave != NULL;
}

/* Remembers that a stream was closed, in place of the oldest closed one. */
static void grave_add(struct shm *shm, const struct shm_stream_id *id) {
    if (!shm->grave_ring)
        shm->grave_ring = calloc(SHM_GRAVES, sizeof *shm->grave_ring);
    if (!shm->grave_ring || grave_find(shm, id->peer, &id->key))
        return;
    struct shm_grave *grave = &shm->grave_ring[shm->grave_next % SHM_GRAVES];
    if (shm->grave_next >= SHM_GRAVES)
        HASH_DEL(shm->graves, grave);
    shm->grave_next = shm->grave_next + 1 < 2 * SHM_GRAVES ? shm->grave_next + 1 : SHM_GRAVES;
    grave->id = *id;
    HASH_ADD(hh, shm->graves, id, sizeof grave->id, grave);
}

rota_status shm_stream_open(struct transport *transport, int rank, const struct transport_key *key,
                            void *owner, struct transport_stream **stream) {
    struct shm *shm = shm_of(transport);
    if (shm_state(shm, rank) != SHM_PEER_ESTABLISHED)
        return error_raise(ROTA_ERR_INTERNAL, "rank %d is not connected by shared memory", rank);
    struct transport_stream *found = stream_find(shm, rank, key);
    if (!found)
        found = stream_make(shm, shm->peers[rank], key);
    if (!found)
        return error_raise(ROTA_ERR_MEMORY, "out of memory");
    if (found->open)
        return error_raise(ROTA_ERR_INTERNAL, "the stream is open already");
    found->open = true;
    found->owner = owner;
    *stream = found;
    return ROTA_OK;
}

/* -- giving back ----------------------------------------------------------------------------- */

/* Tells the sender that a payload is no longer read, and forgets the message. */
static void message_release(struct shm *shm, struct shm_peer *peer, int32_t slot) {
    struct shm_pair *out = peer->out;
    if (slot < 0) {
        atomic_store_explicit(&out->ack.inline_released, ++peer->inline_released,
                              memory_order_release);
        return;
    }
    (void)shm;
    atomic_store_explicit(&out->slots[peer->released % SHM_RELEASE_RING], (uint16_t)slot,
                          memory_order_relaxed);
    /* Release: the loads of the payload come before the sender's next stores to the slot; partner
     * is the load in shm_harvest. */
    atomic_store_explicit(&out->ack.released, ++peer->released, memory_order_release);
}

/* Wakes a sleeping sender when it waits for what was just given back. */
static void ring_for_room(const struct shm_peer *peer) {
    const struct doorbell_line *bell = shm_peer_bell(peer);
    if (!doorbell_must_ring(bell))
        return;
    /* Acquire: `wanted` was raised before `armed`; partner is doorbell_arm. */
    if (atomic_load_explicit(&bell->armed, memory_order_acquire) &&
        atomic_load_explicit(&peer->map.head->room.wanted, memory_order_relaxed))
        doorbell_write(peer->event_fd);
}

static struct shm_message *message_take(struct shm *shm) {
    struct shm_message *message = shm->spare_messages;
    if (message) {
        shm->spare_messages = message->next;
        shm->nspare_messages--;
        return message;
    }
    return malloc(sizeof *message);
}

static void message_put(struct shm *shm, struct shm_message *message) {
    if (shm->nspare_messages >= SHM_SPARE_NODES) {
        free(message);
        return;
    }
    message->next = shm->spare_messages;
    shm->spare_messages = message;
    shm->nspare_messages++;
}

static struct shm_message *message_pop(struct transport_stream *stream) {
    struct shm_message *message = stream->head;
    stream->head = message->next;
    if (!stream->head)
        stream->tail = &stream->head;
    return message;
}

/* -- messages shown in part -------------------------------------------------------------------- */

/* Bytes that are there of the oldest message. They never become less, whatever its sender writes.
 */
static size_t arrived_bytes(const struct transport_stream *stream) {
    const struct shm_message *message = stream->head;
    size_t length = (size_t)message->header.length;
    if (message->slot < SHM_SMALL_SLOTS)
        return length;
    const struct shm_filled *filled = &stream->peer->filled[message->slot - SHM_SMALL_SLOTS];
    /* Acquire: partner is the release store in slot_filled. */
    uint64_t bytes = atomic_load_explicit(&filled->bytes, memory_order_acquire);
    bytes = bytes > stream->part_seen ? bytes : stream->part_seen;
    return bytes < length ? (size_t)bytes : length;
}

static bool part_came(const struct transport_stream *stream) {
    return stream->peer->failed || arrived_bytes(stream) > (size_t)stream->part_seen;
}

bool shm_part_came(const struct shm *shm) {
    for (const struct shm_listed *listed = shm->partial; listed; listed = listed->next)
        if (part_came(listed->stream))
            return true;
    return false;
}

int shm_wake_partial(struct shm *shm) {
    struct shm_listed *list;
    int events = 0;
    listed_move(&shm->partial, &list);
    while (list) {
        struct transport_stream *stream = list->stream;
        listed_remove(list);
        if (!part_came(stream)) {
            listed_add(&shm->partial, &stream->partial);
            continue;
        }
        events++;
        shm->host->arrived(stream->owner);
    }
    return events;
}

void shm_stream_close(struct transport *transport, struct transport_stream *stream) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    bool any = stream->head != NULL;
    while (stream->head) {
        struct shm_message *message = message_pop(stream);
        message_release(shm, peer, message->slot);
        message_put(shm, message);
    }
    if (any)
        ring_for_room(peer);
    listed_remove(&stream->partial);
    shm_stream_stop_sending(shm, stream);
    if (peer->last == stream)
        peer->last = NULL;
    grave_add(shm, &stream->id);
    HASH_DEL(shm->streams, stream);
    free(stream);
}

void shm_streams_free(struct shm *shm) {
    struct transport_stream *stream = shm->streams;
    while (stream) {
        struct transport_stream *next = stream->hh.next;
        while (stream->head)
            free(message_pop(stream));
        shm_stream_stop_sending(shm, stream);
        HASH_DEL(shm->streams, stream);
        free(stream);
        stream = next;
    }
    HASH_CLEAR(hh, shm->graves);
    free(shm->grave_ring);
    while (shm->spare_messages) {
        struct shm_message *next = shm->spare_messages->next;
        free(shm->spare_messages);
        shm->spare_messages = next;
    }
    while (shm->spare_outgoing) {
        struct shm_outgoing *next = shm->spare_outgoing->next;
        free(shm->spare_outgoing);
        shm->spare_outgoing = next;
    }
}

/* -- receiving ------------------------------------------------------------------------------- */

static void grant(struct shm *shm, struct transport_stream *stream) {
    stream->granted = stream->announced;
    stream->grant_due = true;
    shm_note(shm, stream);
}

void shm_expect(struct transport *transport, struct transport_stream *stream, size_t length) {
    struct shm *shm = shm_of(transport);
    stream->announced++;
    bool asked = stream->requested && stream->announced > stream->request_number;
    bool large = length > transport->caps.eager_bytes && stream->announced > stream->arrived;
    uint64_t window = length <= SHM_INLINE_BYTES ? SHM_WINDOW : SHM_WINDOW_SLOTS;
    if (asked || large || stream->announced - stream->granted >= window / 2)
        grant(shm, stream);
    if (asked)
        stream->requested = false;
}

/* Payload of a message in the slot of its sender's. */
static const void *slot_payload(const struct shm_peer *peer, int32_t slot) {
    if (slot >= SHM_SMALL_SLOTS)
        return peer->large_slots + (size_t)(slot - SHM_SMALL_SLOTS) * SHM_LARGE_BYTES;
    return peer->small_slots + (size_t)slot * SHM_SMALL_BYTES;
}

enum transport_result shm_peek(struct transport *transport, struct transport_stream *stream,
                               struct transport_arrival *arrival) {
    const struct shm_peer *peer = stream->peer;
    struct shm_message *message = stream->head;
    size_t bytes = message ? arrived_bytes(stream) : 0;
    if (!message || (bytes < message->header.length && peer->failed))
        return peer->failed ? TRANSPORT_FAILED : TRANSPORT_AGAIN;
    if (bytes < message->header.length) {
        stream->part_seen = bytes;
        listed_add(&shm_of(transport)->partial, &stream->partial);
    }
    const void *data = message->slot < 0 ? message->data : slot_payload(peer, message->slot);
    *arrival =
        (struct transport_arrival){.header = message->header,
                                   .pieces = {{.data = (void *)(uintptr_t)data, .length = bytes}},
                                   .kind = &memory_host,
                                   .handle = message};
    return TRANSPORT_OK;
}

void shm_release(struct transport *transport, struct transport_stream *stream,
                 struct transport_arrival *arrival) {
    struct shm *shm = shm_of(transport);
    (void)arrival; /* the oldest one: there is no other */
    struct shm_message *message = message_pop(stream);
    message_release(shm, stream->peer, message->slot);
    message_put(shm, message);
    listed_remove(&stream->partial);
    stream->part_seen = 0;
    ring_for_room(stream->peer);
}

bool shm_pending(struct transport *transport, struct transport_stream *stream,
                 struct transport_header *header) {
    (void)transport;
    if (stream->head && stream->peer->failed && arrived_bytes(stream) < stream->head->header.length)
        return false;
    if (stream->head)
        *header = stream->head->header;
    else if (stream->request_known && stream->request_number == stream->arrived &&
             !stream->peer->failed)
        *header = stream->request;
    else
        return false;
    return true;
}

/* -- reading the queue ----------------------------------------------------------------------- */

/* Tells the sender how much of the queue was read. */
static void tell_read(const struct shm_peer *peer) {
    /* Release: the loads of the entries come before the sender's next stores to them; partner is
     * the load in entry_begin. */
    atomic_store_explicit(&peer->out->ack.consumed, peer->read, memory_order_release);
    ring_for_room(peer);
}

static void peer_broken(struct shm *shm, struct shm_peer *peer, const char *evidence) {
    peer->failed = true;
    shm->host->peer_failed(shm->host->context, &shm->transport, peer->rank, 0, evidence);
}

/* What an entry says of a message of put. */
struct shm_short {
    size_t length;
    int32_t slot; /* -1: payload in the entry */
};

/* Reads it, once, since the entry is the peer's; false when it says nothing of one. */
static inline bool entry_short(const struct shm_entry *entry, struct shm_short *message) {
    uint32_t word = __atomic_load_n(&entry->slot, __ATOMIC_RELAXED);
    if (entry->type == SHM_ENTRY_TINY) {
        *message = (struct shm_short){.length = word, .slot = -1};
        return word <= SHM_TINY_BYTES;
    }
    *message = (struct shm_short){.length = __atomic_load_n(&entry->tiny.length, __ATOMIC_RELAXED),
                                  .slot = (int32_t)word};
    return entry->type == SHM_ENTRY_SHORT && word < SHM_SMALL_SLOTS &&
           message->length <= SHM_SMALL_BYTES;
}

/* Whether an entry is a message this transport could have written. */
static bool entry_sane(const struct shm_entry *entry) {
    switch (entry->type) {
    case SHM_ENTRY_INLINE:
        return entry->header.length <= SHM_INLINE_BYTES;
    case SHM_ENTRY_TINY:
    case SHM_ENTRY_SHORT:
        return entry_short(entry, &(struct shm_short){0});
    case SHM_ENTRY_SLOT:
        return entry->slot < SHM_SLOTS &&
               entry->header.length <=
                   (entry->slot < SHM_SMALL_SLOTS ? SHM_SMALL_BYTES : SHM_LARGE_BYTES);
    case SHM_ENTRY_REQUEST:
        return entry->header.length <= SHM_LARGE_BYTES;
    case SHM_ENTRY_GRANT:
        return true;
    default:
        return false;
    }
}

static void note_arrived(struct shm *shm, struct transport_stream *stream, size_t length) {
    stream->arrived++;
    if (stream->request_known && stream->arrived > stream->request_number)
        stream->request_known = stream->requested = false;
    shm->transport.counters.messages_received++;
    shm->transport.counters.bytes_received += length;
    shm->transport.counters.wire_bytes_received += length;
}

/* The sender's slot that holds the payload of a message; -1: none does. */
static int32_t entry_slot(const struct shm_entry *entry) {
    bool has_one = entry->type == SHM_ENTRY_SLOT || entry->type == SHM_ENTRY_SHORT;
    return has_one ? (int32_t)entry->slot : -1;
}

static void read_message(struct shm *shm, struct transport_stream *stream,
                         const struct shm_entry *entry) {
    struct shm_message *message = message_take(shm);
    if (!message) {
        peer_broken(shm, stream->peer, "out of memory for a message");
        return;
    }
    message->next = NULL;
    struct shm_short put;
    if (entry_short(entry, &put)) {
        message->slot = put.slot;
        message->header = (struct transport_header){
            .sequence = entry->tiny.sequence, .length = put.length, .total = put.length};
        if (put.slot < 0)
            copy_small(message->data, entry->tiny.data, put.length);
    } else {
        message->slot = entry_slot(entry);
        message->header = entry->header;
        if (entry->type == SHM_ENTRY_INLINE)
            memcpy(message->data, entry->body.data, sizeof entry->body.data);
    }
    *stream->tail = message;
    stream->tail = &message->next;
    note_arrived(shm, stream, (size_t)message->header.length);
    if (stream->open)
        shm->host->arrived(stream->owner);
}

static void read_request(struct shm *shm, struct transport_stream *stream,
                         const struct shm_entry *entry) {
    stream->request_known = true;
    stream->request_number = entry->body.count;
    stream->request = entry->header;
    stream->requested = stream->announced <= entry->body.count;
    if (!stream->requested)
        grant(shm, stream);
    if (stream->open)
        shm->host->arrived(stream->owner);
}

static void read_grant(struct shm *shm, struct transport_stream *stream,
                       const struct shm_entry *entry) {
    uint64_t known = entry->body.count;
    if (known <= stream->known)
        return;
    stream->known = known;
    shm_stream_wake(shm, stream);
}

static void read_entry(struct shm *shm, struct shm_peer *peer, const struct shm_entry *entry) {
    bool message = entry->type != SHM_ENTRY_REQUEST && entry->type != SHM_ENTRY_GRANT;
    struct transport_stream *stream = peer->last;
    if (!stream || memcmp(&stream->id.key, &entry->key, sizeof entry->key) != 0) {
        stream = stream_find(shm, peer->rank, &entry->key);
        if (!stream && grave_find(shm, peer->rank, &entry->key)) {
            if (message) {
                message_release(shm, peer, entry_slot(entry));
                ring_for_room(peer);
            }
            return;
        }
        if (!stream)
            stream = stream_make(shm, peer, &entry->key);
        if (!stream) {
            peer_broken(shm, peer, "out of memory for a stream");
            return;
        }
        peer->last = stream;
    }
    if (message)
        read_message(shm, stream, entry);
    else if (entry->type == SHM_ENTRY_REQUEST)
        read_request(shm, stream, entry);
    else
        read_grant(shm, stream, entry);
}

bool shm_peer_has_entry(const struct shm_peer *peer) {
    const struct shm_entry *entry = &peer->in->fifo[peer->read % SHM_FIFO_ENTRIES];
    /* Acquire: partner is the release store in entry_publish. */
    return atomic_load_explicit(&entry->sequence, memory_order_acquire) == peer->read + 1 &&
           !peer->failed;
}

int shm_peer_read(struct shm *shm, struct shm_peer *peer, int budget) {
    int n = 0;
    while (n < budget && shm_peer_has_entry(peer)) {
        const struct shm_entry *entry = &peer->in->fifo[peer->read % SHM_FIFO_ENTRIES];
        if (!entry_sane(entry)) {
            peer_broken(shm, peer, "protocol error: an entry in shared memory is no message");
            break;
        }
        peer->read++;
        n++;
        read_entry(shm, peer, entry);
    }
    if (n > 0)
        tell_read(peer);
    return n;
}

bool shm_read_grant(struct shm *shm, struct transport_stream *stream) {
    struct shm_peer *peer = stream->peer;
    const struct shm_entry *entry = &peer->in->fifo[peer->read % SHM_FIFO_ENTRIES];
    if (!shm_peer_has_entry(peer) || entry->type != SHM_ENTRY_GRANT || stream->waiting.back ||
        memcmp(&entry->key, &stream->id.key, sizeof entry->key) != 0)
        return false;
    peer->read++;
    read_grant(shm, stream, entry);
    tell_read(peer);
    return true;
}

/* -- messages in one step ---------------------------------------------------------------------- */

/* The payload of a short message is in its entry, unless it has a slot. */
static inline void copy_payload(const struct shm *shm, const struct shm_peer *peer, int32_t slot,
                                const uint8_t *in_entry, void *data, size_t length) {
    if (slot < 0)
        copy_small(data, in_entry, length);
    else
        reduce_copy(shm->isa, data, slot_payload(peer, slot), length);
}

/* The oldest message, which progress has read. */
static enum transport_result take_read(struct transport *transport, struct transport_stream *stream,
                                       uint64_t sequence, void *data, size_t *room) {
    const struct shm_message *message = stream->head;
    const struct transport_header *header = &message->header;
    if (message->slot >= SHM_SMALL_SLOTS || header->sequence != sequence || header->slice != 0 ||
        header->total != header->length || header->fingerprint != 0 || header->length > *room)
        return TRANSPORT_UNSUPPORTED;
    *room = (size_t)header->length;
    copy_payload(shm_of(transport), stream->peer, message->slot, message->data, data, *room);
    shm_expect(transport, stream, *room);
    shm_release(transport, stream, &(struct transport_arrival){0});
    return TRANSPORT_OK;
}

enum transport_result shm_take(struct transport *transport, struct transport_stream *stream,
                               uint64_t sequence, void *data, size_t *room) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    if (stream->head)
        return take_read(transport, stream, sequence, data, room);
    if (!shm_peer_has_entry(peer))
        return TRANSPORT_AGAIN;
    const struct shm_entry *entry = &peer->in->fifo[peer->read % SHM_FIFO_ENTRIES];
    struct shm_short message;
    if (!entry_short(entry, &message))
        return shm_read_grant(shm, stream) ? TRANSPORT_AGAIN : TRANSPORT_UNSUPPORTED;
    if (message.length > *room || entry->tiny.sequence != sequence ||
        memcmp(&entry->key, &stream->id.key, sizeof entry->key) != 0)
        return TRANSPORT_UNSUPPORTED;
    copy_payload(shm, peer, message.slot, entry->tiny.data, data, message.length);
    *room = message.length;
    peer->read++;
    peer->last = stream;
    note_arrived(shm, stream, message.length);
    shm_expect(transport, stream, message.length);
    message_release(shm, peer, message.slot);
    tell_read(peer);
    return TRANSPORT_OK;
}
