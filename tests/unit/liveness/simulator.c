/* The network of the simulator: messages are coded and decoded as on a wire, delayed, lost, cut. */
#include "simulator.h"
#include <stdio.h>

struct context { /* one per rank: who sends */
    struct sim *sim;
    int rank;
};
static struct context contexts[SIM_RANKS];

uint32_t sim_random(struct sim *sim, uint32_t below) {
    sim->random ^= sim->random << 13;
    sim->random ^= sim->random >> 7;
    sim->random ^= sim->random << 17;
    return (uint32_t)((sim->random >> 20) % below);
}

static void push(struct sim *sim, struct sim_event event) {
    if (sim->nevents == sim->size) {
        sim->size = sim->size * 2 + 64;
        sim->events = realloc(sim->events, sim->size * sizeof *sim->events);
    }
    event.order = sim->sent++;
    sim->events[sim->nevents++] = event;
}

void sim_call(struct sim *sim, int64_t when, void (*call)(struct sim *sim, int argument),
              int argument) {
    push(sim, (struct sim_event){
                  .when = when, .type = SIM_CALL, .from = -1, .to = argument, .call = call});
}

static void send_bytes(struct sim *sim, int type, int from, int to, const void *bytes,
                       size_t nbytes) {
    struct sim_rank *sender = &sim->ranks[from];
    if (sender->dead)
        return;
    if (sender->die_after >= 0 && sender->die_after-- == 0) {
        sim_kill(sim, from);
        return;
    }
    bool lost =
        (sim->cut[from] >> to & 1) != 0 || sim_random(sim, 100) < (uint32_t)sim->drop_percent;
    int64_t delay = 50000 + sim_random(sim, 2000) * 1000;
    if (sim_random(sim, 100) < (uint32_t)sim->slow_percent)
        delay += sim_random(sim, (uint32_t)sim->slow_ms) * SIM_MS;
    if (lost)
        return;
    int64_t when = sim->now + delay;
    if (!sim->reorder && when <= sim->last[from][to])
        when = sim->last[from][to] + 1;
    sim->last[from][to] = when;
    struct sim_event event = {.when = when, .from = from, .to = to, .nbytes = nbytes};
    event.type = (unsigned)type;
    event.bytes = malloc(nbytes);
    memcpy(event.bytes, bytes, nbytes);
    push(sim, event);
}

static void on_view_send(void *context, int to, const struct view_message *message) {
    struct context *one = context;
    size_t bytes = wire_view_write(message, one->sim->payload, WIRE_MAX);
    if (bytes == 0)
        abort();
    send_bytes(one->sim, SIM_VIEW, one->rank, to, one->sim->payload, bytes);
}

static void on_agreement_send(void *context, int to, const struct agreement_message *message) {
    struct context *one = context;
    send_bytes(one->sim, SIM_AGREEMENT, one->rank, to, message, sizeof *message);
}

static uint32_t bits(const struct ranks *set) {
    return (uint32_t)set->words[0];
}

static void on_decided(void *context, const struct view_value *value) {
    struct context *one = context;
    struct sim_rank *rank = &one->sim->ranks[one->rank];
    uint32_t epoch = view_epoch(rank->view);
    if (rank->dead)
        return; /* it died while it sent what it would have told its user next */
    if (epoch >= SIM_EPOCHS || rank->decided[epoch])
        abort();
    rank->decided[epoch] = true;
    rank->failed[epoch] = bits(value->failed);
    memcpy(rank->text[epoch], value->text, VIEW_TEXT);
    rank->changes++;
    rank->view_changed = true;
}

static void on_unchanged(void *context) {
    struct context *one = context;
    one->sim->ranks[one->rank].unchanged++;
}

static void on_isolated(void *context, const char *text, const struct ranks *unreached) {
    struct context *one = context;
    struct sim_rank *rank = &one->sim->ranks[one->rank];
    if (text[0] == 0)
        abort();
    rank->isolated++;
    rank->unreached = bits(unreached);
}

static void on_agreed(void *context, const struct liveness_agreement *agreement) {
    struct context *one = context;
    struct sim_rank *rank = &one->sim->ranks[one->rank];
    uint32_t topic = agreement->topic.number;
    if (rank->dead)
        return;
    if (rank->agreed[topic])
        abort();
    rank->agreed[topic] = true;
    rank->result[topic] = agreement->result;
    for (int i = 0; i < agreement->nfailed; i++)
        rank->left_out[topic] |= 1u << agreement->failed[i];
}

