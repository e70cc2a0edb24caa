/* View changes by ballots.
 *
 * Design notes. Each epoch decides one value, the set of ranks that leave, by single-decree Paxos
 * among the members of its view. What is not Paxos's:
 *
 * Dead ranks. `dead` is what is proved; it only grows. A ballot's set D is the coordinator's when
 * the ballot begins, is fixed for the ballot and travels in its messages; who takes part adds it to
 * its own, and messages of the dead are dropped from then on, also those still on their way. A set
 * S of answers is a quorum of a ballot when it is
 *     more than half of the view, or exactly half with its lowest rank, or all of view - D.
 * It is counted over the whole view, never over view - D: silent ranks may have decided with ranks
 * that died since, so going on without both may make two views of one epoch.
 *
 * Learning. A decision is taken in only when no higher ballot was promised; else the value comes by
 * that ballot. So acceptors of past epochs are kept and answer on; what they decided they report.
 *
 * Who coordinates: the lowest member that is neither dead nor suspected here. It collects evidence
 * for a moment, then asks all who are not proved dead. Who answers has not failed, whoever
 * suspected it; who is silent has. Others take over when they hear nothing from it for a while. */
#include "liveness/view.h"
#include <stdio.h>

enum view_state {
    VIEW_IDLE,
    VIEW_WAITING,    /* for the coordinator */
    VIEW_COLLECTING, /* we are the coordinator, from here on */
    VIEW_PREPARING,
    VIEW_ACCEPTING
};

/* The acceptor of one epoch. The set of a value that was decided is in view->removed_in. */
struct view_acceptor {
    struct view_ballot promised, accepted;
    rota_status status;
    char text[VIEW_TEXT];
};

struct view {
    int n, self;
    struct view_times times;
    struct view_events events;
    uint32_t epoch;
    bool isolated;
    struct view_acceptor *acceptors; /* [epoch]; every epoch removes a rank, so n are enough */
    uint32_t *removed_in;            /* per rank: the epoch that decided so; UINT32_MAX: member */
    char (**reasons)[VIEW_REASON];   /* per rank; NULL: none */
    bool *only_silent;               /* per rank: nothing but its silence is known */
    struct ranks members, dead, left, suspected, heard, accepted_failed, scratch;
    struct ranks gave_up; /* said that they are isolated */

    enum view_state state;
    int64_t until, trouble; /* of the state; since when a decision is wanted, 0: none is */
    int coordinator;        /* WAITING: for whom */
    uint32_t highest_round; /* seen in this epoch */
    uint8_t *missed;        /* per rank: ballots in a row that it did not answer */
    struct view_ballot mine;
    struct ranks ballot_dead, answers; /* D; promises or acceptances */
    struct view_ballot best;           /* of the promises; round UINT32_MAX: decided there */
    struct view_value proposal;
    struct ranks proposal_failed;
};

static int compare(struct view_ballot a, struct view_ballot b) {
    if (a.round != b.round)
        return a.round < b.round ? -1 : 1;
    return a.rank < b.rank ? -1 : a.rank > b.rank;
}

static struct view_acceptor *current(struct view *view) {
    return &view->acceptors[view->epoch];
}

/* -- life ---------------------------------------------------------------------------------------
 */

void view_destroy(struct view *view) {
    if (view == NULL)
        return;
    struct ranks *sets[] = {&view->members,     &view->dead,    &view->suspected,
                            &view->heard,       &view->scratch, &view->accepted_failed,
                            &view->ballot_dead, &view->answers, &view->proposal_failed,
                            &view->left,        &view->gave_up};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++)
        ranks_free(sets[i]);
    for (int rank = 0; view->reasons != NULL && rank < view->n; rank++)
        free(view->reasons[rank]);
    free(view->reasons);
    free(view->acceptors);
    free(view->removed_in);
    free(view->only_silent);
    free(view->missed);
    free(view);
}

