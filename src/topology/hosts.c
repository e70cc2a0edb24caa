/* Rings through several hosts: in each host a path from where a NIC brings the data in to where
 * another takes them out.
 *
 * Per host the paths are packed as the rings of one host are, with one more vertex that stands for
 * the network: its arcs to a GPU are limited by the NICs next to that GPU. The weakest host decides
 * how much all carry, or the network between (network.h). Then the paths of all hosts are joined
 * piece by piece in the orders that suit the network, the exit of one host to an entry on the same
 * rail of the next where there is one.
 *
 * The unit is the direct link, or 1 GB/s where there are none. */
#include "base/error.h"
#include "topology/hamilton.h"
#include "topology/network.h"
#include "topology/packing.h"
#include "topology/rings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A port whose speed is not known: 100 Gbit/s as NCCL reckons with it (src/graph/topo.h NET_BW). */
#define NETWORK_GBPS 12.0

struct path {
    int *gpus;
    double share, left;
    int in, out; /* ports, -1 none */
};

struct site {
    int host, gpu_count, port_count;
    int *gpus, *ports;
    struct path *paths;
    int path_count;
    double sum, bound;
};

struct tour {
    const struct topo *topo;
    double unit; /* GB/s */
    struct site *sites;
    int site_count;
    struct network network;
    struct site **order;    /* of the sites in a ring */
    struct packing problem; /* the last one that was packed, for hosts that are alike */
    struct packed packed;
    double states; /* that packings of all hosts have looked at */
};

static struct path *add_path(struct site *site, double share) {
    struct path *larger = reallocarray(site->paths, (size_t)site->path_count + 1, sizeof(*larger));
    if (larger == NULL)
        return NULL;
    site->paths = larger;
    struct path *path = &larger[site->path_count];
    *path = (struct path){.share = share, .left = share, .in = -1, .out = -1};
    path->gpus = calloc((size_t)site->gpu_count + 1, sizeof(int));
    if (path->gpus == NULL)
        return NULL;
    site->path_count++;
    site->sum += share;
    return path;
}

static double port_speed(const struct tour *tour, int port) {
    double gbps = tour->topo->nodes[tour->topo->ports[port]].gbps;
    return (gbps > 0 ? gbps : NETWORK_GBPS) / tour->unit;
}

static double network_speed(const struct tour *tour, const struct site *site) {
    double sum = 0;
    for (int i = 0; i < site->port_count; i++)
        sum += port_speed(tour, site->ports[i]);
    return site->port_count > 0 ? sum : INFINITY;
}

/* The nearest port of a GPU within its host with the least load for its speed. */
static int choose_port(const struct tour *tour, const struct site *site, int gpu,
                       const double *load) {
    int best = -1;
    for (int i = 0; i < site->port_count; i++) {
        int port = site->ports[i];
        rota_path class = topo_port_class(tour->topo, gpu, port);
        rota_path best_class = best < 0 ? ROTA_PATH_COUNT : topo_port_class(tour->topo, gpu, best);
        if (class < best_class || (class == best_class && load[port] < load[best]))
            best = port;
    }
    return best;
}

static bool choose_ports(const struct tour *tour, struct site *site) {
    size_t ports = (size_t)tour->topo->port_count + 1;
    double *load = calloc(2 * ports, sizeof(double));
    if (load == NULL)
        return false;
    for (int p = 0; p < site->path_count; p++) {
        struct path *path = &site->paths[p];
        path->in = choose_port(tour, site, path->gpus[0], load);
        path->out = choose_port(tour, site, path->gpus[site->gpu_count - 1], load + ports);
        if (path->in >= 0) {
            load[path->in] += path->share / port_speed(tour, path->in);
            load[ports + (size_t)path->out] += path->share / port_speed(tour, path->out);
        }
    }
    double worst = 1;
    for (size_t i = 0; i < 2 * ports; i++)
        worst = fmax(worst, load[i]);
    site->sum = 0;
    for (int p = 0; p < site->path_count; p++) {
        site->paths[p].left = site->paths[p].share /= worst;
        site->sum += site->paths[p].share;
    }
    free(load);
    return true;
}

/* Any order will do, so there is a path per NIC (or several), beginning next to it. Every second
 * host goes the other way round: its exits then lie on the rails of the entries before. */
