/* How devices reach each other: path classes, distances, nearest NICs, and the numbering of GPUs
 * and ports that everything else uses.
 *
 * Classes follow from the tree alone: the node where the ways from both devices meet decides, and
 * for two devices that meet in PCI the number of switches between them. Direct links come on top.
 * Where a source gives classes instead of a tree (a matrix), those stand. */
#include "base/error.h"
#include "topology/graph.h"

#include <stdlib.h>
#include <string.h>

const char *rota_path_name(rota_path path) {
    static const char *const names[] = {"LOC", "LNK", "PIX", "PXB", "PHB", "NODE", "SYS", "NET"};
    return (int)path >= 0 && path < ROTA_PATH_COUNT ? names[path] : NULL;
}

static int depth_of(const struct topo *topo, int node) {
    int depth = 0;
    while ((node = topo->nodes[node].parent) >= 0)
        depth++;
    return depth;
}

/* Where the ways upward from a and b meet, -1 nowhere; `between` counts PCI switches on the way,
 * the meeting point included, `steps` all steps. */
static int meet(const struct topo *topo, int a, int b, int *between, int *steps) {
    int depth_a = depth_of(topo, a), depth_b = depth_of(topo, b), first_a = a, first_b = b;
    *between = *steps = 0;
    while (a != b && a >= 0 && b >= 0) {
        int *lower = depth_a >= depth_b ? &a : &b;
        if (*lower != first_a && *lower != first_b && topo->nodes[*lower].kind == TOPO_PCI)
            (*between)++;
        *(depth_a >= depth_b ? &depth_a : &depth_b) -= 1;
        *lower = topo->nodes[*lower].parent;
        (*steps)++;
    }
    if (a != b || a < 0)
        return -1;
    if (topo->nodes[a].kind == TOPO_PCI)
        (*between)++;
    return a;
}

rota_path topo_class(const struct topo *topo, int a, int b) {
    int between, steps;
    if (a == b)
        return ROTA_PATH_LOC;
    int at = meet(topo, a, b, &between, &steps);
    if (at < 0)
        return ROTA_PATH_NET;
    switch (topo->nodes[at].kind) {
    case TOPO_HOST:
        return ROTA_PATH_SYS;
    case TOPO_PACKAGE:
    case TOPO_NUMA:
        return ROTA_PATH_NODE;
    case TOPO_ROOT:
        return ROTA_PATH_PHB;
    default: /* one device holds the other, or both: as near as PCI gets */
        return between > 1 ? ROTA_PATH_PXB : ROTA_PATH_PIX;
    }
}

int topo_distance(const struct topo *topo, int a, int b) {
    int between, steps;
    meet(topo, a, b, &between, &steps);
    return steps;
}

double topo_path_gbps(const struct topo *topo, int a, int b) {
    int between, steps, from = topo->gpus[a], to = topo->gpus[b];
    int at = meet(topo, from, to, &between, &steps);
    const char *source;
    double narrowest = 0;
    for (int side = 0; side < 2; side++)
        for (int node = side == 0 ? from : to; node >= 0 && node != at;
             node = topo->nodes[node].parent) {
            const struct topo_node *step = &topo->nodes[node];
            double gbps = step->gbps;
            if (step->kind == TOPO_NUMA && at >= 0 && topo->nodes[at].kind == TOPO_HOST)
                gbps = topo_cpu_speed(step, &source);
            if (gbps > 0 && (narrowest == 0 || gbps < narrowest))
                narrowest = gbps;
        }
    /* Nothing known: 16 lanes of 8 GT/s, what NCCL falls back to. */
    return narrowest > 0 ? narrowest : topo_pci_speed(8, 16);
}

int topo_nearest_ports(const struct topo *topo, int gpu, int *ports, rota_path *best) {
    int count = 0;
    *best = ROTA_PATH_COUNT;
    for (int port = 0; port < topo->port_count; port++) {
        rota_path class = topo_port_class(topo, gpu, port);
        if (class > *best)
            continue;
        if (class < *best)
            count = 0;
        *best = class;
        ports[count++] = port;
    }
    if (topo->given_classes != NULL)
        return count;
    for (int i = 1; i < count; i++) { /* insertion sort: stable, and few are near */
        int port = ports[i], at = i;
        int steps = topo_distance(topo, topo->gpus[gpu], topo->ports[port]);
        for (; at > 0 && topo_distance(topo, topo->gpus[gpu], topo->ports[ports[at - 1]]) > steps;
             at--)
            ports[at] = ports[at - 1];
        ports[at] = port;
    }
    return count;
}

enum order_key { BY_RANK, BY_DEV, BY_BUSID };

struct order {
    const struct topo *topo;
    enum order_key key;
};

static int compare_nodes(const void *left, const void *right, void *argument) {
    const struct order *order = argument;
    const struct topo_node *a = &order->topo->nodes[*(const int *)left],
                           *b = &order->topo->nodes[*(const int *)right];
    int compared = 0;
    if (order->key == BY_RANK)
        compared = (a->rank > b->rank) - (a->rank < b->rank);
    else if (order->key == BY_DEV)
        compared = (a->dev > b->dev) - (a->dev < b->dev);
    if (compared == 0)
        compared = (a->host > b->host) - (a->host < b->host);
    if (compared == 0)
        compared = strcmp(a->busid, b->busid);
    return compared != 0 ? compared : *(const int *)left - *(const int *)right;
}