struct view *view_create(int nranks, int self, const struct view_times *times,
                         const struct view_events *events) {
    struct view *view = calloc(1, sizeof *view);
    if (view == NULL)
        return NULL;
    view->n = nranks;
    view->self = self;
    view->times = *times;
    view->events = *events;
    view->acceptors = calloc((size_t)nranks + 1, sizeof *view->acceptors);
    view->removed_in = malloc((size_t)nranks * sizeof *view->removed_in);
    view->reasons = calloc((size_t)nranks, sizeof *view->reasons);
    view->only_silent = calloc((size_t)nranks, sizeof *view->only_silent);
    view->missed = calloc((size_t)nranks, sizeof *view->missed);
    bool made = view->acceptors != NULL && view->removed_in != NULL && view->reasons != NULL &&
                view->only_silent != NULL && view->missed != NULL &&
                ranks_init(&view->members, nranks) && ranks_init(&view->dead, nranks) &&
                ranks_init(&view->suspected, nranks) && ranks_init(&view->heard, nranks) &&
                ranks_init(&view->scratch, nranks) && ranks_init(&view->accepted_failed, nranks) &&
                ranks_init(&view->ballot_dead, nranks) && ranks_init(&view->answers, nranks) &&
                ranks_init(&view->proposal_failed, nranks) && ranks_init(&view->left, nranks) &&
                ranks_init(&view->gave_up, nranks);
    if (!made) {
        view_destroy(view);
        return NULL;
    }
    view->proposal.failed = &view->proposal_failed;
    for (int rank = 0; rank < nranks; rank++) {
        view->removed_in[rank] = UINT32_MAX;
        ranks_add(&view->members, rank);
    }
    return view;
}

uint32_t view_epoch(const struct view *view) {
    return view->epoch;
}
bool view_isolated(const struct view *view) {
    return view->isolated;
}
const struct ranks *view_members(const struct view *view) {
    return &view->members;
}
bool view_removed_before(const struct view *view, int rank, uint32_t epoch) {
    return view->removed_in[rank] < epoch;
}
const struct ranks *view_dead(const struct view *view) {
    return &view->dead;
}

/* -- messages out -------------------------------------------------------------------------------
 */

static void send_to(struct view *view, int to, const struct view_message *message) {
    view->events.send(view->events.context, to, message);
}

static void send_plain(struct view *view, int to, enum view_message_type type, uint32_t epoch,
                       struct view_ballot ballot) {
    struct view_message message = {.type = type, .epoch = epoch, .ballot = ballot};
    send_to(view, to, &message);
}

static void send_evidence(struct view *view, int to, int peer) {
    struct view_message message = {.type = VIEW_EVIDENCE,
                                   .epoch = view->epoch,
                                   .peer = peer,
                                   .proved = ranks_has(&view->dead, peer),
                                   .reason =
                                       view->reasons[peer] != NULL ? *view->reasons[peer] : ""};
    send_to(view, to, &message);
}

/* To the members of `set` but oneself and the dead. */
static void broadcast(struct view *view, const struct ranks *set,
                      const struct view_message *message) {
    RANKS_EACH (set, rank)
        if (rank != view->self && !ranks_has(&view->dead, rank))
            send_to(view, rank, message);
}

/* What an epoch accepted, as a value; in past epochs that is what it decided. False: nothing. */
static bool accepted_value(struct view *view, uint32_t epoch, struct view_value *value) {
    const struct view_acceptor *acceptor = &view->acceptors[epoch];
    if (acceptor->accepted.round == 0)
        return false;
    value->status = acceptor->status;
    value->failed = &view->accepted_failed;
    memcpy(value->text, acceptor->text, sizeof value->text);
    if (epoch < view->epoch) {
        value->failed = &view->scratch;
        ranks_clear(&view->scratch);
        for (int rank = 0; rank < view->n; rank++)
            if (view->removed_in[rank] == epoch)
                ranks_add(&view->scratch, rank);
    }
    return true;
}

