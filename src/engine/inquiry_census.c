/* Comparing the calls of all members, and making known why a communicator has ended. */
#include "engine/inquiry_state.h"

#include "base/clock.h"
#include "base/error.h"
#include <stdlib.h>
#include <string.h>

/* How long a census waits for all answers, and for one that differs. */
#define CENSUS_NS 30000000
#define CENSUS_MOST_NS 250000000
#define NO_GROUP (-1)

/* -- the census ---------------------------------------------------------------------------------
 */

void inquiry_census_begin(struct inquiry_comm *comm, const struct call_summary *mine,
                          int64_t now_ns) {
    if (comm->notice != NULL || comm->census == mine->sequence || !inquiry_know(comm))
        return;
    comm->census = mine->sequence;
    comm->census_call = *mine;
    comm->counting = true;
    comm->census_ns = now_ns + CENSUS_NS;
    comm->census_most_ns = now_ns + CENSUS_MOST_NS;
    for (int i = 0; i < comm->nmembers && comm->nmembers <= INQUIRY_ALL_RANKS; i++) {
        const struct inquiry_member *member = &comm->known[i];
        if (member->sequence != mine->sequence || member->state != INQUIRY_CALLED)
            inquiry_ask(comm, i, mine->sequence, now_ns);
    }
    comm->inquiry->host.wake(comm->inquiry->host.context);
}

void inquiry_census(struct inquiry_comm *comm, const struct call_summary *mine) {
    pthread_mutex_lock(&comm->inquiry->lock);
    inquiry_census_begin(comm, mine, clock_now_ns());
    inquiry_census_look(comm, clock_now_ns());
    pthread_mutex_unlock(&comm->inquiry->lock);
}

/* What a member says of the number that is counted, NULL: nothing. */
static const struct inquiry_member *opinion(const struct inquiry_comm *comm, int member) {
    const struct inquiry_member *known = &comm->known[member];
    return known->sequence == comm->census && known->state != INQUIRY_UNASKED ? known : NULL;
}

/* The members' calls in groups. */
struct groups {
    int count;
    struct call_summary calls[16];
    int *of; /* by member: its group, NO_GROUP */
};

static void group_members(const struct inquiry_comm *comm, struct groups *groups) {
    for (int i = 0; i < comm->nmembers; i++) {
        const struct inquiry_member *known = opinion(comm, i);
        const struct call_summary *call = i == comm->self ? &comm->census_call
                                          : known != NULL && known->state == INQUIRY_CALLED
                                              ? &known->call
                                              : NULL;
        groups->of[i] = NO_GROUP;
        if (call == NULL)
            continue;
        int g = 0;
        while (g < groups->count && call_differs(&groups->calls[g], call))
            g++;
        if (g == (int)(sizeof(groups->calls) / sizeof(groups->calls[0])))
            continue;
        if (g == groups->count)
            groups->calls[groups->count++] = *call;
        groups->of[i] = g;
    }
}

/* Whether two groups read the same without details. */
static bool needs_details(const struct groups *groups) {
    char one[88], other[88];
    for (int a = 0; a < groups->count; a++)
        for (int b = 0; b < a; b++) {
            call_text(&groups->calls[a], false, one, sizeof(one));
            call_text(&groups->calls[b], false, other, sizeof(other));
            if (strcmp(one, other) == 0)
                return true;
        }
    return false;
}

/* Members that are marked, and what they did, into the record. */
static size_t add_group(rota_error *record, size_t at, const bool *marked, int nmembers,
                        const char *call, const char *did) {
    int count = 0, listed = 0;
    for (int i = 0; i < nmembers; i++)
        count += marked[i];
    if (count == 0)
        return at;
    if (record->group_count < ROTA_ERROR_MAX_GROUPS) {
        rota_error_group *group = &record->groups[record->group_count++];
        group->rank_count = count;
        for (int i = 0; i < 8; i++)
            group->ranks[i] = -1;
        for (int i = 0; i < nmembers && listed < 8; i++)
            if (marked[i])
                group->ranks[listed++] = i;
        call_text_add(group->call, sizeof(group->call), 0, "%s", call);
    }
    at = call_text_add(record->message, 320, at, "%s", at > 0 ? "; " : "");
    at = inquiry_add_ranks(record->message, 320, at, marked, nmembers);
    return call_text_add(record->message, 320, at, " %s%s%s", did, call[0] != '\0' ? " " : "",
                         call);
}

