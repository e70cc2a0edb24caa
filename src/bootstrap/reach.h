/* Reaches one listener of which several addresses are known: tries one candidate after the other,
 * not waiting long for those that are silent, round after round until the deadline. The handshake
 * tells the right one. Internal to bootstrap. */
#ifndef BOOTSTRAP_REACH_H
#define BOOTSTRAP_REACH_H

#include "net/handshake.h"
#include <poll.h>

#define REACH_TARGETS 80 /* 4 addresses, 17 ports, and local names */
#define REACH_ACTIVE 4

struct reach {
    const struct net_identity *identity;
    int target_rank; /* -1: whoever serves */
    enum net_purpose purpose;
    int64_t deadline_ns;
    struct net_target targets[REACH_TARGETS];
    int ntargets, next;
    struct net_dial *active[REACH_ACTIVE];
    int nactive;
    int round;
    int64_t next_ns;  /* when the next candidate, or the next round, begins */
    rota_error error; /* the last failure; status ROTA_OK: none yet */
};

void reach_begin(struct reach *reach, const struct net_identity *identity, int target_rank,
                 enum net_purpose purpose, int64_t deadline_ns);
void reach_add_inet(struct reach *reach, const struct net_address *address);
/* The name must outlive the reach; "" is ignored. */
void reach_add_local(struct reach *reach, const char *local_name);
/* Goes on; returns the connected socket, or -1: not yet. Never fails: that is the deadline's
 * affair. *round_over: every candidate of this round failed, and the next begins at next_ns (the
 * caller may change the candidates). */
int reach_step(struct reach *reach, bool *round_over);
/* Adds what to poll for; returns how many. */
int reach_poll(const struct reach *reach, struct pollfd *fds);
int64_t reach_deadline(const struct reach *reach);
void reach_end(struct reach *reach);

#endif
