/* Questions and answers. */
#include "engine/inquiry_state.h"

#include "base/clock.h"
#include "base/error.h"
#include <stdlib.h>
#include <string.h>

/* When a wait asks again, since its begin; and later every last of them. */
static const int64_t ask_again_ns[] = {INQUIRY_FIRST_NS, 100000000, 1000000000, 10000000000};
#define ASK_STEPS ((int)(sizeof(ask_again_ns) / sizeof(ask_again_ns[0])))
/* How long who is blocked by whom is followed from rank to rank. */
#define CHASE_NS 500000000

rota_status inquiry_create(const struct inquiry_host *host, struct inquiry **out) {
    struct inquiry *inquiry = calloc(1, sizeof(*inquiry));
    if (inquiry == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a job");
    pthread_mutex_init(&inquiry->lock, NULL);
    inquiry->host = *host;
    LIST_INIT(&inquiry->comms);
    *out = inquiry;
    return ROTA_OK;
}

void inquiry_destroy(struct inquiry *inquiry) {
    if (inquiry == NULL)
        return;
    for (int i = 0; i < INQUIRY_GRAVES; i++)
        free(inquiry->graves[i].notice);
    for (int i = 0; i < INQUIRY_EARLY; i++)
        free(inquiry->early[i]);
    free(inquiry->blocked);
    pthread_mutex_destroy(&inquiry->lock);
    free(inquiry);
}

/* -- communicators ------------------------------------------------------------------------------
 */

rota_status inquiry_comm_create(struct inquiry *inquiry, uint32_t id, uint32_t generation,
                                const int *members, int nmembers, int self, const char *name,
                                bool compares, _Atomic bool *asked, struct inquiry_comm **out) {
    struct inquiry_comm *comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator");
    comm->inquiry = inquiry;
    comm->comm = id;
    comm->generation = generation;
    comm->members = members;
    comm->nmembers = nmembers;
    comm->self = self;
    comm->name = name;
    comm->compares = compares;
    comm->asked = asked;
    *out = comm;
    pthread_mutex_lock(&inquiry->lock);
    LIST_INSERT_HEAD(&inquiry->comms, comm, entry);
    for (int i = 0; i < INQUIRY_EARLY; i++) {
        struct inquiry_notice *notice = inquiry->early[i];
        if (notice == NULL || notice->head.comm != id || notice->head.generation != generation)
            continue;
        inquiry->early[i] = NULL;
        if (notice->origin >= 0 && notice->origin < nmembers)
            inquiry_notice_read(inquiry, members[notice->origin], notice);
        free(notice);
    }
    pthread_mutex_unlock(&inquiry->lock);
    return ROTA_OK;
}

void inquiry_comm_destroy(struct inquiry_comm *comm, uint64_t last) {
    if (comm == NULL)
        return;
    struct inquiry *inquiry = comm->inquiry;
    pthread_mutex_lock(&inquiry->lock);
    LIST_REMOVE(comm, entry);
    struct inquiry_grave *grave = &inquiry->graves[inquiry->next_grave++ % INQUIRY_GRAVES];
    free(grave->notice);
    *grave = (struct inquiry_grave){.used = true,
                                    .comm = comm->comm,
                                    .generation = comm->generation,
                                    .last = last,
                                    .notice = comm->notice};
    pthread_mutex_unlock(&inquiry->lock);
    free(comm->known);
    free(comm->kept);
    free(comm);
}

static struct inquiry_comm *find_comm(struct inquiry *inquiry, uint32_t id, uint32_t generation) {
    struct inquiry_comm *comm;
    LIST_FOREACH(comm, &inquiry->comms, entry)
    if (comm->comm == id && comm->generation == generation)
        return comm;
    return NULL;
}

bool inquiry_know(struct inquiry_comm *comm) {
    if (comm->known == NULL)
        comm->known = calloc((size_t)comm->nmembers, sizeof(*comm->known));
    return comm->known != NULL;
}

int inquiry_member_of(const struct inquiry_comm *comm, int job_rank) {
    for (int i = 0; i < comm->nmembers; i++)
        if (comm->members[i] == job_rank)
            return i;
    return -1;
}

/* -- asking -------------------------------------------------------------------------------------
 */

static void send_question(struct inquiry *inquiry, int peer, uint32_t comm, uint32_t generation,
                          uint64_t sequence) {
    struct inquiry_question question = {.head = {.magic = INQUIRY_MAGIC,
                                                 .type = INQUIRY_QUESTION,
                                                 .comm = comm,
                                                 .generation = generation},
                                        .sequence = sequence};
    inquiry->host.watch(inquiry->host.context, peer);
    inquiry->host.send(inquiry->host.context, peer, &question, sizeof(question));
}

void inquiry_ask(struct inquiry_comm *comm, int member, uint64_t sequence, int64_t now_ns) {
    if (member < 0 || member >= comm->nmembers || member == comm->self)
        return;
    comm->known[member].asked = sequence;
    comm->known[member].asked_ns = now_ns;
    send_question(comm->inquiry, comm->members[member], comm->comm, comm->generation, sequence);
}

int64_t inquiry_wait(struct inquiry_comm *comm, struct inquiry_turn *turn,
                     const struct call_summary *mine, const int *awaited, int nawaited,
                     int64_t since_ns, int64_t now_ns) {
    if (now_ns - since_ns < INQUIRY_FIRST_NS)
        return since_ns + INQUIRY_FIRST_NS;
    struct inquiry *inquiry = comm->inquiry;
    pthread_mutex_lock(&inquiry->lock);
    bool all = now_ns >= turn->next_ns;
    if (inquiry_know(comm)) {
        for (int i = 0; i < nawaited; i++) {
            const struct inquiry_member *member = &comm->known[awaited[i]];
            /* Who is waited for only now is asked at once. One answer serves all messages that are
             * waited for: many of them that come slowly must not be a flood of questions. */
            if (mine->sequence != 0 ? all || member->asked != mine->sequence
                                    : all && now_ns - member->asked_ns >= INQUIRY_FIRST_NS)
                inquiry_ask(comm, awaited[i], mine->sequence, now_ns);
        }
        inquiry_census_look(comm, now_ns);
    }
    while (turn->next_ns <= now_ns) {
        turn->step++;
        turn->next_ns =
            turn->step < ASK_STEPS
                ? since_ns + ask_again_ns[turn->step]
                : (turn->next_ns > since_ns ? turn->next_ns : now_ns) + ask_again_ns[ASK_STEPS - 1];
    }
    int64_t next = turn->next_ns;
    if (comm->counting && comm->census_ns < next)
        next = comm->census_ns;
    pthread_mutex_unlock(&inquiry->lock);
    return next;
}

void inquiry_last(struct inquiry_comm *comm, const struct call_summary *mine, const int *awaited,
                  int nawaited, int64_t now_ns) {
    struct inquiry *inquiry = comm->inquiry;
    pthread_mutex_lock(&inquiry->lock);
    if (inquiry_know(comm)) {
        comm->last_ns = now_ns;
        inquiry->chase_until_ns = now_ns + CHASE_NS;
        if (mine->sequence != 0 && comm->nmembers <= INQUIRY_ALL_RANKS)
            for (int i = 0; i < comm->nmembers; i++)
                inquiry_ask(comm, i, mine->sequence, now_ns);
        else
            for (int i = 0; i < nawaited; i++)
                inquiry_ask(comm, awaited[i], mine->sequence, now_ns);
    }
    pthread_mutex_unlock(&inquiry->lock);
}

/* -- answering ----------------------------------------------------------------------------------
 */

struct call_summary inquiry_summarize(const struct record_call *call) {
    return (struct call_summary){.sequence =
                                     atomic_load_explicit(&call->sequence, memory_order_relaxed),
                                 .fingerprint = call->fingerprint,
                                 .count = call->count,
                                 .dtype = call->dtype,
                                 .root = call->root,
                                 .algorithm = call->algorithm,
                                 .kind = call->kind,
                                 .op = call->op,
                                 .mode = call->mode,
                                 .flags = call->flags};
}

/* What this rank is blocked in, for an answer. */
static void tell_running(struct inquiry *inquiry, struct inquiry_answer *answer) {
    struct record_call call;
    struct record_page head;
    answer->running.kind = INQUIRY_NO_KIND;
    answer->running_for = -1;
    if (!inquiry->host.running(inquiry->host.context, &call, &head, &answer->running_ms))
        return;
    answer->running = inquiry_summarize(&call);
    answer->running_comm = head.comm;
    answer->running_generation = head.generation;
    memcpy(answer->running_name, head.name, sizeof(answer->running_name));
    answer->running_name[sizeof(answer->running_name) - 1] = '\0';
    const struct inquiry_comm *comm = find_comm(inquiry, head.comm, head.generation);
    bool collective = call.kind != ROTA_KIND_SEND && call.kind != ROTA_KIND_RECV;
    int member =
        collective ? atomic_load_explicit(&call.waiting_for, memory_order_relaxed) : call.root;
    if (comm != NULL && member >= 0 && member < comm->nmembers)
        answer->running_for = comm->members[member];
}

static void send_answer(struct inquiry_comm *comm, int peer, uint64_t sequence) {
    struct inquiry *inquiry = comm->inquiry;
    struct inquiry_answer answer = {.head = {.magic = INQUIRY_MAGIC,
                                             .type = INQUIRY_ANSWER,
                                             .comm = comm->comm,
                                             .generation = comm->generation},
                                    .sequence = sequence};
    struct record_call call;
    bool last = inquiry->host.find(inquiry->host.context, comm->comm, comm->generation, 0, &call);
    if (last)
        answer.call = inquiry_summarize(&call);
    bool passed = inquiry->host.blind || (last && answer.call.sequence >= sequence);
    answer.state = passed ? INQUIRY_PASSED : INQUIRY_NOT_CALLED;
    if (sequence != 0 && answer.state == INQUIRY_PASSED &&
        inquiry->host.find(inquiry->host.context, comm->comm, comm->generation, sequence, &call)) {
        answer.call = inquiry_summarize(&call);
        answer.state = INQUIRY_CALLED;
    }
    tell_running(inquiry, &answer);
    inquiry->host.send(inquiry->host.context, peer, &answer, sizeof(answer));
}

static bool has_called(const struct inquiry_comm *comm, uint64_t sequence) {
    struct record_call call;
    const struct inquiry_host *host = &comm->inquiry->host;
    if (host->blind)
        return true;
    return host->find(host->context, comm->comm, comm->generation, 0, &call) &&
           atomic_load_explicit(&call.sequence, memory_order_relaxed) >= sequence;
}

/* Keeps a question about a call that has not begun; one per asker. */
static void keep(struct inquiry_comm *comm, int from, uint64_t sequence) {
    int i = 0;
    while (i < comm->nkept && comm->kept[i].from != from)
        i++;
    if (i == comm->kept_capacity) {
        int capacity = comm->kept_capacity > 0 ? 2 * comm->kept_capacity : 8;
        struct inquiry_kept *kept = realloc(comm->kept, (size_t)capacity * sizeof(*kept));
        if (kept == NULL)
            return; /* the asker asks again */
        comm->kept = kept;
        comm->kept_capacity = capacity;
    }
    comm->kept[i] = (struct inquiry_kept){.from = from, .sequence = sequence};
    comm->nkept += i == comm->nkept;
    /* The caller records its call and looks at `asked`; here `asked` is raised and the record is
     * looked at again. The fence stands between the two on both sides, so one of both sees. */
    atomic_store_explicit(comm->asked, true, memory_order_relaxed);
    comm->inquiry->host.fence(comm->inquiry->host.context);
}

/* Answers the kept questions whose call has begun. */
static void answer_kept(struct inquiry_comm *comm) {
    int left = 0;
    for (int i = 0; i < comm->nkept; i++) {
        if (has_called(comm, comm->kept[i].sequence))
            send_answer(comm, comm->kept[i].from, comm->kept[i].sequence);
        else
            comm->kept[left++] = comm->kept[i];
    }
    comm->nkept = left;
    if (left == 0)
        atomic_store_explicit(comm->asked, false, memory_order_relaxed);
}

void inquiry_started(struct inquiry_comm *comm) {
    pthread_mutex_lock(&comm->inquiry->lock);
    answer_kept(comm);
    pthread_mutex_unlock(&comm->inquiry->lock);
}

/* About a communicator that is not there. */
static void answer_absent(struct inquiry *inquiry, int from,
                          const struct inquiry_question *question) {
    struct inquiry_answer answer = {
        .head = question->head, .sequence = question->sequence, .state = INQUIRY_UNKNOWN};
    answer.head.type = INQUIRY_ANSWER;
    for (int i = 0; i < INQUIRY_GRAVES; i++) {
        const struct inquiry_grave *grave = &inquiry->graves[i];
        if (!grave->used || grave->comm != question->head.comm ||
            grave->generation != question->head.generation)
            continue;
        if (grave->notice != NULL) {
            inquiry->host.send(inquiry->host.context, from, grave->notice, sizeof(*grave->notice));
            return;
        }
        answer.state = INQUIRY_DESTROYED;
        answer.call.sequence = grave->last;
    }
    tell_running(inquiry, &answer);
    inquiry->host.send(inquiry->host.context, from, &answer, sizeof(answer));
}

static void read_question(struct inquiry *inquiry, int from,
                          const struct inquiry_question *question) {
    struct inquiry_comm *comm = find_comm(inquiry, question->head.comm, question->head.generation);
    if (comm == NULL) {
        answer_absent(inquiry, from, question);
        return;
    }
    if (comm->notice != NULL) {
        inquiry->host.send(inquiry->host.context, from, comm->notice, sizeof(*comm->notice));
        return;
    }
    send_answer(comm, from, question->sequence);
    if (question->sequence != 0 && !has_called(comm, question->sequence)) {
        keep(comm, from, question->sequence);
        answer_kept(comm);
    }
}

/* -- hearing ------------------------------------------------------------------------------------
 */

/* A member is gone from the communicator before a call that waits for it. */
static void found_destroyed(struct inquiry_comm *comm, int member, uint64_t sequence) {
    struct inquiry_finding finding = {.comm = comm->comm, .generation = comm->generation};
    rota_error *record = &finding.record;
    *record = (rota_error)ROTA_ERROR_INIT;
    record->status = ROTA_ERR_PEER;
    record->peer = member;
    record->kind = -1;
    record->sequence = sequence;
    error_add_culprit(record, member);
    char who[160];
    inquiry_rank_text(comm->inquiry, comm, member, who, sizeof(who));
    call_text_add(record->message, sizeof(record->message), 0,
                  "%s has destroyed the communicator and takes no part in call #%llu", who,
                  (unsigned long long)sequence);
    comm->inquiry->host.found(comm->inquiry->host.context, &finding);
}

/* Who is blocked leads to whom it waits for, as long as a deadline is near. */
static void note_blocked(struct inquiry *inquiry, int from, const struct inquiry_answer *answer,
                         int64_t now_ns) {
    if (inquiry->blocked == NULL)
        inquiry->blocked = calloc((size_t)inquiry->host.nranks, sizeof(*inquiry->blocked));
    if (inquiry->blocked == NULL)
        return;
    struct inquiry_blocked *blocked = &inquiry->blocked[from];
    bool runs = answer->running.kind != INQUIRY_NO_KIND && call_summary_valid(&answer->running);
    blocked->answered_ns = now_ns;
    blocked->waits_for = -1;
    blocked->running = answer->running;
    if (!runs) {
        blocked->running.kind = INQUIRY_NO_KIND;
        return;
    }
    blocked->ms = answer->running_ms;
    blocked->comm = answer->running_comm;
    blocked->generation = answer->running_generation;
    memcpy(blocked->name, answer->running_name, sizeof(blocked->name));
    blocked->name[sizeof(blocked->name) - 1] = '\0';
    int next = answer->running_for;
    if (next < 0 || next >= inquiry->host.nranks)
        return;
    blocked->waits_for = next;
    if (next == inquiry->host.rank || now_ns >= inquiry->chase_until_ns ||
        now_ns - inquiry->blocked[next].asked_ns < CHASE_NS / 10)
        return;
    inquiry->blocked[next].asked_ns = now_ns;
    send_question(inquiry, next, blocked->comm, blocked->generation, 0);
}

static void read_answer(struct inquiry *inquiry, int from, const struct inquiry_answer *answer) {
    int64_t now = clock_now_ns();
    bool has_call = answer->call.sequence != 0 && answer->state != INQUIRY_DESTROYED;
    if (answer->state <= INQUIRY_UNASKED || answer->state > INQUIRY_NOT_CALLED ||
        (has_call && !call_summary_valid(&answer->call)))
        return;
    note_blocked(inquiry, from, answer, now);
    struct inquiry_comm *comm = find_comm(inquiry, answer->head.comm, answer->head.generation);
    int index = comm != NULL ? inquiry_member_of(comm, from) : -1;
    if (index < 0 || comm->notice != NULL || !inquiry_know(comm))
        return;
    struct inquiry_member *member = &comm->known[index];
    if (answer->sequence == 0 && member->asked != 0)
        return; /* it was about what the rank is blocked in */
    member->sequence = answer->sequence;
    member->state = (enum inquiry_state)answer->state;
    member->answered_ns = now;
    member->call = answer->call;
    if (answer->sequence == 0)
        return;
    struct record_call own;
    if (!inquiry->host.find(inquiry->host.context, comm->comm, comm->generation, answer->sequence,
                            &own))
        return;
    struct call_summary mine = inquiry_summarize(&own);
    if (member->state == INQUIRY_CALLED && comm->compares && call_differs(&mine, &member->call))
        inquiry_census_begin(comm, &mine, now);
    else if (member->state == INQUIRY_DESTROYED && member->call.sequence < answer->sequence &&
             atomic_load_explicit(&own.state, memory_order_relaxed) == RECORD_RUNNING)
        found_destroyed(comm, index, answer->sequence);
    inquiry_census_look(comm, now);
}

void inquiry_message(struct inquiry *inquiry, int from, const void *message, size_t bytes) {
    union {
        struct inquiry_head head;
        struct inquiry_question question;
        struct inquiry_answer answer;
        struct inquiry_notice notice;
    } copy;
    if (from < 0 || from >= inquiry->host.nranks || from == inquiry->host.rank ||
        bytes < sizeof(copy.head) || bytes > sizeof(copy))
        return;
    memcpy(&copy, message, bytes);
    if (copy.head.magic != INQUIRY_MAGIC)
        return;
    pthread_mutex_lock(&inquiry->lock);
    if (copy.head.type == INQUIRY_QUESTION && bytes == sizeof(copy.question))
        read_question(inquiry, from, &copy.question);
    else if (copy.head.type == INQUIRY_ANSWER && bytes == sizeof(copy.answer))
        read_answer(inquiry, from, &copy.answer);
    else if (copy.head.type == INQUIRY_NOTICE && bytes == sizeof(copy.notice))
        inquiry_notice_read(inquiry, from, &copy.notice);
    pthread_mutex_unlock(&inquiry->lock);
}
