/* The instance: one rank's part in the liveness of its job.
 *
 * Design notes. All state belongs to the control thread, where everything runs: in `ready`, called
 * for the instance's epoll set and deadline, and in the two call-backs of the accepting service.
 * Other threads put commands into a queue; events that call functions of liveness.h do the same, so
 * nothing here is ever entered twice. What other threads may read are a few atomics.
 *
 * Whoever is waited for is watched, by a control connection, and a pidfd where that can be. A watch
 * that is not renewed is given up after a while, so that idle jobs hold no descriptors. */
#include "liveness/liveness.h"
#include "base/clock.h"
#include "base/error.h"
#include "bootstrap/service.h"
#include "liveness/agreement.h"
#include "liveness/exit.h"
#include "liveness/link.h"
#include "liveness/view.h"
#include "liveness/wire.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define MS INT64_C(1000000)
#define COLLECT_MS 20
#define BALLOT_MS 100
#define TAKEOVER_MS 150
#define INQUIRY_MS 500 /* for a peer whose data connection broke */
#define ABSENT_MS 2000 /* until a rank that was never met is held to have left, not to be late */
#define EXIT_MS 200    /* in which a process that refuses connections, and has a pidfd, has ended */
#define SWEEP_MS 15000 /* a watch not renewed for one to two of these ends */
#define MAX_COMMANDS 4096
#define LEFT_WORDS VIEW_LEFT
#define MAX_ROUNDS 16

enum { TAG_COMMANDS, TAG_LINK, TAG_EXIT };

enum command_type { COMMAND_WATCH, COMMAND_SEND, COMMAND_SUSPECT, COMMAND_AGREE };
struct command {
    struct command *next;
    enum command_type type;
    int peer; /* AGREE: how many ranks */
    enum liveness_evidence evidence;
    struct liveness_topic topic;
    struct liveness_ballot ballot;
    size_t bytes;
    _Alignas(int) uint8_t data[]; /* message, text with NUL, or ranks */
};

struct peer {
    int exit_descriptor; /* -1: none */
    bool cannot_tell;    /* no pidfd for it: by connection */
    bool left;           /* said so, or was found to */
    int64_t inquiry_ns;  /* until when it must answer; 0: it need not */
    uint64_t token;      /* that the answer must hold */
    bool is_broken;      /* a data connection to it; nothing was decided about that yet */
    char broken[VIEW_REASON];
};

enum { WATCH_NONE, WATCH_FRESH, WATCH_STALE };

struct liveness {
    struct liveness *next; /* in `instances` */
    const struct net_identity *identity;
    int n, self;
    const struct bootstrap_record *records;
    struct liveness_events events;
    void *context;

    pthread_mutex_t lock; /* guards the queue */
    struct command *first, **end;
    int ncommands;
    int wake;    /* eventfd */
    bool forked; /* this is a copy in a child */
    _Atomic uint32_t epoch;
    _Atomic uint8_t *removed; /* [rank] */
    _Atomic uint8_t
        *watched; /* [rank] WATCH_...; raised by anyone, lowered by the control thread */

    int epoll;
    struct control_service service;
    struct control_watch watch;
    struct links *links;
    struct view *view;
    struct agreements *agreements;
    struct wire_view incoming;
    struct peer **peers; /* [rank]; NULL: nothing about it */
    bool view_changed, told_isolated;
    /* Raised by who waits until all is sent; and that it is. */
    _Atomic bool flushing, flushed;
    int64_t sweep_ns, inquiry_ns; /* CLOCK_NEVER: none */
    int *list;                    /* of ranks, for events */
    bool *left_list;
    uint8_t *payload; /* WIRE_MAX */
};

/* -- forks --------------------------------------------------------------------------------------
 * The child has copies of the descriptors, which would keep connections open after the parent's
 * death, and no control thread. */

static pthread_mutex_t instances_lock = PTHREAD_MUTEX_INITIALIZER;
static struct liveness *instances; /* in the child also those of the parent: they stay reachable */

