/* Selection: every candidate is priced by the rounds, messages, bytes and reductions of its
 * schedule, and the cheapest taken. What enters is agreed: the table of ranks, settings, profile,
 * and the schedules.
 *
 * A price is linear: rounds * latency + messages * overhead + bytes * us_per_byte + reduced bytes *
 * reduce_us_per_byte, all of each class of links, where the bytes of one message are added for each
 * round (path_bytes). Rounds are the algorithm's closed form; the rest is counted once from the
 * schedules of the ranks, in chunks, so that one count serves every size. What is paid for is the
 * core of the busiest rank: what that does, and with several ranks on a core what average ones do
 * for the others. */
#include "engine/select.h"

#include "base/error.h"
#include "engine/collective.h"
#include "engine/executor.h"
#include "engine/numerics.h"
#include "engine/profile.h"
#include "engine/rules.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Schedules of all ranks are counted up to this many; above of a few. */
#define COUNTED_RANKS 32
#define SAMPLED_RANKS 4
/* Blocks of fewer elements than chunks leave chunks empty, whose messages are not sent. They are
 * priced as if so many elements were there. */
#define TINY_CHUNKS 2
#define SELECT_MEMOS 16

enum { NEAR, FAR, SIDES };

/* What a rank does, in chunks; then what it is charged for. */
struct work {
    double messages[SIDES], raw[SIDES], partial[SIDES]; /* sent and received */
    double reduced_raw, reduced_partial;                /* read */
};
#define WORK_FIELDS (sizeof(struct work) / sizeof(double))

/* One algorithm's work for a kind, of whole blocks and of tiny ones. */
struct select_traffic {
    bool counted, possible;
    double rounds[SIDES];
    struct work work[2]; /* bytes as fractions of all blocks */
};

/* What selection keeps for a communicator, made when it is first asked. */
struct select_state {
    double crowding;
    int links[SIDES]; /* classes of the links inside hosts and between them */
    struct prices prices;
    struct select_traffic *traffic[ROTA_KIND_COUNT]; /* by algorithm; NULL: not asked for */
    /* The last choices by price, as programs repeat the same few calls. */
    struct select_memo {
        struct call_shape shape;
        const struct algorithm *algorithm; /* NULL: empty */
    } memos[SELECT_MEMOS];
};

static void work_join(struct work *left, const struct work *right, double factor, bool most) {
    double *a = (double *)left;
    const double *b = (const double *)right;
    for (size_t i = 0; i < WORK_FIELDS; i++)
        a[i] = !most ? a[i] + b[i] * factor : b[i] * factor > a[i] ? b[i] * factor : a[i];
}

/* Chunks of a list that are not empty when the first `live` of a block are not. */
static double live_chunks(const struct sched *schedule, struct sched_list list, uint32_t live) {
    uint32_t chunks = schedule->chunks_per_block;
    if (live >= chunks)
        return sched_list_chunks(schedule, list);
    double count = 0;
    for (uint32_t i = list.begin; i < list.begin + list.count; i++) {
        const struct sched_range *range = &schedule->ranges[i];
        for (uint32_t r = 0; r < range->reps; r++)
            for (uint32_t c = 0; c < range->count; c++) {
                uint32_t global = range->buffer == SCHED_SCRATCH
                                      ? range->like + r * range->like_stride + c
                                      : sched_global_chunk(schedule, range->buffer,
                                                           range->first + r * range->stride + c);
                count += global % chunks < live;
            }
    }
    return count;
}

