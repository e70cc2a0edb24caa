/* Depth first through the tree, the way back by parents, so that depth costs heap and no stack. */
#include "topology/walk.h"
#include "base/error.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Children of every node in the order of their indices. */
struct order {
    int *parent, *first, *next;
    int roots;
};

static bool order_init(struct order *order, const struct topo *topo,
                       int (*parent_of)(const struct topo *topo, int node)) {
    size_t count = (size_t)topo->node_count + 1;
    order->parent = malloc(3 * count * sizeof(int));
    order->roots = -1;
    if (order->parent == NULL)
        return false;
    order->first = order->parent + count;
    order->next = order->first + count;
    memset(order->parent, 0xff, 3 * count * sizeof(int));
    for (int i = topo->node_count - 1; i >= 0; i--) {
        if (topo->nodes[i].kind == TOPO_GONE)
            continue;
        int parent = parent_of(topo, i);
        int *list = parent < 0 ? &order->roots : &order->first[parent];
        order->parent[i] = parent;
        order->next[i] = *list;
        *list = i;
    }
    return true;
}

rota_status topo_walk(const struct topo *topo, void *context,
                      int (*parent)(const struct topo *topo, int node), topo_visit *open,
                      topo_visit *close) {
    struct order order;
    if (!order_init(&order, topo, parent))
        return error_raise(ROTA_ERR_MEMORY, "no memory to write the topology");
    for (int at = order.roots; at >= 0;) {
        open(topo, at, context);
        if (order.first[at] >= 0) {
            at = order.first[at];
            continue;
        }
        close(topo, at, context);
        while (at >= 0 && order.next[at] < 0) {
            at = order.parent[at];
            if (at >= 0)
                close(topo, at, context);
        }
        at = at < 0 ? -1 : order.next[at];
    }
    free(order.parent);
    return ROTA_OK;
}

rota_status topo_printed(FILE *out) {
    if (fflush(out) != 0 || ferror(out))
        return error_raise_system(errno, "the topology cannot be written");
    return ROTA_OK;
}