static void before_fork(void) {
    pthread_mutex_lock(&instances_lock);
}
static void after_fork_in_parent(void) {
    pthread_mutex_unlock(&instances_lock);
}
static void after_fork_in_child(void) {
    pthread_mutex_init(&instances_lock, NULL);
    for (struct liveness *one = instances; one != NULL; one = one->next) {
        if (one->forked)
            continue;
        one->forked = true;
        links_close_inherited(one->links);
        for (int rank = 0; rank < one->n; rank++)
            if (one->peers[rank] != NULL && one->peers[rank]->exit_descriptor >= 0)
                close(one->peers[rank]->exit_descriptor);
        close(one->epoll);
        close(one->wake);
    }
}
static void install_fork_handler(void) {
    (void)pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

static void list_instance(struct liveness *liveness, bool add) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, install_fork_handler);
    pthread_mutex_lock(&instances_lock);
    struct liveness **place = &instances;
    while (*place != NULL && *place != liveness)
        place = &(*place)->next;
    if (add) {
        liveness->next = instances;
        instances = liveness;
    } else if (*place != NULL) {
        *place = liveness->next;
    }
    pthread_mutex_unlock(&instances_lock);
}

/* -- commands -----------------------------------------------------------------------------------
 */

static struct command *command_new(enum command_type type, int peer, const void *data,
                                   size_t bytes) {
    struct command *command = malloc(sizeof *command + bytes);
    if (command == NULL)
        return NULL;
    memset(command, 0, sizeof *command);
    command->type = type;
    command->peer = peer;
    command->bytes = bytes;
    if (bytes > 0)
        memcpy(command->data, data, bytes);
    return command;
}

static void command_put(struct liveness *liveness, struct command *command) {
    if (command == NULL)
        return;
    pthread_mutex_lock(&liveness->lock);
    bool full = liveness->ncommands >= MAX_COMMANDS, wake = liveness->first == NULL;
    if (!full) {
        *liveness->end = command;
        liveness->end = &command->next;
        liveness->ncommands++;
    }
    pthread_mutex_unlock(&liveness->lock);
    if (full) {
        free(command);
    } else if (wake) {
        uint64_t one = 1;
        (void)!write(liveness->wake, &one, sizeof one); /* full means that it is awake already */
    }
}

static struct command *commands_take(struct liveness *liveness) {
    pthread_mutex_lock(&liveness->lock);
    struct command *first = liveness->first;
    liveness->first = NULL;
    liveness->end = &liveness->first;
    liveness->ncommands = 0;
    pthread_mutex_unlock(&liveness->lock);
    return first;
}

/* Whether `peer` is another rank of the job that this instance can do something about. */
static bool is_other(const struct liveness *liveness, int peer) {
    return !liveness->forked && peer >= 0 && peer < liveness->n && peer != liveness->self;
}

void liveness_watch(struct liveness *liveness, int peer) {
    if (!is_other(liveness, peer) ||
        atomic_load_explicit(&liveness->watched[peer], memory_order_relaxed) == WATCH_FRESH)
        return;
    /* Orders nothing: the command goes through the queue's lock. */
    atomic_store_explicit(&liveness->watched[peer], WATCH_FRESH, memory_order_relaxed);
    command_put(liveness, command_new(COMMAND_WATCH, peer, NULL, 0));
}

void liveness_send(struct liveness *liveness, int peer, const void *message, size_t bytes) {
    if (is_other(liveness, peer) && bytes <= LIVENESS_MAX_MESSAGE)
        command_put(liveness, command_new(COMMAND_SEND, peer, message, bytes));
}

void liveness_suspect(struct liveness *liveness, int peer, enum liveness_evidence evidence,
                      int system_error, const char *text) {
    char reason[VIEW_REASON];
    if (!is_other(liveness, peer))
        return;
    if (system_error != 0)
        snprintf(reason, sizeof reason, "%.110s (%s)", text != NULL ? text : "",
                 strerror(system_error));
    else
        snprintf(reason, sizeof reason, "%s", text != NULL ? text : "");
    struct command *command = command_new(COMMAND_SUSPECT, peer, reason, strlen(reason) + 1);
    if (command != NULL)
        command->evidence = evidence;
    command_put(liveness, command);
}

void liveness_agree(struct liveness *liveness, const struct liveness_topic *topic, const int *ranks,
                    int nranks, const struct liveness_ballot *mine) {
    if (liveness->forked || nranks <= 0 || nranks > liveness->n)
        return;
    struct command *command =
        command_new(COMMAND_AGREE, nranks, ranks, (size_t)nranks * sizeof *ranks);
    if (command != NULL) {
        command->topic = *topic;
        command->ballot = *mine;
    }
    command_put(liveness, command);
}

