/* Agreements.
 *
 * Design notes. Views are uniform, so they do as failure detector, and one coordinator per epoch is
 * enough: the lowest participant in the view. Everybody sends it JOIN, with the own ballot and with
 * what was accepted before. With the JOINs of this epoch from all participants in the view it
 * proposes: the value accepted in the highest epoch, if there is one, else the combination of all
 * ballots. It is decided when all participants in the view accepted it in this epoch. When the view
 * changes, all begin again with the next coordinator: whatever was decided had been accepted by all
 * who are still there, so it is adopted. Messages may be lost; both sides repeat theirs, ever less
 * often. The last decisions are kept for who missed them. */
#include "liveness/agreement.h"

#define MS INT64_C(1000000)
#define FIRST_REPEAT_NS (100 * MS)
#define LAST_REPEAT_NS (5000 * MS)
#define KEPT_DECISIONS 256
#define MAX_FOREIGN 64 /* topics that others wait for and this rank has not begun */

struct join {
    bool here;
    uint32_t epoch, accepted_epoch;
    struct liveness_ballot mine;
    struct agreement_value value;
};

struct instance {
    struct instance *next;
    struct liveness_topic topic;
    bool begun; /* here; else only joins are kept */
    struct ranks participants;
    struct join *joins; /* nranks; at the coordinator. That of this rank is always current */
    bool accepting;     /* as coordinator, in `epoch` */
    uint32_t epoch;
    struct ranks accepted_by;
    int64_t repeat_ns, interval_ns;
};

struct decision {
    struct liveness_topic topic;
    struct agreement_value value;
    bool here;
};

struct agreements {
    int n, self;
    const struct view *view;
    struct agreement_events events;
    struct instance *instances;
    int nforeign;
    struct decision decisions[KEPT_DECISIONS];
    int next_decision;
    int *failed; /* of the one that is told */
};

static bool same_topic(const struct liveness_topic *a, const struct liveness_topic *b) {
    return a->comm == b->comm && a->generation == b->generation && a->number == b->number;
}

/* -- table --------------------------------------------------------------------------------------
 */

static struct instance *find(const struct agreements *agreements,
                             const struct liveness_topic *topic) {
    struct instance *instance = agreements->instances;
    while (instance != NULL && !same_topic(&instance->topic, topic))
        instance = instance->next;
    return instance;
}

static const struct decision *find_decision(const struct agreements *agreements,
                                            const struct liveness_topic *topic) {
    for (int i = 0; i < KEPT_DECISIONS; i++)
        if (agreements->decisions[i].here && same_topic(&agreements->decisions[i].topic, topic))
            return &agreements->decisions[i];
    return NULL;
}

static void instance_free(struct instance *instance) {
    ranks_free(&instance->participants);
    ranks_free(&instance->accepted_by);
    free(instance->joins);
    free(instance);
}

static void drop(struct agreements *agreements, struct instance *instance) {
    struct instance **place = &agreements->instances;
    while (*place != instance)
        place = &(*place)->next;
    *place = instance->next;
    agreements->nforeign -= !instance->begun;
    instance_free(instance);
}

/* A new one; of those not begun here the oldest gives way when there are too many. */
static struct instance *add(struct agreements *agreements, const struct liveness_topic *topic) {
    struct instance *made = calloc(1, sizeof *made), *oldest = NULL;
    if (made == NULL)
        return NULL;
    made->joins = calloc((size_t)agreements->n, sizeof *made->joins);
    if (made->joins == NULL || !ranks_init(&made->participants, agreements->n) ||
        !ranks_init(&made->accepted_by, agreements->n)) {
        instance_free(made);
        return NULL;
    }
    made->topic = *topic;
    made->repeat_ns = INT64_MAX;
    made->next = agreements->instances;
    agreements->instances = made;
    if (++agreements->nforeign > MAX_FOREIGN) {
        for (struct instance *one = agreements->instances; one != NULL; one = one->next)
            if (!one->begun)
                oldest = one; /* new ones are in front */
        drop(agreements, oldest);
    }
    return made;
}

