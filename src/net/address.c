/* Addresses and interfaces: their forms, and which of this machine's to announce to peers. */
#include "net/address.h"
#include "base/error.h"
#include "base/log.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CANDIDATES 64 /* interface addresses looked at; more than machines have */
#define MAX_NAMES 32      /* words of ROTA_INTERFACE */
#define MAX_SCOPES 8      /* own interfaces tried for one link-local address */
#define CARRIER 0x10000u  /* IFF_LOWER_UP; its header cannot be included beside <net/if.h> */

void net_address_text(const struct net_address *address, char text[NET_ADDRESS_TEXT]) {
    char number[INET6_ADDRSTRLEN] = "?";
    if (address->family == AF_INET) {
        inet_ntop(AF_INET, address->bytes, number, sizeof number);
        snprintf(text, NET_ADDRESS_TEXT, "%s:%u", number, (unsigned)address->port);
    } else if (address->family == AF_INET6) {
        inet_ntop(AF_INET6, address->bytes, number, sizeof number);
        if (address->scope != 0)
            snprintf(text, NET_ADDRESS_TEXT, "[%s%%%u]:%u", number, address->scope,
                     (unsigned)address->port);
        else
            snprintf(text, NET_ADDRESS_TEXT, "[%s]:%u", number, (unsigned)address->port);
    } else {
        snprintf(text, NET_ADDRESS_TEXT, "(no address)");
    }
}

void net_address_to_socket(const struct net_address *address, struct sockaddr_storage *storage,
                           socklen_t *length) {
    memset(storage, 0, sizeof *storage);
    if (address->family == AF_INET6) {
        struct sockaddr_in6 *six = (struct sockaddr_in6 *)storage;
        six->sin6_family = AF_INET6;
        six->sin6_port = htons(address->port);
        six->sin6_scope_id = address->scope;
        memcpy(&six->sin6_addr, address->bytes, 16);
        *length = sizeof *six;
    } else {
        struct sockaddr_in *four = (struct sockaddr_in *)storage;
        four->sin_family = AF_INET;
        four->sin_port = htons(address->port);
        memcpy(&four->sin_addr, address->bytes, 4);
        *length = sizeof *four;
    }
}

void net_address_from_socket(const struct sockaddr *socket_address, struct net_address *address) {
    memset(address, 0, sizeof *address);
    if (socket_address->sa_family == AF_INET) {
        const struct sockaddr_in *four = (const struct sockaddr_in *)(const void *)socket_address;
        address->family = AF_INET;
        address->port = ntohs(four->sin_port);
        memcpy(address->bytes, &four->sin_addr, 4);
    } else if (socket_address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)socket_address;
        address->port = ntohs(six->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) {
            address->family = AF_INET;
            memcpy(address->bytes, &six->sin6_addr.s6_addr[12], 4);
        } else {
            address->family = AF_INET6;
            address->scope = six->sin6_scope_id;
            memcpy(address->bytes, &six->sin6_addr, 16);
        }
    }
}

bool net_address_is_loopback(const struct net_address *address) {
    static const uint8_t six[16] = {[15] = 1};
    if (address->family == AF_INET)
        return address->bytes[0] == 127;
    return address->family == AF_INET6 && memcmp(address->bytes, six, 16) == 0;
}

bool net_address_is_link_local(const struct net_address *address) {
    if (address->family == AF_INET)
        return address->bytes[0] == 169 && address->bytes[1] == 254;
    return address->family == AF_INET6 && address->bytes[0] == 0xfe &&
           (address->bytes[1] & 0xc0) == 0x80;
}

bool net_addresses_valid(const struct net_addresses *addresses) {
    for (int i = 0; i < NET_MAX_ADDRESSES; i++) {
        const struct net_address *address = &addresses->inet[i];
        if (address->family == 0)
            continue;
        if ((address->family != AF_INET && address->family != AF_INET6) || address->port == 0)
            return false;
    }
    return memchr(addresses->local_name, 0, sizeof addresses->local_name) != NULL;
}

