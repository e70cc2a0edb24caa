/* The verbs transport: its table, its life, completions. See verbs.h for how it works. */
#include "verbs.h"
#include "survey.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#define COMPLETIONS 16
/* The CM and timers are looked at every so many turns of progress, more often while calls of ours
 * are on their way. */
#define EVENT_TURNS 32
#define EVENT_TURNS_CALLING 4
/* How long closing waits for the peers' adapters to have what was sent. */
#define LINGER_NS INT64_C(2000000000)

static const struct transport_caps verbs_caps = {
    .size = sizeof(struct transport_caps),
    .version = TRANSPORT_VERSION,
    .max_message = MUX_MAX_MESSAGE,
    .preferred_slice = VERBS_PREFERRED_SLICE,
    .preferred_message = VERBS_PREFERRED_SLICE,
    .eager_bytes = MUX_EAGER_MIN,
    .posts_send = true,
    .posts_recv = true,
    .memory_kinds = 1,
};

/* -- completions --------------------------------------------------------------------------- */

bool verbs_post_receives(struct verbs *verbs, struct verbs_port *port, struct verbs_pair *pair,
                         unsigned n) {
    struct ibv_recv_wr requests[COMPLETIONS] = {{0}}, *bad = NULL;
    for (unsigned count = 0; n > 0; n -= count) {
        count = n < COMPLETIONS ? n : COMPLETIONS;
        for (unsigned i = 0; i < count; i++)
            requests[i] = (struct ibv_recv_wr){.wr_id = VERBS_RECEIVE_ID,
                                               .next = i + 1 < count ? &requests[i + 1] : NULL};
        int error = port->srq ? verbs->calls->post_srq_recv(port->srq, requests, &bad)
                              : verbs->calls->post_recv(pair->id->qp, requests, &bad);
        if (error != 0) {
            errno = error;
            return false;
        }
    }
    return true;
}

static void ring_failed(struct verbs *verbs, struct verbs_pair *pair, enum ibv_wc_status status) {
    struct mux_connection *base = &pair->connection->base;
    bool silent = status == IBV_WC_RETRY_EXC_ERR;
    if (!base->open)
        return; /* the CM will say something */
    mux_break(base, silent ? ETIMEDOUT : EIO, "RDMA: %s%s", verbs->calls->wc_status_str(status),
              silent ? ": its adapter does not answer, or the way to it is cut" : "");
}

/* NULL: it was destroyed. */
static struct verbs_pair *pair_of(struct verbs *verbs, uint32_t number) {
    struct verbs_pair *pair = verbs->recent;
    if (pair && pair->number == number)
        return pair;
    HASH_FIND(hh, verbs->pairs, &number, sizeof number, pair);
    if (pair)
        verbs->recent = pair;
    return pair;
}

/* A chunk that comes while we close is not looked into, but the credit in it is. */
static void received(struct verbs *verbs, struct verbs_pair *pair, const struct ibv_wc *wc) {
    struct verbs_connection *connection = pair->connection;
    if (pair->role > 0)
        return;
    if (!pair->established && !connection->caller && !verbs->closing)
        verbs_established(pair); /* what the CM is about to say */
    if (connection->base.open && !connection->base.is_broken)
        verbs_chunk_came(connection, wc->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? wc->byte_len : 0);
}

static void completed(struct verbs *verbs, const struct ibv_wc *wc) {
    struct verbs_pair *pair = pair_of(verbs, wc->qp_num);
    if (!pair)
        return;
    struct verbs_connection *connection = pair->connection;
    if (wc->wr_id & VERBS_RECEIVE_ID) {
        if (wc->status == IBV_WC_SUCCESS)
            received(verbs, pair, wc);
        else if (pair->role == 0)
            ring_failed(verbs, pair, wc->status);
    } else if (pair->role > 0) {
        verbs_way_completed(pair, wc->status);
    } else if (wc->status == IBV_WC_SUCCESS) {
        pair->completed = wc->wr_id;
        if (!TAILQ_EMPTY(&verbs->mux.pool_waiters))
            mux_room_came(&verbs->mux);
    } else {
        ring_failed(verbs, pair, wc->status);
    }
    if (connection->owes)
        verbs_ring_tell(connection);
}

