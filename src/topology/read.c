/* Which reader a file is for: told by its content, since names say little. */
#include "base/error.h"
#include "topology/graph.h"

#include <ctype.h>
#include <string.h>

/* The first element of an XML text, past declarations and comments; "" when there is none. */
static void first_element(const char *bytes, size_t length, char name[32]) {
    const char *at = bytes, *end = bytes + length;
    name[0] = '\0';
    while ((at = memchr(at, '<', (size_t)(end - at))) != NULL) {
        size_t left = (size_t)(end - at);
        if (left > 4 && memcmp(at, "<!--", 4) == 0) {
            at = memmem(at, left, "-->", 3);
            if (at == NULL)
                return;
        } else if (left > 1 && at[1] != '!' && at[1] != '?') {
            size_t size = 0;
            while (size < 31 && size + 1 < left && (isalnum((unsigned char)at[size + 1]) != 0))
                size++;
            memcpy(name, at + 1, size);
            name[size] = '\0';
            return;
        }
        at++;
    }
}

rota_status topo_read(struct topo *topo, const char *bytes, size_t length) {
    char element[32];
    size_t at = 0;
    while (at < length && isspace((unsigned char)bytes[at]))
        at++;
    if (at == length)
        return error_raise(ROTA_ERR_FORMAT, "%s: the file is empty", topo->source);
    if (memchr(bytes, '\0', length) != NULL)
        return error_raise(ROTA_ERR_FORMAT, "%s: a binary file, expected XML or text",
                           topo->source);
    if (bytes[at] == '<') {
        first_element(bytes, length, element);
        if (strcmp(element, "topology") == 0)
            return topo_read_hwloc(topo, bytes, length);
        if (strcmp(element, "graphs") == 0)
            return error_raise(ROTA_ERR_FORMAT,
                               "%s: a NCCL graph file (rings), expected a topology", topo->source);
        return topo_read_nccl(topo, bytes, length);
    }
    if (length - at >= 7 && memcmp(bytes + at, "cluster", 7) == 0)
        return topo_read_cluster(topo, bytes, length);
    if (memmem(bytes, length, "\tGPU", 4) != NULL || memmem(bytes, length, " GPU", 4) != NULL)
        return topo_read_matrix(topo, bytes, length);
    return error_raise(ROTA_ERR_FORMAT,
                       "%s: expected NCCL or hwloc XML, the table of nvidia-smi topo -m, or a text "
                       "that begins with \"cluster\"",
                       topo->source);
}
