/* Large messages: written from registered memory into registered memory, without a copy.
 *
 * Design note. The receiver says where (mux places); the sender writes there by *ways*, queue pairs
 * beside the ring's, and sends the frame when all requests of the message have completed, which
 * says that the bytes are in the peer's memory, whichever way and adapter they took. So a message
 * may be striped over ways, and no order between queue pairs is relied on.
 *
 * A turn of progress posts a message or two and then looks at completions again: with devices in
 * software a post is the transfer, and who posts all that waits keeps the peer idle meanwhile.
 *
 * Stopping. Ways have a generation, and a place is good for one. To quiesce, the queue pairs are
 * destroyed: nobody can write here by them any more, nor do they read here. The peer is told by the
 * ring (STOPPED) and does the same, so that its requests do not wait for time-outs. Whatever was on
 * its way goes by the ring then, as if there had been no place. The side that called for the ring
 * calls for ways, of the next generation, when either side wants them again. */
#include "verbs.h"

#include "base/clock.h"

#include <string.h>

/* Between two attempts to make ways that failed. */
#define WAYS_NS INT64_C(500000000)

static bool ways_up(const struct verbs_connection *connection) {
    return connection->nways > 0 && connection->ways_up == connection->nways;
}

void verbs_ways_close(struct verbs_connection *connection) {
    struct verbs *verbs = verbs_home(connection);
    for (unsigned i = 0; i < connection->nways; i++) {
        if (connection->ways[i])
            verbs_pair_destroy(verbs, connection->ways[i]);
        connection->ways[i] = NULL;
    }
    connection->nways = connection->ways_up = 0;
    mux_posts_unplace(&connection->base);
    struct verbs_writes stopped;
    struct verbs_write *write;
    TAILQ_INIT(&stopped);
    TAILQ_CONCAT(&stopped, &connection->writes, link);
    while ((write = TAILQ_FIRST(&stopped))) {
        struct mux_outgoing *outgoing = write->outgoing;
        TAILQ_REMOVE(&stopped, write, link);
        mux_pool_put(&verbs->mux.pool, write, sizeof *write);
        mux_unwritten(outgoing);
    }
}

/* How many: one per rail of the side that has more, or as many as the setting says. */
static unsigned ways_wanted(const struct verbs_connection *connection) {
    const struct verbs *verbs = verbs_home(connection);
    const struct verbs_blob *blob = verbs->mux.host->peers[connection->base.peer].blob;
    int rails = verbs->nports > blob->nrails ? verbs->nports : blob->nrails;
    int64_t setting = settings_integer(verbs->mux.host->settings, SETTING_RDMA_QUEUE_PAIRS);
    unsigned ways = setting > rails ? (unsigned)setting : (unsigned)rails;
    return ways < VERBS_MAX_WAYS ? ways : VERBS_MAX_WAYS;
}

static void ways_call(struct verbs_connection *connection) {
    connection->generation++;
    connection->nways = ways_wanted(connection);
    connection->ways_up = 0;
    for (unsigned i = 0; i < connection->nways; i++) {
        if (!verbs_call(connection, 1 + (int)i)) {
            verbs_ways_close(connection);
            return;
        }
    }
}

/* Either side wants ways: who called for the ring calls for them too. */
static void ways_want(struct verbs_connection *connection) {
    int64_t now = clock_now_ns();
    if (connection->nways > 0 || now < connection->ways_ns)
        return;
    connection->ways_ns = now + WAYS_NS;
    if (connection->caller)
        ways_call(connection);
    else
        mux_tell_stopped(&connection->base, connection->generation);
}

bool verbs_ways_called(struct verbs_connection *connection, const struct verbs_request *request) {
    if (connection->caller || !connection->base.open || request->role == 0 ||
        request->ways > VERBS_MAX_WAYS || request->role > request->ways)
        return false;
    if (request->generation > connection->generation) {
        verbs_ways_close(connection);
        connection->generation = request->generation;
        connection->nways = request->ways;
    }
    return request->generation == connection->generation && connection->nways == request->ways &&
           !connection->ways[request->role - 1];
}

