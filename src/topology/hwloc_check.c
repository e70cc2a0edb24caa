/* hwloc XML before hwloc sees it.
 *
 * hwloc's reader (2.9) says of a bad file only that it is bad, takes a recursion per level of
 * nesting, and silently drops everything that follows an XML comment within an object. So the file
 * is parsed once here: what is wrong is named with line and attribute, nesting is bounded, and
 * comments are taken out. */
#include "topology/hwloc_check.h"
#include "base/error.h"
#include "topology/xml.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Real machines have about 20; each level costs hwloc some hundred bytes of stack. */
#define MAX_DEPTH 64

struct checking {
    struct topo_xml xml;
    int depth;
    int version; /* stated by the root, 1 when it states none */
};

static void need(struct checking *checking, const char **attributes, const char *type,
                 const char *name) {
    if (topo_xml_attribute(attributes, name) == NULL)
        topo_xml_refuse(&checking->xml, "an element of type %.40s without attribute %s", type,
                        name);
}

/* What attributes must look like: hwloc takes most of them on trust, and where it does not, it
 * leaks what it has read so far. */
enum shape { DIGITS, REAL, COUNT, INDEX, SET, BUS_ID, PCI_TYPE, BRIDGE_TYPE };

static const struct {
    const char *name;
    enum shape shape;
} shapes[] = {
    {"os_index", DIGITS},
    {"gp_index", DIGITS},
    {"depth", DIGITS},
    {"cache_size", DIGITS},
    {"cache_linesize", DIGITS},
    {"cache_associativity", DIGITS},
    {"cache_type", DIGITS},
    {"local_memory", DIGITS},
    {"osdev_type", DIGITS},
    {"kind", DIGITS},
    {"subkind", DIGITS},
    {"nbobjs", COUNT},
    {"pci_link_speed", REAL},
    {"cpuset", SET},
    {"complete_cpuset", SET},
    {"allowed_cpuset", SET},
    {"nodeset", SET},
    {"complete_nodeset", SET},
    {"allowed_nodeset", SET},
    {"online_cpuset", SET},
    {"pci_busid", BUS_ID},
    {"pci_type", PCI_TYPE},
    {"bridge_type", BRIDGE_TYPE},
};

static bool only(const char *text, const char *allowed, size_t longest) {
    size_t length = strlen(text);
    return length > 0 && length <= longest && strspn(text, allowed) == length;
}

/* Whether the text is the pattern, in which x stands for a hexadecimal digit. */
static bool is_like(const char *text, const char *pattern) {
    for (; *pattern != '\0'; pattern++, text++)
        if (*pattern == 'x' ? isxdigit((unsigned char)*text) == 0 : *text != *pattern)
            return false;
    return *text == '\0';
}

/* Words of 32 bits, "0x0000000f,,0x1": all but the first and the last may be empty; before them
 * "0xf...f" for endless ones. */
static bool is_set(const char *text) {
    if (strncmp(text, "0xf...f", 7) == 0) {
        if (text[7] == '\0')
            return true;
        text += text[7] == ',' ? 8 : 7;
    }
    if (strlen(text) > 8192)
        return false;
    for (bool first = true;; first = false) {
        size_t length = strcspn(text, ",");
        bool last = text[length] == '\0';
        if (length == 0 ? first || last
                        : length < 3 || length > 10 || text[0] != '0' || text[1] != 'x' ||
                              strspn(text + 2, "0123456789abcdefABCDEF") < length - 2)
            return false;
        if (last)
            return true;
        text += length + 1;
    }
}

static bool has_shape(const char *text, enum shape shape) {
    switch (shape) {
    case DIGITS: /* -1: not known, in files of version 1 */
        return only(text, "0123456789", 20) || strcmp(text, "-1") == 0;
    case REAL:
        return only(text, "0123456789.", 24);
    case COUNT: /* hwloc squares it, in 32 bits */
        return only(text, "0123456789", 4);
    case INDEX: /* of a PU or node: hwloc makes sets as large as the largest */
        return only(text, "0123456789", 6) || strcmp(text, "-1") == 0 ||
               strcmp(text, "4294967295") == 0;
    case SET:
        return is_set(text);
    case BUS_ID:
        return is_like(text, "xxxx:xx:xx.x") || is_like(text, "xxxxx:xx:xx.x");
    case PCI_TYPE:
        return is_like(text, "xxxx [xxxx:xxxx] [xxxx:xxxx] xx");
    default:
        return strcmp(text, "0-1") == 0 || strcmp(text, "1-1") == 0 || strcmp(text, "0-0") == 0;
    }
}

static void check_shapes(struct checking *checking, const char **attributes) {
    for (; attributes[0] != NULL; attributes += 2)
        for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
            if (strcmp(attributes[0], shapes[i].name) == 0 &&
                !has_shape(attributes[1], shapes[i].shape))
                topo_xml_refuse(&checking->xml, "malformed: attribute %s is \"%.40s\"",
                                attributes[0], attributes[1]);
}

static const char *const types[] = {
    "System",  "Machine", "Package",  "Socket",   "Die",     "Core",     "PU",       "Cache",
    "L1Cache", "L2Cache", "L3Cache",  "L4Cache",  "L5Cache", "L1iCache", "L2iCache", "L3iCache",
    "Group",   "Misc",    "NUMANode", "MemCache", "Bridge",  "PCIDev",   "OSDev",    "Node"};

