/* What is known about the members of a communicator, in words. */
#include "engine/inquiry_state.h"

#include "base/clock.h"
#include <stdio.h>
#include <string.h>

/* Ranks followed from one that is blocked to whom it waits for. */
#define CHAIN_RANKS 8

size_t inquiry_add_ranks(char *text, size_t size, size_t at, const bool *marked, int nranks) {
    int count = 0;
    for (int i = 0; i < nranks; i++)
        count += marked[i];
    at = call_text_add(text, size, at, count == 1 ? "rank " : "ranks ");
    bool first = true;
    for (int i = 0; i < nranks; i++) {
        if (!marked[i])
            continue;
        int end = i;
        while (end + 1 < nranks && marked[end + 1])
            end++;
        at = call_text_add(text, size, at, "%s%d", first ? "" : ", ", i);
        if (end > i)
            at = call_text_add(text, size, at, "-%d", end);
        first = false;
        i = end;
    }
    return at;
}

size_t inquiry_rank_text(const struct inquiry *inquiry, const struct inquiry_comm *comm, int rank,
                         char *text, size_t size) {
    const struct bootstrap_record *record =
        &inquiry->host.records[comm != NULL ? comm->members[rank] : rank];
    return call_text_add(text, size, 0, "rank %d (host %.60s, pid %d)", rank, record->host,
                         record->pid);
}

static bool is_fresh(const struct inquiry_comm *comm, int64_t answered_ns) {
    return answered_ns >= comm->last_ns && answered_ns != 0;
}

/* What a rank of the job is blocked in, when it said so lately; NULL. */
static const struct inquiry_blocked *blocked_in(const struct inquiry_comm *comm, int job_rank) {
    const struct inquiry *inquiry = comm->inquiry;
    if (inquiry->blocked == NULL)
        return NULL;
    const struct inquiry_blocked *blocked = &inquiry->blocked[job_rank];
    return is_fresh(comm, blocked->answered_ns) && blocked->running.kind != INQUIRY_NO_KIND
               ? blocked
               : NULL;
}

static size_t add_member(const struct inquiry_comm *comm, int member, const char *what, char *text,
                         size_t size, size_t at) {
    char who[160];
    inquiry_rank_text(comm->inquiry, comm, member, who, sizeof(who));
    return call_text_add(text, size, at, "%s%s %s", at > 0 ? "; " : "", who, what);
}

/* What an absent member does instead. */
static void add_absent(const struct inquiry_comm *comm, int member, int64_t waited_ms, char *text,
                       size_t size) {
    char what[220], call[88];
    size_t at = strlen(text);
    const struct inquiry_member *known = &comm->known[member];
    const struct inquiry_blocked *blocked = blocked_in(comm, comm->members[member]);
    if (known->state == INQUIRY_DESTROYED) {
        call_text_add(what, sizeof(what), 0, "has destroyed the communicator");
    } else if (blocked != NULL) {
        call_text(&blocked->running, false, call, sizeof(call));
        size_t n = call_text_add(what, sizeof(what), 0, "is in %s on %s", call, blocked->name);
        if (blocked->waits_for >= 0)
            call_text_add(what, sizeof(what), n, " and waits there for rank %d of the job",
                          blocked->waits_for);
    } else {
        size_t n = call_text_add(what, sizeof(what), 0, "has not called for %lld.%lld s",
                                 (long long)waited_ms / 1000, (long long)waited_ms % 1000 / 100);
        if (known->state == INQUIRY_NOT_CALLED && known->call.sequence != 0) {
            call_text(&known->call, false, call, sizeof(call));
            call_text_add(what, sizeof(what), n, "; its last call was %s", call);
        }
    }
    add_member(comm, member, what, text, size, at);
}

/* A circle of ranks that wait for each other, if this rank is in one. */
static void add_cycle(const struct inquiry_comm *comm, const int *awaited, int nawaited, char *text,
                      size_t size) {
    int own = comm->inquiry->host.rank;
    for (int i = 0; i < nawaited; i++) {
        int chain[CHAIN_RANKS], length = 0, rank = comm->members[awaited[i]];
        const struct inquiry_blocked *blocked = NULL;
        while (length < CHAIN_RANKS && rank != own && (blocked = blocked_in(comm, rank)) != NULL &&
               blocked->waits_for >= 0) {
            chain[length++] = rank;
            rank = blocked->waits_for;
        }
        if (rank != own || length == 0)
            continue;
        bool elsewhere = false;
        for (int k = 0; k < length; k++) {
            const struct inquiry_blocked *link = blocked_in(comm, chain[k]);
            elsewhere |= link->comm != comm->comm || link->generation != comm->generation;
        }
        if (!elsewhere)
            continue; /* inside one call it is the usual state of things */
        size_t at = call_text_add(text, size, strlen(text), "; a circle: rank %d of the job", own);
        for (int k = 0; k < length; k++) {
            const struct inquiry_blocked *link = blocked_in(comm, chain[k]);
            char call[88];
            call_text(&link->running, false, call, sizeof(call));
            at = call_text_add(text, size, at, " waits for %d, which in %s on %s", chain[k], call,
                               link->name);
        }
        call_text_add(text, size, at, " waits for %d", own);
        return;
    }
}

