/* Network interfaces with what RDMA needs to know of them. See devices.h. */
#include "devices.h"

#include "net/address.h"
#include <ifaddrs.h>
#include <linux/if_arp.h>
#include <linux/if_packet.h>
#include <stdio.h>
#include <string.h>

/* Of IPoIB: number of a queue pair, then the GID. The address of the structure is longer than its
 * declaration, which the C library allows for. */
#define HARDWARE_BYTES 20
#define GID_AT 4

static void take_hardware(const struct ifaddrs *all, struct verbs_interface *interface) {
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        const struct sockaddr_ll *link = (const void *)one->ifa_addr;
        if (link == NULL || link->sll_family != AF_PACKET ||
            strcmp(one->ifa_name, interface->name) != 0 || link->sll_hatype != ARPHRD_INFINIBAND ||
            link->sll_halen != HARDWARE_BYTES)
            continue;
        const uint8_t *bytes = (const uint8_t *)link + offsetof(struct sockaddr_ll, sll_addr);
        memcpy(interface->gid, bytes + GID_AT, sizeof(interface->gid));
        interface->infiniband = true;
    }
}

static void take_partition(struct verbs_interface *interface) {
    char path[64 + IF_NAMESIZE];
    unsigned key = 0;
    snprintf(path, sizeof(path), "/sys/class/net/%s/pkey", interface->name);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%x", &key) == 1)
        interface->partition = (uint16_t)key;
    fclose(file);
}

static bool take(const struct ifaddrs *all, const struct ifaddrs *one,
                 struct verbs_interface *interface) {
    struct net_address address;
    *interface = (struct verbs_interface){0};
    net_address_from_socket(one->ifa_addr, &address);
    if (address.family == 0)
        return false;
    if (address.family == AF_INET) {
        memset(interface->ip + 10, 0xff, 2);
        memcpy(interface->ip + 12, address.bytes, 4);
    } else {
        memcpy(interface->ip, address.bytes, sizeof(interface->ip));
    }
    snprintf(interface->name, sizeof(interface->name), "%s", one->ifa_name);
    interface->index = if_nametoindex(one->ifa_name);
    take_hardware(all, interface);
    if (interface->infiniband)
        take_partition(interface);
    return true;
}

int verbs_interfaces(struct verbs_interface *interfaces) {
    struct ifaddrs *all = NULL;
    int count = 0;
    if (getifaddrs(&all) != 0)
        return 0;
    for (int family = AF_INET; family != 0; family = family == AF_INET ? AF_INET6 : 0)
        for (const struct ifaddrs *one = all; one != NULL && count < VERBS_INTERFACES;
             one = one->ifa_next)
            if (one->ifa_addr != NULL && one->ifa_addr->sa_family == family &&
                (one->ifa_flags & IFF_UP) != 0 && take(all, one, &interfaces[count]))
                count++;
    freeifaddrs(all);
    return count;
}