void sim_begin(struct sim *sim, int n, uint64_t seed) {
    memset(sim, 0, sizeof *sim);
    sim->n = n;
    sim->seed = seed;
    sim->random = seed * 0x9e3779b97f4a7c15u + 1;
    sim->now = SIM_MS;
    sim->slow_ms = 120;
    for (int i = 0; i < 8; i++)
        (void)sim_random(sim, 2);
    struct view_times times = {.collect = 20 * SIM_MS,
                               .ballot = 100 * SIM_MS,
                               .takeover = 150 * SIM_MS,
                               .isolation = 1000 * SIM_MS};
    for (int r = 0; r < n; r++) {
        contexts[r] = (struct context){.sim = sim, .rank = r};
        struct view_events view = {.context = &contexts[r],
                                   .send = on_view_send,
                                   .decided = on_decided,
                                   .unchanged = on_unchanged,
                                   .isolated = on_isolated};
        struct agreement_events agreement = {
            .context = &contexts[r], .send = on_agreement_send, .agreed = on_agreed};
        sim->ranks[r].die_after = -1;
        sim->ranks[r].proofs = true;
        sim->ranks[r].view = view_create(n, r, &times, &view);
        sim->ranks[r].agreements = agreements_create(n, r, sim->ranks[r].view, &agreement);
    }
}

void sim_end(struct sim *sim) {
    for (size_t i = 0; i < sim->nevents; i++)
        free(sim->events[i].bytes);
    free(sim->events);
    for (int r = 0; r < sim->n; r++) {
        agreements_destroy(sim->ranks[r].agreements);
        view_destroy(sim->ranks[r].view);
    }
}

static bool runs(const struct sim *sim, int rank) {
    return !sim->ranks[rank].dead && !sim->ranks[rank].stopped;
}

/* As liveness.c does after each turn. */
static void after_turn(struct sim *sim, int rank) {
    struct sim_rank *one = &sim->ranks[rank];
    if (one->view_changed && !view_isolated(one->view)) {
        one->view_changed = false;
        agreements_view_changed(one->agreements, sim->now);
    }
}

static void deliver(struct sim *sim, const struct sim_event *event) {
    struct sim_rank *to = event->type != SIM_CALL ? &sim->ranks[event->to] : NULL;
    if (event->type == SIM_CALL) {
        event->call(sim, event->to);
    } else if (event->type == SIM_PROOF) {
        view_evidence(to->view, event->from, true, ROTA_ERR_PEER, "exited", sim->now);
    } else if (event->type == SIM_VIEW) {
        struct wire_view view;
        if (!wire_view_init(&view, sim->n) || !wire_view_read(event->bytes, event->nbytes, &view))
            abort();
        view_receive(to->view, event->from, &view.message, sim->now);
        wire_view_free(&view);
    } else if (!ranks_has(view_dead(to->view), event->from)) {
        struct agreement_message message;
        memcpy(&message, event->bytes, sizeof message);
        view_heard(to->view, event->from, message.epoch);
        if (!view_isolated(to->view) && ranks_has(view_members(to->view), event->from))
            agreements_receive(to->agreements, event->from, &message, sim->now);
    }
    if (event->type != SIM_CALL)
        after_turn(sim, event->to);
}

/* The next event that somebody can take, or SIZE_MAX. */
static size_t next_event(const struct sim *sim) {
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < sim->nevents; i++) {
        const struct sim_event *one = &sim->events[i];
        if (one->type != SIM_CALL && sim->ranks[one->to].stopped)
            continue;
        if (best == SIZE_MAX || one->when < sim->events[best].when ||
            (one->when == sim->events[best].when && one->order < sim->events[best].order))
            best = i;
    }
    return best;
}

static int64_t deadline_of(const struct sim *sim, int rank) {
    const struct sim_rank *one = &sim->ranks[rank];
    int64_t a = view_deadline(one->view);
    int64_t b = view_isolated(one->view) ? INT64_MAX : agreements_deadline(one->agreements);
    return a < b ? a : b;
}

static int next_tick(const struct sim *sim) {
    int best = -1;
    for (int r = 0; r < sim->n; r++)
        if (runs(sim, r) && (best < 0 || deadline_of(sim, r) < deadline_of(sim, best)))
            best = r;
    return best;
}

void sim_run(struct sim *sim, int64_t until) {
    for (;;) {
        size_t index = next_event(sim);
        int ticker = next_tick(sim);
        int64_t event = index != SIZE_MAX ? sim->events[index].when : INT64_MAX;
        int64_t tick = ticker >= 0 ? deadline_of(sim, ticker) : INT64_MAX;
        if ((event < tick ? event : tick) > until)
            break;
        if (event <= tick) {
            struct sim_event taken = sim->events[index];
            sim->events[index] = sim->events[--sim->nevents];
            sim->now = taken.when > sim->now ? taken.when : sim->now;
            if (taken.type == SIM_CALL || !sim->ranks[taken.to].dead)
                deliver(sim, &taken);
            free(taken.bytes);
        } else {
            sim->now = tick > sim->now ? tick : sim->now;
            view_tick(sim->ranks[ticker].view, sim->now);
            after_turn(sim, ticker);
            if (!view_isolated(sim->ranks[ticker].view))
                agreements_tick(sim->ranks[ticker].agreements, sim->now);
        }
    }
    sim->now = until;
}

/* -- what happens -------------------------------------------------------------------------------
 */