/* Takes some completions of a port; false when those were all. */
static bool port_poll(struct verbs *verbs, struct verbs_port *port) {
    struct ibv_wc wcs[COMPLETIONS];
    unsigned used = 0;
    int n = verbs->calls->poll_cq(port->cq, COMPLETIONS, wcs);
    for (int i = 0; i < n; i++)
        used += (wcs[i].wr_id & VERBS_RECEIVE_ID) && wcs[i].status == IBV_WC_SUCCESS;
    /* Before any slot is told to be free: who has a slot has a receive request. So many of them are
     * more than slots that they need not be replaced one by one. */
    port->owed += port->srq ? used : 0;
    if (port->owed > port->slack / 2) {
        (void)verbs_post_receives(verbs, port, NULL, port->owed);
        port->owed = 0;
    }
    for (int i = 0; i < n; i++) {
        if (!port->srq && (wcs[i].wr_id & VERBS_RECEIVE_ID)) {
            struct verbs_pair *pair = pair_of(verbs, wcs[i].qp_num);
            if (pair && wcs[i].status == IBV_WC_SUCCESS)
                (void)verbs_post_receives(verbs, port, pair, 1);
        }
        completed(verbs, &wcs[i]);
    }
    return n == COMPLETIONS;
}

static void drain_channel(struct verbs *verbs, struct verbs_port *port) {
    struct ibv_cq *cq = NULL;
    void *context = NULL;
    while (verbs->calls->get_cq_event(port->channel, &cq, &context) == 0)
        verbs->calls->ack_cq_events(cq, 1);
}

static void take_events(struct verbs *verbs) {
    struct epoll_event events[8];
    int n = epoll_wait(verbs->mux.epoll_fd, events, 8, 0);
    for (int i = 0; i < n; i++) {
        if (events[i].data.ptr == NULL)
            mux_timers(&verbs->mux);
        else if (events[i].data.ptr == verbs)
            verbs_cm_events(verbs);
        else
            drain_channel(verbs, events[i].data.ptr);
    }
}

/* Not within itself: completions are taken in their order. */
static void poll_ports(struct verbs *verbs) {
    if (verbs->polling)
        return;
    verbs->polling = true;
    for (int i = 0; i < verbs->nports; i++) {
        while (port_poll(verbs, &verbs->ports[i]) && verbs->mux.events < verbs->mux.budget)
            ;
    }
    verbs->polling = false;
}

/* Looks for chunks whose completions have not come. When there were some, completions have time
 * until the next turn: whoever waits for those messages goes first. */
static bool look(struct verbs *verbs) {
    struct mux *mux = &verbs->mux;
    struct mux_connection *base, *hot[VERBS_LOOKS];
    int before = mux->events;
    unsigned n = 0;
    if (mux->nhot > VERBS_LOOKS || verbs->polling)
        return false;
    TAILQ_FOREACH(base, &mux->hot, hot_link) hot[n++] = base;
    verbs->polling = true;
    for (unsigned i = 0; i < n; i++) {
        if (hot[i]->got_init)
            verbs_ring_look(verbs_connection_of(hot[i]));
    }
    verbs->polling = false;
    verbs->looked = !verbs->looked && mux->events != before;
    return verbs->looked;
}

void verbs_poll(struct mux *mux) {
    struct verbs *verbs = (struct verbs *)mux;
    if (!look(verbs))
        poll_ports(verbs);
    if (verbs->waits)
        verbs_write_waiting(verbs);
    if (mux->turn % (verbs->calling > 0 ? EVENT_TURNS_CALLING : EVENT_TURNS) == 0)
        take_events(verbs);
}

static void verbs_receive(struct mux_connection *base) {
    base->mux->budget = INT32_MAX;
    poll_ports(verbs_mux(base));
}

/* -- sleeping ------------------------------------------------------------------------------ */

