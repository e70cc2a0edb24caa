/* Reader of rota's own text for clusters of equal hosts, for planning machines that one does not
 * have. docs/topology.md describes it; a file is some lines such as
 *
 *     cluster 1
 *     hosts 16
 *     numa 2
 *     gpus 8 arch 90
 *     links nvswitch 18
 *     nics 8 speed 400
 *     fabric fat-tree leaves 4 spines 2 speed 1600
 */
#include "base/error.h"
#include "topology/graph.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum shape { LINKS_NONE, LINKS_NVSWITCH, LINKS_MESH, LINKS_RING };
enum fabric { FABRIC_SWITCH, FABRIC_RAILS, FABRIC_FAT_TREE, FABRIC_DRAGONFLY, FABRIC_TORUS };

struct plan {
    struct topo *topo;
    int line;
    long hosts, numa, gpus, arch, nics, speed, link_width, fabric_speed;
    enum shape shape;
    enum topo_brand brand;
    enum fabric fabric;
    long sizes[3]; /* leaves, spines; groups, routers; x, y, z */
    int size_count;
};

static rota_status wrong(const struct plan *plan, const char *expected, const char *word) {
    return error_raise(ROTA_ERR_FORMAT, "%.150s, line %d: expected %s%s%.40s%s", plan->topo->source,
                       plan->line, expected, word[0] ? " instead of '" : "", word,
                       word[0] ? "'" : "");
}

static char *next_word(char **at) {
    static char nothing[] = "";
    char *word = strtok_r(NULL, " \t\r", at);
    return word == NULL ? nothing : word;
}

static bool read_number(const char *word, long low, long high, long *value) {
    char *end;
    long number = strtol(word, &end, 10);
    if (end == word || *end != '\0' || number < low || number > high)
        return false;
    *value = number;
    return true;
}

static rota_status read_links(struct plan *plan, char **at) {
    const char *word = next_word(at);
    plan->brand = TOPO_NVLINK;
    if (strcmp(word, "none") == 0) {
        plan->shape = LINKS_NONE;
        return ROTA_OK;
    }
    if (strcmp(word, "nvswitch") == 0)
        plan->shape = LINKS_NVSWITCH;
    else if (strcmp(word, "mesh") == 0)
        plan->shape = LINKS_MESH;
    else if (strcmp(word, "ring") == 0)
        plan->shape = LINKS_RING;
    else
        return wrong(plan, "links none, nvswitch, mesh or ring", word);
    word = next_word(at);
    if (!read_number(word, 1, 64, &plan->link_width))
        return wrong(plan, "a number of links from 1 to 64", word);
    word = next_word(at);
    if (strcmp(word, "xgmi") == 0)
        plan->brand = TOPO_XGMI;
    else if (word[0] != '\0')
        return wrong(plan, "xgmi or the end of the line", word);
    return ROTA_OK;
}

/* "name number" pairs behind the kind of fabric. */
static rota_status read_fabric(struct plan *plan, char **at) {
    static const struct {
        const char *name, *first, *second;
        enum fabric fabric;
    } kinds[] = {{"switch", NULL, NULL, FABRIC_SWITCH},
                 {"rails", NULL, NULL, FABRIC_RAILS},
                 {"fat-tree", "leaves", "spines", FABRIC_FAT_TREE},
                 {"dragonfly", "groups", "routers", FABRIC_DRAGONFLY},
                 {"torus", "", "", FABRIC_TORUS}};
    const char *word = next_word(at);
    size_t kind = 0;
    while (kind < 5 && strcmp(word, kinds[kind].name) != 0)
        kind++;
    if (kind == 5)
        return wrong(plan, "fabric switch, rails, fat-tree, dragonfly or torus", word);
    plan->fabric = kinds[kind].fabric;
    plan->size_count = plan->fabric == FABRIC_TORUS ? 0 : kinds[kind].first != NULL ? 2 : 0;
    for (int i = 0; i < plan->size_count; i++) {
        const char *name = i == 0 ? kinds[kind].first : kinds[kind].second;
        word = next_word(at);
        if (strcmp(word, name) != 0)
            return wrong(plan, name, word);
        word = next_word(at);
        if (!read_number(word, 1, 1024, &plan->sizes[i]))
            return wrong(plan, "a number from 1 to 1024", word);
    }
    word = next_word(at);
    for (; plan->fabric == FABRIC_TORUS && plan->size_count < 3; plan->size_count++) {
        if (plan->size_count > 0 && !isdigit((unsigned char)word[0]))
            break;
        if (!read_number(word, 1, 1024, &plan->sizes[plan->size_count]))
            return wrong(plan, "one to three numbers from 1 to 1024", word);
        word = next_word(at);
    }
    if (strcmp(word, "speed") == 0) {
        word = next_word(at);
        if (!read_number(word, 1, 1000000, &plan->fabric_speed))
            return wrong(plan, "a number from 1 to 1000000", word);
        word = next_word(at);
    }
    return word[0] == '\0' ? ROTA_OK : wrong(plan, "speed or the end of the line", word);
}