uint32_t liveness_epoch(const struct liveness *liveness) {
    /* Partner: the release store in view_decided. */
    return atomic_load_explicit(&liveness->epoch, memory_order_acquire);
}

bool liveness_member(const struct liveness *liveness, int peer) {
    return atomic_load_explicit(&liveness->removed[peer], memory_order_relaxed) == 0;
}

/* -- evidence -----------------------------------------------------------------------------------
 */

static struct peer *peer_of(struct liveness *liveness, int rank) {
    if (liveness->peers[rank] == NULL) {
        struct peer *made = calloc(1, sizeof *made);
        if (made != NULL)
            made->exit_descriptor = -1;
        liveness->peers[rank] = made;
    }
    return liveness->peers[rank];
}

static void end_exit_watch(struct liveness *liveness, struct peer *peer) {
    int fd = peer->exit_descriptor;
    if (fd < 0)
        return;
    peer->exit_descriptor = -1; /* forgotten first, for the child of a fork */
    epoll_ctl(liveness->epoll, EPOLL_CTL_DEL, fd, NULL);
    close(fd);
}

static void forget_peer(struct liveness *liveness, int rank) {
    struct peer *peer = liveness->peers[rank];
    links_want(liveness->links, rank, false);
    if (peer != NULL) {
        end_exit_watch(liveness, peer);
        peer->inquiry_ns = 0;
    }
}

static void prove(struct liveness *liveness, int rank, const char *reason) {
    forget_peer(liveness, rank);
    links_drop(liveness->links, rank);
    view_evidence(liveness->view, rank, true, ROTA_ERR_PEER, reason, clock_now_ns());
}

/* Whether it matters here that a rank is gone. */
static bool matters(const struct liveness *liveness, int rank) {
    const struct peer *peer = liveness->peers[rank];
    return atomic_load_explicit(&liveness->watched[rank], memory_order_relaxed) != WATCH_NONE ||
           (peer != NULL && peer->inquiry_ns != 0) || view_deadline(liveness->view) != INT64_MAX;
}

static void left(struct liveness *liveness, int rank) {
    struct peer *peer = peer_of(liveness, rank);
    if (peer != NULL)
        peer->left = true;
    if (matters(liveness, rank))
        prove(liveness, rank, LEFT_WORDS);
}

static void watch_peer(struct liveness *liveness, int rank) {
    struct peer *peer = peer_of(liveness, rank);
    if (peer == NULL || ranks_has(view_dead(liveness->view), rank) ||
        !ranks_has(view_members(liveness->view), rank))
        return;
    atomic_store_explicit(&liveness->watched[rank], WATCH_FRESH, memory_order_relaxed);
    if (peer->left) {
        prove(liveness, rank, LEFT_WORDS);
        return;
    }
    if (peer->exit_descriptor < 0 && !peer->cannot_tell) {
        int fd = -1;
        enum exit_watch result =
            exit_watch_open(&liveness->records[liveness->self], &liveness->records[rank], &fd);
        struct epoll_event event = {.events = EPOLLIN,
                                    .data.u64 = (uint64_t)TAG_EXIT << 32 | (uint32_t)rank};
        if (result == EXIT_ENDED) {
            prove(liveness, rank, "exited");
            return;
        }
        if (result == EXIT_WATCHED && epoll_ctl(liveness->epoll, EPOLL_CTL_ADD, fd, &event) == 0)
            peer->exit_descriptor = fd;
        else if (fd >= 0)
            close(fd);
        peer->cannot_tell = peer->exit_descriptor < 0;
    }
    /* Also beside a pidfd: only so it can say that it leaves in good order. */
    links_want(liveness->links, rank, true);
}

/* A data connection broke: whether the peer's end or the connection alone, it must say itself. */
static void inquire(struct liveness *liveness, int rank, const char *reason) {
    watch_peer(liveness, rank);
    struct peer *peer = peer_of(liveness, rank);
    if (peer == NULL || ranks_has(view_dead(liveness->view), rank) || peer->inquiry_ns != 0)
        return;
    net_random(&peer->token, sizeof peer->token);
    snprintf(peer->broken, sizeof peer->broken, "%s", reason);
    peer->is_broken = true;
    peer->inquiry_ns = clock_deadline(INQUIRY_MS);
    if (peer->inquiry_ns < liveness->inquiry_ns)
        liveness->inquiry_ns = peer->inquiry_ns;
    (void)links_send(liveness->links, rank, WIRE_PING, view_epoch(liveness->view), &peer->token,
                     sizeof peer->token);
}