static void fill_record(const struct inquiry_comm *comm, const struct groups *groups, bool *marked,
                        rota_error *record) {
    char call[88];
    size_t at = 0;
    bool detailed = needs_details(groups);
    for (int g = 0; g < groups->count; g++) {
        for (int i = 0; i < comm->nmembers; i++)
            marked[i] = groups->of[i] == g;
        call_text(&groups->calls[g], detailed, call, sizeof(call));
        at = add_group(record, at, marked, comm->nmembers, call, "called");
    }
    for (int i = 0; i < comm->nmembers; i++) {
        const struct inquiry_member *known = opinion(comm, i);
        marked[i] = i != comm->self && known != NULL && known->state == INQUIRY_NOT_CALLED;
    }
    at = add_group(record, at, marked, comm->nmembers, "", "called nothing yet");
    int other = 0;
    while (other < comm->nmembers &&
           (groups->of[other] == NO_GROUP || groups->of[other] == groups->of[comm->self]))
        other++;
    record->peer = other < comm->nmembers ? other : -1;
}

/* The calls of this number are the same, so that those of an earlier one must differ: fingerprints
 * tell of all calls before, too. Counts the number before. False: its call is forgotten here. */
static bool census_back(struct inquiry_comm *comm, int64_t now_ns) {
    struct record_call own;
    const struct inquiry_host *host = &comm->inquiry->host;
    uint64_t sequence = comm->census - 1;
    if (sequence == 0 || now_ns >= comm->census_most_ns ||
        !host->find(host->context, comm->comm, comm->generation, sequence, &own))
        return false;
    int64_t most_ns = comm->census_most_ns;
    struct call_summary mine = inquiry_summarize(&own);
    inquiry_census_begin(comm, &mine, now_ns);
    comm->census_most_ns = most_ns;
    return true;
}

/* All that will answer have answered. */
static void census_end(struct inquiry_comm *comm, int64_t now_ns) {
    struct inquiry_finding finding = {.comm = comm->comm, .generation = comm->generation};
    struct groups groups = {.of = malloc((size_t)comm->nmembers * sizeof(*groups.of))};
    bool *marked = calloc((size_t)comm->nmembers, sizeof(*marked));
    comm->counting = false;
    rota_error *record = &finding.record;
    *record = (rota_error)ROTA_ERROR_INIT;
    record->status = ROTA_ERR_MISMATCH;
    record->kind = (int)comm->census_call.kind;
    record->sequence = comm->census;
    record->peer = -1;
    if (groups.of != NULL && marked != NULL) {
        group_members(comm, &groups);
        if (groups.count > 1)
            fill_record(comm, &groups, marked, record);
    }
    /* With one group, also of earlier calls, it was something else; who saw it has a record. */
    if (groups.count > 1)
        comm->inquiry->host.found(comm->inquiry->host.context, &finding);
    else
        (void)census_back(comm, now_ns);
    free(groups.of);
    free(marked);
}

void inquiry_census_look(struct inquiry_comm *comm, int64_t now_ns) {
    if (!comm->counting)
        return;
    bool all = comm->nmembers <= INQUIRY_ALL_RANKS;
    for (int i = 0; i < comm->nmembers && all; i++)
        all = i == comm->self || opinion(comm, i) != NULL;
    bool differs = false;
    for (int i = 0; i < comm->nmembers && !differs; i++) {
        const struct inquiry_member *known = i != comm->self ? opinion(comm, i) : NULL;
        differs = known != NULL && known->state == INQUIRY_CALLED &&
                  call_differs(&known->call, &comm->census_call);
    }
    if (all || (now_ns >= comm->census_ns && differs) || now_ns >= comm->census_most_ns)
        census_end(comm, now_ns);
    else if (now_ns >= comm->census_ns)
        comm->census_ns = now_ns + CENSUS_NS;
}

