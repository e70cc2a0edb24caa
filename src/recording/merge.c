/* What all ranks together say of each communicator: the first call on which they differ, or the
 * call that runs and who has not begun it; and who comes late. */
#include "recording/reader.h"

#include "base/error.h"
#include "schedule/schedule.h"
#include <stdlib.h>
#include <string.h>

const rota_recorded_call *recording_call_at(const struct recording_page *page, uint64_t sequence) {
    for (int i = 0; i < page->info.call_count; i++)
        if (page->calls[i].sequence == sequence)
            return &page->calls[i];
    return NULL;
}

bool recording_is_unfinished(const rota_recorded_call *call) {
    return call->running || call->status != ROTA_OK;
}

static uint64_t last_sequence(const struct recording_page *page) {
    int count = page->info.call_count;
    return count > 0 ? page->calls[count - 1].sequence : 0;
}

/* Of all communicators together: a damaged file shall not cost all memory. */
#define MAX_MEMBERS (1 << 22)

/* -- members ------------------------------------------------------------------------------------
 */

static struct recording_comm *find_comm(struct rota_recording *recording,
                                        const rota_recorded_page *page) {
    for (int i = 0; i < recording->ncomms; i++) {
        rota_recorded_comm *info = &recording->comms[i].info;
        if (info->id == page->id && info->generation == page->generation)
            return &recording->comms[i];
    }
    return NULL;
}