static void send_decision(struct view *view, int to, uint32_t epoch) {
    struct view_value value;
    if (!accepted_value(view, epoch, &value))
        return;
    struct view_message message = {.type = VIEW_DECIDE,
                                   .epoch = epoch,
                                   .ballot = view->acceptors[epoch].accepted,
                                   .value = &value};
    send_to(view, to, &message);
}

/* -- coordinating -------------------------------------------------------------------------------
 */

static void begin(struct view *view, int64_t now);
static void check_answers(struct view *view, bool late, int64_t now);

static bool is_quorum(const struct view *view, const struct ranks *set) {
    int all = ranks_count(&view->members), count = 0;
    bool all_living = true;
    RANKS_EACH (&view->members, rank) {
        bool in = ranks_has(set, rank);
        count += in;
        all_living &= in || ranks_has(&view->ballot_dead, rank);
    }
    return 2 * count > all || all_living ||
           (2 * count == all && ranks_has(set, ranks_next(&view->members, 0)));
}

/* What this state of the ballot asks of the members. Repeated to all, so that those who have
 * answered know that it goes on. */
static void ask(struct view *view, int64_t now) {
    bool preparing = view->state == VIEW_PREPARING;
    struct view_message message = {.type = preparing ? VIEW_PREPARE : VIEW_ACCEPT,
                                   .epoch = view->epoch,
                                   .ballot = view->mine,
                                   .dead = &view->ballot_dead,
                                   .left = &view->left,
                                   .value = preparing ? NULL : &view->proposal};
    view->until = now + view->times.ballot;
    broadcast(view, &view->members, &message);
}

static void start_ballot(struct view *view, int64_t now) {
    struct view_acceptor *acceptor = current(view);
    struct view_value value;
    if (view->highest_round < acceptor->promised.round)
        view->highest_round = acceptor->promised.round;
    view->mine = (struct view_ballot){++view->highest_round, (uint32_t)view->self};
    acceptor->promised = view->mine;
    ranks_copy(&view->ballot_dead, &view->dead);
    ranks_clear(&view->answers);
    ranks_add(&view->answers, view->self);
    view->best = (struct view_ballot){0, 0};
    if (accepted_value(view, view->epoch, &value)) {
        view->best = acceptor->accepted;
        view->proposal = value;
        view->proposal.failed = &view->proposal_failed;
        ranks_copy(&view->proposal_failed, value.failed);
    }
    view->state = VIEW_PREPARING;
    ask(view, now);
    check_answers(view, false, now);
}

static void describe_failed(struct view *view) {
    struct view_value *value = &view->proposal;
    size_t used = 0;
    value->status = ROTA_ERR_TIMEOUT;
    value->text[0] = 0;
    RANKS_EACH (&view->proposal_failed, rank) {
        char name[128];
        bool dead = ranks_has(&view->dead, rank);
        if (dead || (view->reasons[rank] != NULL && !view->only_silent[rank]))
            value->status = ROTA_ERR_PEER;
        snprintf(name, sizeof name, "rank %d", rank);
        if (view->events.name != NULL)
            view->events.name(view->events.context, rank, name, sizeof name);
        const char *reason = !dead                          ? "does not answer"
                             : ranks_has(&view->left, rank) ? VIEW_LEFT
                                                            : "exited";
        if (view->reasons[rank] != NULL && (*view->reasons[rank])[0] != 0)
            reason = *view->reasons[rank];
        int wrote = snprintf(value->text + used, sizeof value->text - used, "%s%s %s",
                             used > 0 ? "; " : "", name, reason);
        if (wrote < 0 || used + (size_t)wrote >= sizeof value->text)
            break; /* cut: the set itself is whole */
        used += (size_t)wrote;
    }
}

static void propose(struct view *view, int64_t now) {
    struct view_acceptor *acceptor = current(view);
    acceptor->accepted = view->mine;
    acceptor->status = view->proposal.status;
    memcpy(acceptor->text, view->proposal.text, sizeof acceptor->text);
    ranks_copy(&view->accepted_failed, &view->proposal_failed);
    view->state = VIEW_ACCEPTING;
    ranks_clear(&view->answers);
    ranks_add(&view->answers, view->self);
    ask(view, now);
    check_answers(view, false, now);
}

