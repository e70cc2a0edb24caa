/* The search for rings on one host.
 *
 * What joins the GPUs decides the method. *direct*: links with a Hamiltonian cycle; cycles are
 * packed to the optimum by linear programming (packing.h), whole ones where the optimum is a whole
 * number and a dive finds them, shared ones else. *nvswitch*: any order is a ring; as many as the
 * weakest GPU has links, since each ring takes one of them. *islands*, *nvswitch-incomplete*,
 * *pcie-only*: no ring of links exists; what counts is how few hops of one ring go far (hamilton.h,
 * exact up to 17 GPUs). */
#include "topology/rings.h"
#include "base/error.h"
#include "topology/covers.h"
#include "topology/hamilton.h"
#include "topology/packing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-6

struct topo_ring *topo_add_ring(struct topo_rings *rings, double share) {
    struct topo_ring *larger =
        reallocarray(rings->rings, (size_t)rings->count + 1, sizeof(*rings->rings));
    if (larger == NULL)
        return NULL;
    rings->rings = larger;
    struct topo_ring *ring = &larger[rings->count];
    ring->gpus = calloc((size_t)rings->gpu_count + 1, sizeof(int));
    ring->ports = malloc(((size_t)rings->port_count + 1) * sizeof(int));
    ring->share = share;
    ring->gbps = 0;
    if (ring->gpus == NULL || ring->ports == NULL) {
        free(ring->gpus);
        free(ring->ports);
        return NULL;
    }
    memset(ring->ports, 0xff, ((size_t)rings->port_count + 1) * sizeof(int));
    rings->count++;
    return ring;
}

void topo_free_rings(struct topo_rings *rings) {
    for (int i = 0; i < rings->count; i++) {
        free(rings->rings[i].gpus);
        free(rings->rings[i].ports);
    }
    for (int i = 0; i < rings->island_count; i++)
        free(rings->islands[i].gpus);
    free(rings->rings);
    free(rings->islands);
    *rings = (struct topo_rings){.kind = NULL};
}

/* Weight 1 on links, none elsewhere. */
static double *link_weights(const struct topo *topo, const int *gpus, int count) {
    double *weights = malloc((size_t)count * (size_t)count * sizeof(double) + 1);
    for (int i = 0; i < count * count && weights != NULL; i++)
        weights[i] = topo_links(topo, gpus[i / count], gpus[i % count]) > 0 ? 1 : HAMILTON_NONE;
    return weights;
}

/* Whether links carry a ring: exactly up to 17 GPUs, by search above. */
static bool has_link_cycle(const struct topo *topo, const int *gpus, int count) {
    double *weights = link_weights(topo, gpus, count), cost;
    int *cycle = malloc((size_t)count * sizeof(int) + 1);
    bool found = false;
    struct hamilton search;
    if (weights != NULL && cycle != NULL && count > HAMILTON_EXACT) {
        found = hamilton_any(count, weights, 40, 1, cycle);
    } else if (weights != NULL && cycle != NULL && hamilton_init(&search, count)) {
        found = hamilton_best(&search, weights, 1, cycle, &cost) > 0;
        hamilton_free(&search);
    }
    free(weights);
    free(cycle);
    return found;
}

const char *topo_ring_kind(const struct topo *topo, const int *gpus, int count) {
    int switched = 0, linked = 0;
    if (count < 2)
        return "none";
    for (int i = 0; i < count; i++) {
        switched += topo_on_switch(topo, gpus[i]);
        for (int j = 0; j < count; j++)
            linked += topo_links(topo, gpus[i], gpus[j]) > 0;
    }
    if (switched == count)
        return "nvswitch";
    if (switched > 1 || (switched == 1 && linked == 0)) /* one alone: its links lead nowhere */
        return "nvswitch-incomplete";
    if (linked == 0)
        return "pcie-only";
    return has_link_cycle(topo, gpus, count) ? "direct" : "islands";
}

/* One hop of the next class outweighs all hops of the classes below it. Weights stay below 2^53, so
 * sums are exact, up to 450 GPUs; above, the lowest classes melt together. */
static double class_weight(rota_path class, int count) {
    double base = count < 450 ? count + 1 : 451;
    return class <= ROTA_PATH_LNK ? 0 : pow(base, (int)class - (int)ROTA_PATH_PIX);
}