struct agreements *agreements_create(int nranks, int self, const struct view *view,
                                     const struct agreement_events *events) {
    struct agreements *made = calloc(1, sizeof *made);
    if (made == NULL)
        return NULL;
    made->n = nranks;
    made->self = self;
    made->view = view;
    made->events = *events;
    made->failed = calloc((size_t)nranks, sizeof *made->failed);
    if (made->failed == NULL) {
        free(made);
        return NULL;
    }
    return made;
}

void agreements_destroy(struct agreements *agreements) {
    if (agreements == NULL)
        return;
    while (agreements->instances != NULL)
        drop(agreements, agreements->instances);
    free(agreements->failed);
    free(agreements);
}

/* -- the protocol -------------------------------------------------------------------------------
 */

static bool takes_part(const struct agreements *agreements, const struct instance *instance,
                       int rank) {
    return ranks_has(&instance->participants, rank) &&
           ranks_has(view_members(agreements->view), rank);
}

static int coordinator_of(const struct agreements *agreements, const struct instance *instance) {
    RANKS_EACH (&instance->participants, rank)
        if (ranks_has(view_members(agreements->view), rank))
            return rank;
    return agreements->self;
}

static void send_message(struct agreements *agreements, const struct liveness_topic *topic, int to,
                         enum agreement_message_type type, const struct join *join,
                         const struct agreement_value *value) {
    struct agreement_message message = {.type = type,
                                        .epoch = view_epoch(agreements->view),
                                        .topic = *topic,
                                        .accepted_epoch = AGREEMENT_NONE};
    if (join != NULL) {
        message.accepted_epoch = join->accepted_epoch;
        message.mine = join->mine;
        message.value = join->value;
    }
    if (value != NULL)
        message.value = *value;
    agreements->events.send(agreements->events.context, to, &message);
}

static void tell(struct agreements *agreements, const struct liveness_topic *topic,
                 const struct ranks *participants, const struct agreement_value *value) {
    struct liveness_agreement agreement = {.topic = *topic,
                                           .result = value->ballot,
                                           .epoch = value->epoch,
                                           .failed = agreements->failed};
    RANKS_EACH (participants, rank)
        if (view_removed_before(agreements->view, rank, value->epoch))
            agreements->failed[agreement.nfailed++] = rank;
    agreements->events.agreed(agreements->events.context, &agreement);
}

static void decided(struct agreements *agreements, struct instance *instance,
                    const struct agreement_value *value) {
    struct decision *kept = &agreements->decisions[agreements->next_decision];
    agreements->next_decision = (agreements->next_decision + 1) % KEPT_DECISIONS;
    *kept = (struct decision){.topic = instance->topic, .value = *value, .here = true};
    tell(agreements, &instance->topic, &instance->participants, &kept->value);
    drop(agreements, instance);
}

static void check_accepted(struct agreements *agreements, struct instance *instance) {
    struct agreement_value value = instance->joins[agreements->self].value;
    RANKS_EACH (&instance->participants, rank)
        if (takes_part(agreements, instance, rank) && !ranks_has(&instance->accepted_by, rank))
            return;
    RANKS_EACH (&instance->participants, rank)
        if (rank != agreements->self && takes_part(agreements, instance, rank))
            send_message(agreements, &instance->topic, rank, AGREEMENT_DECIDED, NULL, &value);
    decided(agreements, instance, &value);
}

/* Whether all have joined in this epoch; the value to propose. */
static bool combine(struct agreements *agreements, struct instance *instance,
                    struct agreement_value *value) {
    uint32_t epoch = view_epoch(agreements->view), best = AGREEMENT_NONE;
    *value = (struct agreement_value){.ballot = {.flags = UINT64_MAX}, .epoch = epoch};
    RANKS_EACH (&instance->participants, rank) {
        const struct join *join = &instance->joins[rank];
        if (!takes_part(agreements, instance, rank))
            continue;
        if (!join->here || join->epoch != epoch)
            return false;
        if (join->accepted_epoch != AGREEMENT_NONE &&
            (best == AGREEMENT_NONE || join->accepted_epoch > best)) {
            best = join->accepted_epoch;
            *value = join->value;
        } else if (best == AGREEMENT_NONE) {
            value->ballot.flags &= join->mine.flags;
            if (value->ballot.highest < join->mine.highest)
                value->ballot.highest = join->mine.highest;
        }
    }
    return true;
}

