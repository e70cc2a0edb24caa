/* The sending side of streams: slots, credit, and the queue to each peer. */
#include "transports/shm/shm.h"

#include <stdlib.h>
#include <string.h>

/* Small slots that such messages may hold at one time; the others are for announced ones, so those
 * never starve. */
#define UNANNOUNCED_SLOTS (SHM_SMALL_SLOTS * 3 / 4)
/* Messages without slot that a peer may hold unreleased: bounds its memory. */
#define INLINE_LIMIT 16384

/* -- entries --------------------------------------------------------------------------------- */

/* The next entry of the queue to a peer; NULL while it is full. */
static struct shm_entry *entry_begin(struct shm_peer *peer) {
    if (peer->published - peer->consumed_seen >= SHM_FIFO_ENTRIES) {
        /* Acquire: partner is the release store in shm_peer_read. */
        peer->consumed_seen = atomic_load_explicit(&peer->in->ack.consumed, memory_order_acquire);
        if (peer->published - peer->consumed_seen >= SHM_FIFO_ENTRIES)
            return NULL;
    }
    return &peer->out->fifo[peer->published % SHM_FIFO_ENTRIES];
}

/* Sees now and then, before an entry is written again, how far it is to who has read it. */
#define LOOK_ENTRIES 64
static void look_near(const struct shm *shm, struct shm_peer *peer) {
    if (peer->published % LOOK_ENTRIES == 0 && peer->consumed_seen - shm->start >= SHM_FIFO_ENTRIES)
        peer->near =
            shm_line_is_near(&peer->out->fifo[peer->published % SHM_FIFO_ENTRIES].sequence);
}

static void entry_publish(struct shm_peer *peer, struct shm_entry *entry) {
    /* Release: partner is the acquire load in shm_peer_read. */
    atomic_store_explicit(&entry->sequence, ++peer->published, memory_order_release);
}

static void ring(const struct shm_peer *peer) {
    doorbell_ring(shm_peer_bell(peer), peer->event_fd);
}

/* -- notes: grants and requests -------------------------------------------------------------- */

/* Writes what is due; false when the queue is full. */
static bool notes_write(struct transport_stream *stream) {
    struct shm_peer *peer = stream->peer;
    if (stream->grant_due) {
        struct shm_entry *entry = entry_begin(peer);
        if (!entry)
            return false;
        entry->type = SHM_ENTRY_GRANT;
        entry->key = stream->id.key;
        entry->body.count = stream->granted;
        entry_publish(peer, entry);
        stream->grant_due = false;
    }
    if (stream->request_due) {
        struct shm_entry *entry = entry_begin(peer);
        if (!entry)
            return false;
        entry->type = SHM_ENTRY_REQUEST;
        entry->key = stream->id.key;
        entry->header = stream->request_header;
        entry->body.count = stream->sent;
        entry_publish(peer, entry);
        stream->request_due = false;
    }
    return true;
}

void shm_note(struct shm *shm, struct transport_stream *stream) {
    struct shm_peer *peer = stream->peer;
    if (stream->notes.back || peer->failed)
        return; /* waits already, or nobody will read it */
    if (notes_write(stream)) {
        ring(peer);
        return;
    }
    listed_add(&peer->notes, &stream->notes);
    shm_update_wanted(shm);
}

/* -- slots ----------------------------------------------------------------------------------- */

static inline int pool_of(int32_t slot) {
    return slot >= SHM_SMALL_SLOTS;
}

static void slot_free(struct shm *shm, int32_t slot) {
    if (slot < 0)
        return;
    struct shm_slot *state = &shm->slots[slot];
    struct shm_pool *pool = &shm->pools[pool_of(slot)];
    shm->peers[state->holder]->held[pool_of(slot)]--;
    shm->unannounced -= state->unannounced;
    *state = (struct shm_slot){.holder = -1};
    pool->free[pool->nfree++] = (uint16_t)slot;
}

/* Slots of each pool that a peer holds before those that it has given back are looked for: so few
 * are in use that they stay in the caches. */
static const int hot_slots[2] = {8, 4};

/* Takes a slot of a pool for a message to the peer, -1 when there is none. No peer may hold more
 * than half of the small or a quarter of the large ones, and the last eighth is for peers that hold
 * nothing: so one that does not read stops nobody else. */