bool topo_short_order(const struct topo *topo, const int *gpus, int count, bool open, bool links,
                      int *order) {
    int n = open ? count + 1 : count; /* a path is a cycle through one vertex that costs nothing */
    double *weights = calloc((size_t)n * (size_t)n + 1, sizeof(double)), cost;
    int *cycle = malloc(((size_t)n + 1) * sizeof(int));
    struct hamilton search;
    bool done = false;
    for (int i = 0; i < count && weights != NULL; i++)
        for (int j = 0; j < count; j++) {
            rota_path class = topo_gpu_class(topo, gpus[i], gpus[j]);
            if (class == ROTA_PATH_LNK && !links)
                class = topo_tree_class(topo, gpus[i], gpus[j]);
            weights[(i + n - count) * n + j + n - count] = class_weight(class, count);
        }
    if (weights == NULL || cycle == NULL) {
        done = false;
    } else if (n < 2) {
        cycle[0] = 0;
        done = true;
    } else if (n > HAMILTON_EXACT) {
        hamilton_short(n, weights, cycle);
        done = true;
    } else if (hamilton_init(&search, n)) {
        done = hamilton_best(&search, weights, 1, cycle, &cost) == 1;
        hamilton_free(&search);
    }
    int start = 0;
    while (done && open && cycle[start] != 0)
        start++;
    for (int i = 0; i < count && done; i++)
        order[i] = gpus[open ? cycle[(start + 1 + i) % n] - 1 : cycle[i]];
    free(weights);
    free(cycle);
    return done;
}

static int load_index(const struct topo *topo, int from, int to) {
    return from * topo->gpu_count + to;
}

/* Highest load relative to what the link carries, and hops by class. */
static double worst_load(const struct topo *topo, const struct topo_rings *rings, double *load,
                         int *hops) {
    int gpus = topo->gpu_count;
    double *out = &load[gpus * gpus], *in = &out[gpus], worst = 0;
    for (int r = 0; r < rings->count; r++)
        for (int i = 0; i < gpus; i++) {
            int from = rings->rings[r].gpus[i], to = rings->rings[r].gpus[(i + 1) % gpus];
            rota_path class = topo_gpu_class(topo, from, to);
            hops[class] += r == 0;
            if (topo_links(topo, from, to) > 0) {
                load[load_index(topo, from, to)] += rings->rings[r].share;
            } else if (class == ROTA_PATH_LNK) {
                out[from] += rings->rings[r].share;
                in[to] += rings->rings[r].share;
            }
        }
    for (int i = 0; i < gpus; i++) {
        int width = topo->switch_links[i];
        worst = width > 0 ? fmax(worst, fmax(out[i], in[i]) / width) : worst;
        for (int j = 0; j < gpus; j++)
            if (topo_links(topo, i, j) > 0)
                worst = fmax(worst, load[load_index(topo, i, j)] / topo_links(topo, i, j));
    }
    return worst;
}

/* The narrowest hop of one ring that has all links and ways to itself. */
static double ring_speed(const struct topo *topo, const struct topo_ring *ring) {
    double narrowest = INFINITY;
    for (int i = 0; i < topo->gpu_count; i++) {
        int from = ring->gpus[i], to = ring->gpus[(i + 1) % topo->gpu_count];
        double gbps = topo_path_gbps(topo, from, to);
        if (topo_links(topo, from, to) > 0)
            gbps = topo_links(topo, from, to) * topo->link_gbps;
        else if (topo_gpu_class(topo, from, to) == ROTA_PATH_LNK)
            gbps = topo->switch_links[from] * topo->link_gbps;
        narrowest = fmin(narrowest, gbps);
    }
    return narrowest;
}

bool topo_score(const struct topo *topo, struct topo_rings *rings) {
    size_t gpus = (size_t)topo->gpu_count;
    double *load = calloc(gpus * gpus + 2 * gpus + 1, sizeof(double)), sum = 0;
    if (load == NULL)
        return false;
    memset(rings->hops, 0, sizeof(rings->hops));
    double worst = worst_load(topo, rings, load, rings->hops);
    free(load);
    bool far = false;
    for (int class = ROTA_PATH_PIX; class < ROTA_PATH_COUNT; class ++)
        far = far || rings->hops[class] > 0;
    for (int r = 0; r < rings->count; r++) {
        sum += rings->rings[r].share;
        rings->rings[r].gbps =
            far ? ring_speed(topo, &rings->rings[r]) : rings->rings[r].share * topo->link_gbps;
    }
    rings->score = far || worst <= 0 ? 0 : sum / worst;
    rings->score_gbps =
        far && rings->count > 0 ? rings->rings[0].gbps : rings->score * topo->link_gbps;
    return true;
}