static bool verbs_arm(struct transport *transport) {
    struct verbs *verbs = verbs_of(transport);
    struct mux *mux = &verbs->mux;
    if (mux->something_broke)
        return false;
    mux->events = 0;
    mux->budget = INT32_MAX;
    mux->in_progress = true;
    /* Who sleeps and wakes without turns between must not miss the CM. Channels are emptied here,
     * and not after the notification is asked for, which might be what is taken out. */
    take_events(verbs);
    for (int i = 0; i < verbs->nports; i++) {
        drain_channel(verbs, &verbs->ports[i]);
        (void)verbs->calls->req_notify_cq(verbs->ports[i].cq, 0);
    }
    poll_ports(verbs); /* what completed before it was asked for tells nobody */
    mux->in_progress = false;
    mux_flush_dirty(mux);
    return mux->events == 0 && !mux->something_broke && !verbs->waits;
}

static void verbs_disarm(struct transport *transport) {
    (void)transport; /* the descriptor is made quiet when next armed */
}

static int verbs_descriptor(struct transport *transport) {
    return mux_of(transport)->epoll_fd;
}

/* -- life ---------------------------------------------------------------------------------- */

static void port_close(struct verbs *verbs, struct verbs_port *port) {
    if (port->srq)
        (void)verbs->calls->destroy_srq(port->srq);
    if (port->cq)
        (void)verbs->calls->destroy_cq(port->cq);
    if (port->channel)
        (void)verbs->calls->destroy_comp_channel(port->channel);
    if (port->pd)
        (void)verbs->calls->dealloc_pd(port->pd);
}

/* Slots of every ring, so that rings, receive requests and completions fit for all peers. */
static rota_status choose_slots(struct verbs *verbs) {
    uint64_t npeers = verbs->mux.host->nranks > 1 ? (uint64_t)verbs->mux.host->nranks - 1 : 1;
    uint64_t most = VERBS_RING_POOL / npeers / (2 * VERBS_SLOT_BYTES);
    const uint64_t sends = VERBS_SEND_DEPTH / VERBS_SIGNAL_EACH + VERBS_MAX_WAYS * VERBS_WAY_DEPTH;
    for (int i = 0; i < verbs->nports; i++) {
        struct ibv_device_attr *attr = &verbs->ports[i].attr;
        if (attr->max_srq_wr / (int64_t)npeers < VERBS_MIN_SLOTS)
            attr->max_srq = 0; /* too many peers to share: each has requests of its own */
        uint64_t receives =
            (uint64_t)(attr->max_srq > 0 ? attr->max_srq_wr / (int64_t)npeers : attr->max_qp_wr);
        uint64_t completions = (uint64_t)attr->max_cqe / npeers;
        completions = completions > sends ? completions - sends : 0;
        most = receives < most ? receives : most;
        most = completions < most ? completions : most;
    }
    verbs->slots = VERBS_MAX_SLOTS;
    while (verbs->slots > most)
        verbs->slots /= 2;
    if (verbs->slots < VERBS_MIN_SLOTS)
        return error_raise_system(E2BIG, "%s has too few completions or receive requests",
                                  verbs->rails[0].name);
    return ROTA_OK;
}

static rota_status port_open(struct verbs *verbs, struct verbs_port *port) {
    const struct verbs_calls *calls = verbs->calls;
    int npeers = verbs->mux.host->nranks > 1 ? verbs->mux.host->nranks - 1 : 1;
    int requests = npeers * (int)verbs->slots;
    if (port->attr.max_srq > 0 && port->attr.max_srq_wr >= requests + 2 * COMPLETIONS &&
        port->attr.max_cqe / npeers > (int)verbs->slots * 2)
        port->slack = 2 * COMPLETIONS;
    requests += (int)port->slack;
    int sends =
        npeers * (int)(VERBS_SEND_DEPTH / VERBS_SIGNAL_EACH + VERBS_MAX_WAYS * VERBS_WAY_DEPTH);
    port->pd = calls->alloc_pd(port->rail->context);
    if (!port->pd)
        return error_raise_system(errno, "ibv_alloc_pd on %s", port->rail->name);
    port->channel = calls->create_comp_channel(port->rail->context);
    if (!port->channel)
        return error_raise_system(errno, "ibv_create_comp_channel on %s", port->rail->name);
    int flags = fcntl(port->channel->fd, F_GETFL);
    if (flags < 0 || fcntl(port->channel->fd, F_SETFL, flags | O_NONBLOCK) != 0 ||
        fcntl(port->channel->fd, F_SETFD, FD_CLOEXEC) != 0)
        return error_raise_system(errno, "completion channel of %s", port->rail->name);
    port->cq = calls->create_cq(port->rail->context, requests + sends, NULL, port->channel, 0);
    if (!port->cq)
        return error_raise_system(errno, "ibv_create_cq of %d entries on %s", requests + sends,
                                  port->rail->name);
    if (port->attr.max_srq > 0) {
        struct ibv_srq_init_attr attr = {.attr = {.max_wr = (uint32_t)requests, .max_sge = 1}};
        port->srq = calls->create_srq(port->pd, &attr);
        if (!port->srq)
            return error_raise_system(errno, "ibv_create_srq of %d requests on %s", requests,
                                      port->rail->name);
        if (!verbs_post_receives(verbs, port, NULL, port->slack))
            return error_raise_system(errno, "posting receive requests on %s", port->rail->name);
    }
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = port};
    if (epoll_ctl(verbs->mux.epoll_fd, EPOLL_CTL_ADD, port->channel->fd, &event) != 0)
        return error_raise_system(errno, "epoll set of the verbs transport");
    return ROTA_OK;
}