static void count_step(const rota_comm *comm, const struct sched *schedule,
                       const struct sched_step *step, uint32_t live, struct work *work) {
    double from = live_chunks(schedule, step->src, live);
    double to = live_chunks(schedule, step->dst, live);
    bool reduces = step->type == SCHED_RECV_REDUCE || step->type == SCHED_REDUCE;
    bool moved = step->flags & SCHED_PARTIAL;
    bool partial_message = reduces ? !(step->flags & SCHED_LOAD_MESSAGE) : moved;
    bool partial_local = reduces ? !(step->flags & SCHED_LOAD_LOCAL) : moved;
    double each = step->type == SCHED_SEND ? from : to;
    bool token = sched_list_chunks(schedule, step->type == SCHED_SEND ? step->src : step->dst) == 0;
    for (uint32_t p = step->peers.begin; p < step->peers.begin + step->peers.count; p++) {
        bool far = comm->group_of[schedule->peers[p]] != comm->group_of[schedule->rank];
        work->messages[far] += each > 0 || token;
        *(partial_message ? &work->partial[far] : &work->raw[far]) += each;
        if (reduces)
            *(partial_message ? &work->reduced_partial : &work->reduced_raw) += each;
    }
    if (step->type != SCHED_SEND)
        *(partial_local ? &work->reduced_partial : &work->reduced_raw) += from;
}

/* Counts one rank's schedule; false where the algorithm builds none. */
static bool count_rank(const rota_comm *comm, const struct algorithm *algorithm, rota_kind kind,
                       int rank, struct work work[2]) {
    struct algorithm_request request = {.kind = kind,
                                        .nranks = comm->nranks,
                                        .rank = rank,
                                        .root = sched_kind_rooted(kind) ? 0 : -1,
                                        .lanes = 1,
                                        .topology = &comm->topology};
    struct sched *schedule = NULL;
    if (algorithm_build(algorithm, &request, &schedule) != ROTA_OK) {
        error_clear();
        return false;
    }
    for (int tiny = 0; tiny < 2; tiny++) {
        uint32_t chunks = schedule->chunks_per_block;
        uint32_t live = tiny && chunks > TINY_CHUNKS ? TINY_CHUNKS : chunks;
        double share = schedule->blocks * live > 0 ? 1.0 / schedule->blocks / live : 0;
        memset(&work[tiny], 0, sizeof(work[tiny]));
        for (uint32_t i = 0; i < schedule->nsteps; i++)
            count_step(comm, schedule, &schedule->steps[i], live, &work[tiny]);
        for (int side = NEAR; side <= FAR; side++) {
            work[tiny].raw[side] *= share;
            work[tiny].partial[side] *= share;
        }
        work[tiny].reduced_raw *= share;
        work[tiny].reduced_partial *= share;
    }
    sched_free(schedule);
    return true;
}

static void count_traffic(const rota_comm *comm, const struct algorithm *algorithm, rota_kind kind,
                          double crowding, struct select_traffic *traffic) {
    int n = comm->nranks, counted = n <= COUNTED_RANKS ? n : SAMPLED_RANKS;
    struct work work[2], mean[2];
    memset(mean, 0, sizeof(mean));
    traffic->counted = traffic->possible = true;
    double rounds = algorithm->rounds(kind, n);
    for (int i = 0; i < counted && traffic->possible; i++) {
        int rank = counted == n ? i : (int)((int64_t)i * (n - 1) / (counted - 1));
        traffic->possible = count_rank(comm, algorithm, kind, rank, work);
        for (int tiny = 0; tiny < 2 && traffic->possible; tiny++) {
            work_join(&mean[tiny], &work[tiny], 1.0 / counted, false);
            work_join(&traffic->work[tiny], &work[tiny], 1, true);
        }
    }
    /* In a round between hosts somebody sends or receives far away, most often both. */
    double far = ceil(traffic->work[0].messages[FAR] / 2);
    traffic->rounds[FAR] = far < rounds ? far : rounds;
    traffic->rounds[NEAR] = rounds - traffic->rounds[FAR];
    for (int tiny = 0; tiny < 2; tiny++) {
        struct work *busiest = &traffic->work[tiny];
        /* Ranks of a host share its way to the others. */
        double shared = (double)n / comm->topology.ngroups;
        busiest->raw[FAR] *= shared;
        busiest->partial[FAR] *= shared;
        work_join(busiest, &mean[tiny], crowding - 1, false);
    }
}

