/* The rendezvous of one job.
 *
 * Design notes. Every rank registers over one connection and keeps it until it is answered, so a
 * rank that dies while it waits is noticed and may come again. The answer is one of three: the
 * table (the first FAN_OUT ranks), MET (the others, to whom the table comes down the tree), or an
 * error, the same for all. What contradicts is not answered at once: for GRACE_MS the ranks that
 * are still to come are awaited, since they shall hear the same. The deadline is that of the rank
 * whose own comes first: without it the job cannot meet. */
#include "bootstrap/rendezvous.h"
#include "base/clock.h"
#include "base/error.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define GRACE_MS 2000
#define LINGER_MS 1000      /* for the last answers after the deadline, or to those who come late */
#define EXTRA_ENTRANTS 64   /* connections beyond one per rank: duplicates, those that came again */
#define FIRST_ENTRANTS 4096 /* bound while the number of ranks is unknown */

enum entrant_state { ENTRANT_READING, ENTRANT_WAITING, ENTRANT_SENDING, ENTRANT_GONE };

struct entrant {
    struct entrant *next;
    enum entrant_state state;
    int socket;
    struct bootstrap_inbox inbox;
    struct bootstrap_registration registration;
    char *text;
    int64_t deadline_ns;
    const uint8_t *out; /* what is sent: one of the rendezvous' messages */
    size_t out_bytes, sent;
};

enum phase { PHASE_COLLECTING, PHASE_FAILED, PHASE_MET };

struct rendezvous {
    enum phase phase;
    int epoll;
    struct entrant *entrants;
    int nentrants, arrivals; /* arrivals: registered, contradicting ones included */
    int nranks;              /* 0: nobody has registered */
    int joined;
    struct entrant **by_rank;
    bool contradiction;
    bool left;                        /* a rank gave up: who comes late is told, too */
    struct bootstrap_failure failure; /* of the contradiction */
    int64_t grace_ns;
    int64_t linger_ns; /* answers end by then */
    uint8_t *answer;   /* the table or the error, with header */
    size_t answer_bytes;
    struct bootstrap_header met;
};

rota_status rendezvous_create(struct rendezvous **rendezvous) {
    struct rendezvous *made = calloc(1, sizeof *made);
    if (made == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a rendezvous");
    made->epoll = epoll_create1(EPOLL_CLOEXEC);
    made->grace_ns = made->linger_ns = CLOCK_NEVER;
    made->met = (struct bootstrap_header){.magic = NET_MAGIC, .type = BOOTSTRAP_MET};
    if (made->epoll < 0) {
        rota_status status = error_raise_system(errno, "cannot make an epoll set");
        free(made);
        return status;
    }
    *rendezvous = made;
    return ROTA_OK;
}

static void entrant_close(const struct rendezvous *rendezvous, struct entrant *entrant) {
    if (entrant->socket >= 0) {
        /* Closing alone is not enough when a forked child holds the socket too. */
        epoll_ctl(rendezvous->epoll, EPOLL_CTL_DEL, entrant->socket, NULL);
        shutdown(entrant->socket, SHUT_RDWR);
        close(entrant->socket);
    }
    entrant->socket = -1;
    entrant->state = ENTRANT_GONE;
    bootstrap_inbox_clear(&entrant->inbox);
    free(entrant->text);
    entrant->text = NULL;
}

void rendezvous_destroy(struct rendezvous *rendezvous) {
    if (rendezvous == NULL)
        return;
    for (struct entrant *entrant = rendezvous->entrants, *next; entrant != NULL; entrant = next) {
        next = entrant->next;
        entrant_close(rendezvous, entrant);
        free(entrant);
    }
    close(rendezvous->epoll);
    free(rendezvous->by_rank);
    free(rendezvous->answer);
    free(rendezvous);
}

int rendezvous_descriptor(const struct rendezvous *rendezvous) {
    return rendezvous->epoll;
}

void rendezvous_add(struct rendezvous *rendezvous, int socket) {
    int most = (rendezvous->nranks > 0 ? rendezvous->nranks : FIRST_ENTRANTS) + EXTRA_ENTRANTS;
    struct entrant *entrant = rendezvous->nentrants < most ? calloc(1, sizeof *entrant) : NULL;
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = entrant};
    if (entrant == NULL || epoll_ctl(rendezvous->epoll, EPOLL_CTL_ADD, socket, &event) != 0) {
        close(socket); /* the rank tries again */
        free(entrant);
        return;
    }
    entrant->socket = socket;
    entrant->deadline_ns = CLOCK_NEVER;
    entrant->next = rendezvous->entrants;
    rendezvous->entrants = entrant;
    rendezvous->nentrants++;
}