static bool add_cycles(const struct packed *packed, bool whole, struct topo_rings *rings) {
    for (int c = 0; c < packed->count; c++) {
        int times = whole ? (int)lround(packed->shares[c]) : 1;
        for (int t = 0; t < times; t++) {
            struct topo_ring *ring = topo_add_ring(rings, whole ? 1 : packed->shares[c]);
            if (ring == NULL)
                return false;
            memcpy(ring->gpus, &packed->cycles[c * packed->n], (size_t)packed->n * sizeof(int));
        }
    }
    return true;
}

bool topo_pack_paths(const struct topo *topo, const int *gpus, int count, struct packing *problem) {
    int *links = malloc((size_t)count * (size_t)count * sizeof(int) + 1);
    for (int i = 0; i < count * count && links != NULL; i++)
        links[i] = topo_links(topo, gpus[i / count], gpus[i % count]);
    *problem = (struct packing){.n = 0};
    bool fine = links != NULL && packing_describe(problem, count, links, true);
    free(links);
    return fine;
}

static bool find_packed(const struct topo *topo, struct topo_rings *rings) {
    struct packing problem;
    struct packed shared = {0}, whole = {0};
    bool done = packing_describe(&problem, topo->gpu_count, topo->matrix, false) &&
                packing_solve(&problem, NULL, &shared);
    if (done) {
        int wanted = (int)floor(shared.bound + EPSILON);
        bool is_whole = shared.bound < wanted + EPSILON && wanted > 0 &&
                        packing_whole(&problem, wanted, &whole);
        rings->bound = is_whole ? wanted : shared.bound;
        rings->bound_kind = is_whole ? "whole" : "fractional";
        done = add_cycles(is_whole ? &whole : &shared, is_whole, rings);
    }
    packing_free(&shared);
    packing_free(&whole);
    packing_forget(&problem);
    return done;
}

/* One ring at least, where there are too many links for more. */
static bool add_any(const struct topo *topo, const int *gpus, struct topo_rings *rings) {
    struct topo_ring *ring = topo_add_ring(rings, 1);
    double *weights = link_weights(topo, gpus, topo->gpu_count);
    bool fine = ring != NULL && weights != NULL;
    if (fine && !hamilton_any(topo->gpu_count, weights, 40, 1, ring->gpus))
        memcpy(ring->gpus, gpus, (size_t)topo->gpu_count * sizeof(int));
    free(weights);
    return fine;
}

static bool find_large(const struct topo *topo, struct topo_rings *rings, const int *gpus) {
    struct packed packed;
    if (!covers_pack(topo->gpu_count, topo->matrix, &packed))
        return false;
    bool whole = true;
    for (int c = 0; c < packed.count; c++)
        whole = whole && fabs(packed.shares[c] - round(packed.shares[c])) < EPSILON;
    rings->bound = packed.bound;
    rings->bound_kind = whole ? "whole" : "fractional";
    bool fine = packed.count > 0 ? add_cycles(&packed, whole, rings) : add_any(topo, gpus, rings);
    packing_free(&packed);
    return fine;
}

/* A table may say of two GPUs on switches that no link joins them. */
static bool all_linked(const struct topo *topo) {
    for (int i = 0; i < topo->gpu_count; i++)
        for (int j = 0; j < topo->gpu_count; j++)
            if (i != j && topo_gpu_class(topo, i, j) != ROTA_PATH_LNK)
                return false;
    return true;
}

/* Every ring in the order of the PCI tree, so that neighbours are near each other there too. */
static bool find_switched(const struct topo *topo, struct topo_rings *rings, const int *gpus) {
    int width = topo->switch_links[0];
    for (int i = 0; i < topo->gpu_count; i++)
        width = topo->switch_links[i] < width ? topo->switch_links[i] : width;
    for (int r = 0; r < width; r++) {
        struct topo_ring *ring = topo_add_ring(rings, 1);
        if (ring == NULL)
            return false;
        if (r == 0 &&
            !topo_short_order(topo, gpus, topo->gpu_count, false, !all_linked(topo), ring->gpus))
            return false;
        memcpy(ring->gpus, rings->rings[0].gpus, (size_t)topo->gpu_count * sizeof(int));
    }
    rings->bound = width;
    rings->bound_kind = "whole";
    return true;
}

