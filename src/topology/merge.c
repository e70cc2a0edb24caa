/* Filling in from this machine what a file lacks. NCCL's files are often partial on purpose: NCCL
 * itself asks the driver for links, names and speeds at run time. Devices are the same when their
 * bus ids are; what the file does say stands. */
#include "topology/graph.h"

#include <string.h>

static bool has_links(const struct topo *topo) {
    for (int i = 0; i < topo->link_count; i++)
        if (topo->nodes[topo->links[i].from].kind == TOPO_GPU)
            return true;
    return false;
}

static int find_device(const struct topo *topo, enum topo_kind kind, const char *busid) {
    for (int i = 0; i < topo->node_count; i++)
        if (topo->nodes[i].kind == kind && busid[0] != '\0' &&
            strcmp(topo->nodes[i].busid, busid) == 0)
            return i;
    return -1;
}

static void fill_device(struct topo_node *node, const struct topo_node *from, int *filled) {
    if (node->arch == 0 && from->arch != 0) {
        node->arch = from->arch;
        ++*filled;
    }
    if (node->vendor == 0 && from->vendor != 0) {
        node->vendor = from->vendor;
        node->device = from->device;
        ++*filled;
    }
    if (node->gbps <= 0 && from->gbps > 0) {
        node->gbps = from->gbps;
        node->gts = from->gts;
        node->lanes = from->lanes;
        ++*filled;
    }
}

/* A NIC known by its class alone has one port that is called by its bus id: it gets the real name.
 */
static void fill_port(struct topo *topo, int nic, const struct topo *machine, int there,
                      int *filled) {
    for (int p = 0; p < topo->node_count; p++) {
        struct topo_node *port = &topo->nodes[p];
        if (port->kind != TOPO_PORT || port->parent != nic ||
            strcmp(port->name, topo->nodes[nic].busid) != 0)
            continue;
        for (int q = 0; q < machine->node_count; q++)
            if (machine->nodes[q].kind == TOPO_PORT && machine->nodes[q].parent == there) {
                memcpy(port->name, machine->nodes[q].name, sizeof(port->name));
                ++*filled;
                break;
            }
    }
}

/* The same device in the file: switches are made, since files leave them to run time too. */
static int counterpart(struct topo *topo, const struct topo *machine, int node, int gpu) {
    const struct topo_node *there = &machine->nodes[node];
    int found = find_device(topo, there->kind, there->busid);
    if (found < 0 && there->kind == TOPO_NVSWITCH) {
        found = topo_add_node(topo, TOPO_NVSWITCH, topo_above(topo, gpu, TOPO_HOST));
        if (found >= 0)
            memcpy(topo->nodes[found].busid, there->busid, sizeof(there->busid));
    }
    return found;
}

static int fill_links(struct topo *topo, const struct topo *machine) {
    int filled = 0;
    for (int i = 0; i < machine->link_count; i++) {
        const struct topo_link *link = &machine->links[i];
        int from = machine->nodes[link->from].kind == TOPO_GPU
                       ? find_device(topo, TOPO_GPU, machine->nodes[link->from].busid)
                       : -1;
        int to = from < 0 ? -1 : counterpart(topo, machine, link->to, from);
        if (to < 0)
            continue;
        topo_add_link(topo, from, to, link->count);
        topo->brand = machine->brand;
        filled += link->count;
    }
    return filled;
}

void topo_merge(struct topo *topo, const struct topo *machine) {
    int known = 0, filled = 0, links = 0, gpus = 0;
    for (int i = 0; i < machine->node_count; i++) {
        const struct topo_node *there = &machine->nodes[i];
        if (there->kind != TOPO_GPU && there->kind != TOPO_NIC && there->kind != TOPO_PCI)
            continue;
        int here = find_device(topo, there->kind, there->busid);
        gpus += here < 0 && there->kind == TOPO_GPU;
        if (here < 0)
            continue;
        known++;
        fill_device(&topo->nodes[here], there, &filled);
        if (there->kind == TOPO_NIC)
            fill_port(topo, here, machine, i, &filled);
    }
    if (known == 0) {
        topo_warn(topo, "no device of the file is in this machine: nothing was filled in");
        return;
    }
    if (!has_links(topo) && (links = fill_links(topo, machine)) > 0)
        topo_warn(topo, "%d direct links were filled in from this machine", links);
    if (filled > 0)
        topo_warn(topo, "%d names, speeds and models were filled in from this machine", filled);
    if (gpus > 0)
        topo_warn(topo, "this machine has %d GPUs that the file lacks", gpus);
}
