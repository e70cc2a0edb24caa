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
/* The other way round; family 0 for what is no IP address. IPv4 mapped into IPv6 becomes IPv4. */
void net_address_from_socket(const struct sockaddr *socket_address, struct net_address *address);
bool net_address_is_loopback(const struct net_address *address);
bool net_address_is_link_local(const struct net_address *address);
/* Parses "HOST:PORT" or "[IPV6]:PORT"; a host name is resolved (all its addresses, at most max).
 * Errors: ROTA_ERR_ARGUMENT (form), ROTA_ERR_SYSTEM (resolution). */
rota_status net_address_parse(const char *text, struct net_address *addresses, int max, int *count);

/* Whether the fields are those of an address that may be dialled: for what came over the network.
 */
bool net_addresses_valid(const struct net_addresses *addresses);

/* The index-th IP address at which to dial a peer that announced `peer`; false past the last.
 * Callers try one after the other until a handshake succeeds: on one host the loopback addresses
 * come first (every listener is on the wildcard), but equal hosts may have separate networks, so
 * the announced ones follow. Of a link-local IPv6 address there is one candidate per own interface
 * that has such an address, since the scope must be ours. */
bool net_pick_address(const struct net_addresses *peer, bool same_host, int index,
                      struct net_address *address);

/* Addresses of this machine's interfaces that peers on other hosts could reach, by the setting
 * ROTA_INTERFACE: routable before link-local, never a container bridge (docker*, br-*, virbr*,
 * cni*, veth*, flannel*) unless named, never loopback unless it is all there is or named. Names
 * may hold * and ?; '^' before the first excludes the whole list. `settings` NULL: no setting.
 * Errors: ROTA_ERR_SETTING when no named interface exists (the message lists those found). */
rota_status net_interfaces(const struct settings *settings, struct net_address *addresses, int max,
                           int *count);

#endif