/* Ranks that share a core, at the fullest host. */
static double crowding(const struct job *job) {
    double most = 1;
    for (int r = 0; r < job->nranks; r++) {
        int here = 0;
        bool counted = false; /* with a rank before */
        for (int other = 0; other < job->nranks; other++) {
            bool together = job_same_host(job, r, other);
            here += together;
            counted = counted || (together && other < r);
        }
        double cores = counted ? here : bootstrap_host_cores(job->records, job->nranks, r);
        most = (double)here / cores > most ? (double)here / cores : most;
    }
    return most;
}

/* The class of links between ranks of a host, and of different ones: of the transport that is
 * preferred among those that all ranks have. */
static int link_between(const rota_comm *comm, int side) {
    for (int i = 0; i < TRANSPORT_COUNT; i++)
        for (int link = 0; link < ROTA_LINK_NATIVE; link++)
            if ((comm->job->common_transports & 1u << i) != 0 &&
                (side == NEAR || link != ROTA_LINK_SHM) &&
                strcmp(transport_at(i)->name, rota_link_name(link)) == 0)
                return link;
    return ROTA_LINK_TCP;
}

static struct select_state *state_of(rota_comm *comm) {
    if (comm->select != NULL)
        return comm->select;
    struct select_state *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        error_raise(ROTA_ERR_MEMORY, "out of memory for selection");
        return NULL;
    }
    state->crowding = crowding(comm->job);
    prices_choose(comm->job->profile, comm->nranks, comm->topology.ngroups, state->crowding,
                  &state->prices);
    state->links[NEAR] = link_between(comm, NEAR);
    state->links[FAR] = link_between(comm, FAR);
    return comm->select = state;
}

static const struct select_traffic *traffic_of(rota_comm *comm, int index, rota_kind kind) {
    struct select_state *state = comm->select;
    if (state->traffic[kind] == NULL)
        state->traffic[kind] = calloc(COMM_MAX_ALGORITHMS, sizeof(*state->traffic[kind]));
    if (state->traffic[kind] == NULL)
        return NULL;
    struct select_traffic *traffic = &state->traffic[kind][index];
    if (!traffic->counted)
        count_traffic(comm, algorithm_at(index), kind, state->crowding, traffic);
    return traffic;
}

void select_free(rota_comm *comm) {
    for (int kind = 0; comm->select != NULL && kind < ROTA_KIND_COUNT; kind++)
        free(comm->select->traffic[kind]);
    free(comm->select);
    comm->select = NULL;
}

size_t select_memory(const rota_comm *comm) {
    size_t bytes = comm->select != NULL ? sizeof(*comm->select) : 0;
    for (int kind = 0; comm->select != NULL && kind < ROTA_KIND_COUNT; kind++)
        if (comm->select->traffic[kind] != NULL)
            bytes += COMM_MAX_ALGORITHMS * sizeof(*comm->select->traffic[kind]);
    return bytes;
}

/* -- prices ------------------------------------------------------------------------------------
 */

/* A call as far as algorithms must fit it. */
struct wanted {
    rota_kind kind;
    int root;
    rota_numerics mode;
    bool user; /* an operator of the caller's, which asks for the canonical tree in every mode */
    size_t element_size, partial_size;
    bool whole_blocks; /* every message must be one block from its origin to its destination */
    size_t count;      /* elements of a block */
    double bytes;      /* of all blocks */
};

struct bill {
    double messages[SIDES], bytes[SIDES], path_bytes, reduced_bytes, us;
};

/* Bytes of one message, at both of its ends: what is passed on must be there first, as far as it
 * does not travel in slices. */