static void isolate(struct view *view, const char *text, const struct ranks *unreached) {
    const struct view_message message = {.type = VIEW_ISOLATED, .epoch = view->epoch};
    view->isolated = true;
    view->state = VIEW_IDLE;
    view->trouble = 0;
    /* Those who wait for this rank hear it now, and not when they ask it next. */
    broadcast(view, &view->members, &message);
    view->events.isolated(view->events.context, text, unreached);
}

/* The current epoch's accepted value is decided: the next view. */
static void apply(struct view *view, int64_t now) {
    struct view_value value;
    (void)accepted_value(view, view->epoch, &value);
    bool out = ranks_has(value.failed, view->self);
    RANKS_EACH (value.failed, rank)
        view->removed_in[rank] = view->epoch;
    ranks_subtract(&view->members, value.failed);
    ranks_subtract(&view->suspected, value.failed);
    ranks_subtract(&view->gave_up, value.failed);
    view->epoch++;
    view->state = VIEW_IDLE;
    view->trouble = 0;
    view->highest_round = 0;
    if (out) {
        char text[VIEW_TEXT];
        snprintf(text, sizeof text, "the other ranks went on without this one (epoch %u): %.180s",
                 view->epoch, value.text);
        isolate(view, text, &view->members);
        return;
    }
    view->events.decided(view->events.context, &value);
    begin(view, now);
}

static void decide(struct view *view, int64_t now) {
    uint32_t epoch = view->epoch;
    ranks_copy(&view->answers, &view->members);
    RANKS_EACH (&view->answers, rank)
        if (rank != view->self && !ranks_has(&view->dead, rank))
            send_decision(view, rank, epoch);
    apply(view, now);
}

/* All answered a ballot: who was suspected lives. */
static void nobody_failed(struct view *view, int64_t now) {
    view->state = VIEW_IDLE;
    view->trouble = 0;
    ranks_clear(&view->suspected);
    view->events.unchanged(view->events.context);
    begin(view, now); /* a death may have been proved meanwhile */
}

/* Counts a ballot that ended without answers of some; whether one of them is to get another. */
static bool be_patient(struct view *view, int64_t now) {
    bool patient = false;
    if (now >= view->trouble + view->times.isolation * 3 / 5)
        return false; /* else this rank's own time is over, too */
    RANKS_EACH (&view->members, rank) {
        if (ranks_has(&view->answers, rank) || ranks_has(&view->ballot_dead, rank))
            continue;
        bool suspected = ranks_has(&view->suspected, rank);
        if (view->missed[rank] < VIEW_PATIENCE)
            view->missed[rank]++;
        patient |= view->missed[rank] < (suspected ? VIEW_PATIENCE_SUSPECTED : VIEW_PATIENCE);
    }
    return patient;
}

/* What is to be decided, if nothing was accepted before: without those who did not answer. */
static void propose_failed(struct view *view, int64_t now) {
    ranks_copy(&view->proposal_failed, &view->members);
    ranks_subtract(&view->proposal_failed, &view->answers);
    if (ranks_empty(&view->proposal_failed)) {
        struct view_message message = {
            .type = VIEW_UNCHANGED, .epoch = view->epoch, .ballot = view->mine};
        broadcast(view, &view->members, &message);
        nobody_failed(view, now);
        return;
    }
    RANKS_EACH (&view->proposal_failed, rank)
        if (!ranks_has(&view->suspected, rank) && !ranks_has(&view->dead, rank)) {
            ranks_add(&view->suspected, rank);
            view->only_silent[rank] = true;
        }
    describe_failed(view);
    propose(view, now);
}

static void check_promises(struct view *view, bool late, int64_t now) {
    RANKS_EACH (&view->members, rank)
        if (!late && !ranks_has(&view->answers, rank) && !ranks_has(&view->ballot_dead, rank))
            return;
    bool quorum = is_quorum(view, &view->answers);
    if (quorum && view->best.round != 0)
        propose(view, now);
    else if (!quorum || be_patient(view, now))
        ask(view, now);
    else
        propose_failed(view, now);
}