static void suspect(struct liveness *liveness, int rank, enum liveness_evidence evidence,
                    const char *reason) {
    if (!ranks_has(view_members(liveness->view), rank))
        return;
    if (evidence == LIVENESS_BROKEN) {
        inquire(liveness, rank, reason);
        return;
    }
    watch_peer(liveness, rank);
    view_evidence(liveness->view, rank, false, ROTA_ERR_TIMEOUT, reason, clock_now_ns());
}

static void end_inquiries(struct liveness *liveness, int64_t now) {
    if (now < liveness->inquiry_ns)
        return;
    liveness->inquiry_ns = CLOCK_NEVER;
    for (int rank = 0; rank < liveness->n; rank++) {
        struct peer *peer = liveness->peers[rank];
        if (peer == NULL || peer->inquiry_ns == 0)
            continue;
        if (now >= peer->inquiry_ns) {
            char reason[VIEW_REASON];
            peer->inquiry_ns = 0;
            snprintf(reason, sizeof reason, "does not answer after %.130s", peer->broken);
            view_evidence(liveness->view, rank, false, ROTA_ERR_PEER, reason, now);
        } else if (peer->inquiry_ns < liveness->inquiry_ns) {
            liveness->inquiry_ns = peer->inquiry_ns;
        }
    }
}

/* Ends watches that nobody renews. */
static void sweep(struct liveness *liveness, int64_t now) {
    if (now < liveness->sweep_ns)
        return;
    liveness->sweep_ns = CLOCK_NEVER;
    for (int rank = 0; rank < liveness->n; rank++) {
        uint8_t state = atomic_load_explicit(&liveness->watched[rank], memory_order_relaxed);
        uint8_t next = state == WATCH_FRESH ? WATCH_STALE : WATCH_NONE;
        if (state == WATCH_NONE)
            continue;
        /* Fails when a waiter has just renewed it. */
        bool lowered = atomic_compare_exchange_strong_explicit(
            &liveness->watched[rank], &state, next, memory_order_relaxed, memory_order_relaxed);
        if (lowered && next == WATCH_NONE)
            forget_peer(liveness, rank);
        else
            liveness->sweep_ns = now + SWEEP_MS * MS;
    }
}

/* -- events of the machines ---------------------------------------------------------------------
 */

static int list_ranks(struct liveness *liveness, const struct ranks *set) {
    int count = 0;
    RANKS_EACH (set, rank)
        liveness->list[count++] = rank;
    return count;
}

static void view_send(void *context, int to, const struct view_message *message) {
    struct liveness *liveness = context;
    size_t bytes = wire_view_write(message, liveness->payload, WIRE_MAX);
    if (bytes > 0)
        (void)links_send(liveness->links, to, WIRE_VIEW, view_epoch(liveness->view),
                         liveness->payload, bytes);
}

static void clear_broken(struct liveness *liveness) {
    RANKS_EACH (view_members(liveness->view), rank) {
        struct peer *peer = liveness->peers[rank];
        if (peer == NULL || !peer->is_broken || peer->inquiry_ns != 0)
            continue;
        peer->is_broken = false;
        liveness->events.cleared(liveness->context, rank);
    }
}

/* Whether the decision's words say of a rank that it left. They are the same on all members; who
 * heard it itself knows it also where the words had no room for it. */
static bool has_left(const struct liveness *liveness, const char *text, int rank) {
    char who[32];
    snprintf(who, sizeof who, "rank %d (", rank);
    const char *part = strstr(text, who);
    if (part == NULL)
        return liveness->peers[rank] != NULL && liveness->peers[rank]->left;
    const char *end = strstr(part + 1, "; rank "), *words = strstr(part, LEFT_WORDS);
    return words != NULL && (end == NULL || words < end);
}