static bool find_switched(const struct tour *tour, struct site *site) {
    const struct topo *topo = tour->topo;
    int n = site->gpu_count, width = topo->switch_links[site->gpus[0]];
    for (int i = 0; i < n; i++)
        if (topo->switch_links[site->gpus[i]] < width)
            width = topo->switch_links[site->gpus[i]];
    site->bound = fmin(width, network_speed(tour, site));
    int turns = n * ((width + n - 1) / n), *base = malloc(((size_t)n + 1) * sizeof(int));
    bool fine = base != NULL && topo_short_order(topo, site->gpus, n, false, false, base);
    for (int t = 0; t < turns && fine; t++) {
        struct path *path = add_path(site, site->bound / turns);
        fine = path != NULL;
        for (int i = 0; i < n && fine; i++)
            path->gpus[i] = site->host % 2 == 0 ? base[(t + i) % n] : base[(t + 2 * n - 1 - i) % n];
    }
    free(base);
    return fine;
}

/* GPUs with the same nearest ports share one row per direction. */
static void limit_network(const struct tour *tour, const struct site *site,
                          struct packing *problem) {
    const struct topo *topo = tour->topo;
    int n = site->gpu_count;
    for (int i = 0; i < n && site->port_count > 0; i++) {
        int twin = -1;
        rota_path best = ROTA_PATH_COUNT;
        double speed = 0;
        for (int p = 0; p < site->port_count; p++) {
            rota_path class = topo_port_class(topo, site->gpus[i], site->ports[p]);
            speed = class < best ? 0 : speed;
            best = class < best ? class : best;
            speed += class == best ? port_speed(tour, site->ports[p]) : 0;
        }
        for (int j = 0; j < i && twin < 0; j++) {
            bool same = true;
            for (int p = 0; p < site->port_count && same; p++)
                same = (topo_port_class(topo, site->gpus[i], site->ports[p]) == best) ==
                       (topo_port_class(topo, site->gpus[j], site->ports[p]) == best);
            twin = same ? j : -1;
        }
        int width = n + 1;
        if (twin < 0) {
            problem->capacity[problem->rows] = problem->capacity[problem->rows + 1] = speed;
            problem->row[i + 1] = problem->rows++;
            problem->row[(i + 1) * width] = problem->rows++;
        } else {
            problem->row[i + 1] = problem->row[twin + 1];
            problem->row[(i + 1) * width] = problem->row[(twin + 1) * width];
        }
    }
}

static bool same_problem(const struct packing *a, const struct packing *b) {
    size_t arcs = (size_t)a->n * (size_t)a->n;
    return a->n == b->n && a->rows == b->rows &&
           memcmp(a->row, b->row, arcs * sizeof(*a->row)) == 0 &&
           memcmp(a->capacity, b->capacity, (size_t)a->rows * sizeof(*a->capacity)) == 0;
}

static bool find_packed(struct tour *tour, struct site *site) {
    int n = site->gpu_count, width = n + 1;
    struct packing problem;
    bool fine = topo_pack_paths(tour->topo, site->gpus, n, &problem);
    if (fine)
        limit_network(tour, site, &problem);
    bool known = fine && same_problem(&problem, &tour->problem);
    packing_forget(known ? &problem : &tour->problem);
    if (!known) {
        packing_free(&tour->packed);
        tour->problem = problem;
        fine = fine && packing_solve(&problem, NULL, &tour->packed);
        tour->states += tour->packed.states;
    }
    const struct packed *packed = &tour->packed;
    site->bound = packed->bound;
    for (int c = 0; c < packed->count && fine; c++) {
        struct path *path = add_path(site, packed->shares[c]);
        fine = path != NULL;
        for (int i = 0; i < n && fine; i++)
            path->gpus[i] = site->gpus[packed->cycles[c * width + 1 + i] - 1];
    }
    return fine;
}

/* One path, as fast as its narrowest hop. */
static bool find_short(const struct tour *tour, struct site *site) {
    struct path *path = add_path(site, 0);
    if (path == NULL ||
        !topo_short_order(tour->topo, site->gpus, site->gpu_count, true, true, path->gpus))
        return false;
    double speed = network_speed(tour, site);
    for (int i = 0; i + 1 < site->gpu_count; i++) {
        int from = path->gpus[i], to = path->gpus[i + 1], links = topo_links(tour->topo, from, to);
        speed = fmin(speed, links > 0 ? links * tour->topo->link_gbps / tour->unit
                                      : topo_path_gbps(tour->topo, from, to) / tour->unit);
    }
    speed = isinf(speed) ? topo_pci_speed(8, 16) / tour->unit : speed;
    path->share = path->left = site->sum = site->bound = speed;
    return true;
}

static bool find_paths(struct tour *tour, struct site *site) {
    const char *kind = topo_ring_kind(tour->topo, site->gpus, site->gpu_count);
    bool fine;
    if (strcmp(kind, "nvswitch") == 0)
        fine = find_switched(tour, site);
    else if (strcmp(kind, "direct") == 0 && site->gpu_count < HAMILTON_EXACT &&
             tour->states < PACKING_STATES)
        fine = find_packed(tour, site);
    else
        fine = find_short(tour, site);
    return fine && choose_ports(tour, site);
}