static bool knows_more_dead(const struct view *view) {
    RANKS_EACH (&view->members, rank)
        if (ranks_has(&view->dead, rank) && !ranks_has(&view->ballot_dead, rank))
            return true;
    return false;
}

static void check_answers(struct view *view, bool late, int64_t now) {
    if (compare(current(view)->promised, view->mine) != 0) {
        view->state = VIEW_IDLE; /* a higher ballot was promised: ours is void */
        begin(view, now);
    } else if (knows_more_dead(view)) {
        start_ballot(view, now); /* D is fixed for a ballot */
    } else if (view->state == VIEW_PREPARING) {
        check_promises(view, late, now);
    } else if (view->state == VIEW_ACCEPTING) {
        if (is_quorum(view, &view->answers))
            decide(view, now);
        else if (late)
            ask(view, now);
    }
}

/* -- evidence -----------------------------------------------------------------------------------
 */

static int choose_coordinator(const struct view *view) {
    RANKS_EACH (&view->members, rank)
        if (!ranks_has(&view->dead, rank) && !ranks_has(&view->suspected, rank))
            return rank;
    return view->self;
}

static bool has_evidence(const struct view *view) {
    RANKS_EACH (&view->members, rank)
        if (ranks_has(&view->dead, rank) || ranks_has(&view->suspected, rank))
            return true;
    return false;
}

/* Who hears nothing takes over itself, the lower ranks first: asking one after the other would take
 * too long when many are cut off. */
static void wait_for(struct view *view, int coordinator, int64_t now) {
    int64_t lower = 0;
    RANKS_EACH (&view->members, rank)
        lower += rank < view->self && rank != coordinator && !ranks_has(&view->dead, rank) &&
                 !ranks_has(&view->suspected, rank);
    view->state = VIEW_WAITING;
    view->coordinator = coordinator;
    view->until = now + view->times.takeover + 2 * view->times.takeover * lower / view->n;
    if (view->trouble == 0) {
        view->trouble = now;
        memset(view->missed, 0, (size_t)view->n);
        ranks_clear(&view->heard);
    }
}

/* With evidence: collect, or tell the coordinator and wait. */
static void begin(struct view *view, int64_t now) {
    if (!has_evidence(view)) {
        view->state = VIEW_IDLE;
        view->trouble = 0;
        return;
    }
    int coordinator = choose_coordinator(view);
    bool first = view->trouble == 0;
    wait_for(view, coordinator, now);
    if (coordinator == view->self) {
        view->state = VIEW_COLLECTING;
        view->until = first ? now + view->times.collect : now;
        return;
    }
    RANKS_EACH (&view->members, rank)
        if (ranks_has(&view->dead, rank) || ranks_has(&view->suspected, rank))
            send_evidence(view, coordinator, rank);
}

static void note_reason(struct view *view, int peer, const char *reason) {
    if (view->reasons[peer] == NULL)
        view->reasons[peer] = calloc(1, VIEW_REASON);
    if (view->reasons[peer] != NULL)
        snprintf(*view->reasons[peer], VIEW_REASON, "%s", reason);
}

/* After `dead` or `suspected` grew. */
static void evidence_grew(struct view *view, int peer, int64_t now) {
    switch (view->state) {
    case VIEW_IDLE:
        begin(view, now);
        break;
    case VIEW_WAITING:
        if (peer == view->coordinator || choose_coordinator(view) == view->self)
            begin(view, now);
        else
            send_evidence(view, view->coordinator, peer);
        break;
    case VIEW_PREPARING:
    case VIEW_ACCEPTING:
        check_answers(view, false, now);
        break;
    case VIEW_COLLECTING:
        break;
    }
}

