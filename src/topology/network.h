/* What the network between hosts lets through, and in which order rings pass the hosts for it. */
#ifndef TOPOLOGY_NETWORK_H
#define TOPOLOGY_NETWORK_H

#include "topology/graph.h"
#include "topology/packing.h"

/* Switches that hosts hang on are stations; a ring passes all hosts of one before it goes on. */
struct network {
    int station_count;    /* 0: nothing is known to limit rings */
    int *station;         /* by host: number of its station, -1 none */
    struct packed orders; /* of stations; shares in units of `gbps` */
    double gbps;          /* of one link between switches */
    double score, bound;  /* of all orders together, GB/s */
};

/* Errors: ROTA_ERR_MEMORY. */
rota_status network_find(const struct topo *topo, struct network *network);
void network_free(struct network *network);

#endif