static rota_status add_comm(struct rota_recording *recording, const rota_recorded_page *page,
                            struct recording_comm **out) {
    size_t count = (size_t)recording->ncomms;
    recording->nmembers += page->nranks;
    if (recording->nmembers > MAX_MEMBERS)
        return error_raise(ROTA_ERR_FORMAT, "more than %d members of communicators: not believable",
                           MAX_MEMBERS);
    struct recording_comm *comms =
        realloc(recording->comms, (count + 1) * sizeof(*recording->comms));
    if (comms == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu communicators", count + 1);
    recording->comms = comms;
    struct recording_comm *comm = &comms[count];
    *comm = (struct recording_comm){.info = ROTA_RECORDED_COMM_INIT};
    memcpy(comm->info.name, page->name, sizeof(comm->info.name));
    comm->info.id = page->id;
    comm->info.generation = page->generation;
    comm->info.nranks = page->nranks;
    size_t n = (size_t)page->nranks;
    comm->members = calloc(n, sizeof(*comm->members));
    comm->camps = calloc(n, sizeof(*comm->camps));
    recording->ncomms++;
    if (comm->members == NULL || comm->camps == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for a communicator of %zu ranks", n);
    for (size_t m = 0; m < n; m++)
        comm->members[m] = (struct recording_member){.rank = -1, .camp = -1};
    *out = comm;
    return ROTA_OK;
}

/* Members that have not called have no page: the others may know which ranks they are. */
static void add_absent(const struct rota_recording *recording, struct recording_comm *comm,
                       const struct recording_page *page) {
    for (int m = 0; page->stride != 0 && m < comm->info.nranks; m++)
        if (comm->members[m].rank < 0)
            comm->members[m].rank = page->first + m * page->stride;
    for (int m = 0; m < comm->info.nranks; m++)
        for (int i = 0; comm->members[m].of == NULL && i < recording->count; i++)
            if (recording->ranks[i].info.rank == comm->members[m].rank)
                comm->members[m].of = &recording->ranks[i];
}

static rota_status add_pages(struct rota_recording *recording, const struct recording_rank *rank) {
    for (int p = 0; p < rank->npages; p++) {
        const struct recording_page *page = &rank->pages[p];
        if (page->info.messages)
            continue;
        struct recording_comm *comm = find_comm(recording, &page->info);
        rota_status status = ROTA_OK;
        if (comm == NULL)
            status = add_comm(recording, &page->info, &comm);
        if (status != ROTA_OK)
            return status;
        if (comm->info.nranks != page->info.nranks || comm->members[page->info.member].page != NULL)
            continue; /* two files cannot both be right: the first counts */
        comm->members[page->info.member] = (struct recording_member){
            .rank = rank->info.rank, .of = rank, .page = page, .camp = -1};
    }
    return ROTA_OK;
}

/* -- camps --------------------------------------------------------------------------------------
 */

static bool same_call(const struct recording_page *a, const rota_recorded_call *left,
                      const struct recording_page *b, const rota_recorded_call *right) {
    uint64_t one = a->fingerprints[left - a->calls], other = b->fingerprints[right - b->calls];
    if (one != 0 && other != 0)
        return one == other;
    bool counts_are_local = left->vector && left->kind != ROTA_KIND_ALL_GATHER &&
                            left->kind != ROTA_KIND_REDUCE_SCATTER;
    return left->kind == right->kind && left->dtype == right->dtype && left->root == right->root &&
           left->vector == right->vector && (counts_are_local || left->count == right->count) &&
           (!sched_kind_reduces(left->kind) || left->op == right->op);
}

struct numbered {
    uint64_t sequence;
    const struct recording_page *page;
    const rota_recorded_call *call;
};

static int by_number(const void *a, const void *b) {
    const struct numbered *left = a, *right = b;
    return left->sequence < right->sequence ? -1 : left->sequence > right->sequence;
}

/* Number of the first call on which members differ, and of the first that runs; 0 for none. */
static rota_status find_front(const struct recording_comm *comm, uint64_t *differs, uint64_t *runs,
                              uint64_t *last) {
    size_t total = 0, count = 0;
    for (int m = 0; m < comm->info.nranks; m++)
        total += comm->members[m].page != NULL ? (size_t)comm->members[m].page->info.call_count : 0;
    *differs = *runs = *last = 0;
    struct numbered *all = malloc((total > 0 ? total : 1) * sizeof(*all));
    if (all == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %zu calls", total);
    for (int m = 0; m < comm->info.nranks; m++) {
        const struct recording_page *page = comm->members[m].page;
        for (int c = 0; page != NULL && c < page->info.call_count; c++)
            all[count++] = (struct numbered){page->calls[c].sequence, page, &page->calls[c]};
    }
    qsort(all, count, sizeof(*all), by_number);
    size_t first = 0; /* of this number */
    for (size_t i = 0; i < count; i++) {
        first = all[i].sequence == all[first].sequence ? first : i;
        if (*differs == 0 && !same_call(all[first].page, all[first].call, all[i].page, all[i].call))
            *differs = all[i].sequence;
        if (*runs == 0 && recording_is_unfinished(all[i].call))
            *runs = all[i].sequence;
        *last = all[i].sequence;
    }
    free(all);
    return ROTA_OK;
}

static void join_camp(rota_recorded_camp *camp, const rota_recorded_call *call) {
    camp->rank_count++;
    if (call == NULL)
        return;
    camp->running += call->running;
    camp->failed += !call->running && call->status != ROTA_OK;
    if (call->begun_ns != 0 && (camp->begun_ns == 0 || call->begun_ns < camp->begun_ns))
        camp->begun_ns = call->begun_ns;
}

/* The camp of those who made the same call, or a new one. `firsts`: its first member. */
static void sort_member(struct recording_comm *comm, int member, const rota_recorded_call *call,
                        int *firsts) {
    struct recording_member *self = &comm->members[member];
    for (int c = 0; c < comm->info.camp_count; c++) {
        const struct recording_page *page = comm->members[firsts[c]].page;
        const rota_recorded_call *theirs = recording_call_at(page, comm->info.sequence);
        if (!same_call(page, theirs, self->page, call))
            continue;
        self->camp = c;
        join_camp(&comm->camps[c], call);
        return;
    }
    self->camp = comm->info.camp_count++;
    firsts[self->camp] = member;
    comm->camps[self->camp] = (rota_recorded_camp)ROTA_RECORDED_CAMP_INIT;
    comm->camps[self->camp].call = *call;
    join_camp(&comm->camps[self->camp], call);
}

/* Those of whom there is a recording, and no such call: not yet, or long ago. */
static bool sort_absent(struct recording_comm *comm) {
    int camp = -1;
    for (int m = 0; m < comm->info.nranks; m++) {
        struct recording_member *self = &comm->members[m];
        uint64_t last = self->page != NULL ? last_sequence(self->page) : 0;
        if (self->of == NULL || self->camp >= 0 || last >= comm->info.sequence)
            continue;
        if (camp < 0) {
            camp = comm->info.camp_count++;
            comm->camps[camp] = (rota_recorded_camp)ROTA_RECORDED_CAMP_INIT;
            comm->camps[camp].absent = true;
            comm->camps[camp].call = (rota_recorded_call)ROTA_RECORDED_CALL_INIT;
            if (last > 0)
                comm->camps[camp].call = *recording_call_at(self->page, last);
        }
        self->camp = camp;
        join_camp(&comm->camps[camp], NULL);
    }
    return camp >= 0;
}

static rota_status judge(struct recording_comm *comm) {
    uint64_t differs, runs, last;
    rota_status status = find_front(comm, &differs, &runs, &last);
    if (status != ROTA_OK)
        return status;
    comm->info.sequence = differs != 0 ? differs : runs != 0 ? runs : last;
    for (int m = 0; m < comm->info.nranks; m++)
        comm->info.seen += comm->members[m].of != NULL;
    if (comm->info.sequence == 0)
        return ROTA_OK;
    int *firsts = malloc((size_t)comm->info.nranks * sizeof(*firsts));
    if (firsts == NULL)
        return error_raise(ROTA_ERR_MEMORY, "out of memory for %d members", comm->info.nranks);
    for (int m = 0; m < comm->info.nranks; m++) {
        const struct recording_page *page = comm->members[m].page;
        const rota_recorded_call *call =
            page != NULL ? recording_call_at(page, comm->info.sequence) : NULL;
        if (call != NULL)
            sort_member(comm, m, call, firsts);
    }
    free(firsts);
    bool absent = sort_absent(comm);
    comm->info.state = differs != 0 ? ROTA_RECORDED_DIVERGED
                       : runs == 0  ? (absent ? ROTA_RECORDED_APART : ROTA_RECORDED_QUIET)
                       : absent     ? ROTA_RECORDED_WAITING
                                    : ROTA_RECORDED_RUNNING;
    return ROTA_OK;
}

/* -- skew ---------------------------------------------------------------------------------------
 */

/* Sums of times from files may be anything. */
static void add_time(int64_t *sum, int64_t ns) {
    if (__builtin_add_overflow(*sum, ns, sum))
        *sum = INT64_MAX;
}

static void compare_arrivals(struct recording_comm *comm, uint64_t sequence) {
    int64_t earliest = INT64_MAX;
    int stamped = 0;
    for (int m = 0; m < comm->info.nranks; m++) {
        const struct recording_page *page = comm->members[m].page;
        const rota_recorded_call *call = page != NULL ? recording_call_at(page, sequence) : NULL;
        if (call == NULL || call->begun_ns == 0)
            continue;
        stamped++;
        earliest = call->begun_ns < earliest ? call->begun_ns : earliest;
    }
    for (int m = 0; stamped > 1 && m < comm->info.nranks; m++) {
        struct recording_member *self = &comm->members[m];
        const rota_recorded_call *call =
            self->page != NULL ? recording_call_at(self->page, sequence) : NULL;
        if (call == NULL || call->begun_ns == 0)
            continue;
        int64_t late = call->begun_ns - earliest;
        self->compared++;
        add_time(&self->late_ns, late);
        self->most_late_ns = late > self->most_late_ns ? late : self->most_late_ns;
    }
}

static void charge_waits(struct recording_comm *comm, struct recording_member *self) {
    int64_t from = INT64_MAX, to = 0;
    for (int c = 0; c < self->page->info.call_count; c++) {
        const rota_recorded_call *call = &self->page->calls[c];
        int64_t end = call->running ? self->of->info.seen_ns : call->ended_ns;
        if (call->begun_ns == 0 || end < call->begun_ns)
            continue;
        from = call->begun_ns < from ? call->begun_ns : from;
        to = end > to ? end : to;
        if (call->waiting_for >= 0 && call->waiting_for < comm->info.nranks)
            add_time(&comm->members[call->waiting_for].cost_ns, end - call->begun_ns);
    }
    self->window_ns = to > from ? to - from : 0;
}

void recording_measure_skew(const struct rota_recording *recording, struct recording_comm *comm) {
    (void)recording;
    const struct recording_page *longest = NULL;
    for (int m = 0; m < comm->info.nranks; m++) {
        const struct recording_page *page = comm->members[m].page;
        if (page == NULL)
            continue;
        charge_waits(comm, &comm->members[m]);
        if (longest == NULL || page->info.call_count > longest->info.call_count)
            longest = page;
    }
    for (int c = 0; longest != NULL && c < longest->info.call_count; c++)
        compare_arrivals(comm, longest->calls[c].sequence);
}

static int by_id(const void *a, const void *b) {
    const struct recording_comm *left = a, *right = b;
    if (left->info.id != right->info.id)
        return left->info.id < right->info.id ? -1 : 1;
    return left->info.generation < right->info.generation ? -1 : 1;
}

rota_status recording_merge(struct rota_recording *recording) {
    for (int i = 0; i < recording->count; i++) {
        rota_status status = add_pages(recording, &recording->ranks[i]);
        if (status != ROTA_OK)
            return status;
    }
    if (recording->ncomms > 1)
        qsort(recording->comms, (size_t)recording->ncomms, sizeof(*recording->comms), by_id);
    for (int i = 0; i < recording->ncomms; i++) {
        struct recording_comm *comm = &recording->comms[i];
        for (int m = 0; m < comm->info.nranks; m++)
            if (comm->members[m].page != NULL) {
                add_absent(recording, comm, comm->members[m].page);
                break;
            }
        rota_status status = judge(comm);
        if (status != ROTA_OK)
            return status;
        recording_measure_skew(recording, comm);
    }
    return ROTA_OK;
}