static double hop_bytes(const rota_comm *comm, const struct bill *bill) {
    double messages = bill->messages[NEAR] + bill->messages[FAR];
    double each = messages > 0 ? (bill->bytes[NEAR] + bill->bytes[FAR]) / messages : 0;
    double slice = (double)comm->job->message_bytes;
    return 2 * (each < slice ? each : slice);
}

static bool price(rota_comm *comm, int index, const struct wanted *wanted, int near,
                  struct bill *bill) {
    const struct select_traffic *traffic = traffic_of(comm, index, wanted->kind);
    if (traffic == NULL || !traffic->possible)
        return false;
    const struct link_price *links[SIDES] = {&comm->select->prices.links[near],
                                             &comm->select->prices.links[comm->select->links[FAR]]};
    const struct work *work = &traffic->work[wanted->count <= TINY_CHUNKS];
    double wider = (double)wanted->partial_size / (double)wanted->element_size;
    bill->reduced_bytes = wanted->bytes * (work->reduced_raw + wider * work->reduced_partial);
    bill->us = bill->reduced_bytes * links[work->messages[FAR] > 0]->reduce_us_per_byte;
    for (int side = NEAR; side <= FAR; side++) {
        bill->messages[side] = work->messages[side];
        bill->bytes[side] = wanted->bytes * (work->raw[side] + wider * work->partial[side]);
        bill->us += bill->messages[side] * links[side]->overhead_us +
                    bill->bytes[side] * links[side]->us_per_byte;
    }
    double hop = hop_bytes(comm, bill);
    for (int side = NEAR; side <= FAR; side++)
        bill->us +=
            traffic->rounds[side] * (links[side]->latency_us + hop * links[side]->us_per_byte);
    bill->path_bytes = hop * (traffic->rounds[NEAR] + traffic->rounds[FAR]);
    return true;
}

/* Elements of a block that all ranks agree on. Where a rank knows its own counts only, a usual
 * size.
 */
static size_t agreed_count(const rota_comm *comm, const struct call_args *args) {
    size_t total = 0;
    if (!call_is_vector(args))
        return args->count;
    if (call_counts_are_local(args))
        return 4096 / rota_dtype_size(args->dtype);
    const size_t *counts = args->send_counts != NULL ? args->send_counts : args->recv_counts;
    for (int r = 0; r < comm->nranks; r++)
        total += counts[r];
    return total / (size_t)comm->nranks;
}

static double all_bytes(const rota_comm *comm, const struct call_args *args) {
    return (double)agreed_count(comm, args) * (double)rota_dtype_size(args->dtype) *
           (double)sched_kind_blocks(args->kind, comm->nranks);
}

static struct wanted wanted_of(const rota_comm *comm, const struct call_args *args,
                               const struct reduce_spec *spec) {
    /* Without an operator elements count as 8 bytes at least, so that all types are moved alike. */
    size_t element = rota_dtype_size(args->dtype);
    element = spec == NULL && element < 8 ? 8 : element;
    return (struct wanted){
        .kind = args->kind,
        .root = args->root,
        .mode = spec != NULL && spec->canonical ? ROTA_NUMERICS_REPRODUCIBLE : args->numerics,
        .user = spec != NULL && spec->canonical,
        .element_size = element,
        .partial_size = spec != NULL ? numerics_partial_size(args->numerics, spec) : element,
        .whole_blocks = call_counts_are_local(args),
        .count = agreed_count(comm, args),
        .bytes = all_bytes(comm, args)};
}

/* -- choosing ----------------------------------------------------------------------------------
 */

/* One that the program registered does not run before it is proven. */
static bool proven(const rota_comm *comm, const struct algorithm *algorithm,
                   const struct wanted *wanted) {
    return !algorithm_can(algorithm, wanted->kind, comm->nranks) ||
           algorithm_prove(algorithm, wanted->kind, comm->nranks, wanted->root) == ROTA_OK;
}

