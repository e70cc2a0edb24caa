/* Pretended hosts: which rank is on which. */
#include "launch/launch.h"

#include "cli/arguments.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes the number at *text that ends before `separator` or the end; -1 when there is none. */
static int number_take(const char **text, char separator) {
    char digits[8];
    int64_t value;
    size_t length = strspn(*text, "0123456789");
    if (length == 0 || length >= sizeof(digits) ||
        ((*text)[length] != separator && (*text)[length] != '\0'))
        return -1;
    memcpy(digits, *text, length);
    digits[length] = '\0';
    if (!cli_parse_integer(digits, 0, 65535, &value))
        return -1;
    *text += length;
    return (int)value;
}

static bool by_rank(const char *text, int *hosts, int *nranks) {
    for (*nranks = 0; *nranks < LAUNCH_MAX_RANKS; text++) {
        int host = number_take(&text, ',');
        if (host < 0)
            return false;
        hosts[(*nranks)++] = host;
        if (*text == '\0')
            return true;
    }
    return false;
}

static bool by_count(const char *text, int *hosts, int *nranks) {
    int host = 0;
    for (*nranks = 0;; text++, host++) {
        int count = number_take(&text, '+');
        if (count < 1 || count > LAUNCH_MAX_RANKS - *nranks)
            return false;
        for (int i = 0; i < count; i++)
            hosts[(*nranks)++] = host;
        if (*text == '\0')
            return true;
    }
}

int *launch_hosts_parse(const char *text, int *nranks, char *why, size_t why_size) {
    char quoted[CLI_QUOTED];
    int *hosts = malloc(LAUNCH_MAX_RANKS * sizeof(*hosts));
    if (!hosts) {
        snprintf(why, why_size, "out of memory");
        return NULL;
    }
    bool listed = strchr(text, ',') || strcmp(text, "0") == 0;
    int count;
    if (listed ? by_rank(text, hosts, &count) : by_count(text, hosts, &count)) {
        *nranks = count;
        return hosts;
    }
    snprintf(why, why_size,
             "--hosts expects ranks per host as 2+2 or the host of each rank as 0,1,1,0, for at "
             "most %d ranks, not %s",
             LAUNCH_MAX_RANKS, cli_quote(text, quoted));
    free(hosts);
    return NULL;
}