/* Whether every GPU has a number of that kind and no two the same, once sorted by it. */
static bool numbers_unique(const struct topo *topo, enum order_key key) {
    for (int i = 0; i < topo->gpu_count; i++) {
        const struct topo_node *node = &topo->nodes[topo->gpus[i]];
        int number = key == BY_RANK ? node->rank : node->dev;
        const struct topo_node *last = i > 0 ? &topo->nodes[topo->gpus[i - 1]] : NULL;
        if (number < 0 || (last != NULL && number == (key == BY_RANK ? last->rank : last->dev)))
            return false;
    }
    return true;
}

static int *collect(const struct topo *topo, enum topo_kind kind, int *count) {
    *count = 0;
    for (int i = 0; i < topo->node_count; i++)
        *count += topo->nodes[i].kind == kind;
    int *found = calloc((size_t)*count + 1, sizeof(int)), at = 0;
    for (int i = 0; i < topo->node_count && found != NULL; i++)
        if (topo->nodes[i].kind == kind)
            found[at++] = i;
    return found;
}

static bool number_devices(struct topo *topo) {
    topo->gpus = collect(topo, TOPO_GPU, &topo->gpu_count);
    topo->ports = collect(topo, TOPO_PORT, &topo->port_count);
    if (topo->gpus == NULL || topo->ports == NULL)
        return false;
    for (int key = BY_RANK; key <= BY_BUSID; key++) {
        struct order order = {topo, (enum order_key)key};
        qsort_r(topo->gpus, (size_t)topo->gpu_count, sizeof(int), compare_nodes, &order);
        if (key == BY_BUSID || numbers_unique(topo, order.key))
            break;
    }
    for (int i = 0; i < topo->gpu_count; i++)
        topo->nodes[topo->gpus[i]].id = i;
    for (int i = 0; i < topo->port_count; i++)
        topo->nodes[topo->ports[i]].id = i;
    return true;
}

static bool fill_matrix(struct topo *topo) {
    size_t gpus = (size_t)topo->gpu_count;
    topo->matrix = calloc(gpus * gpus + 1, sizeof(int));
    topo->switch_links = calloc(gpus + 1, sizeof(int));
    if (topo->matrix == NULL || topo->switch_links == NULL)
        return false;
    for (int i = 0; i < topo->link_count; i++) {
        const struct topo_link *link = &topo->links[i];
        const struct topo_node *from = &topo->nodes[link->from], *to = &topo->nodes[link->to];
        if (from->kind != TOPO_GPU)
            continue;
        if (to->kind == TOPO_GPU)
            topo->matrix[from->id * topo->gpu_count + to->id] += link->count;
        else if (to->kind == TOPO_NVSWITCH)
            topo->switch_links[from->id] += link->count;
    }
    return true;
}

static bool fill_classes(struct topo *topo) {
    int gpus = topo->gpu_count, all = gpus + topo->port_count;
    topo->classes = calloc((size_t)all * (size_t)all + 1, 1);
    if (topo->classes == NULL)
        return false;
    for (int i = 0; i < all; i++)
        for (int j = 0; j < all; j++) {
            size_t at = (size_t)i * (size_t)all + (size_t)j;
            int a = i < gpus ? topo->gpus[i] : topo->ports[i - gpus];
            int b = j < gpus ? topo->gpus[j] : topo->ports[j - gpus];
            bool given = topo->nodes[a].column >= 0 && topo->nodes[b].column >= 0;
            bool switched = i < gpus && j < gpus && i != j && topo_on_switch(topo, i) &&
                            topo_on_switch(topo, j) && topo->nodes[a].host == topo->nodes[b].host;
            bool linked = i < gpus && j < gpus && i != j &&
                          (topo_links(topo, i, j) > 0 || (switched && !given));
            if (linked)
                topo->classes[at] = ROTA_PATH_LNK;
            else if (given)
                topo->classes[at] = topo->given_classes[topo->nodes[a].column * topo->given_width +
                                                        topo->nodes[b].column];
            else
                topo->classes[at] = (uint8_t)topo_class(topo, a, b);
        }
    return true;
}

/* The speed of a link is that of the slowest architecture that has links. */
static void find_link_speed(struct topo *topo) {
    topo->link_name = topo->link_from = "";
    bool found = false;
    for (int i = 0; i < topo->link_count; i++) {
        const struct topo_node *from = &topo->nodes[topo->links[i].from];
        const char *name, *source;
        if (from->kind != TOPO_GPU)
            continue;
        double gbps = topo_link_speed(topo->brand, from->arch, &name, &source);
        if (!found || gbps < topo->link_gbps) {
            topo->link_gbps = gbps;
            topo->link_name = name;
            topo->link_from = source;
        }
        found = true;
    }
}

/* Matrices of all pairs are kept, so their number bounds memory: 4096 devices take 80 MiB. */
#define MAX_DEVICES 4096

rota_status topo_finish(struct topo *topo) {
    int devices = 0;
    for (int i = 0; i < topo->node_count; i++)
        devices += topo->nodes[i].kind == TOPO_GPU || topo->nodes[i].kind == TOPO_PORT;
    if (devices > MAX_DEVICES)
        return error_raise(ROTA_ERR_FORMAT, "%s: %d GPUs and NIC ports, expected at most %d",
                           topo->source, devices, MAX_DEVICES);
    if (topo->no_memory || !number_devices(topo) || !fill_matrix(topo) || !fill_classes(topo))
        return error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", topo->source);
    find_link_speed(topo);
    return topo_find_doubts(topo);
}
