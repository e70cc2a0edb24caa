/* Addresses and interfaces: which to listen on and which to announce. */
#ifndef NET_ADDRESS_H
#define NET_ADDRESS_H

#include "base/settings.h"
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#define NET_MAX_ADDRESSES 4

/* One IP address with port; family 0 when unused. Fixed layout: it is sent. */
struct net_address {
    uint16_t family; /* AF_INET, AF_INET6 or 0 */
    uint16_t port;   /* host order */
    uint32_t scope;  /* of link-local IPv6; meaningful on the host that has the interface */
    uint8_t bytes[16];
};
_Static_assert(sizeof(struct net_address) == 24, "net_address is sent over the wire");

/* Where a process's control thread listens, best address first. */
struct net_addresses {
    struct net_address inet[NET_MAX_ADDRESSES];
    char local_name[40]; /* abstract Unix socket without the leading NUL, "" when there is none */
};
_Static_assert(sizeof(struct net_addresses) == 136, "net_addresses is sent over the wire");

#define NET_ADDRESS_TEXT 96
/* "10.0.0.1:5000", "[fd00::1]:5000". */
void net_address_text(const struct net_address *address, char text[NET_ADDRESS_TEXT]);
void net_address_to_socket(const struct net_address *address, struct sockaddr_storage *storage,
                           socklen_t *length);
bool net_address_is_loopback(const struct net_address *address);
/* Parses "HOST:PORT" or "[IPV6]:PORT"; a host name is resolved (all its addresses, at most max).
 * Errors: ROTA_ERR_ARGUMENT (form), ROTA_ERR_SYSTEM (resolution). */
rota_status net_address_parse(const char *text, struct net_address *addresses, int max, int *count);

/* Addresses of this machine's interfaces that peers on other hosts could reach, by the setting
 * ROTA_INTERFACE: routable before link-local, never a container bridge (docker*, br-*, virbr*,
 * cni*, veth*, flannel*) unless named, never loopback unless it is all there is or named. Errors:
 * ROTA_ERR_SETTING when a named interface does not exist (the message lists those found). */
rota_status net_interfaces(const struct settings *settings, struct net_address *addresses, int max,
                           int *count);

#endif
