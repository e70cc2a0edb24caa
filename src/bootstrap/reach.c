/* Reaching a listener by several candidate addresses. */
#include "bootstrap/reach.h"
#include "base/clock.h"
#include "base/error.h"
#include <string.h>

#define MS 1000000ll
#define STAGGER_MS 50    /* how long a silent candidate keeps the next one waiting */
#define ATTEMPT_MS 5000  /* a handshake; as long as listeners allow */
#define LAST_PAUSE_MS 50 /* between rounds, once the first pauses are over */

void reach_begin(struct reach *reach, const struct net_identity *identity, int target_rank,
                 enum net_purpose purpose, int64_t deadline_ns) {
    memset(reach, 0, sizeof *reach);
    reach->identity = identity;
    reach->target_rank = target_rank;
    reach->purpose = purpose;
    reach->deadline_ns = deadline_ns;
}

void reach_add_inet(struct reach *reach, const struct net_address *address) {
    if (reach->ntargets < REACH_TARGETS)
        reach->targets[reach->ntargets++] = (struct net_target){.inet = *address};
}

void reach_add_local(struct reach *reach, const char *local_name) {
    if (reach->ntargets < REACH_TARGETS && local_name[0] != 0)
        reach->targets[reach->ntargets++] = (struct net_target){.local_name = local_name};
}

static void note_failure(struct reach *reach) {
    reach->error = *error_record();
}

static void forget_active(struct reach *reach, int index) {
    net_dial_free(reach->active[index]);
    for (int i = index + 1; i < reach->nactive; i++)
        reach->active[i - 1] = reach->active[i];
    reach->nactive--;
}

static void start_next(struct reach *reach) {
    int64_t attempt_ns = clock_deadline(ATTEMPT_MS);
    struct net_dial *dial = NULL;
    if (reach->nactive == REACH_ACTIVE)
        forget_active(reach, 0); /* the most silent */
    if (reach->deadline_ns < attempt_ns)
        attempt_ns = reach->deadline_ns;
    const struct net_target *target = &reach->targets[reach->next++];
    if (net_dial_start(reach->identity, target, reach->target_rank, reach->purpose, NULL, 0,
                       attempt_ns, &dial) == ROTA_OK)
        reach->active[reach->nactive++] = dial;
    else
        note_failure(reach);
    reach->next_ns = clock_now_ns() + STAGGER_MS * MS;
}

/* Steps what is under way; the socket of the first that gets through, or -1. */
static int step_active(struct reach *reach) {
    for (int i = 0; i < reach->nactive;) {
        bool finished = false;
        struct net_answer answer;
        rota_status status = net_dial_step(reach->active[i], &finished, &answer);
        if (finished)
            return net_dial_take(reach->active[i], NULL, NULL);
        if (status == ROTA_OK) {
            i++;
            continue;
        }
        note_failure(reach);
        forget_active(reach, i);
        reach->next_ns = 0; /* no reason to wait for the next candidate */
    }
    return -1;
}

/* Short pauses first: ranks start together, and the one they look for is about to listen. */
static int64_t pause_ms(int round) {
    static const int64_t pauses[] = {1, 2, 5, 10, 20};
    return round < (int)(sizeof pauses / sizeof *pauses) ? pauses[round] : LAST_PAUSE_MS;
}

int reach_step(struct reach *reach, bool *round_over) {
    *round_over = false;
    int socket = step_active(reach);
    if (socket >= 0)
        return socket;
    bool resting = reach->nactive == 0 && reach->next == 0 && reach->round > 0;
    if (resting && !clock_passed(reach->next_ns))
        return -1;
    while (reach->next < reach->ntargets && (reach->nactive == 0 || clock_passed(reach->next_ns)))
        start_next(reach);
    if (reach->nactive == 0 && reach->next >= reach->ntargets) {
        reach->next_ns = clock_now_ns() + pause_ms(reach->round) * MS;
        reach->round++;
        reach->next = 0;
        *round_over = true;
    }
    return -1;
}

int reach_poll(const struct reach *reach, struct pollfd *fds) {
    for (int i = 0; i < reach->nactive; i++) {
        uint32_t events;
        int fd = net_dial_descriptor(reach->active[i], &events);
        fds[i] = (struct pollfd){.fd = fd, .events = (short)events};
    }
    return reach->nactive;
}

int64_t reach_deadline(const struct reach *reach) {
    bool waits = reach->nactive == 0 || reach->next < reach->ntargets;
    if (waits)
        return reach->next_ns < reach->deadline_ns ? reach->next_ns : reach->deadline_ns;
    /* Attempts end by themselves; looking every second is soon enough. */
    int64_t look_ns = clock_deadline(1000);
    return look_ns < reach->deadline_ns ? look_ns : reach->deadline_ns;
}

void reach_end(struct reach *reach) {
    while (reach->nactive > 0)
        forget_active(reach, reach->nactive - 1);
}