static void add_culprit(int *list, int *count, int member) {
    if (*count < ROTA_ERROR_MAX_CULPRITS)
        list[(*count)++] = member;
}

static bool is_listed(const struct inquiry_summary *summary, int member) {
    bool listed = false;
    for (int i = 0; i < summary->nabsent; i++)
        listed |= summary->absent[i] == member;
    for (int i = 0; i < summary->nsilent; i++)
        listed |= summary->silent[i] == member;
    return listed;
}

/* Whether a rank of the job was asked before this deadline, as a member or because others wait for
 * it. */
static bool was_asked(const struct inquiry_comm *comm, int member, int job_rank) {
    const struct inquiry *inquiry = comm->inquiry;
    return comm->known[member].asked_ns >= comm->last_ns ||
           (inquiry->blocked != NULL && inquiry->blocked[job_rank].asked_ns >= comm->last_ns);
}

/* Follows an absent member to whom it waits for, and so on: adds the member at the end of the
 * chain, which does not answer, or does nothing. */
static void follow(const struct inquiry_comm *comm, int first, struct inquiry_summary *summary) {
    const struct inquiry_blocked *blocked = blocked_in(comm, comm->members[first]);
    int rank = -1;
    for (int i = 0; i < CHAIN_RANKS && blocked != NULL && blocked->waits_for >= 0; i++) {
        rank = blocked->waits_for;
        blocked = rank != comm->inquiry->host.rank ? blocked_in(comm, rank) : NULL;
    }
    int member = rank >= 0 ? inquiry_member_of(comm, rank) : -1;
    if (member < 0 || member == comm->self || blocked != NULL || is_listed(summary, member))
        return;
    if (is_fresh(comm, comm->inquiry->blocked[rank].answered_ns))
        add_culprit(summary->absent, &summary->nabsent, member);
    else if (was_asked(comm, member, rank))
        add_culprit(summary->silent, &summary->nsilent, member);
}

/* Who is blocked elsewhere waits for somebody itself: where others are absent or silent, they are
 * to blame. */
static void drop_blocked(const struct inquiry_comm *comm, struct inquiry_summary *summary) {
    int free_ones[ROTA_ERROR_MAX_CULPRITS], count = 0;
    for (int i = 0; i < summary->nabsent; i++) {
        const struct inquiry_blocked *blocked = blocked_in(comm, comm->members[summary->absent[i]]);
        if (blocked == NULL || blocked->waits_for < 0)
            free_ones[count++] = summary->absent[i];
    }
    if (count + summary->nsilent == 0)
        return;
    summary->nabsent = count;
    for (int i = 0; i < count; i++)
        summary->absent[i] = free_ones[i];
}

void inquiry_conclude(struct inquiry_comm *comm, const struct call_summary *mine,
                      const int *awaited, int nawaited, int64_t waited_ms,
                      struct inquiry_summary *summary) {
    *summary = (struct inquiry_summary){0};
    pthread_mutex_lock(&comm->inquiry->lock);
    bool everybody = mine->sequence != 0 && comm->nmembers <= INQUIRY_ALL_RANKS;
    for (int i = 0; comm->known != NULL && i < (everybody ? comm->nmembers : nawaited); i++) {
        int member = everybody ? i : awaited[i];
        const struct inquiry_member *known = &comm->known[member];
        if (member == comm->self || known->asked_ns == 0)
            continue;
        if (!is_fresh(comm, known->answered_ns)) {
            add_culprit(summary->silent, &summary->nsilent, member);
            continue;
        }
        bool called = mine->sequence != 0 && known->sequence == mine->sequence &&
                      (known->state == INQUIRY_CALLED || known->state == INQUIRY_PASSED);
        if (!called)
            add_culprit(summary->absent, &summary->nabsent, member);
    }
    for (int i = 0, absent = summary->nabsent; i < absent; i++)
        follow(comm, summary->absent[i], summary);
    for (int i = 0; i < summary->nabsent; i++)
        add_absent(comm, summary->absent[i], waited_ms, summary->text, sizeof(summary->text));
    drop_blocked(comm, summary);
    for (int i = 0; i < summary->nsilent; i++)
        add_member(comm, summary->silent[i], "does not answer", summary->text,
                   sizeof(summary->text), strlen(summary->text));
    if (comm->known != NULL && summary->nabsent + summary->nsilent > 0)
        add_cycle(comm, awaited, nawaited, summary->text, sizeof(summary->text));
    pthread_mutex_unlock(&comm->inquiry->lock);
}