static bool fits(const rota_comm *comm, const struct algorithm *algorithm,
                 const struct wanted *wanted) {
    return algorithm_can(algorithm, wanted->kind, comm->nranks) &&
           executor_fits(comm, algorithm, wanted->kind, wanted->root, wanted->partial_size) &&
           (!wanted->whole_blocks ||
            (algorithm->own == NULL &&
             algorithm_widest(algorithm, wanted->kind, comm->nranks, wanted->root) <= 1));
}

static bool keeps(rota_comm *comm, const struct algorithm *algorithm, const struct wanted *wanted) {
    return numerics_allows(comm, algorithm, wanted->kind, wanted->root, wanted->mode);
}

static const struct algorithm *refuse(const rota_comm *comm, const struct algorithm *algorithm,
                                      const struct wanted *wanted, const char *origin) {
    const char *hosts = comm->topology.ngroups > 1 ? " placed as they are" : "";
    error_raise(ROTA_ERR_UNSUPPORTED,
                "%salgorithm %s does not keep the canonical tree of %s%s in %s on %d ranks%s",
                origin, algorithm->name, wanted->user ? "user operators" : "mode ",
                wanted->user ? "" : rota_numerics_name(wanted->mode), rota_kind_name(wanted->kind),
                comm->nranks, hosts);
    return NULL;
}

static const struct algorithm *forced_algorithm(rota_comm *comm, const char *name,
                                                const struct wanted *wanted) {
    const struct algorithm *algorithm = algorithm_find(name);
    rota_kind kind = wanted->kind;
    if (algorithm == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "there is no algorithm \"%.40s\"", name);
    else if (!proven(comm, algorithm, wanted))
        return NULL;
    else if (!fits(comm, algorithm, wanted))
        error_raise(ROTA_ERR_UNSUPPORTED, "algorithm %s cannot do %s on %d ranks", name,
                    rota_kind_name(kind), comm->nranks);
    else if (!keeps(comm, algorithm, wanted))
        return refuse(comm, algorithm, wanted, "");
    else
        return algorithm;
    return NULL;
}

/* The algorithm that a rule orders. */
static const struct algorithm *ruled_algorithm(rota_comm *comm, const struct rule *rule,
                                               const struct wanted *wanted) {
    char place[128];
    rules_place(comm->job->rules, rule, place, sizeof(place));
    strncat(place, ": ", sizeof(place) - strlen(place) - 1);
    if (!fits(comm, rule->algorithm, wanted)) {
        error_raise(ROTA_ERR_UNSUPPORTED, "%salgorithm %s cannot do %s on %d ranks", place,
                    rule->algorithm->name, rota_kind_name(wanted->kind), comm->nranks);
        return NULL;
    }
    return keeps(comm, rule->algorithm, wanted) ? rule->algorithm
                                                : refuse(comm, rule->algorithm, wanted, place);
}

static const struct rule *rule_of(const rota_comm *comm, const struct call_args *args) {
    const struct rules *rules = comm->job->rules;
    return rules == NULL
               ? NULL
               : rules_find(rules, args->kind, (uint64_t)all_bytes(comm, args), comm->nranks);
}

bool select_by_rule(const rota_comm *comm, const struct call_args *args) {
    return comm->forced == NULL && rule_of(comm, args) != NULL;
}

static const struct algorithm *cheapest(rota_comm *comm, const struct wanted *wanted) {
    const struct algorithm *best = NULL, *algorithm = NULL;
    double least = 0;
    struct bill bill;
    for (int i = 0; i < COMM_MAX_ALGORITHMS && (algorithm = algorithm_at(i)) != NULL; i++)
        if (fits(comm, algorithm, wanted) && keeps(comm, algorithm, wanted) &&
            price(comm, i, wanted, comm->select->links[NEAR], &bill) &&
            (best == NULL || bill.us < least)) {
            best = algorithm;
            least = bill.us;
        }
    if (best == NULL)
        error_raise(ROTA_ERR_UNSUPPORTED, "no algorithm does %s on %d ranks",
                    rota_kind_name(wanted->kind), comm->nranks);
    return best;
}

