/* Slurm's host lists: names separated by commas, with numbers in brackets that stand for ranges;
 * several brackets in a name stand for all combinations. */
#include "base/error.h"
#include "bootstrap/launcher.h"
#include <string.h>

static bool is_host_character(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '.' || c == '_';
}

/* After '[': appends the first number, and returns what follows the ']'. NULL: no range. */
static const char *take_range(const char *at, char *host, size_t size, size_t *used) {
    size_t digits = strspn(at, "0123456789");
    size_t inside = strspn(at, "0123456789-,");
    if (digits == 0 || at[inside] != ']' || *used + digits >= size)
        return NULL;
    memcpy(host + *used, at, digits);
    *used += digits;
    return at + inside + 1;
}

rota_status hostlist_first(const char *list, char *host, size_t size) {
    size_t used = 0;
    const char *at = list;
    while (at != NULL && *at != 0 && *at != ',') {
        if (*at == '[') {
            at = take_range(at + 1, host, size, &used);
        } else if (is_host_character(*at) && used + 1 < size) {
            host[used++] = *at++;
        } else {
            at = NULL;
        }
    }
    if (at == NULL || used == 0)
        return error_raise(ROTA_ERR_FORMAT,
                           "\"%.80s\" is no list of hosts such as node[01-03,7],other", list);
    host[used] = 0;
    return ROTA_OK;
}
