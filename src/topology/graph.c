/* Building the graph: nodes, links, warnings. What the readers have in common. */
#include "topology/graph.h"
#include "base/error.h"
#include "topology/grow.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct topo *topo_create(const char *source) {
    struct topo *topo = calloc(1, sizeof(*topo));
    if (topo != NULL)
        topo_copy_text(topo->source, sizeof(topo->source), source);
    return topo;
}

void topo_destroy(struct topo *topo) {
    if (topo == NULL)
        return;
    for (int i = 0; i < topo->node_count; i++)
        hwloc_bitmap_free(topo->nodes[i].cpus);
    for (int i = 0; i < topo->core_count; i++)
        hwloc_bitmap_free(topo->cores[i].cpus);
    for (int i = 0; i < topo->warning_count; i++)
        free(topo->warnings[i]);
    free(topo->cores);
    free(topo->nodes);
    free(topo->links);
    free(topo->warnings);
    free(topo->gpus);
    free(topo->ports);
    free(topo->matrix);
    free(topo->switch_links);
    free(topo->classes);
    free(topo->nearest);
    free(topo->nearest_first);
    free(topo->given_classes);
    free(topo);
}

int topo_add_node(struct topo *topo, enum topo_kind kind, int parent) {
    if (!grow((void **)&topo->nodes, topo->node_count, &topo->node_room, sizeof(*topo->nodes))) {
        topo->no_memory = true;
        return -1;
    }
    struct topo_node *node = &topo->nodes[topo->node_count];
    *node = (struct topo_node){.kind = kind,
                               .parent = parent,
                               .host = -1,
                               .id = -1,
                               .numa = -1,
                               .column = -1,
                               .rank = -1,
                               .dev = -1};
    if (parent >= 0) {
        node->host = topo->nodes[parent].host;
        node->numa = topo->nodes[parent].numa;
    }
    return topo->node_count++;
}

void topo_add_link(struct topo *topo, int from, int to, int count) {
    if (count <= 0 || from < 0 || to < 0)
        return;
    if (!grow((void **)&topo->links, topo->link_count, &topo->link_room, sizeof(*topo->links)))
        topo->no_memory = true;
    else
        topo->links[topo->link_count++] = (struct topo_link){from, to, count};
}

void topo_warn(struct topo *topo, const char *format, ...) {
    char text[512];
    va_list arguments;
    if (topo->warning_count == TOPO_MAX_WARNINGS) { /* the last one counts the rest */
        topo->warnings_dropped++;
        snprintf(text, sizeof(text), "and %d more", topo->warnings_dropped + 1);
        char *last = strdup(text);
        if (last != NULL) {
            free(topo->warnings[topo->warning_count - 1]);
            topo->warnings[topo->warning_count - 1] = last;
        }
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    for (int i = 0; i < topo->warning_count; i++)
        if (strcmp(topo->warnings[i], text) == 0)
            return;
    char **larger =
        reallocarray(topo->warnings, (size_t)topo->warning_count + 1, sizeof(*topo->warnings));
    if (larger != NULL) {
        topo->warnings = larger;
        if ((larger[topo->warning_count] = strdup(text)) != NULL) {
            topo->warning_count++;
            return;
        }
    }
    topo->no_memory = true;
}

int topo_host_named(struct topo *topo, const char *name) {
    for (int i = 0, left = topo->host_count; left > 0; i++) {
        if (topo->nodes[i].kind != TOPO_HOST)
            continue;
        left--;
        if (strncmp(topo->nodes[i].name, name, sizeof(topo->nodes[i].name) - 1) == 0)
            return i;
    }
    return topo_add_host(topo, name);
}

int topo_add_host(struct topo *topo, const char *name) {
    int node = topo_add_node(topo, TOPO_HOST, -1);
    if (node >= 0) {
        topo_copy_text(topo->nodes[node].name, sizeof(topo->nodes[node].name), name);
        topo->nodes[node].host = topo->host_count++;
    }
    return node;
}

void topo_copy_text(char *to, size_t size, const char *from) {
    size_t length = 0;
    for (; from != NULL && from[length] != '\0' && length < size - 1; length++) {
        unsigned char byte = (unsigned char)from[length];
        to[length] = byte >= 0x20 && byte < 0x7f ? (char)byte : '?';
    }
    to[length] = '\0';
}

int topo_above(const struct topo *topo, int node, enum topo_kind kind) {
    while (node >= 0 && topo->nodes[node].kind != kind)
        node = topo->nodes[node].parent;
    return node;
}

int topo_depth(const struct topo *topo, int node) {
    int depth = 0;
    while ((node = topo->nodes[node].parent) >= 0)
        depth++;
    return depth;
}

int topo_trailing_number(const char *name) {
    size_t length = name == NULL ? 0 : strlen(name), at = length;
    while (at > 0 && name[at - 1] >= '0' && name[at - 1] <= '9')
        at--;
    return at == length ? -1 : (int)(strtol(name + at, NULL, 10) & 0xffffff);
}

const char *topo_kind_name(enum topo_kind kind) {
    static const char *const names[] = {"host",       "package", "NUMA node", "host bridge",
                                        "PCI switch", "GPU",     "NIC",       "port",
                                        "NVSwitch",   "switch",  "gone"};
    return names[kind];
}

const char *topo_node_label(const struct topo *topo, int node, char text[96]) {
    const struct topo_node *found = &topo->nodes[node];
    const char *name = found->name[0] != '\0' ? found->name : found->busid;
    if (found->kind == TOPO_GPU && found->id >= 0)
        snprintf(text, 96, "GPU %d%s%s%s", found->id, name[0] ? " (" : "", name,
                 name[0] ? ")" : "");
    else if (found->kind == TOPO_NUMA && found->numa >= 0)
        snprintf(text, 96, "NUMA node %d", found->numa);
    else
        snprintf(text, 96, "%s%s%s", topo_kind_name(found->kind), name[0] ? " " : "", name);
    return text;
}
