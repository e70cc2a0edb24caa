/* What links and reductions cost: built-in prices, and profiles that were measured on a machine. */
#ifndef ENGINE_PROFILE_H
#define ENGINE_PROFILE_H

#include "base/settings.h"
#include <rota/selection.h>

struct link_price {
    double latency_us;         /* a message's way, per round */
    double overhead_us;        /* of the processor, for sending or receiving a message */
    double us_per_byte;        /* sent or received */
    double reduce_us_per_byte; /* read by reductions and local copies between such messages */
};

/* At a placement. What other ranks on a core do is counted as work, and not in these. */
struct prices {
    struct link_price links[ROTA_LINK_COUNT];
    int measured_ranks; /* of the placement that was measured; 0: built in */
};

struct profile;

/* Reads what ROTA_PROFILE names, NULL where it names nothing; ranks then agree on what it holds.
 * Errors: ROTA_ERR_SETTING for a file that is none, was written by another version, or measured on
 * another machine; ROTA_ERR_MEMORY. */
rota_status profile_load(struct settings *settings, struct profile **profile);
void profile_free(struct profile *profile);
/* Hash of what it says. */
uint64_t profile_fingerprint(const struct profile *profile);
int profile_placements(const struct profile *profile);

/* Prices for `nranks` ranks on `hosts` hosts with `crowding` ranks per core: of the measured
 * placement that is nearest, with rounds as long as that crowding makes them; else, and for links
 * that it does not have, built in. The same on all ranks. */
void prices_choose(const struct profile *profile, int nranks, int hosts, double crowding,
                   struct prices *prices);

#endif