static int *collect(const struct topo *topo, const int *devices, int count, int host, int *found) {
    int *list = calloc((size_t)count + 1, sizeof(int));
    *found = 0;
    for (int i = 0; i < count && list != NULL; i++)
        if (topo->nodes[devices[i]].host == host)
            list[(*found)++] = i;
    return list;
}

static bool find_sites(struct tour *tour) {
    const struct topo *topo = tour->topo;
    tour->sites = calloc((size_t)topo->host_count + 1, sizeof(*tour->sites));
    bool fine = tour->sites != NULL;
    for (int host = 0; host < topo->host_count && fine; host++) {
        struct site *site = &tour->sites[tour->site_count++];
        site->host = host;
        site->gpus = collect(topo, topo->gpus, topo->gpu_count, host, &site->gpu_count);
        site->ports = collect(topo, topo->ports, topo->port_count, host, &site->port_count);
        fine = site->gpus != NULL && site->ports != NULL;
        if (fine && site->gpu_count == 0) {
            free(site->gpus);
            free(site->ports);
            *site = (struct site){0};
            tour->site_count--;
        } else {
            fine = fine && find_paths(tour, site);
        }
    }
    return fine;
}

static void free_sites(struct tour *tour) {
    for (int i = 0; i < tour->site_count; i++) {
        struct site *site = &tour->sites[i];
        for (int p = 0; p < site->path_count; p++)
            free(site->paths[p].gpus);
        free(site->paths);
        free(site->gpus);
        free(site->ports);
    }
    free(tour->sites);
}

static bool same_rail(const struct topo *topo, int out, int in) {
    return out >= 0 && in >= 0 &&
           topo->nodes[topo->ports[out]].dev == topo->nodes[topo->ports[in]].dev &&
           topo->nodes[topo->ports[out]].dev >= 0;
}

/* The path of a host that goes on from `out`; NULL when all are used up. */
static struct path *next_path(const struct topo *topo, struct site *site, int out) {
    struct path *found = NULL;
    for (int p = 0; p < site->path_count; p++) {
        struct path *path = &site->paths[p];
        if (path->left < 1e-9)
            continue;
        if (same_rail(topo, out, path->in))
            return path;
        found = found == NULL ? path : found;
    }
    return found;
}

/* One piece: a path of each host, as much as the least of them has left and `most`. False when
 * done. */
static bool join_piece(struct tour *tour, struct path **chosen, double most, double *share) {
    int out = -1;
    *share = most;
    for (int s = 0; s < tour->site_count; s++) {
        chosen[s] = next_path(tour->topo, tour->order[s], out);
        if (chosen[s] == NULL)
            return false;
        out = chosen[s]->out;
        *share = fmin(*share, chosen[s]->left);
    }
    for (int s = 0; s < tour->site_count; s++)
        chosen[s]->left -= *share;
    return true;
}

static bool add_piece(struct tour *tour, struct path *const *chosen, double share,
                      struct topo_rings *rings) {
    bool linked = tour->topo->link_gbps > 0; /* no ring takes more than a link */
    int copies = share > 1 && linked ? (int)ceil(share - 1e-9) : 1;
    for (int copy = 0; copy < copies; copy++) {
        struct topo_ring *ring = topo_add_ring(rings, share / copies);
        if (ring == NULL)
            return false;
        for (int s = 0, at = 0; s < tour->site_count; s++) {
            int gpus = tour->order[s]->gpu_count;
            memcpy(&ring->gpus[at], chosen[s]->gpus, (size_t)gpus * sizeof(int));
            at += gpus;
            ring->ports[2 * s] = chosen[s]->in;
            ring->ports[2 * s + 1] = chosen[s]->out;
            ring->gbps = ring->share * tour->unit;
        }
    }
    return true;
}

/* The hosts of one station after those of the other; as they come where nothing limits them. */
static void order_sites(struct tour *tour, const int *stations) {
    int count = 0;
    for (int at = 0; at < (stations == NULL ? 1 : tour->network.station_count); at++)
        for (int s = 0; s < tour->site_count; s++)
            if (stations == NULL || tour->network.station[tour->sites[s].host] == stations[at])
                tour->order[count++] = &tour->sites[s];
    for (int s = 0; s < tour->site_count && stations != NULL; s++) /* without NICs */
        if (tour->network.station[tour->sites[s].host] < 0)
            tour->order[count++] = &tour->sites[s];
}