static void view_decided(void *context, const struct view_value *value) {
    struct liveness *liveness = context;
    struct liveness_verdict verdict = {
        .epoch = view_epoch(liveness->view), .failed = liveness->list, .status = value->status};
    snprintf(verdict.text, sizeof verdict.text, "%s", value->text);
    RANKS_EACH (value->failed, rank) {
        atomic_store_explicit(&liveness->removed[rank], 1, memory_order_relaxed);
        forget_peer(liveness, rank);
    }
    verdict.nfailed = list_ranks(liveness, value->failed);
    for (int i = 0; i < verdict.nfailed; i++)
        liveness->left_list[i] = has_left(liveness, value->text, liveness->list[i]);
    verdict.left = liveness->left_list;
    /* Partner: liveness_epoch; who sees the epoch sees who is removed. */
    atomic_store_explicit(&liveness->epoch, verdict.epoch, memory_order_release);
    liveness->view_changed = true;
    liveness->events.verdict(liveness->context, &verdict);
    clear_broken(liveness);
}

/* A ballot has ended without a peer's removal: it answered. */
static void view_unchanged(void *context) {
    clear_broken(context);
}

static void view_isolated_here(void *context, const char *text, const struct ranks *unreached) {
    struct liveness *liveness = context;
    int count = list_ranks(liveness, unreached);
    liveness->events.isolated(liveness->context, text, liveness->list, count);
}

