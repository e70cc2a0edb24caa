/* The ring: the ordered pipe of bytes between two ranks. See verbs.h for how it works. */
#include "verbs.h"

#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

#define CHECK_FACTOR UINT64_C(0x9e3779b97f4a7c15) /* odd; 2^64 by the golden ratio */

static size_t slots_of(size_t bytes) {
    return (bytes + VERBS_SLOT_BYTES - 1) / VERBS_SLOT_BYTES;
}

/* Where slots begin after so many; their number is a power of two. */
static size_t slot_at(const struct verbs_connection *connection, uint64_t slots) {
    return (size_t)(slots & (connection->slots - 1));
}

bool verbs_ring_open(struct verbs_connection *connection, struct verbs_port *port) {
    struct verbs *verbs = verbs_home(connection);
    size_t ring = (size_t)verbs->slots * VERBS_SLOT_BYTES;
    size_t bytes = 2 * ring;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return false;
    connection->mr =
        verbs_mr(verbs, port, memory, bytes, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    if (!connection->mr) {
        munmap(memory, bytes);
        return false;
    }
    connection->memory = connection->ring = memory;
    connection->memory_bytes = bytes;
    connection->mirror = memory + ring;
    connection->slots = verbs->slots;
    connection->sent = connection->acknowledged = 0;
    connection->taken = connection->received = connection->told = 0;
    const struct verbs_blob *blob = verbs->mux.host->peers[connection->base.peer].blob;
    memcpy(&connection->secret, verbs->token, sizeof connection->secret);
    memcpy(&connection->peer_secret, blob->token, sizeof connection->peer_secret);
    connection->owes = connection->signal_next = false;
    return true;
}

void verbs_ring_close(struct verbs_connection *connection) {
    if (!connection->memory)
        return;
    (void)verbs_home(connection)->calls->dereg_mr(connection->mr);
    munmap(connection->memory, connection->memory_bytes);
    connection->memory = NULL;
}

/* The check of a chunk of one slot, of whole words; never 0. */
static uint64_t check_of(const char *chunk, size_t whole, uint64_t number, uint64_t secret) {
    uint64_t word, sum = (secret + number) * CHECK_FACTOR;
    memcpy(&word, chunk, sizeof word);
    sum = (sum + word) * CHECK_FACTOR;
    for (size_t at = sizeof(struct verbs_chunk); at < whole; at += sizeof word) {
        memcpy(&word, chunk + at, sizeof word);
        sum = (sum + word) * CHECK_FACTOR;
    }
    return sum != 0 ? sum : 1;
}

/* With its head, in whole words. */
static size_t whole_of(uint32_t bytes) {
    return sizeof(struct verbs_chunk) + (((size_t)bytes + 7) & ~(size_t)7);
}

/* Zeroes what the last word of so many bytes has beyond them. */
static void zero_rest(char *data, size_t bytes) {
    uint64_t word, mask = htole64((UINT64_C(1) << (bytes % 8 * 8)) - 1);
    if (bytes % 8 == 0)
        return;
    memcpy(&word, data + bytes / 8 * 8, sizeof word);
    word &= mask;
    memcpy(data + bytes / 8 * 8, &word, sizeof word);
}

/* Sends the chunk of `bytes` that lies in the mirror at the head, its own head filled here. */
static bool chunk_send(struct verbs_connection *connection, size_t bytes) {
    struct verbs *verbs = verbs_home(connection);
    struct verbs_pair *pair = connection->pair;
    size_t offset = slot_at(connection, connection->sent) * VERBS_SLOT_BYTES;
    struct verbs_chunk head = {(uint32_t)bytes, (uint32_t)connection->received, 0};
    char *chunk = connection->mirror + offset;
    size_t whole = whole_of(head.bytes);
    zero_rest(chunk + sizeof head, bytes);
    memcpy(chunk, &head, sizeof head);
    if (whole <= VERBS_SLOT_BYTES) {
        head.check = check_of(chunk, whole, connection->sent, connection->peer_secret);
        memcpy(chunk, &head, sizeof head);
    }
    struct ibv_sge sge = {(uintptr_t)chunk, (uint32_t)whole, connection->mr->lkey};
    bool immediate = pair->port->rail->immediate;
    unsigned requests = immediate ? 1 : 2;
    struct ibv_send_wr notice, *bad = NULL;
    if (!immediate)
        notice = (struct ibv_send_wr){.opcode = IBV_WR_SEND};
    struct ibv_send_wr write = {
        .next = immediate ? NULL : &notice,
        .sg_list = &sge,
        .num_sge = 1,
        .opcode = immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE,
        .send_flags = whole <= pair->inline_bytes ? IBV_SEND_INLINE : 0,
        .imm_data = htonl((uint32_t)whole),
        .wr.rdma = {.remote_addr = connection->peer_ring + offset, .rkey = connection->peer_key}};
    struct ibv_send_wr *last = immediate ? &write : &notice;
    uint64_t after = pair->posted + requests;
    if (connection->signal_next || after / VERBS_SIGNAL_EACH != pair->posted / VERBS_SIGNAL_EACH)
        last->send_flags |= IBV_SEND_SIGNALED;
    last->wr_id = after;
    int error = verbs->calls->post_send(pair->id->qp, &write, &bad);
    if (error != 0) {
        mux_break(&connection->base, error, "posting to the send queue: %s", strerror(error));
        return false;
    }
    pair->posted = after;
    connection->signal_next = false;
    connection->sent += slots_of(whole);
    connection->told = connection->received;
    return true;
}

static bool queue_has_room(const struct verbs_pair *pair) {
    return pair->posted - pair->completed + 2 <= VERBS_SEND_DEPTH;
}

/* Copies from the iovecs, from byte `*skip` of the first on. */
static void gather(char *to, size_t bytes, struct iovec **iov, size_t *skip) {
    while (bytes > 0) {
        size_t n = (*iov)->iov_len - *skip;
        n = n < bytes ? n : bytes;
        if (n > 0)
            memcpy(to, (char *)(*iov)->iov_base + *skip, n);
        to += n;
        bytes -= n;
        *skip += n;
        if (*skip == (*iov)->iov_len) {
            (*iov)++;
            *skip = 0;
        }
    }
}

ssize_t verbs_send(struct mux_connection *mux_connection, struct iovec *iov, int count) {
    struct verbs_connection *connection = verbs_connection_of(mux_connection);
    size_t left = 0, done = 0, skip = 0;
    for (int i = 0; i < count; i++)
        left += iov[i].iov_len;
    while (left > 0 && queue_has_room(connection->pair)) {
        uint64_t used = connection->sent - connection->acknowledged;
        if (used + VERBS_SLOTS_KEPT >= connection->slots)
            break;
        size_t slot = slot_at(connection, connection->sent);
        size_t room = connection->slots - VERBS_SLOTS_KEPT - (size_t)used;
        if (room > connection->slots - slot)
            room = connection->slots - slot;
        room = room * VERBS_SLOT_BYTES - sizeof(struct verbs_chunk);
        if (room > VERBS_MAX_CHUNK - sizeof(struct verbs_chunk))
            room = VERBS_MAX_CHUNK - sizeof(struct verbs_chunk);
        size_t bytes = left < room ? left : room;
        gather(connection->mirror + slot * VERBS_SLOT_BYTES + sizeof(struct verbs_chunk), bytes,
               &iov, &skip);
        if (!chunk_send(connection, bytes))
            return (ssize_t)(done + left); /* it is broken: as if all were sent */
        done += bytes;
        left -= bytes;
    }
    if (done > 0)
        return (ssize_t)done;
    errno = EAGAIN;
    return -1;
}

char *verbs_begin(struct mux_connection *base, size_t bytes) {
    struct verbs_connection *connection = verbs_connection_of(base);
    if (bytes > VERBS_SLOT_BYTES - sizeof(struct verbs_chunk) || verbs_room(base) == 0)
        return NULL;
    return connection->mirror + slot_at(connection, connection->sent) * VERBS_SLOT_BYTES +
           sizeof(struct verbs_chunk);
}

void verbs_end(struct mux_connection *base, size_t bytes) {
    (void)chunk_send(verbs_connection_of(base), bytes); /* else it is broken */
}

size_t verbs_room(const struct mux_connection *base) {
    const struct verbs_connection *connection = (const struct verbs_connection *)base;
    uint64_t kept = VERBS_SLOTS_KEPT + connection->slots / 8; /* for what is told on the way */
    uint64_t used = connection->sent - connection->acknowledged;
    if (!base->open || !queue_has_room(connection->pair) || used + kept >= connection->slots)
        return 0;
    return (size_t)(connection->slots - kept - used) *
           (VERBS_SLOT_BYTES - sizeof(struct verbs_chunk));
}

void verbs_ring_tell(struct verbs_connection *connection) {
    connection->owes = false;
    if (!connection->base.open || connection->base.is_broken ||
        connection->received - connection->told < connection->slots / 2)
        return;
    if (queue_has_room(connection->pair) &&
        connection->sent - connection->acknowledged < connection->slots)
        (void)chunk_send(connection, 0);
    else
        connection->owes = true;
}

bool verbs_ring_last(struct verbs_connection *connection) {
    connection->signal_next = true;
    return queue_has_room(connection->pair) &&
           connection->sent - connection->acknowledged < connection->slots &&
           chunk_send(connection, 0);
}

static char *next_chunk(const struct verbs_connection *connection) {
    return connection->ring + slot_at(connection, connection->taken) * VERBS_SLOT_BYTES;
}

/* Takes the next chunk, which is all there. */
static void chunk_take(struct verbs_connection *connection, char *data,
                       const struct verbs_chunk *head) {
    struct mux_connection *base = &connection->base;
    uint32_t freed = head->consumed - (uint32_t)connection->acknowledged;
    if (freed > connection->sent - connection->acknowledged) {
        mux_break(base, EPROTO, "more slots consumed than there were");
        return;
    }
    connection->acknowledged += freed;
    if (head->bytes > 0 && !verbs_mux(base)->closing)
        mux_input(base, data + sizeof *head, head->bytes);
    else
        base->mux->base.counters.wire_bytes_received += sizeof *head;
    connection->taken += slots_of(whole_of(head->bytes));
    memset(data + offsetof(struct verbs_chunk, check), 0, sizeof head->check); /* it has gone */
    base->mux->events++;
    if (freed > 0 && !TAILQ_EMPTY(&base->mux->pool_waiters))
        mux_room_came(base->mux);
}

void verbs_chunk_came(struct verbs_connection *connection, uint32_t bytes) {
    connection->owes = true;
    if (connection->taken != connection->received) { /* looked into: one slot */
        connection->received++;
        return;
    }
    char *data = next_chunk(connection);
    struct verbs_chunk head;
    memcpy(&head, data, sizeof head);
    size_t whole = whole_of(head.bytes);
    size_t slot = slot_at(connection, connection->taken);
    if (whole > (connection->slots - slot) * VERBS_SLOT_BYTES || (bytes && bytes != whole)) {
        mux_break(&connection->base, EPROTO, "chunk of an impossible length");
        return;
    }
    chunk_take(connection, data, &head);
    connection->received = connection->taken;
}

void verbs_ring_look(struct verbs_connection *connection) {
    while (connection->base.open && !connection->base.is_broken) {
        char *data = next_chunk(connection);
        /* Partner: the peer's adapter, in whatever order. */
        uint64_t check = __atomic_load_n(
            (uint64_t *)(void *)(data + offsetof(struct verbs_chunk, check)), __ATOMIC_ACQUIRE);
        if (check == 0)
            return;
        struct verbs_chunk head;
        memcpy(&head, data, sizeof head);
        size_t whole = whole_of(head.bytes);
        if (head.bytes > VERBS_SLOT_BYTES - sizeof head ||
            check_of(data, whole, connection->taken, connection->secret) != check)
            return; /* not all of it, or what lay there before */
        chunk_take(connection, data, &head);
    }
}