/* Rings of `rate` in all, in the orders that the network wants. */
static bool add_pieces(struct tour *tour, double rate, struct topo_rings *rings) {
    struct path **chosen = calloc((size_t)tour->site_count + 1, sizeof(struct path *));
    const struct packed *orders = &tour->network.orders;
    bool fine = chosen != NULL;
    for (int o = 0; o < (orders->count > 0 ? orders->count : 1) && fine; o++) {
        double left = orders->count > 0 ? rate * orders->shares[o] / orders->score : rate, share;
        order_sites(tour, orders->count > 0 ? &orders->cycles[o * orders->n] : NULL);
        while (fine && left > 1e-9 && join_piece(tour, chosen, left, &share)) {
            left -= share;
            fine = add_piece(tour, chosen, share, rings);
        }
    }
    free(chosen);
    return fine;
}

/* Without links the unit is what the rings got: one, of so many GB/s. */
static void rescale(struct tour *tour, struct topo_rings *rings) {
    double score = rings->score;
    if (tour->topo->link_gbps > 0 || score <= 0)
        return;
    for (int r = 0; r < rings->count; r++)
        rings->rings[r].share /= score;
    tour->unit *= score;
    rings->bound /= score;
    rings->score = 1;
}

static void finish(struct tour *tour, struct topo_rings *rings) {
    const struct topo *topo = tour->topo;
    rings->kind = "hosts";
    rings->bound = INFINITY;
    rings->score = 0;
    for (int s = 0; s < tour->site_count; s++)
        rings->bound = fmin(rings->bound, tour->sites[s].bound);
    if (tour->network.station_count > 0)
        rings->bound = fmin(rings->bound, tour->network.bound / tour->unit);
    for (int r = 0; r < rings->count; r++)
        rings->score += rings->rings[r].share;
    rescale(tour, rings);
    for (int i = 0; i < topo->gpu_count && rings->count > 0; i++)
        rings->hops[topo_gpu_class(topo, rings->rings[0].gpus[i],
                                   rings->rings[0].gpus[(i + 1) % topo->gpu_count])]++;
    bool whole = fabs(rings->bound - round(rings->bound)) < 1e-9;
    for (int r = 0; r < rings->count; r++)
        whole = whole && fabs(rings->rings[r].share - 1) < 1e-9;
    rings->bound_kind = whole ? "whole" : "fractional";
    rings->score_gbps = rings->score * tour->unit;
    rings->optimal = rings->score > rings->bound - 1e-4;
}

double topo_host_cut_bound(const struct topo *topo) {
    double unit = topo->link_gbps > 0 ? topo->link_gbps : 1, least = INFINITY;
    for (int host = 0; host < topo->host_count; host++) {
        double speed = 0;
        int gpus = 0;
        for (int i = 0; i < topo->gpu_count; i++)
            gpus += topo->nodes[topo->gpus[i]].host == host;
        for (int p = 0; p < topo->port_count; p++)
            if (topo->nodes[topo->ports[p]].host == host)
                speed += topo->nodes[topo->ports[p]].gbps > 0 ? topo->nodes[topo->ports[p]].gbps
                                                              : NETWORK_GBPS;
        if (speed > 0 && gpus > 0 && gpus < topo->gpu_count)
            least = fmin(least, speed / unit * (topo->gpu_count - 1) / (topo->gpu_count - gpus));
    }
    return least;
}

rota_status topo_find_host_rings(const struct topo *topo, struct topo_rings *rings) {
    struct tour tour = {.topo = topo, .unit = topo->link_gbps > 0 ? topo->link_gbps : 1};
    double rate = INFINITY;
    rota_status status = network_find(topo, &tour.network);
    bool fine = status == ROTA_OK && find_sites(&tour);
    tour.order = calloc((size_t)tour.site_count + 1, sizeof(*tour.order));
    fine = fine && tour.order != NULL;
    for (int s = 0; s < tour.site_count; s++) /* the weakest host decides */
        rate = fmin(rate, tour.sites[s].sum);
    if (tour.network.station_count > 0) /* or the network */
        rate = fmin(rate, tour.network.score / tour.unit);
    for (int s = 0; s < tour.site_count && fine; s++)
        for (int p = 0; p < tour.sites[s].path_count; p++)
            tour.sites[s].paths[p].left *= rate / tour.sites[s].sum;
    rings->port_count = 2 * tour.site_count;
    fine = fine && add_pieces(&tour, rate, rings);
    if (fine)
        finish(&tour, rings);
    free_sites(&tour);
    packing_forget(&tour.problem);
    packing_free(&tour.packed);
    free(tour.order);
    network_free(&tour.network);
    if (fine)
        return ROTA_OK;
    topo_free_rings(rings);
    return error_raise(ROTA_ERR_MEMORY, "no memory for the search of rings");
}