static int32_t pool_take(struct shm *shm, struct shm_peer *peer, int index) {
    struct shm_pool *pool = &shm->pools[index];
    if (pool->nfree == 0 || peer->held[index] >= pool->total / (index ? 4 : 2) ||
        (peer->held[index] > 0 && pool->nfree <= pool->total / 8))
        return -1;
    int32_t slot = pool->free[--pool->nfree];
    shm->slots[slot] = (struct shm_slot){.holder = peer->rank};
    peer->held[index]++;
    return slot;
}

/* Takes a slot for `length` bytes, -1 when there is none. Unannounced messages take small ones from
 * their share. */
static int32_t slot_take(struct shm *shm, struct shm_peer *peer, size_t length, bool announced) {
    int32_t slot = -1;
    if (length <= SHM_SMALL_BYTES && (announced || shm->unannounced < UNANNOUNCED_SLOTS))
        slot = pool_take(shm, peer, 0);
    if (slot >= 0 && !announced) {
        shm->slots[slot].unannounced = true;
        shm->unannounced++;
    }
    if (slot < 0 && announced)
        slot = pool_take(shm, peer, 1);
    return slot;
}

static void *slot_data(struct shm *shm, int32_t slot) {
    const struct shm_identity *identity = &shm->arena.head->identity;
    if (slot >= SHM_SMALL_SLOTS)
        return shm_arena_at(&shm->arena, identity->large_slots +
                                             (size_t)(slot - SHM_SMALL_SLOTS) * SHM_LARGE_BYTES);
    return shm_arena_at(&shm->arena, identity->small_slots + (size_t)slot * SHM_SMALL_BYTES);
}

static bool harvest_peer(struct shm *shm, struct shm_peer *peer) {
    /* Acquire: partner is the release store in message_release. */
    uint64_t released = atomic_load_explicit(&peer->in->ack.released, memory_order_acquire);
    if (released == peer->harvested)
        return false;
    if (released - peer->harvested > SHM_SLOTS)
        return false; /* no such count can be right: that peer's slots stay lost */
    for (; peer->harvested != released; peer->harvested++) {
        uint16_t slot = atomic_load_explicit(&peer->in->slots[peer->harvested % SHM_RELEASE_RING],
                                             memory_order_relaxed);
        if (slot < SHM_SLOTS && shm->slots[slot].holder == peer->rank && shm->slots[slot].published)
            slot_free(shm, slot);
    }
    return true;
}

bool shm_harvest(struct shm *shm) {
    bool any = false;
    for (int i = 0; i < shm->nconnected; i++)
        if (!shm->connected[i]->failed)
            any |= harvest_peer(shm, shm->connected[i]);
    return any;
}

/* Takes a slot as slot_take does, once more with what has come back when there is none, for a
 * message that is about to be copied into it. */
static int32_t slot_find(struct shm *shm, struct shm_peer *peer, size_t length, bool announced) {
    if (peer->held[0] >= hot_slots[0] || peer->held[1] >= hot_slots[1])
        (void)harvest_peer(shm, peer);
    int32_t slot = slot_take(shm, peer, length, announced);
    if (slot < 0 && shm_harvest(shm))
        slot = slot_take(shm, peer, length, announced);
    if (slot >= 0)
        look_near(shm, peer);
    return slot;
}

bool shm_room_came(const struct shm *shm) {
    for (int i = 0; i < shm->nconnected; i++) {
        const struct shm_peer *peer = shm->connected[i];
        if (peer->failed)
            continue;
        if (shm->waiting &&
            atomic_load_explicit(&peer->in->ack.released, memory_order_acquire) != peer->harvested)
            return true;
        if ((peer->notes || peer->ready) &&
            atomic_load_explicit(&peer->in->ack.consumed, memory_order_acquire) !=
                peer->consumed_seen)
            return true;
    }
    return false;
}

/* -- waiting senders ------------------------------------------------------------------------- */

static void waiting_add(struct shm *shm, struct transport_stream *stream) {
    if (stream->waiting.back)
        return;
    listed_add(&shm->waiting, &stream->waiting);
    shm_update_wanted(shm);
}

