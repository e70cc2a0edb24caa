/* RDMA devices of this machine: which of their ports a rank uses as rails, by which address, GID,
 * partition and MTU, and why the others are not used; and which rail leads to a peer.
 *
 * Design notes. The connection manager takes device, port, GID and partition from the IP address
 * that an id is bound to, so an address is all there is to choose, and all that a peer must know of
 * a rail. On Ethernet (RoCE v2) a GID is such an address. On InfiniBand it is that of an IPoIB
 * interface, whose hardware address holds the port's GID and which belongs to one partition. iWARP
 * has the address of its network interface. */
#ifndef VERBS_DEVICES_H
#define VERBS_DEVICES_H

#include "base/settings.h"
#include "calls.h"
#include <net/if.h>
#include <stdbool.h>
#include <sys/socket.h>

enum { VERBS_DEVICE_PORTS = 16, VERBS_MAX_RAILS = 2, VERBS_WHY = 256 };

/* -- for the transport --------------------------------------------------------------------- */

/* A port that is used: an address of this host whose connections leave by it. `context` is the one
 * of librdmacm, since ids that are bound to the address have it too; it stays librdmacm's. */
struct verbs_rail {
    struct ibv_context *context;
    uint8_t ip[16];                  /* the address, IPv4 as ::ffff:a.b.c.d */
    struct sockaddr_storage address; /* the same, port 0: to bind to, also before connecting */
    uint32_t interface;              /* index of the network interface, for verbs_address */
    uint8_t port;
    bool ethernet;     /* false: InfiniBand */
    bool immediate;    /* false: iWARP, no write with immediate */
    uint32_t mtu;      /* in bytes, of this end: a way's is what verbs_route says */
    uint32_t link_mtu; /* what the link would carry: the connection manager's choice */
    char name[64];
};

/* Finds the rails, best first, by the settings; at most `max`. *count is at least 1. Warns once of
 * each device that a failing call costs where others are left. Errors: ROTA_ERR_UNSUPPORTED (no
 * usable port: the message says why; system_error of the record is that of a call that failed, 0
 * when there is merely none), ROTA_ERR_SETTING, ROTA_ERR_MEMORY. */
rota_status verbs_rails_find(const struct verbs_calls *calls, const struct settings *settings,
                             struct verbs_rail *rails, int max, int *count);

/* An address for the connection manager. `interface`: index of the own network interface by which
 * it is reached, for addresses that are valid on one link alone. */
void verbs_address(const uint8_t ip[16], uint32_t interface, uint16_t port,
                   struct sockaddr_storage *address);

/* The own rail that leads to a peer's address, by this machine's routes. Sets the MTU of the way as
 * far as this end knows: what the port and the route carry. Returns its position, -1: none does. */
int verbs_route(const struct verbs_rail *rails, int count, const uint8_t ip[16], uint32_t *mtu);

/* Instead of rdma_resolve_route, after ADDR_RESOLVED on an Ethernet rail with immediate: has the
 * connection of `id` use packets of this size, which its request tells the other side. The event
 * ROUTE_RESOLVED follows. `ack_timeout` as for RDMA_OPTION_ID_ACK_TIMEOUT. 0, or -1 and errno. */
int verbs_set_path(const struct verbs_calls *calls, struct rdma_cm_id *id, uint32_t mtu,
                   uint8_t ack_timeout);

/* -- for people ---------------------------------------------------------------------------- */

struct verbs_device_port {
    char device[IBV_SYSFS_NAME_MAX]; /* "mlx5_0" */
    uint8_t number;                  /* of the port, from 1 */
    bool used, iwarp, ethernet;
    bool by_choice;      /* not used, and nothing is wrong with it */
    int system_error;    /* of the call that failed; 0: none did */
    char why[VERBS_WHY]; /* a line for people: what is used of it, or why it is not used */
    /* The rest where it is used. */
    uint32_t speed; /* in Mb/s */
    int gid_index;
    unsigned partition; /* of InfiniBand */
    uint32_t interface;
    char interface_name[IF_NAMESIZE];
    uint8_t ip[16];
    uint32_t mtu, link_mtu; /* bytes in a packet: what is used; what the link would carry */
};

struct verbs_device_ports {
    int count, used;
    struct verbs_device_port ports[VERBS_DEVICE_PORTS]; /* by name and number */
    char why[VERBS_WHY];                                /* used 0: why */
    int system_error; /* used 0: of the call that failed; 0: none did */
};

/* A network interface of this machine with an IP address. */
struct verbs_interface {
    char name[IF_NAMESIZE];
    uint32_t index;
    uint8_t ip[16];
    bool infiniband; /* IPoIB: with these two */
    uint8_t gid[16];
    uint16_t partition;
};
enum { VERBS_INTERFACES = 64 };
/* Those that are up, IPv4 first; at most VERBS_INTERFACES. Returns their number. */
int verbs_interfaces(struct verbs_interface *interfaces);

/* Looks at all devices. By default those active ports are used that are as fast as the fastest;
 * ROTA_RDMA_DEVICE names others, ROTA_RDMA_GID_INDEX, ROTA_RDMA_PARTITION and ROTA_RDMA_MTU decide
 * what is used of them. A device that cannot be opened costs that device alone. Outputs are set in
 * any case. Errors: ROTA_ERR_SETTING (a value that is no partition), ROTA_ERR_MEMORY. */
rota_status verbs_ports_find(const struct verbs_calls *calls, const struct settings *settings,
                             const struct verbs_interface *interfaces, int ninterfaces,
                             struct verbs_device_ports *ports);

#endif
