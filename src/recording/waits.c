/* Who waits for whom, over all communicators of a job. A wait leads from a rank that is inside a
 * call to one that has not joined it; ranks inside the same call wait for each other by turns,
 * which says nothing. So a ring of waits never ends by itself. */
#include "recording/reader.h"

#include "base/error.h"
#include <stdlib.h>
#include <string.h>

/* Absent members that one waiter is said to wait for. */
#define MOST_ABSENT 8
/* Rings that are told. */
#define MOST_CYCLES 8

static rota_status add_wait(struct rota_recording *recording, int waiter, int awaited,
                            int comm_index, const char *name, const rota_recorded_call *call) {
    size_t count = (size_t)recording->nwaits;
    if ((count & (count - 1)) == 0) {
        size_t more = count > 0 ? 2 * count : 1;
        rota_recorded_wait *waits = realloc(recording->waits, more * sizeof(*waits));
        if (waits == NULL)
            return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu waits", more);
        recording->waits = waits;
    }
    rota_recorded_wait *wait = &recording->waits[recording->nwaits++];
    *wait = (rota_recorded_wait)ROTA_RECORDED_WAIT_INIT;
    wait->waiter = waiter;
    wait->awaited = awaited;
    wait->comm_index = comm_index;
    memcpy(wait->comm_name, name, sizeof(wait->comm_name));
    wait->call = *call;
    wait->cycle = -1;
    return ROTA_OK;
}

/* -- collectives --------------------------------------------------------------------------------
 */

/* One that is in the call waits for those who have not begun it; where the call has none of these
 * but ranks differ, for whom it said. */
static rota_status add_member(struct rota_recording *recording, int comm_index, int member) {
    const struct recording_comm *comm = &recording->comms[comm_index];
    const struct recording_member *self = &comm->members[member];
    const rota_recorded_call *call =
        self->page != NULL ? recording_call_at(self->page, comm->info.sequence) : NULL;
    if (call == NULL || !recording_is_unfinished(call))
        return ROTA_OK;
    rota_status status = ROTA_OK;
    int absent = 0;
    for (int m = 0; status == ROTA_OK && m < comm->info.nranks && absent < MOST_ABSENT; m++) {
        const struct recording_member *other = &comm->members[m];
        bool missing = other->of != NULL && other->camp >= 0 && comm->camps[other->camp].absent;
        if (!missing)
            continue;
        absent++;
        status = add_wait(recording, self->rank, other->rank, comm_index, comm->info.name, call);
    }
    if (status == ROTA_OK && absent == 0 && call->waiting_for >= 0 &&
        comm->info.state == ROTA_RECORDED_DIVERGED) {
        const struct recording_member *other = &comm->members[call->waiting_for];
        if (other->rank >= 0 && other->rank != self->rank && other->camp != self->camp)
            status =
                add_wait(recording, self->rank, other->rank, comm_index, comm->info.name, call);
    }
    return status;
}

/* -- messages -----------------------------------------------------------------------------------
 */

static const struct recording_page *messages_of(const struct recording_rank *rank,
                                                const rota_recorded_page *like, int member) {
    for (int p = 0; p < rank->npages; p++) {
        const rota_recorded_page *info = &rank->pages[p].info;
        if (info->messages && info->id == like->id && info->generation == like->generation &&
            info->member == member)
            return &rank->pages[p];
    }
    return NULL;
}

/* The rank that is a member: by its own messages, by the communicator's collectives, by the row. */
static const struct recording_rank *rank_of(const struct rota_recording *recording,
                                            const struct recording_page *page, int member) {
    for (int i = 0; i < recording->count; i++) {
        const struct recording_rank *rank = &recording->ranks[i];
        if (page->stride != 0 ? rank->info.rank == page->first + member * page->stride
                              : messages_of(rank, &page->info, member) != NULL)
            return rank;
    }
    return NULL;
}

/* Whether the peer is in the other half of this message. */
static bool is_met(const struct recording_page *theirs, int member,
                   const rota_recorded_call *call) {
    rota_kind other = call->kind == ROTA_KIND_SEND ? ROTA_KIND_RECV : ROTA_KIND_SEND;
    for (int c = 0; theirs != NULL && c < theirs->info.call_count; c++) {
        const rota_recorded_call *half = &theirs->calls[c];
        if (recording_is_unfinished(half) && half->kind == other && half->tag == call->tag &&
            (half->root == member || half->root < 0))
            return true;
    }
    return false;
}