/* -- who is there ------------------------------------------------------------------------------
 */

static bool is_seated(const struct rendezvous *rendezvous, const struct entrant *entrant) {
    uint32_t rank = entrant->registration.record.rank;
    return rank < (uint32_t)rendezvous->nranks && rendezvous->by_rank[rank] == entrant;
}

static struct entrant *any_seated(const struct rendezvous *rendezvous) {
    for (struct entrant *entrant = rendezvous->entrants; entrant != NULL; entrant = entrant->next)
        if (entrant->state == ENTRANT_WAITING && is_seated(rendezvous, entrant))
            return entrant;
    return NULL;
}

/* A rank whose connection ended is missing again, and may come again. */
static void entrant_left(struct rendezvous *rendezvous, struct entrant *entrant) {
    if (entrant->state == ENTRANT_WAITING) {
        rendezvous->arrivals--;
        if (is_seated(rendezvous, entrant)) {
            rendezvous->by_rank[entrant->registration.record.rank] = NULL;
            rendezvous->joined--;
        }
    }
    entrant_close(rendezvous, entrant);
    if (rendezvous->joined == 0 && rendezvous->phase == PHASE_COLLECTING) {
        free(rendezvous->by_rank);
        rendezvous->by_rank = NULL;
        rendezvous->nranks = 0;
        rendezvous->contradiction = rendezvous->contradiction && rendezvous->arrivals > 0;
    }
}

static bool has_hung_up(const struct entrant *entrant) {
    char byte;
    ssize_t got = recv(entrant->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

static int count_descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    while (folder != NULL && readdir(folder) != NULL)
        count++;
    if (folder != NULL)
        closedir(folder);
    return count;
}

/* Each rank keeps its connection until it is answered; the limit belongs to the user's process and
 * is not changed, but it is better named at once than met by silence. */
static rota_status check_descriptors(const struct rendezvous *rendezvous, uint32_t nranks) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        nranks < limit.rlim_cur / 2)
        return ROTA_OK;
    int others = count_descriptors() - rendezvous->nentrants;
    if ((rlim_t)others + nranks <= limit.rlim_cur)
        return ROTA_OK;
    rota_status status = error_raise(ROTA_ERR_SYSTEM,
                                     "%u ranks need as many connections to the process where they "
                                     "meet, but that may open %llu descriptors only, with %d used "
                                     "otherwise: raise its limit (ulimit -n)",
                                     nranks, (unsigned long long)limit.rlim_cur, others);
    error_record()->system_error = EMFILE;
    return status;
}

/* Gives the entrant its seat, or raises what speaks against it. */
static rota_status seat(struct rendezvous *rendezvous, struct entrant *entrant) {
    const struct bootstrap_record *record = &entrant->registration.record;
    if (rendezvous->nranks == 0) {
        rota_status status = check_descriptors(rendezvous, record->nranks);
        if (status != ROTA_OK)
            return status;
        rendezvous->by_rank = calloc(record->nranks, sizeof *rendezvous->by_rank);
        if (rendezvous->by_rank == NULL)
            return error_raise(ROTA_ERR_MEMORY, "no memory for a table of %u ranks",
                               record->nranks);
        rendezvous->nranks = (int)record->nranks;
    }
    struct entrant *other = any_seated(rendezvous);
    if (other != NULL) {
        rota_status status =
            bootstrap_records_fit(&other->registration.record, other->text, record, entrant->text);
        if (status != ROTA_OK)
            return status;
    }
    struct entrant *before = rendezvous->by_rank[record->rank];
    if (before != NULL && !has_hung_up(before))
        return bootstrap_duplicate_raise(&before->registration.record, record);
    rendezvous->by_rank[record->rank] = entrant;
    if (before != NULL) {
        rendezvous->arrivals--;
        entrant_close(rendezvous, before);
    } else {
        rendezvous->joined++;
    }
    return ROTA_OK;
}