static rota_status read_line(struct plan *plan, char *line) {
    char *at = line, *word = strtok_r(line, " \t\r", &at);
    const char *value;
    if (word == NULL)
        return ROTA_OK;
    static const struct {
        const char *name, *extra, *range;
        long low, high;
    } keys[] = {{"cluster", NULL, "version 1", 1, 1},
                {"hosts", NULL, "a number from 1 to 4096", 1, 4096},
                {"numa", NULL, "a number from 1 to 64", 1, 64},
                {"gpus", "arch", "a number from 0 to 64", 0, 64},
                {"nics", "speed", "a number from 0 to 64", 0, 64}};
    long version, *places[] = {&version, &plan->hosts, &plan->numa, &plan->gpus, &plan->nics};
    for (size_t i = 0; i < 5; i++) {
        if (strcmp(word, keys[i].name) != 0)
            continue;
        if (!read_number(value = next_word(&at), keys[i].low, keys[i].high, places[i]))
            return wrong(plan, keys[i].range, value);
        value = next_word(&at);
        if (value[0] == '\0')
            return ROTA_OK;
        if (keys[i].extra == NULL || strcmp(value, keys[i].extra) != 0)
            return wrong(plan, keys[i].extra == NULL ? "the end of the line" : keys[i].extra,
                         value);
        value = next_word(&at);
        if (!read_number(value, 1, 1000000, i == 3 ? &plan->arch : &plan->speed))
            return wrong(plan, "a number from 1 to 1000000", value);
        return ROTA_OK;
    }
    if (strcmp(word, "links") == 0)
        return read_links(plan, &at);
    if (strcmp(word, "fabric") == 0)
        return read_fabric(plan, &at);
    return wrong(plan, "cluster, hosts, numa, gpus, links, nics or fabric", word);
}

static rota_status read_lines(struct plan *plan, char *text) {
    while (text != NULL) {
        char *line = strsep(&text, "\n");
        plan->line++;
        char *comment = strchr(line, '#');
        if (comment != NULL)
            *comment = '\0';
        rota_status status = read_line(plan, line);
        if (status != ROTA_OK)
            return status;
    }
    long points = 1;
    for (int i = 0; i < plan->size_count; i++)
        points *= plan->sizes[i];
    if (plan->fabric == FABRIC_TORUS && points != plan->hosts)
        return error_raise(ROTA_ERR_FORMAT, "%.150s: a torus of %ld points for %ld hosts",
                           plan->topo->source, points, plan->hosts);
    return ROTA_OK;
}

/* One host: PCI switches, each with its share of GPUs and NICs, dealt out to the NUMA nodes. */
static void add_host(struct plan *plan, long number, int *gpus, int *ports) {
    struct topo *topo = plan->topo;
    char name[32];
    snprintf(name, sizeof(name), "host%ld", number);
    int host = topo_add_host(topo, name), root = -1, pci = -1;
    long switches = plan->nics > plan->numa ? plan->nics : plan->numa, last_numa = -1, gpu = 0;
    long nic = 0;
    for (long s = 0; s < switches && !topo->no_memory; s++) {
        long numa = s * plan->numa / switches;
        if (numa != last_numa) {
            int node = topo_add_node(topo, TOPO_NUMA, host);
            if (node < 0)
                return;
            topo->nodes[node].numa = (int)numa;
            root = topo_add_node(topo, TOPO_ROOT, node);
            last_numa = numa;
        }
        pci = topo_add_node(topo, TOPO_PCI, root);
        for (; gpu < (s + 1) * plan->gpus / switches && pci >= 0; gpu++)
            if ((gpus[gpu] = topo_add_node(topo, TOPO_GPU, pci)) >= 0) {
                struct topo_node *node = &topo->nodes[gpus[gpu]];
                snprintf(node->busid, sizeof(node->busid), "0000:%02lx:00.0", 16 + gpu);
                node->arch = (int)plan->arch;
                node->gbps = topo_pci_speed(32, 16);
            }
        for (; nic < (s + 1) * plan->nics / switches && pci >= 0; nic++) {
            int device = topo_add_node(topo, TOPO_NIC, pci);
            if (device < 0 || (ports[nic] = topo_add_node(topo, TOPO_PORT, device)) < 0)
                return;
            snprintf(topo->nodes[ports[nic]].name, sizeof(topo->nodes[0].name), "nic%ld", nic);
            topo->nodes[ports[nic]].gbps = (double)plan->speed / 8.0; /* from Gbit/s */
            topo->nodes[ports[nic]].dev = (int)nic;
        }
    }
}

static void add_links(struct plan *plan, const int *gpus) {
    struct topo *topo = plan->topo;
    int width = (int)plan->link_width, count = (int)plan->gpus, nvswitch = -1;
    if (topo->no_memory || count < 2)
        return;
    if (plan->shape == LINKS_NVSWITCH)
        nvswitch = topo_add_node(topo, TOPO_NVSWITCH, topo_above(topo, gpus[0], TOPO_HOST));
    for (int i = 0; i < count; i++) {
        topo_add_link(topo, gpus[i], nvswitch, width);
        for (int j = 0; j < count && plan->shape == LINKS_MESH; j++)
            if (i != j)
                topo_add_link(topo, gpus[i], gpus[j], width);
        if (plan->shape == LINKS_RING) {
            topo_add_link(topo, gpus[i], gpus[(i + 1) % count], width);
            if (count > 2)
                topo_add_link(topo, gpus[(i + 1) % count], gpus[i], width);
        }
    }
}