static void accept_here(struct agreements *agreements, struct instance *instance,
                        const struct agreement_value *value) {
    struct join *own = &instance->joins[agreements->self];
    own->accepted_epoch = view_epoch(agreements->view);
    own->value = *value;
}

/* As coordinator: proposes when it can. May drop the instance. */
static void check_joins(struct agreements *agreements, struct instance *instance) {
    struct agreement_value value;
    if (instance->accepting || !combine(agreements, instance, &value))
        return;
    instance->accepting = true;
    ranks_clear(&instance->accepted_by);
    ranks_add(&instance->accepted_by, agreements->self);
    accept_here(agreements, instance, &value);
    RANKS_EACH (&instance->participants, rank)
        if (rank != agreements->self && takes_part(agreements, instance, rank))
            send_message(agreements, &instance->topic, rank, AGREEMENT_ACCEPT, NULL, &value);
    check_accepted(agreements, instance);
}

/* Says again what the others may not have heard. */
static void repeat(struct agreements *agreements, struct instance *instance) {
    struct join *own = &instance->joins[agreements->self];
    int coordinator = coordinator_of(agreements, instance);
    uint32_t epoch = view_epoch(agreements->view);
    if (coordinator != agreements->self) {
        send_message(agreements, &instance->topic, coordinator, AGREEMENT_JOIN, own, NULL);
        return;
    }
    RANKS_EACH (&instance->participants, rank) {
        const struct join *join = &instance->joins[rank];
        if (rank == agreements->self || !takes_part(agreements, instance, rank))
            continue;
        if (instance->accepting && !ranks_has(&instance->accepted_by, rank))
            send_message(agreements, &instance->topic, rank, AGREEMENT_ACCEPT, NULL, &own->value);
        else if (!instance->accepting && (!join->here || join->epoch != epoch))
            send_message(agreements, &instance->topic, rank, AGREEMENT_ASK, NULL, NULL);
    }
}

/* In the epoch that now is. May drop the instance. */
static void start(struct agreements *agreements, struct instance *instance, int64_t now) {
    struct join *own = &instance->joins[agreements->self];
    own->epoch = view_epoch(agreements->view);
    instance->accepting = false;
    instance->interval_ns = FIRST_REPEAT_NS;
    instance->repeat_ns = now + instance->interval_ns;
    if (coordinator_of(agreements, instance) != agreements->self) {
        send_message(agreements, &instance->topic, coordinator_of(agreements, instance),
                     AGREEMENT_JOIN, own, NULL);
        return;
    }
    if (own->epoch > 0)
        repeat(agreements, instance); /* who has decided does not join by itself */
    check_joins(agreements, instance);
}

bool agreements_begin(struct agreements *agreements, const struct liveness_topic *topic,
                      const int *ranks, int nranks, const struct liveness_ballot *mine,
                      int64_t now) {
    struct instance *instance = find(agreements, topic);
    const struct decision *kept = find_decision(agreements, topic);
    if (instance != NULL && instance->begun)
        return true;
    if (instance == NULL)
        instance = add(agreements, topic);
    if (instance == NULL)
        return false;
    for (int i = 0; i < nranks; i++)
        if (ranks[i] >= 0 && ranks[i] < agreements->n)
            ranks_add(&instance->participants, ranks[i]);
    ranks_add(&instance->participants, agreements->self);
    instance->begun = true;
    agreements->nforeign--;
    if (kept != NULL) {
        struct agreement_value value = kept->value;
        tell(agreements, topic, &instance->participants, &value);
        drop(agreements, instance);
        return true;
    }
    instance->joins[agreements->self] =
        (struct join){.here = true, .accepted_epoch = AGREEMENT_NONE, .mine = *mine};
    start(agreements, instance, now);
    return true;
}

/* -- messages in --------------------------------------------------------------------------------
 */