static void begin_answer(struct rendezvous *rendezvous, struct entrant *entrant) {
    entrant->state = ENTRANT_SENDING;
    entrant->out = rendezvous->answer;
    entrant->out_bytes = rendezvous->answer_bytes;
    if (rendezvous->phase == PHASE_MET && entrant->registration.record.rank >= BOOTSTRAP_FAN_OUT) {
        entrant->out = (const uint8_t *)&rendezvous->met;
        entrant->out_bytes = sizeof rendezvous->met;
    }
    struct epoll_event event = {.events = EPOLLOUT, .data.ptr = entrant};
    if (epoll_ctl(rendezvous->epoll, EPOLL_CTL_MOD, entrant->socket, &event) != 0)
        entrant_close(rendezvous, entrant);
}

static void entrant_register(struct rendezvous *rendezvous, struct entrant *entrant) {
    struct bootstrap_registration *registration = &entrant->registration;
    const struct bootstrap_inbox *inbox = &entrant->inbox;
    if (inbox->header.type != BOOTSTRAP_REGISTER || inbox->header.bytes < sizeof *registration) {
        entrant_close(rendezvous, entrant);
        return;
    }
    memcpy(registration, inbox->body, sizeof *registration);
    if (!bootstrap_record_valid(&registration->record) ||
        registration->text_bytes != inbox->header.bytes - sizeof *registration) {
        entrant_close(rendezvous, entrant);
        return;
    }
    entrant->text = strdup((const char *)inbox->body + sizeof *registration);
    bootstrap_inbox_clear(&entrant->inbox);
    if (rendezvous->phase != PHASE_COLLECTING) {
        begin_answer(rendezvous, entrant);
        return;
    }
    uint64_t left_ms = registration->left_ms < INT64_MAX ? registration->left_ms : INT64_MAX;
    entrant->deadline_ns = clock_deadline((int64_t)left_ms);
    rota_status status = seat(rendezvous, entrant);
    entrant->state = ENTRANT_WAITING;
    rendezvous->arrivals++;
    if (status != ROTA_OK && !rendezvous->contradiction) {
        rendezvous->contradiction = true;
        rendezvous->grace_ns = clock_deadline(GRACE_MS);
        bootstrap_failure_fill(&rendezvous->failure);
    }
}

/* -- answers -----------------------------------------------------------------------------------
 */

static void answer_all(struct rendezvous *rendezvous) {
    for (struct entrant *entrant = rendezvous->entrants; entrant != NULL; entrant = entrant->next)
        if (entrant->state == ENTRANT_WAITING)
            begin_answer(rendezvous, entrant);
}

static bool answer_begin(struct rendezvous *rendezvous, enum bootstrap_message_type type,
                         size_t bytes) {
    struct bootstrap_header header = {.magic = NET_MAGIC, .type = (uint16_t)type, .bytes = bytes};
    rendezvous->answer = malloc(sizeof header + bytes);
    rendezvous->answer_bytes = rendezvous->answer != NULL ? sizeof header + bytes : 0;
    if (rendezvous->answer != NULL)
        memcpy(rendezvous->answer, &header, sizeof header);
    return rendezvous->answer != NULL;
}

static void fail(struct rendezvous *rendezvous, const struct bootstrap_failure *failure) {
    rendezvous->phase = PHASE_FAILED;
    rendezvous->linger_ns = clock_deadline(LINGER_MS);
    /* Without memory for the message the connections just close, and the ranks say that. */
    if (answer_begin(rendezvous, BOOTSTRAP_ERROR, sizeof *failure))
        memcpy(rendezvous->answer + sizeof(struct bootstrap_header), failure, sizeof *failure);
    answer_all(rendezvous);
}