void verbs_way_up(struct verbs_pair *pair) {
    struct verbs_connection *connection = pair->connection;
    connection->ways_up++;
    if (ways_up(connection))
        connection->ways_ns = 0;
}

void verbs_ways_failed(struct verbs_connection *connection) {
    if (connection->nways == 0)
        return;
    verbs_ways_close(connection);
    connection->ways_ns = clock_now_ns() + WAYS_NS;
    mux_tell_stopped(&connection->base, connection->generation);
}

void verbs_stop_writes(struct mux_connection *base) {
    struct verbs_connection *connection = verbs_connection_of(base);
    if (connection->nways == 0)
        return;
    verbs_ways_close(connection);
    mux_tell_stopped(base, connection->generation);
}

void verbs_stopped(struct mux_connection *base, uint32_t generation) {
    struct verbs_connection *connection = verbs_connection_of(base);
    if (generation < connection->generation)
        return; /* those are gone already */
    verbs_ways_close(connection);
    if (!connection->caller)
        connection->generation = generation;
    else if (generation == connection->generation)
        ways_want(connection);
}

static bool is_one_range(const struct mux_post *post) {
    for (int i = 1; i < post->npieces; i++) {
        const struct transport_piece *before = &post->pieces[i - 1];
        if ((char *)before->data + before->length != post->pieces[i].data)
            return false;
    }
    return post->npieces > 0;
}

bool verbs_places(struct transport *transport, const void *data, size_t length) {
    uint32_t keys[2][VERBS_MAX_RAILS];
    return length >= VERBS_PLACE_FROM &&
           verbs_lookup(verbs_of(transport), data, length, true, keys[0], keys[1]);
}

bool verbs_place(struct mux_connection *base, const struct mux_post *post,
                 struct mux_place *place) {
    struct verbs_connection *connection = verbs_connection_of(base);
    uint32_t lkeys[VERBS_MAX_RAILS] = {0}, rkeys[VERBS_MAX_RAILS] = {0};
    if (!is_one_range(post) || !base->open ||
        !verbs_lookup(verbs_home(connection), post->pieces[0].data, post->length, true, lkeys,
                      rkeys))
        return false;
    if (!ways_up(connection)) {
        ways_want(connection);
        return false;
    }
    *place = (struct mux_place){.address = (uintptr_t)post->pieces[0].data,
                                .length = post->length,
                                .keys = {rkeys[0], rkeys[1]},
                                .generation = connection->generation};
    return true;
}

/* Fills the part [begin, end) of the message into `sges` with the keys of a port. */
static int part_sges(const struct verbs_write *write, size_t begin, size_t end, int port,
                     struct ibv_sge *sges) {
    int n = 0;
    size_t at = 0;
    for (int i = 0; i < write->nsges && at < end; i++) {
        size_t length = write->sges[i].length;
        size_t first = begin > at ? begin - at : 0;
        size_t last = end - at < length ? end - at : length;
        if (first < last)
            sges[n++] = (struct ibv_sge){write->sges[i].addr + first, (uint32_t)(last - first),
                                         write->keys[i][port]};
        at += length;
    }
    return n;
}

/* The part of a message that way i of n takes, in whole pages from the second on. */
static size_t part_end(size_t length, unsigned i, unsigned n) {
    return i + 1 == n ? length : length / n * (i + 1) & ~(size_t)4095;
}

static bool way_has_room(const struct verbs_pair *pair) {
    return pair->posted - pair->completed < VERBS_WAY_DEPTH;
}