static void view_name(void *context, int rank, char *text, size_t size) {
    struct liveness *liveness = context;
    const struct bootstrap_record *record = &liveness->records[rank];
    snprintf(text, size, "rank %d (host %.60s, pid %d)", rank, record->host, record->pid);
    for (char *c = text; *c != 0; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
}

static void agreement_send(void *context, int to, const struct agreement_message *message) {
    struct liveness *liveness = context;
    (void)links_send(liveness->links, to, WIRE_AGREEMENT, view_epoch(liveness->view), message,
                     sizeof *message);
}

static void agreement_agreed(void *context, const struct liveness_agreement *agreement) {
    struct liveness *liveness = context;
    liveness->events.agreed(liveness->context, agreement);
}

/* -- events of the links ------------------------------------------------------------------------
 */

static bool link_view(struct liveness *liveness, int from, const struct wire_header *header,
                      const uint8_t *payload) {
    if (!wire_view_read(payload, header->bytes, &liveness->incoming))
        return false;
    view_receive(liveness->view, from, &liveness->incoming.message, clock_now_ns());
    return true;
}

static void link_pong(struct liveness *liveness, int from, const uint8_t *payload) {
    struct peer *peer = liveness->peers[from];
    uint64_t token;
    memcpy(&token, payload, sizeof token);
    if (peer == NULL || peer->inquiry_ns == 0 || token != peer->token)
        return;
    peer->inquiry_ns = 0;
    peer->is_broken = false;
    liveness->events.cleared(liveness->context, from);
}

static bool link_frame(void *context, int from, const struct wire_header *header,
                       const uint8_t *payload) {
    struct liveness *liveness = context;
    struct agreement_message agreement;
    if (ranks_has(view_dead(liveness->view), from))
        return true;
    if (header->type == WIRE_VIEW)
        return link_view(liveness, from, header, payload);
    view_heard(liveness->view, from, header->epoch);
    if (view_isolated(liveness->view) || !ranks_has(view_members(liveness->view), from))
        return true; /* it has just been told */
    switch (header->type) {
    case WIRE_MESSAGE:
        liveness->events.message(liveness->context, from, payload, header->bytes);
        break;
    case WIRE_PING:
        (void)links_send(liveness->links, from, WIRE_PONG, view_epoch(liveness->view), payload,
                         header->bytes);
        break;
    case WIRE_PONG:
        link_pong(liveness, from, payload);
        break;
    case WIRE_LEFT:
        left(liveness, from);
        break;
    case WIRE_AGREEMENT:
        memcpy(&agreement, payload, sizeof agreement);
        agreements_receive(liveness->agreements, from, &agreement, clock_now_ns());
        break;
    default:
        break;
    }
    return true;
}

static bool has_exit_watch(const struct peer *peer) {
    return peer != NULL && peer->exit_descriptor >= 0;
}

static void link_refused(void *context, int rank, enum link_refusal refusal, bool met,
                         int64_t first_ns) {
    struct liveness *liveness = context;
    const struct peer *peer = liveness->peers[rank];
    met |= peer != NULL && peer->inquiry_ns != 0;
    if (!matters(liveness, rank) || ranks_has(view_dead(liveness->view), rank))
        return;
    if (refusal == LINK_ABSENT && (met || clock_passed(first_ns + ABSENT_MS * MS)))
        left(liveness, rank);
    else if (refusal == LINK_REFUSED && met &&
             (!has_exit_watch(peer) || clock_passed(first_ns + EXIT_MS * MS)))
        prove(liveness, rank, "closed its connections and refuses new ones");
}

/* -- the control thread -------------------------------------------------------------------------
 */

static void keep_watching(void *context, int rank) {
    watch_peer(context, rank);
}

static void do_command(struct liveness *liveness, const struct command *command) {
    bool member =
        command->type == COMMAND_AGREE || ranks_has(view_members(liveness->view), command->peer);
    if (view_isolated(liveness->view) || !member)
        return;
    switch (command->type) {
    case COMMAND_WATCH:
        watch_peer(liveness, command->peer);
        break;
    case COMMAND_SEND:
        (void)links_send(liveness->links, command->peer, WIRE_MESSAGE, view_epoch(liveness->view),
                         command->data, command->bytes);
        break;
    case COMMAND_SUSPECT:
        suspect(liveness, command->peer, command->evidence, (const char *)command->data);
        break;
    case COMMAND_AGREE:
        (void)agreements_begin(liveness->agreements, &command->topic, (const int *)command->data,
                               command->peer, &command->ballot, clock_now_ns());
        agreements_each_peer(liveness->agreements, keep_watching, liveness);
        break;
    }
}

/* `closing`: nothing that may cause an event. */
static bool do_commands(struct liveness *liveness, bool closing) {
    struct command *command = commands_take(liveness);
    bool any = command != NULL;
    while (command != NULL) {
        struct command *next = command->next;
        if (!closing || command->type == COMMAND_SEND)
            do_command(liveness, command);
        free(command);
        command = next;
    }
    return any;
}

/* Who waits in liveness_flush learns whether anything is left to send. */
static void note_flushed(struct liveness *liveness) {
    if (!atomic_load_explicit(&liveness->flushing, memory_order_acquire))
        return;
    pthread_mutex_lock(&liveness->lock);
    bool all = liveness->first == NULL;
    pthread_mutex_unlock(&liveness->lock);
    for (int rank = 0; all && rank < liveness->n; rank++)
        all = !links_unsent(liveness->links, rank);
    /* Partner: liveness_flush. */
    atomic_store_explicit(&liveness->flushed, all, memory_order_release);
}

static void set_deadline(struct liveness *liveness) {
    int64_t times[] = {links_deadline(liveness->links), view_deadline(liveness->view),
                       view_isolated(liveness->view) ? CLOCK_NEVER
                                                     : agreements_deadline(liveness->agreements),
                       liveness->sweep_ns, liveness->inquiry_ns};
    int64_t first = CLOCK_NEVER;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        first = times[i] < first ? times[i] : first;
    liveness->watch.deadline_ns = first;
    note_flushed(liveness);
}

/* What is due now. Messages come before deadlines, since a rank that was stopped finds both. */
static void do_due(struct liveness *liveness) {
    for (int round = 0; round < MAX_ROUNDS; round++) {
        bool any = do_commands(liveness, false);
        int64_t now = clock_now_ns();
        end_inquiries(liveness, now);
        view_tick(liveness->view, now);
        if (liveness->view_changed) {
            liveness->view_changed = false;
            agreements_view_changed(liveness->agreements, now);
            agreements_each_peer(liveness->agreements, keep_watching, liveness);
        }
        if (!view_isolated(liveness->view))
            agreements_tick(liveness->agreements, now);
        if (now >= liveness->sweep_ns)
            agreements_each_peer(liveness->agreements, keep_watching, liveness);
        sweep(liveness, now);
        links_tick(liveness->links);
        set_deadline(liveness);
        if (!any && !liveness->view_changed && !clock_passed(liveness->watch.deadline_ns))
            return;
    }
    liveness->watch.deadline_ns = clock_deadline(1); /* the thread has others to serve */
}

static void start_sweeping(struct liveness *liveness) {
    if (liveness->sweep_ns == CLOCK_NEVER)
        liveness->sweep_ns = clock_deadline(SWEEP_MS);
}

static void exited(struct liveness *liveness, int rank) {
    links_ready(liveness->links, rank); /* it may have said that it leaves */
    if (!ranks_has(view_dead(liveness->view), rank))
        prove(liveness, rank, liveness->peers[rank]->left ? LEFT_WORDS : "exited");
}

static void ready(void *context) {
    struct liveness *liveness = context;
    struct epoll_event events[32];
    int n = epoll_wait(liveness->epoll, events, 32, 0);
    start_sweeping(liveness);
    for (int i = 0; i < n; i++) {
        uint32_t tag = (uint32_t)(events[i].data.u64 >> 32);
        int rank = (int)(uint32_t)events[i].data.u64;
        uint64_t count;
        if (tag == TAG_COMMANDS)
            (void)!read(liveness->wake, &count, sizeof count);
        else if (tag == TAG_LINK)
            links_ready(liveness->links, rank);
        else if (has_exit_watch(liveness->peers[rank]))
            exited(liveness, rank);
    }
    do_due(liveness);
}

static enum net_verdict judge(void *context, const struct net_hello *hello, int *descriptors,
                              int *ndescriptors) {
    struct liveness *liveness = context;
    (void)descriptors;
    *ndescriptors = 0;
    if (hello->rank < (uint32_t)liveness->n &&
        ranks_has(view_dead(liveness->view), (int)hello->rank))
        return NET_REFUSED_GIVEN_UP;
    enum net_verdict verdict = links_judge(liveness->links, hello);
    set_deadline(liveness);
    return verdict;
}

static void admitted(void *context, const struct net_hello *hello, int socket,
                     const int *descriptors, int ndescriptors) {
    struct liveness *liveness = context;
    for (int i = 0; i < ndescriptors; i++)
        close(descriptors[i]); /* none are expected */
    links_admit(liveness->links, hello, socket);
    do_due(liveness);
}

/* -- life ---------------------------------------------------------------------------------------
 */

static void liveness_free(struct liveness *liveness) {
    struct command *command = commands_take(liveness);
    while (command != NULL) {
        struct command *next = command->next;
        free(command);
        command = next;
    }
    for (int rank = 0; liveness->peers != NULL && rank < liveness->n; rank++) {
        if (liveness->peers[rank] != NULL)
            end_exit_watch(liveness, liveness->peers[rank]);
        free(liveness->peers[rank]);
    }
    links_destroy(liveness->links);
    agreements_destroy(liveness->agreements);
    view_destroy(liveness->view);
    wire_view_free(&liveness->incoming);
    if (liveness->epoll >= 0)
        close(liveness->epoll);
    if (liveness->wake >= 0)
        close(liveness->wake);
    pthread_mutex_destroy(&liveness->lock);
    free(liveness->peers);
    free(liveness->removed);
    free(liveness->watched);
    free(liveness->list);
    free(liveness->left_list);
    free(liveness->payload);
    free(liveness);
}

static rota_status make_machines(struct liveness *made, const struct settings *settings) {
    struct view_times times = {.collect = COLLECT_MS * MS,
                               .ballot = BALLOT_MS * MS,
                               .takeover = TAKEOVER_MS * MS,
                               .isolation =
                                   settings_integer(settings, SETTING_AGREE_TIMEOUT_MS) * MS};
    struct view_events view_events = {.context = made,
                                      .send = view_send,
                                      .decided = view_decided,
                                      .unchanged = view_unchanged,
                                      .isolated = view_isolated_here,
                                      .name = view_name};
    struct agreement_events agreement_events = {
        .context = made, .send = agreement_send, .agreed = agreement_agreed};
    struct link_events link_events = {
        .context = made, .frame = link_frame, .refused = link_refused};
    size_t n = (size_t)made->n;
    made->peers = calloc(n, sizeof(struct peer *));
    made->removed = calloc(n, 1);
    made->watched = calloc(n, 1);
    made->list = calloc(n, sizeof *made->list);
    made->left_list = calloc(n, sizeof *made->left_list);
    made->payload = malloc(WIRE_MAX);
    made->view = view_create(made->n, made->self, &times, &view_events);
    made->links =
        links_create(made->identity, made->n, made->records, made->epoll, TAG_LINK, &link_events);
    if (made->view != NULL)
        made->agreements = agreements_create(made->n, made->self, made->view, &agreement_events);
    if (made->peers == NULL || made->removed == NULL || made->watched == NULL ||
        made->list == NULL || made->left_list == NULL || made->payload == NULL ||
        made->view == NULL || made->links == NULL || made->agreements == NULL ||
        !wire_view_init(&made->incoming, made->n))
        return error_raise(ROTA_ERR_MEMORY, "no memory for the liveness of %d ranks", made->n);
    return ROTA_OK;
}

static rota_status make_descriptors(struct liveness *made) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = (uint64_t)TAG_COMMANDS << 32};
    made->epoll = epoll_create1(EPOLL_CLOEXEC);
    made->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (made->epoll < 0 || made->wake < 0 ||
        epoll_ctl(made->epoll, EPOLL_CTL_ADD, made->wake, &event) != 0)
        return error_raise_system(errno, "cannot make the descriptors of liveness");
    return ROTA_OK;
}

