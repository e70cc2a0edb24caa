/* Rings through the network.
 *
 * Stations are packed with rings as GPUs are (packing.h, covers.h), over the links between their
 * switches. Where these have no ring of their own, or stations meet in switches that no host hangs
 * on, rings take the stations in turn, on shortest ways; the fullest link says what they carry.
 * Stations that meet in the spines of a fat tree spread what they send over all of them, so there
 * the links out of a station count together. */
#include "topology/network.h"
#include "base/error.h"
#include "topology/covers.h"
#include "topology/hamilton.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The switch graph: `number` of stations first, then of other switches. */
struct fabric {
    const struct topo *topo;
    int *number; /* by node, -1: no switch */
    int stations, switches;
    int *capacity; /* switches squared: links */
};

static bool is_port_link(const struct topo *topo, const struct topo_link *link) {
    return topo->nodes[link->from].kind == TOPO_PORT && topo->nodes[link->to].kind == TOPO_SWITCH;
}

/* Hosts that hang on several switches (rails) are left alone: rings stay within a rail there. */
static bool number_stations(struct fabric *fabric, struct network *network) {
    const struct topo *topo = fabric->topo;
    for (int i = 0; i < topo->link_count; i++) {
        const struct topo_link *link = &topo->links[i];
        if (!is_port_link(topo, link))
            continue;
        int *number = &fabric->number[link->to], host = topo->nodes[link->from].host;
        if (*number < 0)
            *number = fabric->stations++;
        if (network->station[host] >= 0 && network->station[host] != *number)
            return false;
        network->station[host] = *number;
    }
    fabric->switches = fabric->stations;
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == TOPO_SWITCH && fabric->number[i] < 0)
            fabric->number[i] = fabric->switches++;
    return fabric->stations > 1;
}

static bool fill_capacity(struct fabric *fabric) {
    const struct topo *topo = fabric->topo;
    size_t switches = (size_t)fabric->switches;
    fabric->capacity = calloc(switches * switches, sizeof(int));
    for (int i = 0; i < topo->link_count && fabric->capacity != NULL; i++) {
        int from = fabric->number[topo->links[i].from], to = fabric->number[topo->links[i].to];
        if (from >= 0 && to >= 0)
            fabric->capacity[from * fabric->switches + to] += topo->links[i].count;
    }
    return fabric->capacity != NULL;
}

/* Rings through all stations over links between them; none are found where there is no ring. */
static bool pack_stations(const struct fabric *fabric, struct network *network) {
    int n = fabric->stations;
    int *capacity = malloc((size_t)(n * n) * sizeof(int));
    struct packing problem = {.n = n};
    for (int i = 0; i < n * n && capacity != NULL; i++)
        capacity[i] = fabric->capacity[i / n * fabric->switches + i % n];
    bool fine = capacity != NULL;
    if (fine && n > HAMILTON_EXACT)
        fine = covers_pack(n, capacity, &network->orders);
    else if (fine)
        fine = packing_describe(&problem, n, capacity, false) &&
               packing_solve(&problem, NULL, &network->orders);
    packing_forget(&problem);
    free(capacity);
    return fine;
}

/* One unit of flow on a shortest way; false when there is none. */
static bool load_way(const struct fabric *fabric, int from, int to, int *before, int *load) {
    int n = fabric->switches, head = 0, tail = 0, *queue = &before[n];
    for (int i = 0; i < n; i++)
        before[i] = -1;
    before[from] = from;
    queue[tail++] = from;
    while (head < tail && before[to] < 0) {
        int at = queue[head++];
        for (int next = 0; next < n; next++)
            if (before[next] < 0 && fabric->capacity[at * n + next] > 0) {
                before[next] = at;
                queue[tail++] = next;
            }
    }
    for (int at = to; at != from && before[to] >= 0; at = before[at])
        load[before[at] * n + at]++;
    return before[to] >= 0;
}