/* *why: which of the ways decided. */
static const struct algorithm *choose(rota_comm *comm, const char *forced,
                                      const struct call_args *args, const struct reduce_spec *spec,
                                      const char **why) {
    struct wanted wanted = wanted_of(comm, args, spec);
    *why = "the call names it";
    if (forced != NULL)
        return forced_algorithm(comm, forced, &wanted);
    *why = "ROTA_ALGORITHM names it";
    if (comm->forced != NULL && !proven(comm, comm->forced, &wanted))
        return NULL;
    if (comm->forced != NULL && fits(comm, comm->forced, &wanted)) {
        if (keeps(comm, comm->forced, &wanted))
            return comm->forced;
        if (args->numerics == ROTA_NUMERICS_REPRODUCIBLE) /* one of two wishes cannot be met */
            return refuse(comm, comm->forced, &wanted, "ROTA_ALGORITHM: ");
    }
    const struct rule *rule = comm->forced == NULL ? rule_of(comm, args) : NULL;
    *why = rule != NULL ? "a rule of ROTA_RULES names it" : "the lowest price";
    if (rule != NULL)
        return ruled_algorithm(comm, rule, &wanted);
    return state_of(comm) != NULL ? cheapest(comm, &wanted) : NULL;
}

/* Where the choice for a call is kept; NULL where more enters than its shape. */
static struct select_memo *memo_of(rota_comm *comm, const char *forced,
                                   const struct call_args *args, const struct call_shape *shape) {
    if (forced != NULL || comm->forced != NULL || comm->job->rules != NULL || args->vector ||
        args->op >= ROTA_OP_COUNT || state_of(comm) == NULL)
        return NULL;
    uint64_t mixed = (shape->words[0] ^ shape->words[1] ^ shape->words[2]) * 0x9e3779b97f4a7c15u;
    return &comm->select->memos[mixed >> 32 & (SELECT_MEMOS - 1)];
}

const struct algorithm *select_algorithm(rota_comm *comm, const char *forced,
                                         const struct call_args *args,
                                         const struct reduce_spec *spec) {
    struct call_shape shape = call_shape_of(args);
    struct select_memo *memo = memo_of(comm, forced, args, &shape);
    if (memo != NULL && memo->algorithm != NULL && memcmp(&memo->shape, &shape, sizeof(shape)) == 0)
        return memo->algorithm;
    const char *why;
    const struct algorithm *algorithm = choose(comm, forced, args, spec, &why);
    if (memo != NULL)
        *memo = (struct select_memo){.shape = shape, .algorithm = algorithm};
    return algorithm;
}

/* -- telling -----------------------------------------------------------------------------------
 */

/* Why an algorithm cannot run the call; NULL when it can. */
static const char *lacks(rota_comm *comm, const struct algorithm *algorithm,
                         const struct wanted *wanted) {
    if (!algorithm_can(algorithm, wanted->kind, comm->nranks))
        return "does no such operation on so many ranks";
    if (!fits(comm, algorithm, wanted))
        return wanted->whole_blocks ? "forwards blocks, whose lengths not all ranks know"
                                    : "a message would hold more than the transports carry";
    if (!keeps(comm, algorithm, wanted))
        return "does not keep the canonical tree that the mode or operator asks for";
    return NULL;
}

static void tell_prices(const struct select_state *state, const rota_comm *comm,
                        rota_candidate *candidate) {
    candidate->hosts = comm->topology.ngroups;
    candidate->crowding = state->crowding;
    candidate->measured_ranks = state->prices.measured_ranks;
    for (int link = 0; link < ROTA_LINK_COUNT; link++) {
        candidate->latency_us[link] = state->prices.links[link].latency_us;
        candidate->overhead_us[link] = state->prices.links[link].overhead_us;
        candidate->us_per_byte[link] = state->prices.links[link].us_per_byte;
        candidate->reduce_us_per_byte[link] = state->prices.links[link].reduce_us_per_byte;
    }
}