static void join(struct topo *topo, int a, int b) {
    topo_add_link(topo, a, b, 1);
    topo_add_link(topo, b, a, 1);
}

static void add_switches(struct plan *plan, int *switches, long count) {
    for (long i = 0; i < count; i++) {
        if ((switches[i] = topo_add_node(plan->topo, TOPO_SWITCH, -1)) < 0)
            return;
        snprintf(plan->topo->nodes[switches[i]].name, sizeof(plan->topo->nodes[0].name),
                 "switch%ld", i);
    }
}

/* Links among switches; `switches` are leaves then spines, routers by group, or grid points. */
static void join_switches(struct plan *plan, const int *switches) {
    struct topo *topo = plan->topo;
    const long *sizes = plan->sizes;
    if (plan->fabric == FABRIC_FAT_TREE)
        for (long leaf = 0; leaf < sizes[0]; leaf++)
            for (long spine = 0; spine < sizes[1]; spine++)
                join(topo, switches[leaf], switches[sizes[0] + spine]);
    if (plan->fabric == FABRIC_DRAGONFLY)
        for (long a = 0; a < sizes[0] * sizes[1]; a++)
            for (long b = a + 1; b < sizes[0] * sizes[1]; b++) {
                long group_a = a / sizes[1], group_b = b / sizes[1];
                /* One link per pair of groups, dealt out to the routers in turn. */
                if (group_a == group_b ||
                    (a % sizes[1] == group_b % sizes[1] && b % sizes[1] == group_a % sizes[1]))
                    join(topo, switches[a], switches[b]);
            }
    if (plan->fabric == FABRIC_TORUS)
        for (long point = 0, stride = 1, d = 0; d < plan->size_count; stride *= sizes[d++])
            for (point = 0; point < plan->hosts && sizes[d] > 1; point++) {
                long at = point / stride % sizes[d], next = (at + 1) % sizes[d];
                if (sizes[d] > 2 || at == 0)
                    join(topo, switches[point], switches[point + (next - at) * stride]);
            }
}

static rota_status build(struct plan *plan) {
    long sizes = plan->sizes[0], switch_count = 1;
    if (plan->fabric == FABRIC_RAILS)
        switch_count = sizes = plan->nics > 0 ? plan->nics : 1;
    else if (plan->fabric == FABRIC_FAT_TREE)
        switch_count = plan->sizes[0] + plan->sizes[1];
    else if (plan->fabric == FABRIC_DRAGONFLY)
        switch_count = sizes = plan->sizes[0] * plan->sizes[1];
    else if (plan->fabric == FABRIC_TORUS)
        switch_count = sizes = plan->hosts;
    else
        sizes = 1;
    long devices = plan->hosts * (plan->gpus + plan->nics), numa = plan->hosts * plan->numa;
    if (switch_count > 4096 || devices > 4096 || numa > 8192)
        return error_raise(ROTA_ERR_FORMAT,
                           "%.150s: %ld switches, %ld GPUs and NICs, %ld NUMA nodes, expected at "
                           "most 4096, 4096 and 8192",
                           plan->topo->source, switch_count, devices, numa);
    int *switches = calloc((size_t)switch_count, sizeof(int)), gpus[64] = {0}, ports[64] = {0};
    if (switches == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a cluster");
    add_switches(plan, switches, switch_count);
    bool grid = plan->fabric == FABRIC_TORUS || plan->fabric == FABRIC_DRAGONFLY;
    if (plan->fabric_speed == 0 && grid)
        plan->fabric_speed = plan->speed;
    plan->topo->fabric_gbps = (double)plan->fabric_speed / 8.0;
    for (long host = 0; host < plan->hosts && !plan->topo->no_memory; host++) {
        add_host(plan, host, gpus, ports);
        add_links(plan, gpus);
        for (long nic = 0; nic < plan->nics && !plan->topo->no_memory; nic++) {
            long to = plan->fabric == FABRIC_RAILS ? nic : host * sizes / plan->hosts;
            join(plan->topo, ports[nic], switches[to]);
        }
    }
    join_switches(plan, switches);
    free(switches);
    return ROTA_OK;
}

rota_status topo_read_cluster(struct topo *topo, const char *bytes, size_t length) {
    struct plan plan = {.topo = topo, .hosts = 1, .numa = 1, .gpus = 8, .nics = 0, .speed = 100};
    char *text = strndup(bytes, length);
    if (text == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for a cluster");
    rota_status status = read_lines(&plan, text);
    free(text);
    topo->brand = plan.brand;
    return status == ROTA_OK ? build(&plan) : status;
}