void shm_update_wanted(struct shm *shm) {
    uint32_t wanted = shm->waiting != NULL;
    for (int i = 0; i < shm->nconnected && !wanted; i++)
        wanted =
            !shm->connected[i]->failed && (shm->connected[i]->notes || shm->connected[i]->ready);
    _Atomic uint32_t *word = &shm->arena.head->room.wanted;
    /* Ordered before a later sleep by doorbell_arm; partner: ring_for_room. */
    if (atomic_load_explicit(word, memory_order_relaxed) != wanted)
        atomic_store_explicit(word, wanted, memory_order_release);
}

void shm_stream_wake(struct shm *shm, struct transport_stream *stream) {
    if (!stream->waiting.back)
        return;
    listed_remove(&stream->waiting);
    shm_update_wanted(shm);
    shm->host->writable(stream->owner);
}

void shm_wake_waiting(struct shm *shm) {
    struct shm_listed *list;
    listed_move(&shm->waiting, &list);
    while (list) {
        struct transport_stream *stream = list->stream;
        listed_remove(list);
        shm->host->writable(stream->owner);
    }
    shm_update_wanted(shm);
}

/* -- sending --------------------------------------------------------------------------------- */

static struct shm_outgoing *outgoing_take(struct shm *shm) {
    struct shm_outgoing *outgoing = shm->spare_outgoing;
    if (outgoing) {
        shm->spare_outgoing = outgoing->next;
        shm->nspare_outgoing--;
        return outgoing;
    }
    return malloc(sizeof *outgoing);
}

static void outgoing_put(struct shm *shm, struct shm_outgoing *outgoing) {
    if (shm->nspare_outgoing >= SHM_SPARE_NODES) {
        free(outgoing);
        return;
    }
    outgoing->next = shm->spare_outgoing;
    shm->spare_outgoing = outgoing;
    shm->nspare_outgoing++;
}

/* Whether a message without slot may be added to those the peer holds. */
static bool inline_room(struct shm_peer *peer) {
    if (peer->inline_sent - peer->inline_released_seen < INLINE_LIMIT)
        return true;
    peer->inline_released_seen =
        atomic_load_explicit(&peer->in->ack.inline_released, memory_order_acquire);
    return peer->inline_sent - peer->inline_released_seen < INLINE_LIMIT;
}

/* Whether a message may travel that the receiver is not known to have announced. */
static inline bool is_eager(const struct shm *shm, struct shm_peer *peer,
                            const struct transport_stream *stream, size_t length, bool in_entry) {
    if (!in_entry)
        return length <= shm->transport.caps.eager_bytes &&
               stream->sent - stream->known < SHM_WINDOW_SLOTS;
    return stream->sent - stream->known < SHM_WINDOW && inline_room(peer);
}

/* Whether the stream's next message may travel. A grant that has come is not left to progress: the
 * message would have to wait for permission that is there. */
static bool may_travel(struct shm *shm, struct transport_stream *stream, size_t length,
                       bool in_entry) {
    while (stream->sent >= stream->known && !is_eager(shm, stream->peer, stream, length, in_entry))
        if (!shm_read_grant(shm, stream))
            return false;
    return true;
}

static void note_sent(struct shm *shm, size_t length) {
    shm->transport.counters.messages_sent++;
    shm->transport.counters.bytes_sent += length;
    shm->transport.counters.wire_bytes_sent += length;
}

/* Asks the receiver once per message for permission, and waits. */
static enum transport_result wait_for_grant(struct shm *shm, struct transport_stream *stream,
                                            const struct transport_header *header) {
    waiting_add(shm, stream);
    if (!stream->request_sent) {
        stream->request_sent = true;
        stream->request_header = *header;
        stream->request_due = true;
        shm_note(shm, stream);
    }
    return TRANSPORT_AGAIN;
}