void sim_kill(struct sim *sim, int rank) {
    if (sim->ranks[rank].dead)
        return;
    sim->ranks[rank].dead = true;
    for (int r = 0; r < sim->n; r++)
        if (r != rank && sim->ranks[r].proofs)
            push(sim, (struct sim_event){.when = sim->now + sim_random(sim, 60) * SIM_MS,
                                         .type = SIM_PROOF,
                                         .from = rank,
                                         .to = r});
}

void sim_stop(struct sim *sim, int rank) {
    sim->ranks[rank].stopped = true;
}

void sim_resume(struct sim *sim, int rank) {
    sim->ranks[rank].stopped = false;
}

void sim_suspect(struct sim *sim, int pair) {
    int by = pair / SIM_RANKS, whom = pair % SIM_RANKS;
    if (runs(sim, by)) {
        view_evidence(sim->ranks[by].view, whom, false, ROTA_ERR_TIMEOUT, "does not answer",
                      sim->now);
        after_turn(sim, by);
    }
}

void sim_agree(struct sim *sim, int pair) {
    int rank = pair / SIM_TOPICS, number = pair % SIM_TOPICS, all[SIM_RANKS];
    struct sim_rank *one = &sim->ranks[rank];
    struct liveness_topic topic = {.number = (uint32_t)number};
    if (!runs(sim, rank) || view_isolated(one->view))
        return;
    for (int r = 0; r < sim->n; r++)
        all[r] = r;
    one->began[number] = true;
    one->ballot[number].flags = ~(UINT64_C(1) << rank);
    one->ballot[number].highest = sim_random(sim, 1000);
    if (!agreements_begin(one->agreements, &topic, all, sim->n, &one->ballot[number], sim->now))
        abort();
    after_turn(sim, rank);
}

void sim_partition(struct sim *sim, uint32_t side) {
    for (int r = 0; r < sim->n; r++)
        sim->cut[r] |= side >> r & 1 ? ~side : side;
}

/* -- what must hold -----------------------------------------------------------------------------
 */

uint32_t sim_members(const struct sim *sim, int rank) {
    return bits(view_members(sim->ranks[rank].view));
}

static char wrong[512];

static const char *wrong_agreement(const struct sim *sim, int r, int topic) {
    const struct sim_rank *one = &sim->ranks[r];
    struct liveness_ballot expected = {.flags = UINT64_MAX};
    for (int i = 0; i < sim->n; i++) {
        if (one->left_out[topic] >> i & 1)
            continue;
        if (!sim->ranks[i].began[topic]) {
            snprintf(wrong, sizeof wrong, "topic %d at rank %d: without rank %d", topic, r, i);
            return wrong;
        }
        expected.flags &= sim->ranks[i].ballot[topic].flags;
        if (expected.highest < sim->ranks[i].ballot[topic].highest)
            expected.highest = sim->ranks[i].ballot[topic].highest;
    }
    if (expected.flags != one->result[topic].flags ||
        expected.highest != one->result[topic].highest) {
        snprintf(wrong, sizeof wrong, "topic %d at rank %d: %llx %u, not %llx %u", topic, r,
                 (unsigned long long)one->result[topic].flags, one->result[topic].highest,
                 (unsigned long long)expected.flags, expected.highest);
        return wrong;
    }
    return NULL;
}

static const char *wrong_pair(const struct sim *sim, int a, int b) {
    const struct sim_rank *one = &sim->ranks[a], *other = &sim->ranks[b];
    for (int e = 1; e < SIM_EPOCHS; e++)
        if (one->decided[e] && other->decided[e] &&
            (one->failed[e] != other->failed[e] || strcmp(one->text[e], other->text[e]) != 0)) {
            snprintf(wrong, sizeof wrong, "epoch %d: %x \"%s\" at rank %d, %x \"%s\" at rank %d", e,
                     one->failed[e], one->text[e], a, other->failed[e], other->text[e], b);
            return wrong;
        }
    for (int t = 0; t < SIM_TOPICS; t++)
        if (one->agreed[t] && other->agreed[t] &&
            (one->result[t].flags != other->result[t].flags ||
             one->result[t].highest != other->result[t].highest ||
             one->left_out[t] != other->left_out[t])) {
            snprintf(wrong, sizeof wrong, "topic %d: ranks %d and %d differ", t, a, b);
            return wrong;
        }
    return NULL;
}

const char *sim_wrong(const struct sim *sim) {
    const char *text = NULL;
    for (int a = 0; a < sim->n && text == NULL; a++) {
        if (sim->ranks[a].dead)
            continue;
        for (int t = 0; t < SIM_TOPICS && text == NULL; t++)
            if (sim->ranks[a].agreed[t])
                text = wrong_agreement(sim, a, t);
        for (int b = 0; b < a && text == NULL; b++)
            if (!sim->ranks[b].dead)
                text = wrong_pair(sim, a, b);
        if (sim->ranks[a].isolated > 1)
            text = "isolated twice";
    }
    return text;
}