/* Splits "HOST:PORT" or "[HOST]:PORT". */
static bool split_host_port(const char *text, char *host, size_t size, uint16_t *port) {
    const char *begin = text, *end, *digits;
    if (*text == '[') {
        begin = text + 1;
        end = strchr(begin, ']');
        if (end == NULL || end[1] != ':')
            return false;
        digits = end + 2;
    } else {
        end = strchr(text, ':');
        if (end == NULL || strchr(end + 1, ':') != NULL)
            return false;
        digits = end + 1;
    }
    size_t length = (size_t)(end - begin);
    if (length == 0 || length >= size || *digits == 0 || strlen(digits) > 5)
        return false;
    if (digits[strspn(digits, "0123456789")] != 0)
        return false;
    long number = strtol(digits, NULL, 10);
    if (number < 1 || number > 65535)
        return false;
    memcpy(host, begin, length);
    host[length] = 0;
    *port = (uint16_t)number;
    return true;
}

rota_status net_address_parse(const char *text, struct net_address *addresses, int max,
                              int *count) {
    char host[NI_MAXHOST], service[8];
    uint16_t port;
    if (!split_host_port(text, host, sizeof host, &port))
        return error_raise(ROTA_ERR_ARGUMENT,
                           "\"%.80s\" is no address: expected HOST:PORT or [IPV6]:PORT with a port "
                           "from 1 to 65535",
                           text);
    snprintf(service, sizeof service, "%u", (unsigned)port);
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    int failure = getaddrinfo(host, service, &hints, &found);
    if (failure == EAI_SYSTEM)
        return error_raise_system(errno, "cannot resolve host name \"%.80s\"", host);
    if (failure != 0)
        return error_raise(ROTA_ERR_SYSTEM, "cannot resolve host name \"%.80s\": %s", host,
                           gai_strerror(failure));
    int n = 0;
    for (struct addrinfo *one = found; one != NULL && n < max; one = one->ai_next) {
        net_address_from_socket(one->ai_addr, &addresses[n]);
        if (addresses[n].family != 0)
            n++;
    }
    freeaddrinfo(found);
    if (n == 0)
        return error_raise(ROTA_ERR_SYSTEM, "host name \"%.80s\" has no IP address", host);
    *count = n;
    return ROTA_OK;
}

/* -- interfaces --------------------------------------------------------------------------------
 */

/* The words of ROTA_INTERFACE. */
struct interface_filter {
    char text[1024];
    const char *wanted[MAX_NAMES], *excluded[MAX_NAMES];
    int nwanted, nexcluded;
};

static rota_status filter_parse(const char *list, struct interface_filter *filter) {
    memset(filter, 0, sizeof *filter);
    if (strlen(list) >= sizeof filter->text)
        return error_raise(ROTA_ERR_SETTING, "ROTA_INTERFACE is longer than %zu characters",
                           sizeof filter->text - 1);
    memcpy(filter->text, list, strlen(list) + 1);
    char *rest = filter->text;
    bool exclude_all = *rest == '^';
    for (char *word; (word = strsep(&rest, ",")) != NULL;) {
        word += strspn(word, " ");
        word[strcspn(word, " ")] = 0;
        bool exclude = exclude_all || *word == '^';
        if (*word == '^')
            word++;
        if (*word == 0)
            continue;
        if (filter->nwanted == MAX_NAMES || filter->nexcluded == MAX_NAMES)
            return error_raise(ROTA_ERR_SETTING, "ROTA_INTERFACE has more than %d names",
                               MAX_NAMES);
        if (exclude)
            filter->excluded[filter->nexcluded++] = word;
        else
            filter->wanted[filter->nwanted++] = word;
    }
    return ROTA_OK;
}