enum transport_result shm_reserve(struct transport *transport, struct transport_stream *stream,
                                  const struct transport_header *header,
                                  struct transport_slot *slot) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    if (peer->failed || header->length > SHM_LARGE_BYTES)
        return TRANSPORT_FAILED;
    size_t length = (size_t)header->length;
    bool in_entry = length <= SHM_INLINE_BYTES;
    if (!may_travel(shm, stream, length, in_entry))
        return wait_for_grant(shm, stream, header);
    bool announced = stream->sent < stream->known;
    int32_t taken = -1;
    if (!in_entry) {
        taken = slot_find(shm, peer, length, announced);
        if (taken < 0 && !announced)
            return wait_for_grant(shm, stream, header);
        if (taken < 0) {
            waiting_add(shm, stream);
            return TRANSPORT_AGAIN;
        }
    }
    struct shm_outgoing *outgoing = outgoing_take(shm);
    if (!outgoing) {
        slot_free(shm, taken);
        return TRANSPORT_FAILED;
    }
    outgoing->next = NULL;
    outgoing->key = stream->id.key;
    outgoing->header = *header;
    outgoing->slot = taken;
    outgoing->committed = outgoing->shown = false;
    *stream->reserved_tail = outgoing;
    stream->reserved_tail = &outgoing->next;
    stream->sent++;
    stream->request_sent = stream->request_due = false;
    slot->data = taken < 0 ? outgoing->data : slot_data(shm, taken);
    slot->length = length;
    slot->near = peer->near;
    slot->handle = outgoing;
    return TRANSPORT_OK;
}

static void slot_filled(struct shm *shm, const struct shm_outgoing *outgoing, size_t bytes) {
    struct shm_filled *filled = shm_arena_at(&shm->arena, shm->arena.head->identity.filled);
    if (outgoing->slot >= SHM_SMALL_SLOTS) /* Release: partner is the load in arrived_bytes. */
        atomic_store_explicit(&filled[outgoing->slot - SHM_SMALL_SLOTS].bytes, bytes,
                              memory_order_release);
}

/* Writes one message into the queue; false when that is full. */
static bool message_write(struct shm *shm, struct shm_peer *peer,
                          const struct shm_outgoing *outgoing) {
    struct shm_entry *entry = entry_begin(peer);
    if (!entry)
        return false;
    entry->key = outgoing->key;
    entry->header = outgoing->header;
    if (outgoing->slot < 0) {
        entry->type = SHM_ENTRY_INLINE;
        memcpy(entry->body.data, outgoing->data, sizeof entry->body.data);
        peer->inline_sent++;
    } else {
        entry->type = SHM_ENTRY_SLOT;
        entry->slot = (uint32_t)outgoing->slot;
        shm->slots[outgoing->slot].published = true;
    }
    entry_publish(peer, entry);
    note_sent(shm, (size_t)outgoing->header.length);
    return true;
}

/* Copies a message of put into a slot for it; -1 when there is none. */
static int32_t small_slot_fill(struct shm *shm, struct transport_stream *stream, const void *data,
                               size_t length) {
    struct shm_peer *peer = stream->peer;
    int32_t slot = slot_find(shm, peer, length, stream->sent < stream->known);
    if (slot < 0 || slot >= SHM_SMALL_SLOTS) {
        slot_free(shm, slot);
        return -1;
    }
    reduce_hand_over(shm->isa, peer->near, slot_data(shm, slot), data, length);
    shm->slots[slot].published = true;
    return slot;
}

/* Whether all that a header tells is a number and a length. */
static bool is_plain(const struct transport_header *header) {
    return (header->position | header->slice | header->epoch | header->flags) == 0 &&
           header->fingerprint == 0 && header->total == header->length;
}

enum transport_result shm_put(struct transport *transport, struct transport_stream *stream,
                              const struct transport_header *header, const void *data) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    size_t length = header->length;
    if (length > SHM_SMALL_BYTES || !is_plain(header) || stream->reserved || peer->ready ||
        peer->failed || !may_travel(shm, stream, length, length <= SHM_TINY_BYTES))
        return TRANSPORT_AGAIN;
    struct shm_entry *entry = entry_begin(peer);
    if (!entry)
        return TRANSPORT_AGAIN;
    if (length <= SHM_TINY_BYTES) {
        entry->type = SHM_ENTRY_TINY;
        entry->slot = (uint32_t)length;
        copy_small(entry->tiny.data, data, length);
        peer->inline_sent++;
    } else {
        int32_t slot = small_slot_fill(shm, stream, data, length);
        if (slot < 0)
            return TRANSPORT_AGAIN;
        entry->type = SHM_ENTRY_SHORT;
        entry->slot = (uint32_t)slot;
        entry->tiny.length = length;
    }
    entry->key = stream->id.key;
    entry->tiny.sequence = header->sequence;
    entry_publish(peer, entry);
    stream->sent++;
    stream->request_sent = stream->request_due = false;
    note_sent(shm, length);
    ring(peer);
    return TRANSPORT_OK;
}