/* What rings carry that take stations in turn. Between two stations that meet in other switches,
 * all their links up and down count together. */
static bool take_in_turn(const struct fabric *fabric, struct network *network) {
    int n = fabric->switches, stations = fabric->stations;
    int *before = malloc(2 * (size_t)n * sizeof(int)), *load = calloc((size_t)(n * n), sizeof(int));
    struct packed *orders = &network->orders;
    double rate = INFINITY;
    struct packed packed = *orders;
    *orders = (struct packed){.n = stations};
    orders->cycles = malloc((size_t)stations * sizeof(int));
    orders->shares = malloc(sizeof(double));
    bool fine = before != NULL && load != NULL && orders->cycles != NULL && orders->shares != NULL;
    for (int i = 0; i < stations && fine; i++) {
        orders->cycles[i] = i;
        if (!load_way(fabric, i, (i + 1) % stations, before, load))
            rate = 0;
    }
    bool spread = true; /* between other switches one way alone is reckoned with */
    for (int i = stations; i < n && fine; i++)
        for (int j = stations; j < n; j++)
            spread = spread && load[i * n + j] == 0;
    for (int i = 0; i < n && fine; i++) {
        int sent[2] = {0}, links[2] = {0}; /* out of the switch, and into it */
        for (int j = 0; j < n; j++)
            for (int in = 0; in < 2; in++) {
                int arc = in == 0 ? i * n + j : j * n + i;
                if (spread && i < stations && j >= stations) {
                    sent[in] += load[arc];
                    links[in] += fabric->capacity[arc];
                } else if ((!spread || i < stations) && load[arc] > 0) {
                    rate = fmin(rate, (double)fabric->capacity[arc] / load[arc]);
                }
            }
        for (int in = 0; in < 2; in++)
            rate = sent[in] > 0 ? fmin(rate, (double)links[in] / sent[in]) : rate;
    }
    if (fine) {
        orders->count = 1;
        orders->shares[0] = orders->score = rate;
    }
    bool better = fine && rate >= packed.score;
    packing_free(better ? &packed : orders);
    *orders = better ? *orders : packed;
    free(before);
    free(load);
    return fine;
}

rota_status network_find(const struct topo *topo, struct network *network) {
    struct fabric fabric = {.topo = topo};
    *network = (struct network){.gbps = topo->fabric_gbps};
    network->station = malloc(((size_t)topo->host_count + 1) * sizeof(int));
    fabric.number = malloc(((size_t)topo->node_count + 1) * sizeof(int));
    bool fine = network->station != NULL && fabric.number != NULL;
    if (fine) {
        memset(network->station, 0xff, (size_t)topo->host_count * sizeof(int));
        memset(fabric.number, 0xff, (size_t)topo->node_count * sizeof(int));
    }
    if (fine && topo->fabric_gbps > 0 && number_stations(&fabric, network)) {
        network->station_count = fabric.stations;
        fine = fill_capacity(&fabric) && pack_stations(&fabric, network);
        if (fine && network->orders.score < 1)
            fine = take_in_turn(&fabric, network);
        /* Rings may pass through stations, so what bounds Hamiltonian cycles does not bound them.
         */
        double cut = fine ? covers_cut(fabric.switches, fabric.stations, fabric.capacity) : 0;
        fine = fine && cut >= 0;
        if (fine && fabric.stations == 2 && network->orders.count > 0) { /* all ways at once */
            network->orders.count = 1;
            network->orders.shares[0] = network->orders.score = cut;
        }
        network->score = network->orders.score * network->gbps;
        network->bound = cut * network->gbps;
    }
    free(fabric.number);
    free(fabric.capacity);
    if (fine)
        return ROTA_OK;
    network_free(network);
    return error_raise(ROTA_ERR_MEMORY, "no memory for the network between hosts");
}

void network_free(struct network *network) {
    packing_free(&network->orders);
    free(network->station);
    *network = (struct network){.station_count = 0};
}