void view_evidence(struct view *view, int peer, bool proved, rota_status status, const char *reason,
                   int64_t now) {
    struct ranks *set = proved ? &view->dead : &view->suspected;
    if (view->isolated || peer == view->self || ranks_has(&view->dead, peer) ||
        ranks_has(set, peer))
        return;
    if (!proved && !ranks_has(&view->members, peer))
        return;
    note_reason(view, peer, reason);
    view->only_silent[peer] = !proved && status == ROTA_ERR_TIMEOUT;
    ranks_add(set, peer);
    if (proved && reason != NULL && strcmp(reason, VIEW_LEFT) == 0)
        ranks_add(&view->left, peer);
    if (ranks_has(&view->members, peer))
        evidence_grew(view, peer, now);
}

/* Adds a peer's proofs. */
static void merge_dead(struct view *view, const struct view_message *message) {
    if (message->dead == NULL)
        return;
    if (message->left != NULL)
        RANKS_EACH (message->left, rank)
            if (ranks_has(message->dead, rank) && !ranks_has(&view->dead, rank))
                ranks_add(&view->left, rank);
    ranks_merge(&view->dead, message->dead);
    ranks_remove(&view->dead, view->self); /* whoever says so */
}

/* -- messages in --------------------------------------------------------------------------------
 */

/* As acceptor, of this epoch or a past one. */
static void on_prepare(struct view *view, int from, const struct view_message *message,
                       int64_t now) {
    struct view_acceptor *acceptor = &view->acceptors[message->epoch];
    struct view_value value;
    merge_dead(view, message);
    if (compare(message->ballot, acceptor->promised) < 0) {
        send_plain(view, from, VIEW_REFUSE, message->epoch, acceptor->promised);
        return;
    }
    acceptor->promised = message->ballot;
    bool accepted = accepted_value(view, message->epoch, &value);
    struct view_message answer = {.type = VIEW_PROMISE,
                                  .epoch = message->epoch,
                                  .ballot = message->ballot,
                                  .dead = &view->dead,
                                  .left = &view->left,
                                  .accepted = acceptor->accepted,
                                  .decided = message->epoch < view->epoch,
                                  .value = accepted ? &value : NULL};
    send_to(view, from, &answer);
    if (message->epoch == view->epoch)
        wait_for(view, from, now);
}

static void on_accept(struct view *view, int from, const struct view_message *message,
                      int64_t now) {
    struct view_acceptor *acceptor = &view->acceptors[message->epoch];
    merge_dead(view, message);
    if (compare(message->ballot, acceptor->promised) < 0) {
        send_plain(view, from, VIEW_REFUSE, message->epoch, acceptor->promised);
        return;
    }
    acceptor->promised = acceptor->accepted = message->ballot;
    if (message->epoch == view->epoch) {
        acceptor->status = message->value->status;
        memcpy(acceptor->text, message->value->text, sizeof acceptor->text);
        ranks_copy(&view->accepted_failed, message->value->failed);
        wait_for(view, from, now);
    }
    send_plain(view, from, VIEW_ACCEPTED, message->epoch, message->ballot);
}

static void on_decide(struct view *view, const struct view_message *message, int64_t now) {
    struct view_acceptor *acceptor = current(view);
    if (compare(message->ballot, acceptor->promised) < 0)
        return; /* the value comes by the ballot that was promised */
    acceptor->promised = acceptor->accepted = message->ballot;
    acceptor->status = message->value->status;
    memcpy(acceptor->text, message->value->text, sizeof acceptor->text);
    ranks_copy(&view->accepted_failed, message->value->failed);
    apply(view, now);
}

/* As coordinator. */
static void on_promise(struct view *view, int from, const struct view_message *message,
                       int64_t now) {
    struct view_ballot rated = message->accepted;
    if (view->state != VIEW_PREPARING || compare(message->ballot, view->mine) != 0)
        return;
    merge_dead(view, message);
    ranks_add(&view->answers, from);
    if (message->decided)
        rated = (struct view_ballot){UINT32_MAX, UINT32_MAX};
    if (message->value != NULL && compare(rated, view->best) > 0) {
        view->best = rated;
        view->proposal.status = message->value->status;
        memcpy(view->proposal.text, message->value->text, sizeof view->proposal.text);
        ranks_copy(&view->proposal_failed, message->value->failed);
    }
    check_answers(view, false, now);
}