static rota_status start(struct liveness *made) {
    made->watch = (struct control_watch){
        .descriptor = made->epoll, .deadline_ns = CLOCK_NEVER, .context = made, .ready = ready};
    made->service.key.rank = (uint32_t)made->self;
    made->service.key.kind = CONTROL_PLANE;
    memcpy(made->service.key.job, made->identity->job, sizeof made->service.key.job);
    made->service.identity = *made->identity;
    made->service.context = made;
    made->service.judge = judge;
    made->service.admitted = admitted;
    rota_status status = control_watch_add(&made->watch);
    if (status == ROTA_OK) {
        status = control_service_add(&made->service);
        if (status != ROTA_OK)
            control_watch_remove(&made->watch);
    }
    return status;
}

rota_status liveness_open(const struct net_identity *identity, int nranks,
                          const struct bootstrap_record *records, const struct settings *settings,
                          const struct liveness_events *events, void *context,
                          struct liveness **liveness) {
    struct net_addresses addresses;
    struct liveness *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for liveness");
    made->identity = identity;
    made->n = nranks;
    made->self = identity->rank;
    made->records = records;
    made->events = *events;
    made->context = context;
    made->epoll = made->wake = -1;
    made->end = &made->first;
    made->sweep_ns = made->inquiry_ns = CLOCK_NEVER;
    pthread_mutex_init(&made->lock, NULL);
    rota_status status = make_descriptors(made);
    if (status == ROTA_OK)
        status = make_machines(made, settings);
    if (status == ROTA_OK)
        status = control_acquire(settings, &addresses);
    if (status != ROTA_OK) {
        liveness_free(made);
        return status;
    }
    list_instance(made, true);
    status = start(made);
    if (status != ROTA_OK) {
        list_instance(made, false);
        control_release();
        liveness_free(made);
        return status;
    }
    *liveness = made;
    return ROTA_OK;
}