static rota_status add_messages(struct rota_recording *recording, const struct recording_rank *rank,
                                const struct recording_page *page) {
    int comm_index = -1;
    for (int i = 0; i < recording->ncomms; i++)
        if (recording->comms[i].info.id == page->info.id &&
            recording->comms[i].info.generation == page->info.generation)
            comm_index = i;
    rota_status status = ROTA_OK;
    for (int c = 0; status == ROTA_OK && c < page->info.call_count; c++) {
        const rota_recorded_call *call = &page->calls[c];
        const struct recording_rank *peer = recording_is_unfinished(call) && call->root >= 0
                                                ? rank_of(recording, page, call->root)
                                                : NULL;
        if (peer != NULL && peer != rank &&
            !is_met(messages_of(peer, &page->info, call->root), page->info.member, call))
            status = add_wait(recording, rank->info.rank, peer->info.rank, comm_index,
                              page->info.name, call);
    }
    return status;
}

/* -- cycles -------------------------------------------------------------------------------------
 */

static int by_waiter(const void *a, const void *b) {
    const rota_recorded_wait *left = a, *right = b;
    if (left->waiter != right->waiter)
        return left->waiter - right->waiter;
    return left->awaited - right->awaited;
}

struct walk {
    struct rota_recording *recording;
    int *first; /* by rank: its first wait, nranks + 1 entries */
    int *next;  /* by rank: the wait to follow next; -1: not come to yet */
    int *path;  /* ranks on the way, one wait of each is being followed */
    int *at;    /* by rank: place on the way, -1 when not on it */
};

/* The way from place `from` on is a ring. */
static void note_cycle(struct walk *walk, int from, int length) {
    struct rota_recording *recording = walk->recording;
    if (recording->ncycles >= MOST_CYCLES)
        return;
    for (int i = from; i < length; i++)
        recording->waits[walk->next[walk->path[i]] - 1].cycle = recording->ncycles;
    recording->ncycles++;
}

/* Follows all waits from a rank, each once. */
static void follow(struct walk *walk, int start) {
    int length = 0;
    walk->path[length++] = start;
    walk->at[start] = 0;
    walk->next[start] = walk->first[start];
    while (length > 0) {
        int rank = walk->path[length - 1];
        if (walk->next[rank] == walk->first[rank + 1]) {
            walk->at[rank] = -1;
            length--;
            continue;
        }
        int awaited = walk->recording->waits[walk->next[rank]++].awaited;
        if (walk->at[awaited] >= 0) {
            note_cycle(walk, walk->at[awaited], length);
        } else if (walk->next[awaited] < 0) {
            walk->at[awaited] = length;
            walk->next[awaited] = walk->first[awaited];
            walk->path[length++] = awaited;
        }
    }
}

static rota_status find_cycles(struct rota_recording *recording) {
    size_t n = (size_t)recording->nranks;
    int *memory = malloc((4 * n + 1) * sizeof(*memory));
    if (memory == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu ranks", n);
    struct walk walk = {.recording = recording,
                        .first = memory,
                        .next = memory + n + 1,
                        .path = memory + 2 * n + 1,
                        .at = memory + 3 * n + 1};
    int wait = 0;
    for (size_t r = 0; r <= n; r++) {
        while (wait < recording->nwaits && recording->waits[wait].waiter < (int)r)
            wait++;
        walk.first[r] = wait;
    }
    for (size_t r = 0; r < n; r++)
        walk.next[r] = walk.at[r] = -1;
    for (size_t r = 0; r < n; r++)
        if (walk.next[r] < 0)
            follow(&walk, (int)r);
    free(memory);
    return ROTA_OK;
}

rota_status recording_find_waits(struct rota_recording *recording) {
    rota_status status = ROTA_OK;
    for (int c = 0; c < recording->ncomms; c++)
        for (int m = 0; status == ROTA_OK && m < recording->comms[c].info.nranks; m++)
            status = add_member(recording, c, m);
    for (int i = 0; i < recording->count; i++)
        for (int p = 0; status == ROTA_OK && p < recording->ranks[i].npages; p++)
            if (recording->ranks[i].pages[p].info.messages)
                status =
                    add_messages(recording, &recording->ranks[i], &recording->ranks[i].pages[p]);
    if (status != ROTA_OK || recording->nwaits == 0)
        return status;
    qsort(recording->waits, (size_t)recording->nwaits, sizeof(*recording->waits), by_waiter);
    return find_cycles(recording);
}