static void tell_bill(rota_comm *comm, int index, const struct wanted *wanted, int near,
                      rota_candidate *candidate) {
    struct bill bill;
    candidate->able = price(comm, index, wanted, near, &bill);
    if (!candidate->able)
        return;
    candidate->price_us = bill.us;
    const double *rounds = traffic_of(comm, index, wanted->kind)->rounds;
    candidate->rounds = rounds[NEAR] + rounds[FAR];
    candidate->far_rounds = rounds[FAR];
    candidate->messages[near] = bill.messages[NEAR];
    candidate->bytes[near] = bill.bytes[NEAR];
    candidate->messages[comm->select->links[FAR]] += bill.messages[FAR];
    candidate->bytes[comm->select->links[FAR]] += bill.bytes[FAR];
    candidate->path_bytes = bill.path_bytes;
    candidate->reduced_bytes = bill.reduced_bytes;
}

static int index_of(const char *name) {
    int index = 0;
    while (algorithm_at(index) != NULL && strcmp(algorithm_at(index)->name, name) != 0)
        index++;
    return index;
}

static const struct native_form *form_of(const rota_comm *comm, const struct call_args *args,
                                         const struct reduce_spec *spec, const rota_call *call) {
    if (args->vector || !collective_may_be_native(comm, call) || select_by_rule(comm, args) ||
        atomic_load_explicit(&comm->native_state, memory_order_acquire) != NATIVE_READY)
        return NULL;
    return comm->native_ops->query(comm->native, args->kind,
                                   args->count * rota_dtype_size(args->dtype), spec);
}

bool select_candidate(rota_comm *comm, struct call_args *args, const struct reduce_spec *spec,
                      const rota_call *call, int index, rota_candidate *candidate) {
    args->numerics = numerics_of_call(comm, args->kind, call);
    struct wanted wanted = wanted_of(comm, args, spec);
    const struct native_form *form = form_of(comm, args, spec, call);
    const struct select_state *state = state_of(comm);
    const char *why = "";
    *candidate = (rota_candidate){.size = candidate->size};
    candidate->count = index_of("") + (form != NULL);
    if (state == NULL || index < 0 || index >= candidate->count)
        return false;
    tell_prices(state, comm, candidate);
    if (form != NULL && index == 0) {
        candidate->native = candidate->chosen = candidate->able = true;
        snprintf(candidate->name, sizeof(candidate->name), "%s", form->name);
        tell_bill(comm, index_of(form->equals), &wanted, ROTA_LINK_NATIVE, candidate);
        int length = snprintf(candidate->why, sizeof(candidate->why),
                              "a native form runs the call wherever there is one; it equals %s",
                              form->equals);
        if (form->block > 0)
            snprintf(candidate->why + length, sizeof(candidate->why) - (size_t)length,
                     ", by levels: blocks of %d ranks that share a cache or a NUMA node, then "
                     "between blocks",
                     form->block);
        return true;
    }
    const struct algorithm *algorithm = algorithm_at(index - (form != NULL));
    snprintf(candidate->name, sizeof(candidate->name), "%s", algorithm->name);
    const char *lack = lacks(comm, algorithm, &wanted);
    if (lack == NULL)
        tell_bill(comm, index - (form != NULL), &wanted, comm->select->links[NEAR], candidate);
    candidate->chosen = form == NULL && choose(comm, call != NULL ? call->algorithm : NULL, args,
                                               spec, &why) == algorithm;
    error_clear();
    snprintf(candidate->why, sizeof(candidate->why), "%s",
             candidate->chosen ? why
             : lack != NULL    ? lack
                               : "");
    return true;
}