void liveness_flush(struct liveness *liveness, int64_t most_ns) {
    int64_t until = clock_now_ns() + most_ns;
    if (liveness == NULL || liveness->forked)
        return;
    atomic_store_explicit(&liveness->flushed, false, memory_order_relaxed);
    atomic_store_explicit(&liveness->flushing, true, memory_order_release);
    uint64_t one = 1;
    (void)!write(liveness->wake, &one, sizeof one); /* for a first look */
    /* Partner: note_flushed, on the control thread. */
    while (!atomic_load_explicit(&liveness->flushed, memory_order_acquire) &&
           !clock_passed(until)) {
        const struct timespec pause = {.tv_nsec = 1000000};
        nanosleep(&pause, NULL);
    }
    atomic_store_explicit(&liveness->flushing, false, memory_order_relaxed);
}

void liveness_close(struct liveness *liveness) {
    if (liveness == NULL || liveness->forked)
        return; /* a fork's copy stays as the parent's thread has left it */
    control_service_remove(&liveness->service);
    control_watch_remove(&liveness->watch);
    /* From here on nobody else is in it. */
    list_instance(liveness, false);
    (void)do_commands(liveness, true);
    for (int rank = 0; rank < liveness->n; rank++)
        if (links_open(liveness->links, rank))
            (void)links_send(liveness->links, rank, WIRE_LEFT, view_epoch(liveness->view), NULL, 0);
    liveness_free(liveness);
    control_release();
}