/* -- notices ------------------------------------------------------------------------------------
 */

static void send_notice(struct inquiry_comm *comm, int member,
                        const struct inquiry_notice *notice) {
    struct inquiry *inquiry = comm->inquiry;
    if (member != comm->self)
        inquiry->host.send(inquiry->host.context, comm->members[member], notice, sizeof(*notice));
}

/* To those whose number differs by a power of two: each passes it on, so that it reaches all in
 * log2 n steps, also when some of them are gone. */
static void pass_on(struct inquiry_comm *comm, const struct inquiry_notice *notice) {
    for (int distance = 1; distance < comm->nmembers; distance *= 2) {
        send_notice(comm, (comm->self + distance) % comm->nmembers, notice);
        send_notice(comm, (comm->self + comm->nmembers - distance) % comm->nmembers, notice);
    }
}

void inquiry_notice_tell(struct inquiry_comm *comm, const struct inquiry_notice *notice) {
    if (comm->notice != NULL)
        return;
    comm->counting = false;
    comm->notice = malloc(sizeof(*notice));
    if (comm->notice != NULL)
        *comm->notice = *notice;
    bool own = notice->origin == comm->self;
    if (own && comm->nmembers <= INQUIRY_ALL_RANKS)
        for (int i = 0; i < comm->nmembers; i++)
            send_notice(comm, i, notice);
    else if (comm->nmembers > INQUIRY_ALL_RANKS || notice->status == ROTA_ERR_REVOKED)
        pass_on(comm, notice);
}

void inquiry_notice(struct inquiry_comm *comm, const rota_error *record) {
    struct inquiry_notice notice = {.head = {.magic = INQUIRY_MAGIC,
                                             .type = INQUIRY_NOTICE,
                                             .comm = comm->comm,
                                             .generation = comm->generation},
                                    .status = (int32_t)record->status,
                                    .peer = record->peer,
                                    .kind = record->kind,
                                    .origin = comm->self,
                                    .sequence = record->sequence,
                                    .epoch = record->epoch,
                                    .group_count = (uint32_t)record->group_count,
                                    .system_error = record->system_error,
                                    .culprit_count = record->culprit_count};
    memcpy(notice.culprits, record->culprits, sizeof(notice.culprits));
    memcpy(notice.groups, record->groups, sizeof(notice.groups));
    call_text_add(notice.address, sizeof(notice.address), 0, "%s", record->address);
    call_text_add(notice.text, sizeof(notice.text), 0, "%s", record->message);
    pthread_mutex_lock(&comm->inquiry->lock);
    inquiry_notice_tell(comm, &notice);
    pthread_mutex_unlock(&comm->inquiry->lock);
}