/* Numbers the groups of GPUs that nearer classes than this join, in the order of their first GPUs.
 * `group` has room for twice the GPUs. */
static int number_groups(const struct topo *topo, rota_path class, int *group) {
    int gpus = topo->gpu_count, groups = 0, *members = &group[gpus];
    memset(group, 0xff, (size_t)gpus * sizeof(int));
    for (int first = 0; first < gpus; first++) {
        if (group[first] >= 0)
            continue;
        int count = 0;
        group[members[count++] = first] = groups;
        for (int i = 0; i < count; i++)
            for (int a = members[i], b = 0; b < gpus; b++)
                if (group[b] < 0 &&
                    (topo_gpu_class(topo, a, b) < class || topo_gpu_class(topo, b, a) < class))
                    group[members[count++] = b] = groups;
        groups++;
    }
    return groups;
}

/* Fewest hops of each class or a farther one that any ring has: one out of each group that nearer
 * classes join, where there are several. */
static void bound_hops(const struct topo *topo, int *bound) {
    int gpus = topo->gpu_count, farther = 0, *group = malloc((2 * (size_t)gpus + 1) * sizeof(int));
    memset(bound, 0, ROTA_PATH_COUNT * sizeof(int));
    for (int class = ROTA_PATH_NET; class > ROTA_PATH_LNK && group != NULL; class --) {
        int groups = number_groups(topo, (rota_path) class, group);
        int least = groups > 1 ? groups : 0;
        bound[class] = least > farther ? least - farther : 0;
        farther = least > farther ? least : farther;
    }
    bound[ROTA_PATH_LNK] = gpus - farther;
    free(group);
}

static bool find_short_ring(const struct topo *topo, struct topo_rings *rings, const int *gpus) {
    struct topo_ring *ring = topo_add_ring(rings, 1);
    rings->bound_kind = "hops";
    if (ring == NULL || !topo_short_order(topo, gpus, topo->gpu_count, false, true, ring->gpus) ||
        !topo_score(topo, rings))
        return false;
    if (topo->gpu_count <= HAMILTON_EXACT) {
        memcpy(rings->bound_hops, rings->hops, sizeof(rings->hops));
        rings->optimal = true;
    } else {
        bound_hops(topo, rings->bound_hops);
        rings->optimal = memcmp(rings->bound_hops, rings->hops, sizeof(rings->hops)) == 0;
    }
    return true;
}

/* Numbers of paths that are tried, from the bound down. */
#define MAX_TRIES 8

/* Simultaneous paths through all GPUs of an island, each with a link to itself on each hop. */
static int count_paths(const struct topo *topo, const struct topo_island *island) {
    struct packing problem;
    struct packed shared = {0}, whole = {0};
    int paths = -1;
    if (island->count < 2 || island->count + 1 > HAMILTON_EXACT)
        return -1;
    if (topo_pack_paths(topo, island->gpus, island->count, &problem) &&
        packing_solve(&problem, NULL, &shared)) {
        int most = (int)floor(shared.bound + EPSILON), sure = 0;
        for (int c = 0; c < shared.count; c++)
            sure += (int)floor(shared.shares[c] + EPSILON);
        for (paths = most; paths > sure && paths > most - MAX_TRIES; paths--)
            if (packing_whole(&problem, paths, &whole))
                break;
        paths = whole.count > 0 ? paths : sure;
    }
    packing_free(&shared);
    packing_free(&whole);
    packing_forget(&problem);
    return paths;
}

static bool find_islands(const struct topo *topo, struct topo_rings *rings) {
    int gpus = topo->gpu_count, *group = malloc((2 * (size_t)gpus + 1) * sizeof(int));
    rings->islands = calloc((size_t)gpus + 1, sizeof(*rings->islands));
    rings->path_bound = -1;
    bool fine = group != NULL && rings->islands != NULL;
    int groups = fine ? number_groups(topo, ROTA_PATH_PIX, group) : 0;
    for (int g = 0; g < groups && fine; g++) {
        struct topo_island *island = &rings->islands[rings->island_count++];
        island->gpus = calloc((size_t)gpus + 1, sizeof(int));
        fine = island->gpus != NULL;
        for (int i = 0; i < gpus && fine; i++)
            if (group[i] == g)
                island->gpus[island->count++] = i;
        island->paths = fine ? count_paths(topo, island) : -1;
        if (island->paths >= 0 && (rings->path_bound < 0 || island->paths < rings->path_bound))
            rings->path_bound = island->paths;
    }
    free(group);
    return fine;
}