static const char *const elements[] = {
    "topology", "object",    "info",      "distances2", "distances2hetero",
    "indexes",  "u64values", "support",   "memattr",    "memattr_value",
    "cpukind",  "userdata",  "page_type", "distances",  "latency"};

static bool is_among(const char *text, const char *const *list, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, list[i]) == 0)
            return true;
    return false;
}

static void check_object(struct checking *checking, const char **attributes) {
    static const char *const sets[] = {"cpuset", "complete_cpuset", "nodeset", "complete_nodeset"};
    const char *type = topo_xml_attribute(attributes, "type");
    if (type == NULL) {
        topo_xml_refuse(&checking->xml, "an object without attribute %s", "type");
        return;
    }
    if (!is_among(type, types, sizeof(types) / sizeof(types[0])))
        topo_xml_refuse(&checking->xml, "the type \"%.40s\" is not known", type);
    bool io = strcmp(type, "PCIDev") == 0 || strcmp(type, "Bridge") == 0 ||
              strcmp(type, "OSDev") == 0 || strcmp(type, "Misc") == 0;
    for (size_t i = 0; i < (checking->version == 1 ? 2 : 4) && !io; i++)
        need(checking, attributes, type, sets[i]); /* hwloc 2.9 crashes without */
    for (size_t i = 2; i < 4; i++)                 /* in version 1 both or none */
        if (topo_xml_attribute(attributes, sets[i]) != NULL)
            need(checking, attributes, type, sets[5 - i]);
    if (strcmp(type, "PU") == 0 || strcmp(type, "NUMANode") == 0) {
        const char *index = topo_xml_attribute(attributes, "os_index");
        need(checking, attributes, type, "os_index");
        if (index != NULL && !has_shape(index, INDEX))
            topo_xml_refuse(&checking->xml, "malformed: os_index is \"%.40s\"", index);
    }
    if (strcmp(type, "PCIDev") == 0) {
        need(checking, attributes, type, "pci_busid");
        need(checking, attributes, type, "pci_type");
    }
    if (strcmp(type, "Bridge") == 0)
        need(checking, attributes, type, "bridge_type");
    if (strcmp(type, "OSDev") == 0)
        need(checking, attributes, type, "osdev_type");
}

static void on_start(void *argument, const char *name, const char **attributes) {
    struct checking *checking = argument;
    if (checking->depth++ == 0) {
        const char *version = topo_xml_attribute(attributes, "version");
        checking->version = version == NULL ? 1 : (int)(strtol(version, NULL, 10) & 0xffff);
        if (strcmp(name, "topology") != 0)
            topo_xml_refuse(&checking->xml, "the root element is not <%s>", "topology");
    }
    if (checking->depth > MAX_DEPTH)
        topo_xml_refuse(&checking->xml, "elements are nested deeper than %s levels", "64");
    if (checking->version > 2)
        return; /* hwloc's to refuse, or to know */
    if (!is_among(name, elements, sizeof(elements) / sizeof(elements[0])))
        topo_xml_refuse(&checking->xml, "element <%.40s> is not known", name);
    check_shapes(checking, attributes);
    if (strcmp(name, "object") == 0)
        check_object(checking, attributes);
    if (strcmp(name, "info") == 0)
        need(checking, attributes, "info", "name");
}

static void on_end(void *argument, const char *name) {
    (void)name;
    ((struct checking *)argument)->depth--;
}

/* "<!--" begins a comment wherever it stands: < is not allowed in attributes, and hwloc's files
 * have no CDATA. */
static size_t strip_comments(char *text, size_t length) {
    char *to = text;
    const char *at = text, *end = text + length, *open;
    while ((open = memmem(at, (size_t)(end - at), "<!--", 4)) != NULL) {
        const char *close = memmem(open, (size_t)(end - open), "-->", 3);
        memmove(to, at, (size_t)(open - at));
        to += open - at;
        at = close == NULL ? end : close + 3;
    }
    memmove(to, at, (size_t)(end - at));
    to += end - at;
    *to = '\0';
    return (size_t)(to - text);
}

/* Lines end with a line feed, whatever the file has (XML 2.11); without libxml2 hwloc knows no
 * other end. */
static size_t end_lines(char *text, size_t length) {
    char *to = text;
    for (size_t i = 0; i < length; i++)
        if (text[i] != '\r')
            *to++ = text[i];
        else if (i + 1 == length || text[i + 1] != '\n')
            *to++ = '\n';
    *to = '\0';
    return (size_t)(to - text);
}

rota_status hwloc_check(const char *source, const char *bytes, size_t length, char **text,
                        size_t *text_length, int *version) {
    struct checking checking = {.depth = 0};
    rota_status status =
        topo_xml_parse(&checking.xml, source, bytes, length, on_start, on_end, NULL);
    if (status != ROTA_OK)
        return status;
    char *copy = malloc(length + 1);
    if (copy == NULL)
        return error_raise(ROTA_ERR_MEMORY, "no memory for the topology of %.150s", source);
    memcpy(copy, bytes, length);
    *text_length = end_lines(copy, strip_comments(copy, length));
    *text = copy;
    *version = checking.version;
    return ROTA_OK;
}
