/* The instance: its life, timers, progress. See mux.h for how it works. */
#include "mux.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define RETRY_NS (5 * MS)

/* Follows from what both sides know. */
static void set_slots(struct mux *mux) {
    size_t peers = mux->host->nranks > 1 ? (size_t)mux->host->nranks - 1 : 1;
    size_t fair = MUX_SLOT_POOL / MUX_MIN_SLOTS / peers;
    size_t least = MUX_EAGER_MIN + MUX_MESSAGE_CHARGE;
    size_t most = MUX_SLOT_MESSAGES * (mux->pipe->eager_most + MUX_MESSAGE_CHARGE);
    mux->slot_charge = fair < least ? least : fair > most ? most : fair;
    mux->eager_bytes = mux->slot_charge / MUX_SLOT_MESSAGES - MUX_MESSAGE_CHARGE;
    if (mux->eager_bytes < MUX_EAGER_MIN)
        mux->eager_bytes = MUX_EAGER_MIN;
}

rota_status mux_init(struct mux *mux, const struct mux_pipe *pipe, struct transport_host *host) {
    mux->epoll_fd = mux->timer_fd = -1;
    mux->base.ops = pipe->ops;
    mux->pipe = pipe;
    mux->host = host;
    mux->due_ns = CLOCK_NEVER;
    set_slots(mux);
    TAILQ_INIT(&mux->all);
    TAILQ_INIT(&mux->dirty);
    TAILQ_INIT(&mux->hot);
    TAILQ_INIT(&mux->pool_waiters);
    mux->connections = calloc((size_t)host->nranks, sizeof(struct mux_connection *));
    if (!mux->connections)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the %s transport", pipe->ops->name);
    mux->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    mux->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (mux->epoll_fd < 0 || mux->timer_fd < 0 ||
        epoll_ctl(mux->epoll_fd, EPOLL_CTL_ADD, mux->timer_fd, &event) != 0)
        return error_raise_system(errno, "epoll set of the %s transport", pipe->ops->name);
    return ROTA_OK;
}

void mux_destroy(struct mux *mux) {
    struct mux_connection *connection;
    while ((connection = TAILQ_FIRST(&mux->all))) {
        TAILQ_REMOVE(&mux->all, connection, all_link);
        mux_connection_free(connection);
    }
    if (mux->timer_fd >= 0)
        close(mux->timer_fd);
    if (mux->epoll_fd >= 0)
        close(mux->epoll_fd);
    mux_pool_clear(&mux->pool);
    free(mux->connections);
}

/* -- timers -------------------------------------------------------------------------------- */

static void timer_set(struct mux *mux, int64_t due_ns) {
    if (due_ns >= mux->due_ns)
        return;
    mux->due_ns = due_ns;
    struct itimerspec when = {
        .it_value = {.tv_sec = due_ns / 1000000000, .tv_nsec = due_ns % 1000000000}};
    (void)timerfd_settime(mux->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
}

void mux_due(struct mux_connection *connection, int64_t delay_ns) {
    connection->due_ns = clock_now_ns() + delay_ns;
    timer_set(connection->mux, connection->due_ns);
}

void mux_retry_later(struct mux_connection *connection) {
    if (connection->retry_due_ns != CLOCK_NEVER)
        return;
    connection->retry_due_ns = clock_now_ns() + RETRY_NS;
    timer_set(connection->mux, connection->retry_due_ns);
}

static void ask_again(struct mux_connection *connection) {
    struct transport_stream *stream, *next;
    connection->retry_due_ns = CLOCK_NEVER;
    for (stream = connection->streams; stream; stream = next) {
        next = stream->hh.next;
        if (!stream->retry)
            continue;
        stream->retry = false;
        connection->retry_streams--;
        if (stream->requested > stream->next_number)
            mux_need(stream, MUX_NEED_REQUEST);
    }
}

void mux_timers(struct mux *mux) {
    struct mux_connection *connection;
    int64_t now = clock_now_ns(), earliest = CLOCK_NEVER;
    if (now < mux->due_ns)
        return;
    uint64_t expirations;
    (void)!read(mux->timer_fd, &expirations, sizeof expirations);
    mux->due_ns = CLOCK_NEVER;
    TAILQ_FOREACH(connection, &mux->all, all_link) {
        if (connection->due_ns <= now) {
            connection->due_ns = CLOCK_NEVER;
            mux->pipe->due(connection);
        }
        if (connection->retry_due_ns <= now)
            ask_again(connection);
        if (connection->due_ns < earliest)
            earliest = connection->due_ns;
        if (connection->retry_due_ns < earliest)
            earliest = connection->retry_due_ns;
    }
    timer_set(mux, earliest);
}

/* -- progress ------------------------------------------------------------------------------ */

void mux_flush_dirty(struct mux *mux) {
    struct mux_connections todo;
    struct mux_connection *connection;
    TAILQ_INIT(&todo);
    TAILQ_CONCAT(&todo, &mux->dirty, dirty_link);
    while ((connection = TAILQ_FIRST(&todo))) {
        TAILQ_REMOVE(&todo, connection, dirty_link);
        connection->in_dirty = false;
        mux_flush(connection);
    }
}

static void bury_all(struct mux *mux) {
    struct mux_connection *connection;
    mux->has_graves = false;
    TAILQ_FOREACH(connection, &mux->all, all_link)
    mux_bury(connection);
}

int mux_progress(struct transport *transport, int budget) {
    struct mux *mux = mux_of(transport);
    if (mux->in_progress)
        return 0;
    mux->in_progress = true;
    mux->events = 0;
    mux->budget = budget > 0 ? budget : 1;
    mux->turn++;
    if (mux->has_graves)
        bury_all(mux);
    if (!TAILQ_EMPTY(&mux->dirty))
        mux_flush_dirty(mux);
    mux->pipe->poll(mux);
    if (!TAILQ_EMPTY(&mux->dirty))
        mux_flush_dirty(mux);
    if (mux->something_broke)
        mux_report_broken(mux);
    mux->in_progress = false;
    return mux->events;
}