/* The least used of the nearest ports of a GPU, -1 none. */
static int pick_port(const struct topo *topo, int gpu, const int *used, rota_path *class) {
    int count, best = -1;
    const int *ports = topo_nearest_ports(topo, gpu, &count);
    for (int i = 0; i < count; i++)
        if (best < 0 || used[ports[i]] < used[best])
            best = ports[i];
    *class = topo_nearest_class(topo, gpu);
    return best;
}

/* Turns each ring so that it begins and ends next to NICs, in turn by all of them: this is where it
 * opens when several such hosts are joined. */
static bool place_ports(const struct topo *topo, struct topo_rings *rings) {
    int n = topo->gpu_count;
    int *used = calloc((size_t)topo->port_count + 1, sizeof(int));
    int *turned = calloc((size_t)n + 1, sizeof(int));
    bool fine = used != NULL && turned != NULL;
    for (int r = 0; r < rings->count && fine && topo->port_count > 0; r++) {
        struct topo_ring *ring = &rings->rings[r];
        int best = 0, best_cost = -1;
        for (int turn = 0; turn < n; turn++) {
            rota_path in_class, out_class;
            int in = pick_port(topo, ring->gpus[turn], used, &in_class);
            int out = pick_port(topo, ring->gpus[(turn + n - 1) % n], used, &out_class);
            int uses = used[in] + used[out] < 4096 ? used[in] + used[out] : 4095;
            int cost = ((int)in_class + (int)out_class) * 4096 + uses;
            if (best_cost < 0 || cost < best_cost) {
                best_cost = cost;
                best = turn;
                ring->ports[0] = in;
                ring->ports[1] = out;
            }
        }
        used[ring->ports[0]]++;
        used[ring->ports[1]]++;
        for (int i = 0; i < n; i++)
            turned[i] = ring->gpus[(best + i) % n];
        memcpy(ring->gpus, turned, (size_t)n * sizeof(int));
    }
    free(used);
    free(turned);
    return fine;
}

static bool find_on_one_host(const struct topo *topo, struct topo_rings *rings, const int *gpus) {
    bool fine;
    rings->kind = topo_ring_kind(topo, gpus, topo->gpu_count);
    if (strcmp(rings->kind, "nvswitch") == 0)
        fine = find_switched(topo, rings, gpus);
    else if (strcmp(rings->kind, "direct") == 0 && topo->gpu_count > HAMILTON_EXACT)
        fine = find_large(topo, rings, gpus);
    else if (strcmp(rings->kind, "direct") == 0)
        fine = find_packed(topo, rings);
    else
        fine = find_short_ring(topo, rings, gpus);
    if (fine && strcmp(rings->kind, "islands") == 0)
        fine = find_islands(topo, rings);
    if (!fine || !place_ports(topo, rings) || !topo_score(topo, rings))
        return false;
    if (strcmp(rings->bound_kind, "hops") == 0)
        rings->score = 0; /* hops are what counts, be they all links */
    else
        rings->optimal = rings->score > rings->bound - 1e-4;
    return true;
}

rota_status topo_find_rings(const struct topo *topo, struct topo_rings *rings) {
    *rings = (struct topo_rings){.kind = "none", .bound_kind = "whole", .path_bound = -1};
    rings->gpu_count = topo->gpu_count;
    rings->port_count = 2 * (topo->host_count > 0 ? topo->host_count : 1);
    rings->optimal = true;
    if (topo->gpu_count < 2)
        return ROTA_OK;
    if (topo->host_count > 1)
        return topo_find_host_rings(topo, rings);
    int *gpus = malloc((size_t)topo->gpu_count * sizeof(int));
    for (int i = 0; i < topo->gpu_count && gpus != NULL; i++)
        gpus[i] = i;
    bool fine = gpus != NULL && find_on_one_host(topo, rings, gpus);
    free(gpus);
    if (fine)
        return ROTA_OK;
    topo_free_rings(rings);
    return error_raise(ROTA_ERR_MEMORY, "no memory for the search of rings");
}