/* "3", "3, 5-9 and 12 more" */
static void missing_text(const struct rendezvous *rendezvous, char *text, size_t size) {
    size_t used = 0;
    int nranks = rendezvous->nranks, more = 0;
    text[0] = 0;
    for (int rank = 0; rank < nranks; rank++) {
        int first = rank;
        while (rank < nranks && rendezvous->by_rank[rank] == NULL)
            rank++;
        if (rank == first)
            continue;
        if (used + 30 > size) {
            more += rank - first;
            continue;
        }
        const char *comma = used > 0 ? ", " : "";
        int wrote = rank - first == 1
                        ? snprintf(text + used, size - used, "%s%d", comma, first)
                        : snprintf(text + used, size - used, "%s%d-%d", comma, first, rank - 1);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    if (more > 0)
        snprintf(text + used, size - used, " and %d more", more);
}

static void fail_late(struct rendezvous *rendezvous, const struct entrant *latest) {
    struct bootstrap_failure failure;
    char missing[160];
    missing_text(rendezvous, missing, sizeof missing);
    bool many = rendezvous->nranks - rendezvous->joined > 1;
    unsigned long long waited_ms = latest->registration.timeout_ms;
    (void)error_raise(ROTA_ERR_TIMEOUT, "rank%s %s of %d did not join within %llu ms",
                      many ? "s" : "", missing, rendezvous->nranks, waited_ms);
    for (int rank = 0; rank < rendezvous->nranks; rank++)
        if (rendezvous->by_rank[rank] == NULL)
            error_add_culprit(error_record(), rank);
    error_record()->waited_ms = waited_ms;
    bootstrap_failure_fill(&failure);
    fail(rendezvous, &failure);
}

static const struct entrant *first_to_end(const struct rendezvous *rendezvous) {
    const struct entrant *first = NULL;
    for (struct entrant *entrant = rendezvous->entrants; entrant != NULL; entrant = entrant->next)
        if (entrant->state == ENTRANT_WAITING &&
            (first == NULL || entrant->deadline_ns < first->deadline_ns))
            first = entrant;
    return first;
}

static void meet(struct rendezvous *rendezvous) {
    size_t record_bytes = sizeof(struct bootstrap_record);
    const struct entrant *first = first_to_end(rendezvous);
    if (!answer_begin(rendezvous, BOOTSTRAP_TABLE, (size_t)rendezvous->nranks * record_bytes)) {
        struct bootstrap_failure failure;
        (void)error_raise(ROTA_ERR_MEMORY, "the rendezvous has no memory for the table of ranks");
        bootstrap_failure_fill(&failure);
        fail(rendezvous, &failure);
        return;
    }
    uint8_t *body = rendezvous->answer + sizeof(struct bootstrap_header);
    for (int rank = 0; rank < rendezvous->nranks; rank++)
        memcpy(body + (size_t)rank * record_bytes, &rendezvous->by_rank[rank]->registration.record,
               record_bytes);
    rendezvous->phase = PHASE_MET;
    rendezvous->linger_ns = first->deadline_ns < CLOCK_NEVER - LINGER_MS * 1000000ll
                                ? first->deadline_ns + LINGER_MS * 1000000ll
                                : CLOCK_NEVER;
    answer_all(rendezvous);
}

/* How many are to be heard before a contradiction is answered. */
static int expected(const struct rendezvous *rendezvous) {
    int least = BOOTSTRAP_MAX_RANKS;
    for (struct entrant *entrant = rendezvous->entrants; entrant != NULL; entrant = entrant->next)
        if (entrant->state == ENTRANT_WAITING && (int)entrant->registration.record.nranks < least)
            least = (int)entrant->registration.record.nranks;
    return least;
}

static void decide(struct rendezvous *rendezvous) {
    const struct entrant *first = first_to_end(rendezvous);
    if (rendezvous->phase != PHASE_COLLECTING || first == NULL)
        return;
    bool late = clock_passed(first->deadline_ns);
    if (rendezvous->contradiction) {
        if (late || clock_passed(rendezvous->grace_ns) ||
            rendezvous->arrivals >= expected(rendezvous))
            fail(rendezvous, &rendezvous->failure);
    } else if (rendezvous->joined == rendezvous->nranks) {
        meet(rendezvous);
    } else if (late) {
        fail_late(rendezvous, first);
    }
}

/* A rank that waits has nothing to say but that it was cancelled, which all are told; else it hung
 * up, and may come again. */
static void entrant_spoke(struct rendezvous *rendezvous, struct entrant *entrant) {
    const struct bootstrap_record *record = &entrant->registration.record;
    struct bootstrap_failure failure;
    bool whole = false;
    rota_status status = bootstrap_inbox_step(&entrant->inbox, entrant->socket, 0, &whole);
    if (status == ROTA_OK && !whole)
        return;
    bool leaves = status == ROTA_OK && entrant->inbox.header.type == BOOTSTRAP_LEAVE &&
                  is_seated(rendezvous, entrant);
    entrant_left(rendezvous, entrant);
    if (!leaves || rendezvous->phase != PHASE_COLLECTING)
        return;
    (void)error_raise(ROTA_ERR_PEER, "rank %u (host %.60s, pid %d) gave up joining", record->rank,
                      record->host, record->pid);
    error_record()->peer = (int)record->rank;
    error_add_culprit(error_record(), (int)record->rank);
    bootstrap_failure_fill(&failure);
    fail(rendezvous, &failure);
    rendezvous->left = true;
}

/* -- stepping ----------------------------------------------------------------------------------
 */

static void entrant_send(const struct rendezvous *rendezvous, struct entrant *entrant) {
    while (entrant->sent < entrant->out_bytes) {
        ssize_t sent = send(entrant->socket, entrant->out + entrant->sent,
                            entrant->out_bytes - entrant->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent >= 0)
            entrant->sent += (size_t)sent;
        else if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        else if (errno != EINTR)
            break;
    }
    entrant_close(rendezvous, entrant);
}

static void entrant_step(struct rendezvous *rendezvous, struct entrant *entrant) {
    bool complete = false;
    switch (entrant->state) {
    case ENTRANT_READING:
        if (bootstrap_inbox_step(&entrant->inbox, entrant->socket,
                                 sizeof(struct bootstrap_registration) + BOOTSTRAP_TEXT,
                                 &complete) != ROTA_OK)
            entrant_close(rendezvous, entrant);
        else if (complete)
            entrant_register(rendezvous, entrant);
        break;
    case ENTRANT_WAITING:
        entrant_spoke(rendezvous, entrant);
        break;
    case ENTRANT_SENDING:
        entrant_send(rendezvous, entrant);
        break;
    case ENTRANT_GONE:
        break;
    }
}

static void forget_gone(struct rendezvous *rendezvous) {
    struct entrant **place = &rendezvous->entrants;
    while (*place != NULL) {
        struct entrant *entrant = *place;
        if (entrant->state != ENTRANT_GONE) {
            place = &entrant->next;
            continue;
        }
        *place = entrant->next;
        rendezvous->nentrants--;
        free(entrant);
    }
}

void rendezvous_step(struct rendezvous *rendezvous) {
    struct epoll_event events[64];
    int n;
    do {
        n = epoll_wait(rendezvous->epoll, events, 64, 0);
        for (int i = 0; i < n; i++)
            entrant_step(rendezvous, events[i].data.ptr);
        decide(rendezvous);
        forget_gone(rendezvous);
    } while (n == 64);
}

int64_t rendezvous_deadline(const struct rendezvous *rendezvous) {
    if (rendezvous->phase != PHASE_COLLECTING)
        return rendezvous->linger_ns;
    const struct entrant *first = first_to_end(rendezvous);
    int64_t deadline = first != NULL ? first->deadline_ns : CLOCK_NEVER;
    return rendezvous->contradiction && rendezvous->grace_ns < deadline ? rendezvous->grace_ns
                                                                        : deadline;
}

bool rendezvous_collecting(const struct rendezvous *rendezvous) {
    return rendezvous->phase == PHASE_COLLECTING;
}

bool rendezvous_ended(const struct rendezvous *rendezvous, bool *met) {
    *met = rendezvous->phase == PHASE_MET;
    if (rendezvous->phase == PHASE_COLLECTING)
        return false;
    bool open = rendezvous->left; /* somebody is still to be answered */
    for (struct entrant *entrant = rendezvous->entrants; entrant != NULL; entrant = entrant->next)
        open = open || entrant->state == ENTRANT_SENDING ||
               (entrant->state == ENTRANT_READING && rendezvous->phase == PHASE_FAILED);
    return !open || clock_passed(rendezvous->linger_ns);
}