/* Whether memory for a ring can be locked: better known now than at the first message. */
static rota_status try_memory(struct verbs *verbs) {
    size_t bytes = 2 * (size_t)verbs->slots * VERBS_SLOT_BYTES;
    void *memory = aligned_alloc(4096, bytes);
    if (!memory)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a ring");
    struct ibv_mr *mr = verbs_mr(verbs, &verbs->ports[0], memory, bytes, IBV_ACCESS_LOCAL_WRITE);
    if (mr)
        (void)verbs->calls->dereg_mr(mr);
    free(memory);
    return mr ? ROTA_OK : error_record()->status;
}

static rota_status open_all(struct verbs *verbs) {
    rota_status status = verbs_rails_find(verbs->calls, verbs->mux.host->settings, verbs->rails,
                                          VERBS_MAX_RAILS, &verbs->nports);
    for (int i = 0; status == ROTA_OK && i < verbs->nports; i++) {
        const struct verbs_rail *rail = verbs->ports[i].rail = &verbs->rails[i];
        if (verbs->calls->query_device(rail->context, &verbs->ports[i].attr) != 0)
            status = error_raise_system(errno, "ibv_query_device of %s", rail->name);
    }
    if (status == ROTA_OK)
        status = choose_slots(verbs);
    for (int i = 0; status == ROTA_OK && i < verbs->nports; i++)
        status = port_open(verbs, &verbs->ports[i]);
    if (status == ROTA_OK)
        status = try_memory(verbs);
    if (status == ROTA_OK)
        status = verbs_listen(verbs);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = verbs};
    if (status == ROTA_OK &&
        epoll_ctl(verbs->mux.epoll_fd, EPOLL_CTL_ADD, verbs->events->fd, &event) != 0)
        status = error_raise_system(errno, "epoll set of the verbs transport");
    return status;
}

static void close_all(struct verbs *verbs) {
    mux_destroy(&verbs->mux);
    if (verbs->calls) {
        verbs_regions_free(verbs);
        verbs_unlisten(verbs);
        for (int i = 0; i < verbs->nports; i++)
            port_close(verbs, &verbs->ports[i]);
    }
    pthread_mutex_destroy(&verbs->regions_lock);
    free(verbs);
}

static const struct mux_pipe verbs_pipe;

static rota_status verbs_open(struct transport_host *host, struct transport **transport) {
    const struct verbs_calls *calls = NULL;
    rota_status status = verbs_device_exists();
    if (status == ROTA_OK)
        status = verbs_calls_load(&calls);
    if (status != ROTA_OK)
        return status;
    struct verbs *verbs = calloc(1, sizeof *verbs);
    if (!verbs)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the verbs transport");
    pthread_mutex_init(&verbs->regions_lock, NULL);
    status = mux_init(&verbs->mux, &verbs_pipe, host);
    verbs->mux.base.caps = verbs_caps;
    verbs->calls = calls;
    if (calls->reg_dmabuf_mr)
        verbs->mux.base.caps.memory_kinds = UINT32_MAX;
    if (status == ROTA_OK)
        status = open_all(verbs);
    if (status == ROTA_OK) {
        *transport = &verbs->mux.base;
        return ROTA_OK;
    }
    /* Other transports serve: that verbs cannot is no failure of the job. */
    char text[ROTA_ERROR_MAX_MESSAGE];
    int error = error_record()->system_error;
    snprintf(text, sizeof text, "%s", error_record()->message);
    close_all(verbs);
    status = status == ROTA_ERR_SETTING ? status : ROTA_ERR_UNSUPPORTED;
    error_describe(status, "%s", text);
    error_record()->system_error = error;
    return status;
}