int shm_peer_pump(struct shm *shm, struct shm_peer *peer) {
    uint64_t before = peer->published;
    while (peer->notes && notes_write(peer->notes->stream))
        listed_remove(peer->notes);
    while (!peer->notes && peer->ready && message_write(shm, peer, peer->ready)) {
        struct shm_outgoing *outgoing = peer->ready;
        peer->ready = outgoing->next;
        if (!peer->ready)
            peer->ready_tail = &peer->ready;
        outgoing_put(shm, outgoing);
    }
    if (peer->published != before)
        ring(peer);
    shm_update_wanted(shm);
    return (int)(peer->published - before);
}

void shm_publish(struct transport *transport, struct transport_stream *stream,
                 struct transport_slot *slot, size_t bytes) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    struct shm_outgoing *outgoing = slot->handle;
    bool next = stream->reserved == outgoing && !peer->ready && !peer->failed;
    if (outgoing->slot < SHM_SMALL_SLOTS || (!outgoing->shown && !next))
        return;
    slot_filled(shm, outgoing, bytes);
    if (outgoing->shown || !message_write(shm, peer, outgoing))
        return;
    outgoing->shown = true;
    ring(peer);
}

void shm_commit(struct transport *transport, struct transport_stream *stream,
                struct transport_slot *slot) {
    struct shm *shm = shm_of(transport);
    struct shm_peer *peer = stream->peer;
    struct shm_outgoing *committed = slot->handle;
    committed->committed = true;
    bool wrote = false;
    while (stream->reserved && stream->reserved->committed) {
        struct shm_outgoing *outgoing = stream->reserved;
        stream->reserved = outgoing->next;
        if (!stream->reserved)
            stream->reserved_tail = &stream->reserved;
        outgoing->next = NULL;
        slot_filled(shm, outgoing, (size_t)outgoing->header.length);
        if (outgoing->shown) {
            outgoing_put(shm, outgoing);
            wrote = true; /* the reader may sleep for the rest */
            continue;
        }
        if (peer->failed) {
            slot_free(shm, outgoing->slot);
            outgoing_put(shm, outgoing);
            continue;
        }
        if (!peer->ready && message_write(shm, peer, outgoing)) {
            outgoing_put(shm, outgoing);
            wrote = true;
            continue;
        }
        *peer->ready_tail = outgoing;
        peer->ready_tail = &outgoing->next;
        shm_update_wanted(shm);
    }
    if (wrote)
        ring(peer);
}

void shm_stream_stop_sending(struct shm *shm, struct transport_stream *stream) {
    while (stream->reserved) {
        struct shm_outgoing *outgoing = stream->reserved;
        stream->reserved = outgoing->next;
        slot_free(shm, outgoing->slot);
        outgoing_put(shm, outgoing);
    }
    stream->reserved_tail = &stream->reserved;
    listed_remove(&stream->waiting);
    listed_remove(&stream->notes);
    shm_update_wanted(shm);
}

void shm_peer_drop(struct shm *shm, struct shm_peer *peer) {
    while (peer->ready) {
        struct shm_outgoing *outgoing = peer->ready;
        peer->ready = outgoing->next;
        slot_free(shm, outgoing->slot);
        outgoing_put(shm, outgoing);
    }
    peer->ready_tail = &peer->ready;
    while (peer->notes)
        listed_remove(peer->notes);
    /* Slots of messages that are reserved only go with their stream, or when they are committed. */
    for (int32_t slot = 0; slot < SHM_SLOTS; slot++)
        if (shm->slots[slot].holder == peer->rank && shm->slots[slot].published)
            slot_free(shm, slot);
    /* Who waits for credit of the peer hears that there is none, and who waits for slots that there
     * are some. */
    shm_wake_waiting(shm);
}