static void on_join(struct agreements *agreements, struct instance *instance, int from,
                    const struct agreement_message *message) {
    if (instance == NULL)
        instance = add(agreements, &message->topic);
    if (instance == NULL)
        return;
    instance->joins[from] = (struct join){.here = true,
                                          .epoch = message->epoch,
                                          .accepted_epoch = message->accepted_epoch,
                                          .mine = message->mine,
                                          .value = message->value};
    if (instance->begun && coordinator_of(agreements, instance) == agreements->self)
        check_joins(agreements, instance);
}

void agreements_receive(struct agreements *agreements, int from,
                        const struct agreement_message *message, int64_t now) {
    struct instance *instance = find(agreements, &message->topic);
    const struct decision *kept = find_decision(agreements, &message->topic);
    bool begun = instance != NULL && instance->begun;
    bool now_here = message->epoch == view_epoch(agreements->view);
    (void)now;
    switch (message->type) {
    case AGREEMENT_JOIN:
    case AGREEMENT_ASK:
        if (kept != NULL)
            send_message(agreements, &message->topic, from, AGREEMENT_DECIDED, NULL, &kept->value);
        else if (message->type == AGREEMENT_JOIN)
            on_join(agreements, instance, from, message);
        else if (begun && now_here && from == coordinator_of(agreements, instance))
            send_message(agreements, &message->topic, from, AGREEMENT_JOIN,
                         &instance->joins[agreements->self], NULL);
        break;
    case AGREEMENT_ACCEPT:
        if (kept != NULL && now_here) {
            send_message(agreements, &message->topic, from, AGREEMENT_ACCEPTED, NULL, NULL);
        } else if (begun && now_here && from == coordinator_of(agreements, instance)) {
            accept_here(agreements, instance, &message->value);
            send_message(agreements, &message->topic, from, AGREEMENT_ACCEPTED, NULL, NULL);
        }
        break;
    case AGREEMENT_ACCEPTED:
        if (begun && now_here && instance->accepting) {
            ranks_add(&instance->accepted_by, from);
            check_accepted(agreements, instance);
        }
        break;
    case AGREEMENT_DECIDED:
        if (begun && message->value.epoch <= view_epoch(agreements->view))
            decided(agreements, instance, &message->value);
        break;
    default:
        break;
    }
}

/* -- time ---------------------------------------------------------------------------------------
 */

/* `call` for each instance begun here, which it may drop. */
static void each_begun(struct agreements *agreements,
                       void (*call)(struct agreements *agreements, struct instance *instance,
                                    int64_t now),
                       int64_t now) {
    struct instance *next;
    for (struct instance *one = agreements->instances; one != NULL; one = next) {
        next = one->next;
        if (one->begun)
            call(agreements, one, now);
    }
}

void agreements_view_changed(struct agreements *agreements, int64_t now) {
    each_begun(agreements, start, now);
}

int64_t agreements_deadline(const struct agreements *agreements) {
    int64_t first = INT64_MAX;
    for (const struct instance *one = agreements->instances; one != NULL; one = one->next)
        if (one->repeat_ns < first)
            first = one->repeat_ns;
    return first;
}

static void repeat_late(struct agreements *agreements, struct instance *instance, int64_t now) {
    if (now < instance->repeat_ns)
        return;
    repeat(agreements, instance);
    instance->interval_ns *= 2;
    if (instance->interval_ns > LAST_REPEAT_NS)
        instance->interval_ns = LAST_REPEAT_NS;
    instance->repeat_ns = now + instance->interval_ns;
}

void agreements_tick(struct agreements *agreements, int64_t now) {
    each_begun(agreements, repeat_late, now);
}

void agreements_each_peer(const struct agreements *agreements,
                          void (*call)(void *context, int peer), void *context) {
    for (const struct instance *one = agreements->instances; one != NULL; one = one->next) {
        if (!one->begun)
            continue;
        int coordinator = coordinator_of(agreements, one);
        RANKS_EACH (&one->participants, rank)
            if (rank != agreements->self && takes_part(agreements, one, rank) &&
                (coordinator == agreements->self || rank == coordinator))
                call(context, rank);
    }
}
