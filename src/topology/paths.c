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

/* The class of two devices that meet in `at`, with so many PCI switches on the way. */
static rota_path class_at(const struct topo *topo, int at, int switches) {
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
        return switches > 1 ? ROTA_PATH_PXB : ROTA_PATH_PIX;
    }
}

/* Where the ways upward from a and b meet, -1 nowhere. */
static int meet(const struct topo *topo, int a, int b) {
    int depth_a = topo_depth(topo, a), depth_b = topo_depth(topo, b);
    while (a != b && a >= 0 && b >= 0) {
        int *lower = depth_a >= depth_b ? &a : &b;
        *(depth_a >= depth_b ? &depth_a : &depth_b) -= 1;
        *lower = topo->nodes[*lower].parent;
    }
    return a == b ? a : -1;
}

double topo_path_gbps(const struct topo *topo, int a, int b) {
    int from = topo->gpus[a], to = topo->gpus[b], at = meet(topo, from, to);
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

/* Rings are counted by links; the largest GPU so far has 18. */
#define MAX_LINKS 4096

/* Sums stop where they are too large, however long the file is. */
static void add_links(int *sum, int count) {
    *sum = count <= MAX_LINKS - *sum ? *sum + count : MAX_LINKS + 1;
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
            add_links(&topo->matrix[from->id * topo->gpu_count + to->id], link->count);
        else if (to->kind == TOPO_NVSWITCH)
            add_links(&topo->switch_links[from->id], link->count);
    }
    return true;
}

/* The ways from one device to all others. Only nodes that are or hold devices matter: what a file
 * lists beside them costs nothing per device. */
struct ways {
    int *order; /* those nodes, each after its parent */
    int count;
    int *depth;     /* of a node, -1: it holds no device */
    int *at;        /* where the ways from the device and from the node meet, -1 nowhere */
    int *switches;  /* between the two, where they meet included */
    uint64_t *near; /* room to sort the ports of a GPU: steps, then number */
};

static void ways_free(struct ways *ways) {
    free(ways->depth);
    free(ways->near);
}

static bool ways_init(const struct topo *topo, struct ways *ways) {
    size_t nodes = (size_t)topo->node_count;
    *ways = (struct ways){.depth = malloc((4 * nodes + 1) * sizeof(int)),
                          .near = malloc(((size_t)topo->port_count + 1) * sizeof(uint64_t))};
    if (ways->depth == NULL || ways->near == NULL)
        return false;
    ways->order = &ways->depth[nodes];
    ways->at = &ways->order[nodes];
    ways->switches = &ways->at[nodes];
    for (size_t i = 0; i < nodes; i++)
        ways->depth[i] = -1;
    for (int i = 0; i < topo->gpu_count + topo->port_count; i++) {
        int device = i < topo->gpu_count ? topo->gpus[i] : topo->ports[i - topo->gpu_count];
        int added = 0, at = device;
        for (; at >= 0 && ways->depth[at] < 0; at = topo->nodes[at].parent)
            added++;
        int depth = (at >= 0 ? ways->depth[at] : -1) + added, place = ways->count += added;
        for (at = device; added > 0; at = topo->nodes[at].parent, added--) {
            ways->order[--place] = at;
            ways->depth[at] = depth--;
        }
    }
    return true;
}

static void find_ways(const struct topo *topo, struct ways *ways, int from) {
    int switches = 0;
    for (int i = 0; i < ways->count; i++) {
        ways->at[ways->order[i]] = -1;
        ways->switches[ways->order[i]] = 0;
    }
    for (int at = from; at >= 0; at = topo->nodes[at].parent) {
        switches += at != from && topo->nodes[at].kind == TOPO_PCI;
        ways->at[at] = at;
        ways->switches[at] = switches;
    }
    for (int i = 0; i < ways->count; i++) {
        int node = ways->order[i], parent = topo->nodes[node].parent;
        if (ways->at[node] == node || parent < 0)
            continue;
        ways->at[node] = ways->at[parent];
        /* A node on the way up counts itself already. */
        ways->switches[node] = ways->switches[parent] + (topo->nodes[node].kind == TOPO_PCI);
    }
}