static int name_position(const char *name, const char *const *patterns, int npatterns) {
    for (int i = 0; i < npatterns; i++)
        if (fnmatch(patterns[i], name, 0) == 0)
            return i;
    return -1;
}

static bool is_container_bridge(const char *name) {
    static const char *const bridges[] = {"docker*", "br-*", "virbr*", "cni*", "veth*", "flannel*"};
    return name_position(name, bridges, (int)(sizeof bridges / sizeof *bridges)) >= 0;
}

struct interface_candidate {
    struct net_address address;
    int class;    /* 0 routable, 1 link-local, 2 loopback */
    int position; /* in ROTA_INTERFACE */
    int nth;      /* of its family at this class and position */
};

/* Best first; families take turns, so that a peer with one family alone finds an address. */
static int compare_candidates(const void *left, const void *right) {
    const struct interface_candidate *a = left, *b = right;
    if (a->class != b->class)
        return a->class - b->class;
    if (a->position != b->position)
        return a->position - b->position;
    if (a->nth != b->nth)
        return a->nth - b->nth;
    return (int)a->address.family - (int)b->address.family;
}

/* Whether an interface's address may be announced, and how good it is. `bridges`: also those of
 * containers, which lead nowhere as a rule and often have the same address on every host. */
static bool consider(const struct ifaddrs *one, const struct interface_filter *filter, bool bridges,
                     struct interface_candidate *candidate) {
    if (one->ifa_addr == NULL ||
        (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6))
        return false;
    /* The kernel may set RUNNING as much as a second after the carrier is there. */
    if (!(one->ifa_flags & IFF_UP) || !(one->ifa_flags & (IFF_RUNNING | CARRIER)))
        return false;
    if (name_position(one->ifa_name, filter->excluded, filter->nexcluded) >= 0)
        return false;
    candidate->position = 0;
    if (filter->nwanted > 0) {
        candidate->position = name_position(one->ifa_name, filter->wanted, filter->nwanted);
        if (candidate->position < 0)
            return false;
    } else if (!bridges && is_container_bridge(one->ifa_name)) {
        return false;
    }
    net_address_from_socket(one->ifa_addr, &candidate->address);
    bool loopback = (one->ifa_flags & IFF_LOOPBACK) || net_address_is_loopback(&candidate->address);
    candidate->class = loopback ? 2 : net_address_is_link_local(&candidate->address) ? 1 : 0;
    return true;
}

/* The names found, for messages. */
static void interface_names(const struct ifaddrs *all, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        bool seen = false;
        for (const struct ifaddrs *before = all; before != one && !seen; before = before->ifa_next)
            seen = strcmp(before->ifa_name, one->ifa_name) == 0;
        if (seen || used >= size)
            continue;
        int wrote = snprintf(text + used, size - used, "%s%s", used ? ", " : "", one->ifa_name);
        used += wrote > 0 ? (size_t)wrote : 0;
    }
}

static int collect(const struct ifaddrs *all, const struct interface_filter *filter, bool bridges,
                   struct interface_candidate *candidates) {
    int n = 0;
    for (const struct ifaddrs *one = all; one != NULL && n < MAX_CANDIDATES; one = one->ifa_next) {
        if (!consider(one, filter, bridges, &candidates[n]))
            continue;
        candidates[n].nth = 0;
        for (int i = 0; i < n; i++)
            if (candidates[i].class == candidates[n].class &&
                candidates[i].position == candidates[n].position &&
                candidates[i].address.family == candidates[n].address.family)
                candidates[n].nth++;
        n++;
    }
    qsort(candidates, (size_t)n, sizeof *candidates, compare_candidates);
    return n;
}