static void on_evidence(struct view *view, const struct view_message *message, int64_t now) {
    if (message->peer != view->self && ranks_has(&view->members, message->peer))
        view_evidence(view, message->peer, message->proved, ROTA_ERR_PEER, message->reason, now);
}

static void on_unchanged(struct view *view, const struct view_message *message, int64_t now) {
    if (view->state == VIEW_WAITING && compare(message->ballot, current(view)->promised) == 0)
        nobody_failed(view, now);
}

static void on_refuse(struct view *view, const struct view_message *message, int64_t now) {
    if (view->highest_round < message->ballot.round)
        view->highest_round = message->ballot.round;
    bool ours = (view->state == VIEW_PREPARING || view->state == VIEW_ACCEPTING) &&
                compare(message->ballot, view->mine) > 0;
    if (ours && message->ballot.rank < (uint32_t)view->n)
        wait_for(view, (int)message->ballot.rank, now); /* it is at work */
}

static void receive_current(struct view *view, int from, const struct view_message *message,
                            int64_t now) {
    switch (message->type) {
    case VIEW_EVIDENCE:
        on_evidence(view, message, now);
        break;
    case VIEW_PREPARE:
        on_prepare(view, from, message, now);
        break;
    case VIEW_PROMISE:
        on_promise(view, from, message, now);
        break;
    case VIEW_ACCEPT:
        on_accept(view, from, message, now);
        break;
    case VIEW_ACCEPTED:
        if (view->state == VIEW_ACCEPTING && compare(message->ballot, view->mine) == 0) {
            ranks_add(&view->answers, from);
            check_answers(view, false, now);
        }
        break;
    case VIEW_DECIDE:
        on_decide(view, message, now);
        break;
    case VIEW_UNCHANGED:
        on_unchanged(view, message, now);
        break;
    case VIEW_REFUSE:
        on_refuse(view, message, now);
        break;
    default:
        break;
    }
}

void view_heard(struct view *view, int from, uint32_t epoch) {
    if (epoch < view->epoch)
        send_decision(view, from, epoch);
    else if (view->isolated)
        send_plain(view, from, VIEW_ISOLATED, view->epoch, (struct view_ballot){0, 0});
    else if (epoch > view->epoch)
        send_plain(view, from, VIEW_BEHIND, view->epoch, (struct view_ballot){0, 0});
}

/* Whether a message is one that a member of its epoch's view may send. */
static bool is_sound(const struct view *view, int from, const struct view_message *message) {
    const uint32_t highest = UINT32_MAX / 2;
    bool coordinates = message->type == VIEW_PREPARE || message->type == VIEW_ACCEPT;
    if (view->removed_in[from] < message->epoch || message->ballot.round > highest ||
        message->accepted.round > highest)
        return false;
    if (coordinates && message->ballot.rank != (uint32_t)from)
        return false;
    if ((coordinates || message->type == VIEW_DECIDE) && message->ballot.round == 0)
        return false;
    if (message->value == NULL)
        return message->type != VIEW_ACCEPT && message->type != VIEW_DECIDE;
    RANKS_EACH (message->value->failed, rank)
        if (view->removed_in[rank] < message->epoch)
            return false;
    return !ranks_empty(message->value->failed);
}