static int compare_numbers(const void *left, const void *right) {
    uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Appends the ports of the best class for a GPU, those with the fewest steps first. */
static bool add_nearest(struct topo *topo, struct ways *ways, int gpu) {
    int from = topo->gpus[gpu], total = topo->nearest_first[gpu], count = 0;
    rota_path best = ROTA_PATH_COUNT;
    for (int i = 0; i < topo->port_count; i++) {
        rota_path class = topo_port_class(topo, gpu, i);
        int to = topo->ports[i], at = ways->at[to];
        if (class > best)
            continue;
        count = class < best ? 0 : count;
        best = class;
        int steps = ways->depth[from] + ways->depth[to] - 2 * (at >= 0 ? ways->depth[at] : -1);
        steps = topo->given_classes != NULL ? 0 : steps;
        ways->near[count++] = (uint64_t)steps << 32 | (uint64_t)i;
    }
    qsort(ways->near, (size_t)count, sizeof(uint64_t), compare_numbers);
    int *larger = realloc(topo->nearest, ((size_t)total + (size_t)count + 1) * sizeof(int));
    if (larger == NULL)
        return false;
    topo->nearest = larger;
    for (int i = 0; i < count; i++)
        larger[total + i] = (int)(uint32_t)ways->near[i];
    topo->nearest_first[gpu + 1] = total + count;
    return true;
}

static void fill_row(struct topo *topo, const struct ways *ways, int i) {
    int gpus = topo->gpu_count, all = gpus + topo->port_count;
    const struct topo_node *a = &topo->nodes[i < gpus ? topo->gpus[i] : topo->ports[i - gpus]];
    for (int j = 0; j < all; j++) {
        int to = j < gpus ? topo->gpus[j] : topo->ports[j - gpus];
        const struct topo_node *b = &topo->nodes[to];
        rota_path tree = i == j ? ROTA_PATH_LOC : class_at(topo, ways->at[to], ways->switches[to]);
        int class = (int)tree;
        bool given = a->column >= 0 && b->column >= 0;
        if (given)
            class = topo->given_classes[a->column * topo->given_width + b->column];
        if (i < gpus && j < gpus && i != j) {
            bool switched =
                topo_on_switch(topo, i) && topo_on_switch(topo, j) && a->host == b->host;
            if (topo_links(topo, i, j) > 0 || (switched && !given))
                class = ROTA_PATH_LNK;
        }
        topo->classes[(size_t)i * (size_t)all + (size_t)j] = (uint8_t)(class | (int)tree << 4);
    }
}

static bool fill_classes(struct topo *topo) {
    int gpus = topo->gpu_count, all = gpus + topo->port_count;
    struct ways ways;
    topo->classes = calloc((size_t)all * (size_t)all + 1, 1);
    topo->nearest_first = calloc((size_t)gpus + 1, sizeof(int));
    bool fine = ways_init(topo, &ways) && topo->classes != NULL && topo->nearest_first != NULL;
    for (int i = 0; i < all && fine; i++) {
        find_ways(topo, &ways, i < gpus ? topo->gpus[i] : topo->ports[i - gpus]);
        fill_row(topo, &ways, i);
        fine = i >= gpus || add_nearest(topo, &ways, i);
    }
    ways_free(&ways);
    return fine;
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

static rota_status check_links(const struct topo *topo) {
    for (int i = 0; i < topo->gpu_count; i++) {
        int64_t links = topo->switch_links[i];
        for (int j = 0; j < topo->gpu_count; j++)
            links += topo_links(topo, i, j);
        if (links > MAX_LINKS)
            return error_raise(ROTA_ERR_FORMAT, "%s: GPU %d has %lld links, expected at most %d",
                               topo->source, i, (long long)links, MAX_LINKS);
    }
    return ROTA_OK;
}

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
    rota_status status = check_links(topo);
    return status == ROTA_OK ? topo_find_doubts(topo) : status;
}