/* Text of a peer's: ended, and nothing in it that a terminal would obey. */
static void clean(char *text, size_t size) {
    text[size - 1] = '\0';
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

static bool notice_valid(const struct inquiry_comm *comm, const struct inquiry_notice *notice) {
    int n = comm->nmembers;
    bool valid = notice->status > ROTA_OK && notice->status <= ROTA_ERR_REVOKED &&
                 notice->peer >= -1 && notice->peer < n && notice->kind >= -1 &&
                 notice->kind < ROTA_KIND_COUNT && notice->origin >= 0 && notice->origin < n &&
                 notice->group_count <= ROTA_ERROR_MAX_GROUPS && notice->culprit_count >= 0 &&
                 notice->culprit_count <= ROTA_ERROR_MAX_CULPRITS;
    for (int i = 0; valid && i < notice->culprit_count; i++)
        valid = notice->culprits[i] >= 0 && notice->culprits[i] < n;
    for (uint32_t g = 0; valid && g < notice->group_count; g++)
        for (int i = 0; valid && i < 8; i++)
            valid = notice->groups[g].ranks[i] >= -1 && notice->groups[g].ranks[i] < n &&
                    notice->groups[g].rank_count > 0 && notice->groups[g].rank_count <= n;
    return valid;
}

static void keep_early(struct inquiry *inquiry, const struct inquiry_notice *notice) {
    for (int i = 0; i < INQUIRY_GRAVES; i++)
        if (inquiry->graves[i].used && inquiry->graves[i].comm == notice->head.comm &&
            inquiry->graves[i].generation == notice->head.generation)
            return;
    struct inquiry_notice *kept = malloc(sizeof(*kept));
    if (kept == NULL)
        return;
    *kept = *notice;
    struct inquiry_notice **place = &inquiry->early[inquiry->next_early++ % INQUIRY_EARLY];
    free(*place);
    *place = kept;
}

/* Whose notice ends a communicator here: what the other rank knows of its own troubles is, here,
 * that it gave up. */
static void record_of(const struct inquiry_comm *comm, const struct inquiry_notice *notice,
                      rota_error *record) {
    *record = (rota_error)ROTA_ERROR_INIT;
    record->status = (rota_status)notice->status;
    record->peer = notice->peer;
    record->kind = notice->kind;
    record->sequence = notice->sequence;
    record->epoch = notice->epoch;
    record->system_error = notice->system_error;
    for (int i = 0; i < notice->culprit_count; i++)
        error_add_culprit(record, notice->culprits[i]);
    record->group_count = (int)notice->group_count;
    memcpy(record->groups, notice->groups, sizeof(record->groups));
    call_text_add(record->address, sizeof(record->address), 0, "%s", notice->address);
    bool shared = record->status == ROTA_ERR_TIMEOUT || record->status == ROTA_ERR_MISMATCH ||
                  record->status == ROTA_ERR_PEER || record->status == ROTA_ERR_REVOKED;
    if (shared) {
        call_text_add(record->message, sizeof(record->message), 0, "%s", notice->text);
        return;
    }
    char who[160];
    inquiry_rank_text(comm->inquiry, comm, notice->origin, who, sizeof(who));
    record->status = ROTA_ERR_PEER;
    record->peer = notice->origin;
    record->culprit_count = 0;
    error_add_culprit(record, notice->origin);
    call_text_add(record->message, sizeof(record->message), 0, "%s ended the communicator: %s", who,
                  notice->text);
}

void inquiry_notice_read(struct inquiry *inquiry, int from, const struct inquiry_notice *message) {
    struct inquiry_notice notice = *message;
    clean(notice.text, sizeof(notice.text));
    clean(notice.address, sizeof(notice.address));
    for (int g = 0; g < ROTA_ERROR_MAX_GROUPS; g++)
        clean(notice.groups[g].call, sizeof(notice.groups[g].call));
    struct inquiry_comm *comm;
    LIST_FOREACH(comm, &inquiry->comms, entry)
    if (comm->comm == notice.head.comm && comm->generation == notice.head.generation)
        break;
    if (comm == NULL) {
        keep_early(inquiry, &notice);
        return;
    }
    if (comm->notice != NULL || inquiry_member_of(comm, from) < 0 || !notice_valid(comm, &notice))
        return;
    struct inquiry_finding finding = {.comm = comm->comm, .generation = comm->generation};
    record_of(comm, &notice, &finding.record);
    inquiry_notice_tell(comm, &notice);
    inquiry->host.found(inquiry->host.context, &finding);
}

bool inquiry_is_notice(const void *message, size_t bytes) {
    struct inquiry_head head;
    if (bytes < sizeof(head))
        return false;
    memcpy(&head, message, sizeof(head));
    return head.type == INQUIRY_NOTICE;
}