/* Whether the peer's adapter has all that was sent, BYE included, or never will. */
static bool is_flushed(struct verbs_connection *connection) {
    struct mux_connection *base = &connection->base;
    if (!base->open || base->is_broken || !base->got_init)
        return true;
    if (base->want_bye || mux_has_output(base))
        mux_flush(base);
    if (mux_has_output(base))
        return base->is_broken;
    struct verbs_pair *pair = connection->pair;
    if (pair->completed != pair->posted && !connection->last_sent)
        connection->last_sent = verbs_ring_last(connection);
    return pair->completed == pair->posted;
}

/* A queue pair that is destroyed takes with it what its adapter has not sent. */
static void linger(struct verbs *verbs) {
    int64_t deadline = clock_now_ns() + LINGER_NS;
    struct mux_connection *base;
    bool done = false;
    verbs->closing = true;
    TAILQ_FOREACH(base, &verbs->mux.all, all_link)
    base->want_bye = base->open && base->got_init;
    while (!done && clock_now_ns() < deadline) {
        done = true;
        verbs->mux.budget = INT32_MAX;
        poll_ports(verbs);
        take_events(verbs);
        TAILQ_FOREACH(base, &verbs->mux.all, all_link)
        done &= is_flushed(verbs_connection_of(base));
        if (!done)
            sched_yield();
    }
}

static void verbs_close(struct transport *transport) {
    struct verbs *verbs = verbs_of(transport);
    struct mux_connection *base;
    verbs->mux.in_progress = true; /* nobody is told anything from here on */
    linger(verbs);
    TAILQ_FOREACH(base, &verbs->mux.all, all_link)
    verbs_shut(base);
    close_all(verbs);
}

static const struct mux_pipe verbs_pipe = {
    .ops = &transport_verbs,
    .connection_bytes = sizeof(struct verbs_connection),
    .init = verbs_connection_init,
    .send = verbs_send,
    .room = verbs_room,
    .begin = verbs_begin,
    .end = verbs_end,
    .receive = verbs_receive,
    .poll = verbs_poll,
    .due = verbs_due,
    .shut = verbs_shut,
    .ended = verbs_ended,
    .ready = verbs_ready,
    .eager_most = MUX_EAGER_MIN,
    .packs = true,
    .place_from = VERBS_PLACE_FROM,
    .place = verbs_place,
    .write = verbs_write,
    .stop_writes = verbs_stop_writes,
    .stopped = verbs_stopped,
};

const struct transport_ops transport_verbs = {
    .name = "verbs",
    .help = "RDMA adapters: InfiniBand, RoCE, iWARP",
    .open = verbs_open,
    .close = verbs_close,
    .describe = verbs_describe,
    .survey = verbs_survey,
    .reaches = verbs_reaches,
    .connect = verbs_connect,
    .admit = verbs_admit,
    .gave_up = verbs_gave_up,
    .accept = verbs_accept,
    .stream_open = mux_stream_open,
    .stream_close = mux_stream_close,
    .reserve = mux_reserve,
    .commit = mux_commit,
    .put = mux_put,
    .post_send = mux_post_send,
    .expect = mux_expect,
    .post_recv = mux_post_recv,
    .places = verbs_places,
    .peek = mux_peek,
    .release = mux_release,
    .pending = mux_pending,
    .register_memory = verbs_register_memory,
    .deregister_memory = verbs_deregister_memory,
    .progress = mux_progress,
    .arm = verbs_arm,
    .disarm = verbs_disarm,
    .descriptor = verbs_descriptor,
    .quiesce = mux_quiesce,
    .peer_gone = verbs_peer_gone,
};