/* Posts one message to as many ways as are worth it; false: no room now. */
static bool write_post(struct verbs_connection *connection, struct verbs_write *write) {
    struct verbs *verbs = verbs_home(connection);
    size_t length = write->outgoing->header.length, begin = 0;
    unsigned n = (unsigned)(length / VERBS_STRIPE_FROM);
    n = n < 1 ? 1 : n > connection->nways ? connection->nways : n;
    for (unsigned i = 0; i < n; i++) {
        if (!way_has_room(connection->ways[i]))
            return false;
    }
    for (unsigned i = 0; i < n; i++) {
        struct verbs_pair *pair = connection->ways[i];
        size_t end = part_end(length, i, n);
        struct ibv_sge sges[VERBS_MAX_SGE];
        struct ibv_send_wr *bad = NULL;
        struct ibv_send_wr request = {
            .wr_id = pair->posted + 1,
            .sg_list = sges,
            .num_sge = part_sges(write, begin, end, (int)(pair->port - verbs->ports), sges),
            .opcode = IBV_WR_RDMA_WRITE,
            .send_flags = IBV_SEND_SIGNALED,
            .wr.rdma = {.remote_addr = write->place.address + begin,
                        .rkey = write->place.keys[pair->peer_rail]}};
        int error = verbs->calls->post_send(pair->id->qp, &request, &bad);
        if (error != 0) {
            mux_break(&connection->base, error, "posting a write: %s", strerror(error));
            return true;
        }
        pair->writes[pair->posted++ % VERBS_WAY_DEPTH] = write;
        write->left++;
        begin = end;
    }
    return true;
}

/* Posts what waits, and of that about VERBS_TURN_BYTES at a time; the rest in the next turn. */
static void post_waiting(struct verbs_connection *connection) {
    struct verbs *verbs = verbs_home(connection);
    struct verbs_write *write;
    size_t posted = 0;
    TAILQ_FOREACH(write, &connection->writes, link) {
        if (write->left > 0)
            continue;
        if (posted >= VERBS_TURN_BYTES) {
            verbs->waits = true;
            return;
        }
        if (!write_post(connection, write))
            return; /* until something completes */
        posted += write->outgoing->header.length;
    }
}

void verbs_write_waiting(struct verbs *verbs) {
    struct mux_connection *base;
    verbs->waits = false;
    mux_flush_dirty(&verbs->mux); /* frames first: peers wait for them */
    TAILQ_FOREACH(base, &verbs->mux.all, all_link)
    post_waiting(verbs_connection_of(base));
    verbs->mux.events++;
}

bool verbs_write(struct mux_connection *base, struct mux_outgoing *outgoing,
                 const struct mux_place *place) {
    struct verbs_connection *connection = verbs_connection_of(base);
    struct verbs *verbs = verbs_home(connection);
    if (!base->open || !ways_up(connection) || place->generation != connection->generation ||
        outgoing->npieces > VERBS_MAX_SGE)
        return false;
    struct verbs_write *write = mux_pool_get(&verbs->mux.pool, sizeof *write);
    if (!write)
        return false;
    memset(write, 0, sizeof *write);
    write->outgoing = outgoing;
    write->place = *place;
    for (int i = 0; i < outgoing->npieces; i++) {
        const struct transport_piece *piece = &outgoing->pieces[i];
        uint32_t rkeys[VERBS_MAX_RAILS];
        if (piece->length == 0)
            continue;
        if (!verbs_lookup(verbs, piece->data, piece->length, false, write->keys[write->nsges],
                          rkeys)) {
            mux_pool_put(&verbs->mux.pool, write, sizeof *write);
            return false;
        }
        write->sges[write->nsges++] =
            (struct ibv_sge){(uintptr_t)piece->data, (uint32_t)piece->length, 0};
    }
    outgoing->write = write;
    TAILQ_INSERT_TAIL(&connection->writes, write, link);
    if (verbs->mux.in_progress)
        verbs->waits = true;
    else
        post_waiting(connection);
    return true;
}

void verbs_way_completed(struct verbs_pair *pair, enum ibv_wc_status status) {
    struct verbs_connection *connection = pair->connection;
    struct verbs *verbs = verbs_home(connection);
    if (status != IBV_WC_SUCCESS) {
        /* The peer stopped, or the wire is cut: then the ring will say so. */
        verbs_ways_failed(connection);
        return;
    }
    struct verbs_write *write = pair->writes[pair->completed++ % VERBS_WAY_DEPTH];
    if (--write->left == 0) {
        struct mux_outgoing *outgoing = write->outgoing;
        TAILQ_REMOVE(&connection->writes, write, link);
        mux_pool_put(&verbs->mux.pool, write, sizeof *write);
        mux_written(outgoing);
    }
    verbs->mux.events++;
    verbs->waits |= !TAILQ_EMPTY(&connection->writes);
}