rota_status net_interfaces(const struct settings *settings, struct net_address *addresses, int max,
                           int *count) {
    struct interface_filter filter;
    const char *list = settings != NULL ? settings_text(settings, SETTING_INTERFACE) : "";
    rota_status status = filter_parse(list, &filter);
    if (status != ROTA_OK)
        return status;
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        return error_raise_system(errno, "cannot list the network interfaces");
    bool exists = filter.nwanted == 0;
    for (const struct ifaddrs *one = all; one != NULL && !exists; one = one->ifa_next)
        exists = name_position(one->ifa_name, filter.wanted, filter.nwanted) >= 0;
    if (!exists) {
        char names[300];
        interface_names(all, names, sizeof names);
        freeifaddrs(all);
        return error_raise(ROTA_ERR_SETTING,
                           "ROTA_INTERFACE=\"%.60s\" names no interface of this machine; found: %s",
                           list, names);
    }
    struct interface_candidate candidates[MAX_CANDIDATES];
    int n = collect(all, &filter, false, candidates);
    if (n == 0 || candidates[0].class == 2)
        n = collect(all, &filter, true, candidates); /* a container's only way out */
    freeifaddrs(all);
    int taken = 0;
    for (int i = 0; i < n && taken < max; i++) {
        /* Loopback comes last: announced when named, or when there is nothing else. */
        if (candidates[i].class == 2 && filter.nwanted == 0 && taken > 0 &&
            candidates[0].class != 2)
            break;
        addresses[taken++] = candidates[i].address;
    }
    if (taken == 0 && filter.nwanted > 0)
        log_write(
            LOG_WARN,
            "no interface of ROTA_INTERFACE=\"%.60s\" is up and has an address: only ranks of "
            "this host can be reached",
            list);
    *count = taken;
    return ROTA_OK;
}

/* -- choosing where to dial --------------------------------------------------------------------
 */

/* Scopes of own interfaces that have a link-local IPv6 address. */
static int own_scopes(uint32_t scopes[MAX_SCOPES]) {
    struct ifaddrs *all = NULL;
    int n = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (const struct ifaddrs *one = all; one != NULL && n < MAX_SCOPES; one = one->ifa_next) {
        struct net_address address;
        if (one->ifa_addr == NULL || one->ifa_addr->sa_family != AF_INET6 ||
            !(one->ifa_flags & IFF_UP) || is_container_bridge(one->ifa_name))
            continue;
        net_address_from_socket(one->ifa_addr, &address);
        if (net_address_is_link_local(&address))
            scopes[n++] = address.scope;
    }
    freeifaddrs(all);
    return n;
}

/* One pass over the announced addresses that are (not) loopback; counts `*index` down. */
static bool pick_announced(const struct net_addresses *peer, bool loopback, int *index,
                           struct net_address *address) {
    for (int i = 0; i < NET_MAX_ADDRESSES; i++) {
        const struct net_address *one = &peer->inet[i];
        if (one->family == 0 || net_address_is_loopback(one) != loopback)
            continue;
        uint32_t scopes[MAX_SCOPES] = {0};
        bool scoped = one->family == AF_INET6 && net_address_is_link_local(one);
        int variants = scoped ? own_scopes(scopes) : 1;
        if (*index >= variants) {
            *index -= variants;
            continue;
        }
        *address = *one;
        address->scope = scopes[*index];
        return true;
    }
    return false;
}

bool net_pick_address(const struct net_addresses *peer, bool same_host, int index,
                      struct net_address *address) {
    uint16_t port = 0;
    for (int i = 0; i < NET_MAX_ADDRESSES && port == 0; i++)
        if (peer->inet[i].family != 0)
            port = peer->inet[i].port;
    if (index < 0 || port == 0)
        return false;
    if (same_host) {
        if (index < 2) {
            memset(address, 0, sizeof *address);
            address->port = port;
            address->family = index == 0 ? AF_INET : AF_INET6;
            address->bytes[index == 0 ? 0 : 15] = index == 0 ? 127 : 1;
            if (index == 0)
                address->bytes[3] = 1;
            return true;
        }
        index -= 2;
    }
    return pick_announced(peer, false, &index, address) ||
           (!same_host && pick_announced(peer, true, &index, address));
}