void view_receive(struct view *view, int from, const struct view_message *message, int64_t now) {
    uint32_t epoch = message->epoch;
    if (ranks_has(&view->dead, from) || from == view->self)
        return;
    if (message->type == VIEW_ISOLATED) {
        /* No proof: of earlier epochs it may know a decision, and act on it. It answers, though. */
        ranks_add(&view->heard, from);
        if (ranks_has(&view->members, from))
            ranks_add(&view->gave_up, from);
        view_evidence(view, from, false, ROTA_ERR_PEER, "is isolated from the other ranks", now);
        return;
    }
    if (epoch > view->epoch || (view->isolated && epoch == view->epoch)) {
        view_heard(view, from, epoch);
        return;
    }
    if (!is_sound(view, from, message))
        return;
    ranks_add(&view->heard, from);
    ranks_remove(&view->suspected, from); /* it answers */
    view->missed[from] = 0;
    if (epoch < view->epoch) {
        if (message->type == VIEW_PREPARE)
            on_prepare(view, from, message, now);
        else if (message->type == VIEW_ACCEPT)
            on_accept(view, from, message, now);
        else if (message->type == VIEW_EVIDENCE || message->type == VIEW_BEHIND)
            send_decision(view, from, epoch);
        if (view->state == VIEW_IDLE && !view->isolated)
            begin(view, now); /* it may know of deaths */
        return;
    }
    receive_current(view, from, message, now);
}

/* -- time ---------------------------------------------------------------------------------------
 */

int64_t view_deadline(const struct view *view) {
    if (view->isolated || view->state == VIEW_IDLE)
        return INT64_MAX;
    int64_t end = view->trouble + view->times.isolation;
    return view->until < end ? view->until : end;
}

/* " rank 1 (host a, pid 7), rank 2 (...) `what`" of the members that `wanted` has, as far as there
 * is room. */
static size_t add_members(const struct view *view, const struct ranks *wanted, const char *what,
                          char text[VIEW_TEXT], size_t used) {
    bool any = false;
    RANKS_EACH (&view->members, rank) {
        char name[128];
        if (!ranks_has(wanted, rank))
            continue;
        snprintf(name, sizeof name, "rank %d", rank);
        if (view->events.name != NULL)
            view->events.name(view->events.context, rank, name, sizeof name);
        if (used + strlen(name) + strlen(what) + 4 >= VIEW_TEXT)
            break;
        used += (size_t)snprintf(text + used, VIEW_TEXT - used, "%s %s", any ? "," : "", name);
        any = true;
    }
    return any ? used + (size_t)snprintf(text + used, VIEW_TEXT - used, " %s;", what) : used;
}

static void give_up(struct view *view) {
    char text[VIEW_TEXT];
    ranks_copy(&view->scratch, &view->members);
    ranks_subtract(&view->scratch, &view->heard);
    ranks_remove(&view->scratch, view->self);
    size_t used =
        (size_t)snprintf(text, sizeof text, "reached no majority of the ranks within %lld ms:",
                         (long long)(view->times.isolation / 1000000));
    used = add_members(view, &view->scratch, "did not answer", text, used);
    used = add_members(view, &view->gave_up, "gave up before", text, used);
    text[used - 1] = 0;
    ranks_merge(&view->scratch, &view->gave_up);
    isolate(view, text, &view->scratch);
}

void view_tick(struct view *view, int64_t now) {
    if (view->isolated || view->state == VIEW_IDLE)
        return;
    /* Stopped or starved meanwhile: what was missed may lie in the sockets. */
    if (now > view_deadline(view) + view->times.isolation / 4) {
        view->trouble = now;
        if (view->until < now)
            view->until = now + view->times.ballot;
        return;
    }
    if (now >= view->trouble + view->times.isolation) {
        give_up(view);
        return;
    }
    if (now < view->until)
        return;
    switch (view->state) {
    case VIEW_WAITING:
        if (view->coordinator != view->self && ranks_has(&view->members, view->coordinator)) {
            ranks_add(&view->suspected, view->coordinator);
            if (view->reasons[view->coordinator] == NULL)
                view->only_silent[view->coordinator] = true;
        }
        start_ballot(view, now);
        break;
    case VIEW_COLLECTING:
        start_ballot(view, now);
        break;
    case VIEW_PREPARING:
    case VIEW_ACCEPTING:
        check_answers(view, true, now);
        break;
    case VIEW_IDLE:
        break;
    }
}
